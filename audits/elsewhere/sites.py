"""What sites found at their own side: figures that each signs, and the rows over all sites.

A site runs attacks where its truth lies and hands on figures alone: those of the attacks that the
policy lets it share, or all of them if it says so. The site's identity signs them, and they are
bound to the head of its ledger. Whoever has several sites' figures judges the questions over sites.

What can be made again is held against the figures (`audits.attacks._shared.reading`). A site that
signs made-up figures that agree with each other is found by running the attacks there again, and by
nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np
from pydantic import Field as Setting
from pydantic import ValidationError

from audits.attacks import AT_ONE_SITE, Samples, attacks, code_digest, heads_digest, seed_of
from audits.attacks._shared.material import of_canaries
from audits.attacks._shared.models import ATTACKS_LIMIT, AttackReport, AttackRow
from audits.attacks._shared.reading import report_doubt
from audits.attacks._shared.rows import AttackRows
from audits.attacks._shared.together import settled
from audits.evidence.run_files import check_version, read_json
from audits.evidence.steps import Case
from crypto.errors import CryptoError
from crypto.signing import SigningKey, canonical
from protocols.errors import EvidenceError
from protocols.strict import Strict
from protocols.versions import SITE_FIGURES

__all__ = ["AtSites", "Handed", "SiteFigures", "figures_of", "joined", "read_figures"]

STEP = "figures"
NOTE = (
    "Each site's figures are its own word, signed. Made-up figures that agree with each other are "
    "found only by running the attacks at that site again. The controls' other clients were drawn "
    "from each site's own statistics."
)
_DOMAIN = "site figures"
_HEX = r"^[0-9a-f]*$"
_VALUES = ("prior", "raw", "null", "protected")
_LARGEST = 1e6  # no score is larger; the share of an error that is removed can be far below 0


class SiteFigures(Strict):
    """What one site hands on of its attacks.

    Attributes:
        party: the client that signed it.
        attacks: the rows that it hands on, on the head of its own ledger (`heads_digest`).
        withheld: ids of attacks that it ran and whose figures stay there.
        signature: of the party, over all the rest, in hex.
    """

    version: Literal[2] = 2
    party: str = Setting(max_length=60)
    attacks: AttackReport
    withheld: tuple[str, ...] = Setting(default=(), max_length=40)
    signature: str = Setting(default="", pattern=_HEX, max_length=256)

    def signed_by(self, key: SigningKey) -> SiteFigures:
        """Return the figures with the party's signature."""
        return self.model_copy(update={"signature": key.sign(_DOMAIN, self._said()).hex()})

    def text(self) -> bytes:
        """Return the canonical JSON in which they are handed on."""
        return canonical(self.model_dump(mode="json"))

    def _said(self) -> bytes:
        return canonical(self.model_dump(mode="json", exclude={"signature"}))

    def check(self, case: Case, party: str) -> None:
        """Raise EvidenceError unless this party signed them, of this run, of its ledger as it is.

        Args:
            case: with the party's ledger.
            party: as whose they are handed on.
        """
        found, roster = self.attacks, case.roster
        if self.party != party or party not in roster.clients:
            _bad(party, "they are of nobody who holds data in this run")
        try:
            key = roster.party(party).verify
            key.verify(_DOMAIN, bytes.fromhex(self.signature), self._said())
        except (CryptoError, ValueError):
            _bad(party, f"they are not signed by {party}")
        if (found.run, found.plan_digest) != (case.roster_file.run, case.plan_digest):
            _bad(party, "they are of another run or plan")
        if found.heads_digest != heads_digest(case.ledger_index, party):
            _bad(party, "its ledger here has another head than they name")
        if any(row.n_clients > 1 for row in found.rows):
            _bad(party, "they are of more than one client")
        if doubt := _odd(self):
            _bad(party, doubt)
        if doubt := report_doubt(found, attacks(), lambda id: seed_of(found.heads_digest, id)):
            _bad(party, doubt)


class Handed(Strict):
    """Which attacks a site handed figures of on, and of which they stayed there."""

    party: str = Setting(description="its site's client")
    attacks: tuple[str, ...] = Setting(description="ids whose figures it handed on")
    withheld: tuple[str, ...] = Setting(description="ids that it ran, and whose figures stayed")


class AtSites(Strict):
    """What sites found at their own side, together.

    Attributes:
        handed: by site.
        missing: clients that handed on none.
        other_version: clients whose figures another version of the attacks made; not counted.
        rows: over sites; the interval is over them.
        note: what nobody can see from figures.
    """

    handed: tuple[Handed, ...]
    missing: tuple[str, ...]
    other_version: tuple[str, ...]
    rows: tuple[AttackRow, ...]
    note: str = NOTE


def figures_of(found: AttackReport, party: str, share: Collection[str]) -> SiteFigures:
    """Return what a site hands on, not yet signed.

    Args:
        found: by the attacks on its own side.
        party: the site's client.
        share: ids of the attacks.
    """
    ran = {row.id for row in found.rows if row.verdict not in ("NOT_TESTED", "NOT_APPLICABLE")}
    kept = found.model_copy(
        update={
            "rows": tuple(row for row in found.rows if row.id in share),
            "claims": tuple(
                one for one in found.claims if ("A11" if of_canaries(one) else "A10") in share
            ),
            "not_tested": (),
        }
    )
    return SiteFigures(party=party, attacks=kept, withheld=tuple(sorted(ran - set(share))))


