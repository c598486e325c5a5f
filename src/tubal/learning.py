"""Algorithm 2 as one alternation over any model, any solvers and any sequence of sample chunks.

What travels from a chunk to the dictionary step has the same size whatever the number of images: statistics,
and the terms of the objective. What comes in, with a graph, is the weighted sum of the codes of neighbours
in other chunks. So one chunk in memory, many on disk and many on other machines are the same loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, Protocol

import numpy as np

from tubal._backend import Array, to_numpy
from tubal.problems._base import ImageModel, Summary
from tubal.solvers.lagrange_dual import DictionaryState


class Collection(Protocol):
    """Images in chunks, and the graph that ties them."""

    n_chunks: int

    def data(self, index: int) -> Array:
        """Return chunk ``index`` as a tensor, samples last."""

    def laplacian(self, index: int) -> Any:
        """Return the Laplacian within the chunk, its degrees counting every edge, or None."""

    def neighbor_sum(self, index: int, codes_of: Callable[[int], Array | None]) -> Array | None:
        """Return the weighted sum of neighbours' codes in other chunks, or None if there is none."""


@dataclass(frozen=True)
class InMemory:
    """All images in one chunk."""

    images: Array
    graph_laplacian: Any = None
    n_chunks: int = 1

    def data(self, index: int) -> Array:
        """Return the images."""
        return self.images

    def laplacian(self, index: int) -> Any:
        """Return the Laplacian."""
        return self.graph_laplacian

    def neighbor_sum(self, index: int, codes_of: Callable[[int], Array | None]) -> None:
        """Return nothing: there are no other chunks."""
        return None


@dataclass(frozen=True)
class Weights:
    """The two weights of the objective (eq. 8)."""

    sparsity: float
    graph_weight: float = 0.0


@dataclass
class Coded:
    """A chunk's codes and the solver state that led to them, its next warm start."""

    codes: Array
    state: Any
    summary: Summary | None = None


class MemoryStore:
    """Keeps every chunk's codes in memory."""

    def __init__(self) -> None:
        self._chunks: dict[int, Coded] = {}

    def get(self, index: int) -> Coded | None:
        """Return a chunk's codes, or None before its first coding step."""
        return self._chunks.get(index)

    def put(self, index: int, coded: Coded) -> None:
        """Keep a chunk's codes; its statistics are not kept."""
        self._chunks[index] = Coded(coded.codes, coded.state)

    def codes_of(self, index: int) -> Array | None:
        """Return a chunk's codes alone."""
        coded = self.get(index)
        return None if coded is None else coded.codes


@dataclass
class LearningState:
    """Where the alternation stands; together with the code store, all a checkpoint needs."""

    dictionary: Any
    multipliers: list[Array | None]
    objective: list[float] = field(default_factory=list)
    density: list[float] = field(default_factory=list)  # share of non-zero codes
    n_reseeded: int = 0
    n_iter: int = 0
    converged: bool = False


@dataclass(frozen=True)
class Progress:
    """What a callback is told after each coding step; returning True stops the fit."""

    n_iter: int
    max_iter: int
    objective: float
    density: float
    n_reseeded: int
    seconds: float
    state: LearningState
    store: Any


def code_chunk(
    model: ImageModel, dictionary: Any, data: Array, weights: Weights, code_solver: Any,
    *, laplacian: Any = None, neighbor_sum: Array | None = None, start: Coded | None = None,
) -> Coded:  # fmt: skip
    """One coding step on one chunk; codes that are no better than the start's are not taken."""
    problem = model.coding(
        dictionary, data, sparsity=weights.sparsity, graph_weight=weights.graph_weight,
        laplacian=laplacian, neighbor_sum=neighbor_sum,
    )  # fmt: skip
    solution = code_solver.minimise(problem, None if start is None else start.state)
    codes = code_solver.codes(problem, solution.state)
    summary = problem.summary(codes, statistics=True)
    former = problem.zeros() if start is None else start.codes
    if problem.value(former) < summary.values.sum():
        codes, summary = former, problem.summary(former, statistics=True)
    return Coded(codes, solution.state, summary)


def coding_pass(model: ImageModel, state: LearningState, collection: Collection, weights: Weights, code_solver: Any, store: Any) -> list[Summary]:  # fmt: skip
    """Code every chunk in turn, each against the newest codes of the others, so the objective cannot rise."""
    summaries = []
    for index in range(collection.n_chunks):
        coded = code_chunk(
            model, state.dictionary, collection.data(index), weights, code_solver,
            laplacian=collection.laplacian(index),
            neighbor_sum=collection.neighbor_sum(index, store.codes_of), start=store.get(index),
        )  # fmt: skip
        store.put(index, coded)
        assert coded.summary is not None
        summaries.append(coded.summary)
    return summaries


def collection_objective(summaries: Sequence[Summary]) -> float:
    """Return the objective (eq. 8) of the whole collection from its chunks' terms.

    Exact when chunks do not tie to each other or there is one; otherwise each chunk's cross terms saw the codes
    its neighbours had when it was coded, so this is an upper estimate.
    """
    return float(sum(summary.shares.sum() for summary in summaries))


