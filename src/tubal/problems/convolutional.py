"""Convolutional sparse coding in two dimensions, circular, with or without a graph.

    minimise over B   1/2 ||X - Σ_j D_j ⊛ B_j||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁

Shapes are samples-last, ``data`` (h, w, channel, sample), ``codes`` (h, w, atom, sample), filters
(down, across, channel, atom); in memory planes lie together, ``(sample, atom, h, w)``, so that two-dimensional
transforms run over contiguous planes and one image's codes can stay in cache.

Images are periodic: a filter that leaves on one side comes back on the other.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from tubal.backends.arrays import Array, as_complex_like, as_double, as_like, irfft2, is_torch, namespace, rfft2
from tubal.problems import convolutional_cpu as _compiled_convolution
from tubal.problems.base import ImageModel, SplitState
from tubal.problems.convolutional_cpu import CompiledConvolution
from tubal.problems.convolutional_dictionary import (
    PLANES,
    ConvolutionalDictionary,
    ConvolutionalStatistics,
    filter_norms,
    filter_planes,
)
from tubal.problems.mapped import MappedCoding


def planes_first(array: Array) -> Array:
    """Return an array (h, w, plane, sample) as (sample, plane, h, w), planes contiguous."""
    moved = namespace(array).moveaxis(array, (0, 1, 2, 3), (2, 3, 1, 0))
    return moved.contiguous() if is_torch(moved) else np.ascontiguousarray(moved)


def samples_last(array: Array) -> Array:
    """Return an array (sample, plane, h, w) seen as (h, w, plane, sample)."""
    return namespace(array).moveaxis(array, (0, 1, 2, 3), (3, 2, 0, 1))


class ConvolutionalCoding(MappedCoding):
    """The coding problem of CSC: a Gram matrix of rank one (one a channel) at every frequency."""

    dictionary: Array

    def __init__(self, dictionary: Array, data: Array, **terms: Any) -> None:
        height, width, _, n_samples = (int(size) for size in data.shape)
        super().__init__(dictionary, data, (height, width, int(dictionary.shape[3]), n_samples), **terms)
        self.plane = (height, width)

    # --- spectra -------------------------------------------------------------------------------------
    @cached_property
    def _exact_spectra(self) -> Array:
        """Spectra of the filters (channel, atom, h, w_half), double precision."""
        return rfft2(filter_planes(as_double(self.dictionary), self.plane), PLANES)

    @cached_property
    def filter_spectra(self) -> Array:
        """The same in the data's own precision."""
        return as_complex_like(self._exact_spectra, self.data)

    @cached_property
    def channel_eigenbasis(self) -> tuple[Array, Array]:
        """Eigenvectors (h, w_half, channel, channel) and eigenvalues of ``D̂ D̂ᴴ``, double precision.

        They are the non-zero eigenvalues of the codes' Gram matrix, whose other directions need no solve.
        """
        xp = namespace(self.data)
        gram = xp.einsum("crhw,drhw->hwcd", self._exact_spectra, xp.conj(self._exact_spectra))
        values, vectors = xp.linalg.eigh(gram)
        return vectors, xp.clip(values, 0.0, None)

    @property
    def map_norm(self) -> float:
        """The largest ``Σ_j |D̂_j|²`` over frequencies, for colour the largest eigenvalue of ``D̂ D̂ᴴ``."""
        return float(self.channel_eigenbasis[1].max())

    # --- the map ---------------------------------------------------------------------------------------
    def reconstruct(self, codes: Array) -> Array:
        """Return ``Σ_j D_j ⊛ B_j``."""
        planes = planes_first(codes)
        if self._compiled is not None:
            return samples_last(self._compiled.reconstruct(planes))
        product = namespace(codes).einsum("crhw,nrhw->nchw", self.filter_spectra, rfft2(planes, PLANES))
        return samples_last(irfft2(product, self.plane, PLANES))

    def correlate(self, images: Array) -> Array:
        """Return the correlation of images with every filter."""
        planes = planes_first(images)
        if self._compiled is not None:
            return samples_last(self._compiled.correlate(planes))
        xp = namespace(images)
        product = xp.einsum("crhw,nchw->nrhw", xp.conj(self.filter_spectra), rfft2(planes, PLANES))
        return samples_last(irfft2(product, self.plane, PLANES))

    def solve_shifted(self, right: Array, penalty: float) -> Array:
        """Solve ``DᵀD B + 2 α B L + penalty B = right``.

        With ``z = (2 α L + penalty)⁻¹ right`` the solution is ``z - Dᵀ (DDᵀ + 2 α L + penalty)⁻¹ D z``: only images,
        one plane a channel, need a solve at every frequency (Sherman-Morrison; Bristow et al. 2013,
        Wohlberg 2014). The graph couples samples alone, so it commutes with the map.
        """
        alone = right / penalty if self.graph is None else self._solve_graph(right, penalty)
        return alone - self.correlate(self.shrink_images(self.reconstruct(alone), penalty))

    def shrink_images(self, images: Array, penalty: float) -> Array:
        """Return ``(DDᵀ + 2 α L + penalty)⁻¹`` applied to images, frequency by frequency."""
        xp = namespace(images)
        vectors, values = self.channel_eigenbasis
        basis = as_complex_like(vectors, self.data)
        rotated = xp.einsum("hwcd,nchw->dhwn", xp.conj(basis), rfft2(planes_first(images), PLANES))
        shifts = as_like(xp.moveaxis(values, -1, 0) + penalty, self.data)
        if self.graph is None:
            solved = self.solve_rows(rotated, shifts)
        else:
            both = xp.stack([rotated.real, rotated.imag])
            real, imaginary = self.solve_rows(both, xp.stack([shifts, shifts]))
            solved = real + 1j * imaginary
        spectra = xp.einsum("hwcd,dhwn->nchw", basis, solved)
        return samples_last(irfft2(spectra, self.plane, PLANES))

    def _solve_graph(self, right: Array, penalty: float) -> Array:
        """Return ``(2 α L + penalty)⁻¹`` applied to the samples of every coefficient."""
        if self._compiled is not None:
            return samples_last(self._compiled.solve_rows(planes_first(right), penalty))
        assert self.graph is not None
        shifts = 0.0 * right[..., 0] + penalty
        return self.graph.solve(right, shifts)

    def statistics(self, codes: Array) -> ConvolutionalStatistics:
        """Return the statistics of the filter step."""
        return ConvolutionalStatistics.of(planes_first(self.data), planes_first(codes))

    # --- memory and compiled steps -----------------------------------------------------------------------
    def zeros(self) -> Array:
        """Return codes of zeros, planes together in memory."""
        xp = namespace(self.data)
        height, width, n_atoms, n_samples = self.codes_shape
        shape = (n_samples, n_atoms, height, width)
        return samples_last(xp.zeros(shape, dtype=self.data.dtype, device=self.data.device))

    @cached_property
    def _compiled(self) -> CompiledConvolution | None:
        large = int(np.prod(self.dictionary.shape[:3])) > _compiled_convolution.LARGEST_PATCH
        return None if is_torch(self.data) or large else CompiledConvolution(self)

    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Douglas-Rachford steps, by compiled kernels for NumPy arrays."""
        if self._compiled is None:
            return super().split(state, penalty=penalty, relaxation=relaxation, n_steps=n_steps, tol=tol)
        with self.warm_systems(state) as systems:
            point, movement = self._compiled.split(
                planes_first(state.point), state.movement, penalty=penalty, relaxation=relaxation,
                n_steps=n_steps, tol=tol,
            )  # fmt: skip
        return SplitState(samples_last(point), movement, systems)


class ConvolutionalModel(ImageModel):
    """Images as sums of small filters at many places; a dictionary is one array (down, across, channel, atom)."""

    def coding(self, dictionary: Array, data: Array, **terms: Any) -> ConvolutionalCoding:
        """Return the coding problem of ``data`` (h, w, channel, sample)."""
        return ConvolutionalCoding(dictionary, data, **terms)

    def dictionary_problem(
        self, statistics: ConvolutionalStatistics, dictionary: Array, step: int
    ) -> ConvolutionalDictionary:
        """Return the filter problem of the statistics."""
        return ConvolutionalDictionary(statistics)

    def statistics(self, dictionary: Array, data: Array, codes: Array, step: int) -> ConvolutionalStatistics:
        """Return the statistics of data and codes."""
        return ConvolutionalStatistics.of(planes_first(data), planes_first(codes))

    def replace_atoms(self, dictionary: Array, unused: np.ndarray, images: Array) -> Array:
        """Put each image's patch of most energy, scaled to unit length, in place of an unused filter."""
        replaced = dictionary + 0.0
        for index, atom in enumerate(np.flatnonzero(unused)):
            replaced[..., atom] = strongest_patch(images[..., index], dictionary.shape[0], dictionary.shape[1])
        return replaced


def strongest_patch(image: Array, down: int, across: int) -> Array:
    """Return the patch (down, across, channel) of an image (h, w, channel) with most energy, at unit length."""
    xp = namespace(image)
    height, width = image.shape[:2]
    window = xp.zeros((height, width), dtype=image.dtype, device=image.device)
    window[:down, :across] = 1.0
    energy_hat = rfft2((image**2).sum(-1), PLANES) * xp.conj(rfft2(window, PLANES))
    inside = irfft2(energy_hat, (height, width), PLANES)[: height - down + 1, : width - across + 1]
    top, left = divmod(int(inside.argmax()), width - across + 1)
    patch = image[top : top + down, left : left + across][..., None]
    return (patch / xp.clip(filter_norms(patch), xp.finfo(patch.dtype).tiny, None))[..., 0]
