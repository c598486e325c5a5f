"""The search by tasks, against the search in one process."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tubal.datasets import make_shifted_shapes
from tubal.graph import deformable, deformable_graph
from tubal.graph.deformable import Effort
from tubal.graph.structure import Stage
from tubal.graph.tasks import TaskSearch, constant

N_IMAGES = 400


class TasksHere:
    """Runs every task at once; arguments and results are pickled, as on the way to a worker."""

    n_parallel = 2

    def __init__(self):
        self.n_tasks = 0

    def submit(self, work, *arguments):
        self.n_tasks += 1
        return pickle.loads(pickle.dumps(work(*pickle.loads(pickle.dumps(arguments)))))

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


def by_tasks(images, tasks, **settings):
    def finder(search):
        return TaskSearch.of(search, tasks, lambda chosen: tasks.submit(constant, images[chosen]))

    return deformable_graph(images, 6, finder=finder, **settings)


@pytest.mark.parametrize("exact_limit", [20_000, 100], ids=["all pairs", "cells"])
def test_tasks_find_the_neighbors_of_one_process(exact_limit, images):
    expected = deformable_graph(images, 6, effort=efforts(exact_limit))
    tasks = TasksHere()
    found = by_tasks(images, tasks, effort=efforts(exact_limit))
    assert tasks.n_tasks > 12
    assert_array_equal(found.neighbors, expected.neighbors)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-5)
    assert type(found.search) is type(expected.search)


def test_finished_blocks_are_kept(images):
    class Kept(Stage):
        def __init__(self):
            super().__init__()
            self.arrays = {}

        def kept(self):
            return self.arrays

        def keep(self, arrays, *, finished=False):
            if not finished:
                self.arrays = {name: part[:256] for name, part in arrays().items()}

    stage, first, second = Kept(), TasksHere(), TasksHere()
    expected = by_tasks(images, first, effort=efforts(100), stage=stage)
    n_rows = {len(part) for part in stage.arrays.values()}
    assert n_rows == {256}
    resumed = by_tasks(images, second, effort=efforts(100), stage=stage)
    assert second.n_tasks < first.n_tasks
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
