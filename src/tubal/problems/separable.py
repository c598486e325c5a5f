"""The separable model of TenSR (Qi, Shi, Sun & Yin, CVPR 2016), with or without a graph.

    minimise over B   1/2 ||X - B ×₁ D₁ ×₂ D₂ ...||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁

For two modes and one image the map is ``X ≈ D₁ B D₂ᵀ``. Data are (m₁, m₂, ..., sample), codes (r₁, r₂, ..., sample). A
dictionary is a tuple of matrices (m_i, r_i). The Kronecker product of the matrices is never formed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod
from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from tubal.backends.arrays import Array, as_double, as_like, namespace, to_numpy
from tubal.problems.layout import ImageShape, Layout, SeparableLayout
from tubal.problems.linear_map import LinearMapCoding, LinearMapModel
from tubal.problems.tubal import TubalDictionary, TubalStatistics

Matrices = tuple[Array, ...]

DEFAULT_ATOMS_A_SIDE = 16
# More atoms of unit length along one side would nearly repeat each other; the literature uses at most two per pixel.
MOST_ATOMS_A_PIXEL = 4


def mode_product(tensor: Array, matrix: Array, mode: int) -> Array:
    """Return ``tensor ×_mode matrix``: multiply every fibre of the mode by ``matrix`` (out, in).

    >>> mode_product(np.arange(6.0).reshape(2, 3), np.ones((1, 3)), 1)
    array([[ 3.],
           [12.]])
    """
    shape = tuple(tensor.shape)
    before, after = int(np.prod(shape[:mode])), int(np.prod(shape[mode + 1 :]))
    product = matrix @ tensor.reshape(before, shape[mode], after)
    return product.reshape(*shape[:mode], matrix.shape[0], *shape[mode + 1 :])


def multilinear(tensor: Array, matrices: Sequence[Array], skip: int = -1) -> Array:
    """Return ``tensor ×₁ A₁ ×₂ A₂ ...`` without mode ``skip``; further axes of the tensor stay as they are."""
    for mode, matrix in enumerate(matrices):
        if mode != skip:
            tensor = mode_product(tensor, matrix, mode)
    return tensor


class SeparableCoding(LinearMapCoding):
    """The coding problem of TenSR.

    Parameters and attributes are those of :class:`LinearMapCoding`; the dictionary is a tuple of matrices.
    """

    dictionary: Matrices

    @property
    def codes_shape(self) -> tuple[int, ...]:
        """Shape (r₁, r₂, ..., sample) of the codes."""
        return (*(int(matrix.shape[1]) for matrix in self.dictionary), self.data.shape[-1])

    @cached_property
    def _eigenbases(self) -> tuple[Matrices, Array]:
        """Eigenvectors of the Gram matrix of every mode, and eigenvalues of their Kronecker product (r₁, r₂, ...)."""
        xp = namespace(self.data)
        pairs = [xp.linalg.eigh(matrix.T @ matrix) for matrix in map(as_double, self.dictionary)]
        spectrum = reduce(lambda left, right: left[..., None] * right, (values for values, _ in pairs))
        vectors = tuple(as_like(vectors, self.data) for _, vectors in pairs)
        return vectors, as_like(xp.clip(spectrum, 0.0, None), self.data)

    @property
    def map_norm(self) -> float:
        """The product of the largest eigenvalues of all modes."""
        return float(self._eigenbases[1].max())

    def restrict(self, start: int, stop: int) -> Self:
        """Return the same problem for images [start, stop)."""
        _ = self._eigenbases  # computed here, so that all parts share it
        return super().restrict(start, stop)

    def reconstruct(self, codes: Array) -> Array:
        """Return ``B ×₁ D₁ ×₂ D₂ ...``."""
        return multilinear(codes, self.dictionary)

    def correlate(self, images: Array) -> Array:
        """Return ``X ×₁ D₁ᵀ ×₂ D₂ᵀ ...``."""
        return multilinear(images, [matrix.T for matrix in self.dictionary])

    def solve_shifted(self, right: Array, penalty: float) -> Array:
        """Solve in the eigenbases of the modes, where the Gram operator multiplies by products of eigenvalues."""
        vectors, spectrum = self._eigenbases
        rotated = multilinear(right, [basis.T for basis in vectors])
        return multilinear(self.solve_rows(rotated, spectrum + penalty), vectors)

    def statistics(self, codes: Array) -> SeparableStatistics:
        """Return the statistics of the first mode."""
        return SeparableStatistics.of_mode(self.dictionary, self.data, codes, 0)


@dataclass(frozen=True)
class SeparableStatistics:
    """What the dictionary step of one mode needs: once the other modes are applied, an ordinary matrix problem.

    Parameters
    ----------
    ordinary : TubalStatistics
        Statistics of that problem, a tubal dictionary with tubes of length one.
    usage : array of shape (r₁ + r₂ + ...,)
        Squared norm of the codes of every atom, one mode after the other.
    """

    ordinary: TubalStatistics
    usage: Array

    @classmethod
    def of_mode(cls, dictionary: Matrices, data: Array, codes: Array, mode: int) -> SeparableStatistics:
        """Apply all modes but one to the codes, ``C = B ×_{i≠mode} D_i``, and sum ``C Cᵀ`` and ``X Cᵀ``."""
        applied = _mode_unfolding(
            multilinear(as_double(codes), [as_double(matrix) for matrix in dictionary], mode), mode
        )
        images = _mode_unfolding(as_double(data), mode)
        squares = float((images**2).sum())
        ordinary = TubalStatistics(
            (applied @ applied.T)[None] + 0j, (images @ applied.T)[None] + 0j, squares, tube_length=1
        )
        energy = as_double(codes) ** 2
        axes = range(codes.ndim)
        usages = [energy.sum(tuple(axis for axis in axes if axis != kept)) for kept in axes[:-1]]
        return cls(ordinary, namespace(energy).concatenate(usages))

    def __add__(self, other: SeparableStatistics) -> SeparableStatistics:
        """Return the statistics of both sets of images together."""
        return SeparableStatistics(self.ordinary + other.ordinary, self.usage + other.usage)

    def scaled(self, factor: float) -> SeparableStatistics:
        """Return the statistics with every image counted ``factor`` times.

        Parameters
        ----------
        factor : float
            By what both kinds of statistics are multiplied.

        Returns
        -------
        SeparableStatistics
            The scaled statistics.
        """
        return SeparableStatistics(self.ordinary.scaled(factor), factor * self.usage)


def _mode_unfolding(tensor: Array, mode: int) -> Array:
    """Return the matrix (size of the mode, rest) whose rows are the slices of one mode."""
    return namespace(tensor).moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)


class SeparableModel(LinearMapModel):
    """Images as ``B ×₁ D₁ ×₂ D₂ ...``; a dictionary is a tuple of matrices, updated one after the other.

    Matrices are (m_i, r_i); as a part of the dictionary, each is a tubal dictionary (1, m_i, r_i). Data are (m₁, m₂,
    ..., image), codes (r₁, r₂, ..., image).

    Parameters
    ----------
    n_modes : int, default=2
        Number of matrices.
    """

    coding_problem = SeparableCoding

    def __init__(self, n_modes: int = 2) -> None:
        self.n_dictionary_steps = n_modes

    def dictionary_problem(self, statistics: SeparableStatistics, dictionary: Matrices, step: int) -> TubalDictionary:
        return TubalDictionary(statistics.ordinary)

    def statistics(self, dictionary: Matrices, data: Array, codes: Array, step: int) -> SeparableStatistics:
        return SeparableStatistics.of_mode(dictionary, data, codes, step)

    def part(self, dictionary: Matrices, step: int) -> Array:
        return dictionary[step][None]

    def with_part(self, dictionary: Matrices, step: int, part: Array) -> Matrices:
        return (*dictionary[:step], part[0], *dictionary[step + 1 :])

    def replace_atoms(self, dictionary: Matrices, unused: NDArray[np.bool_], images: Array) -> Matrices:
        """Replace unused columns by the leading singular vectors of badly reconstructed images.

        Parameters
        ----------
        dictionary : tuple of arrays of shape (m_i, r_i)
            The current matrices.
        unused : bool array of shape (r₁ + r₂ + ...,)
            Which columns to replace, one mode after the other.
        images : array of shape (m₁, m₂, ..., n_unused)
            One image for each unused column.

        Returns
        -------
        tuple of arrays of shape (m_i, r_i)
            The new matrices.
        """
        replaced, taken, first = [], 0, 0
        for mode, former in enumerate(dictionary):
            matrix = former + 0.0
            for atom in np.flatnonzero(unused[first : first + matrix.shape[1]]):
                matrix[:, atom] = leading_vector(images[..., taken], mode)
                taken += 1
            first += matrix.shape[1]
            replaced.append(matrix)
        return tuple(replaced)


def leading_vector(image: Array, mode: int) -> Array:
    """Return the leading left singular vector of one image, unfolded along a mode."""
    xp = namespace(image)
    vectors, _, _ = xp.linalg.svd(_mode_unfolding(as_double(image), mode), full_matrices=False)
    return as_like(vectors[:, 0], image)


# --- the dictionary of a coder ----------------------------------------------------------------------------------------
def separable_model(image_shape: ImageShape, n_modes: int) -> SeparableModel:
    """Return the separable model, which is the same for images of all shapes."""
    return SeparableModel(n_modes)


def separable_atoms(layout: Layout, dictionary: Matrices) -> dict[str, Any]:
    """Return the fitted attributes of matrices (side, atoms): their sizes and all outer products."""
    sizes = tuple(int(matrix.shape[1]) for matrix in dictionary)
    one_each = as_like(np.eye(prod(sizes)), dictionary[0]).reshape(*sizes, -1)
    return {"n_atoms_": sizes, "atoms_": layout.to_images(multilinear(one_each, dictionary))}


def mode_sizes(n_atoms: Sequence[int] | None, image_shape: ImageShape) -> tuple[int, ...]:
    """Return the number of atoms along each side, or raise an error if images of this shape cannot have them.

    >>> mode_sizes(None, (32, 5))
    (16, 5)
    """
    if prod(image_shape) == 1:
        raise ValueError(
            "n_features = 1: images of one pixel have no rows and columns to separate; use SparseCoding or larger ones"
        )
    if n_atoms is None:
        return tuple(min(DEFAULT_ATOMS_A_SIDE, side) for side in SeparableLayout(image_shape).sides)
    sizes = tuple(int(size) for size in n_atoms)
    if len(sizes) not in {2, len(image_shape)}:
        raise ValueError(
            f"n_atoms={sizes} has {len(sizes)} numbers and images have shape {image_shape}; give 2, or 3 for "
            "images with channels"
        )
    for size, side in zip(sizes, SeparableLayout(image_shape, len(sizes)).sides, strict=True):
        most = 1 if side == 1 else MOST_ATOMS_A_PIXEL * side
        if size > most:
            raise ValueError(
                f"n_atoms={sizes} asks for {size} atoms along a side of {side} pixels; more than {most} only repeat "
                "each other, lower n_atoms"
            )
    return sizes


def initial_matrices(
    data: Array,
    layout: Layout,
    random: RandomState,
    *,
    n_atoms: Sequence[int] | None,
    init: str | Sequence[Array],
) -> Matrices:
    """Return initial matrices with columns of unit length: fibres of random images, random numbers, or ``init``."""
    sizes = mode_sizes(n_atoms, layout.image_shape)
    sides = tuple(int(side) for side in data.shape[:-1])
    if not isinstance(init, str):
        return _given_matrices(init, sides, sizes, data)
    matrices = []
    for mode, (side, size) in enumerate(zip(sides, sizes, strict=True)):
        matrix = random.standard_normal((side, size))
        if init == "images":
            chosen = random.randint(0, data.shape[-1], size)
            images = to_numpy(data[..., chosen])
            fibres = np.moveaxis(images, mode, 0).reshape(side, -1, size)
            for atom in range(size):
                fibre = fibres[:, random.randint(fibres.shape[1]), atom]
                # A blank or constant border carries no information; such an atom stays random.
                if np.ptp(fibre) > 0 or side == 1:
                    matrix[:, atom] = fibre
        norms = np.linalg.norm(matrix, axis=0)
        matrices.append(as_like(matrix / np.where(norms > 0, norms, 1.0), data[..., :1]))
    return tuple(matrices)


def _given_matrices(init: Sequence[Array], sides: tuple[int, ...], sizes: tuple[int, ...], data: Array) -> Matrices:
    """Return the user's matrices with columns in the unit ball."""
    if not isinstance(init, Iterable):
        raise TypeError(f"init is a {type(init).__name__}; a matrix (side, atoms) for each side is wanted, in a tuple")
    matrices = tuple(as_like(matrix, data[..., :1]) for matrix in init)
    wanted = tuple(zip(sides, sizes, strict=True))
    if tuple(tuple(matrix.shape) for matrix in matrices) != wanted:
        raise ValueError(
            f"init holds matrices of shapes {[tuple(matrix.shape) for matrix in matrices]}; (side, atoms) = {wanted} "
            "is wanted"
        )
    xp = namespace(matrices[0])
    if not all(bool(xp.isfinite(matrix).all()) for matrix in matrices):
        raise ValueError("init has a value that is infinite or not a number; every matrix must be finite")
    return tuple(matrix / xp.clip(xp.sqrt((matrix**2).sum(0)), 1.0, None) for matrix in matrices)
