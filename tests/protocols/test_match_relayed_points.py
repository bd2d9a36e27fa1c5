"""All but one tag server against one client: what they make of its points, and of others' (O24).

The matcher, one tag server, other clients and the aggregator work together; the other tag server is
honest and keeps the quota. Where shares of the key were added, the liar had a client ask the honest
server for the victim's points and took the honest part off its own answer: the victim's key was one
that it knew. Shares are multiplied, so all that it can give is a polynomial in the honest share
without a constant term (docs/adr/0018). Here it tries, as first server and as second.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import rbcl

from crypto.oprf import KeyShare, blind, joined, pointwise
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol import tag_service as sides
from protocols.disclosures.match.protocol.cells import matched as honest
from protocols.disclosures.match.protocol.client import ClientMatching
from protocols.disclosures.match.protocol.tagging import TAG_BYTES, TagBatch, TagServer, _item
from protocols.disclosures.match.protocol.wire import Kind
from protocols.errors import BadEnvelope, Refused
from tests.protocols.matched import ITEMS, Go, Items, matched_round, matching
from tests.protocols.matching import RUN

MATCH = Match(cap=16, canaries=3)
OWN = [1, 4, 9, 16, 25, 36]
VICTIM, SPY = "client-3", "client-9"
SERVERS = ("tag-server-1", "tag-server-2")


def table(*keys):
    """Return tag -> item of the whole catalogue, under keys that somebody knows."""
    found = {}
    for key in keys:
        guesses = blind([_item(item) for item in range(ITEMS)])
        outputs = guesses.finalize(key.evaluate(guesses.points))
        found |= {output[:TAG_BYTES]: item for item, output in enumerate(outputs)}
    return found


def minus(left, right):
    return [rbcl.crypto_core_ristretto255_sub(a, b) for a, b in zip(left, right, strict=True)]


def plus(left, right):
    return [rbcl.crypto_core_ristretto255_add(a, b) for a, b in zip(left, right, strict=True)]


def read(tags, known):
    return {known[row.tobytes()] for row in tags.sent if row.tobytes() in known}


# --- with the honest server as an oracle: asked at will, in any order, by many clients ------------


class Attack:
    """A liar with other clients' quotas, which knows `key` and wants a victim's tags under it."""

    def __init__(self):
        self.server, self.asked = TagServer(MATCH), 0
        self.server.begin(0)
        self.key, self.share = KeyShare.generate(), KeyShare.generate()

    def oracle(self, points):
        """Return points times the honest share; another client's quota pays."""
        self.asked += 1
        return pointwise(self.server.answer(f"spy-{self.asked}", 0, b"".join(points)))

    @property
    def known(self):
        """Every key that the liar can make without asking."""
        keys = (self.key, self.share)
        return (*keys, joined(*keys), joined(self.key, self.key), KeyShare(b"\1" + bytes(31)))


LIES = {
    "a key of its own": lambda a, seen: a.key.evaluate(seen),
    "relayed": lambda a, seen: a.oracle(seen),
    "relayed, under its own key": lambda a, seen: a.key.evaluate(a.oracle(seen)),
    "squared": lambda a, seen: a.oracle(a.oracle(seen)),
    "the honest part taken off": lambda a, seen: minus(a.key.evaluate(seen), a.oracle(seen)),
    "of the square, too": lambda a, seen: minus(a.key.evaluate(seen), a.oracle(a.oracle(seen))),
    "its own part added": lambda a, seen: plus(a.oracle(seen), a.share.evaluate(seen)),
}


def lied(attack, lie, first):
    """Return the victim's tags, where the liar is first or second."""
    batch = TagBatch(OWN, MATCH, RUN, 0)
    points = pointwise(batch.points)
    if first:
        halfway = batch.checked(b"".join(lie(attack, points)))
        return batch.finish(attack.server.answer("victim", 0, halfway))
    halfway = batch.checked(attack.server.answer("victim", 0, batch.points))
    return batch.finish(b"".join(lie(attack, pointwise(halfway))))


@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize("lie", LIES)
def test_o24_no_lie_gives_a_victim_tags_under_a_known_key(lie, first):
    attack = Attack()
    tags = lied(attack, LIES[lie], first)
    assert not read(tags, table(*attack.known))


