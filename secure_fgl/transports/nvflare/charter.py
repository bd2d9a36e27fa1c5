"""What all parties of a run agree on before round 1, signed by each of them.

The charter names every party with its role, its public keys and the site of the engine at which
it is reached, and holds plan, policy and configuration. Each party signs the whole of it with the
key that it is named with. So whoever runs the engine can neither give a role to another site nor
put another key in a party's place, and nobody can say later that it agreed to another plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError

from crypto.errors import CryptoError
from crypto.hpke import SealingKey
from crypto.samplers import entropy
from crypto.signing.canonical import canonical, parse
from crypto.signing.signatures import SigningKey, VerifyKey
from protocols.errors import BadEnvelope, EvidenceError, OtherVersion, SecureFglError
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.strict import read_yaml
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, Party, Roster, run_id
from secure_fgl.config import Config
from secure_fgl.config_values import asks_for_a_variable

LIMIT = 64 << 20  # bytes; a plan of a thousand clients is far below
_DOMAIN = "charter"
_END_DOMAIN = "charter end"
_KEYS = {"run", "nonce", "parties", "sites", "plan", "policy", "config", "signatures"}


@dataclass(frozen=True)
class Charter:
    """What a run's parties agreed on. Public to all of them.

    Attributes:
        nonce: 16 random bytes that make the run's name new.
        roster: all parties.
        sites: by party name, the engine's name of the site where it is reached.
        plan, policy, config: what is run.
        signatures: by party name, over `signed`.
    """

    nonce: bytes
    roster: Roster
    sites: Mapping[str, str]
    plan: Plan
    policy: PrivacyPolicy
    config: Config
    signatures: Mapping[str, bytes]

    @classmethod
    def draw_up(
        cls,
        parties: Sequence[Party],
        sites: Mapping[str, str],
        *,
        plan: Plan,
        policy: PrivacyPolicy,
        config: Config,
    ) -> Charter:
        """Return the charter that is put before the parties, signed by nobody yet.

        Paths, budgets and kept state are each party's own affair, so `config` loses them, and
        names the policy in place of the file that it came from.
        """
        agreed = config.shared().model_copy(update={"policy": policy.name})
        return cls(entropy(16), Roster(parties), dict(sites), plan, policy, agreed, {})

    @property
    def run(self) -> str:
        """The run's name; it changes with nonce, roster, plan or policy."""
        return run_id(self.nonce, self.roster, self.plan.digest, self.policy.digest)

    @property
    def signed(self) -> bytes:
        """SHA-256 over all of the charter but its signatures."""
        document = {key: value for key, value in self.document().items() if key != "signatures"}
        return hashlib.sha256(canonical(document)).digest()

    def signed_by(self, name: str, key: SigningKey) -> Charter:
        """Return the charter with one more signature."""
        signatures = {**self.signatures, name: key.sign(_DOMAIN, self.signed)}
        return Charter(
            self.nonce, self.roster, self.sites, self.plan, self.policy, self.config, signatures
        )

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
        """See that everybody agreed to the very same charter.

        Raises:
            EvidenceError: at step ``charter``: a signature is missing or wrong, two parties are at
                one site, or it sets what is each site's own.
        """
        names = {party["name"] for party in self.roster.document()}
        if set(self.sites) != names or len(set(self.sites.values())) != len(names):
            _fail("it does not give every party a site of its own")
        if set(self.signatures) != names:
            _fail("a party did not sign it, or a stranger did")
        for name in sorted(names):
            try:
                key = self.roster.party(name).verify
                key.verify(_DOMAIN, self.signatures[name], self.signed)
            except CryptoError as error:
                raise EvidenceError("charter", f"{name} signed another charter") from error

        self.check_settings()

    def check_settings(self) -> None:
        """See that nobody else sets what is this site's own; raises EvidenceError."""
        agreed, shared = self.config, self.config.shared()
        if agreed != shared:
            found = [n for n in Config.model_fields if getattr(agreed, n) != getattr(shared, n)]
            _fail(f"it sets what is each site's own ({', '.join(found)})")
        if agreed.policy != self.policy.name:
            _fail("its configuration names another policy than the one it holds")

    def document(self) -> dict[str, Any]:
        """Return the charter as plain data."""
        return {
            "run": self.run,
            "nonce": self.nonce.hex(),
            "parties": self.roster.document(),
            "sites": dict(self.sites),
            "plan": self.plan.text(),
            "policy": json.dumps(self.policy.document(), sort_keys=True),
            "config": self.config.text(),
            "signatures": {name: value.hex() for name, value in self.signatures.items()},
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
            if not isinstance(document, dict) or set(document) != _KEYS:
                _fail("it does not hold exactly what a charter holds")
            plan = Plan.model_validate_json(document["plan"])  # first: it says of which version
            charter = cls(
                bytes.fromhex(document["nonce"]),
                Roster([_party(entry) for entry in document["parties"]]),
                dict(document["sites"]),
                plan,
                PrivacyPolicy.model_validate_json(document["policy"]),
                _config(document["config"]),
                {name: bytes.fromhex(text) for name, text in document["signatures"].items()},
            )
        except (EvidenceError, OtherVersion):
            raise
        except (CryptoError, SecureFglError, ValidationError, *_MALFORMED) as error:
            raise EvidenceError("charter", "it cannot be read") from error
        if charter.encode() != data:
            _fail("it is not in the form in which charters are saved")
        return charter


_MALFORMED = (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError)


def party_of(document: Mapping[str, str]) -> Party:
    """Return a party from the public facts that it announced; raises EvidenceError."""
    try:
        return _party(document)
    except (CryptoError, SecureFglError, *_MALFORMED) as error:
        raise EvidenceError("charter", "a party's public facts cannot be read") from error


def _party(entry: Mapping[str, str]) -> Party:
    verify, seal = VerifyKey(bytes.fromhex(entry["verify"])), bytes.fromhex(entry["seal"])
    return Party(entry["name"], Role(entry["role"]), verify, SealingKey.from_bytes(seal))


def _config(text: str) -> Config:
    document = read_yaml(text)
    if not isinstance(document, dict):
        _fail("its configuration is no configuration")
    if asks_for_a_variable(document):  # what others wrote must not read this party's environment
        _fail("its configuration asks for a variable")
    return Config.model_validate(document)


def _fail(what: str) -> NoReturn:
    raise EvidenceError("charter", what)
