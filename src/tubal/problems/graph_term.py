"""The graph's part of a coding problem: ``α Tr(B L Bᵀ)``, its gradient, energy and shifted systems."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from tubal.backends.arrays import Array, as_like, is_torch, machine_epsilon, namespace, sparse_like
from tubal.backends.cpu import graph_coding as kernels
from tubal.backends.cpu.coding import LANES
from tubal.backends.threads import own_threads, parallel_ranges
from tubal.graph import laplacian_norm

# Neighbours that a kernel reads side by side.
BUNDLE = 4
# Rates of Jacobi's method are worked out for shifts that lie so far apart, by so many power steps.
RATE_GRID, POWER_STEPS = 1.1, 10


class SharedLaplacian:
    """A Laplacian and what follows from it alone, worked out once for all problems that share it."""

    def __init__(self, laplacian: Any) -> None:
        self.matrix = sp.csr_array(laplacian)
        self.kept: dict[Any, Any] = {}  # what a backend derives from it, by a key of its own
        self._rates: dict[int, float] = {}

    @cached_property
    def between(self) -> np.ndarray:
        """Which entries lie off the diagonal."""
        rows = np.repeat(np.arange(self.matrix.shape[0]), np.diff(self.matrix.indptr))
        return np.asarray(self.matrix.indices != rows)

    @cached_property
    def ties(self) -> bool:
        """Whether two images of the batch depend on each other; new images tie to fixed ones only."""
        return bool((self.matrix.data[self.between] != 0).any())

    def jacobi_rate(self, shift: float) -> float:
        """Return a bound below one on the share of an error that a Jacobi step of ``L + shift`` leaves.

        For weights that are not negative, that share is the spectral radius of ``(E + shift)⁻¹ W``, with E the diagonal
        and W minus the rest: at most the largest quotient ``(W v) / ((E + shift) v)`` for any positive v (Collatz and
        Wielandt), which power steps make smaller. It falls with the shift, so the next lower one of a grid will do.
        """
        level = int(np.floor(np.log(shift) / np.log(RATE_GRID)))
        if level not in self._rates:
            self._rates[level] = self._bounded_rate(RATE_GRID**level)
        return self._rates[level]

    def _bounded_rate(self, shift: float) -> float:
        matrix = self.matrix.astype(np.float64)
        diagonal = matrix.diagonal()
        vector, bound = np.ones(matrix.shape[0]), 1.0 - 1e-9
        for _ in range(POWER_STEPS):
            after = (diagonal * vector - matrix @ vector) / (diagonal + shift)
            bound = min(bound, float((after / vector).max(initial=0.0)))
            vector = np.maximum(after, 1e-9 * vector)
        return max(bound, 0.0)


class GraphTerm:
    """``weight (Tr(B L Bᵀ) - 2 <B, neighbor_sum>)``: smoothness within a batch, pull of fixed codes outside it.

    ``laplacian`` is a sparse matrix, or one made ready for several problems in turn.
    """

    def __init__(self, laplacian: Any, weight: float, neighbor_sum: Array | None = None) -> None:
        self.shared = laplacian if isinstance(laplacian, SharedLaplacian) else SharedLaplacian(laplacian)
        self.laplacian, self.ties = self.shared.matrix, self.shared.ties
        self.weight = float(weight)
        self.neighbor_sum = neighbor_sum

    def _matrix_like(self, codes: Array) -> Any:
        """Return the Laplacian as a sparse tensor, sent to the device once."""
        key = codes.dtype, codes.device
        if key not in self.shared.kept:
            self.shared.kept[key] = sparse_like(self.laplacian, codes)
        return self.shared.kept[key]

    @cached_property
    def lipschitz(self) -> float:
        """``2 α ||L||₂``."""
        return 2.0 * self.weight * laplacian_norm(self.laplacian)

    def bundles(self, dtype: Any) -> tuple[np.ndarray, ...]:
        """Return L for the kernels, neighbours in bundles of four; worked out once for all problems that share it."""
        if dtype not in self.shared.kept:
            self.shared.kept[dtype] = _in_bundles(self.shared, dtype)
        kept: tuple[np.ndarray, ...] = self.shared.kept[dtype]
        return kept

    def add_pull(self, linear: Array) -> Array:
        """Add ``2 α neighbor_sum``, the pull of fixed neighbours."""
        return linear if self.neighbor_sum is None else linear + 2.0 * self.weight * self.neighbor_sum

    def product(self, codes: Array) -> Array:
        """Return ``2 α B L`` (L is symmetric)."""
        rows = codes.reshape(-1, codes.shape[-1])
        if is_torch(codes):
            return 2.0 * self.weight * (self._matrix_like(codes) @ rows.T).T.reshape(codes.shape)
        from tubal.backends.cpu.graph_coding import multiply_by_graph

        graph, scale = self.bundles(codes.dtype), codes.dtype.type(2.0 * self.weight)
        product = np.empty_like(rows)
        _over_slabs(lambda start, stop: multiply_by_graph(rows, graph, scale, start, stop, product), len(rows))
        return product.reshape(codes.shape)

    def energies(self, codes: Array) -> tuple[Array, Array]:
        """Return each image's share of ``Tr(B L Bᵀ)`` and of ``<B, neighbor_sum>``."""
        axes = tuple(range(codes.ndim - 1))
        if is_torch(codes):
            by_sample = codes.reshape(-1, codes.shape[-1]).T.contiguous()  # a sparse product likes them so
            energy = (by_sample * (self._matrix_like(codes) @ by_sample)).sum(1)
        else:
            energy = self._energies(codes.reshape(-1, codes.shape[-1]))
        pull = 0.0 * energy if self.neighbor_sum is None else (codes * self.neighbor_sum).sum(axes)
        return energy, pull

    def _energies(self, rows: np.ndarray) -> np.ndarray:
        """Return each image's share of ``Tr(B L Bᵀ)``, in double precision, without forming ``B L``."""
        from tubal.backends.cpu.graph_coding import graph_energies

        graph = self.bundles(rows.dtype)

        def work(start: int, stop: int) -> np.ndarray:
            found = np.zeros(rows.shape[1])
            graph_energies(rows, graph, start, stop, found)
            return found

        return np.asarray(np.sum(_over_slabs(work, len(rows)), 0))

    def solve(self, right: Array, shifts: Array) -> Array:
        """Solve ``b (2 α L + shift) = right`` for every coefficient row; ``shifts`` is ``right.shape[:-1]``.

        Jacobi-preconditioned conjugate gradients, all rows side by side, to the rounding unit.
        """
        xp = namespace(right)
        shifts = as_like(shifts, right)[..., None]
        diagonal = 2.0 * self.weight * as_like(self.laplacian.diagonal(), right)
        if not self.ties:  # a diagonal system: no image may feel another, so no iteration
            return right / (diagonal + shifts)
        conditioner = 1.0 / (diagonal + shifts)
        solution = right * conditioner
        residual = right - self.product(solution) - shifts * solution
        conditioned = residual * conditioner
        direction, energy = conditioned, (residual * conditioned).sum(-1)
        floor = ((right**2) * conditioner).sum(-1) * (4.0 * machine_epsilon(right)) ** 2
        for _ in range(10 * right.shape[-1] + 10):
            open_rows = energy > floor
            if not bool(open_rows.any()):
                break
            product = self.product(direction) + shifts * direction
            curvature = (direction * product).sum(-1)
            length = xp.where(open_rows & (curvature > 0), energy / xp.where(curvature > 0, curvature, 1.0), 0.0)
            solution = solution + length[..., None] * direction
            residual = residual - length[..., None] * product
            conditioned = residual * conditioner
            before, energy = energy, (residual * conditioned).sum(-1)
            push = xp.where(before > 0, energy / xp.where(before > 0, before, 1.0), 0.0)
            direction = conditioned + push[..., None] * direction
        return solution


