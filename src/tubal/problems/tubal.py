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

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import (
    Array,
    as_double,
    as_like,
    irfft,
    is_torch,
    namespace,
    own_threads,
    parallel_ranges,
    restore_like,
    rfft,
    spectrum_weights,
    to_numpy,
)
from tubal.backends.cpu import coding as kernels
from tubal.backends.cpu.by_image import code_few
from tubal.problems.base import (
    GapTerms,
    MomentumState,
    SpectralStatistics,
    SplitState,
    Summary,
    atom_norms,
    movement_from_squares,
    project_to_ball,
)
from tubal.problems.linear_map import (
    BlockOperator,
    GraphTerm,
    LinearMapCoding,
    LinearMapModel,
    TubalMap,
    chebyshev_schedule,
    folded_basis,
    fourier_basis,
    from_coefficients,
    hermitian_parts,
    slices_from_parts,
    to_coefficients,
)
from tubal.problems.tubal_torch import TorchTubalCoding

# Every solve of a graph system reduces the error of its warm start by at least this factor. The error then decreases
# together with the changes of ADMM, so ADMM converges as with exact solves.
GRAPH_REDUCTION = 0.3
# Codes are few if the sparsity is at least this fraction of the value at which all are zero. At 0.1 an image of the
# paper's collections needs 7 to 14 codes, often found many times sooner than by ADMM; below 0.05 ADMM is faster.
FEW_CODES_SPARSITY = 0.05
# The width of a block is a multiple of this number: whole vector registers.
WIDTH_UNIT = 4
# Images to which a thread applies an operator at a time, at least.
_APPLIED_AT_A_TIME = 256
# Images summed in single precision before they are added to the double-precision totals.
STATISTICS_BLOCK = 512
# Terms of the objective and statistics are summed in at most this many parts, of at least this many images each. Every
# part needs arrays of its own for statistics, which take at most this many bytes together.
MAX_PARTS, MIN_PART, PART_BYTES = 16, 96, 2**28


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
        return _applied(self.map.forward, codes)

    def correlate(self, images: Array) -> Array:
        """Return ``D† * X``."""
        return _applied(self.map.adjoint, images)

    def hessian_product(self, codes: Array) -> Array:
        """Return ``D† * D * B + 2 α B L`` (eq. 13)."""
        product = _applied(self.map.gram, codes)
        if self.graph is not None:
            product += self.graph.product(codes)
        return product

    def gradient(self, codes: Array) -> Array:
        """Return the gradient of f (eq. 13)."""
        gradient = self.hessian_product(codes)
        gradient -= self.linear  # in the memory of the product, because new memory takes time
        return gradient

    def solve_shifted(self, right: Array, penalty: float) -> Array:
        """Solve ``D† * D * B + 2 α B L + penalty B = right``.

        Without a graph this is an atoms × atoms inverse for every frequency. With a graph it is a Sylvester equation,
        solved in the eigenbasis of each frequency's Gram matrix, where every row has its own shifted system in L.
        """
        if self.graph is None:
            return from_coefficients(self.map.shifted_inverse(penalty) @ to_coefficients(right)) / penalty
        rotation, eigenvalues = self.map.eigenbasis
        rotated = self.solve_rows(rotation @ to_coefficients(right), eigenvalues + penalty)
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

    def _gap_terms(self, codes: Array, summary: Summary | None = None) -> GapTerms:
        if self.graph is not None or not isinstance(self._driver, NumbaTubalCoding):
            return super()._gap_terms(codes, summary)
        residuals, absolutes, products, largest = self._driver.gap_terms(codes)
        return GapTerms(0.5 * residuals, absolutes, products, largest)

    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Make steps of over-relaxed ADMM."""
        return self._driver.split(state, penalty=penalty, relaxation=relaxation, n_steps=n_steps, tol=tol)

    def few_codes(self, tolerance: float) -> Array | None:
        """Return the codes of images that need few of them; without a graph and on NumPy arrays only."""
        if self.graph is not None or not isinstance(self._driver, NumbaTubalCoding):
            return None
        return self._driver.few_codes(self.linear, tolerance)

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


def _applied(operator: BlockOperator, array: Array) -> Array:
    """Return an operator applied to an array (tube, row, image); NumPy arrays are divided among threads."""
    if is_torch(array):
        return from_coefficients(operator @ to_coefficients(array))
    result = np.empty((array.shape[0], operator.head.shape[1], array.shape[2]), array.dtype)

    def work(start: int, stop: int) -> None:
        result[:, :, start:stop] = from_coefficients(operator @ to_coefficients(array[:, :, start:stop]))

    with own_threads() as threads:
        parallel_ranges(work, array.shape[2], grain=_APPLIED_AT_A_TIME, threads=threads)
    return result


# --- dictionary -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TubalStatistics(SpectralStatistics):
    """Sums over images that the dictionary step needs.

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

    tube_length: int

    @classmethod
    def from_parts(cls, gram: Array, cross: Array, squares: float) -> TubalStatistics:
        """Build from Hermitian parts (tube, atom, atom) and (tube, row, atom), see ``linear_map.hermitian_parts``."""
        tube_length = gram.shape[0]
        counts = spectrum_weights(tube_length, gram) / tube_length
        return cls(slices_from_parts(gram, counts), slices_from_parts(cross, counts), squares, tube_length)

    @classmethod
    def from_coefficients(cls, data_hat: Array, codes_hat: Array) -> TubalStatistics:
        """Build from the real Fourier coefficients of data (tube, row, sample) and codes (tube, atom, sample)."""
        squares = float((as_double(data_hat) ** 2).sum())
        return cls.from_parts(_product_parts(codes_hat, codes_hat), _product_parts(data_hat, codes_hat), squares)

    @cached_property
    def usage(self) -> Array:
        """Squared norm of each atom's codes, (atom,): zero for an atom that no image uses."""
        diagonal = namespace(self.gram).diagonal(self.gram, 0, 1, 2).real
        counts = spectrum_weights(self.tube_length, diagonal)[:, None] / self.tube_length
        return (counts * diagonal).sum(0)


def _products(left: Array, right: Array) -> BlockOperator:
    """Return left · rightᵀ, given real Fourier coefficients (tube, ·, sample) of both."""
    tube_length, n_samples = right.shape[0], right.shape[2]
    n_head, swapaxes = tube_length % 2, namespace(right).swapaxes
    left_pairs, right_pairs = (
        side[n_head:].reshape(tube_length // 2, 2 * side.shape[1], n_samples) for side in (left, right)
    )
    return BlockOperator(left[:n_head] @ swapaxes(right[:n_head], 1, 2), left_pairs @ swapaxes(right_pairs, 1, 2))


def _product_parts(left: Array, right: Array) -> Array:
    """Return the Hermitian parts of left · rightᵀ, given real Fourier coefficients (tube, ·, sample) of both."""
    product = _products(left, right)
    return hermitian_parts(BlockOperator(as_double(product.head), as_double(product.pairs)))


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
class TubalModel(LinearMapModel):
    """Images as tensor-linear combinations of atoms (eq. 2).

    A dictionary is one array (tube, row, atom). Data are (tube, row, image), codes (tube, atom, image).
    """

    coding_problem = TubalCoding

    def dictionary_problem(self, statistics: TubalStatistics, dictionary: Array, step: int) -> TubalDictionary:
        return TubalDictionary(statistics)

    def statistics(self, dictionary: Array, data: Array, codes: Array, step: int) -> TubalStatistics:
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


# --- the iterations on NumPy arrays -----------------------------------------------------------------------------------
# The compiled kernels run over blocks of images, in several threads. With a graph, ADMM works in the eigenbasis of DᵀD.
# There every coefficient row has its own sparse system b (2 α L + (eigenvalue + penalty) I) = right (a diagonalised
# Sylvester equation), solved by a few warm-started Chebyshev steps.
class Step(NamedTuple):
    """The parameters of a Douglas-Rachford step, in the type of the data."""

    bound: np.floating  # the scaled dual is clipped to [-bound, bound]
    penalty: np.floating
    relaxation: np.floating


class NumbaTubalCoding:
    """Runs the iterations of one tubal coding problem on NumPy arrays; ``data`` is (tube, row, image)."""

    def __init__(self, tubal_map: TubalMap, data: NDArray[Any], *, sparsity: float, graph: GraphTerm | None) -> None:
        self.map, self.sparsity, self.graph = tubal_map, sparsity, graph
        self.independent = graph is None or not graph.has_edges
        self.dtype = data.dtype
        self.data = np.ascontiguousarray(data)
        self.n_samples = data.shape[2]
        basis = np.ascontiguousarray(fourier_basis(tubal_map.tube_length, data))
        self.basis, self.basis_t = basis, np.ascontiguousarray(basis.T)
        even, odd = folded_basis(tubal_map.tube_length, data)
        self.folded = even, np.ascontiguousarray(even.T), odd, np.ascontiguousarray(odd.T)

    def _over_images(self, work: Callable[[int, int], None]) -> None:
        with own_threads() as threads:
            parallel_ranges(work, self.n_samples, grain=kernels.BLOCK, threads=threads)

    # --- ADMM ---------------------------------------------------------------------------------------------------------
    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Make Douglas-Rachford steps; the point of the state changes in place."""
        step = Step(*map(self.dtype.type, (self.sparsity / penalty, penalty, relaxation)))
        if self.graph is None:
            return self._split_independent(state, step, n_steps, tol)
        systems = state.extra
        if not isinstance(systems, GraphSystems):
            systems = GraphSystems(self, self.graph, state.point, step.bound, penalty)
        if not self.independent or state.movement is None:
            return SplitState(None, systems.advance(step, n_steps), systems)
        # Images that have converged stay as they are: the codes of an image must not depend on its batch.
        converged, former = state.movement <= tol, systems.blocks.copy()
        movement = systems.advance(step, n_steps)
        systems.restore(former, converged)
        return SplitState(None, np.where(converged, state.movement, movement), systems)

    def _split_independent(self, state: SplitState, step: Step, n_steps: int, tol: float) -> SplitState:
        """Make steps without a graph; images that have converged stay as they are."""
        active = np.ones(self.n_samples, np.bool_) if state.movement is None else state.movement > tol
        change, size = np.zeros(self.n_samples), np.zeros(self.n_samples)
        forward, back, narrow = self.map.solve_operators(float(step.penalty))
        self._over_images(
            lambda start, stop: kernels.split_independent(
                state.point, self.data, self.basis, *self.folded, forward.head, forward.pairs, back.head, back.pairs,
                narrow, step.bound, step.relaxation, n_steps, active, start, stop, change, size,
            )
        )  # fmt: skip
        movement = movement_from_squares(change, size)
        return SplitState(
            state.point, movement if state.movement is None else np.where(active, movement, state.movement)
        )

    def gap_terms(self, codes: NDArray[Any]) -> NDArray[np.float64]:
        """Return for each image the terms (4, image) of its duality gap, without a graph; see the kernel."""
        codes, terms = np.ascontiguousarray(codes), np.empty((4, self.n_samples))
        forward, adjoint = self.map.forward, self.map.adjoint
        self._over_images(
            lambda start, stop: kernels.gap_terms(
                codes, self.data, self.basis, *self.folded, forward.head, forward.pairs, adjoint.head, adjoint.pairs,
                start, stop, *terms,
            )
        )  # fmt: skip
        return terms

    def few_codes(self, linear: NDArray[Any], tolerance: float) -> NDArray[Any]:
        """Return the codes of images that need few of them, zeros for the others; ``linear`` is Dᵀ applied to them."""
        gram = irfft(self.map.gram_hat, self.map.tube_length, axis=0)
        shifted_gram = np.ascontiguousarray(np.swapaxes(gram, 1, 2), self.dtype)
        linear, codes = np.ascontiguousarray(linear), np.zeros(linear.shape, self.dtype)
        self._over_images(
            lambda start, stop: code_few(
                shifted_gram, linear, self.sparsity, FEW_CODES_SPARSITY, tolerance, start, stop, codes
            )
        )
        return codes

    def plain_state(self, state: SplitState, *, final: bool) -> SplitState:
        """Return the state with its point as one array; ``final`` frees the buffers of the given state."""
        if not isinstance(state.extra, GraphSystems):
            return SplitState(state.point, state.movement)
        if final:
            state.extra.release()
        return SplitState(state.extra.point(), state.movement)

    # --- Algorithm 1 --------------------------------------------------------------------------------------------------
    def accelerate(
        self, state: MomentumState, linear: NDArray[Any], *, step_size: float, n_steps: int
    ) -> MomentumState:
        """Make steps of Algorithm 1; the arrays of the state change in place."""
        linear, empty = np.ascontiguousarray(linear), np.empty((0, 0, 0), self.dtype)
        if self.graph is None:
            self._accelerate(state, linear, empty, step_size, n_steps)
            return state
        for _ in range(n_steps):
            # A restart drops the momentum before the step, so the graph's gradient must be taken there too.
            term = self.graph.product(np.where(state.restart > 0, state.codes, state.momentum_point))
            self._accelerate(state, linear, term, step_size, 1)
            if not self.independent:  # connected images are one problem and restart together
                state.restart[:] = state.restart.sum()
        return state

    def _accelerate(
        self, state: MomentumState, linear: NDArray[Any], graph_term: NDArray[Any], step_size: float, n_steps: int
    ) -> None:
        """Make steps of Algorithm 1 with a fixed gradient of the graph term."""
        gram = self.map.gram
        step, threshold = self.dtype.type(step_size), self.dtype.type(step_size * self.sparsity)
        self._over_images(
            lambda start, stop: kernels.accelerated_steps(
                state.codes, state.momentum_point, state.inertia, state.restart, linear, graph_term, self.basis,
                self.basis_t, gram.head, gram.pairs, step, threshold, n_steps, start, stop,
            )
        )  # fmt: skip

    # --- sums ---------------------------------------------------------------------------------------------------------
    def summarize(
        self, codes: NDArray[Any], *, statistics: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], list[tuple[NDArray[np.float64], NDArray[np.float64], float]]]:
        """Return squared residuals and l1 norms (image,) and, if asked for, the statistics of all images.

        The statistics are the arguments of ``TubalStatistics.from_parts``, in a list of length one.
        """
        residuals, absolutes = np.zeros(self.n_samples), np.zeros(self.n_samples)
        (tube_length, n_atoms, _), n_rows, most = codes.shape, self.data.shape[1], MAX_PARTS
        if statistics:
            most = max(1, min(most, PART_BYTES // (16 * tube_length * n_atoms * (n_atoms + n_rows))))
        grain = max(MIN_PART, kernels.BLOCK * -(-self.n_samples // (kernels.BLOCK * most)))
        # Allocated here for all parts: threads would return their memory to the system after every call.
        n_parts, n_head = -(-self.n_samples // grain) if statistics else 0, tube_length % 2
        squares = np.zeros(n_parts)
        gram, cross = (
            BlockOperator(
                np.zeros((n_parts, n_head, rows, n_atoms)), np.zeros((n_parts, tube_length // 2, 2 * rows, 2 * n_atoms))
            )
            for rows in (n_atoms, n_rows)
        )

        def work(start: int, stop: int) -> None:
            for first in range(start, stop, STATISTICS_BLOCK):
                here = slice(first, min(first + STATISTICS_BLOCK, stop))
                codes_hat, data_hat = to_coefficients(codes[:, :, here]), to_coefficients(self.data[:, :, here])
                absolutes[here] = np.abs(codes[:, :, here]).sum(axis=1).sum(axis=0, dtype=np.float64)
                if statistics:
                    squares[start // grain] += _squared_norms(data_hat).sum()
                    for sums, left in ((gram, codes_hat), (cross, data_hat)):
                        product = _products(left, codes_hat)
                        sums.pairs[start // grain] += product.pairs
                        if n_head:
                            sums.head[start // grain] += product.head
                data_hat -= self.map.forward @ codes_hat
                residuals[here] = _squared_norms(data_hat)

        with own_threads() as threads:
            parallel_ranges(work, self.n_samples, grain=grain, threads=threads)
        if not statistics:
            return residuals, absolutes, []
        sums = [hermitian_parts(BlockOperator(part.head.sum(0), _sum_of_parts(part.pairs))) for part in (gram, cross)]
        return residuals, absolutes, [(*sums, float(squares.sum()))]


def _sum_of_parts(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum over the first axis; the second one is divided among threads."""
    total = np.empty(parts.shape[1:])
    with own_threads() as threads:
        parallel_ranges(
            lambda start, stop: parts[:, start:stop].sum(axis=0, out=total[start:stop]), len(total), grain=1,
            threads=threads,
        )  # fmt: skip
    return total


def _squared_norms(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return the squared norm of every image of an array (tube, row, image); squares of rows are added as they are."""
    return np.asarray(np.einsum("tms,tms->ts", array, array).sum(axis=0, dtype=np.float64))


class Slabs(NamedTuple):
    """Arrays (slab, image, lane) of the graph systems."""

    right: NDArray[Any]  # right-hand sides
    linear: NDArray[Any]  # the rotated linear term of the problem, a part of every right-hand side
    solution: NDArray[Any]  # the last solutions, where the next solve starts


class GraphSystems:
    """The state of ADMM with a graph: the point in blocks, and the graph systems in slabs, kept between steps."""

    def __init__(
        self, coding: NumbaTubalCoding, graph: GraphTerm, point: NDArray[Any], bound: np.floating, penalty: float
    ) -> None:
        self.coding, self.graph, self.dtype = coding, graph, coding.dtype
        # Blocks of equal width, slightly narrower than usual if that leaves less of the last one empty.
        n_blocks = max(1, -(-coding.n_samples // kernels.BLOCK))
        self.width = min(kernels.BLOCK, WIDTH_UNIT * -(-coding.n_samples // (WIDTH_UNIT * n_blocks)))
        rotation, eigenvalues = coding.map.eigenbasis
        self.back = rotation.transpose
        self.shifts = _by_slab(np.maximum(eigenvalues, 0.0) + penalty, penalty).astype(self.dtype)
        self.rates, self.counts = chebyshev_schedule(graph, self.shifts, GRAPH_REDUCTION)
        shape = (len(self.shifts), coding.n_samples, self.shifts.shape[1])
        self.bundles = graph.bundles(self.dtype)
        self.scale = self.dtype.type(2.0 * graph.weight)
        self.empty = np.empty((0, 0, 0), self.dtype)
        right, linear = np.zeros(shape, self.dtype), self._rotated_linear(shape)
        self.blocks = self._in_blocks(point)
        one, codes = self.dtype.type(1.0), np.zeros(shape, self.dtype)
        self._rotate(self.blocks, self.back, bound, one, one, self.empty, codes)
        self.slabs: Slabs | None = Slabs(right, linear, codes)

    def _over_images(self, work: Callable[[int, int], None]) -> None:
        with own_threads() as threads:
            parallel_ranges(work, self.coding.n_samples, grain=self.width, threads=threads)

    def _rotated_linear(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the rotated linear term, computed from the images directly to save memory."""
        zero, one = self.dtype.type(0.0), self.dtype.type(1.0)
        images, back = self._in_blocks(self.coding.data), self.coding.map.forward.compose(self.back)
        slabs = self._rotate(images, back, zero, zero, one, self.empty, np.zeros(shape, self.dtype))
        if self.graph.neighbor_sum is None:
            return slabs
        fixed = self._in_blocks(self.graph.neighbor_sum)
        return self._rotate(fixed, self.back, zero, zero, self.scale, slabs, slabs)

    def _rotate(
        self, blocks: NDArray[Any], back: BlockOperator, bound: np.floating, times: np.floating, scale: np.floating,
        offset: NDArray[Any], slabs: NDArray[Any],
    ) -> NDArray[Any]:  # fmt: skip
        """Set ``slabs`` to ``scale · (blocks - times · dual) + offset``, rotated by the transpose of ``back``."""
        basis, unused = self.coding.basis, np.empty(0)
        self._over_images(
            lambda start, stop: kernels.graph_step(
                self.empty, basis, basis, back.head, back.pairs, bound, scale, False, scale, times, offset, start, stop,
                blocks, slabs, unused, unused,
            )
        )  # fmt: skip
        return slabs

    def _in_blocks(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array (tube, row, image) in blocks, so that every step works on contiguous memory."""
        n_blocks = -(-self.coding.n_samples // self.width)
        blocks = np.empty((n_blocks, *array.shape[:2], self.width), self.dtype)
        n_whole = self.coding.n_samples // self.width
        rest = self.coding.n_samples - n_whole * self.width

        def fill(start: int, stop: int) -> None:
            part = array[:, :, start * self.width : stop * self.width]
            blocks[start:stop] = np.moveaxis(part.reshape(*array.shape[:2], -1, self.width), 2, 0)

        with own_threads() as threads:
            parallel_ranges(fill, n_whole, grain=1, threads=threads)
        blocks[n_whole:] = 0.0
        blocks[n_whole:, :, :, :rest] = array[:, :, self.coding.n_samples - rest :]
        return blocks

    def restore(self, former: NDArray[Any], images: NDArray[np.bool_]) -> None:
        """Reset some images to ``former``, the blocks before the last steps."""
        padded = np.zeros(self.blocks.shape[0] * self.width, np.bool_)
        padded[: images.size] = images
        np.copyto(self.blocks, former, where=padded.reshape(-1, 1, 1, self.width))

    def release(self) -> None:
        """Free the arrays that only further steps would need."""
        self.slabs = None

    def point(self) -> NDArray[Any]:
        """Return the point as one array (tube, atom, image)."""
        point = np.empty((*self.blocks.shape[1:3], self.coding.n_samples), self.dtype)

        def fill(start: int, stop: int) -> None:
            for first in range(start, stop, self.width):
                width = min(self.width, stop - first)
                point[:, :, first : first + width] = self.blocks[first // self.width, :, :, :width]

        self._over_images(fill)
        return point

    def advance(self, step: Step, n_steps: int) -> NDArray[np.float64]:
        """Make steps; return the relative change of every image in the last one."""
        assert self.slabs is not None
        slabs, twice = self.slabs, self.dtype.type(2.0)
        change, size = np.zeros(self.coding.n_samples), np.zeros(self.coding.n_samples)
        self._rotate(self.blocks, self.back, step.bound, twice, step.penalty, slabs.linear, slabs.right)
        for number in range(1, n_steps + 1):
            self._solve(slabs)
            self._finish_step(slabs, step, number == n_steps, change, size)
        return movement_from_squares(change, size)

    def _solve(self, slabs: Slabs) -> None:
        """Improve the solution of every graph system."""
        if self.coding.independent:  # diagonal systems; solved directly, so that no image affects another
            np.divide(slabs.right, self.scale * self.bundles[3][:, None] + self.shifts[:, None], slabs.solution)
            return
        with own_threads() as threads:
            parallel_ranges(
                lambda start, stop: kernels.solve_graph_systems(
                    self.bundles, self.scale, self.shifts, self.rates, self.counts, slabs.right, start, stop,
                    slabs.solution,
                ),
                self.shifts.shape[0], grain=1, threads=threads,
            )  # fmt: skip

    def _finish_step(
        self, slabs: Slabs, step: Step, last: bool, change: NDArray[np.float64], size: NDArray[np.float64]
    ) -> None:
        """Rotate the solution back and relax. The last step measures the change; the others prepare the next step."""
        coding, back, twice = self.coding, self.back, self.dtype.type(2.0)
        right = self.empty if last else slabs.right
        self._over_images(
            lambda start, stop: kernels.graph_step(
                slabs.solution, coding.basis, coding.basis_t, back.head, back.pairs, step.bound, step.relaxation, last,
                step.penalty, twice, slabs.linear, start, stop, self.blocks, right, change, size,
            )
        )  # fmt: skip


def _by_slab(shifts: NDArray[np.float64], padding: float) -> NDArray[np.float64]:
    """Return shifts (tube, atom) as (slab, lane): for odd tubes first those of the mean, padded, then every pair."""
    tube_length, n_atoms = shifts.shape
    pairs = shifts[tube_length % 2 :].reshape(-1, 2 * n_atoms)
    return np.concatenate([np.pad(shifts[: tube_length % 2], ((0, 0), (0, n_atoms)), constant_values=padding), pairs])
