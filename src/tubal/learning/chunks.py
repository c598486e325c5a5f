"""Images that are read in chunks, from memory, from disk or from a function, and fits and streams that read them so.

A source returns the same chunks however often it is read. What can be read only once is copied to a file first.
"""

from __future__ import annotations

import hashlib
import inspect
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tubal.backends.arrays import Array, SparseMatrix, is_torch, own_threads, to_numpy
from tubal.graph import Graph, laplacian
from tubal.graph.build import RowFile, chunked_knn_graph, order_along_graph
from tubal.graph.neighbors import as_float_stack
from tubal.learning.alternation import (
    Collection,
    Indices,
    InMemory,
    LearningState,
    MemoryStore,
    PassTotals,
    Weights,
    code_chunk,
    dictionary_pass,
    reseed,
)
from tubal.learning.fitting import (
    GraphSettings,
    PathLike,
    PreparedFit,
    Recipe,
    affordable_images,
    fitted_attributes,
    make_folder,
    resolve_graph,
    run_fit,
    scale_images,
)
from tubal.problems.base import Statistics
from tubal.problems.layout import Layout

if TYPE_CHECKING:
    from tubal.learning.checkpoints import Checkpoint

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
        return _check_batch_shape(found, (size, *self.image_shape), index)


class BatchSource:
    """A function that returns a fresh iterator over the same batches each time; its batches are the chunks."""

    def __init__(self, factory: Callable[[], Batches]) -> None:
        if any(_is_required(parameter) for parameter in _signature_parameters(factory)):
            raise TypeError("a function of batches must need no arguments; wrap it in functools.partial")
        self.factory = factory
        self.sizes, self.dtype = [], np.dtype(np.float32)
        self.image_shape: tuple[int, ...] = ()
        for index, batch in enumerate(self._restart()):
            found = as_float_stack(batch)
            self.image_shape = self.image_shape or found.shape[1:]
            _check_batch_shape(found, (len(found), *self.image_shape), index)
            self.sizes.append(len(found))
            self.dtype = np.promote_types(self.dtype, found.dtype)
        if not self.sizes:
            raise ValueError("the function of batches yielded nothing; at least one image is wanted")
        self._n_read = 0
        self._running: Iterator[ArrayLike] = iter(())

    def chunk(self, index: int) -> NDArray[Any]:
        """Return one batch; if it has already been passed, read the batches again from the beginning."""
        if index < self._n_read or self._n_read == 0:
            self._n_read, self._running = 0, self._restart()
        for batch in self._running:
            self._n_read += 1
            if self._n_read == index + 1:
                found = as_float_stack(batch).astype(self.dtype, copy=False)
                return _check_batch_shape(found, (self.sizes[index], *self.image_shape), index)
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
    """Write batches one after the other; return the shape and type of an image, and the number of images."""
    shape: tuple[int, ...] = ()
    dtype, count = np.dtype(np.float32), 0
    for index, batch in enumerate(batches):
        found = as_float_stack(batch)
        if index == 0:
            shape, dtype = found.shape[1:], found.dtype
        _check_batch_shape(found, (len(found), *shape), index)
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


def _check_batch_shape(found: NDArray[Any], shape: tuple[int, ...], index: int) -> NDArray[Any]:
    if found.shape != shape:
        raise ValueError(
            f"batch {index} has shape {found.shape} where {shape} was expected; every pass must yield the same batches"
        )
    return found


def _signature_parameters(factory: Callable[..., object]) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return ()


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic


# --- fits in chunks -----------------------------------------------------------------------------------------
# Images of a source are read this many at a time until it is known how many fit in memory.
FIRST_READ = 256


