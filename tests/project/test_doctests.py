"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import tubal

ROOT = Path(tubal.__file__).parent
MODULES = sorted(
    ".".join(("tubal", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
)
OPTIONAL = {"triton": "Triton comes with PyTorch for a GPU", "torch": "pip install 'tubal[torch]'"}


@pytest.mark.parametrize("name", [name for name in MODULES if name != "tubal.__main__"])
def test_docstring_examples_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{name} needs {error.name}: {OPTIONAL[error.name]}")
    found = doctest.testmod(module)
    assert found.failed == 0, f"run python -m doctest {module.__file__}"


def test_docstring_examples_are_found() -> None:
    with_examples = [path.name for path in ROOT.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8")]
    assert len(with_examples) > 40
    assert len(MODULES) > len(with_examples)
