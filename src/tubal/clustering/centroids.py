"""K-means on features, the clustering step of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cut import check_n_clusters, order_by_size
from .eigen import LabelArray


def kmeans(features: NDArray[Any], n_clusters: int, *, n_starts: int = 10, seed: int | None = None) -> LabelArray:
    """Return labels (n,) of the best of ``n_starts`` K-means runs on rows (n, d), largest cluster first.

    With fewer distinct rows than clusters the surplus clusters stay empty and labels count what is there.

    >>> kmeans(np.array([[0.0], [0.1], [0.2], [9.0]]), 2, seed=0)
    array([0, 0, 0, 1])
    """
    import warnings

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    check_n_clusters(n_clusters, len(features))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(n_clusters, n_init=n_starts, random_state=seed).fit(features)
    return order_by_size(model.labels_.astype(np.intp))
