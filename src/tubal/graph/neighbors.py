"""Exact nearest neighbours in pixel space, in bounded memory; exact copies and hubs are handled here too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, as_double, as_like, is_floating, is_torch, namespace, to_numpy
from tubal.backends.threads import own_threads, parallel_ranges
from tubal.graph.checks import as_rows, check_images, check_n_neighbors, duplicate_groups
from tubal.graph.structure import FloatArray, Graph, IndexArray, Neighbours, Weighting


def spread_over_copies(
    lists: NDArray[Any], group: IndexArray, length: int, *, training: bool
) -> tuple[IndexArray, IndexArray]:
    """Turn neighbour lists of distinct images into lists over all their copies.

    ``lists`` (distinct, K) names distinct images, ``group`` (n,) the distinct image each image is a copy of.
    With ``training`` there is an answer for every image of ``group`` and its own copies come first; without,
    there is one for every row of ``lists``. Returns images and the slot of ``lists`` each came from, both
    ``(m, length)``: slot -1 is an own copy, image -1 the end of a list.

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
    plain = single[lists[:, :width]].all(axis=1)[own_groups]
    if training:
        plain &= single[own_groups]
    images[plain, :width] = order[starts[lists[own_groups[plain], :width]]]
    slots[plain, :width] = np.arange(width)
    for row in np.flatnonzero(~plain):
        copies = order[starts[own_groups[row]] : starts[own_groups[row] + 1]] if training else order[:0]
        place = int(np.searchsorted(copies, row))
        members = [*copies[place + 1 :], *copies[:place]]
        sources = [-1] * len(members)
        for slot, other in enumerate(lists[own_groups[row]]):
            if len(members) >= length:
                break
            # Copies share their neighbours' copies in turn rather than all naming the first one.
            others = np.roll(order[starts[other] : starts[other + 1]], -place)
            members.extend(others)
            sources.extend([slot] * len(others))
        n_found = min(length, len(members))
        images[row, :n_found], slots[row, :n_found] = members[:length], sources[:length]
    return images, slots


def capped_neighbours(candidates: IndexArray, distances: FloatArray, n_neighbors: int, limit: int) -> IndexArray:
    """Choose slots ``(n, n_neighbors)`` of sorted candidate lists so that no image is chosen too often.

    Every image starts with its nearest candidates. An image that too many have chosen keeps its ``limit``
    nearest choosers; the others take their next candidate instead. The farthest incoming edges go first, so
    a hub loses exactly what makes it one. A slot of -1 means that the list was used up.

    >>> lists = np.array([[1, 2], [0, 2], [1, 0], [1, 2]])
    >>> capped_neighbours(lists, np.array([[1.0, 9.0], [1.0, 5.0], [3.0, 4.0], [2.0, 8.0]]), 1, 2)
    array([[0],
           [0],
           [1],
           [0]])
    """
    n_images = len(candidates)
    allowed = distances < np.inf
    rank = np.cumsum(allowed, axis=1)
    while True:
        chosen = allowed & (rank <= n_neighbors)
        rows, slots = np.nonzero(chosen)
        targets = candidates[rows, slots]
        if np.bincount(targets, minlength=n_images).max(initial=0) <= limit:
            break
        order = np.lexsort((rows, distances[rows, slots], targets))
        ordered = targets[order]
        place = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        surplus = order[place >= limit]
        allowed[rows[surplus], slots[surplus]] = False
        rank = np.cumsum(allowed, axis=1)
    result = np.full((n_images, n_neighbors), -1, dtype=np.intp)
    result[rows, rank[rows, slots] - 1] = slots
    return result


# Rows are compared so many bytes of results at a time: what stays in a core's cache, or keeps a device busy.
_BLOCK_BYTES, _DEVICE_BLOCK_BYTES = 2**22, 2**25
# Candidates beyond the wanted number, so that rounding in the product cannot change the answer.
_SPARE = 8
_COMPILED_FROM = 4096


