"""Kernels of the deformable graph: gradient fields of images, their warps, and the local-warp distance.

Callers run the kernels from several threads on ranges of rows. That compiles in a fraction of the time of Numba's own
parallel loops.

A field is stored flat, ``(channels, length)``. Each image row is preceded by a gap of ``gap`` columns and framed by
``margin`` replicated pixels. The gap holds a value so large that a comparison outside the image can never be a
minimum. So every loop below is one long contiguous loop without tests on columns.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import boolean, float32, int32, int64, void
from numba.extending import intrinsic

from tubal.backends.cpu.jit import CACHED, inlined, njit

FAR = np.float32(1e3)  # larger than any value of a field of unit length

_vector, _matrix, _cube = float32[::1], float32[:, ::1], float32[:, :, ::1]


@njit(void(_vector, int64, int64, int64, int64), **CACHED)
def replicate_margin(plane, height, width, margin, stride):
    """Repeat the outermost pixels of one padded plane ``margin`` times on every side."""
    gap = stride - width - 2 * margin
    for y in range(margin, margin + height):
        start = y * stride + gap
        for x in range(margin):
            plane[start + x] = plane[start + margin]
            plane[start + margin + width + x] = plane[start + margin + width - 1]
    first, last = margin * stride, (margin + height - 1) * stride
    for y in range(margin):
        top, bottom = y * stride, (margin + height + y) * stride
        for x in range(gap, stride):
            plane[top + x] = plane[first + x]
            plane[bottom + x] = plane[last + x]


@njit(float32(_matrix, int64, int64, int64, int64, boolean, _matrix), **CACHED)
def raw_field(image, height, width, margin, gap, plain, field):
    """Write the Sobel derivatives of ``image`` (channels, pixels) into ``field``; return their energy.

    If ``plain`` is set the first plane of each pair holds the pixels themselves and the second zeros.
    """
    stride = width + 2 * margin + gap
    energy = float32(0.0)
    for channel in range(image.shape[0]):
        pixels = image[channel]
        for y in range(height):
            above = pixels[max(y - 1, 0) * width :]
            here = pixels[y * width :]
            below = pixels[min(y + 1, height - 1) * width :]
            start = (y + margin) * stride + gap + margin
            down, right = field[2 * channel, start:], field[2 * channel + 1, start:]
            if plain:
                for x in range(width):
                    down[x] = here[x]
                    right[x] = float32(0.0)
                    energy += here[x] * here[x]
                continue
            for x in range(width):
                left, after = max(x - 1, 0), min(x + 1, width - 1)
                vertical = (below[left] - above[left]) + (below[after] - above[after])
                vertical += float32(2.0) * (below[x] - above[x])
                horizontal = (above[after] - above[left]) + (below[after] - below[left])
                horizontal += float32(2.0) * (here[after] - here[left])
                down[x] = vertical
                right[x] = horizontal
                energy += vertical * vertical + horizontal * horizontal
    return energy


@njit(float32(_matrix, int64, int64, int64, int64, boolean, _matrix), **CACHED)
def unit_field(image, height, width, margin, gap, plain, field):
    """Write the field of ``image``, scaled to unit length, into ``field``; return its energy before scaling."""
    stride = width + 2 * margin + gap
    energy = raw_field(image, height, width, margin, gap, plain, field)
    # A blank image keeps a zero field.
    scale = float32(1.0) / np.sqrt(energy) if energy > 0 else float32(0.0)
    for plane in range(field.shape[0]):
        values = field[plane]
        for y in range(height + 2 * margin):
            for x in range(y * stride, y * stride + gap):
                values[x] = FAR
        for x in range((height + 2 * margin) * stride, field.shape[1]):
            values[x] = FAR
        for y in range(margin, margin + height):
            start = y * stride + gap + margin
            for x in range(start, start + width):
                values[x] *= scale
        replicate_margin(values, height, width, margin, stride)
    return energy


@njit(void(_cube, int64, int64, int64, int64, boolean, _cube, _vector), **CACHED)
def unit_fields(images, height, width, margin, gap, plain, fields, energies):
    """Write the field of every image, scaled to unit length, into ``fields``, and its energy into ``energies``."""
    for index in range(len(images)):
        energies[index] = unit_field(images[index], height, width, margin, gap, plain, fields[index])


@njit(void(_matrix, int32[:, ::1], _matrix, _matrix), **CACHED)
def warp_image(image, corners, shares, warped):
    """Warp ``image`` bilinearly: each pixel is the mean of four ``corners`` weighted by ``shares``."""
    for channel in range(image.shape[0]):
        pixels, result = image[channel], warped[channel]
        for p in range(len(result)):
            result[p] = (
                shares[0, p] * pixels[corners[0, p]]
                + shares[1, p] * pixels[corners[1, p]]
                + shares[2, p] * pixels[corners[2, p]]
                + shares[3, p] * pixels[corners[3, p]]
            )


@intrinsic
def smaller(_context, _left, _right):
    """Return the smaller of two float32 values.

    ``values[t] = min(values[t], z)`` becomes a masked store, which is seven times slower on AMD processors than a
    plain store of this minimum.
    """

    def generate(_context, builder, _signature, arguments):
        number = ir.FloatType()
        minimum = builder.module.declare_intrinsic("llvm.minnum", [number], ir.FunctionType(number, [number, number]))
        return builder.call(minimum, arguments, fastmath=("fast",))

    return float32(float32, float32), generate


@inlined
def _squared_differences(a, b, start, move, count, error):
    """Set ``error[:count]`` to squared differences, over all channels, of ``a[start:]`` and ``b[move:]``."""
    for channel in range(0, a.shape[0], 2):
        a0, a1 = a[channel, start : start + count], a[channel + 1, start : start + count]
        b0, b1 = b[channel, move : move + count], b[channel + 1, move : move + count]
        if channel == 0:
            for t in range(count):
                d0, d1 = a0[t] - b0[t], a1[t] - b1[t]
                error[t] = d0 * d0 + d1 * d1
        else:
            for t in range(count):
                d0, d1 = a0[t] - b0[t], a1[t] - b1[t]
                error[t] += d0 * d0 + d1 * d1


@inlined
def _total(least_a, least_b, layout, complete):
    """Sum the smallest differences of both images; pixels without a partner count as the mean of the others."""
    height, width, margin, gap = layout[0], layout[1], layout[2], layout[3]
    stride = width + 2 * margin + gap
    total, n_matched = float32(0.0), 0
    if complete:
        for y in range(height):
            start = y * stride + gap + margin
            for x in range(start, start + width):
                total += least_a[x] + least_b[x]
        return total
    for y in range(height):
        start = y * stride + gap + margin
        for x in range(start, start + width):
            for least in (least_a[x], least_b[x]):
                if least < FAR:
                    total += least
                    n_matched += 1
    return total * float32(2 * height * width / max(n_matched, 1))


@njit(float32(_matrix, _matrix, int64[::1], int64, int64, _matrix), **CACHED)
def distortion(a, b, layout, shift_y, shift_x, scratch):
    """Return the sum, over the pixels of both images, of the smallest squared context difference within the window.

    ``layout`` is (height, width, margin, gap, window_y, window_x). Let ``D(p, o)`` be the squared difference between
    the context of ``a`` at ``p`` and that of ``b`` at ``p + o``. One pass over the offsets ``o`` around the shift
    gives both ``min_o D(p, o)`` for the pixels of ``a`` and ``min_p D(p, q - p)`` for the pixels of ``b``. If the
    window is narrower than the shift, border pixels have no partner; they count as the mean of the others.
    """
    height, width, margin, gap = layout[0], layout[1], layout[2], layout[3]
    window_y, window_x = layout[4], layout[5]
    stride = width + 2 * margin + gap
    error, column, least_a, least_b = scratch[0], scratch[1], scratch[2], scratch[3]
    least_a[:] = FAR * FAR
    least_b[:] = FAR * FAR
    for window_row in range(-window_y, window_y + 1):
        oy = window_row + shift_y
        first, last = max(0, -oy), min(height, height - oy)
        if last <= first:
            continue
        for window_column in range(-window_x, window_x + 1):
            ox = window_column + shift_x
            n_error = (last - first + 2 * margin) * stride - gap
            start = first * stride + gap
            _squared_differences(a, b, start, start + oy * stride + ox, n_error, error)
            n_column = (last - first) * stride - gap
            if margin == 0:
                for t in range(n_column):
                    column[t] = error[t]
            elif margin == 1:
                e1, e2 = error[stride : stride + n_column], error[2 * stride : 2 * stride + n_column]
                for t in range(n_column):
                    column[t] = error[t] + e1[t] + e2[t]
            else:
                e1, e2 = error[stride : stride + n_column], error[2 * stride : 2 * stride + n_column]
                e3 = error[3 * stride : 3 * stride + n_column]
                e4 = error[4 * stride : 4 * stride + n_column]
                for t in range(n_column):
                    column[t] = (error[t] + e1[t]) + (e2[t] + e3[t]) + e4[t]
            n_box = n_column - 2 * margin
            at_a = first * stride + gap + margin
            at_b = at_a + oy * stride + ox
            fa, fb = least_a[at_a : at_a + n_box], least_b[at_b : at_b + n_box]
            c1, c2 = column[1 : 1 + n_box], column[2 : 2 + n_box]
            if margin == 0:
                for t in range(n_box):
                    z = column[t]
                    fa[t] = smaller(fa[t], z)
                    fb[t] = smaller(fb[t], z)
            elif margin == 1:
                for t in range(n_box):
                    z = column[t] + c1[t] + c2[t]
                    fa[t] = smaller(fa[t], z)
                    fb[t] = smaller(fb[t], z)
            else:
                c3, c4 = column[3 : 3 + n_box], column[4 : 4 + n_box]
                for t in range(n_box):
                    z = (column[t] + c1[t]) + (c2[t] + c3[t]) + c4[t]
                    fa[t] = smaller(fa[t], z)
                    fb[t] = smaller(fb[t], z)
    return _total(least_a, least_b, layout, abs(shift_y) <= window_y and abs(shift_x) <= window_x)


@njit(void(_cube, int64, int64, int32[:, :, ::1], _cube, boolean, _matrix), **CACHED)
def warped_energies(images, height, width, corners, shares, plain, energies):
    """Set ``energies`` (image, warp) to the energy of the field of every warp of every image."""
    warped = np.empty((images.shape[1], images.shape[2]), np.float32)
    field = np.empty((2 * images.shape[1], images.shape[2]), np.float32)
    for index in range(len(images)):
        for warp in range(len(corners)):
            warp_image(images[index], corners[warp], shares[warp], warped)
            energies[index, warp] = raw_field(warped, height, width, 0, 0, plain, field)


@njit(
    void(
        _cube, _cube, int32[:, ::1], int64, int64, int32[:, :, ::1], _cube, int64[:, ::1], int64[::1], boolean, _vector
    ),
    **CACHED,
)  # fmt: skip
def pair_distances(
    images,
    fields,
    pairs,
    start,
    stop,
    corners,
    shares,
    shifts,
    layout,
    plain,
    distances,
):
    """Set ``distances[start:stop]`` to the distortion of the pairs (other, warp, field, shift), sorted in that order.

    Because of the order, each warp of an image is computed once for all pairs that need it.
    """
    height, width, margin, gap = layout[0], layout[1], layout[2], layout[3]
    field = np.empty((fields.shape[1], fields.shape[2]), np.float32)
    warped = np.empty((images.shape[1], images.shape[2]), np.float32)
    scratch = np.empty((4, fields.shape[2] + gap), np.float32)
    other, warp = -1, -1
    for pair in range(start, stop):
        if pairs[pair, 0] != other or pairs[pair, 1] != warp:
            other, warp = pairs[pair, 0], pairs[pair, 1]
            warp_image(images[other], corners[warp], shares[warp], warped)
            unit_field(warped, height, width, margin, gap, plain, field)
        shift = shifts[pairs[pair, 3]]
        distances[pair] = distortion(fields[pairs[pair, 2]], field, layout, shift[0], shift[1], scratch)


@njit(void(_cube, _cube, int32[:, ::1], int64, int64, _matrix, int32[:, ::1], int32[:, ::1]), **CACHED)
def best_transforms(shifted, warped, candidates, start, stop, scores, warps, shifts):
    """Find the best (warp, shift) of every candidate by inner products of coefficients.

    ``shifted`` is (m, shifts, rank), ``warped`` (n, warps, rank), ``candidates`` (m, K). A negative candidate means
    none; its score is very low.
    """
    n_shifts, rank = shifted.shape[1], shifted.shape[2]
    n_warps, n_candidates = warped.shape[1], candidates.shape[1]
    gathered = np.empty((n_candidates * n_warps, rank), np.float32)
    for image in range(start, stop):
        for slot in range(n_candidates):
            source = warped[max(candidates[image, slot], 0)]
            for warp in range(n_warps):
                for position in range(rank):
                    gathered[slot * n_warps + warp, position] = source[warp, position]
        products = np.dot(gathered, shifted[image].T)
        for slot in range(n_candidates):
            best, best_warp, best_shift = float32(-1e30), 0, 0
            for warp in range(n_warps):
                row = products[slot * n_warps + warp]
                for shift in range(n_shifts):
                    if row[shift] > best:
                        best, best_warp, best_shift = row[shift], warp, shift
            scores[image, slot] = best if candidates[image, slot] >= 0 else float32(-1e30)
            warps[image, slot], shifts[image, slot] = best_warp, best_shift


@njit(void(_matrix, int32[:, ::1], _matrix), **CACHED)
def largest(scores, indices, values):
    """Find the ``indices.shape[1]`` largest entries of every row, largest first; equal ones in order of their index."""
    n_kept = indices.shape[1]
    for row in range(len(scores)):
        line, kept, best = scores[row], indices[row], values[row]
        count = 0
        floor = float32(-1e30)
        for column in range(len(line)):
            value = line[column]
            if value > floor or count < n_kept:
                place = count if count < n_kept else n_kept - 1
                while place > 0 and best[place - 1] < value:
                    best[place] = best[place - 1]
                    kept[place] = kept[place - 1]
                    place -= 1
                best[place], kept[place] = value, column
                if count < n_kept:
                    count += 1
                if count == n_kept:
                    floor = best[n_kept - 1]
