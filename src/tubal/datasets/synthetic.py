"""Synthetic images of shapes, shifted along their rows: classes that shift-aware codes should tell apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.utils import Bunch

__all__ = ["make_shifted_shapes"]

Grid = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Each shape is a condition on coordinates in [-1, 1]; rows increase downwards, columns to the right.
_SHAPES: dict[str, Callable[[Grid, Grid], Mask]] = {
    "disc": lambda row, column: row**2 + column**2 < 0.4,
    "bars": lambda row, column: (abs(abs(column) - 0.4) < 0.15) & (abs(row) < 0.8),
    "cross": lambda row, column: ((abs(row) < 0.18) | (abs(column) < 0.18)) & (abs(row) + abs(column) < 0.9),
    "triangle": lambda row, column: (row > 2 * abs(column) - 0.6) & (row < 0.6),
    "ring": lambda row, column: abs(np.hypot(row, column) - 0.6) < 0.16,
    "stair": lambda row, column: (np.floor(2.5 * row) == np.floor(2.5 * column)) & (abs(row) < 0.8),
    "frame": lambda row, column: abs(np.maximum(abs(row), abs(column)) - 0.65) < 0.15,
    "step": lambda row, column: np.where(row < 0, abs(column + 0.3) < 0.2, abs(column - 0.1) < 0.5) > 0,
}


def make_shifted_shapes(
    n_samples: int = 200,
    *,
    n_classes: int = 4,
    image_shape: tuple[int, int] = (16, 16),
    max_shift: int | None = None,
    noise: float = 0.05,
    random_state: int | np.random.Generator | None = None,
) -> Bunch:
    """Make images of simple shapes, each shifted circularly along its rows.

    Parameters
    ----------
    n_samples : int, default=200
        Number of images.
    n_classes : int, default=4
        Number of different shapes, 2 to 8; they occur equally often.
    image_shape : (int, int), default=(16, 16)
        Height and width of an image, at least 8 each.
    max_shift : int, optional
        Largest shift in pixels to either side; by default half the width, so that every position occurs.
    noise : float, default=0.05
        Standard deviation of the Gaussian noise added to every pixel; the sum is clipped to [0, 1].
    random_state : int or numpy.random.Generator, optional
        Seed of the shifts, the noise and the order of the classes.

    Returns
    -------
    Bunch
        A dictionary whose keys are also attributes:

        images : ndarray of shape (n_samples, height, width)
            Float32 values in [0, 1].
        data : ndarray of shape (n_samples, height * width)
            The same images as rows.
        target : ndarray of shape (n_samples,)
            The class of each image.
        shifts : ndarray of shape (n_samples,)
            The shift of each image in pixels to the right.
        target_names : list of str
            The names of the shapes.
        DESCR : str
            A description.

    Examples
    --------
    >>> shapes = make_shifted_shapes(6, n_classes=3, random_state=0)
    >>> shapes.images.shape, sorted(shapes.target.tolist())
    ((6, 16, 16), [0, 0, 1, 1, 2, 2])
    """
    from sklearn.utils import Bunch

    _check_arguments(n_samples, n_classes, image_shape, noise)
    generator = np.random.default_rng(random_state)
    largest = image_shape[1] // 2 if max_shift is None else max_shift
    names = list(_SHAPES)[:n_classes]
    templates = np.stack([_draw(name, image_shape) for name in names])
    target = generator.permutation(np.arange(n_samples) % n_classes)
    shifts = generator.integers(-largest, largest + 1, size=n_samples)
    columns = (np.arange(image_shape[1]) - shifts[:, None]) % image_shape[1]
    clean = np.take_along_axis(templates[target], columns[:, None, :], axis=2)
    noisy = clean + generator.normal(scale=noise, size=clean.shape)
    images = np.clip(noisy, 0.0, 1.0).astype(np.float32)
    return Bunch(
        images=images,
        data=images.reshape(n_samples, -1),
        target=target.astype(np.int64),
        shifts=shifts,
        target_names=names,
        DESCR=f"{n_samples} images of {n_classes} shapes, shifted circularly along their rows.",
    )


def _draw(name: str, image_shape: tuple[int, int]) -> Grid:
    height, width = image_shape
    row, column = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    return _SHAPES[name](row, column).astype(np.float64)


def _check_arguments(n_samples: int, n_classes: int, image_shape: tuple[int, int], noise: float) -> None:
    if not 2 <= n_classes <= len(_SHAPES):
        raise ValueError(f"n_classes is {n_classes}; there are shapes for 2 to {len(_SHAPES)} classes")
    if n_samples < 1:
        raise ValueError(f"n_samples is {n_samples}; make at least one image")
    if len(image_shape) != 2 or min(image_shape) < 8:
        raise ValueError(f"image_shape is {image_shape}; the shapes need (height, width) of at least 8 pixels")
    if noise < 0:
        raise ValueError(f"noise is {noise}; a standard deviation cannot be negative")
