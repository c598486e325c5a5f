"""The same fit on a Dask cluster: images and codes stay on the workers, statistics and atoms travel.

>>> from distributed import Client                                                        # doctest: +SKIP
>>> model = fit(GTSC(n_atoms=45), dask_array, Client("tcp://scheduler:8786"))             # doctest: +SKIP

One alternation is one round of coding tasks, a tree of sums, and one dual solved here; the dictionary goes back as
one task that the workers fetch from each other. Tasks are pure: when a worker dies, Dask computes what it held
again, and the result is the same.

With a graph all partitions are coded at once. An edge (i, j) between partitions is majorised,

    ||b_i - b_j||² <= 2 ||b_i - m||² + 2 ||b_j - m||²,     m the mean of the present b_i and b_j,

with equality at the present codes: the majoriser separates over partitions, and minimising it cannot raise the
objective (Hunter and Lange 2004). No edge is dropped. Images are first dealt out along the graph, so that few
edges cross.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from tubal.backends.arrays import Array
from tubal.distributed.graph import block_graph, deal_out
from tubal.distributed.tasks import (
    Ties,
    add,
    checked,
    code_part,
    codes_at,
    codes_of,
    largest_pixel,
    pushed,
    read_file,
    same,
    scaled,
    shape_of,
    take_columns,
    tally_part,
    to_tensor,
    without_summary,
)
from tubal.estimators._base import patient
from tubal.estimators._fitting import LazyTensor
from tubal.graph import laplacian
from tubal.graph.chunked import order_along_graph
from tubal.learning.alternation import LearningState, Tally, Weights, forget, initial_state, learn
from tubal.learning.checkpoints import Checkpoint, as_checkpoint
from tubal.learning.disk_store import DiskStore

__all__ = ["connect", "fit"]

# How often codes are exchanged within one coding step with a graph, and how far they are pushed on each time.
ROUNDS = 4
PUSH = 0.9


def connect(scheduler: Any = None) -> Any:
    """Return a client of the scheduler at an address, or of the one in use; a clear error where there is none."""
    try:
        from distributed import Client, get_client
    except ImportError:
        raise ImportError("fitting on a cluster needs Dask; install it: pip install 'tubal[dask]'") from None
    if isinstance(scheduler, Client):
        return scheduler
    try:
        return get_client() if scheduler is None else Client(scheduler, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        place = "in use" if scheduler is None else f"at {scheduler!r}"
        raise ConnectionError(
            f"there is no Dask scheduler {place}; start one with `dask scheduler` and workers with `dask worker`"
        ) from error


def fit(
    model: Any, images: Any, scheduler: Any = None, *, n_partitions: int | None = None, checkpoint: Any = None,
    gather: bool = True,
) -> Any:  # fmt: skip
    """Fit an estimator on a cluster and return it.

    Parameters
    ----------
    model : an estimator of tubal; it is fitted in place.
    images : a ``dask.array`` (n, height, width[, channels]), a list of files, or an array.
    scheduler : a ``distributed.Client``, the address of a scheduler, or None for the client in use.
    n_partitions : how many parts to code at a time; None means one per thread of the cluster.
    checkpoint : a path or a ``Checkpoint``, written here at a bounded interval.
    gather : bring the codes here as ``codes_``; without, ``codes_`` is a ``dask.array`` on the workers.
    """
    client, checkpoint = connect(scheduler), as_checkpoint(checkpoint)
    if n_partitions is None:
        n_partitions = max(1, sum(client.nthreads().values()))
    with _lost_scheduler_explained(client, checkpoint):
        return _fit(_Cluster(client), model, images, n_partitions, checkpoint, gather)


@contextmanager
def _lost_scheduler_explained(client: Any, checkpoint: Checkpoint | None) -> Iterator[None]:
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


class _Cluster:
    """Submits pure tasks under names of their own and fetches their results."""

    def __init__(self, client: Any) -> None:
        self.client, self.token, self.numbers = client, uuid.uuid4().hex[:8], itertools.count()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        name = f"tubal-{work.__name__.strip('_')}-{self.token}-{next(self.numbers)}"
        return self.client.submit(work, *arguments, key=name, pure=False)

    def fetch(self, futures: Any) -> Any:
        return self.client.gather(futures)

    def reduce(self, futures: list[Any]) -> Any:
        """Add results pairwise, in a fixed order, on the workers."""
        while len(futures) > 1:
            pairs = itertools.zip_longest(futures[::2], futures[1::2])
            futures = [left if right is None else self.submit(add, left, right) for left, right in pairs]
        return self.fetch(futures[0])


def _fit(cluster: _Cluster, coder: Any, images: Any, n_partitions: int, checkpoint: Any, gather: bool) -> Any:
    parts, sizes = _open(cluster, coder, images, n_partitions)
    random = check_random_state(coder.random_state)
    remote = _Remote(cluster, [cluster.submit(to_tensor, part, coder._layout_) for part in parts], sizes)
    data: Any = LazyTensor(remote)  # type: ignore[arg-type]
    state = initial_state(coder._initial_dictionary(data, random), coder._model())
    weight, order = coder._graph_weight(), None
    if weight > 0:
        coder.graph_ = block_graph(cluster, coder, parts, sizes, gather)
        order = order_along_graph(coder.graph_.adjacency, sizes)
        parts = deal_out(cluster, parts, sizes, order)
        tensors = [cluster.submit(to_tensor, part, coder._layout_) for part in parts]
        remote = _Remote(cluster, tensors, sizes, laplacian(coder.graph_)[order][:, order])
    store = _RemoteStore(cluster, checkpoint)
    named: dict[str, str] = {}
    if checkpoint is not None:
        named = _fingerprint(coder, sizes, data[..., :1])
        state = store.take_up(checkpoint, named, state, data[..., :1], len(sizes))
    code_solver, dictionary_solver = coder._solvers()
    state = learn(
        coder._model(), remote, state, Weights(coder.sparsity, weight), code_solver=code_solver,
        dictionary_solver=dictionary_solver, final_solver=patient(code_solver), max_iter=coder.max_iter,
        tol=coder.tol, store=store, callbacks=coder._callbacks(), sweep=_sweep,
        keep=forget if checkpoint is None else checkpoint.keeper(named),
    )  # fmt: skip
    coder._keep(state, store.collect(order, sizes, gather))
    return coder


def _fingerprint(coder: Any, sizes: list[int], one: NDArray[Any]) -> dict[str, str]:
    from tubal.estimators._fitting import fingerprint
    from tubal.learning.alternation import InMemory

    return fingerprint(coder, InMemory(one)) | {"partitions": repr(sizes)}


# --- images on the workers -----------------------------------------------------------------------------------
def _open(cluster: _Cluster, coder: Any, images: Any, n_partitions: int) -> tuple[list[Any], list[int]]:
    """Return scaled images on the workers, one future a partition, and how many each holds."""
    coder._check_parameters()
    raw = [cluster.submit(checked, block, coder.image_shape) for block in _blocks(cluster, images, n_partitions)]
    shapes = cluster.fetch([cluster.submit(shape_of, block) for block in raw])
    if len({(shape[1:], kind) for shape, kind in shapes}) != 1:
        raise ValueError(f"partitions hold images of different shapes or types: {sorted(set(map(str, shapes)))[:4]}")
    coder.image_shape_ = shapes[0][0][1:]
    coder.n_features_in_ = int(np.prod(coder.image_shape_))
    coder._layout_ = coder._layout(coder.image_shape_)
    coder.scale_factor_ = 1.0
    if coder.scale == "max":
        coder.scale_factor_ = max(cluster.fetch([cluster.submit(largest_pixel, block) for block in raw])) or 1.0
    parts = [cluster.submit(scaled, block, coder.scale, coder.scale_factor_) for block in raw]
    return parts, [shape[0] for shape, _ in shapes]


def _blocks(cluster: _Cluster, images: Any, n_partitions: int) -> list[Any]:
    if hasattr(images, "dask") and hasattr(images, "to_delayed"):
        step = -(-images.shape[0] // n_partitions)
        whole = images.rechunk((step, *images.shape[1:]))
        return list(cluster.client.compute(whole.to_delayed().ravel().tolist()))
    if _are_files(images):
        return [cluster.submit(read_file, str(item)) for item in images]
    stack = np.asarray(images)
    step = -(-len(stack) // n_partitions)
    return [cluster.submit(same, stack[start : start + step]) for start in range(0, len(stack), step)]


def _are_files(images: Any) -> bool:
    listed = isinstance(images, (list, tuple)) and len(images) > 0
    return listed and all(isinstance(item, str) or hasattr(item, "__fspath__") for item in images)


class _Remote:
    """The collection on the workers: tensors of partitions, and how the graph ties them."""

    def __init__(self, cluster: _Cluster, tensors: list[Any], sizes: list[int], matrix: Any = None) -> None:
        self.cluster, self.tensors, self.n_chunks = cluster, tensors, len(sizes)
        self.bounds = np.cumsum([0, *sizes])
        self.ties = [] if matrix is None else [Ties.of(matrix, self.bounds, index) for index in range(len(sizes))]

    def ties_of(self, index: int) -> Ties | None:
        """Return how a partition is tied, or None without a graph."""
        return self.ties[index] if self.ties else None

    def data(self, index: int) -> Array:
        """Fetch a partition."""
        return self.cluster.fetch(self.tensors[index])

    def laplacian(self, index: int) -> Any:
        """Return the Laplacian within a partition."""
        return self.ties[index].inner if self.ties else None

    def neighbor_sum(self, index: int, store: Any, others: range) -> None:
        """Neighbours' codes are exchanged between workers."""
        return None

    def take(self, indices: NDArray[Any]) -> Array:
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


