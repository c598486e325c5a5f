"""The experiments: the paper's Table 2 with its search and its atlas, the comparison beyond it, the family of
models, and what answers are worth.

Each table is one module with the interface of :class:`tubal.experiments.tables.Table`; ``tubal reproduce`` runs it.
Only :mod:`tubal.cli` imports this package, and this package may import everything below it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubal.experiments.tables import Table

TABLES = ("2", "search", "finals", "atlas", "beyond", "family", "hints", "protocol")


def find_table(name: str) -> Table:
    """Return the module that defines a table.

    >>> find_table("2").DATASETS
    ('coil20', 'usps', 'orl', 'yale')
    """
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}; choose one of {', '.join(TABLES)}")
    table: Table = importlib.import_module(f"tubal.experiments.{'table2' if name == '2' else name}")  # type: ignore[assignment]
    return table
