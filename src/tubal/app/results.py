"""The results of an earlier run: a model, its record, and the journal of what was said about its images.

``tubal ask | refine | add`` work on :class:`Results`, and :mod:`tubal.app.session` shows them on a page.
"""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tubal.app.exports import bright_pixels, present_files
from tubal.storage.files import answers_beside, earlier_record
from tubal.storage.journal import Entry, Journal, current_answers
from tubal.text import from_table_cell

if TYPE_CHECKING:
    from sklearn.utils import Bunch

    from tubal.clustering import Hints, ImageClusterer
    from tubal.clustering.hints import ContradictionError


# Above this number of images, reading files again would take too much time and memory for a page.
MOST_LARGER = 5000
# So many files tell whether pictures show more than the model's copies of them.
LOOKED_AT = 64


def journal_of(out: Path) -> Journal:
    """Return the journal of a folder of results."""
    return Journal(answers_beside(out))


def open_clusterer(path: Path) -> ImageClusterer:
    """Load a model that has clusters from its file or its results folder."""
    import tubal

    file = path / "model.tubal" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"there is no model {str(file)!r}; make one with tubal cluster or tubal fit")
    model: ImageClusterer = tubal.load(file)
    if not hasattr(model, "labels_"):
        raise ValueError(f"{str(path)!r} holds a {type(model).__name__}, without clusters; make one with tubal cluster")
    return model


def image_names(clusterer: ImageClusterer) -> list[str]:
    """Return the names of the images that a clusterer was fitted on, or their numbers if it was saved without names."""
    names = getattr(clusterer, "file_names_", None)
    n_images = len(clusterer.labels_)
    if names is not None and len(names) == n_images:
        return [str(name) for name in names]
    return [f"image {i + 1}" for i in range(n_images)]


