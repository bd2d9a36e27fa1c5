"""Attack reports as files, for the tests of the leakage report: no attack is run here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from audits.attacks import attacks, code_digest, heads_digest, seed_of
from audits.attacks._shared.models import FIGURES, AttackReport, AttackRow, Claim, Value
from audits.attacks._shared.verdicts import Figures, decimal, power_of
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case

ANY_SEED = "ab" * 32
_FACTS: dict[str, Any] = {
    "id": "A05",
    "payload": "P05", "what": "Answer.delta", "profile": "quick", "rounds": (1, 2),
    "n_clients": 20, "n_pos": 512, "n_neg": 2048, "seed": ANY_SEED, "chance": "0.5",
    "verdict": "PASS",
    "reason": "no evidence above the attacker without the message, within +0.031.",
    "prior": "0.502 0.49 0.514", "null": "0.498 0.481 0.515", "protected": "0.511 0.493 0.529",
    "raw": "0.998 0.995 1", "raw_gap": "0.496 0.48 0.51",
    "gap": "0.009 -0.012 0.031", "excess": "",
}  # fmt: skip
LEAK = {
    "verdict": "FAIL", "protected": "0.93 0.9 0.95", "gap": "0.428 0.39 0.45",
    "reason": "0.930 (0.900 to 0.950) is above 0.552.",
}  # fmt: skip
UNSURE = {
    "verdict": "INCONCLUSIVE", "protected": "0.55 0.47 0.63", "gap": "0.048 -0.03 0.126",
    "reason": "sample: more clients would be needed.",
}  # fmt: skip
BIASED = {
    "verdict": "INVALID", "null": "0.6 0.58 0.62", "reason": "the null control reads 0.600.",
}  # fmt: skip
SINGLED: dict[str, Any] = {
    "verdict": "FAIL", "chance": "0", "prior": "0 0 0", "null": "0 0 0", "protected": "1 1 1",
    "raw": "1 1 1", "raw_gap": "1 1 1", "gap": "1 1 1", "reason": "1.000 is above 0.",
}  # fmt: skip
"""Of an attack whose scores are facts: somebody is singled out, or a rule of the code is broken."""
BLANK: dict[str, Any] = {
    **dict.fromkeys(FIGURES),
    "chance": "", "n_clients": 0,
    "n_pos": 0, "n_neg": 0, "payload": "", "what": "",
}  # fmt: skip
HELD: dict[str, Any] = {
    "text": "one release of step.up.SUM", "epsilon_claim": "4", "unit": "client",
    "epsilon_lb": "3.69", "ceiling": "5.6", "confidence": "0.95", "trials": 20000,
    "status": "not_falsified",
}  # fmt: skip


def row(**changes: Any) -> AttackRow:
    """Return a row; by default one that passes. Values are ``value low high``.

    Name, question and rule are those of the attack; of A05, if there is none of that id.
    """
    known = {one.id: one for one in attacks()}
    one = known.get(changes.get("id", "A05"), known["A05"])
    rule = next((r for r in one.rules if r.metric == changes.get("metric")), one.rules[0])
    named = {
        "name": one.name, "question": one.question, "metric": rule.metric,
        "margin": decimal(rule.margin), "gate": decimal(rule.gate),
        "null_side": rule.null_side, "exact": rule.exact,
    }  # fmt: skip
    facts = {**_FACTS, **named, **changes}
    if facts["excess"] == "":
        facts["excess"] = _between(facts["protected"], facts["null"])
    for name in FIGURES:
        if facts[name] is not None:
            value, low, high = facts[name].split()
            facts[name] = Value(value=value, low=low, high=high, n=facts["n_clients"] or 1)
    return AttackRow(**{"detectable": _power(facts), **facts})


def _between(one: str | None, other: str | None) -> str | None:
    """Return the difference of two values whose intervals are independent."""
    if one is None or other is None:
        return None
    (a, *ends), (b, *others) = (map(float, text.split()) for text in (one, other))
    sides = zip(ends, others[::-1], strict=True)
    low, high = (((e - a) ** 2 + (o - b) ** 2) ** 0.5 for e, o in sides)
    return " ".join(f"{value:.4f}" for value in (a - b, a - b - low, a - b + high))


def _power(facts: dict[str, Any]) -> str:
    """Return what stands beside a PASS with these figures."""
    values = {name: facts[name] for name in FIGURES}
    if facts["verdict"] != "PASS" or None in values.values():
        return "0.06" if facts["verdict"] == "PASS" else ""
    if values["gap"].n < 2 and not facts["exact"]:
        return "0.06"
    figures = Figures.of(facts["chance"] or "0", values)
    return power_of(figures, float(facts["margin"]), exact=facts["exact"])


def claim(**changes: Any) -> Claim:
    """Return a claim; by default one that is not falsified."""
    return Claim(**{**HELD, **changes})


def attacked(view: RunView, *rows: AttackRow, **changes: Any) -> RunView:
    """Return a run with the attacks.json that these rows make, with the seeds of that run."""
    case = Case(view)
    heads = heads_digest(case.ledger_index)
    seeded = tuple(
        r.model_copy(update={"seed": seed_of(heads, r.id)}) if r.seed == ANY_SEED else r
        for r in rows
    )
    facts: dict[str, Any] = {
        "run": case.roster_file.run, "plan_digest": case.plan_digest,
        "heads_digest": heads, "profile": "quick",
        "code_digest": code_digest(), "simulated": True, "rows": seeded,
    }  # fmt: skip
    report = AttackReport(**{**facts, **changes})
    return replace(view, attacks_text=report.text().encode())
