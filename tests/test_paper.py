"""One test per lemma, equation and erratum of the paper, in the order and notation of the paper.

docs/theory.md names the test of every equation. Tests of errata have names that begin with ``test_erratum``.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from helpers import oracles
from tubal.algebra import t_product, t_transpose, tube_norms, unfold
from tubal.experiments.tables import load_paper
from tubal.metrics import clustering_nmi
from tubal.problems.base import soft_threshold
from tubal.problems.layout import position_norms
from tubal.problems.linear_map import to_coefficients
from tubal.problems.tubal import TubalCoding, TubalDictionary, TubalStatistics
from tubal.solvers import DictionaryState, Fista, LagrangeDual, PrintedIstt

HEIGHT, ATOMS, SAMPLES = 4, 3, 5
SPARSITY, GRAPH_WEIGHT = 0.1, 0.7
tube_lengths = pytest.mark.parametrize("tube_length", oracles.TUBE_LENGTHS)


@pytest.fixture
def draw(rng):
    """Return dictionary (unit atoms), data, codes and a Laplacian, in the paper's order, for a tube length."""

    def make(tube_length):
        return (
            oracles.unit_atoms(rng, HEIGHT, ATOMS, tube_length),
            rng.normal(size=(HEIGHT, SAMPLES, tube_length)),
            rng.normal(size=(ATOMS, SAMPLES, tube_length)),
            oracles.path_laplacian(SAMPLES, rng),
        )

    return make


def coding(dictionary, data, laplacian=None, *, sparsity=SPARSITY, graph_weight=GRAPH_WEIGHT):
    weight = graph_weight if laplacian is not None else 0.0
    first = oracles.tube_first
    return TubalCoding(first(dictionary), first(data), sparsity=sparsity, graph_weight=weight, laplacian=laplacian)


def dictionary_problem(data, codes):
    first = oracles.tube_first
    statistics = TubalStatistics.from_coefficients(to_coefficients(first(data)), to_coefficients(first(codes)))
    return TubalDictionary(statistics)


# --- section 2: notation, the t-product, Lemma 1 -----------------------------------------------------------


@tube_lengths
def test_erratum_transpose_printed_with_the_wrong_slice(draw, tube_length):
    """Slice l of the transpose is slice k + 2 - l; with the printed k + 1 - l the adjoint identity fails."""
    dictionary, data, codes, _ = draw(tube_length)
    there = np.sum(t_product(dictionary, codes) * data)
    assert_allclose(np.sum(codes * t_product(t_transpose(dictionary), data)), there, rtol=1e-11)
    printed = np.sum(codes * t_product(oracles.printed_transpose(dictionary), data))
    # With one slice there is nothing to reverse, and only then the printed formula is right.
    assert np.isclose(printed, there) == (tube_length == 1)


def test_erratum_sizes_of_the_expansions(draw):
    """The expansions are mk×n and rk×n, not mk×nk and mk×n."""
    _, data, codes, _ = draw(5)
    assert unfold(data).shape == (HEIGHT * 5, SAMPLES)
    assert unfold(codes).shape == (ATOMS * 5, SAMPLES)


def test_erratum_squared_frobenius_norm_has_no_root(draw):
    """The printed square root would make eq. 3 linear, not quadratic, in the size of the images."""
    dictionary, data, codes, _ = draw(5)
    residual = data - t_product(dictionary, codes)
    smooth = coding(dictionary, data, sparsity=0.0).value(oracles.tube_first(codes))
    assert_allclose(smooth, 0.5 * np.sum(residual**2), rtol=1e-12)
    assert not np.isclose(smooth, 0.5 * np.sqrt(np.sum(residual**2)))


@tube_lengths
def test_equation_1_t_product(draw, tube_length):
    dictionary, data, codes, _ = draw(tube_length)
    expected = oracles.slow_t_product(dictionary, codes)
    assert_allclose(t_product(dictionary, codes), expected, atol=1e-12)
    rebuilt = coding(dictionary, data).reconstruct(oracles.tube_first(codes))
    assert_allclose(oracles.tube_last(rebuilt), expected, atol=1e-12)


