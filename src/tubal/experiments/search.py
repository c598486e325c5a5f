"""The search behind the best-score rows of Table 2: the same number of settings for every method, all trials logged.

It looks at labels, as the paper must have done. Only the best-score rows use its results; no default of the library
does. The grids, the seeds and the rule are written in ``settings.toml``.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypedDict

from tubal.experiments import table2
from tubal.experiments.methods import CODERS
from tubal.experiments.pages import dataset_title, join_parts, markdown_table
from tubal.experiments.tables import SCORES, Method, Record, Settings, Trial, read_toml
from tubal.storage.files import atomic_write

TITLE = "The search for the best-score settings of Table 2"
DATASETS = table2.DATASETS
EXTRA_DATASETS: tuple[str, ...] = ()
# A search of CSC would take days.
METHODS: Mapping[str, Method] = {name: table2.METHODS[name] for name in table2.SEARCHED}

RULE = (
    "The setting with the largest mean of accuracy and NMI over the search seeds is selected; of equal ones the first "
    "in the order of the grid."
)


class Entry(TypedDict):
    """One logged trial: ``setting`` is its place in the grid of its method."""

    dataset: str
    method: str
    setting: int
    seed: int
    accuracy: float
    nmi: float
    seconds: float
    gap: float | None
    density: float | None
    n_iter: float | None
    converged: float | None


class Selected(TypedDict):
    """What was selected for one method on one collection, with its means over the search seeds."""

    setting: int
    changes: dict[str, Any]
    accuracy: float
    nmi: float


class Summary(TypedDict):
    """The content of ``table2_search.json``."""

    title: str
    rule: str
    seeds: list[int]
    images: dict[str, int]
    methods: dict[str, str]
    grids: dict[str, list[dict[str, Any]]]
    selected: dict[str, dict[str, Selected]]
    trials: list[Entry]


# --- the grid --------------------------------------------------------------------------------------------------
def grid(method: str) -> list[dict[str, Any]]:
    """Return the settings that the search tries for a method, as changes of the label-free ones.

    >>> len(grid("gtsc")), grid("gtsc")[1]
    (72, {'scale': 'unit', 'init': 'images', 'max_iter': 1, 'sparsity_fraction': 0.0003, 'features': 'plain'})
    """
    lists = read_toml("settings.toml")["search"]["coder" if method in CODERS else method]
    return [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]


def plan(datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False) -> list[Trial]:
    """Return the trials of the search, with at most ``runs`` of its seeds.

    One fit of a coder serves both kinds of features, so it is planned once, as features "both".
    """
    search = read_toml("settings.toml")["search"]
    return [
        Trial(table="search", dataset=dataset, method=method, row="search", run=seed, settings=settings)
        for seed in search["seeds"][:runs]
        for dataset in datasets
        for method in methods
        for settings in _fits(method, dataset, search["images"].get(dataset))
    ]


def _fits(method: str, dataset: str, n_images: int | None) -> list[dict[str, Any]]:
    """Return the settings of every fit that the grid of a method needs."""
    base = table2.settings_for("label-free", method, dataset) | ({} if n_images is None else {"subset": n_images})
    changes = grid(method)
    if method in CODERS:
        changes = [{**change, "features": "both"} for change in changes if change["features"] == "unit"]
    return [{**base, **change} for change in changes]


# --- the summary -----------------------------------------------------------------------------------------------
def summarise(records: Sequence[Record]) -> Summary:
    """Return the content of ``table2_search.json``."""
    search = read_toml("settings.toml")["search"]
    entries = [entry for record in records for entry in _entries(record)]
    entries.sort(key=lambda entry: (entry["dataset"], entry["method"], entry["setting"], entry["seed"]))
    present = [name for name in METHODS if any(entry["method"] == name for entry in entries)]
    return {
        "title": TITLE,
        "rule": RULE,
        "seeds": search["seeds"],
        "images": search["images"],
        "methods": {name: METHODS[name].title for name in present},
        "grids": {name: grid(name) for name in present},
        "selected": select(entries),
        "trials": entries,
    }


def _entries(record: Record) -> list[Entry]:
    """Return the log entries of a record: one, or one for each kind of features of a coder."""
    method, settings = record["method"], record["settings"]
    scores = {settings.get("features", ""): {score: record[score] for score in SCORES}}
    if settings.get("features") == "both":
        scores = {"unit": scores["both"], **record.get("variants", {})}
    details = record["details"]
    return [
        Entry(
            dataset=record["dataset"],
            method=method,
            setting=_place(method, {**settings, "features": features}),
            seed=record["seed"],
            accuracy=round(values["accuracy"], 3),
            nmi=round(values["nmi"], 3),
            seconds=record["seconds"],
            gap=details.get("gap"),
            density=details.get("density"),
            n_iter=details.get("n_iter"),
            converged=details.get("converged"),
        )
        for features, values in scores.items()
    ]


def _place(method: str, settings: Settings) -> int:
    """Return the place of settings in the grid of a method."""
    matches = [all(settings[name] == value for name, value in change.items()) for change in grid(method)]
    return matches.index(True)


def select(entries: Sequence[Entry]) -> dict[str, dict[str, Selected]]:
    """Apply the rule to logged trials; return what it selects by method and collection.

    >>> trial = {"dataset": "orl", "method": "kmeans", "seed": 0, "nmi": 60.0}
    >>> trials = [{**trial, "setting": place, "accuracy": score} for place, score in [(0, 50), (1, 52), (2, 52)]]
    >>> select(trials)["kmeans"]["orl"]["setting"]
    1
    """
    scores: dict[tuple[str, str], dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        scores[entry["method"], entry["dataset"]][entry["setting"]].append(entry)
    selected: dict[str, dict[str, Selected]] = {}
    for method, dataset in product(METHODS, DATASETS):
        if not (tried := scores.get((method, dataset))):
            continue
        # Only seeds that every setting has: a search that was stopped must not favour settings with a lucky seed.
        seeds = set.intersection(*({entry["seed"] for entry in group} for group in tried.values()))
        means = {
            place: {
                score: statistics.mean(entry[score] for entry in group if entry["seed"] in seeds) for score in SCORES
            }
            for place, group in sorted(tried.items())
            if seeds
        }
        if not means:
            continue
        # `max` returns the first of equal values, and places are in order.
        best = max(means, key=lambda place: sum(means[place].values()))
        selected.setdefault(method, {})[dataset] = {
            "setting": best,
            "changes": grid(method)[best],
            "accuracy": round(means[best]["accuracy"], 2),
            "nmi": round(means[best]["nmi"], 2),
        }
    return selected


def selected_toml(selected: Mapping[str, Mapping[str, Selected]]) -> str:
    """Return the text of ``best_score.toml``.

    >>> print(selected_toml({"kmeans": {"orl": {"changes": {"scale": "unit", "n_starts": 1}}}}).splitlines()[-1])
    orl = { scale = "unit", n_starts = 1 }
    """
    lines = ["# Written by `python -m tools.best_score_search` from results/table2_search.json; see settings.toml."]
    for method, cells in selected.items():
        lines += ["", f"[{method}]"]
        for dataset, choice in cells.items():
            # JSON texts, whole numbers and decimal fractions are valid TOML.
            pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in choice["changes"].items())
            lines.append(f"{dataset} = {{ {pairs} }}")
    return "\n".join(lines) + "\n"


# --- the page --------------------------------------------------------------------------------------------------
def page(summary: Summary) -> str:
    """Return the whole of ``table2_search.md``."""
    tried = len(next(iter(summary["grids"].values()), []))
    subsets = "; ".join(
        f"{count} evenly spaced images of {dataset_title(name)}" for name, count in summary["images"].items()
    )
    parts = [
        f"# {summary['title']}",
        f"Every method tried the same number of settings: {tried}, each with the seeds "
        f"{', '.join(map(str, summary['seeds']))}, which no run of the table uses. {summary['rule']} The search used "
        f"{subsets}, and the other collections whole. `table2_search.json` holds all {len(summary['trials'])} scores.",
        "## What was selected",
        "Accuracy / NMI in percent are means over the search seeds; the place in the grid is in brackets.",
        _selected_table(summary),
        "## All settings",
        "Mean of accuracy and NMI over the search seeds, in percent; the selected one is bold.",
    ]
    for method, title in summary["methods"].items():
        parts += [f"### {title}", _grid_table(summary, method)]
    return join_parts(parts)


def _datasets(summary: Summary) -> list[str]:
    return [name for name in DATASETS if any(name in cells for cells in summary["selected"].values())]


def _selected_table(summary: Summary) -> str:
    body = []
    for method, cells in summary["selected"].items():
        entries = [
            f"{cell['accuracy']:.1f} / {cell['nmi']:.1f} ({cell['setting']})<br>{_listed(cell['changes'])}"
            for cell in (cells[name] for name in _datasets(summary) if name in cells)
        ]
        body.append([summary["methods"][method], *entries])
    return markdown_table(["method", *map(dataset_title, _datasets(summary))], body)


def _listed(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in changes.items())


def _grid_table(summary: Summary, method: str) -> str:
    datasets = _datasets(summary)
    scores: dict[tuple[int, str], list[float]] = defaultdict(list)
    for entry in summary["trials"]:
        if entry["method"] == method:
            scores[entry["setting"], entry["dataset"]].append((entry["accuracy"] + entry["nmi"]) / 2)
    body = []
    for place, changes in enumerate(summary["grids"][method]):
        cells = [f"{statistics.mean(scores[place, name]):.1f}" if scores[place, name] else "" for name in datasets]
        selected = summary["selected"].get(method, {})
        chosen = [name in selected and selected[name]["setting"] == place for name in datasets]
        marked = [f"**{cell}**" if mark and cell else cell for cell, mark in zip(cells, chosen, strict=True)]
        body.append([str(place), _listed(changes), *marked])
    return markdown_table(["place", "settings", *map(dataset_title, datasets)], body)


# --- files -----------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``table2_search.json``, with one trial a line, and ``table2_search.md``; return the paths."""
    summary = summarise(records)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "table2_search.json", folder / "table2_search.md"]
    for path, text in zip(paths, (_json_text(summary), page(summary)), strict=True):
        with atomic_write(path, "w", encoding="utf-8") as file:
            file.write(text)
    return paths


def _json_text(summary: Summary) -> str:
    head = json.dumps({**summary, "trials": []}, indent=1)
    trials = ",\n".join(f"  {json.dumps(entry)}" for entry in summary["trials"])
    return head.replace('"trials": []', f'"trials": [\n{trials}\n ]') + "\n"
