"""Attacks in plain words: what a verdict means for somebody who knows no statistics.

Sentences come first and codes stand behind them in brackets. An attack that has no words here of
its own is told by its question, so that a new one is never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from audits.attacks._shared.models import AttackRow
from audits.attacks.trap_weights import BY_ONE, START
from audits.report import words
from audits.report.models import Egress
from audits.report.readings import POWER, lesson, reading

__all__ = ["NAMES", "POWER", "clients", "lesson", "named", "power", "readable", "reading",
           "sentence", "show", "untested", "verdict", "warning"]  # fmt: skip

NAMES = words.NAMES

_TOPICS = {
    "A01": "it can be told which items a user touched",
    "A02": "it can be told which items tags stand for, by who can make some",
    "A03": "it can be told which items tags stand for, by how many clients hold them",
    "A04": "which classes a client holds can be told",
    "A05": "it can be told which records were used for training",
    "A06": "it can be told which records are in a mixture",
    "A09": "one client can be singled out by adding and subtracting totals",
    "A10": "the noise delivers the privacy that is claimed for it",
    "A12": "it can be told which records were used for training",
    "A13": "it can be told which clients hold like data, which holds which, or what was compared",
    "A14": "gradients for a client's generator name the records that they were held against",
    "A15": "rows of neighbours' features can be solved for single nodes",
    "A16": "counts, scores or sizes of messages say something of one client",
    "A20": "a model that somebody crafted brings single records back",
}
_BOUND = "epsilon"  # begins the metric of a row that holds a claim against a bound


def named(payload: str) -> str:
    """Return a payload by name with its code in brackets; of none, the run."""
    return f"{NAMES[payload]} ({payload})" if payload else "what left in this run"


def untested(payloads: Sequence[str]) -> str:
    """Return a list of payloads as the end of a sentence."""
    return ", ".join(map(named, payloads))


def power(row: AttackRow) -> str:
    """Return in words what a PASS could have missed; of another verdict nothing."""
    if not row.detectable:
        return ""
    if row.exact:
        return f"a gain of {row.detectable}, planted as a test, was found; no smaller one was tried"
    return f"a gain of {row.detectable} or more is found with a chance of 95 %"


def verdict(row: AttackRow) -> str:
    """Return the verdict as readers see it: a claim that stands is NOT FALSIFIED, never PASS."""
    if row.verdict == "PASS" and _claims(row):
        return "NOT FALSIFIED"
    return row.verdict.replace("_", " ")


def _claims(row: AttackRow) -> bool:
    return row.id in ("A10", "A11") and row.metric.startswith(_BOUND)


def warning(row: AttackRow) -> bool:
    """Tell whether a row that fails warns and proves no recovery: A09 over all rounds."""
    from audits.attacks.structure import ALL_ROUNDS

    return row.id == "A09" and row.what == ALL_ROUNDS


def clients(row: AttackRow) -> str:
    """Return over how many clients a row is, and how many are needed; empty if it counts none."""
    if not row.n_clients:
        return ""
    each = f", {words.plural(row.replicas, 'replica')} each" if row.replicas else ""
    more = f", about {words.number(row.needed_n)} needed" if row.needed_n else ""
    return f"{words.plural(row.n_clients, 'client')}{each}{more}"


def show(count: int) -> str:
    """Return a bucketed count: exact ones stay where the data lie (O28)."""
    return f"at least {words.number(count)}" if count else "none"


def sentence(row: AttackRow) -> str:
    """Return what a row found, as one sentence without its full stop."""
    told = f" ({row.id}{f', {row.verdict}' if row.verdict in ('INVALID', 'ERROR') else ''})"
    if row.verdict == "FAIL":
        return _FOUND.get(row.id, _other)(row) + told
    about = _about(row)
    if row.verdict == "ABOVE_PRIOR":
        return f"{_tells(row)}: it was tested {about}, and {_gain(row)} was found{told}"
    if row.verdict == "PASS":
        if row.id == "A10" or _claims(row):
            what = f"What is claimed of the noise on {named(row.payload)}"
            return f"{what} was not falsified, which does not prove it{told}"
        if row.gap is not None and float(row.gap.low) > 0 and not row.exact:
            small = f"{_gain(row)}, which is within the margin {row.margin}"
            return f"An attack tested {about} and found {small}{told}"
        return (
            f"An attack tested {about} and found no evidence of it; that does not prove that none "
            f"can{told}"
        )
    if row.verdict == "NOT_TESTED":
        return f"It was not tested {about}: {row.reason.rstrip('.').partition(';')[0]}{told}"
    return f"It is undecided {about}: {_why(row)}{told}"


def _tells(row: AttackRow) -> str:
    return "Leakage is there" if row.evidence == "there" else "There are signs of leakage"


def _gain(row: AttackRow) -> str:
    """Return the gain of a row over the prior with its interval, in words."""
    if row.gap is None:
        return "a gain"
    gap = row.gap
    return f"a gain of {gap.value} ({gap.low} to {gap.high}) over a guess without the message"


def _about(row: AttackRow) -> str:
    """Return what a row asks, as ``whether ...``."""
    from audits.attacks.structure import SINGLETONS

    if row.id == "A09" and row.what.startswith(SINGLETONS):
        which = row.what.removeprefix(SINGLETONS)  # of how many totals
        return f"whether an entry of a captured total comes from one client alone{which}"
    if row.id == "A06" and row.exact:
        return f"whether too few records are in {named(row.payload)}, or in the difference of two"
    if row.id == "A06" and row.payload == "P11":
        return f"whether the classes of records are counted by {named(row.payload)}"
    topic = _TOPICS.get(row.id, f"the answer is yes to '{row.question}'")
    where = "" if row.id == "A10" or not row.payload else f" from {named(row.payload)}"
    return f"whether {topic}{where}"


def _why(row: AttackRow) -> str:
    if row.verdict == "ERROR":
        return "the attack itself broke off"
    if row.verdict == "INVALID":
        return "a control shows that the attack measures something else"
    if row.reason.startswith("weak attack"):
        return "the attack is too weak to tell, even on messages without protection"
    if row.reason.startswith("sample"):
        return "there are too few clients to tell"
    return row.reason.rstrip(".")


def _hundred(*shares: str) -> list[str]:
    """Return shares as numbers of a hundred, with a decimal only where they would look alike."""
    found = [f"{100 * float(share):.0f}" for share in shares]
    if len(set(found)) < len(set(shares)):
        found = [f"{100 * float(share):.1f}" for share in shares]
    return found


def _figures(row: AttackRow) -> tuple[str, str]:
    """Return with and without the message; of a FAIL both are there."""
    if row.protected is None or row.prior is None:
        return "0", "0"
    return row.protected.value, row.prior.value


def _classes(row: AttackRow) -> str:
    seen, without = _hundred(*_figures(row))
    how = "in {} of 100 cases, against {} without them"
    if row.metric.startswith("overlap"):
        how = "for {} of 100 records, against {} without them"
    if row.metric.startswith("share of the prior"):
        how = "in {} of 100 cases in which a guess without them is wrong, against {} for that guess"
    return (
        f"Whoever receives {named(row.payload)} can tell which classes a client as a whole holds: "
        f"right {how.format(seen, without)}"
    )


def _members(row: AttackRow) -> str:
    seen, without = _hundred(*_figures(row))
    who = f"Whoever receives {named(row.payload)} can tell which records were used for training"
    if row.metric.startswith("TPR"):
        return (
            f"{who}: {seen} of 100 are found while 1 of 100 others is accused, against {without} "
            "without them"
        )
    return f"{who}: right in {seen} of 100 pairs, against {without} without them"


def _inside(row: AttackRow) -> str:
    seen, without = _hundred(*_figures(row))
    who = f"Whoever receives {named(row.payload)}"
    if row.exact:
        return (
            f"Of at least one client, fewer records than the policy asks for are in "
            f"{named(row.payload)}, or in the difference of two"
        )
    if row.payload == "P11":
        return (
            f"{who} can tell exactly how many records of each class are in {seen} of 100 mixtures, "
            f"against {without} without them"
        )
    how = "in {} of 100 pairs, against {} without them"
    if row.metric.startswith("recall"):
        how = "of {} in 100 records, in as many guesses, against {} without them"
    return f"{who} can tell which records are in a mixture: right {how.format(seen, without)}"


def _structure(row: AttackRow) -> str:
    from audits.attacks.structure import COHORT, SINGLETONS

    what = named(row.payload)
    if row.what.startswith(SINGLETONS):
        return f"Numbers in {what} come from one client alone, so they are that client's own"
    if row.what == COHORT:
        return f"At least one client is in {what} with fewer others than the policy asks for"
    if warning(row):
        return (
            f"A warning, no proof: if updates hardly change, {what} of all rounds together single "
            "out at least one client"
        )
    return f"What one client sent follows by adding and subtracting {what} of one round"


def _noise(row: AttackRow) -> str:
    if not _claims(row):
        return f"The code that makes the noise on {named(row.payload)} breaks its own rules"
    proved, claimed = _figures(row)
    return (
        f"The noise on {named(row.payload)} does not deliver what is claimed: epsilon is at least "
        f"{words.decimal(proved)}, claimed is {words.decimal(claimed)}"
    )


def _other(row: AttackRow) -> str:
    seen, without = _figures(row)
    return (
        f"The answer to '{row.question}' is yes, from {named(row.payload)}: the score is {seen}, "
        f"against {without} without them"
    )


def _touched(row: AttackRow) -> str:
    seen, without = _hundred(*_figures(row))
    return (
        f"Whoever receives {named(row.payload)} can tell which items a user touched: right in "
        f"{seen} of 100 pairs, against {without} without them"
    )


def _turned(row: AttackRow) -> str:
    seen, without = _hundred(*_figures(row))
    return (
        f"Whoever holds {named(row.payload)} can tell which items they stand for: {seen} of 100, "
        f"against {without} by design or by guessing"
    )


def _likeness(row: AttackRow) -> str:
    seen, without = _hundred(*_figures(row))
    if row.metric.startswith("share of what"):
        return (
            f"Clients that send chosen vectors, and work with who receives {named(row.payload)}, "
            f"read {seen} of 100 parts of what sets another client's vector apart"
        )
    one, other = "like data: right in {} of 100 cases", "which data, if all is known: {} of 100"
    what = f"hold {other if row.metric.startswith('share of clients') else one}"
    what = f"{what.format(seen)}, against {without} without them"
    return f"Whoever receives {named(row.payload)} can tell which clients {what}"


def _solved(row: AttackRow) -> str:
    seen, _ = _hundred(*_figures(row))
    return f"A client can solve {named(row.payload)} for {seen} of 100 single nodes of others"


def _trapped(row: AttackRow) -> str:
    seen, without = _hundred(*_figures(row))
    how = row.what.partition(":")[0]
    who = f"An aggregator that hands out a crafted model ({how}) reads"
    if how.startswith(BY_ONE):
        who = f"One client that adds to totals what it likes ({how}) reads"
    elif how.startswith(START):
        who = f"Whoever wrote the code that draws the first model ({how}) and reads a total reads"
    if row.metric.startswith("F1"):
        return (
            f"{who} words of single records out of {named(row.payload)}: F1 {seen} of 100, against "
            f"{without} for who guesses popular words"
        )
    return (
        f"{who} single records out of {named(row.payload)}: {seen} of 100, of each of which it "
        f"knew three words, come back word for word, against {without} without them"
    )


def _named_rows(row: AttackRow) -> str:
    seen, without = _hundred(*_figures(row))
    return (
        f"Whoever reads {named(row.payload)} names the record behind {seen} of 100 drawn rows, "
        f"against {without} without them"
    )


_FOUND: dict[str, Callable[[AttackRow], str]] = {
    "A01": _touched,
    "A02": _turned,
    "A03": _turned,
    "A04": _classes,
    "A05": _members,
    "A06": _inside,
    "A09": _structure,
    "A10": _noise,
    "A11": lambda row: (_noise if _claims(row) else _members)(row),
    "A12": _members,
    "A13": _likeness,
    "A14": _named_rows,
    "A15": _solved,
    "A20": _trapped,
}


def readable(egress: Iterable[Egress]) -> str:
    """Return what left of single clients that its receiver reads, in words; empty if nothing."""
    found = {id for row in egress for id in row.payloads if id in words.READABLE}
    return ", ".join(f"{words.NAMES[id]} ({id})" for id in sorted(found))
