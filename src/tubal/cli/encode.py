"""``tubal encode``: features, or full codes, of images under an existing model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tubal.cli._reading import SourceType, read_for_model, reading_options
from tubal.cli._state import State, computing_options, talking_options


@click.command()
@click.argument("source", type=SourceType())
@click.option("-m", "--model", type=click.Path(path_type=Path), required=True, help="Model file, or a results folder.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("features.npz"),
    show_default=True,
    help="File for the features.",
)
@click.option("--codes", is_flag=True, help="Also keep the full codes: every atom at every shift.")
@click.option("--force", is_flag=True, help="Replace a file that is already there.")
@reading_options
@computing_options
@talking_options
@click.pass_obj
def command(
    state: State, /, source: str, model: Path, out: Path, codes: bool, force: bool, seed: int, **reading: Any
) -> None:
    """Turn images into features with a model.

    \b
    Examples:
      tubal encode new-photos/ --model tubal-out/model.tubal
      tubal encode scans.tif --model scans.tubal --codes --out codes.npz
    """
    import numpy as np

    from tubal.cli._models import check_place, coder_of, image_shape_of, open_model
    from tubal.cli._results import write_features
    from tubal.cli._talk import Talk

    talk = Talk(state)
    check_place(out, force)
    loaded = open_model(model)
    stack = read_for_model(talk, state, source, reading, image_shape_of(loaded))
    coder = coder_of(loaded)
    with talk.stage("encoding"):
        arrays = {"features": np.asarray(coder.transform(stack.images))}
        if codes:
            arrays["codes"] = np.asarray(coder.encode(stack.images))
    write_features(out, stack.names, **arrays)
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    talk.say(f"{len(stack.names)} images encoded into {out}")
    talk.data({"out": str(out), "arrays": shapes, "skipped": stack.skipped})
