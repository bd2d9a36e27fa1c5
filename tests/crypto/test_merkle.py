"""Append-only trees and their proofs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import InvalidProof, OutOfRange
from crypto.merkle import (
    Tree,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root,
    verify_consistency,
    verify_inclusion,
)
from tests.crypto.known import unhex, vectors

CT = vectors("rfc9162_merkle.json")
CT_LEAVES = [leaf_hash(data) for data in unhex(*CT["leaves"])]
CT_ROOTS = unhex(*CT["roots"])
LEAVES = [leaf_hash(bytes([number])) for number in range(40)]
ROOTS = [root(LEAVES[:size]) for size in range(41)]


def test_reference_leaf_hashes_and_heads():
    assert unhex(*CT["leaf_hashes"]) == CT_LEAVES
    tree = Tree()
    for size, data in enumerate([*unhex(*CT["leaves"]), b""]):
        assert tree.root() == root(CT_LEAVES[:size]) == CT_ROOTS[size]
        assert tree.size == size
        assert tree.append(data) == size


@pytest.mark.parametrize("case", CT["inclusion"])
def test_reference_inclusion_proofs(case):
    index, size, proof = case["index"], case["size"], unhex(*case["proof"])
    assert inclusion_proof(CT_LEAVES[:size], index) == proof
    verify_inclusion(CT_LEAVES[index], index, size, proof, CT_ROOTS[size])


@pytest.mark.parametrize("case", CT["consistency"])
def test_reference_consistency_proofs(case):
    old, new, proof = case["old"], case["new"], unhex(*case["proof"])
    assert consistency_proof(CT_LEAVES[:new], old) == proof
    verify_consistency(old, new, CT_ROOTS[old], CT_ROOTS[new], proof)


def mth(leaves):
    """The recursive definition of RFC 9162 section 2.1.1, as a second implementation."""
    import hashlib

    if len(leaves) <= 1:
        return leaves[0] if leaves else hashlib.sha256().digest()
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return hashlib.sha256(b"\1" + mth(leaves[:half]) + mth(leaves[half:])).digest()


@pytest.mark.parametrize("size", range(41))
def test_every_proof_of_every_size(size):
    assert mth(LEAVES[:size]) == ROOTS[size]
    for index in range(size):
        proof = inclusion_proof(LEAVES[:size], index)
        assert len(proof) <= 6
        verify_inclusion(LEAVES[index], index, size, proof, ROOTS[size])
    for old in range(size + 1):
        proof = consistency_proof(LEAVES[:size], old)
        verify_consistency(old, size, ROOTS[old], ROOTS[size], proof)


def inclusion_lies(index, size, proof):
    leaf, head = LEAVES[index], ROOTS[size]
    yield LEAVES[(index + 1) % 40], index, size, proof, head
    yield leaf, (index + 1) % size, size, proof, head
    yield leaf, index, size, proof, ROOTS[size - 1]
    yield leaf, index, size, [*proof, head], head
    yield leaf, index, size, proof[:-1], head
    yield leaf, size, size, proof, head
    yield leaf, -1, size, proof, head
    yield leaf, index, size, [*proof[:-1], proof[-1][:31]], head
    yield leaf, index, size, [leaf_hash(b"other"), *proof[1:]], head


@given(st.data())
def test_inclusion_lies_are_refused(data):
    size = data.draw(st.integers(2, 40))
    index = data.draw(st.integers(0, size - 1))
    for lie in inclusion_lies(index, size, inclusion_proof(LEAVES[:size], index)):
        with pytest.raises(InvalidProof):
            verify_inclusion(*lie)


def test_nothing_is_proved_about_another_size():
    """The hashes of these proofs do add up: only the sizes are lies."""
    lies = [
        (LEAVES[0], 0, 5, inclusion_proof(LEAVES[:4], 0), ROOTS[4]),
        (LEAVES[0], 0, 8, inclusion_proof(LEAVES[:4], 0), ROOTS[4]),
        (LEAVES[1], 0, 1, [LEAVES[0]], ROOTS[2]),
        (LEAVES[3], 1, 2, inclusion_proof(LEAVES[:4], 3), ROOTS[4]),
    ]
    for lie in lies:
        with pytest.raises(InvalidProof):
            verify_inclusion(*lie)
    for old, claimed, proved in ((2, 5, 4), (2, 8, 4), (4, 16, 8), (3, 9, 4), (2, 3, 5)):
        proof = consistency_proof(LEAVES[:proved], old)
        with pytest.raises(InvalidProof):
            verify_consistency(old, claimed, ROOTS[old], ROOTS[proved], proof)


@given(st.data())
def test_a_rewritten_log_has_no_consistency_proof(data):
    new = data.draw(st.integers(2, 40))
    old = data.draw(st.integers(1, new - 1))
    touched = data.draw(st.integers(0, old - 1))
    forged = [*LEAVES[:touched], leaf_hash(b"forged"), *LEAVES[touched + 1 : new]]
    for proof in (consistency_proof(forged, old), consistency_proof(LEAVES[:new], old)):
        with pytest.raises(InvalidProof):
            verify_consistency(old, new, ROOTS[old], root(forged), proof)


@given(st.data())
def test_damaged_consistency_proofs_are_refused(data):
    new = data.draw(st.integers(2, 40))
    old = data.draw(st.integers(1, new - 1))
    proof = consistency_proof(LEAVES[:new], old)
    place = data.draw(st.integers(0, len(proof) - 1))
    damaged = [
        [*proof[:place], leaf_hash(b"other"), *proof[place + 1 :]],
        [*proof[:place], *proof[place + 1 :]],
        [*proof, LEAVES[0]],
        [],
    ]
    for lie in damaged:
        with pytest.raises(InvalidProof):
            verify_consistency(old, new, ROOTS[old], ROOTS[new], lie)
    with pytest.raises(InvalidProof):
        verify_consistency(new, old, ROOTS[new], ROOTS[old], proof)


@pytest.mark.parametrize(
    ("old", "new", "old_root", "new_root", "proof"),
    [
        (0, 3, ROOTS[1], ROOTS[3], []),
        (0, 3, ROOTS[0], ROOTS[3], [LEAVES[0]]),
        (3, 3, ROOTS[3], ROOTS[2], []),
        (3, 3, ROOTS[3], ROOTS[3], [LEAVES[0]]),
        (0, 0, ROOTS[0], ROOTS[1], []),
        (-1, 3, ROOTS[0], ROOTS[3], []),
        (3, 3, b"", b"", []),
    ],
)
def test_trivial_cases_are_checked_too(old, new, old_root, new_root, proof):
    with pytest.raises(InvalidProof):
        verify_consistency(old, new, old_root, new_root, proof)


def test_a_node_cannot_pass_for_a_leaf():
    assert leaf_hash(LEAVES[0] + LEAVES[1]) != root(LEAVES[:2])


def test_questions_that_have_no_answer():
    with pytest.raises(OutOfRange):
        inclusion_proof(LEAVES[:3], 3)
    with pytest.raises(OutOfRange):
        consistency_proof(LEAVES[:3], 4)
    with pytest.raises(OutOfRange):
        Tree().append_hash(b"short")
