"""The commands that read a saved model: ``tubal info``, and four that apply it to images.

``encode`` computes features, ``assign`` puts new images into the clusters, ``similar`` finds the nearest images,
``explain`` draws with Pillow which atoms, at which shifts, build an image. ``info`` shows what a model is, and what a
report of a bug must name.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
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
    json_option,
    model_option,
    out_option,
)
from tubal.text import count, printable, shape_text, table_cell

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image
    from sklearn.base import BaseEstimator
    from sklearn.utils import Bunch

    from tubal.cli.console import Terminal
    from tubal.clustering import ImageClusterer
    from tubal.estimators.explanation import Explanation

    Pixels = NDArray[np.floating[Any]]

# Pixels of the drawing by explain: a cell, the gap between cells, a line of text, the titles on the left; its colours.
CELL, GAP, CAPTION, SIDE = 96, 10, 18, 120
DARK, WHITE, GREY = (32, 36, 44), (255, 255, 255), (110, 116, 128)


def _coder_and_images(
    state: State, model: Path, source: str, settings: ImageSettings, out: Path, force: bool
) -> tuple[Terminal, BaseEstimator, Bunch]:
    """Check that ``out`` can be written; return a terminal, the coder of a model, and the images of SOURCE."""
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import coder_of, open_model, read_images_for
    from tubal.cli.pipeline import check_output_file

    terminal = Terminal(state)
    check_output_file(out, force=force, source=source, model=model)
    loaded = open_model(model)
    return terminal, coder_of(loaded), read_images_for(loaded, terminal, state, source, settings)


# --- encode --------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("source", type=Source())
@model_option
@out_option("features.npz", "File for the features, in NumPy's .npz format.")
@force_option()
@click.option("--codes", is_flag=True, help="Also write the full codes: the coefficient of every atom at every shift.")
@applying_options
@click.pass_obj
def encode(
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

    from tubal.cli.pipeline import write_features

    terminal, coder, stack = _coder_and_images(state, model, source, image_settings, out, force)
    with terminal.stage("encoding"):
        arrays = {"features": np.asarray(coder.transform(stack.images))}
        if codes:
            arrays["codes"] = np.asarray(coder.encode(stack.images))
    write_features(out, stack.names, **arrays)
    terminal.print_line(f"encoded {count(len(stack.names), 'image')}; the features are in {out}")
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    terminal.print_json({"out": str(out), "arrays": shapes, "skipped": stack.skipped})


# --- assign --------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("source", type=Source())
@model_option
@out_option(None, "CSV file for the table.", show_default="standard output")
@force_option()
@applying_options
@click.pass_obj
def assign(
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
    from tubal.app.results import image_names, open_clusterer
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import described_views, look_for, read_images_for
    from tubal.cli.pipeline import check_output_file

    terminal = Terminal(state)
    if out is not None:
        check_output_file(out, force=force, source=source, model=model)
    clusterer = open_clusterer(model)
    stack = read_images_for(clusterer, terminal, state, source, image_settings, look=look_for(clusterer, terminal))
    with terminal.stage("assigning"):
        labels = clusterer.predict(stack.images, views=described_views(clusterer, stack))
        found = clusterer.similar(stack.images, 1, views=described_views(clusterer, stack))
    names = image_names(clusterer)
    rows = [
        {"file": name, "cluster": int(label), "nearest": names[int(near[0])], "distance": round(float(distance[0]), 6)}
        for name, label, near, distance in zip(stack.names, labels, found.indices, found.distances, strict=True)
    ]
    terminal.print_json({"images": rows, "skipped": stack.skipped})
    if out is not None or not state.json:
        _write_csv(rows, out)
    if out is not None:
        terminal.print_line(f"assigned {count(len(rows), 'image')}; the table is in {out}")


def _write_csv(rows: Sequence[dict[str, object]], out: Path | None) -> None:
    """Write the table to a file, or to standard output; names from outside must not steer a terminal."""
    from tubal.storage.files import atomic_write

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


# --- similar -------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("image", type=Source())
@model_option
@count_option("-n", "--count", help="How many images to show, the nearest first.", default=5)
@applying_options
@click.pass_obj
def similar(state: State, image: str, model: Path, count: int, **image_settings: Unpack[ImageSettings]) -> None:
    """Show the images of a model that are nearest to IMAGE, and how to move each onto IMAGE.

    Images are compared as they were for the clusters: by the view that tubal cluster names first, or by shape. Compared
    by shape, the table also gives the alignment: rotation in degrees, scale, and the shift in pixels down (dy) and to
    the right (dx). If IMAGE holds several images, the first one is compared.

    \b
    Examples:
      tubal similar one.png --model tubal-out/model.tubal
      tubal similar one.png --model tubal-out --count 10 --json
    """
    from tubal.app.results import open_clusterer
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import look_for, read_images_for

    terminal = Terminal(state)
    clusterer = open_clusterer(model)
    stack = read_images_for(clusterer, terminal, state, image, image_settings, look=look_for(clusterer, terminal))
    if len(stack.images) > 1:
        terminal.print_line(f"{len(stack.images)} images given; only the first, {stack.names[0]}, is compared")
    with terminal.stage("comparing"):
        rows = _nearest_rows(clusterer, stack, count)
    if state.json:
        terminal.print_json({"image": stack.names[0], "similar": rows})
    else:
        _print_rows(rows)


def _nearest_rows(clusterer: ImageClusterer, stack: Bunch, n_neighbors: int) -> list[dict[str, object]]:
    """Return one row for each of the ``n_neighbors`` images of the model nearest to the first image of a stack."""
    from tubal.app.results import image_names
    from tubal.cli.inputs import described_views

    views = {name: rows[:1] for name, rows in described_views(clusterer, stack).items()}
    found = clusterer.similar(stack.images[:1], min(n_neighbors, len(clusterer.labels_)), views=views)
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

    table = Table(box=None)
    for heading in rows[0]:
        table.add_column(heading, overflow="fold", justify="left" if heading == "file" else "right")
    for row in rows:
        table.add_row(*(Text(printable(str(value))) for value in row.values()))
    Console(highlight=False).print(table)


# --- explain -------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("image", type=Source())
@model_option
@count_option("-n", "--terms", help="How many terms to draw, the largest first.", most=60, default=8)
@out_option("explain.png", "PNG file for the drawing.")
@force_option()
@applying_options
@click.pass_obj
def explain(
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
    from tubal.storage.files import atomic_write

    terminal, coder, stack = _coder_and_images(state, model, image, image_settings, out, force)
    if len(stack.images) > 1:
        terminal.print_line(f"{len(stack.images)} images given; only the first, {stack.names[0]}, is explained")
    with terminal.stage("coding the image"):
        explanation = coder.explain(stack.images[0])
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


# --- info ----------------------------------------------------------------------------------------------------------
# Packages whose versions matter for a report of a bug: those of PACKAGES in tubal.storage.files, and these.
MORE_PACKAGES = (
    *("click", "rich", "jinja2", "platformdirs", "threadpoolctl", "psutil", "lazy_loader"),
    *("matplotlib", "h5py", "tifffile", "zarr", "dask", "distributed", "pynndescent", "umap-learn", "pillow-heif"),
)


@click.command()
@click.argument("model", type=click.Path(path_type=Path), required=False)
@json_option
@click.pass_context
def info(context: click.Context, model: Path | None) -> None:
    """Show what a model is, which images it was made from, and with which settings.

    MODEL is a .tubal file or the results folder of tubal cluster. Without a MODEL, --debug shows what a report of a bug
    must name: versions, machine and folders.

    \b
    Examples:
      tubal info tubal-out/model.tubal
      tubal info tubal-out --json
      tubal info --debug
    """
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import open_model

    state = context.ensure_object(State)
    if model is None and not state.debug:
        raise click.UsageError("Missing argument 'MODEL'; without a model, --debug shows the installation.", context)
    facts = _describe_installation() if model is None else _describe_model(open_model(model), model)
    if state.json:
        Terminal(state).print_json(facts)
    else:
        _print_facts(facts)


def _describe_model(model: BaseEstimator, path: Path) -> dict[str, Any]:
    import numpy as np

    from tubal.cli.inputs import coder_of, image_shape_of, model_file
    from tubal.estimators.validation import code_shape
    from tubal.storage.files import sha256_of

    coder = coder_of(model)
    file = model_file(path)
    facts: dict[str, Any] = {
        "kind": type(model).__name__,
        "file": str(file),
        "bytes": file.stat().st_size,
        "sha256": sha256_of(file),
        "image_shape": list(image_shape_of(model)),
        "atoms": len(coder.atoms_),
        "code_positions": list(code_shape(coder, coder._recipe())[1:]),
        "iterations": len(getattr(coder, "objective_", ())),
        "parameters": {name: _plain_or_repr(value) for name, value in model.get_params(deep=False).items()},
    }
    if hasattr(model, "labels_"):
        sizes = np.bincount(model.labels_)
        facts |= {"images": len(model.labels_), "clusters": len(sizes), "cluster_sizes": sizes.tolist()}
    return facts


def _describe_installation() -> dict[str, Any]:
    import platform
    import sys

    import numpy as np
    import scipy.linalg  # noqa: F401  (loads the BLAS library that is named below)
    from threadpoolctl import threadpool_info

    from tubal.backends.arrays import to_device
    from tubal.datasets.fetchers import data_folder
    from tubal.storage.files import PACKAGES, machine, versions

    pools = threadpool_info()
    return {
        **versions((*PACKAGES, *MORE_PACKAGES)),
        "platform": platform.platform(),
        **machine(),
        "libraries": sorted({f"{pool['internal_api']} {pool['version']}" for pool in pools}),
        "threads": max(pool["num_threads"] for pool in pools),
        "device": str(to_device(np.zeros(1), "auto").device),
        "program": sys.executable,
        "package": str(Path(__file__).parents[1]),
        "data_folder": str(data_folder()),
    }


def _plain_or_repr(value: object) -> object:
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)


def _print_facts(facts: Mapping[str, Any]) -> None:
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        if isinstance(value, dict):
            text = ", ".join(f"{key}={printable(str(part))}" for key, part in value.items())
        elif isinstance(value, list):
            text = shape_text(value) if name == "image_shape" else ", ".join(map(str, value))
        else:
            text = printable(str(value))
        click.echo(f"{name.replace('_', ' '):{width}}  {text}")
