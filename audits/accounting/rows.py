"""The tables of an account: every number with its labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from audits.accounting import models as m
from audits.accounting.engines import Drawn, differs, opacus
from audits.accounting.spending import budget_facts, budget_of
from audits.accounting.tally import Tally
from protocols.privacy.accounting import INFINITE, rounded_up

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
