"""GPU against CPU, and fused kernels against plain torch: ``PYTHONPATH=src python -m benchmarks.gpu``.

Writes ``results/gpu.json`` and ``results/gpu.md``. Times are medians. The fused kernels and the same ADMM in plain
torch are timed in turn, set-up included, with TF32 off. Needs CUDA, and the collections in the folder ``TUBAL_DATA``.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.clustering import shared_neighbors
from benchmarks.large import N_CLASSES, fashion_mnist
from benchmarks.pages import GPU_TITLES, gpu_page, write_record
from benchmarks.plain_torch import PlainAdmm
from benchmarks.timing import Row, call_in_new_process, commit, timed
from tubal import GTSC, ImageClusterer
from tubal.datasets import fetch
from tubal.experiments.runner import resident_bytes
from tubal.graph import deformable_graph, knn_graph, laplacian
from tubal.graph.affine import bilinear_table
from tubal.metrics import clustering_accuracy, clustering_nmi
from tubal.problems.base import SplitState
from tubal.problems.layout import ImageLayout
from tubal.problems.tubal import TubalCoding
from tubal.solvers import Admm

PENALTY = {"penalty": 1.0, "relaxation": 1.8}
CLOSE_TO_BEST = 1.001
N_ATOMS = 45


# --- timing on the device --------------------------------------------------------------------------------------
def device_milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median time of ``work`` between device events, after two calls to warm up."""
    for _ in range(2):
        work()
    pairs = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(repeats)]
    for start, stop in pairs:
        start.record()
        work()
        stop.record()
    torch.cuda.synchronize()
    return float(median(start.elapsed_time(stop) for start, stop in pairs))


