"""What a few answers are worth: accuracy against the number of answers, for tubal and for its peers.

A simulated person answers from the true labels, which no method sees otherwise. *Chosen* answers are those that
``questions`` asks for, in rounds; *random* ones are the same number for each class, drawn at random, and all methods
get the same draw. Scores are given with the answered images and without them.

Peers are label spreading (Zhou et al., 2003, scikit-learn) and Poisson learning (Calder, Cook, Thorpe, Slepčev, 2020),
each on UMAP's neighbour graph of the pixels and on the graph that tubal cuts, K-means whose clusters get the most
frequent name of their answers, and a linear classifier on the features of a network trained on photographs, where that
view is installed and images are large enough for it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.utils import Bunch

from tubal import ImageClusterer
from tubal.backends.network import SIDE, SeenPictures, why_missing
from tubal.clustering.views import (
    COLOUR,
    LEAST_SIDE,
    SEMANTIC,
    SHAPE,
    built_in_views,
    has_colour,
    in_unit_range,
    network_parts,
)
from tubal.datasets import fetch, load_images
from tubal.experiments.methods import normalize_images
from tubal.experiments.pages import join_parts, list_versions, markdown_table, write_summary
from tubal.experiments.tables import Images, Labels, Method, Outcome, Record, Settings, Trial, standard_deviation
from tubal.graph.structure import SparseMatrix
from tubal.images.pictures import SecondLook
from tubal.problems.layout import unit_rows

TITLE = "What a few answers are worth"
PILES = (
    "bccd", "emoji", "flowers", "groceries", "gtsrb", "notmnist", "omniglot_latin", "plankton", "signdigits", "steel",
)  # fmt: skip
DATASETS = ("coil20", "usps", "orl", "yale", "digits")
EXTRA_DATASETS = ("fashion-mnist", *PILES)
# Answers per class for which random answers are drawn, and images a chosen round asks about.
PER_CLASS, ROUND = (1, 2, 3, 5), 10
# Rows have unit length and answers are few, so the penalty of the linear classifier is small.
_LINEAR_C = 100.0
# Runs of the growing collection: each needs two fits.
_GROWTH_RUNS = 3
_FASHION = Path("/usr/share/datasets/fashion-mnist")

# Lines of the page: what is measured, in the order of the columns.
LINES: Mapping[str, str] = {
    "chosen": "tubal, chosen answers",
    "random": "tubal, random answers",
    "spreading ours": "label spreading, tubal's graph",
    "poisson ours": "Poisson learning, tubal's graph",
    "spreading umap": "label spreading, UMAP's graph",
    "poisson umap": "Poisson learning, UMAP's graph",
    "kmeans": "K-means and naming",
    "linear": "linear classifier, network features",
}


def _not_without_labels(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    raise ValueError("this table needs the labels for its simulated person; it is run by measure()")


METHODS: Mapping[str, Method] = {
    "answers": Method("Answers", _not_without_labels, ("n_rounds",)),
    "growth": Method("Growth", _not_without_labels, ("batches",)),
}


# --- collections -------------------------------------------------------------------------------------------------
def load(dataset: str) -> tuple[Images, Labels, str]:
    """Return the images, labels and hash of a collection; piles are zip files in the folder TUBAL_PILES."""
    if dataset == "fashion-mnist":
        return _load_fashion()
    if dataset not in PILES:
        bunch = fetch(dataset)
        return bunch.images, bunch.target, bunch.sha256
    file = _pile_file(dataset)
    pile = _read_pile(file)
    target = np.unique(pile.target, return_inverse=True)[1]
    return pile.images, target, hashlib.sha256(file.read_bytes()).hexdigest()


def _pile_file(dataset: str) -> Path:
    folder = os.environ.get("TUBAL_PILES")
    if not folder or not (Path(folder) / f"{dataset}.zip").is_file():
        raise FileNotFoundError(f"there is no {dataset}.zip; name the folder of the piles in TUBAL_PILES")
    return Path(folder) / f"{dataset}.zip"


@cache
def _read_pile(path: Path) -> Bunch:
    """Return a pile as ``tubal cluster`` reads it: the network, if it is installed, sees the pictures at full size."""
    ready = not why_missing()
    look = SecondLook(SeenPictures().describe, SIDE, least_side=LEAST_SIDE, ready=lambda _: ready)
    return load_images(path, look=look)


def _views(dataset: str, images: Images) -> dict[str, NDArray[Any] | None] | str:
    """Return the views of a collection: of a pile, what the network saw; "auto" where it saw nothing."""
    described = _read_pile(_pile_file(dataset)).described if dataset in PILES else None
    if described is None:
        return "auto"
    own = (SHAPE, COLOUR) if has_colour(images) else (SHAPE,)
    return dict.fromkeys(own) | network_parts(described)


def _load_fashion() -> tuple[Images, Labels, str]:
    """Return the 10 000 test images of Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017), from its Debian package."""
    files = [_FASHION / f"t10k-{part}-ubyte.gz" for part in ("images-idx3", "labels-idx1")]
    if not all(file.is_file() for file in files):
        raise FileNotFoundError("Fashion-MNIST is missing: install the Debian package dataset-fashion-mnist")
    pixels, labels = (gzip.decompress(file.read_bytes()) for file in files)
    images = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28).astype(np.float32) / 255
    target = np.frombuffer(labels, np.uint8, offset=8).astype(np.intp)
    return images, target, hashlib.sha256(pixels).hexdigest()


# --- scores ------------------------------------------------------------------------------------------------------
def named_accuracy(target: Labels, names: Labels, clusters: Labels, counted: NDArray[np.bool_]) -> float:
    """Return the percentage of counted images with the right name.

    Images without a name (-1) are in clusters without one. Those clusters are matched with classes the best way, one
    to one, as all clusters are without any answers. A class whose name was given to a part of it can still have one
    more cluster: otherwise a right name for a small cluster would make the large one of the same class wrong.

    >>> named_accuracy(np.array([0, 0, 1, 1]), np.array([0, 0, -1, -1]), np.array([0, 0, 1, 2]), np.ones(4, bool))
    75.0
    """
    right = int(np.sum((names == target) & counted))
    open_images = (names < 0) & counted
    if open_images.any():
        table = np.zeros((int(clusters.max()) + 1, int(target.max()) + 1))
        np.add.at(table, (clusters[open_images], target[open_images]), 1)
        rows, columns = linear_sum_assignment(-table)
        right += int(table[rows, columns].sum())
    return 100.0 * right / max(int(counted.sum()), 1)


def _both_scores(target: Labels, names: Labels, clusters: Labels, answered: NDArray[np.intp]) -> tuple[float, float]:
    everything = np.ones(len(target), dtype=np.bool_)
    others = everything.copy()
    others[answered] = False
    return named_accuracy(target, names, clusters, everything), named_accuracy(target, names, clusters, others)


# --- methods -----------------------------------------------------------------------------------------------------
def draw_answers(target: Labels, per_class: int, seed: int) -> NDArray[np.intp]:
    """Return ``per_class`` random images of each class, fewer where a class has fewer."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(np.flatnonzero(target == label))[:per_class] for label in np.unique(target)])


