"""Kernels of graphs: gradient fields of images, warps, the local-warp distance, sums over edges, a tree, a map.

Callers run the kernels from several threads on ranges of rows. That compiles in a fraction of the time of Numba's own
parallel loops.

A field is stored flat, ``(channels, length)``. Each image row is preceded by a gap of ``gap`` columns and framed by
``margin`` replicated pixels. The gap holds a value so large that a comparison outside the image can never be a
minimum. So the loops below are long contiguous loops without tests on columns.
"""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np
from llvmlite import ir
from numba import boolean, float32, float64, int32, int64, uint64, void
from numba.core import cgutils, config
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic
from numpy.typing import NDArray

from tubal.backends.cpu.jit import compiled, inlined

FAR = np.float32(1e3)  # larger than any value of a field of unit length

# Processors with AVX-512 have 32 registers of 16 numbers. With fewer or smaller registers, strips are often slower than
# flat loops.
_FEATURES = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
HAS_WIDE_REGISTERS = "+avx512f" in _FEATURES
# Numbers in a register, and columns of a strip.
SIZE, LANES = 16, 32
# Offsets that are compared at a time, by margin. More would not fit into the registers; without a margin, which only
# users choose, a faster loop is not worth the time to compile it.
TOGETHER = (1, 5, 3)
# Loops over strips: margin, offsets that are compared at a time, and whether images have one channel only.
VARIANTS = (
    *((margin, 1, False) for margin in range(3)),
    *((margin, TOGETHER[margin], one_channel) for margin in (1, 2) for one_channel in (False, True)),
)

# Rows and columns of one product; it stays in the cache until its largest entries are found.
TILE = 512
# Random images that repel the ends of each edge of a map, per epoch.
PUSHES = 5
# Closeness on a map, 1 / (1 + a d^2b), is flat below a tenth of a unit and then falls like an exponential.
FLATNESS, STEEPNESS = 1.577, 0.895


@inlined
def _replicate_margin(plane, height, width, margin, stride):
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


@inlined
def _write_field(image, layout, plain, field):
    """Write the Sobel derivatives of ``image`` (channels, pixels) into ``field``; return their energy.

    If ``plain`` is set the first plane of each pair holds the pixels themselves and the second zeros.
    """
    height, width, margin, gap = layout[0], layout[1], layout[2], layout[3]
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


@inlined
def _scale_and_frame(field, layout, scale):
    """Multiply a field by ``scale``, and fill the gaps and margins around it."""
    height, width, margin, gap = layout[0], layout[1], layout[2], layout[3]
    stride = width + 2 * margin + gap
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
        _replicate_margin(values, height, width, margin, stride)


@inlined
def _warp(image, corners, shares, warped):
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


@compiled
def unit_fields(images, moves, corners, shares, layout, plain, warped, fields, energies):
    """Write the fields of warped images, scaled to unit length, into ``fields``, and their energies before scaling.

    ``moves`` are pairs (image, warp); warp -1 leaves the image as it is. ``layout`` begins with height, width, margin
    and gap. ``warped`` (channels, pixels) is a buffer.
    """
    for index in range(len(moves)):
        image, warp = images[moves[index, 0]], moves[index, 1]
        if warp >= 0:
            _warp(image, corners[warp], shares[warp], warped)
            image = warped
        energy = _write_field(image, layout, plain, fields[index])
        energies[index] = energy
        # A blank image keeps a zero field.
        scale = float32(1.0) / np.sqrt(energy) if energy > 0 else float32(0.0)
        _scale_and_frame(fields[index], layout, scale)


