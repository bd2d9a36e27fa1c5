"""A06, un-mixing: whose data is inside a mixture?

**Who attacks, and what he knows.** The receiver of the mixtures, who follows the protocol. He has
candidates: the true records with their features, the links between them, others of the same client
besides, and the number of records in a mixture. He also knows the layers that made vectors of the
features. Two rows differ in that: in the first he has the layers as they were when the vectors were
mixed, the worst case; in the second the layers with which the round began. Of the first round these
are public, later any one client can tell him.

**How.** A mixture times the number of its records is a sum over unknown members of known vectors:
one equation for each entry. Positions around the centre give more, as a candidate's links say what
it brings there on average; so do further rounds, in which the same records are mixed with other
weights. All equations are solved together, each counted by its noise, under the constraint that
nobody is in two mixtures (`audits.attacks._methods.mixed`).

**What the number means.** AUC: of two records of the client, one in a mixture and one not, how
often the one inside is ranked first; 0.5 is guessing. Recall: of a mixture's b records, the share
among the first b. Only centres are ranked. Groups are drawn at random, so the prior is a guess.

**Two facts besides.** Whether a mixture holds fewer distinct records than the policy asks for, or
two differ by fewer: then their difference is a mixture of those few. And labels: all mixtures of a
client have n or n + 1 centres, so shares become whole numbers only if multiplied by the right one,
and the counts of classes follow exactly; little noise on them is rounded away. The score is the
share of mixtures of which they do.

**Controls.** Raw: single members in place of mixtures. Null: other clients' mixtures. Of the facts:
raw are planted violations, which must be found; null is a mixture of everybody, all distinct.

**What it cannot show.** That somebody is at a client at all, who is on no list of candidates. It
ranks and does not reconstruct: whoever knows the layers and who is inside may solve for features.
Wide vectors of many rounds do not all fit: rounds beyond 768 entries together are left out.

Sources: Carlini et al., "Is Private
Learning Possible with Instance Encoding?", IEEE S&P 2021, for mixtures of images. The equations
from links, and their weights, are this project's own: on Cora (b = 36, width 64, one round) they
raise the AUC from 0.83 to 0.95.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audits.attacks._methods.mixed import Numbers, Victim, class_counts, together, violated
from audits.attacks._methods.statistics import best_known
from audits.attacks._shared.material import Array, Material, Mixtures
from audits.attacks._shared.payloads import sent
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples
from protocols.disclosures.mixed.guards import Mix
from protocols.disclosures.names import Disclosure
from protocols.policy.guard import find

__all__ = ["ATTACK", "Unmixing"]

AREA = Rule("AUC of a mixture's records against others", margin=0.05, gate=0.15, chance=0.5)
RECALL = Rule("recall of a mixture's records in as many guesses", margin=0.02, gate=0.15)
HELD = Rule(
    "1 if a mixture, or a difference of two, is of too few", 0.0, 1.0, chance=0.0, exact=True
)
COUNTS = Rule(
    "share of mixtures with exact class counts", 0.02, 0.15, chance=0.0, null_side="above"
)
_KNOWN = {
    "computed": "records of a mixture, by the layers that made their vectors",
    "begun": "records of a mixture, by the layers that the round began with",
}
_MOST = {"quick": 1000, "default": 2000}  # candidates a client; its centres are always among them
_OTHERS = 1  # clients whose mixtures the null control takes
_FEWEST = 2  # a policy that asks for nothing: a mixture of one is no mixture


@dataclass(frozen=True)
class Unmixing:
    """See the head of this file."""

    id: str = "A06"
    name: str = "unmix"
    question: str = "Whose data is inside a mixture?"
    payloads: tuple[str, ...] = ("P10", "P11")
    metric: str = AREA.metric
    margin: float = AREA.margin
    gate: float = AREA.gate
    rules: tuple[Rule, ...] = (AREA, RECALL, HELD, COUNTS)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        case = material.case
        leaving = set(sent(case.plan, case.policy)) & set(self.payloads)
        if not leaving:
            return Findings((NotApplicable("no mixture leaves in this run"),))
        by_client: dict[str, list[Mixtures]] = {}
        for one in sorted(material.mixed, key=lambda one: (one.client, one.round)):
            by_client.setdefault(one.client, []).append(one)
        if len(by_client) < 2:
            why = material.missing if not by_client else "mixtures of two clients are needed"
            why = why or "no captured mixture could be made again"
            return Findings((NotApplicable(why, arises=True),))
        most = _MOST.get(profile, _MOST["quick"])
        victims = [Victim.of(rounds, most, rng) for rounds in together(by_client)]
        mix = find(case.policy.chain(Disclosure.MIXED), "mix")
        floor, apart = (mix.floor, mix.apart) if isinstance(mix, Mix) else (_FEWEST, _FEWEST)
        rows = [row for known in _KNOWN for row in _ranked(victims, known)]
        rows.append(_held(victims, floor, apart))
        if "P11" in leaving and all(v.rounds[0].labels is not None for v in victims):
            rows.append(_counted(victims, floor if isinstance(mix, Mix) else 1))
        return Findings(tuple(rows))


def _about(victims: Sequence[Victim], payload: str, what: str) -> dict[str, Any]:
    """Return what all rows say alike."""
    return {
        "payload": payload,
        "what": what,
        "units": tuple(v.client for v in victims),
        "rounds": tuple(sorted({one.round for v in victims for one in v.rounds})),
    }


def _others(victims: Sequence[Victim], place: int) -> list[Victim]:
    """Return the next few of the other clients."""
    return [*victims[place + 1 :], *victims[:place]][:_OTHERS]


def _ranked(victims: Sequence[Victim], known: str) -> list[Samples]:
    """Return AUC and recall of an attacker who knows one kind of layers."""
    found = np.array([v.attacked(known, _others(victims, n)) for n, v in enumerate(victims)])
    guesses = np.array([v.guessed() for v in victims])  # (clients, guesses, scores)
    common = {
        "positives": int(sum(v.sizes.sum() for v in victims)),
        "negatives": sum(len(v.pool) * len(v.chosen) for v in victims),
        "note": f"At most {max(len(v.pool) for v in victims)} candidates a client, all of its own",
    }
    chances = {AREA.metric: 0.5, RECALL.metric: float(np.mean([v.chance for v in victims]))}
    rows = []
    for place, rule in enumerate((AREA, RECALL)):
        about = _about(victims, "P10", _KNOWN[known])
        rows.append(
            Samples(
                **{**about, **common, "chance": chances[rule.metric], **rule.given()},
                prior=best_known(guesses[:, :, place].T, about["units"], guess=0),
                protected=found[:, 0, place],
                raw=found[:, 1, place],
                null=found[:, 2, place],
            )
        )
    return rows


def _held(victims: Sequence[Victim], floor: int, apart: int) -> Samples:
    """Return whether the policy's own numbers hold; a fact about each client."""
    seen, raw, null = ([_broken(v, n, floor, apart) for v in victims] for n in _SIDES)
    return Samples(
        **_about(
            victims,
            "P10",
            f"fewer than {floor} records in a mixture, or {apart} in a difference of two",
        ),
        prior=np.zeros(len(victims)),
        protected=np.array(seen, dtype=np.float64),
        raw=np.array(raw, dtype=np.float64),
        null=np.array(null, dtype=np.float64),
        **HELD.given(),
    )


