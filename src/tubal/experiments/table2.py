"""Table 2 of the paper: its five methods, TenSR, CSC and two common alternatives, on four collections.

There are two kinds of rows. *Label-free* rows use one rule for every method and collection (``settings.toml``).
*Best-score* rows use settings that were chosen per collection by looking at the score. The two are never mixed.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tubal.experiments.methods import (
    atom_pictures,
    evenly_spaced,
    fit_sparse_coder,
    kmeans_on_pixels,
    sparse_coder,
    spectral_on_pixels,
    umap_and_kmeans,
)
from tubal.experiments.pages import SCORE_NAMES, dataset_title, join_parts, list_versions, markdown_table, write_summary
from tubal.experiments.tables import (
    SCORES,
    CellCost,
    Method,
    Record,
    Score,
    ScoreCell,
    Trial,
    cell_cost,
    load_paper,
    read_toml,
    score_cell,
)
from tubal.text import count

if TYPE_CHECKING:
    from tubal.experiments.pages import LearnedAtoms

TITLE = "Table 2: clustering four image collections"
DATASETS = tuple(load_paper().collections)
EXTRA_DATASETS = ("digits",)
ROWS = ("label-free", "best-score")
# The figures of atoms and convergence use at most so many evenly spaced images of a collection.
FIGURE_IMAGES = 400
# Final codes are certified to a thousandth; tables compute the gap again, in single precision.
CERTIFIED = 1.001e-3
# The orderings that the paper claims, better method first.
CLAIMS = (("gtsc", "tubsc"), ("tubsc", "sc"), ("gtsc", "graphsc"), ("graphsc", "sc"))

_CODER = (
    *("scale", "features", "sparsity_fraction", "init", "max_iter", "tol"),
    *("n_starts", "n_atoms"),
)
_GRAPH = ("graph_weight", "n_neighbors")

METHODS: Mapping[str, Method] = {
    "kmeans": Method("K-means", kmeans_on_pixels, ("scale", "n_starts", "start", "kmeans_pca")),
    "sc": Method("SC", sparse_coder("sc"), (*_CODER, "pca_variance")),
    "graphsc": Method("GraphSC", sparse_coder("graphsc"), (*_CODER, *_GRAPH, "pca_variance")),
    "tensr": Method("TenSR", sparse_coder("tensr"), _CODER),
    "csc": Method("CSC", sparse_coder("csc"), (*_CODER, "filter_shape", "subset")),
    "tubsc": Method("TubSC", sparse_coder("tubsc"), _CODER),
    "gtsc": Method("GTSC", sparse_coder("gtsc"), (*_CODER, *_GRAPH)),
    "spectral": Method("Spectral", spectral_on_pixels, ("scale", "cut", "n_neighbors")),
    "umap": Method(
        "UMAP + K-means",
        umap_and_kmeans,
        ("scale", "n_starts", "umap_neighbors", "umap_dimensions", "umap_min_dist"),
        requires="umap",
        hint="pip install umap-learn",
    ),
}


# Methods whose settings were also chosen by score; the others have label-free rows only.
SEARCHED = tuple(name for name in METHODS if name != "csc")


class PrintedScoreCell(ScoreCell):
    """One score of a cell; ``printed`` is the paper's value and ``difference`` the mean minus it."""

    printed: float | None
    difference: float | None


class Certificate(TypedDict):
    """What the final codes of a cell's runs satisfy; ``codes`` is the number of coefficients stored per image.

    ``gap`` is the largest relative duality gap of the runs, ``converged`` the share of runs whose alternations
    converged; ``density`` (share of non-zeros) and ``n_iter`` are means.
    """

    gap: float
    density: float
    codes: float
    n_iter: float
    converged: float


class Cell(CellCost):
    """One method on one collection; methods without codes have no certificate."""

    accuracy: PrintedScoreCell
    nmi: PrintedScoreCell
    certificate: Certificate | None


