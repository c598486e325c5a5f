"""TubSC and GTSC, the paper's models, and SparseCoding and GraphSC, where the whole image is one column."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tubal.backends.arrays import Array
from tubal.estimators.image_coder import Callbacks, GraphCoder, GraphLike, ImageCoder, RandomSeed
from tubal.learning.fitting import ImageShape
from tubal.problems.layout import ImageLayout, Layout, signed_codes
from tubal.solvers import CodeSolver, DictionarySolver


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
