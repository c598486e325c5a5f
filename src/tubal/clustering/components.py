"""Joining connected components when there are more of them than clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from tubal.clustering.spectrum import FloatArray, LabelArray
from tubal.graph import Graph, deformable_graph

_BLOCK = 1024


def join_components(
    component: LabelArray,
    n_clusters: int,
    *,
    features: NDArray[Any] | None = None,
    links: FloatArray | None = None,
) -> LabelArray:
    """Join components, cheapest link first, until ``n_clusters`` groups are left; labels (n,).

    A link costs the distance between its two images in ``features`` (n, d), or what the matrix ``links`` (c, c)
    says of two components; the cost of joining two groups is their cheapest link, so this is Kruskal's algorithm
    over components. Without either no link has a cost, and asking for fewer clusters than components is refused.

    >>> join_components(np.array([0, 0, 1, 2]), 2, features=np.array([[0.0], [1.0], [1.5], [9.0]]))
    array([0, 0, 0, 1])
    """
    n_components = int(component.max()) + 1
    if n_components == n_clusters:
        return component
    if features is None and links is None:
        raise ValueError(
            f"the graph has {n_components} separate parts but {n_clusters} clusters are wanted; pass "
            "features= to join parts by their cheapest links, or use more neighbours"
        )
    if n_clusters == 1:
        return np.zeros_like(component)
    if links is None:
        links = cheapest_links(np.asarray(features, dtype=np.float64), component)
    # Kruskal's order is the merge order of single linkage: stop it where enough groups are left.
    tree = linkage(squareform(links, checks=False), method="single")
    return merged(tree[: n_components - n_clusters], n_components)[component]


def cheapest_links(features: FloatArray, component: LabelArray) -> FloatArray:
    """Return the matrix (c, c) of least distances between images of two components, block by block."""
    n_components = int(component.max()) + 1
    order = np.argsort(component, kind="stable")
    rows = features[order]
    starts = np.searchsorted(component[order], np.arange(n_components))
    squares = np.einsum("ij,ij->i", rows, rows)
    links = np.full((n_components, n_components), np.inf)
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, first + _BLOCK)
        distances = squares[block, None] - 2.0 * rows[block] @ rows.T + squares
        least = np.minimum.reduceat(distances, starts, axis=1)
        np.minimum.at(links, component[order[block]], least)
    links = np.asarray(np.sqrt(np.maximum(np.minimum(links, links.T), 0.0)))
    np.fill_diagonal(links, 0.0)
    return links


def merged(merges: FloatArray, n_components: int) -> LabelArray:
    """Return the group of each component after the given rows of a linkage tree, in order of appearance."""
    parent = np.arange(n_components + len(merges))
    for step, (left, right) in enumerate(merges[:, :2].astype(np.intp)):
        parent[[left, right]] = n_components + step
    # A parent has a larger number than its children, so one pass from the top finds every root.
    for node in reversed(range(len(parent))):
        parent[node] = parent[parent[node]]
    _, first, group = np.unique(parent[:n_components], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[group]


# Images that speak for a part, and the most that are compared in all.
_SPEAKERS, _MOST = 8, 800


def component_links(graph: Graph, component: NDArray[np.intp], features: NDArray[Any]) -> NDArray[np.float64]:
    """Return the matrix (c, c) of the cheapest links between the components of a graph.

    Where the graph measures deformations, a link costs ``sqrt(d_ij f_ij)``: the least distance under deformations
    between a few images of each component with the most edges, and the least distance between ``features`` (n, d).
    One accidental likeness would join two groups by either alone; both are rarely wrong about the same pair.
    Pairs too far apart for the graph to rank, and other graphs, are measured by the features.
    """
    by_features = cheapest_links(np.asarray(features, dtype=np.float64), component)
    speakers = _speakers(graph, component)
    if graph.search is None or graph.search.kind != "deformable" or len(speakers) > _MOST:
        return by_features
    among = deformable_graph(graph.search.images[speakers], len(speakers) - 1)
    links = np.full(by_features.shape, np.inf)
    neighbors: Any = among.neighbors
    distances: Any = among.distances
    rows, slots = np.nonzero((neighbors >= 0) & np.isfinite(distances))
    ends = component[speakers[rows]], component[speakers[neighbors[rows, slots]]]
    np.minimum.at(links, ends, distances[rows, slots])
    links = np.minimum(links, links.T)
    found = np.isfinite(links)
    links[found] = np.sqrt(links[found] * by_features[found])
    farthest = links[found].max(initial=0.0)
    # What was not ranked lies beyond everything that was; among itself it is ordered by the codes.
    links = np.where(found, links, farthest + 1.0 + by_features)
    np.fill_diagonal(links, 0.0)
    return np.asarray(links)


def _speakers(graph: Graph, component: NDArray[np.intp]) -> NDArray[np.intp]:
    """The images of each component with the most edges, at most eight of each and fewer where parts are many."""
    n_components = int(component.max()) + 1
    each = max(1, min(_SPEAKERS, _MOST // n_components))
    degrees = np.diff(graph.adjacency.indptr)
    order = np.lexsort((-degrees, component))
    starts = np.searchsorted(component[order], np.arange(n_components))
    place = np.arange(len(order)) - starts[component[order]]
    return np.sort(order[place < each])
