"""Figures of models with matplotlib; every function draws on one Axes and returns it.

Each function takes plain arrays or a fitted estimator. Matplotlib is imported on first use; install it with
``pip install 'tubal[plot]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tubal.backends.arrays import to_numpy
from tubal.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sklearn.base import BaseEstimator

    from tubal.graph import Graph

__all__ = ["atoms", "codes", "confusion", "convergence", "neighbors", "shifts"]

Pixels = NDArray[np.float64]


def atoms(source: ArrayLike | BaseEstimator, *, n_columns: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw all atoms of a dictionary as one sheet.

    Parameters
    ----------
    source : array-like of shape (n_atoms, height, width[, channels]), or estimator
        The atoms, or an estimator that is fitted and has ``atoms_``.
    n_columns : int, optional
        Number of atoms in a row; by default the sheet is about square.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes with the sheet.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = atoms(np.random.default_rng(0).normal(size=(6, 8, 8)))
    >>> axes.get_title()
    '6 atoms'
    """
    pictures = _check_pictures(_fitted_values(source, "atoms_"), "atoms")
    axes = _axes(ax)
    _draw_sheet(axes, pictures, n_columns or ceil(sqrt(len(pictures))))
    axes.set_title(count(len(pictures), "atom"))
    return axes


def shifts(
    source: ArrayLike | BaseEstimator, atom: int = 0, *, n_shifts: int = 8, axis: int = -1, ax: Axes | None = None
) -> Axes:
    """Draw one atom at evenly spaced circular shifts (the paper's Figure 2).

    Parameters
    ----------
    source : array-like of shape (n_atoms, height, width[, channels]), or estimator
        The atoms, or an estimator that is fitted and has ``atoms_``.
    atom : int, default=0
        Index of the atom.
    n_shifts : int, default=8
        Number of shifts to draw, at most the number of pixels along the axis.
    axis : {-1, -2}, default=-1
        Whether to shift along rows (-1, the default tube axis) or along columns (-2).
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes with a row of shifted atoms.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = shifts(np.eye(4)[None], n_shifts=4)
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['0', '1', '2', '3']
    """
    pictures = _check_pictures(_fitted_values(source, "atoms_"), "atoms")
    if not -len(pictures) <= atom < len(pictures):
        number = count(len(pictures), "atom")
        raise ValueError(f"atom is {atom}, but the dictionary has {number}; give 0 to {len(pictures) - 1}")
    if axis not in (-1, -2):
        raise ValueError(f"axis is {axis}; give -1 to shift along rows or -2 to shift along columns")
    dimension = 1 if axis == -1 else 0
    length = pictures.shape[1 + dimension]
    offsets = np.arange(min(n_shifts, length)) * length // min(n_shifts, length)
    shifted = np.stack([np.roll(pictures[atom], offset, axis=dimension) for offset in offsets])
    axes = _axes(ax)
    _draw_sheet(axes, shifted, len(shifted))
    _label_columns(axes, pictures.shape[2], [str(offset) for offset in offsets])
    axes.set_xlabel("shift in pixels")
    axes.set_title(f"circular shifts of atom {atom}")
    return axes


