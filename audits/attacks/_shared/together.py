"""Rows of a report judged together: biased null controls, earlier reports, skill scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from audits.attacks._shared import verdicts
from audits.attacks._shared.material import Array
from audits.attacks._shared.models import FIGURES, AttackRow, Claim, Evidence
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import (
    Figures,
    NotApplicable,
    Samples,
    above_reason,
    invalid,
    misplaced,
    null_p,
)

# --- What an earlier report still says where an attack is not run now, or by a weaker profile ---
#
# A leak that was found does not go away because less is looked at, and what was undecided does not
# become unasked. A PASS does: it was somebody's measurement, on captures and data that nobody has
# looked at since, and the file that says so is in no ledger. It becomes NOT_TESTED, with the
# reason.

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


# --- Rows of a report judged together: which null controls are biased, which rows tell something
# ---

LEVELS: dict[Evidence, float] = {"there": 1e-3, "signs": 0.05}
"""Chance of at least one such row in a report in which no message tells anything; rarest first."""


def biased(rows: Sequence[AttackRow]) -> list[bool]:
    """Return for each row whether its null control is biased; False where nothing was measured.

    Facts are judged one by one, as no chance is in them. Estimates are one family.
    """
    found = [_figures(row) for row in rows]
    family = [n for n, row in enumerate(rows) if found[n] is not None and not row.exact]
    p = [_p(rows[n], found[n]) for n in family]
    wrong = dict(zip(family, verdicts.holm(p), strict=True))
    return [
        wrong[n] if n in wrong else fact is not None and misplaced(fact, row.null_side)
        for n, (row, fact) in enumerate(zip(rows, found, strict=True))
    ]


def _figures(row: AttackRow) -> Figures | None:
    values = {name: value for name in FIGURES if (value := getattr(row, name)) is not None}
    return Figures.of(row.chance, values) if len(values) == len(FIGURES) and row.chance else None


def _p(row: AttackRow, figures: Figures | None) -> float:
    if figures is None:
        return 1.0
    return null_p(figures, row.null_side, verdicts.trials(row.n_pos, row.n_neg, figures.null.n))


def evidence(rows: Sequence[AttackRow]) -> list[Evidence]:
    """Return for each row how sure it is that its protected message tells something.

    The rows of a report are one family (Holm), so that of a thousand sound reports one holds a row
    that reads ``there``, and of twenty one a row that reads ``signs``. Facts and rows whose null
    control is biased are in no family; whoever has one client has no spread to go by.
    """
    p = _gains(rows)
    levels = {level: verdicts.holm([*p.values()], chance) for level, chance in LEVELS.items()}
    sure: dict[int, Evidence] = {}
    for level, rejected in levels.items():
        for n, found in zip(p, rejected, strict=True):
            if found:
                sure.setdefault(n, level)
    return [sure.get(n, "") for n in range(len(rows))]


def _gains(rows: Sequence[AttackRow]) -> dict[int, float]:
    """Return the place of each row of the family -> its p-value."""
    found = {}
    for n, (row, wrong) in enumerate(zip(rows, biased(rows), strict=True)):
        figures = _figures(row)
        if figures is not None and not row.exact and not wrong and figures.gap.n > 1:
            gap, excess = figures.gap, figures.excess
            found[n] = float(
                verdicts.gain_p(
                    (gap.value, gap.low),
                    (excess.value, excess.low),
                    (figures.protected.value, figures.null.value),
                    gap.n,
                    verdicts.trials(row.n_pos, row.n_neg, gap.n),
                )
            )
    return found


def settled(rows: Sequence[AttackRow]) -> tuple[AttackRow, ...]:
    """Return the rows of a report as they stand beside each other.

    INVALID where their null controls are biased, and ABOVE_PRIOR where they would decide nothing
    and tell something all the same.
    """
    sure, p = evidence(rows), _gains(rows)
    return tuple(
        _unfair(row) if wrong and not row.exact else _above(row, level, p.get(n, 1.0), len(p))
        for n, (row, wrong, level) in enumerate(zip(rows, biased(rows), sure, strict=True))
    )


def _above(row: AttackRow, level: Evidence, p: float, family: int) -> AttackRow:
    if row.verdict not in ("INCONCLUSIVE", "ABOVE_PRIOR") or level == row.evidence:
        return row
    figures = _figures(row)
    if figures is None:
        return row
    if not level:  # an earlier row, beside more rows than it was found with
        reason = above_reason(figures, "signs", 0).partition(":")[0] + ", not above luck any more."
        return row.model_copy(update={"verdict": "INCONCLUSIVE", "evidence": "", "reason": reason})
    records = row.n_pos + row.n_neg or figures.gap.n
    more = verdicts.more_needed(p, LEVELS["there"] / family, records)
    reason = f"{above_reason(figures, level, more)}."
    return row.model_copy(update={"verdict": "ABOVE_PRIOR", "evidence": level, "reason": reason})


def _unfair(row: AttackRow) -> AttackRow:
    figures = _figures(row)
    if figures is None:  # of one without figures nothing is said, so it is not biased
        return row
    reason = f"{invalid(figures, row.null_side)}."
    blank = {"evidence": "", "needed_n": None, "detectable": ""}
    gone = {"verdict": "INVALID", "reason": reason, **blank}
    return row.model_copy(update=gone)


# --- A second score where a good prior leaves the first one little room: the skill score ---
#
# 1 - (1 - score) / (1 - prior), by the mean prior of all clients (Murphy, Monthly Weather Review
# 1988): 0 is the attacker without the message, 1 is the truth. Margin and gate count in shares of
# the room above the prior.

_NONE = 1e-6  # of room, below which nothing is left to find


def fits(found: Samples, room: float, rule: Rule) -> Samples | NotApplicable:
    """Return samples, or why no attack could pass their gate.

    Args:
        found: scores that end at 1.
        room: 1 less the mean prior.
        rule: of the score.
    """
    if room > rule.gate:
        return found
    why = (
        f"an attacker without the message is right in all but {room:.3f}, and {rule.gate:g} above "
        "it is needed to show that an attack works; the share of that error is asked instead"
    )
    return NotApplicable(why, found.payload, found.what)


def skill(found: Samples, room: float, rule: Rule) -> Samples | NotApplicable:
    """Return the skill score of the same trials.

    Args:
        found: scores that end at 1.
        room: 1 less the mean prior.
        rule: of the skill score.
    """
    what = f"{found.what}, of what an attacker without it has wrong"
    if room < _NONE:
        why = "who sees no message has nothing wrong, so there is nothing left to find"
        return NotApplicable(why, found.payload, what)

    def of(score: Array) -> Array:
        return np.asarray(1.0 - (1.0 - score) / room, dtype=np.float64)

    return replace(
        found,
        what=what,
        prior=of(found.prior),
        raw=of(found.raw),
        null=of(found.null),
        protected=of(found.protected),
        bounds=(1.0 - 1.0 / room, 1.0),
        **{**rule.given(), "chance": float(of(np.array(found.chance)))},
    )
