"""Where a fit stands, in one file, so that a later run takes over as if nothing had happened.

A checkpoint holds the dictionary with its multipliers, the history, the codes and the solver state of every chunk
(point and dual, or momentum), and what the pass under way has gathered. It is written by renaming a
finished file over the former one, and reading arrays does not change them: a fit that writes checkpoints computes
what one without them does, and one resumed in the same process conditions ends bit for bit the same.

>>> import numpy as np, pathlib, tempfile, tubal
>>> images, place = np.random.default_rng(0).random((12, 5, 4)), pathlib.Path(tempfile.mkdtemp()) / "fit.ckpt"
>>> whole = tubal.TubSC(n_atoms=3, max_iter=4, random_state=0).fit(images)
>>> stop = lambda progress: 1 / (progress.n_iter < 3)  # fails in the third iteration
>>> try:
...     tubal.TubSC(n_atoms=3, max_iter=4, random_state=0, callbacks=stop).fit(
...         images, checkpoint=Checkpoint(place, every_seconds=0.0))
... except ZeroDivisionError:
...     pass
>>> model = tubal.TubSC(n_atoms=3, max_iter=4, random_state=0).fit(images, checkpoint=Checkpoint(place, resume=True))
>>> bool((model.atoms_ == whole.atoms_).all())
True
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tubal.backends.arrays import Array, restore_like
from tubal.learning.alternation import Coded, Keeper, LearningState, MemoryStore, Tally
from tubal.learning.disk_store import DiskStore
from tubal.storage.archive import DamagedFileError, read_archive, write_archive
from tubal.storage.models import Encoder, decode

__all__ = ["Checkpoint", "as_checkpoint"]


@dataclass(frozen=True)
class Checkpoint:
    """Writes where a fit stands to ``path``, and takes it up again.

    Parameters
    ----------
    path : the file to write; codes on disk lie beside it in ``path`` + ".codes".
    every_seconds : least time between two writings. A fit in memory can be taken up after any iteration, one in
        chunks after any chunk.
    resume : take up what ``path`` holds, if there is something; without it a fit begins afresh and replaces it.
    """

    path: str | os.PathLike[str]
    every_seconds: float = 60.0
    resume: bool = False

    @property
    def codes_folder(self) -> Path:
        """Where a fit in chunks keeps its codes."""
        return Path(f"{os.fspath(self.path)}.codes")

    def load(self, fingerprint: dict[str, Any], like: Array) -> tuple[LearningState, Any] | None:
        """Return the state and the code store of a former run of the same fit, or None to begin afresh.

        ``like`` is an array of the kind and device the fit computes on.
        """
        if not self.resume or not Path(self.path).exists():
            return None
        content, arrays = read_archive(self.path, "checkpoint")
        found = decode(content, arrays, self.path)
        _check_same_fit(found["fingerprint"], fingerprint, self.path)
        state = LearningState(**_like(found["state"], like))
        if found["on_disk"]:
            return state, DiskStore.restore(self.codes_folder, found["chunks"])
        store = MemoryStore()
        for index, stored in found["chunks"].items():
            chunk = _like(stored, like)
            store.put(int(index), Coded(chunk["codes"], chunk["state"]))
        return state, store

    def keeper(self, fingerprint: dict[str, Any]) -> Keeper:
        """Return what learning calls wherever a later run could take over; it writes when the time has come."""
        written = time.monotonic()

        def keep(state: LearningState, store: Any) -> None:
            nonlocal written
            if state.finished or time.monotonic() - written >= self.every_seconds:
                self.write(fingerprint, state, store)
                written = time.monotonic()

        return keep

    def write(self, fingerprint: dict[str, Any], state: LearningState, store: Any) -> None:
        """Write a checkpoint now."""
        on_disk = hasattr(store, "snapshot")
        chunks = store.snapshot() if on_disk else _memory_chunks(store)
        content = {
            "fingerprint": fingerprint,
            "state": {field.name: getattr(state, field.name) for field in fields(state)},
            "on_disk": on_disk,
            "chunks": chunks,
        }
        encoder = Encoder()
        write_archive(self.path, "checkpoint", encoder.encode(content, "checkpoint"), encoder.arrays)
        if on_disk:
            store.protect()


def as_checkpoint(value: Any) -> Checkpoint | None:
    """Return a checkpoint from what a user passed: one, a path, or nothing."""
    if value is None or isinstance(value, Checkpoint):
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
    if isinstance(value, Tally):
        return value  # its statistics are added to fresh ones by their own type
    if hasattr(value, "__dataclass_fields__"):
        found = {field.name: _like(getattr(value, field.name), like) for field in fields(value)}
        return type(value)(**found)
    return restore_like(value, like)


def _check_same_fit(stored: Any, present: dict[str, Any], path: str | os.PathLike[str]) -> None:
    if not isinstance(stored, dict):
        raise DamagedFileError(f"{str(path)!r} cannot be resumed: it does not say which fit it belongs to")
    different = sorted(key for key in {*stored, *present} if stored.get(key) != present.get(key))
    if different:
        raise ValueError(
            f"{str(path)!r} is the checkpoint of another fit: {', '.join(different[:4])} differ; resume with the same "
            "model and images, or start again without resume"
        )
