"""Kernels that code one image after another: convolutional models, and few codes per image.

Filters of convolutional models are small, so a convolution is one matrix product between filters and code planes,
followed by a sum of shifted planes. That is faster than a Fourier transform of every code plane, and the codes of one
image stay in the cache for all steps of a burst. Only the images, one plane per channel, are transformed. Their arrays
are sample-first: codes (image, atom, h·w), data (image, channel, h, w), filters (channel·down·across, atom).
``support`` is the shape (down, across) of a filter.
"""

from __future__ import annotations

import numpy as np

from tubal.backends.cpu.jit import compiled

FEW = 48  # non-zero codes of one image that :func:`code_few` finds at most
RIDGE = 10.0  # its ridge, in units of tolerance · sparsity / largest slope; it uses about half of the gap allowed
STRIP = 128  # coefficients solved side by side in the graph systems: long runs of memory that still fit into the cache


# --- convolutional models ---------------------------------------------------------------------------------------------
@compiled
def _add_shifts(patches, n_down, n_across, planes):
    """Set ``planes`` (channel, h, w) to the sum of ``patches`` (channel·down·across, h·w), each circularly shifted."""
    n_channels, height, width = planes.shape
    planes[:] = 0.0
    index = 0
    for channel in range(n_channels):
        for down in range(n_down):
            for across in range(n_across):
                source = patches[index].reshape(height, width)
                index += 1
                for row in range(height):
                    target = planes[channel, (row + down) % height]
                    values = source[row]
                    for column in range(width - across):
                        target[column + across] += values[column]
                    for column in range(width - across, width):
                        target[column + across - width] += values[column]


@compiled
def _take_shifts(planes, n_down, n_across, patches):
    """Set ``patches`` (channel·down·across, h·w) to ``planes`` shifted back: the adjoint of :func:`_add_shifts`."""
    n_channels, height, width = planes.shape
    index = 0
    for channel in range(n_channels):
        for down in range(n_down):
            for across in range(n_across):
                target = patches[index].reshape(height, width)
                index += 1
                for row in range(height):
                    source = planes[channel, (row + down) % height]
                    values = target[row]
                    for column in range(width - across):
                        values[column] = source[column + across]
                    for column in range(width - across, width):
                        values[column] = source[column + across - width]


@compiled
def _filter_planes(planes, response, along, down, back, spectra, work, mixed):
    """Multiply the spectra of ``planes`` by ``response`` (channel, channel, h, w_half), in place.

    ``along`` transforms rows to half spectra (real and imaginary parts interleaved), ``back`` transforms them back,
    ``down`` transforms columns. Scale factors are part of ``response``.
    """
    n_channels = planes.shape[0]
    for channel in range(n_channels):
        np.dot(planes[channel], along, work)
        np.dot(down, work.view(mixed.dtype), spectra[channel])
    for channel in range(n_channels):
        mixed[:] = response[channel, 0] * spectra[0]
        for other in range(1, n_channels):
            mixed += response[channel, other] * spectra[other]
        np.dot(np.conj(down), mixed, work.view(mixed.dtype))
        np.dot(work, back, planes[channel])


@compiled
def split_images(
    point, data, filters, filters_t, support, response, along, down, back, bound, relaxation, n_steps, active,
    start, stop, change, size,
):  # fmt: skip
    """Make ``n_steps`` over-relaxed Douglas-Rachford steps on images [start, stop), in place.

    With v the reflected point, a step solves ``x = v + Dᵀ (DDᵀ + penalty)⁻¹ (X - D v)``; ``response`` is the inverse.
    """
    _, n_atoms, n_pixels = point.shape
    n_channels, height, width = data.shape[1:]
    reflected = np.empty((n_atoms, n_pixels), point.dtype)
    correction = np.empty((n_atoms, n_pixels), point.dtype)
    patches = np.empty((filters.shape[0], n_pixels), point.dtype)
    planes = np.empty((n_channels, height, width), point.dtype)
    spectra = np.empty((n_channels, height, response.shape[3]), response.dtype)
    mixed = np.empty((height, response.shape[3]), response.dtype)
    work = np.empty((height, along.shape[1]), point.dtype)
    for image in range(start, stop):
        if not active[image]:
            continue
        here = point[image].reshape(-1)
        for step in range(n_steps):
            _reflect_codes(here, bound, reflected.reshape(-1))
            np.dot(filters, reflected, patches)
            _add_shifts(patches, support[0], support[1], planes)
            for channel in range(n_channels):
                planes[channel] = data[image, channel] - planes[channel]
            _filter_planes(planes, response, along, down, back, spectra, work, mixed)
            _take_shifts(planes, support[0], support[1], patches)
            np.dot(filters_t, patches, correction)
            if step + 1 < n_steps:
                _relax_codes(here, correction.reshape(-1), bound, relaxation)
            else:
                change[image], size[image] = _relax_codes_and_measure(here, correction.reshape(-1), bound, relaxation)


