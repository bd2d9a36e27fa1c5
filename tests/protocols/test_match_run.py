"""Items matched within a run: through every session, and as plaintext matching would (O24, O25)."""

from __future__ import annotations

import numpy as np
import pytest

from crypto.oprf import Blinded, KeyShare
from protocols.disclosures.match.protocol.tagging import Tags
from protocols.disclosures.match.run import MatchSide, held
from tests.laws.search import found, spellings, travelled
from tests.laws.walk import reachable
from tests.protocols.matched import Change, cells_of, matched_round, matching, same


@pytest.mark.parametrize("mode", ["oprf", "hmac", "deterministic"])
def test_clients_are_told_what_plaintext_matching_tells(mode):
    world = matching(mode=mode).start()
    reply = matched_round(world)
    same(world)
    assert np.allclose(reply.total(Change).change, 11 * 0.125, atol=1e-3)
    first = cells_of(world)
    matched_round(world, 2)
    same(world)
    assert cells_of(world) == first


HOLDS = {
    "aggregator": (),
    "matcher": (),
    "tag-server-1": (KeyShare,),
    "client-1": (Tags, MatchSide),
}
SECRET = (KeyShare, Blinded, Tags, MatchSide)


@pytest.mark.parametrize("who", HOLDS)
def test_o24_who_holds_which_secrets_of_matching(who):
    """Every object that a session reaches, after a round."""
    world = matching().start()
    matched_round(world)
    session, others = world.session(who), {id(s) for s in world.sites.values()}
    kinds = {type(o) for o in reachable(session) if isinstance(o, SECRET) and id(o) not in others}
    assert kinds <= set(HOLDS[who]), kinds
    if who == "client-1":
        assert kinds == set(HOLDS[who])  # the walk does find them
        mine = [o for o in reachable(session) if isinstance(o, Tags)]
        assert len(mine) == 1


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_o25_nothing_of_a_vector_or_a_tag_is_on_the_wire(mode):
    world = matching(mode=mode).start()
    matched_round(world)
    wire = travelled(world.wire)
    vectors = [s for site in world.sites.values() for s in spellings(site.vector)]
    assert found(vectors, wire) == 0
    for name in world.names:
        for tag in held(world.context(name))._client.held.sent:
            assert tag.tobytes() not in wire
    planted = wire + vectors[0]
    assert found(vectors, planted) > 0  # the search does find
