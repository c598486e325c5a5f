"""The convolutional model of CSC: two-dimensional circular convolutions, with or without a graph.

    minimise over B   1/2 ||X - Σ_j D_j ⊛ B_j||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁
    minimise over D   1/2 ||X - Σ_j D_j ⊛ B_j||²   subject to   ||D_j||_F <= 1,  D_j zero outside its support

Images are periodic: a filter that leaves on one side comes back on the other. Shapes are samples-last: data
(height, width, channel, sample), codes (height, width, atom, sample), filters (down, across, channel, atom). In memory
planes are contiguous, ``(sample, atom, height, width)``, so that transforms run over contiguous planes and the codes of
one image fit into the cache. The dictionary problem flattens the half spectra of the planes to one frequency axis; a
frequency counts ``weight / (height · width)`` in every sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.random import RandomState
from numpy.typing import DTypeLike, NDArray
from scipy.sparse.linalg import splu

from tubal.backends.arrays import (
    Array,
    adjoint,
    as_complex_like,
    as_double,
    as_like,
    contiguous,
    irfft2,
    is_torch,
    namespace,
    new_zeros,
    own_threads,
    parallel_ranges,
    rfft2,
    spectrum_weights,
    to_numpy,
)
from tubal.backends.cpu import by_image as kernels
from tubal.problems.base import SpectralStatistics, SplitState, movement_from_squares
from tubal.problems.layout import ImageShape, Layout, planes_first, samples_last
from tubal.problems.linear_map import GraphTerm, LinearMapCoding, LinearMapModel

# The axes of a plane in arrays (..., height, width).
PLANE_AXES = (-2, -1)
# Filters with more pixels, channels included, are applied in the Fourier domain; smaller ones by compiled kernels.
LARGEST_PATCH = 256
DEFAULT_FILTERS = 45
DEFAULT_FILTER_SIDE = 8


# --- coding -----------------------------------------------------------------------------------------------------------
class ConvolutionalCoding(LinearMapCoding):
    """The coding problem of CSC; at every frequency its Gram matrix has rank one per channel.

    Parameters and attributes are those of :class:`LinearMapCoding`; the dictionary is one array of filters.
    """

    dictionary: Array

    @property
    def plane(self) -> tuple[int, int]:
        """Height and width of the images."""
        return int(self.data.shape[0]), int(self.data.shape[1])

    @property
    def codes_shape(self) -> tuple[int, ...]:
        """Shape (height, width, atom, sample) of the codes."""
        return (*self.plane, int(self.dictionary.shape[3]), int(self.data.shape[3]))

    def zeros(self) -> Array:
        """Return codes that are all zero, with contiguous planes."""
        height, width, n_atoms, n_samples = self.codes_shape
        return samples_last(new_zeros((n_samples, n_atoms, height, width), self.data))

    # --- spectra ------------------------------------------------------------------------------------------------------
    @cached_property
    def _exact_spectra(self) -> Array:
        """Spectra of the filters (channel, atom, height, half width), double precision."""
        return rfft2(filter_planes(as_double(self.dictionary), self.plane), PLANE_AXES)

    @cached_property
    def filter_spectra(self) -> Array:
        """Spectra of the filters (channel, atom, height, half width), in the precision of the data."""
        return as_complex_like(self._exact_spectra, self.data)

    @cached_property
    def channel_eigenbasis(self) -> tuple[Array, Array]:
        """Eigenvectors (height, half width, channel, channel) and eigenvalues of ``D̂ D̂ᴴ``, double precision.

        These are the non-zero eigenvalues of the Gram matrix of the codes.
        """
        xp = namespace(self.data)
        gram = xp.einsum("crhw,drhw->hwcd", self._exact_spectra, xp.conj(self._exact_spectra))
        values, vectors = xp.linalg.eigh(gram)
        return vectors, xp.clip(values, 0.0, None)

    @property
    def map_norm(self) -> float:
        """The largest eigenvalue of ``D̂ D̂ᴴ``; for grey images the largest ``Σ_j |D̂_j|²`` over frequencies."""
        return float(self.channel_eigenbasis[1].max())

    # --- the map ------------------------------------------------------------------------------------------------------
    def reconstruct(self, codes: Array) -> Array:
        """Return ``Σ_j D_j ⊛ B_j``."""
        planes = planes_first(codes)
        if self._driver is not None:
            return samples_last(self._driver.reconstruct(planes))
        product = namespace(codes).einsum("crhw,nrhw->nchw", self.filter_spectra, rfft2(planes, PLANE_AXES))
        return samples_last(irfft2(product, self.plane, PLANE_AXES))

    def correlate(self, images: Array) -> Array:
        """Return the correlation of images with every filter."""
        planes = planes_first(images)
        if self._driver is not None:
            return samples_last(self._driver.correlate(planes))
        xp = namespace(images)
        product = xp.einsum("crhw,nchw->nrhw", xp.conj(self.filter_spectra), rfft2(planes, PLANE_AXES))
        return samples_last(irfft2(product, self.plane, PLANE_AXES))

    def solve_shifted(self, right: Array, penalty: float) -> Array:
        """Solve ``DᵀD B + 2 α B L + penalty B = right``.

        With ``z = (2 α L + penalty)⁻¹ right`` the solution is ``z - Dᵀ (DDᵀ + 2 α L + penalty)⁻¹ D z``. So only images,
        one plane per channel, need a solve at every frequency (Sherman-Morrison; Bristow et al. 2013, Wohlberg 2014).
        The graph acts on samples alone, so it commutes with the map.
        """
        solved = right / penalty if self.graph is None else self._solve_graph(right, penalty)
        return solved - self.correlate(self.solve_images(self.reconstruct(solved), penalty))

    def _nearly_solve_shifted(self, right: Array, shift: float) -> Array:
        # The solution is a small difference of large terms, so a solve of images to two digits would not do.
        return self.solve_shifted(right, shift)

    def solve_images(self, images: Array, penalty: float) -> Array:
        """Return ``(DDᵀ + 2 α L + penalty)⁻¹`` applied to images, frequency by frequency."""
        xp = namespace(images)
        vectors, values = self.channel_eigenbasis
        basis = as_complex_like(vectors, self.data)
        rotated = xp.einsum("hwcd,nchw->dhwn", xp.conj(basis), rfft2(planes_first(images), PLANE_AXES))
        shifts = as_like(xp.moveaxis(values, -1, 0) + penalty, self.data)
        if self.graph is None:
            solved = self.solve_rows(rotated, shifts)
        else:
            both = xp.stack([rotated.real, rotated.imag])
            real, imaginary = self.solve_rows(both, xp.stack([shifts, shifts]))
            solved = real + 1j * imaginary
        spectra = xp.einsum("hwcd,dhwn->nchw", basis, solved)
        return samples_last(irfft2(spectra, self.plane, PLANE_AXES))

    def _solve_graph(self, right: Array, penalty: float) -> Array:
        """Return ``(2 α L + penalty)⁻¹`` applied to the samples of every coefficient."""
        if self._driver is not None:
            return samples_last(self._driver.solve_graph(planes_first(right), penalty))
        assert self.graph is not None
        return self.graph.solve(right, 0.0 * right[..., 0] + penalty)

    def statistics(self, codes: Array) -> ConvolutionalStatistics:
        """Return the statistics of the filter step."""
        return ConvolutionalStatistics.of(planes_first(self.data), planes_first(codes))

    # --- ADMM by compiled kernels -------------------------------------------------------------------------------------
    @cached_property
    def _driver(self) -> NumbaConvolution | None:
        if is_torch(self.data) or prod(self.dictionary.shape[:3]) > LARGEST_PATCH:
            return None
        return NumbaConvolution(self.dictionary, self.graph, self.data.dtype)

    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Make steps of over-relaxed ADMM."""
        driver = self._driver
        if driver is None:
            return super().split(state, penalty=penalty, relaxation=relaxation, n_steps=n_steps, tol=tol)
        point, bound = planes_first(state.point), self.sparsity / penalty
        former = state.movement if self.independent else None
        active = np.ones(len(point), np.bool_) if former is None else former > tol
        with self._warm_started(state) as systems:
            if self.graph is None:
                images, response = planes_first(self.data), self._response(penalty)
                movement = driver.split_independent(point, images, response, bound, relaxation, n_steps, active)
            else:
                linear = planes_first(self.linear)
                for _ in range(n_steps):
                    solved = driver.solve_step(point, linear, bound, penalty)
                    correction = self.solve_images(samples_last(driver.reconstruct(solved)), penalty)
                    movement = driver.relax(point, solved, planes_first(correction), bound, relaxation, active)
        if (
            former is not None
        ):  # images that have converged stay as they are: an image's codes must not depend on its batch
            movement = np.where(active, movement, former)
        return SplitState(samples_last(point), movement, systems)

    def _response(self, penalty: float) -> Array:
        """Return ``(D̂ D̂ᴴ + penalty)⁻¹ / (height · width)`` as (channel, channel, height, half width)."""
        vectors, values = self.channel_eigenbasis
        inverse = np.einsum("hwcd,hwd,hwed->cehw", vectors, 1.0 / (values + penalty), vectors.conj())
        return contiguous(as_complex_like(inverse / prod(self.plane), self.data))


