"""The architecture as a test: imports only go down, torch lives behind one door, and starting is quick."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import tubal

ROOT = Path(tubal.__file__).parent

# From the bottom up; a module may import its own layer and those below it.
LAYERS = [
    {"backends", "text"},
    {"algebra", "graph"},
    {"problems", "layout"},
    {"solvers", "storage"},
    {"images", "learning", "checkpoints"},
    {"estimators", "datasets", "metrics"},
    {"clustering", "distributed"},
    {"experiments", "report", "plot"},
    {"cli"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT)


def _top(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _without_typing(path: Path) -> ast.Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    return tree


def _imported(path: Path) -> set[str]:
    """Return the top-level parts of tubal that a file imports, inside functions too, typing aside."""
    found = set()
    for node in ast.walk(_without_typing(path)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "tubal":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("tubal.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_go_down(path):
    here = _top(path)
    assert here in HEIGHT, f"{here} has no layer: put it into LAYERS and docs/architecture.md"
    above = {name for name in _imported(path) if HEIGHT.get(name, -1) > HEIGHT[here]}
    assert not above, f"{path.relative_to(ROOT)} reaches up to {sorted(above)}"


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported_modules(path: Path, known: set[str]) -> set[str]:
    """Return the modules of tubal that a file imports anywhere, inside functions too, typing aside."""
    found = set()
    for node in ast.walk(_without_typing(path)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "tubal":
            module = (node.module or "").removeprefix("tubal").lstrip(".")
            for alias in node.names:
                full = f"{module}.{alias.name}".lstrip(".")
                found.add(full if full in known else module)
    return found & known


def test_no_module_imports_itself_through_others():
    known = {_module(path): path for path in MODULES}
    sorter = TopologicalSorter({name: _imported_modules(path, set(known)) for name, path in known.items()})
    sorter.prepare()  # raises CycleError and names the cycle


def test_torch_is_imported_behind_one_door():
    """Everything but the GPU code reaches torch through ``backends/arrays.py``."""
    doors = {"arrays.py", "triton_passes.py"}
    for path in MODULES:
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add((node.module or "").split(".")[0])
        assert path.name in doors or not names & {"torch", "triton"}, path


@pytest.mark.parametrize(
    "program", ["import tubal", "import sys; sys.argv = ['tubal', '--help']\nimport tubal.cli\ntubal.cli.main()"]
)
def test_starting_is_quick_because_nothing_heavy_is_loaded(program):
    """Half a second on an idle machine; what makes it so is that none of the heavy packages is touched."""
    heavy = "\nimport sys\nassert not {'numba', 'sklearn', 'torch', 'matplotlib', 'scipy.optimize'} & set(sys.modules)"
    guarded = f"try:\n    {program.replace(chr(10), chr(10) + '    ')}\nexcept SystemExit:\n    pass{heavy}"
    subprocess.run([sys.executable, "-c", guarded], check=True, capture_output=True)
    assert min(_seconds(program) for _ in range(3)) < max(0.5, 20 * _seconds(""))  # the second for a busy machine


def _seconds(program):
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    return time.perf_counter() - began


def test_nothing_imports_experiments_but_the_command_line():
    for path in MODULES:
        assert _top(path) in ("experiments", "cli") or "experiments" not in _imported(path), path


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_house_style_that_a_machine_can_see(path):
    """Files of at most 600 lines, functions of at most 50, no print outside the command line."""
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 600
    # Compiled kernels cannot be split at will; constructors list their parameters one a line.
    free = "backends" in path.parts
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            assert _top(path) == "cli", f"print at line {node.lineno}"
        if isinstance(node, ast.FunctionDef) and node.name != "__init__" and not free:
            length = (
                (node.end_lineno or node.lineno) - node.lineno + 1 - len((ast.get_docstring(node) or "").splitlines())
            )
            assert length <= 50, f"{node.name} has {length} lines without its docstring"


def test_every_public_name_is_there():
    for name in tubal.__all__:
        assert getattr(tubal, name) is not None
    assert set(tubal.__all__) <= set(dir(tubal))
    with pytest.raises(AttributeError, match="nothing"):
        tubal.nothing


def test_theory_names_tests_that_exist():
    """Every equation and erratum of docs/theory.md names its test; an ellipsis stands for the rest of a name."""
    tests = Path(__file__).parents[1]
    theory = (tests.parent / "docs" / "theory.md").read_text(encoding="utf-8")
    known = "\n".join(re.findall(r"def (test_\w+)", (tests / "test_paper.py").read_text(encoding="utf-8")))
    named = re.findall(r"`(test_\w+)(…?)`", theory)
    assert len(named) > 20
    for name, open_end in named:
        assert re.search(rf"^{name}{'' if open_end else '$'}", known, re.MULTILINE), name
    numbered = " ".join(re.findall(r"^\| ([^|]*) \|", theory, re.MULTILINE))
    for first, last in re.findall(r"(\d+)–(\d+)", numbered):
        numbered += " " + " ".join(map(str, range(int(first), int(last) + 1)))
    assert set(range(1, 21)) <= {int(number) for number in re.findall(r"\d+", numbered)}
