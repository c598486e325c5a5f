"""Views: several ways to compare the same images, and the rule that joins them without labels.

A view is a graph of the images. "shape" compares outlines under small deformations, "colour" compares colours,
"texture" compares fine patterns. Two views compare what a network trained on photographs sees: "semantic" what there
is, "layout" what is where. No view is best for every collection: outlines tell letters, signs and faces apart, the
network tells photographs apart, and texture tells surfaces and plants apart where there is no network.

The rule. Every view is cut into clusters by itself. The modularity of that cut says how far the view's own edges agree
with each other, so it needs no labels. A view whose modularity is lower by d than the best one is trusted by
``exp(-100 d)``, and not at all below 0.05. The edges of all views, each times its trust, make the graph that is cut. So
views of nearly equal worth are joined, and a view that is worse than the best one by 0.03 has no influence: adding a
view does no harm.

Modularity is only comparable between views alike. Features of the network and of textures are smoother than shapes,
which makes their graphs look more orderly, so their modularity counts 0.03 less. Colours have few dimensions, and any
cloud of points in few dimensions falls into compact pieces, so their modularity counts 0.1 less. Colour and texture say
nothing about what a picture shows, so they only assist: the best of the other views sets the measure, and edges of
colour count at most 0.35 of its edges, edges of texture at most as much.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.fft import dct
from scipy.sparse.csgraph import connected_components

from tubal.backends.arrays import Array, to_numpy
from tubal.clustering.affinity import (
    LIST_FACTOR,
    DistinctImages,
    choice_weights,
    choose_neighbors,
    with_short_paths,
)
from tubal.clustering.cuts import diffusion_cut, modularity, order_by_size
from tubal.estimators.validation import check_stored
from tubal.graph import Graph, Stage, knn_graph
from tubal.graph.neighbors import DescribedSearch, as_rows
from tubal.graph.structure import Neighbors, SparseMatrix, check_adjacency, check_interval
from tubal.learning.checkpoints import Stages
from tubal.text import count

SHAPE, COLOUR, TEXTURE, SEMANTIC, LAYOUT = "shape", "colour", "texture", "semantic", "layout"
BUILT_IN = (COLOUR, TEXTURE, SEMANTIC, LAYOUT)
FROM_NETWORK = (SEMANTIC, LAYOUT)
ASSISTING = (COLOUR, TEXTURE)
# Trust falls by e for every 0.01 of modularity. Views below the least trust are left out.
STEEPNESS, LEAST_TRUST = 100.0, 0.05
# By how much less the modularity of a view counts.
DISCOUNTS = {COLOUR: 0.1, TEXTURE: 0.03, SEMANTIC: 0.03, LAYOUT: 0.03}
MOST_COLOUR = 0.35
# Smaller pictures are glyphs or icons, whose outlines say it all; a network for photographs adds nothing.
LEAST_SIDE = 32
# Each quarter of a picture must hold a whole block of texture, and texture must not slow down large collections.
LEAST_TEXTURED, MOST_TEXTURED = 16, 20_000
# Without a GPU the network takes tens of milliseconds a picture; for more pictures it must be asked for.
MOST_WITHOUT_GPU = 5000

Features: TypeAlias = NDArray[np.floating[Any]]
# What a user may give for one view: a function from images to features, features, or a graph.
Given: TypeAlias = "Callable[[Array], ArrayLike] | Graph | SparseMatrix | ArrayLike"


class View(Protocol):
    """A way to describe images by rows of features, which are compared by their cosine."""

    def describe(self, images: NDArray[Any], stage: Stage | None = None) -> Features:
        """Return features (n, d) of images (n, height, width[, channels]) with values in [0, 1]."""


@dataclass(frozen=True)
class ColourView:
    """Histograms of the colours in the four quarters of a picture, in the perceptual colour space CIELAB."""

    def describe(self, images: NDArray[Any], stage: Stage | None = None) -> Features:
        """Return square roots of histograms (n, d), whose cosine is the affinity of Bhattacharyya."""
        return colour_histograms(images)


@dataclass(frozen=True)
class TextureView:
    """How often fine patterns occur in the four quarters of a picture: signs of its block cosine transform."""

    def describe(self, images: NDArray[Any], stage: Stage | None = None) -> Features:
        """Return square roots of mean responses (n, d)."""
        return texture_responses(images)


class NetworkPass:
    """One pass of the network over some images, which two views share, see :mod:`tubal.backends.network`."""

    def __init__(self) -> None:
        self._images: NDArray[Any] | None = None
        self._rows: Features | None = None

    def rows(self, images: NDArray[Any], stage: Stage | None) -> Features:
        """Return the features of both views; those of the same array are computed once."""
        from tubal.backends.network import describe_pictures

        if self._rows is None or self._images is not images:
            self._images, self._rows = images, describe_pictures(images, report=None if stage is None else stage.show)
        return self._rows


@dataclass(frozen=True)
class NetworkView:
    """What a network trained on photographs sees: what there is ("semantic"), or what is where ("layout")."""

    name: str
    network: NetworkPass

    def describe(self, images: NDArray[Any], stage: Stage | None = None) -> Features:
        """Return the part (n, d) of the network's features that belongs to this view."""
        return network_parts(self.network.rows(images, stage))[self.name]


