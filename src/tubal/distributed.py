"""The same fits on a Dask cluster: of coders, whose images and codes stay on the workers, and of clusters.

>>> from distributed import Client                                                        # doctest: +SKIP
>>> model = fit(GTSC(n_atoms=45), dask_array, Client("tcp://scheduler:8786"))             # doctest: +SKIP

In one iteration every partition is coded by a task; with a graph by four, between which partitions exchange codes.
Each partition sends one set of statistics, summed in a tree, and the dictionary step is solved here. The new dictionary
is one task, whose result the workers fetch from each other. Tasks are pure functions of their arguments: when a worker
dies, Dask recomputes what it held, and the result is the same.

With a graph all partitions are coded at the same time. An edge (i, j) between partitions is majorised,

    ||b_i - b_j||² <= 2 ||b_i - m||² + 2 ||b_j - m||²,     m the mean of the present b_i and b_j,

with equality at the present codes. The majoriser separates over partitions, and minimising it cannot raise the
objective (Hunter and Lange 2004). No edge is dropped. Images are first reordered along the graph, so that few edges
join two partitions.

>>> clusters = cluster("images.npy", Client("tcp://scheduler:8786"), n_clusters=10)        # doctest: +SKIP

Clusters come from the same steps as in one process. The search for neighbours, which takes most of the time, is a few
tasks for every block of images, see :mod:`tubal.graph.tasks`; the graph is put together and cut here.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import operator
import os
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tubal.backends.arrays import Array, freed_memory_reused, is_torch, to_numpy
from tubal.clustering.affinity import Engine, Finder
from tubal.clustering.clusterer import ImageClusterer
from tubal.estimators.image_coder import ImageCoder
from tubal.estimators.validation import check_parameters, open_if_path
from tubal.graph import Graph, Neighbors, Weighting, laplacian, neighbors
from tubal.graph.build import order_along_graph
from tubal.graph.structure import symmetric_adjacency
from tubal.graph.tasks import TaskSearch
from tubal.learning import fitting
from tubal.learning.alternation import (
    ChunkCodes,
    Collection,
    Indices,
    LearningState,
    PassTotals,
    SaveProgress,
    Weights,
    code_chunk,
    digest_arrays,
    learn,
)
from tubal.learning.checkpoints import Checkpoint, DiskStore, StageReport, as_checkpoint
from tubal.learning.chunks import LazyTensor
from tubal.problems.base import Dictionary, ImageModel
from tubal.problems.layout import Layout
from tubal.problems.linear_map import GraphTerm
from tubal.solvers import CodeSolver

if TYPE_CHECKING:
    import dask.array as da
    from distributed import Client, Future
    from scipy import sparse

__all__ = ["cluster", "connect", "fit"]

Coder = TypeVar("Coder", bound=ImageCoder)
RemoteSource: TypeAlias = "da.Array | Sequence[str | PathLike[str]] | ArrayLike"

# Partitions exchange codes this many times within one coding step with a graph. After each exchange codes start from
# their last movement, continued by this factor.
EXCHANGES = 4
EXTRAPOLATION = 0.9
# A worker that is being started comes within this time.
WORKER_SECONDS = 10.0


class LostSchedulerError(ConnectionError):
    """The connection to the scheduler was lost during a fit."""


class NoWorkerWarning(RuntimeWarning):
    """All workers are lost, and a fit waits for another."""


def connect(scheduler: Client | str | None = None) -> Client:
    """Return a client of a Dask scheduler.

    Parameters
    ----------
    scheduler : distributed.Client, str or None
        A client, which is returned as it is; the address of a scheduler; or None for the client in use.

    Returns
    -------
    distributed.Client
        The client. Without a scheduler, or a worker within ten seconds, a ConnectionError says how to start one.
    """
    try:
        from distributed import Client, get_client
    except ImportError:
        raise ImportError("fitting on a cluster needs Dask; install it: pip install 'tubal[dask]'") from None
    client = scheduler
    try:
        if not isinstance(client, Client):
            client = get_client() if scheduler is None else Client(scheduler, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        which = "in use" if scheduler is None else f"at {scheduler!r}"
        raise ConnectionError(
            f"there is no Dask scheduler {which}; start one with `dask scheduler` and workers with `dask worker`"
        ) from error
    if _has_worker(client):
        return client
    address = client.scheduler.address
    if client is not scheduler and scheduler is not None:
        client.close()
    raise ConnectionError(
        f"the Dask scheduler at {address!r} has no worker, and none came within {WORKER_SECONDS:.0f} seconds; "
        f"start one with `dask worker {address}`"
    )


def _has_worker(client: Client) -> bool:
    """Tell whether the cluster has a worker, or gets one soon."""
    try:
        if not client.nthreads():
            _wanted = client.submit(constant, None, pure=False)  # some clusters start workers only if there are tasks
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except OSError as error:  # if the scheduler is lost, fetching results tells
        return not isinstance(error, TimeoutError)
    return True


def fit(
    model: Coder,
    images: RemoteSource,
    scheduler: Client | str | None = None,
    *,
    n_partitions: int | None = None,
    checkpoint: Checkpoint | str | PathLike[str] | None = None,
    gather: bool = True,
) -> Coder:
    """Fit a coder on a cluster.

    Parameters
    ----------
    model : ImageCoder
        One of tubal's coders, for example ``GTSC()``; it is fitted in place.
    images : dask.array of shape (n, height, width[, channels]), list of files, or array
        The images. Files are read by the workers.
    scheduler : distributed.Client, str or None, default=None
        A client, the address of a scheduler, or None for the client in use.
    n_partitions : int, optional
        Number of partitions that are coded at the same time. By default one per thread of the cluster. Of a list of
        files, each is one partition.
    checkpoint : str, path-like or Checkpoint, optional
        File on this machine to which the state of the fit is saved.
    gather : bool, default=True
        Fetch the codes as ``codes_``. Otherwise ``codes_`` is a ``dask.array`` on the workers, and new images cannot
        be joined to a graph.

    Returns
    -------
    ImageCoder
        The fitted model itself.
    """
    client = connect(scheduler)
    saved = None if checkpoint is None else as_checkpoint(checkpoint)
    if n_partitions is None:
        n_partitions = Cluster(client).n_parallel
    with _lost_scheduler_explained(client, saved):
        attributes = _fit(Cluster(client), model, images, n_partitions, saved, gather)
    fitting.replace_fitted(model, attributes)
    return model


def cluster(
    images: ArrayLike | str | PathLike[str],
    scheduler: Client | str | None = None,
    *,
    n_clusters: int | None = None,
    model: ImageClusterer | None = None,
    checkpoint: Checkpoint | str | PathLike[str] | None = None,
    progress: StageReport | None = None,
) -> ImageClusterer:
    """Cluster images on a cluster of machines; labels are those of one process, up to rounding.

    Workers describe the images, find the candidates of every cell, and compare them under small deformations. The graph
    is put together and cut here. Tasks of a worker that is lost are run again by others.

    Parameters
    ----------
    images : array-like of shape (n_images, height, width[, channels]), or path
        The images. Workers read the path of a ``.npy`` file themselves, so it must be the same for all of them; parts
        of an array are sent to them, every image about three times. This machine also holds all images, in single
        precision.
    scheduler : distributed.Client, str or None, default=None
        A client, the address of a scheduler, or None for the client in use.
    n_clusters : int or None, default=None
        Number of clusters; None estimates it.
    model : ImageClusterer or None, default=None
        A clusterer with other settings, which is fitted in place; ``n_clusters`` is then left out.
    checkpoint : path, Checkpoint or None, default=None
        File on this machine that keeps what every stage has found so far.
    progress : callable or None, default=None
        Called as ``progress(stage, done, total)`` with the name of the stage, what is done of it, and its total.

    Returns
    -------
    ImageClusterer
        The fitted clusterer.

    Examples
    --------
    >>> found = cluster("images.npy", "tcp://scheduler:8786", n_clusters=10)               # doctest: +SKIP
    """
    if model is not None and n_clusters is not None:
        raise ValueError("n_clusters and a model were given; set the number in the model, ImageClusterer(n_clusters)")
    model = ImageClusterer(n_clusters) if model is None else model
    named = model.graph is None or (isinstance(model.graph, str) and model.graph == "deformable")
    if model.preset != "default" or not named:
        raise ValueError("only the deformable graph of the preset 'default' is built on a cluster; call model.fit")
    client = connect(scheduler)
    opened: Any = open_if_path(images)
    given = opened if hasattr(opened, "shape") and not is_torch(opened) else to_numpy(opened)
    if len(given.shape) == 2 and model.image_shape is None:
        raise ValueError("images came as rows without a shape and cannot be deformed; set image_shape in the model")
    # The workers read images, not rows that have to be given a shape first.
    in_file = opened is not images and len(given.shape) > 2
    path = os.path.abspath(fspath(images)) if in_file else None  # type: ignore[arg-type]
    saved = None if checkpoint is None else as_checkpoint(checkpoint)
    with _lost_scheduler_explained(client, saved):
        return model._fit(given, RemoteEngine(Cluster(client), len(given), path), saved, progress)


@contextmanager
def _lost_scheduler_explained(client: Client, checkpoint: Checkpoint | None) -> Iterator[None]:
    """Turn the errors of a lost connection into one sentence that says how to continue."""
    from concurrent.futures import CancelledError

    from distributed.client import ClosedClientError
    from distributed.comm.core import CommClosedError

    address = getattr(client.scheduler, "address", "of this client")
    try:
        yield
    except (CancelledError, ClosedClientError, CommClosedError, TimeoutError) as error:
        how = "" if checkpoint is None else f" with Checkpoint({str(checkpoint.path)!r}, resume=True)"
        raise LostSchedulerError(
            f"the connection to the scheduler {address} was lost; start one and fit again{how}"
        ) from error


def _fit(
    cluster: Cluster,
    coder: ImageCoder,
    images: RemoteSource,
    n_partitions: int,
    checkpoint: Checkpoint | None,
    gather: bool,
) -> dict[str, Any]:
    """Return the fitted attributes of a fit on the cluster."""
    recipe = coder._recipe()
    check_parameters(recipe.parameters, coder._rules)
    parts, sizes, layout, factor = _open_images(cluster, recipe, images, n_partitions)
    remote = RemoteImages(cluster, [cluster.submit(layout.to_tensor, part) for part in parts], sizes)
    data: Any = LazyTensor(remote.take, sum(sizes))
    sample, digest = data[..., :1], remote.digest() if checkpoint is not None else ""
    state = recipe.first_state(data, layout)
    graph: Graph | None = None
    order: Indices | None = None
    if recipe.graph is not None and recipe.graph.weight > 0:
        graph = block_graph(cluster, recipe.graph, parts, sizes, gather)
        order = order_along_graph(graph.adjacency, sizes)
        parts = reorder_partitions(cluster, parts, sizes, order)
        tensors = [cluster.submit(layout.to_tensor, part) for part in parts]
        remote = RemoteImages(cluster, tensors, sizes, laplacian(graph)[order][:, order])
    store, save = RemoteStore(cluster, checkpoint), None
    if checkpoint is not None:
        identity = checkpoint.identity(recipe, digest) | {"partitions": repr(sizes)}
        state = store.resume(identity, sample, len(sizes)) or state
        save = checkpoint.saver(identity)
    model, options = recipe.model(layout.image_shape), fitting.learning_options(recipe)
    state = learn(model, remote, state, store=store, save=save, code_all=code_partitions, **options)
    return fitting.fitted_attributes(recipe, layout, state, store.collect(order, sizes, gather), graph, factor)


# --- images on the workers --------------------------------------------------------------------------------------
def _open_images(
    cluster: Cluster, recipe: fitting.Recipe, images: RemoteSource, n_partitions: int
) -> tuple[list[Future], list[int], Layout, float]:
    """Put scaled images on the workers; return a future and the size of every partition, layout and scale factor."""
    raw = [
        cluster.submit(checked_stack, block, recipe.as_stack) for block in _partitions(cluster, images, n_partitions)
    ]
    shapes = cluster.fetch([cluster.submit(shape_and_type, block) for block in raw])
    if len({(shape[1:], kind) for shape, kind in shapes}) != 1:
        raise ValueError(f"partitions hold images of different shapes or types: {sorted(set(map(str, shapes)))[:4]}")
    factor = 1.0
    if recipe.scale == "max":
        factor = max(cluster.fetch([cluster.submit(largest_pixel, block) for block in raw])) or 1.0
    parts = [cluster.submit(scaled_stack, block, recipe.scale, factor) for block in raw]
    return parts, [shape[0] for shape, _ in shapes], recipe.layout(shapes[0][0][1:]), factor


def _partitions(cluster: Cluster, given: RemoteSource, n_partitions: int) -> list[Future]:
    """Return futures of the images as given, one per partition."""
    images: Any = given
    if hasattr(images, "dask") and hasattr(images, "to_delayed"):
        step = -(-images.shape[0] // n_partitions)
        whole = images.rechunk((step, *images.shape[1:]))
        return list(cluster.client.compute(whole.to_delayed().ravel().tolist()))
    named = isinstance(images, (list, tuple)) and len(images) > 0
    if named and all(isinstance(item, str) or hasattr(item, "__fspath__") for item in images):
        return [cluster.submit(read_file, fspath(item)) for item in images]
    stack = np.asarray(images)
    step = -(-len(stack) // n_partitions)
    return [cluster.submit(constant, stack[start : start + step]) for start in range(0, len(stack), step)]


# --- coding on the workers --------------------------------------------------------------------------------------
def code_partitions(
    model: ImageModel, state: LearningState, collection: RemoteImages, weights: Weights, code_solver: CodeSolver,
    store: RemoteStore, save: SaveProgress | None = None,
) -> PassTotals:  # fmt: skip
    """Code all partitions at the same time against the present codes of the others; return their totals.

    With a graph, codes are extrapolated along their last movement after each exchange (Nesterov's idea), because the
    majoriser converges slowly where many edges join partitions. If that raised the objective, the pass is repeated
    from the same start without extrapolation.
    """
    joined = collection.matrix is not None
    if state.finishing and not joined:
        store.parts = {}  # without a graph, final codes start from zero, as encode does later
    began = dict(store.parts)
    totals = _code_with_exchanges(model, state, collection, weights, code_solver, store, EXTRAPOLATION)
    if joined and state.objective and totals.objective > state.objective[-1]:
        store.parts, store.former = began, {}
        totals = _code_with_exchanges(model, state, collection, weights, code_solver, store, 0.0)
    return totals


def _code_with_exchanges(
    model: ImageModel, state: LearningState, collection: RemoteImages, weights: Weights, code_solver: CodeSolver,
    store: RemoteStore, extrapolation: float,
) -> PassTotals:  # fmt: skip
    """Divide the solver's steps among several exchanges of codes, so that changes spread further along the graph."""
    cluster, joined = collection.cluster, collection.matrix is not None
    dictionary = cluster.submit(constant, state.dictionary)
    n_exchanges = EXCHANGES if joined else 1
    dataclass_solver: Any = code_solver
    solver = replace(dataclass_solver, max_iter=-(-code_solver.max_iter // n_exchanges))
    for _ in range(n_exchanges):
        starts = dict(store.parts)
        if joined and store.former and extrapolation > 0.0:
            starts = {
                index: cluster.submit(extrapolated, part, store.former[index], extrapolation)
                for index, part in store.parts.items()
            }
        received = store.exchange(collection, starts)
        store.former = dict(store.parts) if joined else {}
        store.parts = {
            index: cluster.submit(
                code_partition, model, dictionary, weights, solver, collection.tensors[index], starts.get(index),
                collection.edges[index], received[index], state.finishing,
            )
            for index in range(collection.n_chunks)
        }  # fmt: skip
    received = store.exchange(collection, store.parts)
    totals = [
        cluster.submit(partition_totals, index, part, weights, collection.edges[index], received[index])
        for index, part in store.parts.items()
    ]
    total: PassTotals = cluster.fetch_sum(totals)
    return total


class RemoteEngine(Engine):
    """Finds neighbours on the workers.

    ``path`` is the file with all ``n_images`` images that the workers can read, or None.
    """

    def __init__(self, cluster: Cluster, n_images: int, path: str | None = None) -> None:
        self.cluster, self.n_images, self.path = cluster, n_images, path

    def finder(self, images: Array) -> Finder:
        """Return what lists the neighbours of scaled images."""
        return lambda search: TaskSearch.of(search, self.cluster, partial(self._load, images))

    def _load(self, images: Array, chosen: Indices) -> Any:
        """Return what a worker reads some scaled images from: the file that they are in, or an array sent to it."""
        if self.path is not None and len(images) == self.n_images:
            return ScaledFile(self.path, chosen)
        return self.cluster.submit(constant, images[chosen])


@dataclass(frozen=True)
class ScaledFile:
    """Some images of a ``.npy`` file, scaled to unit length when they are read, a part at a time."""

    path: str
    chosen: Indices

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, part: slice | Indices) -> NDArray[Any]:
        """Return consecutive images, or those of some numbers."""
        images = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return scaled_stack(neighbors.as_float_stack(images[self.chosen[part]]), "unit", 1.0)


# --- tasks: images ----------------------------------------------------------------------------------------------
def read_file(path: str) -> NDArray[Any]:
    """Return the images of a file."""
    if path.endswith(".npy"):
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    from tubal.datasets import load_images

    # Every partition is read alike, whatever its own pictures show.
    return np.asarray(load_images(path, crop="none").images)


def checked_stack(block: ArrayLike, as_stack: Callable[[Array], Array]) -> NDArray[Any]:
    """Return a block as a checked stack of images."""
    return np.asarray(as_stack(neighbors.as_float_stack(block)))


def shape_and_type(block: NDArray[Any]) -> tuple[tuple[int, ...], str]:
    """Return the shape and the type of an array."""
    return block.shape, block.dtype.str


def largest_pixel(block: NDArray[Any]) -> float:
    """Return the largest absolute pixel."""
    return float(abs(block).max())


def scaled_stack(block: NDArray[Any], scale: str | None, factor: float) -> NDArray[Any]:
    """Return images scaled as in fitting."""
    return np.asarray(fitting.scale_images(block, scale, factor)[0])


def take_columns(array: NDArray[Any], columns: Indices) -> NDArray[Any]:
    """Return some samples of a tensor."""
    return np.ascontiguousarray(array[..., columns])


def digest_of(array: NDArray[Any]) -> str:
    """Return a digest of a tensor."""
    return digest_arrays(array.shape, [array])


# --- tasks: codes -----------------------------------------------------------------------------------------------
class PartitionEdges:
    """The edges of one partition of the images: inside it, and to images of other partitions.

    ``inner`` (n, n) is the Laplacian inside the partition, its degrees counting every edge. ``crossing`` has, for each
    other partition with an edge to this one, the columns of its images that are needed, (c,), and the weights (n, c).
    """

    def __init__(self, inner: sp.csr_matrix, crossing: dict[int, tuple[Indices, sp.csr_matrix]]) -> None:
        self.inner, self.crossing = inner, crossing
        self.degrees = sum(
            (np.asarray(block.sum(1)).ravel() for _, block in crossing.values()), np.zeros(inner.shape[0])
        )

    @classmethod
    def from_laplacian(cls, matrix: sp.csr_matrix, bounds: Indices, index: int) -> PartitionEdges:
        """Cut one partition's rows out of the Laplacian (n, n); weights are minus its entries."""
        rows = matrix[bounds[index] : bounds[index + 1]].tocsc()
        crossing = {}
        for other in range(len(bounds) - 1):
            columns = np.flatnonzero(np.diff(rows.indptr[bounds[other] : bounds[other + 1] + 1]))
            if other != index and len(columns):
                crossing[other] = (columns, sp.csr_matrix(-rows[:, bounds[other] + columns]))
        return cls(sp.csr_matrix(rows[:, bounds[index] : bounds[index + 1]]), crossing)

    def neighbor_sum(self, shape: tuple[int, ...], dtype: DTypeLike, received: list[Array]) -> NDArray[Any]:
        """Return the weighted sum of neighbours' codes in other partitions, from the codes received of each."""
        total = np.zeros((int(np.prod(shape[:-1])), shape[-1]), dtype)
        for (_, block), codes in zip(self.crossing.values(), received, strict=True):
            total += (block @ codes.reshape(-1, codes.shape[-1]).T).T.astype(dtype, copy=False)
        return total.reshape(shape)

    def majoriser(self) -> sp.csr_matrix:
        """Return the Laplacian of the separable majoriser: edges to other partitions count twice in the degrees."""
        return sp.csr_matrix(self.inner + sp.diags(self.degrees))


def extrapolated(coded: ChunkCodes, former: ChunkCodes, factor: float) -> ChunkCodes:
    """Return codes and solver state moved on by ``factor`` times their last movement."""

    def moved_on(now: Any, before: Any) -> Any:
        moves = isinstance(now, np.ndarray) and now.shape == coded.codes.shape
        return now + now.dtype.type(factor) * (now - before) if moves else now

    now, before = coded.state, former.state
    moved = {part.name: moved_on(getattr(now, part.name), getattr(before, part.name)) for part in fields(now)}
    return ChunkCodes(moved_on(coded.codes, former.codes), replace(now, **moved))


def code_partition(
    model: ImageModel, dictionary: Dictionary, weights: Weights, code_solver: CodeSolver, data: Array,
    start: ChunkCodes | None, edges: PartitionEdges | None, received: list[Array], final: bool,
) -> ChunkCodes:  # fmt: skip
    """Code one partition; with a graph, minimise its part of the separable majoriser. ``start`` is not changed."""
    start = None if start is None else ChunkCodes(start.codes, copy.deepcopy(start.state))
    laplacian = neighbor_sum = None
    if edges is not None:
        laplacian = edges.majoriser()
        if start is not None:
            neighbor_sum = edges.neighbor_sum(start.codes.shape, start.codes.dtype, received)
            neighbor_sum += edges.degrees.astype(neighbor_sum.dtype) * start.codes
    return code_chunk(
        model, dictionary, data, weights, code_solver,
        laplacian=laplacian, neighbor_sum=neighbor_sum, start=start, final=final,
    )  # fmt: skip


def partition_totals(
    index: int, coded: ChunkCodes, weights: Weights, edges: PartitionEdges | None, received: list[Array]
) -> PassTotals:
    """Return the totals of one partition at the new codes; half of each edge to another partition is counted here."""
    totals = PassTotals.of_chunk(index, coded)
    if edges is None:
        return totals
    summary = coded.summary
    assert summary is not None
    neighbor_sum = edges.neighbor_sum(coded.codes.shape, coded.codes.dtype, received)
    energies, products = GraphTerm(edges.inner, weights.graph_weight, neighbor_sum).energies(coded.codes)
    alone = 0.5 * summary.residuals.sum() + weights.sparsity * summary.absolutes.sum()
    graph = weights.graph_weight * (float(energies.sum()) - float(products.sum()))
    return replace(totals, objective=float(alone) + graph)


def codes_at(coded: ChunkCodes, columns: Indices) -> Array:
    """Return the codes of some images."""
    return np.ascontiguousarray(coded.codes[..., columns])


def without_summary(coded: ChunkCodes) -> ChunkCodes:
    """Return codes and solver state alone."""
    return ChunkCodes(coded.codes, coded.state)


# --- the cluster ------------------------------------------------------------------------------------------------
def constant(value: Any) -> Any:
    """Return the value; as a task, it keeps the value on the cluster."""
    return value


def run_task(work: Callable[..., object], *arguments: object) -> object:
    """Return ``work(*arguments)``; arrays of the task take the memory of earlier ones."""
    with freed_memory_reused():
        return work(*arguments)


class Cluster:
    """Submits pure tasks under unique names and fetches their results."""

    def __init__(self, client: Client) -> None:
        self.client, self.token, self.numbers = client, uuid.uuid4().hex[:8], itertools.count()
        self.without_worker = False

    @property
    def n_parallel(self) -> int:
        """Number of tasks that can run at the same time."""
        return max(1, int(sum(self.client.nthreads().values())))

    def submit(self, work: Callable[..., object], *arguments: object) -> Future:
        """Start a task; arguments that are futures stand for their results."""
        # Dask groups tasks by the words before the first one that is not made of letters, and expects that all tasks of
        # a group take about the same time.
        words = work.__name__.strip("_").replace("_", "-")
        name = f"tubal-{words}-{self.token}-{next(self.numbers)}"
        return self.client.submit(run_task, work, *arguments, key=name, pure=False)

    def share(self, value: object) -> Future:
        """Return the future of a value that is copied to all workers, because Dask prefers workers that have it."""
        shared = self.submit(constant, value)
        self.wait(shared)
        # If no worker runs at this moment, Dask raises an error, and the value is copied when it is needed.
        with suppress(ValueError):
            self.client.replicate(shared)
        return shared

    def fetch(self, futures: Future | list[Future]) -> Any:
        """Wait for the result of a task, or of several."""
        self.wait(futures)
        return self.client.gather(futures)

    def wait(self, futures: Future | list[Future]) -> None:
        """Wait until tasks have ended; if no worker is left, warn once and wait for another."""
        from distributed import wait

        while True:
            with suppress(TimeoutError):
                wait(futures, timeout=WORKER_SECONDS)
                return
            missing, start = not _has_worker(self.client), f"`dask worker {self.client.scheduler.address}`"
            if missing and not self.without_worker:
                sentence = f"the Dask cluster has no worker any more; waiting for one, start it with {start}"
                warnings.warn(sentence, NoWorkerWarning, stacklevel=2)
            self.without_worker = missing

    def fetch_sum(self, futures: list[Future]) -> Any:
        """Add results in pairs on the workers, always in the same order, and fetch the sum."""
        while len(futures) > 1:
            pairs = itertools.zip_longest(futures[::2], futures[1::2])
            futures = [left if right is None else self.submit(operator.add, left, right) for left, right in pairs]
        return self.fetch(futures[0])


class RemoteImages(Collection):
    """Images on the workers: one future of a tensor per partition, and the edges of each partition."""

    def __init__(
        self, cluster: Cluster, tensors: list[Future], sizes: list[int], matrix: sparse.csr_matrix | None = None
    ) -> None:
        super().__init__(sizes, matrix)
        self.cluster, self.tensors = cluster, tensors
        self.edges = [
            None if matrix is None else PartitionEdges.from_laplacian(matrix, self.bounds, index)
            for index in range(len(sizes))
        ]

    def data(self, index: int) -> Array:
        """Fetch a partition."""
        return self.cluster.fetch(self.tensors[index])

    def digest(self) -> str:
        """Return two digests: of the first image, and of all; the workers read their partitions at the same time.

        Checkpoints of earlier versions hold the first one only.
        """
        first = self.take(np.array([0]))
        parts = self.cluster.fetch([self.cluster.submit(digest_of, tensor) for tensor in self.tensors])
        everything = hashlib.blake2b("".join(parts).encode(), digest_size=32)
        return f"{digest_of(first)}:{everything.hexdigest()}"

    def take(self, indices: Indices) -> Array:
        """Fetch some images as a tensor, in the order asked for."""
        homes = np.searchsorted(self.bounds, indices, side="right") - 1
        wanted = {int(home): np.flatnonzero(homes == home) for home in np.unique(homes)}
        found = self.cluster.fetch(
            [
                self.cluster.submit(take_columns, self.tensors[home], indices[at] - self.bounds[home])
                for home, at in wanted.items()
            ]
        )
        tensor = np.empty((*found[0].shape[:-1], len(indices)), found[0].dtype)
        for part, at in zip(found, wanted.values(), strict=True):
            tensor[..., at] = part
        return tensor


class RemoteStore:
    """Futures of every partition's codes, and of its codes one exchange earlier."""

    def __init__(self, cluster: Cluster, checkpoint: Checkpoint | None) -> None:
        self.cluster, self.checkpoint = cluster, checkpoint
        self.parts: dict[int, Future] = {}
        self.former: dict[int, Future] = {}
        self.disk: DiskStore | None = None

    def codes_of(self, index: int) -> Array:
        """Fetch a partition's codes."""
        return self.cluster.fetch(self.cluster.submit(getattr, self.parts[index], "codes"))

    def exchange(self, collection: RemoteImages, parts: dict[int, Future]) -> list[list[Future]]:
        """Return, for every partition, futures of the neighbours' codes it needs; none before the first step."""
        return [
            []
            if edges is None or not parts
            else [
                self.cluster.submit(codes_at, parts[other], columns) for other, (columns, _) in edges.crossing.items()
            ]
            for edges in collection.edges
        ]

    def snapshot(self) -> dict[str, Any]:
        """Write the codes to this machine's disk, a partition at a time, and describe the files."""
        assert self.checkpoint is not None
        self.disk = self.disk or DiskStore(self.checkpoint.codes_folder)
        for offset, parts in ((0, self.parts), (len(self.parts), self.former)):
            for index, part in parts.items():
                self.disk.put(offset + index, self.cluster.fetch(self.cluster.submit(without_summary, part)))
        return self.disk.snapshot()

    def protect(self) -> None:
        """Keep the files of the last snapshot from being overwritten."""
        assert self.disk is not None
        self.disk.protect()

    def resume(self, identity: dict[str, str], like: Array, n_parts: int) -> LearningState | None:
        """Return the state in the checkpoint, its codes sent to the workers; None if there is no checkpoint."""
        assert self.checkpoint is not None
        found = self.checkpoint.load(identity, like)
        if found is None:
            return None
        state, disk = found
        assert isinstance(disk, DiskStore)
        self.disk = disk
        sent = {index: self.cluster.submit(constant, disk.get(index)) for index in disk.indices()}
        self.parts = {index: part for index, part in sent.items() if index < n_parts}
        self.former = {index - n_parts: part for index, part in sent.items() if index >= n_parts}
        return state

    def collect(self, order: Indices | None, sizes: list[int], gather: bool) -> Array | da.Array:
        """Return all codes in the user's order, samples last: fetched, or as a ``dask.array`` on the workers."""
        futures = [self.cluster.submit(getattr, self.parts[index], "codes") for index in sorted(self.parts)]
        if gather:
            codes = np.concatenate(self.cluster.fetch(futures), -1)
            return codes if order is None else codes[..., np.argsort(order)]
        import dask.array as da

        shape, dtype = self.cluster.fetch(self.cluster.submit(shape_and_type, futures[0]))
        blocks = [
            da.from_delayed(future, (*shape[:-1], size), dtype=dtype)
            for future, size in zip(futures, sizes, strict=True)
        ]
        joined = da.concatenate(blocks, -1)
        return joined if order is None else joined[..., np.argsort(order)]


# --- neighbour graphs -------------------------------------------------------------------------------------------
def block_graph(
    cluster: Cluster, settings: fitting.GraphSettings, parts: list[Future], sizes: list[int], gather: bool
) -> Graph:
    """Return the graph of images on the workers: as given, or found in blocks of pairs of partitions.

    It equals ``knn_graph`` of all images. With ``gather`` the images are fetched too, so that new images can be
    joined to the graph.
    """
    n_images = int(sum(sizes))
    if not isinstance(settings.graph, str):
        return fitting.resolve_graph(settings.graph, range(n_images))
    settings.check_neighbors(n_images)
    wanted, metric = settings.n_neighbors, settings.graph
    if metric not in ("euclidean", "cosine"):
        raise ValueError(f"graph={metric!r} is not built on a cluster; use 'euclidean' or 'cosine', or pass a Graph")
    digests = cluster.fetch([cluster.submit(_image_digests, part) for part in parts])
    firsts, group = neighbors.group_digests(itertools.chain.from_iterable(digests))
    reach = min(wanted, len(firsts) - 1)
    found = _search_all_pairs(cluster, parts, sizes, firsts, reach, metric)
    joined = neighbors.expand_to_copies(neighbors.concatenate_neighbors(found), group, wanted)
    if not gather:
        return Graph(symmetric_adjacency(joined.indices, np.ones_like(joined.distances)), n_neighbors=wanted)
    search = neighbors.ExactSearch(np.concatenate(cluster.fetch(parts)), metric)
    return Graph.from_neighbors(joined, weighting=Weighting(), search=search, n_neighbors=wanted)


def _search_all_pairs(
    cluster: Cluster, parts: list[Future], sizes: list[int], firsts: Indices, reach: int, metric: str
) -> list[Neighbors]:
    """Return the nearest neighbours of the distinct images ``firsts``, one result for each partition that has any.

    The workers search every pair of partitions, and merge what they find for the queries of one partition. Neighbours
    are numbered among ``firsts``.
    """
    bounds = np.cumsum([0, *sizes])
    starts = np.searchsorted(firsts, bounds)
    rows = [
        cluster.submit(_rows, part, firsts[start:stop] - bound, metric)
        for part, bound, (start, stop) in zip(parts, bounds, itertools.pairwise(starts), strict=False)
    ]
    filled = [index for index in range(len(parts)) if starts[index] < starts[index + 1]]
    merged = []
    for queries in filled:
        found = [
            cluster.submit(_search_pair, rows[queries], rows[known], int(starts[known]), reach, queries == known)
            for known in filled
        ]
        merged.append(cluster.submit(_merged, found, reach, metric))
    return list(cluster.fetch(merged))


def _image_digests(images: NDArray[Any]) -> list[bytes]:
    """Return a digest of every image."""
    return neighbors.row_digests(images.reshape(len(images), -1))


def _rows(images: NDArray[Any], indices: Indices, metric: str) -> NDArray[Any]:
    """Return some images as rows, of unit length under the cosine metric."""
    return np.asarray(neighbors.unit_directions(images[indices].reshape(len(indices), -1), metric))


def _search_pair(
    queries: NDArray[Any], known: NDArray[Any], start: int, reach: int, same: bool
) -> neighbors.Candidates:
    """Return exact squared distances to the nearest rows of one partition, so that partitions can be merged.

    ``start`` is the number of the first known row; ``same`` is True if queries and known rows are the same partition.
    """
    best = neighbors.block_candidates(
        queries, known, known.mean(axis=0), reach + neighbors.SPARE, own=0 if same else None
    )
    ranked = neighbors.rank_candidates(queries, best.numbers, known.__getitem__)
    own = ranked.numbers == np.arange(len(queries))[:, None] if same else False
    return neighbors.Candidates(ranked.numbers + start, np.where(own, np.inf, ranked.scores))


def _merged(found: list[neighbors.Candidates], reach: int, metric: str) -> Neighbors:
    """Return the nearest of the candidates found in all partitions."""
    return neighbors.as_neighbors(neighbors.merge_candidates(found, reach), metric, np.float32)


def reorder_partitions(cluster: Cluster, parts: list[Future], sizes: list[int], order: Indices) -> list[Future]:
    """Return partitions of the same sizes that hold the images in another order, moved between workers."""
    if np.array_equal(order, np.arange(len(order))):
        return parts
    bounds = np.cumsum([0, *sizes])
    reordered = []
    for start, stop in itertools.pairwise(bounds):
        wanted = order[start:stop]
        homes = np.searchsorted(bounds, wanted, side="right") - 1
        places = {home: np.flatnonzero(homes == home) for home in np.unique(homes)}
        pieces = [cluster.submit(_images_at, parts[home], wanted[at] - bounds[home]) for home, at in places.items()]
        reordered.append(cluster.submit(_joined, pieces, list(places.values())))
    return reordered


def _images_at(images: NDArray[Any], indices: Indices) -> NDArray[Any]:
    """Return the images at the given indices."""
    found: NDArray[Any] = images[indices]
    return found


def _joined(pieces: list[NDArray[Any]], indices: list[Indices]) -> NDArray[Any]:
    """Return one stack with the images of piece i at the positions ``indices[i]``."""
    found = np.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), pieces[0].dtype)
    for piece, at in zip(pieces, indices, strict=True):
        found[at] = piece
    return found
