"""What the aggregator holds of messages that are weighed: a token to hand out with weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from crypto.errors import OutOfRange
from protocols.disclosures._base.view import OneVerb
from protocols.disclosures._evaluated.view import Uploaded
from protocols.disclosures.weighted_sum.guards import Weigh
from protocols.messages import Array, Message
from protocols.policy.guard import guard_of
from protocols.rounds import Sealed, View


class Mixture(Sealed):
    """Integer weights over encrypted messages; the rows are computed when an Ask hands them out."""

    def __init__(
        self, kind: type[Message], source: int, table: Array, flattened: tuple[int, ...]
    ) -> None:
        super().__init__(kind, {})
        self._source, self._table, self._flattened = source, table, flattened


class WeighedView(OneVerb):
    """WEIGHTED_SUM, protected: weights can be put on messages that nobody here can open.

    Args:
        kind: the message type.
        source: number of the exchange that brought the messages.
        size: how many.
        others: the smallest effective group of others (O10).
        total, top: of the policy's guard.
    """

    verb = "weighted"

    def __init__(
        self,
        kind: type[Message],
        source: int,
        size: int,
        others: int,
        total: int,
        top: int | None,
    ) -> None:
        self._kind, self._source, self._size = kind, source, size
        self._others, self._total, self._top = others, total, top

    def _answer(self, **options: Any) -> Sealed:
        """Return the nearest admissible integer weights (O10), to be handed out once."""
        from crypto.homomorphic.weights import flatten

        weights = np.asarray(options["alpha"], dtype=np.float64)
        if weights.shape != (self._size, self._size):
            raise ValueError(f"weights must be ({self._size}, {self._size})")
        try:
            chosen = flatten(weights, self._others, total=self._total, top=self._top)
        except OutOfRange as error:
            raise ValueError("weights must be rows of shares that sum to one") from error
        return Mixture(self._kind, self._source, chosen.table, chosen.flattened)


class Weighable(Uploaded):
    """The messages of one Ask."""

    verb: ClassVar[str] = WeighedView.verb

    def views(self) -> dict[type[Message], View]:
        """Return what puts weights on them, while nobody here can open them."""
        policy, size, source = self._context.policy, len(self.survivors), self.where.exchange
        guard = guard_of(policy.chain(self.item.disclosure), Weigh)
        if guard is None:
            return super().views()
        facts = size, policy.others, guard.total, guard.top
        return {kind: WeighedView(kind, source, *facts) for kind in self.kinds}

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> Sealed:
        """Return every client's combination of messages that came in clear."""
        weights, size = np.asarray(more["alpha"], dtype=np.float64), len(sent)
        if weights.shape != (size, size) or not np.allclose(weights.sum(axis=1), 1.0):
            raise ValueError(f"weights must be ({size}, {size}) with rows that sum to one")
        mixed = {}
        for field in kind.fields:
            stack = np.stack([np.asarray(getattr(m, field.name)) for m in sent.values()])
            rows = weights @ stack.reshape(size, -1)  # one product for all receivers
            mixed[field.name] = rows.reshape(stack.shape) if field.shape else rows[:, 0].tolist()
        deliveries = {
            name: kind(**{field: rows[number] for field, rows in mixed.items()})
            for number, name in enumerate(sent)
        }
        return Sealed(kind, deliveries)


VIEW = Weighable
