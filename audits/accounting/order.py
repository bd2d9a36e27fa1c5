"""What the order of relayed messages is worth, as the ledgers bear it out (O23).

The relay writes down of how many clients it put messages in order. A batch below the number that
the plan counts on, a client with more messages than planned, or a message that nobody put in order
refutes the claim. The budget is charged what the clients' own noise gives, never this.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from audits.accounting import models as m
from audits.accounting.engines import false_noise
from audits.accounting.tally import Tally
from audits.evidence.steps import Case
from protocols.plan.noise import NoisePlan
from protocols.plan.steps import Step
from protocols.privacy.accounting import rounded_up, tails
from protocols.privacy.own_words import TRUST
from protocols.privacy.shuffled import run_epsilon
from protocols.wire.roles import Role

__all__ = ["Order", "order", "order_of", "order_reasons"]


class Order:
    """What the ledgers say of the batches of one run.

    Args:
        tally: of the run.
        noise: of the messages that are relayed.

    Attributes:
        fewest: messages in the smallest batch; 0 if there was none.
        batches: that were put in order.
        twice, padded: an Ask has two batches; a batch holds more messages than clients sent.
        bare: exchanges whose batch came back and is not recorded.
        releases: messages of the client that sent most.
    """

    def __init__(self, tally: Tally, noise: NoisePlan) -> None:
        case: Case = tally.case
        self.tally, self.noise = tally, noise
        self.items = {item.id: item for item in tally.items if tally.noises[item.id].batch}
        told = [
            entry
            for party, entry in case.ledger_index.of_kind("relay")
            if entry["item"] in self.items and case.roster.party(party).role is Role.RELAY
        ]
        self.batches = len(told)
        self.fewest = min((int(entry["survivors"]) for entry in told), default=0)
        self.twice = max(Counter((e["item"], e["exchange"]) for e in told).values(), default=0) > 1
        sent: dict[int, set[str]] = defaultdict(set)
        for release in case.ledger_index.releases():
            if release.item in self.items:
                sent[release.exchange].add(release.party)
        # A batch of more messages than clients sent holds one of somebody twice.
        self.padded = any(e["survivors"] > len(sent[e["exchange"]]) for e in told)
        recorded = {int(entry["exchange"]) for entry in told}
        parts = {(item.exchange, item.part) for item in self.items.values()}
        returns = case.plan.all_of(step=Step.RELAYED)
        pools = {item.id for item in returns if (item.exchange, item.part) in parts}
        returned = {
            int(entry["exchange"])
            for kind in ("release", "receipt")  # of whoever sent it, or whoever got it
            for _, entry in case.ledger_index.of_kind(kind)
            if entry["item"] in pools
        }
        self.bare = sorted(returned - recorded)
        self.releases = sum(spend.item in self.items for spend in tally.worst)

    @property
    def honest(self) -> int:
        """Messages of clients that keep to the randomiser, in the smallest batch."""
        return self.fewest - self.tally.policy.colluders

    def epsilon(self) -> float | None:
        """Return epsilon of the run: all messages of one client, each among as many as are assured.

        Who else was there by chance counts for nothing (O23), so n is the plan's and no batch's.
        Delta is split as planned: whoever ends a run early may have chosen when by what came out.
        """
        noise, clients = self.noise, len(self.tally.plan.clients)
        off = tails(honest=clients, dimension=noise.coordinates, releases=noise.releases)
        times = max(self.releases, 1)
        spent = float(noise.delta) * min(times / noise.releases, 1.0)
        return run_epsilon(float(noise.pure), noise.batch, spent, times, tails=off)


def order_of(tally: Tally) -> Order | None:
    """Return what the ledgers say of relayed messages under own noise; None where none are."""
    noises = {noise for noise in tally.noises.values() if noise.batch}
    return Order(tally, next(iter(noises))) if noises else None


def order(found: Order) -> m.Order:
    """Return what the account says of it: an epsilon only where the plan claims one and holds."""
    noise, why = found.noise, next(order_reasons(found), "")
    why = why or false_noise(found.tally.plan, found.tally.policy).rstrip(".")
    if noise.shuffled and not why and not found.batches:
        why = "no batch is recorded"
    if noise.shuffled and not why and found.tally.not_covered:
        why = f"{found.tally.not_covered[0].item} is not covered by any noise"
    value = found.epsilon() if noise.shuffled and not why else None
    if value is None:
        said = "No claim rests on the order in which the relay returned messages"
        because = why or f"{noise.batch} honest messages a batch are counted on, too few for one"
        return _made(found, f"{said}: {because}", None)
    epsilon = m.Epsilon(
        value=rounded_up(value),
        unit="client",
        adjacency="replace-one",
        model="shuffled",
        scope=found.tally.scope,
        delta=repr(float(noise.delta)),
        assumptions=(
            TRUST,
            f"at most {found.tally.policy.colluders} clients of a batch leave the randomiser",
            "every client's own noise is drawn as planned and stays secret",
            "batches are added up (basic composition)",
        ),
    )
    statement = (
        f"Behind the relay, which is trusted: ε = {epsilon.value} at δ = {epsilon.delta}, against "
        f"an aggregator that it does not work with; {found.batches} batches of at least "
        f"{found.fewest} messages; never charged, and with the relay only the ε above holds"
    )
    return _made(found, statement, epsilon)


def _made(found: Order, statement: str, epsilon: m.Epsilon | None) -> m.Order:
    return m.Order(
        statement=statement,
        items=tuple(found.items),
        batches=found.batches,
        fewest=found.fewest,
        counted=found.noise.batch,
        epsilon=epsilon,
    )


def order_reasons(found: Order) -> Iterator[str]:
    """Yield why the record does not bear out what the plan says of the order."""
    noise = found.noise
    if not noise.shuffled:
        return
    if found.bare:
        yield f"the batch of exchange {found.bare[0]} was returned and not recorded (O23)"
    if found.twice or found.padded:
        yield "a batch holds more than one message of a client (O23)"
    if found.batches and found.honest < noise.batch:
        yield (
            f"a batch of {found.fewest} messages was put in order, and the plan counts on "
            f"{noise.batch} honest ones beside {found.tally.policy.colluders} (O23)"
        )
    if found.releases > noise.releases:
        yield f"a client sent {found.releases} messages, and {noise.releases} were counted (O23)"
