"""From graph to labels: cuts against slow versions, components, counts, and single images."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.cluster.hierarchy import linkage
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from tubal import clustering
from tubal.clustering import affinity, cuts, large, quality, spectral
from tubal.clustering.affinity import crowding_groups, lists_of_groups, near_copies
from tubal.clustering.cuts import cheapest_links, join_components, warn_if_lopsided
from tubal.clustering.quality import OUTLIER_CUTOFF
from tubal.clustering.spectral import _DENSE_LIMIT, lloyd, ward_kmeans
from tubal.graph import knn_graph
from tubal.metrics import clustering_accuracy


def planted(rng, sizes, inside=0.5, outside=0.01):
    """Return a random graph whose groups are denser inside than between them, and the groups."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    chance = np.where(labels[:, None] == labels, inside, outside)
    upper = np.triu(rng.random(chance.shape) < chance, k=1)
    return sparse.csr_matrix((upper | upper.T).astype(float)), labels


def blocks(*sizes):
    return sparse.block_diag([np.ones((size, size)) - np.eye(size) for size in sizes], format="csr")


# --- eigenvectors ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("n_images", [60, _DENSE_LIMIT + 100])
def test_spectrum_agrees_with_a_dense_eigensolver(rng, n_images):
    adjacency, _ = planted(rng, [n_images // 3] * 3, inside=0.3, outside=0.02)
    found = clustering.spectrum(adjacency, 5)
    degrees = (
        adjacency.sum(axis=1).A1 if hasattr(adjacency.sum(axis=1), "A1") else np.asarray(adjacency.sum(axis=1)).ravel()
    )
    root = np.sqrt(degrees)
    dense = adjacency.toarray() / np.outer(root, root)
    expected = np.linalg.eigvalsh(dense)[::-1][:5]
    assert_allclose(found.values, expected, atol=1e-4)
    assert_allclose(dense @ found.vectors, found.vectors * found.values, atol=2e-3)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(5), atol=1e-4)


def test_blocks_of_vectors_find_the_same_spectrum(rng, monkeypatch):
    adjacency, _ = planted(rng, [300] * 4, inside=0.1, outside=0.01)
    expected = clustering.spectrum(adjacency, 12)
    monkeypatch.setattr(spectral, "_BLOCK_FROM", 1000)
    found = clustering.spectrum(adjacency, 12)
    assert_allclose(found.values[:4], expected.values[:4], atol=1e-4)
    assert_allclose(found.values, expected.values, atol=1e-2)
    # The first four belong to the groups; the others are nearly equal and may be mixed.
    overlap = np.linalg.svd(found.vectors[:, :4].T @ expected.vectors[:, :4])[1]
    assert_allclose(overlap, 1.0, atol=1e-4)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(12), atol=1e-4)


def test_blocks_of_vectors_find_repeated_eigenvalues(monkeypatch):
    monkeypatch.setattr(spectral, "_BLOCK_FROM", 1000)
    found = clustering.spectrum(blocks(*[300] * 4), 6)
    assert_allclose(found.values, [1.0] * 4 + [-1 / 299] * 2, atol=1e-5)


def test_blocks_of_tensors_find_the_same_spectrum(rng, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(spectral, "_BLOCK_FROM", 1000)
    adjacency, _ = planted(rng, [300] * 4, inside=0.1, outside=0.01)
    expected = clustering.spectrum(adjacency, 12)
    found = clustering.spectrum(adjacency, 12, like=torch.empty(0))
    assert_allclose(found.values[:4], expected.values[:4], atol=1e-4)
    assert_allclose(found.values, expected.values, atol=1e-2)
    assert_allclose(found.vectors[:, :4], expected.vectors[:, :4], atol=2e-3)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(12), atol=1e-4)
    # One set of eigenvectors, as an array and as a tensor.
    same = clustering.Spectrum(found.values, found.vectors.numpy().astype(np.float64))
    cut, wanted = (clustering.diffusion_cut(adjacency, 4, eigenpairs=pairs) for pairs in (found, same))
    assert_array_equal(cut, wanted)
    assert_array_equal(*(clustering.stability(pairs, cut) for pairs in (found, same)))


