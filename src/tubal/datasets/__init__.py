"""Collections of small images: the four of the paper, digits, synthetic shapes, and folders of pictures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
