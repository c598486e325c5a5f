"""What a person says about images, and the labels that follow from it.

A hint is a name for an image, or a pair of images that belong together or apart. :func:`apply_hints` turns the clusters
that were found without hints into clusters in which every hint holds:

1. Hints in a cluster divide it. Every image gets votes from the hints in its own cluster, the nearest in diffusion
   coordinates first; a cluster with one name gets that name. So one answer per cluster does what naming the clusters
   would do, and an answer that differs from the others only takes the images around it.
2. Votes are smoothed over the edges of the graph. With many hints this is what label spreading does.
3. Hinted images get what was said about them. Those that were placed by hand do not vote: only they are moved. Nor do
   exceptions, single answers that differ from the others where the images do not (see ``_exceptions``): an odd image
   in the middle of a cluster, or a slip of the person, must not rename a part of it.

The result depends on the hints alone, not on their order, so forgetting a hint undoes it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tubal.clustering.cuts import order_by_size
from tubal.clustering.quality import members_of, most_typical
from tubal.clustering.spectral import Float64Array, LabelArray, cluster_means, nearest_centers
from tubal.clustering.tree import Coordinates, QuestionTree, separation
from tubal.graph.structure import IndexArray, SparseMatrix

Pair: TypeAlias = tuple[int, int]
Pairs: TypeAlias = Iterable[tuple[int, int]]

# Added to squared distances of unit rows, so that a hint does not outvote all others around it: one odd image in a
# pure region would otherwise take its neighbours along.
_SMALLEST_DISTANCE = 0.01
# Distances computed at a time.
_BLOCK = 1 << 22
# A vote is the squared distance to this power: the nearest hints count most.
_VOTE_POWER = -4.0
# Share of an image's votes that comes from its neighbours in each step of smoothing, and the number of steps.
_SMOOTHING, _SMOOTHING_STEPS = 0.8, 12
# A hinted image counts as this many others when votes are smoothed.
_HINT_WEIGHT = 3.0
# An image that must leave its cluster joins another one if that has at least this share of its votes.
_WELCOME = 0.2


# --- what was said ---------------------------------------------------------------------------------------
class ContradictionError(ValueError):
    """Two hints cannot both hold; ``images`` are the two images that they are about."""

    def __init__(self, message: str, images: Pair) -> None:
        super().__init__(message)
        self.images = images


@dataclass(frozen=True)
class Hints:
    """Everything a person has said about a collection.

    Images are given by their index in the collection.

    Parameters
    ----------
    images : tuple of int
        Images with a name, in the order in which they were named.
    said : tuple of str
        The name of each of them.
    same : tuple of pairs of int
        Images that belong together.
    different : tuple of pairs of int
        Images that do not.
    alone : tuple of int
        Images that were placed by hand: what is said about them says nothing about others.

    Examples
    --------
    >>> Hints((12, 80), ("seven", "one"), same=((3, 4),)).names
    {12: 'seven', 80: 'one'}
    """

    images: tuple[int, ...] = ()
    said: tuple[str, ...] = ()
    same: tuple[Pair, ...] = ()
    different: tuple[Pair, ...] = ()
    alone: tuple[int, ...] = ()

    @property
    def names(self) -> dict[int, str]:
        """Name of each named image."""
        return dict(zip(self.images, self.said, strict=True))

    @property
    def mentioned(self) -> IndexArray:
        """Indices of all images that some hint is about, increasing."""
        pairs = [image for pair in (*self.same, *self.different) for image in pair]
        return np.unique(np.array([*self.images, *pairs], dtype=np.intp))

    def __len__(self) -> int:
        return len(self.images) + len(self.same) + len(self.different)

    def with_hints(
        self, names: Mapping[int, str], same: Pairs, different: Pairs, n_images: int, alone: Iterable[int] = ()
    ) -> Hints:
        """Return these hints and new ones, or raise an error that names a contradiction.

        Parameters
        ----------
        names : mapping of int to str
            Names by image.
        same : iterable of pairs of int
            Images that belong together.
        different : iterable of pairs of int
            Images that do not.
        n_images : int
            Number of images in the collection.
        alone : iterable of int, default=()
            Images that were placed by hand.

        Returns
        -------
        Hints
            All of them.
        """
        known = self.names
        for image, name in names.items():
            index, text = _check_index(image, n_images), _check_name(image, name)
            if known.setdefault(index, text) != text:
                raise ValueError(
                    f"image {index} is already named {known[index]!r} and cannot be named {text!r} as well; to correct "
                    f"the name, call forget([{index}]) first"
                )
        together = unique_pairs(self.same, same, n_images, "same")
        apart = unique_pairs(self.different, different, n_images, "different")
        placed = dict.fromkeys([*self.alone, *(_check_index(image, n_images) for image in alone)])
        found = Hints(tuple(known), tuple(known.values()), together, apart, tuple(placed))._tidy()
        found.groups()  # raises an error if they contradict each other
        return found

    def _tidy(self) -> Hints:
        """Return the hints without images placed by hand that nothing is said about."""
        said = set(self.mentioned.tolist())
        return replace(self, alone=tuple(image for image in self.alone if image in said))

    def without(self, images: Iterable[int], pairs: Iterable[Pair] = ()) -> Hints:
        """Return these hints without all that is about some images, and without some pairs.

        Parameters
        ----------
        images : iterable of int
            Images.
        pairs : iterable of pairs of int
            Pairs.

        Returns
        -------
        Hints
            The others.
        """
        gone, undone = {int(image) for image in images}, {_ordered(pair) for pair in pairs}
        kept = {image: name for image, name in self.names.items() if image not in gone}

        def left(said: Sequence[Pair]) -> tuple[Pair, ...]:
            return tuple(pair for pair in said if pair not in undone and not gone & set(pair))

        alone = tuple(image for image in self.alone if image not in gone)
        return Hints(tuple(kept), tuple(kept.values()), left(self.same), left(self.different), alone)._tidy()

    def renumbered(self, new_index: IndexArray) -> Hints:
        """Return the hints with images renumbered; what is about an image of index -1 is left out.

        Parameters
        ----------
        new_index : ndarray of shape (n_images,)
            New index of each image.

        Returns
        -------
        Hints
            Hints about the images that are left.
        """
        left = self.without(int(image) for image in self.mentioned if new_index[image] < 0)
        moved = tuple(int(new_index[image]) for image in left.images)
        same, different = (
            tuple((int(new_index[i]), int(new_index[j])) for i, j in pairs) for pairs in (left.same, left.different)
        )
        return Hints(moved, left.said, same, different, tuple(int(new_index[image]) for image in left.alone))

    def groups(self) -> list[Group]:
        """Return the groups of images that must share a cluster, or raise an error that names a contradiction.

        Returns
        -------
        list of Group
            Groups in the order of their first hint. Different groups with a name have different names.
        """
        parent = {int(image): int(image) for image in self.mentioned}

        def root(image: int) -> int:
            while parent[image] != image:
                parent[image] = parent[parent[image]]
                image = parent[image]
            return image

        first_of_name: dict[str, int] = {}
        links = [*self.same, *((image, first_of_name.setdefault(name, image)) for image, name in self.names.items())]
        for i, j in links:
            parent[root(i)] = root(j)
        named: dict[int, int] = {}
        names = self.names
        for image, name in names.items():
            other = named.setdefault(root(image), image)
            if names[other] != name:
                raise ContradictionError(self._why_joined(other, image), (other, image))
        apart: dict[int, set[int]] = {root(image): set() for image in parent}
        for i, j in self.different:
            if root(i) == root(j):
                raise ContradictionError(self._why_not_different(i, j), (i, j))
            apart[root(i)].add(root(j))
            apart[root(j)].add(root(i))
        return self._collect(parent, root_of={image: root(image) for image in parent}, apart=apart, named=named)

    def _collect(
        self, parent: Iterable[int], *, root_of: dict[int, int], apart: dict[int, set[int]], named: dict[int, int]
    ) -> list[Group]:
        order = [*self.images, *(image for pair in (*self.same, *self.different) for image in pair)]
        roots = list(dict.fromkeys(root_of[image] for image in order))
        members: dict[int, list[int]] = {root: [] for root in roots}
        for image in parent:
            members[root_of[image]].append(image)
        number = {root: place for place, root in enumerate(roots)}
        names = self.names
        return [
            Group(
                tuple(sorted(members[root])),
                names[named[root]] if root in named else None,
                frozenset(number[other] for other in apart[root]),
            )
            for root in roots
        ]

    def _why_joined(self, i: int, j: int) -> str:
        chain = " and ".join(f"({a}, {b})" for a, b in self._chain(i, j))
        return (
            f"image {i} is named {self.names[i]!r} and image {j} is named {self.names[j]!r}, but they are said to be "
            f"the same: {chain}; forget one of these hints"
        )

    def _why_not_different(self, i: int, j: int) -> str:
        chain = self._chain(i, j)
        if i == j or not chain:
            why = "which is one image" if i == j else f"but both are named {self._name_reached(i)!r}"
        else:
            why = f"but also the same: {' and '.join(f'({a}, {b})' for a, b in chain)}"
        return f"images {i} and {j} are said to be different, {why}; forget one of these hints"

    def _name_reached(self, image: int) -> str:
        names = self.names
        reached = next(other for other in names if other == image or self._chain(image, other))
        return names[reached]

    def _chain(self, start: int, goal: int) -> list[Pair]:
        """Return "same" pairs that lead from one image to another; none if there is no such chain."""
        came: dict[int, int] = {start: start}
        queue = [start]
        for image in queue:
            for i, j in self.same:
                for here, there in ((i, j), (j, i)):
                    if here == image and there not in came:
                        came[there] = image
                        queue.append(there)
        chain: list[Pair] = []
        while goal in came and goal != start:
            chain.append(_ordered((came[goal], goal)))
            goal = came[goal]
        return chain[::-1]


@dataclass(frozen=True)
class Group:
    """Images that share a cluster because of hints, its name, and the groups that must not be in it."""

    images: tuple[int, ...]
    name: str | None
    apart: frozenset[int]


def _check_index(image: object, n_images: int) -> int:
    if isinstance(image, bool) or not isinstance(image, Integral):
        raise TypeError(f"a hint is about image {image!r}; the index of an image is wanted, an integer")
    if not 0 <= int(image) < n_images:
        raise ValueError(f"a hint is about image {image}, but the images are 0 to {n_images - 1}")
    return int(image)


def _check_name(image: object, name: object) -> str:
    if isinstance(name, Integral) and not isinstance(name, bool):
        name = str(int(name))
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"the name of image {image} is {name!r}; a text that is not empty is wanted")
    return str(name).strip()


def _ordered(pair: Iterable[int]) -> Pair:
    i, j = pair
    return (int(i), int(j)) if i <= j else (int(j), int(i))


def unique_pairs(known: Sequence[Pair], new: Pairs, n_images: int, what: str) -> tuple[Pair, ...]:
    """Return known and new pairs, each once and the smaller index first."""
    if not isinstance(new, Iterable):
        raise TypeError(f"{what}={new!r}; a list of pairs of two indices is wanted, such as [(3, 4)]")
    found = list(known)
    for pair in new:
        try:
            i, j = pair
        except (TypeError, ValueError):
            raise TypeError(f"{what} holds {pair!r}; pairs of two indices are wanted, such as (3, 4)") from None
        found.append(_ordered((_check_index(i, n_images), _check_index(j, n_images))))
    return tuple(dict.fromkeys(pair for pair in found if what == "different" or pair[0] != pair[1]))


# --- what follows from it --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Evidence:
    """What the images themselves say: the clusters found without hints, and how near images are to each other.

    Parameters
    ----------
    labels : ndarray of shape (n_images,)
        Clusters found without hints.
    coordinates : ndarray of shape (n_images, n_coordinates)
        Diffusion coordinates, rows of unit length.
    affinity : sparse matrix of shape (n_images, n_images)
        Edge weights that were cut.
    copies : ndarray of shape (n_images,)
        Group of copies that each image belongs to; they share a label unless hints differ.
    """

    labels: LabelArray
    coordinates: Coordinates
    affinity: SparseMatrix
    copies: LabelArray

    @cached_property
    def centers(self) -> IndexArray:
        """The most typical image of each cluster."""
        clusters = members_of(self.labels)
        return np.array([most_typical(self.coordinates, self.affinity, members) for members in clusters])

    def center(self, cluster: int, without: Collection[int]) -> int:
        """Return the most typical image of a cluster, except some images if there are others.

        Parameters
        ----------
        cluster : int
            A cluster.
        without : collection of int
            Images that stand for other clusters, such as those placed by hand.

        Returns
        -------
        int
            An image.
        """
        typical = int(self.centers[cluster])
        if typical not in without:
            return typical
        members = np.flatnonzero(self.labels == cluster)
        left = members[~np.isin(members, list(without))]
        return most_typical(self.coordinates, self.affinity, members, left) if len(left) else typical

    @cached_property
    def separation(self) -> Float64Array:
        """Squared distance from the mean of each cluster to the nearest other one."""
        n_clusters = int(self.labels.max()) + 1
        return separation(cluster_means(self.coordinates.astype(np.float64), self.labels, n_clusters))

    @cached_property
    def spread(self) -> SparseMatrix:
        """Edge weights divided by the roots of both images' degrees."""
        degrees = np.asarray(self.affinity.sum(axis=1), dtype=np.float64).ravel()
        scale = sparse.diags_array(1.0 / np.sqrt(np.where(degrees > 0.0, degrees, 1.0)))
        return sparse.csr_matrix(scale @ self.affinity @ scale).astype(np.float32)


