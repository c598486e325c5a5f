"""Graph Laplacians and the exact spectral norm the step sizes need."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from .structure import Graph, check_adjacency

# Below this size a dense eigenvalue solver is both faster and free of convergence questions.
_DENSE_LIMIT = 200


def laplacian(graph: Any, *, normalized: bool = False) -> Any:
    """Return the CSR Laplacian ``L = E - W`` of the paper, or ``I - E^{-1/2} W E^{-1/2}``.

    ``graph`` is a :class:`Graph` or an adjacency ``W`` of shape ``(n, n)``; ``E`` holds the degrees. An image
    without edges gets a zero row in both forms, so constants on it cost nothing.

    >>> laplacian(np.array([[0.0, 1.0], [1.0, 0.0]])).toarray()
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    adjacency = graph.adjacency if isinstance(graph, Graph) else check_adjacency(graph)
    degrees = np.asarray(adjacency.sum(axis=1)).ravel()
    if not normalized:
        return sparse.csr_matrix(sparse.diags(degrees) - adjacency)
    connected = degrees > 0
    scale = np.where(connected, 1.0 / np.sqrt(np.where(connected, degrees, 1.0)), 0.0).astype(adjacency.dtype)
    scaling = sparse.diags(scale)
    return sparse.csr_matrix(sparse.diags(connected.astype(adjacency.dtype)) - scaling @ adjacency @ scaling)


def laplacian_norm(matrix: Any) -> float:
    """Return the spectral norm ``‖L‖₂`` of a symmetric matrix, computed in float64.

    >>> round(laplacian_norm(laplacian(np.array([[0.0, 1.0], [1.0, 0.0]]))), 12)
    2.0
    """
    symmetric = sparse.csr_matrix(matrix, dtype=np.float64)
    n_images = symmetric.shape[0]
    if n_images == 0 or symmetric.nnz == 0:
        return 0.0
    if n_images <= _DENSE_LIMIT:
        return float(np.abs(np.linalg.eigvalsh(symmetric.toarray())).max())
    start = np.random.default_rng(0).standard_normal(n_images)
    try:
        value = eigsh(symmetric, k=1, which="LM", v0=start, ncv=40, maxiter=20 * n_images)[0]
    except ArpackNoConvergence:
        # The largest absolute row sum bounds the norm, so a step size built on it is still safe.
        return float(abs(symmetric).sum(axis=1).max())
    return float(np.abs(value).max())
