"""CSC: images as sums of small filters at many places."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tubal.backends.arrays import Array, as_like, namespace, to_numpy
from tubal.estimators._graph import OptionalGraphCoder
from tubal.estimators._validation import check_choice, check_integer
from tubal.problems.convolutional import ConvolutionalModel, filter_norms, filter_planes, filters_to_ball
from tubal.problems.layout import PlaneLayout
from tubal.solvers import Admm, ProjectedGradient

DEFAULT_ATOMS = 45
# More than the other models take: filters overlap, so codes settle later.
CODING_STEPS = 10
DEFAULT_SIDE = 8
# Filters overlap, so the quadratic is steeper than for atoms as large as the image, and wants a larger penalty.
PENALTY = 3.0


class CSC(OptionalGraphCoder):
    """Convolutional sparse coding: ``X ≈ Σ_j D_j ⊛ B_j``, small filters D_j, sparse maps B_j, in two dimensions.

        minimise  1/2 ||X - Σ_j D_j ⊛ B_j||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁,  filters in the unit ball

    Images are periodic: what leaves on one side comes back on the other. Pad them first where that is wrong. A code
    is as large as the image times the number of filters. Features are the lengths of the maps, eq. 20 with both
    positions in place of one: how much of a filter an image holds, wherever it sits.

    Parameters
    ----------
    n_atoms : number of filters. None: 45, or one a pixel where images are smaller.
    filter_shape : (height, width) of a filter. None: 8 × 8, or the image's side where that is smaller.
    sparsity : weight of the l1 norm of the maps, for images of unit length.
    graph_weight : weight of the graph term; 0 builds no graph.
    n_neighbors, graph : as in :class:`tubal.GTSC`.
    code_solver, dictionary_solver : None means ``Admm`` and ``ProjectedGradient``; the support of a filter is a
        constraint that the Lagrange dual does not know.
    init : "images" (random patches), "random", or filters (n_atoms, height, width[, channels]).

    The others are those of :class:`tubal.TubSC`.

    Attributes
    ----------
    filters_ : (n_atoms, *filter_shape[, channels])
    atoms_ : (n_atoms, height, width[, channels]), the filters at the top left of an empty image.
    codes_ : (n, n_atoms, height, width)

    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> model = CSC(n_atoms=4, filter_shape=(3, 3), random_state=0).fit(images)
    >>> model.codes_.shape, model.transform(images).shape
    ((20, 4, 6, 5), (20, 4))
    """

    def __init__(
        self,
        n_atoms: int | None = None,
        *,
        filter_shape: tuple[int, int] | None = None,
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
        self.filter_shape = filter_shape
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
        self.filter_shape_ = check_filter_shape(self.filter_shape, self.image_shape_)
        self.n_atoms_ = check_filter_count(self.n_atoms, self.image_shape_)

    def _solvers(self) -> tuple[Any, Any]:
        code_solver = self.code_solver or Admm(max_iter=CODING_STEPS, tol=1e-3, penalty=PENALTY)
        return code_solver, self.dictionary_solver or ProjectedGradient(max_iter=50, tol=1e-6)

    def _model(self) -> ConvolutionalModel:
        return ConvolutionalModel()

    def _layout(self, image_shape: tuple[int, ...]) -> PlaneLayout:  # type: ignore[override]
        return PlaneLayout(image_shape)

    def _public_codes(self, codes: Array) -> Array:
        """Return codes (height, width, atom, sample) as (sample, atom, height, width)."""
        return namespace(codes).moveaxis(codes, (0, 1, 2, 3), (2, 3, 1, 0))

    def _inner_codes(self, codes: Array) -> Array:
        return namespace(codes).moveaxis(codes, (0, 1, 2, 3), (3, 2, 0, 1))

    def _inner_order(self, codes: Array) -> Array:
        return namespace(codes).moveaxis(codes, 0, 2)

    def _atoms(self, dictionary: Array) -> Array:
        xp = namespace(dictionary)
        small = xp.moveaxis(dictionary, 3, 0)
        self.filters_ = small if len(self.image_shape_) > 2 else small[..., 0]
        planes = filter_planes(dictionary, self.image_shape_[:2])
        return self._layout_.to_images(xp.moveaxis(planes, (0, 1, 2, 3), (2, 3, 0, 1)))

    def _initial_dictionary(self, data: Array, random: np.random.RandomState) -> Array:
        return initial_filters(data, self.n_atoms_, self.filter_shape_, self.init, random)


def check_filter_shape(filter_shape: Any, image_shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the shape of a filter, or say in a sentence why these images cannot have it.

    >>> check_filter_shape(None, (32, 5))
    (8, 5)
    """
    height, width = image_shape[:2]
    if height * width == 1:
        raise ValueError(
            "n_features = 1: images of one pixel have nowhere to move a filter to; use SparseCoding or larger images"
        )
    if filter_shape is None:
        return min(DEFAULT_SIDE, height), min(DEFAULT_SIDE, width)
    if not isinstance(filter_shape, tuple | list | np.ndarray) or len(filter_shape) != 2:
        raise ValueError(f"filter_shape={filter_shape!r}; (height, width) is wanted, for example (8, 8)")
    down, across = (check_integer("filter_shape", side, least=1) for side in filter_shape)
    if down > height or across > width:
        raise ValueError(
            f"filters of {down} × {across} pixels are larger than the images of {height} × {width}; choose a "
            "filter_shape that fits into an image"
        )
    return down, across


def check_filter_count(n_atoms: Any, image_shape: tuple[int, ...]) -> int:
    """Return the number of filters, or say in a sentence that there are too many for the image."""
    n_pixels = prod(image_shape)
    if n_atoms is None:
        return min(DEFAULT_ATOMS, n_pixels)
    count = check_integer("n_atoms", n_atoms, least=1)
    if count > n_pixels:
        raise ValueError(
            f"n_atoms={count} filters for images of {n_pixels} pixels: each filter is placed at every pixel, so more "
            f"than one a pixel only repeat each other; use at most {n_pixels}"
        )
    return count


def initial_filters(
    data: Array, n_atoms: int, shape: tuple[int, int], init: Any, random: np.random.RandomState
) -> Array:
    """Return starting filters (down, across, channel, atom): patches of images, random ones, or those given."""
    height, width, n_channels, n_samples = (int(size) for size in data.shape)
    down, across = shape
    if not isinstance(init, str):
        return _given_filters(init, (n_atoms, down, across, n_channels), data)
    check_choice("init", init, ("images", "random"))
    filters = random.standard_normal((down, across, n_channels, n_atoms))
    if init == "images":
        images = to_numpy(data[..., random.randint(0, n_samples, n_atoms)])
        for atom in range(n_atoms):
            top, left = random.randint(height - down + 1), random.randint(width - across + 1)
            patch = images[top : top + down, left : left + across, :, atom]
            # A blank or constant patch teaches nothing; such a filter stays random.
            if np.ptp(patch) > 0:
                filters[..., atom] = patch
    return as_like(filters / filter_norms(filters), data[..., :1])


def _given_filters(init: Any, wanted: tuple[int, ...], data: Array) -> Array:
    filters = as_like(init, data[..., :1])
    if filters.ndim == 3:
        filters = filters[..., None]
    if tuple(filters.shape) != wanted:
        raise ValueError(f"init has shape {tuple(filters.shape)}; (atom, height, width, channel) = {wanted} is wanted")
    return filters_to_ball(namespace(filters).moveaxis(filters, 0, 3))
