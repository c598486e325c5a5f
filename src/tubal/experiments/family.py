"""The family compared: SC, TubSC, TenSR and CSC, each with and without the graph, on the same images.

One rule sets the sparsity of every model: the fraction in ``settings.toml`` times the largest product that an atom of
unit length can have with an image (:func:`tubal.experiments.methods.largest_correlation`).
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from tubal.experiments.methods import family_member
from tubal.experiments.pages import SCORE_NAMES, dataset_title, join_parts, markdown_table, measured_note, write_summary
from tubal.experiments.tables import (
    SCORES,
    Method,
    Record,
    Score,
    Settings,
    Trial,
    load_paper,
    read_toml,
    standard_deviation,
)

TITLE = "The family: code size, cost and clustering of every model"
DATASETS = ("orl", "coil20", "yale")
EXTRA_DATASETS = ("usps", "digits")
# The models of the paper's Figure 1, and GTSC; only these have rate-distortion curves.
RATE_METHODS = ("sc", "tensr", "csc", "tubsc", "gtsc")
# Each model without and with the graph.
PAIRS = (("sc", "graphsc"), ("tensr", "gtensr"), ("csc", "gcsc"), ("tubsc", "gtsc"))
# A difference counts when it exceeds this many standard errors.
CLEAR = 2.0

_CODER = ("scale", "features", "sparsity_fraction", "max_iter", "code_steps", "code_tol", "n_starts", "size")
_GRAPH = ("graph_weight", "n_neighbors")

METHODS: Mapping[str, Method] = {
    "sc": Method("SC", family_member("sc"), _CODER),
    "graphsc": Method("GraphSC", family_member("sc"), (*_CODER, *_GRAPH)),
    "tensr": Method("TenSR", family_member("tensr"), _CODER),
    "gtensr": Method("TenSR + graph", family_member("tensr"), (*_CODER, *_GRAPH)),
    "csc": Method("CSC", family_member("csc"), (*_CODER, "filter_shape")),
    "gcsc": Method("CSC + graph", family_member("csc"), (*_CODER, "filter_shape", *_GRAPH)),
    "tubsc": Method("TubSC", family_member("tubsc"), _CODER),
    "gtsc": Method("GTSC", family_member("tubsc"), (*_CODER, *_GRAPH)),
}


class Cell(TypedDict):
    """One member on one collection; seconds and memory are those of the runs on the processor, if there are any."""

    runs: int
    timed_runs: int
    accuracy: dict[str, float]
    nmi: dict[str, float]
    stored: float
    nonzero: float
    error: float
    sparsity: float
    seconds: float
    peak_memory_mb: int
    device: str
    settings: Settings


class Gap(TypedDict):
    """A member's mean score minus GTSC's, and the standard error of that difference."""

    gap: float
    se: float


class Timing(TypedDict, total=False):
    """Where the trials of the table ran; empty when they ran in different places."""

    processor: str
    cores: int
    jobs: int


# rate[kind][dataset][method] is a list of points; shift[dataset][kind][method] maps pixels to a distance.
Rate = dict[str, dict[str, dict[str, list[dict[str, Any]]]]]
Shift = dict[str, dict[str, dict[str, dict[str, float]]]]


class Summary(TypedDict):
    """The content of ``family.json``."""

    title: str
    methods: dict[str, str]
    table: dict[str, dict[str, Cell]]
    averages: dict[str, dict[str, float]]
    against_gtsc: dict[str, dict[Score, Gap]]
    timing: Timing
    rate: Rate
    shift: Shift
    versions: dict[str, str]
    data_sha256: dict[str, str]
    recommended: NotRequired[str | None]
    measured: NotRequired[str]


# --- the plan --------------------------------------------------------------------------------------------------
@cache
def _settings_files() -> tuple[dict[str, Any], dict[str, Any]]:
    return read_toml("settings.toml")["label-free"], read_toml("family.toml")


def settings_for(method: str, dataset: str) -> dict[str, Any]:
    """Return every setting that a member reads on a collection.

    ``size`` is the number of atoms or filters; for TenSR, the number of atoms along each side.

    >>> settings_for("tensr", "orl")["size"]
    [16, 16]
    """
    paper = load_paper()
    collection = paper.collections.get(dataset, paper["usps"])
    label_free, family = _settings_files()
    table = family["table"]
    sizes = {"sc": collection.n_vector_atoms, "graphsc": collection.n_vector_atoms, "csc": table["filters"]}
    sizes |= {"gcsc": table["filters"], "tensr": table["separable_atoms"], "gtensr": table["separable_atoms"]}
    merged = {
        **label_free,
        **table,
        "graph_weight": paper.graph_weight,
        "n_neighbors": paper.n_neighbors,
        "size": sizes.get(method, collection.n_atoms),
    }
    return {name: merged[name] for name in sorted(METHODS[method].settings) if name in merged}


def plan(
    datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False, device: str = "cpu"
) -> list[Trial]:
    """Return the trials of the table and, with ``sweep``, of the rate-distortion and shift curves."""
    extra = {} if device == "cpu" else {"device": device}
    trials = [
        Trial(
            table="family",
            dataset=dataset,
            method=method,
            row="table",
            run=run,
            settings={**settings_for(method, dataset), **extra},
        )
        for run in range(runs)
        for dataset in datasets
        for method in methods
    ]
    if sweep:
        trials += [trial for method in methods for trial in _plan_curves(datasets, method, extra)]
    return trials


def _plan_curves(datasets: Sequence[str], method: str, extra: Settings) -> list[Trial]:
    family = _settings_files()[1]
    sizes, rate, shift = family["sizes"][method], family["rate"], family["shift"]
    changes: list[tuple[str, dict[str, Any]]] = []
    if method in RATE_METHODS:
        to_tolerance = {name: rate[name] for name in ("max_iter", "code_steps", "code_tol", "code_penalty")}
        for fraction in rate["sparsity_fraction"]:
            changes.append(("rate sparsity_fraction", {**to_tolerance, "sparsity_fraction": fraction}))
        changes += [("rate size", {**to_tolerance, "size": size}) for size in sizes]
    changes.append(("shift", {"shifts": shift["pixels"], "shift_images": shift["images"]}))
    base = {**extra, "n_images": family["curves"]["n_images"], "size": sizes[-2]}
    return [
        Trial(
            table="family",
            dataset=dataset,
            method=method,
            row=row,
            run=0,
            settings={**settings_for(method, dataset), **base, **change},
        )
        for dataset in datasets
        if dataset in family["curves"]["datasets"]
        for row, change in changes
    ]


# --- the summary -----------------------------------------------------------------------------------------------
def summarise(records: Sequence[Record]) -> Summary:
    """Return the content of ``family.json``: ``summary["table"][dataset][method]`` is a cell."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record["row"] == "table":
            groups[record["dataset"], record["method"]].append(record)
    table = {
        dataset: {name: _cell(groups[dataset, name]) for name in METHODS if (dataset, name) in groups}
        for dataset in sorted({dataset for dataset, _ in groups})
    }
    averages = _member_averages(table)
    ordered = _in_order(records)
    return {
        "title": "The family",
        "methods": {name: method.title for name, method in METHODS.items()},
        "table": table,
        "averages": averages,
        "against_gtsc": _against_gtsc(averages),
        "timing": _timing(records),
        "rate": _rate_curves(ordered),
        "shift": _shift_curves(ordered),
        "versions": next((record["versions"] for record in records if record["row"] == "table"), {}),
        "data_sha256": {record["dataset"]: record["data_sha256"] for record in records},
    }