@pytest.mark.parametrize("size", [8, 300])
def test_eigenvalue_one_occurs_once_per_component(size):
    found = clustering.spectrum(blocks(*[size] * 4), 6)
    assert_array_equal(found.values[:4], 1.0)
    assert found.values[4] < 0.9


@pytest.mark.parametrize("size", [13, 18, 23, 26, 28, 31])
def test_spectrum_of_a_complete_graph_is_correct(size):
    """All eigenvalues but one are equal: LAPACK may find too few eigenvectors, or fail."""
    adjacency = blocks(size)
    dense = adjacency.toarray() / (size - 1)
    for n_vectors in (2, size // 2 + 1, size):
        found = clustering.spectrum(adjacency, n_vectors)
        assert_allclose(found.values, [1.0] + [-1 / (size - 1)] * (n_vectors - 1), atol=1e-12)
        assert_allclose(dense @ found.vectors, found.vectors * found.values, atol=1e-12)
        assert_allclose(found.vectors.T @ found.vectors, np.eye(n_vectors), atol=1e-12)


def test_isolated_images_are_components():
    adjacency = sparse.csr_matrix((3, 3))
    assert_array_equal(clustering.spectrum(adjacency, 3).values, 1.0)


def test_components_are_numbered_by_first_appearance(rng):
    adjacency, order = blocks(5, 1, 3, 8), rng.permutation(17)
    found = spectral.components_of(sparse.csr_matrix(adjacency[order][:, order]))
    _, wanted = connected_components(adjacency[order][:, order], directed=False)
    assert_array_equal(found, wanted)


@pytest.mark.parametrize("edges_per_image", [0.5, 1.5, 3.0, 4.0, 6.0, 20.0])
def test_components_are_those_of_scipy(rng, edges_per_image):
    ends = rng.integers(500, size=(2, int(250 * edges_per_image)))
    edges = sparse.csr_matrix((np.ones(ends.shape[1]), ends), shape=(500, 500))
    _, wanted = connected_components(edges, directed=False)
    assert_array_equal(spectral.components_of(edges + edges.T), wanted)


def test_components_follow_edges_beyond_the_first(rng):
    """Nodes of ten hubs know each other first; only their last edges lead to the rest."""
    adjacency = blocks(*[4] * 10, 500).tolil()
    adjacency[np.arange(0, 40, 4), 500] = adjacency[500, np.arange(0, 40, 4)] = 1.0
    assert_array_equal(spectral.components_of(sparse.csr_matrix(adjacency)), 0)


# --- cuts ------------------------------------------------------------------------------------------------
def slow_normalised_cut(adjacency, labels):
    dense = adjacency.toarray()
    total = 0.0
    for cluster in np.unique(labels):
        inside = labels == cluster
        total += dense[np.ix_(inside, ~inside)].sum() / dense[inside].sum()
    return total


def test_spectral_cut_is_the_best_bipartition():
    rng = np.random.default_rng(3)
    adjacency, _ = planted(rng, [5, 6], inside=0.9, outside=0.1)
    every = (np.array((0, *rest)) for rest in itertools.product((0, 1), repeat=10))
    best = min(slow_normalised_cut(adjacency, labels) for labels in every if labels.any())
    found = clustering.spectral_cut(adjacency, 2)
    assert slow_normalised_cut(adjacency, found) == pytest.approx(best)


@pytest.mark.parametrize("cut", [clustering.spectral_cut, clustering.diffusion_cut])
def test_cuts_recover_planted_groups(rng, cut):
    adjacency, labels = planted(rng, [40, 25, 30, 35])
    assert clustering_accuracy(labels, cut(adjacency, 4)) > 0.98


@pytest.mark.parametrize("cut", [clustering.spectral_cut, clustering.diffusion_cut])
def test_cuts_are_deterministic_and_ordered_by_size(rng, cut):
    adjacency, _ = planted(rng, [40, 25, 30], outside=0.05)
    first = cut(adjacency, 3, seed=7)
    assert_array_equal(first, cut(adjacency, 3, seed=7))
    assert (np.diff(np.bincount(first)) <= 0).all()


def test_cut_does_not_depend_on_the_order(rng):
    adjacency, labels = planted(rng, [30, 20, 25])
    order = rng.permutation(len(labels))
    found = clustering.diffusion_cut(adjacency[order][:, order], 3)
    assert clustering_accuracy(clustering.diffusion_cut(adjacency, 3)[order], found) == 1.0


def test_diffusion_cut_keeps_large_groups_apart(rng):
    # Two large groups with some edges between them, and a small group joined to the first by one edge.
    adjacency, labels = planted(rng, [150, 150, 12], inside=0.4, outside=0.0)
    adjacency = adjacency.tolil()
    for _ in range(400):
        i, j = rng.integers(0, 150), rng.integers(150, 300)
        adjacency[i, j] = adjacency[j, i] = 1.0
    adjacency[0, 300] = adjacency[300, 0] = 1.0
    adjacency = adjacency.tocsr()
    found = clustering.diffusion_cut(adjacency, 2)
    assert clustering_accuracy(np.minimum(labels, 2) % 2, found) > 0.95
    assert clustering_accuracy(np.minimum(labels, 2) % 2, clustering.spectral_cut(adjacency, 2)) < 0.7


def test_diffusion_cut_rejects_worse_proposals(rng):
    adjacency, labels = planted(rng, [30, 30, 30], inside=0.3, outside=0.05)
    nonsense = rng.integers(0, 3, 90)
    found = clustering.diffusion_cut(adjacency, 3, proposals=[nonsense])
    assert_array_equal(found, clustering.diffusion_cut(adjacency, 3))
    score = clustering.modularity(adjacency, found, resolution=2.0)
    assert (
        clustering.modularity(adjacency, clustering.diffusion_cut(adjacency, 3, proposals=[labels]), resolution=2.0)
        >= score
    )


@pytest.mark.parametrize("n_clusters", [1, 2, 7, 40])
def test_lloyd_equals_scikit_learn(rng, n_clusters):
    points = 3.0 + rng.normal(size=(1500, 4)) * rng.integers(1, 4, (1500, 1))
    start = points[:n_clusters] + 0.1
    start[-1] += 100.0 * (n_clusters == 40)  # a cluster that is empty at first
    model = KMeans(n_clusters, init=start, n_init=1, max_iter=100, tol=0.0).fit(points)
    assert_array_equal(lloyd(points, start), model.labels_)
    torch = pytest.importorskip("torch")
    assert_array_equal(lloyd(torch.as_tensor(points), torch.as_tensor(start)), model.labels_)


@pytest.mark.parametrize("n_points", [200, 2600])
def test_ward_kmeans_recovers_separated_points(rng, n_points):
    centres = 10.0 * np.eye(4)
    truth = rng.integers(0, 4, n_points)
    points = centres[truth] + rng.normal(size=(n_points, 4))
    assert clustering_accuracy(truth, ward_kmeans(points, 4, seed=0)) == 1.0


@pytest.mark.parametrize("n_clusters", [0, -1, 9])
def test_impossible_number_of_clusters_raises(n_clusters):
    with pytest.raises(ValueError, match="n_clusters"):
        clustering.spectral_cut(blocks(4, 4), n_clusters)


# --- components ------------------------------------------------------------------------------------------
def test_cheapest_links_join_components():
    features = np.array([0.0, 0.1, 1.0, 1.1, 5.0, 5.1, 5.9, 6.0])[:, None]
    found = clustering.spectral_cut(blocks(2, 2, 2, 2), 2, features=features)
    assert_array_equal(found, [0, 0, 0, 0, 1, 1, 1, 1])
    found = clustering.diffusion_cut(blocks(2, 2, 2, 2), 3, features=features)
    assert_array_equal(found[4:], found[4])
    assert len(set(found[:4])) == 2


def test_cheapest_links_match_all_pairs(rng):
    features, component = rng.normal(size=(50, 3)), rng.integers(0, 4, 50)
    links = cheapest_links(features, component)
    for a, b in itertools.combinations(range(4), 2):
        gaps = np.linalg.norm(features[component == a][:, None] - features[component == b], axis=-1)
        assert links[a, b] == pytest.approx(gaps.min())


def test_mean_links_do_not_chain():
    # Twelve points in a row, slightly closer at one end: cheapest links join them one by one.
    positions = np.cumsum(np.linspace(1.0, 1.2, 12))
    links = np.abs(positions[:, None] - positions)
    sizes = {
        way: np.bincount(join_components(np.arange(12), 2, links=links, method=way)) for way in ("single", "average")
    }
    assert sizes["single"].max() == 11
    assert sizes["average"].max() <= 8


def test_joining_components_without_features_raises():
    with pytest.raises(ValueError, match="3 separate parts but 2 clusters"):
        clustering.spectral_cut(blocks(3, 3, 3), 2)


# --- copies ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_near_copies_are_found_by_a_jump(rng, metric):
    points = np.repeat(rng.normal(size=(30, 20)), 4, axis=0) + 0.05 * rng.normal(size=(120, 20))
    assert_array_equal(near_copies(knn_graph(points, 8, metric=metric)), np.repeat(np.arange(30), 4))


def test_ordinary_points_have_no_copies(rng):
    group = near_copies(knn_graph(rng.normal(size=(300, 20)), 10))
    assert len(np.unique(group)) > 290
    assert_array_equal(crowding_groups(group, 5), np.arange(300))


def test_groups_are_as_far_apart_as_their_nearest_images(rng):
    # Given lists with open ends, and groups of one to three images
    neighbors = np.array([rng.permutation(np.delete(np.arange(40), row))[:6] for row in range(40)])
    distances = np.sort(rng.random((40, 6)), axis=1)
    neighbors[rng.random(40) < 0.3, 4:] = -1
    group = np.unique(rng.integers(30, size=40), return_inverse=True)[1]
    # When the lists of groups are made, then they are those of a search through all pairs
    others, lengths = lists_of_groups(neighbors, distances, group)
    for own in range(len(others)):
        gaps = {}
        for row, slot in itertools.product(np.flatnonzero(group == own), range(6)):
            other = group[neighbors[row, slot]]
            if neighbors[row, slot] >= 0 and other != own:
                gaps[other] = min(gaps.get(other, np.inf), distances[row, slot])
        expected = sorted(gaps, key=gaps.get)[:6]
        assert_array_equal(others[own], expected + [-1] * (6 - len(expected)))
        assert_array_equal(lengths[own, : len(expected)], [gaps[other] for other in expected])
        assert np.isinf(lengths[own, len(expected) :]).all()


def test_lopsided_partition_is_announced(rng):
    adjacency, halves = planted(rng, [60, 60], outside=0.02)
    features = halves[:, None] + 0.1 * rng.normal(size=(120, 3))
    lopsided = (np.arange(120) < 3).astype(int)
    with pytest.warns(ConvergenceWarning, match="one cluster holds 98 % of the images"):
        warn_if_lopsided(lopsided, adjacency, features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_lopsided(halves, adjacency, features)
        # The graph has one large group and one small one: a lopsided partition is right.
        adjacency, uneven = planted(rng, [114, 6], outside=0.001)
        warn_if_lopsided(uneven, adjacency, features)


# --- weights ---------------------------------------------------------------------------------------------
def test_mutual_edges_have_twice_the_weight():
    weights = clustering.mutual_adjacency(np.array([[1, 2], [0, -1], [1, -1]]))
    expected = [[0.0, 1.0, 0.5], [1.0, 0.0, 0.5], [0.5, 0.5, 0.0]]
    assert_array_equal(weights.toarray(), expected)


def test_second_order_weights_count_paths(rng):
    adjacency, _ = planted(rng, [8, 8])
    dense = adjacency.toarray()
    expected = dense + dense @ dense
    np.fill_diagonal(expected, 0.0)
    assert_allclose(clustering.with_second_order(adjacency).toarray(), expected)
    assert_allclose(clustering.with_second_order(3.0 * adjacency).toarray(), expected)


def test_edges_are_weighted_by_cosine(rng):
    adjacency, _ = planted(rng, [6, 6], inside=0.9)
    features = rng.normal(size=(12, 4))
    found = clustering.weight_edges_by_codes(adjacency, features, power=3).tocoo()
    for i, j, weight in zip(found.row, found.col, found.data, strict=True):
        cosine = features[i] @ features[j] / np.linalg.norm(features[i]) / np.linalg.norm(features[j])
        assert weight == pytest.approx(max(max(cosine, 0.0) ** 3, 1e-3))
    assert found.nnz == adjacency.nnz


# --- numbers of clusters ---------------------------------------------------------------------------------
@pytest.mark.parametrize("sizes", [[20] * 3, [30, 20, 25, 15, 22], [15] * 9])
def test_estimate_finds_the_planted_groups(rng, sizes):
    adjacency, _ = planted(rng, sizes, inside=0.6, outside=0.01)
    found = clustering.estimate_n_clusters(adjacency)
    assert found.n_clusters == len(sizes)
    assert found.n_clusters == found.candidates[0] == found.numbers[found.gap.argmax()]
    assert len(found.numbers) == len(found.gap)
    assert len(found.candidates) <= 3


def test_gaps_follow_their_definition(rng):
    values = np.sort(rng.random(12))[::-1]
    costs = np.log(1.0 - values + 0.01)
    found = spectral._relative_gaps(values, np.arange(2, 10), 0.2)
    for number, gap in zip(range(2, 10), found, strict=True):
        width = max(1, round(0.2 * number))
        before, after = range(number - width, number), range(number, number + width)
        growth = costs[list(after)].mean() - costs[list(before)].mean()
        assert gap == pytest.approx(growth / np.log((np.mean(after) + 1) / (np.mean(before) + 1)))


def test_costs_that_grow_like_a_power_have_equal_gaps():
    costs = 0.001 * np.arange(1, 61) ** 1.5
    found = spectral._relative_gaps(1.0 - (costs - 0.01), np.arange(21, 50), 0.0)
    assert_allclose(found, 1.5, atol=1e-9)


def test_many_components_give_the_largest_number(rng):
    blocks = sparse.block_diag([np.ones((2, 2)) - np.eye(2)] * 30, format="csr")
    assert clustering.estimate_n_clusters(blocks, max_clusters=12).n_clusters == 12


def test_known_eigenpairs_are_not_computed_again(rng, monkeypatch):
    adjacency, _ = planted(rng, [20] * 3, inside=0.6, outside=0.01)
    found = clustering.estimate_n_clusters(adjacency)
    expected = clustering.diffusion_cut(adjacency, 3)
    monkeypatch.setattr(cuts, "spectrum", None)
    assert_array_equal(clustering.diffusion_cut(adjacency, 3, eigenpairs=found.eigenpairs), expected)


def test_description_length_follows_its_definition(rng):
    adjacency, labels = planted(rng, [9, 6, 5], inside=0.6, outside=0.1)
    dense, n_images, length = adjacency.toarray(), len(labels), 0.0
    total, inside = dense.sum(), dense[labels[:, None] == labels].sum()
    for cluster in range(3):
        members = labels == cluster
        degrees, within = dense[members].sum(), dense[members][:, members].sum()
        length += within * np.log(degrees) + (degrees - within) * np.log(total - degrees)
        length -= np.log(np.arange(1, members.sum() + 1)).sum()
    length += np.log(np.arange(1, n_images + 1)).sum() + np.log(n_images) + np.log((n_images - 1) * (n_images - 2) / 2)
    length += np.log(total + 1) + np.log(np.arange(inside + 1, total + 1)).sum()
    length -= np.log(np.arange(1, total - inside + 1)).sum()
    assert quality.description_length(adjacency, labels) == pytest.approx(length)


@pytest.mark.parametrize("sizes", [[60, 20], [15] * 8, [12] * 30])
def test_planted_groups_have_the_shortest_description(rng, sizes):
    adjacency, _ = planted(rng, sizes, inside=0.6, outside=0.005)
    pairs = clustering.spectrum(adjacency, 70)
    found = quality.shortest_description(adjacency, pairs, 60)
    assert abs(found - len(sizes)) <= 0.1 * len(sizes)


def test_shortest_description_is_named_second(rng):
    adjacency, _ = planted(rng, [20] * 4, inside=0.6, outside=0.01)
    found = clustering.estimate_n_clusters(adjacency)
    assert found.naming(11).candidates[:2].tolist() == [4, 11]
    agreed = found.naming(5).candidates
    assert agreed[0] == 4
    assert 5 not in agreed
    assert found.naming(11).n_clusters == 4


def test_graph_without_edges_is_one_cluster():
    assert clustering.estimate_n_clusters(sparse.csr_matrix((5, 5))).n_clusters == 1


def test_ranges_of_rows_give_the_result_of_the_whole(rng, monkeypatch):
    adjacency, labels = planted(rng, [40, 30, 30])
    whole, shares = clustering.with_second_order(adjacency), cuts.cluster_shares(adjacency, labels)
    monkeypatch.setattr(affinity, "_ROWS_AT_A_TIME", 7)
    monkeypatch.setattr(cuts, "_ROWS_AT_A_TIME", 7)
    assert_allclose(clustering.with_second_order(adjacency).toarray(), whole.toarray())
    assert_allclose(cuts.cluster_shares(adjacency, labels), shares)


def test_centres_of_many_points_come_from_a_sample(rng, monkeypatch):
    truth = np.repeat(np.arange(4), 100)
    points = 5.0 * np.eye(4)[truth] + rng.normal(size=(400, 4))
    whole = ward_kmeans(points, 4, seed=0)
    monkeypatch.setattr(spectral, "SAMPLED_FROM", 300)
    assert clustering_accuracy(whole, ward_kmeans(points, 4, seed=0)) > 0.99


def test_tree_of_a_sample_is_that_of_scipy(rng):
    points = rng.normal(size=(60, 3))
    tree, expected = spectral.ward_tree(points, of_many=True), linkage(points, method="ward")
    for n_merges in (10, 50, 57, 59):
        found = spectral.groups_after_merges(tree[:n_merges], 60)
        assert_array_equal(found, spectral.groups_after_merges(expected[:n_merges], 60))


def test_cut_of_many_images_has_the_largest_modularity_of_all_samples(rng, monkeypatch):
    adjacency, _ = planted(rng, [300, 150, 150, 150, 60], inside=0.09, outside=0.015)
    for module in (spectral, cuts):
        monkeypatch.setattr(module, "SAMPLED_FROM", 400)
    pairs = spectral.spectrum(adjacency, 15)
    candidates = [
        ward_kmeans(cuts.diffusion_coordinates(pairs, 5, time), 5, sample)
        for sample in (0, 1, 2)
        for time in (0.5, 1.0, 2.0)
    ]
    found = cuts.diffusion_cut(adjacency, 5, eigenpairs=pairs, seed=0)
    values = [cuts.modularity(adjacency, labels) for labels in candidates]
    best = candidates[int(np.argmax(values))]
    assert_array_equal(found, cuts.order_by_size(large.refine_partition(adjacency, best)))
    assert cuts.modularity(adjacency, found) >= max(values) > min(values)


def test_cut_of_many_images_hardly_depends_on_the_seed(rng, monkeypatch):
    adjacency, truth = planted(rng, [300, 150, 150, 150, 60], inside=0.09, outside=0.015)
    for module in (spectral, cuts):
        monkeypatch.setattr(module, "SAMPLED_FROM", 400)
    found = [cuts.diffusion_cut(adjacency, 5, seed=seed) for seed in range(0, 12, 3)]
    assert min(clustering_accuracy(found[0], other) for other in found) > 0.95
    assert clustering_accuracy(truth, found[0]) > 0.8


def test_candidates_found_on_several_threads_keep_their_order(monkeypatch):
    monkeypatch.setattr(cuts, "own_threads", lambda: contextlib.nullcontext(3))
    sources = [np.full(4, number) if number % 2 else partial(np.full, 4, number) for number in range(7)]
    assert_array_equal(cuts._find_candidates(sources, 4, None), np.repeat(np.arange(7), 4).reshape(7, 4))


def test_weights_between_clusters_are_sums_over_edges(rng):
    adjacency, _ = planted(rng, [40, 30], outside=0.2)
    labels = rng.choice([0, 1, 3], 70)
    member = np.eye(4)[labels]
    assert_allclose(cuts.shared_weights(adjacency, labels), member.T @ adjacency.toarray() @ member)
    merged = cuts.merge_clusters(adjacency, labels, 2)
    assert_array_equal(np.unique(merged), [0, 1])


def test_modularity_follows_its_definition(rng):
    adjacency, _ = planted(rng, [9, 7], outside=0.2)
    labels = rng.integers(0, 2, 16)
    dense, degrees = adjacency.toarray(), adjacency.toarray().sum(axis=1)
    same = labels[:, None] == labels
    expected = ((dense - np.outer(degrees, degrees) / degrees.sum()) * same).sum() / degrees.sum()
    assert clustering.modularity(adjacency, labels) == pytest.approx(expected)


# --- single images ---------------------------------------------------------------------------------------
def test_confidence_is_lower_for_images_between_clusters(rng):
    adjacency, labels = planted(rng, [20, 20], outside=0.0)
    adjacency = adjacency.tolil()
    adjacency[0, 20:30] = 1.0
    adjacency[20:30, 0] = 1.0
    sure = clustering.confidence(adjacency.tocsr(), labels)
    assert sure[0] == sure.min()
    assert_array_equal(sure[1:20], 1.0)


def test_stability_is_lower_for_a_group_joined_to_a_wrong_cluster(rng):
    adjacency, groups = planted(rng, [30, 30, 30, 12], inside=0.5, outside=0.005)
    joined = np.where(groups == 3, 0, groups)
    sure = clustering.stability(clustering.spectrum(adjacency, 9), joined)
    assert sure[groups != 3].mean() > 0.8 > 0.7 > sure[groups == 3].max()
    # All edges of the group are inside the wrong cluster, or nearly all.
    assert clustering.confidence(adjacency, joined)[groups == 3].mean() > 0.8


@pytest.mark.parametrize("n_images", [1, 2, 3, 4, 7])
def test_stability_of_tiny_graphs_is_a_share(n_images):
    adjacency = sparse.csr_matrix(np.ones((n_images, n_images)))
    labels = np.arange(n_images) % 2
    sure = clustering.stability(clustering.spectrum(adjacency, max(1, n_images // 2)), labels)
    assert sure.shape == (n_images,)
    assert ((sure >= 0.0) & (sure <= 1.0)).all()


def test_stability_is_found_on_a_sample(rng, monkeypatch):
    monkeypatch.setattr(quality, "_TREE_SAMPLE", 60)
    adjacency, labels = planted(rng, [40, 40, 40], inside=0.5, outside=0.005)
    assert clustering.stability(clustering.spectrum(adjacency, 9), labels).mean() > 0.75


def test_only_far_images_are_outliers(rng):
    distances = rng.uniform(0.9, 1.1, size=(50, 5))
    assert not (clustering.neighbor_outlier_scores(distances) > OUTLIER_CUTOFF).any()
    distances[7] *= 8.0
    distances[8] /= 8.0
    assert_array_equal(np.flatnonzero(clustering.neighbor_outlier_scores(distances) > OUTLIER_CUTOFF), [7])


@pytest.mark.parametrize("channels", [(), (3,)])
def test_a_group_of_strangers_comes_first(rng, channels):
    """Strangers that are alike are near to each other, and still unlike the collection."""
    images = rng.random((200, 20, 20, *channels))
    images[:12, 5:15, 5:15] = 0.9
    images[:12, :5] = 0.1
    scores = clustering.stranger_scores(images)
    assert_array_equal(np.sort(np.argsort(-scores)[:12]), np.arange(12))
    torch = pytest.importorskip("torch")
    assert_allclose(clustering.stranger_scores(torch.as_tensor(images)), scores, rtol=1e-3, atol=1e-2)


def test_histograms_are_those_of_numpy(rng):
    images = rng.random((5, 9, 7, 2))
    low, high = images.min(), images.max()
    found = quality.appearance(images) ** 2
    for image, row in zip(images, found, strict=True):
        for channel in range(2):
            expected = np.histogram(image[..., channel], 8, (low, high))[0] / 63
            assert_allclose(row[8 * channel : 8 * channel + 8], expected, atol=1e-12)
    assert_allclose(found[:, 16:].sum(axis=1), 2.0)


@pytest.mark.parametrize("n_images", [2, 7, 9])
def test_strangers_of_tiny_or_equal_collections_have_finite_scores(n_images):
    for images in (np.zeros((n_images, 4, 4)), np.zeros((n_images, 1, 5)), np.eye(n_images)):
        assert np.isfinite(clustering.stranger_scores(images)).all()


def test_near_duplicates_are_transitive():
    neighbors = np.array([[1, 2], [0, 2], [1, 3], [4, 2], [3, 5], [4, 3]])
    distances = np.array([[0.01, 1.0], [0.01, 0.02], [0.02, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    groups = clustering.near_duplicates(neighbors, distances)
    assert len(groups) == 1
    assert_array_equal(groups[0], [0, 1, 2])


def test_near_duplicates_do_not_chain():
    n_images, far = 30, 60
    places = np.concatenate([0.06 * np.arange(n_images), 10.0 + np.arange(far)])
    gaps = np.abs(places[:, None] - places)
    np.fill_diagonal(gaps, np.inf)
    neighbors = np.argsort(gaps, axis=1)[:, :4]
    groups = clustering.near_duplicates(neighbors, np.take_along_axis(gaps, neighbors, axis=1))
    assert sum(map(len, groups)) >= 20
    assert max(map(len, groups)) == 3
    assert all(np.abs(places[group] - np.median(places[group])).max() <= 0.1 for group in groups)


def test_many_copies_are_one_group():
    neighbors = np.stack([(np.arange(40) + 1) % 40, (np.arange(40) - 1) % 40], axis=1)
    groups = clustering.near_duplicates(neighbors, np.zeros((40, 2)))
    assert_array_equal(groups[0], np.arange(40))


def test_medoids_have_the_largest_mean_cosine(rng):
    labels = np.repeat([0, 1], 15)
    features = np.repeat(rng.normal(size=(2, 6)), 15, axis=0) + 0.3 * rng.normal(size=(30, 6))
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    for cluster, found in enumerate(clustering.medoids(features, labels)):
        members = np.flatnonzero(labels == cluster)
        mean_cosine = (unit[members] @ unit[members].T).mean(axis=1)
        assert found == members[mean_cosine.argmax()]


def test_votes_are_weighted():
    labels, neighbors = np.array([0, 1, 1]), np.array([[0, 1, -1], [0, 1, 2]])
    shares = clustering.vote(neighbors, np.ones((2, 3)), labels, trust=np.array([1.0, 0.5, 0.5]))
    assert_allclose(shares, [[2 / 3, 1 / 3], [0.5, 0.5]], atol=1e-5)


# --- the map ---------------------------------------------------------------------------------------------
def test_map_separates_groups(rng):
    adjacency, labels = planted(rng, [40, 40, 40], inside=0.3, outside=0.0)
    points = clustering.graph_map(adjacency, seed=3)
    assert points.shape == (120, 2)
    assert np.isfinite(points).all()
    assert_array_equal(points, clustering.graph_map(adjacency, seed=3))
    gaps = np.linalg.norm(points[:, None] - points, axis=-1)
    np.fill_diagonal(gaps, np.inf)
    assert (labels[gaps.argmin(axis=1)] == labels).mean() > 0.97


@pytest.mark.parametrize("n_images", [1, 2, 5])
def test_map_of_isolated_images_is_finite(n_images):
    points = clustering.graph_map(sparse.csr_matrix((n_images, n_images)))
    assert points.shape == (n_images, 2)
    assert np.isfinite(points).all()
