"""Models in one file: arrays and JSON, no pickle, nothing executed.

>>> import numpy as np, pathlib, tempfile, tubal
>>> model = tubal.TubSC(n_atoms=3, max_iter=2, random_state=0).fit(np.random.default_rng(0).random((8, 5, 4)))
>>> path = pathlib.Path(tempfile.mkdtemp()) / "model.tubal"
>>> save(model, path)
>>> bool((load(path).atoms_ == model.atoms_).all())
True

What is stored: every parameter and every fitted attribute. That includes the codes of the training images,
``n · n_atoms · tube`` numbers, and with a graph the training images themselves, ``n · height · width`` numbers, since
new images are tied to them; a thousand 32 × 32 images with 45 atoms take 6 MB and 4 MB in single precision. Do
not pass on a model whose images you may not pass on. ``callbacks`` are code and are not stored.
"""

from __future__ import annotations

import importlib
import math
import os
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import is_torch, to_numpy
from tubal.storage.archive import DamagedFileError, read_archive, write_archive

__all__ = ["DamagedFileError", "load", "save"]

# The only classes a file can name. A class that is not here is refused, both ways.
_ESTIMATORS = {
    "GTSC": "tubal.estimators",
    "TubSC": "tubal.estimators",
    "GraphSC": "tubal.estimators",
    "SparseCoding": "tubal.estimators",
    "TenSR": "tubal.estimators",
    "CSC": "tubal.estimators",
    "ImageClusterer": "tubal.clustering",
}
_DATACLASSES = {
    "Admm": "tubal.solvers",
    "Fista": "tubal.solvers",
    "PrintedIstt": "tubal.solvers",
    "LagrangeDual": "tubal.solvers",
    "ProjectedGradient": "tubal.solvers",
    "ImageLayout": "tubal.problems.layout",
    "SeparableLayout": "tubal.problems.layout",
    "PlaneLayout": "tubal.problems.layout",
    "SplitState": "tubal.problems.base",
    "MomentumState": "tubal.problems.base",
    "Tally": "tubal.learning.alternation",
    "TubalStatistics": "tubal.problems.tubal_dictionary",
    "ConvolutionalStatistics": "tubal.problems.convolutional_dictionary",
    "SeparableStatistics": "tubal.problems.separable",
}
_NOT_STORED = {"callbacks"}


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to one file; a crash or a full disk leaves a former file there as it was.

    Parameters
    ----------
    model : one of tubal's estimators, fitted.
    path : the file to write; any name, ``.tubal`` by custom.
    """
    if _registered(model, _ESTIMATORS) is None:
        raise TypeError(
            f"a {type(model).__name__} cannot be saved; one of tubal's estimators is wanted: {', '.join(_ESTIMATORS)}"
        )
    if not _fitted_attributes(model):
        raise ValueError(f"this {type(model).__name__} is not fitted; call fit before save")
    encoder = Encoder()
    write_archive(path, "model", encoder.encode(model, type(model).__name__), encoder.arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model in a file that :func:`save` wrote, by this version of tubal or an earlier one.

    A file that is truncated, altered, of a later format or not tubal's is refused with a sentence
    (:class:`DamagedFileError`, a ``ValueError``). Arrays come back as NumPy whatever device they were on.
    """
    content, arrays = read_archive(path, "model")
    model = decode(content, arrays, path)
    if _registered(model, _ESTIMATORS) is None:
        raise DamagedFileError(f"{str(path)!r} cannot be loaded: it holds no model")
    return model


def decode(content: Any, arrays: dict[str, NDArray[Any]], path: str | os.PathLike[str]) -> Any:
    """Rebuild what an :class:`Encoder` described, or say that the file does not describe anything."""
    try:
        return _decode(content, arrays)
    except DamagedFileError as error:
        raise DamagedFileError(f"{str(path)!r} cannot be loaded: {error}") from None
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise DamagedFileError(f"{str(path)!r} cannot be loaded: its parts do not fit together ({error})") from None


