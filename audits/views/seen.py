"""The auditor's view of a role: what reached it, what it can open, and the attacks from there.

Everything is taken from the report, and so from the ledgers and the plan. A role of several parties
(clients, tag servers) is shown as all of them; what one of them got at most stands beside it, since
each opens only what is addressed to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from audits.attacks import attacks
from audits.attacks._shared.models import AttackRow, NotTested
from audits.attacks.trap_weights import BY_ONE, START
from audits.report import words
from audits.report.models import Egress, Report, Row
from audits.views.keys import keys_of
from protocols.strict import Strict
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE

__all__ = ["Reached", "View", "roles_there", "seen", "spelt"]

SHORT = {"authority": "key_authority"}
_FORMS = {"P03", "P04"}  # masked and encrypted values: what a payload looks like on its way
_BLIND = ("nothing", "size only", "uniform noise", "who took part", "half of a secret", "that the ")
"""How a plan begins to say that a role cannot open what an item holds."""
_UPDATES = {"P01", "P02", "P05", "P06", "P07", "P12", "P19"}
_MODEL = "P19"  # follows from the totals, so whoever reads these has it
_ONLY = {"A20": {Role.AGGREGATOR}}  # attacks that only one role can begin
_BY_CLIENTS = (BY_ONE, START)  # what of it begins at a client, or with the code that all run


class Reached(Strict):
    """What reached a role of one item, from one role, under one protection.

    Attributes:
        payloads: P01 to P21, what it discloses first, then the forms it takes on its way.
        parties: of the role that got any.
        count, bytes: of envelopes, to all of them.
        most, most_bytes: to the party that got most bytes.
        opens: what the role learns from it, in the plan's words; empty if nothing.
    """

    item: str
    payloads: tuple[str, ...]
    sender_role: str
    recipient_role: str
    protection: tuple[str, ...]
    unsafe: bool
    parties: int
    count: int
    bytes: int
    most: int
    most_bytes: int
    first_round: int
    last_round: int
    opens: str


class View(Strict):
    """What some roles of a run could see.

    Attributes:
        roles: one, or those that pool what they have.
        parties: how many parties the run has of each.
        reached: by item, in the order of the report.
        keys: who of them holds which key.
        learns: what each learns, by item, also of what others compute for it.
        together: what they have only together.
        opened: ids of the payloads that they can open.
        attacks: that start from there, with their verdicts; also those over sites.
        not_tested: of `opened`, what no attack looked at.
        unseen: in one sentence, what left and they cannot see.
        evidence: the verdict on the run's evidence.
    """

    run: str
    algorithm: str
    policy: str
    roles: tuple[str, ...]
    parties: tuple[int, ...]
    notes: tuple[str, ...]
    reached: tuple[Reached, ...]
    keys: tuple[str, ...]
    learns: tuple[str, ...]
    together: tuple[str, ...]
    opened: tuple[str, ...]
    attacks: tuple[AttackRow, ...]
    not_tested: tuple[NotTested, ...]
    unseen: str
    evidence: str


def roles_there(report: Report) -> tuple[str, ...]:
    """Return the roles that a run has, as ``--view`` spells them."""
    long = {role: short for short, role in SHORT.items()}
    there = {party.role for party in report.parties}
    return tuple(long.get(str(role), str(role)) for role in Role if str(role) in there)


def spelt(text: str, report: Report) -> tuple[Role, ...]:
    """Return the roles of a view, for example of ``aggregator+client``.

    Raises:
        ValueError: one of them is unknown, not in this run, or named twice.
    """
    known = roles_there(report)
    found = []
    for word in text.split("+"):
        name = word.strip().lower().replace("-", "_").replace(" ", "_")
        name = {role: short for short, role in SHORT.items()}.get(name, name)
        if name not in known:
            there = ", ".join(known)
            raise ValueError(f"this run has no role {word.strip()[:30]!r}; it has: {there}")
        found.append(Role(SHORT.get(name, name)))
    if len(set(found)) < len(found):
        raise ValueError(f"a view names a role twice: {text[:60]!r}; name each once")
    return tuple(found)


def seen(report: Report, roles: Sequence[Role]) -> View:
    """Return what roles could see, pooled if they are several.

    Args:
        report: of the run.
        roles: that the run has, see `spelt`.
    """
    opened = {role: _opened(report.egress, role) for role in roles}
    pooled = set().union(*opened.values())
    counts = {role: sum(p.role == role for p in report.parties) for role in roles}
    return View(
        run=report.subject.run,
        algorithm=report.subject.algorithm,
        policy=report.subject.policy,
        roles=tuple(map(str, roles)),
        parties=tuple(counts.values()),
        notes=report.notes,
        reached=tuple(row for role in roles for row in _reached(report, role)),
        keys=tuple(text for role in roles for text in keys_of(report, role)),
        learns=_learns(report, roles),
        together=_together(report, roles),
        opened=tuple(sorted(pooled)),
        attacks=tuple(row for row in _rows(report) if _starts(row, opened)),
        not_tested=tuple(one for one in report.not_tested if one.payload in pooled),
        unseen=_unseen(report.egress, pooled),
        evidence=report.integrity.verdict,
    )


def _gets(row: Egress | Row, role: Role) -> bool:
    """Tell whether something is addressed to a role; what all get, its sender has already."""
    if row.recipient_role == EVERYONE:
        return row.sender_role != role
    return row.recipient_role == role


def _said(row: Egress, role: Role) -> str:
    """Return what a role learns of an item, in the plan's words; empty if it can open nothing."""
    names = [str(role), "everyone"]
    names += ["addressee", "other clients"] if role is Role.CLIENT else []
    told = (row.learns[name] for name in names if name in row.learns)
    return next((text for text in told if not text.startswith(_BLIND)), "")


