"""TenSR against dense algebra on the Kronecker dictionary, the Lasso of scikit-learn, and its estimator checks."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Lasso
from sklearn.utils.estimator_checks import parametrize_with_checks

import tubal
from helpers import oracles
from tubal import TenSR
from tubal.backends.arrays import to_numpy
from tubal.graph import knn_graph, laplacian
from tubal.learning.alternation import InMemory, MemoryStore, Weights, initial_state, learn
from tubal.problems import linear_map
from tubal.problems.base import CodingProblem
from tubal.problems.layout import SeparableLayout
from tubal.problems.separable import SeparableCoding, SeparableModel, SeparableStatistics
from tubal.solvers import Admm, DictionaryState, Fista, LagrangeDual, ProjectedGradient

SPARSITY = 0.1
# (pixels, atoms) of every mode, with more and with fewer atoms than pixels.
SIDES = {2: ((5, 7), (4, 3)), 3: ((4, 3), (3, 4), (2, 2))}


class Case:
    """One random problem and its Kronecker matrix."""

    def __init__(self, rng, n_modes=2, graph_weight=0.0, *, backend=np.asarray, samples=6, dtype="float64"):
        matrices = [rng.normal(size=size) for size in SIDES[n_modes]]
        self.matrices = tuple(matrix / np.linalg.norm(matrix, axis=0) for matrix in matrices)
        self.kronecker = reduce(np.kron, self.matrices)
        self.data = rng.normal(size=(*(side for side, _ in SIDES[n_modes]), samples))
        self.codes = rng.normal(size=(*(atoms for _, atoms in SIDES[n_modes]), samples))
        self.laplacian = oracles.path_laplacian(samples, rng) if graph_weight else None
        self.graph_weight = graph_weight
        arrays = [backend(np.asarray(part, dtype)) for part in (*self.matrices, self.data, self.codes)]
        self.inner = arrays[-1]
        self.problem = SeparableCoding(
            tuple(arrays[:-2]), arrays[-2], sparsity=SPARSITY, graph_weight=graph_weight, laplacian=self.laplacian
        )

    def dense_value(self, codes):
        samples = codes.shape[-1]
        flat = codes.reshape(-1, samples)
        value = 0.5 * np.sum((self.data.reshape(-1, samples) - self.kronecker @ flat) ** 2)
        value += SPARSITY * np.abs(codes).sum()
        return value + (self.graph_weight * np.trace(flat @ self.laplacian @ flat.T) if self.graph_weight else 0.0)


cases = pytest.mark.parametrize(("n_modes", "graph_weight"), [(2, 0.0), (2, 0.7), (3, 0.0), (3, 20.0)])


@cases
def test_value_and_map_equal_the_kronecker_matrix(rng, backend, n_modes, graph_weight):
    case = Case(rng, n_modes, graph_weight, backend=backend)
    assert_allclose(case.problem.value(case.inner), case.dense_value(case.codes), rtol=1e-12)
    images = to_numpy(case.problem.reconstruct(case.inner))
    assert_allclose(images.reshape(-1, 6), case.kronecker @ case.codes.reshape(-1, 6), atol=1e-12)
    back = to_numpy(case.problem.correlate(case.problem.data))
    assert_allclose(back.reshape(-1, 6), case.kronecker.T @ case.data.reshape(-1, 6), atol=1e-12)


@cases
def test_gradient_equals_finite_differences(rng, n_modes, graph_weight):
    case = Case(rng, n_modes, graph_weight, samples=4)
    direction = rng.normal(size=case.codes.shape)
    slope = oracles.finite_slope(
        lambda codes: case.dense_value(codes) - SPARSITY * np.abs(codes).sum(), case.codes, direction
    )
    assert_allclose((case.problem.gradient(case.codes) * direction).sum(), slope, rtol=1e-7)


@cases
def test_shifted_solve_and_lipschitz_constant_are_exact(rng, backend, n_modes, graph_weight):
    case = Case(rng, n_modes, graph_weight, backend=backend)
    solved = case.problem.solve_shifted(case.inner, 0.3)
    assert_allclose(to_numpy(case.problem.hessian_product(solved) + 0.3 * solved), case.codes, atol=1e-9)
    largest = oracles.coding_lipschitz(case.kronecker, case.laplacian, graph_weight)
    assert_allclose(case.problem.lipschitz, largest, rtol=1e-6)


def test_coding_equals_the_lasso(rng):
    case = Case(rng, samples=5)
    referee = 0.0
    for target in case.data.reshape(-1, 5).T:
        lasso = Lasso(alpha=SPARSITY / len(target), fit_intercept=False, max_iter=100_000, tol=1e-12)
        found = lasso.fit(case.kronecker, target).coef_
        referee += 0.5 * np.sum((target - case.kronecker @ found) ** 2) + SPARSITY * np.abs(found).sum()
    for solver in (Admm(max_iter=5000, tol=1e-9), Fista(max_iter=20_000, tol=1e-9)):
        codes = solver.codes(case.problem, solver.minimise(case.problem).state)
        assert_allclose(case.problem.value(codes), referee, rtol=1e-6)


def test_blocks_do_not_change_the_result(rng, monkeypatch):
    case = Case(rng, samples=23)
    solver = Admm(max_iter=40, tol=1e-3)
    whole = solver.minimise(case.problem).state
    monkeypatch.setattr(linear_map.LinearMapCoding, "block_size", 5)
    cut = solver.minimise(case.problem).state
    assert_allclose(cut.point, whole.point, atol=1e-12)
    assert_allclose(cut.movement, whole.movement, rtol=1e-6)


@pytest.mark.parametrize("mode", [0, 1])
def test_statistics_give_dictionary_objective_and_gradient(rng, mode):
    case = Case(rng)
    model = SeparableModel()
    statistics = SeparableStatistics.of_mode(case.matrices, case.data, case.codes, mode)
    problem = model.dictionary_problem(statistics, case.matrices, mode)
    part = model.part(case.matrices, mode)

    def error(values):
        matrices = model.with_part(case.matrices, mode, values)
        return 0.5 * np.sum((case.data - SeparableCoding(matrices, case.data, sparsity=0).reconstruct(case.codes)) ** 2)

    assert_allclose(problem.value(part), error(part), rtol=1e-12)
    direction, step = rng.normal(size=part.shape), 1e-6
    slope = (error(part + step * direction) - error(part - step * direction)) / (2 * step)
    assert_allclose((problem.gradient(part) * direction).sum(), slope, rtol=1e-6)


def test_statistics_of_parts_sum_to_those_of_the_whole(rng):
    case = Case(rng)
    whole = SeparableStatistics.of_mode(case.matrices, case.data, case.codes, 1)
    parts = [
        SeparableStatistics.of_mode(case.matrices, case.data[..., cut], case.codes[..., cut], 1)
        for cut in (slice(0, 2), slice(2, None))
    ]
    together = parts[0] + parts[1]
    assert_allclose(together.ordinary.gram, whole.ordinary.gram, atol=1e-12)
    assert_allclose(together.usage, whole.usage, rtol=1e-12)
    assert_allclose(whole.scaled(0.5).usage, 0.5 * whole.usage)


def test_dual_and_projected_gradient_agree_on_a_mode(rng):
    case = Case(rng)
    model = SeparableModel()
    problem = model.dictionary_problem(model.statistics(case.matrices, case.data, case.codes, 0), case.matrices, 0)
    start = DictionaryState(model.part(case.matrices, 0))
    values = [
        problem.value(solver.minimise(problem, start).state.dictionary)
        for solver in (LagrangeDual(), ProjectedGradient(max_iter=20_000, tol=1e-12))
    ]
    assert_allclose(values[0], values[1], rtol=1e-8)


def test_learning_decreases_the_objective(rng):
    images = rng.random((30, 8, 7))
    model = TenSR(n_atoms=(6, 9), sparsity=0.01, max_iter=12, tol=0.0, random_state=0).fit(images)
    assert np.all(np.diff(model.objective_[:-1]) <= 1e-12 * model.objective_[0])
    assert model.objective_[-1] <= (1 + 1e-3) * model.objective_[-2]
    assert model.objective_[-1] < 0.8 * model.objective_[0]
    for matrix in model.dictionary_:
        assert np.all(np.linalg.norm(matrix, axis=0) <= 1 + 1e-9)


def test_unused_atoms_are_replaced(rng):
    case = Case(rng, samples=12)
    unusable = case.matrices[1].copy()
    unusable[:, 1] = 0.0
    state = initial_state((case.matrices[0], unusable), SeparableModel())
    done = learn(
        SeparableModel(), InMemory(case.data), state, Weights(SPARSITY), code_solver=Admm(),
        dictionary_solver=LagrangeDual(), max_iter=3, tol=0.0, store=MemoryStore(),
    )  # fmt: skip
    assert done.n_reseeded >= 1
    assert np.linalg.norm(done.dictionary[1][:, 1]) > 0.5


def test_single_outer_product_is_recovered(rng):
    down, across = (np.abs(rng.normal(size=side)) for side in (9, 6))
    images = np.outer(down, across) * rng.uniform(1, 2, size=(15, 1, 1))
    model = TenSR(n_atoms=(1, 1), sparsity=1e-4, random_state=0).fit(images)
    expected = np.outer(down / np.linalg.norm(down), across / np.linalg.norm(across))
    assert_allclose(abs(model.atoms_[0]), expected, atol=1e-6)


@pytest.mark.parametrize("graph_weight", [0.0, 0.5])
@pytest.mark.parametrize(("shape", "n_atoms"), [((6, 5), (4, 3)), ((6, 5, 3), (4, 3)), ((6, 5, 3), (4, 3, 2))])
def test_codes_images_and_explanations_agree(rng, tmp_path, shape, n_atoms, graph_weight):
    images = rng.random((14, *shape))
    model = TenSR(n_atoms=n_atoms, max_iter=3, graph_weight=graph_weight, n_neighbors=2, random_state=0).fit(images)
    assert model.codes_.shape == (14, *n_atoms)
    assert model.atoms_.shape == (int(np.prod(n_atoms)), *shape)
    assert model.transform(images).shape == (14, len(model.get_feature_names_out()))
    assert_allclose(model.encode(images), model.codes_, atol=1e-12)
    by_atoms = np.tensordot(model.by_atom(model.codes_), model.atoms_, 1)
    assert_allclose(model.decode(model.codes_), by_atoms, atol=1e-10)
    explanation = model.explain(images[3], with_graph=True)
    assert_allclose(explanation.reconstruction(), by_atoms[3], atol=1e-10)
    assert explanation.shifts.shape == (len(explanation), 0)
    tubal.save(model, tmp_path / "model.tubal")
    fresh = rng.random((3, *shape))
    assert_array_equal(tubal.load(tmp_path / "model.tubal").transform(fresh), model.transform(fresh))


def test_chunks_learn_the_same_dictionary(rng):
    images = rng.random((20, 6, 5))
    model = TenSR(n_atoms=(4, 3), max_iter=4, random_state=0)
    whole = [matrix.copy() for matrix in model.fit(images).dictionary_]
    for matrix, other in zip(whole, model.fit(images, chunk_size=6).dictionary_, strict=True):
        assert_allclose(other, matrix, atol=1e-8)


def test_graph_makes_codes_of_neighbors_similar(rng):
    images = np.repeat(rng.random((5, 6, 5)), 3, axis=0) + 0.05 * rng.random((15, 6, 5))
    free, smooth = (
        TenSR(n_atoms=(4, 3), graph_weight=weight, n_neighbors=2, random_state=0).fit_transform(images)
        for weight in (0.0, 10.0)
    )

    def spread(features):
        features = features / np.linalg.norm(features)
        return np.linalg.norm(features.reshape(5, 3, -1) - features.reshape(5, 3, -1).mean(1, keepdims=True))

    assert spread(smooth) < 0.5 * spread(free)


def test_torch_tensors_give_the_same_codes(rng, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(linear_map, "WARM_REDUCTION", 1e-13)  # tensors solve the graph systems to rounding
    monkeypatch.setattr(linear_map, "FIRST_REDUCTION", 1e-13)
    images = rng.random((12, 6, 5))
    for weight in (0.0, 0.5):
        model = TenSR(n_atoms=(4, 3), max_iter=3, graph_weight=weight, random_state=0)
        features = model.fit_transform(images)
        tensor = model.fit_transform(torch.as_tensor(images))
        assert isinstance(tensor, torch.Tensor)
        assert_allclose(tensor.numpy(), features, atol=1e-7)


def test_channels_are_rows_or_a_mode(rng):
    images = rng.random((3, 4, 5, 2))
    for n_modes, shape in ((2, (8, 5, 3)), (3, (4, 5, 2, 3))):
        layout = SeparableLayout((4, 5, 2), n_modes)
        tensor = layout.to_tensor(images)
        assert tensor.shape == shape
        assert_array_equal(layout.to_images(tensor), images)


@pytest.mark.parametrize(
    ("parameters", "shape", "sentence"),
    [
        ({"n_atoms": (100, 3)}, (8, 8), "100 atoms along a side of 8 pixels"),
        ({"n_atoms": (2, 3)}, (1, 8), "2 atoms along a side of 1 pixels"),
        ({}, (1, 1), "images of one pixel"),
        ({"n_atoms": (3, 3, 3)}, (8, 8), "has 3 numbers"),
        ({"n_atoms": (0, 3)}, (8, 8), "must be at least 1"),
        ({"init": (np.ones((8, 2)), np.ones((8, 2)))}, (8, 8), r"\(side, atoms\) = "),
        (
            {"init": (np.full((8, 2), np.nan), np.ones((8, 2))), "n_atoms": (2, 2)},
            (8, 8),
            "every matrix must be finite",
        ),
        ({"init": None}, (8, 8), r"a matrix .* for each side is wanted"),
        ({"init": "photographs"}, (8, 8), "must be one of 'images', 'random'"),
        ({"graph_weight": -1.0}, (8, 8), "graph_weight=-1.0"),
    ],
)
def test_bad_parameters_raise(rng, parameters, shape, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        TenSR(**parameters).fit(rng.random((6, *shape)))


@pytest.mark.parametrize("n_atoms", [7, "many", (2.5, 3)])
def test_n_atoms_must_be_a_tuple_of_integers(rng, n_atoms):
    with pytest.raises(TypeError, match="n_atoms"):
        TenSR(n_atoms=n_atoms).fit(rng.random((6, 8, 8)))


def test_tensr_has_no_partial_fit(rng):
    model = TenSR()
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        model.partial_fit(rng.random((6, 8, 8)))
    assert "use fit" in str(caught.value.__cause__)


def test_iterations_equal_the_generic_implementation():
    assert SeparableCoding.accelerate is CodingProblem.accelerate
    assert "split" not in vars(SeparableCoding)


@parametrize_with_checks([TenSR(), TenSR(graph_weight=1.0)])
def test_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("graph_weight", [0.7, 20.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solvers_reach_the_same_minimum_on_a_graph(rng, graph_weight, dtype):
    images = rng.random((6, 5, 12)).astype(dtype)
    dictionary = tuple((rng.standard_normal((side, 4)) / side).astype(dtype) for side in (6, 5))
    matrix = laplacian(knn_graph(np.moveaxis(images, -1, 0), 3))
    problem = SeparableCoding(dictionary, images, sparsity=0.05, graph_weight=graph_weight, laplacian=matrix)
    values = [
        problem.value(solver.codes(problem, solver.minimise(problem).state))
        for solver in (Admm(max_iter=5000, tol=1e-9), Fista(max_iter=20_000, tol=1e-9))
    ]
    assert_allclose(values[0], values[1], rtol=1e-5 if dtype is np.float32 else 1e-7)
