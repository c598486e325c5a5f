"""Labels of new images from the labels of their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .eigen import FloatArray, LabelArray


def vote(
    neighbors: NDArray[np.intp],
    weights: NDArray[Any],
    labels: LabelArray,
    *,
    trust: FloatArray | None = None,
    n_clusters: int | None = None,
) -> FloatArray:
    """Return shares of votes (m, c) that the training neighbours (m, q) of new images cast for each cluster.

    A vote counts its edge weight times the voter's own confidence ``trust`` (n,). Negative indices do not vote.

    >>> vote(np.array([[0, 1, 2]]), np.ones((1, 3)), np.array([0, 1, 1]))
    array([[0.33333333, 0.66666667]])
    """
    n_clusters = int(labels.max()) + 1 if n_clusters is None else n_clusters
    counted = np.where(neighbors >= 0, weights, 0.0).astype(np.float64)
    if trust is not None:
        counted = counted * (trust[neighbors] + 1e-6)
    votes = np.zeros((len(neighbors), n_clusters))
    rows = np.repeat(np.arange(len(neighbors)), neighbors.shape[1])
    np.add.at(votes, (rows, labels[neighbors].ravel()), counted.ravel())
    total = votes.sum(axis=1, keepdims=True)
    return votes / np.where(total > 0.0, total, 1.0)
