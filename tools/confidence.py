"""What a clusterer says of its own result, against labels: ``python -m tools.confidence --piles FOLDER``.

On every pile (see :mod:`tools.piles`) and collection: the mean confidence against the accuracy, how well confidence
tells right from wrong images, the numbers of clusters it names, and how many of 20 pictures of another pile are among
the first 30 by ``stranger_scores``. An image is right if its label is the one matched with its cluster, one to one.
The network sees the piles, and not the collections. Results go to ``confidence.json`` and ``confidence.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import roc_auc_score

from tools.piles import TUBAL, Pile, load_pile, read_pile, views_of
from tubal import ImageClusterer
from tubal.clustering import stranger_scores
from tubal.datasets import fetch
from tubal.experiments.pages import join_parts, list_versions, markdown_table, write_summary
from tubal.experiments.runner import PACKAGES
from tubal.storage.files import versions

COLLECTIONS = ("digits", "coil20", "usps", "orl", "yale")
N_STRANGERS, N_FIRST = 20, 30
_HEAD = ("", "classes", "numbers named", "without the network", "accuracy", "confidence", "AUROC", "strangers")
Labels = NDArray[np.intp]


class Measured(TypedDict):
    """What was measured on one pile or collection; strangers are only mixed into piles."""

    images: int
    classes: int
    accuracy: float
    confidence: float
    auroc: float | None
    candidates: list[int]
    candidates_alone: list[int] | None  # without the network, where it is used
    strangers: int | None


class Summary(TypedDict):
    """The content of ``confidence.json``."""

    measured: dict[str, Measured]
    versions: dict[str, str]


def right_images(labels: Labels, target: Labels) -> NDArray[np.bool_]:
    """Return which images carry the label that is matched with their cluster.

    >>> right_images(np.array([0, 0, 0, 1]), np.array([5, 5, 7, 7]))
    array([ True,  True, False,  True])
    """
    _, truth = np.unique(target, return_inverse=True)
    counts = np.zeros((int(labels.max()) + 1, int(truth.max()) + 1))
    np.add.at(counts, (labels, truth), 1.0)
    clusters, classes = linear_sum_assignment(-counts)
    match = np.full(len(counts), -1)
    match[clusters] = classes
    return np.asarray(match[labels] == truth)


def measure(pile: Pile, seed: int) -> Measured:
    """Return what a clusterer says of a pile with the number of clusters given, and which numbers it names itself."""
    images, target = pile["images"], pile["target"]
    has_network = len(pile["described"]) > 0
    n_classes = len(np.unique(target))
    fitted = ImageClusterer(n_classes, views=_views(pile, has_network), random_state=seed).fit(images)
    right = right_images(fitted.labels_, target)
    return Measured(
        images=len(images),
        classes=n_classes,
        accuracy=float(right.mean()),
        confidence=float(fitted.confidence_.mean()),
        auroc=float(roc_auc_score(right, fitted.confidence_)) if 0 < right.sum() < len(right) else None,
        candidates=named_numbers(pile, seed, with_network=has_network),
        candidates_alone=named_numbers(pile, seed, with_network=False) if has_network else None,
        strangers=None,
    )


def named_numbers(pile: Pile, seed: int, *, with_network: bool) -> list[int]:
    """Return the numbers of clusters that a clusterer names itself, the one that it uses first."""
    model = ImageClusterer(views=_views(pile, with_network), random_state=seed).fit(pile["images"])
    return [int(number) for number in model.n_clusters_candidates_]


def _views(pile: Pile, with_network: bool) -> dict[str, NDArray[Any] | None]:
    return views_of(pile, TUBAL["tubal with network" if with_network else "tubal"])


def found_strangers(images: NDArray[np.float32], others: NDArray[np.float32], seed: int) -> int:
    """Return how many of 20 of the other images are among the first 30 strangers, mixed into the images."""
    chosen = np.random.default_rng(seed).permutation(len(others))[:N_STRANGERS]
    mixed = np.concatenate([in_colour(images), resized(in_colour(others[chosen]), images.shape[1:3])])
    first = np.argsort(-stranger_scores(mixed), kind="stable")[:N_FIRST]
    return int(np.count_nonzero(first >= len(images)))


def in_colour(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return images (n, h, w, 3); grey ones get three equal channels."""
    return images if images.ndim == 4 else np.repeat(images[..., None], 3, axis=3)