def dictionary_pass(model: ImageModel, state: LearningState, collection: Collection, statistics: Any, dictionary_solver: Any, store: Any) -> LearningState:  # fmt: skip
    """Update each part of the dictionary by its dual; a part that did not improve is kept."""
    dictionary, multipliers = state.dictionary, list(state.multipliers)
    for step in range(model.n_dictionary_steps):
        if step > 0:
            statistics = reduce(
                add,
                (
                    model.statistics(dictionary, collection.data(index), store.codes_of(index), step)
                    for index in range(collection.n_chunks)
                ),
            )
        problem = model.dictionary_problem(statistics, dictionary, step)
        part = model.part(dictionary, step)
        found = dictionary_solver.minimise(problem, DictionaryState(part, multipliers[step])).state
        if problem.value(found.dictionary) < problem.value(part):
            dictionary, multipliers[step] = (
                model.with_part(dictionary, step, found.dictionary),
                found.multipliers,
            )
    state.dictionary, state.multipliers = dictionary, multipliers
    return state


def reseed(model: ImageModel, state: LearningState, collection: Collection, usage: Array, summaries: Sequence[Summary]) -> int:  # fmt: skip
    """Replace atoms no image uses by the worst reconstructed images; return how many."""
    unused = to_numpy(usage) <= 0.0
    residuals = np.concatenate([summary.residuals for summary in summaries])
    count = min(int(unused.sum()), len(residuals))
    if count == 0:
        return 0
    worst = np.argsort(-residuals, kind="stable")[:count]
    worst = worst[residuals[worst] > 0.0]
    starts = np.cumsum([0, *(len(summary.residuals) for summary in summaries)])
    images = []
    for index in range(collection.n_chunks):
        inside = worst[(worst >= starts[index]) & (worst < starts[index + 1])] - starts[index]
        if len(inside):
            images.append(collection.data(index)[..., inside])
    if not images:
        return 0
    chosen = np.flatnonzero(unused)[: len(worst)]
    mask = np.zeros_like(unused)
    mask[chosen] = True
    from tubal._backend import namespace

    state.dictionary = model.replace_atoms(
        state.dictionary, mask, namespace(images[0]).concatenate(images, -1)
    )
    return len(chosen)


def learn(
    model: ImageModel, collection: Collection, state: LearningState, weights: Weights, *,
    code_solver: Any, dictionary_solver: Any, max_iter: int, tol: float,
    final_solver: Any = None, store: Any = None, callbacks: Sequence[Callable[[Progress], Any]] = (),
) -> LearningState:  # fmt: skip
    """Alternate coding and dictionary steps until the objective settles; end with codes at the final dictionary.

    ``state`` may be fresh or a former run's: it continues where it stands. Every recorded objective follows
    a coding step, and none exceeds the one before.
    """
    store = MemoryStore() if store is None else store
    began = time.perf_counter()
    final_solver = code_solver if final_solver is None else final_solver
    while state.n_iter < max_iter and not state.converged:
        last = state.n_iter + 1 == max_iter
        summaries = coding_pass(
            model, state, collection, weights, final_solver if last else code_solver, store
        )
        state.n_iter += 1
        record(state, summaries, store, collection)
        stopped = _told_to_stop(state, max_iter, callbacks, began, store)
        settled = _settled(state.objective, tol)
        if last or stopped or settled:
            state.converged = settled
            if not last:
                coding_pass(model, state, collection, weights, final_solver, store)
            break
        statistics = reduce(add, (summary.statistics for summary in summaries))
        usage = statistics.usage
        state = dictionary_pass(model, state, collection, statistics, dictionary_solver, store)
        state.n_reseeded += reseed(model, state, collection, usage, summaries)
    return state


def record(state: LearningState, summaries: Sequence[Summary], store: Any, collection: Collection) -> None:
    """Append this pass's objective and share of non-zero codes to the history."""
    state.objective.append(collection_objective(summaries))
    nonzero = total = 0
    for index in range(collection.n_chunks):
        codes = store.codes_of(index)
        nonzero += int((codes != 0).sum())
        total += int(np.prod(codes.shape))
    state.density.append(nonzero / max(total, 1))


def _settled(objective: Sequence[float], tol: float) -> bool:
    return len(objective) > 1 and objective[-2] - objective[-1] <= tol * abs(objective[-2])


def _told_to_stop(state: LearningState, max_iter: int, callbacks: Sequence[Callable[[Progress], Any]], began: float, store: Any) -> bool:  # fmt: skip
    progress = Progress(
        state.n_iter, max_iter, state.objective[-1], state.density[-1], state.n_reseeded,
        time.perf_counter() - began, state, store,
    )  # fmt: skip
    return any([callback(progress) is True for callback in callbacks])


def initial_state(dictionary: Any, model: ImageModel) -> LearningState:
    """Return the state before the first coding step."""
    return LearningState(dictionary, [None] * model.n_dictionary_steps)
