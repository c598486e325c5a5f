"""Tubes in an orthonormal *real* Fourier basis: every frequency one real block, every FFT one GEMM.

Arrays are tube-first, ``(tube, row, column)``. In this basis a tube of length k has k real coefficients:
for odd k first the mean alone (the *head*), then pairs (cosine, sine); for even k the mean and the alternating
(Nyquist) coefficient form the first pair. A t-product is then a small real matrix per pair, on a contiguous
``(2·rows, columns)`` slab, and Parseval holds without weights. For the short tubes of small images a GEMM
with the k×k basis is faster than an FFT, on the CPU and on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from tubal.backends.arrays import Array, as_complex, as_like, constant_like, namespace


@cache
def _basis(tube_length: int) -> np.ndarray:
    times = np.arange(tube_length)
    rows = [np.full(tube_length, np.sqrt(1.0 / tube_length))]
    if tube_length % 2 == 0:
        rows.append(np.sqrt(1.0 / tube_length) * (-1.0) ** times)
    for frequency in range(1, (tube_length + 1) // 2):
        angles = 2.0 * np.pi * ((frequency * times) % tube_length) / tube_length
        rows += [np.sqrt(2.0 / tube_length) * np.cos(angles), -np.sqrt(2.0 / tube_length) * np.sin(angles)]
    return np.array(rows)


def fourier_basis(tube_length: int, reference: Array) -> Array:
    """Return the orthonormal real Fourier basis (k, k), one basis vector a row, of the kind of ``reference``.

    >>> basis = fourier_basis(6, np.zeros(1))
    >>> bool(np.allclose(basis @ basis.T, np.eye(6)))
    True
    """
    return constant_like(_basis, tube_length, reference)


def to_coefficients(tensor: Array) -> Array:
    """Return the real Fourier coefficients of a tube-first tensor, same shape."""
    flat = tensor.reshape(tensor.shape[0], -1)
    return (fourier_basis(tensor.shape[0], tensor) @ flat).reshape(tensor.shape)


def from_coefficients(coefficients: Array) -> Array:
    """Undo :func:`to_coefficients`."""
    flat = coefficients.reshape(coefficients.shape[0], -1)
    return (fourier_basis(coefficients.shape[0], coefficients).T @ flat).reshape(coefficients.shape)


@dataclass(frozen=True)
class BlockOperator:
    """A t-linear map as real blocks: ``head`` (k mod 2, rows, inner) and ``pairs`` (k // 2, 2·rows, 2·inner)."""

    head: Array
    pairs: Array

    def __matmul__(self, coefficients: Array) -> Array:
        """Apply the map to coefficients (k, inner, columns)."""
        n_head, columns = self.head.shape[0], coefficients.shape[2]
        tail = coefficients[n_head:].reshape(self.pairs.shape[0], self.pairs.shape[2], columns)
        image = (self.pairs @ tail).reshape(-1, self.head.shape[1], columns)
        if n_head == 0:
            return image
        return namespace(image).concatenate([self.head @ coefficients[:n_head], image], 0)

    def after(self, first: BlockOperator) -> BlockOperator:
        """Return the map that applies ``first`` and then this one."""
        return BlockOperator(self.head @ first.head, self.pairs @ first.pairs)

    @property
    def transpose(self) -> BlockOperator:
        """The adjoint map, blocks contiguous."""
        xp = namespace(self.head)
        flipped = [xp.swapaxes(blocks, 1, 2) for blocks in (self.head, self.pairs)]
        return BlockOperator(*(_contiguous(blocks) for blocks in flipped))


def as_blocks(slices: Array, tube_length: int, reference: Array) -> BlockOperator:
    """Return the real blocks of a map given by its half spectrum (frequency, rows, inner), complex.

    A complex slice A + iB acts on (cosine; sine) coefficients as ``[[A, -B], [B, A]]``.
    """
    xp = namespace(slices)
    real, imag = slices.real, slices.imag
    n_head, (rows, inner) = tube_length % 2, slices.shape[1:]
    pairs = xp.zeros((tube_length // 2, 2 * rows, 2 * inner), dtype=real.dtype, device=real.device)
    within, body = slice(1, (tube_length + 1) // 2), pairs[1 - n_head :]
    body[:, :rows, :inner] = body[:, rows:, inner:] = real[within]
    body[:, rows:, :inner] = imag[within]
    body[:, :rows, inner:] = -imag[within]
    if n_head == 0:
        pairs[0, :rows, :inner], pairs[0, rows:, inner:] = real[0], real[-1]
    return BlockOperator(_contiguous(as_like(real[:n_head], reference)), _contiguous(as_like(pairs, reference)))


def fold(operator: BlockOperator) -> Array:
    """Return the real Fourier coefficients (k, rows, inner) of *any* real blocks, each times its count.

    For blocks ``P Qᵀ`` summed over samples these are the Hermitian products of the spectra of P and Q: the diagonal
    blocks of a pair add up and the off-diagonal ones subtract; mean and Nyquist, alone or a pair, stay as they are.
    """
    xp = namespace(operator.pairs)
    rows, inner = operator.head.shape[1], operator.head.shape[2]
    pairs, n_nyquist = operator.pairs, 1 - operator.head.shape[0]
    ends, body = pairs[:n_nyquist], pairs[n_nyquist:]
    parts = [
        xp.stack([ends[:, :rows, :inner], ends[:, rows:, inner:]], 1),
        xp.stack([body[:, :rows, :inner] + body[:, rows:, inner:], body[:, rows:, :inner] - body[:, :rows, inner:]], 1),
    ]
    return xp.concatenate([operator.head, xp.concatenate(parts, 0).reshape(-1, rows, inner)], 0)


def as_slices(folded: Array, counts: Array) -> Array:
    """Return the half spectrum (frequency, rows, inner) of what :func:`fold` gives, each slice divided by its count."""
    xp, tube_length = namespace(folded), folded.shape[0]
    n_ends = 2 - tube_length % 2
    real, imag = (xp.empty((len(counts), *folded.shape[1:]), dtype=folded.dtype, device=folded.device) for _ in "ri")
    real[0], imag[0] = folded[0], 0.0
    if n_ends == 2:
        real[-1], imag[-1] = folded[1], 0.0
    inner = slice(1, (tube_length + 1) // 2)
    real[inner], imag[inner] = folded[n_ends::2], folded[n_ends + 1 :: 2]
    return as_complex(real / counts[:, None, None], imag / counts[:, None, None])


def _contiguous(array: Array) -> Array:
    return np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array.contiguous()
