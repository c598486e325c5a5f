"""Every public name documents every parameter, attribute and return value in numpydoc's form."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

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
    "tubal.solvers",
    "tubal.storage",
]
# GL08: no docstring. PR01-04, PR07: parameters missing, unknown, in another order, without a type or description.
# RT03: a return value without a description.
REQUIRED = {"GL08", "PR01", "PR02", "PR03", "PR04", "PR07", "RT03"}


def public_objects() -> Iterator[str]:
    """Yield the full name of every public function, class and method, once."""
    seen = set()
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            item = getattr(module, name)
            if not callable(item) or (item.__module__, item.__qualname__) in seen:
                continue
            seen.add((item.__module__, item.__qualname__))
            yield f"{module_name}.{name}"
            if inspect.isclass(item):
                yield from (f"{module_name}.{name}.{method}" for method in _own_methods(item))


def _own_methods(cls: type) -> list[str]:
    return [
        name
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and member.__module__.startswith("tubal")
    ]


@pytest.mark.parametrize("name", public_objects())
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
