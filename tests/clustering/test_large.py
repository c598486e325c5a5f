"""Large graphs: products of tall matrices; graphs of groups, their eigenvectors and cuts; the refinement of labels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from tubal import clustering
from tubal.backends.arrays import to_numpy
from tubal.clustering import cuts, large, spectral
from tubal.clustering.affinity import with_second_order, with_short_paths
from tubal.metrics import clustering_accuracy


def random_graph(rng, n_nodes, chance):
    """Return a symmetric graph with random weights, and nothing on its diagonal."""
    upper = np.triu((rng.random((n_nodes, n_nodes)) < chance) * rng.random((n_nodes, n_nodes)), k=1)
    return sparse.csr_matrix(upper + upper.T)


def versions_of_pictures(rng, n_clusters=4, n_pictures=75, n_versions=8, n_separate=40):
    """Return a graph of versions of pictures, of which some have hardly an edge to other pictures, and clusters."""
    n_all = n_clusters * n_pictures
    picture = np.repeat(np.arange(n_all), n_versions)
    cluster = picture % n_clusters
    same = picture[:, None] == picture
    chance = np.where(cluster[:, None] == cluster, 0.02, 0.002)
    is_separate = rng.permutation(n_all)[picture] < n_separate
    chance = np.where(is_separate[:, None] | is_separate, 0.0, chance)
    upper = np.triu(rng.random(chance.shape) < chance, k=1)
    # One weak edge joins each separate picture to an image of its cluster.
    for number in np.unique(picture[is_separate]):
        own = np.flatnonzero(picture == number)[0]
        other = rng.choice(np.flatnonzero((cluster == cluster[own]) & ~is_separate))
        upper[min(own, other), max(own, other)] = 0.1
    adjacency = (upper + upper.T) * 1.0
    adjacency[same] = 1.0
    np.fill_diagonal(adjacency, 0.0)
    return sparse.csr_matrix(adjacency), cluster


def best_single_move(adjacency, labels):
    """Return the largest modularity that moving one node can reach, tried one after the other."""
    found = -np.inf
    for node in range(len(labels)):
        for cluster in range(labels.max() + 1):
            moved = labels.copy()
            moved[node] = cluster
            if len(np.unique(moved)) == labels.max() + 1:
                found = max(found, cuts.modularity(adjacency, moved))
    return found


# --- levels ----------------------------------------------------------------------------------------------
def test_every_level_has_the_weights_of_the_images(rng):
    adjacency = random_graph(rng, 300, 0.02)
    levels = large.Levels.of(adjacency, most=10)
    assert len(levels.groups) > 1
    place = np.arange(300)
    for graph, group in zip(levels.graphs[1:], levels.groups, strict=True):
        place = group[place]
        assert_allclose(graph.toarray(), cuts.shared_weights(adjacency, place))
    assert_array_equal(levels.largest_groups, place)
    assert_array_equal(levels.coarsest.diagonal(), 0.0)


def test_an_image_is_in_one_group_with_its_strongest_neighbor(rng):
    adjacency = random_graph(rng, 200, 0.03)
    group = large.Levels.of(adjacency, most=199).groups[0]
    degrees = adjacency.toarray().sum(axis=1)
    relative = adjacency.toarray() / np.where(degrees > 0.0, degrees, 1.0)
    joined = np.flatnonzero(degrees > 0.0)
    assert_array_equal(group[relative[joined].argmax(axis=1)], group[joined])


def test_there_are_no_levels_without_edges_or_with_too_few_groups(rng):
    assert large.Levels.of(sparse.csr_matrix((50, 50)), most=10).groups == ()
    assert large.Levels.of(random_graph(rng, 60, 0.2), least=50, most=10).groups == ()


def test_a_large_graph_has_no_paths_of_length_two(rng, monkeypatch):
    adjacency = random_graph(rng, 40, 0.1)
    assert_array_equal(with_short_paths(adjacency).toarray(), with_second_order(adjacency).toarray())
    monkeypatch.setattr("tubal.clustering.affinity.LEVELS_FROM", 30)
    assert_array_equal(with_short_paths(adjacency).toarray(), adjacency.toarray())


# --- eigenvectors of groups --------------------------------------------------------------------------------
def test_eigenvectors_of_groups_are_orthonormal_and_know_components(rng, monkeypatch):
    parts = [random_graph(rng, size, 0.1) for size in (150, 90)]
    adjacency = sparse.block_diag([*parts, np.zeros((1, 1))], format="csr")
    monkeypatch.setattr(spectral, "LEVELS_FROM", 200)
    monkeypatch.setattr(large, "MOST_GROUPS", 100)
    monkeypatch.setattr(spectral, "GROUPS_PER_CLUSTER", 1)
    found = clustering.spectrum(adjacency, 6)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(6), atol=1e-5)
    n_components = spectral.components_of(adjacency).max() + 1
    assert n_components >= 3
    assert_allclose(found.values[:n_components], 1.0)
    assert found.values[n_components] < 0.999
    assert (found.vectors[:150, 0] > 0.0).all()
    assert_allclose(found.vectors[150:, 0], 0.0, atol=1e-6)


def test_small_separate_groups_do_not_hide_the_clusters_of_a_large_graph(rng, monkeypatch):
    # Given versions of pictures, many of which have hardly an edge to other pictures
    adjacency, truth = versions_of_pictures(rng)
    n_images = adjacency.shape[0]
    # Then the leading eigenvectors are those of single pictures
    vectors = clustering.spectrum(adjacency, 12).vectors
    assert np.median(1.0 / (vectors**4).sum(axis=0)) < 40
    # When the graph is cut by levels, the clusters are found
    monkeypatch.setattr(cuts, "LEVELS_FROM", n_images - 1)
    monkeypatch.setattr(large, "MOST_GROUPS", 350)
    by_levels = cuts.diffusion_cut(adjacency, 4, seed=0)
    assert clustering_accuracy(truth, by_levels) > 0.99


# --- refinement ------------------------------------------------------------------------------------------
def test_no_single_move_improves_refined_labels(rng):
    adjacency, labels = random_graph(rng, 60, 0.15), rng.integers(4, size=60)
    refined = large.refine_partition(adjacency, labels)
    value = cuts.modularity(adjacency, refined)
    assert value > cuts.modularity(adjacency, labels)
    assert best_single_move(adjacency, refined) <= value + 1e-9


def test_weight_inside_a_group_does_not_hold_it_in_its_cluster():
    # The third node has nearly all of its weight on itself; its only edge leads to the second cluster.
    adjacency = np.array([[0, 5, 0, 0], [5, 0, 0, 0], [0, 0, 90, 4], [0, 0, 4, 0]], dtype=float)
    labels = large.refine_partition(sparse.csr_matrix(adjacency), np.array([0, 0, 0, 1]))
    assert labels[2] == labels[3]


@pytest.mark.parametrize("n_clusters", [2, 7])
def test_refinement_keeps_all_clusters(rng, n_clusters):
    labels = np.arange(30) % n_clusters
    refined = large.refine_partition(random_graph(rng, 30, 0.3), labels)
    assert_array_equal(np.unique(refined), np.arange(n_clusters))


def moved_one_after_the_other(adjacency, labels, n_passes):
    """Move nodes as :func:`large.refine_partition` says, with all weights added up for every node again."""
    weights, labels = adjacency.toarray(), labels.copy()
    np.fill_diagonal(weights, 0.0)
    degrees = np.asarray(adjacency.sum(axis=1)).ravel()
    clusters = np.arange(labels.max() + 1)
    for _ in range(n_passes):
        before = labels.copy()
        for node, own in enumerate(labels):
            if (labels == own).sum() == 1:
                continue
            others = np.arange(len(labels)) != node
            volumes = np.array([degrees[others & (labels == cluster)].sum() for cluster in clusters])
            shared = np.array([weights[node, labels == cluster].sum() for cluster in clusters])
            gains = shared - degrees[node] / degrees.sum() * volumes
            if gains.max() > gains[own] + 1e-9 * degrees[node]:
                labels[node] = gains.argmax()
        if (labels != before).sum() <= 1e-4 * len(labels):
            break
    return labels


@pytest.mark.parametrize(("shared", "rows"), [(2**20, 512), (1, 512), (1, 7)])
def test_nodes_move_one_after_the_other(rng, monkeypatch, shared, rows):
    monkeypatch.setattr(large, "_SHARED", shared)
    monkeypatch.setattr(large, "_LEAST_ROWS", rows)
    adjacency = random_graph(rng, 600, 0.02)
    adjacency.setdiag(rng.random(600))
    labels = rng.integers(5, size=600)
    found = large.refine_partition(adjacency, labels)
    assert_array_equal(found, moved_one_after_the_other(adjacency, labels, 10))
    assert (found != labels).mean() > 0.2


# --- products of tall matrices -----------------------------------------------------------------------------
@pytest.fixture(params=["ranges of rows", "tensors"])
def tall_products(request, rng, monkeypatch):
    """A scaled matrix as dense array, its products, and a function from arrays to what these take."""
    monkeypatch.setattr(large, "_MOST_RANGES", 2)  # several tiles of rows in each
    adjacency, scaling = random_graph(rng, 700, 0.03), rng.random(700) + 0.5
    dense = scaling[:, None] * adjacency.toarray() * scaling
    if request.param == "ranges of rows":
        return dense, large.RowRanges.scaled(adjacency, scaling)
    torch = pytest.importorskip("torch")
    return dense, large.DeviceMatrix.scaled(adjacency, scaling, torch.empty(0))


def close_to(found, expected):
    """Check a result in single precision; its errors are relative to the largest entry."""
    assert_allclose(to_numpy(found), expected, atol=2e-5 * abs(expected).max())


def test_products_of_tall_matrices_are_those_of_dense_ones(rng, tall_products):
    # Given a space of 3 known columns and 20 of a basis, and behind them numbers that an earlier one has left
    dense, products = tall_products
    space, moved = rng.standard_normal((700, 43)).astype(np.float32), rng.standard_normal((700, 40)).astype(np.float32)
    block = rng.standard_normal((700, 16)).astype(np.float32)
    turn = np.linalg.qr(rng.standard_normal((16, 16)))[0].astype(np.float32)
    whole, carried, tall = (products.from_numpy(array.copy()) for array in (space, moved, block))
    # When a block is appended, then columns 23 to 38 of the space and 20 to 35 of the products are new, no others
    shares = products.extend(tall, turn, 23, whole, carried)
    space[:, 23:39], moved[:, 20:36] = block @ turn, dense @ (block @ turn)
    close_to(whole, space)
    close_to(carried, moved)
    close_to(shares[:39], space[:, :39].T @ moved[:, 20:36])
    assert_array_equal(shares[39:], 0.0)
    # When it is made orthogonal, then shares of the filled columns are taken away
    rest, gram = products.without(carried, 20, whole, shares.astype(np.float32))
    expected = moved[:, 20:36] - space[:, :39] @ shares[:39]
    close_to(rest, expected)
    close_to(gram, expected.T @ expected)
    close_to(products.inner(whole, 39, tall)[:39], space[:, :39].T @ block)
    close_to(products.turned(tall, turn[:, :5]), block @ turn[:, :5])


def test_restart_turns_the_basis_and_mixes_what_it_lacks(rng, tall_products):
    # Given a full space of 3 known columns and 40 of the basis
    _, products = tall_products
    space, moved = rng.standard_normal((700, 43)).astype(np.float32), rng.standard_normal((700, 40)).astype(np.float32)
    whole, carried = (products.from_numpy(array.copy()) for array in (space, moved))
    rotation, values = rng.standard_normal((40, 22)).astype(np.float32), rng.random(6).astype(np.float32)
    # When 22 combinations are kept, then they come first, and lengths of what six of them lack are returned
    squares = products.turn_both(whole, carried, large._placed(rotation, space, 3), values)
    space[:, 3:25], moved[:, :22] = space[:, 3:] @ rotation, moved @ rotation
    close_to(whole, space)
    close_to(carried, moved)
    lacks = moved[:, :6] - values * space[:, 3:9]
    close_to(squares, (lacks**2).sum(axis=0))
    # When these are mixed, then the block is a combination of them
    mix = rng.standard_normal((6, 16)).astype(np.float32)
    of_space, of_moved = large._placed(values[:, None] * mix, space, 3), large._placed(mix, moved, 0)
    block, shares = products.combine(whole, 25, carried, of_space, of_moved)
    close_to(block, lacks @ mix)
    close_to(shares[:25], space[:, :25].T @ (lacks @ mix))
    assert_array_equal(shares[25:], 0.0)


def test_every_candidate_is_computed_once_on_any_number_of_threads(monkeypatch):
    sources = [lambda number=number: np.full(3, number) for number in range(72)]
    for threads in (1, 3, 72, 200):
        monkeypatch.setattr("tubal.backends.arrays.thread_count", lambda threads=threads: threads)
        found = cuts._find_candidates(sources, 3, None)
        assert_array_equal(np.stack(found)[:, 0], np.arange(72))
