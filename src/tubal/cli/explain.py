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
    from tubal.cli.drawing import construct, draw
    from tubal.cli.inputs import coder_of, open_model, read_images_for
    from tubal.cli.pipeline import check_output_file
    from tubal.storage.files import atomic_write

    terminal = Terminal(state)
    check_output_file(out, force=force)
    loaded = open_model(model)
    stack = read_images_for(loaded, terminal, state, image, image_settings)
    with terminal.stage("coding the image"):
        construction = construct(coder_of(loaded), stack.images[0], limit=terms)
    with atomic_write(out) as stream:
        draw(construction).save(stream, "PNG")
    terminal.print_line(
        f"{len(construction.parts)} of {construction.n_terms} terms are drawn in {out}; "
        f"they leave {100 * construction.unexplained:.1f} % of the image unexplained"
    )
    if construction.note:
        terminal.print_line(construction.note)
    columns = zip(
        construction.atom_indices.tolist(),
        construction.shifts.tolist(),
        construction.coefficients.tolist(),
        strict=True,
    )
    rows = [{"atom": atom, "dy": dy, "dx": dx, "coefficient": weight} for atom, (dy, dx), weight in columns]
    terminal.print_json(
        {"image": stack.names[0], "out": str(out), "terms": rows, "unexplained": construction.unexplained}
    )
