"""A02, dictionary: can tags of items be turned back by whoever can make some?

**Who attacks, and what he knows.** The matcher, who holds all clients' tags, alone or with others.
Everybody knows the catalogue, and how many of the run's clients hold each item. Where rows of
neighbours are found by tags (FedGCN), an item is a node's public number, and a client holds the
nodes that it has or has an edge to.

**How.** He makes tags of as much of the catalogue as he can, and looks up what he holds. Alone he
has no key. With one tag server he has the tags that its share alone makes. With one client he has
one batch of guesses, which he spends on the items that most clients hold; where all clients hold
the key he has all; in the mode `deterministic` the public key is enough.

**What the number means.** Of the tags of one client's items the share that is turned back. The
prior is 0 but for the quota, whose guesses find what they find by design: there it is the share of
a client's tags that are of the most popular items, as many as the quota. A quota that covers all
items that anybody holds has the prior 0, as it keeps nobody from reading everything.

**Controls.** Raw: deterministic tags, as the field's code has them (RSA signatures of the item's
number), turned back with the public key alone; of the collusions, the tags themselves looked up
with both shares of the key, which is what both tag servers and the matcher have. Null: random tags.

**What it cannot show.** That guesses of several epochs add up: the matcher knows a tag again by who
holds it. Nor what follows from popularity without any key: that is A03.

Sources: docs/adr/0018-matching.md, for tags and who can make them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import rsa

from audits.attacks._shared.material import Array, Material
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.tags import Tagged, public_table, signatures, tags_leave
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples
from crypto.oprf import unsafe_signature_tags

__all__ = ["ATTACK", "ItemTags"]

ALONE = Rule("share of a client's tags, by who has no key", 0.0, 0.9, chance=0.0, exact=True)
SERVER = Rule("share of a client's tags, with one tag server", 0.0, 0.9, chance=0.0, exact=True)
QUOTA = Rule("share of a client's tags, by one quota of guesses", 0.02, 0.05, chance=0.0)
_KEY_BITS = 2048
Table = Mapping[bytes, int]


@dataclass(frozen=True)
class ItemTags:
    """See the head of this file."""

    id: str = "A02"
    name: str = "tag-dictionary"
    question: str = "Which items do tags stand for, to who can make some?"
    payloads: tuple[str, ...] = ("P08",)
    metric: str = ALONE.metric
    margin: float = ALONE.margin
    gate: float = ALONE.gate
    rules: tuple[Rule, ...] = (ALONE, SERVER, QUOTA)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        if not tags_leave(material.case.plan):
            return Findings((NotApplicable("no tags of items or nodes leave in this run"),))
        found = material.tagged
        if not found:
            why = material.missing or "no round in which tags were compared was captured"
            return Findings((NotApplicable(why, payload="P08", arises=True),))
        rows = [_alone(found, rng)]
        if any(one.opened for one in found):
            return Findings(tuple(rows))  # nobody needs any help
        if all(one.alone for one in found):
            rows.append(_one_server(found, rng))
        rows.append(_quota(found, rng))
        return Findings(tuple(rows))


def _units(found: Sequence[Tagged]) -> list[tuple[Tagged, str]]:
    """Return every client of every matching that has a tag of an item."""
    return [(one, c) for one in found for c in sorted(one.sent) if _real(one, c)]


def _real(one: Tagged, client: str) -> list[bytes]:
    return [tag for tag in one.sent[client] if tag in one.truth]


def _share(one: Tagged, client: str, table: Table) -> float:
    """Return the share of a client's tags that a table turns back correctly."""
    real = _real(one, client)
    return sum(table.get(tag) == one.truth[tag] for tag in real) / len(real)


def _random(found: Sequence[Tagged], tables: Sequence[Table], rng: np.random.Generator) -> Array:
    """Return of each client what is turned back of tags that nobody made."""
    null = []
    for one, client in _units(found):
        table = tables[found.index(one)]
        tags = [rng.bytes(16) for _ in _real(one, client)]
        null.append(sum(tag in table for tag in tags) / len(tags))
    return np.array(null)


