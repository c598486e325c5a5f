"""From images to results: fit with a progress bar and a checkpoint, then write the folder of results.

All results are written into a staging folder first; :func:`tubal.storage.files.staged_folder` then makes them appear
at once.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import logging
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Protocol

import click
import numpy as np
from numpy.typing import NDArray

from tubal.cli.console import ProgressBar, Terminal
from tubal.cli.inputs import compare_with_labels, model_file
from tubal.cli.options import State
from tubal.images.folders import copy_members
from tubal.storage.files import (
    atomic_write,
    earlier_record,
    platform_name,
    same_place,
    sha256_of,
    to_plain,
    unused_name,
    versions,
)
from tubal.text import count, from_table_cell, safe_file_name, shape_text, table_cell

if TYPE_CHECKING:
    from distributed import Client
    from sklearn.base import BaseEstimator
    from sklearn.utils import Bunch

    from tubal.checkpoints import Checkpoint
    from tubal.clustering import ImageClusterer
    from tubal.graph.structure import Stage
    from tubal.images.reading import KeptPictures

__all__ = [
    "Plan",
    "check_apart",
    "check_output_file",
    "check_scheduler",
    "check_sorting",
    "checkpoint_beside",
    "cluster_images",
    "connected",
    "content_digests",
    "earlier_sorted_folder",
    "fit_clusterer",
    "fit_with_progress",
    "save_model",
    "show_summary",
    "write_clusters",
    "write_features",
]

# Time between two checkpoints of one stage; what takes longer, such as one coding pass, is lost in a crash.
CHECKPOINT_SECONDS = 2.0
LABEL_COLUMNS = ("file", "cluster", "confidence", "outlier", "near_duplicate_of")
SORTED_FOLDER = "clusters"
# Files that desktops leave in a folder that was only looked at.
DESKTOP_FILES = (".DS_Store", "Thumbs.db", "desktop.ini")


@dataclass
class Plan:
    """The request for a clustering; ``settings`` is written to ``run.json`` unchanged.

    ``out`` is where the results will stand, from which the report finds the original pictures. ``client`` is that of a
    Dask cluster.
    """

    source: str
    n_clusters: int | None
    preset: str = "default"
    seed: int = 0
    sort: str | None = None
    known_labels: Sequence[str] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None
    views: str | dict[str, NDArray[Any] | None] = "auto"
    client: Client | None = None


class Iteration(Protocol):
    """The progress of a fit, as its callbacks receive it."""

    @property
    def n_iter(self) -> int: ...

    @property
    def max_iter(self) -> int: ...


# --- fitting -----------------------------------------------------------------------------------------------------


def check_apart(source: str, out: Path) -> None:
    """Raise an error if the results would be written to the source, into it, or to a folder that holds it."""
    origin, place = Path(os.path.realpath(source)), Path(os.path.realpath(out))
    if any(same_place(origin, folder) for folder in (place, *place.parents)):
        relation = "is" if same_place(origin, place) else "lies in"
        name = place.name if relation == "lies in" else "tubal-out"
        other = origin.parent / name
    elif any(same_place(place, folder) for folder in origin.parents):
        relation, other = "holds", out / "tubal-out"
    else:
        return
    raise ValueError(
        f"{str(out)!r} {relation} the source {source!r}, and nothing is ever written there; "
        f"name another place, such as --out {shlex.quote(str(other))}"
    )


def check_output_file(out: Path, *, force: bool, source: str | None = None, model: Path | None = None) -> None:
    """Raise an error before any work if a file must not be replaced or its folder cannot be written to."""
    if source is not None:
        check_apart(source, out)
    if model is not None and same_place(out, model_file(model)):
        raise ValueError(f"{str(out)!r} is the model; name another file for the results")
    if out.exists() and not force:
        raise FileExistsError(f"{str(out)!r} exists already; name another file or use --force to replace it")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(out.parent)!r} to write {out.name!r} into")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"the folder {str(out.parent)!r} cannot be written to; name another file")


@contextlib.contextmanager
def checkpoint_beside(
    out: Path, resume: bool, terminal: Terminal, state: State
) -> Iterator[tuple[Checkpoint, KeptPictures]]:
    """Yield the checkpoint of a run that writes to ``out``, and the pictures it has read; delete both on success.

    They lie beside ``out`` as ``<name>.checkpoint`` and ``<name>.checkpoint.pictures``, not inside: a folder of results
    holds results only. A file of that name that is not a checkpoint is an error.
    """
    from tubal.checkpoints import Checkpoint
    from tubal.images.reading import KeptPictures

    named = out if out.name not in ("", "..") else out.resolve()
    path = named.with_name(f"{named.name}.checkpoint")
    checkpoint = Checkpoint(path, every_seconds=CHECKPOINT_SECONDS, resume=resume)
    with _resume_named():
        checkpoint.check_place()
    kept = KeptPictures(path.with_name(f"{path.name}.pictures"), resume=resume, every_seconds=CHECKPOINT_SECONDS)
    if resume and not (path.exists() or kept.exists()):
        terminal.print_line(f"there is no {path} to resume; starting from the beginning")
    if not resume and path.exists():
        terminal.print_line(
            f"starting from the beginning; to continue from {path}, stop and run: {state.command_with('--resume')}"
        )
    try:
        with _resume_named():
            yield checkpoint, kept
    except KeyboardInterrupt:
        if not (path.exists() or kept.exists()):
            kept.delete()  # its folder may be there already, with nothing in it
            raise
        raise click.ClickException(
            f"stopped; the progress is saved in {path}; to continue, run: {state.command_with('--resume')}"
        ) from None
    except Exception:
        if not resume and not path.exists():  # an error before the fit, such as a wrong argument, leaves nothing behind
            kept.delete()
        raise
    checkpoint.delete()
    kept.delete()


@contextlib.contextmanager
def _resume_named() -> Iterator[None]:
    """Call the parameter ``resume`` in errors as the command line does."""
    try:
        yield
    except (ValueError, OSError) as error:
        if "without resume" not in str(error):
            raise
        raise click.ClickException(str(error).replace("without resume", "without --resume")) from error


def check_scheduler(scheduler: str | None, state: State, preset: str = "default") -> None:
    """Raise an error for options that contradict ``--scheduler``."""
    if scheduler is None:
        return
    if state.device != "auto":
        raise click.UsageError("--device is about this machine and --scheduler computes on others; leave one out.")
    if preset == "paper":
        raise click.UsageError("--scheduler computes what the preset 'paper' does not need; leave one of them out.")


@contextlib.contextmanager
def connected(scheduler: str | None, state: State) -> Iterator[Client | None]:
    """Yield a client of the Dask cluster, or None; a cluster that cannot be reached fails before any work is done."""
    if scheduler is None:
        yield None
        return
    from tubal import distributed

    try:
        with _silent_logs(state), distributed.connect(scheduler) as client:
            yield client
    except distributed.LostSchedulerError as error:
        what = str(error).partition(";")[0]
        raise click.ClickException(f"{what}; start one and run: {state.command_with('--resume')}") from error


@contextlib.contextmanager
def _silent_logs(state: State) -> Iterator[None]:
    """Print no log, except with ``--debug``: Dask logs a traceback of every task that a lost connection ends."""
    before = logging.root.manager.disable
    if not state.debug:
        logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


def fit_with_progress(model: BaseEstimator, bar: ProgressBar, fit: Callable[[], object]) -> None:
    """Call ``fit`` while the stage's bar follows its iterations; the fitted model keeps no reference to the bar."""
    bar.describe("finding neighbours")

    def follow(progress: Iteration) -> None:
        bar.part("learning atoms and codes", progress.n_iter, progress.max_iter)

    model.set_params(callbacks=follow)
    try:
        fit()
    finally:
        model.set_params(callbacks=None)