@dataclass
class Results:
    """The results of an earlier run: its model, record, journal, and the digest of each image."""

    out: Path
    clusterer: ImageClusterer
    record: dict[str, Any]
    journal: Journal
    # Whether the files in the folder do not show all that the journal holds.
    outdated: bool = False

    @classmethod
    def open(cls, out: Path) -> Results:
        """Load the results in a folder, with all answers of its journal applied."""
        record = earlier_record(out)
        if not record:
            raise FileNotFoundError(f"{str(out)!r} holds no results of tubal cluster; make some with it first")
        clusterer = open_clusterer(out)
        if not hasattr(clusterer, "file_digests_"):
            raise ValueError(f"the model in {str(out)!r} is of an earlier version; run tubal cluster again")
        found = cls(out, clusterer, record, journal_of(out))
        found.outdated = found.apply_journal()
        return found

    @property
    def digests(self) -> list[str]:
        """The digest of each image."""
        return [str(digest) for digest in self.clusterer.file_digests_]

    @property
    def files(self) -> list[str]:
        """The file of each image; empty if it is not known or has gone."""
        return [file if file and Path(file).is_file() else "" for file in self.listed_files]

    @property
    def listed_files(self) -> list[str]:
        """The file of each image as the record lists it, or where it was moved to; empty if it is not known."""
        listed = self.record.get("files")
        n_images = len(self.clusterer.labels_)
        files = listed if isinstance(listed, list) and len(listed) == n_images else [""] * n_images
        return present_files(self.out, [str(file) if file else "" for file in files])

    def apply_journal(self) -> bool:
        """Give the clusterer what the journal holds, and tell whether that was new to it."""
        return apply_journal(self.clusterer, self.digests, self.journal)

    def picture(self, image: int, side: int) -> NDArray[np.uint8]:
        """Return the pixels of one image in colour: of its file, with a longer side of ``side``, or of the model."""
        shape = self.clusterer.image_shape_[:2]
        height, width = (max(1, round(side * extent / max(shape))) for extent in shape)
        read = self._read_again([self.files[image]], (height, width))
        return read[0] if read else self._small_picture(image)

    def has_larger(self) -> bool:
        """Tell whether :meth:`larger` shows more than the pictures in the model, for some images at least."""
        if len(self.clusterer.labels_) > MOST_LARGER:
            return False
        files = [file for file in self.files if file]
        return any(self._shows_more(file) for file in files[:: -(-len(files) // LOOKED_AT) or 1])

    def larger(
        self, start: int, stop: int, *, factor: int, stopped: Callable[[], bool] = lambda: False
    ) -> NDArray[np.uint8]:
        """Return some images again, ``factor`` times as large and framed as they were for the model.

        They are read from their files. The pixels in the model are repeated where that is impossible: the file has
        gone, cannot be read, has several pages, or shows no more than the model.

        Parameters
        ----------
        start, stop : int
            Which images.
        factor : int
            How many times the height and width of the images in the model.
        stopped : callable, optional
            Asked while files are read; once it returns True, the others are not read any more.

        Returns
        -------
        uint8 array of shape (stop - start, factor * height, factor * width, 3)
            In colour.
        """
        height, width = self.clusterer.image_shape_[:2]
        images = np.stack([self._small_picture(image) for image in range(start, stop)])
        images = images.repeat(factor, axis=1).repeat(factor, axis=2)
        again = self._read_again(self.listed_files[start:stop], (height * factor, width * factor), stopped)
        for place, pixels in again.items():
            images[place] = pixels
        return images

    def _read_again(
        self, files: Sequence[str], size: tuple[int, int], stopped: Callable[[], bool] = lambda: False
    ) -> dict[int, NDArray[np.uint8]]:
        """Return the pictures of files by their places in the list, without those that cannot be read."""
        from tubal.images.folders import ReadingOptions, load_pictures

        def go_on(_: int, __: int) -> None:
            if stopped():
                raise InterruptedError

        place_of = {place: Path(file).resolve() for place, file in enumerate(files) if self._shows_more(file)}
        if not place_of:
            return {}
        model: Any = self.clusterer
        options = ReadingOptions(
            size,
            "rgb",
            fit=getattr(model, "frame_fit_", "pad"),
            crop=getattr(model, "crop_", "none"),
            value_range=getattr(model, "value_range_", None),
            progress=go_on,
        )
        try:
            stack = load_pictures(list(place_of.values()), options)
        except Exception:  # a decoder may raise anything, and there is a picture in the model
            return {}
        read = dict(zip(stack.files, stack.images, strict=True))
        return {
            place: bright_pixels(read[str(file)], read[str(file)].shape)
            for place, file in place_of.items()
            if str(file) in read
        }

    def _shows_more(self, file: str) -> bool:
        """Tell whether a file is one picture that is larger than the images in the model."""
        from tubal.images.folders import MAX_PIXELS
        from tubal.images.pictures import PictureError, read_header

        if not os.path.isfile(file):
            return False
        try:
            sizes = read_header(Path(file), max_pixels=MAX_PIXELS).sizes
        except PictureError:
            return False
        return len(sizes) == 1 and max(sizes[0]) > max(self.clusterer.image_shape_[:2])

    def _small_picture(self, image: int) -> NDArray[np.uint8]:
        """Return the pixels (height, width, 3) of one image in the model."""
        clusterer: Any = self.clusterer
        pixels = bright_pixels(clusterer.graph_.search.images[image], clusterer.image_shape_)
        if pixels.ndim == 3 and pixels.shape[2] == 3:
            return pixels
        grey = pixels if pixels.ndim == 2 else pixels.mean(axis=2).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)

    def stack(self) -> Bunch:
        """Return the images of the model as they were read, up to the brightness of each."""
        from sklearn.utils import Bunch

        clusterer: Any = self.clusterer
        images = np.asarray(clusterer.graph_.search.images, dtype=np.float32).reshape(-1, *clusterer.image_shape_)
        largest = images.reshape(len(images), -1).max(axis=1).reshape(-1, *[1] * (images.ndim - 1))
        return Bunch(
            images=np.clip(images / np.where(largest > 0, largest, 1), 0, 1),
            names=image_names(clusterer),
            files=self.files,
            digests=self.digests,
            skipped=_read_skipped(self.out / "skipped.csv"),
            rule=str(self.record.get("rule", "")),
            crop=getattr(clusterer, "crop_", "none"),
            fit=getattr(clusterer, "frame_fit_", "pad"),
            value_range=getattr(clusterer, "value_range_", None),
            target=None,
        )


def _read_skipped(path: Path) -> list[tuple[str, str]]:
    with contextlib.suppress(OSError, KeyError), open(path, encoding="utf-8", errors="surrogateescape") as stream:
        return [(from_table_cell(row["file"]), row["reason"]) for row in csv.DictReader(stream)]
    return []


def apply_journal(clusterer: ImageClusterer, digests: Sequence[str], journal: Journal) -> bool:
    """Give a clusterer the hints of a journal, and tell whether that was new to it.

    What it knows about images that the journal never mentions stays.
    """
    hints = journal_hints(clusterer.hints_, digests, journal.current(), journal.mentioned())
    number = journal.n_clusters()
    is_new = hints != clusterer.hints_ or number != getattr(clusterer, "n_chosen_", None)
    if is_new:
        clusterer._set_said(hints, number)
    return is_new


def journal_hints(hints: Hints, digests: Sequence[str], entries: Sequence[Entry], mentioned: set[str]) -> Hints:
    """Return hints by index from entries by digest, or raise an error that names a contradiction.

    Answers about images that are not in the collection are left out; the journal keeps them.
    """
    place = places_of(digests)
    known = hints.without(index for digest, index in place.items() if digest in mentioned)
    here = [entry for entry in entries if all(image in place for image in entry.images)]
    names = {place[entry.images[0]]: entry.name for entry in here if entry.kind == "name"}
    pairs = {
        kind: [(place[entry.images[0]], place[entry.images[1]]) for entry in here if entry.kind == kind]
        for kind in ("same", "different")
    }
    alone = [place[entry.images[0]] for entry in here if entry.kind == "alone"]
    return known.with_hints(names, pairs["same"], pairs["different"], len(digests), alone)


def why_contradicting(error: ContradictionError, names: Sequence[str]) -> str:
    """Return a contradiction in the words of a person: images by the names of their files."""
    first, second = (names[image] for image in error.images)
    return f"{first} and {second} cannot both belong together and be different; undo what was said about them before"


def places_of(digests: Sequence[str]) -> dict[str, int]:
    """Return the first image of each digest."""
    return {digest: index for index, digest in reversed(list(enumerate(digests)))}


def add_entries(results: Results, entries: Sequence[Entry]) -> int:
    """Write new answers to the journal, once it is certain that they contradict nothing, and apply them.

    Returns how many of them are new.
    """
    journal = results.journal
    new = [entry for entry in entries if entry not in journal.current()]
    said = current_answers([*journal.read(), *new])
    mentioned = journal.mentioned() | {image for entry in new for image in entry.images}
    hints = journal_hints(results.clusterer.hints_, results.digests, said, mentioned)
    journal.append(*new)
    if hints != results.clusterer.hints_:
        results.clusterer._set_hints(hints)
    return len(new)
