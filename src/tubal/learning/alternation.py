"""Algorithm 2 as one alternation over any model, any solvers and any sequence of sample chunks.

What travels from a chunk to the dictionary step has the same size whatever the number of images: statistics,
and the terms of the objective. What comes in, with a graph, is the weighted sum of the codes of neighbours
in other chunks. So one chunk in memory, many on disk and many on other machines are the same loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, Protocol

import numpy as np

from tubal.backends.arrays import Array, namespace, to_numpy
from tubal.backends.threads import own_threads
from tubal.problems.base import ImageModel, Summary
from tubal.problems.linear_map import SharedLaplacian
from tubal.solvers.base import DictionaryState

# A fall of the objective by this share is no rounding.
CLEAR_GAIN = 1e-4


class Collection(Protocol):
    """Images in chunks, and the graph that ties them."""

    @property
    def n_chunks(self) -> int:
        """How many chunks there are."""

    def data(self, index: int) -> Array:
        """Return chunk ``index`` as a tensor, samples last."""

    def laplacian(self, index: int) -> Any:
        """Return the Laplacian within the chunk, its degrees counting every edge, or None."""

    def neighbor_sum(self, index: int, store: Any, others: range) -> Array | None:
        """Return the weighted sum of neighbours' codes in the chunks ``others``, or None if there is none."""


@dataclass(frozen=True)
class InMemory:
    """All images in one chunk."""

    images: Array
    graph_laplacian: Any = None
    n_chunks: int = 1

    def data(self, index: int) -> Array:
        """Return the images."""
        return self.images

    @cached_property
    def _shared(self) -> SharedLaplacian | None:
        return None if self.graph_laplacian is None else SharedLaplacian(self.graph_laplacian)

    def laplacian(self, index: int) -> SharedLaplacian | None:
        """Return the Laplacian, with what one coding step after another derives from it."""
        return self._shared

    def neighbor_sum(self, index: int, store: Any, others: range) -> None:
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
        # Sums depend on the order of an array in memory: what a checkpoint gives back must not differ in it.
        self._chunks[index] = Coded(_in_row_order(coded.codes), _in_row_order(coded.state))

    def codes_of(self, index: int) -> Array | None:
        """Return a chunk's codes alone."""
        coded = self.get(index)
        return None if coded is None else coded.codes

    def indices(self) -> list[int]:
        """Return which chunks have codes."""
        return sorted(self._chunks)

    def collect(self) -> Array:
        """Return the codes of all chunks together."""
        codes = [self._chunks[index].codes for index in self.indices()]
        return codes[0] if len(codes) == 1 else namespace(codes[0]).concatenate(codes, -1)

    def gather(self, index: int, columns: np.ndarray) -> Array | None:
        """Return the codes of some of a chunk's images, or None before its first coding step."""
        codes = self.codes_of(index)
        return None if codes is None else codes[..., columns]


def _in_row_order(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{part.name: _in_row_order(getattr(value, part.name)) for part in fields(value)})
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class Tally:
    """What a coding pass gathered from the chunks it visited: the same size whatever their number.

    objective : share of the collection's objective; an edge between chunks is counted by the later one.
    worst, places : squared errors of the worst reconstructed images, largest first, and their (chunk, column).
    """

    n_chunks: int
    objective: float
    nonzero: int
    n_codes: int
    statistics: Any
    worst: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, index: int, coded: Coded, later_pull: float = 0.0) -> Tally:
        """Return the tally of one chunk; ``later_pull`` is the edge term with chunks that count it themselves."""
        summary = coded.summary
        assert summary is not None
        usage = to_numpy(summary.statistics.usage)
        worst = _largest(summary.residuals, usage.size)
        places = np.stack([np.full_like(worst, index), worst], 1)
        nonzero, n_codes = int(namespace(coded.codes).count_nonzero(coded.codes)), int(np.prod(coded.codes.shape))
        objective = float(summary.values.sum()) + later_pull
        return cls(1, objective, nonzero, n_codes, summary.statistics, summary.residuals[worst], places)

    def __add__(self, other: Tally) -> Tally:
        """Return the tally of both sets of chunks; equal errors stay in the order of the images."""
        worst, places = np.concatenate([self.worst, other.worst]), np.concatenate([self.places, other.places])
        reach = max(len(self.worst), len(other.worst), to_numpy(self.statistics.usage).size)
        order = np.lexsort((places[:, 1], places[:, 0], -worst))[:reach]
        return Tally(
            self.n_chunks + other.n_chunks, self.objective + other.objective, self.nonzero + other.nonzero,
            self.n_codes + other.n_codes, self.statistics + other.statistics, worst[order], places[order],
        )  # fmt: skip


