"""A13, likeness: which clients hold like data, and who holds which?

**Who attacks, and what he knows.** The aggregator or the key authority, who follow the protocol and
keep the matrix of cosines that every Ask opens. In the second question he also knows the data that
the clients hold, as far as it is compared here, and not whose is whose. Beside it he knows each
client's number of training records to the next power of two, which no message of ours tells. In the
third question he works with as many clients as the policy assumes to collude, one at least.

**How.** The cosines of two clients are averaged over all captured rounds. Two who were never
compared were in different clusters, and count as least alike. First question: the larger the mean,
the more alike the data. Second question: of all ways to give the known data to the clients he takes
that whose likenesses agree best with the matrix, rank by rank (a quadratic assignment).
Third question: the clients that work with him send vectors of their choice in the place of their
own, orthogonal to what they expect, so each cosine with them is a coordinate of somebody's vector.

**What the truth is.** How alike the label histograms of two clients' training records are: 1 minus
their total variation. Where the clients' graphs are of several data sets, whose classes cannot be
compared: how near they are in size and number of edges of graphs, and in the balance of classes.

**What the number means.** First: of two other clients, one with data more like this client's, how
often the attack names the right one; 0.5 is guessing. That is (1 + Kendall's tau) / 2, tau the rank
correlation of the matrix's rows with the truth. Second: the share of clients to which he gives
their own data; 1/K is guessing. Third: which share (of the squared length) of what sets a client's
vector apart from the attackers' own is read in one comparison. m attackers read about m of d - 1
parts of d numbers: a fifth where GCFL+ compares sequences of five, next to nothing of a model.

**Controls.** Prior: the same with the records' numbers in place of cosines, or a guess. Raw: the
exact cosines, computed again and not rounded. Null: the matrix under other names, drawn at random.
Third: what they expect, which reads nothing; exact coordinates; coordinates of random sign.

**What it cannot show.** Likeness of another kind, in features or links. What several comparisons
tell together: of other directions each, they read other parts of vectors that stay alike, and under
`correlation` GCFL+'s matrices fix all sequences up to one rotation, by arithmetic (ADR 0044). Where
the vectors themselves left in clear they tell far more than their cosines, and here only the
cosines are looked at.

Sources: Xie et al., NeurIPS 2021, for clusters by data set. The three
questions are this project's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from audits.attacks._methods.likeness import FEWEST, closer, matched, read, triplets
from audits.attacks._methods.statistics import best_known
from audits.attacks._shared.material import Array, Compared, Material
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples
from protocols.disclosures.names import Disclosure
from protocols.plan.steps import Step

__all__ = ["ATTACK", "CLOSER", "OWNERS", "READ", "Likeness"]

CLOSER = Rule(
    "share right: which of two has data more like a client's",
    margin=0.05,
    gate=0.15,
    chance=0.5,
    null_side="above",
    also=("P14",),
)
OWNERS = Rule(
    "share of clients to which their own data is given",
    margin=0.05,
    gate=0.15,
    null_side="above",
    also=("P14",),
)
READ = Rule(
    "share of what sets a client's vector apart that is read",
    margin=0.05,
    gate=0.15,
    chance=0.0,
    null_side="above",
    also=("P14",),
)
_MOST = {"quick": 40, "default": 80}  # clients that are looked at, drawn at random
_NAMINGS = 48  # of the null control
_DRAWS = 8  # of attackers and directions
_WHAT = {CLOSER: "who holds like data", OWNERS: "whose data is whose"}
_CLEAR = " (of vectors in clear, their cosines alone)"

Score = Callable[[Array, np.random.Generator], Array]


@dataclass(frozen=True)
class Likeness:
    """See the head of this file."""

    id: str = "A13"
    name: str = "likeness"
    question: str = "Which clients hold like data, and who holds which?"
    payloads: tuple[str, ...] = ("P15",)
    metric: str = CLOSER.metric
    margin: float = CLOSER.margin
    gate: float = CLOSER.gate
    rules: tuple[Rule, ...] = (CLOSER, OWNERS, READ)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        given = material.compared
        if given is None:
            # A witness may see weights all the same; they then say of nobody whom he is like.
            if not material.case.plan.all_of(Disclosure.SIMILARITY, Step.UP):
                return Findings((NotApplicable("no client is compared in this run"),))
            why = material.missing or "no captured vector could be computed again"
            return Findings((NotApplicable(why, arises=True),))
        given = _chosen(given, _MOST.get(profile, _MOST["quick"]), rng)
        if why := _nothing(given):
            return Findings((NotApplicable(why, payload=given.payload, arises=True),))
        rows = [_row(given, rule, rng) for rule in (CLOSER, OWNERS)]
        attackers = max(1, material.case.policy.colluders)
        return Findings((*rows, _coordinates(given, attackers, rng)))


def _nothing(given: Compared) -> str:
    """Say why there is nothing to ask; empty if there is."""
    count = len(given.clients)
    if not given.matrices:
        return "no cosines were opened in the captured rounds"
    if count < FEWEST:
        return f"cosines of {FEWEST} clients are needed, and {count} were compared"
    if given.alike is None:
        return "how alike the clients' data are cannot be said: no classes, or no label somewhere"
    others = [np.delete(np.delete(given.alike, n, 0), n, 1) for n in range(count)]
    if not all(map(triplets, others)):
        return "the clients' data are all equally alike, so nothing can be told"
    return ""


def _chosen(given: Compared, most: int, rng: np.random.Generator) -> Compared:
    """Return the same of so many clients at most, which are drawn at random."""
    count = len(given.clients)
    if count <= most:
        return given
    kept = np.sort(rng.permutation(count)[:most])
    place = np.full(count, -1)
    place[kept] = np.arange(most)
    matrices = []
    for one in given.matrices:
        (here,) = np.nonzero(place[one.places] >= 0)
        pair = np.ix_(here, here)
        parts = place[one.places[here]], one.seen[pair], one.raw[pair], one.vectors[here]
        matrices.append(type(one)(one.round, *parts))
    return Compared(
        payload=given.payload,
        clients=tuple(given.clients[n] for n in kept),
        matrices=tuple(matrices),
        alike=None if given.alike is None else given.alike[np.ix_(kept, kept)],
        by=given.by,
        records=given.records[kept],
    )


def _row(given: Compared, rule: Rule, rng: np.random.Generator) -> Samples:
    """Return one question."""
    alike, count = np.asarray(given.alike), len(given.clients)

    def score(matrix: Array, chance: np.random.Generator) -> Array:
        return closer(matrix, alike) if rule is CLOSER else matched(matrix, alike, chance)

    def once(matrix: Array) -> Array:  # with the same starts: no search is the luckier one
        return score(matrix, np.random.default_rng(starts))

    starts = int(rng.integers(2**62))
    blind = 1.0 / count if rule.chance is None else rule.chance
    raw, guess = once(given.mean("raw")), np.full(count, blind)
    prior = best_known(np.stack([once(_by_size(given)), guess]), given.clients, guess=1)
    return Samples(
        payload=given.payload,
        what=f"{_WHAT[rule]}, by {given.by}{_CLEAR if given.payload != 'P15' else ''}",
        units=given.clients,
        rounds=tuple(sorted({one.round for one in given.matrices})),
        prior=prior,
        raw=raw,
        null=_renamed(given.mean("seen"), score, rng),
        protected=once(given.mean("seen")),
        positives=triplets(alike) if rule is CLOSER else count,
        note=_decides(raw - prior, rule.gate),
        **{**rule.given(), "chance": blind},
    )


def _coordinates(
    given: Compared, attackers: int, rng: np.random.Generator
) -> Samples | NotApplicable:
    """Return the third question: a client's mean over the comparisons that it was in.

    A comparison of no more clients than attackers and two others asks nothing, and who was in no
    larger one has no score.
    """
    large = [one for one in given.matrices if len(one.places) > attackers + 1]
    if not large:
        why = f"no comparison had {attackers} clients that choose their vectors and two others"
        return NotApplicable(why, payload=given.payload, what=READ.metric, arises=True)
    there = np.unique(np.concatenate([one.places for one in large]))

    def score(*, exact: bool = False, mirror: bool = False) -> Array:
        total, often = np.zeros(len(given.clients)), np.zeros(len(given.clients))
        for one in large:
            off = (
                np.zeros(1) if exact else (one.seen - one.raw)[np.triu_indices(len(one.places), 1)]
            )
            for _ in range(_DRAWS):
                total[one.places] += read(one.vectors, attackers, off, rng, mirror=mirror)
                often[one.places] += 1
        found: Array = total[there] / often[there]
        return found

    raw, nothing = score(exact=True), np.zeros(len(there))
    numbers = large[0].vectors.shape[1]
    many = (
        f"{attackers} clients that choose theirs"
        if attackers > 1
        else "a client that chooses its own"
    )
    return Samples(
        payload=given.payload,
        what=f"{numbers} numbers, by {many}{_CLEAR if given.payload != 'P15' else ''}",
        units=tuple(given.clients[place] for place in there),
        rounds=tuple(sorted({one.round for one in large})),
        prior=nothing,
        raw=raw,
        null=score(mirror=True),
        protected=score(),
        positives=len(there),
        note=_decides(raw, READ.gate),
        bounds=(-3.0, 1.0),
        **READ.given(),
    )


def _by_size(given: Compared) -> Array:
    """Return how near the clients' numbers of records are, in powers of two, (K, K)."""
    sizes = np.ceil(np.log2(np.maximum(given.records, 1)))
    near: Array = -np.abs(sizes[:, None] - sizes[None, :])
    return near


def _renamed(seen: Array, score: Score, rng: np.random.Generator) -> Array:
    """Return the mean score of the matrix under random names."""
    namings = (rng.permutation(len(seen)) for _ in range(_NAMINGS))
    found: Array = np.mean([score(seen[np.ix_(n, n)], rng) for n in namings], axis=0)
    return found


def _decides(lead: Array, gate: float) -> str:
    """Say how many clients would show that the attack works; empty if these do, or none would."""
    count, above = len(lead), float(lead.mean()) - gate
    spread = float(lead.std(ddof=1))
    needed = max(ceil((2.0 * spread / above) ** 2), FEWEST) if above > 0 else 0
    if needed <= count:
        return ""
    return f"With {count} clients the interval is wide; about {needed} would show whether it works"


ATTACK = Likeness()
