"""Talking to people on standard error: stages with time left, one table at the end; data goes to stdout."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Remaining
from rich.table import Table
from rich.text import Text

from tubal.cli._state import State
from tubal.storage.provenance import to_plain

__all__ = ["Talk", "printable"]


def printable(name: str) -> str:
    """Return untrusted text without the control characters that could steer a terminal.

    >>> printable("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\\\x0a'
    """
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in name)


class Talk:
    """Stages of a run: their names, bars while they run, their seconds afterwards."""

    def __init__(self, state: State) -> None:
        self._quiet = state.quiet
        self._json = state.json
        self._console = Console(stderr=True, highlight=False, quiet=state.quiet)
        self.seconds: dict[str, float] = {}

    def say(self, sentence: str) -> None:
        """Print one sentence as it is: no markup, no control characters."""
        self._console.print(Text(printable(sentence)), soft_wrap=True)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[_Bar]:
        """Show a stage while the block runs; on a terminal with a bar, else as one line when it is done."""
        begin = time.perf_counter()
        live = self._console.is_terminal and not self._quiet
        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            Remaining(compact=True, elapsed_when_finished=True),
            TextColumn("left"),
            Elapsed(),
            console=self._console,
            transient=True,
            disable=not live,
        )
        with progress:
            yield _Bar(progress, progress.add_task(name, total=None), name)
        self.seconds[name] = round(time.perf_counter() - begin, 3)
        self.say(f"{name}: {self.seconds[name]:.1f} s")

    def table(self, rows: Sequence[Sequence[str]], *, header: Sequence[str] = ()) -> None:
        """Print a small table on standard error."""
        table = Table(show_header=bool(header), box=None)
        for column in header or rows[0]:
            table.add_column(column if header else "", overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        self._console.print(table)

    def data(self, values: Mapping[str, Any] | Sequence[Any]) -> None:
        """Print JSON on standard output when it was asked for."""
        if self._json:
            click.echo(json.dumps(values, indent=2, default=to_plain))


class _Bar:
    """Handle on the bar of one stage; callable as ``bar(done, total)``."""

    def __init__(self, progress: Progress, task: Any, name: str) -> None:
        self._progress, self._task, self._name = progress, task, name

    def __call__(self, done: int, total: int | None = None) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def rename(self, detail: str) -> None:
        """Say which part of the stage is running."""
        self._progress.update(self._task, description=f"{self._name}: {detail}")
