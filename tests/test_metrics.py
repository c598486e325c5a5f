"""Scores depend on the partitions only, are 1 if these are identical, and equal slow, obvious computations."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import combinations, permutations
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubal.metrics import adjusted_rand, clustering_accuracy, clustering_nmi, contingency, purity

SCORES = [clustering_accuracy, clustering_nmi, purity, adjusted_rand]

labels = st.integers(0, 4)
partitions = st.lists(st.tuples(labels, labels), min_size=1, max_size=40)
score = pytest.mark.parametrize("score", SCORES, ids=lambda function: function.__name__)


def accuracy_by_trial(classes, clusters):
    """Try every assignment of five clusters to five classes."""
    return max(np.mean(np.array(names)[clusters] == classes) for names in permutations(range(5)))


@given(partitions)
def test_accuracy_is_that_of_the_best_assignment(pairs):
    classes, clusters = np.array(pairs).T
    assert clustering_accuracy(classes, clusters) == pytest.approx(accuracy_by_trial(classes, clusters))


@score
@given(pairs=partitions, seed=st.integers(0, 2**16))
def test_renamed_labels_do_not_change_the_scores(score, pairs, seed):
    classes, clusters = np.array(pairs).T
    names = np.random.default_rng(seed).permutation([-7, 3, 10**9, 42, 0])
    words = np.array(["e", "zz", "", "b", "ä"])
    renamed = score(words[classes], names[clusters])
    assert renamed == pytest.approx(score(classes, clusters), abs=1e-12)


@score
@given(pairs=partitions)
def test_order_of_samples_does_not_change_the_scores(score, pairs):
    classes, clusters = np.array(pairs).T
    assert score(classes[::-1], clusters[::-1]) == pytest.approx(score(classes, clusters), abs=1e-12)


@score
@given(st.lists(labels, min_size=1, max_size=40))
def test_identical_partitions_score_one(score, classes):
    assert score(classes, [f"cluster {label}" for label in classes]) == pytest.approx(1.0, abs=1e-12)


@given(partitions)
def test_scores_are_bounded_and_accuracy_is_at_most_purity(pairs):
    classes, clusters = np.array(pairs).T
    assert 0.0 < clustering_accuracy(classes, clusters) <= purity(classes, clusters) <= 1.0
    assert 0.0 <= clustering_nmi(classes, clusters) <= 1.0
    assert adjusted_rand(classes, clusters) <= 1.0


def entropy(labels):
    """Shannon entropy from the counts of the labels."""
    return -sum(count / len(labels) * log(count / len(labels)) for count in Counter(labels).values())


AVERAGES = {
    "max": max,
    "min": min,
    "arithmetic": lambda first, second: (first + second) / 2,
    "geometric": lambda first, second: sqrt(first * second),
}


@pytest.mark.parametrize("method", AVERAGES)
@given(pairs=partitions)
def test_nmi_follows_from_entropies(method, pairs):
    classes, clusters = zip(*pairs, strict=True)
    entropies = entropy(classes), entropy(clusters)
    average = AVERAGES[method](*entropies)
    expected = (sum(entropies) - entropy(pairs)) / average if average else float(max(entropies) == 0)
    assert clustering_nmi(classes, clusters, average_method=method) == pytest.approx(expected, abs=1e-9)


def test_nmi_needs_no_table_of_all_pairs():
    """The table of 300 000 classes and as many clusters would have 90 billion entries."""
    names = np.arange(300_000)
    assert clustering_nmi(names, names[::-1]) == pytest.approx(1.0)


def test_scores_of_the_command_line_are_quick_to_import():
    program = (
        "import sys; from tubal.metrics import *; "
        "clustering_nmi([0, 1], [1, 0]), clustering_accuracy([0, 1], [1, 0]), purity([0, 1], [1, 0]); "
        "sys.exit('sklearn.metrics' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@given(partitions)
def test_adjusted_rand_follows_from_pairs(pairs):
    """Count pairs of samples that are together; chance is the expected count of random partitions of these sizes."""
    together = np.array([(first[0] == second[0], first[1] == second[1]) for first, second in combinations(pairs, 2)])
    in_class, in_cluster, in_both = (
        (together[:, 0].sum(), together[:, 1].sum(), together.all(axis=1).sum()) if len(together) else (0, 0, 0)
    )
    chance = in_class * in_cluster / max(len(together), 1)
    largest = (in_class + in_cluster) / 2
    expected = 1.0 if largest == chance else (in_both - chance) / (largest - chance)
    assert adjusted_rand(*zip(*pairs, strict=True)) == pytest.approx(expected, abs=1e-9)


@given(partitions)
def test_contingency_counts_pairs_of_labels(pairs):
    classes, clusters = zip(*pairs, strict=True)
    counts = Counter(pairs)
    expected = [[counts[row, column] for column in sorted(set(clusters))] for row in sorted(set(classes))]
    assert contingency(classes, clusters).tolist() == expected


@given(partitions)
def test_larger_entropy_gives_smaller_nmi(pairs):
    classes, clusters = np.array(pairs).T
    assert clustering_nmi(classes, clusters) <= clustering_nmi(classes, clusters, "arithmetic") + 1e-12


def test_numbers_of_clusters_and_classes_may_differ():
    classes = [1, 1, 1, 2, 2, 2]
    assert clustering_accuracy(classes, [0, 0, 1, 2, 2, 3]) == pytest.approx(4 / 6)
    assert clustering_accuracy(classes, [0] * 6) == pytest.approx(0.5)
    assert purity(classes, range(6)) == 1.0
    assert contingency(classes, [5, 5, 9, 9, 9, 9]).tolist() == [[2, 1], [0, 3]]


def test_labels_are_never_used_as_indices():
    assert clustering_accuracy([10**12, -5, 10**12], [0.5, 2.5, 0.5]) == 1.0


def test_large_partitions_do_not_overflow():
    classes = np.arange(200_000) % 2
    assert adjusted_rand(classes, 1 - classes) == 1.0
    assert abs(adjusted_rand(classes, np.arange(200_000) // 100_000)) < 1e-3


@score
@pytest.mark.parametrize(
    ("classes", "clusters", "message"),
    [
        ([0, 1], [0], "labels_true has 2 entries and labels_pred has 1"),
        ([], [], "labels_true has shape"),
        ([[0], [1]], [0, 1], "labels_true has shape"),
        ([0, 1], [0.0, np.nan], "labels_pred contains NaN"),
        ([[0], [1, 2]], [0, 1], "labels_true holds lists of different lengths"),
        (["a", None, "b"], [0, 1, 1], "labels_true has None for sample 1"),
        ([0, 1], np.array(["a", np.nan], object), "labels_pred has nan for sample 1"),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), [0, 1], "NaT.* for sample 1; give every sample a label"),
    ],
)
def test_bad_labels_are_an_error(score, classes, clusters, message):
    with pytest.raises(ValueError, match=message):
        score(classes, clusters)


def test_labels_of_mixed_types_are_an_error():
    with pytest.raises(TypeError, match="labels_true mixes values"):
        purity(np.array([1, "a", 2], dtype=object), [0, 1, 2])


def test_unknown_average_is_an_error():
    with pytest.raises(ValueError, match="max, min, arithmetic, geometric"):
        clustering_nmi([0, 1], [0, 1], average_method="mean")