Cells = dict[str, dict[str, Cell]]  # by method, then by collection


class Claim(TypedDict):
    """One claimed ordering, checked on the mean over the collections."""

    better: str
    worse: str
    score: Score
    difference: float
    holds: bool
    fails_on: list[str]


class Targets(TypedDict):
    """How many printed GTSC figures the best-score GTSC reaches, and which ones."""

    figures: int
    mean_at_or_above: list[str]
    best_at_or_above: list[str]


class Environment(TypedDict):
    """How many trials ran with these versions, how many of them at a time, and their summed time divided by that."""

    trials: int
    jobs: int
    minutes: float
    versions: dict[str, str]


class Summary(TypedDict):
    """The content of ``table2.json``."""

    title: str
    datasets: list[str]
    methods: dict[str, str]
    rows: dict[str, Cells]
    averages: dict[str, dict[str, dict[Score, dict[str, float | None]]]]
    ordering: dict[str, list[Claim]]
    targets: Targets
    worse_than_label_free: list[dict[str, str]]
    environments: list[Environment]
    data_sha256: dict[str, str]


# --- the plan --------------------------------------------------------------------------------------------------
def settings_for(row: str, method: str, dataset: str) -> dict[str, Any]:
    """Return every setting that the method reads for this row and collection.

    >>> settings_for("label-free", "kmeans", "orl")
    {'kmeans_pca': 1.0, 'n_starts': 10, 'scale': 'unit', 'start': 'k-means++'}
    """
    paper, free = load_paper(), read_toml("settings.toml")["label-free"]
    collection = paper.collections.get(dataset, paper["usps"])  # the digits are closest to USPS
    without_shifts = "pca_variance" in METHODS[method].settings
    merged: dict[str, Any] = {
        "graph_weight": paper.graph_weight,
        "n_neighbors": paper.n_neighbors,
        "pca_variance": paper.pca_variance,
        "n_atoms": collection.n_vector_atoms if without_shifts else collection.n_atoms,
        **free,
    }
    if method == "tensr":
        merged["n_atoms"] = free["separable_atoms"]
    if method == "csc":
        merged["n_atoms"] = free["filters"]
        n_images = read_toml("settings.toml")["csc"]["images"].get(dataset)
        merged |= {} if n_images is None else {"subset": n_images}
    if row == "best-score":
        merged.update(read_toml("best_score.toml").get(method, {}).get(dataset, {}))
    return {name: merged[name] for name in sorted(METHODS[method].settings) if name in merged}


def plan(datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False) -> list[Trial]:
    """Return the trials of the table, run by run, so that a partial run already fills every cell.

    Where the best-score settings equal the label-free ones, the trials are planned once; :func:`write` uses their
    records for both rows.
    """
    fewer = read_toml("settings.toml")["csc"]["runs"]
    return [
        Trial(table="2", dataset=dataset, method=method, row=row, run=run, settings=settings_for(row, method, dataset))
        for run in range(runs)
        for dataset in datasets
        for row in ROWS
        for method in methods
        if (method != "csc" or run < fewer)
        and (row == "label-free" or (_has_best_score(method, dataset) and not _same_settings(method, dataset)))
    ]


def _has_best_score(method: str, dataset: str) -> bool:
    """Tell whether settings of a method were chosen by score; only those of the paper's collections were."""
    return method in SEARCHED and dataset in DATASETS


def _same_settings(method: str, dataset: str) -> bool:
    return settings_for("label-free", method, dataset) == settings_for("best-score", method, dataset)


