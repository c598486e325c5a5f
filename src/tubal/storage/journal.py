"""A journal of what a person said and did: one line per act, never rewritten, so that nothing is lost.

Every line is on the disk before :meth:`Journal.append` returns. A line that a crash has cut short is ignored as a
whole, so an act is there or it is not. Undo and redo are lines, too. Images are known by a digest of their content, so
that renamed and moved files keep their answers.

>>> import pathlib, tempfile
>>> journal = Journal(pathlib.Path(tempfile.mkdtemp()) / "tubal-out.hints")
>>> journal.append(Entry("name", ("3f9a",), "seven"), Entry("same", ("3f9a", "b01c")))
>>> journal.undo().entries[0].kind
'same'
>>> [entry.name for entry in journal.read()]
['seven']
>>> journal.redo().entries[0].kind
'same'
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from tubal.storage.files import _sync

# What an entry can say, and the number of images it is about.
KINDS = {"name": 1, "same": 2, "different": 2, "alone": 1, "forget": 1, "unpair": 2}
KINDS |= {"skip": 1, "drop": 1, "keep": 1, "clusters": 0}
# Entries with a text: the name of an image, or a number of clusters; 0 for the number that was found.
WITH_TEXT = ("name", "clusters")
PAIRS = ("same", "different")
# Larger files are not journals: a line has about 200 bytes for each image.
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Entry:
    """One thing that was said.

    Parameters
    ----------
    kind : {"name", "same", "different", "alone", "forget", "unpair", "skip", "drop", "keep", "clusters"}
        What is said: the name of an image; two images that belong together or apart; that an image was placed by hand,
        and says nothing about others; that all that was said about an image, or about a pair, is taken back; an image
        not to ask about; an image to leave out of exports, or to take in again; a number of clusters.
    images : tuple of str
        Digests of the images.
    name : str, default=""
        The name, for ``kind="name"``; the number, for ``kind="clusters"``.
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
        if (self.kind in WITH_TEXT) != bool(self.name):
            raise ValueError(f"an entry {self.kind!r} has the name {self.name!r}")
        if self.kind == "clusters" and not (self.name.isdecimal() and len(self.name) < 10):
            raise ValueError(f"{self.name!r} is not a number of clusters")


@dataclass(frozen=True)
class Act:
    """What was said at once, and is taken back at once.

    Parameters
    ----------
    entries : tuple of Entry
        What was said.
    text : str
        The act in words, for readers of the history.
    time : str
        When, in ISO format; empty if the line does not tell.
    """

    entries: tuple[Entry, ...]
    text: str
    time: str


@dataclass(frozen=True)
class Step:
    """An undo or a redo of the act with a number."""

    number: int
    is_undo: bool


class Journal:
    """An append-only file of acts.

    Parameters
    ----------
    path : str or path-like
        The file; it is made by the first act.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._parsed: list[Act | Step] = []
        self._seen: tuple[int, int, int] | None = None  # inode, size and time of what was parsed
        self._ended = True  # whether it ended with a whole line

    # --- writing ---------------------------------------------------------------------------------------
    def append(self, *entries: Entry) -> None:
        """Add answers, each an act of its own; they are on the disk when this returns.

        Parameters
        ----------
        *entries : Entry
            Answers, in order.
        """
        self._write([_as_json(entry) for entry in entries])

    def append_act(self, entries: Sequence[Entry], text: str) -> None:
        """Add one act of several entries, as one line; it is on the disk when this returns.

        Parameters
        ----------
        entries : sequence of Entry
            What was said, at least one entry.
        text : str
            The act in words.
        """
        if not entries:
            raise ValueError("an act has at least one entry")
        self._write([{"act": text, "entries": [_as_json(entry) for entry in entries]}])

    def undo(self) -> Act | None:
        """Take back the last act that has not been taken back.

        Returns
        -------
        Act or None
            The act, or None if there is none left.
        """
        done, _ = self._replay()
        return self._step("undo", done)

    def redo(self) -> Act | None:
        """Do the act again that was taken back last; a new act ends what can be done again.

        Returns
        -------
        Act or None
            The act, or None if there is none.
        """
        _, undone = self._replay()
        return self._step("redo", undone)

    def _step(self, kind: str, acts: Sequence[int]) -> Act | None:
        """Write that the last of some numbered acts is undone or redone, and return it; None if there is none."""
        if not acts:
            return None
        self._write([{kind: acts[-1]}])
        return self._acts()[acts[-1]]

    # --- reading ---------------------------------------------------------------------------------------
    def history(self) -> list[Act]:
        """Return all acts that have not been taken back, in order.

        Returns
        -------
        list of Act
            The acts; none if there is no file.
        """
        acts = self._acts()
        return [acts[number] for number in self._replay()[0]]

    @property
    def can_redo(self) -> bool:
        """Whether an act was taken back that can be done again."""
        return bool(self._replay()[1])

    def read(self) -> list[Entry]:
        """Return the entries of all acts that have not been taken back, in order.

        Returns
        -------
        list of Entry
            What was said; nothing if there is no file.
        """
        return [entry for act in self.history() for entry in act.entries]

    def current(self) -> list[Entry]:
        """Return the answers that count: a later name replaces an earlier one, and what is forgotten is left out.

        Returns
        -------
        list of Entry
            Names, pairs, and images placed by hand, in order.
        """
        return current_answers(self.read())

    def mentioned(self) -> set[str]:
        """Return the digests of all images that the journal has ever said something about.

        Returns
        -------
        set of str
            Digests, also of answers that were taken back.
        """
        said = ("name", "alone", "forget", "unpair", *PAIRS)
        return {image for act in self._acts() for entry in act.entries if entry.kind in said for image in entry.images}

    def n_clusters(self) -> int | None:
        """Return the number of clusters that was chosen last; None for the number that was found.

        Returns
        -------
        int or None
            The number.
        """
        chosen = [int(entry.name) for entry in self.read() if entry.kind == "clusters"]
        return chosen[-1] or None if chosen else None

    @property
    def n_lines(self) -> int:
        """Number of acts, undos and redos in the file; it only grows."""
        return len(self._lines())

    # --- lines -----------------------------------------------------------------------------------------
    def _replay(self) -> tuple[list[int], list[int]]:
        """Return the numbers of the acts that count, and of those that can be done again, the next one last."""
        done: list[int] = []
        undone: list[int] = []
        n_acts = 0
        for line in self._lines():
            if isinstance(line, Act):
                done.append(n_acts)
                undone.clear()
                n_acts += 1
                continue
            source, target = (done, undone) if line.is_undo else (undone, done)
            if line.number in source:
                source.remove(line.number)
                target.append(line.number)
        return done, undone

    def _acts(self) -> list[Act]:
        """Return all acts of the file; their places are their numbers."""
        return [line for line in self._lines() if isinstance(line, Act)]

    def _lines(self) -> list[Act | Step]:
        """Return the lines of the file; what a crash has cut short is not JSON, and is ignored.

        The file only grows, so what was parsed is not read again.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._parsed, self._seen, self._ended = [], None, True
            return self._parsed
        now = (status.st_ino, status.st_size, status.st_mtime_ns)
        if now == self._seen:
            return self._parsed
        if status.st_size > _MOST_BYTES:
            raise ValueError(f"{str(self.path)!r} is not a journal: it is larger than {_MOST_BYTES >> 30} GB")
        grown = self._seen is not None and self._ended and now[0] == self._seen[0] and now[1] > self._seen[1]
        start = self._seen[1] if self._seen is not None and grown else 0
        with open(self.path, "rb") as stream:
            stream.seek(start)
            content = stream.read(status.st_size - start)
        self._parsed = [*(self._parsed if grown else []), *_parse(content)]
        self._seen, self._ended = now, content.endswith(b"\n")
        return self._parsed

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


