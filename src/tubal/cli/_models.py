"""What the commands need of a saved model, whether it clusters or only codes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "check_place",
    "coder_of",
    "image_shape_of",
    "model_file",
    "name_images",
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
        raise FileExistsError(f"{str(out)!r} is there already; name another file or use --force to replace it")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(out.parent)!r} to write {out.name!r} into")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"the folder {str(out.parent)!r} cannot be written to; name another file")


def open_clusterer(path: Path) -> Any:
    """Load a model that has clusters."""
    model = open_model(path)
    if not hasattr(model, "labels_"):
        raise ValueError(f"{str(path)!r} holds a {type(model).__name__}, without clusters; make one with tubal cluster")
    return model


def coder_of(model: Any) -> Any:
    """Return the sparse coder: the model itself, or the one inside a clusterer."""
    return getattr(model, "model_", model)


def image_shape_of(model: Any) -> tuple[int, ...]:
    """Return the shape of the images the model was fitted on."""
    return tuple(coder_of(model).image_shape_)


def name_images(clusterer: Any, names: Sequence[str]) -> None:
    """Let a clusterer remember what its images are called; saved with it, shown by ``similar`` and ``assign``."""
    import numpy as np

    clusterer.file_names_ = np.array(names, dtype=object)


def training_names(clusterer: Any) -> list[str]:
    """Return the names of the model's own images, or their numbers where it was made without names."""
    names = getattr(clusterer, "file_names_", None)
    n_images = len(clusterer.labels_)
    if names is not None and len(names) == n_images:
        return [str(name) for name in names]
    return [f"image {i + 1}" for i in range(n_images)]
