"""Clusters that learn after the fit: questions and hints, new images, and images that are taken out.

:class:`GrowingClusters` is the part of ``ImageClusterer`` that does this. It needs no images but the new ones: labels
follow from the clusters of the fit, the edges that were cut, and the hints (:mod:`tubal.clustering.hints`).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components
from sklearn.utils.validation import check_is_fitted

from tubal.backends.arrays import Array, to_numpy
from tubal.clustering.affinity import choose_neighbors, copy_groups, mutual_adjacency, with_short_paths
from tubal.clustering.cuts import diffusion_coordinates, n_diffusion_vectors, order_by_size
from tubal.clustering.hints import (
    Evidence,
    Hints,
    Interview,
    Outcome,
    Pair,
    Pairs,
    Question,
    apply_hints,
    unique_pairs,
)
from tubal.clustering.quality import peak_values
from tubal.clustering.spectral import Float64Array, LabelArray, spectrum
from tubal.clustering.tree import ClusterTree, Coordinates, QuestionTree
from tubal.clustering.views import SHAPE, Viewed, best_edges, describe_new, picture_peaks
from tubal.estimators.coders import GTSC
from tubal.estimators.validation import check_stored
from tubal.graph import Graph
from tubal.graph.neighbors import as_rows, exact_copies
from tubal.graph.structure import (
    Alignments,
    FloatArray,
    IndexArray,
    Neighbors,
    SparseMatrix,
)
from tubal.learning.fitting import as_in_graph, replace_fitted, scale_images
from tubal.problems.layout import unit_rows
from tubal.solvers.base import check_integer

Self = TypeVar("Self", bound="GrowingClusters")

# Diffusion time of the coordinates in which hints are compared, in units of the first eigenvalue after the clusters.
_TIME = 1.5
# An image is unlike all others if the nearest is farther away than the last neighbour of this share of images.
_USUAL = 0.99
# Length of the lists in which the nearest image of the fit is looked for.
_AROUND = 40
# Numbers of clusters whose evidence is kept, while a person tries some.
_MOST_KEPT = 32
# Steps of spreading the labels of known images to new ones, which may be neighbours of new images only.
_SPREADING_STEPS = 20


class GrowingClusters(Viewed):
    """Questions, hints, new images and removals, for a fitted clusterer; see ``ImageClusterer``."""

    labels_: LabelArray
    names_: list[str | None]
    hints_: Hints
    found_labels_: LabelArray
    coordinates_: Coordinates
    n_clusters_: int
    confidence_: NDArray[np.float64]
    stability_: Float64Array
    _brightness_: Float64Array  # the largest absolute value of each image
    affinity_: SparseMatrix
    copy_of_: IndexArray
    graph_: Graph
    model_: GTSC
    n_added_: int
    n_chosen_: int
    seed_: int

    def _tree_of(self, labels: LabelArray) -> ClusterTree:
        """Return the tree of nested clusters that contains the partition ``labels``."""
        raise NotImplementedError

    def _describe(self, labels: LabelArray, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes that follow from labels; ``parts`` are fitted attributes that are about to change."""
        raise NotImplementedError

    def _new_stack(self, X: ArrayLike) -> Array:
        """Return new images as a stack (m, height, width[, channels]) of the training shape."""
        raise NotImplementedError

    # --- questions ---------------------------------------------------------------------------------------
    def questions(
        self, n_questions: int = 10, *, skip: Iterable[int] = (), return_gain: bool = False
    ) -> IndexArray | tuple[IndexArray, Float64Array]:
        """Return images whose names would tell most about all others, the most informative first.

        The order depends on what is known. First each cluster needs a name, large and uniform ones first; then pieces
        of clusters that may have another name. Up to two answers per cluster are planned on average, more for mixed
        clusters, and all planned pieces of a cluster are asked about in a row: a single answer would give the name of
        one piece to all. Work in rounds: ask some questions, pass the answers to :meth:`refine`, and ask again. Stop
        when ``n_doubtful_`` or the gains are small: further answers then hardly change anything.

        Parameters
        ----------
        n_questions : int, default=10
            Number of questions; fewer are returned if there are fewer images without hints.
        skip : iterable of int, default=()
            Images not to ask about, for instance because the person did not know them.
        return_gain : bool, default=False
            Return the gains, too.

        Returns
        -------
        indices : ndarray of shape (n_questions,)
            Images to ask about.
        gains : ndarray of shape (n_questions,)
            Number of images that are expected to get another label or a name; only if ``return_gain``.
        """
        check_is_fitted(self, "labels_")
        n_questions = check_integer("n_questions", n_questions)
        left_out = check_images("skip", skip, len(self.labels_))
        interview = self._interview(np.array(left_out, dtype=np.intp))
        found: list[Question] = []
        while len(found) < n_questions and (question := interview.next()) is not None:
            found.append(question)
        indices = np.array([question.image for question in found], dtype=np.intp)
        gains = np.array([question.n_images * question.chance for question in found], dtype=np.float64)
        return (indices, gains) if return_gain else indices

    @property
    def n_doubtful_(self) -> int:
        """Expected number of images that still have a wrong name: those in pieces of clusters that nobody named."""
        check_is_fitted(self, "labels_")
        if not len(self.hints_):
            return round(len(self.labels_) / 2.0)  # as the interview would say, without its tree
        return self._interview(np.empty(0, np.intp)).n_doubtful()

    def _interview(self, skip: IndexArray) -> Interview:
        said = self.hints_.mentioned
        return Interview(self._question_tree(), self._evidence(), said, self.labels_[said], skip)

    # --- hints -------------------------------------------------------------------------------------------
    def refine(self: Self, names: Mapping[int, str] | None = None, *, same: Pairs = (), different: Pairs = ()) -> Self:
        """Add hints, and change labels so that all hints hold.

        Every named image gets its name, "same" pairs share a cluster, and "different" pairs do not. Images near a
        hinted one follow it, but a single name that differs from the others of a uniform cluster moves one image only.
        Images with one name are one cluster; a new name makes a new cluster. Hints add up over calls; the order of
        calls does not matter.

        Parameters
        ----------
        names : mapping of int to str, or None, default=None
            Names of images, by index.
        same : iterable of pairs of int, default=()
            Images that belong together.
        different : iterable of pairs of int, default=()
            Images that do not.

        Returns
        -------
        ImageClusterer
            The clusterer itself.

        Raises
        ------
        ValueError
            If hints contradict each other. The message names them, and nothing has changed.
        """
        check_is_fitted(self, "labels_")
        given = {} if names is None else names
        if not isinstance(given, Mapping):
            raise TypeError(f"names is a {type(given).__name__}; a dict of names by image is wanted")
        self._set_hints(self.hints_.with_hints(given, same, different, len(self.labels_)))
        return self

    def forget(self: Self, images: Iterable[int] = (), *, pairs: Iterable[Pair] = ()) -> Self:
        """Take hints back: labels become what they would be if nobody had given them.

        Parameters
        ----------
        images : iterable of int, default=()
            Images; every hint about one of them is forgotten.
        pairs : iterable of pairs of int, default=()
            Pairs that are neither the same nor different any more.

        Returns
        -------
        ImageClusterer
            The clusterer itself.
        """
        check_is_fitted(self, "labels_")
        n_images, known = len(self.labels_), set(self.hints_.mentioned.tolist())
        gone, undone = check_images("images", images, n_images), unique_pairs((), pairs, n_images, "pairs")
        unknown = [image for image in gone if image not in known]
        if unknown:
            raise ValueError(f"nothing was said about image {unknown[0]}; hints_ holds all hints")
        unpaired = sorted(set(undone) - {*self.hints_.same, *self.hints_.different})
        if unpaired:
            raise ValueError(f"nothing was said about the pair {unpaired[0]}; hints_ holds all hints")
        self._set_hints(self.hints_.without(gone, undone))
        return self

    def _set_hints(self, hints: Hints) -> None:
        """Store hints and everything that follows from them; nothing changes if this fails."""
        self._set_said(hints, getattr(self, "n_chosen_", None))

    def _set_said(self, hints: Hints, n_chosen: int | None) -> None:
        """Store hints and a number of clusters, None for that of the fit; nothing changes if this fails.

        Clusters for another number are cut from the tree of those that were found, and then follow the hints.
        """
        kept = {name: value for name, value in vars(self).items() if name.endswith("_") and name != "tree_"}
        kept.pop("n_chosen_", None)
        if len(hints) or n_chosen is not None:
            evidence = self._evidence_for(n_chosen)
            found = apply_hints(evidence, hints)
            kept["coordinates_"] = evidence.coordinates
        else:
            labels = order_by_size(self._found())
            found = Outcome(labels, [None] * (int(labels.max()) + 1))
        kept |= {"hints_": hints, "names_": found.names, "labels_": found.labels, "found_labels_": self._found()}
        if n_chosen is not None:
            kept["n_chosen_"] = n_chosen
        kept |= self._describe(found.labels, kept)
        kept["confidence_"][hints.mentioned] = 1.0
        replace_fitted(self, kept)

    def _found(self) -> LabelArray:
        """Return the clusters without hints, in the number of the fit."""
        return getattr(self, "found_labels_", self.labels_)

    def _evidence(self) -> Evidence:
        """Return what the images say without hints; kept until the collection changes."""
        return self._evidence_for(getattr(self, "n_chosen_", None))

    def _evidence_for(self, n_chosen: int | None) -> Evidence:
        """Return what hints are applied to: the clusters of the fit, or as many as a person chose."""
        cache: dict[int | None, Evidence] = self._cache_of("_evidence_cache")
        if n_chosen not in cache:
            cache[n_chosen] = self._gather_evidence() if n_chosen is None else self._cut_evidence(n_chosen)
        return cache[n_chosen]

    def _gather_evidence(self) -> Evidence:
        labels = self._found()
        coordinates = getattr(self, "coordinates_", None)
        if coordinates is None:
            coordinates = diffusion_space(self.affinity_, int(labels.max()) + 1, self.seed_)
        return Evidence(labels, coordinates, self.affinity_, copy_groups(self._copies(), self._exact_copies()))

    def _cut_evidence(self, n_clusters: int) -> Evidence:
        tree, found = self._found_tree(), self._evidence_for(None)
        evidence = replace(found, labels=tree.labels(min(n_clusters, tree.n_pieces)))
        vars(evidence)["spread"] = found.spread
        return evidence

    def _found_tree(self) -> ClusterTree:
        """Return the tree of the clusters without hints; kept until the collection changes."""
        cache: dict[None, ClusterTree] = self._cache_of("_found_tree_cache")
        if None not in cache:
            cache[None] = self._tree_of(self._found())
        return cache[None]

    def _cache_of(self, name: str) -> dict[Any, Any]:
        """Return a dict that is emptied when the collection changes, or when it has grown large."""
        cached = vars(self).get(name)
        if cached is None or cached[0] is not self.affinity_ or len(cached[1]) > _MOST_KEPT:
            cached = vars(self)[name] = (self.affinity_, {})
        kept: dict[Any, Any] = cached[1]
        return kept

    def _copies(self) -> IndexArray:
        return getattr(self, "copy_of_", np.arange(len(self.labels_)))

    def _exact_copies(self) -> LabelArray:
        if self.graph_.search is None:
            return np.arange(len(self.labels_))
        return exact_copies(as_rows(self.graph_.search.images))[1]

    def _question_tree(self) -> QuestionTree:
        """Return the tree of questions; it does not depend on the number of clusters that a person chose."""
        cache: dict[None, QuestionTree] = self._cache_of("_tree_cache")
        if None not in cache:
            evidence = self._evidence_for(None)
            cache[None] = QuestionTree.of(evidence.labels, evidence.coordinates, self.seed_)
        return cache[None]

    # --- new images --------------------------------------------------------------------------------------
    def update(self: Self, X: ArrayLike, *, views: Mapping[str, ArrayLike] | None = None) -> Self:
        """Add images to the collection without a new fit.

        Only the new images are searched for: neighbours among all images, which may list them in turn. They get the
        cluster of their neighbours. Groups of added images whose neighbours are among themselves become new clusters.
        Other images keep their labels, names and hints stay, and new images come after the others, in their order.

        Parameters
        ----------
        X : array-like of shape (m, height, width[, channels]) or (m, n_features)
            New images, in the shape of those of the fit.
        views : dict of str to ndarray of shape (m, n_features), or None, default=None
            Features of the images in views whose features were given in ``fit``. Without them, and in a model from a
            file also without those of functions, these views are not used any more.

        Returns
        -------
        ImageClusterer
            The clusterer itself.
        """
        check_is_fitted(self, "labels_")
        stack = self._new_stack(X)
        images = scale_images(stack, "unit")[0]
        n_old, n_neighbors = len(self.labels_), self.graph_.n_neighbors or 1
        asked = as_in_graph(self.graph_, stack, images, "unit")
        seen = self._grown_views(stack, asked, self._given_views(views))
        graph, around = seen[SHAPE].graph, seen[SHAPE].around
        model, features = self._coded(images, graph, _known_only(around.indices, n_old, n_neighbors))
        affinity = grown_affinity(self.affinity_, seen, n_neighbors)
        n_added = getattr(self, "n_added_", 0) + len(images)
        copy_of = self._grown_copies(asked)
        best = max(seen.values(), key=lambda view: view.trust)
        strangers = strange_groups(choose_neighbors(best.graph, n_neighbors), best.around, n_added)
        labels = grown_labels(self._found(), affinity, strangers)[copy_of]
        parts = {name: value for name, value in vars(self).items() if name.endswith("_") and name not in _DERIVED}
        parts |= {"graph_": graph, "model_": model, "affinity_": affinity, "found_labels_": labels, "copy_of_": copy_of}
        if features is not None:
            parts["features_"] = np.concatenate([parts["features_"], features.astype(parts["features_"].dtype)])
        parts |= {"n_added_": n_added}
        if "view_graphs_" in parts:
            parts["view_graphs_"] = {
                name: seen[name].graph if name in seen else unseen(known, len(images))
                for name, known in self.view_graphs_.items()
            }
        added = picture_peaks(stack, self.white_) if "_peaks_" in parts else None
        parts.pop("_peaks_", None)
        if added is not None:
            parts["_peaks_"] = np.concatenate([self._peaks_, added])
        if "_brightness_" in parts:
            parts["_brightness_"] = np.concatenate([self._brightness_, peak_values(stack)])
        if "coordinates_" in parts:
            parts["coordinates_"] = grown_coordinates(self.coordinates_, affinity)
        if "stability_" in parts:
            parts["stability_"] = grown_means(self.stability_, affinity)
        for name in _OF_FILES:
            if name in parts:
                parts[name] = np.append(parts[name], [""] * len(images)).astype(object)
        self._settle(parts, self.hints_, np.concatenate([self.labels_, np.full(len(images), -1, np.intp)]))
        return self

    def _coded(self, images: Array, graph: Graph, neighbors: IndexArray) -> tuple[GTSC, FloatArray | None]:
        """Return the coder of old and new images, and the features of the new ones; None if no image has any yet.

        A coder that keeps no codes computes those of all images on first use. Until then, the features of a new image
        are the mean of its neighbours', because the graph term makes codes of neighbours alike.
        """
        if self.model_._codes_on_demand_:
            features = vars(self).get("features_")
            mean = None if features is None else unit_rows(features[neighbors].mean(axis=1))
            return grown_coder(self.model_, None, graph), mean
        codes = self.model_.encode(images, neighbors)
        return grown_coder(self.model_, codes, graph), to_numpy(unit_rows(self.model_._pool(codes)))

    def remove(self: Self, indices: Iterable[int]) -> Self:
        """Take images out of the collection; the others keep their order, labels and hints.

        Hints about images that are taken out are forgotten.

        Parameters
        ----------
        indices : iterable of int
            Images to take out.

        Returns
        -------
        ImageClusterer
            The clusterer itself.
        """
        check_is_fitted(self, "labels_")
        n_images = len(self.labels_)
        gone = check_images("indices", indices, n_images)
        kept = np.setdiff1d(np.arange(n_images), np.array(gone, dtype=np.intp))
        if len(kept) < 2:
            raise ValueError(f"{len(kept)} of {n_images} images would be left; a collection has at least two")
        new_index = np.full(n_images, -1, np.intp)
        new_index[kept] = np.arange(len(kept))
        copy_of, stand_in = reduced_copies(self._copies(), new_index)
        graph = reduced_graph(self.graph_, kept, new_index)
        parts = {name: value for name, value in vars(self).items() if name.endswith("_") and name not in _DERIVED}
        parts |= {"graph_": graph, "affinity_": reduced_affinity(self.affinity_, stand_in, len(kept))}
        parts |= {"model_": reduced_coder(self.model_, kept, new_index), "copy_of_": copy_of}
        if "features_" in parts:
            parts["features_"] = parts["features_"][kept]
        if "view_graphs_" in parts:
            graphs = self.view_graphs_.items()
            parts["view_graphs_"] = {name: reduced_graph(known, kept, new_index) for name, known in graphs}
        labels = self._found()[kept]
        parts["found_labels_"] = np.unique(labels, return_inverse=True)[1].astype(np.intp)
        parts["n_added_"] = int(np.count_nonzero(kept >= n_images - getattr(self, "n_added_", 0)))
        for name in ("coordinates_", "stability_", "_peaks_", "_brightness_", *_OF_FILES):
            if name in parts:
                parts[name] = parts[name][kept]
        self._settle(parts, self.hints_.renumbered(new_index), self.labels_[kept])
        return self

    def _grown_views(self, stack: Array, images: Array, given: Mapping[str, ArrayLike]) -> dict[str, GrownView]:
        """Return the views that know old and new images, the shape first.

        The shape decides where no other view can, as in ``predict``.
        """
        trust = getattr(self, "view_weights_", {SHAPE: 1.0})  # models of earlier versions have one view
        described = describe_new(self, stack, given) if len(trust) > 1 or SHAPE not in trust else {}
        for name, weight in trust.items():
            if weight > 0.0 and name != SHAPE and name not in described and self.view_graphs_[name].search is not None:
                warnings.warn(
                    f"the view {name!r} does not know the new images and is not used any more; pass their features as "
                    f"views={{{name!r}: features}}",
                    stacklevel=3,
                )
        weight = trust.get(SHAPE, 0.0) if described else 1.0
        found = {SHAPE: GrownView(*grown_graph(self.graph_, images), weight)}
        for name, rows in described.items():
            found[name] = GrownView(*grown_graph(self.view_graphs_[name], rows), trust[name])
        return found

    def _settle(self, parts: dict[str, Any], hints: Hints, former: LabelArray) -> None:
        """Store a collection that has changed, with the labels that follow from its hints; all or nothing.

        ``former`` are the clusters that its images had, -1 for new images.
        """
        changed = copy.copy(self)
        changed.__dict__ = {name: value for name, value in vars(self).items() if not name.endswith("_")} | parts
        if len(hints) or "coordinates_" in parts:
            found = apply_hints(changed._evidence(), hints)
            parts["coordinates_"] = changed._evidence().coordinates
        else:
            labels = parts["found_labels_"]
            found = Outcome(labels, [None] * (int(labels.max()) + 1))
        labels, names = keep_numbers(found, former)
        parts |= {"labels_": labels, "names_": names, "hints_": hints}
        parts |= self._describe(labels, parts)
        parts["confidence_"][hints.mentioned] = 1.0
        replace_fitted(self, parts)

    def _grown_copies(self, images: Array) -> IndexArray:
        """Return the representatives of old and new images; a new one has its own, or that of the image it equals."""
        known, same = self._copies(), self.graph_.identical(images)
        own = len(known) + np.arange(len(images))
        return np.concatenate([known, np.where(same >= 0, known[same], own)])

    def _check_loaded_hints(self) -> None:
        """Check hints, names and coordinates of a stored model; those of earlier versions have none."""
        n_images = len(self.labels_)
        if "hints_" not in vars(self):
            self.hints_ = Hints()
        if "names_" not in vars(self):
            self.names_ = [None] * self.n_clusters_
        check_hints(self.hints_, self.names_, self.labels_)
        if "found_labels_" in vars(self):
            check_stored("found_labels_", self.found_labels_, (n_images,), kinds="i", least=0, most=n_images - 1)
            if len(np.unique(self.found_labels_)) != int(self.found_labels_.max()) + 1:
                raise ValueError("found_labels_ leave out a cluster")
        if "coordinates_" in vars(self):
            check_stored("coordinates_", self.coordinates_, (n_images, None), least=-1.01, most=1.01)
        if "n_added_" in vars(self) and not 0 <= check_integer("n_added_", self.n_added_, least=0) <= n_images:
            raise ValueError(f"n_added_ is {self.n_added_} of {n_images} images")
        if "n_chosen_" in vars(self) and check_integer("n_chosen_", self.n_chosen_) > n_images:
            raise ValueError(f"n_chosen_ is {self.n_chosen_} for {n_images} images")


