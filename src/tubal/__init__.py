"""Sparse, shift-aware codes and clusters for piles of small images, without labels."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives. Nothing is imported before it is asked for (PEP 562), so that
# `import tubal` and `tubal --help` stay quick.
_HOMES = {
    "GTSC": "tubal.estimators",
    "TubSC": "tubal.estimators",
    "GraphSC": "tubal.estimators",
    "SparseCoding": "tubal.estimators",
    "TenSR": "tubal.estimators",
    "CSC": "tubal.estimators",
    "ImageClusterer": "tubal.estimators",
    "save": "tubal.persistence",
    "load": "tubal.persistence",
}

__all__ = ["CSC", "GTSC", "GraphSC", "ImageClusterer", "SparseCoding", "TenSR", "TubSC", "load", "save"]

if TYPE_CHECKING:
    from tubal.estimators import CSC, GTSC, GraphSC, ImageClusterer, SparseCoding, TenSR, TubSC
    from tubal.persistence import load, save


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tubal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
