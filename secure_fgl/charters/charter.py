"""What each party said to a charter: signed, refused, or nothing yet.

A signature cannot be taken back: whoever holds a copy with it and without a later refusal has a
charter that all signed. So a party that refused keeps a note of it (`joining.refuse`), and neither
signs, keeps nor starts that charter any more, whatever copy it is handed.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import metadata
from itertools import combinations
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError

from audits.evidence.charter_file import APPROVAL, approved
from crypto.errors import CryptoError
from crypto.samplers import entropy
from crypto.signing import SigningKey, VerifyKey, canonical, parse
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, EvidenceError, OtherVersion, SecureFglError
from protocols.plan.plan import Plan, drift, roles_of
from protocols.plan.steps import Step
from protocols.policy.policy import PrivacyPolicy
from protocols.strict import read_yaml
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, Party, Roster, run_id
from secure_fgl.charters.broker import Broker, is_public_key
from secure_fgl.charters.facts import (
    MALFORMED,
    fingerprint,
    misnamed_organisation,
    nonce_of,
    party_of,
)
from secure_fgl.config import OWN, Config, asks_for_a_variable
from secure_fgl.data.own import OwnSpec
from secure_fgl.errors import UsageError

LONGEST_REASON = 500
_REFUSAL = "charter refusal"


@dataclass(frozen=True)
class Refusal:
    """One party's signed no, with its reason in words, made or read.

    Raises:
        UsageError: the reason is empty, too long, or of more than one line: all others print it.
    """

    reason: str
    signature: bytes

    def __post_init__(self) -> None:
        """See what the class says."""
        said: object = self.reason
        if (
            not isinstance(said, str)
            or not 1 <= len(said) <= LONGEST_REASON
            or not said.isprintable()
        ):
            raise UsageError(
                "This is no reason that a refusal can hold.",
                why=f"it takes 1 to {LONGEST_REASON} printable characters on one line",
                fix="--reason 'why, in a sentence; all parties will read it'",
            )

    @classmethod
    def of(cls, key: SigningKey, charter: bytes, reason: str) -> Refusal:
        """Refuse a charter, by what is signed of it; raises UsageError for what is no reason."""
        return cls(reason, key.sign(_REFUSAL, _said(charter, reason)))

    def check(self, key: VerifyKey, charter: bytes) -> None:
        """Raise CryptoError unless this key refused that charter for that reason."""
        key.verify(_REFUSAL, self.signature, _said(charter, self.reason))


def _said(charter: bytes, reason: str) -> bytes:
    return canonical([charter.hex(), reason])


def signature(key: SigningKey, charter: bytes) -> bytes:
    """Return a party's signature over a charter, by what is signed of it."""
    return key.sign(APPROVAL, charter)


class Word(StrEnum):
    """What a party said."""

    SIGNED = "signed"
    REFUSED = "refused"
    NOTHING = "nothing yet"


@dataclass(frozen=True)
class Approval:
    """Attributes: word, and the reason of a refusal."""

    word: Word
    reason: str = ""


def approvals(
    roster: Roster,
    signed: bytes,
    signatures: Mapping[str, bytes],
    refusals: Mapping[str, Refusal],
) -> dict[str, Approval]:
    """Return what every party said, each signature verified; a refusal counts more.

    Args:
        roster: of the charter.
        signed: what parties sign of it.
        signatures: by party name.
        refusals: by party name.

    Raises:
        EvidenceError: at step ``charter``: a stranger signed, or a signature is another one's or
            of another charter.
    """
    names = {party["name"] for party in roster.document()}
    if {*signatures, *refusals} - names:
        raise EvidenceError("charter", "a stranger signed it")
    found = {}
    for name in sorted(names):
        key, refusal = roster.party(name).verify, refusals.get(name)
        found[name] = Approval(Word.SIGNED if name in signatures else Word.NOTHING)
        try:
            if name in signatures:
                key.verify(APPROVAL, signatures[name], signed)
            if refusal is not None:
                refusal.check(key, signed)
                found[name] = Approval(Word.REFUSED, refusal.reason)
        except CryptoError as error:
            raise EvidenceError("charter", f"{name} signed another charter") from error
    return found


