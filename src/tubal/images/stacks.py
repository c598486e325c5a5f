"""Finding the stack of images inside an array file (.npy, .npz, .mat, .h5). Pickles are never read.

NumPy and HDF5 files hold one image per first index. MATLAB stores arrays column by column: images usually lie along
the last axis, and an image that is stored as a row has to be reshaped column by column.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tubal.images.pictures import Pixels, check_stack_size
from tubal.text import count, error_text, shape_text

if TYPE_CHECKING:
    from h5py import Dataset, Group

__all__ = ["ARRAY_SUFFIXES", "Stack", "import_h5py", "read_stack", "to_unit_interval"]

ARRAY_SUFFIXES = frozenset({".npy", ".npz", ".mat", ".h5", ".hdf5"})
# Usual names of the images and of the labels, in order of preference.
IMAGE_NAMES = ("images", "x", "fea", "data", "imgs", "pictures", "x_train", "faces")
LABEL_NAMES = ("y", "gnd", "target", "labels", "label", "targets", "y_train")
NUMERIC = "buif"  # kinds of dtype: boolean, integers, floats
MIN_SIDE = 4  # a row of fewer than 4×4 values is not taken for an image


@dataclass(frozen=True)
class Entry:
    """One array of a file, known from its header; ``matlab`` arrays are stored column by column."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    matlab: bool = False


@dataclass(frozen=True)
class Stack:
    """Images ``(n, h, w)`` or ``(n, h, w, 3)`` in their own units, labels if any, and how they were read."""

    images: NDArray[Any]
    target: NDArray[Any] | None
    note: str


def read_stack(path: Path, *, variable: str | None = None, image_shape: tuple[int, int] | None = None) -> Stack:
    """Return the stack of images in an array file.

    ``variable`` names the array if several are possible; arrays of several names, separated by commas, are joined.
    ``image_shape`` is the shape of images that are stored as rows and are not square.
    """
    entries = _list_entries(path)
    chosen = _choose_by_name(entries, variable, path) if variable else [_choose(entries, image_shape, path)]
    for entry in chosen:
        _check_entry(entry, path)
    parts = [_as_images(_read_entry(path, entry), entry, image_shape) for entry in chosen]
    images = np.concatenate([part for part, _ in parts]) if len(parts) > 1 else parts[0][0]
    names = ", ".join(repr(entry.name) for entry in chosen)
    shapes = ", ".join(shape_text(entry.shape) for entry in chosen)
    note = f"array {names} ({shapes}), {parts[0][1]}"
    return Stack(images, _find_labels(path, entries, chosen, len(images)), note)


def to_unit_interval(values: NDArray[Any]) -> Pixels:
    """Return float32 values in [0, 1]: 8 and 16 bits divided by their depth, others by their range if needed.

    >>> to_unit_interval(np.array([0, 51, 255], dtype=np.uint8))
    array([0. , 0.2, 1. ], dtype=float32)
    >>> to_unit_interval(np.array([0.0, 4.0, 16.0]))
    array([0.  , 0.25, 1.  ], dtype=float32)
    """
    depth = {"uint8": 255.0, "uint16": 65535.0}.get(values.dtype.name)
    if depth and values.size and values.max() <= 1:
        depth = 1.0  # a mask of zeros and ones
    images = np.asarray(values, dtype=np.float32)
    if depth:
        return images / np.float32(depth)
    if not np.isfinite(images).all():
        raise ValueError("the images contain NaN or infinity; replace these values before clustering")
    low, high = float(images.min()), float(images.max())
    if low >= 0.0 and high <= 1.0:
        return images
    if low < 0.0:
        return (images - np.float32(low)) / np.float32(high - low)
    # Eight-bit pixels that are stored as floats or wide integers rarely reach 255 exactly.
    return images / np.float32(255.0 if 128.0 < high <= 255.0 else high)


def import_h5py(path: Path) -> ModuleType:
    """Return the module h5py, or raise an error that says how to install it for reading ``path``."""
    try:
        import h5py
    except ImportError:
        raise ImportError(f"{path.name!r} is an HDF5 file; install h5py with: pip install 'tubal[io]'") from None
    module: ModuleType = h5py
    return module


