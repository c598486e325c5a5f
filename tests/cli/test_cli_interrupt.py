"""Ctrl-C at every stage: one line, nothing half-written."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.cli_helpers import RESULTS

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
    code = "import tubal.cli; tubal.cli.main()"
    arguments = ["cluster", str(shapes), "-k", "4", "-o", str(out), "--force", "--sort", "copy"]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True, bufsize=1)
    assert process.stderr is not None
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
    last = f"the progress is saved in {kept}, run the same command with --resume to continue"
    assert (
        printed.splitlines()[-1]
        == f"tubal: stopped; {last if kept.exists() else 'no half-written file was left behind'}"
    )
    assert printed.count("tubal:") == 1
    after = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()} if out.exists() else {}
    assert after == before
