"""The four estimators: shapes, parameters, graphs, and new images."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from helpers import oracles
from tubal import GTSC, GraphSC, SparseCoding, TubSC
from tubal.backends.arrays import is_torch, to_numpy
from tubal.datasets import make_shifted_shapes
from tubal.graph import knn_graph
from tubal.solvers import Admm, Fista, LagrangeDual, PrintedIstt, ProjectedGradient

ALL = [TubSC, GTSC, SparseCoding, GraphSC]
TUBAL = [TubSC, GTSC]


# --- shapes --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes():
    return make_shifted_shapes(30, n_classes=3, image_shape=(8, 9), random_state=0).images


def small(estimator, **parameters):
    return estimator(**{"n_atoms": 5, "max_iter": 3, "random_state": 0} | parameters)


@pytest.mark.parametrize("tube_axis", [-1, -2])
@pytest.mark.parametrize("shape", [(8, 7), (5, 5), (1, 6), (6, 1), (4, 5), (5, 4, 3), (4, 2)])
@pytest.mark.parametrize("estimator", ALL)
def test_fitted_arrays_have_documented_shapes(rng, backend, estimator, shape, tube_axis):
    images = backend(rng.random((12, *shape)))
    model = small(estimator, tube_axis=tube_axis)
    features = model.fit_transform(images)
    tube_length = 1 if estimator in (SparseCoding, GraphSC) else shape[1 if tube_axis == -1 else 0]
    assert tuple(features.shape) == (12, 5)
    assert tuple(model.atoms_.shape) == (5, *shape)
    assert tuple(model.codes_.shape) == (12, 5, tube_length)
    assert tuple(model.encode(images[:4]).shape) == (4, 5, tube_length)
    assert tuple(model.decode(model.codes_).shape) == (12, *shape)
    assert model.n_features_in_ == np.prod(shape)
    assert model.image_shape_ == shape
    for values in (features, model.atoms_, model.codes_, model.transform(images), model.decode(model.codes_)):
        assert is_torch(values) == is_torch(images)
        assert values.dtype == images.dtype
    assert len(model.objective_) == len(model.density_) == model.n_iter_ <= 3


@pytest.mark.parametrize("tube_length", oracles.TUBE_LENGTHS)
def test_decode_equals_the_t_product_for_every_tube_length(rng, tube_length):
    images = rng.random((12, 4, tube_length))
    model = small(GTSC).fit(images)
    assert_allclose(model.decode(model.codes_), reconstruct(model), atol=1e-10)


def reconstruct(model):
    """The model's images, by the slow t-product, for tubes along the width."""
    atoms, codes = np.moveaxis(model.atoms_, 0, 1), np.moveaxis(model.codes_, 0, 1)
    return np.moveaxis(oracles.slow_t_product(atoms, codes), 1, 0)


@pytest.mark.parametrize("estimator", ALL)
def test_rows_with_image_shape_equal_images(shapes, estimator):
    stack = small(estimator).fit(shapes)
    rows = small(estimator, image_shape=(8, 9)).fit(shapes.reshape(30, -1))
    assert_array_equal(rows.codes_, stack.codes_)
    assert_array_equal(rows.transform(shapes.reshape(30, -1)), stack.transform(shapes))
    assert rows.atoms_.shape == (5, 8, 9)


def test_rows_without_image_shape_are_one_row_images(shapes):
    model = small(TubSC).fit(shapes.reshape(30, -1))
    assert model.image_shape_ == (1, 72)
    assert model.codes_.shape == (30, 5, 72)


def test_tube_axis_transposes_the_image(shapes):
    down = small(TubSC, tube_axis=-2).fit(shapes)
    across = small(TubSC).fit(shapes.swapaxes(1, 2).copy())
    assert_allclose(down.objective_, across.objective_, rtol=1e-6)
    assert_allclose(down.atoms_, across.atoms_.swapaxes(1, 2), atol=1e-5)


def test_sparse_coding_equals_tubsc_on_columns(shapes):
    columns = small(TubSC, image_shape=(72, 1)).fit(shapes.reshape(30, -1))
    whole = small(SparseCoding).fit(shapes)
    assert_array_equal(whole.codes_, columns.codes_)
    assert_array_equal(whole.transform(shapes), whole.codes_[:, :, 0])  # signed
    assert_array_equal(columns.transform(shapes.reshape(30, -1)), abs(columns.codes_[:, :, 0]))


