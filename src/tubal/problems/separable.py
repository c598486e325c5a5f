"""Coding under separable dictionaries: TenSR (Qi, Shi, Sun & Yin, CVPR 2016), with or without a graph.

    minimise over B   1/2 ||X - B ×₁ D₁ ×₂ D₂ ...||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁

For two modes and one image that is ``X ≈ D₁ B D₂ᵀ``. Data are (m₁, m₂, ..., sample), codes (r₁, r₂, ..., sample),
a dictionary is a tuple of matrices (m_i, r_i). The Kronecker matrix of the modes is never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from tubal.backends.arrays import Array, as_double, as_like, namespace
from tubal.problems.base import ImageModel
from tubal.problems.mapped import MappedCoding
from tubal.problems.tubal_dictionary import TubalDictionary, TubalStatistics

Matrices = tuple[Array, ...]


def mode_product(tensor: Array, matrix: Array, mode: int) -> Array:
    """Return ``tensor ×_mode matrix``: every fibre of the mode multiplied by ``matrix`` (out, in).

    >>> mode_product(np.arange(6.0).reshape(2, 3), np.ones((1, 3)), 1)
    array([[ 3.],
           [12.]])
    """
    shape = tuple(tensor.shape)
    before, after = int(np.prod(shape[:mode])), int(np.prod(shape[mode + 1 :]))
    product = matrix @ tensor.reshape(before, shape[mode], after)
    return product.reshape(*shape[:mode], matrix.shape[0], *shape[mode + 1 :])


def multilinear(tensor: Array, matrices: Sequence[Array], skip: int = -1) -> Array:
    """Return ``tensor ×₁ A₁ ×₂ A₂ ...``, leaving out mode ``skip``; further axes are carried along."""
    for mode, matrix in enumerate(matrices):
        if mode != skip:
            tensor = mode_product(tensor, matrix, mode)
    return tensor


class SeparableCoding(MappedCoding):
    """The coding problem of TenSR."""

    dictionary: Matrices

    def __init__(self, dictionary: Matrices, data: Array, **terms: Any) -> None:
        sizes = tuple(int(matrix.shape[1]) for matrix in dictionary)
        super().__init__(dictionary, data, (*sizes, data.shape[-1]), **terms)

    @cached_property
    def _eigenbases(self) -> tuple[Matrices, Array]:
        """Eigenvectors of every mode's Gram matrix, and the eigenvalues of their Kronecker product (r₁, r₂, ...)."""
        xp = namespace(self.data)
        pairs = [xp.linalg.eigh(matrix.T @ matrix) for matrix in map(as_double, self.dictionary)]
        spectrum = reduce(lambda left, right: left[..., None] * right, (values for values, _ in pairs))
        vectors = tuple(as_like(vectors, self.data) for _, vectors in pairs)
        return vectors, as_like(xp.clip(spectrum, 0.0, None), self.data)

    @property
    def map_norm(self) -> float:
        """The product of the modes' largest eigenvalues."""
        return float(self._eigenbases[1].max())

    def images(self, start: int, stop: int) -> SeparableCoding:
        """Return the same problem for some of the images, sharing the eigenbases."""
        part = SeparableCoding(self.dictionary, self.data[..., start:stop], sparsity=self.sparsity)
        part.__dict__["_eigenbases"] = self._eigenbases
        return part

    def reconstruct(self, codes: Array) -> Array:
        """Return ``B ×₁ D₁ ×₂ D₂ ...``."""
        return multilinear(codes, self.dictionary)

    def correlate(self, images: Array) -> Array:
        """Return ``X ×₁ D₁ᵀ ×₂ D₂ᵀ ...``."""
        return multilinear(images, [matrix.T for matrix in self.dictionary])

    def solve_shifted(self, right: Array, penalty: float) -> Array:
        """Solve in the modes' eigenbases, where the Gram operator is the product of their eigenvalues."""
        vectors, spectrum = self._eigenbases
        rotated = multilinear(right, [basis.T for basis in vectors])
        return multilinear(self.solve_rows(rotated, spectrum + penalty), vectors)

    def statistics(self, codes: Array) -> SeparableStatistics:
        """Return the statistics of the first mode."""
        return SeparableStatistics.of_mode(self.dictionary, self.data, codes, 0)


