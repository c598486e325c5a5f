"""The parts of a Dask cluster that a fit uses: tasks, images in partitions, and codes that stay on the workers."""

from __future__ import annotations

import hashlib
import itertools
import operator
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tubal.backends.arrays import Array
from tubal.distributed.tasks import (
    PartitionEdges,
    codes_at,
    codes_of,
    constant,
    digest_of,
    shape_and_type,
    take_columns,
    without_summary,
)
from tubal.learning.alternation import Collection, Indices, LearningState
from tubal.learning.checkpoints import Checkpoint
from tubal.learning.disk_store import DiskStore

if TYPE_CHECKING:
    import dask.array as da
    from scipy import sparse

    from distributed import Client, Future


class Cluster:
    """Submits pure tasks under unique names and fetches their results."""

    def __init__(self, client: Client) -> None:
        self.client, self.token, self.numbers = client, uuid.uuid4().hex[:8], itertools.count()

    def submit(self, work: Callable[..., object], *arguments: object) -> Future:
        """Start a task; arguments that are futures stand for their results."""
        name = f"tubal-{work.__name__.strip('_')}-{self.token}-{next(self.numbers)}"
        return self.client.submit(work, *arguments, key=name, pure=False)

    def fetch(self, futures: Future | list[Future]) -> Any:
        """Wait for the result of a task, or of several."""
        return self.client.gather(futures)

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
        return self.cluster.fetch(self.cluster.submit(codes_of, self.parts[index]))

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
        futures = [self.cluster.submit(codes_of, self.parts[index]) for index in sorted(self.parts)]
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