# --- the summary -----------------------------------------------------------------------------------------------
def summarise(records: Sequence[Record]) -> Summary:
    """Return the content of ``table2.json``: ``summary["rows"][row][method][dataset]`` is a cell."""
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["row"], record["method"], record["dataset"]].append(record)
    present = {record["dataset"] for record in records}
    datasets = [name for name in (*DATASETS, *EXTRA_DATASETS) if name in present]
    rows: dict[str, Cells] = {}
    for row, method, dataset in product(ROWS, METHODS, datasets):
        if group := groups.get((row, method, dataset)):
            rows.setdefault(row, {}).setdefault(method, {})[dataset] = _cell(group)
    worse = _worse_than_label_free(rows)
    for cell in worse:
        rows["best-score"][cell["method"]][cell["dataset"]] = rows["label-free"][cell["method"]][cell["dataset"]]
    return {
        "title": "Table 2",
        "datasets": datasets,
        "methods": {name: method.title for name, method in METHODS.items()},
        "rows": rows,
        "averages": {row: _method_averages(cells) for row, cells in rows.items()},
        "ordering": {row: _check_claims(cells) for row, cells in rows.items()},
        "targets": _targets(rows.get("best-score", {}).get("gtsc", {})),
        "worse_than_label_free": worse,
        "environments": _environments(records),
        "data_sha256": {record["dataset"]: record["data_sha256"] for record in records},
    }


def _cell(group: Sequence[Record]) -> Cell:
    collection = load_paper().collections.get(group[0]["dataset"])
    printed = collection.printed.get(group[0]["method"], {}) if collection else {}
    scores = {score: _compare([record[score] for record in group], printed.get(score)) for score in SCORES}
    return {
        "accuracy": scores["accuracy"],
        "nmi": scores["nmi"],
        "certificate": _certificate(group),
        **cell_cost(group),
    }


def _certificate(group: Sequence[Record]) -> Certificate | None:
    details = [record["details"] for record in group]
    if any("gap" not in entry for entry in details):
        return None
    mean = {name: statistics.mean(entry[name] for entry in details) for name in ("density", "codes", "n_iter")}
    return {
        "gap": max(entry["gap"] for entry in details),
        "density": round(mean["density"], 5),
        "codes": round(mean["codes"], 1),
        "n_iter": round(mean["n_iter"], 1),
        "converged": statistics.mean(entry["converged"] for entry in details),
    }


def _compare(scores: Sequence[float], printed: float | None) -> PrintedScoreCell:
    """Return a score beside the printed one, if there is one."""
    difference = None if printed is None else round(statistics.mean(scores) - printed, 2)
    return {**score_cell(scores), "printed": printed, "difference": difference}


def _method_averages(cells: Cells) -> dict[str, dict[Score, dict[str, float | None]]]:
    """Return means over the paper's collections, for the methods measured on all of them."""
    paper = load_paper()
    averages: dict[str, dict[Score, dict[str, float | None]]] = {}
    for method, by_dataset in cells.items():
        if not set(DATASETS) <= set(by_dataset):
            continue
        averages[method] = {}
        for score in SCORES:
            mean = statistics.mean(by_dataset[dataset][score]["mean"] for dataset in DATASETS)
            printed = paper.average.get(method, {}).get(score)
            difference = None if printed is None else round(mean - printed, 2)
            averages[method][score] = {"mean": round(mean, 2), "printed": printed, "difference": difference}
    return averages


def _check_claims(cells: Cells) -> list[Claim]:
    """Check each claimed ordering on the mean over the collections, and name the collections where it fails."""
    checks: list[Claim] = []
    for better, worse in CLAIMS:
        shared = [dataset for dataset in cells.get(better, {}) if dataset in cells.get(worse, {})]
        shared = [dataset for dataset in shared if dataset in DATASETS]
        for score in SCORES if shared else ():
            gaps = {name: cells[better][name][score]["mean"] - cells[worse][name][score]["mean"] for name in shared}
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


def _targets(cells: Mapping[str, Cell]) -> Targets:
    figures = [(f"{dataset} {score}", cell[score]) for dataset, cell in cells.items() for score in SCORES]
    printed = [(name, values, values["printed"]) for name, values in figures if values["printed"] is not None]
    return {
        "figures": len(printed),
        "mean_at_or_above": [name for name, values, target in printed if values["mean"] >= target],
        "best_at_or_above": [name for name, values, target in printed if values["best"] >= target],
    }