@dataclass(frozen=True)
class Outcome:
    """Labels in which all hints hold.

    Parameters
    ----------
    labels : ndarray of shape (n_images,)
        Cluster of each image; cluster 0 is the largest.
    names : list of str or None
        Name of each cluster; None where none was given.
    """

    labels: LabelArray
    names: list[str | None]


def apply_hints(evidence: Evidence, hints: Hints) -> Outcome:
    """Return labels in which all hints hold; see the top of this file for the rules.

    Parameters
    ----------
    evidence : Evidence
        Clusters without hints and the graph.
    hints : Hints
        Hints without contradictions.

    Returns
    -------
    Outcome
        Labels and names of clusters.
    """
    groups = hints.groups()
    if not groups:
        return Outcome(order_by_size(evidence.labels), [None] * (int(evidence.labels.max()) + 1))
    # Columns of votes: one for each cluster found, then one for each name, then clusters that pairs ask for.
    n_found = int(evidence.labels.max()) + 1
    names: list[str | None] = [None] * n_found
    column = [-1] * len(groups)
    for place, group in enumerate(groups):
        if group.name is not None:
            column[place] = len(names)
            names.append(group.name)
    unnamed = [place for place, group in enumerate(groups) if group.name is None]
    alone = frozenset(hints.alone)
    alone |= frozenset(_exceptions(evidence, *_anchors(groups, column, alone)).tolist())
    _place_unnamed(evidence, groups, unnamed, column, names, alone)
    images, columns = _anchors(groups, column)
    voting = ~np.isin(images, list(alone))
    votes = _votes(evidence, images[voting], columns[voting], len(names), alone)
    return _decide(evidence, votes, images, columns, names, voting)


