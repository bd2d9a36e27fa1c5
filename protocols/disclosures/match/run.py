"""A client's part in matching within a run: from what its algorithm says to what it is told.

`client.ClientMatching` does the steps; here is what a session adds: the epoch is the
round, everything belongs to one Ask, and what is found becomes the message that the algorithm
reads: means over cells, or in the form `published` single others' vectors.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.oprf import Spread
from crypto.samplers import Mute, Stream
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.layout import MatchLayout, found_message
from protocols.disclosures.match.messages import CellTotals, Listed
from protocols.disclosures.match.protocol.cells import LABEL_BYTES, context
from protocols.disclosures.match.protocol.client import ClientMatching
from protocols.disclosures.match.protocol.tagging import chosen
from protocols.disclosures.match.protocol.wire import Kind, MatchRun
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.messages import Message
from protocols.plan.plan import Item, Plan
from protocols.policy.guard import Guard, find
from protocols.wire.envelope import Where
from protocols.wire.roster import Identity, Roster
from protocols.wire.run_context import RunContext

__all__ = ["MatchSide", "held", "match_item", "match_run", "match_run_of"]

VALUES = "match_values"
"""The plan item's size that says how many integers a client carries."""


def match_guard(chain: Sequence[Guard]) -> Match | None:
    """Return the guard ``match`` of a chain, None if there is none."""
    found = find(tuple(chain), "match")
    return found if isinstance(found, Match) else None


def shared_key(chain: Sequence[Guard]) -> bool:
    """Tell whether tags are made with one key that all clients hold (``hmac``)."""
    guard = match_guard(chain)
    return guard is not None and guard.mode == "hmac"


def match_item(plan: Plan) -> Item | None:
    """Return the upload that is matched by tags; None if a plan holds none."""
    found = [i for i in plan.items if i.disclosure is Disclosure.MATCH and VALUES in i.dims]
    return found[0] if found else None


def match_run(plan: Plan, run: str, roster: Roster, guard: Match | None) -> MatchRun | None:
    """Return what all parties of a matching agree on; None if nothing is matched by tags."""
    item = match_item(plan)
    if item is None or guard is None:
        return None
    return MatchRun(run, roster, guard, item.dims[VALUES])


def match_run_of(context: RunContext) -> MatchRun | None:
    """Return what all parties of this run's matching agree on; None if nothing is matched."""
    guard = match_guard(context.policy.rules.get(Disclosure.MATCH, ()))
    return match_run(context.plan, context.run, context.roster, guard)


def held(context: RunContext) -> MatchSide:
    """Return what this client remembers of matching; raises LocalProtocolError if nothing."""
    found = context.held.get(Disclosure.MATCH)
    if not isinstance(found, MatchSide):
        raise LocalProtocolError("This client takes no part in matching.")
    return found


