"""Finding the stack of images inside an array file (.npy, .npz, .mat, .h5). Pickles are never read.

NumPy and HDF5 files hold one image per first index. MATLAB stores arrays column by column: images usually lie along
the last axis, and an image that is stored as a row has to be reshaped column by column.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tubal.images.pictures import Allowance, Pixels, check_stack_size
from tubal.text import count, error_text, shape_text

if TYPE_CHECKING:
    from h5py import Dataset, Group

__all__ = ["ARRAY_SUFFIXES", "Stack", "ValueRange", "import_h5py", "read_stack", "to_unit_interval"]

ValueRange: TypeAlias = tuple[float, float]

ARRAY_SUFFIXES = frozenset({".npy", ".npz", ".mat", ".h5", ".hdf5"})
# Usual names of the images and of the labels, in order of preference.
IMAGE_NAMES = ("images", "x", "fea", "data", "imgs", "pictures", "x_train", "faces")
LABEL_NAMES = ("y", "gnd", "target", "labels", "label", "targets", "y_train")
NUMERIC = "buif"  # kinds of dtype: boolean, integers, floats
MAX_ARRAYS = 10_000
MAT_COMPRESSED = 15  # type of a compressed element in a MATLAB file
MAT_OVERHEAD = 1 << 20  # bytes
MIN_SIDE = 4  # a row of fewer than 4×4 values is not taken for an image


@dataclass(frozen=True)
class Entry:
    """One array of a file, known from its header.

    ``stored`` is the number of bytes it takes in the file, ``matlab`` arrays are stored column by column, and the
    values of an ``outside`` array lie in other files.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stored: int
    matlab: bool = False
    outside: bool = False


@dataclass(frozen=True)
class Stack:
    """Images ``(n, h, w)`` or ``(n, h, w, 3)`` in their own units, labels if any, and how they were read."""

    images: NDArray[Any]
    target: NDArray[Any] | None
    note: str


def read_stack(
    path: Path, *, max_pixels: int, variable: str | None = None, image_shape: tuple[int, int] | None = None
) -> Stack:
    """Return the stack of images in an array file.

    ``variable`` names the array if several are possible; arrays of several names, separated by commas, are joined.
    ``image_shape`` is the shape of images that are stored as rows and are not square. An array of more than
    ``max_pixels`` values must take at least a hundredth of a byte per value in the file.
    """
    entries = _list_entries(path)
    chosen = _choose_by_name(entries, variable, path) if variable else [_choose(entries, image_shape, path)]
    for entry in chosen:
        _check_entry(entry, path, max_pixels)
    parts = [_as_images(_read_entry(path, entry), entry, image_shape) for entry in chosen]
    images = np.concatenate([part for part, _ in parts]) if len(parts) > 1 else parts[0][0]
    names = ", ".join(repr(entry.name) for entry in chosen)
    shapes = ", ".join(shape_text(entry.shape) for entry in chosen)
    note = f"array {names} ({shapes}), {parts[0][1]}"
    return Stack(images, _find_labels(path, entries, chosen, len(images)), note)


def to_unit_interval(values: NDArray[Any], value_range: ValueRange | None = None) -> tuple[Pixels, ValueRange | None]:
    """Return float32 values in [0, 1], and the range that was brought there.

    8 and 16 bits are divided by their depth and have no range. Others are scaled by ``value_range``, or by their own
    range if they need it.

    >>> to_unit_interval(np.array([0, 51, 255], dtype=np.uint8))
    (array([0. , 0.2, 1. ], dtype=float32), None)
    >>> to_unit_interval(np.array([0.0, 4.0, 16.0]))
    (array([0.  , 0.25, 1.  ], dtype=float32), (0.0, 16.0))
    """
    depth = {"uint8": 255.0, "uint16": 65535.0}.get(values.dtype.name)
    if depth and values.size and values.max() <= 1:
        depth = 1.0  # a mask of zeros and ones
    with np.errstate(over="ignore"):  # too large for 32 bits: infinite, and an error below
        images = np.asarray(values, dtype=np.float32)
    if depth:
        return images / np.float32(depth), None
    if not np.isfinite(images).all():
        raise ValueError("the images contain NaN or infinity; replace these values before clustering")
    low, high = value_range or _range_of(images)
    if low < 0.0:
        # Halves, so that the difference of two very large values is finite.
        images = (images * np.float32(0.5) - np.float32(low / 2)) / np.float32(high / 2 - low / 2)
    elif high != 1.0:
        images = images / np.float32(high)
    return images, (low, high)


def _range_of(images: Pixels) -> ValueRange:
    """Return the values that become 0 and 1: the range of the images, from 0 if none is negative."""
    low, high = float(images.min()), float(images.max())
    if low < 0.0:
        return low, high
    # Eight-bit pixels that are stored as floats or wide integers rarely reach 255 exactly.
    return 0.0, 1.0 if high <= 1.0 else 255.0 if 128.0 < high <= 255.0 else high


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


