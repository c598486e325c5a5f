"""The command line. Nothing but click is imported here: commands load what they need when they run."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from tubal import __version__
from tubal.cli._state import State, debug_option

__all__ = ["group", "main", "run"]

COMMANDS = {
    "demo": "Cluster the embedded handwritten digits and write a report.",
    "cluster": "Sort a folder of images into clusters, with a report to explore.",
    "fit": "Learn a model from images and keep it in one file.",
    "encode": "Turn images into features with a model.",
    "assign": "Put new images into the clusters of a model.",
    "similar": "Show the images nearest to one image, and how they align.",
    "explain": "Draw the atoms and shifts that build one image.",
    "info": "Show what a model is and how it was made.",
    "reproduce": "Run the experiments of the paper again.",
    "datasets": "List the image collections, where they are and their licences.",
    "completion": "Print the completion script for a shell.",
}
MISTAKE, FAILURE, INTERRUPTED = 2, 1, 130


class LazyGroup(click.Group):
    """A group that imports ``tubal.cli.<name>`` only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the list above, the usual first steps first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command, and let every one of them take ``--debug``."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"tubal.cli.{cmd_name}").command
        if not any("--debug" in option.opts for option in command.params):
            command.params.append(debug_option())
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from their summaries alone, so that help imports nothing."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Turn Ctrl-C into our own exception, because click would print an empty line of its own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


class Interrupted(Exception):
    """Ctrl-C, on its way to a single line."""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="tubal %(version)s")
def group() -> None:
    """Sort piles of small images into clusters, without labels and without training a network.

    \b
    Start here:
      tubal demo                       cluster the embedded digits, see a report
      tubal cluster photos/            a folder of images; results go to tubal-out/
      tubal cluster photos/ -k 12      when you know how many clusters you want

    Every command explains itself with --help.
    """


group.params.append(debug_option())


def main() -> None:
    """Entry point of the ``tubal`` program."""
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 our failure, 2 a mistake in what was asked."""
    state = State()
    try:
        with _signals(state), _warnings(state):
            outcome = group.main(
                None if arguments is None else list(arguments),
                prog_name="tubal",
                standalone_mode=False,
                obj=state,
            )
        return outcome if isinstance(outcome, int) else 0
    except (Exception, KeyboardInterrupt) as error:
        return _report(error, state)


def _report(error: BaseException, state: State) -> int:
    """Say in one line what went wrong, and with --debug where."""
    if state.debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message())
        return 0
    if isinstance(error, BrokenPipeError):
        # The reader of our output went away (as `head` does); a second error at exit would help nobody.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    sentence, code = _sentence(error)
    if state.interrupted or isinstance(error, (Interrupted, KeyboardInterrupt, click.Abort)):
        code = INTERRUPTED
        if not isinstance(error, click.ClickException):  # a command may know more about what is kept
            sentence = "stopped; no half-written file was left behind"
    with contextlib.suppress(OSError):
        click.echo(f"tubal: {' '.join(sentence.split())}", err=True)
    return code


def _sentence(error: BaseException) -> tuple[str, int]:
    if isinstance(error, click.UsageError):
        asked = error.ctx.command_path if error.ctx else "tubal"
        return f"{error.format_message()} See '{asked} --help'.", MISTAKE
    if isinstance(error, click.ClickException):
        return error.format_message(), MISTAKE
    if isinstance(error, (ValueError, TypeError, OSError, ImportError, MemoryError)):
        return str(error) or type(error).__name__, MISTAKE
    kind = type(error).__name__
    return f"unexpected {kind}: {error}; run again with --debug and please report it", FAILURE


@contextlib.contextmanager
def _warnings(state: State) -> Any:
    """Keep Python's warnings, which speak to programmers, for --debug."""
    with warnings.catch_warnings():
        show = warnings.showwarning
        warnings.showwarning = lambda *parts: show(*parts) if state.debug else None
        yield


@contextlib.contextmanager
def _signals(state: State) -> Any:
    """Let Ctrl-C and a polite kill unwind the same way, so that temporary files are removed."""

    def interrupt(*_: Any) -> None:
        if not state.interrupted:
            state.interrupted = True
            raise KeyboardInterrupt

    names = [signal.SIGINT, signal.SIGTERM]
    try:
        before = [signal.signal(name, interrupt) for name in names]
    except ValueError:  # not in the main thread: leave signals to whoever called
        yield
        return
    try:
        yield
    finally:
        for name, handler in zip(names, before, strict=True):
            signal.signal(name, handler)