@compiled
def warp_energies(images, corners, shares, layout, plain, warped, energies):
    """Write the energies (warps, n) of the fields of some images (channels, pixels, n) after every warp.

    The images lie side by side in the last axis, so that all are warped at once by reading whole rows. ``warped``
    (pixels, n) is a buffer.
    """
    height, width = layout[0], layout[1]
    energies[:] = float32(0.0)
    for warp in range(len(corners)):
        energy = energies[warp]
        for channel in range(len(images)):
            pixels = images[channel]
            for p in range(len(warped)):
                first, second = pixels[corners[warp, 0, p]], pixels[corners[warp, 1, p]]
                third, fourth = pixels[corners[warp, 2, p]], pixels[corners[warp, 3, p]]
                s1, s2, s3, s4 = shares[warp, 0, p], shares[warp, 1, p], shares[warp, 2, p], shares[warp, 3, p]
                line = warped[p]
                for t in range(len(line)):
                    line[t] = s1 * first[t] + s2 * second[t] + s3 * third[t] + s4 * fourth[t]
            for y in range(height):
                above, here, below = max(y - 1, 0) * width, y * width, min(y + 1, height - 1) * width
                for x in range(width):
                    left, after = max(x - 1, 0), min(x + 1, width - 1)
                    if plain:
                        line = warped[here + x]
                        for t in range(len(line)):
                            energy[t] += line[t] * line[t]
                        continue
                    a0, a1, a2 = warped[above + left], warped[above + x], warped[above + after]
                    h0, h2 = warped[here + left], warped[here + after]
                    b0, b1, b2 = warped[below + left], warped[below + x], warped[below + after]
                    for t in range(len(energy)):
                        vertical = (b0[t] - a0[t]) + (b2[t] - a2[t]) + float32(2.0) * (b1[t] - a1[t])
                        horizontal = (a2[t] - a0[t]) + (b2[t] - b0[t]) + float32(2.0) * (h2[t] - h0[t])
                        energy[t] += vertical * vertical + horizontal * horizontal


# --- the local-warp distance in strips --------------------------------------------------------------------------------
_number, _integer, _short = ir.FloatType(), ir.IntType(64), ir.IntType(32)


def _repeated(builder, value):
    """Return a register that holds one value in all lanes."""
    nothing = ir.Constant(ir.VectorType(value.type, SIZE), ir.Undefined)
    single = builder.insert_element(nothing, value, _short(0))
    return builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(_short, SIZE), [0] * SIZE))


