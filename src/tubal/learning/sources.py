"""Images that come in chunks, from memory, from disk or from a function that yields batches.

A source gives the same chunks as often as it is asked. What can only be read once is spooled to disk first.
"""

from __future__ import annotations

import inspect
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, is_torch
from tubal.graph.chunked import RowFile
from tubal.graph.neighbors import as_float_stack

_IMAGE_DIMENSIONS = (2, 3, 4)


class Source(Protocol):
    """A collection of images in chunks that can be read again and again."""

    sizes: list[int]
    image_shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def chunk(self, index: int) -> NDArray[Any]:
        """Return chunk ``index``, floating, finite, of shape ``(sizes[index], *image_shape)``."""


def is_source(images: Any) -> bool:
    """Tell whether ``images`` must be read piece by piece: a dataset on disk, a function or an iterator.

    >>> is_source(np.zeros((2, 3))), is_source([[1.0, 2.0]]), is_source(iter([])), is_source(lambda: iter([]))
    (False, False, True, True)
    """
    if is_torch(images) or isinstance(images, (np.ndarray, list, tuple, str, bytes)):
        return False
    if hasattr(images, "__array__") and not hasattr(images, "chunks"):
        return False
    sliceable = all(hasattr(images, name) for name in ("shape", "dtype", "__getitem__"))
    on_disk = sliceable and hasattr(images, "chunks") and not hasattr(images, "dask")
    return on_disk or isinstance(images, Iterator) or (callable(images) and not isinstance(images, type))


def as_source(images: Any, chunk_size: int | None = None, folder: str | os.PathLike[str] | None = None) -> Source:
    """Return ``images`` as a source: arrays of any kind are sliced, functions called, iterators spooled.

    ``chunk_size`` is how many images to hold at a time; batches of a function keep their own size.

    >>> as_source(np.zeros((5, 2, 2)), 2).sizes
    [2, 2, 1]
    """
    if isinstance(images, Iterator):
        return spool(images, folder, chunk_size)
    if callable(images):
        return Batches(images)
    return Slices(images, chunk_size)


class Slices:
    """An array, a memory map, an HDF5 dataset or a Zarr array, read ``chunk_size`` images at a time."""

    def __init__(self, images: Any, chunk_size: int | None = None) -> None:
        shape = tuple(int(extent) for extent in images.shape)
        if len(shape) not in _IMAGE_DIMENSIONS or 0 in shape:
            raise ValueError(
                f"images have shape {shape}; (n, height, width), (n, height, width, channels) or (n, features) with "
                "at least one image is wanted"
            )
        self.images, self.image_shape = images, shape[1:]
        step = shape[0] if chunk_size is None else _checked_size(chunk_size)
        self.starts = list(range(0, shape[0], step))
        self.sizes = [min(step, shape[0] - start) for start in self.starts]
        self.dtype = as_float_stack(np.asarray(images[:1])).dtype

    def chunk(self, index: int) -> NDArray[Any]:
        """Read one slice and check it."""
        start, size = self.starts[index], self.sizes[index]
        found = as_float_stack(np.asarray(self.images[start : start + size]))
        return _as_promised(found, (size, *self.image_shape), index)


class Batches:
    """A function that returns a fresh iterator over the same batches each time; batches are the chunks."""

    def __init__(self, factory: Callable[[], Iterable[Any]]) -> None:
        if any(_is_required(parameter) for parameter in _parameters(factory)):
            raise TypeError("a function of batches must need no arguments; wrap it in functools.partial")
        self.factory = factory
        self.sizes, self.dtype = [], np.dtype(np.float32)
        self.image_shape: tuple[int, ...] = ()
        for index, batch in enumerate(self._fresh()):
            found = as_float_stack(batch)
            self.image_shape = self.image_shape or found.shape[1:]
            _as_promised(found, (len(found), *self.image_shape), index)
            self.sizes.append(len(found))
            self.dtype = np.promote_types(self.dtype, found.dtype)
        if not self.sizes:
            raise ValueError("the function of batches yielded nothing; at least one image is wanted")
        self._place = 0
        self._running: Iterator[Any] = iter(())

    def chunk(self, index: int) -> NDArray[Any]:
        """Read on to one batch, from the beginning if it has passed."""
        if index < self._place or self._place == 0:
            self._place, self._running = 0, self._fresh()
        for batch in self._running:
            self._place += 1
            if self._place == index + 1:
                found = as_float_stack(batch).astype(self.dtype, copy=False)
                return _as_promised(found, (self.sizes[index], *self.image_shape), index)
        raise ValueError(
            f"the function yielded {self._place} batches where it yielded {len(self.sizes)} the first time; it must "
            "return a fresh iterator over the same batches on every call"
        )

    def _fresh(self) -> Iterator[Any]:
        found = self.factory()
        if not isinstance(found, Iterable):
            raise TypeError(f"the function returned a {type(found).__name__}; an iterator of batches is wanted")
        return iter(found)


class Dealt:
    """Images of a file in another order, so that those of a chunk are neighbours."""

    def __init__(self, rows: RowFile, order: NDArray[Any], sizes: list[int]) -> None:
        self.rows, self.order, self.sizes = rows, order, sizes
        self.image_shape, self.dtype = rows.shape[1:], rows.dtype
        self.bounds = np.cumsum([0, *sizes])

    def chunk(self, index: int) -> NDArray[Any]:
        """Read the images of one chunk."""
        found = self.rows.take(self.order[self.bounds[index] : self.bounds[index + 1]])
        return found.reshape(-1, *self.image_shape)


