"""Nested clusters: what a tree contains, and how it compares with SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.cluster.hierarchy import is_valid_linkage, linkage

import tubal
from tests.clustering.test_clusterer import shapes
from tubal import ImageClusterer
from tubal.clustering import cluster_tree, tree
from tubal.clustering.cuts import order_by_size
from tubal.clustering.spectral import nearest_centers


def random_graph(rng, n_images, n_clusters, share=0.15):
    """Return a random graph with more edges inside than between clusters, and the clusters."""
    labels = order_by_size(np.sort(rng.integers(n_clusters, size=n_images)))
    chance = np.where(labels[:, None] == labels, share, share / 20)
    upper = np.triu(rng.random((n_images, n_images)) < chance, 1)
    return sparse.csr_matrix((upper + upper.T).astype(np.float64)), labels


def is_nested(fine, coarse):
    """Tell whether each fine cluster lies in one coarse cluster."""
    return len(np.unique(np.stack([fine, coarse]), axis=1).T) == len(np.unique(fine))


@pytest.mark.parametrize("n_clusters", [1, 3, 8])
def test_tree_contains_the_partition_and_is_nested(rng, n_clusters):
    adjacency, labels = random_graph(rng, 120, n_clusters)
    found = cluster_tree(adjacency, labels)
    assert found.n_clusters == len(np.unique(labels))
    assert_array_equal(found.labels(found.n_clusters), labels)
    finer = found.labels(found.n_pieces)
    assert len(np.unique(finer)) == found.n_pieces == 120
    for number in range(found.n_pieces - 1, 0, -1):
        coarser = found.labels(number)
        assert len(np.unique(coarser)) == number
        assert is_nested(finer, coarser)
        finer = coarser


def test_linkage_is_valid_for_scipy(rng):
    adjacency, labels = random_graph(rng, 60, 4)
    found = cluster_tree(adjacency, labels).linkage
    assert is_valid_linkage(found, throw=True)
    assert (np.diff(found[:, 2]) >= 0.0).all()


@pytest.mark.parametrize("n_points", [1, 2, 3, 50])
def test_ward_merges_are_those_of_scipy(rng, n_points):
    points = rng.normal(size=(n_points, 4))
    found = tree.ward_merges(points, np.ones(n_points))
    if n_points > 1:
        assert_allclose(found, linkage(points, "ward")[:, :3], atol=1e-9)
    else:
        assert found.shape == (0, 3)


def test_equal_points_have_a_tree(rng):
    points = np.repeat(rng.normal(size=(5, 9)), 20, axis=0) + 1e-9 * rng.normal(size=(100, 9))
    heights = tree.ward_merges(points, np.ones(100))[:, 2]
    assert (np.diff(heights) >= 0.0).all()


def test_weights_count_as_repeated_points(rng):
    points, repeats = rng.normal(size=(12, 3)), rng.integers(1, 5, size=12)
    found = tree.ward_merges(points, repeats.astype(float))
    repeated = linkage(np.repeat(points, repeats, axis=0), "ward")
    assert_allclose(found[:, 2], repeated[-11:, 2], atol=1e-9)


def test_large_collections_have_few_pieces(rng, monkeypatch):
    monkeypatch.setattr(tree, "MOST_PIECES", 40)
    adjacency, labels = random_graph(rng, 300, 3)
    found = cluster_tree(adjacency, labels)
    assert 20 <= found.n_pieces <= 43
    assert_array_equal(found.labels(3), labels)
    assert is_nested(found.pieces, labels)


@pytest.mark.parametrize("most", [2000, 20])
def test_images_kept_together_are_never_divided(rng, monkeypatch, most):
    monkeypatch.setattr(tree, "MOST_PIECES", most)
    adjacency, labels = random_graph(rng, 80, 2)
    together = np.arange(80)
    together[1:4] = together[0]
    found = cluster_tree(adjacency, labels, together=together)
    assert len(np.unique(found.pieces[:4])) == 1
    assert_array_equal(found.labels(2), labels)


@pytest.mark.parametrize("n_images", [1, 2, 3])
def test_tiny_graphs_have_a_tree(n_images):
    found = cluster_tree(sparse.csr_matrix((n_images, n_images)), np.zeros(n_images, np.intp))
    assert_array_equal(found.labels(1), np.zeros(n_images))
    assert len(np.unique(found.labels(n_images))) == n_images


def test_nearest_centers_are_the_nearest(rng):
    points, centers = rng.normal(size=(2100, 3)), rng.normal(size=(7, 3))
    distances = np.linalg.norm(points[:, None] - centers, axis=2)
    assert_array_equal(nearest_centers(points, centers), distances.argmin(axis=1))


def test_clusterer_has_nested_labels(rng, tmp_path):
    images, _ = shapes(rng, n_classes=4, n_each=12)
    model = ImageClusterer(4, random_state=0).fit(images)
    assert_array_equal(model.labels_for(4), model.labels_)
    assert is_nested(model.labels_for(9), model.labels_)
    assert is_nested(model.labels_, model.labels_for(2))
    tubal.save(model, tmp_path / "model.tubal")
    loaded = tubal.load(tmp_path / "model.tubal")
    assert_array_equal(loaded.labels_for(9), model.labels_for(9))
    assert_array_equal(loaded.tree_.linkage, model.tree_.linkage)


def test_too_many_clusters_are_an_error(rng):
    adjacency, labels = random_graph(rng, 30, 2)
    with pytest.raises(ValueError, match="only 30 pieces; ask for at most 30"):
        cluster_tree(adjacency, labels).labels(31)
    with pytest.raises(ValueError, match="n_clusters"):
        cluster_tree(adjacency, labels).labels(0)


def test_equal_images_share_a_piece(rng):
    images, _ = shapes(rng, n_classes=3, n_each=10)
    images[1] = images[0]
    model = ImageClusterer(3, random_state=0).fit(images)
    assert model.tree_.pieces[0] == model.tree_.pieces[1]
