"""The two iterations on NumPy arrays, driven over blocks of images by compiled kernels and threads."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from tubal.backends.cpu import coding as kernels
from tubal.backends.cpu import graph_coding as graph_kernels
from tubal.backends.threads import own_threads, parallel_ranges
from tubal.problems.base import MomentumState, SplitState
from tubal.problems.fourier import BlockOperator, fourier_basis
from tubal.problems.graph_term import sweeps
from tubal.problems.tubal_dictionary import TubalStatistics

if TYPE_CHECKING:
    from tubal.problems.tubal import TubalCoding


# Solving a graph system leaves at most this share of its warm start's error. The error then shrinks with the
# iteration's own movement, so the splitting converges as with exact solves.
REDUCTION = 0.3
# Blocks are so many images wide, or a multiple of it: whole vector registers.
WIDTH_UNIT = 4
# Statistics of so many shares of the images are added up, and of no fewer images each: they are large and few.
MOST_SUMS, FEWEST_SUMMED = 8, 96


class CompiledTubal:
    """Kernels bound to one tubal coding problem."""

    def __init__(self, problem: TubalCoding) -> None:
        self.problem = weakref.proxy(problem)  # which holds these kernels: its arrays must not outlive it
        self.dtype = problem.data.dtype
        self.data = np.ascontiguousarray(problem.data)
        self.n_samples = problem.data.shape[2]
        basis = np.ascontiguousarray(fourier_basis(problem.tube_length, problem.data))
        self.basis, self.basis_t = basis, np.ascontiguousarray(basis.T)

    def _over_images(self, work: Any, threads: int) -> list[Any]:
        return parallel_ranges(work, self.n_samples, grain=kernels.BLOCK, threads=threads)

    # --- splitting -----------------------------------------------------------------------------------
    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Make Douglas-Rachford steps; the state's point changes in place."""
        number = self.dtype.type
        bound, weight, relax = number(self.problem.sparsity / penalty), number(penalty), number(relaxation)
        change, size = np.zeros(self.n_samples), np.zeros(self.n_samples)
        if self.problem.graph is None:
            old = state.movement
            active = np.ones(self.n_samples, np.bool_) if old is None else old > tol
            self._split_independent(state.point, bound, weight, relax, n_steps, active, change, size)
            movement = _relative(change, size)
            return SplitState(state.point, movement if old is None else np.where(active, movement, old))
        systems = (
            state.extra if isinstance(state.extra, _TubalSystems) else _TubalSystems(self, state.point, bound, penalty)
        )
        resting = None
        if self.problem.independent and state.movement is not None:
            resting, kept = state.movement <= tol, systems.blocks.copy()
        systems.begin(bound, weight)
        for step in range(n_steps):
            systems.step(bound, weight, relax, step == n_steps - 1, change, size)
        movement = _relative(change, size)
        if resting is not None:  # an untied image's codes must not depend on its company
            systems.restore(kept, resting)
            movement = np.where(resting, state.movement, movement)
        return SplitState(None, movement, systems)

    def settle(self, state: SplitState, *, last: bool) -> SplitState:
        """Return the state with its point as one array, and nothing kept beside it."""
        if not isinstance(state.extra, _TubalSystems):
            return SplitState(state.point, state.movement)
        if last:
            state.extra.release()
        return SplitState(state.extra.point(), state.movement)

    def _split_independent(
        self, point: Any, bound: Any, weight: Any, relax: Any, n_steps: int, active: Any, change: Any, size: Any
    ) -> None:
        adjoint, inverse = self.problem.adjoint_blocks, self.problem.inverse_blocks(float(weight))
        with own_threads() as threads:
            self._over_images(
                lambda start, stop: kernels.split_independent(
                    point, self.data, self.basis, self.basis_t, adjoint.head, adjoint.pairs, inverse.head,
                    inverse.pairs, bound, weight, relax, n_steps, active, start, stop, change, size,
                ),
                threads,
            )  # fmt: skip

    # --- acceleration --------------------------------------------------------------------------------
    def accelerate(self, state: MomentumState, *, step_size: float, n_steps: int) -> MomentumState:
        """Make steps of Algorithm 1; the state changes in place."""
        problem, number = self.problem, self.dtype.type
        gram, linear = problem.gram_blocks, np.ascontiguousarray(problem.linear)
        step, threshold = number(step_size), number(step_size * problem.sparsity)
        nothing = np.empty((0, 0, 0), self.dtype)
        bursts = [n_steps] if problem.graph is None else [1] * n_steps
        for burst in bursts:
            # A restart drops the momentum before the step, so the graph's gradient must be taken there too.
            term = (
                nothing
                if problem.graph is None
                else problem.graph.product(np.where(state.restart > 0, state.codes, state.momentum_point))
            )
            with own_threads() as threads:
                self._over_images(
                    lambda start, stop, term=term, burst=burst: kernels.accelerate(
                        state.codes, state.momentum_point, state.inertia, state.restart, linear, term, self.basis,
                        self.basis_t, gram.head, gram.pairs, step, threshold, burst, start, stop,
                    ),
                    threads,
                )  # fmt: skip
            if not problem.independent:  # images are tied, so is their momentum
                state.restart[:] = state.restart.sum()
        return state

    # --- sums ------------------------------------------------------------------------------------------
    def summarise(self, codes: Any, *, statistics: bool) -> tuple[Any, Any, TubalStatistics | None]:
        """Return squared residuals and l1 norms per image, and the statistics of the dictionary step."""
        codes = np.ascontiguousarray(codes)
        blocks = self.problem.map_blocks
        residuals, absolutes = np.zeros(self.n_samples), np.zeros(self.n_samples)
        share = kernels.BLOCK * -(-self.n_samples // (kernels.BLOCK * MOST_SUMS)) if statistics else 0
        grain = max(FEWEST_SUMMED, share)
        # Made here for all shares: a thread's own memory is given back, and fetched anew the next time, page by page.
        n_sums, tube_length = -(-self.n_samples // grain), codes.shape[0] if statistics else 0
        gram, cross = (
            np.zeros((n_sums, tube_length, n_rows, codes.shape[1])) for n_rows in (codes.shape[1], self.data.shape[1])
        )

        def work(start: int, stop: int) -> None:
            kernels.summarise(
                codes, self.data, self.basis, blocks.head, blocks.pairs, start, stop, residuals, absolutes,
                gram[start // grain], cross[start // grain],
            )  # fmt: skip

        with own_threads() as threads:
            parallel_ranges(work, self.n_samples, grain=grain, threads=threads)
        if not statistics:
            return residuals, absolutes, None
        squares = float(np.einsum("tms,tms->", self.data, self.data, dtype=np.float64))
        return residuals, absolutes, TubalStatistics.from_folded(gram.sum(0), cross.sum(0), squares)


class _TubalSystems:
    """The shifted graph systems of one splitting: slabs of rotated coefficients, kept between steps."""

    def __init__(self, compiled: CompiledTubal, point: Any, bound: Any, penalty: float) -> None:
        problem = compiled.problem
        assert problem.graph is not None
        self.compiled, self.graph = compiled, problem.graph
        # Blocks of equal width, a few images narrower than usual where that leaves less of the last one empty.
        n_blocks = max(1, -(-compiled.n_samples // kernels.BLOCK))
        self.width = min(kernels.BLOCK, WIDTH_UNIT * -(-compiled.n_samples // (WIDTH_UNIT * n_blocks)))
        rotation, eigenvalues = problem.eigenbasis
        self.back = rotation.transpose
        self.shifts = _by_slab(np.maximum(eigenvalues, 0.0) + penalty, penalty).astype(compiled.dtype)
        self.rates, self.counts = sweeps(self.graph, self.shifts, REDUCTION)
        shape = (len(self.shifts), compiled.n_samples, self.shifts.shape[1])
        self.bundles = self.graph.bundles(compiled.dtype)
        self.scale = compiled.dtype.type(2.0 * self.graph.weight)
        self.nothing = np.empty((0, 0, 0), compiled.dtype)
        self.right: Any = np.zeros(shape, compiled.dtype)
        self.linear: Any = self._rotated_linear(shape)
        self.blocks = self._in_blocks(point)
        one, slabs = compiled.dtype.type(1.0), np.zeros(shape, compiled.dtype)
        self.solution: Any = self._rotated(self.blocks, self.back, bound, one, one, self.nothing, slabs)

    def _over_images(self, work: Any, threads: int) -> None:
        parallel_ranges(work, self.compiled.n_samples, grain=self.width, threads=threads)

    def _rotated_linear(self, shape: tuple[int, ...]) -> Any:
        """Return ``D† * X`` and the pull of fixed neighbours, rotated, straight from images: nothing else is held."""
        problem, zero, one = self.compiled.problem, self.compiled.dtype.type(0.0), self.compiled.dtype.type(1.0)
        images, back = self._in_blocks(problem.data), problem.map_blocks.after(self.back)
        slabs = self._rotated(images, back, zero, zero, one, self.nothing, np.zeros(shape, self.compiled.dtype))
        if self.graph.neighbor_sum is None:
            return slabs
        pull = self._in_blocks(self.graph.neighbor_sum)
        return self._rotated(pull, self.back, zero, zero, self.scale, slabs, slabs)

    def _rotated(
        self, blocks: Any, back: BlockOperator, bound: Any, times: Any, scale: Any, offset: Any, slabs: Any
    ) -> Any:
        """Return ``scale`` (blocks - times·dual) + offset, rotated by the transpose of ``back``, in ``slabs``."""
        basis = self.compiled.basis
        with own_threads() as threads:
            self._over_images(
                lambda start, stop: graph_kernels.rotate_blocks(
                    blocks, basis, back.head, back.pairs, bound, times, scale, offset, start, stop, slabs
                ),
                threads,
            )
        return slabs

    def _in_blocks(self, point: Any) -> Any:
        """Return the point block by block, so that every step works in place on contiguous memory."""
        n_blocks = -(-self.compiled.n_samples // self.width)
        blocks = np.empty((n_blocks, *point.shape[:2], self.width), self.compiled.dtype)
        with own_threads() as threads:
            self._over_images(lambda start, stop: graph_kernels.gather_blocks(point, start, stop, blocks), threads)
        return blocks

    def restore(self, kept: Any, resting: Any) -> None:
        """Take back the steps of ``resting`` images."""
        padded = np.zeros(self.blocks.shape[0] * self.width, np.bool_)
        padded[: resting.size] = resting
        mask = padded.reshape(-1, 1, 1, self.width)
        np.copyto(self.blocks, kept, where=mask)

    def release(self) -> None:
        """Let go of all that only further steps would ask for."""
        self.right = self.linear = self.solution = None

    def point(self) -> Any:
        """Return the point as one array (k, atoms, n)."""
        point = np.empty(self.compiled.problem.codes_shape, self.compiled.dtype)
        with own_threads() as threads:
            self._over_images(
                lambda start, stop: graph_kernels.scatter_blocks(self.blocks, start, stop, point), threads
            )
        return point

    def begin(self, bound: Any, weight: Any) -> None:
        """Form the right-hand sides of the first step of a burst."""
        twice = self.compiled.dtype.type(2.0)
        self._rotated(self.blocks, self.back, bound, twice, weight, self.linear, self.right)

    def step(self, bound: Any, weight: Any, relax: Any, last: bool, change: Any, size: Any) -> None:
        """Make one Douglas-Rachford step: solve every row's system, rotate back, relax, rotate for the next one.

        The ``last`` of a burst measures the movement instead.
        """
        compiled, back = self.compiled, self.back
        with own_threads() as threads:
            if compiled.problem.independent:  # a diagonal system: no image may feel another, so no iteration
                np.divide(self.right, self.scale * self.bundles[3][:, None] + self.shifts[:, None], self.solution)
            else:
                parallel_ranges(
                    lambda start, stop: graph_kernels.solve_graph_systems(
                        self.bundles, self.scale, self.shifts, self.rates, self.counts, self.right, start, stop,
                        self.solution,
                    ),
                    self.shifts.shape[0], grain=1, threads=threads,
                )  # fmt: skip
            self._over_images(
                lambda start, stop: graph_kernels.split_after(
                    self.solution, compiled.basis, compiled.basis_t, back.head, back.pairs, bound, weight, relax,
                    self.linear, last, not last, start, stop, self.blocks, self.right, change, size,
                ),
                threads,
            )  # fmt: skip


def _by_slab(shifts: Any, padding: float) -> Any:
    """Return shifts (tube, atom) slab by slab: first the mean's, padded, where it is alone, then pair after pair."""
    tube_length, n_atoms = shifts.shape
    pairs = shifts[tube_length % 2 :].reshape(-1, 2 * n_atoms)
    return np.concatenate([np.pad(shifts[: tube_length % 2], ((0, 0), (0, n_atoms)), constant_values=padding), pairs])


def _relative(change: Any, size: Any) -> Any:
    return np.sqrt(change) / np.sqrt(np.maximum(size, np.finfo(np.float64).tiny))