def _cell(records: Sequence[Record]) -> Cell:
    group = list({record["run"]: record for record in records}.values())
    timed = [record for record in records if "device" not in record["settings"]] or group

    def score(name: Score) -> dict[str, float]:
        scores = [record[name] for record in group]
        return {"mean": round(statistics.mean(scores), 2), "sd": round(standard_deviation(scores), 2)}

    def detail(name: str, digits: int) -> float:
        return round(statistics.mean(record["details"][name] for record in group), digits)

    return {
        "runs": len(group),
        "timed_runs": len(timed),
        "accuracy": score("accuracy"),
        "nmi": score("nmi"),
        "stored": detail("stored", 0),
        "nonzero": detail("nonzero", 1),
        "error": detail("error", 5),
        "sparsity": detail("sparsity", 5),
        "seconds": round(statistics.mean(record["seconds"] for record in timed), 2),
        "peak_memory_mb": round(statistics.median(_memory(record) for record in timed)),
        "device": timed[0]["settings"].get("device", "cpu"),
        "settings": group[0]["settings"],
    }


def _memory(record: Record) -> float:
    """Return the memory of the device that held the arrays."""
    return float(record["details"].get("device_memory_mb", record["peak_memory_mb"]))


def _timing(records: Sequence[Record]) -> Timing:
    timings: list[Timing] = [
        {**record["machine"], "jobs": record.get("jobs", 1)}
        for record in records
        if record["row"] == "table" and "machine" in record
    ]
    return timings[0] if timings and all(timing == timings[0] for timing in timings) else {}


