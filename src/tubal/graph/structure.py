"""The Graph object: edges, the neighbour lists behind them, queries for new images, and the Laplacian."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from tubal.backends.arrays import Array

FloatArray: TypeAlias = NDArray[np.floating[Any]]
IndexArray: TypeAlias = NDArray[np.intp]
SparseMatrix: TypeAlias = sparse.csr_matrix | sparse.csr_array
SearchState: TypeAlias = tuple[dict[str, NDArray[Any]], dict[str, Any]]
Report: TypeAlias = Callable[[int, int], object]


class Stage:
    """A long computation that reports its progress, and keeps what it has found so far for a later run.

    This class only reports. ``tubal.learning.checkpoints`` has one that keeps arrays in a checkpoint.

    Parameters
    ----------
    report : callable or None, default=None
        Called with what is done and the total.

    Examples
    --------
    >>> Stage(lambda done, total: print(f"{done} of {total}")).show(3, 10)
    3 of 10
    """

    def __init__(self, report: Report | None = None) -> None:
        self._report = report

    def show(self, done: int, total: int) -> None:
        """Report progress.

        Parameters
        ----------
        done : int
            What is done; never less than before, and ``total`` at the end.
        total : int
            The whole; always the same.
        """
        if self._report is not None:
            self._report(done, total)

    def kept(self) -> dict[str, NDArray[Any]]:
        """Return what an interrupted run has kept.

        Returns
        -------
        dict of str to ndarray
            The arrays; empty if there are none.
        """
        return {}

    def keep(self, arrays: Callable[[], Mapping[str, NDArray[Any]]], *, finished: bool = False) -> None:
        """Keep arrays from which a later run can continue, in place of those kept before.

        Parameters
        ----------
        arrays : callable
            Returns the arrays; called only when it is time to keep them.
        finished : bool, default=False
            Whether they are the result of the whole stage, which is always kept.
        """

    def part(self, name: str) -> Stage:
        """Return a stage within this one, which keeps arrays of its own and reports no progress.

        Parameters
        ----------
        name : str
            Name under which its arrays are kept.

        Returns
        -------
        Stage
            The stage.
        """
        return Stage()

    def add(self, arrays: Mapping[str, NDArray[Any]], first: int) -> None:
        """Keep the next rows of arrays that grow; :meth:`kept` returns all rows together.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            The rows, equally many of each array.
        first : int
            Number of rows before these, of this run and of an earlier one; 0 begins anew.
        """


@dataclass(frozen=True)
class Alignments:
    """The small affine motion that brings each neighbour onto its image.

    Pixel ``p`` of the moved neighbour is pixel ``c + R(p - c - d) / scale`` of the neighbour itself, where ``c`` is
    the image centre, ``d = (dy, dx)``, and ``R`` turns by ``rotation``.

    Parameters
    ----------
    rotation : ndarray of shape (n_images, n_neighbors)
        Rotation in degrees.
    scale : ndarray of shape (n_images, n_neighbors)
        Scale factor.
    dy : ndarray of shape (n_images, n_neighbors)
        Vertical shift, in pixels of the original image.
    dx : ndarray of shape (n_images, n_neighbors)
        Horizontal shift, in pixels of the original image.
    """

    rotation: FloatArray
    scale: FloatArray
    dy: FloatArray
    dx: FloatArray

    def __getitem__(self, key: int | slice | NDArray[Any] | tuple[Any, ...]) -> Alignments:
        """Index the four arrays alike."""
        return Alignments(self.rotation[key], self.scale[key], self.dy[key], self.dx[key])

    def __len__(self) -> int:
        return len(self.rotation)

    def stack(self) -> FloatArray:
        """Return the four arrays as one.

        Returns
        -------
        ndarray of shape (4, n_images, n_neighbors)
            Rotation, scale, dy and dx.
        """
        return np.stack([self.rotation, self.scale, self.dy, self.dx])

    @classmethod
    def from_stack(cls, values: FloatArray) -> Alignments:
        """Rebuild alignments from the array that :meth:`stack` returned.

        Parameters
        ----------
        values : ndarray of shape (4, n_images, n_neighbors)
            Rotation, scale, dy and dx.

        Returns
        -------
        Alignments
            The same alignments.
        """
        return cls(values[0], values[1], values[2], values[3])


@dataclass(frozen=True)
class Neighbors:
    """The nearest training images of some images, nearest first.

    Parameters
    ----------
    indices : ndarray of shape (n_images, n_neighbors)
        Indices of training images; -1 where a list is shorter than the others.
    distances : ndarray of shape (n_images, n_neighbors)
        Distance to each of them; infinite where the index is -1.
    alignments : Alignments or None, default=None
        How each neighbour has to be moved to lie on the image; None if the search does not move images.
    weights : ndarray of shape (n_images, n_neighbors) or None, default=None
        Edge weight of each distance; None if no weighting was applied.
    """

    indices: IndexArray
    distances: FloatArray
    alignments: Alignments | None = None
    weights: FloatArray | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return indices, distances and alignments as arrays.

        Returns
        -------
        dict of str to ndarray
            What :meth:`from_arrays` takes.
        """
        moved = {} if self.alignments is None else {"alignments": self.alignments.stack()}
        return {"neighbors": self.indices, "distances": self.distances, **moved}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Neighbors:
        """Return the neighbours that :meth:`arrays` described.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            The arrays.

        Returns
        -------
        Neighbors
            The same neighbours.
        """
        moved = Alignments.from_stack(arrays["alignments"]) if "alignments" in arrays else None
        return cls(arrays["neighbors"], arrays["distances"], moved)


