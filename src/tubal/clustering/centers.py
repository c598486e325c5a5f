"""K-means without random starts: from a tree of a sample to labels of all points, on all cores or on a device.

Points (n, d) are a NumPy array or a tensor; tensors stay on their device until labels are known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import sparse
from scipy.cluster.hierarchy import linkage

from tubal.backends.arrays import (
    Array,
    as_like,
    is_torch,
    namespace,
    own_threads,
    parallel_ranges,
    restore_like,
    to_numpy,
)
from tubal.clustering.spectral import Float64Array, LabelArray
from tubal.graph.structure import IndexArray

# Above this many points Ward's tree is built on a sample: so many points per cluster, but half the limit at least.
_TREE_LIMIT, _SAMPLE_PER_CLUSTER = 2000, 25
_KMEANS_ITERATIONS = 100
# Above this many points K-means runs on a sample of half as many.
_LLOYD_LIMIT = 20_000
# Rows that one thread works on at a time.
_BLOCK = 1024


def ward_kmeans(points: Array, n_clusters: int, seed: int) -> LabelArray:
    """Return K-means labels (n,) of points (n, d), started from Ward's tree and so without random starts.

    Above 2000 points the tree is built on a random sample of 25 points per cluster, at least 1000, drawn by ``seed``;
    above 20 000, the centres are those of a sample of 10 000 points.
    """
    sample = points
    if len(points) > _TREE_LIMIT:
        size = min(len(points), max(_TREE_LIMIT // 2, _SAMPLE_PER_CLUSTER * n_clusters))
        sample = points[restore_like(np.sort(_shuffled(len(points), seed)[:size]), points)]
    sample = to_numpy(sample).astype(np.float64, copy=False)
    tree = linkage(sample, method="ward")
    start = groups_after_merges(tree[: len(sample) - n_clusters], len(sample))
    centers = as_like(cluster_means(sample, start, n_clusters), points)
    if len(points) > _LLOYD_LIMIT:
        part = points[restore_like(_shuffled(len(points), seed)[: _LLOYD_LIMIT // 2], points)]
        found = lloyd(part, centers)
        return to_numpy(nearest_centers(points, cluster_means(part, found, n_clusters)))
    labels = to_numpy(lloyd(points, centers))
    # K-means may empty a cluster among equal points; the tree itself never does.
    return start if len(points) == len(sample) and len(np.unique(labels)) < n_clusters else labels


@lru_cache(maxsize=1)
def _shuffled(count: int, seed: int) -> IndexArray:
    """Return the numbers below ``count`` in random order; all cuts of a graph draw the same sample."""
    drawn = np.random.default_rng(seed).permutation(count)
    drawn.flags.writeable = False
    return drawn


def lloyd(points: Array, centers: Array) -> Array:
    """Return K-means labels (n,) of points (n, d), started from centers (c, d), as scikit-learn finds them.

    Its ``KMeans`` is not used here because importing it takes as long as all cuts of a few hundred images together.
    """
    middle = points.mean(axis=0)  # distances lose fewer digits around zero
    points, centers = points - middle, centers - middle
    labels: Array = restore_like(np.full(len(points), -1, np.intp), points)
    with own_threads():
        for _ in range(_KMEANS_ITERATIONS):
            found = nearest_centers(points, centers)
            if bool((found == labels).all()):
                return labels
            labels = found
            centers = cluster_means(points, _without_gaps(points, labels, centers), len(centers))
        return nearest_centers(points, centers)


def _without_gaps(points: Array, labels: Array, centers: Array) -> Array:
    """Return labels in which each empty cluster has one point, of those farthest from their centers."""
    empty = np.flatnonzero(to_numpy(namespace(labels).bincount(labels, minlength=len(centers))) == 0)
    if len(empty) == 0:
        return labels
    distances = to_numpy(((points - centers[labels]) ** 2).sum(axis=1))
    filled = to_numpy(labels).copy()
    filled[np.argpartition(distances, -len(empty))[: -len(empty) - 1 : -1]] = empty
    return restore_like(filled, points)


def two_parts(points: Float64Array, seed: int) -> LabelArray:
    """Return the part, 0 or 1, of each point (n, d), each with a twentieth of them at least.

    A few odd points would otherwise be one of the parts; they are set aside, and follow the nearer part.

    >>> two_parts(np.array([[0.0], [0.1], [1.0], [1.1]]), 0)
    array([0, 0, 1, 1])
    """
    least = len(points) // 20
    kept = np.arange(len(points))
    while len(kept) > len(points) // 2:
        part = ward_kmeans(points[kept], 2, seed)
        sizes = np.bincount(part, minlength=2)
        if sizes.min() == 0:  # all points are equal
            break
        if sizes.min() >= least:
            found: LabelArray = nearest_centers(points, cluster_means(points[kept], part, 2))
            found[kept] = part
            return np.asarray(found != found[0], dtype=np.intp)
        kept = kept[part == sizes.argmax()]
    return np.arange(len(points)) * 2 // len(points)


def cluster_means(points: Array, labels: Array, n_clusters: int) -> Array:
    """Return the mean (n_clusters, d) of the points (n, d) of each cluster; zero for an empty one."""
    if is_torch(points):
        # A product, because sums by index would add in another order every time.
        xp = namespace(points)
        numbers = xp.arange(n_clusters, device=points.device)
        belongs = (restore_like(labels, points)[None, :] == numbers[:, None]).to(points.dtype)
        return belongs @ points / belongs.sum(axis=1, keepdims=True).clip(1.0)
    counts = np.bincount(labels, minlength=n_clusters).astype(np.float64)
    clusters_of = sparse.csr_matrix(
        (np.ones(len(labels)), labels, np.arange(len(labels) + 1)), (len(labels), n_clusters)
    )
    sums = clusters_of.T @ np.asarray(points, dtype=np.float64)
    means: Float64Array = sums / np.maximum(counts, 1.0)[:, None]
    return means


def nearest_centers(points: Array, centers: Array) -> Array:
    """Return the index (n,) of the center, of those in (c, d), that is nearest to each point (n, d).

    >>> nearest_centers(np.array([[0.0], [4.0], [9.0]]), np.array([[1.0], [8.0]]))
    array([0, 0, 1])
    """
    half_squares = 0.5 * (centers**2).sum(axis=1)
    step = len(points) if is_torch(points) else _BLOCK

    def find(start: int, stop: int) -> Array:
        blocks = (points[first : min(first + step, stop)] for first in range(start, stop, step))
        found = [(block @ centers.T - half_squares).argmax(axis=1) for block in blocks]
        return namespace(points).concatenate(found)

    return over_rows(find, points)


def over_rows(work: Callable[[int, int], Array], rows: Array) -> Array:
    """Return ``work(start, stop)`` of all rows: by ranges on all threads, or of a tensor at once."""
    if is_torch(rows):
        return work(0, len(rows))
    with own_threads() as threads:
        return np.concatenate(parallel_ranges(work, len(rows), grain=_BLOCK, threads=threads))


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
