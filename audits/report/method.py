"""Section 10: how the numbers were made, by the files' own record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from audits.report.attack_rows import Outcome
from audits.report.models import REPORT_VERSION
from audits.report.sections import Fact, Method

_RECORDED = ("backend", "version", "code_digest", "config_sha256", "seed")
_LONGEST = 120
_COUNTED = (
    "Envelopes, bytes and refusals are added up from the parties' ledgers; nothing is estimated. "
    "Planned numbers are upper bounds that were made before training, without the data."
)
_SPENT = (
    "Epsilons are Renyi bounds over all noised messages that the ledgers show, rounded up; "
    "secure-fgl audit account compares them with other accountants."
)
_ATTACKED = (
    "An attack is run four times: on what the receiver learnt, on the message before protection "
    "(raw control), on another client's message or on noise (null control), and without any "
    "message (prior). All values are means over clients with 95 % intervals from a bootstrap over "
    "clients, drawn from the heads of the ledgers; facts (A09) and proved bounds (A10) have none."
)
_JUDGED = (
    "PASS needs an attack that succeeds on the raw message, a null control at chance, and an "
    "interval of the gain over the prior that lies below the margin as a whole. What falls short "
    "of that is INCONCLUSIVE or INVALID. Null controls of estimates are tested together (Holm): a "
    "report whose controls are sound holds an INVALID row by chance in one of 10,000."
)
_SAME = (
    "This report is a function of the run's files: no clock, no network, no chance. "
    "'secure-fgl audit verify' makes it again and compares every byte."
)


def method(result: Mapping[str, Any], tried: Outcome) -> Method:
    """Return section 10.

    Args:
        result: ``result.json``; what it records of versions is its own word.
        tried: what the attacks found.
    """
    facts = [Fact(name="Report version", value=str(REPORT_VERSION))]
    for name in _RECORDED:
        value = result.get(name)
        if isinstance(value, str) and value.isprintable() and value:
            facts.append(Fact(name=f"{name} (result.json)", value=value[:_LONGEST]))
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
            facts.append(Fact(name=f"{name} (result.json)", value=str(value)))
    about = tried.tried
    if about.used:
        facts += [
            Fact(name="Profile of the attacks", value=about.profile),
            Fact(name="Digest of the attacks' code", value=about.code_digest),
        ]
    how = (_COUNTED, _SPENT, *((_ATTACKED, _JUDGED) if about.used else ()), _SAME)
    return Method(facts=tuple(facts), how=how)
