"""Append-only Merkle trees as Certificate Transparency builds them (RFC 9162 section 2.1).

Leaves and inner nodes are hashed with different prefixes, so no node can pass for a leaf. All
functions work on lists of *leaf hashes*; `Tree` keeps only the right edge of the tree, O(log n).
"""

import hashlib
import hmac
from collections.abc import Sequence

from crypto.errors import InvalidProof, OutOfRange

__all__ = [
    "HASH_BYTES",
    "Tree",
    "consistency_proof",
    "inclusion_proof",
    "leaf_hash",
    "perfect_tree",
    "root",
    "verify_consistency",
    "verify_inclusion",
]

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

    def copy(self) -> "Tree":
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
