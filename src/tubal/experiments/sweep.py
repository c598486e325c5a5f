"""Accuracy against sparsity and against graph weight: the study the paper leaves out.

Each curve starts from the label-free settings and moves one of them. Nothing is chosen from the curves.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tubal.experiments.trials import Record, Trial
from tubal.storage.files import atomic_write

SWEEPS: dict[str, tuple[float, ...]] = {
    "sparsity_fraction": (0.003, 0.01, 0.03, 0.1, 0.2, 0.3),
    "graph_weight": (0.0, 0.1, 1.0, 10.0, 100.0),
}
RUNS = 3

# curves[setting][dataset][method] is a list of points
Curves = dict[str, dict[str, dict[str, list[dict[str, float]]]]]


def plan(starts: Mapping[tuple[str, str], Mapping[str, Any]], runs: int) -> list[Trial]:
    """Return the trials of every curve; ``starts`` gives the settings of each (dataset, method)."""
    return [
        Trial("2", dataset, method, f"sweep {setting}", run, {**settings, setting: value})
        for run in range(min(runs, RUNS))
        for (dataset, method), settings in starts.items()
        for setting, values in SWEEPS.items()
        if setting in settings
        for value in values
    ]


def summarise(records: Iterable[Record]) -> Curves:
    """Return the curves found in the records: mean and standard deviation of both scores at each value."""
    groups: dict[tuple[str, str, str], dict[float, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        setting = record["row"].removeprefix("sweep ")
        if setting in SWEEPS and record["row"] != setting:
            group = groups[setting, record["dataset"], record["method"]]
            group[record["settings"][setting]].append(record)
    curves: Curves = {}
    for (setting, dataset, method), values in sorted(groups.items()):
        points = [_point(value, values[value]) for value in sorted(values)]
        curves.setdefault(setting, {}).setdefault(dataset, {})[method] = points
    return curves


def _point(value: float, records: list[Record]) -> dict[str, float]:
    point: dict[str, float] = {"value": value, "runs": len(records)}
    for score in ("accuracy", "nmi"):
        scores = [record[score] for record in records]
        point[score] = round(statistics.mean(scores), 2)
        point[f"{score}_sd"] = round(statistics.stdev(scores), 2) if len(scores) > 1 else 0.0
    return point


def write(curves: Curves, folder: Path) -> list[Path]:
    """Write ``sweep.json`` and ``sweep.md``; return their paths."""
    lines = ["# Accuracy and NMI against one setting, all others label-free", ""]
    for setting, datasets in curves.items():
        for dataset, methods in datasets.items():
            values = [point["value"] for point in next(iter(methods.values()))]
            lines += [
                f"## {setting} on {dataset}",
                "",
                f"| method | {' | '.join(f'{v:g}' for v in values)} |",
            ]
            lines += ["|---" * (len(values) + 1) + "|"]
            for method, points in methods.items():
                cells = (f"{point['accuracy']:.1f} / {point['nmi']:.1f}" for point in points)
                lines.append(f"| {method} | {' | '.join(cells)} |")
            lines.append("")
    texts = {"sweep.json": json.dumps(curves, indent=1) + "\n", "sweep.md": "\n".join(lines)}
    for name, text in texts.items():
        with atomic_write(folder / name, "w", encoding="utf-8") as file:
            file.write(text)
    return [folder / name for name in texts]
