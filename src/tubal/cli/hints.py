"""``tubal ask``, ``tubal refine`` and ``tubal add``: results that learn from a person, and grow.

Answers are kept in a journal beside the results, ``<results>.hints``. A command first writes what is new to the journal
and then all results again, at once. So a run that is killed loses nothing: the next one applies what the journal holds.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Unpack

import click
import numpy as np

from tubal.app.results import Results, add_entries, image_names, journal_of, why_contradicting
from tubal.cli.inputs import FILE_COLUMNS, read_images_for, show_skipped
from tubal.cli.options import ImageSettings, Source, State, applying_options, count_option, json_option
from tubal.storage.files import reserve
from tubal.storage.journal import Entry
from tubal.text import count, from_table_cell

if TYPE_CHECKING:
    from sklearn.utils import Bunch

    from tubal.cli.console import Terminal
    from tubal.clustering import ImageClusterer

__all__ = ["add", "ask", "check_hint_file", "refine", "teach_known_hints", "write_results"]

# Columns of a table that hold a name, in order of preference; "name" is that of labels.csv.
NAME_COLUMNS = ("label", "class", "target", "truth", "category", "name")
# Columns of the table that the report writes, and the names that it gives to clusters that nobody has named.
EDITED_COLUMNS, UNNAMED = {"cluster", "cluster_name", "cluster_found"}, re.compile(r"Cluster \d+")
UNDO, QUIT = "/undo", "/quit"
# Answers between two sentences about how many images are still doubtful.
ROUND = 10

results_argument = click.argument("results", type=click.Path(path_type=Path, exists=True, file_okay=False))


# --- results -----------------------------------------------------------------------------------------------------
def write_results(
    results: Results, terminal: Terminal, state: State, *, sort: str | None = None, hidden: Path | None = None
) -> dict[str, Any]:
    """Replace the results in the folder by those of the clusterer, all at once.

    ``hidden`` is the folder of a reservation that the caller holds already.
    """
    from tubal.cli.pipeline import Plan, check_sorting, earlier_sorted_folder, write_clusters
    from tubal.storage.files import staged_folder

    record, out = results.record, results.out
    settings = dict(record["settings"])
    how = sort or settings.get("sort")
    stale = earlier_sorted_folder(out)
    with staged_folder(out, force=True, stale=stale, hidden=hidden) as stage:
        stack = results.stack()
        check_sorting(how, stack, stage)
        plan = Plan(
            str(record.get("source", out)),
            settings.get("clusters"),
            str(settings.get("preset", "default")),
            int(record.get("seed", 0)),
            how,
            None,
            {**settings, "sort": how},
            out,
        )
        return write_clusters(plan, stack, results.clusterer, stage, terminal, state)


# --- tables of hints ---------------------------------------------------------------------------------------------
def check_hint_file(choice: str | None) -> None:
    """Raise an error before any work if ``--hints`` names a file that is not there."""
    if choice not in (None, "folders") and not Path(str(choice)).is_file():
        raise FileNotFoundError(f"there is no file of hints {choice!r}; give a CSV file, or 'folders'")


def read_hints(choice: str, names: Sequence[str], digests: Sequence[str], clusterer: ImageClusterer) -> list[Entry]:
    """Return the answers in a table, or the names of the sub-folders as answers."""
    if choice == "folders":
        said = {name: PurePosixPath(name).parent.as_posix() for name in names}
        said = {name: folder for name, folder in said.items() if folder != "."}
        if not said:
            raise ValueError("--hints folders needs images in sub-folders, whose names are hints")
        return _name_entries(said, names, digests)
    rows, head = _read_table(Path(choice))
    if set(head) >= EDITED_COLUMNS:
        return _edited_entries(rows, names, digests, clusterer, choice)
    file = next((column for column in FILE_COLUMNS if column in head and column != "name"), None)
    label = next((column for column in NAME_COLUMNS if column in head), None)
    if file is None or label is None:
        raise ValueError(f"{choice!r} has the columns {', '.join(head) or '(none)'}; wanted path and label")
    said = {from_table_cell(row[file] or ""): from_table_cell(row[label] or "").strip() for row in rows}
    return _name_entries({name: text for name, text in said.items() if text}, names, digests, choice)


def _read_table(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            reader = csv.DictReader(stream)
            head = [(cell or "").strip().lower() for cell in reader.fieldnames or []]
            reader.fieldnames = head
            return list(reader), head
    except csv.Error as error:
        raise ValueError(f"{str(path)!r} is not a CSV file: {error}") from error


def _name_entries(
    said: Mapping[str, str], names: Sequence[str], digests: Sequence[str], table: str = ""
) -> list[Entry]:
    """Return an answer for each image that has a name; equal images must have equal names."""
    last_part = {PurePosixPath(name).name: name for name in said}
    found: dict[str, tuple[str, str]] = {}
    for name, digest in zip(names, digests, strict=True):
        key = name if name in said else last_part.get(PurePosixPath(name).name, "")
        if key not in said:
            continue
        text, other = said[key], found.get(digest)
        if other is not None and other[0] != text:
            raise ValueError(
                f"{other[1]!r} is named {other[0]!r} and {name!r} is named {text!r}, but they are the same picture; "
                "correct one of them"
            )
        found.setdefault(digest, (text, name))
    if said and not found:
        raise ValueError(
            f"no image has a name in {table!r}: it names {next(iter(said))!r}, for example, and the first image is "
            f"{names[0]!r}; the paths must match"
        )
    return [Entry("name", (digest,), text, (name,)) for digest, (text, name) in found.items()]


def _edited_entries(
    rows: Sequence[Mapping[str, str]],
    names: Sequence[str],
    digests: Sequence[str],
    clusterer: ImageClusterer,
    table: str,
) -> list[Entry]:
    """Return the answers of a table that was edited in the report, where clusters are named and merged.

    What is said about a cluster is an answer about its most typical image; the others follow it.
    """
    index = {name: place for place, name in enumerate(names)}
    typical: dict[str, int] = {}
    for row in rows:
        place = index.get(from_table_cell(row.get("file") or ""))
        if place is not None and row["cluster_found"] not in typical:
            typical[row["cluster_found"]] = int(clusterer.medoids_[clusterer.labels_[place]])
    if not typical:
        raise ValueError(f"no image of {table!r} is in these results; the table belongs to another report")
    entries: dict[str, Entry] = {}
    for row in rows:
        found, now, text = row["cluster_found"], row["cluster"], from_table_cell(row["cluster_name"] or "").strip()
        if found in entries or found not in typical:
            continue
        image, other = typical[found], typical.get(now)
        if text == clusterer.names_[clusterer.labels_[image]]:
            continue  # the name that the report already showed says nothing new
        if text and not UNNAMED.fullmatch(text):
            entries[found] = Entry("name", (digests[image],), text, (names[image],))
        elif now != found and other is not None and digests[image] != digests[other]:
            pair = (image, other)
            entries[found] = Entry("same", tuple(digests[i] for i in pair), "", tuple(names[i] for i in pair))
    return list(entries.values())


def teach_known_hints(out: Path, choice: str | None) -> Callable[[ImageClusterer, Bunch], object]:
    """Return a function that gives a new clusterer the hints of a table and of the journal."""
    journal = journal_of(out)

    def teach(clusterer: ImageClusterer, stack: Bunch) -> None:
        from tubal.cli.pipeline import content_digests

        clusterer.file_digests_ = np.array(content_digests(stack), dtype=object)
        results = Results(out, clusterer, {}, journal)
        if journal.n_clusters() is not None:  # a number that was chosen for the earlier clusters
            journal.append(Entry("clusters", (), "0"))
        results.apply_journal()
        if choice is not None:
            add_entries(results, read_hints(choice, stack.names, results.digests, clusterer))

    return teach


# --- commands ----------------------------------------------------------------------------------------------------
sort_option = click.option(
    "--sort", type=click.Choice(["copy", "link"]), help="Also copy or link the images into one folder per cluster."
)


@click.command()
@results_argument
@click.option("--hints", metavar="CSV", required=True, help="Table with columns path and label, or one of the report.")
@sort_option
@json_option
@click.pass_obj
def refine(state: State, results: Path, hints: str, sort: str | None) -> None:
    """Apply what you know about some images to all of them.

    RESULTS is a folder that tubal cluster wrote. The table has columns path and label; rows with an empty label are
    ignored. The table that the report downloads after clusters were renamed or merged there is understood, too. All
    results are written again. Named images get their names, and similar images follow.

    What was said is kept in RESULTS.hints, and applied again when the same images are clustered again. A later name
    replaces an earlier one.

    \b
    Examples:
      tubal refine tubal-out --hints known.csv
      tubal refine tubal-out --hints labels-edited.csv --sort copy
    """
    from tubal.cli.console import Terminal

    terminal = Terminal(state)
    check_hint_file(hints)
    with reserve(results) as hidden:
        opened = Results.open(results)
        entries = read_hints(hints, image_names(opened.clusterer), opened.digests, opened.clusterer)
        n_new = add_entries(opened, entries)
        record = write_results(opened, terminal, state, sort=sort, hidden=hidden)
    _show(terminal, opened, record, f"{count(n_new, 'new hint')} of {len(entries)} in {hints}")


@click.command()
@results_argument
@count_option("-n", "--questions", help="Stop after this many answers.", show_default="until you stop")
@sort_option
@json_option
@click.pass_obj
def ask(state: State, results: Path, questions: int | None, sort: str | None) -> None:
    """Name a few images, and let all others follow.

    Shows one image after the other, those first whose names tell most about all others, and asks for a name. A terminal
    with 256 colours shows the picture, others its path alone. Press Enter to skip an image. Type /undo to take back the
    last answer, and /quit to stop; all results are then written again. Every answer is saved at once in RESULTS.hints.

    \b
    Examples:
      tubal ask tubal-out
      tubal ask tubal-out --questions 20 --sort copy
    """
    from tubal.cli.console import Terminal

    terminal = Terminal(state)
    with reserve(results) as hidden:
        opened = Results.open(results)
        n_answers = _interview(opened, terminal, questions)
        record = write_results(opened, terminal, state, sort=sort, hidden=hidden)
    _show(terminal, opened, record, count(n_answers, "answer"))


def _interview(results: Results, terminal: Terminal, most: int | None) -> int:
    """Ask until the person stops, and return the number of answers."""
    clusterer, names, files = results.clusterer, image_names(results.clusterer), results.files
    skipped: list[int] = []
    n_answers = 0
    terminal.print_line(f"Enter skips an image, {UNDO} takes back the last answer, {QUIT} stops.")
    while most is None or n_answers < most:
        found: Any = clusterer.questions(1, skip=skipped, return_gain=True)
        if len(found[0]) == 0:
            terminal.print_line("every image has a name or was skipped")
            break
        if n_answers % ROUND == 0:
            terminal.print_line(_outlook(clusterer, float(found[1][0])))
        image = int(found[0][0])
        if side := terminal.picture_side:
            terminal.print_picture(results.picture(image, side))
        answer = _read_answer(files[image] or names[image])
        if answer is None or answer == QUIT:
            break
        if answer == UNDO:
            n_answers = max(n_answers - _undo(results, terminal), 0)  # the answer may be that of an earlier run
        elif not answer:
            skipped.append(image)
        else:
            n_answers += _answer(results, terminal, image, answer)
    return n_answers


def _answer(results: Results, terminal: Terminal, image: int, name: str) -> int:
    """Name an image, or say why that cannot be; return how many answers were saved."""
    from tubal.clustering.hints import ContradictionError

    names = image_names(results.clusterer)
    try:
        add_entries(results, [Entry("name", (results.digests[image],), name, (names[image],))])
    except ContradictionError as error:
        terminal.print_line(f"{why_contradicting(error, names)} ({UNDO})")
        return 0
    return 1


def _doubt(clusterer: ImageClusterer) -> str:
    if not len(clusterer.hints_):
        return "no image has a name yet"
    return f"about {count(clusterer.n_doubtful_, 'image')} may have a wrong name"


def _outlook(clusterer: ImageClusterer, gain: float) -> str:
    doubtful = _doubt(clusterer)
    if gain < 1.0:
        return f"{doubtful}; further answers will hardly change anything"
    return f"{doubtful}; the next answer decides about {count(round(gain), 'image')}"


def _read_answer(picture: str) -> str | None:
    """Return what the person types; None at the end of the input."""
    from tubal.text import printable

    try:
        answer: str = click.prompt(printable(picture), default="", show_default=False, err=True)
    except (click.Abort, EOFError):
        return None
    return answer.strip()


def _undo(results: Results, terminal: Terminal) -> int:
    """Take back the last answer, and return how many were taken back."""
    act = results.journal.undo()
    if act is None:
        terminal.print_line("there is no answer to take back")
        return 0
    results.apply_journal()
    terminal.print_line(f"taken back: {act.text}")
    return 1


@click.command()
@results_argument
@click.argument("source", type=Source())
@sort_option
@applying_options
@click.pass_obj
def add(state: State, results: Path, source: str, sort: str | None, **image_settings: Unpack[ImageSettings]) -> None:
    """Add new images to the results of an earlier run.

    RESULTS is a folder that tubal cluster wrote, SOURCE is read like its images were. Only new and changed files are
    read. They join the clusters of similar images; groups of images unlike all others become new clusters. Earlier
    images keep their clusters, and all results are written again.

    \b
    Examples:
      tubal add tubal-out new-photos/
      tubal add tubal-out photos/ --sort copy      what is new in a folder that was clustered before
    """
    from tubal.cli.console import Terminal
    from tubal.cli.pipeline import check_apart

    terminal = Terminal(state)
    check_apart(source, results)
    with reserve(results) as hidden:
        _add(terminal, state, results, source, sort, image_settings, hidden)


def _add(
    terminal: Terminal,
    state: State,
    results: Path,
    source: str,
    sort: str | None,
    image_settings: ImageSettings,
    hidden: Path,
) -> None:
    from tubal.cli.pipeline import content_digests

    opened = Results.open(results)
    known = set(opened.digests)
    wanted = _new_files(source, known)
    stack = None if wanted == {} else _read_new(opened, terminal, state, source, wanted, image_settings)
    digests = [] if stack is None else content_digests(stack)
    new = np.array([i for i, digest in enumerate(digests) if digest not in known], dtype=np.intp)
    if stack is None or len(new) == 0:
        terminal.print_line(f"{source} holds no new image")
        terminal.print_json({"added": 0, "out": str(results)})
        return
    with terminal.stage("adding images"):
        n_changed = _grow(opened, stack, new)
    record = write_results(opened, terminal, state, sort=sort, hidden=hidden)
    changed = f", {n_changed} of them changed" if n_changed else ""
    _show(terminal, opened, {**record, "added": len(new)}, f"{count(len(new), 'image')} added{changed}")


def _new_files(source: str, known: set[str]) -> dict[str, str] | None:
    """Return names of the pictures of a folder whose content is not known, by file; None for other sources."""
    from tubal.images.folders import find_pictures
    from tubal.storage.files import sha256_of

    if not Path(source).is_dir():
        return None
    with contextlib.ExitStack() as temporary:
        found, _ = find_pictures([Path(source)], exclude=(), max_pixels=1, temporary=temporary)
    return {item.origin: item.name for item in found if sha256_of(item.file) not in known}


def _read_new(
    results: Results,
    terminal: Terminal,
    state: State,
    source: str,
    wanted: Mapping[str, str] | None,
    settings: ImageSettings,
) -> Bunch | None:
    """Read the images of a source, or only the wanted files of a folder, under their names in that folder.

    None if no wanted file can be read: a folder whose other pictures are known may hold damaged ones.
    """
    from tubal.images.folders import NoPictureError

    chosen = source if wanted is None else list(wanted)
    try:
        stack = read_images_for(results.clusterer, terminal, state, chosen, settings)
    except NoPictureError as error:
        if wanted is None:
            raise
        show_skipped(error.skipped, terminal, state)
        return None
    if wanted is not None:
        stack.names = [wanted.get(file, name) for file, name in zip(stack.files, stack.names, strict=True)]
    return stack


def _grow(results: Results, stack: Bunch, new: np.typing.NDArray[np.intp]) -> int:
    """Add images to the model, in place of earlier versions of the same files; return how many those are."""
    clusterer: Any = results.clusterer
    listed = results.record.get("files")
    files = list(listed) if isinstance(listed, list) and len(listed) == len(clusterer.labels_) else []
    coming = {str(Path(stack.files[i]).absolute()) for i in new if stack.files[i]}
    outdated = [i for i, file in enumerate(files) if file and file in coming]
    n_old = len(clusterer.labels_)
    files = files or [""] * n_old
    clusterer.update(stack.images[new])
    names = [*image_names_of(clusterer)[:n_old], *(stack.names[i] for i in new)]
    digests = [*results.digests[:n_old], *(stack.digests[i] for i in new)]
    clusterer.file_names_ = np.array(names, dtype=object)
    clusterer.file_digests_ = np.array(digests, dtype=object)
    files += [str(Path(stack.files[i]).absolute()) if stack.files[i] else "" for i in new]
    if outdated:
        clusterer.remove(outdated)
        files = [file for i, file in enumerate(files) if i not in set(outdated)]
    results.record = {**results.record, "files": files}
    results.apply_journal()
    return len(outdated)


def image_names_of(clusterer: ImageClusterer) -> list[str]:
    """Return the stored names of all images, empty for those that have just been added."""
    return [str(name) for name in getattr(clusterer, "file_names_", np.array([], dtype=object))]


def _show(terminal: Terminal, results: Results, record: Mapping[str, Any], done: str) -> None:
    """Print what was done and what is left to do."""
    clusterer = results.clusterer
    named = [name for name in clusterer.names_ if name is not None]
    terminal.print_table(
        [
            ("done", done),
            ("clusters", f"{record['clusters']}, {len(named)} of them named"),
            ("doubtful", _doubt(clusterer)),
        ]
    )
    terminal.print_line(f"Open {results.out / 'report.html'}")
    shown = {name: value for name, value in record.items() if name != "files"}
    terminal.print_json({**shown, "doubtful": clusterer.n_doubtful_, "out": str(results.out)})
