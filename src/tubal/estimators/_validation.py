"""Checks of what users pass in: each failure one sentence with the value that came and the remedy."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from tubal._backend import Array, is_floating, is_torch, namespace

_ROWS = 2


def check_images(estimator: Any, images: Any, image_shape: tuple[int, ...] | None, *, reset: bool) -> Array:
    """Return images as a floating stack (n, height, width[, channels]) and remember or check their shape.

    Rows (n, features) become images of ``image_shape``, or one-row images without it.
    """
    if is_torch(images):
        images = _check_tensor(images)
    else:
        from sklearn.utils.validation import check_array, validate_data

        if getattr(images, "ndim", _ROWS) <= _ROWS:
            _refuse_strings(images)
            images = validate_data(estimator, images, reset=reset, dtype=_wanted_type(images), order="C")
        else:
            _refuse_strings(images)
            images = check_array(
                images, dtype=_wanted_type(images), allow_nd=True, ensure_2d=False, order="C", input_name="X"
            )
    stack = as_stack(images, image_shape)
    shape = tuple(int(extent) for extent in stack.shape[1:])
    if min(shape) < 1:
        raise ValueError(f"images of shape {shape} have no pixels; every side must be at least 1")
    if reset:
        estimator.image_shape_ = shape
        estimator.n_features_in_ = int(np.prod(shape))
    elif shape != estimator.image_shape_:
        raise ValueError(
            f"X has {int(np.prod(shape))} features, but {type(estimator).__name__} is expecting "
            f"{int(np.prod(estimator.image_shape_))} features as input: images of shape {shape} came, images of "
            f"shape {estimator.image_shape_} were fitted; resize them first"
        )
    return stack


def _refuse_strings(images: Any) -> None:
    kind = getattr(getattr(images, "dtype", None), "kind", "")
    if kind in "USV" and kind:
        raise ValueError(
            f"images hold {images.dtype} values, numbers are wanted; read files with tubal.datasets.load_image_folder"
        )


def _wanted_type(images: Any) -> Any:
    """Keep float32; narrow integers fit float32 exactly; everything else computes in float64."""
    dtype = getattr(images, "dtype", None)
    narrow = dtype is not None and dtype.kind in "uib" and dtype.itemsize <= 2
    return np.float32 if narrow or dtype == np.float16 else [np.float64, np.float32]


def _check_tensor(images: Array) -> Array:
    torch = namespace(images)
    if images.is_complex():
        raise ValueError("Complex data not supported: images hold complex numbers; pass their absolute value")
    if not is_floating(images) or images.dtype in (torch.float16, torch.bfloat16):
        images = images.to(torch.float32)
    if images.ndim < _ROWS or images.shape[0] == 0:
        raise ValueError(
            f"images came as a tensor of shape {tuple(images.shape)}; a stack (n, height, width) is wanted"
        )
    if not bool(torch.isfinite(images).all()):
        raise ValueError("Input X contains NaN or infinity; replace or drop those pixels first")
    return images


def as_stack(images: Array, image_shape: tuple[int, ...] | None) -> Array:
    """Return images (n, height, width[, channels]), rows brought to ``image_shape``."""
    if images.ndim > 4:
        raise ValueError(
            f"images came with shape {tuple(images.shape)}; (n, height, width), (n, height, width, channels) or "
            "(n, features) is wanted"
        )
    if images.ndim > _ROWS:
        if image_shape is not None and tuple(image_shape) != tuple(images.shape[1:]):
            raise ValueError(
                f"image_shape={tuple(image_shape)} but the images have shape {tuple(images.shape[1:])}; "
                "leave image_shape out for image stacks"
            )
        return images
    if image_shape is None:
        return images.reshape(images.shape[0], 1, images.shape[1])
    shape = tuple(image_shape)
    if len(shape) not in (2, 3) or any(not isinstance(side, Integral) or side < 1 for side in shape):
        raise ValueError(
            f"image_shape={image_shape!r}; (height, width) or (height, width, channels) is wanted"
        )
    if int(np.prod(shape)) != images.shape[1]:
        raise ValueError(
            f"image_shape={shape} has {int(np.prod(shape))} pixels but the rows have {images.shape[1]} features; "
            "the product of image_shape must equal the number of features"
        )
    return images.reshape(images.shape[0], *shape)


def check_integer(name: str, value: Any, *, least: int) -> int:
    """Return an integer parameter of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(
            f"{name}={value!r} is a {type(value).__name__}; an integer of at least {least} is wanted"
        )
    if value < least:
        raise ValueError(f"{name}={value}; it must be at least {least}")
    return int(value)


def check_weight(name: str, value: Any) -> float:
    """Return a finite, non-negative weight."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; a number of at least 0 is wanted")
    if not np.isfinite(value) or value < 0:
        raise ValueError(f"{name}={value}; it must be finite and at least 0")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """Return a parameter that must be one of ``choices``."""
    if not any(
        value is choice or (isinstance(value, type(choice)) and value == choice) for choice in choices
    ):
        raise ValueError(f"{name}={value!r}; it must be one of {', '.join(map(repr, choices))}")
    return value
