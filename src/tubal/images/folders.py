"""A folder of pictures as one stack, by a rule that never looks at a label.

The rule, in order: pictures are turned upright (EXIF); the common size is the median height and the median
width, reduced so that the longer side is at most 64 pixels; each picture is scaled to fit inside that size
and its border continued outwards (``fit="pad"``), or scaled to cover it and cut (``fit="crop"``);
transparent pictures lie on white; the stack is in colour when more than half of its pictures show colour.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

import numpy as np
from sklearn.utils import Bunch

from tubal.images.pictures import SUFFIXES, Frame, Header, PictureError, quiet_decoders, read_header, read_pages

__all__ = ["load_image_folder"]

LONG_SIDE = 64
MAX_PIXELS = 80_000_000
MAX_BYTES = 8 * 2**30
VISIBLE_COLOUR = 0.04  # mean difference between channels below which a picture counts as grey

Progress = Callable[[int, int], None]
Skipped = list[tuple[str, str]]
Size = int | tuple[int, int] | None
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
    progress: Progress | None = None,
) -> Bunch:
    """Read all pictures below a folder into one float32 stack with values in [0, 1].

    Parameters
    ----------
    path : folder; read recursively, hidden names left out, links leading out of it never followed.
    size : ``None`` for the rule of this module, a longest side in pixels, or ``(height, width)``.
    colour : ``"auto"``, ``"grey"`` or ``"rgb"``.
    fit : ``"pad"`` keeps whole pictures, ``"crop"`` fills the frame.
    max_pixels : larger pictures are skipped before they are decoded.
    exclude : folders left out, such as one that holds earlier results.
    n_threads : readers working side by side; one per processor by default.
    progress : called as ``progress(pictures read, pictures in all)``.

    Returns
    -------
    Bunch with ``images`` (n, h, w) or (n, h, w, 3); ``names``, relative paths in sorted order, pages of a
    multi-page TIFF as ``name#page``; ``files``, the path of each; ``skipped``, pairs of name and reason;
    ``rule``, one sentence saying what was done; ``target``, the folder of each picture when all lie in
    sub-folders, else ``None``.

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
    check_options(size, colour, fit, max_pixels)
    workers = n_threads or min(os.cpu_count() or 1, 8)
    skipped: Skipped = []
    names = list(_walk(root, skipped, {Path(folder).resolve() for folder in exclude}))
    with quiet_decoders():
        headers = _read_headers(root, names, skipped, max_pixels, workers)
        if not headers:
            raise ValueError(_nothing_left(root, skipped))
        frame = Frame(*_frame_size(headers, size), _read_in_colour(headers, colour), fit)
        images, pictures = _read_all(root, headers, frame, skipped, workers=workers, progress=progress)
    if not pictures:
        raise ValueError(_nothing_left(root, skipped))
    if colour == "auto" and images.ndim == 4 and not _mostly_coloured(images):
        images = images @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    skipped.sort()
    return Bunch(
        images=images,
        names=[name for name, _ in pictures],
        files=[str(file) for _, file in pictures],
        skipped=skipped,
        rule=_describe(headers, frame, images, skipped),
        target=_folder_names([file.relative_to(root) for _, file in pictures]),
    )


def map_in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int, progress: Progress | None = None
) -> list[Result]:
    """Apply ``function`` in threads, in order; an interruption drops what has not started."""
    results: dict[int, Result] = {}
    executor = ThreadPoolExecutor(max_workers=workers)
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


def frame_size(heights: Sequence[int], widths: Sequence[int], size: Size) -> tuple[int, int]:
    """Return the common ``(height, width)``: given, or medians with the longer side limited.

    >>> frame_size([480, 480, 600], [640, 640, 800], None)
    (48, 64)
    >>> frame_size([16, 20], [16, 20], None)
    (18, 18)
    """
    if isinstance(size, tuple):
        return size
    height, width = float(np.median(heights)), float(np.median(widths))
    reduction = min(1.0, (size or LONG_SIDE) / max(height, width))
    return max(1, round(height * reduction)), max(1, round(width * reduction))


def _walk(root: Path, skipped: Skipped, exclude: set[Path], below: str = "") -> Iterator[str]:
    """Yield relative names of candidate files in sorted order; note links that are not followed."""
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except OSError as error:
        skipped.append((below, (error.strerror or "unreadable folder").lower()))
        return
    for entry in entries:
        name = f"{below}/{entry.name}" if below else entry.name
        if entry.name.startswith("."):
            continue
        picture = Path(entry.name).suffix.lower() in SUFFIXES
        if entry.is_symlink() and (picture or entry.is_dir()):
            reason = _refuse_link(root, Path(entry.path))
            if reason:
                skipped.append((name, reason))
                continue
        if entry.is_dir(follow_symlinks=False):
            if Path(entry.path) not in exclude:
                yield from _walk(root, skipped, exclude, name)
        elif picture:
            yield name


def _refuse_link(root: Path, link: Path) -> str:
    try:
        aim = link.resolve(strict=True)
    except (OSError, RuntimeError):
        return "link that leads nowhere"
    if not aim.is_relative_to(root):
        return "link leading out of the folder, not followed"
    return "link to a folder, not followed" if aim.is_dir() else ""


