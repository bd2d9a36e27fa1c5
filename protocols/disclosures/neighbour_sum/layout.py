"""How a vector for neighbours stands on the grid, what a box holds, and how a sum is read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.masks import container
from crypto.signing import canonical
from protocols.disclosures.sum.layout import Ring, SumLayout, Words, sum_layout
from protocols.errors import BadEnvelope, NotInPlan, UnfitMessage
from protocols.keys.pairs import BOX_OVERHEAD
from protocols.messages import Message
from protocols.plan.cohorts import TopologyPlan
from protocols.policy.guard import Guard

COMMITMENT_BYTES = 32


@dataclass(frozen=True)
class NeighbourGrid:
    """The integers of one message, and the ring in which neighbours' weighted ones are added.

    Attributes:
        layout: of the integers.
        ring: holds a sum whose weights add up to the denominator.
    """

    layout: SumLayout
    ring: Ring

    @classmethod
    def of(
        cls,
        kinds: Sequence[type[Message]],
        chain: tuple[Guard, ...],
        dims: Mapping[str, int],
        whole: int,
    ) -> NeighbourGrid:
        """Return the grid of a message; raises OutOfRange where a sum does not fit into 64 bits."""
        layout = sum_layout(kinds, chain, dims)
        return cls(layout, Ring.of(layout.length, layout.bits, whole))

    @property
    def content_bytes(self) -> int:
        """Bytes of what is sealed: the digest and the masked vector."""
        return COMMITMENT_BYTES + self.ring.wire_bytes

    @property
    def box_bytes(self) -> int:
        """Bytes of a box."""
        return self.content_bytes + BOX_OVERHEAD

    def words(self, content: bytes) -> Words:
        """Return the residues of a box's content; raises BadEnvelope if it is not of their size."""
        if len(content) != self.content_bytes:
            raise BadEnvelope("A neighbour's box does not hold one digest and one vector.")
        kind = container(self.ring.modulus).newbyteorder("<")
        return np.frombuffer(content[COMMITMENT_BYTES:], dtype=kind)

    def mixed(
        self, kind: type[Message], total: Words, own: Message, shares: tuple[int, int, int]
    ) -> Message:
        """Return a receiver's mixture.

        Args:
            kind: the message type.
            total: residues of all neighbours, added up.
            own: the receiver's own message, which was never rounded.
            shares: the neighbours' weights added up, its own, and the denominator.

        Raises:
            BadEnvelope: this is no sum of such vectors: a mask is still on it.
        """
        others, mine, whole = shares
        try:
            found = self.layout.decode(self.ring.integers(total), others)[kind]
        except (OutOfRange, UnfitMessage) as error:
            raise BadEnvelope(
                "What the neighbours sent is no sum of their vectors.",
                why="a neighbour sent something else, or was told another cohort",
                fix="find out which; this sum was not used",
            ) from error
        values: dict[str, Any] = {}
        for field in kind.fields:
            sums: NDArray[np.float64] = np.asarray(getattr(found, field.name), dtype=np.float64)
            value = np.asarray(getattr(own, field.name), dtype=np.float64)
            mean = (sums + mine * value) / whole
            values[field.name] = mean if field.shape else float(mean)
        return kind(**values)


def grid_of(
    topology: TopologyPlan | None,
    kinds: Sequence[type[Message]],
    chain: tuple[Guard, ...],
    dims: Mapping[str, int],
) -> NeighbourGrid:
    """Return the grid of a run's messages; raises NotInPlan where the plan has no topology."""
    if topology is None:
        raise NotInPlan("A message goes to neighbours, and the plan says of nobody who they are.")
    return NeighbourGrid.of(kinds, chain, dims, topology.whole)


def box_info(run: str, exchange: int, item: str, sender: str, receiver: str) -> bytes:
    """Return what a box is bound to."""
    return b"secure-fgl/neighbour\0" + canonical([run, exchange, item, sender, receiver])


def commitment(salt: bytes, integers: NDArray[np.int64]) -> bytes:
    """Return the digest by which a sender states its integers without telling them.

    Args:
        salt: 32 fresh bytes; without them a small change could be guessed.
        integers: the vector before it is weighed and masked.
    """
    content = salt + integers.astype("<i8").tobytes()
    return hashlib.sha256(b"secure-fgl/neighbour/model\0" + content).digest()
