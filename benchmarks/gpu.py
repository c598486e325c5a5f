"""What a GPU brings: `PYTHONPATH=src python -m benchmarks.gpu` writes results/gpu.json and results/gpu.md.

Every figure is a median; the fused passes and the same ADMM in plain torch are timed in turn, set-up included.
TF32 is off. Needs CUDA, and the collections in the folder that TUBAL_DATA names.
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

from benchmarks.plain_torch import PlainAdmm
from tubal import GTSC
from tubal.datasets import fetch
from tubal.experiments.pages import markdown_table
from tubal.graph import deformable_graph, knn_graph, laplacian
from tubal.problems.base import SplitState
from tubal.problems.layout import ImageLayout
from tubal.problems.tubal import TubalCoding
from tubal.solvers import Admm

PENALTY = {"penalty": 1.0, "relaxation": 1.8}
TARGET = 1.001


def milliseconds(work: Callable[[], Any], repeats: int) -> float:
    """Return the median time of ``work`` between device events, after two calls to warm up."""
    for _ in range(2):
        work()
    pairs = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(repeats)]
    for start, stop in pairs:
        start.record()
        work()
        stop.record()
    torch.cuda.synchronize()
    return median(start.elapsed_time(stop) for start, stop in pairs)


def seconds(work: Callable[[], Any]) -> float:
    """Return the wall time of ``work``, its device work finished."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def shifted_images(n_images: int, side: int, seed: int = 0) -> torch.Tensor:
    """Return unit-length images of side² pixels: COIL20's, moved around their circle, with a little noise."""
    random = torch.Generator(device="cuda").manual_seed(seed)
    objects = torch.as_tensor(fetch("coil20").images[:, :side, :side], device="cuda")
    images = objects[torch.randint(len(objects), (n_images,), generator=random, device="cuda")]
    shifts = torch.randint(-3, 4, (n_images, 1, 1), generator=random, device="cuda")
    columns = (torch.arange(side, device="cuda") + shifts) % side
    images = torch.gather(images, 2, columns.expand(n_images, side, side))
    images = images + 0.02 * torch.randn(images.shape, generator=random, device="cuda")
    return images / images.flatten(1).norm(dim=1)[:, None, None]


def coding_problem(n_images: int, side: int, graph_weight: float, n_atoms: int = 45) -> Callable[[], TubalCoding]:
    """Return a function that sets the problem up anew from images, atoms and graph."""
    images = shifted_images(n_images, side)
    data = ImageLayout((side, side)).to_tensor(images)
    atoms = data[:, :, :n_atoms].contiguous()
    matrix = laplacian(knn_graph(images, 3)) if graph_weight else None
    return lambda: TubalCoding(atoms, data, sparsity=0.01, graph_weight=graph_weight, laplacian=matrix)


def fused_codes(problem: TubalCoding, n_steps: int) -> torch.Tensor:
    """Return the codes after ``n_steps`` fused steps, in bursts of ten as the solver makes them."""
    solver = Admm(max_iter=n_steps, tol=0.0)
    return solver.codes(problem, solver.minimise(problem).state)


def steps_to(value: Callable[[], float], advance: Callable[[], Any], goal: float, most: int = 400) -> int:
    """Return after how many steps the value falls to ``goal``."""
    for n_steps in range(1, most + 1):
        advance()
        if value() <= goal:
            return n_steps
    raise RuntimeError(f"{goal} was not reached in {most} steps; more steps are needed")


def coding(graph_weight: float, n_images: int = 20_000, side: int = 32, repeats: int = 5) -> dict[str, Any]:
    """Time one step and the way to 1.001 of the best objective, fused and in plain torch."""
    make = coding_problem(n_images, side, graph_weight)
    problem = make()
    best = problem.value(fused_codes(problem, 400))
    state, burst = SplitState(problem.zeros()), 10

    def advance(n_steps: int) -> None:
        nonlocal state
        state = problem.split(state, n_steps=n_steps, tol=0.0, **PENALTY)

    codes = Admm().codes
    fused_steps = steps_to(lambda: problem.value(codes(problem, state)), lambda: advance(1), TARGET * best)
    plain = PlainAdmm(problem)
    plain_steps = steps_to(lambda: problem.value(plain.codes), lambda: plain.steps(1), TARGET * best)
    fused_ms = milliseconds(lambda: advance(burst), 3 * repeats) / burst
    plain_ms = milliseconds(lambda: plain.steps(burst), repeats) / burst
    pairs = [
        (seconds(lambda: fused_codes(make(), fused_steps)), seconds(lambda: PlainAdmm(make()).steps(plain_steps).codes))
        for _ in range(repeats)
    ]
    fused_s, plain_s = (median(pair[place] for pair in pairs) for place in (0, 1))
    return {
        "graph weight": graph_weight,
        "ms a step": fused_ms,
        "ms a step, plain torch": plain_ms,
        "steps": fused_steps,
        "steps, plain torch": plain_steps,
        "s to 1.001": fused_s,
        "s to 1.001, plain torch": plain_s,
        "ratio": plain_s / fused_s,
        "lowest ratio of a pair": min(plain / fused for fused, plain in pairs),
        "best": best,
    }


