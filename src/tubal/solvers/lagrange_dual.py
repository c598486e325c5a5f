"""The dictionary step by its Lagrange dual: projected Newton on one multiplier per atom (eqs. 17-19)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tubal._backend import Array, is_torch, machine_epsilon, namespace, own_threads, parallel_ranges, to_numpy
from tubal.problems.tubal_dictionary import TubalDictionary
from tubal.solvers._iterate import Monitor, Solution, ignore, iterate

# Frequencies that a thread is given at a time: the systems of one take less time than waking a thread.
FREQUENCIES_A_TASK = 2


@dataclass(frozen=True)
class DictionaryState:
    """A dictionary and, where the solver has them, the multipliers of its norm constraints."""

    dictionary: Array
    multipliers: Array | None = None


@dataclass(frozen=True)
class _DualPoint:
    multipliers: Array
    value: Array  # a number
    gradient: Array
    inverse: Array | None
    dictionary_hat: Array
    curvature: Array = None  # minus the Hessian, where it comes with the point
    stuck: bool = False  # no step from here rises: the rounding of singular slices is reached


@dataclass(frozen=True)
class LagrangeDual:
    """Maximise the dual of the dictionary problem by projected Newton, in double precision whatever the data.

    One multiplier per atom is shared by all frequencies (the paper's Algorithm 2 prints the solve inside the
    loop over slices). Atoms no image uses are left out; rank-deficient slices get a shift of ``ridge`` times
    each atom's usage, or of ten rounding units of the data if that is more, far below anything that shows.

    Stops when no free multiplier can move the dual: projected gradient below ``tol`` (in units of the ball).
    """

    max_iter: int = 50
    tol: float = 1e-9
    ridge: float = 1e-10

    def minimise(
        self, problem: TubalDictionary, start: DictionaryState, monitor: Monitor = ignore
    ) -> Solution[DictionaryState]:
        """Return the best dictionary and its multipliers; ``start`` supplies unused atoms and a warm start."""
        # Products of single-precision codes carry rounding that would make a singular slice indefinite.
        compiled = is_torch(start.dictionary) and not is_torch(problem.statistics.gram)
        kind = _CompiledDual if compiled else _Dual
        dual = kind(problem, max(self.ridge, 10.0 * machine_epsilon(start.dictionary)))
        if not bool(dual.used.any()):
            return Solution(start, 0, converged=True)
        first = dual.at(dual.initial(start.multipliers))
        solution = iterate(
            lambda now, _: self._newton_step(dual, now),
            first,
            stop=lambda now: now.stuck or dual.residual(now) <= self.tol,
            max_iter=self.max_iter,
            check_every=1,
            monitor=monitor,
        )
        dictionary, multipliers = dual.recover(solution.state, start.dictionary)
        converged = dual.residual(solution.state) <= self.tol
        return Solution(DictionaryState(dictionary, multipliers), solution.n_iter, converged)

    def _newton_step(self, dual: _Dual, now: _DualPoint) -> _DualPoint:
        """One projected Newton step (Bertsekas 1982) with backtracking on the dual value."""
        direction = dual.newton_direction(now)
        length = 1.0
        for _ in range(40):
            candidate = dual.at(namespace(direction).clip(now.multipliers + length * direction, 0.0, None))
            gain = (now.gradient * (candidate.multipliers - now.multipliers)).sum()
            # Near the solution, or near singular slices, the gain drowns in the rounding of the value; a concave
            # function has also risen where its slope along the step has shrunk without much overshooting.
            slope = (candidate.gradient * (candidate.multipliers - now.multipliers)).sum()
            least = 1e-4 * namespace(gain).clip(gain, 0.0, None)
            risen = candidate.value >= now.value + least - 1e-13 * dual.squares
            if bool(risen | (abs(slope) <= 0.5 * gain)):
                return candidate
            length *= 0.5
        return replace(now, stuck=True)


class _Dual:
    """The dual restricted to the atoms in use: value, gradient, Hessian (checked by finite differences)."""

    def __init__(self, problem: TubalDictionary, ridge: float) -> None:
        statistics = problem.statistics
        xp = namespace(statistics.gram)
        usage = statistics.usage
        self.problem, self.used = problem, usage > 0.0
        gram = statistics.gram[:, self.used][:, :, self.used]
        self.cross = statistics.cross[:, :, self.used]
        self.eye = xp.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
        self.gram = gram + ridge * statistics.tube_length * usage[self.used] * self.eye
        self.counts, self.squares = problem.counts, statistics.squares

    def initial(self, multipliers: Array | None) -> Array:
        if multipliers is not None:
            return multipliers[self.used] if is_torch(self.gram) else to_numpy(multipliers)[self.used]
        # Small against the codes' own energy, so that the first Newton steps start from near-free atoms.
        return 1e-2 * self.problem.statistics.usage[self.used]

    def at(self, multipliers: Array) -> _DualPoint:
        """Evaluate the dual (eq. 19 with the terms it drops): D̂ = cross (gram + Λ)⁻¹."""
        xp = namespace(self.gram)
        inverse = xp.linalg.inv(self.gram + multipliers * self.eye)
        dictionary_hat = self.cross @ inverse
        fitted = (xp.conj(dictionary_hat) * self.cross).real.sum((1, 2))
        value = 0.5 * (self.squares - (self.counts * fitted).sum() - multipliers.sum())
        norms = (self.counts[:, None] * (abs(dictionary_hat) ** 2).sum(1)).sum(0)
        return _DualPoint(multipliers, value, 0.5 * (norms - 1.0), inverse, dictionary_hat)

    def hessian(self, point: _DualPoint) -> Array:
        """Return the Hessian, ``-sum_l count_l Re[(D̂ᴴ D̂) ∘ ((gram + Λ)⁻¹)ᵀ]``."""
        xp = namespace(self.gram)
        atoms = xp.conj(xp.swapaxes(point.dictionary_hat, 1, 2)) @ point.dictionary_hat
        product = (atoms * xp.swapaxes(point.inverse, 1, 2)).real
        return -(self.counts[:, None, None] * product).sum(0)

    def newton_direction(self, point: _DualPoint) -> Array:
        """Newton on the free multipliers; those held at zero by their gradient stay there."""
        xp = namespace(self.gram)
        held = (point.multipliers <= 0.0) & (point.gradient <= 0.0)
        free = ~held
        hessian = -self.hessian(point)
        mask = (free[:, None] & free[None, :]) * 1.0
        diagonal = xp.diagonal(hessian)
        floor = 1e-14 * diagonal.max() + 1e-300
        system = hessian * mask + xp.diag(xp.where(free, floor + 0.0 * diagonal, 1.0 + 0.0 * diagonal))
        return xp.linalg.solve(system, xp.where(free, point.gradient, 0.0 * point.gradient))

    def residual(self, point: _DualPoint) -> float:
        """Return the largest violation of the KKT conditions, in units of the ball."""
        xp = namespace(self.gram)
        held = point.multipliers <= 0.0
        violation = xp.where(held, xp.clip(point.gradient, 0.0, None), abs(point.gradient))
        return float(violation.max())

    def recover(self, point: _DualPoint, dictionary: Array) -> tuple[Array, Any]:
        """Return the full dictionary, unused atoms as they were, and all multipliers."""
        xp = namespace(self.gram)
        hat = self.problem.to_spectrum(dictionary)
        hat[:, :, self.used] = point.dictionary_hat
        multipliers = xp.zeros_like(self.problem.statistics.usage)
        multipliers[self.used] = point.multipliers
        return self.problem.from_spectrum(hat, dictionary), multipliers


class _CompiledDual(_Dual):
    """The same by a compiled kernel, for images on a device, whose other steps leave little time for this one.

    Arrays keep NumPy's own inverse, and with it their results to the last bit.
    """

    def at(self, multipliers: Array) -> _DualPoint:
        """Evaluate the dual, its Hessian included."""
        from tubal._kernels_dual import dual_terms

        gram, cross = (np.ascontiguousarray(part) for part in (self.gram, self.cross))
        n_frequencies, _, n_atoms = cross.shape
        hat, fitted, norms = np.empty_like(cross), np.empty(n_frequencies), np.empty((n_frequencies, n_atoms))
        curvature = np.empty((n_frequencies, n_atoms, n_atoms))

        def work(start: int, stop: int) -> None:
            dual_terms(gram, cross, self.counts, multipliers, start, stop, hat, fitted, norms, curvature)

        with own_threads() as threads:
            parallel_ranges(work, n_frequencies, grain=FREQUENCIES_A_TASK, threads=threads)
        value = 0.5 * (self.squares - fitted.sum() - multipliers.sum())
        return _DualPoint(multipliers, value, 0.5 * (norms.sum(0) - 1.0), None, hat, curvature=curvature.sum(0))

    def hessian(self, point: _DualPoint) -> Array:
        """Return the Hessian found with the point."""
        return -point.curvature
