"""Solvers of the dictionary step: projected Newton on its Lagrange dual (eqs. 17-19), and projected gradient.

``LagrangeDual`` is the fast one. ``ProjectedGradient`` serves every model, and checks the dual independently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from math import sqrt
from operator import add

import numpy as np

from tubal.backends.arrays import (
    Array,
    adjoint,
    as_double,
    as_like,
    is_torch,
    machine_epsilon,
    namespace,
    own_threads,
    parallel_ranges,
    to_numpy,
)
from tubal.problems.base import DictionaryProblem
from tubal.problems.tubal import TubalDictionary
from tubal.solvers.base import (
    DictionarySolver,
    DictionaryState,
    Monitor,
    Solution,
    check_integer,
    check_number,
    ignore,
    iterate,
)

# --- the Lagrange dual ---------------------------------------------------------------------------------------------
# A thread gets at least this many frequencies and this many multiplications at a time. Smaller tasks take less time
# than waking a thread.
MIN_FREQUENCIES, MIN_PRODUCTS = 3, 1e6
# The first guess of a multiplier is at least this fraction of the norm of its atom's cross products.
MIN_GUESS = 0.02
# Violations of the norm constraints below this many rounding units of the atoms do not justify another Newton step.
ROUNDING_UNITS = 6e3
# A smaller gain, relative to the squared norm of the data, is not reported. It is then computed from the rounded atoms.
RELIABLE_GAIN = 1e-6


@dataclass(frozen=True)
class DualPoint:
    """The dual at some multipliers: value, gradient, Hessian, and the dictionary that minimises the Lagrangian."""

    multipliers: Array
    value: Array  # a scalar
    gradient: Array
    hessian: Array
    dictionary_hat: Array
    stuck: bool = False  # no step from here increases the value: rounding errors of singular slices dominate


@dataclass(frozen=True)
class LagrangeDual(DictionarySolver):
    """Maximise the dual of the dictionary problem by projected Newton steps, in double precision.

    It solves the problems of the tubal models and of TenSR. One multiplier per atom is shared by all frequencies
    (Algorithm 2 of the paper prints the solve inside the loop over slices). Atoms that no image uses stay as they are.
    The multipliers of the start, if it has any, give a warm start.

    Parameters
    ----------
    max_iter : int, default=50
        Maximum number of Newton steps.
    tol : float, default=1e-9
        Stop when the squared norm of every atom violates its constraint by less than twice this, or by less than
        ``ROUNDING_UNITS`` rounding units of the atoms. Atoms with a positive multiplier are then scaled to norm one.
        The objective is above its minimum by the square of the violation, a few rounding units of the atoms.
    ridge : float, default=1e-10
        Rank-deficient slices get a shift of this factor times the usage of each atom, or of ten rounding units of the
        data if that is more. The effect on the result is negligible.
    """

    max_iter: int = 50
    tol: float = 1e-9
    ridge: float = 1e-10

    def __post_init__(self) -> None:
        check_integer("max_iter", self.max_iter)
        check_number("tol", self.tol, least=0.0)
        check_number("ridge", self.ridge, least=0.0)

    def minimise(
        self, problem: DictionaryProblem, start: DictionaryState, monitor: Monitor = ignore
    ) -> Solution[DictionaryState]:
        if not isinstance(problem, TubalDictionary):
            raise TypeError(
                f"LagrangeDual cannot solve a {type(problem).__name__}: its dual is that of tubal and separable "
                "dictionaries, whose only constraint is the norm of the atoms; use ProjectedGradient()"
            )
        on_device = is_torch(start.dictionary) and not is_torch(problem.statistics.gram)
        # Products of single-precision codes have rounding errors that could make a singular slice indefinite.
        ridge = max(self.ridge, 10.0 * machine_epsilon(start.dictionary))
        dual = (CompiledDual if on_device else Dual)(problem, ridge)
        if not bool(dual.used.any()):
            return Solution(start, 0, converged=True)
        tol = max(self.tol, ROUNDING_UNITS * machine_epsilon(start.dictionary))
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
        reliable = converged and gain > RELIABLE_GAIN * dual.squares
        state = DictionaryState(dictionary, multipliers, gain if reliable else None)
        return Solution(state, solution.n_iter, converged)

    def _newton_step(self, dual: Dual, now: DualPoint) -> DualPoint:
        """Make one projected Newton step (Bertsekas 1982) with backtracking on the value of the dual."""
        direction = dual.newton_direction(now)
        length = 1.0
        for _ in range(40):
            candidate = dual.at(namespace(direction).clip(now.multipliers + length * direction, 0.0, None))
            gain = (now.gradient * (candidate.multipliers - now.multipliers)).sum()
            # Near the solution and near singular slices, rounding errors of the value exceed the gain. A concave
            # function has also increased if its slope along the step has shrunk without much overshooting.
            slope = (candidate.gradient * (candidate.multipliers - now.multipliers)).sum()
            least = 1e-4 * namespace(gain).clip(gain, 0.0, None)
            increased = candidate.value >= now.value + least - 1e-13 * dual.squares
            if bool(increased | (abs(slope) <= 0.5 * gain)):
                return candidate
            length *= 0.5
        return replace(now, stuck=True)


class Dual:
    """The dual function restricted to the atoms in use: value, gradient and Hessian.

    Parameters
    ----------
    problem : TubalDictionary
        The dictionary problem.
    ridge : float
        Shift of the Gram matrices, relative to the usage of each atom.
    """

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
        """Return the first multipliers, and the objective of the starting atoms.

        At a solution ``D̂ gram - cross = -D̂ Λ``. For other atoms the least-squares solution Λ of that equation is the
        first guess; with ``former`` multipliers, the mean of the two.
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
        # If the multipliers are far too small, every Newton step increases them by half only. So a guess that the atoms
        # hardly determine is raised to a small fraction of the norm of the cross products.
        guess = xp.maximum(guess, MIN_GUESS * xp.sqrt(lengths))
        if former is not None:
            guess = 0.5 * (guess + (former if is_torch(self.gram) else to_numpy(former))[self.used])
        return guess, value

    def at(self, multipliers: Array) -> DualPoint:
        """Evaluate the dual (eq. 19 with the terms it drops): ``D̂ = cross (gram + Λ)⁻¹``, and its derivatives."""
        dictionary_hat, fitted, norms, curvature = self._terms(multipliers)
        value = 0.5 * (self.squares - fitted - multipliers.sum())
        return DualPoint(multipliers, value, 0.5 * (norms - 1.0), -curvature, dictionary_hat)

    def _terms(self, multipliers: Array) -> tuple[Array, Array, Array, Array]:
        """Return D̂ and three sums over the full spectrum.

        These are ``Re <D̂, cross>``, the squared norms of the atoms, and ``Re[(D̂ᴴ D̂) ∘ ((gram + Λ)⁻¹)ᵀ]``.
        """
        xp = namespace(self.gram)
        dictionary_hat = xp.empty_like(self.cross)

        def work(start: int, stop: int) -> tuple[Array, Array, Array]:
            gram, cross, counts = self.gram[start:stop], self.cross[start:stop], self.counts[start:stop]
            inverse = xp.linalg.inv(gram + multipliers * self.eye)
            atoms_hat = xp.matmul(cross, inverse, out=dictionary_hat[start:stop])
            fitted = (xp.conj(atoms_hat) * cross).real.sum((1, 2))
            products = adjoint(atoms_hat) @ atoms_hat
            curvature = (products * xp.swapaxes(inverse, 1, 2)).real
            norms = xp.diagonal(products, 0, 1, 2).real
            return (counts * fitted).sum(), (counts[:, None] * norms).sum(0), (counts[:, None, None] * curvature).sum(0)

        _, n_rows, n_atoms = self.cross.shape
        return dictionary_hat, *self._summed(work, n_atoms**2 * (n_atoms + 2 * n_rows))

    def _summed(self, work: Callable[[int, int], tuple[Array, ...]], n_products: int) -> list[Array]:
        """Return the sums of ``work(start, stop)`` over all frequencies; NumPy arrays are shared among threads.

        ``n_products`` is the number of multiplications per frequency.
        """
        if is_torch(self.gram):
            return list(work(0, len(self.gram)))
        grain = max(MIN_FREQUENCIES, int(MIN_PRODUCTS / n_products))
        with own_threads() as threads:
            parts = parallel_ranges(work, len(self.gram), grain=grain, threads=threads)
        return [reduce(add, terms) for terms in zip(*parts, strict=True)]

    def newton_direction(self, point: DualPoint) -> Array:
        """Return the Newton direction of the free multipliers; zero multipliers with a negative gradient stay zero."""
        xp = namespace(self.gram)
        held = (point.multipliers <= 0.0) & (point.gradient <= 0.0)
        free = ~held
        mask = (free[:, None] & free[None, :]) * 1.0
        diagonal = -xp.diagonal(point.hessian)
        floor = 1e-14 * diagonal.max() + 1e-300
        system = -point.hessian * mask + xp.diag(xp.where(free, floor + 0.0 * diagonal, 1.0 + 0.0 * diagonal))
        return xp.linalg.solve(system, xp.where(free, point.gradient, 0.0 * point.gradient))

    def residual(self, point: DualPoint) -> float:
        """Return the largest violation of the KKT conditions; the gradient is ``(squared atom norm - 1) / 2``."""
        xp = namespace(self.gram)
        held = point.multipliers <= 0.0
        violation = xp.where(held, xp.clip(point.gradient, 0.0, None), abs(point.gradient))
        return float(violation.max())

    def value_on_sphere(self, point: DualPoint) -> Array:
        """Return the objective of the atoms after :meth:`recover`, up to an error quadratic in the violation."""
        norms = namespace(self.gram).where(point.multipliers > 0.0, 1.0, 1.0 + 2.0 * point.gradient)
        return point.value - 0.5 * (self.shifts * norms).sum()

    def recover(self, point: DualPoint, start_hat: Array, like: Array, *, on_sphere: bool) -> tuple[Array, Array]:
        """Return the dictionary as an array like ``like``, unused atoms as they were, and all multipliers.

        ``on_sphere`` scales atoms with a positive multiplier to norm one, which they have at the solution.
        """
        xp = namespace(self.gram)
        hat = start_hat + 0.0
        held = (point.multipliers > 0.0) & on_sphere
        lengths = xp.sqrt(xp.where(held, 1.0 + 2.0 * point.gradient, 1.0))
        hat[:, :, self.used] = point.dictionary_hat / lengths
        multipliers = xp.zeros_like(self.problem.statistics.usage)
        multipliers[self.used] = point.multipliers
        return self.problem.from_spectrum(hat, like), multipliers