def _exceptions(evidence: Evidence, images: IndexArray, said: IndexArray) -> IndexArray:
    """Return the answers that say something about their own image only.

    An answer that differs from the others of its cluster has two explanations. Either the part of the cluster that it
    would take along, the images nearest to it, has another name; or its image alone has. The chance of the former is
    the share of the part that is expected to have another name, judged by the distance of its mean from that of the
    rest as in :class:`QuestionTree`: ``|difference|² / separation``, times the share of the rest in the cluster. The
    chance of the latter is ``1 / (n + 2)`` after n answers, by Laplace's rule of succession for something that was
    never seen. The likelier one is believed. So with few answers clusters are named as a whole unless parts of them lie
    well apart, and with many answers each takes along the images around it.

    An answer is no exception if another one in its cluster says the same, or if the name that most images of the
    cluster would follow was said only once, too: it is then unknown which of the two is the odd one.
    """
    chance = 1.0 / (len(images) + 2.0)
    order = np.argsort(images)  # the result does not depend on the order of answers
    images, said = images[order], said[order]
    clusters = evidence.labels[images]
    found = [np.empty(0, np.intp)]
    for cluster in np.unique(clusters):
        answered, names = images[clusters == cluster], said[clusters == cluster]
        if (names != names[0]).any():
            lone, share = _lone_answers(evidence, int(cluster), answered, names)
            found.append(answered[lone & (share < chance)])
    return np.concatenate(found)


