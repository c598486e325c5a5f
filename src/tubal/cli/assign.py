"""``tubal assign``: new images into the clusters of an existing model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tubal.cli._reading import SourceType, read_for_model, reading_options
from tubal.cli._state import State, computing_options, talking_options


@click.command()
@click.argument("source", type=SourceType())
@click.option("-m", "--model", type=click.Path(path_type=Path), required=True, help="Model file, or a results folder.")
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="CSV; standard output if left out.")
@click.option("--force", is_flag=True, help="Replace a file that is already there.")
@reading_options
@computing_options
@talking_options
@click.pass_obj
def command(
    state: State, /, source: str, model: Path, out: Path | None, force: bool, seed: int, **reading: Any
) -> None:
    """Put new images into the clusters of a model.

    The table has one row an image: file, cluster, and the most similar image of the model with its distance.

    \b
    Examples:
      tubal assign new-photos/ --model tubal-out/model.tubal > clusters.csv
      tubal assign one.png --model tubal-out --json
    """
    from tubal.cli._models import check_place, image_shape_of, open_clusterer, training_names
    from tubal.cli._talk import Talk

    talk = Talk(state)
    if out is not None:
        check_place(out, force)
    clusterer = open_clusterer(model)
    stack = read_for_model(talk, state, source, reading, image_shape_of(clusterer))
    with talk.stage("assigning"):
        labels = clusterer.predict(stack.images)
        distances, indices = clusterer.kneighbors(stack.images, 1)
    known = training_names(clusterer)
    rows = [
        {
            "file": name,
            "cluster": int(label),
            "nearest": known[int(index[0])],
            "distance": round(float(gap[0]), 6),
        }
        for name, label, index, gap in zip(stack.names, labels, indices, distances, strict=True)
    ]
    if state.json:
        talk.data({"images": rows, "skipped": stack.skipped})
    if out is not None or not state.json:
        _write(rows, out)
    if out is not None:
        talk.say(f"{len(rows)} images assigned in {out}")


def _write(rows: list[dict[str, Any]], out: Path | None) -> None:
    import csv
    import io
    import sys

    from tubal.storage.files import atomic_write

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    body = text.getvalue().encode("utf-8", "surrogateescape")
    if out is None:
        sys.stdout.buffer.write(body)
    else:
        with atomic_write(out) as stream:
            stream.write(body)