def _check_entry(entry: Entry, path: Path, max_pixels: int) -> None:
    what = f"{entry.name!r} in {path.name!r}"
    if entry.outside:
        raise ValueError(f"the values of {what} lie in other files, which are not opened; copy them into this file")
    if entry.dtype.kind not in NUMERIC:
        raise ValueError(f"{what} holds {entry.dtype}, not numbers; pickles are not read")
    check_stack_size(what, entry.shape, "split the file")
    if len(entry.shape) not in (2, 3, 4):
        raise ValueError(f"{what} has shape {entry.shape}; wanted (n, height, width)")
    if 0 in entry.shape:
        raise ValueError(f"{what} has shape {entry.shape}, so it holds no images; name another array or file")
    n_values, most = math.prod(entry.shape), Allowance(max_pixels, entry.stored).pixels
    if n_values > most:
        raise ValueError(
            f"{what} expands from {entry.stored} bytes to {n_values} values, the limit is {most} (--max-pixels)"
        )


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
        if entry not in chosen
        and not entry.outside
        and math.prod(entry.shape) == n_images
        and entry.dtype.kind in NUMERIC + "SU"
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
            _check_complete(path)
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            return [Entry("array", array.shape, array.dtype, array.nbytes)]
        if suffix == ".npz":
            return _list_npz(path)
        return _list_mat(path) if suffix == ".mat" and not _is_hdf5(path) else _list_hdf5(path)
    except (FileNotFoundError, PermissionError, ImportError):
        raise
    except Exception as error:  # a parser may raise anything on a malicious file
        raise ValueError(f"{path.name!r} cannot be read as a {path.suffix} file: {error_text(error)}") from error


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of an array from the beginning of a .npy file."""
    first = np.lib.format.read_magic(stream) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def _check_complete(path: Path) -> None:
    """Raise an error if a .npy file has fewer bytes than its header says."""
    with open(path, "rb") as stream:
        try:
            shape, dtype = _npy_header(stream)
        except ValueError as error:
            if stream.read(1):
                raise
            raise ValueError("it is incomplete: it ends within its header; copy or write it again") from error
        wanted = stream.tell() + math.prod(shape) * dtype.itemsize
    came = path.stat().st_size
    if came < wanted and not dtype.hasobject:
        raise ValueError(f"it is incomplete: it has {came} bytes, and {wanted} by its header; copy or write it again")


def _list_npz(path: Path) -> list[Entry]:
    entries = []
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > MAX_ARRAYS:
            raise ValueError(f"it holds {len(members)} arrays, at most {MAX_ARRAYS} are read")
        for member in members:
            with archive.open(member) as stream:
                shape, dtype = _npy_header(stream)
            stored = min(member.compress_size, path.stat().st_size)
            entries.append(Entry(member.filename.removesuffix(".npy"), shape, dtype, stored))
    return entries


def _list_mat(path: Path) -> list[Entry]:
    """Return the arrays of a MATLAB file before version 7.3."""
    from scipy.io import whosmat

    stored = path.stat().st_size
    types = {"logical": "u1", "char": "U1", "cell": "O", "struct": "O", "single": "f4", "double": "f8"}
    return [
        Entry(name, tuple(shape), np.dtype(types.get(kind, kind)), stored, matlab=True)
        for name, shape, kind in whosmat(path)
        if kind in types or kind.startswith(("int", "uint"))
    ]


def _check_mat(path: Path, entry: Entry) -> None:
    """Raise an error if an array decompresses to more than its header says: SciPy would take it all into memory.

    A file of version 5 is a header of 128 bytes and a list of elements; type 15 is compressed. Its contents begin
    with a tag, 16 bytes of flags, the dimensions and the name, all padded to eight bytes.
    """
    most = 16 * math.prod(entry.shape) + MAT_OVERHEAD
    with open(path, "rb") as stream:
        order = "<" if stream.read(128)[126:128] == b"IM" else ">"
        while len(tag := stream.read(8)) == 8:
            kind, size = struct.unpack(order + "II", tag)
            if not 1 <= kind <= 18:  # not a type of version 5
                return
            following = stream.tell() + size
            if kind == MAT_COMPRESSED and _mat_name(stream.read(min(size, 1024)), order) == entry.name:
                stream.seek(following - size)
                _check_inflated(stream, size, most)
            stream.seek(following)


def _mat_name(packed: bytes, order: str) -> str:
    """Return the name of the array at the beginning of a compressed element; empty if it has none."""
    head = zlib.decompressobj().decompress(packed, 1024)
    try:
        (dimension_bytes,) = struct.unpack_from(order + "I", head, 28)
        start = 32 + -(-dimension_bytes // 8) * 8
        kind, size = struct.unpack_from(order + "II", head, start)
    except struct.error:
        return ""
    # Up to four characters stand in the tag itself, behind their number.
    name = head[start + 4 : start + 4 + (kind >> 16)] if kind >> 16 else head[start + 8 : start + 8 + size]
    return name.decode("latin-1")


def _check_inflated(stream: IO[bytes], size: int, most: int) -> None:
    """Decompress ``size`` bytes without keeping the result; raise an error if it has more than ``most`` bytes."""
    inflater, n_bytes = zlib.decompressobj(), 0
    while size > 0 and (block := stream.read(min(size, 1 << 20))):
        size -= len(block)
        while block:
            n_bytes += len(inflater.decompress(block, 1 << 24))
            block = inflater.unconsumed_tail
            if n_bytes > most:
                raise ValueError(f"it decompresses to over {most} bytes, more than its header says")


def _list_hdf5(path: Path) -> list[Entry]:
    h5py = import_h5py(path)
    entries: list[Entry] = []
    with h5py.File(path, "r") as file:

        def add(name: str, item: Dataset | Group) -> None:
            if isinstance(item, h5py.Dataset) and item.dtype.kind in NUMERIC + "SU":
                matlab = "MATLAB_class" in item.attrs
                shape = tuple(reversed(item.shape)) if matlab else tuple(item.shape)
                outside = item.is_virtual or bool(item.external)
                stored = min(item.id.get_storage_size(), path.stat().st_size)
                entries.append(Entry(name, shape, item.dtype, stored, matlab, outside))
            if len(entries) > MAX_ARRAYS:
                raise ValueError(f"it holds more than {MAX_ARRAYS} arrays")

        file.visititems(add)  # follows no link to another file
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

            _check_mat(path, entry)
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
