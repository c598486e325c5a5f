"""Run the suite and write results/bench.json, results/bench.md and plots.

``--only sporco,umap`` measures some sections anew and keeps the others of the last record.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks import clustering, coding, convolution, fits, learning, report, scaling
from benchmarks.timing import machine
from tubal.experiments.pages import replace_block

Table = list[dict[str, Any]]
COLLECTIONS = ("orl", "yale", "coil20", "usps")


@dataclass(frozen=True)
class Section:
    """One table: what it is called, how it is measured, and how quickly where that can be done."""

    title: str
    full: Callable[[], Table]
    quick: Callable[[], Table] | None = None


SECTIONS = {
    "sporco": Section(
        "Coding without a graph, to the objective SPORCO's ADMM has after 200 iterations, SPORCO at the best of three "
        "penalties",
        lambda: coding.against_sporco(3),
        lambda: coding.against_sporco(1, coding.CASES[:1]),
    ),
    "convolutional": Section(
        "CSC coding, to the objective SPORCO's two-dimensional ConvBPDN has after 200 iterations, set-up included, "
        "both at the best of four penalties",
        lambda: convolution.against_sporco(3),
    ),
    "algorithm 1": Section(
        "Coding with a graph, to 1.001 of the best objective, set-up included, against Algorithm 1",
        lambda: coding.against_algorithm_1(2, ("orl", "coil20", "usps")),
        lambda: coding.against_algorithm_1(1, ("orl",)),
    ),
    "umap": Section(
        "A whole GTSC fit at the paper's setting against UMAP, each from a cold process",
        lambda: fits.against_umap(3, COLLECTIONS),
        lambda: fits.against_umap(1, COLLECTIONS[:2]),
    ),
    "dictionary learning": Section(
        "GTSC against scikit-learn's MiniBatchDictionaryLearning at the paper's 128/256 atoms: both as they come, then"
        " GTSC stopped where it clusters better than the peer, which is stopped early too",
        lambda: fits.against_dictionary_learning(COLLECTIONS),
    ),
    "learning": Section(
        "Steps of a coding step and their penalty in a default GTSC fit, by the objective alone; digits, shapes first",
        lambda: learning.steps_and_penalty(("digits", "shapes", *COLLECTIONS)),
    ),
    "images": Section(
        "Twenty coding steps against the number of images (28×28, 45 atoms)",
        lambda: scaling.time_against_n((1000, 3000, 10000, 30000, 100000)),
        lambda: scaling.time_against_n((1000, 3000, 10000)),
    ),
    "atoms": Section(
        "Twenty coding steps of 2000 images against the number of atoms",
        lambda: scaling.time_against("n_atoms", (15, 45, 90, 180)),
        lambda: scaling.time_against("n_atoms", (15, 45, 90)),
    ),
    "tube": Section(
        "Twenty coding steps of 2000 images against the length of the tube",
        lambda: scaling.time_against("tube_length", (8, 16, 32, 64, 128)),
        lambda: scaling.time_against("tube_length", (8, 16, 32, 64)),
    ),
    "memory": Section("Peak memory of coding in units of the codes, data counted", scaling.memory),
    "thread": Section(
        "What a second thread brings, against a plain matrix product",
        lambda: scaling.second_thread(5),
        lambda: scaling.second_thread(3),
    ),
    "first use": Section("First use in a new process", lambda: fits.first_use(3), lambda: fits.first_use(1)),
    "default preset": Section(
        "The deformable graph and the whole default preset, in units of UMAP + K-means",
        lambda: clustering.against_umap(5),
    ),
    "small collections": Section("The default preset on collections under 2000 images", clustering.small_collections),
    "approximate index": Section(
        "Candidates of the approximate index against the exact ones", clustering.approximate_index
    ),
    "many images": Section(
        "Graph and default preset against the number of images (synthetic shifted digits)",
        lambda: clustering.time_against_n((20000, 35000, 50000)),
    ),
}


def main() -> None:
    """Measure, and write what was found after every section, so that an interrupted run loses one table at most."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under three minutes: fewer repeats and sizes")
    parser.add_argument("--only", help=f"some sections, comma-separated: {', '.join(SECTIONS)}")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--readme", type=Path, help="README whose block of figures is brought up to date")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else list(SECTIONS)
    if options.quick and options.readme:
        parser.error("the README holds figures of the full suite; leave --quick or --readme out")
    if unknown := [name for name in wanted if name not in SECTIONS]:
        parser.error(f"no section {', '.join(unknown)}; choose from {', '.join(SECTIONS)}")
    path = options.out / ("bench_quick.json" if options.quick else "bench.json")
    record: dict[str, Any] = {"about": {}, "tables": {}, "curves": {}}
    if options.only and path.exists():
        record = json.loads(path.read_text())
    record["about"] = {"date": date.today().isoformat(), "quick": options.quick, **machine()}
    for name in wanted:
        measure = SECTIONS[name].quick if options.quick else SECTIONS[name].full
        if measure is None:
            continue
        began = time.perf_counter()
        record["tables"][name] = measure()
        if name == "algorithm 1":
            record["curves"] = {
                "ORL, no graph": coding.convergence_curves(),
                "ORL, graph weight 1": coding.convergence_curves(graph_weight=1.0),
            }
        sys.stderr.write(f"{name}: {time.perf_counter() - began:.0f} s\n")
        report.write(record, {key: section.title for key, section in SECTIONS.items()}, path)
    if options.readme:
        replace_block(options.readme, "bench", report.readme_block(record))


if __name__ == "__main__":
    main()
