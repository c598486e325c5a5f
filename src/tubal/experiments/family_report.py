"""From the family's trials to its table, its findings in words, and its curves."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tubal._files import atomic_write
from tubal.experiments.models import Method
from tubal.experiments.paper import load_paper
from tubal.experiments.trials import Record

Summary = dict[str, Any]
PAIRS = (("sc", "graphsc"), ("tensr", "gtensr"), ("csc", "gcsc"), ("tubsc", "gtsc"))
_HEAD = (
    "model",
    "runs",
    "accuracy (%)",
    "NMI (%)",
    "stored / image",
    "non-zero / image",
    "error (%)",
    "seconds",
    "memory (MB)",
)


def summarise(records: Sequence[Record], methods: Mapping[str, Method]) -> Summary:
    """Return the table and the curves as plain data: ``summary["table"][dataset][method]`` is a cell."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record["row"] == "table":
            groups[record["dataset"], record["method"]].append(record)
    table: dict[str, dict[str, Any]] = {}
    for (dataset, method), group in groups.items():
        table.setdefault(dataset, {})[method] = _cell(group)
    ordered = {dataset: {name: cells[name] for name in methods if name in cells} for dataset, cells in table.items()}
    return {
        "title": "The family",
        "methods": {name: method.title for name, method in methods.items()},
        "table": ordered,
        "averages": _averages(ordered, methods),
        "rate": _rate(_in_order(records, methods)),
        "shift": _shift(_in_order(records, methods)),
        "versions": records[-1]["versions"] if records else {},
        "data_sha256": {record["dataset"]: record["data_sha256"] for record in records},
    }


def _cell(records: Sequence[Record]) -> dict[str, Any]:
    """Scores of every run; seconds and memory of those on the processor, where there are any."""
    group = list({record["run"]: record for record in records}.values())
    timed = [record for record in records if "device" not in record["settings"]] or group
    cell: dict[str, Any] = {"runs": len(group), "timed_runs": len(timed)}
    for score in ("accuracy", "nmi"):
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


def _averages(table: Mapping[str, Mapping[str, Any]], methods: Mapping[str, Method]) -> dict[str, dict[str, float]]:
    """Mean over the collections, of the members measured on all of them."""
    return {
        method: {
            score: round(statistics.mean(cells[method][score]["mean"] for cells in table.values()), 2)
            for score in ("accuracy", "nmi")
        }
        for method in methods
        if table and all(method in cells for cells in table.values())
    }


def _in_order(records: Sequence[Record], methods: Mapping[str, Method]) -> list[Record]:
    """Sort records by member, so that every curve has its place whatever finished first."""
    places = list(methods)
    return sorted(records, key=lambda record: places.index(record["method"]))


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


# --- in words --------------------------------------------------------------------------------------------------
def findings(summary: Summary) -> list[str]:
    """Say plainly what the table shows, whoever wins."""
    averages, titles = summary["averages"], summary["methods"]
    if not averages:
        return []
    lines = []
    for score, name in (("accuracy", "accuracy"), ("nmi", "NMI")):
        ranked = sorted(averages, key=lambda method: -averages[method][score])
        text = ", ".join(f"{titles[method]} {averages[method][score]:.1f}" for method in ranked)
        lines.append(f"- Mean {name} over the collections, best first: {text}.")
    for plain, tied in PAIRS:
        if plain in averages and tied in averages:
            gain = averages[tied]["accuracy"] - averages[plain]["accuracy"]
            lines.append(f"- The graph changes {titles[plain]} by {gain:+.1f} points of accuracy.")
    return lines + _verdict(summary)


def recommended(summary: Summary) -> str | None:
    """Return GTSC, or the best member that passes it in both mean scores."""
    averages: dict[str, dict[str, float]] = summary["averages"]
    if "gtsc" not in averages:
        return None
    passing = [method for method in averages if min(_gaps(summary, method)) > 0.0]
    return max(passing, key=lambda method: sum(_gaps(summary, method)), default="gtsc")


def _gaps(summary: Summary, method: str) -> list[float]:
    """How far a member's mean accuracy and NMI are above those of GTSC."""
    averages = summary["averages"]
    return [averages[method][score] - averages["gtsc"][score] for score in ("accuracy", "nmi")]


def _verdict(summary: Summary) -> list[str]:
    best, titles = recommended(summary), summary["methods"]
    if best is None:
        return []
    lines = []
    for method in summary["averages"]:
        gaps = _gaps(summary, method)
        if method != "gtsc" and max(gaps) > 0.0:
            word = "beats" if min(gaps) > 0.0 else "is level with"
            text = f"{gaps[0]:+.1f} accuracy, {gaps[1]:+.1f} NMI"
            lines.append(f"- {titles[method]} {word} GTSC in the mean ({text}).")
    if best == "gtsc":
        return [*lines, "- **No other member passes GTSC in both scores: it stays the recommendation.**"]
    return [*lines, f"- **On images like these start with {titles[best]}: it passes GTSC in both scores.**"]