def _worse_than_label_free(rows: Mapping[str, Cells]) -> list[dict[str, str]]:
    """Name the cells whose selected settings do worse over all runs than the label-free ones: a search can be lucky."""
    free, best = rows.get("label-free", {}), rows.get("best-score", {})
    return [
        {"method": method, "dataset": dataset}
        for method, cells in best.items()
        for dataset, cell in cells.items()
        if dataset in free.get(method, {})
        and sum(cell[score]["mean"] - free[method][dataset][score]["mean"] for score in SCORES) < 0
    ]


def _environments(records: Sequence[Record]) -> list[Environment]:
    """Return the environments of all trials, each trial counted once though two rows may share it."""
    groups: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for record in records:
        place = json.dumps(record["versions"], sort_keys=True), record.get("jobs", 1)
        groups[place][record["key"]] = record["seconds"]
    return [
        {
            "trials": len(seconds),
            "jobs": jobs,
            "minutes": round(sum(seconds.values()) / jobs / 60, 1),
            "versions": json.loads(versions),
        }
        for (versions, jobs), seconds in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]


# --- the page --------------------------------------------------------------------------------------------------
_SCORE_TITLES: Mapping[Score, str] = {"accuracy": "Accuracy (%)", "nmi": "NMI (%, normalised by the larger entropy)"}
_ROW_TITLES = {
    "label-free": "Label-free: one rule for every method and collection",
    "best-score": "Best score: settings chosen per collection by looking at the score",
}


def page(summary: Summary) -> str:
    """Return the whole of ``table2.md``."""
    parts = [
        "# Table 2",
        "Each cell gives the mean ± standard deviation of the runs, and the best run in brackets. Where the paper "
        "prints a value, the second line gives that value, and in brackets our mean minus it.",
        "Label-free rows follow one rule without labels. Best-score rows use settings selected by score; every method "
        "tried the same number of settings ([search](table2_search.md), [finals](table2_finals.md)), and where the "
        "label-free settings have the larger mean of accuracy and NMI over all runs, the best-score row has those. The "
        "[claims](claims.md) of the paper are checked one by one, and the [atlas](atlas.md) shows how scores depend on "
        "the settings.",
        *_csc_note(summary),
    ]
    for row in summary["rows"]:
        parts.append(f"## {_ROW_TITLES[row]}")
        for score, title in _SCORE_TITLES.items():
            parts += [f"### {title}", _detailed_table(summary, row, score)]
    return join_parts(
        [
            *parts,
            "## Findings",
            "\n".join(_findings(summary)),
            "## Certificates",
            "For each cell: the largest relative duality gap of its runs (final codes lie at most this share above the "
            "minimum), the mean share of non-zero codes and their mean number per image, the mean number of "
            "alternations, and the share of runs whose alternations converged (an alternation lowered the objective by "
            "less than the tolerance) before `max_iter`. K-means, Spectral and UMAP have no codes.",
            _certificate_table(summary),
            "## Score against coding effort",
            "Accuracy when the final codes are stopped early, against certified codes, for every coder. Scores that "
            "only unconverged codes have fall towards the right. The numbers are in the [atlas](atlas.md).",
            "![Accuracy against the number of steps of the final codes](figures/effort.png)",
            "## Scores, atoms and convergence",
            _figure_list(summary),
            "## Cost of a run",
            "Mean seconds from images to labels, and the median memory that a run needed beyond the process with its "
            "libraries and images. Several trials ran at the same time, each with its share of the cores.",
            _cost_table(summary),
            "## Settings",
            _settings_table(summary),
            _provenance(summary),
        ]
    )


