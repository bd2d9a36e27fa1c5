"""O23: a relay takes the senders off noised messages, and what its order is worth in a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crypto.errors import CryptoError
from protocols.disclosures._relayed import relay as relay_part
from protocols.disclosures._relayed.boxes import box_info, shuffled
from protocols.disclosures._relayed.messages import Batch
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, CohortTooSmall, NotInPlan
from protocols.policy.admission import check_chain
from protocols.policy.guards import Clip, OwnNoise, Relay, Seal
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.noising import run_divergence
from protocols.privacy.shuffled import closed_epsilon
from protocols.sessions.part import State
from protocols.wire.envelope import Envelope, signed_header
from tests.protocols.test_noised import with_noise
from tests.protocols.test_own_noise import BOTH, SAY, Said, own, world
from tests.protocols.toys import toy_plan

UP, BATCH, POOL = "say.up.NOISED", "say.relay.NOISED", "say.relayed.NOISED"


def relaying(**facts: Any) -> PrivacyPolicy:
    """Return a policy whose noised messages go through a relay."""
    document = own(**facts).document()
    clip, noise, seal = document["rules"]["NOISED"]
    rules = {**document["rules"], "NOISED": [clip, noise, {"guard": "relay"}, seal]}
    return PrivacyPolicy.model_validate({**document, "rules": rules})


def many(count: int, rounds: int = 1, form: Any = SAY, **facts: Any) -> Any:
    """Return the plan of 943 clients of which `count` must be in every batch."""
    policy = relaying(minimum_cohort=count - 1 - facts.get("colluders", 0), **facts)
    if form is SAY:
        rules = {name: chain for name, chain in policy.rules.items() if name != "SUM"}
        policy = policy.model_copy(update={"rules": rules})
    clients = [f"c{n:04d}" for n in range(943)]
    return toy_plan(form, policy, bfv=None, clients=clients, rounds=rounds, d=4)


def sent(played: Any, item: str) -> list[Envelope]:
    return [e for e in map(Envelope.decode, played.wire) if e.header.item == item]


def answered() -> Any:
    """Return a world whose clients answered and whose aggregator did not go on."""
    played = world(SAY, relaying(), d=4).start()
    played.prepare(1)
    for delivery in played.ask(1):
        played.deliver(delivery)
    return played


def batch(played: Any, uploads: list[Envelope]) -> bytes:
    """Return an aggregator's request over any uploads."""
    dims = played.plan.item(BATCH).dims
    message = Batch(
        members=played.roster.mask(played.names),
        headers=b"".join(map(signed_header, uploads)).ljust(dims["batch_headers"], b"\0"),
        bodies=b"".join(bytes(e.body) for e in uploads).ljust(dims["batch"], b"\0"),
    )
    where = played.where(given=uploads[0].header.given)
    return played.twin("aggregator").release(BATCH, [message], "relay", where).encode()


@pytest.fixture(scope="module")
def honest() -> Any:
    played = world(SAY, relaying(alone="discrete_laplace", noise={"epsilon": 60.0}), d=4)
    for place, site in enumerate(played.sites.values()):
        site.delta = np.full(4, 0.05 * place)
    return played.start()


# --- what happens ---------------------------------------------------------------------------------


def test_the_aggregator_reads_every_message_in_the_relays_order(honest: Any) -> None:
    each = honest.round(1).each(Said)
    assert len(each) == 5
    assert np.abs(sorted(one.change.mean() for one in each) - 0.05 * np.arange(5)).max() < 0.2
    assert len({len(e.body) for e in sent(honest, UP)}) == 1
    assert honest.kinds("relay").count("relay") == 1


def test_neither_aggregator_nor_relay_alone_knows_whose_a_message_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Control: with both keys, and the boxes in the order of senders, everything is known."""
    played = world(SAY, relaying(), d=4).start()
    monkeypatch.setattr(relay_part, "shuffled", lambda boxes: list(boxes)[::-1])
    played.round(1)
    uploads, (pool,) = sent(played, UP), sent(played, POOL)
    keys = {name: played.identities[name].opening for name in ("aggregator", "relay")}
    info = box_info(played.context("aggregator"), UP, played.where(given=uploads[0].header.given))
    inner = []
    for upload in uploads:
        sealed = upload.header.encode(without_body=True)
        with pytest.raises(CryptoError):
            keys["aggregator"].open(sealed, bytes(upload.body))
        inner.append(keys["relay"].open(sealed, bytes(upload.body)))
        with pytest.raises(CryptoError):
            keys["relay"].open(info, inner[-1])
    opened = keys["aggregator"].open(pool.header.encode(without_body=True), bytes(pool.body))
    size = played.plan.item(UP).body
    boxes = [opened[start : start + size] for start in range(0, 5 * size, size)]
    senders = [upload.header.sender for upload in uploads]
    by_name = [box for _, box in sorted(zip(senders, inner, strict=True))]
    assert boxes == by_name[::-1]  # together they match every message with its sender
    assert all(keys["aggregator"].open(info, box) for box in boxes)


def test_the_order_is_the_operating_systems() -> None:
    first = list(range(40))
    boxes = [bytes([n]) for n in first]
    found = [[box[0] for box in shuffled(boxes)] for _ in range(3)]
    assert all(sorted(one) == first for one in found)
    assert found[0] != found[1] != found[2] and first not in found


@pytest.mark.parametrize(
    ("change", "why", "kind"),
    [
        (lambda uploads: uploads[:3], "too small", CohortTooSmall),
        (lambda uploads: [*uploads[:4], uploads[0]], "there twice", BadEnvelope),
    ],
)
def test_small_batches_and_two_messages_of_one_client_are_held(
    change: Any, why: str, kind: type[Exception]
) -> None:
    """Control: four messages of four clients, the policy's floor, are handed on."""
    played = answered()
    (reply,) = played.relay.receive(batch(played, change(sent(played, UP))))
    assert Envelope.decode(reply.data).header.item == "refusal.relay"
    assert isinstance(played.relay.last_error, kind) and why in str(played.relay.last_error)
    assert played.relay.state is State.DEAD and "relay" not in played.kinds("relay")
    control = answered()
    (pool,) = control.relay.receive(batch(control, sent(control, UP)[:4]))
    assert Envelope.decode(pool.data).header.item == POOL


