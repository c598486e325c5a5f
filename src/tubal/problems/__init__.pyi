from .base import (
    CodingProblem,
    DictionaryProblem,
    DualityGap,
    ImageModel,
    MomentumState,
    SplitState,
    Statistics,
    Summary,
)
from .convolutional import ConvolutionalModel, ConvolutionalStatistics
from .layout import ImageLayout, Layout, PlaneLayout, SeparableLayout, position_norms, signed_codes
from .linear_map import LinearMapCoding, LinearMapModel
from .separable import SeparableModel, SeparableStatistics
from .tubal import TubalModel, TubalStatistics

__all__ = [
    "CodingProblem",
    "ConvolutionalModel",
    "ConvolutionalStatistics",
    "DictionaryProblem",
    "DualityGap",
    "ImageLayout",
    "ImageModel",
    "Layout",
    "LinearMapCoding",
    "LinearMapModel",
    "MomentumState",
    "PlaneLayout",
    "SeparableLayout",
    "SeparableModel",
    "SeparableStatistics",
    "SplitState",
    "Statistics",
    "Summary",
    "TubalModel",
    "TubalStatistics",
    "position_norms",
    "signed_codes",
]
