"""Collections have their published sizes, are upright and labelled; problems with files are explained."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_array_equal
from scipy.io import savemat
from sklearn.datasets import load_digits

from tubal import datasets
from tubal.cli.reproduce import datasets as command
from tubal.datasets import COLLECTIONS, fetchers
from tubal.datasets.fetchers import read_collection

FETCHERS = {
    "coil20": datasets.fetch_coil20,
    "usps": datasets.fetch_usps,
    "orl": datasets.fetch_orl,
    "yale": datasets.fetch_yale,
}
FACES = [pytest.param(name, marks=pytest.mark.collection(name)) for name in ("orl", "yale")]
FOUR = [pytest.param(name, marks=pytest.mark.collection(name)) for name in COLLECTIONS]


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A registered collection of six 3×3 images in a MATLAB file, stored column by column."""
    images = np.arange(54, dtype=np.uint8).reshape(6, 3, 3)
    savemat(tmp_path / "toy.mat", {"X": images.swapaxes(1, 2).reshape(6, 9), "Y": [[1], [1], [5], [5], [9], [9]]})
    digest = hashlib.sha256((tmp_path / "toy.mat").read_bytes()).hexdigest()
    entry = dataclasses.replace(
        COLLECTIONS["orl"],
        name="toy",
        file="toy.mat",
        sha256=digest,
        n_images=6,
        image_shape=(3, 3),
        n_classes=3,
    )
    monkeypatch.setitem(fetchers.COLLECTIONS, "toy", entry)
    return images


def symmetry(images, axis):
    """Correlation of the mean image with its mirror image along ``axis``."""
    mean = images.mean(axis=0)
    return np.corrcoef(mean.ravel(), np.flip(mean, axis).ravel())[0, 1]


@pytest.mark.parametrize("name", FOUR)
def test_collection_has_sizes_of_table_1(name):
    collection, bunch = COLLECTIONS[name], FETCHERS[name]()
    assert bunch.images.shape == (collection.n_images, *collection.image_shape)
    assert bunch.images.dtype == np.float32
    assert bunch.images.min() >= 0.0
    assert 0.9 < bunch.images.max() <= 1.0
    assert sorted(set(bunch.target.tolist())) == list(range(collection.n_classes))
    assert np.array_equal(bunch.data, bunch.images.reshape(collection.n_images, -1))
    assert collection.citation in bunch.DESCR
    assert bunch.sha256 == collection.sha256


@pytest.mark.parametrize("name", FACES)
def test_faces_are_upright(name):
    images = FETCHERS[name]().images
    left_right, up_down = symmetry(images, axis=1), symmetry(images, axis=0)
    assert left_right > 0.9
    assert left_right > up_down + 0.3


@pytest.mark.collection("usps")
def test_usps_digits_are_upright_and_in_published_order():
    bunch = datasets.fetch_usps()
    ones, sevens = bunch.images[bunch.target == 1].mean(axis=0), bunch.images[bunch.target == 7].mean(axis=0)
    assert ones[:, 6:10].sum() > 3 * ones[6:10, :].sum()  # a stroke from top to bottom
    assert sevens[:6].sum() > sevens[10:].sum()  # its bar is at the top
    assert np.bincount(bunch.target[:7291])[0] == 1194  # the zeros of the training part


@pytest.mark.collection("yale")
def test_yale_has_two_identical_pairs():
    assert len(np.unique(datasets.fetch_yale().data, axis=0)) == 163


@pytest.mark.collection("orl")
def test_fetch_respects_return_x_y_and_data_home(monkeypatch):
    folder = datasets.data_folder()
    monkeypatch.delenv("TUBAL_DATA")
    data, target = datasets.fetch_orl(data_home=folder, return_X_y=True)
    assert data.shape == (400, 1024)
    assert target.shape == (400,)


def test_data_folder_prefers_argument_then_variable_then_earlier_default(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("TUBAL_DATA", str(tmp_path / "variable"))
    assert datasets.data_folder(tmp_path / "argument") == tmp_path / "argument"
    assert datasets.data_folder() == tmp_path / "variable"
    monkeypatch.delenv("TUBAL_DATA")
    assert datasets.data_folder() == tmp_path / "share" / "tubal"
    (tmp_path / "tubal_data").mkdir()
    assert datasets.data_folder() == tmp_path / "tubal_data"
    with pytest.raises(FileNotFoundError, match="the default of earlier versions"):
        datasets.fetch_orl(download_if_missing=False)


def test_matlab_collection_is_read_upright_with_labels_from_zero(toy, tmp_path):
    bunch = datasets.fetch("toy", data_home=tmp_path)
    np.testing.assert_allclose(bunch.images, toy.astype(np.float32) / 255)
    assert bunch.target.tolist() == [0, 0, 1, 1, 2, 2]


def test_damaged_file_is_kept(toy, tmp_path, monkeypatch):
    (tmp_path / "toy.mat").write_bytes(b"damaged")
    monkeypatch.setenv("TUBAL_DATA", str(tmp_path))
    with pytest.raises(OSError, match=rf"toy.mat .* expected SHA-256 {COLLECTIONS['toy'].sha256}, found \w{{64}}"):
        datasets.fetch("toy")
    assert (tmp_path / "toy.mat").read_bytes() == b"damaged"


def test_error_for_a_missing_file_states_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"put ORL.mat into {tmp_path}.*TUBAL_DATA"):
        datasets.fetch_orl(data_home=tmp_path, download_if_missing=False)


