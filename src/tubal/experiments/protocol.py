"""The frozen protocol: every method at frozen defaults on labelled images that nobody looked at while choosing them.

Three parts: clusters of all images; features of images that the coder was not fitted to, judged by a linear classifier
and by nearest neighbours; and clusters of such images when they are shifted. Labels are used for the scores only.

A collection is known by its name (``"digits"``) or, if it is a folder or file, by its path and the hash of its images,
so that stored trials of other images are never used: ``"/images/letters#sha256=0123456789abcdef"``.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning

import tubal
from tubal.datasets import COLLECTIONS, fetch, load_images
from tubal.experiments import table2
from tubal.experiments.methods import certificate, cluster_rows, default_preset, normalize_images, shift_images
from tubal.experiments.pages import dataset_title, join_parts, markdown_table, write_summary
from tubal.experiments.tables import (
    SCORES,
    Images,
    Labels,
    Method,
    Outcome,
    Record,
    Settings,
    Trial,
    standard_deviation,
)

TITLE = "The frozen protocol"
DATASETS = ("digits",)
EXTRA_DATASETS = table2.DATASETS
RUNS = 3
SHIFTS = (0, 1, 2, 3, 4)
SHIFT_KINDS = ("circle, right", "border, right")
# Fewer images than this are too few to be split into halves, and to have the neighbours that the methods ask for.
LEAST_IMAGES = 40
# Size of a collection, as the details of a trial hold it.
_SIZES = ("images", "height", "width", "classes")
_HASH_MARK, _HASH_DIGITS = "#sha256=", 16
# Settings of the features outside of tubal; the numbers of atoms and components are those of TubSC.
_FEATURES: Mapping[str, dict[str, Any]] = {
    "pixels": {},
    "pca": {"n_atoms": 45},
    "dictionary": {"n_atoms": 45, "sparsity_fraction": 0.1},
    "sc": {"n_atoms": 128},
    "tensr": {"n_atoms": [16, 16]},
    "csc": {"n_atoms": 32, "filter_shape": [8, 8]},
    "tubsc": {"n_atoms": 45},
    "gtsc": {"n_atoms": 45},
}
_TITLES = {
    **{"pixels": "raw pixels", "pca": "PCA", "dictionary": "dictionary learning of scikit-learn", "sc": "SC"},
    **{"tensr": "TenSR", "csc": "CSC", "tubsc": "TubSC", "gtsc": "GTSC"},
}


MeanAndDeviation = tuple[float, float]


class Cell(TypedDict):
    """Mean and standard deviation of both scores, seconds, and the certificate of a method's codes if it has any."""

    runs: int
    accuracy: MeanAndDeviation
    nmi: MeanAndDeviation
    seconds: float
    certificate: dict[str, float] | None


class Unseen(TypedDict):
    """Features of unseen images: accuracy of two classifiers, and NMI of clusters by kind of shift and pixels."""

    runs: int
    linear: MeanAndDeviation
    neighbors: MeanAndDeviation
    shifts: dict[str, dict[str, MeanAndDeviation]]
    seconds: float


class Summary(TypedDict):
    """The content of ``protocol.json``; collections are known by their titles."""

    title: str
    version: str
    defaults: str
    settings: dict[str, Any]
    methods: dict[str, str]
    features: dict[str, str]
    clustering: dict[str, dict[str, Cell]]
    unseen: dict[str, dict[str, Unseen]]
    sizes: dict[str, dict[str, int]]
    data_sha256: dict[str, str]


# --- labelled images -------------------------------------------------------------------------------------------
def load(dataset: str) -> tuple[Images, Labels, str]:
    """Return images, labels and SHA-256 of a collection, or of a folder or file as :func:`identify` names it."""
    if dataset == "digits" or dataset in COLLECTIONS:
        bunch = fetch(dataset)
        return bunch.images, bunch.target, bunch.sha256
    path, _, expected = dataset.partition(_HASH_MARK)
    images, target, found = read_labelled(Path(path))
    if not found.startswith(expected):
        raise ValueError(f"the images of {path!r} have changed since the command began; run it again")
    return images, target, found


def identify(paths: Sequence[Path]) -> list[str]:
    """Read labelled images once, and return the names by which :func:`load` knows them."""
    names = [f"{path.resolve()}{_HASH_MARK}{read_labelled(path)[2][:_HASH_DIGITS]}" for path in paths]
    titles = [title_of(name) for name in names]
    for title in titles:
        if titles.count(title) > 1:
            raise ValueError(f"two of the sources are called {title!r}; rename one, the page needs different names")
    return names


