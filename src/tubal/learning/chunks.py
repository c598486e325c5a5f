"""Fits on images that are read a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, SparseMatrix, is_torch
from tubal.graph import Graph, laplacian, resolve_graph
from tubal.graph.chunked import RowFile, chunked_knn_graph, order_along_graph
from tubal.learning.alternation import Collection, Indices, digest_arrays
from tubal.learning.fitting import (
    GraphSettings,
    PathLike,
    PreparedFit,
    Recipe,
    affordable_images,
    make_folder,
    run,
    scale_images,
)
from tubal.learning.sources import ImageSource, ReorderedSource, SlicedSource, Source, as_source
from tubal.problems.layout import Layout

if TYPE_CHECKING:
    from tubal.learning.checkpoints import Checkpoint

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
        """Return a digest of the first and the last chunk and of all shapes; reading everything would take long."""
        ends = (self.source.chunk(index) for index in (0, self.n_chunks - 1))
        return digest_arrays([*self.source.sizes, *self.source.image_shape], ends)


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

    ``images`` is anything that :func:`~tubal.learning.sources.as_source` accepts. Without ``chunk_size``, a chunk
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
    return run(recipe, prepared, folder=folder, checkpoint=checkpoint)


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
