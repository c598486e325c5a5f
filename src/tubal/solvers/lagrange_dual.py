"""The dictionary step by its Lagrange dual: projected Newton on one multiplier per atom (eqs. 17-19)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from tubal.backends.arrays import Array, is_torch, machine_epsilon, namespace, to_numpy
from tubal.backends.threads import own_threads, parallel_ranges
from tubal.problems.tubal_dictionary import TubalDictionary
from tubal.solvers.iterate import Monitor, Solution, ignore, iterate

# Frequencies that a thread is given at a time, at least, and numbers that it has to multiply: smaller tasks take less
# time than waking a thread.
FREQUENCIES_A_TASK, LEAST_WORK = 3, 1e6
# A first multiplier is no smaller than this share of the length of its atom's cross products.
LEAST_SHARE = 0.02
# Rounding units of the atoms below which a violated constraint is not worth another Newton step.
COARSE = 6e3
# A gain of less than this share of the data's squares is left to be worked out with the atoms as they were rounded.
CLEAR_SHARE = 1e-6


@dataclass(frozen=True)
class DictionaryState:
    """A dictionary and, where the solver has them, the multipliers of its norm constraints.

    ``gain`` is by how much the objective fell on the way here, where the solver knows it and rounding cannot matter.
    """

    dictionary: Array
    multipliers: Array | None = None
    gain: float | None = None


@dataclass(frozen=True)
class _DualPoint:
    multipliers: Array
    value: Array  # a number
    gradient: Array
    hessian: Array
    dictionary_hat: Array
    stuck: bool = False  # no step from here rises: the rounding of singular slices is reached


@dataclass(frozen=True)
class LagrangeDual:
    """Maximise the dual of the dictionary problem by projected Newton, in double precision whatever the data.

    One multiplier per atom is shared by all frequencies (the paper's Algorithm 2 prints the solve inside the
    loop over slices). Atoms no image uses are left out; rank-deficient slices get a shift of ``ridge`` times
    each atom's usage, or of ten rounding units of the data if that is more, far below anything that shows.

    Stops when no free multiplier can move the dual: projected gradient below ``tol`` (in units of the ball), or below
    ``COARSE`` rounding units of the atoms. Atoms that a multiplier holds then end on the sphere itself, and the
    objective lies above its minimum by the square of that violation: a few of those atoms' own rounding units.
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
        tol = max(self.tol, COARSE * machine_epsilon(start.dictionary))
        start_hat = problem.to_spectrum(start.dictionary)
        multipliers, value = dual.initial(start_hat, start.multipliers)
        solution = iterate(
            lambda now, _: self._newton_step(dual, now),
            dual.at(multipliers),
            stop=lambda now: now.stuck or dual.residual(now) <= tol,
            max_iter=self.max_iter,
            check_every=1,
            monitor=monitor,
        )
        point, converged = solution.state, dual.residual(solution.state) <= tol
        dictionary, multipliers = dual.recover(point, start_hat, start.dictionary, on_sphere=converged)
        gain = float(value - dual.value_on_sphere(point))
        clear = converged and gain > CLEAR_SHARE * dual.squares
        return Solution(DictionaryState(dictionary, multipliers, gain if clear else None), solution.n_iter, converged)

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
        self.shifts = ridge * statistics.tube_length * usage[self.used]
        self.gram = gram + self.shifts * self.eye
        self.counts, self.squares = problem.counts, statistics.squares

    def initial(self, start_hat: Array, former: Array | None) -> tuple[Array, Array]:
        """Return where to begin, halfway from the former multipliers to those that suit the starting atoms best.

        At a solution ``D̂ gram - cross = -D̂ Λ``; for other atoms the least-squares Λ of that is a first guess. The
        starting atoms' value comes second.
        """
        xp, atoms_hat = namespace(self.gram), start_hat[:, :, self.used]

        def work(start: int, stop: int) -> tuple[Array, ...]:
            atoms, cross, counts = atoms_hat[start:stop], self.cross[start:stop], self.counts[start:stop, None]
            slope = cross - atoms @ self.gram[start:stop]
            products = (xp.conj(atoms) * slope).real, (xp.conj(atoms) * cross).real, abs(atoms) ** 2, abs(cross) ** 2
            return tuple((counts * product.sum(1)).sum(0) for product in products)

        inner, linear, norms, lengths = self._summed(work, start_hat.shape[1] * self.gram.shape[1] ** 2)
        value = 0.5 * (self.squares - (linear + inner + self.shifts * norms).sum())
        guess = inner / xp.clip(norms, 1.0, None)
        # Where the atoms say next to nothing, a small share of the cross products' length: from multipliers far too
        # small every Newton step only adds half of what is there.
        guess = xp.maximum(guess, LEAST_SHARE * xp.sqrt(lengths))
        if former is not None:
            guess = 0.5 * (guess + (former if is_torch(self.gram) else to_numpy(former))[self.used])
        return guess, value

    def at(self, multipliers: Array) -> _DualPoint:
        """Evaluate the dual (eq. 19 with the terms it drops): ``D̂ = cross (gram + Λ)⁻¹``, and its derivatives."""
        dictionary_hat, fitted, norms, curvature = self._terms(multipliers)
        value = 0.5 * (self.squares - fitted - multipliers.sum())
        return _DualPoint(multipliers, value, 0.5 * (norms - 1.0), -curvature, dictionary_hat)

    def _terms(self, multipliers: Array) -> tuple[Array, Array, Array, Array]:
        """Return D̂ and three sums over the frequencies, each counted as often as it stands for others.

        These are ``Re <D̂, cross>``, the atoms' squared norms, and ``Re[(D̂ᴴ D̂) ∘ ((gram + Λ)⁻¹)ᵀ]``.
        """
        xp = namespace(self.gram)
        dictionary_hat = xp.empty_like(self.cross)

        def work(start: int, stop: int) -> tuple[Array, Array, Array]:
            gram, cross, counts = self.gram[start:stop], self.cross[start:stop], self.counts[start:stop]
            inverse = xp.linalg.inv(gram + multipliers * self.eye)
            atoms_hat = xp.matmul(cross, inverse, out=dictionary_hat[start:stop])
            fitted = (xp.conj(atoms_hat) * cross).real.sum((1, 2))
            products = xp.conj(xp.swapaxes(atoms_hat, 1, 2)) @ atoms_hat
            curvature = (products * xp.swapaxes(inverse, 1, 2)).real
            norms = xp.diagonal(products, 0, 1, 2).real
            return (counts * fitted).sum(), (counts[:, None] * norms).sum(0), (counts[:, None, None] * curvature).sum(0)

        _, n_rows, n_atoms = self.cross.shape
        return dictionary_hat, *self._summed(work, n_atoms**2 * (n_atoms + 2 * n_rows))

    def _summed(self, work: Callable[[int, int], tuple[Array, ...]], products: int) -> list[Array]:
        """Return the sums of what ``work`` finds of all frequencies; threads share them where NumPy does the work.

        ``products`` is how many numbers it multiplies for each.
        """
        if is_torch(self.gram):
            return list(work(0, len(self.gram)))
        grain = max(FREQUENCIES_A_TASK, int(LEAST_WORK / products))
        with own_threads() as threads:
            parts = parallel_ranges(work, len(self.gram), grain=grain, threads=threads)
        return [reduce(add, terms) for terms in zip(*parts, strict=True)]

    def newton_direction(self, point: _DualPoint) -> Array:
        """Newton on the free multipliers; those held at zero by their gradient stay there."""
        xp = namespace(self.gram)
        held = (point.multipliers <= 0.0) & (point.gradient <= 0.0)
        free = ~held
        mask = (free[:, None] & free[None, :]) * 1.0
        diagonal = -xp.diagonal(point.hessian)
        floor = 1e-14 * diagonal.max() + 1e-300
        system = -point.hessian * mask + xp.diag(xp.where(free, floor + 0.0 * diagonal, 1.0 + 0.0 * diagonal))
        return xp.linalg.solve(system, xp.where(free, point.gradient, 0.0 * point.gradient))

    def residual(self, point: _DualPoint) -> float:
        """Return the largest violation of the KKT conditions, in units of the ball."""
        xp = namespace(self.gram)
        held = point.multipliers <= 0.0
        violation = xp.where(held, xp.clip(point.gradient, 0.0, None), abs(point.gradient))
        return float(violation.max())

    def value_on_sphere(self, point: _DualPoint) -> Array:
        """Return the objective of the atoms that :meth:`recover` puts on the sphere, up to the squared violation."""
        norms = namespace(self.gram).where(point.multipliers > 0.0, 1.0, 1.0 + 2.0 * point.gradient)
        return point.value - 0.5 * (self.shifts * norms).sum()

    def recover(self, point: _DualPoint, start_hat: Array, like: Array, *, on_sphere: bool) -> tuple[Array, Any]:
        """Return the full dictionary, unused atoms as they were, of the kind of ``like``, and all multipliers.

        ``on_sphere`` gives atoms that a multiplier holds the length one they have at the solution.
        """
        xp = namespace(self.gram)
        hat = start_hat + 0.0
        held = (point.multipliers > 0.0) & on_sphere
        lengths = xp.sqrt(xp.where(held, 1.0 + 2.0 * point.gradient, 1.0))
        hat[:, :, self.used] = point.dictionary_hat / lengths
        multipliers = xp.zeros_like(self.problem.statistics.usage)
        multipliers[self.used] = point.multipliers
        return self.problem.from_spectrum(hat, like), multipliers


class _CompiledDual(_Dual):
    """The same by a compiled kernel, for images on a device, whose other steps leave little time for this one.

    Arrays keep NumPy's own inverse, which takes half as long again: this one would take two seconds to compile.
    """

    def _terms(self, multipliers: Array) -> tuple[Array, Array, Array, Array]:
        """Return the same."""
        from tubal.backends.cpu.dual import dual_terms

        gram, cross = (np.ascontiguousarray(part) for part in (self.gram, self.cross))
        n_frequencies, _, n_atoms = cross.shape
        hat, fitted, norms = np.empty_like(cross), np.empty(n_frequencies), np.empty((n_frequencies, n_atoms))
        curvature = np.empty((n_frequencies, n_atoms, n_atoms))

        def work(start: int, stop: int) -> None:
            dual_terms(gram, cross, self.counts, multipliers, start, stop, hat, fitted, norms, curvature)

        grain = max(1, int(LEAST_WORK / n_atoms**3))
        with own_threads() as threads:
            parallel_ranges(work, n_frequencies, grain=grain, threads=threads)
        return hat, fitted.sum(), norms.sum(0), curvature.sum(0)
