"""The paper's claims one by one, each beside what was measured: ``python -m tools.render`` writes results/claims.md.

Every number is read from the stored results of Table 2, the family and the atlas; nothing is written here by hand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tubal.experiments.pages import SCORE_NAMES, dataset_title, join_parts, markdown_table
from tubal.experiments.tables import SCORES, load_paper

PAPER_METHODS = ("kmeans", "sc", "graphsc", "tubsc", "gtsc")
HOLDS, FAILS = "holds", "fails"


class Finding(NamedTuple):
    """One claim, where it is printed, what was measured, and the verdict."""

    claim: str
    where: str
    measured: str
    verdict: str


def page(results: Path) -> str:
    """Return the whole of ``claims.md`` from the JSON files in ``results``."""
    stored = {name: _load(results / f"{name}.json") for name in ("table2", "family", "atlas")}
    findings = [*_orderings(stored["table2"]), _best_of_all(stored["table2"]), _cost(stored["table2"])]
    findings += [_fewer_codes(stored["table2"]), _larger_codes(stored["family"])]
    findings += [_shifts(stored["family"]), _convergence(stored["atlas"])]
    return join_parts(
        [
            "# The paper's claims",
            "Each claim of the paper beside what was measured: [Table 2](table2.md) with certified codes, the "
            "[family](family.md) for shifts, the [atlas](atlas.md) for Algorithm 1. A claim *holds* if every figure "
            "named in its line agrees with it, and *fails* if none does; else the last column says where it holds.",
            markdown_table(
                ["claim", "where printed", "measured", "verdict"], [list(finding) for finding in findings if finding]
            ),
        ]
    )


def _load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content


def verdict(agrees: Sequence[str], differs: Sequence[str]) -> str:
    """Return the verdict from the names of figures that agree with a claim and of those that do not.

    >>> verdict(["ORL"], ["YALE"]), verdict([], ["YALE"])
    ('holds only on ORL', 'fails')
    """
    if not differs:
        return HOLDS if agrees else "not measured"
    return f"holds only on {', '.join(agrees)}" if agrees else FAILS


def _datasets(table2: dict[str, Any]) -> list[str]:
    return [name for name in table2.get("datasets", []) if name != "digits"]


# --- scores ----------------------------------------------------------------------------------------------------
def _orderings(table2: dict[str, Any]) -> list[Finding]:
    """Check the orderings that the text claims, on every collection, in both kinds of rows and both scores."""
    pairs = (("gtsc", "tubsc"), ("tubsc", "sc"), ("gtsc", "graphsc"), ("graphsc", "sc"))
    findings = []
    for better, worse in pairs:
        agrees: list[str] = []
        differs: list[str] = []
        means: list[str] = []
        for row, checks in table2.get("ordering", {}).items():
            for check in checks:
                if (check["better"], check["worse"]) == (better, worse):
                    means.append(f"{row} {SCORE_NAMES[check['score']]} {check['difference']:+.1f}")
                    for name in _datasets(table2):
                        figure = f"{dataset_title(name)} ({row} {SCORE_NAMES[check['score']]})"
                        (differs if name in check["fails_on"] else agrees).append(figure)
        titles = table2.get("methods", {})
        claim = f"{titles.get(better, better)} is better than {titles.get(worse, worse)}"
        measured = f"mean difference in points: {'; '.join(means)}; better in {len(agrees)} of {len(agrees + differs)}"
        words = HOLDS if not differs else f"holds except on {', '.join(differs)}" if agrees else FAILS
        findings.append(Finding(claim, "clustering results, Table 2", measured, words))
    return findings


def _best_of_all(table2: dict[str, Any]) -> Finding:
    agrees: list[str] = []
    differs: list[str] = []
    measured: list[str] = []
    for row, cells in table2.get("rows", {}).items():
        won = 0
        for name in _datasets(table2):
            for score in SCORES:
                means = {method: cells[method][name][score]["mean"] for method in PAPER_METHODS if method in cells}
                best = max(means, key=lambda method: means[method])
                won += best == "gtsc"
                figure = f"{dataset_title(name)} {SCORE_NAMES[score]} ({row})"
                (agrees if best == "gtsc" else differs).append(figure)
        measured.append(f"{row}: best of the paper's five methods in {won} of {2 * len(_datasets(table2))} figures")
    return Finding(
        "GTSC performs the best in all the cases",
        "clustering results, Table 2",
        "; ".join(measured),
        verdict(agrees, differs),
    )


# --- cost and size ---------------------------------------------------------------------------------------------
def _cost(table2: dict[str, Any]) -> Finding:
    cells = table2.get("rows", {}).get("label-free", {})
    ratios = {
        dataset_title(name): cells["gtsc"][name]["seconds"] / max(cells["graphsc"][name]["seconds"], 1e-9)
        for name in _datasets(table2)
        if {"gtsc", "graphsc"} <= set(cells)
    }
    measured = "seconds of GTSC / GraphSC: " + ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items())
    agrees = [name for name, ratio in ratios.items() if ratio < 1]
    return Finding(
        "GTSC costs less than GraphSC, especially for high-dimensional data",
        "computational complexity",
        measured + " (GraphSC after PCA, as in the paper)",
        verdict(agrees, [name for name in ratios if name not in agrees]),
    )


def _nonzeros(table2: dict[str, Any], method: str, dataset: str) -> float | None:
    cell = table2.get("rows", {}).get("label-free", {}).get(method, {}).get(dataset, {})
    found = cell.get("certificate")
    return None if found is None else found["density"] * found["codes"]


def _fewer_codes(table2: dict[str, Any]) -> Finding:
    agrees: list[str] = []
    differs: list[str] = []
    parts: list[str] = []
    for name in _datasets(table2):
        counts = {method: _nonzeros(table2, method, name) for method in ("tubsc", "sc", "gtsc", "graphsc")}
        if any(count is None for count in counts.values()):
            continue
        title = dataset_title(name)
        parts.append(
            f"{title} {counts['tubsc']:.0f} / {counts['sc']:.0f} and {counts['gtsc']:.0f} / {counts['graphsc']:.0f}"
        )
        (agrees if counts["tubsc"] < counts["sc"] and counts["gtsc"] < counts["graphsc"] else differs).append(title)  # type: ignore[operator]
    return Finding(
        "Images are encoded by few active coefficients, with much smaller dictionaries than SC and GraphSC",
        "introduction and evaluation",
        "non-zero codes per image, TubSC / SC and GTSC / GraphSC, label-free: " + ", ".join(parts),
        verdict(agrees, differs),
    )


def _larger_codes(family: dict[str, Any]) -> Finding:
    """Codes stored per image in the table of the family, against the pixels of the image."""
    sizes: list[str] = []
    agrees: list[str] = []
    differs: list[str] = []
    for method in ("tensr", "csc", "tubsc"):
        for name, cells in family.get("table", {}).items():
            cell = cells[method]
            figure = f"{family['methods'][method]} {dataset_title(name)}"
            collection = load_paper().collections.get(name)
            if collection is None:
                continue
            pixels = collection.image_shape[0] * collection.image_shape[1]
            sizes.append(f"{figure} {cell['stored']:.0f} of {pixels}")
            if method != "tubsc":
                (agrees if cell["stored"] > pixels else differs).append(figure)
    return Finding(
        "Representations of TenSR and CSC are larger than the images",
        "clustering results",
        "stored codes per image, of pixels: " + ", ".join(sizes),
        verdict(agrees, differs),
    )


# --- shifts and convergence ------------------------------------------------------------------------------------
def _shifts(family: dict[str, Any]) -> Finding:
    """Distances of features when images are shifted by four pixels, relative to the length of the features."""
    parts, circular, border = [], [], []
    for name, kinds in family.get("shift", {}).items():
        values = {kind: kinds[kind]["tubsc"]["4"] for kind in ("circle, right", "circle, down", "border, right")}
        parts.append(f"{dataset_title(name)} " + ", ".join(f"{kind} {value:.2f}" for kind, value in values.items()))
        circular.append(values["circle, right"] < 1e-2)
        border.append(min(values["circle, down"], values["border, right"]) < 1e-2)
    words = "holds only for circular shifts along the tube" if all(circular) and not any(border) else FAILS
    return Finding(
        "The tensor product encodes shifted versions of an atom, so TubSC preserves spatial structure",
        "tensor linear combination, eq. 6",
        "relative distance of TubSC features after a shift by 4 pixels: " + "; ".join(parts),
        words if circular else "not measured",
    )


def _convergence(atlas: dict[str, Any]) -> Finding:
    parts, agrees = [], True
    for name, methods in atlas.get("curves", {}).get("final_steps", {}).items():
        last = [point for point in methods.get("gtsc", []) if point["value"] is not None and point.get("gap_printed")]
        if last:
            point = last[-1]
            parts.append(
                f"{dataset_title(name)} exact constant {point['gap']:.1e}, as printed {point['gap_printed']:.1e} "
                f"after {point['value']} steps"
            )
            agrees = agrees and point["gap"] < point["gap_printed"]
    words = "holds only with the exact constant and η = 1" if agrees else "holds"
    return Finding(
        "Algorithm 1 converges",
        "Algorithm 1",
        "relative duality gap of GTSC codes: " + "; ".join(parts),
        words if parts else "not measured",
    )
