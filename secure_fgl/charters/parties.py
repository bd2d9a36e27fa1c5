"""Roster and organisations of a charter are the plan's, and are called as they may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from protocols.wire.roles import Role
from protocols.wire.roster import Roster
from secure_fgl.charters.facts import misnamed_organisation
from secure_fgl.charters.organisations import alike

__all__ = ["SHOWN", "nameless", "strangers"]

SHOWN = 5
"""Names in one sentence."""


def strangers(roster: Roster, planned: Mapping[str, Role]) -> Iterator[str]:
    """Say which parties are not the plan's, and which of the plan's are missing."""
    there = {party["name"]: party["role"] for party in roster.document()}
    missing, more = sorted({*planned} - {*there}), sorted({*there} - {*planned})
    if missing or more:
        told = ", ".join(missing[:SHOWN]) or "nobody", ", ".join(more[:SHOWN]) or "nobody"
        yield f"its parties are not the plan's (missing: {told[0]}; strangers: {told[1]})"
    for name in sorted({*planned} & {*there}):
        if there[name] != planned[name]:
            yield f"{name} is {there[name]} in it, and {planned[name]} in its plan"


def nameless(organisations: Mapping[str, str], names: set[str]) -> Iterator[str]:
    """Say whose organisation is not named, or is named as none may be."""
    if set(organisations) != names:
        yield "it does not name the organisation of every party"
    for name, organisation in organisations.items():
        if wrong := misnamed_organisation(organisation):
            yield f"the organisation of {name} {wrong}"
    yield from alike(organisations.values())
