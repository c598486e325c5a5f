"""
Your own solver
===============

Problems and solvers are separate. A code solver is a dataclass with two methods; everything else stays as it is. Here
it is proximal gradient descent without acceleration (ISTA), compared with ADMM. :doc:`../models` has a model of your
own, an atom that may be mirrored, in the same spirit.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt

from tubal import TubSC
from tubal.datasets import make_shifted_shapes
from tubal.solvers import Admm, Solution, iterate


@dataclass(frozen=True)
class Ista:
    """Proximal gradient steps; the state is the codes themselves."""

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


images = make_shifted_shapes(100, n_classes=4, image_shape=(12, 12), random_state=0).images
for solver in (Ista(max_iter=20), Admm(max_iter=20)):
    model = TubSC(n_atoms=8, max_iter=12, tol=0, code_solver=solver, random_state=0).fit(images)
    plt.plot(range(1, len(model.objective_) + 1), model.objective_, label=type(solver).__name__)
plt.xlabel("alternation")
plt.ylabel("objective")
plt.legend()
plt.show()
