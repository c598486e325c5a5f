"""The splitting on torch tensors: everything resident, buffers made once, nothing asked of the device in a burst.

The torch twin of ``_compiled``. One step without a graph is two kernels: a batched GEMM over frequency pairs, and
one pass that goes back from the Fourier basis, relaxes, shrinks, reflects and returns to it. With a graph each
row's shifted system is improved by a few warm-started Chebyshev steps, whose number follows from the graph's
degrees alone: no inner product, so no reduction and no waiting.
"""

from __future__ import annotations

import weakref
from importlib.util import find_spec
from math import ceil, log2
from typing import TYPE_CHECKING, Any

import numpy as np

from tubal.backends.arrays import Array, as_double, as_like, namespace, to_numpy, to_numpy_together
from tubal.backends.gpu.passes import Couplings, PlainPasses, Shrinkage
from tubal.problems.base import SplitState
from tubal.problems.fourier import BlockOperator, fold, fourier_basis
from tubal.problems.tubal_dictionary import TubalStatistics

if TYPE_CHECKING:
    from tubal.problems.graph_term import GraphTerm, SharedLaplacian
    from tubal.problems.tubal import TubalCoding


# Chebyshev steps of a cycle for each doubling of the slowest graph system's condition number.
CYCLE_SHARE = 0.5
# Images are taken this many bytes of codes at a time, so that buffers stay small beside the codes of many images.
CHUNK_BYTES = 2**28


def even_basis(tube_length: int, reference: Array) -> Array:
    """Return the Fourier basis (coefficient, time) with a zero row after the mean where the tube is odd.

    So that every block is a pair; a tube of length one stays as it is.
    """
    basis = fourier_basis(tube_length, reference)
    if tube_length % 2 == 0 or tube_length == 1:
        return basis.contiguous()
    return namespace(basis).concatenate([basis[:1], 0.0 * basis[:1], basis[1:]], 0).contiguous()


def even_blocks(operator: BlockOperator) -> Array:
    """Return an operator's blocks as one batch, the head of an odd tube padded to a pair."""
    n_head, n_pairs = operator.head.shape[0], operator.pairs.shape[0]
    if n_head == 0:
        return operator.pairs
    if n_pairs == 0:
        return operator.head
    xp = namespace(operator.pairs)
    first = xp.zeros_like(operator.pairs[:1])
    first[:, : operator.head.shape[1], : operator.head.shape[2]] = operator.head
    return xp.concatenate([first, operator.pairs], 0)


