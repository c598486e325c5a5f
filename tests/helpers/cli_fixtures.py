"""A small folder of pictures and the results of clustering it, made once for all tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.cli_helpers import export
from tubal.cli import run
from tubal.datasets import make_shifted_shapes


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 60 small pictures of three classes, and one that cannot be read."""
    folder = tmp_path_factory.mktemp("shapes") / "pictures"
    bunch = make_shifted_shapes(60, n_classes=3, image_shape=(12, 12), random_state=0)
    export(bunch.images, folder, bunch.target)
    (folder / "class 0" / "broken.png").write_bytes(b"this is text")
    return folder


@pytest.fixture(scope="session")
def results(shapes: Path) -> Path:
    """The results folder of one run, for the commands that need a model."""
    out = shapes.parent / "results"
    assert run(["cluster", str(shapes), "-k", "3", "--out", str(out), "--labels", "folders", "--quiet"]) == 0
    return out
