"""Fine thumbnails of the live page: pictures read again from their files, larger than the model keeps them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import threading
import time

import numpy as np
import pytest
from PIL import Image

from helpers.cli_helpers import cluster_shapes
from helpers.live_server import LiveThread
from tubal.app import results as results_module
from tubal.app.results import Results
from tubal.cli import run
from tubal.datasets import make_shifted_shapes

SMALL, LARGE = 32, 96


def striped(image):
    """Return a large picture whose dark columns, one pixel wide, make it half as bright when it is small."""
    large = np.kron(np.clip(image, 0.2, 1.0), np.ones((LARGE // 12, LARGE // 12)))
    large[:, 1::2] = 0.0
    return np.uint8(np.round(255 * large))


@pytest.fixture(scope="module")
def clustered(tmp_path_factory):
    """Results of 48 grey pictures of 96 pixels, of which the model keeps 32."""
    folder = tmp_path_factory.mktemp("larger")
    (folder / "pictures").mkdir()
    for i, image in enumerate(make_shifted_shapes(48, n_classes=3, image_shape=(12, 12), random_state=0).images):
        Image.fromarray(striped(image)).save(folder / "pictures" / f"{i:04d}.png")
    arguments = ["cluster", str(folder / "pictures"), "-k", "3", "--crop", "none", "-o", str(folder / "out"), "--quiet"]
    assert run(arguments) == 0
    return folder


@pytest.fixture
def place(clustered, tmp_path):
    """A copy of the results, and of the pictures that they list, which a test may change."""
    shutil.copytree(clustered / "out", tmp_path / "out")
    shutil.copytree(clustered / "pictures", tmp_path / "pictures")
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    record["files"] = [str(tmp_path / "pictures" / os.path.basename(file)) for file in record["files"]]
    (tmp_path / "out" / "run.json").write_text(json.dumps(record))
    return tmp_path


def sprites_of(live):
    """Return what the page knows about its sheets."""
    page = live.request("")[1]
    return json.loads(re.search(rb'<script[^>]*id="payload"[^>]*>(.*?)</script>', page, re.DOTALL)[1])["sprites"]


def picture(file):
    return np.asarray(Image.open(file).convert("RGB"))


def bright(values):
    """Return values that are 255 at their brightest place, as floats."""
    return values.astype(float) * (255 / values.max())


# --- what the server sends ---------------------------------------------------------------------------------------
def test_fine_sheets_show_the_detail_of_the_files(clustered):
    with LiveThread(clustered / "out") as live:
        sprites = sprites_of(live)
        small = np.asarray(Image.open(io.BytesIO(live.request("sheet/0")[1])))
        status, body = live.request("fine/0")
        assert (status, live.headers["content-type"]) == (200, "image/jpeg")
        assert "max-age" in live.headers["cache-control"]
    fine = np.asarray(Image.open(io.BytesIO(body))).astype(float)
    factor, (down, across) = sprites["fine"], sprites["pitch"]
    assert factor == LARGE // SMALL
    assert fine.shape == (factor * small.shape[0], factor * small.shape[1], 3)
    top, left = factor * (1 + 2 * down), factor * (1 + 5 * across)
    shown = fine[top : top + LARGE, left : left + LARGE]
    file = picture(clustered / "pictures" / f"{2 * sprites['columns'] + 5:04d}.png")
    assert np.abs(shown - bright(file)).mean() < 5
    # The small tile has hardly any stripes.
    tile = small[1 + 2 * down : 33 + 2 * down, 1 + 5 * across : 33 + 5 * across].astype(float)
    assert np.abs(np.diff(shown, axis=1)).mean() > 3 * np.abs(np.diff(tile, axis=1)).mean()


def test_numbers_out_of_range_are_not_found(clustered):
    with LiveThread(clustered / "out") as live:
        assert [live.request(f"fine/{number}")[0] for number in (0, 1, 10**30)] == [200, 404, 404]


@pytest.mark.parametrize("why", ["no files", "too many", "small files"])
def test_without_larger_files_there_are_no_fine_sheets(why, place, tmp_path_factory, monkeypatch):
    out = place / "out"
    if why == "no files":
        shutil.rmtree(place / "pictures")
    elif why == "too many":
        monkeypatch.setattr(results_module, "MOST_LARGER", 47)
    else:
        folder = tmp_path_factory.mktemp("small")
        cluster_shapes(folder)
        out = folder / "out"
    with LiveThread(out) as live:
        assert sprites_of(live)["fine"] is None
        assert live.request("fine/0")[0] == 404
        assert live.request("sheet/0")[0] == 200


def test_a_server_that_reads_many_files_ends_soon(place, monkeypatch):
    started = threading.Event()

    def slowly(*_):
        started.set()
        time.sleep(2)

    live = LiveThread(place / "out")
    monkeypatch.setattr(Image.Image, "draft", slowly)
    asked = threading.Thread(target=lambda: live.request("fine/0"))
    asked.start()
    assert started.wait(30)
    begin = time.monotonic()
    live.kill()
    assert time.monotonic() - begin < 10
    asked.join(30)


# --- what is read again ------------------------------------------------------------------------------------------
def test_pictures_that_cannot_be_read_again_are_enlarged(place):
    pictures = place / "pictures"
    (pictures / "0000.png").unlink()
    (pictures / "0001.png").write_bytes((pictures / "0001.png").read_bytes()[:60])
    (pictures / "0002.png").write_text("secret")
    (pictures / "0003.png").unlink()
    os.mkfifo(pictures / "0003.png")
    pages = [Image.new("L", (LARGE, LARGE), shade) for shade in (9, 200)]
    pages[0].save(pictures / "0004.tif", save_all=True, append_images=pages[1:])
    (pictures / "0004.tif").rename(pictures / "0004.png")
    results = Results.open(place / "out")
    small = (255 * results.stack().images[:5] + 0.5).astype(np.uint8)
    found = results.larger(0, 6, factor=3)
    assert found.shape == (6, LARGE, LARGE, 3)
    np.testing.assert_array_equal(found[:5], np.kron(small, np.ones((1, 3, 3), np.uint8))[..., None].repeat(3, axis=3))
    np.testing.assert_allclose(found[5], bright(picture(pictures / "0005.png")), atol=1)


def test_a_decoder_that_raises_anything_is_survived(place, monkeypatch):
    monkeypatch.setattr("tubal.images.folders.load_pictures", lambda *_: 1 / 0)
    assert Results.open(place / "out").larger(0, 2, factor=3).shape == (2, LARGE, LARGE, 3)


@pytest.mark.parametrize("options", [["--fit", "pad"], ["--fit", "crop"], ["--crop", "content"]])
def test_pictures_are_framed_as_for_the_model(options, tmp_path):
    (tmp_path / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i, image in enumerate(make_shifted_shapes(24, n_classes=3, image_shape=(12, 12), random_state=0).images):
        canvas = np.full((100 + 4 * (i % 5), 160 - 6 * (i % 7), 3), 255.0)
        shape = np.kron(image, np.ones((8, 8)))
        canvas[2:98, 20:116] -= 255 * shape[..., None] * rng.uniform(0.3, 1, 3)
        Image.fromarray(np.uint8(np.clip(canvas, 0, 255))).save(tmp_path / "pictures" / f"{i:02d}.png")
    out = str(tmp_path / "out")
    assert run(["cluster", str(tmp_path / "pictures"), "-k", "3", *options, "-o", out, "--quiet"]) == 0
    results = Results.open(tmp_path / "out")
    small = 255 * results.stack().images
    large = results.larger(0, 24, factor=3).astype(float)
    reduced = large.reshape(24, small.shape[1], 3, small.shape[2], 3, 3).mean(axis=(2, 4))
    assert np.abs(reduced - small).mean() < 8
    # One pixel aside, they do not match nearly as well.
    assert np.abs(np.roll(reduced, 1, axis=2) - small).mean() > 1.5 * np.abs(reduced - small).mean()
