"""What the model asks of codes and atoms: the l1 penalty with its prox, and the unit ball."""

from __future__ import annotations

import numpy as np

from tubal._backend import Array, namespace


def soft_threshold(values: Array, threshold: float) -> Array:
    """Shrink each value towards zero by ``threshold``, the prox of the l1 norm (eq. 12).

    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0)
    array([-2.,  0.,  1.])
    """
    taken = clip_to(values, threshold)
    return np.subtract(values, taken, out=taken) if isinstance(taken, np.ndarray) else values - taken


def clip_to(values: Array, bound: float) -> Array:
    """Return the part of each value within ``[-bound, bound]``, which shrinkage takes away."""
    return namespace(values).clip(values, -bound, bound)


def project_to_ball(dictionary: Array) -> Array:
    """Scale every atom of norm above one back to the unit ball; ``dictionary`` is (tube, row, atom)."""
    norms = atom_norms(dictionary)
    return dictionary / namespace(dictionary).clip(norms, 1.0, None)


def atom_norms(dictionary: Array) -> Array:
    """Return the Frobenius norm of every atom of a dictionary (tube, row, atom)."""
    xp = namespace(dictionary)
    return xp.sqrt((dictionary**2).sum((0, 1)))
