"""The pages of the tables: Markdown, JSON and figures. matplotlib is imported only when figures are drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tubal.experiments.tables import SCORES, Images, Labels, Score, load_paper
from tubal.storage.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tubal import ImageClusterer
    from tubal.experiments import atlas, family, table2
    from tubal.graph import Graph

SCORE_NAMES: Mapping[Score, str] = {"accuracy": "accuracy", "nmi": "NMI"}
_N_PAIRS = 8
_N_ERRORS = 24


# --- text -------------------------------------------------------------------------------------------------------------
def markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table.

    >>> print(markdown_table(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def join_parts(parts: Sequence[str]) -> str:
    """Return a page: its non-empty parts, separated by blank lines.

    >>> join_parts(["# Title", "", "Text."])
    '# Title\\n\\nText.\\n'
    """
    return "\n\n".join(part for part in parts if part) + "\n"


def dataset_title(dataset: str) -> str:
    """Return the name of a collection as the paper prints it; other names are returned as they are.

    >>> dataset_title("orl"), dataset_title("digits")
    ('ORL', 'digits')
    """
    collections = load_paper().collections
    return collections[dataset].title if dataset in collections else dataset


def list_versions(versions: Mapping[str, str]) -> str:
    """Return versions as one line of text.

    >>> list_versions({"numpy": "2.4", "python": "3.11"})
    'numpy 2.4, python 3.11'
    """
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def write_summary(name: str, summary: Mapping[str, object], page: str, folder: Path) -> list[Path]:
    """Write a summary as ``name.json`` and its page as ``name.md`` into ``folder``; return the two paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {folder / f"{name}.json": json.dumps(summary, indent=1) + "\n", folder / f"{name}.md": page}
    for path, text in texts.items():
        with atomic_write(path, "w", encoding="utf-8") as file:
            file.write(text)
    return list(texts)


def measured_note(summary: Mapping[str, Any], older: str) -> str:
    """Say when a table was measured. Tables without a date are from before dates were stored; ``older`` says of what.

    >>> measured_note({"measured": "2026-12-01"}, "an older cut")
    'Measured on 2026-12-01.'
    """
    if "measured" in summary:
        return f"Measured on {summary['measured']}."
    return f"Measured on 2026-11-15, with {older}; scores and seconds of the present code may differ a little."


# --- figures ----------------------------------------------------------------------------------------------------------


class LearnedAtoms(NamedTuple):
    """What the figures show of one fitted coder.

    ``pictures`` (n_atoms, height, width), ``usage`` (n_atoms,) with the sum of each atom's absolute codes, and
    ``objective`` (n_iter,) after each alternation.
    """

    title: str
    pictures: Images
    usage: NDArray[np.floating[Any]]
    objective: NDArray[np.floating[Any]]


def _prepare_folder(folder: Path) -> None:
    """Choose a backend without a display, and create the folder."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise ImportError(
            "the figures need matplotlib: pip install 'tubal[plot]', or leave them out with --no-figures"
        ) from None
    mpl.use("agg")
    folder.mkdir(parents=True, exist_ok=True)


def _save(figure: Figure, path: Path, *, dpi: int = 110) -> Path:
    from matplotlib import pyplot

    # Without the software entry a file does not change with the version of matplotlib.
    figure.savefig(path, dpi=dpi, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return path


# --- Table 2 ---------------------------------------------------------------------------------------------------
def draw_table2(summary: table2.Summary, learned: Mapping[str, Mapping[str, LearnedAtoms]], folder: Path) -> list[Path]:
    """Draw scores as bars, and atoms and convergence of every collection in ``learned``; return the paths."""
    _prepare_folder(folder)
    paths = [_draw_bars(summary, row, folder / f"table2-{row}.png") for row in summary["rows"]]
    for dataset, coders in learned.items():
        paths.append(_draw_atoms(coders, folder / f"atoms-{dataset}.png"))
        paths.append(_draw_convergence(coders, dataset_title(dataset), folder / f"convergence-{dataset}.png"))
        if dataset == "digits":
            paths.append(_draw_atom_shifts(coders["gtsc"].pictures, folder / "atom-shifts.png"))
    return paths


def _draw_bars(summary: table2.Summary, row: str, path: Path) -> Path:
    """Draw means as bars with their standard deviation, and the paper's values as lines across them."""
    from matplotlib import pyplot

    datasets, methods = summary["datasets"], summary["rows"][row]
    figure, axes = pyplot.subplots(2, 1, figsize=(9, 6), sharex=True)
    width = 0.8 / max(len(methods), 1)
    for axis, score in zip(axes, SCORES, strict=True):
        for position, (method, cells) in enumerate(methods.items()):
            for index, dataset in enumerate(datasets):
                if dataset not in cells:
                    continue
                values, middle = cells[dataset][score], index + (position - (len(methods) - 1) / 2) * width
                label = summary["methods"][method] if index == 0 else None
                axis.bar(middle, values["mean"], width * 0.92, yerr=values["sd"], color=f"C{position}", label=label)
                if values["printed"] is not None:
                    axis.hlines(values["printed"], middle - width / 2, middle + width / 2, color="black")
        axis.set_ylabel(f"{SCORE_NAMES[score]} (%)")
        axis.set_ylim(30, 100)
    axes[1].set_xticks(range(len(datasets)), [dataset_title(name) for name in datasets])
    axes[0].set_title(f"{row} rows; black lines: values printed in the paper")
    axes[1].legend(ncols=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False)
    return _save(figure, path)


