"""Affine scores: how well a rotated, scaled and shifted image agrees with another one.

All motions are a warp (rotation and scale) of the neighbour and a whole-pixel shift of the image itself.
Motion, field (gradient) and projection onto a short basis are linear, so the coefficients of every motion of every
image are one matrix product of its pixels, and a score is an inner product of coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tubal._backend import parallel_ranges

from . import _kernels
from .warps import Float32, Int32, bilinear_table, pixel_matrix, sobel_matrix, table_matrix

_BASIS_SAMPLES = 600


@dataclass(frozen=True)
class MotionBank:
    """Every warp and shift that is tried, for images of one working size."""

    shape: tuple[int, int]
    warps: tuple[tuple[float, float], ...]  # (rotation in degrees, scale)
    shifts: tuple[tuple[int, int], ...]  # whole working pixels
    plain: bool = False  # fields are the pixels themselves, not their gradients

    def warp_tables(self) -> tuple[Int32, Float32]:
        """Corners and shares of all warps, ``(warps, 4, pixels)``."""
        tables = [bilinear_table(self.shape, rotation, scale) for rotation, scale in self.warps]
        return np.stack([table[0] for table in tables]), np.stack([table[1] for table in tables])

    def shift_tables(self) -> tuple[Int32, Float32]:
        """Corners and shares of all shifts, ``(shifts, 4, pixels)``."""
        tables = [bilinear_table(self.shape, dy=dy, dx=dx) for dy, dx in self.shifts]
        return np.stack([table[0] for table in tables]), np.stack([table[1] for table in tables])


@dataclass(frozen=True)
class MotionCoefficients:
    """Linear maps from pixels to basis coefficients of all warps and of all shifts."""

    bank: MotionBank
    rank: int
    warp_map: Float32  # (channels * pixels, warps * rank)
    shift_map: Float32  # (channels * pixels, shifts * rank)

    @classmethod
    def fit(cls, images: Float32, bank: MotionBank, rank: int, rng: np.random.Generator) -> MotionCoefficients:
        """Learn the basis from fields of randomly moved images.

        A basis of unmoved images would favour the identity; on faces under changing light that costs points.
        """
        fields = _moved_fields(images, bank, rng)
        rank = min(rank, len(fields), fields.shape[1])
        values, vectors = np.linalg.eigh((fields @ fields.T).astype(np.float64))
        lead = slice(-1, -rank - 1, -1)
        basis = fields.T @ (vectors[:, lead] / np.sqrt(np.maximum(values[lead], 1e-12))).astype(np.float32)
        n_channels = images.shape[1]
        tables = (bank.warp_tables(), bank.shift_tables())
        warp_map, shift_map = (_pulled_back(basis, bank, n_channels, *table) for table in tables)
        return cls(bank, rank, warp_map, shift_map)

    def of_warps(self, images: Float32, threads: int) -> tuple[Float32, Float32]:
        """Coefficients ``(n, warps, rank)`` of every warp, scaled as unit fields; energies ``(n,)``."""
        corners, shares = self.bank.warp_tables()
        energies = np.empty((len(images), len(corners)), dtype=np.float32)
        result = np.empty((len(images), self.warp_map.shape[1]), dtype=np.float32)
        pixels = images.reshape(len(images), -1)

        def fill(start: int, stop: int) -> None:
            own = energies[start:stop]
            _kernels.warped_energies(images[start:stop], *self.bank.shape, corners, shares, self.bank.plain, own)
            np.matmul(pixels[start:stop], self.warp_map, out=result[start:stop])
            block = result[start:stop].reshape(stop - start, len(corners), -1)
            block *= _inverse_length(own)[:, :, None]

        parallel_ranges(fill, len(images), grain=32, threads=threads)
        return result.reshape(len(images), len(corners), self.rank), energies.max(axis=1)

    def of_shifts(self, images: Float32, fields: Float32, energies: Float32, threads: int) -> Float32:
        """Coefficients ``(n, shifts, rank)``; a shift loses the energy of what it pushes over the border."""
        result = np.empty((len(images), self.shift_map.shape[1]), dtype=np.float32)
        pixels, inside = images.reshape(len(images), -1), self._kept_pixels().T

        def fill(start: int, stop: int) -> None:
            np.matmul(pixels[start:stop], self.shift_map, out=result[start:stop])
            kept = (fields[start:stop] ** 2).sum(axis=1) @ inside * energies[start:stop, None]
            block = result[start:stop].reshape(stop - start, inside.shape[1], -1)
            block *= _inverse_length(kept)[:, :, None]

        parallel_ranges(fill, len(images), grain=32, threads=threads)
        return result.reshape(len(images), -1, self.rank)

    def _kept_pixels(self) -> Float32:
        height, width = self.bank.shape
        rows, columns = np.mgrid[:height, :width]
        inside = [
            (rows + dy >= 0) & (rows + dy < height) & (columns + dx >= 0) & (columns + dx < width)
            for dy, dx in self.bank.shifts
        ]
        return np.stack(inside).reshape(len(inside), -1).astype(np.float32)


def _inverse_length(energy: Float32) -> Float32:
    return np.where(energy > 0, 1 / np.sqrt(np.maximum(energy, 1e-30)), 0).astype(np.float32)


def _moved_fields(images: Float32, bank: MotionBank, rng: np.random.Generator) -> Float32:
    n_samples = min(_BASIS_SAMPLES, 8 * len(images))
    warp_tables, shift_tables = bank.warp_tables(), bank.shift_tables()
    moved = np.empty((n_samples, *images.shape[1:]), dtype=np.float32)
    once = np.empty_like(moved[0])
    for sample in range(n_samples):
        warp, shift = rng.integers(len(bank.warps)), rng.integers(len(bank.shifts))
        image = images[rng.integers(len(images))]
        _kernels.warp_image(image, warp_tables[0][warp], warp_tables[1][warp], once)
        _kernels.warp_image(once, shift_tables[0][shift], shift_tables[1][shift], moved[sample])
    return field_stack(moved, bank.shape, plain=bank.plain, threads=1)[0].reshape(n_samples, -1)


def field_stack(
    images: Float32, shape: tuple[int, int], *, plain: bool = False, margin: int = 0, gap: int = 0, threads: int
) -> tuple[Float32, Float32]:
    """Unit fields ``(n, 2 channels, length)``, padded as the kernels want, and energies before.

    A field is the gradient of an image or, if ``plain``, its pixels beside a plane of zeros.
    """
    height, width = shape
    length = (height + 2 * margin) * (width + 2 * margin + gap) + gap
    fields = np.empty((len(images), 2 * images.shape[1], length), dtype=np.float32)
    energies = np.empty(len(images), dtype=np.float32)

    def fill(start: int, stop: int) -> None:
        block = slice(start, stop)
        _kernels.unit_fields(images[block], height, width, margin, gap, plain, fields[block], energies[block])

    parallel_ranges(fill, len(images), grain=64, threads=threads)
    return fields, energies


def _pulled_back(basis: Float32, bank: MotionBank, n_channels: int, corners: Int32, shares: Float32) -> Float32:
    """Adjoint of motion and field applied to the basis: ``(channels * pixels, motions * rank)``."""
    n_pixels, rank = bank.shape[0] * bank.shape[1], basis.shape[1]
    adjoint = (pixel_matrix(bank.shape) if bank.plain else sobel_matrix(bank.shape)).T
    planes = basis.reshape(n_channels, 2 * n_pixels, rank)
    pulled = np.empty((n_channels, n_pixels, len(corners), rank), dtype=np.float32)
    for channel in range(n_channels):
        through_field = adjoint @ planes[channel]
        for motion in range(len(corners)):
            table = table_matrix(corners[motion], shares[motion])
            pulled[channel, :, motion] = table.T @ through_field
    return pulled.reshape(n_channels * n_pixels, -1)


def best_motions(shifted: Float32, warped: Float32, candidates: Int32, threads: int) -> tuple[Float32, Int32, Int32]:
    """Score, warp and shift of each candidate's best motion, each ``(m, K)``."""
    scores = np.empty(candidates.shape, dtype=np.float32)
    warps, shifts = np.empty_like(candidates), np.empty_like(candidates)

    def fill(start: int, stop: int) -> None:
        _kernels.best_transforms(shifted, warped, candidates, start, stop, scores, warps, shifts)

    parallel_ranges(fill, len(candidates), grain=8, threads=threads)
    return scores, warps, shifts
