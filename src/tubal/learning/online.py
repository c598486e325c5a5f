"""Learning from a stream of batches: statistics carry what earlier batches taught (Mairal et al. 2010)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import Any

from tubal.backends.arrays import Array, to_numpy
from tubal.backends.threads import own_threads
from tubal.learning.alternation import (
    InMemory,
    LearningState,
    MemoryStore,
    PassTotals,
    Weights,
    code_chunk,
    dictionary_pass,
    reseed,
)
from tubal.learning.fitting import Recipe, fitted_attributes, scale_images
from tubal.problems.base import Statistics
from tubal.problems.layout import Layout


@dataclass(frozen=True)
class Stream:
    """What earlier batches of a stream left behind: the fitted state, and the statistics of all images so far."""

    layout: Layout
    scale_factor: float
    state: LearningState
    statistics: Statistics
    n_samples: int


@own_threads()
def learn_batch(recipe: Recipe, images: Array, former: Stream | None, horizon: float | None) -> dict[str, Any]:
    """Code one batch, add its statistics to those of the past, and update the dictionary.

    An image's weight falls by a factor e with every ``horizon`` images after it; None keeps all weights equal. Return
    the fitted attributes; ``codes_`` are those of the batch.
    """
    if horizon is not None and not horizon > 0:
        raise ValueError(f"horizon={horizon!r}; a positive number of images is wanted, or None to forget nothing")
    layout = recipe.layout(tuple(int(extent) for extent in images.shape[1:])) if former is None else former.layout
    scaled, factor = scale_images(images, recipe.scale, None if former is None else former.scale_factor)
    data, model = layout.to_tensor(scaled), recipe.model(layout.image_shape)
    if model.n_dictionary_steps != 1:
        raise ValueError(f"{recipe.name} updates several dictionaries in turn, each from all images; use fit instead")
    state = recipe.first_state(data, layout) if former is None else former.state
    coded = code_chunk(model, state.dictionary, data, Weights(recipe.sparsity), recipe.learning_solver)
    totals = PassTotals.of_chunk(0, coded)
    state.objective.append(totals.objective / len(images))
    state.density.append(totals.nonzero / totals.n_codes)
    state.n_iter += 1
    statistics, n_samples = totals.statistics, len(images)
    if former is not None:
        kept = 1.0 if horizon is None else exp(-len(images) / horizon)
        statistics, n_samples = former.statistics.scaled(kept) + statistics, n_samples + former.n_samples
    store, collection = MemoryStore(), InMemory(data)
    store.put(0, coded)
    dictionary_pass(model, state, collection, statistics, recipe.dictionary_solver, store)
    # With the statistics of all batches: an atom is unused only if no batch so far used it.
    n_worst = to_numpy(statistics.usage).size
    totals = replace(totals, statistics=statistics, worst=totals.worst[:n_worst], places=totals.places[:n_worst])
    state.n_reseeded += reseed(model, state, collection, totals)
    attributes = fitted_attributes(recipe, layout, state, coded.codes, None, factor)
    return attributes | {"statistics_": statistics, "n_samples_seen_": n_samples}
