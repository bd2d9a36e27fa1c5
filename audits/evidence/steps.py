"""Verification steps: what a step is, and the loop that runs them in order.

A step is a function that returns a sentence, or raises EvidenceError. A step that stands on one
which failed is not run: what it would say would mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from audits.evidence.charter_file import CharterFile, read_charter
from audits.evidence.drift import Yardstick
from audits.evidence.exchanges import Exchanges
from audits.evidence.ledger_index import LedgerIndex
from audits.evidence.roster_file import RosterFile, read_roster
from audits.evidence.run_files import (
    RunView,
    read_metrics,
    read_plan,
    read_policy,
    read_result,
)
from crypto.errors import CryptoError
from protocols.errors import EvidenceError, SecureFglError
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roster import Roster

SELF_CONSISTENT = "self-consistent only"
WITNESSED = "verified against heads held by others"
OWN_SIDE = "own side holds"
UNSIGNED_SIDE = "own side holds, unsigned"
DESTROYED_SIDE = "own side destroyed, as signed"


class Status(StrEnum):
    """What came of a step."""

    OK = "OK"
    FAIL = "FAIL"
    NOT_CHECKED = "NOT CHECKED"


@dataclass(frozen=True)
class Step:
    """The outcome of one step: its name, its status and one sentence."""

    name: str
    status: Status
    detail: str


class NotChecked(Exception):
    """A step has nothing to look at; its text says what is missing."""


class Case:
    """One run under examination: each file is read once, when a step first needs it.

    Reading raises EvidenceError at step ``files``.
    """

    def __init__(self, view: RunView) -> None:
        self.view = view

    def folder_only(self) -> Case:
        """Return the case without what a verifier brought along; what was read stays read."""
        made = Case(self.view.folder_only)
        made.__dict__.update({name: self.__dict__[name] for name in _READ & set(self.__dict__)})
        return made

    def with_files(self, view: RunView) -> Case:
        """Return the case of a later look at the run; what is of the same bytes stays read."""
        made = Case(view)
        for name, files in _MADE_OF.items():
            same = all(getattr(view, file) == getattr(self.view, file) for file in files)
            if same and name in self.__dict__:
                made.__dict__[name] = self.__dict__[name]
        return made

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        return read_plan(self.view.plan_text)

    @cached_property
    def plan_digest(self) -> str:
        """The plan's digest (hex)."""
        return self.plan.digest

    @cached_property
    def policy(self) -> PrivacyPolicy:
        """The policy."""
        return read_policy(self.view.policy_text)

    @cached_property
    def roster_file(self) -> RosterFile:
        """The roster with run name and transport."""
        return read_roster(self.view.roster_text)

    @property
    def roster(self) -> Roster:
        """The roster."""
        return self.roster_file.roster

    @cached_property
    def charter(self) -> CharterFile:
        """The charter; raises EvidenceError at step ``approvals``."""
        return read_charter(self.view.charter_text)

    @property
    def yardstick(self) -> Yardstick:
        """What releases are measured against; raises EvidenceError for a side of nobody's."""
        if self.view.side not in ("", *(party["name"] for party in self.roster.document())):
            raise EvidenceError("roster", "the ledger here belongs to nobody on the roster")
        return Yardstick(self.plan, self.policy, self.roster, side=self.view.side)

    @cached_property
    def ledger_index(self) -> LedgerIndex:
        """All ledgers."""
        return LedgerIndex.read(self.view.ledgers, self.plan)

    @cached_property
    def exchanges(self) -> Exchanges:
        """All Asks, as the ledgers tell them."""
        return Exchanges(
            self.ledger_index, self.plan, self.policy, self.roster, self.roster_file.run
        )

    @cached_property
    def result(self) -> dict[str, Any]:
        """What ``result.json`` says; empty if there is none."""
        return read_result(self.view.result_text)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        return read_metrics(self.view.metrics_text)


_MADE_OF = {
    "plan": ("plan_text",),
    "plan_digest": ("plan_text",),
    "policy": ("policy_text",),
    "roster_file": ("roster_text",),
    "charter": ("charter_text",),
    "metrics": ("metrics_text",),
    "ledger_index": ("plan_text", "ledgers"),
    "exchanges": ("plan_text", "policy_text", "roster_text", "ledgers"),
}
"""Of which files of a view that which is costly to read is made."""

_READ = {n for n, found in vars(Case).items() if isinstance(found, cached_property)}


@dataclass(frozen=True)
class Check:
    """A step before it runs: its name, the steps it stands on, and what it does."""

    name: str
    needs: tuple[str, ...]
    run: Callable[[Case], str]


@dataclass(frozen=True)
class Verification:
    """The outcome of all steps.

    Attributes:
        steps: in the order in which they ran.
        side: the party whose own side alone was looked at; empty: all parties'.
        so_far: how far the record of a run reaches that is still going; empty of all others.
    """

    steps: tuple[Step, ...]
    side: str = ""
    so_far: str = ""

    @property
    def failed(self) -> Step | None:
        """The first step that failed."""
        return next((step for step in self.steps if step.status is Status.FAIL), None)

    @property
    def ok(self) -> bool:
        """Tell whether nothing failed; read `verdict` for what that is worth."""
        return self.failed is None

    @property
    def verdict(self) -> str:
        """One of seven sentences; a run is witnessed only if every party's head was compared.

        Of a side without a signed head nothing is signed: whoever holds the charter could have
        written it.
        """
        if self.failed is not None:
            return f"FAILED at {self.failed.name}"
        if self.side:
            if any(s.name == "files" and s.status is Status.NOT_CHECKED for s in self.steps):
                return DESTROYED_SIDE  # nothing of it can be looked at any more
            signed = any(s.name == "tree" and s.status is Status.OK for s in self.steps)
            return OWN_SIDE if signed else UNSIGNED_SIDE
        if self.so_far:
            return self.so_far
        heads = [step for step in self.steps if step.name == "heads"]
        return WITNESSED if heads and heads[0].status is Status.OK else SELF_CONSISTENT


def run_checks(case: Case, checks: Sequence[Check]) -> Verification:
    """Run checks in order; whatever a check raises is a failure of that check, never a crash."""
    steps: dict[str, Step] = {}
    for check in checks:
        missing = [n for n in check.needs if n in steps and steps[n].status is not Status.OK]
        if missing:
            detail = f"stands on the step '{missing[0]}', which did not pass"
            steps[check.name] = Step(check.name, Status.NOT_CHECKED, detail)
            continue
        steps[check.name] = _run(check, case)
    return Verification(tuple(steps.values()), case.view.side)


def _run(check: Check, case: Case) -> Step:
    try:
        return Step(check.name, Status.OK, check.run(case))
    except NotChecked as reason:
        return Step(check.name, Status.NOT_CHECKED, str(reason))
    except SecureFglError as error:
        return Step(check.name, Status.FAIL, error.what)
    except CryptoError as error:
        return Step(check.name, Status.FAIL, str(error))
    except Exception as error:  # fails closed: hostile files must neither crash nor pass
        return Step(check.name, Status.FAIL, f"met something malformed ({type(error).__name__})")
