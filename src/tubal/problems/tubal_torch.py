"""Tubal coding on torch tensors: all arrays stay on the device, and the host does not wait between steps.

One ADMM step without a graph is two kernels: a batched matrix product over frequency pairs, and a pass that transforms
back, relaxes, shrinks, reflects and transforms again. With a graph, each row's shifted system is improved by a few
warm-started Chebyshev steps. Their number follows from the degrees of the graph alone, so no inner product is needed.
"""

from __future__ import annotations

from importlib.util import find_spec
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, as_double, as_like, namespace, to_numpy_together
from tubal.backends.gpu.passes import Couplings, PlainPasses, Shrinkage
from tubal.problems.base import SplitState
from tubal.problems.linear_map import BlockOperator, GraphTerm, TubalMap, fourier_basis, hermitian_parts

# A cycle has this many Chebyshev steps per doubling of the condition number of the slowest graph system.
STEPS_PER_DOUBLING = 0.5
# Images are processed in chunks with this many bytes of codes, so that buffers stay small when there are many images.
CHUNK_BYTES = 2**28


def even_basis(tube_length: int, reference: Array) -> Array:
    """Return the Fourier basis (coefficient, time) with a zero row after the mean if the tube length is odd.

    Then every block is a pair. A tube of length one keeps its single coefficient.
    """
    basis = fourier_basis(tube_length, reference)
    if tube_length % 2 == 0 or tube_length == 1:
        return basis.contiguous()
    return namespace(basis).concatenate([basis[:1], 0.0 * basis[:1], basis[1:]], 0).contiguous()


def even_blocks(operator: BlockOperator) -> Array:
    """Return the blocks of an operator as one batch; the head of an odd tube is padded to a pair."""
    n_head, n_pairs = operator.head.shape[0], operator.pairs.shape[0]
    if n_head == 0:
        return operator.pairs
    if n_pairs == 0:
        return operator.head
    xp = namespace(operator.pairs)
    first = xp.zeros_like(operator.pairs[:1])
    first[:, : operator.head.shape[1], : operator.head.shape[2]] = operator.head
    return xp.concatenate([first, operator.pairs], 0)


def from_even_blocks(blocks: NDArray[Any], tube_length: int) -> BlockOperator:
    """Undo :func:`even_blocks`."""
    rows, inner = blocks.shape[1] // 2, blocks.shape[2] // 2
    if tube_length % 2 == 0:
        return BlockOperator(blocks[:0, :rows, :inner], blocks)
    if tube_length == 1:
        return BlockOperator(blocks, np.zeros((0, 2 * blocks.shape[1], 2 * blocks.shape[2])))
    return BlockOperator(blocks[:1, :rows, :inner], blocks[1:])


