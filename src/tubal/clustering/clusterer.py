"""ImageClusterer: images in, clusters out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tubal import clustering
from tubal.backends.arrays import Array, to_numpy
from tubal.clustering.cuts import check_n_clusters, cut_or_join, partition
from tubal.clustering.neighbor_lists import WIDER, better_reading, long_lists
from tubal.estimators.notebook import NotebookView
from tubal.estimators.tubal_coders import GTSC
from tubal.estimators.validation import check_integer, check_new_stack, check_stack, check_weight, column_names
from tubal.graph import Graph
from tubal.learning.fitting import scale_images
from tubal.problems.layout import unit_rows
from tubal.solvers import Admm


@dataclass(frozen=True)
class Preset:
    """Neighbour graph, its size q, the two weights of GTSC, its alternations, and how labels are made."""

    graph: str
    n_neighbors: int
    graph_weight: float
    sparsity: float
    max_iter: int
    assignment: str  # "diffusion": graph and codes together; "kmeans": K-means on the codes
    code_solver: Any = None


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        # Few and short coding steps: clusters need codes that tell images apart, not the last digits of them.
        "default": Preset("deformable", 5, 10.0, 0.003, 2, "diffusion", Admm(max_iter=3, tol=0.2, check_every=3)),
        "paper": Preset("euclidean", 3, 1.0, 0.01, 25, "kmeans"),
    }
)


def choose_preset(name: Any) -> Preset:
    """Return the preset of that name, or say which there are."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(f"preset={name!r}; it must be one of {', '.join(map(repr, PRESETS))}")
    return PRESETS[name]


def given_or(value: Any, default: Any) -> Any:
    """Return a parameter, or the preset's value when it was left at None."""
    return default if value is None else value


Labels = NDArray[np.intp]
# The number of groups is read off several graphs at once: few neighbours split groups, many join them.
_COUNTING_NEIGHBORS = (3, 4, 5)


