"""``tubal datasets``: list the image collections, and download them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tubal.cli.options import State, json_option
from tubal.text import shape_text


@click.command()
@click.option(
    "--data-home",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder of the files.",
    show_default="the environment variable TUBAL_DATA, else your user data folder",
)
@click.option(
    "--download", "wanted", metavar="NAME", multiple=True, help="Download a collection; may be given several times."
)
@json_option
@click.pass_context
def datasets(context: click.Context, data_home: Path | None, wanted: tuple[str, ...]) -> None:
    """List the image collections: whether each is present, where, and under which licence.

    A collection can be named wherever a command reads images, as in tubal cluster orl.

    \b
    Examples:
      tubal datasets
      tubal datasets --download orl
      tubal datasets --download orl --download yale --data-home ~/images
    """
    from tubal.datasets import COLLECTIONS, locate
    from tubal.datasets.fetchers import choose_data_folder

    for name in wanted:
        try:
            locate(name, data_home=data_home)
        except (OSError, ValueError) as failure:
            raise click.ClickException(str(failure)) from None
    folder, reason = choose_data_folder(data_home)
    entries = [*(_collection_entry(name, folder) for name in COLLECTIONS), _digits_entry()]
    if context.ensure_object(State).json:
        click.echo(json.dumps(entries, indent=2))
    else:
        _print_entries(entries, f"Collections in {folder} ({reason})")


def _collection_entry(name: str, folder: Path) -> dict[str, Any]:
    from tubal.datasets import find_collection

    collection = find_collection(name)
    path = folder / collection.file
    return {
        "name": name,
        "images": collection.n_images,
        "size": list(collection.image_shape),
        "classes": collection.n_classes,
        "state": _file_state(path, collection.sha256),
        "path": str(path),
        "licence": collection.licence,
        "sha256": collection.sha256,
        "addresses": list(collection.addresses),
        "citation": collection.citation,
    }


def _digits_entry() -> dict[str, Any]:
    return {
        "name": "digits",
        "images": 1797,
        "size": [8, 8],
        "classes": 10,
        "state": "built in",
        "path": "inside scikit-learn",
        "licence": "UCI Machine Learning Repository, CC BY 4.0",
    }


def _file_state(path: Path, sha256: str) -> str:
    from tubal.storage.files import sha256_of

    if not path.exists():
        return "missing"
    return "present" if sha256_of(path) == sha256 else "damaged"


def _print_entries(entries: Sequence[dict[str, Any]], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    headings = ("name", "images", "size", "classes", "state", "file", "licence")
    table = Table(*headings, title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    for entry in entries:
        facts = {**entry, "size": shape_text(entry["size"]), "file": Path(entry["path"]).name}
        table.add_row(*(str(facts[column]) for column in headings))
    Console(highlight=False).print(table)
    if any(entry["state"] == "missing" for entry in entries):
        click.echo("Download a missing one with: tubal datasets --download NAME")
