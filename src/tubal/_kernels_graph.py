"""Compiled passes for codes tied together by a graph, for NumPy arrays.

In the eigenbasis of DᵀD every coefficient row b obeys its own sparse system
``b (2 alpha L + (eigenvalue + penalty) I) = right-hand side`` (a Sylvester equation, diagonalised). Rows are
kept in slabs of ``LANES`` side by side, ``(slab, sample, lane)``: one vector register per sample, so a
product with the sparse Laplacian is contiguous, and all conjugate-gradient steps of a slab stay in cache.
"""

from __future__ import annotations

import numpy as np

from tubal._kernels import (
    BLOCK,
    LANES,
    _apply,
    _compiled,
    _load,
    _measure,
    _reflect,
    _relax,
    _store,
    _transform,
)


@_compiled
def _to_slabs(block, rows, scale, offset, first, last, slabs):
    """Write ``scale``·block + ``offset`` for samples [first, last) into ``slabs`` (slab, sample, lane).

    ``rows`` says which row of the block each lane holds: rows of similar shift share a slab, so that they come to
    rest together. ``offset`` is laid out like ``slabs``, or empty.
    """
    flat = block.reshape(-1, block.shape[2])
    lanes = slabs.shape[2]
    for slab in range(slabs.shape[0]):
        held = rows[slab]
        for column in range(last - first):
            target = slabs[slab, first + column]
            if offset.size:
                extra = offset[slab, first + column]
                for lane in range(lanes):
                    target[lane] = scale * flat[held[lane], column] + extra[lane]
            else:
                for lane in range(lanes):
                    target[lane] = scale * flat[held[lane], column]


@_compiled
def _from_slabs(slabs, rows, first, last, block):
    """Undo :func:`_to_slabs`; lanes that pad the last slab all hold its last row, so they may write it too."""
    flat = block.reshape(-1, block.shape[2])
    lanes = slabs.shape[2]
    for slab in range(slabs.shape[0]):
        held = rows[slab]
        for column in range(last - first):
            source = slabs[slab, first + column]
            for lane in range(lanes):
                flat[held[lane], column] = source[lane]


@_compiled
def rotate_into_slabs(source, basis, head, pairs, rows, scale, offset, start, stop, slabs):
    """Write the rotated Fourier coefficients of ``source`` (k, rows, n), scaled, plus ``offset`` into ``slabs``.

    ``offset`` is laid out like ``slabs``, which it may be, or empty.
    """
    tube_length = source.shape[0]
    block = np.empty((tube_length, source.shape[1], BLOCK), source.dtype)
    coefficients = np.empty_like(block)
    n_rows = pairs.shape[1] // 2 if pairs.shape[0] else head.shape[1]
    rotated = np.empty((tube_length, n_rows, BLOCK), source.dtype)
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        _load(source, first, last, block)
        _transform(basis, block, coefficients)
        _apply(head, pairs, coefficients, rotated)
        _to_slabs(rotated, rows, scale, offset, first, last, slabs)


