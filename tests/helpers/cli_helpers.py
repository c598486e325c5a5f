"""Helpers for the tests of the command line."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.utils import Bunch

from tubal.cli import run
from tubal.datasets import make_shifted_shapes

RESULTS = {"labels.csv", "features.npz", "model.tubal", "report.html", "run.json", "skipped.csv"}


def read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def export(images: np.ndarray, folder: Path, target: np.ndarray | None = None) -> None:
    """Write images as PNG files, in one sub-folder per class if classes are given."""
    for i, image in enumerate(images):
        class_folder = folder / (f"class {target[i]}" if target is not None else "")
        class_folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.uint8(np.round(image * 255))).save(class_folder / f"{i:04d}.png")


def cluster_shapes(folder: Path) -> Bunch:
    """Write 48 pictures of three classes into ``folder/pictures``, cluster them into ``folder/out``; return them."""
    made = make_shifted_shapes(48, n_classes=3, image_shape=(12, 12), random_state=0)
    export(made.images, folder / "pictures")
    assert run(["cluster", str(folder / "pictures"), "-k", "3", "-o", str(folder / "out"), "--quiet"]) == 0
    return made


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was printed after checking that it is one line on standard error."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"tubal: [^\n]+\n", printed.err), printed.err
    assert "Traceback" not in printed.err
    return printed.err


def call(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    code = "import tubal.cli; tubal.cli.main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
