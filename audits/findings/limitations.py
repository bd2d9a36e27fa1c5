"""Which part of LIMITATIONS.md says more of a finding, of a plan's warning, or of a limit.

Parts have ids that stay: ``L1`` to ``L11`` are sections, ``L1.1`` and so on single points of one.
An id is an anchor of that page, and is never given to anything else.
"""

from __future__ import annotations

from protocols.disclosures._base.words import words_of
from protocols.disclosures._evaluated.disclosure import UNWITNESSED
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.disclosure import ACTIVE_AGGREGATOR, KEY_THEFT

__all__ = ["IDS", "named", "of_rule", "of_warning"]

PAGE = "LIMITATIONS.md"
TOTALS = "L1.7"
_RULES = {
    "ACTIVE_AGGREGATOR": "L1.1",
    "BUDGET_EXCEEDED": "L5",
    "CLAIM_FALSIFIED": "L5",
    "CLIPPED": "L1.6",
    "EVIDENCE_BROKEN": "L8",
    "MIXTURES_ALONE": "L2",
    "MIXTURES_NONE": "L2",
    "MIXTURES_REDRAWN": "L2",
    "MIXTURES_WITHHELD": "L2",
    "NOT_TESTED": "L9",
    "ROUND_SKIPPED": "L1.5",
    "ROWS_RANK": "L1.3",
    "SIMULATION": "L7",
    "THIN_NEIGHBOURHOODS": "L1.4",
    "UNSAFE_CLEAR": "L1",
    "UNWITNESSED": "L1.2",
    "VANISHED": "L1.5",
    "WEIGHTS_FLATTENED": "L1.3",
}
_WARNINGS = (
    (ACTIVE_AGGREGATOR, "L1.1"),
    (KEY_THEFT, "L1.1"),
    (UNWITNESSED, "L1.2"),
    ("the totals themselves are disclosed", TOTALS),
    ("totals are of noised gradients", "L5"),
    ("no two totals of one run", "L1.9"),
    ("totals of one run may differ", "L1.9"),
    ("a total may be of three clients", TOTALS),
)
_DISCLOSED = {
    Disclosure.MATCH: "L4",
    Disclosure.MIXED: "L2",
    Disclosure.NEIGHBOUR_SUM: "L1.4",
    Disclosure.NOISED: "L5",
    Disclosure.ROW_SUM: "L1.8",
    Disclosure.SIMILARITY: "L1.2",
    Disclosure.WEIGHTED_SUM: "L1.3",
}
IDS = frozenset(
    (
        *_RULES.values(),
        *(id for _, id in _WARNINGS),
        *_DISCLOSED.values(),
        TOTALS,
        "L1.10",
        "L1.11",
        "L8",
    )
)
"""Every id that this program names."""


def of_rule(rule: str) -> str:
    """Return the id that says more of a finding by this rule; empty if none does."""
    return _RULES.get(rule, "")


def of_warning(warning: str) -> str:
    """Return the id that says more of a plan's warning; empty if none does."""
    for begin, id in _WARNINGS:
        if warning.startswith(begin):
            return id
    if "(O12)" in warning:
        return TOTALS
    for disclosure, id in _DISCLOSED.items():
        if warning.startswith(words_of(disclosure).limits):
            return id
    return ""


def named(text: str, id: str) -> str:
    """Return a text with where to read more; the text alone where there is no more."""
    if not id:
        return text
    dot = "." if text.endswith(".") else ""
    return f"{text.removesuffix('.')} ({PAGE}#{id}){dot}"
