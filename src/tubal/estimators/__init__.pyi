from .explanation import Explanation, explain_images
from .image_coder import ImageCoder
from .other_coders import CSC, TenSR
from .tubal_coders import GTSC, GraphSC, SparseCoding, TubSC

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
