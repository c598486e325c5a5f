"""Memory that is used again: by arrays of a workspace, and by all arrays within a block of code."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tubal.backends.arrays import Workspace

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
def test_arrays_within_a_block_take_the_memory_of_earlier_ones():
    # Pages of one size, so that they can be counted
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "NUMPY_MADVISE_HUGEPAGE": "0"}
    found = subprocess.check_output([sys.executable, "-c", PAGES_OF_TEN_ARRAYS], env=environment, text=True)
    outside, inside, after = map(int, found.split())
    assert inside < 0.1 * outside
    assert after > 0.5 * outside


def test_threads_have_arrays_of_their_own():
    workspace = Workspace()
    own = workspace.array("pixels", (2, 3))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(workspace.array, "pixels", (2, 3)).result()
    assert np.shares_memory(own, workspace.array("pixels", (3, 2)))
    assert not np.shares_memory(own, other)


def test_larger_array_does_not_change_an_earlier_one():
    workspace = Workspace()
    earlier = workspace.array("pixels", (4,))
    earlier[:] = 1
    workspace.array("pixels", (1000,))[:] = 2
    workspace.array("weights", (4,))[:] = 3
    assert (earlier == 1).all()


def test_copies_of_a_workspace_begin_empty():
    workspace = Workspace()
    own = workspace.array("pixels", (4,))
    for other in (copy.deepcopy(workspace), pickle.loads(pickle.dumps(workspace))):
        assert not np.shares_memory(own, other.array("pixels", (4,)))
