"""The matcher's session: compares tags, makes cells once, and tells each client its own (O24, O25).

It sees which tags are equal, so who has how much in common with whom, and no item, vector or total.
What it keeps others from is to read this graph. What it could do itself: make cells by another rule
(of the right size: clients check what they see), or tell a client false cells for an item, which
then gets the mean of other cells. In the form `published` it makes no cells, and hands each client
some vectors of those who hold its tags; it cannot open them, but with any client it can.
"""

from __future__ import annotations

from protocols.disclosures.registry import each
from protocols.sessions.engine import Answering, Session
from protocols.sessions.part import STEPS


class MatcherSession(Session):
    """MATCHER: compares tags that it cannot make."""

    made_of = (Answering, *each("matcher"))
    table = STEPS


SESSION = MatcherSession
NAMES = ("matcher",)
