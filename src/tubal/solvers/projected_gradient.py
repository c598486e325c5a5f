"""The dictionary step by accelerated projected gradient: for every model, and an independent check of the dual."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from tubal.backends.arrays import Array, as_double, as_like
from tubal.problems.base import DictionaryProblem
from tubal.solvers.base import DictionaryState, Monitor, Solution, check_integer, check_number, ignore, iterate


@dataclass(frozen=True)
class _Position:
    """The dictionary, the extrapolated point, the inertia, and the largest change of an entry in the last step."""

    dictionary: Array
    extrapolated: Array
    inertia: float
    movement: float


@dataclass(frozen=True)
class ProjectedGradient:
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
        """Minimise a dictionary problem.

        Parameters
        ----------
        problem : DictionaryProblem
            The problem of one part of the dictionary.
        start : DictionaryState
            The current dictionary.
        monitor : callable, optional
            ``monitor(n_iter, state)`` is called after every step.

        Returns
        -------
        Solution
            The final dictionary and how it was reached.
        """
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

    def _step(self, problem: DictionaryProblem, now: _Position, step_size: float) -> _Position:
        """Make one accelerated step, or restart the acceleration if the step points against the last movement."""
        dictionary = problem.project(now.extrapolated - step_size * problem.gradient(now.extrapolated))
        move = dictionary - now.dictionary
        if float(((now.extrapolated - dictionary) * move).sum()) > 0.0:
            return _Position(dictionary, dictionary, 1.0, float(abs(move).max()))
        inertia = (1.0 + sqrt(1.0 + 4.0 * now.inertia**2)) / 2.0
        extrapolated = dictionary + (now.inertia - 1.0) / inertia * move
        return _Position(dictionary, extrapolated, inertia, float(abs(move).max()))
