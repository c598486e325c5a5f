"""Solvers of the coding step: Admm and Fista, and Algorithm 1 as the paper prints it.

ADMM makes an exact quadratic solve, shrinkage and over-relaxation (derived in docs/theory.md). Algorithm 1 (ISTT) is
iterative shrinkage with extrapolation; ``Fista`` gives it the right constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, as_like, machine_epsilon, namespace
from tubal.problems.base import CodingProblem, MomentumState, SplitState, clip_to, relative_movement, soft_threshold
from tubal.solvers.base import MOST_STEPS, CodeSolver, Monitor, Solution, check_integer, check_number, ignore, iterate

# A certified run starts with the penalty as given. Codes that are not certified after this many steps continue with
# these multiples of it, in turn: which penalty is fast depends on the images, and no choice of one suits all. Every
# phase is longer than the one before, so that the run converges whichever penalty is the right one.
FIRST_PHASE, PENALTY_FACTORS, PHASE_GROWTH = 100, (1.0, 1.0 / 3.0, 3.0), 1.25
# The gap costs about as much as three steps, so later phases check it less often.
CHECKS_PER_PHASE = 10
# Certified images are dropped from a batch when at most this share of it is left; each time costs a copy.
KEPT_SHARE = 0.75
# With a graph, codes count as certified at this share of the wanted gap: rounding changes the bound when it is computed
# again from the final codes.
CONNECTED_SHARE = 0.9
# Slopes that exceed the sparsity by this share of the wanted gap leave the gap itself well below it.
FEW_CODES_TOLERANCE = 0.5
# Changes that have not fallen by a tenth in so many checks no longer fall.
CHECKS_WITHOUT_PROGRESS = 30
# If all atoms are zero there is no curvature, and any step size will do.
MIN_LIPSCHITZ = 1e-12


# --- ADMM -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Admm(CodeSolver):
    """Alternating direction method of multipliers, in its form with one array (Douglas-Rachford).

    Parameters
    ----------
    max_iter : int, default=50
        Maximum number of steps.
    tol : float, default=1e-4
        Stop when the point of every image changes by less than this fraction of its norm in one step. The change equals
        the distance from the codes to the exact minimiser of the quadratic, so the KKT residual of an image is below
        ``(lipschitz + penalty) · tol · ||point||``. Images connected by a graph are one problem: there the root mean
        square of the fractions counts, and single ones may be larger. Whatever ``tol`` is, the run also ends when
        only rounding errors change the point.
    penalty : float, default=1.0
        Weight of the augmented Lagrangian, above 0. Atoms lie in the unit ball, which fixes the scale of the quadratic,
        so the default suits all data.
    relaxation : float, default=1.8
        Over-relaxation, above 0 and below 2.
    check_every : int, default=10
        Number of steps between two checks of the stopping rule.
    gap : float, optional
        Stop when the duality gap proves that the codes of every image, or of all images of a graph together, exceed the
        minimum by at most this fraction of the objective. ``tol`` is then not used, and ``penalty`` is the first one:
        codes that are not certified soon continue with others, in a sequence that does not depend on the images. At
        sparsity 0 there is no such proof, and ``tol`` is used.

    Examples
    --------
    >>> Admm(max_iter=100, tol=1e-6).penalty
    1.0
    """

    max_iter: int = 50
    tol: float = 1e-4
    penalty: float = 1.0
    relaxation: float = 1.8
    check_every: int = 10
    gap: float | None = None

    def __post_init__(self) -> None:
        check_integer("max_iter", self.max_iter, most=MOST_STEPS)
        check_number("tol", self.tol, least=0.0)
        check_number("penalty", self.penalty, above=0.0)
        check_number("relaxation", self.relaxation, above=0.0, below=2.0)
        check_integer("check_every", self.check_every)
        if self.gap is not None:
            check_number("gap", self.gap, above=0.0)

    def minimise(
        self, problem: CodingProblem, start: SplitState | Array | None = None, monitor: Monitor = ignore
    ) -> Solution[SplitState]:
        if start is None:
            state = SplitState(problem.zeros())
        elif isinstance(start, SplitState):
            state = SplitState(start.point)
        else:
            state = SplitState(self.lift(problem, start))
        if self.gap is not None and problem.sparsity > 0.0:
            return self._minimise_certified(problem, state, monitor, self.gap, from_zero=start is None)
        # Copied, so that a solution can compute `converged` after the problem is deleted.
        independent, rounding = problem.independent, _Rounding(state.point)

        def advance(now: SplitState, n_steps: int) -> SplitState:
            return problem.split(now, penalty=self.penalty, relaxation=self.relaxation, n_steps=n_steps, tol=self.tol)

        def stop(now: SplitState) -> bool:
            if now.movement is None:
                return False
            movement = float(_overall_movement(now.movement, independent))
            return movement <= self.tol or rounding.explains(movement)

        solution = iterate(
            advance,
            state,
            stop=stop,
            max_iter=self.max_iter,
            check_every=self.check_every,
            monitor=monitor,
        )
        # What the problem kept for speed is of no use to the next problem, which has other atoms.
        final = problem.plain_state(solution.state, final=True)
        return Solution(final, solution.n_iter, lambda: stop(final))

    def _minimise_certified(
        self, problem: CodingProblem, state: SplitState, monitor: Monitor, gap: float, *, from_zero: bool
    ) -> Solution[SplitState]:
        """Make steps in phases of different penalties until the gap certifies all codes.

        Images that need few codes are solved directly first. Images that are certified stay as they are, so the codes
        of an image do not depend on its batch.
        """
        run, n_iter = _CertifiedRun(problem, self, gap), 0
        if from_zero:
            state = run.code_few(state)
        for penalty, length in _phases(self.penalty, self.max_iter):
            if run.is_certified(state):
                break
            state = run.begin_phase(state, penalty)
            before = n_iter

            def report(n_steps: int, now: SplitState, before: int = before) -> None:
                if monitor is not ignore:
                    monitor(before + n_steps, run.as_given(now))

            solution = iterate(
                run.advance,
                state,
                stop=run.is_certified,
                max_iter=length,
                check_every=max(self.check_every, length // CHECKS_PER_PHASE),
                monitor=report,
            )
            state, n_iter = solution.state, n_iter + solution.n_iter
        final = run.as_given(state)
        run.problem.plain_state(state, final=True)  # frees what the problem kept for speed
        return Solution(final, n_iter, run.is_certified(final))

    def codes(self, problem: CodingProblem, state: SplitState) -> Array:
        return soft_threshold(problem.plain_state(state).point, problem.sparsity / self.penalty)

    def lift(self, problem: CodingProblem, codes: Array) -> Array:
        """Return a point for given codes, with the dual that fits the gradient best.

        Parameters
        ----------
        problem : CodingProblem
            The problem to be minimised.
        codes : array of shape problem.codes_shape
            Any codes.

        Returns
        -------
        array of shape problem.codes_shape
            The point of a :class:`tubal.problems.SplitState`.
        """
        dual = clip_to(-problem.gradient(codes) / self.penalty, problem.sparsity / self.penalty)
        return codes + dual


class _Rounding:
    """Tells when only rounding errors still change codes, so that more steps would not help.

    Changes are then tiny and no longer fall. Tiny changes alone prove nothing, because slow progress has them too.
    """

    def __init__(self, codes: Array) -> None:
        self._most = 10.0 * machine_epsilon(codes)
        self._least, self._checks_since = inf, 0

    def explains(self, movement: float) -> bool:
        """Return whether the latest relative change is only rounding; called once for every check."""
        if movement < 0.9 * self._least:
            self._least, self._checks_since = movement, 0
        self._checks_since += 1
        return movement <= self._most and self._checks_since > CHECKS_WITHOUT_PROGRESS


def _overall_movement(movement: Array, independent: bool) -> Array:
    """Return the largest relative change of independent images, the root mean square of connected ones."""
    # Clipped, because the first change of a point at zero is infinite or nearly so, and its square would overflow.
    return movement.max() if independent else (movement.clip(max=1e6) ** 2).mean() ** 0.5


def _phases(penalty: float, max_iter: int) -> Iterator[tuple[float, int]]:
    """Return the penalty and the number of steps of every phase of a certified run, ``max_iter`` steps together."""
    length, turn = FIRST_PHASE, 0
    while max_iter > 0:
        yield penalty * PENALTY_FACTORS[turn % len(PENALTY_FACTORS)], min(length, max_iter)
        max_iter -= length
        length, turn = int(PHASE_GROWTH * length), turn + 1


class _CertifiedRun:
    """A run until codes are certified: the penalty of the phase, and which images are certified.

    Points are in units of a penalty, because the dual they contain is scaled by it. Points of certified images stay in
    the units in which they were certified. A few images usually need far more steps than the others, so the run goes on
    with a smaller problem, ``problem``, when enough images of an independent batch are certified.
    """

    def __init__(self, problem: CodingProblem, solver: Admm, gap: float) -> None:
        self.problem, self.solver, self.gap = problem, solver, gap
        n_images = problem.codes_shape[-1]
        self.penalties = np.full(n_images, solver.penalty)
        self.certified = np.zeros(n_images, np.bool_)
        # Points of all images in units of the solver's penalty, and the images of the smaller problem among them.
        self.all_points: Array | None = None
        self.images = np.arange(n_images)
        self.checks_to_skip = 0  # before the next better dual point of connected images is sought

    def code_few(self, state: SplitState) -> SplitState:
        """Return the state after the images that need few codes have been solved directly."""
        codes = self.problem.few_codes(FEW_CODES_TOLERANCE * self.gap) if self.problem.independent else None
        if codes is None:
            return state
        self.certified = self.problem.duality_gap(codes).by_image <= self.gap
        if not self.certified.any():
            return state
        point = namespace(codes).where(as_like(self.certified, codes) > 0, self.solver.lift(self.problem, codes), 0.0)
        return self._drop_certified(SplitState(point, as_like(np.where(self.certified, 0.0, 1.0), codes)))

    def begin_phase(self, state: SplitState, penalty: float) -> SplitState:
        """Return the state with the points of images that are not certified in units of a new penalty."""
        wanted = np.where(self.certified, self.penalties, penalty)
        if (wanted == self.penalties).all():
            return state
        plain = self.problem.plain_state(state)
        point, self.penalties = self._in_units(plain.point, wanted), wanted
        return SplitState(point, plain.movement)

    def as_given(self, state: SplitState) -> SplitState:
        """Return the state of all images in units of the solver's penalty."""
        plain = self.problem.plain_state(state)
        point = self._in_units(plain.point, np.full_like(self.penalties, self.solver.penalty))
        if self.all_points is None:
            return replace(plain, point=point)
        points, movement = self.all_points.copy(), np.zeros(self.all_points.shape[-1])
        points[..., self.images], movement[self.images] = point, plain.movement
        return SplitState(points, movement)

    def advance(self, state: SplitState, n_steps: int) -> SplitState:
        """Make steps, and see which images they certify; those stay as they are from now on."""
        penalty = float(self.penalties[~self.certified][0])
        after = self.problem.split(state, penalty=penalty, relaxation=self.solver.relaxation, n_steps=n_steps, tol=0.0)
        point = self.problem.plain_state(after).point
        codes = point - self._dual(point, self.penalties)
        if self.problem.independent:
            self.certified |= self.problem.duality_gap(codes).by_image <= self.gap
        else:
            self.certified |= self._are_certified_together(codes)
        after = replace(after, movement=as_like(np.where(self.certified, 0.0, 1.0), after.movement))
        return self._drop_certified(after)

    def _are_certified_together(self, codes: Array) -> bool:
        """Tell whether connected images are certified; a better dual point is sought where it may be enough."""
        enough, seek = CONNECTED_SHARE * self.gap, self.checks_to_skip == 0
        found = self.problem.duality_gap(codes, wanted=enough if seek else None).relative
        # Seeking costs as much as ten steps. Between two checks the bound is seldom halved.
        self.checks_to_skip = int(log2(max(found / enough, 1.0))) if seek else self.checks_to_skip - 1
        return found <= enough

    def is_certified(self, state: SplitState) -> bool:
        """Tell whether all images are certified."""
        return bool(self.certified.all())

    def _drop_certified(self, state: SplitState) -> SplitState:
        """Go on with the images that are not certified, if they are enough fewer; return their state."""
        left = np.flatnonzero(~self.certified)
        if not 0 < len(left) <= KEPT_SHARE * len(self.certified):
            return state
        smaller = self.problem.select(left)
        if smaller is None:
            return state
        point = self.problem.plain_state(state).point
        self.all_points = self.as_given(state).point
        self.problem, self.images = smaller, self.images[left]
        self.penalties, self.certified = self.penalties[left], self.certified[left]
        return SplitState(np.ascontiguousarray(point[..., left]), np.ones(len(left)))

    def _dual(self, point: Array, penalties: NDArray[np.float64]) -> Array:
        """Return the scaled dual of a point, which shrinkage removes."""
        bounds = as_like(self.problem.sparsity / penalties, point)
        return namespace(point).clip(point, -bounds, bounds)

    def _in_units(self, point: Array, penalties: NDArray[np.float64]) -> Array:
        """Return a point with the same codes and dual, in units of other penalties (image,)."""
        if (penalties == self.penalties).all():
            return point
        dual = self._dual(point, self.penalties)
        scaled = dual * as_like(self.penalties / penalties, point)
        # Clipped again, because rounding must not turn codes that are zero into small ones.
        return point - dual + self._dual(scaled, penalties)


