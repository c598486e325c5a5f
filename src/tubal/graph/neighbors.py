"""Exact nearest neighbours of images by their pixels, in bounded memory, and their graph; exact copies and hubs.

The search compares queries with known rows a block at a time. A product of two blocks proposes a few candidates more
than wanted; differences in float64 then rank them, so rounding in the product cannot change the answer. Known rows
may lie in memory, on a device or in a file: :class:`Rows` hides which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tubal.backends.arrays import (
    Array,
    as_double,
    as_like,
    is_floating,
    is_torch,
    namespace,
    own_threads,
    parallel_ranges,
    to_numpy,
)
from tubal.graph.structure import (
    Graph,
    IndexArray,
    Neighbors,
    SearchState,
    Stage,
    Weighting,
    check_n_neighbors,
)

METRICS = ("euclidean", "cosine")
WEIGHTS = ("binary", "heat")

# --- images as rows --------------------------------------------------------------------------------------
_EXACT_IN_FLOAT32 = (np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.float16, np.float32)


def as_float_stack(images: Array) -> NDArray[Any]:
    """Return ``images`` as a finite NumPy stack, float32 where that is exact and float64 otherwise.

    Accepted shapes: ``(n, features)`` rows, ``(n, height, width)`` and ``(n, height, width, channels)``. A float32
    array is not copied.

    >>> as_float_stack(np.zeros((2, 3, 3), dtype=np.uint8)).dtype
    dtype('float32')
    """
    if isinstance(images, np.ma.MaskedArray):
        raise ValueError("images are a masked array, and masked pixels have no meaning here; pass images.filled(value)")
    if hasattr(images, "toarray"):
        raise TypeError("images are a sparse matrix, and pixels are compared as they are; pass images.toarray()")
    stack = to_numpy(images)
    if stack.dtype.kind not in "buif":
        raise TypeError(f"images have dtype {stack.dtype}; real numbers are wanted, convert them to float32")
    if stack.ndim not in (2, 3, 4):
        raise ValueError(
            f"images have shape {stack.shape}; expected (n, features), (n, height, width) or "
            "(n, height, width, channels), add the missing axes with reshape"
        )
    if 0 in stack.shape:
        raise ValueError(f"images have shape {stack.shape}, which holds no pixel; pass at least one image")
    exact = any(stack.dtype == kind for kind in _EXACT_IN_FLOAT32)
    stack = np.ascontiguousarray(stack, dtype=np.float32 if exact else np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # finite values may have a sum that overflows
        finite = np.isfinite(stack.sum()) or np.isfinite(stack).all()
    if not finite:
        raise ValueError("images contain NaN or infinity; replace or drop those pixels first")
    return stack


def as_rows(stack: NDArray[Any]) -> NDArray[Any]:
    """Flatten every image of a stack to one row."""
    return stack.reshape(stack.shape[0], -1)


def unit_directions(rows: Array, metric: str) -> Array:
    """Return rows as they are for "euclidean", scaled to unit length for "cosine"."""
    if metric == "euclidean":
        return rows
    xp = namespace(rows)
    found = xp.empty_like(rows)
    step = len(rows) if is_torch(rows) else rows_per_block(rows.shape[1] * rows.itemsize)
    for start in range(0, len(rows), max(1, step)):
        part = rows[start : start + step]
        lengths = xp.sqrt((part * part).sum(axis=1))[:, None]
        # A blank image has no direction; it stays zero and is equally far from everything else.
        found[start : start + step] = part / xp.where(lengths > 0, lengths, xp.ones_like(lengths))
    return found


# --- exact copies ----------------------------------------------------------------------------------------
# Rows that are read at a time.
_ROWS_AT_A_TIME = 1024


def row_digests(rows: SlicedRows, chosen: NDArray[np.bool_] | None = None) -> list[bytes]:
    """Return one 16-byte digest for each row, or for each chosen one.

    Equal values (also ``0.0`` and ``-0.0``) give equal digests.
    """
    found = []
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        part = slice(start, start + _ROWS_AT_A_TIME)
        if chosen is None or chosen[part].any():
            block = _with_positive_zeros(rows[part])
            wanted = block if chosen is None else block[chosen[part]]
            found += [blake2b(row, digest_size=16).digest() for row in wanted]
    return found


def _with_positive_zeros(rows: NDArray[Any]) -> NDArray[Any]:
    """Return contiguous rows with ``0.0`` in place of ``-0.0``, so that equal values have equal bits."""
    return np.ascontiguousarray(rows + rows.dtype.type(0))


def group_digests(digests: Iterable[bytes]) -> tuple[IndexArray, IndexArray]:
    """Return the index of the first of each distinct digest, and the group of every digest.

    >>> group_digests([b"one", b"two", b"one"])
    (array([0, 1]), array([0, 1, 0]))
    """
    groups: dict[bytes, int] = {}
    firsts: list[int] = []
    members: list[int] = []
    for index, digest in enumerate(digests):
        group = groups.setdefault(digest, len(firsts))
        if group == len(firsts):
            firsts.append(index)
        members.append(group)
    return np.asarray(firsts, dtype=np.intp), np.asarray(members, dtype=np.intp)


class SlicedRows(Protocol):
    """Rows (n, n_features) that are read in slices; an array, or what computes them when they are needed."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and of values in a row."""

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any:
        """Return some rows."""


def exact_copies(rows: SlicedRows) -> tuple[IndexArray, IndexArray]:
    """Return the first row of each distinct value, and the group of every row.

    >>> exact_copies(np.array([[1.0], [2.0], [1.0]]))
    (array([0, 1]), array([0, 1, 0]))
    """
    sums = _weighted_sums(rows)
    _, place, counts = np.unique(sums, return_inverse=True, return_counts=True)
    # Rows with different sums differ, so the others alone need a digest.
    unclear = counts[place] > 1
    first = np.arange(len(rows))
    if unclear.any():
        numbers = np.flatnonzero(unclear)
        firsts, group = group_digests(row_digests(rows, unclear))
        first[numbers] = numbers[firsts[group]]
    is_first = first == np.arange(len(rows))
    return np.flatnonzero(is_first), (np.cumsum(is_first) - 1)[first]


def _weighted_sums(rows: SlicedRows) -> NDArray[np.uint64]:
    """Return weighted sums (n,) of the bits of all rows; those of equal rows are equal."""
    word = np.dtype(np.uint8 if rows.itemsize % 4 else np.uint32)
    n_words = rows.shape[1] * rows.itemsize // word.itemsize
    weights = np.random.default_rng(0).integers(2**63, size=n_words, dtype=np.uint64)
    sums = np.empty(len(rows), np.uint64)

    def add(start: int, stop: int) -> None:
        for low in range(start, stop, _ROWS_AT_A_TIME):
            part = slice(low, min(low + _ROWS_AT_A_TIME, stop))
            sums[part] = _with_positive_zeros(rows[part]).view(word) @ weights

    with own_threads() as threads:
        parallel_ranges(add, len(rows), grain=_ROWS_AT_A_TIME, threads=threads)
    return sums


# Rows are equal up to rounding if they differ by less than this many units in the last place, relative to their length:
# the same picture, scaled to unit length in single and in double precision. Pictures of 1000×1000 pixels that differ
# by one of 255 levels in one pixel differ by more.
_ROUNDING_UNITS = 16


@dataclass(frozen=True)
class Fingerprints:
    """Finds the rows of a matrix that equal others up to rounding, by their products with one random direction.

    Equal rows have nearly equal products, so only few rows have to be compared. ``firsts`` (distinct,) is one row of
    each value, ``members`` (n,) are all rows, ordered by value; those equal to ``firsts[i]`` begin at ``starts[i]``.
    ``products`` is sorted, and ``order`` says to which distinct row each belongs.
    """

    direction: NDArray[np.float64]
    firsts: IndexArray
    members: IndexArray
    starts: IndexArray
    products: NDArray[np.float64]
    order: IndexArray

    @classmethod
    def of(cls, rows: NDArray[Any]) -> Fingerprints:
        """Compute the fingerprints of ``rows`` (n, n_features)."""
        drawn = np.random.default_rng(0).standard_normal((rows.shape[1],))
        direction = drawn / np.linalg.norm(drawn)
        firsts, group = exact_copies(rows)
        members = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[members], np.arange(len(firsts) + 1))
        products = _products(rows, direction)[firsts]
        order = np.argsort(products, kind="stable")
        return cls(direction, firsts, members, starts, products[order], order)

    def equal_rows(self, queries: NDArray[Any], rows: NDArray[Any]) -> list[IndexArray]:
        """Return the rows that equal each query up to rounding in the less precise of the two types, closest first."""
        precision = max(np.finfo(np.result_type(part.dtype, np.float32)).eps for part in (queries, rows))
        products = _products(queries, self.direction)
        reach = _ROUNDING_UNITS * float(precision) * _lengths(queries)
        # The products themselves are rounded, too.
        low = np.searchsorted(self.products, products - 2 * reach)
        high = np.searchsorted(self.products, products + 2 * reach, side="right")
        found = [np.empty(0, np.intp)] * len(queries)
        for query in np.flatnonzero(high > low):
            near = self.order[low[query] : high[query]]
            gaps = _lengths(rows[self.firsts[near]].astype(np.float64) - queries[query])
            equal = np.flatnonzero(gaps <= reach[query])
            closest = near[equal[np.lexsort((self.firsts[near[equal]], gaps[equal]))]]
            parts = [self.members[self.starts[value] : self.starts[value + 1]] for value in closest]
            found[query] = np.concatenate(parts) if parts else found[query]
        return found


