"""The page: which images it shows, their tables as JSON, their pictures as sprite sheets, and the one HTML file."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import sparse

from tubal.report.data import AnyArray, FloatArray, IntArray, ReportData
from tubal.storage.files import atomic_write, to_plain

Json = dict[str, Any]
Indices = NDArray[np.intp]

# Above this number of images the table in the page lists only the images shown; it stays below a few megabytes.
MAX_ROWS = 50_000
MAX_TERMS = 96
# Atoms with more pixels than this in all are stored in 8 bits instead of 16.
MAX_FINE_PIXELS = 1_000_000


def encode_payload(data: ReportData, shown: IntArray, live: Json | None = None) -> Json:
    """Return everything the page reads, as JSON values.

    ``shown`` holds the sorted indices of the images whose pictures are embedded. The table (names, labels, confidence)
    lists all images up to ``MAX_ROWS``. Counts are always counts of all images.

    ``live`` is what a page has that asks a server for pictures and for details of single images; all images are shown.
    """
    all_rows = data.n_images <= MAX_ROWS or live is not None
    rows = np.arange(data.n_images) if all_rows else shown
    # Row of each image in the table; -1 for images without a row, and in the extra last place for "no image".
    row_of = np.full(data.n_images + 1, -1)
    row_of[rows] = np.arange(len(rows))
    details = _details(data, shown, row_of) if live is None else {"live": True, **dict.fromkeys(_DETAILS), **live}
    return {
        "title": data.title,
        "nTotal": data.n_images,
        "nDuplicates": int((data.duplicate_of >= 0).sum()),
        "doubtfulBelow": float(data.doubtful_below),
        "clusters": _cluster_counts(data),
        "names": [str(data.names[i]) for i in rows.tolist()],
        "labels": data.labels[rows].astype(int).tolist(),
        "confidence": _rounded(data.confidence[rows]),
        "doubtful": np.flatnonzero(data.doubtful[rows]).tolist(),
        "outliers": np.flatnonzero(data.outliers[rows]).tolist(),
        "duplicateOf": _index_pairs(row_of[data.duplicate_of[rows]]),
        "shown": pack(row_of[shown], "int32"),
        "typicalFirst": pack(_order_of_shown(data, shown), "int32"),
        "trueLabels": _true_labels(data, shown),
        "embedding": pack(data.embedding[shown], "float32"),
        "atoms": None if data.atoms is None else _encode_atoms(data.atoms),
        "termsNote": data.terms_note,
        "objective": _finite(data.objective),
        "sparsity": _finite(data.sparsity),
        "nIterations": int(len(data.objective) if data.n_iterations is None else data.n_iterations),
        "scores": {str(k): float(v) for k, v in (data.scores or {}).items()},
        "provenance": to_plain(data.provenance),
        **details,
    }


# What a live page asks for when an image is looked at.
_DETAILS = ("neighbors", "neighborDistances", "alignments", "sprites", "terms", "explained", "originals", "norms")


def _details(data: ReportData, shown: IntArray, row_of: IntArray) -> Json:
    """Return pictures, neighbours and terms of the images shown."""
    return {
        "neighbors": pack(row_of[data.neighbors[shown]], "int32"),
        "neighborDistances": pack(data.neighbor_distances[shown], "float32"),
        "alignments": None if data.alignments is None else pack(data.alignments[shown], "float32"),
        "sprites": _sprites(data.images[shown]),
        "terms": None
        if data.terms is None or data.atoms is None
        else _terms(data.atoms, data.terms, data.term_counts, shown),
        "explained": None if data.explained is None else _finite(data.explained[shown].tolist()),
        "originals": None if data.originals is None else [data.originals[i] for i in shown.tolist()],
        "norms": pack(np.ones(len(shown)) if data.norms is None else data.norms[shown], "float32"),
    }


def relative_address(file: str | os.PathLike[str], folder: str | os.PathLike[str]) -> str:
    """Return the address of a file for a page in ``folder``, or "" if there is none.

    It begins with ``./`` and every odd character is escaped, so that no file name can be taken for another address.

    >>> relative_address("/data/photos/a b?.png", "/data/tubal-out")
    './../photos/a%20b%3F.png'
    """
    try:
        path = os.path.relpath(os.path.realpath(file), os.path.realpath(folder))
    except ValueError:  # another drive
        return ""
    return "./" + quote(os.fsencode(Path(path).as_posix()))


def to_script_json(payload: Mapping[str, Any]) -> str:
    r"""Return JSON that no string in it can break out of ``<script type="application/json">``.

    >>> to_script_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    # ensure_ascii also escapes U+2028, U+2029 and the lone surrogates of undecodable file names.
    text = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def pack(values: AnyArray, dtype: str) -> Json:
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


