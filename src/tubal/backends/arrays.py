"""The one file that knows torch exists: array namespaces and conversions.

NumPy 2 and torch share enough of the array API that most code needs only ``xp = namespace(array)``.
What they spell differently stands here, once.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tubal.backends.threads import own_threads, parallel_ranges

Array: TypeAlias = Any  # a numpy.ndarray or a torch.Tensor; every function returns the kind it was given


def is_torch(array: object) -> bool:
    """Tell whether ``array`` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(array: Array) -> Any:
    """Return the module, ``numpy`` or ``torch``, whose functions apply to ``array``.

    >>> namespace(np.zeros(3)).__name__
    'numpy'
    """
    return sys.modules["torch"] if is_torch(array) else np


def to_numpy(array: Array) -> np.ndarray:
    """Return ``array`` as a NumPy array, copied from its device if need be."""
    return array.detach().cpu().numpy() if is_torch(array) else np.asarray(array)


def to_numpy_together(*arrays: Array) -> list[np.ndarray]:
    """Return arrays of one type as NumPy arrays; tensors come from their device in one transfer."""
    if not is_torch(arrays[0]):
        return [np.asarray(array) for array in arrays]
    whole = to_numpy(sys.modules["torch"].cat([array.reshape(-1) for array in arrays]))
    ends = np.cumsum([array.numel() for array in arrays])
    parts = np.split(whole, ends[:-1])
    return [part.reshape(tuple(array.shape)) for part, array in zip(parts, arrays, strict=True)]


def as_like(values: Any, reference: Array) -> Array:
    """Return ``values`` as an array of the kind, device and real type of ``reference``."""
    if is_torch(reference):
        torch = sys.modules["torch"]
        if isinstance(values, np.ndarray) and reference.dtype == torch.float32:
            values = values.astype(np.float32, copy=False)  # torch would wake all its threads for this
        return torch.as_tensor(values, dtype=reference.dtype, device=reference.device)
    return np.asarray(values, dtype=reference.dtype)


def constant_like(make: Callable[[int], np.ndarray], size: int, reference: Array) -> Array:
    """Return ``make(size)``, the same at every call, as an array like ``reference``; only to be read.

    A device gets it once: sending nine numbers takes as long as a step of the splitting.
    """
    if is_torch(reference):
        return _constant_tensor(make, size, reference.dtype, reference.device)
    return np.asarray(make(size), dtype=reference.dtype)


@lru_cache(maxsize=64)
def _constant_tensor(make: Callable[[int], np.ndarray], size: int, dtype: Any, device: Any) -> Array:
    return sys.modules["torch"].as_tensor(make(size), dtype=dtype, device=device)


def restore_like(value: Any, reference: Array) -> Any:
    """Return a NumPy array as an array of the kind and device of ``reference``, its type kept; others as they are."""
    if not isinstance(value, np.ndarray) or not is_torch(reference):
        return value
    return sys.modules["torch"].as_tensor(value, device=reference.device)


def to_device(array: np.ndarray, device: str) -> Array:
    """Return ``array`` where ``device`` says: ``"cpu"`` as it is, ``"cuda"`` as a tensor, ``"auto"`` either.

    >>> to_device(np.zeros(3), "cpu").shape
    (3,)
    """
    if device == "cpu" or (device == "auto" and not _cuda_is_likely()):
        return array
    try:
        import torch
    except ImportError:
        if device == "auto":
            return array
        raise ImportError("device 'cuda' needs PyTorch; install it: pip install 'tubal[torch]'") from None
    if not torch.cuda.is_available():
        if device == "auto":
            return array
        raise ValueError("device is 'cuda' but PyTorch finds no usable GPU; use 'auto' or 'cpu'")
    return torch.as_tensor(array, device="cuda")


def _cuda_is_likely() -> bool:
    # Importing torch costs a second or more; a machine without the driver's device file need not pay it.
    return os.name == "nt" or os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")


def as_double(array: Array) -> Array:
    """Return ``array`` in double precision, real or complex as it was."""
    if is_torch(array):
        torch = sys.modules["torch"]
        return array.to(torch.complex128 if array.is_complex() else torch.float64)
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64, copy=False)


def as_complex(real: Array, imag: Array) -> Array:
    """Return ``real + i imag`` of two real arrays."""
    if is_torch(real):
        return sys.modules["torch"].complex(real, imag)
    joined = np.empty(real.shape, np.result_type(real, np.complex64))
    joined.real, joined.imag = real, imag
    return joined


