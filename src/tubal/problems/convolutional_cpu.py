"""Convolutional coding on NumPy arrays, driven over images by compiled kernels and threads."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from tubal.backends.cpu import convolution as kernels
from tubal.backends.threads import own_threads, parallel_ranges

if TYPE_CHECKING:
    from tubal.problems.convolutional import ConvolutionalCoding


# Pixels of a filter, channels counted, beyond which Fourier transforms of every plane are cheaper than patches.
LARGEST_PATCH = 256


class CompiledConvolution:
    """Kernels bound to one convolutional coding problem; arrays here are (sample, plane, h, w)."""

    def __init__(self, problem: ConvolutionalCoding) -> None:
        self.problem = weakref.proxy(problem)  # which holds these kernels: its arrays must not outlive it
        self.dtype = problem.data.dtype
        down, across, n_channels, n_atoms = problem.dictionary.shape
        self.support = (down, across)
        flat = np.moveaxis(problem.dictionary, 2, 0).reshape(n_channels * down * across, n_atoms)
        self.filters = np.ascontiguousarray(flat, self.dtype)
        self.filters_t = np.ascontiguousarray(self.filters.T)
        self.n_samples = problem.codes_shape[-1]
        self._factors: dict[float, RowFactors] = {}
        self._linear: Any = None
        self._solved: Any = None

    def _over_images(self, work: Any) -> None:
        with own_threads() as threads:
            parallel_ranges(work, self.n_samples, grain=1, threads=threads)

    def _rows(self, planes: Any) -> Any:
        """See codes (n, atom, h, w) as (n, atom, h·w)."""
        return planes.reshape(*planes.shape[:2], -1)

    # --- the map ---------------------------------------------------------------------------------------
    def reconstruct(self, codes: Any) -> Any:
        """Return images (n, channel, h, w)."""
        images = np.empty((codes.shape[0], self.problem.dictionary.shape[2], *codes.shape[2:]), self.dtype)
        rows = self._rows(codes)
        self._over_images(
            lambda start, stop: kernels.reconstruct_images(rows, self.filters, self.support, start, stop, images)
        )
        return images

    def correlate(self, images: Any) -> Any:
        """Return the correlations (n, atom, h, w)."""
        codes = np.empty((images.shape[0], self.filters.shape[1], *images.shape[2:]), self.dtype)
        rows = self._rows(codes)
        self._over_images(
            lambda start, stop: kernels.correlate_images(images, self.filters_t, self.support, start, stop, rows)
        )
        return codes

    # --- splitting -------------------------------------------------------------------------------------
    def split(
        self, point: Any, movement: Any, *, penalty: float, relaxation: float, n_steps: int, tol: float
    ) -> tuple[Any, Any]:
        """Make Douglas-Rachford steps; ``point`` changes in place. Images that moved less than ``tol`` rest."""
        number = self.dtype.type
        bound, relax = number(self.problem.sparsity / penalty), number(relaxation)
        change, size = np.zeros(self.n_samples), np.zeros(self.n_samples)
        waits = movement is not None and self.problem.independent
        active = movement > tol if waits else np.ones(self.n_samples, np.bool_)
        if self.problem.graph is None:
            self._split_independent(point, bound, penalty, relax, n_steps, active, change, size)
        else:
            for _ in range(n_steps):
                self._step_with_graph(point, bound, penalty, relax, active, change, size)
        moved = _relative(change, size)
        return point, np.where(active, moved, movement) if waits else moved

    def _split_independent(
        self, point: Any, bound: Any, penalty: float, relax: Any, n_steps: int, active: Any, change: Any, size: Any
    ) -> None:
        from tubal.problems.convolutional import planes_first

        rows, images = self._rows(point), planes_first(self.problem.data)
        along, down, back = transforms(self.problem.plane, self.dtype)
        response = self._response(penalty)
        self._over_images(
            lambda start, stop: kernels.split_images(
                rows, images, self.filters, self.filters_t, self.support, response, along, down, back, bound,
                relax, n_steps, active, start, stop, change, size,
            )
        )  # fmt: skip

    def _response(self, penalty: float) -> Any:
        """``(D̂ D̂ᴴ + penalty)⁻¹ / (h w)`` as (channel, channel, h, w_half)."""
        vectors, values = self.problem.channel_eigenbasis
        inverse = np.einsum("hwcd,hwd,hwed->cehw", vectors, 1.0 / (values + penalty), vectors.conj())
        kind = np.complex64 if self.dtype == np.float32 else np.complex128
        return np.ascontiguousarray(inverse / np.prod(self.problem.plane), kind)

    # --- with a graph ----------------------------------------------------------------------------------
    def _step_with_graph(
        self, point: Any, bound: Any, penalty: float, relax: Any, active: Any, change: Any, size: Any
    ) -> None:
        from tubal.problems.convolutional import planes_first, samples_last

        if self._linear is None:
            self._linear, self._solved = planes_first(self.problem.linear), np.empty_like(point)
        factors, solved = self._factors_of(penalty), self._solved
        flat = [array.reshape(self.n_samples, -1) for array in (point, self._linear, solved)]
        if factors is None:
            right = flat[1] + penalty * (flat[0] - 2.0 * np.clip(flat[0], -bound, bound))
            solved = self.solve_rows(right.reshape(point.shape), penalty)
        else:
            factors.over_rows(
                lambda start, stop: kernels.split_rows(
                    flat[0], flat[1], bound, self.dtype.type(penalty), *factors.parts, start, stop, flat[2]
                ),
                flat[0].shape[1],
            )
        taken = self.problem.shrink_images(samples_last(self.reconstruct(solved)), penalty)
        rows, found, planes = self._rows(point), self._rows(solved), planes_first(taken)
        self._over_images(
            lambda start, stop: kernels.relax_images(
                found, planes, self.filters_t, self.support, bound, relax, active, start, stop, rows, change, size
            )
        )

    def solve_rows(self, right: Any, penalty: float) -> Any:
        """Return ``(2 α L + penalty)⁻¹`` applied to the samples of every coefficient (n, atom, h, w)."""
        factors = self._factors_of(penalty)
        flat = right.reshape(self.n_samples, -1)
        if factors is None:
            graph = self.problem.graph
            assert graph is not None
            rows = np.ascontiguousarray(flat.T)
            return np.ascontiguousarray(graph.solve(rows, np.full(len(rows), penalty)).T).reshape(right.shape)
        solution = np.empty_like(flat)
        factors.over_rows(
            lambda start, stop: kernels.solve_rows(flat, self.dtype.type(1.0), *factors.parts, start, stop, solution),
            flat.shape[1],
        )
        return solution.reshape(right.shape)

    def _factors_of(self, penalty: float) -> RowFactors | None:
        if penalty not in self._factors:
            graph = self.problem.graph
            assert graph is not None
            self._factors = {penalty: RowFactors(graph.laplacian, 2.0 * graph.weight, penalty, self.dtype)}
        factors = self._factors[penalty]
        return factors if factors.sparse_enough else None


class RowFactors:
    """Triangular factors of ``weight L + shift``, the one system that all coefficients of the codes share.

    A neighbour graph fills in little, so that substitution costs about as much as three steps of conjugate
    gradients and is exact; ``sparse_enough`` says whether this graph does.
    """

    most_fill = 40  # entries of the factors for each of the matrix, beyond which gradients are cheaper

    def __init__(self, laplacian: Any, weight: float, shift: float, dtype: Any) -> None:
        matrix = sp.csc_array(weight * laplacian + shift * sp.eye_array(laplacian.shape[0]))
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        # Rows and columns move alike as long as no pivoting was needed, and a diagonally dominant matrix needs none.
        alike = np.array_equal(factors.perm_r, factors.perm_c)
        self.sparse_enough = bool(alike and factors.nnz <= self.most_fill * matrix.nnz)
        order = factors.perm_r.astype(np.int64)
        self.parts = (order, _strict_rows(factors.L, dtype, -1), _strict_rows(factors.U, dtype, 1))

    def over_rows(self, work: Any, n_rows: int) -> None:
        """Run ``work(start, stop)`` over slabs of coefficient rows."""
        with own_threads() as threads:
            parallel_ranges(work, -(-n_rows // kernels.LANES), grain=1, threads=threads)


def _strict_rows(factor: Any, dtype: Any, side: int) -> tuple[Any, Any, Any, Any]:
    """Return pointers, columns and values of a triangular factor without its diagonal, and that inverted."""
    rows = sp.csr_array(sp.triu(factor, 1) if side > 0 else sp.tril(factor, -1))
    inverse = 1.0 / factor.diagonal()
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data.astype(dtype), inverse.astype(dtype)


def transforms(plane: tuple[int, int], dtype: Any) -> tuple[Any, Any, Any]:
    """Return Fourier transforms of small planes as matrices: rows to half spectra, columns, and rows back.

    Half spectra of rows are interleaved real and imaginary parts; no scale factors.
    """
    height, width = plane
    half = width // 2 + 1
    angles = 2.0 * np.pi * np.outer(np.arange(width), np.arange(half)) / width
    along = np.stack([np.cos(angles), -np.sin(angles)], axis=2).reshape(width, 2 * half)
    weights = np.full(half, 2.0)
    weights[0] = 1.0
    if width % 2 == 0:
        weights[-1] = 1.0
    back = (along * np.repeat(weights, 2)).T
    turns = np.outer(np.arange(height), np.arange(height)) % height
    down = np.exp(-2j * np.pi * turns / height)
    kind = np.complex64 if dtype == np.float32 else np.complex128
    return np.ascontiguousarray(along, dtype), down.astype(kind), np.ascontiguousarray(back, dtype)


def _relative(change: Any, size: Any) -> Any:
    return np.sqrt(change) / np.sqrt(np.maximum(size, np.finfo(np.float64).tiny))
