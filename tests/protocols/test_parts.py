"""Sessions are made of parts: who takes what, what is kept, what is dropped, and in which order."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import ClassVar

import pytest

from protocols.errors import LocalProtocolError
from protocols.plan.steps import Service, Step
from protocols.sessions.engine import Phase, Session
from protocols.sessions.part import Engine, Scope, SessionPart, Takes
from protocols.wire.roles import Role, session_of
from tests.protocols.pub import COUNTED, Go, even, hand_out, pub, trained
from tests.protocols.pub import Model as PubModel
from tests.protocols.wire import World


class Taking(SessionPart):
    """Takes a refusal."""

    def take(self, incoming: object) -> None:
        """Do nothing."""

    takes: ClassVar[Takes] = {(Service.REFUSAL, Step.REFUSE): take}


class TakingToo(Taking):
    """Takes the same."""


BUILT_ON = {"row_sum": "match"}
"""Rows are found by the tags of `match`, and carried as these are (ADR 0051)."""


@pytest.mark.parametrize("kind", [session_of(role) for role in Role])
def test_a_role_inherits_from_the_engine_alone(kind: type[Session]) -> None:
    assert kind.__bases__ == (Session,)
    assert len(set(kind.made_of)) == len(kind.made_of)
    for part in kind.made_of:
        (base,) = part.__bases__
        own, there = (kind.__module__.split(".")[2] for kind in (part, base))
        assert base is SessionPart or there == BUILT_ON.get(own)


def test_two_parts_that_take_the_same_are_refused() -> None:
    with pytest.raises(TypeError, match="take"):
        type("DoubleSession", (Session,), {"made_of": (Taking, TakingToo)})
    single = type("SingleSession", (Session,), {"made_of": (Taking,)})
    assert set(single.takes) == {(Service.REFUSAL, Step.REFUSE)}


class Asking(SessionPart):
    """Is made with another."""

    def __init__(self, engine: Engine, taking: Taking) -> None:
        super().__init__(engine)
        self.other = taking


def test_a_part_is_made_after_those_that_it_is_made_with() -> None:
    kind: type[Session] = type("LaterSession", (Session,), {"made_of": (Asking,)})
    assert kind.made_of == (Taking, Asking)
    context, ledger, rounding = World(policy="masks")._common("client-1")
    parts = kind(context, ledger, rounding).parts
    assert list(parts) == ["taking", "asking"] and parts["asking"].other is parts["taking"]


def test_two_parts_of_one_name_are_refused() -> None:
    twin = type("Twin", (SessionPart,), {"called": "taking"})
    with pytest.raises(TypeError, match="one name"):
        type("TwinSession", (Session,), {"made_of": (Taking, twin)})


def test_what_is_kept_is_every_field_and_no_wiring() -> None:
    world = World(policy="masks").start()
    for session in (world.aggregator, world.clients["client-1"]):
        kept = session.kept()
        assert set(kept["parts"]) == set(session.parts) and "_engine" not in str(kept["parts"])
        again = type(session).taken_up(kept, None)  # type: ignore[arg-type]
        for name, part in again.parts.items():
            assert part is not session.parts[name] and part._engine is again
            held = {k for k, v in vars(part).items() if not isinstance(v, SessionPart | Session)}
            assert held - part.apart == set(kept["parts"][name])


@pytest.mark.parametrize("change", ["a field less", "a field more", "a part less", "a part more"])
def test_kept_state_with_other_fields_is_refused(change: str) -> None:
    world = World(policy="masks").start()
    kept = world.aggregator.kept()
    if change == "a part less":
        del kept["parts"]["sums"]
    elif change == "a part more":
        kept["parts"]["guarding"] = {"_opened": [1]}  # of a program that remembers more than this
    elif change == "a field less":
        del kept["parts"]["sums"]["_slots"]
    else:
        kept["parts"]["sums"]["_more"] = 1
    with pytest.raises(LocalProtocolError, match="other fields"):
        type(world.aggregator).taken_up(kept, None)  # type: ignore[arg-type]


def test_the_order_of_an_ask_is_that_of_its_phases() -> None:
    order = World(policy="masks").aggregator.order
    phases = [part.phase for part in order]
    assert phases == sorted(phases) and sorted(set(phases)) == sorted(Phase)[:-1]
    assert all(type(part).wanted is not SessionPart.wanted for part in order)


def test_an_ask_goes_through_the_phases_that_it_wants() -> None:
    world, seen = pub(), []
    aggregator = world.aggregator
    for part in aggregator.order:
        part.enter = (  # type: ignore[method-assign]
            lambda phase=part.phase, enter=part.enter: (seen.append(phase), enter())[1]
        )
    reply = trained(world)
    assert seen == [Phase.ANSWERS, Phase.SETTLE, Phase.COMPARE]
    seen.clear()
    hand_out(world, reply.weighted(PubModel, even(6)))
    assert seen == [Phase.BEFORE_ASK, Phase.ANSWERS, Phase.SETTLE]
    assert not aggregator._acting


def test_o9_nothing_of_an_ask_or_round_outlives_it() -> None:
    world = pub()
    trained(world)
    aggregator = world.aggregator
    assert aggregator.rows._uploads is not None and aggregator.asked._collection is not None
    aggregator.forget(Scope.ASK)
    assert aggregator.asked._collection is None and aggregator.asked.reply is None
    assert aggregator.rows._uploads is not None
    aggregator.forget(Scope.ROUND)
    assert aggregator.rows._uploads is None


def _holding(world: World) -> list[tuple[SessionPart, str]]:
    """Return where an aggregator holds uploads, and what takes their masks off."""
    a = world.aggregator
    return [(a.asked, "_collection"), (a.sums, "_unmasking"), (a.rows, "_uploads")]


@pytest.mark.parametrize("how", ["die", "close"])
def test_o9_an_aggregator_that_is_over_holds_no_upload_and_no_share(how: str) -> None:
    world = pub("masks", form=COUNTED)
    world.pump(world.ask(1, Go(step=1), COUNTED.exchanges[0].back), until=".all_here")
    aggregator = world.aggregator
    assert all(getattr(part, name) is not None for part, name in _holding(world))
    if how == "die":
        aggregator.die(RuntimeError())
    else:
        aggregator.close()
    assert all(getattr(part, name) is None for part, name in _holding(world))


def test_o9_a_client_drops_an_epoch_and_a_run() -> None:
    world = World(policy="masks").start()
    world.round(1)
    client = world.clients["client-1"]
    assert client.holding._uploads and client.context.pairs is not None
    client.forget(Scope.EPOCH)
    assert not (client.holding._uploads or client.holding._lists or client.holding._vote_texts)
    assert client.context.pairs is not None
    client.die(RuntimeError())
    assert client.context.pairs is None and client.answering.repeat == (b"", [])


PART_FILES = sorted(
    Path(__file__).resolve().parents[2].joinpath("protocols/disclosures").glob("*/*.py")
)


def test_no_part_names_another_disclosures_folder() -> None:
    """What several share is a service, or lies in a folder like `_evaluated`."""
    parts = {f"{part.__module__}" for kind in map(session_of, Role) for part in kind.made_of}
    found = 0
    for file in PART_FILES:
        own = file.parent.name
        if f"protocols.disclosures.{own}.{file.stem}" not in parts:
            continue
        found += 1
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                floor, _, rest = node.module.partition("protocols.disclosures.")
                folder = rest.partition(".")[0]
                allowed = (own, "names", "views", BUILT_ON.get(own))
                assert floor or folder in allowed or folder.startswith("_"), (file, node.module)
    assert found >= 13
