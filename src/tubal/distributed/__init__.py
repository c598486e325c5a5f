"""Fits on a Dask cluster: ``fit`` itself, and what it runs on the workers (tasks, partitions, graphs in blocks).

Built on the estimators and on learning; only the command line calls it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
