"""The record of the suite as JSON, as a page and as pictures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tubal.experiments.pages import markdown_table


@dataclass(frozen=True)
class Claim:
    """What is promised: the section and column that hold it, the column that bounds it, and the words.

    ``large_is_good`` says on which side of the bound it should lie. Rows without a bound are not what it is about.
    """

    section: str
    words: str
    column: str = "ratio"
    bound: str = "wanted"
    large_is_good: bool = True

    def rows(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the rows that it is about."""
        found = record["tables"].get(self.section, ())
        return [row for row in found if self.bound in row]

    def kept(self, row: dict[str, Any]) -> bool:
        """Tell whether a row is on the right side; being faster counts only where the score is better."""
        if SCORES[0] in row and _mean(row[SCORES[0]]) <= _mean(row[SCORES[1]]):
            return False
        value, limit = row[self.column], row[self.bound]
        return bool(value >= limit if self.large_is_good else value <= limit)


SCORES = "K-means accuracy", "dictionary learning's"
CLAIMS = (
    Claim("sporco", "coding without a graph, times faster than SPORCO to its objective"),
    Claim("algorithm 1", "coding with a graph, times faster than the paper's Algorithm 1"),
    Claim("convolutional", "CSC coding, times faster than SPORCO to its objective"),
    Claim("umap", "a GTSC fit from a cold process, times faster than UMAP"),
    Claim(
        "dictionary learning", "a default GTSC fit, times faster than MiniBatchDictionaryLearning, which clusters worse"
    ),
    Claim(
        "dictionary learning", "GTSC stopped where it clusters better than that peer does at its end, times faster",
        bound="wanted so",
    ),
    Claim("default preset", "USPS, in units of UMAP + K-means", "units", "at most", False),
    Claim("small collections", "COIL20, ORL, Yale and digits clustered, seconds", "seconds", "seconds at most", False),
    Claim(
        "many images", "deformable graph of 20 000 to 50 000 images, log-log slope", "graph seconds", "at most", False
    ),
    Claim("many images", "the same images clustered, log-log slope", "preset seconds", "at most", False),
    Claim("images", "coding against the number of images, log-log slope", "seconds", "at most", False),
    Claim(
        "memory", "peak memory of encoding, and of the splitting with a graph, in units of the codes", "peak in codes",
        "at most", False,
    ),
    Claim("thread", "what a second thread brings, as a share of what it brings a GEMM"),
    Claim("first use", "first use in a new process, seconds", "seconds", "at most", False),
)  # fmt: skip
SIZES = (("images", "n", "images"), ("atoms", "n_atoms", "atoms"), ("tube", "tube_length", "length of the tube"))


def write(record: dict[str, Any], titles: dict[str, str], path: Path) -> None:
    """Write the record, the page beside it, and its pictures where the record is a full one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1))
    path.with_suffix(".md").write_text(markdown(record, titles), encoding="utf-8")
    if not record["about"]["quick"]:
        draw(record, path.parent / "figures")


def markdown(record: dict[str, Any], titles: dict[str, str]) -> str:
    """Return the tables as a page."""
    about, tables = record["about"], record["tables"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if version)
    lines = [
        "# Benchmarks",
        "",
        f"Written by `python -m benchmarks{' --quick' if about['quick'] else ''}` on {about['date']}: "
        f"{about['processor']}, {about['cores']} cores, Python {about['python']}, {versions}; load before the run "
        f"{about['load before']:.1f}.",
        "",
        "Every ratio is of two programs timed in the same run on the same cores, alternately where repeated; medians. "
        "Sections may be measured apart (`--only`): what is said above of machine and load is that of the last.",
    ]
    if not about["quick"]:
        lines += ["", "## What was wanted", "", readme_block(record)]
    for name, title in titles.items():
        if name not in tables:
            continue
        keys = list(dict.fromkeys(key for row in tables[name] for key in row))
        body = [[_cell(row.get(key, "")) for key in keys] for row in tables[name]]
        lines += ["", f"## {title}", "", markdown_table(keys, body)]
    return "\n".join(lines) + "\n"


def readme_block(record: dict[str, Any]) -> str:
    """Return every promise with all its figures, the bound, and whether each of them keeps it."""
    body = []
    for claim in CLAIMS:
        rows = claim.rows(record)
        for limit in sorted({row[claim.bound] for row in rows}):
            bounded = [row for row in rows if row[claim.bound] == limit]
            figures = [f"{_short(row['problem'])}: {row[claim.column]:.3g}" for row in bounded]
            wanted = f"{'at least' if claim.large_is_good else 'at most'} {limit:g}"
            kept = "yes" if all(claim.kept(row) for row in bounded) else "**no**"
            body.append([claim.words, "; ".join(figures), wanted, kept])
    return markdown_table(["measured", "found", "wanted", "met"], body)


def _short(problem: str) -> str:
    """Return a problem's name without its sizes, which the full table has."""
    first, *rest = problem.split(", ")
    kept = [part for part in rest if part.startswith("graph weight") or not any(letter.isdigit() for letter in part)]
    kept = [part for part in kept if not part.startswith("until")]
    return ", ".join([first, *kept])


def _mean(score: str) -> float:
    """Return the mean of a score written as mean ± standard deviation."""
    return float(score.split(" ", maxsplit=1)[0])


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def draw(record: dict[str, Any], folder: Path) -> None:
    """Draw objective against seconds, and time and memory against sizes; what was not measured is left out."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    if record["curves"]:
        figure, axes = plt.subplots(1, len(record["curves"]), figsize=(6 * len(record["curves"]), 4), squeeze=False)
        for axis, (title, group) in zip(axes[0], record["curves"].items(), strict=True):
            best = min(value for curve in group.values() for _, value in curve)
            for label, curve in group.items():
                above = [value / best - 1 + 1e-6 for _, value in curve]
                axis.loglog([moment for moment, _ in curve], above, label=label)
            axis.set(title=title, xlabel="seconds", ylabel="objective above the best, relative")
            axis.legend()
        figure.tight_layout()
        figure.savefig(folder / "bench-convergence.png", dpi=120)
        plt.close(figure)
    if all(name in record["tables"] for name in ("images", "atoms", "tube", "memory")):
        figure, axes = plt.subplots(2, 3, figsize=(13, 7))
        for column, (name, key, label) in enumerate(SIZES):
            rows = [row for row in record["tables"][name] if key in row]
            axes[0, column].loglog([row[key] for row in rows], [row["seconds"] for row in rows], "o-")
            axes[0, column].set(xlabel=label, ylabel="seconds of 20 steps")
            _tick(axes[0, column], [row[key] for row in rows])
            _draw_memory(axes[1, column], [row for row in record["tables"]["memory"] if row["against"] == key], key)
            axes[1, column].set(xlabel=label, ylabel="peak MB, data counted")
        figure.tight_layout()
        figure.savefig(folder / "bench-scaling.png", dpi=120)
        plt.close(figure)


def _draw_memory(axis: Any, rows: list[dict[str, Any]], key: str) -> None:
    for weight in sorted({row["graph weight"] for row in rows}):
        some = [row for row in rows if row["graph weight"] == weight]
        axis.loglog(
            [row[key] for row in some], [row["peak MB"] for row in some], "o-", label=f"graph weight {weight:g}"
        )
    _tick(axis, sorted({row[key] for row in rows}))
    axis.legend()


def _tick(axis: Any, sizes: list[int]) -> None:
    """Name the sizes that were measured, and no others."""
    axis.set_xticks(sizes, [f"{size:,}".replace(",", " ") for size in sizes])
    axis.set_xticks([], minor=True)
