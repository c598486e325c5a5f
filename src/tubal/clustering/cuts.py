"""Cuts: from a weighted graph and a number of clusters to labels."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from tubal.backends.arrays import Array, as_like, is_torch, namespace, own_threads, parallel_ranges, to_numpy
from tubal.backends.cpu.deformation import add_edges
from tubal.clustering.affinity import FeaturesOnDemand, equal_images, one_label_per_image
from tubal.clustering.large import GROUPS_PER_CLUSTER, LEVELS_FROM, Levels, refine_partition
from tubal.clustering.spectral import (
    SAMPLED_FROM,
    Float64Array,
    LabelArray,
    Spectrum,
    components_of,
    groups_after_merges,
    over_rows,
    spectrum,
    ward_kmeans,
)
from tubal.graph import Graph, Stage, deformable_graph
from tubal.graph.structure import IndexArray, SparseMatrix
from tubal.text import count

# Diffusion times of the candidate partitions, in units of the first eigenvalue gap.
DIFFUSION_TIMES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
# Resolution of the modularity that chooses among candidates; above 1 it penalises large clusters. With many clusters it
# grows with their number, such that two of equal size gain by merging if they share a fifth of their edges.
RESOLUTION, CLUSTERS_PER_RESOLUTION = 2.0, 5.0
# Further candidates have so many times more clusters at first, and those that share most edges are merged.
FINER, FINER_TIMES = (1.25, 1.5, 2.0), (0.5, 1.0)
# A cluster with a larger share of all images is suspect if a balanced partition keeps nearly as much edge weight.
_LOPSIDED, _NEARLY_EQUAL = 0.9, 0.1
# Rows whose distances to all others are in memory at a time.
_BLOCK = 1024
# Candidates that are found at the same time on a device: more threads wait for each other when they call it.
_ON_DEVICE = 4
# Samples from which K-means starts in a large collection.
_N_SAMPLES = 3
# Samples of groups of images, where K-means is quick, how many of the partitions that they lead to are refined, and the
# share of groups with the same cluster from which on two partitions are taken for the same one.
_SAMPLES_OF_GROUPS, _MOST_REFINED, _SAME = 24, 8, 0.95
# Rows of a graph that one thread sums at a time; small graphs are summed at once.
_ROWS_AT_A_TIME = 1024
# Representative images per component, and of all components together.
_PER_COMPONENT, _IN_ALL = 8, 800


# --- labels of all images --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Pieces:
    """What a partition is made from: edge weights, the graph, codes, which images are copies of which, eigenpairs."""

    affinity: SparseMatrix
    graph: Graph
    features: NDArray[Any] | FeaturesOnDemand
    copy_of: IndexArray
    eigenpairs: Spectrum | None = None  # of the affinity of the representatives, if they are known
    stable: Float64Array | None = None  # what the stability was in the fit, if it is known
    among: SparseMatrix | None = None  # edge weights of the representatives alone, if they are known

    def distinct_affinity(self) -> SparseMatrix:
        """Return the edge weights of the representatives alone."""
        if self.among is not None:
            return self.among
        kept = np.unique(self.copy_of)
        return self.affinity if len(kept) == len(self.copy_of) else self.affinity[kept][:, kept]

    def distinct(self, *, with_images: bool) -> Pieces:
        """Return the same for the representatives alone; their graph has a search ``with_images`` only."""
        kept = np.unique(self.copy_of)
        if len(kept) == len(self.copy_of):
            return self
        affinity = self.distinct_affinity()
        search: Any = self.graph.search
        graph = Graph(affinity, search=search.reduced(kept) if with_images else None)
        return Pieces(affinity, graph, self.features[kept], np.arange(len(kept)), self.eigenpairs)


def assign_labels(
    assignment: str, n_clusters: int, pieces: Pieces, seed: int, stage: Stage | None = None
) -> LabelArray:
    """Return labels (n,): K-means on the codes, or the best of cuts of the graph and K-means on the codes.

    Equal images get equal labels, and near-copies that of their representative.
    """
    if assignment == "kmeans":
        labels = kmeans(np.asarray(pieces.features), n_clusters, seed=seed)
    else:
        labels = _cut(n_clusters, pieces, seed, stage)
    equal = one_label_per_image(labels, equal_images(pieces.graph))
    if (equal == labels).all():
        return labels
    equal = order_by_size(equal)
    if len(np.unique(equal)) < len(np.unique(labels)):
        warn_if_fewer(equal, n_clusters)
    return equal


def _cut(n_clusters: int, pieces: Pieces, seed: int, stage: Stage | None) -> LabelArray:
    """Return labels (n,) of the partition of the distinct images; each distinct image is a cluster if they are few."""
    kept, group, counts = np.unique(pieces.copy_of, return_inverse=True, return_counts=True)
    if len(kept) < n_clusters:
        labels = order_by_size(group)
        warn_if_fewer(labels, n_clusters)
        return labels
    cut = pieces.distinct(with_images=not _are_joined(pieces.eigenpairs, n_clusters))
    labels = partition_graph(
        cut.affinity,
        cut.graph,
        n_clusters,
        features=cut.features,
        eigenpairs=cut.eigenpairs,
        seed=seed,
        stage=stage,
    )
    warn_if_lopsided(labels, cut.affinity, cut.features, counts=counts, seed=seed)
    return labels if len(kept) == len(group) else order_by_size(labels[group])


# --- the whole graph -------------------------------------------------------------------------------------
def partition_graph(
    affinity: SparseMatrix,
    graph: Graph,
    n_clusters: int,
    *,
    features: ArrayLike,
    propose_from_features: bool = True,
    eigenpairs: Spectrum | None = None,
    seed: int = 0,
    stage: Stage | None = None,
) -> LabelArray:
    """Return labels (n,) of ``n_clusters`` clusters: ``affinity`` (n, n) cut, or its components joined.

    With more components than clusters, those with the cheapest links are joined, see :func:`component_links`; if this
    chains over 90 % of the images into one cluster, those with the least mean links.
    Otherwise the graph is cut, see :func:`diffusion_cut`; with ``propose_from_features``, K-means on ``features``
    (n, d) competes with the cuts. ``eigenpairs`` of the affinity are used where they are known. ``stage`` follows
    either and keeps what was found.
    """
    component = None if _are_joined(eigenpairs, n_clusters) else components_of(affinity)
    if component is not None and component.max() >= n_clusters:
        links = component_links(graph, component, features, stage)
        joined = (join_components(component, n_clusters, links=links, method=way) for way in ("single", "average"))
        # Cheapest links may chain most components together; mean links do not.
        first, second = joined
        return order_by_size(second if _largest_share(second) < _LOPSIDED < _largest_share(first) else first)

    def cluster_features() -> LabelArray:
        return ward_kmeans(np.asarray(features, dtype=np.float64), n_clusters, seed)

    proposals = [cluster_features] if propose_from_features else []
    labels = diffusion_cut(
        affinity, n_clusters, features=features, eigenpairs=eigenpairs, proposals=proposals, seed=seed, stage=stage
    )
    warn_if_fewer(labels, n_clusters)
    return labels


def _are_joined(eigenpairs: Spectrum | None, n_clusters: int) -> bool:
    """Tell whether eigenvalues show that there are no more components than clusters; one of 1 may be rounded."""
    return eigenpairs is not None and bool((eigenpairs.values[n_clusters : n_clusters + 1] < 1.0).any())


def spectral_cut(
    adjacency: SparseMatrix,
    n_clusters: int,
    *,
    features: ArrayLike | None = None,
    eigenpairs: Spectrum | None = None,
    seed: int = 0,
) -> LabelArray:
    """Cut a graph into parts with a small normalised cut.

    The relaxed problem ``max Tr(Hᵀ E^{-1/2} W E^{-1/2} H)`` gives the leading eigenvectors. A pivoted QR then picks one
    image per cluster, as far apart as possible, and a rotation aligns the eigenvectors with them (Damle, Minden and
    Ying, 2019). No random start is involved; the seed only affects the eigensolver.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric edge weights in CSR form.
    n_clusters : int
        Number of parts.
    features : ndarray of shape (n_images, n_features) or None, default=None
        With fewer clusters than connected components, components are joined by the smallest distances between rows of
        ``features``; without features this raises an error.
    eigenpairs : Spectrum or None, default=None
        Leading eigenpairs of the graph, if they are known; at least ``n_clusters`` of them.
    seed : int, default=0
        Seed of the eigensolver's start.

    Returns
    -------
    ndarray of shape (n_images,)
        Labels, 0 for the largest part.

    Examples
    --------
    >>> from scipy import sparse
    >>> blocks = sparse.block_diag([np.ones((3, 3)), np.ones((2, 2))], format="csr")
    >>> spectral_cut(blocks, 2)
    array([0, 0, 0, 1, 1])
    """
    check_cluster_count(n_clusters, adjacency.shape[0])
    component = components_of(adjacency)
    if component.max() + 1 >= n_clusters:
        return order_by_size(join_components(component, n_clusters, features=features))
    pairs = _leading_eigenpairs(adjacency, n_clusters, eigenpairs, seed)
    with own_threads():
        return order_by_size(assign_by_pivots(pairs.vectors))


def diffusion_cut(
    adjacency: SparseMatrix,
    n_clusters: int,
    *,
    features: ArrayLike | None = None,
    eigenpairs: Spectrum | None = None,
    proposals: Sequence[LabelArray | Callable[[], LabelArray]] = (),
    seed: int = 0,
    stage: Stage | None = None,
) -> LabelArray:
    """Cut a graph into parts, choosing among several cuts by modularity.

    Candidates are the cut of :func:`spectral_cut` and K-means partitions of the diffusion coordinates
    ``exp(-t (1 - mu_l) / (1 - mu_{K+1})) v_l``, with rows of unit length, for several times t; and partitions into up
    to twice as many clusters, of which those with the largest gain in modularity are merged. The candidate with the
    largest modularity, at resolution 2 or K / 5 if that is larger, is returned; a merged one only if it is better at
    resolution 1, too. Above 20 000 images, where K-means runs on a sample, the candidates are K-means partitions of
    three samples for half the times, and the one with the largest modularity at resolution 1 is refined and returned:
    each image moves to the cluster where it adds most to the modularity. Above 100 000 images a graph of groups is cut
    in this way, with more samples, and labels are refined level by level, see :mod:`tubal.clustering.large`.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric edge weights in CSR form.
    n_clusters : int
        Number of clusters of the partition that is returned; candidates may start with more.
    features : ndarray of shape (n_images, n_features) or None, default=None
        Needed only if the graph has more connected components than clusters: they are then joined as
        :func:`spectral_cut` joins them.
    eigenpairs : Spectrum or None, default=None
        Leading eigenpairs of the graph, if they are known; ``6 * n_clusters`` of them are used, and
        ``3 * n_clusters`` above 20 000 images.
    proposals : sequence of ndarray of shape (n_images,) or callable, default=()
        Further candidate labels, for instance of K-means on codes, or functions that return them; up to 20 000 images.
    seed : int, default=0
        Seed of the eigensolver's start, and of the sample on which K-means starts.
    stage : Stage or None, default=None
        Follows the candidates and keeps those that were found; None to do neither.

    Returns
    -------
    ndarray of shape (n_images,)
        Labels of the best candidate, by size: 0 for its largest cluster.

    Examples
    --------
    >>> from scipy import sparse
    >>> blocks = sparse.block_diag([np.ones((4, 4)), np.ones((3, 3))], format="csr")
    >>> diffusion_cut(blocks, 2)
    array([0, 0, 0, 0, 1, 1, 1])
    """
    n_images = adjacency.shape[0]
    check_cluster_count(n_clusters, n_images)
    if n_images > LEVELS_FROM and n_clusters > 1:
        levels = Levels.of(adjacency, least=GROUPS_PER_CLUSTER * n_clusters)
        if levels.groups:
            return _cut_by_levels(levels, n_clusters, features, seed, stage)
    n_vectors = n_diffusion_vectors(n_clusters, n_images)
    if n_clusters == 1 or n_vectors <= n_clusters:
        return spectral_cut(adjacency, n_clusters, features=features, eigenpairs=eigenpairs, seed=seed)
    many = _leading_eigenpairs(adjacency, n_cut_vectors(n_clusters, n_images), eigenpairs, seed)
    pairs = many.leading(n_vectors)
    if pairs.values[n_clusters] >= 1.0:
        # More components than clusters: no edge of the graph can join them.
        return spectral_cut(adjacency, n_clusters, features=features, eigenpairs=pairs, seed=seed)
    with own_threads():
        direct = [*_diffusion_partitions(pairs, n_clusters, seed), *([] if n_images > SAMPLED_FROM else proposals)]
        merged = list(_merged_partitions(adjacency, many, n_clusters, seed))
        at_once = _ON_DEVICE if is_torch(pairs.vectors) else None
        found = _find_candidates([*direct, *merged], n_images, stage, at_once)
    resolution = 1.0 if n_images > SAMPLED_FROM else resolution_for(n_clusters)
    best = _best_candidate(adjacency, found[: len(direct)], found[len(direct) :], n_clusters, resolution)
    if best is None:
        return spectral_cut(adjacency, n_clusters, features=features, eigenpairs=pairs, seed=seed)
    return order_by_size(refine_partition(adjacency, best) if n_images > SAMPLED_FROM else best)


def _cut_by_levels(
    levels: Levels, n_clusters: int, features: ArrayLike | None, seed: int, stage: Stage | None
) -> LabelArray:
    """Return labels (n,) from cuts of the graph of the largest groups, refined level by level.

    K-means from many samples finds several partitions that are about equally good for groups. The best of them are
    refined for single images, and the one of largest modularity there is returned.
    """
    graph, adjacency = levels.coarsest, levels.graphs[0]
    pairs = spectrum(graph, n_diffusion_vectors(n_clusters, graph.shape[0]), seed=seed)
    if pairs.values[n_clusters] >= 1.0:
        # More components than clusters: no edge of the graph can join them.
        return spectral_cut(adjacency, n_clusters, features=features, seed=seed)
    places = itertools.product(range(seed, seed + _SAMPLES_OF_GROUPS), DIFFUSION_TIMES[::2])
    sources = [
        partial(_refined_partition, levels.graphs[-1], pairs, n_clusters, time, sample) for sample, time in places
    ]
    found = _find_candidates(sources, graph.shape[0], stage)
    best: list[LabelArray] = []  # most samples lead to one of a few partitions
    for place in np.argsort([-modularity(levels.graphs[-1], labels) for labels in found], kind="stable"):
        if len(best) < _MOST_REFINED and all(_agreement(found[place], other) < _SAME for other in best):
            best.append(found[place])
    with own_threads() as threads:
        refined = parallel_ranges(lambda first, _: levels.refined(best[first]), len(best), grain=1, threads=threads)
    return order_by_size(max(refined, key=partial(modularity, adjacency)))


def _agreement(first: LabelArray, second: LabelArray) -> float:
    """Return the share of nodes that are in the cluster of ``second`` to which most of their cluster belongs.

    >>> _agreement(np.array([0, 0, 0, 1]), np.array([1, 1, 0, 0]))
    0.75
    """
    n_second = int(second.max()) + 1
    shared = np.bincount(first * n_second + second, minlength=(int(first.max()) + 1) * n_second)
    return float(shared.reshape(-1, n_second).max(axis=1).sum() / len(first))


def _refined_partition(adjacency: SparseMatrix, pairs: Spectrum, n_clusters: int, time: float, seed: int) -> LabelArray:
    return refine_partition(adjacency, _diffused_partition(pairs, n_clusters, time, seed))


def _best_candidate(
    adjacency: SparseMatrix,
    direct: Sequence[LabelArray],
    merged: Sequence[LabelArray],
    n_clusters: int,
    resolution: float,
) -> LabelArray | None:
    """Return the candidate of the largest modularity at a resolution, or None if no direct one has all clusters.

    A merged candidate must be better at resolution 1, too. Merging balances sizes, which a higher resolution rewards;
    where classes differ in size, only this second condition finds that out.
    """
    complete = [labels for labels in direct if _count(labels) == n_clusters]
    if not complete:
        return None
    shares = [cluster_shares(adjacency, labels) for labels in complete]
    values = [_modularity(part, resolution) for part in shares]
    place = int(np.argmax(values))
    best, highest, least = complete[place], values[place], _modularity(shares[place], 1.0)
    for labels in merged:
        if _count(labels) == n_clusters:
            share = cluster_shares(adjacency, labels)
            value = _modularity(share, resolution)
            if value > highest and _modularity(share, 1.0) >= least:
                best, highest = labels, value
    return best


def modularity(adjacency: SparseMatrix, labels: LabelArray, *, resolution: float = 1.0) -> float:
    """Return the share of edge weight inside clusters, minus what degrees alone would give (Newman and Girvan).

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric edge weights.
    labels : ndarray of shape (n_images,)
        The partition to be judged: the cluster of each image.
    resolution : float, default=1.0
        Weight of the second term; a larger value penalises large clusters more.

    Returns
    -------
    float
        At most 1; 0 for a graph without edges.

    Examples
    --------
    >>> from scipy import sparse
    >>> two_pairs = sparse.csr_matrix(np.kron(np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])))
    >>> modularity(two_pairs, np.array([0, 0, 1, 1]))
    0.5
    """
    return _modularity(cluster_shares(adjacency, labels), resolution)


def _modularity(shares: tuple[Float64Array, Float64Array], resolution: float) -> float:
    within, volume = shares
    total = volume.sum()
    return float((within / total - resolution * (volume / total) ** 2).sum()) if total > 0.0 else 0.0


def cluster_shares(adjacency: SparseMatrix, labels: LabelArray) -> tuple[Float64Array, Float64Array]:
    """Return the edge weight inside each cluster, and that of all edges of its images, both (n_clusters,).

    >>> pair = sparse.csr_matrix(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]]))
    >>> cluster_shares(pair, np.array([0, 0, 1]))
    (array([2., 0.]), array([4., 2.]))
    """
    shared = shared_weights(adjacency, labels)
    return np.diagonal(shared).copy(), shared.sum(axis=1)


def shared_weights(adjacency: SparseMatrix, labels: LabelArray) -> Float64Array:
    """Return the edge weight between each two clusters, (n_clusters, n_clusters); edges inside one count twice.

    >>> pair = sparse.csr_matrix(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]]))
    >>> shared_weights(pair, np.array([0, 0, 1]))
    array([[2., 2.],
           [2., 0.]])
    """
    n_clusters, small, edges = int(labels.max()) + 1, labels.astype(np.int32), sparse.csr_matrix(adjacency)
    weights = edges.data.astype(np.float64, copy=False)

    def add(start: int, stop: int) -> Float64Array:
        part = np.zeros((n_clusters, n_clusters))
        add_edges(edges.indptr[start : stop + 1], edges.indices, weights, small[start:stop], small, part)
        return part

    with own_threads() as threads:
        parts = parallel_ranges(add, len(labels), grain=_ROWS_AT_A_TIME, threads=threads)
    return np.asarray(np.sum(parts, axis=0))


def _count(labels: LabelArray) -> int:
    """Return how many different labels there are."""
    return int(np.count_nonzero(np.bincount(labels)))


# --- more components than clusters -----------------------------------------------------------------------
def join_components(
    component: LabelArray,
    n_clusters: int,
    *,
    features: ArrayLike | None = None,
    links: Float64Array | None = None,
    method: str = "single",
) -> LabelArray:
    """Join components, cheapest link first, until ``n_clusters`` groups are left; return labels (n,).

    The cost of joining two groups is their cheapest link, so this is Kruskal's algorithm over components. Costs are
    the matrix ``links`` (c, c) between components, or the smallest distances between their images in ``features``
    (n, d). Without either, fewer clusters than components raise an error. With ``method="average"`` the cost is the
    mean of all links between two groups.

    >>> join_components(np.array([0, 0, 1, 2]), 2, features=np.array([[0.0], [1.0], [1.5], [9.0]]))
    array([0, 0, 0, 1])
    """
    n_components = int(component.max()) + 1
    if n_components == n_clusters:
        return component
    if features is None and links is None:
        raise ValueError(
            f"the graph has {n_components} separate parts but {n_clusters} clusters are wanted; pass "
            "features= to join parts by their cheapest links, or use more neighbours"
        )
    if n_clusters == 1:
        return np.zeros_like(component)
    if links is None:
        links = cheapest_links(np.asarray(features, dtype=np.float64), component)
    # Kruskal's order is the merge order of single linkage; it stops when enough groups are left.
    tree = linkage(squareform(links, checks=False), method=method)
    return groups_after_merges(tree[: n_components - n_clusters], n_components)[component]


def cheapest_links(features: Float64Array, component: LabelArray) -> Float64Array:
    """Return the smallest distance between images of two components, as a matrix (c, c)."""
    n_components = int(component.max()) + 1
    order = np.argsort(component, kind="stable")
    rows = features[order]
    starts = np.searchsorted(component[order], np.arange(n_components))
    squares = np.einsum("ij,ij->i", rows, rows)
    links = np.full((n_components, n_components), np.inf)
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, first + _BLOCK)
        distances = squares[block, None] - 2.0 * rows[block] @ rows.T + squares
        least = np.minimum.reduceat(distances, starts, axis=1)
        np.minimum.at(links, component[order[block]], least)
    links = np.asarray(np.sqrt(np.maximum(np.minimum(links, links.T), 0.0)))
    np.fill_diagonal(links, 0.0)
    return links


def component_links(
    graph: Graph, component: LabelArray, features: ArrayLike, stage: Stage | None = None
) -> Float64Array:
    """Return the cost of joining each two components of a graph, as a matrix (c, c).

    In a deformable graph the cost is ``sqrt(d f)``: ``d`` is the smallest distance under deformations between a few
    representative images, ``f`` the smallest distance between ``features`` (n, d). Either alone would join two groups
    because of one accidental likeness; both are rarely wrong about the same pair. Other graphs, and pairs too far
    apart for the deformable search, use the features alone.
    """
    by_features = cheapest_links(np.asarray(features, dtype=np.float64), component)
    chosen = _representatives(graph, component)
    if graph.search is None or graph.search.kind != "deformable" or len(chosen) > _IN_ALL:
        return by_features
    between = deformable_graph(graph.search.images[chosen], len(chosen) - 1, stage=stage)
    links = np.full(by_features.shape, np.inf)
    neighbors, distances = np.asarray(between.neighbors), np.asarray(between.distances)
    rows, slots = np.nonzero((neighbors >= 0) & np.isfinite(distances))
    ends = component[chosen[rows]], component[chosen[neighbors[rows, slots]]]
    np.minimum.at(links, ends, distances[rows, slots])
    links = np.minimum(links, links.T)
    found = np.isfinite(links)
    links[found] = np.sqrt(links[found] * by_features[found])
    farthest = links[found].max(initial=0.0)
    # Pairs without a distance come after all others, in the order of their features.
    links = np.where(found, links, farthest + 1.0 + by_features)
    np.fill_diagonal(links, 0.0)
    return np.asarray(links)


def _representatives(graph: Graph, component: LabelArray) -> IndexArray:
    """Return the images of each component with the most edges: at most eight, and fewer of many components."""
    n_components = int(component.max()) + 1
    per_component = max(1, min(_PER_COMPONENT, _IN_ALL // n_components))
    degrees = np.diff(graph.adjacency.indptr)
    order = np.lexsort((-degrees, component))
    starts = np.searchsorted(component[order], np.arange(n_components))
    position = np.arange(len(order)) - starts[component[order]]
    return np.sort(order[position < per_component])


# --- eigenvectors to labels ------------------------------------------------------------------------------
def _leading_eigenpairs(adjacency: SparseMatrix, n_vectors: int, known: Spectrum | None, seed: int) -> Spectrum:
    """Return the leading eigenpairs: those already known, if there are enough of them."""
    if known is None or len(known.values) < n_vectors:
        known = spectrum(adjacency, n_vectors, seed=seed)
    return known.leading(n_vectors)


def assign_by_pivots(vectors: Array) -> LabelArray:
    """Turn k orthonormal columns (n, k) into labels: the pivot image that each row is most aligned with.

    >>> order_by_size(assign_by_pivots(np.eye(3)[[0, 1, 1, 2]] / [1.0, 2**0.5, 1.0]))
    array([1, 0, 0, 2])
    """
    vectors = to_numpy(vectors).astype(np.float64, copy=False)
    n_vectors = vectors.shape[1]
    _, _, pivots = linalg.qr(vectors.T, pivoting=True, mode="economic")
    left, _, right = linalg.svd(vectors[pivots[:n_vectors]].T)
    return np.asarray(np.abs(vectors @ (left @ right)).argmax(axis=1), dtype=np.intp)


def n_diffusion_vectors(n_clusters: int, n_images: int) -> int:
    """Return how many eigenpairs a partition into so many clusters uses; the weight of later ones is negligible.

    >>> n_diffusion_vectors(10, 1000)
    30
    """
    return min(3 * n_clusters, n_images // 2)


def n_cut_vectors(n_clusters: int, n_images: int) -> int:
    """Return how many eigenpairs :func:`diffusion_cut` needs, its finer partitions included.

    >>> n_cut_vectors(10, 1000)
    60
    """
    return n_diffusion_vectors(max(finer_counts(n_clusters, n_images), default=n_clusters), n_images)


def diffusion_coordinates(pairs: Spectrum, n_clusters: int, time: float) -> Array:
    """Return unit rows (n, k) of the eigenvectors after diffusion for ``time``, in units of ``1 - mu_{K+1}``."""
    costs, vectors = np.maximum(1.0 - pairs.values, 0.0), pairs.vectors
    factors = as_like(np.exp(-time * costs / max(float(costs[n_clusters]), 1e-3)), vectors)
    xp = namespace(vectors)

    def diffuse(start: int, stop: int) -> Array:
        coordinates = vectors[start:stop] * factors
        lengths = xp.sqrt((coordinates * coordinates).sum(axis=1, keepdims=True))
        coordinates /= xp.where(lengths > 0.0, lengths, 1.0)
        return coordinates

    return over_rows(diffuse, vectors, 4 * _ROWS_AT_A_TIME)


def _diffusion_partitions(pairs: Spectrum, n_clusters: int, seed: int) -> Iterator[Callable[[], LabelArray]]:
    """Yield functions that return the candidate partitions of :func:`diffusion_cut`."""
    times, seeds = _times_and_samples(len(pairs.vectors), seed)
    if len(seeds) == 1:
        yield lambda: assign_by_pivots(pairs.vectors[:, :n_clusters])
        for time in times:
            yield partial(_diffused_partition, pairs, n_clusters, time, seed)
        return
    # Several samples share coordinates, and all threads compute these together.
    coordinates = [diffusion_coordinates(pairs, n_clusters, time) for time in times]
    for sample, points in itertools.product(seeds, coordinates):
        yield partial(ward_kmeans, points, n_clusters, sample)


def _times_and_samples(n_images: int, seed: int) -> tuple[tuple[float, ...], list[int]]:
    """Return the diffusion times of candidates, and the seeds of their samples: three of many images, half the times.

    >>> _times_and_samples(100, 7), _times_and_samples(70_000, 7)
    (((0.5, 0.75, 1.0, 1.5, 2.0, 3.0), [7]), ((0.5, 1.0, 2.0), [7, 8, 9]))
    """
    if n_images > SAMPLED_FROM:
        return DIFFUSION_TIMES[::2], list(range(seed, seed + _N_SAMPLES))
    return DIFFUSION_TIMES, [seed]


def finer_counts(n_clusters: int, n_images: int) -> list[int]:
    """Return the numbers of clusters from which candidates are merged, at most a third of the images.

    Many images have none: finer partitions need twice as many eigenvectors, for labels that differ more between orders
    of the images, see docs/scale.md.

    >>> finer_counts(10, 1000), finer_counts(4, 15), finer_counts(10, 70_000)
    ([13, 15, 20], [5], [])
    """
    if n_images > SAMPLED_FROM:
        return []
    counts = {min(int(np.ceil(factor * n_clusters)), n_images // 3) for factor in FINER}
    return sorted(count for count in counts if count > n_clusters)


def resolution_for(n_clusters: int) -> float:
    """Return the resolution of the modularity that compares partitions into ``n_clusters`` clusters."""
    return max(RESOLUTION, n_clusters / CLUSTERS_PER_RESOLUTION)


def _merged_partitions(
    adjacency: SparseMatrix, pairs: Spectrum, n_clusters: int, seed: int
) -> Iterator[Callable[[], LabelArray]]:
    """Yield functions that return partitions into more clusters, merged to ``n_clusters``."""
    n_images = adjacency.shape[0]
    for n_finer in finer_counts(n_clusters, n_images):
        leading = pairs.leading(min(n_diffusion_vectors(n_finer, n_images), len(pairs.values)))
        # With as many components as clusters, no coordinate tells the finer ones apart.
        if n_finer < len(leading.values) and leading.values[n_finer] < 1.0:
            for time in FINER_TIMES:
                yield partial(_merged_partition, adjacency, leading, n_finer, n_clusters, time, seed)


def _merged_partition(
    adjacency: SparseMatrix, pairs: Spectrum, n_finer: int, n_clusters: int, time: float, seed: int
) -> LabelArray:
    labels = _diffused_partition(pairs, n_finer, time, seed)
    return merge_clusters(adjacency, labels, n_clusters, resolution=resolution_for(n_clusters))


def merge_clusters(
    adjacency: SparseMatrix, labels: LabelArray, n_clusters: int, *, resolution: float = 1.0
) -> LabelArray:
    """Merge the two clusters with the largest gain in modularity until ``n_clusters`` are left.

    >>> from scipy import sparse
    >>> path = sparse.csr_matrix(np.array([[0, 9, 1, 0], [9, 0, 0, 0], [1, 0, 0, 9], [0, 0, 9, 0]], dtype=float))
    >>> merge_clusters(path, np.array([0, 1, 2, 3]), 2)
    array([0, 0, 1, 1])
    """
    group = _without_missing(labels)
    shared = shared_weights(adjacency, group)
    shared /= max(float(shared.sum()), 1e-300)
    volume = shared.sum(axis=1)
    target = np.arange(len(shared))
    alive = np.arange(len(shared))
    while len(alive) > n_clusters:
        gain = shared[np.ix_(alive, alive)] - resolution * np.outer(volume[alive], volume[alive])
        np.fill_diagonal(gain, -np.inf)
        kept, gone = alive[list(np.unravel_index(gain.argmax(), gain.shape))]
        shared[kept] += shared[gone]
        shared[:, kept] += shared[:, gone]
        volume[kept] += volume[gone]
        target[target == gone] = kept
        alive = alive[alive != gone]
    return _without_missing(target[group])


def _without_missing(labels: LabelArray) -> LabelArray:
    """Return labels 0, 1, ... in the same order, without those that no image has."""
    present = np.bincount(labels) > 0
    return np.asarray((np.cumsum(present) - 1)[labels], dtype=np.intp)


def _diffused_partition(pairs: Spectrum, n_clusters: int, time: float, seed: int) -> LabelArray:
    return ward_kmeans(diffusion_coordinates(pairs, n_clusters, time), n_clusters, seed)


def _find_candidates(
    sources: Sequence[LabelArray | Callable[[], LabelArray]],
    n_images: int,
    stage: Stage | None,
    at_once: int | None = None,
) -> list[LabelArray]:
    """Return all candidate partitions; those that an interrupted run has kept are not computed again.

    At most ``at_once`` are computed at the same time; None for one on each thread.
    """
    stage = stage or Stage()
    kept = stage.kept().get("candidates", np.empty((0, n_images), np.intp))
    found = [] if kept.shape[1:] != (n_images,) else list(kept[: len(sources)])
    with own_threads() as available:
        threads = min(available, at_once or available)
        while len(found) < len(sources):
            stage.show(len(found), len(sources))
            found.extend(_found_together(sources[len(found) : len(found) + available], threads))
            stage.keep(lambda: {"candidates": np.stack(found)}, finished=len(found) == len(sources))
    stage.show(len(sources), len(sources))
    return found


def _found_together(sources: Sequence[LabelArray | Callable[[], LabelArray]], threads: int) -> list[LabelArray]:
    """Return some candidate partitions, one on each thread: the tree that each of them needs uses one thread alone."""

    def find(first: int, last: int) -> list[LabelArray]:
        return [source() if callable(source) else source for source in sources[first:last]]

    return list(itertools.chain.from_iterable(parallel_ranges(find, len(sources), grain=1, threads=threads)))


# --- K-means on codes -----------------------------------------------------------------------------------
def kmeans(features: NDArray[Any], n_clusters: int, *, n_starts: int = 10, seed: int | None = None) -> LabelArray:
    """Return the labels of the best of several K-means runs.

    Parameters
    ----------
    features : ndarray of shape (n_images, n_features)
        One row per image.
    n_clusters : int
        Number of clusters.
    n_starts : int, default=10
        Number of runs with different random starts.
    seed : int or None, default=None
        Seed of the starts.

    Returns
    -------
    ndarray of shape (n_images,)
        Labels, 0 for the largest cluster.

    Warns
    -----
    ConvergenceWarning
        If there are fewer distinct rows than clusters; the labels then have as many values as there are distinct rows.

    Examples
    --------
    >>> kmeans(np.array([[0.0], [0.1], [0.2], [9.0]]), 2, seed=0)
    array([0, 0, 0, 1])
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    check_cluster_count(n_clusters, len(features))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # about equal points; warn_if_fewer says it in our words
        model = KMeans(n_clusters, n_init=n_starts, random_state=seed).fit(features)
    labels = order_by_size(np.asarray(model.labels_, dtype=np.intp))
    warn_if_fewer(labels, n_clusters)
    return labels


