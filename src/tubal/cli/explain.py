"""``tubal explain``: a picture of the atoms, their shifts and the reconstruction they build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tubal.cli._reading import SourceType, read_for_model, reading_options
from tubal.cli._state import State, computing_options, talking_options


@click.command()
@click.argument("image", type=SourceType())
@click.option("-m", "--model", type=click.Path(path_type=Path), required=True, help="Model file, or a results folder.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("explain.png"),
    show_default=True,
    help="PNG to draw.",
)
@click.option("-n", "--terms", type=click.IntRange(1, 60), default=8, metavar="N", help="How many.  [default: 8]")
@click.option("--force", is_flag=True, help="Replace a picture that is already there.")
@reading_options
@computing_options
@talking_options
@click.pass_obj
def command(
    state: State, /, image: str, model: Path, out: Path, terms: int, force: bool, seed: int, **reading: Any
) -> None:
    """Draw which atoms, at which shifts, build IMAGE.

    One column a term, the largest first: the atom, the atom shifted around its circle and weighted, and
    the sum so far, beside the image itself.

    \b
    Examples:
      tubal explain one.png --model tubal-out/model.tubal
      tubal explain one.png --model tubal-out --terms 12 --out why.png
    """
    from tubal.cli._explanation import draw
    from tubal.cli._models import check_place, coder_of, image_shape_of, open_model
    from tubal.cli._talk import Talk
    from tubal.storage.files import atomic_write

    talk = Talk(state)
    check_place(out, force)
    loaded = open_model(model)
    stack = read_for_model(talk, state, image, reading, image_shape_of(loaded))
    with talk.stage("coding the image"):
        explanation = coder_of(loaded).explain(stack.images[0])
    if not len(explanation):
        raise ValueError(f"the code of this image under {type(loaded).__name__} has no term that could be drawn")
    picture = draw(explanation, terms)
    unexplained = explanation.unexplained(terms)
    with atomic_write(out) as stream:
        picture.save(stream, "PNG")
    talk.say(
        f"{min(terms, len(explanation))} of {len(explanation)} terms drawn in {out}; "
        f"they leave {100 * unexplained:.1f} % of the image unexplained"
    )
    if explanation.note:
        talk.say(explanation.note)
    rows = [
        {"atom": int(atom), "dy": int(dy), "dx": int(dx), "coefficient": float(weight)}
        for atom, dy, dx, weight in explanation.table(terms)
    ]
    talk.data({"image": stack.names[0], "out": str(out), "terms": rows, "unexplained": unexplained})