@compiled
def _reflect_codes(point, bound, reflected):
    """Set ``reflected`` to the codes minus the scaled dual, ``point - 2 clip(point)``."""
    for index in range(point.size):
        value = point[index]
        clipped = min(max(value, -bound), bound)
        reflected[index] = value - clipped - clipped


@compiled
def _relax_codes(point, correction, bound, relaxation):
    """Move ``point`` towards ``reflected + correction + clipped``, in place.

    The difference between that target and ``point`` is ``correction - clipped``.
    """
    for index in range(point.size):
        value = point[index]
        clipped = min(max(value, -bound), bound)
        point[index] = value + relaxation * (correction[index] - clipped)


@compiled
def _relax_codes_and_measure(point, correction, bound, relaxation):
    """Do the same as :func:`_relax_codes`, and return the squared lengths of the move and of the former point."""
    moved = length = 0.0
    for index in range(point.size):
        value = point[index]
        clipped = min(max(value, -bound), bound)
        move = correction[index] - clipped
        moved += move * move
        length += value * value
        point[index] = value + relaxation * move
    return moved, length


@compiled
def reconstruct_images(codes, filters, support, start, stop, images):
    """Set ``images`` (n, channel, h, w) to the convolutions of ``codes`` (n, atom, h·w) with the filters."""
    patches = np.empty((filters.shape[0], codes.shape[2]), codes.dtype)
    for image in range(start, stop):
        np.dot(filters, codes[image], patches)
        _add_shifts(patches, support[0], support[1], images[image])


@compiled
def correlate_images(images, filters_t, support, start, stop, codes):
    """Set ``codes`` (n, atom, h·w) to the correlations of ``images`` (n, channel, h, w) with the filters."""
    patches = np.empty((filters_t.shape[1], codes.shape[2]), codes.dtype)
    for image in range(start, stop):
        _take_shifts(images[image], support[0], support[1], patches)
        np.dot(filters_t, patches, codes[image])


@compiled
def solve_factored(source, scale, order, lower, upper, start, stop, solution):
    """Solve the factored graph system with right-hand sides ``scale · source`` (image, coefficient).

    Only columns [start · STRIP, stop · STRIP) are solved. ``lower`` and ``upper`` are the two triangular factors as
    (pointers, columns, values, inverse diagonal); ``order`` is the row of each image in them. Coefficients are
    contiguous, so every substitution is one vector operation.
    """
    n_samples, n_rows = source.shape
    block = np.empty((n_samples, STRIP), source.dtype)
    for slab in range(start, stop):
        first = slab * STRIP
        width = min(STRIP, n_rows - first)
        for sample in range(n_samples):
            target = block[order[sample]]
            for lane in range(width):
                target[lane] = scale * source[sample, first + lane]
            for lane in range(width, STRIP):
                target[lane] = 0.0
        _substitute(block, lower, upper)
        for sample in range(n_samples):
            values = block[order[sample]]
            for lane in range(width):
                solution[sample, first + lane] = values[lane]