@tube_lengths
def test_equation_2_tensor_linear_combination(draw, tube_length):
    dictionary, _, codes, _ = draw(tube_length)
    parts = [t_product(dictionary[:, [atom]], codes[[atom]]) for atom in range(ATOMS)]
    assert_allclose(sum(parts), t_product(dictionary, codes), atol=1e-12)


@tube_lengths
def test_equation_3_tubsc_objective(draw, tube_length):
    dictionary, data, codes, _ = draw(tube_length)
    expected = 0.5 * np.sum((data - t_product(dictionary, codes)) ** 2) + SPARSITY * np.abs(codes).sum()
    assert_allclose(coding(dictionary, data).value(oracles.tube_first(codes)), expected, rtol=1e-12)


def test_remark_1_sparse_coding_is_the_case_of_one_column(draw):
    dictionary, data, codes, _ = draw(1)
    matrices = dictionary[:, :, 0], data[:, :, 0], codes[:, :, 0]
    plain = 0.5 * np.sum((matrices[1] - matrices[0] @ matrices[2]) ** 2) + SPARSITY * np.abs(codes).sum()
    assert_allclose(coding(dictionary, data).value(oracles.tube_first(codes)), plain, rtol=1e-12)


@tube_lengths
def test_lemma_1_equation_4_circulant_form(draw, tube_length):
    dictionary, _, codes, _ = draw(tube_length)
    expected = oracles.block_circulant(dictionary) @ unfold(codes)
    assert_allclose(unfold(t_product(dictionary, codes)), expected, atol=1e-12)


@tube_lengths
def test_equation_5_circulant_matrix_holds_all_shifts(draw, tube_length):
    dictionary, _, _, _ = draw(tube_length)
    circulant = oracles.block_circulant(dictionary)
    for shift in range(tube_length):
        shifted = np.roll(dictionary, shift, axis=2)
        assert_allclose(circulant[:, shift * ATOMS : (shift + 1) * ATOMS], unfold(shifted))


@tube_lengths
def test_equation_6_sum_of_shifted_atoms(draw, tube_length):
    dictionary, _, codes, _ = draw(tube_length)
    terms = [unfold(np.roll(dictionary, shift, axis=2)) @ codes[:, :, shift] for shift in range(tube_length)]
    assert_allclose(unfold(t_product(dictionary, codes)), sum(terms), atol=1e-12)


# --- section 3: the graph, the coding step ---------------------------------------------------------------


@tube_lengths
def test_equation_7_pairwise_sum_is_a_trace(draw, tube_length):
    dictionary, data, codes, laplacian = draw(tube_length)
    adjacency = np.diag(np.diag(laplacian)) - laplacian
    columns = unfold(codes)
    pairs = sum(
        0.5 * adjacency[i, j] * np.sum((columns[:, i] - columns[:, j]) ** 2) for i, j in np.ndindex(SAMPLES, SAMPLES)
    )
    assert_allclose(np.trace(columns @ laplacian @ columns.T), pairs, rtol=1e-11)
    with_graph, without = coding(dictionary, data, laplacian), coding(dictionary, data)
    inner = oracles.tube_first(codes)
    assert_allclose(with_graph.value(inner) - without.value(inner), GRAPH_WEIGHT * pairs, rtol=1e-9)


@tube_lengths
def test_equations_8_to_10_gtsc_objective_and_its_circulant_form(draw, tube_length):
    dictionary, data, codes, laplacian = draw(tube_length)
    expected = oracles.coding_objective(
        dictionary, data, codes, sparsity=SPARSITY, graph_weight=GRAPH_WEIGHT, laplacian=laplacian
    )
    assert_allclose(coding(dictionary, data, laplacian).value(oracles.tube_first(codes)), expected, rtol=1e-12)