def _opened(rows: Sequence[Egress], role: Role) -> set[str]:
    """Return the payloads that a role can open: addressed to it, or computed for it of uploads.

    A model that it makes itself counts, too.
    """
    found = set[str]()
    for row in rows:
        computed = role is Role.CLIENT and row.sender_role == role
        if (_gets(row, role) or computed) and _said(row, role):
            found |= set(row.payloads) - _FORMS
    makes = any(row.sender_role == role and _MODEL in row.payloads for row in rows)
    return found | {_MODEL} if makes or found & _UPDATES else found


def _reached(report: Report, role: Role) -> Iterable[Reached]:
    for row in report.egress:
        if not _gets(row, role):
            continue
        each: dict[str, tuple[int, int]] = {}
        for one in report.inventory:
            if _same(one, row):
                size, count = each.get(one.recipient, (0, 0))
                each[one.recipient] = size + one.bytes, count + one.count
        most_bytes, most = max(each.values(), default=(row.bytes, row.count))
        everyone = row.recipient_role == EVERYONE
        yield Reached(
            **{name: getattr(row, name) for name in _ALIKE},
            recipient_role=str(role),
            parties=sum(p.role == role for p in report.parties) if everyone else len(each),
            most=most,
            most_bytes=most_bytes,
            opens=_said(row, role),
        )


_ALIKE = ("item", "payloads", "sender_role", "protection", "unsafe", "count", "bytes",
          "first_round", "last_round")  # fmt: skip


def _same(one: Row, row: Egress) -> bool:
    """Tell whether a row of the inventory is part of one of the roll-up."""
    names = ("item", "sender_role", "recipient_role", "disclosure", "protection", "unsafe")
    sent = "+".join(message.name for message in row.messages)
    alike = all(getattr(one, name) == getattr(row, name) for name in names)
    return alike and (not row.messages or one.messages == sent or not sent)


def _learns(report: Report, roles: Sequence[Role]) -> tuple[str, ...]:
    wanted = {str(role) for role in roles}
    several = len(roles) > 1
    found = [
        f"{words.role(view.viewer)}: {text}" if several else text
        for view in report.views
        if view.viewer in wanted
        for text in view.sees
    ]
    alone = [view for view in report.views if _colluding(view.viewer) in [{r} for r in roles]]
    return (*found, *(f"{view.viewer}: {text}" for view in alone for text in view.sees))


def _together(report: Report, roles: Sequence[Role]) -> tuple[str, ...]:
    """Return what the report says of these roles together, or of several among them."""
    there = [view for view in report.views if len(_colluding(view.viewer)) > 1]
    mine = [view for view in there if _colluding(view.viewer) <= {*roles}]
    return tuple(f"{view.viewer}: {said}" for view in mine for said in view.sees)


def _colluding(viewer: str) -> set[Role]:
    """Return which roles a view is of, if it is no role's own; who is not named is a client."""
    if viewer in {*map(str, Role), "network"}:
        return set()
    text = viewer.replace("receiver", "client")
    return {role for role in Role if words.role(str(role)) in text} or {Role.CLIENT}


def _rows(report: Report) -> tuple[AttackRow, ...]:
    """Return the rows of a report, also those over sites, which say so."""
    sites = report.at_sites.rows if report.at_sites is not None else ()
    named = [row.model_copy(update={"what": f"at sites: {row.what}"}) for row in sites]
    return (*report.attacks, *named)


def _starts(row: AttackRow, opened: dict[Role, set[str]]) -> bool:
    """Tell whether an attack can be begun by one of the roles, on what it opens."""
    if row.id == "A20" and row.what.startswith(_BY_CLIENTS):  # clients are handed the totals
        return bool({Role.AGGREGATOR, Role.CLIENT} & set(opened))
    there = {
        payload
        for role, payloads in opened.items()
        if role in _ONLY.get(row.id, {role})
        for payload in payloads
    }
    if row.payload:
        return row.payload in there
    return any(set(one.payloads) & there for one in attacks() if one.id == row.id)


def _unseen(rows: Iterable[Egress], opened: set[str]) -> str:
    left = {payload for row in rows for payload in row.payloads}
    hidden = sorted(left - opened - _FORMS)
    if not hidden:
        return "Nothing that left is hidden from it."
    names = ", ".join(f"{words.NAMES[payload]} ({payload})" for payload in hidden)
    return f"It cannot see: {names}; of what is masked or encrypted, only the size."
