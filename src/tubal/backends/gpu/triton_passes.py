"""The passes of one ADMM step as Triton kernels; imported only for CUDA tensors, and only if Triton is installed.

Products run on tensor cores with three TF32 terms each (``tf32x3``). That keeps single precision: a relative error near
1e-6, against 5e-4 for plain TF32. Sums per image are written per atom and added afterwards in a fixed order, so two
runs agree bit for bit.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tubal.backends.arrays import Array
from tubal.backends.gpu.passes import Couplings, PlainPasses, Shrinkage

# Tile sizes measured on an H200 with 20 000 images, tube length 32, 45 atoms. Times in ms: relax 0.18, apply 0.20
# (cuBLAS in single precision 0.34, in TF32 0.22), rotate 0.19 (cuBLAS 0.30), rotate back 0.19 (cuBLAS 0.21),
# defect 0.12, smooth 0.07 to 0.12.
RELAX_TILE = {"WIDTH": 64, "num_warps": 4}
APPLY_TILE = {"ROWS": 32, "INNER": 16, "WIDTH": 128, "num_warps": 4, "num_stages": 3}
ROTATE_TILE = {"ROWS": 32, "INNER": 16, "WIDTH": 64, "num_warps": 2, "num_stages": 3}
BACK_TILE = {"ROWS": 32, "INNER": 16, "WIDTH": 128, "num_warps": 4, "num_stages": 2}
SMOOTH_TILE = {"WIDTH": 512, "num_warps": 1}
# Longer tubes do not fit into one tile; they use plain torch.
LARGEST_TUBE = 128


@triton.jit
def _reflected(values, bound):
    """Return ``values - 2 clip(values)``."""
    clipped = tl.minimum(tl.maximum(values, -bound), bound)
    return values - clipped - clipped


@triton.jit
def _transformed(basis, values, UNIT_TUBE: tl.constexpr):
    """Return ``basis @ values``; a tube of length one needs no transform."""
    return values if UNIT_TUBE else tl.dot(basis, values, input_precision="tf32x3")


@triton.jit
def _reflect_kernel(
    point, reflected, basis, n_samples, point_time, point_atom, hat_coefficient, hat_atom, bound,
    TIMES: tl.constexpr, COEFFICIENTS: tl.constexpr, TIME_TILE: tl.constexpr, HAT_TILE: tl.constexpr,
    WIDTH: tl.constexpr, UNIT_TUBE: tl.constexpr,
):  # fmt: skip
    """See :meth:`PlainPasses.reflect`."""
    samples = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    atom = tl.program_id(1).to(tl.int64)
    times, coefficients = tl.arange(0, TIME_TILE), tl.arange(0, HAT_TILE)
    inside = samples[None, :] < n_samples
    time_mask, hat_mask = (times[:, None] < TIMES) & inside, (coefficients[:, None] < COEFFICIENTS) & inside
    at = atom * point_atom + times[:, None].to(tl.int64) * point_time + samples[None, :]
    values = _reflected(tl.load(point + at, mask=time_mask, other=0.0), bound)
    turn = tl.load(
        basis + coefficients[:, None] * TIMES + times[None, :],
        mask=(coefficients[:, None] < COEFFICIENTS) & (times[None, :] < TIMES), other=0.0,
    )  # fmt: skip
    to = atom * hat_atom + coefficients[:, None].to(tl.int64) * hat_coefficient + samples[None, :]
    tl.store(reflected + to, _transformed(turn, values, UNIT_TUBE), mask=hat_mask)


@triton.jit
def _relax_kernel(
    point, solved, reflected, active, moved, size, basis, n_samples, point_time, point_atom, hat_coefficient, hat_atom,
    sums_atom, bound, relaxation,
    TIMES: tl.constexpr, COEFFICIENTS: tl.constexpr, TIME_TILE: tl.constexpr, HAT_TILE: tl.constexpr,
    WIDTH: tl.constexpr, UNIT_TUBE: tl.constexpr, MASKED: tl.constexpr, REFLECT: tl.constexpr, MEASURE: tl.constexpr,
):  # fmt: skip
    """See :meth:`PlainPasses.relax`."""
    samples = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    atom = tl.program_id(1).to(tl.int64)
    times, coefficients = tl.arange(0, TIME_TILE), tl.arange(0, HAT_TILE)
    inside = samples[None, :] < n_samples
    time_mask, hat_mask = (times[:, None] < TIMES) & inside, (coefficients[:, None] < COEFFICIENTS) & inside
    at = atom * point_atom + times[:, None].to(tl.int64) * point_time + samples[None, :]
    to = atom * hat_atom + coefficients[:, None].to(tl.int64) * hat_coefficient + samples[None, :]
    here = tl.load(point + at, mask=time_mask, other=0.0)
    hat = tl.load(solved + to, mask=hat_mask, other=0.0)
    back = tl.load(
        basis + coefficients[None, :] * TIMES + times[:, None],
        mask=(coefficients[None, :] < COEFFICIENTS) & (times[:, None] < TIMES), other=0.0,
    )  # fmt: skip
    clipped = tl.minimum(tl.maximum(here, -bound), bound)
    move = _transformed(back, hat, UNIT_TUBE) + clipped - here
    if MEASURE:
        sums = atom * sums_atom + samples
        tl.store(moved + sums, tl.sum(move * move, 0), mask=samples < n_samples)
        tl.store(size + sums, tl.sum(here * here, 0), mask=samples < n_samples)
    if MASKED:
        move = move * tl.load(active + samples, mask=samples < n_samples, other=0.0)[None, :]
    there = here + relaxation * move
    tl.store(point + at, there, mask=time_mask)
    if REFLECT:
        turn = tl.load(
            basis + coefficients[:, None] * TIMES + times[None, :],
            mask=(coefficients[:, None] < COEFFICIENTS) & (times[None, :] < TIMES), other=0.0,
        )  # fmt: skip
        tl.store(reflected + to, _transformed(turn, _reflected(there, bound), UNIT_TUBE), mask=hat_mask)


@triton.jit
def _tile(blocks, rows, here, n_rows, n_inner, blocks_row, blocks_inner):
    """Load one tile of a block operator, zero outside it."""
    return tl.load(
        blocks + rows[:, None] * blocks_row + here[None, :] * blocks_inner,
        mask=(rows[:, None] < n_rows) & (here[None, :] < n_inner), other=0.0,
    )  # fmt: skip


@triton.jit
def _put(target, offset, total, rows, wide, n_rows, n_samples, target_row, target_sample, OFFSET: tl.constexpr):
    """Store one tile of a product, plus ``offset`` if ``OFFSET`` is set."""
    to = rows[:, None].to(tl.int64) * target_row + wide * target_sample
    mask = (rows[:, None] < n_rows) & (wide < n_samples)
    if OFFSET:
        total += tl.load(offset + to, mask=mask, other=0.0)
    tl.store(target + to, total, mask=mask)


@triton.jit
def _apply_kernel(
    blocks, source, offset, target, n_rows, n_inner, n_samples, blocks_block, blocks_row, blocks_inner,
    source_block, source_inner, source_sample, target_block, target_row, target_sample,
    ROWS: tl.constexpr, INNER: tl.constexpr, WIDTH: tl.constexpr, OFFSET: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Multiply every block with its images and add ``offset``; all three products of the class use it."""
    # One program computes up to three tiles of rows, so that it loads its images and splits them into TF32 terms once.
    rows = tl.program_id(0) * (ROWS * GROUP) + tl.arange(0, ROWS)
    samples = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    block = tl.program_id(2).to(tl.int64)
    blocks += block * blocks_block
    source += block * source_block
    target += block * target_block
    offset += block * target_block
    wide = samples[None, :].to(tl.int64)
    first = tl.zeros((ROWS, WIDTH), tl.float32)
    second = tl.zeros((ROWS, WIDTH), tl.float32)
    third = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, n_inner, INNER):
        here = start + tl.arange(0, INNER)
        right = tl.load(
            source + here[:, None].to(tl.int64) * source_inner + wide * source_sample,
            mask=(here[:, None] < n_inner) & (wide < n_samples), other=0.0,
        )  # fmt: skip
        left = _tile(blocks, rows, here, n_rows, n_inner, blocks_row, blocks_inner)
        first = tl.dot(left, right, first, input_precision="tf32x3")
        if GROUP > 1:
            left = _tile(blocks, rows + ROWS, here, n_rows, n_inner, blocks_row, blocks_inner)
            second = tl.dot(left, right, second, input_precision="tf32x3")
        if GROUP > 2:
            left = _tile(blocks, rows + 2 * ROWS, here, n_rows, n_inner, blocks_row, blocks_inner)
            third = tl.dot(left, right, third, input_precision="tf32x3")
    _put(target, offset, first, rows, wide, n_rows, n_samples, target_row, target_sample, OFFSET)
    if GROUP > 1:
        _put(target, offset, second, rows + ROWS, wide, n_rows, n_samples, target_row, target_sample, OFFSET)
    if GROUP > 2:
        _put(target, offset, third, rows + 2 * ROWS, wide, n_rows, n_samples, target_row, target_sample, OFFSET)