def test_gtsc_without_graph_weight_equals_tubsc(shapes):
    without_weight = small(GTSC, graph_weight=0.0).fit(shapes)
    without_graph = small(TubSC).fit(shapes)
    assert_array_equal(without_weight.codes_, without_graph.codes_)
    assert_array_equal(without_weight.transform(shapes), without_graph.transform(shapes))


@pytest.mark.parametrize("estimator", TUBAL)
def test_features_equal_equation_20(shapes, estimator):
    model = small(estimator).fit(shapes)
    expected = np.sqrt((model.codes_**2).sum(2))
    assert_allclose(model.transform(shapes), expected, rtol=1e-6)


def test_objective_equals_equation_8(shapes):
    images = shapes.astype(np.float64)
    model = small(GTSC, code_solver=Admm(max_iter=400, tol=1e-10), graph_weight=0.5, sparsity=0.02).fit(images)
    unit = images / np.sqrt((images**2).sum((1, 2), keepdims=True))
    adjacency = model.graph_.adjacency.toarray()
    expected = oracles.coding_objective(
        np.moveaxis(model.atoms_, 0, 1), np.moveaxis(unit, 0, 1), np.moveaxis(model.codes_, 0, 1), sparsity=0.02,
        graph_weight=0.5, laplacian=np.diag(adjacency.sum(1)) - adjacency,
    )  # fmt: skip
    assert_allclose(model.objective_[-1], expected, rtol=1e-5)
    assert_array_equal(adjacency, knn_graph(unit, 3).adjacency.toarray())


# --- parameters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ALL)
def test_constructor_keeps_parameters_as_given(estimator):
    solver, step = Admm(max_iter=7), ProjectedGradient()
    model = estimator(11, sparsity=0.5, code_solver=solver, dictionary_solver=step, scale=None)
    for copy in (model, clone(model)):
        assert copy.get_params()["n_atoms"] == 11
        assert copy.get_params()["scale"] is None
        assert copy.code_solver == solver
        assert copy.dictionary_solver == step


@pytest.mark.parametrize("estimator", ALL)
def test_default_parameters_are_those_of_the_paper(estimator):
    parameters = estimator().get_params()
    assert parameters["n_atoms"] == 45
    if "graph_weight" in parameters:
        assert (parameters["graph_weight"], parameters["n_neighbors"], parameters["graph"]) == (1.0, 3, "euclidean")


@pytest.mark.parametrize("code_solver", [Admm(max_iter=20), Fista(max_iter=60), PrintedIstt(max_iter=60)], ids=type)
@pytest.mark.parametrize("dictionary_solver", [LagrangeDual(), ProjectedGradient()], ids=type)
@pytest.mark.parametrize("estimator", TUBAL)
def test_given_solvers_are_used(shapes, estimator, code_solver, dictionary_solver):
    model = small(estimator, code_solver=code_solver, dictionary_solver=dictionary_solver).fit(shapes)
    assert np.isfinite(model.codes_).all()
    assert model.objective_[-1] < model.objective_[0]


@pytest.mark.parametrize("scale", ["unit", "max", None])
def test_decode_restores_every_scale(shapes, scale):
    images = 7.0 * shapes.astype(np.float64)
    model = small(TubSC, scale=scale, n_atoms=20, sparsity=1e-5, max_iter=20).fit(images)
    lengths = np.sqrt((images**2).sum((1, 2)))
    sizes = {"unit": lengths, "max": np.full(30, images.max()), None: np.ones(30)}[scale]
    rebuilt = model.decode(model.codes_, norms=sizes)
    # At so small a sparsity the codes explain nearly everything.
    assert np.linalg.norm(rebuilt - images) < 0.2 * np.linalg.norm(images)


def test_new_images_are_scaled_as_in_fitting(shapes):
    model = small(TubSC, scale="max").fit(shapes)
    assert_allclose(model.transform(0.5 * shapes[:3]), small_transform(model, 0.5 * shapes[:3]), rtol=1e-5)
    unit = small(TubSC).fit(shapes)
    assert_allclose(unit.transform(4.0 * shapes[:3]), unit.transform(shapes[:3]), rtol=1e-5)


