"""How the sparsity of the label-free rows was fixed, without a label and without the four collections.

Each of the four coders learns scikit-learn's digits and the synthetic shifted shapes at every candidate share.
Two numbers are measured: the part of the images' energy that the codes leave unexplained, and how many
non-zero codes an image uses. More sparsity means fewer codes and more error; the graph costs some error too,
whatever the sparsity. The written rule is:

    take the largest share at which sparsity costs no coder more than 5 % of the energy of either set,
    compared with the smallest share tried.

It gives every method the same share, and the sparsest codes that still are codes of their image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

CANDIDATES = (0.003, 0.01, 0.03, 0.1, 0.3)
LARGEST_COST = 0.05
CODERS = {"sc": (False, False), "graphsc": (False, True), "tubsc": (True, False), "gtsc": (True, True)}


class Measurement(NamedTuple):
    """What one coder does to one set at one share."""

    share: float
    method: str
    images: str
    error: float
    codes_per_image: float


def choose_share(measurements: Sequence[Measurement]) -> float:
    """Apply the rule above.

    >>> errors = {0.01: 0.12, 0.1: 0.15, 0.3: 0.30}
    >>> choose_share([Measurement(share, "gtsc", "digits", error, 9.0) for share, error in errors.items()])
    0.1
    """
    smallest = min(entry.share for entry in measurements)
    least = {(entry.method, entry.images): entry.error for entry in measurements if entry.share == smallest}
    cost: dict[float, float] = {}
    for entry in measurements:
        extra = entry.error - least[entry.method, entry.images]
        cost[entry.share] = max(cost.get(entry.share, 0.0), extra)
    return max(share for share, extra in cost.items() if extra <= LARGEST_COST)


def measure(*, n_images: int = 400, candidates: Sequence[float] = CANDIDATES, seed: int = 0) -> list[Measurement]:
    """Fit every coder to ``n_images`` digits and shapes at every candidate share."""
    from tubal.datasets import load_digits_images, make_shifted_shapes

    order = np.random.default_rng(seed).permutation(1797)[:n_images]
    sets = {
        "digits": load_digits_images().images[order],
        "shapes": make_shifted_shapes(n_images, n_classes=8, random_state=seed).images,
    }
    return [
        _measure_one(images, share, method, name, seed)
        for share in candidates
        for name, images in sets.items()
        for method in CODERS
    ]


def _measure_one(images: NDArray[Any], share: float, method: str, name: str, seed: int) -> Measurement:
    from tubal.experiments.models import fit_coder, prepare
    from tubal.experiments.table2 import settings_for

    settings = {**settings_for("label-free", method, "digits"), "sparsity_fraction": share}
    tubal, graph = CODERS[method]
    model, _ = fit_coder(images, settings, seed, tubal=tubal, graph=graph)
    coded = prepare(images, settings, tubal=tubal)
    codes = np.asarray(model.codes_)
    residual = coded - np.asarray(model.decode(model.codes_)).reshape(coded.shape)
    return Measurement(
        share=share,
        method=method,
        images=name,
        error=float((residual**2).sum() / (coded**2).sum()),
        codes_per_image=float(np.count_nonzero(codes) / len(codes)),
    )