def save_model(model: BaseEstimator, stack: Bunch, path: Path, *, force: bool = False) -> None:
    """Save a model and how its images were read; a clusterer also keeps their names, for ``tubal similar``.

    A file that has appeared in its place is only replaced with ``force``.
    """
    import tubal

    model.crop_, model.frame_fit_, model.value_range_ = stack.crop, stack.fit, stack.value_range
    if hasattr(model, "labels_"):
        model.file_names_ = np.array(stack.names, dtype=object)
        model.file_digests_ = np.array(content_digests(stack), dtype=object)
    place = path if force or not path.exists() else unused_name(path)
    tubal.save(model, place)
    if place != path:
        raise FileExistsError(f"{str(path)!r} appeared during the run and was not replaced; the model is in {place}")


def content_digests(stack: Bunch) -> list[str]:
    """Return a digest of the content of each image: of its file, or of its pixels if it has no file of its own.

    Files are known by it when they are renamed or moved.
    """
    if "digests" not in stack:
        stack.digests = [
            sha256_of(file) if own and os.path.isfile(file) else hashlib.sha256(image.tobytes()).hexdigest()
            for file, own, image in zip(stack.files, _with_own_file(stack), stack.images, strict=True)
        ]
    found: list[str] = stack.digests
    return found


# --- the results of a clustering ---------------------------------------------------------------------------------