def small_transform(model, images):
    """What transform does at scale="max", by hand."""
    unscaled = clone(model).set_params(scale=None)
    unscaled.__dict__.update({name: value for name, value in vars(model).items() if name.endswith("_")})
    return unscaled.transform(images / model.scale_factor_)


def test_init_accepts_atoms(shapes, rng):
    init = rng.normal(size=(9, 8, 5))
    first, second = (small(TubSC, init=init, random_state=seed).fit(shapes) for seed in (0, 1))
    assert_array_equal(first.codes_, second.codes_)
    other = small(TubSC, init="random").fit(shapes)
    assert not np.array_equal(other.codes_, first.codes_)


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("init", ["images", "random"])
def test_seeds_reproduce_bit_for_bit(shapes, backend, estimator, init):
    images = backend(shapes)
    first, second, other = (
        small(estimator, init=init, random_state=seed).fit(images) for seed in (3, np.random.RandomState(3), 4)
    )
    for name in ("codes_", "atoms_", "objective_"):
        assert_array_equal(to_numpy(getattr(first, name)), to_numpy(getattr(second, name)))
    assert not np.array_equal(first.objective_, other.objective_)


def test_callbacks_stop_the_fit_and_verbose_prints_to_standard_error(shapes, capsys):
    seen = []

    def record_and_stop(progress):
        seen.append((progress.n_iter, progress.objective))
        return progress.n_iter == 2

    model = small(GTSC, max_iter=9, tol=0.0, callbacks=record_and_stop, verbose=1).fit(shapes)
    assert model.n_iter_ == 2
    assert [value for _, value in seen] == [*model.objective_[:-1], seen[-1][1]]
    captured = capsys.readouterr()
    assert captured.out == ""
    small(GTSC, callbacks=[record_and_stop, seen.append]).fit(shapes)
    assert capsys.readouterr().err == ""


def test_reseeded_atoms_are_counted(shapes):
    model = small(TubSC, n_atoms=40, sparsity=0.4, max_iter=4).fit(shapes)
    assert model.n_reseeded_ > 0


@pytest.mark.parametrize("estimator", ALL)
def test_pickled_model_gives_the_same_features(shapes, estimator):
    model = small(estimator).fit(shapes)
    assert_array_equal(pickle.loads(pickle.dumps(model)).transform(shapes), model.transform(shapes))


@pytest.mark.parametrize("estimator", ALL)
def test_feature_names_start_with_the_class_name(shapes, estimator):
    model = small(estimator).fit(shapes)
    prefix = estimator.__name__.lower()
    assert list(model.get_feature_names_out()) == [f"{prefix}{index}" for index in range(5)]


# --- new images ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("graph", ["euclidean", "cosine"])
def test_transform_reproduces_the_codes_of_training_images(shapes, backend, estimator, graph):
    images = backend(shapes)
    parameters = {"graph": graph} if hasattr(estimator(), "graph") else {}
    model = small(estimator, **parameters)
    features = model.fit_transform(images)
    assert_array_equal(to_numpy(model.encode(images)), to_numpy(model.codes_))
    assert_array_equal(to_numpy(model.transform(images)), to_numpy(features))
    # In a smaller batch a product may round differently, and similar atoms magnify that.
    assert_allclose(to_numpy(model.encode(images[5:9])), to_numpy(model.codes_)[5:9], atol=5e-5)


@pytest.mark.parametrize("estimator", ALL)
def test_codes_do_not_depend_on_the_batch(shapes, estimator):
    model = small(estimator).fit(shapes[:20])
    together = model.encode(shapes[20:])
    for image in (20, 25):
        # As above, a product of another size may round differently, which depends on the processor.
        assert_allclose(model.encode(shapes[[image]])[0], together[image - 20], atol=5e-5)


