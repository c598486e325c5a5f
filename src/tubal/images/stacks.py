"""Finding the one stack of images inside an array file (.npy, .npz, .mat, .h5), and never unpickling.

NumPy and HDF5 files are read with one image per first index. MATLAB stores arrays column by column: images
usually lie along the last axis, and an image kept as a row has to be refolded column by column.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["STACK_SUFFIXES", "Stack", "read_stack", "to_unit_interval"]

STACK_SUFFIXES = frozenset({".npy", ".npz", ".mat", ".h5", ".hdf5"})
IMAGE_NAMES = ("images", "x", "fea", "data", "imgs", "pictures", "x_train", "faces")
LABEL_NAMES = ("y", "gnd", "target", "labels", "label", "targets", "y_train")
MAX_BYTES = 8 * 2**30
LEAST_SIDE = 4  # a row of fewer than 4×4 values is no picture


@dataclass(frozen=True)
class Entry:
    """One array of a file, known by its header; ``matlab`` arrays are stored column by column."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    matlab: bool = False


@dataclass(frozen=True)
class Stack:
    """Images ``(n, h, w)`` or ``(n, h, w, 3)`` in their own units, labels if any, and how they were read."""

    images: np.ndarray
    target: np.ndarray | None
    note: str


def read_stack(path: Path, *, variable: str | None = None, image_shape: tuple[int, int] | None = None) -> Stack:
    """Return the stack of images of an array file.

    ``variable`` names the array when several are plausible (several names, joined by commas, are put one
    after the other); ``image_shape`` refolds rows whose images are not square.
    """
    entries = _list_entries(path)
    chosen = _named(entries, variable, path) if variable else [_choose(entries, image_shape, path)]
    for entry in chosen:
        _check_entry(entry, path)
    parts = [_as_images(_read_entry(path, entry), entry, image_shape) for entry in chosen]
    images = np.concatenate([part for part, _ in parts]) if len(parts) > 1 else parts[0][0]
    names = ", ".join(repr(entry.name) for entry in chosen)
    shapes = ", ".join("×".join(map(str, entry.shape)) for entry in chosen)
    note = f"array {names} ({shapes}), {parts[0][1]}"
    return Stack(images, _find_labels(path, entries, chosen, len(images)), note)