def _products(rows: NDArray[Any], direction: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``rows @ direction`` in double precision, a block of rows at a time."""
    parts = (rows[start : start + _ROWS_AT_A_TIME] for start in range(0, len(rows), _ROWS_AT_A_TIME))
    return np.concatenate([part.astype(np.float64) @ direction for part in parts])


def _lengths(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return the Euclidean lengths (n,) of rows, in double precision."""
    largest = np.abs(rows).max(axis=1).astype(np.float64)
    # Divided by the largest value first, so that squares of very large or small values do not over- or underflow.
    relative = rows / np.where(largest > 0, largest, 1.0)[:, None]
    return np.asarray(largest * np.sqrt((relative * relative).sum(axis=1)))


def spread_over_copies(
    lists: IndexArray | NDArray[np.int32], group: IndexArray, length: int, *, training: bool
) -> tuple[IndexArray, IndexArray]:
    """Turn neighbour lists of distinct images into lists that contain all their copies.

    ``lists`` (distinct, k) holds distinct images; ``group`` (n,) says which distinct image each image equals. With
    ``training`` there is one result for every image of ``group``, and its own copies come first; without, there is
    one for every row of ``lists``. Returns images and the slot of ``lists`` each came from, both ``(m, length)``:
    slot -1 is a copy of the image itself, image -1 the end of a list.

    >>> spread_over_copies(np.array([[1], [0]]), np.array([0, 1, 0]), 2, training=True)[0]
    array([[2, 1],
           [0, 2],
           [0, 1]])
    """
    order = np.argsort(group, kind="stable")
    n_distinct = int(group.max()) + 1
    starts = np.searchsorted(group[order], np.arange(n_distinct + 1))
    single = np.diff(starts) == 1
    own_groups = group if training else np.arange(len(lists))
    images = np.full((len(own_groups), length), -1, dtype=np.intp)
    slots = np.full((len(own_groups), length), -1, dtype=np.intp)
    width = min(length, lists.shape[1])
    firsts, plain = order[starts[:-1]], np.empty(len(own_groups), dtype=bool)

    def fill_plain(start: int, stop: int) -> None:
        own = slice(start, stop)
        others = lists[own_groups[own], :width]
        plain[own] = single[others].all(axis=1) & (single[own_groups[own]] if training else True)
        images[own, :width], slots[own, :width] = firsts[others], np.arange(width)

    with own_threads() as threads:
        parallel_ranges(fill_plain, len(own_groups), grain=_ROWS_AT_A_TIME, threads=threads)
    for row in np.flatnonzero(~plain):
        images[row], slots[row] = -1, -1
        copies = order[starts[own_groups[row]] : starts[own_groups[row] + 1]] if training else order[:0]
        position = int(np.searchsorted(copies, row))
        members = [*copies[position + 1 :], *copies[:position]]
        sources = [-1] * len(members)
        for slot, other in enumerate(lists[own_groups[row]]):
            if len(members) >= length:
                break
            # Copies take their neighbour's copies in turn, so that no single copy becomes a hub.
            others = np.roll(order[starts[other] : starts[other + 1]], -position)
            members.extend(others)
            sources.extend([slot] * len(others))
        n_found = min(length, len(members))
        images[row, :n_found], slots[row, :n_found] = members[:length], sources[:length]
    return images, slots


def expand_to_copies(found: Neighbors, group: IndexArray, n_neighbors: int) -> Neighbors:
    """Return the neighbours of every image, given those of the distinct images; copies lie at distance 0."""
    if len(found.indices) == len(group):
        return found
    indices, slots = spread_over_copies(found.indices, group, n_neighbors, training=True)
    distances = np.zeros(slots.shape, found.distances.dtype)
    if found.distances.shape[1]:
        distances = np.take_along_axis(found.distances[group], np.maximum(slots, 0), axis=1)
        distances[slots < 0] = 0
    return Neighbors(indices, distances)


# --- the blocked search ----------------------------------------------------------------------------------
# Bytes of results per block: what stays in a core's cache, or keeps a device busy.
_BLOCK_BYTES, _DEVICE_BLOCK_BYTES = 2**22, 2**25
# Bytes of known rows that queries are compared with at a time.
_COMPARED_BYTES = 2**25
# Candidates beyond the wanted number, so that rounding in the product cannot change the answer.
SPARE = 8
# Queries between two reports of the progress.
_QUERIES = 4096
# Above this many rows, a search that need not compare all pairs does not.
_MOST_COMPARED = 20_000
# From this many known rows on, a compiled selection is faster than NumPy's.
_COMPILED_FROM = 4096


class Rows(Protocol):
    """Known rows, numbered from 0, that can be read by blocks or one by one."""

    @property
    def dtype(self) -> Any:
        """Floating type of the rows."""

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """Yield consecutive blocks of rows, each with the number of its first row."""

    def take(self, numbers: Array) -> Array:
        """Return the rows ``(*numbers.shape, n_features)``."""


@dataclass(frozen=True)
class RowsInMemory:
    """Rows ``(n, n_features)`` of one array or tensor; for ``metric="cosine"`` they are scaled to unit length."""

    rows: Array
    metric: str = "euclidean"

    @property
    def dtype(self) -> Any:
        """Floating type of the rows."""
        return self.rows.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """Yield consecutive blocks of rows, each with the number of its first row; a tensor is one block."""
        step = len(self.rows) if is_torch(self.rows) else _COMPARED_BYTES // max(1, self.rows[:1].nbytes)
        for start in range(0, len(self.rows), max(1, step)):
            yield start, unit_directions(self.rows[start : start + step], self.metric)

    def take(self, numbers: Array) -> Array:
        """Return the rows ``(*numbers.shape, n_features)``."""
        found = self.rows[numbers]
        if self.metric == "euclidean":
            return found
        return unit_directions(found.reshape(-1, found.shape[-1]), self.metric).reshape(found.shape)


@dataclass(frozen=True)
class RowsInBlocks:
    """Rows of a file, a few megabytes in memory at a time.

    ``read`` returns rows ``(len(numbers), n_features)`` by number; ``shape`` is (n_rows, n_features). For
    ``metric="cosine"`` rows are scaled to unit length.
    """

    read: Callable[[IndexArray], NDArray[Any]]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    metric: str = "euclidean"

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """Yield consecutive blocks of rows, each with the number of its first row."""
        step = rows_per_block(self.shape[1] * self.dtype.itemsize)
        for start in range(0, len(self), step):
            yield start, self.take(np.arange(start, min(start + step, len(self))))

    def take(self, numbers: Array) -> Array:
        """Return the rows ``(*numbers.shape, n_features)``."""
        rows = unit_directions(self.read(numbers.reshape(-1)), self.metric)
        return rows.reshape(*numbers.shape, -1)


def rows_per_block(row_bytes: int) -> int:
    """Return how many rows of a file to hold in memory at a time."""
    return max(1, _BLOCK_BYTES // max(1, row_bytes))


@dataclass(frozen=True)
class Candidates:
    """Some known rows for each query: their numbers and scores, both ``(m, k)``; a smaller score is nearer."""

    numbers: Array
    scores: Array


def merge_candidates(parts: Sequence[Candidates], length: int) -> Candidates:
    """Return the ``length`` best candidates of several blocks, best first; equal scores in order of their number."""
    numbers = np.concatenate([part.numbers for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.lexsort((numbers, scores), axis=1)[:, :length]
    return Candidates(np.take_along_axis(numbers, order, axis=1), np.take_along_axis(scores, order, axis=1))


def nearest_rows(
    queries: Array, known: Rows, n_neighbors: int, *, metric: str = "euclidean", first: int | None = None
) -> Neighbors:
    """Return the exact nearest known rows of each query ``(m, n_features)``; equal distances in order of their number.

    ``first`` is the number of the first query if the queries are consecutive known rows themselves; no row is then
    its own neighbour. For ``metric="cosine"`` queries and known rows must have unit length.
    """
    dtype = np.float32 if known.dtype.itemsize == 4 else np.float64
    if n_neighbors == 0:
        return Neighbors(np.empty((len(queries), 0), np.intp), np.empty((len(queries), 0), dtype))
    reach = min(n_neighbors + SPARE, len(known) - (first is not None))
    best, centre = None, None
    for start, block in known.blocks():
        # Centring shrinks the norms and so the cancellation in |x|² - 2 x·y + |y|².
        centre = block.mean(axis=0) if centre is None else centre
        own = None if first is None else first - start
        found = block_candidates(queries, block, centre, reach, own=own)
        found = Candidates(found.numbers + start, found.scores) if start else found
        best = found if best is None else merge_candidates([best, found], reach)
    if best is None:
        raise ValueError("there are no rows to compare with; pass at least one image")
    ranked = rank_candidates(queries, best.numbers, known.take)
    kept = Candidates(ranked.numbers[:, :n_neighbors], ranked.scores[:, :n_neighbors])
    return as_neighbors(kept, metric, dtype)


def block_candidates(queries: Array, block: Array, centre: Array, reach: int, *, own: int | None = None) -> Candidates:
    """Return the at most ``reach`` nearest rows of one block for each query, by products, in increasing order.

    Scores are ``(|x - y|² - |x - centre|²) / 2``. If the queries are known rows themselves, ``own`` is the position of
    the first query in the block, and the others follow it. A query's own row gets an infinite score. Positions outside
    the block are ignored.
    """
    centred = block - centre
    half_norms = 0.5 * (centred * centred).sum(axis=1)
    count = min(reach, len(block))

    def fill(start: int, stop: int) -> tuple[Array, Array]:
        scores = half_norms - (queries[start:stop] - centre) @ centred.T
        if own is not None:
            positions = np.arange(start, stop) + own
            inside = np.flatnonzero((positions >= 0) & (positions < len(block)))
            scores[inside, positions[inside]] = float("inf")
        return _smallest(scores, count)

    parts = _over_blocks(fill, queries, len(block) * block.itemsize)
    xp = namespace(block)
    return Candidates(xp.concatenate([part[0] for part in parts]), xp.concatenate([part[1] for part in parts]))


def _smallest(scores: Array, count: int) -> tuple[Array, Array]:
    """Return column numbers of the ``count`` smallest values of each row, in increasing order, and the values."""
    if is_torch(scores):
        chosen = scores.topk(count, dim=1, largest=False, sorted=False).indices.sort(dim=1).values
        return chosen, scores.gather(1, chosen)
    if count == scores.shape[1]:
        return np.broadcast_to(np.arange(count), scores.shape), scores
    if scores.dtype == np.float32 and scores.shape[1] >= _COMPILED_FROM:
        from tubal.backends.cpu.deformation import keep_largest

        chosen = np.full((len(scores), count), -1, dtype=np.int32)
        keep_largest(np.negative(scores, out=scores), 0, chosen, np.empty(chosen.shape, dtype=np.float32))
        chosen = np.sort(chosen, axis=1)
        return chosen, -np.take_along_axis(scores, chosen, axis=1)
    chosen = np.sort(np.argpartition(scores, count - 1, axis=1)[:, :count], axis=1)
    return chosen, np.take_along_axis(scores, chosen, axis=1)


def rank_candidates(queries: Array, numbers: Array, take: Callable[[Array], Array]) -> Candidates:
    """Sort candidates by squared distance; equal distances in order of their number.

    ``numbers`` (m, k) are candidates of ``queries`` (m, n_features), and ``take(numbers)`` returns their rows.
    Distances are computed in float64. The result holds NumPy arrays, with the squared distances as scores.
    """
    numbers = np.sort(numbers, axis=1) if isinstance(numbers, np.ndarray) else numbers

    def fill(start: int, stop: int) -> NDArray[np.float64]:
        gap = as_double(queries[start:stop])[:, None, :] - take(numbers[start:stop])
        return to_numpy((gap * gap).sum(axis=2))

    squared = np.concatenate(_over_blocks(fill, queries, 8 * numbers.shape[1] * queries.shape[1]))
    order = np.argsort(squared, axis=1, kind="stable")
    ranked = np.take_along_axis(to_numpy(numbers), order, axis=1)
    return Candidates(ranked, np.take_along_axis(squared, order, axis=1))


def as_neighbors(ranked: Candidates, metric: str, dtype: DTypeLike) -> Neighbors:
    """Return ranked candidates, whose scores are squared distances, as neighbour lists."""
    # For unit rows |x - y|² = 2 - 2 cos.
    distances = np.sqrt(ranked.scores) if metric == "euclidean" else 0.5 * ranked.scores
    return Neighbors(ranked.numbers.astype(np.intp, copy=False), distances.astype(dtype))


def concatenate_neighbors(parts: Sequence[Neighbors]) -> Neighbors:
    """Return the neighbour lists of consecutive blocks of images as one."""
    indices, distances = ([getattr(part, name) for part in parts] for name in ("indices", "distances"))
    return Neighbors(np.concatenate(indices), np.concatenate(distances))


def _over_blocks(work: Callable[[int, int], Any], rows: Array, bytes_per_row: int) -> list[Any]:
    """Run ``work(start, stop)`` over blocks of rows of bounded size, on all cores for NumPy."""
    grain = max(1, (_DEVICE_BLOCK_BYTES if is_torch(rows) else _BLOCK_BYTES) // bytes_per_row)
    bounds = [(start, min(start + grain, len(rows))) for start in range(0, len(rows), grain)]
    if is_torch(rows) or len(bounds) == 1:
        return [work(*pair) for pair in bounds]

    def several(first: int, last: int) -> list[Any]:
        return [work(*pair) for pair in bounds[first:last]]

    with own_threads() as threads:
        return list(chain.from_iterable(parallel_ranges(several, len(bounds), grain=1, threads=threads)))


# --- searches over stored images -------------------------------------------------------------------------
@dataclass(frozen=True)
class ImageSearch:
    """Stored training images, and which of them a new image equals: what every search has in common."""

    images: NDArray[Any]

    @cached_property
    def equal_groups(self) -> IndexArray:
        """The group (n,) of equal training images that each belongs to."""
        return exact_copies(as_rows(self.images))[1]

    @cached_property
    def _fingerprints(self) -> Fingerprints:
        return Fingerprints.of(as_rows(self.images))

    def copies(self, new_images: Array) -> list[IndexArray]:
        """Return, for each new image, the training images that equal it up to rounding, the closest first."""
        return self._fingerprints.equal_rows(as_rows(self._check_size(new_images)), as_rows(self.images))

    def grown(self, new_images: Array) -> Self:
        """Return the same search over more training images, the new ones last."""
        return replace(self, images=np.concatenate([self.images, self._added(new_images)]))

    def reduced(self, kept: IndexArray) -> Self:
        """Return the same search over some of its training images."""
        return replace(self, images=self.images[kept])

    def _added(self, new_images: Array) -> NDArray[Any]:
        """Return new images in the shape and type of the training images."""
        stack = self._check_size(new_images)
        return stack.reshape(len(stack), *self.images.shape[1:]).astype(self.images.dtype, copy=False)

    def _check_size(self, new_images: Array) -> NDArray[Any]:
        """Return new images as a stack with as many pixels as the training images."""
        stack = as_float_stack(new_images)
        if stack[0].size != self.images[0].size:
            raise ValueError(
                f"new images have shape {stack.shape[1:]}, the graph's images {self.images.shape[1:]}; "
                "pass images of the training size"
            )
        return stack


@dataclass(frozen=True)
class ExactSearch(ImageSearch):
    """Exact nearest training images by Euclidean or cosine distance of their pixels.

    ``images`` may be a memory map, which queries read a block at a time. ``tensor`` holds the same images on a device.
    Without ``compare_all``, neighbours of many training images are sought in nearby cells only, by the cosine.
    """

    metric: str = "euclidean"
    tensor: Array = field(default=None, repr=False)
    compare_all: bool = True
    kind: ClassVar[str] = "exact"

    def nearest(self, new_images: Array, n_neighbors: int) -> Neighbors:
        """Return the nearest training images of each new image, nearest first."""
        rows = self._rows()
        queries = unit_directions(as_like(as_rows(self._check_size(new_images)), rows), self.metric)
        if isinstance(rows, np.memmap):
            known: Rows = RowsInBlocks(rows.__getitem__, rows.shape, rows.dtype, self.metric)
        else:
            known = RowsInMemory(unit_directions(rows, self.metric))
        return nearest_rows(queries, known, n_neighbors, metric=self.metric)

    def training_neighbors(self, n_neighbors: int, stage: Stage | None = None) -> Neighbors:
        """Return the nearest other training images of every training image."""
        stage, n_images = stage or Stage(), len(self.images)
        stage.show(0, n_images)
        firsts, group = exact_copies(as_rows(self.images))
        rows = self._rows()
        distinct = rows if len(firsts) == len(group) else rows[firsts]
        reach = min(n_neighbors, len(firsts) - 1)
        find = self._finder(distinct, reach)
        parts = []
        step = max(1, min(_QUERIES, _COMPARED_BYTES // max(1, distinct.shape[1] * distinct.itemsize)))
        for start in range(0, len(distinct), step):
            queries = unit_directions(distinct[start : start + step], self.metric)
            parts.append(find(start, queries))
            stage.show((start + len(queries)) * n_images // len(distinct), n_images)
        return expand_to_copies(concatenate_neighbors(parts), group, n_neighbors)

    def _finder(self, rows: Array, reach: int) -> Callable[[int, Array], Neighbors]:
        """Return the function that finds the neighbours of consecutive rows, given the number of the first.

        It is called with queries of unit length where the metric is the cosine.
        """
        if self.compare_all or self.metric != "cosine" or len(rows) <= _MOST_COMPARED:
            # Many long rows are scaled block by block: all at once would take as much memory again.
            large = not is_torch(rows) and rows.nbytes > 2 * _COMPARED_BYTES
            known = RowsInMemory(rows, self.metric) if large else RowsInMemory(unit_directions(rows, self.metric))
            return lambda start, queries: nearest_rows(queries, known, reach, metric=self.metric, first=start)
        from tubal.graph.cells import cell_candidates

        rows = unit_directions(rows, self.metric)
        single = rows.float() if is_torch(rows) else rows.astype(np.float32, copy=False)
        with own_threads() as threads:
            lists = cell_candidates(single, min(reach + SPARE, len(rows) - 1), random_state=0, threads=threads)
        dtype = np.float32 if rows.itemsize == 4 else np.float64

        def find(start: int, queries: Array) -> Neighbors:
            ranked = rank_candidates(queries, lists[start : start + len(queries)], rows.__getitem__)
            kept = Candidates(ranked.numbers[:, :reach], ranked.scores[:, :reach])
            return as_neighbors(kept, self.metric, dtype)

        return find

    def grown(self, new_images: Array) -> ExactSearch:
        """Return the same search over more training images, the new ones last."""
        return replace(super().grown(new_images), tensor=None)

    def reduced(self, kept: IndexArray) -> ExactSearch:
        """Return the same search over some of its training images."""
        return replace(super().reduced(kept), tensor=None)

    def _rows(self) -> Array:
        """Return the training images as rows, on their device."""
        if self.tensor is None:
            return as_rows(self.images)
        rows = self.tensor.detach().reshape(len(self.tensor), -1)
        return rows if is_floating(rows) and rows.itemsize >= 4 else rows.float()

    def state(self) -> SearchState:
        """Return the training images and the metric."""
        return {"images": self.images}, {"metric": self.metric}

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> ExactSearch:
        """Rebuild a search from what :meth:`state` returned."""
        return cls(as_float_stack(arrays["images"]), check_metric(meta["metric"]))


@dataclass(frozen=True)
class DescribedSearch:
    """An exact search over rows that are computed on first use: files do not store what follows from their pictures.

    ``describe`` returns the rows (n_images, n_features). Until somebody who knows the pictures has set it, the search
    has no answer.
    """

    n_images: int
    metric: str
    describe: Callable[[], NDArray[Any]] | None = field(default=None, repr=False)
    kind: ClassVar[str] = "described"

    @cached_property
    def exact(self) -> ExactSearch:
        """The search over the computed rows."""
        if self.describe is None:
            raise ValueError("the features of this graph are not stored, and nothing says how to compute them")
        return ExactSearch(as_float_stack(self.describe()), self.metric)

    @property
    def images(self) -> NDArray[Any]:
        """Features of the training images."""
        return self.exact.images

    def nearest(self, new_images: Array, n_neighbors: int) -> Neighbors:
        """Return the nearest training images of each new image, nearest first."""
        return self.exact.nearest(new_images, n_neighbors)

    def copies(self, new_images: Array) -> list[IndexArray]:
        """Return, for each new image, the training images that equal it up to rounding, the closest first."""
        return self.exact.copies(new_images)

    def grown(self, new_images: Array) -> ExactSearch:
        """Return the same search over more training images, the new ones last."""
        return self.exact.grown(new_images)

    def reduced(self, kept: IndexArray) -> ExactSearch:
        """Return the same search over some of its training images."""
        return self.exact.reduced(kept)

    def state(self) -> SearchState:
        """Return the metric alone."""
        return {}, {"metric": self.metric}


def check_metric(metric: str) -> str:
    """Return the name of a metric, or raise an error that lists those that are known."""
    if metric not in METRICS:
        raise ValueError(f"metric is {str(metric)[:40]!r}; use 'euclidean' or 'cosine'")
    return metric


# --- the graph -------------------------------------------------------------------------------------------
class TrainingSearch(Protocol):
    """A search that can list the neighbours of its own training images."""

    @property
    def images(self) -> NDArray[Any]:
        """Training images."""

    def training_neighbors(self, n_neighbors: int, stage: Stage | None = None) -> Neighbors:
        """Return the nearest other training images of every training image."""


def find_or_recall(search: TrainingSearch, n_neighbors: int, stage: Stage | None) -> Neighbors:
    """Return the neighbours of all training images: those that an earlier run of the stage kept, or new ones."""
    stage, n_images = stage or Stage(), len(search.images)
    arrays = stage.kept()
    if "neighbors" not in arrays:
        found = search.training_neighbors(n_neighbors, stage)
        stage.keep(found.arrays, finished=True)
        return found
    stage.show(n_images, n_images)
    found = Neighbors.from_arrays(arrays)
    inside = found.indices.size == 0 or -1 <= found.indices.min() <= found.indices.max() < n_images
    if not (found.indices.shape == found.distances.shape == (n_images, n_neighbors) and inside):
        raise ValueError("the neighbour lists that were kept are of other images; start again without resume")
    return found


def knn_graph(
    images: Array,
    n_neighbors: int = 3,
    *,
    metric: str = "euclidean",
    weights: str = "binary",
    bandwidth: float | None = None,
    compare_all: bool = True,
    stage: Stage | None = None,
) -> Graph:
    """Join every image to its nearest others by pixel distance.

    An edge exists where either image is among the nearest of the other. An image is never its own neighbour, but an
    exact copy of it is one, at distance zero. Among copies the next in order comes first, so that many copies make a
    ring and not a hub. Of equal distances, the lower index comes first.

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
    compare_all : bool, default=True
        Compare all pairs. If False, above 20 000 images and with the metric "cosine", only images in nearby cells are
        compared, see :mod:`tubal.graph.cells`; about one neighbour in two hundred is then missed.
    stage : Stage or None, default=None
        Follows the search and keeps its result; None to do neither.

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
    check_metric(metric)
    if weights not in WEIGHTS:
        raise ValueError(f"weights is {weights!r}; use 'binary' or 'heat'")
    if bandwidth is not None and not (np.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"bandwidth is {bandwidth!r}; a positive number is wanted, or None to choose it")
    stack = as_float_stack(images)
    wanted = check_n_neighbors(n_neighbors, len(stack) - 1)
    largest = max(float(stack.max()), -float(stack.min()))
    if largest > 0.5 * np.sqrt(np.finfo(stack.dtype).max / stack[0].size):
        raise ValueError(
            f"images have values up to {largest:g}, and sums of their squares overflow in {stack.dtype}; divide them"
        )
    search = ExactSearch(stack, metric, tensor=images if is_torch(images) else None, compare_all=compare_all)
    found = find_or_recall(search, wanted, stage)
    if bandwidth is None:
        bandwidth = float(found.distances.mean(dtype=np.float64)) or 1.0
    weighting = Weighting(weights, bandwidth)
    return Graph.from_neighbors(found, weighting=weighting, search=search, n_neighbors=wanted)
