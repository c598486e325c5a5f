"""What large graphs need: eigenvectors by blocks, and graphs of ever larger groups of images.

The usual iteration for eigenvectors multiplies a matrix by one vector at a time. Products with blocks of vectors are
fewer and longer, and can be divided among threads, or given to the device of a tensor. The algorithm is written once;
:class:`RowRanges` and :class:`DeviceMatrix` make its products.

In a graph of very many images some small groups have hardly an edge to the rest, for instance all versions of one
picture. The leading eigenvectors then single out such groups and say nothing about clusters. So a very large graph is
made smaller first: each image is joined with its most similar neighbour, and so are the groups, until few are left.
Their graph, without the weight inside groups, has no such groups left. It is cut like a small collection, and the
labels are refined level by level on the way back to single images (as in multilevel graph partitioning; Karypis and
Kumar, 1998).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from tubal.backends.arrays import (
    Array,
    as_like,
    is_torch,
    namespace,
    new_zeros,
    own_threads,
    parallel_ranges,
    sparse_tensor,
    to_numpy,
)
from tubal.backends.cpu import tall as kernels
from tubal.backends.cpu.deformation import move_to_best_clusters, weights_to_clusters
from tubal.graph.structure import FloatArray, IndexArray, SparseMatrix

Float64Array: TypeAlias = NDArray[np.float64]
Float32Array: TypeAlias = NDArray[np.float32]

# --- eigenvectors by blocks -------------------------------------------------------------------------------------------
_MOST_RESTARTS = 100
# An eigenvector is good enough if what it lacks is this share of its cost, one minus the eigenvalue, between these
# limits: later ones count less in a cut.
_SHARE_OF_COST, _LEAST_TOLERANCE, _MOST_TOLERANCE = 0.2, 2e-3, 1e-2
# A block is made orthogonal once if in every direction at least this share of its mean squared length remains.
_ENOUGH_LEFT = 1e-2
# Ranges of rows: enough for many threads, and so few that starting the work on each takes no time. At most 64.
_MOST_RANGES = 32


def leading_eigenpairs(
    matrix: SparseMatrix, scaling: Float64Array, known: Float64Array, n_vectors: int, seed: int, like: Array | None
) -> tuple[Float64Array, Array]:
    """Return the leading eigenpairs, orthogonal to known ones, of a matrix whose rows and columns are scaled.

    A basis grows by blocks: each new one is the product of the matrix with the last, made orthogonal to all before.
    When the basis is full, the best approximations of eigenvectors in it become the first vectors of the next basis,
    and what they still lack its next block.

    Parameters
    ----------
    matrix : sparse matrix of shape (n, n)
        Symmetric, in CSR form.
    scaling : ndarray of shape (n,)
        Factors of the rows and columns.
    known : ndarray of shape (n, n_known)
        Orthonormal eigenvectors that are not searched for.
    n_vectors : int
        Number of eigenpairs.
    seed : int
        Seed of the first block.
    like : array or None
        If it is a tensor, everything is computed on its device.

    Returns
    -------
    values : ndarray of shape (n_vectors,)
        Eigenvalues, decreasing.
    vectors : array of shape (n, n_vectors)
        Eigenvectors; a tensor in single precision if ``like`` is one.
    """
    products = DeviceMatrix.scaled(matrix, scaling, like) if is_torch(like) else RowRanges.scaled(matrix, scaling)
    rng, width, n_known = np.random.default_rng(seed), kernels.WIDTH, known.shape[1]
    n_kept, most = n_vectors + width, 3 * n_vectors + 2 * width
    first = products.from_numpy(rng.standard_normal((len(known), width), np.float32))
    space, moved = new_zeros((len(known), n_known + most), first), new_zeros((len(known), most), first)
    space[:, :n_known] = products.from_numpy(known.astype(np.float32))
    projected, n_filled = np.zeros((most, most)), 0
    shares = products.inner(space, n_known, first)
    block, turn = _orthonormal(products, first, 0, space, n_known, shares)
    for _ in range(_MOST_RESTARTS):
        while True:
            shares = products.extend(block, turn, n_known + n_filled, space, moved)
            own, n_filled = n_filled, n_filled + width
            projected[:n_filled, own:n_filled] = shares[n_known : n_known + n_filled]
            if n_filled + width > most:
                break
            block, turn = _orthonormal(products, moved, own, space, n_known + n_filled, shares)
        values, rotation = np.linalg.eigh(projected[:n_filled, :n_filled], UPLO="U")
        values, rotation = values[: -n_kept - 1 : -1], rotation[:, : -n_kept - 1 : -1].astype(np.float32)
        leading = values[:n_vectors]
        squares = products.turn_both(space, moved, _placed(rotation, space, n_known), leading.astype(np.float32))
        tolerance = np.clip(_SHARE_OF_COST * (1.0 - leading), _LEAST_TOLERANCE, _MOST_TOLERANCE)
        unfinished = np.flatnonzero(squares > tolerance**2)
        if len(unfinished) == 0:
            break
        projected[:], n_filled = 0.0, n_kept
        np.fill_diagonal(projected[:n_kept, :n_kept], values)
        mix = np.zeros((n_vectors, width), np.float32)
        mix[unfinished] = rng.standard_normal((len(unfinished), width), np.float32)
        of_space = _placed(leading[:, None].astype(np.float32) * mix, space, n_known)
        block, shares = products.combine(space, n_known + n_kept, moved, of_space, _placed(mix, moved, 0))
        block, turn = _orthonormal(products, block, 0, space, n_known + n_kept, shares)
    vectors = space[:, n_known : n_known + n_vectors]
    return leading, vectors if is_torch(vectors) else vectors.astype(np.float64)


def _orthonormal(
    products: RowRanges | DeviceMatrix, columns: Array, first: int, space: Array, n_filled: int, shares: Float64Array
) -> tuple[Array, Float32Array]:
    """Return a block and a small matrix whose product is an orthonormal basis of what 16 columns add to the space.

    The columns are those of ``columns`` from number ``first`` on; ``shares`` are the inner products of the space with
    them. What remains of a direction that loses nearly all its length is mostly rounding errors, so all is done once
    more.
    """
    for is_second in (False, True):
        if is_second:
            shares = products.inner(space, n_filled, columns)
        block, gram = products.without(columns, first, space, shares.astype(np.float32))
        squares, axes = np.linalg.eigh(gram)
        # Rounding errors take the place of directions that a block lacks.
        lengths = np.sqrt(np.maximum(squares, max(1e-10 * squares[-1], 1e-30)))
        turn = (axes / lengths).astype(np.float32)
        if squares[0] * len(squares) > _ENOUGH_LEFT * (squares.sum() + (shares**2).sum()):
            return block, turn
        columns, first = products.turned(block, turn), 0
    return columns, np.eye(len(turn), dtype=np.float32)


def _placed(rows: Float32Array, target: Array, first: int) -> Float32Array:
    """Return a matrix with a row for every column of ``target``: the given rows from ``first`` on, and zeros."""
    whole = np.zeros((target.shape[1], rows.shape[1]), np.float32)
    whole[first : first + len(rows)] = rows
    return whole


@dataclass(frozen=True)
class RowRanges:
    """A sparse matrix, and products of tall matrices by ranges of rows on all threads.

    The ranges depend on the number of rows alone, so results do not depend on the number of threads.

    Parameters
    ----------
    matrix : tuple of ndarray
        Pointers, unsigned column numbers and weights in single precision: the parts of the matrix in CSR form.
    bounds : list of (int, int)
        First and last row of every range.
    """

    matrix: tuple[NDArray[np.signedinteger], NDArray[np.unsignedinteger], Float32Array]
    bounds: list[tuple[int, int]]

    @classmethod
    def scaled(cls, matrix: SparseMatrix, scaling: Float64Array) -> RowRanges:
        """Take a matrix, its rows and columns multiplied by ``scaling``."""
        step = -(-matrix.shape[0] // _MOST_RANGES)
        bounds = [(start, min(start + step, matrix.shape[0])) for start in range(0, matrix.shape[0], step)]
        weights = np.empty(len(matrix.data), np.float32)
        # Numbers without a sign never count from the end, so kernels need not look for that.
        unsigned = matrix.indices.view(f"u{matrix.indices.itemsize}")
        products = cls((matrix.indptr, unsigned, weights), bounds)

        def scale(_: int, start: int, stop: int) -> None:
            own = slice(matrix.indptr[start], matrix.indptr[stop])
            factors = np.repeat(scaling[start:stop], np.diff(matrix.indptr[start : stop + 1]))
            weights[own] = factors * matrix.data[own] * scaling[matrix.indices[own]]

        products._each(scale)
        return products

    def _each(self, work: Callable[[int, int, int], object]) -> None:
        """Run ``work(number, start, stop)`` for every range."""
        with own_threads() as threads:
            parallel_ranges(lambda n, _: work(n, *self.bounds[n]), len(self.bounds), grain=1, threads=threads)

    def _summed(self, shape: tuple[int, ...], work: Callable[[int, int, Float64Array], object]) -> Float64Array:
        """Return the sum of the arrays that ``work(start, stop, array)`` fills for every range."""
        parts = np.empty((len(self.bounds), *shape))
        self._each(lambda number, start, stop: work(start, stop, parts[number]))
        return np.asarray(parts.sum(axis=0))

    def from_numpy(self, columns: Float32Array) -> Float32Array:
        """Return a tall matrix as the other methods need it."""
        return columns

    def inner(self, space: Float32Array, n_filled: int, columns: Float32Array) -> Float64Array:
        """Return the inner products of the columns of a space, zero for those that are not filled, with others."""

        def work(start: int, stop: int, shares: Float64Array) -> None:
            shares[:] = space[start:stop].T @ columns[start:stop]

        return _filled(self._summed((space.shape[1], columns.shape[1]), work), n_filled)

    def turned(self, columns: Float32Array, turn: Float32Array) -> Float32Array:
        """Return combinations ``columns @ turn`` of columns."""
        result = np.empty((len(columns), turn.shape[1]), np.float32)
        self._each(lambda _, start, stop: np.matmul(columns[start:stop], turn, out=result[start:stop]))
        return result

    def extend(
        self, block: Float32Array, turn: Float32Array, n_filled: int, space: Float32Array, moved: Float32Array
    ) -> Float64Array:
        """Append ``block @ turn`` to a space, and its product with the matrix to ``moved``.

        Return the inner products of the space with the latter, zero for columns that are not filled.
        """

        def work(start: int, stop: int, shares: Float64Array) -> None:
            kernels.extend(*self.matrix, block, turn, n_filled, space, moved, start, stop, shares)

        return _filled(self._summed((space.shape[1], len(turn)), work), n_filled + len(turn))

    def without(
        self, columns: Float32Array, first: int, space: Float32Array, shares: Float32Array
    ) -> tuple[Float32Array, Float64Array]:
        """Return some columns minus ``space @ shares``, and the inner products of the result's columns."""
        width = shares.shape[1]
        block = np.empty((len(columns), width), np.float32)

        def work(start: int, stop: int, gram: Float64Array) -> None:
            kernels.without(columns, first, space, shares, start, stop, block, gram)

        return block, self._summed((width, width), work)

    def turn_both(
        self, space: Float32Array, moved: Float32Array, turn: Float32Array, values: Float32Array
    ) -> Float64Array:
        """Turn the basis and its products with the matrix; return the squared lengths of what eigenvectors lack."""

        def work(start: int, stop: int, squares: Float64Array) -> None:
            kernels.turn_both(space, moved, turn, values, start, stop, squares)

        return self._summed(values.shape, work)

    def combine(
        self, space: Float32Array, n_filled: int, moved: Float32Array, of_space: Float32Array, of_moved: Float32Array
    ) -> tuple[Float32Array, Float64Array]:
        """Return ``moved @ of_moved - space @ of_space``, and its inner products with the space."""
        block = np.empty((len(space), of_space.shape[1]), np.float32)

        def work(start: int, stop: int, shares: Float64Array) -> None:
            kernels.combine(space, moved, of_space, of_moved, start, stop, block, shares)

        return block, _filled(self._summed(of_space.shape, work), n_filled)


