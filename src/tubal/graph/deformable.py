"""The deformable graph: neighbours that agree after a small rotation, scaling, shift and local warp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import is_torch
from tubal.backends.cpu import deformation as _kernels
from tubal.backends.threads import own_threads, parallel_ranges, thread_count
from tubal.graph.affine import Float32, Int32, MotionBank, MotionCoefficients, WorkingSize, best_motions, field_stack
from tubal.graph.candidates import CoarseMap, approximate_candidates, coarse_candidates
from tubal.graph.checks import as_rows, check_images, check_n_neighbors, duplicate_groups
from tubal.graph.neighbors import capped_neighbours, knn_graph, spread_over_copies
from tubal.graph.structure import Alignments, Graph, IndexArray, Neighbours, Weighting


@dataclass(frozen=True)
class Deformation:
    """What counts as a small deformation of an image.

    Two images are neighbours when one, after a rotation by at most ``rotation`` degrees, a scaling by at most
    ``scale`` and a shift by at most ``shift`` of its side, agrees with the other up to a local warp: every
    pixel may move by a further ``window`` of the side to where the gradients of its surroundings fit best.
    ``shift`` and ``window`` are at least ``least_pixels`` (working pixels), which is what counts below 64
    pixels a side. Images are compared at a working size of ``least_size`` to ``most_size`` pixels in all:
    larger ones are averaged down for the graph only, smaller two-dimensional ones interpolated up.
    ``field="pixels"`` compares pixel values in place of gradients, which light and shade change more.

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
        if not (0 <= self.rotation <= 180 and self.scale >= 1 and 0 <= self.shift < 1 and 0 <= self.window < 1):
            raise ValueError(
                f"{self} is no deformation; rotation lies in 0..180 degrees, scale is at least 1, shift and "
                "window are shares of the image side in [0, 1)"
            )
        if self.n_rotations < 1 or self.n_scales < 1 or self.least_pixels < 0 or self.least_size < 1:
            raise ValueError(f"{self} is no deformation; counts and sizes must be positive")
        if self.field not in ("gradient", "pixels"):
            raise ValueError(f"field={self.field!r}; compare images by their 'gradient' or by their 'pixels'")

    def warps(self) -> tuple[tuple[float, float], ...]:
        """All (rotation, scale) pairs that are tried."""
        rotations = np.linspace(-self.rotation, self.rotation, self.n_rotations) if self.n_rotations > 1 else [0.0]
        scales = np.geomspace(1 / self.scale, self.scale, self.n_scales) if self.n_scales > 1 else [1.0]
        return tuple((float(rotation), float(scale)) for rotation in rotations for scale in scales)

    def pixels(self, share: float, side: int) -> int:
        """A share of a side in working pixels; a side of one pixel cannot move."""
        return min(side - 1, max(self.least_pixels if share > 0 else 0, round(share * side)))

    def bank(self, shape: tuple[int, int]) -> MotionBank:
        """The motions tried on images of a working ``shape``: warps and whole-pixel shifts."""
        down, across = (self.pixels(self.shift, side) for side in shape)
        # At most five steps a direction: the window bridges what lies between them.
        rows, columns = ({round(step) for step in np.linspace(-most, most, 5)} for most in (down, across))
        shifts = tuple((dy, dx) for dy in sorted(rows) for dx in sorted(columns))
        return MotionBank(shape, self.warps(), shifts, plain=self.field == "pixels")


@dataclass(frozen=True)
class Effort:
    """How far each stage looks: candidates, kept ones, length of the basis, radius of the context.

    Beyond ``exact_limit`` images the candidates come from an approximate index.
    """

    n_candidates: int
    n_kept: int
    rank: int
    context: int
    exact_limit: int = 20_000

    @classmethod
    def for_collection(cls, n_images: int, n_neighbors: int) -> Effort:
        """Small collections can afford longer lists and 5 x 5 contexts; only size counts."""
        if n_images <= 2000:
            return cls(max(200, 4 * n_neighbors), max(100, 2 * n_neighbors), 256, 2)
        return cls(max(50, 4 * n_neighbors), max(30, 2 * n_neighbors), 64, 1)


HUB_FACTOR = 5
# Twice the length of a unit field: no two images can be farther apart.
FARTHEST = 2.0
_TOO_SMALL = 16


