from .candidates import candidate_recall
from .deformable import Deformation, deformable_graph
from .neighbors import knn_graph
from .resolve import resolve_graph
from .structure import Alignments, Graph, Neighbours, consensus_adjacency, laplacian, laplacian_norm

__all__ = [
    "Alignments",
    "Deformation",
    "Graph",
    "Neighbours",
    "candidate_recall",
    "consensus_adjacency",
    "deformable_graph",
    "knn_graph",
    "laplacian",
    "laplacian_norm",
    "resolve_graph",
]
