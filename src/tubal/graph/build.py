"""Build graphs: of deformable images, of collections in files, and any graph again from stored arrays.

:func:`candidate_recall` measures how good the candidates of such a graph are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, is_torch, to_numpy, to_numpy_meanwhile
from tubal.graph.neighbors import (
    WEIGHTS,
    DescribedSearch,
    ExactSearch,
    as_float_stack,
    check_metric,
    find_or_recall,
    knn_graph,
)
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
    symmetric_adjacency,
)

if TYPE_CHECKING:
    from tubal.graph.deformable import DeformableSearch, Deformation, Effort
    from tubal.graph.neighbors import TrainingSearch


import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import scipy.sparse as sp
from numpy.typing import DTypeLike
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from tubal.graph.neighbors import (
    RowsInBlocks,
    concatenate_neighbors,
    expand_to_copies,
    group_digests,
    nearest_rows,
    row_digests,
    rows_per_block,
)
from tubal.graph.structure import FloatArray, IndexArray

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
    finder: Callable[[DeformableSearch], TrainingSearch] | None = None,
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
    finder : callable or None, default=None
        Returns what lists the neighbours of the training images, given the search for new images; None for that
        search itself. :class:`tubal.graph.tasks.TaskSearch` lists them on a cluster.

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

    stack, wait = _host_stack(images)
    wanted = check_n_neighbors(n_neighbors, len(stack) - 1)
    if stack[0].size < _TOO_SMALL:
        return knn_graph(images, wanted, stage=stage)
    deformation = Deformation() if deformation is None else deformation
    effort = Effort.for_collection(len(stack), wanted) if effort is None else effort
    for name, value, kind in (("deformation", deformation, Deformation), ("effort", effort, Effort)):
        if not isinstance(value, kind):
            raise TypeError(f"{name}={value!r} is a {type(value).__name__}; a {kind.__name__} is wanted, or None")
    check_interval("memory_budget", memory_budget, 1, 1e18)
    check_count("random_state", random_state, 0, 2**63 - 1)
    search = DeformableSearch(stack, deformation, effort, float(memory_budget), int(random_state))
    if is_torch(images):
        from tubal.graph.deformable_torch import DeviceSearch

        search = DeviceSearch.of(search, images, wait)
    try:
        found = find_or_recall(search if finder is None else finder(search), wanted, stage)
    finally:
        wait()
    return Graph.from_neighbors(found, weighting=Weighting(), search=search, n_neighbors=wanted)


def _host_stack(images: Array) -> tuple[NDArray[Any], Callable[[], None]]:
    """Return images as a finite NumPy stack, and a function that waits until it is full.

    Images on a GPU are copied while the search compares them there.
    """
    if not is_torch(images) or not images.is_cuda or images.itemsize != 4 or not images.is_floating_point():
        return as_float_stack(images), lambda: None
    if len(images) == 0 or not bool(images.sum().isfinite()):
        return as_float_stack(images), lambda: None  # which says what is wrong, if it is
    as_float_stack(images[:1])
    return to_numpy_meanwhile(images)


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
    weighting = Weighting(meta["weights"], float(meta["bandwidth"]))
    _check_lists(arrays, n_images)
    return Graph(
        adjacency=_restore_adjacency(arrays, n_images, weighting),
        neighbors=arrays.get("neighbors"),
        distances=arrays.get("distances"),
        alignments=Alignments.from_stack(arrays["alignments"]) if "alignments" in arrays else None,
        n_neighbors=n_neighbors,
        search=None if meta["search"] is None else _restore_search(arrays, meta["search"], n_images),
        weighting=weighting,
    )


def _restore_adjacency(arrays: dict[str, NDArray[Any]], n_images: int, weighting: Weighting) -> SparseMatrix:
    """Return the stored edges, or those of the lists, if they are an adjacency matrix as users may give one."""
    if "adjacency_data" in arrays:
        parts = [arrays[f"adjacency_{name}"] for name in ("data", "indices", "indptr")]
        adjacency = restore_csr(parts, (n_images, n_images))
    else:
        adjacency = symmetric_adjacency(arrays["neighbors"], weighting.of(arrays["distances"]))
    check_adjacency(adjacency)
    return adjacency


def _restore_search(arrays: dict[str, NDArray[Any]], meta: dict[str, Any], n_images: int) -> Search:
    if meta["kind"] == DescribedSearch.kind:
        return DescribedSearch(n_images, check_metric(meta["metric"]))
    search = _restore_image_search(arrays, meta)
    if len(search.images) != n_images:
        raise ValueError(f"the graph joins {n_images} images but holds {len(search.images)}")
    return search


def _restore_image_search(arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> Search:
    prefix = "search_"
    own = {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}
    if meta["kind"] == ExactSearch.kind:
        return ExactSearch.from_state(own, meta)
    from tubal.graph.deformable import DeformableSearch

    if meta["kind"] == DeformableSearch.kind:
        return DeformableSearch.from_state(own, meta)
    raise ValueError(f"the graph has a search of kind {str(meta['kind'])[:40]!r}, which this version does not know")


def _check_lists(arrays: dict[str, NDArray[Any]], n_images: int) -> None:
    """Raise an error for neighbour lists, distances and alignments that no search returns."""
    neighbors, distances, alignments = (arrays.get(name) for name in ("neighbors", "distances", "alignments"))
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


# --- collections that do not fit in memory ----------------------------------------------------------------------------
class RowFile:
    """Images in a binary file, written once in order and read by blocks or one by one.

    Parameters
    ----------
    path : Path
        The file.
    shape : tuple of int
        Shape of all images together, (n_images, height, width[, channels]) or (n_images, n_features).
    dtype : dtype
        Type of the numbers.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.path, self.shape, self.dtype = path, tuple(shape), np.dtype(dtype)
        self.row_bytes = int(np.prod(shape[1:])) * self.dtype.itemsize

    @classmethod
    def write(cls, path: Path, blocks: Iterable[NDArray[Any]]) -> RowFile:
        """Write blocks of images to ``path``; shape and type are those of the blocks."""
        n_rows, shape, dtype = 0, (), np.dtype(np.float32)
        with open(path, "wb") as stream:
            for block in blocks:
                stream.write(np.ascontiguousarray(block).data)
                n_rows, shape, dtype = n_rows + len(block), block.shape[1:], block.dtype
        return cls(path, (n_rows, *shape), dtype)

    @classmethod
    def spool(cls, blocks: Iterable[NDArray[Any]], folder: str | os.PathLike[str] | None = None) -> RowFile:
        """Write blocks to a file in ``folder``; without a folder, to a temporary file deleted with the last reader."""
        home = Path(tempfile.mkdtemp(prefix="tubal-rows-", dir=folder))
        rows = cls.write(home / "images.rows", blocks)
        if folder is None:
            weakref.finalize(rows, shutil.rmtree, home, ignore_errors=True)
        return rows

    def __len__(self) -> int:
        return self.shape[0]

    def block(self, start: int, stop: int) -> NDArray[Any]:
        """Return images ``start`` to ``stop``, each flattened to a row."""
        count = (stop - start) * self.row_bytes // self.dtype.itemsize
        found = np.fromfile(self.path, self.dtype, count, offset=start * self.row_bytes)
        return found.reshape(stop - start, -1)

    def take(self, indices: IndexArray) -> NDArray[Any]:
        """Return some images, each flattened to a row, in the order of ``indices``."""
        if len(indices) > 1 and (np.diff(indices) == 1).all():
            return self.block(int(indices[0]), int(indices[-1]) + 1)
        found = np.empty((len(indices), self.row_bytes), np.uint8)
        with open(self.path, "rb", buffering=0) as stream:
            for row, index in zip(found, indices, strict=True):
                stream.seek(int(index) * self.row_bytes)
                stream.readinto(row.data)
        return found.view(self.dtype)

    def mapped(self) -> NDArray[Any]:
        """Return all images in their shape, mapped from the file."""
        found = np.memmap(self.path, self.dtype, "r", shape=self.shape)
        found.rows = self  # type: ignore[attr-defined]  # the file stays as long as the map does
        return found


