"""The command line: the commands, and a few files of what they share. Nothing imports this package.

Only click is imported here, so that ``tubal --help`` is quick. A command imports what it needs when it runs.
"""

from __future__ import annotations

import signal
import sys
import threading

# Ctrl-C while the rest is imported ends the program without a traceback; later, run() has handlers of its own.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))

import contextlib
import difflib
import errno
import gc
import importlib
import importlib.machinery
import importlib.util
import os
import traceback
import warnings
import weakref
from collections.abc import Iterator, Sequence
from types import FrameType, ModuleType
from typing import Any, TextIO

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
    "open": "Finish the job in the browser: split, merge, move, name, answer questions.",
    "ask": "Name a few images, and let all others follow.",
    "refine": "Apply what you know about some images to all of them.",
    "add": "Add new images to the results of an earlier run.",
    "export": "Write results as tables or sorted folders for other programs.",
    "assign": "Put new images into the clusters of a model.",
    "similar": "Show the images nearest to one image, and how they align.",
    "explain": "Draw which atoms, at which shifts, build an image.",
    "info": "Show what a model is and how it was made.",
    "reproduce": "Run the experiments of the paper.",
    "datasets": "List the image collections, and download them.",
    "completion": "Print the completion script for a shell.",
    "help": "Explain the program, or one of its commands.",
}
# Commands that share a file; every other command has a file of its own name.
HOMES = {"demo": "cluster", "datasets": "reproduce"}
HOMES |= dict.fromkeys(("info", "encode", "assign", "similar", "explain"), "models")
HOMES |= dict.fromkeys(("ask", "refine", "add"), "hints") | {"export": "open"}
DOCUMENTATION = "https://tubal.readthedocs.io"
ISSUES = "https://github.com/tubal-developers/tubal/issues"
# Exit codes: a failure of the program, wrong input. After a signal, 128 and the number of the signal.
FAILURE, MISTAKE, SIGNALLED = 1, 2, 128
# scikit-learn imports these, if they are installed, for functions that tubal hardly ever calls. Each takes about half a
# second to import. Commands that answer many requests at once are left out: two threads must not load one module.
RARELY_USED, QUICK_STARTS = ("scipy.stats", "pandas"), ("cluster", "demo")
# This module of scikit-learn imports pandas for nothing. Once imported, pandas is asked whether an array is a table.
IMPORTS_PANDAS = "sklearn.utils.fixes"
# Imports make many objects and little garbage. With Python's own threshold, looking for it takes a tenth of a second.
OBJECTS_BETWEEN_COLLECTIONS = 50_000
# An exception raised in the middle of these can be lost, or crash the compiler. A signal waits until they are done.
UNSAFE_MODULES = ("importlib.", "numba.", "llvmlite.", "ctypes", "threadpoolctl", "weakref")
RETRY_SECONDS = 0.1
# Windows has no timer signals. There, a signal that gets lost is not raised again.
HAS_TIMER = hasattr(signal, "setitimer")


class LazyGroup(click.Group):
    """A group that imports the file of a command only when that command is called; two commands are defined below."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, the usual first steps first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command, and add ``--debug`` to it."""
        if cmd_name not in COMMANDS:
            return None
        command = self.commands.get(cmd_name) or _import_command(cmd_name)
        if not any("--debug" in option.opts for option in command.params):
            command.params.append(debug_option())
            command.epilog = f"More, with pictures: {DOCUMENTATION}/cli.html#tubal-{cmd_name}"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; after a mistyped name, suggest those that look like it."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = difflib.get_close_matches(name.lower(), COMMANDS, n=3, cutoff=0.6)
            question = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{question}", ctx)
        return super().resolve_command(ctx, args)

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


