"""The deformable graph against its definition, against an exhaustive search, and on unusual images."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from helpers import deformable_reference as reference
from tubal.datasets import fetch
from tubal.graph import (
    Deformation,
    Effort,
    candidate_recall,
    cells,
    deformable_graph,
    knn_graph,
    restore_graph,
)
from tubal.graph.affine import (
    MotionCoefficients,
    WorkingImages,
    WorkingSize,
    best_motions,
    bilinear_table,
    field_layout,
    field_stack,
    measure_pairs,
    sobel_matrix,
    table_matrix,
)
from tubal.graph.deformable import FARTHEST
from tubal.graph.neighbors import spread_over_copies
from tubal.graph.structure import limit_in_degree
from tubal.learning.fitting import resolve_graph


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def glyphs(rng, n_each=12, size=24):
    """Return drawings of a ring, a cross and a corner, each slightly rotated, scaled and shifted, with noise."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    radius = np.hypot(y, x)
    drawings = [
        np.exp(-((radius - size / 4) ** 2) / 3),
        np.exp(-(y**2) / 3) * (abs(x) < size / 3) + np.exp(-(x**2) / 3) * (abs(y) < size / 3),
        np.exp(-((y - size / 5) ** 2) / 3) * (x < size / 5) + np.exp(-((x + size / 4) ** 2) / 3) * (y < size / 5),
    ]
    images, labels = [], []
    for label, drawing in enumerate(drawings):
        for _ in range(n_each):
            turn, zoom, shift = rng.uniform(-8, 8), rng.uniform(0.95, 1.05), rng.uniform(-2, 2, size=2)
            images.append(reference.moved(drawing, turn, zoom, *shift) + 0.05 * rng.normal(size=drawing.shape))
            labels.append(label)
    return np.array(images, dtype=np.float32), np.array(labels)


def purity(neighbors, labels):
    return 100 * np.mean(labels[neighbors] == labels[:, None])


# --- parts of the search, each against a slower version ---------------------------------------------------


@pytest.mark.parametrize("motion", [(0, 1, 0, 0), (7, 1.05, 0, 0), (-10, 0.92, 1.5, -2), (0, 1, 2, -1)])
@pytest.mark.parametrize("shape", [(9, 12), (1, 10), (16, 16)])
def test_bilinear_table_interpolates(rng, motion, shape):
    image = rng.random(shape)
    corners, shares = bilinear_table(shape, *motion)
    expected = reference.moved(image, *motion)
    assert_allclose((shares * image.ravel()[corners]).sum(axis=0).reshape(shape), expected, atol=1e-6)
    assert_allclose((table_matrix(corners, shares) @ image.ravel()).reshape(shape), expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(9, 12), (1, 10), (10, 1)])
def test_gradient_fields_are_unit_sobel_fields(rng, shape):
    images = rng.random((3, 1, shape[0] * shape[1])).astype(np.float32)
    fields, energies = field_stack(images, shape, threads=1)
    expected = reference.unit_fields(images.reshape(3, *shape)).reshape(3, 2, -1)
    assert_allclose(fields, expected, atol=1e-6)
    raw = (sobel_matrix(shape) @ images[:, 0].T).T
    assert_allclose(raw.reshape(3, 2, -1) / np.sqrt(energies)[:, None, None], expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(9, 12), (1, 10)])
def test_pixel_fields_are_unit_pixels(rng, shape):
    images = rng.random((3, 2, shape[0] * shape[1])).astype(np.float32)
    fields, energies = field_stack(images, shape, use_pixels=True, threads=1)
    assert_allclose(energies, (images**2).sum(axis=(1, 2)), rtol=1e-5)
    assert_allclose(fields[:, ::2], images / np.sqrt(energies)[:, None, None], rtol=1e-5)
    assert not fields[:, 1::2].any()


