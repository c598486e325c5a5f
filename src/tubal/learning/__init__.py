"""Dictionary learning: the alternation of Algorithm 2, and one set-up for fits in memory, in chunks and online.

Built on problems, solvers, graph and storage; the estimators and the fits on a Dask cluster call it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