class CompiledDual(Dual):
    """The same function by a compiled kernel, used when the images are on a device.

    There the other steps are so fast that this one matters. For NumPy arrays the inverse of NumPy takes half as long
    again, but the kernel would take two seconds to compile.
    """

    def _terms(self, multipliers: Array) -> tuple[Array, Array, Array, Array]:
        """Return D̂ and three sums over the full spectrum, as :class:`Dual` does."""
        from tubal.backends.cpu.coding import dual_terms

        gram, cross = (np.ascontiguousarray(part) for part in (self.gram, self.cross))
        n_frequencies, _, n_atoms = cross.shape
        hat, fitted, norms = np.empty_like(cross), np.empty(n_frequencies), np.empty((n_frequencies, n_atoms))
        curvature = np.empty((n_frequencies, n_atoms, n_atoms))

        def work(start: int, stop: int) -> None:
            dual_terms(gram, cross, self.counts, multipliers, start, stop, hat, fitted, norms, curvature)

        grain = max(1, int(MIN_PRODUCTS / n_atoms**3))
        with own_threads() as threads:
            parallel_ranges(work, n_frequencies, grain=grain, threads=threads)
        return hat, fitted.sum(), norms.sum(0), curvature.sum(0)


# --- projected gradient --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Position:
    """The dictionary, the extrapolated point, the inertia, and the largest change of an entry in the last step."""

    dictionary: Array
    extrapolated: Array
    inertia: float
    movement: float


