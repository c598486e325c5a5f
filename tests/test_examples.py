"""Every example runs as a newcomer would run it, and says what its text promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def execute(name: str, folder: Path, *arguments: str) -> str:
    """Run an example in an empty folder and return what it printed."""
    paths = os.pathsep.join(filter(None, [str(EXAMPLES.parent / "src"), os.environ.get("PYTHONPATH")]))
    finished = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "MPLBACKEND": "Agg"},
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def numbers(pattern: str, text: str) -> list[float]:
    found = re.search(pattern, text)
    assert found is not None, text
    return [float(group) for group in found.groups()]


def test_cluster_digits_is_ahead_of_k_means(tmp_path: Path) -> None:
    said = execute("cluster_digits", tmp_path)
    baseline, ours = numbers(r"K-means +([\d.]+) %.*\ntubal +([\d.]+) %", said)
    assert ours > baseline


def test_shift_aware_codes_need_fewer_atoms_and_draw_figure_2(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'tubal[plot]'")
    said = execute("shift_aware_codes", tmp_path, "figure2.png")
    tubal, ordinary = numbers(r"leave over ([\d.]+)% \(TubSC\) and ([\d.]+)% \(SC\)", said)
    assert tubal < ordinary / 4
    (change,) = numbers(r"features change by ([\d.]+)%", said)
    assert change < 1.0
    assert (tmp_path / "figure2.png").read_bytes().startswith(b"\x89PNG")


def test_own_graph_helps_and_a_directed_one_is_refused(tmp_path: Path) -> None:
    said = execute("own_graph", tmp_path)
    alone, together = numbers(r"looks alone: accuracy ([\d.]+)%\n.*time: accuracy ([\d.]+)%", said)
    assert together > alone
    assert "refused: adjacency is not symmetric" in said


def test_streaming_computes_the_same(tmp_path: Path) -> None:
    said = execute("streaming", tmp_path)
    (difference,) = numbers(r"the same to (\S+)", said)
    assert difference < 1e-3
    assert "after a stream of 600 images" in said


def test_new_images_find_their_clusters(tmp_path: Path) -> None:
    (share,) = numbers(r"cluster of their digit: ([\d.]+)%", execute("new_images", tmp_path))
    assert share > 85.0


def test_solvers_rank_as_the_theory_says(tmp_path: Path) -> None:
    said = execute("solvers", tmp_path)
    excess = {
        (name.strip(), int(steps)): float(value)
        for name, steps, value in re.findall(r"^(ADMM|Algorithm 1, [a-z ]+?) +(\d+) +(\S+) ", said, re.MULTILINE)
    }
    assert len(excess) == 6
    for steps in (100, 400):
        admm, exact, printed = (value for (_, taken), value in excess.items() if taken == steps)
        assert admm < exact < printed


def test_four_models_draws_figure_1(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'tubal[plot]'")
    if not (EXAMPLES / "four_models.py").exists():
        pytest.skip("examples/four_models.py is not there")
    execute("four_models", tmp_path, "--images", "digits", "--out", "figure1.png")
    assert (tmp_path / "figure1.png").read_bytes().startswith(b"\x89PNG")


def test_no_example_is_forgotten() -> None:
    tested = set(re.findall(r'execute\("(\w+)"', Path(__file__).read_text(encoding="utf-8")))
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested
