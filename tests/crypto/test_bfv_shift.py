"""Adding plaintext in numpy gives the very words that SEAL's own evaluator gives."""

from __future__ import annotations

import numpy as np
import pytest
import tenseal.sealapi as seal

from crypto.homomorphic.bfv import BFV44, BFV48, DEGREE, Parameters, SealBfv
from crypto.homomorphic.seal import Scratch
from crypto.samplers import Stream


def by_seal(bfv: SealBfv, words: np.ndarray, plain: np.ndarray) -> np.ndarray:
    heads, context = bfv._heads, bfv._context
    ciphertext, plaintext = seal.Ciphertext(context), seal.Plaintext()
    evaluator, out = seal.Evaluator(context), np.empty_like(words)
    with Scratch() as scratch:
        for source, row, target in zip(words, plain.reshape(-1, DEGREE), out, strict=True):
            ciphertext.load(context, scratch.put(heads.ciphertext, source))
            plaintext.load(context, scratch.put(heads.plaintext, row))
            evaluator.add_plain_inplace(ciphertext, plaintext)
            target[:] = np.frombuffer(heads.cut(scratch.dump(ciphertext), heads.ciphertext), "<u8")
    return out


@pytest.mark.parametrize("chosen", [BFV44, BFV48], ids=lambda chosen: chosen.name)
def test_the_shift_equals_seal_on_random_values_and_at_the_edges(chosen: Parameters) -> None:
    bfv = SealBfv(chosen)
    t = bfv.plain_modulus
    public, _ = bfv.keygen()
    stream = Stream(bytes(range(32)))
    plain = stream.uniform(t, 2 * DEGREE)
    half = t // 2
    edges = [0, 1, half - 1, half, half + 1, t - 1, t // 16383]
    plain[: len(edges)] = edges
    words = bfv.parse(bfv.encrypt(public, stream.uniform(t, 2 * DEGREE)))
    shifted = bfv.shifted(words, plain.reshape(-1, DEGREE))
    assert np.array_equal(shifted, by_seal(bfv, words, plain))
    assert not np.array_equal(shifted, words)
