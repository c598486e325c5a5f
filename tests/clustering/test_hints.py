"""Questions, hints, new images and removals: what was said holds, and labels follow it."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits

import tubal
from helpers.hint_sequences import check_facts, run_sequence, small_collection
from tubal import ImageClusterer
from tubal.clustering import Hints
from tubal.clustering.affinity import copy_groups
from tubal.clustering.cuts import order_by_size
from tubal.clustering.growth import inverse_motions, keep_numbers
from tubal.clustering.hints import Evidence, Interview, Outcome, apply_hints
from tubal.clustering.quality import most_typical, neighbor_outlier_scores, stranger_scores
from tubal.clustering.tree import QuestionTree
from tubal.graph.affine import bilinear_table, table_matrix
from tubal.graph.structure import Alignments
from tubal.learning.fitting import scale_images


@pytest.fixture(scope="module")
def collection():
    return small_collection()


@pytest.fixture
def model(collection):
    return copy.copy(collection[0])


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    images, target = data.images[:600].astype(np.float32) / 16, data.target[:600]
    fitted = ImageClusterer(10, n_atoms=8, max_iter=1, random_state=0).fit(images[:500])
    return fitted, images, target


def line_of_points(n_each=10):
    """Return evidence of two clusters of points along two arcs, chained to their neighbours."""
    angles = np.concatenate([np.linspace(0.0, 0.6, n_each), np.linspace(2.0, 2.6, n_each)])
    labels = np.repeat([0, 1], n_each)
    chain = np.diag(np.ones(2 * n_each - 1), 1) * (labels[:, None] == labels)
    affinity = sparse.csr_matrix(chain + chain.T)
    coordinates = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return Evidence(labels, coordinates, affinity, np.arange(2 * n_each))


# --- what follows from hints -----------------------------------------------------------------------------
def test_without_hints_labels_stay():
    evidence = line_of_points()
    found = apply_hints(evidence, Hints())
    assert_array_equal(found.labels, evidence.labels)
    assert found.names == [None, None]


def test_one_name_names_its_whole_cluster():
    evidence = line_of_points()
    found = apply_hints(evidence, Hints((3,), ("a",)))
    assert_array_equal(found.labels, evidence.labels)
    assert found.names == ["a", None]


def test_two_names_divide_a_cluster_where_they_meet():
    found = apply_hints(line_of_points(), Hints((1, 8), ("a", "b")))
    names = [found.names[label] for label in found.labels]
    assert names[:10] == ["a"] * 5 + ["b"] * 5


@pytest.mark.parametrize("n_found", [1, 2])
def test_different_images_are_in_different_clusters_however_few_there_are(n_found):
    evidence = line_of_points()
    evidence = replace(evidence, labels=evidence.labels % n_found)
    pairs = ((1, 8), (8, 15), (1, 15))
    for different in (pairs[:1], pairs):
        labels = apply_hints(evidence, Hints(different=different)).labels
        assert all(labels[i] != labels[j] for i, j in different)


def cluster_with_piece(angle):
    """Return evidence of a cluster of 80 points along an arc and a piece of 20 around an angle, and a far cluster."""
    angles = np.concatenate([np.linspace(-0.3, 0.3, 80), np.linspace(-0.1, 0.1, 20) + angle, np.full(20, 2.5)])
    labels = np.repeat([0, 1], [100, 20])
    near = (np.abs(angles[:, None] - angles) < 0.05) & (labels[:, None] == labels)
    coordinates = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    affinity = sparse.csr_matrix(near & ~np.eye(len(angles), dtype=bool), dtype=float)
    return Evidence(labels, coordinates, affinity, np.arange(len(angles)))


def named(evidence, name, hints):
    found = apply_hints(evidence, hints)
    return [image for image, label in enumerate(found.labels) if found.names[label] == name]


def test_an_exception_in_a_uniform_cluster_takes_no_others_along():
    evidence = cluster_with_piece(0.0)
    hints = Hints((5, 60, 75, 90), ("a", "a", "a", "b"))
    assert named(evidence, "b", hints) == [90]
    assert named(evidence, "b", Hints((90, 75, 60, 5), ("b", "a", "a", "a"))) == [90]


def test_pairs_near_an_exception_do_not_follow_it():
    hints = Hints((5, 60, 75, 90), ("a", "a", "a", "b"), same=((89, 91),))
    assert named(cluster_with_piece(0.0), "b", hints) == [90]


def test_a_piece_that_lies_apart_follows_one_answer():
    hints = Hints((5, 60, 75, 90), ("a", "a", "a", "b"))
    assert named(cluster_with_piece(1.2), "b", hints) == list(range(80, 100))


def test_two_answers_that_agree_are_no_exceptions():
    hints = Hints((5, 60, 75, 85, 95), ("a", "a", "a", "b", "b"))
    assert set(named(cluster_with_piece(0.6), "b", hints)) >= set(range(80, 100))


def test_with_many_answers_a_near_piece_follows_one_of_them():
    evidence = cluster_with_piece(0.6)
    assert named(evidence, "b", Hints((5, 60, 90), ("a", "a", "b"))) == [90]
    many = Hints((*range(0, 80, 2), 90), ("a",) * 40 + ("b",))
    assert set(named(evidence, "b", many)) >= set(range(85, 100))


def test_one_name_in_two_clusters_joins_them():
    found = apply_hints(line_of_points(), Hints((1, 12), ("a", "a")))
    assert found.names == ["a"]


def test_different_images_of_a_cluster_divide_it():
    found = apply_hints(line_of_points(), Hints(different=((0, 9),)))
    assert found.labels[0] != found.labels[9]
    assert found.names == [None] * 3
    assert 2 <= np.sum(found.labels[:10] == found.labels[9]) <= 6


def test_same_images_of_two_clusters_share_one():
    found = apply_hints(line_of_points(), Hints(same=((9, 10),)))
    assert found.labels[9] == found.labels[10]


def test_copies_follow_the_hint_of_one_of_them():
    evidence = line_of_points()
    copies = copy_groups(np.where(np.arange(20) == 15, 2, np.arange(20)))
    found = apply_hints(Evidence(evidence.labels, evidence.coordinates, evidence.affinity, copies), Hints((2,), ("a",)))
    assert found.names[found.labels[15]] == "a"


def test_the_order_of_hints_does_not_matter():
    one = apply_hints(line_of_points(), Hints((1, 8, 14), ("a", "b", "c")))
    other = apply_hints(line_of_points(), Hints((14, 8, 1), ("c", "b", "a")))
    assert [one.names[label] for label in one.labels] == [other.names[label] for label in other.labels]


def test_many_hints_are_applied_in_blocks(monkeypatch):
    hints = Hints(tuple(range(0, 20, 2)), tuple("abcdeabcde"))
    whole = apply_hints(line_of_points(), hints)
    monkeypatch.setattr("tubal.clustering.hints._BLOCK", 7)
    parts = apply_hints(line_of_points(), hints)
    assert_array_equal(whole.labels, parts.labels)
    assert whole.names == parts.names


# --- contradictions --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("names", "same", "different", "message"),
    [
        ({0: "a", 2: "b"}, [(0, 1), (1, 2)], [], r"image 0 is named 'a' and image 2 .*\(0, 1\) and \(1, 2\)"),
        ({}, [(3, 4)], [(4, 3)], r"images 3 and 4 are said to be different, but also the same: \(3, 4\)"),
        ({5: "a", 6: "a"}, [], [(5, 6)], "images 5 and 6 .* both are named 'a'"),
        ({5: "a", 6: "a"}, [(6, 7)], [(5, 7)], "images 5 and 7 .* both are named 'a'"),
        ({}, [], [(2, 2)], "images 2 and 2 .* one image"),
        ({99: "a"}, [], [], "image 99, but the images are 0 to 59"),
    ],
)
def test_contradictions_are_named_and_change_nothing(model, names, same, different, message):
    model.refine({40: "z"})
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.refine(names, same=same, different=different)
    assert all(vars(model)[name] is value for name, value in before.items())


def test_a_second_name_needs_the_first_to_be_forgotten(model):
    model.refine({3: "a"})
    with pytest.raises(ValueError, match=r"image 3 is already named 'a'.*forget\(\[3\]\)"):
        model.refine({3: "b"})
    assert model.forget([3]).refine({3: "b"}).hints_.names == {3: "b"}


@pytest.mark.parametrize("names", [{"3": "a"}, {True: "a"}, {3: ""}, {3: None}, {2.5: "a"}, [(3, "a")]])
def test_hints_of_a_wrong_type_are_refused(model, names):
    with pytest.raises(TypeError, match="wanted"):
        model.refine(names)


# --- questions -------------------------------------------------------------------------------------------
def test_clusters_are_asked_first_and_pieces_later():
    evidence = line_of_points()
    tree = QuestionTree.of(evidence.labels, evidence.coordinates)
    none = np.empty(0, np.intp)
    interview = Interview(tree, evidence, none, none, none)
    first = [interview.next().image for _ in range(2)]
    assert sorted(evidence.labels[first]) == [0, 1]
    asked = first + [question.image for question in iter(interview.next, None)]
    assert sorted(asked) == list(range(20))


def arcs(*groups):
    """Return evidence of groups (cluster, angle, size) of points, each a clique with small steps in angle."""
    labels = np.concatenate([np.full(size, cluster) for cluster, _, size in groups])
    angles = np.concatenate([angle + np.linspace(0.0, 0.05, size) for _, angle, size in groups])
    group = np.repeat(np.arange(len(groups)), [size for _, _, size in groups])
    affinity = sparse.csr_matrix(((group[:, None] == group) & ~np.eye(len(group), dtype=bool)).astype(float))
    coordinates = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return Evidence(labels, coordinates, affinity, np.arange(len(labels))), group


def ask(evidence, n_asked):
    tree = QuestionTree.of(evidence.labels, evidence.coordinates)
    none = np.empty(0, np.intp)
    interview = Interview(tree, evidence, none, none, none)
    return [interview.next().image for _ in range(n_asked)]


def test_uniform_clusters_are_asked_before_larger_mixed_ones():
    evidence, group = arcs((0, 0.0, 6), (0, 0.7, 5), (0, 1.4, 5), (1, 3.0, 9))
    assert group[ask(evidence, 1)].tolist() == [3]


def test_a_mixed_cluster_is_asked_about_its_pieces_at_once():
    evidence, group = arcs((0, 0.0, 10), (0, 1.2, 8), (1, 3.0, 3), (2, 4.0, 2))
    assert group[ask(evidence, 4)].tolist() == [0, 1, 2, 3]


def test_two_answers_per_cluster_are_planned(rng):
    points = rng.normal(size=(60, 4)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    labels = np.repeat([0, 1, 2], [30, 20, 10])
    tree = QuestionTree.of(labels, points)
    # Divide the piece with the largest gain, one after the other, until there are twice as many pieces as clusters.
    pieces, gains = list(tree.roots), []
    while len(pieces) < 6:
        widest = max(pieces, key=lambda node: tree.gain[node])
        pieces.remove(widest)
        pieces += tree.children[widest].tolist()
        gains.append(tree.gain[widest])
    assert tree.planned_gain == min(gains) > 1.0
    n_pieces = np.bincount([labels[tree.members(piece)[0]] for piece in pieces])
    asked_first = sorted(range(3), key=lambda cluster: -np.sum(labels == cluster) / n_pieces[cluster])
    assert [labels[tree.members(root)[0]] for root in tree.roots] == asked_first


def test_a_piece_as_far_away_as_another_cluster_counts_with_all_its_images():
    angles = np.concatenate([np.zeros(1000), np.full(4, 0.5), np.full(10, -0.5)])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    tree = QuestionTree.of(np.repeat([0, 1], [1004, 10]), points)
    assert_allclose(tree.gain.max(), 4.0, rtol=0.02)


def test_small_distances_matter_where_clusters_are_near():
    evidence, group = arcs((0, 0.0, 10), (0, 0.3, 8), (1, 0.7, 3), (2, 3.0, 2))
    assert group[ask(evidence, 4)].tolist() == [0, 1, 2, 3]


def test_clusters_of_one_kind_are_named_before_pieces():
    evidence, _group = arcs((0, 0.0, 10), (0, 0.2, 8), (1, 3.0, 3), (2, 4.0, 2))
    assert sorted(evidence.labels[ask(evidence, 3)]) == [0, 1, 2]


def test_typical_images_have_their_edges_among_the_members():
    coordinates = np.ones((5, 1), np.float32)
    edges = np.zeros((5, 5))
    edges[0, 1] = edges[1, 2] = edges[0, 2] = 1.0
    edges[0, 4] = edges[0, 3] = edges[2, 4] = 3.0
    affinity = sparse.csr_matrix(edges + edges.T)
    assert most_typical(coordinates, affinity, np.arange(3)) == 1
    assert most_typical(coordinates, affinity, np.arange(3), np.array([0, 2])) == 2


def test_nodes_of_the_tree_are_ranges_of_images():
    evidence = line_of_points()
    tree = QuestionTree.of(evidence.labels, evidence.coordinates)
    assert sorted(tree.order) == list(range(20))
    for node, (a, b) in enumerate(tree.children):
        if a >= 0:
            joined = np.concatenate([tree.members(a), tree.members(b)])
            assert sorted(joined) == sorted(tree.members(node))


def test_large_clusters_are_cut_into_parts_first(monkeypatch):
    monkeypatch.setattr("tubal.clustering.tree._TREE_LIMIT", 6)
    evidence = line_of_points()
    for coordinates in (evidence.coordinates, np.ones_like(evidence.coordinates)):
        tree = QuestionTree.of(evidence.labels, coordinates)
        assert sorted(tree.order) == list(range(20))
        assert [len(tree.members(root)) for root in tree.roots] == [10, 10]


def test_questions_leave_out_what_is_known_or_skipped(model):
    first = model.questions(4)
    model.refine({int(first[0]): "a"})
    asked = model.questions(30, skip=first[1:2])
    assert not set(asked.tolist()) & {int(first[0]), int(first[1])}
    assert len(model.questions(1000)) == 59


def test_answers_to_questions_help(digits):
    fitted, _images, target = digits
    model, scores = copy.copy(fitted), []
    for _ in range(4):
        asked = model.questions(10)
        model.refine({int(image): str(target[image]) for image in asked})
        scores.append(np.mean([model.names_[label] == str(target[i]) for i, label in enumerate(model.labels_)]))
    assert scores[1] > 0.95
    assert scores[-1] > 0.985
    assert min(np.diff(scores)) > -0.01


def test_doubt_falls_with_the_answers(digits):
    fitted, _images, target = digits
    model = copy.copy(fitted)
    before = model.n_doubtful_
    for _ in range(5):
        model.refine({int(image): str(target[image]) for image in model.questions(10)})
    assert model.n_doubtful_ < before / 3


def test_labels_are_ignored_by_fit(collection):
    fitted, _ = collection
    images = fitted.graph_.search.images
    again = ImageClusterer(4, n_atoms=4, max_iter=1, random_state=0).fit(images, y=np.arange(len(images)))
    assert_array_equal(again.labels_, fitted.labels_)
    assert again.names_ == [None] * 4


# --- a collection that changes ---------------------------------------------------------------------------
def test_predictions_agree_with_refined_labels(digits):
    fitted, images, target = digits
    model = copy.copy(fitted).refine({i: str(target[i]) for i in range(0, 500, 20)})
    assert_array_equal(model.predict(images[:500]), model.labels_)
    new = [
        model.names_[label] == str(true) for label, true in zip(model.predict(images[500:]), target[500:], strict=True)
    ]
    assert np.mean(new) > 0.9


def test_update_keeps_labels_and_places_new_images(digits):
    fitted, images, target = digits
    model = copy.copy(fitted).refine({int(i): str(target[i]) for i in fitted.questions(20)})
    before, names = model.labels_, model.names_
    model.update(images[500:])
    check_facts(model)
    assert_array_equal(model.labels_[:500], before)
    assert model.names_ == names
    correct = [names[label] == str(true) for label, true in zip(model.labels_[500:], target[500:], strict=True)]
    assert np.mean(correct) > 0.9
    assert_array_equal(model.predict(images), model.labels_)
    assert_array_equal(model.kneighbors()[1], model.graph_.neighbors)


def test_added_copies_get_the_label_of_their_originals(digits):
    fitted, images, target = digits
    model = copy.copy(fitted).refine({i: str(target[i]) for i in range(20)})
    model.update(images[:40])
    assert_array_equal(model.labels_[500:], model.labels_[:40])
    assert_array_equal(model.predict(images[:40]), model.labels_[:40])


def test_update_proposes_a_cluster_for_unknown_images(digits):
    _, images, target = digits
    known = np.flatnonzero(target[:400] != 0)
    model = ImageClusterer(9, n_atoms=8, max_iter=1, random_state=0).fit(images[known])
    model.update(images[400:])
    new = model.labels_[len(known) :]
    assert model.n_clusters_ == 10
    assert np.mean(target[400:][new == 9] == 0) > 0.9
    assert np.mean(new[target[400:] == 0] == 9) > 0.8


def test_update_in_batches_is_as_good_as_at_once(digits):
    fitted, images, _ = digits
    at_once, in_batches = copy.copy(fitted).update(images[500:]), copy.copy(fitted)
    for start in range(500, 600, 20):
        in_batches.update(images[start : start + 20])
    assert np.mean(at_once.labels_ == in_batches.labels_) > 0.98


def test_tensors_grow_as_arrays_do():
    torch = pytest.importorskip("torch")
    images = load_digits().images[:90].astype(np.float32) / 16
    settings = {"n_atoms": 4, "max_iter": 1, "random_state": 0}
    arrays = ImageClusterer(5, **settings).fit(images[:80]).update(images[80:])
    tensors = ImageClusterer(5, **settings).fit(torch.as_tensor(images[:80])).update(torch.as_tensor(images[80:]))
    assert len(tensors.labels_) == 90
    assert (tensors.labels_ == arrays.labels_).mean() > 0.95


def test_a_grown_search_finds_what_a_new_one_finds(digits):
    fitted, images, _ = digits
    new = scale_images(images[500:], "unit")[0]
    found = fitted.graph_.search.grown(new).nearest(new, 6)
    assert_array_equal(found.indices[:, 0], np.arange(500, 600))
    assert_allclose(found.distances[:, 0], 0.0, atol=1e-3)


def test_a_grown_search_knows_copies(digits):
    fitted, images, _ = digits
    search = fitted.graph_.search
    new = np.concatenate([scale_images(images[[500, 501, 502, 500]], "unit")[0], search.images[7:8]])
    grown = search.grown(new)
    assert_array_equal(grown.prepared.group[500:], [500, 501, 502, 500, 7])
    assert len(grown.prepared.images) == len(grown.prepared.warped) == len(grown.prepared.descriptors) == 503


def test_removed_images_are_gone_everywhere(digits):
    fitted, images, target = digits
    model = copy.copy(fitted).refine({int(i): str(target[i]) for i in fitted.questions(20)})
    gone = np.setdiff1d(np.arange(0, 500, 9), model.hints_.images)
    left = np.setdiff1d(np.arange(500), gone)
    expected = [model.names_[label] for label in model.labels_[left]]
    model.remove(gone)
    check_facts(model)
    found = [model.names_[label] for label in model.labels_]
    assert np.mean([a == b for a, b in zip(expected, found, strict=True)]) > 0.99
    assert_array_equal(model.predict(images[left]), model.labels_)


def test_removal_computes_no_codes(collection):
    model = copy.copy(collection[0])
    model.model_ = copy.copy(model.model_)
    vars(model.model_).pop("codes_", None)
    model.remove([3, 8])
    assert "codes_" not in vars(model.model_)
    assert len(model.model_.codes_) == len(model.labels_)


def test_update_computes_no_codes(digits):
    fitted, images, _ = digits
    model = copy.copy(fitted)
    model.model_ = copy.copy(model.model_)
    vars(model.model_).pop("codes_", None)
    model.update(images[500:520])
    assert "codes_" not in vars(model.model_)
    assert_allclose(np.linalg.norm(model.features_, axis=1), 1.0, atol=1e-3)
    assert len(model.model_.codes_) == 520


def test_confidence_means_the_same_after_hints(digits):
    fitted, _images, target = digits
    model = copy.copy(fitted)
    before = model.confidence_
    model.refine({int(i): str(target[i]) for i in model.questions(10)})
    assert_array_equal(model.confidence_[list(model.hints_.images)], 1.0)
    same = np.setdiff1d(np.arange(500), model.hints_.images)
    assert np.abs(model.confidence_ - before)[same].mean() < 0.05
    assert_allclose(model.forget(model.hints_.images).confidence_, before)


def test_added_images_have_the_stability_of_their_neighbors(digits):
    fitted, images, _ = digits
    model = copy.copy(fitted).update(images[500:520])
    assert_array_equal(model.stability_[:500], fitted.stability_)
    assert abs(model.stability_[500:].mean() - fitted.stability_.mean()) < 0.2
    assert len(model.remove([3, 510]).stability_) == 518


def test_tree_follows_refined_labels(model):
    assert_array_equal(model.labels_for(4), model.labels_)
    one, other = np.flatnonzero(model.labels_ == 0)[:2]
    model.refine(different=[(int(one), int(other))])
    assert model.n_clusters_ == 5
    assert_array_equal(model.labels_for(model.n_clusters_), model.labels_)


def test_labels_for_the_present_number_are_the_labels(digits):
    fitted, images, _ = digits
    grown = copy.copy(fitted).update(images[500:])
    reduced = copy.copy(fitted).remove(range(0, 500, 3))
    for model in (grown, reduced):
        assert_array_equal(model.labels_for(model.n_clusters_), model.labels_)
        model.labels_for(model.n_clusters_)[:] = -1
        assert model.labels_.min() == 0


def test_tree_divides_copies_that_hints_divide(digits):
    _, images, _ = digits
    # Images 0, 60 and 70 are equal.
    collection = np.concatenate([images[:60], images[:10], images[:5]])
    fitted = ImageClusterer(10, n_atoms=8, max_iter=1, random_state=0).fit(collection)
    for hints in ({"names": {0: "a", 60: "b"}}, {"different": [(0, 60), (60, 70), (0, 70)]}):
        model = copy.copy(fitted).refine(**hints)
        assert_array_equal(order_by_size(model.labels_), model.tree_.labels(model.n_clusters_))


def test_rows_are_compared_by_their_values_after_a_removal():
    rng = np.random.default_rng(0)
    rows = np.repeat(np.eye(3, 20), 20, axis=0) + 0.1 + 0.05 * rng.random((60, 20))
    rows[7] = rng.permutation(20) % 2
    model = ImageClusterer(3, random_state=0).fit(rows)
    model.remove([0])
    strange = stranger_scores(rows[1:], seed=model.seed_)
    assert_allclose(
        model.outlier_scores_,
        np.maximum(strange, neighbor_outlier_scores(model.graph_.distances)),
        rtol=0.05,
        atol=0.05,
    )
    assert_array_equal(np.flatnonzero(model.outliers_), [6])


def test_dim_pictures_stay_outliers_when_others_come_and_go(digits, tmp_path):
    _, images, _ = digits
    collection = np.concatenate([images[:150], 0.15 * images[:3]])
    model = ImageClusterer(10, n_atoms=8, max_iter=1, random_state=0).fit(collection)
    assert_array_equal(np.flatnonzero(model.outliers_), [150, 151, 152])
    tubal.save(model, tmp_path / "model.tubal")
    for left in (model, tubal.load(tmp_path / "model.tubal")):
        left.remove([0])
        assert_array_equal(np.flatnonzero(left.outliers_), [149, 150, 151])
        assert_allclose(left.outlier_scores_[149:], stranger_scores(collection[1:], seed=left.seed_)[149:], rtol=1e-6)
        left.update(np.concatenate([images[200:210], 0.15 * images[210:211]]))
        assert_array_equal(np.flatnonzero(left.outliers_), [149, 150, 151, 162])


def test_a_removed_representative_is_replaced():
    rng = np.random.default_rng(0)
    patterns = np.kron(rng.random((12, 4, 4)), np.ones((2, 2)))
    images = np.repeat(patterns, 6, axis=0) + 0.01 * rng.random((72, 8, 8))
    model = ImageClusterer(2, n_atoms=4, max_iter=1, random_state=0).fit(images)
    labels = model.labels_
    gone = np.unique(model.copy_of_)[:3]
    model.remove(gone)
    check_facts(model)
    assert_array_equal(model.labels_, np.delete(labels, gone))
    assert model.copy_of_.max() < len(model.labels_)


@pytest.mark.parametrize(("indices", "error"), [([60], ValueError), ([-1], ValueError), (range(59), ValueError)])
def test_impossible_removals_change_nothing(model, indices, error):
    before = model.labels_
    with pytest.raises(error):
        model.remove(indices)
    assert model.labels_ is before


@pytest.mark.parametrize("images", [5, None, "ab", [5.0], [1.5], [[3]], np.arange(60) < 9, [True], [60], [-1]], ids=str)
@pytest.mark.parametrize("use", ["skip", "remove", "forget"])
def test_only_indices_are_taken_for_images(model, images, use):
    before = model.refine({3: "a", 5: "b", 1: "c"}).labels_
    calls = {"skip": lambda: model.questions(3, skip=images), "remove": lambda: model.remove(images)}
    calls["forget"] = lambda: model.forget(images)
    with pytest.raises((TypeError, ValueError), match=r"indices of images are wanted|the images are 0 to 59"):
        calls[use]()
    assert model.labels_ is before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.refine(same=3), "same=3; a list of pairs"),
        (lambda model: model.refine(different=None), "different=None; a list of pairs"),
        (lambda model: model.forget(pairs=(3, 4)), "pairs holds 3; pairs of two indices"),
        (lambda model: model.forget(pairs=[(3, 60)]), "the images are 0 to 59"),
        (lambda model: model.forget(pairs=[(5, 3)]), r"nothing was said about the pair \(3, 5\)"),
    ],
)
def test_only_pairs_are_taken_for_pairs(model, call, message):
    before = model.refine(same=[(3, 4)]).labels_
    with pytest.raises((TypeError, ValueError), match=message):
        call(model)
    assert model.labels_ is before


def test_a_graph_given_as_a_matrix_takes_hints_but_no_images(collection):
    fitted, extra = collection
    images = fitted.graph_.search.images
    model = ImageClusterer(4, n_atoms=4, max_iter=1, graph=fitted.graph_.adjacency, random_state=0).fit(images)
    model.refine({0: "a"})
    check_facts(model)
    with pytest.raises(ValueError, match="given as a matrix"):
        model.update(extra)


def test_inverse_motions_undo_motions():
    shape, motion = (21, 21), (8.0, 1.06, 1.0, -2.0)
    inverse = inverse_motions(Alignments.from_stack(np.array(motion).reshape(4, 1, 1)))[:, 0, 0]
    y, x = np.mgrid[:21, :21]
    image = np.exp(-((y - 9) ** 2 + (x - 12) ** 2) / 18.0).ravel()
    moved = table_matrix(*bilinear_table(shape, *motion)) @ image
    back = table_matrix(*bilinear_table(shape, *inverse)) @ moved
    assert_allclose(back, image, atol=0.05)


def test_clusters_keep_their_numbers():
    labels, names = keep_numbers(Outcome(np.array([0, 0, 1, 2]), ["x", None, "y"]), np.array([4, 4, 1, -1]))
    assert_array_equal(labels, [1, 1, 0, 2])
    assert names == [None, "x", "y"]


# --- files and sequences ---------------------------------------------------------------------------------
def test_a_model_file_keeps_hints(model, tmp_path):
    model.refine({3: "a", 9: "b"}, same=[(3, 4)], different=[(5, 6)])
    tubal.save(model, tmp_path / "model.tubal")
    loaded = tubal.load(tmp_path / "model.tubal")
    assert loaded.hints_ == model.hints_
    assert loaded.names_ == model.names_
    assert_array_equal(loaded.questions(10), model.questions(10))
    assert_array_equal(loaded.refine({20: "c"}).labels_, model.refine({20: "c"}).labels_)


def test_a_file_without_hints_loads(model, tmp_path):
    for name in ("hints_", "names_"):
        del vars(model)[name]
    tubal.save(model, tmp_path / "old.tubal")
    loaded = tubal.load(tmp_path / "old.tubal")
    assert loaded.names_ == [None] * 4
    check_facts(loaded.refine({3: "a"}))


def test_a_file_whose_hints_do_not_hold_is_refused(model, tmp_path):
    model.refine({3: "a"})
    model.hints_ = Hints((4,), ("b",))
    tubal.save(model, tmp_path / "forged.tubal")
    with pytest.raises(ValueError, match="image 4 is named 'b', but its cluster is not"):
        tubal.load(tmp_path / "forged.tubal")


@pytest.mark.parametrize("seed", range(12))
def test_hints_hold_in_random_sequences(collection, tmp_path, seed):
    fitted, extra = collection
    run_sequence(fitted, extra, seed, tmp_path)


def test_few_rows_of_votes_are_those_of_all(model, rng):
    from tubal.clustering.hints import _votes

    evidence = model._evidence()
    images, columns = rng.choice(60, 9, replace=False), rng.integers(7, size=9)
    whole = _votes(evidence, images, columns, 7)
    some = _votes(evidence, images, columns, 7, rows=np.array([3, 17, 40]))
    np.testing.assert_allclose(some.toarray(), whole.toarray()[[3, 17, 40]], atol=1e-5)


def test_images_placed_by_hand_take_no_others_along(model):
    found = model.labels_.copy()
    moved = np.flatnonzero(found == 0)[:4]
    pairs = [(int(moved[0]), int(other)) for other in moved[1:]]
    model._set_hints(Hints().with_hints({}, pairs, (), 60, moved))
    check_facts(model)
    assert len(set(model.labels_[moved])) == 1
    assert np.count_nonzero(model.labels_ == model.labels_[moved[0]]) == 4
    for label in range(1, 4):
        assert len(set(model.labels_[found == label])) == 1
    named = Hints().with_hints({int(image): "odd" for image in moved}, (), (), 60, moved)
    model._set_hints(named)
    assert np.flatnonzero(model.labels_ == model.names_.index("odd")).tolist() == moved.tolist()
    assert named.without(moved[:1]).alone == tuple(moved[1:])


def test_another_number_of_clusters_follows_the_tree_and_the_hints(model, tmp_path):
    model._set_said(Hints().with_hints({5: "five"}, (), (), 60), 7)
    check_facts(model)
    cut = model._evidence().labels
    assert len(set(cut)) == 7
    assert all(len(set(model.found_labels_[cut == label])) == 1 for label in range(7))
    tubal.save(model, tmp_path / "m.tubal")
    again = tubal.load(tmp_path / "m.tubal")
    assert again.n_chosen_ == 7
    again.refine({9: "nine"}).forget([9])
    np.testing.assert_array_equal(again.labels_, model.labels_)
    model._set_said(Hints(), None)
    np.testing.assert_array_equal(model.labels_, model.found_labels_)
