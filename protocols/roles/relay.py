"""The relay's session: takes the senders off a cohort's messages, and reads none of them (O23).

It is shown what every client signed and sealed to it: as many boxes for each, which the aggregator
alone opens. It returns the boxes of all in one random order. So it sees who took part when, and
the aggregator sees mixtures, or noised messages, and not whose they are, beyond what their content
says. Together they see what a run without a relay shows the aggregator.

What it keeps an aggregator from is to have few clients' boxes, or two nearly equal sets of them,
put in order: it takes a cohort of at least the policy's smallest, each exchange once, and one set
of survivors a round. What it could do itself: keep boxes back or give out doubles, which the
aggregator notices by their number; replace boxes by its own, which nobody notices (it cannot choose
whose mixtures go by what they hold); tell senders to the aggregator.
"""

from __future__ import annotations

from protocols.disclosures.registry import each
from protocols.sessions.engine import Answering, Session
from protocols.sessions.part import STEPS


class RelaySession(Session):
    """RELAY: between clients and aggregator, for what must not be told whose it is."""

    made_of = (Answering, *each("relay"))
    table = STEPS


SESSION = RelaySession
NAMES = ("relay",)