def _largest(values: np.ndarray, number: int) -> np.ndarray:
    """Return where the largest values are, largest first, equal ones in order; no more are sorted than that takes."""
    places = np.arange(len(values))
    if number < len(values):
        places = np.flatnonzero(values >= np.partition(values, -number)[-number])
    return places[np.argsort(-values[places], kind="stable")][:number]


@dataclass
class LearningState:
    """Where the alternation stands; together with the code store, all a checkpoint needs.

    ``tally`` is what the pass under way has gathered so far, None between passes; ``beginning`` the objective that the
    next pass begins with, as the dictionary step's own figures have it; ``finishing`` says that only the last coding
    step, at the final dictionary, is still to come.
    """

    dictionary: Any
    multipliers: list[Array | None]
    objective: list[float] = field(default_factory=list)
    density: list[float] = field(default_factory=list)  # share of non-zero codes
    n_reseeded: int = 0
    n_iter: int = 0
    converged: bool = False
    finishing: bool = False
    finished: bool = False
    tally: Tally | None = None
    beginning: float | None = None


Keeper = Callable[[LearningState, Any], None]


def forget(state: LearningState, store: Any) -> None:
    """Keep nothing."""


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
    beginning: float | None = None,
) -> Coded:  # fmt: skip
    """One coding step on one chunk; codes that are no better than the start's are not taken.

    ``beginning`` is the objective at the start up to rounding: well below it the start need not be evaluated.
    """
    problem = model.coding(
        dictionary, data, sparsity=weights.sparsity, graph_weight=weights.graph_weight,
        laplacian=laplacian, neighbor_sum=neighbor_sum,
    )  # fmt: skip
    solution = code_solver.minimise(problem, None if start is None else start.state)
    codes = code_solver.codes(problem, solution.state)
    summary = problem.summary(codes, statistics=True)
    value = float(summary.values.sum())
    if beginning is not None and value <= beginning - CLEAR_GAIN * abs(beginning):
        return Coded(codes, solution.state, summary)
    former = problem.zeros() if start is None else start.codes
    if problem.value(former) < value:
        codes, summary = former, problem.summary(former, statistics=True)
    return Coded(codes, solution.state, summary)


def coding_pass(
    model: ImageModel, state: LearningState, collection: Collection, weights: Weights, code_solver: Any,
    store: Any, keep: Keeper,
) -> Tally:  # fmt: skip
    """Code every chunk in turn, each against the newest codes of the others, so the objective cannot rise.

    A pass that was interrupted goes on with the chunk after the last one tallied. The last pass of images that
    nothing ties together starts from zero, as coding them later will: so both find the same codes, also where
    the minimiser is not unique.
    """
    afresh = state.finishing and weights.graph_weight == 0.0
    for index in range(0 if state.tally is None else state.tally.n_chunks, collection.n_chunks):
        if index > 0:
            keep(state, store)
        earlier = collection.neighbor_sum(index, store, range(index))
        later = collection.neighbor_sum(index, store, range(index + 1, collection.n_chunks))
        start = None if afresh else store.get(index)
        coded = code_chunk(
            model, state.dictionary, collection.data(index), weights, code_solver,
            laplacian=collection.laplacian(index), neighbor_sum=_added(earlier, later),
            start=start, beginning=state.beginning if start is not None and collection.n_chunks == 1 else None,
        )  # fmt: skip
        store.put(index, coded)
        tally = Tally.of(index, coded, edge_term(weights, coded.codes, later))
        state.tally = tally if state.tally is None else state.tally + tally
    assert state.tally is not None
    done, state.tally = state.tally, None
    return done


def edge_term(weights: Weights, codes: Array, neighbor_sum: Array | None) -> float:
    """Return ``2 α <codes, neighbor_sum>``, what the edges to those neighbours took off a chunk's objective."""
    return 0.0 if neighbor_sum is None else 2.0 * weights.graph_weight * float((codes * neighbor_sum).sum())


def _added(total: Array | None, more: Array | None) -> Array | None:
    """Return the sum, in the memory of the first."""
    if total is None or more is None:
        return more if total is None else total
    total += more
    return total


