"""A01, item support: which items did this user touch?

**Who attacks, and what he knows.** The receiver of gradients of an item table's rows, who follows
the protocol and keeps what it reads in all captured rounds. He knows the catalogue and how popular
each item is among the run's clients, the victim included.

**How.** An item is ranked by how often its row was seen. Rows seen equally often are ranked by what
lasts of them over the rounds (in one round, by their energy), by how far they lie along the
direction that all rows share, or by popularity; the attacker takes what works best on all other
clients. Of a total he ranks the rows of the total, for every client of the cohort.

**What the number means.** AUC: of two items, one that the user trained on and one not, how often
the attack ranks the right one first; 0.5 is guessing. It is asked over the whole catalogue, and
among the rows that were seen in any round, where pseudo items should hide the true ones. Where two
clients or more were away in some captured round, it is asked of these once more: an item is ranked
by how much totals without the client differ from those with it just before and after. Popularity
alone is the prior; it is high, so margin and gate are narrow.

**Controls.** Raw: the client's own rows before protection. Null: the same rows under item numbers
drawn at random.

**Ratings.** From two rounds or more it is asked besides how high the user rates the items that he
trains on (`rated`): of two of them, one rated above his mean and one not, which. Prior: the item's
bias in the table that was handed out, or its popularity. Raw and null are as above.

**What it cannot show.** Items that one user of a total alone rated: such a row is that user's,
whoever he is (O12), and gives his vector, by which he is found in rows of several. Popularity that
counts the victim holds this against nobody; the note says how many rows it is. With few clients
such a prior knows much, and a message that tells the same passes.

That what lasts over rounds tells rows from decoys whose values
are drawn anew is this project's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audits.attacks._methods.statistics import auc, best_known
from audits.attacks._methods.support import ABSENCE, Trail, missing, rated, singles, totals
from audits.attacks._shared.material import Array, ItemRows, Material, Rows
from audits.attacks._shared.payloads import item_rows
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples

__all__ = ["ATTACK", "ItemSupport"]

CATALOGUE, SENT, AWAY = (
    Rule(f"AUC of a user's items, {where}", 0.02, 0.05, chance=0.5, null_side="above")
    for where in ("over the catalogue", "among rows seen", "by rounds without him")
)
RATINGS = Rule("AUC of a user's ratings, high against low", 0.05, 0.15, 0.5, null_side="above")
_POOLS = {"catalogue": CATALOGUE, "sent": SENT, ABSENCE: AWAY}


NOTE = (
    "Rows of the totals that rest on one client: {:.0%} (O12). They may give users' vectors, by "
    "which users are found in other rows: not asked here"
)
STAYED = (
    "fewer than two clients were away in a captured round; totals without a client differ by its "
    "rows from those with it"
)


UNRATED = "two rounds of two clients' rows, with the table that was handed out, are needed"


@dataclass(frozen=True)
class ItemSupport:
    """See the head of this file."""

    id: str = "A01"
    name: str = "item-support"
    question: str = "Which items did this user touch?"
    payloads: tuple[str, ...] = ("P01", "P02", "P05", "P06", "P07")
    metric: str = CATALOGUE.metric
    margin: float = CATALOGUE.margin
    gate: float = CATALOGUE.gate
    rules: tuple[Rule, ...] = (CATALOGUE, SENT, AWAY, RATINGS)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        payload = item_rows(material.case.plan, material.case.policy)
        if not payload:
            return Findings((NotApplicable("no gradient of item rows leaves in this run"),))
        trails = _trails(material.items)
        if len(trails) < 2:
            why = material.missing if not trails else "item rows of two clients are needed"
            why = why or "the receiver learnt no item row in the captured rounds"
            return Findings((NotApplicable(why, payload=payload, arises=True),))
        pools = [pool for pool in _POOLS if pool != ABSENCE or totals(material.items)]
        rows = [_row(trails, payload, pool, rng) for pool in pools]
        if any(trail.rounds[0].ratings is not None for trail in trails):
            rows.append(_ratings(trails, payload, rng, material.case.plan.rounds))
        return Findings(tuple(rows))


def _trails(rounds: Sequence[ItemRows]) -> list[Trail]:
    """Return every client of whom something was seen, with the popularity of all."""
    by_client: dict[str, list[ItemRows]] = {}
    for one in sorted(rounds, key=lambda one: (one.client, one.round)):
        by_client.setdefault(one.client, []).append(one)
    if not by_client:
        return []
    popularity = np.zeros(rounds[0].catalogue)
    for those in by_client.values():
        popularity[those[0].held] += 1.0
    read = totals(rounds)
    return [
        Trail(tuple(those), popularity, missing(those[0].client, read))
        for those in by_client.values()
        if any(one.seen is not None for one in those)
    ]


def _row(
    trails: Sequence[Trail], payload: str, pool: str, rng: np.random.Generator
) -> Samples | NotApplicable:
    asked = [trail for trail in trails if trail.asked(pool)]
    rule = _POOLS[pool]
    if len(asked) < 2:
        own = "every row that was seen is the client's own: nothing else is among them"
        why = STAYED if pool == ABSENCE else own
        return NotApplicable(why, payload=payload, what=rule.metric)
    units = tuple(trail.client for trail in asked)

    def best(found: Sequence[Sequence[float]]) -> Array:
        scores = np.array(found).T  # (attackers, clients); who guesses is the last
        return best_known(scores, units, guess=len(scores) - 1)

    inside = [trail.held[trail.pools[pool]] for trail in asked]
    share = singles([one for trail in trails for one in trail.rounds])
    note = "" if share is None else NOTE.format(share)
    return Samples(
        payload=payload,
        what=f"item rows, all captured rounds together: {pool}",
        units=units,
        rounds=tuple(sorted({one.round for trail in asked for one in trail.rounds})),
        prior=best([trail.known(pool) for trail in asked]),
        raw=best([trail.attacked(pool, "raw") for trail in asked]),
        null=best([trail.shuffled(pool, rng) for trail in asked]),
        protected=best([trail.attacked(pool, "seen") for trail in asked]),
        positives=int(sum(one.sum() for one in inside)),
        negatives=int(sum((1.0 - one).sum() for one in inside)),
        note=note,
        **rule.given(),
    )


@dataclass(frozen=True, repr=False)
class _Rated:
    """One client's ratings as they are guessed: AUC of each attacker."""

    client: str
    seen: float
    raw: float
    null: float
    known: tuple[float, ...]