def cluster_images(
    plan: Plan,
    stack: Bunch,
    stage: Path,
    terminal: Terminal,
    state: State,
    checkpoint: Checkpoint | None = None,
    teach: Callable[[ImageClusterer, Bunch], object] | None = None,
) -> dict[str, Any]:
    """Cluster the images, write all results into the folder ``stage``, and return the record of the run.

    ``teach`` is called with the fitted clusterer, to give it the hints that are known.
    """
    from tubal import ImageClusterer

    if len(stack.images) == 1:
        raise ValueError(f"there is only one picture, {stack.names[0]!r}; give at least two to sort into clusters")
    clusterer = ImageClusterer(plan.n_clusters, preset=plan.preset, views=plan.views, random_state=plan.seed)
    with terminal.stage("clustering") as bar:
        fit_clusterer(clusterer, stack.images, bar, state, checkpoint, plan.client)
    if teach is not None:
        with terminal.stage("applying hints"):
            teach(clusterer, stack)
    return write_clusters(plan, stack, clusterer, stage, terminal, state, checkpoint)


def write_clusters(
    plan: Plan,
    stack: Bunch,
    clusterer: ImageClusterer,
    stage: Path,
    terminal: Terminal,
    state: State,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Any]:
    """Write all results of a clusterer into the folder ``stage``, and return the record of the run.

    With a checkpoint, a later run need not draw the map nor explain images again.
    """
    from tubal.learning.checkpoints import Stages

    later = Stages() if checkpoint is None else checkpoint.stages_after(_hash_fitted(clusterer))
    scores = compare_with_labels(clusterer.labels_, plan.known_labels) if plan.known_labels is not None else None
    with terminal.stage("writing results") as bar:
        _write_results(stack, clusterer, stage, later.stage("map"), bar)
        if plan.sort:
            _sort_images(stage / SORTED_FOLDER, plan.sort, stack, clusterer, bar)
    record = _describe_run(plan, stack, clusterer, scores, state)
    with terminal.stage("drawing the report") as bar:
        explaining = later.stage("explanations", report=bar)
        _write_page(plan, stack, clusterer, record, stage / "report.html", explaining)
    record["seconds"] = dict(terminal.seconds)
    outputs = sorted(file for file in stage.iterdir() if file.is_file())
    record["outputs"] = {file.name: sha256_of(file) for file in outputs}
    (stage / "run.json").write_text(json.dumps(record, indent=2, default=to_plain) + "\n", encoding="utf-8")
    return record


def fit_clusterer(
    model: BaseEstimator,
    images: NDArray[Any],
    bar: ProgressBar,
    state: State,
    checkpoint: Checkpoint | None,
    client: Client | None = None,
) -> None:
    """Fit a model while a bar shows the progress: on the device that was chosen, or a clusterer on a cluster."""
    if client is None:
        from tubal.backends.arrays import to_device

        model.fit(to_device(images, state.device), checkpoint=checkpoint, progress=bar.part)
        return
    from tubal import distributed

    distributed.cluster(images, client, model=model, checkpoint=checkpoint, progress=bar.part)