@_compiled
def gather_blocks(point, start, stop, blocks):
    """Copy samples of ``point`` (k, rows, n) into ``blocks`` (block, k, rows, width), padding with zeros."""
    width = blocks.shape[3]
    for first in range(start, stop, width):
        _load(point, first, min(first + width, stop), blocks[first // width])


@_compiled
def scatter_blocks(blocks, start, stop, point):
    """Undo :func:`gather_blocks`."""
    width = blocks.shape[3]
    for first in range(start, stop, width):
        _store(blocks[first // width], first, min(first + width, stop), point)


@_compiled
def rotate_point(blocks, basis, head, pairs, rows, bound, times, scale, offset, start, stop, slabs):
    """Write the rotated Fourier coefficients of scale·(point - times·dual) + offset into ``slabs``.

    With twice the dual these are the right-hand sides of a graph step, with once the dual the codes. ``offset`` is laid
    out like ``slabs``, or empty.
    """
    reflected = np.empty_like(blocks[0])
    buffer = np.empty_like(reflected)
    width = blocks.shape[3]
    for first in range(start, stop, width):
        _reflect(blocks[first // width], bound, times, reflected)
        _transform(basis, reflected, buffer)
        _apply(head, pairs, buffer, reflected)
        _to_slabs(reflected, rows, scale, offset, first, min(first + width, stop), slabs)


@_compiled
def split_after(solved, basis_t, head, pairs, rows, bound, relaxation, measure, start, stop, blocks, change, size):
    """End a graph step: rotate the solution back, relax, and if asked measure the movement."""
    buffer = np.empty_like(blocks[0])
    rotated = np.zeros_like(buffer)
    width = blocks.shape[3]
    for first in range(start, stop, width):
        last = min(first + width, stop)
        block = blocks[first // width]
        _from_slabs(solved, rows, first, last, rotated)
        _apply(head, pairs, rotated, buffer)
        _transform(basis_t, buffer, rotated)
        if measure:
            _measure(block, rotated, bound, first, last, change, size)
        _relax(block, rotated, bound, relaxation)


@_compiled
def _graph_product(graph, scale, shift, vector, product, curvature):
    """Set ``product`` to ``scale`` L vector + shift·vector, all (sample, lane), and add each lane's <vector, product>.

    ``shift`` is per lane. Neighbours come in bundles of four, read in one pass over the lanes: passes are so short
    that each costs as much to begin as to make. One with more arrays than this would not become vector code.
    """
    starts, neighbors, weights, diagonal = graph
    lanes = vector.shape[1]  # known at run time only: a constant would be unrolled into scalar code
    for sample in range(vector.shape[0]):
        centre, row, own = vector[sample], product[sample], scale * diagonal[sample]
        for bundle in range(starts[sample], starts[sample + 1]):
            first, second = vector[neighbors[bundle, 0]], vector[neighbors[bundle, 1]]
            third, fourth = vector[neighbors[bundle, 2]], vector[neighbors[bundle, 3]]
            a, b = scale * weights[bundle, 0], scale * weights[bundle, 1]
            c, d = scale * weights[bundle, 2], scale * weights[bundle, 3]
            if bundle == starts[sample]:
                for lane in range(lanes):
                    row[lane] = (shift[lane] + own) * centre[lane] + (
                        a * first[lane] + b * second[lane] + c * third[lane] + d * fourth[lane]
                    )
            else:
                for lane in range(lanes):
                    row[lane] += a * first[lane] + b * second[lane] + c * third[lane] + d * fourth[lane]
        for lane in range(lanes):
            curvature[lane] += row[lane] * centre[lane]


@_compiled
def _start(wanted, product, conditioner, residual, direction, energy):
    """Set the residual and the first direction; add each lane's conditioned energy."""
    lanes = wanted.shape[1]
    for sample in range(wanted.shape[0]):
        w, q, r, d = wanted[sample], product[sample], residual[sample], direction[sample]
        factor = conditioner[sample]
        for lane in range(lanes):
            value = w[lane] - q[lane]
            r[lane] = value
            d[lane] = factor * value
            energy[lane] += factor * value * value


@_compiled
def _advance(solution, residual, direction, product, conditioner, length, energy):
    """Move solution and residual along the direction; add each lane's new conditioned energy."""
    lanes = solution.shape[1]  # known at run time only: a constant would be unrolled into scalar code
    for sample in range(solution.shape[0]):
        x, r, d, q = solution[sample], residual[sample], direction[sample], product[sample]
        factor = conditioner[sample]
        for lane in range(lanes):
            x[lane] += length[lane] * d[lane]
            value = r[lane] - length[lane] * q[lane]
            r[lane] = value
            energy[lane] += factor * value * value


@_compiled
def _turn(residual, direction, conditioner, push):
    """Make ``direction`` the conditioned residual plus ``push`` times itself."""
    lanes = residual.shape[1]  # known at run time only: a constant would be unrolled into scalar code
    for sample in range(residual.shape[0]):
        r, d = residual[sample], direction[sample]
        factor = conditioner[sample]
        for lane in range(lanes):
            d[lane] = factor * r[lane] + push[lane] * d[lane]


@_compiled
def solve_graph_systems(graph, scale, shifts, right, reduction, max_steps, start, stop, solution):
    """Improve ``solution`` of every slab in [start, stop) by Jacobi-preconditioned conjugate gradients.

    Warm-started; a lane rests once its residual has shrunk by ``reduction``. Returns the steps taken.
    """
    diagonal = graph[3]
    n_samples, lanes = right.shape[1:]  # known at run time only: a constant would be unrolled into scalar code
    residual = np.empty((n_samples, lanes), right.dtype)
    direction = np.empty_like(residual)
    product = np.empty_like(residual)
    conditioner = np.empty(n_samples, right.dtype)
    energy, previous, target, curvature, length, push = (
        np.empty(lanes, right.dtype), np.empty(lanes, right.dtype), np.empty(lanes, right.dtype),
        np.empty(lanes, right.dtype), np.empty(lanes, right.dtype), np.empty(lanes, right.dtype),
    )  # fmt: skip
    floor = 1e-30 if right.itemsize == 4 else 1e-290
    total_steps = 0
    for slab in range(start, stop):
        shift, x, wanted = shifts[slab], solution[slab], right[slab]
        usual = right.dtype.type(0.0)
        for lane in range(lanes):
            usual += shift[lane] / lanes
        for sample in range(n_samples):
            conditioner[sample] = 1.0 / (scale * diagonal[sample] + usual)
        for lane in range(lanes):
            energy[lane] = curvature[lane] = 0.0
        _graph_product(graph, scale, shift, x, product, curvature)
        _start(wanted, product, conditioner, residual, direction, energy)
        for lane in range(lanes):
            # Below the floor the quotients of conjugate gradients are made of rounding, and grow without bound.
            target[lane] = max(energy[lane] * reduction * reduction, floor)
        for _ in range(max_steps):
            total_steps += 1
            for lane in range(lanes):
                curvature[lane] = 0.0
            _graph_product(graph, scale, shift, direction, product, curvature)
            for lane in range(lanes):
                going = curvature[lane] > 0.0 and energy[lane] > target[lane]
                length[lane] = energy[lane] / curvature[lane] if going else 0.0
                previous[lane], energy[lane] = energy[lane], 0.0
            _advance(x, residual, direction, product, conditioner, length, energy)
            n_going = 0
            for lane in range(lanes):
                going = length[lane] > 0.0 and energy[lane] > target[lane]
                push[lane] = energy[lane] / previous[lane] if going else 0.0
                n_going += going
            if n_going == 0:
                break
            _turn(residual, direction, conditioner, push)
    return total_steps


@_compiled
def multiply_by_graph(codes, graph, scale, start, stop, product):
    """Set rows [start, stop)·LANES of ``product`` to ``scale`` codes L; both arrays are (row, sample)."""
    n_rows, n_samples = codes.shape
    vector = np.empty((n_samples, LANES), codes.dtype)
    result = np.empty_like(vector)
    shift, unused = np.zeros(LANES, codes.dtype), np.zeros(LANES, codes.dtype)
    for slab in range(start, stop):
        low = slab * LANES
        high = min(low + LANES, n_rows)
        for row in range(low, high):
            for sample in range(n_samples):
                vector[sample, row - low] = codes[row, sample]
        for lane in range(high - low, LANES):
            for sample in range(n_samples):
                vector[sample, lane] = 0.0
        _graph_product(graph, scale, shift, vector, result, unused)
        for row in range(low, high):
            for sample in range(n_samples):
                product[row, sample] = result[sample, row - low]