def device_seconds(work: Callable[[], object]) -> float:
    """Return the wall time of ``work`` until the device has finished."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


# --- coding ----------------------------------------------------------------------------------------------------
def shifted_images(n_images: int, side: int, seed: int = 0) -> torch.Tensor:
    """Return images (n_images, side, side) of unit length: COIL20, shifted circularly, with a little noise."""
    random = torch.Generator(device="cuda").manual_seed(seed)
    objects = torch.as_tensor(fetch("coil20").images[:, :side, :side], device="cuda")
    images = objects[torch.randint(len(objects), (n_images,), generator=random, device="cuda")]
    shifts = torch.randint(-3, 4, (n_images, 1, 1), generator=random, device="cuda")
    columns = (torch.arange(side, device="cuda") + shifts) % side
    images = torch.gather(images, 2, columns.expand(n_images, side, side))
    images = images + 0.02 * torch.randn(images.shape, generator=random, device="cuda")
    return images / images.flatten(1).norm(dim=1)[:, None, None]


def coding_problem(n_images: int, side: int, graph_weight: float) -> Callable[[], TubalCoding]:
    """Return a function that sets up the problem from scratch, from images, atoms and graph."""
    images = shifted_images(n_images, side)
    data = ImageLayout((side, side)).to_tensor(images)
    atoms = data[:, :, :N_ATOMS].contiguous()
    matrix = laplacian(knn_graph(images, 3)) if graph_weight else None
    return lambda: TubalCoding(atoms, data, sparsity=0.01, graph_weight=graph_weight, laplacian=matrix)


def fused_codes(problem: TubalCoding, n_steps: int) -> torch.Tensor:
    """Return the codes after ``n_steps`` fused steps, in bursts of ten as the solver makes them."""
    solver = Admm(max_iter=n_steps, tol=0.0)
    return solver.codes(problem, solver.minimise(problem).state)


def count_steps(value: Callable[[], float], advance: Callable[[], object], target: float, most: int = 400) -> int:
    """Return the number of steps after which the value is at most ``target``."""
    for n_steps in range(1, most + 1):
        advance()
        if value() <= target:
            return n_steps
    raise RuntimeError(f"{target} was not reached in {most} steps; more steps are needed")


def time_coding(graph_weight: float, n_images: int = 20_000, side: int = 32, repeats: int = 5) -> Row:
    """Measure one step, and the time to 1.001 times the best objective, fused and in plain torch."""
    make = coding_problem(n_images, side, graph_weight)
    problem = make()
    best = problem.value(fused_codes(problem, 400))
    state, burst = SplitState(problem.zeros()), 10

    def advance(n_steps: int) -> None:
        nonlocal state
        state = problem.split(state, n_steps=n_steps, tol=0.0, **PENALTY)

    target, codes = CLOSE_TO_BEST * best, Admm().codes
    steps = count_steps(lambda: problem.value(codes(problem, state)), lambda: advance(1), target)
    plain = PlainAdmm(problem)
    plain_steps = count_steps(lambda: problem.value(plain.codes), lambda: plain.steps(1), target)
    step_ms = device_milliseconds(lambda: advance(burst), 3 * repeats) / burst
    plain_step_ms = device_milliseconds(lambda: plain.steps(burst), repeats) / burst
    pairs = [
        (
            device_seconds(lambda: fused_codes(make(), steps)),
            device_seconds(lambda: PlainAdmm(make()).steps(plain_steps).codes),
        )
        for _ in range(repeats)
    ]
    fused_s, plain_s = (median(pair[place] for pair in pairs) for place in (0, 1))
    return {
        "graph weight": graph_weight,
        "ms per step": step_ms,
        "ms per step, plain torch": plain_step_ms,
        "steps": steps,
        "steps, plain torch": plain_steps,
        "seconds to 1.001": fused_s,
        "seconds to 1.001, plain torch": plain_s,
        "ratio": plain_s / fused_s,
        "lowest ratio of a pair": min(plain / fused for fused, plain in pairs),
        "best objective": best,
    }


def code_a_million(n_images: int = 1_000_000, side: int = 28, n_steps: int = 50) -> Row:
    """Code a million images at once; their codes are n_images × 45 × 28 numbers."""
    torch.cuda.empty_cache()
    parts = [
        ImageLayout((side, side)).to_tensor(shifted_images(50_000, side, seed)) for seed in range(n_images // 50_000)
    ]
    data = torch.concatenate(parts, 2)
    del parts
    problem = TubalCoding(data[:, :, :N_ATOMS].contiguous(), data, sparsity=0.01)
    torch.cuda.reset_peak_memory_stats()
    state = SplitState(problem.zeros())
    taken = device_seconds(lambda: problem.split(state, n_steps=n_steps, tol=0.0, **PENALTY))
    codes = Admm().codes(problem, state)
    return {
        "images": n_images,
        "steps": n_steps,
        "seconds": taken,
        "codes GB": codes.numel() * 4 / 1e9,
        "peak GB": torch.cuda.max_memory_allocated() / 1e9,
        "objective": problem.value(codes) / n_images,
    }


def compare_with_cpu(n_images: int = 300) -> list[Row]:
    """Compare objective and codes of the same images on the CPU (NumPy) and on the GPU, at convergence."""
    images = fetch("usps").images[:n_images]
    rows = []
    for graph_weight in (0.0, 1.0, 10.0):
        results = []
        for on_device in (False, True):
            stack = torch.as_tensor(images, device="cuda") if on_device else images
            data = ImageLayout(images.shape[1:]).to_tensor(stack)
            scaled = data / ((data**2).sum((0, 1)) ** 0.5)
            matrix = laplacian(knn_graph(images, 3)) if graph_weight else None
            atoms = scaled[:, :, :N_ATOMS] + 0.0
            problem = TubalCoding(atoms, scaled, sparsity=0.01, graph_weight=graph_weight, laplacian=matrix)
            solver = Admm(max_iter=1000, tol=1e-6)
            codes = solver.codes(problem, solver.minimise(problem).state)
            results.append((problem.value(codes), codes.cpu().numpy() if on_device else codes))
        (value, codes), (gpu_value, gpu_codes) = results
        difference = float(np.linalg.norm(codes - gpu_codes) / np.linalg.norm(codes))
        rows.append({"graph weight": graph_weight, "objective": gpu_value / value - 1.0, "codes": difference})
    return rows


# --- USPS ------------------------------------------------------------------------------------------------------
def time_usps_fit(repeats: int = 7) -> Row:
    """Fit GTSC at the paper's settings, on the CPU once and on the GPU several times."""
    images = fetch("usps").images
    cpu_seconds, on_cpu = timed(lambda: GTSC(n_atoms=N_ATOMS, random_state=0).fit(images))
    model, tensor = GTSC(n_atoms=N_ATOMS, random_state=0), torch.as_tensor(images, device="cuda")
    for _ in range(2):
        model.fit(tensor)
    times = [device_seconds(lambda: model.fit(tensor)) for _ in range(repeats)]
    reached = [fit_until(float(on_cpu.objective_[-1]), tensor) for _ in range(repeats)]
    return {
        "seconds": median(times),
        "seconds to the CPU objective": median(taken for taken, _ in reached),
        "slowest of these": max(taken for taken, _ in reached),
        "alternations to the CPU objective": reached[0][1],
        "objective": float(model.objective_[-1]),
        "CPU objective": float(on_cpu.objective_[-1]),
        "CPU seconds, compiling included": cpu_seconds,
        "alternations": model.n_iter_,
        "CPU alternations": on_cpu.n_iter_,
    }


def fit_until(target: float, images: torch.Tensor) -> tuple[float, int]:
    """Return seconds and alternations of a fit, graph included, until its objective is at most ``target``."""
    torch.cuda.synchronize()
    began, found = time.perf_counter(), []

    def stop(progress: Any) -> bool:
        if progress.objective <= target:
            found.append((time.perf_counter() - began, progress.n_iter))
        return bool(found)

    GTSC(n_atoms=N_ATOMS, random_state=0, max_iter=50, tol=0.0, callbacks=stop).fit(images)
    return found[0] if found else (float("nan"), 50)