def chunked_knn_graph(rows: RowFile, n_neighbors: int, metric: str = "euclidean") -> Graph:
    """Return the 0/1 graph of the images in a file, equal to that of :func:`tubal.graph.knn_graph`.

    Images are read in blocks, and the graph's search reads them from the file as well.

    >>> images = np.array([[0.0], [1.0], [3.0], [7.0]])
    >>> chunked_knn_graph(RowFile.spool([images[:3], images[3:]]), 1).neighbors.ravel()
    array([1, 0, 1, 2])
    """
    wanted = check_n_neighbors(n_neighbors, len(rows) - 1)
    firsts, group = group_digests(_digests(rows))
    n_features = rows.row_bytes // rows.dtype.itemsize
    distinct = RowsInBlocks(lambda numbers: rows.take(firsts[numbers]), (len(firsts), n_features), rows.dtype, metric)
    reach = min(wanted, len(firsts) - 1)
    parts = [nearest_rows(block, distinct, reach, metric=metric, first=start) for start, block in distinct.blocks()]
    found = expand_to_copies(concatenate_neighbors(parts), group, wanted)
    search = ExactSearch(rows.mapped(), metric)
    return Graph.from_neighbors(found, weighting=Weighting(), search=search, n_neighbors=wanted)


def _digests(rows: RowFile) -> Iterator[bytes]:
    step = rows_per_block(rows.row_bytes)
    starts = range(0, len(rows), step)
    return chain.from_iterable(row_digests(rows.block(start, min(start + step, len(rows)))) for start in starts)


