"""The coding step of the reproduction: Algorithm 1, stopped after a stated number of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tubal.solvers import Fista


@dataclass(frozen=True)
class FixedSteps:
    """Algorithm 1 with the exact constant and ``steps`` steps in every coding step, the last one included.

    Estimators give their last coding step more patience, which they ask for by raising ``max_iter``; here
    that has no effect, so that "alternations × steps" says all there is to say about the work done.
    """

    steps: int = 30
    max_iter: int = 0

    def minimise(self, problem: Any, start: Any = None) -> Any:
        """Take the steps, from where the last coding step ended."""
        return self._algorithm.minimise(problem, start)

    def codes(self, problem: Any, state: Any) -> Any:
        """Return the codes of a state."""
        return self._algorithm.codes(problem, state)

    @property
    def _algorithm(self) -> Fista:
        return Fista(max_iter=self.steps)