def knn_graph(
    images: Any,
    n_neighbors: int = 3,
    *,
    metric: str = "euclidean",
    weights: str = "binary",
    bandwidth: float | None = None,
) -> Graph:
    """Join every image to its ``n_neighbors`` nearest others; the graph is symmetrised by maximum.

    ``images`` is a stack ``(n, h, w[, c])`` or rows ``(n, d)``, NumPy or torch. An image is never its own
    neighbour, but an exact copy of it is one at distance zero; among copies the next in order comes first,
    so that many copies make a ring and not a hub. Equal distances go to the lower index.
    ``metric`` is ``"euclidean"`` or ``"cosine"`` (``1 - cos``), ``weights`` is ``"binary"`` or ``"heat"``,
    ``exp(-d² / (2 bandwidth²))`` with the mean neighbour distance as default ``bandwidth``.

    >>> graph = knn_graph(np.array([[0.0], [1.0], [3.0], [7.0]]), n_neighbors=1)
    >>> graph.neighbors.ravel()
    array([1, 0, 1, 2])
    """
    if metric not in ("euclidean", "cosine"):
        raise ValueError(f"metric is {metric!r}; use 'euclidean' or 'cosine'")
    if weights not in ("binary", "heat"):
        raise ValueError(f"weights is {weights!r}; use 'binary' or 'heat'")
    if bandwidth is not None and not (np.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"bandwidth is {bandwidth!r}; a positive number is needed, or None to choose it")
    stack = check_images(images)
    wanted = check_n_neighbors(n_neighbors, len(stack) - 1)
    search = ExactSearch(stack, metric, rows=_rows_on_device(images) if is_torch(images) else None)
    found = search.among_themselves(wanted)
    if bandwidth is None:
        bandwidth = float(found.distances.mean(dtype=np.float64)) or 1.0
    weighting = Weighting(weights, bandwidth)
    return Graph.from_neighbours(found, weighting=weighting, search=search, n_neighbors=wanted)


