"""What all solvers share: the one loop, the type of their results, and the interfaces to write a new one.

A solver is a frozen dataclass with a ``minimise`` method. It keeps its parameters and nothing else; what it needs to
continue later is the ``state`` of the :class:`Solution` it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from tubal.backends.arrays import Array
from tubal.problems.base import CodingProblem, DictionaryProblem

State = TypeVar("State")
# The state of a code solver, of whatever type that solver uses. It is passed back to the solver as the next start.
SolverState: TypeAlias = Any
# Called with the number of steps made and the current state.
Monitor: TypeAlias = Callable[[int, SolverState], None]


class Solution(Generic[State]):
    """Where a solver stopped.

    Parameters
    ----------
    state : object
        The final state, which can be the start of the next run.
    n_iter : int
        Number of steps made.
    converged : bool or callable
        Whether the stopping rule held at the end. A function without arguments is called when somebody asks: on a GPU
        the answer means waiting for the device, and most callers do not need it.
    """

    def __init__(self, state: State, n_iter: int, converged: bool | Callable[[], bool]) -> None:
        self.state, self.n_iter = state, n_iter
        self._converged = converged

    def __repr__(self) -> str:
        return f"Solution(n_iter={self.n_iter}, converged={self.converged}, state={self.state!r})"

    @property
    def converged(self) -> bool:
        """Whether the stopping rule held at the end."""
        if callable(self._converged):
            self._converged = bool(self._converged())
        return self._converged


def ignore(n_iter: int, state: SolverState) -> None:
    """Do nothing: the default monitor."""


def iterate(
    advance: Callable[[State, int], State],
    state: State,
    *,
    stop: Callable[[State], bool],
    max_iter: int,
    check_every: int = 10,
    monitor: Monitor = ignore,
) -> Solution[State]:
    """Make steps until a stopping rule holds: the loop of every solver.

    Steps are made in bursts, so that compiled kernels can keep a block of images in the cache, and a GPU rarely has
    to send a number to the host.

    Parameters
    ----------
    advance : callable
        ``advance(state, n_steps)`` makes ``n_steps`` steps and returns the new state.
    state : object
        Where to start.
    stop : callable
        ``stop(state)`` returns whether the iteration has converged.
    max_iter : int
        Maximum number of steps.
    check_every : int, default=10
        Number of steps in a burst, between two calls of ``stop`` and ``monitor``.
    monitor : callable, optional
        ``monitor(n_iter, state)`` is called after every burst.

    Returns
    -------
    Solution
        The final state, the number of steps, and whether ``stop`` held.

    Examples
    --------
    >>> iterate(lambda x, n_steps: x / 2**n_steps, 1.0, stop=lambda x: x < 1e-3, max_iter=100).n_iter
    10
    """
    check_integer("check_every", check_every)
    n_iter = 0
    while n_iter < max_iter:
        burst = min(check_every, max_iter - n_iter)
        state = advance(state, burst)
        n_iter += burst
        monitor(n_iter, state)
        if n_iter < max_iter and stop(state):
            return Solution(state, n_iter, converged=True)
    return Solution(state, n_iter, converged=lambda: n_iter > 0 and stop(state))


# --- interfaces -------------------------------------------------------------------------------------------------------
class CodeSolver(Protocol):
    """Minimises a coding problem. Estimators take one as ``code_solver``.

    Write it as a frozen dataclass with a field ``max_iter``: estimators copy it with ``dataclasses.replace`` and a
    larger ``max_iter`` for the final codes. If it has an attribute ``final``, that is the solver of the final codes
    instead, for example ``Admm(max_iter=3000, gap=1e-3)``. Any state works in memory; for fits on disk use
    :class:`tubal.problems.SplitState` or :class:`tubal.problems.MomentumState`.
    """

    @property
    def max_iter(self) -> int:
        """Maximum number of steps."""

    def minimise(
        self, problem: CodingProblem, start: SolverState | None = None, monitor: Monitor = ignore
    ) -> Solution[SolverState]:
        """Minimise the problem.

        Parameters
        ----------
        problem : CodingProblem
            The problem of a batch of images.
        start : object, optional
            A state that this solver returned for the same images with another dictionary; None starts at zero. The
            solvers of this package also start at codes, an array of shape problem.codes_shape.
        monitor : callable, optional
            ``monitor(n_iter, state)`` is called after every burst of steps, ``check_every`` of them in this package.

        Returns
        -------
        Solution
            The final state and how it was reached.
        """

    def codes(self, problem: CodingProblem, state: SolverState) -> Array:
        """Return the codes of a state.

        Parameters
        ----------
        problem : CodingProblem
            The problem that was minimised.
        state : object
            A state of this solver.

        Returns
        -------
        array of shape problem.codes_shape
            The codes.
        """


@dataclass(frozen=True)
class DictionaryState:
    """A dictionary and, if the solver has them, the multipliers of its norm constraints.

    Parameters
    ----------
    dictionary : array
        One part of a dictionary, as its model stores it.
    multipliers : array of shape (n_atoms,), optional
        Lagrange multipliers of the constraints on the norms of the atoms, for a warm start.
    gain : float, optional
        Decrease of the objective, or None if the solver does not compute it or rounding errors dominate it.
    """

    dictionary: Array
    multipliers: Array | None = None
    gain: float | None = None


class DictionarySolver(Protocol):
    """Minimises a dictionary problem. Estimators take one as ``dictionary_solver``."""

    def minimise(
        self, problem: DictionaryProblem, start: DictionaryState, monitor: Monitor = ignore
    ) -> Solution[DictionaryState]:
        """Minimise the problem.

        Parameters
        ----------
        problem : DictionaryProblem
            The problem of one part of the dictionary.
        start : DictionaryState
            The current dictionary and the multipliers of the last dictionary step.
        monitor : callable, optional
            ``monitor(n_iter, state)`` is called after every step.

        Returns
        -------
        Solution
            The final state and how it was reached.
        """


# --- parameters -------------------------------------------------------------------------------------------------------
# Steps of a code solver; a solver that needs more does not converge.
MOST_STEPS = 100_000


def check_integer(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """Return a parameter that must be an integer of at least ``least`` and, if given, at most ``most``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; an integer of at least {least} is wanted")
    if value < least:
        raise ValueError(f"{name}={value}; it must be at least {least}")
    if most is not None and int(value) > most:
        raise ValueError(f"{name}={value}; it must be at most {most}")
    return int(value)


def check_number(name: str, value: object, *, least: float = -inf, above: float = -inf, below: float = inf) -> float:
    """Return a parameter that must be a finite number with ``least <= value`` and ``above < value < below``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; a number is wanted")
    number = float(value)
    if isfinite(number) and number >= least and above < number < below:
        return number
    bounds = [f"of at least {least:g}"] * (least > -inf) + [f"above {above:g}"] * (above > -inf)
    bounds += [f"below {below:g}"] * (below < inf)
    raise ValueError(f"{name}={value}; it must be a finite number {' and '.join(bounds)}".rstrip())
