"""Models: for each linear map from codes to images a coding problem, its statistics and a dictionary problem.

The names exported here are public; they are all that a new model needs (``docs/models.md``). Solvers, learning and
estimators import from this package; it imports ``graph``, ``algebra`` and ``backends`` only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
