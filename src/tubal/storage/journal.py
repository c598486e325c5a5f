"""A journal of what a person said: one line per answer, never rewritten, so that no answer is lost.

Every line is on the disk before :meth:`Journal.append` returns. A line that a crash has cut short is ignored. Images
are known by a digest of their content, so that renamed and moved files keep their answers.

>>> import pathlib, tempfile
>>> journal = Journal(pathlib.Path(tempfile.mkdtemp()) / "tubal-out.hints")
>>> journal.append(Entry("name", ("3f9a",), "seven"), Entry("same", ("3f9a", "b01c")))
>>> journal.undo().kind
'same'
>>> [entry.name for entry in journal.read()]
['seven']
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from tubal.storage.files import _sync

# What an entry can say, and the number of images it is about.
KINDS = {"name": 1, "same": 2, "different": 2, "forget": 1}
# Larger files are not journals: a line has about 200 bytes.
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Entry:
    """One answer.

    Parameters
    ----------
    kind : {"name", "same", "different", "forget"}
        What is said: the name of an image, two images that belong together or apart, or that all that was said about
        an image is taken back.
    images : tuple of str
        Digests of the images.
    name : str, default=""
        The name, for ``kind="name"``.
    files : tuple of str, default=()
        Names of the files at that time, for readers of the journal.
    """

    kind: str
    images: tuple[str, ...]
    name: str = ""
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if KINDS.get(self.kind) != len(self.images):
            raise ValueError(f"an entry {self.kind!r} about {len(self.images)} images is not known")
        if (self.kind == "name") != bool(self.name):
            raise ValueError(f"an entry {self.kind!r} has the name {self.name!r}")


class Journal:
    """An append-only file of answers.

    Parameters
    ----------
    path : str or path-like
        The file; it is made by the first answer.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, *entries: Entry) -> None:
        """Add answers; they are on the disk when this returns.

        Parameters
        ----------
        *entries : Entry
            Answers, in order.
        """
        self._write([_as_json(entry) for entry in entries])

    def undo(self) -> Entry | None:
        """Take back the last answer that has not been taken back.

        Returns
        -------
        Entry or None
            The answer, or None if there is none left.
        """
        left = self._replay()
        if not left:
            return None
        number, entry = left[-1]
        self._write([{"undo": number}])
        return entry

    def read(self) -> list[Entry]:
        """Return all answers that have not been taken back, in order.

        Returns
        -------
        list of Entry
            The answers; none if there is no file.
        """
        return [entry for _, entry in self._replay()]

    def current(self) -> list[Entry]:
        """Return the answers that count: a later name replaces an earlier one, and what is forgotten is left out.

        Returns
        -------
        list of Entry
            Names and pairs, in order.
        """
        found: list[Entry] = []
        for entry in self.read():
            if entry.kind == "name":
                found = [other for other in found if other.kind != "name" or other.images != entry.images]
            elif entry.kind == "forget":
                found = [other for other in found if not set(entry.images) & set(other.images)]
            if entry.kind != "forget" and entry not in found:
                found.append(entry)
        return found

    def mentioned(self) -> set[str]:
        """Return the digests of all images that the journal has ever mentioned.

        Returns
        -------
        set of str
            Digests, also of answers that were taken back.
        """
        return {image for _, entry in self._entries() for image in entry.images}

    def _replay(self) -> list[tuple[int, Entry]]:
        undone = {line["undo"] for line in self._lines() if type(line.get("undo")) is int}
        return [(number, entry) for number, entry in self._entries() if number not in undone]

    def _entries(self) -> list[tuple[int, Entry]]:
        """Return the entries with their numbers, counted over all entries of the file."""
        found = [entry for line in self._lines() if (entry := _from_json(line)) is not None]
        return list(enumerate(found))

    def _lines(self) -> list[dict[str, Any]]:
        """Return the lines of the file; what a crash has cut short is not JSON, and is ignored."""
        try:
            if self.path.stat().st_size > _MOST_BYTES:
                raise ValueError(f"{str(self.path)!r} is not a journal: it is larger than {_MOST_BYTES >> 30} GB")
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        found = []
        for line in content.split(b"\n"):
            try:
                parsed = json.loads(line)
            except ValueError:
                continue
            if isinstance(parsed, dict):
                found.append(parsed)
        return found

    def _write(self, lines: list[dict[str, Any]]) -> None:
        if not lines:
            return
        is_new = not self.path.exists()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = "".join(json.dumps({**line, "time": now}) + "\n" for line in lines)
        with open(self.path, "ab") as stream:
            # After a line that was cut short, the next one must begin on a line of its own.
            torn = stream.tell() > 0 and not self._ends_line()
            stream.write((b"\n" if torn else b"") + text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        if is_new:
            _sync(self.path.parent)

    def _ends_line(self) -> bool:
        with open(self.path, "rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) == b"\n"


def _as_json(entry: Entry) -> dict[str, Any]:
    said = {entry.kind: entry.name} if entry.kind == "name" else {entry.kind: True}
    return {**said, "images": list(entry.images), "files": list(entry.files)}


def _from_json(line: dict[str, Any]) -> Entry | None:
    """Return the entry of a line; None for an undo, and for what no version of tubal has written."""
    kind = next((kind for kind in KINDS if kind in line), None)
    images, files = line.get("images"), line.get("files", [])
    if kind is None or not _are_texts(images) or not _are_texts(files):
        return None
    try:
        return Entry(kind, tuple(images), str(line[kind]) if kind == "name" else "", tuple(files))
    except ValueError:
        return None


def _are_texts(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
