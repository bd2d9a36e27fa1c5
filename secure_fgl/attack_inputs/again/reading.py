"""What a receiver reads of messages that nobody sent: clipped, rounded and noised, and added up.

By the layer's own code, under the run's policy. Masks and encryption come off a total and change
nothing of it, so they are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audits.evidence.steps import Case
from crypto.masks import container
from crypto.noise import sampler
from crypto.samplers import KEY_BYTES, Stream
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.layout import Column
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.noise import NoisePlan
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.privacy.noising import SAMPLERS
from secure_fgl.attack_inputs.captured_sent import summed
from secure_fgl.attack_inputs.updates import Arrays, fields

__all__ = ["Reader"]


@dataclass(frozen=True, repr=False)
class Reader:
    """Reads what clients say in an exchange as its receiver would.

    Attributes:
        case: the run.
        exchange: in which they say it.
        update: the message that holds a change of the model.
    """

    case: Case
    exchange: Exchange
    update: type[Message]

    @property
    def column(self) -> Column:
        """Where a change stands in what is summed."""
        layout = summed(self.case, self.exchange)[0]
        wanted = (self.update.__name__, "delta")
        return next(c for c in layout.columns if (c.message, c.field.name) == wanted)

    @property
    def clear(self) -> bool:
        """Whether every client's message is read by itself."""
        return find(self.case.policy.chain(Disclosure.SUM), "unsafe_clear") is not None

    @property
    def planned(self) -> NoisePlan | None:
        """The noise of one client's message."""
        return self.case.plan.find(self.exchange.name, Disclosure.SUM, Step.UP).noise

    @property
    def noise(self) -> float:
        """Standard deviation of all noise on one number that is read, roughly."""
        grid, planned = self.column.grid, self.planned
        if grid is None or planned is None:
            return 0.0
        shares = 1 if self.clear else len(self.case.plan.clients)
        return float(float(planned.sigma) * grid.step * np.sqrt(shares))

    def read(
        self, said: Mapping[str, Sequence[Message]], rng: np.random.Generator
    ) -> dict[str, Arrays]:
        """Return, per client, what the receiver reads of its message: itself, or the total.

        Args:
            said: by client, what it says.
            rng: decides rounding and noise.
        """
        layout, ring = summed(self.case, self.exchange)
        sent = {name: ring.residues(self._integers(one, rng)) for name, one in said.items()}
        margin = self.planned.margin if self.planned is not None else 0
        kind = container(ring.modulus)

        def decoded(words: Any, members: int) -> Arrays:
            integers = ring.integers(words.astype(kind))
            return fields(layout.decode(integers, members, margin=margin)[self.update])

        if self.clear:
            return {name: decoded(words, 1) for name, words in sent.items()}
        total = np.zeros(ring.size, dtype=np.uint64)
        for words in sent.values():
            total += words.astype(np.uint64)  # wraps at 2^64, which every bare modulus divides
            if ring.packing is not None:
                total %= np.uint64(ring.modulus)
        if ring.packing is None and ring.modulus < 1 << 64:
            total %= np.uint64(ring.modulus)
        return dict.fromkeys(said, decoded(total, len(said)))

    def _integers(self, said: Sequence[Message], rng: np.random.Generator) -> Any:
        """Return one client's message, clipped, rounded and noised."""
        layout = summed(self.case, self.exchange)[0]
        mine = [message for message in said if type(message) in layout.kinds]
        planned = self.planned
        limit = float(planned.l2) if planned is not None else None
        integers, _ = layout.encode(mine, Stream(rng.bytes(KEY_BYTES)), limit=limit)
        if planned is not None:
            law = sampler(SAMPLERS[planned.mechanism], float(planned.sigma))
            integers = integers + law.sample(Stream(rng.bytes(KEY_BYTES)), integers.size)
        return integers
