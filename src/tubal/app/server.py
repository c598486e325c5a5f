"""The server of ``tubal open``: one page, the requests it makes, and what keeps others out.

The server listens on this machine only, unless it is told otherwise. The address holds a random token; requests with
another ``Host`` or ``Origin`` than the server's own are refused, so that no other page in the same browser can use it.
Pictures are asked for by their index. All changes are made by one worker, so that the page always gets answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import h11
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tubal.app.exports import KINDS, MODES, Snapshot, export
from tubal.app.session import Session
from tubal.report.data import ReportData
from tubal.report.page import LiveSheets, build_live, build_waiting, fine_factor, live_policy

__all__ = ["Address", "LiveServer", "loopback_only"]

Value = TypeVar("Value")

# A request of a page that moves all of 100 000 pictures is smaller.
MOST_BYTES = 2 << 20
# Limits in seconds: for the head of a request, for its body, and for a client to accept a part of an answer.
HEAD_SECONDS, BODY_SECONDS, SEND_SECONDS = 10.0, 15.0, 60.0
# Requests that wait for the worker, connections at a time, and pages that listen to events.
MOST_WAITING, MOST_CONNECTIONS, MOST_LISTENERS = 64, 512, 64
# Seconds between two signs of life to a page that listens.
PULSE_SECONDS = 15.0
# After the last page was closed, wait this long for one that is loaded again.
CLOSED_SECONDS = 3.0
# Seconds for which a browser may keep a picture; the address changes with every start.
KEEP_SECONDS = 86400
# Kinds of files that every browser shows; other pictures are sent as PNG.
SAFE_KINDS = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
MOST_PIXELS = 80_000_000
# Sheets that are kept after they were made.
KEPT_SHEETS = 64

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]
NO_CONTENT_POLICY = b"default-src 'none'; frame-ancestors 'none'; sandbox"

logger = logging.getLogger("tubal.app")


# --- where ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Address:
    """Where the server listens.

    Parameters
    ----------
    host : str
        Name or number of the machine, as it was given.
    port : int
        Port.
    token : str
        Random part of the address.
    """

    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        """The address of the page."""
        shown = "127.0.0.1" if self.host in ("0.0.0.0", "localhost") else self.host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}/{self.token}/"

    def knows(self, host: str) -> bool:
        """Tell whether a request was sent to this server by a name of its own.

        A foreign page whose name resolves to this machine (DNS rebinding) sends that name, so only known names are
        accepted. If the server listens on all addresses of the machine, every number is accepted.

        Parameters
        ----------
        host : str
            Value of the header ``Host``.

        Returns
        -------
        bool
            Whether it names this server.
        """
        name, _, port = host.rpartition(":")
        if port != str(self.port):
            return False
        if loopback_only(self.host):
            return name in ("127.0.0.1", "localhost", "[::1]")
        if self.host in ("0.0.0.0", "::"):
            return name == "localhost" or _is_number(name.strip("[]"))
        return name.strip("[]").lower() == self.host.lower()


def loopback_only(host: str) -> bool:
    """Tell whether only this machine can reach an address.

    >>> loopback_only("127.0.0.1"), loopback_only("localhost"), loopback_only("0.0.0.0")
    (True, True, False)
    """
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# --- who may ask ---------------------------------------------------------------------------------------------------
class Guard:
    """Refuses requests that do not come from our own page, and bounds what others may send and how slowly.

    Parameters
    ----------
    app : ASGI application
        What answers.
    address : Address
        Where the server listens.
    """

    def __init__(self, app: ASGIApp, address: Address) -> None:
        self.app, self.address = app, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no other protocol is spoken
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refuse(scope, headers)
        answer: ASGIApp = self.app
        if refusal is not None:
            status, sentence = refusal
            # Who is refused may not go on sending.
            answer = JSONResponse({"error": sentence}, status, headers={"connection": "close"})
        else:
            scope = {**scope, "path": scope["path"][len(self.address.token) + 1 :]}
        await answer(scope, _bounded(receive), _hardened(send))

    def _refuse(self, scope: Scope, headers: Mapping[bytes, str]) -> tuple[int, str] | None:
        hosts = [value for name, value in scope["headers"] if name.lower() == b"host"]
        if len(hosts) != 1 or not self.address.knows(headers[b"host"]):
            return 421, "this server has another name; open the address that tubal open printed"
        origin = headers.get(b"origin")
        if origin is not None and not (origin.startswith("http://") and self.address.knows(origin[7:])):
            return 403, "another page may not use this one"
        site, mode = headers.get(b"sec-fetch-site", "none"), headers.get(b"sec-fetch-mode")
        if site not in ("none", "same-origin") and (scope["method"] != "GET" or mode != "navigate"):
            return 403, "another page may not use this one"
        path = scope["path"].split("/", 2)
        if len(path) != 3 or not hmac.compare_digest(path[1].encode(), self.address.token.encode()):
            return 404, "there is nothing here; open the address that tubal open printed"
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return 413, f"the request is too large; at most {MOST_BYTES >> 20} MB are read"
        return None


def _bounded(receive: Receive) -> Receive:
    """Return a ``receive`` that gives up on bodies that are too large or come too slowly."""
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS
    total, finished = 0, False

    async def bounded() -> Message:
        nonlocal total, finished
        if finished:  # only the end of the connection can follow
            return await receive()
        left = deadline - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(receive(), max(left, 0.0))
        except TimeoutError:
            return {"type": "http.disconnect"}
        total += len(message.get("body", b""))
        if total > MOST_BYTES:
            return {"type": "http.disconnect"}
        finished = not message.get("more_body", False)
        return message

    return bounded


def _hardened(send: Send) -> Send:
    """Return a ``send`` that adds headers and gives up on a client that does not read."""

    async def hardened(message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message["headers"]}
            added = [*HEADERS, (b"cache-control", b"no-store"), (b"content-security-policy", NO_CONTENT_POLICY)]
            message["headers"] = [*message["headers"], *(item for item in added if item[0] not in names)]
        await asyncio.wait_for(send(message), SEND_SECONDS)

    return hardened


class PatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, but a client has limited time to send the head of a request."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop waiting if the head of a request is complete."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


# --- who listens ---------------------------------------------------------------------------------------------------
class Listeners:
    """The pages that listen to events."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[str | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last: str | None = None
        self.ever, self.empty_since = False, 0.0

    def __len__(self) -> int:
        return len(self._queues)

    def tell(self, event: str, values: Mapping[str, object]) -> None:
        """Send an event to all pages, from any thread."""
        text = f"event: {event}\ndata: {json.dumps(values)}\n\n"
        self._last = text if event in ("progress", "problem") else None
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._tell, text)

    def close(self) -> None:
        """End all streams, from the loop of the server."""
        self._tell(None)

    def _tell(self, text: str | None) -> None:
        for queue in self._queues:
            if queue.full():  # a page that does not read needs only the last events
                queue.get_nowait()
            queue.put_nowait(text)

    async def listen(self, is_ready: Callable[[], bool]) -> AsyncIterator[str]:
        """Yield events until the page is closed.

        ``is_ready`` is asked only when this page would hear of it: what happens before must not be missed.
        """
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str | None] = asyncio.Queue(64)
        self._queues.add(queue)
        self.ever = True
        try:
            ready = "event: ready\ndata: {}\n\n" if is_ready() else ""
            yield f"retry: 1000\n\n{ready}{self._last or ''}"
            text: str | None = ""
            while text is not None:
                try:
                    text = await asyncio.wait_for(queue.get(), PULSE_SECONDS)
                except TimeoutError:
                    text = ": still here\n\n"
                if text is not None:
                    yield text
        finally:
            self._queues.discard(queue)
            self.empty_since = asyncio.get_running_loop().time()


