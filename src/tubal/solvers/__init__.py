"""Solvers: small frozen dataclasses that minimise a problem of ``tubal.problems``.

``Admm`` and ``Fista`` find codes, ``LagrangeDual`` and ``ProjectedGradient`` find dictionaries; ``base`` holds the one
loop and the interfaces for writing your own. Learning and estimators import from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
