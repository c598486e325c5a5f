"""The frozen protocol: every method at frozen defaults on labelled images that nobody looked at while choosing them.

Three parts: clusters of all images; features of images that the coder was not fitted to, judged by a linear classifier
and by nearest neighbours; and clusters of such images when they are shifted. Labels are used for the scores only.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from sklearn.base import TransformerMixin

from tubal.experiments import table2
from tubal.experiments.methods import default_preset, normalize_images, shift_images
from tubal.experiments.pages import join_parts, markdown_table, write_summary
from tubal.experiments.tables import SCORES, Images, Method, Outcome, Record, Settings, Trial, standard_deviation

TITLE = "The frozen protocol"
DATASETS = ("digits",)
EXTRA_DATASETS = table2.DATASETS
RUNS = 3
SHIFTS = (0, 1, 2, 3, 4)
SHIFT_KINDS = ("circle, right", "border, right")
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


class Cell(TypedDict):
    """Mean and standard deviation of both scores, and the certificate of a method's codes if it has any."""

    runs: int
    accuracy: tuple[float, float]
    nmi: tuple[float, float]
    certificate: dict[str, float] | None


class Unseen(TypedDict):
    """Features of unseen images: accuracy of two classifiers, and NMI of clusters by kind of shift and pixels."""

    linear: float
    neighbors: float
    shifts: dict[str, dict[str, float]]


class Summary(TypedDict):
    """The content of ``protocol.json``."""

    title: str
    defaults: str
    settings: dict[str, Any]
    methods: dict[str, str]
    features: dict[str, str]
    clustering: dict[str, dict[str, Cell]]
    unseen: dict[str, dict[str, Unseen]]
    data_sha256: dict[str, str]


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
        model = feature_model(name, settings, seed).fit(images[train])
        features = unit_rows(np.asarray(model.transform(images)))
        groups = KMeans(n_clusters, n_init=10, random_state=seed).fit(features[train])
        labels = {}
        for kind in SHIFT_KINDS:
            for pixels in settings["shifts"]:
                moved = unit_rows(np.asarray(model.transform(shift_images(images[~train], pixels, kind))))
                labels[f"{kind}, {pixels}"] = np.full(len(images), -1)
                labels[f"{kind}, {pixels}"][~train] = groups.predict(moved)
        return Outcome(labels[f"{SHIFT_KINDS[0]}, 0"], {}, labels, features, train)

    return cluster


def feature_model(name: str, settings: Settings, seed: int) -> TransformerMixin:
    """Return the unfitted model of features: one of tubal's coders at its defaults, or a common alternative."""
    from sklearn.decomposition import PCA, MiniBatchDictionaryLearning
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    from tubal import CSC, GTSC, SparseCoding, TenSR, TubSC

    flatten = FunctionTransformer(_as_rows)
    if name == "pixels":
        return flatten
    if name == "pca":
        return make_pipeline(flatten, PCA(settings["n_atoms"], random_state=seed))
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
    coders = {"sc": SparseCoding, "tensr": TenSR, "csc": CSC, "tubsc": TubSC, "gtsc": GTSC}
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return coders[name](**{key: given[key] for key in ("n_atoms", "filter_shape") if key in given}, random_state=seed)


def _as_rows(images: Images) -> Images:
    return images.reshape(len(images), -1)


