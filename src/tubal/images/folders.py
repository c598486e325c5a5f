"""Pictures of folders, archives and lists of files as one stack of equal images; no step looks at a label.

The first part finds picture files and says why other files are not read. The second part reads them, each scaled to a
common frame.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import shutil
import stat
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from tubal.images.pictures import (
    PICTURE_SUFFIXES,
    WITH_MARGIN,
    Allowance,
    Content,
    Frame,
    Header,
    PictureError,
    Pixels,
    SecondLook,
    check_stack_size,
    measure_content,
    read_header,
    silence_decoders,
    to_grey,
)
from tubal.images.reading import KeptPictures, PageStack, ProgressCallback, map_in_threads, read_missing
from tubal.images.stacks import ARRAY_SUFFIXES, ValueRange
from tubal.text import count, error_text, shape_text

__all__ = [
    "NOT_A_PICTURE",
    "Found",
    "NoPictureError",
    "Skipped",
    "copy_members",
    "find_pictures",
    "is_archive",
    "is_picture_source",
]

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


class NoPictureError(ValueError):
    """No file of the sources can be read as a picture; ``skipped`` lists the files with reasons."""

    def __init__(self, message: str, skipped: Skipped) -> None:
        super().__init__(message)
        self.skipped = skipped


@dataclass(frozen=True)
class Found:
    """A file that may be a picture: the name to show, where to read it, and its own path; empty in an archive.

    ``packed`` is the path of the archive and the name in it, or two empty strings.
    """

    name: str
    file: Path
    origin: str
    packed: tuple[str, str] = ("", "")


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
        skipped.append((prefix + below or root.name, _os_reason(error)))
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
            yield Found(prefix + name, file, "", (str(archive.resolve()), name))
    except _TooMuch:
        raise ValueError(
            f"{archive.name!r} unpacks from {archive.stat().st_size} to over {allowed} bytes, the limit (--max-pixels)"
        ) from None
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a parser may raise anything on a malicious file
        raise ValueError(f"{archive.name!r} cannot be read as an archive: {error_text(error)}") from error


def copy_members(archive: Path, places: Mapping[str, Path]) -> set[str]:
    """Write files of an archive, unchanged, to the place of each name; return the names that were found.

    The archive has been read before within its limits, so there are none here.
    """
    found = set()
    for name, member in _members(archive, sys.maxsize):
        if name in places and name not in found and not isinstance(member, str):
            with open(places[name], "wb") as out:
                shutil.copyfileobj(member, out)
            found.add(name)
    return found


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


# --- from files to a stack ----------------------------------------------------------------------------------
__all__ = ["ReadingOptions", "frame_size", "load_image_folder", "load_pictures", "map_in_threads"]

LONGER_SIDE = 64  # of arrays and collections
# Of pictures in files. Over ten collections of photographs, signs, letters and cells, clusters of pictures of 32 pixels
# are better than those of 16, 24, 48 or 64: smaller ones lose detail, larger ones show it where it does not match.
WORKING_SIDE = 32
MAX_SIDE = 65_536
MAX_PIXELS = 80_000_000
TOTAL_INFLATION = 20  # how many times max_pixels the pictures of very small files may have together
SAMPLE = 100  # pictures that decide whether all are cut
MAX_MOVE = 1 / 16  # of the content's side, between two tolerances
TINY = float(np.finfo(np.float32).tiny)
FAR = 100.0  # times the range of a typical picture: values farther out are damage, not brightness
VISIBLE_COLOR = 0.04  # a picture counts as grey if its channels differ by less on average

Picture: TypeAlias = tuple[Found, Header]
Size: TypeAlias = int | tuple[int, int] | None


@dataclass(frozen=True)
class ReadingOptions:
    """How pictures are read; :func:`load_image_folder` says what each option means. Wrong values are an error."""

    size: Size = None
    colour: str = "auto"
    fit: str = "pad"
    crop: str = "auto"
    max_pixels: int = MAX_PIXELS
    exclude: Sequence[str | os.PathLike[str]] = ()
    value_range: ValueRange | None = None
    n_threads: int | None = None
    progress: ProgressCallback | None = None

    def __post_init__(self) -> None:
        sides = self.size if isinstance(self.size, tuple) else (self.size,) if self.size is not None else ()
        if not all(isinstance(side, (int, np.integer)) and 1 <= side <= MAX_SIDE for side in sides) or (
            isinstance(self.size, tuple) and len(sides) != 2
        ):
            raise ValueError(f"size is {self.size!r}; give the longer side or (height, width), 1 to {MAX_SIDE} pixels")
        if self.colour not in ("auto", "grey", "rgb"):
            raise ValueError(f"colour is {self.colour!r}; choose 'auto', 'grey' or 'rgb'")
        if self.fit not in ("pad", "crop"):
            raise ValueError(f"fit is {self.fit!r}; choose 'pad' or 'crop'")
        if self.crop not in ("auto", "content", "none"):
            raise ValueError(f"crop is {self.crop!r}; choose 'auto', 'content' or 'none'")
        if self.max_pixels < 1:
            raise ValueError(f"max_pixels is {self.max_pixels}; give a positive number of pixels")


def load_image_folder(
    path: str | os.PathLike[str],
    *,
    size: Size = None,
    colour: str = "auto",
    fit: str = "pad",
    crop: str = "auto",
    max_pixels: int = MAX_PIXELS,
    exclude: Sequence[str | os.PathLike[str]] = (),
    value_range: ValueRange | None = None,
    n_threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> Bunch:
    """Read all pictures in a folder and its sub-folders into one stack of equal size.

    Pictures that cannot be read are skipped and listed with a reason. Hidden files are left out, and links that lead
    out of the folder are not followed.

    Parameters
    ----------
    path : str or path-like
        The folder.
    size : int or (int, int), optional
        Common size in pixels: the longer side, or ``(height, width)``. By default the median height and the median
        width of the pictures, reduced so that the longer side is at most 32.
    colour : {"auto", "grey", "rgb"}, default="auto"
        Whether to read in colour. ``"auto"`` keeps colour if more than half of the pictures show any.
    fit : {"pad", "crop"}, default="pad"
        How pictures of another shape fill the common size: ``"pad"`` keeps the whole picture on the median colour of
        its border, ``"crop"`` covers the common size and cuts off the rest.
    crop : {"auto", "content", "none"}, default="auto"
        Whether to cut pictures to their content, everything that differs from the colour of their border.
        ``"auto"`` does so where borders are of one colour and the content stands out clearly in most pictures.
    max_pixels : int, default=80_000_000
        Pictures with more pixels are skipped without being decoded.
    exclude : sequence of str or path-like, default=()
        Folders to leave out, such as one that holds earlier results.
    value_range : (float, float), optional
        Darkest and brightest value of pictures whose full scale is unknown, floats and 32-bit integers; by default
        their common range.
    n_threads : int, optional
        Number of pictures read at the same time; by default one per core, at most 8.
    progress : callable, optional
        Called as ``progress(pictures_read, pictures_in_all)``; none is read yet while the sizes of all are looked up.

    Returns
    -------
    Bunch
        A dictionary whose keys are also attributes:

        images : ndarray of shape (n, height, width) or (n, height, width, 3)
            The pictures as float32 values in [0, 1].
        names : list of str
            Their paths relative to the folder, sorted. Pages of a TIFF are called ``name#page``.
        files : list of str
            Their absolute paths.
        skipped : list of (str, str)
            Names of the pictures that could not be read, and the reasons.
        rule : str
            What was read and how it was resized, in one sentence for people.
        crop : {"content", "none"}
            Whether pictures were cut to their content; give it again to read further pictures alike.
        fit : {"pad", "crop"}
            Whether a picture of another shape is padded or cropped to the common size, as given.
        value_range : (float, float) or None
            Darkest and brightest value of floats and 32-bit integers; give it again to read further pictures alike.
        target : ndarray of shape (n,) or None
            The sub-folder of each picture, if all are in sub-folders and there are at least two.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> folder = tempfile.mkdtemp()
    >>> Image.new("L", (9, 7), 51).save(folder + "/one.png")
    >>> Image.new("L", (9, 7), 255).save(folder + "/two.png")
    >>> stack = load_image_folder(folder)
    >>> stack.images.shape, stack.names, stack.images.max()
    ((2, 7, 9), ['one.png', 'two.png'], np.float32(1.0))
    """
    options = ReadingOptions(size, colour, fit, crop, max_pixels, exclude, value_range, n_threads, progress)
    return load_pictures([_check_folder(path)], options)


def load_pictures(
    sources: Sequence[Path],
    options: ReadingOptions,
    look: SecondLook | None = None,
    kept: KeptPictures | None = None,
) -> Bunch:
    """Read the pictures of folders, archives and files; the result is that of :func:`load_image_folder`.

    With ``look``, every picture is also described at a larger size; the features are ``described`` in the result.
    With ``kept``, pictures that an interrupted run has read are not read again.
    """
    with contextlib.ExitStack() as temporary:
        left_out = [Path(folder) for folder in options.exclude]
        found, skipped = find_pictures(sources, exclude=left_out, max_pixels=options.max_pixels, temporary=temporary)
        temporary.enter_context(silence_decoders())
        pictures = _read_headers(found, skipped, options)
        if not pictures:
            raise NoPictureError(_nothing_readable(sources, skipped), skipped)
        frame = _common_frame(pictures, options)
        look = look if look is not None and look.is_worthwhile(_page_sizes(pictures)) else None
        reading = _Reading(options.n_threads, _among(options.progress, len(found)), look, kept)
        images, pages, value_range = _read_all(pictures, frame, skipped, reading, options.value_range)
    if not pages:
        raise NoPictureError(_nothing_readable(sources, skipped), skipped)
    if options.colour == "auto" and images.ndim == 4 and not _mostly_colored(images):
        images = to_grey(images)
    # Files that nobody takes for a picture come last.
    skipped.sort(key=lambda item: (item[1] == NOT_A_PICTURE, item))
    return Bunch(
        images=images,
        names=[name for name, _ in pages],
        files=[item.origin for _, item in pages],
        packed=[item.packed for _, item in pages],
        skipped=skipped,
        rule=_describe_stack(_page_sizes(pictures), frame, images, skipped),
        crop="content" if frame.cut else "none",
        fit=options.fit,
        value_range=value_range,
        target=_folder_labels([item.name for _, item in pages]),
        described=None if look is None else look.features(),
    )


def frame_size(sizes: Sequence[tuple[int, int]], size: Size) -> tuple[int, int]:
    """Return the common ``(height, width)`` of pictures: as given, or their medians with the longer side limited.

    >>> frame_size([(480, 640), (480, 640), (600, 800)], None)
    (48, 64)
    >>> frame_size([(16, 16), (20, 20)], None)
    (18, 18)
    """
    if isinstance(size, tuple):
        return size
    height, width = np.median(np.array(sizes, dtype=np.float64), axis=0).tolist()
    reduction = min(1.0, (size or LONGER_SIDE) / max(height, width))
    return max(1, round(height * reduction)), max(1, round(width * reduction))


def _check_folder(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}; check the path")
    if not folder.is_dir():
        raise NotADirectoryError(f"{str(folder)!r} is not a folder; give the folder that holds the pictures")
    return folder.resolve()


# --- reading files -----------------------------------------------------------------------------------------------


def _among(progress: ProgressCallback | None, n_found: int) -> ProgressCallback | None:
    """Return the progress of reading pictures among all files; those whose header cannot be read count as read."""
    return None if progress is None else lambda done, total: progress(n_found - (total - done), n_found)


def _read_headers(found: Sequence[Found], skipped: Skipped, options: ReadingOptions) -> list[Picture]:
    """Return the files whose header can be read, with the header; add the others to ``skipped`` with a reason."""

    def header_or_reason(item: Found) -> Header | PictureError:
        try:
            return read_header(item.file, max_pixels=options.max_pixels)
        except PictureError as reason:
            return reason

    pictures, inflated, most = [], 0, TOTAL_INFLATION * options.max_pixels
    # Headers take a small part of the time of pictures, which alone are counted.
    progress = options.progress
    report = None if progress is None else lambda _, total: progress(0, total)
    headers = map_in_threads(header_or_reason, found, options.n_threads, report)
    for item, header in zip(found, headers, strict=True):
        if isinstance(header, PictureError):
            skipped.append((item.name, str(header)))
            continue
        inflated += header.n_inflated
        if header.n_inflated and inflated > most:
            skipped.append((item.name, f"small files decode to over {most} pixels in all (--max-pixels)"))
        else:
            pictures.append((item, header))
    return pictures


@dataclass(frozen=True)
class _Reading:
    """How pictures are read: in how many threads, who is told, described by whom, and where they are kept."""

    n_threads: int | None
    progress: ProgressCallback | None
    look: SecondLook | None
    kept: KeptPictures | None


def _read_all(
    pictures: Sequence[Picture],
    frame: Frame,
    skipped: Skipped,
    how: _Reading,
    value_range: ValueRange | None,
) -> tuple[Pixels, list[tuple[str, Found]], ValueRange | None]:
    """Decode every page directly into one array.

    Returns the pages without the damaged ones, their names and files, and the range of values that was brought to
    [0, 1], if any.
    """
    n_pages = len(_page_sizes(pictures))
    check_stack_size(count(n_pages, "picture"), (n_pages, *frame.shape), "choose a smaller size")
    stack = PageStack.empty(n_pages, frame, how.look)
    headers = [header for _, header in pictures]
    if how.kept is None:
        reasons = read_missing(headers, stack, how.n_threads, how.progress)
    else:
        files = [item.origin or "\0".join(item.packed) for item, _ in pictures]
        reasons = how.kept.read_missing(files, headers, stack, how.n_threads, how.progress)
    pages, images, good = [], stack.images, stack.good
    for index, (name, item) in enumerate(_page_names(pictures)):
        if good[index]:
            pages.append((name, item))
        else:
            skipped.append((name, reasons.get(index, "damaged")))
    value_range = _scale_together(images, good & stack.unscaled, value_range)
    return (images if good.all() else images[good]), pages, value_range


def _page_names(pictures: Sequence[Picture]) -> Iterator[tuple[str, Found]]:
    """Yield the name and the file of every page."""
    for item, header in pictures:
        for page in range(1, len(header.sizes) + 1):
            yield (f"{item.name}#{page}" if len(header.sizes) > 1 else item.name), item


def _scale_together(images: Pixels, which: NDArray[np.bool_], value_range: ValueRange | None) -> ValueRange | None:
    """Bring pictures without a known full scale (floats, 32-bit integers) to [0, 1], in place, and return their range.

    The range is ``value_range``, or the common one. A picture far outside the range of most others does not count for
    the common range, and is cut to it.
    """
    indices = np.flatnonzero(which)
    if not len(indices):
        return None
    low, high = value_range or _common_range(
        np.array([images[i].min() for i in indices], dtype=np.float64),
        np.array([images[i].max() for i in indices], dtype=np.float64),
    )
    if low >= 0.0 and high <= 1.0:
        low, high = 0.0, 1.0
    for i in indices:
        images[i] = np.clip((images[i].astype(np.float64) - low) / max(high - low, TINY), 0.0, 1.0)
    return low, high


def _common_range(lows: NDArray[np.float64], highs: NDArray[np.float64]) -> tuple[float, float]:
    """Return the lowest and the highest value of the pictures, without those that are far from most others.

    >>> _common_range(np.array([0.0, 2.0, 1.0]), np.array([9.0, 7.0, 1e30]))
    (0.0, 9.0)
    """
    extents = highs - lows
    if not extents.any():
        return float(lows.min()), float(highs.max())
    # The lower median is that of a usual picture even if there are only two.
    typical = np.percentile(extents[extents > 0.0], 50, method="lower")
    middle = np.percentile((lows + highs) / 2.0, 50, method="lower")
    usual = (lows >= middle - FAR * typical) & (highs <= middle + FAR * typical)
    if not usual.any():
        return float(lows.min()), float(highs.max())
    return float(lows[usual].min()), float(highs[usual].max())


# --- the rule and its description --------------------------------------------------------------------------------


def _page_sizes(pictures: Sequence[Picture]) -> list[tuple[int, int]]:
    return [page for _, header in pictures for page in header.sizes]


def _contents_to_cut(pictures: Sequence[Picture], crop: str, n_threads: int | None) -> list[Content]:
    """Return the contents of a sample of pictures, or an empty list if pictures are not to be cut."""
    if crop == "none":
        return []
    step = -(-len(pictures) // SAMPLE)
    headers = [header for _, header in pictures[::step]]
    measured = zip(headers, map_in_threads(measure_content, headers, n_threads), strict=True)
    shown = [(header, content) for header, content in measured if content is not None and content.height]
    contents = [content for _, content in shown]
    if crop == "content" or not contents:
        return contents
    worth = [content.uniform and (content.height, content.width) != header.sizes[0] for header, content in shown]
    clear = float(np.median([content.moved for content in contents])) <= MAX_MOVE
    return contents if clear and 2 * sum(worth) >= len(worth) else []


def _common_frame(pictures: Sequence[Picture], options: ReadingOptions) -> Frame:
    """Return the frame of all pictures: its size, whether it is in colour, and whether pictures are cut to content."""
    contents = _contents_to_cut(pictures, options.crop, options.n_threads)
    any_color = any(header.in_color for _, header in pictures)
    in_color = options.colour == "rgb" or (options.colour == "auto" and any_color)
    side = options.size or WORKING_SIDE
    height, width = _content_size(contents, side) if contents else frame_size(_page_sizes(pictures), side)
    return Frame(height, width, in_color, options.fit, cut=bool(contents))


def _content_size(contents: Sequence[Content], size: Size) -> tuple[int, int]:
    """Return the common size of pictures that are cut: a square, since contents differ in shape, with a margin."""
    if isinstance(size, tuple):
        return size
    height, width = np.median([(content.height, content.width) for content in contents], axis=0).tolist()
    side = max(1, round(min(size or LONGER_SIDE, max(height, width) * WITH_MARGIN)))
    return side, side


def _mostly_colored(images: Pixels) -> bool:
    spread = [float((image.max(axis=-1) - image.min(axis=-1)).mean()) for image in images]
    return float(np.mean([value > VISIBLE_COLOR for value in spread])) > 0.5


def _folder_labels(names: Sequence[str]) -> NDArray[np.str_] | None:
    parents = [PurePosixPath(name).parent.as_posix() for name in names]
    return None if "." in parents or len(set(parents)) < 2 else np.array(parents)


def _describe_stack(page_sizes: Sequence[tuple[int, int]], frame: Frame, images: Pixels, skipped: Skipped) -> str:
    sizes = set(page_sizes)
    shape = shape_text((frame.height, frame.width))
    if frame.cut:
        how = f"cut to {'its' if len(images) == 1 else 'their'} content and resized to {shape}"
    elif sizes == {(frame.height, frame.width)}:
        how = f"all {shape} already"
    elif len(sizes) == 1:
        how = f"resized from {shape_text(next(iter(sizes)))} to {shape}"
    else:
        kept = "whole, on the colour of their border" if frame.fit == "pad" else "cut to the middle"
        how = f"{len(sizes)} different sizes resized to {shape} ({kept})"
    tone = "in colour" if images.ndim == 4 else "in grey"
    left_out = f"; {len(skipped)} skipped" if skipped else ""
    return f"{count(len(images), 'picture')}, {how}, {tone}{left_out}."


def _nothing_readable(sources: Sequence[Path], skipped: Skipped) -> str:
    where = repr(str(sources[0])) if len(sources) == 1 else count(len(sources), "source")
    if not skipped:
        return f"no pictures in {where}; give a folder with PNG, JPEG, GIF, BMP, PGM, WebP, AVIF or TIFF files"
    name, reason = min(skipped, key=lambda item: (item[1] == NOT_A_PICTURE, item))
    if len(sources) == 1 and sources[0].name == name:
        return f"{name!r} cannot be read: {reason}"
    return (
        f"no picture in {where} can be read: {count(len(skipped), 'file')} skipped "
        f"(the first, {name!r}: {reason}); give a folder with images"
    )
