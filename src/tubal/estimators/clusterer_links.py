"""Labels from ties and neighbours: a cut, or parts joined where the ties fall into too many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from tubal.clustering import diffusion_cut
from tubal.clustering.components import cheapest_links, join_components
from tubal.clustering.cut import order_by_size
from tubal.graph import Graph, deformable_graph

# Images that speak for a part, and the most that are compared in all.
_SPEAKERS, _MOST = 8, 800


def cut_or_join(
    affinity: Any,
    graph: Graph,
    n_clusters: int,
    *,
    features: NDArray[Any],
    propose: Callable[[], NDArray[np.intp]] | None = None,
    seed: int = 0,
) -> NDArray[np.intp]:
    """Return labels (n,): the ties ``affinity`` (n, n) cut, or their parts joined where there are too many.

    Parts are joined by their cheapest links, see :func:`component_links`; ``propose`` makes a partition that
    competes with the cuts, see :func:`~tubal.clustering.diffusion_cut`.
    """
    n_components, component = connected_components(affinity, directed=False)
    if n_components > n_clusters:
        links = component_links(graph, component, features)
        return order_by_size(join_components(component, n_clusters, links=links))
    proposals = [] if propose is None else [propose()]
    return diffusion_cut(affinity, n_clusters, features=features, proposals=proposals, seed=seed)


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
