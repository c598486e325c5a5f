"""Nearest descriptors of many images: only descriptors in nearby cells are compared.

K-means on a sample divides the descriptors into cells. The images of one cell are compared with all images of the cells
around it, in one matrix product. Which cells lie around it is measured and not assumed: a few images are compared with
all others, and as many cells are searched as are needed to find nearly all of their nearest descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tubal.backends.arrays import Array, is_torch, namespace, parallel_ranges, restore_like, to_numpy
from tubal.backends.cpu import deformation as _kernels
from tubal.graph.structure import IndexArray

Float32: TypeAlias = NDArray[np.float32]

# Share of the exact candidates of a sample that must be found, and the size of the sample.
RECALL, _N_CHECKED = 0.995, 512
# Cells per square root of the number of images; with more of them, finding the nearest cells would take longer than
# comparing images.
_CELLS_PER_ROOT = 3.0
# Images per cell from which the centres are learned, and rounds of K-means.
_SAMPLE_PER_CELL, _ROUNDS = 32, 4
# Cells nearest to an image that may be searched because of it.
_MOST_PROBES = 48
# Images whose nearest centres are found at a time, and numbers in one product of queries and candidates, which limits
# the memory of very large cells.
_ROWS, _BLOCK, _DEVICE_BLOCK = 2**15, 2**21, 2**27


def cell_candidates(
    descriptors: Array, reach: int, *, random_state: int, threads: int, n_cells: int | None = None
) -> Array:
    """Return the indices (n, reach) of the most similar other descriptors, most similar first; a few may be missed.

    Parameters
    ----------
    descriptors : array of shape (n, dimensions)
        Rows of unit length in single precision, NumPy or torch.
    reach : int
        Candidates per image, less than ``n``.
    random_state : int
        Seed of the two samples. The result depends on nothing else, except for rounding in matrix products.
    threads : int
        Threads for NumPy arrays; tensors are compared on their device.
    n_cells : int or None, default=None
        Number of cells; None for three times the square root of n.

    Returns
    -------
    array of shape (n, reach)
        Indices, int32 for NumPy and int64 for torch.
    """
    if n_cells is None:
        n_cells = max(1, round(_CELLS_PER_ROOT * len(descriptors) ** 0.5))
    rng = np.random.default_rng(random_state)
    cells = Cells.of(descriptors, min(n_cells, len(descriptors)), rng, threads)
    searched = cells.choose_searched(descriptors, reach, rng, threads)
    xp = namespace(descriptors)
    kind = {"dtype": xp.int64, "device": descriptors.device} if is_torch(descriptors) else {"dtype": np.int32}
    lists = xp.empty((len(descriptors), reach), **kind)
    order = restore_like(cells.order, descriptors)

    def fill(first: int, last: int) -> None:
        for cell in range(first, last):
            if cells.sizes[cell]:
                others = _members(order, cells.starts, searched[cell])
                _fill_lists(descriptors, others, int(cells.sizes[cell]), lists)

    parallel_ranges(fill, len(searched), grain=1, threads=1 if is_torch(descriptors) else threads)
    return lists


@dataclass(frozen=True)
class Cells:
    """Cells of descriptors, and how near they are to each other.

    ``order`` (n,) are all images, sorted by cell; those of cell ``c`` begin at ``starts[c]``. ``rank[c, d]`` is the
    number of cells that are nearer than ``d`` to an image of ``c``, the least over these images; 255 if it is large.
    ``near[c]`` are all cells by the similarity of their centres to that of ``c``, which comes first.
    """

    cell: IndexArray
    order: IndexArray
    starts: IndexArray
    rank: NDArray[np.uint8]
    near: IndexArray

    @classmethod
    def of(cls, descriptors: Array, n_cells: int, rng: np.random.Generator, threads: int) -> Cells:
        """Divide descriptors into cells."""
        centers = learn_centers(descriptors, n_cells, rng, threads)
        n_probes = min(_MOST_PROBES, n_cells)
        cell = np.empty(len(descriptors), np.intp)
        rank = np.full((n_cells, n_cells), 255, np.uint8)
        places = np.arange(n_probes, dtype=np.uint8)
        for start in range(0, len(descriptors), _ROWS):
            rows = descriptors[start : start + _ROWS]
            probes = to_numpy(most_similar(rows, restore_like(centers, rows), n_probes, threads))
            cell[start : start + len(rows)] = probes[:, 0]
            np.minimum.at(rank, (probes[:, :1], probes), places)
        order = np.argsort(cell, kind="stable")
        starts = np.searchsorted(cell[order], np.arange(n_cells + 1))
        similarity = centers @ centers.T
        np.fill_diagonal(similarity, np.inf)
        return cls(cell, order, starts, rank, np.argsort(-similarity, axis=1, kind="stable"))

    @cached_property
    def sizes(self) -> IndexArray:
        """Number of images of each cell."""
        return np.diff(self.starts)

    def choose_searched(
        self, descriptors: Array, reach: int, rng: np.random.Generator, threads: int
    ) -> list[IndexArray]:
        """Return the cells that are searched for the images of each cell, that cell itself first.

        Every image of a cell adds its ``p`` nearest cells, with the least ``p`` that finds enough of the candidates of
        a sample. A cell with too few images around it searches the next nearest, too.
        """
        checked = rng.permutation(len(descriptors))[:_N_CHECKED]
        queries = descriptors[restore_like(checked, descriptors)]
        # One more than needed, because each image is the nearest to itself.
        exact = to_numpy(most_similar(queries, descriptors, reach + 1, threads))
        ranks = self.rank[self.cell[checked][:, None], self.cell[exact]][exact != checked[:, None]]
        # A rank that occurs: the least number of probes that finds this share. Unranked cells make all cells searched.
        n_probes = int(np.quantile(ranks, RECALL, method="higher")) + 1
        return [self._around(cell, n_probes, reach) for cell in range(len(self.rank))]

    def _around(self, cell: int, n_probes: int, reach: int) -> IndexArray:
        """Return the cells searched for one cell: those within ``n_probes``, and enough to have ``reach`` others."""
        near = self.near[cell]
        wanted = self.rank[cell, near] < n_probes
        wanted[0] = True
        if self.sizes[near[wanted]].sum() <= reach:
            before = np.cumsum(self.sizes[near]) - self.sizes[near]
            wanted |= before <= reach
        return np.asarray(near[wanted])


def learn_centers(descriptors: Array, n_cells: int, rng: np.random.Generator, threads: int) -> Float32:
    """Return unit centres (n_cells, dimensions) of K-means on a sample of unit rows, with cosines for distances."""
    chosen = rng.permutation(len(descriptors))[: _SAMPLE_PER_CELL * n_cells]
    sample = np.ascontiguousarray(to_numpy(descriptors[restore_like(chosen, descriptors)]), dtype=np.float32)
    centers = sample[:n_cells].copy()
    for _ in range(_ROUNDS):
        cell = most_similar(sample, centers, 1, threads)[:, 0]
        members = sparse.csr_matrix((np.ones(len(cell), np.float32), (cell, np.arange(len(cell)))))
        members.resize(n_cells, len(cell))
        sums = members @ sample
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        # A cell that lost all its images stays where it was.
        centers = np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1), centers)
    return centers


def most_similar(queries: Array, known: Array, count: int, threads: int, *, first: int | None = None) -> Any:
    """Return the numbers (m, count) of the known rows with the largest products with each query, largest first.

    All pairs are compared. ``first`` is the number of the first query if the queries are consecutive known rows
    themselves; none is then in its own list.

    >>> most_similar(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), 1, 1)
    array([[0],
           [1]], dtype=int32)
    """
    if is_torch(queries):
        step = max(1, _DEVICE_BLOCK // len(known))
        parts = [
            _top(queries[low : low + step] @ known.T, count, None if first is None else low + first)
            for low in range(0, len(queries), step)
        ]
        return namespace(queries).concatenate(parts)
    found = np.empty((len(queries), count), dtype=np.int32)
    rows = max(16, min(256, 2**22 // len(known)))

    def fill(start: int, stop: int) -> None:
        for low in range(start, stop, rows):
            part = slice(low, min(low + rows, stop))
            found[part] = _top(queries[part] @ known.T, count, None if first is None else low + first)

    parallel_ranges(fill, len(queries), grain=rows, threads=threads)
    return found


def _top(scores: Array, count: int, own: int | None) -> Array:
    """Return the columns (m, count) of the largest scores of each row, largest first.

    ``own`` is the column of the first row itself, and the next rows follow it; these entries are overwritten.
    """
    if own is not None:
        rows = np.arange(len(scores))
        scores[rows, rows + own] = -1e29
    if is_torch(scores):
        return scores.topk(count, 1).indices
    found = np.empty((len(scores), count), dtype=np.int32)
    _kernels.largest(scores, found, np.empty(found.shape, dtype=np.float32))
    return found


def _members(order: Array, starts: IndexArray, cells: IndexArray) -> Array:
    """Return the images of some cells, one cell after the other."""
    return namespace(order).concatenate([order[starts[cell] : starts[cell + 1]] for cell in cells])


def _fill_lists(descriptors: Array, others: Array, n_queries: int, lists: Array) -> None:
    """Write the candidates, among ``others``, of the first ``n_queries`` of them; no image is its own candidate."""
    known, reach = descriptors[others], lists.shape[1]
    step = max(16, (_DEVICE_BLOCK if is_torch(descriptors) else _BLOCK) // len(known))
    for start in range(0, n_queries, step):
        stop = min(start + step, n_queries)
        lists[others[start:stop]] = others[_top(known[start:stop] @ known.T, reach, start)]
