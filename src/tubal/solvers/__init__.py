"""Solvers: small dataclasses that know how to minimise, given a problem that knows what."""

from tubal.solvers.admm import Admm
from tubal.solvers.fista import Fista, PrintedIstt
from tubal.solvers.iterate import Solution, iterate
from tubal.solvers.lagrange_dual import DictionaryState, LagrangeDual
from tubal.solvers.projected_gradient import ProjectedGradient

__all__ = [
    "Admm",
    "DictionaryState",
    "Fista",
    "LagrangeDual",
    "PrintedIstt",
    "ProjectedGradient",
    "Solution",
    "iterate",
]
