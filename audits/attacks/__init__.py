"""The attacks, one file each, found by folder; and the one way to run them.

An attack is a module without a leading underscore that has ``ATTACK``. It measures and does not
judge: the verdict is made here, the same way for all (`audits.attacks._shared.verdicts`). All
chance comes from the heads of the run's ledgers and from nothing that a caller gives, so that
nobody can try until a lucky draw comes up.
"""

from __future__ import annotations

import difflib
import hashlib
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

from audits.attacks import structure
from audits.attacks._methods.openings import unrecorded
from audits.attacks._shared import payloads
from audits.attacks._shared.material import (
    Answer,
    Answers,
    Bags,
    Canaries,
    Candidates,
    Compared,
    Exposure,
    ItemRows,
    Layers,
    Material,
    Matrix,
    Mixtures,
    Redrawn,
    Released,
    Replica,
    RowsTold,
    RowSystem,
    Truth,
)
from audits.attacks._shared.models import (
    AttackReport,
    AttackRow,
    Claim,
    NotTested,
    Profile,
    Value,
)
from audits.attacks._shared.rows import AttackRows
from audits.attacks._shared.tags import Tagged
from audits.attacks._shared.together import carried, claims_carried, settled
from audits.attacks._shared.verdicts import Attack, Findings, NotApplicable, Samples
from audits.evidence.ledger_index import LedgerIndex
from audits.evidence.steps import Case
from crypto.merkle import root
from crypto.signing import canonical
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.plan.steps import Step

__all__ = [
    "AT_ONE_SITE",
    "Answer",
    "Answers",
    "Attack",
    "AttackReport",
    "AttackRow",
    "Bags",
    "Canaries",
    "Candidates",
    "Claim",
    "Compared",
    "Exposure",
    "Findings",
    "ItemRows",
    "Layers",
    "Material",
    "Matrix",
    "Mixtures",
    "NotApplicable",
    "NotTested",
    "Profile",
    "Redrawn",
    "Released",
    "Replica",
    "RowSystem",
    "RowsTold",
    "Samples",
    "Tagged",
    "Truth",
    "Value",
    "attack",
    "attacks",
    "chosen",
    "code_digest",
    "heads_digest",
    "seed_of",
]

_LOOKED = ("PASS", "FAIL", "ABOVE_PRIOR", "INCONCLUSIVE", "INVALID")
_UNASKED = "it was not asked for"
AT_ONE_SITE = {"A04", "A05", "A10", "A11", "A12"}
"""Attacks that one site can make of its own side: the others compare what clients say, or need the
ledgers of all parties."""
_CAPTURED = {"A01", "A02", "A03", "A04", "A05", "A06", "A11", "A13"}
"""Attacks on what the aggregator, or the matcher, kept of what it read."""
_HIDDEN = (
    "others' ledgers show that more of it may have been read, in exchange {}, than its reader "
    "recorded; what nobody kept cannot be attacked"
)
_ALONE = (
    "noise was added to what was read, so nobody can compute it again, and what it was is its "
    "reader's word"
)
_SIDES = (
    "the sides of all {} clients and of the aggregator are needed, and here is one client's alone"
)
_LATE = "the time budget was used up before this attack began"


