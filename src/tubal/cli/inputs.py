"""What a command reads: images, saved models, and known labels to compare clusters with."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tubal.cli.console import Terminal
from tubal.cli.options import ImageSettings, State
from tubal.text import count, from_table_cell, shape_text

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator
    from sklearn.utils import Bunch

    from tubal.backends.network import SeenPictures
    from tubal.clustering import ImageClusterer
    from tubal.images.pictures import SecondLook
    from tubal.images.reading import KeptPictures

__all__ = [
    "NetworkLook",
    "check_label_file",
    "choose_views",
    "coder_of",
    "compare_with_labels",
    "described_views",
    "image_shape_of",
    "is_collection",
    "look_for",
    "model_file",
    "name_of",
    "open_model",
    "read_images",
    "read_images_for",
    "read_labels",
    "second_look",
    "show_skipped",
]

# Column names of a CSV file of labels, in order of preference.
FILE_COLUMNS = ("file", "name", "image", "path", "filename")
LABEL_COLUMNS = ("label", "class", "target", "truth", "category", "cluster")
# How many skipped files are printed.
SHOWN_SKIPPED = 10
# How the library says that a picture has too many pixels.
_LIMIT, _TOO_LARGE = "(max_pixels)", re.compile(r"too large: (\d+) pixels")


# --- images ------------------------------------------------------------------------------------------------------


def is_collection(sources: Sequence[str]) -> bool:
    """Tell whether SOURCE names a collection rather than files, folders or standard input."""
    return len(sources) == 1 and sources[0] != "-" and not Path(sources[0]).exists()


def name_of(sources: Sequence[str]) -> str:
    """Return what a run is called: its source, or the last parts of several.

    >>> name_of(["photos/june", "photos/july.zip"])
    'june, july.zip'
    """
    return sources[0] if len(sources) == 1 else ", ".join(Path(source).name for source in sources)


def read_images(
    terminal: Terminal,
    state: State,
    source: str | Sequence[str],
    settings: ImageSettings,
    *,
    look: SecondLook | None = None,
    kept: KeptPictures | None = None,
    listed_in: str = "",
) -> Bunch:
    """Read SOURCE with a progress bar, and print what was read and the first files that were skipped.

    ``kept`` holds the pictures that an interrupted run has read. ``listed_in`` says where all skipped files will be
    listed.
    """
    given = cast(ImageSettings, {name: value for name, value in settings.items() if value is not None})
    with terminal.stage("reading images") as bar:
        from tubal.datasets import load_images
        from tubal.images.folders import NoPictureError

        try:
            stack = load_images(source, **given, n_threads=state.threads, progress=bar, look=look, kept=kept)
        except NoPictureError as error:
            raise NoPictureError(_name_the_option(str(error), state), error.skipped) from error
        except ValueError as error:
            raise ValueError(_name_the_option(str(error), state)) from error
    stack.skipped = [(name, reason.replace(_LIMIT, "(--max-pixels)")) for name, reason in stack.skipped]
    terminal.print_line(stack.rule)
    show_skipped(stack.skipped, terminal, state, listed_in)
    return stack


def show_skipped(skipped: Sequence[tuple[str, str]], terminal: Terminal, state: State, listed_in: str = "") -> None:
    """Print the first skipped files with reasons, where the others are listed, and how to read too large ones."""
    for name, reason in skipped[:SHOWN_SKIPPED]:
        terminal.print_line(f"skipped {name!r} ({reason})")
    if len(skipped) > SHOWN_SKIPPED:
        others = count(len(skipped) - SHOWN_SKIPPED, "other file")
        terminal.print_line(f"skipped {others}; {listed_in or '--json'} lists all")
    needed = [int(found[1]) for _, reason in skipped if (found := _TOO_LARGE.match(reason))]
    if needed:
        terminal.print_line(f"to read the largest too, run: {state.command_with('--max-pixels', str(max(needed)))}")


def _name_the_option(message: str, state: State) -> str:
    """Return a message about a picture that is too large with the command that reads it."""
    found = _TOO_LARGE.search(message)
    if found is None:
        return message
    return f"{message.replace(_LIMIT, '(--max-pixels)')}, or run: {state.command_with('--max-pixels', found[1])}"


def read_images_for(
    model: BaseEstimator,
    terminal: Terminal,
    state: State,
    source: str | Sequence[str],
    settings: ImageSettings,
    *,
    look: SecondLook | None = None,
) -> Bunch:
    """Read SOURCE as the images that a model was fitted on: in their size and colour, cut, fitted and scaled alike."""
    height, width, *channels = image_shape_of(model)
    fixed: ImageSettings = {**settings, "size": (height, width), "colour": "rgb" if channels else "grey"}
    if settings.get("crop", "auto") == "auto":
        fixed["crop"] = str(getattr(model, "crop_", "none"))
    if settings.get("fit") is None:
        fixed["fit"] = str(getattr(model, "frame_fit_", "pad"))
    fixed["value_range"] = getattr(model, "value_range_", None)
    return read_images(terminal, state, source, fixed, look=look)


# --- the network -------------------------------------------------------------------------------------------------


class NetworkLook:
    """Shows pictures to the network, which is loaded with the first of them.

    Parameters
    ----------
    earlier : Path or None, default=None
        What an earlier run saw, see :class:`tubal.backends.network.SeenPictures`.
    """

    def __init__(self, earlier: Path | None = None) -> None:
        self._earlier = earlier
        self._seen: SeenPictures | None = None

    def describe(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the features (m, d) of pictures (m, side, side, 3)."""
        if self._seen is None:
            from tubal.backends.network import SeenPictures

            self._seen = SeenPictures(self._earlier)
        return self._seen.describe(pictures)

    def save(self, path: Path) -> None:
        """Write what was seen for a later run, if anything was, and forget it."""
        if self._seen is not None:
            self._seen.save(path)
            self._seen = None


