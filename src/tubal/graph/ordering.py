"""Dealing images into chunks along their graph, so that few edges leave a chunk.

An edge between chunks ties codes that are not solved for together, and slows the alternation down. Recursive bisection
by the second eigenvector of the graph leaves a few edges in a hundred where the order of the files leaves most.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

# Below this many images a part is not cut by eigenvectors.
_SMALLEST = 32


def order_along_graph(adjacency: Any, sizes: list[int]) -> NDArray[np.intp]:
    """Return an order of the images whose consecutive chunks of ``sizes`` are cut by few edges.

    >>> ring = sp.csr_matrix(np.roll(np.eye(8), 4, axis=1))
    >>> order = order_along_graph(ring, [4, 4])
    >>> crossing_share(ring, order, [4, 4]) < crossing_share(ring, np.arange(8), [4, 4])
    True
    """
    given = np.arange(adjacency.shape[0])
    banded = np.asarray(reverse_cuthill_mckee(sp.csr_matrix(adjacency), symmetric_mode=True), np.intp)
    halved = _bisected(adjacency, given, max(sizes))
    shares = [crossing_share(adjacency, order, sizes) for order in (given, banded, halved)]
    return (given, banded, halved)[int(np.argmin(shares))]


def crossing_share(adjacency: Any, order: NDArray[Any], sizes: list[int]) -> float:
    """Return the share of edges whose images lie in different chunks."""
    home = np.empty(len(order), np.intp)
    home[order] = np.repeat(np.arange(len(sizes)), sizes)
    edges = sp.coo_matrix(adjacency)
    return float((home[edges.row] != home[edges.col]).mean()) if edges.nnz else 0.0


def _bisected(adjacency: Any, images: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """Return ``images`` halved again and again along the second eigenvector, down to parts of ``size``."""
    if len(images) <= max(size, _SMALLEST):
        return images
    order = np.argsort(_second_eigenvector(adjacency[images][:, images]), kind="stable")
    half = size * max(1, round(len(images) / 2 / size))
    first, second = images[order[:half]], images[order[half:]]
    return np.concatenate([_bisected(adjacency, first, size), _bisected(adjacency, second, size)])


def _second_eigenvector(adjacency: Any) -> NDArray[Any]:
    """Return the eigenvector of the normalised graph that varies most slowly, to the little accuracy a cut needs."""
    degrees = np.sqrt(np.maximum(np.asarray(adjacency.sum(1), np.float64).ravel(), 1e-12))
    scaling = sp.diags(1.0 / degrees)
    start = np.random.default_rng(0).standard_normal(len(degrees))
    try:
        found = eigsh(scaling @ adjacency @ scaling, k=2, which="LA", v0=start, tol=1e-3, maxiter=300)[1]
    except ArpackNoConvergence as error:
        found = error.eigenvectors
    return np.asarray(found[:, 0] / degrees if found.shape[1] else start)
