"""The algebra of tubes: t-product, transpose, half spectra, norms (section 2 of the paper).

Operands are ordered as in the paper, ``(rows, columns, tube)``. Half spectra are ordered
``(frequency, rows, columns)``, so that a t-product is one batched ``@``.
"""

from __future__ import annotations

from tubal.backends.arrays import (
    Array,
    irfft,
    is_floating,
    is_torch,
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
    _check_tensor("t_transpose", tensor)
    xp = namespace(tensor)
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
    _check_real("to_spectrum", tensor)
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
    _check_tensor("from_spectrum", spectrum, "(frequency, rows, columns)")
    if tube_length < 1 or len(spectrum) != tube_length // 2 + 1:
        raise ValueError(
            f"from_spectrum got {len(spectrum)} frequencies for tube_length={tube_length}; tubes of length k have "
            "k // 2 + 1 of them"
        )
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
    _check_tensor("unfold", tensor)
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
    _check_tensor("fold", matrix, "(tube_length * rows, columns)")
    total, columns = matrix.shape
    if tube_length < 1 or total % tube_length:
        raise ValueError(
            f"fold got {total} rows for tube_length={tube_length}; their number must be a multiple of tube_length"
        )
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
    _check_real("tube_norms", tensor)
    values = tensor if is_floating(tensor) else tensor * 1.0  # squares of integers overflow
    return namespace(values).sqrt((values**2).sum(-1))


def _check_tensor(function: str, tensor: Array, axes: str = "(rows, columns, tube)") -> None:
    """Raise an error unless the argument of a function is an array with the given axes."""
    if not hasattr(tensor, "ndim") or not hasattr(tensor, "dtype"):
        raise TypeError(
            f"{function} takes a NumPy array or a torch tensor, got a {type(tensor).__name__}; convert it with "
            "numpy.asarray"
        )
    if tensor.ndim != axes.count(",") + 1:
        raise ValueError(f"{function} takes a tensor {axes}, got shape {tuple(tensor.shape)}")


def _check_real(function: str, tensor: Array) -> None:
    """Raise an error unless the argument of a function is a real array (rows, columns, tube) with tubes."""
    _check_tensor(function, tensor)
    if tensor.is_complex() if is_torch(tensor) else tensor.dtype.kind not in "buif":
        raise TypeError(f"{function} takes real numbers, got {tensor.dtype}; pass real and imaginary parts one by one")
    if tensor.shape[-1] == 0:
        raise ValueError(f"{function} takes tubes of at least one number, got shape {tuple(tensor.shape)}")


def _check_operands(left: Array, right: Array) -> None:
    """Raise an error if the kinds, types or shapes of two operands do not fit a t-product."""
    for operand in (left, right):
        if not hasattr(operand, "ndim"):
            raise TypeError(
                f"t_product takes NumPy arrays or torch tensors, got a {type(operand).__name__}; convert it with "
                "numpy.asarray"
            )
    if is_torch(left) != is_torch(right) or (is_torch(left) and left.dtype != right.dtype):
        kinds = [f"{type(operand).__name__} of {getattr(operand, 'dtype', '?')}" for operand in (left, right)]
        raise TypeError(
            f"t_product got a {kinds[0]} and a {kinds[1]}; pass two NumPy arrays, or two torch tensors of one type"
        )
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
