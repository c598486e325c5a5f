"""Algorithm 2: alternate coding steps and dictionary steps, for any model, any solvers and any chunks of images.

Images come in chunks. Coding a chunk adds its statistics and its share of the objective to totals whose size does
not depend on the number of images. With a graph, coding a chunk also reads the weighted sum of its neighbours' codes
in other chunks. So one chunk in memory, many chunks on disk and many on other machines run through the same loop.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, SparseMatrix, count_nonzero, namespace, own_threads, to_numpy
from tubal.problems.base import CodingProblem, Dictionary, DualityGap, ImageModel, Laplacian, Statistics, Summary
from tubal.problems.linear_map import SharedLaplacian
from tubal.solvers.base import CodeSolver, DictionarySolver, DictionaryState, SolverState

if TYPE_CHECKING:
    from scipy import sparse

Indices: TypeAlias = NDArray[np.intp]

# Codes whose objective lies below that of their start by this share are better for certain, not only by rounding.
CLEAR_GAIN = 1e-4
# Neighbours' codes are fetched this many images at a time: far fewer than a chunk holds, so they add little memory.
_FETCH = 256


# --- what the alternation works with -------------------------------------------------------------------------
class CodeStore(Protocol):
    """Keeps the codes of every chunk."""

    def codes_of(self, index: int) -> Array | None:
        """Return a chunk's codes, or None before its first coding step."""


class ChunkStore(CodeStore, Protocol):
    """Keeps the codes and the solver state of every chunk where this process can read and write them."""

    def get(self, index: int) -> ChunkCodes | None:
        """Return a chunk's codes and solver state, or None before its first coding step."""

    def put(self, index: int, coded: ChunkCodes) -> None:
        """Keep a chunk's codes and solver state; its summary is not kept."""

    def gather(self, index: int, columns: Indices) -> Array | None:
        """Return the codes of some of a chunk's images, or None before its first coding step."""


@dataclass(frozen=True)
class Weights:
    """The two weights of the objective (eq. 8)."""

    sparsity: float
    graph_weight: float = 0.0


@dataclass
class ChunkCodes:
    """A chunk's codes, the solver state they came from (the next warm start), and their summary if just computed.

    Final codes also have their duality gap.
    """

    codes: Array
    state: SolverState
    summary: Summary | None = None
    gap: DualityGap | None = None


class Collection(ABC):
    """Images in chunks of consecutive samples, joined by one Laplacian (n, n) or by none."""

    def __init__(self, sizes: Sequence[int], matrix: SparseMatrix | None) -> None:
        self.bounds = np.cumsum([0, *sizes])
        self.matrix = matrix
        self.n_chunks = len(sizes)

    @abstractmethod
    def data(self, index: int) -> Array:
        """Return chunk ``index`` as a tensor, samples last."""

    @abstractmethod
    def digest(self) -> str:
        """Return a digest of the images, by which a checkpoint recognises them."""

    @cached_property
    def _shared(self) -> SharedLaplacian:
        return SharedLaplacian(self.matrix)

    def laplacian(self, index: int) -> Laplacian | SharedLaplacian | None:
        """Return the Laplacian within a chunk, with all degrees.

        A single chunk always gets the same object, so that coding steps share what they derive from it.
        """
        if self.matrix is None or self.n_chunks == 1:
            return None if self.matrix is None else self._shared
        start, stop = self.bounds[index], self.bounds[index + 1]
        return self.matrix[start:stop, start:stop]

    def neighbor_sum(self, index: int, store: ChunkStore, others: range) -> Array | None:
        """Return the weighted sum of the codes of neighbours in the chunks ``others``."""
        if self.matrix is None or len(others) == 0:
            return None
        rows = self.matrix[self.bounds[index] : self.bounds[index + 1]].tocsc()
        return neighbor_sum(rows, self.bounds, others, store.gather)