def time_usps_graph(repeats: int = 3) -> Row:
    """Measure the deformable graph of USPS, and compare it with that of the CPU."""
    images = fetch("usps").images
    tensor = torch.as_tensor(images, device="cuda")
    on_gpu = deformable_graph(tensor, 5)
    times = [device_seconds(lambda: deformable_graph(tensor, 5)) for _ in range(repeats)]
    deformable_graph(images[:100], 5)  # compile the kernels
    cpu_seconds, on_cpu = timed(lambda: deformable_graph(images, 5))
    shared = shared_neighbors(on_gpu, on_cpu)
    return {"seconds": median(times), "CPU seconds": cpu_seconds, "shared neighbours": shared}


# --- clusters --------------------------------------------------------------------------------------------------
def deformed_copies(n_images: int, device: str = "cuda") -> tuple[torch.Tensor, np.ndarray]:
    """Return deformed Fashion-MNIST images (n, 28, 28) on a device, and their classes.

    They are made as :func:`benchmarks.large.write_deformed_copies` makes them, which would take a minute for a million.
    """
    originals, labels = fashion_mnist()
    rng = np.random.default_rng(0)
    n_copies = max(0, n_images - len(originals))
    chosen = np.concatenate([rng.permutation(len(originals)), rng.integers(len(originals), size=n_copies)])[:n_images]
    images = torch.as_tensor(originals.reshape(-1, 784)[chosen], device=device).float()
    motions = torch.as_tensor(rng.integers(500, size=n_images), device=device)
    motions[: len(originals)] = -1
    for motion in range(500 if n_copies else 0):
        corners, weights = bilinear_table(
            (28, 28), rng.uniform(-15, 15), rng.uniform(0.87, 1.15), *rng.uniform(-2, 2, size=2)
        )
        moved = torch.nonzero(motions == motion)[:, 0]
        shares = torch.as_tensor(weights, device=device)
        values = (images[moved][:, torch.as_tensor(corners, device=device).long()] * shares).sum(1)
        brightness = torch.as_tensor(rng.uniform(0.8, 1.0, size=(len(moved), 1)), device=device).float()
        images[moved] = torch.round(values * brightness)
    return images.reshape(-1, 28, 28), labels[chosen]


def cluster_on_device(n_images: int, repeats: int) -> Row:
    """Cluster deformed Fashion-MNIST images that are on the device; the first fit in the process is cold."""
    images, target = deformed_copies(n_images)
    cold = device_seconds(lambda: ImageClusterer(N_CLASSES, random_state=0).fit(images[:70_000]))
    torch.cuda.reset_peak_memory_stats()
    model = ImageClusterer(N_CLASSES, random_state=0)
    times = [device_seconds(lambda: model.fit(images)) for _ in range(repeats)]
    return {
        "problem": f"{n_images} images",
        "images": n_images,
        "seconds": median(times),
        "slowest": max(times),
        "cold seconds of 70 000": cold,
        "accuracy": 100 * float(clustering_accuracy(target, model.labels_)),
        "NMI": 100 * float(clustering_nmi(target, model.labels_)),
        "GPU peak GB": torch.cuda.max_memory_allocated() / 1e9,
        "host peak MB": resident_bytes("VmHWM") / 2**20,
    }


# --- the command -----------------------------------------------------------------------------------------------
MEASUREMENTS: dict[str, Callable[[], list[Row]]] = {
    "coding": lambda: [time_coding(0.0), time_coding(1.0)],
    "fit": lambda: [time_usps_fit()],
    "graph": lambda: [time_usps_graph()],
    "million": lambda: [code_a_million()],
    "agreement": compare_with_cpu,
    "clusters": lambda: [
        call_in_new_process("gpu:cluster_on_device", n_images=70_000, repeats=5),
        call_in_new_process("gpu:cluster_on_device", n_images=1_000_000, repeats=1),
    ],
}


def device_environment() -> dict[str, Any]:
    """Return the day, the device, the commit and the versions."""
    import triton

    return {
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "commit": commit() or "not known",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "CUDA": torch.version.cuda,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "TF32": torch.backends.cuda.matmul.allow_tf32,
    }


def main() -> None:
    """Measure the wanted sections and write the record and the page after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the results")
    parser.add_argument("--only", nargs="*", choices=GPU_TITLES, help="sections to measure again; others are kept")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    options.out.mkdir(parents=True, exist_ok=True)
    path, notes = options.out / "gpu.json", options.out / "gpu_notes.md"
    record: dict[str, Any] = {"measured": {}, "tables": {}}
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
    for name in options.only or MEASUREMENTS:
        record["tables"][name], record["measured"][name] = MEASUREMENTS[name](), device_environment()
        write_record(record, path, gpu_page(record, notes.read_text(encoding="utf-8") if notes.exists() else ""))
        print(gpu_page({"measured": record["measured"], "tables": {name: record["tables"][name]}}), flush=True)


if __name__ == "__main__":
    main()