def _lone_answers(
    evidence: Evidence, cluster: int, answered: IndexArray, names: IndexArray
) -> tuple[NDArray[np.bool_], Float64Array]:
    """Return which answers of a cluster stand alone, and the expected share of another name in the part of each."""
    n_answers, members = len(answered), np.flatnonzero(evidence.labels == cluster)
    points = evidence.coordinates[members]
    parts = nearest_centers(points, evidence.coordinates[answered])
    parts[np.searchsorted(members, answered)] = np.arange(n_answers)  # equal images may have different names
    sizes = np.bincount(parts, minlength=n_answers)
    _, number = np.unique(names, return_inverse=True)
    said, followed = np.bincount(number), np.bincount(number, weights=sizes)
    # If as many images follow two names, the one that was said more often counts.
    most = np.lexsort((said, followed))[-1]
    means = cluster_means(points, parts, n_answers)
    # Between the means of a part and the rest lies n / (n - size) times the distance from the part to the mean of all.
    squared = ((means - sizes @ means / len(members)) ** 2).sum(axis=1)
    share = squared * len(members) / (len(members) - sizes) / evidence.separation[cluster]
    return (said[number] == 1) & (said[most] > 1), share


def _anchors(
    groups: Sequence[Group], column: Sequence[int], without: Collection[int] = ()
) -> tuple[IndexArray, IndexArray]:
    """Return the hinted images whose cluster is known, except some, and their columns."""
    known = [(group, column[place]) for place, group in enumerate(groups) if column[place] >= 0]
    found = [(image, place) for group, place in known for image in group.images if image not in without]
    pairs = np.array(found, dtype=np.intp).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _place_unnamed(
    evidence: Evidence,
    groups: Sequence[Group],
    unnamed: Sequence[int],
    column: list[int],
    names: list[str | None],
    alone: Collection[int],
) -> None:
    """Choose the column of each group without a name: where most of its votes are, but not where it must not be.

    A group that is kept out of the cluster with most of its votes gets a new one, unless another has many votes too.
    A group of images that were placed by hand gets a new one.
    """
    voters = {place: [image for image in groups[place].images if image not in alone] for place in unnamed}
    asked = np.array(sorted({image for images in voters.values() for image in images}), dtype=np.intp)
    votes = _votes(evidence, *_anchors(groups, column, alone), len(names), alone, asked) if len(asked) else None
    for place in unnamed:
        group = groups[place]
        if votes is None or not voters[place]:
            column[place] = len(names)
            names.append(None)
            continue
        total = np.asarray(votes[np.searchsorted(asked, voters[place])].sum(axis=0)).ravel()
        shares = np.concatenate([total / max(total.sum(), 1e-12), np.zeros(len(names) - len(total))])
        taken = [column[other] for other in group.apart if column[other] >= 0]
        best = int(shares.argmax())
        shares[taken] = -1.0
        choice = int(shares.argmax())
        if best in taken and shares[choice] < _WELCOME:
            choice = len(names)
            names.append(None)
        column[place] = choice