class ImageClusterer(NotebookView, ClusterMixin, BaseEstimator):
    """Cluster images by looks: a deformation-tolerant graph, GTSC codes, and a partition that uses both.

    Graph and codes each propose partitions: cuts of the graph after diffusing for several times, and K-means on
    the pooled codes. The one of largest modularity on the graph is kept. No step sees labels.

    Parameters
    ----------
    n_clusters : how many clusters; None estimates the number.
    preset : "default" as above; "paper" is the paper's pipeline: the Euclidean graph, GTSC, K-means on codes.
    n_neighbors, sparsity, graph_weight, max_iter : q, beta, alpha and alternations; None leaves them to the preset.
    graph : "deformable", "euclidean", "cosine", a ``Graph`` or a symmetric matrix; None leaves it to the preset.
    n_atoms : atoms of the dictionary (never more than images).
    code_power : edges are weighted by this power of the cosine of their images' codes; 0 leaves the edges alone.
    max_clusters : the most clusters an estimate may find; None for half the images, at most 100 (50 beyond 2000).
    image_shape : (height, width[, channels]) of rows (n, features); without it rows are one-row images.
    random_state : seed of the graph's samples, the dictionary's start and the eigensolver's.
    callbacks, verbose : those of :class:`GTSC`.

    Attributes
    ----------
    labels_ : (n,) cluster of each image, 0 the largest.
    n_clusters_ : how many there are.
    n_clusters_scores_ : curve of the estimate: "n_clusters", "modularity", "gap" (arrays); None if not estimated.
    features_ : (n, n_atoms) pooled codes, rows of unit length.
    confidence_ : (n,) share of an image's ties that stay inside its cluster.
    outliers_ : (n,) True where an image lies unusually far from its nearest ones.
    duplicates_ : groups of near-identical images, arrays of indices.
    medoids_ : (n_clusters_,) index of the most typical image of each cluster.
    embedding_ : (n, 2) map, made when first asked for.
    graph_, model_ : the neighbour graph and the fitted :class:`GTSC`.
    affinity_ : (n, n) sparse matrix that was cut.
    n_iter_ : alternations of the dictionary learning.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> images = np.repeat(rng.random((2, 8, 8)), 10, axis=0) + 0.05 * rng.random((20, 8, 8))
    >>> ImageClusterer(2, random_state=0).fit_predict(images)
    array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        preset: str = "default",
        n_neighbors: int | None = None,
        n_atoms: int = 45,
        sparsity: float | None = None,
        graph_weight: float | None = None,
        graph: Any = None,
        code_power: float = 0.0,
        max_iter: int | None = None,
        max_clusters: int | None = None,
        image_shape: tuple[int, ...] | None = None,
        random_state: Any = None,
        callbacks: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.preset = preset
        self.n_neighbors = n_neighbors
        self.n_atoms = n_atoms
        self.sparsity = sparsity
        self.graph_weight = graph_weight
        self.graph = graph
        self.code_power = code_power
        self.max_iter = max_iter
        self.max_clusters = max_clusters
        self.image_shape = image_shape
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    # --- fitting -----------------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any = None, *, checkpoint: Any = None) -> ImageClusterer:
        """Cluster images (n, height, width[, channels]) or rows (n, features), NumPy or torch; ``y`` is ignored.

        ``checkpoint``, a path or a :class:`tubal.checkpoints.Checkpoint`, keeps where the learning of codes stands.
        """
        images = self._images(X, reset=True)
        preset = choose_preset(self.preset)
        self._check_counts(len(images))
        self.__dict__.pop("embedding_", None)
        self.seed_ = seed_of(self.random_state)
        wide, n_neighbors = self._build_graph(images, preset)
        self.n_clusters_, self.n_clusters_scores_ = self._count(wide)
        self.graph_ = wide
        if wide.n_neighbors is not None and wide.n_neighbors > n_neighbors:
            self.graph_ = better_reading(wide, n_neighbors)
        self.model_ = self._build_model(preset, len(images))
        self.model_.fit(images, checkpoint=checkpoint)
        self.features_ = to_numpy(unit_rows(self.model_._pool(self.model_.codes_)))
        self.n_iter_ = self.model_.n_iter_
        self.affinity_ = self._build_affinity()
        self.labels_ = self.labels_for(self.n_clusters_)
        self._describe()
        return self

    def labels_for(self, n_clusters: int) -> Labels:
        """Return labels (n,) for another number of clusters, without refitting graph or codes."""
        check_is_fitted(self, "affinity_")
        n_clusters = check_integer("n_clusters", n_clusters, least=1)
        check_n_clusters(n_clusters, len(self.features_))
        if choose_preset(self.preset).assignment == "kmeans":
            return clustering.kmeans(self.features_, n_clusters, seed=self.seed_)
        return cut_or_join(
            self.affinity_, self.graph_, n_clusters, features=self.features_, seed=self.seed_,
            propose=lambda: partition(self.features_.astype(np.float64), n_clusters, self.seed_),
        )  # fmt: skip

    def _images(self, X: Any, *, reset: bool) -> Array:
        """Return the images as a stack, each of unit length, as GTSC sees them; so does every graph."""
        if not reset:
            return scale_images(check_new_stack(X, self.image_shape, self), "unit")[0]
        stack = check_stack(X, self.image_shape, self)
        shape = tuple(int(extent) for extent in stack.shape[1:])
        self.__dict__ |= {**column_names(X), "image_shape_": shape, "n_features_in_": int(np.prod(shape))}
        return scale_images(stack, "unit")[0]

    def _check_counts(self, n_images: int) -> None:
        if n_images < 2:
            raise ValueError(
                f"n_samples = {n_images}: one image has no neighbours to be clustered with; pass at least two"
            )
        if self.n_clusters is not None:
            check_n_clusters(check_integer("n_clusters", self.n_clusters, least=1), n_images)
        if self.max_clusters is not None:
            check_integer("max_clusters", self.max_clusters, least=1)
        check_weight("code_power", self.code_power)

    def _build_graph(self, images: Array, preset: Preset) -> tuple[Graph, int]:
        """Return the graph, with longer lists than wanted where two readings are compared, and q."""
        wanted = check_integer("n_neighbors", given_or(self.n_neighbors, preset.n_neighbors), least=1)
        most = len(images) - 1
        if self.n_neighbors is not None and wanted > most:
            raise ValueError(
                f"n_neighbors={wanted} but n_samples = {len(images)}: an image has at most n_samples - 1 neighbours; "
                "lower n_neighbors or pass more images"
            )
        wanted = min(wanted, most)
        graph = given_or(self.graph, preset.graph)
        looked_at = min(WIDER * wanted, most) if preset.assignment == "diffusion" else wanted
        return long_lists(graph, images, looked_at, self.seed_), wanted

    def _build_model(self, preset: Preset, n_images: int) -> GTSC:
        return GTSC(
            n_atoms=min(check_integer("n_atoms", self.n_atoms, least=1), n_images),
            sparsity=given_or(self.sparsity, preset.sparsity),
            graph_weight=given_or(self.graph_weight, preset.graph_weight),
            max_iter=given_or(self.max_iter, preset.max_iter),
            code_solver=preset.code_solver,
            graph=self.graph_,
            random_state=self.seed_,
            callbacks=self.callbacks,
            verbose=self.verbose,
        )

    def _build_affinity(self) -> Any:
        """Ties between images: who chose whom, doubted where codes differ, and friends of friends."""
        ties = _ties(self.graph_)
        if self.code_power > 0:
            ties = clustering.weight_edges_by_codes(ties, self.features_, self.code_power)
        return clustering.with_second_order(ties)

    def _count(self, graph: Graph) -> tuple[int, dict[str, NDArray[Any]] | None]:
        """Return the number of clusters, given or estimated, and the curve of the estimate."""
        if self.n_clusters is not None:
            return int(self.n_clusters), None
        readings = [_ties(graph, n_neighbors) for n_neighbors in _COUNTING_NEIGHBORS]
        readings = readings[:1] if graph.neighbors is None else readings
        found = clustering.estimate_n_clusters(*readings, max_clusters=self.max_clusters, seed=self.seed_)
        curve = {"n_clusters": found.candidates, "modularity": found.modularity, "gap": found.gap}
        return found.n_clusters, curve

    def _describe(self) -> None:
        """Store what the clustering says of single images."""
        self.n_clusters_ = int(self.labels_.max()) + 1
        self.confidence_ = clustering.confidence(self.affinity_, self.labels_)
        self.medoids_ = clustering.medoids(self.features_, self.labels_, self.confidence_)
        neighbors, distances = self.graph_.neighbors, self.graph_.distances
        if neighbors is None or distances is None:
            self.outliers_ = np.zeros(len(self.labels_), dtype=np.bool_)
            self.duplicates_: list[Labels] = []
            return
        self.outliers_ = clustering.outliers(distances)
        self.duplicates_ = clustering.near_duplicates(neighbors, distances)

    @cached_property
    def embedding_(self) -> NDArray[np.float32]:
        """A point (n, 2) for each image, neighbours close to each other; made when first asked for."""
        check_is_fitted(self, "affinity_")
        return clustering.graph_map(_ties(self.graph_), seed=self.seed_ % 2**16)

    # --- new images --------------------------------------------------------------------------------------
    def predict(self, X: Any) -> Labels:
        """Return the clusters (m,) of new images; training images get their own."""
        check_is_fitted(self, "labels_")
        images = self._images(X, reset=False)
        if choose_preset(self.preset).assignment == "kmeans":
            labels = self._nearest_centre(images)
        else:
            indices, weights = self.graph_.query(images)
            shares = clustering.vote(
                indices, weights, self.labels_, trust=self.confidence_, n_clusters=self.n_clusters_
            )
            labels = shares.argmax(axis=1).astype(np.intp)
        known = np.asarray(self.graph_.identical(images))
        return np.where(known >= 0, self.labels_[known], labels).astype(np.intp)

    def _nearest_centre(self, images: Array) -> Labels:
        features = to_numpy(unit_rows(self.model_.transform(images)))
        counts = np.bincount(self.labels_, minlength=self.n_clusters_)
        centres = np.zeros((self.n_clusters_, features.shape[1]))
        np.add.at(centres, self.labels_, self.features_)
        centres /= counts[:, None]
        nearest = (features @ centres.T - 0.5 * (centres**2).sum(axis=1)).argmax(axis=1)
        return np.asarray(nearest, dtype=np.intp)

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Return ``(distances, indices)``, each (m, q), of the training images nearest to new ones.

        Without ``X``: of the training images themselves, as the graph holds them. With
        ``return_distance=False`` the indices alone.
        """
        check_is_fitted(self, "labels_")
        if X is None:
            if self.graph_.neighbors is None:
                raise ValueError("the graph was given as a matrix and keeps no neighbour lists; pass X")
            distances, indices = self.graph_.distances, self.graph_.neighbors
        else:
            found = self.graph_.query_full(self._images(X, reset=False), n_neighbors)
            distances, indices = found.distances, found.indices
        return (distances, indices) if return_distance else indices

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def seed_of(random_state: Any) -> int:
    """Return the one number that all random choices of a fit are drawn from."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def _ties(graph: Graph, n_neighbors: int | None = None) -> Any:
    """Who chose whom, half a tie each; a graph given as a matrix is taken as it is."""
    if graph.neighbors is None:
        return graph.adjacency
    return clustering.mutual_adjacency(graph.neighbors, n_neighbors)
