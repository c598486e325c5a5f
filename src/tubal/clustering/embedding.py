"""A 2-D map of a graph: edges attract, random pairs repel (as in UMAP and LargeVis)."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tubal.backends.cpu.jit import njit
from tubal.clustering.eigenvectors import spectrum
from tubal.graph.structure import SparseMatrix

Points: TypeAlias = NDArray[np.float32]

# Leading eigenvectors that the start is a projection of.
_N_VECTORS = 16
# Random images that repel the ends of each edge, per epoch.
_PUSHES = 5
# Closeness 1 / (1 + a d^2b) is flat below a tenth of a unit and then falls like an exponential.
_FLATNESS, _STEEPNESS = 1.577, 0.895


def graph_map(adjacency: SparseMatrix, *, n_epochs: int | None = None, seed: int = 0) -> Points:
    """Return a map of the images in which images joined by edges lie close together.

    The initial map shows the first two principal components of the graph's leading eigenvectors. Then stochastic
    gradient steps of decreasing size reduce the cross-entropy between edges and closeness on the map, as in UMAP: each
    edge attracts its two images, which are repelled by a few random images.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric edge weights in CSR form.
    n_epochs : int or None, default=None
        Passes over all edges; None for 300 up to 2000 images, decreasing to 100 at 10 000.
    seed : int, default=0
        Seed of the start and of the random images; the same seed gives the same map.

    Returns
    -------
    ndarray of shape (n_images, 2)
        Points, centred at the origin.

    Examples
    --------
    >>> from scipy import sparse
    >>> two = sparse.block_diag([np.ones((5, 5)) - np.eye(5)] * 2, format="csr")
    >>> points = graph_map(two)
    >>> bool(np.linalg.norm(points[:5].mean(0) - points[5:].mean(0)) > np.ptp(points[:5], axis=0).max())
    True
    """
    n_images = adjacency.shape[0]
    if n_images < 3 or adjacency.nnz == 0:
        return _circle(n_images)
    points = _start(adjacency, seed)
    edges = sparse.triu(adjacency, k=1, format="coo")
    weights = (edges.data / edges.data.max()).astype(np.float32)
    epochs = n_epochs if n_epochs is not None else int(np.clip(300 - (n_images - 2000) / 40, 100, 300))
    order = np.random.default_rng(seed).permutation(len(weights))
    _layout(
        points,
        edges.row[order].astype(np.int32),
        edges.col[order].astype(np.int32),
        weights[order],
        epochs,
        np.uint64(seed + 1),
    )
    points -= points.mean(axis=0)
    return points


def _circle(n_images: int) -> Points:
    """Return points on a circle, for images without edges."""
    angles = 2.0 * np.pi * np.arange(n_images) / max(n_images, 1)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def _start(adjacency: SparseMatrix, seed: int) -> Points:
    """Return the first two principal components (n, 2) of the leading eigenvectors, scaled to a square of side 20."""
    vectors = spectrum(adjacency, min(_N_VECTORS, adjacency.shape[0] - 1), seed=seed).vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0.0, lengths, 1.0)
    unit = unit - unit.mean(axis=0)
    _, axes = np.linalg.eigh(unit.T @ unit)
    plane = np.zeros((len(unit), 2))
    widest = axes[:, ::-1][:, :2]
    plane[:, : widest.shape[1]] = unit @ widest
    # Noise separates images with equal coordinates; without it they would always move together.
    spread = np.abs(plane).max() or 1.0
    noise = np.random.default_rng(seed).normal(scale=0.01, size=plane.shape)
    return np.ascontiguousarray(10.0 * (plane / spread + noise), dtype=np.float32)


@njit(cache=True, fastmath=True)
def _layout(points, sources, targets, weights, n_epochs, state):  # type: ignore[no-untyped-def]
    """Move ``points`` (n, 2) in place: in each epoch, one attraction and a few repulsions per edge."""
    n_images = points.shape[0]
    for epoch in range(n_epochs):
        step = np.float32(1.0 - epoch / n_epochs)
        for edge in range(len(sources)):
            i, j, weight = sources[edge], targets[edge], weights[edge] * step
            dx, dy = points[i, 0] - points[j, 0], points[i, 1] - points[j, 1]
            square = dx * dx + dy * dy
            if square > 1e-12:
                power = square ** np.float32(_STEEPNESS - 1.0)
                attraction = 2.0 * _FLATNESS * _STEEPNESS * power / (1.0 + _FLATNESS * power * square)
                px, py = weight * _clip(attraction * dx), weight * _clip(attraction * dy)
                points[i, 0] -= px
                points[i, 1] -= py
                points[j, 0] += px
                points[j, 1] += py
            for push in range(_PUSHES):
                # A generator of our own (xorshift) keeps the map the same on every platform.
                state ^= (state << np.uint64(13)) & np.uint64(0xFFFFFFFFFFFFFFFF)
                state ^= state >> np.uint64(7)
                state ^= (state << np.uint64(17)) & np.uint64(0xFFFFFFFFFFFFFFFF)
                other = np.int64(state % np.uint64(n_images))
                end = i if push % 2 == 0 else j
                if other == end:
                    continue
                dx, dy = points[end, 0] - points[other, 0], points[end, 1] - points[other, 1]
                square = dx * dx + dy * dy
                power = square ** np.float32(_STEEPNESS)
                force = 2.0 * _STEEPNESS / ((0.001 + square) * (1.0 + _FLATNESS * power))
                points[end, 0] += weight * _clip(force * dx)
                points[end, 1] += weight * _clip(force * dy)


@njit(inline="always")
def _clip(value):  # type: ignore[no-untyped-def]
    return np.float32(min(max(value, -4.0), 4.0))
