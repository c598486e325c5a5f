"""What was sorted, in formats of other programs: tables, sorted folders, COCO, Parquet, and a Hugging Face folder.

Exports are written into ``exports`` in the folder of results. A file or folder appears when it is complete. Pictures
are copied, linked or moved; a move writes down first what goes where, so that :func:`put_back` can always undo it.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tubal.storage.files import atomic_write, sha256_of, unused_name
from tubal.text import count, safe_file_name, table_cell

if TYPE_CHECKING:
    from tubal.app.session import Session

__all__ = ["KINDS", "MODES", "Exported", "Snapshot", "export", "put_back"]

KINDS = ("csv", "folders", "coco", "parquet", "huggingface")
MODES = ("copy", "link", "move")
FOLDER = "exports"
# A folder of moved files, and the table in it that says where they came from.
MOVED, MANIFEST = "moved", "manifest.csv"


@dataclass(frozen=True)
class Snapshot:
    """The state of a session at one moment, one entry per image; images that were left out are not part of it."""

    out: Path  # folder of results
    rows: NDArray[np.intp]  # which images of the session these are
    names: list[str]  # in the source
    files: list[str]  # empty for an image without a file of its own
    clusters: NDArray[np.intp]
    cluster_names: dict[int, str]  # of the clusters that have one
    confidence: NDArray[np.float64]
    outliers: NDArray[np.bool_]
    duplicate_of: list[str]  # the image that each nearly equals; empty for most
    image: Callable[[int], NDArray[np.uint8]]  # returns the pixels of one image, 0 to 255

    @classmethod
    def of(cls, session: Session) -> Snapshot:
        """Return the state of a session as a copy, which later acts do not change."""
        from tubal.report.from_clusterer import first_of_group

        clusterer, dropped = session.clusterer, session.dropped
        rows = np.array([row for row in range(session.n_images) if row not in dropped], dtype=np.intp)
        first = first_of_group(clusterer.duplicates_, session.n_images)
        named = {int(session.numbers[k]): name for k, name in enumerate(clusterer.names_) if name is not None}
        images = clusterer.graph_.search.images
        return cls(
            session.results.out,
            rows,
            [session.names[row] for row in rows],
            [session.files[row] for row in rows],
            session.numbers[clusterer.labels_[rows]],
            named,
            clusterer.confidence_[rows],
            session.outliers[rows],
            [session.names[first[row]] if first[row] >= 0 else "" for row in rows],
            lambda place: bright_pixels(images[rows[place]], clusterer.image_shape_),
        )

    def folders(self) -> dict[int, str]:
        """Return the name of the folder of each cluster; no two are equal on any system."""
        numbers = sorted(set(self.clusters.tolist()))
        digits = len(str(max(numbers, default=0)))
        found: dict[int, str] = {}
        taken: set[str] = set()
        for number in sorted(numbers, key=lambda number: (number not in self.cluster_names, number)):
            plain = f"cluster-{number:0{digits}d}"
            name = safe_file_name(self.cluster_names.get(number, "")) or plain
            if name.casefold() in taken:
                name = f"{name} ({plain})"
            taken.add(name.casefold())
            found[number] = name
        return found


def bright_pixels(image: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return an image of a model in its ``shape``, from 0 to 255 at its brightest place."""
    values = np.asarray(image, dtype=np.float32).reshape(shape)
    bright: NDArray[np.uint8] = (np.clip(values / max(float(values.max()), 1e-12), 0, 1) * 255 + 0.5).astype(np.uint8)
    return bright


@dataclass(frozen=True)
class Exported:
    """What an export has written: where, how many files, and a sentence about it."""

    path: Path
    n_files: int
    text: str


