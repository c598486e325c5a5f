"""Which atoms, at which shifts and with which weights, build an image (section 2.4, eq. 6)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tubal.backends.arrays import Array, is_torch, to_numpy
from tubal.problems.layout import Layout

# Explanations of images of unit length are coded with at least this sparsity, so that a person can follow the terms.
READABLE_SPARSITY = 0.02
# Images explained between two reports of the progress: as many as ``encode`` codes at a time.
_BATCH = 512


class FittedCoder(Protocol):
    """The members of a fitted coder that an explanation uses."""

    sparsity: float
    scale: str | None
    scale_factor_: float
    atoms_: Array
    _layout_: Layout

    def encode(self, X: ArrayLike | Array) -> Array:
        """Return the codes of images."""

    def by_atom(self, codes: Array) -> Array:
        """Return codes as (n, n_atoms, *positions)."""


class FittedClusterer(Protocol):
    """The members of a fitted ``ImageClusterer`` that an explanation uses."""

    model_: FittedCoder


@dataclass(frozen=True, eq=False)
class Explanation:
    """An image as a sum of shifted atoms, the largest coefficient first.

    ``norm * reconstruction()`` approximates the image.

    Parameters
    ----------
    image : ndarray of shape (height, width) or (height, width, channels)
        The image that is explained.
    atoms : ndarray of shape (n_terms,)
        Index of each term's atom.
    shifts : ndarray of shape (n_terms,), (n_terms, 2) or (n_terms, 0)
        Position of each term: places along the tube; (down, right) under CSC; nothing under TenSR, whose atoms are
        not shifted.
    coefficients : ndarray of shape (n_terms,)
        Weight of each term; none is zero.
    dictionary : ndarray of shape (n_atoms, height, width) or (n_atoms, height, width, channels)
        All atoms as images.
    layout : Layout
        How atoms are shifted.
    norm : float
        What the image was divided by before it was coded.
    note : str
        How the image was coded, if not as in fitting.
    """

    image: NDArray[Any]
    atoms: NDArray[np.intp]
    shifts: NDArray[np.intp]
    coefficients: NDArray[np.floating[Any]]
    dictionary: NDArray[np.floating[Any]]
    layout: Layout
    norm: float = 1.0
    note: str = ""

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def offsets(self) -> NDArray[np.intp]:
        """How far each term's atom is shifted down and to the right, in pixels: (n_terms, 2)."""
        offsets = np.zeros((len(self), 2), np.intp)
        if self.shifts.ndim == 1:
            offsets[:, 1 if getattr(self.layout, "tube_axis", -1) == -1 else 0] = self.shifts
        elif self.shifts.shape[1] == 2:
            offsets[:] = self.shifts
        return offsets

    def term(self, index: int) -> NDArray[Any]:
        """Return one term: an atom, shifted and multiplied by its coefficient.

        Parameters
        ----------
        index : int
            Which term; 0 has the largest coefficient.

        Returns
        -------
        ndarray of shape (height, width) or (height, width, channels)
            The term as an image, scaled as in fitting.
        """
        atom = self.layout.shift_atom(self.dictionary[self.atoms[index]], self.shifts[index])
        return np.asarray(self.coefficients[index] * atom)

    def reconstruction(self, n_terms: int | None = None) -> NDArray[Any]:
        """Return the sum of the first terms.

        Parameters
        ----------
        n_terms : int, optional
            How many terms to add; by default all, which gives the model's reconstruction.

        Returns
        -------
        ndarray of shape (height, width) or (height, width, channels)
            The sum as an image, scaled as in fitting.
        """
        total = np.zeros(self.layout.image_shape, self.dictionary.dtype)
        for index in range(len(self) if n_terms is None else min(n_terms, len(self))):
            total += self.term(index)
        return total

    def unexplained(self, n_terms: int | None = None) -> float:
        """Return the share of the image's energy that the first terms do not explain.

        Parameters
        ----------
        n_terms : int, optional
            How many terms to add; by default all.

        Returns
        -------
        float
            Squared error relative to the sum of squared pixels: 0 for a perfect explanation.
        """
        energy = float(np.square(self.image).sum()) or 1.0
        return float(np.square(self.image - self.norm * self.reconstruction(n_terms)).sum()) / energy

    def table(self, n_terms: int | None = None) -> NDArray[np.float64]:
        """Return the first terms as numbers.

        Parameters
        ----------
        n_terms : int, optional
            How many terms; by default all.

        Returns
        -------
        ndarray of shape (n_terms, 4)
            Atom, shift down, shift to the right, and coefficient of each term.
        """
        return np.column_stack([self.atoms, self.offsets, self.coefficients]).astype(np.float64)[:n_terms]


