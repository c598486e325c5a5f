"""The Graph object: edges, the neighbour lists they came from, Laplacians, and queries for new images."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from tubal.graph.checks import as_rows, check_images, check_n_neighbors, row_digests

FloatArray = NDArray[np.floating[Any]]
IndexArray = NDArray[np.intp]


@dataclass(frozen=True)
class Alignments:
    """The small affine motion that brings a neighbour onto its image, one per (image, neighbour slot).

    Every array has shape ``(n, q)``. ``rotation`` is in degrees, ``scale`` is a factor, ``dy`` and ``dx``
    are pixels of the image as given. The pixel of the neighbour that lands on pixel ``p`` is
    ``centre + (shift-corrected p - centre)`` rotated by ``-rotation`` and divided by ``scale``.
    """

    rotation: FloatArray
    scale: FloatArray
    dy: FloatArray
    dx: FloatArray

    def __getitem__(self, key: Any) -> Alignments:
        """Select images or (image, slot) pairs, all four numbers together."""
        return Alignments(self.rotation[key], self.scale[key], self.dy[key], self.dx[key])

    def __len__(self) -> int:
        return len(self.rotation)

    def stack(self) -> FloatArray:
        """Return the four numbers as one array of shape ``(4, n, q)``."""
        return np.stack([self.rotation, self.scale, self.dy, self.dx])

    @classmethod
    def from_stack(cls, values: FloatArray) -> Alignments:
        """Undo :meth:`stack`."""
        return cls(values[0], values[1], values[2], values[3])


@dataclass(frozen=True)
class Neighbours:
    """For each image its nearest ones: ``indices`` and ``distances`` (m, q), nearest first."""

    indices: IndexArray
    distances: FloatArray
    alignments: Alignments | None = None
    weights: FloatArray | None = None


class Search(Protocol):
    """Finds the training images nearest to new ones and can be written to arrays."""

    @property
    def kind(self) -> str:
        """The name under which :func:`tubal.graph.resolve.restore_search` knows it."""

    @property
    def images(self) -> NDArray[Any]:
        """The training images, as NumPy."""

    def nearest(self, new_images: Any, n_neighbors: int) -> Neighbours:
        """The ``n_neighbors`` nearest training images of each new one."""

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON-able values that rebuild the search."""


@dataclass(frozen=True)
class Weighting:
    """Edge weight of a distance: 1, or the heat kernel ``exp(-d² / (2 bandwidth²))``.

    >>> Weighting("heat", 1.0).of(np.array([0.0, 2.0])).round(3)
    array([1.   , 0.135])
    """

    name: str = "binary"
    bandwidth: float = 1.0

    def of(self, distances: FloatArray) -> FloatArray:
        """Return one weight per distance, in the distances' precision."""
        if self.name == "binary":
            return np.ones_like(distances)
        weights = np.exp(-0.5 * np.square(distances / self.bandwidth))
        # An edge that underflows to zero would silently vanish from the sparse matrix.
        return np.asarray(np.maximum(weights, np.finfo(weights.dtype).tiny))


