"""Coding under a tubal dictionary, with or without a graph (eqs. 3, 8 and 9).

    minimise over B   1/2 ||X - D * B||² + graph_weight Tr(B L Bᵀ) + sparsity ||B||₁

Arrays are tube-first: dictionary (tube, row, atom), data (tube, row, sample), codes (tube, atom, sample).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from tubal.algebra import spectrum_weights
from tubal.backends.arrays import Array, as_double, gram_eigh, is_torch, namespace, rfft, to_numpy
from tubal.problems.base import CodingProblem, ImageModel, MomentumState, SplitState, Summary, atom_norms
from tubal.problems.fourier import BlockOperator, as_blocks, from_coefficients, to_coefficients
from tubal.problems.graph_term import GraphTerm
from tubal.problems.tubal_cpu import CompiledTubal
from tubal.problems.tubal_dictionary import TubalDictionary, TubalStatistics
from tubal.problems.tubal_gpu import FusedTubal


class TubalCoding(CodingProblem):
    """The coding problem of TubSC and GTSC; at tube length one, of SC and GraphSC.

    ``laplacian`` may carry degrees that count edges to images outside this batch; ``neighbor_sum`` is then the
    weighted sum of those images' codes, which stay fixed (design: learning over chunks, transform).
    """

    def __init__(
        self,
        dictionary: Array,
        data: Array,
        *,
        sparsity: float,
        graph_weight: float = 0.0,
        laplacian: Any = None,
        neighbor_sum: Array | None = None,
    ) -> None:
        self.dictionary, self.data, self.sparsity = dictionary, data, float(sparsity)
        tied = graph_weight > 0.0 and laplacian is not None
        self.graph = GraphTerm(laplacian, graph_weight, neighbor_sum) if tied else None
        self.independent = self.graph is None or not self.graph.ties
        self.codes_shape = (data.shape[0], dictionary.shape[2], data.shape[2])
        self.tube_length = data.shape[0]
        self._inverses: dict[float, BlockOperator] = {}

    # --- the map and its spectra -------------------------------------------------------------------
    @cached_property
    def dictionary_hat(self) -> Array:
        """Half spectrum of the atoms (frequency, row, atom), double precision."""
        return rfft(as_double(self.dictionary), axis=0)

    @cached_property
    def _small_hat(self) -> Array:
        """The same on the host, also where the atoms are on a device: small parts are put together there sooner."""
        return rfft(as_double(to_numpy(self.dictionary)), axis=0) if is_torch(self.data) else self.dictionary_hat

    @cached_property
    def gram_hat(self) -> Array:
        """``D̂ᴴ D̂`` per frequency."""
        return _adjoint(self.dictionary_hat) @ self.dictionary_hat

    @cached_property
    def map_blocks(self) -> BlockOperator:
        """The dictionary as real blocks, in the data's own precision."""
        # Without a graph the spectrum is wanted on the device anyway, and fetching it would mean waiting.
        spectrum = self.dictionary_hat if self.graph is None else self._small_hat
        return as_blocks(spectrum, self.tube_length, self.data)

    @cached_property
    def adjoint_blocks(self) -> BlockOperator:
        """The transposed dictionary as real blocks."""
        return self.map_blocks.transpose

    @cached_property
    def gram_blocks(self) -> BlockOperator:
        """``DᵀD`` as real blocks."""
        return as_blocks(self.gram_hat, self.tube_length, self.data)

    def inverse_blocks(self, penalty: float) -> BlockOperator:
        """``penalty (DᵀD + penalty)⁻¹`` as real blocks."""
        if penalty not in self._inverses:
            xp = namespace(self.gram_hat)
            shifted = self.gram_hat + penalty * as_double(xp.eye(self.gram_hat.shape[1], device=self.gram_hat.device))
            self._inverses = {penalty: as_blocks(penalty * xp.linalg.inv(shifted), self.tube_length, self.data)}
        return self._inverses[penalty]

    @cached_property
    def eigenbasis(self) -> tuple[BlockOperator, Array]:
        """Rotation into the eigenvectors of ``DᵀD`` as real blocks, and eigenvalues (tube, atom), on the host."""
        values, vectors = gram_eigh(self._small_hat)
        rotation = as_blocks(_adjoint(vectors), self.tube_length, self.data)
        return rotation, self._per_coefficient(values)

    def _per_coefficient(self, values: Array) -> Array:
        """Spread values (frequency, atom) over the real coefficients (tube, atom)."""
        half = (self.tube_length + 1) // 2
        order = [0] if self.tube_length % 2 else [0, self.tube_length // 2]
        order += [frequency for frequency in range(1, half) for _ in (0, 1)]
        return values[order]

    # --- what solvers ask ----------------------------------------------------------------------------
    @cached_property
    def linear(self) -> Array:
        """``D† * X`` plus the pull of fixed neighbours."""
        correlation = from_coefficients(self.adjoint_blocks @ to_coefficients(self.data))
        return correlation if self.graph is None else self.graph.add_pull(correlation)

    @cached_property
    def lipschitz(self) -> float:
        """``max_l σ_max(D̂_l)² + 2 α ||L||₂``: exact, and far below the sum in eq. 14.

        The block-circulant norm is the largest slice norm.
        """
        largest = float(namespace(self.gram_hat).linalg.eigvalsh(self.gram_hat).max())
        return max(largest + (self.graph.lipschitz if self.graph else 0.0), np.finfo(np.float64).tiny)

    @cached_property
    def printed_lipschitz(self) -> float:
        """The constant of Algorithm 1, line 4, as printed: a sum of Frobenius norms over all k slices."""
        xp = namespace(self.gram_hat)
        norms = xp.sqrt((abs(self.gram_hat) ** 2).sum((1, 2)))
        total = float((spectrum_weights(self.tube_length, norms) * norms).sum())
        return total + (self.graph.lipschitz if self.graph else 0.0)

    def zeros(self) -> Array:
        """Return codes of zeros."""
        xp = namespace(self.data)
        return xp.zeros(self.codes_shape, dtype=self.data.dtype, device=self.data.device)

    def curvature(self, codes: Array) -> Array:
        """Return ``D† * D * B + 2 α B L`` (eq. 13)."""
        product = from_coefficients(self.gram_blocks @ to_coefficients(codes))
        return product if self.graph is None else product + self.graph.product(codes)

    def reconstruct(self, codes: Array) -> Array:
        """Return ``D * B`` (eq. 1)."""
        return from_coefficients(self.map_blocks @ to_coefficients(codes))

    def solve_shifted(self, right: Array, penalty: float) -> Array:
        """Solve ``D† * D * B + 2 α B L + penalty B = right``.

        Without a graph an atoms × atoms inverse per frequency; with one a Sylvester equation, solved in the
        eigenbasis of each frequency's Gram matrix, where every row has its own shifted system in L.
        """
        if self.graph is None:
            return from_coefficients(self.inverse_blocks(penalty) @ to_coefficients(right)) / penalty
        rotation, eigenvalues = self.eigenbasis
        rotated = self.graph.solve(rotation @ to_coefficients(right), eigenvalues + penalty)
        return from_coefficients(rotation.transpose @ rotated)

    def summary(self, codes: Array, *, statistics: bool = False) -> Summary:
        """Return each image's terms of the objective and, if asked, what the dictionary step needs."""
        residuals, absolutes, gathered = self._compiled.summarise(codes, statistics=statistics)
        energies, pulls = self.graph.energies(codes) if self.graph else (0.0 * residuals, 0.0 * residuals)
        return Summary.collect(self, residuals, absolutes, energies, pulls, gathered)

    # --- fused versions of the two iterations ----------------------------------------------------------
    @cached_property
    def _compiled(self) -> CompiledTubal | FusedTubal:
        return FusedTubal(self) if is_torch(self.data) else CompiledTubal(self)

    def split(self, state: SplitState, *, penalty: float, relaxation: float, n_steps: int, tol: float) -> SplitState:
        """Douglas-Rachford steps, by compiled kernels for NumPy arrays, by fused passes for tensors."""
        return self._compiled.split(state, penalty=penalty, relaxation=relaxation, n_steps=n_steps, tol=tol)

    def settle(self, state: SplitState, *, last: bool = False) -> SplitState:
        """Return the state with its point as one array."""
        if not isinstance(self._compiled, CompiledTubal):
            return super().settle(state, last=last)
        return self._compiled.settle(state, last=last)

    def accelerate(self, state: MomentumState, *, step_size: float, n_steps: int) -> MomentumState:
        """Steps of Algorithm 1, by compiled kernels for NumPy arrays."""
        if not isinstance(self._compiled, CompiledTubal):
            return super().accelerate(state, step_size=step_size, n_steps=n_steps)
        return self._compiled.accelerate(state, step_size=step_size, n_steps=n_steps)


def _adjoint(slices: Array) -> Array:
    xp = namespace(slices)
    return xp.conj(xp.swapaxes(slices, 1, 2))


class TubalModel(ImageModel):
    """Images as tensor-linear combinations of atoms (eq. 2); a dictionary is one array (tube, row, atom)."""

    def coding(self, dictionary: Array, data: Array, **terms: Any) -> TubalCoding:
        """Return the coding problem of ``data`` (tube, row, sample)."""
        return TubalCoding(dictionary, data, **terms)

    def dictionary_problem(self, statistics: TubalStatistics, dictionary: Array, step: int) -> TubalDictionary:
        """Return the dictionary problem of the statistics."""
        return TubalDictionary(statistics)

    def statistics(self, dictionary: Array, data: Array, codes: Array, step: int) -> TubalStatistics:
        """Return the statistics of data and codes."""
        return TubalStatistics.from_coefficients(to_coefficients(data), to_coefficients(codes))

    def replace_atoms(self, dictionary: Array, unused: np.ndarray, images: Array) -> Array:
        """Put images, scaled to unit length, in place of unused atoms."""
        xp = namespace(dictionary)
        fresh = images / xp.clip(atom_norms(images), xp.finfo(images.dtype).tiny, None)
        replaced = dictionary + 0.0
        replaced[:, :, np.flatnonzero(unused)] = fresh
        return replaced
