"""The deformable search as tasks, which the workers of a cluster run.

Every task is a pure function of its arguments, so a task whose worker is lost can be run again anywhere, and all use
the functions of :mod:`tubal.graph.deformable`. Images of one block are neighbours in the order of the cells, so they
have most of their candidates in common. The task of a block reads these and computes their warps itself: that takes
less time than to receive them from the workers of other blocks.

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
from tubal.graph.affine import Float32, Int32, MotionCoefficients, WorkingImages, WorkingSize, channel_planes
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
# Blocks are multiples of this many images, and there are at least so many: each is a step of progress that is kept.
_ROUND, _LEAST_BLOCKS = 64, 8
# Bytes for the images of a block and of its candidates; a block is assumed to need three times its own images.
_BLOCK_BYTES, _NEEDED = 3 * 2**28, 3
# Images that a task reads and describes at a time.
_IMAGES_IN_PART = 1024
# Up to so many images are compared in the given order, if all pairs are compared.
_ORDERED_FROM = 1000


class Images(Protocol):
    """Some images of a collection, which are read in slices."""

    def __len__(self) -> int:
        """Return the number of images."""

    def __getitem__(self, part: slice) -> NDArray[Any]:
        """Return consecutive images."""


class Tasks(Protocol):
    """Runs functions somewhere else."""

    @property
    def n_parallel(self) -> int:
        """Number of tasks that can run at the same time."""

    def submit(self, work: Callable[..., object], *arguments: object) -> Any:
        """Start ``work(*arguments)`` and return its future; futures among the arguments stand for their results."""

    def fetch(self, futures: Any) -> Any:
        """Wait for the result of a future, or for those of a list."""


@dataclass(frozen=True)
class TaskSearch(DeformableSearch):
    """:class:`DeformableSearch` whose training images are compared by tasks.

    ``tasks`` runs them. ``load`` returns what a task reads some training images from, a slice at a time, given their
    indices: an array, the future of one, or anything else with a length that returns images for slices.
    """

    tasks: Tasks = None  # type: ignore[assignment]  # fields after those with a default need one
    load: Callable[[IndexArray], Any] = None  # type: ignore[assignment]

    @classmethod
    def of(cls, search: DeformableSearch, tasks: Tasks, load: Callable[[IndexArray], Any]) -> TaskSearch:
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
            self.tasks.submit(describe_part, tools, self.load(images.numbers[start:stop]))
            for start, stop in self._task_blocks(found)
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

    def _tools(self, prepared: PreparedImages, effort: Effort) -> Toolbox:
        large = len(prepared.images) > effort.exact_limit
        comparison = self._comparison(prepared.coefficients)
        n_compared = self._most_rows(prepared.images.shape[1], effort, prepared.coefficients.rank)
        return Toolbox(
            self.size, prepared.images.largest, prepared.coarse, comparison, effort.n_kept, n_compared, large
        )

    def _task_blocks(self, prepared: PreparedImages) -> list[tuple[int, int]]:
        """Return the ranges of images of all tasks, equally many for each that can run, and at least eight in all.

        They are as large as memory allows: the larger a block, the fewer images are candidates in several blocks.
        """
        n_images, n_channels, n_pixels = prepared.images.shape
        numbers = n_channels * n_pixels + len(self.bank.warps) * prepared.coefficients.rank
        numbers += int(np.prod(self.images.shape[1:]))  # the originals
        together = max(1, self.tasks.n_parallel)
        rounds = -(-n_images * _NEEDED * 4 * numbers // (together * _BLOCK_BYTES))
        n_blocks = together * max(_BLOCKS_AHEAD, rounds, -(-_LEAST_BLOCKS // together))
        rows = -(-n_images // (n_blocks * _ROUND)) * _ROUND
        return [(start, min(start + rows, n_images)) for start in range(0, n_images, rows)]

    def _training_order(self, effort: Effort) -> IndexArray | None:
        """Return the order in which images are compared: along the cells, also where all pairs are compared.

        In any other order a block would need nearly all images of a small collection, and they would be sent to it.
        """
        n_images = len(self.prepared.images)
        if n_images <= min(_ORDERED_FROM, effort.exact_limit):
            return None
        return self._plan(min(effort.n_candidates, n_images - 1)).order

    def _rank(self, queries: Float32 | WorkingImages, effort: Effort, stage: Stage | None = None) -> Ranking:
        n_images = len(self.prepared.images)
        if stage is None or n_images == 1:
            return super()._rank(queries, effort, stage)
        blocks = self._task_blocks(self.prepared)
        order = self._training_order(effort)
        found = GrowingRanking(n_images, order)
        for part in self._kept_blocks(stage, blocks, found.order):
            found.append(part)
        work = BlockTasks(self, effort, found.order, blocks)
        for (start, stop), part in work.results(sum(start < found.n_done for start, _ in blocks)):
            found.append(part)
            self._teller(stage, start, stop, n_images)(1.0)
            stage.keep(found.arrays)
        return found.ranking


class BlockTasks:
    """The tasks of one search, whose training images are compared in ``order`` (n,), divided into ``blocks``."""

    def __init__(
        self, search: TaskSearch, effort: Effort, order: IndexArray, blocks: Sequence[tuple[int, int]]
    ) -> None:
        self.search, self.blocks, submit = search, blocks, search.tasks.submit
        self.tools = submit(constant, search._tools(search.prepared, effort))
        reach = min(effort.n_candidates, len(order) - 1)
        # In a small collection all pairs are compared.
        plan = search._plan(reach) if len(order) > effort.exact_limit else None
        # The workers put the descriptors together again, so that they are not sent from here.
        known, cells = submit(joined, vars(search)["_described"]), submit(constant, order if plan is None else plan)
        self.candidates = [submit(block_candidates, known, cells, start, stop, reach) for start, stop in blocks]

    def results(self, n_skipped: int = 0) -> Iterator[tuple[tuple[int, int], Ranking]]:
        """Yield all blocks in order, except for the first ones, each with the best candidates of its images.

        A few blocks are under way at the same time.
        """
        tasks, waiting = self.search.tasks, deque[tuple[tuple[int, int], Int32, Any]]()
        ahead = _BLOCKS_AHEAD * max(1, tasks.n_parallel)
        for number in range(n_skipped, len(self.blocks) + ahead):
            if number < len(self.blocks):
                waiting.append((self.blocks[number], *self._start(number)))
            if waiting and (len(waiting) > ahead or number >= len(self.blocks)):
                block, numbers, future = waiting.popleft()
                found = tasks.fetch(future)
                yield block, replace(found, indices=numbers[found.indices])

    def _start(self, number: int) -> tuple[Int32, Any]:
        """Return the numbers of all images that one block needs, increasing, and the future of its ranking."""
        tasks, candidates = self.search.tasks, self.candidates[number]
        numbers = tasks.fetch(tasks.submit(numbers_of, candidates))
        originals = self.search.load(self.search.prepared.images.numbers[numbers])
        return numbers, tasks.submit(rank_block, self.tools, originals, candidates)


# --- the tasks --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Toolbox:
    """What all tasks of a search need besides images.

    ``largest`` is the largest absolute value of all images, and ``n_compared`` how many are compared at a time; with
    ``large``, results are kept in half precision.
    """

    size: WorkingSize
    largest: float
    coarse: CoarseMap
    comparison: Comparison
    n_kept: int
    n_compared: int
    large: bool

    @property
    def coefficients(self) -> MotionCoefficients:
        """The maps to the coefficients of all motions."""
        return self.comparison.coefficients

    def parts(self, originals: Images) -> Iterator[tuple[slice, Float32]]:
        """Yield slices of some images, and these images at the working size, so that few are in memory twice."""
        for first in range(0, len(originals), _IMAGES_IN_PART):
            part = slice(first, min(first + _IMAGES_IN_PART, len(originals)))
            yield part, self.size.apply(originals[part], self.largest)

    def as_kept(self, values: Float32) -> NDArray[Any]:
        """Return values in the precision in which one process keeps them."""
        return narrowed(values) if self.large else values

    def as_compared(self, values: Float32) -> Float32:
        """Return values in single precision, as one process has them after it has kept them."""
        return single_rows(narrowed(values), np.arange(len(values))) if self.large else values


@dataclass(frozen=True)
class BlockCandidates:
    """The images of a block with their candidates.

    ``numbers`` are those of all these images, increasing, and ``places`` (m, 1 + reach) the places among them of every
    image of the block and of its candidates.
    """

    numbers: Int32
    places: Int32


def constant(value: Any) -> Any:
    """Return the value; as a task, it keeps the value on the cluster."""
    return value


def joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the rows of several arrays as one."""
    return np.concatenate(parts)