@dataclass(frozen=True)
class Graph:
    """A symmetric neighbour graph of ``n`` images.

    ``adjacency`` is a SciPy CSR matrix ``(n, n)``: symmetric, non-negative, zero diagonal, sorted indices.
    ``neighbors`` and ``distances`` have shape ``(n, q)``, nearest first, before symmetrising; both are
    ``None`` when the graph came as a matrix. ``alignments`` says, for graphs that allow deformations, how
    each neighbour was moved.

    >>> graph = Graph.from_matrix(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> graph.n_images, graph.max_in_degree
    (2, 1)
    """

    adjacency: Any
    neighbors: IndexArray | None = None
    distances: FloatArray | None = None
    alignments: Alignments | None = None
    n_neighbors: int | None = None
    search: Search | None = field(default=None, repr=False)
    weighting: Weighting = field(default_factory=Weighting)

    @property
    def n_images(self) -> int:
        """How many images the graph joins."""
        return int(self.adjacency.shape[0])

    @property
    def in_degrees(self) -> IndexArray:
        """How many images name each image as a neighbour (edges of each image for a matrix)."""
        if self.neighbors is None:
            return np.asarray(np.diff(self.adjacency.indptr), dtype=np.intp)
        named = self.neighbors[self.neighbors >= 0]
        return np.bincount(named, minlength=self.n_images).astype(np.intp)

    @property
    def max_in_degree(self) -> int:
        """The largest number of images that name the same image as a neighbour."""
        return int(self.in_degrees.max(initial=0))

    def query(self, new_images: Any, n_neighbors: int | None = None) -> tuple[IndexArray, FloatArray]:
        """Return ``(indices, weights)``, each ``(m, q)``: the nearest training images of new ones."""
        found = self.query_full(new_images, n_neighbors)
        return found.indices, self.weighting.of(found.distances)

    def query_full(self, new_images: Any, n_neighbors: int | None = None) -> Neighbours:
        """Like :meth:`query`, with distances and alignments as well."""
        search = self._require_search("find the neighbours of new images")
        wanted = n_neighbors if n_neighbors is not None else (self.n_neighbors or 1)
        wanted = check_n_neighbors(wanted, self.n_images, "training images")
        found = search.nearest(new_images, wanted)
        weights = self.weighting.of(found.distances)
        return Neighbours(found.indices, found.distances, found.alignments, weights)

    def identical(self, new_images: Any) -> IndexArray:
        """For each new image the index of the training image with exactly its pixels, or -1."""
        search = self._require_search("recognise training images")
        known = as_rows(search.images)
        rows = as_rows(check_images(new_images)).astype(known.dtype, copy=False)
        if rows.shape[1] != known.shape[1]:
            raise ValueError(
                f"new images have {rows.shape[1]} pixels, the graph's images {known.shape[1]}; "
                "pass images of the training size"
            )
        return np.fromiter((self._digests.get(key, -1) for key in row_digests(rows)), np.intp, len(rows))

    @property
    def _digests(self) -> dict[bytes, int]:
        table: dict[bytes, int] | None = self.__dict__.get("_digest_table")
        if table is None:
            search = self._require_search("recognise training images")
            table = {}
            for index, digest in enumerate(row_digests(as_rows(search.images))):
                table.setdefault(digest, index)
            self.__dict__["_digest_table"] = table
        return table

    def _require_search(self, purpose: str) -> Search:
        if self.search is None:
            raise ValueError(
                f"this graph was given as a matrix and cannot {purpose}; pass neighbors= with the indices "
                "of each new image's training neighbours, or build the graph with knn_graph()"
            )
        return self.search

    @classmethod
    def from_matrix(cls, matrix: Any, n: int | None = None) -> Graph:
        """Check a user's adjacency (dense or sparse) of ``n`` images and wrap it."""
        return cls(check_adjacency(matrix, n))

    @classmethod
    def from_neighbours(
        cls, found: Neighbours, *, weighting: Weighting, search: Search | None, n_neighbors: int
    ) -> Graph:
        """Build the graph of a neighbour list, symmetrised by maximum; negative indices are no edge."""
        adjacency = symmetric_adjacency(found.indices, weighting.of(found.distances))
        return cls(adjacency, found.indices, found.distances, found.alignments, n_neighbors, search, weighting)

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON-able values from which :meth:`from_state` rebuilds the graph."""
        arrays: dict[str, NDArray[Any]] = {
            "adjacency_data": self.adjacency.data,
            "adjacency_indices": self.adjacency.indices,
            "adjacency_indptr": self.adjacency.indptr,
        }
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

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> Graph:
        """Undo :meth:`state`."""
        n_images = int(meta["n_images"])
        parts = (arrays["adjacency_data"], arrays["adjacency_indices"], arrays["adjacency_indptr"])
        search = None
        if meta["search"] is not None:
            from tubal.graph.resolve import restore_search

            prefix = "search_"
            own = {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}
            search = restore_search(own, meta["search"])
        return cls(
            adjacency=sparse.csr_matrix(parts, shape=(n_images, n_images)),
            neighbors=arrays.get("neighbors"),
            distances=arrays.get("distances"),
            alignments=Alignments.from_stack(arrays["alignments"]) if "alignments" in arrays else None,
            n_neighbors=meta["n_neighbors"],
            search=search,
            weighting=Weighting(meta["weights"], float(meta["bandwidth"])),
        )


def symmetric_adjacency(indices: IndexArray, weights: FloatArray) -> Any:
    """CSR ``max(W, Wᵀ)`` of the directed edges ``i -> indices[i, slot]``; negative indices are no edge.

    >>> symmetric_adjacency(np.array([[1], [2], [1]]), np.ones((3, 1))).toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    n_images, n_slots = indices.shape
    present = indices.ravel() >= 0
    sources = np.repeat(np.arange(n_images), n_slots)[present]
    edges = (weights.ravel()[present], (sources, indices.ravel()[present]))
    directed = sparse.csr_matrix(edges, shape=(n_images, n_images))
    adjacency = sparse.csr_matrix(directed.maximum(directed.T))
    adjacency.sort_indices()
    return adjacency


