"""Run the benchmarks and write ``results/bench.json``, ``results/bench.md`` and the plots.

A section that is not measured keeps its stored record: those that ``--only sporco,umap`` does not name, and those that
need more cores than the machine has.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks import clustering, coding, fits, large, scaling, searches
from benchmarks.pages import Bench, write_bench
from benchmarks.timing import Row, environment
from tubal.backends.arrays import thread_count

# Cores of a machine with many.
MANY = 8
COLLECTIONS = ("orl", "yale", "coil20", "usps")


@dataclass(frozen=True)
class Measurement:
    """How a section is measured in full, and in ``--quick`` runs; None leaves it out of those.

    ``folder`` is the variable that names a folder which it reads, if that has no default.
    """

    full: Callable[[], list[Row]]
    quick: Callable[[], list[Row]] | None = None
    least_cores: int = 1
    folder: str | None = None


MEASUREMENTS = {
    "sporco": Measurement(
        lambda: coding.tubal_against_sporco(3),
        lambda: coding.tubal_against_sporco(1, coding.TUBAL_CASES[:1]),
    ),
    "encode": Measurement(lambda: coding.encode_against_sporco(3)),
    "convolutional": Measurement(lambda: coding.filters_against_sporco(3)),
    "algorithm 1": Measurement(
        lambda: coding.graph_against_algorithm_1(2, ("orl", "coil20", "usps")),
        lambda: coding.graph_against_algorithm_1(1, ("orl",)),
    ),
    "umap": Measurement(
        lambda: fits.gtsc_against_umap(3, COLLECTIONS),
        lambda: fits.gtsc_against_umap(1, COLLECTIONS[:2]),
    ),
    "dictionary learning": Measurement(lambda: fits.gtsc_against_dictionary_learning(COLLECTIONS)),
    "learning": Measurement(lambda: fits.steps_and_penalty(("digits", "shapes", *COLLECTIONS))),
    "images": Measurement(
        lambda: scaling.coding_time_by_images((1000, 3000, 10000, 30000, 100000)),
        lambda: scaling.coding_time_by_images((1000, 3000, 10000)),
    ),
    "atoms": Measurement(
        lambda: scaling.coding_time_by_atoms((15, 45, 90, 180)),
        lambda: scaling.coding_time_by_atoms((15, 45, 90)),
    ),
    "tube": Measurement(
        lambda: scaling.coding_time_by_tube((8, 16, 32, 64, 128)),
        lambda: scaling.coding_time_by_tube((8, 16, 32, 64)),
    ),
    "memory": Measurement(scaling.coding_memory),
    "thread": Measurement(lambda: scaling.second_thread(5), lambda: scaling.second_thread(3)),
    "first use": Measurement(lambda: fits.first_use(3), lambda: fits.first_use(1)),
    "photographs": Measurement(fits.photographs, folder="TUBAL_PILES"),
    "default preset": Measurement(lambda: clustering.preset_against_umap(5)),
    "small collections": Measurement(clustering.preset_on_small_collections),
    "copies": Measurement(lambda: clustering.preset_on_copies(draws={2000: 8, 8000: 4, 19000: 3, 60000: 3})),
    "approximate index": Measurement(clustering.approximate_index),
    "candidates": Measurement(searches.compared_searches),
    "candidates on many cores": Measurement(searches.compared_searches, least_cores=MANY),
    "hints": Measurement(lambda: clustering.hints_and_growth(10000), lambda: clustering.hints_and_growth(1000)),
    "many images": Measurement(lambda: clustering.preset_by_images((20000, 35000, 50000))),
    "scale": Measurement(large.preset_against_umap),
    "scale on many cores": Measurement(large.preset_against_umap, least_cores=MANY),
    "orders": Measurement(large.agreement_of_orders),
    "threads": Measurement(large.two_threads_and_all, least_cores=MANY),
    "million": Measurement(large.preset_by_size),
    "workers": Measurement(large.workers_against_one_process),
}


def main() -> None:
    """Measure the wanted sections; write after each, so that an interrupted run loses one table at most."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under three minutes: fewer repeats and sizes")
    parser.add_argument("--only", help=f"some sections, comma-separated: {', '.join(MEASUREMENTS)}")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the results")
    options = parser.parse_args()
    cores = thread_count()
    possible = [name for name, section in MEASUREMENTS.items() if section.least_cores <= cores]
    wanted = options.only.split(",") if options.only else possible
    if unknown := [name for name in wanted if name not in MEASUREMENTS]:
        parser.error(f"there is no section {', '.join(unknown)}; choose from {', '.join(MEASUREMENTS)}")
    if small := [name for name in wanted if name not in possible]:
        parser.error(f"{', '.join(small)}: this machine has {cores} cores; {MANY} are needed")
    if not options.quick:  # before the first measurement, because all of them take an hour
        for name in wanted:
            if (folder := MEASUREMENTS[name].folder) and not os.path.isdir(os.environ.get(folder, "")):
                parser.error(
                    f"{name}: the variable {folder} names no folder; set it, or leave out the section (--only)"
                )
    path = options.out / ("bench_quick.json" if options.quick else "bench.json")
    record: Bench = {"quick": options.quick, "measured": {}, "tables": {}, "curves": {}}
    if path.exists() and not options.quick:
        record = json.loads(path.read_text(encoding="utf-8"))
    place = environment()
    for name in wanted:
        measure = MEASUREMENTS[name].quick if options.quick else MEASUREMENTS[name].full
        if measure is None:
            continue
        began = time.perf_counter()
        record["tables"][name] = measure()
        if name == "algorithm 1":
            record["curves"] = {
                "ORL, no graph": coding.convergence_curves(),
                "ORL, graph weight 1": coding.convergence_curves(graph_weight=1.0),
            }
        record["measured"][name] = {"date": date.today().isoformat(), **place}
        sys.stderr.write(f"{name}: {time.perf_counter() - began:.0f} s\n")
        write_bench(record, path)


if __name__ == "__main__":
    main()
