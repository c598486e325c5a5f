"""Nested clusters at every number: a tree over the images, built in one pass from the graph and one partition.

The leaves are small pieces of clusters. Pieces of one cluster are merged first, until only the clusters are left; then
the clusters are merged. So the tree contains the partition it was built from, finer ones below it and coarser ones
above it, and all of them are nested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist

from tubal.backends.arrays import own_threads
from tubal.clustering.cuts import diffusion_coordinates, n_diffusion_vectors, order_by_size
from tubal.clustering.quality import members_of
from tubal.clustering.spectral import (
    LabelArray,
    Spectrum,
    cluster_means,
    groups_after_merges,
    nearest_centers,
    spectrum,
    ward_kmeans,
)
from tubal.graph.structure import IndexArray, SparseMatrix
from tubal.solvers.base import check_integer
from tubal.text import count

Coordinates: TypeAlias = NDArray[np.float32]

# Up to this many images every image is a piece; larger collections have this many pieces.
MOST_PIECES = 2000
# Eigenvectors of the tree, at least: few clusters still have fine pieces.
_LEAST_VECTORS = 30
# Rounds of K-means that make the pieces of a large cluster; pieces need to be small, not optimal.
_ROUNDS = 4


@dataclass(frozen=True)
class ClusterTree:
    """A hierarchy of clusters over images.

    Parameters
    ----------
    pieces : ndarray of shape (n_images,)
        The leaf, 0 to ``n_pieces - 1``, that each image belongs to.
    linkage : ndarray of shape (n_pieces - 1, 4)
        Merges in SciPy's format, see ``scipy.cluster.hierarchy.linkage``: the two nodes that are merged, the height of
        the merge, and the number of pieces below it. Leaf i is node i, and row i makes node ``n_pieces + i``. Heights
        never decrease.
    n_clusters : int
        Number of clusters of the partition that the tree was built from.

    Examples
    --------
    >>> tree = ClusterTree(np.array([0, 0, 1, 2]), np.array([[1.0, 2.0, 0.5, 2.0], [0.0, 3.0, 0.9, 3.0]]), 2)
    >>> tree.labels(2)
    array([0, 0, 1, 1])
    """

    pieces: LabelArray
    linkage: NDArray[np.float64]
    n_clusters: int

    @property
    def n_pieces(self) -> int:
        """Number of leaves, which is the largest number of clusters."""
        return len(self.linkage) + 1

    def labels(self, n_clusters: int) -> LabelArray:
        """Return the clusters of all images for any number of clusters.

        Parameters
        ----------
        n_clusters : int
            Number of clusters, 1 to ``n_pieces``. Labels for a larger number divide those for a smaller one.

        Returns
        -------
        ndarray of shape (n_images,)
            Cluster of each image; cluster 0 is the largest.
        """
        n_clusters = check_integer("n_clusters", n_clusters)
        if n_clusters > self.n_pieces:
            raise ValueError(
                f"n_clusters is {n_clusters}, but the tree has only {count(self.n_pieces, 'piece')}; "
                f"ask for at most {self.n_pieces}"
            )
        merges = self.linkage[: self.n_pieces - n_clusters]
        return order_by_size(groups_after_merges(merges, self.n_pieces)[self.pieces])


def cluster_tree(
    adjacency: SparseMatrix,
    labels: LabelArray,
    *,
    together: LabelArray | None = None,
    eigenpairs: Spectrum | None = None,
    seed: int = 0,
) -> ClusterTree:
    """Return a tree of nested clusters that contains a given partition.

    Images are points in the diffusion coordinates of the graph for time 1, see :func:`diffusion_cut`. Up to 2000
    images every image is a leaf. In larger collections K-means divides each cluster into pieces, 2000 in all, as many
    in each cluster as its share of the images. All merges are Ward's: the pair that increases the sum of squared
    distances least.

    Pieces of one cluster are merged first, then the clusters. The height of a merge is Ward's distance
    ``sqrt(2 Δ)``, with ``Δ`` the increase. A merge of two clusters that would be lower than one within a cluster is
    raised to the height of the latter, so that heights never decrease.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric edge weights in CSR form.
    labels : ndarray of shape (n_images,)
        The partition that the tree contains.
    together : ndarray of shape (n_images,) or None, default=None
        Images of the same group, such as equal images, stay in one piece; None keeps no images together. Images of
        a group must have the same label.
    eigenpairs : Spectrum or None, default=None
        Leading eigenpairs of the graph, if they are known; None computes them.
    seed : int, default=0
        Seed of the eigensolver's start and of the pieces.

    Returns
    -------
    ClusterTree
        Leaves and merges.

    Examples
    --------
    >>> from scipy import sparse
    >>> blocks = sparse.block_diag([np.ones((4, 4)), np.ones((3, 3))], format="csr")
    >>> tree = cluster_tree(blocks, np.array([0, 0, 0, 0, 1, 1, 1]))
    >>> tree.labels(2)
    array([0, 0, 0, 0, 1, 1, 1])
    """
    n_images = adjacency.shape[0]
    _, labels = np.unique(labels, return_inverse=True)
    n_clusters = int(labels.max()) + 1
    n_vectors = min(max(n_diffusion_vectors(n_clusters, n_images), _LEAST_VECTORS), n_images)
    if eigenpairs is None or len(eigenpairs.values) < n_vectors:
        eigenpairs = spectrum(adjacency, n_vectors, seed=seed)
    with own_threads():
        points = diffusion_coordinates(eigenpairs.leading(n_vectors), min(n_clusters, n_vectors - 1), 1.0)
        pieces = _find_pieces(points, labels, together, seed)
        return ClusterTree(pieces, _merge_pieces(points, pieces, labels), n_clusters)


def _find_pieces(points: NDArray[np.float64], labels: LabelArray, together: LabelArray | None, seed: int) -> LabelArray:
    """Return the piece (n,) of each image; pieces do not cross clusters."""
    n_images = len(points)
    group = np.arange(n_images) if together is None else np.unique(together, return_inverse=True)[1]
    if n_images <= MOST_PIECES:
        return np.asarray(group, dtype=np.intp)
    # Equal images have equal coordinates, up to rounding; the first one of a group decides for all.
    first = np.unique(group, return_index=True)[1]
    pieces = np.empty(len(first), np.intp)
    n_found = 0
    rng = np.random.default_rng(seed)
    for cluster in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels[first] == cluster)
        n_pieces = max(1, round(MOST_PIECES * len(members) / len(first)))
        part = _divide(points[first[members]], n_pieces, rng)
        pieces[members] = n_found + part
        n_found += int(part.max()) + 1
    return pieces[group]


def _divide(points: NDArray[np.float64], n_pieces: int, rng: np.random.Generator) -> LabelArray:
    """Return the piece (n,) of each point: a few rounds of K-means from random points; no piece is empty."""
    if n_pieces >= len(points):
        return np.arange(len(points))
    part = nearest_centers(points, points[rng.permutation(len(points))[:n_pieces]])
    for _ in range(_ROUNDS - 1):
        part = np.unique(part, return_inverse=True)[1]
        part = nearest_centers(points, cluster_means(points, part, int(part.max()) + 1))
    return np.asarray(np.unique(part, return_inverse=True)[1], dtype=np.intp)


def _merge_pieces(points: NDArray[np.float64], pieces: LabelArray, labels: LabelArray) -> NDArray[np.float64]:
    """Return the linkage of all pieces: merges within clusters by increasing height, then merges of clusters."""
    n_pieces = int(pieces.max()) + 1
    weights = np.bincount(pieces, minlength=n_pieces).astype(np.float64)
    means = cluster_means(points, pieces, n_pieces)
    cluster = np.empty(n_pieces, np.intp)
    cluster[pieces] = labels
    n_clusters = int(labels.max()) + 1
    within = []  # rows (cluster, left, right, height); nodes are numbered within the cluster
    for number in range(n_clusters):
        members = np.flatnonzero(cluster == number)
        merges = ward_merges(means[members], weights[members])
        # Rounding must not change the order of merges within a cluster.
        merges[:, 2] = np.maximum.accumulate(merges[:, 2])
        within.append(np.column_stack([np.full(len(merges), number), merges]))
    above = ward_merges(cluster_means(points, labels, n_clusters), np.bincount(labels).astype(np.float64))
    rows = np.concatenate(within)
    rows = rows[np.argsort(rows[:, 3], kind="stable")]
    return _number_nodes(rows, above, cluster)


def _number_nodes(within: NDArray[np.float64], above: NDArray[np.float64], cluster: LabelArray) -> NDArray[np.float64]:
    """Return SciPy's linkage from merges within clusters, in order, and merges of the clusters."""
    n_pieces = len(cluster)
    # The nodes of each cluster, in the order of its own numbering; the last one is the whole cluster.
    nodes = [np.flatnonzero(cluster == number).tolist() for number in range(int(cluster.max()) + 1)]
    sizes = np.concatenate([np.ones(n_pieces), np.zeros(n_pieces - 1)])
    linkage = np.empty((n_pieces - 1, 4))

    def add(row: int, left: int, right: int, height: float) -> int:
        sizes[n_pieces + row] = sizes[left] + sizes[right]
        linkage[row] = min(left, right), max(left, right), height, sizes[n_pieces + row]
        return n_pieces + row

    for row, (number, left, right, height) in enumerate(within):
        own = nodes[int(number)]
        own.append(add(row, own[int(left)], own[int(right)], height))
    tops = [own[-1] for own in nodes]
    for row, (left, right, height) in enumerate(above, start=len(within)):
        tops.append(add(row, tops[int(left)], tops[int(right)], height))
    linkage[:, 2] = np.maximum.accumulate(linkage[:, 2])
    return linkage


