"""O11, O10, O5, O6: a total that one client of the cohort reads, and nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum import addressed as blinds
from protocols.disclosures.sum import addressed as reading
from protocols.disclosures.sum.addressed import reader_of
from protocols.disclosures.sum.view import Summands
from protocols.errors import (
    BadEnvelope,
    CohortTooSmall,
    LocalProtocolError,
    Refused,
    RoundLost,
)
from protocols.rounds import Reply, Sealed
from protocols.sessions.part import Scope
from protocols.sessions.store.state_keeper import state_codec
from tests.protocols.killed import Killed
from tests.protocols.one_reader import READ, Told, got, hand_out, others, told
from tests.protocols.toys import PULL, Pull, changed_policy, toy_plan
from tests.protocols.wire import World

UP = "tell.up.SUM"


def on_grid(world: World) -> None:
    """Let sites hold values of the grid, so that rounding changes nothing and sums are exact."""
    layout, _ = world.context("client-1").summed(world.plan.item(UP), (Told,))
    (grid,), draw = [column.grid for column in layout.columns], np.random.default_rng(7)
    assert grid is not None
    for site in world.sites.values():
        site.delta = grid.restore(draw.integers(-200, 200, world.d))


def same(one: Any, other: Any) -> bool:
    """Tell whether two vectors stand on one point of the grid: it is coarser than this by far."""
    return bool(np.abs(np.asarray(one) - np.asarray(other)).max() < 1e-12)


def opened(reply: Reply) -> Any:
    """Return what the aggregator holds of a total that one client reads."""
    return reply._views[Told]._residues  # type: ignore[attr-defined]


def seeds(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return where all seeds of blinds are noted as they are drawn."""
    drawn: list[bytes] = []
    entropy = reading.entropy

    def noted(size: int) -> bytes:
        drawn.append(entropy(size))
        return drawn[-1]

    monkeypatch.setattr(reading, "entropy", noted)
    return drawn


@pytest.mark.parametrize(
    ("policy", "turns"), [("masks", 5), ("unsafe_plaintext", 5), ("he", 1), ("ckks", 1)]
)
def test_o11_each_client_in_turn_reads_exactly_the_sum_of_all_others(
    policy: str, turns: int
) -> None:
    world = World(READ, policy, clients=5).start()
    on_grid(world)
    hand_out(world, Sealed.joined([told(world).handed(Told) for _ in range(turns)]))
    for name in world.names[:turns]:
        assert same(got(world, name), others(world, name)), name
    for name in world.names[turns:]:  # whose turn it was not
        assert not got(world, name).any()


def _evenness(residues: Any) -> float:
    """Return the chance that uniform residues have bytes as uneven as these."""
    return float(stats.chisquare(np.bincount(residues.view(np.uint8), minlength=256)).pvalue)


