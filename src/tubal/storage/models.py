"""Models in one file: arrays and JSON, checked before they are used, written whole or not at all.

>>> import numpy as np, pathlib, tempfile, tubal
>>> model = tubal.TubSC(n_atoms=3, max_iter=2, random_state=0).fit(np.random.default_rng(0).random((8, 5, 4)))
>>> path = pathlib.Path(tempfile.mkdtemp()) / "model.tubal"
>>> save(model, path)
>>> bool((load(path).atoms_ == model.atoms_).all())
True

A file holds every parameter and every fitted attribute. That includes the codes of the training images,
``n · n_atoms · tube`` numbers, of which only those that are not zero are stored. With a graph it also includes the
training images themselves, because new images are joined to them: one byte a pixel if they were 8-bit pictures, else
four or eight. A model file with a graph contains your training images: share it only if you may share them. What
follows exactly from the rest is left out, and large arrays are compressed without loss; see ``docs/scale.md``.
``callbacks`` are code and are not stored. There is no pickle, and nothing in a file is executed. Checkpoints of fits
(:mod:`tubal.learning.checkpoints`) are archives of the same form.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import inspect
import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from tubal.backends.arrays import Array, is_torch, to_numpy
from tubal.storage.files import atomic_write

__all__ = ["DamagedFileError", "load", "save"]

if TYPE_CHECKING:
    from scipy import sparse
    from sklearn.base import BaseEstimator

    from tubal.graph import Graph

Arrays: TypeAlias = dict[str, NDArray[Any]]
Json: TypeAlias = Any  # what json.loads returns
_Reader: TypeAlias = Callable[[dict[str, Any], Arrays], Any]

# A file can name only classes that these modules export: the estimators of tubal, and dataclasses of the others.
_ESTIMATORS = "tubal"
_EXPORTING = ("tubal.clustering", _ESTIMATORS, "tubal.solvers", "tubal.problems", "tubal.learning")
# Names of classes in files that earlier versions wrote.
_FORMER_NAMES = {"Tally": "PassTotals"}
# Parameters that are functions, and attributes that are cheaper to compute again than to check.
_NOT_STORED = {"callbacks", "tree_"}


class DamagedFileError(ValueError):
    """A file that was not written by tubal, or that has changed since."""


@cache
def _exports() -> dict[str, str]:
    """Return which module exports each name that a file can hold."""
    return {name: module for module in _EXPORTING for name in importlib.import_module(module).__all__}


def _find_class(name: object) -> type | None:
    """Return the class that files call ``name``, or None if they must not name it."""
    name = _FORMER_NAMES.get(str(name), str(name))
    module = _exports().get(name)
    found = None if module is None else getattr(importlib.import_module(module), name)
    storable = inspect.isclass(found) and (module == _ESTIMATORS or is_dataclass(found))
    return found if storable else None


def _is_estimator(value: object) -> bool:
    """Tell whether a value is one of tubal's own estimators, not of a subclass."""
    name = type(value).__name__
    return _exports().get(name) == _ESTIMATORS and _find_class(name) is type(value)


