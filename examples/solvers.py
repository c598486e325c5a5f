"""One coding problem and three solvers: ADMM, Algorithm 1 with the exact Lipschitz constant, Algorithm 1 as printed.

    python examples/solvers.py

A problem says what is minimised, a solver how. Every estimator accepts every solver: GTSC(code_solver=Fista()).
"""

import time

import numpy as np
from sklearn.datasets import load_digits

from tubal import TubSC
from tubal.problems import ImageLayout, TubalModel
from tubal.solvers import Admm, Fista, PrintedIstt

images = load_digits().images[:300]
images = images / np.linalg.norm(images, axis=(1, 2), keepdims=True)
data = ImageLayout((8, 8)).to_tensor(images)  # (tube, row, sample)
dictionary = data[:, :, :20]  # the first twenty images as atoms
problem = TubalModel().coding(dictionary, data, sparsity=0.01)
print(f"Lipschitz constant: exact {problem.lipschitz:.1f}, as printed {problem.printed_lipschitz:.1f}\n")

Admm(max_iter=1).minimise(problem)  # compile the kernels, so that the times below do not include it
Fista(max_iter=1).minimise(problem)
best = Admm(max_iter=3000, tol=1e-9)
lowest = problem.value(best.codes(problem, best.minimise(problem).state))

print("                       iterations   above the minimum   seconds")
for name, solver in (
    ("ADMM", Admm(max_iter=100, tol=0.0)),
    ("Algorithm 1, exact constant", Fista(max_iter=100, tol=0.0)),
    ("Algorithm 1, as printed", PrintedIstt(max_iter=100)),
    ("ADMM", Admm(max_iter=400, tol=0.0)),
    ("Algorithm 1, exact constant", Fista(max_iter=400, tol=0.0)),
    ("Algorithm 1, as printed", PrintedIstt(max_iter=400)),
):
    begin = time.perf_counter()
    solution = solver.minimise(problem)
    seconds = time.perf_counter() - begin
    excess = problem.value(solver.codes(problem, solution.state)) / lowest - 1.0
    print(f"{name:27} {solution.n_iter:6}   {excess:17.2e}   {seconds:7.3f}")

model = TubSC(n_atoms=8, code_solver=Fista(max_iter=20), max_iter=5, random_state=0).fit(images)
print(f"\nTubSC with Fista: objective {model.objective_[0]:.3f} to {model.objective_[-1]:.3f}")
