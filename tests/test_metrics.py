"""Scores: invariant to names, 1 on identical partitions, equal to slow or independent computations."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as independent

from tubal.metrics import adjusted_rand, clustering_accuracy, clustering_nmi, contingency, purity

SCORES = [clustering_accuracy, clustering_nmi, purity, adjusted_rand]

labels = st.integers(0, 4)
partitions = st.lists(st.tuples(labels, labels), min_size=1, max_size=40)
score = pytest.mark.parametrize("score", SCORES, ids=lambda function: function.__name__)


def accuracy_by_trial(classes, clusters):
    """Try every assignment of five clusters to five classes."""
    return max(np.mean(np.array(names)[clusters] == classes) for names in permutations(range(5)))


@given(partitions)
def test_accuracy_equals_the_best_of_all_assignments(pairs):
    classes, clusters = np.array(pairs).T
    assert clustering_accuracy(classes, clusters) == pytest.approx(accuracy_by_trial(classes, clusters))


@score
@given(pairs=partitions, seed=st.integers(0, 2**16))
def test_renaming_labels_changes_nothing(score, pairs, seed):
    classes, clusters = np.array(pairs).T
    names = np.random.default_rng(seed).permutation([-7, 3, 10**9, 42, 0])
    words = np.array(["e", "zz", "", "b", "ä"])
    renamed = score(words[classes], names[clusters])
    assert renamed == pytest.approx(score(classes, clusters), abs=1e-12)


@score
@given(pairs=partitions)
def test_order_of_samples_changes_nothing(score, pairs):
    classes, clusters = np.array(pairs).T
    assert score(classes[::-1], clusters[::-1]) == pytest.approx(score(classes, clusters), abs=1e-12)


@score
@given(st.lists(labels, min_size=1, max_size=40))
def test_identical_partitions_score_one(score, classes):
    assert score(classes, [f"cluster {label}" for label in classes]) == pytest.approx(1.0, abs=1e-12)


@given(partitions)
def test_bounds_and_order_of_scores(pairs):
    classes, clusters = np.array(pairs).T
    assert 0.0 < clustering_accuracy(classes, clusters) <= purity(classes, clusters) <= 1.0
    assert 0.0 <= clustering_nmi(classes, clusters) <= 1.0
    assert adjusted_rand(classes, clusters) <= 1.0


@pytest.mark.parametrize("method", ["max", "min", "arithmetic", "geometric"])
@given(pairs=partitions)
def test_nmi_agrees_with_scikit_learn(method, pairs):
    classes, clusters = np.array(pairs).T
    expected = independent.normalized_mutual_info_score(classes, clusters, average_method=method)
    assert clustering_nmi(classes, clusters, average_method=method) == pytest.approx(expected, abs=1e-9)


@given(partitions)
def test_adjusted_rand_agrees_with_scikit_learn(pairs):
    classes, clusters = np.array(pairs).T
    expected = independent.adjusted_rand_score(classes, clusters)
    assert adjusted_rand(classes, clusters) == pytest.approx(expected, abs=1e-9)


@given(partitions)
def test_larger_entropy_gives_the_smaller_nmi(pairs):
    classes, clusters = np.array(pairs).T
    assert clustering_nmi(classes, clusters) <= clustering_nmi(classes, clusters, "arithmetic") + 1e-12


def test_different_numbers_of_clusters_and_classes():
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
    ],
)
def test_bad_labels_are_refused_in_one_sentence(score, classes, clusters, message):
    with pytest.raises(ValueError, match=message):
        score(classes, clusters)


def test_labels_of_mixed_kinds_are_refused():
    with pytest.raises(TypeError, match="labels_true mixes values"):
        purity(np.array([1, "a", None], dtype=object), [0, 1, 2])


def test_unknown_average_lists_the_valid_ones():
    with pytest.raises(ValueError, match="max, min, arithmetic, geometric"):
        clustering_nmi([0, 1], [0, 1], average_method="mean")
