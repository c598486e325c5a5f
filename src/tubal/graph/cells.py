"""Short descriptors of images, and the nearest ones of many: only descriptors in nearby cells are compared.

K-means on a sample divides the descriptors into cells. The images of one cell are compared with all images of the cells
around it, in one matrix product. Which cells lie around it is measured and not assumed: a few images are compared with
all others, and as many cells are searched as are needed to find nearly all of their nearest descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import pdist

from tubal.backends.arrays import Array, is_torch, namespace, own_threads, parallel_ranges, restore_like, to_numpy
from tubal.backends.cpu import deformation as _kernels
from tubal.backends.cpu.jit import compiled
from tubal.graph.affine import Float32, Int32, field_stack
from tubal.graph.structure import IndexArray

# Returns the cell of every descriptor, and how near cells are to each other, given the centres.
Assign: TypeAlias = Callable[[Float32], tuple[IndexArray, NDArray[np.uint8]]]

# Share of the exact candidates of a sample that must be found, and the size of the sample.
RECALL, _N_CHECKED = 0.995, 512
# Cells per square root of the number of images; with more of them, finding the nearest cells would take longer than
# comparing images.
_CELLS_PER_ROOT = 3.0
# Images per cell from which the centres are learned, and rounds of K-means.
_SAMPLE_PER_CELL, _ROUNDS = 32, 4
# Cells nearest to an image that may be searched because of it.
_MOST_PROBES = 48
# Images whose nearest centres are found at a time, and numbers in one product on a device, which limits the memory of
# very large cells.
_ROWS, _DEVICE_BLOCK = 2**15, 2**27


def cell_candidates(
    descriptors: Array, reach: int, *, random_state: int, threads: int, n_cells: int | None = None
) -> Array:
    """Return the indices (n, reach) of the most similar other descriptors, most similar first; a few may be missed.

    Parameters
    ----------
    descriptors : array of shape (n, dimensions)
        Rows of unit length, NumPy or torch.
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
    plan = CellPlan.of(descriptors, reach, random_state=random_state, threads=threads, n_cells=n_cells)
    found = plan.lists(descriptors, 0, len(descriptors), reach, threads)
    xp = namespace(descriptors)
    lists = xp.empty_like(found)
    lists[restore_like(plan.order, descriptors)] = found
    return lists


