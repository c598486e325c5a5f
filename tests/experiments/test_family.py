"""The family compared: its plan, its rule for sparsity, its words, and one small run of every member."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tubal.experiments import family, family_report, family_words, find_table
from tubal.experiments.pages import with_block
from tubal.experiments.trials import Trial, run_trial

MEMBERS = tuple(family.METHODS)


def small_settings(method, **changes):
    sizes = {"tensr": [3, 3], "gtensr": [3, 3], "csc": 4, "gcsc": 4}
    settings = {**family.settings_for(method, "digits"), "max_iter": 2, "n_starts": 2, "size": sizes.get(method, 5)}
    if "filter_shape" in settings:
        settings["filter_shape"] = [3, 3]
    return {**settings, **changes}


@pytest.fixture(scope="module")
def digits():
    from tubal.datasets import load_digits_images

    bunch = load_digits_images()
    return bunch.images[:120], bunch.target[:120]


# --- the plan --------------------------------------------------------------------------------------------------


def test_the_table_is_found_and_plans_every_member_on_every_collection():
    assert find_table("family") is family
    trials = family.plan(family.DATASETS, MEMBERS, 10)
    assert len(trials) == 10 * len(family.DATASETS) * len(MEMBERS)
    assert len({trial.key for trial in trials}) == len(trials)


def test_graphs_are_the_only_difference_between_the_members_of_a_pair():
    for plain, tied in family_words.PAIRS:
        without, with_graph = (family.settings_for(method, "orl") for method in (plain, tied))
        assert {name: with_graph[name] for name in without} == without
        assert set(with_graph) - set(without) == {"graph_weight", "n_neighbors"}


def test_curves_are_planned_for_the_five_models_and_shifts_for_all():
    trials = [trial for trial in family.plan(["orl"], MEMBERS, 1, sweep=True) if trial.row != "table"]
    assert {trial.method for trial in trials if trial.row == "rate size"} == set(family.FIVE)
    assert {trial.method for trial in trials if trial.row == "rate sparsity_fraction"} == set(family.FIVE)
    assert {trial.method for trial in trials if trial.row == "shift"} == set(MEMBERS)


# --- the rule --------------------------------------------------------------------------------------------------


def test_attainable_products_are_attained(rng):
    images = rng.normal(size=(4, 7, 6))
    lengths = [np.linalg.norm(image) for image in images]
    assert_allclose(family.attainable("sc", images, ()), np.mean(lengths))
    singular = [np.linalg.svd(image, compute_uv=False)[0] for image in images]
    assert_allclose(family.attainable("tensr", images, ()), np.mean(singular))
    strongest = [
        max(
            np.linalg.norm(np.roll(image, (-row, -column), (0, 1))[:3, :2])
            for row in range(image.shape[0])
            for column in range(image.shape[1])
        )
        for image in images
    ]
    assert_allclose(family.attainable("csc", images, (3, 2)), np.mean(strongest))


@pytest.mark.parametrize(("way", "expected"), [("circle, right", [2, 0, 1]), ("border, right", [0, 0, 1])])
def test_images_move_around_or_out(way, expected):
    images = np.arange(3.0).reshape(1, 1, 3)
    assert_array_equal(family.moved(images, 1, way)[0, 0], expected)
    down = way.replace("right", "down")
    assert_array_equal(family.moved(images.transpose(0, 2, 1), 1, down)[0, :, 0], expected)


# --- one small run of every member -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", MEMBERS)
def test_every_member_clusters_and_says_what_it_stored(digits, method):
    images, target = digits
    outcome = family.METHODS[method].cluster(images, 10, small_settings(method), 0)
    assert outcome.labels.shape == target.shape
    details = outcome.details
    stored = {"sc": 5, "graphsc": 5, "tensr": 9, "gtensr": 9, "csc": 256, "gcsc": 256, "tubsc": 40, "gtsc": 40}
    assert details["stored"] == stored[method]
    assert 0 < details["nonzero"] <= details["stored"]
    assert 0 < details["error"] < 1


def test_features_of_shift_models_do_not_see_their_shifts(digits):
    """Circular shifts: both ways for CSC, along the tube for TubSC, no way for SC and TenSR."""
    images, _ = digits
    seen = {}
    for method in ("sc", "tensr", "csc", "tubsc"):
        settings = small_settings(method, shifts=[3], shift_images=20)
        seen[method] = family.METHODS[method].cluster(images, 10, settings, 0).details
    for way in ("circle, right", "circle, down"):
        assert seen["csc"][f"{way}, 3"] < 1e-3
        assert seen["sc"][f"{way}, 3"] > 0.1
        assert seen["tensr"][f"{way}, 3"] > 0.1
    assert seen["tubsc"]["circle, right, 3"] < 1e-3
    assert seen["tubsc"]["circle, down, 3"] > 0.1
    assert all(details["border, right, 3"] > 1e-2 for details in seen.values())


# --- the words -------------------------------------------------------------------------------------------------


def record(method, dataset="orl", row="table", run=0, *, accuracy=50.0, nmi=60.0, **changes):
    details = {"stored": 10.0, "nonzero": 2.0, "error": 0.01, "sparsity": 0.03, **changes.pop("details", {})}
    return {
        "method": method, "dataset": dataset, "row": row, "run": run, "accuracy": accuracy, "nmi": nmi,
        "seconds": 1.0, "peak_memory_mb": 5.0, "details": details, "settings": changes.pop("settings", {"size": 3}),
        "versions": {}, "data_sha256": "0",
    }  # fmt: skip


def test_cells_hold_every_run_once_and_time_the_processor():
    on_gpu = {"size": 3, "device": "cuda"}
    records = [record("gtsc", run=run, accuracy=50.0 + run, settings=on_gpu) for run in range(3)]
    records += [{**record("gtsc", accuracy=50.0), "seconds": 7.0}]
    cell = family_report.summarise(records, family.METHODS)["table"]["orl"]["gtsc"]
    assert (cell["runs"], cell["timed_runs"], cell["seconds"], cell["device"]) == (3, 1, 7.0, "cpu")
    assert cell["accuracy"] == {"mean": 51.0, "sd": 1.0}


@pytest.mark.parametrize(("best", "word"), [("gcsc", "CSC + graph beats GTSC"), ("gtsc", "stays the recommendation")])
def test_whoever_wins_is_printed(best, word):
    records = [
        record(method, accuracy=80.0 if method == best else 50.0, nmi=80.0 if method == best else 60.0)
        for method in MEMBERS
    ]
    summary = family_report.summarise(records, family.METHODS)
    assert family_words.recommended(summary) == best
    assert word in "\n".join(family_words.findings(summary))


def noisy(method, scores):
    return [record(method, run=run, accuracy=score, nmi=score) for run, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "best", "word"),
    [
        ([61.0, 55.0, 50.0], "gtsc", "CSC + graph is tied with GTSC"),
        ([71.0, 70.0, 69.0], "gcsc", "CSC + graph beats GTSC in both"),
        ([31.0, 30.0, 29.0], "gtsc", "CSC + graph is below GTSC in both"),
    ],
)
def test_differences_within_two_standard_errors_are_ties(scores, best, word):
    summary = family_report.summarise(noisy("gtsc", [48.0, 50.0, 52.0]) + noisy("gcsc", scores), family.METHODS)
    assert family_words.recommended(summary) == best
    assert word in "\n".join(family_words.findings(summary))
    told = summary["against_gtsc"]["gcsc"]["nmi"]
    assert_allclose(told["se"], np.sqrt((np.var([48, 50, 52], ddof=1) + np.var(scores, ddof=1)) / 3), atol=2e-3)


def test_a_member_better_in_one_score_alone_is_not_recommended_and_said_to_be():
    records = [record("gtsc", accuracy=50.0, nmi=50.0), record("graphsc", accuracy=50.0, nmi=70.0)]
    summary = family_report.summarise(records, family.METHODS)
    assert family_words.recommended(summary) == "gtsc"
    assert "GraphSC against GTSC is better in NMI, tied in accuracy" in "\n".join(family_words.findings(summary))


def test_the_readme_block_is_replaced_between_its_markers(tmp_path):
    records = [record(method, dataset) for method in MEMBERS for dataset in ("orl", "yale")]
    family.write(records, tmp_path, figures=False)
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- family:begin -->\nold\n<!-- family:end -->\nafter\n")
    family.update_readme(readme, tmp_path)
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| GTSC | 50.0 ± 0.0 |" in text
    readme.write_text("no markers")
    with pytest.raises(ValueError, match="must hold the lines"):
        family.update_readme(readme, tmp_path)


def test_the_readme_and_the_page_are_generated_from_the_committed_results():
    root = Path(__file__).parents[2]
    summary = json.loads((root / "results" / "family.json").read_text(encoding="utf-8"))
    text = (root / "README.md").read_text(encoding="utf-8")
    assert with_block(text, "family", family_words.readme_block(summary)) == text
    assert (root / "results" / "family.md").read_text(encoding="utf-8") == family_words.report(summary)
    assert family_words.recommended(summary) == summary["recommended"]


def test_the_committed_table_is_whole():
    """Every member on every collection, ten runs each, timed on the processor."""
    root = Path(__file__).parents[2]
    summary = json.loads((root / "results" / "family.json").read_text(encoding="utf-8"))
    assert set(summary["table"]) == set(family.DATASETS)
    for dataset, cells in summary["table"].items():
        assert set(cells) == set(MEMBERS)
        assert {cell["runs"] for cell in cells.values()} == {cell["timed_runs"] for cell in cells.values()} == {10}
        for name, cell in cells.items():
            assert cell["settings"] == family.settings_for(name, dataset)
    for curves in summary["rate"].values():
        assert set(curves) == set(family.DATASETS)
        assert all(set(models) == set(family.FIVE) for models in curves.values())
    for models in summary["rate"]["sparsity_fraction"].values():
        for points in models.values():
            counts = [point["nonzero"] for point in points]
            assert counts == sorted(counts, reverse=True)
    assert set(summary["shift"]) == set(family.DATASETS)


def test_nothing_is_recommended_before_every_collection_has_been_seen():
    summary = family_report.summarise([record("gtsc"), record("csc", "yale")], family.METHODS)
    assert summary["averages"] == {}
    assert family_words.findings(summary) == []


def test_a_run_is_written_as_table_curves_and_pictures(tmp_path, digits):
    trials = [Trial("family", "digits", "sc", "table", 0, small_settings("sc"))]
    trials += [
        Trial("family", "digits", "sc", "rate sparsity_fraction", 0, small_settings("sc", sparsity_fraction=share))
        for share in (0.3, 0.01)
    ]
    trials += [Trial("family", "digits", "sc", "rate size", 0, small_settings("sc", size=size)) for size in (3, 9)]
    trials += [Trial("family", "digits", "sc", "shift", 0, small_settings("sc", shifts=[0, 2], shift_images=10))]
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
