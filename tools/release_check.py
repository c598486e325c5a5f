"""Build the wheel and the sdist and check both: ``python -m tools.release_check [--no-tests]``.

Metadata, contents of the wheel, workflows and citation are checked by the programs that the public services use. Then
the sdist is unpacked into an empty folder and its tests run there, with nothing of the working copy in reach.
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
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Tests that fail only where files are missing; `--tests` runs others, as in --tests "-n auto".
QUICK_TESTS = "tests/project tests/test_algebra.py tests/test_paper.py -p no:xdist -q -m 'not slow and not browser'"


def static_checks(folder: Path) -> list[Sequence[str]]:
    """Return the commands that check the files of the working copy and the archives in ``folder``."""
    archives = sorted(map(str, folder.iterdir()))
    wheels = [name for name in archives if name.endswith(".whl")]
    workflows = sorted(map(str, (ROOT / ".github/workflows").glob("*.yml")))
    return [
        (_script("validate-pyproject"), "pyproject.toml"),
        (_script("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *workflows),
        (_script("zizmor"), "--offline", "--no-progress", "--config", ".github/zizmor.yml", ".github/workflows"),
        (_script("twine"), "check", "--strict", *archives),
        (_script("check-wheel-contents"), *wheels),
    ]


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an sdist into ``folder`` and return its root."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def _script(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _run(command: Sequence[str], folder: Path = ROOT, **environment: str) -> None:
    print("+", shlex.join(command), flush=True)
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, **environment})


def main() -> None:
    """Build, check, unpack and test; the first failure ends the program."""
    parser = argparse.ArgumentParser(prog="python -m tools.release_check", description=__doc__)
    parser.add_argument("--no-tests", action="store_true", help="do not run the tests inside the sdist")
    parser.add_argument("--tests", default=QUICK_TESTS, help="arguments of pytest inside the sdist")
    options = parser.parse_args()
    if importlib.util.find_spec("build") is None:
        parser.error("the package build is not installed: pip install --group release")
    with tempfile.TemporaryDirectory() as made:
        archives, unpacked = Path(made, "dist"), Path(made, "sdist")
        _run((sys.executable, "-m", "build", "--outdir", str(archives)))
        for command in static_checks(archives):
            _run(command)
        if not options.no_tests:
            source = unpack(next(archives.glob("*.tar.gz")), unpacked)
            tests = (sys.executable, "-m", "pytest", *shlex.split(options.tests))
            _run(tests, folder=source, PYTHONPATH=os.pathsep.join(("src", ".")))
    print("release check: all passed")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"release check: failed: {shlex.join(error.cmd)}")
