"""What an experiment is made of: methods, trials, the records of finished trials, and tables.

A *trial* runs one method once on one collection. A *row* names the kind of settings it uses, for example
``"label-free"``; *runs* repeat a trial with other seeds. A finished trial leaves a :class:`Record`, and a table
summarises many of them. The numbers that the paper states are read from ``paper.toml``.
"""

from __future__ import annotations

import json
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

import tubal
from tubal.storage.files import Machine

Images = NDArray[np.floating[Any]]
Labels = NDArray[np.integer[Any]]
Settings = Mapping[str, Any]
Score = Literal["accuracy", "nmi"]

SCORES: tuple[Score, ...] = ("accuracy", "nmi")


class Outcome(NamedTuple):
    """What a method found.

    Labels (n_images,), -1 for images that are not scored; numbers that describe how they were found; labels of variants
    of the method; and, to be judged by classifiers, features (n_images, n_features) with a mask of the images that the
    method was fitted to.
    """

    labels: Labels
    details: dict[str, float]
    variants: Mapping[str, Labels] = {}
    features: NDArray[np.floating[Any]] | None = None
    train: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Method:
    """One line of a table.

    ``cluster`` takes images (n_images, height, width), a number of clusters, settings and a seed.
    """

    title: str  # shown in tables
    cluster: Callable[[Images, int, Settings, int], Outcome]
    settings: tuple[str, ...]  # names of those that ``cluster`` reads
    requires: str | None = None  # optional package that ``cluster`` imports
    hint: str = ""  # how to install that package

    def unavailable(self) -> str | None:
        """Return one sentence about the missing package, or None when the method can run."""
        if self.requires is None or find_spec(self.requires) is not None:
            return None
        return f"{self.title} needs the package {self.requires}: {self.hint}"


class Trial(TypedDict):
    """What identifies a trial: ``run`` is also its random seed, ``settings`` holds every setting its method reads."""

    table: str
    dataset: str
    method: str
    row: str
    run: int
    settings: Settings


class Record(Trial):
    """A finished trial as it is stored: the trial, its scores in percent, its cost, and where it ran."""

    key: str
    seed: int
    accuracy: float
    nmi: float
    seconds: float
    peak_memory_mb: float
    process_memory_mb: float
    memory_measure: str
    details: dict[str, float]
    variants: NotRequired[dict[str, dict[Score, float]]]
    data_sha256: str
    versions: dict[str, str]
    machine: NotRequired[Machine]
    jobs: NotRequired[int]


class ScoreCell(TypedDict):
    """One score of a cell of a table, in percent, over the runs."""

    mean: float
    sd: float
    best: float


class CellCost(TypedDict):
    """How often a cell of a table was run, what one run cost, and its settings."""

    runs: int
    seconds: float
    peak_memory_mb: int
    settings: Settings


class Table(Protocol):
    """The interface of a table module, as ``tubal reproduce`` uses it.

    ``DATASETS`` run by default; ``EXTRA_DATASETS`` run when they are named.
    """

    @property
    def TITLE(self) -> str: ...
    @property
    def DATASETS(self) -> tuple[str, ...]: ...
    @property
    def EXTRA_DATASETS(self) -> tuple[str, ...]: ...
    @property
    def METHODS(self) -> Mapping[str, Method]: ...

    def plan(self, datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False) -> list[Trial]:
        """Return the trials of the table; ``sweep`` adds the trials of its curves."""

    def write(self, records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
        """Write the JSON summary, the Markdown page and the figures; return their paths, the JSON first."""


def trial_key(trial: Trial) -> str:
    """Return a text that is equal for two trials exactly when they give the same record."""
    return json.dumps({**trial, "tubal": tubal.__version__}, sort_keys=True)


def score_cell(scores: Sequence[float]) -> ScoreCell:
    """Return the mean, the standard deviation and the best of some scores, rounded.

    >>> score_cell([60.0, 61.0])
    {'mean': 60.5, 'sd': 0.71, 'best': 61.0}
    """
    return {
        "mean": round(statistics.mean(scores), 2),
        "sd": round(standard_deviation(scores), 2),
        "best": round(max(scores), 2),
    }


def cell_cost(group: Sequence[Record]) -> CellCost:
    """Return the mean time, the median memory and the settings of the records of one cell."""
    return {
        "runs": len(group),
        "seconds": round(statistics.mean(record["seconds"] for record in group), 2),
        "peak_memory_mb": round(statistics.median(record["peak_memory_mb"] for record in group)),
        "settings": group[0]["settings"],
    }


def standard_deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation; 0 for a single value.

    >>> standard_deviation([4.0]), standard_deviation([3.0, 5.0])
    (0.0, 1.4142135623730951)
    """
    return statistics.stdev(values) if len(values) > 1 else 0.0


# --- the numbers that the paper states ------------------------------------------------------------------------------
Scores = Mapping[str, float]


@dataclass(frozen=True)
class PaperCollection:
    """What the paper states about one collection: its line of Table 1, numbers of atoms, its column of Table 2.

    ``n_atoms`` is for TubSC and GTSC, ``n_vector_atoms`` for SC and GraphSC. ``printed`` maps a method to its
    accuracy and NMI in percent.
    """

    title: str
    n_images: int
    n_classes: int
    image_shape: tuple[int, int]
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
