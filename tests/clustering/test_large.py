"""Graphs of groups: their weights, eigenvectors and cuts, and the refinement of labels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from tubal import clustering
from tubal.clustering import cuts, large, spectral
from tubal.clustering.affinity import with_second_order, with_short_paths
from tubal.graph.structure import components_of
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
    n_components = components_of(adjacency).max() + 1
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