@dataclass(frozen=True)
class ExactSearch:
    """All-pairs search over stored images; ``rows`` is a torch tensor when the images were one."""

    images: NDArray[Any]
    metric: str = "euclidean"
    rows: Array = field(default=None, repr=False)
    kind: ClassVar[str] = "exact"

    def nearest(self, new_images: Any, n_neighbors: int) -> Neighbours:
        """The nearest training images of each new one, nearest first."""
        stack = check_images(new_images)
        if stack[0].size != self.images[0].size:
            raise ValueError(
                f"new images have shape {stack.shape[1:]}, the graph's images {self.images.shape[1:]}; "
                "pass images of the training size"
            )
        known = self._prepared(self.rows if self.rows is not None else as_rows(self.images))
        queries = self._prepared(as_like(as_rows(stack), known))
        return nearest_rows(queries, known, n_neighbors, metric=self.metric)

    def among_themselves(self, n_neighbors: int) -> Neighbours:
        """The nearest other training images of every training image."""
        firsts, group = duplicate_groups(as_rows(self.images))
        rows = self._prepared(self.rows if self.rows is not None else as_rows(self.images))
        if len(firsts) == len(rows):
            return nearest_rows(rows, rows, n_neighbors, metric=self.metric, skip_self=True)
        distinct = rows[firsts]
        reach = min(n_neighbors, len(firsts) - 1)
        found = nearest_rows(distinct, distinct, reach, metric=self.metric, skip_self=True)
        indices, slots = spread_over_copies(found.indices, group, n_neighbors, training=True)
        own = np.take_along_axis(found.distances[group], np.maximum(slots, 0), axis=1) if reach else 0.0
        return Neighbours(indices, np.where(slots < 0, 0, own).astype(found.distances.dtype))

    def _prepared(self, rows: Array) -> Array:
        if self.metric == "euclidean":
            return rows
        xp = namespace(rows)
        lengths = xp.sqrt((rows * rows).sum(axis=1))[:, None]
        # A blank image has no direction; it stays zero and is equally far from everything else.
        return rows / xp.where(lengths > 0, lengths, xp.ones_like(lengths))

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The training images and the metric."""
        return {"images": self.images}, {"metric": self.metric}

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> ExactSearch:
        """Undo :meth:`state`."""
        return cls(arrays["images"], meta["metric"])


def _rows_on_device(images: Array) -> Array:
    rows = images.detach().reshape(len(images), -1)
    return rows if is_floating(rows) and rows.itemsize >= 4 else rows.float()


def nearest_rows(
    queries: Array, known: Array, n_neighbors: int, *, metric: str = "euclidean", skip_self: bool = False
) -> Neighbours:
    """Exact nearest rows: candidates by a blocked product, then distances from float64 differences."""
    if n_neighbors == 0:
        empty = np.empty((len(queries), 0))
        return Neighbours(empty.astype(np.intp), empty.astype(np.float32))
    reach = min(n_neighbors + _SPARE, len(known) - int(skip_self))
    candidates = candidate_lists(queries, known, reach, skip_self=skip_self)
    return _rank_exactly(queries, known, candidates, n_neighbors, metric)


def candidate_lists(queries: Array, known: Array, reach: int, *, skip_self: bool) -> Array:
    """Indices ``(m, reach)`` of the Euclidean-nearest rows, in index order, by blocks of one product."""
    # Centring shrinks the norms and so the cancellation in |x|² - 2 x·y + |y|².
    centre = known.mean(axis=0)
    centred = known - centre
    half_norms = 0.5 * (centred * centred).sum(axis=1)

    def fill(start: int, stop: int) -> Array:
        scores = half_norms - (queries[start:stop] - centre) @ centred.T
        if skip_self:
            rows = np.arange(stop - start)
            scores[rows, rows + start] = float("inf")
        return _smallest(scores, reach)

    pieces = over_blocks(fill, queries, len(known) * known.itemsize)
    return namespace(known).concatenate(pieces)


def _smallest(scores: Array, reach: int) -> Array:
    """Column indices of the ``reach`` smallest values of each row, in increasing index order."""
    if is_torch(scores):
        chosen = scores.topk(reach, dim=1, largest=False, sorted=False).indices
        return chosen.sort(dim=1).values
    if reach == scores.shape[1]:
        return np.broadcast_to(np.arange(reach), scores.shape)
    if scores.dtype == np.float32 and scores.shape[1] >= _COMPILED_FROM:
        from tubal.backends.cpu.deformation import largest

        indices = np.empty((len(scores), reach), dtype=np.int32)
        largest(np.negative(scores, out=scores), indices, np.empty((len(scores), reach), dtype=np.float32))
        return np.sort(indices, axis=1)
    return np.sort(np.argpartition(scores, reach - 1, axis=1)[:, :reach], axis=1)


def over_blocks(work: Callable[[int, int], Array], rows: Array, bytes_per_row: int) -> list[Array]:
    """Run ``work(start, stop)`` over blocks of rows that fit the block size, on all cores for NumPy."""
    grain = max(1, (_DEVICE_BLOCK_BYTES if is_torch(rows) else _BLOCK_BYTES) // bytes_per_row)
    bounds = [(start, min(start + grain, len(rows))) for start in range(0, len(rows), grain)]
    if is_torch(rows) or len(bounds) == 1:
        return [work(*pair) for pair in bounds]

    def several(first: int, last: int) -> list[Array]:
        return [work(*pair) for pair in bounds[first:last]]

    with own_threads() as threads:
        return list(chain.from_iterable(parallel_ranges(several, len(bounds), grain=1, threads=threads)))


def _rank_exactly(queries: Array, known: Array, candidates: Array, n_neighbors: int, metric: str) -> Neighbours:
    """Order candidates by distance, from differences in float64; ties go to the lower index."""

    def fill(start: int, stop: int) -> NDArray[np.float64]:
        gap = as_double(queries[start:stop])[:, None, :] - known[candidates[start:stop]]
        return to_numpy((gap * gap).sum(axis=2))

    squared = np.concatenate(over_blocks(fill, queries, 8 * candidates.shape[1] * known.shape[1]))
    order = np.argsort(squared, axis=1, kind="stable")[:, :n_neighbors]
    nearest = np.take_along_axis(squared, order, axis=1)
    # For unit rows |x - y|² = 2 - 2 cos.
    distances = np.sqrt(nearest) if metric == "euclidean" else 0.5 * nearest
    precision = np.float32 if known.itemsize == 4 else np.float64
    indices = np.take_along_axis(to_numpy(candidates), order, axis=1)
    return Neighbours(indices.astype(np.intp, copy=False), distances.astype(precision))
