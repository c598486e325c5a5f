"""Edge weights that say how much of the neighbourhood agrees with an edge."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from .structure import Graph


def consensus_adjacency(graph: Graph) -> Any:
    """Return a symmetric CSR matrix on the graph's edges, heavier where both sides and their neighbours agree.

    With ``a`` the directed 0/1 choices and ``N(i)`` the neighbours of image ``i`` and itself,
    ``w_ij = (a_ij + a_ji) sqrt(|N(i) ∩ N(j)|)``: an edge both images chose counts twice, and an edge inside a
    tight group more than a bridge between groups. A graph given as a matrix has no directed choices; its own
    weights take the place of ``a_ij + a_ji``.

    >>> lists = np.array([[1], [0], [1]])
    >>> from .structure import Neighbours, Weighting
    >>> found = Neighbours(lists, np.ones((3, 1)))
    >>> graph = Graph.from_neighbours(found, weighting=Weighting(), search=None, n_neighbors=1)
    >>> consensus_adjacency(graph).toarray().round(2)
    array([[0.  , 2.83, 0.  ],
           [2.83, 0.  , 1.  ],
           [0.  , 1.  , 0.  ]])
    """
    n_images = graph.n_images
    if graph.neighbors is None:
        both = graph.adjacency
        chosen = sparse.csr_matrix((both > 0).astype(np.float64))
    else:
        present = graph.neighbors >= 0
        sources = np.nonzero(present)[0]
        places = (sources, graph.neighbors[present])
        chosen = sparse.csr_matrix((np.ones(len(sources)), places), shape=(n_images, n_images))
        both = chosen + chosen.T
    own = chosen + sparse.identity(n_images, format="csr")
    weights = sparse.csr_matrix(both.multiply((own @ own.T).sqrt()))
    # Whoever chose the other shares the other with it, so no edge of the graph can vanish.
    weights.sort_indices()
    return weights
