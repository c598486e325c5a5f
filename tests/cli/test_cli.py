"""The command line: help, completion, known labels, and errors in one sentence."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest

from helpers.cli_helpers import call, one_sentence
from tubal.cli import COMMANDS, DOCUMENTATION, FAILURE, ISSUES, MISTAKE, SIGNALLED, group, run
from tubal.cli.inputs import compare_with_labels, read_labels
from tubal.cli.options import Source

pytest_plugins = ["helpers.cli_fixtures"]


def test_help_takes_little_time() -> None:
    code = (
        "import sys, tubal.cli; code = tubal.cli.run(['--help']); "
        "heavy = {'numpy', 'sklearn', 'scipy', 'numba', 'torch', 'rich', 'PIL'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        seconds.append(time.perf_counter() - begin)
        assert done.returncode == 0, done.stderr
    assert min(seconds) < 0.5
    assert all(name in done.stdout for name in COMMANDS)


def test_rarely_used_modules_are_loaded_on_first_use() -> None:
    code = (
        "import sys, tubal.cli; sys.argv = ['tubal', 'demo', '--help']\n"
        "try: tubal.cli.main()\n"
        "except SystemExit: pass\n"
        "import scipy.stats\n"
        "assert 'scipy.stats._stats_py' not in sys.modules\n"
        "assert scipy.stats.rankdata([5, 4]).tolist() == [2, 1]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_checks_of_arrays_do_not_load_pandas() -> None:
    pytest.importorskip("pandas")
    code = (
        "import sys, tubal.cli\n"
        "sys.meta_path.insert(0, tubal.cli.DeferredImports)\n"
        "from sklearn.utils.validation import check_array\n"
        "check_array([[1.0]])\n"
        "assert 'pandas.core' not in sys.modules\n"
        "import pandas\n"
        "assert pandas.DataFrame({'a': [1, 2]}).shape == (2, 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_clustering_loads_no_rarely_used_module(shapes: Path, tmp_path: Path) -> None:
    arguments = ["tubal", "cluster", str(shapes), "--labels", "folders", "-q", "-o", str(tmp_path / "out")]
    code = (
        f"import sys, tubal.cli; sys.argv = {arguments!r}\n"
        "try: tubal.cli.main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "loaded = {'scipy.stats._stats_py', 'sklearn.cluster', 'sklearn.metrics', 'pandas.core'} & set(sys.modules)\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"tubal {name}" in text.split("Usage:")[1].split("\n", 1)[1], "no example"
    assert "--debug" in text


def test_an_option_has_the_same_names_in_every_command() -> None:
    names: dict[str, set[tuple[str, ...]]] = {}
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                long = next(option for option in parameter.opts if option.startswith("--"))
                names.setdefault(long, set()).add(tuple(parameter.opts))
    assert {long: found for long, found in names.items() if len(found) > 1} == {}


def test_no_arguments_print_help_and_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Start here" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tubal ")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_command_prints_the_help_of_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", name]) == 0
    text = capsys.readouterr().out
    assert run([name, "--help"]) == 0
    assert text == capsys.readouterr().out
    assert f"{DOCUMENTATION}/cli.html#tubal-{name}" in text


def test_help_command_explains_the_program_and_its_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help"]) == 0
    text = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert text == capsys.readouterr().out
    assert DOCUMENTATION in text
    listed = text.partition("Exit codes:")[2]
    assert all(str(code) in listed for code in (0, FAILURE, MISTAKE, SIGNALLED + 2, SIGNALLED + 15))


def test_addresses_are_those_of_the_package() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    urls = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["urls"]
    assert (urls["Documentation"], urls["Issues"]) == (DOCUMENTATION, ISSUES)


def test_info_without_a_model_describes_the_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", "--debug", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["numpy"], facts["click"]) == (np.__version__, version("click"))
    assert {"tubal", "python", "platform", "processor", "cores", "libraries", "data_folder"} <= set(facts)
    assert run(["--debug", "info"]) == 0
    assert ["numpy", np.__version__] in [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("name", ["encode", "assign", "similar", "explain"])
@pytest.mark.parametrize("option", ["--seed", "--device", "--size", "--colour"])
def test_commands_reject_options_that_the_model_fixes(
    name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "images", "--model", "model.tubal", option, "1"]) == 2
    assert "No such option" in one_sentence(capsys)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_TUBAL_COMPLETE" in capsys.readouterr().out


def test_shell_completes_commands() -> None:
    environment = {
        **os.environ,
        "_TUBAL_COMPLETE": "bash_complete",
        "COMP_WORDS": "tubal clu",
        "COMP_CWORD": "1",
    }
    code = "import sys, tubal.cli; sys.argv = ['tubal']; tubal.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "cluster" in done.stdout


def test_shell_completes_collections_and_files() -> None:
    items = Source().shell_complete(None, None, "di")
    assert [(item.value, item.type) for item in items] == [("digits", "plain"), ("di", "file")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file,label\na/1.png,cat\nb/2.png,dog\n", ["cat", "dog", ""]),
        ("cluster,confidence,file\n7,0.5,b/2.png\n", ["", "7", ""]),
        ("1.png,cat\n2.png,dog\n3.png,owl\n", ["cat", "dog", "owl"]),
        ("label\ncat\ndog\nowl\n", ["cat", "dog", "owl"]),
        ("\ufefffile,label\na/1.png,cat\n", ["cat", "", ""]),
    ],
)
def test_labels_are_read_from_csv(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "labels.csv").write_text(text, encoding="utf-8")
    stack = SimpleNamespace(names=["a/1.png", "b/2.png", "3.png"], files=["x"] * 3, target=None)
    assert read_labels(str(tmp_path / "labels.csv"), stack, is_collection=False) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "wanted file and label"),
        ("label\ncat\n", "1 label for 3 images"),
        ("a,b,c\n1,2,3\n", "wanted file and label"),
    ],
)
def test_unusable_label_file_raises(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "labels.csv").write_text(text)
    stack = SimpleNamespace(names=["a/1.png", "b/2.png", "3.png"], files=["x"] * 3, target=None)
    with pytest.raises(ValueError, match=sentence):
        read_labels(str(tmp_path / "labels.csv"), stack, is_collection=False)


def test_scores_ignore_unlabelled_images() -> None:
    found = compare_with_labels(np.array([5, 5, 9, 9, 9]), ["a", "a", "b", "b", ""])
    assert found == {"accuracy": 100.0, "nmi": 100.0, "purity": 100.0, "labelled_images": 4}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cluster", "{tmp}/nowhere"], "no file or folder"),
        (["cluster", "digitz"], "did you mean 'digits'"),
        (["cluster", "{tmp}/empty"], "no pictures in"),
        (["cluster", "{tmp}/bad"], "1 file skipped"),
        (["cluster", "{shapes}", "--clusters", "61"], "only 60 images"),
        (["cluster", "{shapes}", "--clusters", "0"], "--clusters"),
        (["cluster", "{shapes}", "--preset", "best"], "'best' is not one of"),
        (["cluster", "{shapes}", "--size", "big"], "'big' is not"),
        (["cluster", "{shapes}", "--colour", "blue"], "'blue' is not one of"),
        (["cluster", "{shapes}", "--out", "{tmp}/bad"], "holds files already"),
        (["cluster", "{shapes}", "--out", "{tmp}/bad/a.png"], "is a file"),
        (["cluster", "{shapes}", "--out", "{tmp}/bad/a.png/below"], "cannot write results"),
        (["cluster", "{shapes}", "--labels", "{tmp}/none.csv"], "no file of labels"),
        (["cluster", "{shapes}/class 1", "--labels", "given"], "come without labels"),
        (["cluster", "{shapes}/class 1", "--labels", "folders"], "at least two sub-folders"),
        (["cluster", "{shapes}", "--device", "cuda"], "cuda"),
        (["cluster", "{shapes}", "--nonsense"], "No such option"),
        (["cluster"], "Missing argument 'SOURCE..."),
        (["cluster", ""], "it is empty"),
        (["clutser"], "No such command 'clutser'. Did you mean 'cluster'?"),
        (["Similr"], "No such command 'Similr'. Did you mean 'similar'?"),
        (["zzzz"], "No such command 'zzzz'. See 'tubal --help' or https://"),
        (["help", "asign"], "Did you mean 'assign'"),
        (["info"], "Missing argument 'MODEL'; without a model, --debug shows the installation."),
        (["info", "{tmp}/none.tubal"], "there is no model"),
        (["info", "{tmp}/bad/a.png"], "a.png"),
        (["assign", "{shapes}", "--model", "{tmp}/none"], "there is no model"),
        (["similar", "{shapes}/none.png", "--model", "{results}"], "no file or folder"),
        (
            ["explain", "{shapes}", "--model", "{results}", "--out", "{tmp}/no/where.png"],
            "there is no folder",
        ),
        (["encode", "{tmp}/empty", "--model", "{results}", "--out", "{tmp}/f.npz"], "no pictures in"),
        (["fit", "{shapes}", "--method", "magic"], "'magic' is not one of"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
        (["completion"], "fish. See 'tubal completion --help'"),
        (["datasets", "--nonsense"], "No such option"),
    ],
)
def test_user_error_is_printed_as_one_sentence(
    arguments: list[str],
    sentence: str,
    shapes: Path,
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"no picture")
    filled = [part.format(tmp=tmp_path, shapes=shapes, results=results) for part in arguments]
    quiet = ["--quiet"] if filled[0] in ("cluster", "fit", "encode", "assign", "similar", "explain") else []
    assert run([*filled, *quiet]) == 2
    assert sentence in one_sentence(capsys)
    assert {entry.name for entry in tmp_path.iterdir()} == {"empty", "bad"}, "something was left behind"


def test_unreadable_model_is_reported_in_one_sentence(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = (results / "model.tubal").read_bytes()
    (tmp_path / "cut.tubal").write_bytes(body[: len(body) // 2])
    assert run(["info", str(tmp_path / "cut.tubal")]) == 2
    assert "cut.tubal" in one_sentence(capsys)
    with zipfile.ZipFile(results / "model.tubal") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = {**json.loads(members["manifest.json"]), "version": 99}
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(tmp_path / "later.tubal", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = hashlib.sha256(members["manifest.json"]).hexdigest().encode()
    assert run(["assign", "digits", "--model", str(tmp_path / "later.tubal"), "-q"]) == 2
    assert "99" in one_sentence(capsys)


def test_one_picture_cannot_be_sorted(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = next(shapes.rglob("*.png"))
    assert run(["cluster", str(picture), "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert f"only one picture, {picture.name!r}" in one_sentence(capsys)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(13, "Permission denied", "a.tubal"), "tubal: cannot use 'a.tubal': Permission denied\n"),
        (OSError(28, "No space left on device"), "tubal: No space left on device; free some, or name another place\n"),
        (OSError("our own sentence"), "tubal: our own sentence\n"),
    ],
)
def test_errors_of_the_system_come_without_numbers(
    error: OSError, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Path) -> None:
        raise error

    monkeypatch.setattr("tubal.cli.inputs.open_model", refuse)
    assert run(["info", "a.tubal"]) == 2
    assert one_sentence(capsys) == sentence


def test_unwritable_folder_is_reported_in_one_sentence(shapes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", str(shapes), "--out", "/proc/tubal-results", "--quiet"]) == 2
    assert "cannot write results" in one_sentence(capsys)


def test_debug_shows_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", str(tmp_path / "nowhere"), "-o", str(tmp_path / "out"), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert run(["--debug", "info", str(tmp_path / "none")]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_program_failure_has_exit_code_1(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("tubal.datasets.loading.load_pictures", fail)
    assert run(["cluster", str(shapes), "-q", "-o", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()
    assert f"please report it at {ISSUES}" in one_sentence(capsys)


def test_control_characters_are_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "evil\x1b[2J.png").write_bytes(b"text")
    assert run(["cluster", str(tmp_path / "p"), "-o", str(tmp_path / "out")]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_no_color_is_respected(shapes: Path, tmp_path: Path) -> None:
    done = call(["cluster", str(shapes), "-k", "3", "-o", str(tmp_path / "out")], FORCE_COLOR="1", NO_COLOR="1")
    assert done.returncode == 0
    assert "\x1b[3" not in done.stderr


def test_ctrl_c_needs_no_timer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Windows has no timer signals."""
    monkeypatch.setattr("tubal.cli.HAS_TIMER", False)
    monkeypatch.delattr(signal, "setitimer")
    monkeypatch.setattr("tubal.cli.inputs.open_model", lambda _: signal.raise_signal(signal.SIGINT))
    assert run(["info", "model.tubal"]) == 130
    assert "stopped" in one_sentence(capsys)
