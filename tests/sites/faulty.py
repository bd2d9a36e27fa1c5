"""Parties that die while a run goes on in one process, and what must hold of the run all the same.

Every total that is opened is the sum over its survivors, and nothing leaves without an entry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.view import Summands
from protocols.evidence.ledger import read_lines
from protocols.messages import Message
from protocols.wire.envelope import Envelope, commitment
from protocols.wire.gateway import Gateway
from secure_fgl.sites.process import open_process
from secure_fgl.sites.session import Answerer
from secure_fgl.store.sides.party_side import place_of
from secure_fgl.transports.broker.messages import TASK, Code, SiteReply
from tests.sites.one_process import Desk
from tests.sites.stage import Parties

CLIP, STEP = 5.0, 1.0 / (2**15 - 1)
"""Of the presets: the largest value, and the share of it by which rounding may move a value."""


@dataclass
class Dying:
    """A way on which some parties are killed at every request, and asked again.

    By turns before they are asked, and when the reply is computed and kept and has not left.
    """

    parties: Parties
    killed: Collection[str]
    deaths: list[str] = field(default_factory=list)
    kept: dict[tuple[str, bytes], list[bytes]] = field(default_factory=dict)

    def __call__(self, desk: Desk, party: str, task: str, sent: Sequence[bytes]) -> SiteReply:
        place = (party, b"".join(sent))
        if party in self.killed and task == TASK and place not in self.kept:
            before = desk.deliver(party, task, sent).envelopes if len(self.deaths) % 2 else ()
            self.kept[place] = [*before]
            self.deaths.append(party)
            restart(desk, self.parties, party)
            return SiteReply(Code.AWAY)
        reply = desk.deliver(party, task, sent)
        if kept := self.kept.get(place):
            assert [*reply.envelopes] == kept  # the very answer
        return reply


def restart(desk: Desk, parties: Parties, party: str) -> None:
    """Let the system do what it does for a dead process, and start it again."""
    desk.seats[party].process.files.close()
    desk.seats[party] = Answerer(open_process(parties.kit(party)))


@dataclass
class Opened:
    """A total, and over whom it is said to be."""

    item: str
    round: int
    exchange: int
    survivors: tuple[str, ...]
    total: Message
    dims: Mapping[str, int]


@dataclass
class Sums:
    """What clients of this process summed up, before any guard, and what was opened of it."""

    said: dict[tuple[str, str, int, int, str], Message] = field(default_factory=dict)
    opened: list[Opened] = field(default_factory=list)

    @classmethod
    def watched(cls, patch: pytest.MonkeyPatch) -> Sums:
        """Watch every session that this process makes from now on."""
        found, release, views = cls(), Gateway.release, Summands.views

        def released(
            self: Gateway, id: str, messages: Any, to: str, where: Any, *more: Any
        ) -> Envelope:
            envelope = release(self, id, messages, to, where, *more)
            for one in messages:
                if one.disclosure is Disclosure.SUM:
                    place = self._context.me.party.name, id, where.round, where.exchange
                    found.said[*place, type(one).__name__] = one
            return envelope

        def seen(self: Summands) -> Any:
            made = views(self)
            for kind, view in made.items():
                at = self.item.id, self.where.round, self.where.exchange
                dims = self._context.dims(self.item)
                found.opened.append(Opened(*at, tuple(self.survivors), view.read("total"), dims))
                assert type(found.opened[-1].total) is kind
            return made

        patch.setattr(Gateway, "release", released)
        patch.setattr(Summands, "views", seen)
        return found

    def off(self, one: Opened, clients: Collection[str]) -> float:
        """Return how much farther a total is from the sum over some clients than rounding moves it.

        In roundings, and in whole numbers where nothing is rounded; 0 if it is that sum.
        """
        name, worst = type(one.total).__name__, 0.0
        for place in one.total.fields:
            total = np.asarray(getattr(one.total, place.name))
            at = one.item, one.round, one.exchange, name
            parts = [np.asarray(getattr(self.said[client, *at], place.name)) for client in clients]
            if total.dtype.kind == "f":
                bound = CLIP * (one.dims[place.scale] if place.scale else 1)
                apart = np.abs(total - np.sum(np.clip(parts, -bound, bound), axis=0))
                worst = max(worst, float(np.max(apart)) / (bound * STEP) - len(parts))
            else:
                worst = max(worst, float(np.max(np.abs(total - np.sum(parts, axis=0)))))
        return worst

    def check(self, smallest: int) -> list[int]:
        """Hold every total to its survivors; return how many they were, by exchange."""
        assert self.opened
        for one in self.opened:
            assert len(set(one.survivors)) == len(one.survivors) >= smallest
            assert self.off(one, one.survivors) <= 0.0, one.item
            assert self.off(one, one.survivors[1:]) > 0.0, one.item  # the control
        lists = {(one.item, one.round, one.exchange, one.survivors) for one in self.opened}
        assert len({place[:3] for place in lists}) == len(lists)  # one list for each, ever
        return [len(survivors) for *_, survivors in sorted(lists, key=lambda place: place[2])]


def unrecorded(folder: Path, left: Collection[bytes]) -> list[str]:
    """Return the items of a party's envelopes that left and that its ledger does not name."""
    data = (place_of(folder) / "run" / "ledger" / f"{folder.name}.jsonl").read_bytes()
    entries = [entry for entry, _ in read_lines(data)]
    named = {entry["commitment"] for entry in entries if entry["kind"] == "release"}
    made = [Envelope.decode(one) for one in left]
    return [e.header.item for e in made if commitment(e) not in named]
