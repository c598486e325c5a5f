from .affinity import mutual_adjacency, weight_edges_by_codes, with_second_order
from .clusterer import ImageClusterer
from .cuts import diffusion_cut, kmeans, modularity, spectral_cut
from .hints import Hints
from .quality import confidence, medoids, near_duplicates, neighbor_outlier_scores, stability, stranger_scores, vote
from .spectral import ClusterCount, Spectrum, estimate_n_clusters, graph_map, spectrum
from .tree import ClusterTree, cluster_tree

__all__ = [
    "ClusterCount",
    "ClusterTree",
    "Hints",
    "ImageClusterer",
    "Spectrum",
    "cluster_tree",
    "confidence",
    "diffusion_cut",
    "estimate_n_clusters",
    "graph_map",
    "kmeans",
    "medoids",
    "modularity",
    "mutual_adjacency",
    "near_duplicates",
    "neighbor_outlier_scores",
    "spectral_cut",
    "spectrum",
    "stability",
    "stranger_scores",
    "vote",
    "weight_edges_by_codes",
    "with_second_order",
]
