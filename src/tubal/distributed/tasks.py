"""What the workers of a cluster compute: pure functions of their arguments, so that a lost result can be had again."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tubal.backends.arrays import Array
from tubal.estimators._base import scale_images
from tubal.estimators._validation import as_stack
from tubal.graph.neighbors import as_float_stack
from tubal.learning.alternation import Coded, Tally, Weights, code_chunk
from tubal.problems.graph_term import GraphTerm


def read_file(path: str) -> NDArray[Any]:
    """Return the images of a file."""
    if path.endswith(".npy"):
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    from tubal.datasets import load_images

    return np.asarray(load_images(path).images)


def same(value: Any) -> Any:
    """Return the value: a task that holds it."""
    return value


def add(left: Any, right: Any) -> Any:
    """Return the sum."""
    return left + right


def checked(block: Any, image_shape: Any) -> NDArray[Any]:
    """Return a block as a checked stack of images."""
    return np.asarray(as_stack(as_float_stack(block), image_shape))


def shape_of(block: NDArray[Any]) -> tuple[tuple[int, ...], str]:
    """Return shape and type."""
    return block.shape, block.dtype.str


def largest_pixel(block: NDArray[Any]) -> float:
    """Return the largest absolute pixel."""
    return float(abs(block).max())


def scaled(block: NDArray[Any], scale: Any, factor: float) -> NDArray[Any]:
    """Return images scaled."""
    return np.asarray(scale_images(block, scale, factor)[0])


def to_tensor(images: NDArray[Any], layout: Any) -> Array:
    """Return images as a tensor, samples last."""
    return layout.to_tensor(images)


def take_columns(array: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """Return some samples."""
    return np.ascontiguousarray(array[..., columns])


class Ties:
    """How one partition is tied: within itself, and to the images of others it needs the codes of."""

    def __init__(self, inner: Any, crossing: dict[int, tuple[NDArray[Any], Any]]) -> None:
        self.inner, self.crossing = inner, crossing
        self.degrees = sum(
            (np.asarray(block.sum(1)).ravel() for _, block in crossing.values()), np.zeros(inner.shape[0])
        )

    @classmethod
    def of(cls, matrix: Any, bounds: NDArray[Any], index: int) -> Ties:
        """Cut one partition's rows out of the Laplacian; weights are minus its entries."""
        rows = matrix[bounds[index] : bounds[index + 1]].tocsc()
        crossing = {}
        for other in range(len(bounds) - 1):
            columns = np.flatnonzero(np.diff(rows.indptr[bounds[other] : bounds[other + 1] + 1]))
            if other != index and len(columns):
                crossing[other] = (columns, sp.csr_matrix(-rows[:, bounds[other] + columns]))
        return cls(sp.csr_matrix(rows[:, bounds[index] : bounds[index + 1]]), crossing)

    def neighbor_sum(self, shape: tuple[int, ...], dtype: Any, edges: list[Any]) -> NDArray[Any]:
        """Return the weighted sum of the codes of neighbours in other partitions."""
        total = np.zeros((int(np.prod(shape[:-1])), shape[-1]), dtype)
        for (_, block), codes in zip(self.crossing.values(), edges, strict=True):
            total += (block @ codes.reshape(-1, codes.shape[-1]).T).T.astype(dtype, copy=False)
        return total.reshape(shape)

    def majorised(self) -> Any:
        """Return the Laplacian of the separable majoriser: edges that leave count twice at their own end."""
        return sp.csr_matrix(self.inner + sp.diags(self.degrees))


def pushed(coded: Coded, former: Coded, push: float) -> Coded:
    """Return codes and solver state moved on along the way they came."""

    def ahead(now: Any, before: Any) -> Any:
        moves = isinstance(now, np.ndarray) and now.shape == coded.codes.shape
        return now + now.dtype.type(push) * (now - before) if moves else now

    moved = {
        field.name: ahead(getattr(coded.state, field.name), getattr(former.state, field.name))
        for field in fields(coded.state)
    }
    return Coded(ahead(coded.codes, former.codes), replace(coded.state, **moved))


def code_part(
    model: Any, dictionary: Any, weights: Weights, code_solver: Any, data: Array, start: Coded | None,
    ties: Ties | None, edges: list[Any],
) -> Coded:  # fmt: skip
    """Code one partition; with a graph, its part of the separable majoriser. The start is left as it was."""
    start = None if start is None else Coded(start.codes, copy.deepcopy(start.state))
    if ties is None:
        return code_chunk(model, dictionary, data, weights, code_solver, start=start)
    pull = None
    if start is not None:
        pull = ties.neighbor_sum(start.codes.shape, start.codes.dtype, edges)
        pull += ties.degrees.astype(pull.dtype) * start.codes
    return code_chunk(
        model, dictionary, data, weights, code_solver, laplacian=ties.majorised(), neighbor_sum=pull, start=start
    )


def tally_part(index: int, coded: Coded, weights: Weights, ties: Ties | None, edges: list[Any]) -> Tally:
    """Tally one partition; an edge between partitions counts half at either end, at the new codes of both."""
    found = Tally.of(index, coded)
    if ties is None:
        return found
    summary = coded.summary
    assert summary is not None
    pull = ties.neighbor_sum(coded.codes.shape, coded.codes.dtype, edges)
    energies, pulls = GraphTerm(ties.inner, weights.graph_weight, pull).energies(coded.codes)
    alone = 0.5 * summary.residuals.sum() + weights.sparsity * summary.absolutes.sum()
    graph = weights.graph_weight * (float(energies.sum()) - float(pulls.sum()))
    return Tally(1, float(alone) + graph, found.nonzero, found.n_codes, found.statistics, found.worst, found.places)


def codes_of(coded: Coded) -> Array:
    """Return the codes alone."""
    return coded.codes


def codes_at(coded: Coded, columns: NDArray[Any]) -> Array:
    """Return the codes of some images."""
    return np.ascontiguousarray(coded.codes[..., columns])


def without_summary(coded: Coded) -> Coded:
    """Return codes and solver state alone."""
    return Coded(coded.codes, coded.state)