class InMemory(Collection):
    """Images in memory as one tensor, samples last: in one chunk, or in chunks of ``chunk_size``."""

    def __init__(
        self, images: Array, graph_laplacian: SparseMatrix | None = None, chunk_size: int | None = None
    ) -> None:
        n_images = int(images.shape[-1])
        step = n_images if chunk_size is None else chunk_size
        super().__init__([min(step, n_images - start) for start in range(0, n_images, step)], graph_laplacian)
        self.images = images

    def data(self, index: int) -> Array:
        """Return a chunk of the images."""
        if self.n_chunks == 1:
            return self.images
        return self.images[..., self.bounds[index] : self.bounds[index + 1]] + 0.0

    def digest(self) -> str:
        """Return a digest of all images and of the chunks they are in."""
        sizes = np.diff(self.bounds).tolist() if self.n_chunks > 1 else []
        return digest_arrays([*sizes, *self.images.shape], [to_numpy(self.images)])


def digest_arrays(shape: Sequence[int], arrays: Iterable[NDArray[Any]]) -> str:
    """Return the SHA-256 of a shape and of the contents of arrays, as hexadecimal digits."""
    digest = hashlib.sha256(repr(list(shape)).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def neighbor_sum(
    rows: sparse.csc_matrix, bounds: Indices, others: Iterable[int], gather: Callable[[int, Indices], Array | None]
) -> Array | None:
    """Return ``sum_j weight_ij codes_j`` over images j in the chunks ``others``, or None if no edge leads there.

    ``rows`` (n_rows, n) holds the rows i of the Laplacian as CSC; weights are minus its entries.
    """
    total: Any = None
    for other in others:
        start, stop = int(bounds[other]), int(bounds[other + 1])
        columns = start + np.flatnonzero(np.diff(rows.indptr[start : stop + 1]))
        for first in range(0, len(columns), _FETCH):
            piece = columns[first : first + _FETCH]
            codes = gather(other, piece - start)
            if codes is None:
                break
            if total is None:
                total = np.zeros((*codes.shape[:-1], rows.shape[0]), codes.dtype)
            edges = rows[:, piece].tocsr()
            touched = np.flatnonzero(np.diff(edges.indptr))
            flat = codes.reshape(-1, len(piece))
            product = (edges[touched] @ flat.T).T.astype(codes.dtype, copy=False)
            total.reshape(-1, rows.shape[0])[:, touched] -= product
    return total


class MemoryStore:
    """Keeps every chunk's codes and solver state in memory."""

    def __init__(self) -> None:
        self._chunks: dict[int, ChunkCodes] = {}

    def get(self, index: int) -> ChunkCodes | None:
        """Return a chunk's codes and solver state, or None before its first coding step."""
        return self._chunks.get(index)

    def put(self, index: int, coded: ChunkCodes) -> None:
        """Keep a chunk's codes and solver state; its summary is not kept."""
        # Sums depend on the order of an array in memory. A checkpoint restores row order, so row order is kept.
        self._chunks[index] = ChunkCodes(_in_row_order(coded.codes), _in_row_order(coded.state))

    def codes_of(self, index: int) -> Array | None:
        """Return a chunk's codes, or None before its first coding step."""
        coded = self.get(index)
        return None if coded is None else coded.codes

    def gather(self, index: int, columns: Indices) -> Array | None:
        """Return the codes of some of a chunk's images, or None before its first coding step."""
        codes = self.codes_of(index)
        return None if codes is None else codes[..., columns]

    def indices(self) -> list[int]:
        """Return the indices of the chunks that have codes, in increasing order."""
        return sorted(self._chunks)

    def collect(self, order: Indices | None = None) -> Array:
        """Return the codes of all chunks together; ``order`` says which image of the result each of them is."""
        parts = [self._chunks[index].codes for index in self.indices()]
        codes = parts[0] if len(parts) == 1 else namespace(parts[0]).concatenate(parts, -1)
        return codes if order is None else codes[..., np.argsort(order)]


def _in_row_order(value: Any) -> Any:
    """Return an array, or every array of a dataclass, in row order."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{part.name: _in_row_order(getattr(value, part.name)) for part in fields(value)})
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class PassTotals:
    """Sums over the chunks that a coding pass has processed so far; totals of disjoint sets of chunks can be added.

    Parameters
    ----------
    n_chunks : int
        Number of chunks coded.
    objective : float
        Their share of the objective. An edge between two chunks is counted by the later one.
    nonzero : int
        Number of codes that are not zero.
    n_codes : int
        Number of codes.
    statistics : Statistics
        Sufficient statistics of the first dictionary step.
    worst : ndarray of shape (n_worst,)
        Squared errors of the worst reconstructed images, at most one per atom, largest first.
    places : ndarray of shape (n_worst, 2)
        Chunk and column of each of these images.
    gap : float
        Sum of the duality gaps of final codes.
    gap_values : float
        Sum of the objectives that these gaps are relative to.
    """

    n_chunks: int
    objective: float
    nonzero: int
    n_codes: int
    statistics: Statistics
    worst: NDArray[np.float64]
    places: Indices
    gap: float = 0.0
    gap_values: float = 0.0

    @classmethod
    def of_chunk(cls, index: int, coded: ChunkCodes, later_edges: float = 0.0) -> PassTotals:
        """Return the totals of one chunk.

        ``later_edges`` is the term of the edges to later chunks. It is added here, because the totals of those chunks
        subtract it.
        """
        summary = coded.summary
        assert summary is not None
        worst = _largest(summary.residuals, to_numpy(summary.statistics.usage).size)
        places = np.stack([np.full_like(worst, index), worst], 1)
        nonzero, n_codes = count_nonzero(coded.codes), int(np.prod(coded.codes.shape))
        objective = float(summary.values.sum()) + later_edges
        gap, gap_values = (0.0, 0.0) if coded.gap is None else (coded.gap.gaps.sum(), coded.gap.values.sum())
        return cls(
            1, objective, nonzero, n_codes, summary.statistics, summary.residuals[worst], places, float(gap),
            float(gap_values),
        )  # fmt: skip

    def __add__(self, other: PassTotals) -> PassTotals:
        """Return the totals of both sets of chunks; equal errors stay in the order of the images."""
        worst, places = np.concatenate([self.worst, other.worst]), np.concatenate([self.places, other.places])
        n_worst = max(len(self.worst), len(other.worst), to_numpy(self.statistics.usage).size)
        order = np.lexsort((places[:, 1], places[:, 0], -worst))[:n_worst]
        return PassTotals(
            self.n_chunks + other.n_chunks, self.objective + other.objective, self.nonzero + other.nonzero,
            self.n_codes + other.n_codes, self.statistics + other.statistics, worst[order], places[order],
            self.gap + other.gap, self.gap_values + other.gap_values,
        )  # fmt: skip


def _largest(values: NDArray[np.float64], number: int) -> Indices:
    """Return the places of the ``number`` largest values, largest first, equal ones in order of their place."""
    places = np.arange(len(values))
    if number < len(values):  # sort only those that can be among them
        places = np.flatnonzero(values >= np.partition(values, -number)[-number])
    return places[np.argsort(-values[places], kind="stable")][:number]


@dataclass
class LearningState:
    """The current state of the alternation. A checkpoint consists of it and the code store."""

    dictionary: Dictionary
    multipliers: list[Array | None]  # per part of the dictionary: the next warm start of its solver
    objective: list[float] = field(default_factory=list)  # after each iteration
    density: list[float] = field(default_factory=list)  # share of codes that are not zero, after each iteration
    n_reseeded: int = 0  # unused atoms replaced so far
    n_iter: int = 0
    converged: bool = False
    finishing: bool = False  # only the last coding pass, at the final dictionary, is still to come
    finished: bool = False
    totals: PassTotals | None = None  # of the coding pass in progress; None between passes
    start_objective: float | None = None  # at the start of the next coding pass, as the dictionary step computed it
    duality_gap: float = float("nan")  # of the final codes, relative to the objective


def initial_state(dictionary: Dictionary, model: ImageModel) -> LearningState:
    """Return the state before the first coding step."""
    return LearningState(dictionary, [None] * model.n_dictionary_steps)


SaveProgress: TypeAlias = Callable[[LearningState, Any], None]


@dataclass(frozen=True)
class Progress:
    """What a callback receives after each iteration; a callback that returns True stops the fit.

    Parameters
    ----------
    n_iter : int
        Iterations made so far, the present one included.
    max_iter : int
        Largest number of iterations.
    objective : float
        Value of the objective after this iteration's coding pass.
    density : float
        Share of codes that are not zero.
    n_reseeded : int
        Number of unused atoms replaced so far.
    seconds : float
        Time since the fit began.
    state : LearningState
        The state of the fit; do not change it.
    store : CodeStore
        The codes of every chunk.
    """

    n_iter: int
    max_iter: int
    objective: float
    density: float
    n_reseeded: int
    seconds: float
    state: LearningState
    store: CodeStore


Callback: TypeAlias = Callable[[Progress], object]


# --- coding --------------------------------------------------------------------------------------------------
def code_chunk(
    model: ImageModel, dictionary: Dictionary, data: Array, weights: Weights, code_solver: CodeSolver,
    *, laplacian: Laplacian | SharedLaplacian | None = None, neighbor_sum: Array | None = None,
    start: ChunkCodes | None = None, start_objective: float | None = None, final: bool = False,
) -> ChunkCodes:  # fmt: skip
    """Make one coding step on one chunk; codes that are not better than those of ``start`` are rejected.

    ``start_objective`` is the objective at ``start`` up to rounding. Where the new codes lie clearly below it, the
    start need not be evaluated. A ``final`` step computes the duality gap. Its solver may be another one than that of
    ``start``, so one that certifies codes starts from the codes and not from the state.
    """
    problem = model.coding(
        dictionary, data, sparsity=weights.sparsity, graph_weight=weights.graph_weight,
        laplacian=laplacian, neighbor_sum=neighbor_sum,
    )  # fmt: skip
    certifies = final and _certifies(code_solver)
    first = None if start is None else start.codes if certifies else start.state
    solution = code_solver.minimise(problem, first)
    codes = code_solver.codes(problem, solution.state)
    summary = problem.summary(codes, statistics=True)
    value = float(summary.values.sum())
    clearly_better = start_objective is not None and value <= start_objective - CLEAR_GAIN * abs(start_objective)
    if not clearly_better and not certifies and _value_before(problem, start) < value:
        codes = problem.zeros() if start is None else start.codes
        summary = problem.summary(codes, statistics=True)
    wanted = getattr(code_solver, "gap", None)
    gap = problem.duality_gap(codes, wanted=wanted, summary=summary) if final else None
    return ChunkCodes(codes, solution.state, summary, gap)


def _value_before(problem: CodingProblem, start: ChunkCodes | None) -> float:
    return problem.value_of_zeros if start is None else problem.value(start.codes)


def coding_pass(
    model: ImageModel, state: LearningState, collection: Collection, weights: Weights, code_solver: CodeSolver,
    store: ChunkStore, save: SaveProgress | None = None,
) -> PassTotals:  # fmt: skip
    """Code every chunk in turn, each against the newest codes of the others, so the objective cannot rise.

    An interrupted pass continues after the last chunk in ``state.totals``. The last pass of a fit without a graph
    starts from zero, as ``encode`` does later. So both find the same codes even where the minimiser is not unique.
    """
    from_zero = state.finishing and weights.graph_weight == 0.0
    for index in range(0 if state.totals is None else state.totals.n_chunks, collection.n_chunks):
        if index > 0 and save is not None:
            save(state, store)
        earlier = collection.neighbor_sum(index, store, range(index))
        later = collection.neighbor_sum(index, store, range(index + 1, collection.n_chunks))
        start = None if from_zero else store.get(index)
        coded = code_chunk(
            model, state.dictionary, collection.data(index), weights, code_solver,
            laplacian=collection.laplacian(index), neighbor_sum=_added(earlier, later), start=start,
            start_objective=state.start_objective if start is not None and collection.n_chunks == 1 else None,
            final=state.finishing,
        )  # fmt: skip
        store.put(index, coded)
        totals = PassTotals.of_chunk(index, coded, edge_term(weights, coded.codes, later))
        state.totals = totals if state.totals is None else state.totals + totals
    assert state.totals is not None
    done, state.totals = state.totals, None
    return done


def edge_term(weights: Weights, codes: Array, neighbor_sum: Array | None) -> float:
    """Return ``2 α <codes, neighbor_sum>``, which the edges to those neighbours subtract from a chunk's objective."""
    return 0.0 if neighbor_sum is None else 2.0 * weights.graph_weight * float((codes * neighbor_sum).sum())


def _added(total: Array | None, more: Array | None) -> Array | None:
    """Return the sum of two arrays, either of which may be None, in the memory of the first."""
    if total is None or more is None:
        return more if total is None else total
    total += more
    return total


# --- the dictionary ------------------------------------------------------------------------------------------
def dictionary_pass(
    model: ImageModel, state: LearningState, collection: Collection, statistics: Statistics,
    dictionary_solver: DictionarySolver, store: CodeStore,
) -> float:  # fmt: skip
    """Update every part of the dictionary in turn and return by how much the objective fell.

    A part whose new value is not better is kept. Parts after the first need statistics at the updated dictionary,
    which take another pass over the chunks.
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
            dictionary, multipliers[step] = model.with_part(dictionary, step, found.dictionary), found.multipliers
    state.dictionary, state.multipliers = dictionary, multipliers
    return gained


def reseed(model: ImageModel, state: LearningState, collection: Collection, totals: PassTotals) -> int:
    """Replace atoms that no image uses by the worst reconstructed images; return how many were replaced."""
    unused = np.flatnonzero(to_numpy(totals.statistics.usage) <= 0.0)
    worst = totals.places[totals.worst > 0.0][: len(unused)]
    if len(worst) == 0:
        return 0
    # In the order of the chunks, so that each is read once.
    images = [
        collection.data(int(index))[..., np.sort(worst[worst[:, 0] == index, 1])] for index in np.unique(worst[:, 0])
    ]
    mask = np.zeros(to_numpy(totals.statistics.usage).shape, bool)
    mask[unused[: len(worst)]] = True
    state.dictionary = model.replace_atoms(state.dictionary, mask, namespace(images[0]).concatenate(images, -1))
    return len(worst)


# --- the loop ------------------------------------------------------------------------------------------------
@own_threads()  # small factorisations between the kernels must not wake a second thread pool
def learn(
    model: ImageModel, collection: Collection, state: LearningState, weights: Weights, *,
    code_solver: CodeSolver, dictionary_solver: DictionarySolver, max_iter: int, tol: float,
    final_solver: CodeSolver | None = None, store: CodeStore | None = None, callbacks: Sequence[Callback] = (),
    save: SaveProgress | None = None, code_all: Callable[..., PassTotals] = coding_pass,
) -> LearningState:  # fmt: skip
    """Alternate coding and dictionary steps until the objective stops falling, then code at the final dictionary.

    Every recorded objective follows a coding pass, and none exceeds the one before. The last value is then replaced by
    that of the final codes. Certified codes may lie above it by less than the certified gap.

    Parameters
    ----------
    model : ImageModel
        The linear map from codes to images, and its dictionary problem.
    collection : Collection
        The images in chunks, and the graph that joins them.
    state : LearningState
        Where to start: fresh from :func:`initial_state`, or that of an interrupted run. It is updated in place.
    weights : Weights
        Weights of the l1 norm and of the graph term.
    code_solver : CodeSolver
        Solver of the coding steps, for example ``Admm(max_iter=5)``.
    dictionary_solver : DictionarySolver
        Solver of the dictionary steps, for example ``LagrangeDual()``.
    max_iter : int
        Largest number of iterations.
    tol : float
        Stop when the objective falls by no more than this share in one iteration.
    final_solver : CodeSolver, optional
        Solver of the last coding pass; ``code_solver`` by default.
    store : CodeStore, optional
        Keeps the codes of every chunk; in memory by default.
    callbacks : sequence of callable
        Each is called with a :class:`Progress` after every iteration; the fit stops if one returns True.
    save : callable, optional
        Called with the state and the store wherever a later run could continue.
    code_all : callable
        Makes one coding pass over all chunks; by default :func:`coding_pass`, one chunk after the other.

    Returns
    -------
    LearningState
        The final state; the codes are in ``store``.
    """
    store = MemoryStore() if store is None else store
    began = time.perf_counter()
    final_solver = code_solver if final_solver is None else final_solver
    while not state.finished:
        solver = final_solver if state.finishing else code_solver
        totals = code_all(model, state, collection, weights, solver, store, save)
        density = totals.nonzero / max(totals.n_codes, 1)
        if state.finishing:
            state.finished = True
            # Of the final codes; codes at a given dictionary have no earlier value.
            state.objective[-1:], state.density[-1:] = [totals.objective], [density]
            state.duality_gap = _relative_gap(totals, weights)
        else:
            state.n_iter += 1
            state.objective.append(totals.objective)
            state.density.append(density)
            stopped = _call_back(callbacks, state, max_iter, began, store)
            # Codes that are nearly all zero are no sign of convergence: under strong sparsity the first steps are slow.
            some_codes = state.density[-1] > 1e-4 or state.objective[-1] == 0.0  # blank images need none
            state.converged = _has_converged(state.objective, tol) and some_codes
            state.finishing = stopped or state.converged or state.n_iter >= max_iter
            state.start_objective = totals.objective
            if not state.finishing:
                gained = dictionary_pass(model, state, collection, totals.statistics, dictionary_solver, store)
                state.start_objective -= gained
                state.n_reseeded += reseed(model, state, collection, totals)
        if save is not None:
            save(state, store)
    return state


def _certifies(solver: CodeSolver) -> bool:
    """Tell whether a solver stops by the duality gap."""
    return getattr(solver, "gap", None) is not None


def _relative_gap(totals: PassTotals, weights: Weights) -> float:
    """Return the certified bound of the final codes relative to their objective, or NaN where none is known.

    Chunks that a graph joins were coded with the codes of the others fixed, which proves nothing for all of them. At
    sparsity 0 only the minimiser itself has a dual certificate.
    """
    joined = totals.n_chunks > 1 and weights.graph_weight > 0.0
    if joined or weights.sparsity == 0.0:
        return float("nan")
    return totals.gap / totals.gap_values if totals.gap_values > 0.0 else 0.0


def _has_converged(objective: Sequence[float], tol: float) -> bool:
    return len(objective) > 1 and objective[-2] - objective[-1] <= tol * abs(objective[-2])


def _call_back(
    callbacks: Sequence[Callback], state: LearningState, max_iter: int, began: float, store: CodeStore
) -> bool:
    """Call every callback and return whether one of them returned True, which stops the fit."""
    progress = Progress(
        state.n_iter, max_iter, state.objective[-1], state.density[-1], state.n_reseeded,
        time.perf_counter() - began, state, store,
    )  # fmt: skip
    stop_requests = [callback(progress) is True for callback in callbacks]
    return any(stop_requests)


# --- a progress bar -----------------------------------------------------------------------------------------
def progress_bar(title: str) -> Callback:
    """Return a callback that draws a progress bar with the objective and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("objective {task.fields[objective]:.6g}"), TimeRemainingColumn(), console=Console(stderr=True),
        transient=True,
    )  # fmt: skip
    task: TaskID | None = None

    def update(progress: Progress) -> None:
        nonlocal task
        if task is None:
            bar.start()
            task = bar.add_task(title, total=progress.max_iter, objective=progress.objective)
        bar.update(task, completed=progress.n_iter, objective=progress.objective)
        objective = progress.state.objective
        if progress.n_iter == progress.max_iter or (len(objective) > 1 and objective[-1] == objective[-2]):
            bar.stop()

    return update
