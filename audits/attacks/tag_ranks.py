"""A03, frequency: can tags of items be turned back by how many clients hold them?

**Who attacks, and what he knows.** The matcher, without any key. He knows how popular every item of
the catalogue is: here even the very counts of the run's clients, the worst case. Of nodes
(rows of neighbours) these are the clients that have a node or an edge to it.

**How.** He ranks tags by how many clients hold them, and items by popularity, and takes equal ranks
for equal items. Items that all clients leave out as too popular he leaves out, too.

**What the number means.** Of the tags of one client's items, the share whose rank is that of the
item to within a hundredth of the catalogue. The prior is that of ranks drawn at random.

**Controls.** Raw: all items of all clients under tags of their own, none left out and none cut off.
Null: popularity of other items, drawn at random.

**What it cannot show.** What the pattern of who holds which tags tells beyond counts, as matching
of two graphs would. No mode of tags hides counts; caps and leaving out the popular blunt them.

Sources: Naveed, Kamara and Wright, CCS 2015, on frequency analysis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from audits.attacks._shared.material import Array, Material
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.tags import Tagged, tags_leave
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples

__all__ = ["ATTACK", "TagRanks"]

_ORDERS = 20
NEAR = Rule("share of a client's tags placed by rank", 0.05, 0.1, null_side="above")


@dataclass(frozen=True)
class TagRanks:
    """See the head of this file."""

    id: str = "A03"
    name: str = "tag-frequency"
    question: str = "Which items do tags stand for, by how many clients hold them?"
    payloads: tuple[str, ...] = ("P08",)
    metric: str = NEAR.metric
    margin: float = NEAR.margin
    gate: float = NEAR.gate
    rules: tuple[Rule, ...] = (NEAR,)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        if not tags_leave(material.case.plan):
            return Findings((NotApplicable("no tags of items or nodes leave in this run"),))
        if not material.tagged:
            why = material.missing or "no round in which tags were compared was captured"
            return Findings((NotApplicable(why, payload="P08", arises=True),))
        return Findings((_row(material.tagged[:1], rng),))  # overlaps are the same in every round


def _row(found: Sequence[Tagged], rng: np.random.Generator) -> Samples:
    (one,) = found
    clients = [c for c in sorted(one.sent) if any(t in one.truth for t in one.sent[c])]
    popularity = _popularity(one)
    bare = {c: tuple(b"%d" % i for i in one.items[c]) for c in one.items}
    plain = {b"%d" % i: i for i in range(one.catalogue)}
    width = max(1, one.catalogue // 100)
    chance = min(1.0, (2 * width + 1) / max(1, one.catalogue - one.left_out))
    truth, left = one.truth, one.left_out
    places, rank = _places(one.sent), _rank(popularity, left)
    bare_places, bare_rank = _places(bare), _rank(popularity, 0)
    # Of each client by itself: under one false order for all, their scores would move together.
    null = [
        np.mean(
            [_near(one.sent[c], truth, places, _false(one, rng), width) for _ in range(_ORDERS)]
        )
        for c in clients
    ]
    return Samples(
        payload="P08",
        what="the matcher alone, by popularity among the run's own clients",
        units=tuple(clients),
        rounds=(one.round,),
        chance=chance,
        prior=np.full(len(clients), chance),
        raw=np.array([_near(bare[c], plain, bare_places, bare_rank, width) for c in clients]),
        null=np.array(null),
        protected=np.array([_near(one.sent[c], truth, places, rank, width) for c in clients]),
        positives=sum(t in one.truth for c in clients for t in one.sent[c]),
        note=f"Within {width} ranks of {one.catalogue}; no mode of tags hides counts",
        **NEAR.given(),
    )


def _places(sent: Mapping[str, Sequence[bytes]]) -> dict[bytes, int]:
    """Return the rank of every tag by how many clients hold it; ties by its own bytes."""
    held = Counter(tag for tags in sent.values() for tag in tags)
    return {tag: at for at, tag in enumerate(sorted(held, key=lambda t: (-held[t], t)))}


def _rank(known: Array, left_out: int) -> dict[int, int]:
    """Return the rank of every item that clients do not leave out, by what is known of it."""
    order = np.argsort(-known, kind="stable")
    return {int(item): at for at, item in enumerate(i for i in order if i >= left_out)}


def _false(one: Tagged, rng: np.random.Generator) -> dict[int, int]:
    """Return ranks drawn at random."""
    order = one.left_out + rng.permutation(one.catalogue - one.left_out)
    return {int(item): at for at, item in enumerate(order)}


def _popularity(one: Tagged) -> Array:
    """Return how many clients of the run train on each item, (catalogue,)."""
    counts = np.zeros(one.catalogue)
    for items in one.items.values():
        counts[items] += 1.0
    return counts


def _near(
    tags: Sequence[bytes],
    truth: Mapping[bytes, int],
    places: Mapping[bytes, int],
    rank: Mapping[int, int],
    width: int,
) -> float:
    real = [tag for tag in tags if tag in truth]
    far = 1 << 30
    found = [abs(places[tag] - rank.get(truth[tag], far)) <= width for tag in real]
    return float(np.mean(found)) if found else 0.0


ATTACK = TagRanks()
