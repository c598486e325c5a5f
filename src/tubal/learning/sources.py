"""Images that are read in chunks: from memory, from disk, or from a function that yields batches.

A source returns the same chunks however often it is read. What can be read only once is copied to a file first.
"""

from __future__ import annotations

import inspect
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tubal.graph.chunked import RowFile
from tubal.graph.neighbors import as_float_stack

PathLike: TypeAlias = str | os.PathLike[str]
_IMAGE_DIMENSIONS = (2, 3, 4)


class Source(Protocol):
    """A collection of images in chunks that can be read again and again."""

    sizes: list[int]
    image_shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def chunk(self, index: int) -> NDArray[Any]:
        """Return chunk ``index``: floating point, finite, of shape ``(sizes[index], *image_shape)``."""


class ArrayOnDisk(Protocol):
    """What a memory map, an HDF5 dataset and a Zarr array have in common with an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of images, then the shape of one."""

    def __getitem__(self, key: slice, /) -> Any:
        """Return some images."""


Batches: TypeAlias = Iterable[ArrayLike]
ImageSource: TypeAlias = ArrayOnDisk | Callable[[], Batches] | Iterator[ArrayLike] | ArrayLike


def as_source(images: ImageSource, chunk_size: int | None = None, folder: PathLike | None = None) -> Source:
    """Return ``images`` as a source: arrays are sliced, functions are called, iterators are copied to a file.

    ``chunk_size`` is how many images to hold at a time; batches of a function keep their own size. ``folder`` is where
    the file of an iterator is written.

    >>> as_source(np.zeros((5, 2, 2)), 2).sizes
    [2, 2, 1]
    """
    if isinstance(images, Iterator):
        return copy_to_file(images, folder, chunk_size)
    if callable(images):
        return BatchSource(images)
    array: Any = images if hasattr(images, "shape") else np.asarray(images)
    return SlicedSource(array, chunk_size)


class SlicedSource:
    """An array, a memory map, an HDF5 dataset or a Zarr array, read ``chunk_size`` images at a time."""

    def __init__(self, images: ArrayOnDisk, chunk_size: int | None = None) -> None:
        shape = tuple(int(extent) for extent in images.shape)
        if len(shape) not in _IMAGE_DIMENSIONS or 0 in shape:
            raise ValueError(
                f"images have shape {shape}; (n, height, width), (n, height, width, channels) or (n, features) with "
                "at least one image is wanted"
            )
        self.images, self.image_shape = images, shape[1:]
        step = shape[0] if chunk_size is None else _check_chunk_size(chunk_size)
        self.starts = list(range(0, shape[0], step))
        self.sizes = [min(step, shape[0] - start) for start in self.starts]
        self.dtype = as_float_stack(np.asarray(images[:1])).dtype

    def chunk(self, index: int) -> NDArray[Any]:
        """Read one slice and check it."""
        start, size = self.starts[index], self.sizes[index]
        found = as_float_stack(np.asarray(self.images[start : start + size]))
        return _check_shape(found, (size, *self.image_shape), index)


