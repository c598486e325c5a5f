"""Compiled passes for codes tied together by a graph, for NumPy arrays.

In the eigenbasis of DᵀD every coefficient row b obeys its own sparse system
``b (2 alpha L + (eigenvalue + penalty) I) = right-hand side`` (a Sylvester equation, diagonalised). Rows are
kept in slabs of ``LANES`` side by side, ``(slab, sample, lane)``: one vector register per sample, so a
product with the sparse Laplacian is contiguous, and all conjugate-gradient steps of a slab stay in cache.
"""

from __future__ import annotations

import numpy as np

from tubal._kernels import BLOCK, LANES, _apply, _compiled, _load, _measure, _reflect, _relax, _transform


@_compiled
def _to_slabs(block, first, last, slabs):
    """Copy a block (k, rows, BLOCK) of samples [first, last) into ``slabs`` (slab, sample, lane)."""
    flat = block.reshape(-1, block.shape[2])
    for row in range(flat.shape[0]):
        slab, lane = row // LANES, row % LANES
        for column in range(last - first):
            slabs[slab, first + column, lane] = flat[row, column]


@_compiled
def _from_slabs(slabs, first, last, block):
    flat = block.reshape(-1, block.shape[2])
    for row in range(flat.shape[0]):
        slab, lane = row // LANES, row % LANES
        for column in range(last - first):
            flat[row, column] = slabs[slab, first + column, lane]
        for column in range(last - first, flat.shape[1]):
            flat[row, column] = 0.0


@_compiled
def rotate_into_slabs(source, basis, head, pairs, scale, start, stop, slabs):
    """Write ``scale`` times the rotated Fourier coefficients of ``source`` (k, rows, n) into ``slabs``."""
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
        flat = rotated.reshape(-1)
        for index in range(flat.size):
            flat[index] *= scale
        _to_slabs(rotated, first, last, slabs)


@_compiled
def split_before(point, basis, head, pairs, bound, penalty, linear, start, stop, right):
    """First half of a graph step: right-hand sides penalty·(z - u) + linear, rotated, into ``right``."""
    tube_length, n_atoms, _ = point.shape
    block = np.empty((tube_length, n_atoms, BLOCK), point.dtype)
    buffer = np.empty_like(block)
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        _load(point, first, last, buffer)
        _reflect(buffer, bound, block)
        _transform(basis, block, buffer)
        _apply(head, pairs, buffer, block)
        _to_slabs(block, first, last, right)
    for slab in range(right.shape[0]):
        for sample in range(start, stop):
            for lane in range(LANES):
                right[slab, sample, lane] = penalty * right[slab, sample, lane] + linear[slab, sample, lane]


@_compiled
def split_after(solved, basis_t, head, pairs, bound, relaxation, start, stop, point, change, size):
    """Second half of a graph step: rotate the solution back, relax, and measure the movement."""
    tube_length, n_atoms, _ = point.shape
    block = np.empty((tube_length, n_atoms, BLOCK), point.dtype)
    buffer = np.empty_like(block)
    rotated = np.empty_like(block)
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        _from_slabs(solved, first, last, rotated)
        _apply(head, pairs, rotated, buffer)
        _transform(basis_t, buffer, rotated)
        _load(point, first, last, block)
        _measure(block, rotated, bound, first, last, change, size)
        _relax(block, rotated, bound, relaxation)
        for time in range(tube_length):
            for row in range(n_atoms):
                for column in range(last - first):
                    point[time, row, first + column] = block[time, row, column]


@_compiled
def _graph_product(indptr, indices, weights, scale, shift, vector, product):
    """Set ``product`` to ``scale`` L vector + shift·vector, all (sample, lane); shift is per lane."""
    for sample in range(vector.shape[0]):
        row = product[sample]
        centre = vector[sample]
        for lane in range(LANES):
            row[lane] = shift[lane] * centre[lane]
        for entry in range(indptr[sample], indptr[sample + 1]):
            weight = scale * weights[entry]
            neighbor = vector[indices[entry]]
            for lane in range(LANES):
                row[lane] += weight * neighbor[lane]


@_compiled
def solve_graph_systems(
    indptr, indices, weights, diagonal, scale, shifts, right, reduction, max_steps, start, stop, solution
):
    """Improve ``solution`` of every slab in [start, stop) by Jacobi-preconditioned conjugate gradients.

    Warm-started; stops when each lane's residual has shrunk by ``reduction``. Returns the steps taken.
    """
    n_samples = right.shape[1]
    residual = np.empty((n_samples, LANES), right.dtype)
    direction = np.empty_like(residual)
    product = np.empty_like(residual)
    total_steps = 0
    for slab in range(start, stop):
        shift, x = shifts[slab], solution[slab]
        energy = np.zeros(LANES)
        _graph_product(indptr, indices, weights, scale, shift, x, product)
        for sample in range(n_samples):
            for lane in range(LANES):
                value = right[slab, sample, lane] - product[sample, lane]
                conditioned = value / (scale * diagonal[sample] + shift[lane])
                residual[sample, lane] = value
                direction[sample, lane] = conditioned
                energy[lane] += value * conditioned
        target = energy * (reduction * reduction)
        for _ in range(max_steps):
            total_steps += 1
            _graph_product(indptr, indices, weights, scale, shift, direction, product)
            curvature = np.zeros(LANES)
            for sample in range(n_samples):
                for lane in range(LANES):
                    curvature[lane] += direction[sample, lane] * product[sample, lane]
            length = np.zeros(LANES, right.dtype)
            for lane in range(LANES):
                if curvature[lane] > 0.0 and energy[lane] > target[lane]:
                    length[lane] = energy[lane] / curvature[lane]
            previous = energy
            energy = np.zeros(LANES)
            for sample in range(n_samples):
                for lane in range(LANES):
                    x[sample, lane] += length[lane] * direction[sample, lane]
                    value = residual[sample, lane] - length[lane] * product[sample, lane]
                    residual[sample, lane] = value
                    energy[lane] += value * value / (scale * diagonal[sample] + shift[lane])
            push = np.zeros(LANES, right.dtype)
            open_lanes = 0
            for lane in range(LANES):
                if length[lane] == 0.0:
                    energy[lane] = previous[lane]
                elif energy[lane] > target[lane]:
                    open_lanes += 1
                    push[lane] = energy[lane] / previous[lane]
            if open_lanes == 0:
                break
            for sample in range(n_samples):
                for lane in range(LANES):
                    conditioned = residual[sample, lane] / (scale * diagonal[sample] + shift[lane])
                    direction[sample, lane] = conditioned + push[lane] * direction[sample, lane]
    return total_steps


@_compiled
def multiply_by_graph(codes, indptr, indices, weights, scale, start, stop, product):
    """Set rows [start, stop)·LANES of ``product`` to ``scale`` codes L; both arrays are (row, sample)."""
    n_rows, n_samples = codes.shape
    vector = np.empty((n_samples, LANES), codes.dtype)
    result = np.empty_like(vector)
    shift = np.zeros(LANES, codes.dtype)
    for slab in range(start, stop):
        low = slab * LANES
        high = min(low + LANES, n_rows)
        for row in range(low, high):
            for sample in range(n_samples):
                vector[sample, row - low] = codes[row, sample]
        for lane in range(high - low, LANES):
            for sample in range(n_samples):
                vector[sample, lane] = 0.0
        _graph_product(indptr, indices, weights, scale, shift, vector, result)
        for row in range(low, high):
            for sample in range(n_samples):
                product[row, sample] = result[sample, row - low]
