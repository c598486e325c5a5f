"""Shifted graph systems solved again and again while their right-hand sides settle, for NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tubal import _kernels_graph as kernels
from tubal._backend import own_threads, parallel_ranges
from tubal._kernels import LANES
from tubal.problems._graph_term import GraphTerm

# A system is solved until its residual has shrunk this much from where the last solve ended. The error then shrinks
# with the iteration's own movement, so the splitting converges as with exact solves; the first solve has no such help.
REDUCTION, FIRST_REDUCTION = 1e-2, 1e-5
MOST_STEPS = 100


def slab_rows(shifts: Any) -> Any:
    """Return which coefficient row each lane holds, (slab, LANES): similar shifts together, so that they rest together.

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

    def solve(self, right: Any, shifts: Any) -> Any:
        """Return the solution of ``right`` (..., sample), closer by ``REDUCTION``; shifts are the same every time."""
        reduction = REDUCTION
        if self.solution is None:
            self._open(np.asarray(shifts).reshape(-1), right)
            reduction = FIRST_REDUCTION
        flat = np.ascontiguousarray(right).reshape(1, -1, right.shape[-1])
        solved = np.empty_like(flat)
        number, nothing, n_samples = right.dtype.type, np.empty((0, 0, 0), right.dtype), right.shape[-1]

        def work(start: int, stop: int) -> None:
            held, slabs = self.rows[start:stop], self.right[start:stop]
            kernels._to_slabs(flat, held, number(1.0), nothing, 0, n_samples, slabs)
            kernels.solve_graph_systems(
                self.bundles, number(2.0 * self.graph.weight), self.shifts, self.right, reduction, MOST_STEPS, start,
                stop, self.solution,
            )  # fmt: skip
            kernels._from_slabs(self.solution[start:stop], held, 0, n_samples, solved)

        with own_threads() as threads:
            parallel_ranges(work, len(self.rows), grain=1, threads=threads)
        return solved.reshape(right.shape)
