"""Coding and dictionary problems: one file per linear map, and the base classes to write your own."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
