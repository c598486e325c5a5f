"""ImageClusterer: scikit-learn's checks, fitted attributes, new images and bad input."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage
from scipy.sparse.csgraph import connected_components
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from tubal import GTSC, GraphSC, ImageClusterer, load, save
from tubal.clustering import affinity, clusterer, kmeans
from tubal.clustering.affinity import choose_neighbors, keep_nearest, keep_nearest_rescaled, mutual_share
from tubal.datasets import fetch, make_shifted_shapes
from tubal.graph import Graph, Neighbors, Weighting, deformable_graph, knn_graph
from tubal.metrics import clustering_accuracy, clustering_nmi
from tubal.problems.layout import unit_rows


@parametrize_with_checks([ImageClusterer()])
def test_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def shapes(rng, n_classes=4, n_each=12, size=12, whole_pixels=False):
    """Return random patterns, each slightly shifted and with a little noise, and their classes."""
    patterns = np.kron(rng.normal(size=(n_classes, size // 3, size // 3)), np.ones((3, 3)))
    labels = np.repeat(np.arange(n_classes), n_each)
    shifts = rng.uniform(-1.0, 1.0, size=(len(labels), 2))
    shifts = np.round(shifts) if whole_pixels else shifts
    images = np.stack(
        [
            ndimage.shift(patterns[label], by, order=1, mode="grid-wrap")
            for label, by in zip(labels, shifts, strict=True)
        ]
    )
    return images + 0.05 * rng.normal(size=images.shape), labels


@pytest.fixture
def fitted(rng):
    images, labels = shapes(rng)
    return ImageClusterer(4, random_state=0).fit(images), images, labels


def test_large_collections_learn_atoms_from_a_sample(rng, monkeypatch, tmp_path):
    images, _ = shapes(rng, n_each=30)
    whole = ImageClusterer(4, n_atoms=6, random_state=0).fit(images)
    monkeypatch.setattr(clusterer, "LEARNED_WHOLE", 100)
    monkeypatch.setattr(clusterer, "LEARNED_FROM", 40)
    model = ImageClusterer(4, n_atoms=6, random_state=0).fit(images)
    assert_array_equal(model.labels_, whole.labels_)
    assert model.features_.shape == whole.features_.shape
    assert_allclose(np.linalg.norm(model.features_, axis=1), 1.0, rtol=1e-5)
    assert model.predict(images[:3] + 0.01).shape == (3,)
    model.update(images[:5] + 0.01)
    assert "codes_" not in vars(model.model_)
    # Codes of all images are there as soon as somebody asks for them, also in a model from a file.
    save(model, tmp_path / "model.tubal")
    assert load(tmp_path / "model.tubal").model_.codes_.shape == (125, 6, 12)


def test_fitted_attributes_have_their_shapes(fitted):
    model, images, labels = fitted
    n_images = len(images)
    assert clustering_accuracy(labels, model.labels_) == 1.0
    assert model.n_clusters_ == 4
    assert model.features_.shape == (n_images, 45)
    assert model.embedding_.shape == (n_images, 2)
    assert model.confidence_.shape == (n_images,)
    assert model.outliers_.dtype == bool
    assert model.outliers_.shape == (n_images,)
    assert_array_equal(np.sort(model.labels_[model.medoids_]), np.arange(4))
    assert model.n_clusters_scores_ is None
    assert_array_equal(model.n_clusters_candidates_, [4])
    assert model.graph_.neighbors.shape == (n_images, 5)
    assert model.graph_.max_in_degree <= 25
    assert model.model_.atoms_.shape[1:] == images.shape[1:]


def test_labels_for_gives_other_numbers_of_clusters(fitted):
    model, _, _ = fitted
    assert_array_equal(model.labels_for(4), model.labels_)
    for n_clusters in (1, 2, 7):
        assert len(np.unique(model.labels_for(n_clusters))) == n_clusters


def test_new_images_are_assigned_to_their_cluster(fitted):
    model, images, labels = fitted
    new, truth = images[:, ::-1, ::-1][:, ::-1, ::-1] + 0.01, labels
    assert_array_equal(model.predict(new), model.labels_)
    assert_array_equal(model.predict(images), model.labels_)
    distances, indices = model.kneighbors(new, 3)
    assert distances.shape == indices.shape == (len(new), 3)
    assert (truth[indices] == truth[:, None]).mean() > 0.95
    assert_array_equal(model.kneighbors(return_distance=False), model.graph_.neighbors)


def test_predicted_labels_match_a_full_fit(rng):
    images, _ = shapes(rng, n_classes=5, n_each=30)
    held = rng.permutation(len(images))[: len(images) // 10]
    kept = np.setdiff1d(np.arange(len(images)), held)
    full = ImageClusterer(5, random_state=0).fit_predict(images)
    part = ImageClusterer(5, random_state=0).fit(images[kept])
    both = np.concatenate([part.labels_, part.predict(images[held])])
    assert clustering_accuracy(full[np.concatenate([kept, held])], both) >= 0.98


def test_separate_components_are_joined(rng):
    # Whole-pixel shifts give several tight groups per class, and so more components than clusters.
    images, labels = shapes(rng, n_classes=5, n_each=30, whole_pixels=True)
    model = ImageClusterer(5, random_state=0).fit(images)
    assert connected_components(model.affinity_)[0] > 5
    assert clustering_accuracy(labels, model.labels_) == 1.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_components_of_shifted_shapes_are_joined(seed):
    """Shapes at any position form many components; one accidental likeness must not join two classes."""
    shapes_ = make_shifted_shapes(400, n_classes=8, random_state=seed)
    model = ImageClusterer(8, random_state=0).fit(shapes_.images)
    assert connected_components(model.affinity_)[0] > 8
    assert clustering_accuracy(shapes_.target, model.labels_) == 1.0


def test_number_of_clusters_is_estimated(rng):
    images, labels = shapes(rng, n_classes=5, n_each=14)
    model = ImageClusterer(random_state=0).fit(images)
    assert model.n_clusters_ == 5
    assert clustering_accuracy(labels, model.labels_) == 1.0
    assert set(model.n_clusters_scores_) == {"n_clusters", "gap"}
    assert model.n_clusters_candidates_[0] == 5
    assert 5 in model.n_clusters_scores_["n_clusters"]


def test_paper_preset_equals_gtsc_and_kmeans(rng):
    images, _ = shapes(rng)
    model = ImageClusterer(4, preset="paper", n_atoms=12, random_state=0).fit(images)
    coder = GTSC(
        12, graph_weight=1.0, n_neighbors=3, graph="euclidean", sparsity=0.01, max_iter=25, random_state=model.seed_
    )
    features = unit_rows(coder.fit_transform(images))
    assert_allclose(model.features_, features, atol=1e-6)
    expected = kmeans(features, 4, seed=model.seed_)
    assert_array_equal(model.labels_, expected)
    assert_array_equal(model.predict(images), model.labels_)
    assert ImageClusterer(preset="paper", random_state=0).fit(images).n_clusters_ >= 2


def test_threads_do_not_change_the_result(rng):
    images, _ = shapes(rng, n_classes=3)
    first = ImageClusterer(3, random_state=5).fit(images)
    with threadpool_limits(1):
        second = ImageClusterer(3, random_state=5).fit(images)
    assert_array_equal(first.labels_, second.labels_)
    assert_allclose(first.embedding_, second.embedding_)


def test_rows_and_images_agree(rng):
    images, _ = shapes(rng)
    rows = images.reshape(len(images), -1)
    from_rows = ImageClusterer(4, image_shape=(12, 12), random_state=0).fit(rows)
    from_images = ImageClusterer(4, random_state=0).fit(images)
    assert_array_equal(from_rows.labels_, from_images.labels_)


def test_matrix_is_accepted_as_graph(rng):
    images, labels = shapes(rng)
    adjacency = (labels[:, None] == labels).astype(float)
    np.fill_diagonal(adjacency, 0.0)
    model = ImageClusterer(4, graph=adjacency, random_state=0).fit(images)
    assert clustering_accuracy(labels, model.labels_) == 1.0
    assert model.outliers_.shape == (len(images),)
    with pytest.raises(ValueError, match="given as a matrix"):
        model.kneighbors()


@pytest.mark.parametrize("scale", [1.0, 16.0])
@pytest.mark.parametrize("build", [knn_graph, deformable_graph])
def test_graph_of_images_as_they_came_finds_them_again(rng, build, scale):
    images, _ = shapes(rng)
    images *= scale
    graph = build(images[:40], 5)
    model = ImageClusterer(4, graph=graph, random_state=0).fit(images[:40])
    assert_array_equal(model.predict(images[:40]), model.labels_)
    assert_array_equal(model.kneighbors(images[:40], 1, return_distance=False).ravel(), np.arange(40))
    assert_array_equal(model.similar(images[40:], 3).indices, graph.query(images[40:], 3)[0])
    coder = GTSC(4, graph=graph, max_iter=2, random_state=0)
    assert_array_equal(coder.fit_transform(images[:40]), coder.transform(images[:40]))
    grown = model.update(np.concatenate([images[:3], images[40:]]))
    assert_array_equal(grown.labels_[40:43], grown.labels_[:3])
    assert_array_equal(grown.predict(images), grown.labels_[[*range(40), *range(43, 51)]])


def test_distances_are_rescaled_only_if_hubs_dominate(rng):
    # All images list image 0 first and image 1 second.
    n_images = 40
    lists = np.array(
        [
            [*([0] if i else []), *([1] if i != 1 else []), (i + 1) % n_images, (i + 2) % n_images][:3]
            for i in range(n_images)
        ]
    )
    distances = np.sort(rng.uniform(1.0, 1.2, size=lists.shape), axis=1)
    wide = Graph.from_neighbors(
        Neighbors(lists, distances), weighting=Weighting(), search=None, n_neighbors=lists.shape[1]
    )
    assert mutual_share(keep_nearest(wide, 2)) < 0.5
    assert_array_equal(choose_neighbors(wide, 2).neighbors, keep_nearest_rescaled(wide, 2).neighbors)
    pairs = np.arange(n_images) ^ 1
    tight = Graph.from_neighbors(
        Neighbors(np.stack([pairs, (pairs + 2) % n_images], axis=1), np.tile([1.0, 2.0], (n_images, 1))),
        weighting=Weighting(),
        search=None,
        n_neighbors=2,
    )
    assert mutual_share(keep_nearest(tight, 1)) == 1.0
    assert_array_equal(choose_neighbors(tight, 1).neighbors[:, 0], pairs)


def test_exact_copies_are_reported(rng):
    images, _ = shapes(rng)
    images[7] = images[3]
    model = ImageClusterer(4, random_state=0).fit(images)
    assert any({3, 7} <= set(group.tolist()) for group in model.duplicates_)


@pytest.mark.parametrize(
    ("images", "n_clusters", "message"),
    [
        (np.zeros((1, 8, 8)), 1, "n_samples = 1"),
        (np.random.default_rng(0).random((5, 8, 8)), 9, "only 5 images"),
        (np.full((6, 8, 8), np.nan), 2, "NaN"),
        (np.random.default_rng(0).random((5, 8, 8)), 0, "n_clusters=0"),
    ],
)
def test_bad_input_raises_a_one_sentence_error(images, n_clusters, message):
    with pytest.raises(ValueError, match=message):
        ImageClusterer(n_clusters).fit(images)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"preset": "best"}, ValueError, "'default', 'paper'"),
        ({"n_neighbors": 60}, ValueError, "at most n_samples - 1"),
        ({"n_clusters": 2.5}, TypeError, "an integer"),
        ({"code_power": -1.0}, ValueError, "code_power"),
        ({"graph": "nearest"}, ValueError, "known names"),
        ({"views": 3}, TypeError, "views=3; 'auto', the name of a view"),
        ({"views": None}, TypeError, "views=None"),
        ({"callbacks": 3}, TypeError, "^callbacks=3 holds a int"),
    ],
)
def test_bad_parameters_raise_a_one_sentence_error(rng, parameters, error, message):
    images, _ = shapes(rng)
    with pytest.raises(error, match=message):
        ImageClusterer(**parameters).fit(images)


@pytest.mark.parametrize("n_clusters", [None, 1, 2, 3])
@pytest.mark.parametrize(
    "images",
    [
        np.ones((9, 8, 8)),
        np.broadcast_to(np.random.default_rng(5).random((8, 8)), (9, 8, 8)).copy(),
        np.arange(9.0)[:, None, None] * np.ones((9, 8, 8)),
        np.concatenate([np.zeros((4, 8, 8)), np.random.default_rng(1).random((8, 8, 8))]),
        np.random.default_rng(2).random((10, 1, 30)),
        np.random.default_rng(3).random((4, 5, 40)),
        np.random.default_rng(4).random((3, 6, 6, 3)),
    ],
    ids=["all ones", "copies of one", "all constant", "blank among others", "one row", "wide", "few in colour"],
)
def test_unusual_collections_are_clustered(images, n_clusters):
    model = ImageClusterer(n_clusters, random_state=0).fit(images)
    assert model.labels_.shape == (len(images),)
    assert np.isfinite(model.confidence_).all()
    assert np.isfinite(model.embedding_).all()
    again = model.predict(images)
    # Constant images are equal at unit length, so a copy may get the label of another.
    distinct = np.unique(unit_rows(images.reshape(len(images), -1)).round(9), axis=0)
    if len(distinct) == len(images):
        assert_array_equal(again, model.labels_)
    assert set(again) <= set(model.labels_)


@pytest.mark.filterwarnings("ignore:.*clusters were asked for")
@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("kind", ["different", "equal", "constant"])
@pytest.mark.parametrize("n_images", [2, 3, 7])
def test_smallest_collections_are_clustered(rng, n_images, kind, preset):
    images = {
        "different": rng.random((n_images, 8, 8)),
        "equal": np.repeat(rng.random((1, 8, 8)), n_images, axis=0),
        "constant": np.ones((n_images, 8, 8)),
    }[kind]
    for n_clusters in (1, 2, n_images, None):
        model = ImageClusterer(n_clusters, preset=preset, random_state=0).fit(images)
        assert model.labels_.shape == (n_images,)
        assert model.n_clusters_ <= (n_clusters or n_images)
        assert np.isfinite(model.confidence_).all()
        if kind == "different" and n_clusters is not None:
            assert model.n_clusters_ == n_clusters


@pytest.mark.parametrize("n_clusters", [1, 2, 3])
def test_components_are_never_split_before_joining(rng, n_clusters):
    # Four patterns so different that no image has a neighbour in another pattern.
    images = np.repeat(rng.normal(size=(4, 12, 12)), 8, axis=0) + 0.01 * rng.normal(size=(32, 12, 12))
    model = ImageClusterer(n_clusters, random_state=0).fit(images)
    assert connected_components(model.affinity_)[0] == 4
    assert model.n_clusters_ == n_clusters
    for start in range(0, 32, 8):
        assert len(set(model.labels_[start : start + 8])) == 1


def test_blank_image_does_not_change_the_other_labels(rng):
    images, labels = shapes(rng)
    images[0] = 0.0
    found = ImageClusterer(4, random_state=0).fit_predict(images)
    assert clustering_accuracy(labels[1:], found[1:]) > 0.95


@pytest.mark.collection
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "accuracy", "nmi"),
    [("coil20", 98.5, 98.5), ("usps", 98.0, 95.0), ("orl", 84.0, 91.0), ("yale", 90.5, 88.5)],
)
def test_scores_on_collections_reach_their_thresholds(name, accuracy, nmi):
    bunch = fetch(name)
    found = ImageClusterer(len(np.unique(bunch.target)), random_state=0).fit_predict(bunch.images)
    assert 100 * clustering_accuracy(bunch.target, found) >= accuracy
    assert 100 * clustering_nmi(bunch.target, found) >= nmi


@pytest.mark.collection
@pytest.mark.slow
@pytest.mark.parametrize("name", ["coil20", "usps"])
def test_predicted_labels_match_a_full_fit_on_collections(name, rng):
    bunch = fetch(name)
    order = rng.permutation(len(bunch.images))
    held, kept = np.split(order, [len(order) // 10])
    n_clusters = len(np.unique(bunch.target))
    full = ImageClusterer(n_clusters, random_state=0).fit_predict(bunch.images)
    found = ImageClusterer(n_clusters, random_state=0).fit(bunch.images[kept]).predict(bunch.images[held])
    assert clustering_accuracy(full[held], found) >= 0.98


def test_digits_beat_umap_and_kmeans():
    bunch = fetch("digits")
    found = ImageClusterer(10, random_state=0).fit_predict(bunch.images)
    assert 100 * clustering_accuracy(bunch.target, found) >= 88.7
    assert 100 * clustering_nmi(bunch.target, found) >= 89.7


# --- one fit, one state ----------------------------------------------------------------------------------
def fitted_state(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


def test_interrupted_fit_keeps_the_previous_fit(rng):
    images, _ = shapes(rng)

    def interrupt(progress):
        raise KeyboardInterrupt

    model = ImageClusterer(4, random_state=0).fit(images)
    _ = model.embedding_
    before = fitted_state(model)
    model.set_params(callbacks=interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(images[:30, :9, :9])
    after = fitted_state(model)
    assert set(after) == set(before)
    assert all(after[name] is before[name] for name in before)
    assert_array_equal(model.predict(images), model.labels_)


def test_second_fit_replaces_all_fitted_attributes(rng):
    images, _ = shapes(rng)
    model = ImageClusterer(4, random_state=0).fit(images)
    model.file_names_ = np.array(["a"] * len(images))
    before = model.embedding_
    model.fit(images[:30])
    assert not hasattr(model, "file_names_")
    assert len(before) == 48
    assert len(model.embedding_) == len(model.labels_) == 30


def test_failed_fit_leaves_no_fitted_attribute(rng):
    images, _ = shapes(rng)
    model = ImageClusterer(4, graph="nearest")
    with pytest.raises(ValueError, match="known names"):
        model.fit(images)
    assert not fitted_state(model)


# --- similar images --------------------------------------------------------------------------------------
@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("color", [False, True])
def test_training_image_is_most_similar_to_itself(rng, preset, color):
    images, _ = shapes(rng)
    images = np.stack([images, 2.0 * images, images**2], axis=-1) if color else images
    model = ImageClusterer(4, preset=preset, n_atoms=10, random_state=0).fit(images)
    found = model.similar(images, 3)
    distances, indices = model.kneighbors(images, 3)
    assert_array_equal(found.indices[:, 0], np.arange(len(images)))
    assert_array_equal(found.distances[:, 0], 0.0)
    assert_array_equal(indices, found.indices)
    assert_array_equal(distances, found.distances)
    assert (found.alignments is None) == (preset == "paper")
    if found.alignments is not None:
        assert not found.alignments.rotation[:, 0].any()
        assert_array_equal(found.alignments.scale[:, 0], 1.0)


def test_kneighbors_of_training_images_respects_the_number(fitted):
    model, _, _ = fitted
    distances, indices = model.kneighbors(n_neighbors=2)
    assert_array_equal(indices, model.graph_.neighbors[:, :2])
    assert_array_equal(distances, model.graph_.distances[:, :2])
    with pytest.raises(ValueError, match="keeps 5 neighbours"):
        model.kneighbors(n_neighbors=6)


# --- numbers of clusters ---------------------------------------------------------------------------------
@pytest.mark.parametrize("n_images", [18, 26, 27, 28, 31])
def test_complete_graph_is_clustered(n_images):
    # All non-trivial eigenvalues of such a graph are equal, which some eigensolvers cannot handle.
    images = np.random.default_rng(0).random((n_images, 8, 8))
    for n_clusters in (3, None):
        model = ImageClusterer(n_clusters, n_neighbors=n_images - 1, random_state=0).fit(images)
        assert model.n_clusters_ == (n_clusters or model.n_clusters_)
        assert np.isfinite(model.embedding_).all()


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_fewer_clusters_than_requested_give_a_warning(rng, preset):
    images = np.repeat(rng.random((2, 8, 8)), 6, axis=0)
    model = ImageClusterer(4, preset=preset, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(images)
    announced = [str(entry.message) for entry in caught if entry.category is ConvergenceWarning]
    assert model.n_clusters_ == 4 or any("4 clusters were asked for" in message for message in announced)
    if preset == "paper":
        assert announced == ["4 clusters were asked for, but only 2 could be told apart; ask for at most 2"]


# --- copies ----------------------------------------------------------------------------------------------
def noisy_copies(n_digits, n_copies, seed=0):
    """Return the first digits of scikit-learn, each repeated with 2 % noise, and their classes."""
    bunch = fetch("digits")
    images = np.repeat(bunch.images[:n_digits] / bunch.images.max(), n_copies, axis=0)
    noise = np.random.default_rng(seed).normal(scale=0.02, size=images.shape)
    return np.maximum(images + (noise if n_copies > 1 else 0.0), 0.0), np.repeat(bunch.target[:n_digits], n_copies)


@pytest.fixture(scope="module")
def digits():
    """300 digits without copies, their classes, and the NMI of their clusters."""
    images, target = noisy_copies(300, 1)
    return images, target, clustering_nmi(target, ImageClusterer(10, random_state=0).fit_predict(images))


# results/bench.md records 4 and 12 copies of all digits too.
@pytest.mark.parametrize("n_copies", [pytest.param(2, marks=pytest.mark.slow), 6])
def test_noisy_copies_keep_the_clusters(digits, n_copies):
    once = digits[2]
    images, target = noisy_copies(300, n_copies)
    model = ImageClusterer(10, random_state=0).fit(images)
    assert clustering_nmi(target, model.labels_) >= once - 0.02
    assert_array_equal(model.labels_for(10), model.labels_)
    copies = model.labels_.reshape(300, n_copies)
    assert np.mean(copies == copies[:, :1]) > 0.99


def test_number_of_clusters_is_estimated_despite_copies():
    images, _ = noisy_copies(200, 6)
    once = ImageClusterer(random_state=0).fit(noisy_copies(200, 1)[0]).n_clusters_
    assert abs(ImageClusterer(random_state=0).fit(images).n_clusters_ - once) <= 1


def test_images_without_copies_represent_themselves(fitted):
    model, images, _ = fitted
    assert_array_equal(model.copy_of_, np.arange(len(images)))


def test_exact_copies_are_one_cluster(rng):
    images, labels = shapes(rng, n_classes=4, n_each=20)
    crowd = np.concatenate([images, np.repeat(images[7:8], 60, axis=0)])
    model = ImageClusterer(4, random_state=0).fit(crowd)
    assert clustering_accuracy(labels, model.labels_[:80]) == 1.0
    assert set(model.labels_[80:]) == {model.labels_[7]}
    assert_array_equal(model.predict(crowd), model.labels_)


@pytest.mark.parametrize("n_clusters", [10, 11])
def test_blanks_do_not_spoil_the_rest(digits, n_clusters):
    images, target, alone = digits
    model = ImageClusterer(n_clusters, random_state=0).fit(np.concatenate([images, np.zeros((90, 8, 8))]))
    assert len(set(model.labels_[300:])) == 1
    assert clustering_nmi(target, model.labels_[:300]) >= alone - 0.03


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_equal_images_have_equal_labels(rng, preset):
    images, _ = shapes(rng)
    images = np.concatenate([images, images[:5], images[:3]])
    model = ImageClusterer(9, preset=preset, n_atoms=10, random_state=0).fit(images)
    assert_array_equal(model.labels_[48:53], model.labels_[:5])
    assert_array_equal(model.labels_[53:], model.labels_[:3])
    assert_array_equal(model.predict(images), model.labels_)


def test_fewer_distinct_images_than_clusters(rng):
    images = np.repeat(rng.random((3, 8, 8)), 10, axis=0)
    with pytest.warns(ConvergenceWarning, match="5 clusters were asked for, but only 3 could be told apart"):
        model = ImageClusterer(5, random_state=0).fit(images)
    assert_array_equal(model.labels_, np.repeat([0, 1, 2], 10))


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("pixel", [0.0, 1.0])
@pytest.mark.filterwarnings("error")
def test_estimate_for_equal_images_is_one_cluster_without_a_warning(preset, pixel):
    model = ImageClusterer(preset=preset, random_state=0).fit(np.full((9, 8, 8), pixel))
    assert model.n_clusters_ == 1
    assert_array_equal(model.n_clusters_candidates_, [1])


def test_tight_classes_are_not_taken_for_copies(rng):
    images = np.repeat(rng.normal(size=(12, 12, 12)), 8, axis=0) + 0.01 * rng.normal(size=(96, 12, 12))
    for n_clusters in (12, None):
        model = ImageClusterer(n_clusters, random_state=0).fit(images)
        assert clustering_accuracy(np.repeat(np.arange(12), 8), model.labels_) == 1.0


def test_bursts_of_copies_do_not_take_all_clusters(rng, digits):
    # Twelve groups of near-copies have no neighbour elsewhere: with the digits, more components than clusters.
    images, target, _ = digits
    bursts = np.repeat(rng.random((12, 8, 8)), 8, axis=0) + 0.01 * rng.random((96, 8, 8))
    found = ImageClusterer(10, random_state=0).fit_predict(np.concatenate([images, bursts]))
    assert clustering_nmi(target, found[:300]) > 0.85


@pytest.mark.parametrize("as_images", [np.asarray, "torch"])
def test_a_few_copies_of_many_images_need_no_second_search(rng, digits, monkeypatch, as_images):
    as_images = pytest.importorskip("torch").as_tensor if as_images == "torch" else as_images
    # Given a collection that counts as large, with twelve groups of near-copies that have no neighbour elsewhere
    monkeypatch.setattr(affinity, "_SEARCHED_AGAIN", 0)
    images, target, _ = digits
    bursts = np.repeat(rng.random((12, 8, 8)), 12, axis=0) + 0.01 * rng.random((144, 8, 8))
    # When it is clustered
    seen = set()
    model = ImageClusterer(10, random_state=0)
    crowd = as_images(np.concatenate([images, bursts]).astype(np.float32))
    model.fit(crowd, progress=lambda stage, done, total: seen.add(stage))
    # Then each group counts once, neighbours were sought once, and the digits are clustered as ever
    assert_array_equal([len(set(group)) for group in model.copy_of_[300:].reshape(12, 12)], np.ones(12))
    assert "finding neighbours, round 2" not in seen
    assert clustering_nmi(target, model.labels_[:300]) > 0.85


def test_copies_of_every_image_are_searched_again(digits, monkeypatch):
    monkeypatch.setattr(affinity, "_SEARCHED_AGAIN", 0)
    images, target = noisy_copies(300, 12)
    model = ImageClusterer(10, random_state=0).fit(images)
    assert clustering_nmi(target, model.labels_) >= digits[2] - 0.02
    assert len(np.unique(model.copy_of_)) <= 310


def test_shifted_copies_do_not_collapse(rng):
    # Whole-pixel shifts lie within the deformations of the graph, so the versions of a digit are near-copies.
    images, target = noisy_copies(200, 1)
    wide = np.pad(np.kron(images, np.ones((1, 2, 2))), ((0, 0), (2, 2), (2, 2)))
    shifted = np.concatenate([np.roll(wide, by, axis=(1, 2)) for by in rng.integers(-1, 2, (9, 2))])
    found = ImageClusterer(10, random_state=0).fit_predict(shifted)
    assert clustering_nmi(np.tile(target, 9), found) > 0.8


# --- rows of features --------------------------------------------------------------------------------------
def test_rows_without_a_shape_use_the_cosine_graph(rng):
    # Given 400 embeddings of ten classes, as long as those of a network
    centers = np.maximum(rng.normal(size=(10, 1280)), 0)
    target = np.arange(400) % 10
    rows = np.maximum(centers[target] + 1.5 * rng.normal(size=(400, 1280)), 0).astype(np.float32)
    # When they are clustered as they are, and with the graph named
    cosine = ImageClusterer(10, graph="cosine", random_state=0).fit(rows)
    start = time.process_time()
    default = ImageClusterer(10, random_state=0).fit(rows)
    seconds = time.process_time() - start
    # Then both are one and the same, and fast
    assert default.graph_.search.kind == "exact"
    assert default.graph_.search.metric == "cosine"
    assert isinstance(default.model_, GraphSC)
    assert_array_equal(default.labels_, cosine.labels_)
    assert clustering_nmi(target, default.labels_) > 0.9
    assert seconds < 5
    assert_array_equal(default.predict(rows.astype(np.float64)), default.labels_)


def test_images_use_the_deformable_graph(rng):
    images = rng.random((30, 6, 6))
    assert ImageClusterer(3, random_state=0).fit(images).graph_.search.kind == "deformable"
    rows = images.reshape(30, 36)
    shaped = ImageClusterer(3, image_shape=(6, 6), random_state=0).fit(rows)
    assert shaped.graph_.search.kind == "deformable"
    assert ImageClusterer(3, graph="deformable", random_state=0).fit(rows).graph_.search.kind == "deformable"
    assert ImageClusterer(3, preset="paper", random_state=0).fit(rows).graph_.search.metric == "euclidean"
