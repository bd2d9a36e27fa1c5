"""Every way by which bytes of a peer reach native code, role by role.

A module of `crypto` that begins to import a native library needs an entry here; a test compares.
What is not here reads bytes in Python and numpy alone, which raise where a size does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any
from unittest.mock import patch

import numpy as np

from crypto import aead, oprf
from crypto.aead import lock, lock_at_rest, lock_under, unlock, unlock_at_rest, unlock_under
from crypto.homomorphic.bfv_parts import rest_info
from crypto.homomorphic.he import NAMES, scheme
from crypto.homomorphic.seal import Scratch
from crypto.homomorphic.similarity import similarity
from crypto.homomorphic.weighted import Weights, weighted
from crypto.hpke import OpeningKey, SealingKey
from crypto.oprf import KeyShare, blind, pointwise
from crypto.samplers import Stream, derive
from crypto.signing import SigningKey, VerifyKey
from tests.laws.frames import Loader
from tests.laws.vanishing import one_root, vanishing

KEY = b"\x07" * 32
INFO = b"info"
ROW = np.arange(8, dtype=np.uint64)
_MODULES = {
    "bfv-sealapi": ("bfv", "seal"),
    "bfv48-sealapi": ("bfv", "seal"),
    "ckks-sealapi": ("bfv", "seal"),
    "ckks-cosine": ("similarity", "bfv", "seal"),
    "bfv-weighted": ("bfv", "seal"),
}
# X25519 points of low order (RFC 7748 section 6.1) and the same for Ed25519 (RFC 8032).
_LOW = [bytes(32), b"\1" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f", b"\xff" * 32]
# RFC 9496 appendix A.3: the identity, negative, not canonical, no square.
_NO_POINTS = [
    bytes(32),
    b"\1" + bytes(31),
    b"\xff" * 32,
    b"\xed" + b"\xff" * 30 + b"\x7f",
    bytes.fromhex("26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371"),
]


@cache
def loaders() -> tuple[Loader, ...]:
    """Return all loaders, with keys and frames of this process."""
    rings = [*map(scheme, NAMES), similarity(), weighted()]
    keys = {ring.name: ring.keygen() for ring in rings}
    bare = {ring.name: _bare_secret(ring, keys[ring.name][1]) for ring in rings}
    foreign = [*(public.raw for public, _ in keys.values()), *chain(*bare.values())]
    found: list[Loader] = []
    for ring in rings:
        found += _of_ring(ring, *keys[ring.name], bare[ring.name][1], foreign)
    found += _of_cosines(similarity(), *keys["ckks-cosine"], foreign)
    found += _of_rows(weighted(), *keys["bfv-weighted"], foreign)
    return (*found, *_of_keys(), *_of_boxes(), *_of_points())


def _bare_secret(ring: Any, secret: Any) -> list[bytes]:
    """Return a secret key as SEAL saves it, and its bare words."""
    with Scratch() as scratch:
        inner = secret.use(ring.name).secret
        inner.save(scratch.path)
        with open(scratch.path, "rb") as file:
            saved = file.read()
        return [saved, ring._heads.cut(scratch.dump(inner), ring._heads.secret)]


def _parms(ring: Any) -> list[bytes]:
    """Return how SEAL names the parameters of a scheme's ciphertexts and of its keys."""
    return [head[16:48] for head in (ring._heads.ciphertext, ring._heads.public)]


def _of_ring(
    ring: Any, public: Any, secret: Any, words: bytes, foreign: Sequence[bytes]
) -> Iterator[Loader]:
    """What clients and key authority read under any scheme."""
    name, modules, under = ring.name, _MODULES[ring.name], KEY
    encrypted = ring.encrypt(public, ROW)

    def unlocked(raw: bytes) -> object:
        again = ring.unlock_secret(raw, public, under)
        return name == "ckks-cosine" or ring.decrypt(again, encrypted)

    def relocked(raw: bytes) -> object:
        return unlocked(lock_at_rest(under, rest_info(public.key_id), raw))

    yield Loader(
        f"client: public key, {name}",
        modules,
        lambda raw: ring.encrypt(ring.load_public(raw), ROW),
        [public.raw, ring.keygen()[0].raw],
        head=len(ring._key_head),
        foreign=foreign,
        parms=_parms(ring),
    )
    ready = [ring.zeros(public, 1) for _ in range(2)]
    yield Loader(
        f"client: zeros made ahead, {name}",
        modules,
        lambda raw: ring.encrypt(public, ROW, raw),
        ready,
        _uploads(ring, ready[0]),
    )
    locked = [ring.lock_secret(secret, under) for _ in range(2)]
    yield Loader(f"key authority: locked secret, {name}", modules, unlocked, locked, share=3)
    yield Loader(
        f"key authority: secret under its own lock, {name}",
        modules,
        relocked,
        [words],
        [bytes(len(words)), b"\xff" * len(words)],
        foreign=foreign,
        parms=_parms(ring),
    )
    if name in NAMES:
        yield from _of_sums(ring, public, secret, foreign)


