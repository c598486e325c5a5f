"""How a fitted estimator is displayed in a notebook: parameters, atoms and convergence, without scripts or network."""

from __future__ import annotations

import base64
import inspect
import io
from collections.abc import Sequence
from html import escape
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from tubal.backends.arrays import to_numpy
from tubal.text import count

if TYPE_CHECKING:
    from PIL import Image

# A notebook stores what it displays: more atoms than this, or larger ones, would only make its file large.
MOST_ATOMS, LONGEST_SIDE = 64, 48
SHEET_WIDTH = 260
CHART_WIDTH, CHART_HEIGHT, MARGIN = 300, 150, 8
_BOX = "display:flex;flex-wrap:wrap;gap:24px;align-items:flex-start;font:13px/1.45 system-ui,sans-serif;padding:4px"
_TABLE = "font-size:inherit;border-collapse:collapse;margin:4px 0"
_CELL = "text-align:left;padding:1px 12px 1px 0"
_QUIET = "opacity:.7;font-size:12px"


class NotebookView:
    """Mixin that displays fitted estimators with their atoms; others keep the display of scikit-learn.

    scikit-learn decides whether HTML is wanted (``set_config(display=...)``) and calls ``_html_repr``; releases before
    1.7 call the two other methods.
    """

    def _html_repr(self) -> str:
        from sklearn.utils import estimator_html_repr

        return fitted_html(self) if hasattr(_coder(self), "atoms_") else str(estimator_html_repr(self))

    def _repr_html_inner(self) -> str:
        return self._html_repr()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from sklearn import get_config

        bundle = {"text/plain": repr(self)}
        if get_config()["display"] == "diagram":
            bundle["text/html"] = self._html_repr()
        return bundle


def fitted_html(estimator: BaseEstimator) -> str:
    """Return a fitted coder or clusterer as one piece of HTML; all text in it is escaped."""
    coder = _coder(estimator)
    parts = [_parameters_html(estimator), _atoms_html(to_numpy(coder.atoms_))]
    objective = np.asarray(getattr(coder, "objective_", ()), dtype=np.float64)
    if len(objective):
        parts.append(_convergence(objective, bool(getattr(coder, "converged_", False))))
    return f'<div class="tubal" style="{_BOX}">{"".join(parts)}</div>'


def _coder(estimator: object) -> BaseEstimator:
    """Return the estimator that has atoms; a clusterer keeps it as ``model_``."""
    return getattr(estimator, "model_", estimator)


# --- parameters ------------------------------------------------------------------------------------------------
def _parameters_html(estimator: BaseEstimator) -> str:
    """Return all parameters as a table; those that differ from the default come first, in bold."""
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(type(estimator).__init__).parameters.items()
    }
    given = estimator.get_params(deep=False)
    changed = [name for name in given if not _is_equal(given[name], defaults.get(name))]
    rows = "".join(_table_row(name, given[name], bold=True) for name in changed)
    others = "".join(_table_row(name, value, bold=False) for name, value in given.items() if name not in changed)
    summary = f'<summary style="cursor:pointer;{_QUIET}">{len(given) - len(changed)} parameters at their default'
    rest = f'<details>{summary}</summary><table style="{_TABLE}">{others}</table></details>' if others else ""
    title = f"<strong>{escape(type(estimator).__name__)}</strong>"
    return f'<div>{title}<br>{escape(_summary(estimator))}<table style="{_TABLE}">{rows}</table>{rest}</div>'


def _is_equal(value: object, default: object) -> bool:
    return value is default or (isinstance(value, (int, float, str, tuple)) and value == default)


def _table_row(name: str, value: object, *, bold: bool) -> str:
    weight = "600" if bold else "400"
    cells = f'<td style="{_CELL}">{escape(name)}</td><td style="{_CELL}"><code>{_short_text(value)}</code></td>'
    return f'<tr style="font-weight:{weight}">{cells}</tr>'


def _short_text(value: object) -> str:
    """Return a value as short, escaped text."""
    text = f"{type(value).__name__} {tuple(value.shape)}" if hasattr(value, "shape") else repr(value)
    return escape(text if len(text) <= 40 else f"{text[:37]}...")


def _summary(estimator: BaseEstimator) -> str:
    """Return how many images were fitted, their shape, and the clusters if there are any."""
    coder = _coder(estimator)
    shape = "×".join(str(extent) for extent in coder.image_shape_)
    n_images = len(estimator.labels_) if hasattr(estimator, "labels_") else len(coder.codes_)
    found = f"{count(n_images, 'image')} of {shape}"
    if hasattr(estimator, "n_clusters_"):
        sizes = np.bincount(np.asarray(estimator.labels_))
        found += f" in {count(estimator.n_clusters_, 'cluster')} of {sizes.min()} to {sizes.max()}"
    return found


