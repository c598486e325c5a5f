"""The search by tasks, against the search in one process."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tubal.datasets import make_shifted_shapes
from tubal.graph import deformable, deformable_graph, tasks
from tubal.graph.deformable import Effort
from tubal.graph.structure import Stage
from tubal.graph.tasks import TaskSearch

N_IMAGES = 400


class TasksHere:
    """Runs every task at once; arguments and results are pickled, as on the way to a worker."""

    n_parallel = 2

    def __init__(self):
        self.n_tasks = 0

    def submit(self, work, *arguments):
        self.n_tasks += 1
        return pickle.loads(pickle.dumps(work(*pickle.loads(pickle.dumps(arguments)))))

    def share(self, value):
        return value

    def fetch(self, futures):
        return futures


@pytest.fixture(scope="module")
def images():
    shapes = make_shifted_shapes(N_IMAGES, n_classes=4, image_shape=(16, 16), random_state=0).images
    found = (shapes + 0.2 * np.random.default_rng(0).random(shapes.shape)).astype(np.float32)
    found[30:33] = found[7]  # copies are compared once
    return found


def efforts(exact_limit):
    return Effort(n_candidates=30, n_kept=20, rank=16, context=1, exact_limit=exact_limit)


def by_tasks(images, runner, **settings):
    def finder(search):
        return TaskSearch.of(search, runner, lambda chosen: images[chosen])

    return deformable_graph(images, 6, finder=finder, **settings)


@pytest.mark.parametrize("exact_limit", [20_000, 100], ids=["all pairs", "cells"])
def test_tasks_find_the_neighbors_of_one_process(exact_limit, images):
    expected = deformable_graph(images, 6, effort=efforts(exact_limit))
    runner = TasksHere()
    found = by_tasks(images, runner, effort=efforts(exact_limit))
    assert runner.n_tasks > 12
    assert_array_equal(found.neighbors, expected.neighbors)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-5)
    assert type(found.search) is type(expected.search)


@pytest.mark.parametrize("exact_limit", [20_000, 100], ids=["all pairs", "cells"])
def test_tasks_work_in_small_parts_along_the_cells(exact_limit, images, monkeypatch):
    colour = np.stack([images, images[::-1], images**2], axis=3)
    expected = deformable_graph(colour, 6, effort=efforts(exact_limit))
    monkeypatch.setattr(tasks, "_MOST_UNORDERED", 100)
    monkeypatch.setattr(tasks, "_IMAGES_IN_PART", 50)
    monkeypatch.setattr(TaskSearch, "_most_rows", lambda self, *_: 30)
    found = by_tasks(colour, TasksHere(), effort=efforts(exact_limit))
    assert_array_equal(found.neighbors, expected.neighbors)


def test_block_needs_few_images_of_a_small_collection(monkeypatch):
    shapes = make_shifted_shapes(2000, n_classes=8, image_shape=(16, 16), random_state=0).images
    needed = []

    def finder(search):
        def load(chosen):
            needed.append(len(chosen))
            return shapes[chosen]

        return TaskSearch.of(search, TasksHere(), load)

    deformable_graph(shapes, 6, finder=finder, effort=efforts(20_000))
    # Every image is described once, and sent to the block that compares it and to those of which it is a candidate.
    assert sum(needed) < 4.5 * len(shapes)


@pytest.mark.parametrize(("n_images", "n_parallel"), [(400, 2), (20_000, 1), (20_000, 6), (2_000_000, 4)])
def test_blocks_are_equal_shares_that_fit_in_memory(images, n_images, n_parallel):
    runner = TasksHere()
    runner.n_parallel = n_parallel
    known = deformable_graph(images, 6, effort=efforts(20_000)).search
    search, coefficients = TaskSearch.of(known, runner, None), known.prepared.coefficients
    many = SimpleNamespace(images=np.broadcast_to(np.float32(0), (n_images, 1, 256)), coefficients=coefficients)

    rows = search._task_rows(many)

    assert -(-n_images // rows) >= min(max(8, 2 * n_parallel), n_images // 64)
    numbers = 256 + 256 + len(search.bank.warps) * coefficients.rank
    assert rows * 3 * 4 * numbers <= 3 * 2**28 + 64 * 12 * numbers


@pytest.mark.parametrize(("n_done", "expected"), [(0, [(0, 4), (4, 8), (8, 9)]), (5, [(5, 8), (8, 9)]), (9, [])])
def test_blocks_left_end_at_multiples_of_their_length(n_done, expected):
    found = deformable.GrowingRanking(9)
    found.n_done = n_done
    assert found.blocks_left(4) == expected


def test_block_that_needs_too_many_images_is_compared_in_parts(monkeypatch):
    noise = np.random.default_rng(0).random((300, 16, 16), dtype=np.float32)
    expected = deformable_graph(noise, 6, effort=efforts(20_000))
    prepared, prepare = [], tasks.known_images

    def noted(tools, originals, threads):
        prepared.append(len(originals))
        return prepare(tools, originals, threads)

    monkeypatch.setattr(tasks, "known_images", noted)
    monkeypatch.setattr(tasks.Toolbox, "most_prepared", lambda self, originals: 120)

    found = by_tasks(noise, TasksHere(), effort=efforts(20_000))

    assert_array_equal(found.neighbors, expected.neighbors)
    assert max(prepared) <= 120


class Kept(Stage):
    """Keeps the first 256 of the lists that are added."""

    def __init__(self):
        super().__init__()
        self.arrays = {}

    def kept(self):
        return self.arrays

    def add(self, arrays, first):
        before = self.arrays if first else {name: part[:0] for name, part in arrays.items()}
        self.arrays = {name: np.concatenate([before[name], part])[:256] for name, part in arrays.items()}


def test_blocks_in_another_order_are_not_taken_over(images, monkeypatch):
    monkeypatch.setattr(tasks, "_MOST_UNORDERED", 100)
    monkeypatch.setattr(deformable, "_BLOCK_PIXELS", 2**20)
    stage = Kept()
    expected = deformable_graph(images, 6, effort=efforts(20_000), stage=stage)
    assert len(stage.arrays["indices"]) == 256
    found = by_tasks(images, TasksHere(), effort=efforts(20_000), stage=stage)
    assert_array_equal(found.neighbors, expected.neighbors)
    assert "queries" in stage.arrays
    again = deformable_graph(images, 6, effort=efforts(20_000), stage=stage)
    assert_array_equal(again.neighbors, expected.neighbors)


@pytest.mark.parametrize("n_parallel", [2, 1, 7])
def test_finished_blocks_are_kept_for_any_number_of_workers(images, n_parallel, monkeypatch):
    stage, first, second = Kept(), TasksHere(), TasksHere()
    expected = by_tasks(images, first, effort=efforts(100), stage=stage)
    assert {len(part) for part in stage.arrays.values()} == {256}
    second.n_parallel, compared, rank = n_parallel, [], tasks.rank_block

    def rank_block(tools, originals, candidates, *numbers):
        compared.append(len(candidates.places))
        return rank(tools, originals, candidates, *numbers)

    monkeypatch.setattr(tasks, "rank_block", rank_block)
    resumed = by_tasks(images, second, effort=efforts(100), stage=stage)
    assert sum(compared) == len(images) - 3 - 256
    assert_array_equal(resumed.neighbors, expected.neighbors)


# --- many images in one process --------------------------------------------------------------------------------
def test_images_need_not_be_held_at_the_working_size(images, monkeypatch):
    held = deformable_graph(images, 6, effort=efforts(20_000))
    found = deformable_graph(images, 6, effort=efforts(100))
    assert found.search.prepared.images.held is None
    assert found.search.prepared.descriptors.dtype == found.search.prepared.warped.dtype == np.float16
    same = (np.sort(found.neighbors) == np.sort(held.neighbors)).mean()
    assert same > 0.97
    monkeypatch.setattr(deformable, "_IMAGES_IN_PART", 7)
    again = deformable_graph(images, 6, effort=efforts(100))
    assert_array_equal(again.neighbors, found.neighbors)


def test_new_images_are_compared_with_a_large_collection(images):
    small, large = (deformable_graph(images, 6, effort=efforts(limit)) for limit in (20_000, 100))
    found = large.query_full(images[50:60] + np.float32(0.01))
    expected = small.query_full(images[50:60] + np.float32(0.01))
    assert (found.indices == expected.indices).mean() > 0.95


def test_large_collection_grows(images):
    found, expected = (grown_and_asked(images, exact_limit) for exact_limit in (100, 20_000))
    assert (found == expected).mean() > 0.95


def grown_and_asked(images, exact_limit):
    search = deformable_graph(images[:300], 6, effort=efforts(exact_limit)).search
    assert len(search.prepared.images) == 297
    grown = search.grown(images[300:])
    assert len(grown.prepared.images) == len(grown.prepared.warped) == 397
    return grown.nearest(images[340:360] + np.float32(0.01), 4).indices