def _over_slabs(work: Callable[[int, int], Any], n_rows: int) -> list[Any]:
    """Run ``work(start, stop)`` over slabs of coefficient rows by threads."""
    from tubal.backends.cpu.coding import LANES

    with own_threads() as threads:
        return parallel_ranges(work, -(-n_rows // LANES), grain=1, threads=threads)


def _in_bundles(shared: SharedLaplacian, dtype: Any) -> tuple[np.ndarray, ...]:
    """Return where each image's bundles start, the neighbours and weights in them (bundle, 4), and the diagonal.

    An image has one bundle at least; places left over hold the image itself, at weight zero.

    >>> path = sp.csr_array(np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]))
    >>> starts, neighbors, weights, diagonal = _in_bundles(SharedLaplacian(path), np.float64)
    >>> starts.tolist(), neighbors[1].tolist(), weights[1].tolist(), diagonal.tolist()
    ([0, 1, 2, 3], [0, 2, 1, 1], [-1.0, -1.0, 0.0, 0.0], [1.0, 2.0, 1.0])
    """
    matrix, between = shared.matrix, shared.between
    n_images = matrix.shape[0]
    rows = np.repeat(np.arange(n_images), np.diff(matrix.indptr))[between]
    columns, values = matrix.indices[between], matrix.data[between]
    degrees = np.bincount(rows, minlength=n_images)
    n_bundles = np.maximum(1, -(-degrees // BUNDLE))
    starts = np.concatenate([[0], np.cumsum(n_bundles)])
    neighbors = np.repeat(np.arange(n_images), n_bundles)[:, None] + np.zeros(BUNDLE, np.int64)
    weights = np.zeros(neighbors.shape, dtype)
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    where = starts[rows] + rank // BUNDLE, rank % BUNDLE
    neighbors[where], weights[where] = columns, values
    return starts, neighbors, weights, matrix.diagonal().astype(dtype)


# A solve leaves at most this share of the error it begins with, where the last one ended. The error then shrinks with
# the iteration's own movement, so the splitting converges as with exact solves; the first solve has no such help.
REDUCTION, FIRST_REDUCTION = 1e-2, 1e-5
MOST_STEPS = 1000


def sweeps(graph: GraphTerm, shifts: Any, reduction: float) -> tuple[Any, Any]:
    """Return Jacobi's rate for every slab of ``shifts`` (slab, lane), and how many steps shrink an error so far."""
    rates = np.array([graph.shared.jacobi_rate(float(shift) / (2.0 * graph.weight)) for shift in shifts.min(1)])
    with np.errstate(divide="ignore"):  # a rate of zero: one step solves
        counts = np.ceil(np.arccosh(1.0 / reduction) / np.arccosh(1.0 / rates))
    return rates, np.clip(counts, 1, MOST_STEPS).astype(np.int64)


def slab_rows(shifts: Any) -> Any:
    """Return which coefficient row each lane holds, (slab, LANES): similar shifts together: the least sets the steps.

    Lanes that pad the last slab hold its last row once more.
    """
    n_slabs = -(-shifts.size // LANES)
    order = np.argsort(shifts, kind="stable")
    return np.concatenate([order, np.full(n_slabs * LANES - order.size, order[-1])]).reshape(n_slabs, LANES)


class WarmSystems:
    """Systems ``b (2 α L + shift) = right``, one a coefficient row; each solve starts where the last one ended.

    Rows are kept in slabs of similar shifts, as :mod:`tubal.backends.cpu.graph_coding` wants them.
    """

    def __init__(self, graph: GraphTerm) -> None:
        self.graph = graph
        self.solution: Any = None

    def _open(self, shifts: Any, right: Any) -> None:
        self.rows = slab_rows(shifts)
        self.shifts = shifts[self.rows].astype(right.dtype)
        self.bundles = self.graph.bundles(right.dtype)
        self.solution = np.zeros((len(self.rows), right.shape[-1], LANES), right.dtype)
        self.right = np.empty_like(self.solution)
        self.first, self.later = (sweeps(self.graph, self.shifts, least) for least in (FIRST_REDUCTION, REDUCTION))

    def solve(self, right: Any, shifts: Any) -> Any:
        """Return the solution of ``right`` (..., sample), closer by ``REDUCTION``; shifts are the same every time."""
        opening = self.solution is None
        if opening:
            self._open(np.asarray(shifts).reshape(-1), right)
        rates, counts = self.first if opening else self.later
        flat = np.ascontiguousarray(right).reshape(-1, right.shape[-1])
        solved, scale = np.empty_like(flat), right.dtype.type(2.0 * self.graph.weight)

        def work(start: int, stop: int) -> None:
            held = self.rows[start:stop]
            kernels.to_slabs(flat, held, self.right[start:stop])
            kernels.solve_graph_systems(
                self.bundles, scale, self.shifts, rates, counts, self.right, start, stop, self.solution
            )
            kernels.from_slabs(self.solution[start:stop], held, solved)

        with own_threads() as threads:
            parallel_ranges(work, len(self.rows), grain=1, threads=threads)
        return solved.reshape(right.shape)
