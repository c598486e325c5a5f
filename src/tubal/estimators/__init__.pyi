from .coders import CSC, GTSC, GraphSC, SparseCoding, TenSR, TubSC
from .explanation import Explanation, explain_images
from .image_coder import ImageCoder

__all__ = [
    "CSC",
    "GTSC",
    "Explanation",
    "GraphSC",
    "ImageCoder",
    "SparseCoding",
    "TenSR",
    "TubSC",
    "explain_images",
]