# --- codes on the workers ------------------------------------------------------------------------------------
class _RemoteStore:
    """Futures of every partition's codes, and of those a round before."""

    def __init__(self, cluster: _Cluster, checkpoint: Checkpoint | None) -> None:
        self.cluster, self.checkpoint = cluster, checkpoint
        self.parts: dict[int, Any] = {}
        self.former: dict[int, Any] = {}
        self.disk: DiskStore | None = None

    def codes_of(self, index: int) -> Array:
        """Fetch a partition's codes."""
        return self.cluster.fetch(self.cluster.submit(codes_of, self.parts[index]))

    def exchange(self, collection: _Remote, parts: dict[int, Any]) -> list[list[Any]]:
        """Return, for every partition, the futures of the neighbours' codes it needs; none before the first step."""
        if not collection.ties or not parts:
            return [[] for _ in range(collection.n_chunks)]
        return [
            [self.cluster.submit(codes_at, parts[other], columns) for other, (columns, _) in ties.crossing.items()]
            for ties in collection.ties
        ]

    def snapshot(self) -> dict[str, Any]:
        """Write the codes to disk here, a partition at a time."""
        assert self.checkpoint is not None
        self.disk = self.disk or DiskStore(self.checkpoint.codes_folder)
        for offset, parts in ((0, self.parts), (len(self.parts), self.former)):
            for index, part in parts.items():
                self.disk.put(offset + index, self.cluster.fetch(self.cluster.submit(without_summary, part)))
        return self.disk.snapshot()

    def protect(self) -> None:
        """Hold what was written against being overwritten."""
        assert self.disk is not None
        self.disk.protect()

    def take_up(
        self, checkpoint: Checkpoint, named: dict[str, str], state: LearningState, like: Array, n_parts: int
    ) -> LearningState:
        """Return a former run's state and send its codes to the workers; the state as it is where there is none."""
        found = checkpoint.load(named, like)
        if found is None:
            return state
        state, self.disk = found
        assert self.disk is not None
        sent = {index: self.cluster.submit(same, self.disk.get(index)) for index in self.disk.indices()}
        self.parts = {index: part for index, part in sent.items() if index < n_parts}
        self.former = {index - n_parts: part for index, part in sent.items() if index >= n_parts}
        return state

    def collect(self, order: NDArray[Any] | None, sizes: list[int], gather: bool) -> Any:
        """Return all codes, samples last: here in the user's order, or as a dask.array in the workers' order."""
        futures = [self.cluster.submit(codes_of, self.parts[index]) for index in sorted(self.parts)]
        if gather:
            codes = np.concatenate(self.cluster.fetch(futures), -1)
            return codes if order is None else codes[..., np.argsort(order)]
        import dask.array as da

        first = self.cluster.fetch(self.cluster.submit(shape_of, futures[0]))
        blocks = [
            da.from_delayed(future, (*first[0][:-1], size), dtype=first[1])
            for future, size in zip(futures, sizes, strict=True)
        ]
        codes = da.concatenate(blocks, -1)
        return codes if order is None else codes[..., np.argsort(order)]


