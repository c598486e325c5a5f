"""Pictures on disk as one stack of equal images; no step looks at a label.

The rule, in order: pictures are rotated upright (EXIF). The common size is the median height and the median width,
reduced so that the longer side is at most 64 pixels. Each picture is scaled to fit inside that size and its border
pixels are repeated (``fit="pad"``), or it is scaled to cover that size and cut (``fit="crop"``). Transparent pictures
get a white background. The stack is in colour if more than half of its pictures show colour.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from tubal.images.pictures import (
    PICTURE_SUFFIXES,
    Frame,
    Header,
    PictureError,
    Pixels,
    check_stack_size,
    read_header,
    read_pages,
    silence_decoders,
    to_grey,
)
from tubal.text import count, shape_text

__all__ = ["check_image_options", "frame_size", "load_image_folder", "load_picture", "map_in_threads"]

LONGER_SIDE = 64
MAX_SIDE = 65_536
MAX_PIXELS = 80_000_000
MAX_THREADS = 8
VISIBLE_COLOR = 0.04  # a picture counts as grey if its channels differ by less on average

ProgressCallback: TypeAlias = Callable[[int, int], None]
Skipped: TypeAlias = list[tuple[str, str]]
Size: TypeAlias = int | tuple[int, int] | None
Item = TypeVar("Item")
Result = TypeVar("Result")


def load_image_folder(
    path: str | os.PathLike[str],
    *,
    size: Size = None,
    colour: str = "auto",
    fit: str = "pad",
    max_pixels: int = MAX_PIXELS,
    exclude: Sequence[str | os.PathLike[str]] = (),
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
        width of the pictures, reduced so that the longer side is at most 64.
    colour : {"auto", "grey", "rgb"}, default="auto"
        Whether to read in colour. ``"auto"`` keeps colour if more than half of the pictures show any.
    fit : {"pad", "crop"}, default="pad"
        How pictures of another shape fill the common size: ``"pad"`` keeps the whole picture and repeats its border
        pixels, ``"crop"`` covers the common size and cuts off the rest.
    max_pixels : int, default=80_000_000
        Pictures with more pixels are skipped without being decoded.
    exclude : sequence of str or path-like, default=()
        Folders to leave out, such as one that holds earlier results.
    n_threads : int, optional
        Number of pictures read at the same time; by default one per core, at most 8.
    progress : callable, optional
        Called as ``progress(pictures_read, pictures_in_all)``.

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
            One sentence about what was read and how it was resized.
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
    root = _check_folder(path)
    check_image_options(size, colour, fit, max_pixels)
    skipped: Skipped = []
    names = list(_find_pictures(root, skipped, {Path(folder).resolve() for folder in exclude}))
    with silence_decoders():
        headers = _read_headers(root, names, skipped, max_pixels, n_threads)
        if not headers:
            raise ValueError(_nothing_readable(root, skipped))
        in_color = colour == "rgb" or (colour == "auto" and any(header.in_color for header in headers))
        frame = Frame(*frame_size(_page_sizes(headers), size), in_color, fit)
        images, pictures = _read_all(root, headers, frame, skipped, n_threads=n_threads, progress=progress)
    if not pictures:
        raise ValueError(_nothing_readable(root, skipped))
    if colour == "auto" and images.ndim == 4 and not _mostly_colored(images):
        images = to_grey(images)
    skipped.sort()
    return Bunch(
        images=images,
        names=[name for name, _ in pictures],
        files=[str(file) for _, file in pictures],
        skipped=skipped,
        rule=_describe_stack(headers, frame, images, skipped),
        target=_folder_labels([file.relative_to(root) for _, file in pictures]),
    )


def load_picture(path: Path, size: Size, colour: str, fit: str, *, max_pixels: int) -> Bunch:
    """Read one picture, or every page of one TIFF; the result is that of :func:`load_image_folder`."""
    skipped: Skipped = []
    with silence_decoders():
        try:
            header = read_header(path, max_pixels=max_pixels)
        except PictureError as reason:
            raise ValueError(f"{path.name!r} cannot be read: {reason}") from None
        in_color = colour == "rgb" or (colour == "auto" and header.in_color)
        frame = Frame(*frame_size(header.sizes, size), in_color, fit)
        images, pictures = _read_all(path.parent, [header], frame, skipped)
    if not pictures:
        raise ValueError(f"{path.name!r} cannot be read: {skipped[0][1]}")
    pages = f"{count(len(pictures), 'page')} of" if len(header.sizes) > 1 else "the picture"
    shape = shape_text((frame.height, frame.width))
    return Bunch(
        images=images,
        names=[name for name, _ in pictures],
        files=[str(path.resolve())] * len(pictures),
        skipped=skipped,
        rule=f"{pages} {path.name!r}, {shape}, in {'colour' if in_color else 'grey'}.",
        target=None,
    )


def map_in_threads(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    n_threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[Result]:
    """Apply ``function`` to every item in threads and keep the order; an interruption drops what has not started."""
    results: dict[int, Result] = {}
    executor = ThreadPoolExecutor(max_workers=n_threads or min(os.cpu_count() or 1, MAX_THREADS))
    try:
        pending: dict[Future[Result], int] = {executor.submit(function, item): i for i, item in enumerate(items)}
        while pending:
            done, _ = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                results[pending.pop(future)] = future.result()
            if progress is not None and done:
                progress(len(results), len(items))
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
    return [results[i] for i in range(len(items))]


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


def check_image_options(size: Size, colour: str, fit: str, max_pixels: int) -> None:
    """Raise an error that names the first option with a value it cannot have."""
    sides = size if isinstance(size, tuple) else (size,) if size is not None else ()
    if not all(isinstance(side, (int, np.integer)) and 1 <= side <= MAX_SIDE for side in sides) or len(sides) > 2:
        raise ValueError(f"size is {size!r}; give the longer side or (height, width), 1 to {MAX_SIDE} pixels")
    if colour not in ("auto", "grey", "rgb"):
        raise ValueError(f"colour is {colour!r}; choose 'auto', 'grey' or 'rgb'")
    if fit not in ("pad", "crop"):
        raise ValueError(f"fit is {fit!r}; choose 'pad' or 'crop'")
    if max_pixels < 1:
        raise ValueError(f"max_pixels is {max_pixels}; give a positive number of pixels")


def _check_folder(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}; check the path")
    if not folder.is_dir():
        raise NotADirectoryError(f"{str(folder)!r} is not a folder; give the folder that holds the pictures")
    return folder.resolve()


# --- finding and reading files -----------------------------------------------------------------------------------


def _find_pictures(root: Path, skipped: Skipped, exclude: set[Path], below: str = "") -> Iterator[str]:
    """Yield the sorted relative names of files that may be pictures; links not followed go to ``skipped``."""
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except OSError as error:
        skipped.append((below, (error.strerror or "unreadable folder").lower()))
        return
    for entry in entries:
        name = f"{below}/{entry.name}" if below else entry.name
        if entry.name.startswith("."):
            continue
        is_picture = Path(entry.name).suffix.lower() in PICTURE_SUFFIXES
        if entry.is_symlink() and (is_picture or entry.is_dir()):
            reason = _reason_against_link(root, Path(entry.path))
            if reason:
                skipped.append((name, reason))
                continue
        if entry.is_dir(follow_symlinks=False):
            if Path(entry.path) not in exclude:
                yield from _find_pictures(root, skipped, exclude, name)
        elif is_picture:
            yield name


def _reason_against_link(root: Path, link: Path) -> str:
    """Return why a link is not followed; empty for a link to a file inside the folder."""
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        return "broken link"
    if not target.is_relative_to(root):
        return "link leading out of the folder, not followed"
    return "link to a folder, not followed" if target.is_dir() else ""


def _read_headers(
    root: Path, names: Sequence[str], skipped: Skipped, max_pixels: int, n_threads: int | None
) -> list[Header]:
    def header_or_reason(name: str) -> Header | PictureError:
        try:
            return read_header(root / name, max_pixels=max_pixels)
        except PictureError as reason:
            return reason

    headers = []
    for name, header in zip(names, map_in_threads(header_or_reason, names, n_threads), strict=True):
        if isinstance(header, Header):
            headers.append(header)
        else:
            skipped.append((name, str(header)))
    return headers


def _read_all(
    root: Path,
    headers: Sequence[Header],
    frame: Frame,
    skipped: Skipped,
    *,
    n_threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Pixels, list[tuple[str, Path]]]:
    """Decode every page directly into one array, and return it without the damaged ones, with names and files."""
    starts = np.cumsum([0, *(len(header.sizes) for header in headers)]).tolist()
    shape = (starts[-1], *frame.shape)
    check_stack_size(count(starts[-1], "picture"), shape, "choose a smaller size")
    images = np.zeros(shape, dtype=np.float32)
    good, unscaled = np.zeros(len(images), dtype=bool), np.zeros(len(images), dtype=bool)
    reasons: dict[int, str] = {}

    def read(item: tuple[int, Header]) -> None:
        start, header = item
        for page, outcome in read_pages(header, frame):
            if isinstance(outcome, PictureError):
                reasons[start + page] = str(outcome)
            else:
                images[start + page] = outcome.pixels
                good[start + page], unscaled[start + page] = True, outcome.needs_scaling

    map_in_threads(read, list(zip(starts, headers, strict=False)), n_threads, progress)
    pictures = []
    for index, (name, file) in enumerate(_page_names(root, headers)):
        if good[index]:
            pictures.append((name, file))
        else:
            skipped.append((name, reasons.get(index, "damaged")))
    _scale_together(images, good & unscaled)
    return (images if good.all() else images[good]), pictures


def _page_names(root: Path, headers: Sequence[Header]) -> Iterator[tuple[str, Path]]:
    """Yield the name and the file of every page."""
    for header in headers:
        name = header.path.relative_to(root).as_posix()
        for page in range(1, len(header.sizes) + 1):
            yield (f"{name}#{page}" if len(header.sizes) > 1 else name), header.path


def _scale_together(images: Pixels, which: NDArray[np.bool_]) -> None:
    """Bring pictures without a known full scale (floats, 32-bit integers) to [0, 1] by their common range, in place."""
    indices = np.flatnonzero(which)
    if not len(indices):
        return
    low = min(float(images[i].min()) for i in indices)
    high = max(float(images[i].max()) for i in indices)
    if low >= 0.0 and high <= 1.0:
        return
    for i in indices:
        images[i] = (images[i] - low) / max(high - low, np.finfo(np.float32).tiny)


# --- the rule and its description --------------------------------------------------------------------------------


def _page_sizes(headers: Sequence[Header]) -> list[tuple[int, int]]:
    return [page for header in headers for page in header.sizes]


def _mostly_colored(images: Pixels) -> bool:
    spread = [float((image.max(axis=-1) - image.min(axis=-1)).mean()) for image in images]
    return float(np.mean([value > VISIBLE_COLOR for value in spread])) > 0.5


def _folder_labels(names: Sequence[Path]) -> NDArray[np.str_] | None:
    parents = [name.parent.as_posix() for name in names]
    return None if "." in parents or len(set(parents)) < 2 else np.array(parents)


def _describe_stack(headers: Sequence[Header], frame: Frame, images: Pixels, skipped: Skipped) -> str:
    sizes = set(_page_sizes(headers))
    shape = shape_text((frame.height, frame.width))
    if sizes == {(frame.height, frame.width)}:
        how = f"all {shape} already"
    elif len(sizes) == 1:
        how = f"resized from {shape_text(next(iter(sizes)))} to {shape}"
    else:
        kept = "whole, borders repeated" if frame.fit == "pad" else "cut to the middle"
        how = f"{len(sizes)} different sizes resized to {shape} ({kept})"
    tone = "in colour" if images.ndim == 4 else "in grey"
    left_out = f"; {len(skipped)} skipped" if skipped else ""
    return f"{count(len(images), 'picture')}, {how}, {tone}{left_out}."


def _nothing_readable(root: Path, skipped: Skipped) -> str:
    if skipped:
        name, reason = skipped[0]
        return (
            f"no picture in {str(root)!r} can be read: {count(len(skipped), 'file')} skipped "
            f"(the first, {name!r}: {reason}); give a folder with images"
        )
    return f"no pictures in {str(root)!r}; give a folder with PNG, JPEG, GIF, BMP, PGM, WebP or TIFF files"
