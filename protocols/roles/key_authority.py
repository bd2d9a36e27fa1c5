"""The key authority's session: makes the run's keys, opens what is blinded, and nothing else.

It sees uniform noise (O1) and, where directions are compared, one cosine per pair (O3); and the
signed headers of all uploads of a round: who took part, when, and which ciphertext sizes. It opens
only for cohorts that every member signed, each exchange once, and overlapping cohorts of one round
never (O5, O8).
"""

from __future__ import annotations

from protocols.disclosures.registry import each
from protocols.sessions.engine import Answering, Session
from protocols.sessions.epoch_keys import SecretKeys
from protocols.sessions.part import Event, State, table
from protocols.sessions.survivors import Openings

_TABLE = table(
    {
        State.NEW: {Event.KEY: State.READY, Event.BEGIN: State.READY},
        State.READY: {Event.KEY: State.READY, Event.STEP: State.READY},
    }
)


class KeyAuthoritySession(Session):
    """KEY_AUTHORITY: the only holder of the secret keys, which live in memory for one epoch."""

    made_of = (Answering, SecretKeys, Openings, *each("key_authority"))
    table = _TABLE


SESSION = KeyAuthoritySession
NAMES = ("key-authority",)
