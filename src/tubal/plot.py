"""Pictures of models with matplotlib; every function draws on one Axes and returns it.

Each takes plain arrays or a fitted estimator. Matplotlib is imported on first use: ``pip install 'tubal[plot]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["atoms", "codes", "confusion", "convergence", "neighbors", "shifts"]

Array = NDArray[Any]


def atoms(source: Any, *, n_columns: int | None = None, ax: Any = None) -> Any:
    """Draw all atoms as one sheet.

    Parameters
    ----------
    source : array (n_atoms, height, width[, channels]), or an estimator with ``atoms_``
    n_columns : int, optional
        Atoms in a row; by default the sheet is about square.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = atoms(np.random.default_rng(0).normal(size=(6, 8, 8)))
    >>> axes.get_title()
    '6 atoms'
    """
    pictures = _pictures(_fitted(source, "atoms_"), "atoms")
    axes = _axes(ax)
    _show(axes, pictures, n_columns or ceil(sqrt(len(pictures))))
    axes.set_title(f"{len(pictures)} atoms")
    return axes


def shifts(source: Any, atom: int = 0, *, n_shifts: int = 8, axis: int = -1, ax: Any = None) -> Any:
    """Draw one atom at evenly spaced places around its circle (the paper's Figure 2).

    Parameters
    ----------
    source : array (n_atoms, height, width[, channels]), or an estimator with ``atoms_``
    n_shifts : int
        How many places; at most the length of the circle.
    axis : -1 or -2
        Whether the circle runs along rows (-1, the default tube axis) or columns (-2).

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = shifts(np.eye(4)[None], n_shifts=4)
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['0', '1', '2', '3']
    """
    pictures = _pictures(_fitted(source, "atoms_"), "atoms")
    if not -len(pictures) <= atom < len(pictures):
        raise ValueError(f"atom is {atom} but there are {len(pictures)} atoms; give 0 to {len(pictures) - 1}")
    if axis not in (-1, -2):
        raise ValueError(f"axis is {axis}; give -1 to shift along rows or -2 to shift along columns")
    dimension = 1 if axis == -1 else 0
    length = pictures.shape[1 + dimension]
    offsets = np.arange(min(n_shifts, length)) * length // min(n_shifts, length)
    moved = np.stack([np.roll(pictures[atom], offset, axis=dimension) for offset in offsets])
    axes = _axes(ax)
    _show(axes, moved, len(moved))
    _label_columns(axes, pictures.shape[2], [str(offset) for offset in offsets])
    axes.set_xlabel("shift in pixels")
    axes.set_title(f"atom {atom} around its circle")
    return axes


def codes(source: Any, image: int = 0, *, ax: Any = None) -> Any:
    """Draw the codes of one image: which atom (row) at which shift (column), and how strongly.

    Parameters
    ----------
    source : array (n, n_atoms, positions...), or an estimator with ``codes_``
        A single column per atom, and two-dimensional positions laid out one after another, are both drawn.
    image : int

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> codes(np.zeros((2, 5, 8)), image=1).get_ylabel()
    'atom'
    """
    values = np.asarray(_fitted(source, "codes_"))
    if values.ndim < 2 or not -len(values) <= image < len(values):
        raise ValueError(
            f"codes has shape {values.shape} and image is {image}; give (n, n_atoms, ...) and an index below n"
        )
    table = values[image].reshape(values.shape[1], -1)
    axes = _axes(ax)
    top = max(float(np.abs(table).max(initial=0.0)), np.finfo(float).tiny)
    picture = axes.imshow(table, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    _whole_ticks(axes)
    axes.figure.colorbar(picture, ax=axes, label="coefficient")
    axes.set(
        xlabel="shift",
        ylabel="atom",
        title=f"image {image}: {np.count_nonzero(table)} of {table.size} codes are not zero",
    )
    return axes


def neighbors(source: Any, images: Array, image: int = 0, *, ax: Any = None) -> Any:
    """Draw an image and, to its right, its nearest neighbours with their distances.

    Parameters
    ----------
    source : int array (n, q), a ``Graph``, or an estimator with ``graph_``
    images : array (n, height, width[, channels])

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = neighbors(np.array([[1], [0]]), np.zeros((2, 4, 4)))
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['image 0', '1']
    """
    indices, distances = _neighbourhood(source)
    pictures = _pictures(images, "images")
    if len(indices) != len(pictures) or not -len(pictures) <= image < len(pictures):
        raise ValueError(
            f"the graph has {len(indices)} images, images has {len(pictures)} and image is {image}; they must agree"
        )
    near = indices[image][indices[image] >= 0]
    axes = _axes(ax)
    _show(axes, pictures[[image, *near.tolist()]], len(near) + 1)
    notes = [str(j) if distances is None else f"{j}\n{distances[image][k]:.3g}" for k, j in enumerate(near)]
    _label_columns(axes, pictures.shape[2], [f"image {image}", *notes])
    axes.set_title(f"nearest neighbours of image {image}")
    return axes


def convergence(source: Any, *, ax: Any = None) -> Any:
    """Draw the objective over the passes of the alternation (Algorithm 2).

    Parameters
    ----------
    source : sequence of float, or an estimator with ``objective_``

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> convergence([3.0, 2.0, 1.5]).get_xlabel()
    'pass'
    """
    values = np.asarray(_fitted(source, "objective_"), dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"the objective has shape {values.shape}; give one number for each pass")
    axes = _axes(ax)
    axes.plot(np.arange(1, len(values) + 1), values, marker="o", markersize=3)
    _whole_ticks(axes, y=False)
    axes.grid(axis="y", alpha=0.3)
    axes.set(xlabel="pass", ylabel="objective", title=f"objective after {len(values)} passes: {values[-1]:.4g}")
    return axes


def confusion(true_labels: Sequence[Any] | Array, labels: Sequence[Any] | Array, *, ax: Any = None) -> Any:
    """Draw how given labels (rows) fall into clusters (columns), columns ordered so that agreement is diagonal.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = confusion(["a", "a", "b"], [1, 1, 0])
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['1', '0']
    """
    from scipy.optimize import linear_sum_assignment

    names, rows = np.unique(np.asarray(true_labels), return_inverse=True)
    clusters, columns = np.unique(np.asarray(labels), return_inverse=True)
    if len(rows) != len(columns):
        raise ValueError(
            f"there are {len(rows)} true labels but {len(columns)} cluster labels; give one of each per image"
        )
    counts = np.zeros((len(names), len(clusters)), dtype=int)
    np.add.at(counts, (rows, columns), 1)
    # A cluster without a row of its own goes to the right of all that have one.
    place = np.full(len(clusters), len(names))
    matched_rows, matched = linear_sum_assignment(-counts)
    place[matched] = matched_rows
    order = np.argsort(place, kind="stable")
    axes = _axes(ax)
    axes.imshow(counts[:, order], cmap="Blues", aspect="auto")
    axes.set_xticks(range(len(clusters)), [str(cluster) for cluster in clusters[order]])
    axes.set_yticks(range(len(names)), [str(name) for name in names])
    axes.set(xlabel="cluster", ylabel="given label", title="given labels against clusters")
    for (row, column), count in np.ndenumerate(counts[:, order]):
        if count:
            dark = count > counts.max() / 2
            axes.text(column, row, str(count), ha="center", va="center", color="white" if dark else "black", fontsize=8)
    return axes


def _fitted(source: Any, name: str) -> Any:
    """Take ``name`` from an estimator, or from the model inside a clusterer; arrays pass through."""
    if isinstance(source, np.ndarray | list | tuple):
        return source
    for holder in (source, getattr(source, "model_", None)):
        value = getattr(holder, name, None)
        if value is not None:
            return _to_numpy(value)
    raise TypeError(f"{type(source).__name__} has no {name}; give an array, or fit the estimator first")


def _to_numpy(value: Any) -> Any:
    """Bring a tensor from its device; anything else is left alone."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _neighbourhood(source: Any) -> tuple[Array, Array | None]:
    """Indices and distances (n, q) of an index array, a graph, or what holds a graph."""
    if isinstance(source, np.ndarray | list | tuple):
        return np.atleast_2d(np.asarray(source)), None
    graph = source if hasattr(source, "neighbors") else _fitted(source, "graph_")
    if graph.neighbors is None:
        raise ValueError("the graph came as a matrix and names no nearest neighbours; give an index array (n, q)")
    return np.asarray(graph.neighbors), np.asarray(graph.distances)


def _pictures(values: Any, name: str) -> Array:
    """Check for a stack of grey or colour pictures; a single channel is dropped."""
    stack = np.asarray(_to_numpy(values), dtype=np.float64)
    if stack.ndim == 4 and stack.shape[3] == 1:
        stack = stack[..., 0]
    if stack.size == 0 or not (stack.ndim == 3 or (stack.ndim == 4 and stack.shape[3] == 3)):
        raise ValueError(f"{name} has shape {stack.shape}; give (n, height, width) or (n, height, width, 3), n > 0")
    return stack


def _show(axes: Any, pictures: Array, n_columns: int) -> None:
    """Lay pictures out on a sheet; grey from black, signed ones from blue to red around white."""
    if pictures.ndim == 4:
        low, high = pictures.min(), pictures.max()
        axes.imshow(_sheet((pictures - low) / ((high - low) or 1.0), n_columns, 1.0), interpolation="nearest")
    else:
        top = max(float(np.abs(pictures).max()), np.finfo(float).tiny)
        signed = bool((pictures < 0).any())
        limits = {"vmin": -top if signed else 0.0, "vmax": top, "cmap": "RdBu_r" if signed else "gray"}
        axes.imshow(_sheet(pictures, n_columns, np.nan), interpolation="nearest", **limits)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _sheet(pictures: Array, n_columns: int, filler: float) -> Array:
    """Join pictures row by row with a gap of one pixel."""
    n_rows = ceil(len(pictures) / n_columns)
    gap = [(0, 0), (0, 1), (0, 1)] + [(0, 0)] * (pictures.ndim - 3)
    tiles = np.pad(pictures, gap, constant_values=filler)
    blank = np.full((n_rows * n_columns - len(tiles), *tiles.shape[1:]), filler)
    grid = np.concatenate([tiles, blank]).reshape(n_rows, n_columns, *tiles.shape[1:])
    joined = np.moveaxis(grid, 2, 1).reshape(n_rows * tiles.shape[1], n_columns * tiles.shape[2], *tiles.shape[3:])
    return np.asarray(joined[:-1, :-1])


def _label_columns(axes: Any, width: int, labels: list[str]) -> None:
    axes.set_xticks([(width + 1) * k + (width - 1) / 2 for k in range(len(labels))], labels)
    axes.tick_params(length=0)


def _whole_ticks(axes: Any, *, y: bool = True) -> None:
    """Count in whole numbers, as passes, shifts and atoms do."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if y:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _axes(ax: Any) -> Any:
    """The Axes to draw on: the one given, or that of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("tubal.plot needs matplotlib: pip install 'tubal[plot]'") from error
    return plt.subplots(layout="constrained")[1]
