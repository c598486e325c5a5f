"""Bad input raises an error that names the value and the remedy; unusual input gives finite results."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from tubal import CSC, GTSC, GraphSC, SparseCoding, TubSC
from tubal.backends.arrays import to_numpy
from tubal.graph import knn_graph
from tubal.solvers import Admm

ALL = [TubSC, GTSC, SparseCoding, GraphSC]
N, HEIGHT, WIDTH = 12, 5, 4
IMAGES = np.random.default_rng(0).random((N, HEIGHT, WIDTH))


def with_value(value, place=(3, 2, 1)):
    images = IMAGES.copy()
    images[place] = value
    return images


def objects_of(images):
    """Return an array of objects, each an image, as a column of a table is."""
    found = np.empty(len(images), object)
    found[:] = list(images)
    return found


def check_sentence(caught, *words):
    """Check that an error is one line that contains the given words."""
    message = str(caught.value)
    assert "\n" not in message.strip()
    assert 20 < len(message) < 300
    for word in words:
        assert word in message, message


BAD_IMAGES = [
    ("NaN", with_value(np.nan), ("NaN", "image 3", "(2, 1)", "replace or drop")),
    ("NaN in rows", with_value(np.nan).reshape(N, -1), ("NaN", "image 3", "replace or drop")),
    ("infinity", with_value(-np.inf), ("infinity", "image 3", "replace or drop")),
    ("empty stack", IMAGES[:0], ("(0, 5, 4)", "at least one")),
    ("empty rows", IMAGES[:0].reshape(0, 20), ("(0, 20)", "at least one")),
    ("no pixels", IMAGES[:, :0], ("(0, 4)", "at least 1")),
    ("one vector", IMAGES[:, 0, 0], ("(12,)", "Reshape")),
    ("five axes", IMAGES[:, :, :, None, None], ("(12, 5, 4, 1, 1)", "is wanted")),
    ("strings", np.full((N, 2, 2), "cat.png"), ("<U7", "load_image_folder")),
    ("strings in rows", np.full((N, 3), "a"), ("<U1", "load_image_folder")),
    ("list of strings", ["a.png", "b.png"], ("<U5", "load_image_folder")),
    ("strings as objects", np.full((N, 2, 2), "a", object), ("text", "load_image_folder")),
    ("complex", IMAGES + 1j, ("complex128", "absolute value")),
    ("complex rows", (IMAGES + 1j).reshape(N, -1), ("complex128", "absolute value")),
    ("ragged list", [np.zeros((3, 3)), np.zeros((4, 4))], ("different shapes", "resize")),
    ("a list with a gap", [IMAGES[0], None, IMAGES[1]], ("image 1 of the list is a NoneType", "leave it out")),
    ("a list of paths", [Path("a.png"), Path("b.png")], ("2 objects such as a", "Path", "load_image_folder")),
    ("objects that are images", objects_of(IMAGES), ("12 objects such as a ndarray", "numpy.stack(list(X))")),
    ("nothing", None, ("NoneType", "is wanted")),
    ("a dictionary", {"images": IMAGES}, ("dict", "is wanted")),
    ("a path", "pictures/", ("str", "is wanted")),
]


@pytest.mark.parametrize(("images", "words"), [case[1:] for case in BAD_IMAGES], ids=[case[0] for case in BAD_IMAGES])
@pytest.mark.parametrize("estimator", [TubSC, GTSC])
def test_bad_images_raise_a_one_sentence_error(estimator, images, words):
    with pytest.raises((ValueError, TypeError)) as caught:
        estimator(n_atoms=3).fit(images)
    check_sentence(caught, *words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensor, torch: tensor * float("nan"), ("NaN", "image 0", "replace or drop")),
        (lambda tensor, torch: tensor / 0.0, ("infinity", "replace or drop")),
        (lambda tensor, torch: tensor + 1j, ("complex128", "absolute value")),
        (lambda tensor, torch: tensor[:0], ("(0, 5, 4)", "at least one")),
        (lambda tensor, torch: tensor[0, 0], ("(4,)", "is wanted")),
        (lambda tensor, torch: tensor.to_sparse(), ("sparse tensor", "X.to_dense()")),
        (lambda tensor, torch: list(tensor.requires_grad_()), ("requires gradients", "X.detach()")),
    ],
    ids=["NaN", "infinity", "complex", "empty", "one vector", "sparse", "a list that requires gradients"],
)
def test_bad_tensors_raise_a_one_sentence_error(change, words):
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'tubal[torch]'")
    with pytest.raises((ValueError, TypeError)) as caught:
        GTSC(n_atoms=3).fit(change(torch.as_tensor(IMAGES), torch))
    check_sentence(caught, *words)


BAD_PARAMETERS = [
    ({"n_atoms": 0}, ("n_atoms=0", "at least 1")),
    ({"n_atoms": -3}, ("n_atoms=-3", "at least 1")),
    ({"n_atoms": 2.5}, ("n_atoms=2.5", "integer")),
    ({"n_atoms": "many"}, ("n_atoms='many'", "integer")),
    ({"sparsity": -0.1}, ("sparsity=-0.1", "at least 0")),
    ({"sparsity": np.nan}, ("sparsity=nan", "finite")),
    ({"sparsity": "l1"}, ("sparsity='l1'", "number")),
    ({"graph_weight": -1.0}, ("graph_weight=-1.0", "at least 0")),
    ({"graph_weight": np.inf}, ("graph_weight=inf", "finite")),
    ({"n_neighbors": N}, ("n_neighbors=12", "n_samples = 12", "lower n_neighbors")),
    ({"n_neighbors": 100}, ("n_neighbors=100", "lower n_neighbors")),
    ({"n_neighbors": 0}, ("n_neighbors=0", "at least 1")),
    ({"n_neighbors": 1.5}, ("n_neighbors=1.5", "integer")),
    ({"graph": "nearest"}, ("'nearest'", "'euclidean'")),
    ({"graph": 3}, ("int", "symmetric")),
    ({"graph": sparse.csr_matrix((11, 11))}, ("11 images", "12 images", "one row per image")),
    ({"graph": np.zeros((12, 11))}, ("(12, 11)", "square")),
    ({"graph": np.triu(np.ones((N, N)), 1)}, ("not symmetric", "maximum")),
    ({"graph": np.eye(N, k=1) * -1 + np.eye(N, k=-1) * -1}, ("negative", "-1")),
    ({"graph": np.full((N, N), np.nan)}, ("NaN", "drop")),
    ({"graph": np.ones((N, N))}, ("diagonal", "setdiag")),
    ({"graph": knn_graph(IMAGES[:9], 3)}, ("9 images", "12 images", "same images")),
    ({"scale": "l2"}, ("scale='l2'", "'unit'")),
    ({"image_shape": (5, 5)}, ("(5, 5)", "(5, 4)", "leave image_shape out")),
    ({"tube_axis": 0}, ("tube_axis=0", "-1, -2")),
    ({"tube_axis": "width"}, ("tube_axis='width'", "-1, -2")),
    ({"max_iter": 0}, ("max_iter=0", "at least 1")),
    ({"max_iter": 2.5}, ("max_iter=2.5", "integer")),
    ({"tol": -1.0}, ("tol=-1.0", "at least 0")),
    ({"init": "kmeans"}, ("init='kmeans'", "'images'")),
    ({"init": np.ones((WIDTH, HEIGHT, 2))}, ("(4, 5, 2)", "(4, 5, 3)")),
    ({"init": np.zeros((WIDTH, HEIGHT, 3))}, ("atom 0", "not zero")),
    ({"init": np.full((WIDTH, HEIGHT, 3), np.nan)}, ("atom 0", "nan", "finite")),
    ({"code_solver": "admm"}, ("code_solver='admm'", "Admm(")),
    ({"code_solver": Admm}, ("code_solver=", "Admm(")),
    ({"dictionary_solver": 7}, ("dictionary_solver=7", "LagrangeDual()")),
    ({"callbacks": 3}, ("callbacks=3", "functions")),
    ({"callbacks": [print, "stop"]}, ("callbacks=", "functions")),
]


@pytest.mark.parametrize(("parameters", "words"), BAD_PARAMETERS, ids=[str(sorted(p))[1:-1] for p, _ in BAD_PARAMETERS])
def test_bad_parameters_raise_one_sentence_errors(parameters, words):
    with pytest.raises((ValueError, TypeError)) as caught:
        GTSC(**{"n_atoms": 3, "max_iter": 3} | parameters).fit(IMAGES)
    check_sentence(caught, *words)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((5, 5), ("(5, 5)", "25 pixels", "20 features")),
        ((20,), ("(20,)", "(height, width)")),
        ((5, 4, 1, 1), ("(5, 4, 1, 1)", "(height, width)")),
        ((-5, -4), ("(-5, -4)", "(height, width)")),
        ((5.0, 4.0), ("(5.0, 4.0)", "(height, width)")),
        (20, ("image_shape=20", "(height, width)")),
        ("5x4", ("'5x4'", "(height, width)")),
    ],
)
def test_wrong_shape_of_rows_raises(shape, words):
    with pytest.raises((ValueError, TypeError)) as caught:
        TubSC(n_atoms=3, image_shape=shape).fit(IMAGES.reshape(N, -1))
    check_sentence(caught, *words)


@pytest.mark.parametrize("estimator", [GTSC, GraphSC])
def test_graph_of_one_image_raises(estimator):
    with pytest.raises(ValueError) as caught:
        estimator(n_atoms=2).fit(IMAGES[:1])
    check_sentence(caught, "n_samples = 1", "lower n_neighbors or pass more images")


@pytest.fixture(scope="module")
def fitted():
    return GTSC(n_atoms=3, max_iter=3, random_state=0).fit(IMAGES)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model: model.transform(IMAGES[:, :4]), ("(4, 4)", "(5, 4)", "resize")),
        (lambda model: model.transform(IMAGES[0]), ("(1, 4)", "(5, 4)", "X[None] if it is one image")),
        (lambda model: model.transform(IMAGES.reshape(N, -1)), ("(1, 20)", "(5, 4)", "reshape X to (n, 5, 4)")),
        (lambda model: model.transform(with_value(np.nan)), ("NaN", "image 3", "replace or drop")),
        (lambda model: model.transform(IMAGES[:2], neighbors=[0, 1]), ("(2,)", "integers (n, q)")),
        (lambda model: model.transform(IMAGES[:2], neighbors=[[0.5], [1.5]]), ("float64", "integers (n, q)")),
        (lambda model: model.transform(IMAGES[:2], neighbors=[[0], [12]]), ("0 to 12", "0 to 11")),
        (lambda model: model.transform(IMAGES[:2], neighbors=[[-1], [0]]), ("-1", "0 to 11")),
        (lambda model: model.decode(np.zeros((2, 3))), ("(2, 3)", "(n, 3, 4)", "encode")),
        (lambda model: model.decode(np.zeros((2, 4, 4))), ("(2, 4, 4)", "(n, 3, 4)")),
        (lambda model: model.decode(np.zeros((2, 3, 4)), norms=[1.0]), ("(1,)", "2 images")),
        (lambda model: model.decode(np.zeros((2, 3, 4)), norms=2.0), ("shape ()", "2 images")),
        (lambda model: model.explain(IMAGES), ("(12, 5, 4)", "(5, 4)")),
        (lambda model: model.explain(IMAGES[0, :4]), ("(4, 4)", "(5, 4)", "resize")),
    ],
)
def test_bad_arguments_of_a_fitted_model_raise(fitted, call, words):
    with pytest.raises(ValueError) as caught:
        call(fitted)
    check_sentence(caught, *words)


@pytest.mark.parametrize("estimator", [*ALL, CSC])
def test_codes_of_any_real_type_are_decoded(estimator):
    model = estimator(n_atoms=3, max_iter=1, random_state=0).fit(IMAGES)
    whole = np.round(model.codes_)
    assert np.allclose(model.decode(whole.astype(int)), model.decode(whole))
    assert model.decode(whole[:0]).shape == (0, 5, 4)
    with pytest.raises(TypeError, match="complex128; real numbers are wanted"):
        model.decode(whole + 1j)


@pytest.mark.parametrize("method", ["transform", "encode", "decode", "explain"])
def test_unfitted_models_raise(method):
    with pytest.raises(ValueError, match="not fitted yet"):
        getattr(GTSC(), method)(IMAGES)


def test_new_images_with_a_matrix_as_graph_need_neighbours():
    adjacency = knn_graph(IMAGES, 3).adjacency
    model = GTSC(n_atoms=3, max_iter=3, graph=adjacency, random_state=0).fit(IMAGES)
    with pytest.raises(ValueError) as caught:
        model.transform(IMAGES[:2] + 0.1)
    check_sentence(caught, "matrix", "neighbors=", "knn_graph()")
    assert model.transform(IMAGES[:2] + 0.1, neighbors=[[0, 1], [2, 3]]).shape == (2, 3)


def test_images_after_rows_must_be_reshaped():
    model = TubSC(n_atoms=3, max_iter=1, random_state=0).fit(IMAGES.reshape(N, -1))
    with pytest.raises(ValueError) as caught:
        model.transform(IMAGES)
    check_sentence(caught, "(5, 4)", "(1, 20)", "reshape X to (n, 20)")


def test_shape_of_a_stack_may_be_a_list():
    assert TubSC(n_atoms=3, max_iter=1, image_shape=[5, 4]).fit(IMAGES).image_shape_ == (5, 4)


# --- unusual but valid ------------------------------------------------------------------------------------------

UNUSUAL = {
    "constant": np.ones((8, 5, 4)),
    "blank": np.zeros((8, 5, 4)),
    "one blank among others": np.concatenate([IMAGES[:7], np.zeros((1, 5, 4))]),
    "one constant among others": np.concatenate([IMAGES[:7], np.full((1, 5, 4), 0.3)]),
    "copies": np.repeat(IMAGES[:3], 4, axis=0),
    "fewer images than atoms": IMAGES[:5],
    "negative": -IMAGES,
    "one row": IMAGES[:, :1],
    "one column": IMAGES[:, :, :1],
    "one pixel": IMAGES[:, :1, :1],
    "bytes": (255 * IMAGES).astype(np.uint8),
    "truth values": IMAGES > 0.5,
    "sixteen-bit integers": (60000 * IMAGES).astype(np.uint16),
    "long integers": (1e6 * IMAGES).astype(np.int64),
    "half precision": IMAGES.astype(np.float16),
    "colour": np.random.default_rng(1).random((9, 5, 4, 3)),
    "Fortran order": np.asfortranarray(IMAGES),
    "a view": IMAGES[::2, ::-1],
    "read-only": np.broadcast_to(IMAGES[0], (6, 5, 4)),
    "huge": 1e300 * IMAGES,
    "tiny": 1e-300 * IMAGES,
    "huge, single precision": (1e37 * IMAGES).astype(np.float32),
    "a list of lists": IMAGES.tolist(),
}


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_images_give_finite_results(estimator, name):
    images = UNUSUAL[name]
    model = estimator(n_atoms=6, max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        features = model.fit_transform(images)
        again = model.transform(images)
    for values in (features, again, model.atoms_, model.codes_, model.objective_, model.decode(model.codes_)):
        assert np.isfinite(to_numpy(values)).all()
    assert features.shape == (len(images), 6)
    assert np.diff(model.objective_).max(initial=0.0) <= 1e-5 * abs(model.objective_[0]) + 1e-12


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_strong_sparsity_on_nearly_blank_images_gives_no_overflow():
    model = TubSC(n_atoms=3, max_iter=2, scale=None, sparsity=1e10, random_state=0)
    assert not model.fit_transform(1e-300 * IMAGES).any()


def test_equal_images_get_equal_features():
    images = np.repeat(IMAGES[:3], 4, axis=0)
    for estimator in ALL:
        model = estimator(n_atoms=2, max_iter=3, random_state=0).fit(images)
        features = model.transform(images).reshape(3, 4, -1)
        assert np.array_equal(features, features[:, :1].repeat(4, axis=1))


@pytest.mark.parametrize("estimator", ALL)
def test_input_is_not_changed(estimator):
    images = IMAGES.copy()
    estimator(n_atoms=3, max_iter=2, random_state=0).fit(images).transform(images)
    assert np.array_equal(images, IMAGES)


@pytest.mark.parametrize("scale", ["unit", "max", None])
def test_single_precision_is_kept(scale):
    images = IMAGES.astype(np.float32)
    model = GTSC(n_atoms=3, max_iter=2, scale=scale, random_state=0).fit(images)
    for values in (model.atoms_, model.codes_, model.transform(images), model.decode(model.codes_)):
        assert values.dtype == np.float32


def test_features_that_overflow_raise(monkeypatch):
    model = TubSC(n_atoms=3, max_iter=1, random_state=0).fit(IMAGES.astype(np.float32))
    monkeypatch.setattr(TubSC, "encode", lambda *_: np.full_like(model.codes_, 1e38))
    with pytest.raises(ValueError, match="too large for float32"):
        model.transform(IMAGES)
