"""The gallery in a notebook: a notebook is executed, and its page opened in a real browser."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.browser import chromium, wait
from tubal import ImageClusterer
from tubal.report import gallery

IMAGES = np.random.default_rng(0).random((12, 8, 8))
CODE = """
from sklearn.datasets import load_digits
from tubal import ImageClusterer
from tubal.report import gallery
images = load_digits().images[:60] / 16
gallery(ImageClusterer(4, random_state=0, n_atoms=4).fit(images), images)
"""


def test_other_images_than_the_fitted_ones_raise():
    with pytest.raises(ValueError, match="there are 3 images, but the clusterer was fitted on 12"):
        gallery(ImageClusterer(2, random_state=0, n_atoms=3).fit(IMAGES), IMAGES[:3])


def test_an_executed_notebook_shows_the_clusters(tmp_path):
    nbconvert = pytest.importorskip("nbconvert", reason="pip install --group browser")
    pytest.importorskip("ipykernel", reason="pip install --group browser")
    cell = {"cell_type": "code", "source": CODE, "metadata": {}, "outputs": [], "execution_count": None, "id": "a"}
    notebook = tmp_path / "clusters.ipynb"
    notebook.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    exporter = nbconvert.HTMLExporter(config={"ExecutePreprocessor": {"enabled": True}})
    (tmp_path / "clusters.html").write_text(exporter.from_filename(notebook)[0], encoding="utf-8")
    with chromium(tmp_path) as browser:
        browser.get((tmp_path / "clusters.html").as_uri())
        frame = browser.find_element("css selector", "iframe[title='Image clusters']")
        browser.execute_script("arguments[0].scrollIntoView()", frame)
        browser.switch_to.frame(frame)
        wait(lambda: "Cluster 3" in browser.find_element("css selector", "body").text, "the clusters in the frame")
