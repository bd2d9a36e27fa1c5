"""Everything that an object can reach, and which of it is a secret of somebody else."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from typing import Any

import tenseal
import tenseal.sealapi as seal
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey

from algorithms.tasks import Site
from crypto.homomorphic.he import SecretKey
from crypto.hpke import OpeningKey
from crypto.signing import SigningKey
from protocols.keys.pairs import Pairs

_NOT_ENTERED = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType)
_HE = (SecretKey, seal.SecretKey, seal.Decryptor, seal.KeyGenerator)
_KEYS = (
    OpeningKey,
    SigningKey,
    Ed25519PrivateKey,
    MLKEM768PrivateKey,
    X25519PrivateKey,
    MLKEM768X25519PrivateKey,
)


def reachable(root: object) -> Iterator[object]:
    """Yield everything reachable from `root`; functions are entered, their globals are not."""
    seen, stack = {id(root)}, [root]
    while stack:
        thing = stack.pop()
        yield thing
        for inner in _inside(thing):
            if id(inner) not in seen and not isinstance(inner, _NOT_ENTERED):
                seen.add(id(inner))
                stack.append(inner)


def _inside(thing: object) -> list[Any]:
    if isinstance(thing, types.FunctionType):
        return [thing.__closure__, thing.__defaults__, thing.__kwdefaults__, thing.__dict__]
    return list(gc.get_referents(thing))  # slots included


def secrets(root: object, own: object) -> list[str]:
    """Return the type names of secrets that `root` reaches and that do not belong to `own`.

    Args:
        root: a session.
        own: the identity whose keys the session may hold.
    """
    allowed = {id(thing) for thing in reachable(own)}
    found = []
    for thing in reachable(root):
        private = isinstance(thing, tenseal.Context) and thing.has_secret_key()
        foreign = isinstance(thing, (*_KEYS, Site, Pairs)) and id(thing) not in allowed
        if isinstance(thing, _HE) or private or foreign:
            found.append(type(thing).__name__)
    return found
