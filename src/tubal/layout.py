"""Public import path of the image layouts, which are defined in :mod:`tubal.problems.layout`."""

from tubal.problems.layout import ImageLayout, PlaneLayout, SeparableLayout

__all__ = ["ImageLayout", "PlaneLayout", "SeparableLayout"]
