"""What a report shows, as plain arrays. Nothing here depends on how the clusters were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

AnyArray = NDArray[Any]
IntArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything that one report shows, for ``n`` images with ``q`` neighbours each and ``r`` atoms.

    Parameters
    ----------
    images : uint8 array of shape (n, height, width) or (n, height, width, 3)
        The pictures. Where they have the shape of the atoms, the page also shows how much is unexplained.
    names : sequence of n str
        File names. They may contain anything; the page shows them as text and never as markup.
    labels : int array of shape (n,)
        Cluster of each image.
    confidence : float array of shape (n,)
        How certain the cluster of each image is, between 0 and 1.
    outliers : bool array of shape (n,)
        True for images that are unlike all others.
    duplicate_of : int array of shape (n,)
        Index of the image that this one nearly repeats, or -1.
    embedding : float array of shape (n, 2)
        Positions on the map, x to the right and y upwards.
    neighbors : int array of shape (n, q)
        Indices of the nearest images, nearest first; -1 means none.
    neighbor_distances : float array of shape (n, q)
        Distances to these neighbours.
    alignments : float array of shape (n, q, 4), optional
        Rows ``(rotation, scale, dy, dx)``. The neighbour matches the image after it is rotated counter-clockwise
        by ``rotation`` degrees, enlarged by ``scale`` about its centre, and moved ``dy`` pixels down and ``dx``
        pixels to the right.
    affinity : sparse matrix of shape (n, n), optional
        Symmetric weights of the edges that decided the clusters. They decide which images are typical; without them,
        the distances of the neighbours do.
    atoms : float array of shape (r, height, width) or (r, height, width, channels), optional
        The dictionary.
    terms : sequence of n float arrays of shape (n_terms, 4), optional
        Rows ``(atom, dy, dx, coefficient)``. Image ``i`` is approximately
        ``norms[i] * sum(coefficient * np.roll(atoms[atom], (dy, dx), axis=(0, 1)))``, with white at 1
        (section 2.4 of the paper).
    term_counts : int array of shape (n,), optional
        Number of terms of each image, when ``terms`` holds only the largest of them.
    explained : float array of shape (n,), optional
        Share of the squared pixels of each image that all its terms explain; NaN where it is not known.
    terms_note : str, default=""
        A sentence on how the terms were computed; shown above them.
    norms : float array of shape (n,), optional
        Factors that undo the scaling of the images. Left out, all are 1.
    objective : sequence of float, default=()
        Objective after each iteration of the learning.
    sparsity : sequence of float, default=()
        Share of non-zero coefficients after each iteration of the learning.
    n_iterations : int, optional
        Number of iterations of the learning; by default the number of values of ``objective``.
    true_labels : sequence of n str, optional
        Labels to compare the clusters with. They are never used to find clusters.
    scores : mapping of str to float, optional
        Shares between 0 and 1, or percentages; a name that ends in "images" is a count.
    provenance : mapping, optional
        Settings, versions, seed, hashes and times; nested mappings become groups.
    originals : sequence of n str, optional
        Addresses of the original pictures relative to the page, as :func:`tubal.report.page.relative_address` makes
        them; "" for none. The page shows an original where it is found, else the embedded copy.
    cluster_names : mapping of int to str, default={}
        Names of clusters by label; others are shown by their number.
    title : str, default="Image clusters"
        Heading of the page.
    doubtful_below : float, default=0.5
        An image with a lower confidence is marked as doubtful.

    Attributes
    ----------
    n_images : int
        Number of images.

    Examples
    --------
    >>> import numpy as np
    >>> data = ReportData(images=np.zeros((2, 4, 4), np.uint8), names=["a", "b"], labels=np.array([0, 1]),
    ...                   confidence=np.ones(2), outliers=np.zeros(2, bool), duplicate_of=np.array([-1, -1]),
    ...                   embedding=np.eye(2), neighbors=np.array([[1], [0]]),
    ...                   neighbor_distances=np.ones((2, 1)))
    >>> data.n_images
    2
    """

    images: NDArray[np.uint8]
    names: Sequence[str]
    labels: IntArray
    confidence: FloatArray
    outliers: NDArray[np.bool_]
    duplicate_of: IntArray
    embedding: FloatArray
    neighbors: IntArray
    neighbor_distances: FloatArray
    alignments: FloatArray | None = None
    affinity: sparse.sparray | sparse.spmatrix | None = None
    atoms: FloatArray | None = None
    terms: Sequence[FloatArray] | None = None
    term_counts: IntArray | None = None
    explained: FloatArray | None = None
    terms_note: str = ""
    norms: FloatArray | None = None
    objective: Sequence[float] = ()
    sparsity: Sequence[float] = ()
    n_iterations: int | None = None
    true_labels: Sequence[str] | None = None
    scores: Mapping[str, float] | None = None
    provenance: Mapping[str, object] = field(default_factory=dict)
    originals: Sequence[str] | None = None
    cluster_names: Mapping[int, str] = field(default_factory=dict)
    title: str = "Image clusters"
    doubtful_below: float = 0.5

    def __post_init__(self) -> None:
        """Check every shape once, so that the page never meets inconsistent data."""
        _check_images(self.images)
        n = len(self.images)
        for name, shape in _ARRAY_SHAPES.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, np.asarray(value))
                _check_shape(name, getattr(self, name), (n, *shape))
        for name in ("names", "terms", "true_labels", "originals"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise ValueError(f"{name} has {len(value)} entries for {n} images; give one for each image")
        if self.affinity is not None and self.affinity.shape != (n, n):
            raise ValueError(f"affinity has shape {self.affinity.shape}; give ({n}, {n}), one row for each image")
        _check_indices("neighbors", self.neighbors, n)
        _check_indices("duplicate_of", self.duplicate_of, n)
        if self.neighbors.shape != self.neighbor_distances.shape:
            raise ValueError(
                f"neighbors is {self.neighbors.shape} but neighbor_distances is "
                f"{self.neighbor_distances.shape}; give one distance for each neighbour"
            )
        if not np.isfinite(self.embedding).all():
            raise ValueError("embedding holds NaN or infinite positions; give finite numbers")
        if self.terms is not None:
            _check_terms(self.terms, self.atoms)
        for address in self.originals or ():
            if address and not address.startswith("./"):
                raise ValueError(
                    f"originals holds {address!r}; make addresses with relative_address, they begin with ./"
                )

    @property
    def n_images(self) -> int:
        """Number of images."""
        return len(self.images)

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """Images (n,) with a low confidence. Outliers do not count: they are marked as such."""
        return ~self.outliers.astype(bool) & (np.nan_to_num(self.confidence) < self.doubtful_below)


# The arrays with one row for each image, and the rest of their shapes; -1 stands for any length.
_ARRAY_SHAPES: dict[str, tuple[int, ...]] = {
    "labels": (),
    "confidence": (),
    "outliers": (),
    "duplicate_of": (),
    "embedding": (2,),
    "neighbors": (-1,),
    "neighbor_distances": (-1,),
    "alignments": (-1, 4),
    "term_counts": (),
    "explained": (),
    "norms": (),
}


def _check_images(images: AnyArray) -> None:
    if images.dtype != np.uint8:
        raise TypeError(f"images are {images.dtype}; give uint8 thumbnails, for example np.uint8(255 * images)")
    colour = images.ndim == 4 and images.shape[3] == 3
    if images.size == 0 or not (images.ndim == 3 or colour):
        raise ValueError(f"images has shape {images.shape}; give (n, height, width) or (n, height, width, 3), n > 0")


def _check_shape(name: str, value: AnyArray, wanted: tuple[int, ...]) -> None:
    fits = value.ndim == len(wanted) and all(w in (-1, g) for w, g in zip(wanted, value.shape, strict=True))
    if not fits:
        shape = ", ".join("any" if w == -1 else str(w) for w in wanted)
        raise ValueError(f"{name} has shape {value.shape}; give ({shape}), one row for each image")


def _check_indices(name: str, value: AnyArray, n: int) -> None:
    if value.size and (value.min() < -1 or value.max() >= n):
        raise ValueError(f"{name} holds indices outside -1..{n - 1}; index the images given, with -1 for none")


def _check_terms(terms: Sequence[FloatArray], atoms: FloatArray | None) -> None:
    if atoms is None:
        raise ValueError("terms are given without atoms; pass atoms as well, or leave both out")
    for i, given in enumerate(terms):
        rows = np.asarray(given)
        if rows.size == 0:
            continue
        if rows.ndim != 2 or rows.shape[1] != 4:
            raise ValueError(f"terms[{i}] has shape {rows.shape}; give rows (atom, dy, dx, coefficient)")
        if rows[:, 0].min() < 0 or rows[:, 0].max() >= len(atoms):
            raise ValueError(f"terms[{i}] names an atom outside 0..{len(atoms) - 1}; index the atoms given")