@triton.jit
def _neighbor_sum(pointers, columns, weights, values, sample, rows, inside, n_rows, WIDTH: tl.constexpr):
    """Return the weighted sum of the neighbours of one image, for some rows."""
    total = tl.zeros((WIDTH,), tl.float32)
    for entry in range(tl.load(pointers + sample), tl.load(pointers + sample + 1)):
        column, weight = tl.load(columns + entry).to(tl.int64), tl.load(weights + entry)
        total += weight * tl.load(values + column * n_rows + rows, mask=inside, other=0.0).to(tl.float32)
    return total


# In the next two kernels images are the fastest grid axis. Programs that run together then share a strip of rows, and
# its codes stay in the cache.
@triton.jit
def _defect_kernel(
    pointers, columns, weights, diagonal, shifts, right, solution, target, n_rows, WIDTH: tl.constexpr,
):  # fmt: skip
    """See :meth:`PlainPasses.defect`."""
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = rows < n_rows
    at = sample * n_rows + rows
    total = tl.load(right + at, mask=inside, other=0.0)
    total += _neighbor_sum(pointers, columns, weights, solution, sample, rows, inside, n_rows, WIDTH)
    step = total / (tl.load(diagonal + sample) + tl.load(shifts + rows, mask=inside, other=1.0))
    step -= tl.load(solution + at, mask=inside, other=0.0)
    tl.store(target + at, step.to(target.dtype.element_ty), mask=inside)


