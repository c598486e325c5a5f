"""Coding problems of linear maps with a graph term: the base class of all models.

:class:`LinearMapCoding` minimises ``1/2 ||X - map(B)||² + α Tr(B L Bᵀ) + β ||B||₁`` for a map that a subclass defines.
:class:`GraphTerm` is the second term: gradient, energies, and the systems ``b (2 α L + shift) = right``, one for each
coefficient row b of the codes. They are solved by conjugate gradients to rounding precision (:meth:`GraphTerm.solve`)
or, inside ADMM, by a few warm-started Chebyshev steps (:class:`WarmStartedSystems`).
:class:`TubalMap` is the map of the tubal models in the real Fourier basis.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.sparse.csgraph import connected_components

from tubal.backends.arrays import (
    Array,
    adjoint,
    as_complex,
    as_double,
    as_like,
    constant_like,
    contiguous,
    gram_eigh,
    is_torch,
    machine_epsilon,
    namespace,
    new_zeros,
    own_threads,
    parallel_ranges,
    rfft,
    sparse_like,
    to_numpy,
    to_numpy_together,
)
from tubal.backends.cpu import coding as kernels
from tubal.backends.cpu.coding import BUNDLE, LANES
from tubal.graph import laplacian_norm
from tubal.problems.base import CodingProblem, Dictionary, ImageModel, Laplacian, ModelStatistics, SplitState, Summary

# Convergence rates of Jacobi's method are computed for shifts on a geometric grid with this ratio, by this many power
# iterations each.
RATE_GRID, POWER_STEPS = 1.1, 10
# Every solve reduces the error of its warm start, the last solution, by at least this factor. The error then decreases
# together with the changes of ADMM, so ADMM converges as with exact solves. The first solve has no warm start.
WARM_REDUCTION, FIRST_REDUCTION = 1e-2, 1e-5
# Solves that correct a dual point need two digits: the correction itself is small.
CORRECTION_REDUCTION = 1e-2
MAX_SWEEPS = 1000

# First bundle of every image, neighbours (bundle, 4), weights (bundle, 4) and diagonal of L, for the kernels.
Bundles: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any], NDArray[Any]]
Value = TypeVar("Value")
Result = TypeVar("Result")


# --- the coding problem -----------------------------------------------------------------------------------------------
class LinearMapCoding(CodingProblem):
    """The coding problem of a linear map from codes to images, with or without a graph.

    It minimises ``1/2 ||X - map(B)||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁`` over the codes B. A subclass says
    what ``codes_shape``, ``reconstruct`` (the map), ``correlate`` (its adjoint), ``map_norm``, ``solve_shifted`` and
    ``statistics`` are. With a graph, ``solve_shifted`` uses :meth:`solve_rows` for the systems in the Laplacian.

    Parameters
    ----------
    dictionary : array or tuple of arrays
        The atoms, as the model stores them.
    data : array of shape (..., n_images)
        The images as the layout of the model arranges them, samples last.
    sparsity : float
        Weight of the l1 penalty (the paper's β).
    graph_weight : float, default=0.0
        Weight of the graph term (the paper's α).
    laplacian : matrix of shape (n_images, n_images), optional
        Graph Laplacian of the batch. Its degrees may count edges to images outside the batch.
    neighbor_sum : array of shape codes_shape, optional
        Weighted sum of the codes of neighbours outside the batch, which are fixed.

    Attributes
    ----------
    graph : GraphTerm or None
        The graph term; None without a graph.
    """

    # Images that one thread codes at a time without a graph, so that they stay in the cache.
    block_size = 64

    def __init__(
        self,
        dictionary: Dictionary,
        data: Array,
        *,
        sparsity: float,
        graph_weight: float = 0.0,
        laplacian: SharedLaplacian | Laplacian | None = None,
        neighbor_sum: Array | None = None,
    ) -> None:
        self.dictionary, self.data, self.sparsity = dictionary, data, float(sparsity)
        with_graph = graph_weight > 0.0 and laplacian is not None
        self.graph = GraphTerm(laplacian, graph_weight, neighbor_sum) if with_graph else None
        self.independent = self.graph is None or not self.graph.has_edges
        self._systems: WarmStartedSystems | None = None

    # --- what a model defines -----------------------------------------------------------------------------------------
    @abstractmethod
    def correlate(self, images: Array) -> Array:
        """Apply the adjoint of the map to images.

        Parameters
        ----------
        images : array of the shape of the data
            Any images.

        Returns
        -------
        array of shape codes_shape
            Inner products of the images with the atoms at all positions.
        """

    @abstractmethod
    def statistics(self, codes: Array) -> ModelStatistics:
        """Return the statistics of the first dictionary step.

        Parameters
        ----------
        codes : array of shape codes_shape
            Codes of the images of this problem.

        Returns
        -------
        Statistics
            An object of the model's own class.
        """

    @property
    @abstractmethod
    def map_norm(self) -> float:
        """Largest eigenvalue of the map's Gram operator (adjoint times map)."""

    # --- what follows from it -----------------------------------------------------------------------------------------
    @cached_property
    def linear(self) -> Array:
        """The adjoint applied to the images, plus the term of fixed neighbours."""
        correlation = self.correlate(self.data)
        return correlation if self.graph is None else self.graph.add_fixed_neighbors(correlation)

    @cached_property
    def lipschitz(self) -> float:
        """``map_norm + 2 α ||L||₂``. This is exact, because map and graph act on different axes of the codes."""
        return max(self.map_norm + (self.graph.lipschitz if self.graph else 0.0), np.finfo(np.float64).tiny)

    def zeros(self) -> Array:
        return new_zeros(self.codes_shape, self.data)

    @property
    def value_of_zeros(self) -> float:
        """The objective of codes that are all zero: half the squared norm of the data."""
        xp = namespace(self.data)
        return 0.5 * float(xp.sum(self.data * self.data, dtype=xp.float64))

    def hessian_product(self, codes: Array) -> Array:
        product = self.correlate(self.reconstruct(codes))
        return product if self.graph is None else product + self.graph.product(codes)

    def summary(self, codes: Array, *, statistics: bool = False) -> Summary:
        difference = as_double(self.data) - as_double(self.reconstruct(codes))
        residuals = (difference**2).sum(tuple(range(difference.ndim - 1)))
        xp = namespace(codes)
        absolutes = xp.sum(abs(codes), tuple(range(codes.ndim - 1)), dtype=xp.float64)
        return self._summarize(codes, residuals, absolutes, self.statistics(codes) if statistics else None)

    def _summarize(self, codes: Array, residuals: Array, absolutes: Array, statistics: ModelStatistics) -> Summary:
        """Add the graph term to each image's ``residual/2 + sparsity · l1``."""
        energies, fixed = self.graph.energies(codes) if self.graph else (0.0 * residuals, 0.0 * residuals)
        residual, absolute, energy, product = (
            np.asarray(term, np.float64) for term in to_numpy_together(residuals, absolutes, energies, fixed)
        )
        weight = self.graph.weight if self.graph is not None else 0.0
        values = 0.5 * residual + self.sparsity * absolute + weight * energy - 2.0 * weight * product
        return Summary(values, residual, absolute, statistics)

    def _square_completion(self) -> NDArray[np.float64] | float:
        """Return what completes the terms of fixed neighbours to a square, ``α ||sum||² / degree`` for each image."""
        if self.graph is None or self.graph.neighbor_sum is None:
            return 0.0
        fixed = self.graph.neighbor_sum
        squares = np.asarray(to_numpy((fixed**2).sum(tuple(range(fixed.ndim - 1)))), np.float64)
        # Row sums of L are the weights of the edges that leave the batch.
        degrees = np.asarray(self.graph.laplacian.sum(axis=1), np.float64).ravel()
        return self.graph.weight * squares / np.where(degrees > 0.0, degrees, np.inf)

    def _components(self) -> NDArray[np.intp]:
        """Return for each image the number of its connected component."""
        if self.graph is None or self.independent:
            return super()._components()
        return np.asarray(self.graph.shared.components, np.intp)

    def solve_rows(self, rows: Array, shifts: Array) -> Array:
        """Solve ``b (2 α L + shift) = row`` for every row; without a graph, divide by the shifts.

        Parameters
        ----------
        rows : array of shape (..., n_images)
            Right-hand sides.
        shifts : array of shape (...)
            Positive shifts, one per row.

        Returns
        -------
        array of shape (..., n_images)
            The solutions.
        """
        if self.graph is None:
            return rows / shifts[..., None]
        return self.graph.solve(rows, shifts) if self._systems is None else self._systems.solve(rows, shifts)

    def _nearly_solve_shifted(self, right: Array, shift: float) -> Array:
        if self.independent or self.graph is None or is_torch(self.data):
            return self.solve_shifted(right, shift)
        self._systems = WarmStartedSystems(self.graph, CORRECTION_REDUCTION)
        try:
            return self.solve_shifted(right, shift)
        finally:
            self._systems = None

    def restrict(self, start: int, stop: int) -> Self:
        """Return the same problem for images [start, stop); only used without a graph.

        Cached values are shared, except ``linear`` and ``_driver``. Override this if others depend on the images.

        Parameters
        ----------
        start, stop : int
            Range of images.

        Returns
        -------
        LinearMapCoding
            The smaller problem.
        """
        part = copy(self)
        part.data = self.data[..., start:stop]
        for name in ("linear", "_driver"):
            part.__dict__.pop(name, None)
        return part

    def select(self, images: NDArray[np.intp]) -> Self | None:
        if not self.independent or is_torch(self.data):  # tensors keep their shape, for which code was compiled
            return None
        part = self.restrict(0, 0)
        part.data = np.ascontiguousarray(self.data[..., images])
        if self.graph is not None:
            part.graph = self.graph.select(images)
        return part

    @contextmanager
    def _warm_started(self, state: SplitState) -> Iterator[WarmStartedSystems | None]:
        """Let :meth:`solve_rows` start at the solutions of the last step; yield the data to keep in the next state."""
        if self.independent or self.graph is None or is_torch(self.data):
            yield None
            return
        former = state.extra
        self._systems = former if isinstance(former, WarmStartedSystems) else WarmStartedSystems(self.graph)
        try:
            yield self._systems
        finally:
            self._systems = None

    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        # Without a graph, blocks of images are coded in several threads.
        steps = partial(CodingProblem.split, penalty=penalty, relaxation=relaxation, n_steps=n_steps, tol=tol)
        if self.graph is not None or is_torch(self.data) or self.codes_shape[-1] <= self.block_size:
            with self._warm_started(state) as systems:
                done = steps(self, state)
            return SplitState(done.point, done.movement, systems)
        blocks: dict[int, CodingProblem] = state.extra if isinstance(state.extra, dict) else {}

        def work(start: int, stop: int) -> SplitState:
            if start not in blocks:
                blocks[start] = self.restrict(start, stop)
            former = None if state.movement is None else state.movement[start:stop]
            return steps(blocks[start], SplitState(state.point[..., start:stop], former))

        with own_threads() as threads:
            parts = parallel_ranges(work, self.codes_shape[-1], grain=self.block_size, threads=threads)
        join = namespace(state.point).concatenate
        return SplitState(join([part.point for part in parts], -1), join([part.movement for part in parts], -1), blocks)


class LinearMapModel(ImageModel):
    """A model whose coding problem is a :class:`LinearMapCoding`.

    Attributes
    ----------
    coding_problem : type
        The subclass of :class:`LinearMapCoding` that defines the map.
    """

    coding_problem: ClassVar[type[LinearMapCoding]]

    def coding(
        self,
        dictionary: Dictionary,
        data: Array,
        *,
        sparsity: float,
        graph_weight: float = 0.0,
        laplacian: SharedLaplacian | Laplacian | None = None,
        neighbor_sum: Array | None = None,
    ) -> LinearMapCoding:
        return self.coding_problem(
            dictionary, data, sparsity=sparsity, graph_weight=graph_weight, laplacian=laplacian,
            neighbor_sum=neighbor_sum,
        )  # fmt: skip


# --- the graph term ---------------------------------------------------------------------------------------------------
class SharedLaplacian:
    """A graph Laplacian together with everything computed from it alone, shared by successive coding problems.

    Parameters
    ----------
    laplacian : sparse or dense matrix of shape (n_images, n_images)
        Symmetric. Its degrees may count edges to images outside the batch.
    """

    def __init__(self, laplacian: Laplacian) -> None:
        self.matrix = sp.csr_array(laplacian)
        self._cache: dict[Hashable, Any] = {}
        self._rates: dict[int, float] = {}

    def cached(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return ``make()``, computed once for each key; backends keep their form of the matrix here."""
        if key not in self._cache:
            self._cache[key] = make()
        value: Value = self._cache[key]
        return value

    @cached_property
    def off_diagonal(self) -> NDArray[np.bool_]:
        """Which stored entries lie off the diagonal."""
        rows = np.repeat(np.arange(self.matrix.shape[0]), np.diff(self.matrix.indptr))
        return np.asarray(self.matrix.indices != rows)

    @cached_property
    def has_edges(self) -> bool:
        """Whether any two images of the batch are connected. New images are connected to fixed ones only."""
        return bool((self.matrix.data[self.off_diagonal] != 0).any())

    @cached_property
    def components(self) -> NDArray[np.int32]:
        """The number of each image's connected component, (n_images,)."""
        return np.asarray(connected_components(self.matrix, directed=False)[1])

    def jacobi_rate(self, shift: float) -> float:
        """Return a bound below one on the factor by which a Jacobi step for ``L + shift`` reduces the error.

        For non-negative weights the factor is the spectral radius of ``(E + shift)⁻¹ W``, with E the diagonal of L and
        W = E - L. It is at most the largest quotient ``(W v) / ((E + shift) v)`` for any positive v (Collatz and
        Wielandt), and power iterations make that quotient smaller. The factor decreases as the shift grows, so the next
        lower shift of the grid gives a valid bound.
        """
        level = int(np.floor(np.log(shift) / np.log(RATE_GRID)))
        if level not in self._rates:
            self._rates[level] = self._rate_bound(RATE_GRID**level)
        return self._rates[level]

    def _rate_bound(self, shift: float) -> float:
        matrix = self.matrix.astype(np.float64)
        diagonal = matrix.diagonal()
        vector, bound = np.ones(matrix.shape[0]), 1.0 - 1e-9
        for _ in range(POWER_STEPS):
            after = (diagonal * vector - matrix @ vector) / (diagonal + shift)
            bound = min(bound, float((after / vector).max(initial=0.0)))
            vector = np.maximum(after, 1e-9 * vector)
        return max(bound, 0.0)


class GraphTerm:
    """``weight · (Tr(B L Bᵀ) - 2 <B, neighbor_sum>)``: smoothness within a batch, and edges to fixed codes outside it.

    Parameters
    ----------
    laplacian : matrix of shape (n_images, n_images) or SharedLaplacian
        The Laplacian of the batch.
    weight : float
        The paper's α.
    neighbor_sum : array of the shape of the codes, optional
        Weighted sum of the codes of neighbours outside the batch, which are fixed.
    """

    def __init__(
        self, laplacian: SharedLaplacian | Laplacian, weight: float, neighbor_sum: Array | None = None
    ) -> None:
        self.shared = laplacian if isinstance(laplacian, SharedLaplacian) else SharedLaplacian(laplacian)
        self.laplacian, self.has_edges = self.shared.matrix, self.shared.has_edges
        self.weight = float(weight)
        self.neighbor_sum = neighbor_sum

    def select(self, images: NDArray[np.intp]) -> GraphTerm:
        """Return the term of some images that have no edges to the others."""
        fixed = None if self.neighbor_sum is None else self.neighbor_sum[..., images]
        return GraphTerm(self.laplacian[images][:, images], self.weight, fixed)

    @cached_property
    def lipschitz(self) -> float:
        """Lipschitz constant of the gradient, ``2 α ||L||₂``."""
        return 2.0 * self.weight * laplacian_norm(self.laplacian)

    def bundles(self, dtype: DTypeLike) -> Bundles:
        """Return L as the kernels read it: neighbours in bundles of four."""
        return self.shared.cached(np.dtype(dtype), lambda: _in_bundles(self.shared, dtype))

    def _sparse_tensor(self, codes: Array) -> Array:
        """Return L as a sparse tensor, sent to the device once."""
        return self.shared.cached((codes.dtype, codes.device), lambda: sparse_like(self.laplacian, codes))

    def _sparse_array(self, codes: NDArray[Any]) -> sp.csr_array:
        """Return L in the type of the codes."""
        return self.shared.cached(("csr", codes.dtype), lambda: self.laplacian.astype(codes.dtype))

    def add_fixed_neighbors(self, linear: Array) -> Array:
        """Return ``linear + 2 α neighbor_sum``, the linear term with the neighbours whose codes are fixed."""
        return linear if self.neighbor_sum is None else linear + 2.0 * self.weight * self.neighbor_sum

    def product(self, codes: Array) -> Array:
        """Return ``2 α B L`` for codes (..., image)."""
        rows = codes.reshape(-1, codes.shape[-1])
        if is_torch(codes):
            return 2.0 * self.weight * (self._sparse_tensor(codes) @ rows.T).T.reshape(codes.shape)
        matrix, product = self._sparse_array(rows), np.empty_like(rows)

        def work(part: slice) -> None:
            np.multiply((matrix @ _by_image(rows[part])).T, codes.dtype.type(2.0 * self.weight), out=product[part])

        _over_slabs(work, len(rows))
        return product.reshape(codes.shape)

    def energies(self, codes: Array) -> tuple[Array, Array]:
        """Return each image's part of ``Tr(B L Bᵀ)`` and of ``<B, neighbor_sum>``, both of shape (image,)."""
        if is_torch(codes):
            by_sample = codes.reshape(-1, codes.shape[-1]).T.contiguous()  # the fast order for a sparse product
            energy = (by_sample * (self._sparse_tensor(codes) @ by_sample)).sum(1)
        else:
            energy = self._energies(codes.reshape(-1, codes.shape[-1]))
        if self.neighbor_sum is None:
            return energy, 0.0 * energy
        return energy, (codes * self.neighbor_sum).sum(tuple(range(codes.ndim - 1)))

    def _energies(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return each image's part of ``Tr(B L Bᵀ)`` in double precision, without forming ``B L``."""
        matrix = self._sparse_array(rows)

        def work(part: slice) -> NDArray[Any]:
            vectors = _by_image(rows[part])
            return np.asarray(np.einsum("il,il->i", vectors, matrix @ vectors))

        return np.asarray(np.sum(_over_slabs(work, len(rows)), axis=0, dtype=np.float64))

    def solve(self, right: Array, shifts: Array) -> Array:
        """Solve ``b (2 α L + shift) = right`` for every coefficient row, to rounding precision.

        ``right`` is (..., image) and ``shifts`` (...). The method is conjugate gradients with a Jacobi preconditioner,
        for all rows side by side.
        """
        xp = namespace(right)
        shifts = as_like(shifts, right)[..., None]
        diagonal = 2.0 * self.weight * as_like(self.laplacian.diagonal(), right)
        if not self.has_edges:  # a diagonal system; solved directly, so that no image affects another
            return right / (diagonal + shifts)
        conditioner = 1.0 / (diagonal + shifts)
        solution = right * conditioner
        residual = right - self.product(solution) - shifts * solution
        conditioned = residual * conditioner
        direction, energy = conditioned, (residual * conditioned).sum(-1)
        floor = ((right**2) * conditioner).sum(-1) * (4.0 * machine_epsilon(right)) ** 2
        for _ in range(10 * right.shape[-1] + 10):
            unsolved = energy > floor
            if not bool(unsolved.any()):
                break
            product = self.product(direction) + shifts * direction
            curvature = (direction * product).sum(-1)
            length = xp.where(unsolved & (curvature > 0), energy / xp.where(curvature > 0, curvature, 1.0), 0.0)
            solution = solution + length[..., None] * direction
            residual = residual - length[..., None] * product
            conditioned = residual * conditioner
            before, energy = energy, (residual * conditioned).sum(-1)
            push = xp.where(before > 0, energy / xp.where(before > 0, before, 1.0), 0.0)
            direction = conditioned + push[..., None] * direction
        return solution


def _over_slabs(work: Callable[[slice], Result], n_rows: int) -> list[Result]:
    """Run ``work`` on slabs of coefficient rows, in several threads; return the results in order."""
    slabs = [slice(first, first + LANES) for first in range(0, n_rows, LANES)]
    with own_threads() as threads:
        parts = parallel_ranges(
            lambda start, stop: [work(part) for part in slabs[start:stop]], len(slabs), grain=1, threads=threads
        )
    return [result for part in parts for result in part]


def _by_image(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows (row, image) as (image, row) in memory, the fast order for a sparse product."""
    return np.ascontiguousarray(rows.T)


def _in_bundles(shared: SharedLaplacian, dtype: DTypeLike) -> Bundles:
    """Return the first bundle of each image, neighbours and weights in bundles (bundle, 4), and the diagonal.

    Every image has at least one bundle. Unused places hold the image itself, with weight zero.

    >>> path = sp.csr_array(np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]))
    >>> starts, neighbors, weights, diagonal = _in_bundles(SharedLaplacian(path), np.float64)
    >>> starts.tolist(), neighbors[1].tolist(), weights[1].tolist(), diagonal.tolist()
    ([0, 1, 2, 3], [0, 2, 1, 1], [-1.0, -1.0, 0.0, 0.0], [1.0, 2.0, 1.0])
    """
    matrix, off_diagonal = shared.matrix, shared.off_diagonal
    n_images = matrix.shape[0]
    rows = np.repeat(np.arange(n_images), np.diff(matrix.indptr))[off_diagonal]
    columns, values = matrix.indices[off_diagonal], matrix.data[off_diagonal]
    degrees = np.bincount(rows, minlength=n_images)
    n_bundles = np.maximum(1, -(-degrees // BUNDLE))
    starts = np.concatenate([[0], np.cumsum(n_bundles)])
    neighbors = np.repeat(np.arange(n_images), n_bundles)[:, None] + np.zeros(BUNDLE, np.int64)
    weights = np.zeros(neighbors.shape, dtype)
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    where = starts[rows] + rank // BUNDLE, rank % BUNDLE
    neighbors[where], weights[where] = columns, values
    return starts, neighbors, weights, matrix.diagonal().astype(dtype)


# --- warm-started systems ---------------------------------------------------------------------------------------------
def chebyshev_schedule(
    graph: GraphTerm, shifts: NDArray[Any], reduction: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return Jacobi rate and number of steps that reach ``reduction``, for every slab of ``shifts`` (slab, lane)."""
    rates = np.array([graph.shared.jacobi_rate(float(shift) / (2.0 * graph.weight)) for shift in shifts.min(1)])
    with np.errstate(divide="ignore"):  # with a rate of zero one step is exact
        counts = np.ceil(np.arccosh(1.0 / reduction) / np.arccosh(1.0 / rates))
    return rates, np.clip(counts, 1, MAX_SWEEPS).astype(np.int64)


def _rows_by_shift(shifts: NDArray[Any]) -> NDArray[np.int64]:
    """Return which coefficient row each lane holds, (slab, LANES).

    Rows with similar shifts share a slab, because the smallest shift of a slab sets its number of steps. The padding
    lanes of the last slab repeat its last row.
    """
    n_slabs = -(-shifts.size // LANES)
    order = np.argsort(shifts, kind="stable")
    return np.concatenate([order, np.full(n_slabs * LANES - order.size, order[-1])]).reshape(n_slabs, LANES)


class WarmStartedSystems:
    """Systems ``b (2 α L + shift) = right``, one per coefficient row; each solve starts at the last solution.

    Parameters
    ----------
    graph : GraphTerm
        The graph term with at least one edge.
    first_reduction : float, optional
        Factor by which the first solve, which starts at zero, reduces the error.
    """

    def __init__(self, graph: GraphTerm, first_reduction: float | None = None) -> None:
        self.graph = graph
        self.first_reduction = FIRST_REDUCTION if first_reduction is None else first_reduction
        self.solution: NDArray[Any] | None = None

    def _prepare(self, shifts: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        """Sort the rows into slabs, and return a first solution of zeros."""
        self.rows = _rows_by_shift(shifts)
        self.shifts = shifts[self.rows].astype(right.dtype)
        self.bundles = self.graph.bundles(right.dtype)
        solution = np.zeros((len(self.rows), right.shape[-1], LANES), right.dtype)
        self.right = np.empty_like(solution)
        self.schedule = chebyshev_schedule(self.graph, self.shifts, WARM_REDUCTION)
        return solution

    def solve(self, right: NDArray[Any], shifts: ArrayLike) -> NDArray[Any]:
        """Return an approximate solution for ``right`` (..., image); ``shifts`` (...) must not change between calls."""
        if self.solution is None:
            self.solution = self._prepare(np.asarray(shifts).reshape(-1), right)
            rates, counts = chebyshev_schedule(self.graph, self.shifts, self.first_reduction)
        else:
            rates, counts = self.schedule
        slabs = self.solution
        flat = np.ascontiguousarray(right).reshape(-1, right.shape[-1])
        solved, scale = np.empty_like(flat), right.dtype.type(2.0 * self.graph.weight)

        def work(start: int, stop: int) -> None:
            held = self.rows[start:stop]
            kernels.to_slabs(flat, held, self.right[start:stop])
            kernels.solve_graph_systems(self.bundles, scale, self.shifts, rates, counts, self.right, start, stop, slabs)
            kernels.from_slabs(slabs[start:stop], held, solved)

        with own_threads() as threads:
            parallel_ranges(work, len(self.rows), grain=1, threads=threads)
        return solved.reshape(right.shape)


# --- the tubal map ----------------------------------------------------------------------------------------------------
# Arrays are tube-first, (tube, row, column), and tubes are expressed in an orthonormal real Fourier basis. A tube of
# length k has k real coefficients. For odd k the first one is the mean (the head), followed by pairs (cosine, sine).
# For even k the first pair is the mean and the alternating (Nyquist) coefficient. A t-product is then one small real
# matrix per pair, on a contiguous (2·rows, columns) block, and Parseval holds without weights. For short tubes of small
# images, a matrix product with the k × k basis is faster than an FFT, on a CPU as well as on a GPU.
@cache
def _basis(tube_length: int) -> NDArray[np.float64]:
    times = np.arange(tube_length)
    rows = [np.full(tube_length, np.sqrt(1.0 / tube_length))]
    if tube_length % 2 == 0:
        rows.append(np.sqrt(1.0 / tube_length) * (-1.0) ** times)
    for frequency in range(1, (tube_length + 1) // 2):
        angles = 2.0 * np.pi * ((frequency * times) % tube_length) / tube_length
        rows += [np.sqrt(2.0 / tube_length) * np.cos(angles), -np.sqrt(2.0 / tube_length) * np.sin(angles)]
    return np.array(rows)


def fourier_basis(tube_length: int, reference: Array) -> Array:
    """Return the orthonormal real Fourier basis (tube, tube), one basis vector per row, as an array like ``reference``.

    >>> basis = fourier_basis(6, np.zeros(1))
    >>> bool(np.allclose(basis @ basis.T, np.eye(6)))
    True
    """
    return constant_like(_basis, tube_length, reference)


def folded_basis(tube_length: int, reference: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the basis of even and that of odd tubes, for tubes folded at time zero (``tubal.backends.cpu.coding``).

    >>> basis, (even, odd) = fourier_basis(5, np.zeros(1)), folded_basis(5, np.zeros(1))
    >>> bool(np.allclose(even, basis[[0, 1, 3], :3]) and np.allclose(odd, basis[[2, 4], 1:3]))
    True
    """
    basis, n_head, half = _basis(tube_length), tube_length % 2, tube_length // 2
    order = [*range(n_head), *range(n_head, tube_length, 2), *range(n_head + 1, tube_length, 2)]
    even, odd = basis[order[: half + 1], : half + 1], basis[order[half + 1 :], 1 : tube_length - half]
    return np.ascontiguousarray(even, reference.dtype), np.ascontiguousarray(odd, reference.dtype)


def to_coefficients(tensor: Array) -> Array:
    """Return the real Fourier coefficients of a tube-first tensor, of the same shape."""
    flat = tensor.reshape(tensor.shape[0], -1)
    return (fourier_basis(tensor.shape[0], tensor) @ flat).reshape(tensor.shape)


def from_coefficients(coefficients: Array) -> Array:
    """Undo :func:`to_coefficients`."""
    flat = coefficients.reshape(coefficients.shape[0], -1)
    return (fourier_basis(coefficients.shape[0], coefficients).T @ flat).reshape(coefficients.shape)


@dataclass(frozen=True)
class BlockOperator:
    """A t-linear map in the real Fourier basis: one matrix for the head, one for each pair of coefficients."""

    head: Array  # (tube % 2, rows, inner)
    pairs: Array  # (tube // 2, 2·rows, 2·inner)

    def __matmul__(self, coefficients: Array) -> Array:
        """Apply the map to coefficients (tube, inner, columns)."""
        n_head, columns = self.head.shape[0], coefficients.shape[2]
        tail = coefficients[n_head:].reshape(self.pairs.shape[0], self.pairs.shape[2], columns)
        image = (self.pairs @ tail).reshape(-1, self.head.shape[1], columns)
        if n_head == 0:
            return image
        return namespace(image).concatenate([self.head @ coefficients[:n_head], image], 0)

    def compose(self, first: BlockOperator) -> BlockOperator:
        """Return the map that applies ``first`` and then this one."""
        return BlockOperator(self.head @ first.head, self.pairs @ first.pairs)

    @property
    def transpose(self) -> BlockOperator:
        """The adjoint map, with contiguous matrices."""
        xp = namespace(self.head)
        return BlockOperator(*(contiguous(xp.swapaxes(blocks, 1, 2)) for blocks in (self.head, self.pairs)))


def as_blocks(slices: Array, tube_length: int, reference: Array) -> BlockOperator:
    """Return the block operator of a map given by its complex half spectrum (frequency, rows, inner).

    A complex slice A + iB acts on (cosine; sine) coefficients as ``[[A, -B], [B, A]]``.
    """
    real, imag = slices.real, slices.imag
    n_head, (rows, inner) = tube_length % 2, slices.shape[1:]
    pairs = new_zeros((tube_length // 2, 2 * rows, 2 * inner), real)
    within, body = slice(1, (tube_length + 1) // 2), pairs[1 - n_head :]
    body[:, :rows, :inner] = body[:, rows:, inner:] = real[within]
    body[:, rows:, :inner] = imag[within]
    body[:, :rows, inner:] = -imag[within]
    if n_head == 0:
        pairs[0, :rows, :inner], pairs[0, rows:, inner:] = real[0], real[-1]
    return BlockOperator(contiguous(as_like(real[:n_head], reference)), contiguous(as_like(pairs, reference)))


def hermitian_parts(products: BlockOperator) -> Array:
    """Return real and imaginary parts (tube, rows, inner) of Hermitian products, each times the count of its bin.

    ``products`` holds the real products ``P Qᵀ`` of the coefficients of two tensors, summed over samples. For a pair,
    the real part of ``P̂ Q̂ᴴ`` is the sum of the two diagonal blocks, and the imaginary part is the difference of the
    other two. The mean and the Nyquist coefficient are real and are copied.
    """
    xp = namespace(products.pairs)
    rows, inner = products.head.shape[1], products.head.shape[2]
    pairs, n_nyquist = products.pairs, 1 - products.head.shape[0]
    ends, body = pairs[:n_nyquist], pairs[n_nyquist:]
    parts = [
        xp.stack([ends[:, :rows, :inner], ends[:, rows:, inner:]], 1),
        xp.stack([body[:, :rows, :inner] + body[:, rows:, inner:], body[:, rows:, :inner] - body[:, :rows, inner:]], 1),
    ]
    return xp.concatenate([products.head, xp.concatenate(parts, 0).reshape(-1, rows, inner)], 0)


def slices_from_parts(parts: Array, counts: Array) -> Array:
    """Return the complex half spectrum (frequency, rows, inner) of :func:`hermitian_parts`, divided by ``counts``."""
    xp, tube_length = namespace(parts), parts.shape[0]
    n_ends = 2 - tube_length % 2
    real, imag = (xp.empty((len(counts), *parts.shape[1:]), dtype=parts.dtype, device=parts.device) for _ in "ri")
    real[0], imag[0] = parts[0], 0.0
    if n_ends == 2:
        real[-1], imag[-1] = parts[1], 0.0
    inner = slice(1, (tube_length + 1) // 2)
    real[inner], imag[inner] = parts[n_ends::2], parts[n_ends + 1 :: 2]
    return as_complex(real / counts[:, None, None], imag / counts[:, None, None])


class SolveOperators(NamedTuple):
    """The minimiser of ``1/2 ||x - D b||² + penalty/2 ||b - v||²`` is ``v + back (x - D v)``.

    If D has few rows, ``narrow`` is set and ``forward`` is D; else ``forward`` is the product ``back D``, which is then
    smaller than both.
    """

    forward: BlockOperator
    back: BlockOperator
    narrow: bool


class TubalMap:
    """The map ``B -> D * B`` of one dictionary as block operators, each computed when it is first needed.

    Parameters
    ----------
    dictionary : array of shape (tube, row, atom)
        The atoms.
    reference : array
        Block operators have the library, type and device of this array; they are computed in double precision.
    on_host : bool, default=False
        Compute the spectrum of a tensor on the host, where small operations are faster. Without a graph the spectrum is
        needed on the device anyway, and copying it would mean waiting for the device.
    """

    def __init__(self, dictionary: Array, reference: Array, *, on_host: bool = False) -> None:
        self.dictionary, self.reference, self.on_host = dictionary, reference, on_host
        self.tube_length, self.n_rows, self.n_atoms = (int(size) for size in dictionary.shape)
        self._inverses: dict[float, BlockOperator] = {}
        self._solves: dict[float, SolveOperators] = {}

    @cached_property
    def dictionary_hat(self) -> Array:
        """Half spectrum of the atoms (frequency, row, atom)."""
        return rfft(as_double(self.dictionary), axis=0)

    @cached_property
    def _host_hat(self) -> Array:
        """``dictionary_hat`` as a NumPy array."""
        return rfft(as_double(to_numpy(self.dictionary)), axis=0) if is_torch(self.reference) else self.dictionary_hat

    @cached_property
    def gram_hat(self) -> Array:
        """``D̂ᴴ D̂`` for every frequency, (frequency, atom, atom)."""
        return adjoint(self.dictionary_hat) @ self.dictionary_hat

    def _blocks(self, slices: Array) -> BlockOperator:
        return as_blocks(slices, self.tube_length, self.reference)

    @cached_property
    def forward(self) -> BlockOperator:
        """The map D itself."""
        return self._blocks(self._host_hat if self.on_host else self.dictionary_hat)

    @cached_property
    def adjoint(self) -> BlockOperator:
        """Its adjoint Dᵀ."""
        return self.forward.transpose

    @cached_property
    def gram(self) -> BlockOperator:
        """The Gram operator ``DᵀD``."""
        return self._blocks(self.gram_hat)

    def shifted_inverse(self, penalty: float) -> BlockOperator:
        """Return ``penalty · (DᵀD + penalty)⁻¹``; the last one is cached."""
        if penalty not in self._inverses:
            xp = namespace(self.gram_hat)
            eye = as_double(xp.eye(self.n_atoms, device=self.gram_hat.device))
            self._inverses = {penalty: self._blocks(penalty * xp.linalg.inv(self.gram_hat + penalty * eye))}
        return self._inverses[penalty]

    def solve_operators(self, penalty: float) -> SolveOperators:
        """Return the operators of the exact solve in a step of ADMM; the last ones are cached."""
        if penalty not in self._solves:
            hat = to_numpy(self.dictionary_hat)
            if self.n_rows < self.n_atoms:  # DᵀD and DDᵀ give the same; the smaller matrix is inverted
                back = adjoint(hat) @ np.linalg.inv(hat @ adjoint(hat) + penalty * np.eye(self.n_rows))
            else:
                back = np.linalg.inv(adjoint(hat) @ hat + penalty * np.eye(self.n_atoms)) @ adjoint(hat)
            narrow = 2 * self.n_rows <= self.n_atoms
            forward = self.forward if narrow else self._blocks(back @ hat)
            self._solves = {penalty: SolveOperators(forward, self._blocks(back), narrow)}
        return self._solves[penalty]

    @cached_property
    def eigenbasis(self) -> tuple[BlockOperator, NDArray[np.float64]]:
        """Rotation into the eigenvectors of ``DᵀD``, and the eigenvalues (tube, atom) as a NumPy array."""
        values, vectors = gram_eigh(self._host_hat)
        half = (self.tube_length + 1) // 2
        # The frequency of every real coefficient: the ends first, then each inner one twice (cosine and sine).
        order = [0] if self.tube_length % 2 else [0, self.tube_length // 2]
        order += [frequency for frequency in range(1, half) for _ in (0, 1)]
        return self._blocks(adjoint(vectors)), values[order]