def codes(source: ArrayLike | BaseEstimator, image: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw the codes of one image: the coefficient of every atom (row) at every shift (column).

    Parameters
    ----------
    source : array-like of shape (n_images, n_atoms, *positions), or estimator
        The codes, or an estimator that is fitted and has ``codes_``. Positions in two dimensions are drawn one row
        after another.
    image : int, default=0
        Index of the image.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes with the table of coefficients.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> codes(np.zeros((2, 5, 8)), image=1).get_ylabel()
    'atom'
    """
    values = np.asarray(_fitted_values(source, "codes_"))
    if values.ndim < 2 or not -len(values) <= image < len(values):
        raise ValueError(
            f"codes has shape {values.shape} and image is {image}; give (n_images, n_atoms, ...) and an index below "
            "n_images"
        )
    table = values[image].reshape(values.shape[1], -1)
    axes = _axes(ax)
    top = max(float(np.abs(table).max(initial=0.0)), np.finfo(float).tiny)
    picture = axes.imshow(table, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    _use_integer_ticks(axes)
    axes.figure.colorbar(picture, ax=axes, label="coefficient")
    axes.set(
        xlabel="shift",
        ylabel="atom",
        title=f"image {image}: {np.count_nonzero(table)} of {table.size} codes are not zero",
    )
    return axes


def neighbors(
    source: ArrayLike | Graph | BaseEstimator, images: ArrayLike, image: int = 0, *, ax: Axes | None = None
) -> Axes:
    """Draw an image and, to its right, its nearest neighbours with their distances.

    Parameters
    ----------
    source : array-like of int of shape (n_images, n_neighbors), Graph, or estimator
        The neighbours of each image, a graph with neighbour lists, or a fitted estimator with ``graph_``.
    images : array-like of shape (n_images, height, width[, channels])
        The images of the graph.
    image : int, default=0
        Index of the image whose neighbours are drawn.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes with the image and its neighbours, in one row.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = neighbors(np.array([[1], [0]]), np.zeros((2, 4, 4)))
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['image 0', '1']
    """
    indices, distances = _neighbor_lists(source)
    pictures = _check_pictures(images, "images")
    if len(indices) != len(pictures) or not -len(pictures) <= image < len(pictures):
        raise ValueError(
            f"the graph has {count(len(indices), 'image')}, images has {len(pictures)} and image is {image}; "
            "they must agree"
        )
    nearest = indices[image][indices[image] >= 0]
    axes = _axes(ax)
    _draw_sheet(axes, pictures[[image, *nearest.tolist()]], len(nearest) + 1)
    notes = [str(j) if distances is None else f"{j}\n{distances[image][k]:.3g}" for k, j in enumerate(nearest)]
    _label_columns(axes, pictures.shape[2], [f"image {image}", *notes])
    axes.set_title(f"nearest neighbours of image {image}")
    return axes


def convergence(source: ArrayLike | BaseEstimator, *, ax: Axes | None = None) -> Axes:
    """Draw the objective over the iterations of the alternation (Algorithm 2).

    Parameters
    ----------
    source : array-like of shape (n_iterations,), or estimator
        The objective after each iteration, or an estimator that is fitted and has ``objective_``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes with the objective after every iteration made.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> convergence([3.0, 2.0, 1.5]).get_xlabel()
    'iteration'
    """
    values = np.asarray(_fitted_values(source, "objective_"), dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"the objective has shape {values.shape}; give one number per iteration")
    axes = _axes(ax)
    axes.plot(np.arange(1, len(values) + 1), values, marker="o", markersize=3)
    _use_integer_ticks(axes, y=False)
    axes.grid(axis="y", alpha=0.3)
    title = f"objective after {count(len(values), 'iteration')}: {values[-1]:.4g}"
    axes.set(xlabel="iteration", ylabel="objective", title=title)
    return axes


def confusion(true_labels: ArrayLike, labels: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw how many images of each known label (row) are in each cluster (column).

    The columns are ordered so that the best match of clusters and labels lies on the diagonal.

    Parameters
    ----------
    true_labels : array-like of shape (n_images,)
        What is known of each image; one row of the table for each label.
    labels : array-like of shape (n_images,)
        The clusters that were found; one column each.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes with the table of counts, one row for each known label.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = confusion(["a", "a", "b"], [1, 1, 0])
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['1', '0']
    """
    from tubal.metrics import contingency

    known, found = np.asarray(true_labels), np.asarray(labels)
    if len(known) != len(found):
        raise ValueError(
            f"there are {count(len(known), 'true label')} but {count(len(found), 'cluster label')}; "
            "give one of each per image"
        )
    counts = contingency(known, found)
    order = _diagonal_order(counts)
    names, clusters = np.unique(known), np.unique(found)[order]
    counts = counts[:, order]
    axes = _axes(ax)
    axes.imshow(counts, cmap="Blues", aspect="auto")
    axes.set_xticks(range(len(clusters)), [str(cluster) for cluster in clusters])
    axes.set_yticks(range(len(names)), [str(name) for name in names])
    axes.set(xlabel="cluster", ylabel="known label", title="known labels against clusters")
    for (row, column), number in np.ndenumerate(counts):
        if number:
            color = "white" if number > counts.max() / 2 else "black"
            axes.text(column, row, str(number), ha="center", va="center", color=color, fontsize=8)
    return axes


def _diagonal_order(counts: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the order of columns that puts the best one-to-one match on the diagonal, unmatched columns last."""
    from scipy.optimize import linear_sum_assignment

    n_rows, n_columns = counts.shape
    row_of_column = np.full(n_columns, n_rows)
    matched_rows, matched_columns = linear_sum_assignment(-counts)
    row_of_column[matched_columns] = matched_rows
    return np.argsort(row_of_column, kind="stable")


def _fitted_values(source: ArrayLike | BaseEstimator, name: str) -> ArrayLike:
    """Return the attribute ``name`` of an estimator, or of the coder inside a clusterer; arrays pass through."""
    if isinstance(source, np.ndarray | list | tuple):
        return source
    for holder in (source, getattr(source, "model_", None)):
        value = getattr(holder, name, None)
        if value is not None:
            return to_numpy(value)
    raise TypeError(f"{type(source).__name__} has no {name}; give an array, or fit the estimator first")


def _neighbor_lists(
    source: ArrayLike | Graph | BaseEstimator,
) -> tuple[NDArray[np.intp], NDArray[np.floating[Any]] | None]:
    """Return the neighbours and distances (n_images, n_neighbors) of an array, a graph, or an estimator."""
    if isinstance(source, np.ndarray | list | tuple):
        return np.atleast_2d(np.asarray(source)), None
    graph = cast("Graph | None", source if hasattr(source, "neighbors") else getattr(source, "graph_", None))
    if graph is None:
        raise TypeError(f"{type(source).__name__} has no graph_; give an array or a Graph, or fit the estimator first")
    if graph.neighbors is None:
        raise ValueError("the graph came as a matrix and has no neighbour lists; give an index array (n, n_neighbors)")
    return np.asarray(graph.neighbors), np.asarray(graph.distances)


def _check_pictures(values: ArrayLike, name: str) -> Pixels:
    """Return a stack of grey or colour pictures, without a single channel, or raise an error that gives its shape."""
    stack = np.asarray(to_numpy(values), dtype=np.float64)
    if stack.ndim == 4 and stack.shape[3] == 1:
        stack = stack[..., 0]
    if stack.size == 0 or not (stack.ndim == 3 or (stack.ndim == 4 and stack.shape[3] == 3)):
        raise ValueError(f"{name} has shape {stack.shape}; give (n, height, width) or (n, height, width, 3), n > 0")
    return stack


def _draw_sheet(axes: Axes, pictures: Pixels, n_columns: int) -> None:
    """Draw pictures on a sheet: positive ones from black to white, signed ones from blue over white to red."""
    if pictures.ndim == 4:
        low, high = pictures.min(), pictures.max()
        axes.imshow(_join((pictures - low) / ((high - low) or 1.0), n_columns, 1.0), interpolation="nearest")
    else:
        top = max(float(np.abs(pictures).max()), np.finfo(float).tiny)
        low, colors = (-top, "RdBu_r") if (pictures < 0).any() else (0.0, "gray")
        axes.imshow(_join(pictures, n_columns, np.nan), interpolation="nearest", vmin=low, vmax=top, cmap=colors)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _join(pictures: Pixels, n_columns: int, filler: float) -> Pixels:
    """Join pictures row by row into one, with gaps of one pixel."""
    n_rows = ceil(len(pictures) / n_columns)
    gap = [(0, 0), (0, 1), (0, 1)] + [(0, 0)] * (pictures.ndim - 3)
    tiles = np.pad(pictures, gap, constant_values=filler)
    blank = np.full((n_rows * n_columns - len(tiles), *tiles.shape[1:]), filler)
    grid = np.concatenate([tiles, blank]).reshape(n_rows, n_columns, *tiles.shape[1:])
    joined = np.moveaxis(grid, 2, 1).reshape(n_rows * tiles.shape[1], n_columns * tiles.shape[2], *tiles.shape[3:])
    return np.asarray(joined[:-1, :-1])


def _label_columns(axes: Axes, width: int, labels: Sequence[str]) -> None:
    axes.set_xticks([(width + 1) * k + (width - 1) / 2 for k in range(len(labels))], labels)
    axes.tick_params(length=0)


def _use_integer_ticks(axes: Axes, *, y: bool = True) -> None:
    """Put ticks at integers only; iterations, shifts and atoms are counted."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if y:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _axes(ax: Axes | None) -> Axes:
    """Return the Axes to draw on: the one given, or that of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("tubal.plot needs matplotlib: pip install 'tubal[plot]'") from error
    axes: Axes = plt.subplots(layout="constrained")[1]
    return axes
