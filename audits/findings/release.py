"""Whether a run's models may be taken out: the attacks that its policy asks for, and waivers.

An attack counts as answered by the verdicts of ``attacks.json`` that the report counts. What was
not run, what failed by itself and what another version of the attacks says is no answer. In its
place stands a waiver that every client of the run signed: the records in a model are theirs. It
names who answers for it, why, and its last day, at most `LONGEST` days after it was signed.

Which verdicts answer, and which a waiver may stand in for, is a `Rule`: `SITE` is the policy's, by
which parties take models out; ``audit release`` has a stricter one (`audits.findings.gate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, NoReturn

from pydantic import Field as Setting
from pydantic import ValidationError, model_validator

from audits.elsewhere.sites import failed_at_sites
from audits.evidence.run_files import check_version, read_json
from audits.evidence.steps import Case
from audits.findings.waivers import LONGEST, Day, Told
from audits.report.attack_rows import RUN, outcome
from crypto.errors import CryptoError
from crypto.signing import SigningKey, canonical
from protocols.errors import EvidenceError
from protocols.strict import Strict
from protocols.versions import RELEASE_WAIVER
from protocols.wire.roster import Roster

__all__ = [
    "SITE",
    "ReleaseWaiver",
    "Rule",
    "accepting",
    "held_back",
    "read_waiver",
    "unanswered",
    "verdict_of",
]

STEP = "release"
_DOMAIN = "release waiver"
_LIMIT = 16_384  # bytes; ours has about 600
_HEX = r"^[0-9a-f]*$"


@dataclass(frozen=True)
class Rule:
    """Which verdicts let a model out.

    Attributes:
        answers: by themselves.
        waivable: with a waiver; None: all others.
    """

    answers: tuple[str, ...]
    waivable: tuple[str, ...] | None = None


SITE = Rule(("PASS", "INCONCLUSIVE", "NOT_APPLICABLE"))
"""Of ``release`` in a policy: what was run and found nothing is an answer; ABOVE_PRIOR is none."""


class ReleaseWaiver(Strict):
    """One client's word that a model may be used though an attack was not answered.

    Attributes:
        run, attack: what it is about.
        party: the client that signed it.
        owner, reason: who answers for it, and why it is accepted.
        signed, until: the day on which it was signed, and the last one on which it holds.
        signature: of the party, over all the rest, in hex.
    """

    version: Literal[1] = 1
    run: str = Setting(pattern=_HEX, max_length=64)
    attack: str = Setting(pattern=r"^A\d{2}$")
    party: str = Setting(max_length=60)
    owner: Told
    reason: Told
    signed: Day
    until: Day
    signature: str = Setting(default="", pattern=_HEX, max_length=256)

    @model_validator(mode="after")
    def _not_for_ever(self) -> ReleaseWaiver:
        first, last = map(date.fromisoformat, (self.signed, self.until))
        if not 0 <= (last - first).days <= LONGEST:
            raise ValueError(f"until must be 0 to {LONGEST} days after the day of signing")
        return self

    def signed_by(self, key: SigningKey) -> ReleaseWaiver:
        """Return the waiver with the party's signature."""
        return self.model_copy(update={"signature": key.sign(_DOMAIN, self._said()).hex()})

    def text(self) -> bytes:
        """Return the canonical JSON in which it is kept."""
        return canonical(self.model_dump(mode="json"))

    def _said(self) -> bytes:
        return canonical(self.model_dump(mode="json", exclude={"signature"}))

    def check(self, roster: Roster, run: str) -> None:
        """Raise EvidenceError (``release``) unless a client of this run signed it for this run."""
        if self.run != run:
            _bad("it is of another run")
        if self.party not in roster.clients:
            _bad("it is of nobody who holds data in this run")
        try:
            key = roster.party(self.party).verify
            key.verify(_DOMAIN, bytes.fromhex(self.signature), self._said())
        except (CryptoError, ValueError):
            _bad(f"it is not signed by {self.party}")


def read_waiver(data: bytes) -> ReleaseWaiver:
    """Read a waiver; whether it holds is another question, see `ReleaseWaiver.check`.

    Raises:
        OtherEvidence: it is of another version.
        EvidenceError: at step ``release``: it is none, or spelt in another way.
    """
    found = read_json(data, limit=_LIMIT, what="a waiver of a release")
    check_version(found, RELEASE_WAIVER, step=STEP, what="a waiver of a release", member="version")
    try:
        waiver = ReleaseWaiver.model_validate(found)
        if waiver.text() == bytes(data):
            return waiver
    except (ValidationError, CryptoError):
        pass
    _bad("it is not in the form in which it is signed")


def verdict_of(case: Case, attack: str) -> str:
    """Return an attack's verdict on a run, the worst of its rows; NOT_TESTED where none counts.

    At one party's side none does: of one client a row never says more than INCONCLUSIVE, and a site
    would answer by itself what all clients are asked about. What fails at sites, or over them, is
    a FAIL whatever the run's own rows say; another verdict over sites stands in for nothing.

    Raises:
        EvidenceError: at step ``figures``: what a site handed on cannot be read, so nobody knows
            whether it fails there.
    """
    if case.view.side:
        return "NOT_TESTED"
    if failed_at_sites(case, attack):
        return "FAIL"
    found = outcome(case, ())
    rows = [row.verdict for row in found.rows if row.id == attack]
    if found.tried.state != RUN or not rows:
        return "NOT_TESTED"
    return next((verdict for verdict in rows if verdict not in SITE.answers), rows[0])


def accepting(attack: str, waivers: Sequence[ReleaseWaiver], day: date) -> set[str]:
    """Return the clients whose waiver for an attack holds on a day."""
    return {
        waiver.party
        for waiver in waivers
        if waiver.attack == attack
        and date.fromisoformat(waiver.signed) <= day <= date.fromisoformat(waiver.until)
    }


def held_back(
    requires: Sequence[str],
    verdicts: Mapping[str, str],
    waivers: Sequence[ReleaseWaiver],
    clients: Sequence[str],
    day: date,
) -> list[str]:
    """Return why models are held back, a clause for each attack; empty: they may be taken out.

    Args:
        requires: ids of attacks.
        verdicts: by attack; one that is missing was not tested.
        waivers: each checked.
        clients: all of the run.
        day: today.
    """
    told = []
    for attack in requires:
        missing = sorted(set(clients) - accepting(attack, waivers, day))
        names = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        lacking = f"no waiver is signed by {names}" if missing else ""
        told.append((attack, verdicts.get(attack, "NOT_TESTED"), lacking))
    return unanswered(told, SITE)


def unanswered(told: Iterable[tuple[str, str, str]], rule: Rule) -> list[str]:
    """Return a clause for each question that neither a verdict nor a waiver answers.

    Args:
        told: question, verdict, and in words which waiver is missing; empty: none is.
        rule: what counts.
    """
    found = []
    for question, verdict, lacking in told:
        waivable = rule.waivable is None or verdict in rule.waivable
        if verdict in rule.answers or (waivable and not lacking):
            continue
        why = lacking if waivable else "no waiver can stand in for that"
        found.append(f"{question} is {verdict}, and {why}")
    return found


_SHOWN = 4


def _bad(what: str) -> NoReturn:
    raise EvidenceError(STEP, f"a waiver cannot be used: {what}") from None
