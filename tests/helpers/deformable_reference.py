"""The deformable graph without shortcuts: every pair, every motion, gradients of moved images.

Slow and simple on purpose. There is no stage of coarse candidates. Every motion of every pair is scored on whole
gradient fields, ranked by the mean of both directions. Then the neighbour is moved by its best motion, and contexts
are compared offset by offset.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import map_coordinates, sobel, uniform_filter


def unit_fields(images):
    """Return Sobel derivatives (n, 2, h, w), border replicated, each field of unit length."""
    fields = np.array([[sobel(image, axis, mode="nearest") for axis in (0, 1)] for image in images])
    lengths = np.sqrt((fields**2).sum(axis=(1, 2, 3), keepdims=True))
    return (fields / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def moved(image, rotation, scale, dy, dx):
    """Return ``X(c + R(p - c - d) / scale)``, interpolated bilinearly, border replicated."""
    height, width = image.shape
    y, x = np.mgrid[:height, :width].astype(float)
    centre_y, centre_x, angle = (height - 1) / 2, (width - 1) / 2, np.deg2rad(rotation)
    y, x = (y - centre_y - dy) / scale, (x - centre_x - dx) / scale
    source = (
        np.cos(angle) * y + np.sin(angle) * x + centre_y,
        -np.sin(angle) * y + np.cos(angle) * x + centre_x,
    )
    return map_coordinates(image, source, order=1, mode="nearest")


def motions(rotation=10.0, scale=1.08, shift=2):
    return [
        (angle, factor, dy, dx)
        for angle in np.linspace(-rotation, rotation, 5)
        for factor in np.geomspace(1 / scale, scale, 3)
        for dy in range(-shift, shift + 1)
        for dx in range(-shift, shift + 1)
    ]


def affine_scores(images, bank):
    """Return ``s[i, j] = max_T <grad X_i, grad T(X_j)>``, and the motion that attains it."""
    n_images = len(images)
    still = unit_fields(images).reshape(n_images, -1)
    best = np.full((n_images, n_images), -np.inf, dtype=np.float32)
    which = np.zeros((n_images, n_images), dtype=np.int32)
    for index, motion in enumerate(bank):
        turned = np.stack([moved(image, *motion) for image in images])
        scores = still @ unit_fields(turned).reshape(n_images, -1).T
        better = scores > best
        best[better], which[better] = scores[better], index
    return best, which


def warp_distance(left, right, window=2, context=2):
    """Return the smallest context differences, summed over both images, for pairs of fields (pairs, 2, h, w)."""
    height, width = left.shape[2:]
    edge = ((0, 0), (0, 0), (context, context), (context, context))
    left, right = np.pad(left, edge, mode="edge"), np.pad(right, edge, mode="edge")
    least_left = np.full((len(left), height, width), np.inf, dtype=np.float32)
    least_right = least_left.copy()
    size = 2 * context + 1
    for dy in range(-window, window + 1):
        for dx in range(-window, window + 1):
            rows, columns = (
                slice(max(0, -dy), min(height, height - dy)),
                slice(max(0, -dx), min(width, width - dx)),
            )
            rows_b, columns_b = (
                slice(rows.start + dy, rows.stop + dy),
                slice(columns.start + dx, columns.stop + dx),
            )
            reach = 2 * context
            a = left[:, :, rows.start : rows.stop + reach, columns.start : columns.stop + reach]
            b = right[:, :, rows_b.start : rows_b.stop + reach, columns_b.start : columns_b.stop + reach]
            error = ((a - b) ** 2).sum(axis=1)
            summed = uniform_filter(error, (0, size, size))[:, context:-context, context:-context] * size**2
            least_left[:, rows, columns] = np.minimum(least_left[:, rows, columns], summed)
            least_right[:, rows_b, columns_b] = np.minimum(least_right[:, rows_b, columns_b], summed)
    return least_left.sum(axis=(1, 2)) + least_right.sum(axis=(1, 2))


def exhaustive_neighbors(images, n_neighbors, n_kept=50, context=2):
    """Return the neighbours (n, n_neighbors) of the whole search, and those of the affine scores alone."""
    bank = motions()
    scores, which = affine_scores(images, bank)
    mean = (scores + scores.T) / 2
    np.fill_diagonal(mean, -np.inf)
    kept = np.argsort(-mean, axis=1)[:, : min(n_kept, len(images) - 1)]
    fields = unit_fields(images)
    neighbours = np.empty((len(images), n_neighbors), dtype=np.intp)
    for index, others in enumerate(kept):
        turned = np.stack([moved(images[other], *bank[which[index, other]]) for other in others])
        still = np.broadcast_to(fields[index], (len(others), *fields.shape[1:]))
        distances = warp_distance(still, unit_fields(turned), context=context)
        neighbours[index] = others[np.argsort(distances, kind="stable")[:n_neighbors]]
    return neighbours, kept[:, :n_neighbors]
