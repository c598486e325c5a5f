"""The deformable search on torch tensors: the three stages of ``deformable`` as batched operations on a device.

The affine basis, exact copies and the limit on hubs are shared with :mod:`tubal.graph.deformable`; only the work per
image and per pair runs on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from tubal.backends.arrays import Array, Workspace, as_like, namespace, restore_like, to_numpy
from tubal.graph.affine import Float32, Int32, MotionCoefficients, WorkingImages
from tubal.graph.cells import N_COMPONENTS, PCA_FROM, cell_candidates, cell_weights, most_similar
from tubal.graph.deformable import (
    FARTHEST,
    DeformableSearch,
    Effort,
    Ranking,
    fit_coefficients,
    working_images,
)
from tubal.graph.structure import IndexArray, Stage

if TYPE_CHECKING:
    from tubal.backends.gpu.deformation import PairDistances

# Working memory of one batch of queries or pairs, in numbers.
_BATCH = 2**26
# Above this many images only those in nearby cells are compared.
_MOST_EXACT = 100_000
# Marks pixels without a partner; unit fields cannot differ by this much.
_NO_PARTNER = 1e6


@dataclass(frozen=True)
class DeviceSearch(DeformableSearch):
    """:class:`DeformableSearch` on a device; ``like`` is an empty float32 tensor on that device."""

    like: Array = None

    @classmethod
    def of(cls, search: DeformableSearch, images: Array, wait: Callable[[], None] | None = None) -> DeviceSearch:
        """Return ``search`` on the device of the tensor ``images``, in single precision.

        ``wait`` is called before the images of ``search``, the same ones on the host, are read.
        """
        if search.bank.use_pixels:
            raise ValueError(
                "field='pixels' with a torch tensor: tensors are compared by gradients only; pass NumPy images, "
                "or leave field='gradient'"
            )
        xp = namespace(images)
        like = xp.empty(0, dtype=xp.float32, device=images.device)
        found = cls(**{field.name: getattr(search, field.name) for field in fields(search)}, like=like)
        # What is there already need not be sent. A search over other images is a new object, without this tensor.
        vars(found)["_tensor"] = images.detach()
        vars(found)["_wait"] = wait or (lambda: None)
        return found

    def release_memory(self) -> None:
        """Free the tensors derived from the images; a later query computes them again."""
        super().release_memory()
        for name in ("_tensor", "_wait"):
            vars(self).pop(name, None)

    @cached_property
    def prepared(self) -> Any:
        """Distinct training images on the device, with everything the stages need of them."""
        return PreparedTensors.of(self)

    def training_candidates(self, reach: int) -> Array:
        """Return candidates of all training images: of all pairs or, of many images, approximate ones."""
        lists: Array | None = self.__dict__.get("_training_candidates")
        if lists is None or lists.shape[1] != reach:
            described = self.prepared.descriptors
            if len(described) <= _MOST_EXACT:
                lists = most_similar(described, described, reach, 1, first=0)
            else:
                lists = cell_candidates(described, reach, random_state=self.random_state, threads=1)
            self.__dict__["_training_candidates"] = lists
        return lists

    def _candidates_of(self, queries: Array, reach: int) -> Array:
        """Return the training images whose descriptors are nearest to those of new images."""
        described = in_batches(self.prepared.descriptors_of, queries)
        return most_similar(described, self.prepared.descriptors, reach, 1)

    def _rank(self, queries: Array, effort: Effort, stage: Stage | None = None) -> Ranking:
        prepared: PreparedTensors = self.prepared
        queries, training = as_like(queries, self.like), stage is not None
        tell = self._teller(stage, 0, len(queries), len(queries))
        n_others = len(prepared.images) - training
        if n_others == 0:
            return Ranking.empty(len(queries))
        reach = min(effort.n_candidates, n_others)
        # The device finds candidates while the host learns the basis of the motions.
        candidates = self.training_candidates(reach) if training else self._candidates_of(queries, reach)
        per_query = reach * len(self.bank.warps) * (prepared.rank + len(self.bank.shifts))
        step = max(1, _BATCH // per_query)
        parts = []
        for start in range(0, len(queries), step):
            batch = queries[start : start + step]
            parts.append(self._best_motions(batch, candidates[start : start + step], effort.n_kept))
            tell(0.5 * (start + len(batch)) / len(queries))
        xp = namespace(queries)
        others, warps, shifts = (xp.concatenate([part[column] for part in parts]) for column in range(3))
        distances = self._pair_distances(queries, others, warps, shifts, tell)
        energies = in_batches(prepared.energy_of, queries)
        blank = (energies[:, None] == 0) | (prepared.energies[others] == 0)
        distances = xp.where(blank, FARTHEST, distances)
        order = xp.argsort(distances, dim=1, stable=True)
        kinds = ((others, xp.int32), (distances, xp.float32), (warps, xp.int32), (shifts, xp.int32))
        # Narrow types first: half as much leaves the device.
        return Ranking(*(to_numpy(xp.gather(values, 1, order).to(kind)) for values, kind in kinds))

    def _best_motions(self, queries: Array, candidates: Array, n_kept: int) -> tuple[Array, Array, Array]:
        """Return the best of the candidates (m, reach), their warps and shifts, each (m, kept), in coarse order."""
        xp, prepared, reach = namespace(queries), self.prepared, candidates.shape[1]
        shifted = prepared.shift_coefficients(queries)
        warped = prepared.warped[candidates].reshape(len(queries), -1, prepared.rank)
        products = (warped @ shifted.transpose(1, 2)).reshape(len(queries), reach, -1)
        scores, motions = products.max(2)
        kept = scores.topk(min(n_kept, reach), 1).indices.sort(1).values
        motions = xp.gather(motions, 1, kept)
        n_shifts = len(self.bank.shifts)
        return xp.gather(candidates, 1, kept), motions // n_shifts, motions % n_shifts

    def _pair_distances(
        self, queries: Array, others: Array, warps: Array, shifts: Array, tell: Callable[[float], None]
    ) -> Array:
        """Return the root mean squared context difference of each pair, after its best motion and a local warp.

        ``others`` (m, kept) are the training images that each query is compared with, ``warps`` and ``shifts`` (m,
        kept) the best motions of the pairs, as indices into the bank. ``tell`` gets the share that is done.
        """
        xp, margin = namespace(queries), self.effort.context
        height, width = self.size.shape
        window_y, window_x = (self.deformation.pixels(self.deformation.window, side) for side in (height, width))
        if has_kernels(queries):
            kernels = self._kernels((window_y, window_x))
            totals = kernels.of(queries, others, warps, shifts, lambda share: tell(0.5 + 0.5 * share))
            return xp.sqrt(totals / (2.0 * (2 * margin + 1) ** 2))
        rows = xp.arange(len(queries), device=queries.device)[:, None].expand_as(others)
        flat = [values.reshape(-1) for values in (rows, others, warps, shifts)]
        totals = xp.empty(flat[0].shape, dtype=queries.dtype, device=queries.device)
        per_pair = 12 * queries.shape[1] * (height + 2 * margin) * (width + 2 * margin)
        step = max(1, _BATCH // per_pair)
        # Pairs with the same shift are compared together, so that every comparison is a slice and nothing is gathered.
        order = xp.argsort(flat[3], stable=True)
        ends = np.cumsum(to_numpy(xp.bincount(flat[3], minlength=len(self.bank.shifts))))
        for shift, stop in enumerate(ends):
            start = 0 if shift == 0 else int(ends[shift - 1])
            for low in range(start, int(stop), step):
                chosen = order[low : min(low + step, int(stop))]
                here, other, warp = (values[chosen] for values in flat[:3])
                left = padded_fields(queries[here], self.size.shape, margin)
                right = padded_fields(self.prepared.warp(other, warp), self.size.shape, margin)
                totals[chosen] = distortion(left, right, self.bank.shifts[shift], (window_y, window_x), margin)
                tell(0.5 + 0.5 * (low + len(chosen)) / len(order))
        return xp.sqrt(totals / (2.0 * (2 * margin + 1) ** 2)).reshape(others.shape)

    def _kernels(self, window: tuple[int, int]) -> PairDistances:
        """Return the fused kernels, which compute the same as :func:`distortion`."""
        from tubal.backends.gpu.deformation import PairDistances

        prepared: PreparedTensors = self.prepared
        moves = np.asarray(self.bank.shifts, dtype=np.int32)
        tables = prepared.corners.int(), prepared.weights, restore_like(moves, prepared.images)
        return PairDistances(prepared.images, self.size.shape, *tables, window, self.effort.context)


@dataclass(frozen=True)
class WorkingTensors(WorkingImages):
    """Working images on a device; the few that are taken come to the host."""

    def take(self, chosen: IndexArray | Int32, workspace: Workspace | None = None) -> Float32:
        """Return some images (m, channels, pixels)."""
        held: Array = self.held
        return to_numpy(held[restore_like(np.asarray(chosen, dtype=np.int64), held)])


@dataclass(frozen=True)
class PreparedTensors:
    """Distinct training images (n, channels, pixels) at the working size on a device, and data derived from them."""

    images: Array
    group: IndexArray
    shape: tuple[int, int]
    pooling: Array
    mean: Array
    axes: Array | None
    corners: Array
    weights: Array
    learn: Callable[[], MotionCoefficients]

    @classmethod
    def of(cls, search: DeviceSearch) -> PreparedTensors:
        """Derive everything from the training images of ``search``."""
        found = _working_tensor(search)
        if found is None:
            vars(search).get("_wait", lambda: None)()
            distinct, group = working_images(search, hold=True)
            images = as_like(distinct.held, search.like)
        else:
            images, largest, firsts, group = found
            # Images that differ at the working size differ. Equal ones there may only be constant.
            originals = vars(search)["_tensor"].reshape(len(group), 1, -1)
            equal = (firsts, group) if len(firsts) == len(group) else _equal_tensors(originals)
            if equal is not None:
                vars(search)["equal_groups"] = equal[1]
            distinct = WorkingTensors(search.images, firsts, search.size, largest, images)
        shape = search.size.shape
        pooling = as_like(cell_weights(shape), images)
        pooled = in_batches(lambda batch: _pooled(batch, shape, pooling), images)
        mean, axes = pooled.mean(0), None
        if len(images) > PCA_FROM and pooled.shape[1] > N_COMPONENTS:
            centred = pooled - mean
            axes = as_like(np.linalg.eigh(to_numpy((centred.T @ centred).double()))[1][:, -N_COMPONENTS:], images)
        corners, weights = search.bank.warp_tables()
        return cls(
            images, group, shape, pooling, mean, axes,
            namespace(images).as_tensor(corners.astype(np.int64), device=images.device), as_like(weights, images),
            partial(fit_coefficients, search, distinct),
        )  # fmt: skip

    @cached_property
    def _motions(self) -> tuple[int, Array, Array, Array]:
        """Size of the basis of the motions, maps of pixels to coefficients of warps and of shifts, and kept pixels."""
        found = self.learn()
        maps = (as_like(part, self.images) for part in (found.warp_map, found.shift_map, found.kept_pixels().T))
        return found.rank, *maps

    @property
    def rank(self) -> int:
        """Size of the basis of the motions."""
        return self._motions[0]

    @cached_property
    def descriptors(self) -> Array:
        """Unit descriptors of the training images."""
        return in_batches(self.descriptors_of, self.images)

    def descriptors_of(self, images: Array) -> Array:
        """Return unit descriptors (m, dimensions) of images."""
        centred = _pooled(images, self.shape, self.pooling) - self.mean
        projected = centred if self.axes is None else centred @ self.axes
        return projected * _inverse_length((projected * projected).sum(1, keepdims=True))

    @cached_property
    def _warped(self) -> tuple[Array, Array]:
        n_warps = len(self.corners)
        if has_kernels(self.images):
            from tubal.backends.gpu.deformation import warp_energies

            energy = warp_energies(self.images, self.corners.int(), self.weights, self.shape)
        else:
            energy = in_batches(self._warp_energies, self.images)
        flat = (self.images.reshape(len(self.images), -1) @ self._motions[1]).reshape(len(self.images), n_warps, -1)
        return flat * _inverse_length(energy)[:, :, None], energy.amax(1)

    def _warp_energies(self, images: Array) -> Array:
        """Return the energy of the gradient of every warp, (m, warps)."""
        tables = zip(self.corners, self.weights, strict=True)
        energies = [self.energy_of(_moved(images, corners, weights)) for corners, weights in tables]
        return namespace(images).stack(energies, 1)

    @property
    def warped(self) -> Array:
        """Coefficients (n, warps, rank) of every warp's unit field."""
        return self._warped[0]

    @property
    def energies(self) -> Array:
        """The largest energy of each image's warps, (n,); zero for a blank image."""
        return self._warped[1]

    def energy_of(self, images: Array) -> Array:
        """Return the energy of the gradient of images, (m,)."""
        fields = sobel(images, self.shape)
        return (fields * fields).sum((1, 2, 3))

    def shift_coefficients(self, images: Array) -> Array:
        """Return coefficients (m, shifts, rank); the energy of pixels shifted outside the image is not counted."""
        fields = sobel(images, self.shape)
        _, _, shift_map, kept_pixels = self._motions
        kept = (fields * fields).sum(1).reshape(len(images), -1) @ kept_pixels
        flat = (images.reshape(len(images), -1) @ shift_map).reshape(len(images), kept.shape[1], -1)
        return flat * _inverse_length(kept)[:, :, None]

    def warp(self, others: Array, warps: Array) -> Array:
        """Return images ``others`` (pairs,), each moved by its own warp, (pairs, channels, pixels)."""
        return _moved(self.images[others], self.corners[warps], self.weights[warps])


