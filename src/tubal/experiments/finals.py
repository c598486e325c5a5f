"""The second stage of the search behind Table 2: the best settings of the first stage, with seeds of their own.

The first stage ranks settings by one run each, so its best one is partly lucky. Here the best few of every method and
collection (``finalists.toml``) run with other seeds, and the mean over these decides. ``best_score.toml`` holds what
was selected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from tubal.experiments import search
from tubal.experiments.pages import dataset_title, join_parts, markdown_table
from tubal.experiments.search import Entry, Ranking, list_changes, log_entries, ranking
from tubal.experiments.tables import Record, Trial, read_toml

TITLE = "The second stage of the search for Table 2"
DATASETS, EXTRA_DATASETS, METHODS = search.DATASETS, search.EXTRA_DATASETS, search.METHODS


class Summary(TypedDict):
    """The content of ``table2_finals.json``."""

    title: str
    seeds: list[int]
    methods: dict[str, str]
    ranking: Ranking
    trials: list[Entry]


def plan(datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False) -> list[Trial]:
    """Return the trials of all finalists, with at most ``runs`` of the seeds."""
    chosen = read_toml("finalists.toml")
    missing = [f"{method} on {dataset}" for method in methods for dataset in datasets if dataset not in chosen[method]]
    if missing:
        raise ValueError(f"there are no finalists of {missing[0]}; run python -m tools.best_score_search finalists")
    return [
        Trial(table="finals", dataset=dataset, method=method, row="finals", run=seed, settings=settings)
        for seed in read_toml("settings.toml")["search"]["final_seeds"][:runs]
        for dataset in datasets
        for method in methods
        for settings in search.fits(method, dataset, [search.grid(method)[place] for place in chosen[method][dataset]])
    ]


def summarise(records: Sequence[Record]) -> Summary:
    """Return the content of ``table2_finals.json``.

    One fit of a coder gives scores of two kinds of features, of which one may not be among the finalists.
    """
    chosen = read_toml("finalists.toml")
    entries = [
        entry
        for record in records
        for entry in log_entries(record)
        if entry["setting"] in chosen[entry["method"]][entry["dataset"]]
    ]
    entries.sort(key=lambda entry: (entry["dataset"], entry["method"], entry["setting"], entry["seed"]))
    ranked = ranking(entries)
    return {
        "title": TITLE,
        "seeds": sorted({entry["seed"] for entry in entries}),
        "methods": {name: METHODS[name].title for name in ranked},
        "ranking": ranked,
        "trials": entries,
    }


def finalists_toml(finalists: Ranking) -> str:
    """Return the text of ``finalists.toml``: places in the grid of each method, best first.

    >>> print(finalists_toml({"kmeans": {"orl": [{"setting": 3}, {"setting": 1}]}}).splitlines()[-1])
    orl = [3, 1]
    """
    lines = ["# Written by `python -m tools.best_score_search finalists` from results/table2_search.json."]
    for method, cells in finalists.items():
        lines += ["", f"[{method}]"]
        lines += [f"{name} = {[ranked['setting'] for ranked in settings]}" for name, settings in cells.items()]
    return "\n".join(lines) + "\n"


def selected_toml(ranked: Ranking) -> str:
    """Return the text of ``best_score.toml``: the best setting of each method and collection.

    >>> best = {"changes": {"scale": "unit", "n_starts": 1}}
    >>> print(selected_toml({"kmeans": {"orl": [best]}}).splitlines()[-1])
    orl = { scale = "unit", n_starts = 1 }
    """
    lines = ["# Written by `python -m tools.best_score_search selected` from results/table2_finals.json."]
    for method, cells in ranked.items():
        lines += ["", f"[{method}]"]
        for dataset, settings in cells.items():
            # JSON texts, whole numbers and decimal fractions are valid TOML.
            pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in settings[0]["changes"].items())
            lines.append(f"{dataset} = {{ {pairs} }}")
    return "\n".join(lines) + "\n"


def page(summary: Summary) -> str:
    """Return the whole of ``table2_finals.md``."""
    parts = [
        f"# {summary['title']}",
        f"The best {read_toml('settings.toml')['search']['finalists']} settings of every method in the [first "
        f"stage](table2_search.md) run again with the seeds {', '.join(map(str, summary['seeds']))}, which neither the "
        f"first stage nor the table uses. {search.RULE} The first one is selected. `table2_finals.json` holds all "
        f"{len(summary['trials'])} scores.",
        "Accuracy / NMI in percent, best first; the place in the grid is in brackets.",
    ]
    for method, cells in summary["ranking"].items():
        parts += [f"## {summary['methods'][method]}", _table(cells)]
    return join_parts(parts)


def _table(cells: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    body = [
        [
            dataset_title(name),
            f"{ranked['accuracy']:.1f} / {ranked['nmi']:.1f} ({ranked['setting']})",
            list_changes(ranked["changes"]),
        ]
        for name, settings in cells.items()
        for ranked in settings
    ]
    return markdown_table(["collection", "accuracy / NMI", "settings"], body)


def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``table2_finals.json``, with one trial a line, and ``table2_finals.md``; return the paths."""
    summary = summarise(records)
    return search.write_log("table2_finals", summary, page(summary), folder)