def _read_headers(root: Path, names: Sequence[str], skipped: Skipped, max_pixels: int, workers: int) -> list[Header]:
    def header_or_reason(name: str) -> Header | PictureError:
        try:
            return read_header(root / name, max_pixels=max_pixels)
        except PictureError as reason:
            return reason

    headers = []
    for name, header in zip(names, map_in_threads(header_or_reason, names, workers), strict=True):
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
    workers: int,
    progress: Progress | None,
) -> tuple[np.ndarray, list[tuple[str, Path]]]:
    """Decode every page straight into its place in one array, then close the gaps of damaged ones."""
    starts = np.cumsum([0, *(len(header.sizes) for header in headers)])
    images = _allocate(int(starts[-1]), frame)
    good = np.zeros(len(images), dtype=bool)
    measured = np.zeros(len(images), dtype=bool)
    reasons: dict[int, str] = {}

    def read(place: tuple[int, Header]) -> None:
        start, header = place
        for page, outcome in read_pages(header, frame):
            if isinstance(outcome, PictureError):
                reasons[start + page] = str(outcome)
            else:
                images[start + page] = outcome.pixels
                good[start + page], measured[start + page] = True, outcome.measured

    map_in_threads(read, list(zip(starts.tolist(), headers, strict=False)), workers, progress)
    pictures = []
    for start, header in zip(starts.tolist(), headers, strict=False):
        name = header.path.relative_to(root).as_posix()
        for page in range(len(header.sizes)):
            label = f"{name}#{page + 1}" if len(header.sizes) > 1 else name
            if good[start + page]:
                pictures.append((label, header.path))
            else:
                skipped.append((label, reasons.get(start + page, "damaged")))
    scale_measured(images, good & measured)
    return (images if good.all() else images[good]), pictures


def _allocate(n_images: int, frame: Frame) -> np.ndarray:
    needed = 4 * n_images * int(np.prod(frame.shape))
    if needed > MAX_BYTES:
        raise ValueError(
            f"{n_images} pictures of {frame.height}×{frame.width} need {needed / 2**30:.0f} GiB; "
            f"at most {MAX_BYTES // 2**30} GiB are used, so choose a smaller size"
        )
    return np.zeros((n_images, *frame.shape), dtype=np.float32)


def scale_measured(images: np.ndarray, which: np.ndarray) -> None:
    """Bring pictures without a full scale (floats, 32-bit integers) to [0, 1] by their common range."""
    places = np.flatnonzero(which)
    if not len(places):
        return
    low = min(float(images[i].min()) for i in places)
    high = max(float(images[i].max()) for i in places)
    if low >= 0.0 and high <= 1.0:
        return
    for i in places:
        images[i] = (images[i] - low) / max(high - low, np.finfo(np.float32).tiny)


def _frame_size(headers: Sequence[Header], size: Size) -> tuple[int, int]:
    sizes = [page for header in headers for page in header.sizes]
    return frame_size([height for height, _ in sizes], [width for _, width in sizes], size)


def _read_in_colour(headers: Sequence[Header], colour: str) -> bool:
    return colour == "rgb" or (colour == "auto" and any(header.colour for header in headers))


def _mostly_coloured(images: np.ndarray) -> bool:
    spread = [float((image.max(axis=-1) - image.min(axis=-1)).mean()) for image in images]
    return float(np.mean([value > VISIBLE_COLOUR for value in spread])) > 0.5


def _folder_names(names: Sequence[Path]) -> np.ndarray | None:
    parents = [name.parent.as_posix() for name in names]
    return None if "." in parents or len(set(parents)) < 2 else np.array(parents)


def _describe(headers: Sequence[Header], frame: Frame, images: np.ndarray, skipped: Skipped) -> str:
    sizes = {page for header in headers for page in header.sizes}
    shape = f"{frame.height}×{frame.width}"
    if sizes == {(frame.height, frame.width)}:
        how = f"all {shape} already"
    elif len(sizes) == 1:
        height, width = next(iter(sizes))
        how = f"brought from {height}×{width} to {shape}"
    else:
        kept = "kept whole, borders continued" if frame.fit == "pad" else "filled and cut at the middle"
        how = f"{len(sizes)} different sizes brought to {shape} ({kept})"
    tone = "in colour" if images.ndim == 4 else "in grey"
    left_out = f"; {len(skipped)} skipped" if skipped else ""
    return f"{len(images)} pictures, {how}, {tone}{left_out}."


def _nothing_left(root: Path, skipped: Skipped) -> str:
    if skipped:
        name, reason = skipped[0]
        return (
            f"no readable picture in {str(root)!r}: all {len(skipped)} were skipped "
            f"(the first, {name!r}: {reason}); give a folder with images"
        )
    return f"no pictures in {str(root)!r}; give a folder with PNG, JPEG, GIF, BMP, PGM, WebP or TIFF files"


def _check_folder(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}; check the path")
    if not folder.is_dir():
        raise NotADirectoryError(f"{str(folder)!r} is not a folder; give the folder that holds the pictures")
    return folder.resolve()


def check_options(size: Size, colour: str, fit: str, max_pixels: int) -> None:
    sides = size if isinstance(size, tuple) else (size,) if size is not None else ()
    if not all(isinstance(side, (int, np.integer)) and 1 <= side <= 65_536 for side in sides) or len(sides) > 2:
        raise ValueError(f"size is {size!r}; give a longest side in pixels or (height, width)")
    if colour not in ("auto", "grey", "rgb"):
        raise ValueError(f"colour is {colour!r}; choose 'auto', 'grey' or 'rgb'")
    if fit not in ("pad", "crop"):
        raise ValueError(f"fit is {fit!r}; choose 'pad' or 'crop'")
    if max_pixels < 1:
        raise ValueError(f"max_pixels is {max_pixels}; give a positive number of pixels")
