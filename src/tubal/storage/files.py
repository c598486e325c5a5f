"""Writing files so that a reader never finds half of one, and that a second run never mixes its results with the first.

A file is written beside its final place, flushed to the disk and renamed. A folder of results is filled in a hidden
folder beside it, then the two folders are exchanged at once. The hidden folder is also the lock: while a run holds it,
a second run into the same folder raises an error. It carries a mark, so that what a killed run left behind is
recognised, finished or removed by the next run. Nothing without the mark is deleted.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from math import isfinite
from pathlib import Path
from typing import IO, Any, TypeAlias, TypedDict

from tubal import __version__
from tubal.backends.arrays import available_cores

__all__ = [
    "answers_beside",
    "atomic_write",
    "check_place",
    "earlier_record",
    "reserve",
    "same_place",
    "sha256_of",
    "staged_folder",
    "unused_name",
]

# A hidden folder holds the mark (which is locked), the new results, and, while they are exchanged, the old ones.
_MARK, _NEW, _OLD, _JOURNAL = "tubal.mark", "new", "old", "journal.json"
_PART = ".part"
# More files than this beside the results are not linked into the new folder; then the results are moved one by one.
_MAX_KEPT = 1000
_LOCK_TRIES, _LOCK_PAUSE = 4, 0.05

# What tells whether an entry of a folder has changed: inode, size, time of the last change.
_Fingerprint: TypeAlias = tuple[tuple[int, int, int], ...]


# --- one file ----------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb", **text: str) -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path``; rename it to ``path`` if the block succeeds.

    A file that is replaced keeps its mode and its owner. ``text`` is passed to :func:`open` (``encoding``, ``errors``,
    ``newline``).

    >>> import pathlib, tempfile
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_write(target, "w", encoding="utf-8") as stream:
    ...     _ = stream.write("whole")
    ...     target.exists()
    False
    >>> target.read_text()
    'whole'
    """
    target = Path(path)
    prefix = f".{_short(target.name)}."
    _remove_abandoned_files(target.parent, prefix)
    handle, temporary = _locked_temporary(target.parent, prefix)
    try:
        with open(handle, mode, **text) as stream:  # type: ignore[call-overload]
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            # mkstemp makes private files; results should have the permissions of any new file.
            os.chmod(temporary, 0o666 & ~_current_umask())
            _keep_mode_and_owner(Path(temporary), target)
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file as hexadecimal digits, read in blocks."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def same_place(first: Path, second: Path) -> bool:
    """Tell whether two paths name the same existing file or folder, whatever links and spellings lead there."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def unused_name(path: Path) -> Path:
    """Return a path like ``path`` where nothing is yet, with a number before the suffix.

    >>> unused_name(Path("/nowhere/model.tubal")).name
    'model-2.tubal'
    """
    number = 2
    while os.path.lexists(found := path.with_name(f"{path.stem}-{number}{path.suffix}")):
        number += 1
    return found


# --- a folder of results -----------------------------------------------------------------------------------------
def answers_beside(out: Path) -> Path:
    """Return the journal of what was said about results; it lies beside them, and stays when they are replaced.

    >>> answers_beside(Path("photos/tubal-out")).as_posix()
    'photos/tubal-out.hints'
    """
    named = out if out.name not in ("", "..") else out.resolve()
    return named.with_name(f"{named.name}.hints")


def earlier_record(folder: Path) -> dict[str, Any]:
    """Return the record of an earlier run in a folder, or an empty one if the folder does not hold our results."""
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    ours = isinstance(record, dict) and isinstance(record.get("settings"), dict) and "versions" in record
    return record if ours else {}


@contextlib.contextmanager
def reserve(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a hidden folder that only this run may use until the block ends; a second run for ``path`` raises.

    What killed runs left beside ``path`` is finished or removed first.
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = _hidden_folder(target)
        _clean_abandoned(hidden.parent)
        handle = _acquire(hidden, target)
    except _BusyError as error:
        raise BlockingIOError(str(error)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"cannot write results to {str(path)!r}: {reason}; name another place") from error
    try:
        yield hidden
    finally:
        _release(hidden, handle, target)


@contextlib.contextmanager
def staged_folder(
    path: str | os.PathLike[str], *, force: bool = False, stale: Sequence[str] = (), hidden: Path | None = None
) -> Iterator[Path]:
    """Yield an empty hidden folder; if the block succeeds, it takes the place of the folder ``path`` at once.

    A folder that is not empty is only replaced with ``force``. Then entries named in ``stale`` are removed, and all
    others that have no new version stay. Modes and owners stay as they are. Errors are raised before the block runs,
    so that no work is lost. ``hidden`` is the folder of a reservation that the caller holds already.

    The exchange is atomic. Three kinds of folders cannot be exchanged: the current folder, a mounted one, and one that
    holds folders of the user. There the entries are moved one by one, and the next run finishes what a kill has
    interrupted.
    """
    target = Path(os.path.realpath(path))
    with contextlib.ExitStack() as stack:
        place = hidden or stack.enter_context(reserve(path))
        check_place(path, force=force)
        before = _fingerprints(target, stale)
        new = place / _NEW
        new.mkdir(mode=0o700)
        yield new
        _publish(place, target, before, stale)


class _BusyError(OSError):
    """Another run holds the reservation."""


def check_place(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Raise an error if no folder of results can appear at ``path``: a file, or without ``force`` files, are there.

    Parameters
    ----------
    path : path-like
        Folder for the results; it need not exist.
    force : bool, default=False
        Whether earlier files may be replaced.
    """
    named, target = str(path), Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{named!r} is a file; name a folder for the results")
    if target.is_dir() and not force and _entries(target):
        which = "the current folder" if same_place(target, Path()) else f"the folder {named!r}"
        raise FileExistsError(f"{which} holds files already; name another, or use --force to replace earlier results")
    if target.is_dir() and not os.access(target, os.W_OK | os.X_OK):
        raise OSError(f"cannot write results to {named!r}: Permission denied; name another folder")


