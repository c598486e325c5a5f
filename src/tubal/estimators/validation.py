"""Checks of what users pass to an estimator, and of what model files hold.

Every error says what came, what is wanted and what to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from math import prod
from numbers import Integral, Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from tubal.backends.arrays import (
    Array,
    is_floating,
    is_torch,
    namespace,
    own_threads,
    parallel_ranges,
    to_numpy,
)
from tubal.graph import Graph
from tubal.graph.structure import Report
from tubal.learning.alternation import PassTotals, code_chunk
from tubal.learning.fitting import scale_images
from tubal.problems.base import Statistics
from tubal.problems.layout import ImageLayout, ImageShape, Layout, SeparableLayout
from tubal.solvers.base import check_integer, check_number

if TYPE_CHECKING:
    from tubal.learning.fitting import Recipe

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
    check_plain(images)
    array = _check_tensor(images) if is_torch(images) else _check_array(images, estimator)
    _check_finite(array)
    stack = as_stack(array, image_shape)
    if min(stack.shape[1:]) < 1:
        raise ValueError(f"images of shape {tuple(stack.shape[1:])} have no pixels; every side must be at least 1")
    return stack


# More images than this are converted to floating point a part at a time, so that they are not in memory twice.
READ_WHOLE = 20_000
# Images that one thread converts at a time, and between two reports of the progress.
_IN_PART, _REPORTED = 256, 8192


class StackInParts:
    """Many images, in memory or on disk, that are checked and converted to floating point when they are read.

    Parameters
    ----------
    images : array of shape (n, height, width[, channels])
        A NumPy array, a memory map, an HDF5 dataset or a Zarr array.
    """

    def __init__(self, images: Any) -> None:
        _check_kind(images)
        self.images, self.shape = images, tuple(int(extent) for extent in images.shape)
        if len(self.shape) > 4 or min(self.shape) < 1:
            raise ValueError(
                f"images came with shape {self.shape}; (n, height, width) or (n, height, width, channels) with at "
                "least one pixel is wanted"
            )
        self.ndim, wide = len(self.shape), images.dtype in (np.float64, np.int32, np.int64, np.uint32, np.uint64)
        self.dtype = np.dtype(np.float64 if wide else np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> NDArray[Any]:
        """Return some images, finite and in floating point."""
        start, _, step = part.indices(len(self))
        return _finite(self.images[part], self.dtype, start, step)


def open_stack(
    images: ArrayLike | Array, image_shape: ImageShape | None, estimator: BaseEstimator
) -> Array | StackInParts:
    """Return images as :func:`check_stack` does, or in parts if there are many of them."""
    shape: tuple[int, ...] = () if is_torch(images) or hasattr(images, "dask") else getattr(images, "shape", ())
    sliceable = all(hasattr(images, name) for name in ("dtype", "__getitem__"))
    if not sliceable or len(shape) <= _ROWS or shape[0] <= READ_WHOLE:
        return check_stack(images, image_shape, estimator)
    check_plain(images)
    check_image_shape(shape, image_shape)
    return StackInParts(images)


def unit_images(stack: Array | StackInParts, report: Report | None = None) -> Array:
    """Return images of unit length; ``report`` is called with the number of images that are read, and that of all."""
    if not isinstance(stack, StackInParts):
        return scale_images(stack, "unit")[0]
    found = np.empty(stack.shape, stack.dtype)
    with own_threads() as threads:
        for low in range(0, len(stack), _REPORTED):
            block = slice(low, min(low + _REPORTED, len(stack)))
            # A file is read once; its chunks may be larger than what one thread converts at a time.
            work = partial(_convert, stack.images[block], stack.dtype, low, found[block])
            errors = parallel_ranges(work, block.stop - low, grain=_IN_PART, threads=threads)
            error = next(filter(None, errors), None)  # that of the first image, whichever thread ends first
            if error is not None:
                raise error
            if report is not None:
                report(block.stop, len(stack))
    return found


def _convert(
    images: NDArray[Any], dtype: np.dtype[Any], first: int, found: NDArray[Any], start: int, stop: int
) -> ValueError | None:
    """Write some images in unit length; return the error of a bad one. ``first`` is the number of the first image."""
    own = slice(start, stop)
    try:
        found[own] = scale_images(_finite(images[own], dtype, first + start), "unit")[0]
    except ValueError as error:
        return error
    return None


def open_if_path(images: ArrayLike | Array | str | os.PathLike[str]) -> ArrayLike | Array:
    """Return the array in a ``.npy`` file as a memory map if its path came, and anything else as it is."""
    if not isinstance(images, (str, os.PathLike)):
        return images
    name = os.fspath(images)
    if isinstance(images, str) and not name.endswith(".npy") and not os.path.exists(name):
        return images
    if not os.path.exists(name):
        raise FileNotFoundError(f"there is no file {name!r}; pass images, or the path of a .npy file that holds them")
    try:
        found = np.load(name, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{name!r} is not a .npy file with numbers; read folders and other files with tubal.datasets.load_images, "
            "and pass its images"
        ) from error
    if not isinstance(found, np.ndarray):
        found.close()
        raise ValueError(f"{name!r} holds several arrays; load it with numpy.load and pass one of them")
    mapped: NDArray[Any] = found
    return mapped


def check_plain(images: object) -> None:
    """Raise an error for masked arrays and for tensors that require gradients, whose extra meaning would be lost."""
    if isinstance(images, np.ma.MaskedArray):
        raise ValueError(
            f"X is a masked array with {np.ma.getmaskarray(images).sum()} masked values, which have no meaning "
            "here; pass X.filled(value), with the value that they shall have"
        )
    if is_torch(images) and getattr(images, "requires_grad", False):
        raise ValueError("X is a tensor that requires gradients, and no gradients are computed here; pass X.detach()")


def check_new_stack(images: ArrayLike | Array, image_shape: ImageShape | None, estimator: BaseEstimator) -> Array:
    """Return new images as a stack, if they have the shape of the images that ``estimator`` was fitted on."""
    if not is_torch(images) and getattr(images, "ndim", _ROWS) <= _ROWS:
        # Names of columns must be those of fit.
        validate_data(estimator, images, reset=False, skip_check_array=True, ensure_2d=False)
    stack = check_stack(images, image_shape, estimator)
    shape, fitted = tuple(int(extent) for extent in stack.shape[1:]), estimator.image_shape_
    if shape != fitted:
        raise _shape_error(tuple(np.shape(images)), shape, fitted, type(estimator).__name__)
    return stack


def _shape_error(given: tuple[int, ...], shape: ImageShape, fitted: ImageShape, name: str) -> ValueError:
    """Return the error for new images of the wrong ``shape``; they came as an array of shape ``given``."""
    n_values, n_wanted = prod(shape), prod(fitted)
    if n_values == n_wanted and 1 in (shape[0], fitted[0]):
        advice = (
            f"reshape X to (n, {', '.join(map(str, fitted))})" if fitted[0] > 1 else f"reshape X to (n, {n_wanted})"
        )
    else:
        advice = "pass X[None] if it is one image" if given == fitted else "resize them first"
    return ValueError(
        f"X has {n_values} features, but {name} is expecting {n_wanted} features as input: images of shape {shape} "
        f"came, images of shape {fitted} were fitted; {advice}"
    )


def column_names(images: object) -> dict[str, Any]:
    """Return ``feature_names_in_`` of a data frame, as scikit-learn finds them, else nothing."""
    if type(images) is np.ndarray:  # scikit-learn would import pandas to see that it is no data frame
        return {}
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
        check_image_shape(images.shape, image_shape)
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


def check_image_shape(shape: Sequence[int], image_shape: ImageShape | None) -> None:
    """Raise an error if images of this stack are not of the ``image_shape`` that was given."""
    given = tuple(image_shape) if isinstance(image_shape, list) else image_shape
    if given is not None and given != tuple(shape[1:]):
        raise ValueError(
            f"image_shape={image_shape} but the images have shape {tuple(shape[1:])}; "
            "leave image_shape out for image stacks"
        )


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
        raise _flat_error(images, tuple(shape))
    if shape is not None and shape[0] == 0:
        raise ValueError(f"X has shape {tuple(shape)} and so holds no image; pass at least one")
    rows = getattr(images, "ndim", _ROWS) <= _ROWS
    ready = type(images) is np.ndarray and images.dtype in (np.float32, np.float64) and images.flags.c_contiguous
    if ready and not rows:
        return images  # check_array would return the same, and import pandas first
    return check_array(
        images, dtype=_wanted_type(images), order="C", ensure_all_finite=False, ensure_2d=rows, allow_nd=not rows,
        input_name="X", estimator=estimator,
    )  # fmt: skip


def _array_of_list(images: list[Any] | tuple[Any, ...]) -> Array:
    for image in images:
        check_plain(image)
    try:
        return np.asarray(images)
    except ValueError as error:
        odd = [place for place, image in enumerate(images) if image is None or np.isscalar(image)]
        if odd:
            raise TypeError(
                f"image {odd[0]} of the list is a {type(images[odd[0]]).__name__}; leave it out, or pass an array of "
                "the shape of the others"
            ) from error
        raise ValueError(
            "the images in the list have different shapes; resize them to one shape first, as "
            "tubal.datasets.load_image_folder does"
        ) from error


def _flat_error(images: Any, shape: tuple[int, ...]) -> ValueError:
    """Return the error for an array with one axis or none, such as a column of a table that holds images or paths."""
    one = np.asarray(images).ravel()[0] if prod(shape) else None
    if one is None or isinstance(one, Real):
        return ValueError(
            f"images came with shape {shape}; a stack (n, height, width) or rows (n, features) are wanted. "
            "Reshape your data, with array[None] if it is a single image"
        )
    advice = "stack them, with numpy.stack(list(X))" if np.ndim(one) else "read files with load_image_folder"
    return ValueError(
        f"X holds {prod(shape)} objects such as a {type(one).__name__}, not numbers; a stack (n, height, width) is "
        f"wanted: {advice}"
    )


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


def _finite(images: Any, dtype: np.dtype[Any], start: int, step: int = 1) -> NDArray[Any]:
    """Return images in floating point; raise the error of :func:`_check_finite` if they are not finite."""
    found = np.ascontiguousarray(images, dtype=dtype)
    _check_finite(found, start, step)
    return found


def _check_finite(images: Array, start: int = 0, step: int = 1) -> None:
    """Raise an error for NaN and infinity that says where the first one is; images are numbered from ``start``."""
    xp = namespace(images)
    with np.errstate(over="ignore", invalid="ignore"):  # finite values whose sum overflows are checked below
        if bool(xp.isfinite(images.sum())):
            return
    bad = np.argwhere(to_numpy(~xp.isfinite(images)))
    if len(bad) == 0:
        return
    first = tuple(int(index) for index in bad[0])
    value = "NaN" if bool(xp.isnan(images[first])) else "infinity"
    raise ValueError(
        f"Input X contains {value}: image {start + step * first[0]} has it at {first[1:]} and is the first such image; "
        "replace or drop all of them"
    )


def _wanted_type(images: object) -> type | list[type]:
    """Return the floating-point types to compute in: float32 for float32 and narrow integers, else float64."""
    dtype = getattr(images, "dtype", None)
    narrow = dtype is not None and dtype.kind in "uib" and dtype.itemsize <= 2
    return np.float32 if narrow or dtype == np.float16 else [np.float64, np.float32]


def _check_tensor(images: Array) -> Array:
    """Return a torch tensor in single or double precision."""
    torch = namespace(images)
    if images.layout != torch.strided:
        raise TypeError("X is a sparse tensor, and images are dense; pass X.to_dense()")
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


def check_mode_numbers(name: str, value: object) -> None:
    """Raise an error unless a value is None or a sequence of positive integers."""
    if value is None:
        return
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
        raise TypeError(f"{name}={value!r}; a tuple of atoms along each side is wanted, for example (16, 16)")
    for mode, size in enumerate(value):
        check_integer(f"{name}[{mode}]", size)


def check_filter_count(name: str, value: object) -> None:
    """Raise an error unless a value is None or a positive integer."""
    if value is not None:
        check_integer(name, value)


def check_filter_shape(name: str, value: object) -> None:
    """Raise an error unless a value is None or two positive integers."""
    if value is None:
        return
    if not isinstance(value, tuple | list | np.ndarray) or len(value) != 2:
        raise ValueError(f"{name}={value!r}; (height, width) is wanted, for example (8, 8)")
    for side in value:
        check_integer(name, side)


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
    """Return codes to decode in floating point, if they have the model's ``shape`` after the first axis."""
    found: Array = codes if is_torch(codes) else np.asarray(codes)
    if tuple(found.shape[1:]) != shape:
        wanted = ", ".join(map(str, shape))
        raise ValueError(
            f"codes have shape {tuple(found.shape)}; (n, {wanted}) is wanted, as encode returns them, not features"
        )
    if found.is_complex() if is_torch(found) else found.dtype.kind not in "buif":
        raise TypeError(f"codes have type {found.dtype}; real numbers are wanted, as encode returns them")
    return found if is_floating(found) else found * 1.0


