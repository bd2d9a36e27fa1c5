"""A policy in plain words, and what another one does differently."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import guards
from protocols.errors import PolicyError
from protocols.policy.guards import COMMON
from protocols.shown import Shown, page
from protocols.strict import problems

__all__ = ["Explained"]

_GUARDS = {kind.model_fields["guard"].default: kind for kind in (*COMMON, *guards())}


class Explained(Shown):
    """What a policy tells of itself; it has a `name`, `rules` and settings beside them."""

    facts: ClassVar[tuple[str, ...]] = ("name", "minimum_cohort", "colluders", "unsafe")

    def _plain(self) -> dict[str, Any]:
        found: dict[str, Any] = self.model_dump(mode="json")
        return found

    def explain(self, used: Collection[Disclosure] | None = None) -> str:
        """Return in plain words what may leave a client, in which form, and what else holds.

        One paragraph a disclosure and one line a setting; settings that ask for nothing share a
        line. What a guard does is the first line of its documentation; ids such as O12 stand in the
        threat model (``docs/threat-model.md``).

        Args:
            used: disclosures of a plan. Others that the policy allows are named in one line, as
                nothing of that plan needs them; None: each has its paragraph.
        """
        plain = self._plain()
        lines = [
            f"Policy {plain['name']}. What it does not name is refused, before anything leaves.",
            "",
        ]
        seen = set[str]()  # what a guard does is explained once
        shown = {d: c for d, c in plain["rules"].items() if used is None or Disclosure(d) in used}
        for disclosure, chain in shown.items():
            lines.append(f"{disclosure}. Its receiver learns: {Disclosure(disclosure).meaning}.")
            for place, guard in enumerate(chain, 1):
                line = f"{_guard(guard)}: {_does(guard)}"
                lines.append(f"  {place}. {line if line not in seen else _guard(guard)}")
                seen.add(line)
            lines.append("")
        if unused := [name for name in plain["rules"] if name not in shown]:
            lines.append(f"Allowed, and not used by this plan: {', '.join(unused)}.")
        refused = [d for d in Disclosure if d not in plain["rules"]]
        lines.append(f"Refused altogether: {', '.join(refused) or 'nothing'}.")
        neighbours = str(Disclosure.NEIGHBOUR_SUM) in shown
        return "\n".join([*lines, *_who(plain, neighbours=neighbours), *_more(plain)])

    def changed(self, **changes: Any) -> Self:
        """Return a policy of its own with other settings, checked as a whole.

        Args:
            **changes: by attribute, as a policy file spells them; rules that are given replace
                those of the same disclosure, and None instead of a chain refuses it.

        Raises:
            PolicyError: that is not a valid policy.
        """
        plain = self._plain()
        rules = plain["rules"] | {str(k): v for k, v in changes.pop("rules", {}).items()}
        kept = {name: chain for name, chain in rules.items() if chain is not None}
        try:
            return type(self).model_validate(plain | {"rules": kept} | changes)
        except ValidationError as error:
            raise PolicyError(
                "With these changes it is no valid policy.",
                why=problems(error),
                fix="correct them; what a policy may hold: secure-fgl schema policy",
            ) from error

    def diff(self, other: Self) -> list[str]:
        """Return what `other` does differently, one line a change; empty if nothing.

        Args:
            other: the policy that is compared; a line says what it does and this one does not.
        """
        old, new = self._plain(), other._plain()
        found = list(_rules(old.pop("rules"), new.pop("rules")))
        return found + [
            f"{name}: {_value(old[name])} became {_value(new[name])}"
            for name in old
            if old[name] != new[name]
        ]

    def _repr_html_(self) -> str:
        """Return what a notebook shows: each disclosure with its guards, in order."""
        rules = self._plain()["rules"]
        rows = [
            (name, Disclosure(name).meaning, " → ".join(map(_guard, chain)))
            for name, chain in rules.items()
        ]
        columns = ("disclosure", "what the receiver learns", "guards")
        return page(type(self).__name__, self._facts(), columns, rows)


def _guard(guard: Mapping[str, Any]) -> str:
    """Return a guard with its parameters."""
    facts = ", ".join(f"{key}={value}" for key, value in guard.items() if key != "guard")
    return f"{guard['guard']}({facts})" if facts else str(guard["guard"])


def _does(guard: Mapping[str, Any]) -> str:
    return (_GUARDS[guard["guard"]].__doc__ or "").partition("\n")[0]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return _guard({"guard": "", **value})
    return "none" if value is None else repr(value)


def _rules(
    old: Mapping[str, list[dict[str, Any]]], new: Mapping[str, list[dict[str, Any]]]
) -> Iterator[str]:
    for disclosure in sorted({*old, *new}):
        if disclosure not in new:
            yield f"{disclosure}: is refused"
        elif disclosure not in old:
            yield f"{disclosure}: is allowed, by {' → '.join(map(_guard, new[disclosure]))}"
        elif old[disclosure] != new[disclosure]:
            yield from _chains(disclosure, old[disclosure], new[disclosure])


def _chains(disclosure: str, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[str]:
    before = {guard["guard"]: guard for guard in old}
    after = {guard["guard"]: guard for guard in new}
    for name, guard in before.items():
        if name not in after:
            yield f"{disclosure}: {_guard(guard)} is gone"
        elif after[name] != guard:
            yield f"{disclosure}: {_guard(guard)} became {_guard(after[name])}"
    for name, guard in after.items():
        if name not in before:
            yield f"{disclosure}: {_guard(guard)} is added"
    if [name for name in before if name in after] != [name for name in after if name in before]:
        yield f"{disclosure}: the guards stand in another order"


_CHANGES = {
    "any": "at will, so that two totals at nearly one model tell of whoever is in one of them (O5)",
    "floor": "so that no totals combine into one of too few clients; other rounds are lost (O5)",
    "fixed": "not at all where they overlap; whoever vanishes costs the round, cohorts drawn by "
    "lot do not overlap, and nobody is split into clusters (O5)",
}


def _who(plain: Mapping[str, Any], *, neighbours: bool) -> list[str]:
    """Return one line for each setting about how many clients something rests on.

    Args:
        plain: the policy.
        neighbours: whether sums over neighbours are shown, or the topology is not checked.
    """
    others, colluders, holders = plain["minimum_cohort"], plain["colluders"], plain["holders"]
    topology = "UNSAFE: any topology runs (O5)."
    if plain["topology_floor"] == "checked":
        topology = "the topology is checked, so that each rests on enough clients (O5)."
    rows = "may be one client's alone"
    if holders > 1:
        rows = f"must be held by at least {holders} clients beside colluders"
    floor = plain["minimum_records"]
    return [
        f"A site trains on records of {floor} persons or more, or on nothing.",
        f"A total is of {others + colluders + 1} clients or more: one, {others} others and "
        f"{colluders} assumed to collude.",
        f"Who is in a run's sums may change {_CHANGES[plain['cohort_changes']]}.",
        *([f"Sums over neighbours: {topology}"] * (neighbours or "UNSAFE" in topology)),
        f"A row of one item {rows} (O12).",
    ]


def _more(plain: Mapping[str, Any]) -> list[str]:
    """Return one line for each other setting that asks for something, and one for all others."""
    asked = dict(_asked(plain))
    models = "Clients take the models that they are sent."
    if plain["models"] == "recomputed":
        models = "Clients compute models themselves from totals, where the algorithm allows it."
    nothing = [name for name in _SETTINGS if name not in asked]
    return [
        f"Keys and pair secrets are made anew after {plain['rekey_rounds']} rounds (O9).",
        models,
        *asked.values(),
        *([f"Not asked for: {', '.join(_SETTINGS[name] for name in nothing)}."] * bool(nothing)),
    ]


_SETTINGS = {
    "budget": "a privacy budget",
    "capture": "messages kept for audits",
    "training": "noise in training",
    "messages": "a list of message types",
    "approvals": "approvers of the plan",
    "release": "conditions of a release",
    "audit": "figures of attacks at a site",
    "canaries": "canaries",
    "retention": "a limit of how long parties keep things",
}
"""Settings that may ask for nothing, and what they would ask for."""


def _asked(plain: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings that ask for something, each with its line."""
    if plain["budget"]:
        yield "budget", f"Budget of all runs on a data set: {_value(plain['budget'])} (O20)."
    if plain["capture"]:
        told = "Each party keeps its messages of {rounds} rounds, locked, for {days} days."
        yield "capture", told.format(**plain["capture"])
    if plain["training"]:
        yield "training", f"Training hides single records: {_value(plain['training'])}."
    if plain["messages"] is not None:
        yield "messages", f"Message types: {', '.join(plain['messages']) or 'none'}."
    if plain["approvals"]:
        approvers = ", ".join(f"{name} ({key[:8]})" for name, key in plain["approvals"].items())
        yield "approvals", f"Before a run the plan is signed by: {approvers}."
    if plain["release"]:
        attacks = ", ".join(plain["release"]["requires"])
        text = f"A model is released once {attacks} were run and did not fail, or all clients agree"
        yield "release", f"{text} to release it all the same."
    if plain["audit"]:
        shared = ", ".join(plain["audit"]["share"])
        yield "audit", f"A site hands on its own figures of these attacks: {shared}."
    if plain["canaries"]:
        told = "Each client makes up {records} records and trains on each of them by coin flip."
        yield "canaries", told.format(**plain["canaries"])
    kept = [
        f"{role} {what} {days} days"
        for role, told in plain["retention"].items()
        for what, days in told.items()
        if days is not None
    ]
    if kept:
        yield "retention", f"Kept for no longer than: {', '.join(kept)}."
