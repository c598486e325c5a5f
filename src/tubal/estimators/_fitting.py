"""How an estimator is fitted: in memory where that fits, else a chunk at a time; interrupted and taken up again."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from tubal.backends.arrays import Array, is_torch, to_numpy
from tubal.estimators._base import patient, scale_images
from tubal.estimators._validation import as_stack, check_images
from tubal.graph import laplacian
from tubal.graph.chunked import RowFile, order_along_graph
from tubal.learning.alternation import InMemory, MemoryStore, Weights, forget, initial_state, learn
from tubal.learning.checkpoints import Checkpoint, as_checkpoint
from tubal.learning.disk_store import DiskStore
from tubal.learning.memory import SHARE, available_memory, chunk_size_for, fit_need
from tubal.learning.sources import ChunkedImages, Dealt, Slices, as_source, is_source
from tubal.storage.models import Encoder

# Images of a source are read this many at a time until it is known how many fit.
FIRST_READ = 256
# Codes of a fit in chunks stay in memory where they take no more than this share of what is free.
CODES_SHARE = 0.25


def fit_coder(coder: Any, X: Any, *, chunk_size: int | None, folder: Any, checkpoint: Any) -> Any:
    """Fit ``coder`` on images in memory or on a source of chunks."""
    checkpoint = as_checkpoint(checkpoint)
    if chunk_size is None and not is_source(X) and not _is_huge(X):
        collection, data, state = _open_whole(coder, X)
    else:
        collection, data, state = _open_chunks(coder, X, chunk_size, folder)
    weights = Weights(coder.sparsity, coder._graph_weight())
    named = {} if checkpoint is None else fingerprint(coder, collection)
    found = None if checkpoint is None else checkpoint.load(named, data)
    if found is None:
        store = _new_store(coder, collection, state, folder, checkpoint)
    else:
        state, store = found
    code_solver, dictionary_solver = coder._solvers()
    state = learn(
        coder._model(), collection, state, weights, code_solver=code_solver, dictionary_solver=dictionary_solver,
        final_solver=patient(code_solver), max_iter=coder.max_iter, tol=coder.tol, store=store,
        callbacks=coder._callbacks(), keep=forget if checkpoint is None else checkpoint.keeper(named),
    )  # fmt: skip
    coder._keep(state, _all_codes(store, collection, folder, checkpoint))
    return coder


def _is_huge(X: Any) -> bool:
    """Tell whether an array's images alone, as numbers to compute with, would fill the memory there is."""
    return isinstance(X, np.ndarray) and X.ndim > 1 and 16.0 * X.size > SHARE * available_memory()


# --- images in memory ----------------------------------------------------------------------------------------
def _open_whole(coder: Any, X: Any) -> tuple[Any, Array, Any]:
    images = check_images(coder, X, coder.image_shape, reset=True)
    coder._check_parameters()
    random = check_random_state(coder.random_state)
    scaled, coder.scale_factor_ = scale_images(images, coder.scale, None)
    coder._layout_ = coder._layout(coder.image_shape_)
    data = coder._layout_.to_tensor(scaled)
    _, matrix = coder._graph_terms(scaled)
    state = initial_state(coder._initial_dictionary(data, random), coder._model())
    size = len(images) if is_torch(images) else _affordable(coder, state.dictionary, data)
    if size == len(images):
        return InMemory(data, matrix), data, state
    collection = ChunkedImages(Slices(scaled, size), coder._layout_.to_tensor, matrix)
    return collection, data[..., :1], state


def _affordable(coder: Any, dictionary: Any, data: Array) -> int:
    """Return how many images may be coded at a time."""
    problem = coder._model().coding(dictionary, data[..., :1], sparsity=coder.sparsity)
    pixels, codes = (int(np.prod(shape[:-1])) for shape in (data.shape, problem.codes_shape))
    atom_values = int(sum(np.prod(part.shape) for part in _parts(dictionary)))
    need = fit_need(
        pixels=pixels,
        codes=codes,
        atom_values=atom_values,
        itemsize=data.dtype.itemsize,
        n_tied=data.shape[-1] if coder._graph_weight() > 0 else 0,
    )
    return chunk_size_for(need, data.shape[-1])


def _parts(dictionary: Any) -> tuple[Any, ...]:
    return tuple(dictionary) if isinstance(dictionary, (tuple, list)) else (dictionary,)


# --- images in chunks ----------------------------------------------------------------------------------------
class LazyTensor:
    """The tensor of all images, of which only what is asked for is read: its shape, and some samples."""

    def __init__(self, collection: ChunkedImages) -> None:
        self.collection = collection
        first = collection.take(np.array([0]))
        self.shape, self.dtype = (*first.shape[:-1], int(collection.bounds[-1])), first.dtype
        self.ndim = len(self.shape)

    def __getitem__(self, key: Any) -> Array:
        samples = key[-1] if isinstance(key, tuple) else key
        return self.collection.take(np.atleast_1d(np.arange(self.shape[-1])[samples]))


