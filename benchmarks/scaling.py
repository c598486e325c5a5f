"""How cost grows: time and memory against the number of images, atoms and the tube, and what a second thread brings."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import alternate, seconds
from tubal.problems.tubal import TubalCoding
from tubal.solvers import Admm


def synthetic(n_images: int, tube_length: int = 28, n_rows: int = 28, n_atoms: int = 45) -> TubalCoding:
    """Return a coding problem of random sparse sums of random atoms, float32."""
    generator = np.random.default_rng(0)
    atoms = generator.standard_normal((tube_length, n_rows, n_atoms), np.float32)
    atoms /= np.sqrt((atoms**2).sum((0, 1)))
    data = atoms[:, :, generator.integers(n_atoms, size=n_images)]
    data += 0.1 / np.sqrt(n_rows * tube_length) * generator.standard_normal(data.shape, np.float32)
    return TubalCoding(atoms, data, sparsity=0.01)


def ring(n_images: int) -> Any:
    """Return the Laplacian of a graph of mean degree six, cheap to make at any size."""
    import scipy.sparse as sp

    offsets = [1, 7, 31]
    parts = [sp.diags_array(np.ones(n_images - step), offsets=step, shape=(n_images, n_images)) for step in offsets]
    adjacency = sum(parts)
    adjacency = sp.csr_array(adjacency + adjacency.T)
    return sp.csr_array(sp.diags_array(np.asarray(adjacency.sum(1)).ravel()) - adjacency)


def time_against_n(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Seconds of 20 coding steps against the number of images, and the log-log slope."""
    rows = []
    for n_images in sizes:
        problem = synthetic(n_images)
        Admm(max_iter=1).minimise(problem)
        rows.append(
            {
                "problem": f"{n_images} images",
                "n": n_images,
                "seconds": seconds(lambda p=problem: Admm(20, 0.0).minimise(p)),
            }
        )
    slope = np.polyfit(np.log([row["n"] for row in rows]), np.log([row["seconds"] for row in rows]), 1)[0]
    rows.append({"problem": "log-log slope", "seconds": float(slope), "at most": 1.1})
    return rows


def time_against(axis: str, values: tuple[int, ...]) -> list[dict[str, Any]]:
    """Seconds of 20 coding steps of 2000 images against the number of atoms or the length of the tube."""
    rows = []
    for value in values:
        problem = synthetic(2000, **{axis: value})
        Admm(max_iter=1).minimise(problem)
        rows.append(
            {"problem": f"{axis} {value}", axis: value, "seconds": seconds(lambda p=problem: Admm(20, 0.0).minimise(p))}
        )
    return rows


_MEMORY = """
import json, resource, sys
from benchmarks.scaling import ring, synthetic
from tubal.solvers import Admm
from tubal.problems.tubal import TubalCoding
n_images, weight = int(sys.argv[1]), float(sys.argv[2])
small = synthetic(64)
graph = dict(graph_weight=weight, laplacian=ring(64)) if weight else {}
solver = Admm(2, 0.0)
warm = TubalCoding(small.dictionary, small.data, sparsity=0.01, **graph)
solver.codes(warm, solver.minimise(warm).state)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
problem = synthetic(n_images)
graph = dict(graph_weight=weight, laplacian=ring(n_images)) if weight else {}
problem = TubalCoding(problem.dictionary, problem.data, sparsity=0.01, **graph)
baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
solver.minimise(problem)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
codes = 4 * 28 * 45 * n_images
print(json.dumps({"peak": 1024 * (after - before), "codes": codes}))
"""


def memory(n_images: int) -> list[dict[str, Any]]:
    """Peak memory of coding in units of the codes, data counted, in a fresh process."""
    rows = []
    for weight, limit in ((0.0, 2.0), (1.0, 5.0)):
        done = subprocess.run(
            [sys.executable, "-c", _MEMORY, str(n_images), str(weight)], check=True, capture_output=True, text=True
        )
        found = json.loads(done.stdout)
        rows.append(
            {
                "problem": f"{n_images} images, graph weight {weight:g}",
                "peak in codes": found["peak"] / found["codes"],
                "at most": limit,
            }
        )
    return rows


def second_thread(repeats: int) -> list[dict[str, Any]]:
    """Speed-up of coding by a second thread, against that of a plain matrix product in the same run."""
    problem = synthetic(4000)
    left = np.random.default_rng(0).standard_normal((2000, 2000), np.float32)

    def code() -> Any:
        return Admm(20, 0.0).minimise(problem)

    def multiply() -> Any:
        for _ in range(6):
            left @ left

    def alone(work: Any) -> Any:
        with threadpool_limits(1):
            return work()

    code()
    both, one = alternate(code, lambda: alone(code), repeats)
    gemm_both, gemm_one = alternate(multiply, lambda: alone(multiply), repeats)
    gain, gemm_gain = one / both, gemm_one / gemm_both
    return [
        {
            "problem": "coding, 4000 images",
            "speed-up": gain,
            "matrix product's": gemm_gain,
            "ratio": gain / gemm_gain,
            "wanted": 0.8,
        }
    ]
