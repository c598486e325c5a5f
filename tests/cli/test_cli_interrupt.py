"""Ctrl-C at every stage: one line, nothing half-written."""

from __future__ import annotations

import ctypes
import importlib
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from helpers.cli_helpers import RESULTS, one_sentence
from tubal.cli import run

pytest_plugins = ["helpers.cli_fixtures"]


@pytest.mark.parametrize(
    ("moment", "with_earlier_results"),
    [
        ("0.3", False),
        ("0.8", True),
        ("reading images", False),
        ("clustering", False),
        ("clustering", True),
        ("writing results", False),
        ("writing results", True),
    ],
)
def test_interrupt_leaves_no_partial_file(
    moment: str, with_earlier_results: bool, shapes: Path, results: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    if with_earlier_results:
        out.mkdir()
        for name in RESULTS:
            (out / name).write_bytes((results / name).read_bytes())
    before = {file.name: file.read_bytes() for file in out.iterdir()} if out.exists() else {}
    code = "import sys, tubal.cli; print('started', file=sys.stderr, flush=True); tubal.cli.main()"
    arguments = ["cluster", str(shapes), "-k", "4", "-o", str(out), "--force", "--sort", "copy"]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True, bufsize=1)
    assert process.stderr is not None
    assert process.stderr.readline() == "started\n"
    printed = ""
    if moment[0].isdigit():
        time.sleep(float(moment))
    else:
        while not printed.endswith("\n") or f"{moment}:" not in printed:
            line = process.stderr.readline()
            if not line:
                break
            printed += line
    process.send_signal(signal.SIGINT)
    printed += process.stderr.read()
    assert process.wait(timeout=60) in (130, 0)
    assert "Traceback" not in printed
    assert not [entry for entry in tmp_path.rglob("*") if entry.name.endswith(".part")]
    if process.returncode == 0:  # it had finished before the signal was seen
        assert {file.name for file in out.iterdir()} == RESULTS | {"clusters"}
        return
    kept = out.with_name("out.checkpoint")
    last = f"the progress is saved in {kept}; to continue, run: {shlex.join(['tubal', *arguments, '--resume'])}"
    saved = kept.exists() or kept.with_name("out.checkpoint.pictures").exists()
    assert printed.splitlines()[-1] == f"tubal: stopped; {last if saved else 'no half-written file was left behind'}"
    assert printed.count("tubal:") == 1
    after = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()} if out.exists() else {}
    assert after == before


def test_interrupt_before_the_first_picture_is_kept_leaves_no_folder(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tubal.images.reading.atomic_write", stop)
    assert run(["cluster", str(shapes), "-k", "4", "-o", str(tmp_path / "out"), "--views", "shape"]) == 130
    assert capsys.readouterr().err.endswith("tubal: stopped; no half-written file was left behind\n")
    assert list(tmp_path.iterdir()) == []


# --- moments at which an exception is lost or does harm ----------------------------------------------------------
IMPORTED = """
import signal
signal.raise_signal(signal.{name})
whole = True
"""


def wait_for_the_signal() -> None:
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        time.sleep(0.01)
    pytest.fail("the signal was lost")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_signal_during_an_import_waits_for_its_end(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "signalled_import.py").write_text(IMPORTED.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "signalled_import", raising=False)

    def open_model(_: Path) -> None:
        importlib.import_module("signalled_import")
        wait_for_the_signal()

    monkeypatch.setattr("tubal.cli.inputs.open_model", open_model)
    assert run(["info", "model.tubal"]) == code
    assert sys.modules["signalled_import"].whole
    assert one_sentence(capsys) == "tubal: stopped; no half-written file was left behind\n"


def test_ctrl_c_while_the_program_starts_is_quiet() -> None:
    # A shell that starts the tests in the background lets them ignore Ctrl-C, and every process they start.
    code = """
        import signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "click":
                    signal.raise_signal(signal.SIGINT)
        sys.meta_path.insert(0, Finder())
        import tubal.cli
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
    code = """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        import tubal.cli
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_signal_during_a_compilation_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three kernels in a row, the first one is compiled to its end, the second one not at all."""
    compiler: dict[str, object] = {"__name__": "numba.core.a_test", "signal": signal, "done": []}
    exec("def compile(): signal.raise_signal(signal.SIGINT); done.append(True)", compiler)
    kernels: dict[str, object] = {"__name__": "tubal.a_test", "compile": compiler["compile"]}
    exec("def kernel(): compile()\ndef open_model(_):\n    for _ in range(3): kernel()", kernels)
    monkeypatch.setattr("tubal.cli.inputs.open_model", kernels["open_model"])
    assert run(["info", "model.tubal"]) == 130
    assert compiler["done"] == [True]
    assert sys.getprofile() is None
    one_sentence(capsys)


def test_signal_lost_in_a_callback_is_raised_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGTERM))

    def open_model(_: Path) -> None:
        callback()
        wait_for_the_signal()

    monkeypatch.setattr("tubal.cli.inputs.open_model", open_model)
    handlers = [signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    assert run(["info", "model.tubal"]) == 143
    assert [signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)] == handlers
    one_sentence(capsys)


def test_cleaning_up_is_not_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cleaned = []

    def open_model(_: Path) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            time.sleep(0.5)
            signal.raise_signal(signal.SIGINT)
            cleaned.append(True)

    monkeypatch.setattr("tubal.cli.inputs.open_model", open_model)
    assert run(["info", "model.tubal"]) == 130
    assert cleaned == [True]
    one_sentence(capsys)


def test_sigterm_leaves_nothing_half_written(shapes: Path, tmp_path: Path) -> None:
    asked = ["cluster", str(shapes), "-k", "4", "-o", str(tmp_path / "out")]
    code = "import tubal.cli; tubal.cli.main()"
    process = subprocess.Popen([sys.executable, "-c", code, *asked], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("reading images")
    process.send_signal(signal.SIGTERM)
    printed = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert "Traceback" not in printed
    assert {entry.name for entry in tmp_path.iterdir()} <= {"out.checkpoint", "out.checkpoint.pictures"}
