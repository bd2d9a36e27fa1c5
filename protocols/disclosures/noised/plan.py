"""The plan's sizes of rows that one client shows, and of what its own noise hides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crypto.hpke import SEAL_OVERHEAD
from protocols.disclosures._base.plan import Planning
from protocols.disclosures._relayed.plan import plan_relay
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.decoys import planned_rows
from protocols.disclosures.noised.telling import parts_of, randomiser_of
from protocols.forms import Form
from protocols.messages import Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.noise import NoisePlan
from protocols.plan.steps import Step, item_id
from protocols.policy.guard import Guard, find, guard_of
from protocols.policy.guards import Clip
from protocols.privacy.own_target import of_exchanges, own_noises


class NoisedPlanning(Planning):
    """Rows of one size, whatever the client holds; or one randomised message."""

    def dims(
        self, form: Form[Any], chain: Sequence[Guard], dims: Mapping[str, int], records: int
    ) -> dict[str, int]:
        """Return how many rows a client sends."""
        return planned_rows(chain, dims)

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the message; under noise of the client's own with the noise and its size."""
        chain = plan.policy.chain(self.disclosure)
        noise, clip = _own(plan), guard_of(chain, Clip)
        if noise is None or clip is None:
            super().up(plan, name, kinds, times)
            return
        label = item_id(name, self.disclosure, Step.UP, UP[0])
        size = randomiser_of(noise, parts_of(kinds, plan.dims), clip.bound, label).size
        relayed = find(chain, "relay") is not None
        size += SEAL_OVERHEAD if relayed else 0
        place = (name, self.disclosure, Step.UP, UP, kinds, self.disclosure, times)
        plan.add(*place, body=size, noise=noise)
        if relayed:
            plan_relay(plan, name, self.disclosure, size, times)


def _own(plan: PlanBuilder) -> NoisePlan | None:
    """Return the noise of every NOISED message of the run: all that is said shares one target."""
    sent = of_exchanges(plan.exchanges, plan.dims, plan.rounds)
    return own_noises(plan.policy, sent, len(plan.clients)).get(Disclosure.NOISED)


PLAN = NoisedPlanning(Disclosure.NOISED)