@dataclass(frozen=True)
class CellPlan:
    """Which images are compared with which: all images in an order, and the cells that are searched for each cell.

    ``order`` (n,) are all images, sorted by cell, and similar cells are next to each other; those of cell ``c`` begin
    at ``starts[c]``. ``searched[c]`` are the cells that are searched for the images of ``c``, which is the first.
    """

    order: IndexArray
    starts: IndexArray
    searched: list[IndexArray]

    @classmethod
    def of(
        cls,
        descriptors: Array,
        reach: int,
        *,
        random_state: int,
        n_cells: int | None = None,
        assign: Assign | None = None,
        threads: int,
    ) -> CellPlan:
        """Divide descriptors (n, dimensions) into cells, and choose those to search for ``reach`` candidates.

        ``assign`` does what :func:`assign_cells` does for all descriptors, given the centres, if it is done elsewhere.
        """
        if n_cells is None:
            n_cells = max(1, round(_CELLS_PER_ROOT * len(descriptors) ** 0.5))
        rng = np.random.default_rng(random_state)
        cells = Cells.of(descriptors, min(n_cells, len(descriptors)), rng, threads, assign)
        return cls(cells.order, cells.starts, cells.choose_searched(descriptors, reach, rng, threads))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the plan as arrays, to keep it."""
        lengths = [len(cells) for cells in self.searched]
        found = {"order": self.order, "starts": self.starts, "searched": np.concatenate(self.searched)}
        return {name: part.astype(np.int32) for name, part in found.items()} | {"lengths": np.array(lengths)}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[Any]], n_images: int) -> CellPlan | None:
        """Return the plan of what :meth:`arrays` returned, or None for anything else."""
        if set(arrays) != {"order", "starts", "searched", "lengths"}:
            return None
        order, starts, searched = (arrays[name].astype(np.intp) for name in ("order", "starts", "searched"))
        lengths, n_cells = arrays["lengths"], len(starts) - 1
        whole = np.array_equal(np.sort(order), np.arange(n_images)) and len(lengths) == n_cells
        if not whole or starts[0] != 0 or starts[-1] != n_images or (np.diff(starts) < 0).any():
            return None
        if lengths.min() < 0 or lengths.sum() != len(searched) or not 0 <= searched.min() <= searched.max() < n_cells:
            return None
        return cls(order, starts, np.split(searched, np.cumsum(lengths)[:-1]))

    def lists(self, descriptors: Array, start: int, stop: int, reach: int, threads: int) -> Array:
        """Return the candidates (stop - start, reach) of the images ``order[start:stop]``, most similar first."""
        xp, order = namespace(descriptors), restore_like(self.order, descriptors)
        kind = {"dtype": xp.int64, "device": descriptors.device} if is_torch(descriptors) else {"dtype": np.int32}
        lists = xp.empty((stop - start, reach), **kind)
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop))

        def fill(low: int, high: int) -> None:
            for cell in range(first + low, first + high):
                begin = int(self.starts[cell])
                own = range(max(start, begin), min(stop, int(self.starts[cell + 1])))
                if own:
                    others = _members(order, self.starts, self.searched[cell])
                    wanted = range(own.start - begin, own.stop - begin)
                    _fill_lists(descriptors, others, wanted, lists[own.start - start : own.stop - start])

        parallel_ranges(fill, last - first, grain=1, threads=1 if is_torch(descriptors) else threads)
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
    def of(
        cls, descriptors: Array, n_cells: int, rng: np.random.Generator, threads: int, assign: Assign | None = None
    ) -> Cells:
        """Divide descriptors into cells, numbered such that similar ones follow each other."""
        centers = learn_centers(descriptors, n_cells, rng, threads)
        if n_cells > 1:
            centers = centers[leaves_list(linkage(pdist(centers), method="ward"))]
        cell, rank = assign_cells(descriptors, centers, threads) if assign is None else assign(centers)
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
        queries = _rows(descriptors, checked)
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


def assign_cells(descriptors: Array, centers: Float32, threads: int) -> tuple[IndexArray, NDArray[np.uint8]]:
    """Return the nearest cell (n,) of each descriptor, and the ``rank`` of :class:`Cells` that they give."""
    n_cells = len(centers)
    n_probes = min(_MOST_PROBES, n_cells)
    cell = np.empty(len(descriptors), np.intp)
    rank = np.full((n_cells, n_cells), 255, np.uint8)
    for start in range(0, len(descriptors), _ROWS):
        rows = _rows(descriptors, np.arange(start, min(start + _ROWS, len(descriptors))))
        probes = to_numpy(most_similar(rows, restore_like(centers, rows), n_probes, threads))
        cell[start : start + len(rows)] = probes[:, 0]
        found = np.full_like(rank, 255)
        for place in reversed(range(n_probes)):  # smaller ones replace larger ones
            found[probes[:, 0], probes[:, place]] = place
        np.minimum(rank, found, out=rank)
    return cell, rank


def learn_centers(descriptors: Array, n_cells: int, rng: np.random.Generator, threads: int) -> Float32:
    """Return unit centres (n_cells, dimensions) of K-means on a sample of unit rows, with cosines for distances."""
    chosen = rng.permutation(len(descriptors))[: _SAMPLE_PER_CELL * n_cells]
    drawn = _rows(descriptors, chosen)
    sample = np.ascontiguousarray(to_numpy(drawn), dtype=np.float32)
    centers = sample[:n_cells].copy()
    for _ in range(_ROUNDS):
        cell = to_numpy(most_similar(drawn, restore_like(centers, drawn), 1, threads))[:, 0]
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
    if known.dtype == np.float16:
        return _most_similar_in_parts(queries, known, count, threads)
    found = np.empty((len(queries), count), dtype=np.int32)
    rows = max(16, min(256, 2**22 // len(known)))

    def fill(start: int, stop: int) -> None:
        for low in range(start, stop, rows):
            part = slice(low, min(low + rows, stop))
            found[part] = _top(queries[part] @ known.T, count, None if first is None else low + first)

    parallel_ranges(fill, len(queries), grain=rows, threads=threads)
    return found


def candidates_among(
    descriptors: Array, queries: IndexArray, known: IndexArray, reach: int, threads: int
) -> IndexArray:
    """Return all images that are among the ``reach`` most similar known ones of some query, increasing.

    ``queries`` and ``known`` are rows of ``descriptors``, NumPy or torch. All pairs of the two are compared.

    >>> candidates_among(np.eye(3, dtype=np.float32)[[0, 0, 1, 2]], np.array([0]), np.array([1, 2, 3]), 1, 1)
    array([1])
    """
    others = descriptors[restore_like(known, descriptors)]
    found = to_numpy(most_similar(_rows(descriptors, queries), others, min(reach, len(known)), threads))
    return np.unique(known[found])


def _most_similar_in_parts(queries: Float32, known: NDArray[np.float16], count: int, threads: int) -> NDArray[np.int32]:
    """Return the same for rows that are stored in two bytes, which are read in parts; ``queries`` are few."""
    numbers = np.empty((len(queries), 0), np.int32)
    scores = np.empty((len(queries), 0), np.float32)
    for start in range(0, len(known), _ROWS):
        rows = _rows(known, np.arange(start, min(start + _ROWS, len(known))))
        found = most_similar(queries, rows, min(count, len(rows)), threads)
        products = np.stack([rows[near] @ query for near, query in zip(found, queries, strict=True)])
        numbers, scores = np.hstack([numbers, found + np.int32(start)]), np.hstack([scores, products])
        best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        numbers, scores = np.take_along_axis(numbers, best, axis=1), np.take_along_axis(scores, best, axis=1)
    return numbers


def _rows(descriptors: Array, chosen: IndexArray) -> Array:
    """Return some descriptors in single precision, in which they are multiplied; tensors have it."""
    if is_torch(descriptors):
        return descriptors[restore_like(chosen, descriptors)]
    if descriptors.dtype == np.float16:
        return widened(descriptors, chosen)
    return np.asarray(descriptors[chosen], dtype=np.float32)


def _top(scores: Array, count: int, own: int | None) -> Array:
    """Return the columns (m, count) of the largest scores of each row, largest first.

    ``own`` is the column of the first row itself, and the next rows follow it; these entries are overwritten.
    """
    if own is not None:
        rows = np.arange(len(scores))
        scores[rows, rows + own] = -1e29
    if is_torch(scores):
        return scores.topk(count, 1).indices
    found = np.full((len(scores), count), -1, dtype=np.int32)
    _kernels.keep_largest(scores, 0, found, np.empty(found.shape, dtype=np.float32))
    return found


def _members(order: Array, starts: IndexArray, cells: IndexArray) -> Array:
    """Return the images of some cells, one cell after the other."""
    sizes = starts[cells + 1] - starts[cells]
    places = np.repeat(starts[cells] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    return order[restore_like(places, order)]


def _fill_lists(descriptors: Array, others: Array, wanted: range, lists: Array) -> None:
    """Write the candidates, among ``others``, of the ``wanted`` ones of them; no image is its own candidate."""
    if is_torch(descriptors):
        known, step = descriptors[others], max(16, _DEVICE_BLOCK // len(others))
        for start in range(wanted.start, wanted.stop, step):
            stop = min(start + step, wanted.stop)
            found = _top(known[start:stop] @ known.T, lists.shape[1], start)
            lists[start - wanted.start : stop - wanted.start] = others[found]
        return
    rows = _rows(descriptors, others[wanted.start : wanted.stop])
    found, values = np.full(lists.shape, -1, dtype=np.int32), np.empty(lists.shape, dtype=np.float32)
    scores = np.empty(_kernels.TILE**2, dtype=np.float32)
    # A cell may have to search a large share of a collection without structure.
    for low in range(0, len(others), _ROWS):
        known = _rows(descriptors, others[low : low + _ROWS])
        _kernels.most_similar_others(rows, wanted.start, known, low, scores, found, values)
    lists[:] = others[found]


# --- descriptors -------------------------------------------------------------------------------------------
_N_POOLS = 64
# Collections above this size use the leading principal components of their descriptors, found on so many at most.
PCA_FROM, N_COMPONENTS, MOST_FITTED = 2000, 128, 20_000
# Images whose fields are in memory at a time, per thread.
_IMAGES_AT_A_TIME = 256


@dataclass(frozen=True)
class CoarseMap:
    """The projection from images to unit descriptors, fitted on the training images.

    ``pooling`` is (cells, pixels), ``mean`` (dimensions,) and ``axes`` (dimensions, components) or None.
    """

    shape: tuple[int, int]
    pooling: Float32
    mean: Float32
    axes: Float32 | None
    use_pixels: bool = False

    @classmethod
    def fit(
        cls, images: Float32, shape: tuple[int, int], threads: int, *, use_pixels: bool = False
    ) -> tuple[CoarseMap, Float32]:
        """Return the map fitted on ``images`` (n, channels, pixels), and their pooled fields for :meth:`project`."""
        pooling = cell_weights(shape)
        pooled = _pooled(images, shape, pooling, threads, use_pixels=use_pixels)
        mean = pooled.mean(axis=0)
        axes = None
        if len(images) > PCA_FROM and pooled.shape[1] > N_COMPONENTS:
            centred = pooled - mean
            axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))[1][:, -N_COMPONENTS:].astype(np.float32)
        return cls(shape, pooling, mean, axes, use_pixels), pooled

    @property
    def n_dimensions(self) -> int:
        """Number of values of a descriptor."""
        return len(self.mean) if self.axes is None else int(self.axes.shape[1])

    def descriptors(self, images: Float32, threads: int) -> Float32:
        """Return unit descriptors ``(n, dimensions)`` of images at the working size."""
        return self.project(_pooled(images, self.shape, self.pooling, threads, use_pixels=self.use_pixels))

    def project(self, pooled: Float32) -> Float32:
        """Return unit descriptors (n, dimensions) of pooled fields, centred and projected to the principal axes."""
        centred = pooled - self.mean
        projected = centred if self.axes is None else centred @ self.axes
        lengths = np.linalg.norm(projected, axis=1, keepdims=True)
        return np.ascontiguousarray(projected / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _pooled(images: Float32, shape: tuple[int, int], pooling: Float32, threads: int, *, use_pixels: bool) -> Float32:
    """Return rectified fields pooled over the cells, ``(n, 4 channels * cells)``."""
    n_images, n_channels, n_pixels = images.shape
    pooled = np.empty((n_images, 2, 2 * n_channels, len(pooling)), dtype=np.float32)

    def fill(start: int, stop: int) -> None:
        for low in range(start, stop, _IMAGES_AT_A_TIME):
            high = min(low + _IMAGES_AT_A_TIME, stop)
            fields = field_stack(images[low:high], shape, use_pixels=use_pixels, threads=1)[0]
            positive = np.maximum(fields, 0)
            for half, rectified in enumerate((positive, np.subtract(positive, fields, out=fields))):
                found = rectified.reshape(-1, n_pixels) @ pooling.T
                pooled[low:high, half] = found.reshape(high - low, 2 * n_channels, -1)

    parallel_ranges(fill, n_images, grain=_IMAGES_AT_A_TIME, threads=threads)
    return pooled.reshape(n_images, -1)


def cell_weights(shape: tuple[int, int]) -> Float32:
    """Return Gaussian weights ``(cells, pixels)`` of about 64 overlapping cells spread over the image."""
    height, width = shape
    n_down = min(height, max(8, _N_POOLS // width))
    n_across = min(width, max(8, _N_POOLS // n_down))
    down, across = _cell_weights_1d(height, n_down), _cell_weights_1d(width, n_across)
    return np.ascontiguousarray(np.kron(down, across), dtype=np.float32)


def _cell_weights_1d(length: int, n_cells: int) -> Float32:
    cell = length / n_cells
    centres = (np.arange(n_cells) + 0.5) * cell - 0.5
    weights = np.exp(-0.5 * ((np.arange(length) - centres[:, None]) / (0.7 * cell)) ** 2)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)


# --- half precision ---------------------------------------------------------------------------------------------------
# Exponents of the two types differ by so much.
_TO_HALF, _FROM_HALF = np.float32(2.0**-112), np.float32(2.0**112)


@compiled
def _widen(halves: NDArray[np.uint16], chosen: IndexArray, rows: Float32, bits: NDArray[np.uint32]) -> None:
    """Write chosen rows of halves, given as uint16, into ``rows``; ``bits`` is the same memory as uint32."""
    for row in range(len(chosen)):
        source, line, values = halves[chosen[row]], bits[row], rows[row]
        for t in range(len(line)):
            half = np.uint32(source[t])
            line[t] = ((half & np.uint32(0x7FFF)) << np.uint32(13)) | ((half & np.uint32(0x8000)) << np.uint32(16))
        for t in range(len(values)):
            values[t] *= _FROM_HALF


@compiled
def _narrow(rows: Float32, scaled: Float32, bits: NDArray[np.uint32], halves: NDArray[np.uint16]) -> None:
    """Round rows to halves, given as uint16; ``scaled`` is a buffer of one row, and ``bits`` the same as uint32."""
    for row in range(len(rows)):
        values, line = rows[row], halves[row]
        for t in range(len(values)):
            scaled[t] = values[t] * _TO_HALF
        for t in range(len(bits)):
            sign, size = bits[t] & np.uint32(0x80000000), bits[t] & np.uint32(0x7FFFFFFF)
            rounded = (size + np.uint32(0xFFF) + ((size >> np.uint32(13)) & np.uint32(1))) >> np.uint32(13)
            line[t] = rounded | (sign >> np.uint32(16))


def widened(
    halves: NDArray[np.float16], chosen: NDArray[np.integer], out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Return chosen rows in single precision; NumPy converts one number at a time and takes ten times as long.

    >>> widened(np.array([[0.5, 1.0], [-0.1, 0.0]], dtype=np.float16), np.array([1]))
    array([[-0.09997559,  0.        ]], dtype=float32)
    """
    if out is None:
        out = np.empty((len(chosen), *halves.shape[1:]), dtype=np.float32)
    flat, rows = np.ascontiguousarray(halves).reshape(len(halves), -1), out.reshape(len(out), -1)
    _widen(flat.view(np.uint16), np.asarray(chosen, dtype=np.intp), rows, rows.view(np.uint32))
    return out


