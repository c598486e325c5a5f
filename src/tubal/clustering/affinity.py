"""From images to the weighted graph that is cut: neighbour lists, weights of their edges, and copies that count once.

A neighbour list is short. Copies of an image would fill it, and it would then say nothing of what the image is like:
with six copies of every image a graph of five neighbours falls apart into groups of copies. So groups of copies are
found first, the graph that is cut joins one representative of each, and the whole group gets its label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from tubal.backends.arrays import Array, own_threads, parallel_ranges, restore_like, to_numpy
from tubal.clustering.large import LEVELS_FROM
from tubal.clustering.spectral import LabelArray
from tubal.estimators.coders import GTSC
from tubal.graph import Graph, Stage, deformable_graph, knn_graph
from tubal.graph.deformable import DeformableSearch, Effort
from tubal.graph.neighbors import (
    METRICS,
    ImageSearch,
    TrainingSearch,
    as_rows,
    exact_copies,
)
from tubal.graph.structure import (
    HUB_FACTOR,
    FloatArray,
    IndexArray,
    SparseMatrix,
    directed_edges,
    limit_in_degree,
    sorted_transpose,
    symmetric_adjacency,
)
from tubal.learning.fitting import resolve_graph
from tubal.problems.layout import unit_rows

# Returns what lists the neighbours of all images, given the search of a graph.
Finder: TypeAlias = Callable[[DeformableSearch], TrainingSearch]
# Returns the lists of some images, see :meth:`DistinctImages.one_per_group`.
ListAgain: TypeAlias = Callable[[IndexArray, Graph, IndexArray], Graph]
# What a user may give for a graph: its name, a graph, or edge weights.
Given: TypeAlias = str | Graph | SparseMatrix | NDArray[Any]


# --- neighbour lists -------------------------------------------------------------------------------------
# Lists are this many times longer than needed; the second half can move up when distances are rescaled.
LIST_FACTOR = 2
# Collections above the first number get more candidates than a graph alone would. Above 20 000 images, where neighbours
# are many and close, the distances of only so many candidates are measured.
_SMALL, _KEPT_OF_MANY = 2000, 20
# Exponent of the local scale that is divided out of distances; an exponent of 1 would bring outliers close to all.
_SCALE_EXPONENT = 0.25
# With a smaller share of mutual choices, hubs dominate the lists.
_FEW_MUTUAL = 0.5
# Rows of a graph that one thread multiplies at a time.
_ROWS_AT_A_TIME = 2048


def clustering_effort(n_images: int, n_neighbors: int) -> Effort:
    """Return the effort of a deformable graph for clustering.

    From 2000 to 20 000 images there are more candidates than usual. Above, there are as many as usual, and the
    distances of only 20 are measured.
    """
    usual = Effort.for_collection(n_images, n_neighbors)
    if n_images > usual.exact_limit:
        return replace(usual, n_kept=max(_KEPT_OF_MANY, 2 * n_neighbors))
    if n_images <= _SMALL:
        return usual
    return replace(usual, n_candidates=max(100, usual.n_candidates), n_kept=max(50, usual.n_kept), rank=128)


def neighbor_lists(
    graph: Given, images: Array, n_neighbors: int, seed: int, stage: Stage | None = None, finder: Finder | None = None
) -> Graph:
    """Return the graph that is named or given; one that is built here has ``n_neighbors`` neighbours.

    ``finder`` lists the neighbours in a deformable graph, see :func:`deformable_graph`.
    """
    if isinstance(graph, str) and graph in METRICS:
        return knn_graph(images, n_neighbors, metric=graph, compare_all=False, stage=stage)
    if not (isinstance(graph, str) and graph == "deformable"):
        return resolve_graph(graph, images, n_neighbors=n_neighbors)
    effort = clustering_effort(len(images), n_neighbors)
    # Two kilobytes an image let the best motions be found among enough numbers, however many images there are.
    budget = max(1e9, 2000.0 * len(images))
    return deformable_graph(
        images, n_neighbors, effort=effort, memory_budget=budget, random_state=seed, stage=stage, finder=finder
    )


def release_memory(lists: Graph) -> None:
    """Free what the search of many images derived from them; a query for new images would compute it again."""
    if isinstance(lists.search, DeformableSearch) and lists.n_images > lists.search.effort.exact_limit:
        lists.search.release_memory()


class Engine:
    """Where the step runs that compares all images: here, or, in a subclass, on other machines."""

    def finder(self, images: Array) -> Finder | None:
        """Return what lists the neighbours of scaled images in a deformable graph; None for the search itself."""
        return None


@dataclass(frozen=True)
class FeaturesOnDemand:
    """Features (n, n_atoms) of many scaled images, each coded alone, which become an array where one is needed.

    ``chosen`` are the images that are meant, or None for all.
    """

    model: GTSC
    images: Array
    chosen: IndexArray | None = None

    def __getitem__(self, chosen: IndexArray) -> FeaturesOnDemand:
        return replace(self, chosen=chosen if self.chosen is None else self.chosen[chosen])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self._rows if dtype is None else self._rows.astype(dtype)

    @cached_property
    def _rows(self) -> NDArray[Any]:
        images = self.images if self.chosen is None else self.images[restore_like(self.chosen, self.images)]
        return to_numpy(unit_rows(self.model._features_alone(images)))


def choose_neighbors(lists: Graph, n_neighbors: int) -> Graph:
    """Return the graph of the best ``n_neighbors`` of longer neighbour lists.

    These are the nearest neighbours. If fewer than half of all choices are mutual, hubs dominate. Distances then depend
    more on the density around the images than on the pair, so the nearest after rescaling are taken. No label and no
    partition is used. A graph without longer lists is returned unchanged.
    """
    if lists.n_neighbors is None or lists.n_neighbors <= n_neighbors:
        return lists
    slots = _first_slots(lists, lists_of(lists)[1], n_neighbors)
    if _share_of_mutual(_neighbors_at(lists, slots)) < _FEW_MUTUAL:
        slots = _first_slots(lists, rescaled_distances(lists, n_neighbors), n_neighbors)
    return _keep_slots(lists, slots)


def keep_nearest(lists: Graph, n_neighbors: int) -> Graph:
    """Return the graph of the ``n_neighbors`` nearest of longer neighbour lists."""
    return _keep_slots(lists, _first_slots(lists, lists_of(lists)[1], n_neighbors))


def keep_nearest_rescaled(lists: Graph, n_neighbors: int) -> Graph:
    """Return the graph of the ``n_neighbors`` nearest after dividing distances by the local scales."""
    return _keep_slots(lists, _first_slots(lists, rescaled_distances(lists, n_neighbors), n_neighbors))


def rescaled_distances(lists: Graph, n_neighbors: int) -> FloatArray:
    """Return distances divided by the local scales, ``d_ij / (s_i s_j) ** (1/8)``.

    ``s_i`` is the mean distance of image i to its ``n_neighbors`` nearest. Images in sparse regions then get more
    edges, which helps where classes differ in variety and hurts where a large distance means a different class.
    """
    neighbors, distances = lists_of(lists)
    near = np.asarray(distances, dtype=np.float64)[:, :n_neighbors]
    scale = np.where(np.isfinite(near), near, 0.0).mean(axis=1)
    positive = scale[scale > 0.0]
    scale = np.maximum(scale, positive.min() if positive.size else 1.0)
    other_scale = scale[np.maximum(neighbors, 0)]
    rescaled: FloatArray = distances / (scale[:, None] * other_scale) ** (_SCALE_EXPONENT / 2)
    return rescaled


def mutual_share(graph: Graph) -> float:
    """Return the share of choices ``i -> j`` for which ``j -> i`` is a choice too.

    >>> graph = Graph(sparse.csr_matrix((3, 3)), neighbors=np.array([[1], [0], [1]]), distances=np.ones((3, 1)))
    >>> round(mutual_share(graph), 3)
    0.667
    """
    return _share_of_mutual(lists_of(graph)[0])


def _share_of_mutual(neighbors: IndexArray) -> float:
    edges = mutual_adjacency(neighbors).data
    # A mutual edge has weight 1 and is stored twice, an edge chosen by one side has weight 1/2.
    n_mutual, n_choices = np.count_nonzero(edges == 1.0), edges.sum()
    return float(n_mutual / n_choices) if n_choices else 1.0


def lists_of(graph: Graph) -> tuple[IndexArray, FloatArray]:
    """Return the neighbours and distances of a graph that keeps them."""
    if graph.neighbors is None or graph.distances is None:
        raise ValueError("this graph was given as a matrix and has no neighbour lists; build it with knn_graph()")
    return graph.neighbors, graph.distances


def _first_slots(lists: Graph, sort_by: FloatArray, n_neighbors: int) -> IndexArray:
    """Sort each list by ``sort_by``; return the first ``n_neighbors`` places (n, n_neighbors) in the given lists.

    How often an image is listed is limited; -1 is the end of a list.
    """
    found, _ = lists_of(lists)
    order, ordered = np.empty(found.shape, np.intp), np.empty_like(found)
    ranked = np.empty(found.shape, sort_by.dtype)

    def sort(start: int, stop: int) -> None:
        own = slice(start, stop)
        order[own] = np.argsort(sort_by[own], axis=1, kind="stable")
        places = np.take_along_axis(found[own], order[own], axis=1)
        ordered[own] = np.maximum(places, 0)
        ranked[own] = np.where(places >= 0, np.take_along_axis(sort_by[own], order[own], axis=1), np.inf)

    with own_threads() as threads:
        parallel_ranges(sort, len(found), grain=_ROWS_AT_A_TIME, threads=threads)
    slots = limit_in_degree(ordered, ranked, n_neighbors, HUB_FACTOR * n_neighbors)
    return np.where(slots >= 0, np.take_along_axis(order, np.maximum(slots, 0), axis=1), -1)


def _neighbors_at(lists: Graph, slots: IndexArray) -> IndexArray:
    """Return the images at some places of the lists, -1 for none."""
    found, _ = lists_of(lists)
    return np.where(slots >= 0, np.take_along_axis(found, np.maximum(slots, 0), axis=1), -1)


def _keep_slots(lists: Graph, slots: IndexArray) -> Graph:
    """Return the graph of some places of longer lists, see :func:`_first_slots`."""
    _, lengths = lists_of(lists)
    kept = np.maximum(slots, 0)
    neighbors = _neighbors_at(lists, slots)
    distances = np.where(slots >= 0, np.take_along_axis(lengths, kept, axis=1), np.inf)
    return replace(
        lists,
        adjacency=symmetric_adjacency(neighbors, lists.weighting.of(distances)),
        neighbors=neighbors,
        distances=distances,
        alignments=None if lists.alignments is None else lists.alignments[np.arange(len(kept))[:, None], kept],
        n_neighbors=slots.shape[1],
    )


# --- edge weights ----------------------------------------------------------------------------------------
def build_affinity(graph: Graph, features: ArrayLike, code_power: float) -> SparseMatrix:
    """Return the matrix (n, n) that is cut: mutual choices, weighted by codes, with their short paths."""
    weights = choice_weights(graph)
    if code_power > 0:
        weights = weight_edges_by_codes(weights, features, code_power)
    return with_short_paths(weights)


def choice_weights(graph: Graph, n_neighbors: int | None = None) -> SparseMatrix:
    """Return 1 for mutual neighbours and 1/2 for one-sided ones; a graph given as a matrix keeps its weights."""
    return graph.adjacency if graph.neighbors is None else mutual_adjacency(graph.neighbors, n_neighbors)


def mutual_adjacency(neighbors: IndexArray, n_neighbors: int | None = None) -> SparseMatrix:
    """Return ``(W + Wᵀ) / 2`` of neighbour lists: 1 where two images list each other, 1/2 where one does.

    Parameters
    ----------
    neighbors : ndarray of shape (n_images, q)
        Neighbours of each image; negative indices are no edge.
    n_neighbors : int or None, default=None
        Use only the first ``n_neighbors`` columns; None for all.

    Returns
    -------
    sparse matrix of shape (n_images, n_images)
        Symmetric edge weights in CSR form.

    Examples
    --------
    >>> mutual_adjacency(np.array([[1], [2], [1]])).toarray()
    array([[0. , 0.5, 0. ],
           [0.5, 0. , 1. ],
           [0. , 1. , 0. ]])
    """
    chosen: IndexArray = np.asarray(neighbors)[:, :n_neighbors]
    directed = directed_edges(chosen, np.broadcast_to(0.5, chosen.shape))
    return sparse.csr_matrix(directed + sorted_transpose(directed))


def with_short_paths(adjacency: SparseMatrix) -> SparseMatrix:
    """Return ``W + W²`` up to 100 000 images, see :func:`with_second_order`, and ``W`` above.

    A larger graph is cut by levels. The weight between two groups is then a sum over many edges, in which a wrong one
    counts little, so paths of length two are not needed. They would take nine times the memory.
    """
    return sparse.csr_matrix(adjacency) if adjacency.shape[0] > LEVELS_FROM else with_second_order(adjacency)


def with_second_order(adjacency: SparseMatrix) -> SparseMatrix:
    """Return ``W + W²`` without its diagonal: neighbours, and their neighbours by the number of paths.

    Weights are first divided by their largest, so that the balance of the two terms does not depend on units. A wrong
    edge between two groups then counts little against the many short paths inside them.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric edge weights ``W``.

    Returns
    -------
    sparse matrix of shape (n_images, n_images)
        The graph with the additional edges, symmetric and in CSR form.

    Examples
    --------
    >>> chain = sparse.csr_matrix(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    >>> with_second_order(chain).toarray()
    array([[0., 1., 1.],
           [1., 0., 1.],
           [1., 1., 0.]])
    """
    largest = adjacency.data.max(initial=0.0)
    scaled = sparse.csr_matrix(adjacency / (largest or 1.0))
    # In ascending order both halves add the same products in the same order, so that the result is exactly symmetric.
    scaled.sort_indices()

    def multiply(start: int, stop: int) -> SparseMatrix:
        paths = sparse.coo_matrix(scaled[start:stop] + scaled[start:stop] @ scaled)
        kept = paths.row + start != paths.col
        return sparse.csr_matrix((paths.data[kept], (paths.row[kept], paths.col[kept])), shape=paths.shape)

    with own_threads() as threads:
        parts = parallel_ranges(multiply, adjacency.shape[0], grain=_ROWS_AT_A_TIME, threads=threads)
    return parts[0] if len(parts) == 1 else sparse.csr_matrix(sparse.vstack(parts))


def weight_edges_by_codes(
    adjacency: SparseMatrix, features: ArrayLike, power: float = 4.0, floor: float = 1e-3
) -> SparseMatrix:
    """Multiply each edge by ``max(cos(c_i, c_j), 0) ** power`` of the features of its two images.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric edge weights.
    features : ndarray of shape (n_images, n_features)
        One row ``c_i`` per image.
    power : float, default=4.0
        A larger power weakens edges between different codes more.
    floor : float, default=1e-3
        Smallest factor, so that codes weaken an edge but never remove it.

    Returns
    -------
    sparse matrix of shape (n_images, n_images)
        The same edges with their new weights, in CSR form.

    Examples
    --------
    >>> pair = sparse.csr_matrix(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> weight_edges_by_codes(pair, np.array([[1.0, 0.0], [1.0, 1.0]]), power=2).toarray().round(3)
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    rows = np.asarray(features, dtype=np.float64)
    if len(rows) != adjacency.shape[0]:
        raise ValueError(
            f"features has {len(rows)} rows but the graph joins {adjacency.shape[0]} images; give one row per image"
        )
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(lengths > 0.0, lengths, 1.0)
    edges = adjacency.tocoo()
    cosines = np.einsum("ij,ij->i", unit[edges.row], unit[edges.col])
    factors = np.maximum(np.clip(cosines, 0.0, 1.0) ** power, floor)
    return sparse.csr_matrix((edges.data * factors, (edges.row, edges.col)), shape=adjacency.shape)


# --- a sample to learn from ------------------------------------------------------------------------------
# Above the first number of images, atoms are learned from a sample of about the second.
LEARNED_WHOLE, LEARNED_FROM = 20_000, 5000


def sample_around(adjacency: SparseMatrix, size: int, seed: int) -> IndexArray:
    """Return about ``size`` images, increasing: random ones and all their neighbours, so that edges join the sample.

    >>> ring = sparse.csr_matrix(np.roll(np.eye(9), 1, axis=1) + np.roll(np.eye(9), -1, axis=1))
    >>> len(sample_around(ring, 3, seed=0))
    3
    """
    n_images = adjacency.shape[0]
    n_seeds = max(1, int(size * n_images / (n_images + adjacency.nnz)))
    seeds = np.random.default_rng(seed).permutation(n_images)[:n_seeds]
    return np.unique(np.concatenate([seeds, adjacency[seeds].indices])).astype(np.intp)


# --- copies -------------------------------------------------------------------------------------------------
# The next image in a list is this many times as far away as the farthest copy, see :func:`near_copies`.
JUMP = 2.0
# Near-copies are joined if at least this share of the images have some, see :func:`find_distinct`.
MOST_HAVE_COPIES = 0.9
# A smaller share of images with near-copies is no reason to join them; a few may be found in every round.
FEW_HAVE_COPIES = 0.001


@dataclass(frozen=True)
class DistinctImages:
    """What is clustered in place of all images: representatives, and their neighbour lists among each other.

    ``copy_of`` (n_images,) is the image that represents each image; its own index where it represents itself.
    """

    copy_of: IndexArray
    lists: Graph

    @property
    def kept(self) -> IndexArray:
        """Indices of the representatives, increasing."""
        return np.flatnonzero(self.copy_of == np.arange(len(self.copy_of)))

    @property
    def any_copies(self) -> bool:
        """Whether some image is represented by another."""
        return len(self.kept) < len(self.copy_of)

    def spread(self, adjacency: SparseMatrix) -> SparseMatrix:
        """Return edges (n, n) of all images: those of the representatives, and one from each copy to its own.

        >>> pair = sparse.csr_matrix(np.array([[0.0, 0.5], [0.5, 0.0]]))
        >>> DistinctImages(np.array([0, 0, 2]), Graph(pair)).spread(pair).toarray()
        array([[0. , 1. , 0.5],
               [1. , 0. , 0. ],
               [0.5, 0. , 0. ]])
        """
        if not self.any_copies:
            return adjacency
        n_images, kept, edges = len(self.copy_of), self.kept, sparse.csr_matrix(adjacency)
        copies = np.flatnonzero(self.copy_of != np.arange(n_images))
        ends = np.concatenate([copies, self.copy_of[copies]]), np.concatenate([self.copy_of[copies], copies])
        links = sparse.csr_matrix((np.ones(2 * len(copies), edges.data.dtype), ends), shape=(n_images, n_images))
        # Copies get empty rows, and all others stay in their order, so nothing needs to be sorted.
        n_edges = np.zeros(n_images + 1, np.int64)
        n_edges[kept + 1] = np.diff(edges.indptr)
        parts = edges.data, kept[edges.indices], np.cumsum(n_edges)
        spread = sparse.csr_matrix(sparse.csr_matrix(parts, shape=(n_images, n_images)) + links)
        spread.sort_indices()
        return spread

    def chosen(self, n_neighbors: int) -> Graph:
        """Return the graph of the best ``n_neighbors`` of each representative, see :func:`choose_neighbors`."""
        known: tuple[int, Graph] | None = self.__dict__.get("_chosen")
        if known is None or known[0] != n_neighbors:
            known = n_neighbors, choose_neighbors(self.lists, n_neighbors)
            self.__dict__["_chosen"] = known
        return known[1]

    def one_per_group(self, group: LabelArray, list_again: ListAgain) -> DistinctImages:
        """Return fewer representatives, one for each group of the present ones, with new lists.

        ``group`` (n_kept,) is the group of each representative. ``list_again`` returns the lists of the remaining
        images, given their indices, the present lists, and the place of each present image among the remaining.
        """
        kept = self.kept
        chosen = kept[representatives(self.lists, group)]
        copy_of = chosen[group[np.searchsorted(kept, self.copy_of)]]
        remaining = np.unique(copy_of)
        return DistinctImages(copy_of, list_again(remaining, self.lists, np.searchsorted(remaining, chosen)[group]))


def find_distinct(
    lists: Graph,
    exact: LabelArray,
    build: Callable[[IndexArray], Graph],
    *,
    n_neighbors: int,
    n_clusters: int | None,
    most: int,
) -> DistinctImages:
    """Return representatives of all images, each group of copies represented once.

    In order these are exact copies (:func:`crowding_groups`), near-copies (:func:`near_copies`), and small components
    (:func:`small_components`). Groups are looked for again among the representatives until there are none, or hardly
    any near-copies: copies that fill a list hide the copies that have no place in it.

    Near-copies are joined if at least 90 % of the images have some. Only then is it certain that a collection holds
    every image several times. In 16 ordinary collections at most 5 % of the images have near-copies, with 2 to 12 noisy
    copies 98 % and more; in between lie shapes at few positions, whose groups are pieces of clusters.

    Groups that may be the clusters themselves are kept whole. Near-copies are joined only while more than
    ``n_neighbors`` representatives per cluster are left; with fewer, every list would lead to other clusters. If the
    number of clusters is to be estimated, more representatives than clusters must be left.

    Parameters
    ----------
    lists : Graph
        Neighbour lists of all images.
    exact : ndarray of shape (n_images,)
        Group of equal images that each image belongs to.
    build : callable
        Returns the neighbour lists of some images, given their indices.
    n_neighbors : int
        Neighbours of each image in the graph that is cut.
    n_clusters : int or None
        Number of clusters; None if it is to be estimated.
    most : int
        Largest estimate of the number of clusters.

    Returns
    -------
    DistinctImages
        Representatives and their lists; without copies, all images and the given lists.
    """
    found = DistinctImages(np.arange(lists.n_images), lists)
    list_again = _relisting(lists, build, n_neighbors)
    group = crowding_groups(exact, n_neighbors)
    least = most + 1 if n_clusters is None else 2
    if least <= _count(group) < lists.n_images:
        found = found.one_per_group(group, list_again)
    least = most + 1 if n_clusters is None else (n_neighbors + 1) * n_clusters
    any_copies = False
    while True:
        n_left = found.lists.n_images
        group = near_copies(found.lists)
        share = float(np.mean(np.bincount(group)[group] > 1))
        any_copies |= share >= MOST_HAVE_COPIES
        if not any_copies or share < FEW_HAVE_COPIES:
            group = small_components(found.chosen(n_neighbors), n_neighbors, n_clusters or most, any_copies)
        if not least <= _count(group) < n_left:
            return found
        any_copies, found = True, found.one_per_group(group, list_again)


def _count(group: LabelArray) -> int:
    return int(group.max()) + 1


# --- lists of representatives ------------------------------------------------------------------------------
# Representatives of at most this many images are searched again, and so are all representatives if more than this
# share of them have too short lists.
_SEARCHED_AGAIN, _MOST_SHORT = 20_000, 0.25


def _relisting(lists: Graph, build: Callable[[IndexArray], Graph], n_neighbors: int) -> ListAgain:
    """Return what lists the neighbours of representatives, given the lists of all images.

    A small collection is searched again. In a large one that would take as long as the first search, and most lists
    do not change: neighbours are replaced by their representatives, see :func:`lists_of_groups`, and only
    representatives with fewer than ``n_neighbors`` others in their list are compared with all representatives again.
    """
    search = lists.search
    if lists.n_images <= _SEARCHED_AGAIN or not isinstance(search, DeformableSearch):
        return lambda remaining, present, place: build(remaining)

    def list_again(remaining: IndexArray, present: Graph, place: IndexArray) -> Graph:
        neighbors, distances = lists_of_groups(*lists_of(present), place)
        short = np.flatnonzero(np.count_nonzero(neighbors >= 0, axis=1) < n_neighbors)
        if len(short) > _MOST_SHORT * len(remaining):
            return build(remaining)
        if len(short):
            found = search.nearest_among(remaining[short], remaining, neighbors.shape[1])
            neighbors[short], distances[short] = np.searchsorted(remaining, found.indices), found.distances
        edges = symmetric_adjacency(neighbors, lists.weighting.of(distances))
        return Graph(edges, neighbors, distances, n_neighbors=lists.n_neighbors, weighting=lists.weighting)

    return list_again


def lists_of_groups(neighbors: IndexArray, distances: FloatArray, group: LabelArray) -> tuple[IndexArray, FloatArray]:
    """Return the neighbours and distances (n_groups, q) of groups, given those of their images, both (n, q).

    ``group`` (n,) is the group of each image. Two groups are as far apart as the nearest pair of their images of which
    one lists the other. A list with fewer than q other groups ends with -1, at an infinite distance.

    >>> neighbors, distances = np.array([[1, 2], [0, 3], [3, 1], [2, 1]]), np.array([[1.0, 5], [1, 4], [2, 6], [2, 4]])
    >>> lists_of_groups(neighbors, distances, np.array([0, 0, 1, 2]))[0]
    array([[2, 1],
           [2, 0],
           [1, 0]])
    """
    n_slots, shape = neighbors.shape[1], (_count(group), neighbors.shape[1])
    others, lengths = np.full(shape, -1, dtype=np.intp), np.full(shape, np.inf, dtype=distances.dtype)
    is_joined = np.bincount(group)[group] > 1
    # A list of single images, itself that of a single image, keeps its order.
    changed = is_joined | (is_joined[neighbors] & (neighbors >= 0)).any(axis=1)
    same = np.flatnonzero(~changed)
    others[group[same]] = np.where(neighbors[same] >= 0, group[neighbors[same]], -1)
    lengths[group[same]] = distances[same]
    rows = np.flatnonzero(changed)
    own, other = np.repeat(group[rows], n_slots), group[neighbors[rows].ravel()]
    use = np.flatnonzero((neighbors[rows].ravel() >= 0) & (own != other))
    own, other, apart = own[use], other[use], distances[rows].ravel()[use]
    order = np.lexsort((apart, other, own))
    first = order[np.diff(own[order] * np.intp(len(group)) + other[order], prepend=-1) != 0]
    first = first[np.lexsort((apart[first], own[first]))]
    slot = np.arange(len(first)) - np.searchsorted(own[first], own[first])
    first, slot = first[slot < n_slots], slot[slot < n_slots]
    others[own[first], slot], lengths[own[first], slot] = other[first], apart[first]
    return others, lengths


# --- groups ----------------------------------------------------------------------------------------------
def near_copies(lists: Graph) -> LabelArray:
    """Return the group (n,) of near-copies that each image belongs to; most groups are single images.

    An image has c copies if a jump follows the first c places of its list: the next distance is at least twice as
    large. Each of them is a near-copy if it has the image among its own first c, too. The reason for two: in sixteen
    collections of digits, faces, objects, signs, cells and plants, distances grow by a factor of 1.04 to 2.0 over a
    whole list of ten, so a doubling in one step is more than a matter of density. There it makes groups of at most
    5 % of the images, and nearly all are pairs. With copies that differ by 2 % noise it finds 99 %.

    >>> distances = np.array([[0.1, 1.0], [0.1, 1.1], [1.0, 1.2], [1.2, 1.3]])
    >>> neighbors = np.array([[1, 2], [0, 2], [0, 1], [2, 0]])
    >>> near_copies(Graph(sparse.csr_matrix((4, 4)), neighbors=neighbors, distances=distances))
    array([0, 0, 1, 2])
    """
    neighbors, distances = lists_of(lists)
    lengths = _comparable(lists, distances)
    n_images, n_slots = neighbors.shape
    if n_slots < 2:
        return np.arange(n_images)
    jumps = np.isfinite(lengths[:, 1:]) & (lengths[:, 1:] >= JUMP * lengths[:, :-1])
    n_copies = np.where(jumps.any(axis=1), n_slots - 1 - jumps[:, ::-1].argmax(axis=1), 0)
    rows, slots = np.nonzero((np.arange(n_slots) < n_copies[:, None]) & (neighbors >= 0))
    others = neighbors[rows, slots]
    returned = (neighbors[others] == rows[:, None]) & (np.arange(n_slots) < n_copies[rows, None])
    mutual = returned.any(axis=1)
    ends = rows[mutual], others[mutual]
    links = sparse.csr_matrix((np.ones(len(ends[0])), ends), shape=(n_images, n_images))
    _, group = connected_components(links, directed=False)
    return np.asarray(group, dtype=np.intp)


def _comparable(lists: Graph, distances: FloatArray) -> NDArray[np.float64]:
    """Return positive distances that grow like a length; one minus a cosine grows like its square."""
    values = np.asarray(distances, dtype=np.float64)
    if getattr(lists.search, "metric", None) == "cosine":
        values = np.sqrt(np.maximum(values, 0.0))
    return np.maximum(values, 1e-9)


def copy_groups(*groupings: IndexArray) -> LabelArray:
    """Return groups (n,) of images that some grouping joins.

    >>> copy_groups(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2]))
    array([0, 0, 0, 1])
    """
    n_images = len(groupings[0])
    firsts = [np.unique(group, return_index=True, return_inverse=True)[1:] for group in groupings]
    columns = np.concatenate([first[inverse] for first, inverse in firsts])
    rows = np.tile(np.arange(n_images), len(groupings))
    links = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(n_images, n_images))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.intp)


