"""The set-up of every fit: its definition, its initial state, its need of memory, and the fitted attributes.

An estimator packs its parameters into a :class:`Recipe`. A recipe and images in memory give a fit here; chunks of a
source, batches of a stream and a Dask cluster are in :mod:`tubal.learning.chunks` and
:mod:`tubal.distributed`. All of them end in :func:`run_fit`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import psutil
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from tubal.backends.arrays import (
    Array,
    SparseMatrix,
    as_like,
    is_torch,
    namespace,
    own_threads,
    parallel_ranges,
    to_numpy,
)
from tubal.graph import Graph, Stage, deformable_graph, knn_graph, laplacian
from tubal.graph.neighbors import METRICS
from tubal.learning.alternation import (
    Callback,
    Collection,
    Indices,
    InMemory,
    LearningState,
    MemoryStore,
    Progress,
    Weights,
    initial_state,
    learn,
)
from tubal.problems.base import Dictionary, ImageModel, atom_norms
from tubal.problems.layout import ImageShape, Layout
from tubal.problems.tubal import TubalModel
from tubal.solvers import Admm, CodeSolver, DictionarySolver
from tubal.solvers.base import MOST_STEPS

if TYPE_CHECKING:
    from tubal.learning.checkpoints import Checkpoint, DiskStore

PathLike: TypeAlias = str | os.PathLike[str]

# Steps of a coding step while learning: few, because each starts where the last one ended. More steps lower the
# objective less than further iterations in the same time (results/bench.md, "Steps of a coding step").
LEARNING_STEPS = 5
# Names of the graphs that a fit can build.
GRAPH_NAMES = (*METRICS, "deformable")
# Final codes (the end of fit, and encode) lie within this fraction of the minimum of their objective.
FINAL_GAP, FINAL_STEPS = 1e-3, 3000
# The sparsity at which penalties of final codes were measured (docs/theory.md).
USUAL_SPARSITY = 0.1
# A solver given by the user makes 20 times more steps for final codes than for a learning step, and at least 100.
FINAL_FACTOR, LEAST_FINAL_STEPS = 20, 100


# --- what defines a fit --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class GraphSettings:
    """Which graph joins the images, and its weight in the objective.

    Parameters
    ----------
    graph : str, Graph, sparse matrix or ndarray of shape (n, n)
        "euclidean", "cosine" or "deformable", or the graph itself.
    n_neighbors : int
        Neighbours per image of a graph given by name.
    weight : float
        Weight of the graph term in the objective.
    optional : bool
        Whether to build no graph when the weight is zero.
    stage : Stage or None
        Follows the search for neighbours in memory.
    """

    graph: str | Graph | SparseMatrix | NDArray[Any]
    n_neighbors: int
    weight: float
    optional: bool = False
    stage: Stage | None = None

    @property
    def is_built(self) -> bool:
        """Whether the fit builds a graph."""
        return self.weight > 0.0 or not self.optional

    def check_neighbors(self, n_images: int) -> None:
        """Raise an error if ``n_images`` images cannot have ``n_neighbors`` neighbours each."""
        if isinstance(self.graph, str) and self.n_neighbors >= n_images:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} but n_samples = {n_images}: an image has at most n_samples - 1 "
                "neighbours; lower n_neighbors or pass more images"
            )


@dataclass(frozen=True)
class Recipe:
    """Everything that defines a fit except the images.

    Functions in it depend on parameters of the estimator only, so they can be called anywhere, also on another
    machine.

    Parameters
    ----------
    name : str
        Name of the estimator.
    parameters : mapping of str to object
        The estimator's parameters as the user gave them; they identify the fit in a checkpoint.
    model : callable
        Returns the model (the linear map from codes to images) of images of a given shape.
    layout : callable
        Returns the layout of images of a given shape.
    initial_dictionary : callable
        Returns the initial dictionary, given the images as a tensor, their layout and a ``RandomState``.
    public_dictionary : callable
        Returns the fitted attributes that show the dictionary (``atoms_`` at least), given layout and dictionary.
    code_axes : tuple of int
        For each axis of the public codes, samples first, the axis of the solvers' codes, samples last.
    sparsity : float
        Weight of the l1 norm.
    graph : GraphSettings or None
        The graph, or None for a model without one.
    scale : {"unit", "max"} or None
        How images are scaled.
    as_stack : callable
        Returns images that may come as rows as a stack (n, height, width[, channels]).
    code_solver : CodeSolver or None
        Solver of the coding steps; None for :func:`default_code_solver`.
    final_penalty : float or None
        First penalty of the ADMM that finds the final codes and certifies them, at sparsity 0.1; None to use
        ``code_solver`` for them too.
    dictionary_solver : DictionarySolver
        Solver of the dictionary steps.
    max_iter : int
        Largest number of iterations.
    tol : float
        Relative decrease of the objective below which the fit stops.
    random_state : int, RandomState or None
        Seed of the initial dictionary.
    callbacks : callable, sequence of callable or None
        Called with a :class:`~tubal.learning.Progress` after every iteration.
    verbose : int
        Whether to show a progress bar.
    """

    name: str
    parameters: Mapping[str, object]
    model: Callable[[ImageShape], ImageModel]
    layout: Callable[[ImageShape], Layout]
    initial_dictionary: Callable[[Array, Layout, RandomState], Dictionary]
    public_dictionary: Callable[[Layout, Dictionary], dict[str, Any]]
    code_axes: tuple[int, ...]
    sparsity: float
    graph: GraphSettings | None
    scale: str | None
    as_stack: Callable[[Array], Array]
    code_solver: CodeSolver | None
    final_penalty: float | None
    dictionary_solver: DictionarySolver
    max_iter: int
    tol: float
    random_state: int | RandomState | None
    callbacks: Callback | list[Callback] | tuple[Callback, ...] | None
    verbose: int

    @property
    def weights(self) -> Weights:
        """The weights of the objective."""
        return Weights(self.sparsity, 0.0 if self.graph is None else float(self.graph.weight))

    @property
    def learning_solver(self) -> CodeSolver:
        """The solver of the coding steps while learning."""
        return self.code_solver or default_code_solver(self.sparsity, self.scale)

    @property
    def final_solver(self) -> CodeSolver:
        """The solver of final codes: ADMM until the duality gap certifies them, or a given solver with more steps.

        A given solver may have an attribute ``final``, which is then the solver of final codes.
        """
        if self.final_penalty is not None:
            # Of images of unit length. Under weak sparsity, small penalties converge sooner.
            relative = self.sparsity / USUAL_SPARSITY if self.scale == "unit" and self.sparsity > 0.0 else 1.0
            penalty = self.final_penalty * max(relative, 1e-6) ** 0.5
            return Admm(max_iter=FINAL_STEPS, penalty=penalty, gap=FINAL_GAP, check_every=20)
        solver: Any = self.learning_solver
        if hasattr(solver, "final"):
            return cast("CodeSolver", solver.final)
        steps = max(FINAL_FACTOR * solver.max_iter, LEAST_FINAL_STEPS)
        final: CodeSolver = replace(solver, max_iter=min(steps, max(solver.max_iter, MOST_STEPS)))
        return final

    def first_state(self, data: Array, layout: Layout) -> LearningState:
        """Return the state before the first step, its dictionary drawn from ``data`` (a tensor, samples last)."""
        random = check_random_state(self.random_state)
        return initial_state(self.initial_dictionary(data, layout, random), self.model(layout.image_shape))

    def public_codes(self, codes: Array) -> Array:
        """Return codes of the solvers, samples last, in the public order (n, n_atoms, *positions)."""
        return namespace(codes).moveaxis(codes, self.code_axes, tuple(range(codes.ndim)))

    def inner_codes(self, codes: Array) -> Array:
        """Undo :meth:`public_codes`."""
        return namespace(codes).moveaxis(codes, tuple(range(codes.ndim)), self.code_axes)


def default_code_solver(sparsity: float, scale: str | None) -> Admm:
    """Return the default solver of coding steps.

    Every step subtracts sparsity / penalty from each code. Under strong sparsity and a fixed penalty, codes of images
    of unit length would stay at zero during the few steps there are, so the penalty grows with the sparsity.
    """
    return Admm(max_iter=LEARNING_STEPS, tol=1e-3, penalty=2.5 + 50.0 * sparsity if scale == "unit" else 1.0)


def scale_images(images: Array, scale: str | None, factor: float | None = None) -> tuple[Array, float]:
    """Scale every image to unit length, or all by one factor, or not at all; return them and the factor.

    Blank images stay blank. ``factor`` is the one found in fitting, or None while fitting.
    """
    if scale == "unit":
        if is_torch(images):
            return _unit_length(images), 1.0
        scaled = np.empty(images.shape, _unit_length(images[:1]).dtype)

        def fill(start: int, stop: int) -> None:
            scaled[start:stop] = _unit_length(images[start:stop])

        with own_threads() as threads:
            parallel_ranges(fill, len(images), grain=512, threads=threads)
        return scaled, 1.0
    if scale == "max":
        factor = float(abs(images).max()) or 1.0 if factor is None else factor
        return images / factor, factor
    return images, 1.0


# Images of a graph that are looked at to see whether they have unit length, and the largest error of a length.
_LOOKED_AT, _SCALED = 16, 1e-4


def _unit_length(images: Array) -> Array:
    """Return images divided by their lengths; blank ones stay blank."""
    xp = namespace(images)
    largest = abs(images).reshape(images.shape[0], -1).max(1)
    largest = largest.values if hasattr(largest, "values") else largest
    # Divided by the largest pixel first, so that squares of very large or small pixels do not over- or underflow.
    safe = xp.where(largest > 0, largest, 1.0)
    relative = images / safe.reshape(-1, *[1] * (images.ndim - 1))
    squares = (relative.reshape(images.shape[0], -1) ** 2).sum(1)
    norms = xp.sqrt(xp.where(squares > 0, squares, 1.0))
    return relative / norms.reshape(-1, *[1] * (images.ndim - 1))


def as_in_graph(graph: Graph, images: Array, scaled: Array, scale: str | None) -> Array:
    """Return new images as a graph compares them: ``scaled``, or as they came if it was built from images as they came.

    Graphs that a fit builds hold scaled images; those that a user builds may hold either.
    """
    if graph.search is None or scale is None:
        return scaled
    kept = graph.search.images
    if scale == "max":
        is_scaled = abs(float(abs(kept).max()) - 1.0) < _SCALED
    else:
        some = to_numpy(kept[:: max(1, len(kept) // _LOOKED_AT)]).astype(np.float64)
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(some.reshape(len(some), -1), axis=1)
        is_scaled = bool((np.abs(lengths[lengths > 0.0] - 1.0) < _SCALED).all())
    return scaled if is_scaled else images


def initial_atoms(data: Array, layout: Layout, random: RandomState, *, n_atoms: int, init: str | Array) -> Array:
    """Return an initial dictionary (tube, row, atom) of unit atoms: random images, random numbers, or ``init``."""
    if isinstance(init, str):
        tube_length, n_rows, n_samples = data.shape
        atoms = as_like(random.standard_normal((tube_length, n_rows, n_atoms)), data)
        if init == "images":
            chosen = random.permutation(n_samples)[:n_atoms]
            images = data[:, :, chosen]
            blank = to_numpy(atom_norms(images)) == 0.0
            usable = np.flatnonzero(~blank)
            atoms[:, :, usable] = images[:, :, usable]
        return atoms / atom_norms(atoms)
    atoms = as_like(init, data)
    if tuple(atoms.shape) != (*data.shape[:2], n_atoms):
        raise ValueError(
            f"init has shape {tuple(atoms.shape)}; (tube, row, atom) = {(*data.shape[:2], n_atoms)} is wanted"
        )
    lengths = to_numpy(atom_norms(atoms))
    wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0.0)))
    if len(wrong):
        raise ValueError(
            f"init has atom {wrong[0]} of length {lengths[wrong[0]]}; every atom must be finite and have a pixel that "
            "is not zero"
        )
    return atoms / atom_norms(atoms)


def tubal_model(image_shape: ImageShape) -> TubalModel:
    """Return the tubal model, which is the same for images of all shapes."""
    return TubalModel()


def tubal_atoms(layout: Layout, dictionary: Array) -> dict[str, Array]:
    """Return the fitted attributes of a dictionary (tube, row, atom)."""
    return {"atoms_": layout.to_images(dictionary)}


# --- a fit in memory -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PreparedFit:
    """A fit before its first step: scaled images in chunks, their graph, and the first state.

    ``sample`` is one image as a tensor, of the kind, type and device of arrays the fit computes with. ``order`` (n,)
    says which of the user's images each image of the collection is; None if they are in the user's order.
    """

    layout: Layout
    scale_factor: float  # what images were divided by under ``scale="max"``, else 1
    graph: Graph | None  # of all images in the user's order
    collection: Collection
    state: LearningState
    sample: Array
    order: Indices | None = None


def fit_in_memory(recipe: Recipe, images: Array, checkpoint: Checkpoint | None = None) -> dict[str, Any]:
    """Fit on images (n, height, width[, channels]) in memory; return the fitted attributes.

    Codes are computed for all images at once where that fits in memory, else for a chunk of them at a time.
    """
    prepared = _prepare(recipe, images)
    del images  # often a copy of the user's images, which is not needed any more
    return run_fit(recipe, prepared, checkpoint=checkpoint)


def _prepare(recipe: Recipe, images: Array) -> PreparedFit:
    """Scale images, build their graph and make the initial dictionary."""
    layout = recipe.layout(tuple(int(extent) for extent in images.shape[1:]))
    scaled, factor = scale_images(images, recipe.scale)
    data = layout.to_tensor(scaled)
    graph = build_graph(recipe.graph, scaled)
    state = recipe.first_state(data, layout)
    chunk_size = None if is_torch(images) else affordable_images(recipe, layout, state.dictionary, data)
    collection = InMemory(data, None if graph is None else laplacian(graph), chunk_size)
    return PreparedFit(layout, factor, graph, collection, state, data[..., :1] + 0.0)


def build_graph(settings: GraphSettings | None, images: Array) -> Graph | None:
    """Return the graph of images in memory, or None where the fit has none."""
    if settings is None or not settings.is_built:
        return None
    settings.check_neighbors(len(images))
    return resolve_graph(settings.graph, images, n_neighbors=settings.n_neighbors, stage=settings.stage)


def resolve_graph(
    graph: str | Graph | SparseMatrix | NDArray[Any] | list[Any],
    images: Array | Sized,
    *,
    n_neighbors: int = 3,
    stage: Stage | None = None,
) -> Graph:
    """Return the graph of images that is named, given, or described by a matrix.

    Parameters
    ----------
    graph : {"euclidean", "cosine", "deformable"}, Graph, sparse matrix or array-like of shape (n_images, n_images)
        A name builds the graph; a graph is returned as it is; a matrix must be symmetric and non-negative.
    images : array-like of shape (n_images, height, width[, channels]) or (n_images, n_features)
        The images; only their number matters unless ``graph`` is a name.
    n_neighbors : int, default=3
        Neighbours of each image, if the graph is built here.
    stage : Stage or None, default=None
        Follows the search for neighbours.

    Returns
    -------
    Graph
        The graph.

    Examples
    --------
    >>> resolve_graph("euclidean", np.arange(8.0).reshape(4, 2), n_neighbors=1).neighbors.ravel()
    array([1, 0, 1, 2])
    """
    n_images = len(images)
    if isinstance(graph, Graph):
        if graph.n_images != n_images:
            raise ValueError(
                f"graph joins {graph.n_images} images but {n_images} images were given; build it from the same images"
            )
        return graph
    if isinstance(graph, str):
        return _named_graph(graph, images, n_neighbors, stage)
    if sparse.issparse(graph) or isinstance(graph, (np.ndarray, list)):
        return Graph.from_matrix(graph, n_images)
    raise TypeError(
        f"graph is a {type(graph).__name__}; pass one of {', '.join(map(repr, GRAPH_NAMES))}, a Graph, "
        "or a symmetric (n, n) matrix"
    )


def _named_graph(name: str, images: Array, n_neighbors: int, stage: Stage | None) -> Graph:
    if name in METRICS:
        return knn_graph(images, n_neighbors, metric=name, stage=stage)
    if name == "deformable":
        return deformable_graph(images, n_neighbors, stage=stage)
    raise ValueError(f"graph is {name!r}; known names are {', '.join(map(repr, GRAPH_NAMES))}")


def run_fit(
    recipe: Recipe, prepared: PreparedFit, *, folder: PathLike | None = None, checkpoint: Checkpoint | None = None
) -> dict[str, Any]:
    """Run the alternation on a prepared fit, or continue it from its checkpoint; return the fitted attributes."""
    state, save, store = prepared.state, None, None
    if checkpoint is not None:
        identity = checkpoint.identity(recipe, prepared.collection.digest())
        state, store = checkpoint.load(identity, prepared.sample) or (state, None)
        save = checkpoint.saver(identity)
    if store is None:
        store = _new_store(recipe, prepared, folder, checkpoint)
    model = recipe.model(prepared.layout.image_shape)
    state = learn(model, prepared.collection, state, store=store, save=save, **learning_options(recipe))
    codes = _collect_codes(store, prepared.order, folder, keep=checkpoint is not None)
    return fitted_attributes(recipe, prepared.layout, state, codes, prepared.graph, prepared.scale_factor)


def code_again(recipe: Recipe, images: Array, graph: Graph, dictionary: Dictionary) -> Array:
    """Return the public codes of images that a graph joins, at a given dictionary, by one coding pass from zero."""
    layout = recipe.layout(tuple(int(extent) for extent in images.shape[1:]))
    data = layout.to_tensor(scale_images(images, recipe.scale)[0])
    state = initial_state(dictionary, recipe.model(layout.image_shape))
    state.finishing = True
    chunk_size = None if is_torch(images) else affordable_images(recipe, layout, dictionary, data)
    collection = InMemory(data, laplacian(graph), chunk_size)
    prepared = PreparedFit(layout, 1.0, graph, collection, state, data[..., :1] + 0.0)
    store = _new_store(recipe, prepared, None, None)
    learn(recipe.model(layout.image_shape), collection, state, store=store, **learning_options(recipe))
    return recipe.public_codes(_collect_codes(store, None, None, keep=False))


def follow_fit(recipe: Recipe, progress: Callable[[str, int, int], object]) -> Recipe:
    """Return the recipe with ``progress(stage, done, total)`` called while neighbours are sought, and per iteration."""
    given = recipe.callbacks
    callbacks = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]

    def show(found: Progress) -> None:
        progress("learning atoms and codes", found.n_iter, found.max_iter)

    graph = recipe.graph
    if graph is not None:
        graph = replace(graph, stage=Stage(lambda done, total: progress("finding neighbours", done, total)))
    return replace(recipe, callbacks=[*callbacks, show], graph=graph)


def learning_options(recipe: Recipe) -> dict[str, Any]:
    """Return the arguments of :func:`learn` that a recipe fixes."""
    given = recipe.callbacks
    callbacks = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    if recipe.verbose:
        from tubal.learning.alternation import progress_bar

        callbacks.append(progress_bar(recipe.name))
    return {
        "weights": recipe.weights,
        "code_solver": recipe.learning_solver,
        "dictionary_solver": recipe.dictionary_solver,
        "final_solver": recipe.final_solver,
        "max_iter": recipe.max_iter,
        "tol": recipe.tol,
        "callbacks": callbacks,
    }


def fitted_attributes(
    recipe: Recipe, layout: Layout, state: LearningState, codes: Array, graph: Graph | None, scale_factor: float
) -> dict[str, Any]:
    """Return every attribute of a fitted coder; ``codes`` are the solvers', samples last."""
    attributes = {
        "image_shape_": layout.image_shape,
        "n_features_in_": int(np.prod(layout.image_shape)),
        "scale_factor_": scale_factor,
        "_layout_": layout,
        "dictionary_": state.dictionary,
        "multipliers_": state.multipliers,
        **recipe.public_dictionary(layout, state.dictionary),
        "codes_": recipe.public_codes(codes),
        "objective_": np.array(state.objective),
        "density_": np.array(state.density),
        "n_iter_": state.n_iter,
        "converged_": state.converged,
        "duality_gap_": state.duality_gap,
        "n_reseeded_": state.n_reseeded,
    }
    return attributes if recipe.graph is None else attributes | {"graph_": graph}


