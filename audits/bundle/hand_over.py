"""One party's side of a run as a file for the others, and such files put together.

::

    hand-over.json                  format, run, party, and SHA-256 of every other file
    charter.json  plan.json  policy.json  roster.json  config.yaml    what all parties agreed on
    ledger/<party>.jsonl  heads/<party>.checkpoint                    its own record, receipts in it
    budgets/<party>[.<unit>].checkpoint                               a client's budgets, cosigned
    forgotten/<party>.jsonl                                           its notes of what it destroyed
    attacks/<party>.json             a client's figures of attacks on its own side, signed by it
    result.json  metrics.jsonl  checkpoints.json                      the aggregator's alone

Nothing else goes in: no key, no kept state, no captured payload, no model but its digest, and no
path. The archive is that of bundles (`audits.bundle.archive`): one byte string per side, and
nothing of it is believed, nor written anywhere, before all of it was compared.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from audits.bundle.archive import digests_text, pack, unpack
from audits.bundle.making import portable
from audits.elsewhere.sites import read_figures
from audits.evidence.roster_file import RosterFile, read_roster
from audits.evidence.run_files import RunView, check_version, fail
from audits.evidence.steps import Case
from crypto.errors import CryptoError
from crypto.signing import canonical, parse
from protocols.errors import EvidenceError, OtherVersion
from protocols.policy.budget import Unit
from protocols.versions import HAND_OVER
from protocols.wire.roles import Role

__all__ = ["Gathered", "Side", "gather", "hand_over", "read_side"]

STEP = "hand-over"
DOCUMENTS = ("charter.json", "plan.json", "policy.json", "roster.json", "config.yaml")
_RESULT = ("result.json", "metrics.jsonl", "checkpoints.json")
_LIST, _LIST_LIMIT = "hand-over.json", 1 << 20  # bytes; a file takes about 100
_MEMBERS = {"files", "party", "run", "version"}


@dataclass(frozen=True, repr=False)
class Side:
    """One party's side as it was handed over; nothing of it is verified.

    Attributes:
        party, run: whose it is, and of which run, by its own word.
        files: by path, without the list.
    """

    party: str
    run: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, repr=False)
class Gathered:
    """Sides of one run, put together.

    Attributes:
        run: its name.
        files: of the run folder, by path.
        parties: whose sides are there.
        missing: whose are not, by the charter.
    """

    run: str
    files: Mapping[str, bytes]
    parties: tuple[str, ...]
    missing: tuple[str, ...]


def hand_over(view: RunView, figures: bytes = b"") -> bytes:
    """Return one party's side as a file; the same side always gives the same bytes.

    Args:
        figures: of attacks on this side, signed (`audits.elsewhere.sites`); empty: none are handed
            on.
        view: with `side`; its configuration is the one that was agreed on, which names no path.

    Raises:
        EvidenceError: a document is missing or cannot be read. A side whose evidence fails
            elsewhere is handed over all the same: it is for others to see.
    """
    roster = read_roster(view.roster_text)
    bare, party = portable(view), view.side
    if party not in {entry["name"] for entry in roster.roster.document()}:
        fail(STEP, "the ledger here belongs to nobody on the roster")
    files = dict(zip(DOCUMENTS, _documents(bare), strict=True))
    files[f"ledger/{party}.jsonl"] = bare.ledgers.get(party) or fail(
        STEP, f"the ledger of {party} is gone: there is nothing to hand over"
    )
    if note := bare.checkpoints.get(party):
        files[f"heads/{party}.checkpoint"] = note.encode()
    if said := bare.forgotten.get(party):
        files[f"forgotten/{party}.jsonl"] = said
    if figures:
        files[_figures(party)] = figures
    notes = {name for name in _notes(party) if name in bare.budgets}
    files |= {f"budgets/{name}.checkpoint": bare.budgets[name] for name in notes}
    if roster.roster.party(party).role is Role.AGGREGATOR:
        result = (bare.result_text, bare.metrics_text, digests_text(bare.weights))
        files |= {name: data for name, data in zip(_RESULT, result, strict=True) if data}
    listed = {path: _digest(data) for path, data in files.items()}
    facts = {"files": listed, "party": party, "run": roster.run, "version": HAND_OVER.version}
    packed = pack({**files, _LIST: canonical(facts)})
    read_side(packed)  # what a reader would refuse is not handed out
    return packed


def _documents(view: RunView) -> tuple[bytes, ...]:
    return (
        view.charter_text, view.plan_text, view.policy_text, view.roster_text,
        view.config_text or b"",
    )  # fmt: skip


def read_side(data: bytes) -> Side:
    """Read a file that `hand_over` made.

    Raises:
        OtherEvidence: it is of another version.
        EvidenceError: at step ``hand-over``: it is anything else, or holds a file too many or few.
    """
    try:
        files = unpack(data)
    except EvidenceError as error:
        raise EvidenceError(STEP, error.what) from None
    try:
        found = parse(files.pop(_LIST, b""), limit=_LIST_LIMIT)
    except CryptoError:
        raise EvidenceError(STEP, f"there is no {_LIST}, or it is not canonical JSON") from None
    check_version(found, HAND_OVER, step=STEP, what=_LIST, member="version")
    if not isinstance(found, dict) or set(found) != _MEMBERS:
        fail(STEP, f"{_LIST} does not hold exactly {', '.join(sorted(_MEMBERS))}")
    if found["files"] != {path: _digest(content) for path, content in files.items()}:
        fail(STEP, f"the files are not those that {_LIST} lists")
    try:
        roster = read_roster(files.get("roster.json", b""))
    except EvidenceError as error:
        raise EvidenceError(STEP, error.what) from None
    _of_its_party(found, roster, files)
    return Side(found["party"], found["run"], files)


def _of_its_party(
    found: Mapping[str, object], roster: RosterFile, files: Mapping[str, bytes]
) -> None:
    """Refuse a file that holds more than one party's own, or less."""
    party = found["party"]
    roles = {entry["name"]: entry["role"] for entry in roster.roster.document()}
    if not isinstance(party, str) or party not in roles or found["run"] != roster.run:
        fail(STEP, "it is of nobody on its roster, or of another run")
    ledger, head = f"ledger/{party}.jsonl", f"heads/{party}.checkpoint"
    more = {head, f"forgotten/{party}.jsonl"} | (
        set(_RESULT) if roles[party] == Role.AGGREGATOR else set()
    )
    more |= {_figures(str(party))} if roles[party] == Role.CLIENT else set()
    more |= {f"budgets/{name}.checkpoint" for name in _notes(party) if roles[party] == Role.CLIENT}
    if not {*DOCUMENTS, ledger} <= set(files):
        fail(STEP, "a document of the run, or the party's ledger, is missing")
    if strays := set(files) - {*DOCUMENTS, ledger, *more}:
        fail(STEP, f"it holds {len(strays)} files that are not its party's to hand over")


