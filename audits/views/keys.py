"""Who holds which key in a run: what decides what a role can open."""

from __future__ import annotations

from collections.abc import Iterator

from audits.report import words
from audits.report.models import Report
from protocols.wire.roles import Role

__all__ = ["keys_of"]

_OWN = "each {} holds its own keys, to sign and to open what is sealed to it"
_CLEAR = "what leaves in clear is opened without any key"


def keys_of(report: Report, role: Role) -> Iterator[str]:
    """Yield in words which keys a role holds, of those that this run has."""
    guards = {words.guard(text) for row in report.egress for text in row.protection}
    there = {party.role for party in report.parties}
    yield _OWN.format(words.role(str(role)))
    yield from _more(role, guards, there)
    if any(row.unsafe and row.recipient_role == role for row in report.egress):
        yield _CLEAR


def _more(role: Role, guards: set[str], there: set[str]) -> Iterator[str]:
    masked = guards & {"mask", "mask_neighbours"}
    evaluated = guards & {"cosine", "weigh"}
    if role is Role.CLIENT:
        if masked:
            yield "each client holds the seeds of its masks, one with each other client of a cohort"
            yield "and shares of others' seeds, of which enough take masks off a total"
        if evaluated:
            yield "all clients hold the epoch's key of what is compared or weighed"
        if "match" in guards and Role.TAG_SERVER not in there:
            yield "all clients hold the key of item tags"
    elif role is Role.KEY_AUTHORITY:
        yield "the key authority alone holds the secret key of the encryption"
    elif role is Role.AGGREGATOR:
        if Role.KEY_AUTHORITY in there:
            yield "the aggregator draws the blinds that hide totals from the key authority"
        if masked:
            yield "it holds no mask of its own; shares of masks reach it for totals alone"
    elif role is Role.TAG_SERVER:
        yield "each tag server holds its share of the key of item tags"
    elif role is Role.RELAY:
        yield "the relay opens the outer seal, the inner one is to the aggregator"
    elif role is Role.MATCHER:
        yield "the matcher holds no key of item tags"
    elif role is Role.WITNESS:
        yield "the witness holds public keys of the encryption alone"
