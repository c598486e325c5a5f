"""Coding against peers: SPORCO for tubal and convolutional codes, Algorithm 1 of the paper with a graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import Row, alternate, timed
from tubal import TubSC
from tubal.datasets import fetch
from tubal.graph import knn_graph, laplacian
from tubal.problems.base import CodingProblem
from tubal.problems.convolutional import ConvolutionalCoding
from tubal.problems.layout import ImageLayout
from tubal.problems.tubal import TubalCoding
from tubal.solvers import Admm, Fista, PrintedIstt

FloatArray = NDArray[np.float32]
SPARSITY = 0.01
SPORCO_ITERATIONS = 200  # both programs must reach the objective that SPORCO has after these
CLOSE_TO_BEST = 1.001  # times the best objective known

TUBAL_CASES = (("orl", 200), ("usps", 2000), ("yale", 165))
TUBAL_PENALTIES = (0.5, 1.5, 5.0)  # SPORCO uses the best of these
QUALITY_CASES = (("orl", 100), ("usps", 500))
QUALITY_PENALTIES = (0.5, 1.0, 2.0)  # both programs use the best of these

FILTER_CASES = (("orl", 60), ("coil20", 60), ("yale", 30))
FILTER_PENALTIES = (0.3, 1.0, 3.0, 10.0)  # both programs use the best of these
N_FILTERS, FILTER_SIDE = 32, 8


# --- the problems ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TubalCase:
    """Images of unit length, as data (tube, row, sample), and some of them as atoms (tube, row, atom)."""

    images: FloatArray
    data: FloatArray
    atoms: FloatArray

    def problem(self, *, graph_weight: float = 0.0) -> TubalCoding:
        """Return the coding problem; with a graph weight, a graph of 3 nearest neighbours couples the images."""
        graph = laplacian(knn_graph(self.images, 3)) if graph_weight else None
        # Copies, so that every problem is set up from scratch.
        atoms, data = self.atoms.astype(np.float32), self.data.astype(np.float32)
        return TubalCoding(atoms, data, sparsity=SPARSITY, graph_weight=graph_weight, laplacian=graph)


def load_tubal_case(name: str, n_images: int | None = None, n_atoms: int = 45) -> TubalCase:
    """Return the first ``n_images`` of a collection, with ``n_atoms`` random ones of them as atoms."""
    images = fetch(name).images[:n_images]
    lengths = np.sqrt((images.reshape(len(images), -1) ** 2).sum(1))
    images = (images / lengths[:, None, None]).astype(np.float32)
    data = ImageLayout(images.shape[1:]).to_tensor(images)
    chosen = np.random.default_rng(0).choice(len(images), n_atoms, replace=False)
    return TubalCase(images, data, np.ascontiguousarray(data[:, :, chosen]))


def load_filter_problem(name: str, n_images: int) -> ConvolutionalCoding:
    """Return evenly spaced images of a collection, scaled to unit length, with some of their patches as filters."""
    images = fetch(name).images
    images = images[np.arange(n_images) * len(images) // n_images].astype(np.float64)
    images /= np.sqrt((images**2).sum((1, 2), keepdims=True))
    height, width = images.shape[1:]
    ends = (n_images, height - FILTER_SIDE + 1, width - FILTER_SIDE + 1)
    places = np.random.default_rng(0).integers(0, ends, size=(N_FILTERS, 3))
    patches = [images[image, top : top + FILTER_SIDE, left : left + FILTER_SIDE] for image, top, left in places]
    lengths = [np.linalg.norm(patch) or 1.0 for patch in patches]
    filters = np.stack([patch / length for patch, length in zip(patches, lengths, strict=True)], -1)[:, :, None]
    data = np.ascontiguousarray(np.moveaxis(images, 0, -1)[:, :, None])
    return ConvolutionalCoding(filters.astype(np.float32), data.astype(np.float32), sparsity=SPARSITY)


# --- the peers -------------------------------------------------------------------------------------------------
def sporco_options(penalty: float, steps: int = SPORCO_ITERATIONS) -> dict[str, object]:
    """Return SPORCO's options: float32, a fixed penalty, and no evaluation of the objective in the loop."""
    return {
        "Verbose": False, "MaxMainIter": steps, "RelStopTol": 0.0, "rho": penalty, "RelaxParam": 1.8,
        "AutoRho": {"Enabled": False}, "DataType": np.float32, "FastSolve": True,
    }  # fmt: skip


