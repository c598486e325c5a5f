"""Extreme and malformed images, and checks of the fits on them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tubal
from tubal.solvers import Admm, Fista

ESTIMATORS = ("GTSC", "TubSC", "GraphSC", "SparseCoding", "TenSR", "CSC")
# Every error must be one of these; anything else is a crash.
ERRORS = (ValueError, TypeError, MemoryError)


def _base() -> np.ndarray:
    return np.random.default_rng(0).random((12, 6, 5))


def _with(value: float) -> np.ndarray:
    images = _base()
    images[3, 2, 1] = value
    return images


def _read_only() -> np.ndarray:
    images = _base()
    images.flags.writeable = False
    return images


def _odd_memory() -> np.ndarray:
    return np.asfortranarray(np.random.default_rng(0).random((24, 12, 5)))[::2, ::-2]


def _byteswapped() -> np.ndarray:
    return _base().astype(">f8")


class _Inconsistent:
    """A dataset that states one shape and returns another."""

    shape, dtype, ndim, chunks = (12, 6, 5), np.dtype(np.float64), 3, None

    def __getitem__(self, key: Any) -> np.ndarray:
        return np.zeros((1, 6, 5)) if key == slice(0, 1) else np.zeros((3, 6, 5))

    def __len__(self) -> int:
        return 12


# name: (images, "result" | "error" | "either")
CASES: dict[str, tuple[Any, str]] = {
    "ordinary": (_base, "result"),
    "nested lists": (lambda: _base().reshape(12, 30).tolist(), "result"),
    "strings": (lambda: np.array([["a", "b"], ["c", "d"]]), "error"),
    "numbers as text": (lambda: _base().reshape(12, 30).astype(str), "either"),
    "objects": (lambda: np.array([[{}, {}], [{}, {}]], object), "error"),
    "None": (lambda: None, "error"),
    "a number": (lambda: 3.0, "error"),
    "a dict": (lambda: {"images": _base()}, "error"),
    "ragged lists": (lambda: [[1.0, 2.0], [3.0]], "error"),
    "complex": (lambda: _base() + 1j, "error"),
    "dates": (lambda: np.zeros((3, 4), "datetime64[s]"), "error"),
    "booleans": (lambda: _base() > 0.5, "result"),
    "uint8": (lambda: (255 * _base()).astype(np.uint8), "result"),
    "int64 huge": (lambda: (1e18 * _base()).astype(np.int64), "result"),
    "float16": (lambda: _base().astype(np.float16), "result"),
    "float32": (lambda: _base().astype(np.float32), "result"),
    "longdouble": (lambda: _base().astype(np.longdouble), "result"),
    "other byte order": (_byteswapped, "result"),
    "read-only": (_read_only, "result"),
    "strided and reversed": (_odd_memory, "result"),
    "memory map of zeros": (lambda: np.zeros((12, 6, 5)).view(np.memmap), "result"),
    "NaN": (lambda: _with(np.nan), "error"),
    "infinity": (lambda: _with(np.inf), "error"),
    "minus infinity": (lambda: _with(-np.inf), "error"),
    "masked array": (lambda: np.ma.masked_greater(_base(), 0.5), "either"),
    "zeros": (lambda: np.zeros((12, 6, 5)), "result"),
    "constant": (lambda: np.full((12, 6, 5), 7.0), "result"),
    "one blank image": (lambda: np.concatenate([_base(), np.zeros((1, 6, 5))]), "result"),
    "all equal": (lambda: np.repeat(_base()[:1], 12, axis=0), "result"),
    "pairs of duplicates": (lambda: np.repeat(_base()[:6], 2, axis=0), "result"),
    "negative": (lambda: -_base(), "result"),
    "huge": (lambda: 1e150 * _base(), "result"),
    "tiny": (lambda: 1e-150 * _base(), "result"),
    "subnormal": (lambda: 5e-324 * (_base() > 0.5), "result"),
    "huge in float32": (lambda: (1e37 * _base()).astype(np.float32), "result"),
    "tiny in float32": (lambda: (1e-37 * _base()).astype(np.float32), "result"),
    "huge and tiny together": (lambda: _base() * np.logspace(-100, 100, 12)[:, None, None], "result"),
    "one huge pixel": (lambda: _with(1e200), "result"),
    "one image": (lambda: _base()[:1], "either"),
    "two images": (lambda: _base()[:2], "either"),
    "fewer images than neighbours": (lambda: _base()[:3], "either"),
    "fewer images than atoms": (lambda: _base()[:5], "result"),
    "no images": (lambda: np.empty((0, 6, 5)), "error"),
    "no pixels": (lambda: np.empty((6, 0, 5)), "error"),
    "one axis": (lambda: np.arange(12.0), "error"),
    "five axes": (lambda: np.zeros((2, 3, 4, 5, 6)), "error"),
    "single row": (lambda: _base()[:, :1], "result"),
    "single column": (lambda: _base()[..., :1], "result"),
    "single pixel": (lambda: _base()[:, :1, :1], "result"),
    "more atoms than pixels": (lambda: _base()[:, :2, :2], "result"),
    "colour": (lambda: np.random.default_rng(0).random((12, 4, 5, 3)), "result"),
    "many channels": (lambda: np.random.default_rng(0).random((8, 3, 4, 17)), "result"),
    "rows": (lambda: _base().reshape(12, 30), "result"),
    "inconsistent dataset": (_Inconsistent, "error"),
    "an empty iterator": (lambda: iter([]), "error"),
    "batches that change shape": (lambda: iter([_base(), _base()[:, :2]]), "error"),
    "a function that yields less each time": (lambda: _Shrinking(4), "error"),
    "a function that raises": (lambda: _Raising(1), "error"),
}


# Images for which TenSR and CSC raise an error, because they allow fewer atoms than asked for.
TOO_SMALL = {"nested lists", "rows", "single row", "single column", "single pixel", "more atoms than pixels"}


class _Shrinking:
    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self) -> Any:
        self.left -= 1
        return iter(np.array_split(_base(), 4)[: max(self.left, 1)])


class _Raising:
    def __init__(self, whole: int) -> None:
        self.whole = whole

    def __call__(self) -> Any:
        yield from [_base()] * self.whole
        raise ValueError("the third file of the stream is unreadable")


def quick(name: str, **parameters: Any) -> Any:
    """Return an estimator that fits fast."""
    small: dict[str, Any] = {"n_atoms": 6, "max_iter": 3, "random_state": 0, "code_solver": Admm(max_iter=10)}
    if name == "TenSR":
        small["n_atoms"] = (3, 3)
    return getattr(tubal, name)(**small | parameters)


def check_sound(model: Any) -> None:
    """Raise unless a fitted model is finite, its objective never rose and its atoms are in the unit ball."""
    objective, codes, atoms = (np.asarray(value) for value in (model.objective_, model.codes_, model.atoms_))
    if not (np.isfinite(objective).all() and np.isfinite(codes).all() and np.isfinite(atoms).all()):
        raise AssertionError("a fit left NaN or infinity")
    tolerance = 1e-5 if codes.dtype == np.float32 else 1e-10
    # Images have about unit length: the objective of a perfect fit is rounding of their squares and graph terms.
    floor = len(codes) * float(np.finfo(codes.dtype).eps) * (1.0 + getattr(model, "graph_weight", 0.0))
    allowed = tolerance * np.abs(objective[:-1]) + floor
    # The last value is that of the final codes. They are solved anew, to a tolerance, so that after a perfect fit the
    # objective rises by a small share of the squared lengths.
    allowed[-1:] += 1e-3 * np.abs(objective[-2:-1]) + 1e-4 * len(codes)
    if (np.diff(objective) > allowed).any():
        raise AssertionError(f"the objective rose: {objective}")
    if (np.linalg.norm(atoms.reshape(len(atoms), -1).astype(np.float64), axis=1) > 1 + 1e-5).any():
        raise AssertionError("an atom lies outside the unit ball")


def check_clear(error: BaseException) -> None:
    """Raise unless an exception is a clear error of one sentence."""
    text = str(error)
    if not isinstance(error, ERRORS) or not 10 <= len(text) <= 600:
        raise AssertionError(f"not a clear error: {type(error).__name__}: {text}") from error


def outcome(name: str, case: str) -> str:
    """Fit one estimator on one hostile input; return "result" or "error", or raise."""
    make, _ = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            model = quick(name).fit(make())
        except ERRORS as error:
            check_clear(error)
            return "error"
        check_sound(model)
        _agrees_with_double(name, make, model)
    return "result"


def _agrees_with_double(name: str, make: Any, model: Any) -> None:
    """Check that the fit of a contiguous copy in double precision starts at the same objective."""
    images = make()
    if not isinstance(images, (np.ndarray, list)) or isinstance(images, np.ma.MaskedArray):
        return
    plain = np.ascontiguousarray(np.array(images), np.float64)
    expected = quick(name).fit(plain)
    rounding = 2e-2 if model.atoms_.dtype == np.float32 else 1e-6
    np.testing.assert_allclose(model.objective_[0], expected.objective_[0], rtol=rounding, atol=1e-12)


# --- generated fits ------------------------------------------------------------------------------------------
@st.composite
def fits(draw: Any) -> tuple[str, dict[str, Any], np.ndarray, int | None]:
    """Draw an estimator, parameters, images and perhaps a chunk size."""
    name = draw(st.sampled_from(ESTIMATORS))
    shape = (draw(st.integers(1, 12)), draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    images = random.standard_normal(shape) if draw(st.booleans()) else random.random(shape)
    kind = draw(st.sampled_from(["plain", "sparse", "copies", "blank", "constant", "integers"]))
    if kind == "sparse":
        images *= random.random(shape) < 0.1
    elif kind == "copies":
        images = images[random.integers(0, max(1, shape[0] // 3), shape[0])]
    elif kind == "blank":
        images[random.random(shape[0]) < 0.5] = 0.0
    elif kind == "constant":
        images[:] = images[:, :1, :1]
    elif kind == "integers":
        images = np.round(3 * images)
    images = images * 10.0 ** draw(st.integers(-30, 30))
    if draw(st.booleans()):
        images = images.astype(np.float32)
    parameters: dict[str, Any] = {
        "n_atoms": draw(st.integers(1, 8)),
        "sparsity": draw(st.sampled_from([0.0, 1e-6, 0.01, 0.3, 5.0])),
        "scale": draw(st.sampled_from(["unit", "max"])),
        "max_iter": draw(st.integers(1, 4)),
        "tol": draw(st.sampled_from([0.0, 1e-4])),
        "init": draw(st.sampled_from(["images", "random"])),
        "random_state": draw(st.integers(0, 1000)),
        "code_solver": draw(st.sampled_from([None, Admm(max_iter=7, penalty=0.5), Fista(max_iter=9)])),
    }
    if name == "TenSR":
        parameters["n_atoms"] = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    if name in ("GTSC", "GraphSC"):
        parameters["graph_weight"] = draw(st.sampled_from([0.0, 0.1, 1.0, 100.0]))
        parameters["n_neighbors"] = draw(st.integers(1, 4))
        parameters["graph"] = draw(st.sampled_from(["euclidean", "cosine"]))
    if name in ("GTSC", "TubSC"):
        parameters["tube_axis"] = draw(st.sampled_from([-1, -2]))
    chunk = draw(st.sampled_from([None, None, None, 1, 3, 5]))
    return name, parameters, images, chunk


def check_fit(case: tuple[str, dict[str, Any], np.ndarray, int | None]) -> str:
    """Fit a generated case and transform with it; return "result" or "error"."""
    name, parameters, images, chunk = case
    try:
        model = getattr(tubal, name)(**parameters).fit(images, chunk_size=chunk)
    except ERRORS as error:
        check_clear(error)
        if parameters.get("n_neighbors", 0) < len(images) and name not in ("TenSR", "CSC"):
            raise AssertionError(f"a fit that should succeed raised: {error}") from error
        return "error"
    check_sound(model)
    if not np.isfinite(np.asarray(model.transform(images))).all():
        raise AssertionError("transform gave NaN or infinity")
    return "result"
