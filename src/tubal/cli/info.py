"""``tubal info``: the card of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tubal.cli._state import State, talking_options


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@talking_options
@click.pass_obj
def command(state: State, /, model: Path) -> None:
    """Show what a model is, what it was made from and with which settings.

    \b
    Examples:
      tubal info tubal-out/model.tubal
      tubal info tubal-out --json
    """
    from tubal.cli._models import open_model
    from tubal.cli._talk import Talk

    card = _card(open_model(model), model)
    if state.json:
        Talk(state).data(card)
    else:
        _show(card)


def _card(model: Any, path: Path) -> dict[str, Any]:
    from tubal.cli._models import coder_of, image_shape_of, model_file
    from tubal.storage.files import sha256_of

    coder = coder_of(model)
    file = model_file(path)
    card: dict[str, Any] = {
        "kind": type(model).__name__,
        "file": str(file),
        "bytes": file.stat().st_size,
        "sha256": sha256_of(file),
        "image_shape": list(image_shape_of(model)),
        "atoms": len(coder.atoms_),
        "code_positions": list(coder.codes_.shape[2:]) if hasattr(coder, "codes_") else None,
        "iterations": len(getattr(coder, "objective_", ())),
        "parameters": {name: _short(value) for name, value in model.get_params(deep=False).items()},
    }
    if hasattr(model, "labels_"):
        import numpy as np

        sizes = np.bincount(model.labels_)
        card |= {"images": len(model.labels_), "clusters": len(sizes), "cluster_sizes": sizes.tolist()}
    return card


def _short(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)


def _show(card: dict[str, Any]) -> None:
    from tubal.cli._talk import printable

    width = max(len(name) for name in card)
    for name, value in card.items():
        if isinstance(value, dict):
            text = ", ".join(f"{key}={printable(str(part))}" for key, part in value.items())
        elif isinstance(value, list):
            text = ("×" if name == "image_shape" else ", ").join(map(str, value))
        else:
            text = printable(str(value))
        click.echo(f"{name.replace('_', ' '):{width}}  {text}")
