"""How the largest terms of a code build one image: the numbers, and a drawing of them made with Pillow alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tubal.report.from_clusterer import image_norms, readable_coder

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

__all__ = ["Construction", "construct", "draw"]

Pixels = NDArray[np.floating[Any]]
CELL, GAP, CAPTION, SIDE = 96, 10, 18, 120
DARK, WHITE, GREY = (32, 36, 44), (255, 255, 255), (110, 116, 128)


@dataclass(frozen=True)
class Construction:
    """An image and the largest terms of its code, all in the units of the image.

    ``atoms``, ``parts`` and ``sums`` (terms, height, width[, 3]) are the atoms, the same shifted and weighted, and the
    sums so far; ``shifts`` (terms, 2) counts pixels down and to the right. ``complete`` is the sum of all ``n_terms``
    terms, also of those that are not kept here. ``unexplained`` is the share of the image's energy that the kept terms
    leave over, ``note`` says how the image was coded if not as in the fit.
    """

    image: Pixels
    atom_indices: NDArray[np.intp]
    shifts: NDArray[np.intp]
    coefficients: Pixels
    atoms: Pixels
    parts: Pixels
    sums: Pixels
    complete: Pixels
    n_terms: int
    unexplained: float
    note: str


def construct(coder: BaseEstimator, image: Pixels, *, limit: int) -> Construction:
    """Return the ``limit`` largest terms of the code of an image, and how the image grows from them."""
    coder, note = readable_coder(coder)
    explanation = coder.explain(image)
    if not len(explanation):
        raise ValueError(f"the code of this image under {type(coder).__name__} is zero; there is no term to draw")
    kept = range(min(limit, len(explanation)))
    norm = float(image_norms(coder, image[None])[0])
    parts = np.stack([norm * explanation.term(index) for index in kept])
    sums = np.cumsum(parts, axis=0)
    energy = float(np.square(image).sum()) or 1.0
    atom_indices = explanation.atoms[kept]
    return Construction(
        image=image,
        atom_indices=atom_indices,
        shifts=_down_and_right(explanation.shifts[kept], getattr(coder, "tube_axis", -1)),
        coefficients=explanation.coefficients[kept],
        atoms=np.asarray(coder.atoms_)[atom_indices],
        parts=parts,
        sums=sums,
        complete=norm * explanation.reconstruction(),
        n_terms=len(explanation),
        unexplained=float(np.square(image - sums[-1]).sum()) / energy,
        note=note,
    )


def _down_and_right(shifts: NDArray[np.intp], tube_axis: int) -> NDArray[np.intp]:
    """Return shifts (terms, 2): atoms move along their tube, both ways (CSC), or not at all (TenSR)."""
    if shifts.ndim == 2 and shifts.shape[1] == 2:
        return shifts
    pairs = np.zeros((len(shifts), 2), dtype=np.intp)
    if shifts.ndim == 1:
        pairs[:, 1 if tube_axis == -1 else 0] = shifts
    return pairs


def draw(construction: Construction) -> Image.Image:
    """Draw one column per term: the atom, the atom shifted and weighted, and the sum so far."""
    n_kept = len(construction.parts)
    row = CELL + CAPTION + GAP
    left = GAP + SIDE
    sheet = Image.new("RGB", (left + (n_kept + 2) * (CELL + GAP), GAP + 3 * row), WHITE)
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=12)
    for i, title in enumerate(("atom", "shifted, weighted", "sum so far")):
        pen.text((GAP, GAP + i * row + CELL // 2), title, fill=DARK, font=font)
    limits = (0.0, float(construction.image.max()) or 1.0)
    end = left + (n_kept + 1) * (CELL + GAP)
    for x, values, caption in ((left, construction.image, "the image"), (end, construction.complete, "all terms")):
        _paste(sheet, (x, GAP + 2 * row), values, limits)
        pen.text((x, GAP + 2 * row + CELL + 2), caption, fill=GREY, font=font)
    for i in range(n_kept):
        x = left + (i + 1) * (CELL + GAP)
        for line, (values, range_, caption) in enumerate(_cells(construction, i)):
            _paste(sheet, (x, GAP + line * row), values, range_)
            pen.text((x, GAP + line * row + CELL + 2), caption, fill=GREY, font=font)
    return sheet


def _cells(construction: Construction, i: int) -> list[tuple[Pixels, tuple[float, float], str]]:
    """Return the three cells of a column, top to bottom: values, the range from black to white, and the caption."""
    strongest = float(np.abs(construction.parts).max()) or 1.0
    peak = float(np.abs(construction.atoms[i]).max()) or 1.0
    down, right = construction.shifts[i].tolist()
    shift = _shift_in_words(down, right, construction.image.shape)
    weight = float(construction.coefficients[i])
    brightest = float(construction.image.max()) or 1.0
    return [
        (construction.atoms[i], (-peak, peak), f"atom {construction.atom_indices[i]}"),
        (construction.parts[i], (-strongest, strongest), f"{weight:+.2f}  {shift or 'not shifted'}"),
        (construction.sums[i], (0.0, brightest), f"{i + 1} of {construction.n_terms}"),
    ]


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


def _paste(sheet: Image.Image, place: tuple[int, int], values: Pixels, limits: tuple[float, float]) -> None:
    """Paste values, enlarged to a cell, with the lower limit black and the upper limit white."""
    low, high = limits
    grey = np.uint8(np.clip((values - low) / (high - low), 0.0, 1.0) * 255.0 + 0.5)
    tile = Image.fromarray(np.asarray(grey))
    scale = CELL / max(tile.size)
    size = (max(1, round(tile.width * scale)), max(1, round(tile.height * scale)))
    sheet.paste(tile.convert("RGB").resize(size, Image.Resampling.NEAREST), place)