def crowding_groups(group: LabelArray, n_neighbors: int) -> LabelArray:
    """Return groups (n,) of copies; groups that do no harm are divided into single images.

    Copies do harm where they take at least half of an image's ``n_neighbors`` places. A pair here and there does not:
    most neighbours of its images are still others. Where most images have copies, all groups are kept.

    >>> crowding_groups(np.array([0, 0, 0, 1, 1, 2, 3, 4, 5, 6]), 4)
    array([0, 0, 0, 1, 2, 3, 4, 5, 6, 7])
    """
    size = np.bincount(group)[group]
    if 2 * np.count_nonzero(size > 1) > len(group):
        return group
    return _take_apart(group, 2 * (size - 1) < n_neighbors)


def small_components(graph: Graph, n_neighbors: int, n_clusters: int, any_copies: bool) -> LabelArray:
    """Return the small connected components (n,) of the graph that would be cut, all other images being single.

    A component is small if it has less than half the images of an average cluster. It then counts as one image, whose
    neighbours among the others show where it belongs: its copies, or very similar images, have hidden them so far.
    Unless the collection is known to have copies, the components of a graph with few of them may be clusters, or large
    pieces of clusters, and are left alone. They cannot be if there are more than ``n_neighbors`` of them for each
    cluster, or more than clusters although one of them holds most of the images.
    """
    n_components, component = connected_components(choice_weights(graph), directed=False)
    sizes = np.bincount(component)
    many = n_components > n_neighbors * n_clusters
    many |= n_components > n_clusters and 2 * sizes.max() > len(component)
    large = 2 * n_clusters * sizes[component] >= len(component)
    return _take_apart(component, large if many or any_copies else np.ones_like(large))