def _publish(hidden: Path, target: Path, before: Mapping[str, _Fingerprint], stale: Sequence[str]) -> None:
    """Put the new results in the place of ``target``; what has appeared or changed there meanwhile is not replaced."""
    new = hidden / _NEW
    for file in new.iterdir():
        _sync(file)
    if os.path.lexists(target) and not target.is_dir():
        _place_beside(hidden, target, [target.name])
    _settle_modes(new, target)
    if not _entries(target) and not _is_fixed(hidden, target):
        with contextlib.suppress(OSError):  # something has appeared there at this moment
            os.rename(new, target)
            _sync_folder(target.parent)
            return
    fresh, present = set(os.listdir(new)), _fingerprints(target, stale)
    clash = sorted(name for name in fresh | set(stale) if name in present and present[name] != before.get(name))
    if clash:
        _place_beside(hidden, target, clash)
    kept = sorted(set(present) - fresh - set(stale))
    if _is_fixed(hidden, target) or len(kept) > _MAX_KEPT or any(_is_folder(target / name) for name in kept):
        (hidden / _JOURNAL).write_text(json.dumps([sorted(fresh), list(stale)]), encoding="utf-8")
        _sync(hidden / _JOURNAL)
        _move_entries(hidden, target)
    else:
        for name in kept:
            _link(target / name, new / name)
        _exchange_folders(hidden, target)
        _move_latecomers(new if new.is_dir() else hidden / _OLD, target, fresh, set(present) - set(kept))
    _sync_folder(target.parent)


def _place_beside(hidden: Path, target: Path, clash: Sequence[str]) -> None:
    """Save the results under another name, then raise an error that says so."""
    beside = unused_name(hidden.parent / target.name)
    os.rename(hidden / _NEW, beside)
    raise FileExistsError(
        f"{', '.join(clash[:3])} appeared or changed during the run in {str(target)!r} and was not replaced; "
        f"the results are in {str(beside)!r}"
    )


def _exchange_folders(hidden: Path, target: Path) -> None:
    """Exchange the new folder with the old one: at once, or by two renames that the next run can complete."""
    new = hidden / _NEW
    if not _swap(new, target):
        os.rename(target, hidden / _OLD)
        os.rename(new, target)


def _swap(first: Path, second: Path) -> bool:
    """Exchange two folders atomically; return False where the system cannot do that."""
    names = os.fsencode(first), os.fsencode(second)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            return bool(library.renamex_np(*names, 2) == 0)  # 2 is RENAME_SWAP
        return bool(library.renameat2(-100, names[0], -100, names[1], 2) == 0)  # AT_FDCWD, RENAME_EXCHANGE
    except (OSError, AttributeError, TypeError):
        return False


def _move_entries(hidden: Path, target: Path) -> None:
    """Move the new entries one by one, as the journal says; it can be repeated after a kill."""
    fresh, stale = json.loads((hidden / _JOURNAL).read_text(encoding="utf-8"))
    old = hidden / _OLD
    old.mkdir(exist_ok=True)
    for name in [*fresh, *(name for name in stale if name not in fresh)]:
        new, place = hidden / _NEW / name, target / name
        if name in fresh and not os.path.lexists(new):
            continue  # moved before the kill
        if os.path.lexists(place) and (name not in fresh or _is_folder(place) or _is_folder(new)):
            os.rename(place, old / name)
        if name in fresh:
            os.replace(new, place)
    _sync_folder(target)
    (hidden / _JOURNAL).unlink()


