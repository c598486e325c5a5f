"""A folder with many kinds of pictures, damaged files, odd names, and links that lead out of it."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image


def grey(rng: np.random.Generator, height: int = 12, width: int = 10) -> np.ndarray:
    return rng.integers(0, 256, size=(height, width), dtype=np.uint8)


def png_bytes(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def bomb_png(side: int = 30_000) -> bytes:
    """Return a PNG file whose header promises far more pixels than it holds."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


ODD_NAMES = [
    "with space.png",
    "<img src=x onerror=alert(1)>.png",
    'it\'s "quoted".png',
    "<script>alert(1)<／script>.png",
    "🙂 smile.png",
    "new\nline.png",
]


def build_mixed_folder(base: Path, *, n_images: int) -> tuple[Path, set[str]]:
    """Make the folder with ``n_images`` good pictures; return it and the names of the twenty bad files."""
    rng = np.random.default_rng(5)
    folder = base / "pictures"
    (folder / "nested" / "deeper still").mkdir(parents=True)
    places = ["", "nested/", "nested/deeper still/"]
    names = [f"{places[i % 3]}{i:04d}" for i in range(n_images - len(ODD_NAMES))]
    for i, name in enumerate(names):
        side = 16 + i % 5
        pixels = rng.integers(0, 256, size=(side, 20), dtype=np.uint8)
        image = Image.fromarray(pixels).convert("RGB") if i % 7 == 0 else Image.fromarray(pixels)
        image.save(folder / f"{name}{['.png', '.jpg', '.bmp', '.gif', '.pgm'][i % 5]}")
    for name in ODD_NAMES:
        (folder / "nested" / name).write_bytes(png_bytes(grey(rng)))
    bad = _write_bad_files(folder, png_bytes(grey(rng, 40, 40)))
    outside = base / "outside"
    outside.mkdir()
    (outside / "secret.png").write_bytes(png_bytes(grey(rng)))
    (folder / "link to outside.png").symlink_to(outside / "secret.png")
    (folder / "nested" / "link folder").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    (folder / "notes.txt").write_text("not a picture and not named like one")
    return folder, bad


def _write_bad_files(folder: Path, good: bytes) -> set[str]:
    kinds = {
        "empty": b"",
        "text": b"this is not a picture at all",
        "truncated": good[: len(good) // 2],
        "bomb": bomb_png(),
        "garbled": good[:30] + b"\xff" * 40 + good[70:],
    }
    bad = set()
    for i in range(20):
        kind, body = list(kinds.items())[i % 5]
        name = f"nested/bad {kind} {i}{'.png' if i < 10 else '.jpg'}"
        (folder / name).write_bytes(body)
        bad.add(name)
    return bad