# --- order along the graph -------------------------------------------------------------------------------
# An edge between chunks joins codes that are not solved for together, and slows the alternation down. Recursive
# bisection by the second eigenvector leaves a few per cent of the edges between chunks; the given order leaves most.
# Groups below this size are not bisected by eigenvectors.
_SMALLEST = 32


def order_along_graph(adjacency: SparseMatrix, sizes: Sequence[int]) -> IndexArray:
    """Return an order of the images in which few edges run between consecutive chunks of the given ``sizes``.

    >>> ring = sp.csr_matrix(np.roll(np.eye(8), 4, axis=1))
    >>> order = order_along_graph(ring, [4, 4])
    >>> crossing_share(ring, order, [4, 4]) < crossing_share(ring, np.arange(8), [4, 4])
    True
    """
    given = np.arange(adjacency.shape[0])
    banded = np.asarray(reverse_cuthill_mckee(sp.csr_matrix(adjacency), symmetric_mode=True), np.intp)
    bisected = _bisected(adjacency, given, max(sizes))
    shares = [crossing_share(adjacency, order, sizes) for order in (given, banded, bisected)]
    return (given, banded, bisected)[int(np.argmin(shares))]


def crossing_share(adjacency: SparseMatrix, order: IndexArray, sizes: Sequence[int]) -> float:
    """Return the share of edges whose images lie in different chunks."""
    chunk = np.empty(len(order), np.intp)
    chunk[order] = np.repeat(np.arange(len(sizes)), sizes)
    edges = sp.coo_matrix(adjacency)
    return float((chunk[edges.row] != chunk[edges.col]).mean()) if edges.nnz else 0.0


def _bisected(adjacency: SparseMatrix, images: IndexArray, size: int) -> IndexArray:
    """Return ``images`` in the order of recursive bisection, down to groups of ``size``."""
    if len(images) <= max(size, _SMALLEST):
        return images
    order = np.argsort(_second_eigenvector(adjacency[images][:, images]), kind="stable")
    half = size * max(1, round(len(images) / 2 / size))
    first, second = images[order[:half]], images[order[half:]]
    return np.concatenate([_bisected(adjacency, first, size), _bisected(adjacency, second, size)])


def _second_eigenvector(adjacency: SparseMatrix) -> FloatArray:
    """Return the second eigenvector of the normalised graph, to the low accuracy that a bisection needs."""
    degrees = np.sqrt(np.maximum(np.asarray(adjacency.sum(1), np.float64).ravel(), 1e-12))
    scaling = sp.diags(1.0 / degrees)
    start = np.random.default_rng(0).standard_normal(len(degrees))
    try:
        found = eigsh(scaling @ adjacency @ scaling, k=2, which="LA", v0=start, tol=1e-3, maxiter=300)[1]
    except ArpackNoConvergence as error:
        found = error.eigenvectors
    return np.asarray(found[:, 0] / degrees if found.shape[1] else start)


def candidate_recall(graph: Graph, n_sample: int = 200, random_state: int = 0) -> float:
    """Return the share of the true coarse candidates that the first stage of a deformable graph found.

    Parameters
    ----------
    graph : Graph
        A graph built with :func:`deformable_graph`.
    n_sample : int, default=200
        Number of images on which the share is measured.
    random_state : int, default=0
        Seed that draws these images.

    Returns
    -------
    float
        Between 0 and 1; 1 for collections small enough that all pairs were compared.
    """
    from tubal.graph.cells import most_similar
    from tubal.graph.deformable import DeformableSearch

    search = graph.search
    if not isinstance(search, DeformableSearch):
        raise ValueError("only a deformable graph has coarse candidates; build it with deformable_graph()")
    descriptors = search.prepared.descriptors
    reach = min(search.effort.n_candidates, len(descriptors) - 1)
    lists = search.training_candidates(reach)
    if lists is None:
        return 1.0
    sample = np.random.default_rng(random_state).choice(
        len(descriptors), min(n_sample, len(descriptors)), replace=False
    )
    # One more than needed, because the image itself is in its own exact list here.
    exact = to_numpy(most_similar(descriptors[sample], descriptors, reach + 1, 1))
    shares = [
        len((set(true.tolist()) - {int(own)}) & set(found.tolist())) / reach
        for own, true, found in zip(sample, exact, to_numpy(lists[sample]), strict=True)
    ]
    return float(np.mean(shares))
