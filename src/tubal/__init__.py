"""Sparse, shift-aware codes and clusters for piles of small images, without labels."""

import lazy_loader

__version__ = "0.1.0"

# Nothing is imported before it is used (SPEC 1 of Scientific Python), so `import tubal` and `tubal --help` stay fast.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