def resized(images: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return images (n, h, w, 3) in another size."""
    from PIL import Image

    pictures = [Image.fromarray(np.uint8(np.round(255 * np.clip(image, 0, 1)))) for image in images]
    small = [np.asarray(picture.resize((shape[1], shape[0]), Image.Resampling.BOX)) for picture in pictures]
    return np.asarray(np.stack(small) / 255, dtype=np.float32)


def run(folder: Path, out: Path, *, cache: Path, seed: int = 0, collections: Sequence[str] = COLLECTIONS) -> Summary:
    """Measure all piles of a folder and all collections, and write the record."""
    sources = sorted(path for path in folder.iterdir() if path.suffix == ".zip" or path.is_dir())
    piles = {source.stem: load_pile(read_pile(source, cache)) for source in sources}
    measured: dict[str, Measured] = {}
    for number, (name, pile) in enumerate(piles.items()):
        others = list(piles.values())[(number + 1) % len(piles)]["images"]
        measured[name] = measure(pile, seed)
        measured[name]["strangers"] = found_strangers(pile["images"], others, seed)
    for name in collections:
        bunch = fetch(name)
        images = np.asarray(bunch.images, dtype=np.float32)
        empty = np.empty((0, 0), np.float32)
        measured[name] = measure(Pile(images=images, described=empty, target=np.asarray(bunch.target)), seed)
    summary = Summary(
        measured=measured, versions={name: version for name, version in versions().items() if name in PACKAGES}
    )
    write_summary("confidence", summary, page(summary), out)
    return summary


def page(summary: Summary) -> str:
    """Return the Markdown page of a record."""
    measured = summary["measured"]
    rows = [
        [
            name,
            str(item["classes"]),
            ", ".join(map(str, item["candidates"])),
            "–" if item["candidates_alone"] is None else ", ".join(map(str, item["candidates_alone"])),
            f"{100 * item['accuracy']:.1f}",
            f"{100 * item['confidence']:.1f}",
            "–" if item["auroc"] is None else f"{item['auroc']:.2f}",
            "–" if item["strangers"] is None else f"{item['strangers']} of {N_STRANGERS}",
        ]
        for name, item in measured.items()
    ]
    return join_parts(
        [
            "# What the clusterer says of its own result",
            __doc__.split("\n\n", 1)[1].replace("(see :mod:`tools.piles`) ", "").strip(),
            markdown_table(_HEAD, rows),
            _means(measured),
            list_versions(summary["versions"]),
        ]
    )


def _means(measured: Mapping[str, Measured]) -> str:
    """Return the means of all piles and collections in a sentence."""
    gaps = [abs(item["confidence"] - item["accuracy"]) for item in measured.values()]
    areas = [item["auroc"] for item in measured.values() if item["auroc"] is not None]
    found = [float(item["strangers"]) for item in measured.values() if item["strangers"] is not None]
    return (
        f"Means: |confidence − accuracy| {100 * np.mean(gaps):.1f} points, AUROC {np.mean(areas or [np.nan]):.2f}, "
        f"strangers {np.mean(found or [np.nan]):.1f} of {N_STRANGERS}."
    )


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m tools.confidence", description=run.__doc__)
    parser.add_argument("--piles", type=Path, required=True, help="folder of the piles: zip archives or folders")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the record")
    parser.add_argument("--cache", type=Path, default=Path("build/piles"), help="piles as read")
    options = parser.parse_args()
    run(options.piles, options.out, cache=options.cache)


if __name__ == "__main__":
    main()
