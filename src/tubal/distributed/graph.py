"""Neighbour graphs and partitions along them, computed in blocks on the workers of a cluster."""

from __future__ import annotations

import itertools
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tubal.graph import Graph, resolve_graph
from tubal.graph.checks import row_digests
from tubal.graph.chunked import SPARE, Candidates, block_candidates, directions, join_neighbours, rank_candidates
from tubal.graph.neighbors import ExactSearch
from tubal.graph.structure import Neighbours, Weighting, symmetric_adjacency


def block_graph(cluster: Any, coder: Any, parts: list[Any], sizes: list[int], gather: bool) -> Graph:
    """Return the graph of images on the workers: as given, or found in blocks of pairs of partitions.

    Equal to ``knn_graph`` of all images. With ``gather`` the images come here too, so that new ones can be tied.
    """
    n_images = int(sum(sizes))
    if not isinstance(coder.graph, str):
        return resolve_graph(coder.graph, range(n_images))
    wanted, metric = coder._checked_neighbors(n_images), coder.graph
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


def _distinct(digests: list[list[bytes]]) -> tuple[NDArray[Any], NDArray[Any]]:
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
    cluster: Any, parts: list[Any], sizes: list[int], firsts: NDArray[Any], reach: int, metric: str
) -> list[Neighbours]:
    """Search every pair of partitions on the workers; merge each partition's answers there."""
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
    return row_digests(images.reshape(len(images), -1))


def _rows(images: NDArray[Any], places: NDArray[Any], metric: str) -> NDArray[Any]:
    return directions(images[places].reshape(len(places), -1), metric)


def _nearest(
    queries: NDArray[Any], query_ids: NDArray[Any], known: NDArray[Any], ids: NDArray[Any], reach: int, metric: str
) -> Candidates:
    """Return exact distances to the nearest rows of one block, so that blocks can be merged without their rows."""
    best = block_candidates(queries, query_ids, known, ids, known.mean(axis=0), reach + SPARE)
    ranked = rank_candidates(
        queries, best, lambda chosen: known[np.searchsorted(ids, chosen)], best.ids.shape[1], "euclidean"
    )
    alone = ranked.indices == query_ids[:, None]
    return Candidates(ranked.indices, np.where(alone, np.inf, ranked.distances.astype(np.float64) ** 2))


def _merged(found: list[Candidates], reach: int, metric: str) -> Neighbours:
    best = reduce(lambda left, right: left.merge(right, reach + SPARE), found)
    order = np.lexsort((best.ids, best.scores), axis=1)[:, :reach]
    ids, nearest = (np.take_along_axis(values, order, axis=1) for values in (best.ids, best.scores))
    distances = np.sqrt(nearest) if metric == "euclidean" else 0.5 * nearest
    return Neighbours(ids.astype(np.intp), distances.astype(np.float32))


def deal_out(cluster: Any, parts: list[Any], sizes: list[int], order: NDArray[Any]) -> list[Any]:
    """Return partitions of the same sizes holding the images in another order, moved between workers."""
    if np.array_equal(order, np.arange(len(order))):
        return parts
    bounds = np.cumsum([0, *sizes])
    dealt = []
    for start, stop in itertools.pairwise(bounds):
        wanted = order[start:stop]
        homes = np.searchsorted(bounds, wanted, side="right") - 1
        pieces, places = [], []
        for home in np.unique(homes):
            at = np.flatnonzero(homes == home)
            pieces.append(cluster.submit(_images_at, parts[home], wanted[at] - bounds[home]))
            places.append(at)
        dealt.append(cluster.submit(_placed, pieces, places))
    return dealt


def _images_at(images: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = images[places]
    return found


def _placed(pieces: list[NDArray[Any]], places: list[NDArray[Any]]) -> NDArray[Any]:
    found = np.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), pieces[0].dtype)
    for piece, at in zip(pieces, places, strict=True):
        found[at] = piece
    return found
