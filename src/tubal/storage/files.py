"""Writing files so that a reader never finds half of one.

A file is written beside its final place, flushed to the disk and renamed. A folder of results is filled under a hidden
name and moved into place at the end. A crash, a full disk or Ctrl-C leaves either the old state or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

__all__ = ["atomic_write", "publish", "sha256_of", "staged_folder"]


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb", **text: str) -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path``; rename it to ``path`` if the block succeeds.

    ``text`` is passed to :func:`open` (``encoding``, ``errors``, ``newline``).

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
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:80]}.", suffix=".part", dir=target.parent)
    try:
        with open(handle, mode, **text) as stream:  # type: ignore[call-overload]
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes private files; results should have the permissions of any new file.
        os.chmod(temporary, 0o666 & ~_current_umask())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


@contextlib.contextmanager
def staged_folder(path: str | os.PathLike[str], *, force: bool = False, stale: Sequence[str] = ()) -> Iterator[Path]:
    """Yield a hidden empty folder beside ``path``; move its contents to ``path`` if the block succeeds.

    A folder that is not empty is only written to with ``force``. Then files of the same name are replaced one by one,
    entries named in ``stale`` are removed, and everything else stays. Errors are raised before the block runs, so that
    no work is lost.
    """
    target = Path(path)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{str(target)!r} is a file; name a folder for the results")
    if target.is_dir() and any(target.iterdir()) and not force:
        raise FileExistsError(
            f"the folder {str(target)!r} holds files already; name another, or use --force to replace them"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{target.name[:80]}.", suffix=".part", dir=target.parent))
        if target.is_dir() and not os.access(target, os.W_OK | os.X_OK):
            os.rmdir(stage)
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"cannot write results to {str(target)!r}: {reason}; name another folder") from error
    try:
        yield stage
        os.chmod(stage, 0o777 & ~_current_umask())
        publish(stage, target, stale=stale)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def publish(stage: Path, target: Path, *, stale: Sequence[str] = ()) -> None:
    """Move every entry of ``stage`` to ``target``, by one rename if ``target`` is new or empty.

    Entries of ``target`` named in ``stale`` are removed with the stage if nothing replaces them.
    """
    with contextlib.suppress(OSError):
        target.rmdir()
    if not target.exists():
        os.replace(stage, target)
        _sync_folder(target.parent)
        return
    entries = sorted(stage.iterdir())
    retired = stage / ".replaced"
    retired.mkdir()
    leaving = {entry.name for entry in entries} | set(stale)
    for former in (target / name for name in sorted(leaving)):
        # A folder cannot be renamed over one that is not empty: the old one is moved away and removed with the stage.
        if former.is_dir() and not former.is_symlink():
            os.replace(former, retired / former.name)
    for entry in entries:
        os.replace(entry, target / entry.name)
    _sync_folder(target)


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file as hexadecimal digits, read in blocks."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _current_umask() -> int:
    # The umask can only be read by setting it; it is restored at once.
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    # A rename is durable only after its folder is flushed; not every system lets a folder be opened.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