@compiled
def solve_factored_step(point, linear, bound, penalty, order, lower, upper, start, stop, solution):
    """Solve as :func:`solve_factored` does, with ``linear + penalty · (point - 2 clip(point))`` on the right.

    The right-hand side is formed strip by strip and never stored.
    """
    n_samples, n_rows = point.shape
    block = np.empty((n_samples, STRIP), point.dtype)
    for slab in range(start, stop):
        first = slab * STRIP
        width = min(STRIP, n_rows - first)
        for sample in range(n_samples):
            target = block[order[sample]]
            for lane in range(width):
                value = point[sample, first + lane]
                clipped = min(max(value, -bound), bound)
                target[lane] = linear[sample, first + lane] + penalty * (value - clipped - clipped)
            for lane in range(width, STRIP):
                target[lane] = 0.0
        _substitute(block, lower, upper)
        for sample in range(n_samples):
            values = block[order[sample]]
            for lane in range(width):
                solution[sample, first + lane] = values[lane]


@compiled
def _substitute(block, lower, upper):
    """Solve both triangular systems in place; rows of ``block`` are images in the order of the factors."""
    pointers, columns, values, _ = lower
    lanes = block.shape[1]  # a run-time value: the compiler would unroll a constant into scalar code
    for row in range(block.shape[0]):
        target = block[row]
        for entry in range(pointers[row], pointers[row + 1]):
            other, value = block[columns[entry]], values[entry]
            for lane in range(lanes):
                target[lane] -= value * other[lane]
    pointers, columns, values, inverse = upper
    for row in range(block.shape[0] - 1, -1, -1):
        target = block[row]
        for entry in range(pointers[row], pointers[row + 1]):
            other, value = block[columns[entry]], values[entry]
            for lane in range(lanes):
                target[lane] -= value * other[lane]
        for lane in range(lanes):
            target[lane] *= inverse[row]


@compiled
def relax_images(solved, planes, filters_t, support, bound, relaxation, active, start, stop, point, change, size):
    """Finish a step with a graph: move ``point`` towards ``solved`` minus the correlation of ``planes``, in place.

    ``point`` and ``solved`` are (image, atom, h·w); ``planes`` (image, channel, h, w) is the correction in image space.
    """
    patches = np.empty((filters_t.shape[1], point.shape[2]), point.dtype)
    correction = np.empty((point.shape[1], point.shape[2]), point.dtype)
    for image in range(start, stop):
        if not active[image]:
            continue
        _take_shifts(planes[image], support[0], support[1], patches)
        np.dot(filters_t, patches, correction)
        correlated, found, target = correction.reshape(-1), solved[image].reshape(-1), point[image].reshape(-1)
        moved = length = 0.0
        for index in range(target.size):
            value = target[index]
            clipped = min(max(value, -bound), bound)
            move = found[index] - correlated[index] + clipped - value
            moved += move * move
            length += value * value
            target[index] = value + relaxation * move
        change[image], size[image] = moved, length


# --- few codes per image ----------------------------------------------------------------------------------------------
@compiled
def _set_slopes(shifted_gram, linear, ridge, times, atoms, values, count, slopes):
    """Set ``slopes`` (tube, atom) to the gradient at ``count`` codes given by their times, atoms and values.

    Return the time and the atom of the steepest one.
    """
    tube_length, n_atoms = slopes.shape
    for time in range(tube_length):
        for atom in range(n_atoms):
            slopes[time, atom] = -linear[time, atom]
    for place in range(count):
        value = slopes.dtype.type(values[place])
        for time in range(tube_length):
            row, here = shifted_gram[(time - times[place]) % tube_length, atoms[place]], slopes[time]
            for atom in range(n_atoms):
                here[atom] += value * row[atom]
        slopes[times[place], atoms[place]] += ridge * value
    steepest, at_time, at_atom = slopes.dtype.type(-1.0), 0, 0
    for time in range(tube_length):
        for atom in range(n_atoms):
            if abs(slopes[time, atom]) > steepest:
                steepest, at_time, at_atom = abs(slopes[time, atom]), time, atom
    return at_time, at_atom


