"""Files: saved models, the archive format beneath them, atomic writing, and records of where a result comes from.

Built on backends and graph; everything that reads or writes results uses it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
