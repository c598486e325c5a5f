"""Finding the picture files of a source: a folder, a zip or tar archive, a file, or several of these.

Every file is found or listed with a reason; only hidden files are left out. Names never decide where anything is
written: files of an archive are unpacked under numbers, and links are not followed out of a folder.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias, cast

from tubal.images.pictures import PICTURE_SUFFIXES, Allowance
from tubal.images.stacks import ARRAY_SUFFIXES
from tubal.text import error_text

__all__ = ["NOT_A_PICTURE", "Found", "Skipped", "find_pictures", "is_archive", "is_picture_source"]

Skipped: TypeAlias = list[tuple[str, str]]

NOT_A_PICTURE = "not a picture"
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# Pictures that no decoder here reads. Camera files begin like a TIFF, but hold only a thumbnail in that form.
OTHER_PICTURES = frozenset(
    {".svg", ".svgz", ".eps", ".pdf", ".ai", ".psd", ".xcf", ".jxl", ".jp2", ".j2k", ".jpx", ".ico", ".icns", ".tga"}
    | {".exr", ".hdr", ".dds", ".pcx", ".xbm", ".xpm", ".qoi", ".wmf", ".emf", ".dcm", ".fits", ".djvu"}
    | {".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".pef", ".srw"}
)
SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")
FTYP_BRANDS = (b"avif", b"avis", b"heic", b"heix", b"mif1")
HEAD = 32  # bytes that tell what a file is
MAX_MEMBERS = 1_000_000
MAX_RECORD_BYTES = 1 << 26


@dataclass(frozen=True)
class Found:
    """A file that may be a picture: the name to show, where to read it, and its own path; empty in an archive."""

    name: str
    file: Path
    origin: str


def find_pictures(
    sources: Sequence[Path], *, exclude: Sequence[Path], max_pixels: int, temporary: contextlib.ExitStack
) -> tuple[list[Found], Skipped]:
    """Return the files of all sources that may be pictures, and the other files with reasons.

    Archives are unpacked into a folder that is deleted when ``temporary`` is closed. With several sources, the names
    of files in a folder or archive begin with its name.
    """
    skipped: Skipped = []
    left_out = {folder.resolve() for folder in exclude}
    found: dict[Path, Found] = {}
    for source, prefix in zip(sources, _prefixes(sources), strict=True):
        if source.is_dir():
            files = _walk(source.resolve(), skipped, left_out, prefix)
        elif is_archive(source):
            workspace = Path(temporary.enter_context(tempfile.TemporaryDirectory(prefix="tubal-")))
            files = _unpack(source, workspace, skipped, prefix, max_pixels)
        else:
            name = source.name if len(sources) == 1 else source.as_posix()
            files = _single(source, name, skipped)
        for item in files:
            found.setdefault(item.file, item)  # a file that is given twice is read once
    return list(found.values()), list(dict.fromkeys(skipped))


def is_archive(path: Path) -> bool:
    """Tell from its name whether a file is a zip or tar archive."""
    return path.name.lower().endswith(ARCHIVE_SUFFIXES)


def is_picture_source(path: Path) -> bool:
    """Tell whether a path is read as pictures (a folder, an archive, a picture) and not as an array of images."""
    return path.is_dir() or path.suffix.lower() in PICTURE_SUFFIXES or is_archive(path)


def _prefixes(sources: Sequence[Path]) -> list[str]:
    """Return what names begin with: the last part of each source, or its whole path if two end alike."""
    if len(sources) == 1:
        return [""]
    short = [source.resolve().name for source in sources]
    unique = len(set(short)) == len(short)
    return [f"{name if unique else source.as_posix()}/" for name, source in zip(short, sources, strict=True)]


def _reason_against(name: str, head: bytes) -> str:
    """Return why a file is not read as a picture, from its name and first bytes; empty if it may be one."""
    path = Path(name)
    suffix = path.suffix.lower()
    if suffix in PICTURE_SUFFIXES:
        return ""
    if suffix in OTHER_PICTURES:
        return f"{suffix[1:].upper()} files are not read; convert it to PNG, JPEG or TIFF"
    if is_archive(path) or suffix in ARRAY_SUFFIXES:
        return f"{'an archive' if is_archive(path) else 'an array file'}; give it as a source of its own"
    known = head.startswith(SIGNATURES) or (head.startswith(b"RIFF") and head[8:12] == b"WEBP")
    return "" if known or (head[4:8] == b"ftyp" and head[8:12] in FTYP_BRANDS) else NOT_A_PICTURE


# --- folders and files -------------------------------------------------------------------------------------------


def _single(file: Path, name: str, skipped: Skipped) -> Iterator[Found]:
    """Yield a file that was named by the user, unless it is no picture."""
    try:
        reason = _reason_against(file.name, _head_of(file))
    except OSError as error:
        reason = _os_reason(error)
    if reason:
        skipped.append((name, reason))
    else:
        yield Found(name, file.resolve(), str(file.resolve()))


def _walk(root: Path, skipped: Skipped, exclude: set[Path], prefix: str, below: str = "") -> Iterator[Found]:
    """Yield the files of a folder and its sub-folders in the order of their names."""
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except OSError as error:
        skipped.append((prefix + below, _os_reason(error)))
        return
    for entry in entries:
        if entry.name.startswith(".") or Path(entry.path) in exclude:
            continue
        inner = f"{below}/{entry.name}" if below else entry.name
        reason = _reason_against_entry(root, entry)
        if reason:
            skipped.append((prefix + inner, reason))
        elif not entry.is_dir(follow_symlinks=False):
            yield Found(prefix + inner, Path(entry.path), entry.path)
        else:
            yield from _walk(root, skipped, exclude, prefix, inner)


def _reason_against_entry(root: Path, entry: os.DirEntry[str]) -> str:
    path = Path(entry.path)
    try:
        if entry.is_symlink():
            reason = _reason_against_link(root, path)
            if reason:
                return reason
        if entry.is_dir():
            return "results of an earlier run" if _holds_results(path) else ""
        return _reason_against(entry.name, _head_of(path))
    except OSError as error:
        return _os_reason(error)


def _reason_against_link(root: Path, link: Path) -> str:
    """Return why a link is not followed; empty for a link to a file inside the folder."""
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        return "broken link"
    if not target.is_relative_to(root):
        return "link leading out of the folder, not followed"
    return "link to a folder, not followed" if target.is_dir() else ""


def _holds_results(folder: Path) -> bool:
    """Tell whether a folder holds the results of ``tubal cluster``: a record of its settings and versions."""
    record_file = folder / "run.json"
    try:
        if not record_file.is_file() or record_file.stat().st_size > MAX_RECORD_BYTES:
            return False
        record = json.loads(record_file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and isinstance(record.get("settings"), dict) and "versions" in record


def _head_of(file: Path) -> bytes:
    """Return the first bytes of an ordinary file; only a file with an unknown suffix is opened."""
    if file.suffix.lower() in PICTURE_SUFFIXES | OTHER_PICTURES:
        return b""
    # Opening a pipe would wait for its other end.
    if not stat.S_ISREG(os.stat(file).st_mode):
        return b""
    with open(file, "rb") as stream:
        return stream.read(HEAD)


def _os_reason(error: OSError) -> str:
    return (error.strerror or "unreadable").lower()


# --- archives ----------------------------------------------------------------------------------------------------


def _unpack(archive: Path, workspace: Path, skipped: Skipped, prefix: str, max_pixels: int) -> Iterator[Found]:
    """Write the pictures of an archive into a folder, under numbers, and yield them with their names."""
    allowed = Allowance(max_pixels, archive.stat().st_size).pixels
    names: set[str] = set()
    left = allowed
    try:
        for number, (name, member) in enumerate(_members(archive, allowed)):
            parts = PurePosixPath(name).parts
            if any(part.startswith(".") and part != ".." for part in parts) or "__MACOSX" in parts:
                continue
            reason = member if isinstance(member, str) else _reason_against_name(name, names)
            names.add(name)
            head = b"" if isinstance(member, str) or reason else member.read(HEAD)
            reason = reason or _reason_against(name, head)
            if reason or isinstance(member, str):
                skipped.append((prefix + name, reason))
                continue
            file = workspace / f"{number:07d}{Path(name).suffix.lower()[:8]}"
            left -= _copy(member, head, file, left)
            yield Found(prefix + name, file, "")
    except _TooMuch:
        raise ValueError(
            f"{archive.name!r} unpacks from {archive.stat().st_size} to over {allowed} bytes, the limit (--max-pixels)"
        ) from None
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a parser may raise anything on a malicious file
        raise ValueError(f"{archive.name!r} cannot be read as an archive: {error_text(error)}") from error


class _TooMuch(Exception):
    """An archive unpacks to more than it may."""


def _copy(member: IO[bytes], head: bytes, file: Path, limit: int) -> int:
    """Write the rest of a member after its first bytes, and return how many bytes it has."""
    size = len(head)
    with open(file, "xb") as out:
        out.write(head)
        while block := member.read(1 << 20):
            size += len(block)
            if size > limit:
                raise _TooMuch
            out.write(block)
    return size


def _reason_against_name(name: str, earlier: set[str]) -> str:
    if name.startswith("/") or ".." in PurePosixPath(name).parts:
        return "its path leads out of the archive"
    return "the archive holds this name twice; the first is read" if name in earlier else ""


def _members(archive: Path, allowed: int) -> Iterator[tuple[str, IO[bytes] | str]]:
    """Yield the name and the contents of every file in an archive, or the reason why it is not read."""
    if zipfile.is_zipfile(archive):
        return _zip_members(archive)
    return _tar_members(archive, allowed)


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes] | str]]:
    with zipfile.ZipFile(archive) as file:
        members = file.infolist()
        if len(members) > MAX_MEMBERS:
            raise ValueError(f"it holds {len(members)} files, at most {MAX_MEMBERS} are read")
        for member in members:
            if member.is_dir():
                continue
            if stat.S_ISLNK(member.external_attr >> 16):
                yield member.filename, "a link, not followed"
            elif member.flag_bits & 1:
                yield member.filename, "encrypted"
            else:
                with file.open(member) as stream:
                    yield member.filename, stream


def _tar_members(archive: Path, allowed: int) -> Iterator[tuple[str, IO[bytes] | str]]:
    with _decompressed(archive) as plain:
        # As a stream, so that every byte is decompressed once and counted.
        bounded: IO[bytes] = io.BufferedReader(_Bounded(plain, allowed))
        with tarfile.open(fileobj=bounded, mode="r|") as file:
            for number, member in enumerate(file):
                if number > MAX_MEMBERS:
                    raise ValueError(f"it holds over {MAX_MEMBERS} files")
                stream = file.extractfile(member) if member.isreg() else None
                if stream is not None:
                    yield member.name, stream
                elif not member.isdir():
                    yield member.name, "a link, not followed" if member.issym() or member.islnk() else "not a file"


def _decompressed(archive: Path) -> IO[bytes]:
    with open(archive, "rb") as stream:
        head = stream.read(6)
    if head.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(archive))
    if head.startswith(b"BZh"):
        return bz2.open(archive)
    return lzma.open(archive) if head.startswith(b"\xfd7zXZ") else open(archive, "rb")


class _Bounded(io.RawIOBase):
    """A stream that ends in an error after a number of bytes."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream, self._left = stream, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        block = self._stream.read(len(buffer))
        self._left -= len(block)
        if self._left < 0:
            raise _TooMuch
        buffer[: len(block)] = block
        return len(block)