def explain_images(
    model: FittedCoder | FittedClusterer,
    images: ArrayLike | Array,
    *,
    with_graph: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> list[Explanation]:
    """Explain every image of a stack by the atoms of a fitted coder or clusterer.

    Parameters
    ----------
    model : fitted coder or ImageClusterer
        Whose atoms explain the images.
    images : array of shape (n, height, width) or (n, height, width, channels), or rows (n, features)
        Images of the shape the model was fitted on.
    with_graph : bool, default=False
        Explain the codes that the graph makes similar to those of the neighbours. They have hundreds of small terms.
        By default an image is coded alone, and at a sparsity of at least 0.02 if images have unit length, which
        gives an explanation that a person can follow. Coders without a graph do not depend on this.
    progress : callable or None, default=None
        Called with the number of images explained and the number of all images.

    Returns
    -------
    list of Explanation
        One for each image.
    """
    coder: Any = getattr(model, "model_", model)
    note = ""
    if getattr(coder, "graph_weight", 0.0) and not with_graph:
        coder, note = _without_graph(coder)
    dtype = to_numpy(coder.atoms_[:1]).dtype
    given: Array = images if is_torch(images) else np.asarray(images)
    if isinstance(given, np.ndarray) and given.dtype.kind == "f":
        given = given.astype(dtype, copy=False)
    atoms, layout = to_numpy(coder.atoms_), coder._layout_
    found: list[Explanation] = []
    for start in range(0, max(1, len(given)), _BATCH):
        part = given[start : start + _BATCH]
        codes = to_numpy(coder.by_atom(coder.encode(part)))
        stack = to_numpy(part).reshape(-1, *layout.image_shape)
        rows = zip(stack, codes, _norms(coder, stack), strict=True)
        found += [_explanation(image, code, atoms, layout, float(norm), note) for image, code, norm in rows]
        if progress is not None:
            progress(len(found), len(given))
    return found


def _without_graph(coder: FittedCoder) -> tuple[FittedCoder, str]:
    """Return a coder with the same atoms that codes every image alone, and a note that says so."""
    alone: Any = copy.copy(coder)
    alone.graph_weight = 0.0
    if coder.scale == "unit":
        alone.sparsity = max(float(coder.sparsity), READABLE_SPARSITY)
    note = (
        f"This image was coded alone, at sparsity {alone.sparsity:g}. "
        "The model's own codes also depend on the image's neighbours."
    )
    return alone, note


def _norms(coder: FittedCoder, images: NDArray[Any]) -> NDArray[np.float64]:
    """Return what each image was divided by before it was coded, (n,)."""
    if coder.scale != "unit":
        return np.full(len(images), float(coder.scale_factor_))
    lengths = np.linalg.norm(images.reshape(len(images), -1), axis=1)
    return np.asarray(np.where(lengths > 0.0, lengths, 1.0), np.float64)


def _explanation(
    image: NDArray[Any], codes: NDArray[Any], atoms: NDArray[Any], layout: Layout, norm: float, note: str
) -> Explanation:
    """Return the explanation of one image from its codes (n_atoms, *positions)."""
    where, *positions = np.nonzero(codes)
    coefficients = codes[codes != 0]
    order = np.argsort(-abs(coefficients), kind="stable")
    shifts = positions[0] if len(positions) == 1 else np.array(positions, int).reshape(len(positions), len(where)).T
    return Explanation(image, where[order], shifts[order], coefficients[order], atoms, layout, norm, note)
