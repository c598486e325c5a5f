"""``tubal reproduce`` runs the experiments and writes their tables; ``tubal datasets`` lists the collections."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tubal.cli.options import State, count_option, json_option, out_option
from tubal.text import shape_text

if TYPE_CHECKING:
    from tubal.experiments.runner import TrialStore
    from tubal.experiments.tables import Record, Table, Trial

Function = TypeVar("Function", bound=Callable[..., object])


def _split_names(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[str]:
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def _names_option(option: str, what: str) -> Callable[[Function], Function]:
    """Return an option that takes names, separated by commas; it may be given several times."""
    words = f"{what}, separated by commas."
    return click.option(option, multiple=True, callback=_split_names, metavar="NAMES", help=words, show_default="all")


@click.command()
@click.option(
    "--table",
    default="2",
    show_default=True,
    metavar="NAME",
    help="Which table: '2' is the paper's Table 2, 'search' and 'finals' find its best-score settings, 'atlas' changes "
    "one setting at a time, 'beyond' compares tubal's default with other programs, 'family' compares all models with "
    "and without a graph, 'hints' measures what a few answers are worth, 'protocol' runs every method at frozen "
    "defaults on your own labelled images.",
)
@_names_option("--datasets", "Collections")
@click.option(
    "--images",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="With --table protocol: a folder with one sub-folder for each class, an archive of one, or an array file with "
    "labels; may be given several times.",
)
@_names_option("--methods", "Methods")
@count_option("--runs", help="Number of random seeds per cell of the table.", default=10)
@out_option("results", "Folder for the tables and figures.", folder=True)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the table as JSON to this file.",
)
@click.option("--sweep", is_flag=True, help="Also vary one setting at a time and draw the curves.")
@count_option("--jobs", help="Number of trials that run at a time.", show_default="one per core, at most 4")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop after this time and write the table of the finished trials; the same command continues later.",
)
@click.option("--fresh", is_flag=True, help="Delete stored trials and start from the beginning.")
@click.option("--figures/--no-figures", default=True, show_default=True, help="Draw the figures.")
def reproduce(
    table: str,
    datasets: list[str],
    images: tuple[Path, ...],
    methods: list[str],
    runs: int,
    out: Path,
    json_file: Path | None,
    sweep: bool,
    jobs: int | None,
    minutes: float | None,
    fresh: bool,
    figures: bool,
) -> None:
    """Run the paper's experiments and write their table.

    Every finished trial is stored at once in OUT/.trials. After an interruption the same command continues.

    \b
    Examples:
      tubal reproduce --table 2
      tubal reproduce --table 2 --datasets orl,yale --methods gtsc --runs 3
      tubal reproduce --table search --jobs 16 --minutes 9
      tubal reproduce --table beyond --out results
      tubal reproduce --table family --sweep --jobs 4
      tubal reproduce --table hints --datasets orl,yale,digits
      tubal reproduce --table protocol --images my_images --images letters.npz
    """
    from tubal.cli.pipeline import check_output_file
    from tubal.experiments import find_table
    from tubal.experiments.runner import TrialStore

    try:
        module = find_table(table)
        if images and table != "protocol":
            raise ValueError(f"--images belongs to --table protocol, and the table is {table!r}; leave one of them out")
        chosen = _choose_datasets(module, datasets), _choose_methods(module, methods)
        _check_writable(out)
        if json_file is not None:
            check_output_file(json_file, force=True)
        names = _check_data(module, chosen[0] if datasets or not images else [], images)
        trials = module.plan(names, chosen[1], runs, sweep=sweep)
        # The page of the protocol also shows stored trials of methods that are not named now, as some are very slow.
        shown = module.plan(names, list(module.METHODS), runs) if table == "protocol" else trials
    except (ValueError, OSError, ImportError) as failure:
        raise click.ClickException(str(failure)) from None
    store = TrialStore(out / ".trials" / f"table{table}.jsonl")
    if fresh:
        store.clear()
    _run(trials, store, jobs or min(4, os.cpu_count() or 1), math.inf if minutes is None else 60.0 * minutes)
    records = list(store.finished(shown).values())
    for path in _write(module, records, out, figures=figures, json_file=json_file):
        if table == "protocol" and path.suffix == ".md":
            click.echo(path.read_text(encoding="utf-8"))
        click.echo(f"wrote {path}")


def _choose_datasets(module: Table, wanted: Sequence[str]) -> list[str]:
    valid = [*module.DATASETS, *getattr(module, "EXTRA_DATASETS", ())]
    _check_names("dataset", wanted, valid)
    return list(dict.fromkeys(wanted)) or list(module.DATASETS)


def _choose_methods(module: Table, wanted: Sequence[str]) -> list[str]:
    """Return the wanted methods; by default all that can run, with a line about each that cannot."""
    _check_names("method", wanted, list(module.METHODS))
    chosen = []
    for name in dict.fromkeys(wanted or module.METHODS):
        reason = module.METHODS[name].unavailable()
        if reason is None:
            chosen.append(name)
        elif wanted:
            raise ImportError(reason)
        else:
            click.echo(f"left out: {reason}", err=True)
    return chosen


def _check_names(kind: str, wanted: Sequence[str], valid: Sequence[str]) -> None:
    for name in wanted:
        if name not in valid:
            raise ValueError(f"there is no {kind} {name!r}; choose from {', '.join(valid)}")


def _check_writable(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as failure:
        reason = failure.strerror or failure
        raise OSError(f"the folder {out} cannot be written ({reason}); choose another with --out") from None


def _check_data(module: Table, datasets: Sequence[str], images: Sequence[Path]) -> list[str]:
    """Read every collection, and labelled images, before the first trial; return the names that trials use."""
    from tubal.datasets import fetch
    from tubal.experiments.protocol import identify

    load = getattr(module, "load", fetch)
    for name in datasets:
        load(name)
    return [*datasets, *identify(images)]


def _run(trials: Sequence[Trial], store: TrialStore, jobs: int, seconds: float) -> None:
    """Run the trials that are not stored yet, for so many seconds at most, with a progress bar and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from tubal.experiments.runner import Forecast, run_trials

    end = time.monotonic() + seconds
    known = list(store.finished(trials).values())
    forecast = Forecast(trials, known, jobs)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"about {_duration(forecast.seconds_left())} left", total=len(trials))
        progress.advance(task, len(known))
        try:
            # Closed at once when interrupted here, so that no worker still runs after the command.
            with contextlib.closing(run_trials(trials, store, jobs=jobs)) as records:
                for record in records:
                    forecast.note(record)
                    left = _duration(forecast.seconds_left())
                    progress.update(task, advance=1, description=f"about {left} left; {_headline(record)}")
                    if time.monotonic() > end:
                        break
        except KeyboardInterrupt:
            progress.stop()
            done = len(store.finished(trials))
            raise click.ClickException(
                f"stopped; {done} of {len(trials)} trials are stored in {store.path}; run the same command to continue"
            ) from None