@pytest.mark.parametrize("reach", [0, 1, 2])
@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("context", [0, 1, 2])
@pytest.mark.parametrize("shift", [(0, 0), (2, -1), (-2, 2)])
@pytest.mark.parametrize(("shape", "channels"), [((9, 12), 1), ((16, 7), 3), ((1, 15), 1)])
def test_local_warp_distance_follows_its_definition(rng, context, shift, shape, channels, pixels, reach):
    """Compare every pixel with every allowed partner; pixels without a partner are left out."""
    height, width = shape
    window, gap = (min(reach, height - 1), reach), 4
    shift = (shift[0] if height > 1 else 0, shift[1])
    left, right = rng.random((2, 1, channels, height * width)).astype(np.float32)
    flat = [field_stack(image, shape, use_pixels=pixels, threads=1)[0][0] for image in (left, right)]
    plain = [field.reshape(-1, *shape) for field in flat]
    edge = ((0, 0), (context, context), (context, context))
    a, b = (np.pad(field, edge, mode="edge") for field in plain)
    size = 2 * context + 1
    costs = np.full((height, width, height, width), np.inf)
    for y, x in np.ndindex(shape):
        for dy in range(shift[0] - window[0], shift[0] + window[0] + 1):
            for dx in range(shift[1] - window[1], shift[1] + window[1] + 1):
                v, u = y + dy, x + dx
                if 0 <= v < height and 0 <= u < width:
                    gap_here = a[:, y : y + size, x : x + size] - b[:, v : v + size, u : u + size]
                    costs[y, x, v, u] = (gap_here**2).sum()
    least = np.concatenate([costs.min(axis=(2, 3)).ravel(), costs.min(axis=(0, 1)).ravel()])
    expected = least[np.isfinite(least)].mean() * 2 * height * width
    framed = {"use_pixels": pixels, "margin": context, "gap": gap, "threads": 1}
    padded = [field_stack(image, shape, **framed)[0] for image in (left, right)]
    layout, found = field_layout(shape, margin=context, gap=gap, window=window), np.empty(1, dtype=np.float32)
    measure_pairs(*padded, np.zeros((1, 3), dtype=np.int32), np.array([shift]), layout, found)
    assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize(("n_channels", "field"), [(1, "gradient"), (3, "gradient"), (2, "pixels")])
def test_coefficients_of_warps_are_those_of_unit_fields(rng, n_channels, field):
    # More images than are warped at a time, and a blank one
    shape, n_images = (9, 12), 70
    images = rng.random((n_images, n_channels, 108)).astype(np.float32)
    images[3] = 0.0
    bank = Deformation(n_rotations=3, n_scales=2, field=field).bank(shape)
    working = WorkingImages(
        np.empty((n_images, *shape, n_channels)), np.arange(n_images), WorkingSize(shape, shape), 1.0, images
    )
    coefficients = MotionCoefficients.fit(working, bank, 16, rng)
    found, energies = coefficients.of_warps(images, threads=1)
    # Each warp is applied alone, and its field is computed as that of any image
    largest = np.zeros(n_images, dtype=np.float32)
    for number, (corners, shares) in enumerate(zip(*bank.warp_tables(), strict=True)):
        moved = (images[:, :, corners] * shares).sum(axis=2)
        energy = field_stack(moved, shape, use_pixels=bank.use_pixels, threads=1)[1]
        unscaled = images.reshape(n_images, -1) @ coefficients.warp_map.reshape(-1, len(bank.warps), 16)[:, number]
        lengths = np.sqrt(np.where(energy > 0.0, energy, np.inf))
        assert_allclose(found[:, number], unscaled / lengths[:, None], rtol=1e-4, atol=1e-6)
        largest = np.maximum(largest, energy)
    assert_allclose(energies, largest, rtol=1e-5)
    assert energies[3] == 0.0


@pytest.mark.parametrize(("n_shifts", "n_warps"), [(3, 1), (25, 15), (32, 4), (33, 6), (70, 2)])
def test_best_motions_have_the_largest_products(rng, n_shifts, n_warps):
    shifted, warped = (rng.normal(size=(n, m, 4)).astype(np.float32) for n, m in ((9, n_shifts), (7, n_warps)))
    candidates = rng.integers(-1, 7, size=(9, 6)).astype(np.int32)
    scores, warps, shifts = best_motions(shifted, warped, candidates, threads=1)
    products = np.einsum("isr,jwr->ijws", shifted, warped)[np.arange(9)[:, None], candidates]
    known = candidates >= 0
    assert_allclose(scores[known], products.max(axis=(2, 3))[known], rtol=1e-5)
    assert (scores[~known] < -1e29).all()
    rows, columns = np.indices(candidates.shape)
    assert_allclose(products[rows, columns, warps, shifts][known], scores[known], rtol=1e-5)


