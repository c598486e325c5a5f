"""``tubal explain``: draw with Pillow which atoms, at which shifts, build an image."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from tubal.cli.options import (
    ImageSettings,
    Source,
    State,
    applying_options,
    count_option,
    force_option,
    model_option,
    out_option,
)
from tubal.text import count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    from tubal.estimators.explanation import Explanation

    Pixels = NDArray[np.floating[Any]]

CELL, GAP, CAPTION, SIDE = 96, 10, 18, 120
DARK, WHITE, GREY = (32, 36, 44), (255, 255, 255), (110, 116, 128)


@click.command()
@click.argument("image", type=Source())
@model_option
@count_option("-n", "--terms", help="How many terms to draw, the largest first.", most=60, default=8)
@out_option("explain.png", "PNG file for the drawing.")
@force_option()
@applying_options
@click.pass_obj
def command(
    state: State, image: str, model: Path, terms: int, out: Path, force: bool, **image_settings: Unpack[ImageSettings]
) -> None:
    """Draw which atoms, at which shifts, build IMAGE.

    Each column of the drawing is one term, the largest first: the atom, the atom shifted and weighted, and the
    sum so far. The image itself stands on the left, the sum of all terms on the right. The share that a sum explains
    is that of the squared pixels. If IMAGE holds several images, the first one is drawn.

    \b
    Examples:
      tubal explain one.png --model tubal-out/model.tubal
      tubal explain one.png --model tubal-out --terms 12 --out why.png
    """
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import coder_of, open_model, read_images_for
    from tubal.cli.pipeline import check_output_file
    from tubal.storage.files import atomic_write

    terminal = Terminal(state)
    check_output_file(out, force=force, source=image, model=model)
    loaded = open_model(model)
    stack = read_images_for(loaded, terminal, state, image, image_settings)
    if len(stack.images) > 1:
        terminal.print_line(f"{len(stack.images)} images given; only the first, {stack.names[0]}, is explained")
    with terminal.stage("coding the image"):
        explanation = coder_of(loaded).explain(stack.images[0])
    if not len(explanation):
        raise ValueError(
            f"{stack.names[0]} is blank: all its pixels are zero, so no atom is needed to build it and there is no "
            "term to draw; give another image"
        )
    explained, explained_by_all = explanation.explained(terms), explanation.explained()
    with atomic_write(out) as stream:
        _draw(explanation, terms).save(stream, "PNG")
    terminal.print_line(_summary(min(terms, len(explanation)), len(explanation), explained, explained_by_all, out))
    if explanation.note:
        terminal.print_line(explanation.note)
    rows = [
        {"atom": int(atom), "dy": int(dy), "dx": int(dx), "coefficient": float(weight)}
        for atom, dy, dx, weight in explanation.table(terms)
    ]
    shares = {
        "n_terms": len(explanation),
        "explained": explained,
        "unexplained": 1.0 - explained,
        "explained_by_all_terms": explained_by_all,
    }
    terminal.print_json({"image": stack.names[0], "out": str(out), "terms": rows, **shares})


def _summary(drawn: int, n_terms: int, explained: float, explained_by_all: float, out: Path) -> str:
    """Say how many terms are drawn and how much of the image they explain.

    >>> _summary(8, 20, 0.91, 0.982, Path("explain.png"))
    '8 of 20 terms are drawn in explain.png; they explain 91.0 % of the image, all 20 terms 98.2 %'
    >>> _summary(1, 1, 0.75, 0.75, Path("explain.png"))
    '1 of 1 term is drawn in explain.png; it explains 75.0 % of the image'
    """
    is_one = drawn == 1
    text = f"{drawn} of {count(n_terms, 'term')} {'is' if is_one else 'are'} drawn in {out}; "
    text += f"{'it explains' if is_one else 'they explain'} {100 * explained:.1f} % of the image"
    return text if drawn == n_terms else f"{text}, all {n_terms} terms {100 * explained_by_all:.1f} %"


def _draw(explanation: Explanation, limit: int) -> Image.Image:
    """Draw one column for each of the ``limit`` largest terms: the atom, the atom shifted and weighted, the sum."""
    from PIL import Image, ImageDraw, ImageFont

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
    import numpy as np

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


def _paste(sheet: Image.Image, place: tuple[int, int], values: Pixels, limits: tuple[float, float]) -> None:
    """Paste values, enlarged to a cell, with the lower limit black and the upper limit white."""
    import numpy as np
    from PIL import Image

    low, high = limits
    grey = np.uint8(np.clip((values - low) / (high - low), 0.0, 1.0) * 255.0 + 0.5)
    tile = Image.fromarray(np.asarray(grey))
    scale = CELL / max(tile.size)
    size = (max(1, round(tile.width * scale)), max(1, round(tile.height * scale)))
    sheet.paste(tile.convert("RGB").resize(size, Image.Resampling.NEAREST), place)
