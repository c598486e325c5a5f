"""Affine motions of images: tables that warp images, and scores of how well a moved image fits another.

Images are compared by their fields: a field has two planes per channel, the vertical and the horizontal gradient, or
the pixels and a plane of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tubal.backends.arrays import Workspace, own_threads, parallel_ranges
from tubal.backends.cpu import deformation as _kernels
from tubal.graph.structure import IndexArray

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]

# Images that one thread brings to the working size at a time.
_IMAGES_AT_A_TIME = 512


def bilinear_table(
    shape: tuple[int, int], rotation: float = 0.0, scale: float = 1.0, dy: float = 0.0, dx: float = 0.0
) -> tuple[Int32, Float32]:
    """Return a motion ``T`` as a table: four source pixels ``corners`` and their ``weights``, both (4, pixels).

    ``T(X)(p) = X(c + R(p - c - d) / scale)`` with ``c`` the centre, ``d = (dy, dx)`` and ``R`` the rotation by
    ``rotation`` degrees; coordinates outside the image are moved to its border.

    >>> corners, weights = bilinear_table((1, 3), dx=1.0)
    >>> (weights * np.array([5.0, 6.0, 7.0])[corners]).sum(axis=0)
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
    weights = np.stack([(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx])
    return corners.reshape(4, -1).astype(np.int32), weights.reshape(4, -1).astype(np.float32)


def table_matrix(corners: Int32, weights: Float32) -> sparse.csr_matrix:
    """Return the motion of a table as a sparse ``(pixels, pixels)`` matrix."""
    n_pixels = corners.shape[1]
    indices = (np.tile(np.arange(n_pixels), 4), corners.ravel())
    return sparse.csr_matrix((weights.ravel(), indices), shape=(n_pixels, n_pixels))


def sobel_matrix(shape: tuple[int, int]) -> sparse.csr_matrix:
    """Return the Sobel derivatives, down then right, as a sparse ``(2 pixels, pixels)`` matrix; border replicated."""
    height, width = shape
    down = sparse.kron(_three_taps(height, (-1.0, 0.0, 1.0)), _three_taps(width, (1.0, 2.0, 1.0)))
    right = sparse.kron(_three_taps(height, (1.0, 2.0, 1.0)), _three_taps(width, (-1.0, 0.0, 1.0)))
    return sparse.csr_matrix(sparse.vstack([down, right]), dtype=np.float32)


def pixel_matrix(shape: tuple[int, int]) -> sparse.csr_matrix:
    """Return the matrix ``(2 pixels, pixels)`` that maps an image to its pixels followed by as many zeros."""
    n_pixels = shape[0] * shape[1]
    return sparse.eye(2 * n_pixels, n_pixels, format="csr", dtype=np.float32)


def _three_taps(length: int, taps: tuple[float, float, float]) -> sparse.csr_matrix:
    """Return the filter with three taps along one axis as a matrix, border replicated."""
    here = np.arange(length)
    columns = np.concatenate([np.maximum(here - 1, 0), here, np.minimum(here + 1, length - 1)])
    return sparse.csr_matrix((np.repeat(taps, length), (np.tile(here, 3), columns)), shape=(length, length))


@dataclass(frozen=True)
class WorkingSize:
    """The size at which images are compared: the original size if it has ``least`` to ``most`` pixels.

    Larger images are averaged down. Smaller ones with two dimensions are interpolated up, so that one working pixel is
    a small part of the image.

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

    def apply(self, stack: NDArray[Any], largest: float | None = None) -> Float32:
        """Return a stack of images as ``(n, channels, pixels)`` at the working size, with values of at most 1.

        ``largest`` is the largest absolute value of all images if the stack is a part of them.
        """
        planes = channel_planes(stack)
        result = np.empty((*planes.shape[:2], self.shape[0] * self.shape[1]), dtype=np.float32)
        # Fields are normalised later; dividing here only keeps squares inside the range of float32.
        divisor = planes.dtype.type(largest_value(stack) if largest is None else largest)
        same_size = self.shape == self.source
        if not same_size:
            down, across = (_resampling(*sides) for sides in zip(self.source, self.shape, strict=True))

        def fill(start: int, stop: int) -> None:
            for first in range(start, stop, _IMAGES_AT_A_TIME):
                own = slice(first, min(first + _IMAGES_AT_A_TIME, stop))
                flat = _constant_planes(planes[own])
                if same_size:
                    part = planes[own].reshape(result[own].shape)
                    np.divide(part, divisor, out=result[own], casting="same_kind")
                else:
                    part = down @ (planes[own] / divisor).astype(np.float32) @ across.T
                    result[own] = part.reshape(result[own].shape)
                # A constant plane becomes exactly zero, so that rounding errors do not count as a gradient.
                result[own][flat] = 0

        with own_threads() as threads:
            parallel_ranges(fill, len(planes), grain=_IMAGES_AT_A_TIME, threads=threads)
        return result


def _constant_planes(planes: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which planes (n, channels) of a stack (n, channels, height, width) have one value only, up to rounding."""
    most, least = planes.max(axis=(2, 3)), planes.min(axis=(2, 3))
    return np.asarray(most - least <= 1e-6 * np.maximum(abs(most), abs(least)))


def largest_value(stack: NDArray[Any]) -> float:
    """Return the largest absolute value of a stack, read a few images at a time; 1 if all are zero."""

    def find(start: int, stop: int) -> float:
        firsts = range(start, stop, _IMAGES_AT_A_TIME)
        blocks = (stack[first : min(first + _IMAGES_AT_A_TIME, stop)] for first in firsts)
        return max(float(np.abs(block).max()) for block in blocks)

    with own_threads() as threads:
        return max(parallel_ranges(find, len(stack), grain=_IMAGES_AT_A_TIME, threads=threads)) or 1.0


@dataclass(frozen=True)
class WorkingImages:
    """Distinct images at the working size: all of them in memory, or computed from the originals when they are needed.

    ``numbers`` (n,) are the distinct ones among the ``originals``. ``held`` (n, channels, pixels) are the images at
    the working size, or None. ``largest`` is the largest absolute value of the originals.
    """

    originals: NDArray[Any]
    numbers: IndexArray
    size: WorkingSize
    largest: float
    held: Float32 | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of images, channels and pixels."""
        n_channels = self.originals.shape[3] if self.originals.ndim == 4 else 1
        return len(self.numbers), n_channels, self.size.shape[0] * self.size.shape[1]

    def take(self, chosen: IndexArray | Int32, workspace: Workspace | None = None) -> Float32:
        """Return some images (m, channels, pixels), with a workspace as its "images"."""
        if self.held is not None:
            return np.asarray(self.held[chosen])
        result = (workspace or Workspace()).array("images", (len(chosen), *self.shape[1:]))

        def fill(start: int, stop: int) -> None:
            for first in range(start, stop, _TAKEN_AT_A_TIME):
                own = slice(first, min(first + _TAKEN_AT_A_TIME, stop))
                result[own] = self.size.apply(self.originals[self.numbers[chosen[own]]], self.largest)

        with own_threads() as threads:
            parallel_ranges(fill, len(chosen), grain=_TAKEN_AT_A_TIME, threads=threads)
        return result

    def range(self, start: int, stop: int) -> Float32:
        """Return consecutive images (stop - start, channels, pixels)."""
        return self.held[start:stop] if self.held is not None else self.take(np.arange(start, stop))


@dataclass(frozen=True)
class WorkingRows:
    """Working images as rows that are read in slices, as :func:`exact_copies` reads them."""

    images: WorkingImages
    itemsize: ClassVar[int] = 4

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of values in a row."""
        n_images, n_channels, n_pixels = self.images.shape
        return n_images, n_channels * n_pixels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, part: slice) -> Float32:
        return self.images.range(*part.indices(len(self))[:2]).reshape(-1, self.shape[1])


