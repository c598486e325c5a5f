"""The passes of one ADMM step in plain torch: the reference for the Triton kernels, and the fallback without them.

Spectra are ``(coefficient, atom, image)`` in the real Fourier basis. Graph systems are ``(image, row)``, with one row
for every coefficient and atom. Every method writes its result into buffers that the caller passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tubal.backends.arrays import Array, namespace, sparse_tensor


@dataclass(frozen=True)
class Shrinkage:
    """The two parameters of a Douglas-Rachford step."""

    bound: float  # the scaled dual is clipped to [-bound, bound]
    relaxation: float  # over-relaxation of the step


@dataclass(frozen=True)
class Couplings:
    """The matrix ``2 α L`` as its ``diagonal`` (image,) minus weights between images, stored as a CSR matrix."""

    diagonal: Array
    pointers: Array
    columns: Array
    weights: Array

    @cached_property
    def matrix(self) -> Array:
        """The weights as one sparse tensor (image, image)."""
        return sparse_tensor(self.pointers, self.columns, self.weights)


class PlainPasses:
    """One method per pass; ``basis`` is the Fourier basis (coefficient, time)."""

    def __init__(self, basis: Array) -> None:
        self.basis = basis
        self.torch = namespace(basis)

    def reflect(self, point: Array, shrinkage: Shrinkage, reflected: Array) -> None:
        """Set ``reflected`` to the coefficients of the codes minus the scaled dual, ``point - 2 clip(point)``."""
        values = point - 2.0 * point.clamp(-shrinkage.bound, shrinkage.bound)
        n_times, n_coefficients = point.shape[0], reflected.shape[0]
        self.torch.mm(self.basis, values.reshape(n_times, -1), out=reflected.view(n_coefficients, -1))

    def relax(
        self, point: Array, solved: Array, shrinkage: Shrinkage, active: Array | None, reflected: Array | None,
        moved: Array | None, size: Array | None,
    ) -> None:  # fmt: skip
        """Move ``point`` towards the solution with coefficients ``solved``, in place.

        ``active`` (image,) is 0 for images that have converged and stay as they are. ``reflected``, if given, is set
        for the next step. ``moved`` and ``size`` (atom, image), if given, are set to the squared lengths of the move
        and of the former point.
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
        """Set ``target`` to ``blocks @ source + offset``; all but ``blocks`` are (block, row, image)."""
        self.torch.baddbmm(offset, blocks, source, out=target)

    def defect(self, couplings: Couplings, shifts: Array, right: Array, solution: Array, target: Array) -> None:
        """Set ``target`` to the change of ``solution`` in one Jacobi step for ``(2 α L + shift) x = right``.

        All arrays are (image, row), ``shifts`` is (row,). ``target`` may have a shorter floating type than the rest.
        """
        step = self.torch.sparse.mm(couplings.matrix, solution)
        step += right
        step /= couplings.diagonal[:, None] + shifts
        target.copy_(step.sub_(solution))

    def smooth(
        self, couplings: Couplings, shifts: Array, defect: Array, now: Array, before: Array | None,
        weight: Array | None, target: Array, add: bool,
    ) -> None:  # fmt: skip
        """Make one step of the Chebyshev semi-iteration for the correction that removes ``defect``.

        With t the Jacobi step from ``now``, the result is ``before + weight · (t - before)``, or t without a
        ``weight``. ``before`` = None stands for zeros. The result replaces ``target`` or, with ``add``, is added to it.
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
        """Set ``target`` to the rotated spectrum plus ``offset``, both (block, image, row)."""
        self.torch.baddbmm(offset, pairs.transpose(1, 2), rotation_t, out=target)

    def rotate_back(self, rotation: Array, rows: Array, pairs: Array) -> None:
        """Set ``pairs`` (block, row, image) to ``rotation`` applied to ``rows`` (block, image, row)."""
        self.torch.bmm(rotation, rows.transpose(1, 2), out=pairs)
