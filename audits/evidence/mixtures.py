"""What the ledgers say of mixtures: that groups were drawn once, and how far they could be solved.

A client's ledger has one entry `mix`, at its first release of mixtures, and one `withheld` for each
release from which some stayed away. Which record is in which group stands nowhere.
"""

from __future__ import annotations

from audits.evidence.ledger_index import LedgerIndex
from audits.findings.rules import made
from audits.report import words
from audits.report.models import Finding
from protocols.disclosures.mixed.guards import Mix
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Plan
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy

__all__ = ["mixtures", "of_mixtures"]


def mixtures(ledger_index: LedgerIndex, policy: PrivacyPolicy) -> tuple[Finding, ...]:
    """Return the findings on messages that disclose mixtures; none where nothing was mixed."""
    mix = find(policy.rules.get(Disclosure.MIXED, ()), "mix")
    senders = {
        str(entry["sender"])
        for _, entry in ledger_index.of_kind("release")
        if entry["disclosure"] == Disclosure.MIXED
    }
    if not senders or not isinstance(mix, Mix):
        return ()
    drawn: dict[str, list[int]] = {}
    for party, entry in ledger_index.of_kind("mix"):
        drawn.setdefault(party, []).append(int(entry["floor"]))
    odd = sorted(party for party in senders | set(drawn) if drawn.get(party) != [mix.floor])
    none = {party for party, entry in ledger_index.of_kind("mix") if entry["mixtures"] == 0}
    alone = [entry.get("alone") for _, entry in ledger_index.of_kind("mix")]
    relayed = find(policy.rules.get(Disclosure.MIXED, ()), "relay") is not None
    readable = len(senders - none)
    found = [_read(readable, mix, relayed=relayed)] if readable else []
    if odd:
        found.append(_drawn_oddly(odd, mix))
    if any(count != 0 for count in alone):
        found.append(_alone(alone))
    if none:
        found.append(_left_out(len(none), mix))
    if away := [
        (party, int(entry["mixtures"])) for party, entry in ledger_index.of_kind("withheld")
    ]:
        found.append(_withheld(away))
    return tuple(found)


def of_mixtures(plan: Plan) -> list[str]:
    """Return what the protection of mixtures does not cover; empty where nothing is mixed."""
    if not any(words.mixed(item.guards) for item in plan.items):
        return []
    found = [
        "The aggregator reads mixtures of single clients' records. How many records a mixture "
        "holds bounds nothing by itself: wide records, many positions and many rounds make single "
        "ones easier to find. Whoever chooses the layer under which records are mixed makes a "
        "mixture show a record of its choice, and nothing here notices; one client that works "
        "with the aggregator can, where that layer is a mean of uploads."
    ]
    relayed = any(words.mixed(i.guards) and words.relayed(i.guards) for i in plan.items)
    return [*found, _HINTS] if relayed else found


_HINTS = (
    "A relay took the senders off mixtures. What they hold still hints at senders: a client's "
    "mixtures are alike from round to round, and the ledgers say who was missing when. That the "
    "relay works for nobody else, and that it gave on what clients sent and not boxes of its own, "
    "is not shown; no privacy is credited for the order."
)


def _read(clients: int, mix: Mix, *, relayed: bool) -> Finding:
    whose = (
        " A relay took the senders off; the content still hints at them, and relay and aggregator "
        "together know them."
        if relayed
        else ""
    )
    return made(
        "MIXTURES",
        "medium",
        f"The aggregator read mixtures of each of {words.plural(clients, 'client')}. Each is over "
        f"at least {mix.floor} distinct records at every position, which is a number and no proof "
        f"that single records cannot be found.{whose}",
        "Try the attack on mixtures (A06), add the guard 'blur', raise the floor, or take a policy "
        "under which no mixture leaves (strict).",
        role="aggregator",
        payload="P10",
    )


def _drawn_oddly(odd: list[str], mix: Mix) -> Finding:
    return made(
        "MIXTURES_REDRAWN",
        "critical",
        f"{words.plural(len(odd), 'client')} did not draw groups exactly once with a floor of "
        f"{mix.floor}; the first: {odd[0]}. Mixtures of other groups tell single records by their "
        "difference.",
        "Do not go on with this client's software until its owner has explained it.",
        role="aggregator",
    )


def _alone(counts: list[int | None]) -> Finding:
    """Say of how many clients single records are determined; None: it was not computed."""
    some = [count for count in counts if count]
    said = []
    if some:
        said.append(
            f"At {words.plural(len(some), 'client')} at least {words.plural(sum(some), 'record')} "
            "in all follow from the mixtures of one round alone, once it is known who is in which "
            "group: that the groups stay secret is all that protects them."
        )
    if unknown := counts.count(None):
        said.append(
            f"At {words.plural(unknown, 'client')} it was not computed whether single records "
            "follow, as there are too many mixtures and records."
        )
    return made(
        "MIXTURES_ALONE",
        "medium",
        " ".join(said),
        "Use fewer positions (fan-out, hops), a larger floor, or add the guard 'blur'.",
        role="aggregator",
    )


def _left_out(none: int, mix: Mix) -> Finding:
    return made(
        "MIXTURES_NONE",
        "info",
        f"{words.plural(none, 'client')} sent no mixture in the whole run: no group of its records "
        f"holds {mix.floor} distinct ones at every position. Its messages were empty.",
        "Nothing needs to be done. If too much is missing, agree on a smaller floor.",
        role="aggregator",
    )


def _withheld(away: list[tuple[str, int]]) -> Finding:
    clients = len({party for party, _ in away})
    return made(
        "MIXTURES_WITHHELD",
        "info",
        f"{words.plural(sum(count for _, count in away), 'mixture')} of "
        f"{words.plural(clients, 'client')} stayed away in {words.plural(len(away), 'release')}: "
        "records that differed when the groups were drawn were the same by then. The aggregator "
        "saw how many came instead, to within a bucket.",
        "Nothing needs to be done. If too much is missing, take wider embeddings or a smaller "
        "learning rate, so that the model does not send many records to one point.",
        role="aggregator",
    )