# Attributes that describe a collection and are computed again, or on first use, when it changes.
_DERIVED = frozenset({"embedding_", "tree_"})
# What the command line stores about the file of each image.
_OF_FILES = ("file_names_", "file_digests_")


def check_images(name: str, images: Iterable[int], n_images: int) -> list[int]:
    """Return indices of images, or raise an error that names the first that is none."""
    if isinstance(images, str) or not isinstance(images, Iterable):
        raise TypeError(f"{name}={images!r}; several indices of images are wanted, such as [3, 4]")
    found: list[int] = []
    for image in images:
        if isinstance(image, bool) or not isinstance(image, Integral):
            raise TypeError(
                f"{name} holds {image!r}; indices of images are wanted, integers (numpy.flatnonzero gives those of a "
                "mask)"
            )
        if not 0 <= image < n_images:
            raise ValueError(f"{name} holds {image}, but the images are 0 to {n_images - 1}")
        found.append(int(image))
    return found


def check_hints(hints: Any, names: Any, labels: LabelArray) -> None:
    """Raise an error unless stored hints hold in stored labels, as they do after ``refine``: a file may be forged."""
    n_clusters = int(labels.max()) + 1
    if not isinstance(names, list) or len(names) != n_clusters:
        raise ValueError(f"names_ is not a list of {n_clusters} names")
    given = [name for name in names if name is not None]
    if not all(isinstance(name, str) for name in given) or len(set(given)) < len(given):
        raise ValueError("names_ are not texts, each once")
    if not isinstance(hints, Hints):
        raise TypeError(f"hints_ is a {type(hints).__name__}; Hints are wanted")
    checked = Hints().with_hints(hints.names, hints.same, hints.different, len(labels), hints.alone)
    for image, name in checked.names.items():
        if names[labels[image]] != name:
            raise ValueError(f"image {image} is named {name!r}, but its cluster is not")
    for pairs, wanted in ((checked.same, True), (checked.different, False)):
        for i, j in pairs:
            if (labels[i] == labels[j]) != wanted:
                raise ValueError(f"images {i} and {j} are not {'the same' if wanted else 'different'}, as was said")