class ChunkedImages(Collection):
    """Images of a source, joined by a graph or not.

    ``prepare`` turns a chunk of the source into a tensor, samples last. ``matrix`` (n, n) is the Laplacian of all
    images, in the order of the source.
    """

    def __init__(
        self, source: Source, prepare: Callable[[NDArray[Any]], Array], matrix: SparseMatrix | None = None
    ) -> None:
        super().__init__(source.sizes, matrix)
        self.source, self.prepare = source, prepare

    def data(self, index: int) -> Array:
        """Read a chunk and return it as a tensor."""
        return self.prepare(self.source.chunk(index))

    def take(self, indices: Indices) -> Array:
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

    def digest(self) -> str:
        """Return two digests, made in one pass: of the first and the last chunk, and of all images.

        Checkpoints of earlier versions hold the first one only.
        """
        head = repr([*self.source.sizes, *self.source.image_shape]).encode()
        ends, everything = hashlib.sha256(head), hashlib.blake2b(head, digest_size=32)
        for index in range(self.n_chunks):
            block = np.ascontiguousarray(self.source.chunk(index)).data
            everything.update(block)
            for _ in range((index == 0) + (index == self.n_chunks - 1)):
                ends.update(block)
        return f"{ends.hexdigest()}:{everything.hexdigest()}"


class LazyTensor:
    """The tensor of all images, samples last, of which only the samples asked for are read.

    ``take`` returns the images of some indices as a tensor. It has as much of an array as initial dictionaries need.
    """

    def __init__(self, take: Callable[[Indices], Array], n_images: int) -> None:
        first = take(np.array([0]))
        self.take = take
        self.shape, self.dtype, self.ndim = (*first.shape[:-1], n_images), first.dtype, first.ndim

    def __getitem__(self, key: slice | Indices | tuple[object, ...]) -> Array:
        samples: Any = key[-1] if isinstance(key, tuple) else key
        return self.take(np.atleast_1d(np.arange(self.shape[-1])[samples]))


