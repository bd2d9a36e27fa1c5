"""A session's state as bytes: a closed codec, no pickles.

Everything that a session holds is written down by one rule, so that no field can be forgotten: an
object of a listed class is its class's name and its attributes. Numbers, texts, bytes, arrays,
containers, messages and keys are values. What all parties of a run share (plan, policy, roster,
the form's exchanges) and what has its own place (ledger, site) is named, not copied. Whatever is
none of these raises, so a new kind of state is noticed by the first test that keeps a session.

Long values may be put apart, so that what did not change since the last state is not written again.

The bytes hold secrets in clear: `keeping` locks them before they touch a disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from crypto.homomorphic.bfv_parts import PublicKey, SecretKey
from crypto.homomorphic.he import Scheme
from protocols.disclosures._evaluated.ciphers import EVALUATED, ring_of
from protocols.errors import LocalProtocolError
from protocols.keys.pairs import Pairs
from protocols.messages import Message
from protocols.sessions.store.fields import LENGTH, attributes, is_flat, next_part
from protocols.sessions.store.kept_kinds import enums, objects
from protocols.wire.roster import Identity, Roster

_LONG = 1 << 16
"""Bytes from which on a value is put apart."""
_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)  # `_write` would not end

Buffer = bytes | memoryview
Apart = Callable[[Buffer], str]


class _Blobs:
    """What a state holds beside its tree: bytes, or the names of bytes that are put apart."""

    def __init__(self, apart: Apart | None) -> None:
        self.here: list[Buffer] = []
        self.sizes: list[int | str] = []
        self._apart = apart
        self._places: dict[int, tuple[object, int]] = {}

    def add(self, data: Buffer) -> int:
        """Take bytes over and return their place."""
        if self._apart is not None and len(data) >= _LONG:
            self.sizes.append(self._apart(data))
        else:
            self.here.append(data)
            self.sizes.append(len(data))
        return len(self.sizes) - 1

    def add_array(self, value: np.ndarray[Any, Any], order: Any) -> int:
        """Take an array over and return its place; one that comes again keeps it."""
        if (known := self._places.get(id(value))) is not None:
            return known[1]
        long = value.nbytes >= _LONG and order == "C"
        place = self.add(value.reshape(-1).view(np.uint8).data if long else value.tobytes(order))
        self._places[id(value)] = (value, place)  # held, so that its id stays its own
        return place


class StateCodec:
    """Packs and unpacks the state of one session.

    Args:
        shared: what is named instead of copied, by name.
        kinds: every message type that may occur.
        scheme: of the run's encryption keys, None without encryption.
        under: 32-byte key of this party's store; secret encryption keys are locked under it.
    """

    def __init__(
        self,
        shared: Mapping[str, object],
        kinds: Iterable[type[Message]],
        scheme: Scheme | None,
        under: bytes,
    ) -> None:
        self._shared = dict(shared)
        self._names = {id(thing): name for name, thing in shared.items() if thing is not None}
        self._kinds = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in kinds}
        self._scheme, self._under = scheme, under

    def pack(self, value: object, apart: Apart | None = None) -> bytes:
        """Return the bytes of a value.

        Args:
            value: what to pack.
            apart: keeps long bytes elsewhere and returns their name; None keeps everything here.

        Raises:
            LocalProtocolError: something in it is of a class that this codec does not list.
        """
        blobs = _Blobs(apart)
        tree = _JSON.encode(self._write(value, blobs)).encode()
        sizes = _JSON.encode(blobs.sizes).encode() if blobs.sizes else b"[]"
        heads = (LENGTH.pack(len(tree)), tree, LENGTH.pack(len(sizes)), sizes)
        return b"".join((*heads, *blobs.here))

    def unpack(
        self,
        data: bytes,
        fetch: Callable[[str], bytes] | None = None,
        only: Sequence[str] = (),
    ) -> Any:
        """Return the value of these bytes, which must be this codec's own (authenticated).

        Args:
            data: what `pack` returned.
            fetch: returns what `apart` kept under a name.
            only: of a mapping with these keys, read nothing else.
        """
        tree, place = next_part(data, 0)
        sizes, place = next_part(data, place)
        blobs = []
        for size in json.loads(sizes):
            if isinstance(size, str):
                if fetch is None:
                    raise LocalProtocolError("A kept state names parts, and none were given.")
                blobs.append(fetch(size))
                continue
            blobs.append(data[place : place + size])
            place += size
        found = json.loads(tree)
        if only:
            found = {"dict": [pair for pair in found["dict"] if pair[0] in only]}
        return self._read(found, blobs)

    def names(self, value: object) -> bool:
        """Tell whether something is named instead of copied."""
        return id(value) in self._names

    def pairs(self, kept: Mapping[str, Any]) -> Pairs:
        """Return a client's pair secrets, of what `Pairs.kept` said."""
        me, roster = self._shared.get("me"), self._shared.get("roster")
        if not isinstance(me, Identity) or not isinstance(roster, Roster):
            raise LocalProtocolError("Pair secrets were kept without whose they are.")
        return Pairs.of_kept(me, roster, kept)

    @staticmethod
    def named(data: bytes) -> frozenset[str]:
        """Return the names under which `apart` kept long bytes of these."""
        _, place = next_part(data, 0)
        sizes, _ = next_part(data, place)
        return frozenset(size for size in json.loads(sizes) if isinstance(size, str))

    def _write(self, value: Any, blobs: _Blobs) -> Any:
        if type(value) in _PLAIN:
            return value
        if (name := self._names.get(id(value))) is not None:
            return {"shared": name}
        # A subclass would come back as its base: only these very classes, but for those that are
        # open by design.
        if (writer := _WRITERS.get(type(value))) is not None:
            return writer(self, value, blobs)
        for kind in _OPEN:
            if isinstance(value, kind):
                return _WRITERS[kind](self, value, blobs)
        if type(value).__name__ in objects() and type(value) in objects().values():
            facts = [[k, self._write(v, blobs)] for k, v in attributes(value).items()]
            return {"object": [type(value).__name__, facts]}
        raise LocalProtocolError(f"A {type(value).__name__} cannot be kept in a session's state.")

    def _array(self, value: np.ndarray[Any, Any], blobs: _Blobs) -> Any:
        if value.dtype.hasobject or value.dtype.fields:
            raise LocalProtocolError("An array of objects cannot be kept in a session's state.")
        # The order in memory decides how sums round, so it is kept.
        order: Any = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        place = blobs.add_array(value, order)
        return {"array": [place, value.dtype.str, list(value.shape), order]}

    def _set(self, value: set[Any] | frozenset[Any], blobs: _Blobs) -> Any:
        tag = type(value).__name__
        if is_flat(value):  # what was sent and seen: long, and of nothing but texts and numbers
            return {"flat": [tag, list(value)]}
        return {tag: self._many(value, blobs)}

    def _dict(self, value: dict[Any, Any], blobs: _Blobs) -> Any:
        if is_flat(value) and all(type(item) is int for item in value.values()):
            return {"flat": ["dict", list(value.items())]}
        return {"dict": [self._many(pair, blobs) for pair in value.items()]}

    def _read_flat(self, content: Any, blobs: list[bytes]) -> Any:
        tag, rows = content
        if tag == "dict":
            return {tuple(key): item for key, item in rows}
        found = {tuple(row) for row in rows}
        return found if tag == "set" else frozenset(found)

    def _many(self, values: Iterable[Any], blobs: _Blobs) -> list[Any]:
        # Most are plain: a call less for each of them.
        return [v if type(v) in _PLAIN else self._write(v, blobs) for v in values]

    def _message(self, value: Message, blobs: _Blobs) -> Any:
        name = self._kind(type(value))
        parts = [[f.name, self._write(getattr(value, f.name), blobs)] for f in value.fields]
        return {"message": [name, parts]}

    def _kind(self, kind: type[Any]) -> str:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if self._kinds.get(name) is not kind:
            raise LocalProtocolError(f"{kind.__name__} is not a message of this run.")
        return name

    def _secret(self, key: SecretKey, blobs: _Blobs) -> Any:
        locked = self._needed(key.scheme).lock_secret(key, self._under)
        return {"secret": [key.scheme, blobs.add(locked)]}

    def _needed(self, name: str) -> Scheme:
        """Return the scheme of a key."""
        if self._scheme is not None and self._scheme.name == name:
            return self._scheme
        for disclosure in EVALUATED:
            if (ring := ring_of(disclosure)).name == name:
                return ring
        raise LocalProtocolError("A key is kept, and this party has no encryption scheme.")

    def _read(self, tree: Any, blobs: list[bytes]) -> Any:
        if not isinstance(tree, dict):
            return tree
        ((tag, content),) = tree.items()
        reader: _Reader = _READERS[tag]
        return reader(self, content, blobs)

    def _read_object(self, content: Any, blobs: list[bytes]) -> Any:
        name, facts = content
        made = object.__new__(objects()[name])
        for key, value in facts:
            object.__setattr__(made, key, self._read(value, blobs))
        return made

    def _read_message(self, content: Any, blobs: list[bytes]) -> Message:
        name, parts = content
        return self._kinds[name](**{key: self._read(value, blobs) for key, value in parts})

    def _read_array(self, content: Any, blobs: list[bytes]) -> Any:
        place, kind, shape, order = content
        flat = np.frombuffer(blobs[place], dtype=np.dtype(kind))
        return flat.reshape(shape, order=order).copy(order)

    def _read_secret(self, content: Any, blobs: list[bytes]) -> SecretKey:
        name, place = content
        for public in self._shared.values():
            if isinstance(public, PublicKey) and public.scheme == name:
                return self._needed(name).unlock_secret(blobs[place], public, self._under)
        raise LocalProtocolError("A secret key was kept without its public half.")


