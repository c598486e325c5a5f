"""Run the suite and write results/bench.json, results/bench.md and plots."""

from __future__ import annotations

import argparse
import json
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks import clustering, coding, convolution, fits, scaling
from benchmarks.timing import machine

TITLES = {
    "sporco": "Coding without a graph, to the objective SPORCO's ADMM has after 200 iterations",
    "convolutional": "CSC coding, to the objective SPORCO's two-dimensional ConvBPDN has after 200 iterations, set-up "
    "included, both at the best of four penalties",
    "algorithm 1": "Coding with a graph, to 1.001 of the best objective, set-up included, against Algorithm 1",
    "umap": "A whole GTSC fit at the paper's setting against UMAP, each from a cold process",
    "dictionary learning": "GTSC against scikit-learn's MiniBatchDictionaryLearning at the paper's 128/256 atoms",
    "images": "Twenty coding steps against the number of images (28×28, 45 atoms)",
    "atoms": "Twenty coding steps of 2000 images against the number of atoms",
    "tube": "Twenty coding steps of 2000 images against the length of the tube",
    "memory": "Peak memory of coding in units of the codes, data counted",
    "thread": "What a second thread brings, against a plain matrix product",
    "first use": "First use in a new process",
    "default preset": "The deformable graph and the whole default preset, in units of UMAP + K-means",
    "small collections": "The default preset on collections under 2000 images",
    "approximate index": "Candidates of the approximate index against the exact ones",
    "many images": "Graph and default preset against the number of images (synthetic shifted digits)",
}


def measure(quick: bool) -> dict[str, Any]:
    """Run every benchmark; the quick version repeats less and leaves the largest problems out."""
    repeats = 3 if quick else 5
    names = ("orl", "yale") if quick else ("orl", "yale", "coil20", "usps")
    graph_cases = (("orl", None),) if quick else (("orl", None), ("coil20", None), ("usps", None))
    tables = {
        "sporco": coding.against_sporco(1 if quick else 3, coding.CASES[:1] if quick else coding.CASES),
        "convolutional": convolution.against_sporco(
            1 if quick else 3, convolution.CASES[:1] if quick else convolution.CASES
        ),
        "algorithm 1": coding.against_algorithm_1(1 if quick else 2, graph_cases),
        "umap": fits.against_umap(1 if quick else 3, names),
        "images": scaling.time_against_n((1000, 3000, 10000) if quick else (1000, 3000, 10000, 30000, 100000)),
        "atoms": scaling.time_against("n_atoms", (15, 45, 90)),
        "tube": scaling.time_against("tube_length", (8, 16, 32, 64)),
        "thread": scaling.second_thread(repeats),
        "first use": fits.first_use(1 if quick else 3),
    }
    if not quick:  # compiling the kernels takes more memory than a small problem: only a large one shows its own
        tables["memory"] = scaling.memory(100000)
        tables["dictionary learning"] = fits.against_dictionary_learning(names)
        tables["default preset"] = clustering.against_umap(repeats)
        tables["small collections"] = clustering.small_collections()
        tables["approximate index"] = clustering.approximate_index()
        tables["many images"] = clustering.time_against_n((20000, 35000, 50000))
    return tables


def markdown(tables: dict[str, Any], about: dict[str, Any]) -> str:
    """Return the tables as a page."""
    lines = [
        "# Benchmarks",
        "",
        f"Written by `python -m benchmarks` on {about['date']}: {about['processor']}, {about['cores']} cores, ",
    ]
    lines[-1] += f"Python {about['python']}, " + ", ".join(
        f"{name} {version}" for name, version in about["versions"].items() if version
    )
    lines += [
        "",
        "Every ratio is of two things timed alternately in this run with the same threads, medians of repeats.",
    ]
    for name, title in TITLES.items():
        if name not in tables:
            continue
        keys = list(dict.fromkeys(key for row in tables[name] for key in row))
        lines += ["", f"## {title}", "", "| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
        lines += ["| " + " | ".join(_cell(row.get(key, "")) for key in keys) + " |" for row in tables[name]]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def draw(tables: dict[str, Any], curves: dict[str, Any], folder: Path) -> None:
    """Draw objective against seconds, and time against sizes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(6 * len(curves), 4), squeeze=False)
    for axis, (title, group) in zip(axes[0], curves.items(), strict=True):
        best = min(value for curve in group.values() for _, value in curve)
        for label, curve in group.items():
            axis.loglog([moment for moment, _ in curve], [value / best - 1 + 1e-6 for _, value in curve], label=label)
        axis.set(title=title, xlabel="seconds", ylabel="objective above the best, relative")
        axis.legend()
    figure.tight_layout()
    figure.savefig(folder / "bench_convergence.png", dpi=120)
    figure, axes = plt.subplots(1, 3, figsize=(14, 4))
    for axis, (name, key) in zip(axes, (("images", "n"), ("atoms", "n_atoms"), ("tube", "tube_length")), strict=True):
        rows = [row for row in tables[name] if key in row]
        axis.loglog([row[key] for row in rows], [row["seconds"] for row in rows], "o-")
        axis.set(xlabel=key, ylabel="seconds of 20 steps")
    figure.tight_layout()
    figure.savefig(folder / "bench_scaling.png", dpi=120)


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under three minutes: fewer repeats and sizes")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    about = {"date": date.today().isoformat(), "quick": options.quick, **machine()}
    tables = measure(options.quick)
    curves = {
        "ORL, no graph": coding.convergence_curves(),
        "ORL, graph weight 1": coding.convergence_curves(graph_weight=1.0),
    }
    name = "bench_quick" if options.quick else "bench"
    (options.out / f"{name}.json").write_text(
        json.dumps({"about": about, "tables": tables, "curves": curves}, indent=1)
    )
    (options.out / f"{name}.md").write_text(markdown(tables, about))
    if not options.quick:
        draw(tables, curves, options.out)


if __name__ == "__main__":
    main()