def _member_averages(table: Mapping[str, Mapping[str, Cell]]) -> dict[str, dict[str, float]]:
    """Return means over the collections, for the members measured on all of them; ``_se`` is a standard error."""
    averages: dict[str, dict[str, float]] = {}
    for method in METHODS:
        if not table or any(method not in cells for cells in table.values()):
            continue
        cells = [collection[method] for collection in table.values()]
        found = {
            "stored": statistics.mean(cell["stored"] for cell in cells),
            "nonzero": statistics.mean(cell["nonzero"] for cell in cells),
            "error": statistics.mean(cell["error"] for cell in cells),
            "seconds": statistics.mean(cell["seconds"] for cell in cells),
            "peak_memory_mb": statistics.mean(cell["peak_memory_mb"] for cell in cells),
        }
        for score in SCORES:
            found[score] = statistics.mean(cell[score]["mean"] for cell in cells)
            variances = [cell[score]["sd"] ** 2 / cell["runs"] for cell in cells]
            found[f"{score}_se"] = math.sqrt(sum(variances)) / len(cells)
        averages[method] = {name: round(value, 4) for name, value in found.items()}
    return averages


def _against_gtsc(averages: Mapping[str, Mapping[str, float]]) -> dict[str, dict[Score, Gap]]:
    if "gtsc" not in averages:
        return {}
    gtsc = averages["gtsc"]
    return {
        method: {
            score: {
                "gap": round(means[score] - gtsc[score], 4),
                "se": round(math.hypot(means[f"{score}_se"], gtsc[f"{score}_se"]), 4),
            }
            for score in SCORES
        }
        for method, means in averages.items()
        if method != "gtsc"
    }


def _in_order(records: Sequence[Record]) -> list[Record]:
    """Sort records by collection and member, so that the order of the curves does not depend on the run."""
    methods = list(METHODS)
    return sorted(records, key=lambda record: (record["dataset"], methods.index(record["method"])))


def _rate_curves(records: Sequence[Record]) -> Rate:
    """Return the rate-distortion curves: coefficients and reconstruction error for every value of a setting."""
    curves: Rate = {}
    for record in records:
        if not record["row"].startswith("rate "):
            continue
        kind = record["row"].removeprefix("rate ")
        point: dict[str, Any] = {name: record["details"][name] for name in ("stored", "nonzero", "error")}
        point["value"] = record["settings"][kind]
        curves.setdefault(kind, {}).setdefault(record["dataset"], {}).setdefault(record["method"], []).append(point)
    for datasets in curves.values():
        for methods in datasets.values():
            for points in methods.values():
                points.sort(key=lambda point: point["value"])
    return curves


def _shift_curves(records: Sequence[Record]) -> Shift:
    """Return the distance between shifted and unshifted features for every shift."""
    curves: Shift = {}
    for record in records:
        if record["row"] != "shift":
            continue
        for pixels in record["settings"]["shifts"]:
            for name, value in record["details"].items():
                kind, _, shift = name.rpartition(", ")
                if shift == str(pixels) and kind:
                    by_method = curves.setdefault(record["dataset"], {}).setdefault(kind, {})
                    by_method.setdefault(record["method"], {})[str(pixels)] = round(value, 4)
    return curves


# --- the recommendation ----------------------------------------------------------------------------------------
def recommended(summary: Summary) -> str | None:
    """Return the best member that clearly beats GTSC in both mean scores, else GTSC; None before all are measured.

    "Clearly" means by more than two standard errors of the difference. Smaller differences do not count.
    """
    if "gtsc" not in summary["averages"]:
        return None
    gaps = summary["against_gtsc"]
    passing = [method for method in gaps if min(comparison_signs(summary, method)) > 0]
    return max(passing, key=lambda method: sum(gaps[method][score]["gap"] for score in SCORES), default="gtsc")


def comparison_signs(summary: Summary, method: str) -> list[int]:
    """Return for each score whether a member is clearly above GTSC (1), clearly below it (-1), or neither (0)."""
    gaps = summary["against_gtsc"][method]
    return [
        0 if abs(gaps[score]["gap"]) <= CLEAR * gaps[score]["se"] else 1 if gaps[score]["gap"] > 0 else -1
        for score in SCORES
    ]


