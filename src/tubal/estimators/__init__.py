"""Estimators in scikit-learn's manner; names are loaded when asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "TubSC": "tubal_coders",
    "GTSC": "tubal_coders",
    "SparseCoding": "column_coders",
    "GraphSC": "column_coders",
    "TenSR": "separable_coder",
    "CSC": "convolutional_coder",
    "ImageClusterer": "clusterer",
}

__all__ = ["CSC", "GTSC", "GraphSC", "ImageClusterer", "SparseCoding", "TenSR", "TubSC"]

if TYPE_CHECKING:
    from tubal.estimators.clusterer import ImageClusterer
    from tubal.estimators.column_coders import GraphSC, SparseCoding
    from tubal.estimators.convolutional_coder import CSC
    from tubal.estimators.separable_coder import TenSR
    from tubal.estimators.tubal_coders import GTSC, TubSC


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"tubal.estimators.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tubal.estimators' has no attribute {name!r}")
