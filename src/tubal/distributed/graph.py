"""Neighbour graphs computed in blocks on the workers of a cluster, and partitions reordered along them."""

from __future__ import annotations

import itertools
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tubal.distributed.cluster import Cluster
from tubal.graph import Graph, resolve_graph
from tubal.graph.checks import row_digests
from tubal.graph.chunked import SPARE, Candidates, block_candidates, directions, join_neighbours, rank_candidates
from tubal.graph.neighbors import ExactSearch
from tubal.graph.structure import Neighbours, Weighting, symmetric_adjacency
from tubal.learning.alternation import Indices
from tubal.learning.fitting import GraphSettings

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
    firsts, group = _distinct(cluster.fetch([cluster.submit(_digests, part) for part in parts]))
    reach = min(wanted, len(firsts) - 1)
    found = _pairs(cluster, parts, sizes, firsts, reach, metric) if reach else []
    joined = join_neighbours(found, firsts, group, wanted, np.float32)
    if not gather:
        return Graph(symmetric_adjacency(joined.indices, np.ones_like(joined.distances)), n_neighbors=wanted)
    search = ExactSearch(np.concatenate(cluster.fetch(parts)), metric)
    return Graph.from_neighbours(joined, weighting=Weighting(), search=search, n_neighbors=wanted)


def _distinct(digests: list[list[bytes]]) -> tuple[Indices, Indices]:
    """Return the first image of each set of equal images, and which set each image belongs to."""
    seen: dict[bytes, int] = {}
    firsts: list[int] = []
    group = np.empty(sum(map(len, digests)), np.intp)
    for index, digest in enumerate(digest for part in digests for digest in part):
        known = seen.setdefault(digest, len(firsts))
        if known == len(firsts):
            firsts.append(index)
        group[index] = known
    return np.asarray(firsts, np.intp), group


def _pairs(
    cluster: Cluster, parts: list[Future], sizes: list[int], firsts: Indices, reach: int, metric: str
) -> list[Neighbours]:
    """Search every pair of partitions on the workers; merge each partition's neighbours there."""
    bounds = np.cumsum([0, *sizes])
    own = [firsts[(firsts >= start) & (firsts < stop)] for start, stop in itertools.pairwise(bounds)]
    rows = [
        cluster.submit(_rows, part, ids - start, metric) for part, ids, start in zip(parts, own, bounds, strict=False)
    ]
    merged = []
    for queries, query_ids in zip(rows, own, strict=True):
        found = [
            cluster.submit(_nearest, queries, query_ids, known, ids, reach, metric)
            for known, ids in zip(rows, own, strict=True)
            if len(ids)
        ]
        merged.append(cluster.submit(_merged, found, reach, metric))
    return list(cluster.fetch(merged))


def _digests(images: NDArray[Any]) -> list[bytes]:
    """Return a digest of every image."""
    return row_digests(images.reshape(len(images), -1))


def _rows(images: NDArray[Any], places: Indices, metric: str) -> NDArray[Any]:
    """Return some images as rows, of unit length under the cosine metric."""
    return directions(images[places].reshape(len(places), -1), metric)


def _nearest(
    queries: NDArray[Any], query_ids: Indices, known: NDArray[Any], ids: Indices, reach: int, metric: str
) -> Candidates:
    """Return exact distances to the nearest rows of one block, so that blocks can be merged without their rows."""
    best = block_candidates(queries, query_ids, known, ids, known.mean(axis=0), reach + SPARE)
    ranked = rank_candidates(
        queries, best, lambda chosen: known[np.searchsorted(ids, chosen)], best.ids.shape[1], "euclidean"
    )
    alone = ranked.indices == query_ids[:, None]
    return Candidates(ranked.indices, np.where(alone, np.inf, ranked.distances.astype(np.float64) ** 2))


def _merged(found: list[Candidates], reach: int, metric: str) -> Neighbours:
    """Return the nearest of the candidates found in all blocks."""
    best = reduce(lambda left, right: left.merge(right, reach + SPARE), found)
    order = np.lexsort((best.ids, best.scores), axis=1)[:, :reach]
    ids, nearest = (np.take_along_axis(values, order, axis=1) for values in (best.ids, best.scores))
    distances = np.sqrt(nearest) if metric == "euclidean" else 0.5 * nearest
    return Neighbours(ids.astype(np.intp), distances.astype(np.float32))


def reorder_partitions(cluster: Cluster, parts: list[Future], sizes: list[int], order: Indices) -> list[Future]:
    """Return partitions of the same sizes that hold the images in another order, moved between workers."""
    if np.array_equal(order, np.arange(len(order))):
        return parts
    bounds = np.cumsum([0, *sizes])
    reordered = []
    for start, stop in itertools.pairwise(bounds):
        wanted = order[start:stop]
        homes = np.searchsorted(bounds, wanted, side="right") - 1
        pieces, places = [], []
        for home in np.unique(homes):
            at = np.flatnonzero(homes == home)
            pieces.append(cluster.submit(_images_at, parts[home], wanted[at] - bounds[home]))
            places.append(at)
        reordered.append(cluster.submit(_joined, pieces, places))
    return reordered


def _images_at(images: NDArray[Any], places: Indices) -> NDArray[Any]:
    """Return some images."""
    found: NDArray[Any] = images[places]
    return found


def _joined(pieces: list[NDArray[Any]], places: list[Indices]) -> NDArray[Any]:
    """Return one stack with every piece's images at their places."""
    found = np.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), pieces[0].dtype)
    for piece, at in zip(pieces, places, strict=True):
        found[at] = piece
    return found
