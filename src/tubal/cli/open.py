"""``tubal open``: results in the browser, where a person finishes the job. ``tubal export``: the same as files."""

from __future__ import annotations

import contextlib
import signal
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from tubal.cli.options import (
    ImageSettings,
    Source,
    State,
    clusters_option,
    count_option,
    force_option,
    json_option,
    learning_options,
    out_option,
)
from tubal.text import count

if TYPE_CHECKING:
    from tubal.app.server import LiveServer
    from tubal.app.session import Session
    from tubal.cli.console import Terminal

MISSING = "tubal open needs Starlette and uvicorn; install them with: pip install 'tubal[app]'"
SHARED = (
    "--host {host} lets other machines reach this page: everyone who learns its address can see and sort your "
    "pictures, and nothing is encrypted on the way; if you want that, add --share"
)


@click.command()
@click.argument("source", type=Source())
@clusters_option(", if SOURCE is clustered first")
@out_option("tubal-out", "Folder for the results, if SOURCE is clustered first.", folder=True)
@force_option()
@count_option("--port", help="Port to listen on.", least=0, most=65535, default=0, show_default="any free one")
@click.option("--no-browser", is_flag=True, help="Only print the address; do not open a browser.")
@click.option("--exit-when-closed", is_flag=True, help="Stop when the last page is closed.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. Any other than this machine's own needs --share.",
)
@click.option(
    "--share",
    is_flag=True,
    help="Let other machines reach the page with --host. Everyone who learns the address can see and sort the "
    "pictures, and nothing is encrypted on the way.",
)
@learning_options
@click.pass_obj
def open(  # the name of the command
    state: State,
    source: str,
    clusters: int | None,
    out: Path,
    force: bool,
    port: int,
    no_browser: bool,
    exit_when_closed: bool,
    host: str,
    share: bool,
    resume: bool,
    seed: int,
    **image_settings: Unpack[ImageSettings],
) -> None:
    """Finish the job in the browser: split, merge, move, name, answer questions.

    SOURCE is a folder that tubal cluster wrote. Anything else that tubal cluster reads is clustered first, with the
    progress in the page. A page opens in your browser; only this machine can reach it. Every change is saved at once in
    RESULTS.hints, and can be undone. Press Ctrl-C here to stop: all results are then written again.

    \b
    In the page
      ask me         one picture at a time; type its name, and all others follow
      drag           pictures to a cluster, to a new one, or to "not these"
      slider         more or fewer clusters
      Ctrl-Z         takes back what you did, without limit
      export         a table, sorted folders, COCO, Parquet or a Hugging Face folder

    \b
    Examples:
      tubal open tubal-out
      tubal open photos/                         cluster first, then the same
      tubal open tubal-out --no-browser --port 8000
      tubal open tubal-out --host 0.0.0.0 --share     also for other machines
    """
    from tubal.cli.cluster import ClusterRequest, check_request
    from tubal.cli.console import Terminal
    from tubal.storage.files import earlier_record, reserve

    server_of = _import_server(host, share)
    is_results = bool(earlier_record(Path(source)))
    known = is_results or (earlier_record(out).get("source") == source and not force)
    place = Path(source) if is_results else out
    asked = None if known else ClusterRequest((source,), out, clusters, force, resume=resume, seed=seed)
    if asked is not None:
        check_request(asked)  # a page that could only show an error must not open
    terminal = Terminal(state)
    if known and not is_results:
        terminal.print_line(f"{source} was clustered before; opening {out} (use --force to cluster it again)")
    opened: list[Session] = []
    with reserve(place) as hidden:
        prepare = _preparation(state, place, asked, image_settings, hidden, opened)
        server = server_of(
            prepare, title=Path(source).name or source, host=host, port=port, exit_when_closed=exit_when_closed
        )
        _announce(terminal, server, place, browser=not no_browser)
        _run(server, state)
        _write_again(terminal, state, opened[0], hidden)
    terminal.print_line("stopped; everything is saved")


def _run(server: LiveServer, state: State) -> None:
    """Serve until the end; a run that was stopped before there were clusters ends as tubal cluster would."""
    try:
        server.run()
    finally:
        if server.shown is None and server.stopped:
            state.interrupted = signal.SIGINT
    if server.shown is None:
        raise KeyboardInterrupt


