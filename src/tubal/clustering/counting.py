"""How many clusters: an estimate from the graph alone, and the curves it is based on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tubal.backends.arrays import own_threads
from tubal.clustering.cuts import assign_by_pivots, modularity
from tubal.clustering.eigenvectors import Float64Array, spectrum
from tubal.graph.structure import IndexArray, SparseMatrix


@dataclass(frozen=True)
class ClusterCount:
    """An estimated number of clusters, and the curves it is based on.

    Parameters
    ----------
    n_clusters : int
        The estimate.
    candidates : ndarray of shape (n_candidates,)
        Numbers of clusters considered, from 1.
    modularity : ndarray of shape (n_candidates,)
        Modularity of the cut into that many clusters.
    gap : ndarray of shape (n_candidates,)
        Relative eigengap after that many eigenvalues.
    """

    n_clusters: int
    candidates: IndexArray
    modularity: Float64Array
    gap: Float64Array


def estimate_n_clusters(
    *adjacencies: SparseMatrix,
    max_clusters: int | None = None,
    tolerance: float = 0.015,
    softening: float = 0.005,
    seed: int = 0,
) -> ClusterCount:
    """Estimate the number of clusters in a graph, or in several graphs of the same images.

    Two criteria decide. The modularity of the spectral cut into k parts says which k describe the edges about equally
    well. Among those, the largest relative eigengap ``log((1 - mu_{k+1} + s) / (1 - mu_k + s))`` wins. Modularity alone
    splits large groups; the eigengap alone stops at the first connected components. Both curves are means over the
    graphs, since a real gap appears with fewer and with more neighbours.

    Parameters
    ----------
    *adjacencies : sparse matrices of shape (n_images, n_images)
        Symmetric edge weights in CSR form, one or more graphs.
    max_clusters : int or None, default=None
        Largest number considered; None for half the images, at most 100, and at most 50 above 2000 images.
    tolerance : float, default=0.015
        Modularities this close to the best count as equal.
    softening : float, default=0.005
        The ``s`` above, which keeps ratios of tiny numbers small.
    seed : int, default=0
        Seed of the eigensolver's start.

    Returns
    -------
    ClusterCount
        The estimate and its curves. Graphs without edges, or of fewer than four images, are one cluster.

    Examples
    --------
    >>> from scipy import sparse
    >>> blocks = sparse.block_diag([np.ones((6, 6)) - np.eye(6)] * 4, format="csr")
    >>> estimate_n_clusters(blocks).n_clusters
    4
    """
    n_images = adjacencies[0].shape[0]
    most = most_clusters(n_images, max_clusters)
    if all(adjacency.nnz == 0 for adjacency in adjacencies) or most < 2:
        return ClusterCount(1, np.array([1], np.intp), np.zeros(1), np.zeros(1))
    with own_threads():
        curves = [_curves(adjacency, most, softening, seed) for adjacency in adjacencies]
    quality = np.mean([curve for curve, _ in curves], axis=0)
    gap = np.mean([gap for _, gap in curves], axis=0)
    plausible = np.flatnonzero(quality >= quality.max() - tolerance)
    candidates = np.arange(1, most + 1, dtype=np.intp)
    return ClusterCount(int(candidates[plausible[gap[plausible].argmax()]]), candidates, quality, gap)


def most_clusters(n_images: int, max_clusters: int | None = None) -> int:
    """Return the largest number of clusters that :func:`estimate_n_clusters` considers."""
    if max_clusters is not None:
        return min(max_clusters, n_images - 1)
    return min(n_images // 2, 100 if n_images <= 2000 else 50)


def _curves(adjacency: SparseMatrix, most: int, softening: float, seed: int) -> tuple[Float64Array, Float64Array]:
    """Return modularity and log eigengap for 1 to ``most`` clusters."""
    pairs = spectrum(adjacency, most + 1, seed=seed)
    cuts = (assign_by_pivots(pairs.vectors[:, :k]) for k in range(1, most + 1))
    quality = np.array([modularity(adjacency, labels) for labels in cuts])
    costs = np.log(np.maximum(1.0 - pairs.values, 0.0) + softening)
    return quality, costs[1:] - costs[:-1]
