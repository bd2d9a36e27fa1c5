"""The steps that look at a run's own files, in their order. The report's integrity section."""

from __future__ import annotations

from audits.checks import ledgers, outcome, papers, traffic
from audits.steps import Check

EVIDENCE: tuple[Check, ...] = (
    *papers.CHECKS,
    *ledgers.CHECKS,
    *traffic.CHECKS,
    *outcome.CHECKS,
)
HEADS = ledgers.HEADS
