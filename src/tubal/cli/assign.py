"""``tubal assign``: put new images into the clusters of a model."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import click

from tubal.cli.options import ImageSettings, Source, State, applying_options, force_option, model_option, out_option


@click.command()
@click.argument("source", type=Source())
@model_option
@out_option(None, "CSV file for the table.", show_default="standard output")
@force_option()
@applying_options
@click.pass_obj
def command(
    state: State, source: str, model: Path, out: Path | None, force: bool, **image_settings: Unpack[ImageSettings]
) -> None:
    """Put new images into the clusters of a model.

    The table has one row per image: its file, its cluster, and the most similar image of the model with its distance.
    The images of SOURCE are brought to the size and colour of the model's images.

    \b
    Examples:
      tubal assign new-photos/ --model tubal-out/model.tubal > clusters.csv
      tubal assign one.png --model tubal-out --json
    """
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import described_views, image_names, look_for, open_clusterer, read_images_for
    from tubal.cli.pipeline import check_output_file
    from tubal.text import count

    terminal = Terminal(state)
    if out is not None:
        check_output_file(out, force=force, source=source, model=model)
    clusterer = open_clusterer(model)
    stack = read_images_for(clusterer, terminal, state, source, image_settings, look=look_for(clusterer, terminal))
    with terminal.stage("assigning"):
        labels = clusterer.predict(stack.images, views=described_views(clusterer, stack))
        distances, indices = clusterer.kneighbors(stack.images, 1)
    names = image_names(clusterer)
    rows = [
        {"file": name, "cluster": int(label), "nearest": names[int(near[0])], "distance": round(float(distance[0]), 6)}
        for name, label, near, distance in zip(stack.names, labels, indices, distances, strict=True)
    ]
    terminal.print_json({"images": rows, "skipped": stack.skipped})
    if out is not None or not state.json:
        _write_csv(rows, out)
    if out is not None:
        terminal.print_line(f"assigned {count(len(rows), 'image')}; the table is in {out}")


def _write_csv(rows: Sequence[dict[str, object]], out: Path | None) -> None:
    """Write the table to a file, or to standard output; names from outside must not steer a terminal."""
    from tubal.storage.files import atomic_write
    from tubal.text import printable, table_cell

    shown = printable if out is None and sys.stdout.isatty() else str
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow(shown(table_cell(value)) if isinstance(value, str) else value for value in row.values())
    # A file name need not be valid Unicode; surrogateescape writes its original bytes.
    body = text.getvalue().encode("utf-8", "surrogateescape")
    if out is None:
        sys.stdout.buffer.write(body)
    else:
        with atomic_write(out) as stream:
            stream.write(body)
