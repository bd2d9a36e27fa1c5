"""Runs between organisations: who agreed to what, who left, and what one side alone can show."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from audits.evidence.charter_file import APPROVAL, CharterFile
from audits.evidence.ledger_index import Sent
from audits.evidence.run_files import check_version, fail
from audits.evidence.steps import Case, Check, NotChecked
from audits.report.words import plural
from crypto.errors import CryptoError
from crypto.signing import SigningKey, VerifyKey, canonical, parse
from protocols.errors import BadEnvelope
from protocols.evidence.ledger import Entry, Spoken, client_items
from protocols.plan.plan import Item
from protocols.plan.steps import Service, Step
from protocols.versions import FORGOTTEN
from protocols.wire.envelope import NONE
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE

# --- What a party destroyed of its own side after a run, as it signed: ``forgotten/<party>.jsonl``
# ---
#
# A ledger is closed and signed when a run is over, so this stands beside it: one line of canonical
# JSON for each time, under the party's key on the roster. It says what is gone and since when.
# Where it stands, captured rounds that are away are no broken evidence, whatever the policy's days
# are.

KINDS = ("captures", "models", "state", "ledger")
"""What can be destroyed: captured rounds, models, the kept state of a run that goes not on, and the
ledger with all else but plan, policy, roster and configuration, which say of what run a note is."""

FORGOTTEN_STEP = "captured"
_DOMAIN = "forgotten"
_LIMIT = 16_384  # bytes of a line; ours has about 500
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
_MEMBERS = {"at", "party", "run", "signature", "version", "what"}


@dataclass(frozen=True)
class Forgotten:
    """One time: what was destroyed (see `KINDS`), and when (UTC, to the second)."""

    what: tuple[str, ...]
    at: str


def note_of(key: SigningKey, found: Forgotten, *, run: str, party: str) -> bytes:
    """Return the signed line of what a party destroyed.

    Args:
        key: the party's.
        found: what, and when.
        run: the run's name.
        party: the party's name.
    """
    facts = _facts(found, run, party)
    return canonical({**facts, "signature": key.sign(_DOMAIN, canonical(facts)).hex()}) + b"\n"


def read_notes(data: bytes, key: VerifyKey, *, run: str, party: str) -> tuple[Forgotten, ...]:
    """Read what a party destroyed.

    Raises:
        OtherEvidence: a line is of another version.
        EvidenceError: at step ``captured``: a line is not signed by this party for this run.
    """
    found = []
    for line in data.splitlines(keepends=True):
        try:
            facts = parse(line.rstrip(b"\n"), limit=_LIMIT)
        except CryptoError:
            _bad(party)
        check_version(facts, FORGOTTEN, step=FORGOTTEN_STEP, what="forgotten/", member="version")
        found.append(_read(facts, line, key, run, party))
    return tuple(found)


def forgotten(case: Case) -> dict[str, tuple[Forgotten, ...]]:
    """Return what each party destroyed; raises EvidenceError as `read_notes` does."""
    names = {entry["name"] for entry in case.roster.document()}
    if set(case.view.forgotten) - names:
        fail(FORGOTTEN_STEP, "forgotten/ holds a note of nobody on the roster")
    if empty := sorted(name for name, data in case.view.forgotten.items() if not data):
        fail(
            FORGOTTEN_STEP, f"the note of what {empty[0]} destroyed is empty, and signed by nobody"
        )
    return {
        party: read_notes(
            data, case.roster.party(party).verify, run=case.roster_file.run, party=party
        )
        for party, data in sorted(case.view.forgotten.items())
    }


def destroyed_ledger(case: Case) -> str:
    """Return when the party of a side without a ledger destroyed it; empty if nobody signed that.

    Raises:
        EvidenceError: as `read_notes` does.
    """
    notes = forgotten(case).get(case.view.side, ()) if case.view.side else ()
    return next((note.at for note in notes if "ledger" in note.what), "")


def told(notes: Mapping[str, Sequence[Forgotten]]) -> str:
    """Return who destroyed what and when, as the end of a sentence; empty if nobody did."""
    said = [
        f"{party} destroyed its {' and '.join(note.what)} at {note.at}, as it signed"
        for party, found in notes.items()
        for note in found
    ]
    return "".join(f"; {one}" for one in said)


def _facts(found: Forgotten, run: str, party: str) -> dict[str, Any]:
    what = {"at": found.at, "what": list(found.what)}
    return {**what, "party": party, "run": run, "version": FORGOTTEN.version}


def _read(facts: Any, line: bytes, key: VerifyKey, run: str, party: str) -> Forgotten:
    if not isinstance(facts, dict) or set(facts) != _MEMBERS or canonical(facts) + b"\n" != line:
        _bad(party)
    what, at = facts["what"], facts["at"]
    if not isinstance(what, list) or not isinstance(at, str) or not _DAY.fullmatch(at):
        _bad(party)
    found = Forgotten(tuple(kind for kind in KINDS if kind in what), at)
    if not found.what or list(found.what) != what:
        _bad(party)
    try:
        key.verify(_DOMAIN, bytes.fromhex(facts["signature"]), canonical(_facts(found, run, party)))
    except (CryptoError, TypeError, ValueError):
        _bad(party)
    if (facts["run"], facts["party"]) != (run, party):
        _bad(party)
    return found


def _bad(party: str) -> NoReturn:
    fail(FORGOTTEN_STEP, f"a note of what {party} destroyed is not signed by it for this run")


# --- A ledger without a signed head: its party left and never ended it ---
#
# Others received what it sent, each envelope under a head of its ledger, and wrote these heads down
# in ledgers that they signed. To the last of them its ledger is held, so that it cannot be cut
# below. What stands after it nobody signed: whoever hands the files on can cut it, and write it.


def may_lack_head(case: Case, party: str) -> bool:
    """Tell whether a ledger may be without a signed head.

    A simulation ends all sessions, and so does the aggregator, whose ledger binds all others. Whose
    ledger says that it was closed had signed its head.
    """
    if case.roster_file.simulated or party not in case.ledger_index.entries:
        return False
    if party == case.exchanges.aggregator and not case.view.side:
        return False
    return not any(entry["kind"] == "close" for entry in case.ledger_index.entries[party])


def held_by_others(case: Case, party: str) -> str:
    """Hold a ledger without a head to what others received of it, and say where it left.

    Raises:
        EvidenceError: at step ``tree``: it ends below a head that others hold, or is another one.
    """
    own = [s for s in case.ledger_index.releases() if s.party == party]
    by_commitment, received = {s.commitment: s for s in own}, list[Sent]()
    for other, entry in case.ledger_index.of_kind("receipt"):
        if entry["sender"] != party or other not in case.view.checkpoints:
            continue  # only a ledger whose party signed it holds anything of another's
        sent = by_commitment.get(entry["commitment"])
        if sent is None or sent.prev != entry["sender_head"]:
            fail(
                "tree",
                f"the ledger of {party} has no signed head, and does not reach the head under "
                f"which {other} received an envelope of exchange {entry['exchange']}",
            )
        received.append(sent)
    size, reached = len(case.ledger_index.entries[party]), max((s.seq for s in received), default=0)
    if not received:
        return f"{party} left before others received anything of it, and nobody signed its ledger"
    rest = f"nobody signed the {size - reached} after them"
    where = _where(case, party, own, received)
    return f"{party} {where}: its ledger is held to a head over {reached} entries; {rest}"


def _where(case: Case, party: str, own: list[Sent], received: list[Sent]) -> str:
    if any(sent.part is Service.HEADS for sent in received):
        return "was there at the end, and no signed head of its ledger is here"
    last = max(sent.exchange for sent in received)
    unanswered = [
        sent.round
        for sent in case.ledger_index.releases()
        if sent.exchange >= last
        and party in sent.addressees(case.roster)
        and case.ledger_index.receipt(sent, party) is None
    ]
    unheard = [s.round for s in own if s.exchange >= last and s not in received]
    rounds = [*unanswered, *unheard]
    if not rounds:  # it was asked nothing more, so nobody missed it
        return f"left after round {max(s.round for s in received)}"
    return f"left at round {min(rounds)}"


# --- Clients' own models: each ledger names the locked pieces that its client kept, by their
# digests ---
#
# Only a party's own side has the pieces; they stay there, and a party may destroy them at any time.


def own_models(case: Case) -> str:
    """Return a clause on the models that one side holds; empty where none is named or looked at.

    Raises:
        EvidenceError: at step ``result``: a party that is no client names a model, one names it
            twice, or a piece that lies here is another one than its ledger names.
    """
    named: dict[str, dict[str, str]] = {}
    for party, entry in case.ledger_index.of_kind("model"):
        if case.roster.party(party).role is not Role.CLIENT:
            fail("result", f"{party} names a model of its own and is no client")
        pieces = named.setdefault(party, {})
        if entry["piece"] in pieces:
            fail("result", f"the ledger of {party} names a model twice")
        pieces[entry["piece"]] = entry["digest"]
    side = case.view.side
    if not side or case.view.models is None:
        return ""
    closed = any(party == side for party, _ in case.ledger_index.of_kind("close"))
    return _here(side, named.get(side, {}), case) if closed else ""


def _here(side: str, named: dict[str, str], case: Case) -> str:
    there = dict(case.view.models().get(side, {})) if case.view.models is not None else {}
    for piece, digest in there.items():
        if not hmac.compare_digest(named.get(piece, ""), digest):
            fail("result", f"the model of {side} that lies here is not one that its ledger names")
    if not named:
        return ""
    if not there:
        return f"the model of {side} that its ledger names is not here any more; "
    return f"{plural(len(there), 'model')} of {side} as its ledger names; "


# --- The steps of one party's own side of a run: what its files show without anybody else's ---
#
# A party holds the charter, its own ledger and its own head. They show that its record is whole,
# that what left it was planned and paid for, and what the aggregator told it of what had arrived.
# They cannot show what others recorded: that is NOT CHECKED here, and said by name.

ELSEWHERE = "only their ledgers show it: gather all sides (secure-fgl audit gather)"
_WITHOUT = (Service.PAIRS, Service.TOTALS)
"""Whose messages to clients bring no root."""


def _entries(case: Case, kind: str) -> list[Entry]:
    return [e for e in case.ledger_index.entries[case.view.side] if e["kind"] == kind]


def _role(case: Case) -> Role:
    return case.roster.party(case.view.side).role


def receipts(case: Case) -> str:
    """Each own receipt is of a planned envelope for this party; no envelope left or came twice."""
    sent = [s.commitment for s in case.ledger_index.releases()]
    if len(set(sent)) != len(sent):
        fail("receipts", f"{case.view.side} recorded one envelope twice")
    found, often = set[tuple[str, str]](), Counter[tuple[str, str]]()
    for entry in _entries(case, "receipt"):
        item = case.ledger_index.items.get(entry["item"])
        where = f"receipt {entry['seq']} of {case.view.side}"
        if item is None:
            fail("receipts", f"{where} is of no planned item")
        _on_its_route(case, entry, item, where)
        often[entry["sender"], item.id] += 1
        if often[entry["sender"], item.id] > item.times:
            fail("receipts", f"{where} came more often than the planned {item.times} times")
        if (entry["sender"], entry["commitment"]) in found:
            fail("receipts", f"{where} is there twice")
        found.add((entry["sender"], entry["commitment"]))
    return (
        f"{plural(len(found), 'receipt')} of planned envelopes for {case.view.side}; that their "
        "senders recorded the same, only their ledgers show"
    )


def _on_its_route(case: Case, entry: Entry, item: Item, where: str) -> None:
    me, senders = case.view.side, case.roster.names(Role(item.sender))
    mine = EVERYONE if item.recipient == EVERYONE else me
    to = item.recipient in (EVERYONE, str(_role(case)))
    if not to or entry["recipient"] != mine or entry["sender"] not in senders:
        fail("receipts", f"{where} came on another route than planned")
    if entry["sender"] == me:
        fail("receipts", f"{where} is of an envelope of its own")
    if entry["bytes"] > item.bytes or entry["round"] > case.plan.rounds:
        fail("receipts", f"{where} is larger than planned, or of a round beyond the plan")


def witnesses(case: Case) -> str:
    """The aggregator's receipts are of what this client sent, each under a root over all heads."""
    if _role(case) is not Role.CLIENT:
        raise NotChecked("roots over all heads are written down by clients and the aggregator")
    noted, missing = set[int](), 0
    spoken = Spoken(client_items(case.plan.items))
    told = {item.id for item in case.plan.items if item.sender == str(Role.CLIENT)}
    for entry in case.ledger_index.entries[case.view.side]:
        if entry["kind"] == "release" and entry["item"] in told:
            item, commitment, head = entry["item"], entry["commitment"], entry["prev"]
            spoken.add(entry["exchange"], item, commitment, head)
        if entry["kind"] == "heads":
            missing += _noted(case, spoken, entry, noted)
    if silent := [number for number in _with_a_root(case) if number not in noted]:
        fail("witnesses", f"{case.view.side} wrote down no heads in exchange {silent[0]}")
    said = f"{plural(len(noted), 'root')} over all clients' heads, each with a receipt of what left"
    said += f"; {plural(missing, 'receipt')} say that something was lost" if missing else ""
    return f"{said}; that all clients hold the same roots, only their ledgers show"


