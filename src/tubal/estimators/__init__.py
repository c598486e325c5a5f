"""The sparse coders as scikit-learn estimators: their parameters, checks of what users pass, and explanations.

The computing is in learning and below; clustering, report and the command line build on the coders.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
