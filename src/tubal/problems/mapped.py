"""Coding under any linear map given by itself and its adjoint: all that a new model must not write again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from tubal.backends.arrays import Array, as_double, is_torch, namespace
from tubal.backends.threads import own_threads, parallel_ranges
from tubal.problems.base import CodingProblem, SplitState, Summary
from tubal.problems.graph_term import GraphTerm, WarmSystems


class MappedCoding(CodingProblem):
    """``1/2 ||X - map(B)||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁`` for a map from codes to images.

    A model says what ``reconstruct``, ``correlate`` (its adjoint), ``map_norm`` and ``solve_shifted`` are; where
    the last one meets the samples it calls ``solve_rows``.
    """

    block = 64  # images that the independent splitting works on at a time, so that they stay in cache

    def __init__(
        self,
        dictionary: Any,
        data: Array,
        codes_shape: tuple[int, ...],
        *,
        sparsity: float,
        graph_weight: float = 0.0,
        laplacian: Any = None,
        neighbor_sum: Array | None = None,
    ) -> None:
        self.dictionary, self.data, self.sparsity = dictionary, data, float(sparsity)
        tied = graph_weight > 0.0 and laplacian is not None
        self.graph = GraphTerm(laplacian, graph_weight, neighbor_sum) if tied else None
        self.independent = self.graph is None or not self.graph.ties
        self._systems: WarmSystems | None = None
        self.codes_shape = codes_shape

    # --- what a model says ---------------------------------------------------------------------------
    @abstractmethod
    def reconstruct(self, codes: Array) -> Array:
        """Return the images that codes describe, of the data's shape."""

    @abstractmethod
    def correlate(self, images: Array) -> Array:
        """Return the adjoint of the map applied to images."""

    @property
    @abstractmethod
    def map_norm(self) -> float:
        """The largest eigenvalue of the map's Gram operator, exactly."""

    @abstractmethod
    def statistics(self, codes: Array) -> Any:
        """Return what the first dictionary step needs of these codes."""

    def images(self, start: int, stop: int) -> MappedCoding:
        """Return the same problem for some of the images; only asked of problems without a graph."""
        raise NotImplementedError

    # --- what follows --------------------------------------------------------------------------------
    @cached_property
    def linear(self) -> Array:
        """The correlation of images with atoms, plus the pull of fixed neighbours."""
        correlation = self.correlate(self.data)
        return correlation if self.graph is None else self.graph.add_pull(correlation)

    @cached_property
    def lipschitz(self) -> float:
        """Norm of the map's Gram operator plus ``2 α ||L||₂``."""
        return max(self.map_norm + (self.graph.lipschitz if self.graph else 0.0), 1e-300)

    def zeros(self) -> Array:
        """Return codes of zeros."""
        xp = namespace(self.data)
        return xp.zeros(self.codes_shape, dtype=self.data.dtype, device=self.data.device)

    def curvature(self, codes: Array) -> Array:
        """Return the Gram operator applied to codes, plus ``2 α B L``."""
        product = self.correlate(self.reconstruct(codes))
        return product if self.graph is None else product + self.graph.product(codes)

    def summary(self, codes: Array, *, statistics: bool = False) -> Summary:
        """Return each image's terms of the objective and, if asked, what the dictionary step needs."""
        difference = as_double(self.data) - as_double(self.reconstruct(codes))
        residuals = (difference**2).sum(tuple(range(difference.ndim - 1)))
        absolutes = _sum_in_double(abs(codes))
        energies, pulls = self.graph.energies(codes) if self.graph else (0.0 * residuals, 0.0 * residuals)
        gathered = self.statistics(codes) if statistics else None
        return Summary.collect(self, residuals, absolutes, energies, pulls, gathered)

    def solve_rows(self, rows: Array, shifts: Array) -> Array:
        """Solve ``b (2 α L + shift) = row`` for rows (..., sample) and their shifts (...), which are positive."""
        if self.graph is None:
            return rows / shifts[..., None]
        return self.graph.solve(rows, shifts) if self._systems is None else self._systems.solve(rows, shifts)

    @contextmanager
    def warm_systems(self, state: SplitState) -> Iterator[WarmSystems | None]:
        """Within a splitting, solve tied rows from where its last step left them; yield what the state is to keep."""
        if self.independent or self.graph is None or is_torch(self.data):
            yield None
            return
        self._systems = state.extra if isinstance(state.extra, WarmSystems) else WarmSystems(self.graph)
        try:
            yield self._systems
        finally:
            self._systems = None

    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Douglas-Rachford steps; images that nothing ties are done in blocks, by threads."""
        terms = {"penalty": penalty, "relaxation": relaxation, "n_steps": n_steps, "tol": tol}
        if self.graph is not None or is_torch(self.data) or self.codes_shape[-1] <= self.block:
            with self.warm_systems(state) as systems:
                done = super().split(state, **terms)  # type: ignore[arg-type]
            return SplitState(done.point, done.movement, systems)
        blocks = state.extra if isinstance(state.extra, dict) else {}

        def work(start: int, stop: int) -> SplitState:
            if start not in blocks:
                blocks[start] = self.images(start, stop)
            former = None if state.movement is None else state.movement[start:stop]
            part = SplitState(state.point[..., start:stop], former)
            return CodingProblem.split(blocks[start], part, **terms)  # type: ignore[arg-type]

        with own_threads() as threads:
            parts = parallel_ranges(work, self.codes_shape[-1], grain=self.block, threads=threads)
        xp = namespace(state.point)
        point, movement = (
            xp.concatenate([getattr(part, name) for part in parts], -1) for name in ("point", "movement")
        )
        return SplitState(point, movement, blocks)


def _sum_in_double(values: Array) -> Array:
    axes = tuple(range(values.ndim - 1))
    xp = namespace(values)
    return xp.sum(values, axes, dtype=xp.float64)
