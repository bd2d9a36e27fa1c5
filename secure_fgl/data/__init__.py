"""Data sets, splits and partitions.

Example::

    graph = load_dataset("cora", root="data")
    masks = split_masks(graph, rng=rng)
    sites = partition(graph, "louvain_balanced", 5, masks, rng=rng)
"""

from secure_fgl.data.datasets import (
    ROOT_VARIABLE,
    dataset_names,
    load_dataset,
    published_shape,
    read_dataset,
    shape_of,
    spec_of,
)
from secure_fgl.data.records import (
    ClientGraph,
    ClientGraphs,
    ClientRatings,
    Dataset,
    Features,
    Graph,
    GraphSet,
    Masks,
    Part,
    Ratings,
    split_masks,
)
from secure_fgl.data.sharing import (
    check_partition,
    gives_test,
    induce,
    linkable_names,
    links,
    makes_split,
    partition,
    partition_names,
    remarks,
)

__all__ = [
    "ROOT_VARIABLE",
    "ClientGraph",
    "ClientGraphs",
    "ClientRatings",
    "Dataset",
    "Features",
    "Graph",
    "GraphSet",
    "Masks",
    "Part",
    "Ratings",
    "check_partition",
    "dataset_names",
    "gives_test",
    "induce",
    "linkable_names",
    "links",
    "load_dataset",
    "makes_split",
    "partition",
    "partition_names",
    "published_shape",
    "read_dataset",
    "remarks",
    "shape_of",
    "spec_of",
    "split_masks",
]