# --- Which roles are of two organisations, and how many organisations a total rests on ---
#
# Two roles are kept apart where the threat model counts on it that they do not work together
# (docs/threat-model.md). Clients of one organisation do: all but one of them are colluders, which a
# policy counts in `colluders`. With as many of them in the policy, every cohort that it lets
# through rests on `minimum_cohort` organisations beside the receiver's, whoever vanishes. Where the
# aggregator, a witness or a tag server is of a client's organisation, all clients of that
# organisation are colluders: they answer holders' questions both ways for it (O7). What is compared
# or weighed is refused where a client's organisation is the aggregator's, the key authority's or a
# witness's, since a client that works with any of them brings out the key of all that is compared
# or weighed in an epoch (LIMITATIONS.md, L1.2). No client is of the matcher's organisation: the two
# together guess items, and learn by name who holds them.
#
# Organisations are what a charter says. That two names are one owner no program knows; names that
# differ in capitals, blanks, accents or signs alone are one. Names that only look alike, in
# Cyrillic or Greek letters that are drawn as Latin ones are, or with a Latin i or j without its
# dot, are refused. What that does not see: letters of one script that look alike (I, l and 1; O and
# 0; rn and m), two letters drawn as one, letters of other scripts (Armenian, Cherokee, Coptic and
# all others), letters with strokes or hooks beside those without, and names that differ and sound
# like one organisation.

FEWEST = 3
"""Organisations with data, at least, under any policy: of a total of two each reads the other's."""

THREE = (
    "a total of three is to each of them, less its own part, the total of two, and two that pool "
    "theirs read the third's (O10, ADR 0092); let a fourth holder of data take part with data of "
    "its own: not one hospital twice, which counts once, and nobody without data, whose part the "
    "others know to be nothing; or let all three agree on a policy that says minimum_cohort: 2"
)
"""Why three organisations are refused unless a policy asks for them, and what can be done."""

_APART: tuple[tuple[Role, Role, str], ...] = (
    (
        Role.AGGREGATOR,
        Role.KEY_AUTHORITY,
        "together they open what is compared or weighed, and uploads without masks",
    ),
    (Role.AGGREGATOR, Role.WITNESS, "it would check itself, and could have a single upload opened"),
    (Role.AGGREGATOR, Role.RELAY, "it would know whose every message is"),
    (Role.AGGREGATOR, Role.MATCHER, "it would know by name who has how much in common with whom"),
    (Role.AGGREGATOR, Role.TAG_SERVER, "tags are closed by two who are not the aggregator"),
    (Role.KEY_AUTHORITY, Role.WITNESS, "together they open everything compared or weighed"),
    (Role.MATCHER, Role.TAG_SERVER, "who compares tags must not make them"),
    (Role.TAG_SERVER, Role.TAG_SERVER, "with both shares of the key all tags are open"),
    (Role.WITNESS, Role.WITNESS, "two witnesses of one organisation are one"),
)

COUNTED = frozenset({Role.AGGREGATOR, Role.WITNESS, Role.TAG_SERVER})
"""Roles whose organisation's own clients are colluders, all of them: they work with the one that
answers holders' questions for them, checks it, or closes their tags."""

_OPENERS = frozenset({Role.AGGREGATOR, Role.KEY_AUTHORITY, Role.WITNESS})
"""Roles of which each, with one client, brings out the key of what is compared or weighed."""


_DRAWN_ALIKE = str.maketrans(
    "АВСЕԌНІЈКМОРЅТѴԜХУҮҺԚӀЬӔӘԐаԁеһіјӏорԛгѕѵԝхуүсꙇвкмнтпԍӕәԑΑΒΕϜΖΗΙͿΚΜϺΝΟΡΤΥΧϷαβειϳκνορστυχγϸηıȷɑɡ",
    "ABCEGHIJKMOPSTVWXYYHQIbÆƏƐadehijlopqrsvwxyycibkmhtngæəɛABEFZHIJKMMNOPTYXÞaßeijkvopotuxyþnijag",
)
"""Letters that fonts draw as Latin ones (UTS 39, confusables): Cyrillic and Greek, large and small,
with the small ones that are drawn as Latin small capitals, and Latin ones without their dot."""


