"""Codes to features: what is clustered. Codes are sample-first here, ``(n, atom, *positions)``."""

from __future__ import annotations

from tubal._backend import Array, namespace


def position_norms(codes: Array) -> Array:
    """Return the length of every atom's code over its positions, (n, atom): eq. 20.

    It says how much of an atom an image holds, wherever in the image it sits.
    """
    axes = tuple(range(2, codes.ndim))
    return namespace(codes).sqrt((codes**2).sum(axes)) if axes else abs(codes)


def signed_codes(codes: Array) -> Array:
    """Return codes as they are, (n, atoms · positions): what SC and GraphSC cluster.

    At tube length one eq. 20 would be the absolute value and lose the sign.
    """
    return codes.reshape(codes.shape[0], -1)


def unit_rows(features: Array) -> Array:
    """Return features with every non-zero row scaled to unit length."""
    xp = namespace(features)
    norms = xp.sqrt((features**2).sum(-1))[:, None]
    return features / xp.where(norms > 0, norms, 1.0)