def _draw_atom_shifts(atoms: Images, path: Path) -> Path:
    """Draw one learned atom with all its circular shifts, as in Figure 2 of the paper."""
    from matplotlib import pyplot

    variation = np.square(np.diff(atoms, axis=2)).sum(axis=(1, 2))
    atom = atoms[int(variation.argmax())]  # the atom that changes most along the tube
    width = atom.shape[1]
    figure, axes = pyplot.subplots(1, width, figsize=(1.1 * width, 1.5))
    for shift, axis in enumerate(axes):
        axis.imshow(np.roll(atom, shift, axis=1), cmap="gray")
        axis.set_title("atom" if shift == 0 else f"by {shift}", fontsize=8)
        axis.set_axis_off()
    return _save(figure, path)


def _draw_atoms(learned: Mapping[str, LearnedAtoms], path: Path) -> Path:
    """Draw the twelve most used atoms of each method."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(learned), 12, figsize=(11, 1.1 * len(learned)))
    for line, coder in zip(axes, learned.values(), strict=True):
        for axis, index in zip(line, np.argsort(-coder.usage), strict=False):
            axis.imshow(coder.pictures[index], cmap="gray")
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(coder.title, fontsize=9)
    return _save(figure, path)


def _draw_convergence(learned: Mapping[str, LearnedAtoms], title: str, path: Path) -> Path:
    """Draw the objective after each alternation, relative to the last."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 3.5))
    for coder in learned.values():
        steps = range(1, len(coder.objective) + 1)
        axis.plot(steps, coder.objective / coder.objective[-1], marker=".", label=coder.title)
    axis.set_xlabel(f"alternation ({title})")
    axis.set_ylabel("objective / its last value")
    axis.legend()
    return _save(figure, path)


# --- the atlas -------------------------------------------------------------------------------------------------
def draw_atlas(summary: atlas.Summary, folder: Path) -> list[Path]:
    """Draw one figure a collection, with one panel a setting, and the figure of coding effort; return the paths."""
    _prepare_folder(folder)
    datasets = list(next(iter(summary["curves"].values()), {}))
    paths = [_draw_settings(summary, dataset, folder / f"atlas-{dataset}.png") for dataset in datasets]
    return [*paths, _draw_effort(summary, datasets, folder / "effort.png")]


def _draw_settings(summary: atlas.Summary, dataset: str, path: Path) -> Path:
    from matplotlib import pyplot

    settings = [setting for setting in summary["curves"] if setting != "final_steps"]
    figure, axes = pyplot.subplots(2, 4, figsize=(15, 6.5), sharey=True)
    for axis, setting in zip(axes.flat, settings, strict=False):
        for method, points in summary["curves"][setting].get(dataset, {}).items():
            _draw_curve(axis, points, "accuracy", f"{summary['methods'][method]}, accuracy", summary, method)
            _draw_curve(axis, points, "nmi", f"{summary['methods'][method]}, NMI", summary, method, linestyle=":")
        axis.set_xlabel(summary["settings"][setting])
    for axis in axes.flat[len(settings) :]:
        axis.set_axis_off()
    handles, labels = axes.flat[1].get_legend_handles_labels()
    axes.flat[-1].legend(handles, labels, loc="center", frameon=False)
    axes[0, 0].set_ylabel("score (%)")
    axes[1, 0].set_ylabel("score (%)")
    figure.suptitle(f"{dataset_title(dataset)}: one setting changed at a time")
    return _save(figure, path)