def _import_server(host: str, share: bool) -> type[LiveServer]:
    try:
        from tubal.app.server import LiveServer, loopback_only
    except ImportError as error:
        if (error.name or "").split(".")[0] in ("starlette", "uvicorn", "h11", "anyio"):
            raise ImportError(MISSING) from error
        raise
    if not loopback_only(host) and not share:
        raise click.UsageError(SHARED.format(host=host))
    return LiveServer


def _preparation(
    state: State,
    out: Path,
    asked: object,
    settings: ImageSettings,
    hidden: Path,
    opened: list[Session],
) -> Callable[[Callable[[str, int, int], None]], Session]:
    """Return the function that makes the session while the page shows its progress."""

    def prepare(report: Callable[[str, int, int], None]) -> Session:
        from tubal.app.results import Results
        from tubal.app.session import Session
        from tubal.cli.cluster import ClusterRequest, cluster_sources
        from tubal.cli.console import Terminal

        if isinstance(asked, ClusterRequest):
            terminal = Terminal(state, report)
            with terminal.compile_and_tell():
                cluster_sources(terminal, state, asked, settings, hidden)
        report("opening the results", 0, 0)
        session = Session(Results.open(out))
        opened.append(session)
        return session

    return prepare


def _announce(terminal: Terminal, server: LiveServer, out: Path, *, browser: bool) -> None:
    """Print the address and how to stop, and open the browser."""
    url = server.address.url
    terminal.print_line(f"{out} is open at {url}")
    terminal.print_line("Every change is saved at once. Press Ctrl-C to stop.")
    terminal.print_json({"address": url, "out": str(out)})
    if browser:
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _write_again(terminal: Terminal, state: State, session: Session, hidden: Path) -> None:
    """Write all results again if something has changed; what was said is safe in the journal in any case."""
    from tubal.cli.hints import write_results

    if not session.changed:
        return
    terminal.print_line(f"writing the results; every change is already in {session.journal.path}")
    with contextlib.suppress(KeyboardInterrupt):
        write_results(session.results, terminal, state, hidden=hidden)


@click.command()
@click.argument("results", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--kind",
    type=click.Choice(["csv", "folders", "coco", "parquet", "huggingface"]),
    default="csv",
    show_default=True,
    help="What to write: a table, one folder per cluster, COCO-style JSON, a Parquet table, or a Hugging Face folder.",
)
@click.option(
    "--mode",
    type=click.Choice(["copy", "link", "move"]),
    default="copy",
    show_default=True,
    help="What happens to the pictures, with --kind folders; with huggingface, copy or link.",
)
@click.option("--put-back", is_flag=True, help="Undo the last move: put all pictures back to where they were.")
@json_option
@click.pass_obj
def export(state: State, results: Path, kind: str, mode: str, put_back: bool) -> None:
    """Write results as tables or sorted folders for other programs.

    RESULTS is a folder that tubal cluster wrote. Names that were given to clusters become labels and names of folders;
    pictures that were left out in tubal open are not part of it. Everything is written into RESULTS/exports. A move
    lists first what goes where, in manifest.csv, so that --put-back can undo it.

    \b
    Examples:
      tubal export tubal-out --kind folders --mode link
      tubal export tubal-out --kind folders --mode move
      tubal export tubal-out --put-back
      tubal export tubal-out --kind coco
    """
    from tubal.app import exports
    from tubal.app.results import Results
    from tubal.app.session import Session
    from tubal.cli.console import Terminal
    from tubal.storage.files import reserve

    if mode != "copy" and kind not in ("folders", "huggingface"):
        raise click.UsageError(f"--mode {mode} says what happens to pictures; add --kind folders")
    terminal = Terminal(state)
    with reserve(results):
        if put_back:
            n_files = exports.put_back(results)
            terminal.print_line(f"{count(n_files, 'picture')} put back")
            terminal.print_json({"files": n_files})
            return
        made = exports.export(exports.Snapshot.of(Session(Results.open(results))), kind, mode=mode)
    terminal.print_line(made.text)
    terminal.print_json({"path": str(made.path), "files": made.n_files})