# --- labels ----------------------------------------------------------------------------------------------
def order_by_size(labels: LabelArray) -> LabelArray:
    """Number clusters 0, 1, ... from the largest to the smallest; equal sizes by first appearance.

    >>> order_by_size(np.array([5, 2, 2, 9]))
    array([1, 0, 0, 2])
    """
    values, first, inverse, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    rank = np.empty(len(values), np.intp)
    rank[order] = np.arange(len(values))
    return rank[inverse]


def check_cluster_count(n_clusters: int, n_images: int) -> None:
    """Raise an error if that many images cannot have that many clusters."""
    if n_clusters < 1:
        raise ValueError(f"n_clusters is {n_clusters}; ask for at least one cluster")
    if n_clusters > n_images:
        raise ValueError(
            f"n_clusters is {n_clusters} for only {count(n_images, 'image')}; ask for at most one cluster per image"
        )


def warn_if_fewer(labels: LabelArray, n_clusters: int) -> None:
    """Warn if there are fewer clusters than were asked for."""
    n_found = int(labels.max()) + 1
    if n_found < n_clusters:
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(
            f"{n_clusters} clusters were asked for, but only {n_found} could be told apart; ask for at most {n_found}",
            ConvergenceWarning,
            stacklevel=3,
        )


def warn_if_lopsided(
    labels: LabelArray,
    affinity: SparseMatrix,
    features: ArrayLike,
    *,
    counts: IndexArray | None = None,
    seed: int = 0,
) -> None:
    """Warn if one cluster holds over 90 % of the images and the graph does not ask for it.

    It does not if K-means on ``features`` (n, d) finds a balanced partition that cuts hardly more of ``affinity``
    (n, n): the share of edge weight that stays inside a cluster, in the mean over clusters, is lower by at most 0.1.
    ``counts`` (n,) says how many images each row represents; None for one.
    """
    n_clusters = int(labels.max()) + 1
    if n_clusters == 1 or _largest_share(labels, counts) <= _LOPSIDED:
        return
    balanced = ward_kmeans(np.asarray(features, dtype=np.float64), n_clusters, seed)
    if _largest_share(balanced, counts) > _LOPSIDED:
        return
    if _kept_weight(affinity, balanced) < _kept_weight(affinity, labels) - _NEARLY_EQUAL:
        return
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"one cluster holds {100 * _largest_share(labels, counts):.0f} % of the images, although a more even division "
        "fits their likeness about as well; try another number of clusters or more neighbours",
        ConvergenceWarning,
        stacklevel=3,
    )


def _kept_weight(adjacency: SparseMatrix, labels: LabelArray) -> float:
    """Return the share of edge weight that stays inside a cluster, in the mean over clusters that have edges."""
    edges = adjacency.tocoo()
    inside = labels[edges.row] == labels[edges.col]
    within = np.bincount(labels[edges.row], edges.data * inside)
    volume = np.bincount(labels[edges.row], edges.data)
    return float(np.mean(within[volume > 0.0] / volume[volume > 0.0])) if (volume > 0.0).any() else 0.0


def _largest_share(labels: LabelArray, counts: IndexArray | None = None) -> float:
    sizes = np.bincount(labels, counts)
    return float(sizes.max() / sizes.sum())
