"""Normalised cuts: a graph and a number of clusters in, labels out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.csgraph import connected_components

from tubal._backend import own_threads

from .components import join_components
from .eigen import FloatArray, LabelArray, Spectrum, spectrum


def spectral_cut(
    adjacency: Any,
    n_clusters: int,
    *,
    features: NDArray[Any] | None = None,
    known: Spectrum | None = None,
    seed: int = 0,
) -> LabelArray:
    """Cut a graph into ``n_clusters`` parts of small normalised cut; labels (n,) count from the largest part.

    The relaxed problem ``max Tr(Hᵀ E^{-1/2} W E^{-1/2} H)`` gives the leading eigenvectors; a pivoted QR
    picks one image per cluster as far apart as possible and a rotation aligns the eigenvectors with them
    (Damle, Minden and Ying, 2019). No random start is involved, so the seed matters only to the order in
    which the eigensolver works.

    ``adjacency`` is a symmetric CSR matrix (n, n). With fewer clusters than connected components the
    components are joined by their cheapest links first, measured between rows of ``features`` (n, d).
    ``known`` passes eigenpairs already found, at least ``n_clusters`` of them.

    >>> from scipy import sparse
    >>> blocks = sparse.block_diag([np.ones((3, 3)), np.ones((2, 2))], format="csr")
    >>> spectral_cut(blocks, 2)
    array([0, 0, 0, 1, 1])
    """
    check_n_clusters(n_clusters, adjacency.shape[0])
    n_components, component = connected_components(adjacency, directed=False)
    if n_components >= n_clusters:
        return order_by_size(join_components(component, n_clusters, features=features))
    pairs = known if known is not None and len(known.values) >= n_clusters else None
    pairs = (pairs or spectrum(adjacency, n_clusters, seed=seed)).leading(n_clusters)
    with own_threads():
        return order_by_size(assign_by_pivots(pairs.vectors))


def assign_by_pivots(vectors: FloatArray) -> LabelArray:
    """Turn ``k`` orthonormal columns (n, k) into labels: the pivot image each row points to most.

    >>> order_by_size(assign_by_pivots(np.eye(3)[[0, 1, 1, 2]] / [1.0, 2**0.5, 1.0]))
    array([1, 0, 0, 2])
    """
    n_vectors = vectors.shape[1]
    _, _, pivots = linalg.qr(vectors.T, pivoting=True, mode="economic")
    left, _, right = linalg.svd(vectors[pivots[:n_vectors]].T)
    return np.asarray(np.abs(vectors @ (left @ right)).argmax(axis=1), dtype=np.intp)


def normalised_cut(adjacency: Any, labels: LabelArray) -> float:
    """Return ``sum_c cut(c, rest) / volume(c)``, between 0 and the number of clusters.

    >>> from scipy import sparse
    >>> square = sparse.csr_matrix(np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]))
    >>> normalised_cut(square, np.array([0, 0, 1, 1]))
    1.0
    """
    within, volume = cluster_volumes(adjacency, labels)
    # A cluster without edges is cut off for free, yet it holds nothing together: it counts as fully cut.
    return float((1.0 - within / np.where(volume > 0.0, volume, 1.0)).sum())


def cluster_volumes(adjacency: Any, labels: LabelArray) -> tuple[FloatArray, FloatArray]:
    """Return per cluster the edge weight kept inside and the total degree."""
    n_clusters = int(labels.max()) + 1
    edges = adjacency.tocoo()
    inside = labels[edges.row] == labels[edges.col]
    within: Any = np.bincount(labels[edges.row[inside]], edges.data[inside], n_clusters)
    volume: Any = np.bincount(labels[edges.row], edges.data, n_clusters)
    return within, volume


def order_by_size(labels: LabelArray) -> LabelArray:
    """Rename clusters 0, 1, ... from the largest to the smallest; ties keep the order of first appearance.

    >>> order_by_size(np.array([5, 2, 2, 9]))
    array([1, 0, 0, 2])
    """
    values, first, inverse, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    rank = np.empty(len(values), np.intp)
    rank[order] = np.arange(len(values))
    return rank[inverse]


def check_n_clusters(n_clusters: int, n_images: int) -> None:
    """Say in one sentence when the number of clusters cannot be had from the images."""
    if n_clusters < 1:
        raise ValueError(f"n_clusters is {n_clusters}; ask for at least one cluster")
    if n_clusters > n_images:
        raise ValueError(
            f"n_clusters is {n_clusters} but there are only {n_images} images; ask for at most one cluster an image"
        )
