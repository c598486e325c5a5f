"""Keep the outcome of the tests that a release needs: ``python -m tools.release_record NAME tests.xml ...``.

``make test-oldest``, ``make test-newest`` and ``make release-check`` call it after their tests passed, with the Python
that ran them. It reads the JUnit files of pytest and writes ``results/release.json`` and ``results/release.md``. It
needs nothing but Python, so that it runs in every environment. A run with a failed test is not recorded.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import platform
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
# In the order of the page: what is recorded, and the command that repeats it.
RUNS = {
    "oldest": ("lowest versions", "make test-oldest"),
    "newest": ("newest versions", "make test-newest"),
    "sdist": ("unpacked sdist", "make release-check"),
}
SHOWN_REASONS = 12
Record = dict[str, Any]


def read_outcomes(files: Sequence[Path]) -> Record:
    """Return counts of outcomes, reasons of skips and seconds from JUnit files.

    Parameters
    ----------
    files : sequence of Path
        Reports of pytest, in the order of the runs. A test that ran more than once counts with its last outcome, so
        that a run may be done in pieces and a mended test may be run again.

    Returns
    -------
    dict
        ``passed``, ``skipped``, ``failed`` (names), ``reasons`` (of skips, most frequent first) and ``seconds``.
    """
    suites = [suite for file in files for suite in ElementTree.parse(file).iter("testsuite")]
    outcomes = {
        f"{case.get('classname')}.{case.get('name')}": next((part for part in case if part.tag in _NOT_PASSED), None)
        for suite in suites
        for case in suite.iter("testcase")
    }
    skipped = [part for part in outcomes.values() if part is not None and part.tag == "skipped"]
    failed = [name for name, part in outcomes.items() if part is not None and part.tag != "skipped"]
    return {
        "passed": len(outcomes) - len(skipped) - len(failed),
        "skipped": len(skipped),
        "failed": failed,
        "reasons": dict(Counter(_reason(part) for part in skipped).most_common()),
        "seconds": round(sum(float(suite.get("time", 0)) for suite in suites)),
    }


_NOT_PASSED = ("skipped", "failure", "error")


def _reason(part: ElementTree.Element) -> str:
    """Return why a test was skipped, without paths, numbers of lines and other values that differ between machines."""
    text = part.get("message", "").removeprefix("Skipped: ").splitlines()[0]
    return re.sub(r"'[^']*/[^']*'|(?<!\w)/\S+", "…", text)


def installed_versions(project: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions in this environment of what the package, its extras and its tests need."""
    extras = project["project"]["optional-dependencies"]
    lines = [*project["project"]["dependencies"], *(line for part in extras.values() for line in part)]
    lines += [line for line in project["dependency-groups"]["test"] if isinstance(line, str)]
    names = dict.fromkeys(re.split(r"[\[<>=!~; ]", line)[0] for line in lines)
    return {name: found for name in names if (found := _version(name))}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def page(record: Mapping[str, Record]) -> str:
    """Return the page of the recorded runs."""
    runs = [name for name in RUNS if name in record]
    lines = [
        "# Release checks",
        "",
        "The tests with the lowest version of every dependency on the oldest Python, with the newest on the newest, and"
        " inside the\nunpacked source archive. Written by the commands in the table, each after its tests passed; a"
        " test\nthat ran more than once, because it was mended, counts with its last outcome.",
        "",
        "`make release-check` first runs `validate-pyproject`, `check-jsonschema` (workflows, issue forms, citation),"
        " `zizmor`,\n`twine check --strict`, `check-wheel-contents` and the numpydoc validation of the public API. It"
        " ends at the first that\nfinds something, so a record of it means that all were clean.",
        "",
        *_table(["run", *(RUNS[name][0] for name in runs)], _rows(record, runs)),
    ]
    for name in runs:
        told = sorted(record[name]["reasons"].items(), key=lambda pair: (-pair[1], pair[0]))
        rest = sum(count for _, count in told[SHOWN_REASONS:])
        lines += ["", f"## Skipped: {RUNS[name][0]}", ""]
        lines += [f"- {count}: {reason}" for reason, count in told[:SHOWN_REASONS]]
        lines += [f"- {rest}: other reasons"] if rest else []
    return "\n".join(lines) + "\n"


def _rows(record: Mapping[str, Record], runs: Sequence[str]) -> list[list[str]]:
    rows = [["command", *(f"`{RUNS[name][1]}`" for name in runs)]]
    for title, key in (("date", "date"), ("Python", "python"), ("system", "system"), ("tests", "tests")):
        rows.append([title, *(record[name][key] for name in runs)])
    for key in ("passed", "skipped", "seconds"):
        rows.append([key, *(str(record[name][key]) for name in runs)])
    packages = dict.fromkeys(package for name in runs for package in record[name]["versions"])
    rows += [[package, *(record[name]["versions"].get(package, "–") for name in runs)] for package in packages]
    return rows


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    rows = [head, ["---"] * len(head), *body]
    return [f"| {' | '.join(row)} |" for row in rows]


def keep(name: str, files: Sequence[Path], results: Path, *, tests: str = "all") -> None:
    """Add a run to ``release.json`` in ``results`` and write the page again.

    Parameters
    ----------
    name : str
        A key of ``RUNS``.
    files : sequence of Path
        The JUnit files of the run.
    results : Path
        Folder of the record.
    tests : str, default="all"
        Which tests ran.

    Raises
    ------
    ValueError
        If a test failed or none passed; nothing is written.
    """
    outcomes = read_outcomes(files)
    if failed := outcomes.pop("failed"):
        raise ValueError(f"{len(failed)} tests failed, the first {failed[0]}; mend them and run the tests again")
    if not outcomes["passed"]:
        raise ValueError("no test passed; give the file that pytest --junitxml wrote")
    stored = results / "release.json"
    record = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    record[name] = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "system": platform.system(),
        "tests": tests,
        **outcomes,
        "versions": installed_versions(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))),
    }
    stored.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (results / "release.md").write_text(page(record), encoding="utf-8")


def main() -> None:
    """Read the arguments and keep one run."""
    parser = argparse.ArgumentParser(prog="python -m tools.release_record", description=__doc__)
    parser.add_argument("name", choices=RUNS)
    parser.add_argument("files", type=Path, nargs="+", help="what pytest --junitxml wrote, in the order of the runs")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the record")
    parser.add_argument("--tests", default="all", help="which tests ran, in words")
    options = parser.parse_args()
    try:
        keep(options.name, options.files, options.results, tests=options.tests)
    except (OSError, ValueError, ElementTree.ParseError) as error:
        sys.exit(f"release record: {error}")
    print(f"recorded: {options.results / 'release.md'}")


if __name__ == "__main__":
    main()