@dataclass(frozen=True)
class ProjectedGradient(DictionarySolver):
    """Accelerated gradient steps on the atoms, each projected to the unit ball, with adaptive restart.

    Slower than :class:`LagrangeDual`, but it solves the dictionary problem of every model.

    Parameters
    ----------
    max_iter : int, default=500
        Maximum number of steps.
    tol : float, default=1e-9
        Stop when no entry of the dictionary changes by more than this in one step.
    """

    max_iter: int = 500
    tol: float = 1e-9

    def __post_init__(self) -> None:
        check_integer("max_iter", self.max_iter)
        check_number("tol", self.tol, least=0.0)

    def minimise(
        self, problem: DictionaryProblem, start: DictionaryState, monitor: Monitor = ignore
    ) -> Solution[DictionaryState]:
        lipschitz = problem.lipschitz
        if lipschitz <= 0.0:
            return Solution(start, 0, converged=True)
        begin = as_double(start.dictionary)
        solution = iterate(
            lambda now, _: self._step(problem, now, 1.0 / lipschitz),
            _Position(dictionary=begin, extrapolated=begin, inertia=1.0, movement=float("inf")),
            stop=lambda now: now.movement <= self.tol,
            max_iter=self.max_iter,
            check_every=1,
            monitor=monitor,
        )
        dictionary = as_like(solution.state.dictionary, start.dictionary)
        return Solution(DictionaryState(dictionary), solution.n_iter, solution.converged)

    def _step(self, problem: DictionaryProblem, now: _Position, step_size: float) -> _Position:
        """Make one accelerated step, or restart the acceleration if the step points against the last movement."""
        dictionary = problem.project(now.extrapolated - step_size * problem.gradient(now.extrapolated))
        move = dictionary - now.dictionary
        if float(((now.extrapolated - dictionary) * move).sum()) > 0.0:
            return _Position(dictionary, dictionary, 1.0, float(abs(move).max()))
        inertia = (1.0 + sqrt(1.0 + 4.0 * now.inertia**2)) / 2.0
        extrapolated = dictionary + (now.inertia - 1.0) / inertia * move
        return _Position(dictionary, extrapolated, inertia, float(abs(move).max()))
