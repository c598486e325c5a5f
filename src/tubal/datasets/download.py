"""Downloading a file over HTTP: with retries, checked against its hash, written atomically."""

from __future__ import annotations

import hashlib
import http.client
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tubal.storage.files import atomic_write, sha256_of

__all__ = ["DownloadError", "HashMismatchError", "download", "verify_file"]

BLOCK_SIZE = 1 << 16


class DownloadError(OSError):
    """The file could not be downloaded from any address."""


class HashMismatchError(OSError):
    """A file exists, but its contents are not the published ones."""


class _PermanentFailure(Exception):
    """Another attempt at the same address would fail again."""


def verify_file(path: Path, sha256: str) -> None:
    """Raise :class:`HashMismatchError` unless the file has this hash; the file is never deleted."""
    found = sha256_of(path)
    if found != sha256:
        raise HashMismatchError(
            f"{path} is damaged, or a different file of the same name: expected SHA-256 {sha256}, "
            f"found {found}; move it somewhere else and download it again"
        )


def download(
    addresses: Sequence[str],
    destination: Path,
    *,
    sha256: str,
    attempts: int = 3,
    pause: float = 1.0,
    timeout: float = 30.0,
) -> Path:
    """Download a file from the first address that has it, and return ``destination``.

    A broken connection is retried up to ``attempts`` times, after ``pause`` seconds that double each time. A missing
    page or a wrong hash moves on to the next address. ``destination`` appears only when the file is complete.
    """
    _make_folder(destination)
    failures = []
    for address in addresses:
        for attempt in range(attempts):
            try:
                _download_once(address, destination, sha256, timeout)
            except _PermanentFailure as failure:
                failures.append(f"{address}: {failure}")
                break
            except (OSError, http.client.HTTPException) as failure:
                if attempt + 1 == attempts:
                    failures.append(f"{address}: {failure} ({attempts} attempts)")
                else:
                    time.sleep(pause * 2**attempt)
            else:
                return destination
    raise DownloadError(
        f"{destination.name} could not be downloaded ({'; '.join(failures)}); "
        f"get it elsewhere and put it at {destination}"
    )


def _make_folder(destination: Path) -> None:
    """Create the folder of ``destination``, or raise an error before any request if it cannot be written to."""
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=destination.parent):
            pass
    except OSError as failure:
        raise DownloadError(
            f"the folder {destination.parent} cannot be written to ({failure.strerror or failure}); "
            f"name another folder with data_home or the environment variable TUBAL_DATA"
        ) from failure


def _download_once(address: str, destination: Path, sha256: str, timeout: float) -> None:
    with atomic_write(destination) as file:
        found = _copy_body(address, file, timeout)
        if found != sha256:
            raise _PermanentFailure(f"expected SHA-256 {sha256}, received {found}")


def _copy_body(address: str, file: IO[bytes], timeout: float) -> str:
    """Write the body found at ``address`` to ``file`` and return its SHA-256."""
    try:
        response = urllib.request.urlopen(address, timeout=timeout)
    except urllib.error.HTTPError as failure:
        with failure:
            if 400 <= failure.code < 500:
                raise _PermanentFailure(f"HTTP {failure.code} {failure.reason}") from None
            raise ConnectionError(f"HTTP {failure.code} {failure.reason}") from None
    digest, received = hashlib.sha256(), 0
    with response:
        promised = response.headers.get("Content-Length")
        while block := response.read(BLOCK_SIZE):
            file.write(block)
            digest.update(block)
            received += len(block)
    if promised is not None and received != int(promised):
        raise ConnectionError(f"the body ended after {received} of {promised} bytes")
    return digest.hexdigest()
