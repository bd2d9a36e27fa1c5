"""What an earlier report still says where an attack is not run now, or by a weaker profile.

A leak that was found does not go away because less is looked at, and what was undecided does not
become unasked. A PASS does: it was somebody's measurement, on captures and data that nobody has
looked at since, and the file that says so is in no ledger. It becomes NOT_TESTED, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from audits.attacks._shared.models import AttackRow, Claim

__all__ = ["carried", "claims_carried"]

_STRENGTH = {"quick": 0, "default": 1}
_STAYS = ("FAIL", "ABOVE_PRIOR", "INCONCLUSIVE")
_GOES = ("PASS", "INVALID")
_SILENT = ("NOT_TESTED", "NOT_APPLICABLE", "ERROR")

Blank = Callable[[str, AttackRow], AttackRow]
"""Makes a row NOT_TESTED of one that is not kept, and a reason."""


def carried(
    found: Sequence[AttackRow], earlier: Sequence[AttackRow], blank: Blank
) -> list[AttackRow]:
    """Return the rows of one attack: those found now, and what stays of an earlier report.

    Args:
        found: now; all of one profile.
        earlier: of the same attack, on the same ledgers, by the same program.
        blank: see `Blank`.
    """
    if all(row.verdict in _SILENT for row in found):
        said = [row for row in earlier if row.verdict in (*_STAYS, *_GOES)]
        why = found[0].reason
        return [r if r.verdict in _STAYS else blank(_gone(why, r), r) for r in said] or [*found]
    known = {(row.payload, row.what): row for row in earlier}
    made = [_row(row, known.get((row.payload, row.what)), blank) for row in found]
    there = {(row.payload, row.what) for row in found}
    now = max(_STRENGTH[row.profile] for row in found)
    # A part of the attack that cannot be run says so in a row of other words than its leak has.
    gaps = {row.payload for row in found if row.verdict in ("NOT_TESTED", "ERROR")}
    return made + [
        row
        for place, row in known.items()
        if place not in there
        and row.verdict == "FAIL"
        and (_STRENGTH[row.profile] >= now or gaps & {"", row.payload})
    ]


def _row(row: AttackRow, old: AttackRow | None, blank: Blank) -> AttackRow:
    """Return a row, or an earlier one of the same question that stays in its place."""
    if old is None:
        return row
    if row.verdict in _SILENT:
        if old.verdict in _STAYS:
            return old
        return blank(_gone(row.reason, old), old) if old.verdict in _GOES else row
    weaker = _STRENGTH[row.profile] < _STRENGTH[old.profile]
    return old if weaker and old.verdict == "FAIL" else row


def _gone(why: str, old: AttackRow) -> str:
    return (
        f"{why.rstrip('.')}; an earlier {old.profile} run of this attack said {old.verdict}, which "
        "does not count, as nobody measured it again"
    )


def claims_carried(
    held: Sequence[Claim], earlier: Sequence[Claim], rows: Sequence[AttackRow], *, silent: bool
) -> tuple[Claim, ...]:
    """Return the claims of an attack that holds claims against evidence.

    Args:
        held: now.
        earlier: of the earlier report.
        rows: as `carried` returned them.
        silent: nothing was looked at now; the earlier claims stand, and none as not falsified.
    """
    broken = [claim for claim in earlier if claim.status == "falsified"]
    if silent:
        return tuple(
            claim
            if claim.status == "falsified"
            else claim.model_copy(update={"status": "untested"})
            for claim in earlier
        )
    if any(row.verdict == "FAIL" for row in rows):
        texts = {claim.text for claim in held if claim.status == "falsified"}
        worse = {claim.text: claim for claim in broken if claim.text not in texts}
        return tuple(worse.pop(claim.text, claim) for claim in held) + tuple(worse.values())
    return tuple(held)
