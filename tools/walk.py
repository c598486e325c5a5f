"""Show which files and functions of tubal a typical call goes through.

``python tools/walk.py fit`` follows ``GTSC(...).fit(images)``, ``python tools/walk.py cluster`` the command ``tubal
cluster``. Files are listed in the order in which they are first entered, each with its functions and how often they
were called. Only calls on the main thread count. Imports and the compilation of kernels are done before.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np

import tubal

ROOT = Path(tubal.__file__).parent


class Call(NamedTuple):
    """One call of a function: its file, relative to the package, and its name."""

    file: str
    function: str


def trace(work: Callable[[], object]) -> list[Call]:
    """Run ``work`` twice and return the calls into tubal of the second run, in order."""
    work()  # import modules and compile kernels
    prefix, calls = f"{ROOT}/", []

    def record(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix) and code.co_name != "<module>":
            calls.append(Call(code.co_filename.removeprefix(prefix), code.co_qualname))

    former = sys.getprofile()
    sys.setprofile(record)
    try:
        work()
    finally:
        sys.setprofile(former)
    return calls


def files_entered(calls: Sequence[Call]) -> list[str]:
    """Return the files that are entered, in the order of their first call."""
    return list(dict.fromkeys(call.file for call in calls))


def route(calls: Sequence[Call], folder: str) -> list[str]:
    """Return the files of a folder in the order they are entered, a file again whenever it is entered again."""
    entered = (call.file for call in calls if call.file.startswith(f"{folder}/"))
    return [file for file, _ in itertools.groupby(entered)]


def prepare_fit(folder: Path) -> Callable[[], object]:
    """Return a fit of GTSC on a few images in memory."""
    images = np.random.default_rng(0).random((30, 8, 7))
    return lambda: tubal.GTSC(n_atoms=4, max_iter=2, random_state=0).fit(images)


def prepare_cluster(folder: Path) -> Callable[[], object]:
    """Return a run of the command ``tubal cluster`` on a folder of small pictures."""
    from PIL import Image

    from tubal.cli import run
    from tubal.datasets import make_shifted_shapes

    pictures = folder / "pictures"
    pictures.mkdir()
    shapes = make_shifted_shapes(30, n_classes=3, image_shape=(12, 12), random_state=0)
    for index, image in enumerate(shapes.images):
        Image.fromarray(np.uint8(np.round(255 * image))).save(pictures / f"{index:02d}.png")
    return lambda: run(["cluster", str(pictures), "-k", "3", "--out", f"{folder}/out", "--force", "--quiet"])


# What each walk follows; a function prepares it in an empty folder.
WALKS: dict[str, Callable[[Path], Callable[[], object]]] = {"fit": prepare_fit, "cluster": prepare_cluster}


def walk(name: str) -> list[Call]:
    """Return the calls of one of ``WALKS``, in order."""
    with tempfile.TemporaryDirectory() as folder:
        return trace(WALKS[name](Path(folder)))


def describe(calls: Sequence[Call]) -> str:
    """Return the walk as text: files in order, their functions in order, and how often each was called."""
    counts, lines = Counter(calls), []
    for number, file in enumerate(files_entered(calls), 1):
        lines.append(f"{number:3d}  {file}")
        lines += [f"     {count:6d} × {call.function}" for call, count in counts.items() if call.file == file]
    lines.append(f"{len(calls)} calls of {len(counts)} functions in {len(files_entered(calls))} files")
    lines.append(f"through the estimators: {' → '.join(route(calls, 'estimators'))}")
    return "\n".join(lines)


def main() -> None:
    """Print one walk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walk", choices=WALKS)
    sys.stdout.write(describe(walk(parser.parse_args().walk)) + "\n")


if __name__ == "__main__":
    main()
