"""Processes that are killed at random moments: a fit with checkpoints, and a loop of saves."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np

from tubal.storage.models import read_archive

SAVE_FOREVER = """
    import sys, numpy as np, tubal
    model = tubal.load(sys.argv[1])
    model.ballast_ = np.zeros(400_000)
    print("ready", flush=True)
    while True:
        tubal.save(model, sys.argv[2])
"""

FIT = """
    import sys, numpy as np, tubal
    from tubal.learning.checkpoints import Checkpoint
    images = np.random.default_rng(0).random((40, 6, 5))
    chunk = int(sys.argv[3]) or None
    print("ready", flush=True)
    model = tubal.GTSC(n_atoms=4, max_iter=40, tol=0.0, random_state=0)
    model.fit(images, chunk_size=chunk, folder=sys.argv[2] if chunk else None,
              checkpoint=Checkpoint(sys.argv[1], every_seconds=0.0, resume=True))
    np.savez(sys.argv[4], atoms=model.atoms_, codes=model.codes_, objective=model.objective_)
    print("done", flush=True)
"""


def kill_and_resume(folder: Path, chunk: int, kills: int, seed: int) -> tuple[np.lib.npyio.NpzFile, int]:
    """Kill a fit at random moments, then let it finish; return its result and how many kills hit it running."""
    random, hits = np.random.default_rng(seed), 0
    command = [
        sys.executable, "-c", textwrap.dedent(FIT), str(folder / "fit.ckpt"), str(folder), str(chunk),
        str(folder / "result.npz"),
    ]  # fmt: skip
    for number in range(kills + 1):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        if number < kills:
            time.sleep(float(random.uniform(0.0, 0.6)))
            process.send_signal(signal.SIGKILL)
            hits += process.wait() == -signal.SIGKILL
            if (folder / "fit.ckpt").exists():
                read_archive(folder / "fit.ckpt", "checkpoint")
        else:
            process.wait()
            if process.returncode != 0:
                raise AssertionError(f"the resumed fit ended with status {process.returncode}")
    return np.load(folder / "result.npz"), hits
