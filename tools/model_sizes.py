"""What takes the room in model files: ``python -m tools.model_sizes FILE...``.

Prints the bytes of every array by the attribute that holds it, the largest first, and the size of the file in units of
its pictures with one byte per value.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

SHOWN = 12


def places(tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the name of every array in the content of a manifest.

    >>> list(places({"fitted": {"labels_": {"$narrow": {"$array": "a0"}, "dtype": "<i8"}}}))
    [('labels_', 'a0')]
    """
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        if key == "$array":
            yield path, value
        else:
            hidden = str(key).startswith("$") or key in ("fitted", "arrays", "parts")
            yield from places(value, path if hidden else f"{path}.{key}".lstrip("."))


def bytes_by_place(path: Path) -> dict[str, int]:
    """Return how many bytes each attribute of a model takes in its file; an array that is shared counts once."""
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        sizes = {info.filename: info.compress_size for info in archive.infolist()}
    found = {"manifest": sizes["manifest.json"]}
    counted: set[str] = set()
    for place, name in places(manifest["content"]):
        if name not in counted:
            counted.add(name)
            found[place] = found.get(place, 0) + sizes[f"arrays/{name}.npy"]
    return found


def picture_bytes(path: Path) -> int:
    """Return how many bytes the pictures of a clusterer have, one per value."""
    import tubal

    model: Any = tubal.load(path)
    return int(len(model.labels_) * prod(model.image_shape_))


def main() -> None:
    """Print one table per file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="model files of clusterers")
    for path in parser.parse_args().files:
        total, pictures = path.stat().st_size, picture_bytes(path)
        print(f"{path}: {total:,} bytes, {total / pictures:.2f} times the pictures ({pictures:,} bytes)")
        found = sorted(bytes_by_place(path).items(), key=lambda item: -item[1])
        for place, size in found[:SHOWN]:
            print(f"  {size:>12,}  {size / pictures:6.3f}  {place}")


if __name__ == "__main__":
    main()
