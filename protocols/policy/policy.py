"""The privacy policy: what the data owner allows, in which protected form. Deny by default."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from protocols.disclosures.match.guards import SMALLEST_CELL, Match
from protocols.disclosures.mixed.guards import Mix, Relay
from protocols.disclosures.mixed.layout import mixed_fields
from protocols.disclosures.names import Disclosure
from protocols.errors import CohortTooSmall, NotAdmitted, PolicyError
from protocols.evidence.capture import Capture
from protocols.forms import Algorithm, Form
from protocols.messages import Message
from protocols.policy.admission import form_objection, private_objection, rows_objection
from protocols.policy.budget import Budget
from protocols.policy.chains import check_chain
from protocols.policy.guards import (
    Ckks,
    Clip,
    Cosine,
    Guard,
    He,
    Mask,
    Noise,
    Normalise,
    Quantise,
    Seal,
    Sign,
    UnsafeClear,
    Weigh,
    evaluated,
    find,
)
from protocols.privacy.training import Training
from protocols.strict import Strict, nearest, problems, read_yaml

__all__ = ["PRESETS", "Budget", "Capture", "PrivacyPolicy"]

S = TypeVar("S")


class PrivacyPolicy(Strict):
    """What may leave a client, and how.

    Attributes:
        name: shown in plan, ledger and report.
        rules: per disclosure the chain of guards; a disclosure that is not named is refused.
        minimum_cohort: how many *other* clients must be in every cohort, at least 3 (O10).
        colluders: how many clients are assumed to collude; added to the minimum.
        rekey_rounds: after so many rounds every key and pair secret is made anew (O9).
        budget: what all runs together may spend of this site's data set (O20); needed with noise.
        capture: what every party keeps of its own rounds, locked, for audits; None: nothing.
        training: how clients train so that single records stay hidden; None: as they like.
        holders: how many clients, beside `colluders`, must hold a row where a message without noise
            has rows: the clients that rated an item (O12); 1: one is enough. That they do is the
            aggregator's word.
        messages: message types that may be said; None allows every type whose disclosure is named.
    """

    name: str = Field(min_length=1, max_length=40, pattern=r"^[a-z0-9_-]+$")
    rules: dict[Disclosure, tuple[Guard, ...]] = Field(min_length=1)
    minimum_cohort: int = Field(default=3, ge=3, le=10_000, strict=True)
    colluders: int = Field(default=0, ge=0, le=10_000, strict=True)
    rekey_rounds: int = Field(default=50, ge=1, le=10_000, strict=True)
    budget: Budget | None = None
    capture: Capture | None = None
    training: Training | None = None
    holders: int = Field(default=1, ge=1, le=10_000, strict=True)
    messages: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _chains_are_complete(self) -> PrivacyPolicy:
        for disclosure, chain in self.rules.items():
            check_chain(disclosure, chain)
        if self.budget is None and find(self.rules.get(Disclosure.SUM, ()), "noise"):
            raise ValueError("noise needs a budget: what all runs together may spend (O20)")
        for disclosure, chain in self.rules.items():
            guard = evaluated(chain)
            unbounded = guard is not None or find(chain, "mix") or find(chain, "match")
            if unbounded and self.budget is not None:
                raise ValueError(f"{disclosure} cannot be accounted, and there is a budget (O16)")
            if isinstance(guard, Weigh) and guard.top is not None and guard.top <= self.others:
                raise ValueError(f"top: more than the {self.others} others of minimum_cohort")
            if not isinstance(match := find(chain, "match"), Match):
                continue
            if match.form == "cell_means" and match.cell < self.smallest_cell:
                raise ValueError(f"cell: at least {self.smallest_cell}, colluders counted (O10)")
            if match.floor < 3 + self.colluders:
                raise ValueError(f"floor: at least {3 + self.colluders}, colluders counted (O10)")
        return self

    @classmethod
    def preset(cls, name: str) -> PrivacyPolicy:
        """Return a preset by name; raises PolicyError naming the nearest preset."""
        if name not in PRESETS:
            raise PolicyError(
                f"There is no policy preset {name!r}.", fix=nearest(name, sorted(PRESETS))
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
        path = Path(source)
        if not path.is_file():
            raise PolicyError(
                f"{str(source)!r} is neither a policy preset nor a file.",
                fix=f"{nearest(str(source), sorted(PRESETS))}; or give the path of a policy file",
            )
        try:
            return cls.model_validate(read_yaml(path.read_text("utf-8")))
        except (ValidationError, yaml.YAMLError, UnicodeDecodeError) as error:
            why = problems(error) if isinstance(error, ValidationError) else "it is not YAML"
            raise PolicyError(
                f"{path} is not a valid policy.", why=why, fix="secure-fgl schema policy"
            ) from error

    def checked(self) -> PrivacyPolicy:
        """Return a copy of one's own that was validated anew.

        A policy object can be changed after it was made; what plans and parties hold was not.

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
        """Return the policy as plain data, in a stable order."""
        return self.model_dump(mode="json")

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
    def others(self) -> int:
        """Clients beside the receiver that a result must rest on, in numbers or in effect (O10)."""
        return self.minimum_cohort + self.colluders

    @property
    def smallest_cohort(self) -> int:
        """Clients that must take part, the receiver itself included."""
        return self.others + 1

    @property
    def smallest_cell(self) -> int:
        """Clients that a cell of matched clients holds at least, besides colluders five (O25)."""
        return max(self.smallest_cohort, SMALLEST_CELL + self.colluders)

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
                fix="take more clients, or agree on another minimum_cohort with the data owners",
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
            chain = self.rules.get(kind.disclosure, ())
            if evaluated(chain) is not None and (objection := self._not_computed(kind, form.top)):
                return objection
            if kind.disclosure is Disclosure.MIXED:
                mixed_fields(kind)  # raises for a message that cannot be mixed
                if form.unmixed and find(chain, "mix"):
                    return (
                        f"message {kind.__name__} would hold single records (mixup: false), which "
                        "no rule that mixes lets out; have them mixed, or take unsafe_plaintext "
                        "for a baseline on data that may be seen"
                    )
            noised = find(chain, "noise")
            if few := rows_objection(kind, form, chain, self.holders, self.colluders):
                return few
            if noised and any(field.wire == "u8" for field in kind.fields):
                return f"message {kind.__name__} holds exact counts, which its noise cannot cover"
        if found := form_objection(form, self.rules):
            return found
        return private_objection(form) if self.training is not None else None

    def _not_computed(self, kind: type[Message], top: int | None) -> str | None:
        """Say why a message cannot be computed with while it is encrypted; None if it can."""
        if any(field.wire not in ("f4", "f8") for field in kind.fields):
            return f"message {kind.__name__} holds counts, which cannot be weighed or compared"
        if kind.disclosure is Disclosure.SIMILARITY and len(kind.fields) != 1:
            return f"message {kind.__name__} holds more than the one vector that is compared"
        weighed = kind.disclosure is Disclosure.WEIGHTED_SUM
        if weighed and self.colluders:
            # Each row is checked alone, and two receivers can take one's row off the other's.
            return f"rows of message {kind.__name__} tell colluding receivers more than each alone"
        if weighed and top is not None and top <= self.others:
            return (
                f"rows of message {kind.__name__} would weigh {top} others at most (top), and must "
                f"rest on {self.others} in effect; give no top, or more than {self.others}"
            )
        return None

    def admit(self, algorithm: Algorithm[S]) -> Form[S]:
        """Return the first form of `algorithm` all of whose messages this policy allows.

        Raises:
            NotAdmitted: no form fits; says for each form which message is in the way.
        """
        objections: dict[str, list[str]] = {}
        protected = False
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


