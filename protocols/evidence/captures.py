"""What a run keeps to be audited later: captured rounds, and canaries in a client's training."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from pydantic import Field

from crypto.samplers import Stream, derive, entropy
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.forms import Form
from protocols.strict import Strict

# --- Captured rounds: what a party keeps of its own, locked, so that it can be audited later ---
#
# The owner of the data can only show what its messages still reveal if it can look at them again.
# So in the rounds that the policy names each client keeps what it was given, its site's memory and
# draws as they were before it answered, the very bytes that left, and who was mixed with whom; the
# aggregator keeps what the Ask brought back. Where items are matched, or rows of nodes are found by
# tags, a client keeps its tags, the matcher those that it compared, and a tag server what it could
# look tags up in by itself: tags made with its share alone, never the share. What a client computed
# before protection is never kept: an audit computes it again.
#
# Of a masked vector a client also keeps the residues as they went into the seal or the ciphertext,
# which nobody but the receiver could open again. They are uniform; beside what the client said they
# are the sum of its masks. No key and no single pair's mask is kept.
#
# Where a client is handed a row of its own, it keeps that too, though it says nothing to it: nobody
# else has it, so nobody else could show what others in it give away.
#
# Each piece is written once, and the party's ledger names it with the SHA-256 of its locked bytes,
# in the same durable write as the exchange that it is of. So a piece that is changed, exchanged or
# taken away is seen by whoever has the ledger, long after the key is gone.
#
# Who sees what: nobody without the party's own key, which lies elsewhere and is destroyed when the
# days are over. Whoever has it sees what the party itself saw in these rounds. Nothing of a capture
# leaves the party.

_TAGS = "-tags"
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Capture(Strict):
    """What a party keeps for audits.

    Attributes:
        rounds: ``sampled``: the first, the middle and the last; ``all``.
        days: after which it can no longer be read.
    """

    rounds: Literal["sampled", "all"] = "sampled"
    days: int = Field(default=30, ge=1, le=3650, strict=True)


def captured_rounds(capture: Capture | None, rounds: int) -> Sequence[int]:
    """Return which of the rounds 1..`rounds` are captured."""
    if capture is None or rounds < 1:
        return ()
    if capture.rounds == "all":
        return range(1, rounds + 1)
    return sorted({1, (rounds + 1) // 2, rounds})


def piece(name: str, round: int, exchange: int) -> str:
    """Return the name of a piece; raises ValueError for a name that is no exchange's."""
    if not _WORD.fullmatch(name):
        raise ValueError("an exchange's name is a word")
    return f"{name}-{round}-{exchange}"


def tags_of(place: str) -> str:
    """Return the name of the piece that holds the tags of an answer, by that of the answer."""
    return place + _TAGS


def is_piece(text: str, round: int, exchange: int) -> bool:
    """Tell whether a text names a piece of this round and exchange."""
    name = text.split("-", maxsplit=1)[0]
    if not _WORD.fullmatch(name):
        return False
    place = piece(name, round, exchange)
    return text in (place, tags_of(place))


def of_piece(text: str) -> tuple[str, int, int]:
    """Return exchange name, round and exchange number of a piece; raises ValueError."""
    name, round, exchange = text.removesuffix(_TAGS).split("-")
    return name, int(round), int(exchange)


def masked_digest(nonce: str, words: NDArray[np.unsignedinteger[Any]]) -> str:
    """Return the ledger's commitment (hex) to a masked vector inside an envelope.

    Args:
        nonce: of the envelope's header.
        words: shape (n,), the residues.
    """
    found = hashlib.sha256(b"secure-fgl/masked\0" + bytes.fromhex(nonce))
    found.update(np.ascontiguousarray(words).data)
    return found.hexdigest()


# --- Canaries: records that a client makes up and puts into its training by coin flips ---
#
# They measure what gets out (attack A11): whoever tells which of them trained has learnt that from
# messages or models, as nothing else knows the coins. For that nobody may know them before the run
# is over, and nobody may choose them after it. So each client draws a secret from the operating
# system when its session begins, before it sends anything; its ledger's first entry holds the
# digest of the secret, and so does every head after it, which others hold; its last entry opens it.
# Coins and records follow from the secret, and the records from the client's own data besides.

SECRET_BYTES = 32
_BARE = (Disclosure.MATCH, Disclosure.MIXED, Disclosure.ROW_SUM)
_KINDS = {"node": "nodes without edges", "graph": "graphs", "rating": "ratings"}
_STEP = "canaries"


