"""All parties of a matching by boxes, without sessions."""

from __future__ import annotations

from functools import cache

import numpy as np

from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.cells import LABEL_BYTES, total
from protocols.disclosures.match.protocol.client import ClientMatching
from protocols.disclosures.match.protocol.tag_service import MatcherSide, TagServerSide
from protocols.disclosures.match.protocol.wire import MatchRun
from protocols.errors import (
    RoundLost,
)
from protocols.wire.roles import Role
from protocols.wire.roster import Identity, Roster
from tests.protocols.matching import KEY, RUN, crowd

MATCH = Match(cap=16, canaries=3, floor=2)
KEYED = Match(cap=16, canaries=3, floor=2, mode="hmac")
OTHERS = {
    "aggregator": Role.AGGREGATOR,
    "matcher": Role.MATCHER,
    "tags-1": Role.TAG_SERVER,
    "tags-2": Role.TAG_SERVER,
}
SIZE, LEVELS = 4, 1000


@cache
def people(clients: int = 11) -> dict[str, Identity]:
    names = {f"c{n:03d}": Role.CLIENT for n in range(clients)} | OTHERS
    return {name: Identity.generate(name, role) for name, role in names.items()}


class World:
    """All parties of one run, with an aggregator that a test may replace."""

    def __init__(self, match: Match = MATCH, clients: int = 11) -> None:
        known = people(clients)
        roster = Roster(identity.party for identity in known.values())
        self.run, self.known, self.names = MatchRun(RUN, roster, match, SIZE), known, roster.clients
        key = KEY if match.mode == "hmac" else None
        self.clients = {n: ClientMatching(self.run, known[n], key=key) for n in self.names}
        servers = ("tags-1", "tags-2") if match.mode == "oprf" else ()
        self.sides = {name: TagServerSide(self.run, known[name]) for name in servers}
        self.matcher = MatcherSide(self.run, known["matcher"])
        self.items = crowd(clients, 40, match.cap, seed=1)
        rng = np.random.default_rng(0)
        self.values = {n: rng.integers(-LEVELS, LEVELS + 1, SIZE) for n in self.names}
        self.sizes: dict[str, set[int]] = {}

    def _seen(self, kind: str, boxes) -> None:
        self.sizes.setdefault(kind, set()).update(map(len, boxes))

    def asked(self, epoch: int) -> dict[str, bytes]:
        for side in self.sides.values():
            side.begin(epoch)
        asked = {n: c.ask(epoch, self.items[n]) for n, c in self.clients.items()}
        self._seen("points", asked.values())
        return asked

    def served(self, server: str, asked, epoch: int) -> dict[str, bytes]:
        found = {n: self.sides[server].answer(n, epoch, box) for n, box in asked.items()}
        self._seen("answer", found.values())
        return found

    def onward(self, epoch: int) -> dict[str, bytes]:
        halfway = self.served("tags-1", self.asked(epoch), epoch)
        found = {n: c.forward(halfway[n]) for n, c in self.clients.items()}
        self._seen("points", found.values())
        return found

    def answered(self, epoch: int) -> dict[str, bytes]:
        return self.served("tags-2", self.onward(epoch), epoch)

    def tags(self, epoch: int = 0) -> dict[str, bytes]:
        answers = self.answered(epoch) if self.sides else dict.fromkeys(self.names, b"")
        if not self.sides:
            self.asked(epoch)
        found = {n: c.hand_over(answers[n]) for n, c in self.clients.items()}
        self._seen("tags", found.values())
        return found

    def told(self, epoch: int = 0) -> dict[str, bytes]:
        found = self.matcher.match(epoch, self.tags(epoch))
        self._seen("told", found.values())
        return found

    def shared(self, epoch: int = 0, exchange: int = 1) -> dict[str, dict[str, bytes]]:
        told = self.told(epoch)
        found = {n: c.share(told[n], self.values[n], exchange) for n, c in self.clients.items()}
        for boxes in found.values():
            self._seen("share", boxes.values())
        return found

    def cells(self) -> dict[str, int]:
        return {n: c.cell for n, c in self.clients.items()}

    def added(self, shared):
        """What an honest aggregator does: hand on boxes, add what comes back, cell by cell."""
        cells = self.cells()
        count = max(cells.values()) + 1
        totals, there = np.zeros((count, SIZE), np.uint32), np.zeros(count, bool)
        labels = [bytes(LABEL_BYTES)] * count
        for cell in range(count):
            members = [n for n in self.names if cells[n] == cell]
            parts = []
            for me in members:
                boxes = {o: shared[o][me] for o in members if o in shared}
                try:
                    parts.append(self.clients[me].add(boxes))
                except RoundLost:
                    continue
            if len(parts) == len(members):
                labels[cell], totals[cell] = total(parts, len(members), SIZE)
                there[cell] = True
        return totals, there, labels
