from .alternation import PassTotals, Progress, learn
from .checkpoints import Checkpoint
from .fitting import MemoryNeed, fit_need

__all__ = ["Checkpoint", "MemoryNeed", "PassTotals", "Progress", "fit_need", "learn"]
