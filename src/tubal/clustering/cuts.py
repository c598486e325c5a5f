"""Cuts: a weighted graph and a number of clusters in, labels out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.cluster.hierarchy import linkage
from scipy.sparse.csgraph import connected_components

from tubal.backends.threads import own_threads
from tubal.clustering.components import component_links, join_components, merged
from tubal.clustering.spectrum import FloatArray, LabelArray, Spectrum, spectrum
from tubal.graph import Graph


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


def spectral_cut(
    adjacency: Any,
    n_clusters: int,
    *,
    features: NDArray[Any] | None = None,
    known: Spectrum | None = None,
    seed: int = 0,
) -> LabelArray:
    """Cut a graph into ``n_clusters`` parts of small normalised cut; labels (n,) count from the largest part.

    The relaxed problem ``max Tr(Hᵀ E^{-1/2} W E^{-1/2} H)`` gives the leading eigenvectors; a pivoted QR
    picks one image per cluster as far apart as possible and a rotation aligns the eigenvectors with them
    (Damle, Minden and Ying, 2019). No random start is involved, so the seed matters only to the order in
    which the eigensolver works.

    ``adjacency`` is a symmetric CSR matrix (n, n). With fewer clusters than connected components the
    components are joined by their cheapest links first, measured between rows of ``features`` (n, d).
    ``known`` passes eigenpairs already found, at least ``n_clusters`` of them.

    >>> from scipy import sparse
    >>> blocks = sparse.block_diag([np.ones((3, 3)), np.ones((2, 2))], format="csr")
    >>> spectral_cut(blocks, 2)
    array([0, 0, 0, 1, 1])
    """
    check_n_clusters(n_clusters, adjacency.shape[0])
    n_components, component = connected_components(adjacency, directed=False)
    if n_components >= n_clusters:
        return order_by_size(join_components(component, n_clusters, features=features))
    pairs = known if known is not None and len(known.values) >= n_clusters else None
    pairs = (pairs or spectrum(adjacency, n_clusters, seed=seed)).leading(n_clusters)
    with own_threads():
        return order_by_size(assign_by_pivots(pairs.vectors))


def assign_by_pivots(vectors: FloatArray) -> LabelArray:
    """Turn ``k`` orthonormal columns (n, k) into labels: the pivot image each row points to most.

    >>> order_by_size(assign_by_pivots(np.eye(3)[[0, 1, 1, 2]] / [1.0, 2**0.5, 1.0]))
    array([1, 0, 0, 2])
    """
    n_vectors = vectors.shape[1]
    _, _, pivots = linalg.qr(vectors.T, pivoting=True, mode="economic")
    left, _, right = linalg.svd(vectors[pivots[:n_vectors]].T)
    return np.asarray(np.abs(vectors @ (left @ right)).argmax(axis=1), dtype=np.intp)


def normalised_cut(adjacency: Any, labels: LabelArray) -> float:
    """Return ``sum_c cut(c, rest) / volume(c)``, between 0 and the number of clusters.

    >>> from scipy import sparse
    >>> square = sparse.csr_matrix(np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]))
    >>> normalised_cut(square, np.array([0, 0, 1, 1]))
    1.0
    """
    within, volume = cluster_volumes(adjacency, labels)
    # A cluster without edges is cut off for free, yet it holds nothing together: it counts as fully cut.
    return float((1.0 - within / np.where(volume > 0.0, volume, 1.0)).sum())


def cluster_volumes(adjacency: Any, labels: LabelArray) -> tuple[FloatArray, FloatArray]:
    """Return per cluster the edge weight kept inside and the total degree."""
    n_clusters = int(labels.max()) + 1
    edges = adjacency.tocoo()
    inside = labels[edges.row] == labels[edges.col]
    within: Any = np.bincount(labels[edges.row[inside]], edges.data[inside], n_clusters)
    volume: Any = np.bincount(labels[edges.row], edges.data, n_clusters)
    return within, volume


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


def order_by_size(labels: LabelArray) -> LabelArray:
    """Rename clusters 0, 1, ... from the largest to the smallest; ties keep the order of first appearance.

    >>> order_by_size(np.array([5, 2, 2, 9]))
    array([1, 0, 0, 2])
    """
    values, first, inverse, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    rank = np.empty(len(values), np.intp)
    rank[order] = np.arange(len(values))
    return rank[inverse]


def check_n_clusters(n_clusters: int, n_images: int) -> None:
    """Say in one sentence when the number of clusters cannot be had from the images."""
    if n_clusters < 1:
        raise ValueError(f"n_clusters is {n_clusters}; ask for at least one cluster")
    if n_clusters > n_images:
        raise ValueError(
            f"n_clusters is {n_clusters} but there are only {n_images} images; ask for at most one cluster an image"
        )


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


def cut_or_join(
    affinity: Any,
    graph: Graph,
    n_clusters: int,
    *,
    features: NDArray[Any],
    propose: Callable[[], NDArray[np.intp]] | None = None,
    seed: int = 0,
) -> NDArray[np.intp]:
    """Return labels (n,): the ties ``affinity`` (n, n) cut, or their parts joined where there are too many.

    Parts are joined by their cheapest links, see :func:`component_links`; ``propose`` makes a partition that
    competes with the cuts, see :func:`~tubal.clustering.diffusion_cut`.
    """
    n_components, component = connected_components(affinity, directed=False)
    if n_components > n_clusters:
        links = component_links(graph, component, features)
        return order_by_size(join_components(component, n_clusters, links=links))
    proposals = [] if propose is None else [propose()]
    return diffusion_cut(affinity, n_clusters, features=features, proposals=proposals, seed=seed)
