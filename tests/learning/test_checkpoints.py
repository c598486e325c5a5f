"""Checkpoints: writing one changes nothing, a resumed fit is identical, and no kill damages a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tubal
from helpers.kills import kill_and_resume
from tubal.learning.checkpoints import Checkpoint
from tubal.solvers import Admm, Fista

DATA = Path(__file__).parents[1] / "data"


class Interrupted(RuntimeError):
    pass


def stop_at(iteration):
    def callback(progress):
        if progress.n_iter == iteration:
            raise Interrupted

    return callback


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((40, 6, 5))


def coder(name="GTSC", **parameters):
    return getattr(tubal, name)(**({"n_atoms": 4, "max_iter": 6, "tol": 0.0, "random_state": 0} | parameters))


def assert_same_fit(left, right):
    assert_array_equal(left.atoms_, right.atoms_)
    assert_array_equal(left.codes_, right.codes_)
    assert_array_equal(left.objective_, right.objective_)
    assert_array_equal(left.density_, right.density_)
    assert (left.n_iter_, left.n_reseeded_, left.converged_) == (right.n_iter_, right.n_reseeded_, right.converged_)


@pytest.mark.parametrize("name", ["GTSC", "TubSC", "GraphSC", "SparseCoding", "TenSR", "CSC"])
@pytest.mark.parametrize("chunk_size", [None, 15])
@pytest.mark.parametrize("solver", [None, Fista(max_iter=15)])
def test_resumed_fit_is_identical(name, chunk_size, solver, images, tmp_path):
    parameters = {"code_solver": solver} | ({"n_atoms": (3, 3)} if name == "TenSR" else {})
    if chunk_size is not None and name in ("TenSR", "CSC"):
        chunk_size = 20
    whole = coder(name, **parameters).fit(images, chunk_size=chunk_size)
    path = tmp_path / "fit.ckpt"
    with pytest.raises(Interrupted):
        coder(name, callbacks=stop_at(4), **parameters).fit(
            images, chunk_size=chunk_size, checkpoint=Checkpoint(path, every_seconds=0.0)
        )
    seen = []
    resumed = coder(name, callbacks=lambda progress: seen.append(progress.n_iter), **parameters).fit(
        images, chunk_size=chunk_size, checkpoint=Checkpoint(path, every_seconds=0.0, resume=True)
    )
    assert seen[0] == 4  # three iterations were not made again
    assert_same_fit(resumed, whole)


def test_fit_resumes_in_the_middle_of_a_pass(images, tmp_path):
    whole = coder().fit(images, chunk_size=9, folder=tmp_path)

    class Kill(Checkpoint):
        def saver(self, identity):
            save, count = super().saver(identity), 0

            def counting(state, store):
                nonlocal count
                save(state, store)
                count += 1
                if count == 12:
                    raise Interrupted

            return counting

    path = tmp_path / "fit.ckpt"
    with pytest.raises(Interrupted):
        coder().fit(images, chunk_size=9, folder=tmp_path, checkpoint=Kill(path, every_seconds=0.0))
    resumed = coder().fit(
        images, chunk_size=9, folder=tmp_path, checkpoint=Checkpoint(path, every_seconds=0.0, resume=True)
    )
    assert_same_fit(resumed, whole)


def test_later_codes_do_not_damage_a_checkpoint(images, tmp_path):
    whole = coder().fit(images, chunk_size=9, folder=tmp_path)

    class Once(Checkpoint):
        def saver(self, identity):
            count = 0

            def save(state, store):
                nonlocal count
                count += 1
                if count == 7:
                    self.write(identity, state, store)
                if count == 19:
                    raise Interrupted

            return save

    path = tmp_path / "fit.ckpt"
    with pytest.raises(Interrupted):
        coder().fit(images, chunk_size=9, folder=tmp_path, checkpoint=Once(path))
    resumed = coder().fit(images, chunk_size=9, folder=tmp_path, checkpoint=Checkpoint(path, resume=True))
    assert_same_fit(resumed, whole)


def test_writing_checkpoints_does_not_change_the_fit(images, tmp_path):
    assert_same_fit(coder().fit(images, checkpoint=Checkpoint(tmp_path / "a", every_seconds=0.0)), coder().fit(images))


def test_resuming_a_finished_fit_makes_no_iteration(images, tmp_path):
    path = tmp_path / "a"
    whole = coder().fit(images, checkpoint=path)
    seen = []
    again = coder(callbacks=seen.append).fit(images, checkpoint=Checkpoint(path, resume=True))
    assert not seen
    assert_same_fit(again, whole)


def test_interval_between_checkpoints_is_kept(images, tmp_path, monkeypatch):
    now, written = [0.0], []
    monkeypatch.setattr("tubal.storage.files.time.monotonic", lambda: now[0])
    monkeypatch.setattr(Checkpoint, "write", lambda self, *rest: written.append(now[0]))

    def advance_clock(progress):
        now[0] += 10.0

    coder(max_iter=9, callbacks=advance_clock).fit(images, checkpoint=Checkpoint(tmp_path / "a", every_seconds=25.0))
    assert written == [30.0, 60.0, 90.0, 90.0]  # the last because the fit is finished


def test_checkpoint_of_another_fit_raises(images, tmp_path):
    path = tmp_path / "a"
    coder().fit(images, checkpoint=path)
    with pytest.raises(ValueError, match="checkpoint of another fit: sparsity differ"):
        coder(sparsity=0.5).fit(images, checkpoint=Checkpoint(path, resume=True))
    with pytest.raises(ValueError, match="checkpoint of another fit: images differ"):
        coder().fit(images + 1, checkpoint=Checkpoint(path, resume=True))
    with pytest.raises(ValueError, match="code_solver"):
        coder(code_solver=Admm(max_iter=3)).fit(images, checkpoint=Checkpoint(path, resume=True))
    with pytest.raises(ValueError, match="holds a checkpoint, a model is wanted"):
        tubal.load(path)
    with pytest.raises(TypeError, match="checkpoint is a int"):
        coder().fit(images, checkpoint=3)


@pytest.mark.parametrize("chunk_size", [None, 9])
@pytest.mark.parametrize("altered", [0, 20, 39])
def test_one_other_image_is_noticed(chunk_size, altered, images, tmp_path):
    place, others = tmp_path / "a", images.copy()
    others[altered, 2, 3] += 0.5
    coder("TubSC").fit(images, chunk_size=chunk_size, checkpoint=place)
    with pytest.raises(ValueError, match="another fit: images differ"):
        coder("TubSC").fit(others, chunk_size=chunk_size, checkpoint=Checkpoint(place, resume=True))


@pytest.mark.parametrize("place", ["fit.ckpt", "fit.ckpt.codes/notes", "fit.ckpt.rows/notes"])
@pytest.mark.parametrize("chunk_size", [None, 9])
def test_file_of_the_user_is_not_replaced_by_a_checkpoint(chunk_size, place, images, tmp_path):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("mine")
    with pytest.raises(FileExistsError, match="move or rename it"):
        coder("TubSC").fit(images, chunk_size=chunk_size, folder=tmp_path if chunk_size else None,
                           checkpoint=tmp_path / "fit.ckpt")  # fmt: skip
    assert (tmp_path / place).read_text() == "mine"


def test_delete_removes_our_own_files_only(images, tmp_path):
    checkpoint = Checkpoint(tmp_path / "fit.ckpt")
    coder("TubSC").fit(images, chunk_size=9, folder=tmp_path / "work", checkpoint=checkpoint)
    assert checkpoint.codes_folder.is_dir()
    (checkpoint.codes_folder / "notes").write_text("mine")
    checkpoint.delete()
    assert not checkpoint.path.exists()
    assert [file.name for file in checkpoint.codes_folder.iterdir()] == ["notes"]


def test_damaged_checkpoint_raises(images, tmp_path):
    path = tmp_path / "a"
    coder().fit(images, chunk_size=9, folder=tmp_path, checkpoint=path)
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(ValueError, match=r"cannot be loaded.*; delete it and start again without resume"):
        coder().fit(images, chunk_size=9, folder=tmp_path, checkpoint=Checkpoint(path, resume=True))
    path.write_bytes(good)
    codes = next(iter(sorted((tmp_path / "a.codes").iterdir())))
    damaged = bytearray(codes.read_bytes())
    damaged[5] ^= 1
    codes.write_bytes(bytes(damaged))
    with pytest.raises(ValueError, match="not those of the checkpoint"):
        coder().fit(images, chunk_size=9, folder=tmp_path, checkpoint=Checkpoint(path, resume=True))


def test_checkpoints_of_earlier_versions_are_resumed(tmp_path):
    """Written in the middle of a pass over three chunks, when classes and fields had other names."""
    images = np.random.default_rng(0).random((24, 5, 4)).round(3)
    path = shutil.copy(DATA / "checkpoint_1.tubal", tmp_path / "fit.ckpt")
    parameters = {"n_atoms": 3, "sparsity": 0.01, "max_iter": 4, "n_neighbors": 2}
    seen = []
    resumed = coder(**parameters, callbacks=lambda progress: seen.append(progress.n_iter)).fit(
        images, chunk_size=9, checkpoint=Checkpoint(path, resume=True)
    )
    whole = coder(**parameters).fit(images, chunk_size=9)
    assert seen == [3, 4]
    assert_allclose(resumed.objective_, whole.objective_, rtol=1e-6)
    assert_allclose(resumed.atoms_, whole.atoms_, atol=1e-4)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_fit_on_tensors_resumes(device, images, tmp_path):
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    tensors = torch.as_tensor(images, device=device)
    whole, path = coder().fit(tensors), tmp_path / "a"
    with pytest.raises(Interrupted):
        coder(callbacks=stop_at(4)).fit(tensors, checkpoint=Checkpoint(path, every_seconds=0.0))
    resumed = coder().fit(tensors, checkpoint=Checkpoint(path, resume=True))
    assert torch.is_tensor(resumed.codes_)
    assert resumed.codes_.device.type == device
    assert_allclose(resumed.objective_, whole.objective_, rtol=1e-6)
    assert_allclose(resumed.atoms_.cpu(), whole.atoms_.cpu(), atol=1e-6)


# --- kills ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk", [0, 9])
def test_killed_fits_resume(chunk, tmp_path):
    images = np.random.default_rng(0).random((40, 6, 5))
    model = tubal.GTSC(n_atoms=4, max_iter=40, tol=0.0, random_state=0).fit(images, chunk_size=chunk or None)
    found, _ = kill_and_resume(tmp_path, chunk, 2, 0)
    assert_array_equal(found["atoms"], model.atoms_)
    assert_array_equal(found["codes"], model.codes_)
    assert_array_equal(found["objective"], model.objective_)


def test_full_disk_keeps_the_previous_checkpoint(images, tmp_path):
    path = tmp_path / "a"
    with pytest.raises(Interrupted):
        coder(callbacks=stop_at(4)).fit(images, checkpoint=Checkpoint(path, every_seconds=0.0))
    script = """
        import resource, signal, sys, numpy as np, tubal
        from tubal.learning.checkpoints import Checkpoint
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        images = np.random.default_rng(0).random((40, 6, 5))
        model = tubal.GTSC(n_atoms=4, max_iter=6, tol=0.0, random_state=0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            model.fit(images, checkpoint=Checkpoint(sys.argv[1], every_seconds=0.0, resume=True))
        except OSError as error:
            sys.exit(0 if "cannot write" in str(error) else 2)
        sys.exit(3)
    """
    before = path.read_bytes()
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(path)], check=False)
    assert run.returncode == 0
    assert path.read_bytes() == before
    assert_same_fit(coder().fit(images, checkpoint=Checkpoint(path, resume=True)), coder().fit(images))
