"""How sparse default fits are, and what more sparsity costs: ``python -m tools.density [--minutes M]``.

TubSC and GTSC are fitted at their defaults, with only the sparsity changed, on digits and the paper's four collections
with several seeds. Recorded are the share of codes that are not zero, the share of the images' energy that the codes
miss, the certified gap, and the accuracy of K-means on the features. Labels are used for this accuracy only, and no
default is chosen by it. Results go to ``density.json`` and ``density.md`` after every fit; the same command continues.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from tubal.experiments.methods import evenly_spaced, normalize_images
from tubal.experiments.pages import dataset_title, join_parts, list_versions, markdown_table, write_summary
from tubal.experiments.runner import PACKAGES
from tubal.experiments.tables import load_paper, standard_deviation
from tubal.storage.files import versions

DATASETS = ("digits", "orl", "yale", "coil20", "usps")
MODELS = ("TubSC", "GTSC")
SPARSITIES = (0.01, 0.1, 0.15, 0.2, 0.3)
DEFAULT = 0.1
SEEDS = (0, 1, 2)
# The aim for default fits.
MOST_NONZERO = 0.15
# Evenly spaced images of a large collection; the others are used whole.
SUBSETS = {"usps": 2000}


class Fit(TypedDict):
    """One fit: its setting and what was measured."""

    dataset: str
    model: str
    sparsity: float
    seed: int
    density: float
    error: float
    gap: float
    converged: bool
    accuracy: float
    seconds: float


class Study(TypedDict):
    """The content of ``density.json``."""

    subsets: dict[str, int]
    fits: list[Fit]
    versions: dict[str, str]


class Setting(NamedTuple):
    """What is fitted."""

    dataset: str
    model: str
    sparsity: float
    seed: int


# --- measuring -------------------------------------------------------------------------------------------------
def plan(datasets: Sequence[str], seeds: Sequence[int]) -> list[Setting]:
    """Return the fits in the order in which they are made: the default sparsity first, with all seeds."""
    order = sorted(SPARSITIES, key=lambda sparsity: (sparsity != DEFAULT, sparsity))
    return [
        Setting(dataset, model, sparsity, seed)
        for sparsity in order
        for seed in seeds
        for dataset in datasets
        for model in MODELS
    ]


def measure(setting: Setting) -> Fit:
    """Fit one coder and measure its codes."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    import tubal
    from tubal.datasets import fetch
    from tubal.metrics import clustering_accuracy
    from tubal.problems.layout import unit_rows

    bunch = fetch(setting.dataset)
    chosen = evenly_spaced(len(bunch.images), SUBSETS.get(setting.dataset))
    images, target = normalize_images(bunch.images[chosen], "unit"), bunch.target[chosen]
    n_atoms = 45 if setting.dataset == "digits" else load_paper()[setting.dataset].n_atoms
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # recorded
        model = getattr(tubal, setting.model)(n_atoms, sparsity=setting.sparsity, random_state=setting.seed)
        rows = unit_rows(np.asarray(model.fit_transform(images)))
    seconds = time.perf_counter() - begin
    labels = KMeans(len(set(target.tolist())), n_init=10, random_state=setting.seed).fit_predict(rows)
    missed = np.square(model.decode(model.codes_) - images).sum() / np.square(images).sum()
    return {
        "dataset": setting.dataset,
        "model": setting.model,
        "sparsity": setting.sparsity,
        "seed": setting.seed,
        "density": round(float(model.density_[-1]), 5),
        "error": round(float(missed), 5),
        "gap": float(model.duality_gap_),
        "converged": bool(model.converged_),
        "accuracy": round(100 * clustering_accuracy(target, labels), 2),
        "seconds": round(seconds, 2),
    }


def measure_missing(study: Study, settings: Sequence[Setting], seconds: float) -> Iterator[Fit]:
    """Measure what the study does not have yet, add it, and yield it; stop after so many seconds."""
    done = {_setting_of(fit) for fit in study["fits"]}
    end = time.monotonic() + seconds
    for setting in settings:
        if time.monotonic() > end:
            return
        if setting not in done:
            study["fits"].append(measure(setting))
            yield study["fits"][-1]


def _setting_of(fit: Fit) -> Setting:
    return Setting(fit["dataset"], fit["model"], fit["sparsity"], fit["seed"])


