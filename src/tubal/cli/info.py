"""``tubal info`` shows what a model is, and what a report of a bug must name; ``tubal datasets`` lists collections."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tubal.cli.options import State, json_option
from tubal.text import printable, shape_text

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


import json
from collections.abc import Sequence

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


# --- collections ------------------------------------------------------------------------------------------------------
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
