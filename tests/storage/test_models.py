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
from helpers.kills import SAVE_FOREVER
from helpers.mutations import repack, try_mutations, unpack
from tubal.graph import knn_graph
from tubal.solvers import Admm, Fista, LagrangeDual, ProjectedGradient

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
    forged(tmp_path, repack(manifest | {"version": 2}, members), "format 2 .* reads up to 1; upgrade tubal")


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
