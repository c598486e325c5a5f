"""Features and a graph in, labels out, with what a clustering says of its images.

Names are loaded on first use (PEP 562), so importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .centroids import kmeans
    from .counting import ClusterCount, estimate_n_clusters, modularity
    from .cut import normalised_cut, spectral_cut
    from .diffusion import diffusion_cut
    from .eigen import Spectrum, spectrum
    from .mapping import graph_map
    from .quality import confidence, medoids, near_duplicates, outliers
    from .voting import vote
    from .weights import mutual_adjacency, weight_edges_by_codes, with_second_order

_HOME = {
    "ClusterCount": "counting",
    "Spectrum": "eigen",
    "confidence": "quality",
    "diffusion_cut": "diffusion",
    "estimate_n_clusters": "counting",
    "graph_map": "mapping",
    "kmeans": "centroids",
    "medoids": "quality",
    "modularity": "counting",
    "mutual_adjacency": "weights",
    "near_duplicates": "quality",
    "normalised_cut": "cut",
    "outliers": "quality",
    "spectral_cut": "cut",
    "spectrum": "eigen",
    "vote": "voting",
    "weight_edges_by_codes": "weights",
    "with_second_order": "weights",
}

__all__ = [
    "ClusterCount",
    "Spectrum",
    "confidence",
    "diffusion_cut",
    "estimate_n_clusters",
    "graph_map",
    "kmeans",
    "medoids",
    "modularity",
    "mutual_adjacency",
    "near_duplicates",
    "normalised_cut",
    "outliers",
    "spectral_cut",
    "spectrum",
    "vote",
    "weight_edges_by_codes",
    "with_second_order",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
