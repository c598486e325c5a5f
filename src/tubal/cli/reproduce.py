"""``tubal reproduce``: the paper's table, run, stored trial by trial, and written out."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click


def _names(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[str]:
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


@click.command(short_help="Run the paper's evaluation and write its table.")
@click.option("--table", default="2", show_default=True, help="Which table: 2, beyond or family.")
@click.option("--datasets", multiple=True, callback=_names, help="Collections, comma-separated; default all.")
@click.option("--methods", multiple=True, callback=_names, help="Methods, comma-separated; default all.")
@click.option("--runs", default=10, show_default=True, type=click.IntRange(1), help="Seeds a cell.")
@click.option("--out", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the JSON here too.")
@click.option("--sweep", is_flag=True, help="Add the table's curves against one setting at a time.")
@click.option("--jobs", type=click.IntRange(1), help="Trials at a time; default one a core, at most 4.")
@click.option("--fresh", is_flag=True, help="Forget stored trials instead of continuing.")
@click.option("--figures/--no-figures", default=True, show_default=True, help="Draw the pictures.")
def command(
    table: str,
    datasets: list[str],
    methods: list[str],
    runs: int,
    out: Path,
    json_file: Path | None,
    sweep: bool,
    jobs: int | None,
    fresh: bool,
    figures: bool,
) -> None:
    """Run the paper's evaluation and write its table, with progress and time left.

    Each finished trial is stored at once under OUT/.trials; the same command continues an interrupted run.

    \b
    Examples:
      tubal reproduce --table 2
      tubal reproduce --table 2 --datasets orl,yale --methods gtsc --runs 3
      tubal reproduce --table beyond --out results
      tubal reproduce --table family --sweep --jobs 4
    """
    from tubal.experiments import find_table
    from tubal.experiments.runner import TrialStore

    try:
        module = find_table(table)
        chosen = _choose_datasets(module, datasets), _choose_methods(module, methods)
        _check_writable(out)
        _check_data(chosen[0])
        trials = module.plan(*chosen, runs, sweep=sweep)
    except (ValueError, OSError, ImportError) as failure:
        raise click.ClickException(str(failure)) from None
    store = TrialStore(out / ".trials" / f"table{table}.jsonl")
    if fresh:
        store.clear()
    _run(trials, store, jobs or min(4, os.cpu_count() or 1))
    records = list(store.finished(trials).values())
    for path in _write(module, records, out, figures=figures, json_file=json_file):
        click.echo(f"wrote {path}")


def _choose_datasets(module: Any, wanted: Sequence[str]) -> list[str]:
    valid = [*module.DATASETS, *getattr(module, "EXTRA_DATASETS", ())]
    _check_names("dataset", wanted, valid)
    return list(dict.fromkeys(wanted)) or list(module.DATASETS)


def _choose_methods(module: Any, wanted: Sequence[str]) -> list[str]:
    """Take the wanted methods; by default those that can run, naming the others."""
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


def _check_data(datasets: Sequence[str]) -> None:
    """Find every file, and check its hash, before the first trial."""
    from tubal.datasets import fetch

    for name in datasets:
        fetch(name)


def _run(trials: Sequence[Any], store: Any, jobs: int) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from tubal.experiments.runner import Forecast, run_trials

    known = list(store.finished(trials).values())
    forecast = Forecast(trials, known, jobs)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"about {_duration(forecast.seconds_left())} left", total=len(trials))
        progress.advance(task, len(known))
        try:
            # Closed at once when interrupted here, so that no worker outlives the command.
            with contextlib.closing(run_trials(trials, store, jobs=jobs)) as records:
                for record in records:
                    forecast.note(record)
                    left = _duration(forecast.seconds_left())
                    progress.update(task, advance=1, description=f"about {left} left; {_headline(record)}")
        except KeyboardInterrupt:
            progress.stop()
            done = len(store.finished(trials))
            raise click.ClickException(
                f"stopped; {done} of {len(trials)} trials are kept in {store.path}; run the same command to go on"
            ) from None


def _headline(record: Mapping[str, Any]) -> str:
    scores = f"{record['accuracy']:.1f} / {record['nmi']:.1f}"
    return f"{record['method']} on {record['dataset']} ({record['row']}) {scores}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _write(
    module: Any,
    records: Sequence[Any],
    out: Path,
    *,
    figures: bool,
    json_file: Path | None,
) -> list[Path]:
    paths: list[Path] = module.write(records, out, figures=figures)
    if json_file is not None:
        table = next(path for path in paths if path.suffix == ".json")
        json_file.write_bytes(table.read_bytes())
        paths.append(json_file)
    return paths
