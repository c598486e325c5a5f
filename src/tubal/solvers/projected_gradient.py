"""The dictionary step by accelerated projected gradient: slower, independent of the dual, its referee."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from tubal.backends.arrays import Array, as_double, as_like
from tubal.problems.tubal_dictionary import TubalDictionary
from tubal.solvers.iterate import Monitor, Solution, ignore, iterate
from tubal.solvers.lagrange_dual import DictionaryState


@dataclass(frozen=True)
class _Position:
    dictionary: Array
    ahead: Array
    inertia: float
    movement: float


@dataclass(frozen=True)
class ProjectedGradient:
    """Accelerated gradient on the atoms, projected to the unit ball, with restart; any statistics."""

    max_iter: int = 500
    tol: float = 1e-9

    def minimise(
        self, problem: TubalDictionary, start: DictionaryState, monitor: Monitor = ignore
    ) -> Solution[DictionaryState]:
        """Return the best dictionary found from ``start``."""
        lipschitz = problem.lipschitz
        if lipschitz <= 0.0:
            return Solution(start, 0, converged=True)
        begin = as_double(start.dictionary)
        solution = iterate(
            lambda now, _: self._step(problem, now, 1.0 / lipschitz),
            _Position(begin, begin, 1.0, float("inf")),
            stop=lambda now: now.movement <= self.tol,
            max_iter=self.max_iter,
            check_every=1,
            monitor=monitor,
        )
        dictionary = as_like(solution.state.dictionary, start.dictionary)
        return Solution(DictionaryState(dictionary), solution.n_iter, solution.converged)

    def _step(self, problem: TubalDictionary, now: _Position, step_size: float) -> _Position:
        dictionary = problem.project(now.ahead - step_size * problem.gradient(now.ahead))
        move = dictionary - now.dictionary
        if float(((now.ahead - dictionary) * move).sum()) > 0.0:
            return _Position(dictionary, dictionary, 1.0, float(abs(move).max()))
        inertia = (1.0 + sqrt(1.0 + 4.0 * now.inertia**2)) / 2.0
        ahead = dictionary + (now.inertia - 1.0) / inertia * move
        return _Position(dictionary, ahead, inertia, float(abs(move).max()))
