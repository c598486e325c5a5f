"""From a neighbour graph to clusters: ImageClusterer and its steps.

Start with ``clusterer``, which calls the steps in order: neighbour lists and edge weights (``affinity``), the number of
clusters (``spectral``), cuts (``cuts``, with ``groups`` for large graphs), nested clusters (``tree``), and measures for
single images (``quality``). What a person says afterwards, and images that come later, are in ``hints`` and ``growth``.
Imports ``estimators`` and ``graph``; only ``experiments``, ``report``, ``app`` and ``cli`` import it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
