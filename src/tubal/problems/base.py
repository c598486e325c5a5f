"""What a coding problem offers a solver, what a model offers the alternation, and the two penalties."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from tubal.backends.arrays import Array, namespace, to_numpy_together


def soft_threshold(values: Array, threshold: float) -> Array:
    """Shrink each value towards zero by ``threshold``, the prox of the l1 norm (eq. 12).

    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0)
    array([-2.,  0.,  1.])
    """
    taken = clip_to(values, threshold)
    return np.subtract(values, taken, out=taken) if isinstance(taken, np.ndarray) else values - taken


def clip_to(values: Array, bound: float) -> Array:
    """Return the part of each value within ``[-bound, bound]``, which shrinkage takes away."""
    return namespace(values).clip(values, -bound, bound)


def project_to_ball(dictionary: Array) -> Array:
    """Scale every atom of norm above one back to the unit ball; ``dictionary`` is (tube, row, atom)."""
    norms = atom_norms(dictionary)
    return dictionary / namespace(dictionary).clip(norms, 1.0, None)


def atom_norms(dictionary: Array) -> Array:
    """Return the Frobenius norm of every atom of a dictionary (tube, row, atom)."""
    xp = namespace(dictionary)
    return xp.sqrt((dictionary**2).sum((0, 1)))


@dataclass
class SplitState:
    """Where the splitting stands: codes are ``point`` shrunk, the scaled dual is what shrinkage took away.

    ``movement`` is each image's last relative change. Between bursts a problem may keep the point in a form
    of its own in ``extra``; :meth:`CodingProblem.settle` brings it back.
    """

    point: Array  # None while the problem keeps it in a form of its own
    movement: np.ndarray | None = None
    extra: Any = None


@dataclass
class MomentumState:
    """Where the accelerated iteration stands; ``inertia`` is the paper's t, one value per image."""

    codes: Array
    momentum_point: Array
    inertia: Array
    restart: Array


@dataclass(frozen=True)
class Summary:
    """Each image's terms at some codes, in double precision, and what the dictionary step needs.

    values : share of this problem's objective; codes outside the batch are fixed.
    shares : share of the whole collection's objective; an edge leaving the batch counts half here.
    residuals : squared reconstruction error; absolutes : l1 norm of the codes.
    """

    values: np.ndarray
    shares: np.ndarray
    residuals: np.ndarray
    absolutes: np.ndarray
    statistics: Any

    @classmethod
    def collect(
        cls, problem: Any, residuals: Array, absolutes: Array, energies: Array, pulls: Array, statistics: Any
    ) -> Summary:
        """Put the terms together: ``residual/2 + sparsity·l1 + graph_weight (energy - 2 pull)``."""
        residual, absolute, energy, pull = (
            np.asarray(term, np.float64) for term in to_numpy_together(residuals, absolutes, energies, pulls)
        )
        weight = problem.graph.weight if problem.graph is not None else 0.0
        alone = 0.5 * residual + problem.sparsity * absolute + weight * energy
        return cls(alone - 2.0 * weight * pull, alone - weight * pull, residual, absolute, statistics)


