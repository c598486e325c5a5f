"""The algebra of tubes: t-product, transpose, half spectra, norms (section 2 of the paper), and the real Fourier basis.

Public operands are ordered as in the paper, ``(rows, columns, tube)``. Half spectra are ordered
``(frequency, rows, columns)``, so that a t-product is one batched ``@``.

The second part of this file serves the coding problems and is not public. There arrays are tube-first,
``(tube, row, column)``, and tubes are expressed in an orthonormal *real* Fourier basis. A tube of length k has k real
coefficients. For odd k the first one is the mean (the *head*), followed by pairs (cosine, sine). For even k the first
pair is the mean and the alternating (Nyquist) coefficient. A t-product is then one small real matrix per pair, on a
contiguous ``(2·rows, columns)`` block, and Parseval holds without weights. For short tubes of small images, a matrix
product with the k × k basis is faster than an FFT, on a CPU as well as on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import (
    Array,
    adjoint,
    as_complex,
    as_double,
    as_like,
    constant_like,
    contiguous,
    gram_eigh,
    irfft,
    is_torch,
    namespace,
    new_zeros,
    rfft,
    to_numpy,
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


def spectrum_weights(tube_length: int, reference: Array) -> Array:
    """Return how often each bin of a half spectrum occurs in the full spectrum: once or twice.

    With these weights Parseval's identity is ``k ||X||² = sum_l weight_l ||X̂_l||²``.

    Parameters
    ----------
    tube_length : int
        Length k of the tubes.
    reference : array
        The result has the kind, real type and device of this array.

    Returns
    -------
    array of shape (tube_length // 2 + 1,)
        1 for the mean and, for even lengths, the last bin; 2 for all others. Tensors are cached: do not change them.
    """
    return constant_like(_bin_weights, tube_length, reference)


def _bin_weights(tube_length: int) -> NDArray[np.float64]:
    frequencies = np.arange(tube_length // 2 + 1)
    return np.where((frequencies == 0) | (2 * frequencies == tube_length), 1.0, 2.0)


def unfold(tensor: Array) -> Array:
    """Return the frontal slices of a tensor stacked on top of each other (the paper's underline).

    Parameters
    ----------
    tensor : array of shape (rows, columns, tube)
        A NumPy array or a torch tensor.

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
        A real tensor.

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


# --- the real Fourier basis (not public) ------------------------------------------------------------------------------
@cache
def _basis(tube_length: int) -> NDArray[np.float64]:
    times = np.arange(tube_length)
    rows = [np.full(tube_length, np.sqrt(1.0 / tube_length))]
    if tube_length % 2 == 0:
        rows.append(np.sqrt(1.0 / tube_length) * (-1.0) ** times)
    for frequency in range(1, (tube_length + 1) // 2):
        angles = 2.0 * np.pi * ((frequency * times) % tube_length) / tube_length
        rows += [np.sqrt(2.0 / tube_length) * np.cos(angles), -np.sqrt(2.0 / tube_length) * np.sin(angles)]
    return np.array(rows)


def fourier_basis(tube_length: int, reference: Array) -> Array:
    """Return the orthonormal real Fourier basis (tube, tube), one basis vector per row, as an array like ``reference``.

    >>> basis = fourier_basis(6, np.zeros(1))
    >>> bool(np.allclose(basis @ basis.T, np.eye(6)))
    True
    """
    return constant_like(_basis, tube_length, reference)


def to_coefficients(tensor: Array) -> Array:
    """Return the real Fourier coefficients of a tube-first tensor, of the same shape."""
    flat = tensor.reshape(tensor.shape[0], -1)
    return (fourier_basis(tensor.shape[0], tensor) @ flat).reshape(tensor.shape)


def from_coefficients(coefficients: Array) -> Array:
    """Undo :func:`to_coefficients`."""
    flat = coefficients.reshape(coefficients.shape[0], -1)
    return (fourier_basis(coefficients.shape[0], coefficients).T @ flat).reshape(coefficients.shape)


@dataclass(frozen=True)
class BlockOperator:
    """A t-linear map in the real Fourier basis: one matrix for the head, one for each pair of coefficients."""

    head: Array  # (tube % 2, rows, inner)
    pairs: Array  # (tube // 2, 2·rows, 2·inner)

    def __matmul__(self, coefficients: Array) -> Array:
        """Apply the map to coefficients (tube, inner, columns)."""
        n_head, columns = self.head.shape[0], coefficients.shape[2]
        tail = coefficients[n_head:].reshape(self.pairs.shape[0], self.pairs.shape[2], columns)
        image = (self.pairs @ tail).reshape(-1, self.head.shape[1], columns)
        if n_head == 0:
            return image
        return namespace(image).concatenate([self.head @ coefficients[:n_head], image], 0)

    def compose(self, first: BlockOperator) -> BlockOperator:
        """Return the map that applies ``first`` and then this one."""
        return BlockOperator(self.head @ first.head, self.pairs @ first.pairs)

    @property
    def transpose(self) -> BlockOperator:
        """The adjoint map, with contiguous matrices."""
        xp = namespace(self.head)
        return BlockOperator(*(contiguous(xp.swapaxes(blocks, 1, 2)) for blocks in (self.head, self.pairs)))


def as_blocks(slices: Array, tube_length: int, reference: Array) -> BlockOperator:
    """Return the block operator of a map given by its complex half spectrum (frequency, rows, inner).

    A complex slice A + iB acts on (cosine; sine) coefficients as ``[[A, -B], [B, A]]``.
    """
    real, imag = slices.real, slices.imag
    n_head, (rows, inner) = tube_length % 2, slices.shape[1:]
    pairs = new_zeros((tube_length // 2, 2 * rows, 2 * inner), real)
    within, body = slice(1, (tube_length + 1) // 2), pairs[1 - n_head :]
    body[:, :rows, :inner] = body[:, rows:, inner:] = real[within]
    body[:, rows:, :inner] = imag[within]
    body[:, :rows, inner:] = -imag[within]
    if n_head == 0:
        pairs[0, :rows, :inner], pairs[0, rows:, inner:] = real[0], real[-1]
    return BlockOperator(contiguous(as_like(real[:n_head], reference)), contiguous(as_like(pairs, reference)))


def hermitian_parts(products: BlockOperator) -> Array:
    """Return real and imaginary parts (tube, rows, inner) of Hermitian products, each times the count of its bin.

    ``products`` holds the real products ``P Qᵀ`` of the coefficients of two tensors, summed over samples. The product
    ``P̂ Q̂ᴴ`` of their spectra has as real part the sum of the two diagonal blocks of a pair, and as imaginary part the
    difference of the other two. The mean and the Nyquist coefficient are real and stay as they are.
    """
    xp = namespace(products.pairs)
    rows, inner = products.head.shape[1], products.head.shape[2]
    pairs, n_nyquist = products.pairs, 1 - products.head.shape[0]
    ends, body = pairs[:n_nyquist], pairs[n_nyquist:]
    parts = [
        xp.stack([ends[:, :rows, :inner], ends[:, rows:, inner:]], 1),
        xp.stack([body[:, :rows, :inner] + body[:, rows:, inner:], body[:, rows:, :inner] - body[:, :rows, inner:]], 1),
    ]
    return xp.concatenate([products.head, xp.concatenate(parts, 0).reshape(-1, rows, inner)], 0)


def slices_from_parts(parts: Array, counts: Array) -> Array:
    """Return the complex half spectrum (frequency, rows, inner) of :func:`hermitian_parts`, divided by ``counts``."""
    xp, tube_length = namespace(parts), parts.shape[0]
    n_ends = 2 - tube_length % 2
    real, imag = (xp.empty((len(counts), *parts.shape[1:]), dtype=parts.dtype, device=parts.device) for _ in "ri")
    real[0], imag[0] = parts[0], 0.0
    if n_ends == 2:
        real[-1], imag[-1] = parts[1], 0.0
    inner = slice(1, (tube_length + 1) // 2)
    real[inner], imag[inner] = parts[n_ends::2], parts[n_ends + 1 :: 2]
    return as_complex(real / counts[:, None, None], imag / counts[:, None, None])


class TubalMap:
    """The map ``B -> D * B`` of one dictionary as block operators, each computed when it is first needed.

    Parameters
    ----------
    dictionary : array of shape (tube, row, atom)
        The atoms.
    reference : array
        Block operators have the library, type and device of this array; they are computed in double precision.
    on_host : bool, default=False
        Compute the spectrum of a tensor on the host, where small operations are faster. Without a graph the spectrum is
        needed on the device anyway, and copying it would mean waiting for the device.
    """

    def __init__(self, dictionary: Array, reference: Array, *, on_host: bool = False) -> None:
        self.dictionary, self.reference, self.on_host = dictionary, reference, on_host
        self.tube_length, self.n_rows, self.n_atoms = (int(size) for size in dictionary.shape)
        self._inverses: dict[float, BlockOperator] = {}

    @cached_property
    def dictionary_hat(self) -> Array:
        """Half spectrum of the atoms (frequency, row, atom)."""
        return rfft(as_double(self.dictionary), axis=0)

    @cached_property
    def _host_hat(self) -> Array:
        """The same on the host."""
        return rfft(as_double(to_numpy(self.dictionary)), axis=0) if is_torch(self.reference) else self.dictionary_hat

    @cached_property
    def gram_hat(self) -> Array:
        """``D̂ᴴ D̂`` for every frequency, (frequency, atom, atom)."""
        return adjoint(self.dictionary_hat) @ self.dictionary_hat

    def _blocks(self, slices: Array) -> BlockOperator:
        return as_blocks(slices, self.tube_length, self.reference)

    @cached_property
    def forward(self) -> BlockOperator:
        """The map D itself."""
        return self._blocks(self._host_hat if self.on_host else self.dictionary_hat)

    @cached_property
    def adjoint(self) -> BlockOperator:
        """Its adjoint Dᵀ."""
        return self.forward.transpose

    @cached_property
    def gram(self) -> BlockOperator:
        """The Gram operator ``DᵀD``."""
        return self._blocks(self.gram_hat)

    def shifted_inverse(self, penalty: float) -> BlockOperator:
        """Return ``penalty · (DᵀD + penalty)⁻¹``; the last one is cached."""
        if penalty not in self._inverses:
            xp = namespace(self.gram_hat)
            eye = as_double(xp.eye(self.n_atoms, device=self.gram_hat.device))
            self._inverses = {penalty: self._blocks(penalty * xp.linalg.inv(self.gram_hat + penalty * eye))}
        return self._inverses[penalty]

    @cached_property
    def eigenbasis(self) -> tuple[BlockOperator, NDArray[np.float64]]:
        """Rotation into the eigenvectors of ``DᵀD``, and the eigenvalues (tube, atom) as a NumPy array."""
        values, vectors = gram_eigh(self._host_hat)
        half = (self.tube_length + 1) // 2
        # The frequency of every real coefficient: the ends first, then each inner one twice (cosine and sine).
        order = [0] if self.tube_length % 2 else [0, self.tube_length // 2]
        order += [frequency for frequency in range(1, half) for _ in (0, 1)]
        return self._blocks(adjoint(vectors)), values[order]