def check_adjacency(matrix: Any, n: int | None = None) -> Any:
    """Return a canonical float CSR copy of ``matrix``, or say in one sentence what is wrong with it."""
    dense = matrix if sparse.issparse(matrix) else np.asarray(matrix)
    if dense.ndim != 2 or dense.shape[0] != dense.shape[1]:
        raise ValueError(f"adjacency has shape {dense.shape}; a square (n, n) matrix is needed")
    if dense.dtype.kind not in "buif":
        raise TypeError(f"adjacency has dtype {dense.dtype}; real weights are needed, convert it to float")
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


# Below this size a dense eigenvalue solver is both faster and free of convergence questions.
_DENSE_LIMIT = 200


def laplacian(graph: Any, *, normalized: bool = False) -> Any:
    """Return the CSR Laplacian ``L = E - W`` of the paper, or ``I - E^{-1/2} W E^{-1/2}``.

    ``graph`` is a :class:`Graph` or an adjacency ``W`` of shape ``(n, n)``; ``E`` holds the degrees. An image
    without edges gets a zero row in both forms, so constants on it cost nothing.

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


def laplacian_norm(matrix: Any) -> float:
    """Return the spectral norm ``‖L‖₂`` of a symmetric matrix, computed in float64.

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


def consensus_adjacency(graph: Graph) -> Any:
    """Return a symmetric CSR matrix on the graph's edges, heavier where both sides and their neighbours agree.

    With ``a`` the directed 0/1 choices and ``N(i)`` the neighbours of image ``i`` and itself,
    ``w_ij = (a_ij + a_ji) sqrt(|N(i) ∩ N(j)|)``: an edge both images chose counts twice, and an edge inside a
    tight group more than a bridge between groups. A graph given as a matrix has no directed choices; its own
    weights take the place of ``a_ij + a_ji``.

    >>> lists = np.array([[1], [0], [1]])
    >>> from .structure import Neighbours, Weighting
    >>> found = Neighbours(lists, np.ones((3, 1)))
    >>> graph = Graph.from_neighbours(found, weighting=Weighting(), search=None, n_neighbors=1)
    >>> consensus_adjacency(graph).toarray().round(2)
    array([[0.  , 2.83, 0.  ],
           [2.83, 0.  , 1.  ],
           [0.  , 1.  , 0.  ]])
    """
    n_images = graph.n_images
    if graph.neighbors is None:
        both = graph.adjacency
        chosen = sparse.csr_matrix((both > 0).astype(np.float64))
    else:
        present = graph.neighbors >= 0
        sources = np.nonzero(present)[0]
        places = (sources, graph.neighbors[present])
        chosen = sparse.csr_matrix((np.ones(len(sources)), places), shape=(n_images, n_images))
        both = chosen + chosen.T
    own = chosen + sparse.identity(n_images, format="csr")
    weights = sparse.csr_matrix(both.multiply((own @ own.T).sqrt()))
    # Whoever chose the other shares the other with it, so no edge of the graph can vanish.
    weights.sort_indices()
    return weights
