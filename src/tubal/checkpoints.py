"""Public import path of :class:`Checkpoint`, which is defined in :mod:`tubal.learning.checkpoints`."""

from tubal.learning.checkpoints import Checkpoint

__all__ = ["Checkpoint"]
