"""How q, the two weights and the assignment of the default preset are judged, without a label.

The written criterion:

    A setting is good when the partition it finds does not depend on which images happened to be there.
    Draw random samples of 80 % of a collection, cluster each, and compare every two of them on the images
    they share by the adjusted Rand index; the mean over pairs is the *stability*. A setting is refused when
    its stability, averaged over the collections, lies more than two standard errors below that of the best
    setting of the same choice; what is not refused may be the default. The modularity of the partition on the
    graph it cuts is recorded beside it as a second opinion.

The graph weight and the sparsity act on codes alone, and the assignment takes the codes' proposal only where the
graph finds it better than its own cuts. So these two are judged by the partition of the codes themselves.

Collections are taken in a fixed order: scikit-learn's digits and the synthetic shifted shapes first, then the
four of the paper. The number of clusters is the number of classes, as everywhere in the tables; no image's own
label is read. ``python -m tubal.experiments.criterion`` measures and writes ``criterion.json`` and ``.md``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST = ("digits", "shapes")
THEN = ("coil20", "usps", "orl", "yale")
SHARE = 0.8
MOST_IMAGES = 600

Labels = NDArray[np.intp]

# Each choice with what was considered, the default among them; all else stays at the default.
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "q": (2, 3, 4, 5, 6, 8, 10),
    "graph weight": (0.1, 1.0, 10.0, 100.0),
    "sparsity": (0.001, 0.003, 0.01, 0.03, 0.1),
    "assignment": ("graph and codes", "graph alone", "normalised cut", "cut of edges weighted by codes", "codes alone"),
}


@dataclass(frozen=True)
class Sample:
    """A random part of a collection: which images, and their partition and its modularity by setting."""

    members: NDArray[np.intp]
    labels: Mapping[tuple[str, Any], Labels]
    modularity: Mapping[tuple[str, Any], float]


def defaults() -> dict[str, Any]:
    """Return the default of every choice, as the preset has it.

    >>> defaults()["q"], defaults()["assignment"]
    (5, 'graph and codes')
    """
    from tubal.clustering.clusterer import PRESETS

    preset = PRESETS["default"]
    return {
        "q": preset.n_neighbors,
        "graph weight": preset.graph_weight,
        "sparsity": preset.sparsity,
        "assignment": "graph and codes",
    }


def measure(name: str, *, n_samples: int = 5, most_images: int = MOST_IMAGES, seed: int = 0) -> dict[str, Any]:
    """Return stability and modularity of every setting on one collection, with jackknife standard errors."""
    begin = time.perf_counter()
    images, n_clusters = load(name, most_images, seed)
    generator = np.random.default_rng(seed)
    size = round(SHARE * len(images))
    samples = []
    for number in range(n_samples):
        members = np.sort(generator.permutation(len(images))[:size])
        samples.append(cluster_sample(images[members], members, n_clusters, seed=number))
    settings = {
        choice: {str(value): _described(samples, choice, value) for value in values}
        for choice, values in CHOICES.items()
    }
    return {
        "images": len(images),
        "clusters": n_clusters,
        "samples": n_samples,
        "seconds": round(time.perf_counter() - begin, 1),
        "settings": settings,
    }


def load(name: str, most_images: int, seed: int) -> tuple[NDArray[Any], int]:
    """Return at most ``most_images`` images of a collection and its number of classes."""
    from tubal.datasets import fetch, make_shifted_shapes

    bunch = make_shifted_shapes(most_images, n_classes=8, random_state=seed) if name == "shapes" else fetch(name)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(bunch.images))[:most_images])
    return bunch.images[chosen], len(np.unique(bunch.target))


def cluster_sample(images: NDArray[Any], members: NDArray[np.intp], n_clusters: int, *, seed: int) -> Sample:
    """Cluster one sample under every setting; its longest neighbour lists are found once."""
    from tubal.clustering import modularity
    from tubal.graph import deformable_graph

    longest = min(2 * max(CHOICES["q"]), len(images) - 1)
    wide = deformable_graph(images, longest, random_state=seed)
    labels: dict[tuple[str, Any], Labels] = {}
    scores: dict[tuple[str, Any], float] = {}
    for setting, found, affinity in _partitions(images, wide, n_clusters, seed):
        labels[setting] = found
        scores[setting] = modularity(affinity, found)
    return Sample(members, labels, scores)


def _partitions(
    images: NDArray[Any], wide: Any, n_clusters: int, seed: int
) -> Iterator[tuple[tuple[str, Any], Labels, Any]]:
    """Every setting with its partition and the ties it is judged on; the default is fitted once for all choices."""
    default = defaults()
    model = _fit(images, wide, n_clusters, seed, default)
    for q in CHOICES["q"]:
        fitted = model if q == default["q"] else _fit(images, wide, n_clusters, seed, {**default, "q": q})
        yield ("q", q), fitted.labels_, fitted.affinity_
    for choice in ("graph weight", "sparsity"):
        for value in CHOICES[choice]:
            features = _coded(model, images, {choice.replace(" ", "_"): value})
            yield (choice, value), _by_codes(features, n_clusters, model.seed_), model.affinity_
    for rule, labels in _assignments(model, n_clusters).items():
        yield ("assignment", rule), labels, model.affinity_


def _fit(images: NDArray[Any], wide: Any, n_clusters: int, seed: int, setting: Mapping[str, Any]) -> Any:
    from tubal import ImageClusterer
    from tubal.clustering.affinity import LIST_FACTOR, keep_nearest

    q = setting["q"]
    return ImageClusterer(
        n_clusters,
        graph=keep_nearest(wide, min(LIST_FACTOR * q, wide.neighbors.shape[1])),
        n_neighbors=q,
        graph_weight=setting["graph weight"],
        sparsity=setting["sparsity"],
        random_state=seed,
    ).fit(images)


def _coded(model: Any, images: NDArray[Any], changed: Mapping[str, float]) -> NDArray[Any]:
    """The pooled codes of the same images on the same graph, with another weight."""
    from tubal import GTSC
    from tubal.problems.layout import unit_rows

    return np.asarray(unit_rows(GTSC(**{**model.model_.get_params(deep=False), **changed}).fit_transform(images)))


def _by_codes(features: NDArray[Any], n_clusters: int, seed: int) -> Labels:
    """The partition the codes propose: K-means started from Ward's tree."""
    from tubal.clustering.cuts import ward_kmeans

    return ward_kmeans(features.astype(np.float64), n_clusters, seed)


