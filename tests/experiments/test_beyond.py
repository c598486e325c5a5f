"""The table "beyond": its plan, its report from made-up trials, and one real trial on the digits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from tubal.experiments import beyond, beyond_report, criterion, criterion_report, find_table
from tubal.experiments.beyond_figures import align
from tubal.experiments.pages import with_block
from tubal.experiments.paper import read_toml


def trial_records(runs=4):
    """Records as ``run_trial`` would give them, with scores that are easy to check."""
    records = []
    for trial in beyond.plan(["orl", "digits"], list(beyond.METHODS), runs):
        bonus = {"default": 2.0, "graph-alone": 1.0}.get(trial.method, 0.0)
        jitter = 0.1 * trial.run if trial.method == "default" else 0.0
        records.append(
            {
                "row": trial.row,
                "method": trial.method,
                "dataset": trial.dataset,
                "seed": trial.run,
                "accuracy": 90.0 + bonus + jitter,
                "nmi": 80.0,
                "seconds": 1.5,
                "peak_memory_mb": 10.0,
                "details": {"n_clusters": 38.0 if trial.settings.get("estimate") else 40.0},
                "settings": dict(trial.settings),
                "versions": {"tubal": "0"},
                "data_sha256": "0",
            }
        )
    return records


def test_the_table_is_found_by_name():
    assert find_table("beyond") is beyond


def test_the_plan_holds_every_method_and_every_ablation():
    trials = beyond.plan(beyond.DATASETS, list(beyond.METHODS), 10)
    table = [trial for trial in trials if trial.row == "table"]
    assert len(table) == 10 * len(beyond.DATASETS) * len(beyond.METHODS)
    assert {trial.row for trial in trials} == {"table", *beyond.ABLATION}
    assert len({trial.key for trial in trials}) == len(trials)
    parts = {"no affine bank", "no local warp", "pixels instead of gradients"}
    assert parts | {"q = 2", "q = 10", "graph weight 0.1", "graph weight 100"} <= set(beyond.ABLATION)


def test_one_setting_serves_every_collection():
    settings = {
        (trial.method, trial.row): json.dumps(dict(trial.settings), sort_keys=True)
        for trial in beyond.plan(["orl"], list(beyond.METHODS), 1)
    }
    for trial in beyond.plan(["usps", "yale"], list(beyond.METHODS), 1):
        assert settings[trial.method, trial.row] == json.dumps(dict(trial.settings), sort_keys=True)


def test_the_report_says_what_the_trials_say(tmp_path):
    summary = beyond_report.summarise(trial_records(), beyond.METHODS, tuple(beyond.ABLATION))
    cell = summary["table"]["default"]["orl"]
    assert cell["accuracy"]["mean"] == pytest.approx(92.15)
    assert cell["runs"] == 4
    table, text = beyond_report.write(summary, tmp_path)
    assert json.loads(table.read_text()) == json.loads(json.dumps(summary))
    report = text.read_text()
    assert "92.2±0.1 / 80.0±0.0" in report
    assert "| orl | 40 | 38.0 | -5 % | right |" in report
    assert "nothing (the default)" in report
    assert "one trial at a time" in report
    assert "DSC-Net" in report


def test_an_estimate_that_fails_and_trials_side_by_side_are_said(tmp_path):
    records = [{**record, "jobs": 2} for record in trial_records()]
    for record in records:
        record["details"] = {"n_clusters": 14.0 if record["settings"].get("estimate") else 10.0}
    summary = beyond_report.summarise(records, beyond.METHODS, tuple(beyond.ABLATION))
    report = beyond_report.report(summary)
    assert "| digits | 10 | 14.0 | +40 % | **fails** |" in report
    assert "2 trials side by side" in report


def test_what_codes_add_has_its_standard_error():
    summary = beyond_report.summarise(trial_records(), beyond.METHODS, tuple(beyond.ABLATION))
    gain = summary["codes"]["orl"]
    gaps = 1.0 + 0.1 * np.arange(4)
    assert gain["accuracy"]["mean"] == pytest.approx(gaps.mean())
    assert gain["accuracy"]["standard_error"] == pytest.approx(gaps.std(ddof=1) / 2, abs=1e-3)
    assert gain["accuracy"]["verdict"] == "gain"
    assert gain["nmi"]["verdict"] == "no measurable gain"


def test_the_readme_block_is_replaced_between_its_markers(tmp_path):
    summary = beyond_report.summarise(trial_records(), beyond.METHODS, tuple(beyond.ABLATION))
    beyond_report.write(summary, tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- beyond:begin -->\nold\n<!-- beyond:end -->\nafter\n")
    beyond.update_readme(readme, tmp_path)
    text = readme.read_text()
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "Default preset" in text
    assert "| orl | +1.15 ± 0.0" in text
    assert text.index("| K-means") < text.index("| UMAP") < text.index("| Default preset")
    assert "no measurable gain" in text
    readme.write_text("no markers")
    with pytest.raises(ValueError, match="must hold the lines"):
        beyond.update_readme(readme, tmp_path)


def test_every_anchor_names_its_source():
    anchors = read_toml("anchors.toml")
    assert set(anchors) <= set(beyond.DATASETS)
    for anchor in (anchor for group in anchors.values() for anchor in group):
        assert anchor["source"]
        assert {"accuracy", "nmi"} & set(anchor)


@pytest.mark.parametrize("method", ["default", "graph-alone", "spectral-deformable", "gtsc"])
def test_methods_separate_plain_patterns(rng, method):
    patterns = rng.normal(size=(3, 10, 10))
    images = np.repeat(patterns, 12, axis=0) + 0.1 * rng.normal(size=(36, 10, 10))
    outcome = beyond.METHODS[method].cluster(images, 3, beyond.settings_for(method), 0)
    assert [len(set(outcome.labels[start : start + 12])) for start in (0, 12, 24)] == [1, 1, 1]
    assert len(set(outcome.labels)) == 3


@pytest.mark.parametrize(
    "row", ["no affine bank", "no local warp", "neither", "pixels instead of gradients", "Euclidean graph", "q = 2"]
)
def test_ablations_change_one_thing_and_run(rng, row):
    patterns = rng.normal(size=(3, 10, 10))
    images = np.repeat(patterns, 12, axis=0) + 0.1 * rng.normal(size=(36, 10, 10))
    model = beyond.fit_default(images, 3, beyond.settings_for("default", row), 0)
    assert model.graph_.neighbors.shape == (36, 2 if row == "q = 2" else 5)
    if row == "no affine bank":
        assert not model.graph_.alignments.rotation.any()
        assert not model.graph_.alignments.dx.any()


def test_an_unknown_part_of_the_model_is_refused():
    with pytest.raises(ValueError, match="no local warp"):
        beyond.build_graph(np.zeros((5, 8, 8)), 2, "no gradients")


@pytest.mark.parametrize("motion", ["rotation", "scale", "shift"])
def test_alignments_bring_neighbours_onto_their_images(rng, motion):
    blobs = ndimage.gaussian_filter(rng.normal(size=(24, 32, 32)), (0, 3, 3)) * 10
    turned = {
        "rotation": lambda image: ndimage.rotate(image, 10.0, reshape=False, order=1, mode="nearest"),
        "scale": lambda image: ndimage.affine_transform(
            image, np.eye(2) / 1.08, offset=15.5 * (1 - 1 / 1.08), order=1, mode="nearest"
        ),
        "shift": lambda image: ndimage.shift(image, (2.0, -1.0), order=1, mode="nearest"),
    }[motion]
    images = np.concatenate([blobs, np.stack([turned(image) for image in blobs])])
    graph = beyond.build_graph(images, 1)
    partner = (np.arange(48) + 24) % 48
    assert (graph.neighbors[:, 0] == partner).mean() > 0.9
    before, after = np.empty(48), np.empty(48)
    for index in range(48):
        neighbour = images[graph.neighbors[index, 0]]
        before[index] = np.square(neighbour - images[index])[4:-4, 4:-4].sum()
        after[index] = np.square(align(neighbour, graph, index, 0) - images[index])[4:-4, 4:-4].sum()
    assert np.median(after / before) < 0.3


def test_the_criterion_prefers_what_repeats_and_says_when_the_default_does_not():
    """Two settings made up by hand: one gives every sample the same halves, the other random ones."""
    generator = np.random.default_rng(0)
    samples = []
    for _ in range(4):
        members = np.sort(generator.permutation(200)[:160])
        labels = {("q", 5): generator.integers(2, size=160), ("q", 3): (members < 100).astype(np.intp)}
        samples.append(criterion.Sample(members, labels, dict.fromkeys(labels, 0.5)))
    steady, error = criterion.jackknife(criterion.agreement(samples, ("q", 3)))
    assert (steady, error) == (1.0, 0.0)
    shaky, error = criterion.jackknife(criterion.agreement(samples, ("q", 5)))
    assert abs(shaky) < 0.05
    assert error > 0
    better = criterion._described(samples, "q", 3)
    assert better["minus_default"] == pytest.approx(1.0 - shaky, abs=1e-4)
    assert better["minus_default"] > 2 * better["minus_default_error"]


def test_jackknife_error_of_independent_samples_is_that_of_a_mean(rng):
    """Pairs that are sums of two samples' own values have a mean of twice the mean of those values."""
    values = rng.normal(size=40)
    pairs = values[:, None] + values
    np.fill_diagonal(pairs, 0.0)
    mean, error = criterion.jackknife(pairs)
    assert mean == pytest.approx(2 * values.mean())
    assert error == pytest.approx(2 * values.std(ddof=1) / np.sqrt(40), rel=1e-6)


