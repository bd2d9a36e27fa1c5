"""The steps that only a bundle has: manifest, attestations, accounting, statements, trust.

manifest -> attestations -> the steps of every run -> accounting -> statements -> trust
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from audits.bundle.archive import ATTESTATIONS, Listed, read_manifest, signed, unpack, view_of
from audits.bundle.making import accounting_text
from audits.bundle.statements import (
    AUDITOR,
    PAYLOAD_TYPE,
    PREDICATES,
    Keys,
    Known,
    Statement,
    open_statement,
    predicates,
    read_keys,
    subjects,
)
from audits.checks.so_far import goes_on, verify_so_far
from audits.evidence.run_files import RunView, fail
from audits.evidence.steps import Case, Check, NotChecked, Verification, run_checks
from audits.evidence.verify import CHECKS, checks_of
from audits.report.models import Report
from audits.report.words import plural
from crypto.errors import CryptoError
from protocols.errors import EvidenceError

__all__ = ["trust", "verify_bundle", "verify_run"]


def verify_bundle(
    data: bytes,
    *,
    heads: Mapping[str, str] | None = None,
    expect_plan: str | None = None,
    trusted: Mapping[str, str] | None = None,
) -> Verification:
    """Run every step on a ``bundle.zip``. Never raises for what it holds.

    Args:
        data: the bytes of the file.
        heads: signed heads that other parties hold, by party.
        expect_plan: digest (hex) of the plan that was approved.
        trusted: public signing keys (hex) known from elsewhere, by name; names that are not on the
            roster are auditors.
    """
    found = _Opened({}, (), None)
    try:
        files = unpack(data)
        found = _Opened(files, read_manifest(files), None)
        view = view_of(files, heads=heads, expect_plan=expect_plan)
    except EvidenceError as error:
        found, view = replace(found, broken=error), RunView(b"", b"", b"")
    # Nothing is said about files that are not those of the manifest.
    own = [replace(check, needs=("manifest", *check.needs)) for check in CHECKS]
    first = (_check("manifest", found.manifest), _check("attestations", found.attested, "manifest"))
    last = (
        _check("accounting", found.accounted, "report"),
        _check("statements", found.stated, "attestations", "report"),
        trust(trusted, found, ("manifest", "roster")),
    )
    return run_checks(Case(view), (*first, *own, *last))


def verify_run(view: RunView, *, trusted: Mapping[str, str] | None = None) -> Verification:
    """Run every step on a run folder, and compare its keys with those known from elsewhere.

    Of a run that is still going it runs the steps that make sense by then.
    """
    case = Case(view)
    checks = (*checks_of(case), trust(trusted))
    return verify_so_far(case, checks) if goes_on(case) else run_checks(case, checks)


def _check(name: str, run: Callable[[Case], str], *needs: str) -> Check:
    return Check(name, needs, run)


@dataclass(frozen=True, repr=False)
class _Opened:
    """A bundle in memory.

    Attributes:
        files: by path.
        listed: its manifest.
        broken: why it could not be opened; then the others may be empty.
    """

    files: Mapping[str, bytes]
    listed: Sequence[Listed]
    broken: EvidenceError | None

    def manifest(self, case: Case) -> str:
        """The archive holds exactly the files of its manifest, and not a byte more."""
        if self.broken is not None:
            fail("manifest", self.broken.what)
        return f"{len(self.listed)} files, each as manifest.json lists it, and nothing else"

    @property
    def keys(self) -> Keys:
        """Who may sign."""
        return read_keys(self.files["keys/trust.json"])

    @property
    def about(self) -> tuple[Listed, ...]:
        """The files that statements are about."""
        return signed(tuple(self.listed))

    def statements(self) -> dict[str, Statement]:
        """Return every statement by its path; raises NotCanonical."""
        paths = sorted(path for path in self.files if path.startswith(ATTESTATIONS))
        return {path: open_statement(self.files[path]) for path in paths}

    def auditors(self) -> set[str]:
        """Return the keys (hex) of the auditors who signed every statement over these files.

        Raises:
            EvidenceError, CryptoError: a statement is not what its signer signed.
        """
        keys, by = self.keys, dict[str, set[str]]()
        for one in self.statements().values():
            signers = one.envelope.verify(PAYLOAD_TYPE, keys.by_id())
            if list(one.subjects) == subjects(self.about):
                owners = (keys.owner(key) for key in signers)
                found = {owner.key.raw.hex() for owner in owners if owner.role == AUDITOR}
                by[one.predicate_type] = by.get(one.predicate_type, found) & found
        complete = [by.get(kind, set()) for kind in PREDICATES]
        return set.intersection(*complete) if complete else set()

    def attested(self, case: Case) -> str:
        """Each statement is signed by a key of this run, over exactly these files."""
        keys, subject = self.keys, subjects(self.about)
        try:
            found = self.statements()
        except CryptoError:
            raise EvidenceError("attestations", "a statement is not in its one form") from None
        by: dict[str, set[str]] = {kind: set() for kind in PREDICATES}
        for path, one in found.items():
            try:
                signers = one.envelope.verify(PAYLOAD_TYPE, keys.by_id())
            except CryptoError:
                raise EvidenceError(
                    "attestations",
                    f"the statement {PREDICATES[one.predicate_type]} is not signed by a key that "
                    "is valid for this run",
                ) from None
            if list(one.subjects) != subject:
                fail(
                    "attestations",
                    f"the statement {PREDICATES[one.predicate_type]} was signed over other files "
                    "than these",
                )
            owners = [keys.owner(key) for key in signers]
            _in_place(path, PREDICATES[one.predicate_type], owners)
            by[one.predicate_type] |= {owner.role for owner in owners}
        if not any(AUDITOR in roles for roles in by.values()):
            raise NotChecked("no auditor signed this bundle: whoever passed it on could remake it")
        if missing := sorted(PREDICATES[k] for k, roles in by.items() if AUDITOR not in roles):
            fail("attestations", f"the auditor's statement {missing[0]} was taken out")
        return f"{plural(len(found), 'statement')} over exactly these files, signed by an auditor"

    def accounted(self, case: Case) -> str:
        """accounting.json is what the ledgers give."""
        fresh = accounting_text(case, self.report)
        if not hmac.compare_digest(fresh, self.files["accounting.json"]):
            fail("accounting", "accounting.json is not what these ledgers give")
        return "accounting.json is what these ledgers give"

    @property
    def report(self) -> Report:
        """The report as it lies in the bundle; the step ``report`` made it anew and compared."""
        return Report.model_validate_json(self.files["report/report.json"])

    def stated(self, case: Case) -> str:
        """What was signed is what these files give: a signature makes nothing true."""
        found, report = self.statements(), self.report
        for one in found.values():
            said = one.predicate.get("timeCreated")  # of svr: a day that only its signer knows
            day = said[:10] if isinstance(said, str) else "1970-01-01"
            try:
                fresh = predicates(report, self.about, day)[one.predicate_type]
            except ValueError:
                raise EvidenceError("statements", "a statement names no day") from None
            if dict(one.predicate) != fresh:
                name = PREDICATES[one.predicate_type]
                fail("statements", f"the statement {name} says something else than these files")
        return f"{plural(len(found), 'statement')} say what these files give"


def trust(
    trusted: Mapping[str, str] | None,
    found: _Opened | None = None,
    needs: tuple[str, ...] = ("roster",),
) -> Check:
    """Return the step that compares keys with those known from elsewhere.

    Args:
        trusted: public key (hex) by name; None if the verifier brought none.
        found: the bundle, None for a run folder.
        needs: the steps it stands on.
    """

    def run(case: Case) -> str:
        roster = {p["name"]: p["verify"] for p in case.roster.document()}
        auditors = _listed(case, found.keys) if found is not None else {}
        if not trusted:
            raise NotChecked(
                "no keys known from elsewhere were given (--trust); these files speak for their "
                "own keys"
            )
        agreed = 0
        for name in sorted(set(roster) & set(trusted)):
            agreed += 1
            if not hmac.compare_digest(roster[name].encode(), trusted[name].encode()):
                fail("trust", f"{name} has another key than the one known from elsewhere")
        known = {key for name, key in trusted.items() if name not in roster}
        signed_by = found.auditors() if found is not None else set()
        # What the bundle says of its auditors counts for nothing: only who really signed does.
        if known and found is not None and not known & signed_by:
            fail("trust", "no auditor of --trust signed these statements")
        lacking = len(set(roster) - set(trusted)) + (0 if known else len(auditors))
        if known and found is None:
            raise NotChecked(
                f"keys of {agreed} parties agree; a run folder is signed by no auditor"
            )
        if lacking:
            raise NotChecked(f"keys of {agreed} parties agree; {lacking} others were not given")
        signer = " and of the auditor who signed" if known else "; no auditor signed"
        return f"the keys of all {agreed} parties{signer} are those known from elsewhere"

    return Check("trust", needs, run)


def _in_place(path: str, name: str, owners: Sequence[Known]) -> None:
    """A statement lies under the name of its kind, a party's own with the party's name behind it.

    No signature covers where a statement lies, so else it could be doubled or exchanged unseen.
    """
    names = (name, *(f"{name}.{owner.name}" for owner in owners if owner.role != AUDITOR))
    if path not in [f"{ATTESTATIONS}{one}.dsse.json" for one in names]:
        fail("attestations", f"a statement {name} lies under another name than that of its kind")


def _listed(case: Case, keys: Keys) -> dict[str, str]:
    """Return the auditors' keys; the parties' must be those of the roster."""
    wanted = {p["name"]: (p["role"], p["verify"]) for p in case.roster.document()}
    if keys.parties != wanted or keys.run != case.roster_file.run:
        fail("trust", "keys/trust.json lists other keys, or another run, than roster.json")
    return {known.name: known.key.raw.hex() for known in keys.known if known.role == AUDITOR}
