from .base import (
    CodingProblem,
    DictionaryProblem,
    ImageModel,
    MomentumState,
    SplitState,
    Statistics,
    Summary,
)
from .convolutional import ConvolutionalModel
from .layout import ImageLayout, Layout, PlaneLayout, SeparableLayout, position_norms, signed_codes
from .linear_map import LinearMapCoding
from .separable import SeparableModel
from .tubal import TubalModel

__all__ = [
    "CodingProblem",
    "ConvolutionalModel",
    "DictionaryProblem",
    "ImageLayout",
    "ImageModel",
    "Layout",
    "LinearMapCoding",
    "MomentumState",
    "PlaneLayout",
    "SeparableLayout",
    "SeparableModel",
    "SplitState",
    "Statistics",
    "Summary",
    "TubalModel",
    "position_norms",
    "signed_codes",
]