def test_the_criterion_runs_and_keeps_its_order(tmp_path, monkeypatch):
    monkeypatch.setenv("TUBAL_DATA", str(tmp_path / "nothing"))
    few = {"q": (3, 5), "graph weight": (10.0,), "sparsity": (0.003,), "assignment": criterion.CHOICES["assignment"]}
    monkeypatch.setattr(criterion, "CHOICES", few)
    monkeypatch.setattr(criterion_report, "CHOICES", few)
    monkeypatch.setattr(criterion, "THEN", ())
    table, text = criterion.run(tmp_path, n_samples=3, most_images=80)
    record = json.loads(table.read_text())
    assert record["order"] == ["digits", "shapes"]
    assert set(record["verdicts"]["first"]) == set(few)
    page = text.read_text()
    assert "after Yale's scores had been\nseen" in page
    assert "**5** (default)" in page
    made_up = {"digits": {"settings": {"q": {"3": _stable(0.9, 0.3, 0.01), "5": _stable(0.6, 0.0, 0.0)}}}}
    assert not criterion_report.verdict(made_up, "q", ["digits"])["default_stands"]


def _stable(stability, difference, error):
    return {
        "stability": stability,
        "standard_error": 0.01,
        "minus_default": difference,
        "minus_default_error": error,
        "modularity": 0.5,
    }


def test_the_readme_and_the_page_are_generated_from_the_committed_results():
    root = Path(__file__).parents[2]
    summary = json.loads((root / "results" / "beyond.json").read_text(encoding="utf-8"))
    text = (root / "README.md").read_text(encoding="utf-8")
    assert with_block(text, "beyond", beyond_report.readme_block(summary)) == text
    assert (root / "results" / "beyond.md").read_text(encoding="utf-8") == beyond_report.report(summary)
