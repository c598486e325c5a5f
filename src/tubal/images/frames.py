"""Bringing pixels to a common frame: cutting to the content, scaling, and padding with the colour of the border."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tubal.text import shape_text

__all__ = [
    "Content",
    "Frame",
    "Pixels",
    "check_stack_size",
    "content_box",
    "content_of",
    "fit_into",
    "ground_of",
    "place",
    "resize_array",
    "to_grey",
]

Pixels = NDArray[np.float32]

MAX_STACK_BYTES = 8 * 2**30
# Pixels within LOW of the ground (as a share of the full range) belong to it; those beyond HIGH stand out clearly.
LOW, HIGH = 1 / 16, 1 / 4
UNIFORM_SHARE = 0.95  # of the border must be ground
WITH_MARGIN = 1 + 2 / 16  # content and a sixteenth on every side
LUMINANCE = np.array([0.299, 0.587, 0.114], dtype=np.float32)


@dataclass(frozen=True)
class Frame:
    """The common shape of all pictures; ``fit`` is ``"pad"`` or ``"crop"``.

    With ``cut``, pictures are cut to their content first, and get a small margin if they are padded.
    """

    height: int
    width: int
    in_color: bool
    fit: str = "pad"
    cut: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one picture as an array."""
        return (self.height, self.width, 3) if self.in_color else (self.height, self.width)

    @property
    def inner(self) -> tuple[int, int]:
        """Height and width that a picture may fill."""
        if not self.cut or self.fit == "crop":
            return self.height, self.width
        return max(1, round(self.height / WITH_MARGIN)), max(1, round(self.width / WITH_MARGIN))


@dataclass(frozen=True)
class Content:
    """What a picture shows on its ground, the median colour of its border.

    ``height`` and ``width`` are those of the smallest box around everything that differs from the ground, 0 in a blank
    picture. ``moved`` says how far that box moves, as a share of its longer side, if only strong differences count.
    """

    uniform: bool
    height: int
    width: int
    moved: float


def check_stack_size(what: str, shape: tuple[int, ...], advice: str) -> None:
    """Raise an error before a stack of float32 images is allocated that would not fit into memory."""
    n_bytes = 4 * math.prod(shape)
    if n_bytes > MAX_STACK_BYTES:
        raise ValueError(
            f"{what} would take {n_bytes / 2**30:.0f} GiB as an array of {shape_text(shape)}; "
            f"at most {MAX_STACK_BYTES // 2**30} GiB are read at once, so {advice}"
        )


def to_grey(pixels: Pixels) -> Pixels:
    """Return the luminance ``(..., h, w)`` of colour pictures ``(..., h, w, 3)``; grey pixels keep their exact value.

    >>> to_grey(np.array([[[0.25, 0.25, 0.25], [1.0, 0.0, 0.0]]], dtype=np.float32))
    array([[0.25 , 0.299]], dtype=float32)
    """
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    return np.asarray(np.where((red == green) & (green == blue), red, pixels @ LUMINANCE))


def resize_array(pixels: Pixels, frame: Frame) -> Pixels:
    """Bring a float array ``(h, w)`` or ``(h, w, 3)`` to the shape of the frame, keeping its range of values."""
    if pixels.ndim == 3 and not frame.in_color:
        pixels = to_grey(pixels)
    ground = None
    if frame.cut:
        ground = ground_of(pixels)
        box = content_box(pixels, ground, LOW * _extent(pixels))
        pixels = pixels[box[0] : box[1], box[2] : box[3]] if box else pixels
    if pixels.shape[:2] != frame.inner:
        planes = pixels[..., None] if pixels.ndim == 2 else pixels
        resized = [
            np.asarray(fit_into(Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32)), frame))
            for plane in np.moveaxis(planes, -1, 0)
        ]
        pixels = resized[0] if pixels.ndim == 2 else np.stack(resized, axis=-1)
    pixels = place(pixels, frame, ground)
    if frame.in_color and pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=-1)
    return np.ascontiguousarray(pixels, dtype=np.float32)


