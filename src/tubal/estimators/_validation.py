"""Checks of what users pass in: each failure one sentence with the value that came and the remedy."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from tubal.backends.arrays import Array, is_floating, is_torch, namespace, to_numpy
from tubal.learning.sources import is_source

_ROWS = 2


def check_images(estimator: Any, images: Any, image_shape: tuple[int, ...] | None, *, reset: bool) -> Array:
    """Return images as a floating stack (n, height, width[, channels]) and remember or check their shape.

    Rows (n, features) become images of ``image_shape``, or one-row images without it.
    """
    if is_source(images) and not hasattr(images, "__array__"):
        raise TypeError(
            f"images came as a {type(images).__name__}, which only fit of a coder reads piece by piece; pass an array"
        )
    images = _check_tensor(images) if is_torch(images) else _check_array(estimator, images, reset=reset)
    _refuse_missing(images)
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


def _check_array(estimator: Any, images: Any, *, reset: bool) -> Array:
    """Return anything that is not a tensor as a floating array, scikit-learn's bookkeeping done."""
    from sklearn.utils.validation import check_array, validate_data

    images = _array_of_list(images) if isinstance(images, (list, tuple)) else images
    # Some sparse matrices are dictionaries too; scikit-learn refuses those in its own words.
    wrong = isinstance(images, (dict, set, str, bytes, Real)) and not hasattr(images, "toarray")
    if images is None or wrong:
        raise TypeError(f"X is a {type(images).__name__}; a stack of images (n, height, width) is wanted")
    _refuse_kinds(images)
    shape = getattr(images, "shape", None)
    if shape is not None and len(shape) < _ROWS:
        raise ValueError(
            f"images came with shape {tuple(shape)}; a stack (n, height, width) or rows (n, features) are wanted. "
            "Reshape your data, with array[None] if it is a single image"
        )
    if shape is not None and shape[0] == 0:
        raise ValueError(f"X has shape {tuple(shape)} and so holds no image; pass at least one")
    options = {"dtype": _wanted_type(images), "order": "C", "ensure_all_finite": False}
    if getattr(images, "ndim", _ROWS) <= _ROWS:
        return validate_data(estimator, images, reset=reset, **options)
    return check_array(images, allow_nd=True, ensure_2d=False, input_name="X", **options)


def _array_of_list(images: Any) -> Array:
    try:
        return np.asarray(images)
    except ValueError as error:
        raise ValueError(
            "the images in the list have different shapes; resize them to one shape first, as "
            "tubal.datasets.load_image_folder does"
        ) from error


def _refuse_kinds(images: Any) -> None:
    dtype = getattr(images, "dtype", None)
    kind = getattr(dtype, "kind", "")
    words = kind == "O" and any(isinstance(value, str) for value in np.asarray(images).ravel())
    if words or kind in ("U", "S", "V", "M", "m"):
        raise ValueError(
            f"images hold {'text' if words else dtype} values, numbers are wanted; read files with "
            "tubal.datasets.load_image_folder"
        )
    if kind == "c":
        raise ValueError(
            f"Complex data not supported: images hold {dtype} values, real numbers are wanted; pass their absolute "
            "value"
        )


def _refuse_missing(images: Array) -> None:
    """Refuse NaN and infinity, and say where the first one is."""
    xp = namespace(images)
    with np.errstate(over="ignore", invalid="ignore"):  # finite values whose sum overflows are looked into below
        if bool(xp.isfinite(images.sum())):
            return
    bad = ~xp.isfinite(images)
    count = int(bad.sum())
    if count == 0:
        return
    first = tuple(int(index) for index in np.argwhere(to_numpy(bad))[0])
    value = "NaN" if bool(xp.isnan(images[first])) else "infinity"
    raise ValueError(
        f"Input X contains {value}: image {first[0]} has it at {first[1:]}, and {count} value(s) in all are NaN or "
        "infinity; replace or drop them first"
    )


def _wanted_type(images: Any) -> Any:
    """Keep float32; narrow integers fit float32 exactly; everything else computes in float64."""
    dtype = getattr(images, "dtype", None)
    narrow = dtype is not None and dtype.kind in "uib" and dtype.itemsize <= 2
    return np.float32 if narrow or dtype == np.float16 else [np.float64, np.float32]


