"""Every example, every code block of the README and every link in the documentation works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.cli_helpers import export
from tubal import GTSC, TubSC
from tubal.cli import run
from tubal.datasets import make_shifted_shapes
from tubal.solvers import ProjectedGradient

EXAMPLES = Path(__file__).parents[2] / "examples"
DOCS = EXAMPLES.parent / "docs"


def execute(name: str, folder: Path, *arguments: str) -> str:
    """Run an example in an empty folder and return its output."""
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


def test_cluster_digits_beats_k_means(tmp_path: Path) -> None:
    output = execute("cluster_digits", tmp_path)
    baseline, ours = numbers(r"K-means +([\d.]+) %.*\ntubal +([\d.]+) %", output)
    assert ours > baseline


def test_shift_aware_codes_have_a_smaller_error(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'tubal[plot]'")
    output = execute("shift_aware_codes", tmp_path, "figure2.png")
    tubal, ordinary = numbers(r"an error of ([\d.]+)% \(TubSC\) and ([\d.]+)% \(SC\)", output)
    assert tubal < ordinary / 4
    (change,) = numbers(r"features change by ([\d.]+)%", output)
    assert change < 1.0
    assert (tmp_path / "figure2.png").read_bytes().startswith(b"\x89PNG")


def test_own_graph_improves_the_clusters(tmp_path: Path) -> None:
    output = execute("own_graph", tmp_path)
    alone, together = numbers(r"looks alone: accuracy ([\d.]+)%\n.*time: accuracy ([\d.]+)%", output)
    assert together > alone
    assert "error: adjacency is not symmetric" in output


def test_streaming_reaches_the_same_objective(tmp_path: Path) -> None:
    output = execute("streaming", tmp_path)
    (difference,) = numbers(r"relative difference (\S+)", output)
    assert difference < 1e-3
    assert "after a stream of 600 images" in output


def test_new_images_get_the_right_clusters(tmp_path: Path) -> None:
    (share,) = numbers(r"cluster of their digit: ([\d.]+)%", execute("new_images", tmp_path))
    assert share > 85.0


def test_solvers_have_the_expected_order(tmp_path: Path) -> None:
    output = execute("solvers", tmp_path)
    excess = {
        (name.strip(), int(steps)): float(value)
        for name, steps, value in re.findall(r"^(ADMM|Algorithm 1, [a-z ]+?) +(\d+) +(\S+) ", output, re.MULTILINE)
    }
    assert len(excess) == 6
    for steps in (100, 400):
        admm, exact, printed = (value for (_, taken), value in excess.items() if taken == steps)
        assert admm < exact < printed


def test_four_models_draws_figure_1(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'tubal[plot]'")
    execute("four_models", tmp_path, "--images", "digits", "--out", "figure1.png")
    assert (tmp_path / "figure1.png").read_bytes().startswith(b"\x89PNG")


def test_every_example_has_a_test() -> None:
    tested = set(re.findall(r'execute\("(\w+)"', Path(__file__).read_text(encoding="utf-8")))
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested


README = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("snippet", re.findall(r"```python\n(.*?)```", README, re.DOTALL), ids=["clusterer", "coder"])
def test_python_code_of_the_readme_runs(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A third of the digits is enough to test that the lines run.
    exec(snippet.replace("load_digits().images", "load_digits().images[:600]"), {})


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_commands_and_code_of_the_first_steps_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = make_shifted_shapes(48, n_classes=3, image_shape=(12, 12), random_state=0).images
    export(shapes[:40], tmp_path / "photos")
    export(shapes[40:], tmp_path / "new")
    (tmp_path / "new" / "0000.png").rename(tmp_path / "new" / "one.png")
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES.parent / page).read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    commands = [shlex.split(line, comments=True) for line in blocks.splitlines()]
    commands = [arguments for program, *arguments in commands if program == "tubal"]
    assert len(commands) >= 5
    for arguments in commands:
        if arguments[0] in ("demo", "ask"):  # the one has tests of its own, the other waits for a person
            continue
        if arguments[0] == "open":  # clusters first, then waits for a person
            arguments[0] = "cluster"
        assert run(arguments) == 0, arguments
    for snippet in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if '"photos"' in snippet:
            exec(snippet, {})
    assert (tmp_path / "tubal-out" / "report.html").exists()
    (clusters,) = tmp_path.glob("*/clusters")
    assert len(list(clusters.iterdir())) == 12


def blocks_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def test_model_and_solver_of_your_own_run() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}  # dataclasses look their module up
    for block in blocks_of("models.md"):
        exec(block, names)
    images = make_shifted_shapes(12, n_classes=3, image_shape=(8, 8), random_state=0).images
    settings = {"n_atoms": 4, "max_iter": 2, "n_neighbors": 2, "random_state": 0}
    mirrored = names["MirrorGTSC"](**settings, dictionary_solver=ProjectedGradient()).fit(images)
    own = GTSC(**settings, code_solver=names["Ista"](max_iter=50)).fit(images)
    assert mirrored.codes_.shape[0] == own.codes_.shape[0] == 12


def test_sources_of_the_page_on_scale_are_read(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'tubal[io]'")
    images = make_shifted_shapes(12, n_classes=3, image_shape=(8, 8), random_state=0).images
    with h5py.File(tmp_path / "images.h5", "w") as file:
        file["x"] = images
    block, *others = blocks_of("scale.md")
    for (
        other
    ) in others:  # need a file or a cluster; tests/clustering/test_many_images.py and test_distributed.py have them
        compile(other, "scale.md", "exec")
    block = block.replace('"images.h5"', repr(str(tmp_path / "images.h5"))).replace('"/scratch"', repr(str(tmp_path)))
    model = TubSC(n_atoms=4, max_iter=2, random_state=0)
    names = {"model": model, "images": images, "h5py": h5py, "folder": tmp_path, "stream": np.split(images, 3)}
    exec(block, {**names, "read_batches": lambda folder: iter(np.split(images, 2))})
    assert len(model.codes_) == 12


# Pages that `make docs` writes.
GENERATED = {"gallery/index.rst", "api/index.rst", "cli.rst", "changelog.md", "contributing.md"}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in DOCS.glob("*.md"))])
def test_links_within_the_project_exist(name: str) -> None:
    page = EXAMPLES.parent / name
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target or target.startswith(("results/", "../results/")):
            continue
        if target.startswith("gallery/plot_"):  # made from an example when the site is built
            assert (EXAMPLES / target).with_suffix(".py").exists(), f"{name} links to {target}"
        elif target not in GENERATED:
            assert (page.parent / target).exists(), f"{name} links to {target}"


TEXTS = [*EXAMPLES.parent.glob("*.md"), *DOCS.glob("*.md"), EXAMPLES.parent / "pyproject.toml"]
TEXTS += [EXAMPLES.parent / "CITATION.cff", *(EXAMPLES.parent / ".github").rglob("*.*")]
TEXTS += [*(EXAMPLES.parent / "src").rglob("*.py"), *(EXAMPLES.parent / "src").rglob("*.toml")]


def test_addresses_are_encrypted_and_no_placeholders() -> None:
    known = {"http://www.w3.org/2000/svg"}  # a name, not an address
    found = {
        address
        for path in TEXTS
        for address in re.findall(r"https?://[\w.-]+\.\w[^\s)>\"'`]*", path.read_text(encoding="utf-8"))
    }
    assert len(found) > 8
    assert [a for a in found - known if not a.startswith("https://") or re.search(r"example\.(com|org)|TODO", a)] == []


def test_addresses_of_the_site_are_its_pages() -> None:
    page = re.compile(r"tubal\.readthedocs\.io/([\w/]+)\.html")
    pages = {match for path in TEXTS for match in page.findall(path.read_text(encoding="utf-8"))}
    assert pages
    known = {path.stem for path in DOCS.glob("*.md")} | {Path(name).with_suffix("").as_posix() for name in GENERATED}
    assert pages <= known
