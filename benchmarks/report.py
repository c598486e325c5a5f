"""The record of the suite as JSON, as a page and as pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SIZES = (("images", "n", "images"), ("atoms", "n_atoms", "atoms"), ("tube", "tube_length", "length of the tube"))


def write(record: dict[str, Any], titles: dict[str, str], path: Path) -> None:
    """Write the record, the page beside it, and its pictures where the record is a full one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1))
    path.with_suffix(".md").write_text(markdown(record, titles))
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
        "Every ratio is of two things timed alternately in this run with the same threads, medians of repeats.",
    ]
    for name, title in titles.items():
        if name not in tables:
            continue
        keys = list(dict.fromkeys(key for row in tables[name] for key in row))
        lines += ["", f"## {title}", "", "| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
        lines += ["| " + " | ".join(_cell(row.get(key, "")) for key in keys) + " |" for row in tables[name]]
    return "\n".join(lines) + "\n"


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
    axis.legend()