def title_of(dataset: str) -> str:
    """Return the name of a collection on the page: that of the paper, or that of its folder or file.

    >>> title_of("orl"), title_of("/images/letters.npz#sha256=0123456789abcdef")
    ('ORL', 'letters')
    """
    path = dataset.partition(_HASH_MARK)[0]
    return dataset_title(Path(path).stem)


def read_labelled(path: Path) -> tuple[Images, Labels, str]:
    """Return grey images, labels as integers and the SHA-256 of both, of a folder or file of labelled images."""
    bunch = load_images(path, colour="grey")
    if bunch.target is None:
        raise ValueError(
            f"the images of {str(path)!r} come without labels; give a folder whose pictures all lie in sub-folders, "
            "one for each of at least two classes, or an array file with an array 'labels' of one whole number or "
            "name for each image"
        )
    classes, target = np.unique(np.asarray(bunch.target), return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"all images of {str(path)!r} have the label {classes[0]}; give images of at least two classes"
        )
    if len(target) < LEAST_IMAGES:
        raise ValueError(
            f"{str(path)!r} has {len(target)} images; half of them are for fitting, so give at least {LEAST_IMAGES}"
        )
    digest = hashlib.sha256(np.ascontiguousarray(bunch.images).data)
    digest.update(target.astype(np.int64).tobytes())
    return bunch.images, target, digest.hexdigest()