def read_figures(data: bytes, case: Case, party: str) -> SiteFigures:
    """Read what one site handed on, and hold it against its ledger.

    Raises:
        OtherEvidence: at step ``figures``: it is of another version.
        EvidenceError: at step ``figures``: it is not in the form in which it is signed, or see
            `SiteFigures.check`.
    """
    what = f"the figures of {party}"
    try:
        found = read_json(data, limit=ATTACKS_LIMIT, what=what)
    except EvidenceError as error:
        raise EvidenceError(STEP, error.what) from None
    check_version(found, SITE_FIGURES, step=STEP, what=what, member="version")
    try:
        figures = SiteFigures.model_validate(found)
        same = figures.text() == bytes(data)
    except (ValidationError, CryptoError):
        same = False
    if not same:
        _bad(party, "they are not in the form in which they are signed")
    figures.check(case, party)
    return figures


def joined(figures: Mapping[str, SiteFigures], clients: Sequence[str]) -> AtSites:
    """Return the rows over all sites that handed figures on.

    Args:
        figures: by client, each checked.
        clients: all of the run.
    """
    mine = {
        p: one for p, one in sorted(figures.items()) if one.attacks.code_digest == code_digest()
    }
    heads = [[party, one.attacks.heads_digest] for party, one in mine.items()]
    seed = hashlib.sha256(b"secure-fgl/sites\0" + canonical(heads)).hexdigest()
    return AtSites(
        handed=tuple(
            Handed(
                party=party,
                attacks=tuple(sorted({row.id for row in one.attacks.rows})),
                withheld=one.withheld,
            )
            for party, one in sorted(figures.items())
        ),
        missing=tuple(sorted(set(clients) - set(figures))),
        other_version=tuple(sorted(set(figures) - set(mine))),
        rows=settled(tuple(_rows(mine, seed, len(clients)))),
    )


def failed_at_sites(case: Case, attack: str) -> bool:
    """Tell whether an attack fails over the sites that handed figures on, or at one of them.

    At one site alone: what is of no client, as a site's own noise code.

    Raises:
        EvidenceError: see :func:`read_figures`.
    """
    there = {p: read_figures(data, case, p) for p, data in sorted(case.view.figures.items())}
    if not there:
        return False
    whole = [row for one in there.values() for row in one.attacks.rows if not row.n_clients]
    told = (*whole, *joined(there, case.plan.clients).rows)
    return any(row.id == attack and row.verdict == "FAIL" for row in told)


def _odd(figures: SiteFigures) -> str:
    """Say why no site's own attacks give such figures; empty if nothing speaks against them."""
    rows = [row for row in figures.attacks.rows if row.protected is not None]
    if not {*figures.withheld} <= {one.id for one in attacks()}:
        return "they name an attack that this program does not have"
    if not all(row.what.isprintable() for row in figures.attacks.rows):
        return "they hold text that nobody can read"
    if any(row.n_clients and row.id not in AT_ONE_SITE for row in rows):
        return "they hold a row of an attack that one site cannot make"
    if len({_question(row) for row in rows}) < len(rows):
        return "they answer one question twice"
    if any(row.n_clients and not _small(row) for row in rows):
        return "they hold a number that is no score"
    return ""


def _small(row: AttackRow) -> bool:
    values = [getattr(row, name) for name in (*_VALUES, "raw_gap", "gap")]
    numbers = [row.chance, *(text for v in values for text in (v.low, v.high))]
    return all(abs(float(number)) <= _LARGEST for number in numbers)


def _question(row: AttackRow) -> tuple[Any, ...]:
    return (
        row.id, row.payload, row.what, row.profile, row.metric, row.margin, row.gate,
        row.null_side, row.exact,
    )  # fmt: skip


def _rows(figures: Mapping[str, SiteFigures], seed: str, clients: int) -> Iterator[AttackRow]:
    """Yield a judged row for each question that some site measured at its client."""
    asked: dict[tuple[Any, ...], list[tuple[str, AttackRow]]] = {}
    for party, one in figures.items():
        for row in one.attacks.rows:
            if row.protected is not None and row.n_clients == 1:
                asked.setdefault(_question(row), []).append((party, row))
    known = {one.id: one for one in attacks()}
    for number, (key, there) in enumerate(sorted(asked.items()), 1):
        maker = AttackRows(known[key[0]], key[3], seed_of(seed, key[0]))
        yield maker.row(number, _samples(there, clients))


def _samples(there: Sequence[tuple[str, AttackRow]], clients: int) -> Samples:
    first = there[0][1]
    rows = [row for _, row in there]
    values: dict[str, Any] = {
        name: np.array([float(getattr(row, name).value) for row in rows]) for name in _VALUES
    }
    return Samples(
        payload=first.payload,
        what=first.what,
        units=tuple(party for party, _ in there),
        chance=float(np.mean([float(row.chance) for row in rows])),
        rounds=tuple(sorted({n for row in rows for n in row.rounds})),
        positives=sum(row.n_pos for row in rows),
        negatives=sum(row.n_neg for row in rows),
        note=f"Measured at {len(rows)} of {clients} sites, each by itself",
        metric=first.metric,
        margin=float(first.margin),
        gate=float(first.gate),
        exact=first.exact,
        null_side=first.null_side,
        bounds=_bounds(rows),
        **values,
    )


def _bounds(rows: Sequence[AttackRow]) -> tuple[float, float]:
    """Return between which numbers a score lies: of one client an interval is all of them."""
    ends = [getattr(row, name) for row in rows for name in _VALUES]
    return min(float(v.low) for v in ends), max(float(v.high) for v in ends)


def _bad(party: str, what: str) -> NoReturn:
    raise EvidenceError(STEP, f"the figures of {party} cannot be used: {what}")
