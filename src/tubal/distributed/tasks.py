"""What the workers of a cluster compute: pure functions of their arguments, so that a lost result can be recomputed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tubal.backends.arrays import Array
from tubal.graph.neighbors import as_float_stack
from tubal.learning.alternation import ChunkCodes, Indices, PassTotals, Weights, code_chunk, digest_arrays
from tubal.learning.fitting import scale_images
from tubal.problems.base import Dictionary, ImageModel
from tubal.problems.layout import Layout
from tubal.problems.linear_map import GraphTerm
from tubal.solvers import CodeSolver

Value = TypeVar("Value")


# --- images --------------------------------------------------------------------------------------------------
def read_file(path: str) -> NDArray[Any]:
    """Return the images of a file."""
    if path.endswith(".npy"):
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    from tubal.datasets import load_images

    # Every partition is read alike, whatever its own pictures show.
    return np.asarray(load_images(path, crop="none").images)


def constant(value: Value) -> Value:
    """Return the value; as a task, it keeps the value on the cluster."""
    return value


def checked_stack(block: ArrayLike, as_stack: Callable[[Array], Array]) -> NDArray[Any]:
    """Return a block as a checked stack of images."""
    return np.asarray(as_stack(as_float_stack(block)))


def shape_and_type(block: NDArray[Any]) -> tuple[tuple[int, ...], str]:
    """Return the shape and the type of an array."""
    return block.shape, block.dtype.str


def largest_pixel(block: NDArray[Any]) -> float:
    """Return the largest absolute pixel."""
    return float(abs(block).max())


def scaled_stack(block: NDArray[Any], scale: str | None, factor: float) -> NDArray[Any]:
    """Return images scaled as in fitting."""
    return np.asarray(scale_images(block, scale, factor)[0])


def to_tensor(images: NDArray[Any], layout: Layout) -> Array:
    """Return images as a tensor, samples last."""
    return layout.to_tensor(images)


def take_columns(array: NDArray[Any], columns: Indices) -> NDArray[Any]:
    """Return some samples of a tensor."""
    return np.ascontiguousarray(array[..., columns])


def digest_of(array: NDArray[Any]) -> str:
    """Return a digest of a tensor."""
    return digest_arrays(array.shape, [array])


# --- codes ---------------------------------------------------------------------------------------------------
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

    moved = {
        field.name: moved_on(getattr(coded.state, field.name), getattr(former.state, field.name))
        for field in fields(coded.state)
    }
    return ChunkCodes(moved_on(coded.codes, former.codes), replace(coded.state, **moved))


def code_partition(
    model: ImageModel, dictionary: Dictionary, weights: Weights, code_solver: CodeSolver, data: Array,
    start: ChunkCodes | None, edges: PartitionEdges | None, received: list[Array], final: bool,
) -> ChunkCodes:  # fmt: skip
    """Code one partition; with a graph, minimise its part of the separable majoriser. ``start`` is not changed."""
    start = None if start is None else ChunkCodes(start.codes, copy.deepcopy(start.state))
    if edges is None:
        return code_chunk(model, dictionary, data, weights, code_solver, start=start, final=final)
    neighbor_sum = None
    if start is not None:
        neighbor_sum = edges.neighbor_sum(start.codes.shape, start.codes.dtype, received)
        neighbor_sum += edges.degrees.astype(neighbor_sum.dtype) * start.codes
    return code_chunk(
        model,
        dictionary,
        data,
        weights,
        code_solver,
        laplacian=edges.majoriser(),
        neighbor_sum=neighbor_sum,
        start=start,
        final=final,
    )


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


def codes_of(coded: ChunkCodes) -> Array:
    """Return the codes alone."""
    return coded.codes


def codes_at(coded: ChunkCodes, columns: Indices) -> Array:
    """Return the codes of some images."""
    return np.ascontiguousarray(coded.codes[..., columns])


def without_summary(coded: ChunkCodes) -> ChunkCodes:
    """Return codes and solver state alone."""
    return ChunkCodes(coded.codes, coded.state)
