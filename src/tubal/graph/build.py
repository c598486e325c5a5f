"""Build a graph: of pixels, of deformable images, by name, or from stored arrays."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tubal.backends.arrays import Array, is_torch
from tubal.graph.neighbors import METRICS, ExactSearch, as_float_stack
from tubal.graph.structure import Alignments, Graph, Search, SparseMatrix, Weighting, check_n_neighbors

if TYPE_CHECKING:
    from tubal.graph.deformable import Deformation, Effort

_NAMES = (*METRICS, "deformable")
_WEIGHTS = ("binary", "heat")
# Images with fewer pixels have no shape to deform.
_TOO_SMALL = 16


def knn_graph(
    images: Array,
    n_neighbors: int = 3,
    *,
    metric: str = "euclidean",
    weights: str = "binary",
    bandwidth: float | None = None,
) -> Graph:
    """Join every image to its nearest others by pixel distance.

    An edge exists where either image is among the nearest of the other. An image is never its own neighbour, but an
    exact copy of it is one, at distance zero. Among copies the next in order comes first, so that many copies make a
    ring and not a hub. Equal distances go to the lower index.

    Parameters
    ----------
    images : array-like of shape (n_images, height, width[, channels]) or (n_images, n_features)
        NumPy array or torch tensor.
    n_neighbors : int, default=3
        Neighbours of each image.
    metric : {"euclidean", "cosine"}, default="euclidean"
        Distance of pixels; "cosine" is one minus the cosine.
    weights : {"binary", "heat"}, default="binary"
        Edge weight 1, or ``exp(-d² / (2 bandwidth²))`` of the distance ``d``.
    bandwidth : float or None, default=None
        Width of the heat kernel; None for the mean distance to a neighbour.

    Returns
    -------
    Graph
        The symmetric graph, with neighbour lists and a search for new images.

    Examples
    --------
    >>> graph = knn_graph(np.array([[0.0], [1.0], [3.0], [7.0]]), n_neighbors=1)
    >>> graph.neighbors.ravel()
    array([1, 0, 1, 2])
    """
    if metric not in METRICS:
        raise ValueError(f"metric is {metric!r}; use 'euclidean' or 'cosine'")
    if weights not in _WEIGHTS:
        raise ValueError(f"weights is {weights!r}; use 'binary' or 'heat'")
    if bandwidth is not None and not (np.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"bandwidth is {bandwidth!r}; a positive number is needed, or None to choose it")
    stack = as_float_stack(images)
    wanted = check_n_neighbors(n_neighbors, len(stack) - 1)
    search = ExactSearch(stack, metric, tensor=images if is_torch(images) else None)
    found = search.training_neighbors(wanted)
    if bandwidth is None:
        bandwidth = float(found.distances.mean(dtype=np.float64)) or 1.0
    weighting = Weighting(weights, bandwidth)
    return Graph.from_neighbors(found, weighting=weighting, search=search, n_neighbors=wanted)


def deformable_graph(
    images: Array,
    n_neighbors: int = 5,
    *,
    deformation: Deformation | None = None,
    effort: Effort | None = None,
    memory_budget: float = 1e9,
    random_state: int = 0,
) -> Graph:
    """Join every image to its nearest others under small deformations.

    Distances are root mean squared differences of gradients and their surroundings, between 0 and 2. No image is the
    neighbour of more than ``5 * n_neighbors`` others: the farthest of them take their next candidate instead. Constant
    images have no gradient; they are next to each other, and at distance 2 from everything else. Images of fewer than
    16 pixels have no shape to deform and are compared by their pixels, as in :func:`knn_graph`.

    Parameters
    ----------
    images : array-like of shape (n_images, height, width[, channels]) or (n_images, n_features)
        NumPy array or torch tensor; rows are one-row images.
    n_neighbors : int, default=5
        Neighbours of each image.
    deformation : Deformation or None, default=None
        What counts as a small deformation; None for ``Deformation()``.
    effort : Effort or None, default=None
        How many candidates each stage examines; None to choose by the size of the collection.
    memory_budget : float, default=1e9
        Bytes of working memory, in addition to the images themselves.
    random_state : int, default=0
        Seed that draws the images from which the basis of the motions is learned.

    Returns
    -------
    Graph
        The symmetric graph, with neighbour lists, alignments and a search for new images.

    Examples
    --------
    >>> wave = np.sin(np.arange(20)[:, None, None] / 3 + np.arange(8)[:, None] + np.arange(8))
    >>> graph = deformable_graph(wave, 2)
    >>> graph.neighbors.shape, graph.max_in_degree <= 10
    ((20, 2), True)
    """
    from tubal.graph.deformable import DeformableSearch, Deformation, Effort

    stack = as_float_stack(images)
    wanted = check_n_neighbors(n_neighbors, len(stack) - 1)
    if stack[0].size < _TOO_SMALL:
        return knn_graph(images, wanted)
    deformation, effort = deformation or Deformation(), effort or Effort.for_collection(len(stack), wanted)
    search = DeformableSearch(stack, deformation, effort, float(memory_budget), int(random_state))
    if is_torch(images):
        from tubal.graph.deformable_torch import DeviceSearch

        search = DeviceSearch.of(search, images)
    found = search.training_neighbors(wanted)
    return Graph.from_neighbors(found, weighting=Weighting(), search=search, n_neighbors=wanted)


def resolve_graph(
    graph: str | Graph | SparseMatrix | NDArray[Any] | list[Any], images: Array | Sized, *, n_neighbors: int = 3
) -> Graph:
    """Return the graph of images that is named, given, or described by a matrix.

    Parameters
    ----------
    graph : {"euclidean", "cosine", "deformable"}, Graph, sparse matrix or array-like of shape (n_images, n_images)
        A name builds the graph; a graph is returned as it is; a matrix must be symmetric and non-negative.
    images : array-like of shape (n_images, height, width[, channels]) or (n_images, n_features)
        The images; only their number matters unless ``graph`` is a name.
    n_neighbors : int, default=3
        Neighbours of each image, if the graph is built here.

    Returns
    -------
    Graph
        The graph.

    Examples
    --------
    >>> resolve_graph("euclidean", np.arange(8.0).reshape(4, 2), n_neighbors=1).neighbors.ravel()
    array([1, 0, 1, 2])
    """
    n_images = len(images)
    if isinstance(graph, Graph):
        if graph.n_images != n_images:
            raise ValueError(
                f"graph joins {graph.n_images} images but {n_images} images were given; build it from the same images"
            )
        return graph
    if isinstance(graph, str):
        return _named_graph(graph, images, n_neighbors)
    if sparse.issparse(graph) or isinstance(graph, (np.ndarray, list)):
        return Graph.from_matrix(graph, n_images)
    raise TypeError(
        f"graph is a {type(graph).__name__}; pass one of {', '.join(map(repr, _NAMES))}, a Graph, "
        "or a symmetric (n, n) matrix"
    )


def _named_graph(name: str, images: Array, n_neighbors: int) -> Graph:
    if name in METRICS:
        return knn_graph(images, n_neighbors, metric=name)
    if name == "deformable":
        return deformable_graph(images, n_neighbors)
    raise ValueError(f"graph is {name!r}; known names are {', '.join(map(repr, _NAMES))}")


def restore_graph(arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> Graph:
    """Rebuild a graph from what :meth:`Graph.state` returned.

    Every index and setting is checked, because compiled code uses them unchecked.

    Parameters
    ----------
    arrays : dict of str to ndarray
        Adjacency, neighbour lists and training images.
    meta : dict of str to JSON value
        Everything else.

    Returns
    -------
    Graph
        The same graph.
    """
    n_images = int(meta["n_images"])
    parts = (arrays["adjacency_data"], arrays["adjacency_indices"], arrays["adjacency_indptr"])
    if meta["weights"] not in _WEIGHTS:
        raise ValueError(f"weights is {meta['weights']!r}; use 'binary' or 'heat'")
    graph = Graph(
        adjacency=sparse.csr_matrix(parts, shape=(n_images, n_images)),
        neighbors=arrays.get("neighbors"),
        distances=arrays.get("distances"),
        alignments=Alignments.from_stack(arrays["alignments"]) if "alignments" in arrays else None,
        n_neighbors=meta["n_neighbors"],
        search=None if meta["search"] is None else _restore_search(arrays, meta["search"]),
        weighting=Weighting(meta["weights"], float(meta["bandwidth"])),
    )
    _check_restored(graph)
    return graph


def _restore_search(arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> Search:
    prefix = "search_"
    own = {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}
    if meta["kind"] == ExactSearch.kind:
        return ExactSearch.from_state(own, meta)
    from tubal.graph.deformable import DeformableSearch

    if meta["kind"] == DeformableSearch.kind:
        return DeformableSearch.from_state(own, meta)
    raise ValueError(f"the graph has a search of kind {str(meta['kind'])[:40]!r}, which this version does not know")


def _check_restored(graph: Graph) -> None:
    """Refuse indices out of range and arrays of different lengths."""
    graph.adjacency.check_format(full_check=True)
    neighbors, n_images = graph.neighbors, graph.n_images
    if neighbors is not None and (len(neighbors) != n_images or (neighbors.size and neighbors.max() >= n_images)):
        raise ValueError("the graph's neighbour lists contain images that it does not have")
    if graph.search is not None and len(graph.search.images) != n_images:
        raise ValueError(f"the graph joins {n_images} images but holds {len(graph.search.images)}")
    for values in (graph.distances, None if graph.alignments is None else graph.alignments.rotation):
        if values is not None and (neighbors is None or values.shape != neighbors.shape):
            raise ValueError("the graph's distances or alignments do not match its neighbour lists")
