"""Neighbour graphs of images: who looks like whom, and the Laplacian that says so.

Names are loaded on first use (PEP 562), so importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .approximate import candidate_recall
    from .consensus import consensus_adjacency
    from .deformable import deformable_graph
    from .deformation import Deformation
    from .laplacians import laplacian, laplacian_norm
    from .neighbours import knn_graph
    from .resolve import resolve_graph
    from .structure import Alignments, Graph, Neighbours

_HOME = {
    "Alignments": "structure",
    "Deformation": "deformation",
    "candidate_recall": "approximate",
    "consensus_adjacency": "consensus",
    "deformable_graph": "deformable",
    "Graph": "structure",
    "Neighbours": "structure",
    "knn_graph": "neighbours",
    "laplacian": "laplacians",
    "laplacian_norm": "laplacians",
    "resolve_graph": "resolve",
}

__all__ = [
    "Alignments",
    "Deformation",
    "Graph",
    "Neighbours",
    "candidate_recall",
    "consensus_adjacency",
    "deformable_graph",
    "knn_graph",
    "laplacian",
    "laplacian_norm",
    "resolve_graph",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