def test_o11_what_the_aggregator_opens_is_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the blind the very same steps open the total of all others."""
    world = World(READ, "masks", clients=5, d=4096).start()
    on_grid(world)
    residues, ring = (
        opened(told(world)),
        world.aggregator.asked.answers.of(Disclosure.SUM, Summands)._ring(),
    )
    levels = (residues.astype(int) + (1 << 15)) % (1 << 16) - (1 << 15)
    truth = others(world, world.names[0])
    assert _evenness(residues) > 1e-12
    assert abs(np.corrcoef(levels, truth)[0, 1]) < 0.1
    assert not np.array_equal(residues, opened(told(world)))
    monkeypatch.setattr(blinds, "masked", lambda values, *_, **__: values)
    world = World(READ, "masks", clients=5, d=4096).start()
    on_grid(world)
    bare = opened(told(world))
    assert _evenness(bare) < 1e-9
    assert np.corrcoef(ring.integers(bare), truth)[0, 1] > 0.999


def test_o11_the_aggregators_reply_gives_no_other_verb() -> None:
    world = World(READ, "masks", clients=5).start()
    reply = told(world)
    with pytest.raises(TypeError, match="not allowed"):
        reply.total(Told)
    with pytest.raises(TypeError):
        World(PULL, "masks").start().round().handed(Pull)


# --- one blind, one upload, one reading -----------------------------------------------------------


def test_o6_no_two_asks_have_one_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, world = seeds(monkeypatch), World(READ, "masks", clients=4).start()
    for round in (1, 2):
        for _ in range(4):
            told(world, round)
    assert len(drawn) == 8 == len(set(drawn))
    first, again = (opened(told(world, 3)) for _ in range(2))
    assert not np.array_equal(first, again)


def test_o6_a_blind_that_was_drawn_for_another_ask_masks_nothing() -> None:
    world = World(READ, "masks", clients=4).start()
    context, item = world.context("client-1"), world.plan.item(UP)
    ring = context.summed(item, (Told,))[1]
    here = world.where(world.names, exchange=2)
    context.blind = (1, bytes(32))
    with pytest.raises(LocalProtocolError):
        blinds.blind_of(context, item, here, ring)
    context.blind = (2, bytes(32))
    one = blinds.blind_of(context, item, here, ring)
    with pytest.raises(LocalProtocolError):  # it is used once
        blinds.blind_of(context, item, here, ring)
    for other in (replace(here, round=2), replace(here, attempt=2), replace(here, slot=4)):
        context.blind = (2, bytes(32))
        assert not np.array_equal(one, blinds.blind_of(context, item, other, ring))
    assert reader_of(item, replace(here, slot=1)) == "client-2"


def _kept(world: World, name: str) -> bytes:
    """Return a client's state before it is locked: what whoever has its key can read."""
    session = world.clients[name]
    codec = state_codec(session.context, world.form, world.sites[name], session.ledger, bytes(32))
    return codec.pack(session.kept())


def test_o6_after_kills_every_total_is_read_once_and_no_blind_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn, world = seeds(monkeypatch), Killed(READ, "masks", clients=4)
    world.keep()
    world.start()
    on_grid(world)
    tokens = [told(world).handed(Told) for _ in world.names]
    assert len(drawn) == len(set(drawn)) == 4  # what was kept was sent again, not drawn anew
    for name, seed in zip(world.names, drawn, strict=True):
        assert seed in _kept(world, name)
        stored = b"".join(bytes(piece) for piece in world.state_stores[name].pieces.values())
        assert seed not in stored  # a file of it is locked
    hand_out(world, Sealed.joined(tokens))
    for name, seed in zip(world.names, drawn, strict=True):
        assert same(got(world, name), others(world, name))
        assert seed not in _kept(world, name)
    assert world.kills > 40


def test_o6_a_client_that_was_killed_before_it_kept_its_answer_draws_another_blind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn, world = seeds(monkeypatch), Killed(READ, "masks", clients=4)
    world.keep()
    world.start()
    ask = next(d for d in world.ask(1) if d.to == "client-1")
    before = world.clients["client-1"]
    monkeypatch.setattr(before, "commit", lambda: (_ for _ in ()).throw(RuntimeError("killed")))
    with pytest.raises(RuntimeError):
        before.receive(ask.data)
    world.kill("client-1")
    assert world.deliver(ask)
    assert len(drawn) == 2 and drawn[0] != drawn[1]


@pytest.mark.parametrize("scope", [Scope.ROUND, Scope.EPOCH, Scope.RUN])
def test_o9_blinds_end_with_their_round(scope: Scope) -> None:
    world = World(READ, "masks", clients=4).start()
    token = told(world).handed(Told)
    part = world.clients["client-1"].parts["reading"]
    assert len(part._blinds) == 1  # type: ignore[attr-defined]
    if scope is Scope.ROUND:  # by the first Ask of the next
        told(world, 2)
        assert [w.round for _, w, _ in part._blinds.values()] == [2]  # type: ignore[attr-defined]
        with pytest.raises(Refused):
            hand_out(world, token, 2)
        assert isinstance(world.clients["client-1"].last_error, BadEnvelope)
    else:
        part.forget(scope)
        assert not part._blinds  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["to another", "twice", "of another Ask", "changed", "of fewer"])
