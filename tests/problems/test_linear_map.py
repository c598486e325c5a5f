"""Graph systems: the bound on the rate of Jacobi's method, and the error after Chebyshev steps."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tubal.backends.cpu import coding as kernels
from tubal.graph import laplacian
from tubal.problems.linear_map import (
    MAX_SWEEPS,
    GraphTerm,
    SharedLaplacian,
    WarmStartedSystems,
    chebyshev_schedule,
)

N_IMAGES, WEIGHT = 40, 1.7


def random_weights(rng):
    return rng.random((N_IMAGES, N_IMAGES)) * (rng.random((N_IMAGES, N_IMAGES)) < 0.1)


def laplacians(rng):
    """Yield hard cases: uneven weights, a hub, isolated images, normalised, edges to images outside the batch."""
    weights = np.triu(random_weights(rng), 1)
    star = np.zeros_like(weights)
    star[0, 1:30] = 1.0
    yield laplacian(weights + weights.T)
    yield laplacian(star + star.T)
    yield laplacian(1e6 * (weights + weights.T) + 1e-6 * (star + star.T))
    yield laplacian(weights + weights.T, normalized=True)
    yield laplacian(weights + weights.T)[:25, :25]
    yield laplacian(0.0 * weights)


@pytest.mark.parametrize("shift", [0.01, 0.3, 1.0, 7.0, 500.0])
def test_rate_bounds_the_error_of_a_jacobi_step(rng, shift):
    for matrix in laplacians(rng):
        dense = matrix.toarray()
        diagonal = np.diag(dense)
        step = (np.diag(diagonal) - dense) / (diagonal + shift)[:, None]
        exact = abs(np.linalg.eigvals(step)).max()
        rate = SharedLaplacian(matrix).jacobi_rate(shift)
        assert exact <= rate + 1e-12
        assert rate < 1.0


def test_rate_is_tight_on_a_regular_graph():
    """A larger bound would require more steps."""
    ring = np.roll(np.eye(N_IMAGES), 1, 1)
    assert_allclose(SharedLaplacian(laplacian(ring + ring.T)).jacobi_rate(1.0), 2.0 / 3.0, rtol=0.1)


@pytest.mark.parametrize("reduction", [0.5, 0.1, 1e-6])
@pytest.mark.parametrize("n_lanes", [1, 5, 70])
def test_errors_decrease_by_the_requested_reduction(rng, reduction, n_lanes):
    for matrix in laplacians(rng):
        graph, n_images = GraphTerm(matrix, WEIGHT), matrix.shape[0]
        shifts = rng.uniform(0.5, 20.0, (2, n_lanes))
        rates, counts = chebyshev_schedule(graph, shifts, reduction)
        if counts.max() == MAX_SWEEPS:  # weights a million times the shift need more steps than allowed
            continue
        right, start = rng.normal(size=(2, 2, n_images, n_lanes))
        found = start.copy()
        kernels.solve_graph_systems(graph.bundles(np.float64), 2.0 * WEIGHT, shifts, rates, counts, right, 0, 2, found)
        for slab, lane in np.ndindex(2, n_lanes):
            system = 2.0 * WEIGHT * matrix.toarray() + shifts[slab, lane] * np.eye(n_images)
            exact, metric = np.linalg.solve(system, right[slab, :, lane]), np.sqrt(np.diag(system))
            before, after = (np.linalg.norm(metric * (x[slab, :, lane] - exact)) for x in (start, found))
            assert after <= reduction * before + 1e-12


def test_warm_started_solves_converge(rng):
    weights = np.triu(random_weights(rng), 1)
    matrix = laplacian(weights + weights.T)
    systems, shifts = WarmStartedSystems(GraphTerm(matrix, WEIGHT)), rng.uniform(0.5, 20.0, (3, 30))
    right = rng.normal(size=(3, 30, N_IMAGES))
    exact = np.stack(
        [
            np.linalg.solve(2.0 * WEIGHT * matrix.toarray() + shift * np.eye(N_IMAGES), row)
            for shift, row in zip(shifts.ravel(), right.reshape(-1, N_IMAGES), strict=True)
        ]
    ).reshape(right.shape)
    errors = [abs(systems.solve(right, shifts) - exact).max() for _ in range(3)]
    assert errors[0] < 1e-3
    assert errors[1] < 0.1 * errors[0]
    assert errors[2] < 0.1 * errors[1]
