"""The search behind the best-score rows of Table 2: the same number of settings for every method, all trials logged.

It looks at labels, as the paper must have done. Only the best-score rows use its results; no default of the library
does. The grids, the seeds and the rule are written in ``settings.toml``. This is the first stage, with one seed; its
best settings run again with other seeds, see :mod:`tubal.experiments.finals`.
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
# A search of CSC would take hours.
METHODS: Mapping[str, Method] = {name: table2.METHODS[name] for name in table2.SEARCHED}

RULE = (
    "Settings are ranked by the mean of accuracy and NMI; of equal ones the first in the order of the grid comes first."
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


class Ranked(TypedDict):
    """One setting of a method on a collection, with its means over the seeds."""

    setting: int
    changes: dict[str, Any]
    accuracy: float
    nmi: float


Ranking = dict[str, dict[str, list[Ranked]]]  # by method, then by collection; best first


class Summary(TypedDict):
    """The content of ``table2_search.json``."""

    title: str
    rule: str
    seeds: list[int]
    images: dict[str, int]
    methods: dict[str, str]
    grids: dict[str, list[dict[str, Any]]]
    finalists: Ranking
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
        for settings in fits(method, dataset, grid(method))
    ]


def fits(method: str, dataset: str, changes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the settings of the fits for these changes; both kinds of features of a coder share one fit.

    >>> len(fits("gtsc", "orl", grid("gtsc"))), len(fits("umap", "orl", grid("umap")))
    (36, 72)
    """
    n_images = read_toml("settings.toml")["search"]["images"].get(dataset)
    base = table2.settings_for("label-free", method, dataset) | ({} if n_images is None else {"subset": n_images})
    both = {"features": "both"} if method in CODERS else {}
    found: list[dict[str, Any]] = []
    for change in changes:
        if (settings := {**base, **change, **both}) not in found:
            found.append(settings)
    return found


# --- the summary -----------------------------------------------------------------------------------------------
def summarise(records: Sequence[Record]) -> Summary:
    """Return the content of ``table2_search.json``."""
    return summary_of([entry for record in records for entry in log_entries(record)])


def summary_of(entries: Sequence[Entry]) -> Summary:
    """Return the summary of logged trials."""
    search = read_toml("settings.toml")["search"]
    entries = sorted(entries, key=lambda entry: (entry["dataset"], entry["method"], entry["setting"], entry["seed"]))
    present = [name for name in METHODS if any(entry["method"] == name for entry in entries)]
    ranked = ranking(entries)
    return {
        "title": TITLE,
        "rule": RULE,
        "seeds": search["seeds"],
        "images": search["images"],
        "methods": {name: METHODS[name].title for name in present},
        "grids": {name: grid(name) for name in present},
        "finalists": {
            method: {dataset: settings[: search["finalists"]] for dataset, settings in cells.items()}
            for method, cells in ranked.items()
        },
        "trials": entries,
    }


def log_entries(record: Record) -> list[Entry]:
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


def ranking(entries: Sequence[Entry]) -> Ranking:
    """Return the settings of every method and collection, best first by the rule.

    >>> trial = {"dataset": "orl", "method": "kmeans", "seed": 0, "nmi": 60.0}
    >>> trials = [{**trial, "setting": place, "accuracy": score} for place, score in [(0, 50), (1, 52), (2, 52)]]
    >>> [ranked["setting"] for ranked in ranking(trials)["kmeans"]["orl"]]
    [1, 2, 0]
    """
    scores: dict[tuple[str, str], dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        scores[entry["method"], entry["dataset"]][entry["setting"]].append(entry)
    ranked: Ranking = {}
    for method, dataset in product(METHODS, DATASETS):
        if not (tried := scores.get((method, dataset))):
            continue
        # Only seeds that every setting has: a search that was stopped must not favour settings with a lucky seed.
        seeds = set.intersection(*({entry["seed"] for entry in group} for group in tried.values()))
        if seeds:
            found = [_mean_over(seeds, method, place, group) for place, group in sorted(tried.items())]
            # The sort is stable, and places are in order.
            found.sort(key=lambda setting: -(setting["accuracy"] + setting["nmi"]))
            ranked.setdefault(method, {})[dataset] = found
    return ranked


def _mean_over(seeds: set[int], method: str, place: int, group: Sequence[Entry]) -> Ranked:
    accuracy, nmi = (statistics.mean(entry[score] for entry in group if entry["seed"] in seeds) for score in SCORES)
    return {"setting": place, "changes": grid(method)[place], "accuracy": accuracy, "nmi": nmi}


# --- the page --------------------------------------------------------------------------------------------------
def page(summary: Summary) -> str:
    """Return the whole of ``table2_search.md``."""
    tried = len(next(iter(summary["grids"].values()), []))
    subsets = "; ".join(
        f"{count} evenly spaced images of {dataset_title(name)}" for name, count in summary["images"].items()
    )
    parts = [
        f"# {summary['title']}",
        f"Every method tried the same number of settings: {tried}, each with the seed "
        f"{', '.join(map(str, summary['seeds']))}, which no run of the table uses. {summary['rule']} The best of them "
        f"run again with other seeds, which decide ([finals](table2_finals.md)). The search used {subsets}, and the "
        f"other collections whole. `table2_search.json` holds all {len(summary['trials'])} scores.",
        "## All settings",
        "Mean of accuracy and NMI, in percent; those that run again are bold.",
    ]
    for method, title in summary["methods"].items():
        parts += [f"### {title}", _grid_table(summary, method)]
    return join_parts(parts)


def list_changes(changes: Mapping[str, Any]) -> str:
    """Return settings as text.

    >>> list_changes({"scale": "unit", "n_starts": 1})
    'scale unit, n_starts 1'
    """
    return ", ".join(f"{name} {value}" for name, value in changes.items())


def _grid_table(summary: Summary, method: str) -> str:
    finalists = summary["finalists"].get(method, {})
    scores: dict[tuple[int, str], list[float]] = defaultdict(list)
    for entry in summary["trials"]:
        if entry["method"] == method:
            scores[entry["setting"], entry["dataset"]].append((entry["accuracy"] + entry["nmi"]) / 2)
    best = {name: {ranked["setting"] for ranked in settings} for name, settings in finalists.items()}
    body = []
    for place, changes in enumerate(summary["grids"][method]):
        cells = [f"{statistics.mean(scores[place, name]):.1f}" if scores[place, name] else "" for name in finalists]
        marked = [f"**{cell}**" if place in best[name] else cell for cell, name in zip(cells, finalists, strict=True)]
        body.append([str(place), list_changes(changes), *marked])
    return markdown_table(["place", "settings", *map(dataset_title, finalists)], body)


# --- files -----------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``table2_search.json``, with one trial a line, and ``table2_search.md``; return the paths."""
    summary = summarise(records)
    return write_log("table2_search", summary, page(summary), folder)


def write_log(name: str, summary: Mapping[str, Any], text: str, folder: Path) -> list[Path]:
    """Write a JSON file with one trial a line, and its page; return the paths."""
    head = json.dumps({**summary, "trials": []}, indent=1)
    trials = ",\n".join(f"  {json.dumps(entry)}" for entry in summary["trials"])
    log = head.replace('"trials": []', f'"trials": [\n{trials}\n ]') + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.json", folder / f"{name}.md"]
    for path, content in zip(paths, (log, text), strict=True):
        with atomic_write(path, "w", encoding="utf-8") as file:
            file.write(content)
    return paths
