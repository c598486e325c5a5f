"""What the commands need of a saved model, whether it clusters or only codes."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

__all__ = [
    "check_place",
    "coder_of",
    "image_shape_of",
    "model_file",
    "open_clusterer",
    "open_model",
    "training_names",
]


def model_file(path: Path) -> Path:
    """Return the model's file; a results folder holds one."""
    return path / "model.tubal" if path.is_dir() else path


def open_model(path: Path) -> Any:
    """Load a model, saying in one sentence why if it cannot be."""
    import tubal

    file = model_file(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no model {str(file)!r}; make one with tubal cluster or tubal fit")
    return tubal.load(file)


def check_place(out: Path, force: bool) -> None:
    """Refuse before any work a file that is there already or a folder that cannot be written to."""
    if out.exists() and not force:
        raise FileExistsError(
            f"{str(out)!r} is there already; name another file or use --force to replace it"
        )
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(out.parent)!r} to write {out.name!r} into")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"the folder {str(out.parent)!r} cannot be written to; name another file")


def open_clusterer(path: Path) -> Any:
    """Load a model that has clusters."""
    model = open_model(path)
    if not hasattr(model, "labels_"):
        raise ValueError(
            f"{str(path)!r} holds a {type(model).__name__}, without clusters; make one with tubal cluster"
        )
    return model


def coder_of(model: Any) -> Any:
    """Return the sparse coder: the model itself, or the one inside a clusterer."""
    return getattr(model, "model_", model)


def image_shape_of(model: Any) -> tuple[int, ...]:
    """Return the shape of the images the model was fitted on."""
    coder = coder_of(model)
    shape = getattr(coder, "image_shape_", None)
    return tuple(shape) if shape is not None else tuple(coder.atoms_.shape[1:])


def training_names(clusterer: Any, path: Path) -> list[str]:
    """Return the names of the model's own images from the labels.csv beside it, else their numbers."""
    n_images = len(clusterer.labels_)
    table = model_file(path).parent / "labels.csv"
    if table.is_file():
        with open(table, encoding="utf-8", errors="surrogateescape", newline="") as stream:
            names = [row["file"] for row in csv.DictReader(stream) if row.get("file") is not None]
        if len(names) == n_images:
            return names
    return [f"image {i + 1}" for i in range(n_images)]
