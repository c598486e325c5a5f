"""Coarse candidates for the deformable search: a short descriptor per image, searched exactly or by an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tubal.backends.cpu import deformation as _kernels
from tubal.backends.threads import parallel_ranges
from tubal.graph.affine import Float32, Int32, field_stack
from tubal.graph.structure import Graph

_CELLS = 64
_LEAD = 128
_PCA_FROM = 2000
_FIELD_ROWS = 64


@dataclass(frozen=True)
class CoarseMap:
    """The projection from fields to unit descriptors, fitted once on the training images."""

    shape: tuple[int, int]
    pooling: Float32  # (cells, pixels)
    mean: Float32
    axes: Float32 | None
    plain: bool = False

    @classmethod
    def fit(
        cls, images: Float32, shape: tuple[int, int], threads: int, *, plain: bool = False
    ) -> tuple[CoarseMap, Float32]:
        """Return the map fitted on ``images`` (n, channels, pixels) and their descriptors."""
        pooling = _soft_cells(shape)
        pooled = _pooled(images, shape, pooling, threads, plain=plain)
        mean = pooled.mean(axis=0)
        axes = None
        if len(images) > _PCA_FROM and pooled.shape[1] > _LEAD:
            centred = pooled - mean
            axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))[1][:, -_LEAD:].astype(np.float32)
        fitted = cls(shape, pooling, mean, axes, plain)
        return fitted, fitted._finish(pooled)

    def descriptors(self, images: Float32, threads: int) -> Float32:
        """Unit descriptors ``(n, dimensions)`` of images at the working size."""
        return self._finish(_pooled(images, self.shape, self.pooling, threads, plain=self.plain))

    def _finish(self, pooled: Float32) -> Float32:
        centred = pooled - self.mean
        lead = centred if self.axes is None else centred @ self.axes
        lengths = np.linalg.norm(lead, axis=1, keepdims=True)
        return np.ascontiguousarray(lead / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _pooled(images: Float32, shape: tuple[int, int], pooling: Float32, threads: int, *, plain: bool) -> Float32:
    """Rectified fields pooled over the cells, ``(n, 4 channels * cells)``."""
    n_images, n_channels, n_pixels = images.shape
    pooled = np.empty((n_images, 2, 2 * n_channels, len(pooling)), dtype=np.float32)

    def fill(start: int, stop: int) -> None:
        for low in range(start, stop, _FIELD_ROWS):
            high = min(low + _FIELD_ROWS, stop)
            fields = field_stack(images[low:high], shape, plain=plain, threads=1)[0]
            for sign, half in ((1, 0), (-1, 1)):
                rectified = np.maximum(sign * fields, 0).reshape(-1, n_pixels)
                pooled[low:high, half] = (rectified @ pooling.T).reshape(high - low, 2 * n_channels, -1)

    parallel_ranges(fill, n_images, grain=_FIELD_ROWS, threads=threads)
    return pooled.reshape(n_images, -1)


def _soft_cells(shape: tuple[int, int]) -> Float32:
    """Gaussian weights ``(cells, pixels)`` of about 64 cells spread over the image."""
    height, width = shape
    n_down = min(height, max(8, _CELLS // width))
    n_across = min(width, max(8, _CELLS // n_down))
    down, across = _soft_cells_1d(height, n_down), _soft_cells_1d(width, n_across)
    return np.ascontiguousarray(np.kron(down, across), dtype=np.float32)


def _soft_cells_1d(length: int, n_cells: int) -> Float32:
    cell = length / n_cells
    centres = (np.arange(n_cells) + 0.5) * cell - 0.5
    weights = np.exp(-0.5 * ((np.arange(length) - centres[:, None]) / (0.7 * cell)) ** 2)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)


def coarse_candidates(queries: Float32, known: Float32, reach: int, *, first: int | None, threads: int) -> Int32:
    """Indices ``(m, reach)`` of the most similar descriptors, all pairs compared in small blocks.

    ``first`` is the training index of the first query when the queries are training images themselves (each
    is then left out of its own list), and ``None`` for new images.
    """
    indices = np.empty((len(queries), reach), dtype=np.int32)
    rows_per_block = max(16, min(256, 2**24 // (4 * len(known))))

    def fill(start: int, stop: int) -> None:
        for low in range(start, stop, rows_per_block):
            high = min(low + rows_per_block, stop)
            scores = queries[low:high] @ known.T
            if first is not None:
                rows = np.arange(high - low)
                scores[rows, rows + low + first] = -1e29
            _kernels.largest(scores, indices[low:high], np.empty((high - low, reach), dtype=np.float32))

    parallel_ranges(fill, len(queries), grain=rows_per_block, threads=threads)
    return indices


def approximate_candidates(descriptors: Float32, reach: int, *, random_state: int, threads: int) -> Int32:
    """Indices ``(n, reach)`` of similar descriptors by nearest-neighbour descent, oneself left out."""
    try:
        from pynndescent import NNDescent
    except ImportError as missing:
        raise ImportError(
            f"{len(descriptors)} images are too many to compare all pairs; install the approximate index "
            "with pip install 'tubal[approximate]'"
        ) from missing
    index = NNDescent(descriptors, metric="euclidean", n_neighbors=reach + 1, random_state=random_state, n_jobs=threads)
    return _without_self(index.neighbor_graph[0].astype(np.int32), reach)


def _without_self(lists: Int32, reach: int) -> Int32:
    """Drop each row's own index, or its last entry; an empty slot (-1) becomes some other image."""
    n_images = len(lists)
    own = np.arange(n_images, dtype=np.int32)[:, None]
    # A stable sort on "is it I" moves the own index, if listed, behind everything else.
    order = np.argsort(lists == own, axis=1, kind="stable")[:, :reach]
    lists = np.take_along_axis(lists, order, axis=1)
    filler = (own + 1 + np.arange(reach, dtype=np.int32)) % n_images
    return np.ascontiguousarray(np.where(lists < 0, filler, lists))


def candidate_recall(graph: Graph, n_sample: int = 200, random_state: int = 0) -> float:
    """Share of the true coarse candidates of ``n_sample`` images that the graph's first stage found.

    It is 1 for collections small enough that all pairs were compared.
    """
    search: Any = graph.search
    if getattr(search, "kind", None) != "deformable":
        raise ValueError("only a deformable graph has coarse candidates; build it with deformable_graph()")
    descriptors = search.known.descriptors
    reach = min(search.effort.n_candidates, len(descriptors) - 1)
    lists = search.training_candidates(reach)
    if lists is None:
        return 1.0
    sample = np.random.default_rng(random_state).choice(
        len(descriptors), min(n_sample, len(descriptors)), replace=False
    )
    # One more than needed, because the image itself is in its own exact list here.
    exact = coarse_candidates(descriptors[sample], descriptors, reach + 1, first=None, threads=1)
    shares = [
        len((set(true.tolist()) - {int(own)}) & set(found.tolist())) / reach
        for own, true, found in zip(sample, exact, lists[sample], strict=True)
    ]
    return float(np.mean(shares))
