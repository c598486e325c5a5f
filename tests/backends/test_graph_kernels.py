"""The compiled kernels of graphs against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tubal.backends.cpu import deformation as kernels


def empty_lists(n_rows, count):
    return np.full((n_rows, count), -1, dtype=np.int32), np.empty((n_rows, count), dtype=np.float32)


@pytest.mark.parametrize("width", [7, 25, 64, 200])
def test_kept_entries_equal_a_stable_sort(rng, width):
    scores = rng.integers(0, 30, size=(40, 200)).astype(np.float32)
    indices, values = empty_lists(40, 25)
    for first in range(0, 200, width):
        kernels.keep_largest(np.ascontiguousarray(scores[:, first : first + width]), first, indices, values)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :25]
    assert_array_equal(indices, expected)
    assert_array_equal(values, np.take_along_axis(scores, expected, axis=1))


@pytest.mark.parametrize("part", [10_000, 600, 77], ids="{} others at a time".format)
@pytest.mark.parametrize(("first", "n_rows"), [(0, 700), (90, 5), (kernels.TILE - 3, 2 * kernels.TILE)])
def test_most_similar_others_equal_a_sort_of_all_products(rng, first, n_rows, part):
    # Products of small whole numbers are exact, and many of them are equal.
    rows = rng.integers(-3, 4, size=(3 * kernels.TILE + 11, 8)).astype(np.float32)
    indices, values = empty_lists(n_rows, 20)
    wanted, scores = np.arange(first, first + n_rows), np.empty(kernels.TILE**2, dtype=np.float32)
    for number in range(0, len(rows), part):
        others = rows[number : number + part]
        kernels.most_similar_others(rows[wanted], first, others, number, scores, indices, values)
    products = rows[wanted] @ rows.T
    products[np.arange(n_rows), wanted] = -np.inf
    expected = np.argsort(-products, axis=1, kind="stable")[:, :20]
    assert_array_equal(indices, expected)
    assert_array_equal(values, np.take_along_axis(products, expected, axis=1))
