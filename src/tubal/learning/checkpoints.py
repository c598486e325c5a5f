"""Checkpoints: the state of a fit in one file, from which a later run continues as if nothing had happened.

A checkpoint holds the dictionary with its multipliers, the history, the codes and the solver state of every chunk
(point and dual, or momentum), and the totals of the coding pass in progress. A fit with more stages than the learning
(:class:`Stages`) keeps arrays of the others in the same file. A finished file replaces the former one
by a rename. Writing does not change any array, so a fit with checkpoints computes what a fit without them does. On
the CPU, with the same seed and threads, a resumed fit ends bit for bit the same.

>>> import numpy as np, pathlib, tempfile, tubal
>>> images, path = np.random.default_rng(0).random((12, 5, 4)), pathlib.Path(tempfile.mkdtemp()) / "fit.ckpt"
>>> whole = tubal.TubSC(n_atoms=3, max_iter=4, random_state=0).fit(images)
>>> stop = lambda progress: 1 / (progress.n_iter < 3)  # fails in the third iteration
>>> try:
...     tubal.TubSC(n_atoms=3, max_iter=4, random_state=0, callbacks=stop).fit(
...         images, checkpoint=Checkpoint(path, every_seconds=0.0))
... except ZeroDivisionError:
...     pass
>>> model = tubal.TubSC(n_atoms=3, max_iter=4, random_state=0).fit(images, checkpoint=Checkpoint(path, resume=True))
>>> bool((model.atoms_ == whole.atoms_).all())
True
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, restore_like
from tubal.graph.structure import Report, Stage
from tubal.learning.alternation import ChunkCodes, LearningState, MemoryStore, PassTotals, SaveProgress
from tubal.storage.files import WritingClock, check_marked_folder, delete_marked_folder, mark_folder
from tubal.storage.models import DamagedFileError, Encoder, archive_kind, decode, read_archive, write_archive

if TYPE_CHECKING:
    from tubal.learning.fitting import Recipe


import shutil
import tempfile
import weakref
import zlib
from io import FileIO

from numpy.lib import format as npy

from tubal.learning.alternation import Indices
from tubal.problems.base import MomentumState, SplitState
from tubal.solvers.base import SolverState

__all__ = ["Checkpoint", "as_checkpoint"]

# Which fit a checkpoint belongs to: parameters as text, or as a digest where they are long.
Identity: TypeAlias = Mapping[str, str]
# Files of a folder of codes, and of rows that were kept one part after the other.
CODES_FILES, ROWS_FILES = "chunk-*.[ab]", "rows-*.tubal"
# Names of fields of LearningState in files that earlier versions wrote.
_FORMER_FIELDS = {"tally": "totals", "beginning": "start_objective"}


class SnapshotStore(Protocol):
    """A code store that can write its codes to files which later codes do not overwrite."""

    def snapshot(self) -> dict[str, Any]:
        """Write the codes durably and return a description of the files, as JSON values."""

    def protect(self) -> None:
        """Keep the files of the last snapshot from being overwritten."""


@contextlib.contextmanager
def _restart_advised() -> Iterator[None]:
    """Add what to do to the error of a damaged checkpoint."""
    try:
        yield
    except DamagedFileError as error:
        if "without resume" in str(error):
            raise
        raise DamagedFileError(f"{error}; delete it and start again without resume") from None


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a fit saves its state, and whether it continues from there.

    Parameters
    ----------
    path : str or path-like
        The file to write. Codes on disk lie beside it in the folder ``path`` + ".codes", and neighbours that were found
        in the folder ``path`` + ".rows".
    every_seconds : float, default=10.0
        Shortest time between two checkpoints; up to three times as long where writing them takes long. A fit in memory
        can be continued after any iteration, a fit in chunks after any chunk. Neighbours are kept as soon as they are
        found.
    resume : bool, default=False
        Continue from the checkpoint in ``path`` if there is one. Otherwise the fit starts from the beginning and
        replaces it.
    stages : Stages or None, default=None
        Other stages of the fit, whose arrays are kept in the same file. Estimators set it.
    """

    path: str | os.PathLike[str]
    every_seconds: float = 10.0
    resume: bool = False
    stages: Stages | None = field(default=None, repr=False, compare=False)

    @property
    def codes_folder(self) -> Path:
        """Folder in which a fit in chunks keeps its codes."""
        return Path(f"{os.fspath(self.path)}.codes")

    @property
    def rows_folder(self) -> Path:
        """Folder of the rows that a stage has added so far."""
        return Path(f"{os.fspath(self.path)}.rows")

    @property
    def later_path(self) -> Path:
        """File that keeps what is computed after the fit."""
        return Path(f"{os.fspath(self.path)}.later")

    def check_place(self) -> None:
        """Raise an error if a file, or a folder beside it, exists and was not written by tubal."""
        again = ", and start again without resume" if self.resume else ""
        for path in (Path(self.path), self.later_path):
            if os.path.lexists(path) and archive_kind(path) != "checkpoint":
                raise FileExistsError(
                    f"{str(path)!r} is not a checkpoint of tubal, or a damaged one, and a checkpoint would replace it; "
                    f"move or rename it{again}"
                )
        check_marked_folder(self.codes_folder, "the codes")
        check_marked_folder(self.rows_folder, "the neighbours")

    def delete(self) -> None:
        """Delete the files, and those in the folders beside them; what was not written by tubal stays."""
        for path in (Path(self.path), self.later_path):
            if archive_kind(path) == "checkpoint":
                path.unlink(missing_ok=True)
        delete_marked_folder(self.codes_folder, CODES_FILES)
        delete_marked_folder(self.rows_folder, ROWS_FILES)

    def stages_after(self, fitted: str) -> Stages:
        """Return the stages of what is computed after the fit, such as a map; they have a file of their own.

        Parameters
        ----------
        fitted : str
            Digest of the fitted model. What was kept for another model is not used.

        Returns
        -------
        Stages
            Stages that keep their arrays in :attr:`later_path`.
        """
        stages, identity = Stages(), {"model": fitted, "images": ":"}
        with contextlib.suppress(ValueError):  # kept for another model, after which it is replaced
            stages.keep_in(replace(self, path=self.later_path), identity)
        return stages

    def identity(self, recipe: Recipe, images: str) -> dict[str, str]:
        """Return what identifies a fit: model, parameters and images.

        Parameters
        ----------
        recipe : Recipe
            What defines the fit.
        images : str
            Digest of the images.

        Returns
        -------
        dict of str to str
            Equal for two fits that compute the same.
        """
        return fit_identity(recipe.name, recipe.parameters, images)

    @_restart_advised()
    def load(self, identity: Identity, like: Array) -> tuple[LearningState, MemoryStore | DiskStore] | None:
        """Return the state and the code store of an interrupted run of the same fit.

        Parameters
        ----------
        identity : mapping of str to str
            What identifies the fit; a checkpoint of another fit raises an error that names the difference.
        like : array
            An array of the kind and device that the fit computes with.

        Returns
        -------
        tuple of (LearningState, MemoryStore or DiskStore), or None
            None if there is no checkpoint, or if the fit is not to be continued.
        """
        if not self.resume or not Path(self.path).exists():
            self.check_place()
            return None
        content, arrays = read_archive(self.path, "checkpoint")
        found = decode(content, arrays, self.path)
        if self.stages is not None and "state" not in found:
            return None  # an earlier stage was interrupted
        _check_same_fit(found["fingerprint"], identity, self.path)
        stored = {_FORMER_FIELDS.get(name, name): value for name, value in found["state"].items()}
        state = LearningState(**_like(stored, like))
        if found["on_disk"]:
            return state, DiskStore.restore(self.codes_folder, found["chunks"])
        store = MemoryStore()
        for index, stored_chunk in found["chunks"].items():
            chunk = _like(stored_chunk, like)
            store.put(int(index), ChunkCodes(chunk["codes"], chunk["state"]))
        return state, store

    def saver(self, identity: Identity) -> SaveProgress:
        """Return the function that learning calls wherever a later run could continue.

        Parameters
        ----------
        identity : mapping of str to str
            What identifies the fit.

        Returns
        -------
        callable
            Writes a checkpoint if the last one is ``every_seconds`` old, or if the fit is finished.
        """
        clock = WritingClock(self.every_seconds)

        def save(state: LearningState, store: MemoryStore | SnapshotStore) -> None:
            if state.finished or clock.is_due():
                with clock.restarted():
                    self.write(identity, state, store)

        return save

    def write(self, identity: Identity, state: LearningState, store: MemoryStore | SnapshotStore) -> None:
        """Write a checkpoint now.

        Parameters
        ----------
        identity : mapping of str to str
            What identifies the fit.
        state : LearningState
            Where the fit stands.
        store : MemoryStore or SnapshotStore
            The codes of every chunk.
        """
        content = {
            "fingerprint": dict(identity),
            "state": {field.name: getattr(state, field.name) for field in fields(state)},
            "on_disk": not isinstance(store, MemoryStore),
            "chunks": _memory_chunks(store) if isinstance(store, MemoryStore) else store.snapshot(),
        }
        if self.stages is not None:
            content["stages"] = self.stages.content(with_learning=True)
        encoder = Encoder()
        write_archive(self.path, "checkpoint", encoder.encode(content, "checkpoint"), encoder.arrays)
        if not isinstance(store, MemoryStore):
            store.protect()