def test_the_first_of_equally_good_motions_is_taken(rng):
    shifted, warped = (rng.integers(-1, 2, size=(4, m, 3)).astype(np.float32) for m in (40, 9))
    candidates = np.tile(np.arange(4, dtype=np.int32), (4, 1))
    _, warps, shifts = best_motions(shifted, warped, candidates, threads=1)
    products = np.einsum("isr,jwr->ijws", shifted, warped).reshape(4, 4, -1)
    assert_array_equal(warps * 40 + shifts, products.argmax(axis=2))


def test_hubs_lose_their_farthest_edges(rng):
    n_images, wanted, limit = 60, 2, 4
    lists = np.array([[0 if i else 1, *rng.permutation(np.r_[1:i, i + 1 : n_images])[:20]] for i in range(n_images)])
    distances = np.sort(rng.random(lists.shape), axis=1)
    slots = limit_in_degree(lists, distances, wanted, limit)
    chosen = np.take_along_axis(lists, slots, axis=1)
    assert np.bincount(chosen.ravel()).max() <= limit
    keepers = np.flatnonzero((chosen == 0).any(axis=1))
    assert set(keepers) == set(1 + np.argsort(distances[1:, 0])[:limit])
    assert (np.diff(slots, axis=1) > 0).all()


def slow_limit(lists, distances, wanted, limit):
    """Let images choose one at a time; a crowded image drops the farthest, which chooses its next."""
    slots, tried, free = [[] for _ in lists], [0] * len(lists), list(np.repeat(np.arange(len(lists)), wanted))
    while free:
        row = free.pop()
        if tried[row] == len(lists[row]) or np.isinf(distances[row, tried[row]]):
            continue
        target = lists[row, tried[row]]
        slots[row].append(tried[row])
        tried[row] += 1
        every = ((distances[i, slot], i, slot) for i in range(len(lists)) for slot in slots[i])
        choices = [choice for choice in every if lists[choice[1:]] == target]
        if len(choices) > limit:
            _, loser, slot = max(choices)
            slots[loser].remove(slot)
            free.append(loser)
    return [sorted(chosen) + [-1] * (wanted - len(chosen)) for chosen in slots]


@pytest.mark.parametrize(("wanted", "limit"), [(1, 2), (3, 4), (6, 7)])
def test_limits_on_hubs_do_not_depend_on_the_order_of_choices(rng, wanted, limit):
    lists = np.argsort(rng.random((40, 40)) - 2.0 * rng.random(40), axis=1)[:, :12]
    distances = np.sort(rng.integers(0, 9, lists.shape).astype(np.float32), axis=1)
    distances[:7, 5:] = np.inf
    assert_array_equal(limit_in_degree(lists, distances, wanted, limit), slow_limit(lists, distances, wanted, limit))


def test_copies_are_listed_in_order():
    images, slots = spread_over_copies(np.array([[1], [0]]), np.array([0, 0, 0, 1]), 3, training=True)
    assert_array_equal(images, [[1, 2, 3], [2, 0, 3], [0, 1, 3], [0, 1, 2]])
    assert_array_equal(slots[0], [-1, -1, 0])


@pytest.mark.parametrize(
    ("source", "working"),
    [
        ((8, 8), (16, 16)),
        ((16, 16), (16, 16)),
        ((64, 64), (64, 64)),
        ((300, 200), (78, 52)),
        ((1, 40), (1, 40)),
    ],
)
def test_working_size_keeps_the_mean(rng, source, working):
    size = WorkingSize.of(source)
    assert size.shape == working
    images = rng.random((2, *source)).astype(np.float32)
    small = size.apply(images / images.max())
    if source[0] >= working[0]:
        assert_allclose(small.mean(axis=(1, 2)), images.mean(axis=(1, 2)) / images.max(), rtol=1e-4)


