"""The numbers behind an account: what was planned, what the ledgers show, and the worst of it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from audits.accounting import models as m
from audits.accounting.counted import (
    Openings,
    Spend,
    budget_facts,
    budget_of,
    coverage,
    derived,
    left_bare,
    objection,
    spends,
    unread,
)
from audits.accounting.engines import (
    GAUSSIAN,
    Drawn,
    Meter,
    check_noise,
    differs,
    false_noise,
    opacus,
    sound,
)
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.plan.learns import TRUST
from protocols.plan.plan import Item, NoisePlan, times_in_round
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.policy.guards import Quantise
from protocols.privacy.accounting import INFINITE, rounded_up, tails
from protocols.privacy.shuffled import run_epsilon
from protocols.wire.roles import Role

_WIDEST = Quantise(bits=32)


class Tally:
    """Counts the noised vectors of one run and turns them into epsilons.

    Args:
        case: the run.

    Raises:
        EvidenceError: a document cannot be read, or the plan states noise that is none.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.plan, self.policy = case, case.plan, case.policy
        yardstick = case.yardstick
        self.covered, self.not_covered = coverage(case.ledger_index, yardstick)
        self.unread = unread(case.ledger_index, yardstick)
        # Noise of one's own is of all that a client sends, so nothing may leave without it.
        own = any(find(chain, "own_noise") for chain in self.policy.rules.values())
        self.bare = left_bare(case.ledger_index, yardstick) if own else ()
        planned = [item for item in derived(case.plan) if objection(item) is None]
        self.noises: dict[str, NoisePlan] = {}
        grid = find(self.policy.rules.get(Disclosure.SUM, ()), "quantise")
        for item in planned:
            if item.noise is not None:
                check_noise(item.id, item.noise, len(case.plan.clients))
                exact = sound(item.noise, grid if isinstance(grid, Quantise) else _WIDEST)
                self.noises[item.id] = exact
        self.items: list[Item] = planned
        self.delta = min((float(n.delta) for n in self.noises.values()), default=0.0)
        self.meter = Meter(self.noises, self.delta, len(case.plan.clients))
        self.target = min((float(n.epsilon) for n in self.noises.values()), default=math.inf)
        drawn = self.plan.drawn  # masks count on more corrupt clients than `colluders` says
        self.colluders = max(self.policy.colluders, drawn.within if drawn is not None else 0)
        self.spends = spends(case.ledger_index, yardstick, planned, self.colluders)
        self.openings = Openings(case.ledger_index)

    @property
    def local(self) -> bool:
        """Tell whether only a client's own noise is counted on."""
        gaussian = all(noise.mechanism == GAUSSIAN for noise in self.noises.values())
        return self.own or not gaussian or any(item.unsafe for item in self.items)

    @property
    def own(self) -> bool:
        """Tell whether a client's own noise hides which of any two data sets it has."""
        return bool(self.noises) and all(noise.local for noise in self.noises.values())

    @property
    def together(self) -> int:
        """How many clients a total is of at least, if nobody is away.

        Where lots cut them into cohorts, a cohort; where they fall into clusters, as many as a
        survivor list holds. Readers, who add no noise, are counted.
        """
        if self.plan.drawn is not None:
            return self.plan.drawn.smallest
        if self.plan.splits is not None:
            return min(noise.honest for noise in self.noises.values()) + self.colluders
        return len(self.plan.clients)

    @cached_property
    def groups(self) -> dict[NoisePlan, list[Item]]:
        """Items by their noise; those that share one also share its releases."""
        found: dict[NoisePlan, list[Item]] = {}
        for item in self.items:
            found.setdefault(self.noises[item.id], []).append(item)
        return found

    @property
    def scope(self) -> m.Scope:
        """What the sum of all noised vectors is a statement about (O16)."""
        return "covered messages" if self.not_covered else "run"

    # --- planned --------------------------------------------------------------------------------

    def planned(self, honest: int | None = None) -> dict[Drawn, int]:
        """Return the run as planned, or with another number of honest shares."""
        return {
            self._vector(items[0], honest): noise.releases for noise, items in self.groups.items()
        }

    def _vector(self, item: Item, honest: int | None = None) -> Drawn:
        shares = self.noises[item.id].honest if honest is None else honest
        return item.id, 1 if item.unsafe else shares

    def planned_message(self, item: Item) -> float:
        """Return epsilon of one vector of an item, at the planned share of noise."""
        return self.meter.own({self._vector(item): 1})

    def planned_round(self) -> float:
        """Return epsilon of the fullest round; round 0 is what stands outside the rounds."""
        rounds = self.plan.rounds
        return max(
            self.meter.own({self._vector(i): times_in_round(i, n, rounds) for i in self.items})
            for n in (0, 1)
        )

    # --- recorded -------------------------------------------------------------------------------

    def recorded(self, found: Iterable[Spend]) -> float:
        """Return epsilon of recorded vectors against the aggregator."""
        return self.meter.own(Counter((spend.item, spend.honest) for spend in found))

    @cached_property
    def worst(self) -> list[Spend]:
        """What the client with the largest epsilon spent."""
        return max(self.spends.values(), key=self.recorded, default=[])

    def recorded_round(self) -> float:
        """Return the largest epsilon of one client in one round."""
        parts: dict[tuple[str, int], list[Spend]] = {}
        for client, found in self.spends.items():
            for spend in found:
                parts.setdefault((client, spend.round), []).append(spend)
        return max(map(self.recorded, parts.values()), default=0.0)

    def recorded_message(self) -> float:
        """Return the largest epsilon of one recorded vector."""
        return max((self.recorded([spend]) for spend in self._all()), default=0.0)

    def _all(self) -> Iterator[Spend]:
        for found in self.spends.values():
            yield from found

    def recorded_times(self, item: Item) -> int:
        """Return how many vectors of an item the busiest client released."""
        counts = (sum(s.item == item.id for s in found) for found in self.spends.values())
        return max(counts, default=0)

    def opened(self, item: Item) -> tuple[int, int]:
        """Return how many totals of an item were opened, and how few clients one of them held."""
        sums = {
            (sent.exchange, str(sent.facts["cohort"]))
            for sent in self.case.ledger_index.releases()
            if sent.item == item.id
        }
        held = [self.openings.survivors(key) for key in sums if key in self.openings.times]
        return sum(self.openings.times.get(key, 0) for key in sums), min(held, default=0)


