"""Report data of handwritten digits with every optional part, computed by simple means."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from tubal.report import ReportData

HOSTILE_NAMES = (
    "<script>window.pwned=1</script>.png",
    "</script><img src=x onerror=window.pwned=2>.png",
    "\"quoted\" and 'quoted', with comma.png",
    "emoji 🐍 café.png",
    "new\nline.png",
    "para\u2028graph\u2029.png",
    "{{ 7*7 }} &lt;b&gt;.png",
    "gpj.\u202eexe.png",
    "<!-- comment --><b>.png",
    "../../etc/passwd",
    "undecodable \udcff.png",
    "javascript:window.pwned=3",
)

NO_OPTIONAL_PARTS: dict[str, Any] = {
    **dict.fromkeys(("alignments", "atoms", "terms", "norms", "true_labels", "scores")),
    "objective": (),
    "sparsity": (),
    "provenance": {},
}


def digits_report(n_images: int = 300, *, hostile: bool = False, n_terms: int = 8, **changes: Any) -> ReportData:
    """Return report data of handwritten digits: K-means clusters, matching-pursuit codes, Euclidean neighbours.

    ``changes`` replace fields of the result. Above the 1797 digits that exist, images repeat, a little darker.
    """
    digits = load_digits()
    rng = np.random.default_rng(0)
    pick = np.arange(n_images) % len(digits.images)
    images = digits.images[pick] / 16.0
    images[len(digits.images) :] *= rng.uniform(0.9, 1.0, size=(len(images[len(digits.images) :]), 1, 1))
    rows = images.reshape(n_images, -1)
    model = KMeans(10, n_init=1, random_state=0).fit(rows)
    near = np.sort(model.transform(rows), axis=1)
    confidence = np.clip(2 * (1 - near[:, 0] / near[:, 1]), 0, 1)
    distances, neighbors = NearestNeighbors(n_neighbors=6).fit(rows).kneighbors(rows)
    atoms, terms, norms = pursue(images, n_atoms=20, n_terms=n_terms)
    names = [f"digits/{digits.target[i]}/image {k:04d}.png" for k, i in enumerate(pick)]
    if hostile:
        names[: len(HOSTILE_NAMES)] = HOSTILE_NAMES
    duplicate_of = np.arange(n_images) - len(digits.images)
    duplicate_of[: len(digits.images)] = -1
    duplicate_of[7], duplicate_of[9] = 5, 5
    fields: dict[str, Any] = {
        "images": np.uint8(np.rint(255 * images)),
        "names": names,
        "labels": model.labels_,
        "confidence": confidence,
        "outliers": near[:, 0] > np.quantile(near[:, 0], 0.985),
        "duplicate_of": duplicate_of,
        "embedding": PCA(2).fit_transform(rows),
        "neighbors": neighbors[:, 1:],
        "neighbor_distances": distances[:, 1:],
        "alignments": np.stack([_alignments(rng) for _ in range(n_images)]),
        "atoms": atoms,
        "terms": terms,
        "norms": norms,
        "objective": list(40 * 0.7 ** np.arange(12) + 8),
        "sparsity": list(0.3 * 0.8 ** np.arange(12) + 0.04),
        "true_labels": [str(digits.target[i]) for i in pick],
        "scores": {"accuracy": 0.793, "NMI": 0.741},
        "provenance": {
            "source": "scikit-learn's handwritten digits",
            "seed": 0,
            "settings": {"n_clusters": 10, "n_atoms": 20, "sparsity": 0.01},
            "versions": {"numpy": np.__version__},
            "seconds": {"graph": 0.41, "fit": 1.2},
        },
        "title": "Handwritten digits",
    }
    return ReportData(**(fields | changes))


def _alignments(rng: np.random.Generator) -> np.ndarray:
    """Return five small motions (rotation, scale, dy, dx); the first one moves nothing."""
    motions = np.stack(
        [rng.integers(-2, 3, 5) * 5.0, rng.choice([0.92, 1.0, 1.08], 5), *rng.integers(-1, 2, (2, 5))], axis=1
    )
    motions[0] = (0, 1, 0, 0)
    return motions


def pursue(images: np.ndarray, *, n_atoms: int, n_terms: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Return atoms, terms and norms by matching pursuit, with circularly shifted images as atoms."""
    n, height, width = images.shape
    norms = np.linalg.norm(images.reshape(n, -1), axis=1)
    scaled = images / norms[:, None, None]
    atoms = scaled[np.linspace(0, n - 1, n_atoms).astype(int)]
    shifts = np.stack([np.roll(atoms, dx, axis=2) for dx in range(width)], axis=1).reshape(-1, height * width)
    residual = scaled.reshape(n, -1).copy()
    chosen, weights = [], []
    for _ in range(n_terms):
        products = residual @ shifts.T
        best = np.abs(products).argmax(axis=1)
        weight = products[np.arange(n), best]
        residual -= weight[:, None] * shifts[best]
        chosen.append(best)
        weights.append(weight)
    best, weight = np.stack(chosen, axis=1), np.stack(weights, axis=1)
    terms = [np.stack([b // width, np.zeros(n_terms), b % width, w], axis=1) for b, w in zip(best, weight, strict=True)]
    return atoms, terms, norms
