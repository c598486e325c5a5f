from .clustering import ImageClusterer
from .estimators import CSC, GTSC, GraphSC, SparseCoding, TenSR, TubSC
from .storage import load, save

__version__: str

__all__ = ["CSC", "GTSC", "GraphSC", "ImageClusterer", "SparseCoding", "TenSR", "TubSC", "load", "save"]
