"""Coders with other linear maps than the tubal one: TenSR (separable dictionaries) and CSC (small filters)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.random import RandomState

from tubal.backends.arrays import Array, as_like, namespace, to_numpy
from tubal.estimators.image_coder import Callbacks, GraphCoder, GraphLike, RandomSeed
from tubal.estimators.validation import RULES, Rule
from tubal.learning.fitting import ImageShape
from tubal.problems.convolutional import ConvolutionalModel, filter_norms, filter_planes, filters_to_ball
from tubal.problems.layout import Layout, PlaneLayout, SeparableLayout, signed_codes
from tubal.problems.separable import Matrices, SeparableModel, multilinear
from tubal.solvers import Admm, CodeSolver, DictionarySolver, ProjectedGradient
from tubal.solvers.base import check_integer

# --- TenSR ------------------------------------------------------------------------------------------------------
DEFAULT_ATOMS_A_SIDE = 16
# More atoms of unit length along one side would nearly repeat each other; the literature uses at most two per pixel.
MOST_ATOMS_A_PIXEL = 4


def check_mode_numbers(name: str, value: object) -> None:
    """Raise an error unless a value is None or a sequence of positive integers."""
    if value is None:
        return
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
        raise TypeError(f"{name}={value!r}; a tuple of atoms along each side is wanted, for example (16, 16)")
    for mode, size in enumerate(value):
        check_integer(f"{name}[{mode}]", size)


class TenSR(GraphCoder):
    """Tensor sparse representation: ``X ≈ D₁ B D₂ᵀ`` with a sparse core B, optionally smooth along a graph.

        minimise  1/2 ||X - B ×₁ D₁ ×₂ D₂||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁,  columns in the unit ball

    An atom is the outer product of a column of D₁ and a column of D₂; atoms are not shifted. Features are the signed
    cores, flattened: there are no positions to pool over, and eq. 20 would lose the sign, as for ordinary sparse
    coding. The graph term is an addition; the original (Qi et al. 2016) has none.

    Parameters
    ----------
    n_atoms : tuple of int, optional
        Atoms along each side, (rows, columns). Three numbers give the channels of colour images a dictionary of their
        own; with two, channels are stacked as further rows. By default one atom per pixel of a side, at most 16.
    sparsity : float, default=0.1
        Weight of the l1 norm of the core, for images of unit length.
    graph_weight : float, default=0.0
        Weight of the graph term. 0 builds no graph.
    n_neighbors : int, default=3
        Neighbours per image of a graph given by name.
    graph : {"euclidean", "cosine", "deformable"}, Graph or sparse matrix of shape (n, n), default="euclidean"
        Which images are neighbours: the nearest ones in pixels, in direction, or after a small deformation; or a graph
        of the training images. A matrix must be symmetric.
    scale : {"unit", "max"} or None, default="unit"
        "unit" scales every image to unit length, "max" divides all images by the largest pixel, None leaves them.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that come as rows. Without it, rows are one-row images.
    max_iter : int, default=50
        Largest number of iterations, each a coding step and a dictionary step.
    tol : float, default=5e-4
        Stop when the objective falls by no more than this share in one iteration.
    code_solver : solver, optional
        Solver of the coding steps. By default ``Admm`` with 5 steps and a penalty suited to the sparsity.
    dictionary_solver : solver, optional
        Solver of the dictionary steps. By default ``LagrangeDual()``.
    init : {"images", "random"} or tuple of arrays of shape (side, atoms), default="images"
        Initial matrices: columns and rows of random images, random numbers, or the arrays.
    random_state : int, RandomState or None, default=None
        Seed of the initial dictionary.
    callbacks : callable or list of callable, optional
        Called with a :class:`~tubal.learning.Progress` after every iteration; a callback that returns True stops
        the fit.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    n_atoms_ : tuple of int
        Atoms along each side.
    dictionary_ : tuple of arrays of shape (side, atoms)
        One matrix per mode.
    atoms_ : array of shape (r₁ · r₂, height, width) or (r₁ · r₂, height, width, channels)
        Outer products of columns; atom ``i · r₂ + j`` pairs column i of D₁ with column j of D₂.
    codes_ : array of shape (n, r₁, r₂) or (n, r₁, r₂, r₃)
        Cores of the training images.
    graph_ : Graph or None
        Graph of the training images; None at ``graph_weight=0``.
    objective_ : ndarray of shape (n_iter_,)
        Objective after each iteration; it never increases. The last value is that of ``codes_``; it may lie above
        the one before by less than the certified gap.
    density_ : ndarray of shape (n_iter_,)
        Share of codes that are not zero, after each iteration; the last value is that of ``codes_``.
    n_iter_ : int
        Number of iterations made.
    converged_ : bool
        Whether the objective stopped falling before ``max_iter``.
    duality_gap_ : float
        Bound on how far ``codes_`` lie above the minimum of their objective, relative to it. NaN for images in chunks
        that a graph joins.
    n_reseeded_ : int
        Number of atoms that no image used and that were replaced by badly reconstructed images.
    multipliers_ : list of array or None
        Lagrange multipliers of the atoms' norm constraints.
    scale_factor_ : float
        What images are divided by under ``scale="max"``, else 1.
    image_shape_ : tuple of int
        Shape of one image.
    n_features_in_ : int
        Pixels of one image.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if the images came as a data frame.

    Examples
    --------
    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> model = TenSR(n_atoms=(4, 3), random_state=0).fit(images)
    >>> model.codes_.shape, model.transform(images).shape
    ((20, 4, 3), (20, 12))
    """

    _rules: ClassVar[Mapping[str, Rule]] = {**RULES, "n_atoms": check_mode_numbers}
    _graph_is_optional = True
    _has_one_dictionary = False

    def __init__(
        self,
        n_atoms: tuple[int, ...] | None = None,
        *,
        sparsity: float = 0.1,
        graph_weight: float = 0.0,
        n_neighbors: int = 3,
        graph: GraphLike = "euclidean",
        scale: str | None = "unit",
        image_shape: ImageShape | None = None,
        max_iter: int = 50,
        tol: float = 5e-4,
        code_solver: CodeSolver | None = None,
        dictionary_solver: DictionarySolver | None = None,
        init: str | Sequence[Array] = "images",
        random_state: RandomSeed = None,
        callbacks: Callbacks = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            sparsity=sparsity, scale=scale, image_shape=image_shape, max_iter=max_iter, tol=tol,
            code_solver=code_solver, dictionary_solver=dictionary_solver, init=init, random_state=random_state,
            callbacks=callbacks, verbose=verbose,
        )  # fmt: skip
        self.n_atoms = n_atoms
        self.graph_weight = graph_weight
        self.n_neighbors = n_neighbors
        self.graph = graph

    # --- hooks -----------------------------------------------------------------------------------------------
    @property
    def _n_modes(self) -> int:
        return len(self.n_atoms) if isinstance(self.n_atoms, Sequence | np.ndarray) else 2

    def _model(self) -> Callable[[ImageShape], SeparableModel]:
        return partial(separable_model, n_modes=self._n_modes)

    def _layout(self) -> Callable[[ImageShape], Layout]:
        return partial(SeparableLayout, n_modes=self._n_modes)

    def _initial_dictionary(self) -> Callable[[Array, Layout, RandomState], Matrices]:
        return partial(initial_matrices, n_atoms=self.n_atoms, init=self.init)

    def _public_dictionary(self) -> Callable[[Layout, Matrices], dict[str, Any]]:
        return separable_atoms

    def _code_axes(self) -> tuple[int, ...]:
        return (self._n_modes, *range(self._n_modes))

    def _pool(self, codes: Array) -> Array:
        return signed_codes(codes)

    def by_atom(self, codes: Array) -> Array:
        """Return cores with one axis of atoms, in the order of ``atoms_``.

        Parameters
        ----------
        codes : array of shape (n, r₁, r₂) or (n, r₁, r₂, r₃)
            Cores as :meth:`encode` returns them.

        Returns
        -------
        array of shape (n, r₁ · r₂) or (n, r₁ · r₂ · r₃)
            The same cores.
        """
        return codes.reshape(codes.shape[0], -1)


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
    matrices = tuple(as_like(matrix, data[..., :1]) for matrix in init)
    wanted = tuple(zip(sides, sizes, strict=True))
    if tuple(tuple(matrix.shape) for matrix in matrices) != wanted:
        raise ValueError(
            f"init holds matrices of shapes {[tuple(matrix.shape) for matrix in matrices]}; (side, atoms) = {wanted} "
            "is wanted"
        )
    xp = namespace(matrices[0])
    return tuple(matrix / xp.clip(xp.sqrt((matrix**2).sum(0)), 1.0, None) for matrix in matrices)


# --- CSC --------------------------------------------------------------------------------------------------------
DEFAULT_FILTERS = 45
DEFAULT_FILTER_SIDE = 8
# More steps than for the other models: filters overlap, so codes converge more slowly.
FILTER_CODING_STEPS = 10
# Filters overlap, so the quadratic is steeper than for atoms as large as the image, and needs a larger penalty.
FILTER_PENALTY = 3.0


def check_filter_count(name: str, value: object) -> None:
    """Raise an error unless a value is None or a positive integer."""
    if value is not None:
        check_integer(name, value)


def check_filter_shape(name: str, value: object) -> None:
    """Raise an error unless a value is None or two positive integers."""
    if value is None:
        return
    if not isinstance(value, tuple | list | np.ndarray) or len(value) != 2:
        raise ValueError(f"{name}={value!r}; (height, width) is wanted, for example (8, 8)")
    for side in value:
        check_integer(name, side)


class CSC(GraphCoder):
    """Convolutional sparse coding: ``X ≈ Σ_j D_j ⊛ B_j``, small filters D_j, sparse maps B_j, in two dimensions.

        minimise  1/2 ||X - Σ_j D_j ⊛ B_j||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁,  filters in the unit ball

    Images are periodic: what leaves on one side comes back on the other. Pad them first where that is wrong. A code
    is as large as the image times the number of filters. Features are the norms of the maps, eq. 20 with both
    positions in place of one: how much of a filter an image contains, wherever it is.

    Parameters
    ----------
    n_atoms : int, optional
        Number of filters. By default 45, or one per pixel if images are smaller.
    filter_shape : tuple of int, optional
        (height, width) of a filter. By default (8, 8), or the image's side where that is smaller.
    sparsity : float, default=0.1
        Weight of the l1 norm of the maps, for images of unit length.
    graph_weight : float, default=0.0
        Weight of the graph term. 0 builds no graph.
    n_neighbors : int, default=3
        Neighbours per image of a graph given by name.
    graph : {"euclidean", "cosine", "deformable"}, Graph or sparse matrix of shape (n, n), default="euclidean"
        Which images are neighbours: the nearest ones in pixels, in direction, or after a small deformation; or a graph
        of the training images. A matrix must be symmetric.
    scale : {"unit", "max"} or None, default="unit"
        "unit" scales every image to unit length, "max" divides all images by the largest pixel, None leaves them.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that come as rows. Without it, rows are one-row images.
    max_iter : int, default=50
        Largest number of iterations, each a coding step and a dictionary step.
    tol : float, default=5e-4
        Stop when the objective falls by no more than this share in one iteration.
    code_solver : solver, optional
        Solver of the coding steps. By default ``Admm(max_iter=10, tol=1e-3, penalty=3.0)``.
    dictionary_solver : solver, optional
        Solver of the dictionary steps. By default ``ProjectedGradient(max_iter=50, tol=1e-6)``: the Lagrange dual
        cannot restrict filters to their support.
    init : {"images", "random"} or array of shape (n_atoms, *filter_shape[, channels]), default="images"
        Initial filters: random patches, random numbers, or the array.
    random_state : int, RandomState or None, default=None
        Seed of the initial dictionary.
    callbacks : callable or list of callable, optional
        Called with a :class:`~tubal.learning.Progress` after every iteration; a callback that returns True stops
        the fit.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    n_atoms_ : int
        Number of filters.
    filter_shape_ : tuple of int
        (height, width) of a filter.
    filters_ : array of shape (n_atoms, *filter_shape) or (n_atoms, *filter_shape, channels)
        The filters.
    atoms_ : array of shape (n_atoms, height, width) or (n_atoms, height, width, channels)
        The filters at the top left of an empty image.
    dictionary_ : array of shape (down, across, channels, n_atoms)
        The filters as the solvers use them.
    codes_ : array of shape (n, n_atoms, height, width)
        Maps of the training images.
    graph_ : Graph or None
        Graph of the training images; None at ``graph_weight=0``.
    objective_ : ndarray of shape (n_iter_,)
        Objective after each iteration; it never increases. The last value is that of ``codes_``; it may lie above
        the one before by less than the certified gap.
    density_ : ndarray of shape (n_iter_,)
        Share of codes that are not zero, after each iteration; the last value is that of ``codes_``.
    n_iter_ : int
        Number of iterations made.
    converged_ : bool
        Whether the objective stopped falling before ``max_iter``.
    duality_gap_ : float
        Bound on how far ``codes_`` lie above the minimum of their objective, relative to it. NaN for images in chunks
        that a graph joins.
    n_reseeded_ : int
        Number of atoms that no image used and that were replaced by badly reconstructed images.
    multipliers_ : list of array or None
        Lagrange multipliers of the atoms' norm constraints.
    scale_factor_ : float
        What images are divided by under ``scale="max"``, else 1.
    image_shape_ : tuple of int
        Shape of one image.
    n_features_in_ : int
        Pixels of one image.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if the images came as a data frame.

    Examples
    --------
    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> model = CSC(n_atoms=4, filter_shape=(3, 3), random_state=0).fit(images)
    >>> model.codes_.shape, model.transform(images).shape
    ((20, 4, 6, 5), (20, 4))
    """

    _final_penalty = FILTER_PENALTY
    _rules: ClassVar[Mapping[str, Rule]] = {
        **RULES, "n_atoms": check_filter_count, "filter_shape": check_filter_shape,
    }  # fmt: skip
    _graph_is_optional = True

    def __init__(
        self,
        n_atoms: int | None = None,
        *,
        filter_shape: tuple[int, int] | None = None,
        sparsity: float = 0.1,
        graph_weight: float = 0.0,
        n_neighbors: int = 3,
        graph: GraphLike = "euclidean",
        scale: str | None = "unit",
        image_shape: ImageShape | None = None,
        max_iter: int = 50,
        tol: float = 5e-4,
        code_solver: CodeSolver | None = None,
        dictionary_solver: DictionarySolver | None = None,
        init: str | Array = "images",
        random_state: RandomSeed = None,
        callbacks: Callbacks = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            sparsity=sparsity, scale=scale, image_shape=image_shape, max_iter=max_iter, tol=tol,
            code_solver=code_solver, dictionary_solver=dictionary_solver, init=init, random_state=random_state,
            callbacks=callbacks, verbose=verbose,
        )  # fmt: skip
        self.n_atoms = n_atoms
        self.filter_shape = filter_shape
        self.graph_weight = graph_weight
        self.n_neighbors = n_neighbors
        self.graph = graph

    # --- hooks -----------------------------------------------------------------------------------------------
    def _solvers(self) -> tuple[CodeSolver, DictionarySolver]:
        code_solver = self.code_solver or Admm(max_iter=FILTER_CODING_STEPS, tol=1e-3, penalty=FILTER_PENALTY)
        return code_solver, self.dictionary_solver or ProjectedGradient(max_iter=50, tol=1e-6)

    def _model(self) -> Callable[[ImageShape], ConvolutionalModel]:
        return convolutional_model

    def _layout(self) -> Callable[[ImageShape], Layout]:
        return PlaneLayout

    def _initial_dictionary(self) -> Callable[[Array, Layout, RandomState], Array]:
        return partial(initial_filters, n_atoms=self.n_atoms, filter_shape=self.filter_shape, init=self.init)

    def _public_dictionary(self) -> Callable[[Layout, Array], dict[str, Any]]:
        return filter_atoms

    def _code_axes(self) -> tuple[int, ...]:
        return (3, 2, 0, 1)


def convolutional_model(image_shape: ImageShape) -> ConvolutionalModel:
    """Return the convolutional model, which is the same for images of all shapes."""
    return ConvolutionalModel()


def filter_atoms(layout: Layout, dictionary: Array) -> dict[str, Any]:
    """Return the fitted attributes of filters (down, across, channel, atom)."""
    xp = namespace(dictionary)
    filters = xp.moveaxis(dictionary, 3, 0)
    height, width = layout.image_shape[:2]
    planes = filter_planes(dictionary, (height, width))
    return {
        "n_atoms_": int(dictionary.shape[3]),
        "filter_shape_": tuple(int(side) for side in dictionary.shape[:2]),
        "filters_": filters if len(layout.image_shape) > 2 else filters[..., 0],
        "atoms_": layout.to_images(xp.moveaxis(planes, (0, 1, 2, 3), (2, 3, 0, 1))),
    }


def fitting_filter_shape(filter_shape: Sequence[int] | None, image_shape: ImageShape) -> tuple[int, int]:
    """Return the shape of a filter, or raise an error if it does not fit into images of this shape.

    >>> fitting_filter_shape(None, (32, 5))
    (8, 5)
    """
    height, width = image_shape[:2]
    if height * width == 1:
        raise ValueError(
            "n_features = 1: images of one pixel have nowhere to move a filter to; use SparseCoding or larger images"
        )
    if filter_shape is None:
        return min(DEFAULT_FILTER_SIDE, height), min(DEFAULT_FILTER_SIDE, width)
    down, across = (int(side) for side in filter_shape)
    if down > height or across > width:
        raise ValueError(
            f"filters of {down} × {across} pixels are larger than the images of {height} × {width}; choose a "
            "filter_shape that fits into an image"
        )
    return down, across


def filter_count(n_atoms: int | None, image_shape: ImageShape) -> int:
    """Return the number of filters, or raise an error if it exceeds the number of pixels."""
    n_pixels = prod(image_shape)
    if n_atoms is None:
        return min(DEFAULT_FILTERS, n_pixels)
    if n_atoms > n_pixels:
        raise ValueError(
            f"n_atoms={n_atoms} filters for images of {n_pixels} pixels: each filter is placed at every pixel, so more "
            f"than one per pixel only repeat each other; use at most {n_pixels}"
        )
    return int(n_atoms)


def initial_filters(
    data: Array, layout: Layout, random: RandomState, *, n_atoms: int | None, filter_shape: Sequence[int] | None,
    init: str | Array,
) -> Array:  # fmt: skip
    """Return initial filters (down, across, channel, atom): patches of random images, random numbers, or ``init``."""
    down, across = fitting_filter_shape(filter_shape, layout.image_shape)
    count = filter_count(n_atoms, layout.image_shape)
    height, width, n_channels, n_samples = (int(size) for size in data.shape)
    if not isinstance(init, str):
        return _given_filters(init, (count, down, across, n_channels), data)
    filters = random.standard_normal((down, across, n_channels, count))
    if init == "images":
        images = to_numpy(data[..., random.randint(0, n_samples, count)])
        for atom in range(count):
            top, left = random.randint(height - down + 1), random.randint(width - across + 1)
            patch = images[top : top + down, left : left + across, :, atom]
            # A blank or constant patch carries no information; such a filter stays random.
            if np.ptp(patch) > 0:
                filters[..., atom] = patch
    return as_like(filters / filter_norms(filters), data[..., :1])


def _given_filters(init: Array, wanted: tuple[int, ...], data: Array) -> Array:
    """Return the user's filters (atom, height, width[, channel]) as (down, across, channel, atom), in the unit ball."""
    filters = as_like(init, data[..., :1])
    if filters.ndim == 3:
        filters = filters[..., None]
    if tuple(filters.shape) != wanted:
        raise ValueError(f"init has shape {tuple(filters.shape)}; (atom, height, width, channel) = {wanted} is wanted")
    return filters_to_ball(namespace(filters).moveaxis(filters, 0, 3))
