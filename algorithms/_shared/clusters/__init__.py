"""Clusters of clients with one model each, cut in two where their changes disagree (GCFL).

What GCFL and GCFL+ have in common: they differ in what two clients are compared by. The message
layer holds who is in a cluster; here a cluster is a handle with a size.
"""

from algorithms._shared.clusters.clustered import Clustered, CutGuard, CutRule
from algorithms._shared.clusters.messages import BothUpdates, Compare, Start, Update
from algorithms._shared.clusters.state import Cluster, Criterion, Mean, State

__all__ = [
    "BothUpdates",
    "Cluster",
    "Clustered",
    "Compare",
    "Criterion",
    "CutGuard",
    "CutRule",
    "Mean",
    "Start",
    "State",
    "Update",
]
