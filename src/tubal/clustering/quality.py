"""What a clustering says of single images: confidence, outliers, duplicates, medoids, and votes for new images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from tubal.clustering.spectrum import FloatArray, LabelArray


def confidence(adjacency: Any, labels: LabelArray) -> FloatArray:
    """Return per image (n,) the share of its edge weight that stays in its own cluster, in [0, 1].

    An image without edges gets 0: nothing vouches for its label.

    >>> chain = sparse.csr_matrix(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    >>> confidence(chain, np.array([0, 0, 1]))
    array([1. , 0.5, 0. ])
    """
    edges = adjacency.tocoo()
    own = np.bincount(edges.row, edges.data * (labels[edges.row] == labels[edges.col]), minlength=len(labels))
    total = np.bincount(edges.row, edges.data, minlength=len(labels))
    return own / np.where(total > 0.0, total, 1.0)


def outliers(distances: NDArray[Any], *, cutoff: float = 3.5) -> NDArray[np.bool_]:
    """Flag images (n,) that lie unusually far from their nearest ones, given distances (n, q).

    The score is the robust z of the log mean distance, ``(log d_i - median) / (1.4826 MAD)``; only large
    distances are odd. With fewer than eight images, or no spread at all, nothing is flagged.

    >>> outliers(np.array([[1.0], [1.1], [0.9], [1.0], [1.2], [0.8], [1.1], [30.0]])).nonzero()[0]
    array([7])
    """
    mean = np.asarray(distances, dtype=np.float64).mean(axis=1)
    positive = mean[mean > 0.0]
    if len(mean) < 8 or len(positive) < 8:
        return np.zeros(len(mean), dtype=np.bool_)
    logs = np.log(np.maximum(mean, positive.min()))
    deviation = logs - np.median(logs)
    spread = 1.4826 * np.median(np.abs(deviation))
    return np.asarray(deviation > cutoff * max(spread, 1e-9), dtype=np.bool_)


def near_duplicates(
    neighbors: NDArray[np.intp], distances: NDArray[Any], *, share: float = 0.1
) -> list[NDArray[np.intp]]:
    """Return groups of near-identical images: linked by distances under ``share`` of the usual nearest one.

    ``neighbors`` and ``distances`` have shape (n, q). The usual nearest distance is the median over images
    of the distance to the first neighbour that is not an exact copy. Groups are sorted index arrays, largest first.

    >>> near_duplicates(np.array([[1], [0], [1]]), np.array([[0.0], [0.0], [2.0]]))
    [array([0, 1])]
    """
    n_images = len(neighbors)
    apart = np.where(distances > 0.0, distances, np.inf).min(axis=1, initial=np.inf)
    apart = apart[np.isfinite(apart)]
    limit = share * float(np.median(apart)) if apart.size else 0.0
    row, slot = np.nonzero((distances <= limit) & (neighbors >= 0))
    links = sparse.csr_matrix((np.ones(len(row)), (row, neighbors[row, slot])), shape=(n_images, n_images))
    n_groups, group = connected_components(links, directed=False)
    order = np.argsort(group, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(group, minlength=n_groups))[:-1])
    several = [np.sort(part) for part in parts if len(part) > 1]
    return sorted(several, key=lambda part: (-len(part), part[0]))


def medoids(features: NDArray[Any], labels: LabelArray, trust: FloatArray | None = None) -> LabelArray:
    """Return for each cluster the index of its most typical image: the largest mean cosine to its members.

    ``features`` is (n, d); ``trust`` (n,) weighs members, so that doubtful ones do not pull the middle away.

    >>> medoids(np.array([[1.0, 0.0], [1.0, 0.2], [1.0, 0.4], [0.0, 1.0]]), np.array([0, 0, 0, 1]))
    array([1, 3])
    """
    rows = np.asarray(features, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(lengths > 0.0, lengths, 1.0)
    weights = np.ones(len(rows)) if trust is None else trust + 1e-6
    found = np.empty(int(labels.max()) + 1, np.intp)
    for cluster in range(len(found)):
        members = np.flatnonzero(labels == cluster)
        # The mean cosine to all members is the cosine's product with their mean: no pairs are needed.
        middle = weights[members] @ unit[members]
        found[cluster] = members[(unit[members] @ middle).argmax()]
    return found


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
