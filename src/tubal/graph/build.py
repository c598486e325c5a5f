"""Build a graph of deformable images, on the processor or a device, and rebuild any graph from stored arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from scipy import sparse

from tubal.backends.arrays import Array, is_torch
from tubal.graph.neighbors import WEIGHTS, ExactSearch, as_float_stack, find_or_recall, knn_graph
from tubal.graph.structure import Alignments, Graph, Search, Stage, Weighting, check_n_neighbors

if TYPE_CHECKING:
    from tubal.graph.deformable import Deformation, Effort

# Images with fewer pixels have no shape to deform.
_TOO_SMALL = 16


def deformable_graph(
    images: Array,
    n_neighbors: int = 5,
    *,
    deformation: Deformation | None = None,
    effort: Effort | None = None,
    memory_budget: float = 1e9,
    random_state: int = 0,
    stage: Stage | None = None,
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
    stage : Stage or None, default=None
        Follows the search and keeps what it finds; None to do neither.

    Returns
    -------
    Graph
        The symmetric graph, with neighbour lists, alignments and a search for new images.

    Examples
    --------
    >>> import numpy as np
    >>> wave = np.sin(np.arange(20)[:, None, None] / 3 + np.arange(8)[:, None] + np.arange(8))
    >>> graph = deformable_graph(wave, 2)
    >>> graph.neighbors.shape, graph.max_in_degree <= 10
    ((20, 2), True)
    """
    from tubal.graph.deformable import DeformableSearch, Deformation, Effort

    stack = as_float_stack(images)
    wanted = check_n_neighbors(n_neighbors, len(stack) - 1)
    if stack[0].size < _TOO_SMALL:
        return knn_graph(images, wanted, stage=stage)
    deformation, effort = deformation or Deformation(), effort or Effort.for_collection(len(stack), wanted)
    search = DeformableSearch(stack, deformation, effort, float(memory_budget), int(random_state))
    if is_torch(images):
        from tubal.graph.deformable_torch import DeviceSearch

        search = DeviceSearch.of(search, images)
    found = find_or_recall(search, wanted, stage)
    return Graph.from_neighbors(found, weighting=Weighting(), search=search, n_neighbors=wanted)


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
    if meta["weights"] not in WEIGHTS:
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
    """Raise an error for indices out of range and arrays of different lengths."""
    graph.adjacency.check_format(full_check=True)
    neighbors, n_images = graph.neighbors, graph.n_images
    if neighbors is not None and (len(neighbors) != n_images or (neighbors.size and neighbors.max() >= n_images)):
        raise ValueError("the graph's neighbour lists contain images that it does not have")
    if graph.search is not None and len(graph.search.images) != n_images:
        raise ValueError(f"the graph joins {n_images} images but holds {len(graph.search.images)}")
    for values in (graph.distances, None if graph.alignments is None else graph.alignments.rotation):
        if values is not None and (neighbors is None or values.shape != neighbors.shape):
            raise ValueError("the graph's distances or alignments do not match its neighbour lists")
