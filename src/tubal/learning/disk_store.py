"""Codes on disk, chunk by chunk, so that a checkpoint stays valid while newer codes are written.

Every chunk has two files. The one that the last checkpoint names is not written to until a later checkpoint names the
other. So a process killed at any moment leaves the codes of its last checkpoint untouched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tubal.learning.alternation import ChunkCodes, Indices
from tubal.problems.base import MomentumState, SplitState
from tubal.solvers.base import SolverState
from tubal.storage.archive import DamagedFileError

_STATES = {state.__name__: state for state in (SplitState, MomentumState)}
# A folder of codes carries this file. Codes are neither written into, nor deleted from, a folder without it.
_MARK = "tubal-codes.mark"
# Arrays are converted between samples-last and samples-first this many bytes at a time.
_BLOCK = 4 << 20


@dataclass(frozen=True)
class _Field:
    """One array of a chunk: its name, its shape without the samples axis, its type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class _ChunkFile:
    """The file of a chunk: its arrays one after the other, samples first."""

    slot: int  # which of the chunk's two files
    n_samples: int
    state: str | None
    fields: tuple[_Field, ...]
    checksum: int

    @property
    def length(self) -> int:
        return self.n_samples * sum(field.row_bytes for field in self.fields)

    def offset(self, name: str) -> int:
        names = [field.name for field in self.fields]
        return self.n_samples * sum(field.row_bytes for field in self.fields[: names.index(name)])


