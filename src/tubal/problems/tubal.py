"""The tubal model: coding problem, statistics, dictionary problem (eqs. 1-3, 8-19).

    minimise over B   1/2 ||X - D * B||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁
    minimise over D   1/2 ||X - D * B||²   subject to   ||D(:, j, :)||_F <= 1

TubSC and GTSC use it with tubes along one side of the image, SC and GraphSC with tubes of length one. Arrays are
tube-first: dictionary (tube, row, atom), data (tube, row, sample), codes (tube, atom, sample).

The dictionary problem is solved in double precision on half spectra. There a frequency counts ``weight / k`` in every
norm and trace, with weight 2 for inner frequencies. So the objective is the paper's (15), which (16) prints 2k times
too large. Statistics of tensors may be NumPy arrays: they are small, and the host is faster at the dictionary step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from tubal.algebra import (
    BlockOperator,
    TubalMap,
    from_coefficients,
    hermitian_parts,
    slices_from_parts,
    spectrum_weights,
    to_coefficients,
)
from tubal.backends.arrays import Array, as_double, as_like, irfft, is_torch, namespace, restore_like, rfft, to_numpy
from tubal.problems.base import (
    ImageModel,
    Laplacian,
    MomentumState,
    SplitState,
    Summary,
    atom_norms,
    project_to_ball,
)
from tubal.problems.linear_map import LinearMapCoding, SharedLaplacian
from tubal.problems.tubal_numba import NumbaTubalCoding
from tubal.problems.tubal_torch import TorchTubalCoding


# --- coding -----------------------------------------------------------------------------------------------------------
class TubalCoding(LinearMapCoding):
    """The coding problem of TubSC and GTSC; with tubes of length one, of SC and GraphSC.

    Parameters and attributes are those of :class:`LinearMapCoding`; the dictionary is one array (tube, row, atom).
    """

    dictionary: Array

    @property
    def codes_shape(self) -> tuple[int, ...]:
        """Shape (tube, atom, sample) of the codes."""
        return (self.data.shape[0], self.dictionary.shape[2], self.data.shape[2])

    @cached_property
    def map(self) -> TubalMap:
        """The map from codes to images in the Fourier basis."""
        return TubalMap(self.dictionary, self.data, on_host=self.graph is not None)

    @property
    def tube_length(self) -> int:
        """Length of a tube."""
        return self.map.tube_length

    @property
    def map_norm(self) -> float:
        """``max_l σ_max(D̂_l)²``, far below the sum in eq. 14.

        It is exact, because the norm of a block-circulant matrix is the largest norm of a slice.
        """
        return float(namespace(self.map.gram_hat).linalg.eigvalsh(self.map.gram_hat).max())

    @cached_property
    def printed_lipschitz(self) -> float:
        """The constant of Algorithm 1, line 4, as printed: a sum of Frobenius norms over all k slices."""
        xp = namespace(self.map.gram_hat)
        norms = xp.sqrt((abs(self.map.gram_hat) ** 2).sum((1, 2)))
        total = float((spectrum_weights(self.tube_length, norms) * norms).sum())
        return total + (self.graph.lipschitz if self.graph else 0.0)

    def reconstruct(self, codes: Array) -> Array:
        """Return ``D * B`` (eq. 1)."""
        return from_coefficients(self.map.forward @ to_coefficients(codes))

    def correlate(self, images: Array) -> Array:
        """Return ``D† * X``."""
        return from_coefficients(self.map.adjoint @ to_coefficients(images))

    def hessian_product(self, codes: Array) -> Array:
        """Return ``D† * D * B + 2 α B L`` (eq. 13)."""
        product = from_coefficients(self.map.gram @ to_coefficients(codes))
        return product if self.graph is None else product + self.graph.product(codes)

    def solve_shifted(self, right: Array, penalty: float) -> Array:
        """Solve ``D† * D * B + 2 α B L + penalty B = right``.

        Without a graph this is an atoms × atoms inverse for every frequency. With a graph it is a Sylvester equation,
        solved in the eigenbasis of each frequency's Gram matrix, where every row has its own shifted system in L.
        """
        if self.graph is None:
            return from_coefficients(self.map.shifted_inverse(penalty) @ to_coefficients(right)) / penalty
        rotation, eigenvalues = self.map.eigenbasis
        rotated = self.graph.solve(rotation @ to_coefficients(right), eigenvalues + penalty)
        return from_coefficients(rotation.transpose @ rotated)

    def statistics(self, codes: Array) -> TubalStatistics:
        """Return the statistics of the dictionary step."""
        return TubalStatistics.from_coefficients(to_coefficients(self.data), to_coefficients(codes))

    # --- the same iterations in fused code ----------------------------------------------------------------------------
    @cached_property
    def _driver(self) -> NumbaTubalCoding | TorchTubalCoding:
        kind = TorchTubalCoding if is_torch(self.data) else NumbaTubalCoding
        return kind(self.map, self.data, sparsity=self.sparsity, graph=self.graph)

    def summary(self, codes: Array, *, statistics: bool = False) -> Summary:
        """Return the terms of the objective for each image and, if asked for, the statistics."""
        residuals, absolutes, parts = self._driver.summarize(codes, statistics=statistics)
        found = reduce(add, (TubalStatistics.from_parts(*part) for part in parts)) if statistics else None
        return self._summarize(codes, residuals, absolutes, found)

    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Make steps of over-relaxed ADMM."""
        return self._driver.split(state, penalty=penalty, relaxation=relaxation, n_steps=n_steps, tol=tol)

    def plain_state(self, state: SplitState, *, final: bool = False) -> SplitState:
        """Return the state with its point as one array and without the data kept for speed."""
        if isinstance(self._driver, NumbaTubalCoding):
            return self._driver.plain_state(state, final=final)
        return super().plain_state(state, final=final)

    def accelerate(self, state: MomentumState, *, step_size: float, n_steps: int) -> MomentumState:
        """Make steps of Algorithm 1."""
        if isinstance(self._driver, NumbaTubalCoding):
            return self._driver.accelerate(state, self.linear, step_size=step_size, n_steps=n_steps)
        return super().accelerate(state, step_size=step_size, n_steps=n_steps)


