"""From the family's trials to its table and curves as plain data, and to files."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tubal.experiments.family_words import SCORES, Summary, recommended, report
from tubal.experiments.models import Method
from tubal.experiments.trials import Record
from tubal.storage.files import atomic_write


def summarise(records: Sequence[Record], methods: Mapping[str, Method]) -> Summary:
    """Return the table and the curves as plain data: ``summary["table"][dataset][method]`` is a cell."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record["row"] == "table":
            groups[record["dataset"], record["method"]].append(record)
    table: dict[str, dict[str, Any]] = {}
    for (dataset, method), group in groups.items():
        table.setdefault(dataset, {})[method] = _cell(group)
    ordered = {
        dataset: {name: table[dataset][name] for name in methods if name in table[dataset]} for dataset in sorted(table)
    }
    averages = _averages(ordered, methods)
    return {
        "title": "The family",
        "methods": {name: method.title for name, method in methods.items()},
        "table": ordered,
        "averages": averages,
        "against_gtsc": _against("gtsc", averages),
        "timing": _timing(records),
        "rate": _rate(_in_order(records, methods)),
        "shift": _shift(_in_order(records, methods)),
        "versions": next((record["versions"] for record in records if record["row"] == "table"), {}),
        "data_sha256": {record["dataset"]: record["data_sha256"] for record in records},
    }


def _cell(records: Sequence[Record]) -> dict[str, Any]:
    """Scores of every run; seconds and memory of those on the processor, where there are any."""
    group = list({record["run"]: record for record in records}.values())
    timed = [record for record in records if "device" not in record["settings"]] or group
    cell: dict[str, Any] = {"runs": len(group), "timed_runs": len(timed)}
    for score in SCORES:
        scores = [record[score] for record in group]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        cell[score] = {"mean": round(statistics.mean(scores), 2), "sd": round(spread, 2)}
    for name, digits in (("stored", 0), ("nonzero", 1), ("error", 5), ("sparsity", 5)):
        cell[name] = round(statistics.mean(record["details"][name] for record in group), digits)
    cell["seconds"] = round(statistics.mean(record["seconds"] for record in timed), 2)
    cell["peak_memory_mb"] = round(statistics.median(_memory(record) for record in timed))
    cell["device"] = timed[0]["settings"].get("device", "cpu")
    cell["settings"] = group[0]["settings"]
    return cell


def _memory(record: Record) -> float:
    """Memory of the device the arrays were on."""
    return float(record["details"].get("device_memory_mb", record["peak_memory_mb"]))


def _timing(records: Sequence[Record]) -> dict[str, Any]:
    """On what the table's trials ran, and how many at a time; nothing where they do not all say the same."""
    told = [
        {**record["machine"], "jobs": record.get("jobs", 1)}
        for record in records
        if record["row"] == "table" and "machine" in record
    ]
    return told[0] if told and all(entry == told[0] for entry in told) else {}


def _averages(table: Mapping[str, Mapping[str, Any]], methods: Mapping[str, Method]) -> dict[str, dict[str, float]]:
    """Means over the collections, of the members measured on all of them; ``_se`` is a mean's standard error."""
    averages: dict[str, dict[str, float]] = {}
    for method in methods:
        if not table or any(method not in cells for cells in table.values()):
            continue
        cells = [collection[method] for collection in table.values()]
        found = {name: statistics.mean(cell[name] for cell in cells) for name in _COSTS}
        for score in SCORES:
            found[score] = statistics.mean(cell[score]["mean"] for cell in cells)
            found[f"{score}_se"] = math.sqrt(sum(_variance(cell, score) for cell in cells)) / len(cells)
        averages[method] = {name: round(value, 4) for name, value in found.items()}
    return averages


_COSTS = ("stored", "nonzero", "error", "seconds", "peak_memory_mb")


def _variance(cell: Mapping[str, Any], score: str) -> float:
    """The squared standard error of a cell's mean."""
    return float(cell[score]["sd"]) ** 2 / int(cell["runs"])


def _against(other: str, averages: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """How far every member's mean scores are above another's, each with its standard error."""
    if other not in averages:
        return {}
    return {
        method: {
            score: {
                "gap": round(averages[method][score] - averages[other][score], 4),
                "se": round(math.hypot(averages[method][f"{score}_se"], averages[other][f"{score}_se"]), 4),
            }
            for score in SCORES
        }
        for method in averages
        if method != other
    }


def _in_order(records: Sequence[Record], methods: Mapping[str, Method]) -> list[Record]:
    """Sort records by collection and member, so that every curve has its place whatever finished first."""
    places = list(methods)
    return sorted(records, key=lambda record: (record["dataset"], places.index(record["method"])))


def _rate(records: Sequence[Record]) -> dict[str, Any]:
    """``rate[kind][dataset][method]`` is a list of points, in the order of what was changed."""
    curves: dict[str, Any] = {}
    for record in records:
        if not record["row"].startswith("rate "):
            continue
        kind = record["row"].removeprefix("rate ")
        point = {name: record["details"][name] for name in ("stored", "nonzero", "error")}
        point["value"] = record["settings"][kind]
        curves.setdefault(kind, {}).setdefault(record["dataset"], {}).setdefault(record["method"], []).append(point)
    for datasets in curves.values():
        for methods in datasets.values():
            for points in methods.values():
                points.sort(key=lambda point: point["value"])
    return curves


def _shift(records: Sequence[Record]) -> dict[str, Any]:
    """``shift[dataset][way][method]`` maps pixels to the relative distance of features."""
    curves: dict[str, Any] = {}
    for record in records:
        if record["row"] != "shift":
            continue
        for pixels in record["settings"]["shifts"]:
            for name, value in record["details"].items():
                way, _, place = name.rpartition(", ")
                if place == str(pixels) and way:
                    ways = curves.setdefault(record["dataset"], {}).setdefault(way, {})
                    ways.setdefault(record["method"], {})[str(pixels)] = round(value, 4)
    return curves


# --- files -----------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, methods: Mapping[str, Method], *, figures: bool) -> list[Path]:
    """Write the table, and the pictures if asked; return the paths."""
    summary = summarise(records, methods)
    summary["recommended"] = recommended(summary)
    texts = {"family.json": json.dumps(summary, indent=1) + "\n", "family.md": report(summary)}
    for name, text in texts.items():
        with atomic_write(folder / name, "w", encoding="utf-8") as file:
            file.write(text)
    paths = [folder / name for name in texts]
    if not figures:
        return paths
    from tubal.experiments.family_figures import draw

    return paths + draw(summary, folder / "figures")
