"""Neighbour graphs computed in blocks on the workers of a cluster, and partitions reordered along them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tubal.distributed.cluster import Cluster
from tubal.graph import Graph, Neighbors, Weighting
from tubal.graph.neighbors import (
    SPARE,
    Candidates,
    ExactSearch,
    as_neighbors,
    block_candidates,
    concatenate_neighbors,
    expand_to_copies,
    group_digests,
    merge_candidates,
    rank_candidates,
    row_digests,
    unit_directions,
)
from tubal.graph.structure import symmetric_adjacency
from tubal.learning.alternation import Indices
from tubal.learning.fitting import GraphSettings, resolve_graph

if TYPE_CHECKING:
    from distributed import Future


def block_graph(
    cluster: Cluster, settings: GraphSettings, parts: list[Future], sizes: list[int], gather: bool
) -> Graph:
    """Return the graph of images on the workers: as given, or found in blocks of pairs of partitions.

    It equals ``knn_graph`` of all images. With ``gather`` the images are fetched too, so that new images can be
    joined to the graph.
    """
    n_images = int(sum(sizes))
    if not isinstance(settings.graph, str):
        return resolve_graph(settings.graph, range(n_images))
    settings.check_neighbors(n_images)
    wanted, metric = settings.n_neighbors, settings.graph
    if metric not in ("euclidean", "cosine"):
        raise ValueError(f"graph={metric!r} is not built on a cluster; use 'euclidean' or 'cosine', or pass a Graph")
    digests = cluster.fetch([cluster.submit(_image_digests, part) for part in parts])
    firsts, group = group_digests(itertools.chain.from_iterable(digests))
    reach = min(wanted, len(firsts) - 1)
    found = _pairs(cluster, parts, sizes, firsts, reach, metric)
    joined = expand_to_copies(concatenate_neighbors(found), group, wanted)
    if not gather:
        return Graph(symmetric_adjacency(joined.indices, np.ones_like(joined.distances)), n_neighbors=wanted)
    search = ExactSearch(np.concatenate(cluster.fetch(parts)), metric)
    return Graph.from_neighbors(joined, weighting=Weighting(), search=search, n_neighbors=wanted)


def _pairs(
    cluster: Cluster, parts: list[Future], sizes: list[int], firsts: Indices, reach: int, metric: str
) -> list[Neighbors]:
    """Search every pair of partitions on the workers, and merge the results of each partition there.

    Neighbours are numbered among the distinct images ``firsts``.
    """
    bounds = np.cumsum([0, *sizes])
    starts = np.searchsorted(firsts, bounds)
    rows = [
        cluster.submit(_rows, part, firsts[start:stop] - bound, metric)
        for part, bound, (start, stop) in zip(parts, bounds, itertools.pairwise(starts), strict=False)
    ]
    filled = [index for index in range(len(parts)) if starts[index] < starts[index + 1]]
    merged = []
    for queries in filled:
        found = [
            cluster.submit(_search_pair, rows[queries], rows[known], int(starts[known]), reach, queries == known)
            for known in filled
        ]
        merged.append(cluster.submit(_merged, found, reach, metric))
    return list(cluster.fetch(merged))


def _image_digests(images: NDArray[Any]) -> list[bytes]:
    """Return a digest of every image."""
    return row_digests(images.reshape(len(images), -1))


def _rows(images: NDArray[Any], indices: Indices, metric: str) -> NDArray[Any]:
    """Return some images as rows, of unit length under the cosine metric."""
    return np.asarray(unit_directions(images[indices].reshape(len(indices), -1), metric))


def _search_pair(queries: NDArray[Any], known: NDArray[Any], start: int, reach: int, same: bool) -> Candidates:
    """Return exact squared distances to the nearest rows of one partition, so that partitions can be merged.

    ``start`` is the number of the first known row; ``same`` is True if queries and known rows are the same partition.
    """
    best = block_candidates(queries, known, known.mean(axis=0), reach + SPARE, own=0 if same else None)
    ranked = rank_candidates(queries, best.numbers, known.__getitem__)
    own = ranked.numbers == np.arange(len(queries))[:, None] if same else False
    return Candidates(ranked.numbers + start, np.where(own, np.inf, ranked.scores))


def _merged(found: list[Candidates], reach: int, metric: str) -> Neighbors:
    """Return the nearest of the candidates found in all partitions."""
    return as_neighbors(merge_candidates(found, reach), metric, np.float32)


def reorder_partitions(cluster: Cluster, parts: list[Future], sizes: list[int], order: Indices) -> list[Future]:
    """Return partitions of the same sizes that hold the images in another order, moved between workers."""
    if np.array_equal(order, np.arange(len(order))):
        return parts
    bounds = np.cumsum([0, *sizes])
    reordered = []
    for start, stop in itertools.pairwise(bounds):
        wanted = order[start:stop]
        homes = np.searchsorted(bounds, wanted, side="right") - 1
        pieces, indices = [], []
        for home in np.unique(homes):
            at = np.flatnonzero(homes == home)
            pieces.append(cluster.submit(_images_at, parts[home], wanted[at] - bounds[home]))
            indices.append(at)
        reordered.append(cluster.submit(_joined, pieces, indices))
    return reordered


def _images_at(images: NDArray[Any], indices: Indices) -> NDArray[Any]:
    """Return the images at the given indices."""
    found: NDArray[Any] = images[indices]
    return found


def _joined(pieces: list[NDArray[Any]], indices: list[Indices]) -> NDArray[Any]:
    """Return one stack with the images of piece i at the positions ``indices[i]``."""
    found = np.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), pieces[0].dtype)
    for piece, at in zip(pieces, indices, strict=True):
        found[at] = piece
    return found
