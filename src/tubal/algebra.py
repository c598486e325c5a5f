"""The algebra of tubes: t-product, transpose, half spectra, norms (section 2 of the paper).

Operands are ordered as in the paper, ``(rows, columns, tube)``. Half spectra are ordered
``(frequency, rows, columns)``, so that a t-product is one batched ``@``.
"""

from __future__ import annotations

from tubal.backends.arrays import (
    Array,
    irfft,
    namespace,
    rfft,
    spectrum_weights,
)

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


# --- the paper's operations -------------------------------------------------------------------------------------------
def t_product(left: Array, right: Array) -> Array:
    """Return the t-product ``left * right`` (eq. 1).

    It is a matrix product whose entries are tubes, multiplied by circular convolution.

    Parameters
    ----------
    left : array of shape (rows, inner, tube)
        Left operand, a NumPy array or a torch tensor.
    right : array of shape (inner, columns, tube)
        Right operand, of the same kind.

    Returns
    -------
    array of shape (rows, columns, tube)
        The product, of the same kind and type as the operands.

    Examples
    --------
    >>> import numpy as np
    >>> identity = np.zeros((2, 2, 3)); identity[:, :, 0] = np.eye(2)
    >>> tensor = np.arange(12.0).reshape(2, 2, 3)
    >>> bool(np.allclose(t_product(identity, tensor), tensor))
    True
    """
    _check_operands(left, right)
    return from_spectrum(to_spectrum(left) @ to_spectrum(right), tube_length=left.shape[-1])


def t_transpose(tensor: Array) -> Array:
    """Return the transpose ``X†``.

    Slice ``l`` is the transposed slice ``k + 2 - l`` for ``l >= 2``. The paper prints ``k + 1 - l``, for which
    ``<D * B, X> = <B, D† * X>`` does not hold.

    Parameters
    ----------
    tensor : array of shape (rows, columns, tube)
        A NumPy array or a torch tensor.

    Returns
    -------
    array of shape (columns, rows, tube)
        The transpose, of the same kind and type.
    """
    xp = namespace(tensor)
    if tensor.ndim != 3:
        raise ValueError(f"t_transpose takes a tensor (rows, columns, tube), got shape {tuple(tensor.shape)}")
    reversed_tail = xp.flip(tensor[:, :, 1:], (2,))
    return xp.swapaxes(xp.concatenate([tensor[:, :, :1], reversed_tail], -1), 0, 1)


def to_spectrum(tensor: Array) -> Array:
    """Return the half spectrum of a real tensor along its tubes.

    Parameters
    ----------
    tensor : array of shape (rows, columns, tube)
        A real tensor.

    Returns
    -------
    array of shape (tube // 2 + 1, rows, columns)
        Complex spectrum, frequency first.
    """
    return namespace(tensor).moveaxis(rfft(tensor, axis=-1), -1, 0)


def from_spectrum(spectrum: Array, *, tube_length: int) -> Array:
    """Return the real tensor of a half spectrum.

    Parameters
    ----------
    spectrum : array of shape (tube_length // 2 + 1, rows, columns)
        Complex half spectrum, as :func:`to_spectrum` returns it.
    tube_length : int
        Length of the tubes; the spectrum alone does not tell an even length from the next odd one.

    Returns
    -------
    array of shape (rows, columns, tube_length)
        The real tensor.
    """
    return namespace(spectrum).moveaxis(irfft(spectrum, tube_length, axis=0), 0, -1)


def unfold(tensor: Array) -> Array:
    """Return the frontal slices of a tensor stacked on top of each other (the paper's underline).

    Parameters
    ----------
    tensor : array of shape (rows, columns, tube)
        A NumPy array or a torch tensor, real or complex.

    Returns
    -------
    array of shape (tube * rows, columns)
        First all rows of slice 0, then those of slice 1, and so on.
    """
    rows, columns, tube_length = tensor.shape
    return namespace(tensor).moveaxis(tensor, -1, 0).reshape(tube_length * rows, columns)


def fold(matrix: Array, *, tube_length: int) -> Array:
    """Undo :func:`unfold`.

    Parameters
    ----------
    matrix : array of shape (tube_length * rows, columns)
        Stacked slices.
    tube_length : int
        Number of slices.

    Returns
    -------
    array of shape (rows, columns, tube_length)
        The tensor.
    """
    total, columns = matrix.shape
    return namespace(matrix).moveaxis(matrix.reshape(tube_length, total // tube_length, columns), 0, -1)


def tube_norms(tensor: Array) -> Array:
    """Return the Euclidean norm of every tube; for codes these are the features of eq. 20.

    Parameters
    ----------
    tensor : array of shape (rows, columns, tube)
        Codes, or any other real tensor.

    Returns
    -------
    array of shape (rows, columns)
        The norms.
    """
    return namespace(tensor).sqrt((tensor**2).sum(-1))


def _check_operands(left: Array, right: Array) -> None:
    """Raise ``ValueError`` if the shapes of two operands do not fit a t-product."""
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