def _csc_note(summary: Summary) -> list[str]:
    """Say on how many runs and images the row of CSC rests."""
    cells = summary["rows"].get("label-free", {}).get("csc", {})
    if not cells:
        return [
            "CSC, which the paper does not compare with, is not recorded yet: its certified runs take minutes each."
        ]
    parts = [
        f"{dataset_title(name)} {cell['runs']} {'run' if cell['runs'] == 1 else 'runs'} on "
        f"{cell['settings'].get('subset', 'all')} images"
        for name, cell in cells.items()
    ]
    missing = [dataset_title(name) for name in summary["datasets"] if name not in cells]
    parts += [f"not recorded yet on {' and '.join(missing)}"] if missing else []
    return [
        "CSC codes every filter at every pixel, so a run with certified codes takes up to four minutes. It has "
        "label-free rows only, with fewer runs, and evenly spaced images of some collections: "
        f"{', '.join(parts)}. The paper does not compare with it."
    ]


def short_page(summary: Summary) -> str:
    """Return the tables without details, and the findings."""
    parts = ["Accuracy / NMI in percent, mean ± standard deviation of the runs (NMI normalised by the larger entropy)."]
    for row in summary["rows"]:
        parts += [f"**{_ROW_TITLES[row]}**", _compact_table(summary, row)]
    return "\n\n".join([*parts, "\n".join(_findings(summary))])


def _titles(summary: Summary) -> list[str]:
    return [dataset_title(name) for name in summary["datasets"]]


def _detailed_table(summary: Summary, row: str, score: Score) -> str:
    body = []
    for method, cells in summary["rows"][row].items():
        entries = [_score_text(cells[name], score) if name in cells else "" for name in summary["datasets"]]
        average = summary["averages"][row].get(method)
        entries.append("" if average is None else f"{average[score]['mean']:.2f}{_paper_line(average[score])}")
        body.append([summary["methods"][method], *entries])
    return markdown_table(["method", *_titles(summary), "average"], body)


def _score_text(cell: Cell, score: Score) -> str:
    values = cell[score]
    spread = f" ± {values['sd']:.2f} ({values['best']:.2f})" if cell["runs"] > 1 else ""
    return f"{values['mean']:.2f}{spread}{_paper_line(values)}"


def _paper_line(values: Mapping[str, Any]) -> str:
    if values["printed"] is None:
        return ""
    return f"<br>paper {values['printed']:.2f} ({values['difference']:+.2f})"


def _compact_table(summary: Summary, row: str) -> str:
    body = []
    for method, cells in summary["rows"][row].items():
        entries = [_pair(cells[name]) if name in cells else "" for name in summary["datasets"]]
        body.append([summary["methods"][method], *entries])
    body.append(["*GTSC in the paper*", *(_printed_pair(name) for name in summary["datasets"])])
    return markdown_table(["method", *_titles(summary)], body)


def _pair(cell: Cell) -> str:
    return " / ".join(
        f"{cell[score]['mean']:.1f}" + (f"±{cell[score]['sd']:.1f}" if cell["runs"] > 1 else "") for score in SCORES
    )


def _printed_pair(dataset: str) -> str:
    collections = load_paper().collections
    if dataset not in collections:
        return ""
    printed = collections[dataset].printed["gtsc"]
    return f"*{printed['accuracy']:.2f} / {printed['nmi']:.2f}*"


def _findings(summary: Summary) -> list[str]:
    """Say which of the paper's claims hold and which do not."""
    lines = []
    targets = summary["targets"]
    if targets["figures"]:
        lines.append(
            f"- Best-score GTSC compared with the paper: the mean reaches the printed value in "
            f"{len(targets['mean_at_or_above'])} of {targets['figures']} figures, "
            f"the best run in {len(targets['best_at_or_above'])}."
        )
    lines += [_label_free_difference(summary)] if "gtsc" in summary["rows"].get("label-free", {}) else []
    lines += _cost_finding(summary)
    if summary["worse_than_label_free"]:
        names = ", ".join(
            f"{summary['methods'][cell['method']]} on {dataset_title(cell['dataset'])}"
            for cell in summary["worse_than_label_free"]
        )
        lines.append(
            "- Settings that looked best in the search, but do worse over all runs than the label-free ones, which "
            f"take their place in the best-score rows: {names}."
        )
    lines += _certificate_finding(summary)
    for row, checks in summary["ordering"].items():
        lines += [f"- {row}: {_claim_sentence(summary, check)}" for check in checks]
    return lines


