"""A drawing of an explanation with Pillow alone: the largest terms of an image, and the sums they build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tubal.estimators.explanation import Explanation

__all__ = ["draw"]

CELL, GAP, CAPTION, SIDE = 96, 10, 18, 120
INK, PAPER, FAINT = (32, 36, 44), (255, 255, 255), (110, 116, 128)


def draw(explanation: Explanation, limit: int) -> Image.Image:
    """Draw one column for each of the ``limit`` largest terms: the atom, the atom shifted and weighted, the sum."""
    n_terms = min(limit, len(explanation))
    whole = explanation.norm * explanation.reconstruction()
    parts = [explanation.norm * explanation.term(index) for index in range(n_terms)]
    width = GAP + SIDE + (n_terms + 2) * (CELL + GAP)
    row = CELL + CAPTION + GAP
    sheet = Image.new("RGB", (width, GAP + 3 * row), PAPER)
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=12)
    left = GAP + SIDE
    top = GAP
    for i, title in enumerate(("atom", "shifted, weighted", "sum so far")):
        pen.text((GAP, top + i * row + CELL // 2), title, fill=INK, font=font)
    limits = (0.0, float(explanation.image.max()) or 1.0)
    end = left + (n_terms + 1) * (CELL + GAP)
    for x, values, caption in ((left, explanation.image, "the image"), (end, whole, "all terms")):
        _paste(sheet, (x, top + 2 * row), values, limits)
        pen.text((x, top + 2 * row + CELL + 2), caption, fill=FAINT, font=font)
    for i in range(n_terms):
        _draw_term(sheet, pen, font, explanation, parts, i, (left + (i + 1) * (CELL + GAP), top, row))
    return sheet


def _draw_term(
    sheet: Image.Image, pen: Any, font: Any, explanation: Explanation, parts: Sequence[np.ndarray], i: int,
    place: tuple[int, int, int],
) -> None:  # fmt: skip
    x, top, row = place
    atom, (dy, dx), weight = explanation.atoms[i], explanation.offsets[i], explanation.coefficients[i]
    pixels = explanation.dictionary[atom]
    strength = float(np.abs(parts).max()) or 1.0
    peak = float(np.abs(pixels).max()) or 1.0
    _paste(sheet, (x, top), pixels, (-peak, peak))
    _paste(sheet, (x, top + row), parts[i], (-strength, strength))
    _paste(sheet, (x, top + 2 * row), sum(parts[: i + 1], 0.0 * pixels), (0.0, float(explanation.image.max()) or 1.0))
    shift = _shift_in_words(int(dy), int(dx), explanation.image.shape)
    captions = (
        f"atom {int(atom)}",
        f"{weight:+.2f}  {shift or 'not moved'}",
        f"{i + 1} of {len(explanation)}",
    )
    for line, caption in enumerate(captions):
        pen.text((x, top + line * row + CELL + 2), caption, fill=FAINT, font=font)


def _shift_in_words(dy: int, dx: int, shape: Sequence[int]) -> str:
    """Say a circular shift by its shorter way round.

    >>> _shift_in_words(0, 7, (8, 8)), _shift_in_words(2, 0, (8, 8))
    ('left 1', 'down 2')
    """
    words = []
    for shift, extent, there, back in ((dy, shape[0], "down", "up"), (dx, shape[1], "right", "left")):
        if shift % extent:
            short = shift if 2 * shift <= extent else shift - extent
            words.append(f"{there if short > 0 else back} {abs(short)}")
    return ", ".join(words)


def _paste(sheet: Image.Image, place: tuple[int, int], values: np.ndarray, limits: Sequence[float]) -> None:
    low, high = limits
    grey = np.uint8(np.clip((values - low) / (high - low), 0.0, 1.0) * 255.0 + 0.5)
    tile = Image.fromarray(np.asarray(grey))
    scale = CELL / max(tile.size)
    size = (max(1, round(tile.width * scale)), max(1, round(tile.height * scale)))
    sheet.paste(tile.convert("RGB").resize(size, Image.Resampling.NEAREST), place)
