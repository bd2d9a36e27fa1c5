"""What follows from the names of a cohort, kept by the tuple that holds them.

A cohort of thousands of names is looked up a dozen times for every envelope of a sum. To find it
by its value, all its names are hashed each time; here it is found by which tuple it is, which takes
as long for six thousand as for six. A tuple of texts never changes, and a party that decodes one
cohort twice gets one tuple (`Roster.unmask`), so a party by itself finds its cohort here as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from crypto.hpke import OpeningKey, SealingKey
from crypto.samplers import derive
from crypto.signing import SigningKey, VerifyKey, canonical
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope
from protocols.messages import Array, Message, names
from protocols.wire.codec import encode
from protocols.wire.roles import Role, most

P = ParamSpec("P")
V = TypeVar("V")
_MOST = 64


def by_names(
    function: Callable[Concatenate[tuple[str, ...], P], V],
) -> Callable[Concatenate[tuple[str, ...], P], V]:
    """Keep what a function of a tuple of names, and of hashable values, returned of late."""
    known: dict[Any, tuple[tuple[str, ...], V]] = {}

    @wraps(function)
    def kept(names: tuple[str, ...], /, *rest: P.args, **named: P.kwargs) -> V:
        place = (id(names), *rest, *named.items()) if rest or named else id(names)
        found = known.get(place)
        if found is not None:
            return found[1]
        value = function(names, *rest, **named)
        if len(known) >= _MOST:
            known.clear()  # one step for threads, unlike dropping the oldest
        known[place] = (names, value)  # held, so that its id stays its own
        return value

    return kept


@by_names
@lru_cache(maxsize=16)
def as_set(names: tuple[str, ...]) -> frozenset[str]:
    """Return a cohort as the one set that all of a process hold."""
    return frozenset(names)


@by_names
def within(names: tuple[str, ...], others: frozenset[str]) -> bool:
    """Tell whether all of a cohort are among others."""
    return others.issuperset(names)


def shared(names: Iterable[str]) -> tuple[str, ...]:
    """Return these names as the one tuple that all of a process hold: n clients name n clients."""
    return _shared(tuple(names))


@lru_cache(maxsize=16)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    return names


# --- Who takes part: names, roles and public keys, pinned at every party before the run ---

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
K = TypeVar("K")

_KEPT_COHORTS = 8
EVERYONE = "roster"  # recipient of what is public to all parties


AGGREGATOR_NAME = "aggregator"
"""Of the one party that is in every run."""


@dataclass(frozen=True)
class Party:
    """One organisation in one role, with the public halves of its keys."""

    name: str
    role: Role
    verify: VerifyKey
    seal: SealingKey

    def document(self) -> dict[str, str]:
        """Return the public facts as text (keys in hex)."""
        return {
            "name": self.name,
            "role": str(self.role),
            "verify": self.verify.raw.hex(),
            "seal": self.seal.raw.hex(),
        }


@dataclass(frozen=True)
class Identity:
    """A party together with its secret keys. Never serialised; mute when printed."""

    party: Party
    signing: SigningKey = field(repr=False)
    opening: OpeningKey = field(repr=False)

    @classmethod
    def generate(cls, name: str, role: Role) -> Identity:
        """Make fresh keys from the operating system's entropy."""
        signing, opening = SigningKey.generate(), OpeningKey.generate()
        return cls(Party(name, role, signing.public, opening.public), signing, opening)

    @classmethod
    def from_seed(cls, name: str, role: Role, seed: bytes) -> Identity:
        """Rebuild the keys of a secret 32-byte seed from a party's key store."""
        signing = SigningKey.from_seed(derive(seed, "identity", "signing"))
        opening = OpeningKey.from_seed(derive(seed, "identity", "opening"))
        return cls(Party(name, role, signing.public, opening.public), signing, opening)

    def __reduce__(self) -> Any:
        """Refuse pickling."""
        raise TypeError("an identity holds secret keys and may not be pickled")