def export(snapshot: Snapshot, kind: str, *, mode: str = "copy") -> Exported:
    """Write an export into the folder of results.

    Parameters
    ----------
    snapshot : Snapshot
        What to write.
    kind : {"csv", "folders", "coco", "parquet", "huggingface"}
        Format.
    mode : {"copy", "link", "move"}, default="copy"
        What happens to pictures, for "folders"; "huggingface" copies or links them.

    Returns
    -------
    Exported
        What was written.
    """
    if kind not in KINDS:
        raise ValueError(f"there is no export {kind!r}; choose one of {', '.join(KINDS)}")
    if mode not in MODES:
        raise ValueError(f"there is no mode {mode!r}; choose one of {', '.join(MODES)}")
    folder = snapshot.out / FOLDER
    folder.mkdir(exist_ok=True)
    writers: dict[str, Callable[[Snapshot, Path, str], Exported]] = {
        "csv": _write_csv,
        "folders": _write_folders,
        "coco": _write_coco,
        "parquet": _write_parquet,
        "huggingface": _write_hugging_face,
    }
    return writers[kind](snapshot, folder, mode)


# --- tables --------------------------------------------------------------------------------------------------------
COLUMNS = ("file", "cluster", "confidence", "outlier", "near_duplicate_of", "name")


def _table(snapshot: Snapshot) -> list[tuple[str, int, float, bool, str, str]]:
    """Return one row per image: name, cluster, confidence, whether it is unusual, what it copies, cluster name."""
    columns = zip(
        snapshot.names,
        snapshot.clusters.tolist(),
        [round(float(value), 4) for value in snapshot.confidence],
        snapshot.outliers.tolist(),
        snapshot.duplicate_of,
        [snapshot.cluster_names.get(number, "") for number in snapshot.clusters.tolist()],
        strict=True,
    )
    return list(columns)