def check_finite_codes(codes: Array) -> None:
    """Raise an error for codes that overflowed; they would be NaN without a word."""
    xp = namespace(codes)
    with np.errstate(over="ignore", invalid="ignore"):
        if bool(xp.isfinite(codes.sum())) or bool(xp.isfinite(codes).all()):
            return
    raise ValueError(
        f"the codes of these images are too large for {codes.dtype}: images, sparsity, graph_weight or atoms have "
        "values near the limit of their type; scale them down"
    )


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


# --- loaded models -------------------------------------------------------------------------------------------
# Atoms lie in the unit ball; a little more allows for rounding.
_LONGEST_ATOM = 1.01


def check_stored(
    name: str, value: object, shape: tuple[int | None, ...], *, kinds: str = "f", least: float | None = None,
    most: float | None = None,
) -> None:  # fmt: skip
    """Raise an error unless a fitted array has the type, shape (None: any length) and range that it must have.

    ``kinds`` are NumPy's letters: "f" floating-point numbers, "i" integers, "b" booleans. NaN and infinity are out of
    every range.
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        found = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise ValueError(f"{name} is {found}; an array of another type is wanted")
    if value.dtype.kind == "f" and value.dtype.itemsize not in (4, 8):
        raise ValueError(f"{name} is an array of {value.dtype}; single or double precision is wanted")
    extents = zip(value.shape, shape, strict=False)
    if value.ndim != len(shape) or any(wanted is not None and found != wanted for found, wanted in extents):
        wanted = tuple("any" if extent is None else extent for extent in shape)
        raise ValueError(f"{name} has shape {value.shape}; {wanted} is wanted")
    if value.size == 0 or value.dtype.kind == "b":
        return
    if value.dtype.kind == "c":
        value = np.abs(value)
    low, high = value.min(), value.max()
    within = np.isfinite(low) and np.isfinite(high)
    if not within or (least is not None and low < least) or (most is not None and high > most):
        raise ValueError(f"{name} has values from {low:g} to {high:g}, which no fit gives")


def check_stored_shape(model: BaseEstimator) -> ImageShape:
    """Return the image shape of a loaded model, if ``image_shape_`` and ``n_features_in_`` are one."""
    shape: object = model.image_shape_
    sides = shape if isinstance(shape, tuple) and len(shape) in (2, 3) else ()
    if not sides or any(type(side) is not int or not 1 <= side < 1 << 31 for side in sides):
        raise ValueError(f"image_shape_ is {str(shape)[:80]}; (height, width[, channels]) is wanted")
    if type(model.n_features_in_) is not int or model.n_features_in_ != prod(sides):
        raise ValueError(f"n_features_in_ is {str(model.n_features_in_)[:40]} for images of shape {sides}")
    names = getattr(model, "feature_names_in_", None)
    if names is not None and (not isinstance(names, np.ndarray) or names.shape != (prod(sides),)):
        raise ValueError("feature_names_in_ is not one name for each feature")
    return sides


def code_shape(coder: BaseEstimator, recipe: Recipe) -> tuple[int, ...]:
    """Return the shape (n_atoms, *positions) of the code of one image."""
    several = isinstance(coder.dictionary_, tuple)
    parts = tuple(map(to_numpy, coder.dictionary_ if several else (coder.dictionary_,)))
    blank = coder._layout_.to_tensor(np.zeros((1, *coder.image_shape_), parts[0].dtype))
    model = recipe.model(coder.image_shape_)
    problem = model.coding(parts if several else parts[0], blank, sparsity=recipe.sparsity)
    return tuple(int(problem.codes_shape[axis]) for axis in recipe.code_axes)[1:]


def check_loaded_coder(coder: BaseEstimator, recipe: Recipe) -> None:
    """Raise an error unless the fitted attributes of a loaded coder are as a fit with ``recipe`` leaves them."""
    shape = check_stored_shape(coder)
    layout = recipe.layout(shape)
    if coder._layout_ != layout:
        raise ValueError(f"its layout is {str(coder._layout_)[:200]}; {layout} follows from its parameters")
    _check_dictionary(coder, layout)
    for name, made in recipe.public_dictionary(layout, coder.dictionary_).items():
        stored = vars(coder).setdefault(name, made)  # files leave out what follows from the dictionary
        if isinstance(made, np.ndarray):
            check_stored(name, stored, made.shape)
        elif stored != made:
            raise ValueError(f"{name} is {str(stored)[:80]}; its dictionary has {made}")
    _check_codes(coder, recipe)
    _check_graph(coder, recipe)
    _check_history(coder)
    if hasattr(coder, "statistics_"):
        blank = layout.to_tensor(np.zeros((1, *shape), coder.atoms_.dtype))
        made = code_chunk(recipe.model(shape), coder.dictionary_, blank, recipe.weights, recipe.learning_solver)
        _check_statistics(coder, PassTotals.of_chunk(0, made).statistics)


def _check_dictionary(coder: BaseEstimator, layout: Layout) -> None:
    """Raise an error unless a dictionary has the shape that its layout asks for, and atoms in the unit ball."""
    parts = coder.dictionary_ if isinstance(coder.dictionary_, tuple) else (coder.dictionary_,)
    if isinstance(layout, SeparableLayout):
        wanted: list[tuple[int | None, ...]] = [(side, None) for side in layout.sides]
    elif isinstance(layout, ImageLayout):
        wanted = [(layout.tube_length, layout.n_rows, None)]
    else:
        wanted = [(None, None, prod(layout.image_shape[2:]), None)]
    if isinstance(coder.dictionary_, tuple) != isinstance(layout, SeparableLayout) or len(parts) != len(wanted):
        raise ValueError(f"dictionary_ is not of the form of {type(coder).__name__}")
    for part, form in zip(parts, wanted, strict=True):
        check_stored("dictionary_", part, form, least=-_LONGEST_ATOM, most=_LONGEST_ATOM)
        if min(part.shape) < 1 or (len(form) == 4 and (np.array(part.shape[:2]) > layout.image_shape[:2]).any()):
            raise ValueError(f"dictionary_ has shape {part.shape} for images of shape {layout.image_shape}")
        norms = np.sqrt(np.square(part, dtype=np.float64).sum(axis=tuple(range(part.ndim - 1))))
        if norms.max() > _LONGEST_ATOM:
            raise ValueError(f"dictionary_ has an atom of length {norms.max():g}; all lie in the unit ball")


def _check_codes(coder: BaseEstimator, recipe: Recipe) -> None:
    """Raise an error unless codes have the shape that follows from the dictionary, or can be computed on demand."""
    on_demand = vars(coder).get("_codes_on_demand_", False)
    check_choice("_codes_on_demand_", on_demand, choices=(True, False))
    if on_demand and "codes_" not in vars(coder):
        search = getattr(getattr(coder, "graph_", None), "search", None)
        if search is None or search.images.shape[1:] != coder.image_shape_:
            raise ValueError("it holds neither the codes of its images nor the images")
        return
    check_stored("codes_", vars(coder)["codes_"], (None, *code_shape(coder, recipe)))
    if len(coder.codes_) < 1:
        raise ValueError("codes_ holds the code of no image")


def _check_graph(coder: BaseEstimator, recipe: Recipe) -> None:
    """Raise an error unless a loaded coder has the graph that it needs, of its own images."""
    graph = getattr(coder, "graph_", None)
    if graph is None:
        if recipe.weights.graph_weight > 0:
            raise ValueError(f"it has graph_weight={recipe.weights.graph_weight:g} and no graph")
    elif not isinstance(graph, Graph):
        raise ValueError(f"graph_ is a {type(graph).__name__}; a graph is wanted")
    elif "codes_" in vars(coder) and graph.n_images != len(coder.codes_):
        raise ValueError(f"its graph joins {graph.n_images} images and it has codes of {len(coder.codes_)}")


def _check_history(coder: BaseEstimator) -> None:
    """Raise an error for impossible counts and curves of a loaded coder."""
    check_number("scale_factor_", coder.scale_factor_, above=0.0)
    for name in ("n_iter_", "n_reseeded_"):
        check_integer(name, getattr(coder, name), least=0)
    for name in ("objective_", "density_"):
        check_stored(name, getattr(coder, name), (None,))
    check_choice("converged_", coder.converged_, choices=(True, False))
    if not isinstance(getattr(coder, "duality_gap_", 0.0), Real):
        raise TypeError(f"duality_gap_ is a {type(coder.duality_gap_).__name__}; a number is wanted")
    parts = coder.dictionary_ if isinstance(coder.dictionary_, tuple) else (coder.dictionary_,)
    if not isinstance(coder.multipliers_, list) or len(coder.multipliers_) != len(parts):
        raise ValueError("multipliers_ is not a list of the multipliers of every dictionary")
    for multipliers, part in zip(coder.multipliers_, parts, strict=True):
        if multipliers is not None:
            check_stored("multipliers_", multipliers, (part.shape[-1],), least=0.0)


def _check_statistics(coder: BaseEstimator, wanted: Statistics) -> None:
    """Raise an error unless the statistics that partial_fit continues have the types and shapes of ``wanted``."""
    check_integer("n_samples_seen_", coder.n_samples_seen_)
    stored: object = coder.statistics_
    if type(stored) is not type(wanted):
        raise ValueError(f"statistics_ is a {type(stored).__name__}; a {type(wanted).__name__} is wanted")
    for part in fields(wanted):  # type: ignore[arg-type]
        value, found = getattr(wanted, part.name), getattr(stored, part.name)
        if isinstance(value, np.ndarray):
            check_stored(f"statistics_.{part.name}", found, value.shape, kinds=value.dtype.kind)
        elif isinstance(value, float):
            check_number(f"statistics_.{part.name}", found)
        elif found != value:
            raise ValueError(f"statistics_.{part.name} is {str(found)[:40]}; {str(value)[:40]} is wanted")
