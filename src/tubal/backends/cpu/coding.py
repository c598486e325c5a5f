"""Compiled passes over blocks of images, for NumPy arrays.

Each kernel copies a block of images into buffers that fit the cache and does all its steps there: the
Fourier transform is a GEMM with a k×k basis, the map a GEMM per frequency pair (see ``fourier``), and the
element-wise part one pass. Kernels release the GIL and are run from threads over disjoint sample ranges,
with BLAS held to one thread each (``backends.threads.own_threads``).
"""

from __future__ import annotations

import numba as nb
import numpy as np

BLOCK = 32  # images in flight: wide enough for GEMM, small enough for the cache
SUMMED = 128  # images whose products are summed in single precision before they join the double-precision sums
LANES = 64  # coefficient rows that a product with the graph takes side by side: whole vector registers

_compiled = nb.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
# For a part that a kernel has in one place: compiled with it, not once for itself before.
_inlined = nb.njit(nogil=True, inline="always", fastmath=True, error_model="numpy")


@_compiled
def _load(source, first, last, block):
    """Copy samples [first, last) of ``source`` (k, rows, n) into ``block`` (k, rows, width), padding with zeros."""
    width = last - first
    for time in range(source.shape[0]):
        for row in range(source.shape[1]):
            for column in range(width):
                block[time, row, column] = source[time, row, first + column]
            for column in range(width, block.shape[2]):
                block[time, row, column] = 0.0


@_compiled
def _store(block, first, last, target):
    for time in range(target.shape[0]):
        for row in range(target.shape[1]):
            for column in range(last - first):
                target[time, row, first + column] = block[time, row, column]


@_compiled
def _store_active(block, first, last, active, target):
    """Store what moved; images at rest keep their place, so an image's codes do not depend on its company."""
    for time in range(target.shape[0]):
        for row in range(target.shape[1]):
            for column in range(last - first):
                if active[first + column]:
                    target[time, row, first + column] = block[time, row, column]


@_compiled
def _transform(basis, source, target):
    """Set ``target`` to the basis applied along the tube of ``source``."""
    tube_length = source.shape[0]
    np.dot(basis, source.reshape(tube_length, -1), target.reshape(tube_length, -1))


@_compiled
def _apply(head, pairs, source, target):
    """Set ``target`` (k, rows, width) to the block operator applied to ``source`` (k, inner, width)."""
    if head.shape[0]:
        np.dot(head[0], source[0], target[0])
    n_head, width = head.shape[0], source.shape[2]
    n_pairs = pairs.shape[0]
    tail_in = source[n_head:].reshape(n_pairs, -1, width)
    tail_out = target[n_head:].reshape(n_pairs, -1, width)
    for pair in range(n_pairs):
        np.dot(pairs[pair], tail_in[pair], tail_out[pair])


@_inlined
def _reflect(point, bound, times, reflected):
    """Set ``reflected`` to point - times·clip(point): shrunk codes once, less the scaled dual twice."""
    source, target = point.reshape(-1), reflected.reshape(-1)
    for index in range(source.size):
        value = source[index]
        target[index] = value - times * min(max(value, -bound), bound)


@_inlined
def _relax(point, solved, bound, relaxation):
    """Move ``point`` towards ``solved`` + clip(point) in place."""
    target, source = point.reshape(-1), solved.reshape(-1)
    for index in range(target.size):
        value = target[index]
        clipped = min(max(value, -bound), bound)
        target[index] = value + relaxation * (source[index] + clipped - value)


@_inlined
def _measure(point, solved, bound, first, last, change, size):
    """Write for each image how far the next step would move it, and how large its point is, squared."""
    width = point.shape[2]
    moved = np.zeros(width)
    total = np.zeros(width)
    for time in range(point.shape[0]):
        for row in range(point.shape[1]):
            here, there = point[time, row], solved[time, row]
            for column in range(width):
                value = here[column]
                clipped = min(max(value, -bound), bound)
                difference = there[column] + clipped - value
                moved[column] += difference * difference
                total[column] += value * value
    for column in range(last - first):
        change[first + column] = moved[column]
        size[first + column] = total[column]