def _write_csv(snapshot: Snapshot, folder: Path, mode: str) -> Exported:
    path = folder / "labels.csv"
    # A file name need not be valid Unicode; surrogateescape writes its original bytes.
    with atomic_write(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for file, cluster, confidence, outlier, original, name in _table(snapshot):
            row = [table_cell(file), cluster, f"{confidence:.4f}", int(outlier), table_cell(original), table_cell(name)]
            writer.writerow(row)
    return Exported(path, 1, f"{count(len(snapshot.rows), 'image')} in {path}")


def _write_parquet(snapshot: Snapshot, folder: Path, mode: str) -> Exported:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ImportError("Parquet needs pyarrow; install it with: pip install pyarrow") from None
    columns = list(zip(*_table(snapshot), strict=True)) or [()] * len(COLUMNS)
    texts = [[_unicode(value) if isinstance(value, str) else value for value in column] for column in columns]
    path = folder / "labels.parquet"
    with atomic_write(path) as stream:
        parquet.write_table(pyarrow.table(dict(zip(COLUMNS, texts, strict=True))), stream)
    return Exported(path, 1, f"{count(len(snapshot.rows), 'image')} in {path}")


def _write_coco(snapshot: Snapshot, folder: Path, mode: str) -> Exported:
    """Write image-level labels as COCO does boxes: each box is the whole picture."""
    numbers = sorted(set(snapshot.clusters.tolist()))
    category = {number: place + 1 for place, number in enumerate(numbers)}
    titles = {number: snapshot.cluster_names.get(number, f"cluster {number}") for number in numbers}
    images, annotations = [], []
    for place, name in enumerate(snapshot.names):
        width, height = _size_of(snapshot, place)
        images.append({"id": place + 1, "file_name": _unicode(name), "width": width, "height": height})
        annotations.append(
            {
                "id": place + 1,
                "image_id": place + 1,
                "category_id": category[int(snapshot.clusters[place])],
                "bbox": [0, 0, width, height],
                "area": width * height,
                "iscrowd": 0,
                "score": round(float(snapshot.confidence[place]), 4),
            }
        )
    categories = [{"id": category[number], "name": titles[number], "supercategory": ""} for number in numbers]
    whole = {
        "info": {"description": "clusters of images, by tubal"},
        "images": images,
        "annotations": annotations,
        "categories": categories,
    }
    path = folder / "coco.json"
    with atomic_write(path, "w", encoding="utf-8") as stream:
        json.dump(whole, stream)
    held = f"{count(len(images), 'image')} in {count(len(categories), 'category', 'categories')}"
    return Exported(path, 1, f"{held} in {path}")


def _size_of(snapshot: Snapshot, place: int) -> tuple[int, int]:
    """Return width and height of a picture: of its file if there is one."""
    height, width = snapshot.image(place).shape[:2]
    return picture_size(snapshot.files[place]) or (width, height)


def picture_size(file: str) -> tuple[int, int] | None:
    """Return width and height of a picture file; None if it has gone, or is no picture."""
    from PIL import Image

    if os.path.isfile(file):
        with (
            contextlib.suppress(OSError, ValueError, SyntaxError, Image.DecompressionBombError),
            Image.open(file) as picture,
        ):
            return picture.size
    return None


def _unicode(text: str) -> str:
    """Return text without the lone surrogates of undecodable file names."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# --- folders of pictures -------------------------------------------------------------------------------------------
def _write_folders(snapshot: Snapshot, folder: Path, mode: str) -> Exported:
    if mode == "move":
        return _move(snapshot, folder)
    target = folder / "folders"
    with _replaced(target) as stage:
        n_files = len(_fill(snapshot, stage, mode))
    done = "links to" if mode == "link" else "copies of"
    return Exported(target, n_files, f"{done} {count(n_files, 'picture')} in {target}")


def _write_hugging_face(snapshot: Snapshot, folder: Path, mode: str) -> Exported:
    """Write a folder that ``datasets.load_dataset("imagefolder", data_dir=...)`` reads, with a card."""
    if mode == "move":
        raise ValueError("a Hugging Face folder is made of copies or links; choose copy or link")
    target = folder / "huggingface"
    with _replaced(target) as stage:
        placed = _fill(snapshot, stage / "train", mode)
        with open(stage / "train" / "metadata.jsonl", "w", encoding="utf-8") as stream:
            for place, path in sorted(placed.items()):
                number = int(snapshot.clusters[place])
                row = {
                    "file_name": _unicode(path.as_posix()),
                    "label": snapshot.cluster_names.get(number, f"cluster {number}"),
                    "cluster": number,
                    "confidence": round(float(snapshot.confidence[place]), 4),
                }
                stream.write(json.dumps(row) + "\n")
        card = "---\ntask_categories:\n- image-classification\n---\n\nImages sorted into clusters by tubal.\n"
        (stage / "README.md").write_text(card, encoding="utf-8")
    return Exported(target, len(placed) + 2, f"{count(len(placed), 'picture')} in {target}")


@contextlib.contextmanager
def _replaced(target: Path) -> Any:
    """Yield an empty folder that takes the place of ``target``, which holds copies only, when the block succeeds."""
    stage, old = target.with_name(f".{target.name}.new"), target.with_name(f".{target.name}.old")
    for left in (stage, old):
        shutil.rmtree(left, ignore_errors=True)
    stage.mkdir()
    try:
        yield stage
        if target.exists():
            os.replace(target, old)
        os.replace(stage, target)
    finally:
        for left in (stage, old):
            shutil.rmtree(left, ignore_errors=True)


def _places(snapshot: Snapshot) -> list[tuple[bool, PurePosixPath]]:
    """Return for each image whether its file can be copied, and where it goes; no two go to one place."""
    folders = snapshot.folders()
    own = [_is_picture(file) for file in snapshot.files]
    taken: set[str] = set()
    found = []
    for place, name in enumerate(snapshot.names):
        last = PurePosixPath(name).name
        last = last if last not in ("", "..", ".") else "image"
        last = last if own[place] else f"{last}.png"
        folder = folders[int(snapshot.clusters[place])]
        path, number = PurePosixPath(folder) / last, 1
        while path.as_posix().casefold() in taken:
            number += 1
            path = PurePosixPath(folder) / f"{PurePosixPath(last).stem}-{number}{PurePosixPath(last).suffix}"
        taken.add(path.as_posix().casefold())
        found.append((own[place], path))
    return found


def _is_picture(file: str) -> bool:
    """Tell whether a file holds one picture; an archive or a file that has gone does not."""
    from PIL import Image

    if os.path.isfile(file):
        with (
            contextlib.suppress(OSError, ValueError, SyntaxError, Image.DecompressionBombError),
            Image.open(file) as picture,
        ):
            return getattr(picture, "n_frames", 1) == 1 or picture.format in ("GIF", "WEBP", "PNG")
    return False


def _fill(snapshot: Snapshot, folder: Path, mode: str) -> dict[int, PurePosixPath]:
    """Copy or link pictures into one folder per cluster; pictures without a file of their own are saved as PNG."""
    placed = {}
    for place, (own, path) in enumerate(_places(snapshot)):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not own:
            _save_png(snapshot, place, target)
        elif mode == "link":
            os.symlink(os.path.abspath(snapshot.files[place]), target)
        else:
            shutil.copy2(snapshot.files[place], target)
        placed[place] = path
    return placed


def _save_png(snapshot: Snapshot, place: int, target: Path) -> None:
    from PIL import Image

    Image.fromarray(snapshot.image(place)).save(target, "PNG")


# --- moving --------------------------------------------------------------------------------------------------------
def _move(snapshot: Snapshot, folder: Path) -> Exported:
    """Move pictures into one folder per cluster; what goes where is on the disk before the first file is moved."""
    target = folder / MOVED
    target = unused_name(target) if os.path.lexists(target) else target
    pairs = [
        (os.path.abspath(snapshot.files[place]), target / path)
        for place, (own, path) in enumerate(_places(snapshot))
        if own
    ]
    if not pairs:
        raise ValueError("no image has a picture file of its own that could be moved; choose copy")
    target.mkdir()
    with atomic_write(target / MANIFEST, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        rows = [(source, path.relative_to(target).as_posix()) for source, path in pairs]
        csv.writer(stream).writerows([("from", "to"), *rows])
    for source, path in pairs:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, path)
    return Exported(target, len(pairs), f"{count(len(pairs), 'picture')} moved to {target}; {MANIFEST} can undo it")


def read_manifests(out: Path) -> list[tuple[Path, list[tuple[str, Path]]]]:
    """Return each folder of moved files below ``out``, with pairs of the former and present place of its files.

    The folder of the last export comes first.
    """
    found = []
    for manifest in sorted((out / FOLDER).glob(f"{MOVED}*/{MANIFEST}"), key=lambda path: path.stat().st_mtime_ns):
        with open(manifest, encoding="utf-8", errors="surrogateescape", newline="") as stream:
            rows = [(row["from"], manifest.parent / row["to"]) for row in csv.DictReader(stream)]
        inside = [(source, path) for source, path in rows if path.resolve().is_relative_to(manifest.parent.resolve())]
        found.append((manifest.parent, inside))
    return found[::-1]


def present_files(out: Path, files: Sequence[str]) -> list[str]:
    """Return where files are now that an export may have moved.

    Parameters
    ----------
    out : path
        Folder of results.
    files : sequence of str
        Files as they were when they were read.

    Returns
    -------
    list of str
        The same, or where they were moved to.
    """
    if not (out / FOLDER).is_dir():
        return list(files)
    now = list(files)
    for _, pairs in read_manifests(out)[::-1]:
        moved = {source: str(path) for source, path in pairs}
        now = [moved[file] if file in moved and not os.path.exists(file) else file for file in now]
    return now


def put_back(out: Path) -> int:
    """Move files back to where they were before the last export that moved them; return how many.

    A file whose former place is taken stays where it is, and so does its row in the manifest.
    """
    manifests = read_manifests(out)
    if not manifests:
        raise ValueError(f"no pictures of {str(out)!r} were moved; there is nothing to put back")
    folder, pairs = manifests[0]
    n_moved = 0
    for source, path in pairs:
        if not os.path.lexists(path):
            continue
        if os.path.lexists(source):
            # A move to another disk that was interrupted leaves both files.
            if os.path.isfile(source) and sha256_of(source) == sha256_of(path):
                os.unlink(path)
            continue
        Path(source).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, source)
        n_moved += 1
    if not any(os.path.lexists(path) for _, path in pairs):
        (folder / MANIFEST).unlink()
        for inner in sorted(folder.iterdir()):
            with contextlib.suppress(OSError):  # someone has put other files there
                inner.rmdir()
        with contextlib.suppress(OSError):
            folder.rmdir()
    return n_moved