def second_look(network: NetworkLook, views: str, preset: str) -> SecondLook | None:
    """Return what shows pictures to the network while they are read; None without one of its views."""
    from tubal.backends.network import SIDE, has_gpu, why_missing
    from tubal.clustering.views import BUILT_IN, FROM_NETWORK, LEAST_SIDE, MOST_WITHOUT_GPU, SHAPE
    from tubal.images.pictures import SecondLook

    names = views.split(",")
    if not set(names) <= {SHAPE, *BUILT_IN} and views != "auto":
        known = ", ".join((SHAPE, *BUILT_IN))
        raise ValueError(f"--views {views!r} is not 'auto' or some of {known}, separated by commas")
    if preset == "paper" and views != "auto":
        raise ValueError(f"--views {views}: --preset paper compares pictures by its codes alone; leave out one of them")
    if preset != "default" or not set(names) & {"auto", *FROM_NETWORK}:
        return None
    if views == "auto":
        return SecondLook(
            network.describe,
            SIDE,
            least_side=LEAST_SIDE,
            ready=lambda n_pictures: not why_missing() and (n_pictures <= MOST_WITHOUT_GPU or has_gpu()),
        )
    if why_missing():
        raise ValueError(f"--views {views}: {why_missing()}")
    return SecondLook(network.describe, SIDE, least_side=1, ready=lambda n_pictures: True)


