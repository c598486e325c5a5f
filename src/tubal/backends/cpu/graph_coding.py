"""Compiled passes for codes tied together by a graph, for NumPy arrays.

In the eigenbasis of DᵀD every coefficient row b obeys its own sparse system
``b (2 alpha L + (eigenvalue + penalty) I) = right-hand side`` (a Sylvester equation, diagonalised). Rows are
kept in slabs of many side by side, ``(slab, sample, lane)``, those of one frequency pair together: a product with the
sparse Laplacian is contiguous, and all steps of a slab stay in cache.
"""

from __future__ import annotations

import numpy as np

from tubal.backends.cpu.coding import LANES, _compiled, _inlined, _measure, _reflect, _relax, _transform


@_compiled
def to_slabs(source, rows, slabs):
    """Copy rows of ``source`` (row, sample) into ``slabs`` (slab, sample, lane); ``rows`` says which a lane holds."""
    for slab in range(slabs.shape[0]):
        held = rows[slab]
        for sample in range(slabs.shape[1]):
            target = slabs[slab, sample]
            for lane in range(target.size):
                target[lane] = source[held[lane], sample]


@_compiled
def from_slabs(slabs, rows, target):
    """Undo :func:`to_slabs`; lanes that pad the last slab all hold its last row, so they may write it too."""
    for slab in range(slabs.shape[0]):
        held = rows[slab]
        for sample in range(slabs.shape[1]):
            source = slabs[slab, sample]
            for lane in range(source.size):
                target[held[lane], sample] = source[lane]


@_compiled
def _write(tile, scale, offset, slab, first, last, slabs):
    """Set samples [first, last) of one of the ``slabs`` to ``scale``·tile + ``offset``, laid out like them or empty."""
    n_lanes = tile.shape[1]
    for column in range(last - first):
        source, target = tile[column], slabs[slab, first + column]
        if offset.size:
            extra = offset[slab, first + column]
            for lane in range(n_lanes):
                target[lane] = scale * source[lane] + extra[lane]
        else:
            for lane in range(n_lanes):
                target[lane] = scale * source[lane]


@_inlined
def _rotate(source, head, pairs, scale, offset, first, last, slabs):
    """Write ``scale`` times the *transposed* block operator applied to ``source`` (k, inner, width) into ``slabs``.

    Multiplied from the right, samples come out as rows, a pair's lanes side by side: just as the slabs want them.
    ``offset`` is laid out like ``slabs``, or empty. The head's slab is as wide as the others and half empty.
    """
    n_head, n_pairs, width = head.shape[0], pairs.shape[0], source.shape[2]
    if n_head:
        narrow = np.empty((width, head.shape[2]), source.dtype)
        np.dot(source[0].T, head[0], narrow)
        _write(narrow, scale, offset, 0, first, last, slabs)
    tile = np.empty((width, pairs.shape[2]), source.dtype)
    tail = source[n_head:].reshape(n_pairs, -1, width)
    for pair in range(n_pairs):
        np.dot(tail[pair].T, pairs[pair], tile)
        _write(tile, scale, offset, n_head + pair, first, last, slabs)


@_compiled
def _read(slab, first, last, tile):
    """Set ``tile`` (lane, column) to samples [first, last) of ``slab``, as many lanes as it has, the rest to zero.

    Turned here, in the cache: a product with a transposed right factor takes half as long again.
    """
    n_lanes, width = tile.shape
    for column in range(width):
        source = slab[min(first + column, last - 1)]
        here = tile.dtype.type(1.0 if first + column < last else 0.0)
        for lane in range(n_lanes):
            tile[lane, column] = here * source[lane]


@_inlined
def _rotate_back(slabs, head, pairs, first, last, target):
    """Set ``target`` (k, rows, width) to the block operator applied to samples [first, last) of ``slabs``."""
    n_head, n_pairs, width = head.shape[0], pairs.shape[0], target.shape[2]
    if n_head:
        narrow = np.empty((head.shape[2], width), target.dtype)
        _read(slabs[0], first, last, narrow)
        np.dot(head[0], narrow, target[0])
    tile = np.empty((pairs.shape[2], width), target.dtype)
    tail = target[n_head:].reshape(n_pairs, -1, width)
    for pair in range(n_pairs):
        _read(slabs[n_head + pair], first, last, tile)
        np.dot(pairs[pair], tile, tail[pair])


