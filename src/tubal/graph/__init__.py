"""Neighbour graphs of images: the Graph object, ways to build one, and its Laplacian.

Start with ``build`` (what makes a graph) and ``structure`` (what a graph is). Imports only ``backends``; everything
from ``problems`` upwards may import it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