@_compiled
def split_independent(
    point, data, basis, basis_t, adjoint_head, adjoint_pairs, inverse_head, inverse_pairs,
    bound, penalty, relaxation, n_steps, active, start, stop, change, size,
):  # fmt: skip
    """Run ``n_steps`` over-relaxed Douglas-Rachford steps on images [start, stop), block by block, in place.

    ``inverse`` is penalty·(DᵀD + penalty)⁻¹, ``adjoint`` is Dᵀ. Blocks without an active image are skipped.
    """
    tube_length, n_atoms, _ = point.shape
    block = np.empty((tube_length, n_atoms, BLOCK), point.dtype)
    first_buffer = np.empty_like(block)
    second_buffer = np.empty_like(block)
    offset = np.empty_like(block)
    image = np.empty((tube_length, data.shape[1], BLOCK), point.dtype)
    image_hat = np.empty_like(image)
    twice = point.dtype.type(2.0)
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        if not active[first:last].any():
            continue
        _load(point, first, last, block)
        _load(data, first, last, image)
        _transform(basis, image, image_hat)
        _apply(adjoint_head, adjoint_pairs, image_hat, first_buffer)
        _apply(inverse_head, inverse_pairs, first_buffer, offset)
        flat_offset = offset.reshape(-1)
        for index in range(flat_offset.size):
            flat_offset[index] /= penalty
        for step in range(n_steps):
            _reflect(block, bound, twice, first_buffer)
            _transform(basis, first_buffer, second_buffer)
            _apply(inverse_head, inverse_pairs, second_buffer, first_buffer)
            flat = first_buffer.reshape(-1)
            for index in range(flat.size):
                flat[index] += flat_offset[index]
            _transform(basis_t, first_buffer, second_buffer)
            if step == n_steps - 1:
                _measure(block, second_buffer, bound, first, last, change, size)
            _relax(block, second_buffer, bound, relaxation)
        _store_active(block, first, last, active, point)


@_compiled
def _add_product(left, right, product, total):
    """Add left·rightᵀ of the mean's coefficients to ``total``.

    In loops, since adding arrays would compile a check of shapes for two seconds.
    """
    np.dot(left, right.T, product)
    for row in range(total.shape[0]):
        for column in range(total.shape[1]):
            total[row, column] += product[row, column]


@_compiled
def _add_pair(left, right, ends, product, first, second):
    """Add left·rightᵀ of a pair of coefficients, folded (see ``fourier.fold``), to ``first`` and ``second``.

    ``ends`` says that the pair is mean and Nyquist, which do not mix.
    """
    np.dot(left, right.T, product)
    n_rows, n_columns = first.shape
    for row in range(n_rows):
        above, below = product[row], product[n_rows + row]
        for column in range(n_columns):
            here, there = above[column], below[n_columns + column]
            first[row, column] += here if ends else here + there
            second[row, column] += there if ends else below[column] - above[n_columns + column]


@_compiled
def summarise(codes, data, basis, map_head, map_pairs, start, stop, residuals, absolutes, gram, cross):
    """Accumulate what learning needs to know of images [start, stop) at ``codes``.

    Writes each image's squared residual and l1 norm; adds the folded products codes·codesᵀ and data·codesᵀ of the
    real Fourier coefficients, ``SUMMED`` images at a time, to double-precision sums, unless these are empty.
    """
    tube_length, n_atoms, _ = codes.shape
    n_rows, n_images = data.shape[1], stop - start
    n_blocks = (n_images + SUMMED - 1) // SUMMED
    width = (n_images + n_blocks - 1) // max(n_blocks, 1)  # as even as can be: the last block is padded
    block = np.empty((tube_length, n_atoms, width), codes.dtype)
    coefficients = np.empty_like(block)
    image = np.empty((tube_length, n_rows, width), codes.dtype)
    image_hat = np.empty_like(image)
    n_head, n_pairs = map_head.shape[0], map_pairs.shape[0]
    head_gram = np.empty((n_atoms, n_atoms), codes.dtype)
    head_cross = np.empty((n_rows, n_atoms), codes.dtype)
    pair_gram = np.empty((2 * n_atoms, 2 * n_atoms), codes.dtype)
    pair_cross = np.empty((2 * n_rows, 2 * n_atoms), codes.dtype)
    for first in range(start, stop, width):
        last = min(first + width, stop)
        _load(codes, first, last, block)
        _load(data, first, last, image)
        _transform(basis, block, coefficients)
        _transform(basis, image, image_hat)
        _sum_absolutes(block, first, last, absolutes)
        if gram.shape[0]:
            if n_head:
                _add_product(coefficients[0], coefficients[0], head_gram, gram[0])
                _add_product(image_hat[0], coefficients[0], head_cross, cross[0])
            code_pairs = coefficients[n_head:].reshape(n_pairs, -1, width)
            image_pairs = image_hat[n_head:].reshape(n_pairs, -1, width)
            for pair in range(n_pairs):
                ends, place = n_head + pair == 0, n_head + 2 * pair
                _add_pair(code_pairs[pair], code_pairs[pair], ends, pair_gram, gram[place], gram[place + 1])
                _add_pair(image_pairs[pair], code_pairs[pair], ends, pair_cross, cross[place], cross[place + 1])
        _apply(map_head, map_pairs, coefficients, image)
        _sum_squares(image_hat, image, first, last, residuals)


