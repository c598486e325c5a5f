"""The import path of the layouts, which live in :mod:`tubal.problems.layout`."""

from tubal.problems.layout import ImageLayout, PlaneLayout, SeparableLayout

__all__ = ["ImageLayout", "PlaneLayout", "SeparableLayout"]