class FusedTubal:
    """Passes bound to one tubal coding problem on torch tensors."""

    def __init__(self, problem: TubalCoding) -> None:
        self.problem = weakref.proxy(problem)  # which holds these passes: its arrays must not outlive it
        self.data = problem.data
        self.torch = namespace(problem.data)
        self.basis = even_basis(problem.tube_length, problem.data)
        self.n_atoms, self.n_samples = problem.codes_shape[1:]
        self.n_coefficients = self.basis.shape[0]
        self.passes = make_passes(self.basis)
        bytes_per_image = self.n_coefficients * self.n_atoms * problem.data.element_size()
        self.chunk = max(1, min(self.n_samples, CHUNK_BYTES // bytes_per_image))
        self._offsets: dict[tuple[int, float], Array] = {}

    def buffer(self, *shape: int) -> Array:
        """Return uninitialised memory of the data's kind."""
        return self.torch.empty(shape, dtype=self.data.dtype, device=self.data.device)

    def spectrum(self, tensor: Array) -> Array:
        """Return the coefficients (block, row of the block, sample) of a tensor (time, row, sample)."""
        n_times, n_rows, n_samples = tensor.shape
        flat = self.basis @ tensor.reshape(n_times, -1)
        return flat.view(-1, n_rows * min(2, self.n_coefficients), n_samples)

    # --- splitting -----------------------------------------------------------------------------------
    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Make Douglas-Rachford steps; the state's point changes in place."""
        shrinkage = Shrinkage(self.problem.sparsity / penalty, relaxation)
        before: Array | None = state.movement if self.problem.independent and tol > 0.0 else None
        active = None if before is None else (before > tol).to(self.data.dtype)
        moved, size = self.buffer(self.n_atoms, self.n_samples), self.buffer(self.n_atoms, self.n_samples)
        systems = None
        if self.problem.graph is None:
            self._split_alone(state.point, shrinkage, penalty, n_steps, active, moved, size)
        else:
            kept = isinstance(state.extra, FusedSystems)
            systems = state.extra if kept else FusedSystems(self, state.point, shrinkage, penalty)
            systems.advance(state.point, shrinkage, n_steps, active, moved, size)
        tiny = self.torch.finfo(size.dtype).tiny
        movement = (moved.sum(0) / size.sum(0).clamp(min=tiny)).sqrt()
        if active is not None:
            movement = self.torch.where(active > 0, movement, before)
        return SplitState(state.point, movement, systems)

    def _split_alone(
        self, point: Array, shrinkage: Shrinkage, penalty: float, n_steps: int, active: Any, moved: Any, size: Any
    ) -> None:
        inverse = even_blocks(self.problem.inverse_blocks(penalty))
        buffers = [self.buffer(self.n_coefficients * self.n_atoms * self.chunk) for _ in (0, 1)]
        for start in range(0, self.n_samples, self.chunk):
            here = slice(start, min(start + self.chunk, self.n_samples))
            part, offset = point[:, :, here], self._offset(here, penalty)
            shape = (self.n_coefficients, self.n_atoms, part.shape[2])
            reflected, solved = (whole[: offset.numel()].view(shape) for whole in buffers)
            pairs, answers = reflected.view(offset.shape), solved.view(offset.shape)
            awake = None if active is None else active[here]
            self.passes.reflect(part, shrinkage, reflected)
            for _ in range(n_steps - 1):
                self.passes.apply(inverse, pairs, offset, answers)
                self.passes.relax(part, solved, shrinkage, awake, reflected, None, None)
            self.passes.apply(inverse, pairs, offset, answers)
            self.passes.relax(part, solved, shrinkage, awake, None, moved[:, here], size[:, here])

    def _offset(self, here: slice, penalty: float) -> Array:
        """Return the solution's constant part, ``(DᵀD + penalty)⁻¹ Dᵀ x``; kept where one chunk holds all images."""
        key = here.start, penalty
        if key not in self._offsets:
            inverse = as_double(even_blocks(self.problem.inverse_blocks(penalty)))
            adjoint = as_double(even_blocks(self.problem.adjoint_blocks))
            self._offsets = {
                key: as_like(inverse @ adjoint / penalty, self.data) @ self.spectrum(self.data[:, :, here])
            }
        return self._offsets[key]

    # --- sums ------------------------------------------------------------------------------------------
    def summarise(self, codes: Array, *, statistics: bool) -> tuple[Array, Array, TubalStatistics | None]:
        """Return squared residuals and l1 norms per image, and the statistics of the dictionary step."""
        forward = even_blocks(self.problem.map_blocks)
        residuals, absolutes, total = [], [], None
        for start in range(0, self.n_samples, self.chunk):
            here = slice(start, start + self.chunk)
            data_hat, codes_hat = self.spectrum(self.data[:, :, here]), self.spectrum(codes[:, :, here])
            difference = self.torch.baddbmm(data_hat, forward, codes_hat, beta=1.0, alpha=-1.0)
            residuals.append(difference.square_().sum((0, 1)))
            absolutes.append(codes[:, :, here].abs().sum((0, 1)))
            if statistics:
                found = self._statistics(data_hat, codes_hat)
                total = found if total is None else total + found
        join = self.torch.concatenate
        return join(residuals), join(absolutes), total

    def _statistics(self, data_hat: Array, codes_hat: Array) -> TubalStatistics:
        """Return the statistics on the host, whose cores are quicker at the dictionary step's small systems."""
        data_hat, codes_hat = as_double(data_hat), as_double(codes_hat)
        right = codes_hat.transpose(1, 2)
        gram, cross, squares = to_numpy_together(codes_hat @ right, data_hat @ right, (data_hat**2).sum())
        gram, cross = (fold(self._as_operator(blocks)) for blocks in (gram, cross))
        return TubalStatistics.from_folded(gram, cross, float(squares))

    def _as_operator(self, blocks: np.ndarray) -> BlockOperator:
        """Undo :func:`even_blocks`."""
        tube_length = self.problem.tube_length
        if tube_length % 2 == 0:
            rows, inner = blocks.shape[1] // 2, blocks.shape[2] // 2
            return BlockOperator(blocks[:0, :rows, :inner], blocks)
        if tube_length == 1:
            return BlockOperator(blocks, np.zeros((0, 2 * blocks.shape[1], 2 * blocks.shape[2])))
        rows, inner = blocks.shape[1] // 2, blocks.shape[2] // 2
        return BlockOperator(blocks[:1, :rows, :inner], blocks[1:])


class FusedSystems:
    """The shifted graph systems of one splitting, ``(sample, row)``, kept between steps."""

    def __init__(self, fused: FusedTubal, point: Array, shrinkage: Shrinkage, penalty: float) -> None:
        problem, self.fused = fused.problem, fused
        graph = problem.graph
        assert graph is not None
        self.couplings, most = couplings_of(graph, fused.data)
        rotation, eigenvalues = problem.eigenbasis
        forward = even_blocks(rotation)
        self.forward_t = (penalty * forward).transpose(1, 2).contiguous()
        self.back = forward.transpose(1, 2).contiguous()
        shifts = self._rows_of(to_numpy(eigenvalues)).clip(min=0.0) + penalty
        cycle = chebyshev_cycle(most, shifts, penalty)
        self.shifts, *pushes = as_like(np.stack([shifts, *cycle]), fused.data)
        self.weights = 2 * [None, *pushes]
        self.linear = self._rotated_linear(forward)
        self.right = fused.torch.empty_like(self.linear)
        codes = point - point.clamp(-shrinkage.bound, shrinkage.bound)
        self.solution = self._rotated(codes, forward)
        self.corrections = [fused.torch.empty_like(self.linear, dtype=short_type(self.linear)) for _ in range(3)]
        self.spectrum = fused.buffer(fused.n_coefficients, fused.n_atoms, fused.n_samples)

    def _rows_of(self, eigenvalues: np.ndarray) -> np.ndarray:
        """Spread eigenvalues (tube, atom) over the rows, one zero row of atoms in for the padding of an odd tube."""
        if eigenvalues.shape[0] != self.fused.n_coefficients:
            eigenvalues = np.insert(eigenvalues, 1, 0.0, axis=0)
        return eigenvalues.reshape(-1)

    def _by_pair(self, rows: Array) -> Array:
        """View (sample, row) as (block, sample, row of the block)."""
        n_blocks, _, width = self.forward_t.shape
        return rows.view(-1, n_blocks, width).transpose(0, 1)

    def _rotated(self, tensor: Array, blocks: Array) -> Array:
        """Return the rows (sample, row) of ``blocks`` applied to the spectrum of a tensor (time, ·, sample)."""
        pairs = self.fused.spectrum(tensor)
        rows = self.fused.buffer(tensor.shape[2], blocks.shape[0] * blocks.shape[1])
        self._by_pair(rows).copy_(pairs.transpose(1, 2) @ blocks.transpose(1, 2))
        return rows

    def _rotated_linear(self, forward: Array) -> Array:
        """Return the rows of the problem's linear term, ``Dᵀ x`` and the pull of fixed neighbours."""
        problem = self.fused.problem
        linear = self._rotated(problem.data, forward @ even_blocks(problem.adjoint_blocks))
        if problem.graph is None or problem.graph.neighbor_sum is None:
            return linear
        return linear + 2.0 * problem.graph.weight * self._rotated(problem.graph.neighbor_sum, forward)

    def advance(
        self, point: Array, shrinkage: Shrinkage, n_steps: int, active: Array | None, moved: Array, size: Array
    ) -> None:
        """Make steps: rotate, improve every row's system, rotate back, relax."""
        passes, spectrum = self.fused.passes, self.spectrum
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

    def improve(self, passes: Any) -> None:
        """Bring the solution closer to that of ``right``: the correction by :attr:`weights`, which ends with it."""
        passes.defect(self.couplings, self.shifts, self.right, self.solution, self.corrections[0])
        defect = now = self.corrections[0]  # also the first step, a plain one from zero
        before = None
        for number, weight in enumerate(self.weights[1:], start=1):
            last = number == len(self.weights) - 1
            target = self.solution if last else self.corrections[1 + number % 2]
            passes.smooth(self.couplings, self.shifts, defect, now, before, weight, target, last)
            before, now = now, target


def short_type(reference: Array) -> Any:
    """Return the type of corrections: half as long as single precision, which halves the traffic of their steps.

    What rounding takes from a correction, up to 1 / 256 of it, the next one brings: as the splitting settles
    corrections vanish, and their rounding with them. Double precision stays.
    """
    torch = namespace(reference)
    return torch.bfloat16 if reference.dtype == torch.float32 else reference.dtype


def couplings_of(graph: GraphTerm, reference: Array) -> tuple[Couplings, float]:
    """Return ``2 α L`` split into diagonal and weights on the device, and its largest diagonal entry."""
    key = "couplings", graph.weight, reference.dtype, reference.device
    if key not in graph.shared.kept:
        graph.shared.kept[key] = _make_couplings(graph.shared, graph.weight, reference)
    couplings, most = graph.shared.kept[key]
    return couplings, most


def _make_couplings(shared: SharedLaplacian, weight: float, reference: Array) -> tuple[Couplings, float]:
    matrix, torch = shared.matrix, namespace(reference)
    edges = np.concatenate([[0], np.cumsum(shared.between)])
    pointers, columns = edges[matrix.indptr], matrix.indices[shared.between]
    weights, diagonal = -2.0 * weight * matrix.data[shared.between], 2.0 * weight * matrix.diagonal()
    starts, ends = (torch.as_tensor(part.astype(np.int32), device=reference.device) for part in (pointers, columns))
    couplings = Couplings(as_like(diagonal, reference), starts, ends, as_like(weights, reference))
    return couplings, float(diagonal.max(initial=0.0))


def chebyshev_cycle(largest: float, shifts: Array, penalty: float) -> list[Array]:
    """Return the weights (row,) of the steps made on every graph system, after a first, plain Jacobi step.

    Every system gets two such cycles, so that they multiply each error by a square. A factor of either sign would
    turn over-relaxed splitting into a slow divergence: an error that changes sign is one stepped over too far.
    Jacobi's iteration matrix has its spectrum within ±γ, γ = largest / (largest + shift) (Gershgorin). A cycle
    has :data:`CYCLE_SHARE` steps for each doubling of the condition number (1 + γ) / (1 - γ) of the slowest system.
    """
    n_steps = max(1, ceil(CYCLE_SHARE * log2(1.0 + 2.0 * largest / penalty)))
    squared = (largest / (largest + as_double(shifts))) ** 2
    weights: list[Array] = []
    weight = 1.0 / (1.0 - 0.5 * squared)
    for _ in range(n_steps - 1):
        weights.append(as_like(weight, shifts))
        weight = 1.0 / (1.0 - 0.25 * squared * weight)
    return weights


def make_passes(basis: Array) -> Any:
    """Return the fused kernels where they serve, else plain torch, which computes the same."""
    if not basis.is_cuda or basis.dtype != namespace(basis).float32 or find_spec("triton") is None:
        return PlainPasses(basis)
    from tubal.backends.gpu.triton_passes import LARGEST_TUBE, TritonPasses

    return TritonPasses(basis) if basis.shape[1] <= LARGEST_TUBE else PlainPasses(basis)