# --- filters ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ConvolutionalStatistics(SpectralStatistics):
    """Sums over images that the filter step needs.

    Parameters
    ----------
    gram : complex array of shape (frequency, atom, atom)
        ``B̂ B̂ᴴ`` at every frequency of the half plane, summed over images.
    cross : complex array of shape (frequency, channel, atom)
        ``X̂ B̂ᴴ`` at the same frequencies.
    squares : float
        ``||X||²``.
    plane : tuple of int
        Height and width of the images.
    """

    plane: tuple[int, int]

    @classmethod
    def of(cls, data: Array, codes: Array, block: int = 32) -> ConvolutionalStatistics:
        """Sum over images (n, channel, height, width) and codes (n, atom, height, width), ``block`` at a time."""
        gram = cross = 0.0
        for start in range(0, data.shape[0], block):
            code_slices = _by_frequency(codes[start : start + block])
            image_slices = _by_frequency(data[start : start + block])
            right = adjoint(code_slices)
            gram = gram + as_double(code_slices @ right)
            cross = cross + as_double(image_slices @ right)
        return cls(gram, cross, float((as_double(data) ** 2).sum()), (int(data.shape[2]), int(data.shape[3])))

    @property
    def counts(self) -> Array:
        """How often each frequency of the half spectrum occurs in the full spectrum, (frequency,)."""
        height, width = self.plane
        along = spectrum_weights(width, self.gram.real)
        return namespace(along).tile(along, (height,))

    @property
    def usage(self) -> Array:
        """Squared norm of each filter's codes, (atom,): exactly zero for a filter that no image uses."""
        diagonal = namespace(self.gram).diagonal(self.gram, 0, 1, 2).real
        return (self.counts[:, None] * diagonal).sum(0) / prod(self.plane)


