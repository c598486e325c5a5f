"""The experiments: the paper's Table 2, the comparison beyond the paper, the family of models, and answers.

Each table is one module with the interface of :class:`tubal.experiments.trials.Table`; ``tubal reproduce`` runs it.
Only :mod:`tubal.cli` imports this package, and this package may import everything below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubal.experiments.trials import Table

TABLES = ("2", "beyond", "family", "hints")


def find_table(name: str) -> Table:
    """Return the module that defines a table.

    >>> find_table("2").DATASETS
    ('coil20', 'usps', 'orl', 'yale')
    """
    if name == "2":
        from tubal.experiments import table2

        return table2
    if name == "beyond":
        from tubal.experiments import beyond

        return beyond
    if name == "family":
        from tubal.experiments import family

        return family
    if name == "hints":
        from tubal.experiments import hints

        return hints
    raise ValueError(f"there is no table {name!r}; choose one of {', '.join(TABLES)}")
