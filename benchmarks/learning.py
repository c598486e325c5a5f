"""How short a coding step of the alternation may be: what the objective and the clock say, no label asked."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.fits import ATOMS

# Steps of a coding step, and their penalty at the default sparsity 0.01.
CHOICES = ((5, 1.5), (5, 3.0), (5, 5.0), (5, 8.0), (3, 3.0), (3, 5.0))
EARLY = 3


def images_of(name: str) -> Any:
    """Return the images of a collection, of scikit-learn's digits, or of the synthetic shapes."""
    from sklearn.datasets import load_digits

    from tubal.datasets import fetch, make_shifted_shapes

    if name == "digits":
        return load_digits().images.astype("float32")
    if name == "shapes":
        return make_shifted_shapes(n_samples=500, random_state=0).images
    return fetch(name).images


def course(name: str, steps: int, penalty: float) -> list[tuple[float, float]]:
    """Return seconds and objective after every alternation of a default GTSC fit; its last coding step is left out."""
    from tubal import GTSC
    from tubal.solvers import Admm

    images, seen, began = images_of(name), [], time.perf_counter()
    GTSC(
        ATOMS.get(name, 45), code_solver=Admm(max_iter=steps, tol=1e-3, penalty=penalty), random_state=0,
        callbacks=lambda progress: seen.append((time.perf_counter() - began, progress.objective)),
    ).fit(images)  # fmt: skip
    return seen


def steps_and_penalty(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Seconds and objective of a fit for every choice, early on and at its end, above the best choice there."""
    rows = []
    for name in names:
        course(name, *CHOICES[0])  # kernels loaded, images read
        courses = {choice: course(name, *choice) for choice in CHOICES}
        early, late = (min(_at(seen, n) for seen in courses.values()) for n in (EARLY, None))
        for (steps, penalty), seen in courses.items():
            rows.append(
                {
                    "problem": name, "steps": steps, "penalty": penalty, "alternations": len(seen),
                    "seconds": seen[-1][0], "objective": seen[-1][1],
                    f"% above the best after {EARLY} alternations": 100 * (_at(seen, EARLY) / early - 1),
                    "% above the best at the end": 100 * (seen[-1][1] / late - 1),
                }
            )  # fmt: skip
    return rows


def _at(seen: list[tuple[float, float]], n_alternations: int | None) -> float:
    """Return the objective after so many alternations, or after the last."""
    return seen[-1][1] if n_alternations is None else seen[min(n_alternations, len(seen)) - 1][1]