def _by_frequency(planes: Array) -> Array:
    """Return the spectra (frequency, plane, image) of planes (image, plane, height, width)."""
    spectra = rfft2(planes, PLANE_AXES)
    flat = spectra.reshape(*spectra.shape[:2], -1)
    return contiguous(namespace(flat).moveaxis(flat, (0, 1, 2), (2, 1, 0)))


class ConvolutionalDictionary:
    """The filter problem of given statistics; dictionaries are arrays (down, across, channel, atom).

    Parameters
    ----------
    statistics : ConvolutionalStatistics
        Statistics of all images; they say how large the planes of the images are.
    """

    def __init__(self, statistics: ConvolutionalStatistics) -> None:
        self.statistics = statistics
        self.counts = statistics.counts / float(prod(statistics.plane))

    @cached_property
    def lipschitz(self) -> float:
        """The largest eigenvalue of ``B̂ B̂ᴴ`` over all frequencies.

        Frequencies are visited in the order of decreasing traces. No eigenvalue exceeds the trace of its matrix, so
        most matrices need no decomposition.
        """
        xp = namespace(self.statistics.gram)
        traces = xp.diagonal(self.statistics.gram, 0, 1, 2).real.sum(1)
        largest = 0.0
        for frequency in xp.argsort(-traces):
            if float(traces[frequency]) <= largest:
                break
            largest = max(largest, float(xp.linalg.eigvalsh(self.statistics.gram[frequency])[-1]))
        return largest

    def value(self, dictionary: Array) -> float:
        """Return ``1/2 ||X - Σ_j D_j ⊛ B_j||²``, computed from the statistics alone."""
        spectrum, statistics = self.to_spectrum(dictionary), self.statistics
        conjugate = namespace(spectrum).conj(spectrum)
        quadratic = ((spectrum @ statistics.gram) * conjugate).real.sum((1, 2))
        linear = (statistics.cross * conjugate).real.sum((1, 2))
        return 0.5 * statistics.squares + float((self.counts * (0.5 * quadratic - linear)).sum())

    def gradient(self, dictionary: Array) -> Array:
        """Return the gradient on the support, in double precision."""
        slope = self.to_spectrum(dictionary) @ self.statistics.gram - self.statistics.cross
        height, width = self.statistics.plane
        spectra = namespace(slope).moveaxis(slope, 0, -1)
        planes = irfft2(spectra.reshape(*spectra.shape[:2], height, width // 2 + 1), (height, width), PLANE_AXES)
        down, across = dictionary.shape[:2]
        cropped = planes[:, :, :down, :across]
        return namespace(cropped).moveaxis(cropped, (0, 1, 2, 3), (2, 3, 0, 1))

    def project(self, dictionary: Array) -> Array:
        """Return the nearest filters in the unit ball."""
        return filters_to_ball(dictionary)

    def to_spectrum(self, dictionary: Array) -> Array:
        """Return the spectra of the filters (frequency, channel, atom), in double precision."""
        planes = filter_planes(as_double(dictionary), self.statistics.plane)
        spectra = rfft2(planes, PLANE_AXES)
        flat = spectra.reshape(*spectra.shape[:2], -1)
        return namespace(flat).moveaxis(flat, -1, 0)


def filter_planes(dictionary: Array, plane: tuple[int, int]) -> Array:
    """Return filters (down, across, channel, atom) as planes (channel, atom, height, width), padded with zeros."""
    down, across, n_channels, n_atoms = dictionary.shape
    planes = new_zeros((n_channels, n_atoms, *plane), dictionary)
    planes[:, :, :down, :across] = namespace(dictionary).moveaxis(dictionary, (0, 1, 2, 3), (2, 3, 0, 1))
    return planes


def filters_to_ball(dictionary: Array) -> Array:
    """Scale every filter with a norm above one back to norm one."""
    return dictionary / namespace(dictionary).clip(filter_norms(dictionary), 1.0, None)


def filter_norms(dictionary: Array) -> Array:
    """Return the Frobenius norm of every filter."""
    return namespace(dictionary).sqrt((dictionary**2).sum((0, 1, 2)))


def strongest_patch(image: Array, down: int, across: int) -> Array:
    """Return the patch (down, across, channel) of an image (height, width, channel) with most energy, at unit norm."""
    xp = namespace(image)
    height, width = image.shape[:2]
    window = new_zeros((height, width), image)
    window[:down, :across] = 1.0
    energy_hat = rfft2((image**2).sum(-1), PLANE_AXES) * xp.conj(rfft2(window, PLANE_AXES))
    inside = irfft2(energy_hat, (height, width), PLANE_AXES)[: height - down + 1, : width - across + 1]
    top, left = divmod(int(inside.argmax()), width - across + 1)
    patch = image[top : top + down, left : left + across][..., None]
    return (patch / xp.clip(filter_norms(patch), xp.finfo(patch.dtype).tiny, None))[..., 0]


# --- the model --------------------------------------------------------------------------------------------------------
class ConvolutionalModel(LinearMapModel):
    """Images as sums of small filters at many places.

    A dictionary is one array (down, across, channel, atom). Data are (height, width, channel, image), codes (height,
    width, atom, image).
    """

    coding_problem = ConvolutionalCoding

    def statistics(self, dictionary: Array, data: Array, codes: Array, step: int) -> ConvolutionalStatistics:
        return ConvolutionalStatistics.of(planes_first(data), planes_first(codes))

    def dictionary_problem(
        self, statistics: ConvolutionalStatistics, dictionary: Array, step: int
    ) -> ConvolutionalDictionary:
        return ConvolutionalDictionary(statistics)

    def replace_atoms(self, dictionary: Array, unused: NDArray[np.bool_], images: Array) -> Array:
        """Replace unused filters by the patches of images with most energy, scaled to unit norm.

        Parameters
        ----------
        dictionary : array of shape (down, across, channel, atom)
            The current filters.
        unused : bool array of shape (atom,)
            Which filters to replace.
        images : array of shape (height, width, channel, n_unused)
            Badly reconstructed images, one for each unused filter.

        Returns
        -------
        array of shape (down, across, channel, atom)
            The new filters.
        """
        replaced = dictionary + 0.0
        for index, atom in enumerate(np.flatnonzero(unused)):
            replaced[..., atom] = strongest_patch(images[..., index], dictionary.shape[0], dictionary.shape[1])
        return replaced


# --- the iterations on NumPy arrays -------------------------------------------------------------------------
# Row pointers, columns and values of a triangular factor without its diagonal, and the inverse of the diagonal.
Factor: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any], NDArray[Any]]


