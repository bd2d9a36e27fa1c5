"""What the order of relayed messages is worth, from the ledgers (O23)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from algorithms.tasks import ClientModel
from audits.accounting.account import account
from audits.attacks._shared.payloads import payloads_of
from audits.evidence.steps import Case
from audits.evidence.verify import verify
from audits.report.budget import accounts
from audits.report.build import build_report
from protocols.disclosures.names import Disclosure
from protocols.forms import Algorithm, Form
from protocols.policy.guard import describe
from protocols.privacy.own_target import own_noises
from protocols.rounds import Ask
from tests.audits.forging import rewrite
from tests.audits.lies import drop, finds, setting
from tests.audits.noised_run import ENTRIES, NoisedRun, message
from tests.audits.toy_run import FIVE, Given, Toy, run_toy
from tests.protocols.test_o23_noised import BATCH, POOL, UP, relaying
from tests.protocols.test_own_noise import Said

CLIENTS = 250


def recorded(
    batches: tuple[tuple[int, int], ...] = ((1, CLIENTS),),
    clients: int = CLIENTS,
    floor: int = 0,
    rounds: int = 1,
    **lies: Any,
) -> NoisedRun:
    """Return a run whose plan claims something for the order; its floor is all clients."""
    noise = {"epsilon": 0.6, "delta": 1e-3}
    policy = relaying(
        minimum_cohort=(floor or clients) - 1, noise=noise, budget={"epsilon": 10.0, "delta": 1e-3}
    )
    sent = {Disclosure.NOISED: ((ENTRIES, rounds),)}
    found = own_noises(policy, sent, clients)[Disclosure.NOISED]
    assert 0.4 < float(found.shuffled) < 0.6
    made = NoisedRun(clients=clients, rounds=rounds, policy=policy, sums=False, batches=batches)
    made.more = (
        made.item(
            UP, (message("Said"),), disclosure=Disclosure.NOISED,
            guards=tuple(describe(guard) for guard in policy.chain(Disclosure.NOISED)),
            noise=found.model_copy(update=lies),
        ),
    )  # fmt: skip
    made.sent = (UP,)
    return made


def test_the_account_computes_the_claim_again_beside_the_clients_own() -> None:
    found = recorded().account()
    assert found.verdict == "NOT FALSIFIED", found.reasons
    assert found.epsilon.model == "local" and 0.59 < found.epsilon.as_float() <= 0.6
    order = found.order
    assert order is not None and order.epsilon is not None
    assert (order.batches, order.fewest, order.counted) == (1, CLIENTS, CLIENTS)
    assert order.epsilon.model == "shuffled" and 0.5 < order.epsilon.as_float() < 0.6
    assert "the relay is trusted" in order.epsilon.assumptions[0]
    assert "with the relay only the ε above holds" in order.statement


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: recorded(((1, CLIENTS - 1),)), "a batch of 249 messages"),
        (lambda: recorded(((1, CLIENTS), (1, CLIENTS))), "more than one message of a client"),
        (lambda: recorded(((1, CLIENTS + 1),)), "more than one message of a client"),
        (lambda: recorded(shuffled="0.1"), "shuffled"),
        (lambda: recorded(batch=100), "batch"),
    ],
)
def test_a_claim_that_the_record_does_not_bear_is_refuted(made: Any, why: str) -> None:
    found = made().account()
    assert found.verdict == "FALSIFIED" and any(why in reason for reason in found.reasons)
    assert found.epsilon.as_float() <= 0.6  # what the clients' own noise gives stands


def test_without_a_recorded_batch_nothing_is_claimed_or_refuted() -> None:
    found = recorded(((2, CLIENTS),)).account()
    assert found.verdict == "FALSIFIED"  # a batch of messages that nobody sent
    none = recorded(()).account()
    assert none.verdict == "NOT FALSIFIED" and none.order is not None
    assert none.order.epsilon is None and "no batch is recorded" in none.order.statement


def test_clients_that_happen_to_be_there_earn_nothing() -> None:
    """Control: with a floor of all 250 the same batch gives less."""
    made = recorded(floor=245)
    claimed = made.more[0].noise
    assert claimed is not None and claimed.batch == 245
    found, control = made.account().order, recorded().account().order
    assert found is not None and found.epsilon is not None and found.fewest == CLIENTS
    assert found.epsilon.as_float() == float(claimed.shuffled)
    assert control is not None and control.epsilon is not None
    assert control.epsilon.as_float() < found.epsilon.as_float()


def test_a_run_that_ended_early_has_its_share_of_delta_and_no_more() -> None:
    """Control: a run that was through has what its plan claims."""
    batches = (1, 2 * CLIENTS), (2, 2 * CLIENTS)
    made, cut = (recorded(batches[:many], 2 * CLIENTS, rounds=2) for many in (2, 1))
    cut.skips = frozenset((name, 2) for name in cut.names)
    noise, whole, half = made.more[0].noise, made.account().order, cut.account().order
    assert noise is not None and whole is not None and whole.epsilon is not None
    assert whole.epsilon.as_float() == float(noise.shuffled)
    assert half is not None and half.epsilon is not None and half.batches == 1
    assert abs(half.epsilon.as_float() - float(noise.shuffled) / 2) < 2e-6


@pytest.mark.parametrize(("exchange", "verdict"), [(1, "NOT FALSIFIED"), (2, "FALSIFIED")])
def test_a_batch_that_the_aggregator_got_and_no_relay_recorded_refutes(
    monkeypatch: pytest.MonkeyPatch, exchange: int, verdict: str
) -> None:
    """Control: the batch that is recorded."""
    made = recorded()
    pool = made.item(
        POOL, (message("Pool"),), disclosure=Disclosure.SEALED, guards=("seal",),
        sender="relay", recipient="aggregator",
    )  # fmt: skip
    made.more = (*made.more, pool)
    route = {"exchange": exchange, "round": exchange, "attempt": 1, "item": POOL}
    names = {"sender": "relay", "recipient": "aggregator", "cohort": "c", "given": "", "key": ""}
    names |= {"plan": made.plan().digest, "policy": made.policy.digest}
    receipt = {**route, **names, "bytes": 900, "commitment": "0" * 64, "sender_head": "0" * 64}
    monkeypatch.setattr(NoisedRun, "_opens", lambda _: iter([("receipt", receipt)]))
    found = made.account()
    assert found.verdict == verdict, found.reasons
    assert (found.order is not None and found.order.epsilon is None) == (exchange == 2)


def test_a_second_message_of_an_ask_counts_whatever_attempt_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise of a message that is read by itself is drawn anew. Control: one message each."""
    release, count = NoisedRun._release, itertools.count()

    def again(self: NoisedRun, *place: Any) -> dict[str, Any]:
        return {**release(self, *place), "attempt": next(count) % 2}

    monkeypatch.setattr(NoisedRun, "_release", again)
    twice, control = recorded(), recorded().account()
    twice.twice = frozenset({1})
    found = twice.account()
    assert found.verdict == "FALSIFIED" and found.epsilon.as_float() > 1.1
    assert any("sent 2 messages" in reason for reason in found.reasons)
    assert control.verdict == "NOT FALSIFIED" and control.epsilon.as_float() <= 0.6


