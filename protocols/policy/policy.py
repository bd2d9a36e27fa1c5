"""Who must sign a plan before it runs, with the public key that each signs with."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import AfterValidator, Field, StringConstraints, ValidationError, model_validator

from protocols.disclosures._base.rules import rules_of
from protocols.disclosures.names import Disclosure
from protocols.errors import CohortChanged, CohortTooSmall, NotAdmitted, PolicyError
from protocols.evidence.captures import Canaries, Capture, planted_objection
from protocols.forms import Algorithm, Form
from protocols.policy.admission import (
    bare_objection,
    check_chain,
    check_one_target,
    check_records,
    counted_objection,
    private_objection,
)
from protocols.policy.budget import Budget, Unit
from protocols.policy.guard import Guard, find
from protocols.policy.guards import AnyGuard, UnsafeClear
from protocols.policy.presets import FACTS
from protocols.policy.words import Explained
from protocols.privacy.training import Training
from protocols.strict import Strict, nearest, not_yaml, problems, read_yaml
from protocols.wire.roles import Role

__all__ = [
    "FEWEST_OTHERS",
    "PRESETS",
    "Approvers",
    "Attack",
    "Audit",
    "Budget",
    "Capture",
    "CohortChanges",
    "Days",
    "Kept",
    "PrivacyPolicy",
    "Release",
    "Retention",
    "S",
    "check_kept",
    "divided",
    "whole",
]

_Name = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,40}$")]
_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _distinct(found: dict[str, str]) -> dict[str, str]:
    if len(set(found.values())) != len(found):
        raise ValueError("two names of approvals have one key, and would be one approver")
    return found


Approvers = Annotated[dict[_Name, _Key], Field(max_length=20), AfterValidator(_distinct)]
"""Name -> Ed25519 public key, 64 lower-case hexadecimal digits; at most twenty."""


# --- What may be taken out of a run afterwards: models, and figures of attacks at single sites ---

Attack = Annotated[str, StringConstraints(pattern=r"^A\d{2}$")]


class Release(Strict):
    """What holds models back at the end of a run.

    Nothing of it concerns messages: whoever runs our program keeps a model locked, and takes it out
    no sooner. A changed program has the model in its memory all the same.

    Attributes:
        requires: ids of attacks. Each must have been run on the run with another verdict than FAIL,
            or been accepted.
        until: ``signed``: until then, or until every client signed a waiver for the attack, with an
            owner, a reason and a last day.
    """

    requires: tuple[Attack, ...] = Field(min_length=1, max_length=40)
    until: Literal["signed"] = "signed"


class Audit(Strict):
    """What a site hands on of the attacks that it runs on its own side.

    Attributes:
        share: ids of attacks. Their figures go into what the site hands over without being asked
            for again; figures of other attacks stay at the site, unless it says ``--yes``.
    """

    share: tuple[Attack, ...] = Field(min_length=1, max_length=40)


# --- How long a party keeps what it has of a run. How long captured rounds are, `Capture` says ---

Days = Annotated[int, Field(ge=1, le=36_500, strict=True)]


class Kept(Strict):
    """How long the parties of one role keep what they have, in days from a ledger's last entry.

    Attributes:
        ledgers: the ledger, with all else that is left of the run at the party; None: for ever.
        models: the models; None: as long as the ledger.
    """

    ledgers: Days | None = None
    models: Days | None = None

    @model_validator(mode="after")
    def _models_go_first(self) -> Kept:
        if self.ledgers is not None and self.models is not None and self.models > self.ledgers:
            raise ValueError("models are kept no longer than the ledger that says whose they are")
        return self


Retention = dict[Role, Kept]
"""By role; one that is not named keeps what it has for as long as it likes."""


def check_kept(retention: Mapping[Role, Kept], capture: Capture | None) -> None:
    """Raise ValueError if captured rounds are kept longer than the ledger that names them."""
    for role, kept in retention.items():
        if capture is not None and kept.ledgers is not None and kept.ledgers < capture.days:
            raise ValueError(f"{role} keeps captured rounds longer than the ledger that names them")


# --- Which changes of the cohort a policy lets pass: what the totals of one run tell when combined
# ---
#
# Totals at nearly one model can be added and subtracted. Whoever is in some of them and not in
# others stands out: the served cohorts cut the clients into groups, each of clients that were
# always in a total together. Any combination of totals weighs all members of a group alike, so it
# rests on whole groups, and is of fewer clients than the policy's smallest cohort only if some
# group is. Looking at pairs of cohorts is not enough: of ten clients, all of them, the first five
# and the last six differ by four or more each, and the first less the other two is one client's
# update.
#
# Sets of clients are whole numbers: bit i is client i of the roster.

CohortChanges = Literal["any", "floor", "fixed"]


def divided(groups: Sequence[int], cohort: int, rule: CohortChanges, least: int) -> tuple[int, ...]:
    """Return the groups into which clients are cut once this cohort is served as well.

    Args:
        groups: disjoint, of the cohorts so far.
        cohort: to be served.
        rule: `floor`: no group is smaller than `least`; `fixed`: cohorts that overlap are equal;
            `any`: all cohorts are served.
        least: clients of the policy's smallest cohort.

    Raises:
        CohortChanged: the rule forbids it.
    """
    known, parts = 0, list[int]()
    for group in groups:
        known |= group
        parts += [part for part in (group & cohort, group & ~cohort) if part]
    if new := cohort & ~known:
        parts.append(new)
    if rule == "fixed" and cohort & known and cohort not in groups:
        raise CohortChanged(
            "A sum is of other clients than an earlier one of this run (cohort_changes: fixed).",
            why="a client vanished, or the aggregator asks for totals to subtract",
            fix="ask the very same clients again, or agree on cohort_changes: floor",
        )
    if rule == "floor" and min(part.bit_count() for part in parts) < least:
        raise CohortChanged(
            f"Totals of this run could be combined into one of fewer than {least} clients "
            "(cohort_changes: floor).",
            why="a few clients vanished, or the aggregator asks for totals to subtract",
            fix=f"leave out nobody, or at least {least} clients that were always asked together",
        )
    return tuple(parts)


def whole(groups: Sequence[int], cohort: int) -> int:
    """Return those of a cohort whose whole group is in it."""
    found = 0
    for group in groups:
        if group & cohort == group:
            found |= group
    return found


# --- The privacy policy: what the data owner allows, in which protected form. Deny by default ---

S = TypeVar("S")

FEWEST_OTHERS = 2
"""Others in a cohort, at least: of a total of two clients each reads the other's part."""


