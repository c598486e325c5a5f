"""The estimator base: validate, call pure functions, store what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tubal.backends.arrays import Array, as_like, is_torch, namespace, to_numpy
from tubal.backends.threads import own_threads
from tubal.estimators._explain import Explanation, explain_codes
from tubal.estimators._progress import progress_callback
from tubal.estimators._repr import NotebookView
from tubal.estimators._validation import (
    check_atoms,
    check_callbacks,
    check_choice,
    check_codes,
    check_images,
    check_integer,
    check_method,
    check_weight,
)
from tubal.problems.base import ImageModel, atom_norms
from tubal.problems.layout import ImageLayout, position_norms
from tubal.problems.tubal import TubalModel
from tubal.solvers import Admm, LagrangeDual

# Steps of a coding step within the alternation: few, since every one is warm-started by the last. More lower the
# objective less than the time they take would in further alternations (results/bench.md, "Steps of a coding step").
LEARNING_STEPS = 5
# The last coding step of fit, and every encode, may take this many times as many, and so many at least.
PATIENCE, PATIENT_STEPS = 20, 100
# New images are coded so many at a time: beside images, codes and who is tied to whom little else is in memory.
CODED_TOGETHER = 512


class ImageCoder(NotebookView, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Sparse codes of images over a learned dictionary; subclasses say which linear map, and which graph.

    Subclasses store their parameters in ``__init__`` and may override the hooks below.
    """

    # --- hooks -------------------------------------------------------------------------------------------
    def _model(self) -> ImageModel:
        return TubalModel()

    def _layout(self, image_shape: tuple[int, ...]) -> ImageLayout:
        return ImageLayout(image_shape, check_choice("tube_axis", self.tube_axis, (-1, -2)))

    def _pool(self, codes: Array) -> Array:
        return position_norms(codes)

    def _graph_terms(self, images: Array) -> tuple[float, Any]:
        """Return the graph weight and the Laplacian; no graph here."""
        return 0.0, None

    def _graph_weight(self) -> float:
        return 0.0

    def _chunk_graph(self, rows: Any) -> Any:
        """Return the graph of images in a file; no graph here."""
        return None

    def _new_ties(self, images: Array, neighbors: Any) -> Any:
        """Return how new images are tied to training images; no graph here."""
        return None

    def _tie_terms(self, images: Array, ties: Any) -> dict[str, Any]:
        """Return the graph terms of tied images; no graph here."""
        return {}

    def _initial_dictionary(self, data: Array, random: np.random.RandomState) -> Any:
        return initial_atoms(data, check_integer("n_atoms", self.n_atoms, least=1), self.init, random)

    def _public_codes(self, codes: Array) -> Array:
        """Return codes (tube, atom, sample) as (sample, atom, tube)."""
        return namespace(codes).moveaxis(codes, (0, 1, 2), (2, 1, 0))

    def _inner_codes(self, codes: Array) -> Array:
        return namespace(codes).moveaxis(codes, (0, 1, 2), (2, 1, 0))

    def by_atom(self, codes: Array) -> Array:
        """Return codes (n, ...) as (n, atom, *positions), one atom for each of ``atoms_``."""
        return codes

    # --- fitting -----------------------------------------------------------------------------------------
    def fit(
        self, X: Any, y: Any = None, *, chunk_size: int | None = None, folder: Any = None, checkpoint: Any = None
    ) -> ImageCoder:
        """Learn a dictionary and the codes of the images.

        Parameters
        ----------
        X : images (n, height, width[, channels]) or rows (n, features): NumPy or torch; or, read a chunk at a time, a
            memory map, an HDF5 dataset, a Zarr array, an iterator of batches, or a function that returns one.
        y : ignored.
        chunk_size : images to hold at a time; None holds all that fit in memory.
        folder : where codes that do not fit in memory are written; None means a temporary folder.
        checkpoint : a path or a :class:`tubal.learning.checkpoints.Checkpoint`, to be taken up after an interruption.
        """
        from tubal.estimators._fitting import fit_coder

        fit_coder(self, X, chunk_size=chunk_size, folder=folder, checkpoint=checkpoint)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Fit, and return the features of the training images, (n, n_features_out)."""
        return self.fit(X)._pool(self.codes_)

    def partial_fit(self, X: Any, y: Any = None, *, horizon: float | None = None) -> ImageCoder:
        """Learn from one batch of a stream; ``codes_`` are the batch's.

        Every image counts the same however the stream is cut into batches. An image's weight falls by a factor e
        with every ``horizon`` images that come after it; None never forgets.
        """
        from tubal.estimators._online import learn_batch

        learn_batch(self, X, horizon)
        return self

    def _solvers(self) -> tuple[Any, Any]:
        return self.code_solver or learning_solver(self.sparsity, self.scale), self.dictionary_solver or LagrangeDual()

    def _keep(self, state: Any, codes: Array) -> None:
        self.dictionary_ = state.dictionary
        self.multipliers_ = state.multipliers
        self.atoms_ = self._atoms(state.dictionary)
        self.codes_ = self._public_codes(codes)
        self.objective_ = np.array(state.objective)
        self.density_ = np.array(state.density)
        self.n_iter_, self.converged_, self.n_reseeded_ = state.n_iter, state.converged, state.n_reseeded

    def _atoms(self, dictionary: Any) -> Array:
        return self._layout_.to_images(dictionary)

    def _check_parameters(self) -> None:
        check_weight("sparsity", self.sparsity)
        check_weight("tol", self.tol)
        check_integer("max_iter", self.max_iter, least=1)
        check_choice("scale", self.scale, ("unit", "max", None))
        check_method("code_solver", self.code_solver, ("minimise", "codes"), "Admm(max_iter=50)")
        check_method("dictionary_solver", self.dictionary_solver, ("minimise",), "LagrangeDual()")
        check_callbacks(self.callbacks)

    def _callbacks(self) -> Sequence[Callable[[Any], Any]]:
        given = check_callbacks(self.callbacks)
        return [*given, progress_callback(type(self).__name__)] if self.verbose else given

    # --- new images --------------------------------------------------------------------------------------
    @own_threads()
    def encode(self, X: Any, neighbors: Any = None) -> Array:
        """Return the full codes of images, (n, n_atoms, *positions).

        With a graph, an image identical to a training image gets that image's code; any other is tied to its
        nearest training images, whose codes stay fixed. ``neighbors`` (n, q) names those instead.
        """
        check_is_fitted(self)
        images = check_images(self, X, self.image_shape, reset=False)
        ties = self._new_ties(images, neighbors)
        if is_torch(images) or len(images) <= CODED_TOGETHER:
            return self._encode(images, ties)
        codes = None
        for start in range(0, len(images), CODED_TOGETHER):
            part = slice(start, start + CODED_TOGETHER)
            found = self._encode(images[part], None if ties is None else ties.of(part))
            if codes is None:
                inner = self._inner_codes(found)
                codes = self._public_codes(np.empty((*inner.shape[:-1], len(images)), inner.dtype))
            codes[part] = found
        return codes

    def _encode(self, images: Array, ties: Any) -> Array:
        """Return the codes of images that are held in memory together; no image feels another."""
        scaled, _ = scale_images(images, self.scale, self.scale_factor_)
        dictionary, terms = self._dictionary_like(scaled), self._tie_terms(scaled, ties)
        problem = self._model().coding(dictionary, self._layout_.to_tensor(scaled), sparsity=self.sparsity, **terms)
        solver = patient(self._solvers()[0])
        codes = self._public_codes(solver.codes(problem, solver.minimise(problem).state))
        return self._recognise(codes, ties)

    def _recognise(self, codes: Array, ties: Any) -> Array:
        """Give back training images their own codes; without a graph images are coded alone."""
        return codes

    def _dictionary_like(self, images: Array) -> Any:
        return as_like(self.dictionary_, images)

    def transform(self, X: Any, neighbors: Any = None) -> Array:
        """Return pooled features of images, (n, n_features_out)."""
        return self._pool(self.encode(X, neighbors))

    def decode(self, codes: Array, norms: Any = None) -> Array:
        """Return the images that codes describe; scaled as in fitting unless their ``norms`` are passed."""
        check_is_fitted(self)
        inner = self._inner_codes(check_codes(codes, tuple(self.codes_.shape[1:])))
        problem = self._model().coding(self._dictionary_like(inner), inner, sparsity=self.sparsity)
        images = self._layout_.to_images(problem.reconstruct(inner))
        if norms is None:
            return images
        if len(norms) != len(images):
            raise ValueError(f"norms has {len(norms)} entries for {len(images)} images; one norm an image is wanted")
        return images * as_like(norms, images).reshape(-1, *[1] * (images.ndim - 1))

    def explain(self, image: Any) -> Explanation:
        """Say which atoms at which shifts build an image, the largest contribution first."""
        check_is_fitted(self)
        single = image if is_torch(image) else np.asarray(image)
        codes = self.encode(single[None])
        return explain_codes(to_numpy(self.by_atom(codes)[0]), to_numpy(self.atoms_), self._layout_)

    # --- scikit-learn ------------------------------------------------------------------------------------
    @property
    def _n_features_out(self) -> int:
        return int(self.atoms_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def learning_solver(sparsity: float, scale: str | None) -> Admm:
    """Return the default coding solver of the alternation.

    Shrinkage takes sparsity / penalty from every code at every step: strong sparsity on images of unit length
    would leave nothing for more steps than there are, so the penalty grows with it.
    """
    return Admm(max_iter=LEARNING_STEPS, tol=1e-3, penalty=2.5 + 50.0 * sparsity if scale == "unit" else 1.0)


def patient(solver: Any) -> Any:
    """Return the solver with more steps, for codes that are final."""
    return replace(solver, max_iter=max(PATIENCE * solver.max_iter, PATIENT_STEPS))


def scale_images(images: Array, scale: str | None, factor: float | None) -> tuple[Array, float]:
    """Scale every image to unit length, or all by one factor, or not at all; return them and the factor.

    Blank images stay blank. ``factor`` is what fitting found, or None while fitting.
    """
    xp = namespace(images)
    if scale == "unit":
        largest = abs(images).reshape(images.shape[0], -1).max(1)
        largest = largest.values if hasattr(largest, "values") else largest
        # Through the largest pixel first, so that huge or tiny images neither overflow nor vanish when squared.
        safe = xp.where(largest > 0, largest, 1.0)
        relative = images / safe.reshape(-1, *[1] * (images.ndim - 1))
        squares = (relative.reshape(images.shape[0], -1) ** 2).sum(1)
        norms = xp.sqrt(xp.where(squares > 0, squares, 1.0))
        return relative / norms.reshape(-1, *[1] * (images.ndim - 1)), 1.0
    if scale == "max":
        factor = float(abs(images).max()) or 1.0 if factor is None else factor
        return images / factor, factor
    return images, 1.0


def initial_atoms(data: Array, n_atoms: int, init: Any, random: np.random.RandomState) -> Array:
    """Return a starting dictionary (tube, row, atom): images, random atoms, or a given array, in the unit ball."""
    if isinstance(init, str):
        check_choice("init", init, ("images", "random"))
        tube_length, n_rows, n_samples = data.shape
        atoms = as_like(random.standard_normal((tube_length, n_rows, n_atoms)), data)
        if init == "images":
            chosen = random.permutation(n_samples)[:n_atoms]
            images = data[:, :, chosen]
            blank = to_numpy(atom_norms(images)) == 0.0
            usable = np.flatnonzero(~blank)
            atoms[:, :, usable] = images[:, :, usable]
    else:
        atoms = as_like(init, data)
        if tuple(atoms.shape) != (*data.shape[:2], n_atoms):
            raise ValueError(
                f"init has shape {tuple(atoms.shape)}; (tube, row, atom) = {(*data.shape[:2], n_atoms)} is wanted"
            )
        check_atoms(atoms)
    return atoms / atom_norms(atoms)
