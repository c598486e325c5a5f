"""The alternation: the objective never rises, worse steps are rejected, unused atoms are replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tubal
from helpers import oracles
from tubal.backends.arrays import namespace, to_numpy
from tubal.datasets import fetch_orl, make_shifted_shapes
from tubal.graph import knn_graph, laplacian
from tubal.learning.alternation import ChunkCodes, InMemory, MemoryStore, Weights, code_chunk, initial_state, learn
from tubal.problems.base import atom_norms
from tubal.problems.layout import ImageLayout
from tubal.problems.tubal import TubalCoding, TubalModel
from tubal.solvers import Admm, DictionaryState, Fista, LagrangeDual, PrintedIstt, ProjectedGradient, Solution

SPARSITY = 0.01


def unit(images):
    return images / np.sqrt((images.reshape(len(images), -1) ** 2).sum(1))[:, None, None]


@pytest.fixture(scope="module")
def shapes():
    """Forty small pictures of shifted shapes, unit length, as a tensor, and the Laplacian of their graph."""
    images = unit(make_shifted_shapes(40, n_classes=4, image_shape=(9, 10), random_state=0).images.astype(np.float64))
    return ImageLayout((9, 10)).to_tensor(images), laplacian(knn_graph(images, 3))


def start_of(data, n_atoms=6, seed=0):
    chosen = np.random.default_rng(seed).permutation(data.shape[2])[:n_atoms]
    return initial_state(data[:, :, chosen], TubalModel())


def run(data, graph, *, graph_weight=0.0, n_atoms=6, backend=np.ascontiguousarray, **options):
    options = {
        "code_solver": Admm(max_iter=10),
        "dictionary_solver": LagrangeDual(),
        "max_iter": 8,
        "tol": 0.0,
    } | options
    store = options.pop("store", None) or MemoryStore()
    inner = backend(data)
    state = learn(
        TubalModel(), InMemory(inner, graph if graph_weight else None), start_of(inner, n_atoms),
        Weights(SPARSITY, graph_weight), store=store, **options,
    )  # fmt: skip
    return state, store


def largest_increase(objective):
    """Return the largest relative increase of an objective from one iteration to the next."""
    values = np.asarray(objective)
    return float(np.max((values[1:] - values[:-1]) / np.abs(values[:-1])))


@pytest.mark.parametrize("graph_weight", [0.0, 1.0])
@pytest.mark.parametrize(
    "code_solver", [Admm(max_iter=5), Admm(max_iter=1), Fista(max_iter=5), PrintedIstt(max_iter=5)], ids=str
)
@pytest.mark.parametrize(
    "dictionary_solver", [LagrangeDual(), ProjectedGradient(max_iter=20)], ids=["dual", "gradient"]
)
def test_objective_never_increases(shapes, graph_weight, code_solver, dictionary_solver):
    data, graph = shapes
    state, _ = run(data, graph, graph_weight=graph_weight, code_solver=code_solver, dictionary_solver=dictionary_solver)
    assert len(state.objective) == state.n_iter == 8
    # Without a graph, final codes start from zero, as those of encode do; a short solver leaves them above the last.
    learned = state.objective if graph_weight else state.objective[:-1]
    assert largest_increase(learned) <= 1e-10
    assert learned[-1] < 0.9 * learned[0]


@pytest.mark.collection("orl")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
@pytest.mark.parametrize("graph_weight", [0.0, 1.0])
def test_objective_never_increases_on_real_images(dtype, tolerance, graph_weight):
    images = unit(fetch_orl().images[:120].astype(np.float64)).astype(dtype)
    data, graph = ImageLayout((32, 32)).to_tensor(images), laplacian(knn_graph(images, 3))
    state, _ = run(data, graph, graph_weight=graph_weight, n_atoms=20, max_iter=12)
    assert data.dtype == dtype
    assert largest_increase(state.objective if graph_weight else state.objective[:-1]) <= tolerance


@pytest.mark.parametrize("graph_weight", [0.0, 1.0])
def test_history_matches_the_dense_objective(shapes, backend, graph_weight):
    """Recompute the objective at every step by the dense formula, from what a callback receives."""
    data, graph = shapes
    seen = []

    def dense_objective(store, dictionary):
        codes = oracles.tube_last(to_numpy(store.codes_of(0)).copy())
        dense = oracles.coding_objective(
            oracles.tube_last(to_numpy(dictionary).copy()), oracles.tube_last(data), codes, sparsity=SPARSITY,
            graph_weight=graph_weight, laplacian=graph.toarray() if graph_weight else None,
        )  # fmt: skip
        return dense, np.mean(codes != 0)

    def record_objective(progress):
        seen.append((progress.objective, progress.density, *dense_objective(progress.store, progress.state.dictionary)))

    state, store = run(
        data, graph, graph_weight=graph_weight, backend=backend, callbacks=[record_objective], max_iter=4
    )
    seen = np.array(seen)
    assert_allclose(seen[:, :2], seen[:, 2:], rtol=1e-10)
    # The last value is that of the final codes.
    assert_allclose(state.objective[:-1], seen[:-1, 0])
    assert_allclose(state.density[:-1], seen[:-1, 1])
    assert_allclose((state.objective[-1], state.density[-1]), dense_objective(store, state.dictionary), rtol=1e-9)


def test_atom_norms_are_at_most_one(shapes, backend):
    state, _ = run(*shapes, backend=backend)
    assert to_numpy(atom_norms(state.dictionary)).max() <= 1.0 + 1e-9


@dataclass(frozen=True)
class Worse:
    """A coding solver that returns codes far from the minimum."""

    max_iter: int = 1

    def minimise(self, problem: Any, start: Any = None, monitor: Any = None) -> Any:
        return Solution(5.0 + problem.zeros(), 1, converged=True)

    def codes(self, problem: Any, state: Any) -> Any:
        return state


@dataclass(frozen=True)
class Zero:
    """A dictionary solver that returns zero atoms."""

    def minimise(self, problem: Any, start: Any, monitor: Any = None) -> Any:
        return Solution(DictionaryState(0.0 * start.dictionary), 1, converged=True)


def test_worse_codes_are_rejected(shapes, rng):
    data, _ = shapes
    start = ChunkCodes(0.01 * rng.normal(size=(10, 6, 40)), None)
    coded = code_chunk(TubalModel(), start_of(data).dictionary, data, Weights(SPARSITY), Worse(), start=start)
    assert coded.codes is start.codes
    fresh = code_chunk(TubalModel(), start_of(data).dictionary, data, Weights(SPARSITY), Worse())
    assert_array_equal(fresh.codes, 0.0)


def test_start_objective_is_computed_only_if_the_gain_is_small(shapes, monkeypatch):
    data, _ = shapes
    dictionary, weights, solver = start_of(data).dictionary, Weights(SPARSITY), Admm(max_iter=20)
    evaluated = []
    value = TubalCoding.value
    monkeypatch.setattr(TubalCoding, "value", lambda self, codes: evaluated.append(1) or value(self, codes))

    def coded(start_objective):
        start = code_chunk(TubalModel(), dictionary, data, weights, Admm(max_iter=1))  # minimise changes the state
        evaluated.clear()
        return code_chunk(TubalModel(), dictionary, data, weights, solver, start=start, start_objective=start_objective)

    reached = float(coded(None).summary.values.sum())
    for start_objective, n_evaluated in (
        (2.0 * reached, 0),
        ((1.0 + 1e-6) * reached, 1),
        (0.5 * reached, 1),
        (None, 1),
    ):
        assert_allclose(coded(start_objective).summary.values.sum(), reached)
        assert len(evaluated) == n_evaluated, start_objective


def test_dictionary_step_predicts_the_next_start_objective(shapes):
    data, graph = shapes
    starts = []

    def save(state, store):
        coded = store.get(0)
        if not state.finished and coded is not None:
            problem = TubalModel().coding(state.dictionary, data, sparsity=SPARSITY, graph_weight=1.0, laplacian=graph)
            starts.append((state.start_objective, problem.value(coded.codes)))

    run(data, graph, graph_weight=1.0, save=save, max_iter=4)
    found, wanted = np.array(starts).T
    assert len(found) == 4
    assert_allclose(found, wanted, rtol=1e-9)


def test_worse_dictionaries_are_rejected(shapes):
    data, graph = shapes
    state, _ = run(data, graph, dictionary_solver=Zero(), max_iter=3)
    assert_array_equal(state.dictionary, start_of(data).dictionary)
    assert largest_increase(state.objective[:-1]) <= 1e-12


def test_final_codes_belong_to_the_final_dictionary(shapes):
    """Without a graph, final codes start from zero, as encode does later."""
    data, graph = shapes
    final = Admm(max_iter=500, tol=1e-9)
    state, store = run(data, graph, final_solver=final)
    problem = TubalModel().coding(state.dictionary, data, sparsity=SPARSITY)
    assert_array_equal(store.codes_of(0), final.codes(problem, final.minimise(problem).state))
    assert problem.value(store.codes_of(0)) <= state.objective[-1]


def test_fit_stops_when_the_objective_converges(shapes):
    state, _ = run(*shapes, max_iter=500, tol=1e-3)
    assert state.converged
    assert state.n_iter < 500
    assert state.objective[-2] - state.objective[-1] <= 1e-3 * state.objective[-2]
    assert state.objective[-3] - state.objective[-2] > 1e-3 * state.objective[-3]


def test_callbacks_can_stop_the_fit(shapes):
    calls = []

    def first(progress):
        calls.append(("first", progress.n_iter, progress.max_iter, progress.seconds >= 0.0))
        return progress.n_iter == 3

    def second(progress):
        calls.append(("second", progress.n_iter, progress.max_iter, True))
        return "only True itself stops the fit"

    state, store = run(*shapes, callbacks=[first, second])
    assert state.n_iter == 3
    assert not state.converged
    assert calls == [(name, step, 8, True) for step in (1, 2, 3) for name in ("first", "second")]
    assert store.codes_of(0) is not None


def test_unused_atoms_are_replaced_by_badly_reconstructed_images(shapes):
    data, _ = shapes
    start = start_of(data)
    start.dictionary = start.dictionary.copy()
    start.dictionary[:, :, 2] = 1e-9  # too short to be worth its codes
    state = learn(
        TubalModel(), InMemory(data), start, Weights(0.05), code_solver=Admm(max_iter=100),
        dictionary_solver=LagrangeDual(), max_iter=2, tol=0.0,
    )  # fmt: skip
    assert state.n_reseeded >= 1
    norms = np.sqrt((data**2).sum((0, 1)))
    closeness = np.abs(np.einsum("kma,kmn->an", state.dictionary[:, :, [2]], data / norms))
    # One more dictionary step has changed it, but it is long and resembles an image.
    assert atom_norms(state.dictionary)[2] > 0.5
    assert closeness.max() > 0.5


def test_blank_images_do_not_change_the_fit(backend):
    data = backend(np.zeros((5, 4, 6)))
    start = initial_state(backend(np.random.default_rng(0).normal(size=(5, 4, 3))), TubalModel())
    before = to_numpy(start.dictionary).copy()
    state = learn(
        TubalModel(), InMemory(data), start, Weights(SPARSITY), code_solver=Admm(), dictionary_solver=LagrangeDual(),
        max_iter=5, tol=1e-4,
    )  # fmt: skip
    assert_allclose(state.objective, 0.0)
    assert state.n_reseeded == 0
    assert_array_equal(to_numpy(state.dictionary), before)


@pytest.mark.parametrize("graph_weight", [0.0, 1.0])
def test_backends_learn_the_same_dictionary(shapes, graph_weight):
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'tubal[torch]'")
    data, graph = shapes
    ours, _ = run(data, graph, graph_weight=graph_weight, max_iter=4)
    theirs, store = run(data, graph, graph_weight=graph_weight, max_iter=4, backend=torch.as_tensor)
    assert isinstance(theirs.dictionary, torch.Tensor)
    assert isinstance(store.codes_of(0), torch.Tensor)
    assert_allclose(theirs.objective, ours.objective, rtol=1e-9 if graph_weight == 0 else 2e-3)


@dataclass(frozen=True)
class Chunks:
    """Images cut at ``bounds``, joined across chunks by one Laplacian: the slow and obvious collection."""

    images: Any
    matrix: Any
    bounds: tuple[int, ...]

    @property
    def n_chunks(self) -> int:
        return len(self.bounds) - 1

    def _slice(self, index: int) -> slice:
        return slice(self.bounds[index], self.bounds[index + 1])

    def data(self, index: int) -> Any:
        return self.images[:, :, self._slice(index)] + 0.0

    def laplacian(self, index: int) -> Any:
        return None if self.matrix is None else self.matrix[self._slice(index), self._slice(index)]

    def neighbor_sum(self, index: int, store: Any, others: range) -> Any:
        if self.matrix is None:
            return None
        total = None
        for other in others:
            codes = store.codes_of(other)
            if codes is None:
                continue
            weights = -self.matrix[self._slice(other), self._slice(index)]
            term = codes @ namespace(codes).asarray(weights)
            total = term if total is None else total + term
        return total


@pytest.mark.parametrize("bounds", [(0, 40), (0, 13, 26, 40), (0, 1, 2, 40)])
def test_chunks_without_graph_equal_one_chunk(shapes, bounds):
    data, _ = shapes
    whole, _ = run(data, None)
    state = learn(
        TubalModel(), Chunks(data, None, bounds), start_of(data), Weights(SPARSITY), code_solver=Admm(max_iter=10),
        dictionary_solver=LagrangeDual(), max_iter=8, tol=0.0,
    )  # fmt: skip
    assert_allclose(state.objective, whole.objective, rtol=1e-9)
    assert_allclose(state.dictionary, whole.dictionary, atol=1e-6)


@pytest.mark.parametrize("bounds", [(0, 20, 40), (0, 7, 22, 31, 40)])
def test_chunks_with_graph_reach_the_same_objective(shapes, bounds):
    data, graph = shapes
    dense = graph.toarray()
    seen = []

    def record_objective(progress):
        codes = np.concatenate([progress.store.codes_of(index) for index in range(len(bounds) - 1)], axis=2)
        seen.append(
            oracles.coding_objective(
                oracles.tube_last(progress.state.dictionary),
                oracles.tube_last(data),
                oracles.tube_last(codes),
                sparsity=SPARSITY,
                graph_weight=1.0,
                laplacian=dense,
            )
        )

    state = learn(
        TubalModel(), Chunks(data, dense, bounds), start_of(data), Weights(SPARSITY, 1.0),
        code_solver=Admm(max_iter=60, tol=1e-6), dictionary_solver=LagrangeDual(), max_iter=25, tol=0.0,
        callbacks=[record_objective],
    )  # fmt: skip
    assert_allclose(state.objective[:-1], seen[:-1], rtol=1e-9)
    assert largest_increase(state.objective) <= 1e-10
    whole, _ = run(data, graph, graph_weight=1.0, code_solver=Admm(max_iter=60, tol=1e-6), max_iter=25)
    assert_allclose(state.objective[-1], whole.objective[-1], rtol=0.03)


def test_learning_repeats_exactly(shapes):
    data, graph = shapes
    first, store = run(data, graph, graph_weight=1.0)
    second, other = run(data, graph, graph_weight=1.0)
    assert first.objective == second.objective
    assert_array_equal(first.dictionary, second.dictionary)
    assert_array_equal(store.codes_of(0), other.codes_of(0))


@pytest.mark.collection("orl")
@pytest.mark.parametrize("estimator", ["TubSC", "GTSC"])
def test_strong_sparsity_does_not_stop_at_zero_codes(estimator):
    """On bright faces the first steps under strong sparsity leave all codes zero; the fit must continue."""
    images = fetch_orl().images[:120]
    model = getattr(tubal, estimator)(n_atoms=20, sparsity=0.2, random_state=0, max_iter=10).fit(images)
    assert model.density_[-1] > 1e-3
    assert model.objective_[-1] < 0.7 * model.objective_[0]


@pytest.mark.parametrize("graph", ["euclidean", "deformable"])
def test_fit_reports_every_stage(graph):
    images = np.random.default_rng(0).random((40, 8, 8))
    seen = []
    tubal.GTSC(n_atoms=3, max_iter=2, tol=0.0, graph=graph, random_state=0).fit(
        images, progress=lambda *at: seen.append(at)
    )
    neighbors = [at for at in seen if at[0] == "finding neighbours"]
    assert neighbors[-1] == ("finding neighbours", 40, 40)
    assert [done for _, done, _ in neighbors] == sorted(done for _, done, _ in neighbors)
    assert seen[len(neighbors) :] == [("learning atoms and codes", 1, 2), ("learning atoms and codes", 2, 2)]