def _import_command(name: str) -> click.Command:
    """Return the command of this name; the function that defines it has the same name."""
    command: click.Command = getattr(importlib.import_module(f"tubal.cli.{HOMES.get(name, name)}"), name)
    return command


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
      tubal open tubal-out             finish the job in the browser
      tubal ask tubal-out              name a few images; all others follow
      tubal add tubal-out new/         add new images to these clusters
      tubal assign new/ -m tubal-out   put new images into these clusters
      tubal similar a.png -m tubal-out find the images that look most like one image
      tubal explain a.png -m tubal-out see what an image is made of

    Every command explains its options with --help, as in tubal cluster --help.

    \b
    Exit codes:
      0    success
      1    a failure of the program; please report it
      2    wrong input; the message says what to do
      130  stopped by Ctrl-C, 143 by SIGTERM; nothing half-written is left
    """


group.params.append(debug_option())
group.epilog = f"Documentation: {DOCUMENTATION}"


@group.command("help")
@click.argument("command", required=False)
@click.pass_context
def show_help(context: click.Context, command: str | None) -> None:
    """Explain the program, or COMMAND with all its options.

    \b
    Examples:
      tubal help
      tubal help cluster
    """
    parent = context.find_root()
    if command is None:
        click.echo(parent.get_help())
        return
    name, found, _ = group.resolve_command(parent, [command])
    if found is not None:
        click.echo(found.get_help(click.Context(found, info_name=name, parent=parent)))


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


class DeferredImports:
    """Finds the modules of ``RARELY_USED`` and defers their loading to their first use."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to import a module; None for all others, which are found as usual."""
        importer = sys.modules.get(IMPORTS_PANDAS)
        if name == "pandas" and getattr(getattr(importer, "__spec__", None), "_initializing", False):
            raise ModuleNotFoundError(f"{IMPORTS_PANDAS} does not need pandas", name=name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name in RARELY_USED else None
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


def main() -> None:
    """Entry point of the ``tubal`` program."""
    if set(sys.argv[1:2]) & set(QUICK_STARTS):
        sys.meta_path.insert(0, DeferredImports)
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    code = run()
    if "logging" in sys.modules:  # tasks that are ended now are no news
        sys.modules["logging"].disable()
    for name in (signal.SIGINT, signal.SIGTERM):  # all is done; a signal must not change the exit code
        signal.signal(name, signal.SIG_IGN)
    gc.freeze()  # Python would look through all objects for garbage before it ends, which takes a third of a second
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command, print an error as one sentence, and return the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows ``tubal`` on the command line; by default the arguments of this process.

    Returns
    -------
    int
        0 for success, 1 for a failure of the program, 2 for wrong input, 130 after Ctrl-C, 143 after SIGTERM.
    """
    state = State(arguments=tuple(sys.argv[1:] if arguments is None else arguments))
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
        lines = "".join(traceback.format_exception(error)).splitlines()
        click.echo("\n".join(map(printable, lines)), err=True)
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
        code = SIGNALLED + (state.interrupted or signal.SIGINT)
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
        return f"{sentence}{stop} See '{command} --help' or {DOCUMENTATION}.", MISTAKE
    if isinstance(error, click.ClickException):
        return error.format_message(), MISTAKE
    if isinstance(error, OSError) and error.strerror:
        return _describe_system_error(error), MISTAKE
    if isinstance(error, (ValueError, TypeError, OSError, ImportError, MemoryError)):
        return str(error) or type(error).__name__, MISTAKE
    kind = type(error).__name__
    return f"unexpected {kind}: {error}; run again with --debug and please report it at {ISSUES}", FAILURE


def _describe_system_error(error: OSError) -> str:
    """Return what the system refused, and for which file, without the number of the error.

    >>> _describe_system_error(PermissionError(13, "Permission denied", "photos"))
    "cannot use 'photos': Permission denied"
    """
    reason = str(error.strerror)
    if error.errno == errno.ENOSPC:
        reason = f"{reason}; free some, or name another place"
    return reason if error.filename is None else f"cannot use {os.fspath(error.filename)!r}: {reason}"


@contextlib.contextmanager
def _hide_warnings(state: State) -> Iterator[None]:
    """Print our warnings, and those about convergence, as one sentence; others, for programmers, only with --debug."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        # scikit-learn's class is known by its name, so that ``tubal --help`` need not import it.
        def show_ours(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if state.debug:
                show(message, category, filename, lineno, file, line)
            elif category.__module__.startswith("tubal.") or category.__name__ == "ConvergenceWarning":
                click.echo(f"tubal: {printable(' '.join(str(message).split()))}", err=True)

        warnings.showwarning = show_ours
        yield


class StopSignal(KeyboardInterrupt):
    """Ctrl-C or SIGTERM."""


@contextlib.contextmanager
def _handle_signals(state: State) -> Iterator[None]:
    """Treat Ctrl-C and SIGTERM alike: raise KeyboardInterrupt once, so that temporary files are removed.

    The exception is raised where it is safe, and raised again if it gets lost, for example in a callback from a
    compiled library. A timer that starts with the first signal does both; Python's profiler finds short safe moments.
    """
    raised: weakref.ref[StopSignal] | None = None
    before: dict[int, Any] = {}
    timer = (0.0, 0.0)

    def stop(_: int, frame: FrameType | None) -> None:
        nonlocal raised
        if raised is not None and raised() is not None:
            return  # it is on its way up
        if _is_unsafe(frame):
            sys.setprofile(look_again)
            return
        sys.setprofile(None)
        error = StopSignal()
        raised = weakref.ref(error)
        try:
            raise error
        finally:
            del error  # the traceback refers to this frame, which must not keep the exception alive

    def look_again(frame: FrameType, *_: object) -> None:
        # Called at every call and return, so it must be quick. It finds the moment between two compilations.
        if frame.f_globals.get("__name__", "").startswith("tubal.") and frame.f_globals is not globals():
            stop(0, frame)

    def first(number: int, frame: FrameType | None) -> None:
        nonlocal timer
        if not state.interrupted:
            state.interrupted = number
            if HAS_TIMER:
                before[signal.SIGALRM] = signal.signal(signal.SIGALRM, stop)
                timer = signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS, RETRY_SECONDS)
            stop(number, frame)

    if threading.current_thread() is not threading.main_thread():  # signals are left to the caller
        yield
        return
    before |= {name: signal.signal(name, first) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _hide_lost_signals():
            yield
    finally:
        if state.interrupted:
            sys.setprofile(None)
            if HAS_TIMER:
                signal.setitimer(signal.ITIMER_REAL, *timer)
        for name, handler in before.items():
            signal.signal(name, handler)


@contextlib.contextmanager
def _hide_lost_signals() -> Iterator[None]:
    """Do not print the traceback of a signal that got lost in a callback, because it is raised again."""
    show = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if issubclass(lost.exc_type, StopSignal) else show(lost)
    try:
        yield
    finally:
        sys.unraisablehook = show


def _is_unsafe(frame: FrameType | None) -> bool:
    """Tell whether the program is importing, compiling or in a callback at this moment, outside our own code."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "__del__" or module.startswith(UNSAFE_MODULES):
            return True
        if module.startswith("tubal.") and module != __name__:  # this file holds the handlers themselves
            return False
        frame = frame.f_back
    return False


if getattr(signal.getsignal(signal.SIGINT), "__module__", "") == __name__:
    signal.signal(signal.SIGINT, signal.default_int_handler)