_Writer = Callable[[StateCodec, Any, _Blobs], Any]
_Reader = Callable[[StateCodec, Any, list[bytes]], Any]
_PLAIN = frozenset({type(None), bool, int, str})
"""What JSON holds as it is."""
_WRITERS: dict[type[Any], _Writer] = {
    Enum: lambda c, v, b: {"enum": [type(v).__name__, v.value]},
    np.ndarray: StateCodec._array,
    np.generic: lambda c, v, b: {"scalar": c._array(np.asarray(v), b)},
    float: lambda c, v, b: {"float": v.hex()},
    bytes: lambda c, v, b: {"bytes": b.add(v)},
    bytearray: lambda c, v, b: {"bytearray": b.add(bytes(v))},
    list: lambda c, v, b: {"list": c._many(v, b)},
    tuple: lambda c, v, b: {"tuple": c._many(v, b)},
    frozenset: StateCodec._set,
    set: StateCodec._set,
    dict: StateCodec._dict,
    Message: StateCodec._message,
    type: lambda c, v, b: {"type": c._kind(v)},
    PublicKey: lambda c, v, b: {"public": [v.scheme, b.add(v.raw)]},
    SecretKey: StateCodec._secret,
}
_OPEN = (Enum, np.generic, Message, type)
_READERS: dict[str, _Reader] = {
    "array": StateCodec._read_array,
    "bytearray": lambda c, v, b: bytearray(b[v]),
    "bytes": lambda c, v, b: b[v],
    "dict": lambda c, v, b: {c._read(key, b): c._read(item, b) for key, item in v},
    "enum": lambda c, v, b: enums()[v[0]](v[1]),
    "flat": StateCodec._read_flat,
    "float": lambda c, v, b: float.fromhex(v),
    "frozenset": lambda c, v, b: frozenset(c._read(item, b) for item in v),
    "list": lambda c, v, b: [c._read(item, b) for item in v],
    "message": StateCodec._read_message,
    "object": StateCodec._read_object,
    "public": lambda c, v, b: c._needed(v[0]).load_public(b[v[1]]),
    "scalar": lambda c, v, b: c._read(v, b)[()],
    "secret": StateCodec._read_secret,
    "set": lambda c, v, b: {c._read(item, b) for item in v},
    "shared": lambda c, v, b: c._shared[v],
    "tuple": lambda c, v, b: tuple(c._read(item, b) for item in v),
    "type": lambda c, v, b: c._kinds[v],
}
