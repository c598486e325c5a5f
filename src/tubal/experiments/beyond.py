"""Beyond the paper: the default preset of ImageClusterer against common alternatives, with its ablation.

Every collection uses the same settings. Labels are used for the scores only.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from tubal.experiments import table2
from tubal.experiments.methods import (
    ablated_graph,
    codes_on_deformable_graph,
    default_preset,
    graph_without_codes,
    normalize_images,
    spectral_on_deformable_graph,
    spectral_on_pixels,
)
from tubal.experiments.pages import (
    dataset_title,
    join_parts,
    list_versions,
    markdown_table,
    measured_note,
    write_summary,
)
from tubal.experiments.tables import (
    SCORES,
    CellCost,
    Method,
    Record,
    ScoreCell,
    Settings,
    Trial,
    cell_cost,
    read_toml,
    score_cell,
)

TITLE = "Beyond the paper: neighbours under small deformations, codes, and both together"
DATASETS = ("coil20", "usps", "orl", "yale", "digits")
EXTRA_DATASETS: tuple[str, ...] = ()

METHODS: Mapping[str, Method] = {
    "kmeans": table2.METHODS["kmeans"],
    "umap": table2.METHODS["umap"],
    "spectral": Method("Spectral, Euclidean graph", spectral_on_pixels, table2.METHODS["spectral"].settings),
    "spectral-deformable": Method("Spectral, deformable graph", spectral_on_deformable_graph, ("n_neighbors",)),
    "gtsc": Method("GTSC on the deformable graph + K-means", codes_on_deformable_graph, ("n_neighbors",)),
    "graph-alone": Method("Default without codes", graph_without_codes, ("n_neighbors",)),
    "default": Method("Default preset", default_preset, ("n_neighbors",)),
}
_SETTINGS: Settings = {
    "scale": "unit",
    "n_starts": 10,
    "cut": "cluster_qr",
    "n_neighbors": 5,
    "umap_neighbors": 10,
    "umap_dimensions": 10,
    "umap_min_dist": 0.0,
}
# What is changed in the default preset, one thing at a time; q is the number of neighbours.
_ESTIMATED = "number of clusters estimated"
ABLATION: Mapping[str, Settings] = {
    "no affine bank": {"deformation": "no affine bank"},
    "no local warp": {"deformation": "no local warp"},
    "no affine bank, no local warp": {"deformation": "neither"},
    "pixels instead of gradients": {"deformation": "pixels"},
    "Euclidean graph": {"graph": "euclidean"},
    "edges weighted by codes": {"code_power": 4.0},
    **{f"q = {q}": {"n_neighbors": q} for q in (2, 3, 4, 6, 8, 10)},
    **{f"graph weight {weight:g}": {"graph_weight": weight} for weight in (0.1, 1.0, 100.0)},
    _ESTIMATED: {"estimate": True},
}


class Cell(CellCost):
    """One method, or one row of the ablation, on one collection; ``n_clusters`` is a mean over the runs."""

    accuracy: ScoreCell
    nmi: ScoreCell
    n_clusters: float | None


Rows = dict[str, dict[str, Cell]]  # by method or ablation, then by collection


class Summary(TypedDict):
    """The content of ``beyond.json``."""

    title: str
    datasets: list[str]
    methods: dict[str, str]
    table: Rows
    ablation: Rows
    codes: dict[str, dict[str, Any]]
    published: dict[str, list[dict[str, Any]]]
    jobs: int
    versions: dict[str, str]
    data_sha256: dict[str, str]
    purity: NotRequired[dict[str, dict[str, dict[str, float]]]]
    measured: NotRequired[str]


# --- the plan --------------------------------------------------------------------------------------------------
def settings_for(method: str, row: str = "table") -> dict[str, Any]:
    """Return every setting that a method reads, the same for every collection.

    >>> settings_for("default", "q = 3")
    {'n_neighbors': 3}
    """
    merged = {name: _SETTINGS[name] for name in METHODS[method].settings if name in _SETTINGS}
    return merged if row == "table" else merged | dict(ABLATION[row])


def plan(datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False) -> list[Trial]:
    """Return the trials: every method ``runs`` times, every ablation a fifth as often; ``sweep`` adds nothing."""
    trials = [
        Trial(table="beyond", dataset=dataset, method=method, row="table", run=run, settings=settings_for(method))
        for run in range(runs)
        for dataset in datasets
        for method in methods
    ]
    if "default" in methods:
        trials += [
            Trial(
                table="beyond",
                dataset=dataset,
                method="default",
                row=row,
                run=run,
                settings=settings_for("default", row),
            )
            for run in range(max(1, runs // 5))
            for row in ABLATION
            for dataset in datasets
        ]
    return trials


# --- the summary -----------------------------------------------------------------------------------------------
Groups = Mapping[tuple[str, str, str], Sequence[Record]]  # by row, method and collection


def summarise(records: Sequence[Record]) -> Summary:
    """Return the content of ``beyond.json``, apart from the purity of the neighbours."""
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["row"], record["method"], record["dataset"]].append(record)
    datasets = [name for name in DATASETS if any(record["dataset"] == name for record in records)]

    def cells(row: str, method: str) -> dict[str, Cell]:
        return {name: _cell(groups[row, method, name]) for name in datasets if groups[row, method, name]}

    return {
        "title": "Beyond the paper",
        "datasets": datasets,
        "methods": {name: method.title for name, method in METHODS.items()},
        "table": {name: found for name in METHODS if (found := cells("table", name))},
        "ablation": {row: found for row in ABLATION if (found := cells(row, "default"))},
        "codes": {name: gain for name in datasets if (gain := codes_gain(groups, name))},
        "published": {name: found for name, found in read_toml("published.toml").items() if name in datasets},
        "jobs": max((record.get("jobs", 1) for record in records), default=1),
        "versions": records[-1]["versions"] if records else {},
        "data_sha256": {record["dataset"]: record["data_sha256"] for record in records},
    }


def _cell(group: Sequence[Record]) -> Cell:
    counts = [record["details"]["n_clusters"] for record in group if "n_clusters" in record["details"]]
    return {
        "accuracy": score_cell([record["accuracy"] for record in group]),
        "nmi": score_cell([record["nmi"] for record in group]),
        "n_clusters": statistics.mean(counts) if counts else None,
        **cell_cost(group),
    }


_NO_GAIN = "no measurable gain"


def codes_gain(groups: Groups, dataset: str) -> dict[str, Any]:
    """Return what codes add to the graph: for each score the mean difference, its standard error and a verdict.

    Runs are paired by seed. A difference counts when it exceeds two standard errors.
    """
    with_codes, without = (
        {record["seed"]: record for record in groups[("table", method, dataset)]}
        for method in ("default", "graph-alone")
    )
    seeds = sorted(set(with_codes) & set(without))
    if len(seeds) < 2:
        return {}
    found: dict[str, Any] = {"runs": len(seeds)}
    for score in SCORES:
        gaps = [with_codes[seed][score] - without[seed][score] for seed in seeds]
        mean, error = statistics.mean(gaps), statistics.stdev(gaps) / math.sqrt(len(gaps))
        found[score] = {
            "mean": round(mean, 3),
            "standard_error": round(error, 3),
            "verdict": _gain_text(mean, error),
        }
    return found


def _gain_text(mean: float, error: float) -> str:
    if abs(mean) <= 2 * error or mean == 0.0:
        return _NO_GAIN
    return "gain" if mean > 0.0 else "loss"


def neighbor_purity(datasets: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Return, per collection and graph, the percentage of an image's 3 and 5 neighbours that share its label."""
    from tubal.datasets import fetch
    from tubal.graph import knn_graph

    found = {}
    for name in datasets:
        bunch = fetch(name)
        graphs = {
            "Euclidean": knn_graph(normalize_images(bunch.images, "unit"), 5),
            "deformable": ablated_graph(bunch.images, 5),
        }
        same_label = {
            title: bunch.target[np.asarray(graph.neighbors)] == bunch.target[:, None] for title, graph in graphs.items()
        }
        found[name] = {
            title: {
                **{str(q): round(100.0 * float(same_label[title][:, :q].mean()), 2) for q in (3, 5)},
                "max_in_degree": graph.max_in_degree,
            }
            for title, graph in graphs.items()
        }
    return found


