"""Table 2 of the paper: five methods and two a user would pick instead, on four collections."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from tubal.experiments import sweep as sweeps
from tubal.experiments.models import METHODS
from tubal.experiments.paper import load_paper, read_toml
from tubal.experiments.trials import Record, Trial

__all__ = [
    "DATASETS",
    "EXTRA_DATASETS",
    "METHODS",
    "ROWS",
    "TITLE",
    "plan",
    "settings_for",
    "update_readme",
    "write",
]

TITLE = "Table 2: clustering four image collections"
DATASETS = tuple(load_paper().collections)
EXTRA_DATASETS = ("digits",)
ROWS = ("label-free", "best-score")


def settings_for(row: str, method: str, dataset: str) -> dict[str, Any]:
    """Return every setting the method reads for this row and collection.

    >>> settings_for("label-free", "kmeans", "orl")
    {'n_starts': 10, 'scale': 'unit'}
    """
    paper, content = load_paper(), _settings()
    shape = paper.collections.get(dataset, paper["usps"])  # the digits are closest to USPS
    one_column = "pca_variance" in METHODS[method].settings
    merged: dict[str, Any] = {
        "graph_weight": paper.graph_weight,
        "n_neighbors": paper.n_neighbors,
        "pca_variance": paper.pca_variance,
        "n_atoms": shape.n_vector_atoms if one_column else shape.n_atoms,
        **content["label-free"],
    }
    if row == "best-score":
        chosen = content["best-score"].get(method, {}).get(dataset, {})
        if "sparsity" in chosen:
            del merged["sparsity_fraction"]
        merged.update(chosen)
    return {name: merged[name] for name in sorted(METHODS[method].settings) if name in merged}


@cache
def _settings() -> dict[str, Any]:
    return read_toml("settings.toml")


def plan(datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False) -> list[Trial]:
    """Return the trials of the table, run by run so that an early look shows every cell.

    Where no setting beat the label-free ones, the best-score row repeats their trials instead of running them
    again; :func:`write` sees to that.
    """
    trials = [
        Trial("2", dataset, method, row, run, settings_for(row, method, dataset))
        for run in range(runs)
        for dataset in datasets
        for row in ROWS
        for method in methods
        # Only the paper's collections have settings chosen by score.
        if row == "label-free" or (dataset in DATASETS and not _same_settings(method, dataset))
    ]
    if sweep:
        cells = product(datasets, methods)
        starts = {(dataset, method): settings_for("label-free", method, dataset) for dataset, method in cells}
        trials += sweeps.plan(starts, runs)
    return trials


def _same_settings(method: str, dataset: str) -> bool:
    return settings_for("label-free", method, dataset) == settings_for("best-score", method, dataset)


def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``table2.json``, ``table2.md``, the sweeps if any, and the figures; return the paths."""
    from tubal.experiments import tables

    shared = [
        {**record, "row": "best-score"}
        for record in records
        if record["row"] == "label-free"
        and record["dataset"] in DATASETS
        and _same_settings(record["method"], record["dataset"])
    ]
    rows = [record for record in [*records, *shared] if record["row"] in ROWS]
    summary = tables.summarise(rows, METHODS)
    paths = tables.write(summary, folder)
    curves = sweeps.summarise(records)
    if curves:
        paths += sweeps.write(curves, folder)
    if figures:
        from tubal.experiments.figures import draw_all

        paths += draw_all(summary, curves, folder / "figures")
    return paths


def update_readme(readme: Path, folder: Path) -> None:
    """Put the block generated from ``folder/table2.json`` between the markers of the README."""
    from tubal.experiments.markdown import readme_block
    from tubal.experiments.pages import replace_block

    replace_block(readme, "table2", readme_block(json.loads((folder / "table2.json").read_text(encoding="utf-8"))))