def choose_views(terminal: Terminal, views: str, preset: str, stack: Bunch) -> str | dict[str, NDArray[Any] | None]:
    """Return the views of a clusterer; what the network saw in the pictures takes the place of its name.

    Prints one line if pictures are compared without a network because it is not installed.
    """
    from tubal.backends.network import why_missing
    from tubal.clustering.views import COLOUR, FROM_NETWORK, LEAST_SIDE, SHAPE, has_colour, network_parts

    if views == "auto" and stack.described is None:
        could_help = preset == "default" and any(stack.files) and max(stack.images.shape[1:3]) >= LEAST_SIDE
        if could_help and (missing := why_missing()):
            terminal.print_line(f"compared without a network for photographs: {missing}")
        return "auto"
    names = views.split(",")
    _check_suited(names, stack)
    if views == "auto":
        names = [SHAPE, *([COLOUR] if has_colour(stack.images) else []), *FROM_NETWORK]
    parts = {} if stack.described is None else network_parts(stack.described)
    described = {name: np.ascontiguousarray(rows) for name, rows in parts.items()}
    stack.described = None  # the views hold it from now on, and it takes more memory than the pictures
    return {name: described.get(name) for name in names}


def _check_suited(names: Sequence[str], stack: Bunch) -> None:
    """Raise an error before the fit if pictures cannot be compared in one of the views."""
    from tubal.clustering.views import COLOUR, LEAST_TEXTURED, TEXTURE

    reason, unsuited = "", ""
    if COLOUR in names and stack.images.ndim == 3:
        unsuited, reason = COLOUR, "the pictures are grey"
    elif TEXTURE in names and min(stack.images.shape[1:3]) < LEAST_TEXTURED:
        size, least = shape_text(stack.images.shape[1:3]), shape_text((LEAST_TEXTURED, LEAST_TEXTURED))
        unsuited, reason = TEXTURE, f"it needs pictures of at least {least} pixels, and these have {size} (--size)"
    if unsuited:
        others = ",".join(name for name in names if name != unsuited) or "auto"
        raise ValueError(f"pictures cannot be compared by {unsuited}: {reason}; give --views {others}")


def look_for(clusterer: ImageClusterer, terminal: Terminal) -> SecondLook | None:
    """Return what shows new pictures to the network, if the model's own pictures were shown to it."""
    from tubal.backends.network import why_missing
    from tubal.clustering.views import FROM_NETWORK

    trust, sources = getattr(clusterer, "view_weights_", {}), getattr(clusterer, "views_", {})
    if not any(trust.get(name, 0.0) > 0.0 and sources[name] == "given" for name in FROM_NETWORK):
        return None

    missing = why_missing()
    if missing:
        terminal.print_line(f"compared without a network for photographs: {missing}")
        return None
    return second_look(NetworkLook(), "semantic", "default")


def described_views(clusterer: ImageClusterer, stack: Bunch) -> dict[str, NDArray[Any]]:
    """Return what the network saw in new pictures, for the views of a model that came from it."""
    from tubal.clustering.views import network_parts

    parts = {} if stack.described is None else network_parts(stack.described)
    return {name: rows for name, rows in parts.items() if name in clusterer.view_graphs_}


# --- models ------------------------------------------------------------------------------------------------------


def model_file(path: Path) -> Path:
    """Return the file of a model, given that file or the results folder that holds it."""
    return path / "model.tubal" if path.is_dir() else path


