"""Slow and obvious implementations that the tests compare the library with.

Tensors are ordered as in the paper, (rows, columns, tube), unless a function says tube-first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

TUBE_LENGTHS = (1, 2, 5, 6)


def tube_first(tensor: np.ndarray) -> np.ndarray:
    """Return (rows, columns, tube) as (tube, rows, columns), contiguous."""
    return np.ascontiguousarray(np.moveaxis(tensor, -1, 0))


def tube_last(tensor: np.ndarray) -> np.ndarray:
    """Undo :func:`tube_first`."""
    return np.ascontiguousarray(np.moveaxis(tensor, 0, -1))


def slow_t_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the t-product by its definition: circular convolution of tubes, one slice at a time."""
    tube_length = left.shape[2]
    product = np.zeros((left.shape[0], right.shape[1], tube_length))
    for target in range(tube_length):
        for source in range(tube_length):
            product[:, :, target] += left[:, :, (target - source) % tube_length] @ right[:, :, source]
    return product


def block_circulant(tensor: np.ndarray) -> np.ndarray:
    """Return the matrix of eq. 5, (tube·rows, tube·columns)."""
    tube_length = tensor.shape[2]
    return np.block(
        [[tensor[:, :, (row - column) % tube_length] for column in range(tube_length)] for row in range(tube_length)]
    )


def stacked(tensor: np.ndarray) -> np.ndarray:
    """Return the frontal slices under each other, the paper's underline."""
    return np.concatenate([tensor[:, :, slice_] for slice_ in range(tensor.shape[2])], axis=0)


def printed_transpose(tensor: np.ndarray) -> np.ndarray:
    """Return the transpose as the paper prints it: slice l is the transposed slice k + 1 - l for l >= 2."""
    tube_length = tensor.shape[2]
    slices = [tensor[:, :, 0].T]
    slices += [tensor[:, :, tube_length + 1 - number - 1].T for number in range(2, tube_length + 1)]
    return np.stack(slices, axis=2)


def full_spectrum(tensor: np.ndarray) -> np.ndarray:
    """Return all k frontal slices of the DFT along the tube, slice first."""
    return np.moveaxis(np.fft.fft(tensor, axis=2), 2, 0)


def path_laplacian(n_samples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the Laplacian of a weighted ring with one chord: connected, with unequal degrees."""
    adjacency = np.zeros((n_samples, n_samples))
    for sample in range(n_samples):
        following = (sample + 1) % n_samples
        adjacency[sample, following] = adjacency[following, sample] = rng.uniform(0.5, 1.5)
    if n_samples > 3:
        adjacency[0, 2] = adjacency[2, 0] = 1.0
    np.fill_diagonal(adjacency, 0.0)
    return np.diag(adjacency.sum(1)) - adjacency


def coding_objective(
    dictionary: np.ndarray, data: np.ndarray, codes: np.ndarray, *, sparsity: float,
    graph_weight: float = 0.0, laplacian: np.ndarray | None = None,
) -> float:  # fmt: skip
    """Return the objective of eq. 8 for given atoms, by the block-circulant matrix of eq. 10."""
    residual = stacked(data) - block_circulant(dictionary) @ stacked(codes)
    value = 0.5 * np.sum(residual**2) + sparsity * np.abs(codes).sum()
    if laplacian is not None:
        value += graph_weight * np.trace(stacked(codes) @ laplacian @ stacked(codes).T)
    return float(value)


def coding_gradient(
    dictionary: np.ndarray, data: np.ndarray, codes: np.ndarray,
    graph_weight: float = 0.0, laplacian: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Return the gradient of the smooth part as a stacked matrix (tube·atoms, samples)."""
    circulant = block_circulant(dictionary)
    gradient = circulant.T @ (circulant @ stacked(codes) - stacked(data))
    if laplacian is not None:
        gradient = gradient + 2.0 * graph_weight * stacked(codes) @ laplacian
    return gradient


def coding_hessian(
    dictionary: np.ndarray, n_samples: int, graph_weight: float = 0.0, laplacian: np.ndarray | None = None
) -> np.ndarray:
    """Return the dense Hessian of the smooth part over all codes, sample by sample."""
    gram = block_circulant(dictionary).T @ block_circulant(dictionary)
    hessian = np.kron(np.eye(n_samples), gram)
    if laplacian is not None:
        hessian += 2.0 * graph_weight * np.kron(laplacian, np.eye(len(gram)))
    return hessian


def kkt_residual(gradient: np.ndarray, codes: np.ndarray, sparsity: float) -> float:
    """Return the largest violation of the optimality conditions of the lasso; it is zero at a minimum."""
    at_zero = np.maximum(np.abs(gradient) - sparsity, 0.0)
    elsewhere = np.abs(gradient + sparsity * np.sign(codes))
    return float(np.where(codes == 0.0, at_zero, elsewhere).max())


def finite_gradient(function: Callable[[np.ndarray], float], point: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Return the gradient of a scalar function by central differences."""
    gradient = np.zeros_like(point, dtype=np.float64)
    for index in np.ndindex(point.shape):
        offset = np.zeros_like(point, dtype=np.float64)
        offset[index] = step
        gradient[index] = (function(point + offset) - function(point - offset)) / (2.0 * step)
    return gradient


def finite_slope(
    function: Callable[[np.ndarray], float], point: np.ndarray, direction: np.ndarray, step: float = 1e-6
) -> float:
    """Return the slope of a function at a point along a direction, by central differences."""
    return (function(point + step * direction) - function(point - step * direction)) / (2 * step)


def coding_lipschitz(matrix: np.ndarray, laplacian: np.ndarray | None, graph_weight: float) -> float:
    """Return the largest eigenvalue of the Hessian of a coding problem with a dense map ``matrix``."""
    graph = 2 * graph_weight * np.linalg.norm(laplacian, 2) if graph_weight else 0.0
    return np.linalg.norm(matrix, 2) ** 2 + graph


def finite_jacobian(function: Callable[[np.ndarray], np.ndarray], point: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Return the Jacobian of a vector function by central differences; column j is the derivative along j."""
    columns = []
    for index in range(point.size):
        offset = np.zeros_like(point, dtype=np.float64)
        offset[index] = step
        columns.append((np.asarray(function(point + offset)) - np.asarray(function(point - offset))) / (2.0 * step))
    return np.stack(columns, axis=1)


def unit_atoms(rng: np.random.Generator, rows: int, n_atoms: int, tube_length: int) -> np.ndarray:
    """Return random atoms of unit Frobenius norm, (rows, atoms, tube)."""
    atoms = rng.normal(size=(rows, n_atoms, tube_length))
    return atoms / np.sqrt((atoms**2).sum((0, 2), keepdims=True))