class BatchSource:
    """A function that returns a fresh iterator over the same batches each time; its batches are the chunks."""

    def __init__(self, factory: Callable[[], Batches]) -> None:
        if any(_is_required(parameter) for parameter in _parameters(factory)):
            raise TypeError("a function of batches must need no arguments; wrap it in functools.partial")
        self.factory = factory
        self.sizes, self.dtype = [], np.dtype(np.float32)
        self.image_shape: tuple[int, ...] = ()
        for index, batch in enumerate(self._restart()):
            found = as_float_stack(batch)
            self.image_shape = self.image_shape or found.shape[1:]
            _check_shape(found, (len(found), *self.image_shape), index)
            self.sizes.append(len(found))
            self.dtype = np.promote_types(self.dtype, found.dtype)
        if not self.sizes:
            raise ValueError("the function of batches yielded nothing; at least one image is wanted")
        self._n_read = 0
        self._running: Iterator[ArrayLike] = iter(())

    def chunk(self, index: int) -> NDArray[Any]:
        """Read on to one batch, from the beginning if it has already been read past."""
        if index < self._n_read or self._n_read == 0:
            self._n_read, self._running = 0, self._restart()
        for batch in self._running:
            self._n_read += 1
            if self._n_read == index + 1:
                found = as_float_stack(batch).astype(self.dtype, copy=False)
                return _check_shape(found, (self.sizes[index], *self.image_shape), index)
        raise ValueError(
            f"the function yielded {self._n_read} batches where it yielded {len(self.sizes)} the first time; it must "
            "return a fresh iterator over the same batches on every call"
        )

    def _restart(self) -> Iterator[ArrayLike]:
        found = self.factory()
        if not isinstance(found, Iterable):
            raise TypeError(f"the function returned a {type(found).__name__}; an iterator of batches is wanted")
        return iter(found)


class ReorderedSource:
    """Images of a file in another order, so that neighbours lie in the same chunk."""

    def __init__(self, rows: RowFile, order: NDArray[np.intp], sizes: list[int]) -> None:
        self.rows, self.order, self.sizes = rows, order, sizes
        self.image_shape, self.dtype = rows.shape[1:], rows.dtype
        self.bounds = np.cumsum([0, *sizes])

    def chunk(self, index: int) -> NDArray[Any]:
        """Read the images of one chunk."""
        found = self.rows.take(self.order[self.bounds[index] : self.bounds[index + 1]])
        return found.reshape(-1, *self.image_shape)


def copy_to_file(batches: Batches, folder: PathLike | None = None, chunk_size: int | None = None) -> SlicedSource:
    """Copy batches that can be read only once to a file, and return the file as a source.

    The file lies in ``folder``, by default the system's folder for temporary files, and is removed with the source.
    """
    stream = tempfile.NamedTemporaryFile(prefix="tubal-", suffix=".images", dir=folder, delete=False)  # noqa: SIM115
    try:
        with stream:
            shape, dtype, count = _write_batches(batches, stream)
        images = np.memmap(stream.name, dtype, "r", shape=(count, *shape))
        source = SlicedSource(images, chunk_size)
    except BaseException:
        Path(stream.name).unlink(missing_ok=True)
        raise
    weakref.finalize(source, Path(stream.name).unlink, missing_ok=True)
    return source


def _write_batches(batches: Batches, stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Write batches one after the other; return the shape and type of an image, and how many there are."""
    shape: tuple[int, ...] = ()
    dtype, count = np.dtype(np.float32), 0
    for index, batch in enumerate(batches):
        found = as_float_stack(batch)
        if index == 0:
            shape, dtype = found.shape[1:], found.dtype
        _check_shape(found, (len(found), *shape), index)
        if np.promote_types(found.dtype, dtype) != dtype:
            raise ValueError(
                f"batch {index} holds {found.dtype} after batches of {dtype}; convert all batches to one type"
            )
        try:
            stream.write(np.ascontiguousarray(found, dtype).data)
        except OSError as error:
            raise OSError(
                error.errno, f"cannot copy the images to {stream.name!r}: {error.strerror}; name another folder"
            ) from error
        count += len(found)
    if count == 0:
        raise ValueError("the iterator yielded nothing; at least one image is wanted")
    return shape, dtype, count


def _check_chunk_size(chunk_size: object) -> int:
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, (int, np.integer)) or chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size!r}; a positive number of images is wanted")
    return int(chunk_size)


def _check_shape(found: NDArray[Any], shape: tuple[int, ...], index: int) -> NDArray[Any]:
    if found.shape != shape:
        raise ValueError(
            f"batch {index} has shape {found.shape} where {shape} was promised; every pass must yield the same batches"
        )
    return found


def _parameters(factory: Callable[..., object]) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return ()


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic
