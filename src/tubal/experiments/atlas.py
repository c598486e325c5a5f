"""The sensitivity atlas: one setting of TubSC and GTSC is changed at a time, all others stay label-free.

It also shows what coding effort does: every coder of Table 2 with its final codes stopped after a number of steps of
Algorithm 1. Nothing is chosen from these curves.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from tubal.experiments import table2
from tubal.experiments.methods import CODERS, coder_stopped_early
from tubal.experiments.pages import dataset_title, join_parts, markdown_table, write_summary
from tubal.experiments.tables import SCORES, Images, Method, Outcome, Record, Settings, Trial, standard_deviation

TITLE = "Sensitivity atlas"
DATASETS = table2.DATASETS
EXTRA_DATASETS = table2.EXTRA_DATASETS
RUNS = 2
# Evenly spaced images of a large collection; the others are used whole.
SUBSETS = {"usps": 2000}


class Sweep(NamedTuple):
    """One setting, how it is named in the paper and in figures, its values, and the methods it is changed for."""

    title: str
    values: tuple[Any, ...]
    methods: tuple[str, ...]
    logarithmic: bool = False


_BOTH = ("tubsc", "gtsc")
_CODERS = tuple(name for name in CODERS if name in table2.SEARCHED)  # CSC would take hours
SWEEPS: Mapping[str, Sweep] = {
    "graph_weight": Sweep("graph weight α", (0.0, 0.1, 1.0, 10.0, 100.0), ("gtsc",), logarithmic=True),
    "sparsity_fraction": Sweep("sparsity β (fraction)", (0.003, 0.01, 0.03, 0.1, 0.3), _BOTH, logarithmic=True),
    "n_neighbors": Sweep("neighbours q", (2, 3, 5, 8), ("gtsc",)),
    "n_atoms": Sweep("atoms r", (15, 45, 80), _BOTH),
    "tube_axis": Sweep("tube axis (-1: width, -2: height)", (-1, -2), _BOTH),
    "edges": Sweep("edge weights", ("binary", "heat"), ("gtsc",)),
    "pooling": Sweep("pooling", ("norm", "sum", "max"), _BOTH),
    "final_steps": Sweep("steps of the final codes", (3, 10, 30, 100), _CODERS, logarithmic=True),
}


def _method(name: str) -> Callable[[Images, int, Settings, int], Outcome]:
    """Return the method of Table 2, stopped early where the settings say so."""
    stopped = coder_stopped_early(name)

    def cluster(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
        method = stopped if "final_steps" in settings else table2.METHODS[name].cluster
        return method(images, n_clusters, settings, seed)

    return cluster


METHODS: Mapping[str, Method] = {
    name: Method(table2.METHODS[name].title, _method(name), table2.METHODS[name].settings) for name in _CODERS
}


class Point(TypedDict):
    """One value of a setting: means and standard deviations of the scores, largest gap, mean share of non-zeros."""

    value: Any
    runs: int
    accuracy: float
    accuracy_sd: float
    nmi: float
    nmi_sd: float
    gap: float
    density: float
    seconds: float
    gap_printed: float | None


Curves = dict[str, dict[str, dict[str, list[Point]]]]  # by setting, collection and method


class Summary(TypedDict):
    """The content of ``atlas.json``."""

    title: str
    subsets: dict[str, int]
    methods: dict[str, str]
    settings: dict[str, str]
    curves: Curves


# --- the plan --------------------------------------------------------------------------------------------------
def plan(datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False) -> list[Trial]:
    """Return the trials of every curve, with at most ``RUNS`` seeds; equal settings of two curves run once."""
    return [
        Trial(table="atlas", dataset=dataset, method=method, row="atlas", run=run, settings=settings)
        for run in range(min(runs, RUNS))
        for dataset in datasets
        for method in methods
        for settings in _distinct(
            _settings(method, dataset, setting, value)
            for setting, entry in SWEEPS.items()
            if method in entry.methods
            for value in _values(setting, method, dataset)
        )
    ]


def _settings(method: str, dataset: str, setting: str, value: Any) -> dict[str, Any]:
    base = table2.settings_for("label-free", method, dataset)
    subset = {"subset": SUBSETS[dataset]} if dataset in SUBSETS else {}
    # A setting that has its default value is left out, so that the curves share these trials.
    defaults = {"tube_axis": -1, "edges": "binary", "pooling": "norm", "final_steps": None}
    change = {} if setting in defaults and value == defaults[setting] else {setting: value}
    return {**base, **subset, **change}


def _values(setting: str, method: str, dataset: str) -> list[Any]:
    """Return the values of a curve: those listed, with the label-free one in its place; None means certified codes."""
    values: list[Any] = list(SWEEPS[setting].values)
    if setting == "final_steps":
        return [*values, None]
    own = table2.settings_for("label-free", method, dataset).get(setting, values[0])
    return sorted({*values, own}) if SWEEPS[setting].logarithmic or setting.startswith("n_") else values


def _distinct(settings: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for entry in settings:
        if entry not in found:
            found.append(entry)
    return found


# --- the summary -----------------------------------------------------------------------------------------------
def summarise(records: Sequence[Record]) -> Summary:
    """Return the content of ``atlas.json``: ``summary["curves"][setting][dataset][method]`` is a list of points."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["dataset"], record["method"]].append(record)
    curves: Curves = {}
    for setting, entry in SWEEPS.items():
        for (dataset, method), group in sorted(groups.items()):
            if method not in entry.methods:
                continue
            found = {
                value: [record for record in group if record["settings"] == _settings(method, dataset, setting, value)]
                for value in _values(setting, method, dataset)
            }
            points = [_point(value, runs) for value, runs in found.items() if runs]
            curves.setdefault(setting, {}).setdefault(dataset, {})[method] = points
    present = {method for _, method in groups}
    titles = {name: method.title for name, method in METHODS.items() if name in present}
    return {
        "title": TITLE,
        "subsets": dict(SUBSETS),
        "methods": titles,
        "settings": {setting: entry.title for setting, entry in SWEEPS.items()},
        "curves": curves,
    }


