"""From trials to Table 2: means, deviations, best runs, and the distance to what the paper printed."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tubal.experiments.models import Method
from tubal.experiments.paper import load_paper
from tubal.experiments.trials import Record
from tubal.storage.files import atomic_write

Summary = dict[str, Any]

SCORES = ("accuracy", "nmi")
# The orderings the paper claims, better method first.
CLAIMS = (("gtsc", "tubsc"), ("tubsc", "sc"), ("gtsc", "graphsc"), ("graphsc", "sc"))


def summarise(records: Sequence[Record], methods: Mapping[str, Method]) -> Summary:
    """Return the table as plain data: ``summary["rows"][row][method][dataset]`` is a cell.

    A cell holds, for accuracy and NMI in percent, mean, sample standard deviation, best of the runs, the
    printed value (or None) and the difference of the mean to it; seconds, peak memory and settings.
    """
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["row"], record["method"], record["dataset"]].append(record)
    rows: dict[str, Any] = {}
    datasets = [name for name in (*load_paper().collections, "digits") if any(r["dataset"] == name for r in records)]
    for row in ("label-free", "best-score"):
        for method in methods:
            for dataset in datasets:
                if group := groups.get((row, method, dataset)):
                    rows.setdefault(row, {}).setdefault(method, {})[dataset] = _cell(group)
    return {
        "title": "Table 2",
        "datasets": datasets,
        "methods": {name: method.title for name, method in methods.items()},
        "rows": rows,
        "averages": {row: _averages(cells) for row, cells in rows.items()},
        "ordering": {row: _ordering(cells) for row, cells in rows.items()},
        "targets": _targets(rows.get("best-score", {}).get("gtsc", {})),
        "undercut": _undercut(rows),
        "environments": _environments(records),
        "data_sha256": {record["dataset"]: record["data_sha256"] for record in records},
    }


def _environments(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Say where the trials ran: how many with which versions, and how many side by side."""
    counts = Counter((json.dumps(record["versions"], sort_keys=True), record.get("jobs", 1)) for record in records)
    return [
        {"trials": count, "jobs": jobs, "versions": json.loads(versions)}
        for (versions, jobs), count in counts.most_common()
    ]


def _undercut(rows: Mapping[str, Any]) -> list[dict[str, str]]:
    """Name the cells whose best-score settings, over all runs, do worse in both scores than the label-free ones."""
    free, best = rows.get("label-free", {}), rows.get("best-score", {})
    return [
        {"method": method, "dataset": dataset}
        for method, cells in best.items()
        for dataset, cell in cells.items()
        if dataset in free.get(method, {})
        and all(cell[score]["mean"] < free[method][dataset][score]["mean"] for score in SCORES)
    ]


def _cell(group: Sequence[Record]) -> dict[str, Any]:
    printed = _printed(group[0]["dataset"], group[0]["method"])
    return {
        "runs": len(group),
        **{score: _statistics([record[score] for record in group], printed.get(score)) for score in SCORES},
        "seconds": round(statistics.mean(record["seconds"] for record in group), 2),
        "peak_memory_mb": round(statistics.median(record["peak_memory_mb"] for record in group)),
        "settings": group[0]["settings"],
    }


def _printed(dataset: str, method: str) -> Mapping[str, float]:
    collection = load_paper().collections.get(dataset)
    return collection.printed.get(method, {}) if collection else {}


def _statistics(scores: Sequence[float], printed: float | None) -> dict[str, float | None]:
    mean = statistics.mean(scores)
    return {
        "mean": round(mean, 2),
        "sd": round(statistics.stdev(scores), 2) if len(scores) > 1 else 0.0,
        "best": round(max(scores), 2),
        "printed": printed,
        "difference": None if printed is None else round(mean - printed, 2),
    }


def _averages(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Mean over the paper's collections, for the methods measured on all of them."""
    paper = load_paper()
    averages: dict[str, Any] = {}
    for method, by_dataset in cells.items():
        if not set(paper.collections) <= set(by_dataset):
            continue
        averages[method] = {}
        for score in SCORES:
            mean = statistics.mean(by_dataset[dataset][score]["mean"] for dataset in paper.collections)
            printed = paper.average.get(method, {}).get(score)
            difference = None if printed is None else round(mean - printed, 2)
            averages[method][score] = {"mean": round(mean, 2), "printed": printed, "difference": difference}
    return averages


def _ordering(cells: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Check each claimed ordering on the average over the collections, and name the cells where it fails."""
    checks = []
    for better, worse in CLAIMS:
        shared = [dataset for dataset in cells.get(better, {}) if dataset in cells.get(worse, {})]
        shared = [dataset for dataset in shared if dataset in load_paper().collections]
        for score in SCORES if shared else ():
            gaps = {d: cells[better][d][score]["mean"] - cells[worse][d][score]["mean"] for d in shared}
            mean = statistics.mean(gaps.values())
            checks.append(
                {
                    "better": better,
                    "worse": worse,
                    "score": score,
                    "difference": round(mean, 2),
                    "holds": mean > 0,
                    "fails_on": [dataset for dataset, gap in gaps.items() if gap <= 0],
                }
            )
    return checks


def _targets(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Count in how many printed figures the best-score GTSC is at or above print, by mean and by best run."""
    figures = [(f"{dataset} {score}", cell[score]) for dataset, cell in cells.items() for score in SCORES]
    figures = [(name, values) for name, values in figures if values["printed"] is not None]
    return {
        "figures": len(figures),
        "mean_at_or_above": [name for name, values in figures if values["mean"] >= values["printed"]],
        "best_at_or_above": [name for name, values in figures if values["best"] >= values["printed"]],
    }


def write(summary: Summary, folder: Path) -> list[Path]:
    """Write ``table2.json`` and ``table2.md`` and return their paths."""
    from tubal.experiments.markdown import report

    texts = {"table2.json": json.dumps(summary, indent=1) + "\n", "table2.md": report(summary)}
    for name, text in texts.items():
        with atomic_write(folder / name, "w", encoding="utf-8") as file:
            file.write(text)
    return [folder / name for name in texts]
