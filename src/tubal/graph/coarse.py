"""Coarse candidates: one short vector per image that barely changes under small deformations.

The gradient is split into its rising and falling parts down and right *before* it is pooled over an 8 x 8
grid of soft cells. Pooling signed gradients would cancel edges that moved a little; pooling rectified ones
makes a single vector as tolerant as several shifted copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tubal._backend import parallel_ranges

from . import _kernels
from .affine import field_stack
from .warps import Float32, Int32

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
