"""One door for every way to say which graph: a name, a Graph, or a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tubal.graph.neighbors import ExactSearch, knn_graph
from tubal.graph.structure import Graph, Search

_NAMES = ("euclidean", "cosine", "deformable")


def resolve_graph(graph: Any, images: Any, *, n_neighbors: int = 3) -> Graph:
    """Return the :class:`Graph` of ``images`` that ``graph`` names, is, or describes as a matrix.

    >>> resolve_graph("euclidean", np.arange(8.0).reshape(4, 2), n_neighbors=1).neighbors.ravel()
    array([1, 0, 1, 2])
    """
    n_images = len(images)
    if isinstance(graph, Graph):
        if graph.n_images != n_images:
            raise ValueError(
                f"graph joins {graph.n_images} images but {n_images} images were given; build it from the same images"
            )
        return graph
    if isinstance(graph, str):
        return _named_graph(graph, images, n_neighbors)
    if sparse.issparse(graph) or isinstance(graph, (np.ndarray, list)):
        return Graph.from_matrix(graph, n_images)
    raise TypeError(
        f"graph is a {type(graph).__name__}; pass one of {', '.join(map(repr, _NAMES))}, a Graph, "
        "or a symmetric (n, n) matrix"
    )


def _named_graph(name: str, images: Any, n_neighbors: int) -> Graph:
    if name in ("euclidean", "cosine"):
        return knn_graph(images, n_neighbors, metric=name)
    if name == "deformable":
        from tubal.graph.deformable import deformable_graph

        return deformable_graph(images, n_neighbors)
    raise ValueError(f"graph is {name!r}; known names are {', '.join(map(repr, _NAMES))}")


def restore_search(arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> Search:
    """Rebuild a search from its state."""
    if meta["kind"] == ExactSearch.kind:
        return ExactSearch.from_state(arrays, meta)
    from tubal.graph.deformable import DeformableSearch

    return DeformableSearch.from_state(arrays, meta)
