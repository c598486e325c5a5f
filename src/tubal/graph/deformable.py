"""Neighbours under small deformations: images that agree after a rotation, scaling, shift and local warp.

The search has three stages. Short descriptors propose candidates for every image (:class:`CoarseMap`). Scores in a
small basis find the best rotation, scale and shift of each candidate (``affine``). The distance of the best candidates
is then measured exactly: every pixel may move a little further to where its surroundings fit best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, Workspace, in_order, own_threads, parallel_ranges
from tubal.graph.affine import (
    Float32,
    Int32,
    MotionBank,
    MotionCoefficients,
    WorkingImages,
    WorkingRows,
    WorkingSize,
    best_motions,
    empty_fields,
    field_layout,
    field_stack,
    largest_value,
    measure_pairs,
    write_fields,
)
from tubal.graph.cells import (
    MOST_FITTED,
    Assign,
    CellPlan,
    CoarseMap,
    candidates_among,
    cell_candidates,
    distinct_numbers,
    most_similar,
    narrowed,
    single_rows,
)
from tubal.graph.neighbors import (
    ImageSearch,
    as_float_stack,
    as_rows,
    exact_copies,
    spread_over_copies,
)
from tubal.graph.structure import (
    HUB_FACTOR,
    Alignments,
    IndexArray,
    Neighbors,
    SearchState,
    Stage,
    check_count,
    check_interval,
    limit_in_degree,
)

# Twice the length of a unit field: no two images can be farther apart.
FARTHEST = 2.0
# Pixels of pairs compared in one block of queries, in a block of a large collection, and between two reports of the
# progress. Arrays of the small blocks are small enough to take the memory of earlier ones.
_BLOCK_PIXELS, _SMALL_BLOCK_PIXELS, _TELL_PIXELS = 2**28, 2**26, 2**27
# Images of a large collection that one thread describes, or whose neighbours it chooses, at a time.
_IMAGES_IN_PART = 256
# Pairs whose warped images are in memory at a time, per thread.
_PAIRS_AT_A_TIME = 256
# Blocks are multiples of this many queries, so that matrix products run in the same pieces as in one large block.
_ROUND = 256


# Limits of the work on one image or pair: its warps, the values of all its warps, and the moves of all its pixels.
MOST_WARPS, MOST_WARPED_VALUES, MOST_PIXEL_MOVES = 1000, 2**22, 2**22
# Bytes of the linear map from pixels to the coefficients of all warps.
_MOST_MAP_BYTES = 2**28


@dataclass(frozen=True)
class Deformation:
    """What counts as a small deformation of an image.

    Two images are close when one of them, rotated, scaled and shifted a little, agrees with the other up to a local
    warp: every pixel may move a little further, to where the gradients of its surroundings fit best. Images are
    compared at a working size; larger images are averaged down for the graph only, smaller ones with two dimensions
    are interpolated up.

    Parameters
    ----------
    rotation : float, default=10.0
        Largest rotation in degrees, from 0 to 180.
    n_rotations : int, default=5
        Number of rotations tried, at most 100. Rotations times scales are at most 1000.
    scale : float, default=1.08
        Largest scale factor, from 1 to 10; its inverse is the smallest.
    n_scales : int, default=3
        Number of scales tried, at most 100.
    shift : float, default=1/32
        Largest shift as a share of the image side, below 1.
    window : float, default=1/32
        Largest further move of a single pixel as a share of the image side, below 1.
    least_pixels : int, default=2
        Shift and window are at least this many working pixels, unless they are 0.
    least_size : int, default=256
        Smallest working size, in pixels per image.
    most_size : int, default=4096
        Largest working size, in pixels per image.
    field : {"gradient", "pixels"}, default="gradient"
        What is compared. Pixel values depend more on light and shade.

    Examples
    --------
    >>> Deformation(rotation=15.0).warps()[0]
    (-15.0, 0.9259259259259258)
    """

    rotation: float = 10.0
    n_rotations: int = 5
    scale: float = 1.08
    n_scales: int = 3
    shift: float = 1 / 32
    window: float = 1 / 32
    least_pixels: int = 2
    least_size: int = 256
    most_size: int = 4096
    field: str = "gradient"

    def __post_init__(self) -> None:
        # Compiled code computes with these values unchecked.
        check_interval("rotation", self.rotation, 0, 180)
        check_interval("scale", self.scale, 1, 10)
        for name in ("shift", "window"):
            check_interval(name, getattr(self, name), 0, 1)
            if getattr(self, name) == 1:
                raise ValueError(f"{name}=1; it is a share of the image side and must be below 1")
        for name in ("n_rotations", "n_scales"):
            check_count(name, getattr(self, name), 1, 100)
        if self.n_rotations * self.n_scales > MOST_WARPS:
            raise ValueError(
                f"n_rotations={self.n_rotations} and n_scales={self.n_scales} make {self.n_rotations * self.n_scales} "
                f"warps of every image; at most {MOST_WARPS} are tried, lower one of them"
            )
        check_count("least_pixels", self.least_pixels, 0, 2**24)
        check_count("least_size", self.least_size, 1, 2**24)
        check_count("most_size", self.most_size, self.least_size, 2**24)
        if self.field not in ("gradient", "pixels"):
            raise ValueError(f"field={self.field!r}; compare images by their 'gradient' or by their 'pixels'")

    def warps(self) -> tuple[tuple[float, float], ...]:
        """Return all rotations and scales that are tried.

        Returns
        -------
        tuple of (float, float)
            Pairs (rotation in degrees, scale).
        """
        rotations = np.linspace(-self.rotation, self.rotation, self.n_rotations) if self.n_rotations > 1 else [0.0]
        scales = np.geomspace(1 / self.scale, self.scale, self.n_scales) if self.n_scales > 1 else [1.0]
        return tuple((float(rotation), float(scale)) for rotation in rotations for scale in scales)

    def pixels(self, share: float, side: int) -> int:
        """Return a share of an image side in whole working pixels.

        Parameters
        ----------
        share : float
            Share of the side, ``shift`` or ``window``.
        side : int
            Length of the side in working pixels.

        Returns
        -------
        int
            At least ``least_pixels`` unless ``share`` is 0, and less than ``side``.
        """
        return min(side - 1, max(self.least_pixels if share > 0 else 0, round(share * side)))

    def bank(self, shape: tuple[int, int]) -> MotionBank:
        """Return all warps and shifts that are tried on images of one working size.

        Parameters
        ----------
        shape : tuple of (int, int)
            Working height and width.

        Returns
        -------
        MotionBank
            The motions.
        """
        down, across = (self.pixels(self.shift, side) for side in shape)
        # At most five steps per direction: the window bridges what lies between them.
        rows, columns = ({round(step) for step in np.linspace(-most, most, 5)} for most in (down, across))
        shifts = tuple((dy, dx) for dy in sorted(rows) for dx in sorted(columns))
        return MotionBank(shape, self.warps(), shifts, use_pixels=self.field == "pixels")


@dataclass(frozen=True)
class Effort:
    """How much work each stage of the deformable search does.

    Parameters
    ----------
    n_candidates : int
        Candidates per image that the descriptors propose.
    n_kept : int
        Candidates per image whose distance is measured.
    rank : int
        Size of the basis in which rotations, scales and shifts are scored.
    context : {0, 1, 2}
        Radius of the surroundings compared at every pixel: 0 for the pixel alone, 2 for 5 x 5 pixels.
    exact_limit : int, default=20_000
        In larger collections only images in nearby cells are compared, see :mod:`tubal.graph.cells`.
    """

    n_candidates: int
    n_kept: int
    rank: int
    context: int
    exact_limit: int = 20_000

    def __post_init__(self) -> None:
        # Compiled code computes with these values unchecked, and its loops support a context of at most 2.
        for name in ("n_candidates", "n_kept", "rank"):
            check_count(name, getattr(self, name), 1, 2**31 - 1)
        check_count("context", self.context, 0, 2)
        check_count("exact_limit", self.exact_limit, 0, 2**31 - 1)

    @classmethod
    def for_collection(cls, n_images: int, n_neighbors: int) -> Effort:
        """Return the effort for a collection; small ones get longer lists and larger contexts.

        Parameters
        ----------
        n_images : int
            Number of images.
        n_neighbors : int
            Neighbours wanted per image.

        Returns
        -------
        Effort
            The effort.
        """
        if n_images <= 2000:
            return cls(max(200, 4 * n_neighbors), max(100, 2 * n_neighbors), 256, 2)
        return cls(max(50, 4 * n_neighbors), max(30, 2 * n_neighbors), 64, 1)


@dataclass(frozen=True)
class Ranking:
    """Candidates of each query by increasing distance: images, distances, warps and shifts, each ``(m, k)``."""

    indices: Int32
    distances: Float32
    warps: Int32
    shifts: Int32

    @classmethod
    def empty(cls, n_rows: int) -> Ranking:
        """Return empty lists, for a collection that consists of copies of one image."""
        nothing = np.zeros((n_rows, 0), dtype=np.int32)
        return cls(nothing, nothing.astype(np.float32), nothing, nothing)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the four arrays by name."""
        return {name.name: getattr(self, name.name) for name in fields(self)}

    def take(self, rows: IndexArray, slots: IndexArray) -> Ranking:
        """Return some slots of some lists; empty lists give zeros."""
        if self.indices.shape[1] == 0:
            zeros = np.zeros(slots.shape, dtype=np.int32)
            return Ranking(zeros, zeros.astype(np.float32), zeros, zeros)
        return Ranking(*(values[rows, slots] for values in self.arrays().values()))


