"""The account as data. No epsilon stands anywhere in it without its six labels (AUDITS C.1)."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field as Setting
from pydantic import model_validator

from protocols.privacy.accounting import INFINITE
from protocols.strict import Strict

ACCOUNT_VERSION: Literal[2] = 2
NO_DELTA = "not applicable"

Unit = Literal["coordinate", "row", "edge", "node", "graph", "user", "client"]
Adjacency = Literal["add-remove", "replace-one", "zero-out"]
TrustModel = Literal["local", "distributed-sum", "central", "shuffled"]
Scope = Literal["coordinate", "message", "round", "covered messages", "run", "all runs"]
Viewer = Literal["aggregator", "participant", "all but one"]
Verdict = Literal["NO CLAIM", "NOT FALSIFIED", "FALSIFIED"]


class Epsilon(Strict):
    """One epsilon with the six labels without which it says nothing.

    Attributes:
        value: decimal text, rounded up, or ``infinity``.
        unit: whose presence it bounds.
        adjacency: what is compared: with ``zero-out``, the unit's contribution and none.
        model: who adds noise, and who need not be trusted.
        scope: which releases it counts.
        delta: decimal text; ``not applicable`` with an infinite value only.
        assumptions: what must hold for it, in words.
    """

    value: str = Setting(pattern=r"^(infinity|\d+(\.\d+)?([eE][+-]\d+)?)$")
    unit: Unit
    adjacency: Adjacency
    model: TrustModel
    scope: Scope
    delta: str = Setting(pattern=r"^(not applicable|\d+(\.\d+)?([eE][+-]\d+)?)$")
    assumptions: tuple[str, ...] = Setting(min_length=1)

    @model_validator(mode="after")
    def _delta_is_one(self) -> Epsilon:
        if self.delta == NO_DELTA:
            if self.value != INFINITE:
                raise ValueError("a finite epsilon needs its delta")
        elif not float(self.delta) < 1:
            raise ValueError("delta is below 1")
        return self

    def as_float(self) -> float:
        """Return the value as a number."""
        return math.inf if self.value == INFINITE else float(self.value)


class Uncovered(Strict):
    """A plan item whose messages the noise does not cover, and why."""

    item: str
    why: str


class NoiseFacts(Strict):
    """The noise of one or more items.

    Attributes:
        items: that have it.
        sigma: one client's standard deviation (scale, for Laplace), grid steps.
        l2, l1: sensitivities as planned, grid steps.
        honest: noise shares that are counted on.
        releases: of one client in the run, all these items together, as planned.
        pure: epsilon of one message at delta 0, of a mechanism that has one; else empty.
    """

    items: tuple[str, ...]
    mechanism: str
    pure: str = ""
    sigma: str
    l2: str
    l1: str
    coordinates: int
    honest: int
    releases: int


class ItemFacts(Strict):
    """One noised item, planned and recorded.

    Attributes:
        planned, recorded: noised vectors of one client in the run; recorded: of the busiest client.
        opened: totals that were opened.
        survivors: clients in the smallest opened total; 0 if none was opened.
        epsilon: of one message, at the planned share of noise.
    """

    item: str
    planned: int
    recorded: int
    opened: int
    survivors: int
    epsilon: Epsilon


class Scoped(Strict):
    """What is spent in one scope, planned and as the ledgers record it of the worst client."""

    scope: Scope
    planned: Epsilon
    recorded: Epsilon


class View(Strict):
    """What the run spends against somebody: the aggregator, a participant, all but one (O18)."""

    view: Viewer
    epsilon: Epsilon


class Engine(Strict):
    """The same spending by another arithmetic; `note` says why there is no number.

    Attributes:
        engine: which.
        epsilon: None if it does not apply.
        ratio: to our own, decimal text; empty without a number.
        differs: by more than a tenth.
    """

    engine: str
    epsilon: Epsilon | None
    ratio: str
    differs: bool
    note: str


class Share(Strict):
    """Epsilon of the run if this many of all clients are missing or collude."""

    missing: int = Setting(description="clients that are missing or collude")
    honest: int = Setting(description="shares of noise that are left")
    epsilon: Epsilon


class BudgetFacts(Strict):
    """The budget store as a client recorded it before the first round (O20)."""

    dataset: str
    entries: int
    epsilon: Epsilon
    cap: Epsilon


class ClientFacts(Strict):
    """One client: what its ledger shows, and what that comes to."""

    name: str
    releases: int
    opened: int
    fewest_honest: int
    epsilon: Epsilon
    budget: BudgetFacts | None


class RecordsOfClient(Strict):
    """Private training of one client: recorded rounds and noised gradients, and what they cost."""

    name: str
    rounds: int
    steps: int
    epsilon: Epsilon
    budget: BudgetFacts | None


class Records(Strict):
    """What a run spends of one training record; a unit of its own beside the client.

    Attributes:
        statement: the one sentence to quote.
        target, recorded: planned, and as the ledgers show it of the worst client.
        clip, rate, noise: clip norm, sampling rate and noise multiplier, as planned.
        steps: noised gradients of one client in the run, as planned.
    """

    statement: str
    target: Epsilon
    recorded: Epsilon
    clip: str
    rate: str
    noise: str
    steps: int
    engines: tuple[Engine, ...]
    clients: tuple[RecordsOfClient, ...]


class Counted(Strict):
    """What noise on single records leaves of one of them, beside private training.

    Attributes:
        statement: the one sentence to quote.
        items: plan items that are noised.
        target, recorded: planned, and as the ledgers show it of the worst client.
        mechanism, scale: of the noise, in units of what one record moves a field or a row by.
        fields, releases: noised fields of a message, or rows that one node enters at most; messages
            of one client, as planned.
    """

    statement: str
    items: tuple[str, ...]
    target: Epsilon
    recorded: Epsilon
    mechanism: str
    scale: str
    fields: int
    releases: int


class Order(Strict):
    """What the order in which a relay returned messages is worth, beside the clients' own epsilon.

    Attributes:
        statement: the one sentence to quote.
        items: plan items whose messages are relayed.
        batches, fewest: batches that were put in order; messages in the smallest.
        counted: messages of honest clients that the plan counts on in every batch.
        epsilon: against the aggregator alone; None where nothing is claimed or it is refuted.
    """

    statement: str
    items: tuple[str, ...]
    batches: int
    fewest: int
    counted: int
    epsilon: Epsilon | None


class Account(Strict):
    """Planned against recorded privacy loss of a run, per client and in all.

    Attributes:
        statement: the one sentence to quote.
        epsilon: of the run, against the aggregator; infinite unless everything is covered (O16).
        target: what the plan promised for the covered messages; None without noise.
        verdict: does the record bear the target out.
        reasons: why not.
        covered, not_covered: plan items of messages derived from a client's data.
        records: the same for single training records; None without private training.
        counted: the same for other single records, unit by unit: validation and test records,
            nodes' features in rows; empty without such noise.
        order: what a relay's order is worth; None where no noised message is relayed.
        evidence, failed: verdict on the ledgers themselves, and every step that failed.
    """

    schema_version: Literal[2] = ACCOUNT_VERSION
    run: str
    algorithm: str
    policy: str
    plan_digest: str
    statement: str
    epsilon: Epsilon
    target: Epsilon | None
    verdict: Verdict
    reasons: tuple[str, ...]
    covered: tuple[str, ...]
    not_covered: tuple[Uncovered, ...]
    noise: tuple[NoiseFacts, ...]
    items: tuple[ItemFacts, ...]
    scopes: tuple[Scoped, ...]
    views: tuple[View, ...]
    engines: tuple[Engine, ...]
    honest_share: tuple[Share, ...]
    clients: tuple[ClientFacts, ...]
    records: Records | None = None
    counted: tuple[Counted, ...] = ()
    order: Order | None = None
    notes: tuple[str, ...]
    evidence: str
    failed: tuple[str, ...]
