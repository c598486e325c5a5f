"""Two-dimensional convolutional coding against SPORCO's ConvBPDN, to the same objective."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.coding import first_reaching
from benchmarks.timing import alternate
from tubal.datasets import fetch
from tubal.problems.convolutional import ConvolutionalCoding
from tubal.solvers import Admm

CASES = (("orl", 60), ("coil20", 60), ("yale", 30))
FILTERS, SIDE, SPARSITY = 32, 8, 0.01
ITERATIONS = 200  # of SPORCO, whose objective after them is what both must reach
PENALTIES = (0.3, 1.0, 3.0, 10.0)  # both take the best of these


def load_problem(name: str, n_images: int) -> ConvolutionalCoding:
    """Return images of unit length, spread over a collection, and unit-length patches of them as filters."""
    images = fetch(name).images
    images = images[np.arange(n_images) * len(images) // n_images].astype(np.float64)
    images /= np.sqrt((images**2).sum((1, 2), keepdims=True))
    height, width = images.shape[1:]
    ends = (n_images, height - SIDE + 1, width - SIDE + 1)
    places = np.random.default_rng(0).integers(0, ends, size=(FILTERS, 3))
    patches = [images[image, top : top + SIDE, left : left + SIDE] for image, top, left in places]
    lengths = [np.linalg.norm(patch) or 1.0 for patch in patches]
    filters = np.stack([patch / length for patch, length in zip(patches, lengths, strict=True)], -1)[:, :, None]
    data = np.ascontiguousarray(np.moveaxis(images, 0, -1)[:, :, None])
    return ConvolutionalCoding(filters.astype(np.float32), data.astype(np.float32), sparsity=SPARSITY)


def fresh(problem: ConvolutionalCoding) -> ConvolutionalCoding:
    """Return the same problem with nothing worked out yet, so that set-up is timed too."""
    return ConvolutionalCoding(problem.dictionary, problem.data, sparsity=SPARSITY)


def sporco_codes(problem: ConvolutionalCoding, rho: float, iterations: int = ITERATIONS) -> Any:
    """Run SPORCO on the same problem, in float32 with its objective not evaluated in the loop."""
    from sporco.admm import cbpdn

    options = cbpdn.ConvBPDN.Options(
        {
            "Verbose": False, "MaxMainIter": iterations, "RelStopTol": 0.0, "rho": rho, "RelaxParam": 1.8,
            "AutoRho": {"Enabled": False}, "DataType": np.float32, "FastSolve": True,
        }
    )  # fmt: skip
    solver = cbpdn.ConvBPDN(problem.dictionary[:, :, 0], problem.data[:, :, 0], SPARSITY, options, dimK=1)
    solver.solve()
    return np.swapaxes(solver.Y[:, :, 0], 2, 3)


def against_sporco(repeats: int, cases: tuple[tuple[str, int], ...] = CASES) -> list[dict[str, Any]]:
    """Time to the objective that SPORCO has after 200 iterations at the best of four penalties."""
    rows = []
    for name, n_images in cases:
        problem = load_problem(name, n_images)
        objectives = {rho: problem.value(sporco_codes(problem, rho).astype(np.float32)) for rho in PENALTIES}
        rho = min(objectives, key=lambda key: objectives[key])
        penalty, steps = best_penalty(problem, objectives[rho])
        solver = Admm(max_iter=steps, tol=0.0, penalty=penalty)
        ours, theirs = alternate(
            lambda problem=problem, solver=solver: solver.minimise(fresh(problem)),
            lambda problem=problem, rho=rho: sporco_codes(problem, rho),
            repeats,
        )
        rows.append(
            {
                "problem": f"{name}, {n_images} images, {FILTERS} filters of {SIDE}×{SIDE}, sparsity 0.01, float32",
                "SPORCO penalty": rho, "objective": objectives[rho], "penalty": penalty, "steps": steps,
                "seconds": ours, "SPORCO seconds": theirs, "ratio": theirs / ours, "wanted": 3.0,
            }
        )  # fmt: skip
    return rows


def best_penalty(problem: ConvolutionalCoding, target: float) -> tuple[float, int]:
    """Return the penalty that reaches ``target`` in the fewest steps, and how many those are."""
    found: dict[float, int] = {}
    for penalty in PENALTIES:
        most = min([1500, *found.values()])
        try:
            found[penalty] = first_reaching(Admm(max_iter=most, tol=0.0, penalty=penalty), problem, target)
        except RuntimeError:
            continue
    if not found:
        raise RuntimeError(f"no penalty of {PENALTIES} reached {target}")
    best = min(found, key=lambda key: found[key])
    return best, found[best]