# --- Algorithm 1 ------------------------------------------------------------------------------------------------
class _MomentumSolver(CodeSolver):
    """What the two forms of Algorithm 1 share."""

    def codes(self, problem: CodingProblem, state: MomentumState) -> Array:
        return state.codes


@dataclass(frozen=True)
class Fista(_MomentumSolver):
    """Algorithm 1 with the exact Lipschitz constant and adaptive restart.

    Parameters
    ----------
    max_iter : int, default=200
        Maximum number of steps.
    tol : float, default=1e-4
        Stop when a proximal-gradient step of length ``1 / lipschitz`` would change the codes of every image by less
        than this fraction of their norm. 0 makes all ``max_iter`` steps.
    check_every : int, default=10
        Number of steps between two checks of the stopping rule.
    """

    max_iter: int = 200
    tol: float = 1e-4
    check_every: int = 10

    def __post_init__(self) -> None:
        check_integer("max_iter", self.max_iter, most=MOST_STEPS)
        check_number("tol", self.tol, least=0.0)
        check_integer("check_every", self.check_every)

    def minimise(
        self, problem: CodingProblem, start: MomentumState | Array | None = None, monitor: Monitor = ignore
    ) -> Solution[MomentumState]:
        step_size = 1.0 / max(problem.lipschitz, MIN_LIPSCHITZ)
        return iterate(
            lambda now, n_steps: problem.accelerate(now, step_size=step_size, n_steps=n_steps),
            _initial_state(problem, start),
            stop=lambda now: self.tol > 0.0 and prox_residual(problem, now.codes, step_size) <= self.tol,
            max_iter=self.max_iter,
            check_every=self.check_every,
            monitor=monitor,
        )


