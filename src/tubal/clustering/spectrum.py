"""The leading eigenvectors of a graph's normalised adjacency, components kept exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh

from tubal.backends.threads import own_threads

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.intp]

_DENSE_LIMIT = 700  # below this a dense eigensolver beats Lanczos on one core


@dataclass(frozen=True)
class Spectrum:
    """Eigenpairs of ``E^{-1/2} W E^{-1/2}``: ``values`` (k,) falling from 1, ``vectors`` (n, k), ``degrees`` (n,)."""

    values: FloatArray
    vectors: FloatArray
    degrees: FloatArray

    def leading(self, n_vectors: int) -> Spectrum:
        """Keep the first ``n_vectors`` pairs."""
        return Spectrum(self.values[:n_vectors], self.vectors[:, :n_vectors], self.degrees)


def spectrum(adjacency: Any, n_vectors: int, *, seed: int = 0) -> Spectrum:
    """Return the ``n_vectors`` leading eigenpairs of the normalised adjacency.

    ``adjacency`` is a symmetric CSR matrix (n, n). The eigenvalue 1 belongs to one indicator
    ``sqrt(degrees)`` per connected component. Those vectors are written down rather than searched for,
    because a Lanczos iteration sees a repeated eigenvalue only by its rounding errors; the iteration then
    works in their complement. An isolated vertex counts as a component of its own.

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
            return Spectrum(np.ones(n_vectors), trivial, degrees)
        inverse_root = 1.0 / np.sqrt(np.where(degrees > 0.0, degrees, 1.0))
        scaling = sparse.diags_array(inverse_root)
        normalised = sparse.csr_matrix(scaling @ adjacency.astype(np.float64) @ scaling)
        values, vectors = _leading_in_complement(normalised, trivial, missing, seed)
    return Spectrum(
        np.concatenate([np.ones(trivial.shape[1]), values]),
        _fix_signs(np.concatenate([trivial, vectors], axis=1)),
        degrees,
    )


def _component_vectors(adjacency: Any, degrees: FloatArray, at_most: int) -> FloatArray:
    """Unit vectors (n, c) proportional to ``sqrt(degrees)`` on one component each, heaviest components first."""
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
    normalised: Any, trivial: FloatArray, n_vectors: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Leading eigenpairs of ``normalised`` orthogonal to the columns of ``trivial``."""
    n_images = normalised.shape[0]
    if n_images <= _DENSE_LIMIT or n_vectors + trivial.shape[1] > n_images // 3:
        # 3 lies above every eigenvalue gap of a matrix with spectrum in [-1, 1]: it sends `trivial` to the bottom.
        dense = normalised.toarray() - 3.0 * trivial @ trivial.T
        values, vectors = linalg.eigh(dense, subset_by_index=(n_images - n_vectors, n_images - 1))
        return values[::-1], vectors[:, ::-1]

    # Single precision halves the traffic of the products, and six digits are more than a partition asks for.
    matrix, known = normalised.astype(np.float32), trivial.astype(np.float32)

    def deflated(vector: Any) -> Any:
        return matrix @ vector - np.float32(3.0) * (known @ (known.T @ vector))

    operator = LinearOperator(normalised.shape, matvec=deflated, dtype=np.float32)
    start = np.random.default_rng(seed).standard_normal(n_images).astype(np.float32)
    room = min(n_images - 1, max(2 * n_vectors, 40))
    values, vectors = eigsh(operator, n_vectors, which="LA", v0=start, ncv=room, tol=1e-5)
    order = np.argsort(-values, kind="stable")
    return values[order].astype(np.float64), vectors[:, order].astype(np.float64)


def _fix_signs(vectors: FloatArray) -> FloatArray:
    """Make each column's largest entry positive, so that results do not depend on a solver's choice of sign."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0.0, -1.0, 1.0)