def _point(value: Any, records: Sequence[Record]) -> Point:
    scores = {score: [record[score] for record in records] for score in SCORES}
    return {
        "value": value,
        "runs": len(records),
        "accuracy": round(statistics.mean(scores["accuracy"]), 2),
        "accuracy_sd": round(standard_deviation(scores["accuracy"]), 2),
        "nmi": round(statistics.mean(scores["nmi"]), 2),
        "nmi_sd": round(standard_deviation(scores["nmi"]), 2),
        "gap": max(record["details"]["gap"] for record in records),
        "density": round(statistics.mean(record["details"]["density"] for record in records), 5),
        "seconds": round(statistics.mean(record["seconds"] for record in records), 2),
        "gap_printed": max((record["details"].get("gap_printed", 0.0) for record in records), default=0.0) or None,
    }


# --- the page --------------------------------------------------------------------------------------------------
def page(summary: Summary) -> str:
    """Return the whole of ``atlas.md``."""
    subsets = "; ".join(
        f"{count} evenly spaced images of {dataset_title(name)}" for name, count in summary["subsets"].items()
    )
    parts = [
        f"# {summary['title']}",
        "One setting is changed at a time; all others are those of the label-free rows of [Table 2](table2.md). "
        f"Curves use {subsets}, and the other collections whole. Bars are standard deviations over the runs. Codes are "
        "certified, except where the number of steps of the final codes is what changes. Nothing is chosen from "
        "these curves. An asterisk marks a value whose codes did not reach a gap of a thousandth. Made by "
        "`tubal reproduce --table atlas`.",
    ]
    for dataset in _datasets(summary):
        parts += [f"## {dataset_title(dataset)}", _what_to_see(summary, dataset)]
        parts += [f"![{dataset_title(dataset)}: score against each setting](figures/atlas-{dataset}.png)"]
        parts += [
            _setting_table(summary, setting, dataset) for setting in summary["curves"] if setting != "final_steps"
        ]
    parts += [
        "## Coding effort",
        "Accuracy when the final codes are stopped after a number of steps of Algorithm 1 from zero, and at the right "
        "with certified codes. A curve that falls to the right shows a score that minimisers do not have.",
        "![Accuracy against the number of steps of the final codes](figures/effort.png)",
        *(_setting_table(summary, "final_steps", dataset) for dataset in _datasets(summary)),
    ]
    return join_parts(parts)


def _datasets(summary: Summary) -> list[str]:
    present = {dataset for by_dataset in summary["curves"].values() for dataset in by_dataset}
    return [name for name in (*DATASETS, *EXTRA_DATASETS) if name in present]


def _what_to_see(summary: Summary, dataset: str) -> str:
    """Say how far each setting moves the accuracy of each method."""
    sentences = []
    for method in _BOTH:
        spans = []
        for setting, by_dataset in summary["curves"].items():
            points = by_dataset.get(dataset, {}).get(method, [])
            if setting != "final_steps" and len(points) > 1:
                scores = [point["accuracy"] for point in points]
                spans.append((max(scores) - min(scores), SWEEPS[setting].title))
        if spans:
            listed = ", ".join(f"{title} {span:.1f}" for span, title in sorted(spans, reverse=True))
            sentences.append(f"{summary['methods'][method]}: {listed}.")
    return "Range of the mean accuracy along each curve, in points, largest first. " + " ".join(sentences)


def _setting_table(summary: Summary, setting: str, dataset: str) -> str:
    by_method = summary["curves"][setting].get(dataset, {})
    values = [point["value"] for point in max(by_method.values(), key=len, default=[])]
    body = []
    for method, points in by_method.items():
        cells = {str(point["value"]): _scores_text(point, marked=setting != "final_steps") for point in points}
        body.append([summary["methods"][method], *(cells.get(str(value), "") for value in values)])
    names = ["certified" if value is None else str(value) for value in values]
    return markdown_table([f"{SWEEPS[setting].title}, {dataset_title(dataset)}", *names], body) if body else ""


def _scores_text(point: Point, *, marked: bool) -> str:
    """Return accuracy and NMI; with ``marked``, a star says that the codes are not certified to 0.001."""
    star = "\\*" if marked and point["gap"] > 1.001e-3 else ""
    return f"{point['accuracy']:.1f} / {point['nmi']:.1f}{star}"


# --- files -----------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``atlas.json``, ``atlas.md`` and one figure a collection; return the paths."""
    summary = summarise(records)
    paths = write_summary("atlas", summary, page(summary), folder)
    if figures:
        from tubal.experiments.pages import draw_atlas

        paths += draw_atlas(summary, folder / "figures")
    return paths
