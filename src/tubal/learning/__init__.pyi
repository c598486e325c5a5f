from .alternation import Progress, learn
from .checkpoints import Checkpoint
from .memory import fit_need

__all__ = ["Checkpoint", "Progress", "fit_need", "learn"]
