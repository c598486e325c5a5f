"""The table as text: ``table2.md`` in full, and the block of the README that is generated from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tubal.experiments.pages import markdown_table
from tubal.experiments.paper import load_paper

Summary = Mapping[str, Any]

SCORE_TITLES = {"accuracy": "Accuracy (%)", "nmi": "NMI (%, larger entropy)"}
_COST_NOTE = (
    "Mean seconds from images to labels, and the median of the memory a run needed above that of the process "
    "with libraries and images loaded. Trials run side by side, one a core, each with its share of the cores."
)
ROW_TITLES = {
    "label-free": "Label-free: one written rule for every method and collection",
    "best-score": "Best score: settings chosen per collection by score, as the paper must have done",
}


def report(summary: Summary) -> str:
    """Return the whole of ``table2.md``."""
    parts = [
        "# Table 2",
        "Mean ± standard deviation of the runs; in brackets the best run. Below it, where the paper prints a "
        "value: that value and the difference of the mean to it.",
    ]
    for row in summary["rows"]:
        parts.append(f"## {ROW_TITLES[row]}")
        for score, title in SCORE_TITLES.items():
            parts += [f"### {title}", _detailed(summary, row, score)]
    parts += ["## What holds", "\n".join(_findings(summary))]
    parts += ["## Cost of a run", _COST_NOTE, _cost(summary)]
    parts += ["## Settings", _settings(summary), _provenance(summary)]
    return "\n\n".join(parts) + "\n"


def readme_block(summary: Summary) -> str:
    """Return the README's table: accuracy / NMI, mean ± standard deviation, and what holds.

    It is generated from ``results/table2.json`` alone, so that the two can be compared.
    """
    parts = ["Accuracy / NMI in percent, mean ± standard deviation of the runs (NMI by the larger entropy)."]
    for row in summary["rows"]:
        parts += [f"**{ROW_TITLES[row]}**", _compact(summary, row)]
    return "\n\n".join([*parts, "\n".join(_findings(summary))])


def _titles(summary: Summary) -> list[str]:
    collections = load_paper().collections
    return [collections[name].title if name in collections else name for name in summary["datasets"]]


def _detailed(summary: Summary, row: str, score: str) -> str:
    body = []
    for method, cells in summary["rows"][row].items():
        average = summary["averages"][row].get(method, {}).get(score)
        entries = [_entry(cells[name][score]) if name in cells else "" for name in summary["datasets"]]
        body.append([summary["methods"][method], *entries, _average_entry(average)])
    return markdown_table(["method", *_titles(summary), "average"], body)


def _entry(values: Mapping[str, Any]) -> str:
    text = f"{values['mean']:.2f} ± {values['sd']:.2f} ({values['best']:.2f})"
    return text + _against_print(values)


def _average_entry(values: Mapping[str, Any] | None) -> str:
    return "" if values is None else f"{values['mean']:.2f}{_against_print(values)}"


def _against_print(values: Mapping[str, Any]) -> str:
    if values["printed"] is None:
        return ""
    return f"<br>print {values['printed']:.2f}, {values['difference']:+.2f}"


def _compact(summary: Summary, row: str) -> str:
    body = []
    for method, cells in summary["rows"][row].items():
        entries = [_pair(cells[name]) if name in cells else "" for name in summary["datasets"]]
        body.append([summary["methods"][method], *entries])
    body.append(["*printed GTSC*", *(_printed_pair(name) for name in summary["datasets"])])
    return markdown_table(["method", *_titles(summary)], body)


def _printed_pair(dataset: str) -> str:
    collections = load_paper().collections
    if dataset not in collections:
        return ""
    printed = collections[dataset].printed["gtsc"]
    return f"*{printed['accuracy']:.2f} / {printed['nmi']:.2f}*"


def _pair(cell: Mapping[str, Any]) -> str:
    return " / ".join(f"{cell[score]['mean']:.1f}±{cell[score]['sd']:.1f}" for score in SCORE_TITLES)


def _findings(summary: Summary) -> list[str]:
    """Say plainly what holds and what does not."""
    lines = []
    targets = summary["targets"]
    if targets["figures"]:
        lines.append(
            f"- Best-score GTSC against print: the mean is at or above it in "
            f"{len(targets['mean_at_or_above'])} of {targets['figures']} figures, "
            f"the best run in {len(targets['best_at_or_above'])}."
        )
    lines += [_label_free_distance(summary)] if "gtsc" in summary["rows"].get("label-free", {}) else []
    if summary["undercut"]:
        names = ", ".join(
            f"{summary['methods'][cell['method']]} on {load_paper()[cell['dataset']].title}"
            for cell in summary["undercut"]
        )
        lines.append(f"- Settings that looked best in the search but do worse over all runs than the rule: {names}.")
    for row, checks in summary["ordering"].items():
        lines += [f"- {row}: {_claim(summary, check)}" for check in checks]
    return lines


def _label_free_distance(summary: Summary) -> str:
    cells = summary["rows"]["label-free"]["gtsc"]
    parts = [
        f"{title} {cells[name]['accuracy']['difference']:+.1f} / {cells[name]['nmi']['difference']:+.1f}"
        for name, title in zip(summary["datasets"], _titles(summary), strict=True)
        if name in cells and cells[name]["accuracy"]["printed"] is not None
    ]
    return f"- Label-free GTSC minus printed GTSC (accuracy / NMI): {', '.join(parts) or 'nothing printed'}."


def _claim(summary: Summary, check: Mapping[str, Any]) -> str:
    better, worse = summary["methods"][check["better"]], summary["methods"][check["worse"]]
    verdict = "holds" if check["holds"] else "**fails**"
    text = f"{better} > {worse} in {check['score']} {verdict} on the average ({check['difference']:+.1f} points)"
    if check["fails_on"]:
        text += f"; not so on {', '.join(load_paper()[name].title for name in check['fails_on'])}"
    return text + "."


def _cost(summary: Summary) -> str:
    body = []
    for row, methods in summary["rows"].items():
        for method, cells in methods.items():
            entries = [
                f"{cells[name]['seconds']:.1f} s, {cells[name]['peak_memory_mb']} MB" if name in cells else ""
                for name in summary["datasets"]
            ]
            body.append([row, summary["methods"][method], *entries])
    return markdown_table(["row", "method", *_titles(summary)], body)


def _settings(summary: Summary) -> str:
    body = []
    for row, methods in summary["rows"].items():
        for method, cells in methods.items():
            for name, cell in cells.items():
                listed = ", ".join(f"{key} {value}" for key, value in cell["settings"].items())
                body.append([row, summary["methods"][method], name, str(cell["runs"]), listed])
    return markdown_table(["row", "method", "collection", "runs", "settings"], body)


def _provenance(summary: Summary) -> str:
    lines = ["Where the trials ran; seconds are comparable within a line only:", ""]
    for place in summary["environments"]:
        versions = ", ".join(f"{name} {version}" for name, version in place["versions"].items())
        lines.append(f"- {place['trials']} trials, {place['jobs']} side by side: {versions}.")
    return "\n".join([*lines, "", "Data are identified by SHA-256 in `table2.json`."])