def ward_merges(points: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Ward's merges (p - 1, 3) of weighted points (p, d): the two nodes, and the height ``sqrt(2 Δ)``.

    Merging nodes of weights ``a`` and ``b`` whose means are at distance d increases the sum of squared distances by
    ``Δ = a b d² / (a + b)``. With equal weights this is ``scipy.cluster.hierarchy.linkage(points, "ward")``.

    >>> ward_merges(np.array([[0.0], [1.0], [5.0]]), np.ones(3)).round(3)
    array([[0.   , 1.   , 1.   ],
           [2.   , 3.   , 5.196]])
    """
    n_points = len(points)
    means, weights = points.copy(), weights.copy()
    squares = np.einsum("ij,ij->i", means, means)
    alive = np.ones(n_points, dtype=np.bool_)
    node = np.arange(n_points)
    nearest, cost = np.zeros(n_points, np.intp), np.full(n_points, np.inf)

    def search(rows: LabelArray) -> None:
        """Find the nearest other node of each of the rows."""
        others = np.flatnonzero(alive)
        gaps = np.maximum(squares[rows, None] - 2.0 * means[rows] @ means[others].T + squares[others], 0.0)
        increase = gaps * (weights[rows, None] * weights[others] / (weights[rows, None] + weights[others]))
        increase[rows[:, None] == others] = np.inf
        best = increase.argmin(axis=1)
        nearest[rows], cost[rows] = others[best], increase[np.arange(len(rows)), best]

    merges = np.empty((n_points - 1, 3))
    if n_points > 1:
        search(node)
    for step in range(n_points - 1):
        first = int(cost.argmin())
        second = int(nearest[first])
        merges[step] = *sorted((node[first], node[second])), np.sqrt(2.0 * cost[first])
        total = weights[first] + weights[second]
        means[first] = (weights[first] * means[first] + weights[second] * means[second]) / total
        squares[first], weights[first], node[first] = means[first] @ means[first], total, n_points + step
        alive[second], cost[second] = False, np.inf
        if step < n_points - 2:
            # Ward's criterion is reducible: a merged node is never nearer to others than its nearer part was.
            search(np.flatnonzero(alive & ((nearest == first) | (nearest == second) | (np.arange(n_points) == first))))
    # Heights of merges of nearly equal points may decrease by rounding.
    merges[:, 2] = np.maximum.accumulate(merges[:, 2])
    return merges


# --- the tree of questions ---------------------------------------------------------------------------------
# Ward's tree of a cluster is built on its images; a larger cluster is first cut into parts of about half this size.
_TREE_LIMIT = 3000
# Answers that are planned per cluster, on average: one answer cannot show that a cluster has two names.
_PLANNED_ANSWERS = 2
# Squared distance of images that have nothing in common: their coordinates are at right angles.
_UNRELATED = 2.0


@dataclass(frozen=True)
class QuestionTree:
    """Ward's tree of the diffusion coordinates inside each cluster.

    Node ``i`` holds the images ``order[start[i]:stop[i]]``; leaves have no children, -1. ``gain`` is the number of
    images that are expected to have another name than the rest of the node: Ward's gain, which is how much the squared
    distances to the mean fall when the node is divided into its two children, in units of the squared distance from its
    cluster to the nearest other one. So a small piece of n images counts n if it is as far from the rest as that
    cluster is: where clusters are near each other, small distances matter.

    The first questions follow a plan. One answer per cluster cannot show that a cluster has two names, so two answers
    are planned on average: of k clusters the k divisions with the largest gains are made, but none that is expected to
    find fewer than one image. ``planned_gain`` is the smallest of these gains. ``roots`` are the whole clusters, those
    with most images per planned answer first: large and uniform ones.
    """

    order: IndexArray
    start: IndexArray
    stop: IndexArray
    children: IndexArray
    gain: NDArray[np.float64]
    roots: tuple[int, ...]
    planned_gain: float

    def members(self, node: int) -> IndexArray:
        """Return the images of a node.

        Parameters
        ----------
        node : int
            A node.

        Returns
        -------
        ndarray
            Indices of images.
        """
        return self.order[self.start[node] : self.stop[node]]

    @classmethod
    def of(cls, labels: LabelArray, coordinates: Coordinates, seed: int = 0) -> QuestionTree:
        """Build the trees of all clusters.

        Parameters
        ----------
        labels : ndarray of shape (n_images,)
            The cluster of each image; every cluster gets a tree.
        coordinates : ndarray of shape (n_images, n_coordinates)
            Diffusion coordinates, rows of unit length.
        seed : int, default=0
            Seed of the cut of very large clusters.

        Returns
        -------
        QuestionTree
            One root per cluster, those with most images per planned answer first.
        """
        grower = _TreeGrower(coordinates, seed)
        clusters = members_of(labels)
        roots = np.array([grower.grow(members) for members in clusters])
        means = cluster_means(coordinates.astype(np.float64), labels, len(clusters))
        # Nodes of a cluster are numbered one after the other, its root last.
        cluster = np.searchsorted(roots, np.arange(len(grower.gain)))
        gain = np.array(grower.gain) / separation(means)[cluster]
        n_pieces, planned_gain = _plan(gain, roots)
        sizes = np.array([len(members) for members in clusters])
        return cls(
            np.concatenate(grower.order),
            np.array(grower.start),
            np.array(grower.stop),
            np.array(grower.children, dtype=np.intp).reshape(-1, 2),
            gain,
            tuple(roots[np.argsort(-sizes / n_pieces, kind="stable")].tolist()),
            planned_gain,
        )


def separation(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared distance (k,) from the mean of each cluster to the nearest other one.

    >>> separation(np.array([[0.0, 0.0], [0.0, 0.5], [1.0, 0.0]]))
    array([0.25, 0.25, 1.  ])
    """
    apart: NDArray[np.float64] = cdist(means, means, "sqeuclidean")
    np.fill_diagonal(apart, _UNRELATED)  # one cluster has no other
    nearest: NDArray[np.float64] = np.maximum(apart.min(axis=1), 1e-12)
    return nearest


def _plan(gain: NDArray[np.float64], roots: IndexArray) -> tuple[IndexArray, float]:
    """Return the number of pieces (k,) of each cluster in the plan, and the smallest gain of its divisions.

    Ward's gains never increase from a node to its children, so the largest gains are those of a greedy division. Nodes
    of a cluster are numbered one after the other, its root last.

    >>> _plan(np.array([0.0, 0.0, 0.0, 1.1, 7.0, 0.0, 0.0, 2.0]), np.array([4, 7]))
    (array([2, 2]), 2.0)
    """
    n_divisions = (_PLANNED_ANSWERS - 1) * len(roots)
    smallest = max(float(np.sort(gain)[-n_divisions]), 1.0)
    divided = np.flatnonzero(gain >= smallest)
    return 1 + np.bincount(np.searchsorted(roots, divided), minlength=len(roots)), smallest


class _TreeGrower:
    """Appends the nodes of one cluster after the other, children before their parents."""

    def __init__(self, coordinates: Coordinates, seed: int) -> None:
        self.coordinates, self.seed, self.n_images = coordinates, seed, 0
        self.order: list[IndexArray] = []
        self.start: list[int] = []
        self.stop: list[int] = []
        self.children: list[tuple[int, int]] = []
        self.gain: list[float] = []

    def grow(self, members: IndexArray) -> int:
        """Add the tree of a cluster and return its root."""
        rows = self.coordinates[members].astype(np.float64)
        if len(members) <= _TREE_LIMIT:
            leaves = [members[i : i + 1] for i in range(len(members))]
            return self._join(rows, leaves)
        n_parts = -(-2 * len(members) // _TREE_LIMIT)
        parts = [members[part] for part in members_of(order_by_size(ward_kmeans(rows, n_parts, self.seed)))]
        if len(parts) == 1:  # all coordinates are equal
            parts = np.array_split(members, n_parts)
        means = np.array([self.coordinates[part].mean(axis=0) for part in parts], dtype=np.float64)
        return self._join(means, parts)

    def _join(self, points: NDArray[np.float64], leaves: Sequence[IndexArray]) -> int:
        """Add Ward's tree of some points, each the mean of the images of a leaf; return its root."""
        n_points = len(points)
        merges = linkage(points, method="ward") if n_points > 1 else np.empty((0, 4))
        # Leaves are laid out in the order of the tree, so that each node is one range of images.
        pending, layout = [n_points + len(merges) - 1], []
        while pending:
            node = pending.pop()
            if node < n_points:
                layout.append(node)
            else:
                pending += [int(merges[node - n_points, 1]), int(merges[node - n_points, 0])]
        own = np.empty(n_points + len(merges), np.intp)
        for leaf in layout:
            own[leaf] = self._leaf(leaves[leaf])
        sizes = [float(len(leaf)) for leaf in leaves]
        means = list(points)
        for step, (a, b) in enumerate(merges[:, :2].astype(np.intp)):
            total = sizes[a] + sizes[b]
            gain = sizes[a] * sizes[b] / total * float(((means[a] - means[b]) ** 2).sum())
            means.append((sizes[a] * means[a] + sizes[b] * means[b]) / total)
            sizes.append(total)
            own[n_points + step] = self._node(int(own[a]), int(own[b]), gain)
        return int(own[-1])

    def _leaf(self, members: IndexArray) -> int:
        if len(members) > 1:
            return self.grow(members)
        self.order.append(members)
        self.n_images += len(members)
        return self._append(self.n_images - len(members), self.n_images, (-1, -1), 0.0)

    def _node(self, a: int, b: int, gain: float) -> int:
        start, stop = min(self.start[a], self.start[b]), max(self.stop[a], self.stop[b])
        return self._append(start, stop, (a, b), gain)

    def _append(self, start: int, stop: int, children: tuple[int, int], gain: float) -> int:
        self.start.append(start)
        self.stop.append(stop)
        self.children.append(children)
        self.gain.append(gain)
        return len(self.start) - 1