class Search(Protocol):
    """Finds the training images nearest to new ones; a Graph uses it to answer queries.

    :func:`tubal.graph.restore_graph` rebuilds a search from ``kind`` and ``state``.

    Attributes
    ----------
    kind : str
        Name under which the search is stored, "exact" or "deformable".
    images : ndarray of shape (n_images, height, width[, channels]) or (n_images, n_features)
        Training images.
    """

    @property
    def kind(self) -> str:
        """Name under which the search is stored, "exact" or "deformable"."""

    @property
    def images(self) -> NDArray[Any]:
        """Training images as a NumPy array."""

    def nearest(self, new_images: Array, n_neighbors: int) -> Neighbors:
        """Return the nearest training images of each new image.

        Parameters
        ----------
        new_images : array-like of shape (m, height, width[, channels]) or (m, n_features)
            Images of the shape and scale of the training images.
        n_neighbors : int
            How many.

        Returns
        -------
        Neighbors
            Training images, nearest first.
        """

    def copies(self, new_images: Array) -> list[IndexArray]:
        """Return the training images that equal each new image, pixel for pixel, up to rounding.

        Parameters
        ----------
        new_images : array-like of shape (m, height, width[, channels]) or (m, n_features)
            Images of the shape and scale of the training images.

        Returns
        -------
        list of ndarray
            For each new image, indices of equal training images, the closest first; usually empty.
        """

    def state(self) -> SearchState:
        """Return what is needed to rebuild the search.

        Returns
        -------
        arrays : dict of str to ndarray
            Training images and other arrays.
        meta : dict of str to JSON value
            Settings.
        """


@dataclass(frozen=True)
class Weighting:
    """Turns distances into edge weights.

    Parameters
    ----------
    name : {"binary", "heat"}, default="binary"
        Weight 1 for every edge, or the heat kernel ``exp(-d² / (2 bandwidth²))``.
    bandwidth : float, default=1.0
        Width of the heat kernel, in units of the distances.

    Examples
    --------
    >>> Weighting("heat", 1.0).of(np.array([0.0, 2.0])).round(3)
    array([1.   , 0.135])
    """

    name: str = "binary"
    bandwidth: float = 1.0

    def of(self, distances: FloatArray) -> FloatArray:
        """Return one weight per distance.

        Parameters
        ----------
        distances : ndarray
            Distances, of any shape.

        Returns
        -------
        ndarray
            Weights, of the shape and type of ``distances``.
        """
        if self.name == "binary":
            return np.ones_like(distances)
        weights = np.exp(-0.5 * np.square(distances / self.bandwidth))
        # An edge that underflows to zero would silently vanish from the sparse matrix.
        return np.asarray(np.maximum(weights, np.finfo(weights.dtype).tiny))


