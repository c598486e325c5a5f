"""``tubal info``: show what a model is and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tubal.cli.options import State, json_option
from tubal.text import printable, shape_text

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def command(state: State, model: Path) -> None:
    """Show what a model is, which images it was made from, and with which settings.

    MODEL is a .tubal file or the results folder of tubal cluster.

    \b
    Examples:
      tubal info tubal-out/model.tubal
      tubal info tubal-out --json
    """
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import open_model

    facts = _describe_model(open_model(model), model)
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
