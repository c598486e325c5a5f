"""The deformable graph on torch tensors: the same three stages as batched tensor operations on their device.

The affine basis, the copies and the bound on hubs are those of :mod:`tubal.graph.deformable`; what is done for
every image or pair runs here. All pairs are compared in the first stage, whatever the number of images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from tubal.backends.arrays import Array, as_like, namespace, to_numpy
from tubal.graph.affine import MotionCoefficients
from tubal.graph.candidates import _LEAD, _PCA_FROM, _soft_cells
from tubal.graph.checks import as_rows, duplicate_groups
from tubal.graph.deformable import FARTHEST, DeformableSearch, Ranking, _empty_ranking
from tubal.graph.structure import IndexArray

# Working memory of one batch of queries or pairs, in numbers.
_BATCH = 2**26
# More than any two unit fields differ by: no partner was found.
_NOBODY = 1e6


@dataclass(frozen=True)
class DeviceSearch(DeformableSearch):
    """The search of :class:`DeformableSearch` on the device of ``like``, a floating tensor."""

    like: Any = None

    @classmethod
    def of(cls, search: DeformableSearch, images: Array) -> DeviceSearch:
        """Return ``search`` on the device of the tensor ``images``, in single precision whatever their type."""
        if search.bank.plain:
            raise ValueError(
                "field='pixels' with a torch tensor: tensors are compared by gradients only; pass NumPy images, "
                "or leave field='gradient'"
            )
        xp = namespace(images)
        like = xp.empty(0, dtype=xp.float32, device=images.device)
        return cls(**{field.name: getattr(search, field.name) for field in fields(search)}, like=like)

    @cached_property
    def known(self) -> Any:
        """Distinct training images on the device, with everything the stages ask of them."""
        return DeviceKnown.prepare(self)

    def training_candidates(self, reach: int) -> None:
        """Nothing: all pairs are compared."""
        return None

    def _rank(self, queries: Any, *, itself: bool) -> Ranking:
        known = self.known
        queries = as_like(queries, self.like)
        others = len(known.images) - itself
        if others == 0:
            return _empty_ranking(len(queries))
        reach = min(self.effort.n_candidates, others)
        per_query = reach * (len(self.bank.warps) * (known.rank + len(self.bank.shifts))) + len(known.images)
        step = max(1, _BATCH // per_query)
        parts = [
            self._best_motions(queries[start : start + step], start if itself else None, reach)
            for start in range(0, len(queries), step)
        ]
        xp = namespace(queries)
        others_of, warps, shifts = (xp.concatenate([part[place] for part in parts]) for place in range(3))
        distances = self._pair_distances(queries, others_of, warps, shifts)
        own = in_batches(known.energy_of, queries)
        blank = (own[:, None] == 0) | (known.energies[others_of] == 0)
        distances = xp.where(blank, FARTHEST, distances)
        order = xp.argsort(distances, dim=1, stable=True)
        ranked = (xp.gather(values, 1, order) for values in (others_of, distances, warps, shifts))
        indices, apart, turned, moved = (to_numpy(values) for values in ranked)
        small = np.int32
        return Ranking(indices.astype(small), apart.astype(np.float32), turned.astype(small), moved.astype(small))

    def _best_motions(self, queries: Array, first: int | None, reach: int) -> tuple[Array, Array, Array]:
        """Kept candidates of a batch with their warps and shifts, each (m, kept), in the order of the coarse list."""
        xp, known = namespace(queries), self.known
        similarity = known.descriptors_of(queries) @ known.descriptors.T
        if first is not None:
            rows = xp.arange(len(queries), device=queries.device)
            similarity[rows, rows + first] = -float("inf")
        candidates = similarity.topk(reach, 1).indices
        shifted = known.shift_coefficients(queries)
        warped = known.warped[candidates].reshape(len(queries), -1, known.rank)
        products = (warped @ shifted.transpose(1, 2)).reshape(len(queries), reach, -1)
        scores, motions = products.max(2)
        kept = scores.topk(min(self.effort.n_kept, reach), 1).indices.sort(1).values
        motions = xp.gather(motions, 1, kept)
        n_shifts = len(self.bank.shifts)
        return xp.gather(candidates, 1, kept), motions // n_shifts, motions % n_shifts

    def _pair_distances(self, queries: Array, others: Array, warps: Array, shifts: Array) -> Array:
        """Root mean squared context difference of every pair under its motion and the local warp, (m, kept)."""
        xp, margin = namespace(queries), self.effort.context
        height, width = self.size.shape
        window = tuple(self.deformation.pixels(self.deformation.window, side) for side in (height, width))
        rows = xp.arange(len(queries), device=queries.device)[:, None].expand_as(others)
        flat = [values.reshape(-1) for values in (rows, others, warps, shifts)]
        totals = xp.empty(flat[0].shape, dtype=queries.dtype, device=queries.device)
        per_pair = 12 * queries.shape[1] * (height + 2 * margin) * (width + 2 * margin)
        step = max(1, _BATCH // per_pair)
        # Pairs of one shift share their offsets, so that every comparison is a slice and nothing is gathered.
        order = xp.argsort(flat[3], stable=True)
        ends = np.cumsum(to_numpy(xp.bincount(flat[3], minlength=len(self.bank.shifts))))
        for shift, stop in enumerate(ends):
            start = 0 if shift == 0 else int(ends[shift - 1])
            for low in range(start, int(stop), step):
                chosen = order[low : min(low + step, int(stop))]
                here, other, warp = (values[chosen] for values in flat[:3])
                left = padded_fields(queries[here], self.size.shape, margin)
                right = padded_fields(self.known.warp(other, warp), self.size.shape, margin)
                totals[chosen] = distortion(left, right, self.bank.shifts[shift], window, margin)
        return xp.sqrt(totals / (2.0 * (2 * margin + 1) ** 2)).reshape(others.shape)


@dataclass(frozen=True)
class DeviceKnown:
    """Distinct training images (n, channels, pixels) at the working size, and what is derived from them."""

    images: Array
    group: IndexArray
    shape: tuple[int, int]
    rank: int
    pooling: Array
    mean: Array
    axes: Array | None
    corners: Array
    shares: Array
    warp_map: Array
    shift_map: Array
    kept_pixels: Array

    @classmethod
    def prepare(cls, search: DeviceSearch) -> DeviceKnown:
        """Derive everything from the training images of ``search``."""
        working = search.size.apply(search.images)
        firsts, group = duplicate_groups(as_rows(working))
        distinct = working if len(firsts) == len(working) else working[firsts]
        images, shape = as_like(distinct, search.like), search.size.shape
        rank = search.effort.rank
        while 4 * len(images) * len(search.bank.warps) * rank > 0.5 * search.memory_budget and rank > 16:
            rank //= 2
        rng = np.random.default_rng(search.random_state)
        coefficients = MotionCoefficients.fit(distinct, search.bank, rank, rng)
        pooling = as_like(_soft_cells(shape), images)
        pooled = in_batches(lambda batch: _pooled(batch, shape, pooling), images)
        mean, axes = pooled.mean(0), None
        if len(images) > _PCA_FROM and pooled.shape[1] > _LEAD:
            centred = pooled - mean
            axes = as_like(np.linalg.eigh(to_numpy((centred.T @ centred).double()))[1][:, -_LEAD:], images)
        corners, shares = search.bank.warp_tables()
        return cls(
            images, group, shape, coefficients.rank, pooling, mean, axes,
            namespace(images).as_tensor(corners.astype(np.int64), device=images.device), as_like(shares, images),
            as_like(coefficients.warp_map, images), as_like(coefficients.shift_map, images),
            as_like(coefficients._kept_pixels().T, images),
        )  # fmt: skip

    @cached_property
    def descriptors(self) -> Array:
        """Unit descriptors of the training images."""
        return in_batches(self.descriptors_of, self.images)

    def descriptors_of(self, images: Array) -> Array:
        """Unit descriptors (m, dimensions) of images."""
        centred = _pooled(images, self.shape, self.pooling) - self.mean
        lead = centred if self.axes is None else centred @ self.axes
        return lead * _inverse_length((lead * lead).sum(1, keepdims=True))

    @cached_property
    def _warped(self) -> tuple[Array, Array]:
        n_warps = len(self.corners)
        energy = in_batches(self._warp_energies, self.images)
        flat = (self.images.reshape(len(self.images), -1) @ self.warp_map).reshape(len(self.images), n_warps, -1)
        return flat * _inverse_length(energy)[:, :, None], energy.amax(1)

    def _warp_energies(self, images: Array) -> Array:
        """Energy of the gradient of every warp, (m, warps)."""
        tables = zip(self.corners, self.shares, strict=True)
        energies = [self.energy_of(_moved(images, corners, shares)) for corners, shares in tables]
        return namespace(images).stack(energies, 1)

    @property
    def warped(self) -> Array:
        """Coefficients (n, warps, rank) of every warp, scaled as unit fields."""
        return self._warped[0]

    @property
    def energies(self) -> Array:
        """The largest energy of each image's warps, (n,): zero for a blank image."""
        return self._warped[1]

    def energy_of(self, images: Array) -> Array:
        """Energy of the gradient of images, (m,)."""
        fields = sobel(images, self.shape)
        return (fields * fields).sum((1, 2, 3))

    def shift_coefficients(self, images: Array) -> Array:
        """Coefficients (m, shifts, rank); a shift loses the energy of what it pushes over the border."""
        fields = sobel(images, self.shape)
        kept = (fields * fields).sum(1).reshape(len(images), -1) @ self.kept_pixels
        flat = (images.reshape(len(images), -1) @ self.shift_map).reshape(len(images), kept.shape[1], -1)
        return flat * _inverse_length(kept)[:, :, None]

    def warp(self, others: Array, warps: Array) -> Array:
        """Images ``others`` (pairs,), each moved by its own warp: (pairs, channels, pixels)."""
        return _moved(self.images[others], self.corners[warps], self.shares[warps])


