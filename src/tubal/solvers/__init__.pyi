from .base import CodeSolver, DictionarySolver, DictionaryState, Solution, iterate
from .coding import Admm, Fista, PrintedIstt
from .dictionary import LagrangeDual, ProjectedGradient

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