def label_spreading(graph: SparseMatrix, answered: NDArray[np.intp], target: Labels) -> Labels:
    """Return the labels of scikit-learn's label spreading on a graph, with alpha = 0.99."""
    from sklearn.semi_supervised import LabelSpreading

    known = np.full(len(target), -1)
    known[answered] = target[answered]
    model = LabelSpreading(kernel=lambda *_: graph, alpha=0.99, max_iter=200, tol=1e-3)
    rows = np.zeros((len(target), 1))
    return np.asarray(model.fit(rows, known).transduction_, dtype=np.intp)


def poisson_learning(graph: SparseMatrix, answered: NDArray[np.intp], target: Labels, n_steps: int = 300) -> Labels:
    """Return the labels of Poisson learning: ``u <- u + D^-1 (b - L u)`` with point sources b at the answers.

    The sources of each class are centred, and the largest value of ``u`` decides (Calder et al., 2020, Algorithm 1,
    without class sizes).

    >>> chain = sparse.csr_matrix(np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1))
    >>> poisson_learning(chain, np.array([0, 3]), np.array([5, 5, 7, 7]))
    array([5, 5, 7, 7])
    """
    classes = np.unique(target[answered])
    sources = np.zeros((graph.shape[0], len(classes)))
    sources[answered] = (target[answered][:, None] == classes) - np.mean(target[answered][:, None] == classes, axis=0)
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    degrees = np.where(degrees > 0.0, degrees, 1.0)[:, None]
    found = np.zeros_like(sources)
    for _ in range(n_steps):
        found += (sources - degrees * found + graph @ found) / degrees
    return np.asarray(classes[found.argmax(axis=1)], dtype=np.intp)