def _assignments(model: Any, n_clusters: int) -> dict[str, Labels]:
    """The same graph and codes, assigned by each rule."""
    from tubal import clustering
    from tubal.clustering.cuts import partition_graph

    features, seed = model.features_, model.seed_
    ties = clustering.mutual_adjacency(model.graph_.neighbors)
    weighted = clustering.with_second_order(clustering.weight_edges_by_codes(ties, features))
    found = (
        model.labels_,
        partition_graph(
            model.affinity_, model.graph_, n_clusters, features=features, propose_from_features=False, seed=seed
        ),
        clustering.spectral_cut(model.affinity_, n_clusters, features=features, seed=seed),
        clustering.spectral_cut(weighted, n_clusters, features=features, seed=seed),
        _by_codes(features, n_clusters, seed),
    )
    return dict(zip(CHOICES["assignment"], found, strict=True))


def agreement(samples: Sequence[Sample], setting: tuple[str, Any]) -> NDArray[np.float64]:
    """Return the matrix (s, s) of adjusted Rand indices between samples on the images they share, 0 on its diagonal."""
    from sklearn.metrics import adjusted_rand_score

    found = np.zeros((len(samples), len(samples)))
    for i, left in enumerate(samples):
        for j, right in enumerate(samples[:i]):
            _, here, there = np.intersect1d(left.members, right.members, assume_unique=True, return_indices=True)
            score = adjusted_rand_score(left.labels[setting][here], right.labels[setting][there])
            found[i, j] = found[j, i] = score
    return found


def jackknife(pairs: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean of a symmetric matrix off its diagonal and its standard error, leaving out a sample at a time.

    Pairs that share a sample are not independent; leaving out whole samples respects that.

    >>> mean, error = jackknife(1.0 - np.eye(4))
    >>> mean, error
    (1.0, 0.0)
    """
    n_samples = len(pairs)
    total = pairs.sum()
    mean = total / (n_samples * (n_samples - 1))
    without = (total - 2.0 * pairs.sum(axis=0)) / ((n_samples - 1) * (n_samples - 2))
    spread = (n_samples - 1) / n_samples * ((without - without.mean()) ** 2).sum()
    return float(mean), float(np.sqrt(spread))


def _described(samples: Sequence[Sample], choice: str, value: Any) -> dict[str, float]:
    pairs = agreement(samples, (choice, value))
    usual = agreement(samples, (choice, defaults()[choice]))
    stability, error = jackknife(pairs)
    difference, difference_error = jackknife(pairs - usual)
    return {
        "stability": round(stability, 4),
        "standard_error": round(error, 4),
        "minus_default": round(difference, 4),
        "minus_default_error": round(difference_error, 4),
        "modularity": round(float(np.mean([sample.modularity[choice, value] for sample in samples])), 4),
    }


def run(folder: Any, *, n_samples: int = 5, most_images: int = MOST_IMAGES, seed: int = 0) -> list[Any]:
    """Measure every collection that is there, in order, and write ``criterion.json`` and ``criterion.md``.

    Files are written after every collection, so that the order is on record and an interrupt loses little.
    """
    from pathlib import Path

    if n_samples < 3:
        raise ValueError(f"samples={n_samples}: a standard error needs at least 3")
    found: dict[str, Any] = {}
    paths: list[Path] = []
    for name in (*FIRST, *THEN):
        try:
            found[name] = measure(name, n_samples=n_samples, most_images=most_images, seed=seed)
        except OSError as missing:  # a collection that is not there is left out, and the page says so
            found[name] = {"missing": str(missing)}
            continue
        paths = _write(found, Path(folder), {"seed": seed, "samples": n_samples, "most_images": most_images})
    return paths


def _write(found: Mapping[str, Any], folder: Any, about: Mapping[str, Any]) -> list[Any]:
    import json

    from tubal.experiments import criterion_report
    from tubal.experiments.trials import versions
    from tubal.storage.files import atomic_write

    measured = {name: entry for name, entry in found.items() if "missing" not in entry}
    record = {
        "order": list(measured),
        "left_out": {name: entry["missing"] for name, entry in found.items() if "missing" in entry},
        "share": SHARE,
        **about,
        "defaults": defaults(),
        "collections": measured,
        "verdicts": criterion_report.verdicts(measured),
        "versions": versions(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    table, text = folder / "criterion.json", folder / "criterion.md"
    with atomic_write(table, "w", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=1) + "\n")
    with atomic_write(text, "w", encoding="utf-8") as file:
        file.write(criterion_report.report(measured, versions()))
    return [table, text]


def main() -> None:
    """Read the command line and run."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m tubal.experiments.criterion", description=run.__doc__)
    parser.add_argument("--out", default="results", help="folder of criterion.json and criterion.md")
    parser.add_argument("--samples", type=int, default=5, help="samples a collection, at least 3")
    parser.add_argument("--images", type=int, default=MOST_IMAGES, help="images a collection, at most")
    options = parser.parse_args()
    run(options.out, n_samples=options.samples, most_images=options.images)


if __name__ == "__main__":
    main()