# --- choosing the array ------------------------------------------------------------------------------------------


def _choose(entries: Sequence[Entry], image_shape: tuple[int, int] | None, path: Path) -> Entry:
    """Return the one array that can be the images; stacks go before rows, usual names before others."""
    possible = [entry for entry in entries if _is_image_like(entry, image_shape)]
    if len(possible) > 1:
        possible = [entry for entry in possible if len(entry.shape) > 2] or possible
    if len(possible) > 1:
        for wanted in IMAGE_NAMES:
            named = [entry for entry in possible if entry.name.lower() == wanted]
            if len(named) == 1:
                return named[0]
    if len(possible) == 1:
        return possible[0]
    found = ", ".join(f"{entry.name} ({shape_text(entry.shape)})" for entry in entries[:12])
    if not possible:
        raise ValueError(
            f"no stack of images in {path.name!r}, which holds {found or 'no arrays'}; "
            f"wanted (n, height, width), (n, height, width, 3) or rows of square images"
        )
    raise ValueError(f"several arrays in {path.name!r} could be the images: {found}; name one with variable=")


def _choose_by_name(entries: Sequence[Entry], variable: str, path: Path) -> list[Entry]:
    known = {entry.name: entry for entry in entries}
    names = [name.strip() for name in variable.split(",")]
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"there is no array {missing[0]!r} in {path.name!r}; it holds {', '.join(known)}")
    return [known[name] for name in names]


def _is_image_like(entry: Entry, image_shape: tuple[int, int] | None) -> bool:
    if entry.dtype.kind not in NUMERIC or 0 in entry.shape:
        return False
    if len(entry.shape) == 2:
        return any(_sides_of_row(length, image_shape) for length in entry.shape)
    if len(entry.shape) == 4:
        channels = entry.shape[2] if entry.matlab else entry.shape[-1]
        return channels in (1, 3, 4) or entry.shape[1] in (1, 3)
    return len(entry.shape) == 3


def _check_entry(entry: Entry, path: Path) -> None:
    what = f"{entry.name!r} in {path.name!r}"
    if entry.dtype.kind not in NUMERIC:
        raise ValueError(f"{what} holds {entry.dtype}, not numbers; pickles are not read")
    check_stack_size(what, entry.shape, "split the file")
    if len(entry.shape) not in (2, 3, 4):
        raise ValueError(f"{what} has shape {entry.shape}; wanted (n, height, width)")
    if 0 in entry.shape:
        raise ValueError(f"{what} has shape {entry.shape}, so it holds no images; name another array or file")


