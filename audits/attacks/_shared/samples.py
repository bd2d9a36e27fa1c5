"""What an attack is, and what it brings back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from audits.attacks._exposed.redrawn import ALONE
from audits.attacks._shared.material import Array, Material
from audits.attacks._shared.models import Claim
from audits.attacks._shared.rules import NullSide, Rule

Drawn = TypeVar("Drawn")


@dataclass(frozen=True, repr=False)
class Samples:
    """What an attack measured on one kind of payload, one entry per unit.

    Attributes:
        payload: ``P01`` to ``P21``.
        what: which message or variant of the question, short.
        units: the client of each entry; a client may stand in several (rounds).
        chance: the score of a random guess.
        prior: per unit, of the best attacker without the payload.
        raw: of the attack on the message before protection.
        null: of the same attack on another client's message, or on noise.
        protected: of the attack on what the receiver learnt.
        rounds: looked at; empty: the whole run.
        positives, negatives: records or trials behind the scores.
        note: what a reader must know besides, one sentence.
        metric, margin: instead of the attack's own; None: the attack's.
        gate: likewise.
        exact: the values are facts and no estimates (a rank, a count): what counts is the worst
            unit, and the interval is the value.
        null_side: ``above``: a null below chance is no sign of bias, and one above both chance and
            prior is (see `audits.attacks.label_count` for when this is right).
        bounds: of the metric; intervals are cut there.
        replicas: audit replicas drawn of each client, whose entries stand beside its own.
        alone: of the run's own draw alone, beside a row with replicas; stands where it is FAIL.
        doubt: why nobody but the attacker vouches for what was looked at; then no PASS rests on it.
        client_clusters: False if `units` are no clients (mechanisms, sums): the row counts none.
    """

    payload: str
    what: str
    units: tuple[str, ...]
    chance: float
    prior: Array
    raw: Array
    null: Array
    protected: Array
    rounds: tuple[int, ...] = ()
    positives: int = 0
    negatives: int = 0
    note: str = ""
    metric: str | None = None
    margin: float | None = None
    gate: float | None = None
    exact: bool = False
    null_side: NullSide = "both"
    bounds: tuple[float, float] = (0.0, 1.0)
    client_clusters: bool = True
    replicas: int = 0
    alone: bool = False
    doubt: str = ""

    def __post_init__(self) -> None:
        for name in ("prior", "raw", "null", "protected"):
            found = np.asarray(getattr(self, name), dtype=np.float64)
            if found.shape != (len(self.units),) or not np.isfinite(found).all():
                raise ValueError(
                    f"an attack gave no finite {name} score for each unit; a score that cannot be "
                    "computed belongs into NotApplicable with its reason"
                )
            object.__setattr__(self, name, found)
        if self.exact and np.ptp(self.prior) > 0:
            raise ValueError("facts are held against one prior; ask one question for each prior")
        if self.replicas and (self.exact or not self.client_clusters):
            raise ValueError("replicas are of clients' estimates; facts are what they are")
        if not self.units:
            raise ValueError("an attack gave samples of nobody; say NotApplicable and why")


@dataclass(frozen=True)
class NotApplicable:
    """An attack, or one of its questions, that has no answer here, with the reason in words.

    Attributes:
        arises: False: nothing of that kind leaves. True: the question does arise, and was not
            looked at: the verdict is NOT_TESTED.
        reason: one sentence; never empty.
        payload: of which kind; empty: of all that the attack is about.
        what: which message or variant.
    """

    reason: str
    payload: str = ""
    what: str = ""
    arises: bool = False

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError("an attack that is not applicable must say why; give the reason")


def own_too(
    drawn: Sequence[Drawn], rows: Callable[[Sequence[Drawn]], Sequence[Samples | NotApplicable]]
) -> list[Samples | NotApplicable]:
    """Return rows with replicas, and after them those of the run's own draw alone.

    Replicas take luck out, and what happened in the run is no luck: where a split was no draw, as
    one that was published, a leak of its records would vanish among seven draws of others.

    Args:
        drawn: trials of the run's own draw, then those of each replica.
        rows: makes rows of draws.
    """
    own = [row for row in rows(drawn[:1]) if isinstance(row, Samples)] if len(drawn) > 1 else []
    apart = [replace(row, what=f"{row.what}, {ALONE}", alone=True) for row in own]
    return [*rows(drawn), *apart]


@dataclass(frozen=True, repr=False)
class Findings:
    """What one attack found: a row per question, and claims that it held against evidence."""

    rows: tuple[Samples | NotApplicable, ...]
    claims: tuple[Claim, ...] = ()


class Attack(Protocol):
    """One attack; its file defines ``ATTACK``.

    Attributes:
        id: ``A04``.
        name: as the command line calls it.
        question: in plain words.
        payloads: the payload ids (`audit explain P05`) that it can look at.
        metric: name of its score; larger is worse.
        margin: how far above the prior a protected payload may be (an equivalence margin).
        gate: how far above the prior the raw control must be, or the attack is too weak to tell.
        rules: by which its scores are judged, and no others; the first has its metric, margin and
            gate.
        needs_capture: whether it needs captured rounds.
    """

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def question(self) -> str: ...
    @property
    def payloads(self) -> tuple[str, ...]: ...
    @property
    def metric(self) -> str: ...
    @property
    def margin(self) -> float: ...
    @property
    def gate(self) -> float: ...
    @property
    def rules(self) -> tuple[Rule, ...]: ...
    @property
    def needs_capture(self) -> bool: ...

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack.

        Args:
            material: the run.
            rng: all the chance there is; seeded from the run's ledger heads.
            profile: ``quick`` or ``default``.
        """