def _move_latecomers(old: Path, target: Path, fresh: Collection[str], replaced: Collection[str]) -> None:
    """Move files of the user that appeared or changed in the old folder at the last moment to the new one."""
    for name in set(_entries(old)) - set(replaced):
        if name in fresh:
            os.rename(old / name, unused_name(target / name))
        elif not same_place(old / name, target / name):
            os.replace(old / name, target / name)


def _link(source: Path, place: Path) -> None:
    """Give a file a second name; copy it where links are not possible."""
    try:
        os.link(source, place, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, place, follow_symlinks=False)


def _is_fixed(hidden: Path, target: Path) -> bool:
    """Tell whether a folder cannot be exchanged, because a process stands in it or because it is not ours to rename."""
    here = Path(os.path.realpath(os.curdir))
    if hidden.parent == target or any(same_place(target, place) for place in (here, *here.parents)):
        return True
    return target.is_dir() and hasattr(os, "geteuid") and os.geteuid() not in (0, target.stat().st_uid)


# --- modes and owners --------------------------------------------------------------------------------------------
def _settle_modes(new: Path, target: Path) -> None:
    """Give the new folder and its files the modes and owners of those they replace; a new folder, those of its parent.

    Results hold images. So a folder made inside a private one is private itself.
    """
    if target.is_dir():
        for entry in new.iterdir():
            if entry.is_file():
                _keep_mode_and_owner(entry, target / entry.name)
        _keep_mode_and_owner(new, target)
        return
    private = not stat.S_IMODE(target.parent.stat().st_mode) & 0o077
    inherited = new.stat().st_mode & stat.S_ISGID
    os.chmod(new, (0o700 if private else 0o777 & ~_current_umask()) | inherited)


def _keep_mode_and_owner(new: Path, former: Path) -> None:
    """Give ``new`` the mode and the owner of ``former``, if there is such a file or folder."""
    try:
        found = former.stat()
    except OSError:
        return
    mode, present = stat.S_IMODE(found.st_mode), new.stat()
    if hasattr(os, "chown") and (present.st_uid, present.st_gid) != (found.st_uid, found.st_gid):
        try:
            os.chown(new, found.st_uid, found.st_gid)
        except OSError:  # another group must not get the rights of the former one
            mode &= ~(0o070 | stat.S_ISGID)
    os.chmod(new, mode)  # after chown, which clears some bits


def _current_umask() -> int:
    # The umask can only be read by setting it; it is restored at once.
    mask = os.umask(0)
    os.umask(mask)
    return mask


# --- the hidden folder -------------------------------------------------------------------------------------------
def _hidden_folder(target: Path) -> Path:
    """Return where a run keeps its files until they are complete: beside ``target``, or in it if that cannot be."""
    inside = target.is_dir() and (os.path.ismount(target) or not os.access(target.parent, os.W_OK | os.X_OK))
    return (target if inside else target.parent) / f".{_short(target.name)}{_PART}"


def _short(name: str) -> str:
    """Return a name short enough for a prefix and a suffix; different names stay different."""
    if len(os.fsencode(name)) <= 200:
        return name
    return f"{name[:40]}-{hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()}"


def _acquire(hidden: Path, target: Path) -> int:
    """Make the hidden folder and lock its mark; return the handle that holds the lock."""
    for attempt in range(_LOCK_TRIES):
        with contextlib.suppress(FileExistsError):
            hidden.mkdir(mode=0o700)
        if _read_mark(hidden) is None and not _is_unused(hidden):
            raise FileExistsError(errno.EEXIST, f"{str(hidden)!r} is in the way and was not made by tubal")
        handle = _lock_mark(hidden)
        if handle is not None:
            inside = hidden.parent == target
            mark = {"made_by": "tubal", "process": os.getpid(), "target": target.name, "inside": inside}
            os.truncate(handle, 0)
            os.write(handle, json.dumps(mark).encode())
            _recover(hidden, target)
            return handle
        if attempt < _LOCK_TRIES - 1:
            time.sleep(_LOCK_PAUSE)  # it may only be cleaned at this moment
    process = (_read_mark(hidden) or {}).get("process", "unknown")
    raise _BusyError(
        f"another run (process {process}) is writing to {str(target)!r}; wait for it to end or name another place"
    )