def umap_graph(images: Images, n_neighbors: int = 15) -> SparseMatrix:
    """Return UMAP's fuzzy graph (McInnes, Healy, Melville, 2018) of the pixels of unit length.

    The weight from an image to its neighbours at distances ``d`` is ``exp(-(d - d_1) / s)``, with ``s`` such that the
    weights sum to ``log2(n_neighbors)``; two directions are joined as ``a + b - a b``.
    """
    from sklearn.neighbors import NearestNeighbors

    rows = normalize_images(images, "unit").reshape(len(images), -1)
    n_neighbors = min(n_neighbors, len(rows) - 1)
    distances, indices = NearestNeighbors(n_neighbors=n_neighbors).fit(rows).kneighbors()
    beyond = distances - distances[:, :1]
    low, high = np.zeros(len(rows)), np.full(len(rows), 10.0 * max(float(beyond.max()), 1e-6))
    for _ in range(60):
        scale = (low + high) / 2.0
        too_large = np.exp(-beyond / scale[:, None]).sum(axis=1) > np.log2(n_neighbors)
        low, high = np.where(too_large, low, scale), np.where(too_large, scale, high)
    weights = np.exp(-beyond / np.maximum(high, 1e-9)[:, None])
    ends = np.arange(0, weights.size + 1, n_neighbors)
    one_way = sparse.csr_matrix((weights.ravel(), indices.ravel(), ends), shape=(len(rows), len(rows)))
    return sparse.csr_matrix(one_way + one_way.T - one_way.multiply(one_way.T))


def name_clusters(clusters: Labels, answered: NDArray[np.intp], target: Labels) -> Labels:
    """Return the most frequent answer of each image's cluster; -1 where nobody answered.

    >>> name_clusters(np.array([0, 0, 0, 1]), np.array([0, 1]), np.array([4, 4, 6, 6]))
    array([ 4,  4,  4, -1])
    """
    names = np.full(int(clusters.max()) + 1, -1, np.intp)
    for cluster in np.unique(clusters[answered]):
        values, counts = np.unique(target[answered[clusters[answered] == cluster]], return_counts=True)
        names[cluster] = values[counts.argmax()]
    return names[clusters]


def network_features(clusterer: ImageClusterer, images: Images) -> NDArray[np.floating[Any]] | None:
    """Return what the network sees in the images (n, d), rows of unit length; None if the fit had no such view."""
    if isinstance(clusterer.views, dict):
        return np.asarray(unit_rows(clusterer.views[SEMANTIC]))
    graph = clusterer.view_graphs_.get(SEMANTIC)
    if graph is None:
        return None
    search: Any = graph.search  # a view without any trust has forgotten its features
    if search is not None:
        return np.asarray(unit_rows(np.asarray(search.images)))
    return np.asarray(unit_rows(built_in_views()[SEMANTIC].describe(in_unit_range(images, clusterer.white_))))


def linear_classifier(rows: NDArray[np.floating[Any]], answered: NDArray[np.intp], target: Labels) -> Labels:
    """Return the labels of a logistic regression on features of unit length, learned from the answers.

    >>> linear_classifier(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), np.array([0, 2]), np.array([4, 4, 7]))
    array([4, 4, 7])
    """
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=_LINEAR_C, max_iter=2000).fit(rows[answered], target[answered])
    return np.asarray(model.predict(rows), dtype=np.intp)


def _names_of(clusterer: ImageClusterer) -> Labels:
    named = np.array([-1 if name is None else int(name) for name in clusterer.names_], dtype=np.intp)
    return named[clusterer.labels_]