def _votes(
    evidence: Evidence,
    images: IndexArray,
    columns: IndexArray,
    n_columns: int,
    alone: Collection[int] = (),
    rows: IndexArray | None = None,
) -> SparseMatrix:
    """Return the smoothed votes (n, n_columns) of hints, each row summing to one; with ``rows`` only some rows.

    Clusters without a named hint keep a column of their own. Where pairs have put hints into such a cluster, its most
    typical image that was not placed by hand (``alone``) votes for it.
    """
    n_images, labels = len(evidence.labels), evidence.labels
    n_found = int(labels.max()) + 1
    is_name = columns >= n_found
    anonymous = np.bincount(labels[images[is_name]], minlength=n_found) == 0
    hinted = np.bincount(labels[images], minlength=n_found) > 0
    keepers = np.flatnonzero(anonymous & hinted)
    if len(keepers):
        centers = np.array([evidence.center(int(cluster), alone) for cluster in keepers])
        free = ~np.isin(centers, images)
        images, columns = np.append(images, centers[free]), np.append(columns, keepers[free])
    quiet = ~hinted[labels]
    own = np.flatnonzero(quiet)
    parts = [(own, labels[own], np.ones(len(own)))]
    of_cluster = labels[images]
    for cluster in np.flatnonzero(hinted):
        members, chosen = np.flatnonzero(labels == cluster), np.flatnonzero(of_cluster == cluster)
        shares, used = _nearest_votes(evidence.coordinates, members, images[chosen], columns[chosen])
        at, slots = np.nonzero(shares > 1e-6)
        parts.append((members[at], used[slots], shares[at, slots]))
    row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    votes = sparse.csr_matrix((value, (row, column)), shape=(n_images, n_columns))
    return _smooth(evidence.spread, votes, images, columns, rows)