_SIDES = ("seen", "raw", "null")


def _broken(victim: Victim, side: str, floor: int, apart: int) -> bool:
    one = victim.rounds[0]
    _, same = np.unique(one.tables["computed"], axis=0, return_inverse=True)
    records: Numbers = same.reshape(-1)[one.index]
    if side == "seen":
        there = one.groups >= 0
        return violated(records[there], one.groups[there], floor, apart)
    apiece = np.arange(records.size).reshape(records.shape)  # nobody shares a record
    everybody = np.zeros(len(records), dtype=np.int64)
    if side == "null":
        return violated(apiece, everybody, min(floor, len(records)), apart)
    # Planted: a member by itself, and a second mixture that lacks one member of the first.
    single = everybody.copy()
    single[0] = 1
    twice = np.concatenate([apiece, apiece[1:]])
    second = np.concatenate([everybody, everybody[1:] + 1])
    planted = (single, apiece, _FEWEST), (second, twice, 1)
    return all(violated(rows, groups, least, _FEWEST) for groups, rows, least in planted)


def _counted(victims: Sequence[Victim], floor: int) -> Samples:
    """Return of how many mixtures the counts of classes follow from the mixed labels."""
    true = [_true_counts(v) for v in victims]
    seen, raw, null = [], [], []
    for place, (victim, counts) in enumerate(zip(victims, true, strict=True)):
        members = len(victim.rounds[0].groups)
        seen.append(_exact(class_counts(victim.rounds[0].seen["label"], floor, members), counts))
        whole = np.eye(counts.shape[1])[victim.rounds[0].labels]
        raw.append(_exact(class_counts(whole, 1, members), whole))
        others = [true[(place + step) % len(true)] for step in range(1, len(true))][:_OTHERS]
        null.append(np.mean([_exact(_alike(other, counts), counts) for other in others]))
    return Samples(
        **_about(victims, "P11", "how many centres of each class are in a mixture"),
        positives=sum(len(counts) for counts in true),
        prior=np.array([_exact(_expected(counts), counts) for counts in true]),
        raw=np.array(raw),
        null=np.array(null),
        protected=np.array(seen),
        **COUNTS.given(),
    )


def _true_counts(victim: Victim) -> Array:
    """Return the centres of each class in each mixture, (m, C)."""
    one = victim.rounds[0]
    count, classes = one.seen["label"].shape
    there = one.groups >= 0
    places = one.groups[there] * classes + np.asarray(one.labels)[there]
    found = np.bincount(places, minlength=count * classes).reshape(count, classes)
    return found.astype(np.float64)


def _exact(read: Array, true: Array) -> float:
    """Return the share of mixtures whose counts are right."""
    return float(np.mean((read == true).all(axis=1)))


def _expected(true: Array) -> Array:
    """Return the guess of one who knows the client's class mix in all its other mixtures."""
    rest = true.sum(axis=0) - true
    shares = rest / np.maximum(rest.sum(axis=1, keepdims=True), 1.0)
    return np.asarray(np.rint(shares * true.sum(axis=1, keepdims=True)))


def _alike(other: Array, true: Array) -> Array:
    """Return another client's mixtures as if they had as many members as these."""
    shares = other / other.sum(axis=1, keepdims=True)
    turned = shares[np.arange(len(true)) % len(shares)]
    return np.asarray(np.rint(turned * true.sum(axis=1, keepdims=True)))


ATTACK = Unmixing()
