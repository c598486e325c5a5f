"""The record of what a clusterer says of its own result, on two small piles."""

from __future__ import annotations

import numpy as np
from PIL import Image

from tools import confidence, piles
from tubal.datasets import make_shifted_shapes


def test_record_has_every_pile_and_finds_strangers(tmp_path, monkeypatch):
    monkeypatch.setattr(piles, "why_missing", lambda: "no network here")
    shapes = make_shifted_shapes(48, n_classes=3, image_shape=(20, 20), random_state=0)
    for name, shown in {"dark": shapes.images, "noisy": np.random.default_rng(0).random((48, 20, 20))}.items():
        for index, (image, label) in enumerate(zip(shown, shapes.target, strict=True)):
            file = tmp_path / "piles" / name / str(label) / f"{index}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.uint8(np.round(255 * image))).save(file)
    found = confidence.run(tmp_path / "piles", tmp_path / "out", cache=tmp_path / "cache", collections=())["measured"]
    assert set(found) == {"dark", "noisy"}
    assert found["dark"]["accuracy"] > found["noisy"]["accuracy"]
    text = (tmp_path / "out" / "confidence.md").read_text(encoding="utf-8")
    assert "| dark | 3 |" in text
    assert "Means: " in text


def test_right_images_follow_the_best_match(rng):
    target = rng.integers(4, size=200)
    labels = np.where(rng.random(200) < 0.9, (target + 1) % 4, 0)
    expected = labels == (target + 1) % 4
    np.testing.assert_array_equal(confidence.right_images(labels, target), expected)


def test_strangers_of_another_size_are_found():
    rng = np.random.default_rng(0)
    images, others = rng.random((300, 24, 24), dtype=np.float32), np.full((30, 40, 40), 0.5, np.float32)
    assert confidence.found_strangers(images, others, 0) == 20
