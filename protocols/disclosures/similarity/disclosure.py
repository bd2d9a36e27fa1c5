"""SIMILARITY: its rules, plan, words, protection and answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np

from crypto.homomorphic.similarity import SKETCH_ABOVE
from protocols.clusters import Cut, cut_in_two, weighed
from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.rules import Limits
from protocols.disclosures._base.view import ClearView, OneVerb
from protocols.disclosures._base.words import Planned
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
from protocols.errors import LocalProtocolError
from protocols.forms import Exchange, Form
from protocols.messages import Array, Message, SimilarityMessage, Vector
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.plan import Item
from protocols.plan.steps import Part, Step, item_id
from protocols.policy.guard import find
from protocols.rounds import View
from protocols.wire.codec import decode
from protocols.wire.envelope import Where
from protocols.wire.run_context import RunContext

# Which chain protects vectors that are compared.


class SimilarityRules(EvaluatedRules):
    """Directions, encrypted; one number a pair is opened."""

    protecting = frozenset({"cosine", "unsafe_clear"})
    applied = protecting | {"normalise", "seal"}
    chain = ("normalise", "cosine", "seal")
    order = "normalise, cosine, seal"

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse splits that the policy's cohorts do not allow, or that leave few clients apart."""
        splits = form.splits
        if splits is not None and splits.kind is kind:
            if policy.cohort_changes == "fixed":
                return "it splits clients into clusters, and cohort_changes is fixed"
            summed = policy.rules.get(Disclosure.SUM, ())
            if splits.guard == "leave" and not find(summed, "unsafe_clear"):
                return (
                    "under cut_guard: leave the totals before and after a split differ by the side "
                    "that left; that is Unsafe, and possible where sums are in clear anyway"
                )
        return super().objection(kind, form, policy)

    def not_computed(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse a message that is not one vector, or is not compared by cosines."""
        if issubclass(kind, SimilarityMessage) and kind.measure is not None:
            return f"message {kind.__name__} is compared otherwise than by cosines: only in clear"
        if len(kind.fields) == 1:
            return None
        return f"message {kind.__name__} holds more than the one vector that is compared"


RULES = SimilarityRules()


# The plan items of vectors that are compared (O3).


class SimilarityPlanning(Planning):
    """Ciphertexts, and the cosines that are opened of them."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the uploads of an Ask, and what it takes to open their cosines."""
        if evaluated(plan.policy.chain(self.disclosure)) is None:
            super().up(plan, name, kinds, times)
            return
        signs = plan.splits is not None and plan.splits.message == kinds[0].__name__
        shape = plan_upload(plan, name, kinds, times)
        upload = item_id(name, self.disclosure, Step.UP, UP[0])
        plan_results(plan, name, upload, shape, times, signs=signs)


PLAN = SimilarityPlanning(Disclosure.SIMILARITY)


# What plans say of vectors that are compared (O3).

COSINES = (
    "the key authority and the aggregator learn how alike every two clients' vectors are; where "
    "weights are computed from that, a witness learns it roughly, and the authority the weights; a "
    "client that chooses its vector and works with one of the two reads one coordinate of "
    "everybody's a round"
)
SPLITS = (
    "clients are split by these cosines into at most {most} clusters of at least {least}, and each "
    "cluster is summed apart: aggregator and key authority learn who is in which, and every client "
    "who is in its own; clients that work together and choose their vectors can draw a client of "
    "their choice into a cluster of that size, where only those that the policy's colluders counts "
    "leave {others} others beside it; "
)
SIGNED = (
    "the key authority computes each cut from the cosines that it opened and signs it, and no "
    "client answers for a cluster that does not come of signed cuts"
)
OWN_WORD = (
    "a split is the aggregator's word: clients only see to it that their cluster gets no larger, "
    "and that no cut leaves a side below the smallest cohort"
)
LEAVES = (
    "UNSAFE: under cut_guard: leave a side below the smallest cohort leaves the run, and the "
    "totals before and after differ by its update"
)
SKETCHED = (
    "vectors of more than 100,000 values are compared by count-sketches of 65,536 places: cosines "
    "err by 0.004 to 0.006 (rms; 0.009 at most over 15 pairs of 1,000,000 values)"
)


class SimilarityWords(EvaluatedWords):
    """Cosines are opened; long vectors are sketched before."""

    limits = (COSINES, CRAFTED, UNWITNESSED, SKETCHED, "clients are split by these", LEAVES)
    computed = "what is compared"
    said = COSINES
    told: ClassVar[Mapping[str, str]] = {
        "aggregator": "only the matrix of pairwise cosines, rounded to 2^-14",
        "key_authority": "the same cosines to about 2^-20, as it rounds, and who took part when",
        "witness": "that the matrix was computed from these uploads, who took part when; no value, "
        "but roughly the cosines where the weights that it sees are computed from them",
    }

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of what is opened, and of sketches."""
        sketched = any(self._sketched(item) for item in plan.items)
        return [*super().warnings(plan), *_splits(plan), *([SKETCHED] if sketched else [])]

    def _sketched(self, item: Item) -> bool:
        """Tell whether the vectors of an item are sketched: its ciphertexts hold fewer values."""
        if item.unsafe or item.step is not Step.UP or item.disclosure is not self.disclosure:
            return False
        (field,) = item.messages[0].fields
        return math.prod(field.shape) > SKETCH_ABOVE


def _splits(plan: Planned) -> list[str]:
    """Say into what clients are split, and whose word that is."""
    if plan.splits is None:
        return []
    least, others = plan.policy.smallest_cohort, plan.policy.minimum_cohort
    text = SPLITS.format(most=plan.clusters, least=least, others=others)
    word = SIGNED if plan.splits.signed else OWN_WORD
    return [text + word, *([LEAVES] if plan.splits.guard == "leave" else [])]


WORDS = SimilarityWords(Disclosure.SIMILARITY)


PROTECT = EvaluatedProtection()


# What the aggregator holds of vectors that are compared, and in the end their cosines (O3).


class CosinesView(OneVerb):
    """SIMILARITY, protected: one rounded cosine per pair, sorted by client.

    Args:
        cosines: (K, K).
        cut: of the cluster that was compared; None if none may happen.
        splits: the form splits its clients by this message.
    """

    verb = "similarity"

    def __init__(self, cosines: Array, cut: Cut | None = None, splits: bool = False) -> None:
        self._cosines, self._cut, self._splits = cosines, cut, splits

    def read(self, verb: str, **options: Any) -> Any:
        """Answer the verb, or say how the cluster is cut; raises TypeError for any other."""
        if verb == "split":
            return cut_of(self._cut, self._splits, **options)
        return super().read(verb, **options)

    def _answer(self, **options: Any) -> Array:
        return self._cosines.copy()


class ClearCosines(ClearView):
    """SIMILARITY in clear, with the cut that the aggregator makes of it; see `CosinesView`."""

    def __init__(
        self,
        kind: type[Message],
        sent: Mapping[str, Message],
        dims: Mapping[str, int],
        cut: Cut | None = None,
        splits: bool = False,
    ) -> None:
        super().__init__(kind, sent, dims)
        self._cut, self._splits = cut, splits

    def read(self, verb: str, **options: Any) -> Any:
        """Answer the verb, or say how the cluster is cut; raises TypeError for any other."""
        if verb == "split":
            return cut_of(self._cut, self._splits, **options)
        return super().read(verb, **options)


def cut_of(cut: Cut | None, splits: bool, kind: type[Message]) -> Cut | None:
    """Return a cut; raises TypeError where the form does not say that it splits."""
    if not splits:
        raise TypeError(f"the form does not say that it splits by {kind.__name__}: Form.split_by")
    return cut


class Compared(Uploaded):
    """The vectors of one Ask.

    Attributes:
        cosines: of every pair, once they were opened.
        cut: of the cohort, as the key authority signed it; None: none may happen.
    """

    verb: ClassVar[str] = CosinesView.verb
    adds: ClassVar[bool] = False

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.cosines: Vector | None = None
        self.cut: Cut | None = None

    def views(self) -> dict[type[Message], View]:
        """Return the cosines; raises LocalProtocolError if they are not here."""
        if not self.protected:
            return self._in_clear()
        if self.cosines is None:
            raise LocalProtocolError("The cosines were not opened yet.")
        return {k: CosinesView(self.cosines, self.cut, self.splits(k)) for k in self.kinds}

    def splits(self, kind: type[Message]) -> bool:
        """Tell whether the form splits its clients by a message."""
        plan = self._context.plan.splits
        return plan is not None and plan.message == kind.__name__

    def _in_clear(self) -> dict[type[Message], View]:
        """Return cosines of vectors in clear, and the cut that is the aggregator's own word."""
        sent = {m: decode(self.kinds, body, self.dims) for m, body in self.bodies().items()}
        found: dict[type[Message], View] = {}
        for place, kind in enumerate(self.kinds):
            messages, splits = {m: said[place] for m, said in sent.items()}, self.splits(kind)
            cut = self._own_cut(self.clear(kind, messages, self.dims)) if splits else None
            found[kind] = ClearCosines(kind, messages, self.dims, cut, splits)
        return found

    def _own_cut(self, cosines: Array) -> Cut | None:
        """Return the cut of the whole cohort; None if none may happen, or somebody is away."""
        members, plan = self.where.members, self._context.plan.splits
        if plan is None or self.survivors != members:
            return None
        least = self._context.policy.smallest_cohort
        side = cut_in_two(weighed(cosines), plan.cut, plan.guard, least)
        if side is None:
            return None
        names = tuple(name for name, inside in zip(members, side, strict=True) if inside)
        return Cut(self.where.round, self.where.exchange, members, names, leaves=len(names) < least)

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> Array:
        """Return how alike vectors are that came in clear: their cosines, unless `kind` says."""
        (field,) = kind.fields
        rows = np.stack([np.ravel(getattr(m, field.name)) for m in sent.values()])
        if (measure := cast(type[SimilarityMessage], kind).measure) is not None:
            return measure(rows)
        units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        cosines: Array = units @ units.T
        return cosines


VIEW = Compared
