"""What the pages of all tables share: Markdown tables, titles, and writing files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tubal.experiments.paper import load_paper
from tubal.experiments.trials import Score
from tubal.storage.files import atomic_write

SCORE_NAMES: Mapping[Score, str] = {"accuracy": "accuracy", "nmi": "NMI"}


def markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table.

    >>> print(markdown_table(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def join_parts(parts: Sequence[str]) -> str:
    """Return a page: its non-empty parts, separated by blank lines.

    >>> join_parts(["# Title", "", "Text."])
    '# Title\\n\\nText.\\n'
    """
    return "\n\n".join(part for part in parts if part) + "\n"


def dataset_title(dataset: str) -> str:
    """Return the name of a collection as the paper prints it; other names are returned as they are.

    >>> dataset_title("orl"), dataset_title("digits")
    ('ORL', 'digits')
    """
    collections = load_paper().collections
    return collections[dataset].title if dataset in collections else dataset


def list_subsets(subsets: Mapping[str, int]) -> str:
    """Return which collections were used in part, as words.

    >>> list_subsets({"usps": 2000})
    '2000 evenly spaced images of USPS'
    """
    return "; ".join(f"{count} evenly spaced images of {dataset_title(name)}" for name, count in subsets.items())


def list_versions(versions: Mapping[str, str]) -> str:
    """Return versions as one line of text.

    >>> list_versions({"numpy": "2.4", "python": "3.11"})
    'numpy 2.4, python 3.11'
    """
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def write_summary(name: str, summary: Mapping[str, object], page: str, folder: Path) -> list[Path]:
    """Write a summary as ``name.json`` and its page as ``name.md`` into ``folder``; return the two paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {folder / f"{name}.json": json.dumps(summary, indent=1) + "\n", folder / f"{name}.md": page}
    for path, text in texts.items():
        with atomic_write(path, "w", encoding="utf-8") as file:
            file.write(text)
    return list(texts)