class MatchSide(Mute):
    """What a client remembers of matching.

    Args:
        run: what all parties agree on.
        me: the client.
        key: of tags, in ``hmac`` mode.
        spread: how tags are worked through.
    """

    def __init__(
        self, run: MatchRun, me: Identity, key: bytes | None, spread: Spread = map
    ) -> None:
        self._run, self._client = run, ClientMatching(run, me, key=key, spread=spread)
        self._values: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._where: Where | None = None
        self._step, self._levels, self._widest = 0.0, 0, 0
        self._near: tuple[NDArray[np.int64], dict[int, list[int]]] | None = None

    def begin(
        self, message: Message, layout: MatchLayout, where: Where, stream: Stream
    ) -> tuple[bytes, bool]:
        """Return the box that leaves first, and whether the vector was clipped.

        Tags are asked for, in ``hmac`` mode handed over. The integers stay here until a cell is
        known.

        Raises:
            UnfitMessage: the message is not what it declares.
            Replay: this round's matching began before.
        """
        items, values, clipped = layout.encode(message, stream)
        picked = chosen(items, range(layout.catalogue), self._run.match)
        box = self._client.ask(where.round, picked)
        self._values, self._where, self._near = values, where, None
        self._step, self._levels, self._widest = layout.step, layout.levels, layout.widest
        return box or self.hand_over(), clipped

    def check(self, where: Where) -> None:
        """Raise BadEnvelope unless an envelope belongs to the Ask that this matching began with."""
        mine = self._where
        if mine is None or _place(mine) != _place(where):
            raise BadEnvelope("What was matched belongs to another Ask than the one answered.")

    @property
    def where(self) -> Where:
        """The Ask that this matching began with."""
        if self._where is None:
            raise LocalProtocolError("Nothing is being matched.")
        return self._where

    def forward(self, box: bytes) -> bytes:
        """Take the first tag server's box; return the box for the second."""
        return self._client.forward(box)

    def hand_over(self, box: bytes = b"") -> bytes:
        """Take the second tag server's box, or none in ``hmac`` mode; return the matcher's."""
        if not self._run.published:
            return self._client.hand_over(box)
        values, self._values = self._values, np.zeros(0, dtype=np.int64)
        return self._client.hand_over(box, values)

    @property
    def published(self) -> bool:
        """Whether this client is told single others' vectors."""
        return self._run.published

    def take(self, box: bytes) -> None:
        """In the form `published`, take the matcher's box and keep the lists until all are told.

        Raises:
            BadEnvelope: the matcher or a tag server lied.
        """
        self._near = self._client.take(box)

    def share(self, box: bytes) -> tuple[int, tuple[str, ...], bytes]:
        """Take the matcher's box; return the cell, its members, and a box for each of them.

        Raises:
            BadEnvelope: the matcher or a tag server lied, or the cell is larger than planned.
        """
        where = self.where
        found = self._client.share(box, self._values, where.exchange, where.given)
        self._values = np.zeros(0, dtype=np.int64)
        members = tuple(sorted(found))
        if len(members) > self._run.match.largest(len(self._run.roster.clients)):
            raise BadEnvelope("A cell is larger than any honest matcher makes it (O25).")
        return self._client.cell, members, b"".join(found[name] for name in members)

    def add(self, boxes: bytes) -> tuple[bytes, bytes]:
        """Take a box from each member of the cell, sorted; return its label and a blinded sum."""
        size = self._run.length(Kind.SHARE)
        cut = {n: boxes[i * size : (i + 1) * size] for i, n in enumerate(self._client.members)}
        return self._client.add(cut, self.where.given)

    def found(
        self, kind: type[Message], told: CellTotals | Listed, dims: Mapping[str, int], where: Where
    ) -> Message:
        """Return the algorithm's message, of the lists that are here or of all cells' totals.

        Raises:
            BadEnvelope: others were matched by another canary (O8, O24), or this client took no
                part in this round.
        """
        if self._where is None or self._where.round != where.round:
            raise BadEnvelope("What was found in a round is given to who took part in it.")
        if not hmac.compare_digest(told.canary, self._client.digest):
            raise BadEnvelope(
                "The others were matched by another canary than this client (O24).",
                why="a tag server used another key for some, and the matcher said nothing",
                fix="stop the run; compare the ledgers of both tag servers and of the matcher",
            )
        found = self._means(told) if isinstance(told, CellTotals) else self._listed()
        self._where = self._near = None  # it is given once
        return found_message(kind, dims, found)

    def _listed(self) -> list[tuple[int, NDArray[np.float64]]]:
        if self._near is None:
            raise BadEnvelope("This client was told no list of neighbours in this round.")
        vectors, rows = self._near
        honest = np.abs(vectors).max(axis=1, initial=0) <= self._widest  # others clipped nothing
        return [
            (item, self._step * vectors[at]) for item in rows for at in rows[item] if honest[at]
        ]

    def _means(self, told: CellTotals) -> list[tuple[int, NDArray[np.float64]]]:
        client = self._client
        cells = client.sizes.size
        totals = np.frombuffer(told.totals, dtype="<u4").reshape(-1, self._run.size)
        mask = np.frombuffer(told.there, dtype=np.uint8)
        there = np.unpackbits(mask, bitorder="little").astype(bool)
        if there[cells:].any():
            raise BadEnvelope("A cell is opened that there is not.")
        labels = [told.labels[i * LABEL_BYTES : (i + 1) * LABEL_BYTES] for i in range(cells)]
        steps, usable = client.open(totals[:cells], there[:cells], labels, self._levels)
        return [
            (item, self._step * context(place[None, :], steps, usable)[0])
            for item, place in sorted(client.rows.items())
            if (place & usable).any()
        ]

    @property
    def tagged(self) -> dict[str, NDArray[Any]]:
        """For audits at this client: its tags, and which of them are of which place."""
        held = self._client.held
        places = sorted(held.places.items())
        found = np.array(places, dtype=np.int64).reshape(-1, 2)
        return {"sent": held.sent, "items": found[:, 0], "rows": found[:, 1]}

    @property
    def digest(self) -> str:
        """Digest of the canary, as ledgers say it."""
        return self._client.digest.hex()

    @property
    def cells(self) -> int:
        """How many cells there are; 0 in the form `published`."""
        return 0 if self._run.published else int(self._client.sizes.size)


def _place(where: Where) -> tuple[object, ...]:
    return (where.round, where.exchange, where.attempt, where.members, where.given)