# --- the page --------------------------------------------------------------------------------------------------
# An estimated number of clusters is right when it is within this share of the number of classes.
_CLOSE = 0.15


def page(summary: Summary) -> str:
    """Return the whole of ``beyond.md``."""
    parts = [
        "# Beyond the paper",
        "Accuracy / NMI in percent (NMI normalised by the larger entropy), mean ± standard deviation of the runs. "
        "Every collection uses the same settings. The second line of a cell is the mean time from images to labels, "
        "with " + _parallel_trials(summary),
        measured_note(summary, "the cut, the graph and the views of that day"),
        "No label is read to find clusters, but the parameters of the graph (its deformations, context and neighbours) "
        "were chosen while looking at scores on these four collections. So these are not scores of unseen images; "
        "`tubal reproduce --table protocol` is for such images. A label-free [criterion](criterion.md) judged the "
        "settings afterwards: over all collections it keeps every default, and on digits and shapes alone it rejects "
        "two of them.",
        _score_table(summary, summary["table"], "method", summary["methods"]),
        "## What codes add to the graph",
        "The default preset minus the same pipeline without codes, paired by seed, ± standard error. A difference of "
        f"up to two standard errors counts as *{_NO_GAIN}*.",
        _codes_table(summary),
        "## Ablation of the default preset",
        "One thing is changed at a time, with fewer runs than above. The default uses q = 5 neighbours and graph "
        "weight 10. *Default without codes* in the first table is the graph alone.",
        _score_table(summary, _ablation_rows(summary), "change", {}),
        "## Estimated number of clusters",
        "With `n_clusters=None`. An estimate is right when it is within 15 % of the number of classes.",
        _estimate_table(summary),
        "## Neighbours",
        "Percentage of an image's 3 and 5 nearest neighbours that share its label, and the largest number of images "
        "that have the same image as a neighbour.",
        _purity_table(summary),
        "## Neighbours and errors, seen",
        _figure_list(summary),
        "## Scores published elsewhere",
        _published_table(summary),
        "## How it was made",
        _provenance(summary),
    ]
    return join_parts(parts)


