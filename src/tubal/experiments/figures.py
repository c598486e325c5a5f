"""The pictures of the results folder; matplotlib is loaded here and only when they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tubal.experiments.paper import load_paper
from tubal.experiments.rule import CODERS

_METADATA = {"Software": None}  # keeps the files the same from one matplotlib to the next


def draw_all(summary: Mapping[str, Any], curves: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw every figure into ``folder`` and return the paths; learned pictures use the digits."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise ImportError(
            "the figures need matplotlib: pip install 'tubal[plot]', or leave them out with --no-figures"
        ) from None
    mpl.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    models = _fit_on_digits()
    paths = [_bars(summary, row, folder / f"table2-{row}.png") for row in summary["rows"]]
    paths += [
        _shifts(models["gtsc"].atoms_, folder / "atom-shifts.png"),
        _atoms(models, folder / "atoms.png"),
        _convergence(models, folder / "convergence.png"),
    ]
    for setting, datasets in curves.items():
        paths.append(_curves(setting, datasets, summary["methods"], folder / f"sweep-{setting}.png"))
    return paths


def _fit_on_digits() -> dict[str, Any]:
    from tubal.datasets import load_digits_images
    from tubal.experiments.models import fit_coder
    from tubal.experiments.table2 import settings_for

    images = load_digits_images().images
    models = {}
    for name, (tubal, graph) in CODERS.items():
        settings = settings_for("label-free", name, "digits")
        models[name] = fit_coder(images, settings, 0, tubal=tubal, graph=graph)[0]
    return models


def _save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot

    figure.savefig(path, dpi=110, bbox_inches="tight", metadata=_METADATA)
    pyplot.close(figure)
    return path


def _bars(summary: Mapping[str, Any], row: str, path: Path) -> Path:
    """Measured means as bars with their standard deviation, printed values as short lines across them."""
    from matplotlib import pyplot

    datasets, methods = summary["datasets"], summary["rows"][row]
    figure, axes = pyplot.subplots(2, 1, figsize=(9, 6), sharex=True)
    width = 0.8 / max(len(methods), 1)
    for axis, score in zip(axes, ("accuracy", "nmi"), strict=True):
        for place, (method, cells) in enumerate(methods.items()):
            for index, dataset in enumerate(datasets):
                if dataset not in cells:
                    continue
                values, middle = cells[dataset][score], index + (place - (len(methods) - 1) / 2) * width
                label = summary["methods"][method] if index == 0 else None
                axis.bar(middle, values["mean"], width * 0.92, yerr=values["sd"], color=f"C{place}", label=label)
                if values["printed"] is not None:
                    axis.hlines(values["printed"], middle - width / 2, middle + width / 2, color="black")
        axis.set_ylabel(f"{'accuracy' if score == 'accuracy' else 'NMI'} (%)")
        axis.set_ylim(30, 100)
    collections = load_paper().collections
    titles = [collections[name].title if name in collections else name for name in datasets]
    axes[1].set_xticks(range(len(datasets)), titles)
    axes[0].set_title(f"{row} rows; black lines: values printed in the paper")
    axes[1].legend(ncols=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False)
    return _save(figure, path)


def _shifts(atoms: NDArray[Any], path: Path) -> Path:
    """Figure 2 of the paper: one learned atom and all its circular shifts, which its code chooses among."""
    from matplotlib import pyplot

    energy = np.square(np.diff(atoms, axis=2)).sum(axis=(1, 2))
    atom = np.asarray(atoms)[int(energy.argmax())]  # the one with most structure along the tube
    width = atom.shape[1]
    figure, axes = pyplot.subplots(1, width, figsize=(1.1 * width, 1.5))
    for shift, axis in enumerate(axes):
        axis.imshow(np.roll(atom, shift, axis=1), cmap="gray")
        axis.set_title("atom" if shift == 0 else f"by {shift}", fontsize=8)
        axis.set_axis_off()
    return _save(figure, path)


def _atoms(models: Mapping[str, Any], path: Path) -> Path:
    """Twelve atoms of each method; SC and GraphSC atoms are shown in the pixel space PCA came from."""
    from matplotlib import pyplot

    from tubal.experiments.table2 import METHODS

    figure, axes = pyplot.subplots(len(models), 12, figsize=(11, 1.1 * len(models)))
    for line, (name, model) in zip(axes, models.items(), strict=True):
        pictures = _as_pictures(name, model)
        codes = np.abs(np.asarray(model.codes_))
        used = np.argsort(-codes.reshape(*codes.shape[:2], -1).sum(axis=(0, 2)))
        for axis, index in zip(line, used, strict=False):
            axis.imshow(pictures[index], cmap="gray")
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(METHODS[name].title, fontsize=9)
    return _save(figure, path)


def _as_pictures(name: str, model: Any) -> NDArray[Any]:
    from sklearn.decomposition import PCA

    from tubal.datasets import load_digits_images
    from tubal.experiments.models import scale_images
    from tubal.experiments.table2 import settings_for

    atoms = np.asarray(model.atoms_)
    settings = settings_for("label-free", name, "digits")
    if "pca_variance" not in settings:
        return atoms
    images = scale_images(load_digits_images().images, settings["scale"])
    components = PCA(n_components=settings["pca_variance"], svd_solver="full").fit(images.reshape(len(images), -1))
    return np.asarray((atoms.reshape(len(atoms), -1) @ components.components_).reshape(-1, *images.shape[1:]))


def _convergence(models: Mapping[str, Any], path: Path) -> Path:
    """Objective after each outer iteration, relative to the last."""
    from matplotlib import pyplot

    from tubal.experiments.table2 import METHODS

    figure, axis = pyplot.subplots(figsize=(6, 3.5))
    for name, model in models.items():
        objective = np.asarray(model.objective_, dtype=float)
        axis.plot(range(1, len(objective) + 1), objective / objective[-1], marker=".", label=METHODS[name].title)
    axis.set_xlabel("outer iteration (digits)")
    axis.set_ylabel("objective / its last value")
    axis.legend()
    return _save(figure, path)


def _curves(setting: str, datasets: Mapping[str, Any], titles: Mapping[str, str], path: Path) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(datasets), figsize=(3.2 * len(datasets), 3), squeeze=False, sharey=True)
    for axis, (dataset, methods) in zip(axes[0], datasets.items(), strict=True):
        for method, points in methods.items():
            values = [point["value"] for point in points]
            scores, spread = ([point[name] for point in points] for name in ("accuracy", "accuracy_sd"))
            axis.errorbar(values, scores, yerr=spread, marker=".", label=titles[method])
        axis.set_xscale("symlog" if min(values) == 0 else "log", **({"linthresh": 0.1} if min(values) == 0 else {}))
        axis.set_title(dataset)
        axis.set_xlabel(setting.replace("_", " "))
    axes[0, 0].set_ylabel("accuracy (%)")
    axes[0, 0].legend(fontsize=7)
    return _save(figure, path)
