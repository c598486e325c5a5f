"""ADMM for coding: exact quadratic solve, shrinkage, over-relaxation (findings in docs/theory.md)."""

from __future__ import annotations

from dataclasses import dataclass

from tubal.backends.arrays import Array
from tubal.problems.base import CodingProblem, SplitState, clip_to, soft_threshold
from tubal.solvers.iterate import Monitor, Solution, ignore, iterate


@dataclass(frozen=True)
class Admm:
    """Alternating direction method of multipliers in its one-array (Douglas-Rachford) form.

    Parameters
    ----------
    max_iter : most steps.
    tol : stop when every image's point moves by less than this fraction of its length in one step. The distance from
        the codes to the exact quadratic minimiser is that movement, so an image's KKT residual is below
        ``(lipschitz + penalty) · tol · ||point||``. Images that a graph ties are one problem: of their fractions the
        root mean square counts, and single ones may be larger.
    penalty : the augmented-Lagrangian weight. Atoms live in the unit ball, which fixes the scale of the
        quadratic: 1 serves all data.
    relaxation : over-relaxation in (0, 2).
    check_every : steps between two looks at the stopping rule.
    """

    max_iter: int = 50
    tol: float = 1e-4
    penalty: float = 1.0
    relaxation: float = 1.8
    check_every: int = 10

    def minimise(
        self, problem: CodingProblem, start: SplitState | Array | None = None, monitor: Monitor = ignore
    ) -> Solution[SplitState]:
        """Minimise from a former state, from codes, or from zero."""
        if start is None:
            state = SplitState(problem.zeros())
        elif isinstance(start, SplitState):
            state = SplitState(start.point)
        else:
            state = SplitState(self.lift(problem, start))
        untied = problem.independent  # the verdict may be asked for when the problem is long gone

        def stop(now: SplitState) -> bool:
            return now.movement is not None and bool(_overall(now.movement, untied) <= self.tol)

        solution = iterate(
            lambda now, burst: problem.split(
                now, penalty=self.penalty, relaxation=self.relaxation, n_steps=burst, tol=self.tol
            ),
            state,
            stop=stop,
            max_iter=self.max_iter,
            check_every=self.check_every,
            monitor=monitor,
        )
        # What a problem kept for its own speed ends with it: the next one has other atoms.
        settled = problem.settle(solution.state, last=True)
        return Solution(settled, solution.n_iter, lambda: stop(settled))

    def codes(self, problem: CodingProblem, state: SplitState) -> Array:
        """Return the codes of a state."""
        return soft_threshold(problem.settle(state).point, problem.sparsity / self.penalty)

    def lift(self, problem: CodingProblem, codes: Array) -> Array:
        """Return the point whose codes are ``codes`` and whose dual fits the gradient best."""
        dual = clip_to(-problem.gradient(codes) / self.penalty, problem.sparsity / self.penalty)
        return codes + dual


def _overall(movement: Array, untied: bool) -> Array:
    """Return the largest movement of untied images, the root mean square of tied ones."""
    # From zero every image moves infinitely far, which squared would not be a number any more.
    return movement.max() if untied else (movement.clip(max=1e6) ** 2).mean() ** 0.5