def test_missing_file_is_downloaded(toy, tmp_path, monkeypatch):
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *arguments: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/toy.mat"
        entry = dataclasses.replace(COLLECTIONS["toy"], addresses=(address,))
        monkeypatch.setitem(fetchers.COLLECTIONS, "toy", entry)
        bunch = datasets.fetch("toy", data_home=tmp_path / "elsewhere")
        server.shutdown()
        thread.join()
    np.testing.assert_allclose(bunch.images, toy.astype(np.float32) / 255)


def test_error_without_network_states_what_to_do(tmp_path, monkeypatch):
    entry = dataclasses.replace(COLLECTIONS["orl"], addresses=("http://127.0.0.1:9/ORL.mat",))
    monkeypatch.setitem(fetchers.COLLECTIONS, "orl", entry)
    monkeypatch.setattr(fetchers, "download", partial(fetchers.download, attempts=1))
    with pytest.raises(OSError, match=rf"put it at {tmp_path / 'ORL.mat'}"):
        datasets.fetch_orl(data_home=tmp_path)


def test_file_of_another_size_is_an_error(toy, tmp_path):
    entry = dataclasses.replace(COLLECTIONS["toy"], n_images=7)
    with pytest.raises(ValueError, match=r"shape \(6, 3, 3\) .* where ORL faces has \(7, 3, 3\)"):
        read_collection(tmp_path / "toy.mat", entry)


def test_file_with_other_variables_is_an_error(tmp_path):
    savemat(tmp_path / "other.mat", {"pictures": [1.0]})
    with pytest.raises(ValueError, match="holds pictures; variables X and Y, or fea and gnd"):
        read_collection(tmp_path / "other.mat", COLLECTIONS["orl"])


def test_missing_h5py_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"pip install 'tubal\[io\]'"):
        read_collection(tmp_path / "usps.h5", COLLECTIONS["usps"])


def test_unknown_name_lists_the_valid_ones():
    with pytest.raises(ValueError, match=r"'mnist'.*coil20, usps, orl, yale"):
        datasets.fetch("mnist")


def test_digits_are_those_of_scikit_learn():
    ours, theirs = datasets.load_digits_images(), load_digits()
    assert_array_equal(ours.images, (theirs.images / 16.0).astype(np.float32))
    assert_array_equal(ours.target, theirs.target)
    assert ours.DESCR == theirs.DESCR


def test_digits_need_no_file():
    bunch = datasets.load_digits_images()
    assert bunch.images.shape == (1797, 8, 8)
    assert bunch.images.dtype == np.float32
    assert (bunch.images.min(), bunch.images.max()) == (0.0, 1.0)
    assert len(bunch.sha256) == 64
    data, target = datasets.load_digits_images(return_X_y=True)
    assert data.shape == (1797, 64)
    assert len(set(target.tolist())) == 10


def test_shapes_are_circular_shifts_of_their_class():
    bunch = datasets.make_shifted_shapes(40, n_classes=8, image_shape=(12, 20), noise=0.0, random_state=3)
    assert bunch.images.shape == (40, 12, 20)
    for label in range(8):
        members = bunch.target == label
        aligned = [
            np.roll(image, -shift, axis=1)
            for image, shift in zip(bunch.images[members], bunch.shifts[members], strict=True)
        ]
        assert len(np.unique(aligned, axis=0)) == 1
    assert len(set(bunch.shifts.tolist())) > 8


def test_shapes_depend_on_the_seed():
    first, again, other = (datasets.make_shifted_shapes(20, random_state=seed).images for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_classes": 1}, "n_classes is 1; there are shapes for 2 to 8"),
        ({"n_samples": 0}, "n_samples is 0"),
        ({"image_shape": (4, 16)}, r"image_shape is \(4, 16\)"),
        ({"noise": -1.0}, "noise is -1.0"),
        ({"max_shift": -1}, "max_shift is -1"),
    ],
)
def test_bad_parameters_of_shifted_shapes_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        datasets.make_shifted_shapes(**arguments)


def test_datasets_command_lists_collections(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(command, ["--data-home", str(tmp_path)])
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.output.splitlines() if line.strip()}
    assert "present" in lines["toy"]
    assert "missing" in lines["orl"]
    assert "research use only" in result.output
    assert str(tmp_path) in result.output


def test_datasets_command_reports_damaged_files_as_json(toy, tmp_path):
    (tmp_path / "toy.mat").write_bytes(b"damaged")
    result = CliRunner().invoke(command, ["--data-home", str(tmp_path), "--json"])
    entries = {entry["name"]: entry for entry in json.loads(result.output)}
    assert entries["toy"]["state"] == "damaged"
    assert entries["coil20"]["state"] == "missing"
    assert entries["digits"]["state"] == "built in"
