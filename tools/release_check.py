"""Build the wheel and the sdist and check both: ``python -m tools.release_check [--no-tests]``.

Metadata, contents of the wheel, workflows, citation and docstrings are checked by the programs that the public services
use. Then the sdist is unpacked into an empty folder, the wheel is installed into a new environment, and the tests of
the sdist run there, with nothing of the working copy in reach. The outcome is kept in ``results/release.md``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What users may install, without torch, whose wheel is large.
EXTRAS = "app,plot,io"


def static_checks(folder: Path) -> list[Sequence[str]]:
    """Return the commands that check the files of the working copy and the archives in ``folder``."""
    archives = sorted(map(str, folder.iterdir()))
    wheels = [name for name in archives if name.endswith(".whl")]
    schemas = {
        "github-workflows": sorted(map(str, (ROOT / ".github/workflows").glob("*.yml"))),
        "github-issue-forms": [f".github/ISSUE_TEMPLATE/{name}.yml" for name in ("bug", "idea")],
        "dependabot": [".github/dependabot.yml"],
        "citation-file-format": ["CITATION.cff"],
    }
    return [
        (_script("validate-pyproject"), "pyproject.toml"),
        *(
            (_script("check-jsonschema"), "--builtin-schema", f"vendor.{name}", *files)
            for name, files in schemas.items()
        ),
        (_script("zizmor"), "--offline", "--no-progress", "--config", ".github/zizmor.yml", ".github/workflows"),
        (_script("twine"), "check", "--strict", *archives),
        (_script("check-wheel-contents"), *wheels),
        (sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", "tests/project/test_docstrings.py"),
    ]


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an sdist into ``folder`` and return its root."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def check_unpacked(source: Path, wheel: Path, tests: Sequence[str], report: Path) -> Path:
    """Run the tests of an unpacked sdist against the installed wheel.

    Parameters
    ----------
    source : Path
        Root of the unpacked sdist. The environment is made beside it.
    wheel : Path
        What is installed.
    tests : sequence of str
        Arguments of pytest.
    report : Path
        Where pytest writes the outcome of every test.

    Returns
    -------
    Path
        The Python of the new environment.
    """
    venv.create(source.parent / "environment")
    python = source.parent / "environment" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    install = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet")
    _run((*install, f"{wheel}[{EXTRAS}]", "--group", "test"), folder=source)
    _run((str(python), "-m", "pytest", *tests, f"--junitxml={report}"), folder=source, PYTHONPATH=".")
    return python


def _script(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _run(command: Sequence[str], folder: Path = ROOT, **environment: str) -> None:
    print("+", shlex.join(command), flush=True)
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, **environment})


def main() -> None:
    """Build, check, unpack and test; the first failure ends the program."""
    parser = argparse.ArgumentParser(prog="python -m tools.release_check", description=__doc__)
    parser.add_argument("--no-tests", action="store_true", help="do not run the tests inside the sdist")
    parser.add_argument("--tests", default="", help="tests to run inside the sdist; all by default")
    parser.add_argument("--pytest", default="-n auto --dist loadfile", help="options of pytest inside the sdist")
    options = parser.parse_args()
    if importlib.util.find_spec("build") is None:
        parser.error("the package build is not installed: pip install --group release")
    with tempfile.TemporaryDirectory() as made:
        archives, unpacked = Path(made, "dist"), Path(made, "sdist")
        _run((sys.executable, "-m", "build", "--outdir", str(archives)))
        for command in static_checks(archives):
            _run(command)
        if not options.no_tests:
            source, report = unpack(next(archives.glob("*.tar.gz")), unpacked), Path(made, "tests.xml")
            tests = shlex.split(f"{options.pytest} {options.tests}")
            python = check_unpacked(source, next(archives.glob("*.whl")), tests, report)
            _run((str(python), "-m", "tools.release_record", "sdist", str(report), "--tests", options.tests or "all"))
    print("release check: all passed")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"release check: failed: {shlex.join(error.cmd)}")
