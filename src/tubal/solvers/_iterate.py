"""The one loop that owns stopping and monitoring, and the one type every solver returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

State = TypeVar("State")
Monitor = Callable[[int, Any], None]


@dataclass(frozen=True)
class Solution(Generic[State]):
    """Where a solver stopped: its final state (the next warm start), the steps made, and why it stopped."""

    state: State
    n_iter: int
    converged: bool


def ignore(n_iter: int, state: Any) -> None:
    """Monitor nothing."""


def iterate(
    advance: Callable[[State, int], State],
    state: State,
    *,
    stop: Callable[[State], bool],
    max_iter: int,
    check_every: int = 10,
    monitor: Monitor = ignore,
) -> Solution[State]:
    """Advance ``state`` by up to ``check_every`` steps at a time until ``stop(state)`` or ``max_iter`` steps.

    Steps come in bursts so that compiled kernels keep a block in cache, and a GPU is asked for scalars rarely.
    """
    n_iter = 0
    while n_iter < max_iter:
        burst = min(check_every, max_iter - n_iter)
        state = advance(state, burst)
        n_iter += burst
        monitor(n_iter, state)
        if stop(state):
            return Solution(state, n_iter, converged=True)
    return Solution(state, n_iter, converged=False)