# --- dictionary -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TubalStatistics:
    """What the dictionary step needs to know about any number of images.

    Parameters
    ----------
    gram : complex array of shape (frequency, atom, atom)
        ``B̂ B̂ᴴ``, summed over images.
    cross : complex array of shape (frequency, row, atom)
        ``X̂ B̂ᴴ``, summed over images.
    squares : float
        ``||X||²``.
    tube_length : int
        Length of a tube.
    """

    gram: Array
    cross: Array
    squares: float
    tube_length: int

    @classmethod
    def from_parts(cls, gram: Array, cross: Array, squares: float) -> TubalStatistics:
        """Build from the Hermitian parts (tube, atom, atom) and (tube, row, atom) of ``algebra.hermitian_parts``."""
        tube_length = gram.shape[0]
        counts = spectrum_weights(tube_length, gram) / tube_length
        return cls(slices_from_parts(gram, counts), slices_from_parts(cross, counts), squares, tube_length)

    @classmethod
    def from_coefficients(cls, data_hat: Array, codes_hat: Array) -> TubalStatistics:
        """Build from the real Fourier coefficients of data (tube, row, sample) and codes (tube, atom, sample)."""
        squares = float((as_double(data_hat) ** 2).sum())
        return cls.from_parts(_product_parts(codes_hat, codes_hat), _product_parts(data_hat, codes_hat), squares)

    def __add__(self, other: TubalStatistics) -> TubalStatistics:
        """Return the statistics of both sets of images together."""
        return TubalStatistics(
            self.gram + other.gram, self.cross + other.cross, self.squares + other.squares, self.tube_length
        )

    def scaled(self, factor: float) -> TubalStatistics:
        """Return the statistics with every image counted ``factor`` times.

        Parameters
        ----------
        factor : float
            Weight of the images.

        Returns
        -------
        TubalStatistics
            The scaled statistics.
        """
        return TubalStatistics(factor * self.gram, factor * self.cross, factor * self.squares, self.tube_length)

    @cached_property
    def usage(self) -> Array:
        """Squared norm of each atom's codes, (atom,): zero for an atom that no image uses."""
        diagonal = namespace(self.gram).diagonal(self.gram, 0, 1, 2).real
        counts = spectrum_weights(self.tube_length, diagonal)[:, None] / self.tube_length
        return (counts * diagonal).sum(0)