# --- fits of several stages ----------------------------------------------------------------------------------
StageReport: TypeAlias = Callable[[str, int, int], object]


class Stages:
    """The stages of a fit: each reports its progress, and with a checkpoint each keeps what it has found.

    The learning of the dictionary is one of them and keeps its state itself; all share one file.

    Parameters
    ----------
    progress : callable or None, default=None
        Called with the name of a stage, what is done of it, and the total.
    """

    def __init__(self, progress: StageReport | None = None) -> None:
        if progress is not None and not callable(progress):
            raise TypeError(
                f"progress is {progress!r}; a function is wanted, called as progress(stage, done, total), or None"
            )
        self._progress = progress
        self._arrays: dict[str, dict[str, NDArray[Any]]] = {}
        self._identity: dict[str, str] = {}
        self._clock = WritingClock(0.0)
        self._learning_in_file = False
        self._rows: _Rows | None = None
        self.checkpoint: Checkpoint | None = None

    @_restart_advised()
    def keep_in(self, checkpoint: Checkpoint, identity: Identity) -> None:
        """Keep arrays in a checkpoint from now on, and find those of an interrupted run there.

        Parameters
        ----------
        checkpoint : Checkpoint
            The file, and whether to continue from it.
        identity : mapping of str to str
            What identifies the fit; a checkpoint of another fit raises an error that names the difference.
        """
        self.checkpoint, self._identity = replace(checkpoint, stages=self), dict(identity)
        self._clock = WritingClock(checkpoint.every_seconds)
        self._rows = _Rows(checkpoint.rows_folder, self._identity)
        if not checkpoint.resume or not Path(checkpoint.path).exists():
            checkpoint.check_place()
            self._rows.delete()
            return
        content, arrays = read_archive(checkpoint.path, "checkpoint")
        self._learning_in_file = "state" in content
        if "stages" not in content:  # an earlier version, which kept the learning only, or another fit
            if not self._learning_in_file:
                raise DamagedFileError(f"{str(checkpoint.path)!r} cannot be resumed: it holds no part of a fit")
            return
        stored = decode(content["stages"], arrays, checkpoint.path)
        _check_same_fit(stored["fingerprint"], self._identity, checkpoint.path)
        self._arrays = stored["arrays"]

    def stage(self, name: str, title: str | None = None, report: Report | None = None) -> Stage:
        """Return one stage.

        Parameters
        ----------
        name : str
            Name under which its arrays are kept.
        title : str or None, default=None
            Name under which its progress is reported; None to report none.
        report : callable or None, default=None
            Called with what is done and the total, in place of the function that all stages share.

        Returns
        -------
        Stage
            The stage.
        """
        if report is None and self._progress is not None and title is not None:
            report = partial(self._progress, title)
        return Stage(report) if self.checkpoint is None else _KeptStage(report, name, self)

    def arrays_of(self, name: str) -> dict[str, NDArray[Any]]:
        """Return what a stage has kept.

        Parameters
        ----------
        name : str
            Name of the stage.

        Returns
        -------
        dict of str to ndarray
            Its arrays; empty if there are none.
        """
        if name not in self._arrays and self._rows is not None:
            return self._rows.read(name)
        return dict(self._arrays.get(name, {}))

    def keep(self, name: str, arrays: Callable[[], Mapping[str, NDArray[Any]]], *, finished: bool) -> None:
        """Write the arrays of a stage if it is finished, or if the last writing is ``every_seconds`` ago.

        Parameters
        ----------
        name : str
            Name of the stage.
        arrays : callable
            Returns its arrays.
        finished : bool
            Whether they are its result.
        """
        if self.checkpoint is None:
            return
        if finished or self._clock.is_due():
            self._arrays[name] = dict(arrays())
            with self._clock.restarted():
                self._write(self.checkpoint.path)
            if finished and self._rows is not None and self._rows.stage == name:
                self._rows.delete()

    def add(self, name: str, arrays: Mapping[str, NDArray[Any]], first: int) -> None:
        """Write the next rows of a stage.

        Parameters
        ----------
        name : str
            Name of the stage.
        arrays : mapping of str to ndarray
            The rows.
        first : int
            Number of rows before them.
        """
        if self._rows is not None:
            self._rows.add(name, arrays, first)

    def _write(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays of all stages; a state of the learning that is in the file stays there."""
        content: dict[str, Any] = {"fingerprint": self._identity}
        if self._learning_in_file:
            content = decode(*read_archive(path, "checkpoint"), path)
        content["stages"] = self.content(with_learning=self._learning_in_file)
        encoder = Encoder()
        write_archive(path, "checkpoint", encoder.encode(content, "checkpoint"), encoder.arrays)

    def content(self, *, with_learning: bool) -> dict[str, Any]:
        """Return what the file holds of the stages.

        Parameters
        ----------
        with_learning : bool
            Whether the state of the learning is written into the same file, beside the stages.

        Returns
        -------
        dict of str to object
            The identity of the fit, and the arrays of every stage.
        """
        self._learning_in_file = with_learning
        return {"fingerprint": self._identity, "arrays": self._arrays}


class _KeptStage(Stage):
    """One stage of a fit with a checkpoint."""

    def __init__(self, report: Report | None, name: str, stages: Stages) -> None:
        super().__init__(report)
        self._name, self._stages = name, stages

    def kept(self) -> dict[str, NDArray[Any]]:
        return self._stages.arrays_of(self._name)

    def keep(self, arrays: Callable[[], Mapping[str, NDArray[Any]]], *, finished: bool = False) -> None:
        self._stages.keep(self._name, arrays, finished=finished)

    def part(self, name: str) -> Stage:
        return self._stages.stage(f"{self._name} {name}")

    def add(self, arrays: Mapping[str, NDArray[Any]], first: int) -> None:
        self._stages.add(self._name, arrays, first)


class _Rows:
    """A folder of files that each hold the next rows of the arrays of one stage, so that none is written twice."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._folder, self._identity = folder, dict(identity)
        self.stage, self._n_files, self._n_rows = "", 0, 0

    def read(self, stage: str) -> dict[str, NDArray[Any]]:
        """Return the rows of a stage of this fit, up to the first file that is missing or damaged."""
        self.stage, self._n_files, self._n_rows = stage, 0, 0
        parts: list[dict[str, NDArray[Any]]] = []
        with contextlib.suppress(FileNotFoundError, DamagedFileError):
            while True:
                content, arrays = read_archive(self._file(self._n_files), "checkpoint")
                if content != self._content() or (parts and set(arrays) != set(parts[0])):
                    break
                parts.append(arrays)
                self._n_files += 1
                self._n_rows += _n_rows(arrays)
        return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}

    def add(self, stage: str, arrays: Mapping[str, NDArray[Any]], first: int) -> None:
        """Write the next rows of a stage; the first of all replace those of another stage, or of an earlier run."""
        if first == 0:
            self.delete()
            self.stage = stage
        if (stage, first) != (self.stage, self._n_rows):
            return  # the rows before these were kept otherwise, by an earlier version
        mark_folder(self._folder)
        write_archive(self._file(self._n_files), "checkpoint", self._content(), arrays)
        self._n_files += 1
        self._n_rows += _n_rows(arrays)

    def delete(self) -> None:
        """Delete all files, and the folder."""
        delete_marked_folder(self._folder, ROWS_FILES)
        self.stage, self._n_files, self._n_rows = "", 0, 0

    def _content(self) -> dict[str, Any]:
        return {"fingerprint": self._identity, "stage": self.stage, "first": self._n_rows}

    def _file(self, number: int) -> Path:
        return self._folder / ROWS_FILES.replace("*", f"{number:06d}")


