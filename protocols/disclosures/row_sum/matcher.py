"""The matcher's part in rows: says who adds up which row for whom, by tags that it cannot make."""

from __future__ import annotations

from typing import ClassVar

from crypto.samplers import entropy
from protocols.disclosures.match.messages import Canary
from protocols.disclosures.match.protocol.bundles import bundled, read_bundle
from protocols.disclosures.match.protocol.cells import same_canary
from protocols.disclosures.match.protocol.wire import Kind
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.protocol.assignment import assigned, confirmed, orders
from protocols.disclosures.row_sum.protocol.wire import orders_bytes, read_offer
from protocols.disclosures.row_sum.run import needed_run
from protocols.errors import Replay
from protocols.plan.steps import Step
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.table import Event
from protocols.wire.inbox import Incoming


class RowMatcher(SessionPart):
    """Assigns rows, once in a run; it remembers that it did, and nothing of them.

    In captured rounds it keeps the tags that it compared, locked, for audits (A02, A03).
    """

    called: ClassVar[str] = "rows"
    lasting: ClassVar[frozenset[str]] = frozenset({"_done"})

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._done = False

    def _answer(self, incoming: Incoming) -> list[Delivery]:
        """Return a box for every client whose offer is here."""
        self._engine.move(Event.STEP)
        run, me = needed_run(self._context), self._context.me
        where, boxes = read_bundle(self._engine, incoming, Kind.TAGS, run)
        if self._done:
            raise Replay("Rows of a run are assigned once: a node enters one of them (O25).")
        self._done = True
        said = {
            name: read_offer(run.open(box, Kind.TAGS, where.round, me, name), run)
            for name, box in boxes.items()
        }
        digest = same_canary({name: one[0] for name, one in said.items()})
        named = {name: offer for name, (_, _, offer) in said.items()}
        served = assigned(confirmed(named), run.floor, run.guard.rows, each=run.each, said=named)
        key = entropy(32)
        found = {
            name: run.close(
                orders_bytes(orders(served, name, digest), sent, run, key),
                Kind.TOLD, where.round, me, name,
            )
            for name, (_, sent, _) in said.items()
        }  # fmt: skip
        facts = {"canary": digest.hex(), "clients": len(boxes), "sums": len(served)}
        place = {"exchange": where.exchange, "round": where.round}
        self._engine.record("rows", {**facts, **place})
        if self._engine.recorder is not None:
            view = {name: sent.tobytes() for name, (_, sent, _) in said.items()}
            self._engine.recorder.viewed(incoming.item.exchange, where, view)
        item = self._context.find(incoming.item.exchange, Disclosure.ROW_SUM, Step.COMPARED)
        answer = [bundled(run, where, Kind.TOLD, found), Canary(canary=digest)]
        return [self._engine.send(item, answer, incoming.header.sender, where)]

    takes: ClassVar[Takes] = {(Disclosure.ROW_SUM, Step.COMPARE): _answer}


MATCHER = RowMatcher
