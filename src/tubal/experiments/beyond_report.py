"""From trials to the table "beyond": means, the ablation, what codes add, purity, published anchors."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tubal.experiments.models import Method
from tubal.experiments.pages import markdown_table
from tubal.experiments.paper import read_toml
from tubal.experiments.trials import Record
from tubal.storage.files import atomic_write

Summary = dict[str, Any]

SCORES = ("accuracy", "nmi")
_NO_GAIN = "no measurable gain"
_NEAR = 0.15


def summarise(records: Sequence[Record], methods: Mapping[str, Method], ablation: Sequence[str]) -> Summary:
    """Return the table as plain data: cells of methods and of ablation rows, by collection."""
    from tubal.experiments.beyond import DATASETS as order

    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["row"], record["method"], record["dataset"]].append(record)
    datasets = [name for name in order if any(record["dataset"] == name for record in records)]

    def cells(row: str, method: str) -> dict[str, Any]:
        return {name: _cell(groups[row, method, name]) for name in datasets if groups[row, method, name]}

    return {
        "title": "Beyond the paper",
        "datasets": datasets,
        "methods": {name: method.title for name, method in methods.items()},
        "table": {name: found for name in methods if (found := cells("table", name))},
        "ablation": {row: found for row in ablation if (found := cells(row, "default"))},
        "codes": {name: gain for name in datasets if (gain := codes_gain(groups, name))},
        "anchors": {name: found for name, found in read_toml("anchors.toml").items() if name in datasets},
        "jobs": max((record.get("jobs", 1) for record in records), default=1),
        "versions": records[-1]["versions"] if records else {},
        "data_sha256": {record["dataset"]: record["data_sha256"] for record in records},
    }


def _cell(group: Sequence[Record]) -> dict[str, Any]:
    counts = [record["details"]["n_clusters"] for record in group if "n_clusters" in record["details"]]
    return {
        "runs": len(group),
        **{score: _statistics([record[score] for record in group]) for score in SCORES},
        "seconds": round(statistics.mean(record["seconds"] for record in group), 2),
        "peak_memory_mb": round(statistics.median(record["peak_memory_mb"] for record in group)),
        "n_clusters": statistics.mean(counts) if counts else None,
        "settings": group[0]["settings"],
    }


def _statistics(scores: Sequence[float]) -> dict[str, float]:
    return {
        "mean": round(statistics.mean(scores), 2),
        "sd": round(statistics.stdev(scores), 2) if len(scores) > 1 else 0.0,
        "best": round(max(scores), 2),
    }


def codes_gain(groups: Mapping[tuple[str, str, str], Sequence[Record]], dataset: str) -> dict[str, Any]:
    """Return what codes add to the graph: the mean difference over seeds, its standard error, and a verdict.

    Runs are paired by seed. A gain counts when it exceeds two standard errors.
    """
    both = {
        method: {record["seed"]: record for record in groups[("table", method, dataset)]}
        for method in ("default", "graph-alone")
    }
    seeds = sorted(set(both["default"]) & set(both["graph-alone"]))
    if len(seeds) < 2:
        return {}
    found: dict[str, Any] = {"runs": len(seeds)}
    for score in SCORES:
        gaps = [both["default"][seed][score] - both["graph-alone"][seed][score] for seed in seeds]
        mean, error = statistics.mean(gaps), statistics.stdev(gaps) / math.sqrt(len(gaps))
        verdict = _NO_GAIN if mean <= 2 * error or mean <= 0.0 else "gain"
        verdict = "loss" if mean < -2 * error and mean < 0.0 else verdict
        found[score] = {"mean": round(mean, 3), "standard_error": round(error, 3), "verdict": verdict}
    return found


def neighbour_purity(datasets: Sequence[str]) -> dict[str, Any]:
    """Return, for each collection and graph, the share of an image's 3 and 5 neighbours with its own label."""
    from tubal.datasets import fetch
    from tubal.experiments.beyond import build_graph
    from tubal.experiments.models import scale_images
    from tubal.graph import knn_graph

    found: dict[str, Any] = {}
    for name in datasets:
        bunch = fetch(name)
        graphs = {
            "Euclidean": knn_graph(scale_images(bunch.images, "unit"), 5),
            "deformable": build_graph(bunch.images, 5),
        }
        found[name] = {
            title: {
                str(q): round(100.0 * float((bunch.target[graph.neighbors[:, :q]] == bunch.target[:, None]).mean()), 2)
                for q in (3, 5)
            }
            | {"max_in_degree": graph.max_in_degree}
            for title, graph in graphs.items()
        }
    return found


