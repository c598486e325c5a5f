"""What all tables share: the numbers that the paper states, read from ``paper.toml``, and parts of pages."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from tubal.experiments.trials import Score
from tubal.storage.files import atomic_write

Scores = Mapping[str, float]


@dataclass(frozen=True)
class PaperCollection:
    """What the paper states about one collection: its line of Table 1, numbers of atoms, its column of Table 2.

    ``n_atoms`` is for TubSC and GTSC, ``n_vector_atoms`` for SC and GraphSC. ``printed`` maps a method to its
    accuracy and NMI in percent.
    """

    title: str
    n_classes: int
    image_shape: tuple[int, int]
    n_images: int
    n_atoms: int
    n_vector_atoms: int
    printed: Mapping[str, Scores]


@dataclass(frozen=True)
class Paper:
    """The paper's evaluation: ``paper["orl"].n_atoms``, ``paper.n_neighbors``, ``paper.average``."""

    runs: int
    graph_weight: float
    n_neighbors: int
    pca_variance: float
    collections: Mapping[str, PaperCollection]
    average: Mapping[str, Scores]

    def __getitem__(self, dataset: str) -> PaperCollection:
        return self.collections[dataset]


@cache
def load_paper() -> Paper:
    """Return the paper's numbers.

    >>> load_paper()["yale"].n_atoms, load_paper().n_neighbors
    (80, 3)
    """
    content = read_toml("paper.toml")
    protocol, average = content.pop("protocol"), content.pop("average")["printed"]
    collections = {
        name: PaperCollection(**{**entry, "image_shape": tuple(entry["image_shape"])})
        for name, entry in content.items()
    }
    return Paper(**protocol, collections=collections, average=average)


def read_toml(name: str) -> dict[str, Any]:
    """Return the content of a TOML file in the folder of this module."""
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


# --- the numbers that the paper states ----------------------------------------------------------------------
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
