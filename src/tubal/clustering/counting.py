"""How many clusters: a label-free estimate and the curve it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tubal.backends.threads import own_threads
from tubal.clustering.cuts import assign_by_pivots, modularity
from tubal.clustering.spectrum import FloatArray, spectrum


@dataclass(frozen=True)
class ClusterCount:
    """The estimate and its curve: for each ``candidates`` k, ``modularity`` of the cut and ``gap`` after it."""

    n_clusters: int
    candidates: NDArray[np.intp]
    modularity: FloatArray
    gap: FloatArray


def estimate_n_clusters(
    *adjacencies: Any,
    max_clusters: int | None = None,
    tolerance: float = 0.015,
    softening: float = 0.005,
    seed: int = 0,
) -> ClusterCount:
    """Estimate the number of clusters in a graph, or in several graphs of the same images, and keep the curve.

    Two criteria speak. The modularity of the spectral cut into k parts says which k describe the edges
    about equally well: all within ``tolerance`` of the best. Among those the largest relative eigengap
    ``log((1 - mu_{k+1} + s) / (1 - mu_k + s))``, with ``s = softening`` against ratios of tiny numbers,
    decides. Modularity alone splits large groups; the eigengap alone stops at the first connected components.
    Both curves are means over the graphs: a gap that is there for fewer and for more neighbours is no accident.

    Graphs without edges, or of fewer than four images, are one cluster. ``max_clusters`` is by default half the
    images, at most 100, and beyond 2000 images at most 50.

    >>> from scipy import sparse
    >>> blocks = sparse.block_diag([np.ones((6, 6)) - np.eye(6)] * 4, format="csr")
    >>> estimate_n_clusters(blocks).n_clusters
    4
    """
    n_images = adjacencies[0].shape[0]
    most = _most_clusters(n_images) if max_clusters is None else min(max_clusters, n_images - 1)
    if all(adjacency.nnz == 0 for adjacency in adjacencies) or most < 2:
        return ClusterCount(1, np.array([1], np.intp), np.zeros(1), np.zeros(1))
    with own_threads():
        curves = [_curves(adjacency, most, softening, seed) for adjacency in adjacencies]
    quality = np.mean([curve for curve, _ in curves], axis=0)
    gap = np.mean([gap for _, gap in curves], axis=0)
    plausible = np.flatnonzero(quality >= quality.max() - tolerance)
    candidates = np.arange(1, most + 1, dtype=np.intp)
    return ClusterCount(int(candidates[plausible[gap[plausible].argmax()]]), candidates, quality, gap)


def _most_clusters(n_images: int) -> int:
    return min(n_images // 2, 100 if n_images <= 2000 else 50)


def _curves(adjacency: Any, most: int, softening: float, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return modularity and log eigengap for 1 to ``most`` clusters."""
    pairs = spectrum(adjacency, most + 1, seed=seed)
    cuts = (assign_by_pivots(pairs.vectors[:, :k]) for k in range(1, most + 1))
    quality = np.array([modularity(adjacency, labels) for labels in cuts])
    costs = np.log(np.maximum(1.0 - pairs.values, 0.0) + softening)
    return quality, costs[1:] - costs[:-1]