@_compiled
def gather_blocks(point, start, stop, blocks):
    """Copy samples of ``point`` (k, rows, n) into ``blocks`` (block, k, rows, width), padding with zeros.

    Row by row, so that neighbouring blocks are filled from one stretch of memory.
    """
    width = blocks.shape[3]
    for time in range(point.shape[0]):
        for row in range(point.shape[1]):
            for first in range(start, stop, width):
                source, target = point[time, row, first:], blocks[first // width, time, row]
                n_here = min(width, stop - first)
                for column in range(n_here):
                    target[column] = source[column]
                for column in range(n_here, width):
                    target[column] = 0.0


@_compiled
def scatter_blocks(blocks, start, stop, point):
    """Undo :func:`gather_blocks`."""
    width = blocks.shape[3]
    for time in range(point.shape[0]):
        for row in range(point.shape[1]):
            for first in range(start, stop, width):
                source, target = blocks[first // width, time, row], point[time, row, first:]
                for column in range(min(width, stop - first)):
                    target[column] = source[column]


@_compiled
def rotate_blocks(blocks, basis, head, pairs, bound, times, scale, offset, start, stop, slabs):
    """Write the rotated Fourier coefficients of scale·(point - times·dual) + offset into ``slabs``.

    With twice the dual these are the right-hand sides of a graph step, with once the dual the codes, without it what
    the blocks hold. ``head`` and ``pairs`` are the rotation's transpose; ``offset`` is laid out like ``slabs``, and may
    be it, or empty.
    """
    reflected = np.empty_like(blocks[0])
    buffer = np.empty_like(reflected)
    width = blocks.shape[3]
    for first in range(start, stop, width):
        _reflect(blocks[first // width], bound, times, reflected)
        _transform(basis, reflected, buffer)
        _rotate(buffer, head, pairs, scale, offset, first, min(first + width, stop), slabs)


@_compiled
def split_after(
    solved, basis, basis_t, head, pairs, bound, penalty, relaxation, linear, measure, onward, start, stop, blocks,
    right, change, size,
):  # fmt: skip
    """End a graph step: rotate the solution back, relax, and if asked measure the movement.

    ``onward`` begins the next one while a block is in the cache: its right-hand sides, as in :func:`rotate_blocks`.
    """
    buffer = np.empty_like(blocks[0])
    rotated = np.empty_like(buffer)
    width, twice = blocks.shape[3], blocks.dtype.type(2.0)
    for first in range(start, stop, width):
        last = min(first + width, stop)
        block = blocks[first // width]
        _rotate_back(solved, head, pairs, first, last, buffer)
        _transform(basis_t, buffer, rotated)
        if measure:
            _measure(block, rotated, bound, first, last, change, size)
        _relax(block, rotated, bound, relaxation)
        if onward:
            _reflect(block, bound, twice, buffer)
            _transform(basis, buffer, rotated)
            _rotate(rotated, head, pairs, penalty, linear, first, last, right)


@_inlined
def _sweep(graph, scale, shift, push, wanted, vector, gathered, target):
    """Move ``target`` to (1 - push)·target + push·J(vector), J the Jacobi step of (scale L + shift) x = wanted.

    All are (sample, lane); ``shift`` and the buffer ``gathered`` are (lane,). Neighbours come in bundles of four, read
    in one pass over the lanes: passes are so short that each costs as much to begin as to make. Most images have one
    bundle, and end in the same pass; one with more arrays than that would not become vector code.
    """
    starts, neighbors, weights, diagonal = graph
    lanes = vector.shape[1]  # known at run time only: a constant would be unrolled into scalar code
    keep = wanted.dtype.type(1.0) - push
    for sample in range(vector.shape[0]):
        wish, row, own = wanted[sample], target[sample], scale * diagonal[sample]
        begin, end = starts[sample], starts[sample + 1]
        for bundle in range(begin, end):
            first, second = vector[neighbors[bundle, 0]], vector[neighbors[bundle, 1]]
            third, fourth = vector[neighbors[bundle, 2]], vector[neighbors[bundle, 3]]
            a, b = scale * weights[bundle, 0], scale * weights[bundle, 1]
            c, d = scale * weights[bundle, 2], scale * weights[bundle, 3]
            if end == begin + 1:
                for lane in range(lanes):
                    pull = a * first[lane] + b * second[lane] + c * third[lane] + d * fourth[lane]
                    row[lane] = keep * row[lane] + push * (wish[lane] - pull) / (own + shift[lane])
            elif bundle == begin:
                for lane in range(lanes):
                    gathered[lane] = a * first[lane] + b * second[lane] + c * third[lane] + d * fourth[lane]
            else:
                for lane in range(lanes):
                    gathered[lane] += a * first[lane] + b * second[lane] + c * third[lane] + d * fourth[lane]
        if end > begin + 1:
            for lane in range(lanes):
                row[lane] = keep * row[lane] + push * (wish[lane] - gathered[lane]) / (own + shift[lane])


@_compiled
def solve_graph_systems(graph, scale, shifts, rates, counts, right, start, stop, solution):
    """Improve ``solution`` of every slab in [start, stop) by ``counts`` Jacobi steps with Chebyshev's weights.

    ``rates`` bounds what one plain step leaves of an error; the k-th of n weighted ones leaves 1 / T_n(1 / rate) in all
    (Golub and Varga 1961). Nothing is held but the two latest points, and no inner product is waited for.
    """
    n_samples, lanes = right.shape[1:]
    other = np.empty((n_samples, lanes), right.dtype)
    other.fill(0.0)
    gathered = np.empty(lanes, right.dtype)
    for slab in range(start, stop):
        here, wanted, shift = solution[slab], right[slab], shifts[slab]
        quarter, push = 0.25 * rates[slab] ** 2, 1.0
        for step in range(counts[slab]):
            if step > 0:
                push = 1.0 / (1.0 - quarter * push * (2.0 if step == 1 else 1.0))
            source, target = (here, other) if step % 2 == 0 else (other, here)
            _sweep(graph, scale, shift, right.dtype.type(push), wanted, source, gathered, target)
        if counts[slab] % 2:
            for sample in range(n_samples):
                for lane in range(lanes):
                    here[sample, lane] = other[sample, lane]


@_inlined
def _graph_product(graph, scale, vector, product):
    """Set ``product`` to ``scale`` L vector, both (sample, lane)."""
    starts, neighbors, weights, diagonal = graph
    lanes = vector.shape[1]  # known at run time only: a constant would be unrolled into scalar code
    for sample in range(vector.shape[0]):
        centre, row, own = vector[sample], product[sample], scale * diagonal[sample]
        for lane in range(lanes):
            row[lane] = own * centre[lane]
        for bundle in range(starts[sample], starts[sample + 1]):
            first, second = vector[neighbors[bundle, 0]], vector[neighbors[bundle, 1]]
            third, fourth = vector[neighbors[bundle, 2]], vector[neighbors[bundle, 3]]
            a, b = scale * weights[bundle, 0], scale * weights[bundle, 1]
            c, d = scale * weights[bundle, 2], scale * weights[bundle, 3]
            for lane in range(lanes):
                row[lane] += a * first[lane] + b * second[lane] + c * third[lane] + d * fourth[lane]


@_inlined
def _load_lanes(codes, low, high, vector):
    """Copy rows [low, high) of ``codes`` (row, sample) into the lanes of ``vector`` (sample, lane); others are zero."""
    n_samples, lanes = vector.shape
    for lane in range(lanes):
        for sample in range(n_samples):
            vector[sample, lane] = codes[low + lane, sample] if low + lane < high else 0.0


@_compiled
def multiply_by_graph(codes, graph, scale, start, stop, product):
    """Set rows [start, stop)·LANES of ``product`` to ``scale`` codes L; both arrays are (row, sample)."""
    n_rows, n_samples = codes.shape
    vector = np.empty((n_samples, LANES), codes.dtype)
    result = np.empty_like(vector)
    for slab in range(start, stop):
        low, high = slab * LANES, min((slab + 1) * LANES, n_rows)
        _load_lanes(codes, low, high, vector)
        _graph_product(graph, scale, vector, result)
        for row in range(low, high):
            for sample in range(n_samples):
                product[row, sample] = result[sample, row - low]


@_compiled
def graph_energies(codes, graph, start, stop, energies):
    """Add each image's <codes, codes L> over rows [start, stop)·LANES of ``codes`` (row, sample) to ``energies``."""
    n_rows, n_samples = codes.shape
    vector = np.empty((n_samples, LANES), codes.dtype)
    result = np.empty_like(vector)
    one = codes.dtype.type(1.0)
    for slab in range(start, stop):
        _load_lanes(codes, slab * LANES, min((slab + 1) * LANES, n_rows), vector)
        _graph_product(graph, one, vector, result)
        for sample in range(n_samples):
            here, there, total = vector[sample], result[sample], codes.dtype.type(0.0)
            for lane in range(here.size):
                total += here[lane] * there[lane]
            energies[sample] += total
