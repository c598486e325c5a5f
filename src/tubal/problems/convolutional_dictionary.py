"""The filter half of convolutional sparse coding: sufficient statistics and the problem they define.

    minimise over D   1/2 ||X - Σ_j D_j ⊛ B_j||²   subject to   ||D_j||_F <= 1,  D_j zero outside its support

Half spectra of the planes are flattened to one frequency axis; a bin counts ``weight / (h w)`` in every sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tubal.algebra import spectrum_weights
from tubal.backends.arrays import Array, as_double, irfft2, is_torch, namespace, rfft2

PLANES = (-2, -1)


@dataclass(frozen=True)
class ConvolutionalStatistics:
    """What a filter step needs of any number of images: same size whatever that number.

    gram : ``B̂ B̂ᴴ`` (frequency, atom, atom); cross : ``X̂ B̂ᴴ`` (frequency, channel, atom); squares : ``||X||²``.
    """

    gram: Array
    cross: Array
    squares: float
    plane: tuple[int, int]

    @classmethod
    def of(cls, data: Array, codes: Array, block: int = 32) -> ConvolutionalStatistics:
        """Sum over images (n, channel, h, w) and codes (n, atom, h, w), a few images at a time."""
        plane = int(data.shape[2]), int(data.shape[3])
        gram = cross = 0.0
        for start in range(0, data.shape[0], block):
            code_slices = _by_frequency(codes[start : start + block])
            image_slices = _by_frequency(data[start : start + block])
            adjoint = namespace(code_slices).conj(_swap(code_slices))
            gram = gram + as_double(code_slices @ adjoint)
            cross = cross + as_double(image_slices @ adjoint)
        squares = float((as_double(data) ** 2).sum())
        return cls(gram, cross, squares, plane)

    def __add__(self, other: ConvolutionalStatistics) -> ConvolutionalStatistics:
        """Return the statistics of both sets of images together."""
        return ConvolutionalStatistics(
            self.gram + other.gram, self.cross + other.cross, self.squares + other.squares, self.plane
        )

    def scaled(self, factor: float) -> ConvolutionalStatistics:
        """Return the statistics with every image counted ``factor`` times (online forgetting)."""
        return ConvolutionalStatistics(factor * self.gram, factor * self.cross, factor * self.squares, self.plane)

    @property
    def counts(self) -> Array:
        """What each frequency counts in a sum over the plane, (frequency,)."""
        height, width = self.plane
        along = spectrum_weights(width, self.gram.real)
        return along.repeat(height) if is_torch(along) else np.tile(along, height)

    @property
    def usage(self) -> Array:
        """Squared length of each filter's codes, (atom,): exactly zero for one that no image uses."""
        diagonal = namespace(self.gram).diagonal(self.gram, 0, 1, 2).real
        height, width = self.plane
        return (self.counts[:, None] * diagonal).sum(0) / (height * width)


def _by_frequency(planes: Array) -> Array:
    """Return spectra (frequency, plane, image) of planes (image, plane, h, w)."""
    spectra = rfft2(planes, PLANES)
    flat = spectra.reshape(*spectra.shape[:2], -1)
    moved = namespace(flat).moveaxis(flat, (0, 1, 2), (2, 1, 0))
    return moved.contiguous() if is_torch(moved) else np.ascontiguousarray(moved)


def _swap(slices: Array) -> Array:
    return namespace(slices).swapaxes(slices, 1, 2)


class ConvolutionalDictionary:
    """The filter problem given statistics; dictionaries are (down, across, channel, atom)."""

    def __init__(self, statistics: ConvolutionalStatistics) -> None:
        self.statistics = statistics
        self.counts = statistics.counts / float(np.prod(statistics.plane))

    def value(self, dictionary: Array) -> float:
        """Return ``1/2 ||X - Σ_j D_j ⊛ B_j||²`` from the statistics alone."""
        spectrum, statistics = self.to_spectrum(dictionary), self.statistics
        conjugate = namespace(spectrum).conj(spectrum)
        quadratic = ((spectrum @ statistics.gram) * conjugate).real.sum((1, 2))
        linear = (statistics.cross * conjugate).real.sum((1, 2))
        return 0.5 * statistics.squares + float((self.counts * (0.5 * quadratic - linear)).sum())

    @cached_property
    def lipschitz(self) -> float:
        """The largest eigenvalue of ``B̂ B̂ᴴ`` over all frequencies.

        Frequencies are visited from the largest trace down; no eigenvalue exceeds its matrix's trace, so most
        are never looked at.
        """
        xp = namespace(self.statistics.gram)
        traces = xp.diagonal(self.statistics.gram, 0, 1, 2).real.sum(1)
        largest = 0.0
        for frequency in xp.argsort(-traces):
            if float(traces[frequency]) <= largest:
                break
            largest = max(largest, float(xp.linalg.eigvalsh(self.statistics.gram[frequency])[-1]))
        return largest

    def gradient(self, dictionary: Array) -> Array:
        """Return the gradient on the support, double precision."""
        slope = self.to_spectrum(dictionary) @ self.statistics.gram - self.statistics.cross
        height, width = self.statistics.plane
        spectra = namespace(slope).moveaxis(slope, 0, -1)
        planes = irfft2(spectra.reshape(*spectra.shape[:2], height, width // 2 + 1), self.statistics.plane, PLANES)
        down, across = dictionary.shape[:2]
        cropped = planes[:, :, :down, :across]
        return namespace(cropped).moveaxis(cropped, (0, 1, 2, 3), (2, 3, 0, 1))

    def project(self, dictionary: Array) -> Array:
        """Return the nearest filters in the unit ball."""
        return filters_to_ball(dictionary)

    def to_spectrum(self, dictionary: Array) -> Array:
        """Return the filters' spectra (frequency, channel, atom), double precision."""
        planes = filter_planes(as_double(dictionary), self.statistics.plane)
        spectra = rfft2(planes, PLANES)
        flat = spectra.reshape(*spectra.shape[:2], -1)
        return namespace(flat).moveaxis(flat, -1, 0)


def filter_planes(dictionary: Array, plane: tuple[int, int]) -> Array:
    """Return filters (down, across, channel, atom) as planes (channel, atom, h, w), zero outside the support."""
    xp = namespace(dictionary)
    down, across, n_channels, n_atoms = dictionary.shape
    planes = xp.zeros((n_channels, n_atoms, *plane), dtype=dictionary.dtype, device=dictionary.device)
    planes[:, :, :down, :across] = xp.moveaxis(dictionary, (0, 1, 2, 3), (2, 3, 0, 1))
    return planes


def filters_to_ball(dictionary: Array) -> Array:
    """Scale every filter of norm above one back to the unit ball."""
    return dictionary / namespace(dictionary).clip(filter_norms(dictionary), 1.0, None)


def filter_norms(dictionary: Array) -> Array:
    """Return the Frobenius norm of every filter."""
    return namespace(dictionary).sqrt((dictionary**2).sum((0, 1, 2)))