def _product_parts(left: Array, right: Array) -> Array:
    """Return the Hermitian parts of left · rightᵀ, given real Fourier coefficients (tube, ·, sample) of both."""
    tube_length, n_samples = right.shape[0], right.shape[2]
    n_head, swapaxes = tube_length % 2, namespace(right).swapaxes
    head = as_double(left[:n_head] @ swapaxes(right[:n_head], 1, 2))
    left_pairs, right_pairs = (
        side[n_head:].reshape(tube_length // 2, 2 * side.shape[1], n_samples) for side in (left, right)
    )
    return hermitian_parts(BlockOperator(head, as_double(left_pairs @ swapaxes(right_pairs, 1, 2))))


class TubalDictionary:
    """The dictionary problem of given statistics; dictionaries are arrays (tube, row, atom).

    Parameters
    ----------
    statistics : TubalStatistics
        Statistics of all images.
    """

    def __init__(self, statistics: TubalStatistics) -> None:
        self.statistics = statistics
        self.counts = spectrum_weights(statistics.tube_length, statistics.gram.real) / statistics.tube_length

    @property
    def lipschitz(self) -> float:
        """The largest eigenvalue of ``B̂ B̂ᴴ`` over all frequencies."""
        return float(namespace(self.statistics.gram).linalg.eigvalsh(self.statistics.gram).max())

    def value(self, dictionary: Array) -> float:
        """Return ``1/2 ||X - D * B||²``, computed from the statistics alone."""
        gram, cross, dictionary_hat = self.statistics.gram, self.statistics.cross, self.to_spectrum(dictionary)
        conjugate = namespace(gram).conj(dictionary_hat)
        quadratic = ((dictionary_hat @ gram) * conjugate).real.sum((1, 2))
        linear = (cross * conjugate).real.sum((1, 2))
        return 0.5 * self.statistics.squares + float((self.counts * (0.5 * quadratic - linear)).sum())

    def gradient(self, dictionary: Array) -> Array:
        """Return the gradient ``(D * B - X) * B†``, in double precision."""
        slope_hat = self.to_spectrum(dictionary) @ self.statistics.gram - self.statistics.cross
        return restore_like(irfft(slope_hat, self.statistics.tube_length, axis=0), dictionary)

    def project(self, dictionary: Array) -> Array:
        """Return the nearest dictionary whose atoms lie in the unit ball."""
        return project_to_ball(dictionary)

    def to_spectrum(self, dictionary: Array) -> Array:
        """Return the half spectrum of a dictionary in double precision, in the library of the statistics."""
        here = dictionary if is_torch(self.statistics.gram) else to_numpy(dictionary)
        return rfft(as_double(here), axis=0)

    def from_spectrum(self, dictionary_hat: Array, like: Array) -> Array:
        """Return the dictionary of a half spectrum, projected to the unit ball, as an array like ``like``."""
        return as_like(self.project(irfft(dictionary_hat, self.statistics.tube_length, axis=0)), like)


# --- the model --------------------------------------------------------------------------------------------------------
class TubalModel(ImageModel):
    """Images as tensor-linear combinations of atoms (eq. 2); a dictionary is one array (tube, row, atom)."""

    def coding(
        self,
        dictionary: Array,
        data: Array,
        *,
        sparsity: float,
        graph_weight: float = 0.0,
        laplacian: SharedLaplacian | Laplacian | None = None,
        neighbor_sum: Array | None = None,
    ) -> TubalCoding:
        """Return the coding problem of some images.

        Parameters
        ----------
        dictionary : array of shape (tube, row, atom)
            The current dictionary.
        data : array of shape (tube, row, n_images)
            The images as :class:`tubal.layout.ImageLayout` arranges them.
        sparsity : float
            Weight of the l1 penalty.
        graph_weight : float, default=0.0
            Weight of the graph term.
        laplacian : matrix of shape (n_images, n_images), optional
            Graph Laplacian of these images.
        neighbor_sum : array of shape (tube, atom, n_images), optional
            Weighted sum of the fixed codes of neighbours that are not among these images.

        Returns
        -------
        TubalCoding
            The problem.
        """
        return TubalCoding(
            dictionary, data, sparsity=sparsity, graph_weight=graph_weight, laplacian=laplacian,
            neighbor_sum=neighbor_sum,
        )  # fmt: skip

    def dictionary_problem(self, statistics: TubalStatistics, dictionary: Array, step: int) -> TubalDictionary:
        """Return the dictionary problem.

        Parameters
        ----------
        statistics : TubalStatistics
            Statistics of all images.
        dictionary : array of shape (tube, row, atom)
            Ignored.
        step : int
            Ignored: the dictionary has one part.

        Returns
        -------
        TubalDictionary
            The problem.
        """
        return TubalDictionary(statistics)

    def statistics(self, dictionary: Array, data: Array, codes: Array, step: int) -> TubalStatistics:
        """Return the statistics of some images.

        Parameters
        ----------
        dictionary : array of shape (tube, row, atom)
            Ignored.
        data : array of shape (tube, row, n_images)
            The images.
        codes : array of shape (tube, atom, n_images)
            Their codes.
        step : int
            Ignored: the dictionary has one part.

        Returns
        -------
        TubalStatistics
            The statistics.
        """
        return TubalStatistics.from_coefficients(to_coefficients(data), to_coefficients(codes))

    def replace_atoms(self, dictionary: Array, unused: NDArray[np.bool_], images: Array) -> Array:
        """Replace unused atoms by images of unit norm.

        Parameters
        ----------
        dictionary : array of shape (tube, row, atom)
            The current dictionary.
        unused : bool array of shape (atom,)
            Which atoms to replace.
        images : array of shape (tube, row, n_unused)
            Badly reconstructed images, one for each unused atom.

        Returns
        -------
        array of shape (tube, row, atom)
            The new dictionary.
        """
        xp = namespace(dictionary)
        fresh = images / xp.clip(atom_norms(images), xp.finfo(images.dtype).tiny, None)
        replaced = dictionary + 0.0
        replaced[:, :, np.flatnonzero(unused)] = fresh
        return replaced
