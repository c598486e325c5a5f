"""How cost grows: time and memory against the number of images, atoms and the tube, and what a second thread brings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import alternate, resident, seconds
from tubal import TubSC
from tubal.problems.tubal import TubalCoding
from tubal.solvers import Admm


def synthetic(n_images: int, tube_length: int = 28, n_rows: int = 28, n_atoms: int = 45) -> TubalCoding:
    """Return a coding problem of random sparse sums of random atoms, float32."""
    generator = np.random.default_rng(0)
    atoms = generator.standard_normal((tube_length, n_rows, n_atoms), np.float32)
    atoms /= np.sqrt((atoms**2).sum((0, 1)))
    data = np.ascontiguousarray(atoms[:, :, generator.integers(n_atoms, size=n_images)])
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
import json, sys
from benchmarks.scaling import peak_of_coding
print(json.dumps(peak_of_coding(**json.loads(sys.argv[1]))))
"""


def peak_of_coding(n_images: int, graph_weight: float, **sizes: int) -> int:
    """Return the bytes at the peak of coding, images counted, kernels loaded before.

    Without a graph it is what ``encode`` takes, with one what the splitting does, former codes not counted.
    """
    run = _coding_step if graph_weight else _encoding
    run(300, **sizes)()
    work = run(n_images, **sizes)
    images = 4 * sizes.get("tube_length", 28) * 28 * n_images
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # the peak starts anew from what is held now
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before + images


def _encoding(n_images: int, **sizes: int) -> Callable[[], Any]:
    images = np.ascontiguousarray(synthetic(n_images, **sizes).data.transpose(2, 1, 0))
    model = TubSC(sizes.get("n_atoms", 45), max_iter=1, random_state=0).fit(images[:300])
    return lambda: model.encode(images)


def _coding_step(n_images: int, **sizes: int) -> Callable[[], Any]:
    plain = synthetic(n_images, **sizes)
    problem = TubalCoding(plain.dictionary, plain.data, sparsity=0.01, graph_weight=1.0, laplacian=ring(n_images))
    solver = Admm(5, 0.0)
    return lambda: solver.codes(problem, solver.minimise(problem).state)


def memory() -> list[dict[str, Any]]:
    """Peak memory of coding in units of the codes, data counted, each in a fresh process; Linux only."""
    rows = []
    varied = {
        "n": [{"n_images": n} for n in (10000, 30000, 100000)],
        "n_atoms": [{"n_images": 20000, "n_atoms": n} for n in (15, 45, 90)],
        "tube_length": [{"n_images": 20000, "tube_length": n} for n in (8, 16, 32)],
    }
    for key, problems in varied.items():
        for sizes in problems:
            for weight, limit in ((0.0, 2.0), (1.0, 5.0)):
                row = _memory_row(key, {**sizes, "graph_weight": weight})
                rows.append(row | ({"at most": limit} if key == "n" else {}))
    return rows


def _memory_row(key: str, sizes: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-c", _MEMORY, json.dumps(sizes)]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    n_images, n_atoms, tube = sizes["n_images"], sizes.get("n_atoms", 45), sizes.get("tube_length", 28)
    return {
        "problem": f"{n_images} images, {n_atoms} atoms, tube {tube}, graph weight {sizes['graph_weight']:g}",
        "against": key, "n": n_images, "n_atoms": n_atoms, "tube_length": tube,
        "graph weight": sizes["graph_weight"], "peak MB": peak / 2**20,
        "peak in codes": peak / (4 * tube * n_atoms * n_images),
    }  # fmt: skip


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
