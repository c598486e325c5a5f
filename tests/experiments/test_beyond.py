"""The table "beyond": its plan, its summary of made-up trials, and its page."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.experiment_records import make_record
from tubal.experiments import beyond, find_table
from tubal.experiments.pages import write_summary
from tubal.experiments.tables import read_toml, trial_key


def trial_records(runs=4):
    """Records of every planned trial, with scores that are easy to check."""
    records = []
    for trial in beyond.plan(["orl", "digits"], list(beyond.METHODS), runs):
        bonus = {"default": 2.0, "graph-alone": 1.0}.get(trial["method"], 0.0)
        jitter = 0.1 * trial["run"] if trial["method"] == "default" else 0.0
        details = {"n_clusters": 38.0 if trial["settings"].get("estimate") else 40.0}
        records.append(make_record(trial, accuracy=90.0 + bonus + jitter, nmi=80.0, details=details, seconds=1.5))
    return records


# --- the plan --------------------------------------------------------------------------------------------------
def test_table_is_found_by_name():
    assert find_table("beyond") is beyond


def test_plan_has_every_method_and_every_ablation():
    trials = beyond.plan(beyond.DATASETS, list(beyond.METHODS), 10)

    table = [trial for trial in trials if trial["row"] == "table"]
    assert len(table) == 10 * len(beyond.DATASETS) * len(beyond.METHODS)
    assert {trial["row"] for trial in trials} == {"table", *beyond.ABLATION}
    assert len({trial_key(trial) for trial in trials}) == len(trials)
    parts = {"no affine bank", "no local warp", "pixels instead of gradients"}
    assert parts | {"q = 2", "q = 10", "graph weight 0.1", "graph weight 100"} <= set(beyond.ABLATION)


def test_every_collection_has_the_same_settings():
    settings = {
        (trial["method"], trial["row"]): json.dumps(dict(trial["settings"]), sort_keys=True)
        for trial in beyond.plan(["orl"], list(beyond.METHODS), 1)
    }
    for trial in beyond.plan(["usps", "yale"], list(beyond.METHODS), 1):
        assert settings[trial["method"], trial["row"]] == json.dumps(dict(trial["settings"]), sort_keys=True)


def test_every_published_score_names_its_source():
    published = read_toml("published.toml")
    assert set(published) <= set(beyond.DATASETS)
    for entry in (entry for group in published.values() for entry in group):
        assert entry["source"]
        assert {"accuracy", "nmi"} & set(entry)


# --- the summary and the page ----------------------------------------------------------------------------------
def test_page_shows_the_summary_of_the_trials():
    summary = beyond.summarise(trial_records())

    cell = summary["table"]["default"]["orl"]
    assert cell["accuracy"]["mean"] == pytest.approx(92.15)
    assert cell["runs"] == 4
    page = beyond.page(summary)
    assert "92.2±0.1 / 80.0±0.0" in page
    assert "| orl | 40 | 38.0 | -5 % | right |" in page
    assert "nothing (the default)" in page
    assert "one trial at a time" in page
    assert "DSC-Net" in page


def test_page_states_wrong_estimates_and_parallel_trials():
    records = [{**record, "jobs": 2} for record in trial_records()]
    for record in records:
        record["details"] = {"n_clusters": 14.0 if record["settings"].get("estimate") else 10.0}

    page = beyond.page(beyond.summarise(records))

    assert "| digits | 10 | 14.0 | +40 % | **wrong** |" in page
    assert "2 trials at a time" in page


def test_gain_of_codes_has_a_standard_error():
    gain = beyond.summarise(trial_records())["codes"]["orl"]

    gaps = 1.0 + 0.1 * np.arange(4)
    assert gain["accuracy"]["mean"] == pytest.approx(gaps.mean())
    assert gain["accuracy"]["standard_error"] == pytest.approx(gaps.std(ddof=1) / 2, abs=1e-3)
    assert gain["accuracy"]["verdict"] == "gain"
    assert gain["nmi"]["verdict"] == "no measurable gain"


def test_summary_is_written_as_json_and_page(tmp_path):
    summary = beyond.summarise(trial_records())

    table, page = write_summary("beyond", summary, beyond.page(summary), tmp_path / "new")

    assert json.loads(table.read_text()) == json.loads(json.dumps(summary))
    assert page.read_text() == beyond.page(summary)


def test_short_page_has_scores_gains_and_methods_in_order():
    text = beyond.short_page(beyond.summarise(trial_records()))

    assert "| orl | +1.15 ± 0.0" in text
    assert text.index("| K-means") < text.index("| UMAP") < text.index("| Default preset")
    assert "no measurable gain" in text
