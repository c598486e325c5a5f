"""The rule that keeps Numba's cache valid (see ``tubal.backends.cpu.jit``)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tubal.backends import cpu

KERNELS = sorted(path for path in Path(cpu.__file__).parent.glob("*.py") if path.stem not in ("__init__", "jit"))


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_kernels_use_functions_of_their_file_only(path):
    """Numba does not recompile a cached kernel when a constant or a function in another file changes."""
    imported = {
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tubal")
    }
    assert imported <= {"tubal.backends.cpu.jit"}