@triton.jit
def _smooth_kernel(
    pointers, columns, weights, diagonal, shifts, defect, now, before, step_weights, target, n_rows,
    WIDTH: tl.constexpr, PLAIN: tl.constexpr, FROM_ZERO: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """See :meth:`PlainPasses.smooth`."""
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = rows < n_rows
    at = sample * n_rows + rows
    total = _neighbor_sum(pointers, columns, weights, now, sample, rows, inside, n_rows, WIDTH)
    step = total / (tl.load(diagonal + sample) + tl.load(shifts + rows, mask=inside, other=1.0))
    step += tl.load(defect + at, mask=inside, other=0.0).to(tl.float32)
    if not PLAIN:
        step_weight = tl.load(step_weights + rows, mask=inside, other=0.0)
        if FROM_ZERO:
            step *= step_weight
        else:
            old = tl.load(before + at, mask=inside, other=0.0).to(tl.float32)
            step = old + step_weight * (step - old)
    if ADD:
        step += tl.load(target + at, mask=inside, other=0.0)
    tl.store(target + at, step.to(target.dtype.element_ty), mask=inside)


class TritonPasses(PlainPasses):
    """The passes of :class:`PlainPasses`, one Triton kernel each."""

    def __init__(self, basis: Array) -> None:
        super().__init__(basis)
        n_coefficients, n_times = basis.shape
        unit_tube = n_times == 1
        least = 1 if unit_tube else 16  # the smallest tile that tensor cores accept
        self.tiles = {
            "TIMES": n_times,
            "COEFFICIENTS": n_coefficients,
            "TIME_TILE": max(least, triton.next_power_of_2(n_times)),
            "HAT_TILE": max(least, triton.next_power_of_2(n_coefficients)),
            "UNIT_TUBE": unit_tube,
        }

    def reflect(self, point: Array, shrinkage: Shrinkage, reflected: Array) -> None:
        """See :meth:`PlainPasses.reflect`."""
        _, n_atoms, n_samples = point.shape
        grid = (triton.cdiv(n_samples, RELAX_TILE["WIDTH"]), n_atoms)
        _reflect_kernel[grid](
            point, reflected, self.basis, n_samples, point.stride(0), point.stride(1), reflected.stride(0),
            reflected.stride(1), shrinkage.bound, **self.tiles, **RELAX_TILE,
        )  # fmt: skip

    def relax(
        self, point: Array, solved: Array, shrinkage: Shrinkage, active: Array | None, reflected: Array | None,
        moved: Array | None, size: Array | None,
    ) -> None:  # fmt: skip
        """See :meth:`PlainPasses.relax`."""
        _, n_atoms, n_samples = point.shape
        grid = (triton.cdiv(n_samples, RELAX_TILE["WIDTH"]), n_atoms)
        _relax_kernel[grid](
            point, solved, solved if reflected is None else reflected, point if active is None else active,
            point if moved is None else moved, point if size is None else size, self.basis, n_samples,
            point.stride(0), point.stride(1), solved.stride(0), solved.stride(1),
            0 if moved is None else moved.stride(0), shrinkage.bound, shrinkage.relaxation,
            MASKED=active is not None, REFLECT=reflected is not None, MEASURE=moved is not None,
            **self.tiles, **RELAX_TILE,
        )  # fmt: skip

    def apply(self, blocks: Array, source: Array, offset: Array, target: Array) -> None:
        """See :meth:`PlainPasses.apply`."""
        self._multiply(blocks, source, offset, target, APPLY_TILE)

    def rotate(self, offset: Array, pairs: Array, rotation_t: Array, target: Array) -> None:
        """See :meth:`PlainPasses.rotate`."""
        rotation, offset, target = (array.transpose(1, 2) for array in (rotation_t, offset, target))
        self._multiply(rotation, pairs, offset, target, ROTATE_TILE)

    def rotate_back(self, rotation: Array, rows: Array, pairs: Array) -> None:
        """See :meth:`PlainPasses.rotate_back`."""
        self._multiply(rotation, rows.transpose(1, 2), None, pairs, BACK_TILE)

    def _multiply(
        self, blocks: Array, source: Array, offset: Array | None, target: Array, tile: dict[str, int]
    ) -> None:
        """Set ``target`` to ``blocks @ source + offset``, with tiles of the given sizes."""
        n_blocks, n_rows, n_inner = blocks.shape
        n_samples = target.shape[2]
        group = min(3, triton.cdiv(n_rows, tile["ROWS"]))
        grid = (triton.cdiv(n_rows, group * tile["ROWS"]), triton.cdiv(n_samples, tile["WIDTH"]), n_blocks)
        _apply_kernel[grid](
            blocks, source, target if offset is None else offset, target, n_rows, n_inner, n_samples,
            *blocks.stride(), *source.stride(), *target.stride(), OFFSET=offset is not None, GROUP=group, **tile,
        )  # fmt: skip

    def defect(self, couplings: Couplings, shifts: Array, right: Array, solution: Array, target: Array) -> None:
        """See :meth:`PlainPasses.defect`."""
        n_samples, n_rows = right.shape
        grid = (n_samples, triton.cdiv(n_rows, SMOOTH_TILE["WIDTH"]))
        _defect_kernel[grid](
            couplings.pointers, couplings.columns, couplings.weights, couplings.diagonal, shifts, right, solution,
            target, n_rows, **SMOOTH_TILE,
        )  # fmt: skip

    def smooth(
        self, couplings: Couplings, shifts: Array, defect: Array, now: Array, before: Array | None,
        weight: Array | None, target: Array, add: bool,
    ) -> None:  # fmt: skip
        """See :meth:`PlainPasses.smooth`."""
        n_samples, n_rows = defect.shape
        grid = (n_samples, triton.cdiv(n_rows, SMOOTH_TILE["WIDTH"]))
        _smooth_kernel[grid](
            couplings.pointers, couplings.columns, couplings.weights, couplings.diagonal, shifts, defect, now,
            defect if before is None else before, shifts if weight is None else weight, target, n_rows,
            PLAIN=weight is None, FROM_ZERO=before is None, ADD=add, **SMOOTH_TILE,
        )  # fmt: skip