def warn_if_not_converged(recipe: Recipe, fitted: Mapping[str, Any]) -> None:
    """Warn as scikit-learn does when a fit ended before it converged; a fit that a callback stopped is meant so."""
    if fitted["n_iter_"] >= recipe.max_iter and not fitted["converged_"]:
        warnings.warn(
            f"{recipe.name} did not converge in max_iter={recipe.max_iter} iterations: the objective still falls by "
            f"more than tol={recipe.tol:g}; increase max_iter or tol",
            ConvergenceWarning,
            stacklevel=3,
        )
    warn_if_not_certified(recipe, fitted["duality_gap_"], stacklevel=4)


def warn_if_not_certified(recipe: Recipe, gap: float, *, stacklevel: int) -> None:
    """Warn if codes that should be certified are not: ``gap`` is relative, and NaN where it is unknown."""
    if recipe.final_penalty is not None and gap > (1.0 + 1e-6) * FINAL_GAP:
        warnings.warn(
            f"the codes of {recipe.name} may lie {100 * gap:.2g} % above the minimum of their objective, more than the "
            f"usual {100 * FINAL_GAP:g} %; increase sparsity, or pass a code_solver with more steps",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )


def replace_fitted(estimator: object, attributes: Mapping[str, Any]) -> None:
    """Replace all fitted attributes of an estimator at once, so that an interruption never leaves a mixture."""
    fitted = {name for name in vars(estimator) if name.endswith("_") and not name.startswith("__")}
    kept = {name: value for name, value in vars(estimator).items() if name not in fitted}
    estimator.__dict__ = {**kept, **attributes}


