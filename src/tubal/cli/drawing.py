"""A drawing of how the largest terms of a code build one image, made with Pillow alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tubal.estimators.explanation import Explanation

__all__ = ["draw"]

Pixels = NDArray[np.floating[Any]]
CELL, GAP, CAPTION, SIDE = 96, 10, 18, 120
DARK, WHITE, GREY = (32, 36, 44), (255, 255, 255), (110, 116, 128)


def draw(explanation: Explanation, limit: int) -> Image.Image:
    """Draw one column for each of the ``limit`` largest terms: the atom, the atom shifted and weighted, the sum."""
    n_terms = min(limit, len(explanation))
    row = CELL + CAPTION + GAP
    left = GAP + SIDE
    sheet = Image.new("RGB", (left + (n_terms + 2) * (CELL + GAP), GAP + 3 * row), WHITE)
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=12)

    def put(column: int, line: int, values: Pixels, limits: tuple[float, float], caption: str) -> None:
        x, y = left + column * (CELL + GAP), GAP + line * row
        _paste(sheet, (x, y), values, limits)
        pen.text((x, y + CELL + 2), caption, fill=GREY, font=font)

    for line, title in enumerate(("atom", "shifted, weighted", "sum so far")):
        pen.text((GAP, GAP + line * row + CELL // 2), title, fill=DARK, font=font)
    brightest = float(explanation.image.max()) or 1.0
    put(0, 2, explanation.image, (0.0, brightest), "the image")
    put(n_terms + 1, 2, explanation.norm * explanation.reconstruction(), (0.0, brightest), "all terms")
    for i, cells in enumerate(_columns(explanation, n_terms)):
        for line, (values, limits, caption) in enumerate(cells):
            put(i + 1, line, values, limits, caption)
    return sheet


def _columns(explanation: Explanation, n_terms: int) -> list[list[tuple[Pixels, tuple[float, float], str]]]:
    """Return the three cells of every column, top to bottom: values, the range from black to white, the caption."""
    parts = [explanation.norm * explanation.term(i) for i in range(n_terms)]
    strongest = float(np.abs(parts).max()) or 1.0
    brightest = float(explanation.image.max()) or 1.0
    columns = []
    for i, (part, total) in enumerate(zip(parts, accumulate(parts), strict=True)):
        atom = explanation.dictionary[explanation.atoms[i]]
        peak = float(np.abs(atom).max()) or 1.0
        down, right = explanation.offsets[i].tolist()
        shift = _shift_in_words(down, right, explanation.image.shape) or "not shifted"
        columns.append(
            [
                (atom, (-peak, peak), f"atom {explanation.atoms[i]}"),
                (part, (-strongest, strongest), f"{explanation.coefficients[i]:+.2f}  {shift}"),
                (total, (0.0, brightest), f"{i + 1} of {len(explanation)}"),
            ]
        )
    return columns


def _shift_in_words(down: int, right: int, shape: Sequence[int]) -> str:
    """Describe a circular shift in its shorter direction.

    >>> _shift_in_words(0, 7, (8, 8)), _shift_in_words(2, 0, (8, 8))
    ('left 1', 'down 2')
    """
    words = []
    for shift, extent, forward, backward in ((down, shape[0], "down", "up"), (right, shape[1], "right", "left")):
        if shift % extent:
            short = shift if 2 * shift <= extent else shift - extent
            words.append(f"{forward if short > 0 else backward} {abs(short)}")
    return ", ".join(words)


def _paste(sheet: Image.Image, position: tuple[int, int], values: Pixels, limits: tuple[float, float]) -> None:
    """Paste values, enlarged to a cell, with the lower limit black and the upper limit white."""
    low, high = limits
    grey = np.uint8(np.clip((values - low) / (high - low), 0.0, 1.0) * 255.0 + 0.5)
    tile = Image.fromarray(np.asarray(grey))
    scale = CELL / max(tile.size)
    size = (max(1, round(tile.width * scale)), max(1, round(tile.height * scale)))
    sheet.paste(tile.convert("RGB").resize(size, Image.Resampling.NEAREST), position)
