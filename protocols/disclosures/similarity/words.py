"""What plans say of vectors that are compared (O3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from crypto.homomorphic.vectors import SKETCH_ABOVE
from protocols.disclosures._base.words import Planned
from protocols.disclosures._evaluated.words import CRAFTED, UNWITNESSED, EvaluatedWords
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Item
from protocols.plan.steps import Step

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
