"""The record of the suite as JSON, as a page and as pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tubal.experiments.pages import markdown_table

# What is promised: section, the column that holds it, the column that bounds it, whether large is good, and the words.
CLAIMS = (
    ("sporco", "ratio", "wanted", True, "coding without a graph, times faster than SPORCO to its objective"),
    ("algorithm 1", "ratio", "wanted", True, "coding with a graph, times faster than the paper's Algorithm 1"),
    ("convolutional", "ratio", "wanted", True, "CSC coding, times faster than SPORCO to its objective"),
    ("umap", "ratio", "wanted", True, "a GTSC fit from a cold process, times faster than UMAP"),
    ("dictionary learning", "ratio", "wanted", True, "a GTSC fit, times faster than MiniBatchDictionaryLearning"),
    ("default preset", "units", "at most", False, "USPS, in units of UMAP + K-means"),
    ("small collections", "seconds", "seconds at most", False, "COIL20, ORL, Yale and digits clustered, seconds"),
    ("many images", "graph seconds", "at most", False, "deformable graph of 20 000 to 50 000 images, log-log slope"),
    ("many images", "preset seconds", "at most", False, "the same images clustered, log-log slope"),
    ("images", "seconds", "at most", False, "coding against the number of images, log-log slope"),
    (
        "memory",
        "peak in codes",
        "at most",
        False,
        "peak memory of encoding, and of the splitting with a graph, in units of the codes",
    ),
    ("thread", "ratio", "wanted", True, "what a second thread brings, as a share of what it brings a GEMM"),
    ("first use", "seconds", "at most", False, "first use in a new process, seconds"),
)
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
    for section, column, bound, large_is_good, words in CLAIMS:
        rows = [row for row in record["tables"].get(section, ()) if bound in row]
        for limit in sorted({row[bound] for row in rows}):
            bounded = [row for row in rows if row[bound] == limit]
            figures = "; ".join(f"{_short(row['problem'])}: {row[column]:.3g}" for row in bounded)
            kept = all(row[column] >= limit if large_is_good else row[column] <= limit for row in bounded)
            wanted = f"{'at least' if large_is_good else 'at most'} {limit:g}"
            body.append([words, figures, wanted, "yes" if kept else "**no**"])
    return markdown_table(["measured", "found", "wanted", "met"], body)


def _short(problem: str) -> str:
    """Return a problem's name without its sizes, which the full table has."""
    first, *rest = problem.split(", ")
    kept = [part for part in rest if part.startswith("graph weight") or not any(letter.isdigit() for letter in part)]
    return ", ".join([first, *kept])


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
