"""The inventory of what left, as JSON-LD in the words of the Data Privacy Vocabulary (W3C).

One process per item that left and the roles between which it went, under one process for the run.
Only terms are used that a record can bear out: what was sent, to whom, under which technical
measures. Purposes, legal bases, data subjects and whether data are personal are for people to say;
the document names these properties and leaves them out.

    https://w3id.org/dpv
"""

from __future__ import annotations

import json
from typing import Any

from audits.exporters._drafts import MEASURES, one_line
from audits.report import words
from audits.report.models import Egress, Report

NAME = "dpv"
FILE = "inventory.jsonld"

CONTEXT = {
    "dct": "http://purl.org/dc/terms/",
    "dpv": "https://w3id.org/dpv#",
    "sfgl": "urn:secure-fgl:",
}
PEOPLE = (
    "dpv:hasPurpose",
    "dpv:hasLegalBasis",
    "dpv:hasPersonalData",
    "dpv:hasDataSubject",
    "dpv:hasDataController",
    "dpv:hasStorageCondition",
    "dpv:hasRisk",
)
"""Properties that only people can fill in."""


def export(report: Report) -> bytes:
    """Return the document (JSON-LD, ASCII)."""
    run = f"urn:secure-fgl:run:{report.subject.run}"
    rows = [_process(row, f"{run}:item:{number}") for number, row in enumerate(report.egress, 1)]
    subject = report.subject
    whole = {
        "@id": run,
        "@type": "dpv:Process",
        "dct:title": "DRAFT: what left in a federated run",
        "dct:description": one_line(report.scope.purpose),
        "dpv:hasProcess": [{"@id": row["@id"]} for row in rows],
        "sfgl:planDigest": subject.plan_digest,
        "sfgl:policyDigest": subject.policy_digest,
        "sfgl:evidence": report.integrity.verdict,
        "sfgl:firstEntry": subject.first_entry,
        "sfgl:lastEntry": subject.last_entry,
        "sfgl:leftToPeople": list(PEOPLE),
        "sfgl:organisation": sorted(
            {one_line(party.organisation) for party in report.parties if party.organisation}
        ),
    }
    text = json.dumps({"@context": CONTEXT, "@graph": [whole, *rows]}, indent=2, sort_keys=True)
    return (text + "\n").encode("ascii")


def _process(row: Egress, name: str) -> dict[str, Any]:
    fields = [f"{one.meaning} ({one.unit})" for message in row.messages for one in message.fields]
    return {
        "@id": name,
        "@type": "dpv:Process",
        "dct:title": one_line(row.item),
        "dpv:hasProcessing": {"@id": "dpv:Transmit"},
        "dpv:hasData": [
            {"@type": "dpv:Data", "dct:description": one_line(text)}
            for text in fields or [row.meaning]
        ],
        "dpv:hasRecipient": {
            "@type": "dpv:Recipient",
            "dct:title": one_line(words.role(row.recipient_role)),
        },
        "dpv:hasTechnicalMeasure": [
            _measure(guard) for guard in row.protection if words.guard(guard) in MEASURES
        ],
        "sfgl:sender": one_line(words.role(row.sender_role)),
        "sfgl:payload": list(row.payloads),
        "sfgl:learns": [
            {"sfgl:role": one_line(words.role(role)), "dct:description": one_line(what)}
            for role, what in sorted(row.learns.items())
        ],
        "sfgl:planned": row.planned,
        "sfgl:inClear": row.unsafe,
        "sfgl:envelopes": row.count,
        "sfgl:bytes": row.bytes,
    }


def _measure(guard: str) -> dict[str, str]:
    title, what = MEASURES[words.guard(guard)]
    return {
        "@type": "dpv:TechnicalMeasure",
        "dct:title": title,
        "dct:description": f"{what} As the plan has it: {one_line(guard)}.",
    }
