"""``tubal explain``: draw which atoms, at which shifts, build an image."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from tubal.cli.options import (
    ImageSettings,
    Source,
    State,
    array_options,
    force_option,
    model_option,
    output_options,
    threads_option,
)


@click.command()
@click.argument("image", type=Source())
@model_option
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("explain.png"),
    show_default=True,
    help="PNG file for the drawing.",
)
@click.option(
    "-n",
    "--terms",
    type=click.IntRange(1, 60),
    default=8,
    show_default=True,
    metavar="N",
    help="How many terms to draw, the largest first.",
)
@force_option
@array_options
@threads_option
@output_options
@click.pass_obj
def command(
    state: State,
    /,
    image: str,
    model: Path,
    out: Path,
    terms: int,
    force: bool,
    **image_settings: Unpack[ImageSettings],
) -> None:
    """Draw which atoms, at which shifts, build IMAGE.

    Each column of the drawing is one term, the largest first: the atom, the atom shifted and weighted, and the
    sum so far. The image itself stands on the left, the sum of all terms on the right. If IMAGE holds several
    images, the first one is drawn.

    \b
    Examples:
      tubal explain one.png --model tubal-out/model.tubal
      tubal explain one.png --model tubal-out --terms 12 --out why.png
    """
    from tubal.cli.console import Terminal
    from tubal.cli.drawing import draw
    from tubal.cli.inputs import coder_of, open_model, read_images_for
    from tubal.cli.pipeline import check_output_file
    from tubal.storage.files import atomic_write

    terminal = Terminal(state)
    check_output_file(out, force=force, source=image, model=model)
    loaded = open_model(model)
    stack = read_images_for(loaded, terminal, state, image, image_settings)
    with terminal.stage("coding the image"):
        explanation = coder_of(loaded).explain(stack.images[0])
    if not len(explanation):
        raise ValueError(f"the code of this image under {type(loaded).__name__} is zero; there is no term to draw")
    unexplained = explanation.unexplained(terms)
    with atomic_write(out) as stream:
        draw(explanation, terms).save(stream, "PNG")
    terminal.print_line(
        f"{min(terms, len(explanation))} of {len(explanation)} terms are drawn in {out}; "
        f"they leave {100 * unexplained:.1f} % of the image unexplained"
    )
    if explanation.note:
        terminal.print_line(explanation.note)
    rows = [
        {"atom": int(atom), "dy": int(dy), "dx": int(dx), "coefficient": float(weight)}
        for atom, dy, dx, weight in explanation.table(terms)
    ]
    terminal.print_json({"image": stack.names[0], "out": str(out), "terms": rows, "unexplained": unexplained})