def narrowed(rows: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return numbers below 65 504 in half precision, rounded to the nearest; those below 6e-5 are rounded twice.

    >>> narrowed(np.array([[0.1, -2.0]], dtype=np.float32))
    array([[ 0.1, -2. ]], dtype=float16)
    """
    flat = np.ascontiguousarray(rows, dtype=np.float32).reshape(len(rows), -1)
    halves, scaled = np.empty(flat.shape, dtype=np.uint16), np.empty(flat.shape[1], dtype=np.float32)
    _narrow(flat, scaled, scaled.view(np.uint32), halves)
    return halves.view(np.float16).reshape(rows.shape)


def single_rows(values: NDArray[Any], chosen: IndexArray | Int32, rows: Float32) -> None:
    """Write some rows of an array in half or single precision, in single precision; on all threads."""

    def fill(start: int, stop: int) -> None:
        if values.dtype == np.float16:
            widened(values, chosen[start:stop], rows[start:stop])
        else:
            np.take(values, chosen[start:stop], axis=0, out=rows[start:stop])

    with own_threads() as threads:
        parallel_ranges(fill, len(chosen), grain=256, threads=threads)


def distinct_numbers(lists: Int32, limit: int) -> tuple[Int32, Int32]:
    """Return the numbers below ``limit`` that occur in lists, increasing, and for each entry its place among them.

    >>> distinct_numbers(np.array([[7, 2], [2, 4]], dtype=np.int32), 10)
    (array([2, 4, 7], dtype=int32), array([[2, 0],
           [0, 1]], dtype=int32))
    """
    # Much faster than sorting, because lists are long compared with the number of images.
    occurs = np.zeros(limit, dtype=bool)
    occurs[lists] = True
    numbers = np.flatnonzero(occurs).astype(np.int32)
    places = np.empty(limit, dtype=np.int32)
    places[numbers] = np.arange(len(numbers), dtype=np.int32)
    return numbers, places[lists]
