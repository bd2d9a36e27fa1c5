"""Whether what travelled is what the plan announced: sizes, counts, and nothing left over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocols.plan.plan import Item, Plan
from protocols.plan.steps import Service, Way
from protocols.wire.envelope import Envelope

__all__ = ["unlike_the_plan", "used"]


def used(plan: Plan) -> list[Item]:
    """Return the items that a run without refusals uses up, from which nobody is away.

    Where clusters may be cut, clients are compared only if a criterion is met, which may never be.
    """
    cuts = plan.splits.message if plan.splits is not None else ""
    compared = {i.exchange for i in plan.items if cuts in (kind.name for kind in i.messages)}
    found = [i for i in plan.items if i.part not in (Service.REFUSAL, Service.TOTALS)]
    found = [i for i in found if not i.exchange or i.exchange not in compared]
    return [i for i in found if i.way is not Way.TWO_STEPS or not plan.instead_of(i)]


def unlike_the_plan(plan: Plan, sent: Iterable[bytes]) -> Iterator[str]:
    """Yield how distinct envelopes differ from what a plan announces of a whole run."""
    per_route: dict[tuple[str, str, str], list[int]] = {}
    for data in dict.fromkeys(sent):
        header = Envelope.decode(data).header
        item = plan.item(header.item)
        if len(data) != item.bytes:
            yield f"{item.id}: {len(data)} bytes were sent, and {item.bytes} planned"
        route = (item.id, header.sender, header.recipient)
        per_route.setdefault(route, []).append(header.round)
    for (id, _, _), rounds in per_route.items():
        item = plan.item(id)
        in_rounds = [rounds.count(number) for number in range(1, plan.rounds + 1)]
        most = max(item.per_round, item.times - plan.rounds * item.per_round)
        if len(rounds) > item.times or max(in_rounds) > most:
            yield f"{item.id}: was sent more often than planned"
    seen = {id for id, _, _ in per_route}
    yield from (f"{i.id}: planned, and never sent" for i in used(plan) if i.id not in seen)
