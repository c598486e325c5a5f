"""Checks that every path gives a training image back: distance 0, no motion, its own cluster, one explanation."""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tubal
from helpers.cli_helpers import read_csv
from tubal.cli import run
from tubal.datasets import load_images
from tubal.report.from_clusterer import report_data

IDENTITY = np.array([0.0, 1.0, 0.0, 0.0])
PILES = (
    "bccd", "emoji", "flowers", "groceries", "gtsrb", "notmnist", "omniglot_latin", "plankton", "signdigits", "steel",
)  # fmt: skip


def unpack_pile(name: str, folder: Path, n_pictures: int) -> None:
    """Write some pictures of a pile, drawn at random, into a folder."""
    home = os.environ.get("TUBAL_PILES")
    if not home:
        pytest.skip("TUBAL_PILES is not set to the folder of the piles")
    with zipfile.ZipFile(Path(home) / f"{name}.zip") as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        for index in np.random.default_rng(0).permutation(len(members))[:n_pictures]:
            archive.extract(members[index], folder)


def disagreements(model: Any, images: np.ndarray) -> list[str]:
    """Return what differs for training images (n, height, width[, channels]) in [0, 1], in Python and in the report."""
    wrong = []
    for kind, given in as_types(images).items():
        if (model.predict(given) != model.labels_).any():
            wrong.append(f"{kind}: predict moves images to other clusters")
        found = model.similar(given, 2)
        equal = model.graph_.search.images[found.indices[:, 0]]
        if not (equal == model.graph_.search.images).all():
            wrong.append(f"{kind}: images do not find themselves")
        if found.distances[:, 0].any() or model.kneighbors(given, 1)[0].any():
            wrong.append(f"{kind}: images lie away from themselves")
        if found.alignments is not None and (found.alignments.stack()[:, :, 0].T != IDENTITY).any():
            wrong.append(f"{kind}: images are moved onto themselves")
    return wrong + _differences_in_report(model, images)


def as_types(images: np.ndarray) -> dict[str, np.ndarray]:
    """Return the images in single and double precision and, if they have 256 levels, as integers."""
    types = {"float32": images.astype(np.float32), "float64": images.astype(np.float64)}
    levels = np.round(images * 255)
    if np.abs(levels - images * 255).max() < 1e-3:
        types |= {"uint8": levels.astype(np.uint8), "float64 / 255": levels.astype(np.float64) / 255}
    return types


def _differences_in_report(model: Any, images: np.ndarray) -> list[str]:
    """Return how the report's neighbours and terms differ from ``similar`` and ``explain``."""
    wrong = []
    shown = report_data(model, images, [str(i) for i in range(len(images))])
    found = model.similar(images, min(len(images), 3 * shown.neighbors.shape[1]))
    for i, (others, apart) in enumerate(zip(shown.neighbors, shown.neighbor_distances, strict=True)):
        distances = dict(zip(found.indices[i].tolist(), found.distances[i].tolist(), strict=True))
        pairs = [(distances[j], distance) for j, distance in zip(others.tolist(), apart, strict=True) if j in distances]
        if not np.allclose(*np.reshape(pairs, (-1, 2)).T, atol=1e-5):
            wrong.append(f"report: distances of image {i} differ from those of similar")
    for i in range(0, len(images), 1 + len(images) // 4):
        # Both are certified to a thousandth of their objective; rounding in batches leaves small differences.
        alone = {tuple(term): weight for *term, weight in model.model_.explain(images[i]).table().tolist()}
        if any(abs(alone.get(tuple(term), 0.0) - weight) > 0.02 for *term, weight in shown.terms[i].tolist()):
            wrong.append(f"report: the explanation of image {i} differs from that of explain")
    return wrong


def disagreements_on_command_line(folder: Path, out: Path, options: Sequence[str] = (), n_single: int = 2) -> list[str]:
    """Cluster a folder, and return what its own files get from ``assign`` and ``similar``, together and alone."""
    assert run(["cluster", str(folder), "-k", "3", "--out", str(out), "-q", *options]) == 0
    clusters = {row["file"]: int(row["cluster"]) for row in read_csv(out / "labels.csv")}
    model, images = tubal.load(out / "model.tubal"), load_images(folder).images
    wrong = disagreements(model, images) if images.shape[1:] == model.image_shape_ and not options else []
    rows = _json(["assign", str(folder), "--model", str(out)])["images"]
    names = list(clusters)
    for name in names[:: 1 + len(names) // n_single]:
        alone = _json(["assign", str(folder / name), "--model", str(out)])["images"]
        rows += [row | {"file": name} for row in alone]
        first = _json(["similar", str(folder / name), "--model", str(out)])["similar"][0]
        motion = [first.get(key, still) for key, still in zip(("rotation", "scale", "dy", "dx"), IDENTITY, strict=True)]
        if first["distance"] or first["cluster"] != clusters[name] or motion != IDENTITY.tolist():
            wrong.append(f"similar {name}: {first}")
    wrong += [
        f"assign {row['file']}: {row}" for row in rows if row["distance"] or row["cluster"] != clusters[row["file"]]
    ]
    return wrong


def _json(arguments: list[str]) -> Any:
    """Return what a command prints with ``--json``."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run([*arguments, "--json", "-q"]) == 0
    return json.loads(printed.getvalue())
