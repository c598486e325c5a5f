"""The files of a clustering: labels.csv, skipped.csv, features.npz, run.json and sorted folders.

All of them are written into a staging folder; :func:`tubal.storage.files.staged_folder` makes them appear.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tubal.storage.files import atomic_write, sha256_of
from tubal.storage.provenance import to_plain

__all__ = [
    "SORTED",
    "earlier_run",
    "hash_images",
    "sort_images",
    "sorted_earlier",
    "write_features",
    "write_labels",
    "write_run",
    "write_skipped",
]

LABEL_COLUMNS = ("file", "cluster", "confidence", "outlier", "near_duplicate_of")
SORTED = "clusters"


def earlier_run(folder: Path) -> dict[str, Any]:
    """Return the record of an earlier run of ours in a folder, or nothing."""
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    ours = isinstance(record, dict) and isinstance(record.get("settings"), dict) and "versions" in record
    return record if ours else {}


def sorted_earlier(folder: Path) -> tuple[str, ...]:
    """Return the folder of sorted images an earlier run left; one that is not ours is never touched."""
    if not (folder / SORTED).is_dir():
        return ()
    if not earlier_run(folder).get("settings", {}).get("sort"):
        raise FileExistsError(f"{str(folder / SORTED)!r} is there and not from an earlier run; move it away")
    return (SORTED,)


def write_labels(
    path: Path,
    names: Sequence[str],
    labels: np.ndarray,
    *,
    confidence: np.ndarray,
    outliers: np.ndarray,
    repeats: np.ndarray,
) -> None:
    """Write one row an image; ``repeats`` holds the index of the image it nearly repeats, or -1."""
    with _open_csv(path) as stream:
        writer = csv.writer(stream)
        writer.writerow(LABEL_COLUMNS)
        for i, name in enumerate(names):
            original = names[repeats[i]] if repeats[i] >= 0 else ""
            writer.writerow([name, int(labels[i]), f"{confidence[i]:.4f}", int(outliers[i]), original])


def write_skipped(path: Path, skipped: Sequence[tuple[str, str]]) -> None:
    """Write the files that were left out and why."""
    with _open_csv(path) as stream:
        writer = csv.writer(stream)
        writer.writerow(("file", "reason"))
        writer.writerows(skipped)


def write_features(path: Path, names: Sequence[str], **arrays: np.ndarray) -> None:
    """Write arrays and the names their rows belong to; nothing in the file needs pickle."""
    with atomic_write(path) as stream:
        np.savez_compressed(stream, allow_pickle=False, names=np.array(names, dtype=np.str_), **arrays)


def write_run(path: Path, record: Mapping[str, Any], *, outputs: Sequence[Path]) -> dict[str, Any]:
    """Write and return the record of a run with the SHA-256 of every file it produced."""
    complete = {**record, "outputs": {file.name: sha256_of(file) for file in outputs}}
    path.write_text(json.dumps(complete, indent=2, default=to_plain) + "\n", encoding="utf-8")
    return complete


def hash_images(images: np.ndarray) -> str:
    """Return the SHA-256 of the pixels as they were clustered, shape included."""
    import hashlib

    digest = hashlib.sha256(repr(images.shape).encode())
    digest.update(np.ascontiguousarray(images).data)
    return digest.hexdigest()


def sort_images(
    folder: Path, how: str, images: np.ndarray, names: Sequence[str], files: Sequence[str], labels: np.ndarray
) -> None:
    """Put every image into one folder per cluster, as a copy or a link; images without a file become PNG."""
    width = len(str(int(labels.max(initial=0))))
    uses = Counter(files)
    for i, (name, file) in enumerate(zip(names, files, strict=True)):
        place = folder / f"cluster-{int(labels[i]):0{width}d}" / _safe_relative(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not file or uses[file] > 1:
            _save_png(place.with_name(place.name + ".png"), images[i])
        elif how == "link":
            os.symlink(file, place)
        else:
            shutil.copy2(file, place)


def _safe_relative(name: str) -> Path:
    # Names come from walking a folder and cannot climb out of it; this keeps it so for any other source.
    parts = [part for part in PurePosixPath(name).parts if part not in ("/", "..", ".")]
    return Path(*parts) if parts else Path("image")


def _save_png(path: Path, image: np.ndarray) -> None:
    from PIL import Image

    Image.fromarray(np.uint8(np.clip(image, 0, 1) * 255 + 0.5)).save(path)


def _open_csv(path: Path) -> Any:
    # A file name need not be Unicode; surrogateescape gives its very bytes back.
    return open(path, "w", encoding="utf-8", errors="surrogateescape", newline="")
