"""Whether an attack report says what its own figures give.

``attacks.json`` is in no ledger: whoever can write into the run's folder can edit it. So nothing in
it is believed that can be made again: names and rules are those of the registered attacks, seeds
follow from the ledgers' heads, and every verdict from the figures beside it. The same is asked of
each row before it is written, so that no honest report is refused.

What this cannot find is a file of made-up figures that agree with each other. Only running the
attack again can: the same run, program and profile give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from audits.attacks._methods.statistics import CONFIDENCE
from audits.attacks._shared.exposed import FEW, REPLICAS
from audits.attacks._shared.models import FIGURES, AttackReport, AttackRow, Claim, Evidence, Value
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.together import biased, evidence
from audits.attacks._shared.verdicts import (
    Attack,
    Figures,
    decimal,
    misplaced,
    power_of,
    verdict_of,
)

__all__ = ["claim_doubt", "report_doubt", "row_doubt"]

_SILENT = ("NOT_APPLICABLE", "NOT_TESTED", "ERROR")  # verdicts beside which no figure stands
_ROUNDED = 3e-4  # between a difference of means and the mean difference, of four places each
_SHOWN = 1e-3  # a bound this much above its claim is above it as the claim writes both down
_MACHINES = 2e-4  # between powers that two machines compute and round up
_FEWEST = 4  # trials of a bound, see `audits.attacks._methods.statistics`

_UNGIVEN = "a verdict in it is not what its figures give"
_POWER = "the power beside a PASS in it is not what its figures give"
_KEPT = "figures stand in it beside a verdict that rests on none, or are missing beside another"
_RULE = "it holds a row by a rule (metric, margin, gate, controls) that its attack does not have"
_REPLICAS = "replicas stand in it that are not drawn: beside facts, so few or many, or by quick"
_CLAIM = "a claim in it has a state that its bound does not give"


def report_doubt(
    found: AttackReport, known: Sequence[Attack], seed_of: Callable[[str], str]
) -> str:
    """Say why a report cannot be what its attacks found; empty if nothing speaks against it.

    Args:
        found: as it was read.
        known: the registered attacks.
        seed_of: attack id -> the seed that the ledgers' heads give.
    """
    attacks = {one.id: one for one in known}
    facts = zip(found.rows, biased(found.rows), evidence(found.rows), strict=True)
    for row, wrong, level in facts:
        if row.id not in attacks:
            return "it holds an attack that this program does not have"
        if doubt := row_doubt(row, attacks[row.id], seed_of(row.id), biased=wrong, level=level):
            return doubt
    if doubt := next(filter(None, map(claim_doubt, found.claims)), ""):
        return doubt
    refuted = any(_refutes(row, attacks[row.id]) for row in found.rows)
    if refuted and all(claim.status != "falsified" for claim in found.claims):
        return "a row in it falsifies a claim, and no claim in it is falsified"
    return ""


def row_doubt(
    row: AttackRow, one: Attack, seed: str, *, biased: bool = False, level: Evidence = ""
) -> str:
    """Say why a row cannot be its attack's; empty if nothing speaks against it.

    Args:
        row: as it was read, or before it is written.
        one: the registered attack of that id.
        seed: of that attack in this run.
        biased: whether its null control is, beside the other rows of its report; of facts the row
            itself says it.
        level: how sure it is of a gain, beside these.
    """
    if (row.name, row.question) != (one.name, one.question):
        return "it holds a row that asks something else than the attack of its name"
    if row.seed != seed:
        return "a seed in it is not what the heads of the ledgers give"
    figures = {name: found for name in FIGURES if (found := getattr(row, name)) is not None}
    if not figures:
        return _without(row, one)
    if len(figures) < len(FIGURES) or not row.chance or row.verdict in _SILENT:
        return _KEPT
    drawn = row.profile == "default" and row.replicas == REPLICAS and 2 <= row.n_clients <= FEW
    if row.replicas and (row.exact or not drawn):
        return _REPLICAS
    rule = _rule(row, one)
    if rule is None:
        return _RULE
    return _differences(row, figures) or _verdict(row, figures, biased=biased, level=level)


def _without(row: AttackRow, one: Attack) -> str:
    """Judge a row in which nothing was measured; it decides nothing."""
    numbers = (
        row.n_clients or row.replicas or row.n_pos or row.n_neg or row.needed_n or row.detectable
    )
    if row.verdict in ("PASS", "FAIL", "ABOVE_PRIOR", "INVALID") or row.chance or numbers:
        return _KEPT
    return "" if _same(row, one.rules[0]) else _RULE


def _rule(row: AttackRow, one: Attack) -> Rule | None:
    """Return the rule of an attack by which a measured row was judged; None if it is none."""
    for rule in one.rules:
        chance = row.chance if rule.chance is None else decimal(rule.chance)
        about = row.payload in (*one.payloads, *rule.also)
        counted = rule.clients == bool(row.n_clients)
        if _same(row, rule) and row.chance == chance and about and counted:
            return rule
    return None


def _same(row: AttackRow, rule: Rule) -> bool:
    stated = (row.metric, row.margin, row.gate, row.null_side, row.exact)
    limits = (decimal(rule.margin), decimal(rule.gate))
    return stated == (rule.metric, *limits, rule.null_side, rule.exact)


def _differences(row: AttackRow, figures: Mapping[str, Value]) -> str:
    """Judge how many clients a row is over, and whether its differences are differences."""
    n = row.n_clients or figures["gap"].n
    if any(found.n != n for found in figures.values()):
        return "a row in it is over more clients in one place than in another"
    middle = {name: float(found.value) for name, found in figures.items()}
    pairs = (("raw_gap", "raw", "prior"), ("gap", "protected", "prior"))
    for name, one, other in (*pairs, ("excess", "protected", "null")):
        # Of facts the worst unit of each stands there, and their worst difference.
        if abs(middle[name] - (middle[one] - middle[other])) > _ROUNDED and (
            name != "excess" or not row.exact
        ):
            return "a row in it holds a gain that is not what its figures differ by"
    return ""


def _verdict(row: AttackRow, figures: Mapping[str, Value], *, biased: bool, level: Evidence) -> str:
    found, margin = Figures.of(row.chance, figures), float(row.margin)
    wrong = misplaced(found, row.null_side) if row.exact else biased
    n = figures["gap"].n
    given = verdict_of(found, margin, float(row.gate), row.exact, n, biased=wrong)
    if given == "INCONCLUSIVE" and level:
        given = "ABOVE_PRIOR"
    if given != row.verdict or row.evidence != (level if given == "ABOVE_PRIOR" else ""):
        return _UNGIVEN
    power = power_of(found, margin, exact=row.exact) if given == "PASS" else ""
    near = bool(power and row.detectable) and (
        abs(float(power) - float(row.detectable)) <= _MACHINES * max(1.0, float(power))
    )
    return "" if near or power == row.detectable else _POWER


def _refutes(row: AttackRow, one: Attack) -> bool:
    """Tell whether a row says that a claimed epsilon is false."""
    if row.verdict != "FAIL" or row.gap is None:
        return False
    rule = _rule(row, one)
    return rule is not None and rule.claims and float(row.gap.low) > _SHOWN


def claim_doubt(claim: Claim) -> str:
    """Say why a claim's state does not follow from its bound; empty if it does.

    That a bound below its claim reads ``untested`` and not ``not_falsified`` may be honest: the
    planted violation was not found either. The other way round the ceiling must reach the claim.
    """
    if not claim.epsilon_lb:
        bare = not claim.ceiling and not claim.confidence and not claim.trials
        return "" if bare and claim.status == "untested" else _CLAIM
    if not claim.ceiling or claim.confidence != f"{CONFIDENCE:g}" or claim.trials < _FEWEST:
        return _CLAIM
    claimed, proved = float(claim.epsilon_claim), float(claim.epsilon_lb)
    ceiling = float(claim.ceiling)
    if not 0.0 <= proved <= ceiling or (proved > claimed) != (claim.status == "falsified"):
        return _CLAIM
    return _CLAIM if claim.status == "not_falsified" and ceiling < claimed else ""
