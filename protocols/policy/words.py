"""A policy in plain words, and what another one does differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

    def explain(self) -> str:
        """Return in plain words what may leave a client, in which form, and what else holds.

        One paragraph a disclosure and one line a setting. What a guard does is the first line of
        its documentation; ids such as O12 stand in the threat model (``docs/threat-model.md``).
        """
        plain = self._plain()
        lines = [
            f"Policy {plain['name']}. What it does not name is refused, before anything leaves.",
            "",
        ]
        for disclosure, chain in plain["rules"].items():
            lines.append(
                f"{disclosure}. What the receiver learns: {Disclosure(disclosure).meaning}."
            )
            lines += [
                f"  {place}. {_guard(guard)}: {_does(guard)}"
                for place, guard in enumerate(chain, 1)
            ]
            lines.append("")
        refused = [d for d in Disclosure if d not in plain["rules"]]
        lines.append(f"Refused altogether: {', '.join(refused) or 'nothing'}.")
        return "\n".join([*lines, *_who(plain), *_more(plain)])

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
    "fixed": "not at all where they overlap; whoever vanishes costs the round (O5)",
}


def _who(plain: Mapping[str, Any]) -> list[str]:
    """Return one line for each setting about how many clients something rests on."""
    others, colluders, holders = plain["minimum_cohort"], plain["colluders"], plain["holders"]
    topology = "UNSAFE: any topology runs (O5)."
    if plain["topology_floor"] == "checked":
        topology = "the topology is checked, so that each rests on enough clients (O5)."
    rows = "may be one client's alone"
    if holders > 1:
        rows = f"must be held by at least {holders} clients beside colluders"
    floor = plain["minimum_records"]
    return [
        f"A site trains on the records of {floor} persons or more, or on nothing. This does not "
        "apply where a client is a person or single records are hidden by noise.",
        f"Cohorts: {others} clients or more beside the one that is looked at, and {colluders} more "
        f"for those that may collude: {others + colluders + 1} take part, or nobody is asked.",
        f"Who is in a run's sums may change {_CHANGES[plain['cohort_changes']]}.",
        f"Sums over neighbours: {topology}",
        f"A row of one item {rows} (O12).",
    ]


def _more(plain: Mapping[str, Any]) -> list[str]:
    """Return one line for each other setting."""
    budget = capture = messages = approvals = canaries = "none"
    training, release, shared = "as the clients like", "without conditions", "none"
    if plain["budget"]:
        budget = f"all runs together {_value(plain['budget'])} of a data set (O20)"
    if plain["capture"]:
        capture = "{rounds} rounds, locked, for {days} days".format(**plain["capture"])
    if plain["training"]:
        training = f"hides single records, {_value(plain['training'])}"
    if plain["messages"] != []:
        messages = "all types" if plain["messages"] is None else ", ".join(plain["messages"])
    if plain["approvals"]:
        approvals = ", ".join(f"{name} ({key[:8]})" for name, key in plain["approvals"].items())
    if plain["canaries"]:
        canaries = "{records} records that each client makes up train by coin flip".format(
            **plain["canaries"]
        )
    if plain["release"]:
        asked = ", ".join(plain["release"]["requires"])
        release = f"once {asked} were run and did not fail, or all clients accepted that"
    if plain["audit"]:
        shared = ", ".join(plain["audit"]["share"])
    kept = [
        f"{role} {what} {days} days"
        for role, told in plain["retention"].items()
        for what, days in told.items()
        if days is not None
    ]
    models = "clients take those that they are sent"
    if plain["models"] == "recomputed":
        models = "clients compute them from totals, where a form lets them"
    return [
        f"Keys and pair secrets are made anew after {plain['rekey_rounds']} rounds (O9).",
        f"Budget: {budget}.",
        f"Kept for audits: {capture}.",
        f"Training: {training}.",
        f"Messages: {messages}.",
        f"Models: {models}.",
        f"Who signs the plan before it runs: {approvals}.",
        f"Release of models: {release}.",
        f"Figures that a site hands on of attacks on its own side: {shared}.",
        f"Canaries: {canaries}.",
        f"Kept for no longer than: {', '.join(kept) or 'as long as each party likes'}.",
    ]
