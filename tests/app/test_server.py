"""The server of ``tubal open`` with real sockets: who may ask, what is answered, and that it stays alive."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import signal
import socket
import threading
import time

import numpy as np
import pytest
from PIL import Image

from helpers.cli_helpers import RESULTS, cluster_shapes, one_sentence, read_csv
from helpers.live_server import LiveProcess, LiveThread, kill_between_acts, labels_of
from tubal.app import server as server_module
from tubal.app.results import Results
from tubal.app.server import Address, Listeners, loopback_only
from tubal.app.session import Session
from tubal.cli import run
from tubal.cli.cluster import ClusterRequest
from tubal.cli.open import _preparation
from tubal.cli.options import State
from tubal.storage.files import reserve


@pytest.fixture(scope="module")
def clustered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    cluster_shapes(folder)
    return folder


@pytest.fixture(scope="module")
def live(clustered):
    with LiveThread(clustered / "out") as server:
        yield server


@pytest.fixture
def place(clustered, tmp_path):
    """A copy of the results that a test may change."""
    shutil.copytree(clustered / "out", tmp_path / "out")
    return tmp_path / "out"


# --- what is answered --------------------------------------------------------------------------------------------
def test_the_page_allows_only_its_own_script(live):
    status, body = live.request("")
    assert status == 200
    policy = live.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "connect-src 'self'" in policy
    payload = json.loads(re.search(rb'<script[^>]*id="payload"[^>]*>(.*?)</script>', body, re.DOTALL)[1])
    assert payload["live"]
    assert payload["state"]["labels"]["shape"] == [48]
    assert payload["sprites"]["nSheets"] == 1


def test_every_answer_is_hardened(live):
    for path in ("", "state", "sheet/0", "picture/0", "nowhere"):
        live.request(path)
        assert live.headers["x-content-type-options"] == "nosniff"
        assert live.headers["referrer-policy"] == "no-referrer"
        assert live.headers["cross-origin-resource-policy"] == "same-origin"
        assert "default-src 'none'" in live.headers["content-security-policy"]
        assert "server" not in live.headers


def test_sheets_hold_the_images(live, clustered):
    status, body = live.request("sheet/0")
    assert (status, live.headers["content-type"]) == (200, "image/png")
    assert "max-age" in live.headers["cache-control"]
    sheet = Image.open(io.BytesIO(body))
    original = np.asarray(Image.open(clustered / "pictures" / "0001.png"), dtype=float)
    tile = np.asarray(sheet, dtype=float)[1:13, 15:27]
    np.testing.assert_allclose(tile / tile.max(), original / original.max(), atol=0.02)
    assert live.request("sheet/1")[0] == 400


def test_pictures_are_the_files(live, clustered):
    status, body = live.request("picture/7")
    assert (status, live.headers["content-type"]) == (200, "image/png")
    assert body == (clustered / "pictures" / "0007.png").read_bytes()


def test_a_file_that_is_no_picture_any_more_is_not_sent(place, clustered):
    record = json.loads((place / "run.json").read_text())
    secret = place.parent / "secret.txt"
    secret.write_text("secret")
    os.mkfifo(place.parent / "pipe")
    record["files"][:4] = [str(secret), str(place.parent / "pipe"), "/nowhere.png", str(place.parent)]
    (place / "run.json").write_text(json.dumps(record))
    with LiveThread(place) as live:
        for row in range(4):
            status, body = live.request(f"picture/{row}")
            assert (status, live.headers["content-type"]) == (200, "image/png")
            assert Image.open(io.BytesIO(body)).size == (12, 12)


def test_details_of_an_image(live):
    status, body = live.request("image/3")
    found = json.loads(body)
    assert status == 200
    assert found["neighbors"][0].keys() == {"row", "distance", "alignment"}
    assert found["terms"][0].keys() == {"atom", "dy", "dx", "coefficient"}
    assert 0.0 < found["explained"] <= 1.0


def test_questions_splits_and_duplicates(live):
    question = json.loads(live.request("question?skip=1,2")[1])
    assert question["image"] not in (None, 1, 2)
    parts = json.loads(live.request("split?cluster=0")[1])["parts"]
    assert len(parts) == 2
    assert json.loads(live.request("duplicates")[1])["groups"] == []
    for path in ("question?skip=x", "question?skip=99", "split?cluster=99", "split", "image/99", "picture/48"):
        status, body = live.request(path)
        assert status == 400, path
        assert len(json.loads(body)["error"].splitlines()) == 1


def test_events_tell_about_acts(place):
    with LiveThread(place) as live, live.listen() as listener:
        heard = listener.recv(4096)
        while b"ready" not in heard:
            heard += listener.recv(4096)
        live.act(kind="rename", cluster=0, name="ring")
        while b'event: state\ndata: {"revision": 1}' not in heard:
            heard += listener.recv(4096)


def test_a_page_that_listens_late_hears_that_the_results_are_ready():
    listeners, shown = Listeners(), []
    stream = listeners.listen(lambda: bool(shown))
    shown.append("results")
    listeners.tell("ready", {})  # after the page has asked, before it listens

    async def first() -> str:
        return await anext(stream)

    assert "event: ready" in asyncio.run(first())


def test_an_accepted_act_is_on_the_disk(place):
    with LiveThread(place) as live:
        status, state = live.act(kind="rename", cluster=0, name="ring")
        assert status == 200
        assert b"ring" in place.with_name("out.hints").read_bytes()
        status, refused = live.act(kind="rename", cluster=99, name="ring")
        assert (status, list(refused)) == (400, ["error"])
        assert live.state() == state
    with LiveThread(place) as live:
        assert live.state() == state


# --- who may ask -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "127.0.0.1.evil.example:{port}"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ],
)
def test_foreign_pages_are_refused(live, headers):
    sent = {name: value.format(port=live.port) for name, value in headers.items()}
    for path, body in (("", None), ("state", None), ("picture/0", None), ("act", {"kind": "undo"})):
        status, answer = live.request(path, body, headers=sent)
        assert status in (403, 421), (headers, path)
        assert b"data" not in answer


def test_own_names_are_accepted(live):
    for host in (f"localhost:{live.port}", f"127.0.0.1:{live.port}"):
        assert live.request("state", headers={"Host": host, "Origin": f"http://{host}"})[0] == 200
    navigation = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert live.request("", headers=navigation)[0] == 200


@pytest.mark.parametrize("base", ["/", "/wrong/", "//", "/../", "", "/%2e%2e/", "x"])
def test_requests_without_the_token_are_refused(live, base):
    for path in ("", "state", "picture/0"):
        status, body = live.request(path, base=base)
        assert status in (400, 404)
        assert b"labels" not in body


@pytest.mark.parametrize(
    "path",
    [
        "picture/../../../../etc/passwd",
        "picture/..%2f..%2f..%2fetc%2fpasswd",
        "picture//etc/passwd",
        "picture/-1",
        "picture/1e3",
        "picture/0x10",
        "picture/99999999999999999999",
        "picture/0/../../state",
        "sheet/..",
        "image/%00",
        "export",
        "model.tubal",
        "../out/run.json",
        "picture/٣",
    ],
)
def test_path_outside_the_page_is_not_found(live, path):
    status, body = live.request(path.encode("utf-8").decode("latin-1") if path.isascii() else "picture/%D9%A3")
    assert status in (400, 404, 405)
    assert b"root:" not in body
    assert len(body) < 300


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[1]", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"\xff\xfe", {}, 400),
        (b"{}", {}, 400),
        (b'{"kind": "undo"}', {"Content-Type": "text/plain"}, 400),
        (b'{"kind": "name", "images": [1e400], "name": "x"}', {}, 400),
        (b" " * 3_000_000, {}, 413),
        (b"{}", {"Content-Length": "99999999999"}, 413),
        (b"{}", {"Content-Length": "-1"}, 400),
    ],
)
def test_senseless_bodies_are_refused(live, body, headers, status):
    before = live.state()
    try:
        assert live.request("act", body, headers=headers, timeout=30)[0] == status
    except (BrokenPipeError, ConnectionResetError):  # the server did not read to the end
        assert status == 413
    assert live.state() == before


def test_endless_bodies_are_cut_off(live):
    with socket.create_connection((live.host, live.port), 20) as sender:
        head = f"POST {live.path}act HTTP/1.1\r\nHost: {live.host}:{live.port}\r\nContent-Type: application/json\r\n"
        sender.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        sent = 0
        try:
            while sent < 20 << 20:
                sender.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
                sent += 65536
        except OSError:
            pass
    assert sent < 20 << 20
    assert live.request("state")[0] == 200


def test_many_and_slow_clients_do_not_stop_it(live):
    slow = []
    for start in (b"", b"G", f"GET {live.path}state HTTP/1.1\r\nHost:".encode()):
        for _ in range(40):
            client = socket.create_connection((live.host, live.port), 10)
            client.sendall(start)
            slow.append(client)
    statuses = []

    def ask():
        statuses.append(live_request(live, "state"))

    threads = [threading.Thread(target=ask) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == 200
    assert set(statuses) <= {200, 503}
    assert live.request("state")[0] == 200
    for client in slow:
        client.close()


def live_request(live, path):
    """Return the status of one request, in any thread."""
    import http.client

    connection = http.client.HTTPConnection(live.host, live.port, timeout=60)
    connection.request("GET", live.path + path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_clients_that_send_or_read_too_slowly_are_cut_off(place, monkeypatch):
    for name in ("HEAD_SECONDS", "BODY_SECONDS"):
        monkeypatch.setattr(server_module, name, 0.3)
    with LiveThread(place) as live:
        head = f"POST {live.path}act HTTP/1.1\r\nHost: {live.host}:{live.port}\r\nContent-Type: application/json\r\n"
        for start, status in ((b"", b""), (b"GET / HTT", b""), (f"{head}Content-Length: 9\r\n\r\n{{".encode(), b"408")):
            with socket.create_connection((live.host, live.port), 30) as client:
                client.sendall(start)
                answer = client.recv(1000)
                assert status in answer
                while answer:  # until the connection is closed
                    answer = client.recv(1000)
        assert live.request("state")[0] == 200


def test_nothing_is_written_outside_the_results(place):
    before = set(place.parent.iterdir())
    with LiveThread(place) as live:
        for name in ("../../evil", "/etc/evil", "a\x00b", "..", "CON", "x" * 200):
            live.act(kind="rename", cluster=0, name=name)
            live.request("export", {"kind": "folders", "mode": "copy"})
        for kind in ("../evil", None, ["csv"], "zip"):
            assert live.request("export", {"kind": kind})[0] == 400
        assert live.request("export", {"kind": "folders", "mode": "../x"})[0] == 400
    after = set(place.parent.iterdir())
    assert {path.name for path in after - before} <= {"out.hints", ".out.part"}
    made = {path.name for path in (place / "exports" / "folders").iterdir()}
    assert all("/" not in name and name not in ("..", ".") for name in made)


# --- start and end -----------------------------------------------------------------------------------------------
def test_a_second_process_gets_one_sentence(place, capsys):
    with reserve(place):
        for command, *options in (["open", "--no-browser"], ["export"], ["ask"]):
            assert run([command, str(place), *options]) == 2
            assert "another run (process" in one_sentence(capsys)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_stops_it_and_writes_the_results(place, number):
    with LiveProcess(place) as live:
        live.act(kind="rename", cluster=0, name="ring")
        labels = labels_of(live.state())
        with live.listen() as page:  # an open page does not hold it up
            assert page.recv(4096)
            code, printed = live.stop(number)
    assert code == 0, printed
    assert printed.splitlines()[-1] == "stopped; everything is saved"
    assert "Traceback" not in printed
    named = [row["name"] == "ring" for row in read_csv(place / "labels.csv")]
    assert named == (labels == 0).tolist()
    assert [path.name for path in place.parent.iterdir() if path.name.startswith(".")] == []


def test_it_ends_when_the_last_page_is_closed(place, monkeypatch):
    monkeypatch.setattr(server_module, "CLOSED_SECONDS", 0.3)
    with LiveThread(place, exit_when_closed=True) as live:
        with live.listen() as page:
            assert page.recv(4096)
            time.sleep(0.6)
            assert live.request("state")[0] == 200
        live.thread.join(30)
        assert not live.thread.is_alive()


def test_the_page_shows_progress_before_there_is_a_session(place):
    go_on = threading.Event()

    def prepare(report):
        report("reading images", 3, 48)
        go_on.wait(30)
        return Session(Results.open(place))

    with LiveThread(place, prepare=prepare, ready=False) as live:
        assert b"<script" in live.request("")[1]
        assert live.request("state")[0] == 503
        with live.listen() as page:
            heard = b""
            while b'{"stage": "reading images", "done": 3, "total": 48}' not in heard:
                heard += page.recv(4096)
            go_on.set()
            while b"event: ready" not in heard:
                heard += page.recv(4096)
        assert live.state()["revision"] == 0


def test_a_problem_is_shown_and_raised(place):
    def prepare(report):
        time.sleep(0.3)
        raise ValueError("no pictures\nhere")

    with LiveThread(place, prepare=prepare, ready=False) as live:
        with live.listen() as page:
            heard = b""
            while b'event: problem\ndata: {"error": "no pictures here"}' not in heard:
                heard += page.recv(4096)
        live.thread.join(30)
    assert isinstance(live.error, ValueError)


def test_pictures_are_clustered_while_the_page_waits(clustered, tmp_path):
    state, out = State(quiet=True), tmp_path / "out"
    asked = ClusterRequest((str(clustered / "pictures"),), out, 3)
    with reserve(out) as hidden:
        prepare = _preparation(state, out, asked, {}, hidden, [])
        with LiveThread(out, prepare=prepare, ready=False) as live:
            with live.listen() as page:
                heard = b""
                while b"event: ready" not in heard:
                    heard += page.recv(65536)
            for stage in (b"reading images", b"clustering: cutting the graph", b"drawing the report", b"opening"):
                assert stage in heard
            assert len(live.state()["clusters"]) == 3
    assert {path.name for path in out.iterdir()} == RESULTS


@pytest.mark.slow
def test_pictures_are_clustered_first(clustered, tmp_path):
    with LiveProcess(clustered / "pictures", "-k", "3", folder=tmp_path, ready=False) as live:
        status, page = live.request("")
        assert status == 200
        assert b"<script" in page
        live.wait()
        assert len(live.state()["clusters"]) == 3
        status, state = live.act(kind="rename", cluster=0, name="ring")
        live.kill()  # one kill, which loses nothing
    with LiveProcess(clustered / "pictures", folder=tmp_path) as live:
        assert (status, live.state()) == (200, state)
        assert live.stop()[0] == 0
    assert "ring" in (tmp_path / "tubal-out" / "labels.csv").read_text()
    with LiveThread(tmp_path / "tubal-out") as live:
        assert live.state()["clusters"][0]["name"] == "ring"


@pytest.mark.slow
def test_ctrl_c_during_the_clustering_leaves_the_checkpoint_only(clustered, tmp_path):
    with LiveProcess(clustered / "pictures", folder=tmp_path, ready=False) as live:
        with live.listen() as page:  # it is at work
            heard = b""
            while b"event: progress" not in heard:
                heard += page.recv(4096)
        code, printed = live.stop()
    assert code == 130
    assert printed.splitlines()[-1].startswith("tubal: stopped; ")
    assert "Traceback" not in printed
    assert {path.name for path in tmp_path.iterdir()} <= {"tubal-out.checkpoint"}


@pytest.mark.slow
def test_a_folder_without_pictures_gets_one_sentence(tmp_path):
    (tmp_path / "empty").mkdir()
    with LiveProcess(tmp_path / "empty", folder=tmp_path, ready=False) as live:
        _, printed = live.process.communicate(timeout=60)
    assert live.process.returncode == 2
    assert printed.splitlines()[-1].startswith("tubal: ")
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{tmp}/nowhere"], "no file or folder"),
        (["digitz"], "did you mean 'digits'"),
        (["{tmp}/notes.txt"], "cannot be read"),
        (["{pictures}", "--out", "{pictures}/out"], "lies in the source"),
        (["{pictures}", "--out", "{tmp}"], "holds files already"),
    ],
)
def test_no_page_opens_for_a_wrong_source_or_place(arguments, sentence, clustered, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("not a picture")
    filled = [part.format(tmp=tmp_path, pictures=clustered / "pictures") for part in arguments]
    assert run(["open", "--no-browser", *filled]) == 2
    assert sentence in one_sentence(capsys)


def test_other_machines_need_an_explicit_flag(place, capsys):
    assert run(["open", str(place), "--host", "0.0.0.0"]) == 2
    assert "--share" in one_sentence(capsys)
    with LiveThread(place, host="0.0.0.0") as live:
        assert live.state()["revision"] == 0
        assert live.request("state", headers={"Host": f"evil.example:{live.port}"})[0] == 421
        assert live.request("state", headers={"Host": f"192.0.2.1:{live.port}"})[0] == 200


def test_a_port_in_use_gets_one_sentence(place, live, capsys):
    assert run(["open", str(place), "--port", str(live.port)]) == 2
    assert "choose another --port" in one_sentence(capsys)


def test_missing_packages_get_one_sentence(place, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tubal.app.server", None)
    assert run(["open", str(place)]) == 2
    one_sentence(capsys)


def test_addresses_know_their_own_names():
    assert loopback_only("::1")
    assert not loopback_only("example.org")
    local = Address("127.0.0.1", 80, "t")
    assert [local.knows(host) for host in ("127.0.0.1:80", "[::1]:80", "10.0.0.1:80", "a:80")] == [
        True,
        True,
        False,
        False,
    ]
    assert Address("::1", 80, "t").url == "http://[::1]:80/t/"
    assert Address("10.0.0.1", 80, "t").knows("10.0.0.1:80")
    assert not Address("10.0.0.1", 80, "t").knows("10.0.0.2:80")


@pytest.mark.slow
def test_kills_between_random_acts_lose_nothing(place):
    kill_between_acts(place, n_acts=40, n_kills=3, seed=0)
