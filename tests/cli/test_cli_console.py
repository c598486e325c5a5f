"""Progress bars and announcements of the command line."""

from __future__ import annotations

import io

import numba
import pytest
from rich.console import Console
from rich.progress import Progress

from tubal.cli import run
from tubal.cli.console import ProgressBar, Terminal, TimeColumn
from tubal.cli.options import State

pytest_plugins = ["helpers.cli_fixtures"]


@pytest.fixture
def terminal():
    """A terminal that keeps what is printed in ``terminal.text``."""
    found = Terminal(State())
    found.text = io.StringIO()
    found._console = Console(file=found.text, force_terminal=True, width=120)
    return found


def test_every_part_of_a_stage_has_its_own_total(terminal):
    with terminal.stage("clustering") as bar:
        bar.part("finding neighbours", 300, 300)
        bar.part("cutting the graph", 1, 300)
        task = bar._progress.tasks[0]
        assert (task.description, task.completed, task.total) == ("clustering: cutting the graph", 1, 300)
        assert not task.finished


def test_time_left_falls(terminal):
    now, left = [0.0], []
    with terminal.stage("clustering") as bar:
        bar._progress.get_time = lambda: now[0]
        bar._progress.tasks[0]._get_time = lambda: now[0]
        for done in range(0, 100, 10):
            bar.part("finding neighbours", done, 100)
            left.append(bar._progress.tasks[0].time_remaining)
            now[0] += 3.0
    known = [seconds for seconds in left if seconds is not None]
    assert len(known) >= 8
    assert known == sorted(known, reverse=True)


def test_compilation_is_announced_once(terminal):
    first, second = (numba.njit(lambda x, step=step: x + step) for step in (1, 2))
    with terminal.announce_compiling():
        assert first(1) + second(1) == 5
        assert first(2) == 3
    third = numba.njit(lambda x: x - 1)
    assert third(1) == 0
    assert terminal.text.getvalue().count("compiling, once") == 1


def test_bars_of_a_run_end_at_their_totals(shapes, tmp_path, monkeypatch):
    seen, call = {}, ProgressBar.__call__

    def follow(bar, done, total=None):
        seen.setdefault((bar.stage, bar._part), []).append((done, total))
        call(bar, done, total)

    monkeypatch.setattr(ProgressBar, "__call__", follow)
    assert run(["cluster", str(shapes), "--out", str(tmp_path / "out"), "--sort", "copy", "-q"]) == 0
    assert {stage for stage, _ in seen} == {"reading images", "clustering", "writing results", "drawing the report"}
    for calls in seen.values():
        assert calls == sorted(calls)
        assert len({total for _, total in calls}) == 1
        assert calls[-1][0] == calls[-1][1]


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [(0, None, "0:12"), (30, None, "0:12"), (0, 60, "0:12"), (20, 60, "0:12, 0:24 left"), (60, 60, "0:12")],
)
def test_time_left_is_named_and_shown_only_if_it_is_known(done, total, shown, terminal):
    now = [0.0]
    progress = Progress(TimeColumn(), console=terminal._console, get_time=lambda: now[0])
    progress.add_task("reading images", total=None)
    if total:
        progress.update(0, completed=0, total=total)
    for step in range(1, 13):
        now[0] = float(step)
        progress.update(0, completed=done * step // 12, total=total)
    assert TimeColumn().render(progress.tasks[0]).plain == shown


def test_pictures_are_counted_once(shapes, tmp_path, monkeypatch):
    seen, call = [], ProgressBar.__call__

    def follow(bar, done, total=None):
        if bar.stage == "reading images":
            seen.append((done, total))
        call(bar, done, total)

    monkeypatch.setattr(ProgressBar, "__call__", follow)
    assert run(["cluster", str(shapes), "-k", "3", "-o", str(tmp_path / "out"), "-q"]) == 0
    assert {total for _, total in seen} == {61}
    assert seen[-1] == (61, 61)