def in_batches(work: Callable[[Array], Array], images: Array) -> Array:
    """Return ``work`` of all images, taken so many at a time that its fields fit the working memory."""
    step = max(1, _BATCH // (16 * images.shape[1] * images.shape[2]))
    parts = [work(images[start : start + step]) for start in range(0, len(images), step)]
    return namespace(images).concatenate(parts)


def _moved(images: Array, corners: Array, shares: Array) -> Array:
    """Bilinear motion of images (m, channels, pixels) by one table (4, pixels), or one for each (m, 4, pixels)."""
    xp = namespace(images)
    one = corners.ndim == 2
    total = xp.zeros_like(images)
    for corner in range(4):
        if one:
            total += shares[corner] * images[:, :, corners[corner]]
        else:
            places = corners[:, None, corner].expand_as(images)
            total += shares[:, None, corner] * xp.gather(images, 2, places)
    return total


def sobel(images: Array, shape: tuple[int, int]) -> Array:
    """Sobel derivatives (m, 2 channels, h, w) of images (m, channels, pixels): down and right, border replicated."""
    height, width = shape
    planes = images.reshape(*images.shape[:2], height, width)
    framed = _replicated(planes, 1)
    across = framed[..., :-2] + 2.0 * framed[..., 1:-1] + framed[..., 2:]
    down = framed[..., :-2, :] + 2.0 * framed[..., 1:-1, :] + framed[..., 2:, :]
    rising, right = across[..., 2:, :] - across[..., :-2, :], down[..., 2:] - down[..., :-2]
    return namespace(images).stack([rising, right], 2).reshape(len(images), -1, height, width)


def padded_fields(images: Array, shape: tuple[int, int], margin: int) -> Array:
    """Unit gradient fields with ``margin`` replicated pixels on every side; blank images keep a zero field."""
    fields = sobel(images, shape)
    fields = fields * _inverse_length((fields * fields).sum((1, 2, 3), keepdims=True))
    return _replicated(fields, margin) if margin else fields


def distortion(left: Array, right: Array, shift: tuple[int, int], window: tuple[Any, ...], margin: int) -> Array:
    """Sum over pixels of both images of the least squared context difference within the window, (pairs,).

    ``left`` and ``right`` are padded fields; the window lies around ``shift``. One pass over the offsets serves the
    pixels of both images.
    """
    xp = namespace(left)
    height, width = left.shape[2] - 2 * margin, left.shape[3] - 2 * margin
    least_left = xp.full((len(left), height, width), _NOBODY, dtype=left.dtype, device=left.device)
    least_right = least_left + 0.0
    for dy in range(shift[0] - window[0], shift[0] + window[0] + 1):
        for dx in range(shift[1] - window[1], shift[1] + window[1] + 1):
            top, bottom = max(0, -dy), min(height, height - dy)
            first, last = max(0, -dx), min(width, width - dx)
            if bottom <= top or last <= first:
                continue
            reach = 2 * margin
            here = left[:, :, top : bottom + reach, first : last + reach]
            there = right[:, :, top + dy : bottom + dy + reach, first + dx : last + dx + reach]
            error = ((here - there) ** 2).sum(1)
            column = sum(error[:, step : step + bottom - top] for step in range(reach + 1))
            context = sum(column[:, :, step : step + last - first] for step in range(reach + 1))
            for least, y, x in ((least_left, top, first), (least_right, top + dy, first + dx)):
                part = least[:, y : y + bottom - top, x : x + last - first]
                xp.minimum(part, context, out=part)
    if all(abs(step) <= reach for step, reach in zip(shift, window, strict=True)):
        return (least_left + least_right).sum((1, 2))
    # A window narrower than the shift leaves border pixels without a partner; the others then speak for them.
    both = xp.stack([least_left, least_right])
    matched = both < _NOBODY
    n_matched = matched.sum((0, 2, 3)).clamp(min=1)
    return xp.where(matched, both, 0.0).sum((0, 2, 3)) * (2.0 * height * width / n_matched)


def _pooled(images: Array, shape: tuple[int, int], pooling: Array) -> Array:
    """Rectified gradients pooled over the cells, (m, 4 channels * cells)."""
    xp = namespace(images)
    fields = padded_fields(images, shape, 0).reshape(len(images), 2 * images.shape[1], -1)
    halves = [(xp.clip(sign * fields, 0.0, None) @ pooling.T)[:, None] for sign in (1.0, -1.0)]
    return xp.concatenate(halves, 1).reshape(len(images), -1)


def _replicated(planes: Array, margin: int) -> Array:
    torch = namespace(planes)
    return torch.nn.functional.pad(planes, (margin,) * 4, mode="replicate")


def _inverse_length(energy: Array) -> Array:
    xp = namespace(energy)
    return xp.where(energy > 0, xp.rsqrt(xp.clip(energy, 1e-30, None)), 0.0)
