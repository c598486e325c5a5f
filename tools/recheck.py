"""Run some cells of Table 2 again with the present code: ``python -m tools.recheck [--cells N] [--minutes M]``.

The table takes long, so it is older than the code. This command draws cells of ``table2.json`` whose runs are short,
makes one run of each with seed 0, and compares scores, certificate and seconds with the record. The ratio of seconds
gives the expected time of the whole command ``tubal reproduce --table 2``. Results go to ``recheck.json`` and
``recheck.md`` after every run; the same command continues.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from tubal.experiments import table2
from tubal.experiments.pages import SCORE_NAMES, dataset_title, join_parts, list_versions, markdown_table, write_summary
from tubal.experiments.runner import PACKAGES, run_trial
from tubal.experiments.tables import SCORES, Score, Trial, load_paper
from tubal.storage.files import Machine, machine, versions

# Runs of drawn cells took at most this long when they were recorded.
MOST_SECONDS = 40.0
# A score agrees if it lies within so many standard deviations of the recorded mean, or within one image of that.
MOST_DEVIATIONS = 3.0
# The aim for the whole table, in minutes, and the number of cores it is meant for.
AIM_MINUTES, CORES = 60.0, 2


class Run(TypedDict):
    """One run of a cell with the present code; methods without codes have no gap. Seconds are processor time."""

    row: str
    method: str
    dataset: str
    accuracy: float
    nmi: float
    gap: float | None
    seconds: float


class Study(TypedDict):
    """The content of ``recheck.json``."""

    runs: list[Run]
    machine: Machine
    versions: dict[str, str]


# --- measuring -------------------------------------------------------------------------------------------------
def draw(summary: table2.Summary, count: int) -> list[tuple[str, str, str]]:
    """Return row, method and collection of ``count`` random cells with short runs, always the same ones."""
    short = [
        (row, method, dataset)
        for row, cells in summary["rows"].items()
        for method, by_dataset in cells.items()
        for dataset, cell in by_dataset.items()
        # Where the label-free settings do better, the row best-score holds the same cell again.
        if cell["seconds"] <= MOST_SECONDS
        and (row == "label-free" or cell != summary["rows"]["label-free"].get(method, {}).get(dataset))
    ]
    order = np.random.default_rng(0).permutation(len(short))[:count]
    return [short[index] for index in order]


def measure(summary: table2.Summary, row: str, method: str, dataset: str) -> Run:
    """Run one cell with seed 0; its processor time does not depend on what else the machine does."""
    settings = summary["rows"][row][method][dataset]["settings"]
    begin = time.process_time()
    record = run_trial(Trial(table="2", dataset=dataset, method=method, row=row, run=0, settings=settings))
    seconds = time.process_time() - begin
    return {
        "row": row,
        "method": method,
        "dataset": dataset,
        "accuracy": round(record["accuracy"], 2),
        "nmi": round(record["nmi"], 2),
        "gap": record["details"].get("gap"),
        "seconds": round(seconds, 3),
    }


def measure_missing(
    study: Study, summary: table2.Summary, cells: Sequence[tuple[str, str, str]], seconds: float
) -> Iterator[Run]:
    """Measure the cells that the study does not have yet, add and yield them; stop after so many seconds."""
    done = {(run["row"], run["method"], run["dataset"]) for run in study["runs"]}
    end = time.monotonic() + seconds
    for cell in cells:
        if time.monotonic() > end:
            return
        if cell not in done:
            study["runs"].append(measure(summary, *cell))
            yield study["runs"][-1]


# --- comparing -------------------------------------------------------------------------------------------------
def agrees(cell: table2.Cell, run: Run, score: Score, n_images: int) -> bool:
    """Tell whether a score lies within the recorded spread."""
    recorded = cell[score]
    return abs(run[score] - recorded["mean"]) <= MOST_DEVIATIONS * recorded["sd"] + 100.0 / n_images


def expected_minutes(summary: table2.Summary, study: Study) -> float:
    """Return the minutes that all runs of the table take on ``CORES`` cores with the present code.

    A cell that was run again counts with its new seconds. The recorded seconds of the others are multiplied by the
    median ratio of new to recorded seconds of the same method, if a cell of it was run again, else by that of all.
    """
    ratios: dict[str, list[float]] = {}
    measured: dict[tuple[str, str, str], float] = {}
    for run in study["runs"]:
        cell = summary["rows"][run["row"]][run["method"]][run["dataset"]]
        ratios.setdefault(run["method"], []).append(run["seconds"] / max(cell["seconds"], 1e-3))
        measured[run["row"], run["method"], run["dataset"]] = run["seconds"]
    everything = statistics.median(ratio for group in ratios.values() for ratio in group)
    total = sum(
        measured.get(cell, seconds * statistics.median(ratios.get(cell[1], [everything])))
        for cell, seconds in planned_seconds(summary)
    )
    return total / CORES / 60.0


def planned_seconds(summary: table2.Summary) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Yield row, method and collection of every planned run, and the recorded seconds of its cell."""
    for trial in table2.plan(table2.DATASETS, list(summary["methods"]), load_paper().runs):
        cell = summary["rows"][trial["row"]].get(trial["method"], {}).get(trial["dataset"])
        if cell is not None:
            yield (trial["row"], trial["method"], trial["dataset"]), cell["seconds"]


