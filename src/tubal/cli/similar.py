"""``tubal similar``: show the images of a model that are nearest to one image, and how they align."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from tubal.cli.options import ImageSettings, Source, State, applying_options, count_option, model_option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tubal.clustering import ImageClusterer


@click.command()
@click.argument("image", type=Source())
@model_option
@count_option("-n", "--count", help="How many images to show, the nearest first.", default=5)
@applying_options
@click.pass_obj
def command(state: State, image: str, model: Path, count: int, **image_settings: Unpack[ImageSettings]) -> None:
    """Show the images of a model that are nearest to IMAGE, and how to move each onto IMAGE.

    With the default preset the table also gives the alignment: rotation in degrees, scale, and the shift in pixels
    down (dy) and to the right (dx). If IMAGE holds several images, the first one is compared.

    \b
    Examples:
      tubal similar one.png --model tubal-out/model.tubal
      tubal similar one.png --model tubal-out --count 10 --json
    """
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import open_clusterer, read_images_for

    terminal = Terminal(state)
    clusterer = open_clusterer(model)
    stack = read_images_for(clusterer, terminal, state, image, image_settings)
    if len(stack.images) > 1:
        terminal.print_line(f"{len(stack.images)} images given; only the first, {stack.names[0]}, is compared")
    with terminal.stage("comparing"):
        rows = _nearest_rows(clusterer, stack.images[:1], count)
    if state.json:
        terminal.print_json({"image": stack.names[0], "similar": rows})
    else:
        _print_rows(rows)


def _nearest_rows(clusterer: ImageClusterer, images: NDArray[np.float32], n_neighbors: int) -> list[dict[str, object]]:
    """Return one row for each of the ``n_neighbors`` images of the model nearest to ``images[0]``, nearest first."""
    from tubal.cli.inputs import image_names

    found = clusterer.similar(images, min(n_neighbors, len(clusterer.labels_)))
    names = image_names(clusterer)
    rows: list[dict[str, object]] = []
    for slot, index in enumerate(found.indices[0].tolist()):
        distance = round(float(found.distances[0, slot]), 6)
        row: dict[str, object] = {"file": names[index], "cluster": int(clusterer.labels_[index]), "distance": distance}
        if found.alignments is not None:
            alignment = found.alignments[0, slot]
            row |= {name: round(float(getattr(alignment, name)), 3) for name in ("rotation", "scale", "dy", "dx")}
        rows.append(row)
    return rows


def _print_rows(rows: Sequence[dict[str, object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tubal.text import printable

    table = Table(box=None)
    for heading in rows[0]:
        table.add_column(heading, overflow="fold", justify="left" if heading == "file" else "right")
    for row in rows:
        table.add_row(*(Text(printable(str(value))) for value in row.values()))
    Console(highlight=False).print(table)