def sporco_tubal_codes(
    case: TubalCase,
    penalty: float,
    sparsity: float = SPARSITY,
    steps: int = SPORCO_ITERATIONS,
    stop: Callable[[FloatArray], bool] | None = None,
) -> tuple[FloatArray, int]:
    """Return SPORCO's codes (tube, atom, sample) and its steps: its ConvBPDN along the tube, with rows as channels.

    ``stop`` sees the codes after every fifth step, and ends the run by returning True.
    """
    from sporco.admm import cbpdn

    def codes_of(found: object) -> FloatArray:
        codes = np.asarray(found).reshape(case.data.shape[0], case.data.shape[2], case.atoms.shape[2])
        return codes.transpose(0, 2, 1).astype(np.float32)

    def look(solver: Any) -> bool:
        return stop is not None and solver.k % 5 == 4 and stop(codes_of(solver.Y))

    options = cbpdn.ConvBPDN.Options({**sporco_options(penalty, steps), "Callback": look if stop else None})
    solver = cbpdn.ConvBPDN(case.atoms, np.ascontiguousarray(case.data), sparsity, options, dimK=1, dimN=1)
    return codes_of(solver.solve()), solver.k


def sporco_filter_codes(problem: ConvolutionalCoding, penalty: float) -> FloatArray:
    """Return SPORCO's codes (height, width, filter, sample) of a convolutional problem."""
    from sporco.admm import cbpdn

    options = cbpdn.ConvBPDN.Options(sporco_options(penalty))
    solver = cbpdn.ConvBPDN(problem.dictionary[:, :, 0], problem.data[:, :, 0], SPARSITY, options, dimK=1)
    solver.solve()
    return np.swapaxes(solver.Y[:, :, 0], 2, 3)


def steps_to_objective(solver: Admm | Fista, problem: CodingProblem, target: float) -> int:
    """Return the number of steps after which the solver's codes first have an objective of at most ``target``."""
    found: list[int] = []

    def monitor(n_iter: int, state: Any) -> None:
        if problem.value(solver.codes(problem, state)) <= target:
            found.append(n_iter)
            raise StopIteration

    try:
        solver.minimise(problem, monitor=monitor)
    except StopIteration:
        return found[0]
    raise RuntimeError(f"{type(solver).__name__} did not reach {target} in {solver.max_iter} steps")


def _solve_case(solver: Admm | Fista, case: TubalCase, graph_weight: float = 0.0) -> None:
    """Set the problem up and solve it."""
    solver.minimise(case.problem(graph_weight=graph_weight))


def _solve_tubal(solver: Admm, case: TubalCase, sparsity: float) -> None:
    """Set the problem up from scratch, from copies, and solve it."""
    solver.minimise(TubalCoding(case.atoms.copy(), case.data.copy(), sparsity=sparsity))


def _solve_from_scratch(solver: Admm, problem: ConvolutionalCoding) -> None:
    """Set the problem up again and solve it."""
    solver.minimise(ConvolutionalCoding(problem.dictionary, problem.data, sparsity=SPARSITY))


# --- the measurements ------------------------------------------------------------------------------------------
def tubal_against_sporco(repeats: int, cases: Sequence[tuple[str, int]] = TUBAL_CASES) -> list[Row]:
    """Compare the seconds to SPORCO's objective, without a graph."""
    rows = []
    for name, n_images in cases:
        case = load_tubal_case(name, n_images)
        problem = case.problem()
        objectives = {
            penalty: problem.value(sporco_tubal_codes(case, penalty)[0].copy()) for penalty in TUBAL_PENALTIES
        }
        penalty = min(objectives, key=lambda key: objectives[key])
        steps = steps_to_objective(Admm(max_iter=2000, tol=0.0, check_every=5), problem, objectives[penalty])
        own = partial(_solve_case, Admm(max_iter=steps, tol=0.0), case)
        ours, theirs = alternate(own, partial(sporco_tubal_codes, case, penalty), repeats)
        rows.append(
            {
                "problem": f"{name}, {n_images} images, {case.atoms.shape[2]} atoms, sparsity {SPARSITY}, float32",
                "SPORCO penalty": penalty, "objective": objectives[penalty], "steps": steps,
                "seconds": ours, "SPORCO seconds": theirs, "ratio": theirs / ours, "target": 20.0,
            }
        )  # fmt: skip
    return rows


