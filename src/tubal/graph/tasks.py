"""The deformable search as tasks, which the workers of a cluster run.

Every task is a pure function of its arguments, so a task whose worker is lost can be run again anywhere, and all use
the functions of :mod:`tubal.graph.deformable`. Images of one block are neighbours in the order of the cells, so they
have most of their candidates in common. The task of a block reads these and computes their warps itself: that takes
less time than to receive them from the workers of other blocks.

This module does not depend on a scheduler: it needs only :class:`Tasks`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
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
    widened,
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
# Bytes for the images of a block and of its candidates; a block is assumed to need three times its own images. If it
# needs more, fewer are compared at a time.
_BLOCK_BYTES, _NEEDED = 3 * 2**28, 3
# Images that a task reads and describes at a time.
_IMAGES_IN_PART = 1024
# If all pairs are compared, up to so many images keep the given order; more are compared along the cells.
_MOST_UNORDERED = 1000


class Images(Protocol):
    """Some images of a collection, which are read a part at a time."""

    def __len__(self) -> int:
        """Return the number of images."""

    def __getitem__(self, part: slice | IndexArray | Int32) -> NDArray[Any]:
        """Return consecutive images, or those of some numbers."""


class Tasks(Protocol):
    """Runs functions somewhere else."""

    @property
    def n_parallel(self) -> int:
        """Number of tasks that can run at the same time."""

    def submit(self, work: Callable[..., object], *arguments: object) -> Any:
        """Start ``work(*arguments)`` and return its future; futures among the arguments stand for their results."""

    def share(self, value: object) -> Any:
        """Return the future of a value that tasks everywhere need."""

    def fetch(self, futures: Any) -> Any:
        """Wait for the result of a future, or for those of a list."""


@dataclass(frozen=True)
class Sent:
    """What tasks of a search have: futures of the tools, of the descriptors of each part, and of all of them together.

    ``prepared`` is what the client derives from the images, without descriptors.
    """

    prepared: PreparedImages
    tools: Any
    parts: list[Any]
    known: Any


@dataclass(frozen=True)
class TaskSearch(DeformableSearch):
    """:class:`DeformableSearch` whose training images are compared by tasks.

    ``tasks`` runs them. ``load`` returns what a task reads some training images from, a slice at a time, given their
    indices: an array, the future of one, or any other :class:`Images`.
    """

    tasks: Tasks = field(kw_only=True)
    load: Callable[[IndexArray], Any] = field(kw_only=True)

    @classmethod
    def of(cls, search: DeformableSearch, tasks: Tasks, load: Callable[[IndexArray], Any]) -> TaskSearch:
        """Return ``search`` with its work done by tasks."""
        return cls(**{part.name: getattr(search, part.name) for part in fields(search)}, tasks=tasks, load=load)

    @cached_property
    def prepared(self) -> PreparedImages:
        """What the stages derive from the images; coefficients of single images are left to the tasks."""
        return replace(self.sent.prepared, descriptors=np.concatenate(self.tasks.fetch(self.sent.parts)))

    @cached_property
    def sent(self) -> Sent:
        """What tasks need, and the descriptors that they compute."""
        with own_threads() as threads:
            images, group = working_images(self)
            chosen = np.arange(len(images))[:: -(-len(images) // MOST_FITTED)]
            use_pixels = self.bank.use_pixels
            coarse, _ = CoarseMap.fit(images.take(chosen), self.size.shape, threads, use_pixels=use_pixels)
            coefficients = fit_coefficients(self, images)
        nothing = np.empty((0, len(self.bank.warps), coefficients.rank), np.float32)
        found = PreparedImages(images, group, coarse, nothing[:, 0], coefficients, nothing, nothing[:, 0, 0])
        tools = self.tasks.share(self._toolbox(found))
        rows = self._task_rows(found)
        parts = [
            self.tasks.submit(describe_part, tools, self.load(images.numbers[start : start + rows]))
            for start in range(0, len(images), rows)
        ]
        # The workers put the descriptors together, too, so that they are not sent from here.
        return Sent(found, tools, parts, self.tasks.submit(joined, parts))

    def release_memory(self) -> None:
        """Free the arrays derived from the images, also those that the workers hold."""
        super().release_memory()
        vars(self).pop("sent", None)

    def _assign(self) -> Assign:
        """Return what assigns the descriptors of every part to cells by a task."""
        parts = self.sent.parts

        def assign(centers: Float32) -> tuple[IndexArray, NDArray[np.uint8]]:
            sent = self.tasks.share(centers)
            found = self.tasks.fetch([self.tasks.submit(assign_part, part, sent) for part in parts])
            return np.concatenate([cell for cell, _ in found]), np.minimum.reduce([rank for _, rank in found])

        return assign

    def _toolbox(self, prepared: PreparedImages) -> Toolbox:
        large = len(prepared.images) > self.effort.exact_limit
        comparison = self._comparison(prepared.coefficients)
        return Toolbox(self.size, prepared.images.largest, prepared.coarse, comparison, large)

    def _task_rows(self, prepared: PreparedImages) -> int:
        """Return how many images a task works on: in equal blocks, at least two for each thread, and eight in all.

        There are no more blocks than memory requires: the larger they are, the fewer images are candidates in several.
        """
        n_images, n_channels, n_pixels = prepared.images.shape
        numbers = n_channels * n_pixels + len(self.bank.warps) * prepared.coefficients.rank
        numbers += prod(self.images.shape[1:])  # the originals
        together = max(1, self.tasks.n_parallel)
        rounds = -(-n_images * _NEEDED * 4 * numbers // (together * _BLOCK_BYTES))
        n_blocks = together * max(_BLOCKS_AHEAD, rounds, -(-_LEAST_BLOCKS // together))
        return -(-n_images // (n_blocks * _ROUND)) * _ROUND

    def _training_order(self, effort: Effort) -> IndexArray | None:
        """Return the order in which images are compared: along the cells, also where all pairs are compared.

        In any other order a block would need nearly all images of a small collection.
        """
        n_images = len(self.prepared.images)
        if n_images <= min(_MOST_UNORDERED, effort.exact_limit):
            return None
        return self._plan(min(effort.n_candidates, n_images - 1)).order

    def _blocks(
        self, queries: Float32 | WorkingImages, effort: Effort, found: GrowingRanking, stage: Stage | None, threads: int
    ) -> Iterator[Ranking]:
        """Yield the blocks that tasks have compared; new images are compared here."""
        if stage is None or len(found.order) == 1:
            yield from super()._blocks(queries, effort, found, stage, threads)
        else:
            yield from BlockTasks(self, effort, found).results()


class BlockTasks:
    """The tasks that compare the training images of a search which are not in ``found``, divided into blocks."""

    def __init__(self, search: TaskSearch, effort: Effort, found: GrowingRanking) -> None:
        self.search, self.n_kept, tasks, order = search, effort.n_kept, search.tasks, found.order
        self.blocks = found.blocks_left(search._task_rows(search.prepared))
        images, rank = search.prepared.images, search.prepared.coefficients.rank
        self.n_compared = search._most_rows(len(images), images.shape[1], effort, rank)
        reach = min(effort.n_candidates, len(order) - 1)
        # In a small collection all pairs are compared.
        plan = search._plan(reach) if len(order) > effort.exact_limit else None
        known, cells = search.sent.known, tasks.share(order if plan is None else plan)
        self.candidates, self.numbers = [], []
        for start, stop in self.blocks:
            self.candidates.append(tasks.submit(block_candidates, known, cells, start, stop, reach))
            # Submitted before the first comparison, because a worker that compares could not answer.
            self.numbers.append(tasks.submit(numbers_of, self.candidates[-1]))

    def results(self) -> Iterator[Ranking]:
        """Yield the best candidates of the images of every block, in order; a few blocks are under way at a time."""
        tasks, waiting = self.search.tasks, deque[tuple[Int32, Any]]()
        ahead = _BLOCKS_AHEAD * max(1, tasks.n_parallel)
        for number in range(len(self.blocks) + ahead):
            if number < len(self.blocks):
                waiting.append(self._start(number))
            if waiting and (len(waiting) > ahead or number >= len(self.blocks)):
                numbers, future = waiting.popleft()
                found = tasks.fetch(future)
                yield replace(found, indices=numbers[found.indices])

    def _start(self, number: int) -> tuple[Int32, Any]:
        """Return the numbers of all images that one block needs, increasing, and the future of its ranking."""
        search, submit = self.search, self.search.tasks.submit
        numbers, tools = search.tasks.fetch(self.numbers[number]), search.sent.tools
        originals = search.load(search.prepared.images.numbers[numbers])
        return numbers, submit(rank_block, tools, originals, self.candidates[number], self.n_kept, self.n_compared)


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
    large: bool

    @property
    def coefficients(self) -> MotionCoefficients:
        """The maps to the coefficients of all motions."""
        return self.comparison.coefficients

    def planes(self, originals: Images) -> tuple[int, int]:
        """Return the number of channels of some images, and of pixels at the working size."""
        shape = self.coefficients.bank.shape
        return channel_planes(originals[:1]).shape[1], shape[0] * shape[1]

    def most_prepared(self, originals: Images) -> int:
        """Return how many of some images may be prepared for comparisons at a time."""
        numbers = prod(self.planes(originals)) + len(self.coefficients.bank.warps) * self.coefficients.rank
        return _BLOCK_BYTES // (4 * numbers)

    def parts(self, originals: Images) -> Iterator[tuple[slice, Float32]]:
        """Yield slices of some images, and these images at the working size, so that few are in memory twice."""
        for first in range(0, len(originals), _IMAGES_IN_PART):
            part = slice(first, min(first + _IMAGES_IN_PART, len(originals)))
            yield part, self.size.apply(originals[part], self.largest)

    def as_kept(self, values: Float32) -> NDArray[Any]:
        """Return values in the precision in which one process keeps them."""
        return narrowed(values) if self.large else values


@dataclass(frozen=True)
class BlockCandidates:
    """The images of a block with their candidates.

    ``numbers`` are those of all these images, increasing, and ``places`` (m, 1 + reach) the places among them of every
    image of the block and of its candidates.
    """

    numbers: Int32
    places: Int32


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


def rank_block(tools: Toolbox, originals: Images, candidates: BlockCandidates, n_kept: int, n_compared: int) -> Ranking:
    """Return the best candidates of the images of one block, as places among all images that it needs.

    Distances of the best ``n_kept`` are measured, of at most ``n_compared`` images of the block at a time.
    """
    found = GrowingRanking(len(candidates.places))
    with own_threads() as threads:
        for needed, places, known in compared_parts(tools, originals, candidates.places, n_compared, threads):
            queries, others = known.images[places[:, 0]], np.ascontiguousarray(places[:, 1:])
            part = tools.comparison.rank(queries, others, known, n_kept, threads, lambda share: None)
            found.append(part if needed is None else replace(part, indices=needed[part.indices]))
    return found.ranking


def compared_parts(
    tools: Toolbox, originals: Images, places: Int32, n_compared: int, threads: int
) -> Iterator[tuple[Int32 | None, Int32, KnownImages]]:
    """Yield the parts of a block that are compared at a time.

    First come the numbers of the images that a part needs, or None if all images of the block are prepared at once. In
    a collection without structure a block needs most images, and they are prepared for a few of its images at a time.
    """
    most = tools.most_prepared(originals)
    if len(originals) <= most:
        known = known_images(tools, originals, threads)
        for first in range(0, len(places), n_compared):
            yield None, places[first : first + n_compared], known
        return
    rows = max(1, min(n_compared, most // places.shape[1]))
    for first in range(0, len(places), rows):
        needed, near = distinct_numbers(places[first : first + rows], len(originals))
        yield needed, near, known_images(tools, Selected(originals, needed), threads)


@dataclass(frozen=True)
class Selected:
    """Some of other images, which are read a part at a time."""

    images: Images
    numbers: Int32

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice | IndexArray | Int32) -> NDArray[Any]:
        """Return consecutive images, or those of some numbers."""
        return self.images[self.numbers[part]]


def known_images(tools: Toolbox, originals: Images, threads: int) -> KnownImages:
    """Return some images as others are compared with them."""
    bank, n_images = tools.coefficients.bank, len(originals)
    workspace = tools.comparison.workspace
    images = workspace.array("images", (n_images, *tools.planes(originals)))
    warped = workspace.array("warped", (n_images, len(bank.warps), tools.coefficients.rank))
    energies = np.empty(n_images, np.float32)
    for part, found in tools.parts(originals):
        moved, energies[part] = tools.coefficients.of_warps(found, threads)
        images[part] = found
        if tools.large:
            # Rounded as in one process, which keeps them in half precision.
            widened(narrowed(moved), np.arange(len(moved)), warped[part])
        else:
            warped[part] = moved
    return KnownImages(images, warped, energies)
