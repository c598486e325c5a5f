"""What every graph asks of its images: numbers, finite, at least one image, a known shape."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import to_numpy

_EXACT_IN_FLOAT32 = (np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.float16, np.float32)


def check_images(images: Any) -> NDArray[Any]:
    """Return ``images`` as a NumPy floating stack; float32 stays float32 and is not copied.

    Accepted shapes: ``(n, features)`` rows, ``(n, height, width)`` and ``(n, height, width, channels)``.

    >>> check_images(np.zeros((2, 3, 3), dtype=np.uint8)).dtype
    dtype('float32')
    """
    stack = to_numpy(images)
    if stack.dtype.kind not in "buif":
        raise TypeError(f"images have dtype {stack.dtype}; real numbers are needed, convert them to float32")
    if stack.ndim not in (2, 3, 4):
        raise ValueError(
            f"images have shape {stack.shape}; expected (n, features), (n, height, width) or "
            "(n, height, width, channels), add the missing axes with reshape"
        )
    if 0 in stack.shape:
        raise ValueError(f"images have shape {stack.shape}, which holds no pixel; pass at least one image")
    exact = any(stack.dtype == kind for kind in _EXACT_IN_FLOAT32)
    stack = np.ascontiguousarray(stack, dtype=np.float32 if exact else np.float64)
    if not np.isfinite(stack.sum()) and not np.isfinite(stack).all():
        raise ValueError("images contain NaN or infinity; replace or drop those pixels first")
    return stack


def check_n_neighbors(n_neighbors: Any, limit: int, what: str = "images") -> int:
    """Return ``n_neighbors`` as an int when ``1 <= n_neighbors <= limit``."""
    if isinstance(n_neighbors, bool) or not isinstance(n_neighbors, (int, np.integer)):
        raise TypeError(f"n_neighbors is {n_neighbors!r}; a positive integer is needed")
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors is {n_neighbors}; at least one neighbour is needed")
    if n_neighbors > limit:
        raise ValueError(
            f"n_neighbors is {n_neighbors}, but only {limit} other {what} are there to choose from; "
            f"lower n_neighbors or add images"
        )
    return int(n_neighbors)


def as_rows(stack: NDArray[Any]) -> NDArray[Any]:
    """Flatten every image of a checked stack to one row."""
    return stack.reshape(stack.shape[0], -1)


def row_digests(rows: NDArray[Any]) -> list[bytes]:
    """One 16-byte digest per row; equal values (also ``0.0`` and ``-0.0``) give equal digests."""
    positive_zero = np.ascontiguousarray(rows + rows.dtype.type(0))
    return [blake2b(row, digest_size=16).digest() for row in positive_zero]


def _all_differ(rows: NDArray[Any]) -> bool:
    """Tell whether rows are all different for sure, by weighted sums of their bits: equal rows have equal sums."""
    word = np.dtype(np.uint8 if rows.itemsize % 4 else np.uint32)
    n_words = rows.shape[1] * rows.itemsize // word.itemsize
    weights = np.random.default_rng(0).integers(2**63, size=n_words, dtype=np.uint64)
    sums = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), 1024):
        part = np.ascontiguousarray(rows[start : start + 1024] + rows.dtype.type(0))
        sums[start : start + 1024] = part.view(word) @ weights
    return len(np.unique(sums)) == len(rows)


def duplicate_groups(rows: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return ``(representatives, group)``: the first row of each distinct value, and each row's group.

    >>> duplicate_groups(np.array([[1.0], [2.0], [1.0]]))
    (array([0, 1]), array([0, 1, 0]))
    """
    if _all_differ(rows):
        return np.arange(len(rows)), np.arange(len(rows))
    seen: dict[bytes, int] = {}
    representatives: list[int] = []
    group = np.empty(len(rows), dtype=np.intp)
    for index, digest in enumerate(row_digests(rows)):
        known = seen.setdefault(digest, len(representatives))
        if known == len(representatives):
            representatives.append(index)
        group[index] = known
    return np.asarray(representatives, dtype=np.intp), group
