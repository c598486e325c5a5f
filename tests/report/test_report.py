"""The report as a file: data checks, order and sample of images, sprites, escaping."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import sparse

from helpers.digits_report import HOSTILE_NAMES, NO_OPTIONAL_PARTS, digits_report
from tubal.report import ReportData, build_report, write_report
from tubal.report.page import (
    GUTTER,
    Sprites,
    _encode_sheets,
    choose_sample,
    encode_payload,
    pack,
    pack_sprites,
    shrink,
    to_script_json,
    typical_first,
    typicality,
)
from tubal.storage.files import to_plain


@pytest.fixture(scope="module")
def small() -> ReportData:
    return digits_report(120)


def unpack(packed: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["data"]), dtype=packed["dtype"]).reshape(packed["shape"])


def payload_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="payload">(.*?)</script>', page, re.S)[1])


def tile(sprites: Sprites, index: int) -> np.ndarray:
    """Return a tile, found by the same rule as in the page."""
    address = sprites.sheets[index // sprites.per_sheet]
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))))
    place = index % sprites.per_sheet
    top = GUTTER + (place // sprites.columns) * sprites.pitch[0]
    left = GUTTER + (place % sprites.columns) * sprites.pitch[1]
    return sheet[top : top + sprites.height, left : left + sprites.width]


@pytest.mark.parametrize("shape", [(1, 8, 8), (300, 16, 12), (7, 20, 31, 3), (700, 64, 64)])
def test_png_sprites_are_exact(shape):
    rng = np.random.default_rng(0)
    images = np.uint8(rng.integers(0, 3, shape) * 100)
    sprites = pack_sprites(images)
    assert sprites.exact
    for index in {0, len(images) // 2, len(images) - 1}:
        np.testing.assert_array_equal(tile(sprites, index), images[index])


def test_sprites_of_noise_stay_within_budget():
    images = np.uint8(np.random.default_rng(0).integers(0, 256, (400, 64, 64, 3)))
    sprites = pack_sprites(images, budget=800_000)
    assert not sprites.exact
    assert sprites.n_bytes <= 800_000


def test_jpeg_tiles_do_not_blur_into_each_other():
    images = np.zeros((9, 61, 50, 3), np.uint8)
    images[::2] = 255
    sprites = _encode_sheets(images, "JPEG")
    for index in range(9):
        np.testing.assert_allclose(tile(sprites, index).astype(float), images[index], atol=2)


def test_shrink_keeps_proportions_and_small_images():
    assert shrink(np.zeros((2, 200, 100), np.uint8), 50).shape == (2, 50, 25)
    images = np.zeros((2, 20, 10), np.uint8)
    assert shrink(images, 50) is images


def slow_path_weight(data: ReportData, image: int, length: int) -> float:
    """Return the weight of all paths of ``length`` edges that start at an image and stay in its cluster."""
    if length == 0:
        return 1.0
    scale = data.neighbor_distances.mean(axis=1)
    total = 0.0
    for other in range(data.n_images):
        for source, target in ((image, other), (other, image)):
            slot = np.flatnonzero(data.neighbors[source] == target)
            if slot.size and data.labels[source] == data.labels[target]:
                distance = data.neighbor_distances[source, slot[0]]
                weight = np.exp(-(distance**2) / (scale[source] * scale[target]))
                total += weight * slow_path_weight(data, other, length - 1)
    return total


def test_typicality_is_the_weight_of_paths_inside_the_cluster(monkeypatch):
    monkeypatch.setattr("tubal.report.page.PATH_LENGTH", 2)
    data = digits_report(40)
    weights = np.array([slow_path_weight(data, image, 2) for image in range(40)])
    found = typicality(data)
    for cluster in np.unique(data.labels):
        members = data.labels == cluster
        expected = weights[members] / (weights[members].max() or 1.0)
        np.testing.assert_allclose(found[members], expected, atol=1e-12)


def test_typical_images_come_first_then_doubtful_ones_then_outliers():
    data = digits_report(300)
    order = typical_first(data)
    assert sorted(order) == list(range(300))
    groups = [(bool(data.outliers[i]), bool(data.doubtful[i])) for i in order]
    assert groups == sorted(groups)
    certain = [i for i in order if not data.outliers[i] and not data.doubtful[i]]
    assert (np.diff(typicality(data)[certain]) <= 0).all()


def test_most_typical_images_resemble_the_cluster_mean():
    """Here all confidences are equal, as they often are, and positions on the map are random."""
    positions = np.random.default_rng(0).normal(size=(1500, 2))
    data = digits_report(1500, confidence=np.ones(1500), embedding=positions)
    order = typical_first(data)
    pixels = data.images.reshape(1500, -1).astype(float)
    for cluster in range(10):
        ordered = pixels[order[data.labels[order] == cluster]]
        distances = np.linalg.norm(ordered - ordered.mean(axis=0), axis=1)
        assert distances[:12].mean() < 0.9 * distances.mean()


def test_sample_is_stratified_and_keeps_the_most_typical_images():
    data = digits_report(1500)
    order = typical_first(data)
    sample = choose_sample(data, 100)
    assert len(sample) == len(set(sample.tolist())) == 100
    for cluster in range(10):
        members = order[data.labels[order] == cluster]
        share = (data.labels[sample] == cluster).sum()
        assert abs(share - 100 * len(members) / 1500) <= 1.5
        assert members[0] in sample


def test_sample_of_few_images_keeps_the_largest_clusters():
    data = digits_report(120, labels=np.r_[np.zeros(100, int), np.arange(1, 21)])
    sample = choose_sample(data, 5)
    assert len(sample) == 5
    assert (data.labels[sample] == 0).any()


def test_small_data_is_not_sampled(small):
    np.testing.assert_array_equal(choose_sample(small, 2000), np.arange(120))


def test_sampled_payload_lists_all_images():
    data = digits_report(300)
    shown = choose_sample(data, 50)
    payload = encode_payload(data, shown)
    assert len(payload["names"]) == 300
    np.testing.assert_array_equal(unpack(payload["shown"]), shown)
    np.testing.assert_array_equal(unpack(payload["neighbors"]), data.neighbors[shown])
    assert payload["duplicateOf"] == [[7, 5], [9, 5]]


@pytest.mark.parametrize("max_rows", [50_000, 200])
def test_sampled_payload_counts_all_images(monkeypatch, max_rows):
    monkeypatch.setattr("tubal.report.page.MAX_ROWS", max_rows)
    data = digits_report(300)
    payload = encode_payload(data, choose_sample(data, 50))
    for cluster in payload["clusters"]:
        members = data.labels == cluster["label"]
        assert cluster["size"] == members.sum()
        assert cluster["doubtful"] == data.doubtful[members].sum()
        assert cluster["outliers"] == data.outliers[members].sum()
        assert cluster["confidence"] == pytest.approx(data.confidence[members].mean(), abs=1e-4)
    assert payload["nTotal"] == sum(count for _, _, count in payload["trueLabels"]["counts"]) == 300
    assert payload["nDuplicates"] == 2


def test_table_above_max_rows_lists_only_the_sample(monkeypatch):
    monkeypatch.setattr("tubal.report.page.MAX_ROWS", 200)
    data = digits_report(300)
    shown = np.sort(np.r_[5, 9, choose_sample(data, 50)])
    shown = np.unique(shown)
    payload = encode_payload(data, shown)
    assert payload["names"] == [data.names[i] for i in shown]
    rows = unpack(payload["neighbors"])
    expected = np.where(np.isin(data.neighbors[shown], shown), np.searchsorted(shown, data.neighbors[shown]), -1)
    np.testing.assert_array_equal(rows, expected)
    assert [shown.tolist().index(9), shown.tolist().index(5)] in payload["duplicateOf"]


def test_terms_are_ordered_and_rebuild_the_image(small):
    payload = encode_payload(small, np.arange(120))
    terms, offsets = payload["terms"], unpack(payload["terms"]["offsets"])
    values = unpack(payload["atoms"]["values"]) * unpack(payload["atoms"]["scale"])[:, None, None, None]
    for image in (0, 57, 119):
        rows = slice(offsets[image], offsets[image + 1])
        coefficients = unpack(terms["coefficient"])[rows]
        assert (np.diff(np.abs(coefficients)) <= 1e-6).all()
        moved = [
            c * np.roll(values[a, ..., 0], (dy, dx), axis=(0, 1))
            for a, dy, dx, c in zip(
                unpack(terms["atom"])[rows],
                unpack(terms["dy"])[rows],
                unpack(terms["dx"])[rows],
                coefficients,
                strict=True,
            )
        ]
        expected = sum(c * np.roll(small.atoms[int(a)], int(dx), axis=1) for a, _, dx, c in small.terms[image])
        np.testing.assert_allclose(sum(moved), expected, atol=2e-4)


def test_only_the_largest_terms_are_kept_but_all_are_counted():
    data = digits_report(40, n_terms=110)
    payload = encode_payload(data, np.arange(40))
    assert set(np.diff(unpack(payload["terms"]["offsets"]))) == {96}
    assert set(unpack(payload["terms"]["counts"])) == {110}


def test_given_term_counts_are_used():
    data = digits_report(40, term_counts=np.arange(100, 140))
    np.testing.assert_array_equal(unpack(encode_payload(data, np.arange(3))["terms"]["counts"]), [100, 101, 102])


def test_labels_are_in_natural_order():
    data = digits_report(30, true_labels=[f"object {i % 12}" for i in range(30)])
    labels = encode_payload(data, np.arange(30))["trueLabels"]
    assert labels["names"] == [f"object {i}" for i in range(12)]
    np.testing.assert_array_equal(unpack(labels["codes"]), np.arange(30) % 12)


def test_clusters_have_the_names_given_to_them():
    clusters = encode_payload(digits_report(30, cluster_names={3: "three"}), np.arange(30))["clusters"]
    assert {cluster["label"]: cluster["name"] for cluster in clusters if cluster["name"]} == {3: "three"}


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_cannot_close_the_script_element(name):
    text = to_script_json({"name": name})
    assert not re.search("[<>&\u2028\u2029]", text)
    assert text.isascii()
    assert json.loads(text)["name"] == name


def test_names_appear_in_the_page_only_inside_the_payload():
    data = digits_report(60, hostile=True, title="<i>title</i> \udc80", provenance={"<b>": "</script><b>x"})
    page = build_report(data)
    outside = re.sub(r'<script type="application/json" id="payload">.*?</script>', "", page, flags=re.S)
    assert "pwned" not in outside
    assert "<i>title" not in page
    assert payload_of(page)["names"][: len(HOSTILE_NAMES)] == list(HOSTILE_NAMES)


def test_policy_allows_only_the_embedded_script_and_style(small):
    page = build_report(small)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    script = re.search(r"<script>(.*?)</script>", page, re.S)[1]
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    for text in (script, style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_page_contains_no_web_address(small):
    page = build_report(small)
    outside = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z0-9.-]+\.[a-z]{2,}/", outside)


def test_failed_write_keeps_the_old_report(small, tmp_path, monkeypatch):
    target = write_report(small, tmp_path / "report.html")
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    before = target.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_report(digits_report(60), tmp_path / "report.html")
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_page_of_2000_color_images_is_below_15_megabytes(tmp_path):
    rng = np.random.default_rng(0)
    base = digits_report(2000)
    coarse = rng.integers(0, 256, (2000, 12, 12, 3)).astype(np.uint8)
    images = np.stack([np.asarray(Image.fromarray(c).resize((80, 80), Image.Resampling.BICUBIC)) for c in coarse])
    terms = [
        np.c_[rng.integers(0, 100, 64), np.zeros(64), rng.integers(0, 80, 64), rng.normal(size=64)] for _ in images
    ]
    data = digits_report(2000, images=images, atoms=rng.normal(size=(100, 80, 80, 3)), terms=terms, norms=base.norms)
    assert write_report(data, tmp_path / "report.html").stat().st_size < 15e6


def test_optional_parts_may_be_missing():
    payload = payload_of(build_report(digits_report(30, **NO_OPTIONAL_PARTS)))
    assert payload["atoms"] is payload["terms"] is payload["trueLabels"] is None


def test_settings_become_json_values():
    given = {
        "seed": np.int64(3),
        "when": Path("x"),
        "nan": float("nan"),
        "list": (np.float32(0.5), None),
        "flag": np.True_,
    }
    assert to_plain(given) == {"seed": 3, "when": "x", "nan": "nan", "list": [0.5, None], "flag": True}


def test_pack_is_little_endian():
    assert base64.b64decode(pack(np.array([1]), "int32")["data"]) == b"\x01\0\0\0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": np.zeros((30, 8, 8))}, "uint8"),
        ({"images": np.zeros((0, 8, 8), np.uint8)}, "n > 0"),
        ({"names": ["one"]}, "names has 1 entries for 30"),
        ({"labels": np.zeros(29)}, r"labels has shape \(29,\)"),
        ({"embedding": np.full((30, 2), np.nan)}, "embedding holds NaN"),
        ({"neighbors": np.full((30, 5), 30)}, "neighbors holds indices"),
        ({"neighbor_distances": np.zeros((30, 2))}, "one distance for each"),
        ({"atoms": None}, "terms are given without atoms"),
        ({"terms": [np.array([[99, 0, 0, 1.0]])] * 30}, "an atom outside"),
        ({"terms": [np.zeros((2, 3))] * 30}, "rows"),
    ],
)
def test_bad_data_raises_a_clear_error(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        digits_report(30, **changes)


def test_max_images_below_one_raises_an_error(small):
    with pytest.raises(ValueError, match="max_images is 0"):
        build_report(small, max_images=0)


def test_edges_that_decided_the_clusters_decide_what_is_typical():
    """A star: its hub has the most paths, whatever the distances say. Edges between clusters do not count."""
    weights = np.zeros((30, 30))
    weights[4, [0, 1, 2, 3]] = 1.0
    weights[20, 10:20] = 5.0
    labels = np.repeat([0, 1, 2], 10)
    data = digits_report(30, labels=labels, affinity=sparse.csr_array(weights + weights.T))
    found = typicality(data)
    assert found[:10].argmax() == 4
    assert found[4] == 1.0
    assert not found[10:].any()
