"""Write every generated page again from its stored JSON: ``python -m tools.render [--check]``.

Pages are ``results/*.md``; the README and pages of ``docs`` hold short forms of some of them between markers such as
``<!-- table2:begin -->`` and ``<!-- table2:end -->``. Nothing is measured, so a change of wording never needs a new
run. Run it after ``tubal reproduce`` and ``python -m benchmarks`` to bring both up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages import bench_page, gpu_page, target_table
from tools import app, claims, confidence, criterion, density, open_piles, piles, release_record, scale_tables
from tubal.experiments import atlas, beyond, family, finals, hints, protocol, search, table2
from tubal.experiments.pages import dataset_title, markdown_table
from tubal.storage.files import atomic_write

# Pages that need nothing but their own JSON.
PAGES: Mapping[str, Callable[[Any], str]] = {
    "table2": table2.page,
    "table2_search": search.page,
    "table2_finals": finals.page,
    "atlas": atlas.page,
    "protocol": protocol.page,
    "density": density.page,
    "beyond": beyond.page,
    "family": family.page,
    "criterion": criterion.page,
    "piles": piles.page,
    "open_piles": open_piles.page,
    "views": piles.collections_page,
    "hints": hints.page,
    "confidence": confidence.page,
    "bench": bench_page,
    "app": app.page,
    "release": release_record.page,
}


def _beyond_block(summary: beyond.Summary) -> str:
    source = "How the number of neighbours, the weights and the assignment were judged without labels: "
    return f"{beyond.short_page(summary)}\n\n{source}[criterion](../results/criterion.md)."


def _family_block(summary: family.Summary) -> str:
    source = "Made by `tubal reproduce --table family`; the [results](../results/family.md) have "
    return f"{family.short_page(summary)}\n\n{source}every collection, curves and shifts."


# The rows of the README, from the simplest method to ours.
SUMMARY_ROWS = ("kmeans", "spectral", "umap", "spectral-deformable", "default")


def _summary_block(summary: beyond.Summary) -> str:
    """Return accuracy and NMI of five methods; the standard deviations are on the page of results."""
    body = [
        [
            summary["methods"][method],
            *(" / ".join(f"{cells[name][score]['mean']:.1f}" for score in ("accuracy", "nmi")) for name in cells),
        ]
        for method, cells in summary["table"].items()
        if method in SUMMARY_ROWS
    ]
    head = ["accuracy / NMI, %", *map(dataset_title, summary["datasets"])]
    return markdown_table(head, body)


# For every file with blocks: the name of a block, the stored JSON it comes from, and what writes it.
BLOCKS: Mapping[str, Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "README.md": {"summary": ("beyond", _summary_block)},
    "docs/results.md": {
        "table2": ("table2", table2.short_page),
        "beyond": ("beyond", _beyond_block),
        "family": ("family", _family_block),
        "bench": ("bench", target_table),
    },
    "docs/scale.md": {
        "candidates": ("bench", scale_tables.candidates_table),
        "million": ("bench", scale_tables.million_table),
        "gpu": ("gpu", scale_tables.gpu_table),
        "threads": ("bench", scale_tables.threads_table),
        "umap": ("bench", scale_tables.umap_table),
        "workers": ("bench", scale_tables.workers_table),
        "extrapolated": ("bench", scale_tables.extrapolated_table),
    },
}


def render_pages(results: Path) -> dict[Path, str]:
    """Return the text of every page whose JSON is in ``results``, by path."""
    pages = {results / f"{name}.md": page(_load(results, name)) for name, page in PAGES.items() if _has(results, name)}
    if _has(results, "table2") and _has(results, "family"):
        pages[results / "claims.md"] = claims.page(results)
    if _has(results, "gpu"):
        notes = results / "gpu_notes.md"
        text = notes.read_text(encoding="utf-8") if notes.exists() else ""
        pages[results / "gpu.md"] = gpu_page(_load(results, "gpu"), text)
    return pages


def render_blocks(file: str, text: str, results: Path) -> str:
    """Return the text of a file of ``BLOCKS`` with every block replaced whose JSON is in ``results``."""
    for name, (source, block) in BLOCKS[file].items():
        if _has(results, source):
            text = replace_block(text, name, block(_load(results, source)))
    return text


def replace_block(text: str, name: str, block: str) -> str:
    """Return a text with the part between the markers of ``name`` replaced.

    >>> replace_block("a <!-- t:begin --> old <!-- t:end --> z", "t", "new").split()[4]
    'new'
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"the page needs the lines {begin} and {end}, each once and in this order")
    return f"{text[: text.index(begin)]}{begin}\n{block}\n{text[text.index(end) :]}"


def _has(results: Path, name: str) -> bool:
    return (results / f"{name}.json").exists()


def _load(results: Path, name: str) -> Any:
    return json.loads((results / f"{name}.json").read_text(encoding="utf-8"))


def main() -> None:
    """Write the pages and the blocks of other files, or only check them."""
    parser = argparse.ArgumentParser(prog="python -m tools.render", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the stored JSON")
    parser.add_argument("--root", type=Path, default=Path(), help="folder of README.md and docs")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    options = parser.parse_args()
    texts = render_pages(options.results)
    for name in BLOCKS:
        text = (options.root / name).read_text(encoding="utf-8")
        texts[options.root / name] = render_blocks(name, text, options.results)
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in changed:
        if not options.check:
            with atomic_write(path, "w", encoding="utf-8") as file:
                file.write(texts[path])
        print(f"{'differs' if options.check else 'wrote'}: {path}")
    sys.exit(1 if options.check and changed else 0)


if __name__ == "__main__":
    main()