def _take_apart(group: LabelArray, alone: NDArray[np.bool_]) -> LabelArray:
    """Return groups numbered by first appearance, with the images that are ``alone`` in groups of their own."""
    marks = np.where(alone, len(group) + np.arange(len(group)), group)
    _, first, numbers = np.unique(marks, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[numbers]


def representatives(lists: Graph, group: LabelArray) -> IndexArray:
    """Return the most central image of each group: the one with the shortest distances to the members it lists.

    Members that it does not list count as far away as its last neighbour. Among equals the first is taken.

    >>> graph = Graph(sparse.csr_matrix((3, 3)), neighbors=np.array([[1, 2], [2, 0], [1, 0]]),
    ...               distances=np.array([[2.0, 3.0], [1.0, 2.0], [1.0, 3.0]]))
    >>> representatives(graph, np.array([0, 0, 0]))
    array([1])
    """
    neighbors, distances = lists_of(lists)
    lengths = np.where(np.isfinite(distances), distances, 0.0).astype(np.float64)
    inside = (neighbors >= 0) & (group[np.maximum(neighbors, 0)] == group[:, None])
    missing = np.bincount(group)[group] - 1 - inside.sum(axis=1)
    cost = (lengths * inside).sum(axis=1) + missing * lengths.max(axis=1, initial=0.0)
    order = np.lexsort((np.arange(len(group)), cost, group))
    return order[np.searchsorted(group[order], np.arange(_count(group)))]


# --- labels ----------------------------------------------------------------------------------------------
def one_label_per_image(labels: LabelArray, exact: LabelArray) -> LabelArray:
    """Return labels in which equal images have equal labels: the most frequent of their group, or the lowest.

    >>> one_label_per_image(np.array([0, 1, 1, 2]), np.array([0, 0, 0, 1]))
    array([1, 1, 1, 2])
    """
    copies = np.flatnonzero(np.bincount(exact)[exact] > 1)
    if len(copies) == 0:
        return labels
    found = labels.copy()
    _, group = np.unique(exact[copies], return_inverse=True)
    votes: Any = sparse.csr_matrix((np.ones(len(copies)), (group, labels[copies])))
    found[copies] = np.asarray(votes.argmax(axis=1), dtype=np.intp).ravel()[group]
    return found


def equal_images(graph: Graph) -> LabelArray:
    """Return the group (n,) of equal images that each image belongs to; a graph without images has none."""
    if graph.search is None:
        return np.arange(graph.n_images)
    if isinstance(graph.search, ImageSearch):
        return graph.search.equal_groups
    return exact_copies(as_rows(graph.search.images))[1]