class Canaries(Strict):
    """How many canaries each client has.

    Attributes:
        records: made up by each client; each trains with probability one half.
        seed: ``heads``: the coins' seed is a secret of the client that the heads of its ledger
            commit to from the first on.
    """

    records: int = Field(ge=10, le=10_000, strict=True)
    seed: Literal["heads"] = "heads"


def new_secret() -> bytes:
    """Return a secret of a client's own, from the operating system (O15)."""
    return entropy(SECRET_BYTES)


def commitment(secret: bytes, run: str, party: str) -> str:
    """Return what a client's ledger begins with: SHA-256 (hex) over run, party and secret.

    Secrets have 256 bits, so the digest tells nothing of them.
    """
    place = f"{run}\0{party}\0".encode()
    return hashlib.sha256(b"secure-fgl/canaries\0" + place + secret).hexdigest()


def coins(secret: bytes, records: int) -> npt.NDArray[np.bool_]:
    """Return which of so many canaries train, bool (records,): fair coins, each by itself."""
    drawn = Stream(derive(secret, "secure-fgl", "canaries", "coins")).uniform(2, records)
    return drawn.astype(bool)


def content_key(secret: bytes) -> bytes:
    """Return what the canaries themselves are drawn from, 32 bytes; it tells nothing of coins."""
    return derive(secret, "secure-fgl", "canaries", "content")


def opened(secret: str, committed: str, run: str, party: str) -> bytes:
    """Return a secret that a client opened.

    Args:
        secret: as its ledger's last entry has it (hex).
        committed: as its first entry has it.
        run: name of the run.
        party: whose ledger it is.

    Raises:
        EvidenceError: at step ``canaries``: it is not the one that was committed to, or anybody
            could have guessed it.
    """
    try:
        found = bytes.fromhex(secret)
    except ValueError:
        found = b""
    if len(found) != SECRET_BYTES:
        raise EvidenceError(_STEP, f"{party} opens something that is no secret of canaries")
    if not hmac.compare_digest(commitment(found, run, party).encode(), committed.encode()):
        raise EvidenceError(
            _STEP, f"{party} opens other coins of its canaries than it committed to before the run"
        )
    if found in set(_guessable(run, party)):
        raise EvidenceError(_STEP, f"anybody could have guessed the coins of {party}'s canaries")
    return found


def _guessable(run: str, party: str) -> Iterator[bytes]:
    """Yield secrets that follow from public things; a list can never be whole."""
    yield from (bytes([byte]) * SECRET_BYTES for byte in range(256))
    yield from (number.to_bytes(SECRET_BYTES, order) for number in range(256) for order in _ORDERS)
    for text in (run, party, f"{run}/{party}", f"{run}{party}", f"{party}/{run}"):
        yield hashlib.sha256(text.encode()).digest()
    yield bytes.fromhex(run) if len(run) == 2 * SECRET_BYTES and _is_hex(run) else b""


_ORDERS: tuple[Literal["big", "little"], ...] = ("big", "little")


def _is_hex(text: str) -> bool:
    return set(text) <= set("0123456789abcdef")


def canary_words(canaries: Canaries | None, task: str) -> tuple[str, ...]:
    """Return what a plan lists of canaries; nothing without them.

    Args:
        canaries: the policy's.
        task: ``node``, ``graph`` or ``rating``.
    """
    if canaries is None:
        return ()
    return (
        f"each client makes up {canaries.records} {_KINDS.get(task, 'records')} (canaries) and "
        "puts each into its training by a secret coin flip: training sees them, and no number of "
        "records and no score that leaves counts them",
    )


def planted_objection(form: Form[Any], canaries: Canaries | None) -> str | None:
    """Say which message of a form would count canaries, or show them to others; None if none.

    What is left is computed by training, or scores other records; numbers of training records are
    those of `Site.count`, which counts no canary.
    """
    if canaries is None:
        return None
    for exchange in form.exchanges:
        for kind in exchange.back:
            rows = any(f.held or f.told or (f.wire == "u8" and f.shape) for f in kind.fields)
            if kind in exchange.held_out:
                continue
            if kind.disclosure in _BARE or rows:
                return (
                    f"message {kind.__name__} is made of single records or counts them by kind, "
                    "and canaries would be among them"
                )
    return None
