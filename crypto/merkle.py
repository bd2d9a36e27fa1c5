"""Append-only Merkle trees (RFC 9162 section 2.1) and their signed heads (C2SP tlog-checkpoint)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from crypto.errors import InvalidProof, InvalidSignature, NotCanonical, OutOfRange
from crypto.signing import SIGNATURE_BYTES, SigningKey, VerifyKey

# --- Append-only Merkle trees as Certificate Transparency builds them (RFC 9162 section 2.1) ---
#
# Leaves and inner nodes are hashed with different prefixes, so no node can pass for a leaf. All
# functions work on lists of *leaf hashes*; `Tree` keeps only the right edge of the tree, O(log n).

HASH_BYTES = 32


def leaf_hash(data: bytes) -> bytes:
    """Return SHA-256(0x00 ‖ data), the hash of one entry (section 2.1.1)."""
    return hashlib.sha256(b"\x00" + data).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _split(size: int) -> int:
    """Return the largest power of two smaller than `size` (size > 1)."""
    return 1 << ((size - 1).bit_length() - 1)


def root(leaf_hashes: Sequence[bytes]) -> bytes:
    """Return the 32-byte tree head of these leaves; the empty tree has SHA-256 of nothing."""
    tree = Tree()
    for leaf in leaf_hashes:
        tree.append_hash(leaf)
    return tree.root()


def inclusion_proof(leaf_hashes: Sequence[bytes], index: int) -> list[bytes]:
    """Return the audit path of leaf `index`, from the leaf upwards (section 2.1.3.1).

    Raises OutOfRange if there is no such leaf.
    """
    size = len(leaf_hashes)
    if not 0 <= index < size:
        raise OutOfRange("There is no leaf at this index.")
    if size == 1:
        return []
    half = _split(size)
    if index < half:
        return [*inclusion_proof(leaf_hashes[:half], index), root(leaf_hashes[half:])]
    return [*inclusion_proof(leaf_hashes[half:], index - half), root(leaf_hashes[:half])]


def verify_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected_root: bytes
) -> None:
    """Check that `leaf` (a leaf hash) is entry `index` of the tree of `size` leaves with this root.

    Section 2.1.3.2. Raises InvalidProof.
    """
    _check_hashes([leaf, expected_root, *proof])
    if not 0 <= index < size:
        raise InvalidProof
    position, last, head = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            raise InvalidProof
        if position & 1 or position == last:
            head = _node(sibling, head)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            head = _node(head, sibling)
        position, last = position >> 1, last >> 1
    if last or not hmac.compare_digest(head, expected_root):
        raise InvalidProof


def consistency_proof(leaf_hashes: Sequence[bytes], old_size: int) -> list[bytes]:
    """Return the proof that the first `old_size` leaves are a prefix of this tree (2.1.4.1).

    Empty for old_size 0 and for the whole tree. Raises OutOfRange if the tree was never that big.
    """
    if not 0 <= old_size <= len(leaf_hashes):
        raise OutOfRange("The tree never had this size.")
    if old_size in (0, len(leaf_hashes)):
        return []
    return _subproof(leaf_hashes, old_size, whole=True)


def _subproof(leaf_hashes: Sequence[bytes], old_size: int, *, whole: bool) -> list[bytes]:
    size = len(leaf_hashes)
    if old_size == size:
        return [] if whole else [root(leaf_hashes)]
    half = _split(size)
    if old_size <= half:
        left = _subproof(leaf_hashes[:half], old_size, whole=whole)
        return [*left, root(leaf_hashes[half:])]
    right = _subproof(leaf_hashes[half:], old_size - half, whole=False)
    return [*right, root(leaf_hashes[:half])]


def verify_consistency(
    old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Check that the tree of `new_size` leaves extends the one of `old_size` (section 2.1.4.2).

    Everything extends the empty tree, whose root must be the empty root. Raises InvalidProof.
    """
    _check_hashes([old_root, new_root, *proof])
    if not 0 <= old_size <= new_size:
        raise InvalidProof
    if old_size in (0, new_size):
        _check_trivial(old_size, new_size, old_root, new_root, proof)
        return
    # A complete old tree is itself the first node of the path, so its proof omits it.
    path = [old_root, *proof] if old_size & (old_size - 1) == 0 else list(proof)
    if not path:
        raise InvalidProof
    position, last = old_size - 1, new_size - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    old_head = new_head = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise InvalidProof
        if position & 1 or position == last:
            old_head, new_head = _node(sibling, old_head), _node(sibling, new_head)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            new_head = _node(new_head, sibling)
        position, last = position >> 1, last >> 1
    same = hmac.compare_digest(old_head, old_root) & hmac.compare_digest(new_head, new_root)
    if last or not same:
        raise InvalidProof