def _ratings(
    trails: Sequence[Trail], payload: str, rng: np.random.Generator, planned: int
) -> Samples | NotApplicable:
    """Return the row on ratings from two rounds (X4); so many were planned."""
    asked = [one for one in (_rated(trail, rng) for trail in trails) if one is not None]
    what = "ratings of a client's items, all captured rounds together: ratings"
    if len(asked) < 2:
        told = [trail.rounds[0].ratings for trail in trails]
        asked_of = sum(one is not None and bool(one.size and np.ptp(one)) for one in told)
        arises = planned > 1 and asked_of > 1  # its receiver had both, whatever was kept
        return NotApplicable(UNRATED, payload, RATINGS.metric, arises=arises)
    units = tuple(one.client for one in asked)
    held = [trail.rounds[0].ratings for trail in trails if trail.client in units]
    return Samples(
        payload=payload,
        what=what,
        units=units,
        rounds=tuple(sorted({one.round for trail in trails for one in trail.rounds})),
        prior=best_known(np.array([one.known for one in asked]).T, units, guess=0),
        raw=np.array([one.raw for one in asked]),
        null=np.array([one.null for one in asked]),
        protected=np.array([one.seen for one in asked]),
        positives=sum(int((r > r.mean()).sum()) for r in held if r is not None),
        negatives=sum(int((r <= r.mean()).sum()) for r in held if r is not None),
        **RATINGS.given(),
    )


def _rated(trail: Trail, rng: np.random.Generator) -> _Rated | None:
    """Guess one client's ratings; None where they cannot be asked about."""
    first, last = trail.rounds[0], trail.rounds[-1]
    truth = first.ratings
    if truth is None or last.table is None or not truth.size or not np.ptp(truth):
        return None
    items, held, high = len(trail.popularity), first.held, truth > truth.mean()

    def area(scores: Array) -> float:
        return auc(scores[high], scores[~high])

    seen = rated(_gradients([(one, one.seen) for one in trail.rounds]), items)
    raw = rated(_gradients([(one, one.raw) for one in trail.rounds]), items)
    if seen is None or raw is None:
        return None
    told = (last.table[held, -1], trail.popularity[held])
    known = (0.5, *(area(sign * one) for one in told for sign in (1.0, -1.0)))
    turned = area(rng.permutation(seen[held]))
    return _Rated(trail.client, area(seen[held]), area(raw[held]), turned, known)


def _gradients(blocks: Sequence[tuple[ItemRows, Rows | None]]) -> list[tuple[Rows, Array]]:
    """Return the rows of each gradient, and the table handed out for it; some leave in blocks."""
    found: dict[int, list[tuple[Rows, Array]]] = {}
    for one, rows in blocks:
        if rows is not None and one.table is not None:
            found.setdefault(one.ask, []).append((rows, one.table))
    return [
        ((np.concatenate([r[0] for r, _ in made]), np.concatenate([r[1] for r, _ in made])), table)
        for made in found.values()
        for table in (made[0][1],)
    ]


ATTACK = ItemSupport()
