"""ImageClusterer: images in, clusters out.

``fit`` runs the whole method in order: neighbour lists, near-copies, the graph, GTSC codes, other views of the images,
edge weights, the number of clusters, labels, and measures for single images.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tubal.backends.arrays import Array, restore_like, to_numpy
from tubal.clustering.affinity import (
    LEARNED_FROM,
    LEARNED_WHOLE,
    LIST_FACTOR,
    DistinctImages,
    Engine,
    FeaturesOnDemand,
    build_affinity,
    choice_weights,
    choose_neighbors,
    equal_images,
    find_distinct,
    neighbor_lists,
    release_memory,
    sample_around,
    with_short_paths,
)
from tubal.clustering.cuts import Pieces, assign_labels, check_cluster_count, n_cut_vectors
from tubal.clustering.growth import GrowingClusters
from tubal.clustering.hints import Hints
from tubal.clustering.quality import (
    RestoredStack,
    check_loaded_clusters,
    describe_images,
    peak_values,
    shortest_description,
    vote,
)
from tubal.clustering.spectral import (
    ClusterCount,
    Float64Array,
    LabelArray,
    Spectrum,
    cluster_means,
    estimate_n_clusters,
    find_or_recall_spectrum,
    graph_map,
    most_clusters,
    nearest_centers,
)
from tubal.clustering.views import (
    LEAST_SIDE,
    ONLY_SHAPE,
    SHAPE,
    SHAPE_ALONE,
    Request,
    check_view_results,
    describe_new,
    fuse_views,
    leading_graph,
    look_at,
    query_leading,
    requested_views,
)
from tubal.estimators.coders import GTSC, GraphSC
from tubal.estimators.image_coder import Callbacks
from tubal.estimators.notebook import NotebookView
from tubal.estimators.validation import (
    StackInParts,
    check_callbacks,
    check_new_stack,
    check_parameters,
    check_stored,
    check_stored_shape,
    column_names,
    open_if_path,
    open_stack,
    unit_images,
)
from tubal.graph import Graph, Neighbors
from tubal.graph.structure import FloatArray, IndexArray, SparseMatrix
from tubal.learning.alternation import digest_arrays
from tubal.learning.checkpoints import Checkpoint, StageReport, Stages, as_checkpoint, fit_identity
from tubal.learning.fitting import as_in_graph, replace_fitted, scale_images
from tubal.problems.layout import unit_rows
from tubal.solvers import Admm
from tubal.solvers.base import check_integer, check_number
from tubal.text import count

if TYPE_CHECKING:
    from tubal.clustering.tree import ClusterTree


@dataclass(frozen=True)
class Preset:
    """Settings of a pipeline; a parameter of :class:`ImageClusterer` that is not None replaces its value here.

    A ``graph`` of None is "deformable" for images, and "cosine" for rows of features, which are not side by side.
    ``assignment`` is "diffusion", cuts of the graph and K-means on codes compared by modularity, or "kmeans", K-means
    on codes alone.
    """

    graph: str | Graph | SparseMatrix | NDArray[Any] | None
    n_neighbors: int
    graph_weight: float
    sparsity: float
    max_iter: int
    assignment: str
    code_solver: Admm | None = None
    coder: type[GTSC] = GTSC


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        # Few and short coding steps: clusters need codes that tell images apart, not codes to the last digit.
        "default": Preset(None, 5, 10.0, 0.003, 2, "diffusion", Admm(max_iter=3, tol=0.2, check_every=3)),
        "paper": Preset("euclidean", 3, 1.0, 0.01, 25, "kmeans"),
    }
)


def choose_preset(name: str) -> Preset:
    """Return the preset of that name, or raise an error that lists the names."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(f"preset={name!r}; it must be one of {', '.join(map(repr, PRESETS))}")
    return PRESETS[name]


