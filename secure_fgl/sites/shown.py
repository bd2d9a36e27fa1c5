"""A party's status for people and machines; see `status` for what is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from secure_fgl.sites.lock import at_work
from secure_fgl.sites.status import State, read_status

__all__ = ["duration", "facts_of", "pairs_of", "prometheus"]


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
