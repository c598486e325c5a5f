from .base import CodingProblem, ImageModel, MomentumState, SplitState
from .convolutional_dictionary import ConvolutionalStatistics
from .layout import ImageLayout, PlaneLayout, SeparableLayout
from .mapped import MappedCoding
from .separable import SeparableStatistics
from .tubal import TubalModel
from .tubal_dictionary import TubalStatistics

__all__ = [
    "CodingProblem",
    "ConvolutionalStatistics",
    "ImageLayout",
    "ImageModel",
    "MappedCoding",
    "MomentumState",
    "PlaneLayout",
    "SeparableLayout",
    "SeparableStatistics",
    "SplitState",
    "TubalModel",
    "TubalStatistics",
]