def _write_results(stack: Bunch, clusterer: ImageClusterer, stage: Path, drawing: Stage, bar: ProgressBar) -> None:
    """Write the tables and the model."""
    steps: list[tuple[str, Callable[[], object]]] = [
        ("drawing the map", lambda: _draw_map(clusterer, drawing)),
        ("writing the tables", lambda: _write_tables(stack, clusterer, stage)),
        ("saving the model", lambda: save_model(clusterer, stack, stage / "model.tubal")),
    ]
    for done, (name, step) in enumerate(steps):
        bar.describe(name)
        bar(done, len(steps))
        step()
    bar(len(steps), len(steps))


def _draw_map(clusterer: ImageClusterer, drawing: Stage) -> None:
    """Draw the map, or take the one that an interrupted run has drawn."""
    kept = drawing.kept()
    if "embedding" in kept:
        clusterer.embedding_ = kept["embedding"]
    found = {"embedding": clusterer.embedding_}
    if not kept:
        drawing.keep(lambda: found, finished=True)


def _write_tables(stack: Bunch, clusterer: ImageClusterer, stage: Path) -> None:
    """Write labels.csv, skipped.csv and features.npz."""
    from tubal.backends.arrays import to_numpy

    _write_labels(stage / "labels.csv", stack.names, clusterer)
    with _open_csv(stage / "skipped.csv") as stream:
        rows = [(table_cell(name), reason) for name, reason in stack.skipped]
        csv.writer(stream).writerows([("file", "reason"), *rows])
    write_features(
        stage / "features.npz",
        stack.names,
        features=to_numpy(clusterer.features_),
        embedding=to_numpy(clusterer.embedding_),
        labels=to_numpy(clusterer.labels_),
    )


def _write_labels(path: Path, names: Sequence[str], clusterer: ImageClusterer) -> None:
    """Write one row per image: name, cluster, confidence, whether it is an outlier, which image it nearly equals."""
    from tubal.report.from_clusterer import as_mask, first_of_group

    outliers = as_mask(clusterer.outliers_, len(names))
    originals = first_of_group(clusterer.duplicates_, len(names))
    with _open_csv(path) as stream:
        writer = csv.writer(stream)
        named = any(name is not None for name in clusterer.names_)
        writer.writerow([*LABEL_COLUMNS, "name"] if named else LABEL_COLUMNS)
        for i, name in enumerate(names):
            original = names[originals[i]] if originals[i] >= 0 else ""
            confidence = f"{clusterer.confidence_[i]:.4f}"
            row = [table_cell(name), int(clusterer.labels_[i]), confidence, int(outliers[i]), table_cell(original)]
            said = [table_cell(clusterer.names_[clusterer.labels_[i]] or "")] if named else []
            writer.writerow(row + said)


def write_features(path: Path, names: Sequence[str], **arrays: NDArray[Any]) -> None:
    """Write arrays of one row per image, and the names of the images, as a compressed ``.npz`` file."""
    with atomic_write(path) as stream:
        np.savez_compressed(stream, names=np.array(names, dtype=str), allow_pickle=False, **arrays)


def _sort_images(folder: Path, how: str, stack: Bunch, clusterer: ImageClusterer, bar: ProgressBar) -> None:
    """Put every image into one folder per cluster, as a copy or a link; images without a file of their own as PNG."""
    packed = _packed_files(stack)
    own = [file or bool(member) for file, (_, member) in zip(_with_own_file(stack), packed, strict=True)]
    waiting: dict[str, dict[str, Path]] = {}
    labels = clusterer.labels_
    digits = len(str(int(labels.max(initial=0))))
    names = [name if is_own else f"{name}.png" for name, is_own in zip(stack.names, own, strict=True)]
    said = [clusterer.names_[label] or "" for label in labels]
    places = [_sorted_place(name, int(i), digits, text) for name, i, text in zip(names, labels, said, strict=True)]
    first: dict[Path, int] = {}
    for i in sorted(range(len(own)), key=lambda index: not own[index]):
        first.setdefault(places[i], i)
    # Files keep their names where they can, so they come first. Further images of a name get a number.
    for done, i in enumerate(sorted(range(len(own)), key=lambda index: first[places[index]] != index)):
        bar.part("sorting pictures", done, len(own))
        place = folder / places[i]
        place.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(place):
            place = unused_name(place)
        archive, member = packed[i]
        if not own[i]:
            _save_png(place, stack.images[i])
        elif member:
            place.touch()  # its name is taken
            waiting.setdefault(archive, {})[member] = place
        elif how == "link":
            os.symlink(stack.files[i], place)
        else:
            shutil.copy2(stack.files[i], place)
    for archive, members in waiting.items():
        if lost := set(members) - copy_members(Path(archive), members):
            raise OSError(f"{archive!r} changed during the run: {min(lost)!r} is not in it any more")
    bar.part("sorting pictures", len(own), len(own))


