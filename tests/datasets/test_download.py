"""Downloads from a real HTTP server on the loopback interface, with and without failures."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tubal.datasets.fetchers import DownloadError, HashMismatchError, download, verify_file

BODY = bytes(range(256)) * 1024
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serve ``BODY`` with the failure that the path names; ``path-2`` fails twice and then works."""

    def do_GET(self):
        self.server.requests[self.path] += 1
        kind, _, bad_times = self.path.strip("/").partition("-")
        recovered = bad_times and self.server.requests[self.path] > int(bad_times)
        body = b"another file" if kind == "other" and not recovered else BODY
        status = {"missing": 404, "broken": 503}.get(kind, 200) if not recovered else 200
        self.send_response(status)
        if kind != "unsized":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = kind in ("cut", "unsized") and not recovered
        self.wfile.write(body[: len(body) // 2] if cut else body)

    def log_message(self, *arguments):
        """Keep the test output quiet."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.requests = Counter()
        running.address = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def fetch_from(server, *paths, to, sha256=SHA256):
    addresses = [f"{server.address}/{path}" for path in paths]
    return download(addresses, to, sha256=sha256, attempts=3, pause=0.01, timeout=5)


def test_download_creates_folder_and_file(server, tmp_path):
    path = fetch_from(server, "whole", to=tmp_path / "new" / "data.bin")
    assert path.read_bytes() == BODY
    assert [entry.name for entry in path.parent.iterdir()] == ["data.bin"]
    assert server.requests["/whole"] == 1


@pytest.mark.parametrize("path", ["broken-2", "cut-2"])
def test_temporary_failure_is_retried(server, tmp_path, path):
    assert fetch_from(server, path, to=tmp_path / "data.bin").read_bytes() == BODY
    assert server.requests[f"/{path}"] == 3


@pytest.mark.parametrize(
    ("path", "reason", "requests"),
    [
        ("other", "expected SHA-256 .* received", 1),
        ("missing", "HTTP 404", 1),
        ("broken", "HTTP 503", 3),
        ("cut", "ended after 131072 of 262144 bytes|IncompleteRead", 3),
        ("unsized", "expected SHA-256 .* received", 1),
    ],
)
def test_permanent_failure_leaves_no_file(server, tmp_path, path, reason, requests):
    with pytest.raises(DownloadError, match=reason) as caught:
        fetch_from(server, path, to=tmp_path / "data.bin")
    assert f"put it at {tmp_path / 'data.bin'}" in str(caught.value)
    assert server.requests[f"/{path}"] == requests
    assert list(tmp_path.iterdir()) == []


def test_next_address_is_tried_after_a_failure(server, tmp_path):
    assert fetch_from(server, "missing", "other", "whole", to=tmp_path / "data.bin").read_bytes() == BODY


def test_refused_connection_raises_after_three_attempts(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(DownloadError, match=r"refused.*\(3 attempts\)"):
        download([f"http://127.0.0.1:{port}/data.bin"], tmp_path / "data.bin", sha256=SHA256, pause=0.01, timeout=5)


def test_failed_download_keeps_older_file(server, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"older")
    with pytest.raises(DownloadError):
        fetch_from(server, "cut", to=tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == b"older"


def test_unwritable_folder_is_an_error_before_any_request(server, tmp_path):
    (tmp_path / "occupied").write_text("a file, not a folder")
    with pytest.raises(DownloadError, match=r"cannot be written to .* TUBAL_DATA"):
        fetch_from(server, "whole", to=tmp_path / "occupied" / "data.bin")
    assert not server.requests


def test_damaged_file_is_kept(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(b"damaged")
    found = hashlib.sha256(b"damaged").hexdigest()
    with pytest.raises(HashMismatchError, match=f"data.bin .* expected SHA-256 {SHA256}, found {found}"):
        verify_file(path, SHA256)
    assert path.read_bytes() == b"damaged"
