"""The peer on the GPU: the same ADMM written in plain torch, with FFTs and complex batched products."""

from __future__ import annotations

from typing import Any

from tubal.problems.tubal import TubalCoding
from tubal.problems.tubal_torch import chebyshev_cycle, couplings_of


class PlainAdmm:
    """Douglas-Rachford steps on half spectra; with a graph the same Chebyshev steps by sparse products.

    Set-up and steps are what one writes first; every intermediate result is a tensor of its own.
    """

    def __init__(self, problem: TubalCoding, penalty: float = 1.0, relaxation: float = 1.8) -> None:
        import torch

        self.torch, self.problem, self.penalty, self.relaxation = torch, problem, penalty, relaxation
        self.bound = problem.sparsity / penalty
        self.tube_length = problem.tube_length
        spectrum = torch.fft.rfft(problem.dictionary.double(), dim=0)
        gram = spectrum.mH @ spectrum
        data_hat = torch.fft.rfft(problem.data, dim=0)
        self.linear_hat = spectrum.mH.to(torch.complex64) @ data_hat
        self.point = problem.zeros()
        if problem.graph is None:
            eye = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
            self.inverse = torch.linalg.inv(gram + penalty * eye).to(torch.complex64)
        else:
            self._prepare_graph(gram)

    def _prepare_graph(self, gram: Any) -> None:
        torch = self.torch
        values, vectors = torch.linalg.eigh(gram)
        self.vectors = vectors.to(torch.complex64)
        self.couplings, most = couplings_of(self.problem.graph, self.problem.data)
        self.shifts = torch.repeat_interleave(values.clamp(min=0.0).float().reshape(-1) + self.penalty, 2)
        self.weights = 2 * [None, *chebyshev_cycle(most, self.shifts, self.penalty)]
        self.now = torch.zeros(self.point.shape[2], self.shifts.numel(), device=self.point.device)

    def steps(self, n_steps: int) -> PlainAdmm:
        """Make ``n_steps`` steps."""
        torch = self.torch
        for _ in range(n_steps):
            dual = torch.clamp(self.point, -self.bound, self.bound)
            right = self.linear_hat + self.penalty * torch.fft.rfft(self.point - 2.0 * dual, dim=0)
            solved = self.inverse @ right if self.problem.graph is None else self._solve_graph(right)
            solution = torch.fft.irfft(solved, n=self.tube_length, dim=0)
            self.point = self.point + self.relaxation * (solution + dual - self.point)
        return self

    def _solve_graph(self, right: Any) -> Any:
        torch = self.torch
        rotated = self.vectors.mH @ right
        n_frequencies, n_atoms, n_samples = rotated.shape
        wanted = torch.view_as_real(rotated.permute(2, 0, 1).contiguous()).reshape(n_samples, -1)
        before = self.now
        for weight in self.weights:
            total = torch.sparse.mm(self.couplings.matrix, self.now) + wanted
            jacobi = total / (self.couplings.diagonal[:, None] + self.shifts)
            after = jacobi if weight is None else before + weight * (jacobi - before)
            before, self.now = self.now, after
        spectrum = torch.view_as_complex(self.now.reshape(n_samples, n_frequencies, n_atoms, 2))
        return self.vectors @ spectrum.permute(1, 2, 0)

    @property
    def codes(self) -> Any:
        """The codes reached."""
        return self.point - self.torch.clamp(self.point, -self.bound, self.bound)
