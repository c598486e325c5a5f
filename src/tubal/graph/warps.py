"""Small affine motions as bilinear look-up tables, and images at the size the graph works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]


def bilinear_table(
    shape: tuple[int, int], rotation: float = 0.0, scale: float = 1.0, dy: float = 0.0, dx: float = 0.0
) -> tuple[Int32, Float32]:
    """Return ``corners`` (4, pixels) and ``shares`` (4, pixels) of the motion ``T``.

    ``T(X)(p) = X(c + R(p - c - d) / scale)`` with ``c`` the centre, ``d = (dy, dx)`` and ``R`` the turn by
    ``rotation`` degrees; coordinates outside are moved to the border.

    >>> corners, shares = bilinear_table((1, 3), dx=1.0)
    >>> (shares * np.array([5.0, 6.0, 7.0])[corners]).sum(axis=0)
    array([5., 5., 6.])
    """
    height, width = shape
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    centre_y, centre_x, angle = (height - 1) / 2, (width - 1) / 2, np.deg2rad(rotation)
    y, x = (rows - centre_y - dy) / scale, (columns - centre_x - dx) / scale
    source_y = np.clip(np.cos(angle) * y + np.sin(angle) * x + centre_y, 0, height - 1)
    source_x = np.clip(-np.sin(angle) * y + np.cos(angle) * x + centre_x, 0, width - 1)
    top = np.minimum(source_y.astype(np.intp), max(height - 2, 0))
    left = np.minimum(source_x.astype(np.intp), max(width - 2, 0))
    bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    fy, fx = source_y - top, source_x - left
    corners = np.stack([top * width + left, top * width + right, bottom * width + left, bottom * width + right])
    shares = np.stack([(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx])
    return corners.reshape(4, -1).astype(np.int32), shares.reshape(4, -1).astype(np.float32)


def table_matrix(corners: Int32, shares: Float32) -> Any:
    """The motion of a table as a sparse ``(pixels, pixels)`` matrix."""
    n_pixels = corners.shape[1]
    places = (np.tile(np.arange(n_pixels), 4), corners.ravel())
    return sparse.csr_matrix((shares.ravel(), places), shape=(n_pixels, n_pixels))


def sobel_matrix(shape: tuple[int, int]) -> Any:
    """Sobel derivatives with replicated border as a sparse ``(2 pixels, pixels)`` matrix, down then right."""
    height, width = shape
    down = sparse.kron(_three_taps(height, (-1.0, 0.0, 1.0)), _three_taps(width, (1.0, 2.0, 1.0)))
    right = sparse.kron(_three_taps(height, (1.0, 2.0, 1.0)), _three_taps(width, (-1.0, 0.0, 1.0)))
    return sparse.csr_matrix(sparse.vstack([down, right]), dtype=np.float32)


def pixel_matrix(shape: tuple[int, int]) -> Any:
    """Pixels and as many zeros as a sparse ``(2 pixels, pixels)`` matrix: the place of Sobel's without derivatives."""
    n_pixels = shape[0] * shape[1]
    return sparse.eye(2 * n_pixels, n_pixels, format="csr", dtype=np.float32)


def _three_taps(length: int, taps: tuple[float, float, float]) -> Any:
    here = np.arange(length)
    columns = np.concatenate([np.maximum(here - 1, 0), here, np.minimum(here + 1, length - 1)])
    return sparse.csr_matrix((np.repeat(taps, length), (np.tile(here, 3), columns)), shape=(length, length))


@dataclass(frozen=True)
class WorkingSize:
    """The size images are compared at: unchanged between ``least`` and ``most`` pixels.

    Larger images are averaged down; smaller ones, if they have two dimensions, are interpolated up, so that
    one working pixel is a small part of the image.

    >>> WorkingSize.of((8, 8)).shape, WorkingSize.of((32, 24)).shape, WorkingSize.of((480, 640)).shape
    ((16, 16), (32, 24), (55, 74))
    """

    source: tuple[int, int]
    shape: tuple[int, int]

    @classmethod
    def of(cls, source: tuple[int, int], least: int = 256, most: int = 4096) -> WorkingSize:
        """Choose the working size of images of ``source`` (height, width)."""
        height, width = source
        n_pixels = height * width
        factor = 1.0
        if n_pixels > most:
            factor = float(np.sqrt(most / n_pixels))
        elif n_pixels < least and min(source) > 1:
            factor = float(np.sqrt(least / n_pixels))
        return cls(source, (max(1, round(height * factor)), max(1, round(width * factor))))

    def apply(self, stack: NDArray[Any]) -> Float32:
        """Return checked images as ``(n, channels, pixels)`` at the working size, scaled to at most 1."""
        planes = channel_planes(stack)
        # Field lengths are normalised anyway; this only keeps squares inside the range of float32.
        flat = np.ptp(planes, axis=(2, 3), keepdims=True) <= 1e-6 * np.abs(planes).max(axis=(2, 3), keepdims=True)
        largest = float(np.abs(planes).max()) or 1.0
        # A constant plane becomes exactly zero, so that rounding cannot pass for a gradient.
        planes = np.where(flat, 0, planes / planes.dtype.type(largest)).astype(np.float32)
        if self.shape != self.source:
            down, across = (_resampling(*pair) for pair in zip(self.source, self.shape, strict=True))
            planes = down @ planes @ across.T
        return np.ascontiguousarray(planes.reshape(*planes.shape[:2], -1))


def channel_planes(stack: NDArray[Any]) -> NDArray[Any]:
    """Return images or rows as ``(n, channels, height, width)``; a row is a one-row image."""
    if stack.ndim == 2:
        return stack[:, None, None, :]
    return stack[:, None] if stack.ndim == 3 else np.moveaxis(stack, 3, 1)


def _resampling(source: int, target: int) -> Float32:
    """Matrix ``(target, source)``: area means when shrinking, linear interpolation when enlarging."""
    if target <= source:
        edges = np.linspace(0, source, target + 1)
        begin, end = np.arange(source), np.arange(1, source + 1)
        overlap = np.minimum(edges[1:, None], end) - np.maximum(edges[:-1, None], begin)
        return np.asarray(np.maximum(overlap, 0) * target / source, dtype=np.float32)
    centres = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    return np.asarray(np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(source))), dtype=np.float32)