def _row(
    found: Sequence[Tagged], what: str, rule: Rule, scores: Mapping[str, Any], note: str
) -> Samples:
    units = _units(found)
    return Samples(
        payload="P08",
        what=what,
        units=tuple(client for _, client in units),
        rounds=tuple(sorted({one.round for one in found})),
        positives=sum(len(_real(one, client)) for one, client in units),
        note=note,
        **scores,
        **rule.given(),
    )


def _alone(found: Sequence[Tagged], rng: np.random.Generator) -> Samples:
    """Return what the matcher finds with what is public."""
    tables = [{**public_table(one.catalogue), **one.opened} for one in found]
    units = _units(found)
    key = rsa.generate_private_key(65537, _KEY_BITS)
    raw = [_signed(key, one, client) for one, client in units]
    scores = {
        "prior": np.zeros(len(units)),
        "raw": np.array(raw),
        "null": _random(found, tables, rng),
        "protected": np.array([_share(one, c, tables[found.index(one)]) for one, c in units]),
    }
    note = "Raw: deterministic tags as published, turned back with the public key"
    return _row(found, "the matcher alone, with everything that is public", ALONE, scores, note)


def _signed(key: rsa.RSAPrivateKey, one: Tagged, client: str) -> float:
    """Return the share of a client's items that the field's tags give away."""
    items = [one.truth[tag] for tag in _real(one, client)]
    tags = unsafe_signature_tags(key, [b"%d" % item for item in items])
    texts = {b"%d" % item: item for item in range(one.catalogue)}
    read = signatures(key.public_key(), tags, texts)
    return sum(read.get(tag) == item for tag, item in zip(tags, items, strict=True)) / len(items)


def _both(found: Sequence[Tagged]) -> Array:
    """Return what both shares of the key turn back: they make every tag that a client has."""
    return np.array([_share(one, client, one.truth) for one, client in _units(found)])


def _one_server(found: Sequence[Tagged], rng: np.random.Generator) -> Samples:
    """Return what the matcher finds with either tag server's share."""
    units = _units(found)
    seen = [max(_share(one, client, table) for table in one.alone) for one, client in units]
    scores = {
        "prior": np.zeros(len(units)),
        "raw": _both(found),
        "null": _random(found, [one.alone[0] for one in found], rng),
        "protected": np.array(seen),
    }
    note = "Raw: with both tag servers, who together make every tag"
    return _row(found, "the matcher and one tag server", SERVER, scores, note)


def _quota(found: Sequence[Tagged], rng: np.random.Generator) -> Samples:
    """Return what the matcher finds with one client, whose guesses go to the popular."""
    units, guessed = _units(found), [_guessed(one) for one in found]
    tables = [
        one.truth if one.keyed else {t: i for t, i in one.truth.items() if i in picked}
        for one, picked in zip(found, guessed, strict=True)
    ]
    prior = []
    for one, client in units:
        items, picked = [one.truth[t] for t in _real(one, client)], guessed[found.index(one)]
        whole = picked >= set(one.truth.values())  # then the quota keeps nobody from anything
        prior.append(0.0 if whole else float(np.mean([item in picked for item in items])))
    scores = {
        "prior": np.array(prior),
        "raw": _both(found),
        "null": _random(found, tables, rng),
        "protected": np.array([_share(one, c, tables[found.index(one)]) for one, c in units]),
    }
    keyed = any(one.keyed for one in found)
    what = "one client, who holds the key" if keyed else f"one client's {found[0].quota} guesses"
    note = "Guesses of several rounds and of several clients add up"
    return _row(found, f"the matcher and {what}", QUOTA, scores, note)


def _guessed(one: Tagged) -> set[int]:
    """Return the items that most clients tagged, as many as one quota."""
    counts = Counter(one.truth[t] for tags in one.sent.values() for t in tags if t in one.truth)
    order = sorted(counts, key=lambda item: (-counts[item], item))
    return set(order[: one.quota])


ATTACK = ItemTags()