class PrivacyPolicy(Explained):
    """What may leave a client, and how.

    Attributes:
        name: shown in plan, ledger and report.
        rules: per disclosure the chain of guards; a disclosure that is not named is refused.
        minimum_cohort, colluders: how many *other* clients must be in every cohort, and how many
            are assumed to collude, which are added (O10). With 2 others, the fewest, each total
            less one's own part is of two, and two clients that pool theirs read the third's: a
            policy says so by the number, and the plan warns of it.
        minimum_records: a site that has training records of fewer persons trains on nothing, as a
            total says most of a site with few. It does not apply where a client is a person, nor
            under `training`, whose epsilon must not depend on how many records a site has.
        cohort_changes: how a run's sums may differ in who is in them (O5). `any`: at will, so that
            two totals at nearly one model tell the update of whoever is in one of them alone.
            `floor`: no totals that a client is shown combine into one of fewer clients than a
            survivor list holds; a round that fewer vanish from is lost. `fixed`: cohorts that
            overlap are equal; whoever vanishes costs the round, and who was killed and is back is
            in the next one. Cohorts that lots draw do not overlap; algorithms that split clients
            into clusters are refused under it. Both need `mask` for sums.
        topology_floor: of sums over neighbours: ``checked``: what up to 1 + `colluders` clients
            read rests on `minimum_cohort` others; ``unsafe``: plan and report say on how few (O5).
        rekey_rounds: after so many rounds every key and pair secret is made anew (O9).
        budget: what all runs together may spend of this site's data set (O20); needed with noise.
        capture: what every party keeps of its own rounds, locked, for audits; None: nothing.
        training: how clients train so that single records stay hidden; None: as they like.
        holders: how many clients, beside `colluders`, must hold a row of a message without noise,
            as the aggregator says: the clients that rated an item (O12); 1: one is enough.
        messages: message types that may be said; None allows every type whose disclosure is named.
        models: ``recomputed``: where a form lets them, clients compute each model themselves, from
            totals that nobody but they could make; ``as_sent``: they take it. The plan says which.
        approvals: who signs a plan before it runs, but for a charter: name -> Ed25519 key (hex).
        release: which attacks must be answered, or accepted by all clients, before a model leaves.
        retention: how long parties keep ledger and models, by role; see `Kept`.
        audit: which attacks on its own side a site hands on the figures of; None: of none.
        canaries: records that clients make up, to measure what gets out of training; None: none.
    """

    name: str = Field(min_length=1, max_length=40, pattern=r"^[a-z0-9_-]+$")
    rules: dict[Disclosure, tuple[AnyGuard, ...]] = Field(min_length=1)
    minimum_cohort: int = Field(default=3, ge=FEWEST_OTHERS, le=10_000, strict=True)
    colluders: int = Field(default=0, ge=0, le=10_000, strict=True)
    minimum_records: int = Field(default=10, ge=1, le=1_000_000, strict=True)
    cohort_changes: CohortChanges = "any"
    topology_floor: Literal["checked", "unsafe"] = "checked"
    rekey_rounds: int = Field(default=50, ge=1, le=10_000, strict=True)
    budget: Budget | None = None
    capture: Capture | None = None
    training: Training | None = None
    holders: int = Field(default=1, ge=1, le=10_000, strict=True)
    messages: tuple[str, ...] | None = None
    models: Literal["recomputed", "as_sent"] = "recomputed"
    approvals: Approvers = Field(default={})
    release: Release | None = None
    retention: Retention = Field(default={})
    audit: Audit | None = None
    canaries: Canaries | None = None

    @model_validator(mode="after")
    def _chains_are_complete(self) -> PrivacyPolicy:
        for disclosure, chain in self.rules.items():
            check_chain(disclosure, chain)
        chains = self.rules.values()
        if self.budget is None and any(find(c, "noise") or find(c, "own_noise") for c in chains):
            raise ValueError("noise needs a budget: what all runs together may spend (O20)")
        check_one_target(self.rules)
        if find(self.rules.get(Disclosure.SUM, ()), "record_noise"):
            check_records(self.training is not None, captured=self.capture is not None)
        if self.cohort_changes != "any" and not find(self.rules.get(Disclosure.SUM, ()), "mask"):
            # Without masks clients are shown no survivor list, and one upload can be opened.
            raise ValueError(
                f"cohort_changes: {self.cohort_changes} needs 'mask' among the guards of SUM"
            )
        check_kept(self.retention, self.capture)
        for disclosure, chain in self.rules.items():
            rules = rules_of(disclosure)
            if self.budget is not None and not rules.accounted(chain):
                raise ValueError(f"{disclosure} cannot be accounted, and there is a budget (O16)")
            rules.check_policy(chain, self)
        return self

    @classmethod
    def preset(cls, name: str) -> PrivacyPolicy:
        """Return a preset by name; raises PolicyError naming the nearest preset."""
        if not isinstance(name, str) or name not in PRESETS:
            raise PolicyError(
                f"There is no policy preset {name!r}.", fix=nearest(str(name), sorted(PRESETS))
            )
        return PRESETS[name].model_copy(deep=True)

    @classmethod
    def load(cls, source: str | Path) -> PrivacyPolicy:
        """Return a preset, or read a YAML policy file.

        Raises:
            PolicyError: no such preset or file, or the file is not a valid policy.
        """
        if isinstance(source, str) and source in PRESETS:
            return cls.preset(source)
        path = Path(source) if isinstance(source, str | os.PathLike) else None
        if path is None or not path.is_file():
            raise PolicyError(
                f"{str(source)!r} is neither a policy preset nor a file.",
                why="presets are named letter by letter, and no file lies at this path",
                fix=f"name a preset or a policy file; {nearest(str(source), sorted(PRESETS))}",
            )
        try:
            return cls.model_validate(read_yaml(path.read_text("utf-8")))
        except (ValidationError, yaml.YAMLError, UnicodeDecodeError) as error:
            why = problems(error) if isinstance(error, ValidationError) else not_yaml(error)
            fix = "correct it; what a policy may hold: secure-fgl schema policy"
            raise PolicyError(f"{path} is not a valid policy.", why=why, fix=fix) from error

    def checked(self) -> PrivacyPolicy:
        """Return a copy of one's own that was validated anew.

        Raises:
            PolicyError: it is no longer a valid policy.
        """
        try:
            return PrivacyPolicy.model_validate(self.document())
        except ValidationError as error:
            raise PolicyError(
                f"Policy {self.name!r} was changed into something that is no policy.",
                why=problems(error),
                fix="make a new PrivacyPolicy instead of changing one",
            ) from error

    def document(self) -> dict[str, Any]:
        """Return the policy as plain data, every setting in it, in a stable order."""
        return self._plain()

    def fields(self) -> dict[str, str]:
        """Return every setting as the JSON that a plan states it in."""
        return {
            name: json.dumps(value, sort_keys=True, separators=(",", ":"))
            for name, value in self.document().items()
        }

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the policy's content; stands in every signed header."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"secure-fgl/policy\0" + text.encode()).hexdigest()

    @property
    def unsafe(self) -> tuple[Disclosure, ...]:
        """The disclosures whose chain holds an Unsafe guard."""
        return tuple(
            d for d, chain in self.rules.items() if any(isinstance(g, UnsafeClear) for g in chain)
        )

    @property
    def budgets(self) -> dict[Unit, Budget]:
        """What all runs together may spend of one site's data set, by unit (O20)."""
        found: dict[Unit, Budget] = {} if self.budget is None else {"client": self.budget}
        if self.training is not None:
            found[self.training.unit] = self.training.budget
        for chain in self.rules.values():
            for guard in chain:
                found.update(guard.budgets())
        return found

    @property
    def others(self) -> int:
        """Clients beside the receiver that a result must rest on, in numbers or in effect (O10)."""
        return self.minimum_cohort + self.colluders

    @property
    def smallest_cohort(self) -> int:
        """Clients that must take part, the receiver itself included."""
        return self.others + 1

    def chain(self, disclosure: Disclosure) -> tuple[Guard, ...]:
        """Return the guards for `disclosure`; raises NotAdmitted if the policy names none."""
        if disclosure not in self.rules:
            raise NotAdmitted(
                f"Policy {self.name!r} names no protection for {disclosure} messages.",
                fix=f"add a rule for {disclosure}, or choose a policy or form without it",
            )
        return self.rules[disclosure]

    def check_cohort(self, size: int) -> None:
        """Raise CohortTooSmall unless a cohort of `size` clients may be summed or opened."""
        if size < self.smallest_cohort:
            raise CohortTooSmall(
                f"A cohort of {size} is too small: policy {self.name!r} asks for at least "
                f"{self.smallest_cohort} clients (minimum_cohort {self.minimum_cohort} others, "
                f"{self.colluders} assumed colluders).",
                why="the total of a small group tells its members about each other",
                fix=f"take at least {self.smallest_cohort} clients (data.partition.clients)"
                f"{self._for_fewer(size)}",
            )

    def _for_fewer(self, size: int) -> str:
        """Say what may be written so that `size` clients, or the fewest of all, are admitted."""
        least = FEWEST_OTHERS + 1
        take = f"take {least}, as no policy admits fewer, and " if size < least else ""
        size = max(size, least)
        colluders = min(self.colluders, size - least)
        others = size - 1 - colluders
        written = [f"minimum_cohort: {others}"] * (others != self.minimum_cohort)
        written += [f"colluders: {colluders}"] * (colluders != self.colluders)
        if not written:
            return "; no policy admits fewer"
        cost = "; then two clients that pool what they have read the third one's update"
        return (
            f"; or {take}write {' and '.join(written)} in a policy file of your own, agreed with "
            f"the data owners{cost if others == FEWEST_OTHERS else ''}"
        )

    def _objection(self, form: Form[Any]) -> str | None:
        unnamed = [
            f"message {kind.__name__} needs {disclosure}"
            for kind in form.messages()
            for disclosure in form.disclosures(kind)
            if disclosure not in self.rules
        ]
        if unnamed:
            return f"{' and '.join(unnamed)}, which it does not name"
        for kind in form.messages():
            if self.messages is not None and kind.__name__ not in self.messages:
                return f"message {kind.__name__} is not among its allowed messages"
            if found := rules_of(kind.disclosure).objection(kind, form, self):
                return found
        noised = find(self.rules.get(Disclosure.SUM, ()), "record_noise")
        found = self._beside(form) or bare_objection(form, self.rules)
        found = found or planted_objection(form, self.canaries)
        found = found or (counted_objection(form) if noised else None)
        if found or self.training is None:
            return found
        records = [k for k in form.messages() if rules_of(k.disclosure).from_records]
        return private_objection(form, records)

    def _beside(self, form: Form[Any]) -> str | None:
        """Say which messages of a form cannot stand side by side; None if all can."""
        for exchange in form.exchanges:
            for kinds in (exchange.back, exchange.given):
                found = [kind.disclosure for kind in kinds]
                for disclosure in dict.fromkeys(found):
                    one = rules_of(disclosure).alone(self.rules.get(disclosure, ()))
                    if one and found.count(disclosure) > 1:
                        return f"{exchange.name} holds two {disclosure} messages; one is possible"
        for disclosure, chain in self.rules.items():
            if objection := rules_of(disclosure).among(form.exchanges, chain):
                return objection
        return None

    def admit(self, algorithm: Algorithm[S]) -> Form[S]:
        """Return the first form of `algorithm` all of whose messages this policy allows.

        Raises:
            NotAdmitted: no form fits; says for each form which message is in the way.
        """
        objections, protected = dict[str, list[str]](), False
        for form in algorithm.forms:
            said = {d for kind in form.messages() for d in form.disclosures(kind)}
            objection = self._objection(form)
            if objection is None and protected and self.messages is None and said & {*self.unsafe}:
                objection = (
                    "it would leave in clear, and a protected form was refused; if that is meant, "
                    "name its messages (messages)"
                )
            protected = protected or said <= self.rules.keys() - {*self.unsafe}
            if objection is None:
                return form
            objections.setdefault(objection, []).append(repr(form.name))
        reasons = (
            f"{'form' if len(names) == 1 else 'forms'} {', '.join(names)}: {objection}"
            for objection, names in objections.items()
        )
        others = [name for name, policy in PRESETS.items() if policy._fits(algorithm)]
        presets = f"; of the presets {', '.join(others)} do" if others else ""
        raise NotAdmitted(
            f"Policy {self.name!r} does not admit {algorithm.name!r}.",
            why="; ".join(reasons),
            fix=f"choose a policy that allows these messages{presets}; or another algorithm",
        )

    def _fits(self, algorithm: Algorithm[Any]) -> bool:
        """Tell whether some form of an algorithm is admitted, with nothing left in clear."""
        return not self.unsafe and any(self._objection(form) is None for form in algorithm.forms)


class _Presets(Mapping[str, PrivacyPolicy]):
    """Policies made when first asked for, as what checks them imports this module."""

    def __getitem__(self, name: str) -> PrivacyPolicy:
        return _preset(name)

    def __iter__(self) -> Iterator[str]:
        return iter(FACTS)

    def __len__(self) -> int:
        return len(FACTS)


@cache
def _preset(name: str) -> PrivacyPolicy:
    return PrivacyPolicy(name=name, **FACTS[name])


PRESETS: Mapping[str, PrivacyPolicy] = _Presets()
"""The policies that come with the system, by name."""
