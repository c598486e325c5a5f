"""Trials are run, stored, continued after an interruption, and forecast."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.experiment_records import kmeans_trial, make_record
from tubal.experiments import find_table, runner, table2
from tubal.experiments.runner import Forecast, TrialStore, run_trial, run_trials
from tubal.experiments.tables import Trial, trial_key


@pytest.fixture
def instant_trials(monkeypatch):
    """Replace trials by instant ones, and return the list of runs that were started."""
    started = []

    def instant(trial):
        started.append(trial["run"])
        return make_record(trial)

    monkeypatch.setattr(runner, "run_trial", instant)
    return started


def test_tables_are_found_by_name():
    assert find_table("2") is table2
    with pytest.raises(ValueError, match="there is no table '7'; choose one of 2, search, finals, atlas"):
        find_table("7")


# --- one trial -------------------------------------------------------------------------------------------------
def test_record_describes_its_trial():
    record = run_trial(kmeans_trial(run=3))

    assert {"dataset", "method", "row", "run", "seed", "settings", "versions", "data_sha256"} <= set(record)
    assert record["seed"] == 3
    assert 60 < record["accuracy"] < 90
    assert 60 < record["nmi"] < 90
    assert record["seconds"] > 0
    assert record["process_memory_mb"] > 50
    assert record["peak_memory_mb"] >= 0
    assert len(record["data_sha256"]) == 64
    json.dumps(record)


def test_same_trial_gives_same_scores():
    first, again = run_trial(kmeans_trial()), run_trial(kmeans_trial())
    assert (first["accuracy"], first["nmi"]) == (again["accuracy"], again["nmi"])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux can reset the peak memory")
def test_peak_memory_is_that_of_the_trial():
    start = runner._reset_peak_memory()
    block = np.ones(30_000_000)
    risen = runner._peak_memory() - start
    del block
    start = runner._reset_peak_memory()

    assert risen > 200 * 2**20
    assert runner._peak_memory() - start < 50 * 2**20


def test_trials_in_processes_give_the_same_scores(tmp_path):
    settings = {"scale": "unit", "cut": "cluster_qr", "n_neighbors": 3}
    wanted = [
        Trial(table="2", dataset="digits", method="spectral", row="label-free", run=0, settings=settings),
        kmeans_trial(0),
        kmeans_trial(1),
    ]

    records = list(run_trials(wanted, TrialStore(tmp_path / "trials.jsonl"), jobs=2))

    assert {record["key"] for record in records} == {trial_key(trial) for trial in wanted}
    assert all(record["jobs"] == 2 for record in records)
    here = run_trial(kmeans_trial(1))
    in_process = next(record for record in records if record["key"] == here["key"])
    assert in_process["accuracy"] == pytest.approx(here["accuracy"], abs=1e-9)


# --- storing and continuing ------------------------------------------------------------------------------------
def test_finished_trials_are_not_run_again(tmp_path, instant_trials):
    store = TrialStore(tmp_path / "deep" / "trials.jsonl")
    wanted = [kmeans_trial(run) for run in range(5)]

    assert len(list(run_trials(wanted[:3], store))) == 3
    assert [record["run"] for record in run_trials(wanted, store)] == [3, 4]
    assert instant_trials == [0, 1, 2, 3, 4]
    assert list(run_trials(wanted, store)) == []


def test_other_settings_make_another_trial(tmp_path, instant_trials):
    store = TrialStore(tmp_path / "trials.jsonl")
    changed = Trial(
        table="2", dataset="digits", method="kmeans", row="label-free", run=0, settings={"n_starts": 2, "scale": "unit"}
    )

    list(run_trials([kmeans_trial()], store))
    list(run_trials([changed], store))

    assert instant_trials == [0, 0]
    assert len(store.finished([changed])) == 1


def test_interrupt_keeps_finished_trials(tmp_path, instant_trials):
    store = TrialStore(tmp_path / "trials.jsonl")

    running = run_trials([kmeans_trial(run) for run in range(4)], store)
    next(running), next(running)
    running.close()

    assert [record["run"] for record in store.records()] == [0, 1]


def test_truncated_line_is_ignored_and_run_again(tmp_path, instant_trials):
    store = TrialStore(tmp_path / "trials.jsonl")
    wanted = [kmeans_trial(run) for run in range(2)]
    list(run_trials(wanted, store))
    text = store.path.read_text()

    store.path.write_text(text[: len(text) - 20])

    assert [record["run"] for record in run_trials(wanted, store)] == [1]
    assert [record["run"] for record in store.records()] == [0, 1]


def test_forecast_uses_times_of_finished_trials():
    wanted = [kmeans_trial(run) for run in range(10)]
    forecast = Forecast(wanted, [], jobs=2)

    for trial in wanted[:4]:
        forecast.note(make_record(trial, seconds=3.0))

    assert forecast.seconds_left() == pytest.approx(6 * 3.0 / 2)
