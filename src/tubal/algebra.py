"""The algebra of tubes: t-product, transpose, half spectra and norms (section 2 of the paper).

Public operands are ordered as in the paper, ``(rows, columns, tube)``. Half spectra are ordered
``(frequency, rows, columns)``, so that a t-product is one batched ``@``.
"""

from __future__ import annotations

import numpy as np

from tubal.backends.arrays import Array, constant_like, irfft, namespace, rfft

__all__ = [
    "fold",
    "from_spectrum",
    "spectrum_weights",
    "t_product",
    "t_transpose",
    "to_spectrum",
    "tube_norms",
    "unfold",
]


def t_product(left: Array, right: Array) -> Array:
    """Return ``left * right`` (eq. 1): matrix product whose scalars are tubes under circular convolution.

    Parameters
    ----------
    left : array, (rows, inner, tube)
    right : array, (inner, columns, tube)

    >>> import numpy as np
    >>> identity = np.zeros((2, 2, 3)); identity[:, :, 0] = np.eye(2)
    >>> tensor = np.arange(12.0).reshape(2, 2, 3)
    >>> bool(np.allclose(t_product(identity, tensor), tensor))
    True
    """
    _check_operands(left, right)
    return from_spectrum(to_spectrum(left) @ to_spectrum(right), tube_length=left.shape[-1])


def t_transpose(tensor: Array) -> Array:
    """Return the transpose ``X†``, of shape (columns, rows, tube).

    Slice ``l`` is the transposed slice ``k + 2 - l`` (``l >= 2``). The paper prints ``k + 1 - l``, with
    which ``<D * B, X> = <B, D† * X>`` fails.
    """
    xp = namespace(tensor)
    if tensor.ndim != 3:
        raise ValueError(f"t_transpose takes a tensor (rows, columns, tube), got shape {tuple(tensor.shape)}")
    reversed_tail = xp.flip(tensor[:, :, 1:], (2,))
    return xp.swapaxes(xp.concatenate([tensor[:, :, :1], reversed_tail], -1), 0, 1)


def to_spectrum(tensor: Array) -> Array:
    """Return the half spectrum (frequency, rows, columns) of a tensor (rows, columns, tube)."""
    return namespace(tensor).moveaxis(rfft(tensor, axis=-1), -1, 0)


def from_spectrum(spectrum: Array, *, tube_length: int) -> Array:
    """Return the tensor (rows, columns, tube) of a half spectrum (frequency, rows, columns)."""
    return namespace(spectrum).moveaxis(irfft(spectrum, tube_length, axis=0), 0, -1)


def spectrum_weights(tube_length: int, reference: Array) -> Array:
    """Return how often each half-spectrum bin counts in the full spectrum: 1 for DC and Nyquist, else 2.

    Parseval on half spectra reads ``k ||X||² = sum_l weight_l ||X̂_l||²``. Only to be read: tensors are shared.
    """
    return constant_like(_bin_weights, tube_length, reference)


def _bin_weights(tube_length: int) -> np.ndarray:
    frequencies = np.arange(tube_length // 2 + 1)
    return np.where((frequencies == 0) | (2 * frequencies == tube_length), 1.0, 2.0)


def unfold(tensor: Array) -> Array:
    """Return the expansion along the tube (the paper's underline): slices stacked, (tube·rows, columns)."""
    rows, columns, tube_length = tensor.shape
    return namespace(tensor).moveaxis(tensor, -1, 0).reshape(tube_length * rows, columns)


def fold(matrix: Array, *, tube_length: int) -> Array:
    """Undo :func:`unfold`."""
    total, columns = matrix.shape
    return namespace(matrix).moveaxis(matrix.reshape(tube_length, total // tube_length, columns), 0, -1)


def tube_norms(tensor: Array) -> Array:
    """Return the Euclidean norm of every tube, (rows, columns); of codes, the features of eq. 20."""
    return namespace(tensor).sqrt((tensor**2).sum(-1))


def _check_operands(left: Array, right: Array) -> None:
    if left.ndim != 3 or right.ndim != 3:
        raise ValueError(
            f"t_product takes tensors (rows, columns, tube), got shapes {tuple(left.shape)} and "
            f"{tuple(right.shape)}; a single column is (rows, 1, tube)"
        )
    if left.shape[1] != right.shape[0] or left.shape[2] != right.shape[2]:
        raise ValueError(
            f"t_product of shapes {tuple(left.shape)} and {tuple(right.shape)}: the second size of the left "
            "must equal the first of the right, and both tubes must have the same length"
        )
