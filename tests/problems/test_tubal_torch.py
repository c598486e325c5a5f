"""Tubal coding on tensors against the generic steps and the NumPy kernels; Triton kernels against plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from tubal import GTSC
from tubal.backends.arrays import gram_eigh
from tubal.graph import deformable_graph, knn_graph, laplacian
from tubal.problems.base import CodingProblem, SplitState
from tubal.problems.linear_map import to_coefficients
from tubal.problems.tubal import TubalCoding, TubalDictionary, TubalStatistics
from tubal.solvers import Admm, DictionaryState, LagrangeDual
from tubal.solvers.dictionary import CompiledDual, Dual

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'tubal[torch]'")

STEPS = {"penalty": 1.0, "relaxation": 1.8}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def problem_parts(rng, tube_length, n_rows=4, n_atoms=6, n_samples=31):
    """Unit images and atoms (tube, row, ·), and the Laplacian of a random weighted graph."""
    data = rng.random((tube_length, n_rows, n_samples))
    atoms = rng.normal(size=(tube_length, n_rows, n_atoms))
    data, atoms = (part / np.sqrt((part**2).sum((0, 1))) for part in (data, atoms))
    weights = sp.random_array((n_samples, n_samples), density=0.1, random_state=rng).toarray()
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    return atoms, data, sp.csr_array(np.diag(weights.sum(1)) - weights)


def coding(parts, graph_weight=0.0, kind=torch.float64, **terms):
    """The coding problem on tensors."""
    atoms, data, matrix = parts
    atoms, data = (torch.as_tensor(part).to(kind) for part in (atoms, data))
    return TubalCoding(atoms, data, sparsity=0.01, graph_weight=graph_weight, laplacian=matrix, **terms)


@pytest.mark.parametrize("tube_length", [1, 2, 5, 6, 16])
@pytest.mark.parametrize("chunk", [7, 31])
def test_steps_on_tensors_equal_the_generic_steps(rng, tube_length, chunk):
    problem = coding(problem_parts(rng, tube_length))
    problem._driver.chunk = chunk
    generic, fused = (SplitState(problem.zeros()) for _ in (0, 1))
    for _ in range(3):  # the second and third call leave converged images as they are
        generic = CodingProblem.split(problem, generic, n_steps=10, tol=3e-3, **STEPS)
        fused = problem.split(fused, n_steps=10, tol=3e-3, **STEPS)
    assert_allclose(fused.point, generic.point, atol=1e-12)
    assert_allclose(fused.movement, generic.movement, atol=1e-12)


@pytest.mark.parametrize("tube_length", [1, 5, 8])
@pytest.mark.parametrize("graph_weight", [0.3, 10.0])
def test_arrays_and_tensors_reach_the_same_minimum(rng, tube_length, graph_weight):
    parts = problem_parts(rng, tube_length, n_rows=9)  # more rows than atoms: one minimiser
    atoms, data, matrix = parts
    solver = Admm(max_iter=3000, tol=1e-9)
    wanted = TubalCoding(atoms, data, sparsity=0.01, graph_weight=graph_weight, laplacian=matrix)
    problem = coding(parts, graph_weight)
    codes = solver.codes(wanted, solver.minimise(wanted).state)
    found = solver.codes(problem, solver.minimise(problem).state)
    assert_allclose(problem.value(found), wanted.value(codes), rtol=1e-7)
    assert_allclose(found, codes, atol=1e-4)


def test_images_with_fixed_neighbors_only_reach_the_minimum(rng):
    atoms, data, _ = problem_parts(rng, 6)
    neighbor_sum = rng.normal(size=(6, 6, 31)) * 0.1
    degrees = sp.csr_array(np.diag(rng.integers(1, 4, 31).astype(float)))
    problem = coding((atoms, data, degrees), 2.0, neighbor_sum=torch.as_tensor(neighbor_sum))
    solver = Admm(max_iter=400, tol=1e-10)
    together = solver.codes(problem, solver.minimise(problem).state)
    gradient = problem.gradient(together)
    used = together != 0
    assert abs(gradient + 0.01 * torch.sign(together))[used].max() < 1e-6
    assert abs(gradient)[~used].max() < 0.01 + 1e-6


def test_corrections_equal_steps_on_the_solution(rng):
    """Two Chebyshev cycles on the solution itself, each starting with a Jacobi step."""
    problem = coding(problem_parts(rng, 4), 5.0)
    systems = problem.split(SplitState(problem.zeros()), n_steps=2, tol=0.0, **STEPS).extra
    scale, now, before = systems.couplings.diagonal[:, None] + systems.shifts, systems.solution.clone(), None
    for weight in systems.weights:
        jacobi = (systems.couplings.matrix @ now + systems.right) / scale
        before, now = now, jacobi if weight is None else before + weight * (jacobi - before)
    assert len(systems.weights) > 2
    systems.improve(problem._driver.passes)
    assert_allclose(systems.solution, now, atol=1e-13)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("tube_length", [1, 6])
def test_half_precision_corrections_give_the_same_codes(rng, device, tube_length):
    atoms, data, matrix = problem_parts(rng, tube_length, n_rows=9)
    solver, found = Admm(max_iter=2000, tol=1e-6), []
    for kind in (torch.float32, torch.float64):
        parts = (torch.as_tensor(part, dtype=kind, device=device) for part in (atoms, data))
        problem = TubalCoding(*parts, sparsity=0.01, graph_weight=3.0, laplacian=matrix)
        found.append(solver.codes(problem, solver.minimise(problem).state).cpu())
    assert_allclose(found[0], found[1], atol=2e-5)


def test_two_cycles_never_change_the_sign_of_an_error(rng):
    """Every error is multiplied by a number in [0, 1); with a negative one, over-relaxed ADMM would diverge."""
    problem = coding(problem_parts(rng, 4), 5.0)
    systems = problem.split(SplitState(problem.zeros()), n_steps=1, tol=0.0, **STEPS).extra
    n_samples = 31
    systems.shifts = systems.shifts[:1].expand(n_samples).contiguous()
    systems.weights = [None if weight is None else weight[:1].expand(n_samples) for weight in systems.weights]
    square = torch.zeros(n_samples, n_samples, dtype=torch.float64)
    systems.right, systems.solution = square, torch.eye(n_samples, dtype=torch.float64)
    systems.corrections = [square.clone() for _ in systems.corrections]
    systems.improve(problem._driver.passes)
    factors = np.linalg.eigvals(systems.solution.numpy())
    assert abs(factors.imag).max() < 1e-12
    assert factors.real.min() > -1e-12
    assert factors.real.max() < 1.0


@pytest.mark.parametrize("tube_length", [1, 5, 8])
def test_sums_over_chunks_equal_those_over_all_images(rng, tube_length):
    problem = coding(problem_parts(rng, tube_length))
    problem._driver.chunk = 7
    codes = torch.as_tensor(rng.normal(size=problem.codes_shape))
    summary = problem.summary(codes, statistics=True)
    residual = problem.data - problem.reconstruct(codes)
    assert_allclose(summary.residuals, (residual**2).sum((0, 1)), rtol=1e-10)
    assert_allclose(summary.absolutes, abs(codes).sum((0, 1)), rtol=1e-12)
    wanted = TubalStatistics.from_coefficients(to_coefficients(problem.data), to_coefficients(codes))
    assert_allclose(summary.statistics.gram, wanted.gram, atol=1e-10)
    assert_allclose(summary.statistics.cross, wanted.cross, atol=1e-10)


@pytest.mark.parametrize("n_rows", [2, 3, 5, 9])
def test_gram_eigh_diagonalises_the_product(rng, n_rows):
    factors = rng.normal(size=(4, n_rows, 6)) + 1j * rng.normal(size=(4, n_rows, 6))
    factors[1], factors[2, 1] = 0.0, factors[2, 0]  # of less than full rank
    values, vectors = gram_eigh(factors)
    adjoint = vectors.conj().swapaxes(1, 2)
    assert_allclose(adjoint @ vectors, np.broadcast_to(np.eye(6), (4, 6, 6)), atol=1e-13)
    assert_allclose((vectors * values[:, None]) @ adjoint, factors.conj().swapaxes(1, 2) @ factors, atol=1e-12)


@pytest.mark.parametrize("tube_length", [1, 5, 8])
def test_compiled_dual_equals_numpy(rng, tube_length):
    data, codes = rng.normal(size=(tube_length, 7, 50)), rng.normal(size=(tube_length, 5, 50))
    codes[:, 3] = 0.0  # an atom that no image uses
    dictionary = rng.normal(size=(tube_length, 7, 5))
    problem = TubalDictionary(TubalStatistics.from_coefficients(to_coefficients(data), to_coefficients(codes)))
    by_numpy, compiled = Dual(problem, 1e-10), CompiledDual(problem, 1e-10)
    wanted, found = (dual.at(np.full(4, 0.3)) for dual in (by_numpy, compiled))
    assert_allclose(found.value, wanted.value, rtol=1e-13)
    assert_allclose(found.gradient, wanted.gradient, atol=1e-13)
    assert_allclose(found.hessian, wanted.hessian, atol=1e-13)
    states = [DictionaryState(dictionary), DictionaryState(torch.as_tensor(dictionary))]
    wanted, found = (LagrangeDual().minimise(problem, state).state for state in states)
    assert_allclose(found.dictionary, wanted.dictionary, atol=1e-12)
    assert_allclose(found.multipliers, wanted.multipliers, atol=1e-9)


def test_deformable_graph_of_a_tensor_equals_that_of_the_array(rng):
    images = rng.random((40, 12, 10, 2)).astype(np.float32)
    images[7], images[11:13] = images[3], 0.5  # a copy and two blank images
    wanted, found = deformable_graph(images, 4), deformable_graph(torch.as_tensor(images), 4)
    np.testing.assert_array_equal(found.neighbors, wanted.neighbors)
    assert_allclose(found.distances, wanted.distances, atol=2e-6)
    assert_allclose(found.alignments.stack(), wanted.alignments.stack())
    np.testing.assert_array_equal(found.query(images[:5])[0], wanted.query(images[:5])[0])


def test_copies_of_tensors_are_those_of_arrays(rng):
    images = rng.random((50, 16, 16)).astype(np.float32)
    images[7], images[30], images[11:13, :, :] = images[3], images[3], np.array([0.5, 0.25])[:, None, None]
    wanted, found = deformable_graph(images, 4), deformable_graph(torch.as_tensor(images), 4)
    assert_array_equal(found.search.prepared.group, wanted.search.prepared.group)
    assert len(np.unique(wanted.search.prepared.group)) == 47  # constant images are equal, too
    assert_array_equal(found.search.equal_groups, wanted.search.equal_groups)
    assert_array_equal(found.neighbors, wanted.neighbors)
    assert_allclose(found.distances, wanted.distances, atol=2e-6)


@needs_gpu
def test_fit_on_the_gpu_equals_that_on_the_cpu(rng):
    images = rng.random((60, 8, 8)).astype(np.float32)
    # The GPU solves graph systems by other steps, so short coding steps differ; long ones do not.
    for steps, tolerance in ((5, 0.02), (100, 1e-3)):
        model = GTSC(n_atoms=6, random_state=0, max_iter=6, tol=0.0, code_solver=Admm(max_iter=steps, tol=1e-6))
        wanted, found = model.fit(images).objective_, model.fit(torch.as_tensor(images, device="cuda")).objective_
        assert_allclose(found[1:], wanted[1:], rtol=tolerance)
    assert model.atoms_.is_cuda
    assert model.codes_.is_cuda


@needs_gpu
@pytest.mark.parametrize(
    ("tube_length", "n_samples", "n_atoms"), [(1, 50, 6), (5, 77, 20), (16, 300, 45), (28, 65, 6), (4, 40, 110)]
)
def test_triton_kernels_equal_plain_torch(rng, monkeypatch, tube_length, n_samples, n_atoms):
    from tubal.backends.gpu.passes import PlainPasses
    from tubal.backends.gpu.triton_passes import TritonPasses

    # In a short type, a correction halfway between two numbers may be rounded to either.
    monkeypatch.setattr("tubal.problems.tubal_torch.short_type", lambda reference: reference.dtype)
    atoms, data, _ = problem_parts(rng, tube_length, n_atoms=n_atoms, n_samples=n_samples)
    matrix = laplacian(knn_graph(data.reshape(-1, n_samples).T, 3))
    atoms, data = (torch.as_tensor(part, dtype=torch.float32, device="cuda") for part in (atoms, data))
    for graph_weight in (0.0, 1.0):
        points = []
        for kind in (PlainPasses, TritonPasses):
            problem = TubalCoding(atoms, data, sparsity=0.01, graph_weight=graph_weight, laplacian=matrix)
            problem._driver.passes = kind(problem._driver.basis)
            state = SplitState(problem.zeros())
            for _ in range(3):
                state = problem.split(state, n_steps=7, tol=1e-4, **STEPS)
            points.append((state.point.cpu(), state.movement.cpu()))
        assert_allclose(points[1][0], points[0][0], atol=2e-5)
        assert_allclose(points[1][1], points[0][1], atol=2e-5)
