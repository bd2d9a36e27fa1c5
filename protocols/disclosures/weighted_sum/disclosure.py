"""WEIGHTED_SUM: its rules, plan, words, protection and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from crypto.errors import OutOfRange
from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.rules import Chain, Limits
from protocols.disclosures._base.view import OneVerb
from protocols.disclosures._base.words import Planned
from protocols.disclosures._evaluated.ciphers import shape_of
from protocols.disclosures._evaluated.disclosure import (
    CRAFTED,
    UNWITNESSED,
    EvaluatedProtection,
    EvaluatedRules,
    EvaluatedWords,
    Uploaded,
    plan_results,
    plan_upload,
)
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.disclosures.weighted_sum.guards import Weigh
from protocols.forms import Exchange, Form
from protocols.messages import Array, Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.steps import Step, item_id
from protocols.policy.admission import asked_holders, has_weights
from protocols.policy.guard import Guard, guard_of
from protocols.policy.guards import Quantise
from protocols.rounds import Sealed, View
from protocols.wire.control import Row
from protocols.wire.roles import Role

# Which chain protects vectors that are weighed, and how many a row rests on (O10).

BITS = 15  # two values a coefficient; more would double what every party sends


class WeightedSumRules(EvaluatedRules):
    """Integers, encrypted; each receiver's combination is opened blind."""

    protecting = frozenset({"weigh", "unsafe_clear"})
    applied = protecting | {"clip", "quantise", "seal"}
    chain = ("clip", "quantise", "weigh", "seal")
    order = "clip, quantise, weigh, seal"

    def check(self, chain: Chain) -> None:
        """Hold it to its one chain, and integers to what a coefficient holds."""
        super().check(chain)
        quantise = guard_of(chain, Quantise)
        if guard_of(chain, Weigh) and quantise and quantise.bits > BITS:
            raise ValueError(
                f"'quantise' takes at most {BITS} bits where integers are weighed: a coefficient "
                "must hold a whole row of weights times the largest of them"
            )

    def check_policy(self, chain: Chain, policy: Limits) -> None:
        """Refuse rows of fewer others than the policy asks for."""
        weigh = guard_of(chain, Weigh)
        if weigh and weigh.top is not None and weigh.top <= policy.others:
            raise ValueError(f"top: more than the {policy.others} others of minimum_cohort")

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse what cannot be weighed, and rows of items that one client may hold (O12)."""
        if found := super().objection(kind, form, policy):
            return found
        asks = asked_holders(policy)
        if asks and form.rows and has_weights(kind, form.exchanges):
            of = "has weights of items that one client may hold"
            return f"message {kind.__name__} {of}, and {asks}"
        return None

    def not_computed(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse rows of which colluders, or a small group, would learn too much."""
        if policy.colluders:
            # Each row is checked alone, and two receivers can take one's row off the other's.
            return f"rows of message {kind.__name__} tell colluding receivers more than each alone"
        if form.top is not None and form.top <= policy.others:
            return (
                f"rows of message {kind.__name__} would weigh {form.top} others at most (top), "
                f"and must rest on {policy.others} in effect; give no top, or more than "
                f"{policy.others}"
            )
        return None


RULES = WeightedSumRules()


# The plan items of rows that are weighed (O10).


class WeightedSumPlanning(Planning):
    """Ciphertexts that come back in one Ask, and rows that a later one hands out."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the uploads of an Ask; rows are opened when they are handed out."""
        if evaluated(plan.policy.chain(self.disclosure)) is None:
            super().up(plan, name, kinds, times)
        else:
            plan_upload(plan, name, kinds, times)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds an opened row, still blinded; in clear the message itself."""
        return Row if evaluated(chain) is not None else kind

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Add what it takes to open the rows that an Ask hands out."""
        if evaluated(plan.policy.chain(self.disclosure)) is None:
            return {}
        (kind,) = (k for k in exchange.given if k.disclosure is self.disclosure)
        shape = shape_of((kind,), plan.policy, plan.dims)
        sources = [e.name for e in plan.exchanges if kind in e.back]
        upload = item_id(max(sources, key=len), self.disclosure, Step.UP, UP[0])
        plan_results(plan, exchange.name, upload, shape, times)
        return {"row_box": shape.row_bytes}


PLAN = WeightedSumPlanning(Disclosure.WEIGHTED_SUM)


# What plans say of rows that are weighed (O10).

ROWS = (
    "every client learns weighted combinations of others' messages, each resting on at least the "
    "policy's minimum_cohort of others in effect, or on its own message alone; combinations of "
    "many rounds together may tell more"
)
EVEN = (
    "there are no more other clients than a row must rest on, so every row weighs all others "
    "alike, whatever the algorithm asks for"
)
MANY = "from round "  # begins the warning on combinations of many rounds


