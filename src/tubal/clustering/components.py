"""Joining connected components of a graph that has more of them than clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from tubal.clustering.eigenvectors import Float64Array, LabelArray
from tubal.graph import Graph, deformable_graph
from tubal.graph.structure import IndexArray

# Rows whose distances to all others are in memory at a time.
_BLOCK = 1024
# Representative images per component, and of all components together.
_PER_COMPONENT, _IN_ALL = 8, 800


def join_components(
    component: LabelArray,
    n_clusters: int,
    *,
    features: NDArray[Any] | None = None,
    links: Float64Array | None = None,
) -> LabelArray:
    """Join components, cheapest link first, until ``n_clusters`` groups are left; return labels (n,).

    The cost of joining two groups is their cheapest link, so this is Kruskal's algorithm over components. Costs are
    the matrix ``links`` (c, c) between components, or the smallest distances between their images in ``features``
    (n, d). Without either, fewer clusters than components raise an error.

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
    # Kruskal's order is the merge order of single linkage; it stops when enough groups are left.
    tree = linkage(squareform(links, checks=False), method="single")
    return groups_after_merges(tree[: n_components - n_clusters], n_components)[component]


def cheapest_links(features: Float64Array, component: LabelArray) -> Float64Array:
    """Return the smallest distance between images of two components, as a matrix (c, c)."""
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


def groups_after_merges(merges: Float64Array, n_leaves: int) -> LabelArray:
    """Return the group of each leaf after the given rows of a linkage tree, numbered by first appearance."""
    parent = np.arange(n_leaves + len(merges))
    for step, (left, right) in enumerate(merges[:, :2].astype(np.intp)):
        parent[[left, right]] = n_leaves + step
    # A parent has a larger number than its children, so one pass from the top finds every root.
    for node in reversed(range(len(parent))):
        parent[node] = parent[parent[node]]
    _, first, group = np.unique(parent[:n_leaves], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[group]


def component_links(graph: Graph, component: LabelArray, features: NDArray[Any]) -> Float64Array:
    """Return the cost of joining each two components of a graph, as a matrix (c, c).

    In a deformable graph the cost is ``sqrt(d f)``: ``d`` is the smallest distance under deformations between a few
    representative images, ``f`` the smallest distance between ``features`` (n, d). Either alone would join two groups
    because of one accidental likeness; both are rarely wrong about the same pair. Other graphs, and pairs too far
    apart for the deformable search, use the features alone.
    """
    by_features = cheapest_links(np.asarray(features, dtype=np.float64), component)
    chosen = _representatives(graph, component)
    if graph.search is None or graph.search.kind != "deformable" or len(chosen) > _IN_ALL:
        return by_features
    between = deformable_graph(graph.search.images[chosen], len(chosen) - 1)
    links = np.full(by_features.shape, np.inf)
    neighbors, distances = np.asarray(between.neighbors), np.asarray(between.distances)
    rows, slots = np.nonzero((neighbors >= 0) & np.isfinite(distances))
    ends = component[chosen[rows]], component[chosen[neighbors[rows, slots]]]
    np.minimum.at(links, ends, distances[rows, slots])
    links = np.minimum(links, links.T)
    found = np.isfinite(links)
    links[found] = np.sqrt(links[found] * by_features[found])
    farthest = links[found].max(initial=0.0)
    # Pairs without a distance come after all others, in the order of their features.
    links = np.where(found, links, farthest + 1.0 + by_features)
    np.fill_diagonal(links, 0.0)
    return np.asarray(links)


def _representatives(graph: Graph, component: LabelArray) -> IndexArray:
    """Return the images of each component with the most edges: at most eight, and fewer of many components."""
    n_components = int(component.max()) + 1
    per_component = max(1, min(_PER_COMPONENT, _IN_ALL // n_components))
    degrees = np.diff(graph.adjacency.indptr)
    order = np.lexsort((-degrees, component))
    starts = np.searchsorted(component[order], np.arange(n_components))
    position = np.arange(len(order)) - starts[component[order]]
    return np.sort(order[position < per_component])
