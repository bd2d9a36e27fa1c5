"""What a report does not show, and what the protection of a run does not cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audits.evidence.mixtures import of_mixtures
from audits.findings.limitations import TOTALS, named, of_warning
from audits.report import words
from audits.report.attack_rows import NO_FILE
from protocols.disclosures._base.words import words_of as disclosed
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.disclosure import ACTIVE_AGGREGATOR, KEY_THEFT
from protocols.disclosures.sum.disclosure import masked as sums_masked
from protocols.plan.learns import runs_as
from protocols.plan.plan import Plan
from protocols.plan.steps import Step

_ATTACKED = (
    "An attack that fails shows that this attack failed, not that none succeeds. attacks.json is "
    "in no ledger: its verdicts are made again from its figures, but made-up figures that agree "
    "with each other can only be found by running the attack again (secure-fgl audit attack, with "
    "the same profile and version, gives equal bytes)."
)


def _of_persons(plan: Plan) -> tuple[str, ...]:
    if not plan.minimum_records:
        return ()
    text = "The floor on persons counts training records: what leaves of records without labels "
    return (named(f"{text}(rows of neighbours, answers to generators) is not under it.", "L1.11"),)


def limits(
    plan: Plan,
    *,
    simulated: bool,
    attacked: bool = False,
    side: str = "",
    scores: Sequence[Mapping[str, Any]] = (),
) -> tuple[str, ...]:
    """Return what this report does not show, and what the protection does not cover."""
    masked = sums_masked(plan.items)
    found = [
        _ATTACKED if attacked else f"{NO_FILE} Absence of a finding is not evidence of absence.",
        named(
            "The record shows that nothing was changed afterwards (integrity). That everything "
            "sent was recorded (completeness) rests on the gateway being the only way out.",
            "L8",
        ),
        *_of_totals(plan),
        *of_mixtures(plan),
        *_of_scores(scores),
        *(f"{w}." for w in plan.warnings if w.startswith(runs_as(plan.algorithm))),
        named("Who took part when, and all sizes, are visible to the network.", "L1.10"),
        *_of_persons(plan),
        _trust(plan, masked=masked),
        "The aggregator's ledger covers result.json as it was when the run ended, but for its "
        "times, memory and verdict. Bytes and references are the word of who conducted the run.",
        "A report made after all keys were stolen can be made to look like this one; only heads "
        "held by others tell.",
    ]
    if side:
        found.insert(
            0,
            f"This is the side of {side} alone: what the other parties sent, received and opened, "
            "and whether they recorded the same, is not shown.",
        )
    if any(words.in_clear(item.guards) for item in plan.items):
        found.insert(0, "Some messages left in clear: nothing protects them from their receiver.")
    if masked:
        found.append(
            "Ledgers cannot tell a client that vanished from one whose envelopes the aggregator "
            "denies; they do show that its upload was in no total."
        )
    if ACTIVE_AGGREGATOR in plan.warnings:
        found.append(
            named(
                f"While sums are not masked inside the ciphertext, {ACTIVE_AGGREGATOR}.",
                of_warning(ACTIVE_AGGREGATOR),
            )
        )
    if KEY_THEFT in plan.warnings:
        found.append(named(f"For the same reason, {KEY_THEFT}.", of_warning(KEY_THEFT)))
    repeated = tuple(text for d in Disclosure for text in disclosed(d).limits)
    told = [warning for warning in plan.warnings if warning.startswith(repeated)]
    found += [named(f"{w[0].upper()}{w[1:]}.", of_warning(w)) for w in told]
    if simulated:
        found.append(
            named("All roles ran in one process: nothing about separate roles is shown.", "L7")
        )
    found += [named(f"{w[:400]}.", TOTALS) for w in plan.warnings if "(O12)" in w]
    return tuple(found)


def _of_scores(scores: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what no score was there for: a split without records gives none in any round."""
    named = {name: row[name] is None for row in scores for name in row}
    empty = {
        split: any(named.get(name) and all(row.get(name) is None for row in scores) for name in of)
        for split, of in _HEADLINES.items()
    }
    said = {
        "val": "No validation score could be computed, so nothing says which round was best: the "
        "model is that of the last round.",
        "test": "No test score could be computed: nothing here says how good the model is.",
    }
    return [said[split] for split, none in empty.items() if none]


_HEADLINES = {
    split: [f"{split}_{name}" for name in ("accuracy", "roc_auc", "rmse")]
    for split in ("val", "test")
}


def _of_totals(plan: Plan) -> list[str]:
    sums = plan.all_of(Disclosure.SUM, Step.UP)
    noised = [item for item in sums if item.noise is not None]
    if plan.training is not None:
        return [
            "Totals are of noised gradients: what they tell about one training record is bounded, "
            "what they tell about a client as a whole is not."
        ]
    bare = (
        "Totals over a cohort are disclosed and are not noised; what a total tells about its "
        "members is not bounded."
    )
    bounded = (
        "Noise bounds what totals tell about one client, under the assumptions that "
        "'secure-fgl audit account' lists; that each client drew it as planned is its own word."
    )
    own = (
        "Messages are read one by one, under their clients' own noise: what they tell about a "
        "client is bounded whoever works together, as 'secure-fgl audit account' says; that each "
        "client drew it as planned is its own word."
    )
    alone = [i for i in plan.all_of(Disclosure.NOISED, Step.UP) if i.noise is not None]
    told = ((bare, len(noised) < len(sums)), (bounded, noised), (own, alone))
    return [named(text, TOTALS if text is bare else "L5") for text, there in told if there]


def _trust(plan: Plan, *, masked: bool) -> str:
    """Say who is assumed not to help whom."""
    assumed = _assumed(plan, masked=masked)
    if all(item.part is Disclosure.SUM for item in plan.all_of(step=Step.OPEN)):
        return assumed
    return (
        f"{assumed} What is compared or weighed carries no masks: the aggregator, or a witness, "
        "must not collude with the key authority, or together they open every such message."
    )


def _assumed(plan: Plan, *, masked: bool) -> str:
    if masked:
        # Of neighbours' sums no aggregator opens any; the plan says what their readers combine.
        count = "none" if plan.withstands is None else f"no more than {plan.withstands}"
        return (
            f"Masks hide a single upload while {count} of {len(plan.clients)} clients helps the "
            "aggregator; who helps it also knows its own part of every total. Nothing here shows "
            "that clients train honestly."
        )
    return (
        "Parties are assumed to follow the protocol and to be curious; the aggregator and the key "
        "authority are assumed not to collude."
    )
