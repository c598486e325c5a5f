"""The protocol: trials that are stored, continued and summed up honestly."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tubal.cli.reproduce import command
from tubal.datasets import COLLECTIONS, load_digits_images
from tubal.experiments import find_table, markdown, protocol, sweep, table2, tables, trials
from tubal.experiments.models import METHODS, absolute_sparsity, reduce_dimensions, scale_images
from tubal.experiments.pages import with_block
from tubal.experiments.paper import load_paper
from tubal.experiments.protocol import Forecast, TrialStore, run_trials
from tubal.experiments.rule import choose_share, measure
from tubal.experiments.trials import Trial, run_trial

ROOT = Path(__file__).parents[2]
CODERS = ("sc", "graphsc", "tubsc", "gtsc")


def kmeans_trial(run=0, row="label-free"):
    return Trial("2", "digits", "kmeans", row, run, {"n_starts": 1, "scale": "unit"})


def made_record(method, dataset, run, accuracy, nmi=50.0, row="label-free"):
    """A record as a trial would leave it, with chosen scores."""
    trial = Trial("2", dataset, method, row, run, {"scale": "unit"})
    return {
        **{"table": "2", "dataset": dataset, "method": method, "row": row, "run": run, "key": trial.key},
        **{
            "accuracy": accuracy,
            "nmi": nmi,
            "seconds": 1.0,
            "peak_memory_mb": 10.0,
            "settings": {"scale": "unit"},
        },
        **{"versions": {"tubal": "0"}, "data_sha256": "0" * 64},
    }


@pytest.fixture
def cheap_trials(monkeypatch):
    """Trials that cost nothing and count themselves."""
    ran = []

    def instant(trial):
        ran.append(trial.run)
        return {**made_record(trial.method, trial.dataset, trial.run, 50.0), "key": trial.key}

    monkeypatch.setattr(protocol, "run_trial", instant)
    return ran


# The paper's numbers


def test_paper_agrees_with_the_registry():
    for name, collection in load_paper().collections.items():
        registered = COLLECTIONS[name]
        assert collection.n_images == registered.n_images
        assert collection.n_classes == registered.n_classes
        assert collection.image_shape == registered.image_shape


def test_printed_averages_follow_from_the_printed_cells():
    paper = load_paper()
    for method, average in paper.average.items():
        for score, printed in average.items():
            mean = np.mean([collection.printed[method][score] for collection in paper.collections.values()])
            assert mean == pytest.approx(printed, abs=0.02), (method, score)


def test_printed_accuracies_are_counts_of_one_run():
    """The paper speaks of ten tests, but a mean of ten would rarely be a whole number of images."""
    for name in ("coil20", "orl", "yale"):
        collection = load_paper()[name]
        for scores in collection.printed.values():
            count = scores["accuracy"] * collection.n_images / 100
            assert round(count) / collection.n_images * 100 == pytest.approx(scores["accuracy"], abs=0.0051)


# Settings and methods


@pytest.mark.parametrize("dataset", table2.DATASETS)
def test_label_free_rule_is_the_same_for_every_method(dataset):
    settings = [table2.settings_for("label-free", method, dataset) for method in CODERS]
    for name in ("scale", "features", "sparsity_fraction", "init", "max_iter", "code_iterations", "n_starts"):
        assert len({setting[name] for setting in settings}) == 1
    assert settings[1]["graph_weight"] == settings[3]["graph_weight"] == 1.0
    assert settings[3]["n_atoms"] == load_paper()[dataset].n_atoms
    assert settings[0]["n_atoms"] == load_paper()[dataset].n_vector_atoms
    assert "sparsity" not in settings[0]


def test_sparsity_share_follows_from_the_written_rule():
    """Redone on fewer images: the share of the label-free rows is what the rule gives on digits and shapes."""
    share = choose_share(measure(n_images=150))
    assert share == table2.settings_for("label-free", "gtsc", "orl")["sparsity_fraction"]


def test_label_free_settings_do_not_depend_on_the_collection():
    for method in METHODS:
        settings = [table2.settings_for("label-free", method, dataset) for dataset in table2.DATASETS]
        for setting in settings:
            setting.pop("n_atoms", None)  # stated in the paper
        assert all(setting == settings[0] for setting in settings)


def test_best_score_settings_keep_to_the_paper():
    for dataset in table2.DATASETS:
        for method in CODERS:
            settings = table2.settings_for("best-score", method, dataset)
            assert settings.get("graph_weight", 1.0) == load_paper().graph_weight
            assert settings.get("n_neighbors", 3) == load_paper().n_neighbors
            assert ("sparsity" in settings) != ("sparsity_fraction" in settings)


def test_scaling_gives_unit_length_and_keeps_blank_images():
    images = np.stack([np.full((3, 3), 2.0), np.zeros((3, 3))]).astype(np.float32)
    lengths = np.linalg.norm(scale_images(images, "unit").reshape(2, -1), axis=1)
    np.testing.assert_allclose(lengths, [1.0, 0.0], rtol=1e-6)
    assert scale_images(images, "pixels") is images
    with pytest.raises(ValueError, match="'unit' or 'pixels'"):
        scale_images(images, "max")


def test_reduction_keeps_the_wanted_variance():
    images = load_digits_images().images
    rows = reduce_dimensions(images, 0.98)
    kept = rows.var(axis=0).sum() / images.reshape(len(images), -1).var(axis=0).sum()
    assert 0.98 <= kept < 0.985
    assert absolute_sparsity(rows, {"sparsity": 0.3}) == 0.3


def test_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setattr("tubal.experiments.models.find_spec", lambda name: None)
    assert METHODS["umap"].unavailable() == "UMAP + K-means needs the package umap: pip install 'tubal[bench]'"
    assert METHODS["kmeans"].unavailable() is None


# Trials


def test_record_describes_its_trial_in_full():
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


def test_the_same_trial_gives_the_same_scores():
    first, again = run_trial(kmeans_trial()), run_trial(kmeans_trial())
    assert (first["accuracy"], first["nmi"]) == (again["accuracy"], again["nmi"])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux can forget a peak")
def test_peak_memory_is_that_of_the_trial():
    start = trials._reset_peak_memory()
    block = np.ones(30_000_000)
    risen = trials._peak_memory() - start
    del block
    start = trials._reset_peak_memory()
    assert risen > 200 * 2**20
    assert trials._peak_memory() - start < 50 * 2**20


def test_spectral_and_labels_in_processes_of_their_own(tmp_path):
    settings = {"scale": "unit", "cut": "cluster_qr", "n_neighbors": 3}
    wanted = [Trial("2", "digits", "spectral", "label-free", 0, settings), kmeans_trial(0), kmeans_trial(1)]
    store = TrialStore(tmp_path / "trials.jsonl")
    records = list(run_trials(wanted, store, jobs=2))
    assert {record["key"] for record in records} == {trial.key for trial in wanted}
    here = run_trial(kmeans_trial(1))
    apart = next(record for record in records if record["key"] == here["key"])
    assert apart["accuracy"] == pytest.approx(here["accuracy"], abs=1e-9)
    assert all(record["jobs"] == 2 for record in records)


# Storing and continuing


def test_finished_trials_are_not_run_again(tmp_path, cheap_trials):
    store = TrialStore(tmp_path / "deep" / "trials.jsonl")
    wanted = [kmeans_trial(run) for run in range(5)]
    assert len(list(run_trials(wanted[:3], store))) == 3
    assert [record["run"] for record in run_trials(wanted, store)] == [3, 4]
    assert cheap_trials == [0, 1, 2, 3, 4]
    assert list(run_trials(wanted, store)) == []


def test_other_settings_are_other_trials(tmp_path, cheap_trials):
    store = TrialStore(tmp_path / "trials.jsonl")
    list(run_trials([kmeans_trial()], store))
    changed = Trial("2", "digits", "kmeans", "label-free", 0, {"n_starts": 2, "scale": "unit"})
    list(run_trials([changed], store))
    assert cheap_trials == [0, 0]
    assert len(store.finished([changed])) == 1


def test_an_interrupted_run_keeps_what_is_finished(tmp_path, cheap_trials, monkeypatch):
    store = TrialStore(tmp_path / "trials.jsonl")
    running = run_trials([kmeans_trial(run) for run in range(4)], store)
    next(running), next(running)
    running.close()
    assert [record["run"] for record in store.records()] == [0, 1]


def test_a_torn_line_is_ignored_and_does_not_spoil_the_next(tmp_path, cheap_trials):
    store = TrialStore(tmp_path / "trials.jsonl")
    wanted = [kmeans_trial(run) for run in range(2)]
    list(run_trials(wanted, store))
    text = store.path.read_text()
    store.path.write_text(text[: len(text) - 20])
    assert [record["run"] for record in run_trials(wanted, store)] == [1]
    assert [record["run"] for record in store.records()] == [0, 1]


def test_forecast_learns_from_finished_trials():
    wanted = [kmeans_trial(run) for run in range(10)]
    forecast = Forecast(wanted, [], jobs=2)
    for trial in wanted[:4]:
        forecast.note({**made_record("kmeans", "digits", trial.run, 50.0), "key": trial.key, "seconds": 3.0})
    assert forecast.seconds_left() == pytest.approx(6 * 3.0 / 2)


# Tables


def all_cells(scores):
    """Records of three runs on the four collections with the given mean accuracy for each method."""
    return [
        made_record(method, dataset, run, accuracy=score + run - 1, row=row)
        for method, score in scores.items()
        for dataset in table2.DATASETS
        for run in range(3)
        for row in table2.ROWS
    ]


def test_cell_statistics_and_distance_to_print():
    summary = tables.summarise(all_cells({"gtsc": 70.0}), METHODS)
    cell = summary["rows"]["best-score"]["gtsc"]["orl"]
    assert cell["accuracy"] == {"mean": 70.0, "sd": 1.0, "best": 71.0, "printed": 67.5, "difference": 2.5}
    assert cell["runs"] == 3
    assert summary["averages"]["best-score"]["gtsc"]["accuracy"]["printed"] == 71.70
    assert summary["targets"]["mean_at_or_above"] == ["orl accuracy", "yale accuracy"]
    assert summary["targets"]["figures"] == 8


def test_a_best_score_below_the_rule_is_named():
    records = all_cells({"graphsc": 60.0})
    for record in records:
        if record["row"] == "best-score" and record["dataset"] == "usps":
            record.update(accuracy=record["accuracy"] - 5, nmi=record["nmi"] - 5)
    summary = tables.summarise(records, METHODS)
    assert summary["undercut"] == [{"method": "graphsc", "dataset": "usps"}]
    assert "do worse over all runs than the rule: GraphSC on USPS." in markdown.report(summary)


def test_every_place_the_trials_ran_is_named():
    records = all_cells({"gtsc": 70.0})
    records[0].update(versions={"tubal": "0", "python": "3.99"}, jobs=16)
    text = markdown.report(tables.summarise(records, METHODS))
    assert "1 trials, 16 side by side: python 3.99, tubal 0." in text
    assert "23 trials, 1 side by side: tubal 0." in text


def test_rows_are_never_mixed():
    records = all_cells({"gtsc": 70.0})
    for record in records:
        record["accuracy"] += 10 if record["row"] == "best-score" else 0
    rows = tables.summarise(records, METHODS)["rows"]
    assert rows["label-free"]["gtsc"]["orl"]["accuracy"]["mean"] == 70.0
    assert rows["best-score"]["gtsc"]["orl"]["accuracy"]["mean"] == 80.0


def test_failed_ordering_is_said_plainly():
    records = all_cells({"gtsc": 60.0, "tubsc": 70.0, "graphsc": 55.0, "sc": 50.0})
    summary = tables.summarise(records, METHODS)
    text = markdown.report(summary)
    assert "GTSC > TubSC in accuracy **fails** on the average (-10.0 points); not so on COIL20" in text
    assert "TubSC > SC in accuracy holds on the average (+20.0 points)" in text
    assert "GTSC > GraphSC in accuracy holds" in markdown.readme_block(summary)


def test_sweep_rows_do_not_reach_the_table(tmp_path):
    planned = table2.plan(["orl"], ["kmeans", "gtsc"], 2, sweep=True)
    rows = {trial.row for trial in planned}
    assert rows == {"label-free", "best-score", "sweep sparsity_fraction", "sweep graph_weight"}
    records = [
        {**made_record("gtsc", "orl", trial.run, 60.0, row=trial.row), "settings": trial.settings}
        for trial in planned
        if trial.method == "gtsc"
    ]
    paths = table2.write(records, tmp_path, figures=False)
    assert json.loads((tmp_path / "table2.json").read_text())["rows"]["label-free"]["gtsc"]["orl"]["runs"] == 2
    curve = json.loads((tmp_path / "sweep.json").read_text())["graph_weight"]["orl"]["gtsc"]
    assert [point["value"] for point in curve] == list(sweep.SWEEPS["graph_weight"])
    assert len(paths) == 4


def test_readme_block_is_replaced_between_its_markers(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("# before\n<!-- table2:begin -->\nold\n<!-- table2:end -->\nafter\n")
    summary = tables.summarise(all_cells({"gtsc": 70.0}), METHODS)
    (tmp_path / "table2.json").write_text(json.dumps(summary))
    table2.update_readme(readme, tmp_path)
    text = readme.read_text()
    assert text.startswith("# before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "70.0±1.0" in text
    readme.write_text("no markers")
    with pytest.raises(ValueError, match="must hold the lines"):
        table2.update_readme(readme, tmp_path)


# The command


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
            "there is no method 'dbscan'; choose from kmeans, sc, graphsc, tubsc",
        ),
        (["--table", "7"], "there is no table '7'; choose one of 2, beyond"),
    ],
)
def test_unknown_names_list_the_valid_ones(tmp_path, arguments, message):
    result = reproduce(*arguments, "--out", tmp_path)
    assert result.exit_code == 1
    assert message in result.output


def test_unwritable_folder_is_reported_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "occupied").write_text("a file")
    monkeypatch.setattr(protocol, "run_trial", lambda trial: pytest.fail("work has started"))
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
    assert first.exit_code == 0, first.output
    again = reproduce(*options, "--runs", 2, "--json", tmp_path / "copy.json")
    assert again.exit_code == 0, again.output
    table = json.loads((tmp_path / "copy.json").read_text())
    assert table["rows"]["label-free"]["kmeans"]["digits"]["runs"] == 2
    assert len((tmp_path / ".trials" / "table2.jsonl").read_text().splitlines()) == 2
    assert "K-means" in (tmp_path / "table2.md").read_text()


def test_interrupt_keeps_finished_trials_and_says_how_to_go_on(tmp_path):
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
    _, message = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "run the same command to continue" in " ".join(message.split())
    assert "Traceback" not in message
    assert len(TrialStore(stored).records()) >= 2


@pytest.mark.collection("orl", "yale")
def test_smoke_every_method_on_two_collections(tmp_path, monkeypatch):
    """The whole table, small: every method once, few iterations, both kinds of rows."""
    real = table2.settings_for

    def shorter(row, method, dataset):
        settings = real(row, method, dataset)
        short = {"max_iter": 2, "n_starts": 2, "code_iterations": 10}
        return {**settings, **{name: value for name, value in short.items() if name in settings}}

    monkeypatch.setattr(table2, "settings_for", shorter)
    methods = [name for name in METHODS if METHODS[name].unavailable() is None]
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
    assert "GTSC > TubSC in accuracy" in (tmp_path / "table2.md").read_text()


# The committed results


def test_readme_table_is_generated_from_the_committed_results():
    results = ROOT / "results" / "table2.json"
    if not results.exists():
        pytest.skip("results/table2.json is not there")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    summary = json.loads(results.read_text())
    assert with_block(text, "table2", markdown.readme_block(summary)) == text
    assert (ROOT / "results" / "table2.md").read_text(encoding="utf-8") == markdown.report(summary)


def test_tables_are_found_by_name():
    assert find_table("2") is table2