def _open_chunks(coder: Any, X: Any, chunk_size: int | None, folder: Any) -> tuple[Any, Array, Any]:
    if is_torch(X):
        raise ValueError("a tensor is fitted whole; pass a NumPy array, or leave chunk_size out")
    X = X if is_source(X) or hasattr(X, "shape") else np.asarray(X)
    source = as_source(X, FIRST_READ if chunk_size is None else chunk_size, folder)
    first = as_stack(source.chunk(0)[:1], coder.image_shape)
    coder.image_shape_ = tuple(int(extent) for extent in first.shape[1:])
    coder.n_features_in_ = int(np.prod(coder.image_shape_))
    coder._check_parameters()
    random = check_random_state(coder.random_state)
    coder._layout_ = coder._layout(coder.image_shape_)
    coder.scale_factor_ = _largest_pixel(source) or 1.0 if coder.scale == "max" else 1.0

    def prepare(chunk: NDArray[Any]) -> Array:
        stack = as_stack(chunk, coder.image_shape)
        return coder._layout_.to_tensor(scale_images(stack, coder.scale, coder.scale_factor_)[0])

    collection = ChunkedImages(source, prepare)
    data = LazyTensor(collection)
    state = initial_state(coder._initial_dictionary(data, random), coder._model())
    if chunk_size is None and isinstance(source, Slices):
        collection = ChunkedImages(Slices(source.images, _affordable(coder, state.dictionary, data)), prepare)
    return _along_graph(coder, collection, folder), data[..., :1], state


def _along_graph(coder: Any, collection: ChunkedImages, folder: Any) -> ChunkedImages:
    """Return the collection with its graph, images dealt into chunks so that few edges leave one."""
    if not hasattr(coder, "graph"):
        return collection
    layout, sizes = coder._layout_, collection.source.sizes
    blocks = (layout.to_images(collection.data(index)) for index in range(collection.n_chunks))
    rows = RowFile.spool(blocks, None if folder is None else _made(folder))
    graph = coder._chunk_graph(rows)
    if coder._graph_weight() == 0:
        return collection
    order = order_along_graph(graph.adjacency, sizes)
    matrix = laplacian(graph)[order][:, order]
    return ChunkedImages(Dealt(rows, order, sizes), layout.to_tensor, matrix, order)


def _largest_pixel(source: Any) -> float:
    return max(float(abs(source.chunk(index)).max()) for index in range(len(source.sizes)))


# --- codes ---------------------------------------------------------------------------------------------------
def _new_store(coder: Any, collection: Any, state: Any, folder: Any, checkpoint: Checkpoint | None) -> Any:
    """Return where codes are kept: in memory where they fit, else on disk."""
    if collection.n_chunks == 1:
        return MemoryStore()
    n_images, one = int(collection.bounds[-1]), collection.take(np.array([0]))
    codes = coder._model().coding(state.dictionary, one, sparsity=coder.sparsity).codes_shape
    total = 2 * n_images * int(np.prod(codes)) * one.dtype.itemsize
    if folder is None and total <= CODES_SHARE * available_memory():
        return MemoryStore()
    if checkpoint is not None:
        return DiskStore(checkpoint.codes_folder)
    return DiskStore(None if folder is None else tempfile.mkdtemp(prefix="codes-", dir=_made(folder)))


def _all_codes(store: Any, collection: Any, folder: Any, checkpoint: Checkpoint | None) -> Array:
    """Return all codes in the user's order, samples last: in memory where they fit, else mapped from a file."""
    order = getattr(collection, "order", None)
    if not isinstance(store, DiskStore):
        codes = store.collect()
        return codes if order is None else codes[..., np.argsort(order)]
    if store.total_bytes <= CODES_SHARE * available_memory():
        codes = store.collect(None, order)
    else:
        home = tempfile.mkdtemp(prefix="tubal-") if folder is None else _made(folder)
        codes = store.collect(Path(home) / "codes.npy", order)
    if checkpoint is None:
        store.discard()
    return codes


def _made(folder: Any) -> Path:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)


# --- which fit is this ---------------------------------------------------------------------------------------
def fingerprint(coder: Any, collection: Any) -> dict[str, str]:
    """Say in a few words which fit this is: model, parameters, images. Equal words, equal fit."""
    found = {"model": type(coder).__name__, "images": _images_digest(collection)}
    for name, value in coder.get_params(deep=False).items():
        if name in ("callbacks", "verbose") or isinstance(value, np.random.RandomState):
            continue
        encoder = Encoder()
        text = json.dumps(encoder.encode(value, name))
        digest = hashlib.sha256(text.encode())
        for array in encoder.arrays.values():
            digest.update(np.ascontiguousarray(array).data)
        found[name] = text if not encoder.arrays and len(text) < 80 else digest.hexdigest()
    return found


def _images_digest(collection: Any) -> str:
    """Digest images in memory whole, of a source its first and last chunk; both with their shape."""
    if isinstance(collection, ChunkedImages):
        parts = [collection.source.chunk(index) for index in (0, collection.n_chunks - 1)]
        shape = [*collection.source.sizes, *collection.source.image_shape]
    else:
        parts, shape = [to_numpy(collection.images)], list(collection.images.shape)
    digest = hashlib.sha256(repr(shape).encode())
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
