"""Neighbour graphs against all pairs, Laplacians against dense linear algebra, bad input."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist

from tubal.graph import Graph, deformable_graph, knn_graph, laplacian, laplacian_norm, restore_graph
from tubal.graph import neighbors as neighbors_module
from tubal.graph.structure import directed_edges, symmetric_adjacency
from tubal.learning.fitting import resolve_graph


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def all_pairs(rows, metric, n_neighbors):
    """Return neighbours and distances from all pairs, without the image itself."""
    distances = cdist(rows.astype(np.float64), rows.astype(np.float64), metric)
    np.fill_diagonal(distances, np.inf)
    order = np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]
    return order, np.take_along_axis(distances, order, axis=1)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(60, 5, 4), (60, 3, 2, 3), (60, 7)])
def test_knn_graph_equals_all_pairs(rng, metric, dtype, shape):
    images = rng.random(shape).astype(dtype)
    graph = knn_graph(images, 4, metric=metric)
    neighbors, distances = all_pairs(images.reshape(60, -1), metric, 4)
    assert_array_equal(graph.neighbors, neighbors)
    assert_allclose(graph.distances, distances, rtol=1e-5 if dtype == np.float32 else 1e-9)
    assert graph.distances.dtype == dtype


def test_block_size_does_not_change_the_graph(rng, monkeypatch):
    images = rng.random((300, 20)).astype(np.float32)
    whole = knn_graph(images, 3)
    monkeypatch.setattr(neighbors_module, "_BLOCK_BYTES", 2**12)
    assert_array_equal(knn_graph(images, 3).neighbors, whole.neighbors)
    monkeypatch.setattr(neighbors_module, "_COMPILED_FROM", 100)
    assert_array_equal(knn_graph(images, 3).neighbors, whole.neighbors)
    directions = knn_graph(images, 3, metric="cosine")
    monkeypatch.setattr(neighbors_module, "_COMPARED_BYTES", 2**10)
    assert_array_equal(knn_graph(images, 3).neighbors, whole.neighbors)
    found = knn_graph(images, 3, metric="cosine")
    assert_array_equal(found.neighbors, directions.neighbors)
    assert_allclose(found.distances, directions.distances, atol=1e-6)


def test_float32_is_exact_far_from_the_origin(rng):
    images = (rng.random((80, 6)) * 0.01 + 1000.0).astype(np.float32)
    assert_array_equal(knn_graph(images, 3).neighbors, all_pairs(images, "euclidean", 3)[0])


def check_canonical(adjacency):
    assert isinstance(adjacency, sparse.csr_matrix | sparse.csr_array)
    assert adjacency.has_canonical_format
    assert (adjacency != adjacency.T).nnz == 0
    assert adjacency.data.min(initial=1.0) > 0
    assert not adjacency.diagonal().any()


@pytest.mark.parametrize("weights", ["binary", "heat"])
def test_adjacency_is_the_maximum_of_both_directions(rng, weights):
    graph = knn_graph(rng.random((50, 9)), 3, weights=weights, bandwidth=0.3)
    expected = np.zeros((50, 50))
    for image in range(50):
        for neighbour, distance in zip(graph.neighbors[image], graph.distances[image], strict=True):
            expected[image, neighbour] = 1.0 if weights == "binary" else np.exp(-(distance**2) / (2 * 0.3**2))
    assert_allclose(graph.adjacency.toarray(), np.maximum(expected, expected.T))
    check_canonical(graph.adjacency)


def test_lists_may_be_short_and_unordered(rng):
    lists = np.array([rng.permutation(np.delete(np.arange(40), image))[:6] for image in range(40)])
    lists[rng.random(lists.shape) < 0.3] = -1
    lists[5] = -1
    weights = rng.random(lists.shape).astype(np.float32)
    expected = np.zeros((40, 40), np.float32)
    for image, slot in zip(*np.nonzero(lists >= 0), strict=True):
        expected[image, lists[image, slot]] = weights[image, slot]
    adjacency = symmetric_adjacency(lists, weights)
    assert_array_equal(adjacency.toarray(), np.maximum(expected, expected.T))
    assert adjacency.indices.dtype == np.int32
    check_canonical(adjacency)


def copies_of_all_pairs(rows):
    """Return what :func:`exact_copies` does, from a comparison of every row with all others."""
    first = np.array([next(i for i, other in enumerate(rows) if (other == row).all()) for row in rows])
    return np.unique(first, return_inverse=True)


@pytest.mark.parametrize("values", [2, 5, 1000])
def test_exact_copies_are_those_of_all_pairs(rng, values):
    rows = (rng.integers(values, size=(1200, 4)) - 1).astype(np.float32)
    rows[rng.random(rows.shape) < 0.2] *= -1.0  # some zeros become -0.0
    for found, expected in zip(neighbors_module.exact_copies(rows), copies_of_all_pairs(rows), strict=True):
        assert_array_equal(found, expected)


def test_different_rows_with_equal_sums_are_no_copies(rng, monkeypatch):
    rows = rng.integers(3, size=(50, 2)).astype(np.float64)
    expected = copies_of_all_pairs(rows)
    monkeypatch.setattr(neighbors_module, "_weighted_sums", lambda rows: np.zeros(len(rows), np.uint64))
    for found, wanted in zip(neighbors_module.exact_copies(rows), expected, strict=True):
        assert_array_equal(found, wanted)


def test_rows_without_a_copy_need_no_digest(rng, monkeypatch):
    rows = rng.random((3000, 3))
    rows[2500] = rows[20]
    digested = []
    monkeypatch.setattr(
        neighbors_module, "blake2b", lambda row, **options: digested.append(1) or hashlib.blake2b(row, **options)
    )
    assert_array_equal(np.bincount(neighbors_module.exact_copies(rows)[1]).nonzero()[0], np.arange(2999))
    assert len(digested) == 2


def test_copies_are_neighbors_at_distance_zero(rng):
    images = rng.random((12, 5))
    images[3] = images[9] = images[0]
    graph = knn_graph(images, 3)
    assert not (graph.neighbors == np.arange(12)[:, None]).any()
    for image, copies in [(0, {3, 9}), (3, {0, 9}), (9, {0, 3})]:
        assert set(graph.neighbors[image, :2]) == copies
        assert_array_equal(graph.distances[image, :2], [0.0, 0.0])
    assert_allclose(graph.distances, all_pairs(images, "euclidean", 3)[1], atol=1e-12)
    assert all(len(set(row)) == 3 for row in graph.neighbors)


def test_equal_images_form_a_ring():
    graph = knn_graph(np.ones((20, 4, 4)), 3)
    assert graph.max_in_degree == 3
    assert_array_equal(graph.neighbors[18], [19, 0, 1])
    check_canonical(graph.adjacency)


def test_blank_image_has_finite_cosine_distances(rng):
    images = rng.random((10, 6))
    images[4] = 0.0
    assert np.isfinite(knn_graph(images, 2, metric="cosine").distances).all()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_query_finds_the_nearest_training_images(rng, metric):
    train, new = rng.random((40, 3, 5)), rng.random((6, 3, 5))
    graph = knn_graph(train, 4, metric=metric, weights="heat")
    indices, weights = graph.query(new)
    distances = cdist(new.reshape(6, -1), train.reshape(40, -1), metric)
    assert_array_equal(indices, np.argsort(distances, axis=1)[:, :4])
    full = graph.query_full(new)
    assert_allclose(full.distances, np.sort(distances, axis=1)[:, :4])
    assert_allclose(weights, np.exp(-(full.distances**2) / (2 * graph.weighting.bandwidth**2)))


def test_identical_finds_training_images(rng):
    train = rng.random((15, 4, 4)).astype(np.float32)
    train[7] = train[2]
    new = np.concatenate([train[[11, 7]], rng.random((1, 4, 4)), -np.zeros((1, 4, 4))])
    assert_array_equal(knn_graph(train, 2).identical(new), [11, 2, -1, -1])


@pytest.mark.parametrize("build", [knn_graph, deformable_graph])
def test_training_image_finds_itself_first(rng, build):
    train = rng.random((20, 6, 6)).astype(np.float32)
    train[4] = 0.5
    found = build(train, 3).query_full(train, 5)
    assert_array_equal(found.indices[:, 0], np.arange(20))
    assert_array_equal(found.distances[:, 0], 0.0)
    assert all(len(set(row)) == 5 for row in found.indices)
    assert (np.diff(found.distances, axis=1) >= 0).all()
    if found.alignments is not None:
        first = found.alignments[:, 0]
        assert_array_equal(
            np.stack([first.rotation, first.scale, first.dy, first.dx]), [[0] * 20, [1] * 20, [0] * 20, [0] * 20]
        )


@pytest.mark.parametrize("build", [knn_graph, deformable_graph])
def test_all_copies_of_a_query_come_first(rng, build):
    train = rng.random((20, 6, 6))
    train[[3, 9, 14]] = train[1]
    found = build(train, 3).query_full(train[[9]], 6)
    assert_array_equal(found.indices[0, :4], [1, 3, 9, 14])
    assert_array_equal(found.distances[0, :4], 0.0)
    assert_array_equal(build(train, 3).query_full(train[[9]], 2).indices, [[1, 3]])


def test_restored_graph_gives_the_same_neighbors(rng):
    train, new = rng.random((30, 4, 4)), rng.random((5, 4, 4))
    graph = knn_graph(train, 3, metric="cosine", weights="heat")
    arrays, meta = graph.state()
    again = restore_graph(arrays, json.loads(json.dumps(meta)))
    assert_array_equal(again.adjacency.toarray(), graph.adjacency.toarray())
    assert_array_equal(again.neighbors, graph.neighbors)
    for left, right in zip(again.query(new), graph.query(new), strict=True):
        assert_array_equal(left, right)
    matrix = Graph.from_matrix(graph.adjacency)
    arrays, meta = matrix.state()
    assert restore_graph(arrays, meta).search is None


def test_laplacian_is_degrees_minus_adjacency(rng):
    graph = knn_graph(rng.random((30, 4)), 3)
    adjacency = graph.adjacency.toarray()
    degrees = np.diag(adjacency.sum(axis=1))
    assert_allclose(laplacian(graph).toarray(), degrees - adjacency)
    root = np.diag(1 / np.sqrt(np.diag(degrees)))
    assert_allclose(laplacian(graph, normalized=True).toarray(), np.eye(30) - root @ adjacency @ root, atol=1e-12)


@pytest.mark.parametrize("normalized", [False, True])
def test_isolated_image_has_a_zero_row(normalized):
    matrix = np.zeros((4, 4))
    matrix[0, 1] = matrix[1, 0] = 2.0
    result = laplacian(matrix, normalized=normalized).toarray()
    assert not result[2:].any()
    assert_allclose(result @ np.array([1.0, 1.0, 5.0, -3.0]), 0.0, atol=1e-12)


@pytest.mark.parametrize("n_images", [2, 40, 600])
@pytest.mark.parametrize("normalized", [False, True])
def test_laplacian_norm_is_the_largest_eigenvalue(rng, n_images, normalized):
    graph = knn_graph(rng.random((n_images, 5)).astype(np.float32), min(3, n_images - 1))
    matrix = laplacian(graph, normalized=normalized)
    expected = np.linalg.eigvalsh(matrix.toarray().astype(np.float64)).max()
    assert laplacian_norm(matrix) == pytest.approx(expected, rel=1e-10)
    assert laplacian_norm(matrix) == laplacian_norm(matrix)


def test_laplacian_norm_is_correct_for_repeated_eigenvalues():
    pairs = sparse.block_diag([np.array([[0.0, 1.0], [1.0, 0.0]])] * 300)
    assert laplacian_norm(laplacian(pairs)) == pytest.approx(2.0, rel=1e-12)
    assert laplacian_norm(sparse.csr_matrix((500, 500))) == 0.0


def test_resolve_graph_accepts_names_graphs_and_matrices(rng):
    images = rng.random((20, 4, 4))
    graph = resolve_graph("cosine", images, n_neighbors=2)
    assert_array_equal(graph.neighbors, knn_graph(images, 2, metric="cosine").neighbors)
    assert resolve_graph(graph, images, n_neighbors=2) is graph
    for matrix in (graph.adjacency, graph.adjacency.toarray(), sparse.coo_array(graph.adjacency)):
        resolved = resolve_graph(matrix, images, n_neighbors=2)
        assert_array_equal(resolved.adjacency.toarray(), graph.adjacency.toarray())
        with pytest.raises(ValueError, match="neighbors="):
            resolved.query(images)


def _matrix(change):
    matrix = np.zeros((4, 4))
    matrix[0, 1] = matrix[1, 0] = 1.0
    change(matrix)
    return matrix


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (np.zeros((3, 4)), "square"),
        (np.zeros((3, 3)), "3 images but 4"),
        (_matrix(lambda m: m.__setitem__((2, 3), 1.0)), "not symmetric"),
        (_matrix(lambda m: m.__setitem__((0, 1), -1.0)), "negative"),
        (_matrix(lambda m: m.__setitem__((0, 1), np.nan)), "NaN or infinity"),
        (_matrix(lambda m: m.__setitem__((2, 2), 1.0)), "diagonal"),
    ],
)
@pytest.mark.parametrize("form", [np.asarray, sparse.csc_matrix])
def test_bad_matrix_raises_a_one_sentence_error(matrix, sentence, form):
    with pytest.raises(ValueError, match=sentence):
        Graph.from_matrix(form(matrix), 4)


@pytest.mark.parametrize(
    ("images", "arguments", "error", "sentence"),
    [
        (np.full((5, 3), np.nan), {}, ValueError, "NaN or infinity"),
        (np.full((5, 3), np.inf), {}, ValueError, "NaN or infinity"),
        (np.zeros((0, 3)), {}, ValueError, "no pixel"),
        (np.zeros(5), {}, ValueError, "shape"),
        (np.zeros((5, 2), complex), {}, TypeError, "dtype"),
        (np.array([["a", "b"]] * 5), {}, TypeError, "dtype"),
        (np.ma.masked_equal(np.zeros((5, 3)), 1.0), {}, ValueError, "masked array"),
        (sparse.csr_matrix((5, 3)), {}, TypeError, "toarray"),
        (1e200 * np.eye(5), {}, ValueError, r"up to 1e\+200"),
        (np.float32(1e20) * np.eye(5, dtype=np.float32), {}, ValueError, "overflow in float32"),
        (np.zeros((1, 3)), {}, ValueError, "only 0 other"),
        (np.zeros((5, 3)), {"n_neighbors": 5}, ValueError, "lower n_neighbors"),
        (np.zeros((5, 3)), {"n_neighbors": 0}, ValueError, "at least one"),
        (np.zeros((5, 3)), {"n_neighbors": 1.5}, TypeError, "integer"),
        (np.zeros((5, 3)), {"metric": "manhattan"}, ValueError, "euclidean"),
        (np.zeros((5, 3)), {"weights": "gauss"}, ValueError, "heat"),
        (np.zeros((5, 3)), {"bandwidth": -1.0}, ValueError, "positive"),
    ],
)
def test_bad_input_raises_a_one_sentence_error(images, arguments, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        knn_graph(images, **arguments)
    assert "\n" not in str(caught.value)


def test_bad_graph_arguments_raise_a_one_sentence_error(rng):
    images = rng.random((10, 3))
    graph = knn_graph(images, 2)
    with pytest.raises(ValueError, match="10 images but 4"):
        resolve_graph(graph, images[:4], n_neighbors=2)
    with pytest.raises(ValueError, match="known names"):
        resolve_graph("nearest", images, n_neighbors=2)
    with pytest.raises(TypeError, match="pass one of"):
        resolve_graph(3, images, n_neighbors=2)
    with pytest.raises(ValueError, match="training size"):
        graph.query(rng.random((2, 4)))


def test_importing_graph_loads_no_heavy_package():
    script = "import sys, tubal.graph; print([m for m in ('numba', 'sklearn', 'torch') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_torch_images_give_the_same_graph(rng):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    images = rng.random((50, 4, 4)).astype(np.float32)
    images[5] = images[6]
    for metric in ("euclidean", "cosine"):
        from_torch = knn_graph(torch.from_numpy(images), 3, metric=metric)
        from_numpy = knn_graph(images, 3, metric=metric)
        assert_array_equal(from_torch.neighbors, from_numpy.neighbors)
        assert_allclose(from_torch.distances, from_numpy.distances, rtol=1e-5)
        new = rng.random((4, 4, 4)).astype(np.float32)
        assert_array_equal(from_torch.query(torch.from_numpy(new))[0], from_numpy.query(new)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("build", [knn_graph, deformable_graph])
def test_precision_does_not_hide_a_training_image(rng, build, dtype):
    # Given unit images, and the same ones computed in the other precision
    pixels = rng.integers(0, 256, size=(30, 8, 8))
    pixels[17], pixels[21] = pixels[4], 0
    exact = pixels / np.maximum(np.linalg.norm(pixels, axis=(1, 2), keepdims=True), 1)
    single = (pixels / 255).astype(np.float32)
    single /= np.maximum(np.sqrt((single**2).sum(axis=(1, 2), keepdims=True)), np.float32(1e-9))
    train, new = (exact, single) if dtype == np.float64 else (single, exact)
    # When they are looked up
    found = build(train, 3).query_full(new, 2)
    # Then each finds itself, and one level in one pixel is a difference
    own = np.arange(30)
    own[17] = 4
    assert_array_equal(found.indices[:, 0], own)
    assert_array_equal(found.distances[:, 0], 0)
    new[:, 0, 0] += 1 / 255 / 8
    assert_array_equal(build(train, 3).identical(new), -1)


def test_copies_are_found_closest_first(rng):
    rows = rng.random((50, 40))
    rows[[8, 30]] = rows[3]
    rows[12] = rows[3] * (1 + 1e-8)
    copies = knn_graph(rows, 2).search.copies
    assert_array_equal(copies(rows[:4])[3], [3, 8, 30])
    assert_array_equal(copies(rows[:4].astype(np.float32))[3], [3, 8, 30, 12])
    huge = knn_graph(rows * 1e150, 2, metric="cosine").search.copies(rows[:2] * 1e150)
    assert [found.tolist() for found in huge] == [[0], [1]]


def test_neighbor_beyond_the_images_raises():
    with pytest.raises(ValueError, match="index 3, but there are 3 images"):
        directed_edges(np.array([[1], [3], [0]]), np.ones((3, 1)))
