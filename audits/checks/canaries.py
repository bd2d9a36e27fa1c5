"""Canaries: did every client commit to its coins before the run, and open just these after it?"""

from __future__ import annotations

from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check, NotChecked
from audits.report.words import plural
from protocols.errors import SecureFglError
from protocols.evidence.captures import canary_words, opened
from protocols.wire.roles import Role

_STEP = "canaries"
_SHOWN = 8


def has_canaries(case: Case) -> bool:
    """Tell whether a run's policy asks for canaries, or any ledger states some.

    What cannot be read fails at another step.
    """
    try:
        asked = case.policy.canaries is not None
        return asked or any(_STEP in first for first in case.ledger_index.first.values())
    except SecureFglError:
        return False


def secrets_of(case: Case) -> dict[str, bytes]:
    """Return client -> the secret of its canaries, of those whose ledger was closed.

    Raises:
        EvidenceError: at step ``canaries``, as :func:`canaries` does.
    """
    run, found = case.roster_file.run, dict[str, bytes]()
    clients = set(case.roster.names(Role.CLIENT))
    asked = case.policy.canaries is not None
    for party, entries in case.ledger_index.entries.items():
        committed = str(entries[0].get(_STEP, "")) if entries else ""
        if bool(committed) != (asked and party in clients):
            what = "no coins of its canaries" if asked and party in clients else "canaries of none"
            fail(_STEP, f"{party} commits to {what}")
        for entry in entries:
            if entry["kind"] != "close" or not (committed or _STEP in entry):
                continue
            if _STEP not in entry:
                fail(_STEP, f"{party} closed its ledger and did not open its canaries' coins")
            if not committed:
                fail(_STEP, f"{party} opens coins that it did not commit to")
            found[party] = opened(str(entry[_STEP]), committed, run, party)
    owners: dict[bytes, str] = {}
    for party, secret in sorted(found.items()):
        if (other := owners.setdefault(secret, party)) != party:
            fail(_STEP, f"{other} and {party} have one secret, so each knows the other's coins")
    return found


def canaries(case: Case) -> str:
    """Every client committed to its coins in its first entry and opened these in its last."""
    told = canary_words(case.policy.canaries, case.plan.data.task)
    if not {*told} <= {*case.plan.warnings}:
        fail(_STEP, "the plan does not list the canaries that the policy asks for")
    found, side = secrets_of(case), case.view.side
    asked = [name for name in case.roster.names(Role.CLIENT) if side in ("", name)]
    if not asked:
        raise NotChecked("canaries are the clients', and only their ledgers show them")
    if not found:
        raise NotChecked("no client has opened its coins: no ledger was closed")
    silent = [name for name in asked if name not in found]
    open_ = f"; not closed, and so not opened: {', '.join(silent[:_SHOWN])}" if silent else ""
    return (
        f"{len(found)} of {plural(len(asked), 'client')} opened the coins that the first entry of "
        f"its ledger commits to{open_}; a secret that somebody knew otherwise leaves no trace"
    )


CANARIES = Check(_STEP, ("files", "plan", "roster", "chain"), canaries)
