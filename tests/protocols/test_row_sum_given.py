"""Rows under an aggregator that hands each client another model, which terms follow from (O8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocols.disclosures.match.aggregator import Matching
from protocols.disclosures.row_sum.protocol.client import ClientRows
from protocols.errors import Refused
from protocols.forms import Exchange, Form
from protocols.sessions.part import Collection
from protocols.wire.envelope import Envelope
from tests.protocols.rowed import (
    ADDING,
    EACH,
    STEP,
    Go,
    Terms,
    row_plan,
    row_policy,
    row_round,
    rowed,
)
from tests.protocols.wire import World

VICTIM, RECEIVER, ROW = "client-3", "client-2", EACH
BEGIN, ADD, TAKE, CARRY = ClientRows.begin, Collection.add, Matching._take_match, Matching._carry


def scaled(site: Any, given: Go) -> Terms:
    """Say terms that follow from what was handed out, as embeddings do from a model."""
    terms = site.terms * np.append(np.full(site.terms.shape[1] - 1, given.step), 1.0)
    return Terms.unsummed(own=site.own, terms=terms, links=site.links, wanted=site.wanted)


LINK = Exchange("link", (Go,), (Terms,), scaled, due=lambda rounds: 1)
FORM = Form("adding", ADDING.round, (LINK, *ADDING.exchanges[1:]))


class Crafting(World):
    """Its aggregator hands all but the victim and the receiver a model that makes terms zero."""

    def __init__(self, form: Any, policy: Any, **facts: Any) -> None:
        super().__init__(FORM, policy, **facts)
        self.handed: dict[str, str] = {}

    def deliver(self, delivery: Any) -> Any:
        header = Envelope.decode(delivery.data).header
        if header.item == "link.down":
            self.handed[delivery.to] = header.given
            if delivery.to not in (VICTIM, RECEIVER):
                place = {"round": header.round, "exchange": header.exchange}
                evil = self.evil_ask(delivery.to, give=Go(step=0), **place)
                self.handed[delivery.to] = Envelope.decode(evil).header.given
                delivery = replace(delivery, data=evil)
        return super().deliver(delivery)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Begin worlds whose aggregator goes on with everybody under what each was given."""
    worlds: list[Any] = []

    def adding(self: Collection, incoming: Any) -> None:
        self.where = replace(self.where, given=incoming.header.given)
        ADD(self, incoming)

    def taking(self: Matching, incoming: Any) -> None:
        answers = self._asked.answers
        answers.where = replace(answers.where, given=incoming.header.given)
        TAKE(self, incoming)

    def carrying(self: Matching, party: str, step: Any, message: Any) -> Any:
        answers = self._asked.answers
        given = worlds[-1].handed.get(party, answers.where.given)
        answers.where = replace(answers.where, given=given)
        return CARRY(self, party, step, message)

    monkeypatch.setattr(Collection, "add", adding)
    monkeypatch.setattr(Matching, "_carry", carrying)
    monkeypatch.setattr(Matching, "_take_match", taking)

    def begin() -> Any:
        worlds.append(rowed(Crafting, plan=row_plan(row_policy(), FORM)).start())
        return worlds[-1]

    return begin


def victims(world: Any) -> np.ndarray:
    """Return what the victim alone adds to the receiver's row."""
    site = world.sites[VICTIM]
    found: np.ndarray = site.terms[site.links[0][site.links[1] == ROW]].sum(axis=0)
    return found


def test_o8_clients_that_were_handed_different_models_add_up_no_row(
    begun: Callable[[], Any],
) -> None:
    world = begun()
    with pytest.raises(Refused):
        row_round(world)
    assert all(site.found is None for site in world.sites.values())


def test_the_control_without_it_tells_the_receiver_a_single_clients_term(
    begun: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In which of its rows a node is, lots say: about three times in five it is this one."""

    def unbound(self: Any, epoch: int, links: Any, wanted: Any, bound: str) -> bytes:
        return BEGIN(self, epoch, links, wanted, bound.rsplit("/", 1)[0])

    monkeypatch.setattr(ClientRows, "begin", unbound)
    for _ in range(40):  # 0.4^40 is below 1e-15
        world = begun()
        row_round(world)
        if ROW in (found := world.sites[RECEIVER].found):
            break
    told = found[ROW]
    assert told[-1] >= 3  # the floor of others holds, by count
    assert np.abs(told - victims(world))[:-1].max() < 8 * STEP and victims(world)[:-1].any()
