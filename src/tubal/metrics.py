"""Scores of a clustering against known classes: accuracy, mutual information, purity, adjusted Rand index.

Labels may be any comparable values, such as integers in any range, strings or floats; only the partition matters. The
numbers of clusters and classes may differ. Every score is 1 for identical partitions.

Scores that the command line prints are computed here: importing ``sklearn.metrics`` takes half a second.
"""

from __future__ import annotations

import math
from operator import ne
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["adjusted_rand", "clustering_accuracy", "clustering_nmi", "contingency", "purity"]

AverageMethod = Literal["max", "min", "arithmetic", "geometric"]


def clustering_accuracy(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Return the share of samples that are right under the best one-to-one assignment of clusters to classes.

    If there are more clusters than classes, the samples of the clusters left over count as wrong.

    Parameters
    ----------
    labels_true : array-like of shape (n_samples,)
        The known class of each sample.
    labels_pred : array-like of shape (n_samples,)
        The cluster of each sample; names of clusters need not be those of classes.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> clustering_accuracy(["a", "a", "b", "b"], [7, 7, 7, -1])
    0.75
    """
    from scipy.optimize import linear_sum_assignment

    counts = contingency(labels_true, labels_pred)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(counts[rows, columns].sum() / counts.sum())


def clustering_nmi(labels_true: ArrayLike, labels_pred: ArrayLike, average_method: AverageMethod = "max") -> float:
    """Return the normalised mutual information: the mutual information divided by an average of the two entropies.

    The literature around the paper divides by the **larger** entropy, the default here; scikit-learn's default is
    ``"arithmetic"``. Two partitions that both have a single part score 1.

    Parameters
    ----------
    labels_true : array-like of shape (n_samples,)
        The known class of each sample.
    labels_pred : array-like of shape (n_samples,)
        The cluster of each sample.
    average_method : {"max", "min", "arithmetic", "geometric"}, default="max"
        How to average the entropies of the two partitions.

    Returns
    -------
    float
        0 for independent partitions, 1 for equal ones.

    Examples
    --------
    >>> round(clustering_nmi([0, 0, 1, 1], [0, 0, 1, 2]), 4)
    0.6667
    >>> round(clustering_nmi([0, 0, 1, 1], [0, 0, 1, 2], average_method="arithmetic"), 4)
    0.8
    """
    if average_method not in get_args(AverageMethod):
        raise ValueError(f"average_method is {average_method!r}; choose one of {', '.join(get_args(AverageMethod))}")
    classes, clusters = _encode_both(labels_true, labels_pred)
    # Only pairs that occur: a table of all pairs would be too large if nearly every sample had a label of its own.
    both = _entropy(np.unique(classes * (clusters.max() + 1) + clusters, return_counts=True)[1])
    entropies = _entropy(np.bincount(classes)), _entropy(np.bincount(clusters))
    if max(entropies) == 0.0:  # both have a single part
        return 1.0
    averages = {
        "max": max(entropies),
        "min": min(entropies),
        "arithmetic": sum(entropies) / 2.0,
        "geometric": math.sqrt(entropies[0] * entropies[1]),
    }
    average = averages[average_method]
    # Rounding can give a little more than 1 or less than 0.
    return min(max((sum(entropies) - both) / average, 0.0), 1.0) if average > 0.0 else 0.0


def _entropy(counts: NDArray[np.int64]) -> float:
    """Return the entropy of the shares that positive counts have of their sum, in nats."""
    shares = counts / counts.sum()
    return abs(float(shares @ np.log(shares)))


def purity(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Return the share of samples that belong to the most frequent class of their cluster.

    Purity grows with the number of clusters; it is 1 if every sample is its own cluster.

    Parameters
    ----------
    labels_true : array-like of shape (n_samples,)
        The known class of each sample.
    labels_pred : array-like of shape (n_samples,)
        Its cluster.

    Returns
    -------
    float
        1 if no cluster mixes classes.

    Examples
    --------
    >>> purity([0, 0, 1, 1], [0, 0, 0, 1])
    0.75
    """
    counts = contingency(labels_true, labels_pred)
    return float(counts.max(axis=0).sum() / counts.sum())


def adjusted_rand(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Return the share of pairs on which both partitions agree, corrected for chance (Hubert and Arabie, 1985).

    Parameters
    ----------
    labels_true : array-like of shape (n_samples,)
        The known class of each sample.
    labels_pred : array-like of shape (n_samples,)
        The cluster of each sample; the two arguments may be exchanged.

    Returns
    -------
    float
        At most 1; around 0 for random clusters.

    Examples
    --------
    >>> adjusted_rand([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(*_encode_both(labels_true, labels_pred)))


def contingency(labels_true: ArrayLike, labels_pred: ArrayLike) -> NDArray[np.int64]:
    """Return how many samples carry each pair of labels.

    Parameters
    ----------
    labels_true : array-like of shape (n_samples,)
        The known class of each sample, which decides its row.
    labels_pred : array-like of shape (n_samples,)
        Its cluster, which decides the column.

    Returns
    -------
    ndarray of shape (n_classes, n_clusters)
        Numbers of samples; classes and clusters are in sorted order.

    Examples
    --------
    >>> contingency(["x", "y", "y"], [3, 3, 9])
    array([[1, 0],
           [1, 1]])
    """
    classes, clusters = _encode_both(labels_true, labels_pred)
    shape = classes.max() + 1, clusters.max() + 1
    return np.bincount(np.ravel_multi_index((classes, clusters), shape), minlength=shape[0] * shape[1]).reshape(shape)


def _encode_both(labels_true: ArrayLike, labels_pred: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return both partitions as integers from zero, or raise an error that names what is wrong with them."""
    classes, clusters = _encode_labels(labels_true, "labels_true"), _encode_labels(labels_pred, "labels_pred")
    if len(classes) != len(clusters):
        raise ValueError(
            f"labels_true has {len(classes)} entries and labels_pred has {len(clusters)}; give one of each per sample"
        )
    return classes, clusters


def _encode_labels(labels: ArrayLike, name: str) -> NDArray[np.intp]:
    try:
        values = np.asarray(labels)
    except ValueError:
        raise ValueError(f"{name} holds lists of different lengths; give one label per sample") from None
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name} has shape {values.shape}; give a non-empty list with one label per sample")
    if values.dtype.kind in "fc" and not np.isfinite(values).all():
        raise ValueError(f"{name} contains NaN or infinity; give every sample a label")
    if values.dtype.kind in "OMm":
        missing = next((sample for sample, value in enumerate(values) if _is_missing(value)), None)
        if missing is not None:
            raise ValueError(f"{name} has {values[missing]!r} for sample {missing}; give every sample a label")
    try:
        return np.unique(values, return_inverse=True)[1]
    except TypeError:
        raise TypeError(f"{name} mixes values that cannot be compared; give labels of one type") from None


def _is_missing(value: object) -> bool:
    """Tell whether a label is None, NaN, NaT or the NA of pandas, the only ones that are not equal to themselves."""
    try:
        return value is None or bool(ne(value, value))
    except TypeError:  # NA is neither true nor false
        return True