def _certificate_finding(summary: Summary) -> list[str]:
    """Say how many cells have certified codes, and name the others."""
    gaps = {
        f"{summary['methods'][method]} on {dataset_title(name)} ({row})": cell["certificate"]["gap"]
        for row, cells in summary["rows"].items()
        for method, by_dataset in cells.items()
        for name, cell in by_dataset.items()
        if cell["certificate"] is not None
    }
    above = [f"{name} {gap:.1e}" for name, gap in gaps.items() if gap > CERTIFIED]
    if not gaps:
        return []
    rest = f"; the others reached their last step before: {', '.join(above)}" if above else ""
    return [
        f"- The largest gap of all runs is at most a thousandth in {len(gaps) - len(above)} of {len(gaps)} cells{rest}."
    ]


def _cost_finding(summary: Summary) -> list[str]:
    """Compare the time of GTSC with that of GraphSC, which the paper says is longer."""
    cells = summary["rows"].get("label-free", {})
    ratios = {
        name: cells["gtsc"][name]["seconds"] / cells["graphsc"][name]["seconds"]
        for name in summary["datasets"]
        if name in cells.get("gtsc", {}) and name in cells.get("graphsc", {}) and cells["graphsc"][name]["seconds"] > 0
    }
    if not ratios:
        return []
    listed = ", ".join(f"{dataset_title(name)} {ratio:.1f}" for name, ratio in ratios.items())
    verdict = "agrees" if all(ratio < 1 for ratio in ratios.values()) else "does **not** agree"
    return [
        "- The paper says that GTSC costs less than GraphSC. Seconds of a label-free GTSC fit, relative to GraphSC, "
        f"which works on principal components: {listed}; this {verdict}."
    ]


def _label_free_difference(summary: Summary) -> str:
    cells = summary["rows"]["label-free"]["gtsc"]
    parts = [
        f"{dataset_title(name)} {cells[name]['accuracy']['difference']:+.1f} / {cells[name]['nmi']['difference']:+.1f}"
        for name in summary["datasets"]
        if name in cells and cells[name]["accuracy"]["printed"] is not None
    ]
    return f"- Label-free GTSC minus the paper's GTSC (accuracy / NMI): {', '.join(parts) or 'nothing printed'}."


def _claim_sentence(summary: Summary, check: Claim) -> str:
    better, worse = summary["methods"][check["better"]], summary["methods"][check["worse"]]
    verb = "beats" if check["holds"] else "does **not** beat"
    points = f"({check['difference']:+.1f} points)"
    text = f"{better} {verb} {worse} in {SCORE_NAMES[check['score']]} on average {points}"
    if check["fails_on"]:
        text += f"; it is not better on {', '.join(dataset_title(name) for name in check['fails_on'])}"
    return text + "."


def _certificate_table(summary: Summary) -> str:
    body = []
    for row, cells_by_method in summary["rows"].items():
        for method, cells in cells_by_method.items():
            found = [cells[name].get("certificate") if name in cells else None for name in summary["datasets"]]
            if any(found):
                body.append([row, summary["methods"][method], *map(_certificate_text, found)])
    return markdown_table(["row", "method", *_titles(summary)], body)


def _certificate_text(found: Certificate | None) -> str:
    if found is None:
        return ""
    return (
        f"gap {found['gap']:.1e}<br>{100 * found['density']:.1f} %, {found['density'] * found['codes']:.0f} codes<br>"
        f"{found['n_iter']:.1f} alternations, {100 * found['converged']:.0f} % converged"
    )


