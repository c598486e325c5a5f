"""The model: what counts as a small deformation, and how hard the search tries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .affine import MotionBank


@dataclass(frozen=True)
class Deformation:
    """What counts as a small deformation of an image.

    Two images are neighbours when one, after a rotation by at most ``rotation`` degrees, a scaling by at most
    ``scale`` and a shift by at most ``shift`` of its side, agrees with the other up to a local warp: every
    pixel may move by a further ``window`` of the side to where the gradients of its surroundings fit best.
    ``shift`` and ``window`` are at least ``least_pixels`` (working pixels), which is what counts below 64
    pixels a side. Images are compared at a working size of ``least_size`` to ``most_size`` pixels in all:
    larger ones are averaged down for the graph only, smaller two-dimensional ones interpolated up.
    ``field="pixels"`` compares pixel values in place of gradients, which light and shade change more.

    >>> Deformation(rotation=15.0).warps()[0]
    (-15.0, 0.9259259259259258)
    """

    rotation: float = 10.0
    n_rotations: int = 5
    scale: float = 1.08
    n_scales: int = 3
    shift: float = 1 / 32
    window: float = 1 / 32
    least_pixels: int = 2
    least_size: int = 256
    most_size: int = 4096
    field: str = "gradient"

    def __post_init__(self) -> None:
        if not (0 <= self.rotation <= 180 and self.scale >= 1 and 0 <= self.shift < 1 and 0 <= self.window < 1):
            raise ValueError(
                f"{self} is no deformation; rotation lies in 0..180 degrees, scale is at least 1, shift and "
                "window are shares of the image side in [0, 1)"
            )
        if self.n_rotations < 1 or self.n_scales < 1 or self.least_pixels < 0 or self.least_size < 1:
            raise ValueError(f"{self} is no deformation; counts and sizes must be positive")
        if self.field not in ("gradient", "pixels"):
            raise ValueError(f"field={self.field!r}; compare images by their 'gradient' or by their 'pixels'")

    def warps(self) -> tuple[tuple[float, float], ...]:
        """All (rotation, scale) pairs that are tried."""
        rotations = np.linspace(-self.rotation, self.rotation, self.n_rotations) if self.n_rotations > 1 else [0.0]
        scales = np.geomspace(1 / self.scale, self.scale, self.n_scales) if self.n_scales > 1 else [1.0]
        return tuple((float(rotation), float(scale)) for rotation in rotations for scale in scales)

    def pixels(self, share: float, side: int) -> int:
        """A share of a side in working pixels; a side of one pixel cannot move."""
        return min(side - 1, max(self.least_pixels if share > 0 else 0, round(share * side)))

    def bank(self, shape: tuple[int, int]) -> MotionBank:
        """The motions tried on images of a working ``shape``: warps and whole-pixel shifts."""
        down, across = (self.pixels(self.shift, side) for side in shape)
        # At most five steps a direction: the window bridges what lies between them.
        rows, columns = ({round(step) for step in np.linspace(-most, most, 5)} for most in (down, across))
        shifts = tuple((dy, dx) for dy in sorted(rows) for dx in sorted(columns))
        return MotionBank(shape, self.warps(), shifts, plain=self.field == "pixels")


@dataclass(frozen=True)
class Effort:
    """How far each stage looks: candidates, kept ones, length of the basis, radius of the context.

    Beyond ``exact_limit`` images the candidates come from an approximate index.
    """

    n_candidates: int
    n_kept: int
    rank: int
    context: int
    exact_limit: int = 20_000

    @classmethod
    def for_collection(cls, n_images: int, n_neighbors: int) -> Effort:
        """Small collections can afford longer lists and 5 x 5 contexts; only size counts."""
        if n_images <= 2000:
            return cls(max(200, 4 * n_neighbors), max(100, 2 * n_neighbors), 256, 2)
        return cls(max(50, 4 * n_neighbors), max(30, 2 * n_neighbors), 64, 1)
