"""Kernels of coding: both iterations of the tubal models (ADMM and Algorithm 1), shifted systems
``(scale · L + shift) x = right`` of the graph Laplacian, the dictionary step, and few atoms for one image.

Each kernel copies a block of images into buffers that fit into the cache and makes all its steps there. The Fourier
transform is a matrix product with the k × k real basis, the dictionary is one small matrix per frequency pair (see
``tubal.problems.linear_map``), and the element-wise part is a single pass. Threads run a kernel on disjoint ranges of
images, with BLAS limited to one thread each (``tubal.backends.arrays.own_threads``).

With a graph, coefficient rows are kept side by side in slabs ``(slab, image, lane)``, one row per lane. A product with
the sparse Laplacian then reads contiguous memory, and all steps on one slab stay in the cache. ``graph`` is the tuple
that ``GraphTerm.bundles`` returns: for every image the index of its first bundle, the neighbours and weights of each
bundle (bundle, 4), and the diagonal of L. Models other than the tubal ones use these kernels too.

Arrays are tube-first: codes (tube, atom, image), data (tube, row, image). A block operator is a ``head`` (the mean's
matrix, for tubes of odd length) and ``pairs`` (one matrix per frequency pair).
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, float64, int64
from numba.types import Tuple

from tubal.backends.cpu.jit import compiled, inlined

BLOCK = 32  # images per block: wide enough for fast matrix products, small enough for the cache
FEW_ROWS = 12  # a square matrix with at most so many rows is multiplied without BLAS
TILE = 256  # columns of its other factor that are multiplied at a time
LANES = 64  # coefficient rows in a slab: a multiple of the width of vector registers
BUNDLE = 4  # neighbours that the loops below read in one pass; the loops are written out for this number


# --- blocks of images -------------------------------------------------------------------------------------------------
@compiled
def _load_block(source, first, last, block):
    """Copy images [first, last) of ``source`` (tube, row, image) into ``block``; fill the rest with zeros."""
    width = last - first
    for time in range(source.shape[0]):
        for row in range(source.shape[1]):
            for column in range(width):
                block[time, row, column] = source[time, row, first + column]
            for column in range(width, block.shape[2]):
                block[time, row, column] = 0.0


@compiled
def _store_block(block, first, last, target):
    """Copy ``block`` into images [first, last) of ``target``."""
    for time in range(target.shape[0]):
        for row in range(target.shape[1]):
            for column in range(last - first):
                target[time, row, first + column] = block[time, row, column]


@compiled
def _store_active(block, first, last, active, target):
    """Copy the active images of ``block`` into ``target``.

    Converged images keep their values, so that the codes of an image do not depend on the rest of its batch.
    """
    for time in range(target.shape[0]):
        for row in range(target.shape[1]):
            for column in range(last - first):
                if active[first + column]:
                    target[time, row, first + column] = block[time, row, column]


# --- one step on one block --------------------------------------------------------------------------------------------
@compiled
def _transform(basis, source, target):
    """Set ``target`` to ``basis`` applied along the tube of ``source``."""
    tube_length = source.shape[0]
    np.dot(basis, source.reshape(tube_length, -1), target.reshape(tube_length, -1))


@compiled
def _apply(head, pairs, source, target):
    """Set ``target`` (tube, row, width) to the block operator applied to ``source`` (tube, inner, width)."""
    if head.shape[0]:
        np.dot(head[0], source[0], target[0])
    n_head, width = head.shape[0], source.shape[2]
    n_pairs = pairs.shape[0]
    tail_in = source[n_head:].reshape(n_pairs, -1, width)
    tail_out = target[n_head:].reshape(n_pairs, -1, width)
    for pair in range(n_pairs):
        np.dot(pairs[pair], tail_in[pair], tail_out[pair])


@inlined
def _reflect(point, bound, times, reflected):
    """Set ``reflected`` to ``point - times · clip(point)``.

    The result is the codes for ``times`` = 1, and the codes minus the scaled dual for ``times`` = 2.
    """
    source, target = point.reshape(-1), reflected.reshape(-1)
    for index in range(source.size):
        value = source[index]
        target[index] = value - times * min(max(value, -bound), bound)


@inlined
def _relax(point, solved, bound, relaxation):
    """Move ``point`` towards ``solved + clip(point)``, in place."""
    target, source = point.reshape(-1), solved.reshape(-1)
    for index in range(target.size):
        value = target[index]
        clipped = min(max(value, -bound), bound)
        target[index] = value + relaxation * (source[index] + clipped - value)


@inlined
def _measure(point, solved, bound, first, last, change, size):
    """Set ``change`` and ``size`` (image,) to the squared lengths of the next step and of the point of each image."""
    moved, total = change[first:last], size[first:last]
    for column in range(last - first):
        moved[column] = total[column] = 0.0
    for time in range(point.shape[0]):
        for row in range(point.shape[1]):
            here, there = point[time, row], solved[time, row]
            for column in range(last - first):
                value = here[column]
                clipped = min(max(value, -bound), bound)
                difference = there[column] + clipped - value
                moved[column] += difference * difference
                total[column] += value * value


# --- ADMM without a graph ---------------------------------------------------------------------------------------------
# Cosines are even along the tube and sines are odd. So both transforms take the even part of a tube, its first half
# plus the mirrored second half, and the odd part apart, which halves their work. Folded blocks hold the even part of
# all times up to half a tube, and then the odd part; their coefficients are the mean, the first halves of all frequency
# pairs, and then the second halves.
@inlined
def _reflect_folded(point, bound, folded):
    """Set ``folded`` to the even and odd part of ``point - 2 · clip(point)``: the codes minus the scaled dual."""
    tube_length, twice = point.shape[0], point.dtype.type(2.0)
    for time in range(tube_length // 2 + 1):
        mirror = (tube_length - time) % tube_length
        here, there, even = point[time].reshape(-1), point[mirror].reshape(-1), folded[time].reshape(-1)
        if mirror == time:
            for index in range(here.size):
                even[index] = here[index] - twice * min(max(here[index], -bound), bound)
        else:
            odd = folded[tube_length // 2 + time].reshape(-1)
            for index in range(here.size):
                left = here[index] - twice * min(max(here[index], -bound), bound)
                right = there[index] - twice * min(max(there[index], -bound), bound)
                even[index] = left + right
                odd[index] = left - right


@inlined
def _relax_folded(point, folded, bound, relaxation):
    """Add ``relaxation · (correction - clip(point))`` to ``point``; ``folded`` holds the parts of the correction."""
    tube_length = point.shape[0]
    for time in range(tube_length // 2 + 1):
        mirror = (tube_length - time) % tube_length
        here, there, even = point[time].reshape(-1), point[mirror].reshape(-1), folded[time].reshape(-1)
        if mirror == time:
            for index in range(here.size):
                here[index] += relaxation * (even[index] - min(max(here[index], -bound), bound))
        else:
            odd = folded[tube_length // 2 + time].reshape(-1)
            for index in range(here.size):
                left, right = even[index] + odd[index], even[index] - odd[index]
                here[index] += relaxation * (left - min(max(here[index], -bound), bound))
                there[index] += relaxation * (right - min(max(there[index], -bound), bound))


@inlined
def _measure_folded(point, folded, bound, first, last, change, size):
    """Set ``change`` and ``size`` (image,) to the squared lengths of the next step and of the point of each image."""
    tube_length = point.shape[0]
    moved, total = change[first:last], size[first:last]
    for column in range(last - first):
        moved[column] = total[column] = 0.0
    for time in range(tube_length):
        nearer = min(time, tube_length - time)
        # The odd part changes its sign in the second half of the tube, and is zero where both halves meet.
        sign = point.dtype.type(0.0 if 2 * nearer in (0, tube_length) else (1.0 if nearer == time else -1.0))
        for row in range(point.shape[1]):
            here, even = point[time, row], folded[nearer, row]
            odd = folded[tube_length // 2 + nearer, row] if sign != 0.0 else even
            for column in range(last - first):
                value = here[column]
                difference = even[column] + sign * odd[column] - min(max(value, -bound), bound)
                moved[column] += difference * difference
                total[column] += value * value


@compiled
def _multiply(matrix, source, target):
    """Set ``target`` to ``matrix @ source``, faster than BLAS where each sum has few terms.

    A tile of columns stays in the fastest cache. The first term is written, and then eight terms are added in one pass,
    then two, then the last one.
    """
    n_rows, length = matrix.shape
    in_eights = 1 + (length - 1) // 8 * 8
    for first in range(0, source.shape[1], TILE):
        last = min(first + TILE, source.shape[1])
        for row in range(n_rows):
            factors, sums = matrix[row], target[row, first:last]
            f0, s0 = factors[0], source[0, first:last]
            for c in range(last - first):
                sums[c] = f0 * s0[c]
            for n in range(1, in_eights, 8):
                f0, f1, f2, f3 = factors[n], factors[n + 1], factors[n + 2], factors[n + 3]
                f4, f5, f6, f7 = factors[n + 4], factors[n + 5], factors[n + 6], factors[n + 7]
                s0, s1 = source[n, first:last], source[n + 1, first:last]
                s2, s3 = source[n + 2, first:last], source[n + 3, first:last]
                s4, s5 = source[n + 4, first:last], source[n + 5, first:last]
                s6, s7 = source[n + 6, first:last], source[n + 7, first:last]
                for c in range(last - first):
                    half = f0 * s0[c] + f1 * s1[c] + f2 * s2[c] + f3 * s3[c]
                    sums[c] += half + f4 * s4[c] + f5 * s5[c] + f6 * s6[c] + f7 * s7[c]
            for n in range(in_eights, length - 1, 2):
                f0, f1, s0, s1 = factors[n], factors[n + 1], source[n, first:last], source[n + 1, first:last]
                for c in range(last - first):
                    sums[c] += f0 * s0[c] + f1 * s1[c]
            if (length - in_eights) % 2:
                f0, s0 = factors[length - 1], source[length - 1, first:last]
                for c in range(last - first):
                    sums[c] += f0 * s0[c]


@inlined
def _transform_part(basis, source, target):
    """Set the rows of ``target`` to combinations of those of ``source``."""
    rows, found = source.reshape(basis.shape[1], -1), target.reshape(basis.shape[0], -1)
    if basis.shape[0] <= FEW_ROWS:
        _multiply(basis, rows, found)
    else:
        np.dot(basis, rows, found)


@inlined
def _transform_folded(even_basis, odd_basis, source, target):
    """Set ``target`` to the coefficients of a folded ``source`` or, with transposed bases, the other way round."""
    n_even = even_basis.shape[0]
    _transform_part(even_basis, source[:n_even], target[:n_even])
    if odd_basis.shape[0]:
        _transform_part(odd_basis, source[n_even:], target[n_even:])


@inlined
def _copy(source, target):
    """Copy a contiguous array; a loop, because an assignment of slices is not compiled to vector operations."""
    values, places = source.reshape(-1), target.reshape(-1)
    for index in range(values.size):
        places[index] = values[index]


@inlined
def _correct_folded(forward_head, forward_pairs, back_head, back_pairs, narrow, fixed, tile, residual, folded):
    """Replace folded coefficients v by ``back residual`` if ``narrow`` is set, else by the residual itself.

    ``residual`` is set to ``fixed - forward v``; like ``fixed`` it is not folded.
    """
    n_head, n_pairs, n_atoms, width = forward_head.shape[0], forward_pairs.shape[0], folded.shape[1], folded.shape[2]
    wanted_tail = fixed[n_head:].reshape(n_pairs, -1, width)
    rest_tail = residual[n_head:].reshape(n_pairs, -1, width)
    for slab in range(n_head + n_pairs):
        pair, single = slab - n_head, slab < n_head
        matrix = forward_head[0] if single else forward_pairs[pair]
        wanted, rest = (fixed[0], residual[0]) if single else (wanted_tail[pair], rest_tail[pair])
        lanes = tile[: matrix.shape[1]]
        _copy(folded[slab], lanes[:n_atoms])
        if not single:
            _copy(folded[n_pairs + slab], lanes[n_atoms:])
        np.dot(matrix, lanes, rest)
        left, right = rest.reshape(-1), wanted.reshape(-1)
        for index in range(left.size):
            left[index] = right[index] - left[index]
        if narrow:
            np.dot(back_head[0] if single else back_pairs[pair], rest, lanes)
            rest = lanes
        _copy(rest[:n_atoms], folded[slab])
        if not single:
            _copy(rest[n_atoms:], folded[n_pairs + slab])


@inlined
def _sum_gap_terms(block, slopes, image_hat, residual, first, last, residuals, absolutes, products, largest):
    """Set the four terms of :func:`gap_terms` for the images of a block; ``slopes`` are folded."""
    half, width = block.shape[0] // 2, last - first
    squares, sums, inner, steepest = (
        residuals[first:last], absolutes[first:last], products[first:last], largest[first:last]
    )  # fmt: skip
    for column in range(width):
        squares[column] = sums[column] = inner[column] = steepest[column] = 0.0
    for time in range(block.shape[0]):
        for row in range(residual.shape[1]):
            rest, whole = residual[time, row], image_hat[time, row]
            for column in range(width):
                squares[column] += rest[column] * rest[column]
                inner[column] -= rest[column] * (whole[column] - rest[column])
        for row in range(block.shape[1]):
            here = block[time, row]
            for column in range(width):
                sums[column] += abs(here[column])
    for time in range(half + 1):
        alone = time == 0 or 2 * time == block.shape[0]
        for row in range(block.shape[1]):
            even = slopes[time, row]
            odd = even if alone else slopes[half + time, row]
            for column in range(width):
                # The larger magnitude of even + odd and even - odd.
                slope = abs(even[column]) if alone else abs(even[column]) + abs(odd[column])
                steepest[column] = max(steepest[column], slope)


@compiled
def split_independent(
    point, data, basis, even_basis, even_basis_t, odd_basis, odd_basis_t, forward_head, forward_pairs, back_head,
    back_pairs, narrow, bound, relaxation, n_steps, active, start, stop, change, size,
):  # fmt: skip
    """Make ``n_steps`` over-relaxed Douglas-Rachford steps on images [start, stop), in place.

    With v the codes minus the scaled dual, the exact solve is ``v + back (x - D v)``, ``back = (DᵀD + penalty)⁻¹ Dᵀ``.
    If ``narrow`` is set, D has much fewer rows than atoms and ``forward`` is D; else ``forward`` is the product
    ``back D``, and ``back x`` is computed once. Blocks without an active image are skipped.
    """
    tube_length, n_atoms, _ = point.shape
    block = np.empty((tube_length, n_atoms, BLOCK), point.dtype)
    folded, folded_hat = np.empty_like(block), np.empty_like(block)
    image = np.empty((tube_length, data.shape[1], BLOCK), point.dtype)
    image_hat = np.empty_like(image)
    fixed = image_hat if narrow else np.empty_like(block)
    residual, tile = np.empty_like(fixed), np.empty((2 * n_atoms, BLOCK), point.dtype)
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        if not active[first:last].any():
            continue
        _load_block(point, first, last, block)
        _load_block(data, first, last, image)
        _transform(basis, image, image_hat)
        if not narrow:
            _apply(back_head, back_pairs, image_hat, fixed)
        for step in range(n_steps):
            _reflect_folded(block, bound, folded)
            _transform_folded(even_basis, odd_basis, folded, folded_hat)
            _correct_folded(
                forward_head, forward_pairs, back_head, back_pairs, narrow, fixed, tile, residual, folded_hat
            )
            _transform_folded(even_basis_t, odd_basis_t, folded_hat, folded)
            if step == n_steps - 1:
                _measure_folded(block, folded, bound, first, last, change, size)
            _relax_folded(block, folded, bound, relaxation)
        _store_active(block, first, last, active, point)


@compiled
def gap_terms(
    codes, data, basis, even_basis, even_basis_t, odd_basis, odd_basis_t, forward_head, forward_pairs, adjoint_head,
    adjoint_pairs, start, stop, residuals, absolutes, products, largest,
):  # fmt: skip
    """Compute what the duality gaps of images [start, stop) need, each (image,), for codes c and the residual x - D c.

    ``residuals`` are its squared norms, ``absolutes`` the l1 norms of c, ``products`` the inner products of c with the
    gradient, which is minus Dᵀ of the residual, and ``largest`` the largest magnitudes of the gradient.
    """
    tube_length, n_atoms, _ = codes.shape
    block = np.empty((tube_length, n_atoms, BLOCK), codes.dtype)
    folded, folded_hat = np.empty_like(block), np.empty_like(block)
    image = np.empty((tube_length, data.shape[1], BLOCK), codes.dtype)
    image_hat, residual = np.empty_like(image), np.empty_like(image)
    tile, zero = np.empty((2 * n_atoms, BLOCK), codes.dtype), codes.dtype.type(0.0)
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        _load_block(codes, first, last, block)
        _load_block(data, first, last, image)
        _transform(basis, image, image_hat)
        _reflect_folded(block, zero, folded)
        _transform_folded(even_basis, odd_basis, folded, folded_hat)
        _correct_folded(
            forward_head, forward_pairs, adjoint_head, adjoint_pairs, True, image_hat, tile, residual, folded_hat
        )
        _transform_folded(even_basis_t, odd_basis_t, folded_hat, folded)
        _sum_gap_terms(block, folded, image_hat, residual, first, last, residuals, absolutes, products, largest)


# --- ADMM with a graph ------------------------------------------------------------------------------------------------
# Between the two halves of a step, coefficients are kept as slabs (slab, image, lane): one slab per frequency pair, its
# rows side by side. The last part of this file solves the graph systems in this order.
@inlined
def _rotate(source, head, pairs, scale, offset, first, last, tile, slabs):
    """Write ``scale`` times the *transposed* block operator applied to ``source``, plus ``offset``, into ``slabs``.

    ``source`` is (tube, inner, width); ``offset`` has the shape of ``slabs`` (slab, image, lane) or is empty. The
    operator multiplies from the right, so that images come out as rows with the lanes of a pair side by side: the order
    of the slabs. The head's slab is as wide as the others and half empty.
    """
    n_head, n_pairs, width = head.shape[0], pairs.shape[0], source.shape[2]
    tail = source[n_head:].reshape(n_pairs, -1, width)
    for slab in range(n_head + n_pairs):
        matrix, rows = (head[0], source[0]) if slab < n_head else (pairs[slab - n_head], tail[slab - n_head])
        n_lanes = matrix.shape[1]
        product = tile[: width * n_lanes].reshape(width, n_lanes)
        np.dot(rows.T, matrix, product)
        for column in range(last - first):
            here, target = product[column], slabs[slab, first + column]
            if offset.size:
                extra = offset[slab, first + column]
                for lane in range(n_lanes):
                    target[lane] = scale * here[lane] + extra[lane]
            else:
                for lane in range(n_lanes):
                    target[lane] = scale * here[lane]


@inlined
def _rotate_back(slabs, head, pairs, first, last, tile, target):
    """Set ``target`` (tube, row, width) to the block operator applied to images [first, last) of ``slabs``.

    ``slabs`` is (slab, image, lane). ``head`` is the operator's matrix for the mean, ``pairs`` those of the frequency
    pairs. Columns past the last image repeat it. Transposing here, in the cache, makes the matrix product a third
    faster than passing it a transposed right factor.
    """
    n_head, n_pairs, width = head.shape[0], pairs.shape[0], target.shape[2]
    tail = target[n_head:].reshape(n_pairs, -1, width)
    for slab in range(n_head + n_pairs):
        matrix, rows = (head[0], target[0]) if slab < n_head else (pairs[slab - n_head], tail[slab - n_head])
        n_lanes = matrix.shape[1]
        lanes = tile[: n_lanes * width].reshape(n_lanes, width)
        for column in range(width):
            source = slabs[slab, min(first + column, last - 1)]
            for lane in range(n_lanes):
                lanes[lane, column] = source[lane]
        np.dot(matrix, lanes, rows)


@compiled
def graph_step(
    solved, basis, basis_t, head, pairs, bound, relaxation, measure, scale, times, offset, start, stop, blocks, right,
    change, size,
):  # fmt: skip
    """Finish a step of ADMM on images [start, stop), and begin the next one.

    If ``solved`` is not empty, rotate this solution of the graph systems back, relax, and measure the change if
    ``measure`` is set. If ``right`` is not empty, write the rotated Fourier coefficients of
    ``scale · (point - times · dual) + offset`` to it, while the block is in the cache. With ``times`` = 2 these are the
    right-hand sides of a step, with 1 the codes, with 0 the blocks themselves. ``head`` and ``pairs`` are the transpose
    of the rotation. ``offset`` has the shape of ``right`` or is empty, and may be ``right`` itself.
    """
    width = blocks.shape[3]
    buffer = np.empty(blocks.shape[1:], blocks.dtype)
    rotated = np.empty(blocks.shape[1:], blocks.dtype)
    tile = np.empty(width * max(pairs.shape[2], head.shape[2]), blocks.dtype)
    for first in range(start, stop, width):
        last = min(first + width, stop)
        block = blocks[first // width]
        if solved.size:
            _rotate_back(solved, head, pairs, first, last, tile, buffer)
            _transform(basis_t, buffer, rotated)
            if measure:
                _measure(block, rotated, bound, first, last, change, size)
            _relax(block, rotated, bound, relaxation)
        if right.size:
            _reflect(block, bound, times, buffer)
            _transform(basis, buffer, rotated)
            _rotate(rotated, head, pairs, scale, offset, first, last, tile, right)


# --- Algorithm 1 ------------------------------------------------------------------------------------------------------
@compiled
def _extrapolate(codes, momentum, gradient, inertia, restart, step_size, threshold, first, last):
    """Make one extrapolated shrinkage step (Algorithm 1, lines 6-8) on a block; every image has its own inertia.

    On return ``restart`` is positive for images whose step pointed against their momentum (O'Donoghue and Candès
    2015); :func:`_drop_momentum` handles them before the next step.
    """
    width = codes.shape[2]
    momentum_weight = np.zeros(width, codes.dtype)
    against = np.zeros(width)
    for column in range(last - first):
        before = inertia[first + column]
        after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * before * before))
        momentum_weight[column] = (before - 1.0) / after
        inertia[first + column] = after
    for time in range(codes.shape[0]):
        for row in range(codes.shape[1]):
            old, here, slope = codes[time, row], momentum[time, row], gradient[time, row]
            for column in range(width):
                value = here[column] - step_size * slope[column]
                value -= min(max(value, -threshold), threshold)
                against[column] += (here[column] - value) * (value - old[column])
                here[column] = value + momentum_weight[column] * (value - old[column])
                old[column] = value
    for column in range(last - first):
        restart[first + column] = against[column]


@compiled
def _drop_momentum(codes, momentum, inertia, restart, first, last):
    """Reset momentum and inertia of the images whose ``restart`` is positive."""
    for column in range(last - first):
        if restart[first + column] > 0.0:
            inertia[first + column] = 1.0
            for time in range(codes.shape[0]):
                for row in range(codes.shape[1]):
                    momentum[time, row, column] = codes[time, row, column]


@compiled
def accelerated_steps(
    codes, momentum, inertia, restart, linear, graph_term, basis, basis_t, gram_head, gram_pairs,
    step_size, threshold, n_steps, start, stop,
):  # fmt: skip
    """Make ``n_steps`` of Algorithm 1 with restart on images [start, stop), in place.

    ``linear`` is Dᵀx (tube, atom, image). ``graph_term`` is the gradient of the graph term, or empty. It changes with
    every step, so with a graph the caller makes one step at a time.
    """
    tube_length, n_atoms, _ = codes.shape
    block = np.empty((tube_length, n_atoms, BLOCK), codes.dtype)
    ahead, slope = np.empty_like(block), np.empty_like(block)
    buffer, constant = np.empty_like(block), np.empty_like(block)
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        _load_block(codes, first, last, block)
        _load_block(momentum, first, last, ahead)
        _load_block(linear, first, last, constant)
        if graph_term.size:
            _load_block(graph_term, first, last, buffer)
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
        _store_block(block, first, last, codes)
        _store_block(ahead, first, last, momentum)


# --- rows to slabs ----------------------------------------------------------------------------------------------------
@compiled
def to_slabs(source, rows, slabs):
    """Copy rows of ``source`` (row, image) into ``slabs``; a lane holds the row that ``rows`` (slab, lane) names."""
    for slab in range(slabs.shape[0]):
        held = rows[slab]
        for sample in range(slabs.shape[1]):
            target = slabs[slab, sample]
            for lane in range(target.size):
                target[lane] = source[held[lane], sample]


@compiled
def from_slabs(slabs, rows, target):
    """Undo :func:`to_slabs`; padding lanes of the last slab repeat its last row and write the same values again."""
    for slab in range(slabs.shape[0]):
        held = rows[slab]
        for sample in range(slabs.shape[1]):
            source = slabs[slab, sample]
            for lane in range(source.size):
                target[held[lane], sample] = source[lane]


# --- systems ----------------------------------------------------------------------------------------------------------
@inlined
def _jacobi_sweep(graph, scale, shift, weight, right, vector, gathered, target):
    """Set ``target`` to ``(1 - weight) · target + weight · J(vector)``.

    J is the Jacobi step of ``(scale · L + shift) x = right``. All arrays are (image, lane); ``shift`` and the buffer
    ``gathered`` are (lane,). Neighbours are read four at a time in one pass over the lanes, because starting a pass
    costs as much as the pass itself. Most images have one bundle and are finished in that pass. A loop over more
    arrays at once would not be vectorised.
    """
    starts, neighbors, weights, diagonal = graph
    lanes = vector.shape[1]  # a run-time value: the compiler would unroll a constant into scalar code
    keep = right.dtype.type(1.0) - weight
    for sample in range(vector.shape[0]):
        rhs, row, own = right[sample], target[sample], scale * diagonal[sample]
        begin, end = starts[sample], starts[sample + 1]
        for bundle in range(begin, end):
            first, second = vector[neighbors[bundle, 0]], vector[neighbors[bundle, 1]]
            third, fourth = vector[neighbors[bundle, 2]], vector[neighbors[bundle, 3]]
            a, b = scale * weights[bundle, 0], scale * weights[bundle, 1]
            c, d = scale * weights[bundle, 2], scale * weights[bundle, 3]
            if end == begin + 1:
                for lane in range(lanes):
                    others = a * first[lane] + b * second[lane] + c * third[lane] + d * fourth[lane]
                    row[lane] = keep * row[lane] + weight * (rhs[lane] - others) / (own + shift[lane])
            elif bundle == begin:
                for lane in range(lanes):
                    gathered[lane] = a * first[lane] + b * second[lane] + c * third[lane] + d * fourth[lane]
            else:
                for lane in range(lanes):
                    gathered[lane] += a * first[lane] + b * second[lane] + c * third[lane] + d * fourth[lane]
        if end > begin + 1:
            for lane in range(lanes):
                row[lane] = keep * row[lane] + weight * (rhs[lane] - gathered[lane]) / (own + shift[lane])


@compiled
def solve_graph_systems(graph, scale, shifts, rates, counts, right, start, stop, solution):
    """Improve ``solution`` in slabs [start, stop) by ``counts[slab]`` Jacobi steps with Chebyshev weights.

    ``rates[slab]`` bounds the factor by which one plain Jacobi step shrinks the error. After n weighted steps the
    factor is at most 1 / T_n(1 / rate), with T_n the Chebyshev polynomial (Golub and Varga 1961). Only two vectors are
    kept, and no inner product is needed.
    """
    n_samples, lanes = right.shape[1:]
    other, gathered = np.empty((n_samples, lanes), right.dtype), np.empty(lanes, right.dtype)
    for sample in range(n_samples):  # np.zeros would take longer to compile
        for lane in range(lanes):
            other[sample, lane] = 0.0
    for slab in range(start, stop):
        here, rows, shift = solution[slab], right[slab], shifts[slab]
        quarter, weight = 0.25 * rates[slab] * rates[slab], 1.0  # a power would take longer to compile
        for step in range(counts[slab]):
            if step > 0:
                weight = 1.0 / (1.0 - quarter * weight * (2.0 if step == 1 else 1.0))
            source, target = (here, other) if step % 2 == 0 else (other, here)
            _jacobi_sweep(graph, scale, shift, right.dtype.type(weight), rows, source, gathered, target)
        if counts[slab] % 2:
            for sample in range(n_samples):
                for lane in range(lanes):
                    here[sample, lane] = other[sample, lane]


# --- the dictionary step ----------------------------------------------------------------------------------------------
# Value, gradient and Hessian terms of the Lagrange dual, frequency by frequency. Real and imaginary parts are stored
# apart, so that every inner loop fills whole vector registers. Calling LAPACK instead would be as fast on one thread,
# but takes Numba five times as long to compile, and its threads wait for each other.
@compiled
def _invert(real, imag):
    """Invert a positive definite Hermitian matrix in place, by Gauss-Jordan steps, which need no pivoting here."""
    size = real.shape[0]
    row_real, row_imag = np.empty(size), np.empty(size)
    for pivot in range(size):
        scale = 1.0 / real[pivot, pivot]
        for column in range(size):
            row_real[column] = scale * real[pivot, column]
            row_imag[column] = scale * imag[pivot, column]
        for row in range(size):
            if row == pivot:
                continue
            factor_real, factor_imag = real[row, pivot], imag[row, pivot]
            for column in range(size):
                real[row, column] -= factor_real * row_real[column] - factor_imag * row_imag[column]
                imag[row, column] -= factor_real * row_imag[column] + factor_imag * row_real[column]
            real[row, pivot], imag[row, pivot] = -scale * factor_real, -scale * factor_imag
        for column in range(size):
            real[pivot, column], imag[pivot, column] = row_real[column], row_imag[column]
        real[pivot, pivot], imag[pivot, pivot] = scale, 0.0


@compiled
def _solve_dictionary(cross, real, imag, hat_real, hat_imag):
    """Set D̂ (``hat_real``, ``hat_imag``) to ``cross`` (row, atom) times the inverse; return ``Re <D̂, cross>``."""
    total = 0.0
    for row in range(cross.shape[0]):
        for column in range(cross.shape[1]):
            hat_real[row, column] = hat_imag[row, column] = 0.0
        for inner in range(cross.shape[1]):
            left_real, left_imag = cross[row, inner].real, cross[row, inner].imag
            for column in range(cross.shape[1]):
                hat_real[row, column] += left_real * real[inner, column] - left_imag * imag[inner, column]
                hat_imag[row, column] += left_real * imag[inner, column] + left_imag * real[inner, column]
        for column in range(cross.shape[1]):
            total += hat_real[row, column] * cross[row, column].real + hat_imag[row, column] * cross[row, column].imag
    return total


@compiled
def _curvature(hat_real, hat_imag, real, imag, count, norms, curvature):
    """Set the squared norms of the atoms and ``Re[(D̂ᴴ D̂) ∘ inverseᵀ]``, both times ``count``."""
    n_rows, n_atoms = hat_real.shape
    product_real, product_imag = np.empty(n_atoms), np.empty(n_atoms)
    for atom in range(n_atoms):
        for other in range(n_atoms):
            product_real[other] = product_imag[other] = 0.0
        for row in range(n_rows):
            here_real, here_imag = hat_real[row, atom], hat_imag[row, atom]
            for other in range(n_atoms):
                product_real[other] += here_real * hat_real[row, other] + here_imag * hat_imag[row, other]
                product_imag[other] += here_real * hat_imag[row, other] - here_imag * hat_real[row, other]
        norms[atom] = count * product_real[atom]
        for other in range(n_atoms):
            # The inverse is Hermitian, so its transpose is its conjugate.
            both = product_real[other] * real[atom, other] + product_imag[other] * imag[atom, other]
            curvature[atom, other] = count * both


@compiled
def dual_terms(gram, cross, counts, multipliers, start, stop, dictionary_hat, fitted, norms, curvature):
    """Compute the terms of the dual at ``multipliers`` (atom,) for frequencies [start, stop).

    ``dictionary_hat`` (frequency, row, atom) is set to ``D̂ = cross (gram + Λ)⁻¹``. The three sums are multiplied by
    the count of their frequency: ``fitted`` (frequency,) is ``Re <D̂, cross>``, ``norms`` (frequency, atom) are the
    squared norms of the atoms, ``curvature`` (frequency, atom, atom) is ``Re[(D̂ᴴ D̂) ∘ ((gram + Λ)⁻¹)ᵀ]``.
    """
    n_rows, n_atoms = cross.shape[1], cross.shape[2]
    real, imag = np.empty((n_atoms, n_atoms)), np.empty((n_atoms, n_atoms))
    hat_real, hat_imag = np.empty((n_rows, n_atoms)), np.empty((n_rows, n_atoms))
    for frequency in range(start, stop):
        for row in range(n_atoms):
            for column in range(n_atoms):
                real[row, column] = gram[frequency, row, column].real
                imag[row, column] = gram[frequency, row, column].imag
            real[row, row] += multipliers[row]
        _invert(real, imag)
        count = counts[frequency]
        fitted[frequency] = count * _solve_dictionary(cross[frequency], real, imag, hat_real, hat_imag)
        _curvature(hat_real, hat_imag, real, imag, count, norms[frequency], curvature[frequency])
        for row in range(n_rows):
            for column in range(n_atoms):
                dictionary_hat[frequency, row, column] = complex(hat_real[row, column], hat_imag[row, column])


# --- one image, few atoms ---------------------------------------------------------------------------------------------
@compiled
def descend(gram, products, slack, square, sparsity, gap, codes):
    """Minimise ``1/2 |x - A' c|² + sparsity |c|₁`` over codes c in place, one coordinate after another.

    ``gram`` is AA', ``products`` are A x, ``slack`` is A (x - A' c), kept up to date, ``square`` is |x|². The duality
    gap of the result is at most ``gap`` times the objective.
    """
    for sweep in range(5000):
        for j in range(len(codes)):
            target = slack[j] + gram[j, j] * codes[j]
            shrunk = max(abs(target) - sparsity, 0.0) / gram[j, j]
            after = shrunk if target > 0.0 else -shrunk
            change = after - codes[j]
            if change != 0.0:
                for k in range(len(codes)):
                    slack[k] -= gram[j, k] * change
                codes[j] = after
        if sweep % 4:
            continue
        # A loop, because operations on whole arrays would take Numba a second more to compile.
        slope, across, size, largest = square, 0.0, 0.0, 1e-300
        for j in range(len(codes)):
            slope -= products[j] * codes[j]
            across += codes[j] * slack[j]
            size += abs(codes[j])
            largest = max(largest, abs(slack[j]))
        left = max(slope - across, 0.0)
        value = 0.5 * left + sparsity * size
        limit = sparsity / largest
        multiple = min(max(slope / max(left, 1e-300), -limit), limit)
        if value - multiple * slope + 0.5 * multiple * multiple * left <= gap * value:
            break


# --- compiled ahead ---------------------------------------------------------------------------------------------------
_vector, _matrix, _cube = float32[::1], float32[:, ::1], float32[:, :, ::1]
# Types of arguments with which clustering in single precision and its report call these kernels.
TYPES = {
    "graph_step": (
        _cube, _matrix, _matrix, _cube, _cube, float32, float32, boolean, float32, float32, _cube, int64, int64,
        float32[:, :, :, ::1], _cube, float64[::1], float64[::1],
    ),
    "solve_graph_systems": (
        Tuple((int64[::1], int64[:, ::1], _matrix, _vector)), float32, _matrix, float64[::1], int64[::1], _cube,
        int64, int64, _cube,
    ),
    "descend": (float64[:, ::1], float64[::1], float64[::1], float64, float64, float64, float64[::1]),
}  # fmt: skip
