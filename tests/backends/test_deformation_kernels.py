"""The local-warp distance, in both ways to compute it, against loops over all pixels and offsets."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tubal.backends.cpu import deformation, jit
from tubal.graph.affine import field_layout, field_stack, measure_pairs

WAYS = {"strips": jit.njit(**jit.OPTIONS)(deformation.strip_distances)}
WAYS["flat"] = jit.njit(**jit.OPTIONS)(deformation.flat_distances)


def distortion(a, b, margin, window, shift):
    """Return the distortion of two fields (planes, height, width); pixels without a partner count as the mean."""
    _, height, width = a.shape
    frame = ((0, 0), (margin, margin), (margin, margin))
    a, b = (np.pad(field.astype(np.float64), frame, mode="edge") for field in (a, b))
    size = 2 * margin + 1
    least_a, least_b = np.full((2, height, width), np.inf)
    for y, x in np.ndindex(height, width):
        for v in range(max(0, y + shift[0] - window[0]), min(height, y + shift[0] + window[0] + 1)):
            for u in range(max(0, x + shift[1] - window[1]), min(width, x + shift[1] + window[1] + 1)):
                difference = ((a[:, y : y + size, x : x + size] - b[:, v : v + size, u : u + size]) ** 2).sum()
                least_a[y, x] = min(least_a[y, x], difference)
                least_b[v, u] = min(least_b[v, u], difference)
    least = np.concatenate([least_a.ravel(), least_b.ravel()])
    return least[np.isfinite(least)].mean() * least.size


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("margin", [0, 1, 2])
@pytest.mark.parametrize(
    ("shape", "window", "most"),
    [
        ((28, 28), (2, 2), 2),
        ((5, 29), (2, 2), 2),
        ((4, 64), (1, 2), 3),
        ((6, 83), (0, 3), 4),
        ((7, 33), (1, 1), 2),
        ((3, 31), (0, 0), 1),
        ((6, 2), (2, 1), 1),
        ((1, 90), (0, 5), 8),
        ((5, 1), (2, 0), 0),
    ],
)
def test_distances_equal_those_of_slow_loops(rng, monkeypatch, shape, window, most, margin, channels, way):
    monkeypatch.setattr(deformation, "pair_distances", WAYS[way])
    gap, images = window[1] + most or 1, rng.random((3, channels, shape[0] * shape[1])).astype(np.float32)
    down = min(most, shape[0] - 1)
    shifts = np.array([(0, 0), (down, -most), (-down, most)])
    pairs = np.array([(0, 1, 0), (1, 2, 1), (2, 0, 2)], dtype=np.int32)
    plain = field_stack(images, shape, threads=1)[0].reshape(3, -1, *shape)
    fields = field_stack(images, shape, margin=margin, gap=gap, threads=1)[0]
    found = np.empty(3, dtype=np.float32)

    measure_pairs(fields, fields, pairs, shifts, field_layout(shape, margin=margin, gap=gap, window=window), found)

    wanted = [distortion(plain[i], plain[j], margin, window, shifts[shift]) for i, j, shift in pairs]
    assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_distance_does_not_depend_on_other_pairs(rng, monkeypatch, way):
    monkeypatch.setattr(deformation, "pair_distances", WAYS[way])
    shape, shifts = (12, 40), np.array([(y, x) for y in (-3, 0, 3) for x in (-3, 0, 3)])
    fields = field_stack(rng.random((6, 1, 480)).astype(np.float32), shape, margin=1, gap=5, threads=1)[0]
    pairs = np.stack([rng.integers(limit, size=50) for limit in (6, 6, 9)], axis=1).astype(np.int32)
    layout = field_layout(shape, margin=1, gap=5, window=(2, 2))
    together, alone = np.empty((2, 50), dtype=np.float32)

    measure_pairs(fields, fields, pairs, shifts, layout, together)
    for pair in range(50):
        measure_pairs(fields, fields, pairs[pair : pair + 1], shifts, layout, alone[pair : pair + 1])

    assert_array_equal(together, alone)