def network_parts(rows: Features) -> dict[str, Features]:
    """Return the two parts of the network's features, by the name of their view."""
    from tubal.backends.network import N_LAYOUT

    return {SEMANTIC: rows[:, N_LAYOUT:], LAYOUT: rows[:, :N_LAYOUT]}


@dataclass(frozen=True)
class FunctionView:
    """Features from a function of the user's, which is called with all images at once."""

    name: str
    function: Callable[[Array], ArrayLike]

    def describe(self, images: NDArray[Any], stage: Stage | None = None) -> Features:
        """Return what the function returns, checked."""
        return check_features(self.name, to_numpy(self.function(images)), len(images))


def built_in_views() -> dict[str, View]:
    """Return the views that need nothing from the user; the two of the network share one pass over the images."""
    network = NetworkPass()
    seen: dict[str, View] = {name: NetworkView(name, network) for name in FROM_NETWORK}
    return {COLOUR: ColourView(), TEXTURE: TextureView(), **seen}


# --- which views --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Request:
    """The views of one fit: whether shape counts, views to compute, and features or graphs that were given."""

    shape: bool
    computed: Mapping[str, View]
    given: Mapping[str, Features | Graph]


ONLY_SHAPE = Request(True, {}, {})


def requested_views(views: str | Sequence[str] | Mapping[str, Any], images: Array) -> Request:
    """Return the views that ``views`` asks for, for images (n, height, width[, channels]).

    "auto" takes shape, colour where the images have colour, and the network where it is installed and can help; where
    it is not, texture.
    """
    known = built_in_views()
    if isinstance(views, str) and views == "auto":
        useful = _useful(images)
        return Request(True, {name: known[name] for name in useful}, {}) if useful else ONLY_SHAPE
    if not isinstance(views, (str, Mapping, Iterable)):
        raise TypeError(f"views={views!r}; 'auto', the name of a view, a list of names or a dict is wanted")
    wanted = dict.fromkeys([views] if isinstance(views, str) else views) if not isinstance(views, Mapping) else views
    if not wanted:
        raise ValueError("views is empty; name at least one, such as 'shape'")
    computed: dict[str, View] = {}
    given: dict[str, Features | Graph] = {}
    for name, value in wanted.items():
        if not isinstance(name, str):
            raise TypeError(f"views has the name {name!r}; names are text")
        if value is None or (isinstance(value, str) and value == name):
            if name != SHAPE:
                computed[name] = _built_in(name, known)
        elif name == SHAPE:
            raise ValueError("the view 'shape' is the neighbour graph itself; give another one as graph=")
        elif callable(value):
            computed[name] = FunctionView(name, value)
        else:
            given[name] = _check_given(name, value, len(images))
    return Request(SHAPE in wanted, computed, given) if computed or given else ONLY_SHAPE


def _built_in(name: str, known: Mapping[str, View]) -> View:
    if name not in known:
        names = ", ".join(map(repr, ("auto", SHAPE, *known)))
        raise ValueError(f"views={name!r}; choose from {names}, or give features, a graph or a function by name")
    return known[name]


