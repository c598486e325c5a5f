"""The command ``tubal reproduce``: it checks its input first, writes the table, and continues after an interrupt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from tubal.cli.reproduce import reproduce as command
from tubal.datasets import COLLECTIONS
from tubal.experiments import runner, table2
from tubal.experiments.runner import TrialStore


def reproduce(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--datasets", "orl,mnist"],
            "there is no dataset 'mnist'; choose from coil20, usps, orl, yale",
        ),
        (
            ["--methods", "dbscan"],
            "there is no method 'dbscan'; choose from kmeans, sc, graphsc, tensr, csc, tubsc",
        ),
        (["--table", "7"], "there is no table '7'; choose one of 2, search, finals, atlas, beyond"),
    ],
)
def test_unknown_names_list_the_valid_ones(tmp_path, arguments, message):
    result = reproduce(*arguments, "--out", tmp_path)
    assert result.exit_code == 1
    assert message in result.output


def test_unwritable_folder_is_reported_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "occupied").write_text("a file")
    monkeypatch.setattr(runner, "run_trial", lambda trial: pytest.fail("work has started"))

    result = reproduce("--datasets", "digits", "--methods", "kmeans", "--out", tmp_path / "occupied", "--jobs", 1)

    assert result.exit_code == 1
    assert f"the folder {tmp_path / 'occupied'} cannot be written" in result.output


def test_damaged_collection_is_reported_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "ORL.mat").write_bytes(b"damaged")
    monkeypatch.setenv("TUBAL_DATA", str(tmp_path))

    result = reproduce("--datasets", "orl", "--out", tmp_path / "out")

    assert result.exit_code == 1
    assert f"expected SHA-256 {COLLECTIONS['orl'].sha256}, found" in result.output
    assert (tmp_path / "ORL.mat").read_bytes() == b"damaged"


def test_command_writes_the_table_and_continues(tmp_path):
    options = ["--datasets", "digits", "--methods", "kmeans", "--out", tmp_path, "--jobs", 1, "--no-figures"]

    first = reproduce(*options, "--runs", 1)
    again = reproduce(*options, "--runs", 2, "--json", tmp_path / "copy.json")

    assert first.exit_code == 0, first.output
    assert again.exit_code == 0, again.output
    table = json.loads((tmp_path / "copy.json").read_text())
    assert table["rows"]["label-free"]["kmeans"]["digits"]["runs"] == 2
    assert len((tmp_path / ".trials" / "table2.jsonl").read_text().splitlines()) == 2
    assert "K-means" in (tmp_path / "table2.md").read_text()


def test_interrupt_keeps_finished_trials_and_says_how_to_continue(tmp_path):
    code = "from tubal.cli import main; main()"
    options = ["--datasets", "digits", "--methods", "kmeans", "--runs", "2000", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "reproduce", *options, "--jobs", "2", "--no-figures"],
        stderr=subprocess.PIPE,
        text=True,
    )
    stored = tmp_path / ".trials" / "table2.jsonl"
    deadline = time.monotonic() + 60
    while not (stored.exists() and stored.read_text().count("\n") >= 2) and time.monotonic() < deadline:
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=120)

    assert process.returncode == 130
    assert "run the same command to continue" in " ".join(message.split())
    assert "Traceback" not in message
    assert len(TrialStore(stored).records()) >= 2


@pytest.mark.slow
@pytest.mark.collection("orl", "yale")
def test_every_method_runs_on_two_collections(tmp_path, monkeypatch):
    """The whole table, small: every method once, few iterations, few atoms and pixels, both kinds of rows."""
    full_settings, full_images = table2.settings_for, runner._load_dataset

    def short_settings(row, method, dataset):
        settings = full_settings(row, method, dataset)
        short = {"max_iter": 2, "n_starts": 2} | ({} if method == "tensr" else {"n_atoms": 20})
        return {**settings, **{name: value for name, value in short.items() if name in settings}}

    def small_images(table, dataset):
        images, target, data_hash = full_images(table, dataset)
        step = images.shape[1] // 16
        return images[:, ::step, ::step], target, data_hash

    monkeypatch.setattr(table2, "settings_for", short_settings)
    monkeypatch.setattr(runner, "_load_dataset", small_images)
    methods = [name for name, method in table2.METHODS.items() if method.unavailable() is None]

    result = reproduce(
        *("--datasets", "orl,yale", "--runs", 1, "--out", tmp_path, "--jobs", 1),
        *("--no-figures", "--methods", ",".join(methods)),
    )

    assert result.exit_code == 0, result.output
    table = json.loads((tmp_path / "table2.json").read_text())
    for row in table2.ROWS:
        assert set(table["rows"][row]) == set(methods)
        for cells in table["rows"][row].values():
            assert {cells[name]["runs"] for name in ("orl", "yale")} == {1}
            assert all(cells[name]["accuracy"]["mean"] > 25 for name in ("orl", "yale"))  # chance is 10 or less
    assert "TubSC in accuracy on average" in (tmp_path / "table2.md").read_text()