# --- the page --------------------------------------------------------------------------------------------------
def page(summary: table2.Summary, study: Study) -> str:
    """Return the whole of ``recheck.md``."""
    minutes = expected_minutes(summary, study)
    recorded = sum(seconds for _, seconds in planned_seconds(summary)) / CORES / 60.0
    verdict = "within" if minutes <= AIM_MINUTES else "above"
    parts = [
        "# Table 2, some cells again",
        f"{len(study['runs'])} cells of [Table 2](table2.md), most of them drawn from those whose runs are short, the "
        "others among the longest, each run once more with the present code and seed 0. A score agrees if it lies "
        "within three standard deviations of the recorded mean, or one image more. Seconds are processor time; kernels "
        "compiled on the way count too. Made by `python -m tools.recheck`.",
        f"All runs of the table took {recorded:.0f} minutes of {CORES} cores when they were recorded, partly on "
        "another machine. With the seconds below, and their ratios to the recorded ones for the other cells, "
        f"`tubal reproduce --table 2 --jobs {CORES}` is expected to take {minutes:.0f} minutes on this machine, "
        f"{verdict} the aim of {AIM_MINUTES:.0f}.",
        _verdict(summary, study),
        _table(summary, study),
        f"Machine: {study['machine']['processor']}, {study['machine']['cores']} cores. "
        f"Versions: {list_versions(study['versions'])}.",
    ]
    return join_parts(parts)


def _different(summary: table2.Summary, run: Run) -> list[str]:
    """Name what does not agree in one run."""
    from tubal.datasets import COLLECTIONS

    cell = summary["rows"][run["row"]][run["method"]][run["dataset"]]
    n_images = cell["settings"].get("subset", COLLECTIONS[run["dataset"]].n_images)
    found = [SCORE_NAMES[score] for score in SCORES if not agrees(cell, run, score, n_images)]
    if run["gap"] is not None and cell["certificate"] is not None:
        found += ["gap"] if run["gap"] > max(table2.CERTIFIED, 1.001 * cell["certificate"]["gap"]) else []
    return found


def _verdict(summary: table2.Summary, study: Study) -> str:
    different = [
        f"{summary['methods'][run['method']]} on {dataset_title(run['dataset'])} ({run['row']}: {', '.join(names)})"
        for run in study["runs"]
        if (names := _different(summary, run))
    ]
    if not different:
        return "All scores agree with the record, and all gaps are at most a thousandth or the recorded gap."
    return f"These do **not** agree with the record: {'; '.join(different)}. All others do."


def _table(summary: table2.Summary, study: Study) -> str:
    body = []
    for run in study["runs"]:
        cell = summary["rows"][run["row"]][run["method"]][run["dataset"]]
        scores = [f"{run[score]:.1f} ({cell[score]['mean']:.1f} ± {cell[score]['sd']:.1f})" for score in SCORES]
        found = cell["certificate"]
        gap = "" if run["gap"] is None or found is None else f"{run['gap']:.1e} ({found['gap']:.1e})"
        seconds = f"{run['seconds']:.1f} ({cell['seconds']:.1f})"
        title = summary["methods"][run["method"]]
        body.append([run["row"], title, dataset_title(run["dataset"]), *scores, gap, seconds])
    names = [f"{SCORE_NAMES[score]} (recorded)" for score in SCORES]
    return markdown_table(["row", "method", "collection", *names, "gap (recorded)", "seconds (recorded)"], body)


def main() -> None:
    """Make the runs that are not recorded yet."""
    parser = argparse.ArgumentParser(prog="python -m tools.recheck", description=__doc__)
    parser.add_argument("--cells", type=int, default=20, help="number of cells")
    parser.add_argument("--cell", nargs=3, metavar=("ROW", "METHOD", "COLLECTION"), help="this cell, not random ones")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of table2.json and recheck.json")
    options = parser.parse_args()
    summary = json.loads((options.out / "table2.json").read_text(encoding="utf-8"))
    study: Study = {"runs": [], "machine": machine(), "versions": versions(PACKAGES)}
    if (options.out / "recheck.json").exists():
        study["runs"] = json.loads((options.out / "recheck.json").read_text(encoding="utf-8"))["runs"]
    cells = [tuple(options.cell)] if options.cell else draw(summary, options.cells)
    for run in measure_missing(study, summary, cells, 60.0 * options.minutes):
        write_summary("recheck", study, page(summary, study), options.out)
        print(json.dumps(run))


if __name__ == "__main__":
    main()
