"""The leading eigenvectors of a graph's normalised adjacency, and what follows from them.

They give an estimate of the number of clusters, the start of a 2-D map of the graph, and, by K-means on their rows,
clusters. For a tensor, everything is computed on its device and stays there until labels are known.

Eigenvectors that belong to connected components are exact. On the map edges attract and random pairs repel, as in UMAP
and LargeVis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.cluster.hierarchy import linkage
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.spatial.distance import pdist

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
from tubal.backends.cpu.deformation import place_on_map, ward_merges
from tubal.clustering.large import GROUPS_PER_CLUSTER, LEVELS_FROM, Levels, leading_eigenpairs
from tubal.graph import Stage
from tubal.graph.structure import IndexArray, SparseMatrix

Float64Array: TypeAlias = NDArray[np.float64]
LabelArray: TypeAlias = IndexArray


@dataclass(frozen=True)
class Spectrum:
    """Eigenpairs of the normalised adjacency ``E^{-1/2} W E^{-1/2}``.

    Parameters
    ----------
    values : ndarray of shape (n_vectors,)
        Eigenvalues, decreasing from 1.
    vectors : array of shape (n_images, n_vectors)
        Orthonormal eigenvectors; a tensor if they were sought on a device.
    """

    values: Float64Array
    vectors: Array

    def leading(self, n_vectors: int) -> Spectrum:
        """Return the first eigenpairs.

        The arrays are views of those of this object.

        Parameters
        ----------
        n_vectors : int
            How many.

        Returns
        -------
        Spectrum
            The ``n_vectors`` eigenpairs with the largest eigenvalues.
        """
        return Spectrum(self.values[:n_vectors], self.vectors[:, :n_vectors])


# --- connected components -----------------------------------------------------------------------------------------
# Edges of each image that join most images, and the share of images that may then be left.
_EDGES_TO_JOIN, _FEW_LEFT = 3, 0.1


def components_of(adjacency: SparseMatrix) -> LabelArray:
    """Return the connected component (n,) of each image, numbered by first appearance.

    A few edges of every image often join nearly all of them. Then only the edges of the others are read.

    >>> components_of(sparse.csr_matrix(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])))
    array([0, 1, 0])
    """
    matrix = sparse.csr_matrix(adjacency)
    found: LabelArray = connected_components(_first_edges(matrix), directed=False)[1]
    others = np.flatnonzero(found != np.bincount(found).argmax())
    if len(others) > _FEW_LEFT * len(found):
        # Edges go both ways, so strong components are the same, and SciPy need not transpose the matrix to find them.
        _, found = connected_components(matrix, directed=True, connection="strong")
    elif len(others):
        edges = matrix[others].tocoo()
        links = (np.ones(len(edges.row)), (found[others[edges.row]], found[edges.col]))
        _, group = connected_components(sparse.csr_matrix(links, shape=(found.max() + 1,) * 2), directed=False)
        found = group[found]
    first = np.empty(found.max() + 1, np.intp)
    first[found[::-1]] = np.arange(len(found))[::-1]  # of equal entries the last one counts
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[found]


def _first_edges(matrix: SparseMatrix) -> SparseMatrix:
    """Return a few edges of each image, the first ones."""
    counts = np.minimum(np.diff(matrix.indptr), _EDGES_TO_JOIN)
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(starts[-1]) + np.repeat(matrix.indptr[:-1] - starts[:-1], counts)
    return sparse.csr_matrix((np.ones(len(places), np.int8), matrix.indices[places], starts), shape=matrix.shape)


# --- eigenvectors -------------------------------------------------------------------------------------------------
# Below this size a dense eigensolver beats Lanczos on one core.
_DENSE_LIMIT = 700
# Above this many images eigenvectors are sought in blocks.
_BLOCK_FROM = 20_000
# Eigenvalues lie in [-1, 1]; subtracting this much moves known ones below all others.
_DEFLATION = 3.0


def spectrum(adjacency: SparseMatrix, n_vectors: int, *, seed: int = 0, like: Array | None = None) -> Spectrum:
    """Return the leading eigenpairs of the normalised adjacency.

    The eigenvalue 1 belongs to one vector ``sqrt(degrees)`` per connected component. Those vectors are known, so they
    are not searched for: a Lanczos iteration finds a repeated eigenvalue only through its rounding errors. An isolated
    image is a component of its own.

    Above 100 000 images the eigenpairs are those of a graph of groups of images, see :mod:`tubal.clustering.large`.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric, non-negative edge weights in CSR form.
    n_vectors : int
        Number of eigenpairs; at most ``n_images`` are returned.
    seed : int, default=0
        Seed of the eigensolver's start.
    like : array or None, default=None
        If it is a tensor, eigenvectors of more than 20 000 images are sought on its device and stay there, in single
        precision.

    Returns
    -------
    Spectrum
        Eigenvalues and eigenvectors, largest eigenvalue first.

    Examples
    --------
    >>> chain = sparse.csr_matrix(np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1))
    >>> spectrum(chain, 2).values.round(3)
    array([1. , 0.5])
    """
    n_images = adjacency.shape[0]
    n_vectors = min(n_vectors, n_images)
    if n_images > LEVELS_FROM:
        levels = Levels.of(adjacency, least=GROUPS_PER_CLUSTER * n_vectors)
        if levels.groups:
            return _spectrum_of_groups(levels, n_vectors, seed)
    degrees = np.asarray(adjacency.sum(axis=1), dtype=np.float64).ravel()
    with own_threads():
        trivial = _component_vectors(adjacency, degrees, n_vectors)
        missing = n_vectors - trivial.shape[1]
        if missing == 0:
            return Spectrum(np.ones(n_vectors), trivial)
        inverse_root = 1.0 / np.sqrt(np.where(degrees > 0.0, degrees, 1.0))
        if n_images > _BLOCK_FROM and n_vectors <= n_images // 3:
            matrix = sparse.csr_matrix(adjacency)
            values, vectors = leading_eigenpairs(matrix, inverse_root, trivial, missing, seed, like)
        else:
            scaling = sparse.diags_array(inverse_root)
            normalised = sparse.csr_matrix(scaling @ adjacency.astype(np.float64) @ scaling)
            values, vectors = _leading_in_complement(normalised, trivial, missing, seed)
    return Spectrum(
        np.concatenate([np.ones(trivial.shape[1]), values]),
        _fix_signs(namespace(vectors).concatenate([as_like(trivial, vectors), vectors], axis=1)),
    )


def find_or_recall_spectrum(
    adjacency: SparseMatrix, n_vectors: int, seed: int, stage: Stage | None = None, like: Array | None = None
) -> Spectrum:
    """Return the leading eigenpairs, see :func:`spectrum`: those that an interrupted run of the stage kept, or new."""
    stage, shape = stage or Stage(), (adjacency.shape[0], min(n_vectors, adjacency.shape[0]))
    stage.show(0, shape[1])
    kept = stage.kept()
    if kept.get("vectors", np.empty(0)).shape == shape:
        pairs = Spectrum(kept["values"], kept["vectors"])
    else:
        pairs = spectrum(adjacency, n_vectors, seed=seed, like=like)
        stage.keep(lambda: {"values": pairs.values, "vectors": to_numpy(pairs.vectors)})
    stage.show(shape[1], shape[1])
    return pairs


def _component_vectors(adjacency: SparseMatrix, degrees: Float64Array, at_most: int) -> Float64Array:
    """Return unit vectors (n, c), each proportional to ``sqrt(degrees)`` on one component, heaviest first."""
    component = components_of(adjacency)
    n_components = int(component.max()) + 1
    weight = np.where(degrees > 0.0, degrees, 1e-12)
    volume = np.bincount(component, weights=weight, minlength=n_components)
    rank = np.empty(n_components, np.intp)
    rank[np.argsort(-volume, kind="stable")] = np.arange(n_components)
    column = rank[component]
    vectors = np.zeros((len(degrees), min(n_components, at_most)))
    kept = np.flatnonzero(column < vectors.shape[1])
    vectors[kept, column[kept]] = np.sqrt(weight[kept] / volume[component[kept]])
    return vectors


def _spectrum_of_groups(levels: Levels, n_vectors: int, seed: int) -> Spectrum:
    """Return the leading eigenpairs of the graph of the largest groups, each vector spread over their images.

    An image gets the part of its group's value that belongs to its degree, so that vectors stay orthonormal.
    """
    group = levels.largest_groups
    pairs = spectrum(levels.coarsest, n_vectors, seed=seed)
    degrees = np.maximum(np.asarray(levels.graphs[0].sum(axis=1), dtype=np.float64).ravel(), 1e-12)
    roots = np.sqrt(degrees / np.bincount(group, weights=degrees)[group]).astype(np.float32)
    return Spectrum(pairs.values, roots[:, None] * pairs.vectors.astype(np.float32)[group])


def _leading_in_complement(
    normalised: SparseMatrix, trivial: Float64Array, n_vectors: int, seed: int
) -> tuple[Float64Array, Float64Array]:
    """Return the leading eigenpairs of ``normalised`` orthogonal to the columns of ``trivial``."""
    n_images = normalised.shape[0]
    if n_images <= _DENSE_LIMIT or n_vectors + trivial.shape[1] > n_images // 3:
        return _largest_eigenpairs(normalised.toarray() - _DEFLATION * trivial @ trivial.T, n_vectors)

    # Single precision halves the memory traffic, and six digits are more than a partition needs.
    matrix, known = normalised.astype(np.float32), trivial.astype(np.float32)

    def deflated(vector: NDArray[np.float32]) -> NDArray[np.float32]:
        product: NDArray[np.float32] = matrix @ vector - np.float32(_DEFLATION) * (known @ (known.T @ vector))
        return product

    operator = LinearOperator(normalised.shape, matvec=deflated, dtype=np.float32)
    start = np.random.default_rng(seed).standard_normal(n_images).astype(np.float32)
    n_lanczos = min(n_images - 1, max(2 * n_vectors, 40))
    values, vectors = eigsh(operator, n_vectors, which="LA", v0=start, ncv=n_lanczos, tol=1e-5)
    order = np.argsort(-values, kind="stable")
    return values[order].astype(np.float64), vectors[:, order].astype(np.float64)


def _largest_eigenpairs(matrix: Float64Array, n_vectors: int) -> tuple[Float64Array, Float64Array]:
    """Return the ``n_vectors`` largest eigenvalues of a symmetric matrix, decreasing, and their eigenvectors."""
    n_rows = len(matrix)
    try:
        values, vectors = linalg.eigh(matrix, subset_by_index=(n_rows - n_vectors, n_rows - 1))
    except linalg.LinAlgError:
        values, vectors = np.empty(0), np.empty((n_rows, 0))
    if len(values) < n_vectors:
        # LAPACK's solver for a part of the spectrum can fail, or miss values, where many are equal.
        values, vectors = np.linalg.eigh(matrix)
    return values[: -n_vectors - 1 : -1], vectors[:, : -n_vectors - 1 : -1]


def _fix_signs(vectors: Array) -> Array:
    """Make each column's largest entry positive, so that results do not depend on a solver's choice of sign."""
    largest = vectors[abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * as_like(np.where(to_numpy(largest) < 0.0, -1.0, 1.0), vectors)


# --- the number of clusters ---------------------------------------------------------------------------------
# Keeps ratios of tiny numbers small: with separate components the first eigenvalues are exactly 1.
_SOFTENING = 0.01
# Eigenvalues on each side of a gap that are averaged, as shares of the number of clusters; 0 for one on each side.
_WINDOWS = (0.0, 0.2)
# Numbers whose logarithms are this close, 35 % apart, count as one candidate, and so many candidates are named.
_APART, _N_CANDIDATES = 0.3, 3


@dataclass(frozen=True)
class ClusterCount:
    """An estimated number of clusters, and what it is based on.

    Parameters
    ----------
    n_clusters : int
        The estimate, the first of the candidates.
    candidates : ndarray of shape (n_candidates,)
        At most three numbers of clusters, most plausible first; any two are more than 35 % apart.
    numbers : ndarray of shape (n_numbers,)
        Numbers of clusters considered.
    gap : ndarray of shape (n_numbers,)
        Gap of the eigenvalues after that many, in units of their usual growth.
    eigenpairs : Spectrum or None
        The leading eigenpairs of the graph; None for graphs of one cluster.
    """

    n_clusters: int
    candidates: IndexArray
    numbers: IndexArray
    gap: Float64Array
    eigenpairs: Spectrum | None = None

    def naming(self, number: int) -> ClusterCount:
        """Return the same estimate with a number that another criterion prefers as the second candidate.

        The estimate stays the first. If the number is within 35 % of it, the two agree, and nothing is added. The
        candidates after them are the largest gaps between means of several costs: among many gaps between single
        costs, a few are large by chance.

        Parameters
        ----------
        number : int
            A number of clusters.

        Returns
        -------
        ClusterCount
            At most three candidates, the estimate first.
        """
        if self.eigenpairs is None:
            return self
        found = [self.n_clusters]
        if abs(np.log(number / self.n_clusters)) > _APART:
            found.append(number)
        wide = _relative_gaps(self.eigenpairs.values, self.numbers, max(_WINDOWS))
        return replace(self, candidates=_separate_peaks(self.numbers, wide, found))


def estimate_n_clusters(
    adjacency: SparseMatrix,
    *,
    max_clusters: int | None = None,
    seed: int = 0,
    stage: Stage | None = None,
    like: Array | None = None,
) -> ClusterCount:
    """Estimate the number of clusters in a graph, and the next most plausible numbers.

    With ``c_k = 1 - mu_k`` the costs of the eigenvalues of the normalised adjacency, k clear clusters give k small
    costs and a jump after them. Without clusters costs still grow, on a manifold of dimension d like ``k^(2/d)``
    (Weyl's law), so the jump is measured against the growth of k: ``gap(k) = Δ log(c + 0.01) / Δ log k``. In this
    unit a graph without clusters has the same gap, 2/d, at every k, and small and large numbers compare fairly. The
    gap is the mean of two: between the costs k and k + 1, and between the means of the 0.2 k costs before and after
    them, which is blind to single odd values.

    The estimate is the number with the largest gap; the next candidates are those with the next largest gaps that
    differ from all before by more than 35 %.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric edge weights in CSR form.
    max_clusters : int or None, default=None
        Largest number considered; None for half the images, at most 100, and at most 50 above 2000 images.
    seed : int, default=0
        Seed of the eigensolver's start.
    stage : Stage or None, default=None
        Keeps the eigenpairs that were found; None to keep nothing.
    like : array or None, default=None
        If it is a tensor, eigenvectors are sought on its device, see :func:`spectrum`.

    Returns
    -------
    ClusterCount
        The estimate and its curve. Graphs without edges, or of fewer than four images, are one cluster.

    Examples
    --------
    >>> from scipy import sparse
    >>> blocks = sparse.block_diag([np.ones((6, 6)) - np.eye(6)] * 4, format="csr")
    >>> estimate_n_clusters(blocks).n_clusters
    4
    """
    n_images = adjacency.shape[0]
    most = most_clusters(n_images, max_clusters)
    if adjacency.nnz == 0 or most < 2:
        return ClusterCount(1, np.array([1], np.intp), np.array([1], np.intp), np.zeros(1))
    n_vectors = min(most + max(1, round(max(_WINDOWS) * most)), n_images)
    pairs = find_or_recall_spectrum(adjacency, n_vectors, seed, stage, like)
    numbers = np.arange(2, most + 1, dtype=np.intp)
    gap = np.mean([_relative_gaps(pairs.values, numbers, window) for window in _WINDOWS], axis=0)
    candidates = _separate_peaks(numbers, gap)
    return ClusterCount(int(candidates[0]), candidates, numbers, gap, pairs)


def most_clusters(n_images: int, max_clusters: int | None = None) -> int:
    """Return the largest number of clusters that :func:`estimate_n_clusters` considers."""
    if max_clusters is not None:
        return min(max_clusters, n_images - 1)
    return min(n_images // 2, 100 if n_images <= 2000 else 50)


def _relative_gaps(values: Float64Array, numbers: IndexArray, window: float) -> Float64Array:
    """Return the growth of log costs after each number, relative to that of the logarithm of their place."""
    costs = np.log(np.maximum(1.0 - values, 0.0) + _SOFTENING)
    sums = np.concatenate([[0.0], np.cumsum(costs)])
    width = np.maximum(1, np.rint(window * numbers)).astype(np.intp)
    last = np.minimum(numbers + width, len(values))
    before = (sums[numbers] - sums[numbers - width]) / width
    after = (sums[last] - sums[numbers]) / (last - numbers)
    # Places count from 1; each mean stands at the middle of its places.
    distance = np.log((numbers + last + 1) / (2 * numbers - width + 1))
    gaps: Float64Array = (after - before) / distance
    return gaps


def _separate_peaks(numbers: IndexArray, gap: Float64Array, named: Sequence[int] = ()) -> IndexArray:
    """Return the numbers with the largest gaps, at most three, whose logarithms differ by more than 0.3.

    Those that are already named come first. Without any gap there are more components than numbers; the largest
    number is the nearest to theirs.

    >>> _separate_peaks(np.array([2, 3, 4, 5]), np.array([1.0, 9.0, 8.0, 5.0]))
    array([3, 5, 2])
    """
    found = list(named) or ([] if gap.max() > 0.0 else [int(numbers[-1])])
    for place in np.argsort(-gap, kind="stable"):
        number = int(numbers[place])
        if len(found) < _N_CANDIDATES and all(abs(np.log(number / other)) > _APART for other in found):
            found.append(number)
    return np.array(found, dtype=np.intp)


# --- a map ---------------------------------------------------------------------------------------------------------
Points: TypeAlias = NDArray[np.float32]

# Leading eigenvectors that the start is a projection of.
_N_VECTORS = 16


def graph_map(adjacency: SparseMatrix, *, n_epochs: int | None = None, seed: int = 0) -> Points:
    """Return a map of the images in which images joined by edges lie close together.

    The initial map shows the first two principal components of the graph's leading eigenvectors. Then stochastic
    gradient steps of decreasing size reduce the cross-entropy between edges and closeness on the map, as in UMAP: each
    edge attracts its two images, which are repelled by a few random images.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric edge weights in CSR form.
    n_epochs : int or None, default=None
        Passes over all edges; None for 300 up to 2000 images, decreasing to 100 at 10 000.
    seed : int, default=0
        Seed of the start and of the random images; the same seed gives the same map.

    Returns
    -------
    ndarray of shape (n_images, 2)
        Points, centred at the origin.

    Examples
    --------
    >>> from scipy import sparse
    >>> two = sparse.block_diag([np.ones((5, 5)) - np.eye(5)] * 2, format="csr")
    >>> points = graph_map(two)
    >>> bool(np.linalg.norm(points[:5].mean(0) - points[5:].mean(0)) > np.ptp(points[:5], axis=0).max())
    True
    """
    n_images = adjacency.shape[0]
    if n_images < 3 or adjacency.nnz == 0:
        return _circle(n_images)
    points = _start(adjacency, seed)
    edges = sparse.triu(adjacency, k=1, format="coo")
    weights = (edges.data / edges.data.max()).astype(np.float32)
    epochs = n_epochs if n_epochs is not None else int(np.clip(300 - (n_images - 2000) / 40, 100, 300))
    order = np.random.default_rng(seed).permutation(len(weights))
    place_on_map(
        points,
        edges.row[order].astype(np.int32),
        edges.col[order].astype(np.int32),
        weights[order],
        epochs,
        np.uint64(seed + 1),
    )
    points -= points.mean(axis=0)
    return points


def _circle(n_images: int) -> Points:
    """Return points on a circle, for images without edges."""
    angles = 2.0 * np.pi * np.arange(n_images) / max(n_images, 1)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def _start(adjacency: SparseMatrix, seed: int) -> Points:
    """Return the first two principal components (n, 2) of the leading eigenvectors, scaled to a square of side 20."""
    vectors = spectrum(adjacency, min(_N_VECTORS, adjacency.shape[0] - 1), seed=seed).vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0.0, lengths, 1.0)
    unit = unit - unit.mean(axis=0)
    _, axes = np.linalg.eigh(unit.T @ unit)
    plane = np.zeros((len(unit), 2))
    widest = axes[:, ::-1][:, :2]
    plane[:, : widest.shape[1]] = unit @ widest
    # Noise separates images with equal coordinates; without it they would always move together.
    spread = np.abs(plane).max() or 1.0
    noise = np.random.default_rng(seed).normal(scale=0.01, size=plane.shape)
    return np.ascontiguousarray(10.0 * (plane / spread + noise), dtype=np.float32)


# --- K-means on rows of eigenvectors -------------------------------------------------------------------------------
# Above this many points Ward's tree is built on a sample: so many points per cluster, but half the limit at least.
_TREE_LIMIT, _SAMPLE_PER_CLUSTER = 2000, 25
_KMEANS_ITERATIONS = 100
# Above this many points K-means runs on a sample of half as many.
SAMPLED_FROM = 20_000
# Rows whose nearest centres one thread looks for at a time: so many that it seldom waits for Python's lock.
_BLOCK = 16384


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
    tree = ward_tree(sample, of_many=len(points) > SAMPLED_FROM)
    start = groups_after_merges(tree[: len(sample) - n_clusters], len(sample))
    centers = as_like(cluster_means(sample, start, n_clusters), points)
    if len(points) > SAMPLED_FROM:
        part = points[restore_like(_shuffled(len(points), seed)[: SAMPLED_FROM // 2], points)]
        found = lloyd(part, centers)
        return to_numpy(nearest_centers(points, cluster_means(part, found, n_clusters)))
    labels = to_numpy(lloyd(points, centers))
    # K-means may empty a cluster among equal points; the tree itself never does.
    return start if len(points) == len(sample) and len(np.unique(labels)) < n_clusters else labels


def ward_tree(points: Float64Array, *, of_many: bool) -> Float64Array:
    """Return the merges (n - 1, 2 or more) of Ward's tree of points (n, d), in the form of SciPy's ``linkage``.

    SciPy holds Python's lock, so threads cannot build several trees at once. The tree of a sample ``of_many`` points
    is built by a compiled kernel, which releases the lock.
    """
    n_points = len(points)
    if not of_many or n_points > 2 * _TREE_LIMIT or n_points < 2:
        # Of points SciPy would compute the same distances, and take some points for distances with a warning.
        return np.asarray(linkage(pdist(points), method="ward"))
    merges, heights = np.empty((n_points - 1, 2), np.int64), np.empty(n_points - 1)
    ward_merges(np.ascontiguousarray(points, dtype=np.float64), np.empty((n_points, n_points)), merges, heights)
    order = np.argsort(heights, kind="stable")
    # Merges name one point of each cluster; in the tree each merge makes a cluster of the next number.
    node, found = list(range(n_points)), []
    for step, (one, other) in enumerate(merges[order].tolist()):
        found.append((node[one], node[other]))
        node[other] = n_points + step
    return np.array(found, dtype=np.float64)


@lru_cache(maxsize=4)
def _shuffled(count: int, seed: int) -> IndexArray:
    """Return the numbers below ``count`` in random order; all cuts of a graph draw the same few samples."""
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
    ends = np.arange(len(labels) + 1, dtype=np.int32)
    members = sparse.csc_matrix((np.ones(len(labels)), labels.astype(np.int32), ends), (n_clusters, len(labels)))
    sums = members @ np.asarray(points, dtype=np.float64)
    means: Float64Array = sums / np.maximum(counts, 1.0)[:, None]
    return means


def nearest_centers(points: Array, centers: Array) -> Array:
    """Return the index (n,) of the nearest of the centers (c, d) for each point (n, d).

    >>> nearest_centers(np.array([[0.0], [4.0], [9.0]]), np.array([[1.0], [8.0]]))
    array([0, 0, 1])
    """
    half_squares = 0.5 * (centers**2).sum(axis=1)
    step = len(points) if is_torch(points) else _BLOCK

    def find(start: int, stop: int) -> Array:
        blocks = (points[first : min(first + step, stop)] for first in range(start, stop, step))
        found = [(block @ centers.T - half_squares).argmax(axis=1) for block in blocks]
        return found[0] if len(found) == 1 else namespace(points).concatenate(found)

    return over_rows(find, points, _BLOCK)


def over_rows(work: Callable[[int, int], Array], rows: Array, grain: int) -> Array:
    """Return ``work(start, stop)`` of all rows: by ranges on all threads, or of a tensor at once."""
    if is_torch(rows):
        return work(0, len(rows))
    with own_threads() as threads:
        parts = parallel_ranges(work, len(rows), grain=grain, threads=threads)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def groups_after_merges(merges: Float64Array, n_leaves: int) -> LabelArray:
    """Return the group of each leaf after the given rows of a linkage tree, numbered by first appearance."""
    # A list, because single entries of arrays take ten times as long to read and write.
    parent = list(range(n_leaves + len(merges)))
    for step, (left, right) in enumerate(merges[:, :2].astype(np.intp).tolist()):
        parent[left] = parent[right] = n_leaves + step
    # A parent has a larger number than its children, so one pass from the top finds every root.
    for node in reversed(range(len(parent))):
        parent[node] = parent[parent[node]]
    _, first, group = np.unique(parent[:n_leaves], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[group]
