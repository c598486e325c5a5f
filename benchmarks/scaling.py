"""How the cost of coding grows with images, atoms and tube length, and what a second thread brings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import Row, alternate, call_in_new_process, seconds
from tubal import TubSC
from tubal.experiments.runner import resident_bytes
from tubal.problems.tubal import TubalCoding
from tubal.solvers import Admm

if TYPE_CHECKING:
    from scipy.sparse import csr_array

N_ROWS, TUBE_LENGTH, N_ATOMS = 28, 28, 45


def synthetic_problem(n_images: int, tube_length: int = TUBE_LENGTH, n_atoms: int = N_ATOMS) -> TubalCoding:
    """Return a coding problem of noisy copies of random atoms, in float32."""
    generator = np.random.default_rng(0)
    atoms = generator.standard_normal((tube_length, N_ROWS, n_atoms), np.float32)
    atoms /= np.sqrt((atoms**2).sum((0, 1)))
    data = np.ascontiguousarray(atoms[:, :, generator.integers(n_atoms, size=n_images)])
    data += 0.1 / np.sqrt(N_ROWS * tube_length) * generator.standard_normal(data.shape, np.float32)
    return TubalCoding(atoms, data, sparsity=0.01)


def band_laplacian(n_images: int) -> csr_array:
    """Return the Laplacian of a graph with mean degree six that is cheap to build at any size."""
    import scipy.sparse as sp

    steps = [1, 7, 31]
    bands = [sp.diags_array(np.ones(n_images - step), offsets=step, shape=(n_images, n_images)) for step in steps]
    adjacency = sum(bands)
    adjacency = sp.csr_array(adjacency + adjacency.T)
    return sp.csr_array(sp.diags_array(np.asarray(adjacency.sum(1)).ravel()) - adjacency)


# --- time ------------------------------------------------------------------------------------------------------
def coding_time_by_images(sizes: Sequence[int]) -> list[Row]:
    """Measure 20 coding steps against the number of images, and the log-log slope."""
    rows: list[Row] = [
        {"problem": f"{size} images", "images": size, "seconds": _coding_seconds(synthetic_problem(size))}
        for size in sizes
    ]
    slope = log_log_slope([row["images"] for row in rows], [row["seconds"] for row in rows])
    return [*rows, {"problem": "log-log slope", "seconds": slope, "limit": 1.1}]


def coding_time_by_atoms(sizes: Sequence[int]) -> list[Row]:
    """Measure 20 coding steps of 2000 images against the number of atoms."""
    return [
        {"problem": f"{n} atoms", "atoms": n, "seconds": _coding_seconds(synthetic_problem(2000, n_atoms=n))}
        for n in sizes
    ]


def coding_time_by_tube(sizes: Sequence[int]) -> list[Row]:
    """Measure 20 coding steps of 2000 images against the length of the tube."""
    return [
        {"problem": f"tube {n}", "tube": n, "seconds": _coding_seconds(synthetic_problem(2000, tube_length=n))}
        for n in sizes
    ]


def _coding_seconds(problem: TubalCoding) -> float:
    Admm(max_iter=1).minimise(problem)  # compile the kernels and set the problem up
    return seconds(lambda: Admm(20, 0.0).minimise(problem))


def log_log_slope(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return the exponent of the power law that fits best.

    >>> round(log_log_slope([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


# --- memory ----------------------------------------------------------------------------------------------------
def coding_memory() -> list[Row]:
    """Measure the peak memory of coding relative to the codes, images included, each in a new process; Linux only."""
    varied = {
        "images": [{"n_images": n} for n in (10000, 30000, 100000)],
        "atoms": [{"n_images": 20000, "n_atoms": n} for n in (15, 45, 90)],
        "tube": [{"n_images": 20000, "tube_length": n} for n in (8, 16, 32)],
    }
    rows = []
    for what, problems in varied.items():
        for sizes in problems:
            for weight, limit in ((0.0, 2.0), (1.0, 5.0)):
                row = _memory_row(what, weight, **sizes)
                rows.append(row | ({"limit": limit} if what == "images" else {}))
    return rows


def _memory_row(
    varied: str, graph_weight: float, *, n_images: int, n_atoms: int = N_ATOMS, tube_length: int = TUBE_LENGTH
) -> Row:
    sizes = {"n_images": n_images, "n_atoms": n_atoms, "tube_length": tube_length}
    peak = int(call_in_new_process("scaling:peak_of_coding", graph_weight=graph_weight, **sizes))
    return {
        "problem": f"{n_images} images, {n_atoms} atoms, tube {tube_length}, graph weight {graph_weight:g}",
        "varied": varied, "images": n_images, "atoms": n_atoms, "tube": tube_length,
        "graph weight": graph_weight, "peak MB": peak / 2**20,
        "peak / codes": peak / (4 * tube_length * n_atoms * n_images),
    }  # fmt: skip


def peak_of_coding(n_images: int, graph_weight: float, n_atoms: int, tube_length: int) -> int:
    """Return the bytes at the peak of coding, images included, with kernels compiled before.

    Without a graph this is ``encode``. With a graph it is one coding step of a fit, without the previous codes.
    """
    prepare = _prepare_coding_step if graph_weight else _prepare_encoding
    prepare(300, n_atoms, tube_length)()
    work = prepare(n_images, n_atoms, tube_length)
    images = 4 * tube_length * N_ROWS * n_images
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current memory
    before = resident_bytes("VmRSS")
    work()
    return resident_bytes("VmHWM") - before + images


def _prepare_encoding(n_images: int, n_atoms: int, tube_length: int) -> Callable[[], object]:
    images = np.ascontiguousarray(synthetic_problem(n_images, tube_length, n_atoms).data.transpose(2, 1, 0))
    model = TubSC(n_atoms, max_iter=1, random_state=0).fit(images[:300])
    return lambda: model.encode(images)


def _prepare_coding_step(n_images: int, n_atoms: int, tube_length: int) -> Callable[[], object]:
    plain = synthetic_problem(n_images, tube_length, n_atoms)
    graph = band_laplacian(n_images)
    problem = TubalCoding(plain.dictionary, plain.data, sparsity=0.01, graph_weight=1.0, laplacian=graph)
    solver = Admm(5, 0.0)
    return lambda: solver.codes(problem, solver.minimise(problem).state)


# --- threads ---------------------------------------------------------------------------------------------------
def second_thread(repeats: int) -> list[Row]:
    """Measure the speed-up of coding by a second thread, and that of a plain matrix product in the same run."""
    problem = synthetic_problem(4000)
    matrix = np.random.default_rng(0).standard_normal((2000, 2000), np.float32)

    def code() -> None:
        Admm(20, 0.0).minimise(problem)

    def multiply() -> None:
        for _ in range(6):
            matrix @ matrix

    def on_one_thread(work: Callable[[], None]) -> None:
        with threadpool_limits(1):
            work()

    code()
    both, one = alternate(code, lambda: on_one_thread(code), repeats)
    product_both, product_one = alternate(multiply, lambda: on_one_thread(multiply), repeats)
    gain, product_gain = one / both, product_one / product_both
    return [
        {
            "problem": "coding, 4000 images",
            "speed-up": gain,
            "matrix product speed-up": product_gain,
            "ratio": gain / product_gain,
            "target": 0.8,
        }
    ]