@dataclass(frozen=True)
class SeparableStatistics:
    """What one mode's dictionary step needs: with the other modes folded in, an ordinary matrix problem.

    ordinary : its statistics, those of a tubal dictionary with tubes of length one.
    usage : squared length of the codes of every atom, modes one after the other.
    """

    ordinary: TubalStatistics
    usage: Array

    @classmethod
    def of_mode(cls, dictionary: Matrices, data: Array, codes: Array, mode: int) -> SeparableStatistics:
        """Fold all modes but one into the codes, ``C = B ×_{i≠mode} D_i``, and sum ``C Cᵀ`` and ``X Cᵀ``."""
        folded = _unfold(multilinear(as_double(codes), [as_double(matrix) for matrix in dictionary], mode), mode)
        images = _unfold(as_double(data), mode)
        squares = float((images**2).sum())
        ordinary = TubalStatistics(
            (folded @ folded.T)[None] + 0j, (images @ folded.T)[None] + 0j, squares, tube_length=1
        )
        energy = as_double(codes) ** 2
        axes = range(codes.ndim)
        usages = [energy.sum(tuple(axis for axis in axes if axis != kept)) for kept in axes[:-1]]
        return cls(ordinary, namespace(energy).concatenate(usages))

    def __add__(self, other: SeparableStatistics) -> SeparableStatistics:
        """Return the statistics of both sets of images together."""
        return SeparableStatistics(self.ordinary + other.ordinary, self.usage + other.usage)

    def scaled(self, factor: float) -> SeparableStatistics:
        """Return the statistics with every image counted ``factor`` times (online forgetting)."""
        return SeparableStatistics(self.ordinary.scaled(factor), factor * self.usage)


def _unfold(tensor: Array, mode: int) -> Array:
    """Return the matrix whose rows are the slices of one mode."""
    return namespace(tensor).moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)


class SeparableModel(ImageModel):
    """Images as ``B ×₁ D₁ ×₂ D₂ ...``; a dictionary is a tuple of matrices, updated one after the other."""

    def __init__(self, n_modes: int = 2) -> None:
        self.n_dictionary_steps = n_modes

    def coding(self, dictionary: Matrices, data: Array, **terms: Any) -> SeparableCoding:
        """Return the coding problem of ``data`` (m₁, m₂, ..., sample)."""
        return SeparableCoding(dictionary, data, **terms)

    def dictionary_problem(self, statistics: SeparableStatistics, dictionary: Matrices, step: int) -> TubalDictionary:
        """Return one mode's problem: an ordinary dictionary with atoms in the unit ball."""
        return TubalDictionary(statistics.ordinary)

    def statistics(self, dictionary: Matrices, data: Array, codes: Array, step: int) -> SeparableStatistics:
        """Return the statistics of mode ``step`` at the newest matrices of the others."""
        return SeparableStatistics.of_mode(dictionary, data, codes, step)

    def part(self, dictionary: Matrices, step: int) -> Array:
        """Return one mode's matrix as a dictionary (1, row, atom)."""
        return dictionary[step][None]

    def with_part(self, dictionary: Matrices, step: int, part: Array) -> Matrices:
        """Return the dictionary with one mode's matrix replaced."""
        return (*dictionary[:step], part[0], *dictionary[step + 1 :])

    def replace_atoms(self, dictionary: Matrices, unused: np.ndarray, images: Array) -> Matrices:
        """Put leading singular vectors of the worst images' unfoldings in place of unused atoms."""
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
    """Return the leading left singular vector of one image unfolded along a mode, of unit length."""
    xp = namespace(image)
    vectors, _, _ = xp.linalg.svd(_unfold(as_double(image), mode), full_matrices=False)
    return as_like(vectors[:, 0], image)