class CodingProblem(ABC):
    """A quadratic in the codes plus an l1 penalty, for a batch of images."""

    sparsity: float
    independent: bool  # no term ties two images together
    codes_shape: tuple[int, ...]

    @property
    @abstractmethod
    def linear(self) -> Array:
        """Minus the gradient of f at zero: ``Dᵀ x`` plus the pull of neighbours whose codes are fixed."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """The exact Lipschitz constant of the gradient of f."""

    @abstractmethod
    def curvature(self, codes: Array) -> Array:
        """Return the Hessian of f applied to ``codes``."""

    @abstractmethod
    def reconstruct(self, codes: Array) -> Array:
        """Return the images that codes describe, of the data's shape."""

    @abstractmethod
    def summary(self, codes: Array, *, statistics: bool = False) -> Summary:
        """Return each image's terms of the objective and, if asked, what the dictionary step needs."""

    @abstractmethod
    def solve_shifted(self, right: Array, penalty: float) -> Array:
        """Return the solution of (Hessian of f + penalty) codes = right."""

    @abstractmethod
    def zeros(self) -> Array:
        """Return codes of zeros of the right shape, type and device."""

    def value(self, codes: Array) -> float:
        """Return the objective at ``codes`` (eq. 8 for fixed atoms)."""
        return float(self.summary(codes).values.sum())

    def gradient(self, codes: Array) -> Array:
        """Return the gradient of f (eq. 13)."""
        return self.curvature(codes) - self.linear

    def prox(self, values: Array, step_size: float) -> Array:
        """Return the prox of the l1 penalty."""
        return soft_threshold(values, self.sparsity * step_size)

    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Make ``n_steps`` over-relaxed Douglas-Rachford (ADMM) steps; images that moved less than ``tol`` may rest.

        With s the state's point, u = clip(s) the scaled dual and z = s - u the codes, one step is
        ``x = argmin f(x) + penalty/2 ||x - (z - u)||²`` and ``s <- s + relaxation (x + u - s)``.
        """
        bound, point = self.sparsity / penalty, state.point
        for _ in range(n_steps):
            dual = clip_to(point, bound)
            solved = self.solve_shifted(self.linear + penalty * (point - 2.0 * dual), penalty)
            move = solved + dual - point
            before, point = point, point + relaxation * move
        return self.at_rest(state, SplitState(point, relative_movement(move, before), state.extra), tol)

    def at_rest(self, before: SplitState, after: SplitState, tol: float) -> SplitState:
        """Take back the moves of untied images that had come to rest: codes must not depend on the company."""
        if not self.independent or before.movement is None:
            return after
        xp, resting = namespace(after.point), before.movement <= tol
        point, movement = (
            xp.where(resting, old, new) for old, new in ((before.point, after.point), (before.movement, after.movement))
        )
        return SplitState(point, movement, after.extra)

    def settle(self, state: SplitState, *, last: bool = False) -> SplitState:
        """Return the state with its point as one array, without what the problem kept for its own speed.

        The given state makes no more steps when it is the ``last``.
        """
        return SplitState(state.point, state.movement)

    def accelerate(self, state: MomentumState, *, step_size: float, n_steps: int) -> MomentumState:
        """Make ``n_steps`` of Algorithm 1 with restart, at a fixed ``step_size``."""
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
    """Return ``||move|| / ||point||`` per image (last axis): 0 where nothing moved, infinite from zero."""
    xp = namespace(move)
    axes = tuple(range(move.ndim - 1))
    moved, size = xp.sqrt((move**2).sum(axes)), xp.sqrt((point**2).sum(axes))
    from_zero = xp.where(moved > 0, 0.0 * moved + float("inf"), 0.0 * moved)
    return xp.where(size > 0, moved / xp.where(size > 0, size, 1.0 + 0.0 * size), from_zero)


class ImageModel(ABC):
    """A linear map from codes to images: what learning must know to alternate over it.

    A dictionary is whatever the model says it is (one array, or one per mode); learning only hands it on.
    """

    n_dictionary_steps = 1  # how many parts of the dictionary are updated in turn, each from its own statistics

    @abstractmethod
    def coding(self, dictionary: Any, data: Array, **terms: Any) -> CodingProblem:
        """Return the coding problem of ``data``, samples last.

        Terms are sparsity, graph_weight, laplacian and neighbor_sum.
        """

    @abstractmethod
    def dictionary_problem(self, statistics: Any, dictionary: Any, step: int) -> Any:
        """Return the problem of the dictionary's part ``step`` given its statistics."""

    @abstractmethod
    def statistics(self, dictionary: Any, data: Array, codes: Array, step: int) -> Any:
        """Return the statistics for part ``step`` at fixed codes (a further pass, for steps after the first)."""

    def part(self, dictionary: Any, step: int) -> Array:
        """Return part ``step`` of the dictionary."""
        return dictionary

    def with_part(self, dictionary: Any, step: int, part: Array) -> Any:
        """Return the dictionary with part ``step`` replaced."""
        return part

    @abstractmethod
    def replace_atoms(self, dictionary: Any, unused: np.ndarray, images: Array) -> Any:
        """Return the dictionary with ``unused`` atoms replaced by ``images`` (samples last), in the unit ball."""