# --- memory --------------------------------------------------------------------------------------------------
# A fit may fill this share of the free memory; the rest is for the graph, the interpreter and other programs.
MEMORY_SHARE = 0.7
# Codes of a fit in chunks stay in memory if they take no more than this share of the free memory.
CODES_SHARE = 0.25
# Copies of a chunk's images and codes that exist at the worst moment of a coding step, as measured (docs/scale.md):
# images as read, scaled and as a tensor; codes, point, thresholds and right-hand sides of the solver; with a graph
# also its linear systems and the two sums of neighbours' codes.
IMAGE_COPIES, CODE_COPIES, GRAPH_CODE_COPIES = 4.0, 7.0, 10.0
# Bytes per image of the graph of the whole collection: neighbours, weights, and edges between chunks.
GRAPH_BYTES = 1 << 10
# Buffers for reading files and searching neighbours.
BUFFERS = 8 << 20
SMALLEST_CHUNK = 64


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a fit needs per image of a chunk, and bytes that do not depend on the chunk.

    Parameters
    ----------
    per_image : float
        Bytes per image.
    fixed : float
        Bytes that do not depend on the size of a chunk.
    """

    per_image: float
    fixed: float

    def for_images(self, n_images: int) -> float:
        """Return the bytes that a chunk needs.

        Parameters
        ----------
        n_images : int
            Number of images in the chunk.

        Returns
        -------
        float
            Bytes.
        """
        return self.fixed + n_images * self.per_image


def fit_need(*, pixels: int, codes: int, atom_values: int, itemsize: int, n_graph_images: int = 0) -> MemoryNeed:
    """Estimate the memory that a fit needs.

    Parameters
    ----------
    pixels : int
        Pixel values per image.
    codes : int
        Codes per image.
    atom_values : int
        Values in the dictionary.
    itemsize : int
        Bytes of one number.
    n_graph_images : int, default=0
        Images that the graph joins, in all chunks together; 0 without a graph.

    Returns
    -------
    MemoryNeed
        Bytes per image of a chunk, and bytes that do not depend on the chunk.

    Examples
    --------
    >>> need = fit_need(pixels=1024, codes=45 * 32, atom_values=45 * 1024, itemsize=4, n_graph_images=1000)
    >>> round(need.for_images(1000) / 2**20)
    93
    """
    copies = GRAPH_CODE_COPIES if n_graph_images else CODE_COPIES
    per_image = itemsize * (IMAGE_COPIES * pixels + copies * codes)
    # Statistics and operators are complex numbers in double precision; about eight of each exist at a time.
    statistics = 16.0 * 8 * (atom_values + codes * (atom_values / max(pixels, 1)))
    return MemoryNeed(per_image, BUFFERS + GRAPH_BYTES * n_graph_images + statistics)


def available_memory() -> int:
    """Return the bytes this process may still use: free memory, or what the limit of its container leaves."""
    free = int(psutil.virtual_memory().available)
    room = _container_memory_left()
    return free if room is None else min(free, room)


def _container_memory_left(root: str = "/sys/fs/cgroup") -> int | None:
    """Return the bytes that the memory limit of a container (control group) leaves, or None without a limit."""
    version_2 = ("memory.max", "memory.current")
    version_1 = ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
    for limit, used in (version_2, version_1):
        with contextlib.suppress(OSError, ValueError):
            most = int(Path(root, limit).read_text())
            if most < 1 << 60:
                return max(0, most - int(Path(root, used).read_text()))
    return None


def exceeds_memory(images: object) -> bool:
    """Tell whether an array, once converted to floating point, would fill the free memory."""
    return isinstance(images, np.ndarray) and images.ndim > 1 and 16.0 * images.size > MEMORY_SHARE * available_memory()


def affordable_images(recipe: Recipe, layout: Layout, dictionary: Dictionary, data: Array) -> int:
    """Return how many of the images in ``data`` (a tensor, samples last) can be coded at a time."""
    n_images = int(data.shape[-1])
    problem = recipe.model(layout.image_shape).coding(dictionary, data[..., :1], sparsity=recipe.sparsity)
    parts = dictionary if isinstance(dictionary, (tuple, list)) else (dictionary,)
    need = fit_need(
        pixels=int(np.prod(data.shape[:-1])),
        codes=int(np.prod(problem.codes_shape[:-1])),
        atom_values=sum(int(np.prod(part.shape)) for part in parts),
        itemsize=data.dtype.itemsize,
        n_graph_images=n_images if recipe.weights.graph_weight > 0 else 0,
    )
    return chunk_size_for(need, n_images)


def chunk_size_for(need: MemoryNeed, n_images: int, available: int | None = None) -> int:
    """Return how many images to hold at a time: all of them if they fit, else as many as do.

    >>> chunk_size_for(MemoryNeed(per_image=1e6, fixed=0.0), 1000, available=10**9)
    700
    """
    room = MEMORY_SHARE * (available_memory() if available is None else available)
    if need.for_images(n_images) <= room:
        return n_images
    size = int((room - need.fixed) // need.per_image) if need.per_image else n_images
    if size < min(SMALLEST_CHUNK, n_images):
        raise MemoryError(
            f"a fit on {SMALLEST_CHUNK} images at a time needs {need.for_images(SMALLEST_CHUNK) / 2**20:.0f} MB and "
            f"{room / 2**20:.0f} MB may be used; use fewer atoms, smaller images or float32"
        )
    return size


def _new_store(
    recipe: Recipe, prepared: PreparedFit, folder: PathLike | None, checkpoint: Checkpoint | None
) -> MemoryStore | DiskStore:
    """Return where codes are kept: in memory if they fit, else on disk."""
    if prepared.collection.n_chunks == 1:
        return MemoryStore()
    n_images, one = int(prepared.collection.bounds[-1]), prepared.sample
    model = recipe.model(prepared.layout.image_shape)
    codes = model.coding(prepared.state.dictionary, one, sparsity=recipe.sparsity).codes_shape
    total = 2 * n_images * int(np.prod(codes)) * one.dtype.itemsize
    if folder is None and total <= CODES_SHARE * available_memory():
        return MemoryStore()
    from tubal.learning.checkpoints import DiskStore

    if checkpoint is not None:
        return DiskStore(checkpoint.codes_folder)
    return DiskStore(None if folder is None else tempfile.mkdtemp(prefix="codes-", dir=make_folder(folder)))


def _collect_codes(
    store: MemoryStore | DiskStore, order: Indices | None, folder: PathLike | None, *, keep: bool
) -> Array:
    """Return all codes in the user's order, samples last: in memory if they fit, else mapped from a file.

    Files of a store on disk are removed unless a checkpoint needs them (``keep``).
    """
    if isinstance(store, MemoryStore):
        return store.collect(order)
    if store.total_bytes <= CODES_SHARE * available_memory():
        codes = store.collect(None, order)
    else:
        home = tempfile.mkdtemp(prefix="tubal-") if folder is None else make_folder(folder)
        codes = store.collect(Path(home) / "codes.npy", order)
    if not keep:
        store.discard()
    return codes


def make_folder(folder: PathLike) -> Path:
    """Return a folder, created if it is not there."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)
