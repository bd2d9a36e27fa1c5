"""Data sets, splits and partitions.

Example::

    graph = load_dataset("cora", root="data")
    masks = split_masks(graph, rng=rng)
    sites = partition(graph, "louvain_balanced", 5, masks, rng=rng)
"""

from secure_fgl.data.datasets import dataset_names, load_dataset, spec_of
from secure_fgl.data.graph import ClientGraph, Graph, Masks
from secure_fgl.data.sharing import partition, partition_names
from secure_fgl.data.split import split_masks

__all__ = [
    "ClientGraph",
    "Graph",
    "Masks",
    "dataset_names",
    "load_dataset",
    "partition",
    "partition_names",
    "spec_of",
    "split_masks",
]