@tube_lengths
def test_equation_11_smooth_part_plus_penalty(draw, tube_length):
    dictionary, data, codes, laplacian = draw(tube_length)
    inner = oracles.tube_first(codes)
    smooth = coding(dictionary, data, laplacian, sparsity=0.0).value(inner)
    assert_allclose(
        coding(dictionary, data, laplacian).value(inner), smooth + SPARSITY * np.abs(codes).sum(), rtol=1e-12
    )


@tube_lengths
def test_equation_12_prox_step_minimises_the_linearised_model(draw, rng, tube_length):
    dictionary, data, codes, laplacian = draw(tube_length)
    problem, here = coding(dictionary, data, laplacian), oracles.tube_first(codes)
    constant, slope = problem.lipschitz, problem.gradient(here)

    def model(there):
        step = there - here
        return np.sum(slope * step) + 0.5 * constant * np.sum(step**2) + SPARSITY * np.abs(there).sum()

    best = problem.prox(here - slope / constant, 1.0 / constant)
    for size in (1.0, 1e-2, 1e-4):
        assert model(best) <= min(model(best + size * rng.normal(size=best.shape)) for _ in range(20))
    # It is the exact minimum: zero is a subgradient of the model there.
    assert oracles.kkt_residual(slope + constant * (best - here), best, SPARSITY) < 1e-12


def test_prox_is_soft_thresholding():
    values = np.array([-3.0, -1.0, -0.2, 0.0, 0.2, 1.0, 3.0])
    assert_allclose(soft_threshold(values, 1.0), np.sign(values) * np.maximum(np.abs(values) - 1.0, 0.0))


@tube_lengths
def test_equation_13_gradient(draw, tube_length):
    """With the correct transpose the printed gradient is right, including 2 alpha B * L."""
    dictionary, data, codes, laplacian = draw(tube_length)
    laplacian_tensor = np.zeros((SAMPLES, SAMPLES, tube_length))
    laplacian_tensor[:, :, 0] = laplacian
    adjoint = t_transpose(dictionary)
    printed = (
        t_product(t_product(adjoint, dictionary), codes)
        - t_product(adjoint, data)
        + 2.0 * GRAPH_WEIGHT * t_product(codes, laplacian_tensor)
    )
    problem, inner = coding(dictionary, data, laplacian, sparsity=0.0), oracles.tube_first(codes)
    assert_allclose(problem.gradient(inner), oracles.tube_first(printed), atol=1e-11)
    assert_allclose(problem.gradient(inner), oracles.finite_gradient(problem.value, inner), atol=1e-6)


@tube_lengths
def test_equation_14_exact_lipschitz_constant(draw, tube_length):
    dictionary, data, _, laplacian = draw(tube_length)
    hessian = oracles.coding_hessian(dictionary, SAMPLES, GRAPH_WEIGHT, laplacian)
    spectra = oracles.full_spectrum(dictionary)
    exact = max(np.linalg.norm(slice_, 2) ** 2 for slice_ in spectra) + 2 * GRAPH_WEIGHT * np.linalg.norm(laplacian, 2)
    problem = coding(dictionary, data, laplacian)
    assert_allclose(problem.lipschitz, exact, rtol=1e-10)
    assert_allclose(np.linalg.norm(hessian, 2), exact, rtol=1e-10)


@tube_lengths
def test_erratum_equation_14_second_line_is_not_an_equality(draw, tube_length):
    dictionary, _data, codes, laplacian = draw(tube_length)
    gram = oracles.block_circulant(dictionary).T @ oracles.block_circulant(dictionary)
    change = gram @ oracles.stacked(codes) + 2.0 * GRAPH_WEIGHT * oracles.stacked(codes) @ laplacian
    first, second = np.linalg.norm(change), np.linalg.norm(change, axis=0).sum()
    assert first < second
    assert not np.isclose(first, second)