# --- trials ------------------------------------------------------------------------------------------------------
def measure(trial: Trial, images: Images, target: Labels) -> Outcome:
    """Run a trial; the labels are the answers of the simulated person."""
    labels = np.asarray(target, dtype=np.intp)
    if trial["method"] == "growth":
        return _measure_growth(images, labels, trial["run"])
    return _measure_answers(images, labels, trial["run"], _views(trial["dataset"], images))


def _measure_answers(
    images: Images, target: Labels, seed: int, views: dict[str, NDArray[Any] | None] | str = "auto"
) -> Outcome:
    n_classes = len(np.unique(target))
    clusterer = ImageClusterer(n_classes, views=views, random_state=seed).fit(images)
    nobody = np.empty(0, np.intp)
    base = _both_scores(target, np.full(len(target), -1), clusterer.labels_, nobody)[0]
    details = {"base": base, "n_classes": float(n_classes), "n_images": float(len(images))}
    affinity = clusterer.affinity_
    details |= _random_scores(images, target, affinity, clusterer, seed)
    details |= _chosen_scores(target, clusterer)
    return Outcome(clusterer.labels_, details)


def _random_scores(
    images: Images, target: Labels, affinity: SparseMatrix, clusterer: ImageClusterer, seed: int
) -> dict[str, float]:
    """Return the scores of all methods with random answers."""
    from sklearn.cluster import KMeans

    n_classes = len(np.unique(target))
    found: dict[str, float] = {}
    rows = normalize_images(images, "unit").reshape(len(images), -1)
    clusters = KMeans(n_classes, n_init=3, random_state=seed).fit_predict(rows).astype(np.intp)
    graphs = {"ours": affinity, "umap": umap_graph(images)}
    seen = network_features(clusterer, images)
    for per_class in PER_CLASS:
        answered = draw_answers(target, per_class, seed)
        results: dict[str, tuple[Labels, Labels]] = {"kmeans": (name_clusters(clusters, answered, target), clusters)}
        for name, graph in graphs.items():
            results[f"spreading {name}"] = (label_spreading(graph, answered, target), clusters)
            results[f"poisson {name}"] = (poisson_learning(graph, answered, target), clusters)
        if seen is not None:
            results["linear"] = (linear_classifier(seen, answered, target), clusters)
        clusterer.refine({int(i): str(target[i]) for i in answered})
        results["random"] = (_names_of(clusterer), clusterer.labels_)
        clusterer.forget(clusterer.hints_.images)
        for name, (names, anonymous) in results.items():
            whole, others = _both_scores(target, names, anonymous, answered)
            found |= {f"{name} @{per_class} all": whole, f"{name} @{per_class} others": others}
    return found


