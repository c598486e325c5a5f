"""Convolutional coding on NumPy arrays: runs the compiled kernels over images, in several threads.

Arrays here are (image, plane, height, width); a plane is a channel of an image or the codes of one atom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray
from scipy.sparse.linalg import splu

from tubal.backends.cpu import convolution as kernels
from tubal.backends.threads import own_threads, parallel_ranges
from tubal.problems.base import movement_from_squares
from tubal.problems.linear_map import GraphTerm

# Row pointers, columns and values of a triangular factor without its diagonal, and the inverse of the diagonal.
Factor: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any], NDArray[Any]]


class NumbaConvolution:
    """Convolutions and ADMM steps for one set of filters.

    Parameters
    ----------
    filters : array of shape (down, across, channel, atom)
        The filters.
    graph : GraphTerm, optional
        The graph term.
    dtype : dtype
        Floating type of the images.
    """

    def __init__(self, filters: NDArray[Any], graph: GraphTerm | None, dtype: np.dtype[Any]) -> None:
        self.graph, self.dtype = graph, dtype
        down, across, self.n_channels, n_atoms = filters.shape
        self.support = (down, across)
        flat = np.moveaxis(filters, 2, 0).reshape(self.n_channels * down * across, n_atoms)
        self.filters = np.ascontiguousarray(flat, self.dtype)
        self.filters_t = np.ascontiguousarray(self.filters.T)
        self._factors: dict[float, RowFactors] = {}
        self._solved: NDArray[Any] | None = None

    def reconstruct(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the images (image, channel, height, width) of codes (image, atom, height, width)."""
        images = np.empty((codes.shape[0], self.n_channels, *codes.shape[2:]), self.dtype)
        rows = _flat_planes(codes)
        _over_images(
            lambda start, stop: kernels.reconstruct_images(rows, self.filters, self.support, start, stop, images),
            len(images),
        )
        return images

    def correlate(self, images: NDArray[Any]) -> NDArray[Any]:
        """Return the correlations (image, atom, height, width) of images with the filters."""
        codes = np.empty((images.shape[0], self.filters.shape[1], *images.shape[2:]), self.dtype)
        rows = _flat_planes(codes)
        _over_images(
            lambda start, stop: kernels.correlate_images(images, self.filters_t, self.support, start, stop, rows),
            len(images),
        )
        return codes

    # --- ADMM without a graph -----------------------------------------------------------------------------------------
    def split_independent(
        self, point: NDArray[Any], images: NDArray[Any], response: NDArray[Any], bound: float, relaxation: float,
        n_steps: int, active: NDArray[np.bool_],
    ) -> NDArray[np.float64]:  # fmt: skip
        """Make steps on the active images, in place; return the relative change of every image in the last step.

        ``response`` is ``(D̂ D̂ᴴ + penalty)⁻¹ / (height · width)`` as (channel, channel, height, half width).
        """
        rows, number = _flat_planes(point), self.dtype.type
        change, size = np.zeros(len(point)), np.zeros(len(point))
        transforms = plane_transforms(images.shape[2:], self.dtype)
        _over_images(
            lambda start, stop: kernels.split_images(
                rows, images, self.filters, self.filters_t, self.support, response, *transforms, number(bound),
                number(relaxation), n_steps, active, start, stop, change, size,
            ),
            len(point),
        )  # fmt: skip
        return movement_from_squares(change, size)

    # --- ADMM with a graph --------------------------------------------------------------------------------------------
    def solve_step(self, point: NDArray[Any], linear: NDArray[Any], bound: float, penalty: float) -> NDArray[Any]:
        """Return ``(2 α L + penalty)⁻¹`` applied to ``linear + penalty · (point - 2 clip(point))``."""
        number, factors = self.dtype.type, self._factors_of(penalty)
        if factors is None:
            clipped = np.clip(point, -number(bound), number(bound))
            return self.solve_graph(linear + penalty * (point - 2.0 * clipped), penalty)
        if self._solved is None:
            self._solved = np.empty_like(point)
        flat_point, flat_linear, solved = (_flat_images(array) for array in (point, linear, self._solved))
        factors.over_coefficients(
            lambda start, stop: kernels.solve_factored_step(
                flat_point, flat_linear, number(bound), number(penalty), *factors.parts, start, stop, solved
            ),
            flat_point.shape[1],
        )
        return self._solved

    def relax(
        self, point: NDArray[Any], solved: NDArray[Any], correction: NDArray[Any], bound: float, relaxation: float,
        active: NDArray[np.bool_],
    ) -> NDArray[np.float64]:  # fmt: skip
        """Move ``point`` towards ``solved`` minus the correlation of ``correction``; return the relative changes."""
        rows, found, number = _flat_planes(point), _flat_planes(solved), self.dtype.type
        change, size = np.zeros(len(point)), np.zeros(len(point))
        _over_images(
            lambda start, stop: kernels.relax_images(
                found, correction, self.filters_t, self.support, number(bound), number(relaxation), active, start,
                stop, rows, change, size,
            ),
            len(point),
        )  # fmt: skip
        return movement_from_squares(change, size)

    def solve_graph(self, right: NDArray[Any], penalty: float) -> NDArray[Any]:
        """Return ``(2 α L + penalty)⁻¹`` applied to the images of every coefficient of ``right``."""
        assert self.graph is not None
        factors, flat = self._factors_of(penalty), _flat_images(right)
        if factors is None:
            rows = np.ascontiguousarray(flat.T)
            return np.ascontiguousarray(self.graph.solve(rows, np.full(len(rows), penalty)).T).reshape(right.shape)
        solution, one = np.empty_like(flat), self.dtype.type(1.0)
        factors.over_coefficients(
            lambda start, stop: kernels.solve_factored(flat, one, *factors.parts, start, stop, solution),
            flat.shape[1],
        )
        return solution.reshape(right.shape)

    def _factors_of(self, penalty: float) -> RowFactors | None:
        """Return the factors of ``2 α L + penalty``, or None if they are not sparse enough."""
        if penalty not in self._factors:
            assert self.graph is not None
            self._factors = {penalty: RowFactors(self.graph.laplacian, 2.0 * self.graph.weight, penalty, self.dtype)}
        factors = self._factors[penalty]
        return factors if factors.sparse_enough else None


