"""What was put right on the way in."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Tally"]

_WORDS = {
    "self_loops": "edges from a node to itself, dropped",
    "repeated_edges": "exact repeats of an edge, merged",
    "both_directions": "pairs given in both directions, one edge each",
    "edge_data": "columns or tensors of edges (weights, types, times), not read",
}


@dataclass(repr=False)
class Tally:
    """Counts of what one site's files held that is no error and yet is not kept as it stood.

    The counts are private, like the data: they are for the site's own eyes. The representation is
    mute.

    Attributes:
        self_loops: edges from a node to itself; dropped.
        repeated_edges: exact repeats of an edge; merged.
        both_directions: pairs of nodes given as (u, v) and as (v, u); one edge each.
        edge_data: what the files hold of edges besides their ends; nothing here learns from it.
    """

    self_loops: int = 0
    repeated_edges: int = 0
    both_directions: int = 0
    edge_data: int = 0

    def __repr__(self) -> str:
        return "<Tally>"

    def sentences(self) -> list[str]:
        """What to tell the site's owner, one line for each count above 0."""
        counts = ((field.name, getattr(self, field.name)) for field in fields(self))
        return [f"{_WORDS[name]}: {count}" for name, count in counts if count]