def diffusion_space(affinity: SparseMatrix, n_clusters: int, seed: int) -> Coordinates:
    """Return the coordinates (n, k) in which hints are compared: diffusion over the graph for a short time."""
    n_images = affinity.shape[0]
    n_vectors = max(n_diffusion_vectors(n_clusters, n_images), min(n_clusters + 1, n_images))
    pairs = spectrum(affinity, n_vectors, seed=seed)
    found = diffusion_coordinates(pairs, min(n_clusters, len(pairs.values) - 1), _TIME)
    return np.asarray(found, dtype=np.float32)


def keep_numbers(found: Outcome, former: LabelArray) -> tuple[LabelArray, list[str | None]]:
    """Return labels and names with clusters numbered in the order of their former numbers; new ones come last.

    >>> keep_numbers(Outcome(np.array([1, 1, 0, 2]), ["b", "a", None]), np.array([0, 0, 3, -1]))
    (array([0, 0, 1, 2]), ['a', 'b', None])
    """
    n_clusters = len(found.names)
    known = former >= 0
    overlap = np.zeros((n_clusters, int(former.max(initial=0)) + 1))
    np.add.at(overlap, (found.labels[known], former[known]), 1.0)
    rows, columns = linear_sum_assignment(-overlap)
    place = np.full(n_clusters, overlap.shape[1] + n_clusters)
    place[rows] = np.where(overlap[rows, columns] > 0.0, columns, place[rows])
    order = np.lexsort((np.arange(n_clusters), place))
    rank = np.empty(n_clusters, np.intp)
    rank[order] = np.arange(n_clusters)
    return rank[found.labels], [found.names[cluster] for cluster in order]


