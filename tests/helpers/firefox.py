"""A headless Firefox, driven by its own remote protocol (WebDriver BiDi), which needs no further program."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest


def require_firefox() -> str:
    """Return the path of Firefox, or skip; with ``TUBAL_FORBID_SKIPS=1`` fail instead."""
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program and find_spec("websocket"):
        return program
    reason = "needs firefox-esr (apt-get install firefox-esr) and websocket-client, which selenium brings along"
    if os.environ.get("TUBAL_FORBID_SKIPS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


class Firefox:
    """One page in a Firefox of its own."""

    def __init__(self, folder: Path) -> None:
        self._program = require_firefox()
        self._profile = folder / "firefox"
        self._numbers = itertools.count(1)

    def __enter__(self) -> Firefox:
        import websocket

        self._profile.mkdir(exist_ok=True)
        command = [self._program, "--headless", "--no-remote", "--profile", str(self._profile)]
        self._process = subprocess.Popen(
            [*command, "--remote-debugging-port", "0"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert self._process.stderr is not None
        address = next(found[0] for line in self._process.stderr if (found := re.search(r"ws://\S+", line)) is not None)
        self._socket = websocket.create_connection(f"{address}/session", timeout=60, suppress_origin=True)
        self._send("session.new", capabilities={})
        self._page = self._send("browsingContext.getTree")["contexts"][0]["context"]
        self._send("browsingContext.setViewport", context=self._page, viewport={"width": 1366, "height": 768})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(30)

    def _send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                assert answer["type"] == "success", answer
                return answer["result"]

    def open(self, address: str) -> None:
        """Open a page."""
        self._send("browsingContext.navigate", context=self._page, url=address, wait="complete")

    def run(self, script: str) -> Any:
        """Run JavaScript in the page; return what it gives: a text, a number, true, false or None."""
        result = self._send("script.evaluate", expression=script, target={"context": self._page}, awaitPromise=True)
        assert result["type"] == "success", result
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = 30) -> None:
        """Wait until a JavaScript condition holds; while the page changes it may fail."""
        end = time.monotonic() + seconds
        while not self.run(f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"):
            assert time.monotonic() < end, f"waited {seconds} s for {condition}"
            time.sleep(0.05)