def _check_trivial(
    old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> None:
    if proof:
        raise InvalidProof
    if old_size == 0 and not hmac.compare_digest(old_root, Tree().root()):
        raise InvalidProof
    if old_size == new_size and not hmac.compare_digest(old_root, new_root):
        raise InvalidProof


def _check_hashes(hashes: Sequence[bytes]) -> None:
    if any(len(value) != HASH_BYTES for value in hashes):
        raise InvalidProof


class Tree:
    """A tree that grows: appending costs O(log n) and so does its memory."""

    def __init__(self) -> None:
        """Start with the empty tree."""
        self._size = 0
        # Roots of the complete subtrees on the right edge, largest first: one per set bit of size.
        self._edge: list[bytes] = []

    @property
    def size(self) -> int:
        """How many leaves have been appended."""
        return self._size

    def copy(self) -> Tree:
        """Return this tree as it stands: what is appended later is not in it."""
        made = Tree()
        made._size, made._edge = self._size, list(self._edge)
        return made

    def append(self, data: bytes) -> int:
        """Append an entry and return its index."""
        return self.append_hash(leaf_hash(data))

    def append_hash(self, leaf: bytes) -> int:
        """Append an entry by its 32-byte leaf hash and return its index; raises OutOfRange."""
        if len(leaf) != HASH_BYTES:
            raise OutOfRange(f"A leaf hash has exactly {HASH_BYTES} bytes.")
        index, head = self._size, bytes(leaf)
        while self._size & 1:
            head = _node(self._edge.pop(), head)
            self._size >>= 1
        self._edge.append(head)
        self._size = index + 1
        return index

    def root(self) -> bytes:
        """Return the 32-byte head of the tree as it stands."""
        if not self._edge:
            return hashlib.sha256(b"").digest()
        head = self._edge[-1]
        for left in reversed(self._edge[:-1]):
            head = _node(left, head)
        return head


def perfect_tree(leaf_hashes: Sequence[bytes]) -> tuple[bytes, list[list[bytes]]]:
    """Return root and the inclusion proofs of all leaves of a tree with 2^m leaves, in O(n log n).

    The proofs are those of `inclusion_proof`, which takes O(n) for each. Raises OutOfRange for
    another number of leaves.
    """
    size = len(leaf_hashes)
    if not size or size & (size - 1):
        raise OutOfRange("A perfect tree has a power of two of leaves.")
    proofs: list[list[bytes]] = [[] for _ in leaf_hashes]
    level, height = list(leaf_hashes), 0
    while len(level) > 1:
        for leaf, proof in enumerate(proofs):
            proof.append(level[(leaf >> height) ^ 1])
        level = [_node(*pair) for pair in zip(level[::2], level[1::2], strict=True)]
        height += 1
    return level[0], proofs


# --- A log's signed head in the format that transparency logs share (C2SP tlog-checkpoint) ---
#
# The text is the origin, the size in decimal and the root in base64, one per line, an empty line,
# and one signature line of C2SP signed-note: an em dash, the signer's name and base64(key hash ‖
# Ed25519 signature), with key hash = SHA-256(name ‖ 0x0A ‖ 0x01 ‖ public key)[:4]. So a head of
# ours can be checked with anybody's tool.
#
#     https://c2sp.org/tlog-checkpoint   https://c2sp.org/signed-note

MAX_TEXT = 4096  # bytes; a real checkpoint has under 400
_ED25519 = 0x01
_HASH_PREFIX = 4
_DASH = "\u2014 "
_MAX_SIZE = 2**63 - 1
_LINES = 6  # origin, size, root, empty line, one signature line, and the rest after the last \n


def key_hash(name: str, key: VerifyKey) -> bytes:
    """Return the four bytes by which a signature line points at its key (signed-note)."""
    raw = name.encode("utf-8") + b"\n" + bytes([_ED25519]) + key.raw
    return hashlib.sha256(raw).digest()[:_HASH_PREFIX]


def _check_name(name: str) -> None:
    if not (0 < len(name) <= 128 and name.isprintable() and "+" not in name and " " not in name):
        raise OutOfRange("A signer's name is 1 to 128 printable characters without space or plus.")


@dataclass(frozen=True)
class Checkpoint:
    """The head of one log: `size` entries hash to `root` (32 bytes); `origin` names the log."""

    origin: str
    size: int
    root: bytes

    def __post_init__(self) -> None:
        """Refuse what could not be written down and read back; raises OutOfRange."""
        if not (0 < len(self.origin) <= 256 and self.origin.isprintable()):
            raise OutOfRange("An origin is 1 to 256 printable characters on one line.")
        if not 0 <= self.size <= _MAX_SIZE:
            raise OutOfRange("A log's size lies between 0 and 2^63 - 1.")
        if len(self.root) != HASH_BYTES:
            raise OutOfRange(f"A log's root has exactly {HASH_BYTES} bytes.")

    def text(self) -> str:
        """Return the part that is signed, with its final newline."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    def sign(self, key: SigningKey, name: str) -> str:
        """Return the whole note: the text, an empty line and the signature line of `name`."""
        return self.note(key.sign_raw(self.text().encode("utf-8")), name, key.public)

    def note(self, signature: bytes, name: str, key: VerifyKey) -> str:
        """Return the whole note with a signature of `name` over `text`, which is not checked."""
        _check_name(name)
        raw = key_hash(name, key) + signature
        return f"{self.text()}\n{_DASH}{name} {base64.b64encode(raw).decode()}\n"


def read(text: str, *, name: str, key: VerifyKey) -> Checkpoint:
    """Return the checkpoint that `name` signed with `key`.

    Strict: exactly one signature line, no extension lines, no second spelling of size or root.
    Raises NotCanonical if the text has another form, InvalidSignature if it was not signed so.
    """
    _check_name(name)
    if len(text) > MAX_TEXT:
        raise NotCanonical(f"A checkpoint is at most {MAX_TEXT} characters.")
    lines = text.split("\n")
    if len(lines) != _LINES or lines[3] or lines[5]:
        raise NotCanonical
    signature = _signature(lines[4], name, key)
    try:
        found = Checkpoint(lines[0], _size(lines[1]), _base64(lines[2]))
        signed = found.text().encode("utf-8")
    except (OutOfRange, UnicodeEncodeError):
        raise NotCanonical from None
    # The text is rebuilt from what was read, so only its one spelling can verify.
    key.verify_raw(signature, signed)
    return found


def _signature(line: str, name: str, key: VerifyKey) -> bytes:
    prefix = f"{_DASH}{name} "
    if not line.startswith(_DASH):
        raise NotCanonical
    if not line.startswith(prefix):
        raise InvalidSignature
    raw = _base64(line.removeprefix(prefix))
    if len(raw) != _HASH_PREFIX + SIGNATURE_BYTES:
        raise NotCanonical
    if not hmac.compare_digest(raw[:_HASH_PREFIX], key_hash(name, key)):
        raise InvalidSignature
    return raw[_HASH_PREFIX:]


def _size(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(_MAX_SIZE))):
        raise NotCanonical
    if digits != str(int(digits)):
        raise NotCanonical
    return int(digits)


def _base64(encoded: str) -> bytes:
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise NotCanonical from None
    if base64.b64encode(raw).decode() != encoded:
        raise NotCanonical
    return raw
