"""The one loop that owns stopping and monitoring, and the one type every solver returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

State = TypeVar("State")
Monitor = Callable[[int, Any], None]


class Solution(Generic[State]):
    """Where a solver stopped: its final state (the next warm start), the steps made, and whether they sufficed.

    ``converged`` may come as a question, put to the state when somebody asks: on a device the answer has to be waited
    for, and most callers do not want it.
    """

    def __init__(self, state: State, n_iter: int, converged: bool | Callable[[], bool]) -> None:
        self.state, self.n_iter = state, n_iter
        self._verdict = converged

    def __repr__(self) -> str:
        return f"Solution(n_iter={self.n_iter}, converged={self.converged}, state={self.state!r})"

    @property
    def converged(self) -> bool:
        """Whether the stopping rule held at the end."""
        if callable(self._verdict):
            self._verdict = bool(self._verdict())
        return self._verdict


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
        if n_iter < max_iter and stop(state):
            return Solution(state, n_iter, converged=True)
    return Solution(state, n_iter, converged=lambda: n_iter > 0 and stop(state))
