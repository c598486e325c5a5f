"""The interfaces of all models: a coding problem for solvers, a model for learning, and the data that they exchange.

A new model subclasses :class:`tubal.problems.LinearMapCoding` (the codes of given images under a given dictionary) and
:class:`ImageModel` (the methods that learning calls). ``docs/models.md`` writes one step by step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tubal.backends.arrays import (
    Array,
    SparseMatrix,
    is_torch,
    namespace,
    own_threads,
    parallel_ranges,
    to_numpy_together,
)

# A dictionary is what its model says: one array, or one array per part. Learning only passes it on.
Dictionary: TypeAlias = "Array | tuple[Array, ...]"
# An object with the interface of Statistics; every model has its own class.
ModelStatistics: TypeAlias = Any
# A graph Laplacian: a sparse or dense matrix, or a SharedLaplacian prepared for several problems in turn.
Laplacian: TypeAlias = "SparseMatrix | ArrayLike"


# Better dual points of connected images are found by solving a system whose shift is this fraction of the Lipschitz
# constant: small, so that little of a violated bound is left.
DUAL_SHIFT = 1e-3
# After each of three corrections the next is made if the bound is at most this many times the wanted one. The second
# usually makes it three times smaller and the third half as large again.
NEXT_CORRECTION = (6.0, 2.0, 0.0)
# Images whose gradients one thread measures at a time, at least.
_MEASURED_AT_A_TIME = 256
# Values that a thread moves towards zero at a time, at least.
_MOVED_AT_A_TIME = 2**17


# --- the l1 norm and the unit ball ------------------------------------------------------------------------------------
def soft_threshold(values: Array, threshold: float) -> Array:
    """Move each value towards zero by ``threshold``: the prox of the l1 norm (eq. 12).

    Threads share a large array of NumPy along its first axis.

    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0)
    array([-2.,  0.,  1.])
    """
    if is_torch(values) or values.size <= _MOVED_AT_A_TIME:
        return values - clip_to(values, threshold)
    moved = np.empty_like(values)

    def work(start: int, stop: int) -> None:
        part = clip_to(values[start:stop], threshold)
        np.subtract(values[start:stop], part, out=moved[start:stop])

    with own_threads() as threads:
        parallel_ranges(work, len(values), grain=max(1, _MOVED_AT_A_TIME * len(values) // values.size), threads=threads)
    return moved


def clip_to(values: Array, bound: float) -> Array:
    """Return values clipped to ``[-bound, bound]``, the part that :func:`soft_threshold` subtracts."""
    return namespace(values).clip(values, -bound, bound)


def atom_norms(dictionary: Array) -> Array:
    """Return the Frobenius norm of every atom of a dictionary (tube, row, atom)."""
    return namespace(dictionary).sqrt((dictionary**2).sum((0, 1)))


def project_to_ball(dictionary: Array) -> Array:
    """Scale every atom of a dictionary (tube, row, atom) with a norm above one back to norm one."""
    return dictionary / namespace(dictionary).clip(atom_norms(dictionary), 1.0, None)


# --- states of the iterations, and what they report -------------------------------------------------------------------
@dataclass
class SplitState:
    """The state of ADMM: one array from which both codes and dual follow (``docs/theory.md``).

    Parameters
    ----------
    point : array of the shape of the codes, or None
        Shrinking it gives the codes; the part that shrinkage removes is the scaled dual. None while the problem keeps
        the point in ``extra``.
    movement : array of shape (n_images,), optional
        Relative change of each image's point in the last step; None before the first step.
    extra : object, optional
        Data that the problem keeps between calls of ``split``, for speed. :meth:`CodingProblem.plain_state` removes it.
    """

    point: Array
    movement: Array | None = None
    extra: object = None


@dataclass
class MomentumState:
    """The state of accelerated proximal gradient (Algorithm 1).

    Parameters
    ----------
    codes : array
        The current codes.
    momentum_point : array of the shape of codes
        The extrapolated point (the paper's 𝒞) where the next gradient is taken.
    inertia : array of shape (n_images,)
        The paper's t, one value per image.
    restart : array of shape (n_images,)
        Positive where the last step pointed against the momentum; there the next step drops the momentum.
    """

    codes: Array
    momentum_point: Array
    inertia: Array
    restart: Array


@dataclass(frozen=True)
class Summary:
    """The terms of the objective for each image, in double precision, and the statistics of the dictionary step.

    Parameters
    ----------
    values : array of shape (n_images,)
        Each image's part of the objective; their sum is the value of the problem.
    residuals : array of shape (n_images,)
        Squared reconstruction errors.
    absolutes : array of shape (n_images,)
        l1 norms of the codes.
    statistics : Statistics or None
        Statistics of the first dictionary step, or None.
    """

    values: NDArray[np.float64]
    residuals: NDArray[np.float64]
    absolutes: NDArray[np.float64]
    statistics: ModelStatistics


@dataclass(frozen=True)
class DualityGap:
    """How far codes may be from the minimum: a bound that needs no knowledge of the minimum itself.

    Parameters
    ----------
    gaps : float array of shape (n_images,)
        Each image's part of the bound on ``value(codes) - minimum``. Without a graph each is a bound for its image;
        with a graph only the sum is, and single parts may be negative.
    values : array of shape (n_images,)
        Each image's part of the objective, in the form of a sum of squares plus the l1 penalty.
    """

    gaps: NDArray[np.float64]
    values: NDArray[np.float64]

    @property
    def relative(self) -> float:
        """The bound relative to the objective; codes with 1e-3 lie within a thousandth of the minimum."""
        return float(self.gaps.sum() / max(self.values.sum(), np.finfo(np.float64).tiny))

    @property
    def by_image(self) -> NDArray[np.float64]:
        """The bound of each image relative to its own objective; meaningful without a graph."""
        return self.gaps / np.maximum(self.values, np.finfo(np.float64).tiny)


class GapTerms(NamedTuple):
    """What a duality gap needs of every image, each (image,); see :meth:`CodingProblem.duality_gap`."""

    smooth: NDArray[np.float64]  # the quadratic
    absolutes: NDArray[np.float64]  # l1 norms of the codes
    products: NDArray[np.float64]  # inner products of gradient and codes
    largest: NDArray[np.float64]  # largest magnitudes of the gradient


class Statistics(Protocol):
    """Sums over images that a dictionary step needs; their size does not depend on the number of images."""

    @property
    def usage(self) -> Array:
        """Squared norm of each atom's codes, (atom,): zero for an atom that no image uses."""

    def __add__(self, other: Self) -> Self:
        """Return the statistics of both sets of images together."""

    def scaled(self, factor: float) -> Self:
        """Return the statistics with every image counted ``factor`` times.

        Parameters
        ----------
        factor : float
            Weight of the images; online learning gives old images less weight.

        Returns
        -------
        Statistics
            The scaled statistics.
        """


@dataclass(frozen=True)
class SpectralStatistics:
    """Statistics of a model that is a matrix product at every frequency, summed over images."""

    gram: Array  # ``B̂ B̂ᴴ``, (frequency, atom, atom)
    cross: Array  # ``X̂ B̂ᴴ``, (frequency, row, atom)
    squares: float  # ``||X||²``

    def __add__(self, other: Self) -> Self:
        """Return the statistics of both sets of images together."""
        gram, cross = self.gram + other.gram, self.cross + other.cross
        return replace(self, gram=gram, cross=cross, squares=self.squares + other.squares)

    def scaled(self, factor: float) -> Self:
        """Return the statistics with every image counted ``factor`` times.

        Parameters
        ----------
        factor : float
            Weight of the images, at least zero; 1 changes nothing.

        Returns
        -------
        SpectralStatistics
            The scaled statistics, an object of the same class.
        """
        return replace(self, gram=factor * self.gram, cross=factor * self.cross, squares=factor * self.squares)


class DictionaryProblem(Protocol):
    """Minimise a convex quadratic in (one part of) the dictionary over a convex set of atoms.

    :class:`tubal.solvers.ProjectedGradient` solves every problem with these four members.
    """

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant of the gradient."""

    def value(self, dictionary: Array) -> float:
        """Return the objective.

        Parameters
        ----------
        dictionary : array
            One part of the dictionary.

        Returns
        -------
        float
            ``1/2 ||X - map(B)||²``, computed from the statistics alone.
        """

    def gradient(self, dictionary: Array) -> Array:
        """Return the gradient of the objective.

        Parameters
        ----------
        dictionary : array
            Where to take it.

        Returns
        -------
        array of the shape of dictionary
            The gradient, in double precision.
        """

    def project(self, dictionary: Array) -> Array:
        """Return the nearest dictionary that satisfies the constraints.

        Parameters
        ----------
        dictionary : array
            Any array of this shape; its atoms may be too long.

        Returns
        -------
        array of the shape of dictionary
            Every atom lies in the unit ball.
        """


# --- coding problems --------------------------------------------------------------------------------------------------
class CodingProblem(ABC):
    """A convex quadratic f in the codes plus an l1 penalty, for a batch of images: what a code solver minimises.

    The abstract members describe f. The two iterations, :meth:`split` and :meth:`accelerate`, follow from them; a
    problem may override these with faster code that makes the same steps. Codes are arrays with samples on the last
    axis. To write a problem for a linear map from codes to images, subclass :class:`tubal.problems.LinearMapCoding`.

    Attributes
    ----------
    sparsity : float
        Weight of the l1 penalty (the paper's β).
    independent : bool
        Whether no term couples two images of the batch.
    """

    sparsity: float
    independent: bool

    @property
    @abstractmethod
    def codes_shape(self) -> tuple[int, ...]:
        """Shape of the codes, samples last."""

    @property
    @abstractmethod
    def linear(self) -> Array:
        """Minus the gradient of f at zero."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """Lipschitz constant of the gradient of f."""

    @abstractmethod
    def hessian_product(self, codes: Array) -> Array:
        """Return the Hessian of f applied to codes.

        Parameters
        ----------
        codes : array of shape codes_shape
            Any codes.

        Returns
        -------
        array of shape codes_shape
            The product.
        """

    @abstractmethod
    def solve_shifted(self, right: Array, penalty: float) -> Array:
        """Solve ``(Hessian of f + penalty) codes = right``.

        Parameters
        ----------
        right : array of shape codes_shape
            Right-hand side.
        penalty : float
            Positive shift; ADMM passes its penalty.

        Returns
        -------
        array of shape codes_shape
            The solution.
        """

    @abstractmethod
    def reconstruct(self, codes: Array) -> Array:
        """Return the images that codes describe.

        Parameters
        ----------
        codes : array of shape codes_shape
            The coefficient of every atom at every position, for each image.

        Returns
        -------
        array of the shape of the data
            The images, samples last.
        """

    @abstractmethod
    def summary(self, codes: Array, *, statistics: bool = False) -> Summary:
        """Return the terms of the objective for each image.

        Parameters
        ----------
        codes : array of shape codes_shape
            Any codes.
        statistics : bool, default=False
            Also compute the statistics of the first dictionary step.

        Returns
        -------
        Summary
            The terms and, if asked for, the statistics.
        """

    @abstractmethod
    def zeros(self) -> Array:
        """Return codes that are all zero.

        Returns
        -------
        array of shape codes_shape
            Zeros of the type and device of the data.
        """

    def value(self, codes: Array) -> float:
        """Return the objective (eq. 8 with fixed atoms).

        Parameters
        ----------
        codes : array of shape codes_shape
            Where to evaluate it.

        Returns
        -------
        float
            The sum over all images.
        """
        return float(self.summary(codes).values.sum())

    @property
    def value_of_zeros(self) -> float:
        """The objective of codes that are all zero."""
        return self.value(self.zeros())

    def gradient(self, codes: Array) -> Array:
        """Return the gradient of f (eq. 13).

        Parameters
        ----------
        codes : array of shape codes_shape
            Where to differentiate; the penalty is left out.

        Returns
        -------
        array of shape codes_shape
            The gradient.
        """
        return self.hessian_product(codes) - self.linear

    def duality_gap(self, codes: Array, *, wanted: float | None = None, summary: Summary | None = None) -> DualityGap:
        """Return a bound on how far codes are from the minimum.

        The quadratic is half the squared norm of a residual r, and its gradient g is linear in r. A multiple ``s r``
        whose gradient stays within ``[-sparsity, sparsity]`` is feasible for the dual problem, so its dual value lies
        below the minimum. The best s is chosen for every image or, with a graph, for every connected component.

        A component has many slopes, and the steepest sets s for all. So with a graph the bound can be far too large
        for good codes. If ``wanted`` is given, residuals of nearby points with smaller slopes are tried too.

        Parameters
        ----------
        codes : array of shape codes_shape
            Those to be judged, for example the result of a solver.
        wanted : float, optional
            The relative bound of connected images that is small enough. Other residuals are tried until it is reached.
        summary : Summary, optional
            The terms of the objective at these codes, if they are known.

        Returns
        -------
        DualityGap
            The bound, for each image.
        """
        terms, group = self._gap_terms(codes, summary), self._components()
        values, dual = terms.smooth + self.sparsity * terms.absolutes, self._dual_values(terms, group)
        found = DualityGap(values - dual, values)
        if wanted is None or self.independent or self.sparsity == 0.0 or found.relative <= wanted:
            return found
        return self._corrected_gap(codes, found, wanted)

    def _dual_values(self, terms: GapTerms, group: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return each image's part of the dual value at the best multiple of a residual, given the terms of its point.

        Images with the same number in ``group`` share the multiple.
        """
        slope = np.bincount(group, 2.0 * terms.smooth - terms.products)
        curvature = np.bincount(group, 2.0 * terms.smooth)
        steepest = np.zeros(len(slope))
        np.maximum.at(steepest, group, terms.largest)
        tiny = np.finfo(np.float64).tiny
        with np.errstate(over="ignore"):  # blank images have no limit
            limit = self.sparsity / np.maximum(steepest, tiny)
        best = np.clip(slope / np.maximum(curvature, tiny), -limit, limit)[group]
        return np.asarray(best * (2.0 * terms.smooth - terms.products) - best**2 * terms.smooth)

    def _corrected_gap(self, codes: Array, found: DualityGap, wanted: float) -> DualityGap:
        """Return the bound with the best dual points of the codes and of points whose slopes violate the bounds less.

        At the minimum the slope of a code is minus the sparsity times its sign, and those of zeros lie between the
        bounds. A point is moved so that its slopes come close to these, and then to those clipped to the bounds.
        """
        xp, group, point = namespace(codes), self._components(), codes
        gradient, dual = self.gradient(codes), found.values - found.gaps
        target = xp.where(codes == 0, clip_to(gradient, self.sparsity), -self.sparsity * xp.sign(codes))
        for in_reach in NEXT_CORRECTION:
            point = point - self._nearly_solve_shifted(gradient - target, DUAL_SHIFT * self.lipschitz)
            other = self._dual_values(self._gap_terms(point), group)
            is_better = np.bincount(group, other) > np.bincount(group, dual)
            dual = np.where(is_better[group], other, dual)
            found = DualityGap(found.values - dual, found.values)
            if not wanted < found.relative <= in_reach * wanted:
                break
            gradient = self.gradient(point)
            target = clip_to(gradient, self.sparsity)
        return found

    def _nearly_solve_shifted(self, right: Array, shift: float) -> Array:
        """Do the same as :meth:`solve_shifted` to about two digits, where that is faster."""
        return self.solve_shifted(right, shift)

    def _gap_terms(self, codes: Array, summary: Summary | None = None) -> GapTerms:
        """Return what the duality gap needs of every image."""
        summary, gradient = summary or self.summary(codes), self.gradient(codes)
        axes, xp = tuple(range(codes.ndim - 1)), namespace(codes)

        def measure(start: int, stop: int) -> tuple[Array, Array]:
            slope = gradient[..., start:stop]
            product = xp.sum(slope * codes[..., start:stop], axes, dtype=xp.float64)
            return product, xp.amax(abs(slope), axes)

        if is_torch(codes):
            product, largest = to_numpy_together(*measure(0, codes.shape[-1]))
        else:
            with own_threads() as threads:
                parts = parallel_ranges(measure, codes.shape[-1], grain=_MEASURED_AT_A_TIME, threads=threads)
            product, largest = (np.concatenate(found) for found in zip(*parts, strict=True))
        smooth = summary.values - self.sparsity * summary.absolutes + self._square_completion()
        # Rounding can make the smooth part of a perfectly reconstructed image slightly negative. That of a connected
        # image may be negative, because the energy of an edge is divided between its images unevenly.
        return GapTerms(np.maximum(smooth, 0.0) if self.independent else smooth, summary.absolutes, product, largest)

    def select(self, images: NDArray[np.intp]) -> CodingProblem | None:
        """Return the same problem for some of its images, if no term couples these to the others.

        Solvers use it to drop images that have converged. This class does not know how, and returns None.

        Parameters
        ----------
        images : int array of shape (n_selected,)
            Indices of the images.

        Returns
        -------
        CodingProblem or None
            The smaller problem; None if the problem cannot be split.
        """
        return None

    def few_codes(self, tolerance: float) -> Array | None:
        """Return the codes of images that need few of them, found without iterations on all codes.

        A problem may offer this for speed; this class does not. Callers check the result by its duality gap.

        Parameters
        ----------
        tolerance : float
            By which fraction of the sparsity the gradient may exceed it.

        Returns
        -------
        array of shape codes_shape or None
            The codes; zero for images that need many. None if the problem offers no such method.
        """
        return None

    def _square_completion(self) -> NDArray[np.float64] | float:
        """Return what each image's smooth part lacks to be a sum of squares."""
        return 0.0

    def _components(self) -> NDArray[np.intp]:
        """Return for each image the number of its group; terms of the objective couple images of one group only."""
        n_images = self.codes_shape[-1]
        return np.arange(n_images) if self.independent else np.zeros(n_images, np.intp)

    def prox(self, values: Array, step_size: float) -> Array:
        """Return the prox of the l1 penalty (eq. 12).

        Parameters
        ----------
        values : array of shape codes_shape
            The point after a gradient step.
        step_size : float
            Length of that step.

        Returns
        -------
        array of shape codes_shape
            The new codes.
        """
        return soft_threshold(values, self.sparsity * step_size)

    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Make steps of over-relaxed ADMM, in its Douglas-Rachford form.

        With s the point, u = clip(s) the scaled dual and z = s - u the codes, one step is
        ``x = argmin f(x) + penalty/2 ||x - (z - u)||²`` and ``s <- s + relaxation (x + u - s)``.

        Parameters
        ----------
        state : SplitState
            Where to start. Its point may be changed in place.
        penalty : float
            Weight of the augmented Lagrangian.
        relaxation : float
            Over-relaxation, in (0, 2).
        n_steps : int
            Number of steps.
        tol : float
            Independent images whose last relative change was at most ``tol`` stay as they are.

        Returns
        -------
        SplitState
            The state after the steps.
        """
        bound, point = self.sparsity / penalty, state.point
        for _ in range(n_steps):
            dual = clip_to(point, bound)
            solved = self.solve_shifted(self.linear + penalty * (point - 2.0 * dual), penalty)
            move = solved + dual - point
            before, point = point, point + relaxation * move
        return self._keep_converged(state, SplitState(point, relative_movement(move, before), state.extra), tol)

    def _keep_converged(self, before: SplitState, after: SplitState, tol: float) -> SplitState:
        """Undo the steps of images that had converged, so that an image's codes do not depend on its batch."""
        if not self.independent or before.movement is None:
            return after
        xp, converged = namespace(after.point), before.movement <= tol
        point = xp.where(converged, before.point, after.point)
        return SplitState(point, xp.where(converged, before.movement, after.movement), after.extra)

    def plain_state(self, state: SplitState, *, final: bool = False) -> SplitState:
        """Return the state with its point as one array and without the data kept for speed.

        Parameters
        ----------
        state : SplitState
            Any state that :meth:`split` returned.
        final : bool, default=False
            The given state will not be passed to :meth:`split` again, so its buffers may be freed.

        Returns
        -------
        SplitState
            Point and movement only.
        """
        return SplitState(state.point, state.movement)

    def accelerate(self, state: MomentumState, *, step_size: float, n_steps: int) -> MomentumState:
        """Make steps of Algorithm 1 with a fixed step size and adaptive restart.

        Parameters
        ----------
        state : MomentumState
            Where to start. Its arrays may be changed in place.
        step_size : float
            Length of a gradient step, at most ``1 / lipschitz``.
        n_steps : int
            Number of steps.

        Returns
        -------
        MomentumState
            The state after the steps.
        """
        xp = namespace(state.codes)
        for _ in range(n_steps):
            momentum_point = xp.where(state.restart > 0, state.codes, state.momentum_point)
            inertia = xp.where(state.restart > 0, 1.0, state.inertia)
            gradient = self.gradient(momentum_point)
            codes = self.prox(momentum_point - step_size * gradient, step_size)
            against = ((momentum_point - codes) * (codes - state.codes)).sum(tuple(range(codes.ndim - 1)))
            if not self.independent:
                against = xp.zeros_like(against) + against.sum()
            after = 0.5 * (1.0 + xp.sqrt(1.0 + 4.0 * inertia**2))
            push = (inertia - 1.0) / after
            state = MomentumState(codes, codes + push * (codes - state.codes), after, against)
        return state


def relative_movement(move: Array, point: Array) -> Array:
    """Return ``||move|| / ||point||`` for each image (last axis): 0 if nothing moved, infinity if the point is zero."""
    xp = namespace(move)
    axes = tuple(range(move.ndim - 1))
    moved, size = xp.sqrt((move**2).sum(axes)), xp.sqrt((point**2).sum(axes))
    from_zero = xp.where(moved > 0, 0.0 * moved + float("inf"), 0.0 * moved)
    return xp.where(size > 0, moved / xp.where(size > 0, size, 1.0 + 0.0 * size), from_zero)


def movement_from_squares(moved: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the same as :func:`relative_movement` from the squared norms (image,) that compiled kernels sum up."""
    return np.sqrt(moved) / np.sqrt(np.maximum(size, np.finfo(np.float64).tiny))


# --- models -----------------------------------------------------------------------------------------------------------
class ImageModel(ABC):
    """A linear map from codes to images, with the methods that learning calls.

    Learning alternates between the coding problem and the dictionary problem of a model. It does not look into the
    dictionary: this may be one array, or several parts that are updated in turn.

    Attributes
    ----------
    n_dictionary_steps : int
        Number of parts of the dictionary. Each part is updated from its own statistics.
    """

    n_dictionary_steps = 1

    @abstractmethod
    def coding(
        self,
        dictionary: Dictionary,
        data: Array,
        *,
        sparsity: float,
        graph_weight: float = 0.0,
        laplacian: Laplacian | None = None,
        neighbor_sum: Array | None = None,
    ) -> CodingProblem:
        """Return the coding problem of some images.

        Parameters
        ----------
        dictionary : array or tuple of arrays
            The current dictionary.
        data : array of shape (..., n_images)
            The images as the layout of the model arranges them, samples last.
        sparsity : float
            Weight of the l1 penalty.
        graph_weight : float, default=0.0
            Weight of the graph term.
        laplacian : matrix of shape (n_images, n_images), optional
            Graph Laplacian of these images.
        neighbor_sum : array of the shape of the codes, optional
            Weighted sum of the fixed codes of neighbours that are not among these images.

        Returns
        -------
        CodingProblem
            The problem.
        """

    @abstractmethod
    def dictionary_problem(self, statistics: ModelStatistics, dictionary: Dictionary, step: int) -> DictionaryProblem:
        """Return the problem of one part of the dictionary.

        Parameters
        ----------
        statistics : Statistics
            Statistics of all images for this part.
        dictionary : array or tuple of arrays
            The current dictionary.
        step : int
            Which part, from 0 to ``n_dictionary_steps - 1``.

        Returns
        -------
        DictionaryProblem
            The problem.
        """

    @abstractmethod
    def statistics(self, dictionary: Dictionary, data: Array, codes: Array, step: int) -> ModelStatistics:
        """Return the statistics of one part of the dictionary at fixed codes.

        Learning calls it for the parts after the first one, with the newest dictionary.

        Parameters
        ----------
        dictionary : array or tuple of arrays
            The current dictionary.
        data : array of shape (..., n_images)
            Some of the images.
        codes : array of shape (..., n_images)
            Their codes.
        step : int
            Which part.

        Returns
        -------
        Statistics
            The statistics of these images.
        """

    def part(self, dictionary: Dictionary, step: int) -> Array:
        """Return one part of the dictionary.

        Parameters
        ----------
        dictionary : array or tuple of arrays
            The current dictionary.
        step : int
            Which part.

        Returns
        -------
        array
            The part, as :meth:`dictionary_problem` takes it.
        """
        return dictionary

    def with_part(self, dictionary: Dictionary, step: int, part: Array) -> Dictionary:
        """Return the dictionary with one part replaced.

        Parameters
        ----------
        dictionary : array or tuple of arrays
            The current dictionary, which stays as it is.
        step : int
            Which part to replace, counted from zero.
        part : array
            The new part.

        Returns
        -------
        array or tuple of arrays
            The new dictionary.
        """
        return part

    @abstractmethod
    def replace_atoms(self, dictionary: Dictionary, unused: NDArray[np.bool_], images: Array) -> Dictionary:
        """Return the dictionary with unused atoms replaced.

        Parameters
        ----------
        dictionary : array or tuple of arrays
            The current dictionary.
        unused : bool array of shape (n_atoms,)
            Which atoms to replace; all parts of the dictionary one after the other.
        images : array of shape (..., n_unused)
            Badly reconstructed images, samples last, one for each unused atom.

        Returns
        -------
        array or tuple of arrays
            The new dictionary; its atoms lie in the unit ball.
        """