def test_no_order_is_worth_anything_where_the_clients_own_epsilon_is_infinite() -> None:
    """Control: without the refusal both have a number."""
    refused = recorded()
    refused.refusals = (refused.names[0],)
    found = refused.account()
    assert found.epsilon.value == "infinity"
    assert found.order is not None and found.order.epsilon is None
    assert "refusal.client is not covered" in found.order.statement
    control = recorded().account()
    assert control.order is not None and control.order.epsilon is not None


def test_a_report_does_not_repeat_a_forged_claim() -> None:
    forged, honest = (
        accounts(Case(recorded(**lie).view()))[0] for lie in ({"shuffled": "0.1"}, {})
    )
    assert not forged.borne_out and "epsilon <= 0.1," not in forged.statement
    assert "another shuffled" in forged.statement
    assert honest.borne_out and "model: shuffled" in honest.statement


# --- a run, end to end ----------------------------------------------------------------------------


def telling() -> Algorithm[Given]:
    """Return a toy whose clients say one vector under their own noise."""

    def say(site: float, given: Given) -> Said:
        return Said(change=np.full(8, site))

    def round(state: Given, cohort: Any) -> Any:
        reply = yield Ask(cohort, given=state, back=Said)
        mean = np.mean([one.change for one in reply.each(Said)], axis=0)
        return Given(weights=(state.weights + mean).astype(np.float32))

    return Algorithm(
        name="toy",
        citation="none",
        init=lambda rng: Given(weights=np.zeros(8, np.float32)),
        model=lambda site, given: ClientModel((np.zeros(1, np.float32),)),
        forms=(Form.of("say", round, answers={Given: say}),),
        dims={"d": 8},
    )


@pytest.fixture(scope="module")
def honest() -> Toy:
    policy = relaying()
    return run_toy(policy, rounds=2, clients=FIVE, algorithm=telling())


def test_a_run_verifies_says_who_is_trusted_and_claims_nothing_for_five(honest: Toy) -> None:
    checked = verify(honest.view())
    assert checked.ok, checked.failed
    opened = next(step.detail for step in checked.steps if step.name == "opened")
    assert "messages of 2 Asks relayed, each once" in opened
    found = account(honest.view())
    assert found.verdict == "NOT FALSIFIED" and found.epsilon.model == "local"
    assert found.order is not None and found.order.epsilon is None
    assert (found.order.batches, found.order.fewest) == (2, 5)
    assert "No claim rests on the order" in found.order.statement
    report = build_report(honest.view())
    assert "No claim rests on the order" in report.accounting[0].statement
    views = {view.viewer: " ".join(view.sees) for view in report.views}
    assert "sealed boxes" in views["relay"] and "noised message" in views["aggregator and relay"]
    assert "noised messages are none of theirs" in views["aggregator and other clients"]
    items = {item.id: payloads_of(item, honest.plan, honest.policy) for item in honest.plan.items}
    assert (items[UP][0], items[BATCH], items[POOL]) == ("P02", ("P04",), ("P02",))


def test_a_batch_that_is_not_recorded_or_smaller_than_sent_is_found(honest: Toy) -> None:
    gone = rewrite(honest, honest.view(), drop("relay", kind="relay", exchange=1))
    finds("opened", "unrecorded", gone)
    fewer = rewrite(
        honest, honest.view(), setting("relay", {"kind": "relay", "exchange": 1}, survivors=4)
    )
    finds("opened", "are not those that had arrived", fewer)
