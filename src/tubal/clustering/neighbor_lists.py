"""The neighbour lists of the default preset: how long, and in which of two readings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tubal import clustering
from tubal.graph import Graph, deformable_graph, resolve_graph
from tubal.graph.deformable import DeformableSearch, Effort
from tubal.graph.neighbors import limit_in_degree
from tubal.graph.structure import symmetric_adjacency

# How many times the wanted neighbours are looked at: those beyond only move up in the second reading.
WIDER = 2
_HUB_FACTOR = 5
_SMALL = 2000
# Share of an image's own scale taken out of its distances; a whole share would make outliers everybody's friends.
_STRENGTH = 0.25
_FEW_RETURNED = 0.5


def careful_effort(n_images: int, n_neighbors: int) -> Effort:
    """Return longer candidate lists than a graph alone would take: labels are worth a second on 10 000 images."""
    usual = Effort.for_collection(n_images, n_neighbors)
    if not _SMALL < n_images <= usual.exact_limit:
        return usual
    return replace(usual, n_candidates=max(100, usual.n_candidates), n_kept=max(50, usual.n_kept), rank=128)


def long_lists(graph: Any, images: Any, n_neighbors: int, seed: int) -> Graph:
    """Return the graph that ``graph`` names or is, with ``n_neighbors`` neighbours where it is built here."""
    if isinstance(graph, str) and graph == "deformable":
        effort = careful_effort(len(images), n_neighbors)
        found = deformable_graph(images, n_neighbors, effort=effort, random_state=seed)
        if len(images) > effort.exact_limit and isinstance(found.search, DeformableSearch):
            # Codes are about to need the memory; only questions about new images would need what goes.
            found.search.release_memory()
        return found
    return resolve_graph(graph, images, n_neighbors=n_neighbors)


def as_found(wide: Graph, n_neighbors: int) -> Graph:
    """Return the graph of the ``n_neighbors`` nearest among the longer lists of ``wide``."""
    return _choose(wide, wide.distances, n_neighbors)


def relative(wide: Graph, n_neighbors: int) -> Graph:
    """Return the graph of those nearest in relation to both images' surroundings.

    With ``s_i`` the mean distance of image i to its ``n_neighbors`` nearest, lists are reordered by
    ``d_ij / (s_i s_j) ** (1/8)``. Images in sparse regions then get more of the ties that dense regions would
    keep to themselves, which helps where classes differ in variety and hurts where large distances mean
    strangers.
    """
    distances = np.asarray(wide.distances, dtype=np.float64)
    neighbors = np.asarray(wide.neighbors)
    near = distances[:, :n_neighbors]
    scale = np.where(np.isfinite(near), near, 0.0).mean(axis=1)
    positive = scale[scale > 0.0]
    scale = np.maximum(scale, positive.min() if positive.size else 1.0)
    others = scale[np.maximum(neighbors, 0)]
    return _choose(wide, distances / (scale[:, None] * others) ** (_STRENGTH / 2), n_neighbors)


def better_reading(wide: Graph, n_neighbors: int) -> Graph:
    """Return the distances as found, or read relatively where hubs dominate.

    An image is a hub when many choose it and it cannot choose them back. Where fewer than half of all
    choices are returned, distances say more about the images' surroundings than about pairs, and the
    relative reading is taken. No partition and no label is involved.
    """
    graph = as_found(wide, n_neighbors)
    return relative(wide, n_neighbors) if returned_share(graph) < _FEW_RETURNED else graph


def returned_share(graph: Graph) -> float:
    """Return the share of choices ``i -> j`` for which ``j -> i`` is a choice too.

    >>> pairs = Graph(None, neighbors=np.array([[1], [0], [1]]))
    >>> round(returned_share(pairs), 3)
    0.667
    """
    ties = clustering.mutual_adjacency(graph.neighbors)
    # A tie weighs 1 when both chose it, counted from both ends, and 1/2 when one did.
    n_returned, n_choices = np.count_nonzero(ties.data == 1.0), ties.data.sum()
    return float(n_returned / n_choices) if n_choices else 1.0


def _choose(wide: Graph, order_by: Any, n_neighbors: int) -> Graph:
    """Keep the first ``n_neighbors`` of each list under another order, no image chosen too often."""
    found, lengths = np.asarray(wide.neighbors), np.asarray(wide.distances)
    order = np.argsort(order_by, axis=1, kind="stable")
    lists = np.take_along_axis(found, order, axis=1)
    ranked = np.where(lists >= 0, np.take_along_axis(order_by, order, axis=1), np.inf)
    slots = limit_in_degree(np.maximum(lists, 0), ranked, n_neighbors, _HUB_FACTOR * n_neighbors)
    kept = np.take_along_axis(order, np.maximum(slots, 0), axis=1)
    present = slots >= 0
    neighbors = np.where(present, np.take_along_axis(found, kept, axis=1), -1)
    distances = np.where(present, np.take_along_axis(lengths, kept, axis=1), np.inf)
    rows = np.arange(len(kept))[:, None]
    return replace(
        wide,
        adjacency=symmetric_adjacency(neighbors, wide.weighting.of(distances)),
        neighbors=neighbors,
        distances=distances,
        alignments=None if wide.alignments is None else wide.alignments[rows, kept],
        n_neighbors=n_neighbors,
    )