@dataclass(frozen=True)
class Graph:
    """A symmetric neighbour graph of images.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Edge weights in CSR form: symmetric, non-negative, zero diagonal, sorted indices.
    neighbors : ndarray of shape (n_images, n_neighbors) or None, default=None
        Neighbours of each image, nearest first, before symmetrisation; -1 ends a short list.
        None if the graph was given as a matrix.
    distances : ndarray of shape (n_images, n_neighbors) or None, default=None
        Distances to those neighbours.
    alignments : Alignments or None, default=None
        How each neighbour was moved, for graphs that allow deformations.
    n_neighbors : int or None, default=None
        Number of neighbours asked for.
    search : Search or None, default=None
        Finds the neighbours of new images; None if the graph was given as a matrix.
    weighting : Weighting, default=Weighting()
        Turns the distances of new images into edge weights.

    Attributes
    ----------
    n_images : int
        Number of images.
    in_degrees : ndarray of shape (n_images,)
        How many images list each image as a neighbour.
    max_in_degree : int
        The largest of ``in_degrees``.

    Examples
    --------
    >>> graph = Graph.from_matrix(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> graph.n_images, graph.max_in_degree
    (2, 1)
    """

    adjacency: SparseMatrix
    neighbors: IndexArray | None = None
    distances: FloatArray | None = None
    alignments: Alignments | None = None
    n_neighbors: int | None = None
    search: Search | None = field(default=None, repr=False)
    weighting: Weighting = field(default_factory=Weighting)

    @property
    def n_images(self) -> int:
        """Number of images."""
        return int(self.adjacency.shape[0])

    @property
    def in_degrees(self) -> IndexArray:
        """How many images list each image as a neighbour; for a matrix, the number of its edges."""
        if self.neighbors is None:
            return np.asarray(np.diff(self.adjacency.indptr), dtype=np.intp)
        listed = self.neighbors[self.neighbors >= 0]
        return np.bincount(listed, minlength=self.n_images).astype(np.intp)

    @property
    def max_in_degree(self) -> int:
        """The largest of ``in_degrees``."""
        return int(self.in_degrees.max(initial=0))

    # --- new images --------------------------------------------------------------------------------------
    def query(self, new_images: Array, n_neighbors: int | None = None) -> tuple[IndexArray, FloatArray]:
        """Return the nearest training images of new images, with edge weights.

        Parameters
        ----------
        new_images : array-like of shape (m, height, width[, channels]) or (m, n_features)
            Images of the shape and scale of the training images.
        n_neighbors : int or None, default=None
            How many; None for as many as the graph was built with.

        Returns
        -------
        indices : ndarray of shape (m, n_neighbors)
            Training images, nearest first.
        weights : ndarray of shape (m, n_neighbors)
            Edge weights of their distances.
        """
        found = self.query_full(new_images, n_neighbors)
        return found.indices, self.weighting.of(found.distances)

    def query_full(self, new_images: Array, n_neighbors: int | None = None) -> Neighbors:
        """Return the nearest training images of new images, with distances, alignments and edge weights.

        A new image that equals a training image, pixel for pixel up to rounding, gets that image first, at distance 0
        and without motion.

        Parameters
        ----------
        new_images : array-like of shape (m, height, width[, channels]) or (m, n_features)
            Images of the shape and scale of the training images.
        n_neighbors : int or None, default=None
            Length of each list; None for the length of the lists in the graph.

        Returns
        -------
        Neighbors
            Training images, nearest first.
        """
        search = self._require_search("find the neighbours of new images")
        wanted = n_neighbors if n_neighbors is not None else (self.n_neighbors or 1)
        wanted = check_n_neighbors(wanted, self.n_images, "training images")
        found = _copies_first(search.nearest(new_images, wanted), search.copies(new_images))
        return Neighbors(found.indices, found.distances, found.alignments, self.weighting.of(found.distances))

    def identical(self, new_images: Array) -> IndexArray:
        """Return which training image each new image equals, pixel for pixel up to rounding.

        Parameters
        ----------
        new_images : array-like of shape (m, height, width[, channels]) or (m, n_features)
            Images of the training shape, scaled as the training images were.

        Returns
        -------
        ndarray of shape (m,)
            Index of the closest equal training image, the first of several, or -1 if there is none.
        """
        copies = self._require_search("recognise training images").copies(new_images)
        return np.array([found[0] if len(found) else -1 for found in copies], dtype=np.intp)

    def _require_search(self, purpose: str) -> Search:
        if self.search is None:
            raise ValueError(
                f"this graph was given as a matrix and cannot {purpose}; build the graph with knn_graph() or "
                "deformable_graph(), or give a coder the indices of each new image's training neighbours as neighbors="
            )
        return self.search

    # --- construction ------------------------------------------------------------------------------------
    @classmethod
    def from_matrix(cls, matrix: SparseMatrix | ArrayLike, n: int | None = None) -> Graph:
        """Check a user's adjacency matrix and wrap it in a graph.

        Parameters
        ----------
        matrix : sparse matrix or array-like of shape (n, n)
            Symmetric, non-negative edge weights with zero diagonal.
        n : int or None, default=None
            Number of images the matrix must have; None accepts any.

        Returns
        -------
        Graph
            A graph that has edges only: no neighbour lists, and no search for new images.
        """
        return cls(check_adjacency(matrix, n))

    @classmethod
    def from_neighbors(
        cls, found: Neighbors, *, weighting: Weighting, search: Search | None, n_neighbors: int
    ) -> Graph:
        """Build the graph of neighbour lists; an edge exists where either image lists the other.

        Parameters
        ----------
        found : Neighbors
            Neighbours of every training image.
        weighting : Weighting
            Turns distances into edge weights.
        search : Search or None
            Finds the neighbours of new images.
        n_neighbors : int
            Number of neighbours asked for.

        Returns
        -------
        Graph
            The symmetric graph.
        """
        adjacency = symmetric_adjacency(found.indices, weighting.of(found.distances))
        return cls(adjacency, found.indices, found.distances, found.alignments, n_neighbors, search, weighting)

    def state(self) -> SearchState:
        """Return the graph as arrays and JSON values; :func:`tubal.graph.restore_graph` rebuilds it.

        Returns
        -------
        arrays : dict of str to ndarray
            Adjacency, unless it follows from the neighbour lists; neighbour lists and training images.
        meta : dict of str to JSON value
            Everything else.
        """
        arrays: dict[str, NDArray[Any]] = {}
        if not self._follows_from_lists():
            arrays |= {f"adjacency_{name}": getattr(self.adjacency, name) for name in ("data", "indices", "indptr")}
        meta: dict[str, Any] = {
            "n_images": self.n_images,
            "n_neighbors": self.n_neighbors,
            "weights": self.weighting.name,
            "bandwidth": float(self.weighting.bandwidth),
            "search": None,
        }
        if self.neighbors is not None and self.distances is not None:
            arrays |= {"neighbors": self.neighbors, "distances": self.distances}
        if self.alignments is not None:
            arrays["alignments"] = self.alignments.stack()
        if self.search is not None:
            search_arrays, search_meta = self.search.state()
            arrays |= {f"search_{name}": value for name, value in search_arrays.items()}
            meta["search"] = {"kind": self.search.kind, **search_meta}
        return arrays, meta

    def _follows_from_lists(self) -> bool:
        """Return whether the edges are exactly those that :meth:`from_neighbors` gives."""
        if self.neighbors is None or self.distances is None:
            return False
        again, edges = symmetric_adjacency(self.neighbors, self.weighting.of(self.distances)), self.adjacency
        parts = [(getattr(again, name), getattr(edges, name)) for name in ("data", "indices", "indptr")]
        return all(new.dtype == old.dtype and np.array_equal(new, old) for new, old in parts)