def test_o11_a_total_is_read_by_its_client_once_and_as_it_was_opened(how: str) -> None:
    world = World(READ, "masks", clients=4, d=64).start()
    on_grid(world)  # small values: a wrong count alone would not carry a total out of range
    token = told(world).handed(Told)
    other = told(world).handed(Told)
    (one,), (two,) = token._deliveries.values(), other._deliveries.values()
    crafted = {
        "to another": {"client-2": one},
        "twice": {"client-1": one},
        "of another Ask": {
            "client-1": type(one)(exchange=one.exchange, answers=3, total=two.total)
        },
        "changed": {"client-1": type(one)(exchange=one.exchange, answers=3, total=two.total[::-1])},
        "of fewer": {"client-1": type(one)(exchange=one.exchange, answers=2, total=one.total)},
    }
    (victim,) = crafted[how]
    if how == "twice":
        hand_out(world, token)
        assert got(world, victim).any()
        assert not world.clients[victim].parts["reading"]._blinds  # type: ignore[attr-defined]
    with pytest.raises(Refused):
        hand_out(world, Sealed(Told, crafted[how]))
    assert isinstance(world.clients[victim].last_error, BadEnvelope)


# --- who must be there ----------------------------------------------------------------------------


def _without_reader(world: World) -> None:
    world.lost = lambda item, sender, _: item == UP and sender == "client-1"


@pytest.mark.parametrize("policy", ["masks", "unsafe_plaintext"])
def test_o11_if_the_reader_vanishes_nothing_is_opened(policy: str) -> None:
    world = World(READ, policy, clients=6).start()
    _without_reader(world)
    with pytest.raises(RoundLost, match="was to read"):
        told(world)
    assert "open" not in world.kinds("aggregator")


def test_o11_clients_serve_no_list_without_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: where they do, a lying aggregator reads the sum of all others."""
    monkeypatch.setattr(Summands, "check_reader", lambda _: None)
    world = World(READ, "masks", clients=6).start()
    on_grid(world)
    _without_reader(world)
    with pytest.raises(Refused):
        told(world)
    assert "lacks the one client" in str(world.clients["client-2"].last_error)
    assert "open" not in world.kinds("aggregator")

    monkeypatch.setattr("protocols.disclosures.sum.parties.missing", lambda *_: False)
    world = World(READ, "masks", clients=6).start()
    on_grid(world)
    _without_reader(world)
    told(world)
    answers = world.aggregator.asked.answers.of(Disclosure.SUM, Summands)
    layout, ring = answers._summed()
    found = layout.decode(ring.integers(answers.total), 5)[Told]
    assert same(found.move, others(world, "client-1"))  # type: ignore[attr-defined]


def test_o11_who_vanishes_beside_the_reader_only_makes_the_total_smaller() -> None:
    world = World(READ, "masks", clients=6).start()
    on_grid(world)
    world.lost = lambda item, sender, _: item == UP and sender == "client-3"
    token = told(world).handed(Told)
    hand_out(world, token)
    wanted = others(world, "client-1") - world.sites["client-3"].delta
    assert same(got(world, "client-1"), wanted)


def test_o10_as_many_others_as_the_policy_asks_for_must_answer() -> None:
    policy = changed_policy("masks", colluders=1)  # three others, one colluder, and the reader
    assert toy_plan(READ, policy, clients=("a", "b", "c", "d", "e")).item(UP).reader == "client"
    with pytest.raises(CohortTooSmall):
        toy_plan(READ, policy, clients=("a", "b", "c", "d"))
    world = World(READ, policy, clients=6).start()
    world.lost = lambda item, sender, _: item == UP and sender in ("client-3", "client-4")
    with pytest.raises(RoundLost):
        told(world)