class _Strip:
    """Neighbouring numbers of a row in two registers. Its methods emit instructions of LLVM.

    Loops in Python would store sums over rows and columns in memory and read them again, which takes twice the time.
    """

    vector = ir.VectorType(_number, SIZE)

    def __init__(self, builder, vectors):
        self.builder, self.vectors = builder, vectors

    @classmethod
    def load(cls, builder, pointer):
        """Read a strip."""
        return cls(builder, [builder.load(place, align=4) for place in cls._places(builder, pointer)])

    def store(self, pointer):
        """Write this strip."""
        for vector, place in zip(self.vectors, self._places(self.builder, pointer), strict=True):
            self.builder.store(vector, place, align=4)

    @classmethod
    def _places(cls, builder, pointer):
        """Return pointers to all vectors of a strip."""
        firsts = [builder.gep(pointer, [_integer(lane)]) for lane in range(0, LANES, SIZE)]
        return [builder.bitcast(first, cls.vector.as_pointer()) for first in firsts]

    @classmethod
    def filled(cls, builder, number):
        """Return a strip of one number, a constant or a value."""
        if not isinstance(number, ir.Value):
            number = _number(float(number))
        return cls(builder, [_repeated(builder, number)] * (LANES // SIZE))

    def variable(self):
        """Return the place of a variable that begins with this strip; LLVM keeps it in registers."""
        place = cgutils.alloca_once(self.builder, ir.ArrayType(_number, LANES))
        place = self.builder.bitcast(place, _number.as_pointer())
        self.store(place)
        return place

    def __add__(self, other):
        return self._with(other, self.builder.fadd, flags=("fast",))

    def __sub__(self, other):
        return self._with(other, self.builder.fsub, flags=("fast",))

    def __mul__(self, other):
        return self._with(other, self.builder.fmul, flags=("fast",))

    def smaller(self, other):
        """Return the smaller number of every lane."""
        kind = ir.FunctionType(self.vector, [self.vector, self.vector])
        minimum = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.minnum.v{SIZE}f32")
        return self._with(other, lambda *pair: self.builder.call(minimum, pair, fastmath=("fast",)))

    def _with(self, other, operation, **options):
        """Apply an operation to the vectors of two strips."""
        pairs = zip(self.vectors, other.vectors, strict=True)
        return _Strip(self.builder, [operation(*pair, **options) for pair in pairs])

    def moved(self, count):
        """Move all numbers by less than a vector to the right, or to the left if ``count`` is negative."""
        if count == 0:
            return self
        far = self.filled(self.builder, FAR * FAR).vectors[0]
        row = [*self.vectors, far] if count < 0 else [far, *self.vectors]
        lanes = ir.Constant(ir.VectorType(_short, SIZE), [-count % SIZE + lane for lane in range(SIZE)])
        return _Strip(self.builder, [self.builder.shuffle_vector(*pair, lanes) for pair in pairwise(row)])

    def context_sum(self, margin):
        """Sum every number and the ``2 * margin`` numbers to its right."""
        if margin == 0:
            return self
        two = self + self.moved(-1)
        return two + self.moved(-2) if margin == 1 else two + two.moved(-2) + self.moved(-4)


def _emit_walk(builder, pointers, strides, planes, n_rows, variant):
    """Emit the loop over the rows of one strip; see :func:`_walk_down`."""
    margin, together, one_channel = variant
    (stride, least_stride), (n_planes, length) = strides, planes

    # Differences that can never be a minimum.
    far = _Strip.filled(builder, FAR * FAR)

    def load(pointer, *places):
        for place in places:
            pointer = builder.gep(pointer, [place])
        return _Strip.load(builder, pointer)

    errors = [far.variable() for _ in range(together)]
    # For each offset, the sums of errors over the last row, the last two rows and so on.
    sums = [[far.variable() for _ in range(2 * margin)] for _ in range(together)]
    with cgutils.for_range(builder, n_rows, intp=_integer) as loop:

        def add_errors(plane, is_first):
            at = builder.add(builder.mul(loop.index, stride), builder.mul(plane, length))
            a0, a1 = load(pointers[0], at), load(pointers[0], at, length)
            for offset, error in enumerate(errors):
                d0 = a0 - load(pointers[1], at, _integer(offset))
                d1 = a1 - load(pointers[1], at, length, _integer(offset))
                square = d0 * d0 + d1 * d1
                (square if is_first else square + load(error)).store(error)

        add_errors(_integer(0), True)
        if not one_channel:
            with cgutils.for_range_slice(builder, _integer(2), n_planes, _integer(2), _integer) as (plane, _):
                add_errors(plane, False)
        places = [builder.gep(pointer, [builder.mul(loop.index, least_stride)]) for pointer in pointers[2:]]
        least_a, least_b = (load(place) for place in places)
        for offset, error in enumerate(errors):
            below = load(error)
            column = [below, *(load(place) + below for place in sums[offset])]
            for total, place in zip(column, sums[offset], strict=False):
                total.store(place)
            difference = column[-1].context_sum(margin)
            least_a = least_a.smaller(difference)
            least_b = least_b.smaller(difference.moved(offset))
        least_a.store(places[0])
        least_b.store(places[1])


@intrinsic
def _walk_down(_context, a, b, least_a, least_b, starts, strides, n_rows, margin, together):
    """Compare a strip of ``a`` with ``b`` at ``together`` offsets side by side, row by row.

    ``starts`` are places in the four arrays, and ``strides`` the lengths of a row of fields and of minima. Every row
    adds squared differences to sums over the last rows. These are large in the first ``2 * margin`` rows, so that
    minima do not change there.
    """

    def generate(context, builder, signature, arguments):
        kinds = zip(signature.args[:4], arguments[:4], strict=True)
        arrays = [context.make_array(kind)(context, builder, value) for kind, value in kinds]
        starts, strides = (cgutils.unpack_tuple(builder, argument) for argument in arguments[4:6])
        pointers = [builder.gep(array.data, [start]) for array, start in zip(arrays, starts, strict=True)]
        planes = cgutils.unpack_tuple(builder, arrays[0].shape)
        one_channel = builder.icmp_signed("==", planes[0], _integer(2))
        for variant in VARIANTS:
            values = zip(arguments[7:], variant[:2], strict=True)
            chosen = [builder.icmp_signed("==", argument, _integer(value)) for argument, value in values]
            if variant[1] > 1:
                chosen.append(one_channel if variant[2] else builder.not_(one_channel))
            with builder.if_then(functools.reduce(builder.and_, chosen)):
                _emit_walk(builder, pointers, strides, planes, arguments[6], variant)
        return context.get_dummy_value()

    return void(a, b, least_a, least_b, starts, strides, int64, int64, int64), generate


@inlined
def _total(least_a, least_b, layout, shift_x, stride, complete):
    """Sum the smallest differences of both images; pixels without a partner count as the mean of the others."""
    height, width, margin, window_x = layout[0], layout[1], layout[2], layout[5]
    # Columns of b are counted from the first one that can be a partner of the first column of a.
    begin, end = max(0, window_x - shift_x), width + window_x + min(window_x, -shift_x)
    total, n_matched = float32(0.0), 0
    for y in range(2 * margin, 2 * margin + height):
        row_a, row_b = least_a[y * stride : y * stride + width], least_b[y * stride + begin : y * stride + end]
        if complete:
            for x in range(width):
                total += row_a[x] + row_b[x]
            continue
        for row in (row_a, row_b):
            for x in range(len(row)):
                if row[x] < FAR:
                    total += row[x]
                    n_matched += 1
    return total if complete else total * float32(2 * height * width / max(n_matched, 1))


def strip_distances(fields, others, pairs, shifts, layout, scratch, distances):
    """Set ``distances`` to the distortion of ``pairs``: triples of a field, one of ``others``, and a shift.

    The distortion is the sum, over the pixels of both images, of the smallest squared context difference within the
    window. ``layout`` is (height, width, margin, gap, window_y, window_x). Let ``D(p, o)`` be the squared difference
    between the context of ``a`` at ``p`` and that of ``b`` at ``p + o``. One pass over the offsets ``o`` around the
    shift gives both ``min_o D(p, o)`` for the pixels of ``a`` and ``min_p D(p, q - p)`` for the pixels of ``b``. If the
    window is narrower than the shift, border pixels have no partner; they count as the mean of the others.

    ``scratch`` is a buffer for these minima. A whole strip of a row is read and written at a time, so fields and
    ``scratch`` are padded; see ``empty_fields`` and :func:`empty_scratch`.
    """
    height, width, margin, gap = layout[0], layout[1], layout[2], layout[3]
    window_y, window_x = layout[4], layout[5]
    stride, least_stride = width + 2 * margin + gap, scratch.shape[1] // (height + 2 * margin) // SIZE * SIZE
    least_a, least_b = scratch[0], scratch[1]
    n_across = 2 * window_x + 1
    together = TOGETHER[margin] if n_across >= TOGETHER[margin] else 1
    # The minima of so many columns of a strip are complete for both images if other strips follow on both sides.
    step = LANES - 2 * margin - together + 1
    # The last strip ends with the row.
    last_x = max(0, width - LANES + 4)
    for pair in range(len(pairs)):
        a, b, shift = fields[pairs[pair, 0]], others[pairs[pair, 1]], pairs[pair, 2]
        shift_y, shift_x = shifts[shift, 0], shifts[shift, 1]
        for t in range(len(least_a)):
            least_a[t] = least_b[t] = FAR * FAR
        for oy in range(shift_y - window_y, shift_y + window_y + 1):
            first, last = max(0, -oy), min(height, height - oy)
            if last <= first:
                continue
            for left in range(0, last_x + step, step):
                x = min(left, last_x)
                for begin in range(0, n_across, together):
                    across = min(begin, n_across - together)
                    start, start_least = first * stride + gap + x, first * least_stride + x
                    start_b = start + oy * stride + shift_x - window_x + across
                    starts = (start, start_b, start_least, start_least + oy * least_stride + across)
                    strides, n_rows = (stride, least_stride), last - first + 2 * margin
                    _walk_down(a, b, least_a, least_b, starts, strides, n_rows, margin, together)
        complete = abs(shift_y) <= window_y and abs(shift_x) <= window_x
        distances[pair] = _total(least_a, least_b, layout, shift_x, least_stride, complete)


# --- the local-warp distance in flat loops ----------------------------------------------------------------------------
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
    """Set ``error[:count]`` to squared differences, over all channels, of ``a[start:]`` and ``b[start + move:]``."""
    for channel in range(0, a.shape[0], 2):
        a0, a1 = a[channel, start:], a[channel + 1, start:]
        b0, b1 = b[channel, start + move :], b[channel + 1, start + move :]
        if channel == 0:
            for t in range(count):
                d0, d1 = a0[t] - b0[t], a1[t] - b1[t]
                error[t] = d0 * d0 + d1 * d1
        else:
            for t in range(count):
                d0, d1 = a0[t] - b0[t], a1[t] - b1[t]
                error[t] += d0 * d0 + d1 * d1


@inlined
def _least_contexts(error, stride, margin, count, column, least_a, least_b):
    """Sum ``error`` over contexts, down and then across, and keep what is smaller than ``least_a`` and ``least_b``."""
    e1, e2, c1, c2 = error[stride:], error[2 * stride :], column[1:], column[2:]
    if margin == 0:
        for t in range(count):
            least_a[t] = smaller(least_a[t], error[t])
            least_b[t] = smaller(least_b[t], error[t])
    elif margin == 1:
        for t in range(count + 2):
            column[t] = error[t] + e1[t] + e2[t]
        for t in range(count):
            z = column[t] + c1[t] + c2[t]
            least_a[t] = smaller(least_a[t], z)
            least_b[t] = smaller(least_b[t], z)
    else:
        e3, e4, c3, c4 = error[3 * stride :], error[4 * stride :], column[3:], column[4:]
        for t in range(count + 4):
            column[t] = (error[t] + e1[t]) + (e2[t] + e3[t]) + e4[t]
        for t in range(count):
            z = (column[t] + c1[t]) + (c2[t] + c3[t]) + c4[t]
            least_a[t] = smaller(least_a[t], z)
            least_b[t] = smaller(least_b[t], z)


@inlined
def _flat_total(least_a, least_b, layout, complete):
    """Sum the smallest differences of both images; pixels without a partner count as the mean of the others."""
    height, width, margin, gap = layout[0], layout[1], layout[2], layout[3]
    stride = width + 2 * margin + gap
    total, n_matched = float32(0.0), 0
    for y in range(height):
        start = y * stride + gap + margin
        if complete:
            for x in range(start, start + width):
                total += least_a[x] + least_b[x]
            continue
        for x in range(start, start + width):
            if least_a[x] < FAR:
                total += least_a[x]
                n_matched += 1
            if least_b[x] < FAR:
                total += least_b[x]
                n_matched += 1
    return total if complete else total * float32(2 * height * width / max(n_matched, 1))


def flat_distances(fields, others, pairs, shifts, layout, scratch, distances):
    """Set ``distances`` as :func:`strip_distances` does, in loops over all rows of an image one after the other."""
    height, width, margin, gap = layout[0], layout[1], layout[2], layout[3]
    window_y, window_x = layout[4], layout[5]
    stride = width + 2 * margin + gap
    error, column, least_a, least_b = scratch[0], scratch[1], scratch[2], scratch[3]
    for pair in range(len(pairs)):
        a, b, shift = fields[pairs[pair, 0]], others[pairs[pair, 1]], pairs[pair, 2]
        shift_y, shift_x = shifts[shift, 0], shifts[shift, 1]
        for t in range(len(least_a)):
            least_a[t] = least_b[t] = FAR * FAR
        for oy in range(shift_y - window_y, shift_y + window_y + 1):
            first, last = max(0, -oy), min(height, height - oy)
            if last <= first:
                continue
            start, n_rows = first * stride + gap, last - first
            n_contexts = n_rows * stride - gap - 2 * margin
            for ox in range(shift_x - window_x, shift_x + window_x + 1):
                move = oy * stride + ox
                _squared_differences(a, b, start, move, (n_rows + 2 * margin) * stride - gap, error)
                least_a_here, least_b_here = least_a[start + margin :], least_b[start + margin + move :]
                _least_contexts(error, stride, margin, n_contexts, column, least_a_here, least_b_here)
        complete = abs(shift_y) <= window_y and abs(shift_x) <= window_x
        distances[pair] = _flat_total(least_a, least_b, layout, complete)


pair_distances = compiled(strip_distances if HAS_WIDE_REGISTERS else flat_distances)


def empty_scratch(layout: NDArray[np.int64], length: int) -> NDArray[np.float32]:
    """Return a buffer for fields of this layout and ``length``, for either way to compute distances."""
    height, width, margin, gap, _, window_x = map(int, layout)
    # A strip may end four columns after the row, and minima of the other image are moved by up to the window.
    strips = (height + 2 * margin) * -(-(max(LANES, width + 4) + 2 * window_x) // SIZE) * SIZE
    n_columns = -(-max(strips, length + gap) // SIZE) * SIZE
    buffer = np.empty(4 * n_columns + SIZE, dtype=np.float32)
    # Strips begin at cache lines of 64 bytes where that is possible.
    first = -buffer.ctypes.data // 4 % SIZE
    return buffer[first : first + 4 * n_columns].reshape(4, n_columns)


# --- the best motion of every candidate -------------------------------------------------------------------------------
# Warps whose products are computed together; more would not fit into the registers.
WARPS_TOGETHER = 5 if HAS_WIDE_REGISTERS else 2


def _emit_products(builder, pointers, rank, n_columns, first, together):
    """Emit the products of some warps with one strip of shifts; see :func:`_keep_best`."""
    other, turned, values, warps = pointers
    sums = [_Strip.filled(builder, 0.0).variable() for _ in range(together)]
    with cgutils.for_range(builder, rank, intp=_integer) as loop:
        line = _Strip.load(builder, builder.gep(turned, [builder.mul(loop.index, n_columns)]))
        for warp, place in enumerate(sums):
            at = builder.add(loop.index, builder.mul(_integer(warp), rank))
            number = builder.load(builder.gep(other, [at]))
            (_Strip.load(builder, place) + _Strip.filled(builder, number) * line).store(place)
    most = _Strip.load(builder, values).vectors
    kind = ir.VectorType(_short, SIZE).as_pointer()
    places = [builder.bitcast(builder.gep(warps, [_integer(lane)]), kind) for lane in range(0, LANES, SIZE)]
    best = [builder.load(place, align=4) for place in places]
    for warp, place in enumerate(sums):
        number = _repeated(builder, builder.trunc(builder.add(first, _integer(warp)), _short))
        for part, product in enumerate(_Strip.load(builder, place).vectors):
            larger = builder.fcmp_ordered(">", product, most[part])
            most[part] = builder.select(larger, product, most[part])
            best[part] = builder.select(larger, number, best[part])
    _Strip(builder, most).store(values)
    for vector, place in zip(best, places, strict=True):
        builder.store(vector, place, align=4)


@intrinsic
def _keep_best(_context, other, turned, values, warps, first, column, together):
    """Multiply ``together`` warps of one image, from ``first`` on, with a strip of shifts from ``column`` on.

    ``other`` is (warps, rank) and ``turned`` (rank, shifts). The largest products so far are in ``values``, and the
    warps that have them in ``warps``.
    """

    def generate(context, builder, signature, arguments):
        kinds = zip(signature.args[:4], arguments[:4], strict=True)
        arrays = [context.make_array(kind)(context, builder, value) for kind, value in kinds]
        first, column, together = arguments[4:]
        _, rank = cgutils.unpack_tuple(builder, arrays[0].shape)
        _, n_columns = cgutils.unpack_tuple(builder, arrays[1].shape)
        starts = [builder.mul(first, rank), column, column, column]
        pointers = [builder.gep(array.data, [start]) for array, start in zip(arrays, starts, strict=True)]
        for count in (1, WARPS_TOGETHER):
            with builder.if_then(builder.icmp_signed("==", together, _integer(count))):
                _emit_products(builder, pointers, rank, n_columns, first, count)
        return context.get_dummy_value()

    return void(other, turned, values, warps, int64, int64, int64), generate


def empty_products(n_shifts: int, rank: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]:
    """Return the buffers of :func:`best_motions`."""
    n_columns = -(-n_shifts // LANES) * LANES
    return np.empty((rank, n_columns), np.float32), np.empty(n_columns, np.float32), np.empty(n_columns, np.int32)


@compiled
def best_motions(shifted, warped, candidates, turned, values, warps, scores, best):
    """Find the warp and the shift of every candidate (n, m) that have the largest product, and this product.

    ``shifted`` (n, shifts, rank) belongs to the queries and ``warped`` (known, warps, rank) to the known images.
    ``best`` becomes the number of the warp times that of all shifts, plus that of the shift; of equal products the
    first is taken. ``turned`` (rank, columns), ``values`` and ``warps`` (columns,) are buffers for whole strips.
    """
    n_shifts, n_warps = shifted.shape[1], warped.shape[1]
    together = WARPS_TOGETHER if n_warps >= WARPS_TOGETHER else 1
    turned[:] = float32(0.0)
    for query in range(len(candidates)):
        for shift in range(n_shifts):
            for axis in range(len(turned)):
                turned[axis, shift] = shifted[query, shift, axis]
        for candidate in range(candidates.shape[1]):
            other = warped[max(candidates[query, candidate], 0)]
            values[:] = float32(-1e30)
            warps[:] = 0
            for column in range(0, len(values), LANES):
                for first in range(0, n_warps, together):
                    _keep_best(other, turned, values, warps, min(first, n_warps - together), column, together)
            most, place = values[0], warps[0] * n_shifts
            for shift in range(1, n_shifts):
                here = warps[shift] * n_shifts + shift
                if values[shift] > most or (values[shift] == most and here < place):
                    most, place = values[shift], here
            scores[query, candidate], best[query, candidate] = most, place


# --- the largest entries ----------------------------------------------------------------------------------------------
@compiled
def keep_largest(scores, first, indices, values):
    """Keep the largest entries of every row, largest first; equal ones in order of their index.

    ``indices`` (rows, count) and ``values`` are those kept so far; an index of -1 is a free place. ``first`` is the
    index of the first column.
    """
    n_kept, n_columns = indices.shape[1], scores.shape[1]
    for row in range(len(scores)):
        line, kept, best = scores[row], indices[row], values[row]
        n_full = 0
        while n_full < n_kept and kept[n_full] >= 0:
            n_full += 1
        for start in range(0, n_columns, LANES):
            stop = min(start + LANES, n_columns)
            # Most entries are too small; a strip of them is read at once.
            most = line[start]
            for column in range(start + 1, stop):
                most = max(most, line[column])
            if n_full == n_kept and most <= best[n_kept - 1]:
                continue
            for column in range(start, stop):
                value = line[column]
                if n_full < n_kept:
                    n_full += 1
                elif value <= best[n_kept - 1]:
                    continue
                place = n_full - 1
                while place > 0 and best[place - 1] < value:
                    best[place] = best[place - 1]
                    kept[place] = kept[place - 1]
                    place -= 1
                best[place], kept[place] = value, first + column


@compiled
def most_similar_others(rows, first, others, number, scores, indices, values):
    """Keep, for every row, the others with the largest products, but never the row itself.

    ``first`` is the number of the first row, and ``number`` that of the first other, in the same numbering. ``indices``
    and ``values`` (m, count) are those of :func:`keep_largest`; ``scores`` (TILE * TILE,) is a buffer.
    """
    for start in range(0, len(rows), TILE):
        own = rows[start : start + TILE]
        kept = slice(start, start + len(own))
        for low in range(0, len(others), TILE):
            part = others[low : low + TILE]
            products = scores[: len(own) * len(part)].reshape(len(own), len(part))
            np.dot(own, part.T, products)
            for row in range(len(own)):
                column = first + start + row - number - low
                if 0 <= column < len(part):
                    products[row, column] = float32(-1e29)
            keep_largest(products, number + low, indices[kept], values[kept])


# --- edges ------------------------------------------------------------------------------------------------------------
@compiled
def add_edges(starts, columns, weights, row_labels, labels, shared):
    """Add the edges of some rows of a CSR matrix to ``shared[label of the row, label of the column]``."""
    for row in range(len(row_labels)):
        line = shared[row_labels[row]]
        for edge in range(starts[row], starts[row + 1]):
            line[labels[columns[edge]]] += weights[edge]


@compiled
def weights_to_clusters(starts, columns, weights, labels, first, shared):
    """Add up the weights of the edges of some nodes, from ``first`` on, to every cluster, without self-loops."""
    shared[:] = 0.0
    for row in range(len(shared)):
        for edge in range(starts[first + row], starts[first + row + 1]):
            if columns[edge] != first + row:
                shared[row, labels[columns[edge]]] += weights[edge]


@compiled
def move_to_best_clusters(starts, columns, weights, degrees, labels, volumes, sizes, first, shared):
    """Visit the nodes of ``shared`` in order; move each to the cluster where it adds most to the modularity.

    Return how many moved. ``labels`` (n,), ``volumes`` and ``sizes`` of clusters, and ``shared`` follow every move. The
    matrix is symmetric. The last node of a cluster stays.
    """
    total, n_moved = degrees.sum(), 0
    for row in range(len(shared)):
        node, line = first + row, shared[row]
        own = labels[node]
        if sizes[own] == 1:
            continue
        expected = degrees[node] / total
        best, most = own, line[own] - expected * (volumes[own] - degrees[node])
        for cluster in range(len(volumes)):
            gain = line[cluster] - expected * volumes[cluster]
            if cluster != own and gain > most + 1e-9 * degrees[node]:
                best, most = cluster, gain
        if best == own:
            continue
        labels[node] = best
        volumes[own] -= degrees[node]
        volumes[best] += degrees[node]
        sizes[own] -= 1
        sizes[best] += 1
        n_moved += 1
        for edge in range(starts[node], starts[node + 1]):
            other = columns[edge] - first
            if 0 <= other < len(shared) and other != row:
                shared[other, own] -= weights[edge]
                shared[other, best] += weights[edge]
    return n_moved


# --- a tree -----------------------------------------------------------------------------------------------------------
@compiled
def ward_merges(points, squares, merges, heights):
    """Find the merges (n - 1, 2) of Ward's tree of points (n, d), by chains of nearest neighbours, and their heights.

    A merged cluster keeps the second of the two numbers. ``squares`` (n, n) becomes the squared distances of clusters,
    times a factor that depends on their sizes. A chain goes on to the nearest cluster until two are nearest to each
    other; these are merged, whatever other clusters do.
    """
    n_points, gone = len(points), 1e300
    sizes, chain = np.ones(n_points), np.zeros(n_points + 1, np.int64)
    for i in range(n_points):
        squares[i, i] = gone
        for j in range(i):
            total = 0.0
            for k in range(points.shape[1]):
                total += (points[i, k] - points[j, k]) * (points[i, k] - points[j, k])
            squares[i, j] = squares[j, i] = total
    length = 0
    for step in range(n_points - 1):
        if length == 0:
            while sizes[chain[0]] == 0.0:
                chain[0] += 1
            length = 1
        while True:
            one = chain[length - 1]
            # Of equally near clusters the last one of the chain is preferred, so that the chain ends.
            other = chain[length - 2] if length > 1 else one
            least, line = squares[one, other], squares[one]
            for i in range(n_points):
                if line[i] < least:
                    least, other = line[i], i
            if length > 1 and other == chain[length - 2]:
                break
            chain[length] = other
            length += 1
        length -= 2
        if one > other:
            one, other = other, one
        merges[step, 0], merges[step, 1], heights[step] = one, other, least
        n_one, n_other = sizes[one], sizes[other]
        sizes[one], sizes[other] = 0.0, n_one + n_other
        for i in range(n_points):
            if sizes[i] > 0.0 and i != other:
                grown = (sizes[i] + n_one) * squares[one, i] + (sizes[i] + n_other) * squares[other, i]
                square = (grown - sizes[i] * least) / (sizes[i] + n_one + n_other)
                squares[i, other] = squares[other, i] = square
            squares[i, one] = squares[one, i] = gone


# --- a map ------------------------------------------------------------------------------------------------------------
@inlined
def _clip(value):
    return np.float32(min(max(value, -4.0), 4.0))


@compiled
def place_on_map(points, sources, targets, weights, n_epochs, state):
    """Move ``points`` (n, 2) in place: in each epoch, one attraction and a few repulsions per edge."""
    n_images = points.shape[0]
    for epoch in range(n_epochs):
        step = np.float32(1.0 - epoch / n_epochs)
        for edge in range(len(sources)):
            i, j, weight = sources[edge], targets[edge], weights[edge] * step
            dx, dy = points[i, 0] - points[j, 0], points[i, 1] - points[j, 1]
            square = dx * dx + dy * dy
            if square > 1e-12:
                power = square ** np.float32(STEEPNESS - 1.0)
                attraction = 2.0 * FLATNESS * STEEPNESS * power / (1.0 + FLATNESS * power * square)
                px, py = weight * _clip(attraction * dx), weight * _clip(attraction * dy)
                points[i, 0] -= px
                points[i, 1] -= py
                points[j, 0] += px
                points[j, 1] += py
            for push in range(PUSHES):
                # A generator of our own (xorshift) keeps the map the same on every platform.
                state ^= (state << np.uint64(13)) & np.uint64(0xFFFFFFFFFFFFFFFF)
                state ^= state >> np.uint64(7)
                state ^= (state << np.uint64(17)) & np.uint64(0xFFFFFFFFFFFFFFFF)
                other = np.int64(state % np.uint64(n_images))
                end = i if push % 2 == 0 else j
                if other == end:
                    continue
                dx, dy = points[end, 0] - points[other, 0], points[end, 1] - points[other, 1]
                square = dx * dx + dy * dy
                power = square ** np.float32(STEEPNESS)
                force = 2.0 * STEEPNESS / ((0.001 + square) * (1.0 + FLATNESS * power))
                points[end, 0] += weight * _clip(force * dx)
                points[end, 1] += weight * _clip(force * dy)


# --- compiled ahead ---------------------------------------------------------------------------------------------------
_vector, _matrix, _cube = float32[::1], float32[:, ::1], float32[:, :, ::1]
# Types of arguments of all calls of these kernels.
TYPES = {
    "unit_fields": (
        _cube, int32[:, ::1], int32[:, :, ::1], _cube, int64[::1], boolean, _matrix, _cube, _vector,
    ),
    "warp_energies": (_cube, int32[:, :, ::1], _cube, int64[::1], boolean, _matrix, _matrix),
    "pair_distances": (_cube, _cube, int32[:, ::1], int64[:, ::1], int64[::1], _matrix, _vector),
    "best_motions": (
        _cube, _cube, int32[:, ::1], _matrix, _vector, int32[::1], _matrix, int32[:, ::1],
    ),
    "keep_largest": (_matrix, int64, int32[:, ::1], _matrix),
    "add_edges": (int32[::1], int32[::1], float64[::1], int32[::1], int32[::1], float64[:, ::1]),
    "place_on_map": (_matrix, int32[::1], int32[::1], _vector, int64, uint64),
}  # fmt: skip