@tube_lengths
def test_constant_of_algorithm_1_is_a_bound(draw, tube_length):
    dictionary, data, _, laplacian = draw(tube_length)
    for norm in (1.0, 0.1):
        atoms = norm * dictionary
        slices = [np.linalg.norm(slice_.conj().T @ slice_) for slice_ in oracles.full_spectrum(atoms)]
        problem = coding(atoms, data, laplacian)
        graph_part = 2.0 * GRAPH_WEIGHT * np.linalg.norm(laplacian, 2)
        assert_allclose(problem.printed_lipschitz, sum(slices) + graph_part, rtol=1e-10)
        assert problem.printed_lipschitz >= problem.lipschitz


def test_erratum_equation_14_third_line_fails_on_a_star():
    """Only the centre of a star of ten images changes, and the dictionary is zero."""
    laplacian = np.diag([9.0] + [1.0] * 9)
    laplacian[0, 1:] = laplacian[1:, 0] = -1.0
    change = np.zeros((1, 10))
    change[0, 0] = 1.0
    third = np.linalg.norm(laplacian, 2) * np.linalg.norm(change, axis=0).sum()
    assert np.linalg.norm(change @ laplacian, axis=0).sum() > 1.5 * third


def test_erratum_equation_14_fourth_line_is_reversed(draw):
    codes = oracles.stacked(draw(4)[2])
    assert np.linalg.norm(codes, axis=0).sum() > np.linalg.norm(codes)


def test_erratum_constant_with_squares_is_no_bound_for_short_atoms(draw):
    dictionary, data, _, _ = draw(4)
    atoms = 0.2 * dictionary
    squares = sum(np.linalg.norm(slice_.conj().T @ slice_) ** 2 for slice_ in oracles.full_spectrum(atoms))
    assert squares < coding(atoms, data).lipschitz


def test_erratum_printed_constants_are_orders_of_magnitude_too_large(rng):
    """On 45 random zero-mean 32×32 atoms the two printed data terms are about 70 and 700 times the exact one."""
    atoms = oracles.unit_atoms(rng, 32, 45, 32)
    slices = oracles.full_spectrum(atoms)
    grams = [np.linalg.norm(slice_.conj().T @ slice_) for slice_ in slices]
    exact = coding(atoms, np.zeros((32, 1, 32))).lipschitz
    assert sum(grams) > 50.0 * exact
    assert sum(size**2 for size in grams) > 500.0 * exact


@pytest.mark.parametrize(("graph_weight", "shortfall"), [(0.0, 0.03), (1.0, 1e-5)])
def test_erratum_growing_constant_does_not_reach_the_minimum(rng, graph_weight, shortfall):
    """With eta = 1.01 the step sizes are summable: more iterations do not help, and the minimum is not reached."""
    images = np.cumsum(rng.normal(size=(6, 20, 16)), axis=2)  # smooth along the tube, like photographs
    images /= np.sqrt((images**2).sum((0, 2), keepdims=True))
    laplacian = oracles.path_laplacian(12, rng) if graph_weight else None
    problem = coding(images[:, :8], images[:, 8:], laplacian, sparsity=0.001, graph_weight=graph_weight)
    best = problem.value(_codes(Fista(max_iter=3000, tol=0.0), problem))
    stalled = problem.value(_codes(PrintedIstt(max_iter=1500), problem))
    longer = problem.value(_codes(PrintedIstt(max_iter=4000), problem))
    assert stalled > (1.0 + shortfall) * best
    assert_allclose(longer, stalled, rtol=5e-3)
    assert longer > (1.0 + shortfall) * best
    # The growth is the only cause: without it the same steps come close to the minimum.
    steady = problem.value(_codes(PrintedIstt(max_iter=1500, growth=1.0), problem))
    assert steady < (1.0 + 0.1 * shortfall) * best


def _codes(solver, problem):
    return solver.codes(problem, solver.minimise(problem).state)


