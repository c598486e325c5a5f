"""What matplotlib draws is compared with the arrays, pixel by pixel."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

from tubal import plot


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def drawn(axes) -> np.ndarray:
    return np.ma.filled(axes.images[0].get_array(), np.nan)


def ticks(axes) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels()]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_plotted_atoms_are_separated_by_gaps(rng):
    values = rng.normal(size=(5, 4, 6))
    picture = drawn(plot.atoms(values, n_columns=3))
    assert picture.shape == (2 * 5 - 1, 3 * 7 - 1)
    for k, atom in enumerate(values):
        top, left = 5 * (k // 3), 7 * (k % 3)
        np.testing.assert_array_equal(picture[top : top + 4, left : left + 6], atom)
    assert np.isnan(picture[4]).all()
    assert np.isnan(picture[5:, 14:]).all()


def test_signed_atoms_are_white_at_zero(rng):
    signed = plot.atoms(rng.normal(size=(3, 4, 4))).images[0]
    assert signed.norm.vmin == -signed.norm.vmax
    positive = plot.atoms(rng.uniform(size=(3, 4, 4))).images[0]
    assert positive.norm.vmin == 0
    assert positive.get_cmap().name == "gray"


def test_colour_atoms_are_drawn_in_colour(rng):
    assert drawn(plot.atoms(rng.normal(size=(4, 5, 5, 3)))).shape == (11, 11, 3)


def test_plotted_shifts_are_circular(rng):
    values = rng.uniform(size=(2, 4, 8))
    axes = plot.shifts(values, atom=1, n_shifts=4)
    assert ticks(axes) == ["0", "2", "4", "6"]
    for k, offset in enumerate((0, 2, 4, 6)):
        np.testing.assert_array_equal(drawn(axes)[:, 9 * k : 9 * k + 8], np.roll(values[1], offset, axis=1))
    down = drawn(plot.shifts(values, atom=1, n_shifts=99, axis=-2))
    np.testing.assert_array_equal(down[:, 9:17], np.roll(values[1], 1, axis=0))
    assert down.shape[1] == 4 * 9 - 1


def test_codes_show_atoms_against_shifts(rng):
    values = rng.normal(size=(3, 5, 8)) * (rng.uniform(size=(3, 5, 8)) > 0.7)
    axes = plot.codes(values, image=2)
    np.testing.assert_array_equal(drawn(axes), values[2])
    assert str(np.count_nonzero(values[2])) in axes.get_title()
    assert drawn(plot.codes(rng.normal(size=(3, 5, 4, 4)))).shape == (5, 16)
    assert drawn(plot.codes(rng.normal(size=(3, 5)))).shape == (5, 1)


def test_neighbors_are_drawn_beside_their_image(rng):
    images = rng.uniform(size=(4, 6, 5))
    graph = SimpleNamespace(neighbors=np.array([[1, 2], [2, -1], [3, 0], [0, 1]]), distances=np.full((4, 2), 0.25))
    axes = plot.neighbors(graph, images, image=2)
    assert ticks(axes) == ["image 2", "3\n0.25", "0\n0.25"]
    for k, index in enumerate((2, 3, 0)):
        np.testing.assert_array_equal(drawn(axes)[:, 6 * k : 6 * k + 5], images[index])
    assert ticks(plot.neighbors(graph, images, image=1)) == ["image 1", "2\n0.25"]


def test_convergence_draws_every_iteration():
    axes = plot.convergence([5.0, 3.0, 2.5])
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[1, 5.0], [2, 3.0], [3, 2.5]])


def test_confusion_puts_agreement_on_the_diagonal():
    true = np.repeat(["a", "b", "c"], 4)
    found = np.repeat([2, 0, 1], 4)
    found[0] = 0
    axes = plot.confusion(true, found)
    np.testing.assert_array_equal(drawn(axes), [[3, 1, 0], [0, 4, 0], [0, 0, 4]])
    assert ticks(axes) == ["2", "0", "1"]
    assert [text.get_text() for text in axes.texts] == ["3", "1", "4", "4"]


def test_confusion_accepts_more_clusters_than_labels():
    assert drawn(plot.confusion(["a"] * 4, [0, 1, 2, 2])).tolist() == [[2, 1, 1]]


def test_plots_accept_coders_and_clusterers(rng):
    model = SimpleNamespace(atoms_=rng.normal(size=(3, 4, 4)), codes_=rng.normal(size=(2, 3, 4)), objective_=np.ones(3))
    clusterer = SimpleNamespace(
        model_=model, graph_=SimpleNamespace(neighbors=np.array([[1], [0]]), distances=np.ones((2, 1)))
    )
    for function in (plot.atoms, plot.shifts, plot.codes, plot.convergence):
        np.testing.assert_array_equal(
            drawn(function(clusterer))
            if function is not plot.convergence
            else function(clusterer).lines[0].get_ydata(),
            drawn(function(model)) if function is not plot.convergence else model.objective_,
        )
    assert ticks(plot.neighbors(clusterer, rng.uniform(size=(2, 3, 3)))) == ["image 0", "1\n1"]


def test_given_axes_are_used_and_returned(rng):
    _, axes = plt.subplots()
    assert plot.atoms(rng.normal(size=(3, 4, 4)), ax=axes) is axes
    assert plot.convergence([1.0], ax=axes) is axes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot.atoms(np.zeros((3, 4))), "atoms has shape"),
        (lambda: plot.atoms(object()), "object has no atoms_"),
        (lambda: plot.shifts(np.zeros((2, 3, 3)), atom=2), "atom is 2"),
        (lambda: plot.shifts(np.zeros((2, 3, 3)), axis=0), "axis is 0"),
        (lambda: plot.codes(np.zeros((2, 3, 3)), image=5), "image is 5"),
        (lambda: plot.neighbors(np.array([[0]]), np.zeros((2, 3, 3))), "must agree"),
        (lambda: plot.neighbors(SimpleNamespace(neighbors=None), np.zeros((2, 3, 3))), "came as a matrix"),
        (lambda: plot.convergence([]), "one number per iteration"),
        (lambda: plot.confusion(["a"], [0, 1]), "1 true label but 2"),
    ],
)
def test_bad_input_is_an_error(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_importing_plot_does_not_import_matplotlib():
    script = "import sys, tubal.plot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