class WeightedSumWords(EvaluatedWords):
    """Combinations are opened blind, each by its receiver."""

    limits = (ROWS, CRAFTED, UNWITNESSED, MANY)
    computed = "what is weighed"
    said = ROWS
    told: ClassVar[Mapping[str, str]] = {
        "aggregator": "nothing: it chooses the weights and cannot open a row",
        "key_authority": "uniform noise, how alike two receivers' weights are (all weights where "
        "they are computed from cosines, which it opened), and who took part when",
        "witness": "the weights, that every row rests on enough others, who took part when, no "
        "value of a message",
        "addressee": "its own weighted combination",
    }

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        return "its own weighted combination"

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of what is opened, of many rounds, and of rows that can only be even."""
        found = [*super().warnings(plan), *_many(plan)]
        return [*found, EVEN] if plan.fewest and ROWS in found else found


def _many(plan: Planned) -> list[str]:
    """Warn where rounds suffice to hand a client as many combinations as there are others."""
    handed, others = (Disclosure.WEIGHTED_SUM, str(Role.CLIENT)), plan.others
    times = [i.times for i in plan.items if (i.disclosure, i.recipient) == handed and not i.unsafe]
    if not others or max(times, default=0) < others:
        return []
    return [
        f"{MANY}{others} on a client may hold as many independent combinations as there are "
        f"others ({others}): told the weights by the aggregator or a witness, it could solve for "
        "each, did models not change, and for single ones earlier (O10)"
    ]


WORDS = WeightedSumWords(Disclosure.WEIGHTED_SUM)


PROTECT = EvaluatedProtection()


# What the aggregator holds of messages that are weighed: a token to hand out with weights.


class Mixture(Sealed):
    """Integer weights over encrypted messages; the rows are computed when an Ask hands them out."""

    def __init__(
        self, kind: type[Message], source: int, table: Array, flattened: tuple[int, ...]
    ) -> None:
        super().__init__(kind, {})
        self._source, self._table, self._flattened = source, table, flattened


class WeighedView(OneVerb):
    """WEIGHTED_SUM, protected: weights can be put on messages that nobody here can open.

    Args:
        kind: the message type.
        source: number of the exchange that brought the messages.
        size: how many.
        others: the smallest effective group of others (O10).
        total, top: of the policy's guard.
    """

    verb = "weighted"

    def __init__(
        self,
        kind: type[Message],
        source: int,
        size: int,
        others: int,
        total: int,
        top: int | None,
    ) -> None:
        self._kind, self._source, self._size = kind, source, size
        self._others, self._total, self._top = others, total, top

    def _answer(self, **options: Any) -> Sealed:
        """Return the nearest admissible integer weights (O10), to be handed out once."""
        from crypto.homomorphic.weighted import flatten

        weights = np.asarray(options["alpha"], dtype=np.float64)
        if weights.shape != (self._size, self._size):
            raise ValueError(f"weights must be ({self._size}, {self._size})")
        try:
            chosen = flatten(weights, self._others, total=self._total, top=self._top)
        except OutOfRange as error:
            raise ValueError("weights must be rows of shares that sum to one") from error
        return Mixture(self._kind, self._source, chosen.table, chosen.flattened)


class Weighable(Uploaded):
    """The messages of one Ask."""

    verb: ClassVar[str] = WeighedView.verb

    def views(self) -> dict[type[Message], View]:
        """Return what puts weights on them, while nobody here can open them."""
        policy, size, source = self._context.policy, len(self.survivors), self.where.exchange
        guard = guard_of(policy.chain(self.item.disclosure), Weigh)
        if guard is None:
            return super().views()
        facts = size, policy.others, guard.total, guard.top
        return {kind: WeighedView(kind, source, *facts) for kind in self.kinds}

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> Sealed:
        """Return every client's combination of messages that came in clear."""
        weights, size = np.asarray(more["alpha"], dtype=np.float64), len(sent)
        if weights.shape != (size, size) or not np.allclose(weights.sum(axis=1), 1.0):
            raise ValueError(f"weights must be ({size}, {size}) with rows that sum to one")
        mixed = {}
        for field in kind.fields:
            stack = np.stack([np.asarray(getattr(m, field.name)) for m in sent.values()])
            rows = weights @ stack.reshape(size, -1)  # one product for all receivers
            mixed[field.name] = rows.reshape(stack.shape) if field.shape else rows[:, 0].tolist()
        deliveries = {
            name: kind(**{field: rows[number] for field, rows in mixed.items()})
            for number, name in enumerate(sent)
        }
        return Sealed(kind, deliveries)


VIEW = Weighable
