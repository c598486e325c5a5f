"""Every public name documents every parameter, attribute and return value in numpydoc's form."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

numpydoc = pytest.importorskip("numpydoc.validate", reason="numpydoc is not installed: pip install numpydoc")

PUBLIC_MODULES = [
    "tubal",
    "tubal.algebra",
    "tubal.clustering",
    "tubal.datasets",
    "tubal.distributed",
    "tubal.estimators",
    "tubal.graph",
    "tubal.learning",
    "tubal.metrics",
    "tubal.plot",
    "tubal.problems",
    "tubal.report",
    "tubal.solvers",
    "tubal.storage",
]
# GL08: no docstring. PR01-04, PR07: parameters missing, unknown, in another order, without a type or description.
# RT03: a return value without a description.
REQUIRED = {"GL08", "PR01", "PR02", "PR03", "PR04", "PR07", "RT03"}


def public_objects() -> Iterator[str]:
    """Yield the full name of every public function, class and method, once."""
    seen = set()
    for item, name in public_names():
        if (item.__module__, item.__qualname__) not in seen:
            seen.add((item.__module__, item.__qualname__))
            yield name
            for method in own_methods(item) if inspect.isclass(item) else ():
                owner = documented_by(item, method)
                full = f"{owner.__module__}.{owner.__qualname__}.{method}"
                if full not in seen:
                    seen.add(full)
                    yield full


def public_names() -> Iterator[tuple[Any, str]]:
    """Yield every public function and class, and its full name."""
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            if callable(getattr(module, name)):
                yield getattr(module, name), f"{module_name}.{name}"


def own_methods(cls: type) -> list[str]:
    return [
        name
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and member.__module__.startswith("tubal")
    ]


def documented_by(cls: type, method: str) -> type:
    """Return the class whose docstring a method has: its own, or the nearest base class with one."""
    return next((base for base in cls.__mro__ if getattr(vars(base).get(method), "__doc__", None)), cls)


def test_method_without_docstring_takes_the_parameters_of_its_base():
    inherited = [
        (getattr(item, method), getattr(documented_by(item, method), method))
        for item, _ in public_names()
        if inspect.isclass(item)
        for method in own_methods(item)
    ]
    for method, documented in inherited:
        assert [*inspect.signature(method).parameters] == [*inspect.signature(documented).parameters], method


@pytest.mark.parametrize("name", list(public_objects()))
def test_docstring_is_complete(name):
    # The constructor of a protocol takes any arguments, and nobody calls it.
    required = REQUIRED - {"PR01"} if is_protocol(name) else REQUIRED
    found = [(code, message) for code, message in numpydoc.validate(name)["errors"] if code in required]
    assert not found, found


def is_protocol(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    if module not in PUBLIC_MODULES:  # a method
        return False
    return getattr(getattr(importlib.import_module(module), attribute), "_is_protocol", False)
