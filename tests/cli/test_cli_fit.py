"""``tubal fit`` with every coder and on a cluster, and ``--resume`` of fit and cluster."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import tubal
from helpers.cli_helpers import one_sentence
from tubal.cli import pipeline, run
from tubal.cli.console import ProgressBar

pytest_plugins = ["helpers.cli_fixtures"]


def fit(shapes: Path, model: Path, *options: str) -> int:
    return run(["fit", str(shapes), "--out", str(model), "--quiet", *options])


@pytest.mark.parametrize(
    ("options", "kind", "codes"),
    [
        (["--method", "tensr", "--atoms", "5x4"], "TenSR", (60, 5, 4)),
        (["--method", "csc", "--atoms", "3", "--filter-size", "4x5"], "CSC", (60, 3, 12, 12)),
        (["--method", "csc", "--atoms", "2", "--graph-weight", "1", "--neighbors", "2"], "CSC", (60, 2, 12, 12)),
        (["--method", "sc", "--atoms", "4", "--sparsity", "0.1"], "SparseCoding", (60, 4, 1)),
        (["--method", "graphsc", "--atoms", "4", "--graph", "cosine"], "GraphSC", (60, 4, 1)),
    ],
)
def test_fit_saves_every_kind_of_coder(options, kind, codes, shapes: Path, tmp_path: Path) -> None:
    assert fit(shapes, tmp_path / "model.tubal", *options) == 0
    model = tubal.load(tmp_path / "model.tubal")
    assert type(model).__name__ == kind
    assert model.codes_.shape == codes
    assert {entry.name for entry in tmp_path.iterdir()} == {"model.tubal"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--method", "tensr", "--atoms", "5"], "rows x columns"),
        (["--method", "gtsc", "--atoms", "5x5"], "one number"),
        (["--method", "tubsc", "--graph-weight", "2"], "--graph-weight does not apply to --method tubsc"),
        (["--method", "gtsc", "--clusters", "3"], "--clusters does not apply"),
        (["--method", "gtsc", "--filter-size", "3x3"], "--filter-size does not apply"),
        (["--method", "gtsc", "--scheduler", "tcp://127.0.0.1:9", "--device", "cpu"], "leave one out"),
        (["--atoms", "many"], "'many' is not"),
    ],
)
def test_wrong_option_is_reported_in_one_sentence(options, sentence, shapes, tmp_path, capsys) -> None:
    assert fit(shapes, tmp_path / "model.tubal", *options) == 2
    assert sentence in one_sentence(capsys)
    assert not list(tmp_path.iterdir())


def test_missing_scheduler_is_reported_in_one_sentence(shapes: Path, tmp_path: Path, capsys) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tubal[dask]'")
    from distributed import Client

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "__init__", lambda *_, **__: (_ for _ in ()).throw(TimeoutError("nobody there")))
        assert fit(shapes, tmp_path / "m.tubal", "--method", "tubsc", "--scheduler", "tcp://127.0.0.1:9") == 2
    assert "no Dask scheduler at 'tcp://127.0.0.1:9'" in one_sentence(capsys)


@pytest.fixture
def cluster_without_workers(monkeypatch: pytest.MonkeyPatch):
    dask = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tubal[dask]'")
    from tubal import distributed

    monkeypatch.setattr(distributed, "WORKER_SECONDS", 0.3)
    with dask.LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=None) as found:
        yield found


def test_missing_worker_is_reported_in_one_sentence(cluster_without_workers, shapes, tmp_path, capsys) -> None:
    command = ["cluster", str(shapes), "-o", str(tmp_path / "out")]
    assert run([*command, "--scheduler", cluster_without_workers.scheduler_address]) == 2
    assert "no worker" in one_sentence(capsys)
    assert not list(tmp_path.iterdir())


def test_lost_scheduler_is_reported_with_the_command_that_resumes(
    cluster_without_workers, shapes, tmp_path, capfd, monkeypatch
) -> None:
    def lose(bar: ProgressBar, done: int, total: int | None = None) -> None:
        if bar.stage == "clustering":
            cluster_without_workers.close(timeout=1)

    cluster_without_workers.scale(1)
    monkeypatch.setattr(ProgressBar, "__call__", lose)
    command = ["cluster", str(shapes), "-q", "-o", str(tmp_path / "out")]
    assert run([*command, "--scheduler", cluster_without_workers.scheduler_address]) == 2
    printed = capfd.readouterr().err
    assert re.fullmatch(r"tubal: the connection to the scheduler \S+ was lost; [^;]+ --resume\n", printed), printed


def test_fit_on_a_dask_cluster_equals_local_fit(shapes: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tubal[dask]'")
    options = ["--method", "tubsc", "--atoms", "4", "--sparsity", "0.05"]
    assert fit(shapes, tmp_path / "home.tubal", *options) == 0
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as local:
        assert fit(shapes, tmp_path / "away.tubal", *options, "--scheduler", local.scheduler_address) == 0
    home, away = (tubal.load(tmp_path / f"{name}.tubal") for name in ("home", "away"))
    np.testing.assert_allclose(away.objective_[-1], home.objective_[-1], rtol=1e-4)
    assert away.codes_.shape == home.codes_.shape


def test_clusters_on_a_dask_cluster_equal_local_ones(shapes: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tubal[dask]'")
    command = ["cluster", str(shapes), "-k", "3", "--quiet", "--out"]
    assert run([*command, str(tmp_path / "home")]) == 0
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as local:
        assert run([*command, str(tmp_path / "away"), "--scheduler", local.scheduler_address]) == 0
    home, away = ((tmp_path / name / "labels.csv").read_text() for name in ("home", "away"))
    assert away == home


@pytest.mark.parametrize("option", [["--preset", "paper"], ["--device", "cpu"]])
def test_options_that_contradict_a_scheduler_are_named(option, shapes: Path, tmp_path: Path, capsys) -> None:
    command = ["cluster", str(shapes), "--out", str(tmp_path / "out"), "--scheduler", "tcp://127.0.0.1:9", *option]
    assert run(command) == 2
    assert "leave one" in one_sentence(capsys)
    assert not list(tmp_path.iterdir())


def interrupt_at(monkeypatch: pytest.MonkeyPatch, n_iter: int) -> None:
    """Press Ctrl-C when the bar shows ``n_iter`` iterations; write a checkpoint after every one."""
    monkeypatch.setattr(pipeline, "CHECKPOINT_SECONDS", 0.0)

    def stop(bar: ProgressBar, done: int, total: int | None = None) -> None:
        if done == n_iter and bar.stage.startswith(("fitting", "clustering")):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "__call__", stop)


def test_interrupted_fit_resumes(shapes: Path, tmp_path: Path, capsys) -> None:
    options = ["--method", "gtsc", "--atoms", "4", "--neighbors", "2"]
    assert fit(shapes, tmp_path / "whole.tubal", *options) == 0
    model, checkpoint = tmp_path / "model.tubal", tmp_path / "model.tubal.checkpoint"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, 4)
        assert fit(shapes, model, *options) == 130
    assert one_sentence(capsys).endswith(" --resume\n")
    assert checkpoint.exists()
    assert not model.exists()
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ProgressBar, "__call__", lambda bar, done, total=None: seen.append(done) if "fitting" in bar.stage else None
        )
        assert fit(shapes, model, *options, "--resume") == 0
    learning = seen[seen.index(60) + 1 :]  # after the neighbours of 60 pictures
    assert min(learning) >= 3, "the fit started from the beginning"
    assert not checkpoint.exists()
    whole, resumed = tubal.load(tmp_path / "whole.tubal"), tubal.load(model)
    np.testing.assert_array_equal(resumed.codes_, whole.codes_)
    np.testing.assert_array_equal(resumed.atoms_, whole.atoms_)


def test_checkpoint_of_another_fit_is_an_error(shapes: Path, tmp_path: Path, capsys) -> None:
    model, checkpoint = tmp_path / "model.tubal", tmp_path / "model.tubal.checkpoint"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, 3)
        assert fit(shapes, model, "--method", "tubsc", "--atoms", "4") == 130
    capsys.readouterr()
    assert fit(shapes, model, "--method", "tubsc", "--atoms", "5", "--resume") == 2
    assert "another fit: n_atoms differ" in one_sentence(capsys)
    assert checkpoint.exists()


def test_resumed_cluster_command_gives_the_same_labels(
    shapes: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["cluster", str(shapes), "-k", "3", "--labels", "folders", "--out", str(tmp_path / "out")]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, 2)
        assert run([*arguments, "--quiet"]) == 130
    assert "the progress is saved in" in one_sentence(capsys)
    assert {entry.name for entry in tmp_path.iterdir()} == {"out.checkpoint", "out.checkpoint.pictures"}
    assert run([*arguments, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["clusters"] == 3
    assert {entry.name for entry in tmp_path.iterdir()} == {"out"}
    assert (tmp_path / "out" / "labels.csv").read_bytes() == (results / "labels.csv").read_bytes()


def test_run_killed_at_the_end_draws_and_explains_nothing_again(
    shapes: Path, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["cluster", str(shapes), "-k", "3", "--labels", "folders", "--out", str(tmp_path / "out"), "-q"]

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no room is left")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tubal.report.write_report", refuse)
        assert run(arguments) == 2
    kept = {"out.checkpoint", "out.checkpoint.later", "out.checkpoint.pictures"}
    assert {entry.name for entry in tmp_path.iterdir()} == kept
    monkeypatch.setattr("tubal.estimators.explanation._few_terms", refuse)
    monkeypatch.setattr("tubal.clustering.clusterer.graph_map", refuse)
    assert run([*arguments, "--resume"]) == 0
    assert {entry.name for entry in tmp_path.iterdir()} == {"out"}
    assert (tmp_path / "out" / "labels.csv").read_bytes() == (results / "labels.csv").read_bytes()


def test_resume_without_checkpoint_starts_from_the_beginning(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--method", "sc", "--atoms", "2", "--resume", "--out", str(tmp_path / "model.tubal")]
    assert run(["fit", str(shapes), *options]) == 0
    assert "to resume; starting from the beginning" in capsys.readouterr().err
