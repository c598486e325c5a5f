"""One file of arrays and JSON: checked before it is used, written whole or not at all.

The file is a zip archive whose members are not compressed. So every member is as large as it says, or the file is
damaged, and a small file cannot unpack to a huge one. ``manifest.json`` names every array with its type, shape, length
and SHA-256. The SHA-256 of the manifest itself is the archive's comment. Nothing is unpacked to a disk, and nothing
in a file can be executed: arrays are numbers or text, never pickles.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from tubal.storage.files import atomic_write

Json: TypeAlias = Any  # what json.loads returns

FORMAT = "tubal"
VERSION = 1
KINDS = ("model", "checkpoint")
MANIFEST = "manifest.json"
# A manifest holds names and numbers. A longer one was not written by tubal, and is not read.
MAX_MANIFEST = 64 << 20
_BLOCK = 8 << 20
_PLAIN = "biufcUS"


class DamagedFileError(ValueError):
    """A file that was not written by tubal, or that has changed since."""


def write_archive(path: str | os.PathLike[str], kind: str, content: Json, arrays: Mapping[str, ArrayLike]) -> None:
    """Write ``content`` and ``arrays`` to ``path``; a failure leaves a former file as it was."""
    target = Path(path)
    try:
        with atomic_write(target) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            entries = {name: _write_array(archive, name, array) for name, array in arrays.items()}
            manifest = {
                "format": FORMAT,
                "version": VERSION,
                "kind": kind,
                "arrays": entries,
                "content": content,
            }
            text = json.dumps(manifest, allow_nan=False).encode()
            with archive.open(_member(MANIFEST), "w") as member:
                member.write(text)
            archive.comment = hashlib.sha256(text).hexdigest().encode()
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno, f"cannot write {str(target)!r}: {reason}; what was there before is untouched"
        ) from error


def read_archive(path: str | os.PathLike[str], kind: str) -> tuple[Json, dict[str, NDArray[Any]]]:
    """Return the content and the arrays of a file after checking every byte; an error says what is wrong."""
    target = Path(path)
    if not target.exists():
        raise FileNotFoundError(f"there is no file {str(target)!r}")
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a folder; name the file that save() wrote")
    try:
        with open(target, "rb") as stream, zipfile.ZipFile(stream) as archive:
            manifest = _read_manifest(archive)
            _check_manifest(manifest, kind)
            entries = _check_members(archive, manifest["arrays"], os.fstat(stream.fileno()).st_size)
            arrays = {name: _read_array(archive, name, entry) for name, entry in entries.items()}
            return manifest["content"], arrays
    except DamagedFileError as error:
        raise DamagedFileError(f"{str(target)!r} cannot be loaded: {error}") from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # a real fault of the disk keeps its own message
            raise
        raise DamagedFileError(f"{str(target)!r} cannot be loaded: it refers to bytes outside the file") from None
    except (
        zipfile.BadZipFile, struct.error, EOFError, ValueError, KeyError, TypeError, NotImplementedError,
        RecursionError, OverflowError, RuntimeError, AttributeError, IndexError, zlib.error,
    ) as error:  # fmt: skip
        raise DamagedFileError(
            f"{str(target)!r} cannot be loaded: it is truncated, altered or no tubal file ({error})"
        ) from None


def archive_kind(path: str | os.PathLike[str]) -> str | None:
    """Return what a file of ours holds ("model" or "checkpoint"), or None for a file that tubal has not written."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _read_manifest(archive)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError, struct.error):
        return None
    return str(manifest.get("kind")) if manifest.get("format") == FORMAT else None


# --- writing -------------------------------------------------------------------------------------------------
def _member(name: str) -> zipfile.ZipInfo:
    # A fixed date, so that the same model gives the same bytes.
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


def _write_array(archive: zipfile.ZipFile, name: str, values: ArrayLike) -> dict[str, Json]:
    """Write one array and return its entry in the manifest."""
    array = np.asarray(values)
    if array.dtype.kind not in _PLAIN:
        raise TypeError(f"an array of {array.dtype} cannot be saved; numbers or text are wanted")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape})
    digest, size = hashlib.sha256(), 0
    with archive.open(_member(_file_of(name)), "w", force_zip64=True) as member:
        for piece in (header.getvalue(), *_byte_blocks(array)):
            member.write(piece)
            digest.update(piece)
            size += len(piece)
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "size": size,
        "sha256": digest.hexdigest(),
    }