def deformable_graph(
    images: Any,
    n_neighbors: int = 5,
    *,
    deformation: Deformation | None = None,
    effort: Effort | None = None,
    memory_budget: float = 1e9,
    random_state: int = 0,
) -> Graph:
    """Join every image to its ``n_neighbors`` nearest others under small deformations.

    ``images`` is a stack ``(n, h, w[, c])`` or rows ``(n, d)`` (one-row images), NumPy or torch. Distances
    are root mean squared differences of gradient contexts, between 0 and 2. No image is named by more than
    ``5 n_neighbors`` others: the farthest of its choosers take their next candidate instead
    (``graph.max_in_degree`` tells). Constant images have no gradient; they are next to each other and as far
    as can be from everything else. Images of fewer than 16 pixels have no shape to deform and are compared by
    their pixels, as in :func:`knn_graph`. ``effort`` says how many candidates each stage keeps; by default the
    size of the collection decides. ``memory_budget`` bounds the working memory, in bytes, beside the
    images themselves; ``random_state`` draws the samples the affine basis is learned from.

    >>> wave = np.sin(np.arange(20)[:, None, None] / 3 + np.arange(8)[:, None] + np.arange(8))
    >>> graph = deformable_graph(wave, 2)
    >>> graph.neighbors.shape, graph.max_in_degree <= 10
    ((20, 2), True)
    """
    stack = check_images(images)
    wanted = check_n_neighbors(n_neighbors, len(stack) - 1)
    if stack[0].size < _TOO_SMALL:
        return knn_graph(images, wanted)
    model, effort = deformation or Deformation(), effort or Effort.for_collection(len(stack), wanted)
    search = DeformableSearch(stack, model, effort, float(memory_budget), int(random_state))
    if is_torch(images):
        from tubal.graph.deformable_torch import DeviceSearch

        search = DeviceSearch.of(search, images)
    found = search.among_themselves(wanted)
    return Graph.from_neighbours(found, weighting=Weighting(), search=search, n_neighbors=wanted)


@dataclass(frozen=True)
class Ranking:
    """Candidates of each query by increasing distance: images, distances and motions, each ``(m, K)``."""

    indices: Int32
    distances: Float32
    warps: Int32
    shifts: Int32

    def take(self, rows: Any, slots: IndexArray) -> Ranking:
        """Pick one list (``rows``) and its slots per answer; lists that name nobody give zeros."""
        if self.indices.shape[1] == 0:
            nothing = np.zeros(slots.shape, dtype=np.int32)
            return Ranking(nothing, nothing.astype(np.float32), nothing, nothing)
        picked = (values[rows, slots] for values in (self.indices, self.distances, self.warps, self.shifts))
        return Ranking(*picked)