def _chosen_scores(target: Labels, clusterer: ImageClusterer) -> dict[str, float]:
    """Return the scores after every round of questions, and the longest times after the first round."""
    n_classes = len(np.unique(target))
    stops = {per_class * n_classes for per_class in PER_CLASS}
    most = min(max(stops), len(target) // 2)
    found: dict[str, float] = {}
    asking, refining = [], []
    while len(clusterer.hints_) < most:
        n_known = len(clusterer.hints_)
        # A round ends where scores are compared with those of random answers.
        size = min([ROUND, most - n_known, *(stop - n_known for stop in stops if stop > n_known)])
        begin = time.perf_counter()
        asked: Any = clusterer.questions(size)
        middle = time.perf_counter()
        if len(asked) == 0:
            break
        clusterer.refine({int(i): str(target[i]) for i in asked})
        asking.append(middle - begin)
        refining.append(time.perf_counter() - middle)
        answered = np.array(clusterer.hints_.images)
        whole, others = _both_scores(target, _names_of(clusterer), clusterer.labels_, answered)
        found |= {f"chosen {len(answered)} all": whole, f"chosen {len(answered)} others": others}
        found[f"doubtful {len(answered)}"] = float(clusterer.n_doubtful_)
    found["questions seconds"] = max(asking[1:], default=0.0)
    found["refine seconds"] = max(refining[1:], default=0.0)
    return found


def _measure_growth(images: Images, target: Labels, seed: int) -> Outcome:
    """Fit 90 % of the images and add the rest in ten batches; compare with a fit of all."""
    n_classes, order = len(np.unique(target)), np.random.default_rng(seed).permutation(len(images))
    first, batches = order[: round(0.9 * len(order))], np.array_split(order[round(0.9 * len(order)) :], 10)
    whole = ImageClusterer(n_classes, random_state=seed).fit(images)
    grown = ImageClusterer(n_classes, random_state=seed).fit(images[first])
    nobody = np.empty(0, np.intp)
    start = _both_scores(target[first], np.full(len(first), -1), grown.labels_, nobody)[0]
    seconds = []
    for batch in batches:
        begin = time.perf_counter()
        grown.update(images[batch])
        seconds.append(time.perf_counter() - begin)
    labels = np.empty(len(images), np.intp)
    labels[order] = grown.labels_
    none = np.full(len(images), -1)
    scores = [_both_scores(target, none, found, nobody)[0] for found in (whole.labels_, labels)]
    details = {"fit": scores[0], "first": start, "grown": scores[1], "clusters": float(grown.n_clusters_)}
    return Outcome(labels, details | {"update seconds": max(seconds), "batch": float(len(batches[0]))})


def plan(datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False) -> list[Trial]:
    """Return one trial per collection and seed; ``sweep`` adds nothing."""
    return [
        Trial(table="hints", dataset=dataset, method=method, row="table", run=run, settings={})
        for run in range(runs)
        for dataset in datasets
        for method in methods
        if method == "answers" or (run < _GROWTH_RUNS and dataset in DATASETS)
    ]


# --- the summary -------------------------------------------------------------------------------------------------
class WorstRound(TypedDict):
    """The round after which the mean accuracy had fallen most, and by how much."""

    change: float
    n_answers: int


class Summary(TypedDict):
    """The content of ``hints.json``: means over the seeds."""

    title: str
    datasets: list[str]
    runs: dict[str, int]
    n_classes: dict[str, int]
    base: dict[str, float]
    chosen: dict[str, dict[str, dict[str, float]]]  # by collection and number of answers
    random: dict[str, dict[str, dict[str, dict[str, float]]]]  # by collection, answers per class and line
    doubtful: dict[str, dict[str, float]]
    worst_round: dict[str, WorstRound]
    seconds: dict[str, dict[str, float]]
    growth: dict[str, dict[str, float]]
    versions: dict[str, str]
    data_sha256: dict[str, str]


def summarise(records: Sequence[Record]) -> Summary:
    """Return the content of ``hints.json``."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["method"], record["dataset"]].append(record)
    datasets = [name for name in (*DATASETS, *EXTRA_DATASETS) if groups["answers", name]]
    means = {name: _means(groups["answers", name]) for name in datasets}
    chosen = {name: _curve(means[name], "chosen") for name in datasets}
    return {
        "title": TITLE,
        "datasets": datasets,
        "runs": {name: len(groups["answers", name]) for name in datasets},
        "n_classes": {name: round(means[name]["n_classes"]) for name in datasets},
        "base": {name: round(means[name]["base"], 2) for name in datasets},
        "chosen": chosen,
        "random": {name: _random_lines(means[name]) for name in datasets},
        "doubtful": {
            name: {
                key.split()[1]: round(value, 1)
                for key, value in means[name].items()
                if key.startswith("doubtful ") and not key.endswith("±")
            }
            for name in datasets
        },
        "worst_round": {name: _worst_round(means[name]["base"], chosen[name]) for name in datasets},
        "seconds": {
            name: {part: round(means[name][f"{part} seconds"], 4) for part in ("questions", "refine")}
            for name in datasets
        },
        "growth": {
            name: {key: round(value, 3) for key, value in _means(found).items()}
            for (method, name), found in groups.items()
            if method == "growth" and found
        },
        "versions": records[-1]["versions"] if records else {},
        "data_sha256": {record["dataset"]: record["data_sha256"] for record in records},
    }


def _means(records: Sequence[Record]) -> dict[str, float]:
    """Return the mean of every number that all records have, and its standard deviation under the key with "±"."""
    common = set.intersection(*(set(record["details"]) for record in records))
    order = [key for key in records[0]["details"] if key in common]
    values = {key: [record["details"][key] for record in records] for key in order}
    means = {key: statistics.mean(found) for key, found in values.items()}
    return means | {f"{key} ±": standard_deviation(found) for key, found in values.items()}


# Of all images and of those that were not asked about: means and standard deviations.
_PARTS = ("all", "others", "all ±", "others ±")


def _curve(means: Mapping[str, float], line: str) -> dict[str, dict[str, float]]:
    counts = sorted((key.split()[1] for key in means if key.startswith(f"{line} ") and key.endswith(" all")), key=int)
    return {n: {part: round(means[f"{line} {n} {part}"], 2) for part in _PARTS} for n in counts}


def _random_lines(means: Mapping[str, float]) -> dict[str, dict[str, dict[str, float]]]:
    return {
        str(n): {
            line: {part: round(means[f"{line} @{n} {part}"], 2) for part in _PARTS}
            for line in LINES
            if f"{line} @{n} all" in means
        }
        for n in PER_CLASS
    }


def _worst_round(base: float, curve: Mapping[str, Mapping[str, float]]) -> WorstRound:
    """Return the largest fall of the mean accuracy from one round to the next, negative, or 0, and where it is."""
    values = [base, *(scores["all"] for scores in curve.values())]
    changes = {n: after - before for n, (before, after) in zip(curve, pairwise(values), strict=True)}
    n_answers = min(changes, key=lambda n: changes[n], default="0")
    return {"change": round(min(0.0, changes.get(n_answers, 0.0)), 2), "n_answers": int(n_answers)}


def _worst_text(worst: WorstRound) -> str:
    return "none" if worst["change"] == 0.0 else f"{worst['change']:.1f} at {worst['n_answers']} answers"


def _score(summary: Summary, name: str, per_class: int, line: str, part: str) -> float | None:
    if line == "chosen":
        found = summary["chosen"][name].get(str(per_class * summary["n_classes"][name]), {})
    else:
        found = summary["random"][name][str(per_class)].get(line, {})
    # An accuracy of 0 means that every image was asked about.
    return None if part.startswith("others") and not found.get("others") else found.get(part)


# --- the page ----------------------------------------------------------------------------------------------------
def page(summary: Summary) -> str:
    """Return the whole of ``hints.md``."""
    parts = [
        f"# {TITLE}",
        "Accuracy in percent against the number of answers, mean ± standard deviation over the runs. A simulated "
        "person answers from the labels. *Chosen* answers are to the questions of `ImageClusterer.questions`, in "
        "rounds of ten. *Random* ones are drawn from every class alike, which tells a method which classes there are. "
        "Clusters without a name are matched with classes the best way, one to one; elsewhere an image is right if "
        "its name is right. A dash stands where nothing was measured, or where every image was asked about. Piles "
        "are read as `tubal cluster` reads them, as in the [table of piles](piles.md).",
    ]
    for per_class in (2, 5):
        parts += [f"## {per_class} answers per class", _score_table(summary, per_class, "all")]
        parts += ["The same without the answered images:", _score_table(summary, per_class, "others")]
    parts += [
        _advantage(summary),
        "## Rounds and times",
        "The largest fall of the mean accuracy from one round to the next and the number of answers after that round, "
        "how many images were wrong and how many `n_doubtful_` expected after 5 answers per class, and the longest "
        "call after the first round. Accuracy can fall when a cluster gets its first name: before, it is matched with "
        "the class of most of its images, which an answer about one image need not be.",
        _round_table(summary),
        "## A collection that grows",
        "90 % of the images are fitted and the rest is added in ten batches, against a fit of all. Images keep the "
        "clusters of the first fit, whose accuracy on its own images is given, too. Where classes have about ten "
        "images, as in orl and yale, a tenth of the images can change the cut of all others: fit such a collection "
        "again when it has grown.",
        _growth_table(summary),
        "## Curves",
        "Accuracy against the number of answers. The line of chosen answers should lie above the others and not fall.",
        *(f"![{name}: accuracy against answers](figures/hints-{name}.png)" for name in summary["datasets"]),
        "## How it was made",
        f"By `tubal reproduce --table hints`; run i uses seed i, {max(summary['runs'].values(), default=0)} runs. "
        f"Versions: {list_versions(summary['versions'])}.",
    ]
    return join_parts(parts)


def _score_table(summary: Summary, per_class: int, part: str) -> str:
    body = []
    for name in summary["datasets"]:
        cells = [[_score(summary, name, per_class, line, kind) for kind in (part, f"{part} ±")] for line in LINES]
        texts = ["–" if mean is None else f"{mean:.1f} ± {spread or 0.0:.1f}" for mean, spread in cells]
        body.append([name, str(summary["runs"][name]), f"{summary['base'][name]:.1f}", *texts])
    return markdown_table(["collection", "runs", "no answers", *LINES.values()], body) if body else ""


def _advantage(summary: Summary) -> str:
    """Return one sentence about chosen answers against random ones with label spreading."""
    gaps = []
    for name in summary["datasets"]:
        ours = _score(summary, name, 5, "chosen", "all")
        best = max(_score(summary, name, 5, f"spreading {graph}", "all") or 0.0 for graph in ("ours", "umap"))
        if ours is not None:
            gaps.append(ours - best)
    if not gaps:
        return ""
    return (
        f"With 5 answers per class, chosen ones are on average {statistics.mean(gaps):+.1f} points above random ones "
        "with label spreading, on the better of the two graphs of each collection."
    )


def _round_table(summary: Summary) -> str:
    body = []
    for name in summary["datasets"]:
        last = max(summary["doubtful"][name], key=int, default=None)
        if last is None:
            continue
        seconds = summary["seconds"][name]
        wrong = f"{100 - summary['chosen'][name][last]['all']:.1f} %"
        body.append(
            [name, _worst_text(summary["worst_round"][name]), wrong, f"{summary['doubtful'][name][last]:.0f} images",
             f"{seconds['questions']:.3f} s", f"{seconds['refine']:.3f} s"]
        )  # fmt: skip
    head = ["collection", "largest fall", "wrong", "expected wrong", "questions(10)", "refine"]
    return markdown_table(head, body) if body else ""


def _growth_table(summary: Summary) -> str:
    body = [
        [name, f"{found['fit']:.2f}", f"{found['first']:.2f}" if "first" in found else "–", f"{found['grown']:.2f}",
         f"{found['grown'] - found['fit']:+.2f}", f"{found['clusters']:.1f}",
         f"{found['update seconds']:.2f} s for {found['batch']:.0f} images"]
        for name, found in summary["growth"].items()
    ]  # fmt: skip
    head = ["collection", "fit of all", "fit of 90 %", "grown", "difference", "clusters", "slowest update"]
    return markdown_table(head, body) if body else ""


# --- files -------------------------------------------------------------------------------------------------------
def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``hints.json``, ``hints.md`` and a figure per collection; return the paths."""
    summary = summarise(records)
    paths = write_summary("hints", dict(summary), page(summary), folder)
    if figures:
        paths += [_draw(summary, name, folder / "figures") for name in summary["datasets"]]
    return paths


def _draw(summary: Summary, name: str, folder: Path) -> Path:
    """Draw accuracy against the number of answers for one collection."""
    from tubal.experiments.pages import _prepare_folder, _save

    _prepare_folder(folder)
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2))
    n_classes, base = summary["n_classes"][name], summary["base"][name]
    chosen = summary["chosen"][name]
    plot: Callable[..., object] = axes.plot
    plot([0, *map(int, chosen)], [base, *(scores["all"] for scores in chosen.values())], color="C0", linewidth=2.2,
         label=LINES["chosen"])  # fmt: skip
    for place, line in enumerate(summary["random"][name][str(PER_CLASS[0])], start=1):
        scores = [summary["random"][name][str(n)][line]["all"] for n in PER_CLASS]
        plot([n * n_classes for n in PER_CLASS], scores, "o--", color=f"C{place}", markersize=3, linewidth=1.1,
             label=LINES[line])  # fmt: skip
    axes.set(xlabel="answers", ylabel="accuracy in percent", title=f"{name}, {n_classes} classes")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return _save(figure, folder / f"hints-{name}.png")