# --- the page --------------------------------------------------------------------------------------------------
def page(study: Study) -> str:
    """Return the whole of ``density.md``."""
    subsets = "; ".join(f"{n} evenly spaced images of {dataset_title(name)}" for name, n in study["subsets"].items())
    parts = [
        "# How sparse default fits are",
        "TubSC and GTSC at their defaults (45 atoms; Yale 80), with only the sparsity changed: mean ± standard "
        "deviation over the seeds; a figure alone is from one seed. "
        f"The default sparsity is {DEFAULT:g}. They are fitted to {subsets}, and to all images of the other "
        "collections. Codes are certified to a thousandth. Made by `python -m tools.density`.",
        _verdict(study),
        "## Share of codes that are not zero, in percent",
        _table(study, "density", 100.0),
        "## Share of the images' energy that the codes miss, in percent",
        _table(study, "error", 100.0),
        "## Accuracy of K-means on the features, in percent",
        "Labels are used for this table only. No default is chosen by it.",
        _table(study, "accuracy", 1.0),
        f"Versions: {list_versions(study['versions'])}.",
    ]
    return join_parts(parts)


def _verdict(study: Study) -> str:
    """Say which default fits miss the aim, and which sparsity would meet it."""
    found = _groups(study)
    sentences = []
    for model in MODELS:
        for dataset in DATASETS:
            cells = {s: found[model, dataset, s] for s in SPARSITIES if (model, dataset, s) in found}
            if DEFAULT not in cells or _mean(cells[DEFAULT], "density") <= MOST_NONZERO:
                continue
            enough = [s for s in cells if s > DEFAULT and _mean(cells[s], "density") <= MOST_NONZERO]
            rest = f"; sparsity {min(enough):g} meets it" if enough else ""
            share = 100 * _mean(cells[DEFAULT], "density")
            sentences.append(f"{model} on {dataset_title(dataset)} misses it ({share:.0f} %{rest}).")
    return f"The aim for default fits is at most {100 * MOST_NONZERO:.0f} % of non-zero codes. " + (
        " ".join(sentences) or "All meet it."
    )


def _table(study: Study, name: str, factor: float) -> str:
    found = _groups(study)
    body = []
    for model in MODELS:
        for sparsity in SPARSITIES:
            groups = [found.get((model, dataset, sparsity), []) for dataset in DATASETS]
            if any(groups):
                body.append([model, f"{sparsity:g}", *(_spread(group, name, factor) for group in groups)])
    return markdown_table(["coder", "sparsity", *map(dataset_title, DATASETS)], body)


def _groups(study: Study) -> Mapping[tuple[str, str, float], list[Fit]]:
    groups: dict[tuple[str, str, float], list[Fit]] = {}
    for fit in study["fits"]:
        groups.setdefault((fit["model"], fit["dataset"], fit["sparsity"]), []).append(fit)
    return groups


def _mean(group: Sequence[Fit], name: str) -> float:
    return statistics.mean(float(fit[name]) for fit in group)  # type: ignore[literal-required]


def _spread(group: Sequence[Fit], name: str, factor: float) -> str:
    if not group:
        return ""
    values = [factor * float(fit[name]) for fit in group]  # type: ignore[literal-required]
    return (
        f"{values[0]:.1f}" if len(values) == 1 else f"{statistics.mean(values):.1f} ± {standard_deviation(values):.1f}"
    )


def main() -> None:
    """Make the fits that are not recorded yet."""
    parser = argparse.ArgumentParser(prog="python -m tools.density", description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS), help="collections, separated by commas")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="number of seeds")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of density.json and density.md")
    options = parser.parse_args()
    datasets = options.datasets.split(",")
    if unknown := sorted(set(datasets) - set(DATASETS)):
        parser.error(f"there is no collection {', '.join(unknown)}; choose from {', '.join(DATASETS)}")
    study: Study = {"subsets": dict(SUBSETS), "fits": [], "versions": versions(PACKAGES)}
    if (options.out / "density.json").exists():
        study["fits"] = json.loads((options.out / "density.json").read_text(encoding="utf-8"))["fits"]
    for fit in measure_missing(study, plan(datasets, range(options.seeds)), 60.0 * options.minutes):
        write_summary("density", study, page(study), options.out)
        print(json.dumps(fit))


if __name__ == "__main__":
    main()
