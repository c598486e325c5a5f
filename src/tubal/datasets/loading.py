"""One function that reads images from anywhere: a folder, a picture, an array file, or a collection by name."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from tubal.images.folders import (
    MAX_PIXELS,
    ReadingOptions,
    Size,
    frame_size,
    is_picture_source,
    load_image_folder,
    load_pictures,
)
from tubal.images.pictures import PICTURE_SUFFIXES, Frame, Pixels, SecondLook, resize_array
from tubal.images.reading import KeptPictures, ProgressCallback, map_in_threads
from tubal.images.stacks import ARRAY_SUFFIXES, Stack, ValueRange, read_stack, to_unit_interval
from tubal.text import count, shape_text

__all__ = ["load_image_folder", "load_images"]


def load_images(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    size: Size = None,
    colour: str = "auto",
    fit: str = "pad",
    crop: str = "auto",
    variable: str | None = None,
    image_shape: tuple[int, int] | None = None,
    max_pixels: int = MAX_PIXELS,
    exclude: Sequence[str | os.PathLike[str]] = (),
    value_range: ValueRange | None = None,
    n_threads: int | None = None,
    progress: ProgressCallback | None = None,
    look: SecondLook | None = None,
    kept: KeptPictures | None = None,
) -> Bunch:
    """Read images from folders, archives, pictures, an array file or a collection.

    Parameters
    ----------
    source : str, path-like, or sequence of these
        A folder of pictures, a zip or tar archive of pictures, one picture (a TIFF with all its pages), or several of
        these; a ``.npy``, ``.npz``, ``.mat`` or ``.h5`` file; ``"-"`` for a list of paths on standard input, one per
        line or separated by null characters; or, if there is no such path, the name of a collection such as
        ``"digits"`` or ``"coil20"``.
    size : int or (int, int), optional
        Common size in pixels: the longer side, or ``(height, width)``. By default the median height and the median
        width of the images, reduced so that the longer side is at most 32 in picture files and 64 elsewhere.
    colour : {"auto", "grey", "rgb"}, default="auto"
        Whether to read in colour. ``"auto"`` keeps colour if more than half of the pictures in a folder show any,
        and elsewhere if the images have colour channels.
    fit : {"pad", "crop"}, default="pad"
        How images of another shape fill the common size: ``"pad"`` keeps the whole image on the median colour of its
        border, ``"crop"`` covers the common size and cuts off the rest.
    crop : {"auto", "content", "none"}, default="auto"
        Whether to cut images to their content, everything that differs from the colour of their border.
        ``"auto"`` does so for picture files where borders are of one colour and the content stands out clearly in most
        of them; array files and collections are taken as they are.
    variable : str, optional
        Name of the array in an array file that holds several. Arrays of several names, separated by commas, are joined.
    image_shape : (int, int), optional
        Height and width of the images in an array that stores one image per row; by default they are square.
    max_pixels : int, default=80_000_000
        Pictures with more pixels are skipped without being decoded.
    exclude : sequence of str or path-like, default=()
        Sub-folders to leave out, such as one that holds earlier results.
    value_range : (float, float), optional
        Darkest and brightest value of images whose full scale is unknown, floats and 32-bit integers; by default their
        common range.
    n_threads : int, optional
        Number of images read at the same time; by default one per core, at most 8.
    progress : callable, optional
        Called as ``progress(images_read, images_in_all)``.
    look : SecondLook, optional
        Describes picture files at a larger size while they are read.
    kept : KeptPictures, optional
        Keeps picture files that have been read, and restores those of an interrupted run.

    Returns
    -------
    Bunch
        A dictionary whose keys are also attributes:

        images : ndarray of shape (n, height, width) or (n, height, width, 3)
            The images of all sources, one after another, as float32 values in [0, 1].
        names : list of str
            Paths relative to the folder or archive, or the name of the source and a number. With several sources,
            paths begin with the name of the source.
        files : list of str
            The file of each image; empty if it has no file of its own.
        skipped : list of (str, str)
            Names of the pictures that could not be read, and the reasons.
        rule : str
            One sentence about what was read and how it was resized.
        crop : {"content", "none"}
            Whether images were cut to their content; give it again to read further images alike.
        fit : {"pad", "crop"}
            How images of another shape fill the common size, as given.
        value_range : (float, float) or None
            Darkest and brightest value of floats and 32-bit integers; give it again to read further images alike.
        target : ndarray of shape (n,) or None
            Labels found beside the images, for scoring only.
        described : ndarray of shape (n, d) or None
            Features of ``look``; None without it, and where it is not worthwhile.

    Examples
    --------
    >>> digits = load_images("digits")
    >>> digits.images.shape, digits.names[0], digits.rule
    ((1797, 8, 8), 'digits#1', "1797 images of the collection 'digits', all 8×8 already, in grey.")
    """
    options = ReadingOptions(size, colour, fit, crop, max_pixels, exclude, value_range, n_threads, progress)
    paths, are_pictures = _to_paths(source)
    if are_pictures:
        return load_pictures(paths, options, look, kept)
    if paths[0].exists():
        stack, value_range = _read_array_file(paths[0], variable, image_shape, max_pixels, value_range)
    else:
        stack, value_range = _read_collection(str(paths[0])), None
    in_color = colour == "rgb" or (colour == "auto" and stack.images.ndim == 4)
    frame = Frame(*frame_size([stack.images.shape[1:3]], size), in_color, fit, cut=crop == "content")
    name = paths[0].name if paths[0].exists() else str(paths[0]).lower()
    resized = _resize_stack(stack.images, frame, n_threads, progress)
    return _as_bunch(stack, resized, frame, name, value_range)


def _as_bunch(stack: Stack, resized: Pixels, frame: Frame, name: str, value_range: ValueRange | None) -> Bunch:
    """Return what :func:`load_images` returns for images without files of their own."""
    return Bunch(
        images=resized,
        names=[f"{name}#{i + 1}" for i in range(len(resized))],
        files=[""] * len(resized),
        skipped=[],
        rule=f"{count(len(resized), 'image')}{stack.note}, {_describe_resizing(stack.images.shape[1:3], frame)}.",
        crop="content" if frame.cut else "none",
        fit=frame.fit,
        value_range=value_range,
        target=stack.target,
        described=None,
    )


def check_source(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> None:
    """Raise an error before anything is read if a source does not exist, or is of a kind that cannot be read.

    Parameters
    ----------
    source : str, path-like, or sequence of these
        As for :func:`load_images`. Standard input is not looked at.
    """
    if source in ("-", ["-"], ("-",)):
        return
    paths, are_pictures = _to_paths(source)
    if are_pictures:
        return
    if paths[0].exists():
        _check_array_file(paths[0])
    else:
        _check_collection(str(paths[0]))


def _to_paths(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[list[Path], bool]:
    """Return the paths of a source, and whether they are read as pictures; otherwise there is exactly one."""
    if source == "-":
        return _paths_on_input(), True
    if isinstance(source, (str, os.PathLike)):
        return [Path(source)], Path(source).exists() and is_picture_source(Path(source))
    if len(source) == 1:
        return _to_paths(source[0])
    paths = [Path(item) for item in source]
    if not paths:
        raise ValueError("the list of sources is empty; give at least one path")
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"there is no file or folder {str(path)!r}; check the path")
        if not is_picture_source(path):
            raise ValueError(f"{path.name!r} cannot be one of several sources; give folders, archives or pictures")
    return paths, True


def _paths_on_input() -> list[Path]:
    """Return the paths on standard input, one per line, or separated by null characters as by ``find -print0``."""
    body = sys.stdin.buffer.read()
    lines = body.split(b"\0") if b"\0" in body else body.splitlines()
    paths = [Path(os.fsdecode(line)) for line in lines if line.strip()]
    if not paths:
        raise ValueError("there is no path on standard input; give one per line, as in: find photos | tubal cluster -")
    return paths


def _read_array_file(
    path: Path,
    variable: str | None,
    image_shape: tuple[int, int] | None,
    max_pixels: int,
    value_range: ValueRange | None,
) -> tuple[Stack, ValueRange | None]:
    """Return the images of an array file in [0, 1], their labels and how they were read, and their range of values."""
    _check_array_file(path)
    stack = read_stack(path, max_pixels=max_pixels, variable=variable, image_shape=image_shape)
    images, value_range = to_unit_interval(stack.images, value_range)
    return Stack(images, stack.target, f", {stack.note}"), value_range


def _check_array_file(path: Path) -> None:
    if path.suffix.lower() not in ARRAY_SUFFIXES:
        known = ", ".join(sorted(PICTURE_SUFFIXES | ARRAY_SUFFIXES))
        raise ValueError(f"{path.name!r} is a kind of file that cannot be read; give a folder or one of {known}")


def _check_collection(name: str) -> None:
    from tubal.datasets.fetchers import COLLECTIONS

    known = ["digits", *COLLECTIONS]
    if name.lower() not in known:
        raise FileNotFoundError(_not_found(name, known))


def _read_collection(name: str) -> Stack:
    """Return the images and labels of a collection, and a few words on where they come from."""
    from tubal.datasets.fetchers import fetch

    _check_collection(name)
    fetched = fetch(name.lower())
    return Stack(fetched.images, fetched.target, f" of the collection {name.lower()!r}")


def _not_found(name: str, known: Sequence[str]) -> str:
    if os.sep in name or Path(name).suffix:
        return f"there is no file or folder {name!r}; check the path"
    close = difflib.get_close_matches(name.lower(), known, n=1)
    guess = f"did you mean {close[0]!r}?" if close else f"the collections are {', '.join(known)}"
    return f"there is no folder {name!r} and no collection of that name; {guess}"


def _resize_stack(images: Pixels, frame: Frame, n_threads: int | None, progress: ProgressCallback | None) -> Pixels:
    """Bring a stack to the shape of the frame; a stack that has it already is only made contiguous."""
    if images.shape[1:] == frame.shape and not frame.cut:
        return np.ascontiguousarray(images, dtype=np.float32)
    resized = np.empty((len(images), *frame.shape), dtype=np.float32)

    def resize(index: int) -> None:
        resized[index] = resize_array(images[index], frame)

    map_in_threads(resize, range(len(images)), n_threads, progress)
    return resized


def _describe_resizing(before: Sequence[int], frame: Frame) -> str:
    after = (frame.height, frame.width)
    how = f"all {shape_text(after)} already"
    if frame.cut:
        how = f"cut to their content and resized to {shape_text(after)}"
    elif tuple(before) != after:
        how = f"resized from {shape_text(before)} to {shape_text(after)}"
    return f"{how}, in {'colour' if frame.in_color else 'grey'}"
