"""Which atoms, at which shifts and with which weights, build an image (section 2.4, eq. 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tubal.backends.arrays import Array, own_threads, parallel_ranges, to_numpy
from tubal.backends.cpu.coding import descend
from tubal.estimators.validation import check_new_stack
from tubal.graph.structure import Stage
from tubal.learning.alternation import digest_arrays
from tubal.problems.layout import Layout

# Images are explained at this share of the smallest sparsity that leaves no term. So every image that is not blank has
# a term, whatever its ground, and few enough terms that a person can follow them.
READABLE_SHARE = 0.05
# The duality gap certifies that explanations lie within this fraction of the minimum of their objective.
READABLE_GAP = 1e-3
# Terms that an image may gain in one round, the number of rounds, and the images that are explained at a time.
ROUND_TERMS, MAX_ROUNDS, BATCH = 24, 100, 64
# Images whose terms one thread solves before it takes others.
_SOLVED_AT_A_TIME = 8
# Shifted atoms are kept for the next image until they take this many bytes.
KEPT_BYTES = 1 << 26

# Gives the shifted atom at a place of codes of one image, and takes the shape of these codes.
ShiftedAtom: TypeAlias = Callable[[int, tuple[int, ...]], NDArray[Any]]


class FittedCoder(Protocol):
    """The members of a fitted coder that an explanation uses."""

    sparsity: float
    scale: str | None
    scale_factor_: float
    atoms_: Array
    _layout_: Layout

    def _products(self, images: Array) -> Array:
        """Return the inner products of images with every atom at every position, (n, n_atoms, *positions)."""

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

    def explained(self, n_terms: int | None = None) -> float:
        """Return the share of the image's energy that the first terms explain.

        Parameters
        ----------
        n_terms : int, optional
            How many terms the reconstruction may use; by default it uses all.

        Returns
        -------
        float
            One minus :meth:`unexplained`: 1 for a perfect explanation. Few terms that overshoot the image can make it
            negative.
        """
        return 1.0 - self.unexplained(n_terms)

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
    stage: Stage | None = None,
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
        By default an image is coded alone, at 5 % of the smallest sparsity that leaves no term, which gives an
        explanation that a person can follow. Coders without a graph explain their own codes, and code an image in this
        way where its own code is zero.
    stage : Stage or None, default=None
        Reports the number of images explained and the number of all images. With a checkpoint, images that an
        interrupted run has coded alone are not coded again.

    Returns
    -------
    list of Explanation
        One for each image.
    """
    coder: Any = getattr(model, "model_", model)
    dtype = to_numpy(coder.atoms_[:1]).dtype
    if isinstance(images, np.ndarray) and images.dtype.kind == "f":
        images = images.astype(dtype, copy=False)
    layout = coder._layout_
    stack = to_numpy(check_new_stack(images, coder.image_shape, coder))
    if getattr(coder, "graph_weight", 0.0) and not with_graph:
        return _explain_alone(coder, stack, _ALONE, stage or Stage())
    codes, atoms, norms = to_numpy(coder.by_atom(coder.encode(images))), to_numpy(coder.atoms_), _norms(coder, stack)
    explanations = [
        _explanation(image, code, atoms, layout, float(norm), "")
        for image, code, norm in zip(stack, codes, norms, strict=True)
    ]
    for index in [i for i, explanation in enumerate(explanations) if not len(explanation)]:
        explanations[index] = _explain_alone(coder, stack[index : index + 1], _ZERO, Stage())[0]
    return explanations


_READABLE = f"at {100 * READABLE_SHARE:g} % of the sparsity that would leave no term"
_ALONE = f"This image was coded alone, {_READABLE}. The model's own codes also depend on the image's neighbours."
_ZERO = f"The model's own code of this image is zero; the image was coded again, {_READABLE}."


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