def _filled(shares: Float64Array, n_filled: int) -> Float64Array:
    """Set the shares of columns that are not filled to zero."""
    shares[n_filled:] = 0.0
    return shares


@dataclass(frozen=True)
class DeviceMatrix:
    """The same products on a device: a sparse tensor, and tall matrices that are tensors, too."""

    matrix: Array

    @classmethod
    def scaled(cls, matrix: SparseMatrix, scaling: Float64Array, like: Array) -> DeviceMatrix:
        """Send a matrix to the device of ``like``, its rows and columns multiplied by ``scaling``."""
        torch, device = namespace(like), like.device
        pointers, columns = (torch.as_tensor(part, device=device).long() for part in (matrix.indptr, matrix.indices))
        factors = torch.as_tensor(scaling, device=device)
        weights = torch.as_tensor(matrix.data, device=device) * factors[columns]
        weights *= torch.repeat_interleave(factors, pointers.diff(), output_size=len(columns))
        return cls(sparse_tensor(pointers, columns, weights.float()))

    def from_numpy(self, columns: Float32Array) -> Array:
        """Send a tall matrix to the device."""
        return namespace(self.matrix).as_tensor(columns, device=self.matrix.device)

    def inner(self, space: Array, n_filled: int, columns: Array) -> Float64Array:
        """Return the inner products of the columns of a space, zero for those that are not filled, with others."""
        shares = np.zeros((space.shape[1], columns.shape[1]))
        shares[:n_filled] = to_numpy(space[:, :n_filled].T @ columns)
        return shares

    def turned(self, columns: Array, turn: Float32Array) -> Array:
        """Return combinations ``columns @ turn`` of columns."""
        return columns @ as_like(turn, columns)

    def extend(self, block: Array, turn: Float32Array, n_filled: int, space: Array, moved: Array) -> Float64Array:
        """Append ``block @ turn`` to a space, and its product with the matrix to ``moved``.

        Return the inner products of the space with the latter, zero for columns that are not filled.
        """
        width, first = len(turn), n_filled - (space.shape[1] - moved.shape[1])
        turned = self.turned(block, turn)
        product = namespace(turned).sparse.mm(self.matrix, turned)
        space[:, n_filled : n_filled + width], moved[:, first : first + width] = turned, product
        return self.inner(space, n_filled + width, product)

    def without(self, columns: Array, first: int, space: Array, shares: Float32Array) -> tuple[Array, Float64Array]:
        """Return some columns minus ``space @ shares``, and the inner products of the result's columns."""
        block = columns[:, first : first + shares.shape[1]] - space @ as_like(shares, space)
        return block, to_numpy(block.T @ block).astype(np.float64)

    def turn_both(self, space: Array, moved: Array, turn: Float32Array, values: Float32Array) -> Float64Array:
        """Turn the basis and its products with the matrix; return the squared lengths of what eigenvectors lack."""
        n_known, n_kept, n_vectors = space.shape[1] - moved.shape[1], turn.shape[1], len(values)
        whole = as_like(turn, space)
        found, carried = space @ whole, moved @ whole[n_known:]
        space[:, n_known : n_known + n_kept], moved[:, :n_kept] = found, carried
        lacks = carried[:, :n_vectors] - found[:, :n_vectors] * as_like(values, space)
        return to_numpy((lacks**2).sum(0)).astype(np.float64)

    def combine(
        self, space: Array, n_filled: int, moved: Array, of_space: Float32Array, of_moved: Float32Array
    ) -> tuple[Array, Float64Array]:
        """Return ``moved @ of_moved - space @ of_space``, and its inner products with the space."""
        block = moved @ as_like(of_moved, moved) - space @ as_like(of_space, space)
        return block, self.inner(space, n_filled, block)


# --- graphs of groups -------------------------------------------------------------------------------------------------
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
    return np.asarray(connected_components(links, directed=False)[1], np.intp)


def _graph_of_groups(adjacency: SparseMatrix, group: IndexArray) -> SparseMatrix:
    """Return the sums of the weights between groups, and inside each one."""
    members = sparse.csr_matrix((np.ones(len(group)), (np.arange(len(group)), group)))
    return sparse.csr_matrix(members.T @ (adjacency @ members))
