"""Fits in chunks: every source, codes on disk, the exact objective, and memory in proportion to the chunk."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tubal
from helpers.peak_memory import peak_of
from tubal.datasets import fetch_coil20, fetch_usps
from tubal.graph import knn_graph, laplacian
from tubal.graph.build import RowFile, chunked_knn_graph, crossing_share, order_along_graph
from tubal.learning.alternation import ChunkCodes, MemoryStore, Weights, initial_state, learn
from tubal.learning.checkpoints import DiskStore
from tubal.learning.chunks import ChunkedImages, SlicedSource, as_source, copy_to_file
from tubal.learning.fitting import MemoryNeed, chunk_size_for, fit_need, initial_atoms
from tubal.problems.base import MomentumState, SplitState
from tubal.problems.layout import ImageLayout
from tubal.problems.tubal import TubalModel
from tubal.solvers import Admm, Fista, LagrangeDual


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((60, 6, 5))


def coder(name="TubSC", **parameters):
    return getattr(tubal, name)(**({"n_atoms": 4, "max_iter": 5, "tol": 0.0, "random_state": 0} | parameters))


def hdf5(images, folder):
    h5py = pytest.importorskip("h5py")
    file = h5py.File(folder / "images.h5", "w")
    return file.create_dataset("images", data=images, chunks=(7, *images.shape[1:]))


def zarr_array(images, folder):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(folder / "images.zarr"), shape=images.shape, dtype=images.dtype, chunks=(7, 6, 5))
    array[:] = images
    return array


def memory_map(images, folder):
    np.save(folder / "images.npy", images)
    return np.load(folder / "images.npy", mmap_mode="r")


SOURCES = {
    "memory map": memory_map,
    "HDF5": hdf5,
    "Zarr": zarr_array,
    "array": lambda images, folder: images,
    "iterator": lambda images, folder: iter(np.array_split(images, 4)),
    "rows as list": lambda images, folder: images.tolist(),
}


@pytest.mark.parametrize("name", ["TubSC", "GTSC"])
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_model(name, source, images, tmp_path):
    expected = coder(name).fit(images, chunk_size=17)
    model = coder(name).fit(SOURCES[source](images, tmp_path), chunk_size=17)
    assert_array_equal(model.atoms_, expected.atoms_)
    assert_array_equal(model.codes_, expected.codes_)
    assert_array_equal(model.objective_, expected.objective_)


def test_function_of_batches_is_called_repeatedly(images):
    calls = []

    def batches():
        calls.append(1)
        return iter(np.array_split(images, 4))

    model = coder().fit(batches)
    assert_allclose(model.objective_, coder().fit(images).objective_, rtol=1e-9)
    assert len(calls) > 5


@pytest.mark.parametrize("name", ["TubSC", "SparseCoding"])
def test_chunks_without_graph_differ_by_rounding_only(name, images):
    whole, chunked = coder(name).fit(images), coder(name).fit(images, chunk_size=13)
    assert_allclose(chunked.objective_, whole.objective_, rtol=1e-9)
    assert_allclose(chunked.codes_, whole.codes_, atol=1e-6)
    assert_allclose(chunked.transform(images[:5]), whole.transform(images[:5]), atol=1e-6)


@pytest.mark.parametrize("solver", [Admm(max_iter=20), Fista(max_iter=20)])
def test_codes_on_disk_equal_codes_in_memory(solver, images, tmp_path):
    in_memory = coder("GTSC", code_solver=solver).fit(images, chunk_size=17)
    on_disk = coder("GTSC", code_solver=solver).fit(images, chunk_size=17, folder=tmp_path)
    assert_array_equal(on_disk.codes_, in_memory.codes_)
    assert_array_equal(on_disk.objective_, in_memory.objective_)
    assert not list(tmp_path.glob("codes-*/chunk*"))


def test_objective_over_chunks_is_exact(images):
    layout, model = ImageLayout((6, 5)), TubalModel()
    matrix, weights = laplacian(knn_graph(images, 3)), Weights(0.01, 1.0)
    collection = ChunkedImages(SlicedSource(images, 17), layout.to_tensor, matrix)
    whole, seen = layout.to_tensor(images), []

    def recompute(progress):
        codes = progress.store.collect()
        problem = model.coding(progress.state.dictionary, whole, sparsity=0.01, graph_weight=1.0, laplacian=matrix)
        seen.append(problem.value(codes))

    start = initial_state(initial_atoms(whole, layout, np.random.RandomState(0), n_atoms=4, init="images"), model)
    state = learn(
        model, collection, start, weights, code_solver=Admm(max_iter=10), dictionary_solver=LagrangeDual(),
        max_iter=6, tol=0.0, callbacks=[recompute],
    )  # fmt: skip
    assert_allclose(state.objective[:-1], seen[:-1], rtol=1e-11)  # the last is that of the final codes
    assert (np.diff(seen) <= 0).all()


@pytest.mark.parametrize("scale", ["unit", "max", None])
def test_chunks_are_scaled_by_one_factor(scale, images):
    whole, chunked = coder(scale=scale).fit(images), coder(scale=scale).fit(images, chunk_size=17)
    assert chunked.scale_factor_ == whole.scale_factor_
    assert_allclose(chunked.objective_, whole.objective_, rtol=1e-8)


def test_matrix_and_rows_are_fitted_in_chunks(images):
    graph = knn_graph(images, 2)
    rows = images.reshape(60, -1)
    model = coder("GTSC", graph=graph.adjacency, image_shape=(6, 5)).fit(rows, chunk_size=17)
    assert model.codes_.shape == (60, 4, 5)
    other = coder("GTSC", graph=graph, image_shape=(6, 5)).fit(rows, chunk_size=17)
    assert_array_equal(model.codes_, other.codes_)


def test_model_fitted_in_chunks_saves_and_loads(images, tmp_path):
    model = coder("GTSC").fit(images, chunk_size=17)
    assert_array_equal(model.encode(images[3:6]), model.codes_[3:6])
    tubal.save(model, tmp_path / "model")
    loaded = tubal.load(tmp_path / "model")
    assert_array_equal(loaded.transform(images), model.transform(images))


def test_deformable_graph_in_chunks_raises(images):
    with pytest.raises(ValueError, match="deformable_graph"):
        coder("GTSC", graph="deformable").fit(images, chunk_size=17)
    with pytest.raises(ValueError, match="graph is 'nonsense'"):
        coder("GTSC", graph="nonsense").fit(images, chunk_size=17)


# --- inconsistent sources ------------------------------------------------------------------------------------------
def test_inconsistent_sources_raise(images):
    def shrinking(count=[4]):  # noqa: B006
        count[0] -= 1
        return iter(np.array_split(images, 4)[: count[0] + 1])

    with pytest.raises(ValueError, match="fresh iterator over the same batches"):
        coder().fit(shrinking)
    other = iter([images[:5], images[:5, :4]])
    with pytest.raises(ValueError, match="was expected"):
        coder().fit(other)
    with pytest.raises(ValueError, match="yielded nothing"):
        coder().fit(iter([]))
    with pytest.raises(ValueError, match="yielded nothing"):
        coder().fit(lambda: iter([]))
    with pytest.raises(TypeError, match="an iterator of batches is wanted"):
        coder().fit(lambda: 3)
    with pytest.raises(TypeError, match="need no arguments"):
        coder().fit(lambda path: iter([images]))
    with pytest.raises(ValueError, match="NaN or infinity"):
        coder().fit(iter([images, images * np.nan]))
    with pytest.raises(ValueError, match="chunk_size=0"):
        coder().fit(images, chunk_size=0)


def test_batch_that_changes_between_passes_raises(images):
    state = {"call": 0}

    def changing():
        state["call"] += 1
        return iter([images[:30], images[30:] if state["call"] < 3 else images[31:]])

    with pytest.raises(ValueError, match=r"expected|same batches"):
        coder().fit(changing)


def test_copied_file_is_deleted_with_its_source(images, tmp_path):
    source = copy_to_file(iter([images]), tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert_array_equal(source.chunk(0), images)
    del source
    import gc

    gc.collect()
    assert not list(tmp_path.iterdir())


def test_narrow_integers_are_read_as_single_precision(tmp_path):
    bytes_ = np.random.default_rng(0).integers(0, 255, (9, 4, 4), np.uint8)
    assert as_source(bytes_, 4).chunk(1).dtype == np.float32
    assert coder(n_atoms=2).fit(bytes_, chunk_size=4).atoms_.dtype == np.float32


# --- graphs in blocks ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("n_copies", [0, 40])
def test_graph_found_in_blocks_equals_the_graph_in_memory(metric, n_copies, monkeypatch):
    monkeypatch.setattr("tubal.graph.neighbors._BLOCK_BYTES", 2000)
    images = np.random.default_rng(1).random((150, 5, 4)).astype(np.float32)
    images[60 : 60 + n_copies] = images[0]
    expected = knn_graph(images, 3, metric=metric)
    found = chunked_knn_graph(RowFile.spool([images[:50], images[50:]]), 3, metric)
    assert_array_equal(found.neighbors, expected.neighbors)
    assert_allclose(found.distances, expected.distances, atol=1e-6)
    assert (found.adjacency != expected.adjacency).nnz == 0
    new = np.random.default_rng(2).random((7, 5, 4)).astype(np.float32)
    assert isinstance(found.search.images, np.memmap)
    assert_array_equal(found.query(new)[0], expected.query(new)[0])


def test_ordering_along_the_graph_leaves_few_edges_between_chunks():
    random = np.random.default_rng(0)
    points = np.concatenate([random.normal(centre, 0.1, (40, 6)) for centre in range(5)])
    points = points[random.permutation(200)]
    graph = knn_graph(points, 3)
    sizes = [50, 50, 50, 50]
    order = order_along_graph(graph.adjacency, sizes)
    assert_array_equal(np.sort(order), np.arange(200))
    assert crossing_share(graph.adjacency, order, sizes) < 0.2
    assert crossing_share(graph.adjacency, np.arange(200), sizes) > 0.6


# --- the store -----------------------------------------------------------------------------------------------
def test_disk_store_equals_memory_store(tmp_path):
    random = np.random.default_rng(0)
    codes, point = random.random((3, 4, 9)), random.random((3, 4, 9)).astype(np.float32)
    disk, memory = DiskStore(tmp_path), MemoryStore()
    assert disk.get(0) is None
    assert disk.gather(0, np.array([1])) is None
    for store in (disk, memory):
        store.put(0, ChunkCodes(codes, SplitState(point, random.random(9))))
        store.put(1, ChunkCodes(codes[..., :4], MomentumState(*(point[..., :4],) * 2, *(random.random(4),) * 2)))
    for index in (0, 1):
        assert_array_equal(disk.codes_of(index), memory.codes_of(index))
        assert_array_equal(disk.gather(index, np.array([2, 0])), memory.gather(index, np.array([2, 0])))
    assert_array_equal(disk.get(0).state.point, point)
    assert_array_equal(disk.get(1).state.momentum_point, point[..., :4])
    assert_array_equal(disk.collect(), memory.collect())
    order = random.permutation(13)
    mapped = disk.collect(tmp_path / "codes.npy", order)
    assert_array_equal(mapped[..., order], memory.collect())


# --- partial_fit -----------------------------------------------------------------------------------------------
def test_partial_fit_learns_from_a_stream(images):
    model = coder()
    for batch in np.array_split(np.concatenate([images] * 5), 20):
        model.partial_fit(batch)
    start = coder(max_iter=1).fit(images)
    gap = ((images - model.decode(model.encode(images))) ** 2).sum()
    assert model.n_samples_seen_ == 300
    assert (np.linalg.norm(model.atoms_.reshape(4, -1), axis=1) <= 1 + 1e-9).all()
    scaled = images / np.linalg.norm(images.reshape(60, -1), axis=1)[:, None, None]

    def objective(found):
        codes = found.encode(images)
        return 0.5 * ((scaled - found.decode(codes)) ** 2).sum() + found.sparsity * abs(codes).sum()

    assert gap > 0
    assert objective(model) < 0.97 * objective(start)


def test_statistics_do_not_depend_on_the_batches(images):
    solver = Admm(max_iter=1000, tol=1e-10)
    whole = coder(code_solver=solver, max_iter=1, init=coder().fit(images).dictionary_)
    halves = coder(code_solver=solver, max_iter=1, init=whole.init)
    whole.partial_fit(images, horizon=100.0)
    halves.partial_fit(images[:30], horizon=100.0)
    fresh = coder(code_solver=solver, init=whole.init).partial_fit(images[30:], horizon=100.0)
    kept = np.exp(-30 / 100.0)
    halves.dictionary_ = fresh.init / np.linalg.norm(fresh.init, axis=(0, 1))  # the same atoms for both halves
    expected = kept * halves.statistics_.squares + fresh.statistics_.squares
    halves.partial_fit(images[30:], horizon=100.0)
    assert_allclose(halves.statistics_.squares, expected, rtol=1e-12)


def test_partial_fit_with_graph_weight_raises(images):
    model = coder("GTSC")
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'") as caught:
        model.partial_fit(images)
    assert "partial_fit learns from each batch alone, and graph_weight=1.0" in str(caught.value.__cause__)
    coder("GTSC", graph_weight=0).partial_fit(images)
    with pytest.raises(ValueError, match="horizon=0"):
        coder().partial_fit(images, horizon=0)


# --- memory --------------------------------------------------------------------------------------------------
def test_images_larger_than_memory_are_fitted_in_chunks(images, monkeypatch):
    expected = coder("GTSC").fit(images)
    need = fit_need(pixels=30, codes=20, atom_values=120, itemsize=8, n_graph_images=len(images))
    monkeypatch.setattr("tubal.learning.fitting.SMALLEST_CHUNK", 8)
    monkeypatch.setattr("tubal.learning.fitting.available_memory", lambda: need.for_images(25) / 0.7)
    model = coder("GTSC").fit(images)
    assert_allclose(model.objective_[-1], expected.objective_[-1], rtol=0.1)
    assert not np.array_equal(model.codes_, expected.codes_)


def test_too_little_memory_raises():
    assert chunk_size_for(MemoryNeed(10.0, 0.0), 100, available=10**6) == 100
    with pytest.raises(MemoryError, match="use fewer atoms, smaller images or float32"):
        chunk_size_for(MemoryNeed(1e9, 0.0), 100, available=10**9)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_peak_memory_is_proportional_to_the_chunk(weight, tmp_path):
    pytest.importorskip("h5py")
    images = np.random.default_rng(0).random((8000, 20, 20), np.float32)
    peak, need = peak_of(images, tmp_path, chunk=2000, weight=weight, n_atoms=24)
    assert peak <= 1.2 * need.for_images(2000), (peak, need.for_images(2000))
    assert peak <= 0.5 * need.for_images(8000)


@pytest.mark.collection("coil20", "usps")
@pytest.mark.parametrize("fetch", [fetch_coil20, fetch_usps])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_real_collections_in_chunks_reach_the_objective(fetch, weight):
    images = np.asarray(fetch().images, np.float32)[::8]
    model = tubal.GTSC(n_atoms=20, graph_weight=weight, random_state=0, max_iter=12)
    whole = model.fit(images).objective_[-1]
    chunked = model.fit(images, chunk_size=len(images) // 4 + 1).objective_[-1]
    assert chunked <= 1.01 * whole
