"""The witness's session: computes results again, byte for byte, and signs what it found (O4).

It holds no secret key of any encryption. It is shown ciphertexts, the clients' signatures over
them, the weights of every receiver and the seeds of masks and blinds, and learns no value. What it
keeps an aggregator from is to have something else opened than cosines and combinations: a single
client's upload, or a combination that rests on too few (O10). Together with the key authority it
could read every upload, like the aggregator.
"""

from __future__ import annotations

from protocols.disclosures._evaluated.ciphers import witness_count
from protocols.disclosures.registry import each
from protocols.plan.plan import Item
from protocols.plan.steps import Service
from protocols.sessions.engine import Answering, Progress, Session
from protocols.sessions.epoch_keys import PublicKeys
from protocols.sessions.part import Event, State, table
from protocols.wire.envelope import Header

_TABLE = table(
    {
        State.NEW: {Event.KEY: State.READY},
        State.READY: {Event.KEY: State.READY, Event.STEP: State.READY},
    }
)


class WitnessSession(Session):
    """WITNESS: a second pair of eyes on every result that is opened."""

    made_of = (Answering, Progress, PublicKeys, *each("witness"))
    table = _TABLE
    keys: PublicKeys

    def due(self, header: Header, item: Item) -> None:
        """See that this epoch's public keys are here; they come without a receipt."""
        if item.part is Service.KEYS:
            self.keys.check_time(header.round)
        else:
            self.keys.check(header.round)


SESSION = WitnessSession
count = witness_count
NAMES = tuple(f"witness-{number}" for number in range(1, 10))
