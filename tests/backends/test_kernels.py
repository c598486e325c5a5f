"""Numba's cache: the rule that keeps it valid, and what happens without it (see ``tubal.backends.cpu.jit``)."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tubal import ImageClusterer
from tubal.backends import cpu
from tubal.backends.cpu import coding, deformation, jit
from tubal.cli.console import is_compiled
from tubal.estimators.explanation import explain_images

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


# --- the cache on disk -------------------------------------------------------------------------------------------
KERNELS_OF_A_TEST = """
from tubal.backends.cpu.jit import compiled

@compiled
def double(x):
    return 2.0 * x

@compiled
def triple(x):
    return 3.0 * x
"""
CALL = """
import warnings
{before}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import kernels_of_a_test as kernels
    assert (kernels.double(2.0), kernels.triple(2.0)) == (4.0, 6.0)
ours = [str(warning.message) for warning in caught if warning.category.__module__.startswith("tubal")]
print("|".join(ours), sum(kernels.double.stats.cache_hits.values()), sum(kernels.triple.stats.cache_hits.values()))
"""
NO_FOLDER = """
from numba.core import caching
def refuse(self): raise OSError(30, "Read-only file system")
caching._CacheLocator.ensure_cache_path = refuse
"""
FULL_DISK = """
from numba.core import caching
def refuse(self, path): raise OSError(28, "No space left on device")
caching.IndexDataCacheFile._open_for_write = refuse
"""


def call_kernels(folder: Path, before: str = "") -> str:
    """Call two kernels in a new process; return its warnings and how many kernels came from the cache."""
    module = folder / "kernels_of_a_test.py"
    if not module.exists():  # Numba compiles again where the time of the file changed
        module.write_text(KERNELS_OF_A_TEST)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", CALL.format(before=before)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_damaged_cache_is_repaired(tmp_path):
    assert call_kernels(tmp_path) == "0 0"
    assert call_kernels(tmp_path) == "1 1"
    for suffix in (".nbi", ".nbc"):
        files = [file for file in (tmp_path / "cache").rglob("*") if file.suffix == suffix]
        assert len(files) == 2
        for file in files:
            file.write_bytes(file.read_bytes()[:20] if suffix == ".nbi" else b"")
        found = call_kernels(tmp_path)
        assert found.count("was damaged and is repaired") == 1
        assert found.endswith(" 0 0")
        assert call_kernels(tmp_path) == "1 1"


@pytest.mark.parametrize(
    ("before", "sentence"), [(NO_FOLDER, "set NUMBA_CACHE_DIR"), (FULL_DISK, "No space left on device")]
)
def test_kernels_work_without_a_cache(before, sentence, tmp_path):
    found = call_kernels(tmp_path, before)
    assert found.count("compiled kernels cannot be kept") == 1
    assert sentence in found


# --- compiled by other processes ---------------------------------------------------------------------------------
KERNELS_AHEAD = f"""
from numba import float64
{KERNELS_OF_A_TEST}
TYPES = {{"double": (float64,), "triple": (float64,)}}
"""
CALL_AHEAD = """
import kernels_ahead as kernels
from tubal.backends.cpu import jit
from tubal.cli.console import is_compiled
jit.available_cores = lambda: 2
names, told = ["kernels_ahead.double", "kernels_ahead.triple"], []
assert not (is_compiled(kernels.double) or is_compiled(kernels.triple))
with jit.compiled_ahead(names, tell=lambda: told.append(1)):
    assert (kernels.double(2.0), kernels.triple(2.0)) == (4.0, 6.0)
assert is_compiled(kernels.double) and is_compiled(kernels.triple)
print(sum(kernels.double.stats.cache_hits.values()), sum(kernels.triple.stats.cache_hits.values()), len(told) > 0)
"""


def test_kernels_of_other_processes_are_used(tmp_path):
    (tmp_path / "kernels_ahead.py").write_text(KERNELS_AHEAD)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    assert subprocess.check_output([sys.executable, "-c", CALL_AHEAD], env=environment) == b"1 1 True\n"


@pytest.mark.parametrize("length", range(1, 21))
def test_short_products_are_those_of_numpy(rng, length):
    matrix, source = rng.standard_normal((3, length)), rng.standard_normal((length, 2 * coding.TILE + 5))
    target = np.full((3, source.shape[1]), np.nan)
    coding._multiply(matrix, source, target)
    np.testing.assert_allclose(target, matrix @ source, atol=1e-13)


def test_clustering_uses_the_kernels_compiled_ahead(rng):
    """Other types would be compiled by other processes in vain, and once more here."""
    images = rng.random((20, 6, 6), dtype=np.float32)
    clusterer = ImageClusterer(2, random_state=0).fit(images)
    assert clusterer.embedding_.shape == (20, 2)
    explain_images(clusterer.model_, images[:2])
    assert {name.rpartition(".")[2] for name in jit.FOR_CLUSTERING} == {*coding.TYPES, *deformation.TYPES}
    for name in jit.FOR_CLUSTERING:
        kernel, types = jit.find_kernel(name)
        assert tuple(types) in kernel.signatures, name
        assert is_compiled(kernel)
    assert all(len(getattr(deformation, name).signatures) == 1 for name in deformation.TYPES)