class NumbaConvolution:
    """Convolutions and ADMM steps for one set of filters.

    Parameters
    ----------
    filters : array of shape (down, across, channel, atom)
        The filters.
    graph : GraphTerm, optional
        The graph term.
    dtype : dtype
        Floating type of the images.
    """

    def __init__(self, filters: NDArray[Any], graph: GraphTerm | None, dtype: np.dtype[Any]) -> None:
        self.graph, self.dtype = graph, dtype
        down, across, self.n_channels, n_atoms = filters.shape
        self.support = (down, across)
        flat = np.moveaxis(filters, 2, 0).reshape(self.n_channels * down * across, n_atoms)
        self.filters = np.ascontiguousarray(flat, self.dtype)
        self.filters_t = np.ascontiguousarray(self.filters.T)
        self._factors: dict[float, RowFactors] = {}
        self._solved: NDArray[Any] | None = None

    def reconstruct(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the images (image, channel, height, width) of codes (image, atom, height, width)."""
        images = np.empty((codes.shape[0], self.n_channels, *codes.shape[2:]), self.dtype)
        rows = _flat_planes(codes)
        _over_images(
            lambda start, stop: kernels.reconstruct_images(rows, self.filters, self.support, start, stop, images),
            len(images),
        )
        return images

    def correlate(self, images: NDArray[Any]) -> NDArray[Any]:
        """Return the correlations (image, atom, height, width) of images with the filters."""
        codes = np.empty((images.shape[0], self.filters.shape[1], *images.shape[2:]), self.dtype)
        rows = _flat_planes(codes)
        _over_images(
            lambda start, stop: kernels.correlate_images(images, self.filters_t, self.support, start, stop, rows),
            len(images),
        )
        return codes

    # --- ADMM without a graph -----------------------------------------------------------------------------------------
    def split_independent(
        self, point: NDArray[Any], images: NDArray[Any], response: NDArray[Any], bound: float, relaxation: float,
        n_steps: int, active: NDArray[np.bool_],
    ) -> NDArray[np.float64]:  # fmt: skip
        """Make steps on the active images, in place; return the relative change of every image in the last step.

        ``response`` is ``(D̂ D̂ᴴ + penalty)⁻¹ / (height · width)`` as (channel, channel, height, half width).
        """
        rows, number = _flat_planes(point), self.dtype.type
        change, size = np.zeros(len(point)), np.zeros(len(point))
        transforms = plane_transforms(images.shape[2:], self.dtype)
        _over_images(
            lambda start, stop: kernels.split_images(
                rows, images, self.filters, self.filters_t, self.support, response, *transforms, number(bound),
                number(relaxation), n_steps, active, start, stop, change, size,
            ),
            len(point),
        )  # fmt: skip
        return movement_from_squares(change, size)

    # --- ADMM with a graph --------------------------------------------------------------------------------------------
    def solve_step(self, point: NDArray[Any], linear: NDArray[Any], bound: float, penalty: float) -> NDArray[Any]:
        """Return ``(2 α L + penalty)⁻¹`` applied to ``linear + penalty · (point - 2 clip(point))``."""
        number, factors = self.dtype.type, self._factors_of(penalty)
        if factors is None:
            clipped = np.clip(point, -number(bound), number(bound))
            return self.solve_graph(linear + penalty * (point - 2.0 * clipped), penalty)
        if self._solved is None:
            self._solved = np.empty_like(point)
        flat_point, flat_linear, solved = (_flat_images(array) for array in (point, linear, self._solved))
        factors.over_coefficients(
            lambda start, stop: kernels.solve_factored_step(
                flat_point, flat_linear, number(bound), number(penalty), *factors.parts, start, stop, solved
            ),
            flat_point.shape[1],
        )
        return self._solved

    def relax(
        self, point: NDArray[Any], solved: NDArray[Any], correction: NDArray[Any], bound: float, relaxation: float,
        active: NDArray[np.bool_],
    ) -> NDArray[np.float64]:  # fmt: skip
        """Move ``point`` towards ``solved`` minus the correlation of ``correction``; return the relative changes."""
        rows, found, number = _flat_planes(point), _flat_planes(solved), self.dtype.type
        change, size = np.zeros(len(point)), np.zeros(len(point))
        _over_images(
            lambda start, stop: kernels.relax_images(
                found, correction, self.filters_t, self.support, number(bound), number(relaxation), active, start,
                stop, rows, change, size,
            ),
            len(point),
        )  # fmt: skip
        return movement_from_squares(change, size)

    def solve_graph(self, right: NDArray[Any], penalty: float) -> NDArray[Any]:
        """Return ``(2 α L + penalty)⁻¹`` applied to the images of every coefficient of ``right``."""
        assert self.graph is not None
        factors, flat = self._factors_of(penalty), _flat_images(right)
        if factors is None:
            rows = np.ascontiguousarray(flat.T)
            return np.ascontiguousarray(self.graph.solve(rows, np.full(len(rows), penalty)).T).reshape(right.shape)
        solution, one = np.empty_like(flat), self.dtype.type(1.0)
        factors.over_coefficients(
            lambda start, stop: kernels.solve_factored(flat, one, *factors.parts, start, stop, solution),
            flat.shape[1],
        )
        return solution.reshape(right.shape)

    def _factors_of(self, penalty: float) -> RowFactors | None:
        """Return the factors of ``2 α L + penalty``, or None if they are not sparse enough."""
        if penalty not in self._factors:
            assert self.graph is not None
            self._factors = {penalty: RowFactors(self.graph.laplacian, 2.0 * self.graph.weight, penalty, self.dtype)}
        factors = self._factors[penalty]
        return factors if factors.sparse_enough else None


def _over_images(work: Callable[[int, int], None], n_images: int) -> None:
    with own_threads() as threads:
        parallel_ranges(work, n_images, grain=1, threads=threads)


def _flat_planes(planes: NDArray[Any]) -> NDArray[Any]:
    """Return a view (image, plane, height · width)."""
    return planes.reshape(*planes.shape[:2], prod(planes.shape[2:]))


def _flat_images(planes: NDArray[Any]) -> NDArray[Any]:
    """Return a view (image, plane · height · width)."""
    return planes.reshape(len(planes), prod(planes.shape[1:]))


class RowFactors:
    """Triangular factors of ``weight · L + shift``, the one system that all coefficients of the codes share.

    The factors of a neighbour graph stay sparse. Substitution then costs about as much as three steps of conjugate
    gradients, and it is exact.

    Parameters
    ----------
    laplacian : sparse array of shape (n_images, n_images)
        The graph Laplacian.
    weight, shift : float
        The two numbers of the system.
    dtype : dtype
        Floating type of the factors.

    Attributes
    ----------
    sparse_enough : bool
        Whether substitution is cheaper than conjugate gradients.
    parts : tuple
        The place of every image in the factors, and the lower and the upper factor.
    """

    max_fill = 40  # entries of the factors per entry of the matrix above which conjugate gradients are cheaper

    def __init__(self, laplacian: sp.csr_array, weight: float, shift: float, dtype: DTypeLike) -> None:
        matrix = sp.csc_array(weight * laplacian + shift * sp.eye_array(laplacian.shape[0]))
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        # Without pivoting rows and columns are permuted alike, and a diagonally dominant matrix needs no pivoting.
        alike = np.array_equal(factors.perm_r, factors.perm_c)
        self.sparse_enough = bool(alike and factors.nnz <= self.max_fill * matrix.nnz)
        order = factors.perm_r.astype(np.int64)
        self.parts = (order, _triangle(factors.L, dtype, upper=False), _triangle(factors.U, dtype, upper=True))

    def over_coefficients(self, work: Callable[[int, int], None], n_coefficients: int) -> None:
        """Run ``work(start, stop)`` over strips of coefficients, in several threads."""
        with own_threads() as threads:
            parallel_ranges(work, -(-n_coefficients // kernels.STRIP), grain=1, threads=threads)


def _triangle(factor: sp.csc_array, dtype: DTypeLike, *, upper: bool) -> Factor:
    """Return one triangular factor as the kernels read it."""
    rows = sp.csr_array(sp.triu(factor, 1) if upper else sp.tril(factor, -1))
    inverse = 1.0 / factor.diagonal()
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data.astype(dtype), inverse.astype(dtype)


def plane_transforms(
    plane: tuple[int, ...], dtype: DTypeLike
) -> tuple[NDArray[Any], NDArray[np.complexfloating], NDArray[Any]]:
    """Return the Fourier transforms of small planes as matrices: rows to half spectra, columns, and rows back.

    Half spectra of rows have real and imaginary parts interleaved. The matrices contain no scale factors.
    """
    height, width = plane
    half = width // 2 + 1
    angles = 2.0 * np.pi * np.outer(np.arange(width), np.arange(half)) / width
    along = np.stack([np.cos(angles), -np.sin(angles)], axis=2).reshape(width, 2 * half)
    weights = np.full(half, 2.0)
    weights[0] = 1.0
    if width % 2 == 0:
        weights[-1] = 1.0
    back = (along * np.repeat(weights, 2)).T
    turns = np.outer(np.arange(height), np.arange(height)) % height
    down = np.exp(-2j * np.pi * turns / height)
    kind = np.complex64 if dtype == np.float32 else np.complex128
    return np.ascontiguousarray(along, dtype), down.astype(kind), np.ascontiguousarray(back, dtype)


# --- the dictionary of a coder ----------------------------------------------------------------------------------------
def convolutional_model(image_shape: ImageShape) -> ConvolutionalModel:
    """Return the convolutional model, which is the same for images of all shapes."""
    return ConvolutionalModel()


def filter_atoms(layout: Layout, dictionary: Array) -> dict[str, Any]:
    """Return the fitted attributes of filters (down, across, channel, atom)."""
    xp = namespace(dictionary)
    filters = xp.moveaxis(dictionary, 3, 0)
    height, width = layout.image_shape[:2]
    planes = filter_planes(dictionary, (height, width))
    return {
        "n_atoms_": int(dictionary.shape[3]),
        "filter_shape_": tuple(int(side) for side in dictionary.shape[:2]),
        "filters_": filters if len(layout.image_shape) > 2 else filters[..., 0],
        "atoms_": layout.to_images(xp.moveaxis(planes, (0, 1, 2, 3), (2, 3, 0, 1))),
    }


def fitting_filter_shape(filter_shape: Sequence[int] | None, image_shape: ImageShape) -> tuple[int, int]:
    """Return the shape of a filter, or raise an error if it does not fit into images of this shape.

    >>> fitting_filter_shape(None, (32, 5))
    (8, 5)
    """
    height, width = image_shape[:2]
    if height * width == 1:
        raise ValueError(
            "n_features = 1: images of one pixel have nowhere to move a filter to; use SparseCoding or larger images"
        )
    if filter_shape is None:
        return min(DEFAULT_FILTER_SIDE, height), min(DEFAULT_FILTER_SIDE, width)
    down, across = (int(side) for side in filter_shape)
    if down > height or across > width:
        raise ValueError(
            f"filters of {down} × {across} pixels are larger than the images of {height} × {width}; choose a "
            "filter_shape that fits into an image"
        )
    return down, across


def filter_count(n_atoms: int | None, image_shape: ImageShape) -> int:
    """Return the number of filters, or raise an error if it exceeds the number of pixels."""
    n_pixels = prod(image_shape)
    if n_atoms is None:
        return min(DEFAULT_FILTERS, n_pixels)
    if n_atoms > n_pixels:
        raise ValueError(
            f"n_atoms={n_atoms} filters for images of {n_pixels} pixels: each filter is placed at every pixel, so more "
            f"than one per pixel only repeat each other; use at most {n_pixels}"
        )
    return int(n_atoms)


def initial_filters(
    data: Array, layout: Layout, random: RandomState, *, n_atoms: int | None, filter_shape: Sequence[int] | None,
    init: str | Array,
) -> Array:  # fmt: skip
    """Return initial filters (down, across, channel, atom): patches of random images, random numbers, or ``init``."""
    down, across = fitting_filter_shape(filter_shape, layout.image_shape)
    count = filter_count(n_atoms, layout.image_shape)
    height, width, n_channels, n_samples = (int(size) for size in data.shape)
    if not isinstance(init, str):
        return _given_filters(init, (count, down, across, n_channels), data)
    filters = random.standard_normal((down, across, n_channels, count))
    if init == "images":
        images = to_numpy(data[..., random.randint(0, n_samples, count)])
        for atom in range(count):
            top, left = random.randint(height - down + 1), random.randint(width - across + 1)
            patch = images[top : top + down, left : left + across, :, atom]
            # A blank or constant patch carries no information; such a filter stays random.
            if np.ptp(patch) > 0:
                filters[..., atom] = patch
    return as_like(filters / filter_norms(filters), data[..., :1])


def _given_filters(init: Array, wanted: tuple[int, ...], data: Array) -> Array:
    """Return the user's filters (atom, height, width[, channel]) as (down, across, channel, atom), in the unit ball."""
    filters = as_like(init, data[..., :1])
    if filters.ndim == 3:
        filters = filters[..., None]
    if tuple(filters.shape) != wanted:
        raise ValueError(f"init has shape {tuple(filters.shape)}; (atom, height, width, channel) = {wanted} is wanted")
    if not bool(namespace(filters).isfinite(filters).all()):
        raise ValueError("init has a value that is infinite or not a number; every filter must be finite")
    return filters_to_ball(namespace(filters).moveaxis(filters, 0, 3))