# --- What the order of relayed messages is worth, as the ledgers bear it out (O23) ---
#
# The relay writes down of how many clients it put messages in order. A batch below the number that
# the plan counts on, a client with more messages than planned, or a message that nobody put in
# order refutes the claim. The budget is charged what the clients' own noise gives, never this.


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


# --- The tables of an account: every number with its labels ---

_NOT_SHOWN = {"margin", "epsilon", "delta", "adjacency", "batch", "shuffled"}
_ROWS = 20  # of the honest-share table; with more clients it is thinned out
_CENTRAL = "continuous Gaussian of the same total, without rounding: a cross-check, not a claim"
_VIEWS: tuple[tuple[m.Viewer, str], ...] = (
    ("aggregator", "the viewer knows the colluders' noise only"),
    ("participant", "the viewer knows its own noise and what everyone is told"),
    ("all but one", "everybody else colludes: one share is left"),
)


@dataclass(frozen=True)
class Labels:
    """The labels that all numbers of an account share."""

    model: m.TrustModel
    delta: str
    assumptions: tuple[str, ...]
    adjacency: m.Adjacency = "zero-out"

    def epsilon(self, value: float, scope: m.Scope, *more: str) -> m.Epsilon:
        """Return a number with its labels, and what it assumes besides."""
        return m.Epsilon(
            value=rounded_up(value),
            unit="client",
            adjacency=self.adjacency,
            model=self.model,
            scope=scope,
            delta=self.delta,
            assumptions=(*self.assumptions, *more),
        )


def unbounded(scope: m.Scope = "run") -> m.Epsilon:
    """Return the infinite epsilon of what is not covered."""
    return m.Epsilon(
        value=INFINITE,
        unit="client",
        adjacency="zero-out",
        model="central",
        scope=scope,
        delta=m.NO_DELTA,
        assumptions=("none: something derived from data is not known to be noised",),
    )


def labels(tally: Tally) -> Labels:
    """Return the labels of a run's numbers: whom one has to trust, and what is assumed."""
    others = (
        "nobody else's noise is counted on"
        if tally.local
        else f"at most {tally.colluders} other clients collude with the aggregator"
    )
    assumed = [
        "every client's own noise is drawn as planned and stays secret",
        others,
        "no credit for sampling: the aggregator chooses the cohorts (O21)",
    ]
    model: m.TrustModel = "local" if tally.local else "distributed-sum"
    adjacency: m.Adjacency = "replace-one" if tally.own else "zero-out"
    return Labels(model, repr(tally.delta), tuple(assumed), adjacency)


def noise(tally: Tally) -> Iterator[m.NoiseFacts]:
    """Yield the noises of a plan, with the sensitivities that are counted with."""
    for found, items in tally.groups.items():
        facts = found.model_dump(exclude=_NOT_SHOWN)
        yield m.NoiseFacts(items=tuple(item.id for item in items), **facts)


def items(tally: Tally, make: Labels) -> Iterator[m.ItemFacts]:
    """Yield every noised item, planned and recorded."""
    for item in tally.items:
        opened, survivors = tally.opened(item)
        yield m.ItemFacts(
            item=item.id,
            planned=item.times,
            recorded=tally.recorded_times(item),
            opened=opened,
            survivors=survivors,
            epsilon=make.epsilon(tally.planned_message(item), "message"),
        )


