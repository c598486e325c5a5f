"""Several views of the same images, and the rule that fuses them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.fft import dctn
from sklearn.metrics.pairwise import cosine_similarity

import tubal
from helpers.hint_sequences import check_facts
from tubal import ImageClusterer
from tubal.backends import network
from tubal.checkpoints import Checkpoint
from tubal.clustering import modularity
from tubal.clustering.affinity import mutual_adjacency, with_second_order
from tubal.clustering.cuts import diffusion_cut, merge_clusters
from tubal.clustering.views import (
    LEAST_TRUST,
    MOST_COLOUR,
    STEEPNESS,
    colour_histograms,
    fuse_views,
    has_colour,
    network_can_help,
    network_parts,
    requested_views,
    texture_responses,
    to_lab,
)
from tubal.learning.fitting import scale_images
from tubal.metrics import clustering_accuracy
from tubal.report.from_clusterer import report_data

N_CLASSES, PER_CLASS = 3, 12
TRUTH = np.repeat(np.arange(N_CLASSES), PER_CLASS)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return np.repeat(rng.random((N_CLASSES, 12, 12)), PER_CLASS, axis=0) * 0.9 + 0.1 * rng.random((36, 12, 12))


@pytest.fixture(scope="module")
def telling_features():
    return np.eye(N_CLASSES)[TRUTH] + 0.05 * np.random.default_rng(1).normal(size=(len(TRUTH), N_CLASSES))


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(2).normal(size=(len(TRUTH), 20))


def blank_shapes():
    """Pictures that differ in nothing but noise, so that their shapes say nothing."""
    return 0.5 + 0.01 * np.random.default_rng(3).random((36, 12, 12))


def random_graph(seed, n_images=60, n_neighbors=5):
    rng = np.random.default_rng(seed)
    return mutual_adjacency(np.argsort(rng.random((n_images, n_images)), axis=1)[:, :n_neighbors])


def block_graph(noise=0.0, n_images=60, n_blocks=3, seed=0):
    rng = np.random.default_rng(seed)
    block = np.arange(n_images) * n_blocks // n_images
    lists = []
    for i in range(n_images):
        own = rng.permutation(np.flatnonzero((block == block[i]) & (np.arange(n_images) != i)))[:5]
        lists.append(np.where(rng.random(5) < noise, rng.integers(0, n_images, 5), own))
    edges = mutual_adjacency(np.array(lists))
    return sparse.csr_matrix(edges - sparse.diags(edges.diagonal()))


def test_second_order_is_symmetric_for_unsorted_edges():
    rng = np.random.default_rng(0)
    dense = rng.random((40, 40)) * (rng.random((40, 40)) < 0.3)
    edges = sparse.csr_matrix(dense + dense.T)
    for start, stop in zip(edges.indptr[:-1], edges.indptr[1:], strict=True):
        order = rng.permutation(stop - start) + start
        edges.indices[start:stop], edges.data[start:stop] = edges.indices[order], edges.data[order]
    edges.has_sorted_indices = False
    affinity = with_second_order(edges)
    assert abs(affinity - affinity.T).nnz == 0


# --- the rule ------------------------------------------------------------------------------------------------
def test_trust_is_the_written_rule():
    views = {"clear": block_graph(0.1), "fair": block_graph(0.2, seed=1)}
    fusion = fuse_views(views, 3)
    own = {
        name: modularity(with_second_order(edges), diffusion_cut(with_second_order(edges), 3))
        for name, edges in views.items()
    }
    best = max(own.values())
    for name, value in own.items():
        expected = np.exp(STEEPNESS * (value - best))
        assert fusion.trust[name] == pytest.approx(expected if expected >= LEAST_TRUST else 0.0)


def test_fused_edges_are_the_weighted_sum():
    views = {"one": block_graph(0.1), "two": block_graph(0.1, seed=5)}
    fusion = fuse_views(views, 3)
    expected = sum(fusion.trust[name] * views[name].toarray() for name in views)
    assert_allclose(fusion.weights.toarray(), expected)


def test_noise_has_no_influence():
    clear = block_graph(0.0)
    fusion = fuse_views({"clear": clear, "noise": random_graph(0)}, 3)
    assert fusion.trust == {"clear": 1.0, "noise": 0.0}
    assert (fusion.weights != clear).nnz == 0


def test_order_of_views_does_not_matter():
    one, two = block_graph(0.1), block_graph(0.3, seed=4)
    assert fuse_views({"a": one, "b": two}, 3).trust == fuse_views({"b": two, "a": one}, 3).trust


def test_view_of_many_pieces_can_be_fused():
    pieces = sparse.csr_matrix(np.kron(np.eye(30), np.array([[0.0, 1.0], [1.0, 0.0]])))
    assert 0.0 <= fuse_views({"clear": block_graph(), "pieces": pieces}, 3).trust["pieces"] <= 1.0


def test_merging_takes_the_best_pair_each_time():
    edges = block_graph(0.2)
    labels = np.arange(60) // 10
    merged = merge_clusters(edges, labels, 5, resolution=2.0)
    scores = {}
    for a in range(6):
        for b in range(a):
            tried = np.where(labels == a, b, labels)
            scores[modularity(edges, np.unique(tried, return_inverse=True)[1], resolution=2.0)] = tried
    best = scores[max(scores)]
    assert_array_equal(merged, np.unique(best, return_inverse=True)[1])


# --- fit -------------------------------------------------------------------------------------------------------
def test_small_grey_images_have_one_view(images):
    fitted = ImageClusterer(3, random_state=0).fit(images)
    assert fitted.views_ == {"shape": "graph"}
    assert fitted.view_weights_ == {"shape": 1.0}
    assert fitted.view_graphs_ == {}


def test_shape_alone_is_the_graph_alone(images):
    alone = ImageClusterer(3, views="shape", random_state=0).fit(images)
    given = ImageClusterer(3, graph="deformable", random_state=0).fit(images)
    assert_array_equal(alone.labels_, given.labels_)
    assert (alone.affinity_ != given.affinity_).nnz == 0


def test_features_decide_where_shapes_say_nothing(telling_features):
    fitted = ImageClusterer(3, views={"shape": None, "own": telling_features}, random_state=0).fit(blank_shapes())
    assert clustering_accuracy(TRUTH, fitted.labels_) == 1.0
    assert fitted.view_weights_["own"] == 1.0


def test_noise_beside_good_shapes_changes_nothing(images, noise):
    alone = ImageClusterer(3, views="shape", random_state=0).fit(images)
    beside = ImageClusterer(3, views={"shape": None, "noise": noise}, random_state=0).fit(images)
    assert beside.view_weights_ == {"shape": 1.0, "noise": 0.0}
    assert_array_equal(beside.labels_, alone.labels_)


def test_number_of_clusters_comes_from_the_trusted_views(telling_features):
    fitted = ImageClusterer(views={"own": telling_features}, random_state=0).fit(blank_shapes())
    assert fitted.n_clusters_ == N_CLASSES


def test_function_sees_values_from_zero_to_one(images):
    seen = []

    def look(pictures):
        seen.append((pictures.min(), pictures.max()))
        return pictures.reshape(len(pictures), -1)

    ImageClusterer(3, views={"shape": None, "own": look}, random_state=0).fit(255.0 * images / images.max())
    assert seen[0][0] >= 0.0
    assert seen[0][1] == pytest.approx(1.0)


def test_graph_or_matrix_can_be_a_view(images):
    same = (TRUTH[:, None] == TRUTH).astype(float)
    np.fill_diagonal(same, 0.0)
    fitted = ImageClusterer(3, views={"truth": sparse.csr_matrix(same)}, random_state=0).fit(blank_shapes())
    assert clustering_accuracy(TRUTH, fitted.labels_) == 1.0


@pytest.mark.parametrize("parameters", [{"graph": "euclidean"}, {"preset": "paper"}])
def test_given_graph_means_no_other_view(parameters):
    coloured = np.random.default_rng(0).random((20, 8, 8, 3))
    assert ImageClusterer(2, random_state=0, **parameters).fit(coloured).views_ == {"shape": "graph"}


def test_copies_and_views_go_together(telling_features):
    twice = np.tile(blank_shapes(), (4, 1, 1))
    views = {"shape": None, "own": np.tile(telling_features, (4, 1))}
    fitted = ImageClusterer(3, views=views, random_state=0).fit(twice)
    assert_array_equal(fitted.labels_[:36], fitted.labels_[36:72])
    assert fitted.view_graphs_["own"].n_images == 144


# --- new images ----------------------------------------------------------------------------------------------
def test_training_images_get_their_own_cluster(images, telling_features):
    fitted = ImageClusterer(3, views={"shape": None, "own": telling_features}, random_state=0).fit(images)
    assert_array_equal(fitted.predict(images), fitted.labels_)
    distances, indices = fitted.kneighbors(images, 1)
    assert_allclose(distances, 0.0, atol=1e-6)
    assert_array_equal(indices.ravel(), np.arange(len(images)))


def test_features_of_new_images_vote(telling_features):
    pictures = blank_shapes()
    fitted = ImageClusterer(3, views={"own": telling_features}, random_state=0).fit(pictures)
    new = pictures[::-1] + 0.001 * np.random.default_rng(5).random(pictures.shape)
    assert_array_equal(fitted.predict(new, views={"own": telling_features}), fitted.labels_)


def test_neighbors_are_those_of_the_view_that_decides(telling_features):
    pictures = blank_shapes()
    fitted = ImageClusterer(3, views={"shape": None, "own": telling_features}, random_state=0).fit(pictures)
    assert fitted.view_weights_["own"] == 1.0
    expected = np.argsort(-cosine_similarity(telling_features), axis=1, kind="stable")
    found = fitted.similar(pictures, 4)  # training images have the features that they had in the fit
    assert_array_equal(found.indices, expected[:, :4])
    assert_allclose(found.distances[:, 0], 0.0, atol=1e-6)
    assert_array_equal(fitted.kneighbors(n_neighbors=3, return_distance=False), expected[:, 1:4])
    new = np.clip(pictures + 0.001, 0.0, 1.0)
    given = fitted.similar(new, 4, views={"own": telling_features})
    assert_array_equal(given.indices, expected[:, :4])
    by_shape = fitted.graph_.query_full(scale_images(new, "unit")[0], 4)
    assert_array_equal(fitted.similar(new, 4).indices, by_shape.indices)
    shown = report_data(fitted, pictures, [str(i) for i in range(len(pictures))], explain=False)
    assert_array_equal(shown.neighbors[:, :3], expected[:, 1:4])


def test_function_votes_on_new_images(images):
    views = {"shape": None, "own": lambda pictures: pictures.reshape(len(pictures), -1) - 0.5}
    fitted = ImageClusterer(3, views=views, random_state=0).fit(images)
    assert_array_equal(fitted.predict(np.clip(images + 0.01, 0.0, 1.0)), fitted.labels_)


def test_model_file_keeps_views(tmp_path, images, telling_features):
    views = {"shape": None, "own": telling_features, "function": lambda pictures: pictures.reshape(len(pictures), -1)}
    fitted = ImageClusterer(3, views=views, random_state=0).fit(images)
    tubal.save(fitted, tmp_path / "model.tubal")
    loaded = tubal.load(tmp_path / "model.tubal")
    assert loaded.view_weights_ == fitted.view_weights_
    assert loaded.views_ == fitted.views_
    assert_array_equal(loaded.predict(images), fitted.labels_)
    new = np.clip(images + 0.01, 0.0, 1.0)
    assert_array_equal(loaded.predict(new, views={"own": telling_features}), fitted.labels_)


def test_view_without_trust_keeps_no_features_and_the_collection_still_grows(tmp_path, images):
    noise = np.random.default_rng(3).normal(size=(len(images), 4000))
    model = ImageClusterer(3, views={"shape": None, "noise": noise[:-3]}, random_state=0).fit(images[:-3])
    assert model.view_weights_["noise"] == 0.0
    assert model.view_graphs_["noise"].search is None
    tubal.save(model, tmp_path / "model.tubal")
    assert (tmp_path / "model.tubal").stat().st_size < noise.astype(np.float32).nbytes
    loaded = tubal.load(tmp_path / "model.tubal").update(images[-3:]).remove([1])
    assert len(loaded.labels_) == len(images) - 1
    assert_array_equal(loaded.predict(images[:1]), loaded.labels_[:1])


def test_views_place_added_images(tmp_path, telling_features):
    pictures, order = blank_shapes(), np.random.default_rng(6).permutation(len(TRUTH))
    old, new = order[:27], order[27:]
    model = ImageClusterer(3, views={"own": telling_features[old]}, random_state=0).fit(pictures[old])
    model.update(pictures[new], views={"own": telling_features[new]})
    assert clustering_accuracy(TRUTH[order], model.labels_) == 1.0
    model.remove([0, 30])
    tubal.save(model, tmp_path / "model.tubal")
    loaded = tubal.load(tmp_path / "model.tubal")
    check_facts(loaded)
    assert_array_equal(loaded.view_graphs_["own"].search.images, model.view_graphs_["own"].search.images)
    moved = pictures + 0.001 * np.random.default_rng(5).random(pictures.shape)
    predicted = loaded.predict(moved, views={"own": telling_features})
    assert_array_equal(predicted[np.delete(order, [0, 30])], loaded.labels_)


def test_view_without_features_of_added_images_is_left_out(tmp_path, images, telling_features):
    views = {"shape": None, "own": telling_features[:-3]}
    model = ImageClusterer(3, views=views, random_state=0).fit(images[:-3])
    with pytest.warns(UserWarning, match="'own' does not know the new images"):
        model.update(images[-3:])
    tubal.save(model, tmp_path / "model.tubal")
    loaded = tubal.load(tmp_path / "model.tubal")
    check_facts(loaded)
    assert clustering_accuracy(TRUTH, loaded.labels_) == 1.0
    assert_array_equal(loaded.predict(images), loaded.labels_)


def test_interrupted_fit_keeps_features(tmp_path, images):
    calls = []

    def look(pictures):
        calls.append(len(pictures))
        return pictures.reshape(len(pictures), -1)

    def stop(stage, done, total):
        if stage == "cutting the graph":
            raise KeyboardInterrupt

    model = ImageClusterer(3, views={"shape": None, "own": look}, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(images, checkpoint=tmp_path / "fit", progress=stop)
    resumed = model.fit(images, checkpoint=Checkpoint(tmp_path / "fit", resume=True))
    assert calls == [36]
    assert_array_equal(resumed.labels_, ImageClusterer(3, views=model.views, random_state=0).fit(images).labels_)


# --- bad input -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("views", "message"),
    [
        ("colors", "choose from 'auto', 'shape', 'colour', 'texture', 'semantic', 'layout'"),
        ([], "views is empty"),
        ({"own": np.zeros((3, 2))}, "one row of numbers per image"),
        ({"own": np.full((36, 2), np.nan)}, "not a number"),
        ({"shape": np.zeros((36, 2))}, "give another one as graph="),
        ({"own": lambda pictures: pictures[0]}, "one row of numbers per image"),
        ("colour", "needs images"),
    ],
)
def test_bad_views_are_named(images, views, message):
    with pytest.raises(ValueError, match=message):
        ImageClusterer(3, views=views, random_state=0).fit(images)


def test_paper_preset_has_no_views(images):
    with pytest.raises(ValueError, match="has no views"):
        ImageClusterer(3, preset="paper", views="shape").fit(images)


def test_unknown_view_of_new_images_is_named(images, noise):
    fitted = ImageClusterer(3, views={"shape": None, "own": noise}, random_state=0).fit(images)
    with pytest.raises(ValueError, match="no view of this model"):
        fitted.predict(images, views={"other": noise})


@pytest.mark.parametrize("method", ["predict", "similar", "update"])
def test_bad_features_of_new_images_are_named(telling_features, method):
    pictures = blank_shapes()
    fitted = ImageClusterer(3, views={"own": telling_features}, random_state=0).fit(pictures)
    before, new = fitted.labels_, np.clip(pictures + 0.001, 0.0, 1.0)
    for views, message in (
        ({"own": telling_features[:, :2]}, "the view 'own' has 2 features an image; 3 are wanted"),
        ({"own": telling_features[:5]}, "one row of numbers per image"),
        ([("own", telling_features)], "views is a list; a dict of features"),
        ({"other": telling_features}, "no view of this model"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            getattr(fitted, method)(new, views=views)
    assert fitted.labels_ is before


def test_a_model_of_one_view_takes_no_features(images):
    fitted = ImageClusterer(3, views="shape", random_state=0).fit(images)
    for method in (fitted.predict, fitted.similar, fitted.update):
        with pytest.raises(ValueError, match="'other', which is no view of this model"):
            method(images, views={"other": images[:, 0]})


# --- colour ------------------------------------------------------------------------------------------------------
def test_lab_of_known_colours():
    known = {
        (0, 0, 0): (0, 0, 0),
        (1, 1, 1): (100, 0, 0),
        (0, 0, 1): (32.30, 79.19, -107.86),
        (0, 1, 0): (87.73, -86.18, 83.18),
    }
    for rgb, lab in known.items():
        assert_allclose(to_lab(np.array(rgb, dtype=float)), lab, atol=0.02)


def test_histograms_have_unit_length_per_quarter():
    rows = colour_histograms(np.random.default_rng(0).random((5, 9, 7, 3)))
    assert_allclose((rows.reshape(5, 4, -1) ** 2).sum(axis=2), 1.0, rtol=1e-5)


def test_histograms_follow_colours_not_places_within_a_quarter():
    rng = np.random.default_rng(0)
    picture = rng.random((1, 8, 8, 3))
    shuffled = picture.copy()
    quarter = shuffled[0, :4, :4].reshape(16, 3)
    shuffled[0, :4, :4] = rng.permutation(quarter).reshape(4, 4, 3)
    assert_allclose(colour_histograms(picture), colour_histograms(shuffled), atol=1e-6)


def test_grey_pictures_in_three_channels_have_no_colour():
    grey = np.repeat(np.random.default_rng(0).random((6, 8, 8, 1)), 3, axis=3)
    assert not has_colour(grey)
    assert has_colour(np.random.default_rng(0).random((6, 8, 8, 3)))
    assert list(requested_views("auto", grey).computed) == []


# --- texture -------------------------------------------------------------------------------------------------------
def stripes(angle: float, rng: np.random.Generator) -> np.ndarray:
    """Return a picture (24, 24) of stripes at a random position, with noise."""
    rows, columns = np.mgrid[:24, :24]
    phase = rng.uniform(0, 2 * np.pi)
    wave = np.sin(1.2 * (np.cos(angle) * columns + np.sin(angle) * rows) + phase)
    return np.clip(0.5 + 0.3 * wave + 0.05 * rng.standard_normal((24, 24)), 0.0, 1.0)


def test_texture_is_the_thresholded_cosine_transform_of_every_block():
    images = np.random.default_rng(0).random((2, 17, 19))
    expected = []
    for image in images:
        responses = np.zeros((5, 6, 126))
        for i, j in np.ndindex(5, 6):
            block = image[2 * i : 2 * i + 8, 2 * j : 2 * j + 8]
            block = (block - block.mean()) / np.sqrt(block.var() + (10 / 255) ** 2)
            rows, columns = np.mgrid[:8, :8]
            frequency = np.hypot(rows, columns).ravel()[1:]
            strength = dctn(block, norm="ortho").ravel()[1:] * frequency / (8 / np.sqrt((frequency**-2).sum()))
            responses[i, j] = np.maximum(np.concatenate([strength, -strength]) - 0.5, 0.0)
        quarters = responses[:3, :3], responses[:3, 3:], responses[3:, :3], responses[3:, 3:]
        expected.append(np.concatenate([quarter.mean(axis=(0, 1)) for quarter in quarters]))
    assert_allclose(texture_responses(images), np.sqrt(expected), atol=2e-4)


def test_texture_tells_stripes_apart_wherever_they_lie():
    rng = np.random.default_rng(0)
    target = np.repeat([0, 1, 2], 20)
    images = np.array([stripes([0.2, 0.9, 1.7][kind], rng) for kind in target])
    labels = ImageClusterer(3, views="texture", random_state=0).fit_predict(images)
    assert clustering_accuracy(target, labels) == 1.0


def test_texture_assists_and_never_leads():
    views = {"shape": block_graph(0.3), "texture": block_graph(0.0, seed=7)}
    assert fuse_views(views, 3).trust == {"shape": 1.0, "texture": 1.0}
    worse = {"shape": block_graph(0.0, seed=7), "texture": block_graph(0.3)}
    assert fuse_views(worse, 3).trust == {"shape": 1.0, "texture": 0.0}


def test_new_images_are_compared_by_texture_too():
    images = np.array([stripes(angle, np.random.default_rng(seed)) for angle in (0.2, 1.7) for seed in range(12)])
    fitted = ImageClusterer(2, views="texture", random_state=0).fit(images)
    assert_array_equal(fitted.predict(images), fitted.labels_)


def test_pictures_too_small_for_texture_are_named():
    with pytest.raises(ValueError, match=r"'texture' needs images of at least 16×16 pixels; they have \(8, 8\)"):
        ImageClusterer(2, views="texture").fit(np.random.default_rng(0).random((10, 8, 8)))


# --- the network ---------------------------------------------------------------------------------------------------
needs_network = pytest.mark.skipif(bool(network.why_missing()), reason=f"no network: {network.why_missing()}")


def test_missing_network_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(network, "WEIGHTS_PACKAGE", "a_package_that_is_not_there")
    network.load_network.cache_clear()
    assert "\n" not in network.why_missing()
    missing = "a_package_that_is_not_there" if importlib.util.find_spec("torch") else "torch"
    assert missing in network.why_missing()
    with pytest.raises(network.MissingNetworkError, match=r"tubal\[photos\]"):
        network.load_network()
    assert not network_can_help(100, (64, 64))


def test_without_the_network_photographs_are_clustered(monkeypatch):
    monkeypatch.setattr(network, "WEIGHTS_PACKAGE", "a_package_that_is_not_there")
    pictures = np.random.default_rng(0).random((12, 32, 32, 3))
    assert set(ImageClusterer(2, random_state=0).fit(pictures).views_) == {"shape", "colour", "texture"}


@needs_network
def test_other_weights_are_refused(tmp_path):
    other = tmp_path / "weights.pth"
    other.write_bytes(b"not the weights")
    with pytest.raises(ValueError, match="not the file of weights"):
        network.load_network(file=other)


@needs_network
def test_network_has_the_published_size():
    # 4.65 million with the classifier (1.28 million) and batch normalisation, which is folded in here.
    assert network.load_network().n_parameters == 3_350_000


@needs_network
def test_network_equals_the_reference():
    reference = pytest.importorskip("efficientnet_lite_pytorch", reason="pip install --group dev")
    torch = pytest.importorskip("torch")
    model = reference.EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(network.weights_file(), weights_only=True))
    pictures = 255.0 * torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = model.eval().extract_features((pictures - 127.0) / 128.0)
    assert_allclose(network.load_network().maps(pictures)[1].numpy(), expected.numpy(), atol=1e-3)


@needs_network
def test_network_features_do_not_depend_on_the_batch():
    pictures = np.random.default_rng(0).random((3, 40, 30, 3))
    together = network.describe_pictures(pictures)
    assert together.shape == (3, network.N_FEATURES)
    for part in network_parts(together).values():
        assert_allclose(np.linalg.norm(part, axis=1), network.LENGTH, rtol=0.02)
    assert_array_equal(together, np.rint(together))
    apart = np.concatenate([network.describe_pictures(pictures[i : i + 1]) for i in range(3)])
    assert_array_equal(together, apart)


@needs_network
def test_network_leaves_the_threads_of_torch_as_they_were():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        network.describe_pictures(np.zeros((1, 8, 8)))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@needs_network
def test_grey_bytes_and_floats_look_alike():
    grey = np.random.default_rng(0).integers(0, 256, (2, 50, 50), dtype=np.uint8)
    colour = np.repeat(grey[..., None] / 255.0, 3, axis=3)
    assert_allclose(network.describe_pictures(grey), network.describe_pictures(colour), atol=1)


@needs_network
def test_network_view_is_used_for_photographs():
    pictures = np.random.default_rng(0).random((10, 32, 32))
    fitted = ImageClusterer(2, random_state=0).fit(pictures)
    assert fitted.views_ == {"shape": "graph", "semantic": "images", "layout": "images"}
    assert_array_equal(fitted.predict(pictures), fitted.labels_)


@needs_network
def test_two_views_share_one_pass(monkeypatch):
    calls = []
    real = network.describe_pictures
    monkeypatch.setattr(network, "describe_pictures", lambda *args, **kwargs: calls.append(1) or real(*args, **kwargs))
    ImageClusterer(2, views=["semantic", "layout"], random_state=0).fit(np.random.default_rng(0).random((8, 12, 12)))
    assert calls == [1]


def test_colour_assists_and_never_leads():
    views = {"shape": block_graph(0.3), "colour": block_graph(0.0, seed=7)}
    assert fuse_views(views, 3).trust == {"shape": 1.0, "colour": MOST_COLOUR}
    assert fuse_views({"colour": views["colour"]}, 3).trust == {"colour": 1.0}
