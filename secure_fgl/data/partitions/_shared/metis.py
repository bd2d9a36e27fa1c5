"""METIS (Karypis and Kumar, A fast and high quality multilevel scheme, 1998), through pymetis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from secure_fgl.data.partitions._shared.rule import Records
from secure_fgl.data.records import Graph

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["parts"]


def parts(graph: Graph, count: int, rng: np.random.Generator) -> Records:
    """Part of every node, int64 (N,) in [0, count), none empty: few edges cross, sizes are even.

    Multilevel k-way, as FED-PUB runs it; METIS' own seed comes from `rng`, so the result is
    deterministic for one version of METIS.

    Raises:
        ImportError: pymetis is not installed.
        ValueError: the graph is too small for so many parts.
    """
    try:
        import pymetis
    except ImportError as error:
        missing = ImportError("the metis partitions need pymetis, which is not installed")
        missing.add_note("What to do: pip install 'secure-fgl[metis]', or choose louvain_balanced")
        raise missing from error
    near = _both_ways(graph.edges, graph.nodes)
    index: npt.DTypeLike = pymetis.zero_copy_dtype()
    found = pymetis.part_graph(
        count,
        pymetis.CSRAdjacency(near.indptr.astype(index), near.indices.astype(index)),
        recursive=False,
        options=pymetis.Options(seed=int(rng.integers(2**31 - 1))),
    )
    part = np.asarray(found.vertex_part, dtype=np.int64)
    if len(np.unique(part)) != count:
        raise ValueError(
            f"METIS found fewer than {count} parts in {graph.nodes} nodes; ask for fewer clients"
        )
    return part


def _both_ways(edges: Records, nodes: int) -> sp.csr_array:
    import scipy.sparse as sp

    ends = (np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]))
    return sp.csr_array((np.ones(ends[0].size, dtype=np.int8), ends), shape=(nodes, nodes))