# --- a larger collection ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class GrownView:
    """A view of old and new images: its graph, longer neighbour lists of the new images, and the trust in it."""

    graph: Graph
    around: Neighbors
    trust: float


def unseen(graph: Graph, n_added: int) -> Graph:
    """Return the edges of a view with images that it does not know; they have none, and it finds no neighbours."""
    n_images = graph.n_images + n_added
    adjacency = sparse.csr_matrix(graph.adjacency, copy=True)
    adjacency.resize(n_images, n_images)
    return Graph(adjacency)


def grown_graph(graph: Graph, images: Array) -> tuple[Graph, Neighbors]:
    """Return the graph of old and new images, and longer lists of neighbours of the new ones.

    A new image enters the list of an old one if it is nearer than the last of that list.
    """
    if graph.search is None or graph.neighbors is None or graph.distances is None:
        raise ValueError(
            "this graph was given as a matrix and cannot find the neighbours of new images; fit all images again"
        )
    known: Any = graph.search
    search = known.grown(images)
    n_old, length = graph.n_images, graph.neighbors.shape[1]
    reach = max(length, min(_AROUND, n_old + len(images) - 1))
    around = _without_self(search.nearest(images, min(reach + 1, n_old + len(images))), n_old, reach)
    shown = None if around.alignments is None else around.alignments[:, :length]
    new = Neighbors(around.indices[:, :length], around.distances[:, :length], shown)
    neighbors, distances = graph.neighbors.copy(), graph.distances.copy()
    moves = None if graph.alignments is None else graph.alignments.stack().copy()
    backward = None if new.alignments is None else inverse_motions(new.alignments)
    rows, slots = np.nonzero((new.indices >= 0) & (new.indices < n_old))
    for row, slot in zip(rows, slots, strict=True):
        old, distance = new.indices[row, slot], new.distances[row, slot]
        if not distance < distances[old, -1]:
            continue
        place = int(np.searchsorted(distances[old], distance, side="right"))
        for array, value in ((neighbors, n_old + row), (distances, distance)):
            array[old, place + 1 :] = array[old, place:-1]
            array[old, place] = value
        if moves is not None and backward is not None:
            moves[:, old, place + 1 :] = moves[:, old, place:-1]
            moves[:, old, place] = backward[:, row, slot]
    alignments = None
    if moves is not None and new.alignments is not None:
        alignments = Alignments.from_stack(np.concatenate([moves, new.alignments.stack()], axis=1))
    joined = Neighbors(np.concatenate([neighbors, new.indices]), np.concatenate([distances, new.distances]), alignments)
    wanted = graph.n_neighbors or length
    return Graph.from_neighbors(joined, weighting=graph.weighting, search=search, n_neighbors=wanted), around


