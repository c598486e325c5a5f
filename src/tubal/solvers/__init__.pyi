from .admm import Admm
from .base import CodeSolver, DictionarySolver, DictionaryState, Solution, iterate
from .fista import Fista, PrintedIstt
from .lagrange_dual import LagrangeDual
from .projected_gradient import ProjectedGradient

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