def _figure_list(summary: Summary) -> str:
    """Return the figures of every collection with what to see in them."""
    texts = {
        "neighbours": "images, their nearest neighbours, and these after the rotation, scale and shift that the graph "
        "found; the motion grows from left to right",
        "errors": "wrong images, most confident first, each above its nearest neighbour and the most typical image of "
        "its cluster",
    }
    figures = [
        (f"{dataset_title(name)}: {text}.", f"figures/beyond-{name}-{kind}.png")
        for name in summary["datasets"]
        for kind, text in texts.items()
    ]
    return "\n\n".join(f"{text}\n\n![{text}]({path})" for text, path in figures)


def short_page(summary: Summary) -> str:
    """Return the scores, what codes add, and the estimated numbers of clusters."""
    parts = [
        "Accuracy / NMI in percent, mean ± standard deviation of the runs (NMI normalised by the larger entropy).",
        _score_table(summary, summary["table"], "method", summary["methods"], seconds=False),
        "What codes add to the graph alone, ± standard error. A difference of up to two standard errors counts as "
        f"*{_NO_GAIN}*:",
        _codes_table(summary),
        "Number of clusters, estimated with `n_clusters=None`:",
        _estimate_table(summary),
    ]
    return join_parts(parts).rstrip("\n")


def _parallel_trials(summary: Summary) -> str:
    if summary["jobs"] == 1:
        return "one trial at a time on all cores."
    return f"{summary['jobs']} trials at a time, each on its share of the cores, which is slower than one trial alone."


def _score_table(summary: Summary, rows: Rows, head: str, titles: Mapping[str, str], *, seconds: bool = True) -> str:
    body = []
    for row, cells in rows.items():
        entries = [_cell_text(cells[name], seconds) if name in cells else "" for name in summary["datasets"]]
        body.append([titles.get(row, row), *entries])
    return markdown_table([head, *summary["datasets"]], body) if body else ""


def _cell_text(cell: Cell, seconds: bool) -> str:
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
    return markdown_table(["collection", "accuracy", "NMI", "verdict (accuracy / NMI)"], body) if body else ""


def _ablation_rows(summary: Summary) -> Rows:
    """Return the rows of the ablation: first the default, if it was run, then one row for each change."""
    unchanged = summary["table"].get("default")
    return {**({"nothing (the default)": unchanged} if unchanged else {}), **summary["ablation"]}


def _estimate_table(summary: Summary) -> str:
    given = summary["table"].get("default", {})
    body = []
    for name, cell in summary["ablation"].get(_ESTIMATED, {}).items():
        classes = given[name]["n_clusters"] if name in given else None
        found = cell["n_clusters"]
        if classes and found is not None:
            error = (found - classes) / classes
            verdict = "right" if abs(error) <= _CLOSE else "**wrong**"
            body.append([name, f"{classes:.0f}", f"{found:.1f}", f"{100 * error:+.0f} %", verdict])
    head = ["collection", "classes", "estimated", "difference", f"within {100 * _CLOSE:.0f} %"]
    return markdown_table(head, body) if body else ""


def _purity_table(summary: Summary) -> str:
    body = [
        [name, title, f"{values['3']:.1f}", f"{values['5']:.1f}", str(values["max_in_degree"])]
        for name, graphs in summary.get("purity", {}).items()
        for title, values in graphs.items()
    ]
    head = ["collection", "graph", "3 neighbours", "5 neighbours", "largest in-degree"]
    return markdown_table(head, body) if body else ""


def _published_table(summary: Summary) -> str:
    body = []
    for name, entries in summary["published"].items():
        for entry in entries:
            scores = " / ".join(str(entry.get(score, "–")) for score in SCORES)
            note = f" ({entry['note']})" if "note" in entry else ""
            body.append([name, entry["method"], scores, entry["source"] + note])
    return markdown_table(["collection", "method", "accuracy / NMI", "source"], body) if body else ""


def _provenance(summary: Summary) -> str:
    hashes = "; ".join(f"{name} {digest[:16]}" for name, digest in summary["data_sha256"].items())
    return (
        f"By `tubal reproduce --table beyond`; run i uses seed i. Versions: {list_versions(summary['versions'])}. "
        f"First digits of the data's SHA-256: {hashes}."
    )


# --- files -----------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``beyond.json``, ``beyond.md`` and the figures; return the paths."""
    summary = summarise(records)
    summary["purity"] = neighbor_purity(summary["datasets"])
    summary["measured"] = date.today().isoformat()
    paths = write_summary("beyond", summary, page(summary), folder)
    if figures:
        from tubal.experiments.pages import draw_beyond

        paths += draw_beyond(summary["datasets"], folder / "figures")
    return paths
