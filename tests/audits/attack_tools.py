"""Attack reports as files, for the tests of the leakage report: no attack is run here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from audits.attacks import heads_digest
from audits.attacks.models import AttackReport, AttackRow, Claim, Value
from audits.steps import Case
from audits.view import RunView

_FACTS: dict[str, Any] = {
    "id": "A05", "name": "grad-span", "question": "Was this node in the training batch?",
    "payload": "P05", "what": "Answer.delta", "profile": "quick", "rounds": (1, 2),
    "n_clients": 20, "n_pos": 800, "n_neg": 4000, "seed": "ab" * 32, "metric": "ROC-AUC",
    "chance": "0.5", "margin": "0.05", "gate": "0.15", "verdict": "PASS",
    "reason": "no evidence above the attacker without the message, within +0.031.",
    "prior": "0.502 0.49 0.514", "null": "0.498 0.481 0.515", "protected": "0.511 0.493 0.529",
    "raw": "0.998 0.995 1", "raw_gap": "0.496 0.48 0.51",
    "gap": "0.009 -0.012 0.031",
}  # fmt: skip
LEAK = {
    "verdict": "FAIL", "protected": "0.93 0.9 0.95", "gap": "0.428 0.39 0.45",
    "reason": "0.930 (0.900 to 0.950) is above 0.552.",
}  # fmt: skip
BLANK: dict[str, Any] = {
    **dict.fromkeys(("prior", "null", "protected", "raw", "raw_gap", "gap")),
    "chance": "", "n_clients": 0,
    "n_pos": 0, "n_neg": 0, "payload": "", "what": "",
}  # fmt: skip
HELD: dict[str, Any] = {
    "text": "one release of step.up.SUM", "epsilon_claim": "4", "unit": "client",
    "epsilon_lb": "3.69", "ceiling": "5.6", "confidence": "0.95", "trials": 20000,
    "status": "not_falsified",
}  # fmt: skip


def row(**changes: Any) -> AttackRow:
    """Return a row; by default one that passes. Values are ``value low high``."""
    facts = {**_FACTS, **changes}
    for name in ("prior", "null", "protected", "raw", "raw_gap", "gap"):
        if facts[name] is not None:
            value, low, high = facts[name].split()
            facts[name] = Value(value=value, low=low, high=high, n=facts["n_clients"])
    return AttackRow(**facts)


def claim(**changes: Any) -> Claim:
    """Return a claim; by default one that is not falsified."""
    return Claim(**{**HELD, **changes})


def attacked(view: RunView, *rows: AttackRow, **changes: Any) -> RunView:
    """Return a run with the attacks.json that these rows make."""
    case = Case(view)
    facts: dict[str, Any] = {
        "run": case.roster_file.run, "plan_digest": case.plan_digest,
        "heads_digest": heads_digest(case.book), "profile": "quick", "seed": 0,
        "code_digest": "cd" * 32, "simulated": True, "rows": rows,
    }  # fmt: skip
    report = AttackReport(**{**facts, **changes})
    return replace(view, attacks_text=report.text().encode())
