"""What parties that work together get out of a matching beyond what ADR 0018 grants them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from protocols.disclosures.match import aggregator as brokering
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol import tag_service as sides
from protocols.disclosures.match.protocol.cells import check_told
from protocols.disclosures.match.protocol.cells import matched as honest
from protocols.disclosures.match.protocol.tagging import TagServer
from protocols.errors import BadEnvelope, Refused
from tests.protocols.matched import (
    STEP,
    Change,
    Found,
    Go,
    Items,
    cells_of,
    match_policy,
    matched_round,
    matching,
)
from tests.protocols.matching import compared, keyed_all


def test_o25_two_cells_of_one_number_do_not_share_a_blind(monkeypatch):
    """Matcher and aggregator, no client: both cells are told that they are number 0."""
    world = matching(clients=10).start()

    def lying(*arguments):
        found = honest(*arguments)
        told = {}
        for name, one in found.told.items():
            rows = one.rows[:, ::-1] if one.cell else one.rows
            told[name] = replace(one, cell=0, bits=np.packbits(rows, axis=1))
        return replace(found, told=told)

    def helping(run, said):
        groups = sorted({run.roster.unmask(mask) for _, mask in said.values()})
        return dict(enumerate(groups))

    monkeypatch.setattr(sides, "matched", lying)
    monkeypatch.setattr(brokering, "whole_cells", helping)
    world.prepare(1)
    world.pump(world.ask(1, given=Go(step=1), back=(Items,)))
    told = world.aggregator.reply().matched(Items, into=Found)
    words = np.frombuffer(told.told.totals, "<u4").reshape(-1, 3)
    read = (words[0] - words[1]).view(np.int32) * STEP
    cells = cells_of(world)
    sums = [
        np.sum([world.sites[n].vector for n in world.names if cells[n] == c], axis=0)
        for c in (0, 1)
    ]
    off = min(np.abs(read - d).max() for d in (sums[0] - sums[1], sums[1] - sums[0]))
    world.pump(world.ask(1, given=(Go(step=1), told), back=(Change,)))  # and nobody refuses
    assert off > 11 * STEP, "the aggregator reads the difference of two cells' totals"


def test_o24_a_share_of_the_key_is_gone_once_its_epoch_is_answered():
    """It serves one bundle an epoch; kept on, it lies in memory and in the kept state."""
    world = matching().start()
    matched_round(world)
    for name in ("tag-server-1", "tag-server-2"):
        assert getattr(world.serving[name].tags._side._server, "_share", None) is None


def test_o10_a_floor_counts_colluders():
    """Two that collude put an item into their batches and find its only other holder's cell."""
    match_policy(colluders=2, cell=7, floor=5)
    with pytest.raises(ValidationError, match="floor: at least 3"):
        match_policy(floor=2)
    with pytest.raises(ValidationError, match="floor"):
        match_policy(colluders=2, cell=7, floor=3)


@pytest.mark.parametrize("own", [[3], [3, 5, 7]])
def test_o24_a_refusal_does_not_tell_the_matcher_which_tags_are_random(own):
    """A bit under each tag in turn: what is refused must not count the items of a client."""
    match = Match(cap=8, canaries=2, floor=2, popular=0.0)
    items = {f"c{n}": own if n == 0 else [20 + n] for n in range(5)}
    tags = keyed_all(items, match)
    told = compared(tags, match).told["c0"]
    refused = 0
    for row in range(match.cap):
        lie = told.bits.copy()
        lie[row] = 128  # this cell
        try:
            check_told(replace(told, bits=lie), tags["c0"], "c0", match, sorted(items))
        except BadEnvelope:
            refused += 1
    assert refused in (0, match.cap), f"{match.cap - refused} of the tags are items"


def test_o24_a_matcher_that_fails_forgets_the_tags(monkeypatch):
    """Its session is kept on; tags that it compared must not lie in it."""

    def failing(*arguments):
        raise BadEnvelope("the comparison failed")

    world = matching().start()
    monkeypatch.setattr(sides, "matched", failing)
    with pytest.raises(Refused):
        matched_round(world)
    side = world.serving["matcher"].tags._side
    assert side.tags == {} and side.digest


def test_o24_a_tag_server_that_fails_forgets_its_share(monkeypatch):
    def failing(*arguments, **more):
        raise BadEnvelope("no points")

    world = matching().start()
    monkeypatch.setattr(TagServer, "answer", failing)
    with pytest.raises(Refused):
        matched_round(world)
    assert world.serving["tag-server-1"].tags._side._server._share is None
