"""Public keys that came late, or never: what the evidence lets pass, and what it does not (O9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from audits.evidence.verify import verify
from protocols.errors import WrongStage
from protocols.policy.policy import PrivacyPolicy
from protocols.sessions.engine import Delivery
from protocols.wire.envelope import Header
from tests.audits.forging import rewrite
from tests.audits.lies import both, drop, finds
from tests.audits.test_results import SIX, site
from tests.audits.toy_run import Bus, Toy
from tests.toys.weighted_sum import weighted_sum

OFFER, WITNESS = "key.offer", "witness-1"


class Patient(Bus):
    """A bus whose parties turn down what comes before its keys; their relay says `unreadable`."""

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        outgoing: Any = list(deliveries)
        while outgoing:
            for delivery in outgoing:
                for answer in () if self._lost(delivery) else self._said(delivery):
                    self.aggregator.receive(answer.data)
            outgoing = self.aggregator.advance()

    def _said(self, delivery: Delivery) -> list[Delivery]:
        try:
            return list(self.others[delivery.to].receive(delivery.data))
        except WrongStage:
            return []


def run(every: int, *without: str, rounds: int = 3, times: int = 1) -> Toy:
    """Return a run in which public keys do not reach some, so many times."""
    document = {**PrivacyPolicy.preset("pilot").document(), "rekey_rounds": every}
    policy = PrivacyPolicy.model_validate(document)
    bus, left = Patient(policy, rounds, SIX, site, True, weighted_sum(d=7, p=3)), [*without] * times

    def lost(header: Header, to: str) -> bool:
        if header.item != OFFER or to not in left:
            return False
        left.remove(to)
        return True

    bus.lose = lost
    bus.play(rounds)
    return bus.finish()


@pytest.mark.parametrize(("every", "times"), [(1, 1), (3, 1), (3, 9)])
@pytest.mark.parametrize("name", ["client-2", WITNESS])
def test_o9_whoever_missed_an_epoch_s_keys_is_explained(name: str, every: int, times: int) -> None:
    """Whether they came later or never: without them it neither answered nor signed."""
    toy = run(every, name, times=times)
    found = verify(toy.view())
    assert found.ok, found.failed
    if times > 1:
        (said,) = (step.detail for step in found.steps if step.name == "receipts")
        assert f"{name} in round" in said


def test_o9_a_witness_that_signed_had_the_keys() -> None:
    toy = run(3)
    spoilt = both(
        drop(WITNESS, kind="receipt", item=OFFER), drop(WITNESS, kind="key", event="received")
    )
    view = rewrite(toy, toy.view(reports=False), spoilt)
    finds("receipts", f"{WITNESS} has no receipt", view)
    assert verify(rewrite(toy, toy.view(reports=False), both())).ok  # the control
