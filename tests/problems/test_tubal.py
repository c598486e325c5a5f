"""The tubal coding problem against dense algebra, and compiled steps against the generic ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from helpers import oracles
from tubal.backends import arrays as threads
from tubal.backends.arrays import to_numpy
from tubal.problems import tubal as tubal_module
from tubal.problems import tubal_torch
from tubal.problems.base import CodingProblem, MomentumState, SplitState, relative_movement
from tubal.problems.linear_map import to_coefficients
from tubal.problems.tubal import TubalCoding, TubalModel, TubalStatistics

HEIGHT, ATOMS, SAMPLES = 4, 3, 6
SPARSITY, GRAPH_WEIGHT = 0.1, 0.7
tube_lengths = pytest.mark.parametrize("tube_length", oracles.TUBE_LENGTHS)
graphs = pytest.mark.parametrize("graph_weight", [0.0, GRAPH_WEIGHT, 20.0])


class Case:
    """One random problem, its dense equivalent, and codes to evaluate."""

    def __init__(self, rng, tube_length, graph_weight=0.0, *, backend=np.asarray, samples=SAMPLES, dtype="float64"):
        self.dictionary = oracles.unit_atoms(rng, HEIGHT, ATOMS, tube_length)
        self.data = rng.normal(size=(HEIGHT, samples, tube_length))
        self.codes = rng.normal(size=(ATOMS, samples, tube_length)) * (rng.random((ATOMS, samples, tube_length)) < 0.6)
        self.laplacian = oracles.path_laplacian(samples, rng) if graph_weight else None
        self.graph_weight = graph_weight
        arrays = [backend(oracles.tube_first(part).astype(dtype)) for part in (self.dictionary, self.data, self.codes)]
        self.inner = arrays[2]
        self.problem = TubalCoding(
            arrays[0], arrays[1], sparsity=SPARSITY, graph_weight=graph_weight, laplacian=self.laplacian
        )

    def dense_value(self, codes=None):
        return oracles.coding_objective(
            self.dictionary, self.data, self.codes if codes is None else codes,
            sparsity=SPARSITY, graph_weight=self.graph_weight, laplacian=self.laplacian,
        )  # fmt: skip


@tube_lengths
@graphs
def test_value_and_gradient_equal_dense_algebra(rng, backend, tube_length, graph_weight):
    case = Case(rng, tube_length, graph_weight, backend=backend)
    assert_allclose(case.problem.value(case.inner), case.dense_value(), rtol=1e-12)
    gradient = oracles.tube_last(to_numpy(case.problem.gradient(case.inner)))
    dense = oracles.coding_gradient(case.dictionary, case.data, case.codes, graph_weight, case.laplacian)
    assert_allclose(oracles.stacked(gradient), dense, atol=1e-11)


@tube_lengths
@graphs
def test_hessian_product_equals_finite_differences(rng, tube_length, graph_weight):
    case = Case(rng, tube_length, graph_weight, samples=3)
    shape = case.inner.shape
    jacobian = oracles.finite_jacobian(
        lambda flat: case.problem.gradient(flat.reshape(shape)).ravel(), case.inner.ravel(), step=1e-3
    )
    direction = rng.normal(size=shape)
    assert_allclose(case.problem.hessian_product(direction).ravel(), jacobian @ direction.ravel(), atol=1e-8)
    assert_allclose(jacobian, jacobian.T, atol=1e-8)


@tube_lengths
@graphs
def test_lipschitz_constant_is_the_largest_eigenvalue(rng, backend, tube_length, graph_weight):
    case = Case(rng, tube_length, graph_weight, backend=backend)
    hessian = oracles.coding_hessian(case.dictionary, SAMPLES, graph_weight, case.laplacian)
    assert_allclose(case.problem.lipschitz, np.linalg.eigvalsh(hessian)[-1], rtol=1e-10)


@tube_lengths
@graphs
@pytest.mark.parametrize("penalty", [0.1, 1.0, 30.0])
def test_shifted_solve_is_exact(rng, backend, tube_length, graph_weight, penalty):
    case = Case(rng, tube_length, graph_weight, backend=backend)
    solved = case.problem.solve_shifted(case.inner, penalty)
    back = case.problem.hessian_product(solved) + penalty * solved
    assert_allclose(to_numpy(back), to_numpy(case.inner), atol=1e-9)


@tube_lengths
def test_summary_terms_sum_to_the_value(rng, backend, tube_length):
    case = Case(rng, tube_length, GRAPH_WEIGHT, backend=backend)
    given = to_numpy(case.inner).copy()
    summary = case.problem.summary(case.inner, statistics=True)
    assert_array_equal(to_numpy(case.inner), given)
    residual = case.data - oracles.slow_t_product(case.dictionary, case.codes)
    assert_allclose(summary.residuals, (residual**2).sum((0, 2)), rtol=1e-11)
    assert_allclose(summary.absolutes, np.abs(case.codes).sum((0, 2)), rtol=1e-12)
    assert_allclose(summary.values.sum(), case.dense_value(), rtol=1e-12)
    codes_hat = np.fft.rfft(oracles.tube_first(case.codes), axis=0)
    data_hat = np.fft.rfft(oracles.tube_first(case.data), axis=0)
    adjoint = codes_hat.conj().swapaxes(1, 2)
    assert_allclose(to_numpy(summary.statistics.gram), codes_hat @ adjoint, atol=1e-10)
    assert_allclose(to_numpy(summary.statistics.cross), data_hat @ adjoint, atol=1e-10)


@tube_lengths
def test_fixed_neighbors_contribute_to_the_gradient_and_value(rng, backend, tube_length):
    """With half the images fixed, the rest has the gradient of the whole problem and, up to a constant, its value."""
    case = Case(rng, tube_length, GRAPH_WEIGHT, backend=backend)
    free, fixed = slice(0, 4), slice(4, None)
    outside = -case.laplacian[fixed, free]  # weights of edges to fixed images
    neighbor_sum = backend(np.ascontiguousarray(oracles.tube_first(case.codes)[:, :, fixed] @ outside))
    part = TubalCoding(
        case.problem.dictionary, backend(oracles.tube_first(case.data)[:, :, free].copy()), sparsity=SPARSITY,
        graph_weight=GRAPH_WEIGHT, laplacian=case.laplacian[free, free], neighbor_sum=neighbor_sum,
    )  # fmt: skip
    inner = oracles.tube_first(case.codes)
    here = backend(inner[:, :, free].copy())
    assert_allclose(to_numpy(part.gradient(here)), to_numpy(case.problem.gradient(case.inner))[:, :, free], atol=1e-11)
    changed = inner.copy()
    changed[:, :, free] += rng.normal(size=changed[:, :, free].shape)
    whole = case.dense_value(oracles.tube_last(changed)) - case.dense_value()
    alone = part.value(backend(changed[:, :, free].copy())) - part.value(here)
    assert_allclose(alone, whole, rtol=1e-9)


@pytest.mark.parametrize("tube_length", [1, 5, 6])
@pytest.mark.parametrize("samples", [1, 31, 32, 33, 70])
@graphs
def test_compiled_admm_equals_the_generic_steps(rng, monkeypatch, tube_length, samples, graph_weight):
    """Kernels work on blocks of images, generic code on all at once; graph systems are solved to rounding here."""
    monkeypatch.setattr(tubal_module, "GRAPH_REDUCTION", 1e-13)
    case = Case(rng, tube_length, graph_weight if samples > 1 else 0.0, samples=samples)
    options = {"penalty": 1.0, "relaxation": 1.8, "n_steps": 1, "tol": 0.0}
    state, plain = SplitState(case.inner.copy()), SplitState(case.inner.copy())
    for _ in range(60):
        state = case.problem.split(SplitState(state.point, extra=state.extra), **options)
        plain = CodingProblem.split(case.problem, SplitState(plain.point), **options)
    assert_allclose(case.problem.plain_state(state).point, plain.point, atol=1e-9)


@tube_lengths
@pytest.mark.parametrize("atoms", [3, 8, 9])
def test_compiled_admm_equals_the_generic_steps_for_any_number_of_atoms(rng, tube_length, atoms):
    """With at least twice as many atoms as rows, the kernel applies the dictionary and its adjoint one by one."""
    dictionary, data = rng.normal(size=(tube_length, HEIGHT, atoms)), rng.normal(size=(tube_length, HEIGHT, 40))
    problem = TubalCoding(dictionary, data, sparsity=SPARSITY)
    state, plain = SplitState(problem.zeros()), SplitState(problem.zeros())
    for n_steps in (1, 3):
        options = {"penalty": 0.7, "relaxation": 1.8, "n_steps": n_steps, "tol": 0.0}
        state = problem.split(SplitState(state.point), **options)
        plain = CodingProblem.split(problem, SplitState(plain.point), **options)
    assert_allclose(state.point, plain.point, atol=1e-12)
    assert_allclose(state.movement, plain.movement, rtol=1e-9)


@tube_lengths
def test_compiled_gap_equals_the_generic_one(rng, tube_length):
    case = Case(rng, tube_length, samples=35)
    found, expected = case.problem._gap_terms(case.inner), CodingProblem._gap_terms(case.problem, case.inner)
    for ours, generic in zip(found, expected, strict=True):
        assert_allclose(ours, generic, rtol=1e-11)


@pytest.mark.parametrize("tube_length", [1, 5, 6])
@pytest.mark.parametrize("samples", [1, 33])
@graphs
def test_compiled_algorithm_1_equals_the_generic_steps(rng, tube_length, samples, graph_weight):
    case = Case(rng, tube_length, graph_weight if samples > 1 else 0.0, samples=samples)
    step_size = 1.0 / case.problem.lipschitz
    ones = np.ones(samples)
    state = MomentumState(case.inner.copy(), case.inner.copy(), ones.copy(), 0.0 * ones)
    plain = MomentumState(case.inner.copy(), case.inner.copy(), ones.copy(), 0.0 * ones)
    for n_steps in (1, 7, 20):
        state = case.problem.accelerate(state, step_size=step_size, n_steps=n_steps)
        plain = CodingProblem.accelerate(case.problem, plain, step_size=step_size, n_steps=n_steps)
        assert_allclose(state.codes, plain.codes, atol=1e-10)
        assert_allclose(state.inertia, plain.inertia, rtol=1e-10)


@graphs
def test_steps_on_tensors_equal_the_generic_steps(rng, monkeypatch, graph_weight):
    """Graph systems are solved to rounding here."""
    monkeypatch.setattr(tubal_torch, "STEPS_PER_DOUBLING", 20.0)
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'tubal[torch]'")
    case = Case(rng, 6, graph_weight)
    other = TubalCoding(
        torch.as_tensor(case.problem.dictionary), torch.as_tensor(case.problem.data), sparsity=SPARSITY,
        graph_weight=graph_weight, laplacian=case.laplacian,
    )  # fmt: skip
    options = {"penalty": 0.7, "relaxation": 1.5, "n_steps": 12, "tol": 0.0}
    ours = CodingProblem.split(case.problem, SplitState(case.inner), **options)
    theirs = other.split(SplitState(torch.as_tensor(case.inner)), **options)
    assert_allclose(to_numpy(theirs.point), ours.point, atol=1e-10)
    assert_allclose(to_numpy(theirs.movement), to_numpy(ours.movement), rtol=1e-8)


@pytest.mark.parametrize("graph_weight", [0.0, GRAPH_WEIGHT])
def test_threads_do_not_change_the_result(rng, monkeypatch, graph_weight):
    case = Case(rng, 6, graph_weight, samples=200)
    found = []
    for count in (1, 2, 3):
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        state = case.problem.split(SplitState(case.inner.copy()), penalty=1.0, relaxation=1.8, n_steps=10, tol=0.0)
        found.append((state.point, case.problem.summary(case.inner, statistics=True).statistics.gram))
    for other in found[1:]:
        assert_array_equal(other[0], found[0][0])
        assert_array_equal(other[1], found[0][1])


@graphs
def test_single_precision_is_kept(rng, backend, graph_weight):
    case = Case(rng, 6, graph_weight, backend=backend, dtype="float32")
    kind = case.inner.dtype
    for array in (
        case.problem.gradient(case.inner), case.problem.solve_shifted(case.inner, 1.0), case.problem.zeros(),
        case.problem.reconstruct(case.inner),
        case.problem.plain_state(
            case.problem.split(SplitState(case.inner), penalty=1.0, relaxation=1.8, n_steps=2, tol=0.0)
        ).point,
    ):  # fmt: skip
        assert array.dtype == kind
    assert_allclose(
        case.problem.value(backend(oracles.tube_first(case.codes).astype("float32"))), case.dense_value(), rtol=1e-5
    )


def test_statistics_of_chunks_sum_to_those_of_the_whole(rng, backend):
    data, codes = rng.normal(size=(6, 4, 10)), rng.normal(size=(6, 3, 10))

    def statistics(part):
        return TubalStatistics.from_coefficients(
            to_coefficients(backend(data[:, :, part].copy())), to_coefficients(backend(codes[:, :, part].copy()))
        )

    together, apart = statistics(slice(None)), statistics(slice(0, 4)) + statistics(slice(4, None))
    for name in ("gram", "cross", "usage"):
        assert_allclose(to_numpy(getattr(apart, name)), to_numpy(getattr(together, name)), atol=1e-10)
    assert_allclose(apart.squares, together.squares)
    assert_allclose(to_numpy(together.scaled(0.5).gram), 0.5 * to_numpy(together.gram))


def test_replaced_atoms_have_unit_norm(rng, backend):
    dictionary, images = rng.normal(size=(5, 4, 3)), rng.normal(size=(5, 4, 1))
    replaced = to_numpy(
        TubalModel().replace_atoms(backend(dictionary), np.array([False, True, False]), backend(images))
    )
    assert_array_equal(replaced[:, :, [0, 2]], dictionary[:, :, [0, 2]])
    assert_allclose(replaced[:, :, 1], images[:, :, 0] / np.linalg.norm(images))


def test_relative_movement_of_an_unchanged_point_is_zero(backend):
    move, point = np.zeros((2, 3, 3)), np.zeros((2, 3, 3))
    move[0, 0, 1], point[0, 0, 1], move[1, 1, 2] = 1.0, 4.0, 1.0
    assert_allclose(to_numpy(relative_movement(backend(move), backend(point))), [0.0, 0.25, np.inf])
