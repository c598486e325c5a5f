from .column_coders import GraphSC, SparseCoding
from .convolutional_coder import CSC
from .separable_coder import TenSR
from .tubal_coders import GTSC, TubSC

__all__ = ["CSC", "GTSC", "GraphSC", "SparseCoding", "TenSR", "TubSC"]