def report(summary: Summary) -> str:
    """Return the whole of ``family.md``."""
    parts = [
        "# The family, compared",
        "Mean ± standard deviation of the runs. Stored is the size of an image's code, error the share of the images' "
        "energy that reconstruction leaves over. Seconds and memory are those of a whole run, images to labels; "
        "*cuda* means seven runs at a time on one H200, and memory its own. "
        "Sparsity follows one rule for all (see `tubal.experiments.family`); no label was looked at.",
    ]
    for dataset, cells in summary["table"].items():
        parts += [f"## {_title(dataset)}", _markdown(_HEAD, [_line(summary, name, cells[name]) for name in cells])]
    parts += ["## What it says", "\n".join(findings(summary))]
    if summary["rate"]:
        parts.append(
            "The curves below stop after a stated number of steps (`family.toml`), not at convergence: where sparsity "
            "is high, coefficients that would still vanish are counted, most of all for CSC."
        )
    parts += _rate_text(summary) + _shift_text(summary)
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(dataset: str) -> str:
    collections = load_paper().collections
    return collections[dataset].title if dataset in collections else dataset


def _line(summary: Summary, method: str, cell: Mapping[str, Any]) -> list[str]:
    scores = [f"{cell[score]['mean']:.1f} ± {cell[score]['sd']:.1f}" for score in ("accuracy", "nmi")]
    where = "" if cell["device"] == "cpu" else f" ({cell['device']})"
    return [
        summary["methods"][method], str(cell["runs"]), *scores, f"{cell['stored']:.0f}", f"{cell['nonzero']:.0f}",
        f"{100 * cell['error']:.2f}", f"{cell['seconds']:.1f}{where}", str(cell["peak_memory_mb"]),
    ]  # fmt: skip


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_RATE_TITLES = {"sparsity_fraction": "as sparsity grows", "size": "as the dictionary grows"}


def _rate_text(summary: Summary) -> list[str]:
    parts = []
    for kind, datasets in summary["rate"].items():
        for dataset, methods in datasets.items():
            body = []
            for method, points in methods.items():
                cells = (f"{p['nonzero']:.0f} / {p['stored']:.0f}: {100 * p['error']:.2f}" for p in points)
                body.append([summary["methods"][method], ", ".join(cells)])
            parts += [
                f"## Rate and distortion on {_title(dataset)}, {_RATE_TITLES[kind]}",
                _markdown(["model", "non-zero / stored: error (%)"], body),
            ]
    return parts


def _shift_text(summary: Summary) -> list[str]:
    parts = []
    for dataset, ways in summary["shift"].items():
        for way, methods in ways.items():
            pixels = list(next(iter(methods.values())))
            body = [
                [summary["methods"][method], *(f"{points[pixel]:.3f}" for pixel in pixels)]
                for method, points in methods.items()
            ]
            parts += [
                f"## Distance of features when {_title(dataset)} is moved: {way}",
                _markdown(["model \\ pixels", *pixels], body),
            ]
    return parts


# --- files -----------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, methods: Mapping[str, Method], *, figures: bool) -> list[Path]:
    """Write the table, and the pictures if asked; return the paths."""
    summary = summarise(records, methods)
    texts = {"family.json": json.dumps(summary, indent=1) + "\n", "family.md": report(summary)}
    for name, text in texts.items():
        with atomic_write(folder / name, "w", encoding="utf-8") as file:
            file.write(text)
    paths = [folder / name for name in texts]
    return paths + (_draw(summary, folder / "figures") if figures else [])


def _draw(summary: Summary, folder: Path) -> list[Path]:
    import matplotlib as mpl

    mpl.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [_draw_rate(summary, dataset, folder) for dataset in summary["rate"].get("sparsity_fraction", {})]
    return paths + [_draw_shift(summary, dataset, folder) for dataset in summary["shift"]]


def _color(summary: Summary, method: str) -> str:
    """One colour for a member in every picture."""
    return f"C{list(summary['methods']).index(method)}"


def _draw_rate(summary: Summary, dataset: str, folder: Path) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
    panels = (("sparsity_fraction", "nonzero", "non-zero"), ("size", "stored", "stored"))
    for axis, (kind, name, word) in zip(axes, panels, strict=True):
        for method, points in summary["rate"].get(kind, {}).get(dataset, {}).items():
            axis.loglog(
                [max(point[name], 0.5) for point in points], [100 * point["error"] for point in points], marker=".",
                color=_color(summary, method), label=summary["methods"][method],
            )  # fmt: skip
        axis.set_xlabel(f"{word} coefficients an image")
    axes[0].set_ylabel("reconstruction error (% of energy)")
    axes[0].set_title(f"{_title(dataset)}: sparsity varied")
    axes[1].set_title("size of the dictionary varied")
    axes[0].legend()
    path = folder / f"family-rate-{dataset}.png"
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return path


def _draw_shift(summary: Summary, dataset: str, folder: Path) -> Path:
    from matplotlib import pyplot

    ways = summary["shift"][dataset]
    figure, axes = pyplot.subplots(1, len(ways), figsize=(3.6 * len(ways), 3.4), sharey=True, squeeze=False)
    for axis, (way, methods) in zip(axes[0], ways.items(), strict=True):
        for method, points in methods.items():
            axis.plot(
                [int(pixel) for pixel in points], points.values(), marker=".", color=_color(summary, method),
                label=summary["methods"][method],
            )  # fmt: skip
        axis.set_title(way)
        axis.set_xlabel("shift (pixels)")
    axes[0, 0].set_ylabel("relative distance of features")
    axes[0, -1].legend(fontsize=7)
    path = folder / f"family-shift-{dataset}.png"
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return path
