"""A progress bar for long fits, on standard error."""

from __future__ import annotations

from tubal.learning.alternation import Callback, Progress


def progress_bar(title: str) -> Callback:
    """Return a callback that draws a progress bar with the objective and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("objective {task.fields[objective]:.6g}"), TimeRemainingColumn(), console=Console(stderr=True),
        transient=True,
    )  # fmt: skip
    task: TaskID | None = None

    def update(progress: Progress) -> None:
        nonlocal task
        if task is None:
            bar.start()
            task = bar.add_task(title, total=progress.max_iter, objective=progress.objective)
        bar.update(task, completed=progress.n_iter, objective=progress.objective)
        objective = progress.state.objective
        if progress.n_iter == progress.max_iter or (len(objective) > 1 and objective[-1] == objective[-2]):
            bar.stop()

    return update
