"""The base class of all coders: it checks what users pass, calls the functions of learning, and stores the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tubal.backends.arrays import Array, SparseMatrix, as_like, is_torch, namespace, own_threads, to_numpy
from tubal.estimators.explanation import Explanation, explain_images
from tubal.estimators.notebook import NotebookView
from tubal.estimators.validation import (
    RULES,
    Rule,
    as_stack,
    check_codes,
    check_finite_codes,
    check_loaded_coder,
    check_neighbors,
    check_new_stack,
    check_parameters,
    check_plain,
    check_stack,
    code_shape,
    column_names,
    is_source,
)
from tubal.graph import Graph
from tubal.learning.alternation import Callback, LearningState
from tubal.learning.fitting import (
    GraphSettings,
    PathLike,
    Recipe,
    as_in_graph,
    code_again,
    exceeds_memory,
    fit_in_memory,
    follow_fit,
    initial_atoms,
    replace_fitted,
    scale_images,
    tubal_atoms,
    tubal_model,
    warn_if_not_certified,
    warn_if_not_converged,
)
from tubal.problems.base import Dictionary, ImageModel
from tubal.problems.layout import ImageLayout, ImageShape, Layout, position_norms
from tubal.solvers import CodeSolver, DictionarySolver, LagrangeDual

if TYPE_CHECKING:
    from tubal.learning.checkpoints import Checkpoint
    from tubal.learning.chunks import ImageSource

Images: TypeAlias = ArrayLike | Array
RandomSeed: TypeAlias = int | RandomState | None
Callbacks: TypeAlias = Callback | list[Callback] | tuple[Callback, ...] | None
GraphLike: TypeAlias = "str | Graph | SparseMatrix | NDArray[Any]"

# New images are coded this many at a time, so that little more than images and codes is in memory.
ENCODE_BATCH, _DEVICE_BATCH = 512, 2**14


@dataclass(frozen=True)
class NewNeighbors:
    """Training images that are neighbours of new images.

    ``indices`` and ``weights`` have shape (n, q). ``identical`` (n,) is the training image with exactly the same
    pixels, or -1.
    """

    indices: NDArray[np.intp]
    weights: NDArray[np.float64]
    identical: NDArray[np.intp]

    def __getitem__(self, part: slice) -> NewNeighbors:
        return NewNeighbors(self.indices[part], self.weights[part], self.identical[part])


def _learns_from_batches(coder: ImageCoder) -> bool:
    """Tell whether a coder has ``partial_fit``; where not, raise an error that says why and what to do."""
    graph = coder._graph()
    if graph is not None and graph.weight != 0:
        raise AttributeError(
            f"partial_fit learns from each batch alone, and graph_weight={graph.weight} joins images of all batches; "
            "use graph_weight=0, or fit, which reads images a chunk at a time"
        )
    if not coder._has_one_dictionary:
        raise AttributeError(
            f"{type(coder).__name__} updates its dictionaries in turn, each from all images; use fit, which reads them "
            "a chunk at a time"
        )
    return True


class ImageCoder(NotebookView, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base class of coders: sparse codes of images over a learned dictionary.

    A subclass lists its parameters in ``__init__``, as scikit-learn requires, and overrides the hooks in which it
    differs from :class:`TubSC`: ``_model``, ``_layout``, ``_initial_dictionary``, ``_public_dictionary``,
    ``_code_axes``, ``_solvers``, ``_graph`` and ``_pool``. A hook only returns objects and functions made from
    parameters; :meth:`fit` checks the parameters afterwards, and learning calls the functions. The hooks here are those
    of TubSC and need the parameters ``n_atoms`` and ``tube_axis``.

    Parameters
    ----------
    sparsity : float, default=0.1
        Weight of the l1 norm of the codes, for images of unit length.
    scale : {"unit", "max"} or None, default="unit"
        "unit" scales every image to unit length, "max" divides all images by the largest pixel, None leaves them.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that come as rows. Without it, rows are one-row images.
    max_iter : int, default=50
        Largest number of iterations, each a coding step and a dictionary step.
    tol : float, default=5e-4
        Stop when the objective falls by no more than this share in one iteration.
    code_solver : solver, optional
        Solver of the coding steps, for example ``Admm(max_iter=50)``.
    dictionary_solver : solver, optional
        Solver of the dictionary steps, for example ``LagrangeDual()``.
    init : {"images", "random"} or array, default="images"
        Initial dictionary: random images, random numbers, or an array.
    random_state : int, RandomState or None, default=None
        Seed of the initial dictionary.
    callbacks : callable or list of callable, optional
        Called with a :class:`~tubal.learning.Progress` after every iteration; a callback that returns True stops
        the fit.
    verbose : int, default=0
        1 shows a progress bar.
    """

    # What each parameter must be; a subclass with other parameters extends it.
    _rules: ClassVar[Mapping[str, Rule]] = RULES
    # First penalty of the ADMM that finds the final codes, at sparsity 0.1 (docs/theory.md, "Final codes").
    _final_penalty: ClassVar[float] = 2.0
    # Whether a dictionary step updates the whole dictionary at once, which partial_fit needs.
    _has_one_dictionary: ClassVar[bool] = True

    def __init__(
        self,
        *,
        sparsity: float = 0.1,
        scale: str | None = "unit",
        image_shape: ImageShape | None = None,
        max_iter: int = 50,
        tol: float = 5e-4,
        code_solver: CodeSolver | None = None,
        dictionary_solver: DictionarySolver | None = None,
        init: str | Array | Sequence[Array] = "images",
        random_state: RandomSeed = None,
        callbacks: Callbacks = None,
        verbose: int = 0,
    ) -> None:
        self.sparsity = sparsity
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

    # --- hooks -----------------------------------------------------------------------------------------------
    def _model(self) -> Callable[[ImageShape], ImageModel]:
        """Return the function that makes the model of images of a given shape."""
        return tubal_model

    def _layout(self) -> Callable[[ImageShape], Layout]:
        """Return the function that makes the layout of images of a given shape."""
        return partial(ImageLayout, tube_axis=self.tube_axis)

    def _initial_dictionary(self) -> Callable[[Array, Layout, RandomState], Dictionary]:
        """Return the function that makes the initial dictionary from a tensor of images and its layout."""
        return partial(initial_atoms, n_atoms=self.n_atoms, init=self.init)

    def _public_dictionary(self) -> Callable[[Layout, Dictionary], dict[str, Any]]:
        """Return the function that makes ``atoms_``, and other attributes that show a dictionary."""
        return tubal_atoms

    def _solvers(self) -> tuple[CodeSolver | None, DictionarySolver]:
        """Return the solvers of coding and dictionary steps; None is a short ADMM suited to the sparsity."""
        return self.code_solver, self.dictionary_solver or LagrangeDual()

    def _graph(self) -> GraphSettings | None:
        """Return which graph joins the images, or None for a model without a graph."""
        return None

    def _code_axes(self) -> tuple[int, ...]:
        """Return, for each axis of the public codes (sample, atom, tube), the axis of the solvers' codes."""
        return (2, 1, 0)

    def _pool(self, codes: Array) -> Array:
        """Return features (n, n_features_out) of public codes (n, n_atoms, *positions)."""
        return position_norms(codes)

    def _features(self, codes: Array) -> Array:
        """Return features of public codes; codes whose squares overflow are an error."""
        with np.errstate(over="ignore"):
            features = self._pool(codes)
        check_finite_codes(features)
        return features

    def by_atom(self, codes: Array) -> Array:
        """Return codes with one axis of atoms, in the order of ``atoms_``.

        Parameters
        ----------
        codes : array of shape (n, ...)
            Codes as :meth:`encode` returns them.

        Returns
        -------
        array of shape (n, n_atoms, *positions)
            The same codes.
        """
        return codes

    def _recipe(self) -> Recipe:
        """Return everything that defines a fit except the images; parameters are not checked here."""
        code_solver, dictionary_solver = self._solvers()
        return Recipe(
            name=type(self).__name__,
            parameters=self.get_params(deep=False),
            model=self._model(),
            layout=self._layout(),
            initial_dictionary=self._initial_dictionary(),
            public_dictionary=self._public_dictionary(),
            code_axes=self._code_axes(),
            sparsity=self.sparsity,
            graph=self._graph(),
            scale=self.scale,
            as_stack=partial(as_stack, image_shape=self.image_shape),
            code_solver=code_solver,
            final_penalty=self._final_penalty if self.code_solver is None else None,
            dictionary_solver=dictionary_solver,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
            callbacks=self.callbacks,
            verbose=self.verbose,
        )

    # --- fitting ---------------------------------------------------------------------------------------------
    def fit(
        self,
        X: Images | ImageSource,
        y: object = None,
        *,
        chunk_size: int | None = None,
        folder: PathLike | None = None,
        checkpoint: Checkpoint | PathLike | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> Self:
        """Learn a dictionary and the codes of the images.

        Parameters
        ----------
        X : array of shape (n, height, width) or (n, height, width, channels), or rows (n, features)
            NumPy array or torch tensor. A memory map, an HDF5 dataset, a Zarr array, an iterator of batches, or a
            function that returns such an iterator, is read a chunk at a time.
        y : None
            Ignored.
        chunk_size : int, optional
            Number of images to hold in memory at a time. By default as many as fit.
        folder : str or path-like, optional
            Folder for codes that do not fit in memory. By default a temporary one.
        checkpoint : str, path-like or Checkpoint, optional
            File to which the state of the fit is saved, so that it can be continued after an interruption.
        progress : callable, optional
            Called as ``progress(stage, done, total)`` with the name of the stage, what is done of it, and its total.

        Returns
        -------
        ImageCoder
            The fitted coder itself.
        """
        recipe, saved = self._recipe(), None
        check_parameters(recipe.parameters, self._rules)
        if progress is not None:
            recipe = follow_fit(recipe, progress)
        if checkpoint is not None:
            from tubal.learning.checkpoints import as_checkpoint

            saved = as_checkpoint(checkpoint)
        check_plain(X)
        names = column_names(X)
        if chunk_size is None and not is_source(X) and not exceeds_memory(X):
            fitted = fit_in_memory(recipe, check_stack(X, self.image_shape, self), saved)
        else:
            from tubal.learning.chunks import fit_in_chunks

            fitted = fit_in_chunks(recipe, X, chunk_size=chunk_size, folder=folder, checkpoint=saved)
        replace_fitted(self, fitted | names)
        warn_if_not_converged(recipe, fitted)
        return self

    def fit_transform(
        self,
        X: Images | ImageSource,
        y: object = None,
        *,
        chunk_size: int | None = None,
        folder: PathLike | None = None,
        checkpoint: Checkpoint | PathLike | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> Array:
        """Fit, and return the features of the training images.

        Parameters
        ----------
        X : array of shape (n, height, width) or (n, height, width, channels), or rows (n, features)
            Images, or anything else that :meth:`fit` accepts.
        y : None
            Ignored.
        chunk_size : int, optional
            Passed to :meth:`fit`, as are the following.
        folder : str or path-like, optional
            Folder for codes that do not fit in memory.
        checkpoint : str, path-like or Checkpoint, optional
            File to which the state of the fit is saved.
        progress : callable, optional
            Called as ``progress(stage, done, total)``.

        Returns
        -------
        array of shape (n, n_features_out)
            Features, as :meth:`transform` computes them.
        """
        self.fit(X, chunk_size=chunk_size, folder=folder, checkpoint=checkpoint, progress=progress)
        return self._features(self.codes_)

    @available_if(_learns_from_batches)
    def partial_fit(self, X: Images, y: object = None, *, horizon: float | None = None) -> Self:
        """Learn from one batch of a stream.

        Every image counts the same however the stream is cut into batches. Afterwards ``codes_`` are those of the
        batch, from a short coding step that certifies nothing; :meth:`encode` finds certified codes. Coders with a
        graph, and TenSR, do not have this method.

        Parameters
        ----------
        X : array of shape (n, height, width) or (n, height, width, channels), or rows (n, features)
            The batch.
        y : None
            Ignored.
        horizon : float, optional
            The weight of an image falls by a factor e with every ``horizon`` images that come after it. By default
            all images keep their weight.

        Returns
        -------
        ImageCoder
            The coder itself.
        """
        from tubal.learning.chunks import Stream, learn_batch

        recipe = self._recipe()
        check_parameters(recipe.parameters, self._rules)
        former, names = None, {}
        if hasattr(self, "statistics_"):
            images = check_new_stack(X, self.image_shape, self)
            state = LearningState(
                self.dictionary_, list(self.multipliers_), self.objective_.tolist(), self.density_.tolist(),
                self.n_reseeded_, self.n_iter_,
            )  # fmt: skip
            former = Stream(self._layout_, self.scale_factor_, state, self.statistics_, self.n_samples_seen_)
            if hasattr(self, "feature_names_in_"):
                names = {"feature_names_in_": self.feature_names_in_}
        else:
            images, names = check_stack(X, self.image_shape, self), column_names(X)
        replace_fitted(self, learn_batch(recipe, images, former, horizon) | names)
        return self

    # --- new images ------------------------------------------------------------------------------------------
    @own_threads()
    def encode(self, X: Images, neighbors: ArrayLike | None = None) -> Array:
        """Return the codes of images.

        Unless the coder has a ``code_solver``, the objective of every image is at most a thousandth above its minimum,
        which a duality gap certifies. With a graph, an image that is identical to a training image gets that image's
        code. Any other image is joined to its nearest training images, whose codes stay fixed.

        Parameters
        ----------
        X : array of shape (n, height, width) or (n, height, width, channels), or rows (n, features)
            Images of the shape the coder was fitted on.
        neighbors : int array of shape (n, q), optional
            Training images to which each image is joined, instead of its nearest ones.

        Returns
        -------
        array of shape (n, n_atoms, *positions)
            The codes.
        """
        check_is_fitted(self)
        images = check_new_stack(X, self.image_shape, self)
        joined = self._new_neighbors(images, neighbors)
        if is_torch(images) or len(images) <= ENCODE_BATCH:
            return self._encode_batch(images, joined)
        recipe, codes = self._recipe(), None
        for start in range(0, len(images), ENCODE_BATCH):
            part = slice(start, start + ENCODE_BATCH)
            found = self._encode_batch(images[part], None if joined is None else joined[part])
            if codes is None:
                inner = recipe.inner_codes(found)
                codes = recipe.public_codes(np.empty((*inner.shape[:-1], len(images)), inner.dtype))
            codes[part] = found
        return codes

    def _new_neighbors(self, images: Array, neighbors: ArrayLike | None) -> NewNeighbors | None:
        """Return the neighbours of new images among the training images, given or nearest; None without a graph."""
        settings = self._graph()
        if settings is None or settings.weight == 0:
            return None
        if neighbors is not None:
            indices = check_neighbors(neighbors, len(images), self.codes_.shape[0])
            return NewNeighbors(indices, np.ones(indices.shape), np.full(len(images), -1))
        scaled, _ = scale_images(images, self.scale, self.scale_factor_)
        asked = as_in_graph(self.graph_, images, scaled, self.scale)
        indices, weights = self.graph_.query(asked)
        identical = np.asarray(self.graph_.identical(asked))
        return NewNeighbors(np.asarray(indices), np.asarray(weights, np.float64), identical)

    def _encode_batch(self, images: Array, neighbors: NewNeighbors | None) -> Array:
        """Return the public codes of images that fit in memory together; no image influences another."""
        recipe = self._recipe()
        scaled, _ = scale_images(images, self.scale, self.scale_factor_)
        terms = {} if neighbors is None else self._graph_terms(recipe, scaled, neighbors)
        problem = recipe.model(self.image_shape_).coding(
            dictionary_like(self.dictionary_, scaled), self._layout_.to_tensor(scaled), sparsity=self.sparsity, **terms
        )
        solver = recipe.final_solver
        solution = solver.minimise(problem)
        inner = solver.codes(problem, solution.state)
        if recipe.final_penalty is not None and recipe.sparsity > 0.0 and not solution.converged:
            warn_if_not_certified(recipe, problem.duality_gap(inner).by_image.max(), stacklevel=4)
        codes = recipe.public_codes(inner)
        known = np.flatnonzero(neighbors.identical >= 0) if neighbors is not None else ()
        if neighbors is not None and len(known):
            codes[known] = as_like(self.codes_[neighbors.identical[known]], codes)
        check_finite_codes(codes)
        return codes

    def _products(self, images: Array) -> Array:
        """Return the inner products of images with every atom at every position, (n, n_atoms, *positions)."""
        recipe = self._recipe()
        problem = recipe.model(self.image_shape_).coding(
            dictionary_like(self.dictionary_, images), self._layout_.to_tensor(images), sparsity=self.sparsity
        )
        return self.by_atom(recipe.public_codes(problem.linear))

    def _graph_terms(self, recipe: Recipe, images: Array, neighbors: NewNeighbors) -> dict[str, Any]:
        """Return the graph's part of the coding problem of new images: fixed codes of training images."""
        used, places = np.unique(neighbors.indices, return_inverse=True)
        codes = namespace(images).moveaxis(as_like(self.codes_[used], images), 0, -1)
        starts = np.arange(0, places.size + 1, neighbors.indices.shape[1])
        edges = (neighbors.weights.reshape(-1), places.reshape(-1), starts)
        mixing = sp.csr_array(edges, shape=(len(images), len(used)))
        rows = to_numpy(codes.reshape(-1, codes.shape[-1]))
        summed = as_like((mixing @ rows.T).T.reshape(*codes.shape[:-1], len(images)), images)
        inner = recipe.inner_codes(namespace(images).moveaxis(summed, -1, 0))
        return {
            "graph_weight": recipe.weights.graph_weight,
            "laplacian": sp.diags_array(neighbors.weights.sum(1)),
            "neighbor_sum": inner.contiguous() if is_torch(inner) else np.ascontiguousarray(inner),
        }

    def transform(self, X: Images, neighbors: ArrayLike | None = None) -> Array:
        """Return the features of images (eq. 20): their codes, pooled over the positions.

        Parameters
        ----------
        X : array of shape (n, height, width) or (n, height, width, channels), or rows (n, features)
            Images of the shape the coder was fitted on.
        neighbors : int array of shape (n, q), optional
            Passed to :meth:`encode`: training images to which each image is joined.

        Returns
        -------
        array of shape (n, n_features_out)
            The features.
        """
        return self._features(self.encode(X, neighbors))

    def decode(self, codes: Images, norms: ArrayLike | None = None) -> Array:
        """Return the images that codes describe.

        Parameters
        ----------
        codes : array of shape (n, n_atoms, *positions)
            Codes as :meth:`encode` returns them.
        norms : array of shape (n,), optional
            What each image was divided by before it was coded. Without it, images are scaled as in fitting.

        Returns
        -------
        array of shape (n, height, width) or (n, height, width, channels)
            The images.
        """
        check_is_fitted(self)
        recipe = self._recipe()
        inner = recipe.inner_codes(check_codes(codes, code_shape(self, recipe)))
        model, dictionary = recipe.model(self.image_shape_), dictionary_like(self.dictionary_, inner)
        problem = model.coding(dictionary, inner, sparsity=self.sparsity)
        images = self._layout_.to_images(problem.reconstruct(inner))
        if norms is None:
            return images
        factors = as_like(norms, images)
        if tuple(factors.shape) != (len(images),):
            raise ValueError(
                f"norms has shape {tuple(factors.shape)} for {len(images)} images; one norm an image is wanted"
            )
        return images * factors.reshape(-1, *[1] * (images.ndim - 1))

    def explain(self, image: Images, *, with_graph: bool = False) -> Explanation:
        """Say which atoms at which shifts build an image.

        Parameters
        ----------
        image : array of shape (height, width) or (height, width, channels), or a row (features,)
            One image.
        with_graph : bool, default=False
            Explain the code that the graph makes similar to those of the neighbours, which has hundreds of small
            terms. By default the image is coded alone, at 5 % of the smallest sparsity that leaves no term. Coders
            without a graph explain their own code, and code the image in this way if its own code is zero.

        Returns
        -------
        Explanation
            Atoms, shifts and coefficients, the largest coefficient first.

        Examples
        --------
        >>> from tubal import TubSC
        >>> images = np.random.default_rng(0).random((20, 6, 5))
        >>> explanation = TubSC(n_atoms=4, random_state=0).fit(images).explain(images[0])
        >>> explanation.unexplained() < explanation.unexplained(n_terms=1) < 1.0
        True
        """
        check_is_fitted(self)
        single: Array = image if is_torch(image) else np.asarray(image)
        return explain_images(self, single[None], with_graph=with_graph)[0]

    # --- model files -----------------------------------------------------------------------------------------
    def _left_out(self) -> set[str]:
        """Return the fitted attributes that a model file leaves out, because they follow from the others."""
        made = self._public_dictionary()(self._layout_, self.dictionary_)
        arrays = {name: value for name, value in made.items() if is_torch(value) or isinstance(value, np.ndarray)}
        return {name for name, value in arrays.items() if np.array_equal(to_numpy(value), to_numpy(vars(self)[name]))}

    def _check_loaded(self) -> None:
        """Raise an error unless parameters and fitted attributes are as a fit leaves them: a file may be forged."""
        recipe = self._recipe()
        check_parameters(recipe.parameters, self._rules)
        check_loaded_coder(self, recipe)

    # --- scikit-learn ----------------------------------------------------------------------------------------
    @property
    def _n_features_out(self) -> int:
        return int(self.atoms_.shape[0])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def dictionary_like(dictionary: Dictionary, images: Array) -> Dictionary:
    """Return a dictionary, or every part of one, as arrays of the kind, type and device of ``images``."""
    if isinstance(dictionary, tuple):
        return tuple(as_like(part, images) for part in dictionary)
    return as_like(dictionary, images)


class GraphCoder(ImageCoder):
    """Base class of coders whose codes are similar between neighbours in a graph.

    A subclass has the parameters ``graph_weight``, ``n_neighbors`` and ``graph``.
    """

    graph_weight: float
    n_neighbors: int
    graph: GraphLike
    graph_: Graph | None
    # Whether no graph is built at graph_weight=0. GTSC and GraphSC build it in any case, so that graph_ always exists.
    _graph_is_optional: ClassVar[bool] = False
    # Set by whoever needs no codes of the training images: they are not kept, and computed when they are asked for.
    _codes_on_demand_: bool = False

    @cached_property
    def codes_(self) -> Array:
        """Codes (n, n_atoms, *positions) of the training images; computed on first use where they were not kept."""
        graph: Graph | None = vars(self).get("graph_")
        if not self._codes_on_demand_ or graph is None or graph.search is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'codes_'")
        images = as_like(graph.search.images, self.dictionary_)
        return code_again(replace(self._recipe(), callbacks=None), images, graph, self.dictionary_)

    def _forget_codes(self) -> None:
        """Drop the codes of the training images, the largest part of a fitted coder.

        They are computed anew, by one coding pass from zero, when somebody asks for them. The graph must keep the
        images.
        """
        if self.graph_ is None or self.graph_.search is None:
            raise ValueError(
                "codes can only be computed again from a graph that keeps its images, and this one does not"
            )
        self._codes_on_demand_ = True
        self.__dict__.pop("codes_", None)

    @own_threads()
    def _features_alone(self, images: Array) -> Array:
        """Return features (n, n_features_out) of scaled images, each coded alone by the few steps of a learning step.

        Codes are pooled a batch at a time, so that those of all images are never in memory.
        """
        recipe, step = self._recipe(), _DEVICE_BATCH if is_torch(images) else ENCODE_BATCH
        model, dictionary = recipe.model(self.image_shape_), dictionary_like(self.dictionary_, images)
        parts = []
        for start in range(0, len(images), step):
            tensor = self._layout_.to_tensor(images[start : start + step])
            problem = model.coding(dictionary, tensor, sparsity=self.sparsity)
            solver = recipe.learning_solver
            codes = solver.codes(problem, solver.minimise(problem).state)
            parts.append(self._pool(recipe.public_codes(codes)))
        return namespace(images).concatenate(parts)

    def _left_out(self) -> set[str]:
        return super()._left_out() | ({"codes_"} if self._codes_on_demand_ else set())

    def _graph(self) -> GraphSettings:
        return GraphSettings(self.graph, self.n_neighbors, self.graph_weight, self._graph_is_optional)
