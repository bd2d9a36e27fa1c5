"""All but one tag server against one client: its points, asked for by another client (O24).

The matcher, one tag server, one client and the aggregator work together; the other tag server is
honest and keeps the quota. The tag server reads the victim's points, the client asks the honest
server for them in place of its own, and the tag server takes the honest part off its own answer.
Nothing stops them before the victim's tags leave (docs/adr/0018, LIMITATIONS); its ledger tells.
"""

from __future__ import annotations

from dataclasses import replace

from crypto import ristretto
from crypto.oprf import KeyShare, blind, pointwise
from protocols import desks
from protocols.cells import matched as honest
from protocols.control import Bundle
from protocols.match_wire import Kind
from protocols.matching import ClientMatching
from protocols.sessions.serving import cut_bundle
from protocols.tagging import TAG_BYTES, TagServer, _item
from tests.protocols.matched import ITEMS, Go, Items, matched_round, matching

VICTIM, SPY = "client-3", "client-9"  # the spy is asked last
HONEST, LIAR = "tag-server-1", "tag-server-2"


def negated(points):
    minus = ristretto.subtract_scalars(bytes(32), (1).to_bytes(32, "little"))
    return ristretto.multiply(minus, points)


class Liar(TagServer):
    """Answers the victim so that its key is one that this server knows."""

    world, mine = None, None

    def answer(self, client, epoch, points, spread=map):
        usual = super().answer(client, epoch, points, spread)
        if client != VICTIM:
            return usual
        run = self.world.papers("aggregator").match_run()
        (found,) = [m for m in self.world.aggregator._broker.here[HONEST] if type(m) is Bundle]
        box = cut_bundle(run, Kind.ANSWER, found.bundle)[SPY]
        part = run.open(box, Kind.ANSWER, epoch, self.world.identities[SPY], HONEST)
        known = self.mine.evaluate(pointwise(points))
        return b"".join(ristretto.add(known, negated(pointwise(part))))


def conspire(world, monkeypatch):
    """Return where the matcher puts the victim's tags."""
    stolen, read = [], {}
    usual = ClientMatching._ask
    liar = world.serving[LIAR]._desk
    wrong = Liar(liar._run.match)
    wrong.world, wrong.mine = world, KeyShare.generate()
    wrong.begin(1)
    liar._server = wrong

    def asking(self, items):
        boxes, run = usual(self, items), self._run
        name = self._me.party.name
        if name == VICTIM:
            me = world.identities[LIAR]
            stolen.append(run.open(boxes[LIAR], Kind.POINTS, self._epoch, me, VICTIM))
        if name == SPY:
            return {s: run.close(stolen[0], Kind.POINTS, self._epoch, self._me, s) for s in boxes}
        return boxes

    def each(tags, digests, match, cells=None):
        read["tags"] = {row.tobytes() for row in tags[VICTIM]}
        others = [d for n, d in digests.items() if n != VICTIM]
        found = honest(tags, dict.fromkeys(digests, others[0]), match, cells)
        own = replace(found.told[VICTIM], digest=digests[VICTIM])
        return replace(found, told={**found.told, VICTIM: own})

    monkeypatch.setattr(ClientMatching, "_ask", asking)
    monkeypatch.setattr(desks, "matched", each)
    monkeypatch.setattr(desks, "same_canary", lambda digests: digests[world.names[0]])
    guesses = blind([_item(item) for item in range(ITEMS)])
    outputs = guesses.finalize([wrong.mine.evaluate(guesses.points)])
    return read, {output[:TAG_BYTES]: item for item, output in enumerate(outputs)}


def canaries(world, number):
    """Return what the clients' ledgers hold of a round, by client."""
    return {n: e["canary"] for n in world.names for e in world.entries(n)
            if e["kind"] == "canary" and e["round"] == number}  # fmt: skip


def test_o24_limit_all_but_one_tag_server_read_one_client_and_its_ledger_tells(monkeypatch):
    world = matching(clients=11).start()
    matched_round(world)  # cells are made
    assert len(set(canaries(world, 1).values())) == 1 and len(canaries(world, 1)) == 11
    read, table = conspire(world, monkeypatch)
    lost = {("expand.match.tagged", SPY), ("expand.match.told", VICTIM)}
    world.lost = lambda item, sender, to: bool({(item, sender), (item, to)} & lost)
    world.prepare(2)
    world.pump(world.ask(2, given=Go(step=2), back=(Items,)))
    known = {table[tag] for tag in read["tags"] if tag in table}
    assert known == set(world.sites[VICTIM].items), "the limit that ADR 0018 states is gone: say so"
    told = canaries(world, 2)
    assert set(told) == set(world.names) - {SPY}
    others = {told[name] for name in told if name != VICTIM}
    assert len(others) == 1 and told[VICTIM] not in others
    served = [e for s in (HONEST, LIAR) for e in world.entries(s) if e["kind"] == "tags"]
    assert not any(entry["refused"] for entry in served)  # the quota was kept
