"""Images to work with: the paper's four collections, handwritten digits, synthetic shapes, and files of your own.

Every function returns images as float32 values in [0, 1]. Clustering, experiments and the command line import this
package; it imports ``images`` and ``storage`` only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
