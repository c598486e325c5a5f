"""Measures of a result: confidence, outliers, near-duplicates, medoids, votes, and the length of its description."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.special import gammaln, xlogy

from tubal.backends.arrays import (
    Array,
    is_torch,
    namespace,
    own_threads,
    parallel_ranges,
    restore_like,
    to_numpy,
)
from tubal.clustering.affinity import FeaturesOnDemand
from tubal.clustering.cuts import Pieces, cluster_shares, diffusion_coordinates
from tubal.clustering.spectral import (
    SAMPLED_FROM,
    Float64Array,
    LabelArray,
    Spectrum,
    cluster_means,
    groups_after_merges,
    nearest_centers,
    ward_kmeans,
    ward_tree,
)
from tubal.estimators.validation import StackInParts, check_stored
from tubal.graph.structure import FloatArray, Graph, IndexArray, SparseMatrix, check_adjacency
from tubal.solvers.base import check_integer, check_number

if TYPE_CHECKING:
    from tubal.clustering.clusterer import ImageClusterer

# Other partitions for the stability: numbers of clusters as multiples of the given one, and diffusion times.
_OTHER_NUMBERS, _OTHER_TIMES = (0.75, 0.85, 1.0, 1.18, 1.33), (0.5, 1.0, 2.0)
# The trees of these partitions are built on at most this many images.
_TREE_SAMPLE = 1000


def confidence(adjacency: SparseMatrix, labels: LabelArray) -> Float64Array:
    """Return, for each image, the share of its edge weight that stays in its own cluster.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_images, n_images)
        Symmetric edge weights.
    labels : ndarray of shape (n_images,)
        Cluster of each image.

    Returns
    -------
    ndarray of shape (n_images,)
        Between 0 and 1; 0 for an image without edges.

    Examples
    --------
    >>> chain = sparse.csr_matrix(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    >>> confidence(chain, np.array([0, 0, 1]))
    array([1. , 0.5, 0. ])
    """
    edges, small = sparse.csr_matrix(adjacency), labels.astype(np.int32)

    def share(start: int, stop: int) -> Float64Array:
        inside = slice(edges.indptr[start], edges.indptr[stop])
        rows = np.repeat(np.arange(stop - start), np.diff(edges.indptr[start : stop + 1]))
        same = small[start:stop][rows] == small[edges.indices[inside]]
        own = np.bincount(rows, edges.data[inside] * same, minlength=stop - start)
        total = np.bincount(rows, edges.data[inside], minlength=stop - start)
        return np.asarray(own / np.where(total > 0.0, total, 1.0))

    with own_threads() as threads:
        return np.concatenate(parallel_ranges(share, len(labels), grain=4096, threads=threads))


def stability(eigenpairs: Spectrum, labels: LabelArray, *, seed: int = 0) -> Float64Array:
    """Return, for each image, the share of other partitions of the graph that agree with its cluster.

    These have up to a third fewer or more clusters, and shorter or longer diffusion times. Their clusters are
    matched with the given ones, one to one, so that as many images as possible agree. Where two groups may as well be
    one cluster, or one cluster two, some partitions disagree with the smaller part. Edges alone do not show this: a
    group that was joined to a wrong cluster has all its edges inside it.

    Parameters
    ----------
    eigenpairs : Spectrum
        Leading eigenpairs of the graph, best three for each cluster.
    labels : ndarray of shape (n_images,)
        Cluster of each image.
    seed : int, default=0
        Seed of the sample of 1000 images on which the other partitions are found.

    Returns
    -------
    ndarray of shape (n_images,)
        Between 0 and 1; 1 for a single cluster, and for fewer than four images.

    Examples
    --------
    >>> from tubal.clustering import spectrum
    >>> blocks = sparse.block_diag([np.ones((9, 9)), np.ones((3, 3)), np.ones((9, 9))], format="csr")
    >>> joined = np.repeat([0, 0, 1], [9, 3, 9])  # the small group was joined to the first
    >>> stability(spectrum(blocks, 6), joined)[[0, 9, 12]].round(1)
    array([1. , 0.5, 1. ])
    """
    n_images, n_clusters = len(labels), int(labels.max()) + 1
    n_vectors = min(3 * n_clusters, n_images // 2, len(eigenpairs.values))
    if n_clusters == 1 or n_vectors < 2:
        return np.ones(n_images)
    chosen = np.sort(np.random.default_rng(seed).permutation(n_images)[:_TREE_SAMPLE])
    numbers = {max(2, round(share * n_clusters)) for share in _OTHER_NUMBERS} | {max(2, n_clusters - 1), n_clusters + 1}
    agreement, n_others = np.zeros(n_images), 0
    with own_threads():
        for time in _OTHER_TIMES:
            points = diffusion_coordinates(eigenpairs.leading(n_vectors), min(n_clusters, n_vectors - 1), time)
            sample = points[restore_like(chosen, points)]
            tree = ward_tree(to_numpy(sample).astype(np.float64, copy=False), of_many=n_images > SAMPLED_FROM)
            for number in sorted(number for number in numbers if number <= len(chosen)):
                parts = groups_after_merges(tree[: len(chosen) - number], len(chosen))
                other = nearest_centers(points, cluster_means(sample, parts, number))
                agreement += _matched(to_numpy(other), labels) == labels
                n_others += 1
    return agreement / max(n_others, 1)


def _matched(other: LabelArray, labels: LabelArray) -> LabelArray:
    """Return other labels renamed to agree with ``labels`` for as many images as possible; -1 without a match.

    >>> _matched(np.array([1, 1, 0, 2]), np.array([0, 0, 0, 1]))
    array([ 0,  0, -1,  1])
    """
    shape = int(other.max()) + 1, int(labels.max()) + 1
    counts = np.bincount(other * shape[1] + labels, minlength=shape[0] * shape[1]).reshape(shape)
    rows, columns = linear_sum_assignment(-counts)
    names = np.full(len(counts), -1, dtype=np.intp)
    names[rows] = columns
    return names[other]


# --- the shortest description ----------------------------------------------------------------------------
# Numbers of clusters whose descriptions are compared: each is this many times the one before.
_NUMBER_STEP = 1.1


def description_length(choices: SparseMatrix, labels: LabelArray) -> float:
    """Return how many nats describe a partition, and with its help the neighbours that images have chosen.

    First the partition is sent: the number and the sizes of the clusters, and who belongs to which. Then, for each of
    the ``m`` choices, whether it stays inside its cluster, and which image it names there or elsewhere, images being
    named in proportion to their degrees. With ``w_c`` the choices inside cluster c, ``v_c`` all choices of its images,
    and ``w`` the sum of the ``w_c``, the length is

    ``log n + log C(n - 1, k - 1) + log(n! / Π n_c!) + log(m + 1) + log C(m, w)
    + Σ w_c log v_c + (v_c - w_c) log(m - v_c)``.

    Few clusters say little about the choices; many clusters are long to describe. This is the minimum description
    length of a graph whose clusters differ in degrees alone, with two densities: inside and between clusters.

    Parameters
    ----------
    choices : sparse matrix of shape (n_images, n_images)
        Symmetric weights of the choices, as :func:`mutual_adjacency` gives them.
    labels : ndarray of shape (n_images,)
        Cluster of each image.

    Returns
    -------
    float
        Length in nats, without the terms that depend on no partition.

    Examples
    --------
    >>> blocks = sparse.block_diag([np.ones((6, 6)) - np.eye(6)] * 4, format="csr")
    >>> lengths = {k: description_length(blocks, np.arange(24) * k // 24) for k in (2, 4, 8)}
    >>> min(lengths, key=lengths.get)
    4
    """
    within, volume = cluster_shares(choices, labels)
    sizes = np.bincount(labels, minlength=len(volume)).astype(np.float64)
    sizes = sizes[sizes > 0.0]
    n_images, total, inside = float(len(labels)), float(volume.sum()), float(within.sum())
    partition = np.log(n_images) + _log_binomial(n_images - 1.0, len(sizes) - 1.0)
    partition += gammaln(n_images + 1.0) - gammaln(sizes + 1.0).sum()
    kinds = np.log1p(total) + _log_binomial(total, inside)
    named = xlogy(within, volume) + xlogy(volume - within, total - volume)
    return float(partition + kinds + named.sum())


def _log_binomial(n: float, k: float) -> float:
    return float(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def shortest_description(choices: SparseMatrix, eigenpairs: Spectrum, most: int, *, seed: int = 0) -> int:
    """Return the number of clusters whose partition gives the shortest description of the neighbours.

    For numbers from 2 to ``most`` in steps of 10 %, images are partitioned by their diffusion coordinates for time 1,
    see :func:`diffusion_cut`.

    Parameters
    ----------
    choices : sparse matrix of shape (n_images, n_images)
        Symmetric weights of the choices, see :func:`description_length`.
    eigenpairs : Spectrum
        Leading eigenpairs of the graph that is cut.
    most : int
        Largest number.
    seed : int, default=0
        Seed of the samples of K-means.

    Returns
    -------
    int
        A number of clusters.
    """
    n_steps = int(np.log(max(most, 2) / 2.0) / np.log(_NUMBER_STEP))
    numbers = sorted({round(2.0 * _NUMBER_STEP**step) for step in range(n_steps + 1)} | {max(most, 2)})
    numbers = [number for number in numbers if number < len(eigenpairs.values)]
    lengths = []
    with own_threads():
        for number in numbers:
            pairs = eigenpairs.leading(max(3 * number, 10))
            labels = ward_kmeans(diffusion_coordinates(pairs, number, 1.0), number, seed)
            lengths.append(description_length(choices, labels))
    return numbers[int(np.argmin(lengths))] if numbers else 1


# A score above this is an outlier: so many robust standard deviations above the median.
OUTLIER_CUTOFF = 3.5
# Largest share of outliers: where more images have large scores, they are part of the collection.
MOST_OUTLIERS = 0.05
# Images are compared with so many others at most, and the nearest tenth of these counts.
_REFERENCES, _NEAREST_SHARE = 1000, 0.1
# Images that are described at a time by one thread, or on a device.
_IMAGES_AT_A_TIME, _IMAGES_ON_DEVICE = 1024, 2**16
# Pixels of each side that are used for histograms, about; bins for the values, and limits of those for gradients.
_HISTOGRAM_SIDE, _VALUE_BINS = 24, 8
_GRADIENT_LIMITS = 0.005 * 2.0 ** np.arange(7)


def robust_scores(values: Float64Array) -> Float64Array:
    """Return robust z-scores of logarithms, ``(log v_i - median) / (1.4826 MAD)``; 0 for fewer than eight values.

    >>> robust_scores(np.array([1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.1, 30.0])).argmax()
    np.int64(7)
    """
    positive = values[values > 0.0]
    if len(values) < 8 or len(positive) < 8:
        return np.zeros(len(values))
    logs = np.log(np.maximum(values, positive.min()))
    deviation = logs - np.median(logs)
    spread = 1.4826 * float(np.median(np.abs(deviation)))
    scores: Float64Array = deviation / max(spread, 1e-9)
    return scores


def neighbor_outlier_scores(distances: FloatArray) -> Float64Array:
    """Return how far each image lies from its nearest neighbours, as a robust score.

    The score is ``(log d_i - median) / (1.4826 MAD)`` of the mean distances d, and 0 for fewer than eight images.

    Parameters
    ----------
    distances : ndarray of shape (n_images, n_neighbors)
        Distance of each image to its neighbours.

    Returns
    -------
    ndarray of shape (n_images,)
        Robust z-scores; above 3.5 an image is an outlier.

    Examples
    --------
    >>> distances = np.array([[1.0], [1.1], [0.9], [1.0], [1.2], [0.8], [1.1], [30.0]])
    >>> np.flatnonzero(neighbor_outlier_scores(distances) > OUTLIER_CUTOFF)
    array([7])
    """
    lengths = np.asarray(distances, dtype=np.float64)
    listed = np.isfinite(lengths)  # a list may be shorter than the others
    return robust_scores(np.where(listed, lengths, 0.0).sum(axis=1) / np.maximum(listed.sum(axis=1), 1))


def stranger_scores(images: Array | StackInParts, *, seed: int = 0) -> Float64Array:
    """Return how unlike the rest of a collection each image is, as a robust score.

    A few pictures of another kind are neighbours of each other, so distances to the nearest neighbours do not show
    them. Here each image is described by what hardly depends on its content: histograms of its values and of its
    gradients; see :func:`appearance`. The score is the robust score of its mean distance to the nearest tenth of all
    images, more than any small group of strangers.

    Parameters
    ----------
    images : array of shape (n_images, height, width[, channels]) or (n_images, n_features)
        Images, not scaled one by one; rows of features are compared as they are. Tensors are described on their device.
    seed : int, default=0
        Seed of the sample of 1000 images with which all are compared.

    Returns
    -------
    ndarray of shape (n_images,)
        Robust z-scores, above 3.5 an image looks unlike all others.

    Examples
    --------
    >>> images = np.random.default_rng(0).random((40, 6, 6))
    >>> images[7:9] = 0.5
    >>> np.flatnonzero(stranger_scores(images) > OUTLIER_CUTOFF)
    array([7, 8])
    """
    plain: Array = appearance(images) if images.ndim > 2 else images
    rows = plain.float() if is_torch(plain) else np.asarray(plain, dtype=np.float32)
    n_images, xp = len(rows), namespace(rows)
    chosen = np.random.default_rng(seed).permutation(n_images)[:_REFERENCES]
    references = rows[restore_like(chosen, rows)]
    squares = (references**2).sum(axis=1)
    n_nearest = max(1, round(_NEAREST_SHARE * len(chosen)))

    def measure(part: Array) -> Array:
        gaps = (part**2).sum(axis=1)[:, None] - 2.0 * part @ references.T + squares
        nearest = gaps.topk(n_nearest, 1, largest=False).values if is_torch(gaps) else _smallest(gaps, n_nearest)
        return xp.sqrt(xp.clip(nearest, 0.0, None)).mean(axis=1)

    return robust_scores(to_numpy(_over_images(measure, rows)).astype(np.float64))


def _smallest(values: NDArray[Any], n_kept: int) -> NDArray[Any]:
    """Return the smallest values of each row, in any order."""
    return np.partition(values, n_kept - 1, axis=1)[:, :n_kept]


def _over_images(work: Callable[[Array], Array], images: Array | StackInParts) -> Array:
    """Return ``work`` of all images, some at a time: on all threads, or on the device of a tensor."""
    step = _IMAGES_ON_DEVICE if is_torch(images) else _IMAGES_AT_A_TIME

    def several(start: int, stop: int) -> list[Array]:
        return [work(images[first : min(first + step, stop)]) for first in range(start, stop, step)]

    if is_torch(images):
        return namespace(images).concatenate(several(0, len(images)))
    with own_threads() as threads:
        parts = parallel_ranges(several, len(images), grain=step, threads=threads)
    return np.concatenate(list(chain.from_iterable(parts)))


def peak_values(images: Array | StackInParts) -> Float64Array:
    """Return the largest absolute value (n,) of each image, which its copy of unit length has lost."""

    def largest(part: Array) -> Array:
        return namespace(part).amax(abs(part.reshape(len(part), -1)), 1)

    return np.asarray(to_numpy(_over_images(largest, images)), dtype=np.float64)


class RestoredStack(StackInParts):
    """Images as they were, made when they are read from copies of unit length and the largest value of each.

    Parameters
    ----------
    copies : ndarray of shape (n_images, height, width[, channels])
        The images, each multiplied by any number above 0.
    peaks : ndarray of shape (n_images,)
        The largest absolute value of each image.
    """

    def __init__(self, copies: NDArray[Any], peaks: Float64Array) -> None:
        super().__init__(copies)
        self.peaks, self.highest = peaks, float(peaks.max()) or 1.0

    def __getitem__(self, part: slice) -> NDArray[Any]:
        """Return some images, up to 1e-6 of the largest value of all."""
        copies = self.images[part]
        own = np.abs(copies.reshape(len(copies), -1)).max(axis=1)
        factors = self.peaks[part] / self.highest / np.where(own > 0.0, own, 1.0)
        # Rounding, so that a value on the border of a histogram's bins is in the same one again.
        restored: NDArray[Any] = np.round(copies * factors.reshape(-1, *[1] * (copies.ndim - 1)), 6) * self.highest
        return restored


def appearance(images: Array | StackInParts) -> Array:
    """Return square roots of histograms (n, b) of images (n, height, width[, channels]).

    The first 8 bins of each channel are of its values, between the smallest and largest value of all images. The
    last 8 are of the sizes of gradients, in bins that double. Large images are thinned out. Euclidean distances of
    these rows are Hellinger distances of the histograms; values and gradients count the same.
    """
    step = max(1, round(max(images.shape[1:3]) / _HISTOGRAM_SIDE))
    low, high = _extremes(images)
    scale = 1.0 / max(high - low, 1e-12)

    def describe(part: Array) -> Array:
        xp = namespace(part)
        block = (xp.asarray(part[:, ::step, ::step], dtype=xp.float64) - low) * scale
        block = block.reshape(*block.shape[:3], -1)
        levels = xp.clip(xp.asarray(block * _VALUE_BINS, dtype=xp.int8), None, _VALUE_BINS - 1)
        values = [_histograms(levels[..., channel], _VALUE_BINS) for channel in range(block.shape[3])]
        sizes = _gradient_sizes(block.mean(axis=3))
        # Comparing with every limit is several times as fast as a search.
        bins = sum((sizes > limit for limit in _GRADIENT_LIMITS), start=xp.zeros_like(sizes, dtype=xp.int8))
        gradients = _histograms(bins, len(_GRADIENT_LIMITS) + 1)
        return xp.sqrt(xp.concatenate([*values, len(values) * gradients], axis=1))

    return _over_images(describe, images)


def _extremes(images: Array | StackInParts) -> tuple[float, float]:
    """Return the smallest and the largest value of images, read a part at a time."""
    if not isinstance(images, StackInParts) and is_torch(images):
        return float(images.min()), float(images.max())
    parts = (images[start : start + 4096] for start in range(0, len(images), 4096))
    found = [(part.min(), part.max()) for part in parts]
    return float(min(low for low, _ in found)), float(max(high for _, high in found))


def _gradient_sizes(images: Array) -> Array:
    """Return the lengths (n, h, w) of the gradients of images (n, h, w)."""
    xp = namespace(images)
    axes = [axis for axis in (1, 2) if images.shape[axis] > 1]
    if is_torch(images):
        along = [xp.gradient(images, dim=axis)[0] for axis in axes]
    else:
        along = [np.gradient(images, axis=axis) for axis in axes]
    return xp.sqrt(sum((part**2 for part in along), start=xp.zeros_like(images)))


def _histograms(bins: Array, n_bins: int) -> Array:
    """Return the shares (n, n_bins) of the bins of each image's pixels (n, h, w)."""
    xp, n_images = namespace(bins), len(bins)
    rows = restore_like(np.arange(n_images), bins)
    flat = bins.reshape(n_images, -1) + n_bins * rows[:, None]
    counts = xp.bincount(flat.reshape(-1), minlength=n_images * n_bins).reshape(n_images, n_bins)
    return counts / flat.shape[1]


def near_duplicates(neighbors: IndexArray, distances: FloatArray, *, share: float = 0.1) -> list[IndexArray]:
    """Return groups of near-identical images, each around one image that represents it.

    A distance is unusually small below ``share`` of the usual one: the median over images of the distance to the first
    neighbour that is not an exact copy. A chain of small distances from the representative to an image of its group is
    not longer than that in total. So a long row of images that change little by little is not one group.

    Parameters
    ----------
    neighbors : ndarray of shape (n_images, n_neighbors)
        Neighbours of each image; negative indices are ignored.
    distances : ndarray of shape (n_images, n_neighbors)
        Distances to them.
    share : float, default=0.1
        Largest distance of near-duplicates, as a share of the usual distance.

    Returns
    -------
    list of ndarray
        Groups of two or more images, largest first; each an increasing array of indices.

    Examples
    --------
    >>> near_duplicates(np.array([[1], [0], [1]]), np.array([[0.0], [0.0], [2.0]]))
    [array([0, 1])]
    """
    n_images = len(neighbors)
    apart = np.where(distances > 0.0, distances, np.inf).min(axis=1, initial=np.inf)
    apart = apart[np.isfinite(apart)]
    limit = share * float(np.median(apart)) if apart.size else 0.0
    row, slot = np.nonzero((distances <= limit) & (neighbors >= 0))
    column = neighbors[row, slot]
    # Copies have a small positive distance, since an edge of length 0 is none in a sparse matrix.
    lengths = np.maximum(distances[row, slot].astype(np.float64), _COPY_DISTANCE)
    links = sparse.csr_matrix((lengths, (row, column)), shape=(n_images, n_images))
    _, component = connected_components(links, directed=False)
    linked = np.unique(np.concatenate([row, column]))
    linked = linked[np.argsort(component[linked], kind="stable")]
    groups: list[IndexArray] = []
    for part in np.split(linked, np.flatnonzero(np.diff(component[linked])) + 1):
        groups += _around_representatives(links[part][:, part], part, limit + n_images * _COPY_DISTANCE)
    return sorted(groups, key=lambda group: (-len(group), group[0]))


# Length of the edge between two copies.
_COPY_DISTANCE = 1e-12


def _around_representatives(links: SparseMatrix, images: IndexArray, limit: float) -> list[IndexArray]:
    """Return groups of images whose paths to a representative are not longer than the limit, best connected first."""
    n_links = np.bincount(links.indices, minlength=len(images)) + np.diff(links.indptr)
    left, groups = np.ones(len(images), dtype=np.bool_), []
    for representative in np.argsort(-n_links, kind="stable"):
        if left[representative]:
            lengths = dijkstra(links, directed=False, indices=representative, limit=limit)
            group = left & (lengths <= limit)
            left &= ~group
            groups.append(np.sort(images[group]))
    return [group for group in groups if len(group) > 1]


def medoids(features: NDArray[Any], labels: LabelArray, trust: Float64Array | None = None) -> IndexArray:
    """Return the most typical image of each cluster: the one with the largest mean cosine to its members.

    Parameters
    ----------
    features : ndarray of shape (n_images, n_features)
        One row per image.
    labels : ndarray of shape (n_images,)
        Cluster of each image.
    trust : ndarray of shape (n_images,) or None, default=None
        Weight of each image in the mean, for instance its confidence; None for equal weights.

    Returns
    -------
    ndarray of shape (n_clusters,)
        Index of the most typical image of each cluster.

    Examples
    --------
    >>> medoids(np.array([[1.0, 0.0], [1.0, 0.2], [1.0, 0.4], [0.0, 1.0]]), np.array([0, 0, 0, 1]))
    array([1, 3])
    """
    rows = np.asarray(features, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(lengths > 0.0, lengths, 1.0)
    weights = np.ones(len(rows)) if trust is None else trust + 1e-6
    found = np.empty(int(labels.max()) + 1, np.intp)
    for cluster in range(len(found)):
        members = np.flatnonzero(labels == cluster)
        # The mean cosine to all members is the product with their mean, so no pairs are needed.
        mean = weights[members] @ unit[members]
        found[cluster] = members[(unit[members] @ mean).argmax()]
    return found


# Share of the distances in a piece that count as near where its densest place is looked for; images compared at most.
_NEAR_SHARE, _MOST_COMPARED = 0.25, 500
# Length of the paths that make an image central.
_PATH_LENGTH = 3


def members_of(labels: LabelArray) -> list[IndexArray]:
    """Return the images of each cluster, increasing.

    Parameters
    ----------
    labels : ndarray of shape (n_images,)
        Cluster of each image.

    Returns
    -------
    list of ndarray
        Indices of images, one array for each cluster.

    Examples
    --------
    >>> members_of(np.array([1, 0, 1]))
    [array([1]), array([0, 2])]
    """
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels))[:-1])


def most_typical(
    coordinates: NDArray[Any], affinity: SparseMatrix, members: IndexArray, among: IndexArray | None = None
) -> int:
    """Return the image where the members are densest and most connected.

    The image nearest to their mean would often lie between two groups. Density is judged by the nearest quarter of all
    distances; large groups are represented by a part of them. It alone would often choose an image whose edges lead
    elsewhere, so it is multiplied by the centrality of the image, see :func:`centrality`.

    Parameters
    ----------
    coordinates : ndarray of shape (n_images, n_coordinates)
        Diffusion coordinates, rows of unit length.
    affinity : sparse matrix of shape (n_images, n_images)
        Edge weights.
    members : ndarray of shape (n_members,)
        Images.
    among : ndarray of shape (n_choices,) or None, default=None
        Members to choose from; None for all.

    Returns
    -------
    int
        Index of the image.
    """
    choices = members if among is None else among
    others = members[:: -(-len(members) // _MOST_COMPARED)]
    distances = np.maximum(1.0 - coordinates[choices] @ coordinates[others].T, 0.0)
    scale = max(float(np.quantile(distances, _NEAR_SHARE)), 1e-6)
    density = np.exp(-distances / scale).sum(axis=1)
    return int(choices[(density * centrality(affinity, members)[choices]).argmax()])


def centrality(affinity: SparseMatrix, members: IndexArray) -> NDArray[np.float64]:
    """Return, for each member, the weight of short paths among the members, times the share of its edges to members.

    Parameters
    ----------
    affinity : sparse matrix of shape (n_images, n_images)
        Edge weights.
    members : ndarray of shape (n_members,)
        Images.

    Returns
    -------
    ndarray of shape (n_images,)
        0 for images that are no members, a small positive value for members without edges to others.

    Examples
    --------
    >>> chain = sparse.csr_matrix(np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1))
    >>> centrality(chain, np.array([0, 1, 2])).round(2)
    array([0.5 , 1.  , 0.25, 0.  ])
    """
    rows = sparse.csr_matrix(affinity[members])
    paths = np.zeros(affinity.shape[0])
    paths[members] = 1.0
    inside, total = rows @ paths, np.asarray(rows.sum(axis=1)).ravel()
    for _ in range(_PATH_LENGTH):
        longer = rows @ paths
        paths[members] = longer / max(float(longer.max()), 1e-12)
    paths[members] = np.maximum(paths[members] * inside / np.where(total > 0.0, total, 1.0), 1e-9)
    return paths


def vote(
    neighbors: IndexArray,
    weights: FloatArray,
    labels: LabelArray,
    *,
    trust: Float64Array | None = None,
    n_clusters: int | None = None,
) -> Float64Array:
    """Return the share of each cluster among the training neighbours of new images.

    Parameters
    ----------
    neighbors : ndarray of shape (m, n_neighbors)
        Training neighbours of each new image; negative indices are ignored.
    weights : ndarray of shape (m, n_neighbors)
        Edge weights of the neighbours.
    labels : ndarray of shape (n_images,)
        Clusters of the training images.
    trust : ndarray of shape (n_images,) or None, default=None
        Factor on the weight of each training image, for instance its confidence; None for equal factors.
    n_clusters : int or None, default=None
        Number of clusters; None to take it from ``labels``.

    Returns
    -------
    ndarray of shape (m, n_clusters)
        Weighted shares; each row sums to 1, or to 0 if all weights are zero.

    Examples
    --------
    >>> vote(np.array([[0, 1, 2]]), np.ones((1, 3)), np.array([0, 1, 1]))
    array([[0.33333333, 0.66666667]])
    """
    n_clusters = int(labels.max()) + 1 if n_clusters is None else n_clusters
    counted = np.where(neighbors >= 0, weights, 0.0).astype(np.float64)
    if trust is not None:
        counted = counted * (trust[neighbors] + 1e-6)
    votes = np.zeros((len(neighbors), n_clusters))
    rows = np.repeat(np.arange(len(neighbors)), neighbors.shape[1])
    np.add.at(votes, (rows, labels[neighbors].ravel()), counted.ravel())
    total = votes.sum(axis=1, keepdims=True)
    return votes / np.where(total > 0.0, total, 1.0)


# Images that are coded to find the most typical ones of all clusters, and at least of each.
_MOST_TYPICAL, _LEAST_TYPICAL = 5000, 20


# --- all measures of a fit ------------------------------------------------------------------------------------
def describe_images(
    labels: LabelArray,
    pieces: Pieces,
    seed: int,
    images: Array | StackInParts | None,
    known: tuple[Float64Array, NDArray[np.bool_], list[IndexArray]] | None = None,
) -> dict[str, Any]:
    """Return the fitted attributes that describe clusters and single images.

    The stability is computed from eigenpairs, or as in the fit; without both, confidence counts edges only. Without
    images only neighbours make an image unusual. ``known`` are the scores of unusual images, these images and the
    near-duplicates, which do not depend on labels.
    """
    kept, group = np.unique(pieces.copy_of, return_inverse=True)
    sure, stable = confidence(pieces.distinct_affinity(), labels[kept])[group], pieces.stable
    if pieces.eigenpairs is not None:
        stable = stability(pieces.eigenpairs, labels[kept], seed=seed)[group]
    if stable is not None:
        sure = (sure + stable) / 2.0
    odd, strange, duplicates = _unusual_images(pieces.graph, len(labels), seed, images) if known is None else known
    found: dict[str, Any] = {
        "n_clusters_": int(labels.max()) + 1,
        "confidence_": sure,
        "medoids_": _typical_images(pieces.features, labels, sure),
        "outlier_scores_": odd,
        "outliers_": strange,
        "duplicates_": duplicates,
    }
    return found if stable is None else found | {"stability_": stable}


def _typical_images(features: NDArray[Any] | FeaturesOnDemand, labels: LabelArray, trust: Float64Array) -> IndexArray:
    """Return the medoids; if features are not known, those among the most trusted images of each cluster."""
    if not isinstance(features, FeaturesOnDemand):
        return medoids(features, labels, trust)
    sizes = np.bincount(labels)
    by_trust = np.lexsort((-trust, labels))
    place = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = by_trust[place < max(_LEAST_TYPICAL, _MOST_TYPICAL // len(sizes))]
    return np.asarray(chosen[medoids(np.asarray(features[chosen]), labels[chosen], trust[chosen])])


def _unusual_images(
    graph: Graph, n_images: int, seed: int, images: Array | StackInParts | None
) -> tuple[Float64Array, NDArray[np.bool_], list[IndexArray]]:
    """Return scores of unusual images, which images are unusual, and groups of near-duplicates."""
    odd = np.zeros(n_images) if images is None else stranger_scores(images, seed=seed)
    if graph.distances is not None:
        odd = np.maximum(odd, neighbor_outlier_scores(graph.distances))
    strange = odd > max(OUTLIER_CUTOFF, float(np.quantile(odd, 1.0 - MOST_OUTLIERS)))
    if graph.neighbors is None or graph.distances is None:
        return odd, strange, []
    return odd, strange, near_duplicates(graph.neighbors, graph.distances)


def check_loaded_clusters(model: ImageClusterer, n_images: int) -> None:
    """Raise an error for clusters and descriptions of images that no fit gives."""
    n_clusters = check_integer("n_clusters_", model.n_clusters_)
    if len(np.unique(model.labels_)) != n_clusters or int(model.labels_.max()) != n_clusters - 1:
        raise ValueError(f"labels_ are not 0 to {n_clusters - 1}, each at least once")
    check_integer("seed_", model.seed_, least=0)
    check_integer("n_iter_", model.n_iter_, least=0)
    check_number("seed_", model.seed_, below=2**32)
    if "features_" in vars(model):  # in large collections they are computed on demand
        check_stored("features_", model.features_, (n_images, None), least=-1.01, most=1.01)
    check_stored("confidence_", model.confidence_, (n_images,), least=0.0, most=1.01)
    check_stored("outliers_", model.outliers_, (n_images,), kinds="b")
    if "stability_" in vars(model):  # models of earlier versions have none
        check_stored("stability_", model.stability_, (n_images,), least=0.0, most=1.01)
    if "outlier_scores_" in vars(model):
        check_stored("outlier_scores_", model.outlier_scores_, (n_images,))
    check_stored(
        "n_clusters_candidates_",
        getattr(model, "n_clusters_candidates_", np.array([1])),
        (None,),
        kinds="i",
        least=1,
        most=n_images,
    )
    if "_brightness_" in vars(model):
        check_stored("_brightness_", model._brightness_, (n_images,), least=0.0)
    indices = {"medoids_": (n_clusters,), "copy_of_": (n_images,)}
    for name, length in indices.items():
        if name in vars(model):  # models of earlier versions do not know copies
            check_stored(name, getattr(model, name), length, kinds="i", least=0, most=n_images - 1)
    if not isinstance(model.duplicates_, list):
        raise TypeError(f"duplicates_ is a {type(model.duplicates_).__name__}; a list is wanted")
    for group in model.duplicates_:
        check_stored("duplicates_", group, (None,), kinds="i", least=0, most=n_images - 1)
    if "embedding_" in vars(model):
        check_stored("embedding_", model.embedding_, (n_images, 2))
    affinity: Any = model.affinity_
    if not sparse.issparse(affinity) or affinity.shape != (n_images, n_images):
        raise ValueError(f"affinity_ is not a sparse matrix of {n_images} images")
    check_adjacency(affinity)
    _check_curves(model.n_clusters_scores_)


def _check_curves(curves: object) -> None:
    """Raise an error unless the curves of the estimated number of clusters are None or arrays of one length."""
    if curves is None:
        return
    # Earlier versions stored the modularity, too.
    if not isinstance(curves, dict) or set(curves) - {"modularity"} != {"n_clusters", "gap"}:
        raise ValueError("n_clusters_scores_ is not a table of the curves n_clusters and gap")
    for name, values in curves.items():
        check_stored(name, values, (len(curves["n_clusters"]),), kinds="if")
