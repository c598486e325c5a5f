"""Edge weights for clustering: who chose whom, friends of friends, and how alike the codes are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


def mutual_adjacency(neighbors: Any, n_neighbors: int | None = None) -> Any:
    """Return ``(W + Wᵀ) / 2`` of a neighbour list (n, q): 1 where both chose each other, 1/2 where one did.

    Only the first ``n_neighbors`` columns count; negative indices are no edge.

    >>> mutual_adjacency(np.array([[1], [2], [1]])).toarray()
    array([[0. , 0.5, 0. ],
           [0.5, 0. , 1. ],
           [0. , 1. , 0. ]])
    """
    chosen: NDArray[np.intp] = np.asarray(neighbors)[:, :n_neighbors]
    sources = np.repeat(np.arange(len(chosen)), chosen.shape[1])
    present = chosen.ravel() >= 0
    edges = np.full(int(present.sum()), 0.5)
    directed = sparse.csr_matrix((edges, (sources[present], chosen.ravel()[present])), shape=(len(chosen), len(chosen)))
    return sparse.csr_matrix(directed + directed.T)


def with_second_order(adjacency: Any) -> Any:
    """Return ``W + W²`` without its diagonal: neighbours, and neighbours' neighbours by the number of paths.

    Weights are first divided by their largest, so that the balance of the two terms does not depend on
    units. One wrong edge between two groups is outvoted by the many short paths inside them.

    >>> chain = sparse.csr_matrix(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    >>> with_second_order(chain).toarray()
    array([[0., 1., 1.],
           [1., 0., 1.],
           [1., 1., 0.]])
    """
    largest = adjacency.data.max(initial=0.0)
    scaled = sparse.csr_matrix(adjacency / largest) if largest > 0.0 else sparse.csr_matrix(adjacency)
    paths = sparse.coo_matrix(scaled + scaled @ scaled)
    kept = paths.row != paths.col
    return sparse.csr_matrix((paths.data[kept], (paths.row[kept], paths.col[kept])), shape=adjacency.shape)


def weight_edges_by_codes(adjacency: Any, features: NDArray[Any], power: float = 4.0, floor: float = 1e-3) -> Any:
    """Multiply each edge by ``max(cos(c_i, c_j), 0) ** power`` of its images' features (n, d).

    No edge falls below ``floor`` times its weight, so that codes may doubt a neighbour but never cut it off.

    >>> pair = sparse.csr_matrix(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> weight_edges_by_codes(pair, np.array([[1.0, 0.0], [1.0, 1.0]]), power=2).toarray().round(3)
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    rows = np.asarray(features, dtype=np.float64)
    if len(rows) != adjacency.shape[0]:
        raise ValueError(
            f"features has {len(rows)} rows but the graph joins {adjacency.shape[0]} images; give one row an image"
        )
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(lengths > 0.0, lengths, 1.0)
    edges = adjacency.tocoo()
    cosines = np.einsum("ij,ij->i", unit[edges.row], unit[edges.col])
    factors = np.maximum(np.clip(cosines, 0.0, 1.0) ** power, floor)
    return sparse.csr_matrix((edges.data * factors, (edges.row, edges.col)), shape=adjacency.shape)