def _useful(images: Array) -> list[str]:
    """Return the views beside shape that are available and can help with these images."""
    found = [COLOUR] if has_colour(images) else []
    size = tuple(images.shape[1:3])
    if network_can_help(len(images), size):
        return [*found, *FROM_NETWORK]
    return [*found, TEXTURE] if min(size) >= LEAST_TEXTURED and len(images) <= MOST_TEXTURED else found


def has_colour(images: Array) -> bool:
    """Return whether images have three channels that differ: a grey picture stored in colour has none."""
    if images.ndim != 4 or images.shape[-1] != 3:
        return False
    step = max(1, len(images) // 200)
    sample = to_numpy(images[::step])
    spread = sample.max(axis=-1) - sample.min(axis=-1)
    return bool(spread.mean() > 0.02 * max(float(np.abs(sample).max()), 1e-12))


def network_can_help(n_images: int, size: tuple[int, ...]) -> bool:
    """Return whether the network is there, pictures of that size show enough, and there are not too many of them."""
    if min(size) < LEAST_SIDE:
        return False
    from tubal.backends.network import has_gpu, why_missing

    return not why_missing() and (n_images <= MOST_WITHOUT_GPU or has_gpu())


def _check_given(name: str, value: Any, n_images: int) -> Features | Graph:
    """Return the features or the graph that a user gave for a view."""
    if isinstance(value, Graph):
        if value.n_images != n_images:
            raise ValueError(f"the view {name!r} joins {value.n_images} images, but {n_images} were given")
        return value
    if sparse.issparse(value):
        return Graph(check_adjacency(value, n_images))
    return check_features(name, to_numpy(value), n_images)


def check_features(name: str, values: NDArray[Any], n_images: int) -> Features:
    """Return features (n, d) as floats, or raise an error that says what is wrong with them."""
    rows = np.asarray(values)
    if rows.dtype.kind not in "buif" or rows.ndim < 2 or len(rows) != n_images:
        raise ValueError(
            f"the view {name!r} has features of shape {rows.shape} and type {rows.dtype} for "
            f"{count(n_images, 'image')}; one row of numbers per image is wanted"
        )
    rows = rows.reshape(len(rows), -1).astype(np.float32, copy=False)
    if not np.isfinite(rows).all():
        raise ValueError(f"the view {name!r} has features that are infinite or not a number")
    return rows


def in_unit_range(images: Array, peak: float) -> NDArray[Any]:
    """Return images as NumPy floats in [0, 1], given the value of white."""
    values: NDArray[Any] = np.asarray(to_numpy(images), dtype=np.float32) / np.float32(peak)
    return np.asarray(np.clip(values, 0.0, 1.0))


def white_of(images: Array) -> float:
    """Return the value of white in images: 1, or the largest value if that is larger."""
    return max(1.0, float(to_numpy(images).max()))


# --- from features to graphs ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Views:
    """The views of a fit.

    ``lists`` are longer neighbour lists among the distinct images, "shape" included if it counts. ``graphs`` are those
    of all images, for views other than shape. ``sources`` says how each view was made, see ``views_`` of the clusterer.
    ``peaks`` are those of :func:`picture_peaks`, where features that were computed from pictures follow from them.
    """

    lists: dict[str, Graph]
    graphs: dict[str, Graph]
    sources: dict[str, str]
    trust: dict[str, float]
    white: float
    peaks: NDArray[np.uint8] | None = None

    def edges(self, shape: Graph, n_neighbors: int) -> dict[str, SparseMatrix]:
        """Return the edge weights of every view among its best neighbours, given the graph of the view shape."""
        return {
            name: choice_weights(shape) if name == SHAPE else best_edges(lists, n_neighbors)
            for name, lists in self.lists.items()
        }

    def fitted(self) -> dict[str, Any]:
        """Return the fitted attributes of a clusterer with these views.

        A view without any trust is not asked again, so its features are not kept: a network's take more memory than
        the pictures.
        """
        graphs = {
            name: graph if self.trust[name] > 0.0 else Graph(graph.adjacency) for name, graph in self.graphs.items()
        }
        tables = {"views_": {**self.sources}, "view_weights_": {**self.trust}, "view_graphs_": graphs}
        return {**tables, "white_": self.white, **({} if self.peaks is None else {"_peaks_": self.peaks})}


SHAPE_ALONE = Views({}, {}, {SHAPE: "graph"}, {SHAPE: 1.0}, 1.0)


def look_at(request: Request, stack: Array, distinct: DistinctImages, n_neighbors: int, stages: Stages) -> Views:
    """Return the views that were requested of images (n, height, width[, channels])."""
    lists: dict[str, Graph] = {SHAPE: distinct.lists} if request.shape else {}
    sources = {SHAPE: "graph"} if request.shape else {}
    white = white_of(stack)
    graphs: dict[str, Graph] = {}
    pictures = in_unit_range(stack, white) if request.computed else None
    found: dict[str, Features | Graph] = dict(request.given)
    for name, view in request.computed.items():
        found[name] = _describe(view, pictures, stages.stage(f"view {name}", f"comparing pictures by {name}"))
    for name, value in found.items():
        own_function = isinstance(request.computed.get(name), FunctionView)
        sources[name] = "function" if own_function else "images" if name in request.computed else "given"
        graphs[name] = value if isinstance(value, Graph) else feature_graph(value, n_neighbors)
        lists[name] = _among(graphs[name], value, distinct, n_neighbors)
    restorable = any(isinstance(view, (ColourView, TextureView)) for view in request.computed.values())
    peaks = picture_peaks(stack, white) if restorable else None
    return Views(lists, graphs, sources, dict.fromkeys(lists, 1.0), white, peaks)


def _describe(view: View, pictures: NDArray[Any] | None, stage: Stage) -> Features:
    """Return the features of a view; those that an interrupted run has kept are not computed again."""
    kept = stage.kept()
    if pictures is None or "features" in kept:
        return np.asarray(kept["features"])
    features = view.describe(pictures, stage)
    stage.keep(lambda: {"features": features}, finished=True)
    return features


def feature_graph(features: Features, n_neighbors: int) -> Graph:
    """Return longer neighbour lists of rows of features by their cosine, as the view shape has them."""
    length = min(LIST_FACTOR * n_neighbors, len(features) - 1)
    return knn_graph(features, length, metric="cosine", compare_all=False)


def _among(graph: Graph, value: Features | Graph, distinct: DistinctImages, n_neighbors: int) -> Graph:
    """Return the lists of a view among the distinct images."""
    if not distinct.any_copies:
        return graph
    if not isinstance(value, Graph):
        return feature_graph(value[distinct.kept], n_neighbors)
    kept = distinct.kept
    return Graph(sparse.csr_matrix(choice_weights(graph)[kept][:, kept]))


def best_edges(lists: Graph, n_neighbors: int) -> SparseMatrix:
    """Return the edges of a view among its best neighbours; weights of a given matrix are divided by the largest."""
    if lists.neighbors is not None:
        return choice_weights(choose_neighbors(lists, n_neighbors))
    largest = lists.adjacency.data.max(initial=0.0)
    return lists.adjacency if largest <= 0.0 else sparse.csr_matrix(lists.adjacency / largest)


# --- new images ---------------------------------------------------------------------------------------------------
class Viewed:
    """The parameter and the fitted attributes of a clusterer that describe its views."""

    views: Any
    views_: dict[str, str]
    view_weights_: dict[str, float]
    view_graphs_: dict[str, Graph]
    graph_: Graph
    white_: float
    _peaks_: NDArray[np.uint8]

    def _given_views(self, views: Mapping[str, ArrayLike] | None) -> Mapping[str, ArrayLike]:
        """Return the features of new images by view, or raise an error for views that the model does not have."""
        given = {} if views is None else views
        if not isinstance(given, Mapping):
            raise TypeError(f"views is a {type(given).__name__}; a dict of features by name of view is wanted")
        known = getattr(self, "view_graphs_", {})  # models of earlier versions have one view
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(f"views has {unknown[0]!r}, which is no view of this model; it has {sorted(known)}")
        return given

    def _without_descriptions(self, fitted: dict[str, Any]) -> dict[str, Any]:
        """Return fitted attributes as files store them: without features that follow exactly from the pictures."""
        if "_peaks_" not in fitted or fitted["graph_"].search is None:
            return fitted
        graphs = dict(fitted["view_graphs_"])
        for name, graph in graphs.items():
            if _is_described(fitted["views_"], name) and graph.search is not None:
                graphs[name] = replace(graph, search=DescribedSearch(graph.n_images, graph.search.metric))
        return {**fitted, "view_graphs_": graphs}


def _is_described(sources: Mapping[str, str], name: str) -> bool:
    return name in ASSISTING and sources.get(name) == "images"


def picture_peaks(images: Array, white: float) -> NDArray[np.uint8] | None:
    """Return the largest level (n,) of every picture, or None unless all are 8-bit pictures, exactly.

    With the peak, the picture follows from its copy of unit length, which graphs keep, see :func:`describe_again`.
    """
    steps, peaks = _levels_up_to(white), np.zeros(len(images), np.uint8)
    for start in range(0, len(images), _IMAGES_AT_A_TIME):
        part = np.asarray(to_numpy(images[start : start + _IMAGES_AT_A_TIME]), dtype=np.float32) / np.float32(white)
        levels = np.rint(part * np.float32(steps))
        if not 0.0 <= levels.min() <= levels.max() <= steps <= 255.0:
            return None
        if not np.array_equal(in_unit_range(levels, steps), part):
            return None
        peaks[start : start + len(part)] = levels.reshape(len(part), -1).max(axis=1)
    return peaks


def _levels_up_to(white: float) -> float:
    """Return the level of white: pictures hold levels from 0 to 255, or these divided by 255."""
    return 255.0 if white == 1.0 else white


def describe_again(name: str, images: NDArray[Any], peaks: NDArray[np.uint8], white: float) -> Features:
    """Return the features of a view of 8-bit pictures, bit for bit, from their copies (n, ...) of unit length.

    Rounding errors of the copies are far below half a level, so that every level is found again.
    """
    view, parts = built_in_views()[name], []
    for start in range(0, len(images), _IMAGES_AT_A_TIME):
        part = images[start : start + _IMAGES_AT_A_TIME]
        each = (-1, *[1] * (part.ndim - 1))
        largest = part.reshape(len(part), -1).max(axis=1)
        factors = peaks[start : start + len(part)] / np.where(largest > 0, largest, 1)
        parts.append(view.describe(in_unit_range(np.rint(part * factors.reshape(each)), _levels_up_to(white))))
    return np.concatenate(parts)


def _restore_descriptions(model: Any, n_images: int) -> None:
    """Let the views whose features are not stored compute them from the pictures when they are asked."""
    graphs: dict[str, Graph] = model.view_graphs_
    if "_peaks_" in vars(model):
        check_stored("_peaks_", model._peaks_, (n_images,), kinds="u", most=255)
    for name, graph in graphs.items():
        if not isinstance(graph.search, DescribedSearch):
            continue
        if not _is_described(model.views_, name) or "_peaks_" not in vars(model) or model.graph_.search is None:
            raise ValueError(f"the features of the view {name!r} are missing")
        pictures = model.graph_.search.images.reshape(n_images, *model.image_shape_)
        describe = partial(describe_again, name, pictures, model._peaks_, float(model.white_))
        describe_again(name, pictures[:1], model._peaks_[:1], float(model.white_))  # raises an error here, not later
        graphs[name] = replace(graph, search=replace(graph.search, describe=describe))


def describe_new(model: Viewed, stack: Array, given: Mapping[str, ArrayLike]) -> dict[str, Features]:
    """Return features of new images in every view of a model that has any trust and can be computed or is given.

    A network that is not installed here is left out with a warning.
    """
    found, known = {}, built_in_views()
    pictures = in_unit_range(stack, model.white_)
    for name, graph in model.view_graphs_.items():
        if model.view_weights_[name] <= 0.0 or graph.search is None:
            continue
        if name in given:
            found[name] = check_features(name, to_numpy(given[name]), len(stack))
            came, wanted = found[name].shape[1], as_rows(graph.search.images).shape[1]
            if came != wanted:
                raise ValueError(f"the view {name!r} has {came} features an image; {wanted} are wanted, as in the fit")
        elif (view := _view_of(model, name, known)) is not None:
            try:
                found[name] = view.describe(pictures)
            except ImportError as error:
                warnings.warn(f"the view {name!r} has no vote: {error}", stacklevel=4)
    return found


def leading_graph(model: Viewed) -> tuple[str, Graph]:
    """Return the view that is trusted most, and its graph; the shape where that view keeps no neighbour lists."""
    trust = getattr(model, "view_weights_", {SHAPE: 1.0})  # models of earlier versions have one view
    name = max(trust, key=lambda name: (trust[name], name == SHAPE))
    graph = model.graph_ if name == SHAPE else model.view_graphs_[name]
    return (name, graph) if graph.search is not None else (SHAPE, model.graph_)


def query_leading(
    model: Viewed, stack: Array, images: Array, given: Mapping[str, ArrayLike], n_neighbors: int | None
) -> Neighbors:
    """Return the training images nearest to new images in the view that is trusted most.

    ``images`` are those of ``stack`` as the shape is compared. Where the features of that view are not known, the shape
    is compared. A training image has the features that it had in the fit.
    """
    name, graph = leading_graph(model)
    wanted = n_neighbors if n_neighbors is not None else model.graph_.n_neighbors
    if name == SHAPE:
        return graph.query_full(images, wanted)
    known: Any = graph.search
    same = model.graph_.identical(images)
    rows = known.images[same] if (same >= 0).all() else describe_new(model, stack, given).get(name)
    if rows is None:
        return model.graph_.query_full(images, wanted)
    return graph.query_full(np.where((same >= 0)[:, None], known.images[same], rows), wanted)


def _view_of(model: Viewed, name: str, known: Mapping[str, View]) -> View | None:
    """Return what computes a view from images; None if its features were given, or its function is not stored."""
    value = model.views.get(name) if isinstance(model.views, Mapping) else None
    if callable(value):
        return FunctionView(name, value)
    return known.get(name) if model.views_.get(name) == "images" else None


def check_view_results(model: object, n_images: int) -> None:
    """Raise an error for fitted views that no fit leaves; models of earlier versions have none."""
    state = vars(model)
    if "view_weights_" not in state:
        return
    trust, sources, graphs = (state.get(name) for name in ("view_weights_", "views_", "view_graphs_"))
    if not isinstance(trust, dict) or not isinstance(sources, dict) or not isinstance(graphs, dict):
        raise TypeError("its views are not tables of names")
    if set(trust) != set(sources) or set(graphs) != set(trust) - {SHAPE}:
        raise ValueError("its views have different names in different tables")
    for value in trust.values():
        check_interval("view_weights_", value, 0.0, 1.0)
    if not set(sources.values()) <= {"graph", "images", "function", "given"}:
        raise ValueError("a view was made in a way that this version does not know")
    if any(not isinstance(graph, Graph) or graph.n_images != n_images for graph in graphs.values()):
        raise ValueError(f"a view is not a graph of {n_images} images")
    check_interval("white_", state.get("white_"), 1e-300, 1e300)
    _restore_descriptions(model, n_images)


# --- fusion -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Fusion:
    """Edges of all views together, and how far each view is trusted, from 0 to 1.

    Parameters
    ----------
    weights : sparse matrix of shape (n_images, n_images)
        Sum of the views' edge weights, each times its trust.
    trust : dict of str to float
        Trust in each view; 1 for the best.
    quality : dict of str to float
        Modularity of each view's own cut, less what does not count of it.
    """

    weights: SparseMatrix
    trust: dict[str, float]
    quality: dict[str, float]


def fuse_views(views: Mapping[str, SparseMatrix], n_clusters: int, *, seed: int = 0) -> Fusion:
    """Join the edges of several views by the rule above.

    Parameters
    ----------
    views : mapping of str to sparse matrix of shape (n_images, n_images)
        Edge weights of each view, as :func:`mutual_adjacency` gives them.
    n_clusters : int
        Number of clusters into which each view is cut.
    seed : int, default=0
        Seed of the eigensolver's start.

    Returns
    -------
    Fusion
        The joined edges and the trust in each view.

    Examples
    --------
    >>> blocks = sparse.csr_matrix(np.kron(np.eye(4), np.ones((6, 6))) - np.eye(24))
    >>> rng = np.random.default_rng(0)
    >>> noise = sparse.random(24, 24, 0.3, random_state=0, data_rvs=np.ones)
    >>> noise = sparse.csr_matrix(noise.maximum(noise.T) - sparse.diags(noise.diagonal()))
    >>> fuse_views({"good": blocks, "noise": noise}, 4).trust
    {'good': 1.0, 'noise': 0.0}
    """
    quality = {}
    for name, edges in views.items():
        quality[name] = own_modularity(edges, n_clusters, seed=seed) - DISCOUNTS.get(name, 0.0)
    leading = {name: value for name, value in quality.items() if name not in ASSISTING} or quality
    best = max(leading.values())
    trust = {name: min(1.0, float(np.exp(STEEPNESS * (value - best)))) for name, value in quality.items()}
    if COLOUR not in leading and COLOUR in trust:
        trust[COLOUR] *= MOST_COLOUR
    trust = {name: value if value >= LEAST_TRUST else 0.0 for name, value in trust.items()}
    terms = [trust[name] * edges for name, edges in views.items() if trust[name] > 0.0]
    return Fusion(sparse.csr_matrix(sum(terms[1:], start=terms[0])), trust, quality)


def own_modularity(edges: SparseMatrix, n_clusters: int, *, seed: int = 0) -> float:
    """Return the modularity of a view's own cut: how far its edges agree with each other."""
    affinity = with_short_paths(edges)
    n_components, component = connected_components(affinity, directed=False)
    if n_components > n_clusters:
        # No edge says how to join the components; the largest are clusters, and all others together one.
        labels = np.minimum(order_by_size(component), n_clusters - 1)
    else:
        labels = diffusion_cut(affinity, n_clusters, seed=seed)
    return modularity(affinity, labels)


# --- colour -------------------------------------------------------------------------------------------------------
# Linear sRGB to CIE XYZ, and the white of daylight (D65).
_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
_WHITE = np.array([0.95047, 1.0, 1.08883])
# Centres of the bins along lightness, green to red, and blue to yellow; colours between two count for both.
_BINS = (np.linspace(0.0, 100.0, 4), np.linspace(-60.0, 60.0, 8), np.linspace(-60.0, 60.0, 8))
_IMAGES_AT_A_TIME = 64


def to_lab(pixels: NDArray[Any]) -> NDArray[np.float64]:
    """Return CIELAB values (..., 3) of sRGB colours (..., 3) in [0, 1]: equal distances look equally different.

    >>> to_lab(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])).round(1) + 0.0
    array([[100. ,   0. ,   0. ],
           [ 53.2,  80.1,  67.2]])
    """
    values = np.asarray(pixels, dtype=np.float64)
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    relative = linear @ _TO_XYZ.T / _WHITE
    roots = np.where(relative > 216 / 24389, np.cbrt(relative), (24389 / 27 * relative + 16.0) / 116.0)
    x, y, z = np.moveaxis(roots, -1, 0)
    return np.stack([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)], axis=-1)


