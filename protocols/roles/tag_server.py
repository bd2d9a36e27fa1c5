"""A tag server's session: multiplies clients' points by its share of the epoch's key (O24).

It sees who asks and when, and uniform points: as first server those that clients blinded, as second
one those times the first's share. What it keeps others from is to make tags without it,
and to test more guesses than a client's quota: one batch a client and round. What it could do
itself: use another key for somebody, which the canary shows; tell its share to the matcher and to
the other server, with which all tags are open.
"""

from __future__ import annotations

from protocols.disclosures.registry import each
from protocols.sessions.engine import Answering, Session
from protocols.sessions.part import STEPS


class TagServerSession(Session):
    """TAG_SERVER: holds one share of the key of tags, drawn anew every epoch."""

    made_of = (Answering, *each("tag_server"))
    table = STEPS


SESSION = TagServerSession
NAMES = ("tag-server-1", "tag-server-2")
