"""How many clusters: a label-free estimate and the curve it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from tubal._backend import own_threads

from .cut import assign_by_pivots, cluster_volumes
from .eigen import FloatArray, Spectrum, spectrum


@dataclass(frozen=True)
class ClusterCount:
    """The estimate and its curve: for each ``candidates`` k, ``modularity`` of the cut and ``gap`` after it."""

    n_clusters: int
    candidates: NDArray[np.intp]
    modularity: FloatArray
    gap: FloatArray


def estimate_n_clusters(
    adjacency: Any,
    *,
    max_clusters: int | None = None,
    known: Spectrum | None = None,
    tolerance: float = 0.01,
    softening: float = 0.005,
    seed: int = 0,
) -> ClusterCount:
    """Estimate the number of clusters in a graph and keep the curve.

    Two criteria speak. The modularity of the spectral cut into k parts says which k describe the edges
    about equally well: all within ``tolerance`` of the best. Among those the largest relative eigengap
    ``(1 - mu_{k+1} + s) / (1 - mu_k + s)``, with ``s = softening`` against ratios of tiny numbers, decides.
    Modularity alone splits large groups; the eigengap alone stops at the first connected components.

    A graph without edges, or of fewer than four images, is one cluster.

    >>> from scipy import sparse
    >>> blocks = sparse.block_diag([np.ones((6, 6)) - np.eye(6)] * 4, format="csr")
    >>> estimate_n_clusters(blocks).n_clusters
    4
    """
    n_images = adjacency.shape[0]
    most = min(n_images // 2, 100) if max_clusters is None else min(max_clusters, n_images - 1)
    if adjacency.nnz == 0 or most < 2:
        return ClusterCount(1, np.array([1], np.intp), np.zeros(1), np.ones(1))
    most = max(most, min(connected_components(adjacency, directed=False)[0], n_images - 1))
    pairs = known if known is not None and len(known.values) > most else None
    pairs = pairs or spectrum(adjacency, most + 1, seed=seed)
    candidates = np.arange(1, len(pairs.values), dtype=np.intp)
    costs = np.maximum(1.0 - pairs.values, 0.0) + softening
    gap = costs[1:] / costs[:-1]
    with own_threads():
        cuts = (assign_by_pivots(pairs.vectors[:, :k]) for k in candidates)
        curve = np.array([modularity(adjacency, labels) for labels in cuts])
    plausible = np.flatnonzero(curve >= curve.max() - tolerance)
    best = int(candidates[plausible[gap[plausible].argmax()]])
    return ClusterCount(best, candidates, curve, gap)


def modularity(adjacency: Any, labels: NDArray[np.intp], *, resolution: float = 1.0) -> float:
    """Return the share of edge weight inside clusters minus what degrees alone would give (Newman and Girvan).

    A larger ``resolution`` charges more for large clusters.

    >>> from scipy import sparse
    >>> two_pairs = sparse.csr_matrix(np.kron(np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])))
    >>> modularity(two_pairs, np.array([0, 0, 1, 1]))
    0.5
    """
    within, volume = cluster_volumes(adjacency, labels)
    total = volume.sum()
    return float((within / total - resolution * (volume / total) ** 2).sum()) if total > 0.0 else 0.0