def _over_images(work: Callable[[int, int], None], n_images: int) -> None:
    with own_threads() as threads:
        parallel_ranges(work, n_images, grain=1, threads=threads)


def _flat_planes(planes: NDArray[Any]) -> NDArray[Any]:
    """Return a view (image, plane, height · width)."""
    return planes.reshape(*planes.shape[:2], -1)


def _flat_images(planes: NDArray[Any]) -> NDArray[Any]:
    """Return a view (image, plane · height · width)."""
    return planes.reshape(len(planes), -1)


class RowFactors:
    """Triangular factors of ``weight · L + shift``, the one system that all coefficients of the codes share.

    The factors of a neighbour graph stay sparse. Substitution then costs about as much as three steps of conjugate
    gradients, and it is exact.

    Parameters
    ----------
    laplacian : sparse array of shape (n_images, n_images)
        The graph Laplacian.
    weight, shift : float
        The two numbers of the system.
    dtype : dtype
        Floating type of the factors.

    Attributes
    ----------
    sparse_enough : bool
        Whether substitution is cheaper than conjugate gradients.
    parts : tuple
        The place of every image in the factors, and the lower and the upper factor.
    """

    max_fill = 40  # entries of the factors per entry of the matrix above which conjugate gradients are cheaper

    def __init__(self, laplacian: sp.csr_array, weight: float, shift: float, dtype: DTypeLike) -> None:
        matrix = sp.csc_array(weight * laplacian + shift * sp.eye_array(laplacian.shape[0]))
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        # Without pivoting rows and columns are permuted alike, and a diagonally dominant matrix needs no pivoting.
        alike = np.array_equal(factors.perm_r, factors.perm_c)
        self.sparse_enough = bool(alike and factors.nnz <= self.max_fill * matrix.nnz)
        order = factors.perm_r.astype(np.int64)
        self.parts = (order, _triangle(factors.L, dtype, upper=False), _triangle(factors.U, dtype, upper=True))

    def over_coefficients(self, work: Callable[[int, int], None], n_coefficients: int) -> None:
        """Run ``work(start, stop)`` over strips of coefficients, in several threads."""
        with own_threads() as threads:
            parallel_ranges(work, -(-n_coefficients // kernels.STRIP), grain=1, threads=threads)


def _triangle(factor: sp.csc_array, dtype: DTypeLike, *, upper: bool) -> Factor:
    """Return one triangular factor as the kernels read it."""
    rows = sp.csr_array(sp.triu(factor, 1) if upper else sp.tril(factor, -1))
    inverse = 1.0 / factor.diagonal()
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data.astype(dtype), inverse.astype(dtype)


def plane_transforms(
    plane: tuple[int, ...], dtype: DTypeLike
) -> tuple[NDArray[Any], NDArray[np.complexfloating], NDArray[Any]]:
    """Return the Fourier transforms of small planes as matrices: rows to half spectra, columns, and rows back.

    Half spectra of rows have real and imaginary parts interleaved. The matrices contain no scale factors.
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
