"""ADMM for coding: an exact quadratic solve, shrinkage, and over-relaxation (derived in docs/theory.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tubal.backends.arrays import Array, as_like
from tubal.problems.base import CodingProblem, SplitState, clip_to, soft_threshold
from tubal.solvers.base import MOST_STEPS, Monitor, Solution, check_integer, check_number, ignore, iterate


@dataclass(frozen=True)
class Admm:
    """Alternating direction method of multipliers, in its form with one array (Douglas-Rachford).

    Parameters
    ----------
    max_iter : int, default=50
        Maximum number of steps.
    tol : float, default=1e-4
        Stop when the point of every image changes by less than this fraction of its norm in one step. The change equals
        the distance from the codes to the exact minimiser of the quadratic, so the KKT residual of an image is below
        ``(lipschitz + penalty) · tol · ||point||``. Images connected by a graph are one problem: there the root mean
        square of the fractions counts, and single ones may be larger.
    penalty : float, default=1.0
        Weight of the augmented Lagrangian, above 0. Atoms lie in the unit ball, which fixes the scale of the quadratic,
        so the default suits all data.
    relaxation : float, default=1.8
        Over-relaxation, above 0 and below 2.
    check_every : int, default=10
        Number of steps between two checks of the stopping rule.
    gap : float, optional
        Stop when the duality gap proves that the codes of every image, or of all images of a graph together, exceed the
        minimum by at most this fraction of the objective. ``tol`` is then not used.

    Examples
    --------
    >>> Admm(max_iter=100, tol=1e-6).penalty
    1.0
    """

    max_iter: int = 50
    tol: float = 1e-4
    penalty: float = 1.0
    relaxation: float = 1.8
    check_every: int = 10
    gap: float | None = None

    def __post_init__(self) -> None:
        check_integer("max_iter", self.max_iter, most=MOST_STEPS)
        check_number("tol", self.tol, least=0.0)
        check_number("penalty", self.penalty, above=0.0)
        check_number("relaxation", self.relaxation, above=0.0, below=2.0)
        check_integer("check_every", self.check_every)
        if self.gap is not None:
            check_number("gap", self.gap, above=0.0)

    def minimise(
        self, problem: CodingProblem, start: SplitState | Array | None = None, monitor: Monitor = ignore
    ) -> Solution[SplitState]:
        """Minimise a coding problem.

        Parameters
        ----------
        problem : CodingProblem
            The problem of a batch of images.
        start : SplitState or array of shape problem.codes_shape, optional
            The state of a former run, or codes; None starts at zero.
        monitor : callable, optional
            ``monitor(n_iter, state)`` is called after every ``check_every`` steps.

        Returns
        -------
        Solution
            The final state and how it was reached.
        """
        if start is None:
            state = SplitState(problem.zeros())
        elif isinstance(start, SplitState):
            state = SplitState(start.point)
        else:
            state = SplitState(self.lift(problem, start))
        # Copied, so that a solution can compute `converged` after the problem is deleted.
        independent = problem.independent

        tol = self.tol if self.gap is None else 0.0

        def advance(now: SplitState, n_steps: int) -> SplitState:
            after = problem.split(now, penalty=self.penalty, relaxation=self.relaxation, n_steps=n_steps, tol=tol)
            return after if self.gap is None else self._stop_certified(problem, after, self.gap)

        def stop(now: SplitState) -> bool:
            return now.movement is not None and bool(_overall_movement(now.movement, independent) <= tol)

        solution = iterate(
            advance,
            state,
            stop=stop,
            max_iter=self.max_iter,
            check_every=self.check_every,
            monitor=monitor,
        )
        # What the problem kept for speed is of no use to the next problem, which has other atoms.
        final = problem.plain_state(solution.state, final=True)
        return Solution(final, solution.n_iter, lambda: stop(final))

    def _stop_certified(self, problem: CodingProblem, state: SplitState, gap: float) -> SplitState:
        """Set the movement of images to zero whose codes are certified, and to a positive number for all others."""
        found = problem.duality_gap(self.codes(problem, state))
        certified = found.by_image <= gap if problem.independent else np.full(len(found.gaps), found.relative <= gap)
        return replace(state, movement=as_like(np.where(certified, 0.0, 1.0), state.movement))

    def codes(self, problem: CodingProblem, state: SplitState) -> Array:
        """Return the codes of a state.

        Parameters
        ----------
        problem : CodingProblem
            The problem that was minimised.
        state : SplitState
            A state of this solver.

        Returns
        -------
        array of shape problem.codes_shape
            The codes.
        """
        return soft_threshold(problem.plain_state(state).point, problem.sparsity / self.penalty)

    def lift(self, problem: CodingProblem, codes: Array) -> Array:
        """Return a point for given codes, with the dual that fits the gradient best.

        Parameters
        ----------
        problem : CodingProblem
            The problem to be minimised.
        codes : array of shape problem.codes_shape
            Any codes.

        Returns
        -------
        array of shape problem.codes_shape
            The point of a :class:`tubal.problems.SplitState`.
        """
        dual = clip_to(-problem.gradient(codes) / self.penalty, problem.sparsity / self.penalty)
        return codes + dual


def _overall_movement(movement: Array, independent: bool) -> Array:
    """Return the largest relative change of independent images, the root mean square of connected ones."""
    # Clipped, because the first change of a point at zero is infinite or nearly so, and its square would overflow.
    return movement.max() if independent else (movement.clip(max=1e6) ** 2).mean() ** 0.5
