"""What a release consists of agrees with itself: version, requirements, addresses, workflows, templates."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import tubal
from tools import release_record

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install --group test")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}


def test_version_is_written_in_one_place():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/tubal/__init__.py"
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_module_runs_as_a_program():
    finished = subprocess.run([sys.executable, "-m", "tubal", "--version"], capture_output=True, text=True, check=True)
    assert finished.stdout == f"tubal {tubal.__version__}\n"


def _names_and_bounds(lines: list[str]) -> set[str]:
    return {line.replace(" ", "").replace("[array]", "").lower() for line in lines}


def test_conda_recipe_has_the_requirements_of_the_package():
    text = (ROOT / "conda" / "meta.yaml").read_text()
    assert f'version = "{tubal.__version__}"' in text
    recipe = yaml.safe_load(re.sub(r"\{\{ *(\w+) *\}\}", r"\1", re.sub(r"\{%.*?%\}", "", text)))["requirements"]
    python = {"python" + PROJECT["project"]["requires-python"]}
    assert _names_and_bounds(recipe["run"]) == _names_and_bounds(PROJECT["project"]["dependencies"]) | python
    renamed = {"pytorch": "torch", "matplotlib-base": "matplotlib", "dask-core": "dask"}
    optional = {re.sub(r"^[\w-]+", lambda m: renamed.get(m[0], m[0]), line) for line in recipe["run_constrained"]}
    extras = PROJECT["project"]["optional-dependencies"]
    assert _names_and_bounds(list(optional)) == _names_and_bounds(
        # The weights of the network are not packaged for conda.
        [line for name, lines in extras.items() if name != "bench" for line in lines if "efficientnet" not in line]
    )


def test_bounds_agree_between_extras_and_groups():
    lines = [line for part in PROJECT["project"]["optional-dependencies"].values() for line in part]
    lines += [line for group in PROJECT["dependency-groups"].values() for line in group if isinstance(line, str)]
    bounds: dict[str, set[str]] = {}
    for line in lines:
        name, bound = re.fullmatch(r"([\w-]+(?:\[\w+\])?)([>=]=.+)", line).groups()
        bounds.setdefault(name, set()).add(bound)
    assert {name: found for name, found in bounds.items() if len(found) > 1} == {}


def test_oldest_and_newest_python_are_the_same_everywhere():
    classifiers = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    makefile = (ROOT / "Makefile").read_text()
    matrix = WORKFLOWS["tests"]["jobs"]["tests"]["strategy"]["matrix"]["include"]
    assert PROJECT["project"]["requires-python"] == f">={classifiers[0]}"
    assert f"OLDEST_PYTHON ?= {classifiers[0]}\n" in makefile
    assert f"NEWEST_PYTHON ?= {classifiers[-1]}\n" in makefile
    assert {entry["python"] for entry in matrix} == {classifiers[0], classifiers[-1]}


def test_workflows_ask_for_no_more_rights_than_they_need():
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        writes = {job: part["permissions"] for job, part in workflow["jobs"].items() if "permissions" in part}
        assert writes == ({"publish": {"id-token": "write"}} if name == "release" else {}), name


def test_workflows_and_documents_call_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / ".github").rglob("*.*") if path.is_file()]
    texts += [(ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "README.md", ".ci/run")]
    called = set(re.findall(r"(?:^|[`(]|run: )make ([a-z][\w-]*)", "\n".join(texts), re.MULTILINE))
    assert {"release-check", "docs", "test", "lint", "types"} <= called <= targets


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_issue_forms_have_the_required_fields(name):
    form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    assert {"name", "description", "body"} <= set(form)
    assert all({"type", "id", "attributes"} <= set(part) for part in form["body"])


def test_citation_names_paper_and_software():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "type"} <= set(citation)
    assert citation["preferred-citation"]["type"] == "conference-paper"


def test_package_page_has_absolute_links_only():
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"\]\((?!http)", text)  # in the repository links are relative
    for rule in hook["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert not re.search(r"\]\((?!https://)", text)


# --- the record of the tests of a release ------------------------------------------------------------------------
TESTS = """
def test_passes():
    pass

@pytest.mark.skip(reason="no folder '/some/where' here")
def test_skips():
    pass

def test_flickers():
    assert {flag}
"""


def _run_tests(folder: Path, flag: bool) -> Path:
    (folder / "test_three.py").write_text("import pytest\n" + TESTS.format(flag=flag))
    report = folder / f"{flag}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "test_three.py"]
    subprocess.run(command, cwd=folder, check=False, capture_output=True)
    return report


def test_record_counts_the_last_outcome_of_a_test(tmp_path):
    first, second = _run_tests(tmp_path, flag=False), _run_tests(tmp_path, flag=True)

    failed, mended = release_record.read_outcomes([first]), release_record.read_outcomes([first, second])

    assert (failed["passed"], failed["skipped"], failed["failed"]) == (1, 1, ["test_three.test_flickers"])
    assert (mended["passed"], mended["skipped"], mended["failed"]) == (2, 1, [])
    assert mended["reasons"] == {"no folder … here": 1}


def test_failed_run_is_not_recorded(tmp_path):
    with pytest.raises(ValueError, match=r"1 tests failed, the first test_three\.test_flickers"):
        release_record.keep("oldest", [_run_tests(tmp_path, flag=False)], tmp_path)
    assert not (tmp_path / "release.json").exists()


def test_record_has_counts_and_versions_of_every_run(tmp_path):
    report = _run_tests(tmp_path, flag=True)
    for name in ("sdist", "oldest"):
        release_record.keep(name, [report], tmp_path)
    text = (tmp_path / "release.md").read_text(encoding="utf-8")
    assert "| run | lowest versions | unpacked sdist |\n" in text
    assert "| passed | 2 | 2 |\n" in text
    assert f"| numpy | {np.__version__} | {np.__version__} |\n" in text


def test_messages_name_extras_that_exist():
    named = set()
    for path in (ROOT / "src").rglob("*.py"):
        for extras in re.findall(r"tubal\[([a-z,]+)\]", path.read_text(encoding="utf-8")):
            named |= set(extras.split(","))
    assert "photos" in named
    assert named <= set(PROJECT["project"]["optional-dependencies"])