@_inlined
def _sum_absolutes(block, first, last, absolutes):
    """Set the l1 norm of every image of a block."""
    totals = np.zeros(block.shape[2])
    for time in range(block.shape[0]):
        for row in range(block.shape[1]):
            values = block[time, row]
            for column in range(totals.size):
                totals[column] += abs(values[column])
    for column in range(last - first):
        absolutes[first + column] = totals[column]


@_inlined
def _sum_squares(wanted, found, first, last, residuals):
    """Set the squared distance of every image of a block."""
    totals = np.zeros(wanted.shape[2])
    for time in range(wanted.shape[0]):
        for row in range(wanted.shape[1]):
            there, here = wanted[time, row], found[time, row]
            for column in range(totals.size):
                totals[column] += (there[column] - here[column]) ** 2
    for column in range(last - first):
        residuals[first + column] = totals[column]


@_compiled
def _extrapolate(codes, momentum, gradient, inertia, restart, step_size, threshold, first, last):
    """One extrapolated shrinkage step (Algorithm 1, lines 6-8) on a block, each image with its own inertia.

    Images marked in ``restart`` drop their momentum first; on return it marks those whose step pointed
    against their momentum (O'Donoghue and Candès 2015).
    """
    width = codes.shape[2]
    push = np.zeros(width, codes.dtype)
    against = np.zeros(width)
    for column in range(last - first):
        before = inertia[first + column]
        after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * before * before))
        push[column] = (before - 1.0) / after
        inertia[first + column] = after
    for time in range(codes.shape[0]):
        for row in range(codes.shape[1]):
            old, here, slope = codes[time, row], momentum[time, row], gradient[time, row]
            for column in range(width):
                value = here[column] - step_size * slope[column]
                value -= min(max(value, -threshold), threshold)
                against[column] += (here[column] - value) * (value - old[column])
                here[column] = value + push[column] * (value - old[column])
                old[column] = value
    for column in range(last - first):
        restart[first + column] = against[column]


@_compiled
def _drop_momentum(codes, momentum, inertia, restart, first, last):
    for column in range(last - first):
        if restart[first + column] > 0.0:
            inertia[first + column] = 1.0
            for time in range(codes.shape[0]):
                for row in range(codes.shape[1]):
                    momentum[time, row, column] = codes[time, row, column]


@_compiled
def accelerate(
    codes, momentum, inertia, restart, linear, graph_term, basis, basis_t, gram_head, gram_pairs,
    step_size, threshold, n_steps, start, stop,
):  # fmt: skip
    """Run ``n_steps`` of Algorithm 1 with restart on images [start, stop), in place.

    ``linear`` is Dᵀx (k, rows, n). ``graph_term`` is the gradient of the graph's part, or empty; with a
    graph the caller makes one step at a time, since it must be formed anew for each.
    """
    tube_length, n_atoms, _ = codes.shape
    block = np.empty((tube_length, n_atoms, BLOCK), codes.dtype)
    ahead, slope, buffer, constant = (
        np.empty_like(block),
        np.empty_like(block),
        np.empty_like(block),
        np.empty_like(block),
    )
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        _load(codes, first, last, block)
        _load(momentum, first, last, ahead)
        _load(linear, first, last, constant)
        if graph_term.size:
            _load(graph_term, first, last, buffer)
            constant -= buffer
        flat_constant = constant.reshape(-1)
        for _ in range(n_steps):
            _drop_momentum(block, ahead, inertia, restart, first, last)
            _transform(basis, ahead, buffer)
            _apply(gram_head, gram_pairs, buffer, slope)
            _transform(basis_t, slope, buffer)
            flat = buffer.reshape(-1)
            for index in range(flat.size):
                flat[index] -= flat_constant[index]
            _extrapolate(block, ahead, buffer, inertia, restart, step_size, threshold, first, last)
        _store(block, first, last, codes)
        _store(ahead, first, last, momentum)
