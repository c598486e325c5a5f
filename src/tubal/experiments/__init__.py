"""The experiments: the paper's Table 2 with its search and its atlas, the comparison beyond it, the family of models.

Each table is one module with the interface of :class:`tubal.experiments.trials.Table`; ``tubal reproduce`` runs it.
Only :mod:`tubal.cli` imports this package, and this package may import everything below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubal.experiments.trials import Table

TABLES = ("2", "search", "atlas", "beyond", "family", "protocol")


def find_table(name: str) -> Table:
    """Return the module that defines a table.

    >>> find_table("2").DATASETS
    ('coil20', 'usps', 'orl', 'yale')
    """
    if name == "2":
        from tubal.experiments import table2

        return table2
    if name == "search":
        from tubal.experiments import search

        return search
    if name == "atlas":
        from tubal.experiments import atlas

        return atlas
    if name == "beyond":
        from tubal.experiments import beyond

        return beyond
    if name == "family":
        from tubal.experiments import family

        return family
    if name == "protocol":
        from tubal.experiments import protocol

        return protocol
    raise ValueError(f"there is no table {name!r}; choose one of {', '.join(TABLES)}")
