"""The two pipelines of ``ImageClusterer``: what each step is when nobody says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tubal.solvers import Admm


@dataclass(frozen=True)
class Preset:
    """Neighbour graph, its size q, the two weights of GTSC, its alternations, and how labels are made."""

    graph: str
    n_neighbors: int
    graph_weight: float
    sparsity: float
    max_iter: int
    assignment: str  # "diffusion": graph and codes together; "kmeans": K-means on the codes
    code_solver: Any = None


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        # Few and short coding steps: clusters need codes that tell images apart, not the last digits of them.
        "default": Preset("deformable", 5, 10.0, 0.003, 2, "diffusion", Admm(max_iter=3, tol=0.2, check_every=3)),
        "paper": Preset("euclidean", 3, 1.0, 0.01, 25, "kmeans"),
    }
)


def choose_preset(name: Any) -> Preset:
    """Return the preset of that name, or say which there are."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(f"preset={name!r}; it must be one of {', '.join(map(repr, PRESETS))}")
    return PRESETS[name]


def given_or(value: Any, default: Any) -> Any:
    """Return a parameter, or the preset's value when it was left at None."""
    return default if value is None else value