def agreement(n_images: int = 300) -> list[dict[str, Any]]:
    """Compare fits and codes of the same images on the CPU (NumPy) and on the GPU."""
    images = fetch("usps").images[:n_images]
    rows = []
    for graph_weight in (0.0, 1.0, 10.0):
        results = []
        for on_device in (False, True):
            stack = torch.as_tensor(images, device="cuda") if on_device else images
            layout = ImageLayout(images.shape[1:]).to_tensor(stack)
            scaled = layout / ((layout**2).sum((0, 1)) ** 0.5)
            matrix = laplacian(knn_graph(images, 3)) if graph_weight else None
            atoms = scaled[:, :, :45] + 0.0
            problem = TubalCoding(atoms, scaled, sparsity=0.01, graph_weight=graph_weight, laplacian=matrix)
            solver = Admm(max_iter=1000, tol=1e-6)
            codes = solver.codes(problem, solver.minimise(problem).state)
            value = problem.value(codes)
            results.append((value, codes.cpu().numpy() if on_device else codes))
        (value, codes), (value_gpu, codes_gpu) = results
        apart = float(np.linalg.norm(codes - codes_gpu) / np.linalg.norm(codes))
        rows.append({"graph weight": graph_weight, "objective": value_gpu / value - 1.0, "codes": apart})
    return rows


def usps_fit(repeats: int = 7) -> dict[str, Any]:
    """Fit GTSC at the paper's setting on the CPU once and on the GPU several times."""
    images = fetch("usps").images
    model = GTSC(n_atoms=45, random_state=0)
    began = time.perf_counter()
    on_cpu = GTSC(n_atoms=45, random_state=0).fit(images)
    cpu = time.perf_counter() - began
    tensor = torch.as_tensor(images, device="cuda")
    for _ in range(2):
        model.fit(tensor)
    times = [seconds(lambda: model.fit(tensor)) for _ in range(repeats)]
    reached = [seconds_to(float(on_cpu.objective_[-1]), tensor) for _ in range(repeats)]
    return {
        "fit s": median(times),
        "s to the CPU's objective": median(found[0] for found in reached),
        "slowest": max(found[0] for found in reached),
        "outer steps to it": reached[0][1],
        "objective": float(model.objective_[-1]),
        "CPU objective": float(on_cpu.objective_[-1]),
        "CPU fit s, compiling included": cpu,
        "outer steps": model.n_iter_,
        "outer steps, CPU": on_cpu.n_iter_,
    }


def seconds_to(goal: float, images: torch.Tensor) -> tuple[float, int]:
    """Return the time from the start of a fit, graph included, until its objective is at most ``goal``."""
    torch.cuda.synchronize()
    began, found = time.perf_counter(), []

    def watch(progress: Any) -> bool:
        if progress.objective <= goal:
            found.append((time.perf_counter() - began, progress.n_iter))
        return bool(found)

    GTSC(n_atoms=45, random_state=0, max_iter=50, tol=0.0, callbacks=watch).fit(images)
    return found[0] if found else (float("nan"), 50)


