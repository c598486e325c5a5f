from .build import candidate_recall, deformable_graph, restore_graph
from .deformable import Deformation, Effort
from .neighbors import knn_graph
from .structure import Alignments, Graph, Neighbors, Stage, Weighting, laplacian, laplacian_norm

__all__ = [
    "Alignments",
    "Deformation",
    "Effort",
    "Graph",
    "Neighbors",
    "Stage",
    "Weighting",
    "candidate_recall",
    "deformable_graph",
    "knn_graph",
    "laplacian",
    "laplacian_norm",
    "restore_graph",
]