def _of_sums(ring: Any, public: Any, secret: Any, foreign: Sequence[bytes]) -> Iterator[Loader]:
    """What aggregator and key authority read of sums."""
    uploads = [ring.encrypt(public, ROW * np.uint64(k)) for k in (1, 2)]

    def summed(raw: bytes) -> object:
        total = ring.accumulator(public)
        total.add(uploads[0])
        total.add(raw)
        total.add_plain(ring.blind(KEY, total.coefficients))
        return total.to_bytes()

    for who, feed in (
        ("aggregator: upload", summed),
        ("key authority: sum", lambda raw: ring.decrypt(secret, raw)),
    ):
        yield Loader(
            f"{who}, {ring.name}",
            _MODULES[ring.name],
            feed,
            uploads,
            _uploads(ring, uploads[0]),
            foreign=foreign,
            parms=_parms(ring),
        )


def _uploads(ring: Any, upload: bytes) -> list[bytes]:
    """Ciphertexts that need no key, words of q and beyond, and wrong numbers of parts."""
    words, half = ring.parse(upload).copy(), len(upload) // 2
    words[:, ring.degree :] = 0
    single = words.copy()
    single[:, -1] = 1  # needs a key, by one word
    return [
        ring.to_wire(words),
        ring.to_wire(single),
        bytes(len(upload)),
        b"\xff" * len(upload),
        upload[:half],
        upload + upload[:half],
        upload * 2,
        b"",
    ]


def _of_cosines(ring: Any, public: Any, secret: Any, foreign: Sequence[bytes]) -> Iterator[Loader]:
    """Compared vectors: uploads one by one and in pairs, and masked products."""
    modules = _MODULES[ring.name]
    vectors = [Stream(bytes([k] * 32)).unit(5) - 0.5 for k in (1, 2)]
    uploads = [ring.upload(public, vector) for vector in vectors]
    half, operand = len(uploads[0]), ring.operand(uploads[0])
    products = [ring.product(public, operand, operand, bytes([k] * 32)) for k in (1, 2)]

    def compared(raw: bytes) -> object:
        return ring.product(public, operand, ring.operand(raw), KEY)

    def paired(raw: bytes) -> object:
        first, second = ring.operand(raw[:half]), ring.operand(raw[half:])
        return ring.product(public, first, second, KEY)

    def keyed(raw: bytes) -> object:
        return ring.product(ring.load_public(raw), operand, operand, KEY)

    bad = _uploads(ring, uploads[0])
    apart = one_root(ring, 0) + one_root(ring, 1)  # their product needs no key
    off = vanishing(ring, public, KEY)  # and of these two, product and fresh zero together
    for who, feed, frames, hostile in (
        ("aggregator: compared vector", compared, uploads, bad),
        ("witness: two compared vectors", paired, [uploads[0] + uploads[1]], [apart, off, *bad]),
        ("key authority: masked product", _cosine(ring, secret), products, []),
    ):
        about = {"foreign": foreign, "parms": _parms(ring)}
        yield Loader(who, modules, feed, frames, hostile, **about)
    head = len(ring._key_head)
    yield Loader("aggregator: public key of cosines", modules, keyed, [public.raw], head=head)


def _cosine(ring: Any, secret: Any) -> Callable[[bytes], object]:
    return lambda raw: ring.cosine(secret, raw)


def _of_rows(ring: Any, public: Any, secret: Any, foreign: Sequence[bytes]) -> Iterator[Loader]:
    """Weighed models: uploads, and rows that are opened."""
    uploads = [ring.encrypt(public, ROW * np.uint64(k)) for k in (1, 2, 3, 4)]
    weights, seeds = Weights(np.full((4, 4), 2), 8), [bytes([k] * 32) for k in range(4)]
    rows = ring.combine(public, uploads, weights, seeds)

    def combined(raw: bytes) -> object:
        return ring.combine(public, [*uploads[:3], raw], weights, seeds)

    for who, feed, frames in (
        ("aggregator and witness: weighed model", combined, uploads),
        ("key authority: row", lambda raw: ring.decrypt(secret, raw), rows),
    ):
        hostile = _uploads(ring, frames[0])
        about = {"foreign": foreign, "parms": _parms(ring)}
        yield Loader(who, _MODULES[ring.name], feed, frames, hostile, **about)