_CONTROL: dict[Disclosure, tuple[Guard, ...]] = {
    Disclosure.SEALED: (Seal(),),
    Disclosure.RELEASED: (Seal(),),
    Disclosure.PUBLIC: (Sign(),),
}
_INTEGERS: tuple[Guard, ...] = (Clip(), Quantise())
_HE: tuple[Guard, ...] = (*_INTEGERS, Mask(), He(), Seal())
_NOISED: tuple[Guard, ...] = (
    Clip(norm="l2", bound=1.0),
    Quantise(),
    Noise(epsilon=8.0, delta=1e-5),
    Mask(),
    Seal(),
)
_CLEAR: tuple[Guard, ...] = (UnsafeClear(),)


_EVALUATED: dict[Disclosure, tuple[Guard, ...]] = {
    # Models, not their changes: a weight beyond 4 is cut off, and the ledger says so.
    Disclosure.WEIGHTED_SUM: (Clip(bound=4.0), Quantise(bits=15), Weigh(), Seal()),
    Disclosure.SIMILARITY: (Normalise(), Cosine(), Seal()),
}
_MIXED: tuple[Guard, ...] = (Clip(norm="l2", bound=16.0), Mix(), Seal())
_SHUFFLED: tuple[Guard, ...] = (*_MIXED[:2], Relay(), Seal())


def _preset(
    name: str, chain: tuple[Guard, ...], *, mixed: tuple[Guard, ...] = _MIXED, **more: Any
) -> PrivacyPolicy:
    noised = find(chain, "noise") is not None  # cosines and combinations have no noise (O16)
    rules = {Disclosure.SUM: chain, **({} if noised else _EVALUATED), **_CONTROL}
    if mixed:
        rules[Disclosure.MIXED] = mixed
    return PrivacyPolicy(name=name, rules=rules, **{"capture": Capture(), **more})


PRESETS: dict[str, PrivacyPolicy] = {
    "pilot": _preset("pilot", _HE),
    "he": _preset("he", _HE),
    # As pilot, and a relay takes the senders off mixtures: one more organisation.
    "shuffled": _preset("shuffled", _HE, mixed=_SHUFFLED),
    "masks": _preset("masks", (*_INTEGERS, Mask(), Seal())),
    # strict: what is computed from many clients together, rows of items included, and no mixture of
    # one client's records.
    "strict": _preset("strict", (*_INTEGERS, Mask(), Seal()), mixed=(), capture=None, holders=4),
    "ckks": _preset("ckks", (*_INTEGERS, Mask(), Ckks(), Seal())),
    "calibrated": _preset("calibrated", _NOISED, mixed=(), budget=Budget(epsilon=10.0, delta=1e-5)),
    "unsafe_plaintext": PrivacyPolicy(
        name="unsafe_plaintext",
        capture=Capture(),
        rules={
            Disclosure.SUM: (*_INTEGERS, UnsafeClear()),
            Disclosure.WEIGHTED_SUM: _CLEAR,
            Disclosure.SIMILARITY: _CLEAR,
            Disclosure.MATCH: _CLEAR,
            Disclosure.MIXED: _CLEAR,
            Disclosure.NOISED: _CLEAR,
            **_CONTROL,
        },
    ),
}