def current_answers(entries: Iterable[Entry]) -> list[Entry]:
    """Return the names, pairs and images placed by hand that count after all entries, in order.

    >>> said = [Entry("name", ("a",), "one"), Entry("same", ("a", "b")), Entry("name", ("a",), "two")]
    >>> [entry.name or entry.kind for entry in current_answers(said)]
    ['same', 'two']
    """
    found: dict[tuple[str, tuple[str, ...]], Entry] = {}
    about: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
    for entry in entries:
        key = (entry.kind, entry.images)
        if entry.kind in ("name", "alone", *PAIRS):
            if entry.kind == "name":
                found.pop(key, None)  # a later name comes later
            found.setdefault(key, entry)
            for image in entry.images:
                about.setdefault(image, set()).add(key)
        elif entry.kind == "forget":
            for gone in about.pop(entry.images[0], ()):
                found.pop(gone, None)
        elif entry.kind == "unpair":
            for kind in PAIRS:
                found.pop((kind, entry.images), None)
                found.pop((kind, entry.images[::-1]), None)
    return list(found.values())


def _parse(content: bytes) -> list[Act | Step]:
    """Return what the lines say; a line that no version of tubal has written says nothing."""
    found = []
    for line in content.split(b"\n"):
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError):
            continue
        said = _read_line(parsed) if isinstance(parsed, dict) else None
        if said is not None:
            found.append(said)
    return found


def _as_json(entry: Entry) -> dict[str, Any]:
    said = {entry.kind: entry.name if entry.kind in WITH_TEXT else True}
    return {**said, "images": list(entry.images), "files": list(entry.files)}


def _read_line(line: dict[str, Any]) -> Act | Step | None:
    """Return the act, the undo or the redo of a line; None for anything else."""
    for key in ("undo", "redo"):
        if type(line.get(key)) is int:
            return Step(line[key], key == "undo")
    listed = line.get("entries", [line])
    if not isinstance(listed, list) or not listed:
        return None
    entries = [_from_json(item) if isinstance(item, dict) else None for item in listed]
    known = tuple(entry for entry in entries if entry is not None)
    if len(known) < len(entries):
        return None
    text, time = line.get("act"), line.get("time")
    return Act(known, text if isinstance(text, str) else _in_words(known[0]), time if isinstance(time, str) else "")


def _from_json(line: dict[str, Any]) -> Entry | None:
    kind = next((kind for kind in KINDS if kind in line), None)
    images, files = line.get("images"), line.get("files", [])
    if kind is None or not _are_texts(images) or not _are_texts(files):
        return None
    try:
        return Entry(kind, tuple(images), str(line[kind]) if kind in WITH_TEXT else "", tuple(files))
    except ValueError:
        return None


def _in_words(entry: Entry) -> str:
    """Return an entry in words.

    >>> _in_words(Entry("name", ("3f9a",), "seven", ("a.png",)))
    'a.png is seven'
    """
    images = " and ".join(entry.files or [image[:12] for image in entry.images])
    words = {
        "name": f"{images} is {entry.name}",
        "same": f"{images} belong together",
        "different": f"{images} do not belong together",
        "clusters": f"{entry.name} clusters",
    }
    return words.get(entry.kind, f"{entry.kind}: {images}")


def _are_texts(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
