"""Which figures of its own attacks a site hands on: what the policy lets it, or what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from audits.elsewhere.sites import figures_of
from audits.evidence.steps import Case
from audits.report.attack_rows import read_attacks
from protocols.wire.roster import Identity
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.places import place_of

__all__ = ["HandedOn", "handed_on"]


@dataclass(frozen=True)
class HandedOn:
    """What goes into a hand-over.

    Attributes:
        data: the signed figures; empty: none.
        ids: of the attacks whose figures they are.
        kept: of the attacks whose figures stay at the site.
    """

    data: bytes = b""
    ids: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def handed_on(
    party: str | Path, me: Callable[[], Identity], *, run: str | None = None, yes: bool = False
) -> HandedOn:
    """Return the figures of a site's own attacks that it hands on, signed by it.

    Args:
        party: the party's folder.
        me: returns its keys; asked for only if there is something to sign.
        run: the run's name; None: the one run that the party joined.
        yes: the figures of all attacks, whatever the policy lets it share.

    Raises:
        EvidenceError: ``attacks.json`` is not of this side as it is, or its verdicts are not what
            its figures give.
        UsageError: there is no such run, or the keys cannot be opened.
    """
    view = Run(place_of(party, run)).view()
    if not view.attacks_text:
        return HandedOn()
    case = Case(view)
    found = read_attacks(case)
    silent = ("NOT_TESTED", "NOT_APPLICABLE")
    ran = {row.id for row in found.rows if row.verdict not in silent}
    audit = case.policy.audit
    share = ran if yes else ran & set(audit.share if audit is not None else ())
    kept = tuple(sorted(ran - share))
    if not share:
        return HandedOn(kept=kept)
    signed = figures_of(found, view.side, share).signed_by(me().signing)
    return HandedOn(signed.text(), tuple(sorted(share)), kept)
