"""The paper's evaluation as commands: which tables exist and where each is defined.

A table is a module with ``TITLE``, ``DATASETS`` (names), ``METHODS`` (name to
:class:`~tubal.experiments.models.Method`), ``plan(datasets, methods, runs, sweep)`` giving trials, and
``write(records, folder)`` giving the files it wrote.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

TABLES = {
    "2": "tubal.experiments.table2",
    "beyond": "tubal.experiments.beyond",
    "family": "tubal.experiments.family",
}


def find_table(name: str) -> ModuleType:
    """Return the module that defines a table.

    >>> find_table("2").DATASETS
    ('coil20', 'usps', 'orl', 'yale')
    """
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}; choose one of {', '.join(TABLES)}")
    return import_module(TABLES[name])