def _headline(record: Mapping[str, Any]) -> str:
    scores = f"{record['accuracy']:.1f} / {record['nmi']:.1f}"
    return f"{record['method']} on {Path(record['dataset']).name} ({record['row']}) {scores}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _write(
    module: Table,
    records: Sequence[Record],
    out: Path,
    *,
    figures: bool,
    json_file: Path | None,
) -> list[Path]:
    """Write the table and its figures, and return the paths of all files written."""
    from tubal.storage.files import atomic_write

    paths: list[Path] = module.write(records, out, figures=figures)
    if json_file is not None:
        table = next(path for path in paths if path.suffix == ".json")
        with atomic_write(json_file) as stream:
            stream.write(table.read_bytes())
        paths.append(json_file)
    return paths


# --- collections ------------------------------------------------------------------------------------------------------
@click.command()
@click.option(
    "--data-home",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder of the files.",
    show_default="the environment variable TUBAL_DATA, else your user data folder",
)
@click.option(
    "--download", "wanted", metavar="NAME", multiple=True, help="Download a collection; may be given several times."
)
@json_option
@click.pass_context
def datasets(context: click.Context, data_home: Path | None, wanted: tuple[str, ...]) -> None:
    """List the image collections: whether each is present, where, and under which licence.

    A collection can be named wherever a command reads images, as in tubal cluster orl.

    \b
    Examples:
      tubal datasets
      tubal datasets --download orl
      tubal datasets --download orl --download yale --data-home ~/images
    """
    from tubal.datasets import COLLECTIONS, locate
    from tubal.datasets.fetchers import choose_data_folder

    for name in wanted:
        try:
            locate(name, data_home=data_home)
        except (OSError, ValueError) as failure:
            raise click.ClickException(str(failure)) from None
    folder, reason = choose_data_folder(data_home)
    entries = [*(_collection_entry(name, folder) for name in COLLECTIONS), _digits_entry()]
    if context.ensure_object(State).json:
        click.echo(json.dumps(entries, indent=2))
    else:
        _print_entries(entries, f"Collections in {folder} ({reason})")


def _collection_entry(name: str, folder: Path) -> dict[str, Any]:
    from tubal.datasets import find_collection

    collection = find_collection(name)
    path = folder / collection.file
    return {
        "name": name,
        "images": collection.n_images,
        "size": list(collection.image_shape),
        "classes": collection.n_classes,
        "state": _file_state(path, collection.sha256),
        "path": str(path),
        "licence": collection.licence,
        "sha256": collection.sha256,
        "addresses": list(collection.addresses),
        "citation": collection.citation,
    }


def _digits_entry() -> dict[str, Any]:
    return {
        "name": "digits",
        "images": 1797,
        "size": [8, 8],
        "classes": 10,
        "state": "built in",
        "path": "inside scikit-learn",
        "licence": "UCI Machine Learning Repository, CC BY 4.0",
    }


def _file_state(path: Path, sha256: str) -> str:
    from tubal.storage.files import sha256_of

    if not path.exists():
        return "missing"
    return "present" if sha256_of(path) == sha256 else "damaged"


def _print_entries(entries: Sequence[dict[str, Any]], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    headings = ("name", "images", "size", "classes", "state", "file", "licence")
    table = Table(*headings, title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        column.overflow, column.no_wrap = "fold", column.header == "file"  # a name that is broken cannot be copied
    for entry in entries:
        facts = {**entry, "size": shape_text(entry["size"]), "file": Path(entry["path"]).name}
        table.add_row(*(str(facts[column]) for column in headings))
    Console(highlight=False).print(table)
    if any(entry["state"] == "missing" for entry in entries):
        click.echo("Download a missing one with: tubal datasets --download NAME")
