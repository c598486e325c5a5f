"""``tubal encode``: turn images into features, or full codes, with a model."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from tubal.cli.options import ImageSettings, Source, State, applying_options, force_option, model_option, out_option


@click.command()
@click.argument("source", type=Source())
@model_option
@out_option("features.npz", "File for the features, in NumPy's .npz format.")
@force_option()
@click.option("--codes", is_flag=True, help="Also write the full codes: the coefficient of every atom at every shift.")
@applying_options
@click.pass_obj
def command(
    state: State, source: str, model: Path, out: Path, force: bool, codes: bool, **image_settings: Unpack[ImageSettings]
) -> None:
    """Turn images into features with a model.

    The file holds the arrays 'names' and 'features' (one row per image), and 'codes' with --codes.
    The images of SOURCE are brought to the size and colour of the model's images.

    \b
    Examples:
      tubal encode new-photos/ --model tubal-out/model.tubal
      tubal encode scans.tif --model scans.tubal --codes --out codes.npz
    """
    import numpy as np

    from tubal.cli.console import Terminal
    from tubal.cli.inputs import coder_of, open_model, read_images_for
    from tubal.cli.pipeline import check_output_file, write_features
    from tubal.text import count

    terminal = Terminal(state)
    check_output_file(out, force=force, source=source, model=model)
    loaded = open_model(model)
    stack = read_images_for(loaded, terminal, state, source, image_settings)
    coder = coder_of(loaded)
    with terminal.stage("encoding"):
        arrays = {"features": np.asarray(coder.transform(stack.images))}
        if codes:
            arrays["codes"] = np.asarray(coder.encode(stack.images))
    write_features(out, stack.names, **arrays)
    terminal.print_line(f"encoded {count(len(stack.names), 'image')}; the features are in {out}")
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    terminal.print_json({"out": str(out), "arrays": shapes, "skipped": stack.skipped})