def _rounded(values: FloatArray) -> list[float]:
    return [round(float(v), 4) for v in np.nan_to_num(values)]


def _finite(values: Sequence[float]) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def _index_pairs(indices: IntArray) -> list[list[int]]:
    """Return pairs ``(row, index)`` for the few rows whose index is not -1."""
    rows = np.flatnonzero(indices >= 0)
    return np.stack([rows, indices[rows]], axis=1).astype(int).tolist()  # type: ignore[no-any-return]


def _cluster_counts(data: ReportData) -> list[Json]:
    """Return name, size, doubtful images, outliers and mean confidence of every cluster, over all images."""
    clusters, cluster_of, sizes = np.unique(data.labels, return_inverse=True, return_counts=True)
    doubtful = np.bincount(cluster_of, data.doubtful, minlength=len(clusters))
    outliers = np.bincount(cluster_of, data.outliers, minlength=len(clusters))
    confidence = np.bincount(cluster_of, np.nan_to_num(data.confidence), minlength=len(clusters)) / sizes
    return [
        {
            "label": int(clusters[k]),
            "name": data.cluster_names.get(int(clusters[k])),
            "size": int(sizes[k]),
            "doubtful": int(doubtful[k]),
            "outliers": int(outliers[k]),
            "confidence": round(float(confidence[k]), 4),
        }
        for k in range(len(clusters))
    ]


def _true_labels(data: ReportData, shown: IntArray) -> Json | None:
    """Return label names, the label of each image shown, and counts ``(label, cluster, images)`` over all images."""
    if data.true_labels is None:
        return None
    given = [str(label) for label in data.true_labels]
    names = sorted(set(given), key=_natural_sort_key)
    number_of = {name: number for number, name in enumerate(names)}
    numbers = np.array([number_of[name] for name in given])
    pairs, counts = np.unique(np.stack([numbers, data.labels], axis=1), axis=0, return_counts=True)
    return {
        "names": names,
        "codes": pack(numbers[shown], "int32"),
        "counts": np.column_stack([pairs, counts]).astype(int).tolist(),
    }


def _natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts text as people do: ``object 2`` before ``object 10``."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isascii() and part.isdigit() else (0, part) for part in parts]


def _encode_atoms(atoms: FloatArray) -> Json:
    """Return atoms as integers with one scale each. They are never resized, since shifts count their pixels."""
    values = np.asarray(atoms, dtype=float)
    if values.ndim not in (3, 4):
        raise ValueError(f"atoms has shape {values.shape}; give (n_atoms, height, width) or with channels last")
    values = values.reshape(*values.shape[:3], -1)
    scale = np.maximum(np.abs(values).max(axis=(1, 2, 3)), np.finfo(float).tiny)
    dtype = "int16" if values.size <= MAX_FINE_PIXELS else "int8"
    levels = np.iinfo(dtype).max
    whole = np.rint(values / scale[:, None, None, None] * levels)
    return {"values": pack(whole, dtype), "scale": pack(scale / levels, "float32")}


def _terms(atoms: FloatArray, terms: Sequence[FloatArray], totals: IntArray | None, shown: IntArray) -> Json:
    """Return the terms of the images shown, largest first, as one flat table with offsets."""
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


# --- typical images, and the sample that a page shows -------------------------------------------------------

# Paths of this many edges reach the whole core of a cluster. Much longer ones would stay in its densest part only.
PATH_LENGTH = 5


def typicality(data: ReportData) -> FloatArray:
    """Return how central each image (n,) is in its cluster: 1 for the most central one, 0 without neighbours in it.

    It is the weight of all paths of ``PATH_LENGTH`` edges that start at the image and stay in its cluster. The edges
    are those that decided the clusters. Where they are not known, they join neighbours and weigh
    ``exp(-(distance / scale)²)``, with the geometric mean of both images' mean distances as scale.
    """
    edges = _edges_of_neighbors(data) if data.affinity is None else _edges_inside_clusters(data.affinity, data.labels)
    paths = np.ones(data.n_images)
    for _ in range(PATH_LENGTH):
        paths = edges @ paths
    clusters, cluster_of = np.unique(data.labels, return_inverse=True)
    most = np.zeros(len(clusters))
    np.maximum.at(most, cluster_of, paths)
    return np.asarray(paths / np.where(most > 0.0, most, 1.0)[cluster_of])