# --- readable codes ---------------------------------------------------------------------------------------------
@own_threads()
def _explain_alone(coder: FittedCoder, stack: NDArray[Any], note: str, stage: Stage) -> list[Explanation]:
    """Return explanations of images (n, *image_shape), each coded alone at the readable sparsity."""
    atoms = to_numpy(coder.atoms_)
    explained = _KeptTerms(stack, atoms, coder._layout_, note)
    explanations, shifted_atom = explained.recall(stage), _shifted_atoms(atoms, coder._layout_)
    for start in range(len(explanations), len(stack), BATCH):
        images = stack[start : start + BATCH]
        found_terms = _few_terms(coder, images.astype(atoms.dtype, copy=False), shifted_atom)
        for image, few in zip(images, found_terms, strict=True):
            codes = np.zeros(few.n_places, atoms.dtype)
            codes[few.places] = few.codes
            found = codes.reshape(few.shape)
            explanations.append(_explanation(image, found, atoms, coder._layout_, few.norm, note))
        stage.keep(partial(explained.arrays, explanations), finished=len(explanations) == len(stack))
        stage.show(len(explanations), len(stack))
    return explanations


@dataclass(frozen=True, eq=False)
class _KeptTerms:
    """The terms of the first of some images as arrays, which a checkpoint keeps."""

    stack: NDArray[Any]
    atoms: NDArray[Any]
    layout: Layout
    note: str

    @cached_property
    def digest(self) -> NDArray[np.uint8]:
        text = digest_arrays((*self.stack.shape, *self.atoms.shape), [self.stack, self.atoms])
        return np.frombuffer(text.encode(), np.uint8)

    def arrays(self, explanations: Sequence[Explanation]) -> dict[str, NDArray[Any]]:
        """Return the terms of explanations as arrays."""
        return {
            "images": self.digest,
            "norms": np.array([explanation.norm for explanation in explanations]),
            "counts": np.array([len(explanation) for explanation in explanations], np.intp),
            "atoms": np.concatenate([explanation.atoms for explanation in explanations]),
            "shifts": np.concatenate([explanation.shifts for explanation in explanations]),
            "coefficients": np.concatenate([explanation.coefficients for explanation in explanations]),
        }

    def recall(self, stage: Stage) -> list[Explanation]:
        """Return the explanations that an interrupted run has kept; none if they are those of other images."""
        kept = stage.kept()
        if not kept or not np.array_equal(kept["images"], self.digest):
            return []
        ends = np.cumsum(kept["counts"])[:-1]
        atoms, shifts, coefficients = (np.split(kept[name], ends) for name in ("atoms", "shifts", "coefficients"))
        terms = zip(self.stack, atoms, shifts, coefficients, kept["norms"].tolist(), strict=False)
        return [
            Explanation(image, which, where, weights, self.atoms, self.layout, norm, self.note)
            for image, which, where, weights, norm in terms
        ]