def fit_into(image: Image.Image, frame: Frame) -> Image.Image:
    """Scale a picture to lie inside the frame (pad), or to cover it and keep the middle (crop)."""
    width, height = image.size
    inner_height, inner_width = frame.inner
    if (height, width) == (inner_height, inner_width):
        return image
    # A reducing gap lets Pillow shrink large pictures in two quick steps; it does not support float planes.
    gap = 3.0 if image.mode != "F" else None
    if frame.fit == "crop":
        scale = max(frame.width / width, frame.height / height)
        box_width, box_height = frame.width / scale, frame.height / scale
        left, top = (width - box_width) / 2.0, (height - box_height) / 2.0
        box = (max(left, 0.0), max(top, 0.0), min(left + box_width, width), min(top + box_height, height))
        return image.resize((frame.width, frame.height), Image.Resampling.BILINEAR, box=box, reducing_gap=gap)
    scale = min(inner_width / width, inner_height / height)
    size = (
        min(max(1, round(width * scale)), inner_width),
        min(max(1, round(height * scale)), inner_height),
    )
    return image.resize(size, Image.Resampling.BILINEAR, reducing_gap=gap)


def place(pixels: NDArray[Any], frame: Frame, ground: NDArray[Any] | None) -> NDArray[Any]:
    """Put a picture into the middle of the frame, on ``ground`` or else on the median colour of its own border."""
    height, width = pixels.shape[:2]
    if (height, width) == (frame.height, frame.width):
        return pixels
    placed = np.empty((frame.height, frame.width, *pixels.shape[2:]), dtype=pixels.dtype)
    placed[...] = ground_of(pixels) if ground is None else ground
    top, left = (frame.height - height) // 2, (frame.width - width) // 2
    placed[top : top + height, left : left + width] = pixels
    return placed


def ground_of(values: NDArray[Any]) -> NDArray[Any]:
    """Return the median colour of the border, in the type of the values."""
    return np.asarray(np.median(_border(values), axis=0).astype(values.dtype))


def _extent(values: NDArray[Any]) -> float:
    return float(values.max()) - float(values.min())


def _border(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([values[0], values[-1], values[1:-1, 0], values[1:-1, -1]])


def _distance(values: NDArray[Any], ground: NDArray[Any]) -> NDArray[Any]:
    """Return how far pixels are from the ground in the channel that differs most, without a wider type."""
    far = np.maximum(values, ground) - np.minimum(values, ground)
    return np.asarray(far.max(axis=-1) if ground.ndim else far)


def content_box(values: NDArray[Any], ground: NDArray[Any], tolerance: float) -> tuple[int, int, int, int] | None:
    """Return ``(top, bottom, left, right)`` of what differs from the ground by more than the tolerance."""
    differs = _distance(values, ground) > tolerance
    rows, columns = np.flatnonzero(differs.any(axis=1)), np.flatnonzero(differs.any(axis=0))
    if not len(rows):
        return None
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def content_of(values: NDArray[Any], size: tuple[int, int]) -> Content:
    """Measure the content of a picture of 8 bits, or of floats, whose full ``size`` may be larger."""
    full = 255.0 if values.dtype == np.uint8 else _extent(values)
    ground = ground_of(values)
    uniform = float((_distance(_border(values), ground) <= LOW * full).mean()) >= UNIFORM_SHARE
    box, strong = (content_box(values, ground, tolerance * full) for tolerance in (LOW, HIGH))
    if box is None:
        return Content(uniform, 0, 0, 0.0)
    height, width = box[1] - box[0], box[3] - box[2]
    moved = float(np.abs(np.subtract(box, strong)).max()) / max(height, width) if strong else 1.0
    scale = max(size) / max(values.shape[:2])
    return Content(uniform, max(1, round(height * scale)), max(1, round(width * scale)), moved)