def _of_keys() -> Iterator[Loader]:
    """Signing and sealing keys, of the roster and of epochs."""
    signing, opening = SigningKey.from_seed(KEY), OpeningKey.from_seed(KEY)
    signature, raw = signing.sign("toy", INFO), signing.public.raw
    sealing = opening.public.raw
    yield Loader(
        "anyone: key of signatures",
        ("signing",),
        lambda raw: VerifyKey(raw).verify("toy", signature, INFO),
        [raw],
        _LOW,
        share=12,
    )
    yield Loader(
        "anyone: signature",
        ("signing",),
        lambda given: signing.public.verify("toy", given, INFO),
        [signature],
        [low + bytes(32) for low in _LOW],
        share=12,
    )
    yield Loader(
        "anyone: sealing key",
        ("hpke",),
        lambda raw: SealingKey(raw).seal(INFO, INFO),
        [sealing, OpeningKey.generate().public.raw],
        [b"\xff" * 1184 + sealing[1184:], *(sealing[:1184] + low for low in _LOW)],
        head=1184,
        share=4,
    )
    sealed = opening.public.seal(INFO, bytes(64))
    yield Loader(
        "anyone: sealed message",
        ("hpke",),
        lambda raw: opening.open(INFO, raw),
        [sealed],
        [sealed[:1088] + low + sealed[1120:] for low in _LOW],
        share=6,
    )
    yield Loader(
        "client: key of deterministic tags",
        ("oprf",),
        lambda raw: oprf.unsafe_public_tags(raw, [INFO]),
        [sealing[-32:]],
        _LOW,
        share=6,
    )


def _under_words(do: Callable[[bytes, bytes, bytes], bytes], data: bytes) -> bytes:
    """Lock or unlock under a passphrase of which a guess costs nothing: frames are many."""
    with patch.object(aead, "_COST", 2):
        return do(b"words", INFO, data)


def _of_boxes() -> Iterator[Loader]:
    """What is locked under one key, and keys that come as seeds."""
    yield Loader(
        "client: box of a neighbour",
        ("aead",),
        lambda raw: unlock(KEY, INFO, raw),
        [lock(KEY, INFO, bytes(100))],
        share=20,
    )
    yield Loader(
        "any role: its own state",
        ("aead", "samplers"),
        lambda raw: unlock_at_rest(KEY, INFO, raw),
        [lock_at_rest(KEY, INFO, bytes(100))],
        share=12,
    )
    yield Loader(
        "any role: identity under a passphrase",
        ("aead", "samplers"),
        lambda raw: _under_words(unlock_under, raw),
        [_under_words(lock_under, bytes(100))],
        share=1,
    )
    yield Loader(
        "receiver: seed",
        ("samplers",),
        lambda raw: (Stream(raw).words(3), derive(raw, "x")),
        [KEY, bytes(32)],
        share=12,
    )


def _of_points() -> Iterator[Loader]:
    """Points of tags: at a tag server, back at the client, and shares of a key."""
    share, batch = KeyShare.from_seed(KEY, b""), blind([b"one", b"two"])
    answers = share.evaluate(batch.points)
    good = [b"".join(batch.points), b"".join(answers)]
    bad = [point + good[0][32:] for point in _NO_POINTS] + [*_NO_POINTS, good[0][:32], b""]
    for who, feed, frames in (
        ("tag server: points", lambda raw: share.evaluate(pointwise(raw)), good),
        ("client: answered points", lambda raw: batch.finalize(pointwise(raw)), [good[1]]),
        ("gateway: relayed points", lambda raw: oprf.check(pointwise(raw)), good),
    ):
        yield Loader(who, ("oprf",), feed, frames, bad, share=6)
    zero, order = bytes(32), bytes.fromhex("edd3f55c1a631258d69cf7a2def9de14" + "00" * 15 + "10")
    yield Loader(
        "tag server: share of a key",
        ("oprf",),
        KeyShare,
        [share._scalar],
        [zero, order],
        share=6,
    )
