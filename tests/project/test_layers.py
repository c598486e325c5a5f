"""Rules of the architecture: imports only go down, no cycles, torch in few files, a fast start."""

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

# From the bottom to the top. A module may import its own layer and those below it.
LAYERS = [
    {"backends", "text"},
    {"algebra", "graph"},
    {"problems", "layout"},
    {"solvers", "storage"},
    {"images", "learning", "checkpoints"},
    {"estimators", "datasets", "metrics"},
    {"clustering", "distributed"},
    {"experiments", "report", "plot"},
    {"app"},
    {"cli"},
    {"__main__"},
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
    """Return the top-level parts of tubal that a file imports, also inside functions, except for typing."""
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
    assert here in HEIGHT, f"{here} has no layer: add it to LAYERS and to docs/architecture.md"
    above = {name for name in _imported(path) if HEIGHT.get(name, -1) > HEIGHT[here]}
    assert not above, f"{path.relative_to(ROOT)} imports from a higher layer: {sorted(above)}"


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported_modules(path: Path, known: set[str]) -> set[str]:
    """Return the modules of tubal that a file imports, also inside functions, except for typing."""
    found = set()
    for node in ast.walk(_without_typing(path)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "tubal":
            module = (node.module or "").removeprefix("tubal").lstrip(".")
            for alias in node.names:
                full = f"{module}.{alias.name}".lstrip(".")
                found.add(full if full in known else module)
    return found & known


def test_no_import_cycles():
    known = {_module(path): path for path in MODULES}
    sorter = TopologicalSorter({name: _imported_modules(path, set(known)) for name, path in known.items()})
    sorter.prepare()  # raises CycleError and names the cycle


def test_torch_is_imported_in_four_files_only():
    """All other files use torch through ``backends/arrays.py``."""
    allowed = {"arrays.py", "network.py", "gpu/triton_passes.py", "gpu/deformation.py"}
    for path in MODULES:
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add((node.module or "").split(".")[0])
        assert str(path.relative_to(ROOT)).removeprefix("backends/") in allowed or not names & {"torch", "triton"}, path


@pytest.mark.parametrize(
    "program", ["import tubal", "import sys; sys.argv = ['tubal', '--help']\nimport tubal.cli\ntubal.cli.main()"]
)
def test_import_is_fast_and_loads_no_heavy_package(program):
    """The limit is half a second; on a busy machine, 20 times the start of Python itself."""
    heavy = "\nimport sys\nassert not {'numba', 'sklearn', 'torch', 'matplotlib', 'scipy.optimize'} & set(sys.modules)"
    guarded = f"try:\n    {program.replace(chr(10), chr(10) + '    ')}\nexcept SystemExit:\n    pass{heavy}"
    subprocess.run([sys.executable, "-c", guarded], check=True, capture_output=True)
    busy_limit = 20 * _seconds("")
    assert min(_seconds(program) for _ in range(3)) < max(0.5, busy_limit)


def test_public_modules_are_attributes_of_the_package():
    program = (
        "import tubal, sys; assert tubal.metrics.purity([0, 1], [0, 1]) == 1.0; assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def _seconds(program):
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    return time.perf_counter() - began


def test_only_the_command_line_imports_experiments():
    for path in MODULES:
        assert _top(path) in ("experiments", "cli") or "experiments" not in _imported(path), path


def test_tree_stays_small():
    assert len([path for path in ROOT.glob("*.py") if path.name != "__init__.py"]) <= 8
    assert len(list(ROOT.rglob("*.py"))) <= 110


def test_few_parameters_are_typed_as_any():
    bare = [
        f"{path.relative_to(ROOT)}: {node.name}({argument.arg})"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if argument.annotation is not None and ast.unparse(argument.annotation) == "Any"
    ]
    assert len(bare) <= 20, bare


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short_and_do_not_print(path):
    """Files of at most 850 lines, functions of at most 50, no print outside the command line."""
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 850
    # Compiled kernels cannot always be split; constructors list one parameter on each line.
    free = "backends" in path.parts
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            assert _top(path) == "cli", f"print at line {node.lineno}"
        if isinstance(node, ast.FunctionDef) and node.name != "__init__" and not free:
            length = (
                (node.end_lineno or node.lineno) - node.lineno + 1 - len((ast.get_docstring(node) or "").splitlines())
            )
            assert length <= 50, f"{node.name} has {length} lines without its docstring"


def test_every_public_name_exists():
    for name in tubal.__all__:
        assert getattr(tubal, name) is not None
    assert set(tubal.__all__) <= set(dir(tubal))
    with pytest.raises(AttributeError, match="nothing"):
        tubal.nothing


def test_tests_named_in_theory_exist():
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