def test_algorithm_1_as_printed(draw):
    """Three iterations by hand: lines 4 to 8 with the printed constant, growth and extrapolation."""
    dictionary, data, _, laplacian = draw(5)
    problem = coding(dictionary, data, laplacian)
    eta, base = 1.01, problem.printed_lipschitz
    start = problem.zeros()
    first = problem.prox(start - problem.gradient(start) / (eta * base), 1.0 / (eta * base))
    inertia = (1.0 + np.sqrt(5.0)) / 2.0
    ahead = first + 0.0 / inertia * (first - start)
    second = problem.prox(ahead - problem.gradient(ahead) / (eta**2 * base), 1.0 / (eta**2 * base))
    inertia, before = (1.0 + np.sqrt(1.0 + 4.0 * inertia**2)) / 2.0, inertia
    ahead = second + (before - 1.0) / inertia * (second - first)
    third = problem.prox(ahead - problem.gradient(ahead) / (eta**3 * base), 1.0 / (eta**3 * base))
    assert_allclose(_codes(PrintedIstt(max_iter=3), problem), third, atol=1e-13)


# --- section 3: the dictionary step ------------------------------------------------------------------------


@tube_lengths
def test_equations_15_and_16_and_the_lost_factor(draw, tube_length):
    """The sum over slices (16) is 2k times the objective (15), which the paper drops on the way."""
    dictionary, data, codes, _ = draw(tube_length)
    value = dictionary_problem(data, codes).value(oracles.tube_first(dictionary))
    assert_allclose(value, 0.5 * np.sum((data - t_product(dictionary, codes)) ** 2), rtol=1e-10)
    hats = (oracles.full_spectrum(tensor) for tensor in (data, dictionary, codes))
    printed = sum(np.linalg.norm(x - d @ b) ** 2 for x, d, b in zip(*hats, strict=True))
    assert_allclose(value, printed / (2 * tube_length), rtol=1e-10)
    columns = (np.abs(oracles.full_spectrum(dictionary)) ** 2).sum((0, 1))
    assert_allclose(columns, tube_length * (dictionary**2).sum((0, 2)), rtol=1e-10)


@tube_lengths
def test_equations_17_and_18_the_dictionary_minimises_the_lagrangian(draw, rng, tube_length):
    """For any multipliers, the gradient of the Lagrangian (17) is zero at the dictionary of eq. 18."""
    dictionary, data, codes, _ = draw(tube_length)
    multipliers = rng.uniform(0.5, 2.0, ATOMS)
    data_hat, codes_hat = oracles.full_spectrum(data), oracles.full_spectrum(codes)
    adjoint = codes_hat.conj().swapaxes(1, 2)
    best_hat = data_hat @ adjoint @ np.linalg.inv(codes_hat @ adjoint + np.diag(multipliers))
    best = np.moveaxis(np.fft.ifft(best_hat, axis=0), 0, 2)
    assert np.abs(best.imag).max() < 1e-12
    assert best.shape == dictionary.shape

    def lagrangian(atoms):
        fit = sum(
            np.linalg.norm(x - d @ b) ** 2
            for x, d, b in zip(data_hat, oracles.full_spectrum(atoms), codes_hat, strict=True)
        )
        return fit + float(multipliers @ (tube_length * (atoms**2).sum((0, 2)) - tube_length))

    assert_allclose(oracles.finite_gradient(lagrangian, best.real), 0.0, atol=1e-5)


@tube_lengths
def test_equation_19_dual_equals_primal_only_with_the_terms_it_drops(draw, tube_length):
    """At the solution, (19) plus the dropped sum of squares, divided by 2k, is the primal value."""
    _, data, codes, _ = draw(tube_length)
    problem = dictionary_problem(data, codes)
    start = DictionaryState(np.zeros((tube_length, HEIGHT, ATOMS)))
    solution = LagrangeDual(tol=1e-12).minimise(problem, start).state
    atoms_hat = oracles.full_spectrum(oracles.tube_last(solution.dictionary))
    data_hat, codes_hat = oracles.full_spectrum(data), oracles.full_spectrum(codes)
    cross = data_hat @ codes_hat.conj().swapaxes(1, 2)
    trace = np.trace(atoms_hat.conj().swapaxes(1, 2) @ cross, axis1=1, axis2=2).sum().real
    printed = -trace - tube_length * float(np.sum(solution.multipliers))
    primal = problem.value(solution.dictionary)
    assert_allclose((printed + np.sum(np.abs(data_hat) ** 2)) / (2 * tube_length), primal, rtol=1e-6)
    assert not np.isclose(printed, primal)
    assert not np.isclose(printed / (2 * tube_length), primal)


