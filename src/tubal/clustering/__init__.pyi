from .affinity import mutual_adjacency, weight_edges_by_codes, with_second_order
from .clusterer import ImageClusterer
from .cuts import ClusterCount, diffusion_cut, estimate_n_clusters, kmeans, modularity, spectral_cut
from .eigenvectors import Spectrum, spectrum
from .embedding import graph_map
from .quality import confidence, medoids, near_duplicates, neighbor_outlier_scores, stability, stranger_scores, vote
from .tree import ClusterTree, cluster_tree

__all__ = [
    "ClusterCount",
    "ClusterTree",
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
