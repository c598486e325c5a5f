"""Code solvers: all but the printed one reach the same minimum, which satisfies the KKT conditions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from helpers import oracles
from tubal.backends.arrays import to_numpy
from tubal.problems.base import MomentumState, SplitState
from tubal.problems.tubal import TubalCoding
from tubal.solvers import Admm, Fista, PrintedIstt, iterate

HEIGHT, ATOMS, SAMPLES, SPARSITY = 5, 7, 8, 0.05
SOLVERS = {
    "admm": Admm(max_iter=3000, tol=1e-8),
    "admm-plain": Admm(max_iter=3000, tol=1e-8, penalty=0.5, relaxation=1.0),
    "fista": Fista(max_iter=20000, tol=1e-9),
}
tube_lengths = pytest.mark.parametrize("tube_length", oracles.TUBE_LENGTHS)
graphs = pytest.mark.parametrize("graph_weight", [0.0, 1.0, 10.0])


def draw(rng, tube_length, *, samples=SAMPLES, backend=np.ascontiguousarray, dtype="float64"):
    dictionary = oracles.unit_atoms(rng, HEIGHT, ATOMS, tube_length)
    data = rng.normal(size=(HEIGHT, samples, tube_length))
    data /= np.sqrt((data**2).sum((0, 2), keepdims=True))
    inner = [backend(oracles.tube_first(part).astype(dtype)) for part in (dictionary, data)]
    return dictionary, data, inner


def solve(solver, problem, start=None):
    solution = solver.minimise(problem, start)
    return solver.codes(problem, solution.state), solution


@tube_lengths
@graphs
@pytest.mark.parametrize("name", ["admm", "fista"])
def test_minimum_satisfies_the_kkt_conditions(rng, backend, tube_length, graph_weight, name):
    dictionary, data, inner = draw(rng, tube_length, backend=backend)
    laplacian = oracles.path_laplacian(SAMPLES, rng)
    problem = TubalCoding(*inner, sparsity=SPARSITY, graph_weight=graph_weight, laplacian=laplacian)
    codes, solution = solve(SOLVERS[name], problem)
    assert solution.converged
    outer = oracles.tube_last(to_numpy(codes))
    gradient = oracles.coding_gradient(dictionary, data, outer, graph_weight, laplacian if graph_weight else None)
    # The bound in the docstring of Admm; compiled graph solves may double it.
    size = np.sqrt((outer**2).sum((0, 2)).max()) + SPARSITY
    bound = 2.0 * (problem.lipschitz + 1.0) * SOLVERS[name].tol * size * tube_length**0.5
    assert oracles.kkt_residual(gradient, oracles.stacked(outer), SPARSITY) < bound


@tube_lengths
@graphs
def test_solvers_reach_the_same_objective(rng, tube_length, graph_weight):
    _, _, inner = draw(rng, tube_length)
    laplacian = oracles.path_laplacian(SAMPLES, rng)
    problem = TubalCoding(*inner, sparsity=SPARSITY, graph_weight=graph_weight, laplacian=laplacian)
    values = [problem.value(solve(solver, problem)[0]) for solver in SOLVERS.values()]
    assert_allclose(values, min(values), rtol=1e-7)
    printed = problem.value(solve(PrintedIstt(max_iter=3000), problem)[0])
    assert printed >= min(values) * (1.0 - 1e-8)


@pytest.mark.parametrize("name", SOLVERS)
def test_codes_do_not_depend_on_the_batch(rng, backend, name):
    """Images that have converged stay as they are while others continue."""
    _, _, (dictionary, data) = draw(rng, 6, samples=70, backend=backend)
    data[:, :, 3] = data[:, :, 3] * 100.0  # converges slowly
    loose = {"admm": Admm(max_iter=2000, tol=1e-4), "fista": Fista(max_iter=20000, tol=1e-9)}.get(
        name, Admm(max_iter=2000, tol=1e-4, relaxation=1.0)
    )
    together, _ = solve(loose, TubalCoding(dictionary, data, sparsity=SPARSITY))
    for image in (0, 3, 33, 69):
        alone = TubalCoding(dictionary, data[:, :, [image]], sparsity=SPARSITY)
        codes, _ = solve(loose, alone)
        assert_allclose(
            to_numpy(codes)[:, :, 0], to_numpy(together)[:, :, image], atol=1e-10 if name != "fista" else 1e-6
        )


def test_codes_with_fixed_neighbours_do_not_depend_on_the_batch(rng):
    _, _, (dictionary, data) = draw(rng, 6, samples=40)
    degrees, neighbor_sum = rng.uniform(1.0, 3.0, 40), rng.normal(size=(6, ATOMS, 40)) * 0.1
    data[:, :, 3] *= 100.0

    def codes_of(part):
        problem = TubalCoding(
            dictionary, np.ascontiguousarray(data[:, :, part]), sparsity=SPARSITY, graph_weight=1.0,
            laplacian=np.diag(degrees[part]), neighbor_sum=np.ascontiguousarray(neighbor_sum[:, :, part]),
        )  # fmt: skip
        return solve(Admm(max_iter=2000, tol=1e-4), problem)[0]

    together = codes_of(np.arange(40))
    for image in (0, 3, 33):
        assert_allclose(codes_of(np.array([image]))[:, :, 0], together[:, :, image], atol=1e-10)


@graphs
def test_admm_stops_at_the_tolerance(rng, backend, graph_weight):
    _, _, (dictionary, data) = draw(rng, 6, samples=60, backend=backend)
    data[:, :, 3] = data[:, :, 3] * 100.0  # converges slowly
    laplacian = oracles.path_laplacian(60, rng)
    problem = TubalCoding(dictionary, data, sparsity=SPARSITY, graph_weight=graph_weight, laplacian=laplacian)
    solver = Admm(max_iter=2000, tol=1e-3, check_every=1)
    solution = solver.minimise(problem)
    movement = to_numpy(solution.state.movement)
    before = to_numpy(Admm(max_iter=solution.n_iter - 1, tol=0.0).minimise(problem).state.movement)

    def overall(values):
        return np.sqrt(np.mean(values**2)) if graph_weight else values.max()

    assert solution.converged
    assert overall(movement) <= 1e-3 < overall(before)


@graphs
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_admm_ends_when_only_rounding_errors_are_left(rng, graph_weight, dtype):
    _, _, inner = draw(rng, 6, dtype=dtype)
    laplacian = oracles.path_laplacian(SAMPLES, rng)
    problem = TubalCoding(*inner, sparsity=SPARSITY, graph_weight=graph_weight, laplacian=laplacian)
    solution = Admm(max_iter=100_000, tol=0.0).minimise(problem)
    assert solution.n_iter < 20_000
    assert solution.converged


@pytest.mark.parametrize("solver", [Admm(max_iter=30, tol=0.0), Fista(max_iter=30, tol=0.0), PrintedIstt(max_iter=30)])
def test_start_is_not_changed(rng, backend, solver):
    _, _, inner = draw(rng, 5, backend=backend)
    problem = TubalCoding(*inner, sparsity=SPARSITY)
    first = solver.minimise(problem)
    codes = solver.codes(problem, first.state)
    kept = to_numpy(codes).copy()
    value = problem.value(codes)
    solver.minimise(problem, first.state)
    assert_array_equal(to_numpy(codes), kept)
    assert problem.value(codes) == value


@pytest.mark.parametrize("solver", [Admm(max_iter=3000, tol=1e-10), Fista(max_iter=10000, tol=1e-9)])
@pytest.mark.parametrize("graph_weight", [0.0, 1.0])
def test_warm_start_at_the_minimum_stays_there(rng, solver, graph_weight):
    _, _, inner = draw(rng, 6)
    laplacian = oracles.path_laplacian(SAMPLES, rng)
    problem = TubalCoding(*inner, sparsity=SPARSITY, graph_weight=graph_weight, laplacian=laplacian)
    codes, solution = solve(solver, problem)
    from_codes, again = solve(solver, problem, codes.copy())
    assert again.n_iter <= solution.n_iter // 2
    assert_allclose(from_codes, codes, atol=1e-6)
    from_state, once_more = solve(solver, problem, solution.state)
    assert once_more.n_iter <= 2 * solver.check_every
    assert_allclose(from_state, codes, atol=1e-6)


def test_lift_keeps_the_support_of_the_codes(rng):
    _, _, inner = draw(rng, 6)
    problem = TubalCoding(*inner, sparsity=SPARSITY)
    codes = rng.normal(size=problem.codes_shape) * (rng.random(problem.codes_shape) < 0.3)
    solver = Admm()
    lifted = solver.codes(problem, SplitState(solver.lift(problem, codes)))
    support = codes != 0
    assert_allclose(np.abs(lifted[support] - codes[support]).max(), 0.0, atol=2 * SPARSITY + 1e-12)
    assert_allclose(lifted[~support], 0.0, atol=1e-12)


@pytest.mark.parametrize("solver", [Admm(max_iter=4000, tol=1e-12), Fista(max_iter=60000, tol=1e-12)])
def test_zero_sparsity_is_least_squares(rng, solver):
    dictionary, data, _ = draw(rng, 5)
    few = dictionary[:, :3]  # fewer unknowns than pixels: unique
    problem = TubalCoding(oracles.tube_first(few), oracles.tube_first(data), sparsity=0.0)
    codes, _ = solve(solver, problem)
    expected = np.linalg.lstsq(oracles.block_circulant(few), oracles.stacked(data), rcond=None)[0]
    assert_allclose(oracles.stacked(oracles.tube_last(codes)), expected, atol=1e-6)


@pytest.mark.parametrize("solver", [Admm(), Fista(), PrintedIstt()])
@pytest.mark.parametrize("graph_weight", [0.0, 1.0])
def test_large_sparsity_and_blank_images_give_zero_codes(rng, backend, solver, graph_weight):
    _, _, inner = draw(rng, 5, backend=backend)
    laplacian = oracles.path_laplacian(SAMPLES, rng)
    for sparsity, scale in ((10.0, 1.0), (SPARSITY, 0.0)):
        problem = TubalCoding(
            inner[0], inner[1] * scale, sparsity=sparsity, graph_weight=graph_weight, laplacian=laplacian
        )
        codes, solution = solve(solver, problem)
        assert_array_equal(to_numpy(codes), 0.0)
        assert solution.converged or isinstance(solver, PrintedIstt)


@pytest.mark.parametrize("solver", [Admm(max_iter=40, tol=0.0), Fista(max_iter=40, tol=0.0)])
@graphs
def test_single_precision_agrees_with_double_precision(rng, backend, solver, graph_weight):
    dictionary, data, _ = draw(rng, 6)
    laplacian = oracles.path_laplacian(SAMPLES, rng)
    found = []
    for dtype in ("float32", "float64"):
        inner = [backend(oracles.tube_first(part).astype(dtype)) for part in (dictionary, data)]
        problem = TubalCoding(*inner, sparsity=SPARSITY, graph_weight=graph_weight, laplacian=laplacian)
        codes, _ = solve(solver, problem)
        assert codes.dtype == inner[0].dtype
        found.append(problem.value(codes))
    assert_allclose(found[0], found[1], rtol=1e-4)


def test_admm_needs_fewer_iterations_than_algorithm_1(rng):
    _, _, inner = draw(rng, 6)
    problem = TubalCoding(*inner, sparsity=0.005)
    best = problem.value(solve(Admm(max_iter=20000, tol=1e-12), problem)[0])
    short = problem.value(solve(Admm(max_iter=60, tol=0.0), problem)[0]) - best
    long = problem.value(solve(Fista(max_iter=60, tol=0.0), problem)[0]) - best
    assert short < long


def test_iterate_stops_and_returns_its_state():
    seen = []
    solution = iterate(
        lambda state, burst: state + burst, 0, stop=lambda state: state >= 7, max_iter=100, check_every=3,
        monitor=lambda n_iter, state: seen.append((n_iter, state)),
    )  # fmt: skip
    assert (solution.state, solution.n_iter, solution.converged) == (9, 9, True)
    assert seen == [(3, 3), (6, 6), (9, 9)]
    solution = iterate(lambda state, burst: state + burst, 0, stop=lambda state: False, max_iter=7, check_every=3)
    assert (solution.state, solution.n_iter, solution.converged) == (7, 7, False)


@pytest.mark.parametrize("solver", [Admm(max_iter=25), Fista(max_iter=25), PrintedIstt(max_iter=25)])
def test_monitor_is_called_after_every_burst(rng, solver):
    _, _, inner = draw(rng, 5)
    seen = []
    solver.minimise(
        TubalCoding(*inner, sparsity=1e-4), monitor=lambda n_iter, state: seen.append((n_iter, type(state)))
    )
    kind = SplitState if isinstance(solver, Admm) else MomentumState
    assert seen == [(10, kind), (20, kind), (25, kind)]
