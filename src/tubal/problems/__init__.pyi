from .base import CodingProblem, ImageModel
from .layout import ImageLayout
from .mapped import MappedCoding
from .tubal import TubalModel

__all__ = ["CodingProblem", "ImageLayout", "ImageModel", "MappedCoding", "TubalModel"]
