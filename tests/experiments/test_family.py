"""The table "family": its plan, its summary, its recommendation, and one small run with figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from helpers.experiment_records import make_record
from tubal.experiments import family, find_table
from tubal.experiments.runner import run_trial
from tubal.experiments.tables import Trial, trial_key

MEMBERS = tuple(family.METHODS)
ROOT = Path(__file__).parents[2]


def record(method, dataset="orl", run=0, *, accuracy=50.0, nmi=60.0, settings=None, **changes):
    details = {"stored": 10.0, "nonzero": 2.0, "error": 0.01, "sparsity": 0.03}
    trial = Trial(
        table="family", dataset=dataset, method=method, row="table", run=run, settings=settings or {"size": 3}
    )
    return make_record(trial, accuracy=accuracy, nmi=nmi, details=details, **changes)


# --- the plan --------------------------------------------------------------------------------------------------
def test_plan_has_every_member_on_every_collection():
    assert find_table("family") is family
    trials = family.plan(family.DATASETS, MEMBERS, 10)
    assert len(trials) == 10 * len(family.DATASETS) * len(MEMBERS)
    assert len({trial_key(trial) for trial in trials}) == len(trials)


def test_members_of_a_pair_differ_only_by_the_graph():
    for pair in family.PAIRS:
        plain, with_graph = (family.settings_for(method, "orl") for method in pair)
        assert {name: with_graph[name] for name in plain} == plain
        assert set(with_graph) - set(plain) == {"graph_weight", "n_neighbors"}


def test_sweep_adds_rate_curves_of_five_models_and_shift_curves_of_all():
    trials = [trial for trial in family.plan(["orl"], MEMBERS, 1, sweep=True) if trial["row"] != "table"]
    assert {trial["method"] for trial in trials if trial["row"] == "rate size"} == set(family.RATE_METHODS)
    assert {trial["method"] for trial in trials if trial["row"] == "rate sparsity_fraction"} == set(family.RATE_METHODS)
    assert {trial["method"] for trial in trials if trial["row"] == "shift"} == set(MEMBERS)


# --- the summary -----------------------------------------------------------------------------------------------
def test_cell_takes_its_time_from_runs_on_the_processor():
    on_gpu = {"size": 3, "device": "cuda"}
    records = [record("gtsc", run=run, accuracy=50.0 + run, settings=on_gpu) for run in range(3)]
    records += [record("gtsc", accuracy=50.0, seconds=7.0)]

    cell = family.summarise(records)["table"]["orl"]["gtsc"]

    assert (cell["runs"], cell["timed_runs"], cell["seconds"], cell["device"]) == (3, 1, 7.0, "cpu")
    assert cell["accuracy"] == {"mean": 51.0, "sd": 1.0}


# --- the recommendation ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("best", "sentence"),
    [("gcsc", "CSC + graph is better than GTSC in both scores"), ("gtsc", "GTSC stays the recommendation")],
)
def test_findings_state_the_best_member(best, sentence):
    records = [
        record(method, accuracy=80.0 if method == best else 50.0, nmi=80.0 if method == best else 60.0)
        for method in MEMBERS
    ]

    summary = family.summarise(records)

    assert family.recommended(summary) == best
    assert sentence in "\n".join(family.findings(summary))


@pytest.mark.parametrize(
    ("scores", "best", "sentence"),
    [
        ([61.0, 55.0, 50.0], "gtsc", "CSC + graph is level with GTSC in both scores"),
        ([71.0, 70.0, 69.0], "gcsc", "CSC + graph is better than GTSC in both scores"),
        ([31.0, 30.0, 29.0], "gtsc", "CSC + graph is worse than GTSC in both scores"),
    ],
)
def test_differences_within_two_standard_errors_do_not_count(scores, best, sentence):
    records = [
        record(method, run=run, accuracy=score, nmi=score)
        for method, values in (("gtsc", [48.0, 50.0, 52.0]), ("gcsc", scores))
        for run, score in enumerate(values)
    ]

    summary = family.summarise(records)

    assert family.recommended(summary) == best
    assert sentence in "\n".join(family.findings(summary))
    error = summary["against_gtsc"]["gcsc"]["nmi"]["se"]
    assert_allclose(error, np.sqrt((np.var([48, 50, 52], ddof=1) + np.var(scores, ddof=1)) / 3), atol=2e-3)


def test_recommendation_needs_both_scores():
    records = [record("gtsc", accuracy=50.0, nmi=50.0), record("graphsc", accuracy=50.0, nmi=70.0)]

    summary = family.summarise(records)

    assert family.recommended(summary) == "gtsc"
    sentence = "GraphSC is level with GTSC in accuracy and better than GTSC in NMI"
    assert sentence in "\n".join(family.findings(summary))


def test_recommendation_needs_every_collection():
    summary = family.summarise([record("gtsc"), record("csc", "yale")])
    assert summary["averages"] == {}
    assert family.recommended(summary) is None
    assert family.findings(summary) == []


def test_short_page_has_the_averages():
    records = [record(method, dataset) for method in MEMBERS for dataset in ("orl", "yale")]
    text = family.short_page(family.summarise(records))
    assert text.startswith("Means over ORL, YALE")
    assert "| GTSC | 50.0 ± 0.0 |" in text


# --- the committed table ---------------------------------------------------------------------------------------
def test_stored_table_is_complete():
    """Every member on every collection, ten runs each, timed on the processor."""
    summary = json.loads((ROOT / "results" / "family.json").read_text(encoding="utf-8"))

    assert set(summary["table"]) == set(family.DATASETS)
    for dataset, cells in summary["table"].items():
        assert set(cells) == set(MEMBERS)
        assert {cell["runs"] for cell in cells.values()} == {cell["timed_runs"] for cell in cells.values()} == {10}
        for name, cell in cells.items():
            assert cell["settings"] == family.settings_for(name, dataset)
    assert family.recommended(summary) == summary["recommended"]


def test_stored_curves_are_complete():
    summary = json.loads((ROOT / "results" / "family.json").read_text(encoding="utf-8"))

    for curves in summary["rate"].values():
        assert set(curves) == set(family.DATASETS)
        assert all(set(models) == set(family.RATE_METHODS) for models in curves.values())
    for models in summary["rate"]["sparsity_fraction"].values():
        for points in models.values():
            counts = [point["nonzero"] for point in points]
            assert counts == sorted(counts, reverse=True)
    assert set(summary["shift"]) == set(family.DATASETS)


# --- one small run ---------------------------------------------------------------------------------------------
def test_run_is_written_as_table_curves_and_figures(tmp_path):
    base = {**family.settings_for("sc", "digits"), "max_iter": 2, "n_starts": 2, "size": 5}
    changes = [("table", {})]
    changes += [("rate sparsity_fraction", {"sparsity_fraction": fraction}) for fraction in (0.3, 0.01)]
    changes += [("rate size", {"size": size}) for size in (3, 9)]
    changes += [("shift", {"shifts": [0, 2], "shift_images": 10})]
    trials = [
        Trial(table="family", dataset="digits", method="sc", row=row, run=0, settings={**base, **change})
        for row, change in changes
    ]

    paths = family.write([run_trial(trial) for trial in trials], tmp_path)

    assert all(path.stat().st_size > 0 for path in paths)
    assert {path.suffix for path in paths} == {".json", ".md", ".png"}
    summary = json.loads((tmp_path / "family.json").read_text())
    points = summary["rate"]["sparsity_fraction"]["digits"]["sc"]
    assert [point["value"] for point in points] == [0.01, 0.3]
    assert points[0]["error"] < points[1]["error"]
    assert points[0]["nonzero"] > points[1]["nonzero"]
    assert summary["shift"]["digits"]["circle, right"]["sc"]["0"] == pytest.approx(0.0, abs=1e-5)
    assert "How far features move" in (tmp_path / "family.md").read_text()
