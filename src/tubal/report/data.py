"""What a report shows, as plain arrays: nothing here knows how the clusters were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything one report draws; ``n`` images, ``q`` neighbours each, ``r`` atoms.

    Parameters
    ----------
    images : uint8 array (n, h, w) or (n, h, w, 3)
        Thumbnails. Where they have the atoms' shape the page also states the reconstruction error.
    names : sequence of n str
        File names. They are untrusted text and are only ever shown as text.
    labels : int array (n,)
        Cluster of every image.
    confidence : float array (n,)
        Between 0 and 1; orders the galleries. Below ``doubtful_below`` an image is marked as doubtful.
    outliers : bool array (n,)
    duplicate_of : int array (n,)
        Index of the image this one nearly repeats, or -1.
    embedding : float array (n, 2)
        Positions on the map, x to the right and y upwards.
    neighbors, neighbor_distances : arrays (n, q)
        Nearest images first; an index of -1 means none.
    alignments : float array (n, q, 4), optional
        ``(rotation, scale, dy, dx)``: the neighbour turned counter-clockwise by ``rotation`` degrees and
        enlarged by ``scale`` about its centre, then moved ``dy`` pixels down and ``dx`` right, lies on the
        image.
    atoms : float array (r, h, w[, channels]), optional
    terms : sequence of n arrays (t_i, 4), optional
        Rows ``(atom, dy, dx, coefficient)``: image ``i`` is about
        ``norms[i] * sum(coefficient * np.roll(atoms[atom], (dy, dx), axis=(0, 1)))`` with white at 1
        (section 2.4 of the paper).
    term_counts : int array (n,), optional
        How many terms each image has in all, when ``terms`` holds the largest of them only.
    terms_note : str
        How the terms were found, if that needs saying.
    norms : float array (n,), optional
        Undo the scaling of the images; all ones when left out.
    objective, sparsity : sequences of float
        Per outer iteration: the objective, and the share of code entries that are not zero.
    true_labels : sequence of n str, optional
        Only compared with the clusters, never used to find them.
    scores : mapping of str to float, optional
        Shares between 0 and 1, or percent; a name that ends in "images" is a count.
    provenance : mapping
        Settings, versions, seed, hashes, times; nested mappings become groups.
    n_total : int, optional
        Number of images clustered, when the caller passes a sample of them.

    Examples
    --------
    >>> import numpy as np
    >>> data = ReportData(images=np.zeros((2, 4, 4), np.uint8), names=["a", "b"], labels=np.array([0, 1]),
    ...                   confidence=np.ones(2), outliers=np.zeros(2, bool), duplicate_of=np.array([-1, -1]),
    ...                   embedding=np.eye(2), neighbors=np.array([[1], [0]]),
    ...                   neighbor_distances=np.ones((2, 1)))
    >>> data.n_images, data.n_total
    (2, 2)
    """

    images: Array
    names: Sequence[str]
    labels: Array
    confidence: Array
    outliers: Array
    duplicate_of: Array
    embedding: Array
    neighbors: Array
    neighbor_distances: Array
    alignments: Array | None = None
    atoms: Array | None = None
    terms: Sequence[Array] | None = None
    term_counts: Array | None = None
    terms_note: str = ""
    norms: Array | None = None
    objective: Sequence[float] = ()
    sparsity: Sequence[float] = ()
    true_labels: Sequence[str] | None = None
    scores: Mapping[str, float] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    title: str = "Image clusters"
    n_total: int = 0
    doubtful_below: float = 0.5

    def __post_init__(self) -> None:
        """Check every shape once, so that the page never meets a hole."""
        _check_images(self.images)
        n = len(self.images)
        for name, shape in _ARRAY_SHAPES.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, np.asarray(value))
                _check_shape(name, getattr(self, name), (n, *shape))
        for name in ("names", "terms", "true_labels"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise ValueError(f"{name} has {len(value)} entries for {n} images; give one for each image")
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
        object.__setattr__(self, "n_total", max(self.n_total, n))

    @property
    def n_images(self) -> int:
        """Number of images held here, which may be a sample of ``n_total``."""
        return len(self.images)


# One entry per array that has a row for each image; -1 stands for any length.
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
    "norms": (),
}


def _check_images(images: Array) -> None:
    if images.dtype != np.uint8:
        raise TypeError(f"images are {images.dtype}; give uint8 thumbnails, for example np.uint8(255 * images)")
    colour = images.ndim == 4 and images.shape[3] == 3
    if images.size == 0 or not (images.ndim == 3 or colour):
        raise ValueError(f"images has shape {images.shape}; give (n, height, width) or (n, height, width, 3), n > 0")


def _check_shape(name: str, value: Array, wanted: tuple[int, ...]) -> None:
    fits = value.ndim == len(wanted) and all(w in (-1, g) for w, g in zip(wanted, value.shape, strict=True))
    if not fits:
        shape = ", ".join("any" if w == -1 else str(w) for w in wanted)
        raise ValueError(f"{name} has shape {value.shape}; give ({shape}), one row for each image")


def _check_indices(name: str, value: Array, n: int) -> None:
    if value.size and (value.min() < -1 or value.max() >= n):
        raise ValueError(f"{name} holds indices outside -1..{n - 1}; index the images given, with -1 for none")


def _check_terms(terms: Sequence[Array], atoms: Array | None) -> None:
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
