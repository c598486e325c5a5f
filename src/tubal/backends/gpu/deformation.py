"""The deformable distance of image pairs as Triton kernels; imported only for CUDA tensors, if Triton is installed.

A pair is a query, and a training image after one of its warps. Three kernels follow each other for a batch of pairs:
warped images, their unit gradient fields, and the distortion of fields. One program works on one pair. A field is a few
kilobytes, so nearly all reads come from the cache of a multiprocessor, and pixels beyond a border are read at the
border itself; nothing is padded.
"""

# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from tubal.backends.arrays import Array

# Pairs of one batch, whose warped images and fields are in memory.
BATCH = 2**17
# Warps of threads that work on one pair.
WARPS = 4
# A pixel without a partner; squared differences of unit fields are much smaller.
NO_PARTNER = tl.constexpr(1e6)


@triton.jit
def _warp_kernel(
    images, others, warps, corners, shares, warped,
    CHANNELS: tl.constexpr, PIXELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Move each image by its warp: every pixel is the mean of four corners, weighted by shares."""
    pair = tl.program_id(0).to(tl.int64)
    pixels = tl.arange(0, TILE)
    inside = pixels < PIXELS
    image = images + tl.load(others + pair).to(tl.int64) * (CHANNELS * PIXELS)
    table = tl.load(warps + pair).to(tl.int64) * (4 * PIXELS)
    for channel in tl.static_range(CHANNELS):
        total = tl.zeros((TILE,), tl.float32)
        for corner in tl.static_range(4):
            at = table + corner * PIXELS + pixels
            source = tl.load(corners + at, mask=inside, other=0)
            share = tl.load(shares + at, mask=inside, other=0.0)
            total += share * tl.load(image + channel * PIXELS + source, mask=inside, other=0.0)
        tl.store(warped + (pair * CHANNELS + channel) * PIXELS + pixels, total, mask=inside)


@triton.jit
def _field_kernel(
    images, fields, energies,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, WRITE: tl.constexpr,
):  # fmt: skip
    """Write the energy of each image's Sobel derivatives and, with ``WRITE``, these scaled to unit length.

    Of each pixel, the derivatives down and right lie side by side.
    """
    image = tl.program_id(0).to(tl.int64)
    pixels = tl.arange(0, TILE)
    size: tl.constexpr = HEIGHT * WIDTH
    energy = tl.zeros((), tl.float32)
    for channel in tl.static_range(CHANNELS):
        down, right = _derivatives(images + (image * CHANNELS + channel) * size, pixels, HEIGHT, WIDTH)
        energy += tl.sum(down * down + right * right, 0)
    tl.store(energies + image, energy)
    if WRITE:
        scale = tl.where(energy > 0, tl.rsqrt(tl.maximum(energy, 1e-30)), 0.0)
        for channel in tl.static_range(CHANNELS):
            down, right = _derivatives(images + (image * CHANNELS + channel) * size, pixels, HEIGHT, WIDTH)
            to = fields + (image * CHANNELS + channel) * (2 * size) + 2 * pixels
            tl.store(to, down * scale, mask=pixels < size)
            tl.store(to + 1, right * scale, mask=pixels < size)


@triton.jit
def _derivatives(at, pixels, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Return the Sobel derivatives of one plane, down and right; its border is replicated."""
    inside = pixels < HEIGHT * WIDTH
    y, x = pixels // WIDTH, pixels % WIDTH
    above, below = tl.maximum(y - 1, 0) * WIDTH, tl.minimum(y + 1, HEIGHT - 1) * WIDTH
    left, right = tl.maximum(x - 1, 0), tl.minimum(x + 1, WIDTH - 1)
    nw, n, ne = _read(at, above + left, inside), _read(at, above + x, inside), _read(at, above + right, inside)
    w, e = _read(at, y * WIDTH + left, inside), _read(at, y * WIDTH + right, inside)
    sw, s, se = _read(at, below + left, inside), _read(at, below + x, inside), _read(at, below + right, inside)
    return (sw - nw) + 2.0 * (s - n) + (se - ne), (ne - nw) + 2.0 * (e - w) + (se - sw)


@triton.jit
def _read(at, offsets, inside):
    return tl.load(at + offsets, mask=inside, other=0.0)


@triton.jit
def _pair(at):
    """Return two numbers that lie side by side, read as one."""
    both = tl.load(at)
    return both.to(tl.int32).to(tl.float32, bitcast=True), (both >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _row_difference(
    one, other, y, x, move_y, move_x,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, MARGIN: tl.constexpr,
):  # fmt: skip
    """Return squared differences (move, column) of a row and the moved row, summed over the contexts' columns."""
    total = tl.zeros((move_y.shape[0], x.shape[0]), tl.float32)
    here = tl.minimum(tl.maximum(y, 0), HEIGHT - 1) * WIDTH
    there = tl.minimum(tl.maximum(y + move_y, 0), HEIGHT - 1)[:, None] * WIDTH
    for step in tl.static_range(2 * MARGIN + 1):
        column = x + (step - MARGIN)
        own = tl.minimum(tl.maximum(column, 0), WIDTH - 1)
        moved = tl.minimum(tl.maximum(column[None, :] + move_x[:, None], 0), WIDTH - 1)
        for channel in tl.static_range(CHANNELS):
            start = channel * (HEIGHT * WIDTH)
            down, right = _pair(one + (start + here + own))
            other_down, other_right = _pair(other + (start + there + moved))
            first, second = down[None, :] - other_down, right[None, :] - other_right
            total += first * first + second * second
    return total


@triton.jit
def _one_side(
    one, other, move_y, move_x, allowed,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, MARGIN: tl.constexpr, COLUMNS: tl.constexpr,
    EXCHANGE: tl.constexpr,
):  # fmt: skip
    """Return the sum of the smallest squared context differences of one image's pixels, and how many have a partner."""
    x = tl.arange(0, COLUMNS)
    in_row = allowed[:, None] & (x[None, :] < WIDTH)
    in_row = in_row & (x[None, :] + move_x[:, None] >= 0) & (x[None, :] + move_x[:, None] < WIDTH)
    total, matched = tl.zeros((COLUMNS,), tl.float32), tl.zeros((COLUMNS,), tl.float32)
    # Differences of the last rows; one more row completes the contexts of a row of pixels.
    # Each is a tensor of its own: the compiler does not carry a variable along that begins as another name of one.
    first = tl.zeros((move_y.shape[0], COLUMNS), tl.float32)
    second = tl.zeros((move_y.shape[0], COLUMNS), tl.float32)
    third = tl.zeros((move_y.shape[0], COLUMNS), tl.float32)
    fourth = tl.zeros((move_y.shape[0], COLUMNS), tl.float32)
    for number in range(HEIGHT + 2 * MARGIN):
        row = number - MARGIN
        if EXCHANGE:
            single = _row_difference(one, other, row, x - MARGIN, move_y, move_x, CHANNELS, HEIGHT, WIDTH, 0)
            new = single
            for step in tl.static_range(1, 2 * MARGIN + 1):
                beside = tl.minimum(x + step, COLUMNS - 1)[None, :]
                new += tl.gather(single, tl.broadcast_to(beside, (move_y.shape[0], COLUMNS)), 1)
        else:
            new = _row_difference(one, other, row, x, move_y, move_x, CHANNELS, HEIGHT, WIDTH, MARGIN)
        context = new
        if MARGIN == 1:
            context = new + first + second
        if MARGIN == 2:
            context = (new + first) + (second + third) + fourth
        fourth = third
        third = second
        second = first
        first = new
        y = row - MARGIN
        partner = in_row & ((y + move_y >= 0) & (y + move_y < HEIGHT) & (y >= 0))[:, None]
        least = tl.min(tl.where(partner, context, NO_PARTNER), 0)
        total += tl.where(least < NO_PARTNER, least, 0.0)
        matched += tl.where(least < NO_PARTNER, 1.0, 0.0)
    return tl.sum(total, 0), tl.sum(matched, 0)


@triton.jit
def _distortion_kernel(
    fields, others, shifts, moves, totals, n_kept,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, MARGIN: tl.constexpr,
    WINDOW_Y: tl.constexpr, WINDOW_X: tl.constexpr, COLUMNS: tl.constexpr, MOVES: tl.constexpr, EXCHANGE: tl.constexpr,
):  # fmt: skip
    """Write the distortion of each pair: a query's field, the field of a warped image, and the pair's shift."""
    pair = tl.program_id(0).to(tl.int64)
    size: tl.constexpr = CHANNELS * HEIGHT * WIDTH  # pairs of derivatives
    one, other = fields + pair // n_kept * size, others + pair * size
    shift = tl.load(shifts + pair)
    number = tl.arange(0, MOVES)
    allowed = number < (2 * WINDOW_Y + 1) * (2 * WINDOW_X + 1)
    move_y = tl.load(moves + 2 * shift) - WINDOW_Y + number // (2 * WINDOW_X + 1)
    move_x = tl.load(moves + 2 * shift + 1) - WINDOW_X + number % (2 * WINDOW_X + 1)
    left, n_left = _one_side(one, other, move_y, move_x, allowed, CHANNELS, HEIGHT, WIDTH, MARGIN, COLUMNS, EXCHANGE)
    right, n_right = _one_side(
        other, one, -move_y, -move_x, allowed, CHANNELS, HEIGHT, WIDTH, MARGIN, COLUMNS, EXCHANGE
    )
    # Pixels without a partner count as the mean of the others.
    tl.store(totals + pair, (left + right) * (2.0 * HEIGHT * WIDTH) / tl.maximum(n_left + n_right, 1.0))


@dataclass(frozen=True)
class PairDistances:
    """The distortion of many pairs of images of one size.

    ``images`` (n, channels, pixels) are moved by warps, given by ``corners`` and ``shares`` (warps, 4, pixels), and by
    ``shifts`` (shifts, 2), down and right. ``window`` is how far single pixels may move, and ``context`` the radius of
    their surroundings.
    """

    images: Array
    shape: tuple[int, int]
    corners: Array
    shares: Array
    shifts: Array
    window: tuple[int, int]
    context: int

    def of(self, queries: Array, others: Array, warps: Array, shifts: Array, tell: Callable[[float], None]) -> Array:
        """Return the distortions (m, kept) of queries and the images they are compared with.

        ``others``, ``warps`` and ``shifts`` (m, kept) say with which images, and after which motion. ``tell`` gets the
        share of the queries that is done.
        """
        n_queries, n_kept = others.shape
        totals = torch.empty((n_queries, n_kept), dtype=torch.float32, device=queries.device)
        step = max(1, BATCH // n_kept)
        for start in range(0, n_queries, step):
            own = slice(start, start + step)
            other, warp, shift = (part[own].int().reshape(-1) for part in (others, warps, shifts))
            fields = self.unit_fields(queries[own].contiguous())
            self._distortions(
                fields,
                self.unit_fields(warped_images(self.images, other, warp, self.corners, self.shares)),
                shift,
                totals[own],
            )
            tell(min(1.0, (start + step) / n_queries))
        return totals

    def unit_fields(self, images: Array) -> Array:
        """Return the unit gradient fields (m, channels, pixels) of images; each entry is a pair of derivatives."""
        fields = torch.empty((*images.shape, 2), dtype=torch.float32, device=images.device)
        _run_field_kernel(images, self.shape, fields)
        return fields.view(torch.int64)[..., 0]

    def _distortions(self, fields: Array, others: Array, shifts: Array, totals: Array) -> None:
        """Write the distortions (m, kept) of fields of queries and those of the images they are compared with."""
        n_moves = (2 * self.window[0] + 1) * (2 * self.window[1] + 1)
        n_columns, n_rows = triton.next_power_of_2(self.shape[1]), triton.next_power_of_2(n_moves)
        # In one warp, threads exchange differences at once, so each is computed a single time; 28 x 28 pixels take half
        # as long. It needs columns beside the image, and as many numbers as the registers of a warp hold.
        exchange = self.shape[1] + 2 * self.context <= n_columns and n_rows * n_columns == 1024
        _distortion_kernel[(len(others),)](
            fields, others, shifts, self.shifts, totals, totals.shape[1], others.shape[1], *self.shape, self.context,
            *self.window, n_columns, n_rows, exchange, num_warps=1 if exchange else WARPS,
        )  # fmt: skip


def warped_images(images: Array, others: Array, warps: Array, corners: Array, shares: Array) -> Array:
    """Return some images, each moved by its warp, (pairs, channels, pixels)."""
    _, n_channels, n_pixels = images.shape
    warped = torch.empty((len(others), n_channels, n_pixels), dtype=torch.float32, device=images.device)
    tile = triton.next_power_of_2(n_pixels)
    _warp_kernel[(len(others),)](
        images, others, warps, corners, shares, warped, n_channels, n_pixels, tile, num_warps=4
    )  # fmt: skip
    return warped


def warp_energies(images: Array, corners: Array, shares: Array, shape: tuple[int, int]) -> Array:
    """Return the energy of the gradient of every warp of images (n, channels, pixels), (n, warps)."""
    n_warps = len(corners)
    every = torch.arange(len(images) * n_warps, dtype=torch.int32, device=images.device)
    energies = torch.empty(len(every), dtype=torch.float32, device=images.device)
    for start in range(0, len(every), BATCH):
        part = every[start : start + BATCH]
        warped = warped_images(images, part // n_warps, part % n_warps, corners, shares)
        _run_field_kernel(warped, shape, None, energies[start : start + BATCH])
    return energies.reshape(len(images), n_warps)


def _run_field_kernel(
    images: Array, shape: tuple[int, int], fields: Array | None, energies: Array | None = None
) -> None:
    """Write the energies of images and, if they are wanted, the unit fields."""
    if energies is None:
        energies = torch.empty(len(images), dtype=torch.float32, device=images.device)
    tile = triton.next_power_of_2(images.shape[2])
    _field_kernel[(len(images),)](
        images, images if fields is None else fields, energies, images.shape[1], *shape, tile, fields is not None,
        num_warps=4,
    )  # fmt: skip
