"""The methods that the tables compare: images, a number of clusters, settings and a seed in; labels out.

Three groups: the baselines and sparse coders of Table 2, the eight members of the family, and the default preset of
:class:`tubal.ImageClusterer` with its parts. Each table collects its methods under ``METHODS``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from tubal.experiments.tables import Images, Labels, Outcome, Settings
from tubal.solvers import Admm

if TYPE_CHECKING:
    from tubal import CSC, GTSC, ImageClusterer, TenSR, TubSC
    from tubal.graph import Graph
    from tubal.problems.base import CodingProblem

    Member = TubSC | GTSC | TenSR | CSC

Features = NDArray[np.floating[Any]]


# --- shared steps ----------------------------------------------------------------------------------------------
def normalize_images(images: Images, scale: str) -> Images:
    """Return the images unchanged (``"pixels"``) or each scaled to unit length (``"unit"``).

    >>> float(np.linalg.norm(normalize_images(np.full((1, 2, 2), 3.0), "unit")))
    1.0
    """
    if scale == "pixels":
        return images
    if scale != "unit":
        raise ValueError(f"scale is {scale!r}; choose 'unit' or 'pixels'")
    lengths = np.sqrt((images**2).sum(axis=(1, 2), keepdims=True))
    return np.asarray(images / np.where(lengths > 0, lengths, images.dtype.type(1)))


def cluster_rows(features: Features, n_clusters: int, settings: Settings, seed: int) -> Labels:
    """Run K-means on the rows of ``features``, scaled to unit length if ``settings["features"]`` is "unit"."""
    from sklearn.cluster import KMeans

    from tubal.problems.layout import unit_rows

    rows = unit_rows(features) if settings["features"] == "unit" else features
    return np.asarray(KMeans(n_clusters, n_init=settings["n_starts"], random_state=seed).fit_predict(rows))


# --- baselines -------------------------------------------------------------------------------------------------
def kmeans_on_pixels(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """K-means on the pixels, or on the principal components that keep the share ``kmeans_pca`` of the variance."""
    from sklearn.cluster import KMeans

    scaled = normalize_images(images, settings["scale"])
    variance = settings.get("kmeans_pca", 1.0)
    rows = scaled.reshape(len(images), -1) if variance == 1.0 else principal_components(scaled, variance)
    start = settings.get("start", "k-means++")
    model = KMeans(n_clusters, init=start, n_init=settings["n_starts"], random_state=seed).fit(rows)
    return Outcome(model.labels_, {"n_iter": float(model.n_iter_), "converged": float(model.n_iter_ < model.max_iter)})


def spectral_on_pixels(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """scikit-learn's spectral clustering on the Euclidean neighbour graph."""
    from sklearn.cluster import SpectralClustering

    graph = table_graph(images, settings)
    model = SpectralClustering(n_clusters, affinity="precomputed", assign_labels=settings["cut"], random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "Graph is not fully connected": the same for every cut
        return Outcome(model.fit_predict(graph.adjacency.astype(np.float64)), {})


def umap_and_kmeans(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """UMAP, then K-means on its coordinates."""
    import umap

    rows = normalize_images(images, settings["scale"]).reshape(len(images), -1)
    model = umap.UMAP(
        n_neighbors=settings["umap_neighbors"],
        n_components=settings["umap_dimensions"],
        min_dist=settings["umap_min_dist"],
        random_state=seed,
        n_jobs=1,
    )
    return Outcome(cluster_rows(model.fit_transform(rows), n_clusters, {**settings, "features": "plain"}, seed), {})


# --- the sparse coders of Table 2 ------------------------------------------------------------------------------
class CoderKind(NamedTuple):
    """The model of a coder ("sc", "tensr", "csc" or "tubsc"), and whether a graph joins the codes."""

    model: str
    graph: bool = False


CODERS = {
    "sc": CoderKind("sc"),
    "graphsc": CoderKind("sc", graph=True),
    "tensr": CoderKind("tensr"),
    "csc": CoderKind("csc"),
    "tubsc": CoderKind("tubsc"),
    "gtsc": CoderKind("tubsc", graph=True),
}


# Without a graph, ten times as many as the library allows: under the weakest sparsity of the grid fewer do not certify
# the codes. With a graph some hundreds are enough.
MOST_FINAL_STEPS = 30_000


@dataclass(frozen=True)
class CertifiedAdmm(Admm):
    """The library's default solver of coding steps for rows of mean length one, with certified final codes.

    Given explicitly, because the default depends on the parameter ``scale``, and rows are scaled before the fit.
    """

    final: Admm = field(default_factory=Admm)

    @classmethod
    def for_sparsity(cls, sparsity: float, kind: CoderKind) -> CertifiedAdmm:
        """Return the solver of a coder for a sparsity."""
        from tubal.estimators.coders import FILTER_CODING_STEPS, FILTER_PENALTY
        from tubal.learning.fitting import FINAL_GAP, FINAL_STEPS, USUAL_SPARSITY, default_code_solver

        learning, first = default_code_solver(sparsity, "unit"), 2.0
        if kind.model == "csc":
            learning = Admm(max_iter=FILTER_CODING_STEPS, tol=1e-3, penalty=FILTER_PENALTY)
            first = FILTER_PENALTY  # smaller ones, as for the others under weak sparsity, certify no image for long
        else:
            # Under weak sparsity, small penalties certify codes sooner, as in the library.
            first *= min(1.0, sparsity / USUAL_SPARSITY) ** 0.5
        steps = FINAL_STEPS if kind.graph else MOST_FINAL_STEPS
        final = Admm(max_iter=steps, penalty=first, gap=FINAL_GAP, check_every=20)
        return cls(max_iter=learning.max_iter, tol=learning.tol, penalty=learning.penalty, final=final)


def fit_sparse_coder(name: str, images: Images, settings: Settings, seed: int) -> tuple[Member, Features]:
    """Fit one of the sparse coders; return it with its features (n_images, n_features).

    The coder is the library's own with its default solvers, so its final codes are certified by their duality gap.
    Coders of the model "sc" first reduce the images by PCA, as the paper does. The neighbour graph is always that of
    the images themselves.
    """
    model = build_coder(name, images, settings, seed)
    with warnings.catch_warnings():
        # Tables state for every cell whether the fit converged.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(coder_input(name, images, settings))
    return model, pool_codes(model, np.asarray(model.codes_), settings.get("pooling", "norm"))


def build_coder(name: str, images: Images, settings: Settings, seed: int) -> Member:
    """Return the unfitted estimator of a sparse coder of Table 2."""
    from tubal import CSC, GTSC, GraphSC, SparseCoding, TenSR, TubSC

    kind = CODERS[name]
    rows = coder_input(name, images, settings)
    n_atoms = settings["n_atoms"]
    parameters: dict[str, Any] = {
        "n_atoms": tuple(n_atoms) if kind.model == "tensr" else n_atoms,
        "sparsity": settings["sparsity_fraction"]
        * largest_correlation(kind.model, rows, settings.get("filter_shape", ())),
        "scale": None,
        "max_iter": settings["max_iter"],
        "tol": settings["tol"],
        "init": settings["init"],
        "random_state": seed,
    }
    parameters["code_solver"] = CertifiedAdmm.for_sparsity(parameters["sparsity"], kind)
    if kind.model == "tubsc":
        parameters["tube_axis"] = settings.get("tube_axis", -1)
    if kind.model == "csc":
        parameters["filter_shape"] = tuple(settings["filter_shape"])
    if kind.graph:
        parameters |= {"graph_weight": settings["graph_weight"], "graph": table_graph(images, settings)}
    estimators: dict[str, type[Member]] = {
        **{"sc": SparseCoding, "graphsc": GraphSC, "tensr": TenSR, "csc": CSC, "tubsc": TubSC, "gtsc": GTSC},
    }
    return estimators[name](**parameters)


def table_graph(images: Images, settings: Settings) -> Graph:
    """Return the neighbour graph of scaled images, with edges weighted as ``settings["edges"]`` says.

    "binary", the default, is the paper's 0/1. "heat" is ``exp(-(d / 2s)²)`` with s the mean distance of neighbours,
    wide enough that no weight nearly vanishes: a graph of very unequal weights takes many more steps to certify.
    """
    from tubal.graph import Graph, knn_graph

    graph = knn_graph(normalize_images(images, settings["scale"]), settings["n_neighbors"])
    edges = settings.get("edges", "binary")
    if edges == "binary":
        return graph
    if edges != "heat":
        raise ValueError(f"edges is {edges!r}; choose 'binary' or 'heat'")
    rows = normalize_images(images, settings["scale"]).reshape(len(images), -1).astype(np.float64)
    adjacency = graph.adjacency.tocoo()
    distances = np.linalg.norm(rows[adjacency.row] - rows[adjacency.col], axis=1)
    scale = 2.0 * distances.mean() or 1.0
    adjacency.data = np.exp(-np.square(distances / scale)).astype(adjacency.data.dtype)
    return Graph.from_matrix(adjacency.tocsr(), len(images))


def coder_input(name: str, images: Images, settings: Settings) -> Features:
    """Return what a coder reads: scaled images (n, height, width), or their principal components (n, d).

    They are divided by their mean length. That changes neither the minimiser, up to this factor, nor the clusters, if
    the sparsity is divided by the same number; so a sparsity means the same for every collection and scale.
    """
    rows = normalize_images(images, settings["scale"])
    if CODERS[name].model == "sc":
        rows = principal_components(rows, settings["pca_variance"])
    return np.asarray(rows / np.linalg.norm(rows.reshape(len(rows), -1), axis=1).mean())


def principal_components(images: Images, variance: float) -> Features:
    """Return rows (n, d): the fewest principal components that keep the share ``variance`` of the variance."""
    from sklearn.decomposition import PCA

    rows = images.reshape(len(images), -1)
    return np.asarray(PCA(n_components=variance, svd_solver="full").fit_transform(rows))


def atom_pictures(name: str, atoms: Features, images: Images, settings: Settings) -> Images:
    """Return atoms (n_atoms, height, width) as pictures; those of coders behind PCA are mapped back to pixels."""
    from sklearn.decomposition import PCA

    if CODERS[name].model != "sc":
        return atoms
    rows = normalize_images(images, settings["scale"]).reshape(len(images), -1)
    components = PCA(n_components=settings["pca_variance"], svd_solver="full").fit(rows).components_
    return np.asarray((atoms.reshape(len(atoms), -1) @ components).reshape(-1, *images.shape[1:]))


def pool_codes(model: Member, codes: Features, pooling: str) -> Features:
    """Return features of codes (n, n_atoms, *positions): the norm (eq. 20), or the sum or largest of the magnitudes."""
    if pooling == "norm":
        return np.asarray(model._pool(codes))
    magnitudes = np.abs(model.by_atom(codes))
    magnitudes = magnitudes.reshape(*magnitudes.shape[:2], -1)
    if pooling not in ("sum", "max"):
        raise ValueError(f"pooling is {pooling!r}; choose 'norm', 'sum' or 'max'")
    return np.asarray(magnitudes.sum(axis=2) if pooling == "sum" else magnitudes.max(axis=2))


def coding_problem(model: Member, rows: Features) -> CodingProblem:
    """Return the coding problem of a fitted coder: its training rows at its final dictionary."""
    from tubal.graph import laplacian

    recipe = model._recipe()
    stack = recipe.as_stack(rows)
    graph = getattr(model, "graph_", None)
    return recipe.model(model._layout_.image_shape).coding(
        model.dictionary_,
        model._layout_.to_tensor(stack),
        sparsity=recipe.weights.sparsity,
        graph_weight=recipe.weights.graph_weight,
        laplacian=None if graph is None else laplacian(graph),
    )


def certificate(model: Member, rows: Features) -> dict[str, float]:
    """Return the certificate of a fitted coder: relative duality gap, share of non-zeros, alternations, convergence.

    The gap is computed here from the codes and the dictionary, not taken from the coder.
    """
    from tubal.learning.fitting import FINAL_GAP

    codes = np.asarray(model.codes_)
    inner = model._recipe().inner_codes(codes)
    gap = coding_problem(model, rows).duality_gap(inner, wanted=FINAL_GAP)
    return {
        "gap": float(gap.relative),
        "density": float(np.count_nonzero(codes) / codes.size),
        "codes": float(codes[0].size),
        "n_iter": float(model.n_iter_),
        "converged": float(model.converged_),
        "objective": float(model.objective_[-1]),
    }


def sparse_coder(name: str) -> Callable[[Images, int, Settings, int], Outcome]:
    """Return the method that fits a coder of Table 2 and runs K-means on its features.

    ``features`` may be "both": then rows of unit length decide, and the labels of plain rows come with them.
    """

    def cluster(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
        model, features = fit_sparse_coder(name, images, settings, seed)
        details = {"sparsity": float(model.sparsity), **certificate(model, coder_input(name, images, settings))}
        if settings["features"] != "both":
            return Outcome(cluster_rows(features, n_clusters, settings, seed), details)
        unit, plain = (
            cluster_rows(features, n_clusters, {**settings, "features": kind}, seed) for kind in ("unit", "plain")
        )
        return Outcome(unit, details, {"plain": plain})

    return cluster


def coder_stopped_early(name: str) -> Callable[[Images, int, Settings, int], Outcome]:
    """Return the method whose final codes are ``settings["final_steps"]`` steps of Algorithm 1 from zero.

    ``gap_printed`` of GTSC is the gap after as many steps of Algorithm 1 as it is printed.
    """
    from tubal.solvers import Fista, PrintedIstt

    def cluster(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
        rows = coder_input(name, images, settings)
        model = build_coder(name, images, settings, seed)
        # The dictionary is that of the certified coder; its own final codes are not used, and need few steps.
        learning = CertifiedAdmm.for_sparsity(model.sparsity, CODERS[name])
        model.set_params(code_solver=replace(learning, final=Admm(max_iter=1)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(rows)
        problem, solver = coding_problem(model, rows), Fista(max_iter=settings["final_steps"])
        found = solver.codes(problem, solver.minimise(problem).state)
        codes = np.asarray(model._recipe().public_codes(found))
        details = {
            "gap": float(problem.duality_gap(found).relative),
            "density": float(np.count_nonzero(codes) / codes.size),
        }
        if name == "gtsc":
            printed = PrintedIstt(max_iter=settings["final_steps"])
            printed_codes = printed.codes(problem, printed.minimise(problem).state)
            details["gap_printed"] = float(problem.duality_gap(printed_codes).relative)
        return Outcome(cluster_rows(np.asarray(model._pool(codes)), n_clusters, settings, seed), details)

    return cluster


# --- the family ------------------------------------------------------------------------------------------------
SHIFT_KINDS = ("circle, right", "circle, down", "border, right", "border, down")


def family_member(kind: str) -> Callable[[Images, int, Settings, int], Outcome]:
    """Return the method that fits one model ("sc", "tubsc", "tensr", "csc") and runs K-means on its features.

    Settings with a graph weight add the graph. ``n_images`` limits the images, ``shifts`` asks for the distances
    of features under shifts, ``device`` names a device other than the processor.
    """

    def cluster(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
        from tubal.backends.arrays import is_torch, namespace, to_device, to_numpy

        chosen = evenly_spaced(len(images), settings.get("n_images"))
        scaled = normalize_images(images[chosen], settings["scale"])
        model = build_member(kind, scaled, settings, seed)
        data = to_device(scaled, settings.get("device", "cpu"))
        if is_torch(data):
            namespace(data).cuda.reset_peak_memory_stats()
        features = to_numpy(model.fit_transform(data))
        details = _describe_codes(model, scaled, features)
        if is_torch(data):
            details["device_memory_mb"] = namespace(data).cuda.max_memory_allocated() / 2**20
        if "shifts" in settings:
            details.update(_shift_distances(model, scaled, settings))
        labels = np.full(len(images), -1)
        labels[chosen] = cluster_rows(features, min(n_clusters, len(scaled)), settings, seed)
        return Outcome(labels, details)

    return cluster


def build_member(kind: str, images: Images, settings: Settings, seed: int) -> Member:
    """Return the unfitted estimator of one member, for images of unit length."""
    from tubal import CSC, GTSC, GraphSC, SparseCoding, TenSR, TubSC
    from tubal.graph import knn_graph

    size = settings["size"]
    sparsity = settings["sparsity_fraction"] * largest_correlation(kind, images, settings.get("filter_shape", ()))
    common: dict[str, Any] = {
        "n_atoms": tuple(size) if kind == "tensr" else size,
        "sparsity": sparsity,
        "code_solver": member_solver(kind, sparsity, settings),
        "scale": "unit" if settings["scale"] == "unit" else None,  # default penalties assume unit length
        "max_iter": settings["max_iter"],
        "random_state": seed,
    }
    if kind == "csc":
        common["filter_shape"] = tuple(settings["filter_shape"])
    if "graph_weight" not in settings:
        plain: dict[str, type[Member]] = {"sc": SparseCoding, "tubsc": TubSC, "tensr": TenSR, "csc": CSC}
        return plain[kind](**common)
    common["graph_weight"] = settings["graph_weight"]
    common["graph"] = knn_graph(images, settings["n_neighbors"])
    with_graph: dict[str, type[Member]] = {"sc": GraphSC, "tubsc": GTSC, "tensr": TenSR, "csc": CSC}
    return with_graph[kind](**common)


def largest_correlation(kind: str, images: Images, filter_shape: Sequence[int]) -> float:
    """Return the largest product of an image with an atom of unit length, averaged over the images.

    For atoms as large as the image this is the image's length, for outer products ("tensr") its largest singular
    value, for small filters ("csc") the length of its strongest patch.

    >>> image = np.outer([3.0, 0.0], [0.0, 1.0])[None]
    >>> [round(largest_correlation(kind, image, (1, 1)), 9) for kind in ("sc", "tensr", "csc")]
    [3.0, 3.0, 3.0]
    """
    if kind == "tensr":
        return float(np.linalg.norm(images, ord=2, axis=(1, 2)).mean())
    if kind == "csc":
        window = np.zeros(images.shape[1:])
        window[: filter_shape[0], : filter_shape[1]] = 1.0
        spectrum = np.fft.rfft2(np.square(images, dtype=np.float64)) * np.conj(np.fft.rfft2(window))
        energy = np.fft.irfft2(spectrum, images.shape[1:]).max(axis=(1, 2))
        return float(np.sqrt(energy).mean())
    return float(np.linalg.norm(images.reshape(len(images), -1), axis=1).mean())


def member_solver(kind: str, sparsity: float, settings: Settings) -> Admm:
    """Return the coding solver of a member: the same steps for all, with the estimator's penalty or a stated one.

    >>> member_solver("tubsc", 0.03, {"code_steps": 5, "code_tol": 1e-3}).penalty
    4.0
    """
    from tubal.estimators.coders import FILTER_PENALTY
    from tubal.learning.fitting import default_code_solver

    if "code_penalty" in settings:
        least, slope = settings["code_penalty"]
        penalty = least + slope * sparsity
    else:
        penalty = FILTER_PENALTY if kind == "csc" else default_code_solver(sparsity, "unit").penalty
    return Admm(max_iter=settings["code_steps"], tol=settings["code_tol"], penalty=penalty)


def _describe_codes(model: Member, images: Images, features: Features) -> dict[str, float]:
    """Return size, number of non-zero coefficients and reconstruction error of a fitted member's codes."""
    from tubal.backends.arrays import to_numpy

    codes = model.codes_
    residual = to_numpy(model.decode(codes)) - images
    return {
        "sparsity": float(model.sparsity),
        "objective": float(model.objective_[-1]),
        "n_iter": float(model.n_iter_),
        "stored": float(np.prod(codes.shape[1:])),
        "nonzero": float((codes != 0).sum()) / len(images),
        "error": float(np.square(residual).sum() / np.square(images).sum()),
        "features": float(features.shape[1]),
    }


def evenly_spaced(n_images: int, wanted: int | None) -> NDArray[np.intp]:
    """Return ``wanted`` evenly spaced indices of ``n_images`` images; all of them for None.

    >>> evenly_spaced(10, 4)
    array([0, 2, 5, 7])
    """
    count = n_images if wanted is None else min(wanted, n_images)
    return np.arange(count) * n_images // count


def shift_images(images: Images, pixels: int, kind: str) -> Images:
    """Return shifted images: circularly ("circle, ..."), or with the border repeated ("border, ...").

    >>> shift_images(np.arange(4.0).reshape(1, 1, 4), 1, "border, right")
    array([[[0., 0., 1., 2.]]])
    """
    boundary, direction = kind.split(", ")
    axis = 2 if direction == "right" else 1
    if boundary == "circle":
        return np.roll(images, pixels, axis)
    sources = np.clip(np.arange(images.shape[axis]) - pixels, 0, None)
    return np.take(images, sources, axis)


def _shift_distances(model: Member, images: Images, settings: Settings) -> dict[str, float]:
    """Return, for every shift, the distance between shifted and unshifted features, relative to their length."""
    from tubal.backends.arrays import to_device, to_numpy

    unshifted = images[evenly_spaced(len(images), settings["shift_images"])]
    cases = [(kind, pixels) for kind in SHIFT_KINDS for pixels in settings["shifts"]]
    stack = np.concatenate([unshifted, *(shift_images(unshifted, pixels, kind) for kind, pixels in cases)])
    features = to_numpy(model.transform(to_device(stack, settings.get("device", "cpu"))))
    first, *others = features.reshape(len(cases) + 1, len(unshifted), -1)
    lengths = np.linalg.norm(first, axis=1)
    safe = np.where(lengths > 0, lengths, 1.0)
    return {
        f"{kind}, {pixels}": float(np.mean(np.linalg.norm(after - first, axis=1) / safe))
        for (kind, pixels), after in zip(cases, others, strict=True)
    }


# --- the default preset and its parts --------------------------------------------------------------------------
def ablated_graph(images: Images, n_neighbors: int, deformation: str = "full", seed: int = 0) -> Graph:
    """Return the deformable graph, or one with a part of the deformation left out.

    >>> ablated_graph(np.random.default_rng(0).random((12, 8, 8)), 3, "no local warp").neighbors.shape
    (12, 3)
    """
    from tubal.clustering.affinity import clustering_effort
    from tubal.graph import deformable_graph
    from tubal.graph.deformable import Deformation

    no_motion = {"rotation": 0.0, "n_rotations": 1, "scale": 1.0, "n_scales": 1, "shift": 0.0}
    parts: dict[str, dict[str, Any]] = {
        "full": {},
        "no affine bank": no_motion,
        "no local warp": {"window": 0.0},
        "neither": {**no_motion, "window": 0.0},
        "pixels": {"field": "pixels"},
    }
    if deformation not in parts:
        raise ValueError(f"deformation is {deformation!r}; choose one of {', '.join(parts)}")
    return deformable_graph(
        images,
        n_neighbors,
        deformation=Deformation(**parts[deformation]),
        effort=clustering_effort(len(images), n_neighbors),
        random_state=seed,
    )


def fit_default_preset(images: Images, n_clusters: int, settings: Settings, seed: int) -> ImageClusterer:
    """Fit the default preset with the changes that the settings name."""
    from tubal import ImageClusterer
    from tubal.clustering.clusterer import draw_seed

    graph = settings.get("graph")
    n_neighbors = settings["n_neighbors"]
    if "deformation" in settings:
        # The clusterer looks at twice as many neighbours as it keeps, and derives its own seed.
        graph = ablated_graph(images, 2 * n_neighbors, settings["deformation"], draw_seed(seed))
    return ImageClusterer(
        None if settings.get("estimate") else n_clusters,
        graph=graph,
        n_neighbors=n_neighbors,
        views="shape",  # the same on machines with and without the network
        graph_weight=settings.get("graph_weight"),
        code_power=settings.get("code_power", 0.0),
        random_state=seed,
    ).fit(images)


def default_preset(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """The default preset of ImageClusterer."""
    model = fit_default_preset(images, n_clusters, settings, seed)
    details = {"n_clusters": float(model.n_clusters_), "confidence": float(model.confidence_.mean())}
    return Outcome(model.labels_, details)


def graph_without_codes(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """The default preset without GTSC: the same graph and cut, but no partition proposed by codes."""
    from tubal import clustering
    from tubal.clustering.affinity import choice_weights, choose_neighbors
    from tubal.clustering.clusterer import draw_seed
    from tubal.clustering.cuts import partition_graph

    seed = draw_seed(seed)  # the seed of the clusterer, so that only the codes differ
    images = normalize_images(images, "unit")
    wide = ablated_graph(images, 2 * settings["n_neighbors"], seed=seed)
    graph = choose_neighbors(wide, settings["n_neighbors"])
    affinity = clustering.with_second_order(choice_weights(graph))
    rows = images.reshape(len(images), -1)
    labels = partition_graph(affinity, graph, n_clusters, features=rows, propose_from_features=False, seed=seed)
    return Outcome(labels, {})


def spectral_on_deformable_graph(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """scikit-learn's spectral clustering on the deformable graph."""
    from sklearn.cluster import SpectralClustering

    graph = ablated_graph(images, settings["n_neighbors"], seed=seed)
    model = SpectralClustering(n_clusters, affinity="precomputed", assign_labels="cluster_qr", random_state=seed)
    return Outcome(model.fit_predict(graph.adjacency.astype(np.float64)), {})


def codes_on_deformable_graph(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """GTSC on the deformable graph, then K-means on its pooled codes."""
    from tubal import GTSC
    from tubal.clustering.clusterer import PRESETS

    preset = PRESETS["default"]
    model = GTSC(
        graph=ablated_graph(images, settings["n_neighbors"], seed=seed),
        sparsity=preset.sparsity,
        graph_weight=preset.graph_weight,
        max_iter=preset.max_iter,
        code_solver=preset.code_solver,
        random_state=seed,
    )
    features = model.fit_transform(images)
    return Outcome(cluster_rows(features, n_clusters, {"features": "unit", "n_starts": 10}, seed), {})