def _check_tensor(images: Array) -> Array:
    torch = namespace(images)
    if images.is_complex():
        raise ValueError(
            f"Complex data not supported: images hold {images.dtype} values, real numbers are wanted; pass their "
            "absolute value"
        )
    if not is_floating(images) or images.dtype in (torch.float16, torch.bfloat16):
        images = images.to(torch.float32)
    if images.ndim < _ROWS or images.shape[0] == 0:
        raise ValueError(
            f"images came as a tensor of shape {tuple(images.shape)}; a stack (n, height, width) of at least one image "
            "is wanted"
        )
    return images


def as_stack(images: Array, image_shape: tuple[int, ...] | None) -> Array:
    """Return images (n, height, width[, channels]), rows brought to ``image_shape``."""
    if images.ndim > 4:
        raise ValueError(
            f"images came with shape {tuple(images.shape)}; (n, height, width), (n, height, width, channels) or "
            "(n, features) is wanted"
        )
    if images.ndim > _ROWS:
        if image_shape is not None and image_shape != tuple(images.shape[1:]):
            raise ValueError(
                f"image_shape={image_shape} but the images have shape {tuple(images.shape[1:])}; "
                "leave image_shape out for image stacks"
            )
        return images
    if image_shape is None:
        return images.reshape(images.shape[0], 1, images.shape[1])
    shape = tuple(image_shape) if isinstance(image_shape, (tuple, list)) else ()
    if len(shape) not in (2, 3) or any(not isinstance(side, Integral) or side < 1 for side in shape):
        raise ValueError(f"image_shape={image_shape!r}; (height, width) or (height, width, channels) is wanted")
    if int(np.prod(shape)) != images.shape[1]:
        raise ValueError(
            f"image_shape={shape} has {int(np.prod(shape))} pixels but the rows have {images.shape[1]} features; "
            "the product of image_shape must equal the number of features"
        )
    return images.reshape(images.shape[0], *shape)


def check_integer(name: str, value: Any, *, least: int) -> int:
    """Return an integer parameter of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; an integer of at least {least} is wanted")
    if value < least:
        raise ValueError(f"{name}={value}; it must be at least {least}")
    return int(value)


def check_weight(name: str, value: Any) -> float:
    """Return a finite, non-negative weight."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; a number of at least 0 is wanted")
    if not np.isfinite(float(value)) or value < 0:
        raise ValueError(f"{name}={value}; it must be finite and at least 0")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """Return a parameter that must be one of ``choices``."""
    if not any(value is choice or (isinstance(value, type(choice)) and value == choice) for choice in choices):
        raise ValueError(f"{name}={value!r}; it must be one of {', '.join(map(repr, choices))}")
    return value


def check_method(name: str, value: Any, methods: tuple[str, ...], example: str) -> None:
    """Refuse an object that lacks ``methods``; None stands for the default."""
    lacking = isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods)
    if value is not None and lacking:
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; an object such as {example} is wanted, or None")


def check_callbacks(value: Any) -> list[Any]:
    """Return callbacks, given as None, one function or several, as a list."""
    several = list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]
    for callback in several:
        if not callable(callback):
            raise TypeError(
                f"callbacks={value!r} holds a {type(callback).__name__}; functions of one argument, the Progress, "
                "are wanted"
            )
    return several


def check_atoms(atoms: Array) -> Array:
    """Return starting atoms (tube, row, atom), if every one is finite and has a pixel."""
    xp = namespace(atoms)
    lengths = to_numpy(xp.sqrt((atoms**2).sum((0, 1))))
    wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0.0)))
    if len(wrong):
        raise ValueError(
            f"init has atom {wrong[0]} of length {lengths[wrong[0]]}; every atom must be finite and have a pixel that "
            "is not zero"
        )
    return atoms


def check_codes(codes: Any, shape: tuple[int, ...]) -> Array:
    """Return codes to decode, if they have the model's ``shape`` after the first axis."""
    found = codes if is_torch(codes) else np.asarray(codes)
    if tuple(found.shape[1:]) != shape:
        wanted = ", ".join(map(str, shape))
        raise ValueError(
            f"codes have shape {tuple(found.shape)}; (n, {wanted}) is wanted, as encode returns them, not features"
        )
    return found
