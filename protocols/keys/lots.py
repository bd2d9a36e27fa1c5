"""How all parties of a run draw one seed that none of them chooses: commit, then open.

Blum, "Coin flipping by telephone" (1981), with everybody's coin in one hash. Aggregator and clients
each draw 32 bytes from the operating system and say what they are bound to, their digest. Once all
clients hold the same table of digests, they say the bytes. The seed is a hash of all of them, so it
is uniform to whoever knows all but one honest party's.

Each digest is signed by its client, so that nobody else's stands in its place; with its bytes each
client signs the digest of the whole table, so that all who go on saw the same one. Whoever said a
digest and then keeps its bytes back ends the draw: to leave it out instead would let an aggregator
with c colluders choose among 2^c seeds once it has seen all of them (ADR 0045). What is left to it
is to let the run not start at all.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from crypto.errors import CryptoError
from crypto.signing import canonical
from protocols.errors import BadEnvelope
from protocols.messages import Vector
from protocols.wire.run_context import RunContext

__all__ = ["Table", "bound_to", "check_commit", "check_commits", "column", "rows_of", "sign_commit"]

SECRET_BYTES = 32
_COMMIT, _TABLE = "lot commitment", "lot table"
_LIES = "the aggregator or a client chooses what the cohorts are drawn from, or is out of step"


def bound_to(context: RunContext, name: str, secret: bytes) -> bytes:
    """Return what a party of a run is bound to by its 32 random bytes."""
    content = [context.run, context.plan_digest, name, secret.hex()]
    return hashlib.sha256(b"secure-fgl/lot\0" + canonical(content)).digest()


def check_bound(context: RunContext, name: str, secret: bytes, said: bytes) -> None:
    """Raise BadEnvelope unless a party's bytes are those that it was bound to."""
    if not hmac.compare_digest(bound_to(context, name, secret), said):
        raise BadEnvelope(
            f"{name} opened other bytes than it was bound to when lots were drawn.", why=_LIES
        )


def commit_text(context: RunContext, name: str, said: bytes) -> bytes:
    """Return what a client signs over its digest."""
    return canonical([context.run, context.plan_digest, name, said.hex()])


def sign_commit(context: RunContext, said: bytes) -> bytes:
    """Return a client's signature over its own digest."""
    text = commit_text(context, context.me.party.name, said)
    return context.me.signing.sign(_COMMIT, text)


def check_commits(
    context: RunContext, said: Mapping[str, bytes], signed: Mapping[str, bytes]
) -> None:
    """Raise BadEnvelope unless every client signed its digest for this run and plan."""
    known = _found(context, b"commits", _joined(said) + _joined(signed))
    for name in said if not known else ():
        check_commit(context, name, said[name], signed[name])
    known.add(True)


def check_commit(context: RunContext, name: str, said: bytes, signature: bytes) -> None:
    """Raise BadEnvelope unless a client signed this digest for this run and plan."""
    _verify(context, _COMMIT, name, signature, commit_text(context, name, said))


class Table:
    """What everybody is bound to.

    Args:
        context: of the run.
        own: what the aggregator is bound to.
        said: by client, what it is bound to.
    """

    def __init__(self, context: RunContext, own: bytes, said: Mapping[str, bytes]) -> None:
        self._context, self._own, self._said = context, own, dict(said)
        facts = canonical([context.run, context.plan_digest, context.roster.digest, own.hex()])
        self.digest = hashlib.sha256(b"secure-fgl/lots\0" + facts + _joined(said)).digest()

    def sign(self) -> bytes:
        """Return this client's signature over the whole table."""
        return self._context.me.signing.sign(_TABLE, self.digest)

    def check(self, name: str, secret: bytes, signature: bytes) -> None:
        """Raise BadEnvelope unless a client opened what it was bound to, for this very table."""
        _verify(self._context, _TABLE, name, signature, self.digest)
        check_bound(self._context, name, secret, self._said[name])

    def check_all(self, secrets: Mapping[str, bytes], signed: Mapping[str, bytes]) -> None:
        """Raise BadEnvelope unless every client opened what it was bound to, for this table."""
        known = _found(self._context, self.digest, _joined(secrets) + _joined(signed))
        for name in self._said if not known else ():
            self.check(name, secrets[name], signed[name])
        known.add(True)

    def seed(self, aggregator: str, own: bytes, secrets: Mapping[str, bytes]) -> bytes:
        """Return the seed; raises BadEnvelope unless everybody opened, the aggregator too."""
        check_bound(self._context, aggregator, own, self._own)
        if secrets.keys() != self._said.keys():
            raise BadEnvelope("Not everybody who is bound opened its bytes.", why=_LIES)
        content = self.digest + own + _joined(secrets)
        return hashlib.sha256(b"secure-fgl/lot seed\0" + content).digest()


def _verify(context: RunContext, domain: str, name: str, signature: bytes, text: bytes) -> None:
    try:
        context.roster.party(name).verify.verify(domain, signature, text)
    except CryptoError as error:
        raise BadEnvelope(f"{name} did not sign this when lots were drawn.", why=_LIES) from error


def _joined(said: Mapping[str, bytes]) -> bytes:
    """Return names and what each said, all of one size; no name holds a zero."""
    names = sorted(said)
    return "\0".join(names).encode() + b"\0\0" + b"".join(map(said.__getitem__, names))


def _found(context: RunContext, place: bytes, said: bytes) -> set[bool]:
    """Return whether this was found true in this process; it follows from public facts alone."""
    facts = canonical([context.run, context.plan_digest, context.roster.digest])
    return _true(hashlib.sha256(facts + place + b"\0" + said).digest())


@lru_cache(maxsize=8)
def _true(said: bytes) -> set[bool]:
    return set()


def column(clients: Sequence[str], said: Mapping[str, bytes], size: int) -> Vector:
    """Return what clients said, one row for each of the roster's; zeros for who said nothing."""
    found = b"".join(said.get(name, bytes(size)) for name in clients)
    return np.frombuffer(found, dtype=np.uint8).reshape(-1, size)


def rows_of(clients: Sequence[str], members: Sequence[str], rows: Vector) -> dict[str, bytes]:
    """Return what each of `members` said, of a `column`."""
    place = {name: number for number, name in enumerate(clients)}
    return {name: np.asarray(rows)[place[name]].tobytes() for name in members}
