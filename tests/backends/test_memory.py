"""Freed memory: kept within a block although the environment says otherwise, and given back after it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PAGES_OF_TEN_ARRAYS = """
import resource
import numpy as np
from tubal.backends.arrays import freed_memory_reused

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(2**21, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

new_pages()
outside = new_pages()
with freed_memory_reused():
    with freed_memory_reused():
        new_pages()
    inside = new_pages()
print(outside, inside, new_pages())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts pages and has these variables")
def test_arrays_take_the_memory_of_earlier_ones():
    # Pages of one size, so that they can be counted
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "NUMPY_MADVISE_HUGEPAGE": "0"}
    found = subprocess.check_output([sys.executable, "-c", PAGES_OF_TEN_ARRAYS], env=environment, text=True)
    outside, inside, after = map(int, found.split())
    assert inside < 0.1 * outside
    assert after > 0.5 * outside
