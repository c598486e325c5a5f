"""Models in one file: arrays and JSON. There is no pickle, and nothing in a file is executed.

>>> import numpy as np, pathlib, tempfile, tubal
>>> model = tubal.TubSC(n_atoms=3, max_iter=2, random_state=0).fit(np.random.default_rng(0).random((8, 5, 4)))
>>> path = pathlib.Path(tempfile.mkdtemp()) / "model.tubal"
>>> save(model, path)
>>> bool((load(path).atoms_ == model.atoms_).all())
True

A file holds every parameter and every fitted attribute. That includes the codes of the training images,
``n · n_atoms · tube`` numbers. With a graph it also includes the training images themselves, ``n · height · width``
numbers, because new images are joined to them. A thousand 32 × 32 images with 45 atoms take 6 MB and 4 MB in single
precision. A model file with a graph contains your training images: share it only if you may share them. ``callbacks``
are code and are not stored.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, is_torch, to_numpy
from tubal.storage.archive import DamagedFileError, read_archive, write_archive

__all__ = ["DamagedFileError", "load", "save"]

if TYPE_CHECKING:
    from scipy import sparse
    from sklearn.base import BaseEstimator

    from tubal.graph import Graph

Arrays: TypeAlias = dict[str, NDArray[Any]]
Json: TypeAlias = Any  # what json.loads returns

# A file can name only classes that these modules export: the estimators of tubal, and dataclasses of the others.
_ESTIMATORS = "tubal"
_EXPORTING = (_ESTIMATORS, "tubal.solvers", "tubal.problems", "tubal.learning")
# Names of classes in files that earlier versions wrote.
_FORMER_NAMES = {"Tally": "PassTotals"}
_NOT_STORED = {"callbacks"}


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
    encoder = Encoder()
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
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError, ArithmeticError) as error:
        raise DamagedFileError(
            f"{str(path)!r} cannot be loaded: its parts do not fit together ({_one_line(error)})"
        ) from None


def _one_line(error: Exception) -> str:
    """Return what an error says in one short line: a file may hold an array where a number should be."""
    text = " ".join(str(error).split())
    return text if len(text) < 400 else f"{text[:300]} … {text[-80:]}"


# --- objects to JSON -------------------------------------------------------------------------------------------
class Encoder:
    """Turns objects into JSON and collects their arrays; an array that occurs twice is stored once."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []  # ids are unique only while the objects exist

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
        if id(value) not in self._names:
            self._names[id(value)] = f"a{len(self.arrays)}"
            self._kept.append(value)
            self.arrays[self._names[id(value)]] = array
        return {"$array": self._names[id(value)]}

    def _encode_dict(self, value: dict[Any, Any], where: str) -> dict[str, Json]:
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise TypeError(f"{where} has the key {key!r}, which cannot be saved; keys must be plain strings")
        return {key: self.encode(item, f"{where}.{key}") for key, item in value.items()}

    def _encode_object(self, value: Any, where: str) -> dict[str, Json]:
        from scipy import sparse

        from tubal.graph import Graph

        if isinstance(value, Graph):
            arrays, meta = value.state()
            return {"$graph": self.encode(meta, where), "arrays": self.encode(arrays, where)}
        if sparse.issparse(value):
            return self._encode_sparse(value, where)
        if isinstance(value, np.random.RandomState):
            return {"$random": self.encode(list(value.get_state(legacy=True)), where)}
        name = type(value).__name__
        if is_dataclass(value) and _find_class(name) is type(value):
            found = {field.name: getattr(value, field.name) for field in fields(value)}
            return {"$object": name, "fields": self.encode(found, where)}
        if _is_estimator(value):
            given = {key: item for key, item in value.get_params(deep=False).items() if key not in _NOT_STORED}
            fitted = self.encode(_fitted_attributes(value), name)
            return {"$estimator": name, "parameters": self.encode(given, name), "fitted": fitted}
        raise TypeError(
            f"{where} is a {type(value).__name__}, which cannot be saved; numbers, text, arrays, graphs and tubal's "
            "own solvers can"
        )

    def _encode_sparse(self, matrix: sparse.sparray | sparse.spmatrix, where: str) -> dict[str, Json]:
        rows = matrix.tocsr()
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
        return {"$sparse": list(map(int, rows.shape)), "parts": self.encode(parts, where)}


def _fitted_attributes(model: BaseEstimator) -> dict[str, Any]:
    return {name: value for name, value in vars(model).items() if name.endswith("_") and name[:2] != "__"}


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
    return restore_csr([parts[name] for name in ("data", "indices", "indptr")], (n_rows, n_columns))


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


_READERS: dict[str, Callable[[dict[str, Any], Arrays], Any]] = {
    "$float": lambda value, arrays: float(value["$float"]),
    "$array": lambda value, arrays: arrays[value["$array"]],
    "$tuple": lambda value, arrays: tuple(_decode(value["$tuple"], arrays)),
    "$strings": _read_strings,
    "$random": _read_random,
    "$object": _read_object,
    "$graph": _read_graph,
    "$sparse": _read_sparse,
    "$estimator": _read_estimator,
}


def _known_class(name: object) -> type:
    found = _find_class(name)
    if found is None:
        raise DamagedFileError(f"it holds a {str(name)[:40]!r}, which this version of tubal does not know")
    return found
