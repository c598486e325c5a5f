"""Graphs of images in a file against the same graphs in memory."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tubal.graph import knn_graph
from tubal.graph.build import RowFile, chunked_knn_graph


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize(("n_images", "n_neighbors"), [(2, 1), (5, 4), (6, 3), (12, 5)])
def test_small_collections_list_every_neighbor_once(rng, n_images, n_neighbors, metric):
    images = rng.random((n_images, 4))
    found = chunked_knn_graph(RowFile.spool([images]), n_neighbors, metric)
    assert_array_equal(found.neighbors, knn_graph(images, n_neighbors, metric=metric).neighbors)


@pytest.mark.parametrize("n_copies", [1, 30])
def test_copies_have_distance_zero(rng, n_copies):
    images = np.repeat(rng.random((1, 4)), 30, axis=0)
    images[n_copies:] = rng.random((30 - n_copies, 4))
    found = chunked_knn_graph(RowFile.spool([images[:7], images[7:]]), 3)
    expected = knn_graph(images, 3)
    assert_array_equal(found.neighbors, expected.neighbors)
    assert_array_equal(found.distances, expected.distances)


def test_rows_are_read_in_any_order(rng):
    images = rng.random((20, 3, 2)).astype(np.float32)
    rows = RowFile.spool([images])
    for indices in ([3, 4, 5], [5, 3, 19, 0], [7]):
        assert_array_equal(rows.take(np.array(indices)).reshape(-1, 3, 2), images[indices])


def test_queries_read_the_file_in_blocks(rng, monkeypatch):
    monkeypatch.setattr("tubal.graph.neighbors._BLOCK_BYTES", 200)
    images, new = rng.random((40, 5)), rng.random((6, 5))
    found = chunked_knn_graph(RowFile.spool([images]), 3).query_full(new)
    expected = knn_graph(images, 3).query_full(new)
    assert_array_equal(found.indices, expected.indices)
    assert_array_equal(found.distances, expected.distances)
