"""The command line: one file per command, and a few files of what they share. Nothing imports this package.

Only click is imported here, so that ``tubal --help`` is quick. A command imports what it needs when it runs.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence

import click
from click.shell_completion import get_completion_class

from tubal import __version__
from tubal.cli.options import State, debug_option
from tubal.text import printable

__all__ = ["COMMANDS", "group", "main", "run"]

COMMANDS = {
    "demo": "Cluster the handwritten digits of scikit-learn and write a report.",
    "cluster": "Sort images into clusters and write a report to explore.",
    "fit": "Learn a model from images and save it in one file.",
    "encode": "Turn images into features with a model.",
    "assign": "Put new images into the clusters of a model.",
    "similar": "Show the images nearest to one image, and how they align.",
    "explain": "Draw which atoms, at which shifts, build an image.",
    "info": "Show what a model is and how it was made.",
    "reproduce": "Run the experiments of the paper.",
    "datasets": "List the image collections, and download them.",
    "completion": "Print the completion script for a shell.",
}
# Exit codes: a failure of the program, wrong input, Ctrl-C.
FAILURE, MISTAKE, INTERRUPTED = 1, 2, 130


class LazyGroup(click.Group):
    """A group that imports ``tubal.cli.<name>`` only when that command is called; ``completion`` is defined below."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, the usual first steps first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command, and add ``--debug`` to it."""
        if cmd_name not in COMMANDS:
            return None
        command = self.commands.get(cmd_name) or importlib.import_module(f"tubal.cli.{cmd_name}").command
        if not any("--debug" in option.opts for option in command.params):
            command.params.append(debug_option())
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their summaries from above, so that help imports nothing."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Turn Ctrl-C into :class:`Interrupted`, because click would print an empty line for it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


class Interrupted(Exception):
    """Ctrl-C was pressed; :func:`run` reports it in one line."""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="tubal %(version)s")
def group() -> None:
    """Sort piles of small images into clusters, without labels and without training a network.

    \b
    Start here:
      tubal demo                       cluster handwritten digits and look at a report
      tubal cluster photos/            cluster a folder of images; results go to tubal-out/
      tubal cluster photos/ -k 12      the same, if you know how many clusters you want

    \b
    Then:
      tubal assign new/ -m tubal-out   put new images into these clusters
      tubal similar a.png -m tubal-out find the images that look most like one image
      tubal explain a.png -m tubal-out see what an image is made of

    Every command explains its options with --help, as in tubal cluster --help.
    """


group.params.append(debug_option())


@group.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options and file names of tubal.

    Write it where your shell reads its start-up scripts, then open a new terminal.

    \b
    Examples:
      tubal completion bash >> ~/.bashrc
      tubal completion zsh >> ~/.zshrc
      tubal completion fish > ~/.config/fish/completions/tubal.fish
    """
    completer = get_completion_class(shell)
    if completer is None:
        raise ValueError(f"there is no completion for {shell!r}; choose bash, zsh or fish")
    # The plain template, because source() would run the shell to ask for its version.
    click.echo(completer.source_template % completer(group, {}, "tubal", "_TUBAL_COMPLETE").source_vars())


def main() -> None:
    """Entry point of the ``tubal`` program."""
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command, print an error as one sentence, and return the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows ``tubal`` on the command line; by default the arguments of this process.

    Returns
    -------
    int
        0 for success, 1 for a failure of the program, 2 for wrong input, 130 after Ctrl-C.
    """
    state = State()
    try:
        with _handle_signals(state), _hide_warnings(state):
            outcome = group.main(
                None if arguments is None else list(arguments),
                prog_name="tubal",
                standalone_mode=False,
                obj=state,
            )
        return outcome if isinstance(outcome, int) else 0
    except (Exception, KeyboardInterrupt) as error:
        return _report_error(error, state)


def _report_error(error: BaseException, state: State) -> int:
    """Print an error as one sentence, with --debug also its traceback, and return the exit code."""
    if state.debug:
        traceback.print_exception(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message())
        return 0
    if isinstance(error, BrokenPipeError):
        # The reader of our output has stopped, as `head` does. Python must not fail again when it flushes at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    sentence, code = _describe_error(error)
    if state.interrupted or isinstance(error, (Interrupted, KeyboardInterrupt, click.Abort)):
        code = INTERRUPTED
        if not isinstance(error, click.ClickException):  # the command may have stated what it has saved
            sentence = "stopped; no half-written file was left behind"
    with contextlib.suppress(OSError):
        click.echo(f"tubal: {printable(' '.join(sentence.split()))}", err=True)
    return code


def _describe_error(error: BaseException) -> tuple[str, int]:
    """Return the sentence and the exit code of an error."""
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "tubal"
        sentence = error.format_message()
        stop = "" if sentence.endswith((".", "?", "!")) else "."
        return f"{sentence}{stop} See '{command} --help'.", MISTAKE
    if isinstance(error, click.ClickException):
        return error.format_message(), MISTAKE
    if isinstance(error, (ValueError, TypeError, OSError, ImportError, MemoryError)):
        return str(error) or type(error).__name__, MISTAKE
    kind = type(error).__name__
    return f"unexpected {kind}: {error}; run again with --debug and please report it", FAILURE


@contextlib.contextmanager
def _hide_warnings(state: State) -> Iterator[None]:
    """Show Python's warnings, which are meant for programmers, only with --debug."""
    with warnings.catch_warnings():
        show = warnings.showwarning
        warnings.showwarning = lambda *parts: show(*parts) if state.debug else None
        yield


@contextlib.contextmanager
def _handle_signals(state: State) -> Iterator[None]:
    """Treat Ctrl-C and SIGTERM alike: raise KeyboardInterrupt once, so that temporary files are removed."""

    def interrupt(*_: object) -> None:
        if not state.interrupted:
            state.interrupted = True
            raise KeyboardInterrupt

    names = [signal.SIGINT, signal.SIGTERM]
    try:
        before = [signal.signal(name, interrupt) for name in names]
    except ValueError:  # not in the main thread: leave signals to the caller
        yield
        return
    try:
        yield
    finally:
        for name, handler in zip(names, before, strict=True):
            signal.signal(name, handler)
