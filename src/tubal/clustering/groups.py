"""Graphs of ever larger groups of images, by which large graphs are cut.

In a graph of very many images some small groups have hardly an edge to the rest, for instance all versions of one
picture. The leading eigenvectors then single out such groups and say nothing about clusters. So a large graph is made
smaller first: each image is joined with its most similar neighbour, and so are the groups, until few are left. Their
graph, without the weight inside groups, has no such groups left. It is cut like a small collection, and the labels are
refined level by level on the way back to single images (as in multilevel graph partitioning; Karypis and Kumar, 1998).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tubal.backends.arrays import Array
from tubal.backends.cpu.deformation import move_to_best_clusters, weights_to_clusters
from tubal.backends.threads import own_threads, parallel_ranges
from tubal.graph.structure import FloatArray, IndexArray, SparseMatrix, components_of

# Above this many images a graph is cut by levels. The last level has at most so many groups, but at
# least so many for each cluster.
LEVELS_FROM, MOST_GROUPS, GROUPS_PER_CLUSTER = 100_000, 20_000, 20
# Rows of a graph that are read at a time.
_ROWS_OF_GRAPH = 2**15
# Passes over all images in which each may change its cluster, and the share of images that makes another one worth it.
_MOST_PASSES, _STILL_MOVING = 10, 1e-4
# Weights between images and clusters that are in memory at a time, of at least so many images.
_SHARED, _LEAST_ROWS = 2**20, 512


@dataclass(frozen=True)
class Levels:
    """A graph, and graphs of ever larger groups of its images.

    ``graphs[0]`` is the graph itself. The nodes of ``graphs[level + 1]`` are groups of the nodes of ``graphs[level]``,
    and ``groups[level]`` says which group each node is in. The weight between two groups is the sum over their nodes;
    that inside a group is on the diagonal.
    """

    graphs: tuple[SparseMatrix, ...]
    groups: tuple[IndexArray, ...]

    @classmethod
    def of(cls, adjacency: SparseMatrix, least: int = 1, most: int | None = None) -> Levels:
        """Join nodes with their most similar neighbours until there are at most ``most`` groups, None for 20 000.

        The last level has more if the next one would have fewer than ``least``, or if no edges are left.

        >>> path = sparse.csr_matrix(np.array([[0, 9, 1, 0], [9, 0, 0, 0], [1, 0, 0, 9], [0, 0, 9, 0]], dtype=float))
        >>> Levels.of(path, most=2).groups
        (array([0, 0, 1, 1]),)
        """
        graphs, groups = [sparse.csr_matrix(adjacency)], []
        while graphs[-1].shape[0] > (most or MOST_GROUPS):
            group = _pairs_and_more(graphs[-1])
            if not least <= group.max() + 1 < len(group):
                break
            groups.append(group)
            graphs.append(_graph_of_groups(graphs[-1], group))
        return cls(tuple(graphs), tuple(groups))

    @property
    def coarsest(self) -> SparseMatrix:
        """The graph of the largest groups, without the weight inside them."""
        edges = self.graphs[-1].tocoo()
        between = edges.row != edges.col
        parts = (edges.data[between], (edges.row[between], edges.col[between]))
        return sparse.csr_matrix(parts, shape=edges.shape)

    @property
    def largest_groups(self) -> IndexArray:
        """The group (n_images,) at the last level that each image is in."""
        found = np.arange(self.graphs[0].shape[0])
        for group in self.groups:
            found = group[found]
        return found

    def refined(self, labels: IndexArray) -> IndexArray:
        """Return labels of the images, given those of the largest groups, refined at every level."""
        for group, graph in zip(reversed(self.groups), reversed(self.graphs[1:]), strict=True):
            labels = refine_partition(graph, labels)[group]
        return refine_partition(self.graphs[0], labels)


def refine_partition(adjacency: SparseMatrix, labels: IndexArray) -> IndexArray:
    """Return labels (n,) after each node has moved to the cluster where it adds most to the modularity.

    All nodes are visited one after the other, at most ten times, until hardly one moves. The modularity never falls,
    and no cluster becomes empty.

    >>> path = sparse.csr_matrix(np.array([[0, 9, 1, 0], [9, 0, 0, 0], [1, 0, 0, 9], [0, 0, 9, 0]], dtype=float))
    >>> refine_partition(path, np.array([0, 0, 0, 1]))
    array([0, 0, 1, 1])
    """
    edges, found = sparse.csr_matrix(adjacency), labels.astype(np.int32)
    weights = edges.data.astype(np.float64, copy=False)
    degrees = np.asarray(edges.sum(axis=1), dtype=np.float64).ravel()
    volumes, sizes = np.bincount(found, degrees), np.bincount(found)
    shared = np.empty((min(len(found), max(_LEAST_ROWS, _SHARED // len(sizes))), len(sizes)))
    graph = (edges.indptr, edges.indices, weights)
    with own_threads() as threads:
        for _ in range(_MOST_PASSES):
            n_moved = 0
            for first in range(0, len(found), len(shared)):
                rows = shared[: len(found) - first]
                add_up = partial(_add_up_weights, graph, found, first, rows)
                parallel_ranges(add_up, len(rows), grain=_LEAST_ROWS, threads=threads)
                n_moved += move_to_best_clusters(*graph, degrees, found, volumes, sizes, first, rows)
            if n_moved <= _STILL_MOVING * len(found):
                break
    return found.astype(np.intp)


def _add_up_weights(
    graph: tuple[Array, Array, Array], labels: NDArray[np.int32], first: int, shared: FloatArray, start: int, stop: int
) -> None:
    """Write the weights between some nodes, counted from ``first`` on, and every cluster into ``shared``."""
    weights_to_clusters(*graph, labels, first + start, shared[start:stop])


def strongest_neighbors(adjacency: SparseMatrix, degrees: FloatArray) -> IndexArray:
    """Return the neighbour (n,) with the largest weight relative to its degree; an isolated image is its own.

    >>> chain = sparse.csr_matrix(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 3.0], [0.0, 3.0, 0.0]]))
    >>> strongest_neighbors(chain, np.array([1.0, 4.0, 3.0]))
    array([1, 0, 1])
    """
    found = np.arange(len(degrees))
    for start in range(0, len(degrees), _ROWS_OF_GRAPH):
        part = adjacency[start : start + _ROWS_OF_GRAPH]
        used = np.flatnonzero(np.diff(part.indptr))
        rows = np.repeat(np.arange(len(used)), np.diff(part.indptr)[used])
        own = part.indices == start + used[rows]  # a group has an edge to itself
        weights = np.where(own, -1.0, part.data / np.maximum(degrees, 1e-300)[part.indices])
        largest = np.maximum.reduceat(weights, part.indptr[used]) if len(used) else weights
        places = np.flatnonzero(weights == largest[rows])
        found[start + used] = part.indices[places[np.searchsorted(rows[places], np.arange(len(used)))]]
    return found


def _pairs_and_more(adjacency: SparseMatrix) -> IndexArray:
    """Return groups (n,) in which every node is together with its strongest neighbour."""
    n_nodes = adjacency.shape[0]
    degrees = np.asarray(adjacency.sum(axis=1), dtype=np.float64).ravel()
    ends = np.arange(n_nodes), strongest_neighbors(adjacency, degrees)
    links = sparse.csr_matrix((np.ones(n_nodes, np.float32), ends), shape=adjacency.shape)
    return components_of(links + links.T)


def _graph_of_groups(adjacency: SparseMatrix, group: IndexArray) -> SparseMatrix:
    """Return the sums of the weights between groups, and inside each one."""
    members = sparse.csr_matrix((np.ones(len(group)), (np.arange(len(group)), group)))
    return sparse.csr_matrix(members.T @ (adjacency @ members))