def _nearest_votes(
    coordinates: Coordinates, members: IndexArray, images: IndexArray, columns: IndexArray
) -> tuple[NDArray[np.float64], IndexArray]:
    """Return the votes (members, c) of hints for images of one cluster, and the columns they are for."""
    used, place = np.unique(columns, return_inverse=True)
    if len(used) == 1:
        return np.ones((len(members), 1)), used
    choice = sparse.csr_matrix((np.ones(len(place)), (np.arange(len(place)), place)))
    votes = np.empty((len(members), len(used)))
    step = max(1, _BLOCK // len(images))
    for start in range(0, len(members), step):
        rows = slice(start, start + step)
        squared = 2.0 - 2.0 * (coordinates[members[rows]] @ coordinates[images].T).astype(np.float64)
        squared = np.maximum(squared, 0.0) + _SMALLEST_DISTANCE
        votes[rows] = (squared / squared.min(axis=1, keepdims=True)) ** _VOTE_POWER @ choice
    return votes / votes.sum(axis=1, keepdims=True), used


def _smooth(
    spread: SparseMatrix, votes: SparseMatrix, images: IndexArray, columns: IndexArray, rows: IndexArray | None
) -> SparseMatrix:
    """Return votes after some steps of label spreading, in which hinted images weigh more.

    Few rows are found by spreading from these rows, since ``spread`` is symmetric.
    """
    whole = votes.toarray().astype(np.float32)
    whole[images] = 0.0
    whole[images, columns] = _HINT_WEIGHT
    used = np.flatnonzero(whole.any(axis=0))
    start = np.ascontiguousarray(whole[:, used])
    if rows is not None and len(rows) < len(used):
        reach = np.zeros((len(start), len(rows)), np.float32)
        reach[rows, np.arange(len(rows))] = 1.0
        total = np.zeros_like(reach)
        for _ in range(_SMOOTHING_STEPS):
            total += (1.0 - _SMOOTHING) * reach
            reach = _SMOOTHING * (spread @ reach)
        found = (total + reach).T @ start
    else:
        found = start
        for _ in range(_SMOOTHING_STEPS):
            found = _SMOOTHING * (spread @ found) + (1.0 - _SMOOTHING) * start
        found = found if rows is None else found[rows]
    sums = found.sum(axis=1, keepdims=True)
    shares = sparse.csr_matrix(found / np.where(sums > 0.0, sums, 1.0))
    return sparse.csr_matrix((shares.data, used[shares.indices], shares.indptr), (len(found), votes.shape[1]))


def _decide(
    evidence: Evidence,
    votes: SparseMatrix,
    images: IndexArray,
    columns: IndexArray,
    names: list[str | None],
    voting: NDArray[np.bool_],
) -> Outcome:
    """Return the clusters with most votes; copies share theirs, and hinted images have what was said."""
    copies = evidence.copies
    n_groups = int(copies.max()) + 1
    if n_groups < len(copies):
        joined = sparse.csr_matrix((np.ones(len(copies)), (copies, np.arange(len(copies)))))
        shares = np.asarray((joined @ votes).todense())[copies]
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-12)
    else:
        shares = votes.toarray()
    # A cluster without hints stays as it was found.
    quiet = ~np.isin(evidence.labels, evidence.labels[images[voting]])
    chosen = np.where(quiet, evidence.labels, shares.argmax(axis=1))
    said = np.full(n_groups, -1, np.intp)
    said[copies[images][::-1]] = columns[::-1]  # of several hints the first counts
    chosen = np.where(said[copies] >= 0, said[copies], chosen)
    chosen[images] = columns
    labels = order_by_size(chosen)
    ordered: list[str | None] = [None] * (int(labels.max()) + 1)
    for label, column in zip(labels, chosen, strict=True):
        ordered[label] = names[column]
    return Outcome(labels, ordered)


