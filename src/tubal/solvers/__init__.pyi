from .admm import Admm
from .base import CodeSolver, DictionarySolver, DictionaryState, Solution, iterate
from .dictionary import LagrangeDual, ProjectedGradient
from .fista import Fista, PrintedIstt

__all__ = [
    "Admm",
    "CodeSolver",
    "DictionarySolver",
    "DictionaryState",
    "Fista",
    "LagrangeDual",
    "PrintedIstt",
    "ProjectedGradient",
    "Solution",
    "iterate",
]