def fit_in_chunks(
    recipe: Recipe, images: ImageSource, *, chunk_size: int | None = None, folder: PathLike | None = None,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Fit on images that are read a chunk at a time; return the fitted attributes.

    ``images`` is anything that :func:`~tubal.learning.chunks.as_source` accepts. Without ``chunk_size``, a chunk
    holds as many images as fit in memory. Files are written to ``folder``, by default a temporary one.
    """
    if is_torch(images):
        raise ValueError("a tensor is fitted whole; pass a NumPy array, or leave chunk_size out")
    source = as_source(images, FIRST_READ if chunk_size is None else chunk_size, folder)
    shape = tuple(int(extent) for extent in recipe.as_stack(source.chunk(0)[:1]).shape[1:])
    layout = recipe.layout(shape)
    factor = _largest_pixel(source) or 1.0 if recipe.scale == "max" else 1.0

    def prepare(chunk: NDArray[Any]) -> Array:
        return layout.to_tensor(scale_images(recipe.as_stack(chunk), recipe.scale, factor)[0])

    collection = ChunkedImages(source, prepare)
    data: Any = LazyTensor(collection.take, int(collection.bounds[-1]))
    state = recipe.first_state(data, layout)
    if chunk_size is None and isinstance(source, SlicedSource):
        affordable = affordable_images(recipe, layout, state.dictionary, data)
        collection = ChunkedImages(SlicedSource(source.images, affordable), prepare)
    sample = data[..., :1]
    collection, graph, order = _join_by_graph(recipe.graph, collection, layout, folder)
    prepared = PreparedFit(layout, factor, graph, collection, state, sample, order)
    return run_fit(recipe, prepared, folder=folder, checkpoint=checkpoint)


def _join_by_graph(
    settings: GraphSettings | None, collection: ChunkedImages, layout: Layout, folder: PathLike | None
) -> tuple[ChunkedImages, Graph | None, Indices | None]:
    """Build the graph and reorder the images so that few edges join two chunks.

    Return the new collection, the graph in the user's order, and which of the user's images each image now is.
    """
    if settings is None or not settings.is_built:
        return collection, None, None
    sizes = collection.source.sizes
    blocks = (layout.to_images(collection.data(index)) for index in range(collection.n_chunks))
    rows = RowFile.spool(blocks, None if folder is None else make_folder(folder))
    graph = _graph_of_rows(settings, rows)
    if settings.weight == 0:
        return collection, graph, None
    order = order_along_graph(graph.adjacency, sizes)
    matrix = laplacian(graph)[order][:, order]
    return ChunkedImages(ReorderedSource(rows, order, sizes), layout.to_tensor, matrix), graph, order


def _graph_of_rows(settings: GraphSettings, rows: RowFile) -> Graph:
    """Return the graph of images in a file: as given, or with neighbours found in blocks."""
    n_images = len(rows)
    settings.check_neighbors(n_images)
    name = settings.graph if isinstance(settings.graph, str) else ""
    if name == "deformable":
        raise ValueError(
            f"graph='deformable' needs all {n_images} images in memory and they come in chunks; build it with "
            "deformable_graph() where they fit and pass the Graph, or use graph='euclidean'"
        )
    if name in ("euclidean", "cosine"):
        return chunked_knn_graph(rows, settings.n_neighbors, name)
    return resolve_graph(settings.graph, range(n_images))  # a Graph, a matrix, or an error that names the choices


def _largest_pixel(source: Source) -> float:
    return max(float(abs(source.chunk(index)).max()) for index in range(len(source.sizes)))


# --- batches of a stream ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Stream:
    """What earlier batches of a stream left behind: the fitted state, and the statistics of all images so far."""

    layout: Layout
    scale_factor: float
    state: LearningState
    statistics: Statistics
    n_samples: int


@own_threads()
def learn_batch(recipe: Recipe, images: Array, former: Stream | None, horizon: float | None) -> dict[str, Any]:
    """Code one batch, add its statistics to those of the past, and update the dictionary.

    An image's weight falls by a factor e with every ``horizon`` images after it; None keeps all weights equal. Return
    the fitted attributes; ``codes_`` are those of the batch.
    """
    if horizon is not None and not horizon > 0:
        raise ValueError(f"horizon={horizon!r}; a positive number of images is wanted, or None for equal weights")
    layout = recipe.layout(tuple(int(extent) for extent in images.shape[1:])) if former is None else former.layout
    scaled, factor = scale_images(images, recipe.scale, None if former is None else former.scale_factor)
    data, model = layout.to_tensor(scaled), recipe.model(layout.image_shape)
    if model.n_dictionary_steps != 1:
        raise ValueError(f"{recipe.name} updates several dictionaries in turn, each from all images; use fit instead")
    state = recipe.first_state(data, layout) if former is None else former.state
    coded = code_chunk(model, state.dictionary, data, Weights(recipe.sparsity), recipe.learning_solver)
    totals = PassTotals.of_chunk(0, coded)
    state.objective.append(totals.objective / len(images))
    state.density.append(totals.nonzero / totals.n_codes)
    state.n_iter += 1
    statistics, n_samples = totals.statistics, len(images)
    if former is not None:
        kept = 1.0 if horizon is None else exp(-len(images) / horizon)
        statistics, n_samples = former.statistics.scaled(kept) + statistics, n_samples + former.n_samples
    store, collection = MemoryStore(), InMemory(data)
    store.put(0, coded)
    dictionary_pass(model, state, collection, statistics, recipe.dictionary_solver, store)
    # With the statistics of all batches: an atom is unused only if no batch so far used it.
    n_worst = to_numpy(statistics.usage).size
    totals = replace(totals, statistics=statistics, worst=totals.worst[:n_worst], places=totals.places[:n_worst])
    state.n_reseeded += reseed(model, state, collection, totals)
    attributes = fitted_attributes(recipe, layout, state, coded.codes, None, factor)
    return attributes | {"statistics_": statistics, "n_samples_seen_": n_samples}