def findings(summary: Summary) -> list[str]:
    """Return what the table shows, as a list in Markdown."""
    averages, titles = summary["averages"], summary["methods"]
    if not averages:
        return []
    lines = []
    for score in SCORES:
        ranked = sorted(averages, key=lambda method: -averages[method][score])
        text = ", ".join(f"{titles[method]} {averages[method][score]:.1f}" for method in ranked)
        lines.append(f"- Mean {SCORE_NAMES[score]} over the collections, best first: {text}.")
    for plain, with_graph in PAIRS:
        if plain in averages and with_graph in averages:
            gains = [averages[with_graph][score] - averages[plain][score] for score in SCORES]
            lines.append(
                f"- The graph changes {titles[plain]} by {gains[0]:+.1f} points of accuracy and {gains[1]:+.1f} of NMI."
            )
    return lines + _recommendation(summary)


def _recommendation(summary: Summary) -> list[str]:
    best = recommended(summary)
    if best is None:
        return []
    lines = [_comparison(summary, method) for method in summary["against_gtsc"]]
    if best == "gtsc":
        return [*lines, "- **By the rule, GTSC stays the recommendation: no other member beats it in both scores.**"]
    title = summary["methods"][best]
    return [*lines, f"- **By the rule, the recommendation is {title}: it beats GTSC in both scores.**"]


def _comparison(summary: Summary, method: str) -> str:
    """Return one line that compares a member with GTSC."""
    signs, gaps = comparison_signs(summary, method), summary["against_gtsc"][method]
    figures = ", ".join(f"{SCORE_NAMES[s]} {gaps[s]['gap']:+.1f} ± {gaps[s]['se']:.1f}" for s in SCORES)
    words = {1: "better than", 0: "level with", -1: "worse than"}
    if signs[0] == signs[1]:
        verdict = f"is {words[signs[0]]} GTSC in both scores"
    else:
        verdict = "is " + " and ".join(
            f"{words[sign]} GTSC in {SCORE_NAMES[score]}" for score, sign in zip(SCORES, signs, strict=True)
        )
    return f"- {summary['methods'][method]} {verdict} ({figures})."


_RULE = (
    "How the recommendation is decided: accuracy and NMI are averaged over the collections. A member is recommended "
    "over GTSC if both of its means are better than GTSC's by more than two standard errors of the difference, "
    "computed from the spread of the runs of both. Smaller differences are ignored. This rule was written after an "
    "earlier version of these scores had been seen; so was the rule before it, which compared the means only. The "
    "differences are printed with their standard errors, so that you can apply another rule. Standard errors tell how "
    "much other seeds would change, not how much other collections would."
)


# --- the page --------------------------------------------------------------------------------------------------
def page(summary: Summary) -> str:
    """Return the whole of ``family.md``."""
    parts = [
        "# The family, compared",
        "Made by `tubal reproduce --table family --sweep`. Accuracy and NMI are in percent, mean ± standard deviation "
        "of the runs. *Stored* is the number of coefficients of an image's code, *error* the share of the images' "
        "energy that the reconstruction misses. One rule sets the sparsity of all models "
        "(`tubal.experiments.methods`), every member makes the same number of coding steps, and no setting was chosen "
        "by looking at labels. The number of steps (`family.toml`) is half of the default of `CSC`. With the default "
        "number, which is not in this record, CSC was better on faces, with the graph too, but still below GTSC in "
        "both mean scores.",
        _cost_note(summary),
        measured_note(summary, "final codes that were not yet certified"),
    ]
    for dataset, cells in summary["table"].items():
        body = [_table_line(summary, name, cell) for name, cell in cells.items()]
        parts += [f"## {dataset_title(dataset)}", markdown_table(_HEAD, body)]
    if summary["averages"]:
        parts += ["## Mean over the collections", _average_table(summary)]
    parts += ["## Findings", "\n".join(findings(summary)), _RULE if summary["averages"] else ""]
    return join_parts(parts + _rate_section(summary) + _shift_section(summary))


def short_page(summary: Summary) -> str:
    """Return the mean scores and costs, and the members that are not clearly below GTSC."""
    names = ", ".join(dataset_title(dataset) for dataset in summary["table"])
    close = [method for method in summary["against_gtsc"] if max(comparison_signs(summary, method)) >= 0]
    lines = [_comparison(summary, method) for method in close]
    intro = f"Means over {names}, ± standard error."
    return "\n\n".join([intro, _average_table(summary), "\n".join([*lines, *_recommendation(summary)[-1:]])])


def _cost_note(summary: Summary) -> str:
    timing = summary["timing"]
    if not timing:
        return ""
    share = max(1, timing["cores"] // timing["jobs"])
    threads = "one thread" if share == 1 else f"{share} threads"
    return (
        f"Seconds are those of a whole run, from images to labels, with {threads} per run and {timing['jobs']} runs at "
        f"a time on {timing['cores']} cores ({timing['processor']}). Memory is the median over the runs of the peak "
        "resident memory above that at the start of the run. It includes libraries that the run was the first to load."
    )


_HEAD = (
    *("model", "runs", "accuracy (%)", "NMI (%)", "stored / image", "non-zero / image", "error (%)", "seconds"),
    "memory (MB)",
)


def _table_line(summary: Summary, method: str, cell: Cell) -> list[str]:
    scores = [f"{cell[score]['mean']:.1f} ± {cell[score]['sd']:.1f}" for score in SCORES]
    device = "" if cell["device"] == "cpu" else f" ({cell['device']})"
    return [
        summary["methods"][method], str(cell["runs"]), *scores, f"{cell['stored']:.0f}", f"{cell['nonzero']:.0f}",
        f"{100 * cell['error']:.2f}", f"{cell['seconds']:.1f}{device}", str(cell["peak_memory_mb"]),
    ]  # fmt: skip


def _average_table(summary: Summary) -> str:
    body = [
        [
            summary["methods"][method],
            *(f"{cell[score]:.1f} ± {cell[f'{score}_se']:.1f}" for score in SCORES),
            f"{cell['stored']:.0f}", f"{cell['nonzero']:.0f}", f"{100 * cell['error']:.2f}", f"{cell['seconds']:.1f}",
            f"{cell['peak_memory_mb']:.0f}",
        ]
        for method, cell in summary["averages"].items()
    ]  # fmt: skip
    return markdown_table([name for name in _HEAD if name != "runs"], body)


_RATE_TITLES = {"sparsity_fraction": "as sparsity grows", "size": "as the dictionary grows"}
_SHIFT_TITLES = {
    "circle, right": "circular shift to the right",
    "circle, down": "circular shift down",
    "border, right": "shift to the right, border repeated",
    "border, down": "shift down, border repeated",
}


def _rate_section(summary: Summary) -> list[str]:
    if not summary["rate"]:
        return []
    parts = [
        "The curves below use sixty images of each collection, the same for all models, and small dictionaries. Coding "
        "runs to a tolerance or for 1200 steps (`family.toml`), so that coefficients which vanish at the minimum are "
        "not counted; CSC at the strongest sparsity may still hold a few percent of such coefficients. With sixty "
        "atoms of SC, every image can be its own atom."
    ]
    for kind, datasets in summary["rate"].items():
        for dataset, methods in datasets.items():
            body = []
            for method, points in methods.items():
                cells = (f"{p['nonzero']:.0f} / {p['stored']:.0f}: {100 * p['error']:.2f}" for p in points)
                body.append([summary["methods"][method], ", ".join(cells)])
            parts += [
                f"## Rate and distortion on {dataset_title(dataset)}, {_RATE_TITLES[kind]}",
                markdown_table(["model", "non-zero / stored: error (%)"], body),
            ]
    pictures = summary["rate"].get("sparsity_fraction", {})
    return parts + [f"![{dataset_title(name)}](figures/family-rate-{name}.png)" for name in pictures]


def _shift_section(summary: Summary) -> list[str]:
    parts = []
    for dataset, kinds in summary["shift"].items():
        title = dataset_title(dataset)
        parts += [
            f"## How far features move when images of {title} are shifted",
            "Distance between the features of shifted and unshifted images, relative to the length of the features, by "
            "the number of pixels.",
            f"![{title}](figures/family-shift-{dataset}.png)",
        ]
        for kind, methods in kinds.items():
            pixels = list(next(iter(methods.values())))
            body = [
                [summary["methods"][method], *(f"{points[pixel]:.3f}" for pixel in pixels)]
                for method, points in methods.items()
            ]
            parts.append(markdown_table([_SHIFT_TITLES[kind], *pixels], body))
    return parts


# --- files -----------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``family.json``, ``family.md`` and the figures of the curves; return the paths."""
    summary = summarise(records)
    summary["recommended"] = recommended(summary)
    summary["measured"] = date.today().isoformat()
    paths = write_summary("family", summary, page(summary), folder)
    if figures:
        from tubal.experiments.pages import draw_family

        paths += draw_family(summary, folder / "figures")
    return paths