def channel_planes(stack: NDArray[Any]) -> NDArray[Any]:
    """Return images or rows as ``(n, channels, height, width)``; a row is a one-row image."""
    if stack.ndim == 2:
        return stack[:, None, None, :]
    return stack[:, None] if stack.ndim == 3 else np.moveaxis(stack, 3, 1)


def _resampling(source: int, target: int) -> Float32:
    """Return the matrix ``(target, source)`` that averages areas to shrink, or interpolates linearly to enlarge."""
    if target <= source:
        edges = np.linspace(0, source, target + 1)
        begin, end = np.arange(source), np.arange(1, source + 1)
        overlap = np.minimum(edges[1:, None], end) - np.maximum(edges[:-1, None], begin)
        return np.asarray(np.maximum(overlap, 0) * target / source, dtype=np.float32)
    centres = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    return np.asarray(np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(source))), dtype=np.float32)


# The score of a missing candidate, below all others.
_NO_SCORE = np.float32(-1e30)
# Images that are warped at the same time for their energies.
_WARPED_AT_A_TIME = 64
# Queries whose candidates' motions are scored at a time by one thread.
_QUERIES_AT_A_TIME = 8
# Images that are read and brought to the working size at a time by one thread.
_TAKEN_AT_A_TIME = 512
# Randomly moved images from which the basis is learned.
_BASIS_SAMPLES = 600


