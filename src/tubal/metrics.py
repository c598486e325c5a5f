"""Scores of a clustering against known classes: accuracy, mutual information, purity, adjusted Rand index.

Labels may be any comparable values (integers in any range, strings, floats); their values never matter, and
the numbers of clusters and classes may differ. Every score is 1 on identical partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["adjusted_rand", "clustering_accuracy", "clustering_nmi", "contingency", "purity"]

AverageMethod = Literal["max", "min", "arithmetic", "geometric"]


def clustering_accuracy(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Return the share of samples right under the best one-to-one assignment of clusters to classes.

    With more clusters than classes the surplus clusters count as wrong, and the other way round.

    >>> clustering_accuracy(["a", "a", "b", "b"], [7, 7, 7, -1])
    0.75
    """
    from scipy.optimize import linear_sum_assignment

    counts = contingency(labels_true, labels_pred)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(counts[rows, columns].sum() / counts.sum())


def clustering_nmi(labels_true: ArrayLike, labels_pred: ArrayLike, average_method: AverageMethod = "max") -> float:
    """Return the mutual information divided by an average of the two entropies.

    The literature around the paper divides by the **larger** entropy, the default here; scikit-learn's
    default is ``"arithmetic"``. Two partitions that both keep everything together score 1.

    >>> round(clustering_nmi([0, 0, 1, 1], [0, 0, 1, 2]), 4)
    0.6667
    >>> round(clustering_nmi([0, 0, 1, 1], [0, 0, 1, 2], average_method="arithmetic"), 4)
    0.8
    """
    averages: dict[str, Callable[[float, float], float]] = {
        "max": max,
        "min": min,
        "arithmetic": _arithmetic,
        "geometric": _geometric,
    }
    if average_method not in averages:
        raise ValueError(f"average_method is {average_method!r}; choose one of {', '.join(averages)}")
    joint = contingency(labels_true, labels_pred)
    joint_share = joint / joint.sum()
    class_share, cluster_share = joint_share.sum(axis=1), joint_share.sum(axis=0)
    entropies = _entropy(class_share), _entropy(cluster_share)
    if max(entropies) == 0.0:
        return 1.0
    average = averages[average_method](*entropies)
    information = sum(entropies) - _entropy(joint_share.ravel())
    return float(np.clip(information / average, 0.0, 1.0)) if average > 0.0 else 0.0


def purity(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Return the share of samples that belong to the commonest class of their cluster.

    Purity grows with the number of clusters; it is 1 when every sample is its own cluster.

    >>> purity([0, 0, 1, 1], [0, 0, 0, 1])
    0.75
    """
    counts = contingency(labels_true, labels_pred)
    return float(counts.max(axis=0).sum() / counts.sum())


def adjusted_rand(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Return the share of pairs on which both partitions agree, corrected for chance (Hubert and Arabie).

    >>> adjusted_rand([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    counts = contingency(labels_true, labels_pred)
    together = float(_pairs(counts).sum())
    in_class, in_cluster = float(_pairs(counts.sum(axis=1)).sum()), float(_pairs(counts.sum(axis=0)).sum())
    # In double precision: the product of two pair counts overflows 64-bit integers near 100 000 samples.
    chance = in_class * in_cluster / max(float(_pairs(counts.sum())), 1.0)
    largest = (in_class + in_cluster) / 2.0
    return 1.0 if largest == chance else (together - chance) / (largest - chance)


def contingency(labels_true: ArrayLike, labels_pred: ArrayLike) -> NDArray[np.int64]:
    """Return the table (classes, clusters) of how many samples carry each pair of labels.

    >>> contingency(["x", "y", "y"], [3, 3, 9])
    array([[1, 0],
           [1, 1]])
    """
    classes, clusters = _encode(labels_true, "labels_true"), _encode(labels_pred, "labels_pred")
    if len(classes) != len(clusters):
        raise ValueError(
            f"labels_true has {len(classes)} entries and labels_pred has {len(clusters)}; give one of each a sample"
        )
    shape = int(classes.max()) + 1, int(clusters.max()) + 1
    table = np.bincount(np.ravel_multi_index((classes, clusters), shape), minlength=shape[0] * shape[1])
    return table.reshape(shape)


def _encode(labels: ArrayLike, name: str) -> NDArray[np.int64]:
    values = np.asarray(labels)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name} has shape {values.shape}; give a non-empty list of one label a sample")
    if values.dtype.kind in "fc" and not np.isfinite(values).all():
        raise ValueError(f"{name} contains NaN or infinity; give every sample a label")
    try:
        return np.unique(values, return_inverse=True)[1]
    except TypeError:
        raise TypeError(f"{name} mixes values that cannot be compared; give labels of one type") from None


def _entropy(shares: NDArray[np.float64]) -> float:
    positive = shares[shares > 0.0]
    return float(-(positive * np.log(positive)).sum()) if positive.size > 1 else 0.0


def _pairs(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return counts * (counts - 1) // 2


def _arithmetic(first: float, second: float) -> float:
    return (first + second) / 2.0


def _geometric(first: float, second: float) -> float:
    return float(np.sqrt(first * second))