def has_kernels(tensor: Array) -> bool:
    """Tell whether the fused kernels apply: the tensor is on a CUDA device, and Triton is installed."""
    return bool(tensor.is_cuda) and find_spec("triton") is not None


def _working_tensor(search: DeviceSearch) -> tuple[Array, float, IndexArray, IndexArray] | None:
    """Return distinct images at the working size, from those on the device, and the largest value of the originals.

    Then follow the first image of each group of equal ones, and the group of every image. Return None if the images
    are not on the device or have another size: the host then prepares them.
    """
    tensor, size = vars(search).get("_tensor"), search.size
    if tensor is None or size.shape != size.source:
        return None
    planes = tensor.reshape(len(tensor), size.shape[0] * size.shape[1], -1).transpose(1, 2)
    xp, largest = namespace(planes), float(abs(planes).max()) or 1.0

    def shrink(part: Array) -> Array:
        # A constant plane becomes exactly zero, so that rounding errors do not count as a gradient.
        flat = part.amax(2, keepdims=True) - part.amin(2, keepdims=True) <= 1e-6 * abs(part).amax(2, keepdims=True)
        return xp.where(flat, 0.0, part / largest).to(search.like.dtype).contiguous()

    images = in_batches(shrink, planes)
    copies = _equal_tensors(images)
    if copies is None:
        return None
    firsts, group = copies
    distinct = images if len(firsts) == len(images) else images[restore_like(firsts, images)]
    return distinct, largest, firsts, group