def open_model(path: Path) -> BaseEstimator:
    """Load a model from its file or its results folder."""
    import tubal

    file = model_file(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no model {str(file)!r}; make one with tubal cluster or tubal fit")
    return tubal.load(file)


def coder_of(model: BaseEstimator) -> BaseEstimator:
    """Return the sparse coder: the model itself, or the one inside a clusterer."""
    return getattr(model, "model_", model)


def image_shape_of(model: BaseEstimator) -> tuple[int, ...]:
    """Return the shape of the images that a model was fitted on."""
    return tuple(coder_of(model).image_shape_)


# --- known labels ------------------------------------------------------------------------------------------------


def check_label_file(choice: str | None) -> None:
    """Raise an error before any image is read if ``--labels`` names a file that is not there."""
    if choice not in (None, "folders", "given") and not Path(str(choice)).is_file():
        raise FileNotFoundError(f"there is no file of labels {choice!r}; give a CSV file, 'folders' or 'given'")


def read_labels(choice: str | None, stack: Bunch, *, is_collection: bool) -> list[str] | None:
    """Return the known label of each image, empty where unknown, or ``None`` if no labels are known.

    ``choice`` is the value of ``--labels``: ``"folders"``, ``"given"`` or the path of a CSV file. A collection comes
    with labels of its own. Labels are only compared with the clusters, never used to find them.
    """
    if choice is None:
        return _as_text(stack.target) if is_collection and stack.target is not None else None
    if choice == "folders":
        parents = [PurePosixPath(name).parent.as_posix() for name in stack.names]
        if len(set(parents)) < 2:
            raise ValueError("--labels folders needs images in at least two sub-folders, one for each label")
        return parents
    if choice == "given":
        if stack.target is None:
            raise ValueError("--labels given: these images come without labels; give a CSV with columns file, label")
        return _as_text(stack.target)
    return _read_label_file(Path(choice), stack.names)


def compare_with_labels(clusters: ArrayLike, labels: Sequence[str]) -> dict[str, float]:
    """Score clusters against known labels, in percent; images without a label are left out."""
    from tubal.metrics import clustering_accuracy, clustering_nmi, purity

    known = np.array([bool(label) for label in labels])
    if not known.any():
        raise ValueError("no image has a known label; check that the names in the file of labels match the images")
    given = np.unique(np.array(labels)[known], return_inverse=True)[1]
    found = np.asarray(clusters)[known]
    return {
        "accuracy": round(100.0 * clustering_accuracy(given, found), 2),
        "nmi": round(100.0 * clustering_nmi(given, found), 2),
        "purity": round(100.0 * purity(given, found), 2),
        "labelled_images": int(known.sum()),
    }


def _as_text(target: ArrayLike) -> list[str]:
    values = np.asarray(target)
    if values.dtype.kind == "f":
        values = values.astype(np.int64)
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]


def _read_label_file(path: Path, names: Sequence[str]) -> list[str]:
    """Return the label of each named image; a file of one column lists them in the order of the images."""
    check_label_file(str(path))
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except csv.Error as error:
        raise ValueError(f"{str(path)!r} is not a CSV file: {error}") from error
    labels = _parse_label_rows(rows, path)
    if isinstance(labels, list):
        if len(labels) != len(names):
            raise ValueError(
                f"{str(path)!r} has {count(len(labels), 'label')} for {count(len(names), 'image')}; add a column 'file'"
            )
        return labels
    by_file_name = _by_file_name(labels)
    found = [labels.get(name) or by_file_name.get(PurePosixPath(name).name, "") for name in names]
    if not any(found):
        raise ValueError(
            f"no image has a label in {str(path)!r}: it names {next(iter(labels), 'no file')!r}, for example, "
            f"and the first image is {names[0]!r}; the names must match"
        )
    return found


def _parse_label_rows(rows: list[list[str]], path: Path) -> dict[str, str] | list[str]:
    """Return labels by image name, or a plain list for a file of one column."""
    head = [cell.strip().lower() for cell in rows[0]] if rows else []
    file = next((head.index(column) for column in FILE_COLUMNS if column in head), None)
    label = next((head.index(column) for column in LABEL_COLUMNS if column in head), None)
    if file is not None and label is not None:
        return {from_table_cell(row[file]): row[label].strip() for row in rows[1:] if len(row) > max(file, label)}
    if file is None and label is not None and len(head) == 1:
        return [row[0].strip() for row in rows[1:]]
    if head and label is None and file is None and len(head) <= 2:
        return [row[0].strip() for row in rows] if len(head) == 1 else {row[0]: row[-1].strip() for row in rows}
    raise ValueError(f"{str(path)!r} has the columns {', '.join(head) or '(none)'}; wanted file and label")


def _by_file_name(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels by the last part of the image's path, where that is unique."""
    last_parts = {name: PurePosixPath(name).name for name in labels}
    counts = Counter(last_parts.values())
    return {last: labels[name] for name, last in last_parts.items() if counts[last] == 1}