# --- the whole search ------------------------------------------------------------------------------------


def test_neighbors_of_deformed_drawings_have_the_same_class(rng):
    images, labels = glyphs(rng)
    graph = deformable_graph(images, 5)
    assert purity(graph.neighbors, labels) == 100
    assert not (graph.neighbors == np.arange(len(images))[:, None]).any()
    assert (np.diff(graph.distances, axis=1) >= 0).all()
    assert graph.max_in_degree <= 25
    assert (graph.adjacency != graph.adjacency.T).nnz == 0


def test_alignment_is_the_motion_of_the_neighbor(rng):
    drawing = glyphs(rng, n_each=1)[0][2]
    others = [reference.moved(drawing, 0, 1, 2, -1), reference.moved(drawing, 10, 1, 0, 0)]
    noise = list(rng.random((9, 24, 24)))
    graph = deformable_graph(np.array([drawing, *others, *noise]), 2)
    assert set(graph.neighbors[0]) == {1, 2}
    for slot, other in enumerate(graph.neighbors[0]):
        found = graph.alignments[0, slot]
        expected = (0, 1, -2, 1) if other == 1 else (-10, 1, 0, 0)
        assert (found.rotation, found.scale, found.dy, found.dx) == pytest.approx(expected)


def test_query_finds_the_same_class(rng):
    images, labels = glyphs(rng)
    train, new = np.delete(images, np.s_[::6], axis=0), images[::6]
    graph = deformable_graph(train, 4)
    indices, weights = graph.query(new)
    assert_array_equal(np.delete(labels, np.s_[::6])[indices], np.repeat(labels[::6, None], 4, axis=1))
    assert_array_equal(weights, np.ones((len(new), 4)))
    full = graph.query_full(train[:3])
    assert_array_equal(full.indices[:, 0], [0, 1, 2])
    assert_allclose(full.distances[:, 0], 0, atol=1e-6)
    assert_array_equal(graph.identical(train[[4, 2]]), [4, 2])


@pytest.mark.parametrize("as_images", [np.asarray, "torch"])
def test_query_finds_more_neighbors_than_are_kept(rng, as_images):
    as_images = pytest.importorskip("torch").as_tensor if as_images == "torch" else as_images
    images, _ = glyphs(rng)
    effort = Effort(n_candidates=4, n_kept=3, rank=64, context=1)
    graph = deformable_graph(as_images(images), 2, effort=effort)
    found = graph.query_full(glyphs(rng, n_each=1)[0], 10)
    assert all(len(set(row)) == 10 for row in found.indices)
    assert found.indices.min() >= 0
    assert (np.diff(found.distances, axis=1) >= 0).all()


@pytest.mark.parametrize("as_images", [np.asarray, "torch"])
def test_neighbors_among_some_images_are_those_of_a_search_over_them(rng, as_images):
    as_images = pytest.importorskip("torch").as_tensor if as_images == "torch" else as_images
    # Given images of which one is there twice, and some of which are left out
    images, _ = glyphs(rng)
    images[5] = images[4]
    search = deformable_graph(as_images(images), 3).search
    known, queries = np.delete(np.arange(36), [0, 7, 20]), np.array([1, 4, 30])
    # When the neighbours of three are found among the others, then nothing else is nearer
    found = search.nearest_among(queries, known, 4)
    for row, query in enumerate(queries):
        others = known[known != query]
        expected = search.reduced(others).nearest(images[query][None], 4)
        assert_array_equal(found.indices[row], others[expected.indices[0]])
        assert_allclose(found.distances[row], expected.distances[0], atol=1e-6)


def test_release_memory_does_not_change_queries(rng):
    images, _ = glyphs(rng, n_each=6)
    graph = deformable_graph(images, 3)
    new = glyphs(rng, n_each=2)[0]
    before = graph.query_full(new)
    graph.search.release_memory()
    assert "prepared" not in graph.search.__dict__
    after = graph.query_full(new)
    assert_array_equal(after.indices, before.indices)
    assert_array_equal(after.distances, before.distances)