def _sweep(
    model: Any, state: LearningState, collection: _Remote, weights: Weights, code_solver: Any, store: _RemoteStore,
    keep: Any,
) -> Tally:  # fmt: skip
    """Code all partitions at once against the present codes of the others; return what they tally together.

    With a graph each round starts from codes pushed on along their last movement (Nesterov's idea, which the
    separable majoriser needs badly where many edges cross); a sweep that raised the objective for it is made again
    without, from where it began.
    """
    if state.finishing and not collection.ties:
        store.parts = {}  # images that nothing ties are coded afresh at the end, as coding them later will
    began = dict(store.parts)
    total = _rounds(model, state, collection, weights, code_solver, store, PUSH)
    if collection.ties and state.objective and total.objective > state.objective[-1]:
        store.parts, store.former = began, {}
        total = _rounds(model, state, collection, weights, code_solver, store, 0.0)
    return total


def _rounds(
    model: Any, state: LearningState, collection: _Remote, weights: Weights, code_solver: Any, store: _RemoteStore,
    push: float,
) -> Tally:  # fmt: skip
    """Share the solver's steps out over rounds, codes exchanged between: so news of neighbours travels further."""
    cluster = collection.cluster
    dictionary = cluster.submit(same, state.dictionary)
    rounds = ROUNDS if collection.ties else 1
    solver = replace(code_solver, max_iter=-(-code_solver.max_iter // rounds))
    for _ in range(rounds):
        if collection.ties and store.former and push > 0.0:
            pairs = {index: (part, store.former[index]) for index, part in store.parts.items()}
            starts = {index: cluster.submit(pushed, *pair, push) for index, pair in pairs.items()}
        else:
            starts = dict(store.parts)
        edges = store.exchange(collection, starts)
        store.former = dict(store.parts) if collection.ties else {}
        store.parts = {
            index: cluster.submit(
                code_part, model, dictionary, weights, solver, collection.tensors[index], starts.get(index),
                collection.ties_of(index), edges[index],
            )
            for index in range(collection.n_chunks)
        }  # fmt: skip
    edges = store.exchange(collection, store.parts)
    tallies = [
        cluster.submit(tally_part, index, part, weights, collection.ties_of(index), edges[index])
        for index, part in store.parts.items()
    ]
    total: Tally = cluster.reduce(tallies)
    return total
