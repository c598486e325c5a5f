"""Learning from a stream of batches: statistics carry what earlier batches taught (Mairal et al. 2010)."""

from __future__ import annotations

from math import exp
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from tubal.backends.arrays import to_numpy
from tubal.backends.threads import own_threads
from tubal.estimators._base import scale_images
from tubal.estimators._validation import check_images
from tubal.learning.alternation import (
    InMemory,
    LearningState,
    MemoryStore,
    Tally,
    Weights,
    code_chunk,
    dictionary_pass,
    initial_state,
    reseed,
)


@own_threads()
def learn_batch(coder: Any, X: Any, horizon: float | None) -> Any:
    """Code one batch, add its statistics to those of the past, and update the dictionary."""
    if horizon is not None and not horizon > 0:
        raise ValueError(f"horizon={horizon!r}; a positive number of images is wanted, or None to forget nothing")
    first = not hasattr(coder, "statistics_")
    if coder._model().n_dictionary_steps != 1:
        raise ValueError(f"{type(coder).__name__} updates several dictionaries from all images; use fit instead")
    images = check_images(coder, X, coder.image_shape, reset=first)
    coder._check_parameters()
    scaled, factor = scale_images(images, coder.scale, None if first else coder.scale_factor_)
    if first:
        coder.scale_factor_, coder._layout_ = factor, coder._layout(coder.image_shape_)
    data = coder._layout_.to_tensor(scaled)
    state = _first_state(coder, data) if first else _former_state(coder)
    code_solver, dictionary_solver = coder._solvers()
    coded = code_chunk(coder._model(), state.dictionary, data, Weights(coder.sparsity), code_solver)
    tally = Tally.of(0, coded)
    state.objective.append(tally.objective / len(images))
    state.density.append(tally.nonzero / tally.n_codes)
    state.n_iter += 1
    past = 1.0 if horizon is None else exp(-len(images) / horizon)
    total = tally.statistics if first else coder.statistics_.scaled(past) + tally.statistics
    store, collection = MemoryStore(), InMemory(data)
    store.put(0, coded)
    dictionary_pass(coder._model(), state, collection, total, dictionary_solver, store)
    # An atom is unused only if no batch so far used it.
    state.n_reseeded += reseed(coder._model(), state, collection, _with_statistics(tally, total))
    coder._keep(state, coded.codes)
    coder.statistics_ = total
    coder.n_samples_seen_ = len(images) + (0 if first else coder.n_samples_seen_)
    return coder


def _with_statistics(tally: Tally, statistics: Any) -> Tally:
    reach = to_numpy(statistics.usage).size
    return Tally(
        1, tally.objective, tally.nonzero, tally.n_codes, statistics, tally.worst[:reach], tally.places[:reach]
    )


def _first_state(coder: Any, data: Any) -> LearningState:
    random = check_random_state(coder.random_state)
    return initial_state(coder._initial_dictionary(data, random), coder._model())


def _former_state(coder: Any) -> LearningState:
    return LearningState(
        coder.dictionary_, list(coder.multipliers_), list(np.asarray(coder.objective_)),
        list(np.asarray(coder.density_)), coder.n_reseeded_, coder.n_iter_,
    )  # fmt: skip
