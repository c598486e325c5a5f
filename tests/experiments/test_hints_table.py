"""The table "hints": its plan, its scores, its peers, and its page."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from scipy import sparse

from helpers.experiment_records import make_record
from tubal.datasets import load_images, make_shifted_shapes
from tubal.experiments import find_table, hints
from tubal.experiments.tables import Trial


def two_cliques():
    block = np.ones((5, 5)) - np.eye(5)
    graph = np.zeros((10, 10))
    graph[:5, :5] = graph[5:, 5:] = block
    graph[4, 5] = graph[5, 4] = 0.1
    return sparse.csr_matrix(graph), np.repeat([3, 8], 5)


def record(dataset="digits", run=0, **details):
    trial = Trial(table="hints", dataset=dataset, method="answers", row="table", run=run, settings={})
    random = {
        f"{line} @{n} {part}": 80.0 + n
        for line in hints.LINES
        if line != "chosen"
        for n in hints.PER_CLASS
        for part in ("all", "others")
    }
    chosen = {f"chosen {n} {part}": 90.0 + n / 10 for n in (10, 20, 30, 40, 50) for part in ("all", "others")}
    base = {"base": 90.0, "n_classes": 10.0, "n_images": 100.0, "questions seconds": 0.1, "refine seconds": 0.2}
    doubtful = {f"doubtful {n}": 60.0 - n for n in (10, 20, 30, 40, 50)}
    return make_record(trial, details={**base, **random, **chosen, **doubtful, **details})


def test_the_table_is_known():
    assert find_table("hints") is hints


def test_growth_runs_less_often():
    trials = hints.plan(["usps"], ["answers", "growth"], 10)
    assert sum(trial["method"] == "growth" for trial in trials) == 3
    assert sum(trial["method"] == "answers" for trial in trials) == 10


@pytest.mark.parametrize("learner", [hints.label_spreading, hints.poisson_learning])
def test_peers_spread_answers_over_groups(learner):
    graph, target = two_cliques()
    assert_array_equal(learner(graph, np.array([0, 9]), target), target)


def test_weights_of_the_umap_graph_sum_to_the_logarithm():
    rng = np.random.default_rng(0)
    graph = hints.umap_graph(rng.random((60, 5, 5)), 8)
    assert abs(graph - graph.T).max() < 1e-12
    assert graph.max() <= 1.0
    # The directed weights sum to log2(8) = 3, and joining two directions lies between one and both of them.
    assert graph.sum(axis=1).min() >= 3.0 - 1e-6
    assert graph.sum() <= 2 * 60 * 3.0 + 1e-6


def test_random_answers_are_drawn_from_every_class():
    target = np.array([0] * 9 + [1] * 2)
    drawn = hints.draw_answers(target, 3, seed=0)
    assert np.bincount(target[drawn]).tolist() == [3, 2]
    assert len(set(drawn)) == 5


def test_scores_match_unnamed_clusters_with_the_classes_left():
    target, names = np.array([0, 0, 1, 1, 2]), np.array([0, 0, -1, -1, -1])
    counted = np.ones(5, dtype=bool)
    assert hints.named_accuracy(target, names, np.array([0, 0, 1, 1, 2]), counted) == 100.0
    assert hints.named_accuracy(target, np.array([1, 0, 1, 1, 2]), np.zeros(5, int), counted) == 80.0


def test_a_named_part_of_a_class_leaves_its_other_cluster_right():
    target, names, clusters = np.array([0, 0, 0, 1]), np.array([0, -1, -1, -1]), np.array([0, 1, 1, 2])
    assert hints.named_accuracy(target, names, clusters, np.ones(4, dtype=bool)) == 100.0


def test_the_summary_finds_the_worst_round():
    summary = hints.summarise([record(**{"chosen 30 all": 70.0}), record(run=1)])
    assert summary["worst_round"]["digits"] == {"change": pytest.approx(81.5 - 92.0), "n_answers": 30}
    assert summary["chosen"]["digits"]["50"]["all"] == 95.0


def test_the_page_shows_the_largest_fall():
    falling, rising = record(**{"chosen 30 all": 70.0}), record()
    assert "| digits | -22.0 at 30 answers |" in hints.page(hints.summarise([falling]))
    assert "| digits | none |" in hints.page(hints.summarise([rising]))


def test_the_page_shows_the_first_fit_of_a_growing_collection():
    trial = Trial(table="hints", dataset="orl", method="growth", row="table", run=0, settings={})
    details = {"fit": 91.5, "first": 89.44, "grown": 89.0, "clusters": 40.0, "update seconds": 0.06, "batch": 4.0}
    page = hints.page(hints.summarise([make_record(trial, details=details)]))
    assert "| orl | 91.50 | 89.44 | 89.00 | -2.50 | 40.0 | 0.06 s for 4 images |" in page


def test_rounds_are_in_the_order_of_their_answers():
    stored = record(**{"chosen 100 all": 99.0, "chosen 100 others": 99.0})
    stored["details"] = dict(sorted(stored["details"].items()))  # as in a file
    assert list(hints.summarise([stored])["chosen"]["digits"]) == ["10", "20", "30", "40", "50", "100"]


def test_the_page_shows_all_lines(tmp_path):
    paths = hints.write([record(), record(run=1)], tmp_path, figures=False)
    page = (tmp_path / "hints.md").read_text()
    assert [path.name for path in paths] == ["hints.json", "hints.md"]
    assert all(title in page for title in hints.LINES.values())
    assert "+10.0 points above random ones" in page


def test_a_line_without_scores_is_left_open(tmp_path):
    stored = record()
    stored["details"] = {key: value for key, value in stored["details"].items() if not key.startswith("linear")}
    summary = hints.summarise([stored])
    assert hints._score(summary, "digits", 5, "linear", "all") is None
    assert len(hints.write([stored], tmp_path)) == 3
    assert "| – |" in (tmp_path / "hints.md").read_text()


def test_network_features_are_those_of_the_fit():
    images = hints.load("digits")[0][:40]
    rows = np.random.default_rng(0).random((40, 6))
    model = hints.ImageClusterer(3, n_atoms=4, max_iter=1, views={"semantic": rows}, random_state=0)
    seen = hints.network_features(model.fit(images), images)
    assert_allclose(seen, rows / np.linalg.norm(rows, axis=1, keepdims=True), rtol=1e-4)
    assert hints.network_features(hints.ImageClusterer(3, n_atoms=4, max_iter=1).fit(images), images) is None


def test_a_trial_measures_answers_and_growth():
    made = hints.load("digits")
    images, target = made[0][:200], made[1][:200]
    trial = Trial(table="hints", dataset="digits", method="growth", row="table", run=0, settings={})
    growth = hints.measure(trial, images, target).details
    assert abs(growth["grown"] - growth["fit"]) < 12.0
    assert abs(growth["grown"] - growth["first"]) < 12.0
    clusterer = hints.ImageClusterer(10, n_atoms=8, max_iter=1, random_state=0).fit(images)
    scores = hints._chosen_scores(target, clusterer)
    assert scores["chosen 50 all"] > scores["chosen 10 all"] - 1.0


def test_a_pile_is_read_as_the_command_reads_it(tmp_path, monkeypatch):
    shapes = make_shifted_shapes(12, n_classes=3, image_shape=(20, 20), random_state=0)
    with ZipFile(tmp_path / "steel.zip", "w") as archive:
        for index, (image, label) in enumerate(zip(shapes.images, shapes.target, strict=True)):
            Image.fromarray(np.uint8(np.round(255 * image))).save(tmp_path / "picture.png")
            archive.write(tmp_path / "picture.png", f"steel/{label}/{index}.png")
    monkeypatch.setenv("TUBAL_PILES", str(tmp_path))

    images, target, _ = hints.load("steel")

    read = load_images(tmp_path / "steel.zip")
    assert_array_equal(images, read.images)
    assert_array_equal(target, [int(Path(name).parent.name) for name in read.names])
    assert hints._views("steel", images) == "auto"  # the network is not shown such small pictures


def test_a_missing_pile_is_named(monkeypatch):
    monkeypatch.delenv("TUBAL_PILES", raising=False)
    with pytest.raises(FileNotFoundError, match=r"steel\.zip.*TUBAL_PILES"):
        hints.load("steel")