def _copies_first(found: Neighbors, copies: list[IndexArray]) -> Neighbors:
    """Put exact copies of each query at the head of its list, at distance 0 and without motion."""
    indices, distances = found.indices.copy(), found.distances.copy()
    moves = None if found.alignments is None else found.alignments.stack().copy()
    length = indices.shape[1]
    for row, same in enumerate(copies):
        if len(same) == 0:
            continue
        others = np.flatnonzero(~np.isin(found.indices[row], same))
        n_same = min(len(same), length)
        rest = others[: length - n_same]
        indices[row] = np.concatenate([same[:n_same], found.indices[row, rest]])
        distances[row, :n_same], distances[row, n_same:] = 0.0, found.distances[row, rest]
        if moves is not None and found.alignments is not None:
            moves[:, row, n_same:] = moves[:, row, rest]
            moves[:, row, :n_same] = np.array([0.0, 1.0, 0.0, 0.0])[:, None]
    return Neighbors(indices, distances, None if moves is None else Alignments.from_stack(moves), found.weights)


def check_n_neighbors(n_neighbors: int, limit: int, what: str = "images") -> int:
    """Return ``n_neighbors`` as an int when ``1 <= n_neighbors <= limit``."""
    if isinstance(n_neighbors, bool) or not isinstance(n_neighbors, (int, np.integer)):
        raise TypeError(f"n_neighbors is {n_neighbors!r}; a positive integer is wanted")
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors is {n_neighbors}; at least one neighbour is wanted")
    if n_neighbors > limit:
        raise ValueError(
            f"n_neighbors is {n_neighbors}, but only {limit} other {what} are there to choose from; "
            f"lower n_neighbors or add images"
        )
    return int(n_neighbors)