# --- what to ask next ------------------------------------------------------------------------------------
# How much an answer one level up in a tree counts against one here.
_MEMORY = 0.5


@dataclass(frozen=True)
class Question:
    """An image to ask about, the number of images that follow its answer, and the chance of an unexpected answer."""

    image: int
    n_images: int
    chance: float


class _Division(NamedTuple):
    """A node of the tree with answers on one side only; ``other`` and ``same`` count divisions above it."""

    priority: float  # negative, for a heap
    number: int
    node: int
    same: float
    other: float


class Interview:
    """Finds the next questions: first a name for each cluster, then pieces of clusters that may have another name.

    On average up to two answers per cluster are planned (:class:`QuestionTree`). Clusters with most images per planned
    answer come first, and all planned answers of a cluster are asked for before the next cluster is: a single one would
    give the name of one piece to all.

    A node of the tree that holds answers is divided where most images are expected to have another name, judged by
    their distance from the rest (``QuestionTree.gain``), times the chance of another name that the answers suggest,
    ``(d + 1) / (s + d + 2)``. Here s and d count the divisions above it whose two sides turned out to have the same
    name or different ones; those farther up count less.

    Parameters
    ----------
    tree : QuestionTree
        The tree of each cluster.
    evidence : Evidence
        What the images say without hints.
    hinted : ndarray of shape (n_hinted,)
        Images that hints are about.
    labels : ndarray of shape (n_hinted,)
        Clusters of those images.
    skipped : ndarray of shape (n_skipped,)
        Images that must not be asked about.
    """

    def __init__(
        self,
        tree: QuestionTree,
        evidence: Evidence,
        hinted: IndexArray,
        labels: LabelArray,
        skipped: IndexArray,
    ) -> None:
        self.tree, self.evidence = tree, evidence
        place = np.empty(len(tree.order), np.intp)
        place[tree.order] = np.arange(len(tree.order))
        by_place = np.argsort(place[hinted], kind="stable")
        self.places: list[int] = place[hinted][by_place].tolist()
        self.labels: list[int] = labels[by_place].tolist()
        self.place = place
        self.closed = np.zeros(len(tree.order), dtype=np.bool_)
        self.closed[skipped] = True
        self.closed[hinted] = True
        self.heap: list[_Division] = []
        self.n_same, self.n_other = 0, 0
        self.silent = [root for root in tree.roots if not self._answers(root)]
        for root in tree.roots:
            self._open(root, 0.0, 0.0)

    def _answers(self, node: int) -> list[int]:
        """Return the clusters of the hinted images of a node; -1 for an image that is asked about in this round."""
        low = bisect_left(self.places, int(self.tree.start[node]))
        return self.labels[low : bisect_left(self.places, int(self.tree.stop[node]))]

    def _open(self, node: int, same: float, other: float) -> None:
        """Put the divisions of a node with answers on the heap that separate answers from images without one."""
        pending = [(node, same, other)]
        while pending:
            node, same, other = pending.pop()
            a, b = (int(child) for child in self.tree.children[node])
            if a < 0:
                continue
            left, right = self._answers(a), self._answers(b)
            if left and right:
                equal = _most_frequent(left) == _most_frequent(right)
                self.n_same, self.n_other = self.n_same + equal, self.n_other + (not equal)
                same, other = _MEMORY * same + equal, _MEMORY * other + (not equal)
                pending += [(a, same, other), (b, same, other)]
            elif left or right:
                priority = self.tree.gain[node] * (other + 1.0) / (same + other + 2.0)
                heapq.heappush(self.heap, _Division(-priority, len(self.heap), node, same, other))

    def chance(self, same: float, other: float) -> float:
        """Return the chance that a piece has another name than the rest of its node.

        Parameters
        ----------
        same : float
            Number of divisions above it with one name on both sides.
        other : float
            Number of divisions above it with two names.

        Returns
        -------
        float
            Share of divisions with two names above it; where these are few, among all divisions with answers.
        """
        usual = (self.n_other + 1.0) / (self.n_same + self.n_other + 2.0)
        return (other + usual) / (same + other + 1.0)

    def n_doubtful(self) -> int:
        """Return the expected number of images that have another name than they were given.

        Returns
        -------
        int
            Images in pieces without an answer, times the chances; half the images of clusters without a name.
        """
        silent = sum(len(self.tree.members(root)) for root in self.silent) / 2.0
        pieces = 0.0
        for found in self.heap:
            a, b = (int(child) for child in self.tree.children[found.node])
            pieces += len(self.tree.members(b if self._answers(a) else a)) * self.chance(found.same, found.other)
        return round(silent + pieces)

    def next(self) -> Question | None:
        """Return the next question, or None if every image is hinted or skipped.

        Returns
        -------
        Question or None
            The question; later ones take into account that it is asked.
        """
        while self.silent or self.heap:
            division = self._take()
            question = self._ask_cluster(self.silent.pop(0)) if division is None else self._ask_piece(division)
            if question is not None:
                return question
        return None

    def _take(self) -> _Division | None:
        """Remove and return the division to ask about; None if a cluster without a name comes first."""
        if self.silent and not (self.heap and self._is_planned(self.heap[0])):
            return None
        return heapq.heappop(self.heap)

    def _is_planned(self, division: _Division) -> bool:
        """Tell whether a division is one of the plan; answers that agree around it make it less urgent."""
        even_chances = 0.5
        return -division.priority >= even_chances * self.tree.planned_gain

    def _ask_cluster(self, root: int) -> Question | None:
        image, n_images = self._typical(root), len(self.tree.members(root))
        if image is None:
            return None
        self._ask(image)
        self._open(root, 0.0, 0.0)
        return Question(image, n_images, 1.0)

    def _ask_piece(self, division: _Division) -> Question | None:
        same, other = division.same, division.other
        a, b = (int(child) for child in self.tree.children[division.node])
        known, unknown = (a, b) if self._answers(a) else (b, a)
        image = self._typical(unknown)
        expected = self.chance(same, other)
        chance = (other + 1.0) / (same + other + 2.0)
        same, other = _MEMORY * same + 1.0 - chance, _MEMORY * other + chance
        if image is not None:
            self._ask(image)
            self._open(unknown, same, other)
        self._open(known, same, other)
        return None if image is None else Question(image, len(self.tree.members(unknown)), expected)

    def _typical(self, node: int) -> int | None:
        members = self.tree.members(node)
        free = members[~self.closed[members]]
        if len(free) == 0:
            return None
        return most_typical(self.evidence.coordinates, self.evidence.affinity, members, free)

    def _ask(self, image: int) -> None:
        low = bisect_left(self.places, int(self.place[image]))
        self.places.insert(low, int(self.place[image]))
        self.labels.insert(low, -1)
        self.closed[image] = True


def _most_frequent(values: Sequence[int]) -> int:
    return values[0] if len(values) == 1 else Counter(values).most_common(1)[0][0]