def _byte_blocks(array: NDArray[Any]) -> Iterator[bytes]:
    """Yield the array's bytes in C order, a few megabytes at a time, whatever its memory layout."""
    if array.ndim == 0 or array.nbytes <= _BLOCK:
        yield array.tobytes()
        return
    step = max(1, _BLOCK // max(1, array.nbytes // len(array)))
    for start in range(0, len(array), step):
        yield array[start : start + step].tobytes()


def _file_of(name: str) -> str:
    return f"arrays/{name}.npy"


# --- reading -------------------------------------------------------------------------------------------------
def _read_manifest(archive: zipfile.ZipFile) -> dict[str, Json]:
    info = archive.getinfo(MANIFEST)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > MAX_MANIFEST:
        raise DamagedFileError(f"its manifest claims {info.file_size} bytes, more than any manifest has")
    with archive.open(info) as member:
        text = member.read(MAX_MANIFEST + 1)
    if hashlib.sha256(text).hexdigest().encode() != archive.comment:
        raise DamagedFileError("its manifest does not match its checksum; the file was altered")
    manifest = json.loads(text)
    if not isinstance(manifest, dict):
        raise DamagedFileError("its manifest is not a table")
    return manifest


def _check_manifest(manifest: dict[str, Json], kind: str) -> None:
    if manifest.get("format") != FORMAT or not isinstance(manifest.get("version"), int):
        raise DamagedFileError("it was not written by tubal.save()")
    if manifest["version"] > VERSION:
        raise DamagedFileError(
            f"it has format {manifest['version']} and this version of tubal reads up to {VERSION}; upgrade tubal"
        )
    if manifest.get("kind") != kind:
        raise DamagedFileError(f"it holds a {str(manifest.get('kind'))[:40]}, a {kind} is wanted")


def _check_members(archive: zipfile.ZipFile, entries: Json, file_size: int) -> dict[str, dict[str, Json]]:
    """Check the type, shape and size of every entry against the file, before memory is allocated for it."""
    names = archive.namelist()
    if sorted(names) != sorted([MANIFEST, *map(_file_of, entries)]):
        raise DamagedFileError("its members are not those its manifest lists; the file was altered")
    total = 0
    for name, entry in entries.items():
        info = archive.getinfo(_file_of(name))
        dtype, shape = _claimed_type(entry["dtype"]), _claimed_shape(entry["shape"])
        expected = math.prod(shape) * dtype.itemsize
        stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        if not stored or info.file_size != entry["size"] or not 0 <= info.file_size - expected <= 1 << 16:
            raise DamagedFileError(f"array {name!r} is not as large as its shape {shape} says")
        total += info.file_size
    if total > file_size:
        raise DamagedFileError("its arrays claim to be larger than the file")
    return dict(entries)


def _claimed_type(text: Json) -> np.dtype[Any]:
    dtype = np.dtype(text) if isinstance(text, str) and len(text) < 16 else np.dtype(object)
    # Text of length 0 takes no bytes, so that its shape could be anything.
    if dtype.kind not in _PLAIN or dtype.hasobject or dtype.itemsize == 0:
        raise DamagedFileError(f"an array claims type {str(text)[:40]!r}; only numbers and text are loaded")
    return dtype


def _claimed_shape(values: Json) -> tuple[int, ...]:
    whole = isinstance(values, list) and len(values) <= 32
    if not whole or any(type(value) is not int or not 0 <= value < 1 << 48 for value in values):
        raise DamagedFileError(f"an array claims the absurd shape {str(values)[:80]}")
    return tuple(values)


def _read_array(archive: zipfile.ZipFile, name: str, entry: dict[str, Json]) -> NDArray[Any]:
    """Read one array and check it against its entry in the manifest."""
    dtype, shape = _claimed_type(entry["dtype"]), _claimed_shape(entry["shape"])
    digest = hashlib.sha256()
    with archive.open(_file_of(name)) as member:
        header = _Recorder(member)
        if npy.read_magic(header) != (1, 0):
            raise DamagedFileError(f"array {name!r} has an unknown header")
        if npy.read_array_header_1_0(header) != (shape, False, dtype):
            raise DamagedFileError(f"array {name!r} is not of the shape and type its manifest says")
        digest.update(header.seen)
        array = np.empty(shape, dtype)
        view = memoryview(array.reshape(-1).view(np.uint8).data) if array.size else memoryview(b"")
        n_read = 0
        while n_read < len(view):
            count = member.readinto(view[n_read : n_read + _BLOCK])  # type: ignore[attr-defined]
            if not count:
                raise DamagedFileError(f"array {name!r} ends too early; the file is truncated")
            digest.update(view[n_read : n_read + count])
            n_read += count
        if member.read(1):
            raise DamagedFileError(f"array {name!r} is longer than its shape")
    if digest.hexdigest() != entry["sha256"]:
        raise DamagedFileError(f"array {name!r} does not match its checksum; the file was altered")
    return array


class _Recorder:
    """Reads a header and keeps its bytes for the checksum."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.seen = stream, b""

    def read(self, count: int = -1, /) -> bytes:
        """Return up to ``count`` bytes."""
        found = self.stream.read(count)
        self.seen += found
        return found