def _without_self(found: Neighbors, first: int, length: int) -> Neighbors:
    """Return neighbour lists of the images ``first, first + 1, ...`` without these images themselves."""
    indices, distances = found.indices, found.distances
    own = indices == first + np.arange(len(indices))[:, None]
    own[~own.any(axis=1), -1] = True  # so many copies that an image did not find itself
    order = np.argsort(own, axis=1, kind="stable")[:, : indices.shape[1] - 1]
    rows = np.arange(len(indices))[:, None]
    moved = None if found.alignments is None else found.alignments[rows, order]
    left = Neighbors(indices[rows, order].astype(np.intp), distances[rows, order], moved)
    missing = length - left.indices.shape[1]
    if missing <= 0:
        return left
    ends = ((0, 0), (0, missing))
    return Neighbors(
        np.pad(left.indices, ends, constant_values=-1),
        np.pad(left.distances, ends, constant_values=np.inf),
        None if moved is None else Alignments.from_stack(np.pad(moved.stack(), ((0, 0), *ends))),
    )


def inverse_motions(motions: Alignments) -> FloatArray:
    """Return the motions (4, n, q) that undo others: what brings an image onto its neighbour instead.

    The motion takes ``c + R(p - c - d) / scale`` to ``p``, so its inverse has the angle ``-rotation``, the scale
    ``1 / scale``, and the shift ``-R d / scale``.
    """
    rotation, scale, dy, dx = motions.stack()
    angle = np.deg2rad(rotation)
    turned = np.cos(angle) * dy + np.sin(angle) * dx, np.cos(angle) * dx - np.sin(angle) * dy
    return np.stack([-rotation, 1.0 / scale, -turned[0] / scale, -turned[1] / scale])