def scopes(tally: Tally, make: Labels) -> Iterator[m.Scoped]:
    """Yield per message, per round and for the run what is planned and what is recorded."""
    message = max(map(tally.planned_message, tally.items))
    rows: tuple[tuple[m.Scope, float, float], ...] = (
        ("message", message, tally.recorded_message()),
        ("round", tally.planned_round(), tally.recorded_round()),
        (tally.scope, tally.meter.own(tally.planned()), tally.recorded(tally.worst)),
    )
    for scope, planned, recorded in rows:
        yield m.Scoped(
            scope=scope,
            planned=make.epsilon(planned, scope),
            recorded=make.epsilon(recorded, scope, "of the client that spent most"),
        )


def views(tally: Tally, make: Labels) -> Iterator[m.View]:
    """Yield the recorded run against the three who could look (O18)."""
    for viewer, text in _VIEWS:
        shares = {"aggregator": "honest", "participant": "participant"}.get(viewer)
        drawn = Counter((s.item, getattr(s, shares) if shares else 1) for s in tally.worst)
        value = tally.meter.own(drawn)
        yield m.View(view=viewer, epsilon=make.epsilon(value, tally.scope, text))


def worst(tally: Tally, make: Labels) -> m.Epsilon:
    """Return what the worst of those who could look is bounded by."""
    return max((view.epsilon for view in views(tally, make)), key=lambda found: found.as_float())


def shares(tally: Tally, make: Labels) -> Iterator[m.Share]:
    """Yield the planned run with 0 to all but one of a total's clients missing or colluding."""
    # Whoever reads a total is in it with a blind, and no noise.
    clients = tally.together - any(item.reader for item in tally.items)
    if tally.local:
        return
    counted_on = min(found.honest for found in tally.groups)
    for missing in _some(clients, clients - counted_on):
        honest = clients - missing
        value = tally.meter.own(tally.planned(honest))
        text = f"{honest} of {clients} shares of noise are present and honest in every sum"
        yield m.Share(
            missing=missing, honest=honest, epsilon=make.epsilon(value, tally.scope, text)
        )


def _some(clients: int, planned: int) -> list[int]:
    """Return 0 to `clients` - 1, thinned out where they are many; what the plan counts on stays."""
    if clients <= _ROWS:
        return list(range(clients))
    parts = [clients * part // 10 for part in range(1, 10)]
    return sorted({0, 1, 2, 5, *parts, max(0, planned), clients - 2, clients - 1})


def engines(tally: Tally, make: Labels) -> Iterator[m.Engine]:
    """Yield our own arithmetic and Opacus' two, on the equivalent central Gaussians."""
    drawn: Mapping[Drawn, int] = Counter((s.item, s.honest) for s in tally.worst)
    drawn = drawn or tally.planned()
    own = tally.meter.own(drawn)
    first = make.epsilon(own, tally.scope, "discrete noise, rounding, wrap and tails are counted")
    yield m.Engine(
        engine="own RDP", epsilon=first, ratio="1", differs=False, note="what is claimed"
    )
    history = tally.meter.central(drawn)
    if not history:
        for name in ("Opacus RDP", "Opacus PRV"):
            why = "does not apply: it assumes Gaussian noise throughout"
            yield m.Engine(engine=name, epsilon=None, ratio="", differs=False, note=why)
        return
    for name, value in opacus(history, tally.delta):
        if isinstance(value, str) or not math.isfinite(value) or not 0 < own < math.inf:
            why = value if isinstance(value, str) else "no number"
            yield m.Engine(engine=name, epsilon=None, ratio="", differs=False, note=why)
            continue
        apart = differs(own, value)
        yield m.Engine(
            engine=name,
            epsilon=make.epsilon(value, tally.scope, _CENTRAL),
            ratio=f"{value / own:.4g}",
            differs=apart,
            note="DIFFERS by more than a tenth" if apart else "agrees within a tenth",
        )


def clients(tally: Tally, make: Labels) -> Iterator[m.ClientFacts]:
    """Yield every client's own number; sums over clients would mean nothing."""
    cap = tally.policy.budget
    for name, found in sorted(tally.spends.items()):
        entry = budget_of(tally.case.ledger_index, name, tally.items)
        known = bool(tally.items) and name not in tally.unread
        value = make.epsilon(tally.recorded(found), tally.scope) if known else unbounded()
        yield m.ClientFacts(
            name=name,
            releases=len(found),
            opened=sum(bool(s.survivors) for s in found),
            fewest_honest=min((s.honest for s in found), default=0),
            epsilon=value,
            budget=budget_facts(entry, cap) if entry is not None and cap is not None else None,
        )
