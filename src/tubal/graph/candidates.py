"""Coarse candidates for the deformable search: a short descriptor per image, searched exactly or by an index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tubal.backends.cpu import deformation as _kernels
from tubal.backends.threads import parallel_ranges
from tubal.graph.affine import Float32, Int32, field_stack

_N_CELLS = 64
# Collections above this size use the leading principal components of their descriptors.
PCA_FROM, N_COMPONENTS = 2000, 128
# Images whose fields are in memory at a time, per thread.
_IMAGES_AT_A_TIME = 64


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
        """Return the map fitted on ``images`` (n, channels, pixels), and their descriptors."""
        pooling = cell_weights(shape)
        pooled = _pooled(images, shape, pooling, threads, use_pixels=use_pixels)
        mean = pooled.mean(axis=0)
        axes = None
        if len(images) > PCA_FROM and pooled.shape[1] > N_COMPONENTS:
            centred = pooled - mean
            axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))[1][:, -N_COMPONENTS:].astype(np.float32)
        fitted = cls(shape, pooling, mean, axes, use_pixels)
        return fitted, fitted._project(pooled)

    def descriptors(self, images: Float32, threads: int) -> Float32:
        """Return unit descriptors ``(n, dimensions)`` of images at the working size."""
        return self._project(_pooled(images, self.shape, self.pooling, threads, use_pixels=self.use_pixels))

    def _project(self, pooled: Float32) -> Float32:
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
            for sign, half in ((1, 0), (-1, 1)):
                rectified = np.maximum(sign * fields, 0).reshape(-1, n_pixels)
                pooled[low:high, half] = (rectified @ pooling.T).reshape(high - low, 2 * n_channels, -1)

    parallel_ranges(fill, n_images, grain=_IMAGES_AT_A_TIME, threads=threads)
    return pooled.reshape(n_images, -1)


def cell_weights(shape: tuple[int, int]) -> Float32:
    """Return Gaussian weights ``(cells, pixels)`` of about 64 overlapping cells spread over the image."""
    height, width = shape
    n_down = min(height, max(8, _N_CELLS // width))
    n_across = min(width, max(8, _N_CELLS // n_down))
    down, across = _cell_weights_1d(height, n_down), _cell_weights_1d(width, n_across)
    return np.ascontiguousarray(np.kron(down, across), dtype=np.float32)


def _cell_weights_1d(length: int, n_cells: int) -> Float32:
    cell = length / n_cells
    centres = (np.arange(n_cells) + 0.5) * cell - 0.5
    weights = np.exp(-0.5 * ((np.arange(length) - centres[:, None]) / (0.7 * cell)) ** 2)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)


def coarse_candidates(queries: Float32, known: Float32, reach: int, *, first: int | None, threads: int) -> Int32:
    """Return the indices ``(m, reach)`` of the most similar descriptors; all pairs are compared.

    ``first`` is the training index of the first query if the queries are consecutive training images; each is then
    left out of its own list. It is ``None`` for new images.
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
    """Return the indices ``(n, reach)`` of similar descriptors, found by nearest-neighbour descent."""
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
    # A stable sort moves the own index, if it is listed, behind everything else.
    order = np.argsort(lists == own, axis=1, kind="stable")[:, :reach]
    lists = np.take_along_axis(lists, order, axis=1)
    filler = (own + 1 + np.arange(reach, dtype=np.int32)) % n_images
    return np.ascontiguousarray(np.where(lists < 0, filler, lists))