def check_sorting(how: str | None, stack: Bunch, stage: Path) -> None:
    """Raise an error before the fit if the images cannot be sorted as asked."""
    if how != "link":
        return
    if not any(_with_own_file(stack)):
        raise ValueError("--sort link needs images in files of their own, and these have none; use --sort copy")
    try:
        os.symlink(stack.files[0], stage / "link")
        os.unlink(stage / "link")
    except OSError as error:
        raise OSError(f"--sort link: links cannot be made here ({error.strerror}); use --sort copy") from error


def _with_own_file(stack: Bunch) -> list[bool]:
    """Tell which images are the only one of their file."""
    uses = Counter(stack.files)
    return [bool(file) and uses[file] == 1 for file in stack.files]


def _packed_files(stack: Bunch) -> list[tuple[str, str]]:
    """Return the archive and the name in it of each image that is the only one of its file there, else empty texts."""
    packed: list[tuple[str, str]] = stack.get("packed", [("", "")] * len(stack.names))
    uses = Counter(packed)
    return [place if place[1] and uses[place] == 1 else ("", "") for place in packed]


def _sorted_place(name: str, label: int, digits: int, said: str = "") -> Path:
    """Return where an image is put among the sorted ones: the folder of its cluster, without folders of its source.

    The name of a cluster is part of its folder's, without characters that some systems do not allow.

    >>> _sorted_place("june/beach/1.jpg", 3, digits=2).as_posix()
    'cluster-03/1.jpg'
    >>> _sorted_place("1.jpg", 3, digits=2, said="sea / sky").as_posix()
    'cluster-03 sea _ sky/1.jpg'
    """
    text = safe_file_name(said)
    # Names need not come from a folder that was walked, so a name such as ".." must not lead anywhere.
    last = PurePosixPath(name).name
    folder = f"cluster-{label:0{digits}d}{' ' if text else ''}{text}"
    return Path(folder) / (last if last not in ("", "..", ".") else "image")


def _save_png(path: Path, image: NDArray[np.float32]) -> None:
    from PIL import Image

    Image.fromarray(np.uint8(np.clip(image, 0, 1) * 255 + 0.5)).save(path)


def _open_csv(path: Path) -> IO[str]:
    # A file name need not be valid Unicode; surrogateescape writes its original bytes.
    return open(path, "w", encoding="utf-8", errors="surrogateescape", newline="")


def _write_page(
    plan: Plan, stack: Bunch, clusterer: ImageClusterer, record: Mapping[str, Any], path: Path, explaining: Stage
) -> None:
    """Write report.html."""
    from tubal.report import write_report
    from tubal.report.from_clusterer import report_data
    from tubal.report.page import relative_address

    originals = None
    if plan.out is not None:
        own = _with_own_file(stack)
        originals = [relative_address(f, plan.out) if alone else "" for f, alone in zip(stack.files, own, strict=True)]
    data = report_data(
        clusterer,
        stack.images,
        stack.names,
        true_labels=plan.known_labels,
        scores=record["scores"],
        provenance=record,
        originals=originals,
        title=f"{Path(plan.source).name or plan.source}: {count(record['clusters'], 'cluster')}",
        stage=explaining,
    )
    write_report(data, path)


# Images with a lower confidence are doubtful, as in the report.
DOUBTFUL = 0.5


