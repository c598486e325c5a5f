"""Report data as JSON: numbers as base64 typed arrays, text escaped for a script element."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tubal.report.data import Array, ReportData
from tubal.report.sprites import pack_sprites
from tubal.storage.provenance import to_plain

# The table of every image, from which the edited CSV is written, stays below a few megabytes.
MAX_ROWS = 50_000
MAX_TERMS = 96
# More pixels of atoms than this are kept in 8 bits rather than 16.
MAX_FINE_PIXELS = 1_000_000


def encode_payload(data: ReportData, shown: Array) -> dict[str, Any]:
    """Return what the page reads: a table of all images (if not too long), pictures of those shown."""
    rows = np.arange(data.n_images) if data.n_images <= MAX_ROWS else shown
    # Where each image stands in the table; -1 if it has no row.
    row_of = np.full(data.n_images + 1, -1)
    row_of[rows] = np.arange(len(rows))
    return {
        "title": data.title,
        "nTotal": int(data.n_total),
        "nClustered": int(data.n_images),
        "doubtfulBelow": float(data.doubtful_below),
        "names": [str(data.names[i]) for i in rows.tolist()],
        "labels": data.labels[rows].astype(int).tolist(),
        "confidence": _rounded(data.confidence[rows]),
        "outliers": np.flatnonzero(data.outliers[rows]).tolist(),
        "duplicateOf": _sparse(row_of[data.duplicate_of[rows]]),
        "shown": pack(row_of[shown], "int32"),
        "trueLabels": _true_labels(data, shown),
        "embedding": pack(data.embedding[shown], "float32"),
        "neighbors": pack(row_of[data.neighbors[shown]], "int32"),
        "neighborDistances": pack(data.neighbor_distances[shown], "float32"),
        "alignments": None if data.alignments is None else pack(data.alignments[shown], "float32"),
        "sprites": _sprites(data.images[shown]),
        "atoms": None if data.atoms is None else _atoms(data.atoms),
        "terms": None
        if data.terms is None or data.atoms is None
        else _terms(data.atoms, data.terms, data.term_counts, shown),
        "termsNote": data.terms_note,
        "norms": pack(np.ones(len(shown)) if data.norms is None else data.norms[shown], "float32"),
        "objective": _finite(data.objective),
        "sparsity": _finite(data.sparsity),
        "scores": {str(k): float(v) for k, v in (data.scores or {}).items()},
        "provenance": to_plain(data.provenance),
    }


def to_script_json(payload: Mapping[str, Any]) -> str:
    r"""Write JSON that stays data inside ``<script type="application/json">`` whatever its strings hold.

    >>> to_script_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    # ensure_ascii also takes care of U+2028, U+2029 and of lone surrogates from undecodable file names.
    text = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def pack(values: Array, dtype: str) -> dict[str, Any]:
    """Return an array as its little-endian bytes in base64, with dtype and shape.

    >>> pack(np.array([1, 2]), "int16")
    {'dtype': 'int16', 'shape': [2], 'data': 'AQACAA=='}
    """
    array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return {
        "dtype": dtype,
        "shape": list(array.shape),
        "data": base64.b64encode(array.tobytes()).decode("ascii"),
    }


def _rounded(values: Array) -> list[float]:
    return [round(float(v), 4) for v in np.nan_to_num(values)]


def _finite(values: Sequence[float]) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def _sparse(indices: Array) -> list[list[int]]:
    """Pairs ``(row, index)`` for the few rows that have one."""
    rows = np.flatnonzero(indices >= 0)
    return np.stack([rows, indices[rows]], axis=1).astype(int).tolist()  # type: ignore[no-any-return]


def _true_labels(data: ReportData, shown: Array) -> dict[str, Any] | None:
    if data.true_labels is None:
        return None
    given = [str(data.true_labels[i]) for i in shown.tolist()]
    names = sorted(set(given), key=_natural)
    code_of = {name: code for code, name in enumerate(names)}
    return {"names": names, "codes": pack(np.array([code_of[name] for name in given]), "int32")}


def _natural(name: str) -> list[tuple[int, str]]:
    """Order text as people do: ``object 2`` before ``object 10``."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isascii() and part.isdigit() else (0, part) for part in parts]


def _sprites(images: Array) -> dict[str, Any]:
    sprites = pack_sprites(images)
    return {
        "sheets": sprites.sheets,
        "height": sprites.height,
        "width": sprites.width,
        "columns": sprites.columns,
        "perSheet": sprites.per_sheet,
        "pitch": list(sprites.pitch),
        "channels": 3 if images.ndim == 4 else 1,
        # Pixel values can be compared with a reconstruction only if they are the ones that were given.
        "exact": sprites.exact and images.shape[1:3] == (sprites.height, sprites.width),
    }


def _atoms(atoms: Array) -> dict[str, Any]:
    """Atoms as integers with one scale each; shifts keep their meaning, so atoms are never resized."""
    values = np.asarray(atoms, dtype=float)
    if values.ndim not in (3, 4):
        raise ValueError(f"atoms has shape {values.shape}; give (n_atoms, height, width) or with channels last")
    values = values.reshape(*values.shape[:3], -1)
    scale = np.maximum(np.abs(values).max(axis=(1, 2, 3)), np.finfo(float).tiny)
    dtype = "int16" if values.size <= MAX_FINE_PIXELS else "int8"
    levels = np.iinfo(dtype).max
    whole = np.rint(values / scale[:, None, None, None] * levels)
    return {"values": pack(whole, dtype), "scale": pack(scale / levels, "float32")}


def _terms(atoms: Array, terms: Sequence[Array], totals: Array | None, shown: Array) -> dict[str, Any]:
    """Each image's terms, largest first, in one flat table with offsets."""
    atom_norms = np.sqrt((np.asarray(atoms, dtype=np.float64) ** 2).reshape(len(atoms), -1).sum(axis=1))
    kept, counts = [], []
    for i in shown.tolist():
        rows = np.asarray(terms[i], dtype=np.float64).reshape(-1, 4)
        size = np.abs(rows[:, 3]) * atom_norms[rows[:, 0].astype(int)]
        rows = rows[np.argsort(-size, kind="stable")]
        counts.append(len(rows))
        kept.append(rows[:MAX_TERMS])
    table = np.concatenate(kept)
    return {
        "offsets": pack(np.cumsum([0, *map(len, kept)]), "int32"),
        "counts": pack(np.array(counts) if totals is None else totals[shown], "int32"),
        "atom": pack(table[:, 0], "int16" if len(atoms) <= 32767 else "int32"),
        "dy": pack(table[:, 1], "int16"),
        "dx": pack(table[:, 2], "int16"),
        "coefficient": pack(table[:, 3], "float32"),
    }