@dataclass(frozen=True)
class DeformableSearch:
    """The three stages against stored training images; what is derived from them is rebuilt when needed."""

    images: NDArray[Any]
    deformation: Deformation
    effort: Effort
    memory_budget: float = 1e9
    random_state: int = 0
    kind: ClassVar[str] = "deformable"

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
    def known(self) -> Known:
        """Distinct training images with everything the stages ask of them."""
        with own_threads() as threads:
            return Known.prepare(self, threads)

    def forget(self) -> None:
        """Drop what was derived from the images, up to half the memory budget; a later query derives it again."""
        for name in ("known", "_training_candidates"):
            self.__dict__.pop(name, None)

    def among_themselves(self, n_neighbors: int) -> Neighbours:
        """The nearest other training images of every training image, no image chosen too often."""
        known = self.known
        ranking = self._rank(known.images, itself=True)
        length = min(len(self.images) - 1, max(3 * n_neighbors, 20))
        lists, slots = spread_over_copies(ranking.indices, known.group, length, training=True)
        rows = known.group[:, None]
        spread = ranking.take(rows, np.maximum(slots, 0))
        distances = np.where(slots < 0, np.float32(0), spread.distances)
        distances[lists < 0] = np.inf
        chosen = capped_neighbours(lists, distances, n_neighbors, HUB_FACTOR * n_neighbors)
        present = chosen >= 0
        here = np.maximum(chosen, 0)
        alignments = self._alignments(spread, slots)[np.arange(len(lists))[:, None], here]
        nearest = np.where(present, np.take_along_axis(lists, here, axis=1), -1)
        apart = np.where(present, np.take_along_axis(distances, here, axis=1), np.inf)
        return Neighbours(nearest, apart, alignments)

    def nearest(self, new_images: Any, n_neighbors: int) -> Neighbours:
        """The nearest training images of each new one, nearest first."""
        stack = check_images(new_images)
        if stack.shape[1:] != self.images.shape[1:]:
            raise ValueError(
                f"new images have shape {stack.shape[1:]}, the graph's images {self.images.shape[1:]}; "
                "pass images of the training shape"
            )
        known = self.known
        ranking = self._rank(self.size.apply(stack), itself=False)
        each = np.arange(len(stack))
        lists, slots = spread_over_copies(ranking.indices, known.group, n_neighbors, training=False)
        spread = ranking.take(each[:, None], np.maximum(slots, 0))
        return Neighbours(lists, spread.distances, self._alignments(spread, slots))

    def _alignments(self, spread: Ranking, slots: IndexArray) -> Alignments:
        """Motions as numbers in pixels of the images as given; copies are not moved."""
        warps, shifts = np.asarray(self.bank.warps), np.asarray(self.bank.shifts, dtype=np.float64)
        moved = (slots >= 0).astype(np.float64)
        rotation, scale = (warps[spread.warps, part] for part in (0, 1))
        units = [given / working for given, working in zip(self.size.source, self.size.shape, strict=True)]
        # The image at p meets the warped neighbour at p + shift, so the neighbour moves by minus that.
        dy, dx = (-shifts[spread.shifts, part] * units[part] * moved for part in (0, 1))
        return Alignments(rotation * moved, np.where(slots >= 0, scale, 1.0), dy + 0.0, dx + 0.0)

    def _rank(self, queries: Float32, *, itself: bool) -> Ranking:
        parts = []
        with own_threads() as threads:
            for start, stop in self._blocks(len(queries), queries.shape[1]):
                first = start if itself else None
                parts.append(self._rank_block(queries[start:stop], first, threads))
        return Ranking(*(np.concatenate([getattr(part, name) for part in parts]) for name in Ranking.__annotations__))

    def _blocks(self, n_queries: int, n_channels: int) -> Iterator[tuple[int, int]]:
        """Ranges of queries whose fields, coefficients and pairs fit half the memory budget."""
        n_pixels = self.size.shape[0] * self.size.shape[1]
        floats = 8 * n_channels * n_pixels + len(self.bank.shifts) * self.known.coefficients.rank
        per_query = 4 * floats + 24 * self.effort.n_candidates + 64 * self.effort.n_kept
        rows = max(64, int(0.5 * self.memory_budget / per_query))
        for start in range(0, n_queries, rows):
            yield start, min(start + rows, n_queries)

    def _rank_block(self, queries: Float32, first: int | None, threads: int) -> Ranking:
        known, effort = self.known, self.effort
        others = len(known.images) - (first is not None)
        if others == 0:
            return _empty_ranking(len(queries))
        reach = min(effort.n_candidates, others)
        candidates = self._candidates(queries, first, reach, threads)
        fields, energies = field_stack(queries, self.size.shape, plain=self.bank.plain, threads=threads)
        shifted = known.coefficients.of_shifts(queries, fields, energies, threads)
        scores, warps, shifts = best_motions(shifted, known.warped, candidates, threads)
        n_kept = min(effort.n_kept, reach)
        best = np.argpartition(-scores, n_kept - 1, axis=1)[:, :n_kept]
        kept = Ranking(candidates, scores, warps, shifts).take(np.arange(len(queries))[:, None], np.sort(best, axis=1))
        distances = self._local_distances(queries, kept, threads)
        blank = (energies[:, None] == 0) | (known.energies[kept.indices] == 0)
        distances[blank] = FARTHEST
        order = np.argsort(distances, axis=1, kind="stable")
        ranked = Ranking(kept.indices, distances, kept.warps, kept.shifts)
        return ranked.take(np.arange(len(queries))[:, None], order)

    def _candidates(self, queries: Float32, first: int | None, reach: int, threads: int) -> Int32:
        known = self.known
        if first is None:
            descriptors = known.coarse.descriptors(queries, threads)
            return coarse_candidates(descriptors, known.descriptors, reach, first=None, threads=threads)
        own = slice(first, first + len(queries))
        lists = self.training_candidates(reach)
        if lists is not None:
            return lists[own]
        return coarse_candidates(known.descriptors[own], known.descriptors, reach, first=first, threads=threads)

    def training_candidates(self, reach: int) -> Int32 | None:
        """Approximate candidates of all training images, found once; ``None`` if all pairs are compared."""
        if len(self.known.images) <= self.effort.exact_limit:
            return None
        lists: Int32 | None = self.__dict__.get("_training_candidates")
        if lists is None or lists.shape[1] != reach:
            lists = approximate_candidates(
                self.known.descriptors, reach, random_state=self.random_state, threads=thread_count()
            )
            self.__dict__["_training_candidates"] = lists
        return lists

    def _local_distances(self, queries: Float32, kept: Ranking, threads: int) -> Float32:
        """Root mean squared context difference of every kept pair under its motion and the local warp."""
        height, width = self.size.shape
        margin = self.effort.context
        window_y, window_x = (self.deformation.pixels(self.deformation.window, side) for side in (height, width))
        shifts = np.asarray(self.bank.shifts, dtype=np.int64)
        gap = int(window_x + np.abs(shifts[:, 1]).max())
        plain = self.bank.plain
        fields, _ = field_stack(queries, self.size.shape, plain=plain, margin=margin, gap=gap, threads=threads)
        layout = np.array([height, width, margin, gap, window_y, window_x], dtype=np.int64)
        corners, shares = self.bank.warp_tables()
        rows = np.broadcast_to(np.arange(len(queries), dtype=np.int32)[:, None], kept.indices.shape)
        pairs = np.stack([kept.indices, kept.warps, rows, kept.shifts], axis=2, dtype=np.int32).reshape(-1, 4)
        order = np.argsort(pairs[:, 0] * np.int64(len(corners)) + pairs[:, 1], kind="stable")
        pairs = pairs[order]
        totals = np.empty(len(pairs), dtype=np.float32)

        def fill(start: int, stop: int) -> None:
            _kernels.pair_distances(
                self.known.images, fields, pairs, start, stop, corners, shares, shifts, layout, plain, totals
            )

        parallel_ranges(fill, len(pairs), grain=64, threads=threads)
        distances = np.empty_like(totals)
        distances[order] = np.sqrt(totals / np.float32(2 * (2 * margin + 1) ** 2))
        return distances.reshape(kept.indices.shape)

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The training images and the settings."""
        meta = {
            "deformation": asdict(self.deformation),
            "effort": asdict(self.effort),
            "memory_budget": self.memory_budget,
            "random_state": self.random_state,
        }
        return {"images": self.images}, meta

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> DeformableSearch:
        """Undo :meth:`state`."""
        model, effort = Deformation(**meta["deformation"]), Effort(**meta["effort"])
        return cls(arrays["images"], model, effort, meta["memory_budget"], meta["random_state"])


@dataclass(frozen=True)
class Known:
    """Distinct training images at the working size, their descriptors and their warps' coefficients."""

    images: Float32
    group: IndexArray
    coarse: CoarseMap
    descriptors: Float32
    coefficients: MotionCoefficients
    warped: Float32
    energies: Float32

    @classmethod
    def prepare(cls, search: DeformableSearch, threads: int) -> Known:
        """Derive everything from the training images of ``search``."""
        working = search.size.apply(search.images)
        firsts, group = duplicate_groups(as_rows(working))
        images = working if len(firsts) == len(working) else working[firsts]
        shape = search.size.shape
        coarse, descriptors = CoarseMap.fit(images, shape, threads, plain=search.bank.plain)
        rank = search.effort.rank
        while 4 * len(images) * len(search.bank.warps) * rank > 0.5 * search.memory_budget and rank > 16:
            rank //= 2
        rng = np.random.default_rng(search.random_state)
        coefficients = MotionCoefficients.fit(images, search.bank, rank, rng)
        warped, energies = coefficients.of_warps(images, threads)
        return cls(images, group, coarse, descriptors, coefficients, warped, energies)


def _empty_ranking(n_rows: int) -> Ranking:
    """Lists that name nobody: what a collection of copies of one image has to offer."""
    nobody = np.zeros((n_rows, 0), dtype=np.int32)
    return Ranking(nobody, nobody.astype(np.float32), nobody, nobody)