class DiskStore:
    """Keeps every chunk's codes and solver state in files of ``folder``, or of a temporary one."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="tubal-codes-")) if folder is None else Path(folder)
        check_codes_folder(self.folder)
        self._claim()
        self._files: dict[int, _ChunkFile] = {}
        self._protected: dict[int, int] = {}
        if self.temporary:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    # --- one chunk -------------------------------------------------------------------------------------------
    def get(self, index: int) -> ChunkCodes | None:
        """Return a chunk's codes and solver state, or None before its first coding step."""
        file = self._files.get(index)
        if file is None:
            return None
        arrays = {field.name: self._read(index, field) for field in file.fields}
        codes = arrays.pop("codes")
        if file.state is None:
            return ChunkCodes(codes, None)
        found = {name.removeprefix("state_"): array for name, array in arrays.items()}
        return ChunkCodes(codes, _STATES[file.state](**found))

    def put(self, index: int, coded: ChunkCodes) -> None:
        """Write a chunk's codes and solver state."""
        arrays = {"codes": coded.codes, **_state_arrays(coded.state)}
        slot = 1 - self._protected[index] if index in self._protected else 0
        n_samples, checksum = coded.codes.shape[-1], 0
        path = self._path(index, slot)
        try:
            with open(path, "wb") as stream:
                for array in arrays.values():
                    for block in _sample_blocks(array):
                        checksum = zlib.crc32(block.data, checksum)
                        stream.write(block.data)
        except OSError as error:
            reason = f"cannot write codes to {str(path)!r}: {error.strerror}; name a folder with more room"
            raise OSError(error.errno, reason) from error
        described = tuple(_Field(name, array.shape[:-1], array.dtype.str) for name, array in arrays.items())
        state = None if coded.state is None else type(coded.state).__name__
        self._files[index] = _ChunkFile(slot, n_samples, state, described, checksum)

    def codes_of(self, index: int) -> NDArray[Any] | None:
        """Return a chunk's codes, or None before its first coding step."""
        file = self._files.get(index)
        return None if file is None else self._read(index, file.fields[0])

    def gather(self, index: int, columns: Indices) -> NDArray[Any] | None:
        """Return the codes of some of a chunk's images, or None before its first coding step."""
        file = self._files.get(index)
        if file is None:
            return None
        field = file.fields[0]
        rows = np.empty((len(columns), *field.shape), field.dtype)
        with open(self._path(index, file.slot), "rb", buffering=0) as stream:
            for row, column in zip(rows, columns, strict=True):
                stream.seek(int(column) * field.row_bytes)
                _read_into(stream, row)
        return np.moveaxis(rows, 0, -1)

    # --- checkpoints -----------------------------------------------------------------------------------------
    def snapshot(self) -> dict[str, Any]:
        """Flush all files to the disk and return a description of them, as JSON values."""
        for index, file in self._files.items():
            handle = os.open(self._path(index, file.slot), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        return {str(index): _to_json(file) for index, file in self._files.items()}

    def protect(self) -> None:
        """Keep the present files from being overwritten, because a checkpoint names them."""
        self._protected = {index: file.slot for index, file in self._files.items()}

    @classmethod
    def restore(cls, folder: str | os.PathLike[str], described: dict[str, Any]) -> DiskStore:
        """Return the store that :meth:`snapshot` described; a file that has changed raises an error."""
        store = cls.__new__(cls)
        store.temporary, store.folder, store._files, store._protected = False, Path(folder), {}, {}
        for index, entry in described.items():
            file = _from_json(entry)
            store._files[int(index)] = file
            path = store._path(int(index), file.slot)
            if not path.exists() or path.stat().st_size != file.length or _checksum(path) != file.checksum:
                raise DamagedFileError(
                    f"the codes in {str(path)!r} are not those of the checkpoint; start again without resume"
                )
        store.protect()
        store._claim()  # earlier versions wrote no mark; the checksums have shown that the files are ours
        return store

    def indices(self) -> list[int]:
        """Return the indices of the chunks that have codes, in increasing order."""
        return sorted(self._files)

    @property
    def total_bytes(self) -> int:
        """Bytes of all codes, without solver states."""
        return sum(file.n_samples * file.fields[0].row_bytes for file in self._files.values())

    # --- all chunks ------------------------------------------------------------------------------------------
    def collect(self, target: str | os.PathLike[str] | None = None, order: Indices | None = None) -> NDArray[Any]:
        """Return all codes, samples last: in memory, or mapped from the file ``target``.

        ``order`` says which image of the result each stored image is; by default they keep their order.
        """
        n_samples = sum(file.n_samples for file in self._files.values())
        field = next(iter(self._files.values())).fields[0]
        order = np.arange(n_samples) if order is None else order
        shape = (n_samples, *field.shape)
        if target is None:
            codes = np.empty(shape, field.dtype)
            for rows, found in self._pieces(order):
                codes[rows] = found
        else:
            self._write_rows(target, shape, order)
            codes = np.load(target, mmap_mode="r")
        return np.moveaxis(codes, 0, -1)

    def _pieces(self, order: Indices) -> Iterator[tuple[Indices, NDArray[Any]]]:
        """Yield codes a few megabytes at a time, samples first, with their rows in the result."""
        start = 0
        for index in sorted(self._files):
            file = self._files[index]
            step = max(1, _BLOCK // max(1, file.fields[0].row_bytes))
            for first in range(0, file.n_samples, step):
                columns = np.arange(first, min(first + step, file.n_samples))
                found = self.gather(index, columns)
                assert found is not None
                yield order[start + columns], np.moveaxis(found, -1, 0)
            start += file.n_samples

    def _write_rows(self, target: str | os.PathLike[str], shape: tuple[int, ...], order: Indices) -> None:
        """Write all codes to a ``.npy`` file row by row; a mapped file would count as memory while it is written."""
        dtype = np.dtype(next(iter(self._files.values())).fields[0].dtype)
        row_bytes = int(np.prod(shape[1:])) * dtype.itemsize
        with open(target, "wb") as stream:
            npy.write_array_header_1_0(stream, {"descr": dtype.str, "fortran_order": False, "shape": shape})
            begin = stream.tell()
            for rows, found in self._pieces(order):
                for row, codes in zip(rows, np.ascontiguousarray(found), strict=True):
                    stream.seek(begin + int(row) * row_bytes)
                    stream.write(codes.data)

    def discard(self) -> None:
        """Remove the files."""
        delete_codes_folder(self.folder)

    # --- files -----------------------------------------------------------------------------------------------
    def _claim(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _MARK).touch()

    def _path(self, index: int, slot: int) -> Path:
        return self.folder / f"chunk-{index:06d}.{'ab'[slot]}"

    def _read(self, index: int, field: _Field) -> NDArray[Any]:
        file = self._files[index]
        found = np.empty((*field.shape, file.n_samples), field.dtype)
        step = max(1, _BLOCK // max(1, field.row_bytes))
        with open(self._path(index, file.slot), "rb", buffering=0) as stream:
            stream.seek(file.offset(field.name))
            for start in range(0, file.n_samples, step):
                rows = np.empty((min(step, file.n_samples - start), *field.shape), field.dtype)
                _read_into(stream, rows)
                found[..., start : start + len(rows)] = np.moveaxis(rows, 0, -1)
        return found


def check_codes_folder(folder: Path) -> None:
    """Raise an error if a folder for codes holds files that are not ours."""
    if os.path.lexists(folder) and not (folder / _MARK).is_file() and not (folder.is_dir() and _is_empty(folder)):
        raise FileExistsError(
            f"{str(folder)!r} was not made by tubal and would hold the codes of the checkpoint; move or rename it"
        )


def delete_codes_folder(folder: Path) -> None:
    """Delete the codes in a folder that carries our mark, and the folder if nothing else is in it."""
    if not (folder / _MARK).is_file():
        return
    for file in folder.glob("chunk-*.[ab]"):
        file.unlink(missing_ok=True)
    (folder / _MARK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _is_empty(folder: Path) -> bool:
    return next(folder.iterdir(), None) is None


def _state_arrays(state: SolverState) -> dict[str, NDArray[Any]]:
    """Return the arrays of a solver's state, samples last."""
    if state is None:
        return {}
    found = {field.name: getattr(state, field.name) for field in fields(state)}
    return {f"state_{name}": value for name, value in found.items() if isinstance(value, np.ndarray)}


def _sample_blocks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield contiguous blocks (samples, ...) of a samples-last array."""
    row_bytes = max(1, array.nbytes // max(1, array.shape[-1]))
    step = max(1, _BLOCK // row_bytes)
    for start in range(0, array.shape[-1], step):
        yield np.ascontiguousarray(np.moveaxis(array[..., start : start + step], -1, 0))


def _read_into(stream: FileIO, rows: NDArray[Any]) -> None:
    """Fill the array ``rows`` with bytes read from ``stream``."""
    view = memoryview(rows.reshape(-1).view(np.uint8).data) if rows.size else memoryview(b"")
    n_read = 0
    while n_read < len(view):
        count = stream.readinto(view[n_read:])
        if not count:
            raise DamagedFileError(f"the codes in {stream.name!r} end too early; start again without resume")
        n_read += count


def _checksum(path: Path) -> int:
    found = 0
    with open(path, "rb") as stream:
        while block := stream.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found


def _to_json(file: _ChunkFile) -> dict[str, Any]:
    described = [[field.name, list(field.shape), field.dtype] for field in file.fields]
    return {
        "slot": file.slot,
        "n_samples": file.n_samples,
        "state": file.state,
        "fields": described,
        "checksum": file.checksum,
    }


def _from_json(entry: dict[str, Any]) -> _ChunkFile:
    described = tuple(_Field(name, tuple(shape), dtype) for name, shape, dtype in entry["fields"])
    return _ChunkFile(entry["slot"], entry["n_samples"], entry["state"], described, entry["checksum"])
