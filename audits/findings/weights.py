"""Findings on the weights of combinations, as the ledgers tell them."""

from __future__ import annotations

from audits.evidence.ledger_index import LedgerIndex
from audits.findings.rules import made
from audits.report import words
from audits.report.models import Finding


def ranks(ledger_index: LedgerIndex) -> tuple[Finding, ...]:
    """Return the finding that some receiver's rows together tell single others (O10), if they do.

    Aggregator and witnesses count; where they do not agree, the larger number stands.
    """
    entries = [entry for kind in ("weights", "witness") for _, entry in ledger_index.of_kind(kind)]
    told = [(entry["round"], entry["solved"]) for entry in entries if entry.get("solved")]
    if not told:
        return ()
    message = (
        f"From round {min(told)[0]} on, some client's combinations together single out others: by "
        f"round {max(told)[0]} up to {max(solved for _, solved in told)} of them. Would models "
        "stand still, this client, told the weights by the aggregator or a witness, could solve "
        "for each of these; the more they change between rounds, the less it learns."
    )
    remedy = (
        "Train for fewer rounds (algorithm.rounds), with more clients, or stop when models no "
        "longer change."
    )
    return (made("ROWS_RANK", "medium", message, remedy, role="client"),)


def flattened(ledger_index: LedgerIndex) -> tuple[Finding, ...]:
    """Return the finding that weights were brought to the nearest admissible ones (O10), if any."""
    told = [entry for _, entry in ledger_index.of_kind("weights")]
    rows, changed = sum(e["receivers"] for e in told), sum(len(e["flattened"]) for e in told)
    if not changed:
        return ()
    rounds = len({entry["round"] for entry in told if entry["flattened"]})
    message = (
        f"{changed} of {words.plural(rows, 'row')} of weights, in {words.plural(rounds, 'round')}, "
        "rested on fewer others in effect than the policy allows, or for more than half of the "
        "others' share on one of them, and were brought to the nearest weights that do neither. "
        "This is as the aggregator states: nobody else saw what it wanted."
    )
    remedy = (
        "Nothing needs to be done. If models suffer, small groups of alike clients are cut off "
        "from weighing each other alone: more clients help, a smaller minimum_cohort exposes them."
    )
    return (made("WEIGHTS_FLATTENED", "info", message, remedy, role="client"),)