@dataclass(frozen=True)
class MotionBank:
    """All warps (rotation and scale) and shifts that are tried, for images of one working size.

    ``warps`` are pairs (rotation in degrees, scale), ``shifts`` pairs (dy, dx) of whole working pixels. Fields are
    gradients, or the pixels themselves if ``use_pixels``.
    """

    shape: tuple[int, int]
    warps: tuple[tuple[float, float], ...]
    shifts: tuple[tuple[int, int], ...]
    use_pixels: bool = False

    def warp_tables(self) -> tuple[Int32, Float32]:
        """Return corners and weights of all warps, both ``(warps, 4, pixels)``."""
        return _stacked_tables(self.shape, tuple((rotation, scale, 0.0, 0.0) for rotation, scale in self.warps))

    def shift_tables(self) -> tuple[Int32, Float32]:
        """Return corners and weights of all shifts, both ``(shifts, 4, pixels)``."""
        return _stacked_tables(self.shape, tuple((0.0, 1.0, dy, dx) for dy, dx in self.shifts))


@lru_cache(maxsize=8)
def _stacked_tables(
    shape: tuple[int, int], motions: tuple[tuple[float, float, float, float], ...]
) -> tuple[Int32, Float32]:
    """Return the tables of several motions; every block of images asks for the same ones."""
    tables = [bilinear_table(shape, *motion) for motion in motions]
    return np.stack([table[0] for table in tables]), np.stack([table[1] for table in tables])


@dataclass(frozen=True)
class MotionCoefficients:
    """Linear maps from the pixels of an image to the basis coefficients of all its warps and of all its shifts.

    ``warp_map`` is (channels * pixels, warps * rank), ``shift_map`` (channels * pixels, shifts * rank).
    """

    bank: MotionBank
    rank: int
    warp_map: Float32
    shift_map: Float32

    @classmethod
    def fit(cls, images: WorkingImages, bank: MotionBank, rank: int, rng: np.random.Generator) -> MotionCoefficients:
        """Learn the basis from fields of randomly moved images ``(n, channels, pixels)``.

        A basis of unmoved images would favour the identity, which lowers the accuracy on faces under changing light.
        """
        fields = _moved_fields(images, bank, rng)
        rank = min(rank, len(fields), fields.shape[1])
        values, vectors = np.linalg.eigh((fields @ fields.T).astype(np.float64))
        leading = slice(-1, -rank - 1, -1)
        basis = fields.T @ (vectors[:, leading] / np.sqrt(np.maximum(values[leading], 1e-12))).astype(np.float32)
        n_channels = images.shape[1]
        tables = (bank.warp_tables(), bank.shift_tables())
        warp_map, shift_map = (_coefficient_map(basis, bank, n_channels, *table) for table in tables)
        return cls(bank, rank, warp_map, shift_map)

    def of_warps(self, images: Float32, threads: int) -> tuple[Float32, Float32]:
        """Return coefficients ``(n, warps, rank)`` of every warp's unit field, and the largest energy of each image."""
        corners, weights = self.bank.warp_tables()
        energies = np.empty((len(images), len(corners)), dtype=np.float32)
        result = np.empty((len(images), self.warp_map.shape[1]), dtype=np.float32)
        pixels, layout = images.reshape(len(images), -1), field_layout(self.bank.shape)

        def fill(start: int, stop: int) -> None:
            for first in range(start, stop, _WARPED_AT_A_TIME):
                part = slice(first, min(first + _WARPED_AT_A_TIME, stop))
                side_by_side = np.ascontiguousarray(np.moveaxis(images[part], 0, 2))
                found = np.empty((len(corners), part.stop - first), dtype=np.float32)
                buffer = np.empty(side_by_side.shape[1:], dtype=np.float32)
                _kernels.warp_energies(side_by_side, corners, weights, layout, self.bank.use_pixels, buffer, found)
                energies[part] = found.T
            np.matmul(pixels[start:stop], self.warp_map, out=result[start:stop])
            block = result[start:stop].reshape(stop - start, len(corners), -1)
            block *= _inverse_length(energies[start:stop])[:, :, None]

        parallel_ranges(fill, len(images), grain=2 * _WARPED_AT_A_TIME, threads=threads)
        return result.reshape(len(images), len(corners), self.rank), energies.max(axis=1)

    def of_shifts(
        self, images: Float32, fields: Float32, energies: Float32, threads: int, workspace: Workspace | None = None
    ) -> Float32:
        """Return coefficients ``(n, shifts, rank)`` of every shift's unit field, with a workspace as its "shifted".

        The energy of pixels that a shift moves outside the image is not counted.
        """
        result = (workspace or Workspace()).array("shifted", (len(images), self.shift_map.shape[1]))
        pixels, inside = images.reshape(len(images), -1), self.kept_pixels().T

        def fill(start: int, stop: int) -> None:
            np.matmul(pixels[start:stop], self.shift_map, out=result[start:stop])
            kept = (fields[start:stop] ** 2).sum(axis=1) @ inside * energies[start:stop, None]
            block = result[start:stop].reshape(stop - start, inside.shape[1], -1)
            block *= _inverse_length(kept)[:, :, None]

        parallel_ranges(fill, len(images), grain=32, threads=threads)
        return result.reshape(len(images), -1, self.rank)

    def kept_pixels(self) -> Float32:
        """Return which pixels stay inside the image under each shift, as 0 and 1, ``(shifts, pixels)``."""
        height, width = self.bank.shape
        rows, columns = np.mgrid[:height, :width]
        inside = [
            (rows + dy >= 0) & (rows + dy < height) & (columns + dx >= 0) & (columns + dx < width)
            for dy, dx in self.bank.shifts
        ]
        return np.stack(inside).reshape(len(inside), -1).astype(np.float32)