def million(n_images: int = 1_000_000, side: int = 28, n_steps: int = 50) -> dict[str, Any]:
    """Code a million images at once; codes alone are n · 45 · 28 numbers."""
    torch.cuda.empty_cache()
    parts = [
        ImageLayout((side, side)).to_tensor(shifted_images(50_000, side, seed)) for seed in range(n_images // 50_000)
    ]
    data = torch.concatenate(parts, 2)
    del parts
    problem = TubalCoding(data[:, :, :45].contiguous(), data, sparsity=0.01)
    torch.cuda.reset_peak_memory_stats()
    state = SplitState(problem.zeros())
    took = seconds(lambda: problem.split(state, n_steps=n_steps, tol=0.0, **PENALTY))
    codes = Admm().codes(problem, state)
    return {
        "images": n_images,
        "steps": n_steps,
        "s": took,
        "codes GB": codes.numel() * 4 / 1e9,
        "peak GB": torch.cuda.max_memory_allocated() / 1e9,
        "objective": problem.value(codes) / n_images,
    }


def usps_graph(repeats: int = 3) -> dict[str, Any]:
    """Time the deformable graph of USPS and compare it with the CPU's."""
    images = fetch("usps").images
    tensor = torch.as_tensor(images, device="cuda")
    found = deformable_graph(tensor, 5)
    times = [seconds(lambda: deformable_graph(tensor, 5)) for _ in range(repeats)]
    deformable_graph(images[:100], 5)
    began = time.perf_counter()
    wanted = deformable_graph(images, 5)
    cpu = time.perf_counter() - began
    common = [len(set(a) & set(b)) / 5 for a, b in zip(found.neighbors, wanted.neighbors, strict=True)]
    return {"s": median(times), "CPU s": cpu, "common 5-neighbours": float(np.mean(common))}


def about() -> dict[str, Any]:
    """Return the device and versions."""
    import triton

    return {
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "CUDA": torch.version.cuda,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "TF32": torch.backends.cuda.matmul.allow_tf32,
    }


def markdown(tables: dict[str, Any]) -> str:
    """Return the page."""
    told = ", ".join(f"{name} {value}" for name, value in tables["about"].items())
    lines = ["# On the GPU", "", f"Written by `python -m benchmarks.gpu`: {told}.", ""]
    for title, found in (tables | {"Against what was wanted": against_wanted(tables)}).items():
        if title == "about" or not found:
            continue
        rows = found if isinstance(found, list) else [found]
        body = [[_shown(value) for value in row.values()] for row in rows]
        lines += [f"## {title}", "", markdown_table(list(rows[0]), body), ""]
    return "\n".join(lines)


def notes(page: Path) -> str:
    """Return what people wrote under the tables of a former page, from the heading "Notes" on."""
    former = page.read_text(encoding="utf-8") if page.exists() else ""
    place = former.find("## Notes")
    return "\n" + former[place:] if place >= 0 else ""


def against_wanted(tables: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what was wanted beside what was found, as far as it was measured."""
    alone, tied = tables.get(CODING, ({}, {}))
    fit, graph = tables.get(FIT, {}), tables.get(GRAPH, {})
    rows = [
        ("one step without a graph, ms", "at most", 0.6, alone.get("ms a step")),
        ("coding without a graph, times faster than plain torch", "at least", 5.0, alone.get("ratio")),
        ("coding with a graph, times faster than plain torch", "at least", 5.0, tied.get("ratio")),
        ("USPS fit until the CPU fit's objective, s", "at most", 0.4, fit.get("s to the CPU's objective")),
        ("images of 28×28 coded at once", "at least", 1_000_000, tables.get(MILLION, {}).get("images")),
        ("deformable graph of USPS, s", "at most", 3.0, graph.get("s")),
    ]
    return [
        {"what": what, "wanted": f"{side} {bound}", "found": found, "met": _met(side, bound, found)}
        for what, side, bound, found in rows
        if found is not None
    ]


def _met(side: str, bound: float, found: float) -> str:
    return "yes" if (found <= bound if side == "at most" else found >= bound) else "**no**"


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


CODING = "Coding 20 000 images of 32×32, 45 atoms"
FIT = "USPS: the whole GTSC fit, graph included"
GRAPH = "USPS: the deformable graph"
MILLION = "A million images of 28×28, 45 atoms"
SECTIONS: dict[str, Callable[[], Any]] = {
    CODING: lambda: [coding(0.0), coding(1.0)],
    FIT: usps_fit,
    GRAPH: usps_graph,
    MILLION: million,
    "GPU against CPU: relative difference at convergence, 300 USPS images": agreement,
}


def main() -> None:
    """Measure, write, and show the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--only", nargs="*", type=int, help="sections to run anew, from 0; others of the same day stay")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    chosen = list(SECTIONS.items()) if options.only is None else [list(SECTIONS.items())[i] for i in options.only]
    options.out.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Any] = {"about": about()}
    record = options.out / "gpu.json"
    if options.only is not None and record.exists():
        former = json.loads(record.read_text())
        tables = former if former["about"] == tables["about"] else tables
    for title, measure in chosen:
        tables[title] = measure()
        record.write_text(json.dumps(tables, indent=1, ensure_ascii=False) + "\n")
        page = options.out / "gpu.md"
        page.write_text(markdown(tables) + notes(page), encoding="utf-8")
        print(markdown({"about": tables["about"], title: tables[title]}), flush=True)


if __name__ == "__main__":
    main()
