"""The fetchers: find a collection's file, or download it, read it, and return a scikit-learn bunch."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tubal.datasets.download import download, verify_file
from tubal.datasets.registry import Collection, find_collection

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


# A scikit-learn Bunch, or the pair (data, target) with ``return_X_y=True``; scikit-learn carries no types.
Fetched: TypeAlias = Any


def data_folder(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of the collections: ``data_home``, else ``TUBAL_DATA``, else ``~/tubal_data``.

    >>> data_folder("/somewhere").as_posix()
    '/somewhere'
    """
    chosen = data_home or os.environ.get("TUBAL_DATA") or Path.home() / "tubal_data"
    return Path(chosen).expanduser()


def locate(name: str, *, data_home: str | os.PathLike[str] | None = None, download_if_missing: bool = True) -> Path:
    """Return the path of a collection's file after checking its hash, downloading it where allowed."""
    collection = find_collection(name)
    path = data_folder(data_home) / collection.file
    if path.exists():
        verify_file(path, collection.sha256)
    elif download_if_missing:
        download(collection.addresses, path, sha256=collection.sha256)
    else:
        raise FileNotFoundError(
            f"{path} is not there; put {collection.file} into {path.parent}, set TUBAL_DATA to the folder "
            f"that holds it, or allow the download with download_if_missing=True"
        )
    return path


def fetch(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Fetched:
    """Fetch any registered collection by name, or ``"digits"``, the one that ships inside scikit-learn.

    Parameters
    ----------
    name : str
        One of ``coil20``, ``usps``, ``orl``, ``yale``, ``digits``.
    data_home : path, optional
        Folder of the files; by default the environment variable ``TUBAL_DATA``, else ``~/tubal_data``.
    download_if_missing : bool
        Whether a missing file may be downloaded; an existing one is never replaced.
    return_X_y : bool
        Return ``(data, target)`` instead of the bunch.

    Returns
    -------
    Bunch
        ``images`` (n, height, width) float32 in [0, 1], ``data`` the same as rows, ``target`` (n,) labels
        counted from zero, ``DESCR``, ``sha256``.

    >>> fetch("digits").images.shape
    (1797, 8, 8)
    """
    if name == "digits":
        return _as_fetched(*_digits(), return_X_y=return_X_y)
    collection = find_collection(name)
    path = locate(name, data_home=data_home, download_if_missing=download_if_missing)
    images, target = read_collection(path, collection)
    return _as_fetched(images, target, collection.description, collection.sha256, return_X_y=return_X_y)


def fetch_coil20(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Fetched:
    """Fetch COIL-20: 1440 images of 20 turning objects, 32×32; see :func:`fetch` for the parameters."""
    return fetch("coil20", data_home=data_home, download_if_missing=download_if_missing, return_X_y=return_X_y)


def fetch_usps(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Fetched:
    """Fetch USPS: 9298 handwritten digits, 16×16, training part first; see :func:`fetch`. Needs h5py."""
    return fetch("usps", data_home=data_home, download_if_missing=download_if_missing, return_X_y=return_X_y)


def fetch_orl(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Fetched:
    """Fetch ORL: 400 pictures of 40 faces, 32×32; see :func:`fetch` for the parameters."""
    return fetch("orl", data_home=data_home, download_if_missing=download_if_missing, return_X_y=return_X_y)


def fetch_yale(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Fetched:
    """Fetch Yale: 165 pictures of 15 faces under changing light, 64×64; see :func:`fetch`."""
    return fetch("yale", data_home=data_home, download_if_missing=download_if_missing, return_X_y=return_X_y)


def load_digits_images(*, return_X_y: bool = False) -> Fetched:
    """Load the 1797 handwritten digits, 8×8, that ship inside scikit-learn; see :func:`fetch`.

    >>> load_digits_images().images.max()
    np.float32(1.0)
    """
    return fetch("digits", return_X_y=return_X_y)


def _digits() -> tuple[Images, Labels, str, str]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.ascontiguousarray(bunch.images / 16.0, dtype=np.float32)
    return images, bunch.target.astype(np.int64), bunch.DESCR, hashlib.sha256(images.tobytes()).hexdigest()


def _as_fetched(images: Images, target: Labels, description: str, sha256: str, *, return_X_y: bool) -> Fetched:
    data = images.reshape(len(images), -1)
    if return_X_y:
        return data, target
    from sklearn.utils import Bunch

    return Bunch(images=images, data=data, target=target, DESCR=description, sha256=sha256)