class GrowingRanking:
    """The lists of all queries, filled block by block in an ``order``, or as the queries come if that is None."""

    def __init__(self, n_queries: int, order: IndexArray | None = None) -> None:
        self.order, self.n_done = np.arange(n_queries) if order is None else order, 0
        self.ranking = Ranking.empty(n_queries)

    def append(self, block: Ranking) -> None:
        """Add the lists of the next queries."""
        if self.n_done == 0:
            shape = (len(self.order), block.indices.shape[1])
            self.ranking = Ranking(*(np.empty(shape, part.dtype) for part in block.arrays().values()))
        places = self.order[self.n_done : self.n_done + len(block.indices)]
        for name, values in block.arrays().items():
            getattr(self.ranking, name)[places] = values
        self.n_done += len(block.indices)

    def blocks_left(self, rows: int) -> list[tuple[int, int]]:
        """Return ranges of the queries that are not done, of ``rows`` queries each from the first of all on."""
        starts = [self.n_done, *range(rows * (self.n_done // rows + 1), len(self.order), rows)]
        return [(start, stop) for start, stop in pairwise([*starts, len(self.order)]) if start < stop]

    def added(self, first: int) -> dict[str, NDArray[Any]]:
        """Return the lists that were added after the first ones, in their order, and whose they are."""
        done = self.order[first : self.n_done]
        return {name: values[done] for name, values in self.ranking.arrays().items()} | {"queries": done}


@dataclass(frozen=True)
class DeformableSearch(ImageSearch):
    """Nearest training images under small deformations.

    What the stages derive from the training images is computed on first use and not stored.
    """

    deformation: Deformation
    effort: Effort
    memory_budget: float = 1e9
    random_state: int = 0
    kind: ClassVar[str] = "deformable"

    def __post_init__(self) -> None:
        check_interval("memory_budget", self.memory_budget, 1, 1e18)
        check_count("random_state", self.random_state, 0, 2**63 - 1)
        self._check_work()

    def _check_work(self) -> None:
        """Raise an error for settings that would take hours or fill the memory on images of this size."""
        height, width = self.size.shape
        n_channels = self.images.shape[3] if self.images.ndim == 4 else 1
        warped = height * width * n_channels * len(self.deformation.warps())
        if warped > MOST_WARPED_VALUES:
            raise ValueError(
                f"the warps of one image of {height} x {width} pixels have {warped} values, more than "
                f"{MOST_WARPED_VALUES}; lower n_rotations, n_scales, least_size or most_size of the deformation"
            )
        down, across = (2 * self.deformation.pixels(self.deformation.window, side) + 1 for side in (height, width))
        if height * width * down * across > MOST_PIXEL_MOVES:
            raise ValueError(
                f"each of {height} x {width} pixels may move to {down * across} places, "
                f"{height * width * down * across} comparisons for every pair of images, more than "
                f"{MOST_PIXEL_MOVES}; lower window, least_pixels, least_size or most_size of the deformation"
            )

    @cached_property
    def size(self) -> WorkingSize:
        """The working size of the images."""
        source = self.images.shape[1:3] if self.images.ndim > 2 else (1, self.images.shape[1])
        return WorkingSize.of(source, self.deformation.least_size, self.deformation.most_size)

    @cached_property
    def bank(self) -> MotionBank:
        """The motions tried."""
        return self.deformation.bank(self.size.shape)

    @cached_property
    def prepared(self) -> PreparedImages:
        """Distinct training images, and data that the stages derive from them."""
        with own_threads() as threads:
            return PreparedImages.of(self, threads)

    def release_memory(self) -> None:
        """Free the arrays derived from the images (up to half the memory budget); a later query computes them again."""
        for name in ("prepared", "_cell_plan", "_training_candidates"):
            self.__dict__.pop(name, None)

    def grown(self, new_images: Array) -> DeformableSearch:
        """Return the same search over more training images, the new ones last; only these are prepared."""
        search = super().grown(new_images)
        if isinstance(vars(self).get("prepared"), PreparedImages):  # tensors are prepared again by the next query
            with own_threads() as threads:
                vars(search)["prepared"] = self.prepared.grown(search, threads)
        return search

    def training_neighbors(self, n_neighbors: int, stage: Stage | None = None) -> Neighbors:
        """Return the nearest other training images of every training image; none is listed too often."""
        stage = stage or Stage()
        stage.show(0, len(self.images))
        group = self.prepared.group
        ranking = self._rank(self.prepared.images, self._effort_for(n_neighbors), stage)
        stage.show(len(self.images), len(self.images))
        length = min(len(self.images) - 1, max(3 * n_neighbors, 20))
        if len(ranking.indices) == len(group) and ranking.indices.shape[1] <= length:
            # Without copies the lists are complete.
            lists: NDArray[Any] = ranking.indices
            distances = ranking.distances
            slots = np.broadcast_to(np.arange(lists.shape[1]), lists.shape)
        else:
            lists, slots = spread_over_copies(ranking.indices, group, length, training=True)
            distances = np.zeros(slots.shape, np.float32)
            if ranking.indices.shape[1]:
                distances = np.take_along_axis(ranking.distances[group], np.maximum(slots, 0), axis=1)
            distances[slots < 0] = 0
            distances[lists < 0] = np.inf
        chosen = limit_in_degree(lists, distances, n_neighbors, HUB_FACTOR * n_neighbors)
        nearest, apart = np.empty(chosen.shape, np.intp), np.empty(chosen.shape, np.float32)
        motions = np.empty((4, *chosen.shape))

        def keep(start: int, stop: int) -> None:
            own, places = slice(start, stop), np.maximum(chosen[start:stop], 0)
            rows, present = np.arange(start, stop)[:, None], chosen[start:stop] >= 0
            found = slots[rows, places]
            motions[:, own] = self._alignments(ranking.take(group[own, None], np.maximum(found, 0)), found).stack()
            nearest[own] = np.where(present, lists[rows, places], -1)
            apart[own] = np.where(present, distances[rows, places], np.inf)

        with own_threads() as threads:
            parallel_ranges(keep, len(lists), grain=_IMAGES_IN_PART, threads=threads)
        return Neighbors(nearest, apart, Alignments(*motions))

    def nearest(self, new_images: Array, n_neighbors: int) -> Neighbors:
        """Return the nearest training images of each new image, nearest first."""
        stack = as_float_stack(new_images)
        if stack.shape[1:] != self.images.shape[1:]:
            raise ValueError(
                f"new images have shape {stack.shape[1:]}, the graph's images {self.images.shape[1:]}; "
                "pass images of the training shape"
            )
        ranking = self._rank(self.size.apply(stack), self._effort_for(n_neighbors))
        lists, slots = spread_over_copies(ranking.indices, self.prepared.group, n_neighbors, training=False)
        spread = ranking.take(np.arange(len(stack))[:, None], np.maximum(slots, 0))
        return Neighbors(lists, spread.distances, self._alignments(spread, slots))

    def nearest_among(self, queries: IndexArray, known: IndexArray, n_neighbors: int) -> Neighbors:
        """Return the nearest ``known`` training images of some training images, which are not their own neighbours.

        ``queries`` and ``known`` are indices. Only those known images are prepared for distances that are candidates.
        """
        prepared = self.prepared
        own, other = prepared.group[queries], prepared.group[known]
        with own_threads() as threads:
            # One more than needed, because an image may be the nearest to itself.
            near = candidates_among(prepared.descriptors, own, other, self.effort.n_candidates + 1, threads)
        candidates = known[np.isin(other, near)]
        found = self.reduced(candidates).nearest(self.images[queries], min(n_neighbors + 1, len(candidates)))
        indices = candidates[found.indices]
        others_first = np.argsort(indices == queries[:, None], axis=1, kind="stable")[:, :n_neighbors]
        rows = np.arange(len(queries))[:, None]
        return Neighbors(indices[rows, others_first], found.distances[rows, others_first])

    def _alignments(self, spread: Ranking, slots: IndexArray) -> Alignments:
        """Return motions in pixels of the original images; copies (slot -1) are not moved."""
        warps, shifts = np.asarray(self.bank.warps), np.asarray(self.bank.shifts, dtype=np.float64)
        moved = (slots >= 0).astype(np.float64)
        rotation, scale = (warps[spread.warps, part] for part in (0, 1))
        units = [given / working for given, working in zip(self.size.source, self.size.shape, strict=True)]
        # The image at p meets the warped neighbour at p + shift, so the neighbour moves by minus that.
        dy, dx = (-shifts[spread.shifts, part] * units[part] * moved for part in (0, 1))
        return Alignments(rotation * moved, np.where(slots >= 0, scale, 1.0), dy + 0.0, dx + 0.0)

    # --- the three stages --------------------------------------------------------------------------------
    def _effort_for(self, n_neighbors: int) -> Effort:
        """Return the effort with candidates enough for ``n_neighbors`` neighbours."""
        n_candidates, n_kept = (max(n, n_neighbors) for n in (self.effort.n_candidates, self.effort.n_kept))
        return replace(self.effort, n_candidates=n_candidates, n_kept=n_kept)

    def _rank(self, queries: Float32 | WorkingImages, effort: Effort, stage: Stage | None = None) -> Ranking:
        """Return the best candidates of queries ``(m, channels, pixels)``, block by block.

        With a stage the queries are the distinct training images, in the order of :meth:`_training_order`. Blocks that
        an interrupted run has kept are not computed again.
        """
        if stage is None:
            found = GrowingRanking(len(queries))
        else:
            self._recall_plan(stage.part("cells"), effort)
            found = GrowingRanking(len(queries), self._training_order(effort))
            self._take_kept(stage, found)
        with own_threads() as threads:
            for block in self._blocks(queries, effort, found, stage, threads):
                start = found.n_done
                found.append(block)
                if stage is not None:
                    stage.add(found.added(start), start)
                    self._teller(stage, start, found.n_done, len(queries))(1.0)
        return found.ranking

    def _blocks(
        self, queries: Float32 | WorkingImages, effort: Effort, found: GrowingRanking, stage: Stage | None, threads: int
    ) -> Iterator[Ranking]:
        """Yield the best candidates of the queries that are not found yet, block by block."""
        rows = self._most_rows(len(queries), queries.shape[1], effort, self.prepared.coefficients.rank)
        comparison = self._comparison(self.prepared.coefficients)
        for start, stop in found.blocks_left(rows):
            first, tell = None if stage is None else start, self._teller(stage, start, stop, len(queries))
            own = queries.take(found.order[start:stop]) if isinstance(queries, WorkingImages) else queries[start:stop]
            yield self._rank_block(own, effort, first, comparison, threads, tell)

    def _training_order(self, effort: Effort) -> IndexArray | None:
        """Return the order in which training images are compared: along the cells, or None for the given order.

        Images of one block then have many candidates in common, which are brought to the working size and warped once.
        """
        if len(self.prepared.images) <= effort.exact_limit:
            return None
        return self._plan(min(effort.n_candidates, len(self.prepared.images) - 1)).order

    def _take_kept(self, stage: Stage, found: GrowingRanking) -> None:
        """Append the lists that an interrupted run has kept, if they fit; its blocks may have had another size."""
        arrays = dict(stage.kept())
        if set(arrays) != {"queries", *(name.name for name in fields(Ranking))}:
            return
        queries = arrays.pop("queries")
        known = Ranking(**arrays)
        # A process and a cluster compare the images of a small collection in different orders.
        if not np.array_equal(queries, found.order[: len(known.indices)]):
            return
        limits = (len(self.prepared.images), len(self.bank.warps), len(self.bank.shifts))
        numbers = (known.indices, known.warps, known.shifts)
        inside = all(
            part.size == 0 or 0 <= part.min() <= part.max() < most for part, most in zip(numbers, limits, strict=True)
        )
        fits = len({part.shape for part in (*numbers, known.distances)}) == 1 and known.indices.ndim == 2
        if inside and fits:
            found.append(known)
            self._teller(stage, 0, found.n_done, len(found.order))(1.0)

    def _teller(self, stage: Stage | None, start: int, stop: int, n_queries: int) -> Callable[[float], None]:
        """Return the function that reports which share of one block is done, in training images."""
        if stage is None:
            return lambda share: None
        n_images = len(self.images)
        return lambda share: stage.show(int((start + share * (stop - start)) * n_images / n_queries), n_images)

    def _most_rows(self, n_queries: int, n_channels: int, effort: Effort, rank: int) -> int:
        """Return how many queries to compare at a time: their data fit half the memory budget, and a few seconds do."""
        n_pixels = self.size.shape[0] * self.size.shape[1]
        per_query = 32 * n_channels * n_pixels + 4 * len(self.bank.shifts) * rank  # bytes
        per_query += 24 * effort.n_candidates + 64 * effort.n_kept
        pixels = _BLOCK_PIXELS if n_queries <= effort.exact_limit else _SMALL_BLOCK_PIXELS
        quick = pixels // (effort.n_kept * n_channels * n_pixels) // _ROUND * _ROUND
        return max(64, min(int(0.5 * self.memory_budget / per_query), max(_ROUND, quick)))

    def _rank_block(
        self, queries: Float32, effort: Effort, first: int | None, comparison: Comparison, threads: int,
        tell: Callable[[float], None],
    ) -> Ranking:  # fmt: skip
        """Run the stages for one block; ``first`` is the place of its first query in the training order."""
        prepared = self.prepared
        n_others = len(prepared.images) - (first is not None)
        if n_others == 0:
            return Ranking.empty(len(queries))
        reach = min(effort.n_candidates, n_others)
        candidates = self._candidates(queries, first, reach, threads)
        numbers, local, known = prepared.around(candidates, comparison.workspace)
        found = comparison.rank(queries, local, known, effort.n_kept, threads, tell)
        return found if numbers is None else replace(found, indices=numbers[found.indices])

    def _comparison(self, coefficients: MotionCoefficients) -> Comparison:
        """Return what the last two stages need besides the images."""
        window_y, window_x = (self.deformation.pixels(self.deformation.window, side) for side in self.size.shape)
        return Comparison(coefficients, (window_y, window_x), self.effort.context)

    def _candidates(self, queries: Float32, first: int | None, reach: int, threads: int) -> Int32:
        """Return the candidates ``(m, reach)`` of one block of queries by their descriptors."""
        known = self.prepared.descriptors
        if first is None:
            descriptors = self.prepared.coarse.descriptors(queries, threads)
            return np.asarray(most_similar(descriptors, known, reach, threads))
        if len(known) > self.effort.exact_limit:
            return np.asarray(self._plan(reach).lists(known, first, first + len(queries), reach, threads))
        return np.asarray(most_similar(known[first : first + len(queries)], known, reach, threads, first=first))

    def _plan(self, reach: int) -> CellPlan:
        """Return which images of a large collection are compared by their descriptors."""
        kept: tuple[int, CellPlan] | None = self.__dict__.get("_cell_plan")
        if kept is None or kept[0] != reach:
            with own_threads() as threads:
                described, seed = self.prepared.descriptors, self.random_state
                plan = CellPlan.of(described, reach, random_state=seed, threads=threads, assign=self._assign())
            kept = reach, plan
            self.__dict__["_cell_plan"] = kept
        return kept[1]

    def _recall_plan(self, stage: Stage, effort: Effort) -> None:
        """Use the cells of a large collection that an interrupted run has kept, or keep those of this run."""
        n_images = len(self.prepared.images)
        if n_images <= effort.exact_limit:
            return
        reach = min(effort.n_candidates, n_images - 1)
        plan = CellPlan.restore(stage.kept(), n_images)
        if plan is None:
            plan = self._plan(reach)
            stage.keep(plan.arrays, finished=True)
        self.__dict__["_cell_plan"] = reach, plan

    def _assign(self) -> Assign | None:
        """Return what assigns all descriptors to cells, see :class:`CellPlan`; None to do it here."""
        return None

    def training_candidates(self, reach: int) -> Int32 | None:
        """Return approximate candidates of all training images, or None if all pairs are compared."""
        known = self.prepared.descriptors
        if len(known) <= self.effort.exact_limit:
            return None
        with own_threads() as threads:
            return np.asarray(cell_candidates(known, reach, random_state=self.random_state, threads=threads))

    # --- storage -----------------------------------------------------------------------------------------
    def state(self) -> SearchState:
        """Return the training images and the settings."""
        meta = {
            "deformation": asdict(self.deformation),
            "effort": asdict(self.effort),
            "memory_budget": self.memory_budget,
            "random_state": self.random_state,
        }
        return {"images": self.images}, meta

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> DeformableSearch:
        """Rebuild a search from what :meth:`state` returned."""
        deformation, effort = Deformation(**meta["deformation"]), Effort(**meta["effort"])
        images = as_float_stack(arrays["images"])
        return cls(images, deformation, effort, meta["memory_budget"], meta["random_state"])


@dataclass(frozen=True)
class KnownImages:
    """Images that queries are compared with: at the working size, the coefficients of every warp, and energies.

    ``images`` is (n, channels, pixels), ``warped`` (n, warps, rank); ``energies`` (n,) are zero for blank images.
    """

    images: Float32
    warped: Float32
    energies: Float32


@dataclass(frozen=True)
class Comparison:
    """The last two stages of the search: the best motion of every candidate, then the distance of the best ones.

    ``window`` is how far single pixels may move, down and across, and ``context`` the radius of their surroundings.
    ``workspace`` holds the large arrays of a block.
    """

    coefficients: MotionCoefficients
    window: tuple[int, int]
    context: int
    workspace: Workspace = field(default_factory=Workspace, compare=False)

    def rank(
        self, queries: Float32, candidates: Int32, known: KnownImages, n_kept: int, threads: int,
        tell: Callable[[float], None],
    ) -> Ranking:  # fmt: skip
        """Return the best of each query's candidates (m, reach), which are numbers among the known images."""
        bank, reach = self.coefficients.bank, candidates.shape[1]
        query_fields, energies = field_stack(
            queries, bank.shape, use_pixels=bank.use_pixels, threads=threads, workspace=self.workspace
        )
        shifted = self.coefficients.of_shifts(queries, query_fields, energies, threads, self.workspace)
        scores, warps, shifts = best_motions(shifted, known.warped, candidates, threads)
        n_kept = min(n_kept, reach)
        best = np.argpartition(-scores, n_kept - 1, axis=1)[:, :n_kept]
        rows = np.arange(len(queries))[:, None]
        kept = Ranking(candidates, scores, warps, shifts).take(rows, np.sort(best, axis=1))
        distances = self._local_distances(queries, kept, known.images, threads, tell)
        blank = (energies[:, None] == 0) | (known.energies[kept.indices] == 0)
        distances[blank] = FARTHEST
        order = np.argsort(distances, axis=1, kind="stable")
        return Ranking(kept.indices, distances, kept.warps, kept.shifts).take(rows, order)

    def _local_distances(
        self, queries: Float32, kept: Ranking, images: Float32, threads: int, tell: Callable[[float], None]
    ) -> Float32:
        """Return the root mean squared context difference of every kept pair, after its motion and local warp."""
        bank, margin = self.coefficients.bank, self.context
        shifts = np.asarray(bank.shifts, dtype=np.int64)
        gap = max(1, int(self.window[1] + np.abs(shifts[:, 1]).max()))
        query_fields, _ = field_stack(
            queries, bank.shape, use_pixels=bank.use_pixels, margin=margin, gap=gap, threads=threads,
            workspace=self.workspace,
        )  # fmt: skip
        layout = field_layout(bank.shape, margin=margin, gap=gap, window=self.window)
        tables = bank.warp_tables()
        rows = np.broadcast_to(np.arange(len(queries), dtype=np.int32)[:, None], kept.indices.shape)
        # Sorted by image and warp, because pairs side by side share the fields of their warps.
        moves = np.stack([kept.indices, kept.warps], axis=2, dtype=np.int32).reshape(-1, 2)
        order = np.argsort(moves[:, 0].astype(np.int64) * len(bank.warps) + moves[:, 1])
        moves = moves[order]
        pairs = np.stack([rows, np.zeros_like(rows), kept.shifts], axis=2, dtype=np.int32).reshape(-1, 3)[order]
        totals = np.empty(len(pairs), dtype=np.float32)
        is_new = (moves != np.roll(moves, 1, axis=0)).any(axis=1)

        def fill(start: int, stop: int) -> None:
            energies = np.empty(_PAIRS_AT_A_TIME, dtype=np.float32)
            others = empty_fields(_PAIRS_AT_A_TIME, images.shape[1], layout)
            for low in range(start, stop, _PAIRS_AT_A_TIME):
                part = slice(low, min(low + _PAIRS_AT_A_TIME, stop))
                is_first = is_new[part].copy()
                is_first[0] = True
                pairs[part, 1] = np.cumsum(is_first) - 1
                needed = moves[part][is_first]
                fields = others[: len(needed)]
                write_fields(images, needed, tables, layout, bank.use_pixels, fields, energies)
                measure_pairs(query_fields, fields, pairs[part], shifts, layout, totals[part])

        in_order(fill, len(pairs), max(64, _TELL_PIXELS // (images.shape[1] * images.shape[2])), threads, tell)
        distances = np.empty_like(totals)
        distances[order] = np.sqrt(totals / np.float32(2 * (2 * margin + 1) ** 2))
        return distances.reshape(kept.indices.shape)


@dataclass(frozen=True)
class PreparedImages:
    """Distinct training images at the working size, and data that the stages derive from them.

    ``group`` (n,) says which distinct image each training image equals; ``warped`` (distinct, warps, rank) holds the
    coefficients of every warp and ``energies`` (distinct,) is zero for blank images. In large collections descriptors
    and coefficients have half precision.
    """

    images: WorkingImages
    group: IndexArray
    coarse: CoarseMap
    descriptors: NDArray[Any]
    coefficients: MotionCoefficients
    warped: NDArray[Any]
    energies: Float32

    @classmethod
    def of(cls, search: DeformableSearch, threads: int) -> PreparedImages:
        """Derive everything from the training images of ``search``."""
        images, group = working_images(search)
        # A part of a large collection is enough for the mean and the axes of its descriptors.
        chosen = np.arange(len(images))[:: -(-len(images) // MOST_FITTED)]
        shape, use_pixels = search.size.shape, search.bank.use_pixels
        coarse, pooled = CoarseMap.fit(images.take(chosen), shape, threads, use_pixels=use_pixels)
        coefficients = fit_coefficients(search, images)
        if len(images) > search.effort.exact_limit:
            parts = describe_in_parts(images, coarse, coefficients, threads)
        else:
            every = images.range(0, len(images))
            parts = Described(coarse.project(pooled), *coefficients.of_warps(every, threads))
        return cls(images, group, coarse, parts.descriptors, coefficients, parts.warped, parts.energies)

    def around(self, candidates: Int32, workspace: Workspace) -> tuple[Int32 | None, Int32, KnownImages]:
        """Return the images that are candidates of a block of queries.

        First come their numbers, or None for all images, and the candidates as places among these. The images and their
        warps are in the workspace.
        """
        if self.images.held is not None and self.warped.dtype == np.float32:
            return None, candidates, KnownImages(self.images.held, self.warped, self.energies)
        numbers, places = distinct_numbers(candidates, len(self.images))
        warped = workspace.array("warped", (len(numbers), *self.warped.shape[1:]))
        single_rows(self.warped, numbers, warped)
        return numbers, places, KnownImages(self.images.take(numbers, workspace), warped, self.energies[numbers])

    def grown(self, search: DeformableSearch, threads: int) -> PreparedImages:
        """Return the same for a search with more images; the maps learned from the first ones are kept."""
        n_old = len(self.group)
        firsts, copies = exact_copies(as_rows(search.images))
        first = firsts[copies[n_old:]]
        added = np.unique(first[first >= n_old])
        numbers = len(self.images) + np.searchsorted(added, first)
        group = np.concatenate([self.group, np.where(first < n_old, self.group[np.minimum(first, n_old - 1)], numbers)])
        if len(added) == 0:
            return replace(self, images=replace(self.images, originals=search.images), group=group)
        new = search.size.apply(search.images[added])
        held = None if self.images.held is None else np.concatenate([self.images.held, new])
        together = np.concatenate([self.images.numbers, added])
        warped, energies = self.coefficients.of_warps(new, threads)
        described = self.coarse.descriptors(new, threads).astype(self.descriptors.dtype)
        return replace(
            self,
            images=replace(self.images, originals=search.images, numbers=together, held=held),
            group=group,
            descriptors=np.concatenate([self.descriptors, described]),
            warped=np.concatenate([self.warped, warped.astype(self.warped.dtype)]),
            energies=np.concatenate([self.energies, energies]),
        )


@dataclass(frozen=True)
class Described:
    """What is derived from some images: descriptors, coefficients of all warps, and energies."""

    descriptors: NDArray[Any]
    warped: NDArray[Any]
    energies: Float32


def describe_in_parts(
    images: WorkingImages, coarse: CoarseMap, coefficients: MotionCoefficients, threads: int
) -> Described:
    """Derive everything from many images, a part at a time, in half precision."""
    n_images, n_values = len(images), coarse.n_dimensions
    descriptors = np.empty((n_images, n_values), np.float16)
    warped = np.empty((n_images, len(coefficients.bank.warps), coefficients.rank), np.float16)
    energies = np.empty(n_images, np.float32)

    def describe(start: int, stop: int) -> None:
        for first in range(start, stop, _IMAGES_IN_PART):
            own = slice(first, min(first + _IMAGES_IN_PART, stop))
            part = images.range(own.start, own.stop)
            descriptors[own] = narrowed(coarse.descriptors(part, 1))
            moved, energies[own] = coefficients.of_warps(part, 1)
            warped[own] = narrowed(moved)

    parallel_ranges(describe, n_images, grain=_IMAGES_IN_PART, threads=threads)
    return Described(descriptors, warped, energies)


def working_images(search: DeformableSearch, *, hold: bool = False) -> tuple[WorkingImages, IndexArray]:
    """Return the distinct training images at the working size, and which of them each training image equals.

    All are held in memory if they are few or have another size than the originals, or with ``hold``.
    """
    originals, size = search.images, search.size
    largest, every = largest_value(originals), np.arange(len(originals))
    hold |= len(originals) <= search.effort.exact_limit or size.shape != size.source
    images = WorkingImages(originals, every, size, largest, size.apply(originals, largest) if hold else None)
    firsts, group = exact_copies(WorkingRows(images) if images.held is None else as_rows(images.held))
    if len(firsts) < len(every):
        images = replace(images, numbers=firsts, held=None if images.held is None else images.held[firsts])
    return images, group


def fit_coefficients(search: DeformableSearch, images: WorkingImages) -> MotionCoefficients:
    """Learn the basis of all motions, no larger than the memory budget allows."""
    rank, n_images, n_values = search.effort.rank, len(images), images.shape[1] * images.shape[2]
    item = 2 if n_images > search.effort.exact_limit else 4
    per_image, map_bytes = (bytes_ * len(search.bank.warps) for bytes_ in (item * n_images, 4 * n_values))
    while (per_image * rank > 0.5 * search.memory_budget or map_bytes * rank > _MOST_MAP_BYTES) and rank > 16:
        rank //= 2
    with own_threads():
        return MotionCoefficients.fit(images, search.bank, rank, np.random.default_rng(search.random_state))
