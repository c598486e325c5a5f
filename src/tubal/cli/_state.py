"""What a run was asked to do about talking, and the options every command shares."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

__all__ = ["State", "computing_options", "debug_option", "talking_options"]

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class State:
    """Flags of one run; click carries it to every command as the context's object."""

    debug: bool = False
    quiet: bool = False
    json: bool = False
    interrupted: bool = False
    device: str = "auto"
    threads: int | None = None

    @staticmethod
    def note(context: click.Context, **flags: Any) -> None:
        """Remember flags that were set; a flag given before the command is not unset after it."""
        state = context.ensure_object(State)
        for name, value in flags.items():
            if value:
                setattr(state, name, value)


def debug_option() -> click.Option:
    """Return the option ``--debug``; added to every command by the group."""
    return _flag("--debug", "debug", "Show where an error came from.")


def talking_options(command: Function) -> Function:
    """Add ``--json`` and ``--quiet``."""
    return _add(
        command,
        [
            _flag("--json", "json", "Print the results as JSON on standard output."),
            _flag(["-q", "--quiet"], "quiet", "Do not report progress."),
        ],
    )


def computing_options(command: Function) -> Function:
    """Add ``--seed``, ``--device`` and ``--threads``."""
    seed = click.Option(
        ["--seed"],
        type=click.IntRange(0, 2**32 - 1),
        default=0,
        metavar="N",
        help="Seed of everything random: the same seed, the same result.  [default: 0]",
    )
    device = click.Option(
        ["--device"],
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        expose_value=False,
        callback=lambda context, _, value: State.note(context, device=value),
        help="Where to compute; auto takes a GPU when PyTorch finds one.",
    )
    threads = click.Option(
        ["--threads"],
        type=click.IntRange(1, 1024),
        metavar="N",
        expose_value=False,
        callback=_limit_threads,
        help="Use at most this many processor cores.",
    )
    return _add(command, [seed, device, threads])


def _flag(names: str | list[str], field: str, text: str) -> click.Option:
    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        State.note(context, **{field: value})

    declarations = [names] if isinstance(names, str) else names
    return click.Option(declarations, is_flag=True, expose_value=False, callback=remember, help=text)


def _add(command: Function, options: list[click.Option]) -> Function:
    # click collects decorated options last to first in this attribute, or in params of a finished command.
    if isinstance(command, click.Command):
        command.params.extend(options)
    else:
        kept = getattr(command, "__click_params__", [])
        command.__click_params__ = [*reversed(options), *kept]  # type: ignore[attr-defined]
    return command


def _limit_threads(context: click.Context, _: click.Parameter, value: int | None) -> None:
    if value is None:
        return
    State.note(context, threads=value)
    if "numpy" not in sys.modules:
        for library in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
            os.environ[f"{library}_NUM_THREADS"] = str(value)
        return
    from threadpoolctl import threadpool_limits

    threadpool_limits(value)
    if "numba" in sys.modules:
        import numba

        numba.set_num_threads(min(value, numba.config.NUMBA_NUM_THREADS))