def dictionary_pass(
    model: ImageModel, state: LearningState, collection: Collection, statistics: Any, dictionary_solver: Any,
    store: Any,
) -> float:  # fmt: skip
    """Update each part of the dictionary by its dual; return by how much the objective fell.

    A part that did not improve is kept.
    """
    dictionary, multipliers, gained = state.dictionary, list(state.multipliers), 0.0
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
        gain = problem.value(part) - problem.value(found.dictionary) if found.gain is None else found.gain
        if gain > 0.0:
            gained += gain
            dictionary, multipliers[step] = (
                model.with_part(dictionary, step, found.dictionary),
                found.multipliers,
            )
    state.dictionary, state.multipliers = dictionary, multipliers
    return gained


def reseed(model: ImageModel, state: LearningState, collection: Collection, tally: Tally) -> int:
    """Replace atoms no image uses by the worst reconstructed images; return how many."""
    unused = np.flatnonzero(to_numpy(tally.statistics.usage) <= 0.0)
    worst = tally.places[tally.worst > 0.0][: len(unused)]
    if len(worst) == 0:
        return 0
    # In the order of the chunks, so that each is read once.
    images = [
        collection.data(int(index))[..., np.sort(worst[worst[:, 0] == index, 1])] for index in np.unique(worst[:, 0])
    ]
    mask = np.zeros(to_numpy(tally.statistics.usage).shape, bool)
    mask[unused[: len(worst)]] = True
    state.dictionary = model.replace_atoms(state.dictionary, mask, namespace(images[0]).concatenate(images, -1))
    return len(worst)


@own_threads()  # small factorisations between the kernels must not wake a second pool
def learn(
    model: ImageModel, collection: Collection, state: LearningState, weights: Weights, *,
    code_solver: Any, dictionary_solver: Any, max_iter: int, tol: float,
    final_solver: Any = None, store: Any = None, callbacks: Sequence[Callable[[Progress], Any]] = (),
    keep: Keeper = forget, sweep: Callable[..., Tally] | None = None,
) -> LearningState:  # fmt: skip
    """Alternate coding and dictionary steps until the objective settles; end with codes at the final dictionary.

    ``state`` may be fresh or a former run's: it continues where it stands. Every recorded objective follows
    a coding step, and none exceeds the one before. ``keep`` is called wherever a later run could take over;
    ``sweep`` codes all chunks, in turn without it.
    """
    store = MemoryStore() if store is None else store
    began = time.perf_counter()
    final_solver = code_solver if final_solver is None else final_solver
    while not state.finished:
        solver = final_solver if state.finishing else code_solver
        tally = (sweep or coding_pass)(model, state, collection, weights, solver, store, keep)
        if state.finishing:
            state.finished = True
            keep(state, store)
            break
        state.n_iter += 1
        state.objective.append(tally.objective)
        state.density.append(tally.nonzero / max(tally.n_codes, 1))
        stopped = _told_to_stop(state, max_iter, callbacks, began, store)
        # Codes that have hardly left zero settle nothing: the first steps under strong sparsity are slow.
        state.converged = _settled(state.objective, tol) and state.density[-1] > 1e-4
        state.finishing = stopped or state.converged or state.n_iter >= max_iter
        state.beginning = tally.objective
        if not state.finishing:
            gained = dictionary_pass(model, state, collection, tally.statistics, dictionary_solver, store)
            state.beginning -= gained
            state.n_reseeded += reseed(model, state, collection, tally)
        keep(state, store)
    return state


def _settled(objective: Sequence[float], tol: float) -> bool:
    return len(objective) > 1 and objective[-2] - objective[-1] <= tol * abs(objective[-2])


def _told_to_stop(
    state: LearningState, max_iter: int, callbacks: Sequence[Callable[[Progress], Any]], began: float, store: Any
) -> bool:
    progress = Progress(
        state.n_iter, max_iter, state.objective[-1], state.density[-1], state.n_reseeded,
        time.perf_counter() - began, state, store,
    )  # fmt: skip
    answers = [callback(progress) is True for callback in callbacks]  # every one is told
    return any(answers)


def initial_state(dictionary: Any, model: ImageModel) -> LearningState:
    """Return the state before the first coding step."""
    return LearningState(dictionary, [None] * model.n_dictionary_steps)
