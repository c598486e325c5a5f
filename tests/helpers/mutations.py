"""Damaged and forged model files, for the tests and for ``make torture``."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tubal


def damage(data: bytes, random: np.random.Generator) -> bytes:
    """Return the bytes after one random damage, as disks, networks and editors cause it."""
    position, length = int(random.integers(len(data))), int(random.integers(1, 200))
    accidents: list[Callable[[], bytes]] = [
        lambda: _flip(data, position, 1 << int(random.integers(8))),
        lambda: data[:position],
        lambda: data[:position] + data[position + length :],
        lambda: data[:position] + random.bytes(length) + data[position:],
        lambda: data[:position] + random.bytes(length) + data[position + length :],
        lambda: data[:position] + bytes(length) + data[position + length :],
        lambda: data[:position] + data[position : position + length] * 2 + data[position + length :],
        lambda: data[position:] + data[:position],
        lambda: _flip(_flip(data, position, 255), int(random.integers(len(data))), 255),
        lambda: data.replace(b"\n", b"\r\n"),
    ]
    return accidents[int(random.integers(len(accidents)))]()


def _flip(data: bytes, position: int, bits: int) -> bytes:
    return data[:position] + bytes([data[position] ^ bits]) + data[position + 1 :]


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return a model file's manifest and its members."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("manifest.json")), members


def repack(manifest: dict[str, Any], members: dict[str, bytes], *, compression: int = 0) -> bytes:
    """Return a file with correct checksums, as an attacker would forge it."""
    text = json.dumps(manifest).encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
        archive.writestr("manifest.json", text)
        archive.comment = hashlib.sha256(text).hexdigest().encode()
    return stream.getvalue()


_PLANTS = [None, -1, 0, 10**12, 1e308, "x", [], {}, {"$array": "a0"}, {"$float": "nan"}, {"$object": "os.system"}, True]


def forge(data: bytes, random: np.random.Generator) -> bytes:
    """Return a file with a changed manifest or changed arrays, and correct checksums."""
    manifest, members = unpack(data)
    if random.random() < 0.3 and members:
        name = sorted(members)[int(random.integers(len(members)))]
        other = sorted(members)[int(random.integers(len(members)))]
        key, source = name[7:-4], other[7:-4]
        members[name] = members[other]
        manifest["arrays"][key] = dict(manifest["arrays"][source])
    else:
        _plant(manifest, random)
    return repack(manifest, members)


def _plant(tree: Any, random: np.random.Generator) -> None:
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    if not keys:
        return
    key = keys[int(random.integers(len(keys)))]
    if isinstance(tree[key], (dict, list)) and len(tree[key]) and random.random() < 0.85:
        _plant(tree[key], random)
    else:
        tree[key] = _PLANTS[int(random.integers(len(_PLANTS)))]


def try_mutations(original: bytes, count: int, folder: Path, seed: int, check: Callable[[Any], None]) -> dict[str, int]:
    """Load ``count`` damaged or forged files; return how many raised an error, loaded unchanged, or loaded forged.

    ``check`` raises unless the loaded model is the original one.
    """
    random = np.random.default_rng(seed)
    counts = {"raised": 0, "unchanged": 0, "forged and loaded": 0}
    path = folder / "mutated.tubal"
    for number in range(count):
        forged = number % 5 == 4
        path.write_bytes(forge(original, random) if forged else damage(original, random))
        try:
            model = tubal.load(path)
        except ValueError as error:
            if "cannot be loaded" not in str(error) or "\n" in str(error):
                raise AssertionError(f"mutation {number}: not one clear error: {error}") from error
            counts["raised"] += 1
            continue
        if forged:
            _use(model)
            counts["forged and loaded"] += 1
        else:
            check(model)
            counts["unchanged"] += 1
    if sorted(entry.name for entry in folder.iterdir()) != [path.name]:
        raise AssertionError("loading wrote outside its target")
    return counts


def _use(model: Any) -> None:
    """Use a forged model: it may raise an exception, but must not crash the process."""
    images = np.random.default_rng(0).random((2, 5, 4))
    try:
        model.transform(images)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, RuntimeError, np.linalg.LinAlgError):
        return
