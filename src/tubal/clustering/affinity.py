"""From images to the weighted graph that is cut: neighbour lists, and weights of their edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tubal.backends.arrays import Array
from tubal.graph import Graph, deformable_graph
from tubal.graph.deformable import DeformableSearch, Effort
from tubal.graph.neighbors import HUB_FACTOR, limit_in_degree
from tubal.graph.structure import FloatArray, IndexArray, SparseMatrix, symmetric_adjacency
from tubal.learning.fitting import resolve_graph

# --- neighbour lists -------------------------------------------------------------------------------------
# Lists are this many times longer than needed; the second half can move up when distances are rescaled.
LIST_FACTOR = 2
# Collections above this size get more candidates than a graph alone would.
_SMALL = 2000
# Exponent of the local scale that is divided out of distances; an exponent of 1 would bring outliers close to all.
_SCALE_EXPONENT = 0.25
# With a smaller share of mutual choices, hubs dominate the lists.
_FEW_MUTUAL = 0.5


def clustering_effort(n_images: int, n_neighbors: int) -> Effort:
    """Return the effort of a deformable graph for clustering: above 2000 images, more candidates than usual."""
    usual = Effort.for_collection(n_images, n_neighbors)
    if not _SMALL < n_images <= usual.exact_limit:
        return usual
    return replace(usual, n_candidates=max(100, usual.n_candidates), n_kept=max(50, usual.n_kept), rank=128)


def neighbor_lists(
    graph: str | Graph | SparseMatrix | NDArray[Any], images: Array, n_neighbors: int, seed: int
) -> Graph:
    """Return the graph that is named or given; one that is built here has ``n_neighbors`` neighbours."""
    if not (isinstance(graph, str) and graph == "deformable"):
        return resolve_graph(graph, images, n_neighbors=n_neighbors)
    effort = clustering_effort(len(images), n_neighbors)
    found = deformable_graph(images, n_neighbors, effort=effort, random_state=seed)
    if len(images) > effort.exact_limit and isinstance(found.search, DeformableSearch):
        # Coding needs the memory next; a query for new images would compute this again.
        found.search.release_memory()
    return found


def choose_neighbors(lists: Graph, n_neighbors: int) -> Graph:
    """Return the graph of the best ``n_neighbors`` of longer neighbour lists.

    These are the nearest neighbours. If fewer than half of all choices are mutual, hubs dominate. Distances then depend
    more on the density around the images than on the pair, so the nearest after rescaling are taken. No label and no
    partition is used. A graph without longer lists is returned unchanged.
    """
    if lists.n_neighbors is None or lists.n_neighbors <= n_neighbors:
        return lists
    graph = keep_nearest(lists, n_neighbors)
    return keep_nearest_rescaled(lists, n_neighbors) if mutual_share(graph) < _FEW_MUTUAL else graph


def keep_nearest(lists: Graph, n_neighbors: int) -> Graph:
    """Return the graph of the ``n_neighbors`` nearest of longer neighbour lists."""
    _, distances = _lists_of(lists)
    return _keep_first(lists, distances, n_neighbors)


def keep_nearest_rescaled(lists: Graph, n_neighbors: int) -> Graph:
    """Return the graph of the ``n_neighbors`` nearest after dividing distances by the local scales.

    With ``s_i`` the mean distance of image i to its ``n_neighbors`` nearest, lists are sorted by
    ``d_ij / (s_i s_j) ** (1/8)``. Images in sparse regions then get more edges, which helps where classes differ in
    variety and hurts where a large distance means a different class.
    """
    neighbors, distances = _lists_of(lists)
    near = np.asarray(distances, dtype=np.float64)[:, :n_neighbors]
    scale = np.where(np.isfinite(near), near, 0.0).mean(axis=1)
    positive = scale[scale > 0.0]
    scale = np.maximum(scale, positive.min() if positive.size else 1.0)
    other_scale = scale[np.maximum(neighbors, 0)]
    return _keep_first(lists, distances / (scale[:, None] * other_scale) ** (_SCALE_EXPONENT / 2), n_neighbors)


def mutual_share(graph: Graph) -> float:
    """Return the share of choices ``i -> j`` for which ``j -> i`` is a choice too.

    >>> graph = Graph(sparse.csr_matrix((3, 3)), neighbors=np.array([[1], [0], [1]]), distances=np.ones((3, 1)))
    >>> round(mutual_share(graph), 3)
    0.667
    """
    edges = mutual_adjacency(_lists_of(graph)[0]).data
    # A mutual edge has weight 1 and is stored twice, an edge chosen by one side has weight 1/2.
    n_mutual, n_choices = np.count_nonzero(edges == 1.0), edges.sum()
    return float(n_mutual / n_choices) if n_choices else 1.0


def _lists_of(graph: Graph) -> tuple[IndexArray, FloatArray]:
    if graph.neighbors is None or graph.distances is None:
        raise ValueError("this graph was given as a matrix and has no neighbour lists; build it with knn_graph()")
    return graph.neighbors, graph.distances


def _keep_first(lists: Graph, sort_by: FloatArray, n_neighbors: int) -> Graph:
    """Sort each list by ``sort_by`` and keep its first ``n_neighbors``, limiting how often an image is listed."""
    found, lengths = _lists_of(lists)
    order = np.argsort(sort_by, axis=1, kind="stable")
    ordered = np.take_along_axis(found, order, axis=1)
    ranked = np.where(ordered >= 0, np.take_along_axis(sort_by, order, axis=1), np.inf)
    slots = limit_in_degree(np.maximum(ordered, 0), ranked, n_neighbors, HUB_FACTOR * n_neighbors)
    kept = np.take_along_axis(order, np.maximum(slots, 0), axis=1)
    present = slots >= 0
    neighbors = np.where(present, np.take_along_axis(found, kept, axis=1), -1)
    distances = np.where(present, np.take_along_axis(lengths, kept, axis=1), np.inf)
    rows = np.arange(len(kept))[:, None]
    return replace(
        lists,
        adjacency=symmetric_adjacency(neighbors, lists.weighting.of(distances)),
        neighbors=neighbors,
        distances=distances,
        alignments=None if lists.alignments is None else lists.alignments[rows, kept],
        n_neighbors=n_neighbors,
    )


# --- edge weights ----------------------------------------------------------------------------------------
def build_affinity(graph: Graph, features: NDArray[Any], code_power: float) -> SparseMatrix:
    """Return the matrix (n, n) that is cut: mutual choices, weighted by codes, plus paths of length two."""
    weights = choice_weights(graph)
    if code_power > 0:
        weights = weight_edges_by_codes(weights, features, code_power)
    return with_second_order(weights)


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
    sources = np.repeat(np.arange(len(chosen)), chosen.shape[1])
    present = chosen.ravel() >= 0
    edges = np.full(int(present.sum()), 0.5)
    directed = sparse.csr_matrix((edges, (sources[present], chosen.ravel()[present])), shape=(len(chosen), len(chosen)))
    return sparse.csr_matrix(directed + directed.T)


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
        Symmetric edge weights in CSR form.

    Examples
    --------
    >>> chain = sparse.csr_matrix(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    >>> with_second_order(chain).toarray()
    array([[0., 1., 1.],
           [1., 0., 1.],
           [1., 1., 0.]])
    """
    largest = adjacency.data.max(initial=0.0)
    scaled = sparse.csr_matrix(adjacency / largest) if largest > 0.0 else sparse.csr_matrix(adjacency)
    paths = sparse.coo_matrix(scaled + scaled @ scaled)
    kept = paths.row != paths.col
    return sparse.csr_matrix((paths.data[kept], (paths.row[kept], paths.col[kept])), shape=adjacency.shape)


def weight_edges_by_codes(
    adjacency: SparseMatrix, features: NDArray[Any], power: float = 4.0, floor: float = 1e-3
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
        Symmetric edge weights in CSR form.

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
