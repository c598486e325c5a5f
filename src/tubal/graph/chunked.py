"""Graphs of collections that do not fit in memory: rows in a file, their graph, and an order of chunks along it."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from tubal.graph.neighbors import (
    ExactSearch,
    RowsInBlocks,
    concatenate_neighbors,
    expand_to_copies,
    group_digests,
    nearest_rows,
    row_digests,
    rows_per_block,
)
from tubal.graph.structure import FloatArray, Graph, IndexArray, SparseMatrix, Weighting, check_n_neighbors


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
