"""A09: does what was opened single out one client?

Question. Encryption and masks let the receiver see sums only. Was there a sum over so few clients,
or two sums so alike, that one client's own update follows by subtraction?

Who attacks. The aggregator, which holds every opened sum, together with as many clients as the
policy assumes to collude, who subtract their own values. Ledgers suffice: sums, and who is in them.

What the numbers mean. 1 for a client that can be singled out, 0 for one that cannot. These are
facts about the record and no estimates: one client at 1 is a FAIL, whatever the others are at.
Three questions are asked of every kind of payload:

* cohort: is a client in a sum of fewer clients than the policy asks for? (O10)
* one round: can sums of one round be combined into one client's value? Two sums that differ by one
  client are the plainest case (O5). This is a hard failure.
* all rounds: the same over all rounds. A client changes its update from round to round, so what
  comes out is not its update but one like it. This is a WARNING LEVEL and no proof of recovery; it
  fails whenever a client misses a single round that the others took part in, and always after
  about as many rounds with random cohorts as there are clients.

Controls. Raw: violations are planted, a second sum without one client, or a cohort that is one too
small, and every one must be found. Null: the run's own record with so many doubles of each client,
in the same sums as it is, that the colluders cannot strike them all out; permuted, so that places
mean nothing. Nobody who has such a double can be singled out, so nothing may be found.

A fourth question is asked of changes of the model in rounds that were captured:

* singletons: does an entry of a captured total come from one client alone, or from one client and
  as many others as may collude? Then it is that client's value, in a sum over however many (O12).

What it cannot show. It trusts the ledgers: run ``audit verify`` first. Ledgers hold no values, so
without captures nobody can count who contributed to an entry; what the plan says of it is printed
instead. An entry counts as one's own where all others' values are zero before rounding: others'
values may be next to nothing all the same.

Sources: So, Ali, Güler, Jiao and Avestimehr, "Securing secure aggregation:
mitigating multi-round privacy leakage in federated learning", AAAI 2023, for sums over rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from audits.attacks._methods.openings import Isolation, Opened, draw_prime, isolable, opened_sums
from audits.attacks._shared.material import Material
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples
from audits.report.words import plural
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Item
from protocols.plan.steps import Step

__all__ = ["ALL_ROUNDS", "ATTACK", "COHORT", "ONE_ROUND", "SINGLETONS"]

COHORT = "cohort: is a client in a sum of too few?"
ONE_ROUND = "one round: do its sums isolate a client?"
ALL_ROUNDS = "all rounds, if updates hardly change: WARNING LEVEL"
SINGLETONS = "singletons: is an entry of a captured sum one client's?"
"""How the question begins that is asked of captures; of how many totals stands behind it."""

RULE = Rule(
    "1 if a client can be singled out",
    margin=0.0,
    gate=1.0,  # every planted violation has to be found
    chance=0.0,
    exact=True,
    also=("P08", "P10", "P12", "P14", "P15", "P17", "P18"),  # of one client, left in clear
)
_PLANTED = 32  # violations planted to test the attack itself; fewer where each takes long
_NOISED_ALONE, _NOISED = "P02", "P06"
_BY_DESIGN = (
    "each upload leaves by itself and is protected by noise of its own, not by a sum; A10 asks "
    "whether that noise is what is claimed"
)
_BLURRED = "; what comes out keeps the noise of the sums it is made of"

Flags = npt.NDArray[np.bool_]
Cohorts = tuple[frozenset[str], ...]
"""Distinct cohorts whose sums may be combined, in the order in which they were opened."""


@dataclass(frozen=True)
class _Question:
    """What is asked of one client at a time.

    Attributes:
        what: for the report.
        seen, null: client -> whether it is singled out; by the run, by the null control.
        raw: whether every planted violation was found, and nothing was left untried.
        note: for the report.
    """

    what: str
    seen: Mapping[str, bool]
    raw: bool
    null: Mapping[str, bool]
    note: str = ""


class _Record:
    """The sums of one kind of payload, and who is singled out by which of them.

    Args:
        sums: of one payload.
        colluders: as the policy assumes.
        rng: draws the prime, and which violations are planted.
    """

    def __init__(self, sums: Sequence[Opened], colluders: int, rng: np.random.Generator) -> None:
        self.sums, self.colluders, self.rng = sums, colluders, rng
        self.clients = sorted(frozenset().union(*(one.clients for one in sums)))
        self.prime, self.complete = draw_prime(rng), True
        self._place = {name: place for place, name in enumerate(self.clients)}
        self._known: dict[Cohorts, Flags] = {}

    def groups(self, key: Callable[[Opened], object]) -> list[Cohorts]:
        """Return the distinct cohorts of every group of sums that may be combined."""
        found: dict[object, dict[frozenset[str], None]] = defaultdict(dict)
        for one in self.sums:
            found[key(one)][one.clients] = None
        return list(dict.fromkeys(map(tuple, found.values())))

    def alone(self, cohorts: Cohorts) -> Flags:
        """Tell for each client whether these sums single it out, (n,)."""
        if cohorts not in self._known:
            self._known[cohorts] = self._isolated(self._matrix(cohorts)).found
        return self._known[cohorts]

    def any_alone(self, groups: Sequence[Cohorts]) -> dict[str, bool]:
        """Tell for each client whether any group singles it out."""
        return self._named([self.alone(cohorts) for cohorts in groups])

    def doubled(self, groups: Sequence[Cohorts]) -> dict[str, bool]:
        """Tell the same of a record in which every client has too many doubles to strike out."""
        return self._named([self._doubled(cohorts) for cohorts in groups])

    def planted(self, groups: Sequence[Cohorts]) -> bool:
        """Tell whether a second sum without one client is found, for each client that is drawn."""
        count = min(max(4, _PLANTED // (1 + self.colluders)), len(self.clients))
        return all(
            self._planted(groups, self.clients[place])
            for place in self.rng.choice(len(self.clients), size=count, replace=False)
        )

    def _named(self, found: Sequence[Flags]) -> dict[str, bool]:
        worst = np.any(np.stack(found), axis=0)
        return {name: bool(worst[place]) for name, place in self._place.items()}

    def _matrix(self, cohorts: Cohorts) -> Flags:
        rows = np.zeros((len(cohorts), len(self.clients)), dtype=np.bool_)
        for row, cohort in zip(rows, cohorts, strict=True):
            row[[self._place[name] for name in cohort]] = True
        return rows

    def _isolated(self, rows: Flags) -> Isolation:
        found = isolable(rows, self.colluders, self.prime)
        self.complete &= found.complete
        return found

    def _doubled(self, cohorts: Cohorts) -> Flags:
        count = len(self.clients)
        copies = min(self.colluders, count) + 2
        order = self.rng.permutation(count * copies)
        found = np.empty(count * copies, dtype=np.bool_)
        found[order] = self._isolated(np.tile(self._matrix(cohorts), copies)[:, order]).found
        worst: Flags = np.any(found.reshape(copies, count), axis=0)
        return worst

    def _planted(self, groups: Sequence[Cohorts], client: str) -> bool:
        cohorts = next(c for c in groups if any(client in cohort for cohort in c))
        cohort = next(c for c in cohorts if client in c)
        spoilt = self._matrix((*cohorts, cohort - {client}))
        return bool(self._isolated(spoilt).found[self._place[client]])


def _combined(record: _Record, what: str, key: Callable[[Opened], object]) -> _Question:
    groups = record.groups(key)
    seen = record.any_alone(groups)
    raw, null = record.planted(groups), record.doubled(groups)
    note = f"{_names(seen)}; {record.colluders} clients may collude"
    if not record.complete:
        note += "; there are too many sets of colluders to try all of them, so there may be more"
        raw = raw and any(seen.values())  # who has not tried everything must not say PASS
    return _Question(what, seen, raw, null, note)


def _cohorts(record: _Record, smallest: int) -> _Question:
    """Ask for sums of fewer clients than the policy wants (O10)."""

    def few(sizes: Mapping[str, int]) -> dict[str, bool]:
        return {name: size < smallest for name, size in sizes.items()}

    sizes = {n: min(len(s.clients) for s in record.sums if n in s.clients) for n in record.clients}
    least = min(sizes.values())
    honest = max(0, least - record.colluders)
    return _Question(
        what=COHORT,
        seen=few(sizes),
        raw=all(few(dict.fromkeys(sizes, smallest - 1)).values()),
        null=few(dict.fromkeys(sizes, smallest)),
        note=f"the smallest sum is over {plural(least, 'client')}, {honest} of them without the "
        f"colluders; the policy asks for {smallest}",
    )


def _names(seen: Mapping[str, bool]) -> str:
    found = [name for name, alone in seen.items() if alone]
    if not found:
        return f"none of {len(seen)} clients is singled out"
    return f"{len(found)} of {len(seen)} clients can be singled out, {found[0][:40]} among them"


def _samples(payload: str, clients: Sequence[str], asked: _Question) -> Samples:
    exposed = np.array([asked.seen[name] for name in clients], dtype=np.float64)
    return Samples(
        payload=payload,
        what=asked.what,
        units=tuple(clients),
        prior=np.zeros(exposed.size),  # without the sums nobody is singled out
        raw=np.full(exposed.size, float(asked.raw)),
        null=np.array([asked.null[name] for name in clients], dtype=np.float64),
        protected=exposed,
        positives=int(exposed.sum()),
        negatives=int(exposed.size - exposed.sum()),
        note=asked.note + (_BLURRED if payload == _NOISED else ""),
        **RULE.given(),
    )


def _single(
    material: Material, rng: np.random.Generator, sums: Sequence[Opened]
) -> list[Samples | NotApplicable]:
    """Ask which entries of totals have one contributor (O12): counted, or as the plan declares."""
    bare = [
        item
        for item in material.case.plan.all_of(Disclosure.SUM, Step.UP)
        if item.noise is None and _vectors(item)
    ]
    counted = _counted(material, rng, sums) if bare else None
    left = [item for item in bare if counted is None or {*_vectors(item)} != {"delta"}]
    rows: list[Samples | NotApplicable] = [counted] if counted is not None else []
    return rows if counted is not None and not left else [*rows, _declared(left)]


def _vectors(item: Item) -> dict[str, int]:
    """Return the fields of an item that are vectors, and how many entries each has."""
    return {f.name: prod(f.shape) for m in item.messages for f in m.fields if f.shape}


def _declared(left: Sequence[Item]) -> NotApplicable:
    """Say what the plan declares of entries of which nobody counted who contributed."""
    declared = [f"{item.id} ({sum(_vectors(item).values())} entries)" for item in left]
    said = (
        f"the plan cannot exclude it for {', '.join(declared)}"
        if declared
        else "no sum without noise holds a vector"
    )
    return NotApplicable(
        reason=f"which entries have a single contributor stands in no ledger, and no capture of "
        f"all clients of a total tells; {said[:300]} (O12)",
        what=SINGLETONS,
        arises=bool(declared),
    )


def _counted(
    material: Material, rng: np.random.Generator, sums: Sequence[Opened]
) -> Samples | None:
    """Return which clients have an entry to themselves; None without a total that is whole here.

    Of how many of the run's totals this is the row's own name says: of others nothing is known.
    """
    colluders, rounds = material.case.policy.colluders, dict[int, dict[str, Flags]]()
    for one in material.exposures if not material.units else ():  # at a site others are drawn
        if one.seen is not None and one.cohort > 1 and not one.payload and "delta" in one.raw:
            moved = np.asarray(one.raw["delta"]).ravel() != 0
            rounds.setdefault(one.round, {})[one.client] = moved
    sizes = {one.round: one.cohort for one in material.exposures}
    whole = {number: found for number, found in rounds.items() if len(found) == sizes[number]}
    if not whole:
        return None
    clients = sorted({name for found in whole.values() for name in found})
    seen, null, raw, entries = dict.fromkeys(clients, False), dict.fromkeys(clients, False), True, 0
    for found in whole.values():
        names, moved = sorted(found), np.stack([found[name] for name in sorted(found)])
        alone = _alone(moved, colluders)
        doubled = _alone(np.tile(moved, (colluders + 2, 1)), colluders)[: len(names)]
        entries += int(alone.any(axis=0).sum())
        for place, name in enumerate(names):
            seen[name] |= bool(alone[place].any())
            null[name] |= bool(doubled[place].any())
        for place in rng.choice(len(names), size=min(_PLANTED, len(names)), replace=False):
            planted = np.zeros((len(names), 1), dtype=np.bool_)
            planted[place] = True
            raw &= bool(_alone(np.hstack([moved, planted]), colluders)[place, -1])
    note = f"{_names(seen)}; {entries} such entries; {colluders} clients may collude"
    totals = {(s.round, s.clients) for s in sums if "delta" in {f.name for f in s.message.fields}}
    what = f"{SINGLETONS} ({len(whole)} of {plural(len(totals), 'total')})"
    asked = _Question(what, seen, raw, null, note)
    return _samples("P05", clients, asked)


def _alone(moved: Flags, colluders: int) -> Flags:
    """Tell for each client and entry (n, d) whether only it and at most the colluders moved it."""
    found: Flags = moved & (moved.sum(axis=0) <= 1 + colluders)
    return found


@dataclass(frozen=True)
class Structure:
    """Attack A09; see the head of this file."""

    id: str = "A09"
    name: str = "secagg-structure"
    question: str = "Do the sums that were opened single out one client?"
    payloads: tuple[str, ...] = ("P01", "P05", "P06", "P07", "P13")
    metric: str = RULE.metric
    margin: float = RULE.margin
    gate: float = RULE.gate
    rules: tuple[Rule, ...] = (RULE,)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Ask the questions of every kind of payload that was opened, and who contributed to what.

        Raises:
            EvidenceError: see :func:`opened_sums`.
        """
        case = material.case
        kinds: dict[str, list[Opened]] = defaultdict(list)
        for one in opened_sums(case):
            kinds[one.payload].append(one)
        if not kinds:
            return Findings((NotApplicable("no sum was opened in this run"),))
        rows: list[Samples | NotApplicable] = []
        for payload, sums in sorted(kinds.items()):
            if payload == _NOISED_ALONE:
                rows.append(NotApplicable(_BY_DESIGN, payload=payload))
                continue
            record = _Record(sums, case.policy.colluders, rng)
            smallest = max(case.policy.smallest_cohort, case.plan.smallest_cohort)
            for asked in (
                _cohorts(record, smallest),
                _combined(record, ONE_ROUND, _by_round),
                _combined(record, ALL_ROUNDS, _by_kind),
            ):
                rows.append(_samples(payload, record.clients, asked))
        return Findings((*rows, *_single(material, rng, kinds.get("P05", ()))))


def _by_round(one: Opened) -> object:
    return one.message, one.round


def _by_kind(one: Opened) -> object:
    return one.message


ATTACK = Structure()
