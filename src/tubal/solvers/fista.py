"""Algorithm 1 (ISTT): iterative shrinkage with extrapolation, as it should be and as it is printed."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from tubal.backends.arrays import Array, namespace
from tubal.problems.base import CodingProblem, MomentumState, relative_movement
from tubal.solvers.iterate import Monitor, Solution, ignore, iterate

FLATTEST = 1e-12


@dataclass(frozen=True)
class Fista:
    """Algorithm 1 with the exact Lipschitz constant and adaptive restart.

    Stops when every image's codes would move by less than ``tol`` of their length, relative to a step of
    length one over the constant (the scaled KKT residual).
    """

    max_iter: int = 200
    tol: float = 1e-4
    check_every: int = 10

    def minimise(
        self, problem: CodingProblem, start: MomentumState | Array | None = None, monitor: Monitor = ignore
    ) -> Solution[MomentumState]:
        """Minimise from a former state, from codes, or from zero."""
        state = _start(problem, start)
        # Atoms that all vanish have no curvature, and a step of any length is as good.
        step_size = 1.0 / max(problem.lipschitz, FLATTEST)
        return iterate(
            lambda now, burst: problem.accelerate(now, step_size=step_size, n_steps=burst),
            state,
            stop=lambda now: self.tol > 0.0 and prox_residual(problem, now.codes, step_size) <= self.tol,
            max_iter=self.max_iter,
            check_every=self.check_every,
            monitor=monitor,
        )

    def codes(self, problem: CodingProblem, state: MomentumState) -> Array:
        """Return the codes of a state."""
        return state.codes


@dataclass(frozen=True)
class PrintedIstt:
    """Algorithm 1 exactly as printed: the constant of its line 4, multiplied by ``growth`` every iteration.

    The step sizes are summable, so the iteration stalls short of the minimum; kept to show that it does.
    """

    max_iter: int = 200
    growth: float = 1.01
    check_every: int = 10

    def minimise(
        self, problem: CodingProblem, start: MomentumState | Array | None = None, monitor: Monitor = ignore
    ) -> Solution[MomentumState]:
        """Run all iterations from codes at rest, or from zero; the printed algorithm has no stopping rule."""
        constant = problem.printed_lipschitz  # type: ignore[attr-defined]
        n_done = 0

        def advance(state: MomentumState, burst: int) -> MomentumState:
            nonlocal n_done
            for _ in range(burst):
                n_done += 1
                state = printed_step(problem, state, constant * self.growth**n_done)
            return state

        state = _start(problem, start.codes if isinstance(start, MomentumState) else start)
        return iterate(
            advance,
            state,
            stop=lambda now: False,
            max_iter=self.max_iter,
            check_every=self.check_every,
            monitor=monitor,
        )

    def codes(self, problem: CodingProblem, state: MomentumState) -> Array:
        """Return the codes of a state."""
        return state.codes


def printed_step(problem: CodingProblem, state: MomentumState, constant: float) -> MomentumState:
    """One pass of Algorithm 1, lines 4-8."""
    step_size = 1.0 / constant
    gradient = problem.gradient(state.momentum_point)
    codes = problem.prox(state.momentum_point - step_size * gradient, step_size)
    before = float(state.inertia[0])
    inertia = (1.0 + sqrt(1.0 + 4.0 * before**2)) / 2.0
    push = (before - 1.0) / inertia
    momentum_point = codes + push * (codes - state.codes)
    return MomentumState(codes, momentum_point, state.inertia * 0.0 + inertia, state.restart)


def prox_residual(problem: CodingProblem, codes: Array, step_size: float) -> float:
    """Return the largest relative length, over images, of one proximal-gradient step from ``codes``."""
    moved = problem.prox(codes - step_size * problem.gradient(codes), step_size) - codes
    return float(relative_movement(moved, codes).max())


def _start(problem: CodingProblem, start: MomentumState | Array | None) -> MomentumState:
    """Return a state with its own buffers: steps are made in place, and the caller may still need the start."""
    if isinstance(start, MomentumState):
        return MomentumState(
            *(part + 0.0 for part in (start.codes, start.momentum_point, start.inertia, start.restart))
        )
    codes = problem.zeros() if start is None else start
    ones = namespace(codes).ones_like(codes[(0,) * (codes.ndim - 1)])
    return MomentumState(codes + 0.0, codes + 0.0, ones, ones * 0.0)
