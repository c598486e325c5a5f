"""The leading eigenvectors of a graph's normalised adjacency; those of its components are exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh

from tubal.backends.arrays import own_threads
from tubal.graph.structure import IndexArray, SparseMatrix

Float64Array: TypeAlias = NDArray[np.float64]
LabelArray: TypeAlias = IndexArray

# Below this size a dense eigensolver beats Lanczos on one core.
_DENSE_LIMIT = 700
# Eigenvalues lie in [-1, 1]; subtracting this much moves known ones below all others.
_DEFLATION = 3.0


@dataclass(frozen=True)
class Spectrum:
    """Eigenpairs of the normalised adjacency ``E^{-1/2} W E^{-1/2}``.

    Parameters
    ----------
    values : ndarray of shape (n_vectors,)
        Eigenvalues, decreasing from 1.
    vectors : ndarray of shape (n_images, n_vectors)
        Orthonormal eigenvectors.
    """

    values: Float64Array
    vectors: Float64Array

    def leading(self, n_vectors: int) -> Spectrum:
        """Return the first eigenpairs.

        Parameters
        ----------
        n_vectors : int
            How many.

        Returns
        -------
        Spectrum
            The ``n_vectors`` eigenpairs with the largest eigenvalues.
        """
        return Spectrum(self.values[:n_vectors], self.vectors[:, :n_vectors])


def spectrum(adjacency: SparseMatrix, n_vectors: int, *, seed: int = 0) -> Spectrum:
    """Return the leading eigenpairs of the normalised adjacency.

    The eigenvalue 1 belongs to one vector ``sqrt(degrees)`` per connected component. Those vectors are known, so they
    are not searched for: a Lanczos iteration finds a repeated eigenvalue only through its rounding errors. An isolated
    image is a component of its own.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric, non-negative edge weights in CSR form.
    n_vectors : int
        Number of eigenpairs; at most ``n_images`` are returned.
    seed : int, default=0
        Seed of the eigensolver's start.

    Returns
    -------
    Spectrum
        Eigenvalues and eigenvectors, largest eigenvalue first.

    Examples
    --------
    >>> chain = sparse.csr_matrix(np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1))
    >>> spectrum(chain, 2).values.round(3)
    array([1. , 0.5])
    """
    n_images = adjacency.shape[0]
    n_vectors = min(n_vectors, n_images)
    degrees = np.asarray(adjacency.sum(axis=1), dtype=np.float64).ravel()
    with own_threads():
        trivial = _component_vectors(adjacency, degrees, n_vectors)
        missing = n_vectors - trivial.shape[1]
        if missing == 0:
            return Spectrum(np.ones(n_vectors), trivial)
        inverse_root = 1.0 / np.sqrt(np.where(degrees > 0.0, degrees, 1.0))
        scaling = sparse.diags_array(inverse_root)
        normalised = sparse.csr_matrix(scaling @ adjacency.astype(np.float64) @ scaling)
        values, vectors = _leading_in_complement(normalised, trivial, missing, seed)
    return Spectrum(
        np.concatenate([np.ones(trivial.shape[1]), values]),
        _fix_signs(np.concatenate([trivial, vectors], axis=1)),
    )


def _component_vectors(adjacency: SparseMatrix, degrees: Float64Array, at_most: int) -> Float64Array:
    """Return unit vectors (n, c), each proportional to ``sqrt(degrees)`` on one component, heaviest first."""
    n_components, component = connected_components(adjacency, directed=False)
    weight = np.where(degrees > 0.0, degrees, 1e-12)
    volume = np.bincount(component, weights=weight, minlength=n_components)
    rank = np.empty(n_components, np.intp)
    rank[np.argsort(-volume, kind="stable")] = np.arange(n_components)
    column = rank[component]
    vectors = np.zeros((len(degrees), min(n_components, at_most)))
    kept = np.flatnonzero(column < vectors.shape[1])
    vectors[kept, column[kept]] = np.sqrt(weight[kept] / volume[component[kept]])
    return vectors


def _leading_in_complement(
    normalised: SparseMatrix, trivial: Float64Array, n_vectors: int, seed: int
) -> tuple[Float64Array, Float64Array]:
    """Return the leading eigenpairs of ``normalised`` orthogonal to the columns of ``trivial``."""
    n_images = normalised.shape[0]
    if n_images <= _DENSE_LIMIT or n_vectors + trivial.shape[1] > n_images // 3:
        return _largest_eigenpairs(normalised.toarray() - _DEFLATION * trivial @ trivial.T, n_vectors)

    # Single precision halves the memory traffic, and six digits are more than a partition needs.
    matrix, known = normalised.astype(np.float32), trivial.astype(np.float32)

    def deflated(vector: NDArray[np.float32]) -> NDArray[np.float32]:
        product: NDArray[np.float32] = matrix @ vector - np.float32(_DEFLATION) * (known @ (known.T @ vector))
        return product

    operator = LinearOperator(normalised.shape, matvec=deflated, dtype=np.float32)
    start = np.random.default_rng(seed).standard_normal(n_images).astype(np.float32)
    n_lanczos = min(n_images - 1, max(2 * n_vectors, 40))
    values, vectors = eigsh(operator, n_vectors, which="LA", v0=start, ncv=n_lanczos, tol=1e-5)
    order = np.argsort(-values, kind="stable")
    return values[order].astype(np.float64), vectors[:, order].astype(np.float64)


def _largest_eigenpairs(matrix: Float64Array, n_vectors: int) -> tuple[Float64Array, Float64Array]:
    """Return the ``n_vectors`` largest eigenvalues of a symmetric matrix, decreasing, and their eigenvectors."""
    n_rows = len(matrix)
    try:
        values, vectors = linalg.eigh(matrix, subset_by_index=(n_rows - n_vectors, n_rows - 1))
    except linalg.LinAlgError:
        values, vectors = np.empty(0), np.empty((n_rows, 0))
    if len(values) < n_vectors:
        # LAPACK's solver for a part of the spectrum can fail, or miss values, where many are equal.
        values, vectors = np.linalg.eigh(matrix)
    return values[: -n_vectors - 1 : -1], vectors[:, : -n_vectors - 1 : -1]


def _fix_signs(vectors: Float64Array) -> Float64Array:
    """Make each column's largest entry positive, so that results do not depend on a solver's choice of sign."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0.0, -1.0, 1.0)
