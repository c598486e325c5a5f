"""What a command prints: stages with progress bars and tables on standard error, JSON on standard output."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.table import Table
from rich.text import Text

from tubal.cli.options import State
from tubal.storage.files import to_plain
from tubal.text import printable

__all__ = ["ProgressBar", "Terminal"]

# The longer side of a printed picture in pixels at most, and lines of a terminal that are left for text.
MOST_PIXELS, LINES_BESIDE = 56, 4


class Terminal:
    """Prints the messages of one run, and measures how long its stages take.

    ``seconds`` maps the name of each finished stage to its duration. ``follow`` is called as ``(stage, done, total)``
    with what the bars show.
    """

    def __init__(self, state: State, follow: Callable[[str, int, int], object] | None = None) -> None:
        self._follow = follow
        self._quiet = state.quiet
        self._json = state.json
        self._console = Console(stderr=True, highlight=False, quiet=state.quiet)
        self.seconds: dict[str, float] = {}
        self._told = False

    def print_line(self, sentence: str) -> None:
        """Print one sentence as it is, without markup or control characters."""
        self._console.print(Text(printable(sentence)), soft_wrap=True)

    @property
    def picture_side(self) -> int:
        """How many pixels wide and high a picture can be; 0 if the terminal lacks the colours, or is none."""
        console = self._console
        is_plain = self._quiet or console.no_color or not console.is_terminal
        if is_plain or console.color_system not in ("256", "truecolor"):
            return 0
        return max(0, min(MOST_PIXELS, console.width, 2 * (console.height - LINES_BESIDE)))

    def print_picture(self, pixels: NDArray[np.uint8]) -> None:
        """Print a picture (height, width, 3), two pixels per character; small ones are enlarged, large ones thinned."""
        times, step = self.picture_side // max(pixels.shape[:2]), -(-max(pixels.shape[:2]) // max(1, self.picture_side))
        large = pixels[::step, ::step].repeat(max(1, times), axis=0).repeat(max(1, times), axis=1)
        self._console.print(picture_text(large))

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[ProgressBar]:
        """Show a progress bar while the block runs, then its duration; without a terminal, print only the duration."""
        begin = time.perf_counter()
        shown = self._console.is_terminal and not self._quiet
        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeColumn(),
            console=self._console,
            transient=True,
            speed_estimate_period=300.0,
            disable=not shown,
        )
        # rich 13 writes an empty line at the end of a bar, also of one that is not shown.
        with progress if shown else contextlib.nullcontext():
            yield ProgressBar(progress, progress.add_task(name, total=None), name, self._follow)
        self.seconds[name] = round(time.perf_counter() - begin, 3)
        self.print_line(f"{name}: {self.seconds[name]:.1f} s")

    @contextlib.contextmanager
    def announce_compiling(self) -> Iterator[None]:
        """Print one line if the block has to compile kernels, which takes a while on first use only."""
        from numba.core import event

        terminal = self

        class Announcer(event.Listener):  # type: ignore[misc]  # Numba is not typed
            def on_start(self, event: object) -> None:
                terminal._tell_of_compiling()

            def on_end(self, event: object) -> None:
                pass

        with event.install_listener("numba:compile", Announcer()):
            yield

    @contextlib.contextmanager
    def compile_and_tell(self) -> Iterator[None]:
        """Let other processes compile what clustering needs, if it is not compiled, and print one line about it."""
        from tubal.backends.cpu import coding, deformation
        from tubal.backends.cpu.jit import compiled_ahead

        ready = all(is_compiled(getattr(home, name)) for home in (coding, deformation) for name in home.TYPES)
        with (
            self.announce_compiling(),
            contextlib.nullcontext() if ready else compiled_ahead(tell=self._tell_of_compiling),
        ):
            yield

    def _tell_of_compiling(self) -> None:
        if not self._told:
            self._told = True
            self.print_line("compiling, once; later runs start at once")

    def print_table(self, rows: Sequence[Sequence[str]], *, header: Sequence[str] = ()) -> None:
        """Print a small table on standard error."""
        table = Table(show_header=bool(header), box=None)
        for column in header or rows[0]:
            table.add_column(column if header else "", overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        self._console.print(table)

    def print_json(self, values: Mapping[str, object]) -> None:
        """Print JSON on standard output if ``--json`` was given."""
        if self._json:
            click.echo(json.dumps(values, indent=2, default=to_plain))


class TimeColumn(ProgressColumn):
    """The time that has passed and, while it can be estimated, the time that is left."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """Return both as text."""
        passed = clock_time((task.finished_time if task.finished else task.elapsed) or 0.0)
        left = task.time_remaining if task.completed and not task.finished else None
        return Text(passed if left is None else f"{passed}, {clock_time(left)} left", style="progress.elapsed")


def clock_time(seconds: float) -> str:
    """Return a duration as on a clock.

    >>> clock_time(12.3), clock_time(3723)
    ('0:12', '1:02:03')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def picture_text(pixels: NDArray[np.uint8]) -> Text:
    """Return a picture (height, width, 3) as text: half blocks whose colour is that of the upper pixel.

    The background is the lower pixel; below the last row of an odd number of rows it is that of the terminal.

    >>> picture_text(np.array([[[255, 0, 0]], [[0, 0, 255]]], np.uint8)).markup
    '[#ff0000 on #0000ff]▀[/#ff0000 on #0000ff]'
    """
    colours = [["#{:02x}{:02x}{:02x}".format(*pixel) for pixel in row] for row in pixels.tolist()]
    lines = []
    for upper, lower in itertools.zip_longest(colours[::2], colours[1::2], fillvalue=["default"] * pixels.shape[1]):
        lines.append(Text.assemble(*(("▀", f"{high} on {low}") for high, low in zip(upper, lower, strict=True))))
    return Text("\n").join(lines)


def is_compiled(kernel: Any) -> bool:
    """Return whether a kernel is in the cache, or cannot be kept there."""
    folder = kernel.stats.cache_path if hasattr(kernel, "stats") else None  # NUMBA_DISABLE_JIT
    if folder is None:
        return True
    function = kernel.py_func
    return any(Path(folder).glob(f"*.{function.__name__}-{function.__code__.co_firstlineno}.py*.nbi"))


class ProgressBar:
    """The bar of one stage; call it as ``bar(done, total)``."""

    def __init__(
        self,
        progress: Progress,
        task: TaskID,
        stage: str,
        follow: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self._progress, self._task, self.stage, self._follow = progress, task, stage, follow
        self._part: str | None = None
        self._detail = stage
        self._tell(0, None)

    def __call__(self, done: int, total: int | None = None) -> None:
        self._progress.update(self._task, completed=done, total=total)
        self._tell(done, total)

    def _tell(self, done: int, total: int | None) -> None:
        if self._follow is not None:
            self._follow(self._detail, done, total or 0)

    def describe(self, detail: str) -> None:
        """Show which part of the stage is running."""
        self._detail = f"{self.stage}: {detail}"
        self._progress.update(self._task, description=self._detail)

    def part(self, name: str, done: int, total: int) -> None:
        """Show what is done of one part of the stage; each part has a total and a time left of its own."""
        if name != self._part:
            self._part = name
            self._detail = f"{self.stage}: {name}"
            self._progress.reset(self._task, total=total, description=self._detail)
        self(done, total)
