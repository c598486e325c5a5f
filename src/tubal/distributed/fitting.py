"""The same fit on a Dask cluster: images and codes stay on the workers; only statistics and atoms are sent.

>>> from distributed import Client                                                        # doctest: +SKIP
>>> model = fit(GTSC(n_atoms=45), dask_array, Client("tcp://scheduler:8786"))             # doctest: +SKIP

In one iteration every partition is coded by a task, each partition sends one set of statistics, summed in a tree, and
the dictionary step is solved here. The new dictionary is one task, whose result the workers fetch from each other.
Tasks are pure: when a worker dies, Dask recomputes what it held, and the result is the same.

With a graph all partitions are coded at the same time. An edge (i, j) between partitions is majorised,

    ||b_i - b_j||² <= 2 ||b_i - m||² + 2 ||b_j - m||²,     m the mean of the present b_i and b_j,

with equality at the present codes. The majoriser separates over partitions, and minimising it cannot raise the
objective (Hunter and Lange 2004). No edge is dropped. Images are first reordered along the graph, so that few edges
join two partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from tubal.distributed.cluster import (
    Cluster,
    RemoteImages,
    RemoteStore,
    block_graph,
    checked_stack,
    code_partition,
    constant,
    extrapolated,
    largest_pixel,
    partition_totals,
    read_file,
    reorder_partitions,
    scaled_stack,
    shape_and_type,
    to_tensor,
)
from tubal.estimators.image_coder import ImageCoder
from tubal.estimators.validation import check_parameters
from tubal.graph import Graph, laplacian
from tubal.graph.build import order_along_graph
from tubal.learning.alternation import Indices, LearningState, PassTotals, SaveProgress, Weights, learn
from tubal.learning.checkpoints import Checkpoint, as_checkpoint
from tubal.learning.chunks import LazyTensor
from tubal.learning.fitting import Recipe, fitted_attributes, learning_options, replace_fitted
from tubal.problems.base import ImageModel
from tubal.problems.layout import Layout
from tubal.solvers import CodeSolver

if TYPE_CHECKING:
    import dask.array as da

    from distributed import Client, Future

__all__ = ["connect", "fit"]

Coder = TypeVar("Coder", bound=ImageCoder)
RemoteSource: TypeAlias = "da.Array | Sequence[str | PathLike[str]] | ArrayLike"

# Partitions exchange codes this many times within one coding step with a graph. After each exchange codes start from
# their last movement, continued by this factor.
EXCHANGES = 4
EXTRAPOLATION = 0.9


def connect(scheduler: Client | str | None = None) -> Client:
    """Return a client of a Dask scheduler.

    Parameters
    ----------
    scheduler : distributed.Client, str or None
        A client, which is returned as it is; the address of a scheduler; or None for the client in use.

    Returns
    -------
    distributed.Client
        The client. Without a scheduler, a ConnectionError says how to start one.
    """
    try:
        from distributed import Client, get_client
    except ImportError:
        raise ImportError("fitting on a cluster needs Dask; install it: pip install 'tubal[dask]'") from None
    if isinstance(scheduler, Client):
        return scheduler
    try:
        return get_client() if scheduler is None else Client(scheduler, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        which = "in use" if scheduler is None else f"at {scheduler!r}"
        raise ConnectionError(
            f"there is no Dask scheduler {which}; start one with `dask scheduler` and workers with `dask worker`"
        ) from error


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
        Number of partitions that are coded at the same time. By default one per thread of the cluster.
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
        n_partitions = max(1, sum(client.nthreads().values()))
    with _lost_scheduler_explained(client, saved):
        attributes = _fit(Cluster(client), model, images, n_partitions, saved, gather)
    replace_fitted(model, attributes)
    return model


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
        remedy = (
            "start one and fit again"
            if checkpoint is None
            else f"start one and fit again with Checkpoint({str(checkpoint.path)!r}, resume=True)"
        )
        raise ConnectionError(f"the connection to the scheduler {address} was lost; {remedy}") from error


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
    remote = RemoteImages(cluster, [cluster.submit(to_tensor, part, layout) for part in parts], sizes)
    data: Any = LazyTensor(remote.take, sum(sizes))
    sample, digest = data[..., :1], remote.digest() if checkpoint is not None else ""
    state = recipe.first_state(data, layout)
    graph: Graph | None = None
    order: Indices | None = None
    if recipe.graph is not None and recipe.graph.weight > 0:
        graph = block_graph(cluster, recipe.graph, parts, sizes, gather)
        order = order_along_graph(graph.adjacency, sizes)
        parts = reorder_partitions(cluster, parts, sizes, order)
        tensors = [cluster.submit(to_tensor, part, layout) for part in parts]
        remote = RemoteImages(cluster, tensors, sizes, laplacian(graph)[order][:, order])
    store, save = RemoteStore(cluster, checkpoint), None
    if checkpoint is not None:
        identity = checkpoint.identity(recipe, digest) | {"partitions": repr(sizes)}
        state = store.resume(identity, sample, len(sizes)) or state
        save = checkpoint.saver(identity)
    model, options = recipe.model(layout.image_shape), learning_options(recipe)
    state = learn(model, remote, state, store=store, save=save, code_all=code_partitions, **options)
    return fitted_attributes(recipe, layout, state, store.collect(order, sizes, gather), graph, factor)


# --- images on the workers -----------------------------------------------------------------------------------
def _open_images(
    cluster: Cluster, recipe: Recipe, images: RemoteSource, n_partitions: int
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
    if _are_files(images):
        return [cluster.submit(read_file, fspath(item)) for item in images]
    stack = np.asarray(images)
    step = -(-len(stack) // n_partitions)
    return [cluster.submit(constant, stack[start : start + step]) for start in range(0, len(stack), step)]


def _are_files(images: object) -> bool:
    if not isinstance(images, (list, tuple)) or len(images) == 0:
        return False
    return all(isinstance(item, str) or hasattr(item, "__fspath__") for item in images)


# --- coding on the workers -----------------------------------------------------------------------------------
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
