"""A real ``tubal open`` in a process of its own, requests to it, and random acts."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

import tubal
from helpers.cli_helpers import export
from tubal.cli import run
from tubal.datasets import make_shifted_shapes

NAMES = ("circle", "cross", "bar", "ring", "<b>x</b>", "=1+1")


class Client:
    """Requests to a server at ``address``."""

    address: str

    def request(self, path, body=None, *, method=None, headers=None, base=None, timeout=60):
        """Return status and body of the answer to a request."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            sent = {} if body is None else {"Content-Type": "application/json"}
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            target = (self.path if base is None else base) + path
            connection.request(method or ("GET" if body is None else "POST"), target, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            self.headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, answer.read()
        finally:
            connection.close()

    @property
    def host(self):
        return urlsplit(self.address).hostname

    @property
    def port(self):
        return urlsplit(self.address).port

    @property
    def path(self):
        return urlsplit(self.address).path

    def state(self):
        status, body = self.request("state")
        assert status == 200, body
        return json.loads(body)

    def act(self, **values):
        """Return the status and the answer to an act."""
        status, body = self.request("act", values)
        return status, json.loads(body)

    def wait(self, seconds=120):
        """Wait until the results are open."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            self.check_alive()
            with contextlib.suppress(OSError):
                if self.request("state")[0] == 200:
                    return
            time.sleep(0.05)
        raise AssertionError("the server was not ready in time")

    def listen(self):
        """Return a connection that listens to events."""
        listener = socket.create_connection((self.host, self.port), 30)
        listener.sendall(f"GET {self.path}events HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n\r\n".encode())
        return listener

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class LiveProcess(Client):
    """``tubal open`` in a process of its own."""

    def __init__(self, source: Path, *options: str, folder: Path | None = None, ready: bool = True):
        command = [sys.executable, "-m", "tubal", "open", str(source), "--no-browser", "--json", *options]
        # The process must find this tubal in any folder.
        path = os.pathsep.join([str(Path(tubal.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder or source.parent,
            env={**os.environ, "PYTHONPATH": path},
        )
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(self.process.stderr.read())
            text += line
        self.address = json.loads(text)["address"]
        if ready:
            self.wait()

    def check_alive(self):
        if self.process.poll() is not None:
            raise AssertionError(self.process.stderr.read())

    def kill(self):
        """End the process at once."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def stop(self, number=signal.SIGINT):
        """End the process as Ctrl-C does; return its exit code and what it printed."""
        os.kill(self.process.pid, number)
        _, printed = self.process.communicate(timeout=120)
        return self.process.returncode, printed


class LiveThread(Client):
    """The same server in a thread, which starts faster; nothing is written when it ends."""

    def __init__(self, out: Path, *, ready: bool = True, prepare=None, **options):
        from tubal.app.results import Results
        from tubal.app.server import LiveServer
        from tubal.app.session import Session

        make = prepare or (lambda report: Session(Results.open(out)))
        self.server = LiveServer(make, title="a pile", **options)
        self.address = self.server.address.url
        self.error = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        if ready:
            self.wait()

    def _run(self):
        try:
            self.server.run()
        except BaseException as error:
            self.error = error

    def check_alive(self):
        assert self.thread.is_alive(), self.error

    def kill(self):
        """Stop the server."""
        self.server.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def labels_of(state):
    """Return the labels in a state."""
    return np.frombuffer(base64.b64decode(state["labels"]["data"]), "<i4")


def without_times(state):
    """Return a state without the times of its acts."""
    return {**state, "history": [act["text"] for act in state["history"]]}


def random_act(rng, state):
    """Return a random act on the images and clusters of a state; some make no sense."""
    n_images = state["labels"]["shape"][0]
    clusters = [cluster["label"] for cluster in state["clusters"]] + [10**6]
    images = [int(i) for i in rng.integers(n_images, size=rng.integers(1, 6))]
    cluster, other = (int(c) for c in rng.choice(clusters, 2))
    name = str(rng.choice(NAMES))
    acts = [
        {"kind": "name", "images": images[:1], "name": name},
        {"kind": "name", "images": images, "name": name},
        {"kind": "rename", "cluster": cluster, "name": name},
        {"kind": "merge", "from": cluster, "into": other},
        {"kind": "move", "images": images, "to": cluster},
        {"kind": "move", "images": images, "to": "new"},
        {"kind": "move", "images": images, "to": "new", "name": name},
        {"kind": "move", "images": images, "to": "out"},
        {"kind": "same", "images": images},
        {"kind": "different", "images": images},
        {"kind": "split", "cluster": cluster},
        {"kind": "clusters", "k": int(rng.integers(1, 12))},
        {"kind": "keep", "row": images[0], "drop": images[1:]},
        {"kind": "skip", "image": images[0]},
        {"kind": "undo"},
        {"kind": "undo"},
        {"kind": "redo"},
        {"kind": "nonsense", "images": images},
        {"kind": "move", "images": [n_images], "to": cluster},
    ]
    return acts[int(rng.integers(len(acts)))]


def clustered_shapes(folder: Path) -> Path:
    """Cluster 64 pictures of four shapes, and return the folder of results."""
    made = make_shifted_shapes(64, n_classes=4, image_shape=(12, 12), random_state=0)
    export(made.images, folder / "pictures")
    assert run(["cluster", str(folder / "pictures"), "-k", "4", "-o", str(folder / "out"), "--quiet"]) == 0
    return folder / "out"


def kill_between_acts(out: Path, *, n_acts: int, n_kills: int, seed: int) -> dict[str, int]:
    """Do random acts over HTTP, kill the server in between, also while it works, and count what happened.

    The state after a restart must be the state before. An act that was sent when the server was killed is there as a
    whole or not at all.
    """
    rng = np.random.default_rng(seed)
    counts = {"accepted": 0, "refused": 0, "kills": 0, "kills at work": 0}
    known, at_work = None, False
    for part in [*np.array_split(np.arange(n_acts), n_kills), []]:
        with LiveProcess(out, "--quiet") as live:
            found = live.state()
            if known is not None and found != known:
                assert at_work, "the state after a restart is another"
                assert found["revision"] == known["revision"] + 1, "half an act was done"
            known = found
            for _ in part:
                status, answer = live.act(**random_act(rng, known))
                assert status in (200, 400), answer
                counts["accepted" if status == 200 else "refused"] += 1
                known = answer if status == 200 else known
            at_work = bool(rng.random() < 0.5)
            if at_work:
                _send(live, random_act(rng, known))
                time.sleep(float(rng.uniform(0.0, 0.1)))
            counts["kills at work" if at_work else "kills"] += 1
    return counts


def _send(live, act):
    """Send an act without waiting for the answer."""
    body = json.dumps(act).encode()
    head = f"POST {live.path}act HTTP/1.1\r\nHost: {live.host}:{live.port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((live.host, live.port), 10) as sender:
        sender.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