@dataclass(frozen=True)
class PrintedIstt(_MomentumSolver):
    """Algorithm 1 exactly as printed: with the constant of its line 4, multiplied by ``growth`` in every iteration.

    The step sizes are summable, so the iteration stalls before the minimum. The class exists to demonstrate that, for
    the tubal models only: the paper prints no constant for others.

    Parameters
    ----------
    max_iter : int, default=200
        Number of steps; the printed algorithm has no stopping rule.
    growth : float, default=1.01
        The paper's η, at least 1.
    check_every : int, default=10
        Number of steps between two calls of the monitor.
    """

    max_iter: int = 200
    growth: float = 1.01
    check_every: int = 10

    def __post_init__(self) -> None:
        check_integer("max_iter", self.max_iter, most=MOST_STEPS)
        check_number("growth", self.growth, least=1.0)
        check_integer("check_every", self.check_every)

    def minimise(
        self, problem: CodingProblem, start: MomentumState | Array | None = None, monitor: Monitor = ignore
    ) -> Solution[MomentumState]:
        """Make all steps, starting without momentum.

        Parameters
        ----------
        problem : TubalCoding
            The problem of a batch of images under a tubal dictionary.
        start : MomentumState or array of shape problem.codes_shape, optional
            The state of a former run, or codes; None starts at zero.
        monitor : callable, optional
            ``monitor(n_iter, state)`` is called after every ``check_every`` steps.

        Returns
        -------
        Solution
            The final state; it never counts as converged.
        """
        constant = getattr(problem, "printed_lipschitz", None)
        if constant is None:
            raise TypeError(
                f"PrintedIstt cannot solve a {type(problem).__name__}: the paper prints a constant for tubal "
                "dictionaries (TubSC, GTSC, SparseCoding, GraphSC) only; use Fista() or Admm()"
            )
        n_done = 0

        def advance(state: MomentumState, n_steps: int) -> MomentumState:
            nonlocal n_done
            for _ in range(n_steps):
                n_done += 1
                state = printed_step(problem, state, constant * self.growth**n_done)
            return state

        return iterate(
            advance,
            _initial_state(problem, start.codes if isinstance(start, MomentumState) else start),
            stop=lambda now: False,
            max_iter=self.max_iter,
            check_every=self.check_every,
            monitor=monitor,
        )