def save(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to one file.

    The file appears whole or not at all: a crash or a full disk leaves a former file as it was.

    Parameters
    ----------
    model : estimator
        One of tubal's estimators, fitted.
    path : str or path-like
        The file to write. Any name will do; ``.tubal`` is the custom.
    """
    if not _is_estimator(model):
        names = [name for name, module in _exports().items() if module == _ESTIMATORS and _find_class(name)]
        raise TypeError(
            f"a {type(model).__name__} cannot be saved; one of tubal's estimators is wanted: {', '.join(names)}"
        )
    if not _fitted_attributes(model):
        raise ValueError(f"this {type(model).__name__} is not fitted; call fit before save")
    encoder = Encoder(compress=True)
    write_archive(path, "model", encoder.encode(model, type(model).__name__), encoder.arrays)


def load(path: str | os.PathLike[str]) -> BaseEstimator:
    """Return the model in a file that :func:`save` wrote, in this version of tubal or an earlier one.

    Parameters
    ----------
    path : str or path-like
        The file. One that is truncated, altered, of a later format or not tubal's raises a
        :class:`DamagedFileError`, a ``ValueError``, that says what is wrong.

    Returns
    -------
    estimator
        The fitted model. Its arrays are NumPy arrays, also if they were saved from a device.
    """
    content, arrays = read_archive(path, "model")
    model = decode(content, arrays, path)
    if not _is_estimator(model):
        raise DamagedFileError(f"{str(path)!r} cannot be loaded: it holds no model")
    return model


def decode(content: Json, arrays: Arrays, path: str | os.PathLike[str]) -> Any:
    """Return the objects that an :class:`Encoder` turned into JSON and arrays; ``path`` is named in errors."""
    try:
        return _decode(content, arrays)
    except DamagedFileError as error:
        raise DamagedFileError(f"{str(path)!r} cannot be loaded: {_one_line(error)}") from None
    except (
        TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError, ArithmeticError, zlib.error,
    ) as error:  # fmt: skip
        raise DamagedFileError(
            f"{str(path)!r} cannot be loaded: its parts do not fit together ({_one_line(error)})"
        ) from None


def _one_line(error: Exception) -> str:
    """Return what an error says in one short line: a file may hold an array where a number should be."""
    text = " ".join(str(error).split())
    return text if len(text) < 400 else f"{text[:300]} … {text[-80:]}"


# --- objects to JSON -------------------------------------------------------------------------------------------
class Encoder:
    """Turns objects into JSON and collects their arrays; an array that occurs twice is stored once.

    ``compress`` is for files that last; checkpoints should be written fast.
    """

    def __init__(self, *, compress: bool = False) -> None:
        self._compress = compress
        self.arrays: Arrays = {}
        self._known: dict[int, Json] = {}
        self._kept: list[Any] = []  # ids are unique only while the objects exist
        self._graph_arrays: dict[tuple[Any, ...], Json] = {}

    def encode(self, value: object, where: str) -> Json:  # noqa: PLR0911  (one return per kind)
        """Return the JSON of ``value``; ``where`` names it in errors."""
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            return self.encode(value.item(), where)
        if isinstance(value, np.ndarray) or is_torch(value):
            return self._encode_array(value, where)
        if isinstance(value, (list, tuple)):
            items = [self.encode(item, f"{where}[{place}]") for place, item in enumerate(value)]
            return items if isinstance(value, list) else {"$tuple": items}
        if isinstance(value, dict):
            return self._encode_dict(value, where)
        return self._encode_object(value, where)

    def _encode_array(self, value: Array, where: str) -> Json:
        array = to_numpy(value)
        if array.dtype == object and all(isinstance(item, str) for item in array.reshape(-1)):
            return {"$strings": array.reshape(-1).tolist(), "shape": list(array.shape)}
        if array.dtype.kind not in "biufcUS":
            raise TypeError(f"{where} is an array of {array.dtype}, which cannot be saved; numbers are wanted")
        if id(value) not in self._known:
            self._kept.append(value)
            self._known[id(value)] = self._encode_numbers(array, where)
        return self._known[id(value)]

    def _encode_numbers(self, array: NDArray[Any], where: str) -> Json:
        """Store an array in the least room, and return its JSON."""
        packed, narrow = pack_sparse(array), narrowest(array)
        if packed is not None:
            mask, numbers = packed
            return {"$nonzero": self.encode(numbers, where), "mask": self._store(mask), "shape": list(array.shape)}
        if narrow is not None:
            return {"$narrow": self.encode(narrow, where), "dtype": array.dtype.str}
        deflated = deflate(array) if self._compress else None
        if deflated is not None:
            found = {"$deflated": self._store(deflated[0]), "axes": deflated[1]}
            return found | {"dtype": array.dtype.str, "shape": list(array.shape)}
        return self._store(array)

    def _store(self, array: NDArray[Any]) -> dict[str, str]:
        """Keep an array for the file as it is, and return its JSON."""
        name = f"a{len(self.arrays)}"
        self.arrays[name] = array
        return {"$array": name}

    def _encode_dict(self, value: dict[Any, Any], where: str) -> dict[str, Json]:
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise TypeError(f"{where} has the key {key!r}, which cannot be saved; keys must be plain strings")
        return {key: self.encode(item, f"{where}.{key}") for key, item in value.items()}

    def _encode_object(self, value: Any, where: str) -> dict[str, Json]:
        from scipy import sparse

        from tubal.graph import Graph

        if isinstance(value, Graph):
            return self._encode_graph(value, where)
        if sparse.issparse(value):
            return self._encode_sparse(value, where)
        if isinstance(value, np.random.RandomState):
            return {"$random": self.encode(list(value.get_state(legacy=True)), where)}
        name = type(value).__name__
        if is_dataclass(value) and _find_class(name) is type(value):
            found = {field.name: getattr(value, field.name) for field in fields(value)}
            return {"$object": name, "fields": self.encode(found, where)}
        if _is_estimator(value):
            # Views of a user's own come as a dict, often of functions; their graphs are stored, they are not.
            given = {
                key: item
                for key, item in value.get_params(deep=False).items()
                if key not in _NOT_STORED and not isinstance(item, dict)
            }
            fitted = self.encode(_fitted_attributes(value), name)
            return {"$estimator": name, "parameters": self.encode(given, name), "fitted": fitted}
        raise TypeError(
            f"{where} is a {type(value).__name__}, which cannot be saved; numbers, text, arrays, graphs and tubal's "
            "own solvers can"
        )

    def _encode_graph(self, graph: Graph, where: str) -> dict[str, Json]:
        """Return the JSON of a graph; graphs that share arrays, or hold equal ones, share them in the file."""
        arrays, meta = graph.state()
        stored = {}
        for name, array in arrays.items():
            key = (name, array.dtype.str, array.shape, hashlib.blake2b(np.ascontiguousarray(array).data).digest())
            if key not in self._graph_arrays:
                images = name == "search_images"
                self._graph_arrays[key] = (self._encode_images if images else self._encode_array)(array, where)
            stored[name] = self._graph_arrays[key]
        return {"$graph": self.encode(meta, where), "arrays": stored}

    def _encode_images(self, images: NDArray[Any], where: str) -> Json:
        """Return the JSON of training images: bytes where they were 8-bit pictures, else as they are."""
        levels = find_levels(images)
        if levels is None:
            return self._encode_array(images, where)
        return {("$pictures" if name == "levels" else name): self.encode(part, where) for name, part in levels.items()}

    def _encode_sparse(self, matrix: sparse.sparray | sparse.spmatrix, where: str) -> dict[str, Json]:
        rows = matrix.tocsr()
        half = upper_half(rows)
        stored = rows if half is None else half
        parts = {"data": stored.data, "indices": stored.indices, "indptr": stored.indptr}
        found = {"$sparse": list(map(int, rows.shape)), "parts": self.encode(parts, where)}
        return found if half is None else found | {"symmetric": True}


def _fitted_attributes(model: BaseEstimator) -> dict[str, Any]:
    """Return what a file keeps of a fitted model: all but what follows from the rest."""
    found = {name: value for name, value in vars(model).items() if name.endswith("_") and name[:2] != "__"}
    if hasattr(model, "_without_descriptions"):
        found = model._without_descriptions(found)
    left_out = model._left_out() if hasattr(model, "_left_out") and "dictionary_" in found else set()
    return {name: value for name, value in found.items() if name not in left_out | _NOT_STORED}


# --- JSON to objects -------------------------------------------------------------------------------------------
def _decode(value: Json, arrays: Arrays) -> Any:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key.startswith("$")), None)
    if tag is None:
        return {key: _decode(item, arrays) for key, item in value.items()}
    if tag not in _READERS:
        raise DamagedFileError(f"it holds a {tag[:40]!r}, which this version of tubal does not know")
    return _READERS[tag](value, arrays)


def _read_object(value: dict[str, Any], arrays: Arrays) -> Any:
    cls = _known_class(value["$object"])
    if not is_dataclass(cls):
        raise DamagedFileError(f"it holds a {cls.__name__} in a place where it does not belong")
    return cls(**_decode(value["fields"], arrays))


def _read_estimator(value: dict[str, Any], arrays: Arrays) -> Any:
    model: Any = _known_class(value["$estimator"])()
    if not _is_estimator(model):
        raise DamagedFileError(f"it holds a {type(model).__name__} in a place where it does not belong")
    model.set_params(**_decode(value["parameters"], arrays))
    fitted = _decode(value["fitted"], arrays)
    for name, item in fitted.items():
        if not (name.isidentifier() and name.endswith("_") and name[:2] != "__"):
            raise DamagedFileError(f"it names the attribute {name[:40]!r}, which no model has")
        setattr(model, name, item)
    model._check_loaded()  # as strictly as what users pass: compiled code uses the arrays unchecked
    return model


def _read_graph(value: dict[str, Any], arrays: Arrays) -> Graph:
    from tubal.graph import restore_graph

    return restore_graph(_decode(value["arrays"], arrays), _decode(value["$graph"], arrays))


def _read_sparse(value: dict[str, Any], arrays: Arrays) -> sparse.csr_matrix:
    from tubal.graph.structure import restore_csr

    parts = _decode(value["parts"], arrays)
    n_rows, n_columns = value["$sparse"]
    if any(type(extent) is not int or not 0 <= extent < 1 << 48 for extent in (n_rows, n_columns)):
        raise DamagedFileError(f"it holds a sparse matrix of the impossible shape {str(value['$sparse'])[:80]}")
    matrix = restore_csr([parts[name] for name in ("data", "indices", "indptr")], (n_rows, n_columns))
    return both_halves(matrix) if value.get("symmetric", False) is True and n_rows == n_columns else matrix


def _read_nonzero(value: dict[str, Any], arrays: Arrays) -> NDArray[Any]:
    # A mask is not compressed, and is used once, so that a small file cannot fill the memory.
    mask = arrays.pop(value["mask"]["$array"])
    return unpack_sparse(mask, _decode(value["$nonzero"], arrays), value["shape"])


def _read_deflated(value: dict[str, Any], arrays: Arrays) -> NDArray[Any]:
    return inflate(arrays.pop(value["$deflated"]["$array"]), value["dtype"], value["shape"], value["axes"])


def _read_narrow(value: dict[str, Any], arrays: Arrays) -> NDArray[Any]:
    return widen(_decode(value["$narrow"], arrays), value["dtype"])


def _read_pictures(value: dict[str, Any], arrays: Arrays) -> NDArray[Any]:
    return restore_levels(*(_decode(value[name], arrays) for name in ("$pictures", "base", "peaks", "norms")))


def _read_random(value: dict[str, Any], arrays: Arrays) -> np.random.RandomState:
    name, key, position, has_gauss, gauss = _decode(value["$random"], arrays)
    # NumPy does not check these, and would read outside the key.
    whole = all(type(number) is int for number in (position, has_gauss)) and isinstance(gauss, float)
    fits = isinstance(key, np.ndarray) and key.shape == (624,) and key.dtype == np.uint32
    if name != "MT19937" or not whole or not fits or not 0 <= position <= 624 or has_gauss not in (0, 1):
        raise DamagedFileError("it holds a state of a random generator that no generator has")
    random = np.random.RandomState()
    random.set_state((name, key, position, has_gauss, gauss))
    return random


def _read_strings(value: dict[str, Any], arrays: Arrays) -> NDArray[Any]:
    found = np.empty(len(value["$strings"]), object)
    found[:] = [str(item) for item in value["$strings"]]
    return found.reshape([int(extent) for extent in value["shape"]])


def _once(read: _Reader) -> _Reader:
    """Return a reader that decodes each array once, however often it occurs: graphs share their pictures."""

    def recall(value: dict[str, Any], arrays: Arrays) -> Any:
        key = json.dumps(value, sort_keys=True)
        if key not in arrays:
            arrays[key] = read(value, arrays)
        return arrays[key]

    return recall


_READERS: dict[str, _Reader] = {
    "$float": lambda value, arrays: float(value["$float"]),
    "$array": lambda value, arrays: arrays[value["$array"]],
    "$tuple": lambda value, arrays: tuple(_decode(value["$tuple"], arrays)),
    "$strings": _read_strings,
    "$random": _read_random,
    "$object": _read_object,
    "$graph": _read_graph,
    "$nonzero": _once(_read_nonzero),
    "$narrow": _once(_read_narrow),
    "$deflated": _once(_read_deflated),
    "$pictures": _once(_read_pictures),
    "$sparse": _read_sparse,
    "$estimator": _read_estimator,
}


def _known_class(name: object) -> type:
    found = _find_class(name)
    if found is None:
        raise DamagedFileError(f"it holds a {str(name)[:40]!r}, which this version of tubal does not know")
    return found


# --- compact arrays --------------------------------------------------------------------------------------------
# Smaller arrays are stored as they are; a saving below a quarter is not worth the time.
_LEAST_PACKED, _WORTH_PACKING = 1024, 0.75


def pack_sparse(array: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[Any]] | None:
    """Return one bit per value, and the values that are not zero; None if that is not clearly smaller."""
    if array.dtype.kind != "f" or array.size < _LEAST_PACKED:
        return None
    packed_size = array.size / 8 + np.count_nonzero(array) * array.itemsize
    if packed_size > _WORTH_PACKING * array.nbytes:
        return None
    used = array.reshape(-1) != 0
    return np.packbits(used), array.reshape(-1)[used]


def unpack_sparse(mask: NDArray[np.uint8], values: NDArray[Any], shape: Json) -> NDArray[Any]:
    """Undo :func:`pack_sparse`, after checking that mask, values and shape fit each other.

    >>> values = np.zeros(1024)
    >>> values[5] = 2.0
    >>> bool((unpack_sparse(*pack_sparse(values), [1024]) == values).all())
    True
    """
    whole = isinstance(shape, list) and all(type(extent) is int and extent >= 0 for extent in shape)
    size = math.prod(shape) if whole else -1
    if mask.dtype != np.uint8 or mask.ndim != 1 or values.dtype.kind != "f" or values.ndim != 1:
        raise DamagedFileError("its sparse codes are not a mask of bits and a row of numbers")
    if len(mask) != -(-size // 8):
        raise DamagedFileError(f"its sparse codes do not have the shape {str(shape)[:80]}")
    used = np.unpackbits(mask, count=size).view(np.bool_)
    if np.count_nonzero(used) != len(values):
        raise DamagedFileError("its sparse codes are not as many as their mask says")
    found = np.zeros(size, values.dtype)
    found[used] = values
    return found.reshape(shape)


# Compression takes longer to undo than a narrow type, and is worth a smaller saving.
_DEFLATED_TYPES, _WORTH_DEFLATING = ("|i1", "|u1", "<u2", "<i4", "<i8", "<f2", "<f4", "<f8"), 0.95
_NARROW_TYPES = ("|i1", "|u1", "<u2", "<i4", "<f2", "<f4")
_WIDE_TYPES = ("<i4", "<i8", "<f4", "<f8")


def narrowest(array: NDArray[Any]) -> NDArray[Any] | None:
    """Return a large array in the smallest type that holds every value of it exactly; None if that is its own.

    >>> narrowest(np.arange(2000)).dtype.str, narrowest(np.full(2000, 0.5)).dtype.str
    ('<u2', '<f2')
    """
    if array.dtype.str not in _WIDE_TYPES or array.size < _LEAST_PACKED:
        return None
    for name in _NARROW_TYPES:
        if np.dtype(name).itemsize >= array.itemsize or (array.dtype.kind == "i" and name in ("<f2", "<f4")):
            continue
        if _is_exact(array[:1], name) and _is_exact(array, name):
            return array.astype(name)
    return None


def _is_exact(array: NDArray[Any], name: str) -> bool:
    """Return whether a type holds the values of an array, bit for bit: integers have no negative zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = array.astype(name)
    return np.array_equal(found, array) and (found.dtype.kind == "f" or not np.signbit(array[found == 0]).any())


def widen(array: NDArray[Any], dtype: Json) -> NDArray[Any]:
    """Undo :func:`narrowest`.

    >>> widen(np.array([3], np.uint8), "<i8")
    array([3])
    """
    if array.dtype.str not in _NARROW_TYPES or dtype not in _WIDE_TYPES:
        raise DamagedFileError(f"it holds {array.dtype} in place of {str(dtype)[:40]}")
    if array.dtype.kind == "f" and np.dtype(str(dtype)).kind != "f":
        raise DamagedFileError(f"it holds {array.dtype} in place of {dtype}")
    return array.astype(str(dtype))


# A stream unpacks to at most this many times its size: a small file cannot fill the memory.
_MOST_UNPACKED = 32
# Differences along these sets of axes are tried, in integers with so many axes: pictures are smooth.
_SMOOTH_AXES = {1: [[], [0]], 2: [[], [1]], 3: [[], [1, 2]], 4: [[], [1, 2], [1, 2, 3]]}
_STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_RLE, zlib.Z_HUFFMAN_ONLY)
_VALUES_TRIED = 1 << 18


