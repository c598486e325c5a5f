"""A bound on how many images may name the same image as a neighbour."""

from __future__ import annotations

import numpy as np

from .structure import FloatArray, IndexArray


def capped_neighbours(candidates: IndexArray, distances: FloatArray, n_neighbors: int, limit: int) -> IndexArray:
    """Choose slots ``(n, n_neighbors)`` of sorted candidate lists so that no image is chosen too often.

    Every image starts with its nearest candidates. An image that too many have chosen keeps its ``limit``
    nearest choosers; the others take their next candidate instead. The farthest incoming edges go first, so
    a hub loses exactly what makes it one. A slot of -1 means that the list was used up.

    >>> lists = np.array([[1, 2], [0, 2], [1, 0], [1, 2]])
    >>> capped_neighbours(lists, np.array([[1.0, 9.0], [1.0, 5.0], [3.0, 4.0], [2.0, 8.0]]), 1, 2)
    array([[0],
           [0],
           [1],
           [0]])
    """
    n_images = len(candidates)
    allowed = distances < np.inf
    rank = np.cumsum(allowed, axis=1)
    while True:
        chosen = allowed & (rank <= n_neighbors)
        rows, slots = np.nonzero(chosen)
        targets = candidates[rows, slots]
        if np.bincount(targets, minlength=n_images).max(initial=0) <= limit:
            break
        order = np.lexsort((rows, distances[rows, slots], targets))
        ordered = targets[order]
        place = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        surplus = order[place >= limit]
        allowed[rows[surplus], slots[surplus]] = False
        rank = np.cumsum(allowed, axis=1)
    result = np.full((n_images, n_neighbors), -1, dtype=np.intp)
    result[rows, rank[rows, slots] - 1] = slots
    return result