def check_interval(name: str, value: object, least: float, most: float) -> None:
    """Raise an error unless a setting is a finite number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= value <= most:  # type: ignore[operator]
        raise ValueError(f"{name}={value!r}; a number of at least {least:g} and at most {most:g} is wanted")


def check_count(name: str, value: object, least: int, most: int) -> None:
    """Raise an error unless a setting is an integer from ``least`` to ``most``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        raise ValueError(f"{name}={value!r}; an integer of at least {least} and at most {most} is wanted")


# --- adjacency matrices ----------------------------------------------------------------------------------
def symmetric_adjacency(indices: IndexArray, weights: FloatArray) -> SparseMatrix:
    """Return ``max(W, Wᵀ)`` of the directed edges ``i -> indices[i, slot]``; negative indices are no edge.

    >>> symmetric_adjacency(np.array([[1], [2], [1]]), np.ones((3, 1))).toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    directed = directed_edges(indices, weights)
    adjacency = sparse.csr_matrix(directed.maximum(sorted_transpose(directed)))
    adjacency.sort_indices()
    return adjacency


def directed_edges(indices: IndexArray, weights: FloatArray) -> SparseMatrix:
    """Return the matrix (n, n) of the edges ``i -> indices[i, slot]``; negative indices are no edge.

    Raises an error for indices of n and above, which SciPy does not check.

    >>> directed_edges(np.array([[2, 1], [0, -1], [1, 0]]), np.ones((3, 2))).toarray()
    array([[0., 1., 1.],
           [1., 0., 0.],
           [1., 1., 0.]])
    """
    if indices.size and indices.max() >= len(indices):
        raise ValueError(
            f"a neighbour list holds the index {indices.max()}, but there are {len(indices)} images; indices from 0 to "
            f"{len(indices) - 1} are wanted, and -1 for no neighbour"
        )
    present = indices >= 0
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(present, axis=1))])
    # Small numbers need half of the memory and time; edges are in the order of their rows already.
    kind = np.int32 if max(starts[-1], len(indices)) < 2**31 else np.int64
    parts = (weights[present], indices[present].astype(kind), starts.astype(kind))
    directed = sparse.csr_matrix(parts, shape=(len(indices), len(indices)))
    directed.sum_duplicates()
    return directed


def sorted_transpose(matrix: SparseMatrix) -> SparseMatrix:
    """Return the transpose of a CSR matrix without duplicates, as another one with sorted columns."""
    transposed = matrix.T.tocsr()
    transposed.has_canonical_format = True  # rows come in order, so SciPy need not look
    return transposed


def restore_csr(parts: Sequence[NDArray[Any]], shape: tuple[int, int]) -> SparseMatrix:
    """Return the CSR matrix of stored ``data, indices, indptr`` after checking all three; compiled code does not.

    SciPy's own check computes differences of ``indptr`` in its type, where they can overflow.

    >>> restore_csr([np.ones(1), np.array([1]), np.array([0, 1, 1])], (2, 2)).toarray()
    array([[0., 1.],
           [0., 0.]])
    """
    data, indices, indptr = parts
    if data.dtype.kind not in "buif" or data.dtype.itemsize > 8 or indices.dtype.kind + indptr.dtype.kind != "ii":
        raise ValueError(f"a sparse matrix has parts of type {data.dtype}, {indices.dtype} and {indptr.dtype}")
    starts = indptr.astype(np.int64)
    if indptr.shape != (shape[0] + 1,) or indices.ndim != 1 or data.shape != indices.shape:
        raise ValueError(f"a sparse matrix has parts that are not those of a matrix of shape {shape}")
    if starts[0] != 0 or starts[-1] != len(indices) or (starts[1:] < starts[:-1]).any():
        raise ValueError("a sparse matrix has rows that do not follow each other")
    if indices.size and not 0 <= indices.min() <= indices.max() < shape[1]:
        raise ValueError(f"a sparse matrix has an entry outside its shape {shape}")
    return sparse.csr_matrix((data, indices, indptr), shape=shape)


def check_adjacency(matrix: SparseMatrix | ArrayLike, n: int | None = None) -> SparseMatrix:
    """Return a canonical float CSR copy of ``matrix``, or raise an error that says what is wrong with it."""
    dense: Any = matrix if sparse.issparse(matrix) else np.asarray(matrix)
    if dense.ndim != 2 or dense.shape[0] != dense.shape[1]:
        raise ValueError(f"adjacency has shape {dense.shape}; a square (n, n) matrix is wanted")
    if dense.dtype.kind not in "buif":
        raise TypeError(f"adjacency has dtype {dense.dtype}; real weights are wanted, convert it to float")
    if n is not None and dense.shape[0] != n:
        raise ValueError(f"adjacency joins {dense.shape[0]} images but {n} images were given; pass one row per image")
    dtype = np.float32 if dense.dtype == np.float32 else np.float64
    adjacency = sparse.csr_matrix(dense, dtype=dtype, copy=True)
    adjacency.sum_duplicates()
    if not np.isfinite(adjacency.data).all():
        raise ValueError("adjacency contains NaN or infinity; give such edges weight zero or drop them")
    if (adjacency.data < 0).any():
        raise ValueError(
            f"adjacency has a negative weight ({adjacency.data.min():g}); weights say how alike two images "
            "are, turn distances into weights first"
        )
    if (abs(adjacency - adjacency.T) > 0).nnz:
        raise ValueError(
            "adjacency is not symmetric; k-NN graphs are directed, use knn_graph() or adjacency.maximum(adjacency.T)"
        )
    if adjacency.diagonal().any():
        raise ValueError("adjacency has a non-zero diagonal; remove self-loops with adjacency.setdiag(0)")
    adjacency.eliminate_zeros()
    adjacency.sort_indices()
    return adjacency


# --- hubs ------------------------------------------------------------------------------------------------
# An image is in at most this many times as many neighbour lists as its own list has places.
HUB_FACTOR = 5


def limit_in_degree(
    candidates: IndexArray | NDArray[np.int32], distances: FloatArray, n_neighbors: int, limit: int
) -> IndexArray:
    """Choose slots ``(n, n_neighbors)`` of sorted candidate lists so that no image is chosen too often.

    Every image starts with its nearest candidates. An image that more than ``limit`` others chose keeps the nearest
    of them; the others take their next candidate instead. A slot of -1 means that a list is exhausted.

    >>> lists = np.array([[1, 2], [0, 2], [1, 0], [1, 2]])
    >>> limit_in_degree(lists, np.array([[1.0, 9.0], [1.0, 5.0], [3.0, 4.0], [2.0, 8.0]]), 1, 2)
    array([[0],
           [0],
           [1],
           [0]])
    """
    n_images, length = candidates.shape
    ends = np.count_nonzero(distances < np.inf, axis=1)
    # Places of each list before this one were tried; choices are numbers of the flattened lists.
    first_try = np.minimum(n_neighbors, ends)
    following = first_try.copy()
    places = np.arange(n_neighbors)
    result = np.where(places < first_try[:, None], places, -1)
    targets, values = candidates.reshape(-1), distances.reshape(-1)
    # Only images in many lists can ever be chosen too often; other choices need not be looked at again.
    popular = np.bincount(np.maximum(targets, 0), minlength=n_images) > limit
    rows, slots = np.nonzero(popular[candidates[:, :n_neighbors]] & (result[:, :length] >= 0))
    chosen = rows * length + slots
    n_choices = np.bincount(targets[chosen], minlength=n_images)
    all_lost, all_added = [], []
    while (n_choices > limit).any():
        crowded = (n_choices > limit)[targets[chosen]]
        kept, lost = _nearest_choices(chosen[crowded], targets, values, limit)
        changed, n_lost = np.unique(lost // length, return_counts=True)
        n_next = np.minimum(n_lost, ends[changed] - following[changed])
        first = changed * length + following[changed]
        added = np.repeat(first - np.cumsum(n_next) + n_next, n_next) + np.arange(n_next.sum())
        following[changed] += n_next
        all_lost.append(lost)
        all_added.append(added)
        added = added[popular[targets[added]]]
        chosen = np.concatenate([chosen[~crowded], kept, added])
        n_choices += np.bincount(targets[added], minlength=n_images) - np.bincount(targets[lost], minlength=n_images)
    if all_lost:
        lost, added = np.concatenate(all_lost), np.concatenate(all_added)
        changed = np.unique(lost // length)
        is_chosen = np.arange(length) < first_try[changed, None]
        for choices, is_one in ((added, True), (lost, False)):
            is_chosen[np.searchsorted(changed, choices // length), choices % length] = is_one
        result[changed] = _true_places(is_chosen, n_neighbors)
    return result


def _true_places(mask: NDArray[np.bool_], width: int) -> IndexArray:
    """Return the columns (n, width) in which each row is true, at most ``width``, and -1 after them.

    >>> _true_places(np.array([[False, True, True], [True, False, False]]), 2)
    array([[ 1,  2],
           [ 0, -1]])
    """
    rows, columns = np.nonzero(mask)
    n_found = np.count_nonzero(mask, axis=1)
    result = np.full((len(mask), width), -1, dtype=np.intp)
    result[rows, np.arange(len(rows)) - np.repeat(np.cumsum(n_found) - n_found, n_found)] = columns
    return result


def _nearest_choices(
    chosen: IndexArray, targets: IndexArray | NDArray[np.int32], distances: FloatArray, limit: int
) -> tuple[IndexArray, IndexArray]:
    """Return the choices that are among the nearest ``limit`` of their target, and the others."""
    order = chosen[np.lexsort((chosen, distances[chosen], targets[chosen]))]
    ordered = targets[order]
    is_new = np.flatnonzero(np.diff(ordered, prepend=-1))
    surplus = np.arange(len(order)) - np.repeat(is_new, np.diff(is_new, append=len(order))) >= limit
    return order[~surplus], order[surplus]


# --- Laplacian -------------------------------------------------------------------------------------------
# Below this size a dense eigenvalue solver is faster, and it always converges.
_DENSE_LIMIT = 200


def laplacian(graph: Graph | SparseMatrix | ArrayLike, *, normalized: bool = False) -> SparseMatrix:
    """Return the graph Laplacian ``L = E - W`` of eq. 7, with degrees ``E`` and adjacency ``W``.

    Parameters
    ----------
    graph : Graph, sparse matrix or array-like of shape (n_images, n_images)
        A graph, or its symmetric, non-negative adjacency matrix.
    normalized : bool, default=False
        Return ``I - E^{-1/2} W E^{-1/2}`` instead.

    Returns
    -------
    sparse matrix of shape (n_images, n_images)
        Positive semi-definite, in CSR form. An image without edges has a zero row in both forms.

    Examples
    --------
    >>> laplacian(np.array([[0.0, 1.0], [1.0, 0.0]])).toarray()
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    adjacency = graph.adjacency if isinstance(graph, Graph) else check_adjacency(graph)
    degrees = np.asarray(adjacency.sum(axis=1)).ravel()
    if not normalized:
        return sparse.csr_matrix(sparse.diags(degrees) - adjacency)
    connected = degrees > 0
    scale = np.where(connected, 1.0 / np.sqrt(np.where(connected, degrees, 1.0)), 0.0).astype(adjacency.dtype)
    scaling = sparse.diags(scale)
    return sparse.csr_matrix(sparse.diags(connected.astype(adjacency.dtype)) - scaling @ adjacency @ scaling)


