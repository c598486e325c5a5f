"""Dictionary learning: the alternation of Algorithm 2 over chunks of images, in memory or on disk."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
