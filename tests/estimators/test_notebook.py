"""The display in a notebook: parameters, atoms and convergence of fitted estimators."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from sklearn import config_context

from tubal import CSC, GTSC, ImageClusterer, TenSR, TubSC
from tubal.estimators.notebook import fitted_html

IMAGES = np.random.default_rng(0).random((14, 6, 5))


class Strict(HTMLParser):
    """Check that every element that is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def sheet(html: str) -> np.ndarray:
    """Return the picture of the atoms as pixels."""
    address = re.search(r'src="data:image/png;base64,([^"]+)"', html)
    assert address is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address[1]))))


@pytest.mark.parametrize(
    "model",
    [
        TubSC(n_atoms=4, max_iter=3, random_state=0),
        GTSC(n_atoms=4, max_iter=3, random_state=0),
        TenSR(n_atoms=(3, 2), max_iter=2, random_state=0),
        CSC(n_atoms=3, filter_shape=(3, 3), max_iter=2, random_state=0),
        ImageClusterer(2, n_atoms=4, max_iter=3, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_fitted_display_has_parameters_atoms_and_convergence(model):
    html = model.fit(IMAGES)._repr_mimebundle_()["text/html"]
    assert html == model._repr_html_()
    assert {"table", "img", "svg"} <= set(Strict(html).tags)
    assert type(model).__name__ in html
    assert "14 images of 6×5" in html
    assert all(name in html for name in model.get_params())
    coder = getattr(model, "model_", model)
    line = re.search(r'points="([^"]+)"', html)
    assert line is not None
    assert len(line[1].split()) == len(coder.objective_)


def test_picture_shows_the_atoms():
    model = TubSC(n_atoms=3, max_iter=2, random_state=0).fit(IMAGES)
    picture = sheet(fitted_html(model))
    assert picture.shape == (2 * 7 - 1, 2 * 6 - 1, 3)
    for place, atom in zip([(0, 0), (0, 6), (7, 0)], model.atoms_, strict=True):
        tile = picture[place[0] : place[0] + 6, place[1] : place[1] + 5].astype(int)
        # Green holds the positive part; red minus green the negative one.
        shown = (tile[..., 1] - (tile[..., 0] - tile[..., 1])) / 255.0
        np.testing.assert_allclose(shown, atom / np.abs(atom).max(), atol=0.004)


def test_unfitted_display_is_that_of_scikit_learn():
    html = GTSC(n_atoms=7)._repr_mimebundle_()["text/html"]
    assert "sk-" in html
    assert "<img" not in html


def test_display_setting_of_scikit_learn_is_respected():
    model = TubSC(n_atoms=2, max_iter=1, random_state=0).fit(IMAGES)
    with config_context(display="text"):
        assert set(model._repr_mimebundle_()) == {"text/plain"}
        assert not hasattr(model, "_repr_html_")


def test_display_of_many_large_atoms_stays_small():
    images = np.random.default_rng(1).random((10, 12, 100, 3))
    model = TubSC(n_atoms=2, max_iter=1, random_state=0).fit(images)
    assert sheet(fitted_html(model)).shape[1] == 2 * 49 - 1
    model.atoms_ = np.random.default_rng(2).normal(size=(100, 4, 4))
    assert "the first 64 of 100 atoms" in fitted_html(model)
    assert len(fitted_html(model)) < 100_000


def test_parameters_are_escaped():
    class Loud:
        def __repr__(self) -> str:
            return "<script>alert(1)</script>"

    model = TubSC(n_atoms=2, max_iter=1, random_state=0).fit(IMAGES)
    model.callbacks = Loud()
    html = fitted_html(model)
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_display_counts_one_atom_and_one_cluster():
    html = ImageClusterer(1, n_atoms=1, max_iter=1, random_state=0).fit(IMAGES)._repr_html_()
    assert "14 images of 6×5 in 1 cluster of 14 to 14" in html
    assert ">1 atom<" in html