# --- features of unseen images ---------------------------------------------------------------------------------
def unseen_features(name: str) -> Callable[[Images, int, Settings, int], Outcome]:
    """Return the method that fits features to half of the images and describes the other half by them.

    K-means is fitted to the features of the first half too, and labels the second half; ``variants`` holds the labels
    when the second half is shifted. Images of the first half have label -1, which is not scored.
    """

    def cluster(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
        from sklearn.cluster import KMeans

        from tubal.problems.layout import unit_rows

        images = normalize_images(images, "unit")
        train = np.zeros(len(images), bool)
        train[np.random.default_rng(seed).permutation(len(images))[: len(images) // 2]] = True
        with warnings.catch_warnings():
            # Alternations that stop at max_iter are part of the defaults; codes are certified all the same.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = feature_model(name, settings, seed, images[train].shape).fit(images[train])
        features = unit_rows(np.asarray(model.transform(images)))
        groups = KMeans(n_clusters, n_init=10, random_state=seed).fit(features[train])
        labels = {}
        for kind in SHIFT_KINDS:
            for pixels in settings["shifts"]:
                moved = features[~train]
                if pixels:
                    moved = unit_rows(np.asarray(model.transform(shift_images(images[~train], pixels, kind))))
                labels[f"{kind}, {pixels}"] = np.full(len(images), -1)
                labels[f"{kind}, {pixels}"][~train] = groups.predict(moved)
        details = dict(zip(_SIZES, map(float, (*images.shape, n_clusters)), strict=True))
        return Outcome(labels[f"{SHIFT_KINDS[0]}, 0"], details, labels, features, train)

    return cluster


def feature_model(name: str, settings: Settings, seed: int, shape: tuple[int, int, int]) -> TransformerMixin:
    """Return the unfitted model of features: one of tubal's coders at its defaults, or a common alternative.

    ``shape`` (n, height, width) of the images it is fitted to bounds the numbers of principal components and of
    filters, and the size of filters.
    """
    from sklearn.decomposition import PCA, MiniBatchDictionaryLearning
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    from tubal import CSC, GTSC, SparseCoding, TenSR, TubSC

    flatten = FunctionTransformer(_as_rows)
    if name == "pixels":
        return flatten
    if name == "pca":
        return make_pipeline(flatten, PCA(min(settings["n_atoms"], shape[0], shape[1] * shape[2]), random_state=seed))
    if name == "dictionary":
        sparsity = settings["sparsity_fraction"]  # images have unit length
        return make_pipeline(
            flatten,
            MiniBatchDictionaryLearning(
                settings["n_atoms"],
                alpha=sparsity,
                transform_algorithm="lasso_lars",
                transform_alpha=sparsity,
                random_state=seed,
            ),
        )
    if name == "tensr":
        return TenSR(tuple(settings["n_atoms"]), random_state=seed)
    if name == "csc":
        sides = [min(wanted, side) for wanted, side in zip(settings["filter_shape"], shape[1:], strict=True)]
        return CSC(min(settings["n_atoms"], shape[1] * shape[2]), filter_shape=tuple(sides), random_state=seed)
    coders = {"sc": SparseCoding, "tubsc": TubSC, "gtsc": GTSC}
    return coders[name](settings["n_atoms"], random_state=seed)


def _as_rows(images: Images) -> Images:
    return images.reshape(len(images), -1)


def convolutional_coder(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """CSC at its defaults, then K-means on its features."""
    images = normalize_images(images, "unit")
    model = feature_model("csc", settings, seed, images.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        features = np.asarray(model.fit_transform(images))
    labels = cluster_rows(features, n_clusters, {"features": "unit", "n_starts": 10}, seed)
    return Outcome(labels, certificate(model, images))


# --- the plan --------------------------------------------------------------------------------------------------
METHODS: Mapping[str, Method] = {
    **table2.METHODS,
    "csc": Method("CSC", convolutional_coder, ("n_atoms", "filter_shape")),
    "default": Method("Default preset", default_preset, ("n_neighbors",)),
    **{f"unseen-{name}": Method(title, unseen_features(name), ()) for name, title in _TITLES.items()},
}


def settings_for(method: str) -> dict[str, Any]:
    """Return the frozen settings of a method; they depend on no collection.

    >>> settings_for("unseen-pca")
    {'n_atoms': 45, 'shifts': [0, 1, 2, 3, 4]}
    """
    if method.startswith("unseen-"):
        return {**_FEATURES[method.removeprefix("unseen-")], "shifts": list(SHIFTS)}
    if method == "default":
        return {"n_neighbors": 5}
    if method == "csc":
        return dict(_FEATURES["csc"])
    return table2.settings_for("label-free", method, "")


def hash_of_defaults() -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of all frozen settings and of the estimators' defaults."""
    from tubal import CSC, GTSC, ImageClusterer, SparseCoding, TenSR, TubSC

    settings: dict[str, Any] = {name: settings_for(name) for name in METHODS}
    for estimator in (CSC, GTSC, ImageClusterer, SparseCoding, TenSR, TubSC):
        parameters = estimator().get_params(deep=False)
        settings[estimator.__name__] = {name: repr(value) for name, value in parameters.items()}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS]


def plan(datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False) -> list[Trial]:
    """Return the trials: every method on every collection, with at most ``RUNS`` seeds."""
    return [
        Trial(table="protocol", dataset=dataset, method=method, row="frozen", run=run, settings=settings_for(method))
        for run in range(min(runs, RUNS))
        for dataset in datasets
        for method in methods
    ]


# --- the summary -----------------------------------------------------------------------------------------------
def summarise(records: Sequence[Record]) -> Summary:
    """Return the content of ``protocol.json``."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["dataset"], record["method"]].append(record)
    clustering: dict[str, dict[str, Cell]] = defaultdict(dict)
    unseen: dict[str, dict[str, Unseen]] = defaultdict(dict)
    sizes: dict[str, dict[str, int]] = {}
    for (dataset, method), group in groups.items():
        if method.startswith("unseen-"):
            unseen[title_of(dataset)][method.removeprefix("unseen-")] = _unseen(group)
            sizes[title_of(dataset)] = {name: int(group[0]["details"][name]) for name in _SIZES}
        else:
            clustering[title_of(dataset)][method] = _cell(group)
    return {
        "title": TITLE,
        "version": tubal.__version__,
        "defaults": hash_of_defaults(),
        "settings": {name: settings_for(name) for name in METHODS},
        "methods": {name: method.title for name, method in METHODS.items() if not name.startswith("unseen-")},
        "features": dict(_TITLES),
        "clustering": dict(clustering),
        "unseen": dict(unseen),
        "sizes": sizes,
        "data_sha256": {title_of(record["dataset"]): record["data_sha256"] for record in records},
    }


def _cell(group: Sequence[Record]) -> Cell:
    details = [record["details"] for record in group]
    found = None
    if all("gap" in entry for entry in details):
        found = {name: statistics.mean(entry[name] for entry in details) for name in ("density", "n_iter", "converged")}
        found["gap"] = max(entry["gap"] for entry in details)
    return {
        "runs": len(group),
        "accuracy": _spread([record["accuracy"] for record in group]),
        "nmi": _spread([record["nmi"] for record in group]),
        "seconds": round(statistics.mean(record["seconds"] for record in group), 2),
        "certificate": found,
    }


def _unseen(group: Sequence[Record]) -> Unseen:
    return {
        "runs": len(group),
        "linear": _spread([record["details"]["linear"] for record in group]),
        "neighbors": _spread([record["details"]["neighbors"] for record in group]),
        "shifts": {
            kind: {
                str(pixels): _spread([record["variants"][f"{kind}, {pixels}"]["nmi"] for record in group])
                for pixels in SHIFTS
            }
            for kind in SHIFT_KINDS
        },
        "seconds": round(statistics.mean(record["seconds"] for record in group), 2),
    }


def _spread(values: Sequence[float]) -> MeanAndDeviation:
    return round(statistics.mean(values), 2), round(standard_deviation(values), 2)


# --- the page --------------------------------------------------------------------------------------------------
def page(summary: Summary) -> str:
    """Return the whole of ``protocol.md``."""
    parts = [
        f"# {summary['title']}",
        f"Every method at the frozen defaults of tubal {summary['version']}: no setting depends on the images. The "
        f"hash of the defaults is `{summary['defaults']}`. Scores are in percent, mean ± standard deviation of the "
        "runs; NMI is normalised by the larger entropy. Labels are used for the scores only. The gap is the largest "
        "relative duality gap of the final codes. Made by `tubal reproduce --table protocol --images PATH`, which "
        "takes a folder with one sub-folder for each class, an archive of such a folder, or an array file with labels. "
        "CSC codes every filter at every pixel and is by far the slowest; `--methods` can leave it out.",
    ]
    for dataset in summary["data_sha256"]:
        parts += [f"## {dataset}", _describe_images(summary, dataset)]
        if dataset in summary["clustering"]:
            parts += ["### Clusters of all images", _clustering_table(summary, dataset)]
        if dataset in summary["unseen"]:
            parts += [
                "### Images that were not seen in fitting",
                "Features are fitted to a random half of the images. Accuracy on the other half, in percent, of a "
                "logistic regression and of the 5 nearest neighbours. The seconds are those of the fit and of the "
                f"features of all images and of {2 * (len(SHIFTS) - 1)} shifted copies of the other half.",
                _unseen_table(summary, dataset),
                "NMI of K-means clusters, fitted to the first half, of the other half when it is shifted by so many "
                "pixels to the right: *circle* wraps around, *border* repeats the border.",
                _shift_table(summary, dataset),
            ]
    return join_parts(parts)


def _describe_images(summary: Summary, dataset: str) -> str:
    size = summary["sizes"].get(dataset)
    found = "" if size is None else "{images} grey images of {height}×{width} in {classes} classes; ".format(**size)
    # So that nobody takes digits for images that no choice has seen.
    seen = "" if dataset != "digits" else " The sparsity of the label-free rule was chosen on them, without labels."
    return f"{found}SHA-256 `{summary['data_sha256'][dataset]}`.{seen}"


def _clustering_table(summary: Summary, dataset: str) -> str:
    body = []
    for method, title in summary["methods"].items():
        cell = summary["clustering"][dataset].get(method)
        if cell is None:
            continue
        found = cell["certificate"]
        certificate = ["", "", "", ""]
        if found is not None:
            certificate = [f"{found['gap']:.1e}", f"{100 * found['density']:.1f} %", f"{found['n_iter']:.1f}"]
            certificate.append(f"{100 * found['converged']:.0f} %")
        scores = [_spread_text(cell[score], cell["runs"]) for score in SCORES]
        body.append([title, str(cell["runs"]), *scores, f"{cell['seconds']:.1f}", *certificate])
    head = ["method", "runs", "accuracy", "NMI", "seconds", "gap", "non-zeros", "alternations", "runs converged"]
    return markdown_table(head, body)


def _unseen_table(summary: Summary, dataset: str) -> str:
    body = []
    for name, cell in _in_order(summary, dataset):
        scores = [_spread_text(spread, cell["runs"]) for spread in (cell["linear"], cell["neighbors"])]
        body.append([summary["features"][name], str(cell["runs"]), *scores, f"{cell['seconds']:.1f}"])
    return markdown_table(["features", "runs", "linear classifier", "nearest neighbours", "seconds"], body)


def _shift_table(summary: Summary, dataset: str) -> str:
    body = []
    for name, cell in _in_order(summary, dataset):
        for kind in SHIFT_KINDS:
            scores = [_spread_text(spread, cell["runs"]) for spread in cell["shifts"][kind].values()]
            body.append([summary["features"][name], kind.split(",")[0], *scores])
    return markdown_table(["features", "shift", *map(str, SHIFTS)], body)


def _in_order(summary: Summary, dataset: str) -> list[tuple[str, Unseen]]:
    """Return the features of a collection in the order of the page, whatever the order of the trials."""
    cells = summary["unseen"][dataset]
    return [(name, cells[name]) for name in summary["features"] if name in cells]


def _spread_text(spread: MeanAndDeviation, runs: int) -> str:
    """Return mean and standard deviation; the mean alone if there is one run."""
    return f"{spread[0]:.1f} ± {spread[1]:.1f}" if runs > 1 else f"{spread[0]:.1f}"


# --- files -----------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``protocol.json`` and ``protocol.md``; return the paths."""
    summary = summarise(records)
    return write_summary("protocol", summary, page(summary), folder)
