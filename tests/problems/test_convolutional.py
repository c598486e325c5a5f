"""CSC against dense convolution matrices, SPORCO's 2-D ConvBPDN, and the checks of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils.estimator_checks import parametrize_with_checks

import tubal
from helpers import oracles
from tubal import CSC
from tubal.backends.arrays import to_numpy
from tubal.backends.cpu import by_image as kernels
from tubal.datasets import fetch_orl
from tubal.learning.alternation import InMemory, MemoryStore, Weights, initial_state, learn
from tubal.problems import convolutional, linear_map
from tubal.problems.base import CodingProblem
from tubal.problems.convolutional import (
    ConvolutionalCoding,
    ConvolutionalDictionary,
    ConvolutionalModel,
    ConvolutionalStatistics,
    RowFactors,
    filter_norms,
    strongest_patch,
)
from tubal.problems.layout import PlaneLayout
from tubal.solvers import Admm, DictionaryState, Fista, ProjectedGradient

SPARSITY, ATOMS, SUPPORT = 0.1, 4, (3, 2)
PLANES = [(6, 5, 1), (5, 6, 3), (3, 2, 1), (1, 8, 1)]  # odd, even, colour, filters as large as the image, one row


def convolution_matrix(dictionary, plane):
    """Return the map as a dense matrix (h·w·channel, h·w·atom), one shifted filter per column."""
    height, width = plane
    columns = []
    for row, column, atom in np.ndindex(height, width, dictionary.shape[3]):
        image = np.zeros((height, width, dictionary.shape[2]))
        for down, across in np.ndindex(dictionary.shape[:2]):
            image[(row + down) % height, (column + across) % width] += dictionary[down, across, :, atom]
        columns.append(image.reshape(-1))
    return np.stack(columns, 1)


class Case:
    """One random problem and its dense matrix."""

    def __init__(self, rng, plane=(6, 5, 1), graph_weight=0.0, *, backend=np.asarray, samples=5, dtype="float64"):
        *self.plane, channels = plane
        support = tuple(min(sides) for sides in zip(SUPPORT, self.plane, strict=True))
        dictionary = rng.normal(size=(*support, channels, ATOMS))
        self.dictionary = dictionary / filter_norms(dictionary)
        self.data = rng.normal(size=(*plane, samples))
        self.codes = rng.normal(size=(*self.plane, ATOMS, samples))
        self.matrix = convolution_matrix(self.dictionary, self.plane)
        self.laplacian = oracles.path_laplacian(samples, rng) if graph_weight else None
        self.graph_weight, self.samples = graph_weight, samples
        arrays = [backend(np.asarray(part, dtype)) for part in (self.dictionary, self.data, self.codes)]
        self.inner = arrays[2]
        self.problem = ConvolutionalCoding(
            arrays[0], arrays[1], sparsity=SPARSITY, graph_weight=graph_weight, laplacian=self.laplacian
        )

    def dense_value(self, codes):
        flat = codes.reshape(-1, self.samples)
        value = 0.5 * np.sum((self.data.reshape(-1, self.samples) - self.matrix @ flat) ** 2)
        value += SPARSITY * np.abs(codes).sum()
        return value + (self.graph_weight * np.trace(flat @ self.laplacian @ flat.T) if self.graph_weight else 0.0)


planes = pytest.mark.parametrize("plane", PLANES)
graphs = pytest.mark.parametrize("graph_weight", [0.0, 0.7, 20.0])


@planes
@graphs
def test_value_and_map_equal_the_dense_matrix(rng, backend, plane, graph_weight):
    case = Case(rng, plane, graph_weight, backend=backend)
    assert_allclose(case.problem.value(case.inner), case.dense_value(case.codes), rtol=1e-12)
    images = to_numpy(case.problem.reconstruct(case.inner))
    assert_allclose(images.reshape(-1, 5), case.matrix @ case.codes.reshape(-1, 5), atol=1e-12)
    back = to_numpy(case.problem.correlate(case.problem.data))
    assert_allclose(back.reshape(-1, 5), case.matrix.T @ case.data.reshape(-1, 5), atol=1e-12)


@graphs
def test_gradient_equals_finite_differences(rng, graph_weight):
    case = Case(rng, graph_weight=graph_weight)
    direction = rng.normal(size=case.codes.shape)
    slope = oracles.finite_slope(
        lambda codes: case.dense_value(codes) - SPARSITY * np.abs(codes).sum(), case.codes, direction
    )
    assert_allclose((case.problem.gradient(case.codes) * direction).sum(), slope, rtol=1e-7)


@planes
@graphs
def test_shifted_solve_and_lipschitz_constant_are_exact(rng, backend, plane, graph_weight):
    case = Case(rng, plane, graph_weight, backend=backend)
    solved = case.problem.solve_shifted(case.inner, 0.3)
    assert_allclose(to_numpy(case.problem.hessian_product(solved) + 0.3 * solved), case.codes, atol=1e-9)
    largest = oracles.coding_lipschitz(case.matrix, case.laplacian, graph_weight)
    assert_allclose(case.problem.lipschitz, largest, rtol=1e-6)


@planes
@graphs
def test_compiled_admm_equals_the_generic_steps(rng, plane, graph_weight):
    case = Case(rng, plane, graph_weight)
    solver = Admm(max_iter=30, tol=1e-3)
    quick = solver.minimise(case.problem).state
    case.problem.__dict__["_driver"] = None
    plain = solver.minimise(case.problem).state
    assert_allclose(quick.point, plain.point, atol=1e-10)
    assert_allclose(quick.movement, plain.movement, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_conjugate_gradients_replace_dense_factors(rng, monkeypatch, dtype):
    case = Case(rng, graph_weight=0.7, dtype=dtype)
    direct = case.problem.solve_shifted(case.inner, 0.5)
    monkeypatch.setattr(RowFactors, "max_fill", 0)
    case.problem.__dict__.pop("_driver", None)
    assert_allclose(case.problem.solve_shifted(case.inner, 0.5), direct, atol=1e-5 if dtype == "float32" else 1e-12)
    state = Admm(max_iter=20).minimise(case.problem).state
    case.problem.__dict__["_driver"] = None
    plain = Admm(max_iter=20).minimise(case.problem).state
    assert_allclose(state.point, plain.point, atol=1e-4 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize(("graph_weight", "samples"), [(0.7, 5), (0.0, 70)])
def test_large_filters_use_the_fourier_domain(rng, monkeypatch, graph_weight, samples):
    case = Case(rng, graph_weight=graph_weight, samples=samples)
    solver = Admm(max_iter=20)
    wanted = solver.minimise(case.problem).state.point.copy()
    monkeypatch.setattr(convolutional, "LARGEST_PATCH", 1)
    case.problem.__dict__.pop("_driver")
    assert case.problem._driver is None
    assert_allclose(solver.minimise(case.problem).state.point, wanted, atol=1e-10)


def test_row_factors_solve_the_graph_system(rng):
    laplacian = sp.csr_array(oracles.path_laplacian(20, rng))
    factors = RowFactors(laplacian, 3.0, 0.4, np.float64)
    right, solution = rng.normal(size=(20, 37)), np.empty((20, 37))
    kernels.solve_factored(right, 1.0, *factors.parts, 0, 2, solution)
    assert_allclose((3.0 * laplacian + 0.4 * sp.eye_array(20)) @ solution, right, atol=1e-12)


# --- SPORCO ----------------------------------------------------------------------------------------------------


def face_problem(n_images, n_atoms, sparsity, dtype):
    """Return the coding problem of faces (h, w, 1, n), with patches of them as filters (8, 8, 1, atom)."""
    rng = np.random.default_rng(0)
    images = fetch_orl().images[:n_images]
    images = images / np.linalg.norm(images.reshape(n_images, -1), axis=1)[:, None, None]
    places = rng.integers(0, (n_images, 24, 24), size=(n_atoms, 3))
    filters = np.stack([images[image, row : row + 8, column : column + 8] for image, row, column in places], -1)
    filters = (filters / np.linalg.norm(filters, axis=(0, 1)))[:, :, None].astype(dtype)
    data = np.moveaxis(images, 0, -1)[:, :, None].astype(dtype)
    return ConvolutionalCoding(filters, data, sparsity=sparsity)


def sporco_codes(problem, n_iter, rho):
    cbpdn = pytest.importorskip("sporco.admm.cbpdn", reason="SPORCO is not installed")
    options = cbpdn.ConvBPDN.Options(
        {
            "MaxMainIter": n_iter, "RelStopTol": 1e-12, "RelaxParam": 1.8, "rho": rho, "AutoRho": {"Enabled": False},
            "FastSolve": True, "DataType": problem.data.dtype,
        }
    )  # fmt: skip
    solver = cbpdn.ConvBPDN(problem.dictionary[:, :, 0], problem.data[:, :, 0], problem.sparsity, options, dimK=1)
    solver.solve()
    return np.swapaxes(solver.Y[:, :, 0], 2, 3)


@pytest.mark.peer
@pytest.mark.collection
@pytest.mark.filterwarnings("ignore")
def test_coding_reaches_the_objective_of_sporco():
    problem = face_problem(2, 4, 0.02, np.float64)
    referee = problem.value(sporco_codes(problem, 800, rho=0.3))
    solver = Admm(max_iter=800, tol=1e-9, penalty=0.3)
    solution = solver.minimise(problem)
    assert_allclose(problem.value(solver.codes(problem, solution.state)), referee, rtol=1e-6)


@pytest.mark.parametrize("graph_weight", [0.0, 0.7])
def test_solvers_reach_the_same_minimum(rng, graph_weight):
    case = Case(rng, graph_weight=graph_weight)
    values = []
    for solver in (Admm(max_iter=5000, tol=1e-10), Fista(max_iter=20_000, tol=1e-10)):
        values.append(case.problem.value(solver.codes(case.problem, solver.minimise(case.problem).state)))
    assert_allclose(values[0], values[1], rtol=1e-6)


# --- filters ---------------------------------------------------------------------------------------------------


def statistics_of(case):
    return case.problem.summary(case.inner, statistics=True).statistics


@planes
def test_statistics_give_filter_objective_and_gradient(rng, backend, plane):
    case = Case(rng, plane, backend=backend)
    problem = ConvolutionalDictionary(statistics_of(case))

    def error(dictionary):
        matrix = convolution_matrix(dictionary, case.plane)
        return 0.5 * np.sum((case.data.reshape(-1, 5) - matrix @ case.codes.reshape(-1, 5)) ** 2)

    assert_allclose(problem.value(backend(case.dictionary)), error(case.dictionary), rtol=1e-10)
    direction, step = rng.normal(size=case.dictionary.shape), 1e-6
    slope = (error(case.dictionary + step * direction) - error(case.dictionary - step * direction)) / (2 * step)
    gradient = to_numpy(problem.gradient(backend(case.dictionary)))
    assert_allclose((gradient * direction).sum(), slope, rtol=1e-6)
    assert_allclose(problem.lipschitz, np.linalg.eigvalsh(to_numpy(problem.statistics.gram)).max(), rtol=1e-12)


def test_statistics_of_parts_sum_to_those_of_the_whole(rng):
    case = Case(rng)
    data, codes = (np.moveaxis(part, (3, 2, 0, 1), (0, 1, 2, 3)) for part in (case.data, case.codes))
    whole = ConvolutionalStatistics.of(data, codes)
    together = ConvolutionalStatistics.of(data[:2], codes[:2]) + ConvolutionalStatistics.of(data[2:], codes[2:])
    blocked = ConvolutionalStatistics.of(data, codes, block=2)
    for other in (together, blocked):
        assert_allclose(other.gram, whole.gram, atol=1e-10)
        assert_allclose(other.cross, whole.cross, atol=1e-10)
    assert_allclose(whole.usage, (codes**2).sum((0, 2, 3)), rtol=1e-10)
    assert_allclose(whole.scaled(0.25).squares, 0.25 * (data**2).sum())


def test_filter_step_satisfies_its_optimality_conditions(rng):
    """At the minimum the gradient of a filter is normal to its ball, or zero inside it."""
    case = Case(rng, samples=30)
    problem = ConvolutionalDictionary(statistics_of(case))
    start = DictionaryState(case.dictionary)
    solved = ProjectedGradient(max_iter=20_000, tol=1e-13).minimise(problem, start).state.dictionary
    gradient = problem.gradient(solved)
    norms = filter_norms(solved)
    assert np.all(norms <= 1 + 1e-9)
    outwards = -(gradient * solved).sum((0, 1, 2))
    assert np.all(outwards > -1e-6)
    inside = norms < 1 - 1e-6
    assert_allclose(outwards[inside], 0.0, atol=1e-6)
    assert_allclose(gradient, -outwards * solved, atol=1e-6)


def test_learning_decreases_the_objective(rng):
    images = rng.random((20, 9, 8))
    model = CSC(n_atoms=5, filter_shape=(3, 4), sparsity=0.01, max_iter=10, tol=0.0, random_state=0).fit(images)
    assert np.all(np.diff(model.objective_[:-1]) <= 1e-12 * model.objective_[0])
    assert model.objective_[-1] <= (1 + 1e-3) * model.objective_[-2]
    assert model.objective_[-1] < 0.9 * model.objective_[0]
    assert np.all(np.linalg.norm(model.filters_, axis=(1, 2)) <= 1 + 1e-6)
    assert_array_equal(model.atoms_[:, :3, :4], model.filters_)
    assert np.count_nonzero(model.atoms_[:, 3:]) == np.count_nonzero(model.atoms_[:, :, 4:]) == 0


def test_unused_filters_are_replaced(rng):
    case = Case(rng, samples=12)
    dictionary = case.dictionary.copy()
    dictionary[..., 2] = 0.0
    done = learn(
        ConvolutionalModel(), InMemory(case.data), initial_state(dictionary, ConvolutionalModel()), Weights(SPARSITY),
        code_solver=Admm(), dictionary_solver=ProjectedGradient(max_iter=30), max_iter=3, tol=0.0, store=MemoryStore(),
    )  # fmt: skip
    assert done.n_reseeded >= 1
    assert filter_norms(done.dictionary)[2] > 0.1


def test_strongest_patch_has_most_energy():
    image = np.zeros((6, 7, 1))
    image[3:5, 4:6, 0] = [[1.0, 2.0], [3.0, 4.0]]
    assert_allclose(strongest_patch(image, 2, 2)[..., 0] * np.sqrt(30.0), [[1.0, 2.0], [3.0, 4.0]])


# --- the estimator ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph_weight", [0.0, 0.5])
@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3)])
def test_codes_images_and_explanations_agree(rng, tmp_path, shape, graph_weight):
    images = rng.random((14, *shape))
    model = CSC(
        n_atoms=4, filter_shape=(3, 2), max_iter=3, graph_weight=graph_weight, n_neighbors=2, random_state=0
    ).fit(images)
    assert model.codes_.shape == (14, 4, 6, 5)
    assert model.atoms_.shape == (4, *shape)
    assert model.filters_.shape == (4, 3, 2, *shape[2:])
    assert_allclose(model.transform(images), np.linalg.norm(model.codes_.reshape(14, 4, -1), axis=2), atol=1e-12)
    assert_allclose(model.encode(images), model.codes_, atol=1e-12)
    explanation = model.explain(images[3], with_graph=True)
    assert explanation.shifts.shape == (len(explanation), 2)
    assert_allclose(explanation.reconstruction(), model.decode(model.codes_)[3], atol=1e-10)
    tubal.save(model, tmp_path / "model.tubal")
    fresh = rng.random((3, *shape))
    assert_array_equal(tubal.load(tmp_path / "model.tubal").transform(fresh), model.transform(fresh))


def test_features_ignore_circular_shifts(rng):
    images = rng.random((6, 8, 7))
    model = CSC(n_atoms=4, filter_shape=(3, 3), max_iter=3, random_state=0).fit(images)
    moved = np.roll(images, (3, 2), axis=(1, 2))
    assert_allclose(model.encode(moved), np.roll(model.encode(images), (3, 2), axis=(2, 3)), atol=1e-9)
    assert_allclose(model.transform(moved), model.transform(images), atol=1e-9)


def test_chunks_learn_the_same_filters(rng):
    images = rng.random((20, 6, 5))
    model = CSC(n_atoms=4, filter_shape=(3, 2), max_iter=4, random_state=0)
    whole = model.fit(images).filters_.copy()
    assert_allclose(model.fit(images, chunk_size=6).filters_, whole, atol=1e-8)


def test_partial_fit_learns_from_batches(rng):
    model = CSC(n_atoms=4, filter_shape=(3, 2), random_state=0)
    for batch in rng.random((4, 10, 6, 5)):
        model.partial_fit(batch)
    assert model.n_samples_seen_ == 40
    assert model.objective_[-1] < model.objective_[0]


def test_torch_tensors_give_the_same_codes(rng, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(linear_map, "WARM_REDUCTION", 1e-13)  # tensors solve the graph systems to rounding
    monkeypatch.setattr(linear_map, "FIRST_REDUCTION", 1e-13)
    images = rng.random((12, 6, 5))
    for weight in (0.0, 0.5):
        model = CSC(n_atoms=4, filter_shape=(3, 2), max_iter=3, graph_weight=weight, random_state=0)
        features = model.fit_transform(images)
        tensor = model.fit_transform(torch.as_tensor(images))
        assert isinstance(tensor, torch.Tensor)
        assert_allclose(tensor.numpy(), features, atol=1e-7)


def test_single_precision_is_kept(rng):
    images = rng.random((12, 6, 5)).astype(np.float32)
    model = CSC(n_atoms=4, filter_shape=(3, 2), max_iter=3, random_state=0).fit(images)
    assert model.codes_.dtype == model.atoms_.dtype == np.float32


def test_init_accepts_filters(rng):
    filters = rng.normal(size=(4, 3, 2))
    filters /= np.linalg.norm(filters, axis=(1, 2), keepdims=True)
    model = CSC(n_atoms=4, filter_shape=(3, 2), max_iter=1, init=filters).fit(rng.random((6, 6, 5)))
    assert_allclose(model.filters_, filters, atol=1e-12)


def test_to_images_undoes_to_tensor(rng):
    for shape in ((4, 5), (4, 5, 3)):
        images = rng.random((6, *shape))
        tensor = PlaneLayout(shape).to_tensor(images)
        assert tensor.shape == (4, 5, shape[2] if len(shape) > 2 else 1, 6)
        assert_array_equal(PlaneLayout(shape).to_images(tensor), images)


@pytest.mark.parametrize(
    ("parameters", "shape", "sentence"),
    [
        ({"filter_shape": (9, 3)}, (8, 8), "9 × 3 pixels are larger than the images of 8 × 8"),
        ({"filter_shape": (3, 9)}, (8, 8), "larger than the images"),
        ({"filter_shape": (3,)}, (8, 8), r"\(height, width\) is wanted"),
        ({"filter_shape": (0, 3)}, (8, 8), "must be at least 1"),
        ({"n_atoms": 65}, (8, 8), "65 filters for images of 64 pixels"),
        ({}, (1, 1), "images of one pixel"),
        ({"n_atoms": 3, "init": np.ones((4, 8, 8))}, (8, 8), r"\(atom, height, width, channel\)"),
        ({"n_atoms": 3, "init": np.full((3, 8, 8), np.nan)}, (8, 8), "every filter must be finite"),
        ({"init": "photographs"}, (8, 8), "must be one of 'images', 'random'"),
    ],
)
def test_bad_parameters_raise(rng, parameters, shape, sentence):
    with pytest.raises(ValueError, match=sentence):
        CSC(**parameters).fit(rng.random((6, *shape)))


def test_algorithm_1_equals_the_generic_implementation():
    assert ConvolutionalCoding.accelerate is CodingProblem.accelerate


@parametrize_with_checks([CSC(), CSC(graph_weight=1.0)])
def test_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