def describe_part(tools: Toolbox, originals: Images) -> NDArray[Any]:
    """Return the descriptors of some images."""
    with own_threads() as threads:
        found = [tools.as_kept(tools.coarse.descriptors(images, threads)) for _, images in tools.parts(originals)]
    return np.concatenate(found)


def assign_part(descriptors: NDArray[Any], centers: Float32) -> tuple[IndexArray, NDArray[np.uint8]]:
    """Return the cells of some descriptors, see :func:`assign_cells`."""
    with own_threads() as threads:
        return assign_cells(descriptors, centers, threads)


def block_candidates(
    known: NDArray[Any], plan: CellPlan | IndexArray, start: int, stop: int, reach: int
) -> BlockCandidates:
    """Return the candidates of one block of images by all descriptors.

    ``plan`` says which are compared. If it is only the order of the images, all pairs are.
    """
    with own_threads() as threads:
        if isinstance(plan, CellPlan):
            own, lists = plan.order[start:stop], plan.lists(known, start, stop, reach, threads)
        else:
            own, ordered = plan[start:stop], known[plan]
            lists = plan[most_similar(ordered[start:stop], ordered, reach, threads, first=start)]
    together = np.concatenate([own[:, None], lists], axis=1, dtype=np.int32)
    return BlockCandidates(*distinct_numbers(together, len(known)))


