"""One way in for images, wherever they are: a folder, one picture, an array file or a collection's name."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from tubal.datasets.registry import COLLECTIONS
from tubal.images.folders import (
    MAX_PIXELS,
    Progress,
    Size,
    check_options,
    frame_size,
    load_image_folder,
    map_in_threads,
    scale_measured,
)
from tubal.images.pictures import SUFFIXES, Frame, PictureError, fit_array, quiet_decoders, read_header, read_pages
from tubal.images.stacks import STACK_SUFFIXES, read_stack, to_unit_interval

__all__ = ["fit_images", "load_image_folder", "load_images"]


def load_images(
    source: str | os.PathLike[str],
    *,
    size: Size = None,
    colour: str = "auto",
    fit: str = "pad",
    max_pixels: int = MAX_PIXELS,
    variable: str | None = None,
    image_shape: tuple[int, int] | None = None,
    exclude: Sequence[str | os.PathLike[str]] = (),
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Bunch:
    """Read images from a folder, a picture, a ``.npy``/``.npz``/``.mat``/``.h5`` stack or a collection.

    An existing path is read; otherwise ``source`` is the name of a collection (``"digits"``, ``"coil20"``…).
    ``variable`` and ``image_shape`` help with array files, the other options are those of
    :func:`load_image_folder`, whose rule on sizes holds for stacks too.

    Returns
    -------
    Bunch with ``images`` float32 in [0, 1], ``names``, ``files`` (the path of each image, or empty),
    ``skipped``, ``rule`` and ``target`` (labels found beside the images, for scoring only, or ``None``).

    >>> digits = load_images("digits")
    >>> digits.images.shape, digits.names[0], digits.rule
    ((1797, 8, 8), 'digits#1', "1797 images of the collection 'digits', all 8×8 already, in grey.")
    """
    check_options(size, colour, fit, max_pixels)
    path = Path(source)
    if path.is_dir():
        return load_image_folder(
            path,
            size=size,
            colour=colour,
            fit=fit,
            max_pixels=max_pixels,
            exclude=exclude,
            n_threads=n_threads,
            progress=progress,
        )
    if not path.exists():
        return _from_collection(str(source), size, colour, fit)
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        with quiet_decoders():
            return _from_picture(path, size, colour, fit, max_pixels=max_pixels)
    if suffix in STACK_SUFFIXES:
        stack = read_stack(path, variable=variable, image_shape=image_shape)
        images = to_unit_interval(stack.images)
        parts = Bunch(images=images, name=path.name, target=stack.target, what=f"images, {stack.note}")
        return _bunch(parts, (size, colour, fit), n_threads=n_threads, progress=progress)
    known = ", ".join(sorted(SUFFIXES | STACK_SUFFIXES))
    raise ValueError(f"{path.name!r} is not a kind of file that is read; give a folder or one of {known}")


def fit_images(
    images: np.ndarray,
    height: int,
    width: int,
    *,
    colour: bool,
    fit: str = "pad",
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> np.ndarray:
    """Bring a stack to ``(n, height, width[, 3])``; a stack of that shape is returned as it is."""
    frame = Frame(height, width, colour, fit)
    if images.shape[1:] == frame.shape:
        return images
    fitted = np.empty((len(images), *frame.shape), dtype=np.float32)

    def place(index: int) -> None:
        fitted[index] = fit_array(images[index], frame)

    map_in_threads(place, range(len(images)), n_threads or min(os.cpu_count() or 1, 8), progress)
    return fitted


def _from_collection(name: str, size: Size, colour: str, fit: str) -> Bunch:
    from tubal.datasets.fetchers import fetch

    known = ["digits", *COLLECTIONS]
    if name.lower() not in known:
        raise FileNotFoundError(_not_found(name, known))
    fetched: Any = fetch(name.lower())
    what = f"images of the collection {name.lower()!r}"
    parts = Bunch(images=fetched.images, name=name.lower(), target=fetched.target, what=what)
    return _bunch(parts, (size, colour, fit))


def _not_found(name: str, known: list[str]) -> str:
    if os.sep in name or Path(name).suffix:
        return f"there is no file or folder {name!r}; check the path"
    close = difflib.get_close_matches(name.lower(), known, n=1)
    guess = f"did you mean {close[0]!r}?" if close else f"the collections are {', '.join(known)}"
    return f"there is no folder {name!r} and no collection of that name; {guess}"


def _bunch(
    parts: Bunch,
    rule: tuple[Size, str, str],
    *,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Bunch:
    """Bring a stack to the size of the rule and say so."""
    size, colour, fit = rule
    images = parts.images
    before = images.shape[1:3]
    height, width = frame_size([before[0]], [before[1]], size)
    in_colour = colour == "rgb" or (colour == "auto" and images.ndim == 4)
    images = fit_images(images, height, width, colour=in_colour, fit=fit, n_threads=n_threads, progress=progress)
    how = f"all {height}×{width} already"
    if before != (height, width):
        how = f"brought from {before[0]}×{before[1]} to {height}×{width}"
    return Bunch(
        images=np.ascontiguousarray(images, dtype=np.float32),
        names=[f"{parts.name}#{i + 1}" for i in range(len(images))],
        files=[""] * len(images),
        skipped=[],
        rule=f"{len(images)} {parts.what}, {how}, in {'colour' if in_colour else 'grey'}.",
        target=parts.target,
    )


def _from_picture(path: Path, size: Size, colour: str, fit: str, *, max_pixels: int) -> Bunch:
    """Read one picture, or every page of one TIFF."""
    try:
        header = read_header(path, max_pixels=max_pixels)
    except PictureError as reason:
        raise ValueError(f"{path.name!r} cannot be read: {reason}") from None
    heights, widths = zip(*header.sizes, strict=True)
    height, width = frame_size(heights, widths, size)
    frame = Frame(height, width, colour == "rgb" or (colour == "auto" and header.colour), fit)
    pages, names, skipped, measured = [], [], [], []
    for page, outcome in read_pages(header, frame):
        label = f"{path.name}#{page + 1}" if len(header.sizes) > 1 else path.name
        if isinstance(outcome, PictureError):
            skipped.append((label, str(outcome)))
        else:
            pages.append(outcome.pixels)
            names.append(label)
            measured.append(outcome.measured)
    if not pages:
        raise ValueError(f"{path.name!r} cannot be read: {skipped[0][1]}")
    images = np.stack(pages)
    scale_measured(images, np.array(measured))
    what = f"{len(pages)} pages of {path.name!r}" if len(header.sizes) > 1 else f"the picture {path.name!r}"
    tone = "colour" if frame.colour else "grey"
    return Bunch(
        images=images,
        names=names,
        files=[str(path.resolve())] * len(names),
        skipped=skipped,
        rule=f"{what}, {height}×{width}, in {tone}.",
        target=None,
    )
