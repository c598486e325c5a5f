"""A code solver: the example of docs/models.md, written with public names only."""

from dataclasses import dataclass

from tubal.solvers import Solution, iterate


@dataclass(frozen=True)
class Ista:
    """Proximal gradient steps without acceleration; the state is the codes themselves."""

    max_iter: int = 200
    tol: float = 1e-4

    def minimise(self, problem, start=None, monitor=lambda n_iter, state: None) -> Solution:
        step_size = 1.0 / problem.lipschitz

        def advance(codes, n_steps):
            for _ in range(n_steps):
                codes = problem.prox(codes - step_size * problem.gradient(codes), step_size)
            return codes

        def stop(codes):
            return abs(advance(codes, 1) - codes).max() <= self.tol

        first = problem.zeros() if start is None else start
        return iterate(advance, first, stop=stop, max_iter=self.max_iter, monitor=monitor)

    def codes(self, problem, state):
        return state