# --- objects to JSON -------------------------------------------------------------------------------------------
class Encoder:
    """Turns objects into JSON and gathers their arrays; an array met twice is stored once."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []  # ids stay unique only while the objects live

    def encode(self, value: Any, where: str) -> Any:  # noqa: PLR0911  (one return per kind)
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

    def _encode_array(self, value: Any, where: str) -> Any:
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

    def _encode_dict(self, value: dict[Any, Any], where: str) -> dict[str, Any]:
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise TypeError(f"{where} has the key {key!r}, which cannot be saved; keys must be plain strings")
        return {key: self.encode(item, f"{where}.{key}") for key, item in value.items()}

    def _encode_object(self, value: Any, where: str) -> dict[str, Any]:
        from scipy import sparse

        from tubal.graph import Graph

        if isinstance(value, Graph):
            arrays, meta = value.state()
            return {"$graph": self.encode(meta, where), "arrays": self.encode(arrays, where)}
        if sparse.issparse(value):
            return self._encode_sparse(value, where)
        if isinstance(value, np.random.RandomState):
            return {"$random": self.encode(list(value.get_state(legacy=True)), where)}
        name = _registered(value, _DATACLASSES)
        if name is not None and is_dataclass(value):
            found = {field.name: getattr(value, field.name) for field in fields(value)}
            return {"$object": name, "fields": self.encode(found, where)}
        name = _registered(value, _ESTIMATORS)
        if name is not None:
            given = {key: item for key, item in value.get_params(deep=False).items() if key not in _NOT_STORED}
            fitted = self.encode(_fitted_attributes(value), name)
            return {"$estimator": name, "parameters": self.encode(given, name), "fitted": fitted}
        raise TypeError(
            f"{where} is a {type(value).__name__}, which cannot be saved; numbers, text, arrays, graphs and tubal's "
            "own solvers can"
        )

    def _encode_sparse(self, matrix: Any, where: str) -> dict[str, Any]:
        rows = matrix.tocsr()
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
        return {"$sparse": list(map(int, rows.shape)), "parts": self.encode(parts, where)}


def _registered(value: Any, registry: dict[str, str]) -> str | None:
    """Return the name under which exactly this class can be found again, or None; subclasses are not theirs."""
    name = type(value).__name__
    if name not in registry or not type(value).__module__.startswith("tubal."):
        return None
    return name


def _fitted_attributes(model: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(model).items() if name.endswith("_") and name[:2] != "__"}


# --- JSON to objects -------------------------------------------------------------------------------------------
def _decode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
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


def _read_object(value: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    cls = _class_of(value["$object"], _DATACLASSES)
    return cls(**_decode(value["fields"], arrays))


def _read_estimator(value: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    model = _class_of(value["$estimator"], _ESTIMATORS)()
    model.set_params(**_decode(value["parameters"], arrays))
    fitted = _decode(value["fitted"], arrays)
    for name, item in fitted.items():
        if not (name.isidentifier() and name.endswith("_") and name[:2] != "__"):
            raise DamagedFileError(f"it names the attribute {name[:40]!r}, which no model has")
        setattr(model, name, item)
    _check_model(model)
    return model


def _read_graph(value: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    from tubal.graph import restore_graph

    return restore_graph(_decode(value["arrays"], arrays), _decode(value["$graph"], arrays))


def _read_sparse(value: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    from scipy import sparse

    parts = _decode(value["parts"], arrays)
    shape = tuple(int(extent) for extent in value["$sparse"])
    matrix = sparse.csr_matrix((parts["data"], parts["indices"], parts["indptr"]), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _read_random(value: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> np.random.RandomState:
    random = np.random.RandomState()
    random.set_state(tuple(_decode(value["$random"], arrays)))
    return random


def _read_strings(value: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    found = np.empty(len(value["$strings"]), object)
    found[:] = [str(item) for item in value["$strings"]]
    return found.reshape([int(extent) for extent in value["shape"]])


_READERS = {
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


def _class_of(name: Any, registry: dict[str, str]) -> Any:
    if name not in registry:
        raise DamagedFileError(f"it holds a {str(name)[:40]!r}, which this version of tubal does not know")
    return getattr(importlib.import_module(registry[name]), name)


def _check_model(model: Any) -> None:
    """Refuse fitted arrays that do not fit each other; compiled code would read past their ends."""
    atoms, codes, shape = (getattr(model, name, None) for name in ("atoms_", "codes_", "image_shape_"))
    if atoms is None or codes is None or shape is None:
        return
    by_atom = model.by_atom(codes) if hasattr(model, "by_atom") else codes
    wrong = atoms.shape[1:] != tuple(shape) and atoms.ndim > 2
    wrong |= by_atom.ndim > 1 and atoms.ndim > 2 and by_atom.shape[1] != atoms.shape[0]
    wrong |= by_atom.ndim == 4 and by_atom.shape[2:] != tuple(shape)[:2]
    graph: Any = getattr(model, "graph_", None)
    wrong |= graph is not None and graph.n_images != codes.shape[0]
    if wrong or not _dictionary_fits(model, atoms, codes):
        raise DamagedFileError("its atoms, codes and graph are not of matching sizes")


def _dictionary_fits(model: Any, atoms: Any, codes: Any) -> bool:
    """Tell whether a dictionary is of the size that the model's layout and codes say."""
    dictionary: Any = getattr(model, "dictionary_", None)
    layout: Any = getattr(model, "_layout_", None)
    if isinstance(dictionary, tuple):  # one matrix a mode
        return [matrix.shape for matrix in dictionary] == list(zip(layout.sides, codes.shape[1:], strict=True))
    if not isinstance(dictionary, np.ndarray):
        return True
    if dictionary.ndim == 4:  # filters (down, across, channel, atom)
        inside = all(side <= whole for side, whole in zip(dictionary.shape, codes.shape[2:], strict=False))
        return bool(inside and dictionary.shape[3] == atoms.shape[0] == codes.shape[1])
    if dictionary.ndim == 3 and layout is not None:
        tube = layout.tube_length
        fits = dictionary.shape == (tube, layout.n_rows, atoms.shape[0])
        return bool(fits and (codes.ndim != 3 or codes.shape[2] == tube))
    return True