def _inverse_length(energy: Float32) -> Float32:
    """Return ``1 / sqrt(energy)``, or 0 for a field without energy."""
    return np.where(energy > 0, 1 / np.sqrt(np.maximum(energy, 1e-30)), 0).astype(np.float32)


def _moved_fields(images: WorkingImages, bank: MotionBank, rng: np.random.Generator) -> Float32:
    """Return the unit fields ``(samples, 2 channels * pixels)`` of randomly chosen and moved images."""
    n_samples = min(_BASIS_SAMPLES, 8 * len(images))
    warp_tables, shift_tables = bank.warp_tables(), bank.shift_tables()
    limits = len(bank.warps), len(bank.shifts), len(images)
    drawn = np.array([[rng.integers(limit) for limit in limits] for _ in range(n_samples)])
    moved = images.take(drawn[:, 2]).copy()
    for sample, (warp, shift, _) in enumerate(drawn):
        image = moved[sample]
        for (corners, weights), motion in ((warp_tables, warp), (shift_tables, shift)):
            image = (image[:, corners[motion]] * weights[motion]).sum(axis=1)
        moved[sample] = image
    return field_stack(moved, bank.shape, use_pixels=bank.use_pixels, threads=1)[0].reshape(n_samples, -1)


def field_stack(
    images: Float32, shape: tuple[int, int], *, use_pixels: bool = False, margin: int = 0, gap: int = 0, threads: int,
    workspace: Workspace | None = None,
) -> tuple[Float32, Float32]:  # fmt: skip
    """Return the unit fields ``(n, 2 channels, length)`` of images, and their energies before scaling ``(n,)``.

    A field is the gradient of an image or, if ``use_pixels``, its pixels followed by a plane of zeros. Rows are padded
    with ``margin`` and ``gap`` columns as the kernels in ``backends.cpu.deformation`` expect. With a workspace they are
    its "fields".
    """
    images = np.ascontiguousarray(images)  # another layout would be compiled anew
    every = np.stack([np.arange(len(images)), np.full(len(images), -1)], axis=1, dtype=np.int32)
    tables = np.empty((0, 4, 0), dtype=np.int32), np.empty((0, 4, 0), dtype=np.float32)
    layout = field_layout(shape, margin=margin, gap=gap)
    fields = empty_fields(len(images), images.shape[1], layout, workspace)
    energies = np.empty(len(images), dtype=np.float32)

    def fill(start: int, stop: int) -> None:
        block = slice(start, stop)
        write_fields(images, every[block], tables, layout, use_pixels, fields[block], energies[block])

    parallel_ranges(fill, len(images), grain=64, threads=threads)
    return fields, energies