def test_restored_graph_gives_the_same_neighbors(rng):
    images, _ = glyphs(rng, n_each=6)
    graph = deformable_graph(images, 3)
    arrays, meta = graph.state()
    again = restore_graph(arrays, json.loads(json.dumps(meta)))
    new = glyphs(rng, n_each=2)[0]
    for left, right in zip(again.query(new), graph.query(new), strict=True):
        assert_array_equal(left, right)
    assert_array_equal(again.alignments.stack(), graph.alignments.stack())


def test_graph_depends_on_the_seed_only(rng):
    images, _ = glyphs(rng, n_each=40)
    graph = deformable_graph(images, 3, random_state=3)
    assert_array_equal(deformable_graph(images, 3, random_state=3).neighbors, graph.neighbors)
    blocked = deformable_graph(images, 3, random_state=3, memory_budget=3e6)
    assert np.mean(blocked.neighbors == graph.neighbors) > 0.8  # a smaller basis changes some neighbours


@pytest.mark.parametrize("shape", [(1, 40), (40, 1), (7, 19), (2, 9), (90, 60), (12, 12, 3), (5, 4)])
def test_any_shape_gives_a_complete_graph(rng, shape):
    images = rng.random((30, *shape))
    graph = deformable_graph(images, 4)
    assert graph.neighbors.shape == (30, 4)
    assert np.isfinite(graph.distances).all()
    assert all(len(set(row)) == 4 for row in graph.neighbors)
    assert graph.query(images[:2])[0].shape == (2, 4)


def test_color_channels_are_compared(rng):
    """Drawings that differ only in their channel are not neighbours."""
    images, labels = glyphs(rng, n_each=8)
    coloured = np.zeros((2 * len(images), 24, 24, 3), dtype=np.float32)
    coloured[: len(images), ..., 0], coloured[len(images) :, ..., 2] = images, images
    graph = deformable_graph(coloured, 3)
    assert purity(graph.neighbors, np.r_[labels, labels + 3]) == 100


def test_field_pixels_compares_pixels_instead_of_gradients(rng):
    """Pixels are sensitive to light; without motions and warps they give ordinary nearest neighbours."""
    images, labels = glyphs(rng)
    model = Deformation(field="pixels")
    assert purity(deformable_graph(images, 5, deformation=model).neighbors, labels) == 100
    still = Deformation(rotation=0, n_rotations=1, scale=1, n_scales=1, shift=0, window=0, field="pixels")
    noise = rng.random((40, 16, 16)).astype(np.float32)
    effort = Effort(n_candidates=39, n_kept=39, rank=40, context=0)
    found = deformable_graph(noise, 3, deformation=still, effort=effort)
    rows = noise.reshape(40, -1) / np.linalg.norm(noise.reshape(40, -1), axis=1, keepdims=True)
    assert_array_equal(found.neighbors, np.argsort(cdist(rows, rows), axis=1)[:, 1:4])
    side = np.arange(len(images)) % 2
    lit = images + 2 * side[:, None, None].astype(np.float32)
    assert purity(deformable_graph(lit, 3, deformation=model).neighbors, side) == 100
    assert purity(deformable_graph(lit, 3).neighbors, side) < 75
    arrays, meta = deformable_graph(images, 3, deformation=model).state()
    assert restore_graph(arrays, json.loads(json.dumps(meta))).search.deformation == model


@pytest.mark.parametrize("window", [0.0, 1 / 32])
def test_shifts_work_without_a_local_warp(rng, window):
    """A window narrower than the shift leaves border pixels without partners; they must not count."""
    torch = pytest.importorskip("torch")
    images, labels = glyphs(rng)
    model = Deformation(window=window)
    graph = deformable_graph(images, 3, deformation=model)
    assert purity(graph.neighbors, labels) == 100
    assert graph.distances.max() < FARTHEST
    assert np.abs(graph.alignments.dy).max() > 0
    on_device = deformable_graph(torch.as_tensor(images), 3, deformation=model)
    assert_allclose(on_device.distances, graph.distances, rtol=1e-3)