def _edges_inside_clusters(affinity: sparse.sparray | sparse.spmatrix, labels: IntArray) -> sparse.csr_array:
    """Return the edges between images of the same cluster."""
    edges = sparse.coo_array(affinity)
    inside = labels[edges.row] == labels[edges.col]
    return sparse.csr_array((edges.data[inside], (edges.row[inside], edges.col[inside])), shape=edges.shape)


def _edges_of_neighbors(data: ReportData) -> sparse.csr_array:
    """Return edges between neighbours of the same cluster, weighted by their distances."""
    known = data.neighbors >= 0
    scale = np.where(known, data.neighbor_distances, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    row, slot = np.nonzero(known & (data.labels[data.neighbors] == data.labels[:, None]))
    column, distance = data.neighbors[row, slot], data.neighbor_distances[row, slot]
    width = np.sqrt(scale[row] * scale[column])
    weight = np.exp(-((distance / np.where(width > 0.0, width, 1.0)) ** 2))
    edges = sparse.csr_array((weight, (row, column)), shape=(data.n_images, data.n_images))
    return sparse.csr_array(edges + edges.T)


def typical_first(data: ReportData) -> Indices:
    """Return the indices of all images from the most to the least typical; doubtful ones and outliers come last."""
    return np.lexsort((-np.nan_to_num(data.confidence), -typicality(data), data.doubtful, data.outliers))


def choose_sample(data: ReportData, max_images: int) -> Indices:
    """Return sorted indices of at most ``max_images`` images, each cluster in proportion to its size.

    Every cluster keeps its most typical image while there is room. The others are spread evenly over the order of
    typicality, so that doubtful images are as frequent in the sample as in the whole.
    """
    if data.n_images <= max_images:
        return np.arange(data.n_images)
    order = typical_first(data)
    order = order[np.argsort(data.labels[order], kind="stable")]
    sizes = np.unique(data.labels, return_counts=True)[1]
    members = np.split(order, np.cumsum(sizes)[:-1])
    chosen = [
        ordered[np.linspace(0, len(ordered) - 1, quota).round().astype(int)]
        for ordered, quota in zip(members, _quotas(sizes, max_images), strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def _quotas(sizes: IntArray, total: int) -> Indices:
    """Divide ``total`` places in proportion to ``sizes``, at least one each while there are enough places."""
    largest_first = np.argsort(-sizes, kind="stable")
    quotas = np.zeros(len(sizes), dtype=np.intp)
    quotas[largest_first[:total]] = 1
    left = total - quotas.sum()
    if left > 0:
        share = left * (sizes - quotas) / (sizes - quotas).sum()
        quotas += np.floor(share).astype(int)
        remainder = np.argsort(-(share - np.floor(share)), kind="stable")
        quotas[remainder[: total - quotas.sum()]] += 1
    return np.asarray(np.minimum(quotas, sizes))


def _order_of_shown(data: ReportData, shown: IntArray) -> Indices:
    """Return the images shown, as positions in ``shown``, from the most to the least typical."""
    rank = np.empty(data.n_images, dtype=np.intp)
    rank[typical_first(data)] = np.arange(data.n_images)
    return np.argsort(rank[shown])


# --- sprite sheets: thumbnails packed into a few large pictures, so that a browser decodes few files ----------

LONGEST_SIDE = 96
# Phones cannot decode very large pictures; four million pixels are safe everywhere.
SHEET_SIDE = 2048
# A repeated border keeps the pixels of the next tile out when the browser smooths a scaled tile.
GUTTER = 1


@dataclass(frozen=True)
class Sprites:
    """Sheets as ``data:`` addresses, and how to find an image on them.

    Image ``i`` has the position ``p = i % per_sheet`` on sheet ``i // per_sheet``: its left edge is at
    ``GUTTER + pitch[1] * (p % columns)`` and its top edge at ``GUTTER + pitch[0] * (p // columns)``. ``exact`` is
    False if the sheets are compressed with loss.
    """

    sheets: list[str]
    height: int
    width: int
    columns: int
    per_sheet: int
    pitch: tuple[int, int]
    exact: bool

    @property
    def n_bytes(self) -> int:
        """Size of all sheets as text."""
        return sum(map(len, self.sheets))


def pack_sprites(images: AnyArray, budget: int = 7_000_000) -> Sprites:
    """Pack uint8 images (n, height, width[, 3]) into sheets that together take at most ``budget`` bytes of text.

    The sheets are PNG if that fits, otherwise JPEG, otherwise JPEG with smaller tiles.

    >>> pack_sprites(np.zeros((5, 8, 8), np.uint8)).exact
    True
    """
    longest = LONGEST_SIDE
    small = shrink(images, longest)
    # Noise hardly compresses: above four times the budget in raw bytes, trying PNG first is a waste of time.
    sprites = _encode_sheets(small, "PNG") if small.nbytes < 4 * budget else _encode_sheets(small, "JPEG")
    if sprites.n_bytes > budget:
        sprites = _encode_sheets(small, "JPEG")
    while sprites.n_bytes > budget and longest > 12:
        longest = int(longest * 0.8)
        sprites = _encode_sheets(shrink(images, longest), "JPEG")
    return sprites


def shrink(images: AnyArray, longest: int) -> AnyArray:
    """Scale a stack down so that no side exceeds ``longest``; return smaller stacks unchanged."""
    height, width = images.shape[1:3]
    if max(height, width) <= longest:
        return images
    factor = longest / max(height, width)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    resized = [np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS)) for image in images]
    return np.stack(resized)


def _encode_sheets(images: AnyArray, kind: str) -> Sprites:
    height, width = images.shape[1:3]
    # JPEG compresses blocks of 8 x 8 pixels: whole blocks per tile keep tiles from blurring into each other.
    step = 8 if kind == "JPEG" else 1
    pitch = (_round_up(height + 2 * GUTTER, step), _round_up(width + 2 * GUTTER, step))
    columns, rows = max(1, SHEET_SIDE // pitch[1]), max(1, SHEET_SIDE // pitch[0])
    per_sheet = columns * rows
    sheets = [
        _data_address(_bordered_sheet(images[start : start + per_sheet], pitch, columns), kind)
        for start in range(0, len(images), per_sheet)
    ]
    return Sprites(sheets, height, width, columns, per_sheet, pitch, exact=kind == "PNG")


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _bordered_sheet(images: AnyArray, pitch: tuple[int, int], columns: int, gutter: int = GUTTER) -> AnyArray:
    """Place the images row by row on one sheet, each inside its repeated border."""
    height, width = images.shape[1:3]
    after = (pitch[0] - height - gutter, pitch[1] - width - gutter)
    borders = [(0, 0), (gutter, after[0]), (gutter, after[1])] + [(0, 0)] * (images.ndim - 3)
    tiles = np.pad(images, borders, mode="edge")
    columns = min(columns, len(tiles))
    rows = -(-len(tiles) // columns)
    filler = np.zeros((rows * columns - len(tiles), *tiles.shape[1:]), np.uint8)
    grid = np.concatenate([tiles, filler]).reshape(rows, columns, *tiles.shape[1:])
    return np.ascontiguousarray(np.moveaxis(grid, 2, 1)).reshape(rows * pitch[0], columns * pitch[1], *images.shape[3:])


def _data_address(sheet: AnyArray, kind: str) -> str:
    buffer = io.BytesIO()
    if kind == "PNG":
        Image.fromarray(sheet).save(buffer, "PNG", optimize=False, compress_level=9)
    else:
        Image.fromarray(sheet).save(buffer, "JPEG", quality=85, subsampling=0)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


# A live page asks for sheets of this many images, so that the first ones are there at once.
LIVE_SHEET = 256


def fine_factor(height: int, width: int) -> int:
    """Return how many times as large as small tiles fine ones are; 1 if there is no room for larger ones.

    >>> fine_factor(32, 24), fine_factor(64, 64)
    (3, 1)
    """
    return max(1, LONGEST_SIDE // max(height, width))


class LiveSheets:
    """Sheets that a live page asks for one by one.

    Small sheets are exact and made at once. Fine sheets show the same images in the same grid, :func:`fine_factor`
    times as large: every distance that :class:`Sprites` describes (tiles, pitch, gutter) is multiplied by it.

    Parameters
    ----------
    images : uint8 array of shape (n, height, width) or (n, height, width, 3)
        Thumbnails of all images.
    larger : callable, optional
        Called as ``larger(start, stop)``; returns these images as a uint8 array (stop - start, factor * height,
        factor * width, 3). Without it there are no fine sheets.
    """

    def __init__(self, images: AnyArray, larger: Callable[[int, int], NDArray[np.uint8]] | None = None) -> None:
        small: NDArray[Any] = shrink(images, LONGEST_SIDE)
        self._tiles = small
        self._factor = fine_factor(*small.shape[1:3])
        self._larger = larger if self._factor > 1 else None
        height, width = small.shape[1:3]
        self._pitch = (height + 2 * GUTTER, width + 2 * GUTTER)
        self._exact = small.shape == images.shape
        self._columns = max(1, min(round(LIVE_SHEET**0.5), SHEET_SIDE // self._pitch[1]))
        self._per_sheet = int(self._columns * max(1, min(self._columns, SHEET_SIDE // self._pitch[0])))

    @property
    def n_sheets(self) -> int:
        """Number of sheets."""
        return -(-len(self._tiles) // self._per_sheet)

    @property
    def n_fine_sheets(self) -> int:
        """Number of fine sheets: as many as there are small ones, or none."""
        return 0 if self._larger is None else self.n_sheets

    def layout(self) -> Json:
        """Return where images lie on the sheets, as :class:`Sprites` describes it."""
        return {
            "sheets": None,
            "nSheets": self.n_sheets,
            "height": self._tiles.shape[1],
            "width": self._tiles.shape[2],
            "columns": self._columns,
            "perSheet": self._per_sheet,
            "pitch": list(self._pitch),
            "channels": 3 if self._tiles.ndim == 4 else 1,
            "exact": self._exact,
            "fine": None if self._larger is None else self._factor,
        }

    def sheet(self, number: int) -> bytes:
        """Return one sheet as a PNG file.

        Parameters
        ----------
        number : int
            Which sheet, 0 to ``n_sheets - 1``.

        Returns
        -------
        bytes
            The file.
        """
        tiles = self._tiles[number * self._per_sheet : (number + 1) * self._per_sheet]
        buffer = io.BytesIO()
        sheet = _bordered_sheet(tiles, self._pitch, self._columns)
        # On one machine, quick files are better than small ones.
        Image.fromarray(sheet).save(buffer, "PNG", optimize=False, compress_level=1)
        return buffer.getvalue()

    def fine_sheet(self, number: int) -> bytes:
        """Return one fine sheet as a JPEG file.

        Image ``p`` of the sheet has its left edge at ``factor * (GUTTER + pitch[1] * (p % columns))`` and its top edge
        at ``factor * (GUTTER + pitch[0] * (p // columns))``.

        Parameters
        ----------
        number : int
            Which sheet, 0 to ``n_fine_sheets - 1``; it holds the images of the small sheet of this number.

        Returns
        -------
        bytes
            The file.
        """
        if self._larger is None:
            raise IndexError("there are no fine sheets")
        start, factor = number * self._per_sheet, self._factor
        tiles = self._larger(start, min(start + self._per_sheet, len(self._tiles)))
        pitch = (self._pitch[0] * factor, self._pitch[1] * factor)
        sheet = _bordered_sheet(tiles, pitch, self._columns, GUTTER * factor)
        buffer = io.BytesIO()
        Image.fromarray(sheet).save(buffer, "JPEG", quality=85, subsampling=0)
        return buffer.getvalue()


def _sprites(images: AnyArray) -> Json:
    sprites = pack_sprites(images)
    return {
        "sheets": sprites.sheets,
        "height": sprites.height,
        "width": sprites.width,
        "columns": sprites.columns,
        "perSheet": sprites.per_sheet,
        "pitch": list(sprites.pitch),
        "channels": 3 if images.ndim == 4 else 1,
        # The page compares pixels with a reconstruction only if they are exactly those of the data.
        "exact": sprites.exact and images.shape[1:3] == (sprites.height, sprites.width),
    }


# --- the page -----------------------------------------------------------------------------------------------
MAX_IMAGES = 2000

STYLES = ("theme.css", "frame.css", "map.css", "cards.css", "numbers.css", "panel.css", "live.css", "screens.css")

# The script of the page is these files in this order, in one scope.
SCRIPTS = (
    "base.js",
    "server.js",
    "data.js",
    "colors.js",
    "store.js",
    "edits.js",
    "live.js",
    "pictures.js",
    "thumbs.js",
    "fine.js",
    "camera.js",
    "spread.js",
    "map.js",
    "map_layer.js",
    "map_names.js",
    "map_input.js",
    "legend.js",
    "selection.js",
    "selection_bar.js",
    "drag.js",
    "motion.js",
    "gallery.js",
    "split.js",
    "search.js",
    "keys.js",
    "slider.js",
    "ask.js",
    "history.js",
    "export.js",
    "duplicates.js",
    "atoms.js",
    "panel.js",
    "neighbors.js",
    "charts.js",
    "confusion.js",
    "provenance.js",
    "main.js",
)
# That of the page which is shown until there are clusters.
WAITING_SCRIPTS = ("base.js", "server.js", "progress.js")


def build_report(data: ReportData, *, max_images: int = MAX_IMAGES) -> str:
    """Return the page as text.

    Parameters
    ----------
    data : ReportData
        What the page shows.
    max_images : int, default=2000
        Above this number of images the page shows a sample of every cluster, in proportion to its size, and says so.

    Returns
    -------
    str
        The HTML page. It needs no other file and no network.
    """
    if max_images < 1:
        raise ValueError(f"max_images is {max_images}; give a number of images to show, at least 1")
    return _render(data.title, encode_payload(data, choose_sample(data, max_images)))


def build_live(data: ReportData, sheets: LiveSheets, state: Json) -> str:
    """Return the page of a server that answers its requests.

    Parameters
    ----------
    data : ReportData
        What the page shows; all images.
    sheets : LiveSheets
        Their thumbnails, which the page asks for.
    state : dict
        What can change while the page is open.

    Returns
    -------
    str
        The HTML page.
    """
    payload = encode_payload(data, np.arange(data.n_images), live={"sprites": sheets.layout(), "state": state})
    return _render(data.title, payload)


def build_waiting(title: str) -> str:
    """Return the page of a server that is still finding the clusters: it shows the progress and then loads again.

    Parameters
    ----------
    title : str
        Heading of the page.

    Returns
    -------
    str
        The HTML page.
    """
    return _render_template("progress.html.j2", title, _script(WAITING_SCRIPTS), connect=True)


def live_policy(*, waiting: bool = False) -> str:
    """Return the policy of a live page, for the header of the answer.

    Parameters
    ----------
    waiting : bool, default=False
        Whether it is the page of :func:`build_waiting`.

    Returns
    -------
    str
        A Content-Security-Policy.
    """
    script = _script(WAITING_SCRIPTS if waiting else SCRIPTS)
    return f"{_policy(script, _style(), connect=True)}; frame-ancestors 'none'"


def _render(title: str, payload: Json) -> str:
    text = to_script_json(payload)
    return _render_template("template.html.j2", title, _script(), connect=bool(payload.get("live")), payload=text)


def _render_template(name: str, title: str, script: str, *, connect: bool, payload: str = "") -> str:
    from jinja2 import Environment  # imported here to keep the start of the command line fast

    template = Environment(autoescape=True).from_string(_asset(name))
    return template.render(
        title=title.encode("utf-8", "replace").decode("utf-8"),
        policy=_policy(script, _style(), connect=connect),
        script=script,
        style=_style(),
        payload=payload,
    )


def write_report(data: ReportData, path: str | os.PathLike[str], *, max_images: int = MAX_IMAGES) -> Path:
    """Write the page to a file, which appears only when it is complete.

    Parameters
    ----------
    data : ReportData
        What the page shows.
    path : str or path-like
        Where to write; an existing file is replaced.
    max_images : int, default=2000
        Above this number of images the page shows a sample of every cluster, in proportion to its size, and says so.

    Returns
    -------
    pathlib.Path
        The path of the page.
    """
    target = Path(path)
    page = build_report(data, max_images=max_images)
    with atomic_write(target, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(page)
    return target


@cache
def _asset(name: str) -> str:
    return files("tubal.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return "\n".join(_asset(f"css/{name}") for name in STYLES)


@cache
def _script(names: tuple[str, ...] = SCRIPTS) -> str:
    """Join scripts inside one function, so that they define no global names."""
    body = "\n".join(_asset(f"js/{name}") for name in names)
    return f'(function () {{\n"use strict";\n{body}\n}})();\n'


def _policy(script: str, style: str, *, connect: bool = False) -> str:
    """Return a content security policy: this script, this style, and pictures in this page or beside it are allowed.

    There are no requests to other places and no injected code. With ``connect``, the page may ask its own server.
    """
    asks = "connect-src 'self'; " if connect else ""
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; {asks}"
        "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