class Roster:
    """The pinned list of parties.

    Args:
        parties: unique names and keys; exactly one aggregator, and of each other role but clients
            no more than it has names.

    Raises:
        BadEnvelope: these rules do not hold, or a name could be mistaken for an address.
    """

    def __init__(self, parties: Iterable[Party]) -> None:
        listed = tuple(parties)
        self._parties = {party.name: party for party in listed}
        self.clients = tuple(sorted(self.names(Role.CLIENT)))
        self._only = {role: self.names(role) for role in Role}
        self._cohorts: dict[bytes, tuple[str, ...]] = {}
        self._masks = by_names(self._bits)
        if len(self._parties) != len(listed):
            raise BadEnvelope("The roster names a party twice.")
        for keys in ([p.verify.raw for p in listed], [p.seal.raw for p in listed]):
            if len(set(keys)) != len(keys):  # one party would be its own witness
                raise BadEnvelope(
                    "Two parties of the roster have the same key.",
                    why="one of them stands there under two names",
                    fix="every party makes its own keys; ask both for theirs",
                )
        if len(self.names(Role.AGGREGATOR)) != 1:
            raise BadEnvelope("A roster has one aggregator.")
        for role in set(Role) - {Role.CLIENT}:
            if len(self.names(role)) > most(role):
                raise BadEnvelope(f"A roster has at most {most(role)} parties in role {role}.")
        for name in self._parties:
            if name == EVERYONE or not _NAME.fullmatch(name):
                raise BadEnvelope("A party's name is 1 to 60 letters, digits, dots or dashes.")

    def names(self, role: Role) -> list[str]:
        """Return the names of all parties in `role`."""
        return [party.name for party in self._parties.values() if party.role is role]

    def party(self, name: str) -> Party:
        """Return a party by name; raises BadEnvelope for a stranger."""
        if name not in self._parties:
            raise BadEnvelope("A party that is not on the roster sent or is named in a message.")
        return self._parties[name]

    def one(self, role: Role) -> Party:
        """Return the only party in `role`; raises BadEnvelope if there is none."""
        found = self._only[role]
        if len(found) != 1:
            raise BadEnvelope(f"The roster holds {len(found)} parties in role {role}; needed: 1.")
        return self._parties[found[0]]

    def mask(self, members: Sequence[str]) -> bytes:
        """Return the cohort as a bit mask over the sorted roster clients."""
        return self._masks(tuple(members))

    def _bits(self, names: tuple[str, ...]) -> bytes:
        bits = bytearray(-(-len(self.clients) // 8))
        for index in map(self.place, names):
            bits[index // 8] |= 1 << (index % 8)
        return bytes(bits)

    def place(self, client: str) -> int:
        """Return a client's number among the sorted clients; raises BadEnvelope for a stranger."""
        if client not in self._places:
            raise BadEnvelope("A cohort names a client that is not on the roster.")
        return self._places[client]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.clients)}

    def unmask(self, bits: bytes) -> tuple[str, ...]:
        """Return the members named by a bit mask; raises BadEnvelope for bits beyond the roster.

        The last few answers are kept: where parties share a roster, they share one tuple a cohort.
        """
        found = self._cohorts.get(bits)
        return _keep(self._cohorts, bits, self._members(bits)) if found is None else found

    def _members(self, bits: bytes) -> tuple[str, ...]:
        chosen = [i for i in range(8 * len(bits)) if bits[i // 8] >> (i % 8) & 1]
        if chosen and chosen[-1] >= len(self.clients):
            raise BadEnvelope("A cohort names a client that is not on the roster.")
        return tuple(self.clients[i] for i in chosen)

    def document(self) -> list[dict[str, str]]:
        """Return all parties, sorted by name, as plain data."""
        return [self._parties[name].document() for name in sorted(self._parties)]

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) over the whole roster, which never changes."""
        return hashlib.sha256(b"secure-fgl/roster\0" + canonical(self.document())).hexdigest()


def _keep(known: dict[K, V], key: K, value: V) -> V:
    """Remember one of the last few answers, and return it."""
    while len(known) >= _KEPT_COHORTS:
        known.pop(next(iter(known)))
    known[key] = value
    return value


def run_id(nonce: bytes, roster: Roster, plan_digest: str, policy_digest: str) -> str:
    """Name a run so that its roster, plan and policy cannot be exchanged afterwards."""
    parts = [nonce.hex(), roster.digest, plan_digest, policy_digest]
    return hashlib.sha256(b"secure-fgl/run\0" + canonical(parts)).hexdigest()[:32]


def cohort_digest(run: str, plan: str, round: int, attempt: int, members: Sequence[str]) -> str:
    """Digest of the exact cohort (O4): run, plan, round, attempt and the sorted members."""
    return _cohort_digest(tuple(members), run, plan, round, attempt)


@by_names  # asked for with every envelope of an exchange
@lru_cache(maxsize=64)
def _cohort_digest(members: tuple[str, ...], run: str, plan: str, round: int, attempt: int) -> str:
    content = canonical([run, plan, round, attempt, sorted(members)])
    return hashlib.sha256(b"secure-fgl/cohort\0" + content).hexdigest()


# --- What a cohort is given alike, and its digest: it stands in every answer's header (O8) ---
#
# Of a model there is one of its weights alone, by which runs are compared.

SHARED = (Disclosure.RELEASED, Disclosure.PUBLIC)
"""Disclosures that every member of a cohort is given alike, so that they can be compared (O8)."""


def given_digest(messages: Sequence[Message], dims: Mapping[str, int]) -> str:
    """Return the digest of what a cohort was given (equal for every client, O8)."""
    return bytes_digest([(type(message), encode([message], dims)) for message in messages])


def bytes_digest(given: Sequence[tuple[type[Message], bytes | memoryview]]) -> str:
    """Return the `given_digest` of messages of these types and bytes."""
    kinds = names(tuple(kind for kind, _ in given)).encode()
    digest = hashlib.sha256(b"secure-fgl/given\0" + kinds + b"\0")
    for _, data in given:
        digest.update(data)  # models are megabytes: not joined first
    return digest.hexdigest()


def weights_of(model: Message) -> dict[str, Array]:
    """Return the real fields of a model by name."""
    real = [field.name for field in model.fields if field.wire in ("f4", "f8")]
    return {name: np.asarray(getattr(model, name)) for name in real}


def weights_digest(arrays: Mapping[str, Array]) -> str:
    """Return SHA-256 (hex) over sorted names, dtypes, shapes and little-endian bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        little = array.astype(array.dtype.newbyteorder("<"))
        digest.update(f"{name}|{little.dtype.str}|{little.shape}|".encode())
        digest.update(little.tobytes())
    return digest.hexdigest()