def numbers_of(candidates: BlockCandidates) -> Int32:
    """Return the numbers of all images that a block needs."""
    return candidates.numbers


def rank_block(tools: Toolbox, originals: Images, candidates: BlockCandidates) -> Ranking:
    """Return the best candidates of the images of one block, as places among all images that it needs."""
    found = GrowingRanking(len(candidates.places))
    with own_threads() as threads:
        known = known_images(tools, originals, threads)
        for first in range(0, len(candidates.places), tools.n_compared):
            places = candidates.places[first : first + tools.n_compared]
            queries, others = known.images[places[:, 0]], np.ascontiguousarray(places[:, 1:])
            found.append(tools.comparison.rank(queries, others, known, tools.n_kept, threads, lambda share: None))
    return found.ranking


def known_images(tools: Toolbox, originals: Images, threads: int) -> KnownImages:
    """Return some images as others are compared with them."""
    bank, n_images = tools.coefficients.bank, len(originals)
    n_channels = channel_planes(originals[:1]).shape[1]
    images = np.empty((n_images, n_channels, bank.shape[0] * bank.shape[1]), np.float32)
    warped = np.empty((n_images, len(bank.warps), tools.coefficients.rank), np.float32)
    energies = np.empty(n_images, np.float32)
    for part, found in tools.parts(originals):
        moved, energies[part] = tools.coefficients.of_warps(found, threads)
        images[part], warped[part] = found, tools.as_compared(moved)
    return KnownImages(images, warped, energies)