def laplacian_norm(matrix: SparseMatrix) -> float:
    """Return the spectral norm of a symmetric matrix, computed in float64.

    Parameters
    ----------
    matrix : sparse matrix of shape (n_images, n_images)
        A Laplacian, or any other symmetric matrix.

    Returns
    -------
    float
        The largest absolute eigenvalue, or a bound above it if the eigensolver does not converge.

    Examples
    --------
    >>> round(laplacian_norm(laplacian(np.array([[0.0, 1.0], [1.0, 0.0]]))), 12)
    2.0
    """
    symmetric = sparse.csr_matrix(matrix, dtype=np.float64)
    n_images = symmetric.shape[0]
    if n_images == 0 or symmetric.nnz == 0:
        return 0.0
    if n_images <= _DENSE_LIMIT:
        return float(np.abs(np.linalg.eigvalsh(symmetric.toarray())).max())
    start = np.random.default_rng(0).standard_normal(n_images)
    try:
        value = eigsh(symmetric, k=1, which="LM", v0=start, ncv=40, maxiter=20 * n_images)[0]
    except ArpackNoConvergence:
        # The largest absolute row sum bounds the norm, so a step size built on it is still safe.
        return float(abs(symmetric).sum(axis=1).max())
    return float(np.abs(value).max())