def _figure_list(summary: Summary) -> str:
    """Return every figure of the table with what to see in it."""
    figures = [
        (f"table2-{row}", f"{_ROW_TITLES[row]}. Bars are means, black lines the values that the paper prints.")
        for row in summary["rows"]
    ]
    for name in ("digits", *DATASETS):
        title = dataset_title(name)
        figures += [
            (
                f"atoms-{name}",
                f"{title}: the twelve most used atoms of each method.",
            ),
            (f"convergence-{name}", f"{title}: objective after each alternation, relative to the last one."),
        ]
    figures.append(("atom-shifts", "One GTSC atom of the digits with all its circular shifts, as in Figure 2."))
    return "\n\n".join(f"{text}\n\n![{text}](figures/{name}.png)" for name, text in figures)


def _cost_table(summary: Summary) -> str:
    body = []
    for row, cells_by_method in summary["rows"].items():
        for method, cells in cells_by_method.items():
            entries = [
                f"{cells[name]['seconds']:.1f} s, {cells[name]['peak_memory_mb']} MB" if name in cells else ""
                for name in summary["datasets"]
            ]
            body.append([row, summary["methods"][method], *entries])
    return markdown_table(["row", "method", *_titles(summary)], body)


def _settings_table(summary: Summary) -> str:
    body = []
    for row, cells_by_method in summary["rows"].items():
        for method, cells in cells_by_method.items():
            for name, cell in cells.items():
                listed = ", ".join(f"{key} {value}" for key, value in cell["settings"].items())
                body.append([row, summary["methods"][method], name, str(cell["runs"]), listed])
    return markdown_table(["row", "method", "collection", "runs", "settings"], body)


def _provenance(summary: Summary) -> str:
    lines = ["Where the trials ran (compare seconds only within a line):", ""]
    for entry in summary["environments"]:
        lines.append(
            f"- {count(entry['trials'], 'trial')}, {entry['jobs']} at a time, {entry['minutes']:.1f} minutes in all: "
            f"{list_versions(entry['versions'])}."
        )
    return "\n".join([*lines, "", "`table2.json` holds the SHA-256 of the data."])


# --- files -----------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``table2.json``, ``table2.md`` and the figures; return the paths."""
    shared = [
        Record(**{**record, "row": "best-score"})
        for record in records
        if record["row"] == "label-free"
        and _has_best_score(record["method"], record["dataset"])
        and _same_settings(record["method"], record["dataset"])
    ]
    summary = summarise([record for record in [*records, *shared] if record["row"] in ROWS])
    paths = write_summary("table2", summary, page(summary), folder)
    if figures:
        from tubal.experiments.pages import draw_table2

        paths += draw_table2(summary, {name: _learn_atoms(name) for name in ("digits", *DATASETS)}, folder / "figures")
    return paths


def _learn_atoms(dataset: str) -> dict[str, LearnedAtoms]:
    """Fit the four coders of the paper to a collection, for the figures of atoms and convergence."""
    from tubal.datasets import fetch
    from tubal.experiments.pages import LearnedAtoms

    images = fetch(dataset).images
    images = images[evenly_spaced(len(images), FIGURE_IMAGES)]
    learned = {}
    for name in ("sc", "graphsc", "tubsc", "gtsc"):
        settings = settings_for("label-free", name, dataset)
        model, _ = fit_sparse_coder(name, images, settings, 0)
        codes = np.abs(np.asarray(model.codes_))
        learned[name] = LearnedAtoms(
            METHODS[name].title,
            atom_pictures(name, np.asarray(model.atoms_), images, settings),
            codes.reshape(*codes.shape[:2], -1).sum(axis=(0, 2)),
            np.asarray(model.objective_, dtype=float),
        )
    return learned
