"""Algorithm 1 (ISTT), iterative shrinkage with extrapolation: with the right constant, and as the paper prints it."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from tubal.backends.arrays import Array, namespace
from tubal.problems.base import CodingProblem, MomentumState, relative_movement
from tubal.solvers.base import MOST_STEPS, Monitor, Solution, check_integer, check_number, ignore, iterate

# If all atoms are zero there is no curvature, and any step size will do.
MIN_LIPSCHITZ = 1e-12


class _MomentumSolver:
    """What the two forms of Algorithm 1 share."""

    def codes(self, problem: CodingProblem, state: MomentumState) -> Array:
        """Return the codes of a state.

        Parameters
        ----------
        problem : CodingProblem
            The problem that was minimised.
        state : MomentumState
            A state of this solver.

        Returns
        -------
        array of shape problem.codes_shape
            The codes.
        """
        return state.codes


@dataclass(frozen=True)
class Fista(_MomentumSolver):
    """Algorithm 1 with the exact Lipschitz constant and adaptive restart.

    Parameters
    ----------
    max_iter : int, default=200
        Maximum number of steps.
    tol : float, default=1e-4
        Stop when a proximal-gradient step of length ``1 / lipschitz`` would change the codes of every image by less
        than this fraction of their norm. 0 makes all ``max_iter`` steps.
    check_every : int, default=10
        Number of steps between two checks of the stopping rule.
    """

    max_iter: int = 200
    tol: float = 1e-4
    check_every: int = 10

    def __post_init__(self) -> None:
        check_integer("max_iter", self.max_iter, most=MOST_STEPS)
        check_number("tol", self.tol, least=0.0)
        check_integer("check_every", self.check_every)

    def minimise(
        self, problem: CodingProblem, start: MomentumState | Array | None = None, monitor: Monitor = ignore
    ) -> Solution[MomentumState]:
        """Minimise a coding problem.

        Parameters
        ----------
        problem : CodingProblem
            The problem of a batch of images.
        start : MomentumState or array of shape problem.codes_shape, optional
            The state of a former run, or codes; None starts at zero.
        monitor : callable, optional
            ``monitor(n_iter, state)`` is called after every ``check_every`` steps.

        Returns
        -------
        Solution
            The final state and how it was reached.
        """
        step_size = 1.0 / max(problem.lipschitz, MIN_LIPSCHITZ)
        return iterate(
            lambda now, n_steps: problem.accelerate(now, step_size=step_size, n_steps=n_steps),
            _initial_state(problem, start),
            stop=lambda now: self.tol > 0.0 and prox_residual(problem, now.codes, step_size) <= self.tol,
            max_iter=self.max_iter,
            check_every=self.check_every,
            monitor=monitor,
        )


@dataclass(frozen=True)
class PrintedIstt(_MomentumSolver):
    """Algorithm 1 exactly as printed: with the constant of its line 4, multiplied by ``growth`` in every iteration.

    The step sizes are summable, so the iteration stalls before the minimum. The class exists to demonstrate that, for
    the tubal models only: the paper prints no constant for others.

    Parameters
    ----------
    max_iter : int, default=200
        Number of steps; the printed algorithm has no stopping rule.
    growth : float, default=1.01
        The paper's η, at least 1.
    check_every : int, default=10
        Number of steps between two calls of the monitor.
    """

    max_iter: int = 200
    growth: float = 1.01
    check_every: int = 10

    def __post_init__(self) -> None:
        check_integer("max_iter", self.max_iter, most=MOST_STEPS)
        check_number("growth", self.growth, least=1.0)
        check_integer("check_every", self.check_every)

    def minimise(
        self, problem: CodingProblem, start: MomentumState | Array | None = None, monitor: Monitor = ignore
    ) -> Solution[MomentumState]:
        """Make all steps, starting without momentum.

        Parameters
        ----------
        problem : TubalCoding
            The problem of a batch of images under a tubal dictionary.
        start : MomentumState or array of shape problem.codes_shape, optional
            The state of a former run, or codes; None starts at zero.
        monitor : callable, optional
            ``monitor(n_iter, state)`` is called after every ``check_every`` steps.

        Returns
        -------
        Solution
            The final state; it never counts as converged.
        """
        constant = getattr(problem, "printed_lipschitz", None)
        if constant is None:
            raise TypeError(
                f"PrintedIstt cannot solve a {type(problem).__name__}: the paper prints a constant for tubal "
                "dictionaries (TubSC, GTSC, SparseCoding, GraphSC) only; use Fista() or Admm()"
            )
        n_done = 0

        def advance(state: MomentumState, n_steps: int) -> MomentumState:
            nonlocal n_done
            for _ in range(n_steps):
                n_done += 1
                state = printed_step(problem, state, constant * self.growth**n_done)
            return state

        return iterate(
            advance,
            _initial_state(problem, start.codes if isinstance(start, MomentumState) else start),
            stop=lambda now: False,
            max_iter=self.max_iter,
            check_every=self.check_every,
            monitor=monitor,
        )


def printed_step(problem: CodingProblem, state: MomentumState, constant: float) -> MomentumState:
    """Make one pass of Algorithm 1, lines 4-8."""
    step_size = 1.0 / constant
    gradient = problem.gradient(state.momentum_point)
    codes = problem.prox(state.momentum_point - step_size * gradient, step_size)
    before = float(state.inertia[0])
    inertia = (1.0 + sqrt(1.0 + 4.0 * before**2)) / 2.0
    momentum = (before - 1.0) / inertia
    momentum_point = codes + momentum * (codes - state.codes)
    return MomentumState(codes, momentum_point, state.inertia * 0.0 + inertia, state.restart)


def prox_residual(problem: CodingProblem, codes: Array, step_size: float) -> float:
    """Return the largest relative change, over images, of one proximal-gradient step from ``codes``."""
    moved = problem.prox(codes - step_size * problem.gradient(codes), step_size) - codes
    return float(relative_movement(moved, codes).max())


def _initial_state(problem: CodingProblem, start: MomentumState | Array | None) -> MomentumState:
    """Return a state with its own arrays: steps are made in place, and the caller may still need ``start``."""
    if isinstance(start, MomentumState):
        return MomentumState(
            *(part + 0.0 for part in (start.codes, start.momentum_point, start.inertia, start.restart))
        )
    codes = problem.zeros() if start is None else start
    ones = namespace(codes).ones_like(codes[(0,) * (codes.ndim - 1)])
    return MomentumState(codes + 0.0, codes + 0.0, ones, ones * 0.0)