# --- the plan --------------------------------------------------------------------------------------------------
METHODS: Mapping[str, Method] = {
    **table2.METHODS,
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
    return table2.settings_for("label-free", method, "")


def hash_of_defaults() -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of all frozen settings."""
    text = json.dumps({name: settings_for(name) for name in METHODS}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    for (dataset, method), group in groups.items():
        if method.startswith("unseen-"):
            unseen[dataset][method.removeprefix("unseen-")] = _unseen(group)
        else:
            clustering[dataset][method] = _cell(group)
    return {
        "title": TITLE,
        "defaults": hash_of_defaults(),
        "settings": {name: settings_for(name) for name in METHODS},
        "methods": {name: method.title for name, method in METHODS.items() if not name.startswith("unseen-")},
        "features": dict(_TITLES),
        "clustering": dict(clustering),
        "unseen": dict(unseen),
        "data_sha256": {record["dataset"]: record["data_sha256"] for record in records},
    }


def _cell(group: Sequence[Record]) -> Cell:
    accuracy, nmi = ([record[score] for record in group] for score in SCORES)
    details = [record["details"] for record in group]
    found = None
    if all("gap" in entry for entry in details):
        found = {name: statistics.mean(entry[name] for entry in details) for name in ("density", "n_iter", "converged")}
        found["gap"] = max(entry["gap"] for entry in details)
    return {
        "runs": len(group),
        "accuracy": (round(statistics.mean(accuracy), 2), round(standard_deviation(accuracy), 2)),
        "nmi": (round(statistics.mean(nmi), 2), round(standard_deviation(nmi), 2)),
        "certificate": found,
    }


def _unseen(group: Sequence[Record]) -> Unseen:
    shifts = {
        kind: {
            str(pixels): round(statistics.mean(record["variants"][f"{kind}, {pixels}"]["nmi"] for record in group), 2)
            for pixels in SHIFTS
        }
        for kind in SHIFT_KINDS
    }
    mean = {name: statistics.mean(record["details"][name] for record in group) for name in ("linear", "neighbors")}
    return {"linear": round(mean["linear"], 2), "neighbors": round(mean["neighbors"], 2), "shifts": shifts}


# --- the page --------------------------------------------------------------------------------------------------
def page(summary: Summary) -> str:
    """Return the whole of ``protocol.md``."""
    parts = [
        f"# {summary['title']}",
        f"Every method at frozen defaults; the hash of the defaults is `{summary['defaults']}`. Scores are in percent, "
        "mean ± standard deviation of the runs; NMI is normalised by the larger entropy. The gap is the largest "
        "relative duality gap of the final codes. Made by `tubal reproduce --table protocol --images PATH`.",
    ]
    for dataset in summary["data_sha256"]:
        parts.append(f"## {Path(dataset).name}")
        if dataset in summary["clustering"]:
            parts += ["### Clusters of all images", _clustering_table(summary, dataset)]
        if dataset in summary["unseen"]:
            parts += [
                "### Images that were not seen in fitting",
                "Features are fitted to a random half of the images. Accuracy on the other half, in percent, of a "
                "logistic regression and of the 5 nearest neighbours.",
                _unseen_table(summary, dataset),
                "NMI of K-means clusters, fitted to the first half, of the other half when it is shifted by so many "
                "pixels to the right: *circle* wraps around, *border* repeats the border.",
                _shift_table(summary, dataset),
            ]
    return join_parts(parts)


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
        scores = [f"{cell[score][0]:.1f} ± {cell[score][1]:.1f}" for score in SCORES]
        body.append([title, *scores, *certificate])
    return markdown_table(["method", "accuracy", "NMI", "gap", "non-zeros", "alternations", "runs converged"], body)


def _unseen_table(summary: Summary, dataset: str) -> str:
    body = [
        [summary["features"][name], f"{cell['linear']:.1f}", f"{cell['neighbors']:.1f}"]
        for name, cell in summary["unseen"][dataset].items()
    ]
    return markdown_table(["features", "linear classifier", "nearest neighbours"], body)


def _shift_table(summary: Summary, dataset: str) -> str:
    body = [
        [summary["features"][name], kind.split(",")[0], *(f"{value:.1f}" for value in cell["shifts"][kind].values())]
        for name, cell in summary["unseen"][dataset].items()
        for kind in SHIFT_KINDS
    ]
    return markdown_table(["features", "shift", *map(str, SHIFTS)], body)


# --- files -----------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``protocol.json`` and ``protocol.md``; return the paths."""
    summary = summarise(records)
    return write_summary("protocol", summary, page(summary), folder)