def _sides_of_row(length: int, image_shape: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return ``(height, width)`` of an image stored as a row of ``length`` values, or None if it cannot be one."""
    if image_shape:
        return image_shape if image_shape[0] * image_shape[1] == length else None
    side = math.isqrt(length)
    return (side, side) if side * side == length and side >= MIN_SIDE else None


def _find_labels(path: Path, entries: Sequence[Entry], chosen: Sequence[Entry], n_images: int) -> NDArray[Any] | None:
    """Return labels stored beside the images, for scoring only: the only array of n integers or strings."""
    if len(chosen) > 1:
        return None
    vectors = [
        entry
        for entry in entries
        if entry not in chosen and math.prod(entry.shape) == n_images and entry.dtype.kind in NUMERIC + "SU"
    ]
    candidates = [entry for entry in vectors if entry.name.lower() in LABEL_NAMES] or vectors
    if len(candidates) != 1:
        return None
    labels = _read_entry(path, candidates[0]).ravel()
    whole = labels.dtype.kind != "f" or (np.isfinite(labels).all() and (labels == labels.round()).all())
    return labels if whole else None


# --- from an array to images -------------------------------------------------------------------------------------


def _as_images(values: NDArray[Any], entry: Entry, image_shape: tuple[int, int] | None) -> tuple[NDArray[Any], str]:
    """Return upright images along the first axis, channels last, and a few words on how the array was read."""
    if values.ndim == 2:
        return _reshape_rows(values, entry, image_shape)
    if values.ndim == 3:
        first, middle, last = values.shape
        # (28, 28, 1000) is a thousand squares, but (28, 28, 20) in a NumPy file is more likely 28 images.
        along_last = (entry.matlab and middle != last) or (first == middle and last >= 4 * first)
        images = np.moveaxis(values, -1, 0) if along_last else values
        return images, f"images along the {'last' if along_last else 'first'} axis"
    if entry.matlab and values.shape[2] in (1, 3, 4):
        values = np.moveaxis(values, -1, 0)
    elif values.shape[-1] not in (1, 3, 4) and values.shape[1] in (1, 3):
        values = np.moveaxis(values, 1, -1)
    channels = values.shape[-1]
    images = values[..., 0] if channels == 1 else values[..., :3]
    return images, count(channels, "channel")


def _reshape_rows(values: NDArray[Any], entry: Entry, image_shape: tuple[int, int] | None) -> tuple[NDArray[Any], str]:
    """Return the images of a matrix that holds one image per row, or per column if only these have a fitting length."""
    per_column = _sides_of_row(values.shape[1], image_shape) is None
    rows = values.T if per_column else values
    height, width = _sides_of_row(rows.shape[1], image_shape) or (0, 0)
    if not height:
        raise ValueError(f"{entry.name!r} has rows of {values.shape[1]} values, not square images; give image_shape=")
    how = "one image per column" if per_column else "one image per row"
    if not entry.matlab:
        return rows.reshape(-1, height, width), how
    return rows.reshape(-1, width, height).swapaxes(1, 2), f"{how}, reshaped column by column as in MATLAB"


# --- file formats ------------------------------------------------------------------------------------------------


def _list_entries(path: Path) -> list[Entry]:
    """Return the arrays of a file from their headers, without reading their values."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            return [Entry("array", array.shape, array.dtype)]
        if suffix == ".npz":
            return _list_npz(path)
        return _list_mat(path) if suffix == ".mat" and not _is_hdf5(path) else _list_hdf5(path)
    except (FileNotFoundError, PermissionError, ImportError):
        raise
    except Exception as error:  # a parser may raise anything on a malicious file
        raise ValueError(f"{path.name!r} cannot be read as a {path.suffix} file: {error_text(error)}") from error


def _list_npz(path: Path) -> list[Entry]:
    entries = []
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
                shape, _, dtype = (read or np.lib.format.read_array_header_2_0)(stream)
            entries.append(Entry(member.removesuffix(".npy"), shape, dtype))
    return entries


def _list_mat(path: Path) -> list[Entry]:
    """Return the arrays of a MATLAB file before version 7.3."""
    from scipy.io import whosmat

    types = {"logical": "u1", "char": "U1", "cell": "O", "struct": "O", "single": "f4", "double": "f8"}
    return [
        Entry(name, tuple(shape), np.dtype(types.get(kind, kind)), matlab=True)
        for name, shape, kind in whosmat(path)
        if kind in types or kind.startswith(("int", "uint"))
    ]


def _list_hdf5(path: Path) -> list[Entry]:
    h5py = import_h5py(path)
    entries: list[Entry] = []
    with h5py.File(path, "r") as file:

        def add(name: str, item: Dataset | Group) -> None:
            if isinstance(item, h5py.Dataset) and item.dtype.kind in NUMERIC + "SU":
                matlab = "MATLAB_class" in item.attrs
                shape = tuple(reversed(item.shape)) if matlab else tuple(item.shape)
                entries.append(Entry(name, shape, item.dtype, matlab))

        file.visititems(add)
    return entries


def _read_entry(path: Path, entry: Entry) -> NDArray[Any]:
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False))
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return np.asarray(archive[entry.name])
        if suffix == ".mat" and not _is_hdf5(path):
            from scipy.io import loadmat

            return np.asarray(loadmat(path, variable_names=[entry.name])[entry.name])
        with import_h5py(path).File(path, "r") as file:
            values = np.asarray(file[entry.name])
            return values.T if entry.matlab else values
    except Exception as error:
        raise ValueError(f"{entry.name!r} in {path.name!r} cannot be read: {error_text(error)}") from error


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as stream:
        head = stream.read(520)
    return head.startswith(b"\x89HDF") or head[512:516] == b"\x89HDF"
