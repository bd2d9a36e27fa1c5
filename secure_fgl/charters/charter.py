"""What all parties of a run agree on before round 1, signed by each of them.

The charter names the broker, and every party with its role, its organisation, its public keys and
the key of its connection to the broker. It holds plan, policy, configuration and what all agreed on
about tables of their own (``spec.yaml``). Each party signs the whole of it with its
signing key. So the broker's operator can neither give a role to another site nor put another key in
a party's place, and nobody can say later that it agreed to another plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError

from audits.evidence.charter_file import approved
from crypto.errors import CryptoError
from crypto.samplers import entropy
from crypto.signing.canonical import canonical, parse
from crypto.signing.signatures import SigningKey
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, EvidenceError, OtherVersion, SecureFglError
from protocols.plan.parties import roles_of
from protocols.plan.plan import Plan
from protocols.plan.steps import Step
from protocols.policy.policy import PrivacyPolicy
from protocols.strict import read_yaml
from protocols.wire.roster import AGGREGATOR_NAME, Party, Roster, run_id
from secure_fgl.charters.approvals import Approval, Refusal, Word, approvals, signature
from secure_fgl.charters.broker import Broker, is_public_key
from secure_fgl.charters.facts import (
    MALFORMED,
    nonce_of,
    party_of,
)
from secure_fgl.charters.organisations import crowded
from secure_fgl.charters.parties import SHOWN, nameless, strangers
from secure_fgl.charters.versions import installed, misstated
from secure_fgl.config import OWN, Config
from secure_fgl.config_values import asks_for_a_variable
from secure_fgl.data.own import OwnSpec
from secure_fgl.errors import UsageError

LIMIT = 64 << 20  # bytes; a plan of a thousand clients is far below
_END_DOMAIN = "charter end"
_WORDS = {"signatures", "refusals"}  # what parties say to it, and so no part of what they sign
_KEYS = {
    *("run", "nonce", "parties", "organisations", "carriers", "broker", "plan", "policy"),
    *("config", "spec"),
    "versions",
    *_WORDS,
}


@dataclass(frozen=True)
class Charter:
    """What a run's parties agreed on. Public to all of them.

    Attributes:
        nonce: 16 random bytes that make the run's name new.
        roster: all parties.
        carriers: by party name, the public key (NKey) of its connection to the broker.
        broker: the servers that carry the run.
        plan, policy, config: what is run.
        signatures: by party name, over `signed`.
        organisations: by party name, who it is, in words; of every party.
        spec: what sites agreed on about tables of their own; None where there are none.
        refusals: by party name. A charter that somebody refused never runs.
        versions: by program, with which it was drawn up and is run; see `rules.versions`.
    """

    nonce: bytes
    roster: Roster
    carriers: Mapping[str, str]
    broker: Broker
    plan: Plan
    policy: PrivacyPolicy
    config: Config
    signatures: Mapping[str, bytes]
    organisations: Mapping[str, str] = field(default_factory=dict)
    spec: OwnSpec | None = None
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def draw_up(
        cls,
        parties: Sequence[Party],
        carriers: Mapping[str, str],
        *,
        broker: Broker,
        plan: Plan,
        policy: PrivacyPolicy,
        config: Config,
        organisations: Mapping[str, str],
        spec: OwnSpec | None = None,
    ) -> Charter:
        """Return the charter that is put before the parties, signed by nobody yet.

        Paths, budgets and kept state are each party's own affair, so `config` loses them, and
        names the policy in place of the file that it came from.

        Raises:
            UsageError: its parts do not fit together.
            BadEnvelope: two parties have one name or key.
        """
        agreed = config.shared().model_copy(update={"policy": policy.name})
        drawn = cls(
            entropy(16), Roster(parties), dict(carriers), broker, plan, policy, agreed, {},
            organisations=dict(organisations), spec=spec, versions=installed(),
        )  # fmt: skip
        if wrong := next(drawn._contradictions(), ""):
            raise UsageError(
                f"No charter can be drawn up: {wrong}.",
                why="the parties' facts and the configuration do not belong together",
                fix="name the clients in data.partition.names, and ask every party of the plan "
                "for its facts; secure-fgl plan CONFIG says which roles there are, docs/pilot.md "
                "which of them are of two organisations",
            )
        return drawn

    @property
    def run(self) -> str:
        """The run's name; it changes with nonce, roster, plan or policy."""
        return run_id(self.nonce, self.roster, self.plan.digest, self.policy.digest)

    @property
    def signed(self) -> bytes:
        """SHA-256 over all of the charter but signatures and refusals."""
        return approved(self.document())

    def signed_by(self, name: str, key: SigningKey) -> Charter:
        """Return the charter with one more signature."""
        return replace(self, signatures={**self.signatures, name: signature(key, self.signed)})

    def refused_by(self, name: str, key: SigningKey, reason: str) -> Charter:
        """Return the charter with one more refusal; raises UsageError for what is no reason."""
        more = {name: Refusal.of(key, self.signed, reason)}
        return replace(self, refusals={**self.refusals, **more})

    def end(self, key: SigningKey) -> bytes:
        """Return the aggregator's word that the run of this charter is over, under its key."""
        return key.sign(_END_DOMAIN, self.signed)

    def check_end(self, note: bytes) -> None:
        """Raise BadEnvelope unless the aggregator says that the run of this charter is over."""
        try:
            self.roster.party(AGGREGATOR_NAME).verify.verify(_END_DOMAIN, note, self.signed)
        except CryptoError as error:
            raise BadEnvelope("The end of the run is not signed by its aggregator.") from error

    def check(self) -> None:
        """See that everybody agreed to the very same charter, and that it can be run.

        Raises:
            EvidenceError: at step ``charter``: a signature is missing or wrong, a party refused it,
                or `check_content` fails.
        """
        if wrong := self._moved():
            _fail(wrong)
        said = self.approvals()
        for name, approval in said.items():
            if approval.word is Word.REFUSED:
                _fail(f"{name} refused it: {approval.reason}")
        if silent := [name for name, approval in said.items() if approval.word is Word.NOTHING]:
            _fail(f"{', '.join(silent[:SHOWN])} did not sign it")
        self.check_content()

    def approvals(self) -> dict[str, Approval]:
        """Return what every party said to it; raises EvidenceError for signatures that are none."""
        return approvals(self.roster, self.signed, self.signatures, self.refusals)

    def check_content(self) -> None:
        """See that its parts fit together, and set nothing that is each site's own.

        Raises:
            EvidenceError: at step ``charter``: they do not; for example, its parties are not the
                plan's.
        """
        for wrong in self._contradictions():
            _fail(wrong)

    def _moved(self) -> str:
        names = {party["name"] for party in self.roster.document()}
        if set(self.carriers) != names or len(set(self.carriers.values())) != len(names):
            return "it does not give every party a connection of its own"
        return ""

    def _contradictions(self) -> Iterator[str]:
        """Say what does not fit together."""
        agreed, shared, plan = self.config, self.config.shared(), self.plan
        if wrong := self._moved():
            yield wrong
        yield from self.broker.wrong()
        if agreed != shared:
            found = [n for n in Config.model_fields if getattr(agreed, n) != getattr(shared, n)]
            yield f"it sets what is each site's own ({', '.join(found)})"
        if (agreed.policy, plan.policy_digest) != (self.policy.name, self.policy.digest):
            yield "its configuration or its plan names another policy than the one it holds"
        if self.policy.approvals:
            yield "its policy names approvers of a plan, and a charter is for parties to sign"
        if agreed.data.partition.called != plan.clients:
            yield "its configuration names other clients than its plan"
        yield from strangers(self.roster, roles_of(plan, self.policy))
        digest = self.spec.digest if self.spec is not None else ""
        if digest != plan.data.spec or (self.spec is not None) != (agreed.data.name == OWN):
            yield f"its spec has the digest {digest or '-'}, its plan says {plan.data.spec or '-'}"
        yield from self._of_organisations()
        yield from misstated(self.versions)

    def _of_organisations(self) -> Iterator[str]:
        names = {party["name"] for party in self.roster.document()}
        wrong = [*nameless(self.organisations, names)]
        yield from wrong
        if not wrong:
            roles = {name: self.roster.party(name).role for name in names}
            opened = {item.part for item in self.plan.all_of(step=Step.OPEN)}
            evaluated = [d for d in Disclosure if d in opened and d is not Disclosure.SUM]
            yield from crowded(self.organisations, roles, self.policy, evaluated)

    def document(self) -> dict[str, Any]:
        """Return the charter as plain data."""
        return {
            "run": self.run,
            "nonce": self.nonce.hex(),
            "parties": self.roster.document(),
            "organisations": dict(self.organisations),
            "carriers": dict(self.carriers),
            "broker": self.broker.document(),
            "plan": self.plan.text(),
            "policy": json.dumps(self.policy.document(), sort_keys=True),
            "config": self.config.agreed_text(),
            "spec": self.spec.text if self.spec is not None else None,
            "versions": dict(self.versions),
            "signatures": {name: value.hex() for name, value in self.signatures.items()},
            "refusals": {
                name: {"reason": refusal.reason, "signature": refusal.signature.hex()}
                for name, refusal in self.refusals.items()
            },
        }

    def encode(self) -> bytes:
        """Return the charter as the bytes that are saved."""
        return canonical(self.document())

    @classmethod
    def decode(cls, data: bytes) -> Charter:
        """Read a charter strictly; :meth:`check` says whether it may be trusted.

        Raises:
            EvidenceError: at step ``charter``: not in the form in which charters are saved.
            OtherVersion: its plan is one of an older or a newer program.
        """
        try:
            document = parse(data, limit=LIMIT)
            plan = Plan.model_validate_json(document["plan"])  # first: it says of which version
            if set(document) != _KEYS:
                _fail("it does not hold exactly what a charter holds")
            charter = cls(
                nonce_of(document["nonce"]),
                Roster([party_of(entry) for entry in document["parties"]]),
                dict(document["carriers"]),
                Broker.of(document["broker"]),
                plan,
                PrivacyPolicy.model_validate_json(document["policy"]),
                _config(document["config"]),
                {name: bytes.fromhex(text) for name, text in document["signatures"].items()},
                dict(document["organisations"]),
                OwnSpec.of_text(document["spec"]) if document["spec"] is not None else None,
                {n: _refusal(entry) for n, entry in document["refusals"].items()},
                dict(document["versions"]),
            )
            if not all(map(is_public_key, charter.carriers.values())):
                raise ValueError("a connection's key is none")
        except (EvidenceError, OtherVersion):
            raise
        except (CryptoError, SecureFglError, ValidationError, *_MALFORMED) as error:
            raise EvidenceError("charter", "it cannot be read") from error
        if charter.encode() != data:
            _fail("it is not in the form in which charters are saved")
        return charter


_MALFORMED = (*MALFORMED, yaml.YAMLError)


def _refusal(entry: Mapping[str, str]) -> Refusal:
    return Refusal(entry["reason"], bytes.fromhex(entry["signature"]))


def _config(text: str) -> Config:
    document = read_yaml(text)
    if not isinstance(document, dict):
        _fail("its configuration is no configuration")
    if asks_for_a_variable(document):  # what others wrote must not read this party's environment
        _fail("its configuration asks for a variable")
    return Config.model_validate(document)


def _fail(what: str) -> NoReturn:
    raise EvidenceError("charter", what)