def same_owner(organisation: str) -> str:
    """Return what is the same for two names of one organisation, or for two that look alike."""
    bare = unicodedata.normalize("NFKD", organisation)
    return _plain(bare.translate(_DRAWN_ALIKE))


def _plain(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


def alike(organisations: Iterable[str]) -> Iterator[str]:
    """Say which names are of other letters and look the same."""
    seen: dict[str, str] = {}
    for name in sorted({*organisations}):
        other = seen.setdefault(same_owner(name), name)
        bare = (_plain(unicodedata.normalize("NFKD", text)) for text in (other, name))
        if len({*bare}) > 1:
            yield f"{other!r} and {name!r} look alike and are of other letters"


def crowded(
    organisations: Mapping[str, str],
    roles: Mapping[str, Role],
    policy: PrivacyPolicy,
    evaluated: Collection[Disclosure] = (),
) -> Iterator[str]:
    """Say which organisation is in two roles that are kept apart, or counts for too many clients.

    Args:
        organisations: by party name, of every party.
        roles: by party name.
        policy: of the run.
        evaluated: what is compared or weighed on ciphertexts in it.
    """
    owned: dict[str, list[str]] = {}
    for name in sorted(roles):
        if roles[name] is not Role.CLIENT:
            owned.setdefault(same_owner(organisations[name]), []).append(name)
    for names in owned.values():
        for one, other in combinations(names, 2):
            yield from _together(one, other, roles, organisations[one])
    if (inside := insiders(organisations, roles, _OPENERS)) and evaluated:
        yield (
            f"{', '.join(inside)}: of the organisation of the aggregator, the key authority or a "
            "witness, and a client that works with any of them brings out the key of what is "
            f"compared or weighed ({' and '.join(evaluated)}): another organisation is needed"
        )
    if inside := insiders(organisations, roles, {Role.MATCHER}):
        yield (
            f"{', '.join(inside)}: of the matcher's organisation, and a client that works with it "
            "learns by name who holds which of the items it guesses: another organisation is needed"
        )
    # Where sums are in clear the aggregator reads uploads without a client's help.
    helped = {Role.TAG_SERVER} if Disclosure.SUM in policy.unsafe else COUNTED
    theirs = {same_owner(organisations[name]) for name in insiders(organisations, roles, helped)}
    clients = [name for name, role in roles.items() if role is Role.CLIENT]
    yield from _counted([organisations[name] for name in clients], len(theirs), policy)


def insiders(
    organisations: Mapping[str, str],
    roles: Mapping[str, Role],
    helped: Collection[Role] = COUNTED,
) -> list[str]:
    """Return the clients that are of the organisation of a party in such a role, sorted."""
    theirs = {same_owner(organisations[name]) for name, role in roles.items() if role in helped}
    clients = sorted(name for name, role in roles.items() if role is Role.CLIENT)
    return [name for name in clients if same_owner(organisations[name]) in theirs]


def _together(one: str, other: str, roles: Mapping[str, Role], organisation: str) -> Iterator[str]:
    for first, second, why in _APART:
        if (roles[one], roles[other]) in ((first, second), (second, first)):
            yield (
                f"{one} and {other} are both of {organisation!r}, and {why}: two organisations are "
                "needed"
            )


def _counted(owners: Sequence[str], inside: int, policy: PrivacyPolicy) -> Iterator[str]:
    """Say which number of a policy is below what its clients' organisations ask for.

    Args:
        owners: the organisation of each client.
        inside: how many of these organisations are in a role that counts them (`COUNTED`).
        policy: of the run.
    """
    count = len({*map(same_owner, owners)})
    twice, more = len(owners) - count, len(owners) - count + inside
    wanted = policy.minimum_cohort + 1
    if count < wanted:
        counted = (
            f"its {len(owners)} clients are of {_organisations(count)}, of which each counts once"
        )
        yield f"{counted}, and policy {policy.name!r} wants {wanted} ({THREE})"
    elif more > policy.colluders:
        better = "one client of each take part" if twice else "another organisation have that role"
        helping = f", {inside} of them with a role of trust beside" if inside else ""
        yield (
            f"its {len(owners)} clients are of {_organisations(count)}{helping}, and policy "
            f"{policy.name!r} lets cohorts of {policy.smallest_cohort} clients through, of which "
            f"{policy.smallest_cohort - more} may be of organisations that work with nobody: say "
            f"colluders: {more} in the policy, or let {better}"
        )


def too_few(owners: Iterable[str]) -> str:
    """Return why so many organisations with data are too few under any policy; empty if not.

    Args:
        owners: the organisation of each client.
    """
    count = len({*map(same_owner, owners)})
    if count >= FEWEST:
        return ""
    return (
        f"{_organisations(count)} with data, and a total is over {FEWEST} at least: of a total "
        f"of two each one, less its own part, reads the other's. Better still are four: {THREE}"
    )


def _organisations(count: int) -> str:
    return "1 organisation" if count == 1 else f"{count} organisations"


# --- Of which versions the programs are with which parties agreed to run ---

PROGRAMS = ("secure-fgl",)
_LONGEST = 40


def installed() -> dict[str, str]:
    """Return the version of each program in this environment; empty where it is not installed."""
    return {name: _version(name) for name in PROGRAMS}


def check_versions(agreed: Mapping[str, str]) -> None:
    """See that the programs of this environment are of the versions that a charter names.

    Two versions may read one message differently, and a plan's digests cover our code alone. One
    that is not installed here, or was not where the charter was drawn up, is not compared.

    Raises:
        UsageError: one is of another version; both numbers are named.
    """
    for name, here in installed().items():
        wanted = agreed.get(name, "")
        if here and wanted and here != wanted:
            raise UsageError(
                f"The charter is for {name} {wanted}, and this environment has {name} {here}.",
                why="all parties of a run use one version; nothing was sent",
                fix=f"install {name}=={wanted} here, or draw up a charter with what all have",
            )


def misstated(versions: Mapping[str, str]) -> Iterator[str]:
    """Say why these are not what a charter says of versions."""
    if set(versions) != set(PROGRAMS):
        yield f"it does not name the version of {' and '.join(PROGRAMS)}"
    for version in versions.values():
        if not isinstance(version, str) or len(version) > _LONGEST or not version.isprintable():
            yield "it names a version that is none"
            return


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


# --- Roster and organisations of a charter are the plan's, and are called as they may be ---

SHOWN = 5
"""Names in one sentence."""


def strangers(roster: Roster, planned: Mapping[str, Role]) -> Iterator[str]:
    """Say which parties are not the plan's, and which of the plan's are missing."""
    there = {party["name"]: party["role"] for party in roster.document()}
    missing, more = sorted({*planned} - {*there}), sorted({*there} - {*planned})
    if missing or more:
        told = ", ".join(missing[:SHOWN]) or "nobody", ", ".join(more[:SHOWN]) or "nobody"
        yield f"its parties are not the plan's (missing: {told[0]}; strangers: {told[1]})"
    for name in sorted({*planned} & {*there}):
        if there[name] != planned[name]:
            yield f"{name} is {there[name]} in it, and {planned[name]} in its plan"


def nameless(organisations: Mapping[str, str], names: set[str]) -> Iterator[str]:
    """Say whose organisation is not named, or is named as none may be."""
    if set(organisations) != names:
        yield "it does not name the organisation of every party"
    for name, organisation in organisations.items():
        if wrong := misnamed_organisation(organisation):
            yield f"the organisation of {name} {wrong}"
    yield from alike(organisations.values())


# --- What all parties of a run agree on before round 1, signed by each of them ---
#
# The charter names the broker, and every party with its role, its organisation, its public keys and
# the key of its connection to the broker. It holds plan, policy, configuration and what all agreed
# on about tables of their own (``spec.yaml``). Each party signs the whole of it with its signing
# key. So the broker's operator can neither give a role to another site nor put another key in a
# party's place, and nobody can say later that it agreed to another plan.

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


# --- What a charter asks for that an earlier one did not ---

_LONGEST_CHANGES = 60
"""Characters of a value that is shown."""


def changes(old: Charter, new: Charter) -> list[str]:
    """List what `new` says that `old` did not; empty if nothing is new.

    Of plans only what goes beyond (`protocols.plan.plan`), of all else every difference; not who
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
    return text if len(text) <= _LONGEST_CHANGES else text[: _LONGEST_CHANGES - 3] + "..."
