"""The deformable search as tasks, which the workers of a cluster run.

Every task is a pure function of its arguments, so a task whose worker is lost can be run again anywhere, and all use
the functions of :mod:`tubal.graph.deformable`. Images are put on the workers in the order of their cells. The block of
one task is then compared with few images of other blocks, and only these are sent.

This module knows nothing of a scheduler: :class:`Tasks` is all that it asks for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import own_threads
from tubal.graph.affine import Float32, Int32, MotionCoefficients, WorkingImages, WorkingSize
from tubal.graph.cells import (
    MOST_FITTED,
    Assign,
    CellPlan,
    CoarseMap,
    assign_cells,
    distinct_numbers,
    most_similar,
    narrowed,
    single_rows,
)
from tubal.graph.deformable import (
    Comparison,
    DeformableSearch,
    Effort,
    GrowingRanking,
    KnownImages,
    PreparedImages,
    Ranking,
    fit_coefficients,
    working_images,
)
from tubal.graph.structure import IndexArray, Stage

# Blocks that are compared at the same time, per task that can run; more would only fill the memory of the workers.
_BLOCKS_AHEAD = 2
# Blocks are multiples of this many images.
_ROUND = 64


class Tasks(Protocol):
    """Runs functions somewhere else."""

    @property
    def n_parallel(self) -> int:
        """Number of tasks that can run at the same time."""

    def submit(self, work: Callable[..., object], *arguments: object, home: int | None = None) -> Any:
        """Start ``work(*arguments)`` and return its future; futures among the arguments stand for their results.

        Tasks with the same number ``home`` should run in the same place, those with other numbers in others.
        """

    def fetch(self, futures: Any) -> Any:
        """Wait for the result of a future, or for those of a list."""


@dataclass(frozen=True)
class TaskSearch(DeformableSearch):
    """:class:`DeformableSearch` whose training images are compared by tasks.

    ``tasks`` runs them, and ``load`` returns the future of some training images, given their indices and their place.
    """

    tasks: Tasks = None  # type: ignore[assignment]  # fields after those with a default need one
    load: Callable[[IndexArray, int], Any] = None  # type: ignore[assignment]

    @classmethod
    def of(cls, search: DeformableSearch, tasks: Tasks, load: Callable[[IndexArray, int], Any]) -> TaskSearch:
        """Return ``search`` with its work done by tasks."""
        return cls(**{part.name: getattr(search, part.name) for part in fields(search)}, tasks=tasks, load=load)

    @cached_property
    def prepared(self) -> PreparedImages:
        """What the stages derive from the images; coefficients of single images are left to the tasks."""
        with own_threads() as threads:
            images, group = working_images(self)
            chosen = np.arange(len(images))[:: -(-len(images) // MOST_FITTED)]
            use_pixels = self.bank.use_pixels
            coarse, _ = CoarseMap.fit(images.take(chosen), self.size.shape, threads, use_pixels=use_pixels)
            coefficients = fit_coefficients(self, images)
        nothing = np.empty((0, len(self.bank.warps), coefficients.rank), np.float32)
        found = PreparedImages(images, group, coarse, nothing[:, 0], coefficients, nothing, nothing[:, 0, 0])
        tools = self.tasks.submit(constant, self._tools(found, self.effort))
        parts = [
            self.tasks.submit(describe_part, tools, self._load(images, np.arange(start, stop), number), home=number)
            for number, (start, stop) in enumerate(self._task_blocks(len(images), self.effort.n_kept, found))
        ]
        vars(self)["_described"] = parts
        return replace(found, descriptors=np.concatenate(self.tasks.fetch(parts)))

    def _assign(self) -> Assign:
        """Return what assigns the descriptors of every part to cells by a task."""
        parts = vars(self)["_described"]

        def assign(centers: Float32) -> tuple[IndexArray, NDArray[np.uint8]]:
            sent = self.tasks.submit(constant, centers)
            found = self.tasks.fetch([self.tasks.submit(assign_part, part, sent) for part in parts])
            return np.concatenate([cell for cell, _ in found]), np.minimum.reduce([rank for _, rank in found])

        return assign

    def _load(self, images: WorkingImages, chosen: IndexArray, home: int) -> Any:
        """Return the future of some distinct training images, in the place ``home``."""
        return self.load(images.numbers[chosen], home)

    def _tools(self, prepared: PreparedImages, effort: Effort) -> Toolbox:
        large = len(prepared.images) > effort.exact_limit
        comparison = self._comparison(prepared.coefficients)
        return Toolbox(self.size, prepared.images.largest, prepared.coarse, comparison, effort.n_kept, large)

    def _task_blocks(self, n_images: int, n_kept: int, prepared: PreparedImages) -> list[tuple[int, int]]:
        """Return the ranges of images of all tasks, equally many for each that can run, and at least two.

        They are larger than in one process, where they also show the progress: the larger a block, the fewer of its
        candidates belong to other blocks and must be sent.
        """
        effort, n_channels = replace(self.effort, n_kept=n_kept), prepared.images.shape[1]
        together = max(1, self.tasks.n_parallel)
        rounds = -(-n_images // (together * self._most_rows(n_channels, effort, prepared.coefficients.rank)))
        share = -(-n_images // (together * max(_BLOCKS_AHEAD, rounds)))
        rows = -(-share // _ROUND) * _ROUND
        return [(start, min(start + rows, n_images)) for start in range(0, n_images, rows)]

    def _rank(self, queries: Float32 | WorkingImages, effort: Effort, stage: Stage | None = None) -> Ranking:
        n_images = len(self.prepared.images)
        if stage is None or n_images == 1:
            return super()._rank(queries, effort, stage)
        blocks = self._task_blocks(n_images, effort.n_kept, self.prepared)
        order = self._training_order(effort)
        found = GrowingRanking(n_images, order)
        for part in self._kept_blocks(stage, blocks):
            found.append(part)
        work = BlockTasks(self, effort, np.arange(n_images) if order is None else order, blocks)
        for (start, stop), part in work.results(sum(start < found.n_done for start, _ in blocks)):
            found.append(part)
            self._teller(stage, start, stop, n_images)(1.0)
            stage.keep(found.arrays)
        return found.ranking


class BlockTasks:
    """The tasks of one search: ``order`` (n,) are the images as they lie on the workers, in ``blocks``."""

    def __init__(
        self, search: TaskSearch, effort: Effort, order: IndexArray, blocks: Sequence[tuple[int, int]]
    ) -> None:
        self.tasks, self.order, self.blocks = search.tasks, order, blocks
        prepared, submit = search.prepared, search.tasks.submit
        self.tools = submit(constant, search._tools(prepared, effort))
        reach = min(effort.n_candidates, len(order) - 1)
        # In a small collection all pairs are compared, and there is no plan.
        plan = search._plan(reach) if len(order) > effort.exact_limit else None
        # The workers put the descriptors together again, so that they are not sent from here.
        known, cells = submit(joined, vars(search)["_described"]), submit(constant, plan)
        self.lists = [submit(block_candidates, known, cells, start, stop, reach) for start, stop in blocks]
        self.shelves = [
            submit(prepare_part, self.tools, search._load(prepared.images, order[start:stop], number), home=number)
            for number, (start, stop) in enumerate(blocks)
        ]
        self.place = np.empty(len(order), np.intp)
        self.place[order] = np.arange(len(order))

    def results(self, n_skipped: int = 0) -> Iterator[tuple[tuple[int, int], Ranking]]:
        """Yield all blocks in order, except for the first ones, each with the best candidates of its images.

        A few blocks are under way at the same time.
        """
        waiting: deque[tuple[tuple[int, int], Int32, Any]] = deque()
        ahead = _BLOCKS_AHEAD * max(1, self.tasks.n_parallel)
        for number in range(n_skipped, len(self.blocks) + ahead):
            if number < len(self.blocks):
                waiting.append((self.blocks[number], *self._start(number)))
            if waiting and (len(waiting) > ahead or number >= len(self.blocks)):
                block, numbers, future = waiting.popleft()
                found = self.tasks.fetch(future)
                yield block, replace(found, indices=numbers[found.indices])

    def _start(self, number: int) -> tuple[Int32, Any]:
        """Return the numbers of all candidates of one block, increasing, and the future of its ranking."""
        numbers, _ = distinct_numbers(self.tasks.fetch(self.lists[number]), len(self.order))
        places = self.place[numbers]
        homes = np.searchsorted([stop for _, stop in self.blocks], places, side="right")
        pieces, at = [], []
        for home in np.unique(homes):
            own = np.flatnonzero(homes == home)
            wanted = (places[own] - self.blocks[home][0]).astype(np.int32)
            pieces.append(self.tasks.submit(take_known, self.shelves[home], wanted, home=int(home)))
            at.append(own.astype(np.int32))
        # Where its images are, about half of its candidates need not be sent.
        arguments = (self.tools, self.shelves[number], self.lists[number], pieces, at)
        return numbers, self.tasks.submit(rank_block, *arguments, home=number)


# --- the tasks --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Toolbox:
    """What all tasks of a search need besides images.

    ``largest`` is the largest absolute value of all images; with ``large``, results are kept in half precision.
    """

    size: WorkingSize
    largest: float
    coarse: CoarseMap
    comparison: Comparison
    n_kept: int
    large: bool

    @property
    def coefficients(self) -> MotionCoefficients:
        """The maps to the coefficients of all motions."""
        return self.comparison.coefficients

    def compact(self, values: Float32) -> NDArray[Any]:
        """Return values in the precision in which they are kept."""
        return narrowed(values) if self.large else values


@dataclass(frozen=True)
class Shelf(KnownImages):
    """Images of one block; a scheduler asks for their size when it decides where they are compared."""

    def __sizeof__(self) -> int:
        """Return the number of bytes."""
        return int(self.images.nbytes + self.warped.nbytes + self.energies.nbytes)


def constant(value: Any) -> Any:
    """Return the value; as a task, it keeps the value on the cluster."""
    return value


def joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the rows of several arrays as one."""
    return np.concatenate(parts)


