"""Report data made from models: the page shows what the model computed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from scipy.ndimage import gaussian_filter

from tubal import GTSC, GraphSC, TubSC
from tubal.datasets import make_shifted_shapes
from tubal.estimators import explain_images
from tubal.graph import Graph, deformable_graph
from tubal.report.from_clusterer import _neighborhood, as_mask, first_of_group


def rebuild(terms: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Sum the terms as the page does: each atom shifted and weighted."""
    total = np.zeros(atoms.shape[1:])
    for atom, dy, dx, weight in terms:
        total += weight * np.roll(atoms[int(atom)], (int(dy), int(dx)), axis=(0, 1))
    return total


@pytest.mark.parametrize(
    "model",
    [
        TubSC(4, max_iter=3, random_state=0),
        TubSC(4, max_iter=3, tube_axis=-2, random_state=0),
        GTSC(4, max_iter=2, scale="max", random_state=0),
        GraphSC(4, max_iter=2, scale=None, random_state=0),
    ],
)
@pytest.mark.parametrize("colour", [False, True])
def test_sum_of_all_terms_is_the_reconstruction(model: TubSC, colour: bool) -> None:
    images = make_shifted_shapes(12, n_classes=2, image_shape=(8, 9), random_state=0).images
    images = np.stack([images, 0.5 * images, images**2], axis=-1) if colour else images
    model.fit(images)
    explanations = explain_images(model, images, with_graph=True)
    norms = [explanation.norm for explanation in explanations]
    expected = model.decode(model.codes_, norms=norms)
    for i in (0, 5, 11):
        terms = explanations[i].table()
        assert_allclose(norms[i] * rebuild(terms, model.atoms_), expected[i], atol=1e-4)
        assert (np.diff(np.abs(terms[:, 3])) <= 0).all(), "largest first"
    assert all(len(explanation.table(3)) <= 3 for explanation in explanations)


def test_alignments_move_the_neighbor_onto_the_image() -> None:
    """An alignment rotates the neighbour counter-clockwise, enlarges it, and moves it down and right."""
    smooth = gaussian_filter(np.random.default_rng(0).random((6, 40, 40)), (0, 2, 2)).astype(np.float32)
    turned = np.asarray(Image.fromarray(smooth[0]).rotate(5, Image.Resampling.BICUBIC))
    pairs = [
        (smooth[0], turned),
        (np.roll(smooth[1], 2, axis=1), smooth[1]),
        (smooth[2], np.roll(smooth[2], 2, axis=0)),
    ]
    images = np.stack([picture[4:36, 4:36] for pair in pairs for picture in pair] + [smooth[3][4:36, 4:36]])
    neighbors, _, alignments = _neighborhood(deformable_graph(images, 1), len(images))
    assert alignments is not None
    assert neighbors[[0, 2, 4], 0].tolist() == [1, 3, 5]
    assert alignments[0, 0, 0] == -5.0, "a neighbour rotated counter-clockwise is rotated back"
    assert_array_equal(alignments[2, 0], [0.0, 1.0, 0.0, 2.0])
    assert_array_equal(alignments[4, 0], [0.0, 1.0, -2.0, 0.0])


def test_edges_of_a_matrix_become_neighbors() -> None:
    graph = Graph.from_matrix(np.array([[0, 1, 3], [1, 0, 0], [3, 0, 0]], dtype=float))
    neighbors, distances, alignments = _neighborhood(graph, 3)
    assert neighbors.tolist() == [[2, 1], [0, -1], [0, -1]]
    assert distances[0, 0] < distances[0, 1]
    assert alignments is None


def test_masks_and_groups_are_converted_to_arrays() -> None:
    assert_array_equal(as_mask(np.array([1, 2]), 4), [False, True, True, False])
    assert_array_equal(as_mask(np.array([True, False]), 2), [True, False])
    assert_array_equal(first_of_group([np.array([2, 0]), [1, 3]], 4), [-1, -1, 0, 1])