# --- atoms -----------------------------------------------------------------------------------------------------
def _atoms_html(atoms: NDArray[Any]) -> str:
    """Return a picture of the atoms as an HTML image."""
    shown = atoms[:MOST_ATOMS]
    sheet = _sheet(np.stack([_picture(atom) for atom in shown]))
    buffer = io.BytesIO()
    _pil_image(sheet).save(buffer, "PNG")
    address = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
    title = count(len(atoms), "atom") if len(shown) == len(atoms) else f"the first {len(shown)} of {len(atoms)} atoms"
    style = f"width:{SHEET_WIDTH}px;max-width:100%;image-rendering:pixelated;display:block"
    return f'<div><span style="{_QUIET}">{title}</span><img alt="{title}" src="{address}" style="{style}"></div>'


def _picture(atom: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an atom as RGB, scaled by its largest value: grey where positive, red where negative.

    >>> _picture(np.array([[1.0, 0.5, 0.0, -1.0]]))[0].tolist()
    [[255, 255, 255], [128, 128, 128], [0, 0, 0], [255, 0, 0]]
    """
    values = np.nan_to_num(np.asarray(atom, dtype=np.float64))
    values = values / (np.abs(values).max() or 1.0)
    if values.ndim == 2:
        positive, negative = np.clip(values, 0.0, 1.0), np.clip(-values, 0.0, 1.0)
        values = np.stack([positive + negative, positive, positive], axis=-1)
    else:
        values = np.repeat(values, 3, axis=-1) if values.shape[-1] == 1 else values[..., :3]
        values = 0.5 + 0.5 * values  # a colour cannot show a sign: zero is grey
    return _shrink(np.round(255.0 * values).astype(np.uint8))


def _shrink(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a picture with sides of at most ``LONGEST_SIDE`` pixels."""
    longest = max(picture.shape[:2])
    if longest <= LONGEST_SIDE:
        return picture
    height, width = (max(1, round(side * LONGEST_SIDE / longest)) for side in picture.shape[:2])
    return np.asarray(_pil_image(picture).resize((width, height)))


def _pil_image(picture: NDArray[np.uint8]) -> Image.Image:
    from PIL import Image

    return Image.fromarray(picture)


def _sheet(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Arrange pictures (n, height, width, 3) row by row, with a grey pixel between them."""
    n_columns = ceil(sqrt(len(pictures)))
    n_rows = ceil(len(pictures) / n_columns)
    tiles = np.pad(pictures, ((0, n_rows * n_columns - len(pictures)), (0, 1), (0, 1), (0, 0)), constant_values=128)
    grid = np.moveaxis(tiles.reshape(n_rows, n_columns, *tiles.shape[1:]), 2, 1)
    joined = grid.reshape(n_rows * tiles.shape[1], n_columns * tiles.shape[2], 3)
    return np.asarray(joined[:-1, :-1])


# --- convergence -----------------------------------------------------------------------------------------------
def _convergence(objective: NDArray[np.float64], converged: bool) -> str:
    """Return the objective over the iterations as an SVG line."""
    places = _chart_points(objective)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in places)
    state = "converged" if converged else "stopped"
    title = f"objective {objective[0]:.4g} to {objective[-1]:.4g}, {state} after {len(objective)} iterations"
    curve = f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/>{dots}'
    size = f'width="{CHART_WIDTH}" height="{CHART_HEIGHT}" viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}"'
    frame = f'<rect x="0.5" y="0.5" width="{CHART_WIDTH - 1}" height="{CHART_HEIGHT - 1}" fill="none" opacity=".3"'
    picture = f'<svg {size} role="img" aria-label="{title}" fill="currentColor">{frame} stroke="currentColor"/>{curve}'
    return f'<div><span style="{_QUIET}">{title}</span><br>{picture}</svg></div>'


def _chart_points(values: NDArray[np.float64]) -> Sequence[tuple[float, float]]:
    """Return the points (x, y) of a line chart, in pixels; the first value is on the left, the largest at the top.

    >>> _chart_points(np.array([3.0, 1.0]))
    [(8.0, 8.0), (292.0, 142.0)]
    """
    finite = np.nan_to_num(values)
    low, high = float(finite.min()), float(finite.max())
    width, height = CHART_WIDTH - 2 * MARGIN, CHART_HEIGHT - 2 * MARGIN
    heights = (high - finite) / ((high - low) or 1.0)
    steps = np.arange(len(values)) / max(1, len(values) - 1)
    return [(MARGIN + width * float(x), MARGIN + height * float(y)) for x, y in zip(steps, heights, strict=True)]
