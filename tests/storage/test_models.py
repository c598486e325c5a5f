"""Model files: loading gives the saved model, and damaged or forged files raise an error."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

import tubal
from helpers.forgeries import set_array, set_value, store_array
from helpers.kills import SAVE_FOREVER
from helpers.mutations import repack, try_mutations, unpack
from tubal.clustering.views import describe_new
from tubal.graph import knn_graph
from tubal.solvers import Admm, Fista, LagrangeDual, ProjectedGradient
from tubal.storage.models import deflate, inflate

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(3).random((20, 5, 4)).astype(np.float32)


def fitted(name, images, **parameters):
    parameters = {"n_atoms": 3, "max_iter": 2, "random_state": 0, "code_solver": Admm(max_iter=20)} | parameters
    return getattr(tubal, name)(**parameters).fit(images)


def assert_same_model(left, right):
    assert type(left) is type(right)
    assert vars(left).keys() == vars(right).keys()
    assert_array_equal(left.atoms_, right.atoms_)
    assert_array_equal(left.codes_, right.codes_)
    assert left.atoms_.dtype == right.atoms_.dtype
    assert_array_equal(left.objective_, right.objective_)
    given = right.get_params(deep=False)
    assert all(np.all(value == given[name]) for name, value in left.get_params(deep=False).items())


@pytest.mark.parametrize("name", ["GTSC", "TubSC", "GraphSC", "SparseCoding", "TenSR", "CSC"])
def test_loaded_model_is_identical(name, images, tmp_path):
    atoms = {"n_atoms": (2, 3)} if name == "TenSR" else {}
    model, path = fitted(name, images, **atoms), tmp_path / "model.tubal"
    tubal.save(model, path)
    loaded = tubal.load(path)
    assert_same_model(loaded, model)
    new = images[:3] + np.float32(0.01)
    assert_array_equal(loaded.transform(new), model.transform(new))
    assert_array_equal(loaded.transform(images), model.transform(images))


def test_loaded_clusterer_is_identical(images, tmp_path):
    model = tubal.ImageClusterer(n_clusters=2, random_state=0).fit(images)
    tubal.save(model, tmp_path / "model")
    loaded = tubal.load(tmp_path / "model")
    assert vars(loaded).keys() == vars(model).keys()
    assert_array_equal(loaded.labels_, model.labels_)
    assert_array_equal(loaded.predict(images + np.float32(0.01)), model.predict(images + np.float32(0.01)))


def test_saving_again_gives_the_same_bytes(images, tmp_path):
    model = fitted("GTSC", images)
    tubal.save(model, tmp_path / "first")
    tubal.save(tubal.load(tmp_path / "first"), tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@pytest.mark.parametrize(
    "parameters",
    [
        {"code_solver": Fista(max_iter=10), "dictionary_solver": ProjectedGradient(max_iter=20)},
        {"dictionary_solver": LagrangeDual(max_iter=7), "sparsity": np.float64(0.02), "n_atoms": np.int64(2)},
        {"random_state": np.random.RandomState(5), "init": "random", "tube_axis": -2},
        {"graph": "cosine", "scale": None, "tol": 0.0, "image_shape": (5, 4)},
    ],
)
def test_parameters_are_loaded(parameters, images, tmp_path):
    model = fitted("GTSC", images, **parameters)
    tubal.save(model, tmp_path / "model")
    loaded = tubal.load(tmp_path / "model")
    if "random_state" in parameters:
        assert_array_equal(loaded.random_state.rand(4), model.random_state.rand(4))
        loaded.random_state = model.random_state
    assert_same_model(loaded, model)


def test_given_graph_is_loaded(images, tmp_path):
    graph = knn_graph(images, 2)
    for given in (graph, sp.coo_array(graph.adjacency), graph.adjacency.toarray()):
        model = fitted("GTSC", images, graph=given)
        tubal.save(model, tmp_path / "model")
        loaded = tubal.load(tmp_path / "model")
        assert_array_equal(loaded.graph_.adjacency.toarray(), graph.adjacency.toarray())
        assert_array_equal(loaded.codes_, model.codes_)


def test_init_array_and_column_names_are_loaded(tmp_path):
    rows, start = np.random.default_rng(0).random((9, 6)), np.random.default_rng(1).random((6, 1, 3))
    model = tubal.TubSC(n_atoms=3, init=start, max_iter=2).fit(rows)
    model.feature_names_in_ = np.array([f"pixel {i}" for i in range(6)], object)  # as from a data frame
    tubal.save(model, tmp_path / "model")
    loaded = tubal.load(tmp_path / "model")
    assert_array_equal(loaded.init, start)
    assert_array_equal(loaded.feature_names_in_, model.feature_names_in_)
    assert loaded.feature_names_in_.dtype == object


def test_torch_model_loads_as_numpy_without_callbacks(images, tmp_path):
    torch = pytest.importorskip("torch")
    model = fitted("GTSC", torch.as_tensor(images), callbacks=[lambda progress: None])
    tubal.save(model, tmp_path / "model")
    loaded = tubal.load(tmp_path / "model")
    assert loaded.callbacks is None
    assert isinstance(loaded.atoms_, np.ndarray)
    new = torch.as_tensor(images)
    np.testing.assert_allclose(loaded.transform(new), model.transform(new), rtol=1e-6)


def test_format_1_loads():
    model = tubal.load(DATA / "format_1.tubal")
    images = np.random.default_rng(7).random((12, 5, 4)).round(3)
    np.testing.assert_allclose(
        model.transform(images[:4] + 0.01), np.load(DATA / "format_1_features.npy"), rtol=1e-3, atol=1e-5
    )
    assert_array_equal(model.encode(images), model.codes_)


def test_format_1_with_stored_features_loads(tmp_path):
    # Given a file that stores all edges and features, without compression
    model, expected = tubal.load(DATA / "format_1_views.tubal"), np.load(DATA / "format_1_views.npz")
    assert_array_equal(model.labels_, expected["labels"])
    assert_array_equal(model.predict(expected["images"]), expected["labels"])
    # When it is saved in the present format
    tubal.save(model, tmp_path / "model")
    loaded = tubal.load(tmp_path / "model")
    # Then its answers are the same
    found = loaded.similar(expected["new"])
    assert_array_equal(found.indices, expected["neighbors"])
    np.testing.assert_allclose(found.distances, expected["distances"], atol=1e-5)
    rows = [one.view_graphs_["colour"].search.images for one in (model, loaded)]
    assert_array_equal(*rows)


# --- compact files -------------------------------------------------------------------------------------------
def _eight_bit(peak, dtype=np.float32):
    levels = np.random.default_rng(peak).integers(0, peak + 1, (30, 12, 10))
    levels[:, 0, 0], levels[7] = peak, 0
    return (levels / 255).astype(dtype)


def _types_and_shapes(manifest):
    """Return type and shape of all arrays in a file; compressed ones state theirs in the content."""
    found = [[entry["dtype"], entry["shape"]] for entry in manifest["arrays"].values()]
    waiting = [manifest["content"]]
    while waiting:
        tree = waiting.pop()
        if isinstance(tree, dict) and "$deflated" in tree:
            found.append([tree["dtype"], tree["shape"]])
        waiting += list(tree.values()) if isinstance(tree, dict) else tree if isinstance(tree, list) else []
    return found


@pytest.mark.parametrize("scale", ["unit", "max", None])
@pytest.mark.parametrize(
    "images", [_eight_bit(255), _eight_bit(201), _eight_bit(77, np.float64), 255 * _eight_bit(255)]
)
def test_eight_bit_pictures_are_stored_as_bytes(images, scale, tmp_path):
    model = fitted("GTSC", images, scale=scale, max_iter=1)
    tubal.save(model, tmp_path / "model")
    manifest, _ = unpack((tmp_path / "model").read_bytes())
    assert ["|u1", list(images.shape)] in _types_and_shapes(manifest)
    loaded = tubal.load(tmp_path / "model").graph_.search.images
    assert loaded.dtype == model.graph_.search.images.dtype
    assert loaded.tobytes() == model.graph_.search.images.tobytes()


def test_other_pictures_are_stored_as_they_are(tmp_path):
    images = _eight_bit(255)
    images[3, 4, 5] += 1e-3
    model = fitted("GTSC", images, max_iter=1)
    tubal.save(model, tmp_path / "model")
    assert_array_equal(tubal.load(tmp_path / "model").graph_.search.images, model.graph_.search.images)


def test_sparse_codes_take_little_room(tmp_path):
    model = fitted("TubSC", _eight_bit(255), n_atoms=20, max_iter=1)
    sizes = {}
    for density in (0.05, 1.0):
        model.codes_ = np.random.default_rng(0).random(model.codes_.shape).astype(np.float32)
        model.codes_[model.codes_ >= density] = 0
        tubal.save(model, tmp_path / "model")
        sizes[density] = (tmp_path / "model").stat().st_size
        assert_array_equal(tubal.load(tmp_path / "model").codes_, model.codes_)
    # Dense codes are compressed, too, but only a little.
    assert sizes[1.0] - sizes[0.05] > 0.7 * model.codes_.nbytes


def _noisy_shapes(n_images, side):
    shapes = tubal.datasets.make_shifted_shapes(n_images, n_classes=3, image_shape=(side, side), random_state=0).images
    noisy = shapes + 0.2 * np.random.default_rng(0).random(shapes.shape)
    return (np.rint(255 * noisy.clip(0, 1)) / 255).astype(np.float32)


def test_clusterer_takes_little_more_room_than_its_pictures(tmp_path):
    images = _noisy_shapes(120, 48)
    model = tubal.ImageClusterer(3, n_atoms=8, views="shape", random_state=0).fit(images)
    tubal.save(model, tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 1.5 * images.size


def _colour_pictures(n_images, side, seed=0):
    """Return 8-bit colour pictures of two kinds, fine and coarse noise in different colours."""
    random = np.random.default_rng(seed)
    levels = random.integers(0, 200, (n_images, side, side, 3))
    coarse = np.arange(n_images) % 2 == 0
    levels[coarse] = np.repeat(np.repeat(levels[coarse, ::4, ::4], 4, axis=1), 4, axis=2)
    levels[coarse, ..., 0] += 55
    return (levels / 255).astype(np.float32)


@pytest.fixture(scope="module")
def colour_clusterer():
    images = _colour_pictures(100, 32)
    return images, tubal.ImageClusterer(2, n_atoms=6, views=["colour", "texture"], random_state=0).fit(images)


def test_clusterer_that_trusts_colour_or_texture_takes_little_room(colour_clusterer, tmp_path):
    """Noise cannot be compressed; photographs can, see docs/scale.md for what real piles take."""
    images, model = colour_clusterer
    assert max(model.view_weights_.values()) == 1.0
    tubal.save(model, tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 1.5 * images.size


def _assert_same_answers(loaded, model, images):
    assert loaded.view_weights_ == model.view_weights_
    assert_array_equal(loaded.predict(images), model.predict(images))
    left, right = loaded.similar(images), model.similar(images)
    assert_array_equal(left.indices, right.indices)
    assert_array_equal(left.distances, right.distances)
    for name, trust in model.view_weights_.items():
        if trust > 0.0 and name != "shape":
            rows = [one.view_graphs_[name].search.images for one in (loaded, model)]
            assert rows[0].dtype == rows[1].dtype
            assert_array_equal(*rows)


def _saved_and_loaded(model, path):
    tubal.save(model, path)
    loaded = tubal.load(path)
    tubal.save(loaded, path.with_name("again"))
    assert path.read_bytes() == path.with_name("again").read_bytes()
    return loaded


@pytest.mark.parametrize("view", ["colour", "texture"])
@pytest.mark.parametrize("white", [1.0, 255.0])
def test_features_are_computed_again_bit_for_bit(view, white, tmp_path):
    images = np.rint(255 * _colour_pictures(30, 16)).astype(np.float32) / np.float32(255.0 / white)
    images[7] = 0.0
    model = tubal.ImageClusterer(2, n_atoms=4, views=[view], random_state=0).fit(images)
    loaded = _saved_and_loaded(model, tmp_path / "model")
    assert loaded.view_graphs_[view].search.kind == "described"
    _assert_same_answers(loaded, model, np.concatenate([images[:5], images[5:9] * np.float32(0.9)]))


def test_grown_and_reduced_collections_give_the_same_answers(colour_clusterer, tmp_path):
    # Given a model that was loaded, and the one that was saved
    images, model = colour_clusterer
    tubal.save(model, tmp_path / "model")
    loaded, kept = tubal.load(tmp_path / "model"), tubal.load(tmp_path / "model")
    new = _colour_pictures(5, 32, seed=1)
    # When images are added and removed, and the result is stored again
    grown = loaded.update(new).remove([0, 3])
    again = _saved_and_loaded(grown, tmp_path / "grown")
    # Then the stored model has the features of all images
    _assert_same_answers(again, grown, np.concatenate([new, images[:4] * np.float32(0.95)]))
    assert (tmp_path / "grown").stat().st_size < 1.5 * images.size
    # And other pictures than 8-bit ones are kept with their features
    odd = _saved_and_loaded(kept.update(new + np.float32(1e-4)), tmp_path / "odd")
    assert {graph.search.kind for graph in odd.view_graphs_.values() if graph.search} == {"exact"}
    _assert_same_answers(odd, kept, new)


def test_a_function_that_has_the_name_of_a_built_in_view_is_not_replaced_by_it(tmp_path):
    images = _eight_bit(255)
    model = tubal.ImageClusterer(3, views={"colour": lambda stack: stack.mean(axis=1)}, random_state=0).fit(images)
    tubal.save(model, tmp_path / "model")
    loaded = tubal.load(tmp_path / "model")
    assert loaded.views_ == {"colour": "function"}
    assert_array_equal(loaded.view_graphs_["colour"].search.images, model.view_graphs_["colour"].search.images)
    assert describe_new(loaded, images, {}) == {}


def test_features_of_other_pictures_are_stored(tmp_path):
    images = _colour_pictures(30, 16) * np.float32(0.77)
    model = tubal.ImageClusterer(2, n_atoms=4, views=["colour"], random_state=0).fit(images)
    loaded = _saved_and_loaded(model, tmp_path / "model")
    assert loaded.view_graphs_["colour"].search.kind == "exact"
    _assert_same_answers(loaded, model, images[:9])


def test_edges_of_neighbour_lists_are_not_stored(images, tmp_path):
    for weights in ("binary", "heat"):
        model = fitted("GTSC", images, graph=knn_graph(images, 3, weights=weights))
        tubal.save(model, tmp_path / "model")
        manifest, _ = unpack((tmp_path / "model").read_bytes())
        assert not [name for name in manifest["content"]["fitted"]["graph_"]["arrays"] if "adjacency" in name]
        loaded = tubal.load(tmp_path / "model").graph_.adjacency
        for name in ("data", "indices", "indptr"):
            assert_array_equal(getattr(loaded, name), getattr(model.graph_.adjacency, name))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(-5000, 5000), np.arange(3000, dtype=np.int32) ** 2, np.zeros((40, 50)), np.full(2000, -np.inf),
        np.arange(6000, dtype=np.uint8).reshape(5, 20, 20, 3), np.arange(4000, dtype=np.uint16).reshape(4, 1000),
        np.linspace(0, 1, 4000, dtype=np.float32).reshape(2, 2, 1000)[:, ::-1], np.arange(2048.0).astype(np.float16),
    ],
)  # fmt: skip
def test_compressed_arrays_are_restored(array):
    stream, axes = deflate(array)
    assert len(stream) < array.nbytes <= 32 * len(stream)
    restored = inflate(stream, array.dtype.str, list(array.shape), axes)
    assert (restored.dtype, restored.shape) == (array.dtype, array.shape)
    assert restored.tobytes() == array.tobytes()
    assert restored.flags.writeable


@pytest.mark.parametrize(
    "forgery",
    [
        {"shape": [10**12]}, {"shape": [1 << 20]}, {"shape": [0]}, {"shape": [-1, -2000]}, {"shape": [2000.0]},
        {"shape": None}, {"shape": 2000}, {"dtype": "|O"}, {"dtype": "<c16"}, {"dtype": None}, {"axes": [1]},
        {"axes": [-1]}, {"axes": None}, {"axes": [0] * 9}, {"shape": [1] * 70, "axes": []},
        {"stream": np.zeros(0, np.uint8)}, {"stream": np.arange(99, dtype=np.uint8)}, {"stream": np.zeros((9, 9))},
    ],
)  # fmt: skip
def test_forged_streams_raise_before_allocation(forgery, tmp_path):
    model = fitted("TubSC", _eight_bit(255), max_iter=1)
    model.extra_ = np.arange(2000) % 3 << 40
    tubal.save(model, tmp_path / "model")
    manifest, members = unpack((tmp_path / "model").read_bytes())
    place = manifest["content"]["fitted"]["extra_"]
    for name, value in forgery.items():
        if name == "stream":
            store_array(manifest, members, place["$deflated"]["$array"], value)
        else:
            place[name] = value
    forged(tmp_path, repack(manifest, members), r"^[^\n]*cannot be loaded[^\n]*$")


def test_stream_is_unpacked_once(tmp_path):
    model = fitted("TubSC", _eight_bit(255), max_iter=1)
    model.extra_ = np.arange(2000) % 3 << 40
    tubal.save(model, tmp_path / "model")
    manifest, members = unpack((tmp_path / "model").read_bytes())
    fitted_values = manifest["content"]["fitted"]
    fitted_values["more_"] = fitted_values["extra_"] | {"shape": [1000, 2]}
    forged(tmp_path, repack(manifest, members), "cannot be loaded")


def test_forged_descriptions_raise(colour_clusterer, tmp_path):
    # Given the file of a model whose features are computed again
    _, model = colour_clusterer
    tubal.save(model, tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    name = max(model.view_weights_, key=model.view_weights_.get)
    described = {"kind": "described", "metric": "cosine"}
    forgeries = {
        "fitted._peaks_": None,
        f"fitted.views_.{name}": "given",
        f"fitted.view_graphs_.{name}.$graph.search.metric": "other",
        f"fitted.view_graphs_.{name}.$graph.search.kind": "exact",
        "fitted.graph_.$graph.search": described,
        "fitted.model_.fitted.graph_.$graph.search": described,
        "fitted.white_": 0.0,
    }
    # When a value is changed, then the file is refused
    for path, value in forgeries.items():
        manifest, members = unpack(data)
        set_value(manifest, path, value)
        forged(tmp_path, repack(manifest, members), r"^[^\n]*cannot be loaded[^\n]*$")
    manifest, members = unpack(data)
    set_array(manifest, members, "fitted._peaks_", lambda peaks: peaks[1:])
    forged(tmp_path, repack(manifest, members), "cannot be loaded")


def test_codes_of_a_clusterer_are_computed_when_they_are_asked_for(tmp_path):
    # Given a fitted clusterer and its file
    images = _noisy_shapes(30, 16)
    model = tubal.ImageClusterer(3, n_atoms=5, random_state=0).fit(images)
    tubal.save(model, tmp_path / "model")
    loaded = tubal.load(tmp_path / "model")
    assert not {"codes_"} & (set(vars(model.model_)) | set(vars(loaded.model_)))
    # When codes and features are asked for
    found = model.model_.encode(images)
    # Then both give the same, close to the codes that were learned
    assert_array_equal(loaded.model_.codes_, found)
    assert_array_equal(loaded.model_.decode(found), model.model_.decode(found))
    pooled = loaded.model_._pool(found)
    cosines = (pooled * model.features_).sum(axis=1) / np.linalg.norm(pooled, axis=1)
    assert cosines.min() > 0.95
    # And the file does not grow
    tubal.save(model, tmp_path / "again")
    assert (tmp_path / "again").stat().st_size == (tmp_path / "model").stat().st_size


def test_atoms_follow_from_the_dictionary(tmp_path):
    model = fitted("GTSC", _eight_bit(255), max_iter=1)
    tubal.save(model, tmp_path / "model")
    manifest, _ = unpack((tmp_path / "model").read_bytes())
    assert "atoms_" not in manifest["content"]["fitted"]
    assert_array_equal(tubal.load(tmp_path / "model").atoms_, model.atoms_)


@pytest.mark.parametrize(
    ("array", "stored"),
    [
        (np.arange(2000), "<u2"), (np.arange(-1000, 1000), "<i4"), (np.arange(2000) % 200, "|u1"),
        (np.arange(2000) << 40, "<i8"), (np.arange(2000) / 4, "<f2"), (np.arange(2000) / 3, "<f8"),
        (np.arange(2000) / 1024 + 3, "<f4"), (np.arange(2000, dtype=np.float32) / 4, "<f2"),
        (np.full(2000, 1e5, np.float32), "<f4"), (np.full(2000, 1e-9), "<f8"),
        (np.full(2000, np.nan), "<f8"), (np.arange(20), "<i8"), (np.full(2000, 1e300), "<f8"),
        (np.arange(-60.0, 60.0).repeat(20), "|i1"), (np.float32(np.arange(2000) % 200), "|u1"),
        (np.where(np.arange(2000) % 10, 3.0, -0.0), "<f2"),
    ],
)  # fmt: skip
def test_arrays_are_stored_in_the_smallest_type(array, stored, tmp_path):
    model = fitted("TubSC", _eight_bit(255), max_iter=1)
    model.extra_ = array
    tubal.save(model, tmp_path / "model")
    manifest, _ = unpack((tmp_path / "model").read_bytes())
    assert [stored, list(array.shape)] in _types_and_shapes(manifest)
    loaded = tubal.load(tmp_path / "model").extra_
    assert loaded.dtype == array.dtype
    assert loaded.tobytes() == array.tobytes()


def test_symmetric_matrices_are_stored_by_half(tmp_path):
    model = fitted("TubSC", _eight_bit(255), max_iter=1)
    random = sp.random_array((200, 200), density=0.05, random_state=np.random.default_rng(0), format="csr")
    for matrix, full in ((random, True), (sp.csr_array(random + random.T), False)):
        model.extra_ = matrix
        tubal.save(model, tmp_path / "model")
        loaded = tubal.load(tmp_path / "model").extra_
        for name in ("data", "indices", "indptr"):
            assert_array_equal(getattr(loaded, name), getattr(matrix, name))
        manifest, _ = unpack((tmp_path / "model").read_bytes())
        assert ("symmetric" not in manifest["content"]["fitted"]["extra_"]) == full


@pytest.mark.parametrize("dtype", ["<f2", "|O", "<U9999999", None, ["<i8"], "|S8"])
def test_forged_types_raise(dtype, tmp_path):
    model = fitted("TubSC", _eight_bit(255), max_iter=1)
    model.extra_ = np.arange(2000)
    tubal.save(model, tmp_path / "model")
    manifest, members = unpack((tmp_path / "model").read_bytes())
    set_value(manifest, "fitted.extra_.dtype", dtype)
    forged(tmp_path, repack(manifest, members), "cannot be loaded")


def test_coder_without_codes_and_images_raises(clusterer_file, tmp_path):
    manifest, members = unpack(clusterer_file)
    manifest["content"]["fitted"]["model_"]["fitted"]["graph_"]["$graph"]["search"] = None
    forged(tmp_path, repack(manifest, members), "cannot be loaded")


@pytest.mark.parametrize(
    ("member", "change"),
    [("base", lambda base: -base), ("base", lambda base: base[:9]), ("peaks", lambda peaks: 0 * peaks),
     ("norms", lambda norms: np.nan * norms), ("norms", lambda norms: norms[1:]),
     ("$pictures", lambda levels: levels.astype(float))],
)  # fmt: skip
def test_forged_pictures_raise(member, change, clusterer_file, tmp_path):
    manifest, members = unpack(clusterer_file)
    set_array(manifest, members, f"fitted.graph_.arrays.search_images.{member}", change)
    forged(tmp_path, repack(manifest, members), "cannot be loaded")


@pytest.mark.parametrize("shape", [[10**12], [30, 20, 11], [-1], None, [2.0]])
def test_forged_sparse_codes_raise_before_allocation(shape, tmp_path):
    model = fitted("TubSC", _eight_bit(255), n_atoms=20, max_iter=1)
    model.codes_ = np.where(np.random.default_rng(0).random(model.codes_.shape) < 0.1, model.codes_, 0)
    tubal.save(model, tmp_path / "model")
    manifest, members = unpack((tmp_path / "model").read_bytes())
    set_value(manifest, "fitted.codes_.shape", shape)
    forged(tmp_path, repack(manifest, members), "cannot be loaded")


# --- what cannot be saved ------------------------------------------------------------------------------------
def test_other_objects_cannot_be_saved(images, tmp_path):
    with pytest.raises(TypeError, match="a dict cannot be saved; one of tubal's estimators"):
        tubal.save({}, tmp_path / "x")
    with pytest.raises(ValueError, match="not fitted; call fit before save"):
        tubal.save(tubal.TubSC(), tmp_path / "x")
    model = fitted("TubSC", images)
    model.note_ = object()
    with pytest.raises(TypeError, match=r"TubSC\.note_ is a object, which cannot be saved"):
        tubal.save(model, tmp_path / "x")
    model.note_ = np.array([object()])
    with pytest.raises(TypeError, match="array of object"):
        tubal.save(model, tmp_path / "x")

    class Mine(tubal.TubSC):
        pass

    with pytest.raises(TypeError, match="a Mine cannot be saved"):
        tubal.save(Mine(n_atoms=2, max_iter=1).fit(images), tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_errors_name_the_path(tmp_path, images):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        tubal.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        tubal.load(tmp_path)
    with pytest.raises(OSError, match="cannot write"):
        tubal.save(fitted("TubSC", images), tmp_path / "no" / "such" / "folder")


# --- damaged and forged files ---------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def original():
    return (DATA / "format_1.tubal").read_bytes()


def forged(tmp_path, data, sentence):
    path = tmp_path / "forged"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=sentence):
        tubal.load(path)


def test_later_format_raises(tmp_path, original):
    manifest, members = unpack(original)
    forged(tmp_path, repack(manifest | {"version": 3}, members), "format 3 .* reads up to 2; upgrade tubal")


def test_foreign_files_raise(tmp_path, original):
    manifest, members = unpack(original)
    forged(tmp_path, b"", "truncated, altered or no tubal file")
    forged(tmp_path, b"\x93NUMPY" + bytes(100), "no tubal file")
    forged(tmp_path, repack(manifest | {"format": "other"}, members), "not written by tubal")
    forged(tmp_path, repack(manifest | {"kind": "checkpoint"}, members), "holds a checkpoint, a model is wanted")
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(3))
    forged(tmp_path, stream.getvalue(), "no tubal file")


def test_truncated_files_raise(tmp_path, original):
    for length in range(0, len(original), 97):
        forged(tmp_path, original[:length], "cannot be loaded")


def test_object_arrays_raise(tmp_path, original):
    manifest, members = unpack(original)
    stream = io.BytesIO()
    np.save(stream, np.array([print], object), allow_pickle=True)
    members["arrays/a0.npy"] = stream.getvalue()
    entry = manifest["arrays"]["a0"]
    manifest["arrays"]["a0"] = entry | {"size": len(stream.getvalue())}
    forged(tmp_path, repack(manifest, members), "cannot be loaded")
    manifest["arrays"]["a0"] = entry | {"dtype": "|O", "shape": [1], "size": len(stream.getvalue())}
    forged(tmp_path, repack(manifest, members), "only numbers and text are loaded")


@pytest.mark.parametrize("shape", [[1 << 40, 1 << 40], [1 << 62], [-1], [1 << 30], [2.0], "all", [1] * 80])
def test_absurd_shapes_raise_before_allocation(tmp_path, original, shape):
    manifest, members = unpack(original)
    manifest["arrays"]["a0"]["shape"] = shape
    forged(tmp_path, repack(manifest, members), "absurd shape|not as large as its shape")


def test_zip_bomb_raises_before_allocation(tmp_path, original):
    manifest, members = unpack(original)
    size = 1 << 28
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (size,)})
    header = stream.getvalue()
    manifest["arrays"]["a0"] |= {"dtype": "|u1", "shape": [size], "size": size + len(header)}
    path = tmp_path / "bomb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("arrays/a0.npy", "w", force_zip64=True) as member:
            member.write(header)
            for _ in range(size >> 24):
                member.write(bytes(1 << 24))
        for name, content in members.items():
            if name != "arrays/a0.npy":
                archive.writestr(name, content)
        import hashlib
        import json

        text = json.dumps(manifest).encode()
        archive.writestr(zipfile.ZipInfo("manifest.json"), text)
        archive.comment = hashlib.sha256(text).hexdigest().encode()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="not as large as its shape"):
        tubal.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_names_outside_the_archive_raise(tmp_path, original):
    manifest, members = unpack(original)
    members["../../evil.npy"] = members.pop("arrays/a0.npy")
    forged(tmp_path, repack(manifest, members), "not those its manifest lists")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["forged"]


def test_unknown_classes_raise(tmp_path, original):
    manifest, members = unpack(original)
    for plant in ({"$object": "Popen", "fields": {"args": "true"}}, {"$estimator": "KMeans"}, {"$run": 1}):
        manifest["content"]["parameters"]["code_solver"] = plant
        forged(tmp_path, repack(manifest, members), "does not know|cannot be loaded")
    manifest["content"] = {"$object": "Admm", "fields": {}}
    forged(tmp_path, repack(manifest, members), "holds no model")


def test_graph_indices_out_of_range_raise(tmp_path, original):
    manifest, members = unpack(original)
    array_name = manifest["content"]["fitted"]["graph_"]["arrays"]["adjacency_indices"]["$array"]
    from hashlib import sha256

    data = bytearray(members[f"arrays/{array_name}.npy"])
    data[-4:] = (10**6).to_bytes(4, "little")
    members[f"arrays/{array_name}.npy"] = bytes(data)
    manifest["arrays"][array_name]["sha256"] = sha256(bytes(data)).hexdigest()
    forged(tmp_path, repack(manifest, members), "cannot be loaded")


def test_damaged_files_never_load_as_another_model(tmp_path, original):
    expected = tubal.load(DATA / "format_1.tubal")
    counts = try_mutations(original, 500, tmp_path, 0, lambda model: assert_same_model(model, expected))
    assert counts["raised"] > 350


# --- forged values with correct checksums ----------------------------------------------------------------------------
@pytest.fixture(scope="module")
def clusterer_file(tmp_path_factory):
    images = np.random.default_rng(0).integers(0, 256, (24, 8, 8)).astype(np.float32) / 255
    model = tubal.ImageClusterer(3, n_atoms=4, random_state=np.random.RandomState(0)).fit(images)
    path = tmp_path_factory.mktemp("models") / "clusterer"
    tubal.save(model, path)
    return path.read_bytes()


_SEARCH = "fitted.graph_.$graph.search"
_FORGED_VALUES = {
    f"{_SEARCH}.effort.context": -2,
    f"{_SEARCH}.effort.n_candidates": 0,
    f"{_SEARCH}.effort.n_kept": 0,
    f"{_SEARCH}.effort.rank": 10**400,
    f"{_SEARCH}.deformation.n_rotations": 10**6,
    f"{_SEARCH}.deformation.least_pixels": 10**12,
    f"{_SEARCH}.deformation.window": 1.5,
    f"{_SEARCH}.memory_budget": {"$float": "nan"},
    "fitted.graph_.$graph.n_images": 10**12,
    "fitted.graph_.$graph.n_neighbors": 10**6,
    "fitted.graph_.$graph.bandwidth": 0.0,
    "fitted.n_clusters_": 3 * 10**8,
    "fitted.image_shape_": {"$tuple": [10**6, 10**6]},
    "fitted.n_features_in_": -1,
    "fitted.labels_": [0, 1],
    "fitted.model_": None,
    "fitted.graph_": None,
    "fitted.affinity_.$sparse": [24, 10**12],
    "fitted.model_.fitted.scale_factor_": {"$float": "nan"},
    "fitted.model_.fitted._layout_.fields.image_shape": {"$tuple": [8, 9]},
    "fitted.model_.parameters.sparsity": -1.0,
    "fitted.model_.parameters.code_solver.fields.max_iter": 10**9,
    "fitted.model_.parameters.tube_axis": 3,
    "parameters.preset": "none",
    "parameters.n_clusters": 10**9,
    "parameters.code_power": {"$float": "inf"},
}


@pytest.mark.parametrize("path", _FORGED_VALUES)
def test_forged_values_raise(path, clusterer_file, tmp_path):
    manifest, members = unpack(clusterer_file)
    set_value(manifest, path, _FORGED_VALUES[path])
    forged(tmp_path, repack(manifest, members), r"^[^\n]*cannot be loaded[^\n]*$")


def _first(value):
    def change(array):
        array = array.copy()
        array.reshape(-1)[0] = value
        return array

    return change


_GRAPH = "fitted.graph_.arrays"
_FORGED_ARRAYS = {
    "label of 300 million": ("fitted.labels_", _first(3 * 10**8)),
    "negative label": ("fitted.labels_", _first(-1)),
    "labels with a gap": ("fitted.labels_", lambda labels: 2 * labels),
    "labels of another length": ("fitted.labels_", lambda labels: labels[:-1]),
    "fractional labels": ("fitted.labels_", lambda labels: labels.astype(float)),
    "NaN dictionary": ("fitted.model_.fitted.dictionary_", _first(np.nan)),
    "huge dictionary": ("fitted.model_.fitted.dictionary_", _first(1e30)),
    "half-precision dictionary": ("fitted.model_.fitted.dictionary_", lambda atoms: atoms.astype(np.float16)),
    "text of no length": ("fitted.confidence_", lambda values: np.zeros(values.shape, "S0")),
    "confidence of 3": ("fitted.confidence_", _first(3.0)),
    "medoid out of range": ("fitted.medoids_", _first(24)),
    "representative out of range": ("fitted.copy_of_", _first(-1)),
    "infinite features": ("fitted.features_", _first(np.inf)),
    "neighbour out of range": (f"{_GRAPH}.neighbors", _first(24)),
    "neighbour -2": (f"{_GRAPH}.neighbors", _first(-2)),
    "NaN distance": (f"{_GRAPH}.distances", _first(np.nan)),
    "transposed alignments": (f"{_GRAPH}.alignments", lambda moves: moves.T.copy()),
}


def _second(array, value):
    array = array.copy()
    array[1] = value
    return array


@pytest.mark.parametrize("name", _FORGED_ARRAYS)
def test_forged_arrays_raise(name, clusterer_file, tmp_path):
    manifest, members = unpack(clusterer_file)
    set_array(manifest, members, *_FORGED_ARRAYS[name])
    forged(tmp_path, repack(manifest, members), r"^[^\n]*cannot be loaded[^\n]*$")


_FORGED_EDGES = {
    "edge out of range": ("adjacency_indices", _first(-5)),
    # In int32 the differences of these overflow to positive numbers.
    "rows that wrap around": ("adjacency_indptr", lambda rows: _second(rows, -(2**31))),
    "infinite edge": ("adjacency_data", _first(np.inf)),
}


@pytest.mark.parametrize("name", _FORGED_EDGES)
def test_forged_edges_raise(name, original, tmp_path):
    member, change = _FORGED_EDGES[name]
    manifest, members = unpack(original)
    set_array(manifest, members, f"{_GRAPH}.{member}", change)
    forged(tmp_path, repack(manifest, members), r"^[^\n]*cannot be loaded[^\n]*$")


@pytest.mark.parametrize(("place", "value"), [(2, 10**6), (2, -5), (3, 7), (0, "PCG64")])
def test_forged_random_state_raises(place, value, clusterer_file, tmp_path):
    manifest, members = unpack(clusterer_file)
    manifest["content"]["parameters"]["random_state"]["$random"][place] = value
    forged(tmp_path, repack(manifest, members), "random generator")


def test_nan_codes_raise(images, tmp_path):
    model = fitted("GTSC", images)
    model.codes_[0, 0, 0] = np.nan
    tubal.save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"codes_ has values from nan"):
        tubal.load(tmp_path / "model")


def test_codes_that_overflow_raise(images):
    model = fitted("GTSC", images)
    model.codes_[:] = 1e38
    with pytest.raises(ValueError, match="codes of these images are too large"), np.errstate(all="ignore"):
        model.encode(images + np.float32(0.01))


# --- crashes -------------------------------------------------------------------------------------------------
def test_killed_save_leaves_a_complete_file(tmp_path):
    path, random = tmp_path / "model.tubal", np.random.default_rng(0)
    tubal.save(tubal.load(DATA / "format_1.tubal"), path)
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SAVE_FOREVER), str(DATA / "format_1.tubal"), str(path)],
            stdout=subprocess.PIPE,
        )
        process.stdout.readline()
        time.sleep(float(random.uniform(0.0, 0.1)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert tubal.load(path).atoms_.shape == (3, 5, 4)


def test_full_disk_keeps_the_old_file(tmp_path):
    path = tmp_path / "model.tubal"
    tubal.save(tubal.load(DATA / "format_1.tubal"), path)
    before = path.read_bytes()
    script = """
        import resource, signal, sys, tubal
        model = tubal.load(sys.argv[1])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            tubal.save(model, sys.argv[1])
        except OSError as error:
            sys.exit(0 if "cannot write" in str(error) and "untouched" in str(error) else 2)
        sys.exit(3)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(path)], check=False)
    assert run.returncode == 0
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]
