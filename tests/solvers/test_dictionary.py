"""The dictionary step: value, gradient and Hessian of the dual, optimality, hard cases, and a second solver."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from helpers import oracles
from tubal.backends.arrays import to_numpy
from tubal.problems.base import atom_norms, project_to_ball
from tubal.problems.linear_map import to_coefficients
from tubal.problems.tubal import TubalDictionary, TubalStatistics
from tubal.solvers import DictionaryState, LagrangeDual, ProjectedGradient
from tubal.solvers.dictionary import Dual

HEIGHT, ATOMS, SAMPLES = 4, 3, 12
tube_lengths = pytest.mark.parametrize("tube_length", oracles.TUBE_LENGTHS)


def make(rng, tube_length, *, scale=1.0, atoms=ATOMS, samples=SAMPLES, backend=np.ascontiguousarray, dtype="float64"):
    """Return the problem of random data and sparse codes, a starting dictionary, and both tensors (paper's order)."""
    data = scale * rng.normal(size=(HEIGHT, samples, tube_length))
    codes = rng.normal(size=(atoms, samples, tube_length)) * (rng.random((atoms, samples, tube_length)) < 0.5)
    hats = [to_coefficients(backend(oracles.tube_first(part).astype(dtype))) for part in (data, codes)]
    start = backend(oracles.tube_first(oracles.unit_atoms(rng, HEIGHT, atoms, tube_length)).astype(dtype))
    return TubalDictionary(TubalStatistics.from_coefficients(*hats)), start, data, codes


def minimise(problem, start, solver=None):
    return (solver or LagrangeDual(tol=1e-12)).minimise(problem, DictionaryState(start))


@tube_lengths
def test_value_and_gradient_equal_dense_algebra(rng, backend, tube_length):
    problem, start, data, codes = make(rng, tube_length, backend=backend)
    atoms = oracles.tube_last(to_numpy(start))
    residual = data - oracles.slow_t_product(atoms, codes)
    assert_allclose(problem.value(start), 0.5 * np.sum(residual**2), rtol=1e-11)
    finite = oracles.finite_gradient(lambda point: problem.value(backend(point)), to_numpy(start))
    assert_allclose(to_numpy(problem.gradient(start)), finite, atol=1e-6)


@tube_lengths
def test_dual_derivatives_equal_finite_differences(rng, tube_length):
    problem, *_ = make(rng, tube_length)
    dual = Dual(problem, ridge=0.0)
    point = rng.uniform(0.5, 2.0, ATOMS)
    gradient = oracles.finite_gradient(lambda multipliers: dual.at(multipliers).value, point)
    assert_allclose(dual.at(point).gradient, gradient, atol=1e-7)
    hessian = oracles.finite_jacobian(lambda multipliers: dual.at(multipliers).gradient, point)
    assert_allclose(dual.at(point).hessian, hessian, atol=1e-7)
    assert np.linalg.eigvalsh(dual.at(point).hessian)[-1] <= 1e-12  # concave


@tube_lengths
def test_initial_multipliers_are_exact_at_the_solution(rng, tube_length):
    """At the best dictionary the stationarity condition gives its multipliers, so Newton is done at once."""
    problem, start, *_ = make(rng, tube_length, scale=10.0)
    best = minimise(problem, start).state
    assert best.multipliers.min() > 0.0
    guess, value = Dual(problem, ridge=0.0).initial(problem.to_spectrum(best.dictionary), None)
    assert_allclose(guess, best.multipliers, rtol=1e-6)
    assert_allclose(value, problem.value(best.dictionary), rtol=1e-12)
    again = LagrangeDual(tol=1e-6).minimise(problem, DictionaryState(best.dictionary))
    assert again.n_iter <= 1


def test_single_precision_atoms_need_fewer_steps(rng):
    problem, start, *_ = make(rng, 6, scale=10.0, dtype="float32")
    short = LagrangeDual(tol=1e-12).minimise(problem, DictionaryState(start))
    full = LagrangeDual(tol=1e-12).minimise(problem, DictionaryState(start.astype("float64")))
    assert short.converged
    assert short.n_iter < full.n_iter
    values = [problem.value(solution.state.dictionary) for solution in (short, full)]
    assert_allclose(values[0], values[1], rtol=1e-6)
    assert_allclose(short.state.dictionary, full.state.dictionary, atol=1e-3)
    assert_allclose(short.state.gain, problem.value(start) - values[0], rtol=1e-6)


@tube_lengths
def test_dual_gradient_is_that_of_the_paper(rng, tube_length):
    """2k times the gradient is the sum over slices of squared column norms, minus k."""
    problem, *_ = make(rng, tube_length)
    dual = Dual(problem, ridge=0.0)
    now = dual.at(np.full(ATOMS, 0.7))
    columns = np.abs(np.fft.fft(np.fft.irfft(now.dictionary_hat, tube_length, axis=0), axis=0)) ** 2
    assert_allclose(2 * tube_length * now.gradient, columns.sum((0, 1)) - tube_length, rtol=1e-9)


@tube_lengths
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_dual_equals_primal(rng, backend, tube_length, scale):
    """No constraint is active for small data, every one for large data, and some for data in between."""
    problem, start, *_ = make(rng, tube_length, scale=scale, backend=backend)
    solution = minimise(problem, start)
    assert solution.converged
    atoms, multipliers = solution.state.dictionary, to_numpy(solution.state.multipliers)
    norms = to_numpy(atom_norms(atoms))
    assert norms.max() <= 1.0 + 1e-12
    assert multipliers.min() >= 0.0
    assert_allclose(multipliers * (1.0 - norms**2), 0.0, atol=1e-8 * max(1.0, multipliers.max()))
    dual = Dual(problem, ridge=0.0)
    assert_allclose(dual.at(solution.state.multipliers).value, problem.value(atoms), rtol=1e-7)
    if scale == 10.0:
        assert norms.min() > 1.0 - 1e-6
    if scale == 0.1:
        assert_array_equal(multipliers, 0.0)


@tube_lengths
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_projected_gradient_agrees_with_the_dual(rng, backend, tube_length, scale):
    problem, start, *_ = make(rng, tube_length, scale=scale, backend=backend)
    dual = minimise(problem, start).state.dictionary
    primal = minimise(problem, start, ProjectedGradient(max_iter=20000, tol=1e-13)).state.dictionary
    assert_allclose(problem.value(primal), problem.value(dual), rtol=1e-9)
    assert_allclose(to_numpy(primal), to_numpy(dual), atol=1e-5)


@pytest.mark.parametrize("tube_length", [1, 5, 6])
def test_unused_atoms_do_not_change(rng, backend, tube_length):
    data, codes = rng.normal(size=(HEIGHT, SAMPLES, tube_length)), rng.normal(size=(5, SAMPLES, tube_length))
    codes[[1, 4]] = 0.0
    hats = [to_coefficients(backend(oracles.tube_first(part))) for part in (data, codes)]
    problem = TubalDictionary(TubalStatistics.from_coefficients(*hats))
    start = backend(oracles.tube_first(oracles.unit_atoms(rng, HEIGHT, 5, tube_length)))
    found = minimise(problem, start).state
    assert_allclose(to_numpy(found.dictionary)[:, :, [1, 4]], to_numpy(start)[:, :, [1, 4]], atol=1e-12)
    assert_array_equal(to_numpy(found.multipliers)[[1, 4]], 0.0)
    used = TubalDictionary(
        TubalStatistics.from_coefficients(hats[0], to_coefficients(backend(oracles.tube_first(codes[[0, 2, 3]]))))
    )
    fewer = minimise(used, backend(to_numpy(start)[:, :, [0, 2, 3]].copy())).state
    assert_allclose(to_numpy(found.dictionary)[:, :, [0, 2, 3]], to_numpy(fewer.dictionary), atol=1e-8)


def test_dictionary_without_used_atoms_does_not_change(rng, backend):
    start = backend(rng.normal(size=(5, HEIGHT, 3)))
    zeros = backend(np.zeros((5, 3, SAMPLES)))
    data = backend(rng.normal(size=(5, HEIGHT, SAMPLES)))
    problem = TubalDictionary(TubalStatistics.from_coefficients(to_coefficients(data), to_coefficients(zeros)))
    for solver in (LagrangeDual(), ProjectedGradient()):
        solution = solver.minimise(problem, DictionaryState(start))
        assert solution.converged
        assert_array_equal(to_numpy(solution.state.dictionary), to_numpy(start))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tube_length", [1, 5, 6])
@pytest.mark.parametrize("case", ["few images", "twin atoms", "nearly unused", "huge", "tiny"])
def test_rank_deficient_slices_give_a_finite_dictionary(rng, backend, tube_length, dtype, case):
    samples = 2 if case == "few images" else SAMPLES
    scale = {"huge": 1e4, "tiny": 1e-4}.get(case, 1.0)
    data = scale * rng.normal(size=(HEIGHT, samples, tube_length))
    codes = scale * rng.normal(size=(6, samples, tube_length))
    if case == "twin atoms":
        codes[1] = codes[0]
    if case == "nearly unused":
        codes[2] *= 1e-9
    hats = [to_coefficients(backend(oracles.tube_first(part).astype(dtype))) for part in (data, codes)]
    problem = TubalDictionary(TubalStatistics.from_coefficients(*hats))
    start = backend(oracles.tube_first(oracles.unit_atoms(rng, HEIGHT, 6, tube_length)).astype(dtype))
    found = LagrangeDual().minimise(problem, DictionaryState(start)).state
    atoms = to_numpy(found.dictionary)
    assert np.isfinite(atoms).all()
    assert atoms.dtype == dtype
    assert to_numpy(atom_norms(found.dictionary)).max() <= 1.0 + 1e-6
    other = ProjectedGradient(max_iter=5000, tol=1e-14).minimise(problem, DictionaryState(start)).state
    floor = (1e-5 if dtype == "float32" else 1e-9) * problem.statistics.squares
    assert problem.value(found.dictionary) <= problem.value(other.dictionary) + floor


def test_computation_is_in_double_precision(rng, backend):
    double, start, *_ = make(np.random.default_rng(1), 6, backend=backend)
    single, start_single, *_ = make(np.random.default_rng(1), 6, backend=backend, dtype="float32")
    found, wanted = minimise(single, start_single).state, minimise(double, start).state
    assert found.dictionary.dtype == start_single.dtype
    assert found.multipliers.dtype == wanted.multipliers.dtype
    assert_allclose(to_numpy(found.dictionary), to_numpy(wanted.dictionary), atol=1e-4)


def test_warm_start_needs_fewer_steps(rng):
    problem, start, *_ = make(rng, 6, scale=2.0)
    first = minimise(problem, start)
    again = LagrangeDual(tol=1e-12).minimise(problem, first.state)
    assert again.n_iter <= 2 < first.n_iter
    assert_allclose(again.state.dictionary, first.state.dictionary, atol=1e-9)


def test_projection_scales_long_atoms_only(rng, backend):
    dictionary = rng.normal(size=(5, 4, 3)) * np.array([0.01, 1.0, 10.0])
    projected = to_numpy(project_to_ball(backend(dictionary)))
    norms = np.sqrt((dictionary**2).sum((0, 1)))
    assert_allclose(np.sqrt((projected**2).sum((0, 1))), np.minimum(norms, 1.0))
    assert_allclose(projected[:, :, 0], dictionary[:, :, 0])
