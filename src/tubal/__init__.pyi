from . import (
    algebra,
    checkpoints,
    clustering,
    datasets,
    distributed,
    estimators,
    graph,
    layout,
    learning,
    metrics,
    plot,
    problems,
    report,
    solvers,
    storage,
)
from .clustering import ImageClusterer
from .estimators import CSC, GTSC, GraphSC, SparseCoding, TenSR, TubSC
from .storage import load, save

__version__: str

__all__ = [
    "CSC",
    "GTSC",
    "GraphSC",
    "ImageClusterer",
    "SparseCoding",
    "TenSR",
    "TubSC",
    "algebra",
    "checkpoints",
    "clustering",
    "datasets",
    "distributed",
    "estimators",
    "graph",
    "layout",
    "learning",
    "load",
    "metrics",
    "plot",
    "problems",
    "report",
    "save",
    "solvers",
    "storage",
]
