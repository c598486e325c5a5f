"""Many images: read in parts from arrays and files, in memory that grows little, and clustered as if they were few."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tubal import GTSC, ImageClusterer, load, save
from tubal.clustering import affinity, clusterer, quality, spectral
from tubal.datasets import make_shifted_shapes
from tubal.estimators import validation
from tubal.estimators.validation import StackInParts
from tubal.graph import cells
from tubal.graph.deformable import Effort
from tubal.learning.checkpoints import Checkpoint


@pytest.fixture(scope="module")
def images():
    shapes = make_shifted_shapes(300, n_classes=3, image_shape=(12, 12), random_state=0).images
    noisy = shapes + 0.3 * np.random.default_rng(0).random(shapes.shape)
    return np.uint8(200 * noisy / noisy.max())


@pytest.fixture
def few_are_many(monkeypatch):
    """Treat 300 images as the library treats more than 20 000."""
    effort = Effort(30, 20, 16, 0, exact_limit=100)
    monkeypatch.setattr(affinity, "clustering_effort", lambda n_images, n_neighbors: effort)
    monkeypatch.setattr(clusterer, "LEARNED_WHOLE", 10)
    monkeypatch.setattr(validation, "READ_WHOLE", 100)
    monkeypatch.setattr(validation, "_IN_PART", 16)
    monkeypatch.setattr(validation, "_REPORTED", 64)


def fitted(images, **settings):
    return ImageClusterer(3, n_atoms=4, random_state=0).fit(images, **settings)


def test_files_and_arrays_give_the_same_clusters(images, few_are_many, tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    np.save(tmp_path / "images.npy", images)
    with h5py.File(tmp_path / "images.h5", "w") as file:
        file["x"] = images
    monkeypatch.setattr(validation, "READ_WHOLE", 20_000)
    whole = fitted(images)
    monkeypatch.setattr(validation, "READ_WHOLE", 100)
    with h5py.File(tmp_path / "images.h5") as file:
        sources = [images, tmp_path / "images.npy", np.load(tmp_path / "images.npy", mmap_mode="r"), file["x"]]
        for found in map(fitted, sources):
            assert_array_equal(found.labels_, whole.labels_)
            assert_array_equal(found.outlier_scores_, whole.outlier_scores_)
            assert_array_equal(found.graph_.search.images, whole.graph_.search.images)


def test_reading_is_followed(images, few_are_many):
    seen = []
    fitted(images, progress=lambda stage, done, total: seen.append((stage, done, total)))
    assert seen[0] == ("reading images", 64, 300)
    assert ("reading images", 300, 300) in seen


def test_interrupted_fit_of_many_images_resumes(images, few_are_many, tmp_path):
    class Interrupted(RuntimeError):
        pass

    def stop(stage, done, total):
        if stage == "learning atoms and codes":
            raise Interrupted

    path = tmp_path / "fit.ckpt"
    with pytest.raises(Interrupted):
        fitted(images, checkpoint=Checkpoint(path, every_seconds=0.0), progress=stop)
    seen = []
    resumed = fitted(images, checkpoint=Checkpoint(path, resume=True), progress=lambda *call: seen.append(call))
    searched = [call for call in seen if call[0] == "finding neighbours"]
    assert searched == [("finding neighbours", 300, 300)]
    assert_array_equal(resumed.labels_, fitted(images).labels_)


def test_cells_are_kept(images, few_are_many, tmp_path, monkeypatch):
    def stop(stage, done, total):
        if stage == "finding neighbours" and done > 100:
            raise KeyboardInterrupt

    path, expected = tmp_path / "fit.ckpt", fitted(images)
    with pytest.raises(KeyboardInterrupt):
        fitted(images, checkpoint=Checkpoint(path), progress=stop)
    monkeypatch.setattr(cells.CellPlan, "of", None)
    resumed = fitted(images, checkpoint=Checkpoint(path, resume=True))
    assert_array_equal(resumed.labels_, expected.labels_)


def test_atoms_and_eigenvectors_are_kept(images, few_are_many, tmp_path, monkeypatch):
    def stop(stage, done, total):
        if stage == "cutting the graph":
            raise KeyboardInterrupt

    path, expected = tmp_path / "fit.ckpt", fitted(images)
    with pytest.raises(KeyboardInterrupt):
        fitted(images, checkpoint=Checkpoint(path, every_seconds=0.0), progress=stop)
    monkeypatch.setattr(spectral, "spectrum", None)
    resumed = fitted(images, checkpoint=Checkpoint(path, resume=True))
    assert_array_equal(resumed.labels_, expected.labels_)
    assert_array_equal(resumed.features_, expected.features_)


def test_features_are_computed_when_they_are_asked_for(images, few_are_many, tmp_path, monkeypatch):
    coded = []
    alone = GTSC._features_alone
    monkeypatch.setattr(GTSC, "_features_alone", lambda model, part: coded.append(len(part)) or alone(model, part))
    monkeypatch.setattr(quality, "_MOST_TYPICAL", 30)
    model = fitted(images)
    save(model, tmp_path / "model.tubal")
    model.update(images[:2] // 2)
    assert sum(coded) < len(images)  # only those that compete for the medoids
    assert "features_" not in vars(model)
    assert model.features_.shape == (302, model.model_.n_atoms)
    assert_allclose(load(tmp_path / "model.tubal").features_, model.features_[:300], atol=1e-6)
    assert_array_equal(model.labels_[model.medoids_], np.arange(3))


def test_wrong_value_is_found_in_its_part(images, few_are_many):
    wrong = images.astype(np.float32)
    wrong[201, 3, 4] = np.nan
    with pytest.raises(ValueError, match=r"contains NaN: image 201 has it at \(3, 4\)"):
        fitted(wrong)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [("no.npy", None, "there is no file"), ("text.npy", b"hello", "is not a .npy file"), ("many.npz", {}, "several")],
)
def test_wrong_file_is_named(name, content, sentence, tmp_path):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.savez(path, a=np.zeros(3), b=np.ones(3))
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        fitted(path)


def test_folder_is_not_clustered_without_its_names(tmp_path):
    with pytest.raises(ValueError, match=r"is not a \.npy file .* read folders .* with tubal\.datasets\.load_images"):
        fitted(str(tmp_path))


def test_parts_are_the_whole(images):
    parts = StackInParts(images)
    assert_array_equal(np.concatenate([parts[:100], parts[100:]]), images.astype(np.float32))
    assert parts[::7].dtype == np.float32
    assert_array_equal(parts[::7], images[::7])
    assert_array_equal(quality.appearance(parts), quality.appearance(images.astype(np.float32)))


# --- memory ------------------------------------------------------------------------------------------------------
PEAK = """
    import dataclasses, sys, numpy as np
    from tubal.clustering.affinity import clustering_effort
    from tubal.estimators.validation import StackInParts, unit_images
    from tubal.graph import deformable_graph
    def resident(name):
        return int(open("/proc/self/status").read().split(name)[1].split()[0]) * 1024
    images = np.random.default_rng(0).integers(256, size=(int(sys.argv[1]), 16, 16), dtype=np.uint8)
    def search(n):
        unit = unit_images(StackInParts(images[:n]))
        effort = dataclasses.replace(clustering_effort(21_000, 10), exact_limit=200)  # as if there were many
        deformable_graph(unit, 10, effort=effort, memory_budget=1e8)
    search(300)  # compile
    open("/proc/self/clear_refs", "w").write("5")
    before = resident("VmRSS:")
    search(len(images))
    print(resident("VmHWM:") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_of_the_search_grows_little(tmp_path):
    """An image of 16×16 pixels takes one kilobyte; the search may take 2.5 more, and not three copies of it."""

    def peak(n_images):
        command = [sys.executable, "-c", textwrap.dedent(PEAK), str(n_images)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    per_image = (peak(18_000) - peak(6000)) / 12_000
    assert per_image < 3600