def describe_part(tools: Toolbox, originals: NDArray[Any]) -> NDArray[Any]:
    """Return the descriptors of some images."""
    with own_threads() as threads:
        images = tools.size.apply(originals, tools.largest)
        return tools.compact(tools.coarse.descriptors(images, threads))


def assign_part(descriptors: NDArray[Any], centers: Float32) -> tuple[IndexArray, NDArray[np.uint8]]:
    """Return the cells of some descriptors, see :func:`assign_cells`."""
    with own_threads() as threads:
        return assign_cells(descriptors, centers, threads)


def prepare_part(tools: Toolbox, originals: NDArray[Any]) -> Shelf:
    """Return some images as others are compared with them."""
    with own_threads() as threads:
        images = tools.size.apply(originals, tools.largest)
        warped, energies = tools.coefficients.of_warps(images, threads)
    return Shelf(images, tools.compact(warped), energies)


def block_candidates(known: NDArray[Any], plan: CellPlan | None, start: int, stop: int, reach: int) -> Int32:
    """Return the candidates (stop - start, reach) of one block of images by all descriptors."""
    with own_threads() as threads:
        if plan is not None:
            return np.asarray(plan.lists(known, start, stop, reach, threads))
        return np.asarray(most_similar(known[start:stop], known, reach, threads, first=start))


def take_known(known: Shelf, chosen: Int32) -> Shelf:
    """Return some of the images of one part."""
    return Shelf(known.images[chosen], known.warped[chosen], known.energies[chosen])


def rank_block(tools: Toolbox, own: Shelf, lists: Int32, pieces: list[Shelf], at: list[Int32]) -> Ranking:
    """Return the best candidates of the images of one part, as places among all distinct candidates in ``lists``.

    Piece i holds the candidates at the places ``at[i]``.
    """
    one, n_known = pieces[0], sum(map(len, at))
    images = np.empty((n_known, *one.images.shape[1:]), np.float32)
    warped = np.empty((n_known, *one.warped.shape[1:]), one.warped.dtype)
    energies = np.empty(n_known, np.float32)
    for piece, places in zip(pieces, at, strict=True):
        images[places], warped[places], energies[places] = piece.images, piece.warped, piece.energies
    _, candidates = distinct_numbers(lists, int(lists.max()) + 1)
    known = KnownImages(images, single_rows(warped, np.arange(n_known)), energies)
    with own_threads() as threads:
        return tools.comparison.rank(own.images, candidates, known, tools.n_kept, threads, lambda share: None)
