"""What is next at the party folders here: ``secure-fgl site`` without a verb.

It reads the facts, the charters and the status files of each party. It opens no key and asks
nobody, so of other parties it knows what the aggregator's status says: who is awaited, who is away.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from protocols.errors import SecureFglError
from secure_fgl.charters.facts import LIMIT, Facts
from secure_fgl.sites.shown import duration, facts_of
from secure_fgl.sites.status import STATUS_FILE, State
from secure_fgl.sites.stopping import was_stopped
from secure_fgl.store.files import content
from secure_fgl.store.sides.places import places_of

__all__ = ["PARTY_VARIABLE", "next_steps", "parties_here"]

PARTY_VARIABLE = "SECURE_FGL_PARTY"
"""Names one more party folder, wherever it lies."""


def parties_here() -> list[Path]:
    """Return the party folders: this folder, those in it and in ``parties``, and the variable's."""
    there = [Path(), *sorted(Path().glob("*")), *sorted(Path("parties").glob("*"))]
    if named := os.environ.get(PARTY_VARIABLE):
        there.append(Path(named))
    parties = {path.resolve(): path for path in there if (path / "identity.json").is_file()}
    return list(parties.values())


def next_steps(party: Path, now: float) -> Iterator[str]:
    """Yield one line on who a party is, and one for each of its runs.

    Args:
        party: its folder.
        now: seconds since 1970.
    """
    facts = sorted(party.glob("*.facts.json"))
    yield f"{party}: {_who(facts[0]) if facts else 'its facts are missing'}"
    try:
        runs = places_of(party)
    except SecureFglError as error:
        yield f"  {error}"
        return
    if not runs:
        file = facts[0] if facts else party / "NAME.facts.json"
        yield (
            f"  no run joined. Next: give {file} to the party that draws the charter, then sign "
            f"its charter: secure-fgl charter sign FILE --party {party}"
        )
    for run, place in runs.items():
        more = f" --run {run}" if len(runs) > 1 else ""
        yield f"  run {run[:8]}: {_at(party, place, more, now)}"


def _who(file: Path) -> str:
    try:
        facts = Facts.decode(content(file, LIMIT) or b"")
    except (SecureFglError, OSError):
        return f"{file.name} cannot be read"
    return f"{facts.party.name} ({facts.party.role}), {facts.organisation}"


def _at(party: Path, place: Path, more: str, now: float) -> str:
    """Say how far one run is, and what to do."""
    start = f"secure-fgl site start {party}{more}"
    if was_stopped(place):
        return f"stopped by its operator. To go on: {start} --again"
    if not (place / STATUS_FILE).exists():
        return f"not started. Next: secure-fgl site check {party}{more}, then {start}"
    try:
        facts = facts_of(place, now)
    except SecureFglError as error:
        return str(error)
    if facts["state"] == State.OVER:
        return f"over. Next: secure-fgl site hand-over {party}{more} --out {facts['party']}.zip"
    if facts["state"] == State.REFUSED:
        return f"refused {facts['reason']}".rstrip() + f"; see {party / 'site.log'}"
    how_far = f"{facts['state']}, round {facts['round']} of {facts['rounds']}{_others(facts)}"
    if facts["state"] == State.STOPPED:
        how_far += f"; see {party / 'site.log'}"
    return how_far if facts["process"] else f"{how_far}, no process at work. Next: {start}"


def _others(facts: dict[str, Any]) -> str:
    """Return whom the aggregator waits for, and who is away, each with the time since then."""
    names = {"awaited": "; waits for ", "away": "; away: "}
    return "".join(
        title + ", ".join(f"{party} ({duration(s)})" for party, s in facts[key].items())
        for key, title in names.items()
        if facts[key]
    )
