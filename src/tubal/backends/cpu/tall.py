"""Kernels of the block eigen-solver: each makes one pass over a range of rows of tall matrices.

A *space* is a tall matrix: columns that are known, then a basis that grows by blocks of ``WIDTH`` columns. ``moved``
has the products of a sparse matrix with the columns of the basis. Threads run a kernel on disjoint ranges of rows, and
every range has sums of its own. NumPy would do the same, but many threads would wait for Python's lock between its
short products.
"""

from __future__ import annotations

import numpy as np

from tubal.backends.cpu.jit import compiled, inlined

WIDTH = 16  # columns in a block: a row of it is one line of the cache
ROWS = 256  # rows that are in the cache together; kernels add them in single precision, and their sums in double


@compiled
def _multiply(pointers, neighbors, weights, block, first, last, product):
    """Write rows [first, last) of the sparse matrix times ``block`` to ``product``, eight neighbours in one pass."""
    for row in range(first, last):
        target, begin, end = product[row - first], pointers[row], pointers[row + 1]
        target[:] = 0.0
        rest = end - (end - begin) % 8
        for n in range(begin, rest, 8):
            w0, w1, w2, w3 = weights[n], weights[n + 1], weights[n + 2], weights[n + 3]
            w4, w5, w6, w7 = weights[n + 4], weights[n + 5], weights[n + 6], weights[n + 7]
            b0, b1, b2 = block[neighbors[n]], block[neighbors[n + 1]], block[neighbors[n + 2]]
            b3, b4, b5 = block[neighbors[n + 3]], block[neighbors[n + 4]], block[neighbors[n + 5]]
            b6, b7 = block[neighbors[n + 6]], block[neighbors[n + 7]]
            for c in range(WIDTH):
                half = w0 * b0[c] + w1 * b1[c] + w2 * b2[c] + w3 * b3[c]
                target[c] += half + w4 * b4[c] + w5 * b5[c] + w6 * b6[c] + w7 * b7[c]
        for n in range(rest, end):
            weight, neighbor = weights[n], block[neighbors[n]]
            for c in range(WIDTH):
                target[c] += weight * neighbor[c]


@inlined
def _put(tile, target, first, last, first_column):
    """Copy a tile to rows [first, last) of some columns of ``target``."""
    for row in range(first, last):
        for column in range(tile.shape[1]):
            target[row, first_column + column] = tile[row - first, column]


@compiled
def extend(pointers, neighbors, weights, block, turn, filled, space, moved, start, stop, shares):
    """Append ``block @ turn`` to the filled columns of ``space``, and the matrix's product with it to ``moved``.

    The parts of the sparse matrix in CSR form are ``pointers``, ``neighbors`` (unsigned) and ``weights``. ``shares``
    are the inner products of all columns of the space with the new ones of ``moved``.
    """
    own = filled - (space.shape[1] - moved.shape[1])
    product, turned = np.empty((ROWS, WIDTH), block.dtype), np.empty((ROWS, WIDTH), block.dtype)
    sums = np.empty(shares.shape, block.dtype)
    shares[:] = 0.0
    for first in range(start, stop, ROWS):
        last = min(first + ROWS, stop)
        tile = turned[: last - first]
        np.dot(block[first:last], turn, tile)
        _put(tile, space, first, last, filled)
        _multiply(pointers, neighbors, weights, block, first, last, product)
        np.dot(product[: last - first], turn, tile)
        _put(tile, moved, first, last, own)
        np.dot(space[first:last].T, tile, sums)
        shares += sums


@compiled
def without(columns, first_column, space, shares, start, stop, block, gram):
    """Set ``block`` to WIDTH columns minus ``space @ shares``, and ``gram`` to the inner products of the result."""
    sums = np.empty(gram.shape, block.dtype)
    gram[:] = 0.0
    for first in range(start, stop, ROWS):
        last = min(first + ROWS, stop)
        tile = block[first:last]
        np.dot(space[first:last], shares, tile)
        for row in range(first, last):
            for column in range(WIDTH):
                block[row, column] = columns[row, first_column + column] - block[row, column]
        np.dot(tile.T, tile, sums)
        gram += sums


@compiled
def turn_both(space, moved, turn, values, start, stop, squares):
    """Replace the first columns of the basis and of ``moved`` by ``basis @ turn`` and ``moved @ turn``.

    ``turn`` has a row for every column of the space, zeros for those that are not of the basis. ``squares`` are the
    squared lengths of ``moved - value * basis`` for the first columns: what these lack to be eigenvectors.
    """
    n_known = space.shape[1] - moved.shape[1]
    found, carried = np.empty((ROWS, turn.shape[1]), turn.dtype), np.empty((ROWS, turn.shape[1]), turn.dtype)
    squares[:] = 0.0
    for first in range(start, stop, ROWS):
        last = min(first + ROWS, stop)
        np.dot(space[first:last], turn, found[: last - first])
        np.dot(moved[first:last], turn[n_known:], carried[: last - first])
        _put(found[: last - first], space, first, last, n_known)
        _put(carried[: last - first], moved, first, last, 0)
        for row in range(last - first):
            for column in range(len(values)):
                lack = carried[row, column] - values[column] * found[row, column]
                squares[column] += lack * lack


@compiled
def combine(space, moved, mix_of_space, mix_of_moved, start, stop, block, shares):
    """Set ``block`` to ``moved @ mix_of_moved - space @ mix_of_space``; ``shares`` are its products with the space."""
    buffer, sums = np.empty((ROWS, WIDTH), block.dtype), np.empty(shares.shape, block.dtype)
    shares[:] = 0.0
    for first in range(start, stop, ROWS):
        last = min(first + ROWS, stop)
        tile, other = block[first:last], buffer[: last - first]
        np.dot(moved[first:last], mix_of_moved, tile)
        np.dot(space[first:last], mix_of_space, other)
        tile -= other
        np.dot(space[first:last].T, tile, sums)
        shares += sums
