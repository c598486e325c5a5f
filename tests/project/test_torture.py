"""The records of the stress tests, and the page that is made from them."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests import torture  # noqa: E402
from torture_processes import Run, _judge_stop, check_results  # noqa: E402


def write_record(folder: Path, name: str, **changes: object) -> None:
    record = {
        "lines": [f"what {name} found"], "failed": False, "seconds": 7, "share": 1.0, "jobs": 4, "seed": 1,
        "commit": "abc1234", "machine": {"processor": "a processor", "cores": 16}, "versions": {"python": "3.12.1"},
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record | changes))


def test_page_merges_records_of_several_machines(tmp_path: Path) -> None:
    page = tmp_path / "torture.md"
    page.write_text("# Old\n\n- an old line\n\n## Bugs\n\nkept\n")
    write_record(tmp_path / "torture", "forged")
    write_record(tmp_path / "torture", "saves", commit="def5678")
    torture.write_page(tmp_path / "torture", page)
    text = page.read_text()
    assert "- a: `--share 1 --jobs 4 --seed 1` at commit abc1234; a processor, 16 cores; python 3.12.1" in text
    assert "- what forged found (a, 7 s)" in text
    assert "- what saves found (b, 7 s)" in text
    assert "an old line" not in text
    assert text.endswith("## Bugs\n\nkept\n")


def test_recorded_page_is_made_from_its_records(tmp_path: Path) -> None:
    page = tmp_path / "torture.md"
    recorded = ROOT / "results" / "torture.md"
    page.write_bytes(recorded.read_bytes())
    torture.write_page(ROOT / "results" / "torture", page)
    assert page.read_text() == recorded.read_text()


@pytest.mark.parametrize(
    ("code", "printed", "expected"),
    [
        (130, "tubal: stopped; no half-written file was left behind\n", "stopped"),
        (130, "", "early"),
        (-2, "", "early"),
        (1, "Traceback\n  File lazy_loader.py\nKeyboardInterrupt\n", "early"),
        (1, "Traceback\n  File tubal/cli/pipeline.py\nKeyboardInterrupt\n", "SIGINT: exit code 1"),
        (-11, "", "SIGINT: exit code -11"),
        (130, "tubal: stopped; a\nmore\n", "SIGINT: not one sentence"),
    ],
)
def test_stops_are_judged(code: int, printed: str, expected: str) -> None:
    assert _judge_stop(Run(code, printed, 1.0, 1.0), signal.SIGINT, "SIGINT").startswith(expected)


def test_mixed_results_are_found(tmp_path: Path) -> None:
    for name in ("labels.csv", "features.npz", "model.tubal", "report.html", "skipped.csv"):
        (tmp_path / name).write_text("file,cluster\na,0\n")
    digest = "b" * 64
    (tmp_path / "run.json").write_text(json.dumps({"clusters": 1, "outputs": {"labels.csv": digest}}))
    assert check_results(tmp_path) == "labels.csv is of another run than run.json"
    (tmp_path / "run.json").unlink()
    assert "the results are" in str(check_results(tmp_path))


def test_program_runs_as_a_module() -> None:
    from torture_processes import run_program

    assert run_program(["--version"]).code == 0
    assert "tubal: " in run_program(["cluster", "no such folder"]).printed
