"""Peak memory of a fit in chunks, measured in a new process: ``peak_of`` for tests and stress tests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np

from tubal.learning.fitting import MemoryNeed, fit_need

SCRIPT = """
    import sys, h5py, numpy as np, tubal
    import tubal.learning.fitting as fitting
    from tubal.solvers import Admm
    fitting.CODES_SHARE = 0.0  # codes do not fit: they stay on disk
    chunk, weight, n_atoms, path = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    images = h5py.File(path)["images"]  # read, not mapped: mapped pages would count as memory
    def resident():
        return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
    parameters = dict(n_atoms=n_atoms, max_iter=1, random_state=0, graph_weight=weight, code_solver=Admm(max_iter=2))
    tubal.GTSC(**parameters | {"n_atoms": 2}).fit(np.asarray(images[:70]), chunk_size=35)  # compile
    open("/proc/self/clear_refs", "w").write("5")
    before = resident()
    tubal.GTSC(**parameters).fit(images, chunk_size=chunk, folder=sys.argv[5])
    print(resident() - before)
"""


def peak_of(images: np.ndarray, folder: Path, *, chunk: int, weight: float, n_atoms: int) -> tuple[int, MemoryNeed]:
    """Return the bytes a fit of float32 images (n, h, w) took at its peak, and what fits need."""
    import h5py

    path = folder / "images.h5"
    with h5py.File(path, "w") as file:
        file["images"] = images.astype(np.float32)
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(chunk), str(weight), str(n_atoms), str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # every further thread has buffers of its own
    done = subprocess.run([*command, str(folder)], check=True, capture_output=True, text=True, env=environment)
    height, width = images.shape[1:]
    pixels, n_graph_images = height * width, len(images) if weight > 0 else 0
    need = fit_need(
        pixels=pixels, codes=n_atoms * width, atom_values=n_atoms * pixels, itemsize=4, n_graph_images=n_graph_images
    )
    return int(done.stdout), need
