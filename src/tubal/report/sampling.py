"""Which images a report shows when there are more than it can carry."""

from __future__ import annotations

import numpy as np

from tubal.report.data import Array, ReportData


def typical_first(data: ReportData, members: Array) -> Array:
    """Order ``members`` of one cluster from the most to the least typical.

    Confidence decides; outliers come last, and ties go to the image nearest the cluster's middle on the map.
    """
    middle = np.median(data.embedding[members], axis=0)
    distance = np.linalg.norm(data.embedding[members] - middle, axis=1)
    order = np.lexsort((distance, -data.confidence[members], data.outliers[members]))
    return np.asarray(members[order])


def choose_sample(data: ReportData, max_images: int) -> Array:
    """Return sorted indices of at most ``max_images`` images, each cluster in proportion to its size.

    Every cluster keeps its medoid (the most typical image) while there is room; the others are spread evenly
    over the cluster's order of typicality, so that doubtful images are as frequent here as in the whole.
    """
    if data.n_images <= max_images:
        return np.arange(data.n_images)
    clusters, sizes = np.unique(data.labels, return_counts=True)
    quotas = _quotas(sizes, max_images)
    chosen = []
    for cluster, quota in zip(clusters, quotas, strict=True):
        ordered = typical_first(data, np.flatnonzero(data.labels == cluster))
        # linspace starts at 0, which is the medoid.
        chosen.append(ordered[np.linspace(0, len(ordered) - 1, quota).round().astype(int)])
    return np.sort(np.concatenate(chosen))


def _quotas(sizes: Array, total: int) -> Array:
    """Share ``total`` places out in proportion to ``sizes``, at least one each while there are places."""
    largest_first = np.argsort(-sizes, kind="stable")
    quotas = np.zeros(len(sizes), dtype=int)
    quotas[largest_first[:total]] = 1
    left = total - quotas.sum()
    if left > 0:
        share = left * (sizes - quotas) / (sizes - quotas).sum()
        quotas += np.floor(share).astype(int)
        remainder = np.argsort(-(share - np.floor(share)), kind="stable")
        quotas[remainder[: total - quotas.sum()]] += 1
    return np.minimum(quotas, sizes)
