"""Pictures on disk as one stack of equal images; no step looks at a label.

The rule, in order: pictures are turned upright (EXIF), and transparent ones get a white ground (black behind white
drawings). Where borders are of one colour and the content stands out, pictures are cut to their content and get a
small margin. The common size is the median height and the median width (a square, if pictures are cut), reduced so
that the longer side is at most 64 pixels. Each picture is scaled to fit inside that size, on the median colour of its
border (``fit="pad"``), or it is scaled to cover that size and cut (``fit="crop"``). The stack is in colour if over half
of its pictures show colour.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path, PurePosixPath
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from tubal.images.frames import WITH_MARGIN, Content, Frame, Pixels, check_stack_size, to_grey
from tubal.images.pictures import (
    Header,
    PictureError,
    measure_content,
    read_header,
    read_pages,
    silence_decoders,
)
from tubal.images.sources import NOT_A_PICTURE, Found, Skipped, find_pictures
from tubal.text import count, shape_text

__all__ = ["check_image_options", "frame_size", "load_image_folder", "load_pictures", "map_in_threads"]

LONGER_SIDE = 64
MAX_SIDE = 65_536
MAX_PIXELS = 80_000_000
TOTAL_INFLATION = 20  # how many times max_pixels the pictures of very small files may have together
MAX_THREADS = 8
SAMPLE = 100  # pictures that decide whether all are cut
MAX_MOVE = 1 / 16  # of the content's side, between two tolerances
TINY = float(np.finfo(np.float32).tiny)
FAR = 100.0  # times the range of a typical picture: values farther out are damage, not brightness
VISIBLE_COLOR = 0.04  # a picture counts as grey if its channels differ by less on average

ProgressCallback: TypeAlias = Callable[[int, int], None]
Picture: TypeAlias = tuple[Found, Header]
Size: TypeAlias = int | tuple[int, int] | None
Item = TypeVar("Item")
Result = TypeVar("Result")


def load_image_folder(
    path: str | os.PathLike[str],
    *,
    size: Size = None,
    colour: str = "auto",
    fit: str = "pad",
    crop: str = "auto",
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
        How pictures of another shape fill the common size: ``"pad"`` keeps the whole picture on the median colour of
        its border, ``"crop"`` covers the common size and cuts off the rest.
    crop : {"auto", "content", "none"}, default="auto"
        Whether to cut pictures to their content, everything that differs from the colour of their border.
        ``"auto"`` does so where borders are of one colour and the content stands out clearly in most pictures.
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
        crop : {"content", "none"}
            Whether pictures were cut to their content; give it again to read further pictures alike.
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
    return load_pictures(
        [_check_folder(path)],
        size=size,
        colour=colour,
        fit=fit,
        crop=crop,
        max_pixels=max_pixels,
        exclude=exclude,
        n_threads=n_threads,
        progress=progress,
    )


def load_pictures(
    sources: Sequence[Path],
    *,
    size: Size,
    colour: str,
    fit: str,
    crop: str,
    max_pixels: int,
    exclude: Sequence[str | os.PathLike[str]] = (),
    n_threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> Bunch:
    """Read the pictures of folders, archives and files; the result is that of :func:`load_image_folder`."""
    check_image_options(size, colour, fit, crop, max_pixels)
    with contextlib.ExitStack() as temporary:
        found, skipped = find_pictures(
            sources, exclude=[Path(folder) for folder in exclude], max_pixels=max_pixels, temporary=temporary
        )
        temporary.enter_context(silence_decoders())
        pictures = _read_headers(found, skipped, max_pixels, n_threads)
        if not pictures:
            raise ValueError(_nothing_readable(sources, skipped))
        in_color = colour == "rgb" or (colour == "auto" and any(header.in_color for _, header in pictures))
        contents = _contents_to_cut(pictures, crop, n_threads)
        height, width = _content_size(contents, size) if contents else frame_size(_page_sizes(pictures), size)
        frame = Frame(height, width, in_color, fit, cut=bool(contents))
        images, pages = _read_all(pictures, frame, skipped, n_threads=n_threads, progress=progress)
    if not pages:
        raise ValueError(_nothing_readable(sources, skipped))
    if colour == "auto" and images.ndim == 4 and not _mostly_colored(images):
        images = to_grey(images)
    # Files that nobody takes for a picture come last.
    skipped.sort(key=lambda item: (item[1] == NOT_A_PICTURE, item))
    return Bunch(
        images=images,
        names=[name for name, _ in pages],
        files=[item.origin for _, item in pages],
        skipped=skipped,
        rule=_describe_stack(_page_sizes(pictures), frame, images, skipped),
        crop="content" if frame.cut else "none",
        target=_folder_labels([item.name for _, item in pages]),
    )


def map_in_threads(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    n_threads: int | None = None,
    progress: ProgressCallback | None = None,
    *,
    stop: threading.Event | None = None,
) -> list[Result]:
    """Apply ``function`` to every item in threads and keep the order.

    An interruption drops what has not started, and sets ``stop`` for calls that can end early.
    """
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
        if stop is not None:
            stop.set()
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


def check_image_options(size: Size, colour: str, fit: str, crop: str, max_pixels: int) -> None:
    """Raise an error that names the first option with a value it cannot have."""
    sides = size if isinstance(size, tuple) else (size,) if size is not None else ()
    if not all(isinstance(side, (int, np.integer)) and 1 <= side <= MAX_SIDE for side in sides) or len(sides) > 2:
        raise ValueError(f"size is {size!r}; give the longer side or (height, width), 1 to {MAX_SIDE} pixels")
    if colour not in ("auto", "grey", "rgb"):
        raise ValueError(f"colour is {colour!r}; choose 'auto', 'grey' or 'rgb'")
    if fit not in ("pad", "crop"):
        raise ValueError(f"fit is {fit!r}; choose 'pad' or 'crop'")
    if crop not in ("auto", "content", "none"):
        raise ValueError(f"crop is {crop!r}; choose 'auto', 'content' or 'none'")
    if max_pixels < 1:
        raise ValueError(f"max_pixels is {max_pixels}; give a positive number of pixels")


def _check_folder(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}; check the path")
    if not folder.is_dir():
        raise NotADirectoryError(f"{str(folder)!r} is not a folder; give the folder that holds the pictures")
    return folder.resolve()


# --- reading files -----------------------------------------------------------------------------------------------


def _read_headers(found: Sequence[Found], skipped: Skipped, max_pixels: int, n_threads: int | None) -> list[Picture]:
    def header_or_reason(item: Found) -> Header | PictureError:
        try:
            return read_header(item.file, max_pixels=max_pixels)
        except PictureError as reason:
            return reason

    pictures, inflated, most = [], 0, TOTAL_INFLATION * max_pixels
    for item, header in zip(found, map_in_threads(header_or_reason, found, n_threads), strict=True):
        if isinstance(header, PictureError):
            skipped.append((item.name, str(header)))
            continue
        inflated += header.n_inflated
        if header.n_inflated and inflated > most:
            skipped.append((item.name, f"small files decode to over {most} pixels in all (--max-pixels)"))
        else:
            pictures.append((item, header))
    return pictures


def _read_all(
    pictures: Sequence[Picture],
    frame: Frame,
    skipped: Skipped,
    *,
    n_threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Pixels, list[tuple[str, Found]]]:
    """Decode every page directly into one array, and return it without the damaged ones, with names and files."""
    headers = [header for _, header in pictures]
    starts = np.cumsum([0, *(len(header.sizes) for header in headers)]).tolist()
    shape = (starts[-1], *frame.shape)
    check_stack_size(count(starts[-1], "picture"), shape, "choose a smaller size")
    images = np.zeros(shape, dtype=np.float32)
    good, unscaled = np.zeros(len(images), dtype=bool), np.zeros(len(images), dtype=bool)
    reasons: dict[int, str] = {}

    stop = threading.Event()

    def read(item: tuple[int, Header]) -> None:
        start, header = item
        for page, outcome in read_pages(header, frame):
            if stop.is_set():
                return
            if isinstance(outcome, PictureError):
                reasons[start + page] = str(outcome)
            else:
                images[start + page] = outcome.pixels
                good[start + page], unscaled[start + page] = True, outcome.needs_scaling

    map_in_threads(read, list(zip(starts, headers, strict=False)), n_threads, progress, stop=stop)
    pages = []
    for index, (name, item) in enumerate(_page_names(pictures)):
        if good[index]:
            pages.append((name, item))
        else:
            skipped.append((name, reasons.get(index, "damaged")))
    _scale_together(images, good & unscaled)
    return (images if good.all() else images[good]), pages


def _page_names(pictures: Sequence[Picture]) -> Iterator[tuple[str, Found]]:
    """Yield the name and the file of every page."""
    for item, header in pictures:
        for page in range(1, len(header.sizes) + 1):
            yield (f"{item.name}#{page}" if len(header.sizes) > 1 else item.name), item


def _scale_together(images: Pixels, which: NDArray[np.bool_]) -> None:
    """Bring pictures without a known full scale (floats, 32-bit integers) to [0, 1] by their common range, in place.

    A picture far outside the range of most others does not count for the common range, and is cut to it.
    """
    indices = np.flatnonzero(which)
    if not len(indices):
        return
    low, high = _common_range(
        np.array([images[i].min() for i in indices], dtype=np.float64),
        np.array([images[i].max() for i in indices], dtype=np.float64),
    )
    if low >= 0.0 and high <= 1.0:
        low, high = 0.0, 1.0
    for i in indices:
        images[i] = np.clip((images[i].astype(np.float64) - low) / max(high - low, TINY), 0.0, 1.0)


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
