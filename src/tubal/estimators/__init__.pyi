from .convolutional_coder import CSC
from .explanation import Explanation, explain_images
from .image_coder import ImageCoder
from .separable_coder import TenSR
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
