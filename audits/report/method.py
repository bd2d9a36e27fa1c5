"""Sections 10 and 11: how the numbers were made, by the files' own record; what protection cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from audits.report.attack_rows import Outcome
from audits.report.models import REPORT_VERSION
from audits.report.sections import Cost, Fact, Method, Spent, Written
from crypto.spans import KINDS
from protocols.wire.roles import Role

_RECORDED = ("backend", "version", "code_digest", "config_sha256", "seed")
_LONGEST = 120
_COUNTED = (
    "Envelopes, bytes and refusals are added up from the parties' ledgers; nothing is estimated. "
    "Planned numbers are upper bounds that were made before training, without the data."
)
_SPENT = (
    "Epsilons are Renyi bounds over all noised messages that the ledgers show, rounded up; "
    "secure-fgl audit account compares them with other accountants."
)
_ATTACKED = (
    "An attack is run four times: on what the receiver learnt, on the message before protection "
    "(raw control), on another client's message or on noise (null control), and without any "
    "message (prior). All values are means over clients with 95 % intervals from a bootstrap over "
    "clients, drawn from the heads of the ledgers; facts (A09) and proved bounds (A10) have none."
)
_JUDGED = (
    "PASS needs an attack that succeeds on the raw message, a null control at chance, and an "
    "interval of the gain over the prior that lies below the margin as a whole. What falls short "
    "of that is INCONCLUSIVE or INVALID. Null controls of estimates are tested together (Holm): a "
    "report whose controls are sound holds an INVALID row by chance in one of 10,000."
)
_SAME = (
    "This report is a function of the run's files: no clock, no network, no chance. "
    "'secure-fgl audit verify' makes it again and compares every byte."
)


NOT_PROFILED = (
    "This run was not profiled. secure-fgl run CONFIG --profile measures what protection costs."
)
_ROLES = frozenset(map(str, Role))
_LEARNING, _DISK, _OTHERS = "learning", "waiting (disk)", "waiting (processes)"
_COUNTS = ("syncs", "ledger_bytes", "state_bytes")
_NUMBERS = ("wall_ms", "workers", "syncs_a_round")
_MOST = 1 << 53


def cost(result: Mapping[str, Any]) -> Cost | None:
    """Return section 11, None where the run was not profiled or what it says of it is no profile.

    Args:
        result: ``result.json``; times are its own word.
    """
    found: Any = result.get("profile")
    try:
        rows = [(_role(row["role"]), row) for row in found["rows"]]
        spent = [
            Spent(role=role, kind=kind, ms=_number(row["ms"][kind]))
            for role, row in rows
            for kind in KINDS
            if kind in row["ms"]
        ]
        written = [Written(role=r, **{n: _number(row[n]) for n in _COUNTS}) for r, row in rows]
        numbers = {name: _number(found[name]) for name in _NUMBERS}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    kinds = {kind: sum(one.ms for one in spent if one.kind == kind) for kind in KINDS}
    return Cost(
        **numbers,
        learning_ms=kinds[_LEARNING],
        protection_ms=sum(kinds.values()) - kinds[_LEARNING] - kinds[_OTHERS],
        disk_ms=kinds[_DISK],
        spent=tuple(spent),
        written=tuple(written),
    )


def _role(name: Any) -> str:
    if name not in _ROLES:
        raise ValueError
    return str(name)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError
    return value


def said_of(found: Cost | None) -> str:
    """Return the first words of section 11."""
    if found is None:
        return NOT_PROFILED
    where = f"{found.workers} workers and the process that forked them" if found.workers else ""
    return (
        f"The run took {found.wall_ms / 1000:.2f} s{where and f', in {where}'}: "
        f"{found.learning_ms / 1000:.2f} s of learning and {found.protection_ms / 1000:.2f} s of "
        f"everything else, {found.disk_ms / 1000:.2f} s of which waited for the disk; "
        f"{found.syncs_a_round} syncs a round. Times are the simulator's own word: no ledger and "
        "no bundle has them."
    )


def method(result: Mapping[str, Any], tried: Outcome) -> Method:
    """Return section 10.

    Args:
        result: ``result.json``; what it records of versions is its own word.
        tried: what the attacks found.
    """
    facts = [Fact(name="Report version", value=str(REPORT_VERSION))]
    for name in _RECORDED:
        value = result.get(name)
        if isinstance(value, str) and value.isprintable() and value:
            facts.append(Fact(name=f"{name} (result.json)", value=value[:_LONGEST]))
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
            facts.append(Fact(name=f"{name} (result.json)", value=str(value)))
    about = tried.tried
    if about.used:
        facts += [
            Fact(name="Profile of the attacks", value=about.profile),
            Fact(name="Digest of the attacks' code", value=about.code_digest),
        ]
    how = (_COUNTED, _SPENT, *((_ATTACKED, _JUDGED) if about.used else ()), _SAME)
    return Method(facts=tuple(facts), how=how)