def to_unit_interval(values: np.ndarray) -> np.ndarray:
    """Return float32 values in [0, 1]: 8 and 16 bits by their depth, others as they are or by their range.

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
        raise ValueError("the images hold NaN or infinite values; replace them before clustering")
    low, high = float(images.min()), float(images.max())
    if low >= 0.0 and high <= 1.0:
        return images
    if low < 0.0:
        return (images - np.float32(low)) / np.float32(high - low)
    # Eight-bit pixels kept as floats or wide integers rarely reach 255 exactly.
    return images / np.float32(255.0 if 128.0 < high <= 255.0 else high)


def _choose(entries: Sequence[Entry], image_shape: tuple[int, int] | None, path: Path) -> Entry:
    plausible = [entry for entry in entries if _is_image_like(entry, image_shape)]
    if len(plausible) > 1:
        stacked = [entry for entry in plausible if len(entry.shape) > 2]
        plausible = stacked or plausible
    if len(plausible) > 1:
        for wanted in IMAGE_NAMES:
            named = [entry for entry in plausible if entry.name.lower() == wanted]
            if len(named) == 1:
                return named[0]
    if len(plausible) == 1:
        return plausible[0]
    found = ", ".join(f"{entry.name} ({'×'.join(map(str, entry.shape))})" for entry in entries[:12])
    if not plausible:
        raise ValueError(
            f"no stack of images in {path.name!r}, which holds {found or 'no arrays'}; "
            f"wanted (n, height, width), (n, height, width, 3) or rows of square images"
        )
    raise ValueError(f"several arrays of {path.name!r} could be the images: {found}; name one with variable=")


def _named(entries: Sequence[Entry], variable: str, path: Path) -> list[Entry]:
    known = {entry.name: entry for entry in entries}
    names = [name.strip() for name in variable.split(",")]
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"there is no array {missing[0]!r} in {path.name!r}; it holds {', '.join(known)}")
    return [known[name] for name in names]


def _is_image_like(entry: Entry, image_shape: tuple[int, int] | None) -> bool:
    if entry.dtype.kind not in "buif" or 0 in entry.shape:
        return False
    if len(entry.shape) == 2:
        return any(_side(length, image_shape) for length in entry.shape)
    if len(entry.shape) == 4:
        channels = entry.shape[2] if entry.matlab else entry.shape[-1]
        return channels in (1, 3, 4) or entry.shape[1] in (1, 3)
    return len(entry.shape) == 3


def _check_entry(entry: Entry, path: Path) -> None:
    needed = 4 * math.prod(entry.shape)
    if entry.dtype.kind not in "buif":
        raise ValueError(f"{entry.name!r} of {path.name!r} holds {entry.dtype}, not numbers; pickles are not read")
    if needed > MAX_BYTES:
        raise ValueError(
            f"{entry.name!r} of {path.name!r} needs {needed / 2**30:.0f} GiB; at most "
            f"{MAX_BYTES // 2**30} GiB are read at once, so split the file"
        )
    if len(entry.shape) not in (2, 3, 4):
        raise ValueError(f"{entry.name!r} of {path.name!r} has shape {entry.shape}; wanted (n, height, width)")


def _side(length: int, image_shape: tuple[int, int] | None) -> tuple[int, int] | None:
    if image_shape:
        return image_shape if image_shape[0] * image_shape[1] == length else None
    side = math.isqrt(length)
    return (side, side) if side * side == length and side >= LEAST_SIDE else None


def _as_images(values: np.ndarray, entry: Entry, image_shape: tuple[int, int] | None) -> tuple[np.ndarray, str]:
    """Return images first, upright, channels last, and a few words on how the array was understood."""
    if values.ndim == 2:
        return _unfold_rows(values, entry, image_shape)
    if values.ndim == 3:
        first, middle, last = values.shape
        # (28, 28, 1000) is a thousand squares; (28, 28, 20) in a NumPy file more likely 28 images.
        along_last = (entry.matlab and middle != last) or (first == middle and last >= 4 * first)
        images = np.moveaxis(values, -1, 0) if along_last else values
        return images, f"images along the {'last' if along_last else 'first'} axis"
    if entry.matlab and values.shape[2] in (1, 3, 4):
        values = np.moveaxis(values, -1, 0)
    elif values.shape[-1] not in (1, 3, 4) and values.shape[1] in (1, 3):
        values = np.moveaxis(values, 1, -1)
    channels = values.shape[-1]
    images = values[..., 0] if channels == 1 else values[..., :3]
    return images, f"{channels} channel{'s' if channels > 1 else ''}"


def _unfold_rows(values: np.ndarray, entry: Entry, image_shape: tuple[int, int] | None) -> tuple[np.ndarray, str]:
    across = _side(values.shape[1], image_shape) is None
    rows = values.T if across else values
    height, width = _side(rows.shape[1], image_shape) or (0, 0)
    if not height:
        raise ValueError(f"{entry.name!r} has rows of {values.shape[1]} values, not square images; give image_shape=")
    how = "one image a column" if across else "one image a row"
    if not entry.matlab:
        return rows.reshape(-1, height, width), how
    return rows.reshape(-1, width, height).swapaxes(1, 2), f"{how}, refolded column by column as in MATLAB"


def _find_labels(path: Path, entries: Sequence[Entry], chosen: Sequence[Entry], n_images: int) -> np.ndarray | None:
    """Return labels lying beside the images (for scoring only): the one array of n whole numbers or words."""
    if len(chosen) > 1:
        return None
    vectors = [
        entry
        for entry in entries
        if entry not in chosen and math.prod(entry.shape) == n_images and entry.dtype.kind in "buifSU"
    ]
    named = [entry for entry in vectors if entry.name.lower() in LABEL_NAMES]
    pick = named if named else vectors
    if len(pick) != 1:
        return None
    labels = _read_entry(path, pick[0]).ravel()
    whole = labels.dtype.kind != "f" or (np.isfinite(labels).all() and (labels == labels.round()).all())
    return labels if whole else None


def _list_entries(path: Path) -> list[Entry]:
    try:
        if path.suffix.lower() == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            return [Entry("array", array.shape, array.dtype)]
        if path.suffix.lower() == ".npz":
            return _list_npz(path)
        if path.suffix.lower() == ".mat" and not _is_hdf5(path):
            from scipy.io import whosmat

            kinds = {
                "logical": "u1",
                "char": "U1",
                "cell": "O",
                "struct": "O",
                "single": "f4",
                "double": "f8",
            }
            return [
                Entry(name, tuple(shape), np.dtype(kinds.get(kind, kind)), matlab=True)
                for name, shape, kind in whosmat(path)
                if kind in kinds or kind.startswith(("int", "uint"))
            ]
        return _list_hdf5(path)
    except (FileNotFoundError, PermissionError, ImportError):
        raise
    except Exception as error:  # parsers of hostile files raise anything
        text = " ".join(str(error).split())[:160]
        raise ValueError(f"{path.name!r} cannot be read as a {path.suffix} file: {text}") from error


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


def _list_hdf5(path: Path) -> list[Entry]:
    h5py = _h5py(path)
    entries: list[Entry] = []
    with h5py.File(path, "r") as file:

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.dtype.kind in "buifSU":
                matlab = "MATLAB_class" in item.attrs
                shape = tuple(reversed(item.shape)) if matlab else tuple(item.shape)
                entries.append(Entry(name, shape, item.dtype, matlab))

        file.visititems(note)
    return entries


def _read_entry(path: Path, entry: Entry) -> np.ndarray:
    try:
        if path.suffix.lower() == ".npy":
            return np.asarray(np.load(path, allow_pickle=False))
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return np.asarray(archive[entry.name])
        if path.suffix.lower() == ".mat" and not _is_hdf5(path):
            from scipy.io import loadmat

            return np.asarray(loadmat(path, variable_names=[entry.name])[entry.name])
        with _h5py(path).File(path, "r") as file:
            values = np.asarray(file[entry.name])
            return values.T if entry.matlab else values
    except Exception as error:
        text = " ".join(str(error).split())[:160]
        raise ValueError(f"{entry.name!r} of {path.name!r} cannot be read: {text}") from error


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as stream:
        head = stream.read(520)
    return head.startswith(b"\x89HDF") or head[512:516] == b"\x89HDF"


def _h5py(path: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise ImportError(f"{path.name!r} needs h5py; install it with: pip install 'tubal[io]'") from None
    return h5py