def printed_step(problem: CodingProblem, state: MomentumState, constant: float) -> MomentumState:
    """Make one pass of Algorithm 1, lines 4-8."""
    step_size = 1.0 / constant
    gradient = problem.gradient(state.momentum_point)
    codes = problem.prox(state.momentum_point - step_size * gradient, step_size)
    before = float(state.inertia[0])
    inertia = (1.0 + sqrt(1.0 + 4.0 * before**2)) / 2.0
    momentum = (before - 1.0) / inertia
    momentum_point = codes + momentum * (codes - state.codes)
    return MomentumState(codes, momentum_point, state.inertia * 0.0 + inertia, state.restart)


def prox_residual(problem: CodingProblem, codes: Array, step_size: float) -> float:
    """Return the largest relative change, over images, of one proximal-gradient step from ``codes``."""
    moved = problem.prox(codes - step_size * problem.gradient(codes), step_size) - codes
    return float(relative_movement(moved, codes).max())


def _initial_state(problem: CodingProblem, start: MomentumState | Array | None) -> MomentumState:
    """Return a state with its own arrays: steps are made in place, and the caller may still need ``start``."""
    if isinstance(start, MomentumState):
        return MomentumState(
            *(part + 0.0 for part in (start.codes, start.momentum_point, start.inertia, start.restart))
        )
    codes = problem.zeros() if start is None else start
    ones = namespace(codes).ones_like(codes[(0,) * (codes.ndim - 1)])
    return MomentumState(codes + 0.0, codes + 0.0, ones, ones * 0.0)
