"""A party's status for people and machines; see `status` for what is in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from protocols.errors import SecureFglError
from secure_fgl.charters.facts import LIMIT, Facts
from secure_fgl.sites.lock import at_work
from secure_fgl.sites.status import STATUS_FILE, State, read_status
from secure_fgl.sites.stopping import was_stopped
from secure_fgl.store.files import content
from secure_fgl.store.sides.party_side import places_of


def facts_of(folder: Path, now: float) -> dict[str, Any]:
    """Return what is known of a party's run now, as plain data.

    Args:
        folder: of the run at the party.
        now: seconds since 1970.

    Raises:
        UsageError: there is no status there.
    """
    status = read_status(folder)
    return {
        **asdict(status),
        "process": at_work(folder),
        "awaited": _seconds(status.awaited, now),
        "away": _seconds(status.away, now),
        "quiet": round(max(0.0, now - status.at), 1),
    }


def _seconds(since: Mapping[str, float], now: float) -> dict[str, float]:
    return {name: round(max(0.0, now - at), 1) for name, at in sorted(since.items())}


def pairs_of(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and values for a table of two columns."""
    from audits.report.words import size

    yield "run", f"{facts['run']}, at {facts['party']} ({facts['role']})"
    yield "state", _state(facts)
    yield "round", f"{facts['round']} of {facts['rounds']}, exchange {facts['exchange']}"
    if facts["item"]:
        yield "last message", f"{facts['item']}, {duration(facts['quiet'])} ago"
    for name, title in (("awaited", "waiting for"), ("away", "away")):
        if found := facts[name]:
            yield title, ", ".join(f"{who} ({duration(s)})" for who, s in found.items())
    if facts["lost"]:
        numbers = facts["lost"]
        yield "lost", f"{len(numbers)} (round number {', '.join(map(str, numbers))})"
    yield "sent", f"{size(facts['sent'])}, and got {size(facts['received'])}"
    for dataset, spent in facts["budget"].items():
        told = f"epsilon {spent['epsilon']:g} of {spent['of']:g}, {spent['runs']} runs"
        yield f"budget {dataset}", told


def _state(facts: Mapping[str, Any]) -> str:
    told = f"{facts['state']}: {facts['reason']}" if facts["reason"] else str(facts["state"])
    if facts["state"] in (State.OPENING, State.RUNNING) and not facts["process"]:
        return f"{told}, and no process of this party is at work"
    return told


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


_GAUGES = {
    "round": "Round of the last message.",
    "rounds": "Rounds of the plan.",
    "exchange": "Number of the last Ask.",
    "sent": "Bytes of envelopes sent.",
    "received": "Bytes of envelopes received.",
    "quiet": "Seconds since the last event.",
}
_NAMES = {
    "sent": "sent_bytes",
    "received": "received_bytes",
    "quiet": "quiet_seconds",
}


def prometheus(facts: Mapping[str, Any]) -> str:
    """Return the facts in Prometheus' text format, for a text-file collector."""
    of = {"party": str(facts["party"]), "run": str(facts["run"])}
    lines: list[str] = []
    for name, told, values in _gauges(facts):
        lines += [f"# HELP secure_fgl_{name} {told}", f"# TYPE secure_fgl_{name} gauge"]
        for label, value in values.items():
            labels = of if not label else {**of, _LABELS[name]: label}
            shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"secure_fgl_{name}{{{shown}}} {float(value)!r}")
    return "\n".join(lines) + "\n"


_LABELS = {
    "state": "state",
    "awaited_seconds": "site",
    "away_seconds": "site",
    "budget_epsilon": "data",
}
"""Gauges with one more label, and what it is called."""


def _gauges(facts: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    """Yield each gauge's name, what it says, and its values by label."""
    for name, told in _GAUGES.items():
        yield _NAMES.get(name, name), told, {"": facts[name]}
    yield "lost_rounds", "Rounds that were skipped.", {"": len(facts["lost"])}
    yield "process", "Whether a process of this party is at work.", {"": facts["process"]}
    yield "state", "How far the party is.", {str(s): facts["state"] == s for s in State}
    yield "awaited_seconds", "Seconds since who is to answer was asked.", facts["awaited"]
    yield "away_seconds", "Seconds since who did not answer last was asked.", facts["away"]
    spent = {name: found["epsilon"] for name, found in facts["budget"].items()}
    yield "budget_epsilon", "Epsilon that all runs so far reserved.", spent


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# --- What is next at the party folders here: ``secure-fgl site`` without a verb ---
#
# It reads the facts, the charters and the status files of each party. It opens no key and asks
# nobody, so of other parties it knows what the aggregator's status says: who is awaited, who is
# away.

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