@pytest.mark.parametrize("few", [slice(None), slice(7, 8)], ids=["all", "one"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_o24_a_server_that_does_nothing_is_refused(first, few):
    """Tags would be the honest server's alone: what that keeps for audits would look them up."""

    def lie(a, seen):
        found = a.share.evaluate(seen)
        found[few] = seen[few]
        return found

    attack = Attack()
    with pytest.raises(BadEnvelope, match="sent back what it was asked"):
        tags = lied(attack, lie, first)
        alone = attack.server.alone(ITEMS)
        known = {alone[at * TAG_BYTES :][:TAG_BYTES]: at for at in range(ITEMS)}
        pytest.fail(f"{len(read(tags, known))} of {len(OWN)} items are read")


@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_o24_a_lie_at_few_points_reads_none_of_them(first):
    few, through = (0, 3, 7), 0

    def lie(a, seen):
        wrong, usual = a.key.evaluate(seen), a.share.evaluate(seen)
        return [w if at in few else u for at, (w, u) in enumerate(zip(wrong, usual, strict=True))]

    for _ in range(20):  # of the batches 0.42 are refused: a canary stands among the few
        attack = Attack()
        try:
            tags = lied(attack, lie, first)
        except BadEnvelope as error:
            assert "Copies of one text" in error.what
        else:
            through += 1
            assert not read(tags, table(attack.key, attack.share))
    assert 0 < through < 20


@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_o24_with_a_clients_quota_they_read_their_guesses_and_no_more(first):
    """What ADR 0018 grants to matcher and client; a tag server adds nothing to it."""
    attack = Attack()
    tags = lied(attack, LIES["a key of its own"], first)
    guesses = list(range(MATCH.places))
    batch = blind([_item(item) for item in guesses])
    outputs = batch.finalize(attack.key.evaluate(attack.oracle(batch.points)))
    asked = {output[:TAG_BYTES]: item for item, output in zip(guesses, outputs, strict=True)}
    assert read(tags, asked) == {item for item in OWN if item < MATCH.places} != set(OWN)
    assert attack.asked == 1


def test_control_where_shares_are_added_the_honest_part_is_taken_off():
    attack, batch = Attack(), blind([_item(item) for item in OWN] + [b""] * 13)
    part = attack.oracle(batch.points)
    lie = minus(attack.key.evaluate(batch.points), part)
    outputs = batch.finalize(plus(lie, attack.oracle(batch.points)))
    known = table(attack.key)
    assert [known[output[:TAG_BYTES]] for output in outputs[: len(OWN)]] == OWN


def test_control_a_second_server_that_saw_the_clients_points_reads_everything():
    """Why the first box is sealed to the first server and the points in it go nowhere else."""
    attack, batch = Attack(), TagBatch(OWN, MATCH, RUN, 0)
    attack.server.answer("victim", 0, batch.points)
    tags = batch.finish(b"".join(attack.key.evaluate(pointwise(batch.points))))
    assert read(tags, table(attack.key)) == set(OWN)


# --- in whole rounds ------------------------------------------------------------------------------


class Liar(TagServer):
    """Answers the victim under a key of its own."""

    mine, seen = None, b""

    def answer(self, client, epoch, points, spread=map):
        usual = super().answer(client, epoch, points, spread)
        if client != VICTIM:
            return usual
        self.seen = points
        return b"".join(self.mine.evaluate(pointwise(points)))


def turn(world, liar, monkeypatch):
    """Let a tag server lie; if it is the first, the spy asks the second for the victim's points."""
    side = world.serving[liar].tags._side
    wrong = Liar(side._run.match)
    wrong.mine, side._server = KeyShare.generate(), wrong
    usual = ClientMatching._forward

    def forwarding(self, answer):
        box, run = usual(self, answer), self._run
        if self._me.party.name == SPY and liar == run.servers[0]:
            return run.close(wrong.seen, Kind.POINTS, self._epoch, self._me, run.servers[1])
        return box

    monkeypatch.setattr(ClientMatching, "_forward", forwarding)
    return wrong


def quiet(world, monkeypatch):
    """Let the matcher say that all canaries agree, and keep what it compared."""
    kept = {}

    def each(tags, digests, match, cells=None):
        kept.update(tags)
        other = next(d for n, d in digests.items() if n != VICTIM)
        found = honest(tags, dict.fromkeys(digests, other), match, cells)
        told = {n: replace(one, digest=digests[n]) for n, one in found.told.items()}
        return replace(found, told=told)

    monkeypatch.setattr(sides, "matched", each)
    monkeypatch.setattr(sides, "same_canary", lambda digests: digests[world.names[0]])
    return kept


@pytest.mark.parametrize("liar", SERVERS)
def test_o24_an_honest_matcher_ends_the_round(liar, monkeypatch):
    world = matching(clients=11).start()
    matched_round(world)
    turn(world, liar, monkeypatch)
    # The spy's own batch is worth nothing then, and its client would stop at its canaries.
    world.lost = lambda item, sender, to: item == "expand.match.tagged" and to == SPY
    world.prepare(2)
    with pytest.raises(Refused):
        world.pump(world.ask(2, given=Go(step=2), back=(Items,)))
    error = world.session("matcher").last_error
    assert f"canary of 1 clients differs ({VICTIM})" in str(error)


@pytest.mark.parametrize("liar", SERVERS)
def test_o24_with_a_matcher_that_helps_nothing_is_read_and_the_victims_ledger_tells(
    liar, monkeypatch
):
    world = matching(clients=11).start()
    matched_round(world)  # cells are made
    wrong, compared = turn(world, liar, monkeypatch), quiet(world, monkeypatch)
    lost = {("expand.match.tagged", SPY), ("expand.match.told", VICTIM)}
    world.lost = lambda item, sender, to: bool({(item, sender), (item, to)} & lost)
    world.prepare(2)
    world.pump(world.ask(2, given=Go(step=2), back=(Items,)))
    tags = {row.tobytes() for row in compared[VICTIM]}
    assert wrong.seen and not tags & set(table(wrong.mine))
    others = {row.tobytes() for n, rows in compared.items() if n != VICTIM for row in rows}
    assert not tags & others  # it is in no cell's lists either
    told = {n: e["canary"] for n in world.names for e in world.entries(n)
            if e["kind"] == "canary" and e["round"] == 2}  # fmt: skip
    assert set(told) == set(world.names) - {SPY}
    rest = {told[name] for name in told if name != VICTIM}
    assert len(rest) == 1 and told[VICTIM] not in rest
    served = [e for s in SERVERS for e in world.entries(s) if e["kind"] == "tags"]
    assert not any(entry["refused"] for entry in served)  # the quota was kept