def _n_rows(arrays: Mapping[str, NDArray[Any]]) -> int:
    return len(next(iter(arrays.values()), ()))


def fit_identity(name: str, parameters: Mapping[str, object], images: str) -> dict[str, str]:
    """Return what identifies a fit: the estimator's name, its parameters, and the digest of the images."""
    found = {"model": name, "images": images}
    for key, value in parameters.items():
        if key in ("callbacks", "verbose") or isinstance(value, np.random.RandomState):
            continue
        encoder = Encoder()
        text = json.dumps(encoder.encode(value, key))
        digest = hashlib.sha256(text.encode())
        for array in encoder.arrays.values():
            digest.update(np.ascontiguousarray(array).data)
        found[key] = text if not encoder.arrays and len(text) < 80 else digest.hexdigest()
    return found


def as_checkpoint(value: Checkpoint | str | os.PathLike[str]) -> Checkpoint:
    """Return a checkpoint from what a user passed: one, or a path."""
    if isinstance(value, Checkpoint):
        return value
    if isinstance(value, (str, os.PathLike)):
        return Checkpoint(value)
    raise TypeError(f"checkpoint is a {type(value).__name__}; a path or tubal.checkpoints.Checkpoint is wanted")


def _memory_chunks(store: MemoryStore) -> dict[str, Any]:
    chunks = {}
    for index in store.indices():
        coded = store.get(index)
        assert coded is not None
        chunks[str(index)] = {"codes": coded.codes, "state": coded.state}
    return chunks


