"""The passes of the fused splitting in plain torch: what the GPU kernels do, written the obvious way.

Spectra are ``(coefficient, atom, sample)`` in the real Fourier basis; graph systems are ``(sample, row)`` with a
row for every coefficient and atom. Every method writes into buffers it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tubal.backends.arrays import Array, namespace, sparse_tensor


@dataclass(frozen=True)
class Shrinkage:
    """The two numbers of a Douglas-Rachford step: where duals are cut, and how far a step goes."""

    bound: float
    relaxation: float


@dataclass(frozen=True)
class Couplings:
    """``2 α L`` as a positive diagonal (sample,) minus weights between samples, in CSR parts."""

    diagonal: Array
    pointers: Array
    columns: Array
    weights: Array

    @cached_property
    def matrix(self) -> Any:
        """The weights as one sparse tensor (sample, sample)."""
        return sparse_tensor(self.pointers, self.columns, self.weights)


class PlainPasses:
    """One method per kernel; ``basis`` is (coefficient, time)."""

    def __init__(self, basis: Array) -> None:
        self.basis = basis
        self.torch = namespace(basis)

    def reflect(self, point: Array, shrinkage: Shrinkage, reflected: Array) -> None:
        """Set ``reflected`` to the coefficients of codes minus scaled dual, ``point - 2 clip(point)``."""
        values = point - 2.0 * point.clamp(-shrinkage.bound, shrinkage.bound)
        n_times, n_coefficients = point.shape[0], reflected.shape[0]
        self.torch.mm(self.basis, values.reshape(n_times, -1), out=reflected.view(n_coefficients, -1))

    def relax(
        self, point: Array, solved: Array, shrinkage: Shrinkage, active: Array | None, reflected: Array | None,
        moved: Array | None, size: Array | None,
    ) -> None:  # fmt: skip
        """Move ``point`` towards the solution whose coefficients are ``solved``, and reflect it for the next step.

        ``moved`` and ``size`` (atom, sample), if given, get the squared length of the move and of the former point.
        """
        move = (self.basis.T @ solved.view(solved.shape[0], -1)).view(point.shape)
        move += point.clamp(-shrinkage.bound, shrinkage.bound)
        move -= point
        if moved is not None and size is not None:
            self.torch.sum(move * move, 0, out=moved)
            self.torch.sum(point * point, 0, out=size)
        point += move.mul_(shrinkage.relaxation) if active is None else move.mul_(shrinkage.relaxation * active)
        if reflected is not None:
            self.reflect(point, shrinkage, reflected)

    def apply(self, blocks: Array, source: Array, offset: Array, target: Array) -> None:
        """Set ``target`` to ``blocks @ source + offset``; all but ``blocks`` are (block, row, sample)."""
        self.torch.baddbmm(offset, blocks, source, out=target)

    def defect(self, couplings: Couplings, shifts: Array, right: Array, solution: Array, target: Array) -> None:
        """Set ``target`` to what a Jacobi step would add to the solution of ``(2 α L + shift) x = right``.

        All are (sample, row), ``shifts`` (row,); ``target`` may be of a shorter type than the rest.
        """
        step = self.torch.sparse.mm(couplings.matrix, solution)
        step += right
        step /= couplings.diagonal[:, None] + shifts
        target.copy_(step.sub_(solution))

    def smooth(
        self, couplings: Couplings, shifts: Array, defect: Array, now: Array, before: Array | None,
        weight: Array | None, target: Array, add: bool,
    ) -> None:  # fmt: skip
        """One step of the Chebyshev semi-iteration for the correction ``e`` that the ``defect`` asks for.

        With t the Jacobi step from ``now``, the next is ``before + weight (t - before)``, or t itself without a
        ``weight``; no ``before`` is one of zeros. It becomes ``target``, or is added to it.
        """
        step = self.torch.sparse.mm(couplings.matrix, now.to(shifts.dtype))
        step /= couplings.diagonal[:, None] + shifts
        step += defect
        if weight is not None:
            old = self.torch.zeros_like(step) if before is None else before.to(step.dtype)
            step = old.lerp(step, weight.expand_as(step))
        if add:
            target += step
        else:
            target.copy_(step)

    def rotate(self, offset: Array, pairs: Array, rotation_t: Array, target: Array) -> None:
        """Set ``target`` to the rotated spectrum plus ``offset``, both (block, sample, row)."""
        self.torch.baddbmm(offset, pairs.transpose(1, 2), rotation_t, out=target)

    def rotate_back(self, rotation: Array, rows: Array, pairs: Array) -> None:
        """Set ``pairs`` (block, row, sample) to the spectrum of ``rows`` (block, sample, row)."""
        self.torch.bmm(rotation, rows.transpose(1, 2), out=pairs)
