"""An image taken apart: its largest terms, the sums they build, and a drawing of both with Pillow alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tubal.report.from_clusterer import image_norms, image_terms, readable_coder

__all__ = ["Explanation", "draw", "explain"]

CELL, GAP, CAPTION, SIDE = 96, 10, 18, 120
INK, PAPER, FAINT = (32, 36, 44), (255, 255, 255), (110, 116, 128)


@dataclass(frozen=True)
class Explanation:
    """Terms ``(t, 4)`` with what each adds, the sums so far and the sum of all, in the units of the image.

    ``error`` is the share of the image's energy that the sum of the terms leaves over; ``note`` says how the image was
    coded, where not as in the fit.
    """

    image: np.ndarray
    terms: np.ndarray
    atoms: np.ndarray
    parts: np.ndarray
    sums: np.ndarray
    whole: np.ndarray
    n_terms: int
    error: float
    note: str


def explain(coder: Any, image: np.ndarray, *, limit: int) -> Explanation:
    """Return the ``limit`` largest terms of an image and how it grows from them."""
    coder, note = readable_coder(coder)
    codes = np.asarray(coder.encode(image[None]))
    found = image_terms(coder, codes, limit=limit)
    if not found or not len(found[0]):
        raise ValueError(f"the code of this image under {type(coder).__name__} has no term that could be drawn")
    terms = found[0]
    atoms = np.asarray(coder.atoms_)[terms[:, 0].astype(int)]
    norm = float(image_norms(coder, image[None])[0])
    parts = np.stack(
        [
            norm * weight * np.roll(atom, (int(dy), int(dx)), axis=(0, 1))
            for atom, (_, dy, dx, weight) in zip(atoms, terms, strict=True)
        ]
    )
    sums = np.cumsum(parts, axis=0)
    energy = float(np.square(image).sum()) or 1.0
    error = float(np.square(image - sums[-1]).sum()) / energy
    whole = norm * np.asarray(coder.decode(codes))[0]
    return Explanation(image, terms, atoms, parts, sums, whole, int((codes != 0).sum()), error, note)


def draw(explanation: Explanation) -> Image.Image:
    """Draw one column a term: the atom, the atom moved and weighted, the sum so far."""
    n_terms = len(explanation.terms)
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
    for x, values, caption in ((left, explanation.image, "the image"), (end, explanation.whole, "all terms")):
        _paste(sheet, (x, top + 2 * row), values, limits)
        pen.text((x, top + 2 * row + CELL + 2), caption, fill=FAINT, font=font)
    for i in range(n_terms):
        _draw_term(sheet, pen, font, explanation, i, (left + (i + 1) * (CELL + GAP), top, row))
    return sheet


def _draw_term(
    sheet: Image.Image, pen: Any, font: Any, explanation: Explanation, i: int, place: tuple[int, int, int]
) -> None:
    x, top, row = place
    atom, dy, dx, weight = explanation.terms[i]
    strength = float(np.abs(explanation.parts).max()) or 1.0
    peak = float(np.abs(explanation.atoms[i]).max()) or 1.0
    _paste(sheet, (x, top), explanation.atoms[i], (-peak, peak))
    _paste(sheet, (x, top + row), explanation.parts[i], (-strength, strength))
    _paste(sheet, (x, top + 2 * row), explanation.sums[i], (0.0, float(explanation.image.max()) or 1.0))
    shift = _shift_in_words(int(dy), int(dx), explanation.image.shape)
    captions = (
        f"atom {int(atom)}",
        f"{weight:+.2f}  {shift or 'not moved'}",
        f"{i + 1} of {explanation.n_terms}",
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
