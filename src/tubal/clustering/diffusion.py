"""A cut that weighs images, not only edges: diffusion coordinates, Ward's tree, and a choice by modularity.

A normalised cut does not ask how many images a part holds. When a collection has more natural groups than
clusters are wanted, it keeps every small well-separated fragment and joins two large groups instead. In
diffusion coordinates of unit length, K-means pays for every image it misplaces, so fragments go first. How
far to diffuse is decided by the modularity of the partition found: no labels are involved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage

from tubal._backend import own_threads

from .components import merged
from .counting import modularity
from .cut import assign_by_pivots, check_n_clusters, order_by_size, spectral_cut
from .eigen import FloatArray, LabelArray, Spectrum, spectrum

TIMES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
RESOLUTION = 2.0
_TREE_LIMIT, _TREE_SHARE = 2000, 25
_LLOYD_STEPS = 100


def diffusion_cut(
    adjacency: Any,
    n_clusters: int,
    *,
    features: NDArray[Any] | None = None,
    known: Spectrum | None = None,
    proposals: Sequence[LabelArray] = (),
    seed: int = 0,
) -> LabelArray:
    """Cut a graph into ``n_clusters`` parts; labels (n,) count from the largest part.

    Candidates are the normalised cut of :func:`~tubal.clustering.spectral_cut` and K-means partitions of
    the diffusion coordinates ``exp(-t (1 - mu_l) / (1 - mu_{K+1})) v_l``, rows scaled to unit length, for a
    few times t. The one of largest modularity ``sum_c within_c - 2 volume_c²`` (shares of the edge weight)
    is returned. ``proposals`` are further candidates, for instance K-means on codes: whoever proposes, the
    graph judges. ``adjacency`` is a symmetric CSR matrix (n, n); ``features`` and ``known`` are as there;
    :func:`n_diffusion_vectors` says how many eigenpairs are of use.

    >>> from scipy import sparse
    >>> blocks = sparse.block_diag([np.ones((4, 4)), np.ones((3, 3))], format="csr")
    >>> diffusion_cut(blocks, 2)
    array([0, 0, 0, 0, 1, 1, 1])
    """
    n_images = adjacency.shape[0]
    check_n_clusters(n_clusters, n_images)
    wanted = n_diffusion_vectors(n_clusters, n_images)
    if n_clusters == 1 or wanted <= n_clusters:
        return spectral_cut(adjacency, n_clusters, features=features, known=known, seed=seed)
    pairs = known if known is not None and len(known.values) >= wanted else None
    pairs = (pairs or spectrum(adjacency, wanted, seed=seed)).leading(wanted)
    if pairs.values[n_clusters] >= 1.0:
        # More components than clusters: only links that are not in the graph can join them.
        return spectral_cut(adjacency, n_clusters, features=features, known=pairs, seed=seed)
    with own_threads():
        found = [*_candidates(pairs, n_clusters, seed), *proposals]
    candidates = [labels for labels in found if len(np.unique(labels)) == n_clusters]
    if not candidates:
        return spectral_cut(adjacency, n_clusters, features=features, known=pairs, seed=seed)
    scores = [modularity(adjacency, labels, resolution=RESOLUTION) for labels in candidates]
    return order_by_size(candidates[int(np.argmax(scores))])


def n_diffusion_vectors(n_clusters: int, n_images: int) -> int:
    """Return how many eigenpairs :func:`diffusion_cut` looks at: what lies beyond has diffused away.

    >>> n_diffusion_vectors(10, 1000)
    30
    """
    return min(3 * n_clusters, n_images // 2)


def diffusion_coordinates(pairs: Spectrum, n_clusters: int, time: float) -> FloatArray:
    """Return unit rows (n, k) of the eigenvectors after diffusing for ``time``, in units of ``1 - mu_{K+1}``."""
    costs = np.maximum(1.0 - pairs.values, 0.0)
    coordinates = pairs.vectors * np.exp(-time * costs / max(float(costs[n_clusters]), 1e-3))
    lengths = np.linalg.norm(coordinates, axis=1, keepdims=True)
    unit: FloatArray = coordinates / np.where(lengths > 0.0, lengths, 1.0)
    return unit


def _candidates(pairs: Spectrum, n_clusters: int, seed: int) -> Iterator[LabelArray]:
    yield assign_by_pivots(pairs.vectors[:, :n_clusters])
    for time in TIMES:
        yield partition(diffusion_coordinates(pairs, n_clusters, time), n_clusters, seed)


def partition(points: FloatArray, n_clusters: int, seed: int) -> LabelArray:
    """K-means (n,) of points (n, d), started from Ward's tree so that luck has no part in it.

    Beyond 2000 points the tree is grown on a random sample, 25 a cluster but at least 1000, drawn by ``seed``.
    """
    sample = points
    if len(points) > _TREE_LIMIT:
        size = min(len(points), max(_TREE_LIMIT // 2, _TREE_SHARE * n_clusters))
        sample = points[np.sort(np.random.default_rng(seed).permutation(len(points))[:size])]
    tree = linkage(sample, method="ward")
    start = merged(tree[: len(sample) - n_clusters], len(sample))
    labels = lloyd(points, centres_of(sample, start, n_clusters))
    # Lloyd may empty a cluster among equal points; the tree itself never does.
    return start if len(points) == len(sample) and len(np.unique(labels)) < n_clusters else labels


def centres_of(points: FloatArray, labels: LabelArray, n_clusters: int) -> FloatArray:
    """Return the means (c, d) of labelled points (n, d)."""
    counts = np.bincount(labels, minlength=n_clusters).astype(np.float64)
    sums = np.zeros((n_clusters, points.shape[1]))
    np.add.at(sums, labels, points)
    centres: FloatArray = sums / np.maximum(counts, 1.0)[:, None]
    return centres


def lloyd(points: FloatArray, centres: FloatArray) -> LabelArray:
    """Return labels after Lloyd's iteration from given centres; a cluster that empties keeps its centre."""
    labels = np.full(len(points), -1, np.intp)
    for _ in range(_LLOYD_STEPS):
        nearest = (points @ centres.T - 0.5 * np.einsum("ij,ij->i", centres, centres)).argmax(axis=1)
        if np.array_equal(nearest, labels):
            break
        labels = nearest.astype(np.intp)
        present = np.bincount(labels, minlength=len(centres)) > 0
        centres = np.where(present[:, None], centres_of(points, labels, len(centres)), centres)
    return labels
