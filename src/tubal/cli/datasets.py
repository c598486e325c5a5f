"""``tubal datasets``: which collections are there, where, and under what licence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command(short_help="List the image collections, where they are and their licences.")
@click.option("--data-home", type=click.Path(path_type=Path), help="Folder of the files; default TUBAL_DATA.")
@click.option("--download", "wanted", metavar="NAME", multiple=True, help="Download a collection (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(data_home: Path | None, wanted: tuple[str, ...], as_json: bool) -> None:
    """List the image collections: what is there, where it is, and its licence.

    \b
    Examples:
      tubal datasets
      tubal datasets --download orl --data-home ~/tubal_data
    """
    from tubal.datasets import data_folder, locate

    for name in wanted:
        try:
            locate(name, data_home=data_home)
        except (OSError, ValueError) as failure:
            raise click.ClickException(str(failure)) from None
    folder = data_folder(data_home)
    entries = [_entry(name, folder) for name in _names()]
    if as_json:
        click.echo(json.dumps(entries, indent=2))
    else:
        _show(entries, folder)


def _names() -> list[str]:
    from tubal.datasets import COLLECTIONS

    return [*COLLECTIONS, "digits"]


def _entry(name: str, folder: Path) -> dict[str, Any]:
    from tubal.datasets import find_collection

    if name == "digits":
        return {
            "name": "digits",
            "images": 1797,
            "size": [8, 8],
            "classes": 10,
            "state": "built in",
            "path": "inside scikit-learn",
            "licence": "UCI Machine Learning Repository, CC BY 4.0",
        }
    collection = find_collection(name)
    path = folder / collection.file
    return {
        "name": name,
        "images": collection.n_images,
        "size": list(collection.image_shape),
        "classes": collection.n_classes,
        "state": _state(path, collection.sha256),
        "path": str(path),
        "licence": collection.licence,
        "sha256": collection.sha256,
        "addresses": list(collection.addresses),
        "citation": collection.citation,
    }


def _state(path: Path, sha256: str) -> str:
    from tubal.storage.files import sha256_of

    if not path.exists():
        return "missing"
    return "present" if sha256_of(path) == sha256 else "damaged"


def _show(entries: list[dict[str, Any]], folder: Path) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Collections in {folder}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("name", "images", "size", "classes", "state", "file", "licence"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        size = "×".join(str(length) for length in entry["size"])
        file = Path(entry["path"]).name
        cells = (
            entry["name"],
            entry["images"],
            size,
            entry["classes"],
            entry["state"],
            file,
            entry["licence"],
        )
        table.add_row(*(str(cell) for cell in cells))
    Console(highlight=False).print(table)
    if any(entry["state"] != "present" and "addresses" in entry for entry in entries):
        click.echo("Get a missing one with: tubal datasets --download NAME")
