"""Kernels for the graph Laplacian: products, energies, and many shifted systems ``(scale · L + shift) x = right``.

Coefficient rows are kept side by side in slabs ``(slab, image, lane)``, one row per lane. A product with the sparse
Laplacian then reads contiguous memory, and all steps on one slab stay in the cache.

``graph`` is the tuple that ``GraphTerm.bundles`` returns: for every image the index of its first bundle, the
neighbours and weights of each bundle (bundle, 4), and the diagonal of L.
"""

from __future__ import annotations

import numpy as np

from tubal.backends.cpu.jit import compiled, inlined

LANES = 64  # coefficient rows in a slab: a multiple of the width of vector registers
BUNDLE = 4  # neighbours that the loops below read in one pass; the loops are written out for this number


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
    """Undo :func:`to_slabs`; the padding lanes of the last slab repeat its last row, so they may write it too."""
    for slab in range(slabs.shape[0]):
        held = rows[slab]
        for sample in range(slabs.shape[1]):
            source = slabs[slab, sample]
            for lane in range(source.size):
                target[held[lane], sample] = source[lane]


# --- systems ----------------------------------------------------------------------------------------------------------
@inlined
def _jacobi_sweep(graph, scale, shift, push, wanted, vector, gathered, target):
    """Set ``target`` to ``(1 - push) · target + push · J(vector)``.

    J is the Jacobi step of ``(scale · L + shift) x = wanted``. All arrays are (image, lane); ``shift`` and the buffer
    ``gathered`` are (lane,). Neighbours are read four at a time in one pass over the lanes, because starting a pass
    costs as much as the pass itself. Most images have one bundle and are finished in that pass. A loop over more
    arrays at once would not be vectorised.
    """
    starts, neighbors, weights, diagonal = graph
    lanes = vector.shape[1]  # a run-time value: the compiler would unroll a constant into scalar code
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


@compiled
def solve_graph_systems(graph, scale, shifts, rates, counts, right, start, stop, solution):
    """Improve ``solution`` in slabs [start, stop) by ``counts[slab]`` Jacobi steps with Chebyshev weights.

    ``rates[slab]`` bounds the factor by which one plain Jacobi step shrinks the error. After n weighted steps the
    factor is at most 1 / T_n(1 / rate), with T_n the Chebyshev polynomial (Golub and Varga 1961). Only two vectors are
    kept, and no inner product is needed.
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
            _jacobi_sweep(graph, scale, shift, right.dtype.type(push), wanted, source, gathered, target)
        if counts[slab] % 2:
            for sample in range(n_samples):
                for lane in range(lanes):
                    here[sample, lane] = other[sample, lane]


# --- products ---------------------------------------------------------------------------------------------------------
@inlined
def _graph_product(graph, scale, vector, product):
    """Set ``product`` to ``scale · L · vector``, both (image, lane)."""
    starts, neighbors, weights, diagonal = graph
    lanes = vector.shape[1]  # a run-time value: the compiler would unroll a constant into scalar code
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


@inlined
def _load_lanes(codes, low, high, vector):
    """Copy rows [low, high) of ``codes`` (row, image) into the lanes of ``vector`` (image, lane); the rest is zero."""
    n_samples, lanes = vector.shape
    for lane in range(lanes):
        for sample in range(n_samples):
            vector[sample, lane] = codes[low + lane, sample] if low + lane < high else 0.0


@compiled
def multiply_by_graph(codes, graph, scale, start, stop, product):
    """Set rows [start, stop) · LANES of ``product`` to ``scale · codes · L``; both arrays are (row, image)."""
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


@compiled
def graph_energies(codes, graph, start, stop, energies):
    """Add each image's ``<codes, codes L>`` over rows [start, stop) · LANES of ``codes`` (row, image)."""
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