def _known_only(neighbors: IndexArray, n_known: int, length: int) -> IndexArray:
    """Return the first known images of each list; the nearest one fills lists that are too short."""
    known = (neighbors >= 0) & (neighbors < n_known)
    order = np.argsort(~known, axis=1, kind="stable")[:, :length]
    rows = np.arange(len(neighbors))[:, None]
    nearest = np.where(known.any(axis=1), neighbors[rows[:, 0], order[:, 0]], 0)
    return np.where(known[rows, order], neighbors[rows, order], nearest[:, None])


def grown_coder(model: GTSC, codes: Array | None, graph: Graph) -> GTSC:
    """Return a coder with the codes of further images, None to compute them on demand; the dictionary is the same."""
    grown: GTSC = copy.copy(model)
    if codes is None:
        grown._forget_codes()
    else:
        old = to_numpy(model.codes_)
        grown.codes_ = np.concatenate([old, to_numpy(codes).astype(old.dtype)])
    former: Any = model.graph_
    # Edges among old images stay as they were coded: near-copies have others than the neighbour lists.
    joined = replace(graph, adjacency=_with_new_rows(former.adjacency, graph.adjacency))
    grown.graph_ = joined
    grown.set_params(graph=joined)
    return grown


def _with_new_rows(old: SparseMatrix, whole: SparseMatrix) -> SparseMatrix:
    """Return ``whole`` with its first block replaced by ``old``."""
    n_old = old.shape[0]
    new = sparse.csr_matrix(whole)[n_old:]
    corner = new[:, n_old:]
    joined = sparse.csr_matrix(sparse.bmat([[old, new[:, :n_old].T], [new[:, :n_old], corner]], format="csr"))
    joined.sort_indices()
    return joined.astype(old.dtype)


