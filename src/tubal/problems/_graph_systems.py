"""Shifted graph systems solved again and again while their right-hand sides settle, for NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tubal import _kernels_graph as kernels
from tubal._backend import own_threads, parallel_ranges
from tubal._kernels import LANES
from tubal.problems._graph_term import GraphTerm

# A solve leaves at most this share of the error it begins with, where the last one ended. The error then shrinks with
# the iteration's own movement, so the splitting converges as with exact solves; the first solve has no such help.
REDUCTION, FIRST_REDUCTION = 1e-2, 1e-5
MOST_STEPS = 1000


def sweeps(graph: GraphTerm, shifts: Any, reduction: float) -> tuple[Any, Any]:
    """Return Jacobi's rate for every slab of ``shifts`` (slab, lane), and how many steps shrink an error so far."""
    rates = np.array([graph.shared.jacobi_rate(float(shift) / (2.0 * graph.weight)) for shift in shifts.min(1)])
    with np.errstate(divide="ignore"):  # a rate of zero: one step solves
        counts = np.ceil(np.arccosh(1.0 / reduction) / np.arccosh(1.0 / rates))
    return rates, np.clip(counts, 1, MOST_STEPS).astype(np.int64)


def slab_rows(shifts: Any) -> Any:
    """Return which coefficient row each lane holds, (slab, LANES): similar shifts together: the least sets the steps.

    Lanes that pad the last slab hold its last row once more.
    """
    n_slabs = -(-shifts.size // LANES)
    order = np.argsort(shifts, kind="stable")
    return np.concatenate([order, np.full(n_slabs * LANES - order.size, order[-1])]).reshape(n_slabs, LANES)


class WarmSystems:
    """Systems ``b (2 α L + shift) = right``, one a coefficient row; each solve starts where the last one ended.

    Rows are kept in slabs of similar shifts, as :mod:`tubal._kernels_graph` wants them.
    """

    def __init__(self, graph: GraphTerm) -> None:
        self.graph = graph
        self.solution: Any = None

    def _open(self, shifts: Any, right: Any) -> None:
        self.rows = slab_rows(shifts)
        self.shifts = shifts[self.rows].astype(right.dtype)
        self.bundles = self.graph.bundles(right.dtype)
        self.solution = np.zeros((len(self.rows), right.shape[-1], LANES), right.dtype)
        self.right = np.empty_like(self.solution)
        self.first, self.later = (sweeps(self.graph, self.shifts, least) for least in (FIRST_REDUCTION, REDUCTION))

    def solve(self, right: Any, shifts: Any) -> Any:
        """Return the solution of ``right`` (..., sample), closer by ``REDUCTION``; shifts are the same every time."""
        opening = self.solution is None
        if opening:
            self._open(np.asarray(shifts).reshape(-1), right)
        rates, counts = self.first if opening else self.later
        flat = np.ascontiguousarray(right).reshape(-1, right.shape[-1])
        solved, scale = np.empty_like(flat), right.dtype.type(2.0 * self.graph.weight)

        def work(start: int, stop: int) -> None:
            held = self.rows[start:stop]
            kernels.to_slabs(flat, held, self.right[start:stop])
            kernels.solve_graph_systems(
                self.bundles, scale, self.shifts, rates, counts, self.right, start, stop, self.solution
            )
            kernels.from_slabs(self.solution[start:stop], held, solved)

        with own_threads() as threads:
            parallel_ranges(work, len(self.rows), grain=1, threads=threads)
        return solved.reshape(right.shape)
