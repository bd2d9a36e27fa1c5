"""What a charter asks for that an earlier one did not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from protocols.plan.drift import drift
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.facts import fingerprint

__all__ = ["changes"]

_LONGEST = 60
"""Characters of a value that is shown."""


def changes(old: Charter, new: Charter) -> list[str]:
    """List what `new` says that `old` did not; empty if nothing is new.

    Of plans only what goes beyond (`protocols.plan.drift`), of all else every difference; not who
    signed what, nor the nonce, which is new in every charter.
    """
    said = [drift(old.plan, new.plan), _parties(old, new)]
    versions = (f"version {line}" for line in _differing(old.versions, new.versions))
    broker = (f"broker {line}" for line in _differing(old.broker.document(), new.broker.document()))
    return [*said[0], *said[1], *broker, *versions, *_spec(old, new), *_settings(old, new)]


def _parties(old: Charter, new: Charter) -> list[str]:
    before, now = _facts(old), _facts(new)
    found = [f"{name}: takes part no more" for name in sorted({*before} - {*now})]
    for name, facts in sorted(now.items()):
        if name not in before:
            found.append(f"{name}: new, {facts['role']}, {facts['organisation'] or '-'}")
            continue
        for what, value in facts.items():
            if before[name][what] != value:
                found.append(f"{name}: {what} {_short(before[name][what])} became {_short(value)}")
    return found


def _facts(charter: Charter) -> dict[str, dict[str, str]]:
    found = {}
    for name, carrier in charter.carriers.items():
        party, organisation = charter.roster.party(name), charter.organisations.get(name, "")
        found[name] = {
            "role": str(party.role),
            "organisation": organisation,
            "fingerprint of name, role, keys and organisation": fingerprint(
                party, organisation, carrier
            ),
        }
    return found


def _spec(old: Charter, new: Charter) -> Iterator[str]:
    one, other = ({} if c.spec is None else c.spec.model_dump(mode="json") for c in (old, new))
    yield from (f"spec.yaml {line}" for line in _differing(one, other))


def _settings(old: Charter, new: Charter) -> Iterator[str]:
    one, other = (c.config.shared().model_dump(mode="json") for c in (old, new))
    yield from (f"settings {line}" for line in _differing(one, other))


def _differing(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Say which values differ, key by key."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _differing(old.get(key), new.get(key), f"{place}.{key}".lstrip("."))
    elif old != new:
        yield f"{place}: {_short(old)} became {_short(new)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