@pytest.mark.parametrize("tube_length", [2, 5, 6])
def test_erratum_multipliers_are_shared_by_all_slices(draw, tube_length):
    """With multipliers solved for each slice, every slice uses the whole bound and atoms leave the ball."""
    _, data, codes, _ = draw(tube_length)
    data = 10.0 * data
    problem = dictionary_problem(data, codes)
    start = DictionaryState(np.zeros((tube_length, HEIGHT, ATOMS)))
    shared = LagrangeDual().minimise(problem, start).state
    assert np.sqrt((shared.dictionary**2).sum((0, 1))).max() <= 1.0 + 1e-9
    assert shared.multipliers.shape == (ATOMS,)
    data_hat, codes_hat = oracles.full_spectrum(data), oracles.full_spectrum(codes)
    total = np.zeros(ATOMS)
    for x, b in zip(data_hat, codes_hat, strict=True):
        total += _column_norms_of_one_slice(x, b, bound=tube_length)
    assert total.max() > 1.5 * tube_length


def _column_norms_of_one_slice(data_hat, codes_hat, bound):
    """Return the squared column norms of one slice whose own multipliers enforce the bound, found by bisection."""
    cross, gram = data_hat @ codes_hat.conj().T, codes_hat @ codes_hat.conj().T
    low, high = np.zeros(len(gram)), np.full(len(gram), 1e6)
    for _ in range(60):  # one multiplier at a time, each monotone in its own column's norm
        middle = 0.5 * (low + high)
        norms = (np.abs(cross @ np.linalg.inv(gram + np.diag(middle))) ** 2).sum(0)
        low, high = np.where(norms > bound, middle, low), np.where(norms > bound, high, middle)
    return (np.abs(cross @ np.linalg.inv(gram + np.diag(high))) ** 2).sum(0)


# --- section 4: features, scores -------------------------------------------------------------------------


def test_equation_20_features(draw):
    _, _, codes, _ = draw(6)
    expected = np.sqrt((codes**2).sum(axis=2))
    assert_allclose(tube_norms(codes), expected)
    assert_allclose(position_norms(np.moveaxis(codes, 1, 0)), expected.T)


def test_equation_20_loses_the_sign_at_tube_length_one(draw):
    """Therefore SC and GraphSC cluster the signed codes."""
    _, _, codes, _ = draw(1)
    assert_allclose(tube_norms(codes), np.abs(codes[:, :, 0]))


def test_erratum_nmi_divides_by_the_larger_entropy():
    metrics = pytest.importorskip("sklearn.metrics")
    truth, found = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 3]
    expected = metrics.normalized_mutual_info_score(truth, found, average_method="max")
    assert_allclose(clustering_nmi(truth, found), expected)
    assert clustering_nmi(truth, found) < metrics.normalized_mutual_info_score(truth, found)


def test_erratum_printed_accuracies_are_single_runs():
    """19 of 20 printed accuracies are whole numbers of images, to the last digit; means of ten runs rarely are."""
    paper = load_paper()
    others = []
    for name in ("coil20", "orl", "yale", "usps"):
        n_images = paper[name].n_images
        for method, scores in paper[name].printed.items():
            near = scores["accuracy"] / 100 * n_images
            counts = [
                count for count in (int(near), int(near) + 1) if round(100 * count / n_images, 2) == scores["accuracy"]
            ]
            if not counts:
                others.append((name, method))
    assert others == [("usps", "kmeans")]
