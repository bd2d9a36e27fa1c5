"""The steps that look at a run's own files, in their order. The report's integrity section."""

from __future__ import annotations

from audits.checks import documents, keys, ledgers, opened, outcome, traffic, witnesses
from audits.evidence.steps import Check

EVIDENCE: tuple[Check, ...] = (
    *documents.CHECKS,
    *ledgers.CHECKS,
    *traffic.CHECKS,
    opened.OPENED,
    *keys.CHECKS,
    *outcome.CHECKS,
    witnesses.WITNESSES,
)
HEADS = ledgers.HEADS