@compiled
def _solve_used(shifted_gram, linear, sparsity, ridge, times, atoms, signs, count, factor, solution):
    """Set ``solution`` to the minimum over the codes in use with fixed signs; return False if it is not unique.

    ``factor`` (FEW, FEW) holds the Cholesky factor of their Gram matrix.
    """
    tube_length = shifted_gram.shape[0]
    for row in range(count):
        solution[row] = linear[times[row], atoms[row]] - sparsity * signs[row]
        for column in range(row + 1):
            shift = (times[row] - times[column]) % tube_length
            total = float(shifted_gram[shift, atoms[column], atoms[row]])
            if row == column:
                total += ridge
                whole = total
            for inner in range(column):
                total -= factor[row, inner] * factor[column, inner]
            if row > column:
                factor[row, column] = total / factor[column, column]
            elif total > 1e-7 * whole:
                factor[row, row] = np.sqrt(total)
            else:
                return False
        for inner in range(row):
            solution[row] -= factor[row, inner] * solution[inner]
        solution[row] /= factor[row, row]
    for row in range(count - 1, -1, -1):
        for inner in range(row + 1, count):
            solution[row] -= factor[inner, row] * solution[inner]
        solution[row] /= factor[row, row]
    return True


@compiled
def _settle_signs(shifted_gram, linear, sparsity, ridge, times, atoms, signs, values, count, factor, solution):
    """Move ``values`` to the minimum over the codes in use; codes that reach zero on the way are dropped.

    Return the number of codes left, or -1 if there is no way down.
    """
    while _solve_used(shifted_gram, linear, sparsity, ridge, times, atoms, signs, count, factor, solution):
        step, first = 1.0, -1
        for place in range(count):
            if solution[place] * signs[place] <= 0.0:
                reach = abs(values[place]) / (abs(values[place]) + abs(solution[place]) + 1e-300)
                if reach < step:
                    step, first = reach, place
        for place in range(count):
            values[place] += step * (solution[place] - values[place])
        if first < 0:
            return count
        if step == 0.0 or count == 1:
            return -1
        count -= 1
        for place in range(first, count):
            times[place], atoms[place] = times[place + 1], atoms[place + 1]
            signs[place], values[place] = signs[place + 1], values[place + 1]
    return -1


@compiled
def code_few(shifted_gram, linear, sparsity, least, tolerance, start, stop, codes):
    """Find the codes of images [start, stop) directly, where at most FEW of them are not zero.

    This is the feature-sign search of Lee et al. (2006): codes come into use one by one, the steepest first, and the
    minimum over those in use is solved directly. ``shifted_gram`` (tube, atom, other atom) holds the inner products of
    an atom with the other one moved by so many places, ``linear`` and ``codes`` are (tube, atom, image). No slope of
    the result exceeds ``1 + tolerance`` times the sparsity. A small ridge penalty divides a code between atoms that are
    nearly equal, instead of choosing one of them by chance.

    Images whose sparsity is below ``least`` times their largest slope at zero are left out, because they need many
    codes. Like all for which the search fails, they keep their former codes.
    """
    tube_length, n_atoms, _ = linear.shape
    slopes, here = np.empty((tube_length, n_atoms), linear.dtype), np.empty((tube_length, n_atoms), linear.dtype)
    times, atoms = np.empty(FEW, np.int64), np.empty(FEW, np.int64)
    signs, values, solution = np.empty(FEW), np.empty(FEW), np.empty(FEW)
    factor = np.empty((FEW, FEW))
    for image in range(start, stop):
        for time in range(tube_length):
            for atom in range(n_atoms):
                here[time, atom] = linear[time, atom, image]
        count, found, ridge = 0, False, 0.0
        for _ in range(4 * FEW):
            time, atom = _set_slopes(shifted_gram, here, slopes.dtype.type(ridge), times, atoms, values, count, slopes)
            steepest = abs(slopes[time, atom])
            found = steepest <= (1.0 + tolerance) * sparsity
            if found or count == FEW or (count == 0 and sparsity < least * steepest):
                break
            if count == 0:
                ridge = RIDGE * tolerance * sparsity / steepest
            times[count], atoms[count], values[count] = time, atom, 0.0
            signs[count] = -1.0 if slopes[time, atom] > 0.0 else 1.0
            count = _settle_signs(
                shifted_gram, here, sparsity, ridge, times, atoms, signs, values, count + 1, factor, solution
            )
            if count < 0:
                break
        if found:
            for place in range(count):
                codes[times[place], atoms[place], image] = values[place]