def test_tensors_are_compared_by_gradients_only(rng):
    with pytest.raises(ValueError, match="'gradient' or by their 'pixels'"):
        Deformation(field="edges")
    torch = pytest.importorskip("torch")
    images = torch.as_tensor(rng.random((10, 8, 8)))
    with pytest.raises(ValueError, match="pass NumPy images"):
        deformable_graph(images, 2, deformation=Deformation(field="pixels"))


def test_tiny_images_are_compared_by_pixels(rng):
    images = rng.random((20, 3, 3))
    assert_array_equal(deformable_graph(images, 3).neighbors, knn_graph(images, 3).neighbors)


def test_equal_images_form_a_ring():
    for images in (np.ones((30, 8, 8)), np.broadcast_to(np.eye(8), (30, 8, 8))):
        graph = deformable_graph(images, 3)
        assert_array_equal(graph.neighbors[28], [29, 0, 1])
        assert_array_equal(graph.distances, 0)
        assert_array_equal(graph.alignments.scale, 1)


def test_constant_images_are_neighbors_of_each_other(rng):
    images, labels = glyphs(rng, n_each=8)
    blanks = np.arange(5)[:, None, None] * np.ones((5, 24, 24)) / 4
    graph = deformable_graph(np.concatenate([images, blanks]), 3)
    assert purity(graph.neighbors, np.r_[labels, [3] * 5]) == 100
    one = deformable_graph(np.concatenate([images, blanks[:1]]), 3)
    assert_array_equal(one.distances[-1], FARTHEST)
    assert not (one.neighbors[:-1] == len(images)).any()


def test_exact_copies_come_first(rng):
    images, _ = glyphs(rng, n_each=6)
    images[5] = images[9] = images[0]
    graph = deformable_graph(images, 3)
    assert set(graph.neighbors[0, :2]) == {5, 9}
    assert_array_equal(graph.distances[[0, 5, 9], :2], 0)
    assert all(len(set(row)) == 3 for row in graph.neighbors)


def test_large_collections_compare_nearby_cells(rng, monkeypatch):
    images, labels = glyphs(rng, n_each=100)
    exact = deformable_graph(images, 3)
    assert candidate_recall(exact) == 1
    usual = Effort.for_collection
    few = lambda n_images, n_neighbors: replace(usual(n_images, n_neighbors), exact_limit=200)  # noqa: E731
    monkeypatch.setattr(Effort, "for_collection", few)
    # Without this the few images of a cell would search all others.
    monkeypatch.setattr(cells, "RECALL", 0.9)
    graph = deformable_graph(images, 3)
    assert graph.search.training_candidates(100) is not None
    assert 0.85 < candidate_recall(graph) < 1
    assert purity(graph.neighbors, labels) == 100
    assert np.mean(graph.neighbors == exact.neighbors) > 0.9
    assert not (graph.neighbors == np.arange(300)[:, None]).any()


@pytest.mark.parametrize(
    ("images", "arguments", "error", "sentence"),
    [
        (np.full((5, 8, 8), np.nan), {}, ValueError, "NaN or infinity"),
        (np.zeros((1, 8, 8)), {}, ValueError, "only 0 other"),
        (np.zeros((4, 8, 8)), {"n_neighbors": 4}, ValueError, "lower n_neighbors"),
        (np.array([["a"] * 20] * 3), {}, TypeError, "dtype"),
    ],
)
def test_bad_input_raises_a_one_sentence_error(images, arguments, error, sentence):
    with pytest.raises(error, match=sentence):
        deformable_graph(images, **arguments)