def draw_seed(random_state: int | np.random.RandomState | None) -> int:
    """Return the one seed from which all random choices of a fit are drawn."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def recall_seed(stages: Stages, random_state: int | np.random.RandomState | None) -> int:
    """Return the seed of a fit: that of the interrupted run if it is resumed."""
    stage = stages.stage("seed")
    kept = stage.kept()
    if "seed" in kept:
        return int(kept["seed"])
    seed = draw_seed(random_state)
    stage.keep(lambda: {"seed": np.array(seed)}, finished=True)
    return seed


class ImageClusterer(GrowingClusters, NotebookView, ClusterMixin, BaseEstimator):
    """Cluster images by their appearance: a deformation-tolerant graph, GTSC codes, and a partition that uses both.

    Graph and codes each propose partitions: cuts of the graph after diffusion for several times, and, up to 20 000
    images, K-means on the pooled codes. The one with the largest modularity on the graph is kept. No step uses labels.
    Near-copies, which would fill the neighbour lists of each other, count once and get one label.

    Images can be compared in several views: by shape (the deformable graph), by colour, by texture, and by what a
    network trained on photographs sees. Edges of all views are added, each view weighted by how well its own edges
    agree with each other; see :mod:`tubal.clustering.views`.

    Parameters
    ----------
    n_clusters : int or None, default=None
        Number of clusters; None estimates it.
    preset : {"default", "paper"}, default="default"
        Pipeline. "default" is described above. "paper" is the paper's: Euclidean graph, GTSC, K-means on codes.
    n_neighbors : int or None, default=None
        Neighbours of each image in the graph; None for the preset's value (5, paper 3).
    n_atoms : int, default=45
        Atoms of the dictionary; never more than there are images.
    sparsity : float or None, default=None
        Weight of the l1 penalty on codes; None for the preset's value (0.003, paper 0.01).
    graph_weight : float or None, default=None
        Weight of the graph term of GTSC; None for the preset's value (10, paper 1).
    graph : {"deformable", "euclidean", "cosine"}, Graph, sparse matrix or None, default=None
        Neighbour graph, built by name or given; None for the preset's value: "deformable" for images, "cosine" for
        rows without ``image_shape``, such as embeddings, and always "euclidean" with the preset "paper".
    views : "auto", str, sequence of str or dict, default="auto"
        What to compare images by. "auto" takes "shape", the graph; "colour" where images have colour; and "semantic"
        and "layout", what a network sees and where, if it is installed (``pip install 'tubal[photos]'``), images have
        at least 32 pixels on each side, and there are at most 5000 images or a GPU. Otherwise it takes "texture" if
        images have at least 16 pixels on each side and are at most 20 000. With rows of features, a given ``graph`` or
        the preset "paper" it takes the graph alone.
        A dict maps names to features (n_images, n_features), a graph, or a function from images, with values in
        [0, 1], to features; names of built-in views map to None.
    code_power : float, default=0.0
        Edges are weighted by this power of the cosine of their images' codes; 0 leaves them unchanged.
    max_iter : int or None, default=None
        Alternations of the dictionary learning; None for the preset's value (2, paper 25).
    max_clusters : int or None, default=None
        Largest estimate of the number of clusters; None for half the images, at most 100, and at most 50 above
        2000 images.
    image_shape : tuple of int or None, default=None
        (height, width[, channels]) of images that come as rows; None treats rows as features without a shape.
    random_state : int, RandomState or None, default=None
        Seed of the graph's samples, of the dictionary's start and of the eigensolver's start.
    callbacks : callable, sequence of callables or None, default=None
        Called with a ``Progress`` after every coding step of GTSC; returning True stops the learning.
    verbose : int, default=0
        Above 0, show the progress of GTSC.

    Attributes
    ----------
    labels_ : ndarray of shape (n_images,)
        Cluster of each image; after ``fit`` and ``refine`` cluster 0 is the largest.
    names_ : list of str or None
        Name of each cluster; None where none was given.
    hints_ : Hints
        Everything that was said in ``refine``.
    n_doubtful_ : int
        Expected number of images that still have a wrong name.
    n_clusters_ : int
        Number of clusters found.
    n_clusters_candidates_ : ndarray of shape (n_candidates,)
        The two or three most plausible numbers of clusters: the estimate, see :func:`estimate_n_clusters`; the one
        with the shortest description of the neighbour lists, see :func:`shortest_description`, unless the two agree
        within 35 %; and the next large gaps. If ``n_clusters`` was given, that number alone.
    n_clusters_scores_ : dict of str to ndarray, or None
        Curve of the estimate, "n_clusters" and "gap"; None if ``n_clusters`` was given.
    features_ : ndarray of shape (n_images, n_atoms)
        Pooled codes of the learning, rows of unit length; for images added later the mean of their neighbours'. Above
        20 000 images, atoms are learned from a sample, and these codes ignore the graph and are computed on first use.
    confidence_ : ndarray of shape (n_images,)
        How far each image's cluster can be trusted, from 0 to 1: the mean of the share of its edge weight that stays
        inside its cluster, and ``stability_``; 1 for images that hints are about.
    stability_ : ndarray of shape (n_images,)
        Share of other partitions of the graph that agree with the cluster that the fit found, see :func:`stability`;
        for images added later the mean of their neighbours'.
    outlier_scores_ : ndarray of shape (n_images,)
        How unusual each image is: the larger of two robust scores, of its distance to its nearest neighbours and of
        its unlikeness to the collection, see :func:`stranger_scores`.
    outliers_ : ndarray of bool of shape (n_images,)
        True where the score is above 3.5, for at most a twentieth of the images.
    duplicates_ : list of ndarray
        Groups of near-identical images, each an array of indices.
    medoids_ : ndarray of shape (n_clusters_,)
        Index of the most typical image of each cluster; above 20 000 images, among the most confident ones.
    tree_ : ClusterTree
        Nested clusters at every number, see :meth:`labels_for`; computed on first use.
    embedding_ : ndarray of shape (n_images, 2)
        2-D map with neighbours close together; computed on first use.
    graph_ : Graph
        The neighbour graph, which is the view "shape".
    views_ : dict of str to str
        How each view was made: "graph", "images" for built-in features of the images, "function" or "given".
    view_weights_ : dict of str to float
        How far each view is trusted: 1 for the best, 0 for one that has no influence.
    view_graphs_ : dict of str to Graph
        Graphs of the views other than "shape".
    white_ : float
        Value of white in the images, by which views divide them.
    model_ : GTSC
        The fitted coder; for rows of features a ``GraphSC``, which does not shift its atoms. With the preset
        "default", its ``codes_`` are computed when they are first asked for.
    affinity_ : sparse matrix of shape (n_images, n_images)
        Edge weights that were cut, above 100 000 images without paths of length two; a near-copy has one edge, to its
        representative.
    copy_of_ : ndarray of shape (n_images,)
        Index of the image that represents each image in the cut, its own for most: near-copies count once.
    n_iter_ : int
        Alternations of the dictionary learning.
    seed_ : int
        The seed drawn from ``random_state``.
    image_shape_ : tuple of int
        Shape of the images, (height, width[, channels]).
    n_features_in_ : int
        Number of values per image.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> images = np.repeat(rng.random((2, 8, 8)), 10, axis=0) + 0.05 * rng.random((20, 8, 8))
    >>> ImageClusterer(2, random_state=0).fit_predict(images)
    array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    """

    # Fitted attributes, besides those of GrowingClusters.
    n_clusters_candidates_: IndexArray
    n_clusters_scores_: dict[str, NDArray[Any]] | None
    outlier_scores_: Float64Array
    outliers_: NDArray[np.bool_]
    duplicates_: list[IndexArray]
    medoids_: IndexArray
    n_iter_: int

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        preset: str = "default",
        n_neighbors: int | None = None,
        n_atoms: int = 45,
        sparsity: float | None = None,
        graph_weight: float | None = None,
        graph: str | Graph | SparseMatrix | NDArray[Any] | None = None,
        views: str | Sequence[str] | Mapping[str, Any] = "auto",
        code_power: float = 0.0,
        max_iter: int | None = None,
        max_clusters: int | None = None,
        image_shape: tuple[int, ...] | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: Callbacks = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.preset = preset
        self.n_neighbors = n_neighbors
        self.n_atoms = n_atoms
        self.sparsity = sparsity
        self.graph_weight = graph_weight
        self.graph = graph
        self.views = views
        self.code_power = code_power
        self.max_iter = max_iter
        self.max_clusters = max_clusters
        self.image_shape = image_shape
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    # --- fitting -----------------------------------------------------------------------------------------
    def fit(
        self,
        X: ArrayLike | str | os.PathLike[str],
        y: object = None,
        *,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        progress: StageReport | None = None,
    ) -> ImageClusterer:
        """Cluster images.

        Nothing is stored before everything is computed: an interrupted fit keeps the results of the previous one.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width[, channels]) or (n_images, n_features), or path
            Images: NumPy or torch, a memory map, an HDF5 dataset, or the path of a ``.npy`` file. More than 20 000
            are converted to floating point a part at a time.
        y : object, default=None
            Ignored.
        checkpoint : path, Checkpoint or None, default=None
            File that keeps what every stage has found so far, so that an interrupted fit can be resumed.
        progress : callable or None, default=None
            Called as ``progress(stage, done, total)`` with the name of the stage, what is done of it, and its total.

        Returns
        -------
        ImageClusterer
            The fitted clusterer itself.
        """
        return self._fit(open_if_path(X), Engine(), checkpoint, progress)

    def _fit(
        self,
        X: ArrayLike,
        engine: Engine,
        checkpoint: str | os.PathLike[str] | Checkpoint | None,
        progress: StageReport | None,
    ) -> ImageClusterer:
        """Cluster images; ``engine`` finds neighbours."""
        stack = open_stack(X, self.image_shape, self)
        in_parts = isinstance(stack, StackInParts)
        are_rows = self.image_shape is None and np.ndim(X) == 2
        settings = self._settings(len(stack), are_rows=are_rows)
        request = self._request(stack, are_rows=are_rows)
        images = unit_images(stack, Stages(progress).stage("images", "reading images").show)
        stages = self._stages(images, checkpoint, progress)
        seed = recall_seed(stages, self.random_state)

        lists, distinct = self._find_neighbors(images, settings, seed, stages, engine)
        cut = distinct.chosen(settings.n_neighbors)
        graph = cut if distinct.lists is lists else choose_neighbors(lists, settings.n_neighbors)
        joined = replace(graph, adjacency=distinct.spread(cut.adjacency)) if distinct.any_copies else graph
        model, features = self._learn(images, settings, joined, seed, stages)
        views = SHAPE_ALONE
        if request is not ONLY_SHAPE:
            whole = stack[:] if in_parts else stack
            views = look_at(request, whole, distinct, settings.n_neighbors, stages)
            by_shape = with_short_paths(choice_weights(cut))
            n_clusters, _ = self._count_clusters(by_shape, seed, stages, images, "count by shape")
            fusion = fuse_views(views.edges(cut, settings.n_neighbors), n_clusters, seed=seed)
            views, cut = replace(views, trust=fusion.trust), Graph(fusion.weights)
        affinity = build_affinity(cut, features[distinct.kept], self.code_power)
        n_clusters, counted = self._count_clusters(affinity, seed, stages, images)
        if counted and counted.eigenpairs:
            most = int(counted.numbers[-1])
            counted = counted.naming(shortest_description(choice_weights(cut), counted.eigenpairs, most, seed=seed))
        eigenpairs = counted.eigenpairs if counted else self._eigenpairs(affinity, n_clusters, seed, stages, images)
        among, affinity = affinity, distinct.spread(affinity)
        pieces = Pieces(affinity, graph, features, distinct.copy_of, eigenpairs, among=among)
        labels = self._assign(settings.assignment, n_clusters, pieces, seed, stages)

        shape = tuple(int(extent) for extent in stack.shape[1:])
        fitted = {**({} if in_parts else column_names(X)), "image_shape_": shape, "n_features_in_": int(np.prod(shape))}
        fitted |= {"seed_": seed, "graph_": graph, "model_": model, "n_iter_": model.n_iter_}
        fitted |= {**views.fitted(), "affinity_": affinity, "labels_": labels, "copy_of_": distinct.copy_of}
        fitted |= {"_brightness_": peak_values(stack), **describe_count(counted, n_clusters, labels)}
        fitted |= {"features_": features} if isinstance(features, np.ndarray) else {}
        if are_rows and not isinstance(stack, StackInParts):
            stack = stack.reshape(len(images), -1)
        fitted |= describe_images(labels, pieces, seed, stack)
        replace_fitted(self, fitted | {"hints_": Hints(), "names_": [None] * fitted["n_clusters_"]})
        return self

    def _describe(self, labels: LabelArray, parts: Mapping[str, Any]) -> dict[str, Any]:
        copy_of = parts.get("copy_of_", np.arange(len(labels)))
        search: Any = parts["graph_"].search
        # Which images are unusual depends on the images alone, so it changes only when images come or go.
        same = len(getattr(self, "outlier_scores_", ())) == len(labels)
        images: Any = None if same or search is None else to_numpy(search.images)
        if images is not None and "_brightness_" in parts:  # models of earlier versions do not know it
            images = RestoredStack(images, parts["_brightness_"])
        if images is not None and self.image_shape is None and self.image_shape_[0] == 1:
            images = images[:].reshape(len(images), -1)  # rows of features, which are compared by their values
        stable = parts.get("stability_")  # hints say more about clusters, but nothing about other partitions
        pieces = Pieces(parts["affinity_"], parts["graph_"], self._features(parts), copy_of, stable=stable)
        known = (self.outlier_scores_, self.outliers_, self.duplicates_) if same and "duplicates_" in parts else None
        return describe_images(labels, pieces, self.seed_, images, known)

    def labels_for(self, n_clusters: int) -> LabelArray:
        """Return labels for another number of clusters, cut from ``tree_`` without fitting anything again.

        Labels for different numbers are nested: those for a larger number divide those for a smaller one. Those for
        ``n_clusters_`` are ``labels_``.

        Parameters
        ----------
        n_clusters : int
            Number of clusters, 1 to ``tree_.n_pieces``.

        Returns
        -------
        ndarray of shape (n_images,)
            Cluster of each training image; cluster 0 is the largest, unless they are ``labels_``.
        """
        check_is_fitted(self, "affinity_")
        if check_integer("n_clusters", n_clusters) == self.n_clusters_:
            return self.labels_.copy()  # after update and remove, clusters keep their numbers
        return self.tree_.labels(n_clusters)

    @cached_property
    def tree_(self) -> ClusterTree:
        """Nested clusters at every number; computed on first use, and not stored in files."""
        check_is_fitted(self, "affinity_")
        return self._tree_of(self.labels_)

    def _tree_of(self, labels: LabelArray) -> ClusterTree:
        from tubal.clustering.tree import cluster_tree

        # Models stored by earlier versions do not know copies.
        copy_of = getattr(self, "copy_of_", np.arange(len(labels)))
        # Copies are one leaf, unless hints have put them into different clusters.
        n_clusters = int(labels.max()) + 1
        group = np.unique(copy_of * n_clusters + labels, return_inverse=True)[1]
        order = np.lexsort((copy_of != np.arange(len(labels)), group))  # representatives first
        kept = order[np.unique(group[order], return_index=True)[1]]
        affinity = self.affinity_[kept][:, kept]
        together = (equal_images(self.graph_) * n_clusters + labels)[kept]
        tree = cluster_tree(affinity, labels[kept], together=together, seed=self.seed_)
        return replace(tree, pieces=tree.pieces[group])

    @cached_property
    def features_(self) -> NDArray[np.float32]:
        """Features of all images; fits of at most 20 000 images have them, others compute them on first use."""
        check_is_fitted(self, "affinity_")
        return np.asarray(self._features(vars(self)))

    def _features(self, parts: Mapping[str, Any]) -> NDArray[Any] | FeaturesOnDemand:
        """Return the features among the parts of a fit, or what computes them when they are needed."""
        known: NDArray[Any] | None = parts.get("features_")
        return FeaturesOnDemand(parts["model_"], parts["graph_"].search.images) if known is None else known

    @cached_property
    def embedding_(self) -> NDArray[np.float32]:
        """2-D map (n_images, 2) with neighbours close together; computed on first use."""
        check_is_fitted(self, "affinity_")
        fused = any(trust > 0.0 for name, trust in getattr(self, "view_weights_", {}).items() if name != SHAPE)
        return graph_map(self.affinity_ if fused else choice_weights(self.graph_), seed=self.seed_ % 2**16)

    # --- the steps of fit --------------------------------------------------------------------------------
    def _new_stack(self, X: ArrayLike) -> Array:
        return check_new_stack(X, self.image_shape, self)

    def _settings(self, n_images: int, *, are_rows: bool) -> Preset:
        """Check the parameters and return the preset with the values that were given."""
        preset = choose_preset(self.preset)
        if n_images < 2:
            raise ValueError(
                f"n_samples = {n_images}: one image has no neighbours to be clustered with; pass at least two"
            )
        if self.n_clusters is not None:
            check_cluster_count(check_integer("n_clusters", self.n_clusters), n_images)
        if self.max_clusters is not None:
            check_integer("max_clusters", self.max_clusters)
        check_number("code_power", self.code_power, least=0.0)
        check_callbacks("callbacks", self.callbacks)
        if self.n_neighbors is not None and check_integer("n_neighbors", self.n_neighbors) >= n_images:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} but n_samples = {n_images}: an image has at most n_samples - 1 "
                "neighbours; lower n_neighbors or pass more images"
            )
        names = ("n_neighbors", "sparsity", "graph_weight", "graph", "max_iter")
        given: dict[str, Any] = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        settings = replace(preset, **given)
        if settings.graph is None:
            settings = replace(settings, graph="cosine" if are_rows else "deformable")
        is_deformable = isinstance(settings.graph, str) and settings.graph == "deformable"
        if are_rows and self.preset == "default" and not is_deformable:
            # Features have no order, so atoms are not shifted along them.
            settings = replace(settings, coder=GraphSC)
        return replace(settings, n_neighbors=min(int(settings.n_neighbors), n_images - 1))

    def _stages(
        self, images: Array, checkpoint: str | os.PathLike[str] | Checkpoint | None, progress: StageReport | None
    ) -> Stages:
        """Return the stages of this fit, which keep their arrays in the checkpoint if there is one."""
        stages = Stages(progress)
        if checkpoint is not None:
            digest = digest_arrays(images.shape, [to_numpy(images)])
            identity = fit_identity(type(self).__name__, self._identifying_parameters(), digest)
            stages.keep_in(as_checkpoint(checkpoint), identity)
        return stages

    def _identifying_parameters(self) -> dict[str, Any]:
        """Return the parameters that a checkpoint is compared by; of a function only its name."""
        found: dict[str, Any] = self.get_params(deep=False)
        if isinstance(self.views, Mapping):
            found["views"] = {
                name: getattr(value, "__qualname__", repr(type(value))) if callable(value) else value
                for name, value in self.views.items()
            }
        return found

    def _find_neighbors(
        self, images: Array, settings: Preset, seed: int, stages: Stages, engine: Engine
    ) -> tuple[Graph, DistinctImages]:
        """Return the neighbour lists of all images, and the images that are cut.

        Lists are longer than needed where the best neighbours are chosen later. Near-copies are counted once, unless
        the graph was given or is not cut.
        """
        diffusion = settings.assignment == "diffusion"
        rounds = itertools.count(1)

        def build(chosen: Array) -> Graph:
            number = next(rounds)
            title = "finding neighbours" if number == 1 else f"finding neighbours, round {number}"
            length = min((LIST_FACTOR if diffusion else 1) * settings.n_neighbors, len(chosen) - 1)
            stage = stages.stage(f"neighbors {number}", title)
            return neighbor_lists(settings.graph, chosen, length, seed, stage, engine.finder(chosen))

        def build_again(kept: IndexArray) -> Graph:
            release_memory(lists)
            found = build(images[kept])
            release_memory(found)
            return found

        lists = build(images)
        if not diffusion or not isinstance(settings.graph, str):
            release_memory(lists)
            return lists, DistinctImages(np.arange(len(images)), lists)
        distinct = find_distinct(
            lists,
            equal_images(lists),
            build_again,
            n_neighbors=settings.n_neighbors,
            n_clusters=None if self.n_clusters is None else int(self.n_clusters),
            most=most_clusters(len(images), self.max_clusters),
        )
        release_memory(lists)  # which coding needs next
        return lists, distinct

    def _learn(
        self, images: Array, settings: Preset, graph: Graph, seed: int, stages: Stages
    ) -> tuple[GTSC, NDArray[Any] | FeaturesOnDemand]:
        """Return the fitted coder, and features (n, n_atoms) of all images.

        In large collections atoms are learned from a sample, and images are coded when somebody asks for features:
        codes hardly ever decide a label, and learning from all images would take longer than everything else.
        """
        features: NDArray[Any] | FeaturesOnDemand
        forget = settings.assignment == "diffusion" and graph.search is not None
        if not forget or self.code_power > 0.0 or len(images) <= LEARNED_WHOLE:
            model = self._fit_coder(images, settings, graph, seed, stages)
            features = to_numpy(unit_rows(model._pool(model.codes_)))
        else:
            chosen = sample_around(graph.adjacency, LEARNED_FROM, seed)
            part = Graph(sparse.csr_matrix(graph.adjacency[chosen][:, chosen]))
            model = self._fit_coder(images[restore_like(chosen, images)], settings, part, seed, stages)
            model.graph_ = graph
            model.set_params(graph=graph)
            features = FeaturesOnDemand(model, images)
        if forget:
            model._forget_codes()
        return model, features

    def _fit_coder(self, images: Array, settings: Preset, graph: Graph, seed: int, stages: Stages) -> GTSC:
        """Return the coder fitted on images that a graph joins."""
        model = self._new_coder(settings, graph, len(images), seed)
        # After the last iteration all images are coded once more.
        stage, total = stages.stage("learning", "learning atoms and codes"), settings.max_iter + 1
        stage.show(0, total)
        given = list(self.callbacks) if isinstance(self.callbacks, (list, tuple)) else [self.callbacks]
        follow = [callback for callback in given if callback is not None]
        model.set_params(callbacks=[*follow, lambda progress: stage.show(progress.n_iter, total)])
        with warnings.catch_warnings():
            # Presets make few iterations on purpose: the graph decides most labels, and rough codes are enough.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(images, checkpoint=stages.checkpoint)
        stage.show(total, total)
        model.set_params(callbacks=self.callbacks)
        return model

    def _request(self, stack: Array, *, are_rows: bool) -> Request:
        """Return the views of this fit; a graph that was given is compared with no other by itself."""
        automatic = isinstance(self.views, str) and self.views == "auto"
        if self.preset == "paper" and not automatic:
            raise ValueError("preset='paper' clusters codes and has no views; leave views='auto'")
        alone = are_rows or self.graph is not None or self.preset == "paper"
        small_and_grey = stack.ndim == 3 and min(stack.shape[1:]) < LEAST_SIDE
        return ONLY_SHAPE if automatic and (alone or small_and_grey) else requested_views(self.views, stack)

    def _count_clusters(
        self, affinity: SparseMatrix, seed: int, stages: Stages, images: Array, stage: str = "count"
    ) -> tuple[int, ClusterCount | None]:
        """Return the number of clusters, and the estimate unless it was given; computed where the images are."""
        if self.n_clusters is not None:
            return int(self.n_clusters), None
        shown = stages.stage(stage, "counting clusters")
        found = estimate_n_clusters(affinity, max_clusters=self.max_clusters, seed=seed, stage=shown, like=images)
        return found.n_clusters, found

    def _assign(self, assignment: str, n_clusters: int, pieces: Pieces, seed: int, stages: Stages) -> LabelArray:
        """Return the labels; without a warning about fewer clusters than the estimate, which nobody asked for."""
        with warnings.catch_warnings():
            if self.n_clusters is None:
                warnings.filterwarnings("ignore", ".* clusters were asked for", ConvergenceWarning)
            return assign_labels(assignment, n_clusters, pieces, seed, stages.stage("cut", "cutting the graph"))

    def _eigenpairs(
        self, affinity: SparseMatrix, n_clusters: int, seed: int, stages: Stages, images: Array
    ) -> Spectrum:
        """Return the eigenpairs that a cut into so many clusters uses; large collections keep them."""
        n_images = affinity.shape[0]
        large = n_images > LEARNED_WHOLE
        stage = stages.stage("eigenvectors", "finding eigenvectors") if large else None
        return find_or_recall_spectrum(affinity, n_cut_vectors(n_clusters, n_images), seed, stage, images)

    def _new_coder(self, settings: Preset, graph: Graph, n_images: int, seed: int) -> GTSC:
        return settings.coder(
            n_atoms=min(check_integer("n_atoms", self.n_atoms), n_images),
            sparsity=settings.sparsity,
            graph_weight=settings.graph_weight,
            max_iter=settings.max_iter,
            code_solver=settings.code_solver,
            graph=graph,
            random_state=seed,
            callbacks=self.callbacks,
            verbose=self.verbose,
        )

    # --- new images --------------------------------------------------------------------------------------
    def predict(self, X: ArrayLike, *, views: Mapping[str, ArrayLike] | None = None) -> LabelArray:
        """Return the clusters of images; a training image gets its own.

        The nearest training images vote, in every view, and views count as far as they are trusted.

        Parameters
        ----------
        X : array-like of shape (m, height, width[, channels]) or (m, n_features)
            Images of the training shape.
        views : dict of str to ndarray of shape (m, n_features), or None, default=None
            Features of the images in views whose features were given in ``fit``. Without them, and in a model from a
            file also without those of functions, these views have no vote.

        Returns
        -------
        ndarray of shape (m,)
            Cluster of each image.
        """
        check_is_fitted(self, "labels_")
        stack = self._new_stack(X)
        images, given = scale_images(stack, "unit")[0], self._given_views(views)
        asked = as_in_graph(self.graph_, stack, images, "unit")
        if choose_preset(self.preset).assignment == "kmeans":
            labels = self._nearest_center(images)
        else:
            labels = self._votes(stack, asked, given).argmax(axis=1).astype(np.intp)
        same = self.graph_.identical(asked)
        return np.where(same >= 0, self.labels_[same], labels).astype(np.intp)

    def _votes(self, stack: Array, images: Array, given: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
        """Return the votes (m, n_clusters) of the nearest training images, over all views that can be compared."""
        trust = getattr(self, "view_weights_", {SHAPE: 1.0})  # models of earlier versions have one view
        described = describe_new(self, stack, given) if len(trust) > 1 or SHAPE not in trust else {}
        queries: list[tuple[float, Graph, Array]] = [
            (trust[name], self.view_graphs_[name], rows) for name, rows in described.items()
        ]
        # The shape always decides where no other view can.
        weight = trust.get(SHAPE, 0.0) if queries else 1.0
        total = np.zeros((len(stack), self.n_clusters_))
        for factor, graph, rows in [*queries, (weight, self.graph_, images)]:
            if factor > 0.0:
                found, edges = graph.query(rows, min(self.graph_.n_neighbors or 1, graph.n_images))
                total += factor * vote(found, edges, self.labels_, trust=self.confidence_, n_clusters=self.n_clusters_)
        return total

    def _nearest_center(self, images: Array) -> LabelArray:
        """Return the cluster whose mean code is nearest to the code of each image."""
        features = to_numpy(unit_rows(self.model_.transform(images)))
        centers = cluster_means(self.features_, self.labels_, self.n_clusters_)
        return np.asarray(nearest_centers(features, centers))

    def similar(
        self, X: ArrayLike, n_neighbors: int | None = None, *, views: Mapping[str, ArrayLike] | None = None
    ) -> Neighbors:
        """Return the training images most similar to images, and how each has to be moved to lie on them.

        Images are compared in the view that is trusted most, which decided the clusters: by shape, unless
        ``view_weights_`` says otherwise. A training image gets itself first, at distance 0 and without motion.
        ``tubal similar`` prints this result.

        Parameters
        ----------
        X : array-like of shape (m, height, width[, channels]) or (m, n_features)
            Images of the training shape.
        n_neighbors : int or None, default=None
            How many; None for as many as the graph has.
        views : dict of str to ndarray of shape (m, n_features), or None, default=None
            As in :meth:`predict`. Images are compared by shape where the features of the leading view are not known.

        Returns
        -------
        Neighbors
            Indices, distances, alignments (None for graphs without deformations) and edge weights, each
            (m, n_neighbors), nearest first.
        """
        check_is_fitted(self, "labels_")
        stack = self._new_stack(X)
        asked = as_in_graph(self.graph_, stack, scale_images(stack, "unit")[0], "unit")
        return query_leading(self, stack, asked, self._given_views(views), n_neighbors)

    def kneighbors(
        self, X: ArrayLike | None = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[FloatArray, IndexArray] | IndexArray:
        """Return the nearest training images of images, as in scikit-learn.

        Parameters
        ----------
        X : array-like of shape (m, height, width[, channels]) or (m, n_features), or None, default=None
            Images of the training shape, see :meth:`similar`. None for the training images themselves; an image is
            then not its own neighbour.
        n_neighbors : int or None, default=None
            How many; None for as many as the graph has.
        return_distance : bool, default=True
            Return the distances, too.

        Returns
        -------
        distances : ndarray of shape (m, n_neighbors)
            Distances, nearest first; only if ``return_distance``.
        indices : ndarray of shape (m, n_neighbors)
            Indices of training images. Lists of training images that lost neighbours in :meth:`remove` end with -1,
            at infinite distance.
        """
        check_is_fitted(self, "labels_")
        if X is None:
            distances, indices = self._training_neighbors(n_neighbors)
        else:
            found = self.similar(X, n_neighbors)
            distances, indices = found.distances, found.indices
        return (distances, indices) if return_distance else indices

    def _training_neighbors(self, n_neighbors: int | None) -> tuple[FloatArray, IndexArray]:
        """Return distances and indices (n_images, n_neighbors) of the training images' neighbours."""
        graph = leading_graph(self)[1]
        neighbors, distances = graph.neighbors, graph.distances
        if neighbors is None or distances is None:
            raise ValueError("the graph was given as a matrix and keeps no neighbour lists; pass X")
        if n_neighbors is None:
            n_neighbors = self.graph_.n_neighbors or neighbors.shape[1]
        n_neighbors = check_integer("n_neighbors", n_neighbors)
        if n_neighbors > neighbors.shape[1]:
            raise ValueError(
                f"n_neighbors={n_neighbors}, but the graph keeps {count(neighbors.shape[1], 'neighbour')} of each "
                "training image; pass the images as X to search for more"
            )
        return distances[:, :n_neighbors], neighbors[:, :n_neighbors]

    def _check_loaded(self) -> None:
        """Raise an error unless parameters and fitted attributes are as a fit leaves them: a file may be forged."""
        check_stored("labels_", self.labels_, (None,), kinds="i", least=0)
        n_images = len(self.labels_)
        self._settings(n_images, are_rows=False)
        names = ("sparsity", "graph_weight", "n_neighbors", "max_iter", "n_atoms")
        check_parameters({name: getattr(self, name) for name in names if getattr(self, name) is not None})
        shape = check_stored_shape(self)
        if not isinstance(self.model_, GTSC) or not isinstance(self.graph_, Graph) or self.model_.image_shape_ != shape:
            raise ValueError("its coder or its graph is missing, or for images of another shape")
        coder_graph = self.model_.graph_ if self.model_._codes_on_demand_ else None
        n_coded = len(self.model_.codes_) if coder_graph is None else coder_graph.n_images
        if not n_images == self.graph_.n_images == n_coded:
            raise ValueError("its labels, codes and graph are not of the same number of images")
        check_loaded_clusters(self, n_images)
        self._check_loaded_hints()
        check_view_results(self, n_images)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def describe_count(counted: ClusterCount | None, n_clusters: int, labels: LabelArray) -> dict[str, Any]:
    """Return the fitted attributes that describe how the number of clusters was chosen."""
    if counted is None:
        return {"n_clusters_candidates_": np.array([n_clusters], dtype=np.intp), "n_clusters_scores_": None}
    curves = {"n_clusters": counted.numbers, "gap": counted.gap}
    candidates, n_found = counted.candidates, int(labels.max()) + 1
    if n_found < n_clusters:  # there are not so many different images
        candidates = np.array([n_found, *candidates[candidates < n_found]], dtype=np.intp)
    return {"n_clusters_candidates_": candidates, "n_clusters_scores_": curves}
