"""Open the collections' files: upright float32 images in [0, 1] and labels counted from zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tubal.datasets._registry import Collection

Images = NDArray[np.float32]
Labels = NDArray[np.int64]


def read_collection(path: Path, collection: Collection) -> tuple[Images, Labels]:
    """Return images (n, height, width) and labels (n,) of the collection stored at ``path``."""
    if collection.layout == "hdf5":
        pixels, labels = _read_hdf5(path)
    else:
        pixels, labels = _read_mat(path)
    rows = pixels.T if collection.layout == "mat-columns" else pixels
    images = _to_unit_interval(rows).reshape(-1, *collection.image_shape)
    if collection.layout != "hdf5":
        # MATLAB stores a matrix column by column; read row by row it lies on its side.
        images = np.ascontiguousarray(images.swapaxes(1, 2))
    codes = np.unique(labels.ravel(), return_inverse=True)[1].astype(np.int64)
    expected = (collection.n_images, *collection.image_shape)
    if images.shape != expected or len(codes) != len(images):
        raise ValueError(
            f"{path} holds images of shape {images.shape} and {len(codes)} labels where {collection.title} "
            f"has {expected}; a different file of the same name is published elsewhere"
        )
    return images, codes


def _to_unit_interval(pixels: NDArray[Any]) -> Images:
    scale = 255.0 if pixels.dtype == np.uint8 else 1.0
    return np.asarray(pixels, dtype=np.float32) / np.float32(scale)


def _read_mat(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    from scipy.io import loadmat

    contents = loadmat(path)
    for images, labels in (("X", "Y"), ("fea", "gnd")):
        if images in contents and labels in contents:
            return contents[images], contents[labels]
    found = ", ".join(sorted(name for name in contents if not name.startswith("__")))
    raise ValueError(f"{path} holds {found or 'nothing'}; variables X and Y, or fea and gnd, were expected")


def _read_hdf5(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        import h5py
    except ImportError:
        raise ImportError(
            f"{path.name} is an HDF5 file and h5py is not installed; install it with: pip install 'tubal[io]'"
        ) from None
    with h5py.File(path, "r") as file:
        parts = [file["train"], file["test"]]
        pixels = np.concatenate([part["data"][:] for part in parts])
        labels = np.concatenate([part["target"][:] for part in parts])
    return pixels, labels