def _equal_tensors(images: Array) -> tuple[IndexArray, IndexArray] | None:
    """Return what :func:`exact_copies` does, or None in the rare case that different images have equal sums of bits."""
    sums = to_numpy(in_batches(_bit_sums, images))
    _, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    group, firsts = rank[inverse], first[order]
    copies = np.flatnonzero(firsts[group] != np.arange(len(group)))
    ends = (restore_like(numbers, images) for numbers in (copies, firsts[group[copies]]))
    one, other = (images[numbers] for numbers in ends)
    return (firsts, group) if bool((one == other).all()) else None


def _bit_sums(images: Array) -> Array:
    """Return weighted sums (m,) of the bits of images; images with different sums are different."""
    xp = namespace(images)
    bits = (images + 0.0).reshape(len(images), -1).view(xp.int32)  # equal zeros get equal bits
    weights = np.random.default_rng(0).integers(2**63, size=bits.shape[1])
    return (bits.long() * restore_like(weights, images)).sum(1)


def in_batches(work: Callable[[Array], Array], images: Array) -> Array:
    """Return ``work(images)``, computed in batches whose fields fit the working memory."""
    step = max(1, _BATCH // (16 * images.shape[1] * images.shape[2]))
    parts = [work(images[start : start + step]) for start in range(0, len(images), step)]
    return namespace(images).concatenate(parts)


def _moved(images: Array, corners: Array, weights: Array) -> Array:
    """Return images (m, channels, pixels) moved by one table (4, pixels), or by one for each (m, 4, pixels)."""
    xp = namespace(images)
    one = corners.ndim == 2
    total = xp.zeros_like(images)
    for corner in range(4):
        if one:
            total += weights[corner] * images[:, :, corners[corner]]
        else:
            sources = corners[:, None, corner].expand_as(images)
            total += weights[:, None, corner] * xp.gather(images, 2, sources)
    return total


def sobel(images: Array, shape: tuple[int, int]) -> Array:
    """Return Sobel derivatives, down and right, (m, 2 channels, h, w) of images (m, channels, pixels)."""
    height, width = shape
    planes = images.reshape(*images.shape[:2], height, width)
    framed = _replicated(planes, 1)
    across = framed[..., :-2] + 2.0 * framed[..., 1:-1] + framed[..., 2:]
    down = framed[..., :-2, :] + 2.0 * framed[..., 1:-1, :] + framed[..., 2:, :]
    rising, right = across[..., 2:, :] - across[..., :-2, :], down[..., 2:] - down[..., :-2]
    return namespace(images).stack([rising, right], 2).reshape(len(images), -1, height, width)


def padded_fields(images: Array, shape: tuple[int, int], margin: int) -> Array:
    """Return unit gradient fields with ``margin`` replicated pixels on every side; blank images keep a zero field."""
    fields = sobel(images, shape)
    fields = fields * _inverse_length((fields * fields).sum((1, 2, 3), keepdims=True))
    return _replicated(fields, margin) if margin else fields


def distortion(left: Array, right: Array, shift: tuple[int, int], window: tuple[int, int], margin: int) -> Array:
    """Return the smallest squared context difference within the window, summed over both images' pixels, (pairs,).

    ``left`` and ``right`` are padded fields; the window lies around ``shift``. One pass over the offsets covers the
    pixels of both images.
    """
    xp = namespace(left)
    height, width = left.shape[2] - 2 * margin, left.shape[3] - 2 * margin
    least_left = xp.full((len(left), height, width), _NO_PARTNER, dtype=left.dtype, device=left.device)
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
    # A window narrower than the shift leaves border pixels without a partner; they get the mean of the others.
    both = xp.stack([least_left, least_right])
    matched = both < _NO_PARTNER
    n_matched = matched.sum((0, 2, 3)).clamp(min=1)
    return xp.where(matched, both, 0.0).sum((0, 2, 3)) * (2.0 * height * width / n_matched)


def _pooled(images: Array, shape: tuple[int, int], pooling: Array) -> Array:
    """Return rectified gradients pooled over the cells, (m, 4 channels * cells)."""
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