def encode_against_sporco(
    repeats: int, cases: Sequence[tuple[str, int]] = QUALITY_CASES, sparsities: Sequence[float] = (0.1, SPARSITY)
) -> list[Row]:
    """Compare the seconds to 1.001 times the best objective, and those of default ``encode``, which certifies codes."""
    rows = []
    for name, n_images in cases:
        for sparsity in sparsities:
            images = load_tubal_case(name, n_images).images
            model = TubSC(n_atoms=45, sparsity=sparsity, max_iter=3, tol=0.0, random_state=0).fit(images)
            atoms, data = np.ascontiguousarray(model.dictionary_), ImageLayout(images.shape[1:]).to_tensor(images)
            case, problem = TubalCase(images, data, atoms), TubalCoding(atoms, data, sparsity=sparsity)
            solver = Admm(max_iter=20000, gap=1e-5, check_every=50)
            best = problem.value(solver.codes(problem, solver.minimise(problem).state))
            penalty, steps = _fewest_steps(partial(_own_steps, problem), CLOSE_TO_BEST * best)
            peer_penalty, peer_steps = _fewest_steps(partial(_sporco_steps, case, problem), CLOSE_TO_BEST * best)
            # SPORCO checks nothing on the way either.
            own_solver = Admm(max_iter=steps, tol=0.0, penalty=penalty, check_every=steps)
            own = partial(_solve_tubal, own_solver, case, sparsity)
            peer = partial(sporco_tubal_codes, case, peer_penalty, sparsity, peer_steps)
            ours, theirs = alternate(own, peer, repeats)
            runs = sorted((timed(partial(model.encode, images)) for _ in range(repeats)), key=lambda run: run[0])
            coded, codes = runs[len(runs) // 2]
            rows.append(
                {
                    "problem": f"{name}, {n_images} images, 45 learned atoms, sparsity {sparsity:g}, float32",
                    "penalty": penalty, "SPORCO penalty": peer_penalty, "steps": steps, "SPORCO steps": peer_steps,
                    "seconds": ours, "SPORCO seconds": theirs, "ratio": theirs / ours,
                    "encode seconds": coded, "ratio of encode": theirs / coded,
                    "best ratio": theirs / min(ours, coded), "target": 20.0,
                    "encode / best": problem.value(np.ascontiguousarray(codes.transpose(2, 1, 0))) / best,
                }
            )  # fmt: skip
    return rows


def _own_steps(problem: TubalCoding, target: float, penalty: float, most: int) -> int | None:
    """Return the steps that ADMM takes to ``target``, or None if ``most`` are not enough."""
    try:
        return steps_to_objective(Admm(max_iter=most, tol=0.0, check_every=5, penalty=penalty), problem, target)
    except RuntimeError:
        return None


def _sporco_steps(case: TubalCase, problem: TubalCoding, target: float, penalty: float, most: int) -> int | None:
    """Return the steps that SPORCO takes to ``target``, or None if ``most`` are not enough."""
    codes, steps = sporco_tubal_codes(
        case, penalty, problem.sparsity, most, lambda codes: problem.value(codes) <= target
    )
    return steps if problem.value(codes) <= target else None


def _fewest_steps(steps_to: Callable[[float, float, int], int | None], target: float) -> tuple[float, int]:
    """Return the penalty with which a program reaches ``target`` in the fewest steps, and that number of steps."""
    found: dict[float, int] = {}
    for penalty in QUALITY_PENALTIES:
        steps = steps_to(target, penalty, min([2000, *found.values()]))
        if steps is not None:
            found[penalty] = steps
    best = min(found, key=lambda key: found[key])
    return best, found[best]


def filters_against_sporco(repeats: int, cases: Sequence[tuple[str, int]] = FILTER_CASES) -> list[Row]:
    """Compare the seconds to SPORCO's objective, for two-dimensional convolution."""
    rows = []
    for name, n_images in cases:
        problem = load_filter_problem(name, n_images)
        objectives = {
            penalty: problem.value(sporco_filter_codes(problem, penalty).astype(np.float32))
            for penalty in FILTER_PENALTIES
        }
        peer_penalty = min(objectives, key=lambda key: objectives[key])
        penalty, steps = best_penalty(problem, objectives[peer_penalty])
        own = partial(_solve_from_scratch, Admm(max_iter=steps, tol=0.0, penalty=penalty), problem)
        ours, theirs = alternate(own, partial(sporco_filter_codes, problem, peer_penalty), repeats)
        size = f"{N_FILTERS} filters of {FILTER_SIDE}×{FILTER_SIDE}"
        rows.append(
            {
                "problem": f"{name}, {n_images} images, {size}, sparsity {SPARSITY}, float32",
                "SPORCO penalty": peer_penalty, "objective": objectives[peer_penalty], "penalty": penalty,
                "steps": steps, "seconds": ours, "SPORCO seconds": theirs, "ratio": theirs / ours, "target": 3.0,
            }
        )  # fmt: skip
    return rows


def best_penalty(problem: ConvolutionalCoding, target: float) -> tuple[float, int]:
    """Return the penalty that reaches ``target`` in the fewest steps, and that number of steps."""
    found: dict[float, int] = {}
    for penalty in FILTER_PENALTIES:
        most = min([1500, *found.values()])
        try:
            found[penalty] = steps_to_objective(Admm(max_iter=most, tol=0.0, penalty=penalty), problem, target)
        except RuntimeError:
            continue
    if not found:
        raise RuntimeError(f"no penalty of {FILTER_PENALTIES} reached {target}")
    best = min(found, key=lambda key: found[key])
    return best, found[best]


def graph_against_algorithm_1(repeats: int, names: Sequence[str]) -> list[Row]:
    """Compare the seconds to 1.001 times the best objective, set-up included, with a graph.

    Algorithm 1 has the exact Lipschitz constant and restarts; ``PrintedIstt`` is the algorithm exactly as printed.
    """
    rows = []
    for name in names:
        case = load_tubal_case(name)
        for weight in (1.0, 10.0):
            problem = case.problem(graph_weight=weight)
            solver, printed = Admm(max_iter=1000, tol=1e-6), PrintedIstt(max_iter=400)
            best = problem.value(solver.codes(problem, solver.minimise(problem).state))
            stall = problem.value(printed.codes(problem, printed.minimise(problem).state))
            target = CLOSE_TO_BEST * best
            steps = steps_to_objective(Admm(max_iter=1000, tol=0.0, check_every=5), problem, target)
            peer_steps = steps_to_objective(Fista(max_iter=20000, tol=0.0, check_every=25), problem, target)
            own = partial(_solve_case, Admm(max_iter=steps, tol=0.0), case, graph_weight=weight)
            peer = partial(_solve_case, Fista(max_iter=peer_steps, tol=0.0), case, graph_weight=weight)
            ours, theirs = alternate(own, peer, repeats)
            rows.append(
                {
                    "problem": f"{name}, {case.data.shape[2]} images, graph weight {weight:g}",
                    "best objective": best, "printed algorithm stalls at": stall, "steps": steps,
                    "Algorithm 1 steps": peer_steps, "seconds": ours, "Algorithm 1 seconds": theirs,
                    "ratio": theirs / ours, "target": 5.0 if name == "orl" else 3.0,
                }
            )  # fmt: skip
    return rows


Curve = list[tuple[float, float]]  # seconds and objective


def convergence_curves(name: str = "orl", n_images: int = 200, graph_weight: float = 0.0) -> dict[str, Curve]:
    """Return the objective against seconds for every solver; the time of evaluating the objective is not counted."""
    problem = load_tubal_case(name, n_images).problem(graph_weight=graph_weight)
    solvers: dict[str, Admm | Fista | PrintedIstt] = {
        "Admm": Admm(300, 0.0),
        "Fista: Algorithm 1, exact constant": Fista(600, 0.0),
        "Algorithm 1 as printed": PrintedIstt(300),
    }
    return {label: _convergence_curve(solver, problem) for label, solver in solvers.items()}


def _convergence_curve(solver: Admm | Fista | PrintedIstt, problem: CodingProblem) -> Curve:
    type(solver)(max_iter=10).minimise(problem)  # compile the kernels
    curve: Curve = []
    spent, since = 0.0, time.perf_counter()

    def monitor(n_iter: int, state: Any) -> None:
        nonlocal spent, since
        spent += time.perf_counter() - since
        curve.append((spent, problem.value(solver.codes(problem, state))))
        since = time.perf_counter()

    solver.minimise(problem, monitor=monitor)
    return curve