def write(summary: Summary, folder: Path) -> list[Path]:
    """Write ``beyond.json`` and ``beyond.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    table, text = folder / "beyond.json", folder / "beyond.md"
    with atomic_write(table, "w", encoding="utf-8") as file:
        file.write(json.dumps(summary, indent=1) + "\n")
    with atomic_write(text, "w", encoding="utf-8") as file:
        file.write(report(summary))
    return [table, text]


def report(summary: Summary) -> str:
    """Return the whole of ``beyond.md``."""
    parts = [
        "# Beyond the paper",
        "Accuracy / NMI in percent (NMI by the larger entropy), mean ± standard deviation of the runs; one setting "
        "for every collection, judged without labels ([criterion](criterion.md)). Below: mean seconds from images to "
        "labels, " + _side_by_side(summary),
        _score_table(summary, summary["table"], "method", summary["methods"]),
        "## What codes add to the graph",
        "Default preset minus the same pipeline without codes, paired by seed, ± standard error; below two standard "
        f"errors it says *{_NO_GAIN}*.",
        _codes_table(summary),
        "## Ablation of the default preset",
        "One thing changed at a time, fewer runs than above. The default has q = 5 and graph weight 10; *default "
        "without codes* above is the graph alone.",
        _score_table(summary, _with_default(summary), "changed", {}),
        "## Estimated number of clusters",
        "With `n_clusters=None`; right means within 15 % of the number of classes.",
        _estimate_table(summary),
        "## Neighbours",
        "Share of an image's 3 and 5 nearest neighbours that carry its label, percent; largest in-degree.",
        _purity_table(summary),
        "## Published anchors",
        _anchor_table(summary),
        "## Provenance",
        _provenance(summary),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def readme_block(summary: Summary) -> str:
    """Return the README's table, generated from ``beyond.json`` alone."""
    intro = (
        "Accuracy / NMI in percent, mean ± standard deviation of the runs (NMI by the larger entropy). How q, the "
        "weights and the assignment were judged without labels: [criterion](results/criterion.md)."
    )
    table = _score_table(summary, summary["table"], "method", summary["methods"], seconds=False)
    codes = f"What codes add to the graph alone, ± standard error; below two of them it says *{_NO_GAIN}*:"
    estimate = "Number of clusters, estimated with `n_clusters=None`:"
    parts = [intro, table, codes, _codes_table(summary), estimate, _estimate_table(summary)]
    return "\n\n".join(part for part in parts if part)


def _score_table(
    summary: Summary, rows: Mapping[str, Any], head: str, titles: Mapping[str, str], *, seconds: bool = True
) -> str:
    body = []
    for row, cells in rows.items():
        entries = [_entry(cells[name], seconds) if name in cells else "" for name in summary["datasets"]]
        body.append([titles.get(row, row), *entries])
    return markdown_table([head, *summary["datasets"]], body) if body else ""


def _entry(cell: Mapping[str, Any], seconds: bool) -> str:
    scores = " / ".join(f"{cell[score]['mean']:.1f}±{cell[score]['sd']:.1f}" for score in SCORES)
    return f"{scores}<br>{cell['seconds']:.1f} s" if seconds else scores


def _codes_table(summary: Summary) -> str:
    body = [
        [
            name,
            *(f"{gain[score]['mean']:+.2f} ± {gain[score]['standard_error']:.2f}" for score in SCORES),
            " / ".join(gain[score]["verdict"] for score in SCORES),
        ]
        for name, gain in summary["codes"].items()
    ]
    return markdown_table(["codes beside the graph", "accuracy", "NMI", "verdict"], body) if body else ""


def _side_by_side(summary: Summary) -> str:
    """What the seconds mean: several trials at a time share the cores, and each has fewer threads."""
    jobs = summary.get("jobs", 1)
    alone = "one trial at a time on all cores."
    return alone if jobs == 1 else f"{jobs} trials side by side, each on its share of the cores: slower than one alone."


def _with_default(summary: Summary) -> dict[str, Any]:
    unchanged = summary["table"].get("default")
    return {**({"nothing (the default)": unchanged} if unchanged else {}), **summary["ablation"]}


def _estimate_table(summary: Summary) -> str:
    cells = summary["ablation"].get("number of clusters estimated", {})
    given = summary["table"].get("default", {})
    body = []
    for name, cell in cells.items():
        right = given.get(name, {}).get("n_clusters")
        if right:
            found = cell["n_clusters"]
            off = (found - right) / right
            verdict = "right" if abs(off) <= _NEAR else "**fails**"
            body.append([name, f"{right:.0f}", f"{found:.1f}", f"{100 * off:+.0f} %", verdict])
    return (
        markdown_table(["collection", "classes", "estimated", "difference", f"within {100 * _NEAR:.0f} %"], body)
        if body
        else ""
    )


def _purity_table(summary: Summary) -> str:
    body = [
        [name, title, f"{values['3']:.1f}", f"{values['5']:.1f}", str(values["max_in_degree"])]
        for name, graphs in summary.get("purity", {}).items()
        for title, values in graphs.items()
    ]
    return markdown_table(["collection", "graph", "3", "5", "largest in-degree"], body) if body else ""


def _provenance(summary: Summary) -> str:
    hashes = "; ".join(f"{name} {digest[:16]}" for name, digest in summary["data_sha256"].items())
    versions = ", ".join(f"{name} {version}" for name, version in summary["versions"].items())
    return f"Made by `tubal reproduce --table beyond`, run i with seed i. {versions}. Data, first of SHA-256: {hashes}."


def _anchor_table(summary: Summary) -> str:
    body = []
    for name, anchors in summary["anchors"].items():
        for anchor in anchors:
            scores = " / ".join(str(anchor.get(score, "–")) for score in SCORES)
            note = f" ({anchor['note']})" if "note" in anchor else ""
            body.append([name, anchor["method"], scores, anchor["source"] + note])
    return markdown_table(["collection", "method", "accuracy / NMI", "source"], body) if body else ""
