"""The numbers that the paper states about its evaluation, read from ``paper.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

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
