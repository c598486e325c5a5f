"""The coders: TubSC and GTSC, the paper's models, SparseCoding and GraphSC, TenSR, and CSC.

In SparseCoding and GraphSC the whole image is one column. TenSR (separable dictionaries) and CSC (small filters) have
other linear maps. A coder lists its parameters and names its model; ``image_coder`` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.random import RandomState

from tubal.backends.arrays import Array
from tubal.estimators.image_coder import Callbacks, GraphCoder, GraphLike, ImageCoder, RandomSeed
from tubal.estimators.validation import RULES, Rule, check_filter_count, check_filter_shape, check_mode_numbers
from tubal.problems.convolutional import ConvolutionalModel, convolutional_model, filter_atoms, initial_filters
from tubal.problems.layout import ImageLayout, ImageShape, Layout, PlaneLayout, SeparableLayout, signed_codes
from tubal.problems.separable import Matrices, SeparableModel, initial_matrices, separable_atoms, separable_model
from tubal.solvers import Admm, CodeSolver, DictionarySolver, ProjectedGradient

# More steps than for the other models: filters overlap, so codes converge more slowly.
FILTER_CODING_STEPS = 10
# Filters overlap, so the quadratic is steeper than for atoms as large as the image, and needs a larger penalty.
FILTER_PENALTY = 3.0


# --- the paper's models -----------------------------------------------------------------------------------------------
class TubSC(ImageCoder):
    """Tubal-tensor sparse coding (eq. 3): images as sparse sums of atoms and their circular shifts.

    Features (``transform``) are the norms of an atom's codes over its shifts (eq. 20).

    Parameters
    ----------
    n_atoms : int, default=45
        Number of atoms to learn.
    sparsity : float, default=0.1
        Weight of the l1 norm of the codes (the paper's β), for images of unit length.
    scale : {"unit", "max"} or None, default="unit"
        "unit" scales every image to unit length, "max" divides all images by the largest pixel, None leaves them.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that come as rows. Without it, rows are one-row images.
    tube_axis : {-1, -2}, default=-1
        -1 shifts atoms along the width, -2 along the height.
    max_iter : int, default=50
        Largest number of iterations, each a coding step and a dictionary step.
    tol : float, default=5e-4
        Stop when the objective falls by no more than this share in one iteration.
    code_solver : solver, optional
        Solver of the coding steps. By default ``Admm`` with 5 steps and a penalty suited to the sparsity.
    dictionary_solver : solver, optional
        Solver of the dictionary steps. By default ``LagrangeDual()``.
    init : {"images", "random"} or array of shape (tube, row, atom), default="images"
        Initial dictionary: random images, random numbers, or the array, scaled to atoms of unit length.
    random_state : int, RandomState or None, default=None
        Seed of the initial dictionary.
    callbacks : callable or list of callable, optional
        Called with a :class:`~tubal.learning.Progress` after every iteration; a callback that returns True stops
        the fit.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    atoms_ : array of shape (n_atoms, height, width) or (n_atoms, height, width, channels)
        The atoms as images, in the unit ball.
    dictionary_ : array of shape (tube, row, n_atoms)
        The same atoms as the solvers use them.
    codes_ : array of shape (n, n_atoms, tube)
        Codes of the training images.
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
    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> TubSC(n_atoms=4, random_state=0).fit_transform(images).shape
    (20, 4)
    """

    def __init__(
        self,
        n_atoms: int = 45,
        *,
        sparsity: float = 0.1,
        scale: str | None = "unit",
        image_shape: ImageShape | None = None,
        tube_axis: int = -1,
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
        self.tube_axis = tube_axis


class GTSC(GraphCoder):
    """Graph-regularised tensor sparse coding (eq. 8): TubSC whose codes are similar between neighbouring images.

    Features (``transform``) are the norms of an atom's codes over its shifts (eq. 20). New images are joined to their
    nearest training images.

    Parameters
    ----------
    n_atoms : int, default=45
        Number of atoms to learn.
    sparsity : float, default=0.1
        Weight of the l1 norm of the codes (the paper's β), for images of unit length.
    graph_weight : float, default=1.0
        Weight of the graph term (the paper's α). 0 gives the codes of TubSC.
    n_neighbors : int, default=3
        Neighbours per image of a graph given by name (the paper's q).
    graph : {"euclidean", "cosine", "deformable"}, Graph or sparse matrix of shape (n, n), default="euclidean"
        Which images are neighbours: the nearest ones in pixels, in direction, or after a small deformation; or a graph
        of the training images. A matrix must be symmetric.
    scale : {"unit", "max"} or None, default="unit"
        "unit" scales every image to unit length, "max" divides all images by the largest pixel, None leaves them.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that come as rows. Without it, rows are one-row images.
    tube_axis : {-1, -2}, default=-1
        -1 shifts atoms along the width, -2 along the height.
    max_iter : int, default=50
        Largest number of iterations, each a coding step and a dictionary step.
    tol : float, default=5e-4
        Stop when the objective falls by no more than this share in one iteration.
    code_solver : solver, optional
        Solver of the coding steps. By default ``Admm`` with 5 steps and a penalty suited to the sparsity.
    dictionary_solver : solver, optional
        Solver of the dictionary steps. By default ``LagrangeDual()``.
    init : {"images", "random"} or array of shape (tube, row, atom), default="images"
        Initial dictionary: random images, random numbers, or the array, scaled to atoms of unit length.
    random_state : int, RandomState or None, default=None
        Seed of the initial dictionary.
    callbacks : callable or list of callable, optional
        Called with a :class:`~tubal.learning.Progress` after every iteration; a callback that returns True stops
        the fit.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    atoms_ : array of shape (n_atoms, height, width) or (n_atoms, height, width, channels)
        The atoms as images, in the unit ball.
    dictionary_ : array of shape (tube, row, n_atoms)
        The same atoms as the solvers use them.
    codes_ : array of shape (n, n_atoms, tube)
        Codes of the training images.
    graph_ : Graph
        Graph of the training images.
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
    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> GTSC(n_atoms=4, random_state=0).fit_transform(images).shape
    (20, 4)
    """

    def __init__(
        self,
        n_atoms: int = 45,
        *,
        sparsity: float = 0.1,
        graph_weight: float = 1.0,
        n_neighbors: int = 3,
        graph: GraphLike = "euclidean",
        scale: str | None = "unit",
        image_shape: ImageShape | None = None,
        tube_axis: int = -1,
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
        self.graph_weight = graph_weight
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.tube_axis = tube_axis


class _WholeImage:
    """Every pixel is a row and tubes have length one (Remark 1); features are the signed codes."""

    def _layout(self) -> Callable[[ImageShape], Layout]:
        return partial(ImageLayout, whole=True)

    def _pool(self, codes: Array) -> Array:
        return signed_codes(codes)


class SparseCoding(_WholeImage, TubSC):
    """Conventional sparse coding (Lee et al. 2006): images as sparse sums of atoms as large as the image.

    It is TubSC with the whole image as one column (Remark 1). Features (``transform``) are the signed codes.

    Parameters
    ----------
    n_atoms : int, default=45
        Number of atoms to learn.
    sparsity : float, default=0.1
        Weight of the l1 norm of the codes (the paper's β), for images of unit length.
    scale : {"unit", "max"} or None, default="unit"
        "unit" scales every image to unit length, "max" divides all images by the largest pixel, None leaves them.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that come as rows. Without it, rows are one-row images.
    tube_axis : {-1, -2}, default=-1
        Has no effect: nothing is shifted.
    max_iter : int, default=50
        Largest number of iterations, each a coding step and a dictionary step.
    tol : float, default=5e-4
        Stop when the objective falls by no more than this share in one iteration.
    code_solver : solver, optional
        Solver of the coding steps. By default ``Admm`` with 5 steps and a penalty suited to the sparsity.
    dictionary_solver : solver, optional
        Solver of the dictionary steps. By default ``LagrangeDual()``.
    init : {"images", "random"} or array of shape (tube, row, atom), default="images"
        Initial dictionary: random images, random numbers, or the array, scaled to atoms of unit length.
    random_state : int, RandomState or None, default=None
        Seed of the initial dictionary.
    callbacks : callable or list of callable, optional
        Called with a :class:`~tubal.learning.Progress` after every iteration; a callback that returns True stops
        the fit.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    atoms_ : array of shape (n_atoms, height, width) or (n_atoms, height, width, channels)
        The atoms as images, in the unit ball.
    dictionary_ : array of shape (tube, row, n_atoms)
        The same atoms as the solvers use them.
    codes_ : array of shape (n, n_atoms, 1)
        Codes of the training images.
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
    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> SparseCoding(n_atoms=4, random_state=0).fit_transform(images).shape
    (20, 4)
    """


class GraphSC(_WholeImage, GTSC):
    """Graph-regularised sparse coding (Zheng et al. 2011): SparseCoding whose codes are similar between neighbours.

    It is GTSC with the whole image as one column (Remark 1). Features (``transform``) are the signed codes. New images
    are joined to their nearest training images.

    Parameters
    ----------
    n_atoms : int, default=45
        Number of atoms to learn.
    sparsity : float, default=0.1
        Weight of the l1 norm of the codes (the paper's β), for images of unit length.
    graph_weight : float, default=1.0
        Weight of the graph term (the paper's α). 0 gives the codes of SparseCoding.
    n_neighbors : int, default=3
        Neighbours per image of a graph given by name (the paper's q).
    graph : {"euclidean", "cosine", "deformable"}, Graph or sparse matrix of shape (n, n), default="euclidean"
        Which images are neighbours: the nearest ones in pixels, in direction, or after a small deformation; or a graph
        of the training images. A matrix must be symmetric.
    scale : {"unit", "max"} or None, default="unit"
        "unit" scales every image to unit length, "max" divides all images by the largest pixel, None leaves them.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that come as rows. Without it, rows are one-row images.
    tube_axis : {-1, -2}, default=-1
        Has no effect: nothing is shifted.
    max_iter : int, default=50
        Largest number of iterations, each a coding step and a dictionary step.
    tol : float, default=5e-4
        Stop when the objective falls by no more than this share in one iteration.
    code_solver : solver, optional
        Solver of the coding steps. By default ``Admm`` with 5 steps and a penalty suited to the sparsity.
    dictionary_solver : solver, optional
        Solver of the dictionary steps. By default ``LagrangeDual()``.
    init : {"images", "random"} or array of shape (tube, row, atom), default="images"
        Initial dictionary: random images, random numbers, or the array, scaled to atoms of unit length.
    random_state : int, RandomState or None, default=None
        Seed of the initial dictionary.
    callbacks : callable or list of callable, optional
        Called with a :class:`~tubal.learning.Progress` after every iteration; a callback that returns True stops
        the fit.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    atoms_ : array of shape (n_atoms, height, width) or (n_atoms, height, width, channels)
        The atoms as images, in the unit ball.
    dictionary_ : array of shape (tube, row, n_atoms)
        The same atoms as the solvers use them.
    codes_ : array of shape (n, n_atoms, 1)
        Codes of the training images.
    graph_ : Graph
        Graph of the training images.
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
    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> GraphSC(n_atoms=4, random_state=0).fit_transform(images).shape
    (20, 4)
    """


# --- other linear maps ------------------------------------------------------------------------------------------------
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