def _draw_curve(
    axis: Axes, points: Sequence[atlas.Point], score: Score, label: str, summary: atlas.Summary, method: str,
    linestyle: str = "-",
) -> None:  # fmt: skip
    """Draw one curve over the places of its values, which are named on the axis."""
    names = ["certified" if point["value"] is None else str(point["value"]) for point in points]
    deviations = [point["accuracy_sd"] if score == "accuracy" else point["nmi_sd"] for point in points]
    color = f"C{list(summary['methods']).index(method)}"
    values = [point[score] for point in points]
    axis.errorbar(names, values, yerr=deviations, marker=".", label=label, color=color, linestyle=linestyle)


def _draw_effort(summary: atlas.Summary, datasets: Sequence[str], path: Path) -> Path:
    """Draw accuracy against the number of steps of the final codes, one panel a collection."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, max(len(datasets), 1), figsize=(4 * max(len(datasets), 1), 3.6), squeeze=False)
    for axis, dataset in zip(axes[0], datasets, strict=False):
        for method, points in summary["curves"].get("final_steps", {}).get(dataset, {}).items():
            _draw_curve(axis, points, "accuracy", summary["methods"][method], summary, method)
        axis.set_title(dataset_title(dataset))
        axis.set_xlabel("steps of the final codes")
    axes[0, 0].set_ylabel("accuracy (%)")
    axes[0, -1].legend(fontsize=7)
    return _save(figure, path)


# --- beyond the paper ------------------------------------------------------------------------------------------
def draw_beyond(datasets: Sequence[str], folder: Path) -> list[Path]:
    """Fit the default preset once per collection and draw its neighbours and its errors; return the paths."""
    from tubal import ImageClusterer
    from tubal.datasets import fetch

    _prepare_folder(folder)
    paths = []
    for name in datasets:
        bunch = fetch(name)
        model = ImageClusterer(len(np.unique(bunch.target)), views="shape", random_state=0).fit(bunch.images)
        paths.append(_draw_pairs(bunch.images, model.graph_, folder / f"beyond-{name}-neighbours.png"))
        paths.append(_draw_errors(bunch.images, bunch.target, model, folder / f"beyond-{name}-errors.png"))
    return paths


def _draw_pairs(images: Images, graph: Graph, path: Path) -> Path:
    """Draw images with their nearest neighbour before and after its alignment.

    The pairs cover the whole range of motions, so that both easy and hard ones are shown.
    """
    motion = np.zeros(graph.n_images)
    if graph.alignments is not None:
        first = graph.alignments[:, 0]
        motion = np.abs(first.rotation) / 10.0 + np.abs(first.scale - 1.0) / 0.08 + np.hypot(first.dy, first.dx) / 2.0
    shown = np.argsort(motion, kind="stable")[np.linspace(0, len(motion) - 1, _N_PAIRS).astype(int)]
    nearest = [images[_nearest_neighbor(graph, index)] for index in shown]
    aligned = [
        neighbor if graph.alignments is None else align(neighbor, graph, index, 0)
        for index, neighbor in zip(shown, nearest, strict=True)
    ]
    return _draw_grid(
        [[images[index] for index in shown], nearest, aligned],
        ["image", "nearest", "aligned"],
        [_describe_motion(graph, index) for index in shown],
        path,
    )


def _nearest_neighbor(graph: Graph, index: int) -> int:
    if graph.neighbors is None:
        raise ValueError("the graph was given as a matrix and has no neighbour lists; build it with knn_graph()")
    return int(graph.neighbors[index, 0])


def align(image: Images, graph: Graph, index: int, slot: int) -> Images:
    """Return a neighbour moved onto image ``index`` by the rotation, scale and shift that the graph found."""
    from scipy.ndimage import affine_transform

    if graph.alignments is None:
        raise ValueError("the graph has no alignments; build it with deformable_graph()")
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


def _describe_motion(graph: Graph, index: int) -> str:
    if graph.alignments is None:
        return ""
    motion = graph.alignments[index, 0]
    return (
        f"{float(motion.rotation):+.0f}°, ×{float(motion.scale):.2f}\n"
        f"{float(motion.dy):+.0f}, {float(motion.dx):+.0f} px"
    )


def wrong_images(target: Labels, labels: Labels) -> NDArray[np.intp]:
    """Return the indices of images outside the cluster of their class, under the best one-to-one assignment.

    >>> wrong_images(np.array(list("aaabbb")), np.array([1, 1, 0, 0, 0, 0]))
    array([2])
    """
    from scipy.optimize import linear_sum_assignment

    from tubal.metrics import contingency

    classes = np.unique(target, return_inverse=True)[1]
    counts = contingency(classes, labels)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    class_of_cluster = np.full(counts.shape[1], -1)
    class_of_cluster[columns] = rows
    return np.flatnonzero(class_of_cluster[labels] != classes)


def _draw_errors(images: Images, target: Labels, model: ImageClusterer, path: Path) -> Path:
    """Draw the wrong images, each with its nearest neighbour and the most typical image of its cluster."""
    wrong = wrong_images(target, model.labels_)
    shown = wrong[np.argsort(-model.confidence_[wrong], kind="stable")][:_N_ERRORS]
    rows = [
        [images[index] for index in shown],
        [images[_nearest_neighbor(model.graph_, index)] for index in shown],
        [images[model.medoids_[model.labels_[index]]] for index in shown],
    ]
    confidences = [f"{model.confidence_[index]:.2f}" for index in shown]
    note = f"{len(wrong)} wrong images in total"
    return _draw_grid(rows, ["wrong", "its nearest", "its cluster"], confidences, path, note=note)


def _draw_grid(
    rows: Sequence[Sequence[Images]], names: Sequence[str], titles: Sequence[str], path: Path, note: str = ""
) -> Path:
    """Draw rows of images with a name per row and a title per column."""
    from matplotlib.figure import Figure

    width = max(len(rows[0]), 1)
    figure = Figure(figsize=(0.9 * width + 1.0, 3.6))
    axes = figure.subplots(len(rows), width, squeeze=False)
    for row, (line, name) in enumerate(zip(rows, names, strict=True)):
        for column in range(width):
            axis = axes[row][column]
            axis.set_xticks([])
            axis.set_yticks([])
            if column < len(line):
                axis.imshow(line[column], cmap="gray", interpolation="nearest")
            if row == 0 and column < len(titles):
                axis.set_title(titles[column], fontsize=6)
        axes[row][0].set_ylabel(name, fontsize=8)
    if note:
        figure.text(0.5, 0.01, note, ha="center", fontsize=8)
    return _save(figure, path, dpi=120)


# --- the family ------------------------------------------------------------------------------------------------
def draw_family(summary: family.Summary, folder: Path) -> list[Path]:
    """Draw the rate-distortion and the shift curves of every collection; return the paths."""
    _prepare_folder(folder)
    paths = [_draw_rate(summary, dataset, folder) for dataset in summary["rate"].get("sparsity_fraction", {})]
    return paths + [_draw_shift(summary, dataset, folder) for dataset in summary["shift"]]


def _member_style(summary: family.Summary) -> Callable[[str], dict[str, Any]]:
    """Give every member the same colour and label in all figures."""
    methods = list(summary["methods"])
    return lambda method: {"color": f"C{methods.index(method)}", "label": summary["methods"][method], "marker": "."}


def _draw_rate(summary: family.Summary, dataset: str, folder: Path) -> Path:
    """Draw reconstruction error against the number of coefficients, with sparsity and dictionary size varied."""
    from matplotlib import pyplot

    style = _member_style(summary)
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
    panels = (("sparsity_fraction", "nonzero", "non-zero"), ("size", "stored", "stored"))
    for axis, (kind, name, word) in zip(axes, panels, strict=True):
        for method, points in summary["rate"].get(kind, {}).get(dataset, {}).items():
            counts = [max(point[name], 0.5) for point in points]
            axis.loglog(counts, [100 * point["error"] for point in points], **style(method))
        axis.set_xlabel(f"{word} coefficients per image")
    axes[0].set_ylabel("reconstruction error (% of energy)")
    axes[0].set_title(f"{dataset_title(dataset)}: sparsity varied")
    axes[1].set_title("size of the dictionary varied")
    axes[0].legend()
    return _save(figure, folder / f"family-rate-{dataset}.png")


def _draw_shift(summary: family.Summary, dataset: str, folder: Path) -> Path:
    """Draw the distance of shifted features against the shift, one panel for each kind of shift."""
    from matplotlib import pyplot

    style, kinds = _member_style(summary), summary["shift"][dataset]
    figure, grid = pyplot.subplots(1, len(kinds), figsize=(3.6 * len(kinds), 3.4), sharey=True, squeeze=False)
    axes: Sequence[Axes] = grid[0]
    for axis, (kind, methods) in zip(axes, kinds.items(), strict=True):
        for method, points in methods.items():
            axis.plot([int(pixels) for pixels in points], list(points.values()), **style(method))
        axis.set_title(kind)
        axis.set_xlabel("shift (pixels)")
    axes[0].set_ylabel("relative distance of features")
    axes[-1].legend(fontsize=7)
    return _save(figure, folder / f"family-shift-{dataset}.png")
