"""Decoding many pictures into one stack, in threads. An interrupted run keeps what it has read for the next one."""

from __future__ import annotations

import hashlib
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tubal import __version__
from tubal.images.pictures import Frame, Header, PictureError, Pixels, SecondLook, read_pages
from tubal.storage.files import WritingClock, atomic_write, check_marked_folder, delete_marked_folder, mark_folder

__all__ = ["KeptPictures", "PageStack", "ProgressCallback", "map_in_threads", "read_missing"]

ProgressCallback: TypeAlias = Callable[[int, int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_THREADS = 8
# Files of a folder of kept pictures.
PARTS = "pictures-*.npz"


@dataclass(frozen=True)
class PageStack:
    """The pages of all pictures while they are read into one frame.

    ``images`` (n, *frame.shape) are their pixels; ``good`` (n,) says which have been read, and ``unscaled`` (n,) which
    of these have no known full scale. ``look`` describes them at a larger size, if it is not None.
    """

    frame: Frame
    images: Pixels
    good: NDArray[np.bool_]
    unscaled: NDArray[np.bool_]
    look: SecondLook | None

    @classmethod
    def empty(cls, n_pages: int, frame: Frame, look: SecondLook | None) -> PageStack:
        """Return a stack of pages of which none has been read."""
        images = np.zeros((n_pages, *frame.shape), dtype=np.float32)
        return cls(frame, images, np.zeros(n_pages, dtype=bool), np.zeros(n_pages, dtype=bool), look)


def map_in_threads(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    n_threads: int | None = None,
    progress: ProgressCallback | None = None,
    *,
    stop: threading.Event | None = None,
) -> list[Result]:
    """Apply ``function`` to every item in threads and keep the order.

    An interruption drops what has not started, and sets ``stop`` for calls that can end early.
    """
    results: dict[int, Result] = {}
    executor = ThreadPoolExecutor(max_workers=n_threads or min(os.cpu_count() or 1, MAX_THREADS))
    try:
        pending: dict[Future[Result], int] = {executor.submit(function, item): i for i, item in enumerate(items)}
        while pending:
            done, _ = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                results[pending.pop(future)] = future.result()
            if progress is not None and done:
                progress(len(results), len(items))
    finally:
        if stop is not None:
            stop.set()
        executor.shutdown(wait=True, cancel_futures=True)
    return [results[i] for i in range(len(items))]


def read_missing(
    headers: Sequence[Header],
    stack: PageStack,
    n_threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> dict[int, str]:
    """Decode the pages that the stack lacks, in threads, and return by index why a page cannot be read."""
    frame, look, stop = stack.frame, stack.look, threading.Event()
    reasons: dict[int, str] = {}
    large = None if look is None else replace(frame, height=look.side, width=look.side, in_color=True)

    def read(item: tuple[int, Header]) -> None:
        start, header = item
        for page, outcome in read_pages(header, frame, large):
            if stop.is_set():
                return
            if isinstance(outcome, PictureError):
                reasons[start + page] = str(outcome)
            else:
                stack.images[start + page] = outcome.pixels
                stack.unscaled[start + page] = outcome.needs_scaling
                if look is not None and outcome.large is not None:
                    look.add(start + page, outcome.large)
                stack.good[start + page] = True

    starts = np.cumsum([0, *(len(header.sizes) for header in headers)]).tolist()
    missing = [
        (start, header)
        for start, stop_page, header in zip(starts, starts[1:], headers, strict=False)
        if not stack.good[start:stop_page].all()
    ]
    before = len(headers) - len(missing)
    report = None if progress is None else lambda done, _: progress(before + done, len(headers))
    map_in_threads(read, missing, n_threads, report, stop=stop)
    return reasons


# --- pictures of an interrupted run ------------------------------------------------------------------------------
def _page_key(file: str, page: int, frame: Frame, look: SecondLook | None) -> bytes:
    """Return what a page is known by: its file with size and time of change, its number, and how it is read."""
    try:
        state = os.stat(file.partition("\0")[0])
        changed = state.st_size, state.st_mtime_ns
    except OSError:  # the reason is given when the picture is read
        changed = (-1, -1)
    side = None if look is None else look.side
    text = repr((__version__, file, *changed, page, frame, side))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()


class KeptPictures:
    """A folder of pictures that have been read.

    Parameters
    ----------
    folder : Path
        Where they are kept. It must not hold other files.
    resume : bool
        Whether pictures that are there already are used; otherwise they are deleted.
    every_seconds : float, default=5.0
        Shortest time between two writings.
    """

    def __init__(self, folder: Path, *, resume: bool, every_seconds: float = 5.0) -> None:
        self._folder, self._clock, self._on_disk = folder, WritingClock(every_seconds), set[bytes]()
        check_marked_folder(folder, "the pictures that were read")
        if not resume:
            self.delete()

    def exists(self) -> bool:
        """Return whether any picture is kept."""
        return next(self._parts(), None) is not None

    def delete(self) -> None:
        """Delete all pictures, and the folder."""
        delete_marked_folder(self._folder, PARTS)

    def read_missing(
        self,
        files: Sequence[str],
        headers: Sequence[Header],
        stack: PageStack,
        n_threads: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> dict[int, str]:
        """Do as :func:`read_missing`, without the pages that an interrupted run has read.

        ``files`` are the paths of the pictures; of one in an archive, the paths of both, with a zero byte between.
        """
        keys = [
            _page_key(file, page, stack.frame, stack.look)
            for file, header in zip(files, headers, strict=True)
            for page in range(len(header.sizes))
        ]
        self.restore(keys, stack)

        def report(done: int, total: int) -> None:
            if self._clock.is_due():
                self.keep(keys, stack)
            if progress is not None:
                progress(done, total)

        try:
            return read_missing(headers, stack, n_threads, report)
        finally:
            self.keep(keys, stack)

    def restore(self, keys: Sequence[bytes], pages: PageStack) -> None:
        """Fill in the pages that were read before."""
        places = {key: index for index, key in enumerate(keys)}
        for part in self._parts():
            try:
                with np.load(part, allow_pickle=False) as stored:
                    self._restore_part({name: stored[name] for name in stored.files}, places, pages)
            except (OSError, ValueError, KeyError, zipfile.BadZipFile):
                part.unlink(missing_ok=True)  # a damaged file: its pictures are read again

    def keep(self, keys: Sequence[bytes], pages: PageStack) -> None:
        """Write the pages that are read and not yet on disk."""
        described = None if pages.look is None else pages.look.described()
        new = [
            index
            for index in np.flatnonzero(pages.good).tolist()
            if keys[index] not in self._on_disk and (described is None or index in described)
        ]
        with self._clock.restarted():
            if new:
                self._write([keys[index] for index in new], pages, new, described)

    def _write(
        self,
        keys: Sequence[bytes],
        pages: PageStack,
        rows: Sequence[int],
        described: dict[int, NDArray[np.float32]] | None,
    ) -> None:
        mark_folder(self._folder)
        number = 1 + max((int(part.stem.rpartition("-")[2]) for part in self._parts()), default=0)
        arrays: dict[str, NDArray[Any]] = {
            "keys": np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1),
            "pixels": pages.images[rows],
            "unscaled": pages.unscaled[rows],
        }
        if described is not None:
            arrays["features"] = np.stack([described[index] for index in rows])
        with atomic_write(self._folder / f"pictures-{number:06d}.npz") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
        self._on_disk |= set(keys)

    def _restore_part(self, stored: dict[str, NDArray[Any]], places: dict[bytes, int], pages: PageStack) -> None:
        pixels, features = stored["pixels"], stored.get("features")
        if pixels.shape[1:] != pages.images.shape[1:] or (features is None) != (pages.look is None):
            return
        for row, key in enumerate(stored["keys"]):
            index = places.get(key.tobytes())
            if index is None:
                continue
            pages.images[index], pages.unscaled[index] = pixels[row], stored["unscaled"][row]
            if pages.look is not None and features is not None:
                pages.look.recall(index, features[row])
            pages.good[index] = True
            self._on_disk.add(key.tobytes())

    def _parts(self) -> Iterator[Path]:
        return iter(sorted(self._folder.glob(PARTS)))