@pytest.mark.parametrize(
    "changed",
    [
        {"rotation": -1.0},
        {"rotation": np.inf},
        {"rotation": np.nan},
        {"rotation": "10"},
        {"scale": 0.5},
        {"scale": np.inf},
        {"scale": 1e308},
        {"shift": -0.1},
        {"shift": 1.0},
        {"window": np.nan},
        {"window": 2.0},
        {"n_rotations": 0},
        {"n_rotations": 2.5},
        {"n_rotations": 10**12},
        {"n_scales": True},
        {"least_pixels": -1},
        {"least_size": 0},
        {"most_size": 100},
        {"most_size": 10**12},
        {"field": "edges"},
    ],
    ids=str,
)
def test_bad_deformation_raises_a_one_sentence_error(changed):
    with pytest.raises(ValueError, match=f"{next(iter(changed))}=") as caught:
        Deformation(**changed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"context": -2},
        {"context": 3},
        {"context": 1.0},
        {"n_candidates": 0},
        {"n_kept": -1},
        {"rank": 0},
        {"rank": None},
        {"exact_limit": -1},
    ],
    ids=str,
)
def test_bad_effort_raises_a_one_sentence_error(changed):
    good = {"n_candidates": 200, "n_kept": 100, "rank": 256, "context": 2}
    with pytest.raises(ValueError, match=f"{next(iter(changed))}=") as caught:
        Effort(**good | changed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("effort", {"context": -2}),
        ("effort", {"n_candidates": -1}),
        ("deformation", {"scale": float("inf")}),
        (None, {"memory_budget": float("nan")}),
        (None, {"random_state": -1}),
        (None, {"kind": "unknown"}),
    ],
    ids=str,
)
def test_invalid_search_parameters_raise(rng, part, changed):
    arrays, meta = deformable_graph(rng.random((10, 8, 8)), 2).state()
    (meta["search"] if part is None else meta["search"][part]).update(changed)
    with pytest.raises(ValueError, match=next(iter(changed))):
        restore_graph(arrays, meta)


def test_invalid_search_arrays_raise(rng):
    graph = deformable_graph(rng.random((10, 8, 8)), 2)
    # Edges are stored because they do not follow from the neighbour lists.
    arrays, meta = replace(graph, adjacency=2.0 * graph.adjacency).state()
    for name, value in [
        ("search_images", arrays["search_images"][:5]),
        ("search_images", np.full((10, 8, 8), np.nan)),
        ("neighbors", arrays["neighbors"] + 9),
        ("distances", arrays["distances"][:, :1]),
        ("alignments", arrays["alignments"][:, :3]),
        ("adjacency_indices", arrays["adjacency_indices"] + 100),
    ]:
        with pytest.raises(ValueError):
            restore_graph(arrays | {name: value}, meta)


@pytest.mark.parametrize("name", ["deformation", "effort", "random_state", "memory_budget"])
def test_settings_of_another_type_raise(rng, name):
    with pytest.raises((TypeError, ValueError), match=f"{name}='a'.* is wanted"):
        deformable_graph(rng.random((10, 8, 8)), 2, **{name: "a"})


@pytest.mark.filterwarnings("error")
def test_large_pixels_are_compared_without_a_warning(rng):
    images = rng.random((10, 8, 8)).astype(np.float32)
    found = deformable_graph(np.float32(2.0**120) * images, 2)
    assert_array_equal(found.neighbors, deformable_graph(images, 2).neighbors)


def test_query_with_another_shape_raises(rng):
    graph = deformable_graph(rng.random((10, 8, 8)), 2)
    with pytest.raises(ValueError, match="training shape"):
        graph.query(rng.random((2, 8, 9)))


def test_resolve_graph_builds_a_deformable_graph(rng):
    images, _ = glyphs(rng, n_each=4)
    assert_array_equal(
        resolve_graph("deformable", images, n_neighbors=2).neighbors, deformable_graph(images, 2).neighbors
    )


# --- against the exhaustive search, on real images --------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("orl", marks=pytest.mark.collection("orl")),
        pytest.param("yale", marks=pytest.mark.collection("yale")),
        pytest.param("usps", marks=pytest.mark.collection("usps")),
    ],
)
def test_purity_is_close_to_that_of_an_exhaustive_search(name, record_property):
    bunch = fetch(name)
    images, labels = bunch.images, bunch.target
    chosen = np.random.default_rng(0).permutation(len(images))[:1000]
    images, labels = images[chosen], labels[chosen]
    exact, _ = reference.exhaustive_neighbors(images, 3)
    fast = deformable_graph(images, 3).neighbors
    common = np.mean([len(set(left) & set(right)) / 3 for left, right in zip(exact, fast, strict=True)])
    record_property("share of common 3-neighbours", common)
    assert purity(fast, labels) > purity(exact, labels) - 1
    assert common > 0.6
