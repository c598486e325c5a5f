"""Thumbnails packed into a few large pictures, so that one decode serves thousands of images."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from tubal.report.data import Array

LONGEST_SIDE = 96
# Phones refuse to decode very large pictures; four million pixels are safe everywhere.
SHEET_SIDE = 2048
# A replicated border keeps a neighbour's pixels out when the browser smooths a scaled tile.
GUTTER = 1


@dataclass(frozen=True)
class Sprites:
    """Sheets as ``data:`` addresses, and where on them image ``i`` lies.

    Tile ``i`` is on sheet ``i // per_sheet``, at ``GUTTER + pitch * (position % columns)`` across and by the
    same rule down.
    """

    sheets: list[str]
    height: int
    width: int
    columns: int
    per_sheet: int
    pitch: tuple[int, int]
    exact: bool

    @property
    def n_bytes(self) -> int:
        """Size of all sheets in the page."""
        return sum(map(len, self.sheets))


def pack_sprites(images: Array, budget: int = 7_000_000) -> Sprites:
    """Pack ``images`` (n, h, w[, 3]), uint8, into sheets of at most ``budget`` bytes of text together.

    PNG when it fits, else JPEG, else smaller tiles.

    >>> pack_sprites(np.zeros((5, 8, 8), np.uint8)).exact
    True
    """
    longest = LONGEST_SIDE
    small = shrink(images, longest)
    # Noise hardly compresses: a PNG four times over the budget when raw is not worth encoding first.
    sprites = _encode(small, "PNG") if small.nbytes < 4 * budget else _encode(small, "JPEG")
    if sprites.n_bytes > budget:
        sprites = _encode(small, "JPEG")
    while sprites.n_bytes > budget and longest > 12:
        longest = int(longest * 0.8)
        sprites = _encode(shrink(images, longest), "JPEG")
    return sprites


def shrink(images: Array, longest: int) -> Array:
    """Scale a stack down so that no side exceeds ``longest``; smaller stacks are returned as they are."""
    height, width = images.shape[1:3]
    if max(height, width) <= longest:
        return images
    factor = longest / max(height, width)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    resized = [np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS)) for image in images]
    return np.stack(resized)


def _encode(images: Array, kind: str) -> Sprites:
    height, width = images.shape[1:3]
    # JPEG works in blocks of eight: whole blocks per tile keep neighbours from ringing into each other.
    step = 8 if kind == "JPEG" else 1
    pitch = (_round_up(height + 2 * GUTTER, step), _round_up(width + 2 * GUTTER, step))
    columns, rows = max(1, SHEET_SIDE // pitch[1]), max(1, SHEET_SIDE // pitch[0])
    per_sheet = columns * rows
    sheets = [
        _data_address(_sheet(images[start : start + per_sheet], pitch, columns), kind)
        for start in range(0, len(images), per_sheet)
    ]
    return Sprites(sheets, height, width, columns, per_sheet, pitch, exact=kind == "PNG")


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _sheet(images: Array, pitch: tuple[int, int], columns: int) -> Array:
    """Lay images out row by row, each inside its replicated border."""
    height, width = images.shape[1:3]
    after = (pitch[0] - height - GUTTER, pitch[1] - width - GUTTER)
    borders = [(0, 0), (GUTTER, after[0]), (GUTTER, after[1])] + [(0, 0)] * (images.ndim - 3)
    tiles = np.pad(images, borders, mode="edge")
    columns = min(columns, len(tiles))
    rows = -(-len(tiles) // columns)
    filler = np.zeros((rows * columns - len(tiles), *tiles.shape[1:]), np.uint8)
    grid = np.concatenate([tiles, filler]).reshape(rows, columns, *tiles.shape[1:])
    return np.ascontiguousarray(np.moveaxis(grid, 2, 1)).reshape(rows * pitch[0], columns * pitch[1], *images.shape[3:])


def _data_address(sheet: Array, kind: str) -> str:
    buffer = io.BytesIO()
    if kind == "PNG":
        Image.fromarray(sheet).save(buffer, "PNG", optimize=False, compress_level=9)
    else:
        Image.fromarray(sheet).save(buffer, "JPEG", quality=85, subsampling=0)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