def deflate(array: NDArray[Any]) -> tuple[NDArray[np.uint8], list[int]] | None:
    """Return a compressed stream of a large array, and the axes along which differences were taken before.

    Bytes of equal rank lie together in the stream: those of exponents and high digits are much alike. None if the
    stream is not clearly smaller than the array.
    """
    if array.dtype.str not in _DEFLATED_TYPES or array.size < _LEAST_PACKED:
        return None
    tried = array[: max(1, _VALUES_TRIED * len(array) // array.size)]
    smooth = _SMOOTH_AXES.get(array.ndim, [[]]) if array.dtype.kind in "iu" else [[]]
    plans = {(len(_compressed(tried, axes, how)), how, *axes): (axes, how) for axes in smooth for how in _STRATEGIES}
    axes, strategy = plans[min(plans)]
    if min(plans)[0] > _WORTH_DEFLATING * tried.nbytes:
        return None
    stream = np.frombuffer(_compressed(array, axes, strategy), np.uint8)
    # Zeros after its end keep the stream within the bound.
    return np.pad(stream, (0, max(0, -(-array.nbytes // _MOST_UNPACKED) - len(stream)))), axes


def _compressed(array: NDArray[Any], axes: list[int], strategy: int) -> bytes:
    values = np.array(array, dtype=f"<u{array.itemsize}" if axes else array.dtype, order="C")
    for axis in axes:
        along = np.moveaxis(values, axis, 0)
        along[1:] -= along[:-1].copy()
    ranks = np.ascontiguousarray(values.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T)
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, strategy)
    return packer.compress(ranks.data) + packer.flush()


def inflate(stream: NDArray[np.uint8], dtype: Json, shape: Json, axes: Json) -> NDArray[Any]:
    """Undo :func:`deflate`, after checking that type, shape and stream fit each other.

    >>> values = np.arange(1000, 3000)
    >>> stream, axes = deflate(values)
    >>> len(stream) < 1000, bool((inflate(stream, "<i8", [2000], axes) == values).all())
    (True, True)
    """
    whole = isinstance(shape, list) and all(type(extent) is int and extent >= 0 for extent in shape)
    along = isinstance(axes, list) and all(type(axis) is int and 0 <= axis < len(shape) for axis in axes)
    if dtype not in _DEFLATED_TYPES or stream.dtype != np.uint8 or stream.ndim != 1 or not whole or not along:
        raise DamagedFileError("it holds a compressed array without type and shape")
    size, kind = math.prod(shape), np.dtype(str(dtype))
    if not 0 < size * kind.itemsize <= _MOST_UNPACKED * len(stream) or len(axes) > len(shape):
        raise DamagedFileError(f"it holds a compressed array that is not as large as its shape {str(shape)[:80]}")
    ranks = zlib.decompressobj().decompress(stream.data, size * kind.itemsize)
    if len(ranks) != size * kind.itemsize:
        raise DamagedFileError("it holds a compressed array that ends too early")
    planes = np.frombuffer(ranks, np.uint8).reshape(kind.itemsize, size)
    values = np.array(planes.T, order="C").view(f"<u{kind.itemsize}" if axes else kind).reshape(shape)
    for axis in reversed(axes):
        np.cumsum(values, axis=axis, dtype=values.dtype, out=values)
    return values.view(kind)


def upper_half(matrix: sparse.csr_matrix) -> sparse.csr_matrix | None:
    """Return the upper triangle of a symmetric matrix; None if the matrix could not be restored from it exactly."""
    from scipy import sparse

    if matrix.shape[0] != matrix.shape[1] or matrix.nnz < _LEAST_PACKED or not matrix.has_canonical_format:
        return None
    half = sparse.triu(matrix, format="csr")
    again = both_halves(half)
    same = all(np.array_equal(getattr(again, name), getattr(matrix, name)) for name in ("data", "indices", "indptr"))
    return half if same else None


def both_halves(half: sparse.csr_matrix) -> sparse.csr_matrix:
    """Undo :func:`upper_half`."""
    from scipy import sparse

    return (half + sparse.triu(half, k=1).T).tocsr()


_IMAGES_AT_A_TIME, _PIXELS_TRIED = 256, 64


def find_levels(images: NDArray[Any]) -> dict[str, NDArray[Any]] | None:
    """Return 8-bit pictures and how they were scaled, such that :func:`restore_levels` gives ``images`` bit for bit.

    Pictures are scaled as an estimator does it: by 1 / 255 or not at all, then by a largest level, then by a norm.
    The result holds ``levels`` (n, ...), ``base`` (256,), ``peaks`` (n,) and ``norms`` (n,); None for other images.
    """
    if images.dtype not in (np.float32, np.float64) or images.ndim < 3:
        return None
    rows = images.reshape(len(images), -1)
    steps = np.arange(256, dtype=images.dtype)
    for base in (steps / images.dtype.type(255), steps):
        blocks = []
        for start in range(0, len(rows), _IMAGES_AT_A_TIME):
            blocks.append(_block_levels(rows[start : start + _IMAGES_AT_A_TIME], base))
            if blocks[-1] is None:
                break
        else:
            levels, peaks, norms = (np.concatenate(parts) for parts in zip(*filter(None, blocks), strict=True))
            return {"levels": levels.reshape(images.shape), "base": base, "peaks": peaks, "norms": norms}
    return None


def _block_levels(rows: NDArray[Any], base: NDArray[Any]) -> tuple[NDArray[Any], ...] | None:
    """Return levels, peaks and norms of a few images as rows, or None if one of them is no 8-bit picture."""
    if rows.min() < 0:
        return None
    levels, peaks, norms = np.zeros(rows.shape, np.uint8), np.full(len(rows), 255, np.uint8), np.ones_like(rows[:, 0])
    largest = rows.max(axis=1)
    candidates = [norms.copy()]
    # The largest pixel of an image of unit length is 1 / norm; division rounds, so its neighbours are tried too.
    candidates.append(1 / np.where(largest > 0, largest, 1).astype(rows.dtype))
    for towards in (0, np.inf):
        nearest = np.nextafter(candidates[1], rows.dtype.type(towards))
        candidates += [nearest, np.nextafter(nearest, rows.dtype.type(towards))]
    sample = rows[:, :: max(1, rows.shape[1] // _PIXELS_TRIED)]
    left = np.arange(len(rows))
    for peak in range(255, 0, -1):
        for norm in candidates:
            guess = sample[left] * (norm[left, None] * peak)
            tried = left[(abs(guess - np.rint(guess)) < 0.01).all(axis=1) & (guess.max(axis=1) < 256)]
            found = np.rint(rows[tried] * (norm[tried, None] * peak)).clip(0, 255).astype(np.uint8)
            same = (base[found] / base[peak] / norm[tried, None] == rows[tried]).all(axis=1)
            done = tried[same]
            levels[done], peaks[done], norms[done] = found[same], peak, norm[done]
            left = np.setdiff1d(left, done)
            if len(left) == 0:
                return levels, peaks, norms
    return None


def restore_levels(
    levels: NDArray[np.uint8], base: NDArray[Any], peaks: NDArray[np.uint8], norms: NDArray[Any]
) -> NDArray[Any]:
    """Undo :func:`find_levels`: ``base[levels] / base[peaks] / norms``, with the roundings of the first time."""
    types = levels.dtype == peaks.dtype == np.uint8 and base.dtype == norms.dtype in (np.float32, np.float64)
    if not types or levels.ndim < 3 or base.shape != (256,) or not peaks.shape == norms.shape == levels.shape[:1]:
        raise DamagedFileError("its pictures are not bytes with a scale for each of them")
    if not (base >= 0).all() or not (base[peaks] > 0).all() or not (norms > 0).all():
        raise DamagedFileError("its pictures have a scale that is zero, negative or not a number")
    each = (-1, *[1] * (levels.ndim - 1))
    images: NDArray[Any] = base[levels] / base[peaks].reshape(each) / norms.reshape(each)
    return images


# --- the archive ----------------------------------------------------------------------------------------------
# A zip archive whose members are not compressed. So every member is as large as it says, or the file is damaged.
# ``manifest.json`` names every array with its type, shape, length and SHA-256. The SHA-256 of the manifest itself is
# the archive's comment. Nothing is unpacked to a disk, and nothing in a file can be executed: arrays are numbers or
# text, never pickles.
FORMAT = "tubal"
VERSION = 2
KINDS = ("model", "checkpoint")
MANIFEST = "manifest.json"
# A manifest holds names and numbers. A longer one was not written by tubal, and is not read.
MAX_MANIFEST = 64 << 20
_BLOCK = 8 << 20
_PLAIN = "biufcUS"


def write_archive(path: str | os.PathLike[str], kind: str, content: Json, arrays: Mapping[str, ArrayLike]) -> None:
    """Write ``content`` and ``arrays`` to ``path``; a failure leaves a former file as it was."""
    target = Path(path)
    try:
        with atomic_write(target) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            entries = {name: _write_array(archive, name, array) for name, array in arrays.items()}
            manifest = {"format": FORMAT, "version": VERSION, "kind": kind, "arrays": entries, "content": content}
            text = json.dumps(manifest, allow_nan=False).encode()
            with archive.open(_member(MANIFEST), "w") as member:
                member.write(text)
            archive.comment = hashlib.sha256(text).hexdigest().encode()
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno, f"cannot write {str(target)!r}: {reason}; what was there before is untouched"
        ) from error


def read_archive(path: str | os.PathLike[str], kind: str) -> tuple[Json, dict[str, NDArray[Any]]]:
    """Return the content and the arrays of a file after checking every byte; an error says what is wrong."""
    target = Path(path)
    if not target.exists():
        raise FileNotFoundError(f"there is no file {str(target)!r}")
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a folder; name the file that save() wrote")
    try:
        with open(target, "rb") as stream, zipfile.ZipFile(stream) as archive:
            manifest = _read_manifest(archive)
            _check_manifest(manifest, kind)
            entries = _check_members(archive, manifest["arrays"], os.fstat(stream.fileno()).st_size)
            arrays = {name: _read_array(archive, name, entry) for name, entry in entries.items()}
            return manifest["content"], arrays
    except DamagedFileError as error:
        raise DamagedFileError(f"{str(target)!r} cannot be loaded: {error}") from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # a real fault of the disk keeps its own message
            raise
        raise DamagedFileError(f"{str(target)!r} cannot be loaded: it refers to bytes outside the file") from None
    except (
        zipfile.BadZipFile, struct.error, EOFError, ValueError, KeyError, TypeError, NotImplementedError,
        RecursionError, OverflowError, RuntimeError, AttributeError, IndexError, zlib.error,
    ) as error:  # fmt: skip
        raise DamagedFileError(
            f"{str(target)!r} cannot be loaded: it is truncated, altered or no tubal file ({error})"
        ) from None


def archive_kind(path: str | os.PathLike[str]) -> str | None:
    """Return what a file of ours holds ("model" or "checkpoint"), or None for a file that tubal has not written."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _read_manifest(archive)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError, struct.error):
        return None
    return str(manifest.get("kind")) if manifest.get("format") == FORMAT else None


def _member(name: str) -> zipfile.ZipInfo:
    # A fixed date, so that the same model gives the same bytes.
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


def _write_array(archive: zipfile.ZipFile, name: str, values: ArrayLike) -> dict[str, Json]:
    """Write one array and return its entry in the manifest."""
    array = np.asarray(values)
    if array.dtype.kind not in _PLAIN:
        raise TypeError(f"an array of {array.dtype} cannot be saved; numbers or text are wanted")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape})
    digest, size = hashlib.sha256(), 0
    with archive.open(_member(_file_of(name)), "w", force_zip64=True) as member:
        for piece in (header.getvalue(), *_byte_blocks(array)):
            member.write(piece)
            digest.update(piece)
            size += len(piece)
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "size": size,
        "sha256": digest.hexdigest(),
    }


def _byte_blocks(array: NDArray[Any]) -> Iterator[bytes]:
    """Yield the array's bytes in C order, a few megabytes at a time, whatever its memory layout."""
    if array.ndim == 0 or array.nbytes <= _BLOCK:
        yield array.tobytes()
        return
    step = max(1, _BLOCK // max(1, array.nbytes // len(array)))
    for start in range(0, len(array), step):
        yield array[start : start + step].tobytes()


def _file_of(name: str) -> str:
    return f"arrays/{name}.npy"


def _read_manifest(archive: zipfile.ZipFile) -> dict[str, Json]:
    info = archive.getinfo(MANIFEST)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > MAX_MANIFEST:
        raise DamagedFileError(f"its manifest claims {info.file_size} bytes, more than any manifest has")
    with archive.open(info) as member:
        text = member.read(MAX_MANIFEST + 1)
    if hashlib.sha256(text).hexdigest().encode() != archive.comment:
        raise DamagedFileError("its manifest does not match its checksum; the file was altered")
    manifest = json.loads(text)
    if not isinstance(manifest, dict):
        raise DamagedFileError("its manifest is not a table")
    return manifest


def _check_manifest(manifest: dict[str, Json], kind: str) -> None:
    if manifest.get("format") != FORMAT or not isinstance(manifest.get("version"), int):
        raise DamagedFileError("it was not written by tubal.save()")
    if manifest["version"] > VERSION:
        raise DamagedFileError(
            f"it has format {manifest['version']} and this version of tubal reads up to {VERSION}; upgrade tubal"
        )
    if manifest.get("kind") != kind:
        raise DamagedFileError(f"it holds a {str(manifest.get('kind'))[:40]}, a {kind} is wanted")


def _check_members(archive: zipfile.ZipFile, entries: Json, file_size: int) -> dict[str, dict[str, Json]]:
    """Check the type, shape and size of every entry against the file, before memory is allocated for it."""
    names = archive.namelist()
    if sorted(names) != sorted([MANIFEST, *map(_file_of, entries)]):
        raise DamagedFileError("its members are not those its manifest lists; the file was altered")
    total = 0
    for name, entry in entries.items():
        info = archive.getinfo(_file_of(name))
        dtype, shape = _claimed_type(entry["dtype"]), _claimed_shape(entry["shape"])
        expected = math.prod(shape) * dtype.itemsize
        stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        if not stored or info.file_size != entry["size"] or not 0 <= info.file_size - expected <= 1 << 16:
            raise DamagedFileError(f"array {name!r} is not as large as its shape {shape} says")
        total += info.file_size
    if total > file_size:
        raise DamagedFileError("its arrays claim to be larger than the file")
    return dict(entries)


def _claimed_type(text: Json) -> np.dtype[Any]:
    dtype = np.dtype(text) if isinstance(text, str) and len(text) < 16 else np.dtype(object)
    # Text of length 0 takes no bytes, so that its shape could be anything.
    if dtype.kind not in _PLAIN or dtype.hasobject or dtype.itemsize == 0:
        raise DamagedFileError(f"an array claims type {str(text)[:40]!r}; only numbers and text are loaded")
    return dtype


def _claimed_shape(values: Json) -> tuple[int, ...]:
    whole = isinstance(values, list) and len(values) <= 32
    if not whole or any(type(value) is not int or not 0 <= value < 1 << 48 for value in values):
        raise DamagedFileError(f"an array claims the absurd shape {str(values)[:80]}")
    return tuple(values)


def _read_array(archive: zipfile.ZipFile, name: str, entry: dict[str, Json]) -> NDArray[Any]:
    """Read one array and check it against its entry in the manifest."""
    dtype, shape = _claimed_type(entry["dtype"]), _claimed_shape(entry["shape"])
    digest = hashlib.sha256()
    with archive.open(_file_of(name)) as member:
        header = _Recorder(member)
        if npy.read_magic(header) != (1, 0):
            raise DamagedFileError(f"array {name!r} has an unknown header")
        if npy.read_array_header_1_0(header) != (shape, False, dtype):
            raise DamagedFileError(f"array {name!r} is not of the shape and type its manifest says")
        digest.update(header.seen)
        array = np.empty(shape, dtype)
        view = memoryview(array.reshape(-1).view(np.uint8).data) if array.size else memoryview(b"")
        n_read = 0
        while n_read < len(view):
            count = member.readinto(view[n_read : n_read + _BLOCK])  # type: ignore[attr-defined]
            if not count:
                raise DamagedFileError(f"array {name!r} ends too early; the file is truncated")
            digest.update(view[n_read : n_read + count])
            n_read += count
        if member.read(1):
            raise DamagedFileError(f"array {name!r} is longer than its shape")
    if digest.hexdigest() != entry["sha256"]:
        raise DamagedFileError(f"array {name!r} does not match its checksum; the file was altered")
    return array


class _Recorder:
    """Reads a header and keeps its bytes for the checksum."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.seen = stream, b""

    def read(self, count: int = -1, /) -> bytes:
        """Return up to ``count`` bytes."""
        found = self.stream.read(count)
        self.seen += found
        return found
