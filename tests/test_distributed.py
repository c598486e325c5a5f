"""Fits on a cluster of processes: the objective of one process, also after a worker dies or the scheduler is lost."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tubal
from tubal.datasets import fetch_coil20, make_shifted_shapes
from tubal.graph import knn_graph
from tubal.learning.checkpoints import Checkpoint
from tubal.solvers import Admm

pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

from distributed import Client, LocalCluster  # noqa: E402

from tubal import distributed  # noqa: E402
from tubal.clustering import affinity, clusterer  # noqa: E402
from tubal.distributed import NoWorkerWarning, cluster, connect, fit  # noqa: E402
from tubal.graph.deformable import Effort  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def start(n_workers):
    return LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )


@pytest.fixture(scope="module")
def client():
    with start(3) as cluster, Client(cluster) as found:
        yield found


@pytest.fixture(scope="module")
def images():
    """Five kinds of images, shuffled, so that neighbours are spread over the partitions."""
    random = np.random.default_rng(0)
    kinds = random.random((5, 7, 6))
    found = np.concatenate([kind + 0.15 * random.random((24, 7, 6)) for kind in kinds])
    return found[random.permutation(len(found))]


def coder(name="GTSC", **parameters):
    return getattr(tubal, name)(**({"n_atoms": 6, "max_iter": 10, "tol": 0.0, "random_state": 0} | parameters))


@pytest.mark.parametrize("name", ["TubSC", "SparseCoding"])
def test_fit_without_graph_equals_one_process(name, images, client):
    expected = coder(name).fit(images)
    model = fit(coder(name), da.from_array(images, chunks=(17, 7, 6)), client)
    assert_allclose(model.objective_, expected.objective_, rtol=1e-6)
    assert_allclose(model.codes_, expected.codes_, atol=1e-5)
    assert_allclose(model.transform(images[:4]), expected.transform(images[:4]), atol=1e-5)


def test_objective_with_graph_never_increases(images, client):
    expected = coder(max_iter=15).fit(images)
    model = fit(coder(max_iter=15), images, client)
    assert (np.diff(model.objective_) <= 1e-10 * model.objective_[0]).all()
    assert model.objective_[-1] <= (1 + 1e-3) * expected.objective_[-1]  # exchanges within a step lower it further
    assert (model.graph_.adjacency != expected.graph_.adjacency).nnz == 0
    assert_array_equal(model.transform(images), model._pool(model.codes_))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_graph_on_the_workers_is_exact(metric, images, client):
    copies = images.copy()
    copies[40:60] = copies[3]
    scaled = copies / np.linalg.norm(copies.reshape(len(copies), -1), axis=1)[:, None, None]
    model = fit(coder(graph=metric, max_iter=1), copies, client)
    expected = knn_graph(scaled, 3, metric=metric)
    assert_array_equal(model.graph_.neighbors, expected.neighbors)


def test_workers_read_files_and_keep_codes(images, client, tmp_path):
    paths = []
    for number, part in enumerate(np.array_split(images, 3)):
        paths.append(tmp_path / f"part{number}.npy")
        np.save(paths[-1], part)
    model = fit(coder("TubSC", scale=None), paths, client, gather=False)
    assert isinstance(model.codes_, da.Array)
    expected = coder("TubSC", scale=None).fit(images)
    assert_allclose(model.codes_.compute(), expected.codes_, atol=1e-5)


def test_replaced_atoms_and_scale_equal_one_process(images, client):
    expected = coder("TubSC", scale="max", sparsity=1.0, n_atoms=20).fit(images)
    model = fit(coder("TubSC", scale="max", sparsity=1.0, n_atoms=20), images, client)
    assert model.n_reseeded_ == expected.n_reseeded_ > 0
    assert_allclose(model.objective_, expected.objective_, rtol=1e-6)


def kill_worker(client, delay):
    """Kill a worker process with SIGKILL after a delay."""

    def work():
        time.sleep(delay)
        processes = list(client.run(os.getpid).values())
        os.kill(processes[0], signal.SIGKILL)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def killable_client():
    with start(2) as cluster, Client(cluster) as found:
        yield found


def test_killed_worker_does_not_change_the_result(images, killable_client):
    expected = fit(coder(max_iter=6), images, killable_client, n_partitions=4)
    model, killer = coder(max_iter=6), None

    def begin(progress):
        nonlocal killer
        if progress.n_iter == 3:
            killer = kill_worker(killable_client, 0.0)

    fit(model.set_params(callbacks=begin), images, killable_client, n_partitions=4)
    killer.join()
    assert_array_equal(model.objective_, expected.objective_)
    assert_array_equal(model.codes_, expected.codes_)


def test_worker_killed_during_the_graph_does_not_change_the_result(images, killable_client, monkeypatch):
    import tubal.distributed as module

    expected = fit(coder(max_iter=1), images, killable_client, n_partitions=4)
    search = module.block_graph

    def block_graph_and_kill(*arguments):
        killer = kill_worker(killable_client, 0.05)
        try:
            return search(*arguments)
        finally:
            killer.join()

    monkeypatch.setattr(module, "block_graph", block_graph_and_kill)
    model = fit(coder(max_iter=1), images, killable_client, n_partitions=4)
    assert_array_equal(model.graph_.neighbors, expected.graph_.neighbors)
    assert_array_equal(model.codes_, expected.codes_)


def test_fit_resumes_after_a_lost_scheduler(images, client, tmp_path):
    expected = fit(coder(max_iter=6), images, client, n_partitions=4)
    place = tmp_path / "fit.ckpt"
    cluster = start(2)
    lost = Client(cluster)

    def close_scheduler(progress):
        if progress.n_iter == 4:
            cluster.close(timeout=1)

    with pytest.raises(ConnectionError, match=r"scheduler .* was lost; start one and fit again with Checkpoint"):
        fit(
            coder(max_iter=6, callbacks=close_scheduler), images, lost, n_partitions=4,
            checkpoint=Checkpoint(place, every_seconds=0.0),
        )  # fmt: skip
    lost.close(timeout=1)
    seen = []
    resumed = fit(
        coder(max_iter=6, callbacks=lambda progress: seen.append(progress.n_iter)), images, client,
        n_partitions=4, checkpoint=Checkpoint(place, resume=True),
    )  # fmt: skip
    assert seen[0] == 4
    assert_allclose(resumed.objective_, expected.objective_, rtol=1e-6)
    assert_allclose(resumed.codes_, expected.codes_, atol=1e-6)


def test_one_other_image_is_noticed(images, client, tmp_path):
    place, others = tmp_path / "fit.ckpt", images.copy()
    others[len(images) // 2, 2, 3] += 0.5
    fit(coder("TubSC", max_iter=2), images, client, n_partitions=3, checkpoint=place)
    with pytest.raises(ValueError, match="another fit: images differ"):
        fit(coder("TubSC", max_iter=2), others, client, n_partitions=3, checkpoint=Checkpoint(place, resume=True))


def test_errors_state_their_cause(images, client):
    with pytest.raises(ConnectionError, match="no Dask scheduler at"):
        connect("tcp://127.0.0.1:9")
    with pytest.raises(ValueError, match="NaN or infinity"):
        fit(coder(), images * np.nan, client)
    with pytest.raises(ValueError, match="not built on a cluster"):
        fit(coder(graph="deformable"), images, client)


# --- clusters --------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def shapes():
    """Three kinds of shapes that move, as many that cells are searched and atoms come from a sample."""
    found = make_shifted_shapes(360, n_classes=3, image_shape=(12, 12), random_state=0).images
    return (found + 0.3 * np.random.default_rng(0).random(found.shape)).astype(np.float32)


@pytest.fixture(params=[100, 20_000], ids=["cells", "all pairs"])
def small_effort(request, monkeypatch):
    effort = Effort(30, 20, 16, 0, exact_limit=request.param)
    monkeypatch.setattr(affinity, "clustering_effort", lambda n_images, n_neighbors: effort)
    monkeypatch.setattr(clusterer, "LEARNED_WHOLE", request.param)
    monkeypatch.setattr(clusterer, "LEARNED_FROM", 90)


def settings(n_clusters=3):
    return tubal.ImageClusterer(n_clusters, n_atoms=4, random_state=0)


def assert_same_clusters(found, expected):
    assert_array_equal(found.labels_, expected.labels_)
    assert_array_equal(found.graph_.neighbors, expected.graph_.neighbors)
    assert_allclose(found.features_, expected.features_, atol=1e-5)


def test_clusters_equal_those_of_one_process(shapes, small_effort, client, tmp_path):
    expected = settings().fit(shapes)
    found = cluster(shapes, client, model=settings())
    assert_same_clusters(found, expected)
    assert_array_equal(found.predict(shapes[:5] + np.float32(0.01)), expected.predict(shapes[:5] + np.float32(0.01)))
    np.save(tmp_path / "images.npy", shapes)
    assert_same_clusters(cluster(tmp_path / "images.npy", client, model=settings()), expected)


def test_killed_worker_does_not_change_the_clusters(shapes, killable_client, monkeypatch):
    effort = Effort(30, 20, 16, 0, exact_limit=100)
    monkeypatch.setattr(affinity, "clustering_effort", lambda n_images, n_neighbors: effort)
    expected, killers = settings(None).fit(shapes), []

    def kill_in_the_middle(stage, done, total):
        if stage == "finding neighbours" and 0 < done < total and not killers:
            killers.append(kill_worker(killable_client, 0.0))
            killers[0].join()

    found = cluster(shapes, killable_client, model=settings(None), progress=kill_in_the_middle)
    assert killers
    assert_same_clusters(found, expected)


def test_clusters_that_cannot_be_found_on_a_cluster_are_named(shapes, client):
    with pytest.raises(ValueError, match="only the deformable graph"):
        cluster(shapes, client, model=tubal.ImageClusterer(3, graph="cosine"))
    with pytest.raises(ValueError, match="n_clusters and a model"):
        cluster(shapes, client, n_clusters=3, model=settings())
    with pytest.raises(ValueError, match="rows without a shape"):
        cluster(shapes.reshape(len(shapes), -1), client, n_clusters=3)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        cluster("nothing.npy", client, n_clusters=3)


@pytest.mark.collection("coil20")
def test_real_images_reach_the_objective_of_one_process(client):
    images = np.asarray(fetch_coil20().images, np.float64)[:288:3]
    # With few steps the cluster's objective is up to 1 % lower before convergence; after convergence both agree.
    model = tubal.GTSC(n_atoms=10, random_state=0, max_iter=40, tol=0.0, code_solver=Admm(max_iter=20, tol=1e-3))
    expected = model.fit(images).objective_[-1]
    found = fit(model, images, client).objective_[-1]
    assert_allclose(found, expected, rtol=1e-3)


# --- clusters without workers ------------------------------------------------------------------------------------
@pytest.fixture
def empty(monkeypatch):
    """A scheduler without workers; nobody waits long for one."""
    monkeypatch.setattr(distributed, "WORKER_SECONDS", 0.5)
    with LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=None) as found:
        yield found


@pytest.mark.parametrize(
    "call", [connect, lambda address: cluster(np.eye(4), address), lambda address: fit(coder(), np.eye(4), address)]
)
def test_scheduler_without_worker_is_named(call, empty):
    with pytest.raises(ConnectionError, match=r"has no worker, and none came within .* start one with `dask worker"):
        call(empty.scheduler_address)


def test_worker_that_comes_late_is_awaited(empty, monkeypatch):
    monkeypatch.setattr(distributed, "WORKER_SECONDS", 20.0)
    empty.adapt(minimum=0, maximum=1, interval="100ms")
    with connect(empty.scheduler_address) as found:
        assert found.nthreads()


def test_run_without_worker_says_once_that_it_waits(images, empty):
    empty.scale(1)

    def lose_worker(progress):
        if progress.n_iter == 2:
            empty.scale(0)
            threading.Timer(3.0, empty.scale, (1,)).start()

    with Client(empty) as found:
        found.wait_for_workers(1)
        with pytest.warns(NoWorkerWarning, match="has no worker any more") as told:
            fit(coder("TubSC", max_iter=4, callbacks=lose_worker), images, found)
    assert len([entry for entry in told if entry.category is NoWorkerWarning]) == 1
