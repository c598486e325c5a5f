"""The nearest-neighbour graph of images that are read a block at a time.

Gives the neighbours of :func:`tubal.graph.knn_graph` exactly: candidates from blocked products, kept while blocks
of known images pass by, then ranked by float64 differences. Blocks are independent, so they may also be
computed on other machines and merged.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tubal.graph.checks import check_n_neighbors, row_digests
from tubal.graph.neighbors import ExactSearch, spread_over_copies
from tubal.graph.structure import Graph, Neighbours, Weighting

# Candidates beyond the wanted number, so that rounding in the product cannot change the answer.
SPARE = 8
_BLOCK_BYTES = 2 << 20


class RowFile:
    """Rows of numbers in a file, written once in order and read by blocks or one by one."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: Any) -> None:
        self.path, self.shape, self.dtype = path, tuple(shape), np.dtype(dtype)
        self.row_bytes = int(np.prod(shape[1:])) * self.dtype.itemsize

    @classmethod
    def write(cls, path: Path, blocks: Iterable[NDArray[Any]]) -> RowFile:
        """Write blocks of rows; keep their shape and type."""
        n_rows, shape, dtype = 0, (), np.dtype(np.float32)
        with open(path, "wb") as stream:
            for block in blocks:
                stream.write(np.ascontiguousarray(block).data)
                n_rows, shape, dtype = n_rows + len(block), block.shape[1:], block.dtype
        return cls(path, (n_rows, *shape), dtype)

    @classmethod
    def spool(cls, blocks: Iterable[NDArray[Any]], folder: str | os.PathLike[str] | None = None) -> RowFile:
        """Write blocks to a file of ``folder``, or to a temporary one that goes when nothing reads it any more."""
        home = Path(tempfile.mkdtemp(prefix="tubal-rows-", dir=folder))
        rows = cls.write(home / "images.rows", blocks)
        if folder is None:
            weakref.finalize(rows, shutil.rmtree, home, ignore_errors=True)
        return rows

    def __len__(self) -> int:
        return self.shape[0]

    def block(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop``, flattened."""
        count = (stop - start) * self.row_bytes // self.dtype.itemsize
        found = np.fromfile(self.path, self.dtype, count, offset=start * self.row_bytes)
        return found.reshape(stop - start, -1)

    def take(self, indices: NDArray[Any]) -> NDArray[Any]:
        """Return some rows, flattened, in the order asked for."""
        found = np.empty((len(indices), self.row_bytes), np.uint8)
        with open(self.path, "rb", buffering=0) as stream:
            for row, index in zip(found, indices, strict=True):
                stream.seek(int(index) * self.row_bytes)
                stream.readinto(row.data)
        return found.view(self.dtype)

    def mapped(self) -> NDArray[Any]:
        """Return all rows in their shape, mapped from the file."""
        found = np.memmap(self.path, self.dtype, "r", shape=self.shape)
        found.rows = self  # type: ignore[attr-defined]  # the file stays as long as the map does
        return found


@dataclass(frozen=True)
class Candidates:
    """For each query some known images and their scores, smaller is nearer."""

    ids: NDArray[Any]
    scores: NDArray[Any]

    def merge(self, other: Candidates, reach: int) -> Candidates:
        """Keep the ``reach`` best of both; equal scores go to the lower index."""
        ids, scores = np.concatenate([self.ids, other.ids], 1), np.concatenate([self.scores, other.scores], 1)
        order = np.lexsort((ids, scores), axis=1)[:, :reach]
        return Candidates(np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1))


def block_candidates(
    queries: NDArray[Any], query_ids: NDArray[Any], known: NDArray[Any], known_ids: NDArray[Any],
    centre: NDArray[Any], reach: int,
) -> Candidates:  # fmt: skip
    """Return the ``reach`` nearest of one block of known rows for one block of queries; none is its own neighbour."""
    centred = known - centre
    half_norms = 0.5 * (centred * centred).sum(axis=1)
    count = min(reach, len(known))
    # A query's own place in this block, where it is in it.
    places = np.minimum(np.searchsorted(known_ids, query_ids), len(known_ids) - 1)
    places = np.where(known_ids[places] == query_ids, places, -1)
    found = Candidates(np.empty((len(queries), count), known_ids.dtype), np.empty((len(queries), count), known.dtype))
    step = max(1, _BLOCK_BYTES // ((known.itemsize + 8) * len(known)))
    for start in range(0, len(queries), step):
        some = slice(start, start + step)
        scores = half_norms - (queries[some] - centre) @ centred.T
        own = np.flatnonzero(places[some] >= 0)
        scores[own, places[some][own]] = np.inf
        chosen = np.argpartition(scores, count - 1, axis=1)[:, :count]
        found.ids[some], found.scores[some] = known_ids[chosen], np.take_along_axis(scores, chosen, 1)
    return found


def rank_candidates(
    queries: NDArray[Any], candidates: Candidates, fetch: Any, n_neighbors: int, metric: str
) -> Neighbours:
    """Order candidates by distance from float64 differences; ``fetch`` returns rows by index."""
    ids = np.sort(candidates.ids, axis=1)
    squared = np.empty(ids.shape)
    step = max(1, _BLOCK_BYTES // (8 * ids.shape[1] * queries.shape[1]))
    for start in range(0, len(ids), step):
        known = fetch(ids[start : start + step].reshape(-1)).reshape(-1, ids.shape[1], queries.shape[1])
        gap = queries[start : start + step].astype(np.float64)[:, None, :] - known
        squared[start : start + step] = (gap * gap).sum(axis=2)
    order = np.argsort(squared, axis=1, kind="stable")[:, :n_neighbors]
    nearest = np.take_along_axis(squared, order, axis=1)
    distances = np.sqrt(nearest) if metric == "euclidean" else 0.5 * nearest
    indices = np.take_along_axis(ids, order, axis=1).astype(np.intp)
    return Neighbours(indices, distances.astype(np.float32 if queries.itemsize == 4 else np.float64))


def blocks_of(ids: NDArray[Any], row_bytes: int) -> Iterator[NDArray[Any]]:
    """Yield the indices a few megabytes of rows at a time."""
    step = max(1, _BLOCK_BYTES // max(1, row_bytes))
    for start in range(0, len(ids), step):
        yield ids[start : start + step]


def directions(rows: NDArray[Any], metric: str) -> NDArray[Any]:
    """Return rows as the metric sees them: as they are, or of unit length; blank rows stay blank."""
    if metric == "euclidean":
        return rows
    lengths = np.sqrt((rows * rows).sum(axis=1))[:, None]
    return np.asarray(rows / np.where(lengths > 0, lengths, np.ones_like(lengths)))


class BlockSearch(ExactSearch):
    """An exact search whose images stay on disk."""

    def nearest(self, new_images: Any, n_neighbors: int) -> Neighbours:
        """The nearest training images of each new one, known images read in blocks."""
        found = np.ascontiguousarray(np.asarray(new_images), self.images.dtype)
        if found[0].size != self.images[0].size:
            return super().nearest(new_images, n_neighbors)  # which says what is wrong
        known = self.images.reshape(len(self.images), -1)
        queries = directions(found.reshape(len(found), -1), self.metric)
        return nearest_among(
            queries, np.full(len(queries), -1), known.__getitem__, np.arange(len(known)), n_neighbors, self.metric
        )


def nearest_among(
    queries: NDArray[Any], query_ids: NDArray[Any], fetch: Any, known_ids: NDArray[Any], n_neighbors: int, metric: str,
    centre: NDArray[Any] | None = None,
) -> Neighbours:  # fmt: skip
    """Return the exact nearest known rows of the queries, known rows passing by in blocks."""
    reach = n_neighbors + SPARE
    centre = queries.mean(axis=0) if centre is None else centre
    best: Candidates | None = None
    for ids in blocks_of(known_ids, queries.shape[1] * queries.itemsize):
        known = directions(fetch(ids), metric)
        found = block_candidates(queries, query_ids, known, ids, centre, reach)
        best = found if best is None else best.merge(found, reach)
    assert best is not None
    real = Candidates(np.where(np.isfinite(best.scores), best.ids, best.ids[:, :1]), best.scores)
    return rank_candidates(queries, real, lambda ids: directions(fetch(ids), metric), n_neighbors, metric)


def chunked_knn_graph(rows: RowFile, n_neighbors: int, metric: str = "euclidean") -> Graph:
    """Return the 0/1 graph of the images in a file, read in blocks; the graph's own images stay there.

    >>> images = np.array([[0.0], [1.0], [3.0], [7.0]])
    >>> chunked_knn_graph(RowFile.spool([images[:3], images[3:]]), 1).neighbors.ravel()
    array([1, 0, 1, 2])
    """
    wanted = check_n_neighbors(n_neighbors, len(rows) - 1)
    firsts, group = distinct_rows(rows)
    reach = min(wanted, len(firsts) - 1)
    parts = [
        nearest_among(directions(rows.take(ids), metric), ids, rows.take, firsts, reach, metric)
        for ids in (blocks_of(firsts, rows.row_bytes) if reach else ())
    ]
    found = join_neighbours(parts, firsts, group, wanted, rows.dtype)
    search = BlockSearch(rows.mapped(), metric)
    return Graph.from_neighbours(found, weighting=Weighting(), search=search, n_neighbors=wanted)


def distinct_rows(rows: RowFile) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the first row of each distinct value, and each row's group; 16 bytes a row are held."""
    seen: dict[bytes, int] = {}
    firsts: list[int] = []
    group = np.empty(len(rows), np.intp)
    for ids in blocks_of(np.arange(len(rows)), rows.row_bytes):
        for index, digest in zip(ids, row_digests(rows.block(int(ids[0]), int(ids[-1]) + 1)), strict=True):
            known = seen.setdefault(digest, len(firsts))
            if known == len(firsts):
                firsts.append(int(index))
            group[index] = known
    return np.asarray(firsts, np.intp), group


def join_neighbours(
    parts: list[Neighbours], firsts: NDArray[Any], group: NDArray[Any], wanted: int, dtype: Any
) -> Neighbours:
    """Put the neighbours of blocks of distinct images together and share them out over exact copies."""
    if not parts:
        lists, distances = np.empty((len(firsts), 0), np.intp), np.empty((len(firsts), 0), dtype)
    else:
        lists = np.concatenate([part.indices for part in parts])
        distances = np.concatenate([part.distances for part in parts])
    if len(firsts) == len(group):
        return Neighbours(lists, distances)
    places = np.searchsorted(firsts, lists)
    indices, slots = spread_over_copies(places, group, wanted, training=True)
    own = np.take_along_axis(distances[group], np.maximum(slots, 0), axis=1) if distances.shape[1] else 0.0
    return Neighbours(indices, np.where(slots < 0, 0, own).astype(dtype))