def _noted(case: Case, spoken: Spoken, entry: Entry, noted: set[int]) -> int:
    """Compare a receipt of the aggregator with what was sent before it; return what it lacks."""
    where = f"entry {entry['seq']} of {case.view.side}"
    if entry["exchange"] in noted:
        fail("witnesses", f"{case.view.side} wrote down two roots in one exchange")
    if not {"received", "items", "missing"} <= set(entry):
        fail("witnesses", f"{where} does not say which receipt it checked")
    noted.add(entry["exchange"])
    try:
        _, lacking = spoken.line(entry["received"], entry["items"])
    except BadEnvelope:
        fail("witnesses", f"{where} is a receipt for what this client never sent")
    if int(lacking) != entry["missing"]:
        fail("witnesses", f"{where} hides, or makes up, that something was lost")
    return int(lacking)


def _with_a_root(case: Case) -> Iterator[int]:
    """Yield the exchanges in which a root came, but where the session ended over it."""
    refused = min((e["exchange"] for e in _entries(case, "refusal")), default=None)
    ended = any(e["state"] != "DEAD" for e in _entries(case, "close"))
    came = []
    for entry in _entries(case, "receipt"):
        item = case.ledger_index.items.get(entry["item"])
        if item is not None and item.step is Step.DOWN and item.part not in _WITHOUT:
            came.append(entry["exchange"])
    last = max(came, default=0)
    for number in came:
        over = refused is not None and number >= refused
        if not over and (ended or number != last):
            yield number


def opened(case: Case) -> str:
    """What this party opened was opened once, over enough clients."""
    found = _entries(case, "open")
    if not found:
        raise NotChecked(f"{case.view.side} opened nothing; what others opened, {ELSEWHERE}")
    if _role(case) not in (Role.AGGREGATOR, Role.KEY_AUTHORITY):
        fail("opened", f"{case.view.side} opened something, and its role opens nothing")
    once: set[tuple[object, ...]] = set()
    for entry in found:
        what = entry["exchange"], entry.get("disclosure", ""), entry.get("digest", "")
        if what in once:
            fail("opened", f"exchange {entry['exchange']} was opened twice (O5)")
        once.add(what)
        if "disclosure" in entry:
            continue  # rows and cosines count their own uploads
        if not case.plan.smallest_cohort <= entry["survivors"] <= entry["members"]:
            fail("opened", f"the total of exchange {entry['exchange']} is over too few clients")
    return f"{plural(len(found), 'opening')}, each once; what had arrived for them, {ELSEWHERE}"


def result(case: Case) -> str:
    """Only the aggregator states a result."""
    there = (case.view.result_text, case.view.metrics_text, case.view.weights)
    if any(there):
        fail("result", "there is a result here, and only the aggregator's side holds one")
    if any("result" in entry for entry in _entries(case, "close")):
        fail("result", f"{case.view.side} states a result and is no aggregator")
    own = own_models(case)
    raise NotChecked(f"{own}the result stands in the aggregator's ledger; {ELSEWHERE}")


def others(case: Case) -> str:
    """Name what one side cannot show."""
    count = len(case.roster.document()) - 1
    raise NotChecked(
        f"that the other {count} parties recorded the same envelopes, heads and openings, and that "
        f"nothing is missing here which they hold: {ELSEWHERE}"
    )


_NEEDS = ("files", "plan", "roster", "chain")
RECEIPTS = Check("receipts", _NEEDS, receipts)
OPENED = Check("opened", _NEEDS, opened)
WITNESSES = Check("witnesses", (*_NEEDS, "receipts"), witnesses)
RESULT = Check("result", ("files", "roster", "chain"), result)
OTHERS = Check("others", ("files", "roster"), others)


# --- ``approvals.json``: who approved this run's plan before it began, where the policy asks for
# it ---
#
# ::
#
#     {"approvals": [{"made": TIME, "name": ..., "plan": HEX, "signature": HEX, "until": DAY}, ...]}
#
# A policy names its approvers with their public keys, and the plan holds the policy's digest. So an
# approval is one signature over the plan's digest, and whoever changes plan, policy or a key
# changes what was signed. A run between organisations has its charter for that. `made` is the
# approver's own word: that the signature is older than the run rests on its clock.

PLAN_APPROVALS_STEP = "approvals"
LIMIT = 1 << 20  # bytes; an approval takes about 300
_DOMAIN_PLAN_APPROVALS = "plan approval"
_MEMBERS_PLAN_APPROVALS = ("made", "name", "plan", "signature", "until")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_DAY_PLAN_APPROVALS = re.compile(r"\d{4}-\d\d-\d\d|")


@dataclass(frozen=True)
class PlanApproval:
    """One approver's signed yes to one plan.

    Attributes:
        name: as the policy calls the approver.
        plan: digest (hex) of the plan.
        made: when, by the approver's clock (UTC, to the second).
        until: the last day (UTC) on which a run may begin with it; empty: any.
        signature: Ed25519 over all of these.
    """

    name: str
    plan: str
    made: str
    until: str
    signature: bytes

    @classmethod
    def of(cls, key: SigningKey, name: str, plan: str, made: str, until: str = "") -> PlanApproval:
        """Approve a plan, by its digest."""
        return cls(
            name,
            plan,
            made,
            until,
            key.sign(_DOMAIN_PLAN_APPROVALS, _said(name, plan, made, until)),
        )

    def check(self, key: VerifyKey) -> None:
        """Raise CryptoError unless this key signed just this."""
        said = _said(self.name, self.plan, self.made, self.until)
        key.verify(_DOMAIN_PLAN_APPROVALS, self.signature, said)


def _said(name: str, plan: str, made: str, until: str) -> bytes:
    return canonical([name, plan, made, until])


def approvals_text(approvals: Sequence[PlanApproval]) -> bytes:
    """Return the file, in canonical JSON, sorted by name."""
    listed = [
        {**vars(one), "signature": one.signature.hex()}
        for one in sorted(approvals, key=lambda one: one.name)
    ]
    return canonical({"approvals": listed})


def read_approvals(data: bytes) -> tuple[PlanApproval, ...]:
    """Read the file strictly; whose signatures they are is not looked at.

    Raises:
        EvidenceError: at step ``approvals``: it is no list of approvals, or names one twice.
    """
    try:
        found = parse(data, limit=LIMIT)
        if not isinstance(found, dict) or set(found) != {"approvals"}:
            raise ValueError
        if not isinstance(found["approvals"], list):
            raise ValueError
        approvals = tuple(_approval(one) for one in found["approvals"])
        if len({one.name for one in approvals}) != len(approvals):
            raise ValueError
    except (CryptoError, TypeError, ValueError):
        fail(PLAN_APPROVALS_STEP, "approvals.json is no list of approvals")
    return approvals


def _approval(found: object) -> PlanApproval:
    if not isinstance(found, dict) or set(found) != set(_MEMBERS_PLAN_APPROVALS):
        raise ValueError
    texts = {name: found[name] for name in _MEMBERS_PLAN_APPROVALS}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError
    if not _TIME.fullmatch(texts["made"]) or not _DAY_PLAN_APPROVALS.fullmatch(texts["until"]):
        raise ValueError
    return PlanApproval(**{**texts, "signature": bytes.fromhex(texts["signature"])})


def hold(
    approvals: Sequence[PlanApproval], approvers: Mapping[str, str], plan: str, began: str
) -> None:
    """Hold approvals against the policy that asks for them and the plan that runs.

    Args:
        approvals: as they were read.
        approvers: by name, the public key (hex) that the policy names.
        plan: digest (hex) of the run's plan.
        began: when the run began (UTC, to the second).

    Raises:
        EvidenceError: at step ``approvals``: one is missing, of another plan or key, of somebody
            whom the policy does not name, was made later than `began`, or had expired.
    """
    named = {one.name: one for one in approvals}
    if missing := sorted(set(approvers) - set(named)):
        fail(
            PLAN_APPROVALS_STEP,
            f"{missing[0]} did not approve this plan, and the policy asks for it",
        )
    if set(named) - set(approvers):
        fail(PLAN_APPROVALS_STEP, "somebody approved this plan whom the policy does not name")
    for name, one in sorted(named.items()):
        try:
            one.check(VerifyKey(bytes.fromhex(approvers[name])))
        except (CryptoError, ValueError):
            fail(
                PLAN_APPROVALS_STEP,
                f"the approval of {name} is not signed with the key that the policy names",
            )
        if one.plan != plan:
            fail(PLAN_APPROVALS_STEP, f"{name} approved another plan than this run's")
        if one.made > began:
            fail(PLAN_APPROVALS_STEP, f"{name} approved this plan after the run had begun")
        if one.until and one.until < began[:10]:
            fail(PLAN_APPROVALS_STEP, f"the approval of {name} had expired when the run began")


# --- Approvals: did all parties sign this run's charter, or all whom its policy names its plan?
# ---


def approvals(case: Case) -> str:
    """Every party signed one charter; it holds this run's plan, policy, roster and settings."""
    if case.roster_file.simulated and case.view.charter_text:
        fail("approvals", "there is a charter.json, and a simulation has no charter")
    if case.roster_file.simulated and (case.policy.approvals or case.view.approvals_text):
        return _of_plan(case)
    if not case.view.charter_text:
        if case.roster_file.simulated:
            raise NotChecked("a simulation has no charter: no organisation agreed to anything")
        fail("approvals", "there is no charter.json: nobody is shown to have agreed to this plan")
    if case.view.approvals_text:
        fail("approvals", "there is an approvals.json, and a charter is for parties to sign")
    if case.policy.approvals:
        fail("approvals", "the policy names approvers, and a charter is for parties to sign")
    charter = case.charter
    _of_this_run(case, charter)
    _configured(case, charter)
    if charter.refused:
        fail("approvals", f"{len(charter.refused)} parties refused this charter")
    _signed(case, charter)
    return (
        f"all {len(charter.signatures)} parties signed the charter, which holds this plan, policy, "
        "roster and configuration"
    )


def _of_plan(case: Case) -> str:
    """All whom the policy names approved this plan before the first entry of any ledger."""
    if not case.policy.approvals:
        fail("approvals", "there is an approvals.json, and the policy names no approvers")
    approvals = read_approvals(case.view.approvals_text) if case.view.approvals_text else ()
    times = sorted(
        str(entry["time"]) for kept in case.ledger_index.entries.values() for entry in kept
    )
    if not times:
        fail("approvals", "no ledger says when the run began")
    hold(approvals, case.policy.approvals, case.plan_digest, times[0])
    over = [one.name for one in approvals if one.until and one.until < times[-1][:10]]
    late = f"; expired before the run ended: {', '.join(sorted(over))}" if over else ""
    named = ", ".join(f"{one.name} on {one.made[:10]}" for one in approvals)
    return f"approved by {named}, as the policy asks{late}"


def _of_this_run(case: Case, charter: CharterFile) -> None:
    file, policy = case.roster_file, json.dumps(case.policy.document(), sort_keys=True)
    held = {
        "run": _same(charter.run, file.run) and _same(charter.nonce, file.nonce.hex()),
        "roster": list(charter.parties) == file.roster.document(),
        "plan": _same(charter.plan, case.view.plan_text.decode()),
        "policy": _same(charter.policy, policy),
    }
    if wrong := [what for what, same in held.items() if not same]:
        fail("approvals", f"the charter is of another {wrong[0]} than this run's")
    names = {party["name"] for party in file.roster.document()}
    if set(charter.carriers) != names or set(charter.organisations) - names:
        fail("approvals", "the charter does not give every party of the roster its site")


def _configured(case: Case, charter: CharterFile) -> None:
    digest = hashlib.sha256(charter.config.encode()).hexdigest() if charter.config else NONE
    for party, first in case.ledger_index.first.items():
        if not _same(str(first.get("config")), digest):
            fail("approvals", f"{party} began with another configuration than the charter's")


def _signed(case: Case, charter: CharterFile) -> None:
    names = {party["name"] for party in case.roster.document()}
    if missing := sorted(names - set(charter.signatures)):
        fail("approvals", f"{missing[0]} did not sign the charter")
    if set(charter.signatures) != names:
        fail("approvals", "somebody signed the charter who is not on the roster")
    for name in sorted(names):
        try:
            key = case.roster.party(name).verify
            key.verify(APPROVAL, charter.signatures[name], charter.signed)
        except CryptoError:
            fail("approvals", f"{name} signed another charter than this one")


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


APPROVALS = Check("approvals", ("files", "plan", "roster"), approvals)
