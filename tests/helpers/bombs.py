"""Small files that promise, or really hold, far too much: pages, scans, pixels, values."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import textwrap
import zipfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

# Reads every file of a folder in one process of at most 4 GiB; prints name, answer, seconds and peak memory.
READER = """
    import json, resource, sys, time
    from pathlib import Path
    from tubal.datasets import load_images
    load_images("digits")
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    def peak():
        return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
    for file in sorted(Path(sys.argv[1]).iterdir()):
        open("/proc/self/clear_refs", "w").write("5")
        before, start = peak(), time.process_time()
        try:
            answer = load_images(file).rule
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps([file.name, answer, time.process_time() - start, peak() - before]), flush=True)
"""


def read_in_child(folder: Path) -> dict[str, tuple[str, float, int]]:
    """Return the answer, the seconds of processor time and the bytes of memory that reading each file took."""
    command = [sys.executable, "-c", textwrap.dedent(READER), str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ), timeout=250)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (answer, seconds, size) for name, answer, seconds, size in rows}


def write_bombs(folder: Path) -> None:
    """Write one file of each kind."""
    (folder / "shared-strip.tif").write_bytes(shared_strip_tiff(pages=300, side=8000))
    (folder / "many-pages.tif").write_bytes(shared_strip_tiff(pages=60_000, side=8))
    (folder / "huge-tile.tif").write_bytes(huge_tile_tiff(side=40_000))
    (folder / "scans.jpg").write_bytes(many_scan_jpeg(scans=8000))
    _write_deep_tiffs(folder)
    zeros = np.zeros((300, 1000, 1000), dtype=np.uint8)
    with zipfile.ZipFile(folder / "zeros.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as out:
        np.lib.format.write_array(out, zeros)
    _write_sparse_hdf5(folder / "sparse.h5")
    (folder / "lying.mat").write_bytes(lying_mat(n_bytes=600_000_000))


def shared_strip_tiff(*, pages: int, side: int) -> bytes:
    """Return a TIFF whose pages all show the same compressed strip."""
    strip = zlib.compress(bytes(side * side))
    entries = [(256, side), (257, side), (258, 8), (259, 8), (262, 1), (273, 8), (277, 1), (278, side)]
    entries.append((279, len(strip)))
    packed = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    first, length = 8 + len(strip), 2 + len(packed) + 4
    following = [*(first + page * length for page in range(1, pages)), 0]
    directories = [struct.pack("<H", len(entries)) + packed + struct.pack("<I", place) for place in following]
    return struct.pack("<2sHI", b"II", 42, first) + strip + b"".join(directories)


def huge_tile_tiff(*, side: int) -> bytes:
    """Return a TIFF of 64×64 pixels that is stored in one tile of side×side."""
    tile = zlib.compress(bytes(1 << 20), 9)
    entries = [(256, 64), (257, 64), (258, 8), (259, 8), (262, 1), (277, 1), (322, side), (323, side), (324, 8)]
    entries.append((325, len(tile)))
    packed = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    head = struct.pack("<2sHI", b"II", 42, 8 + len(tile)) + tile
    return head + struct.pack("<H", len(entries)) + packed + struct.pack("<I", 0)


def many_scan_jpeg(*, scans: int) -> bytes:
    """Return a progressive JPEG whose last scan is repeated."""
    stream = io.BytesIO()
    Image.new("L", (2000, 2000), 90).save(stream, "JPEG", progressive=True)
    body = stream.getvalue()
    last = body.rindex(b"\xff\xda")
    return body[:-2] + body[last:-2] * scans + b"\xff\xd9"


def lying_mat(*, n_bytes: int) -> bytes:
    """Return a MATLAB file with an array of 6×6×10 whose values, once decompressed, take far more."""
    packer = zlib.compressobj(1)
    dimensions, name = struct.pack("<IIiiii", 5, 12, 6, 6, 10, 0), struct.pack("<II8s", 1, 6, b"images")
    head = struct.pack("<IIII", 6, 8, 9, 0) + dimensions + name + struct.pack("<II", 2, n_bytes)
    packed = packer.compress(struct.pack("<II", 14, len(head) + n_bytes) + head)
    block = bytes(10_000_000)
    packed += b"".join(packer.compress(block) for _ in range(n_bytes // len(block))) + packer.flush()
    return b"MATLAB 5.0".ljust(124) + struct.pack("<H2s", 0x0100, b"IM") + struct.pack("<II", 15, len(packed)) + packed


def _write_deep_tiffs(folder: Path) -> None:
    import tifffile

    tifffile.imwrite(folder / "doubles.tif", np.zeros((8000, 8000)), compression="zlib", rowsperstrip=400)
    planes = np.zeros((6, 4000, 4000, 3), dtype=np.uint16)
    tifffile.imwrite(folder / "planes.tif", planes, photometric="rgb", compression="zlib", rowsperstrip=400)


def _write_sparse_hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("images", shape=(1200, 1000, 1000), dtype="u1", chunks=(1, 100, 100))