def grown_affinity(affinity: SparseMatrix, seen: Mapping[str, GrownView], n_neighbors: int) -> SparseMatrix:
    """Return the edges that are cut: old ones as they were, and those of new images with their paths of length two.

    Edges of new images are those of all views, each times the trust in it, as in a fit.
    """
    terms = [view.trust * best_edges(view.graph, n_neighbors) for view in seen.values() if view.trust > 0.0]
    return _with_new_rows(affinity, with_short_paths(sparse.csr_matrix(sum(terms[1:], start=terms[0]))))


def grown_coordinates(coordinates: Coordinates, affinity: SparseMatrix) -> Coordinates:
    """Return coordinates of new images, too: the mean of their neighbours', of unit length (Nyström)."""
    n_old, n_images = len(coordinates), affinity.shape[0]
    found = np.zeros((n_images, coordinates.shape[1]), np.float32)
    found[:n_old] = coordinates
    rows = sparse.csr_matrix(affinity)[n_old:].astype(np.float32)
    for _ in range(_SPREADING_STEPS):
        mean = rows @ found
        lengths = np.linalg.norm(mean, axis=1, keepdims=True)
        found[n_old:] = mean / np.where(lengths > 0.0, lengths, 1.0)
    return found


def grown_means(values: Float64Array, affinity: SparseMatrix) -> Float64Array:
    """Return values of old and new images; those of new ones are the mean of their old neighbours', or of all.

    >>> grown_means(np.array([0.2, 0.6]), sparse.csr_matrix(np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]))).round(2)
    array([0.2, 0.6, 0.4])
    """
    edges = sparse.csr_matrix(affinity)[len(values) :, : len(values)]
    total = np.asarray(edges.sum(axis=1)).ravel()
    means = np.where(total > 0.0, edges @ values / np.where(total > 0.0, total, 1.0), values.mean())
    return np.concatenate([values, means])


def grown_labels(labels: LabelArray, affinity: SparseMatrix, strangers: list[IndexArray]) -> LabelArray:
    """Return the clusters without hints of old and new images.

    Every group of strangers is a new cluster. The other new images get the cluster with most of the edge weight around
    them; as they may be neighbours of new images only, votes are spread in several steps.
    """
    n_old, n_images, n_clusters = len(labels), affinity.shape[0], int(labels.max()) + 1
    found = np.concatenate([labels, np.full(n_images - n_old, -1, np.intp)])
    for number, group in enumerate(strangers):
        found[group] = n_clusters + number
    known, unknown = np.flatnonzero(found >= 0), np.flatnonzero(found < 0)
    shares = np.zeros((n_images, n_clusters + len(strangers)), np.float32)
    shares[known, found[known]] = 1.0
    rows = sparse.csr_matrix(affinity)[unknown].astype(np.float32)
    for _ in range(_SPREADING_STEPS):
        votes = rows @ shares
        total = votes.sum(axis=1, keepdims=True)
        shares[unknown] = votes / np.where(total > 0.0, total, 1.0)
    found[unknown] = shares[unknown].argmax(axis=1)
    return np.unique(found, return_inverse=True)[1].astype(np.intp)