def _lock_mark(hidden: Path) -> int | None:
    """Lock the mark of a hidden folder; return the handle, or None if a living process holds it."""
    try:
        handle = os.open(hidden / _MARK, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:  # the owner has just removed the folder
        return None
    if _try_lock(handle, (_read_mark(hidden) or {}).get("process")) and _is_open_file(handle, hidden / _MARK):
        return handle
    os.close(handle)
    return None


def _release(hidden: Path, handle: int, target: Path) -> None:
    """Finish an exchange that was interrupted, remove the hidden folder, and give up the lock."""
    try:
        _remove_hidden(hidden, target)
    except KeyboardInterrupt:
        _remove_hidden(hidden, target)
        raise
    finally:
        os.close(handle)


def _remove_hidden(hidden: Path, target: Path) -> None:
    """Finish an exchange that was interrupted, and remove the hidden folder, the mark last."""
    if not hidden.exists():
        return
    _recover(hidden, target)
    with contextlib.suppress(OSError):
        (hidden / _MARK).unlink(missing_ok=True)
        hidden.rmdir()


def _recover(hidden: Path, target: Path) -> None:
    """Finish the exchange that a kill has interrupted, then remove what is left in the hidden folder."""
    if (hidden / _JOURNAL).exists():
        with contextlib.suppress(ValueError):  # the journal itself is not complete: nothing was moved
            _move_entries(hidden, target)
    elif (hidden / _OLD).exists() and (hidden / _NEW).exists() and not os.path.lexists(target):
        os.rename(hidden / _NEW, target)
    for name in (_NEW, _OLD):
        _remove_folder(hidden / name)
    (hidden / _JOURNAL).unlink(missing_ok=True)


def _clean_abandoned(folder: Path) -> None:
    """Recover or remove the hidden folders of killed runs; those of living runs, and all others, are not touched."""
    with os.scandir(folder) as entries:
        found = [Path(entry.path) for entry in entries if entry.name.startswith(".") and entry.name.endswith(_PART)]
    for hidden in found:
        mark = _read_mark(hidden)
        if mark is None:
            continue
        with contextlib.suppress(OSError):  # of another user
            handle = _lock_mark(hidden)
            if handle is not None:
                _release(hidden, handle, folder if mark["inside"] else folder / Path(mark["target"]).name)


def _read_mark(hidden: Path) -> dict[str, Any] | None:
    """Return the mark of a hidden folder, or None if the folder is not ours."""
    try:
        # A folder that another user has planted must not make us move files.
        if hidden.is_symlink() or (hasattr(os, "geteuid") and hidden.stat().st_uid != os.geteuid()):
            return None
        mark = json.loads((hidden / _MARK).read_bytes()[:4096])
    except (OSError, ValueError):
        return None
    ours = isinstance(mark, dict) and mark.get("made_by") == "tubal" and {"target", "inside"} <= set(mark)
    return mark if ours else None


def _is_unused(hidden: Path) -> bool:
    """Tell whether a hidden folder is empty, but for a mark that is not yet written."""
    try:
        return _is_folder(hidden) and all(name == _MARK for name in os.listdir(hidden))
    except OSError:
        return True  # its owner has just removed it


# --- temporary files and locks -----------------------------------------------------------------------------------
def _locked_temporary(folder: Path, prefix: str) -> tuple[int, str]:
    """Make a temporary file that is locked, so that it is not taken for one of a killed run."""
    while True:
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=f".tubal{_PART}", dir=folder)
        _try_lock(handle, None)
        if _is_open_file(handle, Path(name)):
            return handle, name
        os.close(handle)


def _remove_abandoned_files(folder: Path, prefix: str) -> None:
    """Remove the temporary files that killed runs left while they wrote the same file."""
    with contextlib.suppress(OSError):
        for path in [entry for entry in folder.iterdir() if entry.name.startswith(prefix)]:
            if not path.name.endswith(f".tubal{_PART}") or path.is_symlink() or not path.is_file():
                continue
            handle = os.open(path, os.O_RDWR)
            if _try_lock(handle, None):
                path.unlink()
            os.close(handle)