def _shifted_atoms(atoms: NDArray[Any], layout: Layout) -> ShiftedAtom:
    """Return a function that gives the shifted atom (n_pixels,) at a place of codes of one image."""

    def shifted_atom(place: int, shape: tuple[int, ...]) -> NDArray[Any]:
        atom, *position = np.unravel_index(place, shape)
        shift = position[0] if len(position) == 1 else np.array(position, int)
        return np.ravel(layout.shift_atom(atoms[int(atom)], shift))

    kept: ShiftedAtom = lru_cache(maxsize=max(1, KEPT_BYTES // max(atoms[0].nbytes, 1)))(shifted_atom)
    return kept


@dataclass(eq=False)
class _FewTerms:
    """The terms of one image while they are sought: a lasso over the shifted atoms found so far.

    ``image`` (n_pixels,) is divided by ``norm``, its largest product with a shifted atom, so that sparsity 1 leaves no
    term. ``places`` are positions in codes of ``shape`` (n_atoms, *positions), ``pictures`` (n_terms, n_pixels) the
    shifted atoms there, ``gram`` and ``products`` their inner products with each other and with the image.
    """

    image: NDArray[Any]
    norm: float
    shape: tuple[int, ...]
    pictures: NDArray[Any]
    places: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    codes: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    gram: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    products: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    @property
    def n_places(self) -> int:
        return int(np.prod(self.shape))

    @property
    def residual(self) -> NDArray[Any]:
        return np.asarray(self.image - self.codes.astype(self.image.dtype) @ self.pictures)

    def add(self, products: NDArray[Any], shifted_atom: ShiftedAtom) -> bool:
        """Add the shifted atoms that the residual resembles most; return False if there are none left to add."""
        sizes = np.abs(products)
        sizes[self.places] = 0.0
        best = np.argpartition(-sizes, min(ROUND_TERMS, len(sizes) - 1))[:ROUND_TERMS]
        best = best[sizes[best] > READABLE_SHARE]
        if not len(best):
            return False
        added = np.stack([shifted_atom(int(place), self.shape) for place in best])
        before, after = len(self.places), len(self.places) + len(best)
        gram = np.empty((after, after))
        gram[:before, :before] = self.gram
        gram[:before, before:] = self.pictures @ added.T
        gram[before:, :before] = gram[:before, before:].T
        gram[before:, before:] = added @ added.T
        self.gram = gram
        self.products = np.concatenate([self.products, added @ self.image])
        self.pictures = np.concatenate([self.pictures, added])
        self.places = np.concatenate([self.places, best])
        self.codes = np.concatenate([self.codes, np.zeros(len(best))])
        return True

    def solve(self) -> None:
        """Minimise over the coefficients of the terms."""
        square = float(self.image.astype(np.float64) @ self.image)
        slack = self.products - self.gram @ self.codes
        descend(self.gram, self.products, slack, square, READABLE_SHARE, 0.3 * READABLE_GAP, self.codes)

    def drop_unused(self) -> None:
        """Drop the terms that have become zero."""
        used = self.codes != 0.0
        self.places, self.codes, self.pictures = self.places[used], self.codes[used], self.pictures[used]
        self.gram, self.products = self.gram[np.ix_(used, used)], self.products[used]


def _few_terms(coder: FittedCoder, images: NDArray[Any], shifted_atom: ShiftedAtom) -> list[_FewTerms]:
    """Return the readable terms of images: each round adds terms that resemble what is left, and solves again.

    Only the terms found so far enter a solve. A light ground, which makes all atoms alike, slows down methods that move
    all coefficients at once; here it does not matter.
    """
    products = to_numpy(coder._products(images))
    norms = np.abs(products).reshape(len(images), -1).max(axis=1)
    norms = np.where(norms > 0.0, norms, 1.0)
    rows = images.reshape(len(images), -1) / norms[:, None].astype(images.dtype)
    empty = np.empty((0, rows.shape[1]), images.dtype)
    found = [_FewTerms(row, float(norm), products.shape[1:], empty) for row, norm in zip(rows, norms, strict=True)]
    open_images = list(found)
    for _ in range(MAX_ROUNDS):
        left = np.stack([few.residual for few in open_images])
        products = to_numpy(coder._products(left.reshape(-1, *images.shape[1:]))).reshape(len(open_images), -1)
        unsolved = _relative_gaps(open_images, left, products) > READABLE_GAP
        open_images = [
            few
            for few, row, more in zip(open_images, products, unsolved, strict=True)
            if more and few.add(row, shifted_atom)
        ]
        if not open_images:
            break
        with own_threads() as threads:
            solve = partial(_solve_some, open_images)
            parallel_ranges(solve, len(open_images), grain=_SOLVED_AT_A_TIME, threads=threads)
        for few in open_images:
            few.drop_unused()
    return found


def _solve_some(images: Sequence[_FewTerms], start: int, stop: int) -> None:
    """Minimise over the coefficients of some images."""
    for few in images[start:stop]:
        few.solve()


def _relative_gaps(images: Sequence[_FewTerms], residuals: NDArray[Any], products: NDArray[Any]) -> NDArray[np.float64]:
    """Return the duality gaps (n,) relative to the objectives.

    ``residuals`` is (n, n_pixels), ``products`` (n, n_places) their inner products with all shifted atoms.
    """
    left = residuals.astype(np.float64)
    squares = np.einsum("ip,ip->i", left, left)
    slopes = np.einsum("ip,ip->i", left, np.stack([few.image for few in images]).astype(np.float64))
    values = 0.5 * squares + READABLE_SHARE * np.array([np.abs(few.codes).sum() for few in images])
    tiny = np.finfo(np.float64).tiny
    limits = READABLE_SHARE / np.maximum(np.maximum(products.max(axis=1), -products.min(axis=1)), tiny)
    multiples = np.clip(slopes / np.maximum(squares, tiny), -limits, limits)
    duals = multiples * slopes - 0.5 * multiples**2 * squares
    return np.asarray((values - duals) / np.maximum(values, tiny))