# --- what is answered ----------------------------------------------------------------------------------------------
class BusyError(Exception):
    """More requests wait than the worker can answer soon."""


@dataclass
class Shown:
    """What is made once for the page: the session, its table, and the thumbnails."""

    session: Session
    data: ReportData
    sheets: LiveSheets

    @classmethod
    def of(cls, session: Session, stopped: Callable[[], bool]) -> Shown:
        """Gather what the page of a session shows; files are not read any more once ``stopped`` returns True."""
        from tubal.report.from_clusterer import report_data

        stack = session.results.stack()
        record = {name: value for name, value in session.results.record.items() if name != "files"}
        title = Path(str(record.get("source", ""))).name or session.results.out.name
        data = report_data(
            session.results.clusterer, stack.images, stack.names, provenance=record, title=title, explain=False
        )
        factor = fine_factor(*data.images.shape[1:3])
        larger = partial(session.results.larger, factor=factor, stopped=stopped)
        return cls(session, data, LiveSheets(data.images, larger if session.results.has_larger() else None))


class LiveServer:
    """Serves the page of one folder of results.

    Parameters
    ----------
    prepare : callable
        Called with a function that takes progress, ``(stage, done, total)``; returns the session. It runs in a worker
        while the page shows the progress.
    title : str
        Title of the page until the session is there.
    host : str, default="127.0.0.1"
        Where to listen.
    port : int, default=0
        Port; 0 for any free one.
    exit_when_closed : bool, default=False
        Stop when the last page was closed.
    """

    def __init__(
        self,
        prepare: Callable[[Callable[[str, int, int], None]], Session],
        *,
        title: str,
        host: str = "127.0.0.1",
        port: int = 0,
        exit_when_closed: bool = False,
    ) -> None:
        self._prepare, self._title, self._exit_when_closed = prepare, title, exit_when_closed
        self._socket = _listen(host, port)
        self.address = Address(host, self._socket.getsockname()[1], secrets.token_urlsafe(18))
        self.shown: Shown | None = None
        self.problem: BaseException | None = None
        self.listeners = Listeners()
        self._worker = ThreadPoolExecutor(1, "tubal-session")
        self._readers = ThreadPoolExecutor(4, "tubal-reader")
        self._warmer = ThreadPoolExecutor(1, "tubal-warmer")
        # One fine sheet may take seconds: others have to wait for it, but no other request.
        self._refiner = ThreadPoolExecutor(1, "tubal-refiner")
        self._warming: list[Future[object]] = []
        self._n_waiting = 0
        self._stopping = threading.Event()
        self._sheet = lru_cache(KEPT_SHEETS)(self._make_sheet)
        self._fine_sheet = lru_cache(KEPT_SHEETS)(self._make_fine_sheet)
        self._uvicorn = _QuietServer(self._configured())

    # --- running -----------------------------------------------------------------------------------------
    def run(self) -> None:
        """Serve until Ctrl-C, SIGTERM, or the last page is closed; then wait for what the worker is doing."""
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._stopping.set()
            for pool in (self._warmer, self._worker, self._readers, self._refiner):
                pool.shutdown(wait=True, cancel_futures=True)
        if self.problem is not None:
            raise self.problem

    def _configured(self) -> uvicorn.Config:
        return uvicorn.Config(
            Guard(self._application(), self.address),
            http=PatientProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",  # what fails is logged here, in one line
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=int(HEAD_SECONDS),
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=32 << 10,
        )

    @property
    def stopped(self) -> bool:
        """Whether the server was ended by a signal."""
        return self._uvicorn.was_signalled

    def _is_ending(self) -> bool:
        return self._stopping.is_set() or self._uvicorn.should_exit

    def stop(self) -> None:
        """Ask the server to end, from any thread."""
        self._uvicorn.should_exit = True

    def _application(self) -> Starlette:
        routes = [
            Route("/", self._page),
            Route("/state", self._state),
            Route("/act", self._act, methods=["POST"]),
            Route("/question", self._question),
            Route("/split", self._split),
            Route("/sheet/{number:int}", self._send_sheet),
            Route("/fine/{number:int}", self._send_fine_sheet),
            Route("/picture/{row:int}", self._picture),
            Route("/image/{row:int}", self._image),
            Route("/duplicates", self._duplicates),
            Route("/export", self._export, methods=["POST"]),
            Route("/events", self._events),
        ]
        handlers: Any = {404: _not_found, 405: _not_found, Exception: _failed}
        handlers |= dict.fromkeys((ValueError, TypeError, IndexError, ImportError, OSError), _refused)
        handlers |= {BusyError: _busy, ClientDisconnect: _too_slow}
        return Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        self.listeners._loop = loop
        watch = loop.create_task(self._watch())
        loop.run_in_executor(self._worker, self._open)
        try:
            yield
        finally:
            self._stopping.set()
            watch.cancel()

    def _open(self) -> None:
        """Make the session, in the worker; a problem is shown on the page and ends the server."""
        try:
            session = self._prepare(self._report)
            self.shown = Shown.of(session, self._is_ending)
            self._warming = [self._warmer.submit(task) for task in session.warm_up()]
            self.listeners.tell("ready", {})
        except BaseException as error:  # also a request to stop: it is raised again where the server was started
            self.problem = error
            if not self._stopping.is_set():
                self.listeners.tell("problem", {"error": " ".join(str(error).split()) or type(error).__name__})

    def _report(self, stage: str, done: int, total: int) -> None:
        if self._stopping.is_set():
            raise KeyboardInterrupt
        self.listeners.tell("progress", {"stage": stage, "done": int(done), "total": int(total)})

    async def _watch(self) -> None:
        """Stop the server after a problem, once the page had time to show it, and when all pages are closed.

        Streams of events are ended when it stops for any reason.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0.1)
            if self._uvicorn.should_exit:
                self.listeners.close()
            closed = self.listeners.ever and not len(self.listeners)
            if self._exit_when_closed and closed and loop.time() - self.listeners.empty_since > CLOSED_SECONDS:
                self._uvicorn.should_exit = True
            if self.problem is not None:
                await asyncio.sleep(1.0)
                self._uvicorn.should_exit = True

    # --- work --------------------------------------------------------------------------------------------
    def _ready(self) -> Shown:
        if self.shown is None:
            raise BusyError("the pictures are still being sorted; wait for the page")
        return self.shown

    async def _work(self, task: Callable[[], Value]) -> Value:
        """Do something with the session in the worker, one thing after the other."""
        if self._n_waiting >= MOST_WAITING:
            raise BusyError("too many requests are waiting; try again")
        self._n_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, task)
        finally:
            self._n_waiting -= 1

    async def _think(self, task: Callable[[], Value]) -> Value:
        """Do something in the worker that needs what is being prepared since the start."""
        await asyncio.gather(*map(asyncio.wrap_future, self._warming), return_exceptions=True)
        return await self._work(task)

    async def _read(self, task: Callable[[], Value]) -> Value:
        """Read something that does not change, beside the worker."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, task)

    # --- requests ----------------------------------------------------------------------------------------
    async def _page(self, request: Request) -> Response:
        if self.shown is None:
            policy = live_policy(waiting=True)
            return HTMLResponse(build_waiting(self._title), headers={"content-security-policy": policy})
        shown = self.shown
        page = await self._work(lambda: build_live(shown.data, shown.sheets, shown.session.state()))
        return HTMLResponse(page, headers={"content-security-policy": live_policy()})

    async def _state(self, request: Request) -> Response:
        return JSONResponse(await self._work(self._ready().session.state))

    async def _act(self, request: Request) -> Response:
        session, asked = self._ready().session, await _json(request)
        state = await self._think(lambda: session.act(asked))
        self.listeners.tell("state", {"revision": state["revision"]})
        return JSONResponse(state)

    async def _question(self, request: Request) -> Response:
        session, given = self._ready().session, request.query_params.get("skip", "")
        skip = [session._image(_number(part)) for part in given.split(",") if part]
        return JSONResponse(await self._think(lambda: session.question(skip)))

    async def _split(self, request: Request) -> Response:
        session, cluster = self._ready().session, _number(request.query_params.get("cluster", ""))
        return JSONResponse({"parts": await self._think(lambda: session.split_preview(cluster))})

    async def _duplicates(self, request: Request) -> Response:
        return JSONResponse({"groups": await self._work(self._ready().session.duplicates)})

    async def _image(self, request: Request) -> Response:
        shown = self._ready()
        row = shown.session._image(request.path_params["row"])
        return JSONResponse(await self._read(lambda: describe_image(shown, row)))

    async def _send_sheet(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number >= self._ready().sheets.n_sheets:
            raise IndexError(f"there is no sheet {number}")
        return _kept(await self._read(partial(self._sheet, number)), "image/png")

    def _make_sheet(self, number: int) -> bytes:
        return self._ready().sheets.sheet(number)

    async def _send_fine_sheet(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number >= self._ready().sheets.n_fine_sheets:
            raise HTTPException(404)
        make = partial(self._fine_sheet, number)
        return _kept(await asyncio.get_running_loop().run_in_executor(self._refiner, make), "image/jpeg")

    def _make_fine_sheet(self, number: int) -> bytes:
        made = self._ready().sheets.fine_sheet(number)
        if self._is_ending():  # not all files were read
            raise BusyError("the server is ending")
        return made

    async def _picture(self, request: Request) -> Response:
        shown = self._ready()
        row = shown.session._image(request.path_params["row"])
        return _kept(*await self._read(lambda: original_picture(shown, row)))

    async def _export(self, request: Request) -> Response:
        session, asked = self._ready().session, await _json(request)
        kind, mode = asked.get("kind"), asked.get("mode", "copy")
        if kind not in KINDS or mode not in MODES:
            raise ValueError(f"there is no export {kind!r} ({mode!r}); known are {', '.join(KINDS)}")
        snapshot = await self._work(lambda: Snapshot.of(session))
        try:
            made = await self._read(lambda: export(snapshot, str(kind), mode=str(mode)))
        finally:
            session.forget_files()
        return JSONResponse({"path": str(made.path), "files": made.n_files, "text": made.text})

    async def _events(self, request: Request) -> Response:
        if len(self.listeners) >= MOST_LISTENERS:
            raise BusyError("too many pages listen; close some")
        stream = self.listeners.listen(lambda: self.shown is not None)
        return StreamingResponse(stream, media_type="text/event-stream")


class _QuietServer(uvicorn.Server):
    """A server that ends by a signal as if it had been asked to."""

    was_signalled = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on the first signal, without raising it again afterwards."""
        with super().capture_signals():
            try:
                yield
            finally:
                self.was_signalled = bool(self._captured_signals)
                self._captured_signals.clear()


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {host}, port {port}: {error.strerror}; choose another --port") from error
    listener.listen(MOST_CONNECTIONS)  # a browser may come before the server is up
    return listener


# --- single images -------------------------------------------------------------------------------------------------
def describe_image(shown: Shown, row: int) -> dict[str, Any]:
    """Return the neighbours of an image, and which terms explain it, as JSON values."""
    from tubal.estimators.explanation import explain_images
    from tubal.report.from_clusterer import MAX_TERMS

    data = shown.data
    neighbors = [
        {
            "row": int(other),
            "distance": float(data.neighbor_distances[row, place]),
            "alignment": None if data.alignments is None else [float(value) for value in data.alignments[row, place]],
        }
        for place, other in enumerate(data.neighbors[row])
        if other >= 0 and np.isfinite(data.neighbor_distances[row, place])
    ]
    image = data.images[row : row + 1].astype(np.float32) / 255.0
    explanation = next(iter(explain_images(shown.session.clusterer.model_, image)))
    terms = [
        {"atom": int(atom), "dy": int(dy), "dx": int(dx), "coefficient": float(coefficient)}
        for atom, dy, dx, coefficient in explanation.table(MAX_TERMS)
    ]
    share = float(explanation.explained())
    return {
        "neighbors": neighbors,
        "terms": terms,
        "nTerms": len(explanation),
        "norm": float(explanation.norm),
        "explained": share if np.isfinite(share) else None,
        "note": explanation.note,
    }


def original_picture(shown: Shown, row: int) -> tuple[bytes, str]:
    """Return the picture of an image and its media type: its file as it is if browsers show it, otherwise as PNG."""
    import io

    from PIL import Image, ImageOps

    file = shown.session.files[row]
    buffer = io.BytesIO()
    # A file that has gone, or is no picture any more, is replaced by the picture in the model.
    with contextlib.suppress(OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        if os.path.isfile(file):
            with Image.open(file) as picture:
                if picture.width * picture.height > MOST_PIXELS:
                    raise ValueError("too large")
                if picture.format in SAFE_KINDS:
                    return Path(file).read_bytes(), SAFE_KINDS[picture.format]
                upright = ImageOps.exif_transpose(picture)
                upright.convert("RGBA" if "A" in upright.getbands() else "RGB").save(buffer, "PNG", compress_level=1)
                return buffer.getvalue(), "image/png"
    buffer = io.BytesIO()
    Image.fromarray(shown.data.images[row]).save(buffer, "PNG")
    return buffer.getvalue(), "image/png"


# --- answers -------------------------------------------------------------------------------------------------------
async def _json(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request; only our own page can send one without asking the browser first."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise ValueError("a JSON object is wanted, sent as application/json")
    try:
        asked = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise ValueError("a JSON object is wanted") from None
    if not isinstance(asked, dict):
        raise ValueError(f"a JSON object is wanted, not a {type(asked).__name__}")
    return asked


def _number(text: str) -> int:
    if not text.lstrip("-").isdecimal() or len(text) > 9:
        raise ValueError(f"{text[:20]!r} is not a number")
    return int(text)


def _kept(content: bytes, kind: str) -> Response:
    headers = {"cache-control": f"private, max-age={KEEP_SECONDS}, immutable"}
    return Response(content, media_type=kind, headers=headers)


async def _not_found(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "there is nothing here"}, getattr(error, "status_code", 404))


async def _refused(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": " ".join(str(error).split())}, 500 if isinstance(error, OSError) else 400)


async def _busy(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 503, headers={"retry-after": "1"})


async def _too_slow(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "the request is too large or came too slowly"}, 408, headers={"connection": "close"})


async def _failed(request: Request, error: Exception) -> Response:
    logger.error("request failed", exc_info=error)
    return JSONResponse({"error": f"unexpected {type(error).__name__}; the state on the disk is safe"}, 500)