def _try_lock(handle: int, process: int | None) -> bool:
    """Lock an open file until it is closed; return False if another process holds it.

    Some network disks have no locks. There ``process`` decides, the number of the process that wrote the file.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        import psutil

        return process is not None and not psutil.pid_exists(int(process))
    return True


def _is_open_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


# --- folders -----------------------------------------------------------------------------------------------------
def _entries(folder: Path) -> list[str]:
    """Return the names in a folder, without our own hidden folder; none if there is no folder."""
    if not folder.is_dir():
        return []
    own = f".{_short(folder.name)}{_PART}"
    return sorted(name for name in os.listdir(folder) if name != own)


def _fingerprints(folder: Path, whole: Collection[str]) -> dict[str, _Fingerprint]:
    """Return what tells whether an entry has changed; for the folders in ``whole`` with all that they hold."""
    found: dict[str, _Fingerprint] = {}
    for name in _entries(folder):
        place = folder / name
        with contextlib.suppress(FileNotFoundError):  # removed at this moment
            below = sorted(place.rglob("*")) if name in whole and _is_folder(place) else []
            stats = [os.lstat(path) for path in (place, *below)]
            found[name] = tuple((entry.st_ino, entry.st_size, entry.st_mtime_ns) for entry in stats)
    return found


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove_folder(folder: Path) -> None:
    """Remove a folder of ours, also where it or its folders may not be written to."""
    if folder.is_dir():
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _sync(path: Path) -> None:
    """Flush a file, or a folder, to the disk; not every system lets a folder be opened."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# A rename is durable only after its folder is flushed.
_sync_folder = _sync


# --- folders of codes -------------------------------------------------------------------------------------------
# This file marks a folder that holds the codes of a fit; only marked folders are overwritten or deleted.
CODES_MARK = "tubal-codes.mark"


def check_marked_folder(folder: Path, contents: str) -> None:
    """Raise an error if a folder for ``contents`` holds files that are not ours."""
    if os.path.lexists(folder) and not (folder / CODES_MARK).is_file() and not (folder.is_dir() and _is_empty(folder)):
        raise FileExistsError(
            f"{str(folder)!r} was not made by tubal and would hold {contents} of the checkpoint; move or rename it"
        )


def mark_folder(folder: Path) -> None:
    """Make a folder that carries our mark, if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CODES_MARK).touch()


def delete_marked_folder(folder: Path, pattern: str) -> None:
    """Delete the files of a pattern in a folder that carries our mark, and the folder if nothing else is in it."""
    if not (folder / CODES_MARK).is_file():
        return
    for file in folder.glob(pattern):
        file.unlink(missing_ok=True)
    (folder / CODES_MARK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _is_empty(folder: Path) -> bool:
    return next(folder.iterdir(), None) is None


# Writing may take this share of the time; the interval grows for this, to at most three times its length.
_WRITING_SHARE, _LONGEST = 0.05, 3.0


class WritingClock:
    """Tells when intermediate results are due to be written: every few seconds, or later where writing takes long.

    Parameters
    ----------
    every_seconds : float
        Shortest time between two writings; up to three times as long where writing takes long.
    """

    def __init__(self, every_seconds: float) -> None:
        self._every, self._wait, self._since = every_seconds, every_seconds, time.monotonic()

    def is_due(self) -> bool:
        """Return whether it is time to write."""
        return time.monotonic() - self._since >= self._wait

    @contextlib.contextmanager
    def restarted(self) -> Iterator[None]:
        """Measure how long the block writes, and start again."""
        began = time.monotonic()
        yield
        self._since = time.monotonic()
        self._wait = max(self._every, min((self._since - began) / _WRITING_SHARE, _LONGEST * self._every))


# --- what a result was made with ----------------------------------------------------------------------------
# Packages whose versions may change a result.
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "pillow", "torch")


class Machine(TypedDict):
    """The processor, and how many of its cores the process may use."""

    processor: str
    cores: int


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of tubal, Python and those of ``packages`` that are installed.

    >>> list(versions(["numpy", "not-installed"]))
    ['tubal', 'python', 'numpy']
    """
    found = {"tubal": __version__, "python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


@cache
def machine() -> Machine:
    """Return the processor's name and how many cores this process may use."""
    name = platform.processor()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return {"processor": name, "cores": available_cores()}


def platform_name() -> str:
    """Return the operating system and the kind of processor, for example "linux x86_64"."""
    return f"{sys.platform} {platform.machine()}"


def to_plain(value: object) -> object:
    """Return a value as JSON values: arrays and sets become lists, objects without a JSON type become text.

    It can be passed to ``json.dumps`` as ``default``.

    >>> import numpy as np
    >>> to_plain({"scores": np.array([0.5, np.nan]), 3: {"a"}, "path": Path("x")})
    {'scores': [0.5, 'nan'], '3': ['a'], 'path': 'x'}
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # arrays and tensors, and single numbers of them
        return to_plain(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)
