"""``tubal similar``: the images of a model nearest to one image, with their alignment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tubal.cli._reading import SourceType, read_for_model, reading_options
from tubal.cli._state import State, computing_options, talking_options


@click.command()
@click.argument("image", type=SourceType())
@click.option("-m", "--model", type=click.Path(path_type=Path), required=True, help="Model file, or a results folder.")
@click.option("-n", "--count", type=click.IntRange(1), default=5, metavar="N", help="How many.  [default: 5]")
@reading_options
@computing_options
@talking_options
@click.pass_obj
def command(state: State, /, image: str, model: Path, count: int, seed: int, **reading: Any) -> None:
    """Show the images of a model nearest to IMAGE, and how each has to be moved to lie on it.

    \b
    Examples:
      tubal similar one.png --model tubal-out/model.tubal
      tubal similar one.png --model tubal-out --count 10 --json
    """
    from tubal.cli._models import image_shape_of, open_clusterer, training_names
    from tubal.cli._talk import Talk

    talk = Talk(state)
    clusterer = open_clusterer(model)
    stack = read_for_model(talk, state, image, reading, image_shape_of(clusterer))
    if len(stack.images) > 1:
        talk.say(f"{len(stack.images)} images given; the first, {stack.names[0]}, is compared")
    count = min(count, len(clusterer.labels_))
    with talk.stage("comparing"):
        found = clusterer.similar(stack.images[:1], count)
    names = training_names(clusterer)
    rows = [_row(found, slot, names, clusterer.labels_) for slot in range(found.indices.shape[1])]
    if state.json:
        talk.data({"image": stack.names[0], "similar": rows})
    else:
        _show(rows)


def _row(found: Any, slot: int, names: list[str], labels: Any) -> dict[str, Any]:
    index = int(found.indices[0, slot])
    row: dict[str, Any] = {
        "file": names[index],
        "cluster": int(labels[index]),
        "distance": round(float(found.distances[0, slot]), 6),
    }
    if found.alignments is not None:
        moved = found.alignments[0, slot]
        row |= {name: round(float(getattr(moved, name)), 3) for name in ("rotation", "scale", "dy", "dx")}
    return row


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tubal.cli._talk import printable

    table = Table(box=None)
    for heading in rows[0]:
        table.add_column(heading, overflow="fold", justify="left" if heading == "file" else "right")
    for row in rows:
        table.add_row(*(Text(printable(str(value))) for value in row.values()))
    Console(highlight=False).print(table)
