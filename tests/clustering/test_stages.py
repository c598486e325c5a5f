"""The stages of a clustering: true progress, and a fit that continues where it was interrupted."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tubal import GTSC, ImageClusterer
from tubal.clustering import affinity
from tubal.datasets import make_shifted_shapes
from tubal.graph import deformable
from tubal.graph.deformable import DeformableSearch
from tubal.learning.checkpoints import Checkpoint

N_IMAGES, BLOCK = 150, 64


class Interrupted(RuntimeError):
    pass


@pytest.fixture(scope="module")
def images():
    shapes = make_shifted_shapes(N_IMAGES, n_classes=3, image_shape=(12, 12), random_state=0).images
    return shapes + 0.3 * np.random.default_rng(0).random(shapes.shape)


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Search with little effort in blocks of 64 images, and report after every 256 pairs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(affinity, "clustering_effort", lambda n_images, n_neighbors: deformable.Effort(30, 20, 16, 0))
        patch.setattr(deformable, "_BLOCK_PIXELS", 1)
        patch.setattr(deformable, "_TELL_PIXELS", 256 * 256)
        patch.setattr(deformable, "_ROUND", BLOCK)
        yield


@pytest.fixture
def blocks(monkeypatch):
    """The first image of every block whose neighbours are searched."""
    found, search = [], DeformableSearch._rank_block

    def counted(self, queries, effort, first, *rest):
        found.append(first)
        return search(self, queries, effort, first, *rest)

    monkeypatch.setattr(DeformableSearch, "_rank_block", counted)
    return found


def clusterer(n_clusters=3, **parameters):
    return ImageClusterer(n_clusters, **({"n_atoms": 4, "random_state": 0} | parameters))


@pytest.fixture(scope="module")
def undisturbed(images, small_blocks):
    return {n_clusters: clusterer(n_clusters).fit(images) for n_clusters in (3, None)}


def stop_in(stage, done):
    def progress(name, reached, total):
        if name == stage and reached >= done:
            raise Interrupted

    return progress


def assert_same_fit(left, right):
    assert_array_equal(left.labels_, right.labels_)
    assert_array_equal(left.graph_.neighbors, right.graph_.neighbors)
    assert_array_equal(left.graph_.distances, right.graph_.distances)
    assert_array_equal(left.graph_.alignments.stack(), right.graph_.alignments.stack())
    assert_array_equal(left.features_, right.features_)
    assert_array_equal(left.confidence_, right.confidence_)
    assert left.seed_ == right.seed_


# --- progress ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("graph", ["deformable", "cosine"])
def test_progress_of_every_stage_rises_to_its_total(graph, images):
    seen = {}
    model = clusterer(None, graph=graph)
    model.fit(images, progress=lambda stage, done, total: seen.setdefault(stage, []).append((done, total)))
    expected = {"finding neighbours", "counting clusters", "learning atoms and codes", "cutting the graph"}
    assert expected <= set(seen)
    for calls in seen.values():
        assert len({total for _, total in calls}) == 1
        assert calls == sorted(calls)
        assert calls[0][0] == 0
        assert calls[-1][0] == calls[-1][1]
    assert seen["finding neighbours"][-1][1] == len(images)
    assert model.model_.callbacks is None


def test_progress_that_is_no_function_is_named(images):
    with pytest.raises(TypeError, match=r"progress is 'yes'; a function is wanted"):
        clusterer().fit(images, progress="yes")


def test_progress_moves_within_a_block(images):
    seen = []
    clusterer().fit(images, progress=lambda stage, done, total: seen.append(done) if "neighbours" in stage else None)
    assert len(set(seen)) > 2 * N_IMAGES / BLOCK


def test_progress_and_checkpoints_do_not_change_the_fit(images, undisturbed, tmp_path):
    model = clusterer().fit(images, checkpoint=Checkpoint(tmp_path / "a", every_seconds=0.0), progress=lambda *_: None)
    assert_same_fit(model, undisturbed[3])


# --- interruptions -------------------------------------------------------------------------------------------
def test_finished_blocks_are_not_searched_again(images, undisturbed, blocks, tmp_path):
    path = interrupted_search(images, tmp_path)
    assert blocks == [0, BLOCK, 2 * BLOCK]
    blocks.clear()
    resumed = clusterer().fit(images, checkpoint=Checkpoint(path, resume=True))
    assert blocks[0] == 2 * BLOCK
    assert_same_fit(resumed, undisturbed[3])
    assert not path.with_name("fit.ckpt.rows").exists()


def interrupted_search(images, folder, done=2 * BLOCK + 5):
    """Stop a fit in the third block of its search; return its checkpoint, which is written at most once an hour."""
    path = folder / "fit.ckpt"
    with pytest.raises(Interrupted):
        clusterer().fit(
            images, checkpoint=Checkpoint(path, every_seconds=3600.0), progress=stop_in("finding neighbours", done)
        )
    return path


def test_what_is_reported_is_kept(images, tmp_path):
    path, seen = interrupted_search(images, tmp_path, done=2 * BLOCK), []
    clusterer().fit(
        images,
        checkpoint=Checkpoint(path, resume=True),
        progress=lambda stage, done, total: seen.append(done) if stage == "finding neighbours" else None,
    )
    assert seen[:2] == [0, 2 * BLOCK]


def test_blocks_after_a_damaged_file_are_searched_again(images, undisturbed, blocks, tmp_path):
    path = interrupted_search(images, tmp_path)
    second = tmp_path / "fit.ckpt.rows" / "rows-000001.tubal"
    second.write_bytes(second.read_bytes()[:-100])
    blocks.clear()
    resumed = clusterer().fit(images, checkpoint=Checkpoint(path, resume=True))
    assert blocks[0] == BLOCK
    assert_same_fit(resumed, undisturbed[3])


def test_blocks_of_another_fit_are_not_used(images, undisturbed, blocks, tmp_path):
    path = interrupted_search(1.0 - images, tmp_path)
    rows = path.rename(tmp_path / "others").with_name("fit.ckpt.rows").rename(tmp_path / "rows")
    interrupted_search(images, tmp_path)
    shutil.copytree(rows, tmp_path / "fit.ckpt.rows", dirs_exist_ok=True)
    blocks.clear()
    resumed = clusterer().fit(images, checkpoint=Checkpoint(path, resume=True))
    assert blocks[0] == 0
    assert_same_fit(resumed, undisturbed[3])


@pytest.mark.parametrize(
    ("stage", "done"),
    [
        ("finding neighbours", 0),
        ("finding neighbours", N_IMAGES),
        ("counting clusters", 0),
        ("learning atoms and codes", 0),
        ("learning atoms and codes", 2),
        ("cutting the graph", 0),
        ("cutting the graph", 4),
    ],
)
def test_fit_resumes_from_every_stage(stage, done, images, undisturbed, blocks, tmp_path):
    path = tmp_path / "fit.ckpt"
    with pytest.raises(Interrupted):
        clusterer(None).fit(images, checkpoint=Checkpoint(path, every_seconds=0.0), progress=stop_in(stage, done))
    blocks.clear()
    resumed = clusterer(None).fit(images, checkpoint=Checkpoint(path, every_seconds=0.0, resume=True))
    assert_same_fit(resumed, undisturbed[None])
    assert_array_equal(resumed.n_clusters_scores_["gap"], undisturbed[None].n_clusters_scores_["gap"])
    assert stage == "finding neighbours" or not blocks


def test_finished_codes_survive_an_interrupted_cut(images, tmp_path):
    path, seen = tmp_path / "fit.ckpt", []
    with pytest.raises(Interrupted):
        clusterer(None).fit(
            images, checkpoint=Checkpoint(path, every_seconds=0.0), progress=stop_in("cutting the graph", 5)
        )
    clusterer(None, callbacks=seen.append).fit(
        images,
        checkpoint=Checkpoint(path, resume=True),
        progress=lambda stage, done, total: seen.append(done) if stage == "cutting the graph" else None,
    )
    assert all(isinstance(done, int) for done in seen)  # no iteration
    assert seen[0] >= 5  # the partitions that were found, one on each thread, were kept


def test_exact_copies_are_resumed_in_every_round(images, blocks, tmp_path):
    copied = np.repeat(images[:80], 3, axis=0)
    whole, path = clusterer().fit(copied), tmp_path / "fit.ckpt"
    with pytest.raises(Interrupted):
        clusterer().fit(
            copied,
            checkpoint=Checkpoint(path, every_seconds=0.0),
            progress=stop_in("finding neighbours, round 2", BLOCK + 1),
        )
    blocks.clear()
    resumed = clusterer().fit(copied, checkpoint=Checkpoint(path, every_seconds=0.0, resume=True))
    assert blocks[0] == BLOCK
    assert_same_fit(resumed, whole)


def test_resumed_fit_keeps_its_random_seed(images, tmp_path):
    path, seeds = tmp_path / "fit.ckpt", []
    with pytest.raises(Interrupted):
        clusterer(random_state=None).fit(images, checkpoint=path, progress=stop_in("cutting the graph", 0))
    for _ in range(2):
        model = clusterer(random_state=None).fit(images, checkpoint=Checkpoint(path, resume=True))
        seeds.append(model.seed_)
    assert seeds[0] == seeds[1]


# --- other fits ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stage", ["finding neighbours", "cutting the graph"])
def test_checkpoint_of_another_clustering_raises(stage, images, tmp_path):
    path = tmp_path / "fit.ckpt"
    with pytest.raises(Interrupted):
        clusterer().fit(images, checkpoint=Checkpoint(path, every_seconds=0.0), progress=stop_in(stage, 3))
    before, resume = path.read_bytes(), Checkpoint(path, resume=True)
    with pytest.raises(ValueError, match="checkpoint of another fit: n_neighbors differ"):
        clusterer(n_neighbors=4).fit(images, checkpoint=resume)
    others = images.copy()
    others[100, 3, 3] += 0.5
    with pytest.raises(ValueError, match="checkpoint of another fit: images differ"):
        clusterer().fit(others, checkpoint=resume)
    with pytest.raises(ValueError, match="checkpoint of another fit"):
        GTSC(n_atoms=4, random_state=0).fit(images, checkpoint=resume)
    assert path.read_bytes() == before


def test_fit_without_resume_replaces_an_earlier_checkpoint(images, undisturbed, tmp_path):
    path = tmp_path / "fit.ckpt"
    clusterer(4, random_state=7).fit(images, checkpoint=path)
    model = clusterer().fit(images, checkpoint=Checkpoint(path, every_seconds=0.0))
    assert_same_fit(model, undisturbed[3])
    assert_same_fit(clusterer().fit(images, checkpoint=Checkpoint(path, resume=True)), undisturbed[3])


def test_kept_blocks_of_another_size_are_used(images, undisturbed, monkeypatch, tmp_path):
    path, compared = tmp_path / "fit.ckpt", []
    rank_block = deformable.DeformableSearch._rank_block

    def noted(self, queries, *rest):
        compared.append(len(queries))
        return rank_block(self, queries, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(deformable, "_ROUND", 96)
        with pytest.raises(Interrupted):
            clusterer().fit(
                images, checkpoint=Checkpoint(path, every_seconds=0.0), progress=stop_in("finding neighbours", 120)
            )
    monkeypatch.setattr(deformable.DeformableSearch, "_rank_block", noted)
    resumed = clusterer().fit(images, checkpoint=Checkpoint(path, resume=True))
    assert compared[:2] == [128 - 96, len(images) - 128]
    assert_array_equal(resumed.labels_, undisturbed[3].labels_)


# --- kills ---------------------------------------------------------------------------------------------------
FIT = """
    import sys, numpy as np
    from tubal import ImageClusterer
    from tubal.clustering import affinity
    from tubal.datasets import make_shifted_shapes
    from tubal.graph import deformable
    from tubal.learning.checkpoints import Checkpoint
    deformable._BLOCK_PIXELS, deformable._TELL_PIXELS, deformable._ROUND = 1, 256 * 256, 64
    affinity.clustering_effort = lambda n_images, n_neighbors: deformable.Effort(30, 20, 16, 0)
    shapes = make_shifted_shapes(150, n_classes=3, image_shape=(12, 12), random_state=0).images
    images = shapes + 0.3 * np.random.default_rng(0).random(shapes.shape)
    def tell(stage, done, total):
        print(stage, done, flush=True)
        sys.stdin.readline()
    model = ImageClusterer(3, n_atoms=4, random_state=0)
    model.fit(images, checkpoint=Checkpoint(sys.argv[1], every_seconds=0.0, resume=True), progress=tell)
    np.save(sys.argv[2], model.labels_)
"""


def test_killed_fits_resume(undisturbed, tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(FIT), str(tmp_path / "fit.ckpt"), str(tmp_path / "labels.npy")]
    for kill in (("finding neighbours", 100), ("learning atoms and codes", 2), None):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            stage, done = line.rsplit(maxsplit=1)
            if kill is not None and stage == kill[0] and int(done) >= kill[1]:
                process.kill()
                break
            process.stdin.write("\n")
            process.stdin.flush()
        process.communicate()
    assert process.returncode == 0
    assert_array_equal(np.load(tmp_path / "labels.npy"), undisturbed[3].labels_)
