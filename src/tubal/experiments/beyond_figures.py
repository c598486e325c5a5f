"""Figures of the table "beyond": neighbours with their alignment, and the images that are still wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Images = NDArray[Any]
_PAIRS, _ERRORS = 8, 24


def draw_all(datasets: Sequence[str], folder: Path) -> list[Path]:
    """Fit the default preset once a collection and draw its neighbours and its errors; return the paths."""
    from tubal import ImageClusterer
    from tubal.datasets import fetch

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in datasets:
        bunch = fetch(name)
        model = ImageClusterer(len(np.unique(bunch.target)), random_state=0).fit(bunch.images)
        paths.append(draw_pairs(bunch.images, model.graph_, folder / f"beyond-{name}-neighbours.png"))
        paths.append(draw_errors(bunch.images, bunch.target, model, folder / f"beyond-{name}-errors.png"))
    return paths


def draw_pairs(images: Images, graph: Any, path: Path) -> Path:
    """Draw images with their nearest neighbour before and after its alignment.

    Pairs are spread over the range of how much had to be moved, so that easy and hard ones are seen.
    """
    moved = np.zeros(graph.n_images)
    if graph.alignments is not None:
        first = graph.alignments[:, 0]
        moved = np.abs(first.rotation) / 10.0 + np.abs(first.scale - 1.0) / 0.08 + np.hypot(first.dy, first.dx) / 2.0
    shown = np.argsort(moved, kind="stable")[np.linspace(0, len(moved) - 1, _PAIRS).astype(int)]
    columns: list[tuple[Any, ...]] = []
    for index in shown:
        neighbour = int(graph.neighbors[index, 0])
        aligned = images[neighbour] if graph.alignments is None else align(images[neighbour], graph, index, 0)
        columns.append((images[index], images[neighbour], aligned, _motion(graph, int(index))))
    return _save_grid(
        [[column[row] for column in columns] for row in range(3)],
        ["image", "its nearest", "aligned"],
        [column[3] for column in columns],
        path,
    )


def align(image: Images, graph: Any, index: int, slot: int) -> Images:
    """Return a neighbour moved onto image ``index`` by the rotation, scale and shift the graph found."""
    from scipy.ndimage import affine_transform

    motion = graph.alignments[index, slot]
    angle = np.deg2rad(float(motion.rotation))
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) / float(motion.scale)
    centre = (np.array(image.shape[:2]) - 1.0) / 2.0
    shift = np.array([float(motion.dy), float(motion.dx)])
    planes = image if image.ndim == 3 else image[..., None]
    # Output pixel p shows the neighbour's pixel centre + turn (p - shift - centre).
    offset = centre - turn @ (centre + shift)
    moved = [
        affine_transform(planes[..., channel], turn, offset=offset, order=1, mode="nearest")
        for channel in range(planes.shape[-1])
    ]
    return np.stack(moved, axis=-1).reshape(image.shape)


def wrong_images(target: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices of images outside their class's cluster under the best one-to-one assignment.

    >>> wrong_images(np.array(list("aaabbb")), np.array([1, 1, 0, 0, 0, 0]))
    array([2])
    """
    from scipy.optimize import linear_sum_assignment

    from tubal.metrics import contingency

    codes = np.unique(target, return_inverse=True)[1]
    counts = contingency(codes, labels)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    stands_for = np.full(counts.shape[1], -1)
    stands_for[columns] = rows
    return np.flatnonzero(stands_for[labels] != codes)


def draw_errors(images: Images, target: NDArray[Any], model: Any, path: Path) -> Path:
    """Draw the wrong images, each with its nearest neighbour and the most typical image of its cluster."""
    wrong = wrong_images(target, model.labels_)
    shown = wrong[np.argsort(-model.confidence_[wrong], kind="stable")][:_ERRORS]
    rows = [
        [images[index] for index in shown],
        [images[model.graph_.neighbors[index, 0]] for index in shown],
        [images[model.medoids_[model.labels_[index]]] for index in shown],
    ]
    titles = [f"{model.confidence_[index]:.2f}" for index in shown]
    return _save_grid(rows, ["wrong", "its nearest", "its cluster"], titles, path, note=f"{len(wrong)} wrong in all")


def _motion(graph: Any, index: int) -> str:
    if graph.alignments is None:
        return ""
    motion = graph.alignments[index, 0]
    return (
        f"{float(motion.rotation):+.0f}°, ×{float(motion.scale):.2f}\n"
        f"{float(motion.dy):+.0f}, {float(motion.dx):+.0f} px"
    )


def _save_grid(
    rows: Sequence[Sequence[Images]], names: Sequence[str], titles: Sequence[str], path: Path, note: str = ""
) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    width = max(len(rows[0]), 1)
    figure = Figure(figsize=(0.9 * width + 1.0, 3.6))
    axes = figure.subplots(len(rows), width, squeeze=False)
    for row, (line, name) in enumerate(zip(rows, names, strict=True)):
        for column in range(width):
            place = axes[row][column]
            place.set_xticks([])
            place.set_yticks([])
            if column < len(line):
                place.imshow(line[column], cmap="gray", interpolation="nearest")
            if row == 0 and column < len(titles):
                place.set_title(titles[column], fontsize=6)
        axes[row][0].set_ylabel(name, fontsize=8)
    if note:
        figure.text(0.5, 0.01, note, ha="center", fontsize=8)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    return path