def test_new_images_are_coded_with_fixed_neighbors(shapes):
    """The code of a new image minimises its own part of eq. 8, neighbours' codes held fixed."""
    images = shapes.astype(np.float64)
    model = small(GTSC, code_solver=Admm(max_iter=500, tol=1e-11)).fit(images[:25])
    unit = images / np.sqrt((images**2).sum((1, 2), keepdims=True))
    indices, weights = model.graph_.query(unit[25:])
    codes = np.moveaxis(model.encode(images[25:]), 0, 1)
    assert_array_equal(weights, 1.0)
    assert indices.shape == (5, 3)
    gradient = oracles.coding_gradient(np.moveaxis(model.atoms_, 0, 1), np.moveaxis(unit[25:], 0, 1), codes)
    differences = sum(codes - np.moveaxis(model.codes_[indices[:, slot]], 0, 1) for slot in range(3))
    gradient = gradient + 2.0 * model.graph_weight * oracles.stacked(differences)
    assert oracles.kkt_residual(gradient, oracles.stacked(codes), model.sparsity) < 1e-7


def test_encode_accepts_neighbors(shapes):
    model = small(GTSC).fit(shapes[:20])
    unit = shapes / np.sqrt((shapes**2).sum((1, 2), keepdims=True))
    indices, _ = model.graph_.query(unit[20:])
    assert_allclose(model.encode(shapes[20:], neighbors=indices), model.encode(shapes[20:]), atol=1e-6)
    others = np.argsort(np.random.default_rng(0).random((10, 20)), axis=1)[:, :3]
    assert not np.allclose(model.encode(shapes[20:], neighbors=others), model.encode(shapes[20:]))


@pytest.mark.parametrize("kind", ["matrix", "array", "Graph"])
def test_graph_accepts_a_matrix_or_a_graph(shapes, kind):
    unit = shapes / np.sqrt((shapes**2).sum((1, 2), keepdims=True))
    graph = knn_graph(unit, 3)
    given = {"matrix": graph.adjacency, "array": graph.adjacency.toarray(), "Graph": graph}[kind]
    model = small(GTSC, graph=given).fit(shapes)
    assert_allclose(model.codes_, small(GTSC).fit(shapes).codes_, atol=1e-6)
    if kind == "Graph":
        assert model.transform(shapes[:2] + 0.1).shape == (2, 5)


def test_disconnected_graph_gives_finite_codes(shapes):
    adjacency = np.zeros((30, 30))
    adjacency[0, 1] = adjacency[1, 0] = adjacency[2, 3] = adjacency[3, 2] = 1.0
    model = small(GTSC, graph=adjacency).fit(shapes)
    assert np.isfinite(model.codes_).all()


def test_graph_weight_makes_codes_of_neighbors_similar(shapes):
    def spread(graph_weight):
        model = small(GTSC, graph_weight=graph_weight).fit(shapes.astype(np.float64))
        codes = model.codes_.reshape(30, -1)
        laplacian = np.diag(model.graph_.adjacency.sum(1).A1) - model.graph_.adjacency.toarray()
        return np.trace(codes.T @ laplacian @ codes) / np.sum(codes**2)

    assert spread(10.0) < spread(1.0) < spread(0.01)


# --- shift invariance, batches ---------------------------------------------------------------------------------


def test_shifted_image_has_shifted_codes(shapes):
    """Shift invariance, the point of the model: an image rolled along the tube has the same codes, rolled."""
    images = shapes.astype(np.float64)
    model = small(TubSC, n_atoms=4, code_solver=Admm(max_iter=500, tol=1e-12)).fit(images)
    here, there = model.encode(images[:1]), model.encode(np.roll(images[:1], 3, axis=2))
    assert_allclose(there, np.roll(here, 3, axis=2), atol=1e-6)
    assert_allclose(model.transform(np.roll(images, 3, axis=2)), model.transform(images), atol=1e-5)


@pytest.mark.parametrize("estimator", [TubSC, GTSC])
def test_batch_size_does_not_change_the_codes(estimator, shapes, monkeypatch):
    model = small(estimator).fit(shapes)
    new = np.concatenate([shapes[:2], shapes + 0.01])
    expected = model.encode(new)
    monkeypatch.setattr("tubal.estimators.image_coder.ENCODE_BATCH", 8)
    found = model.encode(new)
    assert_allclose(found, expected, atol=1e-6)
    assert found.strides[0] == found.itemsize  # the same order in memory as codes_
