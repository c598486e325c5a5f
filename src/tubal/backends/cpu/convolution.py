"""Compiled passes of convolutional coding over single images, for NumPy arrays.

Filters are small, so a convolution is one GEMM between filters and shifted planes (support · hw · atoms
products) followed by adding up the shifts: faster than Fourier transforms of every code plane, and an image's
codes stay in cache for all steps of a burst. Only the images themselves, one plane a channel, are transformed.
"""

from __future__ import annotations

import numba as nb
import numpy as np

LANES = 128  # coefficient rows solved side by side in the graph systems: long runs of memory, a block in cache

_compiled = nb.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")


@_compiled
def _add_shifts(patches, n_down, n_across, planes):
    """Set ``planes`` (channel, h, w) to the sum of ``patches`` (channel·down·across, h·w), each moved by its shift."""
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


@_compiled
def _take_shifts(planes, n_down, n_across, patches):
    """Set ``patches`` (channel·down·across, h·w) to ``planes`` moved back by every shift: the adjoint of adding."""
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


@_compiled
def _filter_planes(planes, response, along, down, back, spectra, work, mixed):
    """Multiply the spectra of ``planes`` by ``response`` (channel, channel, h, w_half), in place.

    ``along`` and ``back`` are real transforms of rows to interleaved half spectra and back, ``down`` the complex
    transform of columns; scale factors are in ``response``.
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


@_compiled
def split_images(
    point, data, filters, filters_t, support, response, along, down, back, bound, relaxation, n_steps, active,
    start, stop, change, size,
):  # fmt: skip
    """Make ``n_steps`` Douglas-Rachford steps on images [start, stop), in place.

    point : (n, atom, h·w); data : (n, channel, h, w); filters : (channel·down·across, atom).
    With v the reflected point a step solves ``x = v + Dᵀ (DDᵀ + penalty)⁻¹ (X - D v)``.
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
            _reflect(here, bound, reflected.reshape(-1))
            np.dot(filters, reflected, patches)
            _add_shifts(patches, support[0], support[1], planes)
            for channel in range(n_channels):
                planes[channel] = data[image, channel] - planes[channel]
            _filter_planes(planes, response, along, down, back, spectra, work, mixed)
            _take_shifts(planes, support[0], support[1], patches)
            np.dot(filters_t, patches, correction)
            if step + 1 < n_steps:
                _relax(here, correction.reshape(-1), bound, relaxation)
            else:
                change[image], size[image] = _relax_and_measure(here, correction.reshape(-1), bound, relaxation)


@_compiled
def _reflect(point, bound, reflected):
    for index in range(point.size):
        value = point[index]
        clipped = min(max(value, -bound), bound)
        reflected[index] = value - clipped - clipped


@_compiled
def _relax(point, correction, bound, relaxation):
    """Move towards ``reflected + correction + clipped``, which less ``point`` is ``correction - clipped``."""
    for index in range(point.size):
        value = point[index]
        clipped = min(max(value, -bound), bound)
        point[index] = value + relaxation * (correction[index] - clipped)


@_compiled
def _relax_and_measure(point, correction, bound, relaxation):
    moved = length = 0.0
    for index in range(point.size):
        value = point[index]
        clipped = min(max(value, -bound), bound)
        move = correction[index] - clipped
        moved += move * move
        length += value * value
        point[index] = value + relaxation * move
    return moved, length


@_compiled
def reconstruct_images(codes, filters, support, start, stop, images):
    """Set ``images`` (n, channel, h, w) to the convolutions of ``codes`` (n, atom, h·w) with the filters."""
    patches = np.empty((filters.shape[0], codes.shape[2]), codes.dtype)
    for image in range(start, stop):
        np.dot(filters, codes[image], patches)
        _add_shifts(patches, support[0], support[1], images[image])


@_compiled
def correlate_images(images, filters_t, support, start, stop, codes):
    """Set ``codes`` (n, atom, h·w) to the correlations of ``images`` (n, channel, h, w) with the filters."""
    patches = np.empty((filters_t.shape[1], codes.shape[2]), codes.dtype)
    for image in range(start, stop):
        _take_shifts(images[image], support[0], support[1], patches)
        np.dot(filters_t, patches, codes[image])


@_compiled
def solve_rows(source, scale, order, lower, upper, start, stop, solution):
    """Solve one factored system in the samples for coefficient rows [start, stop) · LANES of ``source`` (n, rows).

    ``lower`` and ``upper`` are (pointers, columns, values, diagonal) of the factors' rows; ``order`` is where
    each sample goes. Rows lie side by side, so that every step of the substitution is one vector operation.
    """
    n_samples, n_rows = source.shape
    block = np.empty((n_samples, LANES), source.dtype)
    for slab in range(start, stop):
        first = slab * LANES
        width = min(LANES, n_rows - first)
        for sample in range(n_samples):
            target = block[order[sample]]
            for lane in range(width):
                target[lane] = scale * source[sample, first + lane]
            for lane in range(width, LANES):
                target[lane] = 0.0
        _substitute(block, lower, upper)
        for sample in range(n_samples):
            values = block[order[sample]]
            for lane in range(width):
                solution[sample, first + lane] = values[lane]


@_compiled
def split_rows(point, linear, bound, penalty, order, lower, upper, start, stop, solution):
    """Solve as :func:`solve_rows` for ``linear + penalty · reflected point``, never stored."""
    n_samples, n_rows = point.shape
    block = np.empty((n_samples, LANES), point.dtype)
    for slab in range(start, stop):
        first = slab * LANES
        width = min(LANES, n_rows - first)
        for sample in range(n_samples):
            target = block[order[sample]]
            for lane in range(width):
                value = point[sample, first + lane]
                clipped = min(max(value, -bound), bound)
                target[lane] = linear[sample, first + lane] + penalty * (value - clipped - clipped)
            for lane in range(width, LANES):
                target[lane] = 0.0
        _substitute(block, lower, upper)
        for sample in range(n_samples):
            values = block[order[sample]]
            for lane in range(width):
                solution[sample, first + lane] = values[lane]


@_compiled
def _substitute(block, lower, upper):
    """Solve both triangular systems in place; rows of ``block`` are samples in the factors' order."""
    pointers, columns, values, _ = lower
    lanes = block.shape[1]  # known at run time only: a constant would be unrolled into scalar code
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


@_compiled
def relax_images(solved, planes, filters_t, support, bound, relaxation, active, start, stop, point, change, size):
    """Move ``point`` towards ``solved - correlation of planes``, the end of a step with a graph, in place.

    point, solved : (n, atom, h·w); planes : (n, channel, h, w), what the rank-one part takes away.
    """
    patches = np.empty((filters_t.shape[1], point.shape[2]), point.dtype)
    correction = np.empty((point.shape[1], point.shape[2]), point.dtype)
    for image in range(start, stop):
        if not active[image]:
            continue
        _take_shifts(planes[image], support[0], support[1], patches)
        np.dot(filters_t, patches, correction)
        taken, found, target = correction.reshape(-1), solved[image].reshape(-1), point[image].reshape(-1)
        moved = length = 0.0
        for index in range(target.size):
            value = target[index]
            clipped = min(max(value, -bound), bound)
            move = found[index] - taken[index] + clipped - value
            moved += move * move
            length += value * value
            target[index] = value + relaxation * move
        change[image], size[image] = moved, length
