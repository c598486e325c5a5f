"""Labels given by people: only ever compared with the clusters, never used to find them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

__all__ = ["read_truth", "score"]

FILE_COLUMNS = ("file", "name", "image", "path", "filename")
TRUTH_COLUMNS = ("label", "class", "target", "truth", "category", "cluster")


def read_truth(choice: str | None, stack: Any, *, is_collection: bool) -> list[str] | None:
    """Return one label an image (empty where unknown) for ``--labels``, or ``None`` without labels.

    ``choice`` is ``"folders"``, ``"given"`` or the path of a CSV; a collection brings its own labels.
    """
    if choice is None:
        return _as_text(stack.target) if is_collection and stack.target is not None else None
    if choice == "folders":
        parents = [PurePosixPath(name).parent.as_posix() for name in stack.names]
        if not any(stack.files) or len(set(parents)) < 2:
            raise ValueError("--labels folders needs images in at least two sub-folders, one for each label")
        return parents
    if choice == "given":
        if stack.target is None:
            raise ValueError("--labels given: these images carry no labels; name a CSV with columns file, label")
        return _as_text(stack.target)
    return _read_csv(Path(choice), stack.names)


def score(labels: np.ndarray, truth: Sequence[str]) -> dict[str, float]:
    """Compare clusters with the given labels, leaving out images without one; all scores in percent."""
    from tubal.metrics import clustering_accuracy, clustering_nmi, purity

    known = np.array([bool(label) for label in truth])
    if not known.any():
        raise ValueError("no image has a label to compare with; check the names in the file of labels")
    given = np.unique(np.array(truth)[known], return_inverse=True)[1]
    found = np.asarray(labels)[known]
    return {
        "accuracy": round(100.0 * float(clustering_accuracy(given, found)), 2),
        "nmi": round(100.0 * float(clustering_nmi(given, found)), 2),
        "purity": round(100.0 * float(purity(given, found)), 2),
        "labelled_images": int(known.sum()),
    }


def _as_text(target: Any) -> list[str]:
    values = np.asarray(target)
    if values.dtype.kind == "f":
        values = values.astype(np.int64)
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]


def _read_csv(path: Path, names: Sequence[str]) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of labels {str(path)!r}; give a CSV, 'folders' or 'given'")
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except csv.Error as error:
        raise ValueError(f"{str(path)!r} is not a CSV: {error}") from error
    table = _as_table(rows, path)
    if isinstance(table, list):
        if len(table) != len(names):
            raise ValueError(f"{str(path)!r} has {len(table)} labels for {len(names)} images; add a column 'file'")
        return table
    by_name = _unique_by_last_part(table)
    return [table.get(name) or by_name.get(PurePosixPath(name).name, "") for name in names]


def _as_table(rows: list[list[str]], path: Path) -> dict[str, str] | list[str]:
    """Return name → label, or a plain list for a file of one column."""
    head = [cell.strip().lower() for cell in rows[0]] if rows else []
    file = next((head.index(column) for column in FILE_COLUMNS if column in head), None)
    truth = next((head.index(column) for column in TRUTH_COLUMNS if column in head), None)
    if file is not None and truth is not None:
        return {row[file]: row[truth].strip() for row in rows[1:] if len(row) > max(file, truth)}
    if file is None and truth is not None and len(head) == 1:
        return [row[0].strip() for row in rows[1:]]
    if head and truth is None and file is None and len(head) <= 2:
        return [row[0].strip() for row in rows] if len(head) == 1 else {row[0]: row[-1].strip() for row in rows}
    raise ValueError(f"{str(path)!r} has the columns {', '.join(head) or '(none)'}; wanted file and label")


def _unique_by_last_part(table: dict[str, str]) -> dict[str, str]:
    last = {name: PurePosixPath(name).name for name in table}
    counts = Counter(last.values())
    return {short: table[name] for name, short in last.items() if counts[short] == 1}