@cache
def attacks() -> tuple[Attack, ...]:
    """Return all attacks, by id."""
    names = (m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    modules = (import_module(f"{__name__}.{name}") for name in sorted(names))
    found: list[Attack] = [m.ATTACK for m in modules if hasattr(m, "ATTACK")]
    return tuple(sorted(found, key=lambda attack: attack.id))


def chosen(ids: Sequence[str]) -> tuple[Attack, ...]:
    """Return attacks by id or name, in the order of their ids; all, if none are named.

    Raises:
        ValueError: there is no such attack; names the nearest.
    """
    known = {key.lower(): (key, a) for a in attacks() for key in (a.id, a.name)}
    words = [word.lower().replace("_", "-") for word in ids]
    for word, given in zip(words, ids, strict=True):
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            names = ", ".join(sorted(key for key, _ in known.values()))
            hint = f"did you mean {known[near[0]][0]!r}?" if near else f"known: {names}"
            raise ValueError(f"there is no attack {given[:40]!r}; {hint}")
    wanted = {known[word][1].id for word in words}
    return tuple(a for a in attacks() if not wanted or a.id in wanted)


def heads_digest(ledger_index: LedgerIndex, party: str = "") -> str:
    """Return SHA-256 (hex) over the head of every ledger that can be read: what seeds the chance.

    Over the canonical JSON of [[party, entries, Merkle root in hex], ...], sorted by party.

    Args:
        ledger_index: of the run.
        party: whose ledger alone counts, as at that party; empty: all.
    """
    heads = [
        [p, len(leaves), root(leaves).hex()]
        for p, leaves in sorted(ledger_index.leaves.items())
        if party in ("", p)
    ]
    return hashlib.sha256(b"secure-fgl/heads\0" + canonical(heads)).hexdigest()


@cache
def code_digest() -> str:
    """Return SHA-256 (hex) over the attacks' own source files, by path."""
    digest = hashlib.sha256(b"secure-fgl/attacks\0")
    place = Path(__file__).parent
    for name, source in sorted((f.relative_to(place).as_posix(), f) for f in place.rglob("*.py")):
        data = source.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def attack(
    material: Material,
    ids: Sequence[str] = (),
    *,
    profile: Profile = "quick",
    earlier: AttackReport | None = None,
    time_budget: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AttackReport:
    """Run attacks on a run and judge them.

    Args:
        material: the run.
        ids: attacks by id or name; all, if empty.
        profile: how much work; ``quick`` or ``default``.
        earlier: what was found before. Where it is about the same ledgers and code, its FAIL and
            INCONCLUSIVE stay for attacks that are not asked for now, or that can no longer be run,
            and a FAIL of a stronger profile stays in any case. Its PASS becomes NOT_TESTED.
        time_budget: seconds after which no further attack begins, and one that trains models
            ends; what was not done is NOT_TESTED and listed. None: no limit. A report cut short
            depends on the machine.
        clock: tells seconds.

    Returns:
        A row per question and payload. An attack that crashes is a row with the verdict ERROR.
        The null controls of all rows are judged together.

    Raises:
        ValueError: no such attack.
        EvidenceError: the run's plan, policy or roster cannot be read.
    """
    wanted = chosen(ids)
    case, heads = material.case, heads_digest(material.case.ledger_index)
    until = None if time_budget is None else clock() + time_budget
    if until is not None:
        material = replace(material, late=lambda: clock() >= until)
    there = set(payloads.sent(case.plan, case.policy))
    rows: list[AttackRow] = []
    claims: list[Claim] = []
    hidden = _hidden(material)
    before = earlier if earlier is not None and _same(earlier, case, heads) else None
    for one in attacks():
        row = AttackRows(one, profile, seed_of(heads, one.id))
        if one not in wanted:
            found, held = row.cut(_UNASKED)
        elif material.units and one.id not in AT_ONE_SITE and set(one.payloads) & there:
            found, held = row.cut(_SIDES.format(len(case.plan.clients)))
        elif until is not None and clock() >= until:
            found, held = row.cut(_LATE)
        else:
            found, held = row.made(material)
            found = [_proved(row, one, hidden) for one in found]
        kept = [old for old in before.rows if old.id == one.id] if before is not None else []
        stays = carried(found, kept, row.untested)
        if before is not None and _claims(kept):
            held = claims_carried(held, before.claims, stays, silent=_silent(found))
        rows += stays
        claims += held
    rows = [*settled(rows)]
    tried = {row.payload for row in rows if row.verdict in _LOOKED and row.prior is not None}
    return AttackReport(
        run=case.roster_file.run,
        plan_digest=case.plan_digest,
        heads_digest=heads,
        profile=profile,
        code_digest=code_digest(),
        simulated=material.simulated,
        rows=tuple(rows),
        claims=tuple(dict.fromkeys(claims)),
        not_tested=payloads.not_tested(case.plan, case.policy, tried, _reasons(case, wanted, rows)),
    )


def _hidden(material: Material) -> dict[str, str]:
    """Return payload -> why what its reader kept of it proves nothing.

    It may have read more than it kept; or, where noise was added, have kept something else.
    """
    case = material.case
    sums = case.plan.all_of(Disclosure.SUM, Step.UP)
    totals = {p for item in sums for p in payloads.payloads_of(item, case.plan, case.policy)}
    found = dict[str, str]()
    for one in material.exposures:
        if one.alone:
            found |= dict.fromkeys({one.payload} if one.payload else totals, _ALONE)
    if material.units:
        return found  # one client's side: the reader's ledger is not there
    try:
        hidden = unrecorded(case)
    except EvidenceError:  # the ledgers contradict each other, so nobody knows what was read
        hidden = dict.fromkeys(payloads.PAYLOADS, 0)
    return found | {payload: _HIDDEN.format(number) for payload, number in hidden.items()}


def _captured(row: AttackRow) -> bool:
    return row.id in _CAPTURED or (row.id == "A09" and row.what.startswith(structure.SINGLETONS))


def _proved(made: AttackRows, row: AttackRow, hidden: Mapping[str, str]) -> AttackRow:
    """Return a row, NOT_TESTED where it rests on what the attacker alone says that it read."""
    silent = row.verdict in ("PASS", "NOT_APPLICABLE") and _captured(row)
    about = {row.payload} if row.payload else {*chosen([row.id])[0].payloads}
    if not silent or not (found := about & hidden.keys()):
        return row
    return made.untested(hidden[min(found)], row)


def _same(earlier: AttackReport, case: Case, heads: str) -> bool:
    """Tell whether an earlier report is about this run as it is now."""
    mine = (case.roster_file.run, case.plan_digest, heads, code_digest())
    said = (earlier.run, earlier.plan_digest, earlier.heads_digest, earlier.code_digest)
    return said == mine


def _silent(rows: Sequence[AttackRow]) -> bool:
    return not any(row.verdict in _LOOKED for row in rows)


def _claims(rows: Sequence[AttackRow]) -> bool:
    """Tell whether claims belong to these rows: one attack holds claims against evidence."""
    known = {one.id: one for one in attacks()}
    return any(rule.claims for row in rows for rule in known[row.id].rules)


def seed_of(heads: str, id: str) -> str:
    """Return the seed of one attack (hex): nobody chooses it, and no other attack changes it.

    Args:
        heads: from :func:`heads_digest`.
        id: of the attack.
    """
    return hashlib.sha256(f"secure-fgl/attack\0{heads}\0{id}".encode()).hexdigest()


def _reasons(case: Case, wanted: Sequence[Attack], rows: Sequence[AttackRow]) -> dict[str, str]:
    """Return payload id -> why the attacks on it came to nothing.

    Of several attacks the first that could be asked of such a run says why: that another one does
    not apply, as A11 where nobody put canaries in, would hide it.
    """
    why = {
        p: f"{a.id} was not asked for" for a in attacks() for p in payloads.looked_at(a, case.plan)
    }
    silent = [row for row in reversed(rows) if row.prior is None]
    reasons = {row.id: f"{row.id}: {row.reason}" for row in silent}
    asked = {row.id for row in silent if row.verdict != "NOT_APPLICABLE"}
    for one in sorted(reversed(wanted), key=lambda attack: attack.id in asked):
        there = payloads.looked_at(one, case.plan)
        why |= dict.fromkeys(there, reasons.get(one.id, f"{one.id} did not look at it"))
    mean = (r for r in silent if r.payload == "P21" and r.id == "A12")  # of P19 it says otherwise
    return why | {r.payload: f"{r.id}: {r.reason}" for r in mean}
