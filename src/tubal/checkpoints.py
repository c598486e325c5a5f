"""The import path of :class:`Checkpoint`, which lives in :mod:`tubal.learning.checkpoints`."""

from tubal.learning.checkpoints import Checkpoint

__all__ = ["Checkpoint"]