def colour_histograms(images: NDArray[Any]) -> NDArray[np.float32]:
    """Return square roots of CIELAB histograms (n, 4 * 256) of the quarters of images (n, height, width, 3)."""
    if images.ndim != 4 or images.shape[-1] != 3:
        raise ValueError(f"the view 'colour' needs images (n, height, width, 3); they have shape {images.shape}")
    parts = []
    for start in range(0, len(images), _IMAGES_AT_A_TIME):
        lab = to_lab(images[start : start + _IMAGES_AT_A_TIME])
        quarters = [part for half in np.array_split(lab, 2, axis=1) for part in np.array_split(half, 2, axis=2)]
        parts.append(np.concatenate([_soft_histogram(part) for part in quarters if part.size], axis=1))
    return np.asarray(np.sqrt(np.concatenate(parts)), dtype=np.float32)


def _soft_histogram(lab: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share (n, 256) of pixels near each bin; a colour between two bins counts for both."""
    pixels = lab.reshape(len(lab), -1, 3)
    near = []
    for channel, centers in enumerate(_BINS):
        values = np.clip(pixels[..., channel], centers[0], centers[-1])
        step = centers[1] - centers[0]
        near.append(np.maximum(1.0 - np.abs(values[..., None] - centers) / step, 0.0))
    shares = np.einsum("npa,npb,npc->nabc", *near, optimize=True)
    return np.asarray(shares.reshape(len(lab), -1) / pixels.shape[1])


# --- texture ------------------------------------------------------------------------------------------------------
# Blocks of the size of JPEG's, and their distance. Contrast below that of ten grey values of 255 counts as noise.
_BLOCK, _STRIDE, _NOISE = 8, 2, 10.0 / 255.0
# Brightness, and two differences of colours.
_OPPONENTS = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]])
# Responses weaker than half the usual one do not count, as in the codes of single-layer networks (Coates et al. 2011).
_WEAK = 0.5


def texture_responses(images: NDArray[Any]) -> NDArray[np.float32]:
    """Return how strongly fine patterns occur in the quarters of images (n, height, width[, 3]), (n, 4 * d).

    Every block of pixels is brought to unit contrast and written as a sum of cosines. In natural images the strength of
    a cosine falls in proportion to its frequency, so each is multiplied by its frequency: then all are equally strong
    in a usual picture. What exceeds half of that strength counts, positive and negative responses separately.
    """
    if min(images.shape[1:3]) < LEAST_TEXTURED:
        least = f"{LEAST_TEXTURED}×{LEAST_TEXTURED}"
        raise ValueError(f"the view 'texture' needs images of at least {least} pixels; they have {images.shape[1:3]}")
    stack = images[..., None] if images.ndim == 3 else images
    if stack.shape[-1] == 3:
        stack = stack @ (_OPPONENTS / np.linalg.norm(_OPPONENTS, axis=1, keepdims=True)).T
    cosines = _block_cosines()
    parts = [
        _pool_quarters(_responses(stack[start : start + _IMAGES_AT_A_TIME].astype(np.float32), cosines))
        for start in range(0, len(stack), _IMAGES_AT_A_TIME)
    ]
    return np.asarray(np.sqrt(np.concatenate(parts)), dtype=np.float32)


def _block_cosines() -> NDArray[np.float32]:
    """Return the cosines of a block (63, 64) without the constant one, each times its frequency."""
    basis = dct(np.eye(_BLOCK), axis=0, norm="ortho")
    steps = np.arange(_BLOCK)
    frequency = np.hypot(steps[:, None], steps).ravel()[1:]
    # A block of unit contrast has 64 squares in sum; of strength 1/frequency, this constant makes each one.
    usual = _BLOCK / np.sqrt(np.sum(frequency**-2.0))
    return np.asarray(np.kron(basis, basis)[1:] * (frequency / usual)[:, None], dtype=np.float32)


def _responses(images: NDArray[np.float32], cosines: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the responses (n, rows, columns, 126 * channels) of all blocks of images (n, height, width, channels)."""
    windows = sliding_window_view(images, (_BLOCK, _BLOCK), axis=(1, 2))[:, ::_STRIDE, ::_STRIDE]
    blocks = windows.reshape(*windows.shape[:4], -1)
    blocks = blocks - blocks.mean(axis=-1, keepdims=True)
    blocks /= np.sqrt(np.square(blocks).mean(axis=-1, keepdims=True) + _NOISE**2)
    strength = (blocks @ cosines.T).reshape(*windows.shape[:3], -1)
    return np.concatenate([np.maximum(strength - _WEAK, 0.0), np.maximum(-strength - _WEAK, 0.0)], axis=-1)


def _pool_quarters(responses: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the means (n, 4 * d) of responses (n, rows, columns, d) over the four quarters."""
    quarters = [part for half in np.array_split(responses, 2, axis=1) for part in np.array_split(half, 2, axis=2)]
    return np.concatenate([part.mean(axis=(1, 2)) for part in quarters], axis=1)
