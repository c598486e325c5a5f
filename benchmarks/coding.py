"""Coding without a graph against SPORCO, with one against Algorithm 1."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.problems import Case, load_case
from benchmarks.timing import alternate
from tubal.solvers import Admm, Fista, PrintedIstt

CASES = (("orl", 200), ("usps", 2000), ("yale", 165))
RHOS = (0.5, 1.5, 5.0)
CEILING = 1.001  # of the best objective known


def sporco_solve(case: Case, *, iterations: int, rho: float, fast: bool = True) -> Any:
    """Run SPORCO's ConvBPDN on the same problem, in float32 with its objective not evaluated in the loop."""
    from sporco.admm import cbpdn

    options = cbpdn.ConvBPDN.Options(
        {
            "Verbose": False, "MaxMainIter": iterations, "RelStopTol": 0.0, "rho": rho, "RelaxParam": 1.8,
            "AutoRho": {"Enabled": False}, "DataType": np.float32, "FastSolve": fast,
        }
    )  # fmt: skip
    atoms = np.ascontiguousarray(case.atoms)
    solver = cbpdn.ConvBPDN(atoms, np.ascontiguousarray(case.data), 0.01, options, dimK=1, dimN=1)
    codes = solver.solve()
    return np.asarray(codes).reshape(case.data.shape[0], case.data.shape[2], case.atoms.shape[2]).transpose(0, 2, 1)


def first_reaching(solver: Any, problem: Any, target: float) -> int:
    """Return the number of steps after which the solver's codes first have an objective of at most ``target``."""
    found = []

    def look(n_iter: int, state: Any) -> None:
        if not found and problem.value(solver.codes(problem, state)) <= target:
            found.append(n_iter)
            raise StopIteration

    try:
        solver.minimise(problem, monitor=look)
    except StopIteration:
        return found[0]
    raise RuntimeError(f"{type(solver).__name__} did not reach {target} in {solver.max_iter} steps")


def against_sporco(repeats: int, cases: tuple[tuple[str, int], ...] = CASES) -> list[dict[str, Any]]:
    """Time to SPORCO's 200-iteration objective, SPORCO at the best of three penalties."""
    rows = []
    for name, n_images in cases:
        case = load_case(name, n_images)
        problem = case.coding()
        objectives = {
            rho: problem.value(sporco_solve(case, iterations=200, rho=rho).astype(np.float32).copy()) for rho in RHOS
        }
        rho = min(objectives, key=lambda key: objectives[key])
        steps = first_reaching(Admm(max_iter=2000, tol=0.0, check_every=5), problem, objectives[rho])
        ours, theirs = alternate(
            lambda case=case, steps=steps: Admm(max_iter=steps, tol=0.0).minimise(case.coding()),
            lambda case=case, rho=rho: sporco_solve(case, iterations=200, rho=rho),
            repeats,
        )
        rows.append(
            {
                "problem": f"{name}, {n_images} images, {case.atoms.shape[2]} atoms, sparsity 0.01, float32",
                "SPORCO penalty": rho, "objective": objectives[rho], "steps": steps,
                "seconds": ours, "SPORCO seconds": theirs, "ratio": theirs / ours, "wanted": 20.0,
            }
        )  # fmt: skip
    return rows


def against_algorithm_1(repeats: int, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Time to 1.001 of the best objective, set-up included, against Algorithm 1 with exact constant and restart."""
    rows = []
    for name in names:
        case = load_case(name)
        for graph_weight in (1.0, 10.0):
            problem = case.coding(graph_weight=graph_weight)
            solver = Admm(max_iter=1000, tol=1e-6)
            best = problem.value(solver.codes(problem, solver.minimise(problem).state))
            printed = PrintedIstt(max_iter=400)
            stall = problem.value(printed.codes(problem, printed.minimise(problem).state))
            steps = first_reaching(Admm(max_iter=1000, tol=0.0, check_every=5), problem, CEILING * best)
            peer_steps = first_reaching(Fista(max_iter=20000, tol=0.0, check_every=25), problem, CEILING * best)
            ours, theirs = alternate(
                lambda case=case, w=graph_weight, n=steps: Admm(max_iter=n, tol=0.0).minimise(
                    case.coding(graph_weight=w)
                ),
                lambda case=case, w=graph_weight, n=peer_steps: Fista(max_iter=n, tol=0.0).minimise(
                    case.coding(graph_weight=w)
                ),
                repeats,
            )
            rows.append(
                {
                    "problem": f"{name}, {case.data.shape[2]} images, graph weight {graph_weight:g}",
                    "best objective": best, "printed algorithm stalls at": stall, "steps": steps,
                    "Algorithm 1 steps": peer_steps, "seconds": ours, "Algorithm 1 seconds": theirs,
                    "ratio": theirs / ours, "wanted": 5.0 if name == "orl" else 3.0,
                }
            )  # fmt: skip
    return rows


def convergence_curves(
    name: str = "orl", n_images: int = 200, graph_weight: float = 0.0
) -> dict[str, list[tuple[float, float]]]:
    """Return objective against seconds for every solver, its own monitoring time taken out."""
    case = load_case(name, n_images)
    problem = case.coding(graph_weight=graph_weight)
    curves = {}
    solvers = {
        "Admm": Admm(300, 0.0),
        "Fista: Algorithm 1, exact constant": Fista(600, 0.0),
        "Algorithm 1 as printed": PrintedIstt(300),
    }
    for label, solver in solvers.items():
        solver.__class__(max_iter=10).minimise(problem)
        curve: list[tuple[float, float]] = []
        clock = {"spent": 0.0, "since": time.perf_counter()}

        def look(n_iter: int, state: Any, solver: Any = solver, curve: Any = curve, clock: Any = clock) -> None:
            clock["spent"] += time.perf_counter() - clock["since"]
            curve.append((clock["spent"], problem.value(solver.codes(problem, state))))
            clock["since"] = time.perf_counter()

        solver.minimise(problem, monitor=look)
        curves[label] = curve
    return curves