def field_layout(
    shape: tuple[int, int], *, margin: int = 0, gap: int = 0, window: tuple[int, int] = (0, 0)
) -> NDArray[np.int64]:
    """Return (height, width, margin, gap, window_y, window_x), as the kernels expect."""
    return np.array([*shape, margin, gap, *window], dtype=np.int64)


def empty_fields(
    n_images: int, n_channels: int, layout: NDArray[np.int64], workspace: Workspace | None = None
) -> Float32:
    """Return an array ``(n, 2 channels, length)`` for fields of this layout, with a workspace its "fields".

    Fields with a gap can be given to :func:`measure_pairs`; others hold pixels only.
    """
    height, width, margin, gap = map(int, layout[:4])
    length = (height + 2 * margin) * (width + 2 * margin + gap) + gap
    if gap > 0:
        # The kernel reads 32 numbers at a time, and up to four more than a row has.
        length += max(32 - width, 4)
    return (workspace or Workspace()).array("fields", (n_images, 2 * n_channels, length))


def write_fields(
    images: Float32, moves: Int32, tables: tuple[Int32, Float32], layout: NDArray[np.int64], use_pixels: bool,
    fields: Float32, energies: Float32,
) -> None:  # fmt: skip
    """Write the unit fields of warped images and their energies; ``moves`` are pairs (image, warp), -1 for none."""
    buffer = np.empty(images.shape[1:], dtype=np.float32)
    _kernels.unit_fields(images, moves, *tables, layout, use_pixels, buffer, fields, energies)


def measure_pairs(
    fields: Float32, others: Float32, pairs: Int32, shifts: NDArray[np.int64], layout: NDArray[np.int64],
    distances: Float32,
) -> None:  # fmt: skip
    """Write the distortions of pairs; each is a triple of a field, one of the other fields, and a shift.

    The gap of the layout is at least 1, and at least the largest horizontal shift plus the window.
    """
    scratch = _kernels.empty_scratch(layout, fields.shape[2])
    _kernels.pair_distances(fields, others, pairs, shifts, layout, scratch, distances)


def _coefficient_map(basis: Float32, bank: MotionBank, n_channels: int, corners: Int32, weights: Float32) -> Float32:
    """Return the map ``(channels * pixels, motions * rank)`` from pixels to coefficients of every motion's field.

    It is the adjoint of motion and field, applied to the basis.
    """
    n_pixels, rank = bank.shape[0] * bank.shape[1], basis.shape[1]
    adjoint = (pixel_matrix(bank.shape) if bank.use_pixels else sobel_matrix(bank.shape)).T
    planes = basis.reshape(n_channels, 2 * n_pixels, rank)
    maps = np.empty((n_channels, n_pixels, len(corners), rank), dtype=np.float32)
    for channel in range(n_channels):
        through_field = adjoint @ planes[channel]
        for motion in range(len(corners)):
            table = table_matrix(corners[motion], weights[motion])
            maps[channel, :, motion] = table.T @ through_field
    return maps.reshape(n_channels * n_pixels, -1)


def best_motions(shifted: Float32, warped: Float32, candidates: Int32, threads: int) -> tuple[Float32, Int32, Int32]:
    """Return score, warp and shift of each candidate's best motion, each ``(m, candidates)``."""
    scores, best = np.empty(candidates.shape, dtype=np.float32), np.empty_like(candidates)

    def fill(start: int, stop: int) -> None:
        own = slice(start, stop)
        buffers = _kernels.empty_products(shifted.shape[1], shifted.shape[2])
        _kernels.best_motions(shifted[own], warped, candidates[own], *buffers, scores[own], best[own])

    parallel_ranges(fill, len(candidates), grain=_QUERIES_AT_A_TIME, threads=threads)
    scores[candidates < 0] = _NO_SCORE
    warps, shifts = np.divmod(best, np.int32(shifted.shape[1]))
    return scores, warps, shifts
