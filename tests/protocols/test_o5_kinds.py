"""O5 across disclosures: a round has one set of survivors, whatever is opened of their answers."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.disclosures._base.client import OneCohort
from protocols.disclosures._base.view import fixing
from protocols.disclosures._evaluated.disclosure import Uploaded
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, Refused, RoundLost
from protocols.forms import Exchange, Form
from protocols.messages import SumMessage, Vector, real
from protocols.rounds import Ask, Cohort
from protocols.sessions.survivors import Openings
from tests.protocols.mix import MASH, mixing
from tests.protocols.pub import RECEIVE, Go, Model, _never, even, hand_out, pub
from tests.protocols.relayed import relayed

GONE = "client-6"


class Same(SumMessage):
    weights: Vector = real("d", unit="weight", meaning="the model, summed")


ADD = Exchange("add", (Go,), (Same,), lambda site, given: Same(weights=site.model))
WEIGH = Exchange("weigh", (Go,), (Model,), lambda site, given: Model(weights=site.model, bias=0.0))
BOTH = Form("both", _never, (ADD, WEIGH, RECEIVE))


def both(policy):
    world = pub(policy, form=BOTH)
    for site in world.sites.values():
        site.model = site.model * 0.1
    return world


def ask(world, kind, step, members=None):
    cohort = Cohort(members or world.names)
    world.pump(world.aggregator.ask(Ask(cohort, Go(step=step), (kind,)), 1))
    return world.aggregator.reply()


def vanish(world):
    world.lost = lambda item, sender, to: GONE in (sender, to)


def likeness(world, total, row):
    """Return the cosine of a client's model with what total and row differ by."""
    guess, truth = total - 5 * row, world.sites[GONE].model
    return float(guess @ truth / np.linalg.norm(guess) / np.linalg.norm(truth))


def rows_of_five(world, members=None):
    """Weigh the models of all but one in the round that summed all; return total and a row."""
    total = ask(world, Same, 1).total(Same).weights
    if members is None:
        vanish(world)
    mixture = ask(world, Model, 2, members).weighted(Model, even(5))
    hand_out(world, mixture, members=world.names[:5])
    return total, world.sites["client-1"].got[-1].weights


def trusting(monkeypatch):
    """Let an aggregator go on whoever vanished, as a dishonest one does."""
    monkeypatch.setattr(Uploaded, "fixes", False)


def each_kind_alone(monkeypatch):
    """Let a key authority hold every kind of opening to itself alone."""
    real_once = Openings.once

    def once(part, header, members, survivors, disclosure=Disclosure.SUM, *more):
        kept = part.opened
        part.opened = {
            round: [one for one in found if one[0] == disclosure] for round, found in kept.items()
        }
        real_once(part, header, members, survivors, disclosure, *more)
        part.opened = kept

    monkeypatch.setattr(Openings, "once", once)


@pytest.mark.parametrize("policy", ["pilot", "he", "masks"])
def test_o5_who_was_summed_and_vanishes_is_not_left_out_of_rows(policy):
    world = both(policy)
    with pytest.raises(RoundLost, match="between two results"):
        rows_of_five(world)
    assert not any(site.got for site in world.sites.values())


@pytest.mark.parametrize("policy", ["pilot", "masks"])
def test_o5_control_a_total_less_the_rows_is_one_clients_model(policy, monkeypatch):
    trusting(monkeypatch)
    each_kind_alone(monkeypatch)
    world = both(policy)
    assert likeness(world, *rows_of_five(world)) > 0.99


def test_o5_a_key_authority_opens_no_rows_over_fewer_than_a_total(monkeypatch):
    trusting(monkeypatch)
    world = both("pilot")
    with pytest.raises(Refused, match="key-authority refused"):
        rows_of_five(world)
    assert isinstance(world.authority.last_error, BadEnvelope)
    assert "overlapping cohorts" in world.authority.last_error.what


@pytest.mark.parametrize("policy", ["pilot", "masks"])
def test_o5_a_client_that_was_summed_with_six_is_not_weighed_with_five(policy):
    world = both(policy)
    with pytest.raises(Refused, match="client-1 refused"):
        rows_of_five(world, world.names[:5])
    assert "Two different cohorts" in world.clients["client-1"].last_error.what


def test_o5_control_without_the_clients_the_aggregator_need_not_say_that_one_vanished(monkeypatch):
    monkeypatch.setattr(OneCohort, "asked_back", lambda *_: None)
    world = both("masks")
    assert likeness(world, *rows_of_five(world, world.names[:5])) > 0.99


@pytest.mark.parametrize("policy", ["pilot", "masks"])
def test_o5_a_cohort_that_was_weighed_does_not_grow(policy):
    world = both(policy)
    ask(world, Model, 1, world.names[:5])
    with pytest.raises(Refused):
        ask(world, Same, 2)
    assert "Two different cohorts" in world.clients["client-1"].last_error.what


@pytest.mark.parametrize("policy", ["pilot", "he", "masks", "unsafe_plaintext"])
def test_o5_who_vanishes_before_it_is_weighed_costs_no_round(policy):
    world = both(policy)
    vanish(world)
    mixture = ask(world, Model, 1).weighted(Model, even(5))
    hand_out(world, mixture)
    total = ask(world, Same, 2).total(Same).weights
    truth = sum(world.sites[name].model for name in world.names[:5])
    assert np.max(np.abs(total - truth)) < 0.01


@pytest.mark.parametrize("policy", ["pilot", "masks"])
def test_o5_who_vanishes_between_what_is_weighed_and_a_sum_costs_the_round(policy):
    world = both(policy)
    mixture = ask(world, Model, 1).weighted(Model, even(6))
    vanish(world)
    hand_out(world, mixture)
    with pytest.raises(RoundLost, match="between two results"):
        ask(world, Same, 2)
    world.pump(world.aggregator.ask(Ask(Cohort(world.names), Go(step=3), (Same,)), 2))
    assert world.aggregator.reply().answers == 5  # the next round goes on


@pytest.mark.parametrize(("made", "fixed"), [(relayed, True), (mixing, False)])
def test_o5_mixtures_fix_who_counts_where_a_relay_takes_them(made, fixed):
    context, (exchange,) = made().context("client-1"), MASH.exchanges
    assert fixing(context, exchange) == ((Disclosure.MIXED,) if fixed else ())