# --- the record of a run -----------------------------------------------------------------------------------------


def _describe_run(
    plan: Plan, stack: Bunch, clusterer: ImageClusterer, scores: Mapping[str, float] | None, state: State
) -> dict[str, Any]:
    """Return the record of a run: what was found, settings, versions, seed and hashes."""
    from tubal.report.from_clusterer import as_mask

    sizes = np.bincount(clusterer.labels_)
    return {
        "source": plan.source,
        "images": len(stack.images),
        "image_shape": list(stack.images.shape[1:]),
        "rule": stack.rule,
        "skipped": len(stack.skipped),
        "views": {name: round(trust, 3) for name, trust in clusterer.view_weights_.items()},
        "clusters": len(sizes),
        "cluster_sizes": sizes.tolist(),
        "cluster_names": list(clusterer.names_),
        "hints": len(clusterer.hints_.images),
        "plausible_clusters": clusterer.n_clusters_candidates_.tolist(),
        "mean_confidence": round(float(clusterer.confidence_.mean()), 4),
        "doubtful": int((clusterer.confidence_ < DOUBTFUL).sum()),
        "outliers": int(as_mask(clusterer.outliers_, len(stack.images)).sum()),
        "duplicate_groups": len(clusterer.duplicates_),
        "scores": scores,
        "settings": {
            **plan.settings,
            "clusters": plan.n_clusters,
            "preset": plan.preset,
            "device": state.device,
            "threads": state.threads,
        },
        "seed": plan.seed,
        "versions": {**versions(), "platform": platform_name()},
        "images_sha256": _hash_images(stack.images),
        "files": [os.path.abspath(file) if file else "" for file in stack.files],
        "command": ["tubal", *state.arguments],
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _hash_images(images: NDArray[np.float32]) -> str:
    """Return the SHA-256 of the pixels that were clustered, and of their shape."""
    digest = hashlib.sha256(repr(images.shape).encode())
    digest.update(np.ascontiguousarray(images).data)
    return digest.hexdigest()


def _hash_fitted(clusterer: ImageClusterer) -> str:
    """Return a digest of what the map and the explanations depend on."""
    from tubal.backends.arrays import to_numpy
    from tubal.learning.alternation import digest_arrays

    arrays = [to_numpy(clusterer.labels_), to_numpy(clusterer.model_.atoms_), clusterer.affinity_.data]
    return digest_arrays((clusterer.seed_,), arrays)


def _is_real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def earlier_sorted_folder(folder: Path) -> tuple[str, ...]:
    """Return the name of the folder of sorted images that an earlier run left; any other such folder is an error."""
    if not (folder / SORTED_FOLDER).is_dir():
        return ()
    if not earlier_record(folder).get("settings", {}).get("sort"):
        raise FileExistsError(
            f"{str(folder / SORTED_FOLDER)!r} exists and is not from an earlier run; move it somewhere else"
        )
    foreign = _foreign_files(folder)
    if foreign:
        raise FileExistsError(
            f"{str(folder / SORTED_FOLDER / foreign[0])!r} was not put there by tubal and would be deleted; "
            "move it somewhere else"
        )
    return (SORTED_FOLDER,)


def _foreign_files(folder: Path) -> list[str]:
    """Return the files among the sorted images of an earlier run that its table does not list."""
    rows: list[tuple[str, int, str]] = []
    with (
        contextlib.suppress(OSError, KeyError, TypeError, ValueError),  # without the table, nothing is known to be ours
        open(folder / "labels.csv", encoding="utf-8", errors="surrogateescape", newline="") as stream,
    ):
        rows = [
            (from_table_cell(row["file"]), int(row["cluster"]), from_table_cell(row.get("name") or ""))
            for row in csv.DictReader(stream)
        ]
    digits = len(str(max((label for _, label, _ in rows), default=0)))
    places = [_sorted_place(name, label, digits, said).as_posix() for name, label, said in rows]
    # The table does not tell which images have no file of their own and were saved as PNG.
    uses = Counter([*places, *(f"{place}.png" for place in places)])
    sorted_folder = folder / SORTED_FOLDER
    found = [path for path in sorted_folder.rglob("*") if path.name not in DESKTOP_FILES and not _is_real_folder(path)]
    names = sorted(path.relative_to(sorted_folder).as_posix() for path in found)
    # Where several images share a name, all but the first have a number.
    return [name for name in names if name not in uses and uses[re.sub(r"-\d+(\.[^./]*)?$", r"\1", name)] < 2]


def name_other_numbers(record: Mapping[str, Any]) -> str:
    """Return a sentence with the next most plausible numbers of clusters, and the command that uses the first.

    >>> name_other_numbers({"plausible_clusters": [14, 10, 30], "command": ["tubal", "cluster", "my photos"]})
    "14 clusters fit best, 10 or 30 nearly as well; for 10, run: tubal cluster 'my photos' --clusters 10 --force"
    """
    best, *others = record["plausible_clusters"]
    command = [part for part in record["command"] if part not in ("--force", "--resume")]
    again = shlex.join([*command, "--clusters", str(others[0]), "--force"])
    return f"{best} clusters fit best, {' or '.join(map(str, others))} nearly as well; for {others[0]}, run: {again}"


def describe_trust(record: Mapping[str, Any]) -> str:
    """Return a sentence on how far the clusters can be trusted, and what to try.

    >>> describe_trust({"mean_confidence": 0.93, "doubtful": 4, "images": 200})
    'About 93 % of the images are probably in the right cluster; look through the 4 doubtful ones in the report.'
    """
    share = f"About {100 * record['mean_confidence']:.0f} % of the images are probably in the right cluster"
    if record["mean_confidence"] < 0.7:
        return f"{share}, so take the clusters as a first guess; try another number of clusters with -k."
    if record["doubtful"] == 0:
        return f"{share}; none is doubtful."
    doubtful = "doubtful one" if record["doubtful"] == 1 else f"{record['doubtful']} doubtful ones"
    return f"{share}; look through the {doubtful} in the report."


def views_text(trust: Mapping[str, float]) -> str:
    """Return how images were compared, in words.

    >>> views_text({"shape": 1.0, "colour": 0.0, "semantic": 0.37})
    'shape 1.00, semantic 0.37 (not by colour)'
    """
    used = ", ".join(f"{name} {value:.2f}" for name, value in trust.items() if value > 0.0)
    unused = [name for name, value in trust.items() if value <= 0.0]
    used = used if len(trust) > 1 else next(iter(trust))
    return f"{used} (not by {' or '.join(unused)})" if unused else used


def show_summary(terminal: Terminal, record: Mapping[str, Any], out: Path) -> None:
    """Print the table at the end of a run, and the record as JSON if ``--json`` was given."""
    sizes, scores = record["cluster_sizes"], record["scores"]
    estimated = ", estimated" if record["settings"]["clusters"] is None else ""
    rows = [
        ("images", f"{record['images']} of {shape_text(record['image_shape'])}, {record['skipped']} skipped"),
        ("clusters", f"{record['clusters']}{estimated} (smallest {min(sizes)}, largest {max(sizes)})"),
        ("compared by", views_text(record["views"])),
        ("outliers", str(record["outliers"])),
        ("near-duplicates", count(record["duplicate_groups"], "group")),
    ]
    if scores:
        text = f"accuracy {scores['accuracy']} %, NMI {scores['nmi']} %, purity {scores['purity']} %"
        rows.append(("against labels", text))
    rows.append(("time", f"{sum(record['seconds'].values()):.1f} s"))
    terminal.print_table(rows)
    if estimated and len(record["plausible_clusters"]) > 1:
        terminal.print_line(name_other_numbers(record))
    terminal.print_line(describe_trust(record))
    terminal.print_line(f"Answer questions and sort the rest in the browser: {shlex.join(['tubal', 'open', str(out)])}")
    # Not in the table: a path folded into a column cannot be copied.
    terminal.print_line(f"Open {out / 'report.html'}")
    shown = {name: value for name, value in record.items() if name != "files"}  # labels.csv lists them
    terminal.print_json({**shown, "out": str(out)})