def _like(value: Any, like: Array) -> Any:
    """Bring every array of a decoded tree to the kind and device of ``like``."""
    if isinstance(value, dict):
        return {key: _like(item, like) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_like(item, like) for item in value)
    if isinstance(value, PassTotals):
        return value  # statistics have a type of their own, which does not depend on the fit's arrays
    if hasattr(value, "__dataclass_fields__"):
        found = {field.name: _like(getattr(value, field.name), like) for field in fields(value)}
        return type(value)(**found)
    return restore_like(value, like)


def _check_same_fit(stored: object, present: Identity, path: str | os.PathLike[str]) -> None:
    if not isinstance(stored, dict):
        raise DamagedFileError(f"{str(path)!r} cannot be resumed: it does not say which fit it belongs to")
    if ":" not in str(stored.get("images")):  # earlier versions stored a digest of some images only
        present = {**present, "images": present["images"].partition(":")[0]}
    different = sorted(key for key in {*stored, *present} if stored.get(key) != present.get(key))
    if different:
        raise ValueError(
            f"{str(path)!r} is the checkpoint of another fit: {', '.join(different[:4])} differ; resume with the same "
            "model and images, or start again without resume"
        )


# --- codes on disk ----------------------------------------------------------------------------------------------------
# Every chunk has two files. The one that the last checkpoint names is not written to until a later checkpoint names the
# other. So a process killed at any moment leaves the codes of its last checkpoint untouched.
_STATES = {state.__name__: state for state in (SplitState, MomentumState)}
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
        check_marked_folder(self.folder, "the codes")
        mark_folder(self.folder)
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
        mark_folder(store.folder)  # earlier versions wrote no mark; the checksums have shown that the files are ours
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
        delete_marked_folder(self.folder, CODES_FILES)

    # --- files -----------------------------------------------------------------------------------------------
    def _path(self, index: int, slot: int) -> Path:
        """Return one of the two files of a chunk; a new one is written while a checkpoint needs the other."""
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