def _figures(party: str) -> str:
    return f"attacks/{party}.json"


def _notes(party: str) -> tuple[str, ...]:
    return tuple(party if unit == "client" else f"{party}.{unit}" for unit in get_args(Unit))


def gather(given: Sequence[tuple[str, bytes]]) -> Gathered:
    """Put sides of one run together.

    Args:
        given: of each file what to call it, and its bytes.

    Raises:
        EvidenceError: at step ``hand-over``: a file cannot be read, or two contradict each other:
            they are of two runs, hold another charter, plan, policy, roster or configuration, or
            tell two stories of one party.
    """
    if not given:
        fail(STEP, "no file was given")
    sides: dict[str, tuple[str, Side]] = {}
    for name, data in given:
        try:
            side = read_side(data)
        except OtherVersion:
            raise
        except EvidenceError as error:
            raise EvidenceError(STEP, f"{name}: {error.what}") from None
        first = next(iter(sides.values()), (name, side))
        _same_documents(first, (name, side))
        before = sides.get(side.party)
        sides[side.party] = (name, side) if before is None else _one_story(before, (name, side))
    files: dict[str, bytes] = {}
    for name, side in sides.values():
        if set(side.files) & set(files) - set(DOCUMENTS):  # names with dots may meet in budgets/
            fail(STEP, f"{name} holds a file that another one holds, too")
        files |= side.files
    _check_figures(files, set(sides))
    parties = {str(entry["name"]) for entry in read_roster(files["roster.json"]).roster.document()}
    run = next(side.run for _, side in sides.values())
    missing = tuple(sorted(parties - set(sides)))
    return Gathered(run, files, tuple(sorted(sides)), missing)


def _check_figures(files: Mapping[str, bytes], parties: set[str]) -> None:
    """Refuse figures that are not the site's own, of this run and of its ledger as it is here."""
    for party in sorted(parties):
        if data := files.get(_figures(party)):
            case = Case(
                RunView(
                    plan_text=files["plan.json"],
                    policy_text=files["policy.json"],
                    roster_text=files["roster.json"],
                    ledgers={party: files[f"ledger/{party}.jsonl"]},
                )
            )
            read_figures(data, case, party)


def _same_documents(one: tuple[str, Side], other: tuple[str, Side]) -> None:
    for document in DOCUMENTS:
        if not hmac.compare_digest(one[1].files[document], other[1].files[document]):
            fail(STEP, f"{one[0]} and {other[0]} contradict each other: another {document}")


def _one_story(one: tuple[str, Side], other: tuple[str, Side]) -> tuple[str, Side]:
    """Return the later of two files of one party; the earlier one must be its beginning.

    A party may hand over once more after it came back: its ledger then goes on from where it was.
    """
    party, ledger = one[1].party, f"ledger/{one[1].party}.jsonl"
    note, told = f"forgotten/{party}.jsonl", _figures(one[1].party)

    def size(found: tuple[str, Side]) -> tuple[int, int, int]:
        files = found[1].files
        return len(files[ledger]), len(files.get(note, b"")), int(told in files)

    early, late = sorted((one, other), key=size)
    noted = [found.files.get(note, b"") for _, found in (early, late)]
    asked = [found.files.get(told, b"") for _, found in (early, late)]
    bare = [
        {k: v for k, v in found.files.items() if k not in (note, told)}
        for _, found in (early, late)
    ]
    agree = not asked[0] or hmac.compare_digest(*asked)  # figures come later, and do not change
    if agree and bare[0] == bare[1] and noted[1].startswith(noted[0]):
        return late
    grows = late[1].files[ledger].startswith(early[1].files[ledger])
    ended = set(early[1].files) - {*DOCUMENTS, ledger}  # a head, a result: all there was
    if not grows or ended or len(early[1].files[ledger]) == len(late[1].files[ledger]):
        fail(STEP, f"{one[0]} and {other[0]} contradict each other about {party}")
    return late


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