# --- what it is worth -----------------------------------------------------------------------------


def test_a_plan_of_943_says_what_the_order_is_worth_beside_the_clients_own() -> None:
    plan = many(943, noise={"epsilon": 1.0, "delta": 1e-5}, colluders=3)
    noise = plan.item(UP).noise
    assert noise.batch == 940 and 0.999 < float(noise.pure) <= 1.0
    closed = closed_epsilon(float(noise.pure), 940, 1e-5)
    assert closed is not None and closed <= float(noise.shuffled) < 1.001 * closed < 0.63
    said = plan.budget
    assert (
        said.startswith("epsilon <= 1.0000, delta = 1e-05 (unit: client") and "model: local" in said
    )
    whole = said.partition("behind the relay, never charged and never in the place")[2]
    for label in (
        f"epsilon <= {noise.shuffled}, delta = 1e-05", "unit: client", "adjacency: replace-one",
        "model: shuffled", "scope: run", "the relay is trusted", "at least 940 clients",
        "against relay and aggregator together, or fewer such clients",
    ):  # fmt: skip
        assert label in whole
    assert any("Aggregator and relay together know all senders" in w for w in plan.warnings)
    assert "sealed boxes" in plan.item(UP).learns["relay"]
    bare, alone = own(noise={"epsilon": 1.0, "delta": 1e-5}), [f"c{n:04d}" for n in range(943)]
    control = toy_plan(SAY, bare, bfv=None, clients=alone, rounds=1, d=4)
    assert "relay" not in control.budget and not control.item(UP).noise.batch
    # What a budget is charged does not know of the order.
    assert np.array_equal(run_divergence(plan), run_divergence(control))


def test_batches_are_added_up_and_no_claim_is_above_the_clients_own() -> None:
    plan = many(943, rounds=2, noise={"epsilon": 1.0, "delta": 1e-5})
    noise = plan.item(UP).noise
    one = closed_epsilon(float(noise.pure), 943, 1e-5 / 2)
    assert one is not None and 2 * one <= float(noise.shuffled) < 2.002 * one
    assert float(noise.shuffled) < 1.0 and "batches added up: 2" in plan.budget
    assert (
        many(943, rounds=200, noise={"epsilon": 1.0, "delta": 1e-5}).item(UP).noise.shuffled == ""
    )


@pytest.mark.parametrize(
    ("count", "epsilon", "form", "why"),
    [
        (5, 1.0, SAY, "n too small: 5 honest messages a batch"),
        (943, 2.0, SAY, "n too small: 943 honest"),
        (800, 1.0, BOTH, "other messages of the run are not relayed"),
    ],
)
def test_small_batches_and_other_messages_earn_no_claim(
    count: int, epsilon: float, form: Any, why: str
) -> None:
    plan = many(count, form=form, noise={"epsilon": epsilon, "delta": 1e-5})
    noise = plan.item(UP).noise
    assert noise.batch == count and noise.shuffled == ""
    assert f"behind the relay: no claim ({why}" in plan.budget
    assert "the epsilon above stands alone" in plan.budget and "model: shuffled" not in plan.budget


def test_a_gaussian_has_no_order_and_other_chains_no_relay() -> None:
    clip, noise = Clip(norm="l2", bound=1.0), {"epsilon": 1.0, "delta": 1e-5}
    check_chain(Disclosure.NOISED, (clip, OwnNoise(mechanism="sqkr", **noise), Relay(), Seal()))
    with pytest.raises(ValueError, match="discrete_gaussian has none; take own_noise"):
        check_chain(Disclosure.NOISED, (clip, OwnNoise(**noise), Relay(), Seal()))
    for wrong in ((clip, Relay(), Seal()), (clip, OwnNoise(mechanism="sqkr", **noise), Relay())):
        with pytest.raises(ValueError):
            check_chain(Disclosure.NOISED, wrong)


@pytest.mark.parametrize("lie", [{"shuffled": "0.1"}, {"batch": 4000}, {"batch": 0}])
def test_every_client_refuses_a_claim_that_does_not_follow_from_its_policy(lie: Any) -> None:
    policy = relaying()
    plan = with_noise(toy_plan(SAY, policy, bfv=None, d=4), **lie)
    played = world(SAY, policy, plan=plan, d=4).start()
    played.prepare(1)
    for delivery in played.ask(1):
        (answer,) = played.deliver(delivery)
        assert Envelope.decode(answer.data).header.item == "refusal.client"
        assert isinstance(played.clients[delivery.to].last_error, NotInPlan)