def sparse_like(matrix: Any, reference: Array) -> Any:
    """Return a square SciPy CSR matrix as a sparse tensor of the type and device of ``reference``, a tensor."""
    torch = sys.modules["torch"]
    pointers, columns = (torch.as_tensor(part, device=reference.device) for part in (matrix.indptr, matrix.indices))
    return sparse_tensor(pointers, columns, as_like(matrix.data, reference))


def sparse_tensor(pointers: Array, columns: Array, values: Array) -> Any:
    """Return the square sparse tensor whose CSR parts are given."""
    torch = sys.modules["torch"]
    shape = (len(pointers) - 1,) * 2
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse ", UserWarning)  # "in beta", "checks are disabled"
        return torch.sparse_csr_tensor(pointers.long(), columns.long(), values, size=shape, check_invariants=False)


def gram_eigh(factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues (batch, n) and eigenvectors (batch, n, n) of ``Fᴴ F`` for small factors F (batch, rows, n).

    By LAPACK on all cores: nine of 45×45 take an H200 5.5 ms and its host 1.5. With few rows most eigenvalues are zero:
    ``Fᴴ = Q R`` leaves a problem of the rows' size, and Q the rest; so little that threads would take longer to agree
    than one takes to do it.
    """
    n_rows, size = factors.shape[1:]
    adjoint = np.conj(np.swapaxes(factors, 1, 2))
    if 2 * n_rows > size:
        with own_threads() as threads:
            parts = parallel_ranges(
                lambda start, stop: np.linalg.eigh(adjoint[start:stop] @ factors[start:stop]),
                len(factors), grain=1, threads=threads,
            )  # fmt: skip
        values, vectors = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
        return values, vectors
    vectors, triangle = np.linalg.qr(adjoint, mode="complete")
    core = triangle[:, :n_rows]
    largest, turn = np.linalg.eigh(core @ np.conj(np.swapaxes(core, 1, 2)))
    values = np.zeros((len(factors), size))
    values[:, :n_rows], vectors[:, :, :n_rows] = largest, vectors[:, :, :n_rows] @ turn
    return values, vectors


def machine_epsilon(array: Array) -> float:
    """Return the rounding unit of the array's floating type."""
    xp = namespace(array)
    return float(xp.finfo(array.dtype).eps)


def rfft(array: Array, axis: int) -> Array:
    """Return the half spectrum along ``axis``, single precision kept."""
    if is_torch(array):
        return sys.modules["torch"].fft.rfft(array, dim=axis)
    import scipy.fft

    return scipy.fft.rfft(array, axis=axis)


def irfft(array: Array, length: int, axis: int) -> Array:
    """Return the real signal of ``length`` whose half spectrum is ``array``."""
    if is_torch(array):
        return sys.modules["torch"].fft.irfft(array, n=length, dim=axis)
    import scipy.fft

    return scipy.fft.irfft(array, n=length, axis=axis)


def rfft2(array: Array, axes: tuple[int, int]) -> Array:
    """Return the half spectrum along two axes, the second one halved, single precision kept."""
    if is_torch(array):
        return sys.modules["torch"].fft.rfft2(array, dim=axes)
    import scipy.fft

    return scipy.fft.rfft2(array, axes=axes)


def irfft2(array: Array, shape: tuple[int, int], axes: tuple[int, int]) -> Array:
    """Return the real plane of ``shape`` whose half spectrum is ``array``."""
    if is_torch(array):
        return sys.modules["torch"].fft.irfft2(array, s=shape, dim=axes)
    import scipy.fft

    return scipy.fft.irfft2(array, s=shape, axes=axes)


def as_complex_like(values: Array, reference: Array) -> Array:
    """Return complex ``values`` in the precision and on the device of ``reference``, a real array."""
    if is_torch(reference):
        torch = sys.modules["torch"]
        kind = torch.complex64 if reference.dtype == torch.float32 else torch.complex128
        return torch.as_tensor(values, dtype=kind, device=reference.device)
    return np.asarray(values, np.complex64 if reference.dtype == np.float32 else np.complex128)


def is_floating(array: Array) -> bool:
    """Tell whether the array holds real floating-point numbers."""
    return bool(array.dtype.is_floating_point) if is_torch(array) else array.dtype.kind == "f"
