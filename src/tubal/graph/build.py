"""Build a graph of deformable images, on the processor or a device, and rebuild any graph from stored arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, is_torch
from tubal.graph.neighbors import WEIGHTS, ExactSearch, as_float_stack, find_or_recall, knn_graph
from tubal.graph.structure import (
    Alignments,
    Graph,
    Search,
    SparseMatrix,
    Stage,
    Weighting,
    check_adjacency,
    check_count,
    check_interval,
    check_n_neighbors,
    restore_csr,
)

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
    check_count("n_images", meta["n_images"], 1, 2**48)
    n_images, n_neighbors = meta["n_images"], meta["n_neighbors"]
    if n_neighbors is not None:
        check_n_neighbors(n_neighbors, n_images)
    if meta["weights"] not in WEIGHTS:
        raise ValueError(f"weights is {str(meta['weights'])[:40]!r}; use 'binary' or 'heat'")
    check_interval("bandwidth", meta["bandwidth"], 1e-300, 1e300)
    graph = Graph(
        adjacency=_restore_adjacency(arrays, n_images),
        neighbors=arrays.get("neighbors"),
        distances=arrays.get("distances"),
        alignments=Alignments.from_stack(arrays["alignments"]) if "alignments" in arrays else None,
        n_neighbors=n_neighbors,
        search=None if meta["search"] is None else _restore_search(arrays, meta["search"]),
        weighting=Weighting(meta["weights"], float(meta["bandwidth"])),
    )
    _check_lists(graph, arrays.get("alignments"))
    if graph.search is not None and len(graph.search.images) != n_images:
        raise ValueError(f"the graph joins {n_images} images but holds {len(graph.search.images)}")
    return graph


def _restore_adjacency(arrays: dict[str, NDArray[Any]], n_images: int) -> SparseMatrix:
    """Return the stored edges, if they are an adjacency matrix as users may give one."""
    parts = [arrays[f"adjacency_{name}"] for name in ("data", "indices", "indptr")]
    adjacency = restore_csr(parts, (n_images, n_images))
    check_adjacency(adjacency)
    return adjacency


def _restore_search(arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> Search:
    prefix = "search_"
    own = {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}
    if meta["kind"] == ExactSearch.kind:
        return ExactSearch.from_state(own, meta)
    from tubal.graph.deformable import DeformableSearch

    if meta["kind"] == DeformableSearch.kind:
        return DeformableSearch.from_state(own, meta)
    raise ValueError(f"the graph has a search of kind {str(meta['kind'])[:40]!r}, which this version does not know")


def _check_lists(graph: Graph, alignments: NDArray[Any] | None) -> None:
    """Raise an error for neighbour lists, distances and alignments that no search returns."""
    neighbors, distances, n_images = graph.neighbors, graph.distances, graph.n_images
    if neighbors is None or distances is None:
        if neighbors is not None or distances is not None or alignments is not None:
            raise ValueError("the graph has only a part of its neighbour lists, distances and alignments")
        return
    if neighbors.dtype.kind != "i" or neighbors.ndim != 2 or not 1 <= neighbors.shape[1] <= n_images:
        raise ValueError(f"the graph's neighbour lists have shape {neighbors.shape} and type {neighbors.dtype}")
    if len(neighbors) != n_images or neighbors.min() < -1 or neighbors.max() >= n_images:
        raise ValueError("the graph's neighbour lists contain images that it does not have")
    if distances.shape != neighbors.shape or distances.dtype not in (np.float32, np.float64):
        raise ValueError("the graph's distances do not match its neighbour lists")
    if not (distances >= 0).all() or not np.isfinite(distances[neighbors >= 0]).all():
        raise ValueError("the graph has a distance that is negative, infinite or not a number")
    if alignments is None:
        return
    if alignments.shape != (4, *neighbors.shape) or alignments.dtype not in (np.float32, np.float64):
        raise ValueError("the graph's alignments do not match its neighbour lists")
    if not np.isfinite(alignments).all() or alignments[1].min() <= 0:
        raise ValueError("the graph has an alignment that is infinite, not a number or of scale 0")