def strange_groups(graph: Graph, around: Neighbors, n_added: int) -> list[IndexArray]:
    """Return groups of added images that are unlike all images of the fit.

    An image is a stranger if the nearest image of the fit is farther away than the last neighbour of 99 % of those
    images is. Strangers that are neighbours belong to one group, also if another stranger is the first image outside
    it. A group has more images than a neighbour list: fewer may be odd images of known clusters.

    ``around`` are the neighbours of the last images of the graph, in lists longer than the graph's.
    """
    if graph.neighbors is None or graph.distances is None:
        return []
    n_images, n_new = graph.n_images, len(around.indices)
    first = n_images - n_added
    far = np.zeros(n_images, dtype=np.bool_)
    limit = _usual_reach(graph.distances[:first])
    for indices, distances, start in (
        (graph.neighbors[first : n_images - n_new], graph.distances[first : n_images - n_new], first),
        (around.indices, around.distances, n_images - n_new),
    ):
        is_fitted = (indices >= 0) & (indices < first)
        nearest = np.where(is_fitted, distances, np.inf).min(axis=1, initial=np.inf)
        reach = np.where(indices >= 0, distances, 0.0).max(axis=1, initial=0.0)
        far[start : start + len(indices)] = np.where(np.isfinite(nearest), nearest, reach) > limit
    links = []
    for row, listed in enumerate(around.indices, start=n_images - n_new):
        others = listed[listed >= 0]
        others = others[: max(1, int(np.argmin(far[others])) if not far[others].all() else len(others))]
        links += [(row, int(other)) for other in others if far[row] and far[other]]
    edges = mutual_adjacency(graph.neighbors).tocoo()
    among = far[edges.row] & far[edges.col]
    ends = np.concatenate([np.array(links, dtype=np.intp).reshape(-1, 2), np.stack([edges.row, edges.col])[:, among].T])
    joined = sparse.csr_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n_images, n_images))
    _, component = connected_components(joined, directed=False)
    sizes = np.bincount(component[far], minlength=int(component.max()) + 1)
    return [np.flatnonzero(far & (component == number)) for number in np.flatnonzero(sizes > (graph.n_neighbors or 1))]


def _usual_reach(distances: FloatArray) -> float:
    """Return the distance within which 99 % of images have all their neighbours."""
    last = np.where(np.isfinite(distances), distances, 0.0).max(axis=1, initial=0.0)
    return float(np.quantile(last, _USUAL)) if len(last) else np.inf


# --- a smaller collection --------------------------------------------------------------------------------
def reduced_graph(graph: Graph, kept: IndexArray, new_index: IndexArray) -> Graph:
    """Return the graph of some of its images; lists lose the neighbours that are gone."""
    adjacency = sparse.csr_matrix(graph.adjacency)[kept][:, kept]
    search: Any = graph.search
    if search is not None:
        search = search.reduced(kept)
    if graph.neighbors is None or graph.distances is None:
        return replace(graph, adjacency=adjacency, search=search)
    lists = graph.neighbors[kept]
    lists = np.where(lists >= 0, new_index[np.maximum(lists, 0)], -1)
    order = np.argsort(lists < 0, axis=1, kind="stable")
    rows = np.arange(len(kept))[:, None]
    lists = lists[rows, order]
    distances = np.where(lists >= 0, graph.distances[kept][rows, order], np.inf).astype(graph.distances.dtype)
    alignments = None if graph.alignments is None else graph.alignments[kept][rows, order]
    wanted = min(graph.n_neighbors or 1, len(kept) - 1)
    return Graph(adjacency, lists, distances, alignments, wanted, search, graph.weighting)


def reduced_coder(model: GTSC, kept: IndexArray, new_index: IndexArray) -> GTSC:
    """Return a coder with the codes of some of its images; the dictionary is the same."""
    reduced: GTSC = copy.copy(model)
    if "codes_" in vars(model):  # otherwise they are computed when they are asked for
        reduced.codes_ = to_numpy(model.codes_)[kept]
    former: Any = model.graph_
    reduced.graph_ = reduced_graph(former, kept, new_index)
    reduced.set_params(graph=reduced.graph_)
    return reduced


def reduced_copies(copy_of: IndexArray, new_index: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return the representatives of the images that are left, and the new index of each image in the graph.

    If a representative is gone, the first image that is left of its group takes its place, and its edges.
    """
    left = np.flatnonzero(new_index >= 0)
    first = {}
    for image in left[::-1]:
        first[int(copy_of[image])] = int(new_index[image])
    for image in left:
        if copy_of[image] == image:
            first[int(image)] = int(new_index[image])
    stand_in = new_index.copy()
    for image, other in first.items():
        stand_in[image] = other
    return np.array([first[int(copy_of[image])] for image in left], dtype=np.intp), stand_in


def reduced_affinity(affinity: SparseMatrix, stand_in: IndexArray, n_images: int) -> SparseMatrix:
    """Return the edges (n, n) of the images that are left; edges of a replaced image go to its stand-in."""
    edges = affinity.tocoo()
    rows, columns = stand_in[edges.row], stand_in[edges.col]
    kept = (rows >= 0) & (columns >= 0) & (rows != columns)
    found = sparse.csr_matrix((edges.data[kept], (rows[kept], columns[kept])), shape=(n_images, n_images))
    found.sum_duplicates()
    found.sort_indices()
    return found