class TorchTubalCoding:
    """Runs the iterations of one tubal coding problem on torch tensors; ``data`` is (tube, row, image)."""

    def __init__(self, tubal_map: TubalMap, data: Array, *, sparsity: float, graph: GraphTerm | None) -> None:
        self.map, self.data, self.sparsity, self.graph = tubal_map, data, sparsity, graph
        self.independent = graph is None or not graph.has_edges
        self.torch = namespace(data)
        self.basis = even_basis(tubal_map.tube_length, data)
        self.n_atoms, self.n_samples = tubal_map.n_atoms, data.shape[2]
        self.n_coefficients = self.basis.shape[0]
        self.passes = make_passes(self.basis)
        bytes_per_image = self.n_coefficients * self.n_atoms * data.element_size()
        self.chunk = max(1, min(self.n_samples, CHUNK_BYTES // bytes_per_image))
        self._offsets: dict[tuple[int, float], Array] = {}

    def buffer(self, *shape: int) -> Array:
        """Return uninitialised memory of the type and device of the data."""
        return self.torch.empty(shape, dtype=self.data.dtype, device=self.data.device)

    def spectrum(self, tensor: Array) -> Array:
        """Return the coefficients (block, row of the block, image) of a tensor (time, row, image)."""
        n_times, n_rows, n_samples = tensor.shape
        flat = self.basis @ tensor.reshape(n_times, -1)
        return flat.view(-1, n_rows * min(2, self.n_coefficients), n_samples)

    # --- ADMM ---------------------------------------------------------------------------------------------------------
    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Make Douglas-Rachford steps; the point of the state changes in place."""
        shrinkage = Shrinkage(self.sparsity / penalty, relaxation)
        before = state.movement if self.independent else None
        active = None if before is None else (before > tol).to(self.data.dtype)
        moved, size = self.buffer(self.n_atoms, self.n_samples), self.buffer(self.n_atoms, self.n_samples)
        systems = None
        if self.graph is None:
            self._split_independent(state.point, shrinkage, penalty, n_steps, active, moved, size)
        else:
            systems = state.extra
            if not isinstance(systems, TorchGraphSystems):
                systems = TorchGraphSystems(self, self.graph, state.point, shrinkage, penalty)
            systems.advance(state.point, shrinkage, n_steps, active, moved, size)
        tiny = self.torch.finfo(size.dtype).tiny
        movement = (moved.sum(0) / size.sum(0).clamp(min=tiny)).sqrt()
        if active is not None:
            movement = self.torch.where(active > 0, movement, before)
        return SplitState(state.point, movement, systems)

    def _split_independent(
        self, point: Array, shrinkage: Shrinkage, penalty: float, n_steps: int, active: Array | None, moved: Array,
        size: Array,
    ) -> None:  # fmt: skip
        """Make steps without a graph, a chunk of images at a time, and change ``point`` in place.

        ``active`` (image,) is 0 for images that have converged. ``moved`` and ``size`` (atom, image) are set to the
        squared lengths of the last step and of the point before it.
        """
        inverse = even_blocks(self.map.shifted_inverse(penalty))
        buffers = [self.buffer(self.n_coefficients * self.n_atoms * self.chunk) for _ in (0, 1)]
        for start in range(0, self.n_samples, self.chunk):
            here = slice(start, min(start + self.chunk, self.n_samples))
            part, offset = point[:, :, here], self._offset(here, penalty)
            shape = (self.n_coefficients, self.n_atoms, part.shape[2])
            reflected, solved = (whole[: offset.numel()].view(shape) for whole in buffers)
            pairs, solutions = reflected.view(offset.shape), solved.view(offset.shape)
            active_here = None if active is None else active[here]
            self.passes.reflect(part, shrinkage, reflected)
            for _ in range(n_steps - 1):
                self.passes.apply(inverse, pairs, offset, solutions)
                self.passes.relax(part, solved, shrinkage, active_here, reflected, None, None)
            self.passes.apply(inverse, pairs, offset, solutions)
            self.passes.relax(part, solved, shrinkage, active_here, None, moved[:, here], size[:, here])

    def _offset(self, here: slice, penalty: float) -> Array:
        """Return the constant part of the solution, ``(DᵀD + penalty)⁻¹ Dᵀ x``; that of the last chunk is cached."""
        key = here.start, penalty
        if key not in self._offsets:
            inverse = as_double(even_blocks(self.map.shifted_inverse(penalty)))
            adjoint = as_double(even_blocks(self.map.adjoint))
            self._offsets = {
                key: as_like(inverse @ adjoint / penalty, self.data) @ self.spectrum(self.data[:, :, here])
            }
        return self._offsets[key]

    # --- sums ---------------------------------------------------------------------------------------------------------
    def summarize(
        self, codes: Array, *, statistics: bool
    ) -> tuple[Array, Array, list[tuple[NDArray[np.float64], NDArray[np.float64], float]]]:
        """Return squared residuals and l1 norms (image,) and, if asked for, the statistics of every chunk.

        The statistics are the arguments of ``TubalStatistics.from_parts``. They are NumPy arrays, because the host is
        faster at the small systems of the dictionary step.
        """
        forward = even_blocks(self.map.forward)
        residuals, absolutes, parts = [], [], []
        for start in range(0, self.n_samples, self.chunk):
            here = slice(start, start + self.chunk)
            data_hat, codes_hat = self.spectrum(self.data[:, :, here]), self.spectrum(codes[:, :, here])
            difference = self.torch.baddbmm(data_hat, forward, codes_hat, beta=1.0, alpha=-1.0)
            residuals.append(difference.square_().sum((0, 1)))
            absolutes.append(codes[:, :, here].abs().sum((0, 1)))
            if statistics:
                parts.append(self._statistics(data_hat, codes_hat))
        return self.torch.concatenate(residuals), self.torch.concatenate(absolutes), parts

    def _statistics(self, data_hat: Array, codes_hat: Array) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Return the Hermitian parts of gram and cross products, and ``||X||²``.

        ``data_hat`` is (block, row of the block, image), ``codes_hat`` (block, atom of the block, image).
        """
        data_hat, codes_hat = as_double(data_hat), as_double(codes_hat)
        right = codes_hat.transpose(1, 2)
        gram, cross, squares = to_numpy_together(codes_hat @ right, data_hat @ right, (data_hat**2).sum())
        gram, cross = (hermitian_parts(from_even_blocks(blocks, self.map.tube_length)) for blocks in (gram, cross))
        return gram, cross, float(squares)


class TorchGraphSystems:
    """The graph systems of one ADMM run, as rows (image, row), kept between steps."""

    def __init__(
        self, coding: TorchTubalCoding, graph: GraphTerm, point: Array, shrinkage: Shrinkage, penalty: float
    ) -> None:
        self.coding, self.graph = coding, graph
        self.couplings, largest = couplings_of(graph, coding.data)
        rotation, eigenvalues = coding.map.eigenbasis
        forward = even_blocks(rotation)
        self.forward_t = (penalty * forward).transpose(1, 2).contiguous()
        self.back = forward.transpose(1, 2).contiguous()
        shifts = self._rows_of(eigenvalues).clip(min=0.0) + penalty
        cycle = chebyshev_cycle(largest, shifts, penalty)
        self.shifts, *step_weights = as_like(np.stack([shifts, *cycle]), coding.data)
        # Two cycles, each a plain Jacobi step (None) followed by weighted ones.
        self.weights: list[Array | None] = 2 * [None, *step_weights]
        self.linear = self._rotated_linear(forward)
        self.right = coding.torch.empty_like(self.linear)
        codes = point - point.clamp(-shrinkage.bound, shrinkage.bound)
        self.solution = self._rotated(codes, forward)
        self.corrections = [coding.torch.empty_like(self.linear, dtype=short_type(self.linear)) for _ in range(3)]
        self.spectrum = coding.buffer(coding.n_coefficients, coding.n_atoms, coding.n_samples)

    def _rows_of(self, eigenvalues: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return eigenvalues (tube, atom) as rows, with zeros for the padding coefficient of an odd tube."""
        if eigenvalues.shape[0] != self.coding.n_coefficients:
            eigenvalues = np.insert(eigenvalues, 1, 0.0, axis=0)
        return eigenvalues.reshape(-1)

    def _by_pair(self, rows: Array) -> Array:
        """Return a view of (image, row) as (block, image, row of the block)."""
        n_blocks, _, width = self.forward_t.shape
        return rows.view(-1, n_blocks, width).transpose(0, 1)

    def _rotated(self, tensor: Array, blocks: Array) -> Array:
        """Apply ``blocks`` to the spectrum of a tensor (time, ·, image); return the result as rows (image, row)."""
        pairs = self.coding.spectrum(tensor)
        rows = self.coding.buffer(tensor.shape[2], blocks.shape[0] * blocks.shape[1])
        self._by_pair(rows).copy_(pairs.transpose(1, 2) @ blocks.transpose(1, 2))
        return rows

    def _rotated_linear(self, forward: Array) -> Array:
        """Return the rows of the linear term: ``Dᵀ x`` plus the term of fixed neighbours."""
        linear = self._rotated(self.coding.data, forward @ even_blocks(self.coding.map.adjoint))
        if self.graph.neighbor_sum is None:
            return linear
        return linear + 2.0 * self.graph.weight * self._rotated(self.graph.neighbor_sum, forward)

    def advance(
        self, point: Array, shrinkage: Shrinkage, n_steps: int, active: Array | None, moved: Array, size: Array
    ) -> None:
        """Make steps: rotate, improve the solution of every system, rotate back, relax."""
        passes, spectrum = self.coding.passes, self.spectrum
        pairs = spectrum.view(self.forward_t.shape[0], self.forward_t.shape[1], -1)
        passes.reflect(point, shrinkage, spectrum)
        for step in range(1, n_steps + 1):
            passes.rotate(self._by_pair(self.linear), pairs, self.forward_t, self._by_pair(self.right))
            self.improve(passes)
            passes.rotate_back(self.back, self._by_pair(self.solution), pairs)
            if step < n_steps:
                passes.relax(point, spectrum, shrinkage, active, spectrum, None, None)
            else:
                passes.relax(point, spectrum, shrinkage, active, None, moved, size)

    def improve(self, passes: PlainPasses) -> None:
        """Improve the solution of every system by two Chebyshev cycles on its correction."""
        passes.defect(self.couplings, self.shifts, self.right, self.solution, self.corrections[0])
        defect = now = self.corrections[0]  # also the result of the first step, a plain one from zero
        before = None
        for number, weight in enumerate(self.weights[1:], start=1):
            last = number == len(self.weights) - 1
            target = self.solution if last else self.corrections[1 + number % 2]
            passes.smooth(self.couplings, self.shifts, defect, now, before, weight, target, last)
            before, now = now, target


def short_type(reference: Array) -> object:
    """Return the floating type of corrections: half the length of single precision, to halve memory traffic.

    The next correction repairs what rounding (up to 1 / 256 of a correction) loses. As ADMM converges, corrections
    vanish and their rounding errors with them. Double precision stays as it is.
    """
    torch = namespace(reference)
    short: object = torch.bfloat16 if reference.dtype == torch.float32 else reference.dtype
    return short


def couplings_of(graph: GraphTerm, reference: Array) -> tuple[Couplings, float]:
    """Return ``2 α L`` as diagonal and weights on the device, and its largest diagonal entry; computed once."""
    key = "couplings", graph.weight, reference.dtype, reference.device
    return graph.shared.cached(key, lambda: _make_couplings(graph, reference))


def _make_couplings(graph: GraphTerm, reference: Array) -> tuple[Couplings, float]:
    matrix, off_diagonal, torch = graph.shared.matrix, graph.shared.off_diagonal, namespace(reference)
    edges = np.concatenate([[0], np.cumsum(off_diagonal)])
    pointers, columns = edges[matrix.indptr], matrix.indices[off_diagonal]
    weights, diagonal = -2.0 * graph.weight * matrix.data[off_diagonal], 2.0 * graph.weight * matrix.diagonal()
    starts, ends = (torch.as_tensor(part.astype(np.int32), device=reference.device) for part in (pointers, columns))
    couplings = Couplings(as_like(diagonal, reference), starts, ends, as_like(weights, reference))
    return couplings, float(diagonal.max(initial=0.0))


def chebyshev_cycle(largest: float, shifts: Array, penalty: float) -> list[Array]:
    """Return the weights (row,) of the steps of one cycle after its first, plain Jacobi step.

    Every system gets two such cycles, so that each component of the error is multiplied by a square. A negative factor
    would overshoot, and over-relaxed ADMM would then diverge slowly. The spectrum of Jacobi's iteration matrix lies
    within ±γ, γ = largest / (largest + shift) (Gershgorin). The number of steps grows with the logarithm of the
    condition number (1 + γ) / (1 - γ) of the slowest system.
    """
    n_steps = max(1, ceil(STEPS_PER_DOUBLING * log2(1.0 + 2.0 * largest / penalty)))
    squared = (largest / (largest + as_double(shifts))) ** 2
    weights: list[Array] = []
    weight = 1.0 / (1.0 - 0.5 * squared)
    for _ in range(n_steps - 1):
        weights.append(as_like(weight, shifts))
        weight = 1.0 / (1.0 - 0.25 * squared * weight)
    return weights


def make_passes(basis: Array) -> PlainPasses:
    """Return the Triton kernels if they apply to tensors like ``basis``, else plain torch, which computes the same."""
    if not basis.is_cuda or basis.dtype != namespace(basis).float32 or find_spec("triton") is None:
        return PlainPasses(basis)
    from tubal.backends.gpu.triton_passes import LARGEST_TUBE, TritonPasses

    return TritonPasses(basis) if basis.shape[1] <= LARGEST_TUBE else PlainPasses(basis)