def spool(
    batches: Iterable[Any], folder: str | os.PathLike[str] | None = None, chunk_size: int | None = None
) -> Slices:
    """Write batches that can be read only once to a file, and return it as a source.

    The file lies in ``folder`` (the system's place for temporary files without it) and goes with the source.
    """
    stream = tempfile.NamedTemporaryFile(prefix="tubal-", suffix=".images", dir=folder, delete=False)  # noqa: SIM115
    try:
        with stream:
            shape, dtype, count = _write_batches(batches, stream)
        images = np.memmap(stream.name, dtype, "r", shape=(count, *shape))
        source = Slices(images, chunk_size)
    except BaseException:
        Path(stream.name).unlink(missing_ok=True)
        raise
    weakref.finalize(source, Path(stream.name).unlink, missing_ok=True)
    return source


def _write_batches(batches: Iterable[Any], stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    shape: tuple[int, ...] = ()
    dtype, count = np.dtype(np.float32), 0
    for index, batch in enumerate(batches):
        found = as_float_stack(batch)
        if index == 0:
            shape, dtype = found.shape[1:], found.dtype
        _as_promised(found, (len(found), *shape), index)
        if np.promote_types(found.dtype, dtype) != dtype:
            raise ValueError(
                f"batch {index} holds {found.dtype} after batches of {dtype}; convert all batches to one type"
            )
        try:
            stream.write(np.ascontiguousarray(found, dtype).data)
        except OSError as error:
            raise OSError(
                error.errno, f"cannot spool the images to {stream.name!r}: {error.strerror}; name another folder"
            ) from error
        count += len(found)
    if count == 0:
        raise ValueError("the iterator yielded nothing; at least one image is wanted")
    return shape, dtype, count


class ChunkedImages:
    """A source and a graph as the collection that learning alternates over.

    ``prepare`` turns a chunk of the source into a tensor, samples last; ``laplacian_matrix`` (n, n) ties all images,
    in the order of the source. ``order`` says which image of the user's each of them is, if not the same one.
    """

    def __init__(
        self, source: Source, prepare: Callable[[NDArray[Any]], Array], laplacian_matrix: Any = None,
        order: NDArray[Any] | None = None,
    ) -> None:  # fmt: skip
        self.source, self.prepare, self.matrix, self.order = source, prepare, laplacian_matrix, order
        self.bounds = np.cumsum([0, *source.sizes])
        self.n_chunks = len(source.sizes)

    def data(self, index: int) -> Array:
        """Return a chunk as a tensor."""
        return self.prepare(self.source.chunk(index))

    def laplacian(self, index: int) -> Any:
        """Return the Laplacian within a chunk, with all degrees."""
        if self.matrix is None:
            return None
        start, stop = self.bounds[index], self.bounds[index + 1]
        return self.matrix[start:stop, start:stop]

    def neighbor_sum(self, index: int, store: Any, others: range) -> Array | None:
        """Return the weighted sum of the codes of neighbours in the chunks ``others``."""
        if self.matrix is None or len(others) == 0:
            return None
        rows = self.matrix[self.bounds[index] : self.bounds[index + 1]].tocsc()
        return neighbor_sum(rows, self.bounds, others, store.gather)

    def take(self, indices: NDArray[Any]) -> Array:
        """Return some images, in the order asked for, as a tensor; every chunk is read at most once."""
        homes = np.searchsorted(self.bounds, indices, side="right") - 1
        found: Any = None
        for home in np.unique(homes):
            wanted = np.flatnonzero(homes == home)
            part = self.prepare(self.source.chunk(int(home))[indices[wanted] - self.bounds[home]])
            if found is None:
                found = np.empty((*part.shape[:-1], len(indices)), part.dtype)
            found[..., wanted] = part
        return found


# Neighbours are fetched this many at a time: far fewer than a chunk, so that they do not count.
_FETCH = 256


def neighbor_sum(
    rows: Any, bounds: NDArray[Any], others: Iterable[int], gather: Callable[[int, NDArray[Any]], Array | None]
) -> Array | None:
    """Return ``sum_j weight_ij codes_j`` over images j in the chunks ``others``, or None if no edge leads there.

    ``rows`` holds the rows i of the Laplacian as CSC (n_rows, n); weights are minus its entries.
    """
    total: Any = None
    for other in others:
        start, stop = int(bounds[other]), int(bounds[other + 1])
        columns = start + np.flatnonzero(np.diff(rows.indptr[start : stop + 1]))
        for first in range(0, len(columns), _FETCH):
            piece = columns[first : first + _FETCH]
            codes = gather(other, piece - start)
            if codes is None:
                break
            if total is None:
                total = np.zeros((*codes.shape[:-1], rows.shape[0]), codes.dtype)
            edges = rows[:, piece].tocsr()
            touched = np.flatnonzero(np.diff(edges.indptr))
            flat = codes.reshape(-1, len(piece))
            product = (edges[touched] @ flat.T).T.astype(codes.dtype, copy=False)
            total.reshape(-1, rows.shape[0])[:, touched] -= product
    return total


def _checked_size(chunk_size: Any) -> int:
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, (int, np.integer)) or chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size!r}; a positive number of images is wanted")
    return int(chunk_size)


def _as_promised(found: NDArray[Any], shape: tuple[int, ...], index: int) -> NDArray[Any]:
    if found.shape != shape:
        raise ValueError(
            f"batch {index} has shape {found.shape} where {shape} was promised; every pass must yield the same batches"
        )
    return found


def _parameters(factory: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return ()


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic
