"""Sections 5 and 6: what ``attacks.json`` says, if it is about this run, and what follows from it.

The file is data from outside: no ledger covers it. It is read strictly, and none of it is used if
it belongs to another run, to another state of the ledgers, or says anything that its own figures do
not give (`audits.attacks._shared.reading`). Of another version's attacks no PASS counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from audits.attacks import attacks, code_digest, heads_digest, seed_of
from audits.attacks._shared.models import AttackReport, AttackRow, Claim, NotTested
from audits.attacks._shared.payloads import NOT_ATTACKED, PAYLOADS, not_tested
from audits.attacks._shared.reading import report_doubt
from audits.evidence.steps import Case
from audits.findings.rules import made
from audits.report import words
from audits.report.attack_words import named, readable, sentence, untested, warning
from audits.report.models import Egress, Finding, Line, Severity, State
from audits.report.sections import Tried
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.plan.plan import Plan
from protocols.plan.steps import Step

QUESTION = "Can a person be singled out?"
NO_FILE = "No attack was run on what left."
RUN = "These attacks were run on this run, with its ledgers as they are."
FOREIGN = (
    "These attacks were run on this run, with its ledgers as they are, by another version of the "
    "program: no PASS of theirs is counted."
)
SEVERITY: dict[str, Severity] = {
    "A04": "medium",
    "A07": "medium",
    "A08": "medium",
    "A10": "critical",
    "A11": "critical",
    "A16": "medium",
}
"""Of an attack that succeeds: labels, links and properties are medium, a falsified claim is
critical; what is not listed (members, interactions, single clients) is high. A row on labels alone,
and one that only warns, is medium: see :func:`severity`."""
_LABELS = "P11"
_UNDECIDED = ("ERROR", "INVALID", "INCONCLUSIVE", "NOT_TESTED")
_SAID = ("FAIL", "ABOVE_PRIOR", *_UNDECIDED, "PASS")  # in the strip, the gravest first
_SILENT = ("NOT_APPLICABLE", "NOT_TESTED", "ERROR")  # verdicts of rows that looked at nothing
_FOREIGN = "Another version of these attacks says PASS, which is not counted: "
_LONGEST = 600  # of a reason


@dataclass(frozen=True)
class Outcome:
    """Sections 5 and 6, and the findings from them.

    Attributes:
        rows: one per attack, payload and variant.
        not_tested: payloads that did leave.
        claims: claimed epsilons beside what an attack could show.
    """

    tried: Tried
    rows: tuple[AttackRow, ...] = ()
    not_tested: tuple[NotTested, ...] = ()
    claims: tuple[Claim, ...] = ()
    refused: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader should know, in no order of gravity."""
        lost = (*succeeded(self.rows), *_above(self))
        return (*self.refused, *lost, *_falsified(self), *_undecided(self), *_untested(self))


def outcome(case: Case, egress: Sequence[Egress]) -> Outcome:
    """Return what the attacks on a run found. Never raises for a spoilt ``attacks.json``.

    Args:
        case: the run.
        egress: what did leave; what was planned and never left need not be tested.
    """
    sent = {payload for row in egress for payload in row.payloads}
    if not case.view.attacks_text:
        return _none(sent, NO_FILE)
    try:
        found = read_attacks(case)
    except EvidenceError as error:
        why = f"attacks.json was not used: {error.what}."
        refused = made(
            "ATTACKS_REFUSED",
            "high",
            f"{why} Nothing in it counts as tested.",
            "Run secure-fgl audit attack on this run again, and find out where the file came from.",
        )
        return _none(sent, why, refused)
    foreign = found.code_digest != code_digest()
    about = Tried(
        state=FOREIGN if foreign else RUN,
        used=True,
        profile=found.profile,
        code_digest=found.code_digest,
    )
    overlooked = tuple(_overlooked(case, found, sent))
    if not foreign:
        return Outcome(about, found.rows, overlooked, found.claims)
    rows, claims = map(_uncounted, found.rows), map(_unproved, found.claims)
    return Outcome(about, tuple(rows), overlooked, tuple(claims), (_other_version(found),))


def _other_version(found: AttackReport) -> Finding:
    return made(
        "ATTACKS_OTHER_VERSION",
        "medium",
        f"The attacks were run by another version of the program (code {found.code_digest[:12]}, "
        f"here {code_digest()[:12]}). Their rows are shown, and no PASS among them counts.",
        "Run secure-fgl audit attack on this run again, with this version.",
    )


def _uncounted(row: AttackRow) -> AttackRow:
    if row.verdict != "PASS":
        return row
    reason = f"{_FOREIGN}{row.reason}"[:_LONGEST]
    gone = {"verdict": "INCONCLUSIVE", "reason": reason, "detectable": ""}
    return row.model_copy(update=gone)


def _unproved(claim: Claim) -> Claim:
    stands = claim.status == "not_falsified"
    return claim.model_copy(update={"status": "untested"}) if stands else claim


def _none(sent: Set[str], state: str, *refused: Finding) -> Outcome:
    why = "no attack was run on it"
    rows = tuple(NotTested(payload=payload, why=why) for payload in sorted(sent - NOT_ATTACKED))
    return Outcome(Tried(state=state, used=False), not_tested=rows, refused=refused)


def read_attacks(case: Case) -> AttackReport:
    """Return what ``attacks.json`` says; raises EvidenceError if it is not of this run as it is."""
    found = AttackReport.parse(case.view.attacks_text)
    heads = heads_digest(case.ledger_index)
    for wrong, what in (
        (found.run != case.roster_file.run, "it is about another run"),
        (found.plan_digest != case.plan_digest, "it is about another plan"),
        (found.heads_digest != heads, "the ledgers have changed since"),
        (not _plain(found.model_dump()), "it holds text or numbers that nobody can read"),
    ):
        if wrong:
            raise EvidenceError("files", what)
    doubt = report_doubt(found, attacks(), lambda id: seed_of(heads, id))
    if doubt:
        raise EvidenceError("files", doubt)
    return found


def _plain(value: object) -> bool:
    """Tell whether all texts are one printable line and all numbers of a usual size."""
    if isinstance(value, dict):
        return all(map(_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    if isinstance(value, str):
        return value.replace("\u202f", " ").isprintable()  # between groups of digits
    return not isinstance(value, int) or value < 1 << 63


def _overlooked(case: Case, found: AttackReport, sent: Set[str]) -> Iterator[NotTested]:
    """Yield what was sent and no row looked at, whatever the file itself counts as tested."""
    looked = {
        row.payload for row in found.rows if row.verdict not in _SILENT and row.prior is not None
    }
    said = {one.payload: one.why for one in found.not_tested}
    for one in not_tested(case.plan, case.policy, looked, said):
        if one.payload in sent:
            yield one


def succeeded(rows: Iterable[AttackRow], where: str = "") -> Iterator[Finding]:
    """Yield a finding for each row whose attack succeeds; `where` stands before its question."""
    for row in rows:
        if row.verdict == "FAIL":
            yield made(
                f"ATTACK_{row.id}",
                severity(row),
                f"{_named(row)} succeeds on {named(row.payload)}, {where}{row.what}: "
                f"{figures(row)}.",
                "Protect this payload better (larger cohorts, noise, fewer rounds), or do not let "
                f"it leave; secure-fgl audit explain {row.id} tells what the figure means.",
                item=f"{where}{row.what}",
                payload=row.payload,
            )


def _falsified(found: Outcome) -> Iterator[Finding]:
    for claim in found.claims:
        if claim.status == "falsified":
            yield made(
                "CLAIM_FALSIFIED",
                "critical",
                f"'{claim.text}' is falsified: epsilon is at least {claim.epsilon_lb} with "
                f"confidence {claim.confidence}, where {claim.epsilon_claim} is claimed.",
                "Do not quote the claim. Find out why the mechanism leaks more than was counted.",
                item=claim.text,
            )


def _above(found: Outcome) -> Iterator[Finding]:
    for row in found.rows:
        if row.verdict == "ABOVE_PRIOR":
            yield made(
                f"ABOVE_PRIOR_{row.id}",
                "medium" if row.evidence == "there" else "low",
                f"{_named(row)} on {named(row.payload)}, {row.what}: {row.reason.rstrip('.')}.",
                "Protect this payload better, or test it with more records or clients until it is "
                f"known on which side of the margin it lies; secure-fgl audit explain {row.id}.",
                item=row.what,
                payload=row.payload,
            )


def _undecided(found: Outcome) -> Iterator[Finding]:
    for row in found.rows:
        if row.verdict in _UNDECIDED:
            about = f"{row.payload or 'this run'}{f', {row.what}' if row.what else ''}"
            yield made(
                f"{row.verdict}_{row.id}",
                "low",  # an attack that could not tell is no better than none (_untested)
                f"{_named(row)} on {about}, {_open(row)}: {row.reason.rstrip('.')}.",
                "Read it as not tested. The reason says what would be needed.",
                item=row.what,
                payload=row.payload,
            )


def _untested(found: Outcome) -> Iterator[Finding]:
    for one in found.not_tested:
        yield made(
            "NOT_TESTED",
            "low",
            f"{one.payload} ({PAYLOADS[one.payload]}) left and was not tested: {one.why}.",
            f"Read secure-fgl audit explain {one.payload} on what it can leak; secure-fgl audit "
            "attack runs the attacks there are.",
            payload=one.payload,
        )


def _named(row: AttackRow) -> str:
    return f"{row.id} {row.name}"


def figures(row: AttackRow) -> str:
    """Return the figures of a row in words: protected, without the message, raw control."""
    if row.protected is None or row.prior is None or row.raw is None:
        return "no figures"
    seen = row.protected
    return (
        f"{row.metric} {seen.value} ({seen.low} to {seen.high}), {row.prior.value} without the "
        f"message, {row.raw.value} on the raw one"
    )


def severity(row: AttackRow) -> Severity:
    """Return how grave it is that a row's attack succeeds; a warning is no proof of recovery."""
    return "medium" if warning(row) or row.payload == _LABELS else SEVERITY.get(row.id, "high")


def _open(row: AttackRow) -> str:
    return "was not tested" if row.verdict == "NOT_TESTED" else "decides nothing"


def worst(rows: Iterable[AttackRow]) -> list[AttackRow]:
    """Return the worst row of every attack on every payload, the gravest first.

    By verdict; of those that fail, a warning comes last, and of those above the prior what is less
    sure; then by what is gained.
    """
    found: dict[tuple[str, str], AttackRow] = {}
    for row in sorted((row for row in rows if row.verdict in _SAID), key=_gravity):
        found.setdefault((row.id, row.payload), row)
    return list(found.values())


def _gravity(row: AttackRow) -> tuple[int, bool, float]:
    gained = float(row.gap.value) if row.gap is not None else 0.0
    return _SAID.index(row.verdict), warning(row) or row.evidence == "signs", -gained


def singled_out(found: Outcome, plan: Plan, egress: Sequence[Egress], *, noised: bool) -> Line:
    """Return the third line of the verdict strip: the worst attack per payload."""
    rows = worst(found.rows)
    left = untested([one.payload for one in found.not_tested])
    if all(row.verdict == "NOT_TESTED" for row in rows):
        known = "; ".join(_known(plan, egress, noised=noised))
        why = "".join(f" {sentence(row)}." for row in rows)
        answer = f"Not tested. {found.tried.state}{why} Known without a test: {known}."
        return Line(question=QUESTION, answer=answer, state="NOT TESTED")
    broken = any(claim.status == "falsified" for claim in found.claims)
    lost = {row.payload for row in rows if row.verdict == "FAIL"}
    said = [sentence(row) for row in rows if row.verdict != "PASS" or row.payload not in lost]
    if broken:
        said.insert(0, "A claim of privacy is falsified: more is disclosed than was counted")
    if left:
        said.append(f"No attack looked at {left}")
    state: State = "OK"
    if left or readable(egress) or any(row.verdict != "PASS" for row in rows):
        state = "ATTENTION"
    if broken or any(row.verdict == "FAIL" and not warning(row) for row in rows):
        state = "FAIL"
    return Line(question=QUESTION, answer=f"{'. '.join(said)}.", state=state)


def _known(plan: Plan, egress: Sequence[Egress], *, noised: bool) -> Iterator[str]:
    """Say what is disclosed whatever an attack finds."""
    uploads = {item.id for item in plan.all_of(step=Step.UP)}
    carried = (row for row in egress if row.item in uploads or not row.planned)
    kept = {row.disclosure for row in carried if not row.unsafe}
    if any(words.in_clear(row.protection) for row in egress):
        yield "what left in clear can be read in full by whoever received it"
    elif Disclosure.SUM in kept or not kept:
        how = "with their noise" if noised else "as they are"
        yield f"the totals of each cohort are disclosed {how}"
    if any(words.opens(row.protection) for row in egress):
        yield "the matcher reads every item of every client"
    if any(words.reads(row.protection) for row in egress):
        yield "clients read single vectors of others, clipped and noised"
    if Disclosure.ROW_SUM in kept:
        how = "noised" if any(item.counted for item in plan.all_of(Disclosure.ROW_SUM)) else "exact"
        yield f"clients read {how} sums of a few others' records, rows of neighbours"
    if Disclosure.MIXED in kept:
        yield "the aggregator reads mixtures of every client's records"
    if Disclosure.NEIGHBOUR_SUM in kept:
        yield "each client reads sums over its neighbours"
    if Disclosure.WEIGHTED_SUM in kept:
        yield "each client gets weighted combinations of others' messages"
    if Disclosure.SIMILARITY in kept:
        yield "the aggregator and the key authority get the cosine of every two clients"


def tally(found: Outcome) -> str:
    """Return how many attacks apply, and how many of those decided all that was asked of them."""
    apply = {row.id for row in found.rows if row.verdict != "NOT_APPLICABLE"}
    every = len({row.id for row in found.rows})
    decided = len(apply - set(undecided(found)))
    return (
        f"{len(apply)} of {words.plural(every, 'attack')} "
        f"{'applies' if len(apply) == 1 else 'apply'}; {decided} decided all that was asked"
    )


def undecided(found: Outcome) -> list[str]:
    """Return the ids of the attacks that decided nothing in at least one row."""
    return sorted({row.id for row in found.rows if row.verdict in _UNDECIDED})
