"""TenSR: images as a sparse core between separable dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tubal.backends.arrays import Array, as_like, namespace, to_numpy
from tubal.estimators._graph import OptionalGraphCoder
from tubal.estimators._validation import check_choice, check_integer
from tubal.problems.layout import SeparableLayout, signed_codes
from tubal.problems.separable import Matrices, SeparableModel, multilinear

LARGEST_DEFAULT = 16
# Atoms of unit length along one side that still differ usefully; the literature stays at or below twice the side.
MOST_ATOMS_A_PIXEL = 4


class TenSR(OptionalGraphCoder):
    """Tensor sparse representation: ``X ≈ D₁ B D₂ᵀ`` with a sparse core B, optionally smooth along a graph.

        minimise  1/2 ||X - B ×₁ D₁ ×₂ D₂||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁,  columns in the unit ball

    An atom is the outer product of a column of D₁ and one of D₂: it sits where it sits, nothing is shifted. Features
    are the signed cores, flattened: with no positions to pool over, eq. 20 would be their absolute values and lose
    the sign, as for ordinary sparse coding. The graph term is an addition; the original (Qi et al. 2016) has none.

    Parameters
    ----------
    n_atoms : (rows, columns) atoms along each side; three numbers give colour a dictionary of its own, two stack the
        channels as further rows. None: one atom a pixel along each side, at most 16.
    sparsity : weight of the l1 norm of the core, for images of unit length.
    graph_weight : weight of the graph term; 0 builds no graph.
    n_neighbors, graph : as in :class:`tubal.GTSC`.
    init : "images" (columns and rows of random images), "random", or a tuple of matrices (side, atoms).

    The others are those of :class:`tubal.TubSC`.

    Attributes
    ----------
    dictionary_ : tuple of matrices (side, atoms)
    atoms_ : (r₁ · r₂, height, width[, channels]) outer products; atom ``i · r₂ + j`` pairs column i of D₁ with
        column j of D₂.
    codes_ : (n, r₁, r₂)

    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> model = TenSR(n_atoms=(4, 3), random_state=0).fit(images)
    >>> model.codes_.shape, model.transform(images).shape
    ((20, 4, 3), (20, 12))
    """

    def __init__(
        self,
        n_atoms: tuple[int, ...] | None = None,
        *,
        sparsity: float = 0.01,
        graph_weight: float = 0.0,
        n_neighbors: int = 3,
        graph: Any = "euclidean",
        scale: str | None = "unit",
        image_shape: tuple[int, ...] | None = None,
        max_iter: int = 25,
        tol: float = 1e-4,
        code_solver: Any = None,
        dictionary_solver: Any = None,
        init: Any = "images",
        random_state: Any = None,
        callbacks: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_atoms = n_atoms
        self.sparsity = sparsity
        self.graph_weight = graph_weight
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.scale = scale
        self.image_shape = image_shape
        self.max_iter = max_iter
        self.tol = tol
        self.code_solver = code_solver
        self.dictionary_solver = dictionary_solver
        self.init = init
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    # --- hooks -------------------------------------------------------------------------------------------
    def _check_parameters(self) -> None:
        super()._check_parameters()
        self.n_atoms_ = check_mode_sizes(self.n_atoms, self.image_shape_)

    def _model(self) -> SeparableModel:
        return SeparableModel(len(self.n_atoms_))

    def _layout(self, image_shape: tuple[int, ...]) -> SeparableLayout:  # type: ignore[override]
        return SeparableLayout(image_shape, len(self.n_atoms_))

    def _pool(self, codes: Array) -> Array:
        return signed_codes(codes)

    def by_atom(self, codes: Array) -> Array:
        """Return codes (n, r₁, r₂) as (n, r₁ · r₂), one for each of ``atoms_``."""
        return codes.reshape(codes.shape[0], -1)

    def _public_codes(self, codes: Array) -> Array:
        return namespace(codes).moveaxis(codes, -1, 0)

    def _inner_codes(self, codes: Array) -> Array:
        return namespace(codes).moveaxis(codes, 0, -1)

    def _inner_order(self, codes: Array) -> Array:
        return codes

    def _dictionary_like(self, images: Array) -> Matrices:
        return tuple(as_like(matrix, images) for matrix in self.dictionary_)

    def _atoms(self, dictionary: Matrices) -> Array:
        sizes = tuple(int(matrix.shape[1]) for matrix in dictionary)
        one_each = as_like(np.eye(prod(sizes)), dictionary[0]).reshape(*sizes, -1)
        return self._layout_.to_images(multilinear(one_each, dictionary))

    def _initial_dictionary(self, data: Array, random: np.random.RandomState) -> Matrices:
        return initial_matrices(data, self.n_atoms_, self.init, random)

    @property
    def partial_fit(self) -> Any:
        """Not offered: each mode's update needs the codes of all images under the other's."""
        raise AttributeError(
            "TenSR updates its dictionaries in turn, each from all images; use fit, which reads them a chunk at a time"
        )


def check_mode_sizes(n_atoms: Any, image_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of atoms along each side, or say in a sentence why these images cannot have them.

    >>> check_mode_sizes(None, (32, 5))
    (16, 5)
    """
    if prod(image_shape) == 1:
        raise ValueError(
            "n_features = 1: images of one pixel have no rows and columns to separate; use SparseCoding or larger ones"
        )
    if n_atoms is None:
        return tuple(min(LARGEST_DEFAULT, side) for side in SeparableLayout(image_shape).sides)
    if not isinstance(n_atoms, Sequence | np.ndarray) or isinstance(n_atoms, str):
        raise TypeError(f"n_atoms={n_atoms!r}; a tuple of atoms along each side is wanted, for example (16, 16)")
    sizes = tuple(check_integer(f"n_atoms[{mode}]", size, least=1) for mode, size in enumerate(n_atoms))
    if len(sizes) not in {2, len(image_shape)}:
        raise ValueError(
            f"n_atoms={tuple(n_atoms)} has {len(sizes)} numbers and images have shape {image_shape}; give 2, or 3 for "
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


def initial_matrices(data: Array, sizes: tuple[int, ...], init: Any, random: np.random.RandomState) -> Matrices:
    """Return starting matrices with columns of unit length: fibres of random images, random ones, or those given."""
    sides = tuple(int(side) for side in data.shape[:-1])
    if not isinstance(init, str):
        return _given_matrices(init, sides, sizes, data)
    check_choice("init", init, ("images", "random"))
    matrices = []
    for mode, (side, size) in enumerate(zip(sides, sizes, strict=True)):
        matrix = random.standard_normal((side, size))
        if init == "images":
            chosen = random.randint(0, data.shape[-1], size)
            images = to_numpy(data[..., chosen])
            fibres = np.moveaxis(images, mode, 0).reshape(side, -1, size)
            for atom in range(size):
                fibre = fibres[:, random.randint(fibres.shape[1]), atom]
                # A blank or constant border teaches nothing; such an atom stays random.
                if np.ptp(fibre) > 0 or side == 1:
                    matrix[:, atom] = fibre
        norms = np.linalg.norm(matrix, axis=0)
        matrices.append(as_like(matrix / np.where(norms > 0, norms, 1.0), data[..., :1]))
    return tuple(matrices)


def _given_matrices(init: Any, sides: tuple[int, ...], sizes: tuple[int, ...], data: Array) -> Matrices:
    matrices = tuple(as_like(matrix, data[..., :1]) for matrix in init)
    wanted = tuple(zip(sides, sizes, strict=True))
    if tuple(tuple(matrix.shape) for matrix in matrices) != wanted:
        raise ValueError(
            f"init holds matrices of shapes {[tuple(matrix.shape) for matrix in matrices]}; (side, atoms) = {wanted} "
            "is wanted"
        )
    xp = namespace(matrices[0])
    return tuple(matrix / xp.clip(xp.sqrt((matrix**2).sum(0)), 1.0, None) for matrix in matrices)
