"""The search in cells, against a comparison of all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

from tubal.backends.cpu.deformation import TILE
from tubal.graph import cells, knn_graph, neighbors
from tubal.graph.cells import CellPlan, cell_candidates, most_similar


def unit(rows):
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def clumps(rng, n=3000):
    """Return unit rows around 20 random directions, with as much noise as signal."""
    centers = rng.normal(size=(20, 32))
    return unit(centers[rng.integers(20, size=n)] + rng.normal(size=(n, 32)))


def digits():
    rows = load_digits().data
    return unit(rows - rows.mean(axis=0))


def all_pairs(rows, reach):
    products = rows.astype(np.float64) @ rows.T
    np.fill_diagonal(products, -np.inf)
    return np.argsort(-products, axis=1, kind="stable")[:, :reach]


def recall(found, exact):
    return np.mean([np.isin(true, row).mean() for true, row in zip(exact, found, strict=True)])


@pytest.mark.parametrize("collection", ["clumps", "digits"])
def test_cells_find_nearly_all_candidates(rng, collection):
    rows = clumps(rng) if collection == "clumps" else digits()
    found = cell_candidates(rows, 50, random_state=0, threads=1)
    assert found.shape == (len(rows), 50)
    assert recall(found, all_pairs(rows, 50)) >= 0.99


def test_candidates_are_other_images_most_similar_first(rng):
    rows = clumps(rng, 800)
    found = cell_candidates(rows, 20, random_state=0, threads=1)
    similarity = np.einsum("ijk,ik->ij", rows[found], rows)
    assert (np.diff(similarity, axis=1) <= 1e-6).all()
    assert not (found == np.arange(len(rows))[:, None]).any()
    assert all(len(set(row)) == 20 for row in found)


def test_rank_is_the_least_place_of_a_cell_over_all_images(rng, monkeypatch):
    monkeypatch.setattr(cells, "_ROWS", 100)  # several blocks
    rows, centers = clumps(rng, 250), clumps(rng, 60)
    nearest = np.argsort(-(rows @ centers.T), axis=1, kind="stable")[:, : cells._MOST_PROBES]
    expected = np.full((60, 60), 255)
    for probes in nearest:
        for place, probe in enumerate(probes):
            expected[probes[0], probe] = min(expected[probes[0], probe], place)

    cell, rank = cells.assign_cells(rows, centers, threads=1)

    assert_array_equal(cell, nearest[:, 0])
    assert_array_equal(rank, expected)


def test_kept_plan_finds_the_same_candidates(rng):
    rows = clumps(rng, 800)
    plan = CellPlan.of(rows, 20, random_state=0, threads=1)
    again = CellPlan.restore(plan.arrays(), 800)
    assert_array_equal(again.order, plan.order)
    assert_array_equal(again.lists(rows, 100, 500, 20, 1), plan.lists(rows, 100, 500, 20, 1))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("order", lambda order: order[:-1]),
        ("order", np.zeros_like),
        ("starts", lambda starts: starts[:-1]),
        ("starts", lambda starts: starts[::-1]),
        ("searched", lambda searched: searched + 1),
        ("searched", lambda searched: searched[:-1]),
        ("lengths", lambda lengths: -lengths),
    ],
)
def test_plan_of_other_images_is_not_restored(rng, name, change):
    arrays = CellPlan.of(clumps(rng, 800), 20, random_state=0, threads=1).arrays()
    assert CellPlan.restore(arrays | {name: change(arrays[name])}, 800) is None
    assert CellPlan.restore({}, 800) is None


def test_candidates_depend_on_the_seed_alone(rng):
    rows = clumps(rng, 1500)
    once = cell_candidates(rows, 20, random_state=3, threads=1)
    assert_array_equal(once, cell_candidates(rows, 20, random_state=3, threads=2))


@pytest.mark.parametrize("n", [300, 2 * TILE + 30])
def test_one_cell_compares_all_pairs(rng, n):
    rows = clumps(rng, n)
    assert_array_equal(cell_candidates(rows, 10, random_state=0, threads=1, n_cells=1), all_pairs(rows, 10))


def test_lists_are_full_where_cells_are_small(rng):
    rows = clumps(rng, 60)
    found = cell_candidates(rows, 59, random_state=0, threads=1)
    assert_array_equal(np.sort(found, axis=1), [[j for j in range(60) if j != i] for i in range(60)])


def test_rows_of_one_crowded_cell_are_found(rng):
    rows = np.concatenate([clumps(rng, 500), unit(np.ones((1500, 32)) + 0.05 * rng.normal(size=(1500, 32)))])
    found = cell_candidates(rows, 20, random_state=0, threads=1)
    assert recall(found, all_pairs(rows, 20)) >= 0.99


def test_tensors_have_the_candidates_of_arrays(rng):
    torch = pytest.importorskip("torch")
    rows = clumps(rng, 1500)
    found = cell_candidates(torch.as_tensor(rows), 20, random_state=0, threads=1)
    # Nearly equal products may be rounded to another order.
    assert recall(found.numpy(), cell_candidates(rows, 20, random_state=0, threads=1)) > 0.999


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_feature_graph_without_all_pairs_has_nearly_all_neighbours(rng, monkeypatch, dtype):
    rows = (3.0 * clumps(rng, 1500)).astype(dtype)
    rows[7] = rows[3]
    exact = knn_graph(rows, 10, metric="cosine")
    monkeypatch.setattr(neighbors, "_MOST_COMPARED", 1000)
    assert_array_equal(knn_graph(rows, 10, metric="cosine").neighbors, exact.neighbors)
    found = knn_graph(rows, 10, metric="cosine", compare_all=False)
    assert recall(found.neighbors, exact.neighbors) > 0.99
    assert found.neighbors[3, 0] == 7
    assert found.distances.dtype == exact.distances.dtype
    same = found.neighbors == exact.neighbors
    assert_array_equal(found.distances[same], exact.distances[same])


def test_known_rows_are_not_their_own_neighbours(rng):
    rows = clumps(rng, 200)
    assert_array_equal(most_similar(rows[50:90], rows, 5, 1, first=50), all_pairs(rows, 5)[50:90])


def test_halves_are_those_of_numpy(rng):
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)].reshape(-1, 4, 4)
    chosen = rng.permutation(len(every))
    rows = cells.widened(every, chosen)
    assert_array_equal(rows, every[chosen].astype(np.float32))
    assert_array_equal(cells.narrowed(rows).view(np.uint16), every[chosen].view(np.uint16))
    # Between two halves, and just beside the middle
    numbers = rng.normal(size=(50, 7)).astype(np.float32) * 10.0 ** rng.integers(-3, 4, size=(50, 1)).astype(np.float32)
    numbers = np.where(abs(numbers) < 1e-4, np.float32(1), numbers)
    halves = numbers.astype(np.float16)
    middle = (halves.astype(np.float32) + np.nextafter(halves, np.float16(np.inf)).astype(np.float32)) / 2
    for some in (numbers, middle, np.nextafter(middle, np.float32(9)), np.nextafter(middle, np.float32(-9))):
        assert_array_equal(cells.narrowed(some), some.astype(np.float16))
