"""Checks of what users pass to an estimator. Every error says what came, what is wanted and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from tubal.backends.arrays import Array, is_floating, is_torch, namespace, to_numpy
from tubal.solvers.base import check_integer, check_number

ImageShape: TypeAlias = tuple[int, ...]
_ROWS = 2  # dimensions of images that come as rows


# --- images --------------------------------------------------------------------------------------------------
def is_source(images: object) -> bool:
    """Tell whether ``images`` must be read in pieces: a dataset on disk, a function or an iterator.

    >>> is_source(np.zeros((2, 3))), is_source([[1.0, 2.0]]), is_source(iter([])), is_source(lambda: iter([]))
    (False, False, True, True)
    """
    if is_torch(images) or isinstance(images, (np.ndarray, list, tuple, str, bytes)):
        return False
    if hasattr(images, "__array__") and not hasattr(images, "chunks"):
        return False
    sliceable = all(hasattr(images, name) for name in ("shape", "dtype", "__getitem__"))
    on_disk = sliceable and hasattr(images, "chunks") and not hasattr(images, "dask")
    return on_disk or isinstance(images, Iterator) or (callable(images) and not isinstance(images, type))


def check_stack(images: ArrayLike | Array, image_shape: ImageShape | None, estimator: BaseEstimator) -> Array:
    """Return images as a floating-point stack (n, height, width[, channels]), finite and with at least one pixel.

    Rows (n, features) become images of ``image_shape``, or one-row images without it. ``estimator`` is named in
    errors; it is not changed.
    """
    if is_source(images) and not hasattr(images, "__array__"):
        raise TypeError(
            f"images came as a {type(images).__name__}, which only fit of a coder reads piece by piece; pass an array"
        )
    array = _check_tensor(images) if is_torch(images) else _check_array(images, estimator)
    _check_finite(array)
    stack = as_stack(array, image_shape)
    if min(stack.shape[1:]) < 1:
        raise ValueError(f"images of shape {tuple(stack.shape[1:])} have no pixels; every side must be at least 1")
    return stack


def check_new_stack(images: ArrayLike | Array, image_shape: ImageShape | None, estimator: BaseEstimator) -> Array:
    """Return new images as a stack, if they have the shape of the images that ``estimator`` was fitted on."""
    if not is_torch(images) and getattr(images, "ndim", _ROWS) <= _ROWS:
        # Names of columns must be those of fit.
        validate_data(estimator, images, reset=False, skip_check_array=True, ensure_2d=False)
    stack = check_stack(images, image_shape, estimator)
    shape, fitted = tuple(int(extent) for extent in stack.shape[1:]), estimator.image_shape_
    if shape != fitted:
        raise ValueError(
            f"X has {int(np.prod(shape))} features, but {type(estimator).__name__} is expecting "
            f"{int(np.prod(fitted))} features as input: images of shape {shape} came, images of "
            f"shape {fitted} were fitted; resize them first"
        )
    return stack


def column_names(images: object) -> dict[str, Any]:
    """Return ``feature_names_in_`` of a data frame, as scikit-learn finds them, else nothing."""
    probe = BaseEstimator()
    validate_data(probe, images, skip_check_array=True, ensure_2d=False)
    return dict(vars(probe))


def as_stack(images: Array, image_shape: ImageShape | None) -> Array:
    """Return images as (n, height, width[, channels]); rows (n, features) are reshaped to ``image_shape``."""
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


def _check_array(images: ArrayLike, estimator: BaseEstimator) -> Array:
    """Return anything that is not a tensor as a floating-point array."""
    images = _array_of_list(images) if isinstance(images, (list, tuple)) else images
    # Some sparse matrices are dictionaries too; scikit-learn raises its own error for them.
    wrong = isinstance(images, (dict, set, str, bytes, Real)) and not hasattr(images, "toarray")
    if images is None or wrong:
        raise TypeError(f"X is a {type(images).__name__}; a stack of images (n, height, width) is wanted")
    _check_kind(images)
    shape = getattr(images, "shape", None)
    if shape is not None and len(shape) < _ROWS:
        raise ValueError(
            f"images came with shape {tuple(shape)}; a stack (n, height, width) or rows (n, features) are wanted. "
            "Reshape your data, with array[None] if it is a single image"
        )
    if shape is not None and shape[0] == 0:
        raise ValueError(f"X has shape {tuple(shape)} and so holds no image; pass at least one")
    rows = getattr(images, "ndim", _ROWS) <= _ROWS
    return check_array(
        images, dtype=_wanted_type(images), order="C", ensure_all_finite=False, ensure_2d=rows, allow_nd=not rows,
        input_name="X", estimator=estimator,
    )  # fmt: skip


def _array_of_list(images: list[Any] | tuple[Any, ...]) -> Array:
    try:
        return np.asarray(images)
    except ValueError as error:
        raise ValueError(
            "the images in the list have different shapes; resize them to one shape first, as "
            "tubal.datasets.load_image_folder does"
        ) from error


def _check_kind(images: object) -> None:
    """Raise an error for text, dates and complex numbers."""
    dtype = getattr(images, "dtype", None)
    kind = getattr(dtype, "kind", "")
    words = kind == "O" and any(isinstance(value, str) for value in np.asarray(images).ravel())
    if words or kind in ("U", "S", "V", "M", "m"):
        raise ValueError(
            f"images hold {'text' if words else dtype} values, numbers are wanted; read files with "
            "tubal.datasets.load_image_folder"
        )
    if kind == "c":
        raise _complex_error(dtype)


def _complex_error(dtype: object) -> ValueError:
    return ValueError(
        f"Complex data not supported: images hold {dtype} values, real numbers are wanted; pass their absolute value"
    )


def _check_finite(images: Array) -> None:
    """Raise an error for NaN and infinity that says where the first one is."""
    xp = namespace(images)
    with np.errstate(over="ignore", invalid="ignore"):  # finite values whose sum overflows are checked below
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


def _wanted_type(images: object) -> type | list[type]:
    """Return the floating-point types to compute in: float32 for float32 and narrow integers, else float64."""
    dtype = getattr(images, "dtype", None)
    narrow = dtype is not None and dtype.kind in "uib" and dtype.itemsize <= 2
    return np.float32 if narrow or dtype == np.float16 else [np.float64, np.float32]


def _check_tensor(images: Array) -> Array:
    """Return a torch tensor in single or double precision."""
    torch = namespace(images)
    if images.is_complex():
        raise _complex_error(images.dtype)
    if not is_floating(images) or images.dtype in (torch.float16, torch.bfloat16):
        images = images.to(torch.float32)
    if images.ndim < _ROWS or images.shape[0] == 0:
        raise ValueError(
            f"images came as a tensor of shape {tuple(images.shape)}; a stack (n, height, width) of at least one image "
            "is wanted"
        )
    return images


# --- parameters ----------------------------------------------------------------------------------------------
Rule: TypeAlias = Callable[[str, Any], object]


def check_choice(name: str, value: object, *, choices: tuple[object, ...]) -> object:
    """Return a parameter that must be one of ``choices``."""
    if not any(value is choice or (isinstance(value, type(choice)) and value == choice) for choice in choices):
        raise ValueError(f"{name}={value!r}; it must be one of {', '.join(map(repr, choices))}")
    return value


def check_solver(name: str, value: object, *, methods: tuple[str, ...], example: str) -> None:
    """Raise an error for an object without the methods of a solver; None stands for the default solver."""
    lacking = isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods)
    if value is not None and lacking:
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}; an object such as {example} is wanted, or None")


def check_callbacks(name: str, value: object) -> None:
    """Raise an error unless callbacks are None, a function, or a list or tuple of functions."""
    several = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    for callback in several:
        if not callable(callback):
            raise TypeError(
                f"{name}={value!r} holds a {type(callback).__name__}; functions of one argument, the Progress, "
                "are wanted"
            )


def check_init(name: str, value: object) -> None:
    """Raise an error for an unknown name of an initial dictionary; arrays are checked with the images."""
    if isinstance(value, str):
        check_choice(name, value, choices=("images", "random"))


# What each parameter of a coder must be.
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "n_atoms": check_integer,
        "sparsity": partial(check_number, least=0.0),
        "graph_weight": partial(check_number, least=0.0),
        "n_neighbors": check_integer,
        "scale": partial(check_choice, choices=("unit", "max", None)),
        "tube_axis": partial(check_choice, choices=(-1, -2)),
        "max_iter": check_integer,
        "tol": partial(check_number, least=0.0),
        "code_solver": partial(check_solver, methods=("minimise", "codes"), example="Admm(max_iter=50)"),
        "dictionary_solver": partial(check_solver, methods=("minimise",), example="LagrangeDual()"),
        "init": check_init,
        "callbacks": check_callbacks,
    }
)


def check_parameters(parameters: Mapping[str, object], rules: Mapping[str, Rule] = RULES) -> None:
    """Check every parameter that has a rule."""
    for name, value in parameters.items():
        if name in rules:
            rules[name](name, value)


# --- arguments of fitted models ------------------------------------------------------------------------------
def check_codes(codes: ArrayLike | Array, shape: tuple[int, ...]) -> Array:
    """Return codes to decode, if they have the model's ``shape`` after the first axis."""
    found: Array = codes if is_torch(codes) else np.asarray(codes)
    if tuple(found.shape[1:]) != shape:
        wanted = ", ".join(map(str, shape))
        raise ValueError(
            f"codes have shape {tuple(found.shape)}; (n, {wanted}) is wanted, as encode returns them, not features"
        )
    return found


def check_neighbors(neighbors: ArrayLike, n_images: int, n_known: int) -> np.ndarray:
    """Return the indices (n_images, q) of training images that a user gave as neighbours of new images."""
    indices = np.asarray(neighbors)
    if indices.ndim != 2 or len(indices) != n_images or indices.dtype.kind not in "iu":
        raise ValueError(
            f"neighbors has shape {indices.shape} and type {indices.dtype}; integers (n, q) are wanted, one row "
            f"for each of the {n_images} images"
        )
    if indices.size == 0 or indices.min() < 0 or indices.max() >= n_known:
        span = f"names images {indices.min()} to {indices.max()}" if indices.size else "is empty"
        raise ValueError(f"neighbors {span}; indices of training images, 0 to {n_known - 1}, are wanted")
    return indices
