"""TubSC and GTSC, the paper's models."""

from __future__ import annotations

from typing import Any

from tubal.estimators._base import ImageCoder
from tubal.estimators._graph import GraphCoder


class TubSC(ImageCoder):
    """Tubal-tensor sparse coding (eq. 3): images as sparse sums of atoms and their circular shifts.

    Parameters
    ----------
    n_atoms : how many atoms to learn.
    sparsity : weight of the l1 norm of the codes (the paper's beta), for images of unit length.
    scale : "unit" brings every image to unit length, "max" divides all by the largest pixel, None leaves them.
    image_shape : (height, width[, channels]) of rows; without it rows are one-row images.
    tube_axis : -1 shifts atoms along the width, -2 along the height.
    max_iter, tol : most alternations, and the relative decrease of the objective below which they stop.
    code_solver, dictionary_solver : solver objects; None means a short ``Admm`` and ``LagrangeDual()``.
    init : "images", "random", or a dictionary (tube, row, atom).
    random_state : seed of the initial atoms.
    callbacks : called with a ``Progress`` after every coding step; return True to stop.
    verbose : 1 shows a progress bar.

    Attributes
    ----------
    atoms_ : (n_atoms, height, width[, channels])
    codes_ : (n, n_atoms, tube)
    objective_ : value after each alternation, never increasing.
    density_ : share of non-zero codes after each alternation.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> TubSC(n_atoms=4, random_state=0).fit_transform(images).shape
    (20, 4)
    """

    def __init__(
        self,
        n_atoms: int = 45,
        *,
        sparsity: float = 0.01,
        scale: str | None = "unit",
        image_shape: tuple[int, ...] | None = None,
        tube_axis: int = -1,
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
        self.scale = scale
        self.image_shape = image_shape
        self.tube_axis = tube_axis
        self.max_iter = max_iter
        self.tol = tol
        self.code_solver = code_solver
        self.dictionary_solver = dictionary_solver
        self.init = init
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose


class GTSC(GraphCoder):
    """Graph-regularised tensor sparse coding (eq. 8): TubSC whose codes agree between images that look alike.

    Parameters
    ----------
    graph_weight : weight of the graph term (the paper's alpha).
    n_neighbors : neighbours per image in a named graph (the paper's q).
    graph : "euclidean", "cosine", "deformable", a ``Graph``, or a symmetric sparse matrix.

    The others are those of :class:`TubSC`. After fitting, ``graph_`` holds the graph; ``transform`` ties new
    images to their nearest training images.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> GTSC(n_atoms=4, random_state=0).fit_transform(images).shape
    (20, 4)
    """

    def __init__(
        self,
        n_atoms: int = 45,
        *,
        sparsity: float = 0.01,
        graph_weight: float = 1.0,
        n_neighbors: int = 3,
        graph: Any = "euclidean",
        scale: str | None = "unit",
        image_shape: tuple[int, ...] | None = None,
        tube_axis: int = -1,
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
        self.tube_axis = tube_axis
        self.max_iter = max_iter
        self.tol = tol
        self.code_solver = code_solver
        self.dictionary_solver = dictionary_solver
        self.init = init
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose
